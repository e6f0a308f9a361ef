"""Simulate a graph under a plan: traffic, time, bottleneck, and the deltas against the unfused plan."""

from __future__ import annotations

import argparse
import sys

from ..cost.document import simulate_document
from ..cost.result import CostRequest, CostResult, GroupResult
from ..cost.simulate import simulate
from ..cost.why import why
from ..errors import UnknownShapeError, UsageError
from ..graph.bindings import parse_bindings
from ..graph.dtypes import PRECISIONS
from ..graph.graph import OperatorGraph
from ..graph.load import load_graph
from ..graph.missing import require_sizes
from ..graph.training import forward_only
from ..hardware.loader import load_hardware
from ..plan.file import load_plan
from ..plan.plan import group_name
from ..plan.starting import starting_plan
from ..terminal import columns, print_json, quantity, size
from ..why import card_document, card_text
from .serve import check_load, configure_load, loaded, workload_input

RATIOS = {
    "× compulsory": "DRAM bytes over those of the group's operands and results once",
    "× bound": "over the I/O lower bound, which no tile goes below",
}
ROWS = 24
"""Groups that are shown without ``--all``: those that take longest."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph",
        help="a model file (ONNX, .pt2, StableHLO, HLO, DOT), or the name of a sample (`tilewright samples`)",
    )
    parser.add_argument("--hardware", default="edge-npu", help="name or file of the machine")
    parser.add_argument(
        "--plan",
        default=None,
        help="a saved plan or a packaged one; none: the file's own fusions (HLO), else contractions with their tails",
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument(
        "--forward",
        action="store_true",
        help="of a training step the forward pass alone, as inference runs it",
    )
    parser.add_argument("--workload", default=None, help="also replay this workload and show the tail")
    configure_load(parser)
    parser.add_argument(
        "--precision", default="", help="bf16, int8 …: replaces the file's floating-point types"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit 1 where the plan does not fit the machine"
    )
    parser.add_argument(
        "--why",
        default="",
        metavar="NUMBER",
        help="explain one number: its formula, inputs and shares; latency_s, G3.footprint_bytes, serving.p95_s, "
        "of a tile size G3.buffer.n …",
    )
    parser.add_argument("--all", action="store_true", help="list every group, in launch order")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print; 0, or 1 where ``--strict`` finds that the plan does not fit."""
    if arguments.precision and arguments.precision not in PRECISIONS:
        raise UsageError(
            f"no precision {arguments.precision!r}", where="--precision", lever=f"Use {', '.join(PRECISIONS)}"
        )
    check_load(arguments)
    if arguments.forward and arguments.workload is not None:
        raise UsageError("--forward is of one request", lever="Leave --workload out.")
    over = (arguments.rate, arguments.slots, arguments.slo)
    if arguments.workload is None and any(value is not None for value in over):
        raise UsageError("--rate, --slots and --slo are of a workload", lever="Give --workload NAME as well.")
    bindings = parse_bindings(arguments.bind)
    graph = load_graph(arguments.graph, bindings)
    if arguments.forward:
        graph = forward_only(graph)
    machine = load_hardware(arguments.hardware)
    start = starting_plan(graph) if arguments.plan is None else None
    plan = load_plan(str(arguments.plan), graph) if start is None else start.plan
    result = simulate(CostRequest(graph, machine, plan, arguments.precision))
    if arguments.why.startswith("serving.") and arguments.workload is None:
        raise UsageError(f"{arguments.why} is of a workload", lever="Give --workload NAME as well.")
    served, tail, workload = None, "", None
    card = None if not arguments.why or arguments.why.startswith("serving.") else why(result, arguments.why)
    if arguments.workload is not None:
        from ..serving.document import serving_document, serving_text
        from ..serving.planned import profiles_of
        from ..serving.serve import serve
        from ..serving.why import why as serving_why

        workload = loaded(arguments)
        own, plans = profiles_of(
            workload, result, lambda dims: load_graph(arguments.graph, {**bindings, **dims})
        )
        outcome = serve(workload, own, arguments.slots, arguments.rate, plans)
        served, tail = serving_document(outcome), serving_text(outcome)
        if arguments.why and card is None:
            card = serving_why(outcome, arguments.why)
    if arguments.json:
        document = simulate_document(result, served)
        if workload is not None:
            document["inputs"]["workload"] = workload_input(workload, arguments)
        if card is not None:
            document["why"] = card_document(card)
        print_json(document)
    elif card is not None:
        print(card_text(card))
    elif lacking := _lacking(graph):
        print(lacking)
    else:
        print(simulate_text(result, arguments.all))
        if start is None:
            alone = sum(len(group.operators) == 1 for group in plan.groups)
            print(f"\nplan: {arguments.plan}: {len(plan.groups):,} groups, {alone:,} of one operator", end="")
            print(" (what the file does not name runs alone)" * bool(alone))
        elif graph.fusions:
            print(f"\nplan: {start.source}")
            print(
                "\n".join(f"note: {sentence}" for sentence in start.refused), end="\n" * bool(start.refused)
            )
        if tail:
            print("\n" + tail)
    if arguments.strict and not result.totals.feasible:
        print("the plan does not fit the machine", file=sys.stderr)
        return 1
    return 0


