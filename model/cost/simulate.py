"""The cost of a whole graph under one plan: groups solved once per structure, launched in order, summed.

Knows every other part of this room; the only door that others need. A result is a pure function of its request:
a `GroupCache` makes it faster and never different.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..graph.graph import Operator, OperatorGraph
from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup, Plan
from .operands import Operands
from .result import PHASE_DTYPE, CostRequest, CostResult, GroupResult, LevelMapping, Totals, Traffic
from .solution import RESOURCE_NAMES, RESOURCE_SETS, Solution, balanced, tensors_of
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
        self.names = [_leaf_name(operator) for operator in graph.operators]
        self._producer: list[int] = graph.producer.tolist()
        self._tensor_key = [
            keys.setdefault((t.dtype, t.shape, t.is_output), len(keys)) for t in graph.tensors
        ]
        self._touched = [
            tuple([a.tensor for a in operator.inputs + operator.outputs]) for operator in graph.operators
        ]

    def signature(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Equal for two groups exactly where everything that a solution depends on is equal, but for names."""
        keys, operator_key = self._tensor_key, self.operands.key
        if len(members) == 1:
            (index,) = members
            touched = self._touched[index]
            if len(set(touched)) == len(touched):
                return (operator_key[index], *[keys[tensor] for tensor in touched])
        local: dict[int, int] = {}
        row: list[int] = [-len(members)]
        for index in members:
            row.append(operator_key[index])
            row.extend([local.setdefault(tensor, len(local)) for tensor in self._touched[index]])
        inside = set(members)
        for tensor in local:
            row.append(keys[tensor])
            if self._producer[tensor] in inside:
                row.append(-1 if inside.issuperset(self.graph.consumers[tensor]) else -2)
        return tuple(row)


class GroupCache:
    """Remembers solved groups by structure, and the last result for the next edit. One thread at a time.

    Keep one for as long as a document is open; `simulate` without one starts from nothing.
    """

    def __init__(self) -> None:
        self._keys: dict[object, int] = {}
        self._machines: dict[Accelerator, tuple[int, Machine]] = {}
        self._solutions: dict[tuple[object, ...], Solution] = {}
        self._scopes: dict[tuple[int, str], _Scope] = {}
        self._graph: OperatorGraph | None = None
        self._facts: _Facts | None = None
        self._graphs = 0
        # By identity of a solution, which stands in the entry so that its identity stays its own.
        self.launched: dict[tuple[int, int], tuple[Solution, NDArray[np.void]]] = {}
        self.templates: dict[int, tuple[Solution, GroupResult]] = {}
        self.evaluated = 0

    def scope(self, request: CostRequest) -> _Scope:
        """What requests of one graph, machine and precision share."""
        if self._graph is not request.graph or self._facts is None:
            self._graph, self._facts = request.graph, _Facts(request.graph, self._keys)
            self._scopes.clear()
            self._graphs += 1
        if len(self._solutions) > max(_REMEMBERED, 4 * len(request.graph.operators)):
            for memory in (self._solutions, self._scopes, self.launched, self.templates):
                memory.clear()
        number, machine = self._machines.setdefault(
            request.accelerator, (len(self._machines), Machine(request.accelerator))
        )
        key = (number, request.precision)
        if key not in self._scopes:
            self._scopes[key] = _Scope(self._facts, self._graphs, number, machine, request.precision)
        return self._scopes[key]

    def solution(self, scope: _Scope, group: FusionGroup) -> Solution:
        """The solution of one group, solved where its structure is new."""
        key: tuple[object, ...] = (scope.machine_number, scope.precision)
        if group.has_knobs:
            key += (scope.graph_number, group)
        else:
            key += scope.facts.signature(group.operators)
        found = self._solutions.get(key)
        if found is None:
            found = solve(scope.facts.operands, group, scope.machine, scope.precision)
            self._solutions[key] = found
            self.evaluated += 1
        return found


