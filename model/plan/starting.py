"""The plan that a graph starts with: the fusions that its file holds, else contractions with their tails.

A compiler's output (XLA's HLO) says itself what it fuses. Such groups may break the rules of a plan here
(COST-MODEL 2): horizontal fusions are not connected, an opaque operator is a barrier. They are kept as far as
they are legal, and every one that is not is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..graph.graph import OperatorGraph
from .edits import contraction_tails, fuse, unfused
from .legality import Refusal, check
from .plan import FusionGroup, Plan


@dataclass(frozen=True, slots=True)
class Starting:
    """A plan and where it is from. ``refused``: one sentence per fusion of the file that is no group here."""

    plan: Plan
    source: str
    refused: tuple[str, ...] = ()


def starting_plan(graph: OperatorGraph) -> Starting:
    """The plan to begin with. An operator that stands in several fusions belongs to the first of them."""
    if not graph.fusions:
        return Starting(contraction_tails(graph), "contractions with their tails")
    taken: set[int] = set()
    groups: list[tuple[int, ...]] = []
    for fusion in graph.fusions:
        members = tuple(operator for operator in fusion if operator not in taken)
        taken.update(members)
        if len(members) > 1:
            groups.append(members)
    plan, refused = _legal(graph, groups)
    kept = len(groups) - len(refused)
    return Starting(plan, f"the file's own {kept} fusion{'s' * (kept != 1)} of several operators", refused)


def _legal(graph: OperatorGraph, groups: list[tuple[int, ...]]) -> tuple[Plan, tuple[str, ...]]:
    """All groups at once where that is legal, as it is for most files; else one after the other."""
    plan = _plan_of(graph, groups)
    if check(graph, plan) is None:
        return plan, ()
    plan, refused = unfused(graph), list[str]()
    for members in groups:
        try:
            plan = fuse(graph, plan, members)
        except Refusal as refusal:
            refused.append(refusal.sentence())
    return plan, tuple(refused)


def _plan_of(graph: OperatorGraph, groups: Iterable[tuple[int, ...]]) -> Plan:
    out = [FusionGroup(members) for members in groups]
    inside = {operator for group in out for operator in group.operators}
    out += [FusionGroup((operator,)) for operator in range(len(graph.operators)) if operator not in inside]
    return Plan.of(out)
