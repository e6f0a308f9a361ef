"""What a tail is and what it is made of: nearest rank, parts that sum, fairness.

Knows int64 arrays of responses and of their parts; knows nothing of how they came about. Sums and parts are
exact: Python integers and fractions, no float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .result import PERCENTILES, WITHIN, BuildUp
from .tail_kernels import BINS, count_bins, pick_bins

Times = NDArray[np.int64]
Parts = tuple[tuple[str, Times], ...]
Amounts = tuple[tuple[str, int], ...]

_BUSIEST_NS = 60 * 10**9


def rank_of(share: Fraction, count: int) -> int:
    """Nearest rank, 1-based: ``ceil(share * count)``, at least 1."""
    return max(1, math.ceil(share * count))


def exact_sum(values: Times) -> int:
    """Sum of int64 values as a Python integer, whatever its size."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def ranked(values: Times, ranks: Sequence[int]) -> list[int]:
    """The values at 1-based `ranks` in ascending order, exact; values are from 0 on.

    Two passes whatever the number of ranks: count by magnitude, then sort what shares a bin with a rank.
    """
    values = _for_kernels(values)
    counts = np.zeros(BINS, dtype=np.int64)
    count_bins(values, counts)
    below = np.concatenate([[0], np.cumsum(counts)])
    bins = np.searchsorted(below, np.asarray(ranks), side="left") - 1
    wanted = np.zeros(BINS, dtype=np.bool_)
    wanted[bins] = True
    found = np.empty(int(counts[wanted].sum()), dtype=np.int64)
    pick_bins(values, wanted, found)
    found.sort()
    # The picked values of a bin lie after those of the wanted bins before it.
    before = np.concatenate([[0], np.cumsum(np.where(wanted, counts, 0))])
    return [int(found[before[at] + rank - 1 - below[at]]) for rank, at in zip(ranks, bins, strict=True)]


def percentiles(response: Times) -> list[int]:
    """The response in ns at each of `PERCENTILES`, nearest rank."""
    return ranked(response, [rank_of(share, response.size) for _, share in PERCENTILES])


def _for_kernels(values: Times) -> Times:
    """The same values as kernels take them: one piece, writable (a copy where they are not)."""
    return values if values.flags.c_contiguous and values.flags.writeable else values.copy()


