"""Why a number is what it is: formula and inputs of the header's metrics, as the text of a tooltip.

Knows the definitions of COST-MODEL and SERVING-MODEL; computes nothing that the model has not.
"""

from __future__ import annotations

from html import escape

from model.cost.result import CostResult, Totals
from model.serving.result import ServingResult

from . import look
from .names import group_label

MOST_GROUPS = 5
MOST_CAVEATS = 8


def card(title: str, formula: str, rows: list[tuple[str, str]], note: str = "") -> str:
    """Rich text: what it is, the formula, the inputs, and what to know."""
    lines = "".join(
        f"<tr><td>{escape(name)}&nbsp;&nbsp;</td><td align='right'><b>{escape(value)}</b></td></tr>"
        for name, value in rows
    )
    tail = f"<p>{escape(note)}</p>" if note else ""
    return f"<p><b>{escape(title)}</b><br>{escape(formula)}</p><table>{lines}</table>{tail}"


def caveats(result: CostResult) -> tuple[str, ...]:
    """What a reader of all numbers must know, a sentence each: as the commands print them below their tables."""
    return tuple(
        " ".join(part for part in (f"{where}: {what}." if where else f"{what}.", lever) if part)
        for where, what, lever in result.warnings
    )


def caveat_badge(count: int) -> str:
    """``⚠ 1 caveat``; empty for none."""
    return f"⚠ {count:,} caveat{'s' * (count != 1)}" if count else ""


def caveat_tip(sentences: tuple[str, ...]) -> str:
    """Rich text of some caveats: rich, so that long sentences wrap."""
    shown = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences[:MOST_CAVEATS])
    more = len(sentences) - MOST_CAVEATS
    return shown + (f"<p>and {more:,} more.</p>" if more > 0 else "")


def dram(now: Totals) -> str:
    """DRAM traffic of the whole plan."""
    whole = now.dram_read_bytes + now.dram_write_bytes
    return card(
        "DRAM traffic of one request",
        "bytes read + bytes written, spills included",
        [
            ("read", look.fmt_bytes_exact(now.dram_read_bytes)),
            ("written", look.fmt_bytes_exact(now.dram_write_bytes)),
            ("together", look.fmt_bytes_exact(whole)),
            ("of it spill", look.fmt_bytes(now.spill_bytes)),
            ("compulsory", look.fmt_bytes(now.compulsory_dram_bytes)),
        ],
        "Compulsory: what enters and leaves the graph, once.",
    )


def launch_reduction(now: Totals, unfused: Totals) -> str:
    """Primary metric A."""
    return card(
        "Launch-overhead reduction",
        "1 − launch overhead / launch overhead of the unfused plan",
        [
            (f"overhead of {now.launches:,} launches", look.fmt_seconds(now.launch_s)),
            (f"unfused, {unfused.launches:,} launches", look.fmt_seconds(unfused.launch_s)),
        ],
        "A launch is asynchronous: its overhead is the time between a group's end and the next one's start.",
    )


def onchip_reuse(now: Totals) -> str:
    """Primary metric B."""
    dram = now.dram_read_bytes + now.dram_write_bytes
    return card(
        "On-chip reuse ratio",
        "1 − DRAM bytes / operator bytes",
        [
            ("read from DRAM", look.fmt_bytes(now.dram_read_bytes)),
            ("written to DRAM", look.fmt_bytes(now.dram_write_bytes)),
            ("DRAM bytes", look.fmt_bytes(dram)),
            ("operator bytes", look.fmt_bytes(now.operator_bytes)),
            ("compulsory", look.fmt_bytes(now.compulsory_dram_bytes)),
            ("intermediates kept on chip", look.fmt_percent(now.intermediate_onchip_share)),
        ],
        "Operator bytes: every operator alone, its inputs and outputs once. "
        + (
            "Negative here: tiles fetch operands again and again, and that moves more than every operator alone would. "
            "Larger tiles, or a loop order that keeps an operand on chip, raise it."
            if now.onchip_reuse_ratio < 0.0
            else "It is negative where refetching moves more than that."
        ),
    )


