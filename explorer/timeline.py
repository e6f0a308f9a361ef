"""A replay over time as arrays: who waits, and what each slot does; made on the worker, looked up by the queue panel.

Knows `ServingResult`. Must not know Qt. Whatever a window of time holds is reduced to as many columns as the screen
has: the most that waited at one moment, the longest wait of those that came, the busy and the stalled share of a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.serving.result import ServingResult

Times = NDArray[np.int64]
STALLS = ("stall_burst", "stall_steady", "stall_spill", "stall_refetch")


@dataclass(frozen=True, eq=False, slots=True)
class SlotWork:
    """The batches of one slot in order of their begin.

    Attributes
    ----------
    begin_ns, end_ns, stall_ns : int64[batches]; stalls are what the slot waited for DRAM while the batch ran.
    size : int32[batches], requests in it.
    """

    begin_ns: Times
    end_ns: Times
    stall_ns: Times
    size: NDArray[np.int32]

    def inside(self, low_ns: float, high_ns: float) -> range:
        """Numbers of the batches that run at some time between two."""
        first = int(np.searchsorted(self.end_ns, low_ns, side="right"))
        return range(first, max(first, int(np.searchsorted(self.begin_ns, high_ns, side="left"))))

    def at(self, ns: float) -> int:
        """Number of the batch that runs at a time; -1 for none."""
        found = int(np.searchsorted(self.begin_ns, ns, side="right")) - 1
        return found if found >= 0 and ns < self.end_ns[found] else -1

    def shares(
        self, low_ns: float, high_ns: float, columns: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64[columns]: the busy share of each column of time, and the stalled one, spread evenly over a batch."""
        edges = np.linspace(low_ns, high_ns, columns + 1)
        lasts = (self.end_ns - self.begin_ns).astype(np.float64)
        stalled = np.divide(self.stall_ns, lasts, out=np.zeros(len(lasts)), where=lasts > 0)
        wide = max(1e-9, (high_ns - low_ns) / columns)
        return (
            np.diff(self._before(edges, np.ones(len(lasts)))) / wide,
            np.diff(self._before(edges, stalled)) / wide,
        )

    def _before(self, edges: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """ns of work before each time, each batch's by its weight."""
        lasts = (self.end_ns - self.begin_ns) * weight
        done = np.concatenate(([0.0], np.cumsum(lasts)))
        running = np.searchsorted(self.begin_ns, edges, side="right") - 1
        there = np.maximum(running, 0)
        if not len(lasts):
            return np.zeros(len(edges))
        part = np.clip(edges, self.begin_ns[there], self.end_ns[there]) - self.begin_ns[there]
        return np.where(running >= 0, done[there] + part * weight[there], 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """See the module's docstring. Times are ns from the start of the window.

    Attributes
    ----------
    moment_ns, waiting : int64[m]: each moment at which anyone comes or starts, and how many wait after it. Who starts
        at once never waits.
    arrival_ns, wait_ns : int64[n].
    slots : empty where slots are unlimited.
    """

    result: ServingResult
    begin_ns: int
    end_ns: int
    moment_ns: Times
    waiting: Times
    arrival_ns: Times
    wait_ns: Times
    slots: tuple[SlotWork, ...]

    @classmethod
    def of(cls, result: ServingResult) -> Self:
        """The timeline of a result; on the worker."""
        requests = result.requests
        arrival, start = requests.arrival_ns, requests.start_ns
        moments = np.concatenate((arrival, start))
        order = np.argsort(moments, kind="stable")
        moments = moments[order]
        waiting = np.cumsum(np.where(order < len(arrival), 1, -1))
        last = np.append(moments[1:] != moments[:-1], True)
        return cls(
            result,
            int(arrival[0]),
            int(requests.completion_ns.max()),
            moments[last],
            waiting[last],
            arrival,
            start - arrival,
            _work(result),
        )

    def most_waiting(self, low_ns: float, high_ns: float, columns: int) -> Times:
        """int64[columns]: the most requests that wait at one moment of each column of time."""
        edges = np.linspace(low_ns, high_ns, columns + 1)
        at = np.searchsorted(self.moment_ns, edges[:-1], side="right")
        standing = np.where(at > 0, self.waiting[np.maximum(at, 1) - 1], 0)
        return np.maximum(standing, _most(self.waiting, np.searchsorted(self.moment_ns, edges, side="left")))

    def longest_wait(self, low_ns: float, high_ns: float, columns: int) -> Times:
        """int64[columns] ns: the longest wait of the requests that come in each column of time."""
        edges = np.linspace(low_ns, high_ns, columns + 1)
        return _most(self.wait_ns, np.searchsorted(self.arrival_ns, edges, side="left"))

    def waiting_at(self, ns: float) -> int:
        """How many requests wait at a time."""
        at = int(np.searchsorted(self.moment_ns, ns, side="right"))
        return int(self.waiting[at - 1]) if at else 0

    def around_peak(self) -> tuple[int, int]:
        """A window about the moment at which most requests wait: the longest stretch of waiting, a little wider."""
        built = self.result.build_up
        if built is None or not built.peak_waiting:
            return self.begin_ns, self.end_ns
        low, high = built.longest_from_ns, built.longest_from_ns + built.longest_ns
        if not low <= built.peak_at_ns <= high:
            low = high = built.peak_at_ns
        service = self.result.sum_response_ns // max(1, len(self.arrival_ns))
        room = max((high - low) // 8, service, 1)
        return max(self.begin_ns, low - room), min(self.end_ns, high + room)


def _most(values: Times, edges: NDArray[np.intp]) -> Times:
    """The largest value between each two places; 0 where there is none between them."""
    out = np.zeros(len(edges) - 1, dtype=np.int64)
    full = np.flatnonzero(np.diff(edges) > 0)
    if len(full):
        upto = int(edges[-1])
        out[full] = np.maximum.reduceat(values[:upto], edges[:-1][full])
    return out


def _work(result: ServingResult) -> tuple[SlotWork, ...]:
    """Per slot its batches: requests of one batch share slot, begin and end."""
    requests = result.requests
    if not result.slot_busy_ns:
        return ()
    parts = dict(requests.parts)
    stall = sum(
        (parts[name] for name in STALLS if name in parts), np.zeros(len(requests.arrival_ns), dtype=np.int64)
    )
    order = np.lexsort((requests.completion_ns, requests.start_ns, requests.slot))
    slot, begin = requests.slot[order], requests.start_ns[order]
    end, stalled = requests.completion_ns[order], stall[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (slot[1:] != slot[:-1]) | (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    first = np.flatnonzero(new)
    size = np.diff(first, append=len(order)).astype(np.int32)
    cuts = np.searchsorted(slot[first], np.arange(len(result.slot_busy_ns) + 1))
    return tuple(
        SlotWork(begin[first[a:b]], end[first[a:b]], stalled[first[a:b]], size[a:b])
        for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    )
