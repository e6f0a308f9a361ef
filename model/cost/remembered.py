"""Solved groups, remembered by structure and by what a cache holds of them: faster, never different.

Knows how groups are solved and how a cache passes tensors from one to the next; knows no results of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import OperatorGraph
from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup, Plan
from ..plan.recompute import Replayed, replays, written_down
from .operands import Operands
from .result import CostRequest, GroupResult, SavedTensor, Totals
from .reuse import Touch, held
from .saved import peak_bytes, saved_tensors
from .solution import Solution
from .solve import Prepared
from .sums import Sums
from .tree import plain_name
from .units import Machine

_REMEMBERED = 10_000  # solved groups, some 10 kB each, before a cache starts anew


class Facts:
    """What a graph is, whatever the plan: its operands, names, and structural keys of groups."""

    def __init__(self, graph: OperatorGraph, keys: dict[object, int], again: Replayed | None = None) -> None:
        self.graph = graph
        self.operands = Operands(graph, keys)
        self._again = again  # what the last operators and tensors are copies of

    def originals(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Operators as the graph of the request numbers them."""
        return members if self._again is None else tuple([self._again.operators[i] for i in members])

    def original(self, tensor: int) -> int:
        """A tensor as the graph of the request numbers it."""
        return tensor if self._again is None else self._again.tensors[tensor]

    def original_tensors(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """`tensors`, as the graph of the request numbers them."""
        found = self.tensors(members)
        return found if self._again is None else tuple([self.original(i) for i in found])

    @property
    def root(self) -> tuple[int, ...]:
        """Per tensor the one that it is a view of; itself where it is none."""
        return self.graph.roots

    @cached_property
    def final(self) -> frozenset[int]:
        """Tensors that the graph hands out, under their own or a view's name."""
        return frozenset([self.root[tensor.index] for tensor in self.graph.tensors if tensor.is_output])

    def leaf_name(self, index: int) -> str:
        """An operator's name as loop trees write it."""
        operator = self.graph.operators[index]
        return plain_name(operator.name, f"{operator.op_type}_{self.originals((index,))[0]}")

    def tensors(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """`solution.tensors_of`: the tensors of a group in order of first use."""
        touched = self.operands.touched
        return tuple(dict.fromkeys([tensor for index in members for tensor in touched[index]]))

    def signature(self, members: tuple[int, ...]) -> int | tuple[int, ...]:
        """Equal for two groups exactly where everything that a solution depends on is equal, but for names."""
        operands = self.operands
        if len(members) == 1:
            return operands.structure[members[0]]
        inside = set(members)
        local: dict[int, int] = {}
        row: list[int] = []
        for index in members:
            row.append(operands.structure[index])
            row.extend([local.setdefault(tensor, len(local)) for tensor in operands.touched[index]])
        row.append(-len(members))
        producer, consumers = operands.producer, self.graph.consumers
        for tensor, number in local.items():  # which of them are made here, and which of these leave
            if producer[tensor] in inside:
                row.append(number)
                row.append(inside.issuperset(consumers[tensor]))
        return tuple(row)


class GroupCache:
    """Remembers solved groups by structure, and the last result for the next edit. One thread at a time.

    Keep one for as long as a document is open; `simulate` without one starts from nothing. Who keeps one draws every
    result, and not where it is computed: traffic of new groups is written under their names at once.
    """

    def __init__(self) -> None:
        self._keys: dict[object, int] = {}
        self._machines: dict[Accelerator, tuple[int, Machine]] = {}
        self._solutions: dict[tuple[int, str], dict[object, Solution]] = {}
        self._scopes: dict[tuple[int, str], Scope] = {}
        self._graph: OperatorGraph | None = None
        self._facts: Facts | None = None
        self._graphs = 0
        # By identity of a solution, which stands in the entry so that its identity stays its own.
        self.launched: dict[tuple[int, int], tuple[Solution, NDArray[np.void]]] = {}
        # Of machines with a cache: the mapping behind a solution, and the solution by what the cache holds.
        self._prepared: dict[int, tuple[Solution, Prepared]] = {}
        self._held: dict[tuple[int, frozenset[int], frozenset[int]], Solution] = {}
        self.evaluated = 0
        # The last graph in which something is computed again, by what it is made of.
        self._again: tuple[object, Scope] | None = None

    def scope(self, request: CostRequest) -> Scope:
        """What requests of one graph, machine and precision share."""
        if self._graph is not request.graph or self._facts is None:
            self._graph, self._facts = request.graph, Facts(request.graph, self._keys)
            self._scopes.clear()
            self._graphs += 1
        remembered = sum([len(solutions) for solutions in self._solutions.values()])
        if remembered > max(_REMEMBERED, 4 * len(request.graph.operators)):
            self._solutions.clear()
            self._scopes.clear()
            self._again = None
            self.launched.clear()
            self._prepared.clear()
            self._held.clear()
        number, machine = self._machines.setdefault(
            request.accelerator, (len(self._machines), Machine(request.accelerator))
        )
        key = (number, request.precision)
        if key not in self._scopes:
            solutions = self._solutions.setdefault(key, {})
            self._scopes[key] = Scope(self._facts, self._graphs, solutions, machine, request.precision)
        return self._scopes[key]

    def run_of(self, request: CostRequest, scope: Scope) -> Run:
        """What `request` launches: its groups, and what they compute again."""
        found = replays(request.graph, request.plan)
        if not found.operators:
            return Run(request.plan, scope, kept=found.kept)
        key = (
            scope.graph_number,
            scope.machine,
            scope.precision,
            found.operators,
            found.outputs,
            found.readers,
        )
        known = self._again if self._again is not None and self._again[0] == key else None
        again = written_down(
            request.graph, request.plan, found, None if known is None else known[1].facts.graph
        )
        if known is None:
            self._graphs += 1
            facts = Facts(again.graph, self._keys, again)
            copied = Scope(facts, self._graphs, scope.solutions, scope.machine, scope.precision)
            known = self._again = (key, copied)
        known[1].unfused, known[1].baseline = (
            scope.unfused,
            scope.baseline,
        )  # nothing is computed again in these
        return Run(again.plan, known[1], again.order, again.replays, found.kept)

    def solution(self, scope: Scope, group: FusionGroup) -> Solution:
        """The solution of one group, solved where its structure is new."""
        key: object = (
            (scope.graph_number, group) if group.has_knobs else scope.facts.signature(group.operators)
        )
        found = scope.solutions.get(key)
        if found is None:
            prepared = Prepared(scope.facts.operands, group, scope.machine, scope.precision)
            found = scope.solutions[key] = prepared.solution()
            if scope.machine.accelerator.cache is not None:
                self._prepared[id(found)] = (found, prepared)
            self.evaluated += 1
        return found

    def with_cache(
        self, scope: Scope, groups: Sequence[tuple[int, ...]], cold: list[Solution]
    ) -> list[Solution]:
        """The solutions of groups of operators, in launch order, with what the machine's cache holds between them."""
        share = scope.machine.accelerator.cache_share_bytes
        if not share:
            return cold
        rows = [scope.touches(members, solution) for members, solution in zip(groups, cold, strict=True)]
        out: list[Solution] = []
        for members, row, solution, (warm, kept) in zip(
            groups, rows, cold, held(rows, share, scope.facts.final), strict=True
        ):
            if not warm and not kept:
                out.append(solution)
                continue
            known = scope.held.get(members)
            if known is None or known[0] is not solution or known[1] != warm or known[2] != kept:
                found = self._as_held(scope, members, row, solution, warm, kept)
                known = scope.held[members] = (solution, warm, kept, found)
            out.append(known[3])
        return out

    def _as_held(
        self,
        scope: Scope,
        members: tuple[int, ...],
        row: Sequence[Touch],
        solution: Solution,
        warm: frozenset[int],
        kept: frozenset[int],
    ) -> Solution:
        """A solution where the cache holds these tensors of the graph; equal groups share it."""
        there = {tensor for tensor, _, _, _ in row}
        roots = [scope.facts.root[tensor] for tensor in scope.facts.tensors(members)]
        found, keeps = (
            frozenset([place for place, tensor in enumerate(roots) if tensor in of and tensor in there])
            for of in (warm, kept)
        )
        key = (id(solution), found, keeps)
        if key not in self._held:
            self._held[key] = self._prepared[id(solution)][1].solution(found, keeps)
        return self._held[key]

    def solve_unfused(self, scope: Scope) -> Iterator[None]:
        """Every operator alone, into ``scope.unfused`` and ``scope.baseline``: a structure solved at each step.

        Ends without them where the cache forgot the scope between two steps.
        """
        if scope.unfused is not None:
            return
        _, first, which = np.unique(
            np.array(scope.facts.operands.structure, np.int64), return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # sums run in file order, whatever the cache has seen before
        different: list[Solution] = []
        for index in first[order].tolist():
            different.append(self.solution(scope, FusionGroup((index,))))
            yield
            if all(known is not scope for known in self._scopes.values()):
                return
        which, machine = np.argsort(order)[which], scope.machine.accelerator
        if machine.cache is None:
            scope.unfused = Sums(machine, different, which)
        else:
            groups = [(index,) for index in range(len(which))]
            held_here = self.with_cache(scope, groups, [different[i] for i in which.tolist()])
            scope.unfused = Sums.of(machine, held_here)
        scope.baseline = scope.totals(scope.unfused)


class Scope:
    """One graph on one machine at one precision: sums that no plan changes, and the groups of the last plan."""

    def __init__(
        self,
        facts: Facts,
        graph_number: int,
        solutions: dict[object, Solution],
        machine: Machine,
        precision: str,
    ) -> None:
        self.facts = facts
        self.graph_number = graph_number
        self.solutions = solutions  # of this machine and precision, whatever the graph
        self.machine = machine
        self.precision = precision
        self.compulsory_bytes, self.intermediate_bytes = facts.operands.whole_graph(precision)
        self.unfused: Sums | None = None
        self.baseline: Totals | None = None
        # By first operator: an edit keeps the groups that it does not touch.
        self.cold: dict[int, tuple[FusionGroup, Solution]] = {}
        self.last: dict[int, tuple[FusionGroup, Solution, GroupResult, int]] = {}  # the last: its launch, ns
        # By operators, of machines with a cache: what it sees, and the solution by what it holds.
        self._touches: dict[tuple[int, ...], tuple[Solution, list[Touch]]] = {}
        self.held: dict[tuple[int, ...], tuple[Solution, frozenset[int], frozenset[int], Solution]] = {}
        # By identity of a solution, which stands in the entry as well.
        self.common: dict[int, dict[str, object]] = {}

    def touches(self, members: tuple[int, ...], solution: Solution) -> list[Touch]:
        """What the cache sees of a group, tensors as the graph numbers them, views as what they view."""
        known = self._touches.get(members)
        if known is None or known[0] is not solution:
            roots = [self.facts.root[tensor] for tensor in self.facts.tensors(members)]
            row = [(roots[place], size, read, write) for place, size, read, write in solution.touched]
            known = self._touches[members] = (solution, row)
        return known[1]

    def totals(self, sums: Sums, held_bytes: int | None = None) -> Totals:
        """CONTRACT's totals of a plan's sums; ``held_bytes`` for the backward pass, None: as the unfused plan does."""
        if held_bytes is None:
            graph = self.facts.graph
            held_bytes = Run(Plan.unfused(len(graph.operators)), self).saved(graph)[1]
        totals = sums.totals(self.compulsory_bytes, self.intermediate_bytes, self.unfused)
        return replace(totals, saved_activation_bytes=held_bytes)


@dataclass(frozen=True, slots=True)
class Run:
    """What is launched for a request.

    Attributes
    ----------
    plan, scope : of the request; where something is computed again, of the graph with its replays written down.
    order : launch order of the plan's groups; empty: as they stand.
    replays : per group the one that it runs again, else -1; empty: none does.
    kept : pairs (tensor that the plan would compute again and that stays saved, why).
    """

    plan: Plan
    scope: Scope
    order: tuple[int, ...] = ()
    replays: tuple[int, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def launches(self) -> Sequence[int]:
        """Indices of the plan's groups in launch order."""
        return self.order or range(len(self.plan.groups))

    def again(self) -> NDArray[np.bool_] | None:
        """bool[groups] in launch order: which are replays; None where none is."""
        return np.array([self.replays[i] >= 0 for i in self.order], np.bool_) if self.order else None

    def saved(self, graph: OperatorGraph) -> tuple[list[SavedTensor], int]:
        """What is held for the backward pass of `graph`, and the most of it at one time, in bytes."""
        if graph.forward is None:
            return [], 0
        own, facts = self.scope.facts.graph, self.scope.facts
        first, last = len(graph.tensors), len(own.tensors)
        copied = {root for tensor in range(first, last) if (root := own.roots[tensor]) >= first}
        forward = np.zeros(len(own.operators), np.bool_)
        forward[: len(graph.operators)] = graph.forward
        saved = saved_tensors(
            own,
            self.plan,
            self.launches,
            forward,
            (*graph.saved, *sorted(copied)),
            lambda tensor, precision: facts.operands.bits(tensor, precision or self.scope.precision),
        )
        shown = [replace(one, tensor=facts.original(one.tensor)) for one in saved]
        return shown, peak_bytes(saved, self.launches)
