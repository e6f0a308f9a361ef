"""Cards of the cost model: for each number of a `CostResult` its formula, inputs and shares.

Knows the definitions of COST-MODEL and what a result holds; computes nothing that the result has not. Numbers of the
whole plan are named ``totals.NAME``, those of a group ``G3.NAME``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping

from ..errors import UsageError
from ..plan.plan import group_name
from ..why import Card, Figure, Share, shares_of
from .profile import BURST_WINDOW_S, burstiness, contention
from .result import CostResult, GroupResult

_MOST_ROWS = 8

_Of = Callable[[GroupResult], float]
_Make = Callable[[CostResult], Card]


def numbers(result: CostResult) -> tuple[str, ...]:
    """Names of all numbers that have a card: of the plan, then of the first group (the others bear the same)."""
    return tuple(f"totals.{name}" for name in _TOTALS) + tuple(f"G1.{name}" for name in _GROUP)


def why(result: CostResult, number: str) -> Card:
    """The card of one number: ``totals.latency_s`` (or ``latency_s``), ``G3.footprint_bytes``.

    Raises
    ------
    UsageError : no number of that name, or no such group.
    """
    scope, _, name = number.rpartition(".")
    if scope in ("", "totals") and name in _TOTALS:
        return _TOTALS[name](result)
    index = int(scope[1:]) - 1 if scope[:1] in ("G", "g") and scope[1:].isdecimal() else -1
    if name in _GROUP and scope and scope != "totals":
        if not 0 <= index < len(result.groups):
            raise UsageError(
                f"no group {scope}", where="--why", lever=f"This plan has G1 to G{len(result.groups)}."
            )
        return _GROUP[name](result, index)
    known = numbers(result)
    close = difflib.get_close_matches(number, known, 3, 0.5) or [
        full for full in known if name and name in full
    ]
    raise UsageError(
        f"no number {number!r}",
        where="--why",
        lever=f"Did you mean {', '.join(close[:3])}?" if close else f"It takes {', '.join(known)}.",
    )


def group_label(result: CostResult, index: int) -> str:
    """``G3 attn_q attn_q_rows``: a group by its number and first operators."""
    graph = result.request.graph
    names = [graph.operators[i].name for i in result.groups[index].operators]
    return " ".join([group_name(index), *names[:2], *([f"+{len(names) - 2}"] if len(names) > 2 else [])])


def _dram_sum(name: str, title: str, which: int) -> _Make:
    """Bytes read from DRAM (0) or written to it (1)."""

    def card(result: CostResult) -> Card:
        return _sum(
            name,
            title,
            "B",
            "sum over groups and tensors of tile × iterations of the loops outside its retention",
            lambda group: _dram(result, group)[which],
        )(result)

    return card


def _unfused(result: CostResult, name: str, unit: str = "") -> tuple[Figure, ...]:
    """The same number of the unfused plan; nothing while that is not known."""
    plan = result.baseline
    if plan is None:
        return ()
    value = plan.dram_read_bytes + plan.dram_write_bytes if name == "dram_bytes" else getattr(plan, name)
    return (Figure("unfused", value, unit),)


def _by_group(result: CostResult, of: _Of) -> tuple[Share, ...]:
    return shares_of([(group_label(result, i), of(group)) for i, group in enumerate(result.groups)])


def _dram(result: CostResult, group: GroupResult) -> tuple[int, int]:
    return group.dram_bytes(result.request.accelerator.dram.name)


def _sum(name: str, title: str, unit: str, formula: str, of: _Of, note: str = "") -> _Make:
    """A number of the plan that is the sum of its groups'."""

    def card(result: CostResult) -> Card:
        return Card(
            f"totals.{name}",
            title,
            Figure(title, getattr(result.totals, name), unit),
            formula,
            _unfused(result, name, unit),
            _by_group(result, of),
            note,
        )

    return card


def _latency(result: CostResult) -> Card:
    now = result.totals
    return Card(
        "totals.latency_s",
        "Latency of one request alone",
        Figure("latency", now.latency_s, "s"),
        "the end of the last group, launches included",
        (
            Figure("launch overhead", now.launch_s, "s"),
            Figure("compute, if alone", now.compute_s, "s"),
            Figure("DRAM, if alone", now.dram_s, "s"),
            *_unfused(result, "latency_s", "s"),
        ),
        shares_of(
            [(group_label(result, i), group.latency_s) for i, group in enumerate(result.groups)],
            now.latency_s,
        ),
        "Compute and DRAM overlap where a group has two stages, so they do not sum to the latency.",
    )


