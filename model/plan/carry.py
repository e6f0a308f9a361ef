"""A plan carried over to the same model read with other numbers for its symbolic dims.

Knows names and types of operators and the extents of their dims. Other numbers may fold other operators away or
name them anew, so that an operator is the same where its name and its type are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..graph.graph import Operator, OperatorGraph
from .legality import check
from .plan import FusionGroup, Plan
from .recompute import why_not


@dataclass(frozen=True, slots=True)
class Carried:
    """The plan for the other graph; how many groups came apart, and of how many the tile sizes were dropped."""

    plan: Plan
    apart: int
    untiled: int

    def sentence(self) -> str:
        """What became of the plan, for a person."""
        kept = f"The plan's groups are kept{' but for ' + f'{self.apart:,}' if self.apart else ''}."
        if not self.untiled:
            return kept
        return f"{kept} Tile sizes of {self.untiled:,} were set for other extents and are chosen anew."


def carried(before: OperatorGraph, plan: Plan, after: OperatorGraph) -> Carried | None:
    """`plan` of `before` as a plan of `after`; None where that would not be legal.

    A group stays together where all of its operators are still there; the operators of others, and new ones, get
    a group of their own. Where an extent of a group's operators is another one, its tile sizes and shares of loops
    are dropped; orders, trees, stages and all else stay.
    """
    place = {(operator.name, operator.op_type): operator for operator in after.operators}
    groups: list[FusionGroup] = []
    apart = untiled = 0
    for group in plan.groups:
        old = [before.operators[index] for index in group.operators]
        new = [found for one in old if (found := place.get((one.name, one.op_type))) is not None]
        if len(new) < len(old):
            apart += len(old) > 1
            continue
        members = tuple(sorted(operator.index for operator in new))
        moved = replace(group, operators=members, recompute=_still(after, group.recompute))
        if any(_extents(one) != _extents(other) for one, other in zip(old, new, strict=True)):
            bare = tuple(replace(level, tile=()) for level in group.levels)
            loose = replace(moved, levels=bare, parallel=(), split_reduction=())
            untiled += loose != moved
            moved = loose
        groups.append(moved)
    placed = {index for group in groups for index in group.operators}
    groups += [FusionGroup((o.index,)) for o in after.operators if o.index not in placed]
    found = Plan.of(groups)
    return None if check(after, found) is not None else Carried(found, apart, untiled)


def _still(graph: OperatorGraph, names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the tensors that are computed again those that still can be."""
    if not names:
        return ()
    number = {tensor.name: tensor.index for tensor in graph.tensors}
    return tuple(name for name in names if name in number and not why_not(graph, number[name]))


def _extents(operator: Operator) -> tuple[tuple[str, int], ...]:
    return tuple((dim.name, dim.extent) for dim in operator.dims)