def latency(result: CostResult) -> str:
    """Isolated latency."""
    now = result.totals
    slowest = sorted(range(len(result.groups)), key=lambda i: -result.groups[i].latency_s)[:MOST_GROUPS]
    rows = [
        ("launch overhead", look.fmt_seconds(now.launch_s)),
        ("compute, if alone", look.fmt_seconds(now.compute_s)),
        ("DRAM, if alone", look.fmt_seconds(now.dram_s)),
    ]
    for index in slowest:
        group = result.groups[index]
        label = group_label(result.request.graph, index, group.operators)
        share = look.fmt_percent(group.latency_s / now.latency_s) if now.latency_s else look.NO_NUMBER
        rows.append((label, f"{look.fmt_seconds(group.latency_s)} ({share})"))
    return card("Latency of one request alone", "the end of the last group, launches included", rows)


def percentile(result: ServingResult, name: str, share: float, ns: int) -> str:
    """p95 or p99 of the response time."""
    count = len(result.requests.arrival_ns)
    rows = [("requests", look.fmt_count(count)), ("slots", look.fmt_count(result.slots))]
    rows.append(("utilisation ρ", f"{result.utilisation:.3f}"))
    for interval, (low, high) in result.interval_s:
        if interval == name:
            rows.append(("95 % interval", look.fmt_interval(low, high)))
    for which, parts in result.parts:
        if which == name:
            for part, value in parts:
                if value:
                    rows.append((f"of it {part.replace('_', ' ')}", look.fmt_ns(value)))
    rows.append(("exactly", f"{ns:,} ns"))
    return card(
        f"{name} of the response time",
        f"nearest rank: sorted[⌈{share:g} n⌉ − 1] of n responses, from arrival to completion",
        rows,
        result.source + ".",
    )


def bottleneck(result: CostResult) -> str:
    """Class by sensitivity."""
    now = result.totals
    rows = [
        (
            group_label(result.request.graph, index, group.operators),
            f"{group.bottleneck.name} ({look.fmt_seconds(group.latency_s)})",
        )
        for index, group in sorted(enumerate(result.groups), key=lambda pair: -pair[1].latency_s)[
            :MOST_GROUPS
        ]
    ]
    return card(
        "Bottleneck by sensitivity",
        f"10 % more of it shortens the latency by {look.fmt_percent(now.bottleneck_gain)}, the most of all",
        rows,
    )


def spill(result: CostResult, index: int) -> str:
    """``spills 448 MiB to buffer``, whether the tool chose that, and what would relieve it; "" where none is."""
    use = result.groups[index].registers
    if not use.spilled_bytes:
        return ""
    words = f"spills {look.fmt_bytes(use.spilled_bytes)} to {use.spill_to}"
    chosen = not result.request.plan.groups[index].levels
    words += ", a time that the choice counts in" if chosen else ""
    return f"{words}. {'To avoid it' if chosen else 'Try'}: {use.relief}" if use.relief else words


def feasibility(result: CostResult) -> str:
    """What does not fit, what spills, and the levers."""
    rows: list[tuple[str, str]] = []
    levers: list[str] = []
    for index, group in enumerate(result.groups):
        label = group_label(result.request.graph, index, group.operators)
        use = group.registers
        if group.infeasible is not None:
            lack = group.infeasible
            needs = (
                f"{look.fmt_bytes(lack.demand_bytes)} of {look.fmt_bytes(lack.capacity_bytes)} {lack.memory}"
            )
            rows.append((label, f"needs {needs}"))
            levers += lack.levers or ("split the group",)
        elif use.spilled_bytes:
            rows.append((label, f"spills {look.fmt_bytes(use.spilled_bytes)} to {use.spill_to}"))
            levers += (use.relief,) if use.relief else ()
    more = len(rows) - MOST_GROUPS
    notes = [f"and {more:,} more; sort the groups table by Fit."] if more > 0 else []
    if levers:
        notes.append(f"Try: {'; or '.join(list(dict.fromkeys(levers))[:3])}.")
    return card(
        "Feasible groups",
        "tiles at their peak within each level's capacity",
        rows[:MOST_GROUPS] or [("all groups", "fit, nothing spills")],
        " ".join(notes),
    )
