"""Which plans are legal, and a refusal that says why another is not: both operators, the way, the fix.

A plan is legal when its quotient graph (groups as nodes) is acyclic, each group is connected through the
tensors that its operators touch, and no barrier shares a group (COST-MODEL 2): an opaque operator, an update in place.

The hard case. Each group is convex: no way leaves it and comes back over operators. And still::

      group g                group h
    +---------+            +---------+
    |  Add_1 ----------------> Mul_2 |
    |         |            |         |
    |  Exp_4 <---------------- Sub_3 |
    +---------+            +---------+

g cannot start before h ends, nor h before g. So cycles are looked for in the whole quotient graph, and the
offending path may enter a group at one operator (Mul_2) and leave it at another (Sub_3).

Knows graph and plan; the arrays work is in `bitsets.py`, the edits are in `edits.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..graph.graph import OperatorGraph
from . import bitsets
from .plan import Plan

_NAMED = 3  # operators that a sentence names before it counts the rest
_NAME_LENGTH = 60  # real files hold names of 5,000 characters


class Reason(StrEnum):
    """Why operators cannot share a group."""

    CYCLE = "cycle"
    BARRIER = "barrier"
    APART = "apart"


class Refusal(PlanError):
    """A plan that is not legal, with what the window draws and offers.

    Attributes
    ----------
    reason : which law it breaks.
    operators : the two operators that cannot share a group: the ends of the path, the barrier and a
        neighbour, or one operator from each of two unconnected parts.
    path : operator indices of the way that would close the cycle, from the first of ``operators`` to the
        second; neighbours on it are joined by an edge or share a group. Empty for other reasons.
    completing : the least set of operators that makes the union legal when added. Groups other than the
        edited ones stay whole, so they join whole. Empty where no set helps.
    fix : the legal plan with ``completing`` added to what was asked for; None where there is none.
    """

    def __init__(
        self,
        reason: Reason,
        what: str,
        *,
        where: str = "",
        lever: str = "",
        operators: tuple[int, int],
        path: tuple[int, ...] = (),
        completing: tuple[int, ...] = (),
    ) -> None:
        super().__init__(what, where=where, lever=lever)
        self.reason = reason
        self.operators = operators
        self.path = path
        self.completing = completing
        self.fix: Plan | None = None

    def offer(self, completing: tuple[int, ...], fix: Plan) -> None:
        """Offer `fix`, which has `completing` added to what was asked for."""
        if completing != self.completing:
            self.completing = completing
            self.lever = f"Include all {len(completing)} operators between?"
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Partition:
    """A plan, legal or not, as kernels read it: each operator's group, and copies of the graph's arrays."""

    label: NDArray[np.int32]
    groups: int
    start: NDArray[np.int32]
    target: NDArray[np.int32]
    first_link: NDArray[np.int32]
    link: NDArray[np.int32]
    tensors: int

    @staticmethod
    def of(graph: OperatorGraph, label: NDArray[np.int32], groups: int) -> Partition:
        """The partition `label` (int32[operators], below `groups`), which is copied."""
        own, start, target, first_link, link = bitsets.writable(label, *graph.successors, *graph.links)
        return Partition(own, groups, start, target, first_link, link, len(graph.tensors))

    def order(self) -> NDArray[np.int32] | None:
        """A topological order of the groups, or None where there is a cycle."""
        order, placed = bitsets.quotient_order(self.label, self.groups, self.start, self.target)
        return order if placed == self.groups else None

    def parts(self) -> NDArray[np.int32]:
        """int32[operators]: the lowest operator of each operator's connected part of its group."""
        return bitsets.connected_parts(self.label, self.groups, self.first_link, self.link, self.tensors)

    def closure(self, group: int) -> tuple[int, ...]:
        """Operators of all groups on a way out of `group` and back, without its own; ascending."""
        inside = bitsets.closure(self.label, self.groups, group, self.start, self.target)
        inside[group] = 0
        return tuple(np.flatnonzero(inside[self.label]).tolist())

    def path_back(self, group: int) -> tuple[int, ...]:
        """The shortest way out of `group` and back, as operators; empty where there is none."""
        path = bitsets.path_back(self.label, self.groups, group, self.start, self.target)
        return tuple(path.tolist())


def check(graph: OperatorGraph, plan: Plan) -> Refusal | None:
    """What makes `plan` illegal, or None.

    The plan's own invariants (every operator in exactly one group) are taken for granted.
    """
    for group in plan.groups:
        if (refusal := barrier(graph, group.operators)) is not None:
            return refusal
    partition = Partition.of(graph, plan.membership, len(plan.groups))
    looping = bitsets.looping_group(partition.label, partition.groups, partition.start, partition.target)
    if looping >= 0:
        # Blame a group that holds both ends: of those on the cycle the one that is left and reached soonest.
        on_cycle = {plan.group_of[operator] for operator in partition.path_back(looping)}
        several = sorted(group for group in on_cycle if len(plan.groups[group].operators) > 1)
        return cycle(graph, partition, min(several, key=lambda group: len(partition.path_back(group))))
    parts = partition.parts()
    lowest = np.array([group.operators[0] for group in plan.groups], dtype=np.int32)[partition.label]
    strays = np.flatnonzero(parts != lowest)
    return apart(graph, int(lowest[strays[0]]), int(strays[0])) if strays.size else None


