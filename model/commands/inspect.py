"""Show a graph's operators, dims, shapes and warnings, without simulating."""

from __future__ import annotations

import argparse
from typing import Any

from ..graph.bindings import parse_bindings
from ..graph.load import load_graph
from ..graph.summary import ROWS, inspect_document, printable, text_summary
from ..plan.file import load_plan
from ..terminal import columns, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph",
        help="a model file (ONNX, .pt2, StableHLO, HLO, DOT), or the name of a sample (`tilewright samples`)",
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument(
        "--plan", default=None, help="a saved plan or a packaged one: also its groups' dims and loop trees"
    )
    parser.add_argument("--all", action="store_true", help="list every operator")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print; 0. With ``--plan`` the plan's groups as well."""
    graph = load_graph(arguments.graph, parse_bindings(arguments.bind))
    groups: list[dict[str, Any]] = []
    if arguments.plan is not None:
        from ..cost.described import groups_document  # the cost room loads only where a plan asks for it

        groups = groups_document(graph, load_plan(arguments.plan, graph))
    if arguments.json:
        print_json({**inspect_document(graph), **({"groups": groups} if arguments.plan is not None else {})})
        return 0
    rows = max(len(graph.operators), len(groups)) if arguments.all else ROWS
    print(text_summary(graph, rows))
    if groups:
        print("\n" + groups_text(groups, rows))
    return 0


def groups_text(groups: list[dict[str, Any]], rows: int) -> str:
    """The first `rows` groups of `groups_document` as a table."""
    table = [["group", "operators", "dims", "loop tree"]]
    for group in groups[:rows]:
        dims = " ".join(f"{name}={extent}" for name, extent in group["dims"].items())
        tree = group["tree"] + ("  (chosen when simulated)" if group["tree"] and group["chosen"] else "")
        table.append([group["id"], printable(" ".join(group["operators"])), dims, tree])
    left = len(groups) - rows
    return columns(table) + (f"\n… and {left:,} more groups (--all lists them)" if left > 0 else "")
