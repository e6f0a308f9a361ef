"""Edits of a plan: pure functions that return a legal plan, or raise `legality.Refusal`.

Knobs. A group that an edit leaves alone is handed on as the same object, knobs and all. A group whose
operators change loses every knob that speaks of its loops (tiles, orders, retention, trees, splits): dims
may be named and unified anew. It keeps what means the same without them: `stages`, `threads`, `precision`,
`sparsity` and `halo` where all groups that gave operators to it had set the same, and of `pinned` and
`recompute` the tensors that the new group still reads or writes itself.

What is left. Operators that leave a group may leave it in pieces, or stand between two of its operators::

    [a b c d]     a -> b -> c,  a -> c,  a -> d     split b:     [b]  [a d]  [c]

With c, the group of a would feed b and wait for it. The connected parts of the rest stay whole where that
is legal; else what needs `b` is parted from what does not, and only that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError, UsageError
from ..graph.graph import OperatorGraph, OpKind
from . import bitsets
from .legality import Partition, Refusal, apart, barrier, cycle, named
from .plan import FusionGroup, LevelTile, Plan

_KEPT_WHERE_EQUAL = ("stages", "threads", "precision", "sparsity", "halo")
_KNOBS = frozenset(field.name for field in fields(FusionGroup)) - {"operators"}

# Operators that a tail may pass before its branches join again: enough for a GELU written out in eight.
_BRANCH_LIMIT = 16


def unfused(graph: OperatorGraph) -> Plan:
    """Every operator in a group of its own."""
    return Plan.unfused(len(graph.operators))


def contraction_tails(graph: OperatorGraph) -> Plan:
    """The starting plan: each contraction with its pointwise tail; views go with what they view.

    A tail follows single consumers through pointwise operators and views. Where it branches, it goes on if
    the branches meet again (``x * sigmoid(x)``): then every way out of the contraction leads through the
    meeting point, so nothing outside depends on the group before it ends and no cycle can close. A join of
    two contractions belongs to the later one.
    """
    home = list(range(len(graph.operators)))  # per operator the first operator of its group
    start, target = (array.tolist() for array in graph.successors)
    for operator in reversed(graph.operators):
        if operator.kind is OpKind.CONTRACTION:
            for member in _tail(graph, operator.index, home, start, target):
                home[member] = operator.index
    for operator in graph.operators:
        if operator.kind is OpKind.VIEW and home[operator.index] == operator.index:
            sources = {int(graph.producer[access.tensor]) for access in operator.inputs} - {-1}
            homes = {home[source] for source in sources}
            if len(homes) == 1 and not any(graph.operators[s].barrier for s in sources):
                home[operator.index] = homes.pop()
    groups: dict[int, list[int]] = {}
    for index, first in enumerate(home):
        groups.setdefault(first, []).append(index)
    return Plan.of([FusionGroup(tuple(members)) for members in groups.values()])


def _tail(
    graph: OperatorGraph, contraction: int, home: list[int], start: list[int], target: list[int]
) -> list[int]:
    """Operators that may follow `contraction` in its group, those in other groups left out."""
    settled = 0
    members = [contraction]
    outside: set[int] = set(target[start[contraction] : start[contraction + 1]])
    while outside and len(members) - 1 - settled <= _BRANCH_LIMIT:
        joins = len(outside) == 1
        following = min(outside)
        kind = graph.operators[following].kind
        if kind not in (OpKind.POINTWISE, OpKind.VIEW) or home[following] != following:
            break
        outside.remove(following)
        outside.update(target[start[following] : start[following + 1]])
        members.append(following)
        if joins:
            settled = len(members) - 1
    return members[1:] if not outside else members[1 : settled + 1]


def fuse(graph: OperatorGraph, plan: Plan, operators: Iterable[int]) -> Plan:
    """The groups of `operators` become one."""

    def joined(asked: tuple[int, ...]) -> Plan:
        groups = {int(plan.membership[operator]) for operator in asked}
        union = sorted(operator for group in groups for operator in plan.groups[group].operators)
        return _rearranged(graph, plan, [tuple(union)], asked)

    return _with_fix(joined, _known(graph, operators))


def split(graph: OperatorGraph, plan: Plan, operators: Iterable[int]) -> Plan:
    """Operators leave their groups; those of one group that are connected form a group of their own."""

    def parted(asked: tuple[int, ...]) -> Plan:
        partition = Partition.of(graph, plan.membership, 2 * len(plan.groups))
        chosen = np.array(asked, dtype=np.int64)
        partition.label[chosen] += len(plan.groups)
        parts = partition.parts()
        pivots: dict[int, list[int]] = {}
        for operator in asked:
            pivots.setdefault(int(parts[operator]), []).append(operator)
        return _rearranged(graph, plan, [tuple(pivot) for pivot in pivots.values()], asked)

    return _with_fix(parted, _known(graph, operators))


def move(graph: OperatorGraph, plan: Plan, operators: Iterable[int], target: int) -> Plan:
    """Operators leave their groups and join the group of operator `target`."""
    (target,) = _known(graph, (target,))

    def moved(asked: tuple[int, ...]) -> Plan:
        stay = plan.groups[int(plan.membership[target])].operators
        return _rearranged(graph, plan, [tuple(sorted({*stay, *asked}))], asked)

    return _with_fix(moved, _known(graph, operators))


def toggle(graph: OperatorGraph, plan: Plan, producer: int, consumer: int) -> Plan:
    """Fuse the two groups across an edge; where it lies inside a group, cut the group there.

    Where the edge is all that holds its two sides together, a cut parts these. Else it parts `consumer` and
    what depends on it from the rest, or `producer` and what it depends on, whichever leaves fewer groups.
    """
    (producer,), (consumer,) = _known(graph, (producer,)), _known(graph, (consumer,))
    start, target = graph.successors
    if consumer not in target[start[producer] : start[producer + 1]]:
        raise UsageError(f"no edge leads from {named(graph, producer)} to {named(graph, consumer)}")
    home = int(plan.membership[producer])
    if home != plan.membership[consumer]:
        return fuse(graph, plan, (producer, consumer))
    members = plan.groups[home].operators
    parts = _parts_without(graph, plan, producer, consumer)
    if parts[producer] != parts[consumer]:
        return split(graph, plan, [operator for operator in members if parts[operator] == parts[consumer]])
    after, before = {consumer}, {producer}
    for operator in members:
        if operator in after:
            after.update(target[start[operator] : start[operator + 1]].tolist())
    for operator in reversed(members):
        if not before.isdisjoint(target[start[operator] : start[operator + 1]].tolist()):
            before.add(operator)
    late, early = split(graph, plan, after.intersection(members)), split(graph, plan, before)
    return early if len(early.groups) < len(late.groups) else late


def _parts_without(graph: OperatorGraph, plan: Plan, producer: int, consumer: int) -> NDArray[np.int32]:
    """`Partition.parts` when `consumer` does not touch what `producer` writes."""
    partition = Partition.of(graph, plan.membership, len(plan.groups))
    written = [access.tensor for access in graph.operators[producer].outputs]
    links = partition.link[partition.first_link[consumer] : partition.first_link[consumer + 1]]
    links[np.isin(links, written)] = partition.tensors  # a tensor that nobody else touches
    return replace(partition, tensors=partition.tensors + 1).parts()


def set_level(graph: OperatorGraph, plan: Plan, group: int, level: LevelTile) -> Plan:
    """The plan with what the user set for one memory level of one group; an empty `level` unsets it."""
    for dim, extent in level.tile:
        if extent < 1:
            raise PlanError(f"a tile of {extent} along {dim} is empty", lever="Give at least 1.")
    for tensor, depth in level.retain:
        if depth < 0:
            raise PlanError(f"retention of {tensor} at depth {depth}", lever="Give 0 or more loops.")
    old = _group(plan, group).levels
    kept = [level if other.memory == level.memory else other for other in old]
    if level.memory not in {other.memory for other in old}:
        kept.append(level)
    return set_group(graph, plan, group, levels=tuple(one for one in kept if one != LevelTile(one.memory)))


def set_group(graph: OperatorGraph, plan: Plan, group: int, **knobs: Any) -> Plan:
    """The plan with knobs of one group set, by their names in `FusionGroup`; an empty value unsets one."""
    unknown = sorted(knobs.keys() - _KNOBS)
    if unknown:
        raise UsageError(
            f"a fusion group has no knob {unknown[0]!r}", lever=f"Known: {', '.join(sorted(_KNOBS))}."
        )
    old = _group(plan, group)
    new = replace(old, **knobs)
    if new == old:
        return plan
    edited = Plan((*plan.groups[:group], new, *plan.groups[group + 1 :]))
    vars(edited)["membership"] = plan.membership  # the partition is the same: spare the walk over it
    return edited


def _group(plan: Plan, group: int) -> FusionGroup:
    if not 0 <= group < len(plan.groups):
        raise UsageError(f"there is no group {group}", lever=f"Groups are 0 to {len(plan.groups) - 1}.")
    return plan.groups[group]


def _known(graph: OperatorGraph, operators: Iterable[int]) -> tuple[int, ...]:
    """Operator indices ascending, each once."""
    found = tuple(sorted({int(operator) for operator in operators}))
    if not found or found[0] < 0 or found[-1] >= len(graph.operators):
        wrong = found[-1] if found and found[0] >= 0 else found[0] if found else "none given"
        raise UsageError(f"operators {wrong}", lever=f"Operators are 0 to {len(graph.operators) - 1}.")
    return found


def _with_fix(edit: Callable[[tuple[int, ...]], Plan], asked: tuple[int, ...]) -> Plan:
    """`edit` of `asked`; a refusal carries the plan with its completing set, where that is legal.

    The completed set may close another cycle: it is completed in turn, and offered only where that comes to an end.
    """
    first: Refusal | None = None
    wanted = asked
    while True:
        try:
            plan = edit(wanted)
        except Refusal as refusal:
            grown = tuple(sorted({*wanted, *refusal.completing}))
            if grown == wanted:  # it falls apart, or nothing can be added: that is what stands in the way
                raise refusal from None
            first, wanted = first or refusal, grown
            continue
        if first is None:
            return plan
        first.offer(tuple(sorted(set(wanted) - set(asked))), plan)
        raise first from None


def _rearranged(
    graph: OperatorGraph, plan: Plan, pivots: list[tuple[int, ...]], asked: tuple[int, ...]
) -> Plan:
    """The plan in which each of `pivots` (ascending operators) is a group and the rest of theirs is legal.

    Raises `Refusal` where a pivot cannot be a group, whatever becomes of the rest.
    """
    pivots = [pivot for pivot in pivots if pivot != plan.groups[plan.membership[pivot[0]]].operators]
    if not pivots:
        return plan
    for pivot in pivots:
        if (refusal := barrier(graph, pivot)) is not None:
            raise refusal
    touched = sorted({int(plan.membership[operator]) for pivot in pivots for operator in pivot})
    pivoted = {operator for pivot in pivots for operator in pivot}
    rest = np.array(
        sorted(o for group in touched for o in plan.groups[group].operators if o not in pivoted),
        dtype=np.int64,
    )
    first_rest = len(plan.groups) + len(pivots)
    partition = Partition.of(graph, plan.membership, first_rest + len(rest))
    for number, pivot in enumerate(pivots, len(plan.groups)):
        partition.label[list(pivot)] = number
    parts = _arrange_rest(graph, plan, partition, rest, range(len(plan.groups), first_rest), asked)
    for pivot in pivots:
        if stray := [operator for operator in pivot if parts[operator] != pivot[0]]:
            raise apart(graph, pivot[0], stray[0])
    pieces: dict[int, list[int]] = {}
    for operator in rest.tolist():
        pieces.setdefault(int(partition.label[operator]), []).append(operator)
    return _with_groups(graph, plan, partition, touched, [*pivots, *map(tuple, pieces.values())])


def _arrange_rest(
    graph: OperatorGraph,
    plan: Plan,
    partition: Partition,
    rest: NDArray[np.int64],
    pivots: range,
    asked: tuple[int, ...],
) -> NDArray[np.int32]:
    """Label the operators `rest` so that no cycle is left, in as few groups as the rule allows.

    First by connected parts; if that closes a cycle, each part once more by phases (`bitsets.phases`). A
    cycle that stays even when every operator of the rest stands alone is a pivot's own: `Refusal`.

    Returns
    -------
    int32[operators]: `Partition.parts` of what results.
    """
    label, base = partition.label, pivots.stop
    parts = partition.parts()
    label[rest] = base + np.searchsorted(rest, parts[rest])
    if partition.order() is not None:
        return parts
    label[rest] = base + np.arange(len(rest))
    order = partition.order()
    if order is None:
        looping = next(pivot for pivot in pivots if partition.path_back(pivot))
        raise cycle(graph, partition, looping, asked)
    marked = np.zeros(partition.groups, dtype=np.uint8)
    marked[list(pivots)] = 1
    phase = bitsets.phases(label, partition.groups, partition.start, partition.target, order, marked)
    key = plan.membership[rest].astype(np.int64) * (len(pivots) + 1) + phase[label[rest]]
    label[rest] = base + np.unique(key, return_inverse=True)[1]
    parts = partition.parts()
    label[rest] = base + np.searchsorted(rest, parts[rest])
    return parts


def _with_groups(
    graph: OperatorGraph, plan: Plan, partition: Partition, touched: list[int], members: list[tuple[int, ...]]
) -> Plan:
    """The plan with groups of `members` in place of the groups `touched`; `partition` says the same."""
    groups = list(plan.groups)
    for group in reversed(touched):
        del groups[group]
    for operators in members:
        sources = [plan.groups[group] for group in sorted({int(plan.membership[o]) for o in operators})]
        insort(groups, _carried(graph, sources, operators), key=lambda group: group.operators[0])
    edited = Plan(tuple(groups))
    membership = bitsets.renumbered(partition.label, partition.groups)
    membership.setflags(write=False)
    vars(edited)["membership"] = membership  # known already: spares a walk over all groups
    return edited


def _carried(graph: OperatorGraph, sources: list[FusionGroup], operators: tuple[int, ...]) -> FusionGroup:
    """A group of `operators` with what still holds of the knobs of the groups that they came from."""
    if not any(source.has_knobs for source in sources):
        return FusionGroup(operators)
    kept: dict[str, Any] = {}
    for knob in _KEPT_WHERE_EQUAL:
        values = {getattr(source, knob) for source in sources}
        if len(values) == 1:
            kept[knob] = values.pop()
    for knob, accesses in (("pinned", "inputs"), ("recompute", "outputs")):
        here = {
            graph.tensors[access.tensor].name
            for operator in operators
            for access in getattr(graph.operators[operator], accesses)
        }
        named_before = dict.fromkeys(name for source in sources for name in getattr(source, knob))
        kept[knob] = tuple(name for name in named_before if name in here)
    return FusionGroup(operators, **kept)
