"""The cost of a whole graph under one plan: groups solved once per structure, launched in order, summed.

Knows every other part of this room; the only door that others need. A result is a pure function of its request:
a `GroupCache` makes it faster and never different.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..graph.graph import OperatorGraph
from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup
from .operands import Operands
from .result import PHASE_DTYPE, CostRequest, CostResult, GroupResult, LevelMapping, Totals, Traffic
from .solution import RESOURCE_NAMES, RESOURCE_SETS, Solution, balanced
from .solve import solve
from .timing import launch_times, makespan
from .tree import plain_name
from .units import Machine

_REMEMBERED = 10_000  # solved groups, some 10 kB each, before a cache starts anew


class _Facts:
    """What a graph is, whatever the plan: its operands, names, and structural keys of groups."""

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self.operands = Operands(graph, keys)

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
        self._scopes: dict[tuple[int, str], _Scope] = {}
        self._graph: OperatorGraph | None = None
        self._facts: _Facts | None = None
        self._graphs = 0
        # By identity of a solution, which stands in the entry so that its identity stays its own.
        self.launched: dict[tuple[int, int], tuple[Solution, NDArray[np.void]]] = {}
        self.evaluated = 0

    def scope(self, request: CostRequest) -> _Scope:
        """What requests of one graph, machine and precision share."""
        if self._graph is not request.graph or self._facts is None:
            self._graph, self._facts = request.graph, _Facts(request.graph, self._keys)
            self._scopes.clear()
            self._graphs += 1
        remembered = sum([len(solutions) for solutions in self._solutions.values()])
        if remembered > max(_REMEMBERED, 4 * len(request.graph.operators)):
            for memory in (self._solutions, self._scopes, self.launched):
                memory.clear()
        number, machine = self._machines.setdefault(
            request.accelerator, (len(self._machines), Machine(request.accelerator))
        )
        key = (number, request.precision)
        if key not in self._scopes:
            solutions = self._solutions.setdefault(key, {})
            self._scopes[key] = _Scope(self._facts, self._graphs, solutions, machine, request.precision)
        return self._scopes[key]

    def solution(self, scope: _Scope, group: FusionGroup) -> Solution:
        """The solution of one group, solved where its structure is new."""
        key: object = (
            (scope.graph_number, group) if group.has_knobs else scope.facts.signature(group.operators)
        )
        found = scope.solutions.get(key)
        if found is None:
            found = solve(scope.facts.operands, group, scope.machine, scope.precision)
            scope.solutions[key] = found
            self.evaluated += 1
        return found

    def unfused(self, scope: _Scope) -> _Sums:
        """Every operator alone: a look at one of each structure."""
        _, first, which = np.unique(
            np.array(scope.facts.operands.structure, np.int64), return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # sums run in file order, whatever the cache has seen before
        different = [self.solution(scope, FusionGroup((index,))) for index in first[order].tolist()]
        return _Sums(scope.machine.accelerator, different, np.argsort(order)[which])


class _Scope:
    """One graph on one machine at one precision: sums that no plan changes, and the groups of the last plan."""

    def __init__(
        self,
        facts: _Facts,
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
        self.unfused: _Sums | None = None
        self.baseline: Totals | None = None
        # By first operator: an edit keeps the groups that it does not touch.
        self.last: dict[int, tuple[FusionGroup, Solution, _Named, int]] = {}  # the last: its launch, ns
        # By identity of a solution, which stands in the entry as well.
        self.common: dict[int, dict[str, object]] = {}


class _Sums:
    """The groups of a plan in launch order: starts, ends and sums. Times are integer nanoseconds.

    Equal groups share one solution; sums run over the different ones, each times how often it occurs.
    """

    def __init__(
        self, accelerator: Accelerator, different: Sequence[Solution], which: NDArray[np.int64]
    ) -> None:
        self.different = different
        self._which = which
        self._times: list[int] = np.bincount(which, minlength=len(different)).tolist()
        self.issue_ns = round(accelerator.launch.issue_s * 1e9)
        self.gap_ns = round(accelerator.launch.gap_s * 1e9)
        latency = np.array([s.latency_ns for s in different], np.int64)[which]
        launched = np.array([s.launches for s in different], np.int64)[which]
        starts = np.zeros(len(which), np.int64)
        delays = np.zeros(len(which), np.int64)
        self.end_ns = int(launch_times(latency, launched, self.issue_ns, self.gap_ns, starts, delays))
        self.starts_s: NDArray[np.float64] = starts / 1e9
        self.delays_ns = delays
        self.launches = int(launched.sum())
        self.launch_ns = int(delays.sum())

    def _sum(self, name: str) -> Any:
        """The sum of one field of the solutions; integers stay exact."""
        return sum([getattr(s, name) * times for s, times in zip(self.different, self._times, strict=True)])

    def bottleneck(self) -> tuple[str, float]:
        """The class whose 10 % relief shortens the whole most, or the smallest of the sets tried that gains 1 %."""
        if any(solution.infeasible for solution in self.different):
            return "infeasible", 0.0
        if self.launches == 0 or self.end_ns == 0:
            return "none", 0.0
        launched = np.array([s.launches > 0 for s in self.different])[self._which]
        which = self._which[launched]
        table = np.array([solution.relieved_s for solution in self.different]).T
        base = np.array([solution.latency_ns for solution in self.different])[which] * 1e-9
        issue, gap = self.issue_ns * 1e-9, self.gap_ns * 1e-9
        now = float(makespan(base, issue, gap))
        # A latency is rounded to a nanosecond; a relief that changes nothing must not gain that.
        ends = [min(now, float(makespan(row[which], issue, gap))) for row in table]
        names = [*RESOURCE_NAMES, "launch"]
        single = [*ends[: len(RESOURCE_NAMES)], float(makespan(base, issue / 1.1, gap / 1.1))]
        best = min(range(len(names)), key=lambda i: single[i])
        gain = 1.0 - single[best] / now
        if gain < 0.01:
            for chosen, end in zip(RESOURCE_SETS, ends[len(RESOURCE_NAMES) :], strict=True):
                if 1.0 - end / now >= 0.01:
                    return balanced(chosen), 1.0 - end / now
        return names[best], gain

    def totals(self, scope: _Scope, baseline: _Sums) -> Totals:
        """CONTRACT's totals; `baseline` is the unfused plan's sums."""
        reads, writes = self._sum("dram_read_bytes"), self._sum("dram_write_bytes")
        moved = reads + writes
        operator_bytes = self._sum("operator_bytes")
        everything = scope.intermediate_bytes
        spilled = sum(
            [s.registers.spilled_bytes * times for s, times in zip(self.different, self._times, strict=True)]
        )
        name, gain = self.bottleneck()
        return Totals(
            latency_s=self.end_ns / 1e9,
            launches=self.launches,
            launch_s=self.launch_ns / 1e9,
            compute_s=self._sum("compute_s"),
            dram_s=self._sum("dram_s"),
            dram_read_bytes=reads,
            dram_write_bytes=writes,
            operator_bytes=operator_bytes,
            onchip_reuse_ratio=1.0 - moved / operator_bytes if operator_bytes else 0.0,
            reuse_factor=self._sum("operand_bytes") / moved if moved else 0.0,
            intermediate_onchip_share=min(1.0, self._sum("kept_bytes") / everything) if everything else 0.0,
            launch_overhead_reduction=1.0 - self.launch_ns / baseline.launch_ns
            if baseline.launch_ns
            else 0.0,
            compulsory_dram_bytes=scope.compulsory_bytes,
            lower_bound_dram_bytes=self._sum("lower_bound_bytes"),
            spill_bytes=spilled,
            peak_footprint_bytes=max(
                [s.footprint_bytes[0][1] for s in self.different if s.footprint_bytes], default=0
            ),
            macs=self._sum("macs"),
            recomputed_macs=self._sum("recomputed_macs"),
            vector_ops=self._sum("vector_ops"),
            energy_j=self._sum("energy_j"),
            code_bytes=self._sum("code_bytes"),
            complexity=self._sum("complexity"),
            feasible=all(s.infeasible is None for s in self.different),
            bottleneck=name,
            bottleneck_gain=gain,
        )


def simulate(request: CostRequest, cache: GroupCache | None = None) -> CostResult:
    """The cost of `request.plan`, and of the unfused plan beside it.

    Parameters
    ----------
    cache : remembers solved groups between calls; the result is the same without one.

    Raises
    ------
    FileError
        Where the graph can only be looked at: a cycle, a tensor with two writers, sizes beyond counting.
    PlanError
        Where a group's loop tree is not legal or cannot be read.
    """
    if request.graph.refusal:
        raise FileError(
            f"{request.graph.refusal}, so nothing can be simulated",
            where=request.graph.path or request.graph.name,
            lever="Export the model again; `tilewright inspect` and the window still show it.",
        )
    began = time.perf_counter()
    kept = cache is not None
    cache = GroupCache() if cache is None else cache
    before = cache.evaluated
    with _no_collection():
        scope = cache.scope(request)
        if scope.unfused is None or scope.baseline is None:
            scope.unfused = cache.unfused(scope)
            scope.baseline = scope.unfused.totals(scope, scope.unfused)
        solutions: list[Solution] = []
        place: dict[int, int] = {}
        which: list[int] = []
        for group in request.plan.groups:
            known = scope.last.get(group.operators[0])
            if known is not None and (known[0] is group or known[0] == group):
                solution = known[1]
            else:
                solution = cache.solution(scope, group)
            solutions.append(solution)
            which.append(place.setdefault(id(solution), len(place)))
        different = list({id(solution): solution for solution in solutions}.values())
        sums = _Sums(request.accelerator, different, np.array(which, np.int64))
        placed = _placed(request, cache, scope, solutions, sums)
        if kept:
            for group in placed:
                _ = group.traffic
    return CostResult(
        request=request,
        groups=placed,
        totals=sums.totals(scope, scope.unfused),
        baseline=scope.baseline,
        warnings=_warnings(request, placed),
        seconds=time.perf_counter() - began,
        evaluated=cache.evaluated - before,
    )


@contextmanager
def _no_collection() -> Generator[None, None, None]:
    """Without Python's cyclic collector, which would run over the whole graph several times for some thousand results.

    None of what is made here is part of a cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _placed(
    request: CostRequest, cache: GroupCache, scope: _Scope, solutions: Sequence[Solution], sums: _Sums
) -> tuple[GroupResult, ...]:
    """Results of the plan's groups: solutions with names, tensors and starts."""
    last = scope.last
    if len(last) > 2 * len(solutions) + 100:  # entries of groups that were long since split or fused
        last.clear()
    out: list[GroupResult] = []
    for group, solution, start_s, delay in zip(
        request.plan.groups, solutions, sums.starts_s.tolist(), sums.delays_ns.tolist(), strict=True
    ):
        first = group.operators[0]
        known = last.get(first)
        if known is None or known[1] is not solution or known[0].operators != group.operators:
            result = _named(scope, group, solution, start_s, _with_launch(cache, solution, delay))
        elif known[3] != delay:
            result = _copy(known[2], start_s, _with_launch(cache, solution, delay))
        elif known[2].start_s != start_s:
            result = _copy(known[2], start_s, known[2].phases)
        else:
            result = known[2]
        if known is None or result is not known[2] or group is not known[0]:
            last[first] = (group, solution, result, delay)
        out.append(result)
    return tuple(out)


