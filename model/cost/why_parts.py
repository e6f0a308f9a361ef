"""What the cards of groups and of the plan have in common.

Knows a `CostResult`; computes nothing that it has not.
"""

from __future__ import annotations

from ..plan.plan import group_name
from ..why import Card, Figure, Share
from .result import CostResult, GroupResult


def group_label(result: CostResult, index: int) -> str:
    """``G3 attn_q attn_q_rows``: a group by its number and first operators."""
    graph = result.request.graph
    group = result.groups[index]
    names = [graph.operators[i].name for i in group.operators]
    again = [f"{group_name(group.replays)} again:"] if group.replays >= 0 else []
    return " ".join(
        [group_name(index), *again, *names[:2], *([f"+{len(names) - 2}"] if len(names) > 2 else [])]
    )


def dram_bytes(result: CostResult, group: GroupResult) -> tuple[int, int]:
    """Bytes that a group reads from and writes to DRAM."""
    return group.dram_bytes(result.request.accelerator.dram.name)


def resident_parts(result: CostResult, group: GroupResult) -> list[tuple[str, float]]:
    """(tensor and level, bytes of its tiles there) of all that makes up a group's footprint, the largest first."""
    graph, level = result.request.graph, result.request.accelerator.buffer.name
    return [
        (
            f"{graph.tensors[tensor].name} in {level}"
            if tensor >= 0
            else "written over an input, not needed twice",
            float(held),
        )
        for tensor, held in group.resident
    ]


def plan_bytes(result: CostResult) -> int:
    """Bytes that the plan reads from and writes to DRAM."""
    return result.totals.dram_read_bytes + result.totals.dram_write_bytes


def part(value: float, whole: float) -> float:
    """`value` as a share of `whole`; 0 of nothing."""
    return value / whole if whole else 0.0


def bottleneck_card(
    number: str, title: str, name: str, gain: float, shares: tuple[Share, ...] = (), note: str = ""
) -> Card:
    """The card of a bottleneck class, of a group or of the plan (COST-MODEL 7)."""
    return Card(
        number,
        title,
        Figure("bottleneck", name),
        "the resource of which 10 % more shortens the latency most; a set where no single one gains 1 %",
        (Figure("gain of 10 %", gain, "share"),),
        shares,
        note,
    )