class _Scope:
    """One graph on one machine at one precision: sums that no plan changes, and the groups of the last plan."""

    def __init__(
        self, facts: _Facts, graph_number: int, machine_number: int, machine: Machine, precision: str
    ) -> None:
        self.facts = facts
        self.graph_number = graph_number
        self.machine_number = machine_number
        self.machine = machine
        self.precision = precision
        everything = tuple(range(len(facts.graph.operators)))
        self.compulsory_bytes = facts.operands.compulsory_bytes(everything, precision)
        self.intermediate_bytes = facts.operands.intermediate_bytes(precision)
        self.unfused: _Sums | None = None
        self.baseline: Totals | None = None
        # By first operator: an edit keeps the groups that it does not touch.
        self.last: dict[int, tuple[FusionGroup, Solution, GroupResult]] = {}


class _Sums:
    """The groups of a plan in launch order: starts, ends and sums. Times are integer nanoseconds.

    Equal groups share one solution; sums run over the different ones, each times how often it occurs.
    """

    def __init__(self, accelerator: Accelerator, solutions: Sequence[Solution]) -> None:
        self.solutions = solutions
        place: dict[int, int] = {}
        self.different: list[Solution] = []
        which: list[int] = []
        for solution in solutions:
            at = place.setdefault(id(solution), len(place))
            if at == len(self.different):
                self.different.append(solution)
            which.append(at)
        self._which = np.array(which, np.int64)
        self._times: list[int] = np.bincount(self._which, minlength=len(self.different)).tolist()
        self.issue_ns = round(accelerator.launch.issue_s * 1e9)
        self.gap_ns = round(accelerator.launch.gap_s * 1e9)
        latency = np.array([s.latency_ns for s in self.different], np.int64)[self._which]
        launched = np.array([s.launches for s in self.different], np.int64)[self._which]
        starts = np.zeros(len(which), np.int64)
        delays = np.zeros(len(which), np.int64)
        self.end_ns = int(launch_times(latency, launched, self.issue_ns, self.gap_ns, starts, delays))
        self.starts_s: list[float] = (starts / 1e9).tolist()
        self.delays: list[int] = delays.tolist()
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
    cache = GroupCache() if cache is None else cache
    before = cache.evaluated
    scope = cache.scope(request)
    if scope.unfused is None or scope.baseline is None:
        groups = Plan.unfused(len(request.graph.operators)).groups
        scope.unfused = _Sums(request.accelerator, [cache.solution(scope, group) for group in groups])
        scope.baseline = scope.unfused.totals(scope, scope.unfused)
    solutions: list[Solution] = []
    for group in request.plan.groups:
        known = scope.last.get(group.operators[0])
        if known is not None and (known[0] is group or known[0] == group):
            solutions.append(known[1])
        else:
            solutions.append(cache.solution(scope, group))
    sums = _Sums(request.accelerator, solutions)
    with _no_collection():
        placed = _placed(request, cache, scope, sums)
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


def _placed(request: CostRequest, cache: GroupCache, scope: _Scope, sums: _Sums) -> tuple[GroupResult, ...]:
    """Results of the plan's groups: solutions with names, tensors and starts."""
    last = scope.last
    if len(last) > 2 * len(sums.solutions) + 100:  # entries of groups that were long since split or fused
        last.clear()
    out: list[GroupResult] = []
    for group, solution, start_s, delay in zip(
        request.plan.groups, sums.solutions, sums.starts_s, sums.delays, strict=True
    ):
        first = group.operators[0]
        known = last.get(first)
        entry = cache.launched.get((id(solution), delay))
        phases = _with_launch(cache, solution, delay) if entry is None else entry[1]
        if known is None or known[1] is not solution or known[0].operators != group.operators:
            result = _named(scope.facts, cache, group, solution, start_s, phases)
            last[first] = (group, solution, result)
        elif known[2].start_s != start_s or known[2].phases is not phases:
            result = _copy(known[2], start_s=start_s, phases=phases)
            last[first] = (group, solution, result)
        else:
            result = known[2]
            if known[0] is not group:
                last[first] = (group, solution, result)
        out.append(result)
    return tuple(out)