def _lacking(graph: OperatorGraph) -> str:
    """What is missing where no size is known, in place of a table of zeros; empty where there is something to count."""
    try:
        require_sizes(graph)
    except UnknownShapeError as missing:
        return missing.sentence()
    return ""


def simulate_text(result: CostResult, everything: bool = False, began: CostResult | None = None) -> str:
    """The result as tables: totals with their deltas, groups, warnings.

    Deltas are against the unfused plan; with ``began`` against that plan, which stands beside both.
    """
    request = result.request
    graph, machine = request.graph, request.accelerator
    slot = f"one slot of {machine.partition.slots}" if machine.partition.slots > 1 else "the whole device"
    head = (
        f"{graph.name}: {len(graph.operators):,} operators in {len(result.groups):,} groups on {machine.name}, "
        f"{slot} ({machine.slot_cores} {'core' if machine.slot_cores == 1 else 'cores'})"
    )
    lines = [head, "", _totals(result, began), "", _groups(result, everything)]
    lines.extend("\n" + _misfit(result, group) for group in result.groups if group.infeasible is not None)
    if result.warnings:
        lines.append("")
        lines.extend(_warning(*warning) for warning in result.warnings)
    return "\n".join(lines)


def _totals(result: CostResult, began: CostResult | None) -> str:
    now, before = result.totals, result.baseline
    if began is not None:
        return _beside(result, began)
    assert before is not None and now.launch_overhead_reduction is not None  # `run` asked for both
    moved, moved_before = _dram(now), _dram(before)
    rows = [
        ["", "this plan", "unfused", "change"],
        ["launch-overhead reduction", f"{now.launch_overhead_reduction:.1%}", "0.0%", ""],
        ["on-chip reuse ratio", f"{now.onchip_reuse_ratio:.3f}", f"{before.onchip_reuse_ratio:.3f}", ""],
        _row("latency", now.latency_s, before.latency_s, "s"),
        _row("launches", now.launches, before.launches, ""),
        _row("launch overhead", now.launch_s, before.launch_s, "s"),
        _row("DRAM traffic", moved, moved_before, "B"),
        _row("  read", now.dram_read_bytes, before.dram_read_bytes, "B"),
        _row("  written", now.dram_write_bytes, before.dram_write_bytes, "B"),
        _row("spill", now.spill_bytes, before.spill_bytes, "B"),
        _row("MACs", now.macs, before.macs, "MAC"),
        _row("energy", now.energy_j, before.energy_j, "J"),
        *_training_rows(result),
        ["intermediates on chip", f"{now.intermediate_onchip_share:.1%}", "0.0%", ""],
        ["compulsory traffic", size(now.compulsory_dram_bytes), "", ""],
        ["bottleneck", now.bottleneck, before.bottleneck, ""],
        ["fits", "yes" if now.feasible else "no", "yes" if before.feasible else "no", ""],
    ]  # fmt: skip
    return columns(rows, right=(1, 2, 3))


