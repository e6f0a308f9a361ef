"""Solved groups, remembered by structure and by what a cache holds of them: faster, never different.

Knows how groups are solved and how a cache passes tensors from one to the next; knows no results of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import OperatorGraph
from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup
from .operands import Operands, views
from .result import CostRequest, GroupResult, Totals
from .reuse import Touch, held
from .solution import Solution
from .solve import Prepared
from .sums import Sums
from .tree import plain_name
from .units import Machine

_REMEMBERED = 10_000  # solved groups, some 10 kB each, before a cache starts anew


class Facts:
    """What a graph is, whatever the plan: its operands, names, and structural keys of groups."""

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self.operands = Operands(graph, keys)

    @cached_property
    def root(self) -> list[int]:
        """Per tensor the one that it is a view of; itself where it is none."""
        out = list(range(len(self.graph.tensors)))
        for view, viewed in views(self.graph, range(len(self.graph.operators))).items():
            out[view] = viewed
        return out

    @cached_property
    def final(self) -> frozenset[int]:
        """Tensors that the graph hands out, under their own or a view's name."""
        return frozenset([self.root[tensor.index] for tensor in self.graph.tensors if tensor.is_output])

    def leaf_name(self, index: int) -> str:
        """An operator's name as loop trees write it."""
        operator = self.graph.operators[index]
        return plain_name(operator.name, f"{operator.op_type}_{operator.index}")

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

    def totals(self, sums: Sums) -> Totals:
        """CONTRACT's totals of a plan's sums."""
        return sums.totals(self.compulsory_bytes, self.intermediate_bytes, self.unfused)