def _with_launch(cache: GroupCache, solution: Solution, delay_ns: int) -> NDArray[np.void]:
    """The profile of a group behind its launch; equal ones are one array."""
    found = solution.phases
    if solution.launches:
        found = np.zeros(len(solution.phases) + 1, PHASE_DTYPE)
        found[0] = (0, delay_ns, 0, 0, 0)
        found[1:] = solution.phases
        found.setflags(write=False)
    cache.launched[id(solution), delay_ns] = (solution, found)
    return found


def _copy(result: GroupResult, **changed: object) -> GroupResult:
    """The same result with some fields changed; `dataclasses.replace` would set forty fields one by one."""
    out = object.__new__(GroupResult)
    fields = out.__dict__
    fields.update(result.__dict__)
    fields.update(changed)
    return out


def _named(
    facts: _Facts,
    cache: GroupCache,
    group: FusionGroup,
    solution: Solution,
    start_s: float,
    phases: NDArray[np.void],
) -> GroupResult:
    """A solution under the names of one group."""
    members, graph = group.operators, facts.graph
    tensors = tensors_of(graph, members)
    entry = cache.templates.get(id(solution))
    if entry is None:
        entry = cache.templates[id(solution)] = (solution, _template(solution))
    names = [graph.tensors[t].name for t in tensors]
    levels = tuple(
        [
            LevelMapping(
                level.memory,
                level.tile,
                level.loop_order,
                tuple([(names[t], depth) for t, depth in retain]),
                level.trips,
            )
            for level, retain in zip(solution.levels, solution.retain, strict=True)
        ]
    )
    where = _label(graph, members) if solution.warnings else ""
    return _copy(
        entry[1],
        operators=members,
        levels=levels,
        tree="".join(
            [part if isinstance(part, str) else facts.names[members[part]] for part in solution.tree]
        ),
        traffic=tuple(
            [
                Traffic(tensors[row.tensor], row.outer, row.inner, row.read_bytes, row.write_bytes)
                for row in solution.traffic
            ]
        ),
        start_s=start_s,
        phases=phases,
        warnings=tuple([(where, what, lever) for what, lever in solution.warnings]),
    )


def _template(solution: Solution) -> GroupResult:
    """What all groups of one solution have in common."""
    return GroupResult(
        operators=(),
        dims=solution.dims,
        dim_of=solution.dim_of,
        levels=(),
        tree="",
        elements=solution.elements,
        parallel=solution.parallel,
        stages=solution.stages,
        threads=solution.threads,
        traffic=(),
        footprint_bytes=solution.footprint_bytes,
        macs=solution.macs,
        recomputed_macs=solution.recomputed_macs,
        vector_ops=solution.vector_ops,
        compute_s=solution.compute_s,
        dram_s=solution.dram_s,
        latency_s=solution.latency_ns / 1e9,
        start_s=0.0,
        launches=solution.launches,
        cycles=solution.cycles,
        ideal_cycles=solution.ideal_cycles,
        utilisation=solution.ideal_cycles / solution.cycles if solution.cycles > 0.0 else 1.0,
        waves=solution.waves,
        registers=solution.registers,
        compulsory_bytes=solution.compulsory_bytes,
        lower_bound_bytes=solution.lower_bound_bytes,
        bound_source=solution.bound_source,
        operator_bytes=solution.operator_bytes,
        energy_j=solution.energy_j,
        code_bytes=solution.code_bytes,
        complexity=solution.complexity,
        phases=solution.phases,
        chosen=solution.chosen,
        bottleneck=solution.bottleneck,
        infeasible=solution.infeasible,
    )


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


def _leaf_name(operator: Operator) -> str:
    """An operator's name as loop trees write it."""
    return plain_name(operator.name, f"{operator.op_type}_{operator.index}")
