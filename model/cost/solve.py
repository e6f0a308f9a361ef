"""One fusion group on one machine: every figure of it that does not depend on where in the plan it stands.

Knows the graph's operators, one machine and one group; knows no other group, no launch order and no cache. The
result names operators and tensors by position in the group, so that equal groups elsewhere share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import bytes_of
from ..graph.graph import Access, OperatorGraph, OpKind
from ..plan.plan import FusionGroup, Sizes
from . import registers as reg
from . import sweep as k
from . import timing as t
from .layout import workspace
from .mapping import REGISTERS_NAME, Mapping, Problem, choose, pose
from .nest import OUTER, IndirectAxis, WindowAxis
from .operands import Operands
from .result import PHASE_DTYPE, PHASE_KINDS, Bottleneck, Infeasible, LevelMapping, RegisterUse
from .traffic import measure
from .tree import to_text
from .unify import unify
from .units import Machine, compute_type

_STEPS = 4096  # room for the walk over the steps before middles are shown by fewer iterations
_PHASES = 8  # of a group, besides its launch
RESOURCE_NAMES = (
    "matrix compute",
    "vector",
    "DRAM bandwidth",
    "on-chip bandwidth",
    "memory latency",
    "spill",
    "occupancy",
    "core imbalance",
)  # fmt: skip
# Sets that are tried together where no single resource gains 1 %.
RESOURCE_SETS = ((0, 2), (1, 2), (0, 1), (2, 3), (0, 1, 2))
_NO_PHASES = np.zeros(0, PHASE_DTYPE)


@dataclass(frozen=True, slots=True)
class LocalTraffic:
    """`Traffic` with the tensor as a position in ``Solution.tensors``."""

    tensor: int
    outer: str
    inner: str
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A solved group. Fields are those of `GroupResult` unless said.

    Attributes
    ----------
    tensors : the group's tensors in order of first use; ``traffic`` and ``retain`` count in them.
    tree : the tree's text as parts: strings, and positions of members where a name stands.
    latency_ns : integer; `latency_s` is it in seconds. ``relieved_s`` per resource of `RESOURCE_NAMES` the
        latency with that resource 10 % better.
    launches : 0 for groups of views.
    operand_bytes : numerator of the reuse factor; kept_bytes : intermediates that never reach DRAM.
    """

    dims: Sizes
    dim_of: tuple[tuple[str, ...], ...]
    levels: tuple[LevelMapping, ...]
    retain: tuple[tuple[tuple[int, int], ...], ...]
    tree: tuple[str | int, ...]
    elements: tuple[str, ...]
    parallel: Sizes
    stages: int
    threads: int
    traffic: tuple[LocalTraffic, ...]
    footprint_bytes: tuple[tuple[str, int], ...]
    macs: int
    recomputed_macs: int
    vector_ops: int
    compute_s: float
    dram_s: float
    latency_ns: int
    launches: int
    cycles: float
    ideal_cycles: float
    waves: int
    registers: RegisterUse
    compulsory_bytes: int
    lower_bound_bytes: int
    bound_source: str
    operator_bytes: int
    energy_j: float
    code_bytes: int
    complexity: float
    phases: NDArray[np.void]
    chosen: tuple[str, ...]
    bottleneck: Bottleneck
    infeasible: Infeasible | None
    warnings: tuple[tuple[str, str], ...]
    relieved_s: tuple[float, ...]
    dram_read_bytes: int
    dram_write_bytes: int
    operand_bytes: int
    kept_bytes: int


def balanced(resources: tuple[int, ...]) -> str:
    """The name of a set of resources that only together gain 1 %."""
    return "balanced: " + " + ".join(RESOURCE_NAMES[i] for i in resources)


NO_REGISTERS = RegisterUse(0, 0, "bytes", 0, "", 1.0, "", "")


def tensors_of(graph: OperatorGraph, members: tuple[int, ...]) -> tuple[int, ...]:
    """The tensors of a group in order of first use: what `Solution` counts in."""
    seen: dict[int, None] = {}
    for index in members:
        operator = graph.operators[index]
        for access in operator.inputs + operator.outputs:
            seen.setdefault(access.tensor)
    return tuple(seen)


