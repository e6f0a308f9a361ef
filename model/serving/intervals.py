"""How far a percentile of a run can be trusted: intervals that respect autocorrelation, and "too few requests".

Knows int64 arrays of responses in order of arrival; knows nothing of how they came about, and no utilisation:
everything is measured on the responses themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .result import PERCENTILES
from .tail import Times, rank_of, ranked
from .tail_kernels import resampled_ranks

BATCH_MEANS, BLOCK_BOOTSTRAP = "batch means", "block bootstrap"

_BATCHES = 20
_STUDENT_T = 2.093  # two-sided 95 %, 19 degrees of freedom
_ENOUGH = 650.0  # relaxation times for p95, see `too_few`
_BEYOND = 100.0  # requests beyond the percentile
_BLOCK = 10.0  # relaxation times in a block
_FEWEST_BLOCKS = 20
_REPETITIONS = 399
_LONGEST_SERIES = 1 << 20


@dataclass(frozen=True, slots=True)
class Intervals:
    """What a run says of the process behind it.

    Attributes
    ----------
    method : `BATCH_MEANS` around the percentiles of one run of a process; `BLOCK_BOOTSTRAP` where a recorded trace
        stands for others like it (of the trace itself the percentiles are exact).
    bounds_s : (name, (low, high)) of each percentile that has an interval of 95 %, in seconds.
    too_few : names of the percentiles for which the requests are too few, so that they have none.
    """

    method: str
    bounds_s: tuple[tuple[str, tuple[float, float]], ...]
    too_few: tuple[str, ...]


def intervals(response: Times, recorded: bool, *, bounded: bool = True) -> Intervals:
    """Intervals of `PERCENTILES` from one run's responses in ns, in order of arrival.

    ``bounded``: False where only `Intervals.too_few` is asked for: bounds of what sampling leaves open would say
    nothing of how far an estimate is off.
    """
    relaxed = relaxation(response)
    few = tuple(name for name, share in PERCENTILES if too_few(response.size, relaxed, share))
    names = [name for name, _ in PERCENTILES if name not in few]
    shares = [share for name, share in PERCENTILES if name not in few]
    if not bounded:
        names, bounds = [], []
    elif not shares:
        bounds = []
    elif recorded:
        bounds = block_bootstrap(response, shares, relaxed)
    else:
        bounds = batch_means(response, shares)
    method = BLOCK_BOOTSTRAP if recorded else BATCH_MEANS
    return Intervals(method, tuple(zip(names, bounds, strict=True)), few)


def relaxation(response: Times) -> float:
    """How many consecutive requests count as one independent one: ``1 + 2 sum of autocorrelations``.

    The sum stops at the first lag of at least five times its value (Sokal's self-consistent window). For
    M/M/1 it is close to the relaxation time in requests. Longer series are judged by their first 2**20.
    """
    series = response[:_LONGEST_SERIES].astype(np.float64)
    series -= series.mean()
    variance = float((series * series).sum())  # no BLAS: its threads cost more than the sum
    if variance == 0.0:
        return 1.0
    spectrum = np.fft.rfft(series, 1 << (2 * series.size - 1).bit_length())
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[: series.size] / variance
    sums = 2.0 * np.cumsum(correlation) - 1.0
    stop = np.flatnonzero(np.arange(sums.size) >= 5.0 * sums)
    return max(1.0, float(sums[stop[0]] if stop.size else sums[-1]))


def too_few(count: int, relaxed: float, share: Fraction) -> bool:
    """Whether `count` requests are too few to give a percentile an interval.

    Our rule: at least 650 relaxation times for p95, more for a rarer event in proportion to its standard error,
    ``650 sqrt(0.05 / (1 - p))``; and 100 requests beyond the percentile. M/M/1 at rho 0.9 has 340 relaxation times in
    100,000 requests, which leave p95 open by a quarter, and 2,900 in a million (docs/serving-statistics.md).
    """
    rare = float(1 - share)
    return count * rare < _BEYOND or count < _ENOUGH * relaxed * math.sqrt(0.05 / rare)


def batch_means(response: Times, shares: list[Fraction]) -> list[tuple[float, float]]:
    """95 % intervals in seconds of percentiles of steady load, by 20 contiguous batches.

    The share of responses beyond the run's percentile has a mean and a spread over the batches, so that Student's t
    says which other shares are as likely; the interval lies between the percentiles of these (Woodruff 1952). In the
    tail that is better than the spread of the batches' own percentiles: a batch that has missed the rare long queues
    does not know how far they reach, but its share of them is 0. Few batches have most of what lies beyond; as
    estimates that are too low come with spreads that are too low, the upper end is moved out by their skewness
    (Johnson 1978). The lower end stays, on the safe side.

    (An order-statistic interval would ignore autocorrelation and contain the truth in 9 to 28 % of cases.)
    """
    count = response.size
    bounds: list[int] = []
    batches = np.array_split(response, _BATCHES)
    for share, at in zip(shares, _at(response, shares), strict=True):
        beyond = np.array([np.count_nonzero(batch > at) / batch.size for batch in batches])
        off, spread = beyond - beyond.mean(), float(beyond.std())
        error = float(beyond.std(ddof=1)) / math.sqrt(_BATCHES)
        skewness = float((off**3).mean()) / spread**3 if spread else 0.0
        half = _STUDENT_T * error
        out = error * max(0.0, skewness) * (1.0 + 2.0 * _STUDENT_T**2) / (6.0 * math.sqrt(_BATCHES))
        rank = rank_of(share, count)
        bounds += [max(1, rank - round(half * count)), min(count, rank + round((half + out) * count))]
    ends = [time * 1e-9 for time in ranked(response, bounds)]
    return list(zip(ends[::2], ends[1::2], strict=True))


def block_bootstrap(response: Times, shares: list[Fraction], relaxed: float) -> list[tuple[float, float]]:
    """95 % intervals in seconds by drawing contiguous blocks of the series anew (Carlstein 1986).

    Blocks of ten relaxation times, but at least 20 of them; the middle 95 % of 399 repetitions, drawn from
    ``default_rng(0)``: the same trace always has the same interval.
    """
    count = response.size
    blocks = min(count, max(_FEWEST_BLOCKS, int(count / (_BLOCK * relaxed))))
    of_request = (np.arange(count) * blocks // count).astype(np.int32)
    order = np.argsort(response, kind="stable")
    falling = sorted(shares, reverse=True)
    at = np.empty((_REPETITIONS, len(falling)), dtype=np.int64)
    resampled_ranks(
        of_request[order],
        np.bincount(of_request, minlength=blocks),
        np.random.default_rng(0).integers(0, blocks, (_REPETITIONS, blocks), dtype=np.int32),
        np.array([(share.numerator, share.denominator) for share in falling], dtype=np.int64),
        at,
    )
    at.sort(axis=0)
    edge = round(0.025 * (_REPETITIONS + 1))
    low, high = response[order[at[edge - 1]]], response[order[at[-edge]]]
    bounds = dict(zip(falling, _seconds(low, high), strict=True))
    return [bounds[share] for share in shares]


def _at(response: Times, shares: list[Fraction]) -> list[int]:
    return ranked(response, [rank_of(share, response.size) for share in shares])


def _seconds(low: NDArray[np.generic], high: NDArray[np.generic]) -> list[tuple[float, float]]:
    return [(float(a) * 1e-9, float(b) * 1e-9) for a, b in zip(low, high, strict=True)]
