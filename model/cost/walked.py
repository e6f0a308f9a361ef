"""The walk over the steps of one mapped group: seconds, phases, and which resource limits it.

Knows what `counted.py` counts and the timing kernels.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..terminal import quantity
from . import bands as b
from . import cycles as c
from . import steps as w
from . import sweep as k
from . import timing as t
from .counted import Counted
from .result import PHASE_DTYPE, Bottleneck
from .solution import RESOURCE_NAMES, RESOURCE_SETS, balanced
from .tree import paths

_STEPS = 4096  # room for the walk before the middles of loops are shown by fewer iterations
_PHASES = 8  # of a group, besides its launch
# Per resource of RESOURCE_NAMES, then per set of RESOURCE_SETS, what is 10 % better. The core imbalance has no rate.
_RELIEFS = np.array(
    [
        [1.1 if i in chosen else 1.0 for i in range(t.RESOURCES)]
        for chosen in (*((i,) for i in range(t.RESOURCES)), (), *RESOURCE_SETS)
    ]
)


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
        further = [buffer.tile for buffer in self.mapping.further]
        ops, work = arrays.ops, counted.work
        if further:  # what is inside the outermost buffer's loops is part of their steps
            ops, work = ops.copy(), work.copy()
            ops[:, k.OP_TREE] = [len(loops) for loops, _ in paths(self.mapping.tree)]
            work[k.W_TREE, : len(ops)] = [counted.walked_loops(o) for o in range(len(ops))]
        self.steps = np.empty((_STEPS, w.STEP_COLUMNS))
        self.count = int(
            w.walk(
                ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
                counted.rows, work, counted.counts[0], counted.problem.mat, counted.problem.rate,
                counted.problem.vector, self._onchip(), self.figures, counted.cores, counted.spill,
                counted.crossing.toll, np.array(further, np.int64).reshape(len(further), len(arrays.extents)),
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

    def _onchip(self) -> NDArray[np.float64]:
        """Per executed point of an operator, the bytes on chip beside its work, and those that it waits for.

        As bytes of the buffer next to the units. What goes from buffer to buffer bounds the work from below, by
        bandwidth or by Little's law with one tile per stage on its way; into single copies it comes before the work.
        """
        counted, arrays = self.counted, self.mapping.arrays
        operators = arrays.acc[:, k.ACC_OPERATOR]
        points = np.maximum(1, counted.points)
        out = np.zeros((2, arrays.ops.shape[0]))
        buffers = self.machine.accelerator.buffers
        if arrays.levels > len(buffers):
            np.add.at(out[0], operators, counted.inwards[-1].sum(axis=1) / 8.0 / points[operators])
        for level, buffer in enumerate(self.mapping.further, 1):
            outer = buffers[level - 1]
            moved = np.zeros(arrays.ops.shape[0])
            np.add.at(moved, operators, counted.inwards[level - 1].sum(axis=1) / 8.0)
            for o in range(arrays.ops.shape[0]):
                taken = counted.as_fed(float(moved[o]), outer)
                waited = counted.loads(o, level) * outer.latency_s / buffer.stages
                taken = max(taken, waited * float(self.figures[c.M_ONCHIP])) / float(points[o])
                if buffer.stages > 1:
                    out[0, o] = max(out[0, o], taken)
                else:
                    out[1, o] += taken
        return out

    def relieved(self) -> tuple[float, ...]:
        """Seconds with each resource of `RESOURCE_NAMES` 10 % better, then with each of `RESOURCE_SETS`."""
        out = np.zeros(len(_RELIEFS))
        t.relieved(self.steps, self.count, self.mapping.stages, self.figures, _RELIEFS, out)
        seconds = out.tolist()
        idle = (1.0 - self.balance) * (1.0 - 1.0 / 1.1)
        seconds[RESOURCE_NAMES.index("core imbalance")] = self.seconds * (1.0 - idle)
        return tuple(seconds)

    @property
    def waves(self) -> int:
        """Iterations of the split loops that one core walks."""
        waves = 1
        for d, share in self.mapping.parallel + self.mapping.split:
            trips = -(-self.space.extents[d] // self.mapping.tile[d])
            waves *= -(-trips // share)
        return waves

    @property
    def balance(self) -> float:
        """The part of the slot's core time that has a tile to work on; under a band, points of it."""
        tiles, waves = 1, 1
        for d, share in self.mapping.parallel + self.mapping.split:
            trips = -(-self.space.extents[d] // self.mapping.tile[d])
            work = self._points(d)
            tiles *= trips if work is None else int(work.sum())
            waves *= (
                -(-trips // share) if work is None else max(int(work[c::share].sum()) for c in range(share))
            )
        return tiles / (waves * self.machine.cores)

    def _points(self, d: int) -> NDArray[np.int64] | None:
        """Points of a band per tile along its dim `d`; None where no operator has one over it."""
        extents, tile = self.space.extents, self.mapping.tile[d]
        for operator in self.mapping.nest.operators:
            band = operator.band
            if band is None or d not in (band.q, band.k):
                continue
            ends = [(low, min(low + tile, extents[d])) for low in range(0, extents[d], tile)]
            boxes = [
                (*each, 0, extents[band.k]) if d == band.q else (0, extents[band.q], *each) for each in ends
            ]
            return np.array([b.band_points(*box, band.offset, band.window) for box in boxes], np.int64)
        return None

    def phases(self, latency_ns: int, moved: int, refetched: int) -> NDArray[np.void]:
        """The profile: integer nanoseconds and bytes that sum to the group's exactly."""
        rows = np.zeros((self.count + 2, t.TERM_COLUMNS))
        size = int(t.phases(self.terms, self.count + 2, float(self.figures[c.M_DEVICE]), _PHASES, rows))
        if size == 0:
            rows[0, t.P_KIND], size = t.STEADY, 1
        rows = rows[:size]
        base_ns = _apportioned(rows[:, t.P_SECONDS], latency_ns)
        moving = _apportioned(rows[:, t.P_BYTES], moved)
        spill = _within(_apportioned(rows[:, t.P_SPILL], self.counted.spilled_to_dram), moving)
        room = [whole - part for whole, part in zip(moving, spill, strict=True)]
        refetch = _within(_apportioned(rows[:, t.P_REFETCH], refetched), room)
        kinds = [int(kind) for kind in rows[:, t.P_KIND].tolist()]
        out = np.array(list(zip(kinds, base_ns, moving, spill, refetch, strict=True)), PHASE_DTYPE)
        out.setflags(write=False)
        return out

    def bottleneck(self, relieved: tuple[float, ...]) -> Bottleneck:
        """The resource whose 10 % relief shortens launch and latency most, or the smallest set that does."""
        if self.mapping.misfit_bytes > 0:
            number = (self.counted.misfit() or (0, 0, 0))[0]
            return Bottleneck("infeasible", 0.0, f"{self.counted.held_bytes(number):,} B do not fit")
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
        """How long each unit is busy. They overlap, so that together they may be busy for longer than it takes."""
        steps = self.steps[: self.count]
        busy = steps[:, w.T_WEIGHT] @ steps[:, (w.T_MATRIX, w.T_VECTOR, w.T_TAIL)]
        matrix, vector, tail = busy.tolist()
        units = (("matrix unit", matrix), ("vector unit", vector + tail), ("loads and stores", self.moving_s))
        told = ", ".join(f"{name} {quantity(seconds, 's')}" for name, seconds in units)
        return f"busy side by side: {told}; all of it takes {quantity(self.seconds, 's')}"


def _apportioned(parts: NDArray[np.float64], total: int) -> list[int]:
    """Integers in proportion to `parts` that sum to `total`, by rounding the running sum."""
    if total == 0:
        return [0] * len(parts)
    whole = float(parts.sum())
    if whole <= 0.0:
        out = [0] * len(parts)
        out[int(np.argmax(parts))] = total
        return out
    edges: list[float] = (np.cumsum(parts) / whole).tolist()
    marks = [0, *[round(edge * total) for edge in edges[:-1]], total]
    return [after - before for before, after in pairwise(marks)]


def _within(parts: list[int], room: list[int]) -> list[int]:
    """`parts` with the same sum, none above its room (where the rooms suffice)."""
    out = [min(part, most) for part, most in zip(parts, room, strict=True)]
    left = sum(parts) - sum(out)
    if left:
        for i in sorted(range(len(out)), key=lambda i: out[i] - room[i]):
            step = min(left, room[i] - out[i])
            out[i] += step
            left -= step
    return out
