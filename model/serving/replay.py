"""Kernels that replay requests through slots, first in first out, in integer nanoseconds.

Know arrays and scalars only. Requests are in order of arrival; every slot is free at 0. A request that
starts inside a throttle window takes ``service * num // den``, rounded down, for the whole of it. Windows
come as ``edges``: begin, end, begin, end ..., strictly ascending, so that an odd number of edges at or before
a start means "inside". No part of this looks ahead: request i depends on requests before it alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel

Times = NDArray[np.int64]


@kernel("int64(int64, int64, int64[::1], int64, int64)")
def throttled(start: int, service: int, edges: Times, num: int, den: int) -> int:
    """Service time of a request that starts at `start`; all int64 ns."""
    if np.searchsorted(edges, start, side="right") % 2 == 1:
        return service * num // den
    return service


@kernel("void(int64[::1], int64[::1], int64, int64[::1], int64, int64, int64[::1], int64[::1], int32[::1])")
def replay_shared(
    arrival: Times,
    service: Times,
    slots: int,
    edges: Times,
    num: int,
    den: int,
    start: Times,
    completion: Times,
    slot: NDArray[np.int32],
) -> None:
    """One queue for all slots: request i goes to the slot with the least (free time, index).

    Parameters
    ----------
    arrival, service : int64[n] ns, arrival ascending.
    start, completion, slot : int64[n], int64[n], int32[n], filled.

    The slots are kept sorted by (free time, index): the first is taken, and moves back to its new place.
    """
    free = np.zeros(slots, np.int64)
    index = np.arange(slots)
    windows = edges.size > 0
    for i in range(arrival.size):
        which = index[0]
        begin = max(arrival[i], free[0])
        end = begin + service[i]
        if windows:
            end = begin + throttled(begin, service[i], edges, num, den)
        start[i] = begin
        completion[i] = end
        slot[i] = which
        place = 1
        while place < slots:
            if free[place] > end or (free[place] == end and index[place] > which):
                break
            free[place - 1] = free[place]
            index[place - 1] = index[place]
            place += 1
        free[place - 1] = end
        index[place - 1] = which


@kernel("void(int64[::1], int64[::1], int64, int64[::1], int64, int64, int64[::1], int64[::1], int32[::1])")
def replay_round_robin(
    arrival: Times,
    service: Times,
    slots: int,
    edges: Times,
    num: int,
    den: int,
    start: Times,
    completion: Times,
    slot: NDArray[np.int32],
) -> None:
    """A queue for each slot: request i goes to slot ``i mod slots``. Arguments as `replay_shared`.

    As many slots as requests make a server without a queue.
    """
    free = np.zeros(slots, np.int64)
    windows = edges.size > 0
    for i in range(arrival.size):
        which = i % slots
        begin = max(arrival[i], free[which])
        end = begin + service[i]
        if windows:
            end = begin + throttled(begin, service[i], edges, num, den)
        start[i] = begin
        completion[i] = end
        slot[i] = which
        free[which] = end