def _with_launch(cache: GroupCache, solution: Solution, delay_ns: int) -> NDArray[np.void]:
    """The profile of a group behind its launch; equal ones are one array."""
    known = cache.launched.get((id(solution), delay_ns))
    if known is not None:
        return known[1]
    found = solution.phases
    if solution.launches:
        found = np.zeros(len(solution.phases) + 1, PHASE_DTYPE)
        found[0] = (0, delay_ns, 0, 0, 0)
        found[1:] = solution.phases
        found.setflags(write=False)
    cache.launched[id(solution), delay_ns] = (solution, found)
    return found


class _Named(GroupResult):
    """A solution under the names of one group.

    It holds what is its own; what all groups of a solution have in common is read from there, and names are looked up
    when someone reads them: an edit moves the start of every later group, and few of many are ever looked at.
    """

    _facts: _Facts
    _solution: Solution
    _common: dict[str, object]

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["_common"][name]
        except KeyError:
            raise AttributeError(name) from None

    @cached_property
    def tree(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        name, members = self._facts.leaf_name, self.operators
        return "".join(
            [part if isinstance(part, str) else name(members[part]) for part in self._solution.tree]
        )

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        tensors = self._facts.tensors(self.operators)
        return tuple(
            [
                Traffic(tensors[row.tensor], row.outer, row.inner, row.read_bytes, row.write_bytes)
                for row in self._solution.traffic
            ]
        )

    @cached_property
    def levels(self) -> tuple[LevelMapping, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        names = [self._facts.graph.tensors[tensor].name for tensor in self._facts.tensors(self.operators)]
        return tuple(
            [
                LevelMapping(
                    level.memory,
                    level.tile,
                    level.loop_order,
                    tuple([(names[t], depth) for t, depth in retain]),
                    level.trips,
                )
                for level, retain in zip(self._solution.levels, self._solution.retain, strict=True)
            ]
        )


def _copy(result: _Named, start_s: float, phases: NDArray[np.void]) -> _Named:
    """The same result at another start; `dataclasses.replace` would set forty fields one by one."""
    own = result.__dict__.copy()
    own["start_s"] = start_s
    own["phases"] = phases
    out = object.__new__(_Named)
    object.__setattr__(out, "__dict__", own)
    return out


def _named(
    scope: _Scope, group: FusionGroup, solution: Solution, start_s: float, phases: NDArray[np.void]
) -> _Named:
    """A solution under the names of one group."""
    common = scope.common.get(id(solution))
    if common is None:
        common = scope.common[id(solution)] = _common(scope.facts, solution)
    out = object.__new__(_Named)
    own: dict[str, object] = {
        "_common": common,
        "operators": group.operators,
        "start_s": start_s,
        "phases": phases,
    }
    if solution.warnings:
        where = _label(scope.facts.graph, group.operators)
        own["warnings"] = tuple([(where, what, lever) for what, lever in solution.warnings])
    object.__setattr__(out, "__dict__", own)
    return out


def _common(facts: _Facts, solution: Solution) -> dict[str, object]:
    """What all groups of one solution in one graph have in common: `_Named` reads it as its own."""
    own = {"operators", "levels", "tree", "traffic", "start_s", "phases", "warnings"}
    derived: dict[str, object] = {
        "latency_s": solution.latency_ns / 1e9,
        "utilisation": solution.ideal_cycles / solution.cycles if solution.cycles > 0.0 else 1.0,
        "_facts": facts,
        "_solution": solution,
    }
    names = {field.name for field in fields(GroupResult)} - own - set(derived)
    return derived | {name: getattr(solution, name) for name in names}


def _label(graph: OperatorGraph, members: tuple[int, ...]) -> str:
    """The group by its operators, as messages name it."""
    names = [graph.operators[i].name for i in members[:2]]
    return ", ".join(names) + (f" and {len(members) - 2} more" if len(members) > 2 else "")


def _warnings(request: CostRequest, groups: tuple[GroupResult, ...]) -> tuple[tuple[str, str, str], ...]:
    """The graph's, the machine's and the groups' warnings; one that many groups share stands once."""
    out = [(w.where, w.what, w.lever) for w in request.graph.warnings]
    out.extend(request.accelerator.warnings)
    shared: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for where, what, lever in group.warnings:
            shared.setdefault((what, lever), []).append(where)
    for (what, lever), places in shared.items():
        more = f" and {len(places) - 1} more groups" if len(places) > 1 else ""
        out.append((places[0] + more, what, lever))
    return tuple(out)