def _beside(result: CostResult, began: CostResult) -> str:
    """Totals of a plan, of the plan that it was made from, and of the unfused one."""
    assert result.baseline is not None  # `tune_tiles` asked for it
    plans = (result.totals, began.totals, result.baseline)
    rows = [["", "this plan", "began with", "change", "unfused"]]
    for name, value, unit in (
        ("latency", lambda t: t.latency_s, "s"),
        ("launches", lambda t: t.launches, ""),
        ("DRAM traffic", _dram, "B"),
        ("  read", lambda t: t.dram_read_bytes, "B"),
        ("  written", lambda t: t.dram_write_bytes, "B"),
        ("spill", lambda t: t.spill_bytes, "B"),
        ("energy", lambda t: t.energy_j, "J"),
    ):
        now, before, unfused = (value(totals) for totals in plans)
        rows.append([*_row(name, now, before, unit), _row(name, unfused, 0, unit)[1]])
    reuse, before, unfused = (f"{totals.onchip_reuse_ratio:.3f}" for totals in plans)
    rows.append(["on-chip reuse ratio", reuse, before, "", unfused])
    rows.append(["bottleneck", result.totals.bottleneck, began.totals.bottleneck, "", ""])
    rows.append(["fits", *("yes" if t.feasible else "no" for t in plans[:2]), "", ""])
    return columns(rows, right=(1, 2, 3, 4))


def _training_rows(result: CostResult) -> list[list[str]]:
    """What a training step holds for its backward pass, and what it computes again instead."""
    now, before = result.totals, result.baseline
    if result.request.graph.forward is None or before is None:
        return []
    rows = [_row("saved activations", now.saved_activation_bytes, before.saved_activation_bytes, "B")]
    if any(group.replays >= 0 for group in result.groups):
        rows.append(_row("MACs computed again", now.recomputed_macs, before.recomputed_macs, "MAC"))
    return rows


def _dram(totals: object) -> int:
    return totals.dram_read_bytes + totals.dram_write_bytes  # type: ignore[attr-defined]


def _row(name: str, now: float, before: float, unit: str) -> list[str]:
    def shown(value: float) -> str:
        if unit == "B":
            return size(value)
        return quantity(value, unit) if unit else f"{value:,}"

    change = f"{now / before - 1.0:+.1%}" if before else ""
    return [name, shown(now), shown(before), change]


def _groups(result: CostResult, everything: bool) -> str:
    launched = [(i, group) for i, group in enumerate(result.groups) if group.launches]
    chosen = launched
    if not everything:
        chosen = sorted(launched, key=lambda pair: (-pair[1].latency_s, pair[0]))[:ROWS]
    rows = [["group", "operators", "tile", "latency", "DRAM", *RATIOS, "matrix", "bottleneck"]]
    rows.extend(_group_row(result, number, group) for number, group in chosen)
    text = columns(rows, right=(3, 4, 5, 6, 7))
    hidden = len(launched) - len(chosen)
    more = f"\n… and {hidden:,} shorter groups (--all lists them)" if hidden else ""
    meant = "; ".join(f"{name}: {meaning}" for name, meaning in RATIOS.items())
    if any(level.kind == "cache" for level in result.request.accelerator.memory):
        meant += "; below 1.00 a cache held what earlier groups left"
    meant += "; matrix: ideal over taken cycles of the matrix unit"
    return f"{text}{more}\n{meant}"


def _group_row(result: CostResult, number: int, group: GroupResult) -> list[str]:
    names = [result.request.graph.operators[i].name for i in group.operators]
    again = f"{group_name(group.replays)} again: " if group.replays >= 0 else ""
    title = again + " ".join(names[:3]) + (f" … {len(names) - 3} more" if len(names) > 3 else "")
    tile = " ".join(f"{dim}={extent}" for dim, extent in group.levels[0].tile) if group.levels else "-"
    reads, writes = group.dram_bytes(result.request.accelerator.dram.name)
    least = group.compulsory_bytes, group.lower_bound_bytes
    return [
        group_name(number),
        title[:60],
        tile[:48],
        quantity(group.latency_s, "s"),
        size(reads + writes),
        *(f"{(reads + writes) / count:.2f}" if count else "-" for count in least),
        f"{group.utilisation:.0%}" if group.cycles else "-",
        group.bottleneck.name if group.feasible else "infeasible",
    ]


def _misfit(result: CostResult, group: GroupResult) -> str:
    assert group.infeasible is not None
    misfit = group.infeasible
    names = ", ".join(result.request.graph.operators[i].name for i in group.operators[:3])
    return (
        f"{group_name(result.groups.index(group))} ({names}) needs {misfit.demand_bytes:,} B in {misfit.memory}, "
        f"{misfit.capacity_bytes:,} B available. {'; or '.join(misfit.levers)}."
    )


def _warning(where: str, what: str, lever: str) -> str:
    text = f"note: {where}: {what}" if where else f"note: {what}"
    return f"{text}. {lever}" if lever else text
