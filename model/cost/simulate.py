"""The cost of a whole graph under one plan: groups solved once per structure, launched in order, summed.

Knows every other part of this room; the only door that others need. A result is a pure function of its request:
a `GroupCache` makes it faster and never different.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import BITS, bytes_of
from ..graph.graph import OperatorGraph, OpKind
from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup, Plan
from .result import PHASE_DTYPE, CostRequest, CostResult, GroupResult, LevelMapping, Totals, Traffic
from .solve import (
    RESOURCE_NAMES,
    RESOURCE_SETS,
    Solution,
    addressed_elements,
    balanced,
    solve,
    tensors_of,
)
from .timing import makespan
from .tree import plain_name
from .units import Machine, element_type

_FIELDS = tuple(getattr(GroupResult, name) for name in GroupResult.__slots__)
_START = GroupResult.__slots__.index("start_s")
_PHASES = GroupResult.__slots__.index("phases")


class _Facts:
    """What a graph is, whatever the plan: structural keys of its operators and bytes that no plan changes."""

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self._keys = keys
        self.operator_key = [self._operator_key(i) for i in range(len(graph.operators))]
        self.tensor_key = [keys.setdefault((t.dtype, t.shape, t.is_output), len(keys)) for t in graph.tensors]
        self._addressed: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def _operator_key(self, index: int) -> int:
        op = self.graph.operators[index]
        key = (
            op.op_type,
            op.kind,
            op.dims,
            tuple([(a.axes, a.whole, a.addressed) for a in op.inputs]),
            tuple([(a.axes, a.whole, a.addressed) for a in op.outputs]),
            op.vector_ops,
            op.online,
            op.linear,
        )
        return self._keys.setdefault(key, len(self._keys))

    def signature(self, members: tuple[int, ...]) -> tuple[object, ...]:
        """Equal for two groups exactly where everything that a solution depends on is equal, but for names."""
        graph = self.graph
        local: dict[int, int] = {}
        row: list[object] = []
        for index in members:
            operator = graph.operators[index]
            row.append(self.operator_key[index])
            for access in operator.inputs + operator.outputs:
                place = local.setdefault(access.tensor, len(local))
                row.append(place)
        row.append(-1)
        alone = len(members) == 1
        inside = members if alone else set(members)
        for tensor in local:
            row.append(self.tensor_key[tensor])
            if not alone and int(self._producer[tensor]) in inside:
                row.append(any(c not in inside for c in self._consumers[tensor]))
        return tuple(row)

    @property
    def _producer(self) -> NDArray[np.int32]:
        return self.graph.producer

    @property
    def _consumers(self) -> tuple[tuple[int, ...], ...]:
        return self.graph.consumers

    def addressed(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements that an operator addresses, per input and per output."""
        key = self.operator_key[index]
        if key not in self._addressed:
            operator = self.graph.operators[index]
            self._addressed[key] = (
                tuple(addressed_elements(self.graph, index, a) for a in operator.inputs),
                tuple(addressed_elements(self.graph, index, a) for a in operator.outputs),
            )
        return self._addressed[key]

    def compulsory_bytes(self, precision: str) -> int:
        """Graph inputs and weights that are addressed, once; graph outputs, once."""
        graph = self.graph
        producer = graph.producer.tolist()
        alias = self._aliases()
        read: dict[int, dict[object, int]] = {}
        for operator in graph.operators:
            if operator.kind is OpKind.VIEW:
                continue
            inputs = self.addressed(operator.index)[0]
            for access, elements in zip(operator.inputs, inputs, strict=True):
                root = alias.get(access.tensor, access.tensor)
                if producer[root] < 0:
                    read.setdefault(root, {})[access.tensor, self.operator_key[operator.index]] = elements
        total = 0
        for tensor, parts in read.items():
            value = graph.tensors[tensor]
            whole = value.elements
            distinct = sum(parts.values()) if len(parts) > 1 else next(iter(parts.values()))
            elements = distinct if whole is None else min(distinct, whole)
            # Readers that address all of it read the same elements.
            elements = max(parts.values()) if whole is not None and max(parts.values()) == whole else elements
            total += bytes_of(elements, BITS.get(element_type(value.dtype, precision), 0))
        outputs = {alias.get(t.index, t.index) for t in graph.tensors if t.is_output}
        for tensor in sorted(outputs):
            value = graph.tensors[tensor]
            if producer[tensor] >= 0:
                total += bytes_of(value.elements or 0, BITS.get(element_type(value.dtype, precision), 0))
        return total

    def _aliases(self) -> dict[int, int]:
        """Per view output the tensor that it views, through chains of views."""
        alias: dict[int, int] = {}
        for operator in self.graph.operators:
            if operator.kind is OpKind.VIEW and operator.inputs:
                source = operator.inputs[0].tensor
                for access in operator.outputs:
                    alias[access.tensor] = alias.get(source, source)
        return alias

    def intermediate_bytes(self, precision: str) -> int:
        """Bytes of all tensors that one operator makes and another reads, views left out."""
        graph = self.graph
        alias = self._aliases()
        used: set[int] = set()
        for operator in graph.operators:
            if operator.kind is not OpKind.VIEW:
                used.update(alias.get(a.tensor, a.tensor) for a in operator.inputs)
        total = 0
        for operator in graph.operators:
            if operator.kind is OpKind.VIEW:
                continue
            for access in operator.outputs:
                tensor = graph.tensors[access.tensor]
                if access.tensor in used:
                    bits = BITS.get(element_type(tensor.dtype, precision), 0)
                    total += bytes_of(tensor.elements or 0, bits)
        return total


