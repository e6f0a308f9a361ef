"""Kernels of the first estimate: how far copies of a profile slow each other down, and a replay by that table.

Know arrays and scalars only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel


@kernel(
    "float64(int64, int64, float64[::1], float64[::1], boolean[::1], float64, float64, float64[::1], float64[::1],"
    "float64[::1])",
)
def stretch(
    copies: int,
    events: int,
    base: NDArray[np.float64],
    demand: NDArray[np.float64],
    scales: NDArray[np.bool_],
    bandwidth: float,
    loss: float,
    begin: NDArray[np.float64],
    sizes: NDArray[np.float64],
    stalled: NDArray[np.float64],
) -> float:
    """How many times as long work takes while `copies` of one profile run, each anew when it ends.

    Copies that run at rates r do sum(r) / k as much work as they would alone; this is the inverse of that over `events`
    ends of phases. While the demands sum to at most the bandwidth all rates are 1, else ``min(1, level / demand)`` with
    the max-min level.

    Parameters
    ----------
    base, demand, scales : float64[p] ns, float64[p] bytes/ns and bool[p]: the phases; whether sizes multiply them.
    bandwidth, loss : bytes/ns; of it ``1 - loss * (k - 1) / k`` is there under k users.
    begin : float64[copies], where in its first run each copy begins, in [0, 1) of the profile's ns.
    sizes : float64[s], size of each run, taken in turn.
    stalled : float64[p], added to: ns of stalls in each phase.
    """
    phase = np.zeros(copies, np.int64)
    size = np.zeros(copies, np.float64)
    rest = np.zeros(copies, np.float64)
    need = np.zeros(copies, np.float64)
    total = base.sum()
    drawn = 0
    for j in range(copies):
        size[j] = sizes[drawn % sizes.size]
        drawn += 1
        before = begin[j] * total
        while phase[j] < base.size - 1 and before >= base[phase[j]]:
            before -= base[phase[j]]
            phase[j] += 1
        rest[j] = max(0.0, base[phase[j]] - before) * (size[j] if scales[phase[j]] else 1.0)
        need[j] = demand[phase[j]]
    passed, worked = 0.0, 0.0
    for _ in range(events):
        asked, users, step = 0.0, 0, math.inf
        for j in range(copies):
            asked += need[j]
            users += need[j] > 0.0
            step = min(step, rest[j])
        there = bandwidth
        if users > 1:
            there = bandwidth * (1.0 - loss * (users - 1) / users)
        if asked <= there * (1.0 + 1e-12):
            for j in range(copies):
                rest[j] -= step
            worked += copies * step
        else:
            level = there / users
            while True:
                below, more = 0.0, users
                for j in range(copies):
                    fits = 0.0 < need[j] <= level
                    below += need[j] if fits else 0.0
                    more -= fits
                higher = (there - below) / more if more > 0 else level
                if higher <= level:
                    break
                level = higher
            per_level = 1.0 / level
            step = math.inf
            for j in range(copies):
                step = min(step, rest[j] * max(1.0, need[j] * per_level))
            for j in range(copies):
                if need[j] > level:
                    done = step * level / need[j]
                    stalled[phase[j]] += step - done
                else:
                    done = step
                rest[j] -= done
                worked += done
        passed += step
        for j in range(copies):
            while rest[j] <= 1e-6:
                phase[j] += 1
                if phase[j] == base.size:
                    phase[j] = 0
                    size[j] = sizes[drawn % sizes.size]
                    drawn += 1
                rest[j] = base[phase[j]] * (size[j] if scales[phase[j]] else 1.0)
                need[j] = demand[phase[j]]
    return max(1.0, copies * passed / worked)


@kernel(
    "void(int64[::1], int64[::1], float64[::1], int64[::1], int64, int64, int64[::1], int64[::1], int32[::1])"
)
def replay_slowed(
    arrival: NDArray[np.int64],
    service: NDArray[np.int64],
    sigma: NDArray[np.float64],
    edges: NDArray[np.int64],
    num: int,
    den: int,
    start: NDArray[np.int64],
    completion: NDArray[np.int64],
    slot: NDArray[np.int32],
) -> None:
    """First in, first out, through slots that slow each other down alike: with k in service all run at 1 / sigma[k].

    As all in service progress alike, each ends when their common progress reaches its own mark; the marks are kept
    in ascending order. A request that starts in a throttle window takes ``service * num // den``. Ends are rounded up
    to whole ns. Where sigma is 1 throughout, times are those of `replay.replay_shared`, and so are slots unless several
    fall free in one nanosecond.

    Parameters
    ----------
    arrival, service : int64[n] ns, arrival ascending.
    sigma : float64[slots + 1], at least 1; sigma[0] is unused.
    start, completion, slot : int64[n], int64[n], int32[n], filled.
    """
    slots = sigma.size - 1
    mark = np.zeros(slots, np.float64)
    who = np.zeros(slots, np.int64)
    idle = np.arange(slots)  # slots that are free, in order of since when, from `first` on, around the end
    first = 0
    windows = edges.size > 0
    now, progress, busy, following = 0, 0.0, 0, 0
    while following < arrival.size or busy > 0:
        end = 0
        if busy > 0:
            end = now + max(0, math.ceil((mark[0] - progress) * sigma[busy] - 1e-6))
        if busy < slots and following < arrival.size and (busy == 0 or arrival[following] <= end):
            moment = max(now, arrival[following])
            if busy == 0:
                progress = 0.0
            else:
                progress += (moment - now) / sigma[busy]
            now = moment
            needs = service[following]
            if windows and np.searchsorted(edges, now, side="right") % 2 == 1:
                needs = needs * num // den
            reaches = progress + needs
            place = busy
            while place > 0 and mark[place - 1] > reaches:
                mark[place], who[place] = mark[place - 1], who[place - 1]
                place -= 1
            mark[place], who[place] = reaches, following
            busy += 1
            start[following] = now
            slot[following] = idle[first]
            first = first + 1 if first + 1 < slots else 0
            following += 1
            continue
        progress += (end - now) / sigma[busy]
        now = end
        leaves = who[0]
        completion[leaves] = now
        idle[(first + slots - busy) % slots] = slot[leaves]  # one behind the last that is free
        busy -= 1
        for k in range(busy):
            mark[k], who[k] = mark[k + 1], who[k + 1]
        if progress > 1e12:  # 2e-4 ns of float64 are left
            for k in range(busy):
                mark[k] -= progress
            progress = 0.0
