"""Show a graph's operators, dims, shapes and warnings, without simulating."""

from __future__ import annotations

import argparse

from ..graph.bindings import parse_bindings
from ..graph.load import load_graph
from ..graph.summary import ROWS, inspect_document, text_summary
from ..terminal import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph",
        help="a model file (ONNX, .pt2, StableHLO, HLO, DOT), or the name of a sample (`tilewright samples`)",
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument("--all", action="store_true", help="list every operator")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print; 0."""
    graph = load_graph(arguments.graph, parse_bindings(arguments.bind))
    if arguments.json:
        print_json(inspect_document(graph))
    else:
        print(text_summary(graph, len(graph.operators) if arguments.all else ROWS))
    return 0
