"""What one mapped group moves, holds, spills and spends: everything about it that needs no walk over its steps.

Knows a posed and mapped group, its graph's operands and one machine; knows no seconds but those it is given.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from ..graph.dtypes import bytes_of
from ..hardware.accelerator import MemoryLevel
from ..plan.plan import FusionGroup
from . import cycles as c
from . import registers as reg
from . import sweep as k
from .crossing import crossing, passing
from .layout import Ints, workspace
from .mapping import Mapping
from .nest import OUTER, IndirectAxis, WindowAxis
from .operands import Operands
from .problem import REGISTERS_NAME, Problem
from .resident import IN_PLACE, resident
from .result import RegisterUse
from .solution import NO_REGISTERS, LocalTraffic, tensors_of
from .traffic import measure
from .tree import paths
from .units import UNLIMITED, compute_type


class Counted:
    """One mapped group: counts, footprints, registers and spill, traffic, bounds, energy. Each method is one law.

    Attributes
    ----------
    counts, points, footprint, rows, work : as `traffic.measure` leaves them.
    rescale, combine : vector operations that online reductions and sums that cores share add.
    figures : the machine's, with this group's bytes in flight.
    cores : int64[dims], over how many cores the outer loops of each dim are split; 0 for reduced dims.
    threads : of a block on simt machines, else 0.
    crossing : bits that pass into and out of the outermost buffer, and that reach DRAM.
    inwards : per level inside it int64[accesses, 2], bits that pass it inwards and outwards.
    spill : operator at the registers' peak (-1: none spills), DRAM bytes and buffer bytes of each of its steps.
    spilled : bytes that spill from the registers in all; ``register_use`` says the rest.
    """

    def __init__(
        self,
        operands: Operands,
        group: FusionGroup,
        problem: Problem,
        mapping: Mapping,
        precision: str,
        warm: frozenset[int] = frozenset(),
        kept: frozenset[int] = frozenset(),
    ) -> None:
        """``warm`` and ``kept``: local tensors, as in `crossing.crossing`."""
        self.operands, self.group, self.problem, self.mapping = operands, group, problem, mapping
        self.graph = operands.graph
        self.precision = precision
        self.machine = problem.machine
        self.space = problem.space
        self.order = {tensor: i for i, tensor in enumerate(tensors_of(operands.graph, group.operators))}
        arrays = mapping.arrays
        self.counts = np.zeros((arrays.levels, arrays.acc.shape[0], 4), np.int64)
        self.points = np.zeros(arrays.ops.shape[0], np.int64)
        self.footprint = np.zeros(arrays.levels, np.int64)
        self.rows, self.work = workspace(arrays)
        self.rescale = int(
            measure(
                arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path,
                arrays.lengths, arrays.levels, arrays.stages, 0, self.counts, self.points, self.footprint, self.rows,
                self.work,
            )
        )  # fmt: skip
        self.cores = np.ones(len(self.space.extents), np.int64)
        for operator in self.space.operators:
            self.cores[list(operator.reductions)] = 0
        for d, share in mapping.parallel + mapping.split:
            self.cores[d] = share
        self.kept = kept
        self.combine = sum(  # additions that put the parts of shared sums together
            int(arrays.acc[a, k.ACC_ELEMENTS]) * (share - 1)
            for d, share in mapping.split
            for a in np.flatnonzero(arrays.acc[:, k.ACC_WRITE]).tolist()
            if arrays.ops[arrays.acc[a, k.ACC_OPERATOR], k.OP_OWN] & ~arrays.acc[a, k.ACC_TOUCH] & 1 << d
        )
        self.crossing = crossing(
            self.machine.accelerator, arrays, self.counts[0], self.rows, self.work, self.cores, warm, kept
        )
        self.inwards = tuple(self._passing(level) for level in range(1, arrays.levels))
        self.figures = self.machine.figures.copy()
        self._hold_registers()

    def _passing(self, level: int) -> Ints:
        """Bits of every access, inwards and outwards, from buffer `level` on: in whole sectors into another buffer."""
        arrays, buffers = self.mapping.arrays, self.machine.accelerator.buffers
        sector = buffers[level - 1].access_bytes if level < len(buffers) else 1
        return passing(arrays, self.counts[level], self.rows, self.work, level, sector)

    def _hold_registers(self) -> None:
        """Registers live against limit, occupancy, and where the excess goes."""
        registers = self.machine.accelerator.registers
        self.threads = 0
        self.spill = np.array([-1.0, 0.0, 0.0])
        self.spilled = 0
        self.register_use = NO_REGISTERS
        if registers is None:
            return
        live = int(self.footprint[-1])
        buffers = self.machine.accelerator.buffers
        held: reg.Occupancy | None = None
        if registers.model == "simt":
            wanted = self.group.threads or reg.pick_threads(registers, live)
            self.threads = min(wanted, registers.threads_max)
            demand = reg.thread_demand(registers, live, self.threads)
            per_thread = min(demand.live, demand.limit)
            feeding = len(buffers) - 1
            held = reg.occupancy(
                registers,
                per_thread,
                self.threads,
                int(self.footprint[feeding]),
                self.machine.room(buffers[feeding]),
            )
            flight = max(1, held.blocks) * self.threads * reg.BYTES_PER_THREAD_IN_FLIGHT
            self.figures[c.M_INFLIGHT] = flight
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
            each = 2.0 * demand.excess_bytes * (steps / self.walked_steps(at))
            where = self.machine.accelerator.dram.name
            self.spill = np.array([at, each, 0.0])
            for number in range(len(buffers) - 1, -1, -1):  # the next level outwards that has room
                if self.machine.room(buffers[number]) - int(self.footprint[number]) >= demand.excess_bytes:
                    where = buffers[number].name
                    self.spill = np.array([at, 0.0, self.as_fed(each, buffers[number])])
                    break
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

    def walked_loops(self, o: int) -> int:
        """How many of an operator's remaining loops are walked step by step: the tree loops of the outermost buffer."""
        tree = int(self.work[k.W_TREE, o])
        if not self.mapping.further:
            return tree
        walked = set(paths(self.mapping.tree)[o][0])
        return sum(1 for loop in self.rows[o, :tree].tolist() if loop in walked)

    def walked_steps(self, o: int) -> int:
        """The steps of an operator, on all cores."""
        arrays = self.mapping.arrays
        return int(k.repeats(-1, self.rows[o], self.walked_loops(o), arrays.loops, arrays.extents))

    def loads(self, o: int, level: int) -> int:
        """How often an operator fetches a tile across a level, at its most frequent operand."""
        arrays, effective = self.mapping.arrays, self.work[k.W_EFFECTIVE0 + k.W_PAIR * level]
        first, end = int(arrays.ops[o, k.OP_FIRST]), int(arrays.ops[o, k.OP_WRITES])
        deepest = max(
            (int(effective[a]) for a in range(first, end) if self.inwards[level - 1][a, 0]), default=-1
        )
        if deepest < 0:
            return 0
        return int(k.repeats(-1, self.rows[o], deepest, arrays.loops, arrays.extents))

    def as_fed(self, moved: float, buffer: MemoryLevel) -> float:
        """Bytes that the buffer next to the units gives in the time that `buffer` takes for `moved` bytes."""
        return moved / (self.machine.feed(buffer) or UNLIMITED) * float(self.figures[c.M_ONCHIP])

    def traffic(self) -> tuple[LocalTraffic, ...]:
        """Bytes per tensor and pair of levels; bits are summed and rounded up once per direction."""
        acc, machine = self.mapping.arrays.acc, self.machine.accelerator
        tables = [(machine.dram.name, machine.buffer.name, self.crossing.buffer)]
        if machine.cache is not None:
            tables[0] = (machine.cache.name, machine.buffer.name, self.crossing.buffer)
            tables.insert(0, (machine.dram.name, machine.cache.name, self.crossing.dram))
        names = [buffer.name for buffer in machine.buffers]
        inner = [*names[1:], REGISTERS_NAME]
        tables += list(zip(names, inner, self.inwards, strict=False))
        out: list[LocalTraffic] = []
        for outer, inner, table in tables:
            sums: dict[int, list[int]] = {}
            for local, (read, write) in zip(acc[:, k.ACC_TENSOR].tolist(), table.tolist(), strict=True):
                if read or write:
                    row = sums.setdefault(local, [0, 0])
                    row[0] += read
                    row[1] += write
            out.extend(
                LocalTraffic(self.place(local), outer, inner, (read + 7) // 8, (write + 7) // 8)
                for local, (read, write) in sums.items()
            )
        if self.spilled:
            local = self.space.operators[int(self.spill[0])].writes[0].tensor
            half = self.spilled // 2
            where = self.register_use.spill_to
            out.append(LocalTraffic(self.place(local), where, REGISTERS_NAME, half, half))
        return tuple(out)

    def place(self, local: int) -> int:
        """Where `tensors_of` has a local tensor."""
        return self.order[self.space.tensors[local]]

    def touched(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """What a cache sees: per tensor that crosses its place, distinct bytes, and whether it is read and written."""
        acc, ten = self.mapping.arrays.acc, self.mapping.arrays.ten
        found: dict[int, tuple[int, bool, bool]] = {}
        for a in np.flatnonzero(self.crossing.buffer.any(axis=1)).tolist():
            local, write = int(acc[a, k.ACC_TENSOR]), bool(acc[a, k.ACC_WRITE])
            size = bytes_of(int(acc[a, k.ACC_ELEMENTS]), int(ten[local, k.TEN_BITS]))
            before = found.get(local, (0, False, False))
            found[local] = max(size, before[0]), before[1] or not write, before[2] or write
        return tuple((self.place(local), *row) for local, row in found.items())

    @property
    def spilled_to_dram(self) -> int:
        """Bytes of spills that reach DRAM: of registers where the buffer has no room, of intermediates."""
        onto_dram = self.register_use.spill_to == self.machine.accelerator.dram.name
        return (self.spilled if onto_dram else 0) + self.crossing.spilled // 8

    @property
    def spill_to(self) -> str:
        """Where spills go: DRAM where any does."""
        if self.spilled_to_dram:
            return self.machine.accelerator.dram.name
        if self.mapping.spilled and self.machine.accelerator.cache is not None:
            return self.machine.accelerator.cache.name
        return self.register_use.spill_to

    def spill_bytes(self) -> int:
        """Bytes that spill in all, written and read back: from the registers, and intermediates from the buffer."""
        acc, ten = self.mapping.arrays.acc, self.mapping.arrays.ten
        rows = self.crossing.buffer[ten[acc[:, k.ACC_TENSOR], k.TEN_SPILLED] == 1]
        return self.spilled + int(rows.sum()) // 8

    def kept_bytes(self) -> int:
        """Bytes of intermediates that never reach DRAM: at home on chip, or kept by the cache."""
        return sum(
            bytes_of(tensor.elements, tensor.bits)
            for local, tensor in enumerate(self.mapping.nest.tensors)
            if (tensor.home != OUTER and not tensor.written_outside) or local in self.kept
        )

    def misfit(self) -> tuple[int, int, int] | None:
        """The outermost buffer whose tiles do not fit: its number, the bytes that a core holds there, and its room."""
        for number, buffer in enumerate(self.machine.accelerator.buffers):
            held, room = int(self.footprint[number]), self.machine.room(buffer)
            if held > room:
                return number, held, room
        return None

    def held_bytes(self, number: int = 0) -> int:
        """Footprint of a buffer: one core's, or all active cores' where the buffer is the device's."""
        shared = self.machine.accelerator.buffers[number].scope != "core"
        active = 1
        for _, share in self.mapping.parallel + self.mapping.split:
            active *= share
        return int(self.footprint[number]) * (active if shared else 1)

    def resident(self) -> tuple[tuple[int, int], ...]:
        """`held_bytes` by tensor (`resident.resident`)."""
        copies = self.held_bytes() // max(1, int(self.footprint[0]))
        found = resident(self.mapping.arrays, self.rows, self.work)
        return tuple(
            (local if local == IN_PLACE else self.place(local), copies * size) for local, size in found
        )

    def lower_bound(self, compulsory: int) -> tuple[int, str]:
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
        held = sum(self.machine.room(buffer) for buffer in accelerator.buffers)
        onchip = (held + inner) * self.machine.cores + accelerator.cache_share_bytes
        held = max(1, onchip * 8 // bits)
        product = 1
        for d in role.m + role.n + role.k:
            product *= extents[d]
        bound = int((2 * product / sqrt(held) - 2 * held) * bits / 8)
        return (bound, "Smith et al. 2019") if bound > compulsory else (compulsory, "compulsory")

    def energy(self, traffic: tuple[LocalTraffic, ...], seconds: float) -> float:
        """Joules: MACs, bytes at the levels that they touch, one launch, static power of the slot's share."""
        machine = self.machine.accelerator
        joules = {level.name: level.energy_j_per_byte for level in machine.memory}
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
        return total + machine.energy.static_w * self.machine.cores / machine.cores * seconds

    def code(self) -> tuple[int, float]:
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