def _launches(result: CostResult) -> Card:
    return Card(
        "totals.launches",
        "Launches",
        Figure("launches", result.totals.launches),
        "groups that run something; a group of views alone launches nothing",
        (
            Figure("groups", len(result.groups)),
            *_unfused(result, "launches"),
        ),
    )


def _launch_s(result: CostResult) -> Card:
    launch = result.request.accelerator.launch
    return Card(
        "totals.launch_s",
        "Launch overhead",
        Figure("launch overhead", result.totals.launch_s, "s"),
        "sum over launches of start of i − end of i−1, where start of i = max(end of i−1 + gap, (i+1) × issue)",
        (
            Figure("launches", result.totals.launches),
            Figure("issue", launch.issue_s, "s"),
            Figure("gap", launch.gap_s, "s"),
            *_unfused(result, "launch_s", "s"),
        ),
        note="A launch is asynchronous: long groups hide the issue of the next one, and only its gap remains.",
    )


def _launch_reduction(result: CostResult) -> Card:
    now, unfused = result.totals, result.baseline
    reduction = now.launch_overhead_reduction
    inputs = [Figure(f"overhead of {now.launches:,} launches", now.launch_s, "s")]
    if unfused is not None:
        inputs.append(Figure(f"unfused, {unfused.launches:,} launches", unfused.launch_s, "s"))
    return Card(
        "totals.launch_overhead_reduction",
        "Launch-overhead reduction",
        Figure("reduction", "not known yet" if reduction is None else reduction, "share"),
        "1 − launch overhead / launch overhead of the unfused plan",
        tuple(inputs),
        note="A launch is asynchronous: its overhead is the time between a group's end and the next one's start.",
    )


def _dram_bytes(result: CostResult) -> Card:
    now = result.totals
    return Card(
        "totals.dram_bytes",
        "DRAM traffic of one request",
        Figure("DRAM traffic", now.dram_read_bytes + now.dram_write_bytes, "B"),
        "bytes read + bytes written, spills included",
        (
            Figure("read", now.dram_read_bytes, "B"),
            Figure("written", now.dram_write_bytes, "B"),
            Figure("of it spill", now.spill_bytes, "B"),
            Figure("compulsory", now.compulsory_dram_bytes, "B"),
            *_unfused(result, "dram_bytes", "B"),
        ),
        _by_group(result, lambda group: sum(_dram(result, group))),
        "Compulsory: what enters and leaves the graph, once.",
    )


def _reuse(result: CostResult) -> Card:
    now = result.totals
    return Card(
        "totals.onchip_reuse_ratio",
        "On-chip reuse ratio",
        Figure("reuse ratio", now.onchip_reuse_ratio, "ratio"),
        "1 − DRAM bytes / operator bytes",
        (
            Figure("read from DRAM", now.dram_read_bytes, "B"),
            Figure("written to DRAM", now.dram_write_bytes, "B"),
            Figure("DRAM bytes", now.dram_read_bytes + now.dram_write_bytes, "B"),
            Figure("operator bytes", now.operator_bytes, "B"),
            Figure("compulsory", now.compulsory_dram_bytes, "B"),
            Figure("intermediates kept on chip", now.intermediate_onchip_share, "share"),
        ),
        note="Operator bytes: every operator alone, its inputs and outputs once. "
        + (
            "Negative here: tiles fetch operands again and again, and that moves more than every operator alone would. "
            "Larger tiles, or a loop order that keeps an operand on chip, raise it."
            if now.onchip_reuse_ratio < 0.0
            else "It is negative where refetching moves more than that."
        ),
    )


def _reuse_factor(result: CostResult) -> Card:
    now = result.totals
    moved = now.dram_read_bytes + now.dram_write_bytes
    return Card(
        "totals.reuse_factor",
        "Reuse factor",
        Figure("reuse factor", now.reuse_factor, "ratio"),
        "bytes that the operators use / DRAM bytes",
        (
            Figure("bytes used", now.reuse_factor * moved, "B"),
            Figure("DRAM bytes", moved, "B"),
            Figure("multiply-accumulates", now.macs, "MAC"),
        ),
        note="Used: two operands per MAC, each pointwise operand, each output.",
    )


def _onchip_share(result: CostResult) -> Card:
    return Card(
        "totals.intermediate_onchip_share",
        "Intermediates kept on chip",
        Figure("share", result.totals.intermediate_onchip_share, "share"),
        "bytes of tensors that stay inside a group / bytes of all tensors that one operator makes and another reads",
        _unfused(result, "intermediate_onchip_share", "share"),
        note="Views count in neither.",
    )