def parts_at(rank: int, response: Times, parts: Parts) -> Amounts:
    """Parts of the response of 1-based `rank`, in whole ns; they sum to it exactly.

    With h = max(1, n // 200), parts are averaged over the ranks [r-h, r] and over [r, r+h], clipped to 1..n,
    and mixed by the lambda that makes the mixture of the two mean responses equal the response at r. That is
    far less noisy than the one request at r. Rounded by largest remainder. Ranks of equal responses ascend in order
    of arrival.

    Parameters
    ----------
    parts : (name, int64[n]) each; those of `WITHIN` are not part of the sum.
    """
    half = max(1, response.size // 200)
    lowest, highest = max(1, rank - half), min(response.size, rank + half)
    least, value, most = ranked(response, (lowest, rank, highest))
    near = np.flatnonzero((response >= least) & (response <= most))
    near = near[np.argsort(response[near], kind="stable")]
    near = near[lowest - 1 - int(np.count_nonzero(response < least)) :]
    low, high = near[: rank - lowest + 1], near[rank - lowest : highest - lowest + 1]
    few, many = low.size, high.size
    below, above = exact_sum(response[low]), exact_sum(response[high])
    over, span = value * few * many - below * many, above * few - below * many  # lambda = over / span
    if span == 0:
        over, span = 0, 1
    shares = [
        (name, (span - over) * lower * many + over * upper * few)
        for (name, _), lower, upper in zip(parts, _sums(parts, low), _sums(parts, high), strict=True)
    ]
    return _in_whole_ns(shares, span * few * many, value)


def _sums(parts: Parts, requests: NDArray[np.intp]) -> list[int]:
    """The exact sum of each part over some requests."""
    chosen = np.array([part[requests] for _, part in parts])
    tops, rests = (chosen >> 32).sum(axis=1), (chosen & 0xFFFFFFFF).sum(axis=1)
    return [(top << 32) + rest for top, rest in zip(tops.tolist(), rests.tolist(), strict=True)]


def parts_of_mean(response: Times, parts: Parts) -> Amounts:
    """Mean parts in whole ns; they sum to the mean response, rounded half up, exactly."""
    count = response.size
    total = (2 * exact_sum(response) + count) // (2 * count)
    return _in_whole_ns([(name, exact_sum(part)) for name, part in parts], count, total)


def _in_whole_ns(shares: Sequence[tuple[str, int]], of: int, total: int) -> Amounts:
    """Shares, each a numerator over ``of``, rounded by largest remainder to sum to `total`; a part within another at
    most that.
    """
    summed = [name for name, _ in shares if name not in WITHIN]
    floors = {name: share // of for name, share in shares}
    remainder = {name: share % of for name, share in shares}
    missing = total - sum(floors[name] for name in summed)
    for name in sorted(summed, key=lambda name: -remainder[name])[:missing]:
        floors[name] += 1
    for name, outer in WITHIN.items():
        if name in floors:
            floors[name] = min(floors[name], floors[outer])
    return tuple((name, floors[name]) for name, _ in shares)


def waiting_beside_idle(arrival: Times, start: Times, completion: Times, slots: int) -> Times:
    """int64[n] ns: how much of each request's wait another slot stood idle (the queue's imbalance).

    A waiting request's own slot is busy, so that "some slot is idle" means one of the others. Let F(t) be
    the time before t with fewer than `slots` in service; the answer is ``F(start) - F(arrival)``.
    """
    times = np.concatenate([start, completion])
    order = np.argsort(times, kind="stable")
    busy = np.cumsum(np.where(order < start.size, 1, -1))
    times = times[order]
    idle = (busy < slots).astype(np.int64)  # from times[k] to times[k + 1]
    passed = np.concatenate([[0], np.cumsum(np.diff(times) * idle[:-1])])

    def idle_before(moment: Times) -> Times:
        last = np.searchsorted(times, moment, side="right") - 1
        # Before the first start every slot is idle; the difference needs no common origin but continuity.
        return np.where(last < 0, moment - times[0], passed[last] + (moment - times[last]) * idle[last])

    return np.asarray(idle_before(start) - idle_before(arrival), dtype=np.int64)


def build_up(arrival: Times, start: Times) -> BuildUp:
    """When the queue built up; exact. A request waits in [arrival, start), so one that starts at once never does.

    Parameters
    ----------
    arrival, start : int64[n] ns, `arrival` ascending.
    """
    span = int(arrival[-1] - arrival[0])
    window = min(_BUSIEST_NS, max(1, span // 10)) if span else 0
    in_window = np.searchsorted(arrival, arrival + max(1, window)) - np.arange(arrival.size)
    busiest = int(np.argmax(in_window))
    of_arrivals = int(in_window[busiest]), int(arrival[busiest]), window

    waits = start > arrival
    came, left = arrival[waits], start[waits]
    if came.size == 0:
        return BuildUp(0, int(arrival[0]), 0, int(arrival[0]), *of_arrivals)
    # The queue is longest right after an arrival: those that came until then less those that left until then.
    waiting = np.arange(1, came.size + 1) - np.searchsorted(np.sort(left), came, side="right")
    peak = int(np.argmax(waiting))
    # A stretch ends where the next one to wait comes later than all before it have left.
    emptied = np.maximum.accumulate(left)
    first = np.flatnonzero(np.concatenate([[True], came[1:] > emptied[:-1]]))
    lengths = emptied[np.append(first[1:] - 1, came.size - 1)] - came[first]
    longest = int(np.argmax(lengths))
    return BuildUp(
        int(waiting[peak]),
        int(came[peak]),
        int(lengths[longest]),
        int(came[first[longest]]),
        *of_arrivals,
    )


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index ``(sum x)**2 / (n sum x**2)``; 1.0 where nobody has anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
