"""Cards of one group's numbers: ``G3.NAME``.

Knows the definitions of COST-MODEL and what a result holds; computes nothing that the result has not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..plan.plan import group_name
from ..why import Card, Figure, shares_of
from .profile import BURST_WINDOW_S, burstiness, contention
from .result import CostResult
from .why_parts import bottleneck_card, dram_bytes, group_label, part, plan_bytes, resident_parts


def _latency(result: CostResult, index: int) -> Card:
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
            Figure("loads and stores, if alone", group.dram_s, "s"),
            Figure("waves", group.waves),
            Figure("bottleneck", group.bottleneck.name),
            Figure("share of the plan", part(group.latency_s, result.totals.latency_s), "share"),
        ),
        note=group.bottleneck.evidence,
    )


def _traffic(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    graph, dram = result.request.graph, result.request.accelerator.dram.name
    reads, writes = dram_bytes(result, group)
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
            Figure("share of the plan", part(reads + writes, plan_bytes(result)), "share"),
            *(
                Figure(f"{outer} to and from {inner}", moved, "B")
                for (outer, inner), moved in group.moved_bytes().items()
                if outer != dram
            ),
        ),
        shares_of(parts),
        f"Loop tree: {group.tree}",
    )


def _footprint(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    capacity = {level.name: level.capacity_bytes for level in result.request.accelerator.memory}
    used = dict(group.footprint_bytes)
    parts = resident_parts(result, group)
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
        shares_of(parts, most=len(parts)),
        note=""
        if group.infeasible is None
        else f"Does not fit. Try: {'; or '.join(group.infeasible.levers)}.",
    )


def _registers(result: CostResult, index: int) -> Card:
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


def _utilisation(result: CostResult, index: int) -> Card:
    group = result.groups[index]
    return Card(
        f"{group_name(index)}.utilisation",
        f"Use of the matrix unit by {group_label(result, index)}",
        Figure("utilisation", group.utilisation, "share"),
        "ideal cycles / cycles of the matrix unit",
        (Figure("ideal cycles", group.ideal_cycles), Figure("cycles", group.cycles)),
        note="Ideal: every multiplier busy in every cycle. Ragged and misaligned tiles, fill and drain lower it.",
    )


def _bottleneck(result: CostResult, index: int) -> Card:
    limit = result.groups[index].bottleneck
    title = f"Bottleneck of {group_label(result, index)}"
    number = f"{group_name(index)}.bottleneck"
    return bottleneck_card(number, title, limit.name, limit.gain_of_10_percent, note=limit.evidence)


def _demand(result: CostResult, index: int) -> Card:
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


def _sum(name: str, title: str, unit: str, formula: str) -> Callable[[CostResult, int], Card]:
    def card(result: CostResult, index: int) -> Card:
        value = getattr(result.groups[index], name)
        return Card(
            f"{group_name(index)}.{name}",
            f"{title} of {group_label(result, index)}",
            Figure(title, value, unit),
            formula,
            (Figure("share of the plan", part(value, getattr(result.totals, name)), "share"),),
        )

    return card


GROUP: Mapping[str, Callable[[CostResult, int], Card]] = {
    "latency_s": _latency,
    "dram_bytes": _traffic,
    "footprint_bytes": _footprint,
    "registers": _registers,
    "utilisation": _utilisation,
    "bottleneck": _bottleneck,
    "U_c": _demand,
    "macs": _sum("macs", "Multiply-accumulates", "MAC", "executed points, padding counted"),
    "energy_j": _sum(
        "energy_j", "Energy", "J", "MACs × J + bytes × J per level + launch + static power × time"
    ),
    "code_bytes": _sum("code_bytes", "Code", "B", "256 + 128 an operator + 32 a loop + 64 a stream"),
    "complexity": _sum(
        "complexity", "Complexity", "", "loops + streams + depth × operators + stages − 1 + operators²"
    ),
}
