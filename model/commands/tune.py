"""Tune a graph: the tiles, loop orders and retention that serve an objective best, as a plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..cost.document import simulate_document
from ..cost.result import CostRequest
from ..errors import UsageError
from ..graph.bindings import parse_bindings
from ..graph.dtypes import PRECISIONS
from ..graph.load import load_graph
from ..hardware.loader import load_hardware
from ..plan.edits import contraction_tails
from ..plan.file import load_plan, save_plan
from ..plan.plan import group_name
from ..search.tune import OBJECTIVES, Tuned, tune_tiles
from ..terminal import print_json, quantity
from .simulate import simulate_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("graph", help="an .onnx file, or the name of a sample (`tilewright samples`)")
    parser.add_argument("--hardware", default="edge-npu", help="name or file of the machine")
    parser.add_argument(
        "--objective", default="latency", help="traffic, latency or energy (default: %(default)s)"
    )
    parser.add_argument("--tiles-only", action="store_true", help="keep the plan's groups as they are")
    parser.add_argument("--dividing-tiles", action="store_true", help="only tiles that divide their extents")
    parser.add_argument(
        "--plan", default=None, help="whose groups are tuned; none: contractions with their tails"
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument(
        "--precision", default="", help="bf16, int8 …: replaces the file's floating-point types"
    )
    parser.add_argument("--evaluations", type=int, default=None, metavar="N", help="mappings tried at most")
    parser.add_argument(
        "--budget", type=float, default=None, metavar="SECONDS", help="after which no further group is begun"
    )
    parser.add_argument("-o", "--output", default=None, metavar="PLAN", help="write the plan to this file")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Tune, write and print; 0, or 1 where the best plan does not fit the machine."""
    _check(arguments)
    graph = load_graph(arguments.graph, parse_bindings(arguments.bind))
    machine = load_hardware(arguments.hardware)
    plan = load_plan(Path(arguments.plan), graph) if arguments.plan else contraction_tails(graph)
    tuned = tune_tiles(
        CostRequest(graph, machine, plan, arguments.precision),
        arguments.objective,
        arguments.dividing_tiles,
        arguments.evaluations,
        arguments.budget,
    )
    if arguments.output:
        save_plan(Path(arguments.output), graph, tuned.result.request.plan)
    if arguments.json:
        document = simulate_document(tuned.result)
        document["search"] = search_document(tuned)
        print_json(document)
    else:
        print(simulate_text(tuned.result))
        print("\n" + search_text(tuned))
    if not tuned.result.totals.feasible:
        print("the plan does not fit the machine", file=sys.stderr)
        return 1
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be searched."""
    if arguments.objective not in OBJECTIVES:
        raise UsageError(
            f"no search for {arguments.objective!r}",
            where="--objective",
            lever=f"Use {', '.join(OBJECTIVES)}",
        )
    if not arguments.tiles_only:
        raise UsageError(
            "the groups themselves are not searched", lever="Give --tiles-only, and --plan for the groups"
        )
    if arguments.precision and arguments.precision not in PRECISIONS:
        raise UsageError(
            f"no precision {arguments.precision!r}", where="--precision", lever=f"Use {', '.join(PRECISIONS)}"
        )
    if arguments.evaluations is not None and arguments.evaluations < 1:
        raise UsageError(f"--evaluations {arguments.evaluations}", lever="Give at least 1")
    if arguments.budget is not None and not arguments.budget > 0:
        raise UsageError(f"--budget {arguments.budget}", lever="Give seconds above 0")


def search_document(tuned: Tuned) -> dict[str, object]:
    """CONTRACT's ``search``, and the groups that stay as they were."""
    return {
        "objective": tuned.objective,
        "exact": tuned.exact,
        "gap": tuned.gap,
        "evaluations": tuned.evaluations,
        "seconds": tuned.seconds,
        "kept": [group_name(i) for i in tuned.kept],
    }


def search_text(tuned: Tuned) -> str:
    """One line on how far the search went."""
    far = "exact: no tiles, orders and depths of these groups move less" if tuned.exact else "not proven best"
    if tuned.gap is not None and not tuned.exact:
        far = f"within {tuned.gap:.1%} of the least that could move"
    kept = f"; {len(tuned.kept):,} groups stay as they were" if tuned.kept else ""
    return (
        f"searched for {tuned.objective}: {far}; {tuned.evaluations:,} evaluations in "
        f"{quantity(tuned.seconds, 's')}{kept}"
    )