def _compulsory(result: CostResult) -> Card:
    now = result.totals
    return Card(
        "totals.compulsory_dram_bytes",
        "Compulsory traffic",
        Figure("compulsory", now.compulsory_dram_bytes, "B"),
        "the graph's addressed inputs and weights once + its outputs once",
        (Figure("DRAM bytes of this plan", now.dram_read_bytes + now.dram_write_bytes, "B"),),
    )


def _peak(result: CostResult) -> Card:
    machine = result.request.accelerator
    return Card(
        "totals.peak_footprint_bytes",
        "Peak footprint",
        Figure("peak", result.totals.peak_footprint_bytes, "B"),
        f"the largest footprint of any group in {machine.buffer.name}, the outermost explicit level",
        (Figure(f"capacity of {machine.buffer.name}", machine.buffer.capacity_bytes, "B"),),
        tuple(
            Share(share.name, share.value, None)
            for share in _by_group(
                result, lambda group: dict(group.footprint_bytes).get(machine.buffer.name, 0)
            )
        ),
    )


def _feasible(result: CostResult) -> Card:
    rows: list[Figure] = []
    levers: list[str] = []
    for index, group in enumerate(result.groups):
        label, use = group_label(result, index), group.registers
        if group.infeasible is not None:
            lack = group.infeasible
            rows.append(Figure(f"{label} needs, in {lack.memory}", lack.demand_bytes, "B"))
            rows.append(Figure(f"{label} may have", lack.capacity_bytes, "B"))
            levers += lack.levers or ("split the group",)
        elif use.spilled_bytes:
            rows.append(Figure(f"{label} spills to {use.spill_to}", use.spilled_bytes, "B"))
            levers += (use.relief,) if use.relief else ()
    notes = [f"and {len(rows) - _MOST_ROWS:,} rows more."] if len(rows) > _MOST_ROWS else []
    if levers:
        notes.append(f"Try: {'; or '.join(list(dict.fromkeys(levers))[:3])}.")
    return Card(
        "totals.feasible",
        "Feasible groups",
        Figure("feasible", "yes" if result.totals.feasible else "no"),
        "tiles at their peak within each level's capacity",
        tuple(rows[:_MOST_ROWS]) or (Figure("all groups", "fit, nothing spills"),),
        note=" ".join(notes),
    )


def _bottleneck(result: CostResult) -> Card:
    now = result.totals
    time: dict[str, float] = {}
    for group in result.groups:
        time[group.bottleneck.name] = time.get(group.bottleneck.name, 0.0) + group.latency_s
    return Card(
        "totals.bottleneck",
        "Bottleneck by sensitivity",
        Figure("bottleneck", now.bottleneck),
        "the resource of which 10 % more shortens the latency most; a set where no single one gains 1 %",
        (Figure("gain of 10 %", now.bottleneck_gain, "share"),),
        tuple(
            Share(
                f"groups limited by {name}: seconds", value, value / now.latency_s if now.latency_s else None
            )
            for name, value in sorted(time.items(), key=lambda pair: -pair[1])
        ),
    )