def solve(operands: Operands, group: FusionGroup, machine: Machine, precision: str) -> Solution:
    """Everything about `group` on `machine`; `precision` replaces floats where the group has none of its own.

    Parameters
    ----------
    operands : of the group's graph.

    Raises
    ------
    PlanError
        Where the group's tree is not legal or cannot be read.
    """
    graph = operands.graph
    precision = group.precision or precision
    members = [graph.operators[i] for i in group.operators]
    if all(member.kind is OpKind.VIEW for member in members):
        return _nothing(graph, group)
    reason = _unmapped(graph, group)
    if not reason:
        space = unify(graph, group.operators)
        try:
            problem = pose(graph, group, space, machine, precision)
            return _Solver(operands, group, problem, choose(problem, group), precision).solution()
        except OverflowError:
            reason = "its counts do not fit 64-bit integers"
    return _compulsory_only(operands, group, machine, precision, reason)


def _unmapped(graph: OperatorGraph, group: FusionGroup) -> str:
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
    return _plain(space.names, space.extents, space.dim_of)


def _plain(names: tuple[str, ...], extents: tuple[int, ...], dim_of: tuple[tuple[str, ...], ...]) -> Solution:
    return Solution(
        dims=tuple(zip(names, extents, strict=True)),
        dim_of=dim_of,
        levels=(),
        retain=(),
        tree=(),
        elements=(),
        parallel=(),
        stages=1,
        threads=0,
        traffic=(),
        footprint_bytes=(),
        macs=0,
        recomputed_macs=0,
        vector_ops=0,
        compute_s=0.0,
        dram_s=0.0,
        latency_ns=0,
        launches=0,
        cycles=0.0,
        ideal_cycles=0.0,
        waves=0,
        registers=NO_REGISTERS,
        compulsory_bytes=0,
        lower_bound_bytes=0,
        bound_source="compulsory",
        operator_bytes=0,
        energy_j=0.0,
        code_bytes=0,
        complexity=0.0,
        phases=_NO_PHASES,
        chosen=(),
        bottleneck=Bottleneck("none", 0.0, "views move nothing"),
        infeasible=None,
        warnings=(),
        relieved_s=(0.0,) * (len(RESOURCE_NAMES) + len(RESOURCE_SETS)),
        dram_read_bytes=0,
        dram_write_bytes=0,
        operand_bytes=0,
        kept_bytes=0,
    )


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
    seconds = (reads + writes) / machine.figures[t.M_PORT]
    latency_ns = round(seconds * 1e9)
    macs = sum(graph.operators[i].macs for i in group.operators)
    steady = (PHASE_KINDS.index("steady"), latency_ns, reads + writes, 0, 0)
    dram_class = RESOURCE_NAMES.index("DRAM bandwidth")
    relieved = [seconds] * len(RESOURCE_NAMES)
    relieved[dram_class] = seconds / 1.1
    relieved += [seconds / 1.1 if dram_class in chosen else seconds for chosen in RESOURCE_SETS]
    names = tuple(f"{d.name}" for i in group.operators[:1] for d in graph.operators[i].dims)
    plain = _plain((), (), tuple(tuple(d.name for d in graph.operators[i].dims) for i in group.operators))
    energy = (
        reads + writes
    ) * machine.accelerator.dram.energy_j_per_byte + machine.accelerator.energy.launch_j
    return replace(
        plain,
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
    )


