"""Tensors that are computed again in the backward pass instead of saved for it: what then runs, as a graph and a plan.

A saved activation that a plan's `recompute` names is not kept: the operators that make it run a second time, from what
is there anyway (inputs, weights, activations that stay saved), just before the first group of the backward pass that
needs it (Chen, Xu, Zhang, Guestrin 2016: sublinear memory). Such a *replay* is written down as copies of operators at
the end of the graph and groups of them at the end of the plan; operators of the backward pass read what the copies
write. Everything else, legality and cost alike, follows from the usual rules.

A replay runs what one group of the plan ran, less what nobody needs. A group that holds operators of both passes has
the activation at hand and reads it where it is. Knows graph and plan; knows no machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..graph.graph import Access, OperatorGraph, OpKind, TensorRole
from .edits import set_group
from .legality import Partition, check, named
from .plan import FusionGroup, Plan


@dataclass(frozen=True, slots=True)
class Replays:
    """What runs again, in the graph's own numbers.

    Attributes
    ----------
    operators : that run again, ascending.
    outputs : tensors that they write again, ascending.
    readers : operators of the backward pass that read these, ascending.
    kept : per named tensor that is not computed again after all: (its name, why not).
    """

    operators: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """A graph with its replays written down, and the plan for it.

    Attributes
    ----------
    graph, plan : copies of operators and tensors, and the groups of these, follow the original ones.
    operators, tensors : per operator and tensor the one that it is a copy of; itself otherwise.
    replays : per group of the plan the group whose operators it runs again; -1 where it is one of the user's.
    order : indices of groups in the order of their launches.
    """

    graph: OperatorGraph
    plan: Plan
    operators: tuple[int, ...]
    tensors: tuple[int, ...]
    replays: tuple[int, ...]
    order: tuple[int, ...]


def why_not(graph: OperatorGraph, tensor: int) -> str:
    """Why a tensor cannot be computed again instead of saved, whatever the plan; empty where it can."""
    root = graph.roots[tensor]
    one, made = graph.tensors[root], int(graph.producer[root])
    if one.role is TensorRole.INPUT:
        return "it is an input of the graph: nothing computes it"
    if one.role is TensorRole.WEIGHT or made < 0:
        return "it is a weight: nothing computes it"
    forward = graph.forward
    if forward is None:
        return "the graph has no backward pass, for which anything would be saved"
    if not forward[made]:
        return f"{named(graph, made)} makes it in the backward pass already"
    if root not in graph.saved:
        return "no operator of the backward pass reads it, so it is not saved"
    if one.is_output or any(graph.tensors[t].is_output for t, r in enumerate(graph.roots) if r == root):
        return "it is an output of the graph and is kept anyway"
    if not any(forward[reader] for reader in _readers(graph, root)):
        return "the forward pass does not read it: computed again, it would be computed for nothing the first time"
    for operator in _slice(graph, [root], set(graph.saved) - {root})[0]:
        if why := graph.operators[operator].barrier:
            return f"{named(graph, operator)} would run again, and cannot: {why}"
    return ""


def recompute(graph: OperatorGraph, plan: Plan, tensors: Iterable[int], again: bool = True) -> Plan:
    """The plan in which saved activations are computed again in the backward pass (or, not ``again``, saved).

    Raises
    ------
    PlanError : a tensor that cannot be computed again (`why_not`), or a plan that would wait for itself.
    """
    for tensor in dict.fromkeys(graph.roots[tensor] for tensor in tensors):
        name = graph.tensors[tensor].name
        if again and (why := why_not(graph, tensor)):
            raise PlanError(f"cannot be computed again: {why}", where=name)
        index = int(plan.membership[graph.producer[tensor]]) if graph.producer[tensor] >= 0 else -1
        if index < 0:
            continue
        names = tuple(one for one in plan.groups[index].recompute if one != name)
        plan = set_group(graph, plan, index, recompute=(*names, name) if again else names)
    if (fault := waiting(graph, plan)) is not None:
        raise fault
    return plan


def waiting(graph: OperatorGraph, plan: Plan) -> PlanError | None:
    """The fault of a plan whose replays would wait for groups that wait for them, or None."""
    found = replays(graph, plan)
    if not found.operators:
        return None
    again = written_down(graph, plan, found)
    refusal = check(again.graph, again.plan)
    if refusal is None:
        return None
    names = ", ".join(dict.fromkeys(name for group in plan.groups for name in group.recompute))
    return PlanError(
        f"computed again, {names} would wait for a group that waits for it",
        where=refusal.where,
        lever="Part the operators of the forward pass from those of the backward pass in that group.",
    )


def replays(graph: OperatorGraph, plan: Plan) -> Replays:
    """What runs again under `plan`; nothing where no group names a tensor."""
    asked = [name for group in plan.groups if group.recompute for name in group.recompute]
    if not asked:
        return Replays()
    number = {tensor.name: tensor.index for tensor in graph.tensors}
    kept: list[tuple[str, str]] = []
    roots: set[int] = set()
    for name in dict.fromkeys(asked):
        why = "there is no such tensor" if name not in number else why_not(graph, number[name])
        if why:
            kept.append((name, why))
        else:
            roots.add(graph.roots[number[name]])
    late = _late(graph, plan)
    wanted: list[int] = []
    readers: set[int] = set()
    reached: set[int] = set()
    for root in sorted(roots):
        for operator, tensor in _uses(graph, root):
            if late[operator]:
                wanted.append(tensor)
                readers.add(operator)
                reached.add(root)
    kept += [
        (graph.tensors[root].name, "every group that needs it runs operators of the forward pass as well")
        for root in sorted(roots - reached)
    ]
    operators, outputs = _slice(graph, wanted, set(graph.saved) - reached)
    for operator in operators:
        if why := graph.operators[operator].barrier:  # of several together, where none alone meets it
            why = f"{named(graph, operator)} would run again, and cannot: {why}"
            return Replays(kept=(*kept, *((graph.tensors[root].name, why) for root in sorted(reached))))
    return Replays(tuple(operators), tuple(outputs), tuple(sorted(readers)), tuple(kept))


def written_down(
    graph: OperatorGraph, plan: Plan, found: Replays, before: OperatorGraph | None = None
) -> Replayed:
    """The graph and plan that run `found`; ``before``: what an earlier call made of the same `found`, to be kept."""
    copy = {operator: len(graph.operators) + i for i, operator in enumerate(found.operators)}
    members: dict[int, list[int]] = {}
    for operator in found.operators:
        members.setdefault(plan.group_of[operator], []).append(copy[operator])
    again = _with_copies(graph, found, copy) if before is None else before
    groups, sources = list(plan.groups), [-1] * len(plan.groups)
    for group, part in _connected(again, plan, members):
        original = plan.groups[group]
        whole = len(part) == len(original.operators)
        knobs = original if whole else FusionGroup((0,), **{k: getattr(original, k) for k in _OF_ANY_PART})
        groups.append(replace(knobs, operators=part, tree="", recompute=()))
        sources.append(group)
    bare = Plan(tuple(replace(group, recompute=()) if group.recompute else group for group in groups))
    return Replayed(
        again,
        bare,
        (*range(len(graph.operators)), *found.operators),
        (*range(len(graph.tensors)), *found.outputs),
        tuple(sources),
        _order(again, bare, sources),
    )


_OF_ANY_PART = ("precision", "sparsity", "halo", "threads")  # knobs that mean the same for fewer operators


def _with_copies(graph: OperatorGraph, found: Replays, copy: dict[int, int]) -> OperatorGraph:
    """The graph with copies of operators and of what they write; the readers read these."""
    copied = {tensor: len(graph.tensors) + i for i, tensor in enumerate(found.outputs)}

    def turned(accesses: Iterable[Access]) -> tuple[Access, ...]:
        return tuple(replace(a, tensor=copied[a.tensor]) if a.tensor in copied else a for a in accesses)

    operators = list(graph.operators)
    for reader in found.readers:
        operators[reader] = replace(operators[reader], inputs=turned(operators[reader].inputs))
    for operator, index in copy.items():
        one = graph.operators[operator]
        written = turned(access for access in one.outputs if access.tensor in copied)
        operators.append(replace(one, index=index, inputs=turned(one.inputs), outputs=written))
    tensors = [replace(graph.tensors[tensor], index=index) for tensor, index in copied.items()]
    return replace(graph, operators=tuple(operators), tensors=(*graph.tensors, *tensors), fusions=())


def _connected(
    again: OperatorGraph, plan: Plan, members: dict[int, list[int]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Pairs (group of the plan, copies of operators of it that hang together), by their first copy."""
    label = np.arange(len(again.operators), dtype=np.int32)
    for copies in members.values():
        label[copies] = copies[0]
    parts = Partition.of(again, label, len(again.operators)).parts()
    found: dict[tuple[int, int], list[int]] = {}
    for group, copies in members.items():
        for one in copies:
            found.setdefault((group, int(parts[one])), []).append(one)
    return sorted(((group, tuple(part)) for (group, _), part in found.items()), key=lambda pair: pair[1][0])