class _Fixed:
    """What all plans of one graph on one machine at one precision share: the sums and the unfused plan's."""

    def __init__(self, facts: _Facts, precision: str) -> None:
        self.compulsory_bytes = facts.compulsory_bytes(precision)
        self.intermediate_bytes = facts.intermediate_bytes(precision)
        self.baseline: Totals | None = None


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
        self.launched: dict[tuple[int, int], NDArray[np.void]] = {}
        self.evaluated = 0

    def scope(self, request: CostRequest) -> _Scope:
        """What requests of one graph, machine and precision share."""
        if self._graph is not request.graph or self._facts is None:
            self._graph, self._facts = request.graph, _Facts(request.graph, self._keys)
            self._scopes.clear()
            self._graphs += 1
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
            found = solve(scope.facts.graph, group, scope.machine, scope.precision)
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
        self.compulsory_bytes = facts.compulsory_bytes(precision)
        self.intermediate_bytes = facts.intermediate_bytes(precision)
        self.baseline: _Sums | None = None
        # By identity of the group value: an edit keeps the groups that it does not touch.
        self.last: dict[int, tuple[FusionGroup, Solution, GroupResult]] = {}


class _Sums:
    """The groups of a plan in launch order: starts, ends and sums. Times are integer nanoseconds."""

    def __init__(self, accelerator: Accelerator, solutions: Sequence[Solution]) -> None:
        self.solutions = solutions
        self.issue_ns = round(accelerator.launch.issue_s * 1e9)
        self.gap_ns = round(accelerator.launch.gap_s * 1e9)
        self.starts: list[int] = []
        self.delays: list[int] = []
        end = launched = launch_ns = 0
        for solution in solutions:
            start = end
            if solution.launches:
                start = max(end + self.gap_ns, (launched + 1) * self.issue_ns)
                launched += 1
            self.starts.append(start)
            self.delays.append(start - end)
            launch_ns += start - end
            end = start + solution.latency_ns
        self.end_ns, self.launches, self.launch_ns = end, launched, launch_ns

    def bottleneck(self) -> tuple[str, float]:
        """The class whose 10 % relief shortens the whole most, or the smallest of the sets tried that gains 1 %."""
        if any(solution.infeasible for solution in self.solutions):
            return "infeasible", 0.0
        rows = [solution.relieved_s for solution in self.solutions if solution.launches]
        if not rows or self.end_ns == 0:
            return "none", 0.0
        table = np.ascontiguousarray(np.array(rows).T)
        base = np.array([solution.latency_ns for solution in self.solutions if solution.launches]) * 1e-9
        issue, gap = self.issue_ns * 1e-9, self.gap_ns * 1e-9
        now = float(makespan(base, issue, gap))
        ends = [float(makespan(row, issue, gap)) for row in table]
        # A group's latency is rounded to a nanosecond; a relief that changes nothing must not gain that.
        ends = [min(end, now) for end in ends]
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
        groups = self.solutions
        reads = sum(g.dram_read_bytes for g in groups)
        writes = sum(g.dram_write_bytes for g in groups)
        moved = reads + writes
        operator_bytes = sum(g.operator_bytes for g in groups)
        kept = sum(g.kept_bytes for g in groups)
        everything = scope.intermediate_bytes
        name, gain = self.bottleneck()
        return Totals(
            latency_s=self.end_ns / 1e9,
            launches=self.launches,
            launch_s=self.launch_ns / 1e9,
            compute_s=sum(g.compute_s for g in groups),
            dram_s=sum(g.dram_s for g in groups),
            dram_read_bytes=reads,
            dram_write_bytes=writes,
            operator_bytes=operator_bytes,
            onchip_reuse_ratio=1.0 - moved / operator_bytes if operator_bytes else 0.0,
            reuse_factor=sum(g.operand_bytes for g in groups) / moved if moved else 0.0,
            intermediate_onchip_share=min(1.0, kept / everything) if everything else 0.0,
            launch_overhead_reduction=1.0 - self.launch_ns / baseline.launch_ns
            if baseline.launch_ns
            else 0.0,
            compulsory_dram_bytes=scope.compulsory_bytes,
            lower_bound_dram_bytes=sum(g.lower_bound_bytes for g in groups),
            spill_bytes=sum(g.registers.spilled_bytes for g in groups),
            peak_footprint_bytes=max(
                (g.footprint_bytes[0][1] for g in groups if g.footprint_bytes), default=0
            ),
            macs=sum(g.macs for g in groups),
            recomputed_macs=sum(g.recomputed_macs for g in groups),
            vector_ops=sum(g.vector_ops for g in groups),
            energy_j=sum(g.energy_j for g in groups),
            code_bytes=sum(g.code_bytes for g in groups),
            complexity=sum(g.complexity for g in groups),
            feasible=all(g.infeasible is None for g in groups),
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
    PlanError
        Where a group's loop tree is not legal or cannot be read.
    """
    began = time.perf_counter()
    cache = GroupCache() if cache is None else cache
    before = cache.evaluated
    scope = cache.scope(request)
    if scope.baseline is None:
        alone = [FusionGroup((operator.index,)) for operator in request.graph.operators]
        scope.baseline = _Sums(request.accelerator, [cache.solution(scope, group) for group in alone])
    solutions: list[Solution] = []
    for group in request.plan.groups:
        known = scope.last.get(id(group))
        solutions.append(
            known[1] if known is not None and known[0] is group else cache.solution(scope, group)
        )
    sums = _Sums(request.accelerator, solutions)
    groups = _placed(request, cache, scope, sums)
    return CostResult(
        request=request,
        groups=groups,
        totals=sums.totals(scope, scope.baseline),
        baseline=scope.baseline.totals(scope, scope.baseline),
        warnings=_warnings(request, groups),
        seconds=time.perf_counter() - began,
        evaluated=cache.evaluated - before,
    )


def _placed(request: CostRequest, cache: GroupCache, scope: _Scope, sums: _Sums) -> tuple[GroupResult, ...]:
    """Results of the plan's groups: solutions with names, tensors and starts."""
    last: dict[int, tuple[FusionGroup, Solution, GroupResult]] = {}
    out: list[GroupResult] = []
    for group, solution, start, delay in zip(
        request.plan.groups, sums.solutions, sums.starts, sums.delays, strict=True
    ):
        known = scope.last.get(id(group))
        phases = _with_launch(cache, solution, delay)
        if known is not None and known[0] is group and known[1] is solution:
            result = known[2]
            if result.start_s != start / 1e9 or result.phases is not phases:
                result = _moved(result, start / 1e9, phases)
        else:
            result = _named(request.graph, group, solution, start / 1e9, phases)
        last[id(group)] = (group, solution, result)
        out.append(result)
    scope.last = last
    return tuple(out)


def _with_launch(cache: GroupCache, solution: Solution, delay_ns: int) -> NDArray[np.void]:
    """The profile of a group behind its launch; equal ones are one array."""
    if not solution.launches:
        return solution.phases
    key = (id(solution), delay_ns)  # the cache keeps every solution, so that ids stay their own
    found = cache.launched.get(key)
    if found is None:
        found = np.zeros(len(solution.phases) + 1, PHASE_DTYPE)
        found[0] = (0, delay_ns, 0, 0, 0)
        found[1:] = solution.phases
        found.setflags(write=False)
        cache.launched[key] = found
    return found


def _moved(result: GroupResult, start_s: float, phases: NDArray[np.void]) -> GroupResult:
    """The same result at another start. Field by field: `dataclasses.replace` takes ten times as long."""
    out = object.__new__(GroupResult)
    for field in _FIELDS:
        field.__set__(out, field.__get__(result))
    _FIELDS[_START].__set__(out, start_s)
    _FIELDS[_PHASES].__set__(out, phases)
    return out


def _named(
    graph: OperatorGraph, group: FusionGroup, solution: Solution, start_s: float, phases: NDArray[np.void]
) -> GroupResult:
    """A solution under the names of one group."""
    members = group.operators
    tensors = tensors_of(graph, members)
    tree = "".join(
        part if isinstance(part, str) else leaf_name(graph, members[part]) for part in solution.tree
    )
    levels = tuple(
        LevelMapping(
            level.memory,
            level.tile,
            level.loop_order,
            tuple([(graph.tensors[tensors[t]].name, depth) for t, depth in retain]),
            level.trips,
        )
        for level, retain in zip(solution.levels, solution.retain, strict=True)
    )
    where = _label(graph, members) if solution.warnings else ""
    return GroupResult(
        operators=members,
        dims=solution.dims,
        dim_of=solution.dim_of,
        levels=levels,
        tree=tree,
        elements=solution.elements,
        parallel=solution.parallel,
        stages=solution.stages,
        threads=solution.threads,
        traffic=tuple(
            [
                Traffic(tensors[row.tensor], row.outer, row.inner, row.read_bytes, row.write_bytes)
                for row in solution.traffic
            ]
        ),
        footprint_bytes=solution.footprint_bytes,
        macs=solution.macs,
        recomputed_macs=solution.recomputed_macs,
        vector_ops=solution.vector_ops,
        compute_s=solution.compute_s,
        dram_s=solution.dram_s,
        latency_s=solution.latency_ns / 1e9,
        start_s=start_s,
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
        phases=phases,
        chosen=solution.chosen,
        bottleneck=solution.bottleneck,
        infeasible=solution.infeasible,
        warnings=tuple([(where, what, lever) for what, lever in solution.warnings]),
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


def leaf_name(graph: OperatorGraph, index: int) -> str:
    """An operator's name as loop trees write it."""
    operator = graph.operators[index]
    return plain_name(operator.name, f"{operator.op_type}_{operator.index}")


def alone(graph: OperatorGraph) -> Plan:
    """The unfused plan: every operator its own group."""
    return Plan.of([FusionGroup((operator.index,)) for operator in graph.operators])
