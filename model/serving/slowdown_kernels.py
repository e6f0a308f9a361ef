"""Kernels of the first estimate: how far copies of a profile slow each other down, and a replay by that table.

Know arrays and scalars only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel

CAUSES = 4
"""Columns of stalls: burst, steady, spill, refetch."""


@kernel(
    "float64(int64, int64, float64[::1], float64[::1], boolean[::1], float64[:,::1], float64, float64, float64[::1],"
    "float64[::1], float64[::1])",
)
def stretch(
    copies: int,
    events: int,
    base: NDArray[np.float64],
    demand: NDArray[np.float64],
    scales: NDArray[np.bool_],
    cause: NDArray[np.float64],
    bandwidth: float,
    loss: float,
    begin: NDArray[np.float64],
    sizes: NDArray[np.float64],
    stalls: NDArray[np.float64],
) -> float:
    """How many times as long work takes while `copies` of one profile run, each anew when it ends.

    Copies that run at rates r do k / sum(r) times as much work alone in the same time; this is that quotient over
    `events` ends of phases. While the demands sum to at most the bandwidth all rates are 1, else ``min(1, level /
    demand)`` with the max-min level.

    Parameters
    ----------
    base, demand, scales : float64[p] ns, float64[p] bytes/ns and bool[p]: the phases; whether sizes multiply them.
    cause : float64[p, CAUSES], the parts of a phase's stall; sum to 1.
    bandwidth, loss : bytes/ns; of it ``1 - loss * (k - 1) / k`` is there under k users.
    begin : float64[copies], where in its first run each copy begins, in [0, 1) of the profile's ns.
    sizes : float64[s], size of each run, taken in turn.
    stalls : float64[CAUSES], filled: the share of each cause of all stalls.
    """
    phase = np.zeros(copies, np.int64)
    size = np.zeros(copies, np.float64)
    rest = np.zeros(copies, np.float64)
    rate = np.ones(copies, np.float64)
    total = base.sum()
    stalls[:] = 0.0
    drawn = 0
    for j in range(copies):
        size[j] = sizes[drawn % sizes.size]
        drawn += 1
        before = begin[j] * total
        while phase[j] < base.size - 1 and before >= base[phase[j]]:
            before -= base[phase[j]]
            phase[j] += 1
        rest[j] = max(0.0, base[phase[j]] - before) * (size[j] if scales[phase[j]] else 1.0)
    passed, worked = 0.0, 0.0
    for _ in range(events):
        asked, users = 0.0, 0
        for j in range(copies):
            asked += demand[phase[j]]
            if demand[phase[j]] > 0.0:
                users += 1
        there = bandwidth
        if users > 1:
            there = bandwidth * (1.0 - loss * (users - 1) / users)
        step = math.inf
        if asked <= there * (1.0 + 1e-12):
            for j in range(copies):
                step = min(step, rest[j])
            for j in range(copies):
                rest[j] -= step
            worked += copies * step
        else:
            level = there / users
            while True:
                below, fit = 0.0, 0
                for j in range(copies):
                    need = demand[phase[j]]
                    if 0.0 < need <= level:
                        below += need
                        fit += 1
                higher = (there - below) / (users - fit) if fit < users else level
                if higher <= level:
                    break
                level = higher
            for j in range(copies):
                need = demand[phase[j]]
                rate[j] = 1.0 if need <= level else level / need
                step = min(step, rest[j] / rate[j])
            for j in range(copies):
                rest[j] -= step * rate[j]
                worked += step * rate[j]
                if rate[j] < 1.0:
                    for which in range(CAUSES):
                        stalls[which] += step * (1.0 - rate[j]) * cause[phase[j], which]
        passed += step
        for j in range(copies):
            while rest[j] <= 1e-6:
                phase[j] += 1
                if phase[j] == base.size:
                    phase[j] = 0
                    size[j] = sizes[drawn % sizes.size]
                    drawn += 1
                rest[j] = base[phase[j]] * (size[j] if scales[phase[j]] else 1.0)
    stalled = stalls.sum()
    if stalled > 0.0:
        stalls /= stalled
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
    to whole ns. Where sigma is 1 throughout, times and slots are those of `replay.replay_shared`.

    Parameters
    ----------
    arrival, service : int64[n] ns, arrival ascending.
    sigma : float64[slots + 1], at least 1; sigma[0] is unused.
    start, completion, slot : int64[n], int64[n], int32[n], filled.
    """
    slots = sigma.size - 1
    mark = np.zeros(slots, np.float64)
    who = np.zeros(slots, np.int64)
    idle = np.arange(
        slots
    )  # slots that are free, in order of (free since, index), from `first` on, around the end
    since = np.zeros(slots, np.int64)
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
        place = (first + slots - busy) % slots  # one behind the last that is free
        busy -= 1
        for k in range(busy):
            mark[k], who[k] = mark[k + 1], who[k + 1]
        index = slot[leaves]
        while place != first:
            before = place - 1 if place > 0 else slots - 1
            if since[before] != now or idle[before] < index:
                break
            idle[place], since[place] = idle[before], since[before]
            place = before
        idle[place], since[place] = index, now
        if progress > 1e12:  # 2e-4 ns of float64 are left
            for k in range(busy):
                mark[k] -= progress
            progress = 0.0
