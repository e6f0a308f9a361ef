"""Cards of the whole plan's numbers: ``totals.NAME``.

Knows the definitions of COST-MODEL and what a result holds; computes nothing that the result has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..why import Card, Figure, Share, shares_of
from .result import CostResult, GroupResult
from .why_parts import bottleneck_card, dram_bytes, group_label, part, resident_parts

_MOST_ROWS = 8
_MOST_FOOTPRINTS = 24

_Of = Callable[[GroupResult], float]
_Make = Callable[[CostResult], Card]


def _dram_sum(name: str, title: str, which: int) -> _Make:
    """Bytes read from DRAM (0) or written to it (1)."""

    def card(result: CostResult) -> Card:
        return _sum(
            name,
            title,
            "B",
            "sum over groups and tensors of tile × iterations of the loops outside its retention",
            lambda group: dram_bytes(result, group)[which],
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
            Figure("loads and stores, if alone", now.dram_s, "s"),
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
        _by_group(result, lambda group: sum(dram_bytes(result, group))),
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


def _footprints(result: CostResult) -> Card:
    """Of the groups that hold most, the tensors that their footprints are made of."""
    machine = result.request.accelerator
    held = [dict(group.footprint_bytes).get(machine.buffer.name, 0) for group in result.groups]
    fullest = sorted((i for i, group in enumerate(result.groups) if group.launches), key=lambda i: -held[i])
    shares: list[Share] = []
    for index in fullest[:_MOST_FOOTPRINTS]:
        shares.append(Share(group_label(result, index), held[index], None))
        shares += [
            Share(f"  {name}", size, part(size, held[index]))
            for name, size in resident_parts(result, result.groups[index])
        ]
    left = len(fullest) - _MOST_FOOTPRINTS
    return Card(
        "totals.footprint_bytes",
        "Footprint, group by group",
        Figure("peak", result.totals.peak_footprint_bytes, "B"),
        f"of each group the largest sum of tiles that lie in {machine.buffer.name} at one time",
        (Figure(f"capacity of {machine.buffer.name}", machine.buffer.capacity_bytes, "B"),),
        tuple(shares),
        f"{left:,} more groups hold less: --why G1.footprint_bytes is of one." if left > 0 else "",
    )


def _saved(result: CostResult) -> Card:
    now, graph = result.totals, result.request.graph
    rank = {group: place for place, group in enumerate(result.launched())}
    changes = sorted((rank[one.made], one.bytes) for one in result.saved)
    changes += sorted((rank[one.last] + 1, -one.bytes) for one in result.saved)
    held, peak, place = 0, 0, 0
    for at, change in sorted(changes):  # what ends before a launch is given back before it
        held += change
        if held > peak:
            peak, place = held, at
    there = [one for one in result.saved if rank[one.made] <= place <= rank[one.last]]
    if graph.forward is None:
        note = "Nothing is trained here: no activation is kept for a backward pass."
    else:
        note = f"Shares: what is held at the peak, from {group_label(result, result.launched()[place])} on."
    return Card(
        "totals.saved_activation_bytes",
        "Saved activations",
        Figure("held at most", now.saved_activation_bytes, "B"),
        "the most at one time of what the forward pass makes, or a replay makes again, and the backward pass reads: "
        "from the launch that makes it to the last that reads it",
        (
            Figure("tensors", len(result.saved)),
            *_unfused(result, "saved_activation_bytes", "B"),
            Figure("MACs computed again", now.recomputed_macs, "MAC"),
        ),
        shares_of([(graph.tensors[one.tensor].name, one.bytes) for one in there], now.saved_activation_bytes),
        note,
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
    shares = tuple(
        Share(f"groups limited by {name}: seconds", value, part(value, now.latency_s) or None)
        for name, value in sorted(time.items(), key=lambda pair: -pair[1])
    )
    title = "Bottleneck by sensitivity"
    return bottleneck_card("totals.bottleneck", title, now.bottleneck, now.bottleneck_gain, shares)


TOTALS: Mapping[str, _Make] = {
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
        "Loads and stores, if alone",
        "s",
        "sum over groups and steps of the longest of: a core's port, the slot's part of DRAM, the cache, latency",
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
        "the registers' excess, written and read back in every step at the peak; intermediates without room",
        lambda group: group.spill_bytes,
    ),
    "saved_activation_bytes": _saved,
    "peak_footprint_bytes": _peak,
    "footprint_bytes": _footprints,
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
        "executed points beyond the domain, under loops that are not the operator's own; all of what runs again",
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