def completing_set(graph: OperatorGraph, plan: Plan, operators: Iterable[int]) -> tuple[int, ...]:
    """The least set of operators to add so that the groups of `operators` can become one; ascending.

    Empty where nothing is needed, and where nothing helps: a barrier on the way, or parts that
    no path joins. `edits.fuse` says which. Exact: what lies on a path out of the union and back must join
    (else the cycle stays), and then no cycle is left (`bitsets.closure`).
    """
    partition = Partition.of(graph, plan.membership, len(plan.groups) + 1)
    joined = np.unique(partition.label[np.fromiter(operators, dtype=np.int64)])
    partition.label[np.isin(partition.label, joined)] = len(plan.groups)
    between = partition.closure(len(plan.groups))
    union = (*np.flatnonzero(partition.label == len(plan.groups)).tolist(), *between)
    return () if barrier(graph, union) is not None else between


def fusible(graph: OperatorGraph, plan: Plan) -> NDArray[np.bool_]:
    """bool[edges]: per row of ``graph.edges`` whether `edits.toggle` would be allowed; for all at once.

    A cut is always allowed; fusing needs that no other way joins the two groups and none holds a barrier.
    """
    start, target = bitsets.writable(*graph.successors)
    (label,) = bitsets.writable(plan.membership)
    acyclic = bitsets.fusible_edges(label, len(plan.groups), start, target).astype(np.bool_)
    barred = np.array([bool(operator.barrier) for operator in graph.operators], dtype=np.bool_)
    count = len(graph.operators)
    source = np.repeat(np.arange(count, dtype=np.int64), np.diff(start))
    pair = source * count + target  # ascending: CSR is sorted by source, then by target
    edges = graph.edges.astype(np.int64)
    row = np.searchsorted(pair, edges[:, 0] * count + edges[:, 1])
    return acyclic[row] & ~barred[edges[:, 0]] & ~barred[edges[:, 1]]


def barrier(graph: OperatorGraph, operators: tuple[int, ...]) -> Refusal | None:
    """The refusal where `operators`, as one group, would hold a barrier among others."""
    if len(operators) < 2:
        return None
    for operator in operators:
        if why := graph.operators[operator].barrier:
            other = operators[1] if operator == operators[0] else operators[0]
            return Refusal(
                Reason.BARRIER,
                f"would cross {named(graph, operator)}, which cannot be fused: {why}",
                where=_pair(graph, operator, other),
                lever="Leave it in a group of its own.",
                operators=(operator, other),
            )
    return None


def apart(graph: OperatorGraph, one: int, other: int) -> Refusal:
    """The refusal of a group in which nothing connects `one` and `other`."""
    return Refusal(
        Reason.APART,
        "no tensor connects them inside the group",
        where=_pair(graph, one, other),
        lever="Add an operator that both touch, or leave one out.",
        operators=(one, other),
    )


def cycle(graph: OperatorGraph, partition: Partition, group: int, asked: Iterable[int] = ()) -> Refusal:
    """The refusal of `partition`, in which a way leads out of `group` and back.

    `asked`: operators that whoever edits has named; they are not offered to him again.
    """
    path = partition.path_back(group)
    through = path[1:-1]
    named_already = set(asked)
    completing = tuple(operator for operator in partition.closure(group) if operator not in named_already)
    barred = [operator for operator in completing if graph.operators[operator].barrier]
    what = f"would make a cycle through {_listed(graph, through)}"
    if barred:
        completing = ()
        lever = (
            f"{named(graph, barred[0])} cannot be fused, so nothing can be added; leave one of the two out."
        )
    elif completing == tuple(sorted(through)):
        lever = "Include it?" if len(completing) == 1 else "Include them?"
    else:
        lever = f"Include all {len(completing)} operators between?"
    return Refusal(
        Reason.CYCLE,
        what,
        where=_pair(graph, path[0], path[-1]),
        lever=lever,
        operators=(path[0], path[-1]),
        path=path,
        completing=completing,
    )


def named(graph: OperatorGraph, operator: int) -> str:
    """The operator's name in backticks, on one line and of bearable length."""
    name = " ".join(graph.operators[operator].name.split())
    if len(name) > _NAME_LENGTH:
        half = _NAME_LENGTH // 2
        name = f"{name[:half]}…{name[-half:]}"
    return f"`{name}`"


def _listed(graph: OperatorGraph, operators: tuple[int, ...]) -> str:
    names = [named(graph, operator) for operator in operators[:_NAMED]]
    if len(operators) > _NAMED:
        return f"{', '.join(names)} and {len(operators) - _NAMED} more"
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _pair(graph: OperatorGraph, one: int, other: int) -> str:
    return f"{named(graph, one)} with {named(graph, other)}"