def _group_latency(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    return Card(
        f"{group_name(index)}.latency_s",
        f"Latency of {group_label(result, index)}",
        Figure("latency", group.latency_s, "s"),
        (
            "L₁ + Σ max(C, L of the next + S of the one before) + S of the last"
            if group.stages > 1
            else "Σ (load + compute + store) over the steps of the busiest core"
        ),
        (
            Figure("stages", group.stages),
            Figure("compute, if alone", group.compute_s, "s"),
            Figure("DRAM, if alone", group.dram_s, "s"),
            Figure("waves", group.waves),
            Figure("bottleneck", group.bottleneck.name),
            Figure("share of the plan", _part(group.latency_s, result.totals.latency_s), "share"),
        ),
        note=group.bottleneck.evidence,
    )


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _group_traffic(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    graph, dram = result.request.graph, result.request.accelerator.dram.name
    reads, writes = _dram(result, group)
    parts = [
        (f"{graph.tensors[row.tensor].name} {word}", float(moved))
        for row in group.traffic
        if row.outer == dram
        for word, moved in (("read", row.read_bytes), ("written", row.write_bytes))
    ]
    return Card(
        f"{group_name(index)}.dram_bytes",
        f"DRAM traffic of {group_label(result, index)}",
        Figure("DRAM traffic", reads + writes, "B"),
        "per tensor: its tile × iterations of the loops outside its retention, at real ragged sizes",
        (
            Figure("read", reads, "B"),
            Figure("written", writes, "B"),
            Figure("compulsory", group.compulsory_bytes, "B"),
            Figure(f"lower bound, {group.bound_source}", group.lower_bound_bytes, "B"),
            Figure("share of the plan", _part(reads + writes, _plan_bytes(result)), "share"),
            *(
                Figure(f"{outer} to and from {inner}", moved, "B")
                for (outer, inner), moved in group.moved_bytes().items()
                if outer != dram
            ),
        ),
        shares_of(parts),
        f"Loop tree: {group.tree}",
    )


def _plan_bytes(result: CostResult) -> int:
    return result.totals.dram_read_bytes + result.totals.dram_write_bytes


def _group_footprint(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    capacity = {level.name: level.capacity_bytes for level in result.request.accelerator.memory}
    used = dict(group.footprint_bytes)
    main = result.request.accelerator.buffer.name
    return Card(
        f"{group_name(index)}.footprint_bytes",
        f"Footprint of {group_label(result, index)}",
        Figure(main, used.get(main, 0), "B"),
        "the largest sum of resident tiles over the schedule; streamed tensors × stages",
        tuple(
            figure
            for name, count in group.footprint_bytes
            for figure in (
                Figure(f"resident in {name}", count, "B"),
                *([Figure(f"capacity of {name}", capacity[name], "B")] if name in capacity else []),
            )
        ),
        note=""
        if group.infeasible is None
        else f"Does not fit. Try: {'; or '.join(group.infeasible.levers)}.",
    )


def _group_registers(result: CostResult, index: int) -> Card:
    use = result.groups[index].registers
    return Card(
        f"{group_name(index)}.registers",
        f"Register pressure of {group_label(result, index)}",
        Figure("pressure", use.live / use.limit if use.limit else 0.0, "share"),
        "live / limit",
        (
            Figure(f"live, {use.unit}", use.live),
            Figure(f"limit, {use.unit}", use.limit),
            Figure("spilled", use.spilled_bytes, "B"),
            *([Figure("spill to", use.spill_to)] if use.spill_to else []),
            Figure("thread occupancy", use.occupancy, "share"),
            *([Figure("limited by", use.limited_by)] if use.limited_by else []),
        ),
        note=f"Try: {use.relief}." if use.relief else "",
    )


def _group_utilisation(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    return Card(
        f"{group_name(index)}.utilisation",
        f"Use of the matrix unit by {group_label(result, index)}",
        Figure("utilisation", group.utilisation, "share"),
        "ideal cycles / cycles of the matrix unit",
        (Figure("ideal cycles", group.ideal_cycles), Figure("cycles", group.cycles)),
        note="Ideal: every multiplier busy in every cycle. Ragged and misaligned tiles, fill and drain lower it.",
    )


def _group_bottleneck(result: CostResult, index: int) -> Card:
    limit = result.groups[index].bottleneck
    return Card(
        f"{group_name(index)}.bottleneck",
        f"Bottleneck of {group_label(result, index)}",
        Figure("bottleneck", limit.name),
        "the resource of which 10 % more shortens the latency most; a set where no single one gains 1 %",
        (Figure("gain of 10 %", limit.gain_of_10_percent, "share"),),
        note=limit.evidence,
    )


def _group_demand(result: CostResult, index: int) -> Card:
    group, machine = result.groups[index], result.request.accelerator
    slots = machine.partition.slots
    fair, beyond = contention(group.phases, slots, machine.dram.bandwidth_bytes_per_s or math.inf)
    return Card(
        f"{group_name(index)}.U_c",
        f"Demand of {group_label(result, index)} with all slots busy",
        Figure("U_c", fair, "ratio"),
        "c × bytes / (bandwidth × time): above 0.7 slots stall each other",
        (
            Figure("slots c", slots),
            Figure("X_c, stretch beyond the fair share", beyond, "ratio"),
            Figure("burstiness over 100 µs", burstiness(group, BURST_WINDOW_S), "ratio"),
        ),
        note="Burstiness describes; U_c and X_c indicate the tail.",
    )


def _group_sum(name: str, title: str, unit: str, formula: str) -> Callable[[CostResult, int], Card]:
    def card(result: CostResult, index: int) -> Card:
        value = getattr(result.groups[index], name)
        return Card(
            f"{group_name(index)}.{name}",
            f"{title} of {group_label(result, index)}",
            Figure(title, value, unit),
            formula,
            (Figure("share of the plan", _part(value, getattr(result.totals, name)), "share"),),
        )

    return card


_GROUP: Mapping[str, Callable[[CostResult, int], Card]] = {
    "latency_s": _group_latency,
    "dram_bytes": _group_traffic,
    "footprint_bytes": _group_footprint,
    "registers": _group_registers,
    "utilisation": _group_utilisation,
    "bottleneck": _group_bottleneck,
    "U_c": _group_demand,
    "macs": _group_sum("macs", "Multiply-accumulates", "MAC", "executed points, padding counted"),
    "energy_j": _group_sum(
        "energy_j", "Energy", "J", "MACs × J + bytes × J per level + launch + static power × time"
    ),
    "code_bytes": _group_sum("code_bytes", "Code", "B", "256 + 128 an operator + 32 a loop + 64 a stream"),
    "complexity": _group_sum(
        "complexity", "Complexity", "", "loops + streams + depth × operators + stages − 1 + operators²"
    ),
}

_TOTALS: Mapping[str, _Make] = {
    "latency_s": _latency,
    "launches": _launches,
    "launch_s": _launch_s,
    "launch_overhead_reduction": _launch_reduction,
    "compute_s": _sum(
        "compute_s",
        "Compute, if alone",
        "s",
        "sum over groups of matrix and vector time",
        lambda group: group.compute_s,
    ),
    "dram_s": _sum(
        "dram_s",
        "DRAM, if alone",
        "s",
        "sum over groups of DRAM bytes at the slot's port",
        lambda group: group.dram_s,
    ),
    "dram_bytes": _dram_bytes,
    "dram_read_bytes": _dram_sum("dram_read_bytes", "Read from DRAM", 0),
    "dram_write_bytes": _dram_sum("dram_write_bytes", "Written to DRAM", 1),
    "operator_bytes": _sum(
        "operator_bytes",
        "Operator bytes",
        "B",
        "every operator alone: its addressed inputs and its outputs once, views and folded constants 0",
        lambda group: group.operator_bytes,
        "Fixed by graph and precision: no plan changes it.",
    ),
    "onchip_reuse_ratio": _reuse,
    "reuse_factor": _reuse_factor,
    "intermediate_onchip_share": _onchip_share,
    "compulsory_dram_bytes": _compulsory,
    "lower_bound_dram_bytes": _sum(
        "lower_bound_dram_bytes",
        "I/O lower bound",
        "B",
        "sum over groups: for one matrix product max(compulsory, 2MNK/√S − 2S), else compulsory",
        lambda group: group.lower_bound_bytes,
        "Smith, Lowery, Langou, van de Geijn, 2019; S: elements in all storage below DRAM.",
    ),
    "spill_bytes": _sum(
        "spill_bytes",
        "Spill",
        "B",
        "the excess over the registers, written and read back in every step at the peak",
        lambda group: group.registers.spilled_bytes,
    ),
    "peak_footprint_bytes": _peak,
    "macs": _sum(
        "macs",
        "Multiply-accumulates",
        "MAC",
        "executed points of contractions, padding counted",
        lambda group: group.macs,
    ),
    "recomputed_macs": _sum(
        "recomputed_macs",
        "Recomputed multiply-accumulates",
        "MAC",
        "executed points beyond the domain: operators under loops that are not their own",
        lambda group: group.recomputed_macs,
    ),
    "vector_ops": _sum(
        "vector_ops",
        "Vector operations",
        "",
        "elements times operations of non-contractions",
        lambda group: group.vector_ops,
    ),
    "energy_j": _sum(
        "energy_j",
        "Energy",
        "J",
        "MACs × J + bytes × J per level + launches × J + static power × time",
        lambda group: group.energy_j,
        "Coefficients are the machine file's; its comments say which are assumed.",
    ),
    "code_bytes": _sum(
        "code_bytes",
        "Code",
        "B",
        "256 a kernel + 128 an operator + 32 a loop + 64 a stream and stage",
        lambda group: group.code_bytes,
        "An estimate of an order of magnitude.",
    ),
    "complexity": _sum(
        "complexity",
        "Scheduling complexity",
        "",
        "loops + streams + tree depth × operators + stages − 1 + operators², per group",
        lambda group: group.complexity,
        "A score: only its order means something.",
    ),
    "feasible": _feasible,
    "bottleneck": _bottleneck,
    "bottleneck_gain": _bottleneck,
}