def _order(again: OperatorGraph, plan: Plan, sources: list[int]) -> tuple[int, ...]:
    """Groups in the order of their launches: a replay just before the first group that needs it."""
    first = [group if source < 0 else len(sources) for group, source in enumerate(sources)]
    membership, (start, target) = plan.membership, again.successors
    for group in reversed(range(len(sources))):  # what a replay needs of another stands before it
        if sources[group] >= 0:
            for operator in plan.groups[group].operators:
                for reader in target[start[operator] : start[operator + 1]].tolist():
                    first[group] = min(first[group], first[int(membership[reader])])
    return tuple(sorted(range(len(sources)), key=lambda group: (first[group], sources[group] < 0, group)))


def _late(graph: OperatorGraph, plan: Plan) -> NDArray[np.bool_]:
    """bool[operators]: those of the backward pass in groups that run nothing of the forward pass."""
    forward = graph.forward
    assert forward is not None
    working = np.array([o.kind is not OpKind.VIEW for o in graph.operators], np.bool_)
    mixed = np.zeros(len(plan.groups), np.bool_)
    mixed[plan.membership[forward & working]] = True
    return ~forward & ~mixed[plan.membership]


def _uses(graph: OperatorGraph, root: int) -> list[tuple[int, int]]:
    """Pairs (operator, tensor) that read a tensor under its own or a view's name."""
    names, out = [root], list[tuple[int, int]]()
    for name in names:
        for reader in graph.consumers[name]:
            out.append((reader, name))
            if (
                graph.operators[reader].kind is OpKind.VIEW
                and graph.operators[reader].inputs[0].tensor == name
            ):
                names.extend(access.tensor for access in graph.operators[reader].outputs)
    return out


def _readers(graph: OperatorGraph, root: int) -> set[int]:
    """Operators that work on a tensor, under its own or a view's name."""
    return {reader for reader, _ in _uses(graph, root) if graph.operators[reader].kind is not OpKind.VIEW}


def _slice(graph: OperatorGraph, tensors: Iterable[int], there: set[int]) -> tuple[list[int], list[int]]:
    """What makes `tensors` from inputs, weights and activations `there`: operators, and what they write; ascending."""
    wanted, operators = list(dict.fromkeys(tensors)), set[int]()
    seen = set(wanted)
    for tensor in wanted:
        made = int(graph.producer[tensor])
        operators.add(made)
        for access in graph.operators[made].inputs:
            known = access.tensor in seen or graph.roots[access.tensor] in there
            if not known and graph.producer[access.tensor] >= 0:
                seen.add(access.tensor)
                wanted.append(access.tensor)
    return sorted(operators), sorted(seen)
