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

# Placements of `replay_placed`.
ANY, OWN, TURN, OWN_FIRST = range(4)


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


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64, boolean[:,::1], int64[:,:,::1], int64[::1], int64, int64,"
    "int64[::1], int64[::1], int32[::1])"
)
def replay_placed(
    arrival: Times,
    service: Times,
    stream: Times,
    placement: int,
    home: NDArray[np.bool_],
    off_home: Times,
    edges: Times,
    num: int,
    den: int,
    start: Times,
    completion: Times,
    slot: NDArray[np.int32],
) -> None:
    """One queue, slots by placement, times by slot: what `replay_shared` is too simple for.

    Requests in order of arrival fix their slots one after the other: nobody overtakes, so that who comes later cannot
    change when a slot falls free for who came before.

    Parameters
    ----------
    stream : int64[n], row of `home` and `off_home`.
    placement : `ANY`: the least (free time, index); `OWN`: the same of the stream's own; `TURN`: request i goes to slot
        ``i mod slots``; `OWN_FIRST`: of those that are free first, or free already, the lowest of the stream's
        own, else the lowest.
    home : bool[streams, slots]. off_home : int64[streams, slots, 2] num, den, rounded down, before throttling.
    """
    slots = home.shape[1]
    free = np.zeros(slots, np.int64)
    for i in range(arrival.size):
        s = stream[i]
        which = -1
        if placement == TURN:
            which = i % slots
        elif placement == OWN_FIRST:
            begin = max(arrival[i], free.min())
            for j in range(slots):
                if free[j] <= begin and (which < 0 or (home[s, j] and not home[s, which])):
                    which = j
        else:
            for j in range(slots):
                if (placement == ANY or home[s, j]) and (which < 0 or free[j] < free[which]):
                    which = j
        begin = max(arrival[i], free[which])
        takes = service[i]
        if off_home[s, which, 0] != off_home[s, which, 1]:
            takes = takes * off_home[s, which, 0] // off_home[s, which, 1]
        if edges.size > 0:
            takes = throttled(begin, takes, edges, num, den)
        start[i] = begin
        completion[i] = begin + takes
        slot[i] = which
        free[which] = begin + takes
