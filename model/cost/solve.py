"""One fusion group on one machine: every figure of it that does not depend on where in the plan it stands.

Knows the graph's operators, one machine and one group; knows no other group, no launch order and no cache. The
result names operators and tensors by position in the group, so that equal groups elsewhere share it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..graph.dtypes import bytes_of
from ..graph.graph import Access, OperatorGraph, OpKind
from ..plan.plan import FusionGroup
from . import cycles as c
from .bodies import with_bodies
from .counted import Counted
from .halo import followed
from .inwards import choose
from .mapping import Mapping
from .nest import REGISTERS
from .operands import Operands
from .problem import REGISTERS_NAME, Problem, pose
from .result import PHASE_DTYPE, PHASE_KINDS, Bottleneck, Infeasible, LevelMapping
from .solution import RESOURCE_NAMES, RESOURCE_SETS, LocalTraffic, Solution, plain, tensors_of
from .tree import to_text
from .unify import unify
from .units import Machine
from .walked import Walked

_SWEEP = 1 << 62


def solve(operands: Operands, group: FusionGroup, machine: Machine, precision: str) -> Solution:
    """Everything about `group` on `machine` with a cache that holds nothing of it.

    Parameters
    ----------
    operands : of the group's graph.
    precision : replaces floats where the group has none of its own.

    Raises
    ------
    PlanError
        Where the group's tree is not legal or cannot be read.
    """
    return Prepared(operands, group, machine, precision).solution()


class Prepared:
    """A group whose mapping is chosen: solved as often as the cache holds something else of it.

    Raises
    ------
    PlanError
        Where the group's tree is not legal or cannot be read.
    """

    def __init__(self, operands: Operands, group: FusionGroup, machine: Machine, precision: str) -> None:
        self._operands, self._group, self._machine = operands, group, machine
        self._precision = group.precision or precision
        self._mapped: tuple[Problem, Mapping] | None = None
        self._fixed: Solution | None = None  # what does not depend on what a cache holds
        graph = operands.graph
        if all(graph.operators[i].kind is OpKind.VIEW for i in group.operators):
            self._fixed = _nothing(graph, group)
            return
        reason = unmapped(graph, group)
        if not reason:
            space = unify(graph, group.operators)
            if group.halo:
                space = followed(space, group.halo)
            try:
                problem = pose(graph, group, space, machine, self._precision)
                self._mapped = problem, choose(problem, group)
                return
            except OverflowError:
                reason = "its counts do not fit 64-bit integers"
        self._fixed = _compulsory_only(operands, group, machine, self._precision, reason)
        only = graph.operators[group.operators[0]]
        if only.runs:
            accelerator = machine.accelerator
            self._fixed = with_bodies(graph, only, accelerator, self._alone, self._fixed)

    def _alone(self, graph: OperatorGraph) -> list[Solution]:
        """The solutions of a nested graph's operators, each in a group of its own; equal ones are solved once."""
        operands = Operands(graph, {})
        known: dict[int, Solution] = {}
        for operator, structure in zip(graph.operators, operands.structure, strict=True):
            if structure not in known:
                known[structure] = solve(
                    operands, FusionGroup((operator.index,)), self._machine, self._precision
                )
        return [known[structure] for structure in operands.structure]

    def solution(self, warm: frozenset[int] = frozenset(), kept: frozenset[int] = frozenset()) -> Solution:
        """The group where the cache holds tensors ``warm`` at its start, and ``kept`` until nobody needs them.

        Tensors are positions in `tensors_of`.
        """
        if self._mapped is None:
            assert self._fixed is not None
            return self._fixed
        problem, mapping = self._mapped
        place = {
            tensor: i for i, tensor in enumerate(tensors_of(self._operands.graph, self._group.operators))
        }
        held = [
            frozenset(local for local, tensor in enumerate(problem.space.tensors) if place[tensor] in of)
            for of in (warm, kept)
        ]
        counted = Counted(self._operands, self._group, problem, mapping, self._precision, *held)
        return _Summary(counted, Walked(counted)).solution()


