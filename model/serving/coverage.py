"""How often the tail's intervals contain the truth: seeded runs of queues whose percentiles theory knows.

A measurement of `intervals.py`, for ``tilewright bench --coverage``; nothing of the simulation depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .intervals import batch_means, block_bootstrap, relaxation, too_few
from .replay import replay_shared
from .result import PERCENTILES
from .tail import Times

_MEAN_NS = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """M/M/c: Poisson arrivals, exponential service, `slots` slots at utilisation `rho`."""

    rho: float
    slots: int
    requests: int

    @property
    def title(self) -> str:
        """``M/M/1, rho 0.7, 100,000 requests``."""
        return f"M/M/{self.slots}, rho {self.rho:g}, {self.requests:,} requests"


LOADS = (Load(0.7, 1, 100_000), Load(0.9, 1, 100_000), Load(0.8, 4, 100_000), Load(0.9, 1, 1_000_000))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of one percentile under one load, shares over all seeds.

    Attributes
    ----------
    batch_means, block_bootstrap : how many intervals contain the truth, whether or not there are too few requests.
    half_width : of the batch means' intervals, mean, over the truth.
    too_few : how many runs were called too short. given_and_right : of those that were not, the share whose batch
        means contain the truth; None where all were.
    """

    load: str
    percentile: str
    truth_s: float
    batch_means: float
    block_bootstrap: float
    half_width: float
    too_few: float
    given_and_right: float | None


def responses(load: Load, seed: int) -> Times:
    """int64[n] ns: one run from an empty start, in order of arrival; service takes 1 ms on average."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(_MEAN_NS / (load.rho * load.slots), load.requests)
    arrival = np.rint(np.cumsum(gaps)).astype(np.int64)
    service = np.rint(rng.exponential(_MEAN_NS, load.requests)).astype(np.int64)
    start, completion = np.empty_like(arrival), np.empty_like(arrival)
    slot = np.empty(load.requests, dtype=np.int32)
    replay_shared(arrival, service, load.slots, np.empty(0, np.int64), 1, 1, start, completion, slot)
    return completion - arrival


def truth_s(load: Load, share: float) -> float:
    """The percentile of the response in the steady state, by bisection.

    A request waits with Erlang's probability C, then exponentially with rate c - a (a the load in erlangs, service
    rate 1), so with d = c - 1 - a: ``P(response > t) = exp(-t) (1 + C (1 - exp(-d t)) / d)``.
    """
    slots, offered = load.slots, load.rho * load.slots
    top = offered**slots / math.factorial(slots) / (1.0 - load.rho)
    waits = top / (sum(offered**k / math.factorial(k) for k in range(slots)) + top)
    rate = slots - 1.0 - offered

    def beyond(t: float) -> float:
        extra = t if abs(rate) < 1e-12 else -math.expm1(-rate * t) / rate
        return math.exp(-t) * (1.0 + waits * extra)

    low, high = 0.0, 1.0
    while beyond(high) > 1.0 - share:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if beyond(middle) > 1.0 - share else (low, middle)
    return low * _MEAN_NS * 1e-9


def measure(load: Load, seeds: int) -> Iterator[Coverage]:
    """Coverage of p50, p95 and p99 over the seeds 0 to `seeds` - 1."""
    asked = [(name, share) for name, share in PERCENTILES if name != "p999"]
    truth = np.array([truth_s(load, float(share)) for _, share in asked])
    by_batch = np.empty((seeds, len(asked), 2))
    by_block = np.empty_like(by_batch)
    few = np.empty((seeds, len(asked)), dtype=np.bool_)
    for seed in range(seeds):
        response = responses(load, seed)
        relaxed = relaxation(response)
        shares = [share for _, share in asked]
        by_batch[seed] = batch_means(response, shares)
        by_block[seed] = block_bootstrap(response, shares, relaxed)
        few[seed] = [too_few(response.size, relaxed, share) for share in shares]
    right = (by_batch[..., 0] <= truth) & (truth <= by_batch[..., 1])
    resampled = (by_block[..., 0] <= truth) & (truth <= by_block[..., 1])
    for k, (name, _) in enumerate(asked):
        given = ~few[:, k]
        yield Coverage(
            load.title,
            name,
            float(truth[k]),
            float(right[:, k].mean()),
            float(resampled[:, k].mean()),
            float((by_batch[:, k, 1] - by_batch[:, k, 0]).mean() / 2.0 / truth[k]),
            float(few[:, k].mean()),
            float(right[given, k].mean()) if given.any() else None,
        )


def table(found: Sequence[Coverage]) -> list[tuple[str, ...]]:
    """Rows for a person."""
    head = ("load", "", "truth", "batch means", "bootstrap", "half width", "too few", "right where given")
    rows: list[tuple[str, ...]] = [head]
    for row in found:
        given = "-" if row.given_and_right is None else f"{row.given_and_right:.1%}"
        shares = (row.batch_means, row.block_bootstrap, row.half_width, row.too_few)
        rows.append(
            (row.load, row.percentile, f"{row.truth_s * 1e3:.3f} ms", *(f"{s:.1%}" for s in shares), given)
        )
    return rows
