"""Tune a graph: the tiles, loop orders and retention that serve an objective best, as a plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..cost.document import simulate_document, totals_document
from ..cost.result import CostRequest
from ..errors import UsageError
from ..graph.bindings import parse_bindings
from ..graph.dtypes import PRECISIONS
from ..graph.load import load_graph
from ..graph.missing import require_sizes
from ..hardware.loader import load_hardware
from ..plan.file import load_plan, save_plan
from ..plan.plan import group_name
from ..plan.starting import starting_plan
from ..schema import must_be_writable
from ..search.tune import OBJECTIVES, Tuned, tune_tiles
from ..terminal import columns, print_json, quantity, size
from .simulate import ROWS, simulate_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph",
        help="a model file (ONNX, .pt2, StableHLO, HLO, DOT), or the name of a sample (`tilewright samples`)",
    )
    parser.add_argument("--hardware", default="edge-npu", help="name or file of the machine")
    parser.add_argument(
        "--objective", default="latency", help="traffic, latency or energy (default: %(default)s)"
    )
    parser.add_argument(
        "--tiles-only",
        action="store_true",
        help="keep the plan's groups as they are (needed: they are not searched)",
    )
    parser.add_argument("--dividing-tiles", action="store_true", help="only tiles that divide their extents")
    parser.add_argument(
        "--plan",
        default=None,
        help="whose groups are tuned; none: the plan that `tilewright plan` begins with",
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
    require_sizes(graph)
    machine = load_hardware(arguments.hardware)
    start = starting_plan(graph) if arguments.plan is None else None
    plan = load_plan(str(arguments.plan), graph) if start is None else start.plan
    tuned = tune_tiles(
        CostRequest(graph, machine, plan, arguments.precision),
        arguments.objective,
        arguments.dividing_tiles,
        arguments.evaluations,
        arguments.budget,
    )
    if arguments.output is not None:
        save_plan(Path(arguments.output), graph, tuned.result.request.plan)
    if arguments.json:
        document = simulate_document(tuned.result)
        document["search"] = search_document(tuned)
        print_json(document)
    else:
        print(simulate_text(tuned.result, began=tuned.before))
        print("\n" + search_text(tuned))
        print(
            changes_text(tuned, arguments.output, start.source if start is not None else str(arguments.plan))
        )
    if not tuned.result.totals.feasible:
        print("the plan does not fit the machine", file=sys.stderr)
        return 1
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be searched."""
    if arguments.objective == "p95":
        raise UsageError(
            "tiles are not searched for the tail",
            where="--objective",
            lever="Tune for latency with -o PLAN, then see its tail: serve GRAPH --plan PLAN --workload NAME.",
        )
    if arguments.objective not in OBJECTIVES:
        raise UsageError(
            f"no search for {arguments.objective!r}",
            where="--objective",
            lever=f"Use {', '.join(OBJECTIVES)}",
        )
    if not arguments.tiles_only:
        raise UsageError(
            "only tiles are searched, the groups stay as a plan has them",
            lever="Give --tiles-only; --plan FILE says whose groups, else each contraction has its tail.",
        )
    if arguments.precision and arguments.precision not in PRECISIONS:
        raise UsageError(
            f"no precision {arguments.precision!r}", where="--precision", lever=f"Use {', '.join(PRECISIONS)}"
        )
    if arguments.evaluations is not None and arguments.evaluations < 1:
        raise UsageError(f"--evaluations {arguments.evaluations}", lever="Give at least 1")
    if arguments.budget is not None and not arguments.budget > 0:
        raise UsageError(f"--budget {arguments.budget}", lever="Give seconds above 0")
    if arguments.output is not None:
        must_be_writable(arguments.output, arguments.graph, arguments.hardware)


def search_document(tuned: Tuned) -> dict[str, object]:
    """CONTRACT's ``search``, the groups that stay as they were, and the plan that it began with."""
    return {
        "objective": tuned.objective,
        "exact": tuned.exact,
        "gap": tuned.gap,
        "evaluations": tuned.evaluations,
        "seconds": tuned.seconds,
        "kept": [group_name(i) for i in tuned.kept],
        "changed": [group_name(i) for i in _changed(tuned)],
        "began_with": totals_document(tuned.before.totals),
    }


def _changed(tuned: Tuned) -> tuple[int, ...]:
    """Groups whose knobs are not those that the search began with."""
    return tuned.result.request.plan.changed(tuned.before.request.plan)


def changes_text(tuned: Tuned, output: str | None, began_with: str) -> str:
    """Which groups have other tiles now and what that changed, where the plan is, and what it was made from."""
    result, before = tuned.result, tuned.before
    lines = [f"began with: {began_with}"]
    changed = _changed(tuned)
    rows = [["changed", "operators", "tile", "latency", "before", "DRAM", "before"]]
    dram = result.request.accelerator.dram.name
    for index in sorted(changed, key=lambda i: result.groups[i].latency_s - before.groups[i].latency_s)[
        :ROWS
    ]:
        now, then = result.groups[index], before.groups[index]
        names = [result.request.graph.operators[i].name for i in now.operators]
        tile = " ".join(f"{dim}={extent}" for dim, extent in now.levels[0].tile) if now.levels else "-"
        moved = (size(sum(group.dram_bytes(dram))) for group in (now, then))
        rows.append(
            [
                group_name(index),
                " ".join(names[:2]) + (f" … {len(names) - 2} more" if len(names) > 2 else ""),
                tile[:48],
                *(quantity(group.latency_s, "s") for group in (now, then)),
                *moved,
            ]
        )
    if len(rows) == 1:
        lines.append("changed: no group; nothing better was found than what the tool chooses by itself")
    else:
        lines += ["", columns(rows, right=(3, 4, 5, 6))]
        if len(changed) > ROWS:
            lines.append(f"… and {len(changed) - ROWS:,} more (--json names them)")
    lines.append(f"written: {output}" if output else "not written: give -o PLAN to keep the plan")
    return "\n".join(lines)


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