def unmapped(graph: OperatorGraph, group: FusionGroup) -> str:
    """Why a group cannot be mapped; empty where it can."""
    for index in group.operators:
        operator = graph.operators[index]
        if operator.kind is OpKind.OPAQUE:
            return operator.reason or "opaque operator"
        for access in operator.inputs + operator.outputs:
            if graph.tensors[access.tensor].shape is None:
                return f"the shape of {graph.tensors[access.tensor].name} is unknown"
        if operator.points == 0:
            return "it has no elements"
        if any(
            axis.terms and not access.whole and _empty(graph, access)
            for access in operator.inputs
            for axis in access.axes
        ):
            return "it has no elements"
    return ""


def _empty(graph: OperatorGraph, access: Access) -> bool:
    return graph.tensors[access.tensor].elements == 0


def _nothing(graph: OperatorGraph, group: FusionGroup) -> Solution:
    """A group of views: no launch, no bytes, no time."""
    space = unify(graph, group.operators)
    return plain(space.names, space.extents, space.dim_of)


def _compulsory_only(
    operands: Operands, group: FusionGroup, machine: Machine, precision: str, reason: str
) -> Solution:
    """What cannot be mapped: compulsory bytes at DRAM bandwidth, one launch, a visible warning."""
    graph = operands.graph
    place = {tensor: i for i, tensor in enumerate(tensors_of(graph, group.operators))}
    dram, buffer = machine.accelerator.dram.name, machine.accelerator.buffer.name
    inside = {a.tensor for i in group.operators for a in graph.operators[i].outputs}
    moved: dict[int, list[int]] = {}
    for index in group.operators:
        operator = graph.operators[index]
        inputs, outputs = operands.elements(index)
        for access, elements in zip(operator.inputs, inputs, strict=True):
            if access.tensor not in inside:
                row = moved.setdefault(access.tensor, [0, 0])
                row[0] = max(row[0], bytes_of(elements, operands.bits(access.tensor, precision)))
        for access, elements in zip(operator.outputs, outputs, strict=True):
            row = moved.setdefault(access.tensor, [0, 0])
            row[1] = bytes_of(elements, operands.bits(access.tensor, precision))
    traffic = tuple(LocalTraffic(place[i], dram, buffer, r, w) for i, (r, w) in moved.items() if r or w)
    reads, writes = sum(row.read_bytes for row in traffic), sum(row.write_bytes for row in traffic)
    seconds = (reads + writes) / machine.figures[c.M_PORT]
    latency_ns = round(seconds * 1e9)
    macs = sum(graph.operators[i].bounded_macs for i in group.operators)
    steady = (PHASE_KINDS.index("steady"), latency_ns, reads + writes, 0, 0)
    dram_class = RESOURCE_NAMES.index("DRAM bandwidth")
    relieved = [seconds] * len(RESOURCE_NAMES)
    relieved[dram_class] = seconds / 1.1
    relieved += [seconds / 1.1 if dram_class in chosen else seconds for chosen in RESOURCE_SETS]
    names = tuple(f"{d.name}" for i in group.operators[:1] for d in graph.operators[i].dims)
    bare = plain((), (), tuple(tuple(d.name for d in graph.operators[i].dims) for i in group.operators))
    energy = (
        reads + writes
    ) * machine.accelerator.dram.energy_j_per_byte + machine.accelerator.energy.launch_j
    return replace(
        bare,
        dims=tuple(
            (name, graph.operators[group.operators[0]].dims[i].extent) for i, name in enumerate(names)
        ),
        traffic=traffic,
        dram_s=seconds,
        latency_ns=latency_ns,
        launches=1,
        macs=macs,
        waves=1,
        compulsory_bytes=reads + writes,
        lower_bound_bytes=reads + writes,
        operator_bytes=sum(operands.operator_bytes(i, precision) for i in group.operators),
        operand_bytes=sum(operands.touched_bytes(i, precision) for i in group.operators),
        energy_j=energy,
        phases=np.array([steady], PHASE_DTYPE),
        bottleneck=Bottleneck("DRAM bandwidth", 1 - 1 / 1.1 if seconds else 0.0, "compulsory bytes only"),
        warnings=(
            (f"{reason}: only its compulsory bytes are counted", "Give it known shapes, or replace it"),
        ),
        relieved_s=tuple(relieved),
        dram_read_bytes=reads,
        dram_write_bytes=writes,
        # Nothing is known of how it walks: it is taken to sweep a cache, which has nothing for it or after it.
        touched=tuple((place[i], _SWEEP, r > 0, w > 0) for i, (r, w) in moved.items()),
    )


