"""What one mapped group moves, holds, spills and spends: everything about it that needs no walk over its steps.

Knows a posed and mapped group, its graph's operands and one machine; knows no seconds but those it is given.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from ..plan.plan import FusionGroup
from . import cycles as c
from . import registers as reg
from . import sweep as k
from .layout import workspace
from .mapping import Mapping
from .nest import IndirectAxis, WindowAxis
from .operands import Operands
from .problem import REGISTERS_NAME, Problem
from .result import RegisterUse
from .solution import NO_REGISTERS, LocalTraffic, tensors_of
from .traffic import measure
from .units import compute_type


class Counted:
    """One mapped group: counts, footprints, registers and spill, traffic, bounds, energy. Each method is one law.

    Attributes
    ----------
    counts, points, footprint, rows, work : as `traffic.measure` leaves them.
    rescale : vector multiplications that online reductions add.
    figures : the machine's, with this group's bytes in flight.
    cores : int64[dims], over how many cores the outer loops of each dim are split; 0 for reduced dims.
    threads : of a block on simt machines, else 0.
    spill : operator at the registers' peak (-1: none spills), DRAM bytes and buffer bytes of each of its steps.
    spilled : bytes in all; ``register_use`` says the rest.
    """

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
                arrays.lengths, arrays.levels, arrays.stages, 0, self.counts[0], self.counts[1], self.points,
                self.footprint, self.rows, self.work,
            )
        )  # fmt: skip
        self.cores = np.ones(len(self.space.extents), np.int64)
        for operator in self.space.operators:
            self.cores[list(operator.reductions)] = 0
        for d, share in mapping.parallel:
            self.cores[d] = share
        self.figures = self.machine.figures.copy()
        self._hold_registers()

    def _hold_registers(self) -> None:
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
            wanted = self.group.threads or reg.pick_threads(registers, live)
            self.threads = min(wanted, registers.threads_max)
            demand = reg.thread_demand(registers, live, self.threads)
            per_thread = min(demand.live, demand.limit)
            held = reg.occupancy(
                registers, per_thread, self.threads, int(self.footprint[0]), self.machine.capacity_bytes
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

    def refetched_bytes(self) -> int:
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

    def held_bytes(self) -> int:
        """Footprint of the buffer: one core's, or all active cores' where the buffer is the device's."""
        shared = self.machine.accelerator.buffer.scope != "core"
        active = 1
        for _, share in self.mapping.parallel:
            active *= share
        return int(self.footprint[0]) * (active if shared else 1)

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
        held = max(1, (self.machine.capacity_bytes + inner) * self.machine.cores * 8 // bits)
        product = 1
        for d in role.m + role.n + role.k:
            product *= extents[d]
        bound = int((2 * product / sqrt(held) - 2 * held) * bits / 8)
        return (bound, "Smith et al. 2019") if bound > compulsory else (compulsory, "compulsory")

    def energy(self, traffic: tuple[LocalTraffic, ...], seconds: float) -> float:
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
