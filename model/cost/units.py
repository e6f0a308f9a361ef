"""What an accelerator means to the kernels: its figures as arrays, and what an operator asks of its units.

Knows the machine's values and the graph's operators; knows nothing of tiles or plans. Missing parts of a machine are
not limiting: their rate is infinite and their cycles are zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import BITS, PRECISIONS, SHORT, is_float
from ..graph.graph import Operator, OperatorGraph, OpKind
from ..hardware.accelerator import Accelerator, MemoryLevel, Partition, Registers
from . import cycles as c

_FLOWS = {
    "output-stationary": c.OUTPUT_STATIONARY,
    "weight-stationary": c.WEIGHT_STATIONARY,
    "input-stationary": c.INPUT_STATIONARY,
}
UNLIMITED = 1e30


def element_type(dtype: str, precision: str) -> str:
    """The element type that is computed with: ``precision`` replaces floating-point types only."""
    return PRECISIONS[precision] if precision and is_float(dtype) else dtype


@dataclass(frozen=True)
class Machine:
    """One accelerator, ready for kernels; everything is for one slot.

    ``innermost``: its last buffer is next to the units; False for one that others stand inside of (`around`).
    """

    accelerator: Accelerator
    innermost: bool = True

    @property
    def cores(self) -> int:
        """Cores that a plan is simulated on."""
        return self.accelerator.slot_cores

    @cached_property
    def levels(self) -> int:
        """Pairs of levels that are counted: one per buffer, and one more where the machine has registers."""
        return len(self.accelerator.buffers) + (self.accelerator.registers is not None)

    @cached_property
    def capacity_bytes(self) -> int:
        """Room in the outermost buffer for one core's tiles."""
        return self.room(self.accelerator.buffer)

    def room(self, buffer: MemoryLevel) -> int:
        """Bytes of a buffer that one core has for its tiles."""
        return buffer.capacity_bytes if buffer.scope == "core" else buffer.capacity_bytes // self.cores

    def feed(self, buffer: MemoryLevel) -> float | None:
        """Bytes a second that one core takes out of a buffer: its own port, else its share; None: not limiting."""
        if buffer.bandwidth_per_core_bytes_per_s is not None or buffer.bandwidth_bytes_per_s is None:
            return buffer.bandwidth_per_core_bytes_per_s
        return buffer.bandwidth_bytes_per_s / (1 if buffer.scope == "core" else self.cores)

    @cached_property
    def around(self) -> tuple[Machine, ...]:
        """Per buffer, outermost first, a machine of that buffer alone: what a mapping is chosen for.

        Its units are fed by the innermost buffer. Around a further buffer there is one core, and the buffer outside
        in DRAM's place. What sums are kept in is half of the buffer inside, and the registers for the innermost one.
        """
        machine = self.accelerator
        buffers = machine.buffers
        if len(buffers) == 1:
            return (self,)
        fed = self.feed(buffers[-1])
        first = replace(buffers[0], bandwidth_bytes_per_s=None, bandwidth_per_core_bytes_per_s=fed)
        found = [replace(machine, memory=(*machine.memory[: machine.memory.index(buffers[0])], first))]
        for outer, buffer in pairwise(buffers):
            rate = self.feed(outer)
            memory = (
                replace(outer, scope="device", bandwidth_bytes_per_s=rate, bandwidth_per_core_bytes_per_s=rate),
                replace(
                    buffer, scope="core", capacity_bytes=self.room(buffer), bandwidth_bytes_per_s=None,
                    bandwidth_per_core_bytes_per_s=fed,
                ),
            )  # fmt: skip
            found.append(replace(machine, memory=memory, cores=1, partition=Partition(1, 1)))
        kept = [Registers("accumulator", capacity_bytes=self.room(buffer) // 2) for buffer in buffers[1:]]
        found[:-1] = [replace(one, registers=sums) for one, sums in zip(found, kept, strict=False)]
        return tuple(Machine(one, i == len(found) - 1) for i, one in enumerate(found))

    @cached_property
    def figures(self) -> NDArray[np.float64]:
        """The ``mach`` vector of `timing.py`; bytes in flight are set per group on simt machines."""
        out = np.zeros(c.MACHINE_FIGURES)
        machine = self.accelerator
        unit = machine.matrix_unit
        if unit is not None and unit.kind == "systolic":
            out[c.M_UNIT] = c.SYSTOLIC
            out[c.M_ROWS], out[c.M_COLUMNS] = unit.rows, unit.columns
            out[c.M_FLOW] = _FLOWS[unit.dataflow]
            out[c.M_OVERLAP] = unit.overlap_folds
        elif unit is not None:
            out[c.M_UNIT] = c.TENSOR_CORE
            out[c.M_MMA_M], out[c.M_MMA_N], out[c.M_MMA_K] = unit.mma
        out[c.M_CLOCK] = machine.clock_hz
        out[c.M_LANES] = 1 if machine.vector_unit is None else machine.vector_unit.lanes
        port = machine.dram.bandwidth_per_core_bytes_per_s
        if port is None and machine.cache is not None:
            port = machine.cache.bandwidth_per_core_bytes_per_s or UNLIMITED
        out[c.M_PORT] = min(UNLIMITED, port or machine.slot_bandwidth_bytes_per_s)
        out[c.M_DEVICE] = min(UNLIMITED, machine.slot_bandwidth_bytes_per_s)
        out[c.M_CACHE] = UNLIMITED
        if machine.cache is not None and machine.cache.bandwidth_bytes_per_s is not None:
            out[c.M_CACHE] = machine.cache.bandwidth_bytes_per_s * self.cores / machine.cores
        out[c.M_LATENCY] = machine.dram.latency_s
        out[c.M_ONCHIP] = self.feed(machine.buffers[-1]) or UNLIMITED
        out[c.M_RESCALE] = self.vector_cycles("mul")
        return out

    @cached_property
    def _cycles(self) -> dict[str, float]:
        unit = self.accelerator.vector_unit
        return {} if unit is None else dict(unit.cycles)

    def vector_cycles(self, primitive: str) -> float:
        """Cycles of one lane for one `primitive`; 1 where the machine file is silent, 0 without a vector unit."""
        return 0.0 if self.accelerator.vector_unit is None else self._cycles.get(primitive, 1.0)

    def operator_cycles(self, operator: Operator) -> float:
        """Vector cycles per executed point: by op type first, then by primitive.

        Without a matrix unit the lanes do a contraction's MACs, one a cycle.
        """
        if operator.op_type in self._cycles and operator.kind is not OpKind.CONTRACTION:
            return self._cycles[operator.op_type]
        total = sum(count * self.vector_cycles(name) for name, count in operator.vector_ops)
        if operator.kind is OpKind.CONTRACTION and self.accelerator.matrix_unit is None:
            total += self.vector_cycles("mac")
        return total

    def rate(self, dtype: str) -> tuple[float, str]:
        """MACs a cycle for an element type, and a sentence where the machine file does not name it."""
        unit = self.accelerator.matrix_unit
        if unit is None:
            return 1.0, ""
        table = dict(unit.macs_per_cycle)
        short = SHORT.get(dtype, dtype)
        if short in table:
            return table[short], ""
        bits = BITS.get(dtype, 32)
        widths = {name: BITS.get(PRECISIONS.get(name, name), 32) for name in table}
        wider = sorted((width, name) for name, width in widths.items() if width >= bits)
        name = wider[0][1] if wider else max(widths, key=lambda key: widths[key])
        return table[name], f"no MAC rate for {short}; the rate of {name} is used"

    def mac_joules(self, dtype: str) -> float:
        """Energy of one MAC; that of the nearest wider type where the file does not name this one."""
        table = dict(self.accelerator.energy.mac_j)
        if not table:
            return 0.0
        short = SHORT.get(dtype, dtype)
        if short in table:
            return table[short]
        bits = BITS.get(dtype, 32)
        wider = sorted((BITS.get(PRECISIONS.get(n, n), 32), n) for n in table)
        fitting = [n for width, n in wider if width >= bits]
        return table[fitting[0] if fitting else wider[-1][1]]

    def partial_bits(self, bits: int) -> int:
        """Width of partial sums of elements of `bits` bits."""
        return self.accelerator.partial_sum_bits or max(32, bits)


def compute_type(graph: OperatorGraph, operator: Operator, precision: str) -> str:
    """The element type of a contraction: the widest of its first two operands."""
    types = [element_type(graph.tensors[a.tensor].dtype, precision) for a in operator.inputs[:2]]
    return max(types, key=lambda name: BITS.get(name, 0)) if types else "float32"