class _Solver:
    """One mapped group: counts, registers, steps, phases. Each method is one law of the pages."""

    def __init__(
        self, operands: Operands, group: FusionGroup, problem: Problem, mapping: Mapping, precision: str
    ) -> None:
        self.operands, self.group, self.problem, self.mapping = operands, group, problem, mapping
        self.graph = operands.graph
        self.precision = precision
        self.machine = problem.machine
        self.space = problem.space
        arrays = mapping.arrays
        self.counts = np.zeros((2, arrays.acc.shape[0], 4), np.int64)
        self.points = np.zeros(arrays.ops.shape[0], np.int64)
        self.footprint = np.zeros(2, np.int64)
        self.rows, self.work = workspace(arrays)
        self.rescale = int(
            measure(
                arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path,
                arrays.lengths, arrays.levels, arrays.stages, 0, self.counts, self.points, self.footprint,
                self.rows, self.work,
            )
        )  # fmt: skip
        self.cores = np.ones(len(self.space.extents), np.int64)
        for operator in self.space.operators:
            self.cores[list(operator.reductions)] = 0
        for d, share in mapping.parallel:
            self.cores[d] = share
        self.figures = self.machine.figures.copy()
        self._demand()

    # Registers and spill.

    def _demand(self) -> None:
        """Registers live against limit, occupancy, and where the excess goes."""
        registers = self.machine.accelerator.registers
        self.threads = 0
        self.spill = np.array([-1.0, 0.0, 0.0])
        self.spilled = 0
        self.register_use = NO_REGISTERS
        if registers is None:
            return
        live = int(self.footprint[1])
        held: reg.Occupancy | None = None
        if registers.model == "simt":
            self.threads = self.group.threads or reg.pick_threads(registers, live)
            demand = reg.thread_demand(registers, live, self.threads)
            per_thread = min(demand.live, demand.limit)
            held = reg.occupancy(
                registers, per_thread, self.threads, int(self.footprint[0]), self.machine.capacity_bytes
            )
            flight = max(1, held.blocks) * self.threads * reg.BYTES_PER_THREAD_IN_FLIGHT
            self.figures[t.M_INFLIGHT] = flight
        else:
            demand = reg.accumulator_demand(registers, live)
        where = ""
        if demand.excess_bytes > 0:
            at = int(self.work[k.W_SAVED, len(self.space.operators)])
            arrays = self.mapping.arrays
            steps = int(
                k.repeats(-1, self.rows[at], int(self.work[k.W_TREE, at]), arrays.loops, arrays.extents)
            )
            self.spilled = 2 * demand.excess_bytes * steps
            room = self.machine.capacity_bytes - int(self.footprint[0])
            onchip = room >= demand.excess_bytes
            where = self.machine.accelerator.buffer.name if onchip else self.machine.accelerator.dram.name
            each = 2.0 * demand.excess_bytes
            self.spill = np.array([at, 0.0 if onchip else each, each if onchip else 0.0])
        self.register_use = RegisterUse(
            live=demand.live,
            limit=demand.limit,
            unit=demand.unit,
            spilled_bytes=self.spilled,
            spill_to=where,
            occupancy=1.0 if held is None else held.share,
            limited_by=("registers" if demand.excess_bytes else "") if held is None else held.limited_by,
            relief=reg.relief(demand, held),
        )

    # Traffic.

    def traffic(self) -> tuple[LocalTraffic, ...]:
        """Bytes per tensor and pair of levels; bits are summed and rounded up once per direction."""
        acc, ten = self.mapping.arrays.acc, self.mapping.arrays.ten
        order = {tensor: i for i, tensor in enumerate(tensors_of(self.graph, self.group.operators))}
        machine = self.machine.accelerator
        names = (machine.dram.name, machine.buffer.name, REGISTERS_NAME)
        sums: dict[tuple[int, int], list[int]] = {}
        for level in range(self.machine.levels):
            for a, (read, write, partial_read, partial_write) in enumerate(self.counts[level].tolist()):
                if not (read or write or partial_read):
                    continue
                local = int(acc[a, k.ACC_TENSOR])
                bits, partial = int(ten[local, k.TEN_BITS]), int(ten[local, k.TEN_PARTIAL])
                row = sums.setdefault((level, local), [0, 0])
                row[0] += read * bits + partial_read * partial
                row[1] += write * bits + partial_write * partial
        out = [
            LocalTraffic(
                order[self.space.tensors[local]],
                names[level],
                names[level + 1],
                (row[0] + 7) // 8,
                (row[1] + 7) // 8,
            )
            for (level, local), row in sums.items()
        ]
        if self.spilled:
            local = self.space.operators[int(self.spill[0])].writes[0].tensor
            half = self.spilled // 2
            out.append(
                LocalTraffic(
                    order[self.space.tensors[local]], self.register_use.spill_to, REGISTERS_NAME, half, half
                )
            )
        return tuple(out)

    def _refetched_bytes(self) -> int:
        """Bytes from and to the outer level beyond each tile's first pass: refetches and partial sums."""
        arrays = self.mapping.arrays
        total = 0
        for a, (read, _, partial_read, partial_write) in enumerate(self.counts[0].tolist()):
            local = int(arrays.acc[a, k.ACC_TENSOR])
            total += (partial_read + partial_write) * int(arrays.ten[local, k.TEN_PARTIAL])
            if read:
                o = int(arrays.acc[a, k.ACC_OPERATOR])
                depth = int(self.work[k.W_EFFECTIVE0, a])
                untouched = ~int(arrays.acc[a, k.ACC_TOUCH])
                again = int(k.repeats(untouched, self.rows[o], depth, arrays.loops, arrays.extents))
                total += (read - read // again) * int(arrays.ten[local, k.TEN_BITS])
        return total // 8

    # Steps and time.

    def walk(self) -> None:
        """The steps of the busiest core, the latency and the phases."""
        arrays = self.mapping.arrays
        onchip = np.zeros(arrays.ops.shape[0])
        if self.machine.levels == 2:
            for a, row in enumerate(self.counts[1].tolist()):
                local = int(arrays.acc[a, k.ACC_TENSOR])
                bits = (row[0] + row[1]) * int(arrays.ten[local, k.TEN_BITS])
                bits += (row[2] + row[3]) * int(arrays.ten[local, k.TEN_PARTIAL])
                o = int(arrays.acc[a, k.ACC_OPERATOR])
                onchip[o] += bits / 8.0 / max(1, int(self.points[o]))
        self.steps = np.empty((_STEPS, t.STEP_COLUMNS))
        self.count = int(
            t.walk(
                arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path,
                arrays.lengths, self.rows, self.work, self.counts[0], self.problem.mat, self.problem.rate,
                self.problem.vector, onchip, self.figures, self.cores, self.spill, self.steps,
            )
        )  # fmt: skip
        self.terms = np.zeros((self.count + 2, t.TERM_COLUMNS))
        self.seconds = float(
            t.pipeline(
                self.steps, self.count, self.mapping.stages, self.figures, np.ones(t.RESOURCES), self.terms
            )
        )
        self.total = np.zeros(3)
        t.sums(self.steps, self.count, self.mapping.stages, self.figures, self.total)

    def relieved(self) -> tuple[float, ...]:
        """Seconds with each resource of `RESOURCE_NAMES` 10 % better, then with each of `RESOURCE_SETS`."""
        # The core imbalance has no rate of its own; it is put in below.
        rows = [*((i,) for i in range(t.RESOURCES)), (), *RESOURCE_SETS]
        reliefs = np.ones((len(rows), t.RESOURCES))
        for row, chosen in zip(reliefs, rows, strict=True):
            row[list(chosen)] = 1.1
        out = np.zeros(len(rows))
        t.relieved(self.steps, self.count, self.mapping.stages, self.figures, reliefs, out)
        seconds = out.tolist()
        idle = (1.0 - self.balance) * (1.0 - 1.0 / 1.1)
        seconds[RESOURCE_NAMES.index("core imbalance")] = self.seconds * (1.0 - idle)
        return tuple(seconds)

    @property
    def waves(self) -> int:
        """Iterations of the split loops that one core walks."""
        waves = 1
        for d, share in self.mapping.parallel:
            trips = -(-self.space.extents[d] // self.mapping.tile[d])
            waves *= -(-trips // share)
        return waves

    @property
    def balance(self) -> float:
        """The part of the slot's core time that has a tile to work on."""
        tiles, waves = 1, 1
        for d, share in self.mapping.parallel:
            trips = -(-self.space.extents[d] // self.mapping.tile[d])
            tiles *= trips
            waves *= -(-trips // share)
        return tiles / (waves * self.machine.cores)

    def phases(self, latency_ns: int, moved: int, refetched: int) -> NDArray[np.void]:
        """The profile: integer nanoseconds and bytes that sum to the group's exactly."""
        rows = np.zeros((self.count + 2, t.TERM_COLUMNS))
        size = int(t.phases(self.terms, self.count + 2, float(self.figures[t.M_DEVICE]), _PHASES, rows))
        if size == 0:
            rows[0, t.P_KIND], size = t.STEADY, 1
        rows = rows[:size]
        out = np.zeros(size, PHASE_DTYPE)
        out["kind"] = rows[:, t.P_KIND]
        out["base_ns"] = _apportioned(rows[:, t.P_SECONDS], latency_ns)
        out["bytes"] = _apportioned(rows[:, t.P_BYTES], moved)
        to_dram = self.spilled if self.register_use.spill_to == self.machine.accelerator.dram.name else 0
        out["spill"] = _within(_apportioned(rows[:, t.P_SPILL], to_dram), out["bytes"])
        out["refetch"] = _within(_apportioned(rows[:, t.P_REFETCH], refetched), out["bytes"] - out["spill"])
        out.setflags(write=False)
        return out

    # All of it.

    def solution(self) -> Solution:
        """Everything that `Solution` says."""
        self.walk()
        graph, members, machine = self.graph, self.group.operators, self.machine
        mapping, names = self.mapping, self.space.names
        traffic = self.traffic()
        dram = machine.accelerator.dram.name
        reads = sum(row.read_bytes for row in traffic if row.outer == dram)
        writes = sum(row.write_bytes for row in traffic if row.outer == dram)
        latency_ns = round(self.seconds * 1e9)
        contraction = [op.contraction for op in mapping.nest.operators]
        macs = sum(int(n) for n, used in zip(self.points, contraction, strict=True) if used)
        once = sum(graph.operators[i].macs for i in members)
        compulsory = self.operands.compulsory_bytes(members, self.precision)
        bound, source = self._lower_bound(compulsory)
        ideal = sum(
            int(n) / float(rate) / machine.cores
            for n, rate, used in zip(self.points, self.problem.rate, self.problem.mat[:, 0], strict=True)
            if used
        )
        cycles = float(self.total[2])
        relieved = self.relieved()
        footprint = [(machine.accelerator.buffer.name, self._held_bytes())]
        if machine.levels == 2:
            footprint.append((REGISTERS_NAME, int(self.footprint[1])))
        vector_ops = self.rescale + sum(
            round(count * int(self.points[i]))
            for i, op in enumerate(self.space.operators)
            for _, count in graph.operators[members[op.member]].vector_ops
        )
        levels, retain = self._levels()
        code, complexity = self._code()
        kept = sum(
            bytes_of(tensor.elements, tensor.bits)
            for tensor in mapping.nest.tensors
            if tensor.home != OUTER and not tensor.written_outside
        )
        return Solution(
            dims=tuple(zip(names, self.space.extents, strict=True)),
            dim_of=self.space.dim_of,
            levels=levels,
            retain=retain,
            tree=self._tree(),
            elements=tuple(names[d] for d in mapping.elements),
            parallel=tuple((names[d], share) for d, share in mapping.parallel),
            stages=mapping.stages,
            threads=self.threads,
            traffic=traffic,
            footprint_bytes=tuple(footprint),
            macs=macs,
            recomputed_macs=macs - once,
            vector_ops=vector_ops,
            compute_s=float(self.total[0]),
            dram_s=float(self.total[1]),
            latency_ns=latency_ns,
            launches=1,
            cycles=cycles,
            ideal_cycles=ideal,
            waves=self.waves,
            registers=self.register_use,
            compulsory_bytes=compulsory,
            lower_bound_bytes=bound,
            bound_source=source,
            operator_bytes=sum(self.operands.operator_bytes(i, self.precision) for i in members),
            energy_j=self._energy(traffic),
            code_bytes=code,
            complexity=complexity,
            phases=self.phases(latency_ns, reads + writes, self._refetched_bytes()),
            chosen=mapping.chosen + (("threads",) if self.threads and not self.group.threads else ()),
            bottleneck=self._bottleneck(relieved),
            infeasible=self._infeasible(),
            warnings=self._warnings(code),
            relieved_s=relieved,
            dram_read_bytes=reads,
            dram_write_bytes=writes,
            operand_bytes=sum(self.operands.touched_bytes(i, self.precision) for i in members),
            kept_bytes=kept,
        )

    def _held_bytes(self) -> int:
        """Footprint of the buffer: one core's, or all active cores' where the buffer is the device's."""
        shared = self.machine.accelerator.buffer.scope != "core"
        active = 1
        for _, share in self.mapping.parallel:
            active *= share
        return int(self.footprint[0]) * (active if shared else 1)

    def _levels(self) -> tuple[tuple[LevelMapping, ...], tuple[tuple[tuple[int, int], ...], ...]]:
        """The mapping per level, tensors by position: (mapping without retention, its retention)."""
        mapping, names = self.mapping, self.space.names
        order = {tensor: i for i, tensor in enumerate(tensors_of(self.graph, self.group.operators))}
        shown = [d for d in range(len(names)) if self.space.extents[d] > 1] or list(range(len(names)))
        depths: list[dict[int, int]] = [{}, {}]
        for operator in mapping.nest.operators:
            for access in operator.reads + operator.writes:
                for level, depth in enumerate(access.depth):
                    depths[level].setdefault(order[self.space.tensors[access.tensor]], depth)
        buffer = LevelMapping(
            memory=self.machine.accelerator.buffer.name,
            tile=tuple((names[d], mapping.tile[d]) for d in shown),
            loop_order=tuple(names[d] for d in mapping.order),
            retain=(),
            trips=tuple((names[d], -(-self.space.extents[d] // mapping.tile[d])) for d in shown),
        )
        if self.machine.levels == 1:
            return (buffer,), (tuple(depths[0].items()),)
        inner = LevelMapping(
            memory=REGISTERS_NAME,
            tile=tuple((names[d], mapping.register_tile[d]) for d in shown),
            loop_order=tuple(names[d] for d in mapping.register_order),
            retain=(),
            trips=tuple((names[d], -(-mapping.tile[d] // mapping.register_tile[d])) for d in shown),
        )
        return (buffer, inner), (tuple(depths[0].items()), tuple(depths[1].items()))

    def _tree(self) -> tuple[str | int, ...]:
        """The tree's text in parts; members stand as positions."""
        marks = [f"\0{i}\0" for i in range(len(self.space.operators))]
        parts: list[str | int] = []
        for i, piece in enumerate(to_text(self.mapping.tree, self.space.names, marks).split("\0")):
            parts.append(self.space.operators[int(piece)].member if i % 2 else piece)
        return tuple(part for part in parts if part != "")

    def _lower_bound(self, compulsory: int) -> tuple[int, str]:
        """Smith, Lowery, Langou, van de Geijn (2019) for one matrix product; compulsory for anything else."""
        if len(self.space.operators) != 1 or self.problem.roles[0] is None:
            return compulsory, "compulsory"
        role, extents = self.problem.roles[0], self.space.extents
        if any(extents[d] > 1 for d in role.outer) or not (role.m and role.n and role.k):
            return compulsory, "compulsory"
        accelerator = self.machine.accelerator
        operator = self.mapping.nest.operators[0]
        if any(isinstance(axis, WindowAxis | IndirectAxis) for a in operator.reads for axis in a.axes):
            return compulsory, "compulsory"
        bits = min(self.mapping.nest.tensors[a.tensor].bits for a in operator.reads + operator.writes)
        if bits == 0:
            return compulsory, "compulsory"
        registers = accelerator.registers
        inner = 0
        if registers is not None:
            inner = registers.capacity_bytes if registers.model == "accumulator" else 4 * registers.per_core
        held = (self.machine.capacity_bytes + inner) * self.machine.cores * 8 // bits
        product = 1
        for d in role.m + role.n + role.k:
            product *= extents[d]
        bound = int((2 * product / sqrt(held) - 2 * held) * bits / 8)
        return (bound, "Smith et al. 2019") if bound > compulsory else (compulsory, "compulsory")

    def _energy(self, traffic: tuple[LocalTraffic, ...]) -> float:
        """Joules: MACs, bytes at the levels that they touch, one launch, static power of the slot's share."""
        machine = self.machine.accelerator
        joules = {
            machine.dram.name: machine.dram.energy_j_per_byte,
            machine.buffer.name: machine.buffer.energy_j_per_byte,
        }
        total = machine.energy.launch_j
        for row in traffic:
            total += (row.read_bytes + row.write_bytes) * (
                joules.get(row.outer, 0.0) + joules.get(row.inner, 0.0)
            )
        for i, operator in enumerate(self.space.operators):
            if self.mapping.nest.operators[i].contraction:
                member = self.graph.operators[self.group.operators[operator.member]]
                joule = self.machine.mac_joules(compute_type(self.graph, member, self.precision))
                total += int(self.points[i]) * joule
        return total + machine.energy.static_w * self.machine.cores / machine.cores * self.seconds

    def _code(self) -> tuple[int, float]:
        """Estimate of code bytes, and the scheduling-complexity score (ASSUMPTIONS.md)."""
        nest = self.mapping.nest
        loops = sum(1 for row in self.mapping.arrays.loops.tolist() if row[k.LOOP_TRIPS] > 1)
        streams = sum(len(op.reads) + len(op.writes) for op in nest.operators)
        code = 256 + 128 * len(nest.operators) + 32 * loops + 64 * streams * nest.stages
        depth = max((op.tree_depth for op in nest.operators), default=0)
        complexity = float(
            loops + streams + depth * len(nest.operators) + (nest.stages - 1) + len(nest.operators) ** 2
        )
        return code, complexity

    def _bottleneck(self, relieved: tuple[float, ...]) -> Bottleneck:
        """The resource whose 10 % relief shortens launch and latency most, or the smallest set that does."""
        if self.mapping.misfit_bytes > 0:
            return Bottleneck("infeasible", 0.0, f"{self._held_bytes():,} B do not fit")
        gap = self.machine.accelerator.launch.gap_s
        total = self.seconds + gap
        if total == 0.0:
            return Bottleneck("none", 0.0, "it takes no time")
        gains = {
            name: (self.seconds - then) / total for name, then in zip(RESOURCE_NAMES, relieved, strict=False)
        }
        gains["launch"] = gap * (1 - 1 / 1.1) / total
        name = max(gains, key=lambda key: gains[key])
        if gains[name] >= 0.01:
            return Bottleneck(name, gains[name], self._evidence())
        sets = zip(RESOURCE_SETS, relieved[len(RESOURCE_NAMES) :], strict=True)
        for chosen, then in sets:
            gain = (self.seconds - then) / total
            if gain >= 0.01:
                return Bottleneck(balanced(chosen), gain, self._evidence())
        return Bottleneck(name, gains[name], self._evidence())

    def _evidence(self) -> str:
        compute, moving = float(self.total[0]), float(self.total[1])
        return f"compute {compute * 1e6:,.1f} µs, DRAM {moving * 1e6:,.1f} µs of {self.seconds * 1e6:,.1f} µs"

    def _infeasible(self) -> Infeasible | None:
        capacity = self.machine.capacity_bytes
        if int(self.footprint[0]) <= capacity:
            return None
        levers: list[str] = []
        mapping, names = self.mapping, self.space.names
        cut = [d for d in range(len(names)) if mapping.tile[d] > 1]
        cut.sort(key=lambda d: -mapping.tile[d])
        if cut:
            levers.append(f"Halve the tile of {names[cut[0]]} ({mapping.tile[cut[0]]:,})")
        if mapping.stages > 1:
            levers.append("Use one stage instead of two")
        if len(self.space.operators) > 1:
            levers.append("Split the group")
        if self.group.levels and any(level.retain for level in self.group.levels):
            levers.append("Retain less")
        return Infeasible(
            self.machine.accelerator.buffer.name, int(self.footprint[0]), capacity, tuple(levers)
        )

    def _warnings(self, code: int) -> tuple[tuple[str, str], ...]:
        out = [(note, "") for note in self.problem.warnings + self.mapping.notes]
        buffer = self.machine.accelerator.buffer
        if self.mapping.stages == 1 and buffer.double_buffer and self.group.stages != 1:
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


def _apportioned(parts: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Integers in proportion to `parts` that sum to `total`, by rounding the running sum."""
    whole = float(parts.sum())
    if whole <= 0.0:
        out = np.zeros(len(parts), np.int64)
        out[int(np.argmax(parts))] = total
        return out
    edges = np.cumsum(parts) / whole
    marks = np.array([0, *(round(float(edge) * total) for edge in edges[:-1]), total], np.int64)
    return np.diff(marks)


def _within(parts: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """`parts` with the same sum, none above its room (where the rooms suffice)."""
    out = np.minimum(parts, room)
    left = int(parts.sum() - out.sum())
    for i in np.argsort(-(room - out), kind="stable"):
        step = min(left, int(room[i] - out[i]))
        out[i] += step
        left -= step
    return out
