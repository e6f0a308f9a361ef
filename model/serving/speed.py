"""The serving room's rows of ``tilewright bench``: SERVING-MODEL's speed lines, each with its goal.

Everything is drawn from fixed seeds; kernels run once before a clock starts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..measured import Measurement, timed
from .replay import replay_shared
from .tail import percentiles


def rows(rounds: int) -> Iterator[Measurement]:
    """All rows, each of `rounds` samples."""
    yield from _bare(rounds)


def _bare(rounds: int) -> Iterator[Measurement]:
    """First in, first out over four slots, two million requests at rho 0.8."""
    count = 2_000_000
    rng = np.random.default_rng(0)
    service = rng.exponential(4e6, count).astype(np.int64)
    arrival = np.cumsum(rng.exponential(1.25e6, count)).astype(np.int64)
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    slot = np.empty(count, np.int32)
    no_windows = np.empty(0, np.int64)

    def replay() -> None:
        replay_shared(arrival, service, 4, no_windows, 1, 1, begin, end, slot)

    def with_percentiles() -> None:
        replay()
        percentiles(end - arrival)

    for name, work in (("completions stored", replay), ("and four percentiles", with_percentiles)):
        yield _rate(f"first in first out over 4 slots, {name}: requests", count, timed(rounds, work), 5e7)


def _rate(name: str, count: int, seconds: tuple[float, ...], goal: float | None) -> Measurement:
    return Measurement(name, tuple(count / each for each in seconds), goal, "/s", rate=True)