class _Summary:
    """A counted and walked group in the words of a `Solution`."""

    def __init__(self, counted: Counted, walked: Walked) -> None:
        self.counted, self.walked = counted, walked
        self.problem, self.mapping, self.group = counted.problem, counted.mapping, counted.group
        self.machine, self.space, self.graph = counted.machine, counted.space, counted.graph

    def solution(self) -> Solution:
        """Everything that `Solution` says."""
        counted, walked = self.counted, self.walked
        graph, members, machine = self.graph, self.group.operators, self.machine
        mapping, names = self.mapping, self.space.names
        traffic = counted.traffic()
        dram = machine.accelerator.dram.name
        reads = sum(row.read_bytes for row in traffic if row.outer == dram)
        writes = sum(row.write_bytes for row in traffic if row.outer == dram)
        latency_ns = round(walked.seconds * 1e9)
        contraction = [op.contraction for op in mapping.nest.operators]
        macs = sum(int(n) for n, used in zip(counted.points, contraction, strict=True) if used)
        once = sum(graph.operators[i].bounded_macs for i in members)
        compulsory = counted.operands.compulsory_bytes(members, counted.precision)
        bound, source = counted.lower_bound(compulsory)
        ideal = sum(
            int(n) / float(rate) / machine.cores
            for n, rate, used in zip(counted.points, self.problem.rate, self.problem.mat[:, 0], strict=True)
            if used
        )
        cycles = walked.cycles
        relieved = walked.relieved()
        footprint = [
            (buffer.name, counted.held_bytes(number))
            for number, buffer in enumerate(machine.accelerator.buffers)
        ]
        if machine.accelerator.registers is not None:
            footprint.append((REGISTERS_NAME, int(counted.footprint[-1])))
        vector_ops = (
            counted.rescale
            + counted.combine
            + sum(
                round(count * int(counted.points[i]))
                for i, op in enumerate(self.space.operators)
                for _, count in graph.operators[members[op.member]].vector_ops
            )
        )
        levels, retain = self._levels()
        code, complexity = counted.code()
        return Solution(
            dims=tuple(
                (names[d], self.space.extents[d]) for d in range(len(names)) if d not in self.space.halos
            ),
            dim_of=self.space.dim_of,
            levels=levels,
            retain=retain,
            tree=self._tree(),
            elements=tuple(names[d] for d in mapping.elements),
            parallel=tuple((names[d], share) for d, share in mapping.parallel),
            stages=mapping.stages,
            threads=counted.threads,
            traffic=traffic,
            footprint_bytes=tuple(footprint),
            macs=macs,
            recomputed_macs=macs - once,
            vector_ops=vector_ops,
            compute_s=walked.compute_s,
            dram_s=walked.moving_s,
            latency_ns=latency_ns,
            launches=1,
            cycles=cycles,
            ideal_cycles=ideal,
            waves=walked.waves,
            registers=counted.register_use,
            compulsory_bytes=compulsory,
            lower_bound_bytes=bound,
            bound_source=source,
            operator_bytes=sum(counted.operands.operator_bytes(i, counted.precision) for i in members),
            energy_j=counted.energy(traffic, walked.seconds),
            code_bytes=code,
            complexity=complexity,
            phases=walked.phases(latency_ns, reads + writes, counted.crossing.refetched // 8),
            chosen=mapping.chosen + (("threads",) if counted.threads and not self.group.threads else ()),
            bottleneck=walked.bottleneck(relieved),
            infeasible=self._infeasible(),
            warnings=self._warnings(code),
            relieved_s=relieved,
            dram_read_bytes=reads,
            dram_write_bytes=writes,
            operand_bytes=sum(counted.operands.touched_bytes(i, counted.precision) for i in members),
            kept_bytes=counted.kept_bytes(),
            split_reduction=tuple((names[d], share) for d, share in mapping.split),
            spill_bytes=counted.spill_bytes(),
            spill_to=counted.spill_to,
            touched=counted.touched(),
            resident=counted.resident(),
        )

    def _levels(self) -> tuple[tuple[LevelMapping, ...], tuple[tuple[tuple[int, int], ...], ...]]:
        """The mapping per level, tensors by position: (mapping without retention, its retention)."""
        mapping, names = self.mapping, self.space.names
        order = {tensor: i for i, tensor in enumerate(tensors_of(self.graph, self.group.operators))}
        still = self.space.still
        shown = [d for d in range(len(names)) if self.space.extents[d] > 1 and d not in still]
        shown = shown or [d for d in range(len(names)) if d not in still]
        found: list[dict[int, set[int]]] = [{} for _ in range(self.machine.levels)]
        for operator in mapping.nest.operators:
            for access in operator.reads + operator.writes:
                at_registers = mapping.nest.tensors[access.tensor].home == REGISTERS
                for level, depth in enumerate(access.depth):
                    if at_registers and level < len(self.machine.accelerator.buffers):
                        continue  # it is in no buffer; and what a plan retains in one is at home there
                    shown_depth = mapping.retained[level].get(access.tensor, depth)
                    found[level].setdefault(order[self.space.tensors[access.tensor]], set()).add(shown_depth)
        # A plan gives a tensor one depth: where its readers have several, none of them would say it.
        depths = [{tensor: min(of) for tensor, of in level.items() if len(of) == 1} for level in found]
        sizes = [*mapping.tiles, mapping.register_tile]
        orders = [mapping.order, *(buffer.order for buffer in mapping.further), mapping.register_order]
        memories = [buffer.name for buffer in self.machine.accelerator.buffers]
        memories += [REGISTERS_NAME] * (self.machine.levels - len(memories))
        cut = self.space.extents
        levels: list[LevelMapping] = []
        for memory, tile, order in zip(memories, sizes, orders, strict=False):
            levels.append(
                LevelMapping(
                    memory=memory,
                    tile=tuple((names[d], tile[d]) for d in shown),
                    loop_order=tuple(names[d] for d in order),
                    retain=(),
                    trips=tuple((names[d], -(-cut[d] // tile[d])) for d in shown),
                )
            )
            cut = tile
        return tuple(levels), tuple(tuple(level.items()) for level in depths)

    def _tree(self) -> tuple[str | int, ...]:
        """The tree's text in parts; members stand as positions."""
        marks = [f"\0{i}\0" for i in range(len(self.space.operators))]
        parts: list[str | int] = []
        for i, piece in enumerate(to_text(self.mapping.tree, self.space.names, marks).split("\0")):
            parts.append(self.space.operators[int(piece)].member if i % 2 else piece)
        return tuple(part for part in parts if part != "")

    def _infeasible(self) -> Infeasible | None:
        misfit = self.counted.misfit()
        if misfit is None:
            return None
        number, held, room = misfit
        levers = self._levers(self.mapping.tiles[number])
        return Infeasible(self.machine.accelerator.buffers[number].name, held, room, levers)

    def _levers(self, tile: tuple[int, ...]) -> tuple[str, ...]:
        """What would make the tiles of a buffer smaller."""
        levers: list[str] = []
        mapping, names = self.mapping, self.space.names
        cut = [d for d in range(len(names)) if tile[d] > 1]
        cut.sort(key=lambda d: -tile[d])
        if cut:
            levers.append(f"Halve the tile of {names[cut[0]]} ({tile[cut[0]]:,})")
        if mapping.stages > 1:
            levers.append("Use one stage instead of two")
        if len(self.space.operators) > 1:
            levers.append("Split the group")
        if self.group.levels and any(level.retain for level in self.group.levels):
            levers.append("Retain less")
        return tuple(levers)

    def _warnings(self, code: int) -> tuple[tuple[str, str], ...]:
        out = [(note, "") for note in self.problem.warnings + self.mapping.notes]
        stages = (self.mapping.stages, *(buffer.stages for buffer in self.mapping.further))
        for buffer, copies in zip(self.machine.accelerator.buffers, stages, strict=True):
            if copies == 1 and buffer.double_buffer and self.group.stages != 1:
                out.append(
                    (
                        f"the tiles leave no room for a second stage in {buffer.name}",
                        "Smaller tiles overlap loads with compute",
                    )
                )
        limit = self.machine.accelerator.launch.instruction_memory_bytes
        if limit is not None and code > limit:
            out.append(
                (
                    f"about {code:,} B of code, {limit:,} B of instruction memory",
                    "Split the group: code would be refetched",
                )
            )
        return tuple(out)
