"""The walk over the steps of one mapped group: seconds, phases, and which resource limits it.

Knows what `counted.py` counts and the timing kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import cycles as c
from . import steps as w
from . import sweep as k
from . import timing as t
from .counted import Counted
from .result import PHASE_DTYPE, Bottleneck
from .solution import RESOURCE_NAMES, RESOURCE_SETS, balanced

_STEPS = 4096  # room for the walk before the middles of loops are shown by fewer iterations
_PHASES = 8  # of a group, besides its launch


class Walked:
    """The steps of the busiest core and what follows from them.

    Attributes
    ----------
    seconds : of the whole group, its launch excluded. compute_s, moving_s, cycles : sums over its steps.
    """

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.machine = counted.machine
        self.mapping = counted.mapping
        self.space = counted.space
        self.figures = counted.figures
        self._walk()

    def _walk(self) -> None:
        """The steps of the busiest core, the latency and the phases."""
        counted, arrays = self.counted, self.mapping.arrays
        onchip = np.zeros(arrays.ops.shape[0])
        if self.machine.levels == 2:
            for a, row in enumerate(counted.counts[1].tolist()):
                local = int(arrays.acc[a, k.ACC_TENSOR])
                bits = (row[0] + row[1]) * int(arrays.ten[local, k.TEN_BITS])
                bits += (row[2] + row[3]) * int(arrays.ten[local, k.TEN_PARTIAL])
                o = int(arrays.acc[a, k.ACC_OPERATOR])
                onchip[o] += bits / 8.0 / max(1, int(counted.points[o]))
        self.steps = np.empty((_STEPS, w.STEP_COLUMNS))
        self.count = int(
            w.walk(
                arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path,
                arrays.lengths, counted.rows, counted.work, counted.counts[0], counted.problem.mat,
                counted.problem.rate, counted.problem.vector, onchip, self.figures, counted.cores, counted.spill,
                self.steps,
            )
        )  # fmt: skip
        self.terms = np.zeros((self.count + 2, t.TERM_COLUMNS))
        self.seconds = float(
            t.pipeline(
                self.steps, self.count, self.mapping.stages, self.figures, np.ones(t.RESOURCES), self.terms
            )
        )
        total = np.zeros(3)
        t.sums(self.steps, self.count, self.mapping.stages, self.figures, total)
        self.compute_s, self.moving_s, self.cycles = total.tolist()

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
        size = int(t.phases(self.terms, self.count + 2, float(self.figures[c.M_DEVICE]), _PHASES, rows))
        if size == 0:
            rows[0, t.P_KIND], size = t.STEADY, 1
        rows = rows[:size]
        out = np.zeros(size, PHASE_DTYPE)
        out["kind"] = rows[:, t.P_KIND]
        out["base_ns"] = _apportioned(rows[:, t.P_SECONDS], latency_ns)
        out["bytes"] = _apportioned(rows[:, t.P_BYTES], moved)
        to_dram = (
            self.counted.spilled
            if self.counted.register_use.spill_to == self.machine.accelerator.dram.name
            else 0
        )
        out["spill"] = _within(_apportioned(rows[:, t.P_SPILL], to_dram), out["bytes"])
        out["refetch"] = _within(_apportioned(rows[:, t.P_REFETCH], refetched), out["bytes"] - out["spill"])
        out.setflags(write=False)
        return out

    def bottleneck(self, relieved: tuple[float, ...]) -> Bottleneck:
        """The resource whose 10 % relief shortens launch and latency most, or the smallest set that does."""
        if self.mapping.misfit_bytes > 0:
            return Bottleneck("infeasible", 0.0, f"{self.counted.held_bytes():,} B do not fit")
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
        compute, moving, all_of_it = (s * 1e6 for s in (self.compute_s, self.moving_s, self.seconds))
        return f"compute {compute:,.1f} µs, DRAM {moving:,.1f} µs of {all_of_it:,.1f} µs"


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
