"""The serving room's rows of ``tilewright bench``: SERVING-MODEL's speed lines, each with its goal.

Everything is drawn from fixed seeds; kernels run once before a clock starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..cost.result import PHASE_DTYPE, PHASE_KINDS
from ..measured import Measurement, timed
from .drivers import Setting, blame, drivers_of
from .exact import alone_ns, replay
from .replay import OWN_FIRST, replay_placed, replay_shared
from .result import ServiceProfile
from .rules import Offers, Replayed, Rules, Services, StreamRules
from .slowdown import SlowdownTables, first_estimate, slowdown
from .slowdown_kernels import replay_slowed
from .tail import percentiles
from .whatif import Limit, highest_rate

_SLOTS = 8
_BANDWIDTH = 68e9
_REQUESTS = 12_000


def rows(rounds: int) -> Iterator[Measurement]:
    """All rows, each of `rounds` samples."""
    yield from _bare(rounds)
    yield from _all_drivers(rounds)
    yield from _first_estimates(rounds)
    yield from _exact(rounds)
    yield from _questions(rounds)


def _bare(rounds: int) -> Iterator[Measurement]:
    """First in, first out over four slots, two million requests at rho 0.8."""
    count = 2_000_000
    rng = np.random.default_rng(0)
    service = rng.exponential(4e6, count).astype(np.int64)
    arrival = np.cumsum(rng.exponential(1.25e6, count)).astype(np.int64)
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    slot = np.empty(count, np.int32)
    no_windows = np.empty(0, np.int64)

    def plain() -> None:
        replay_shared(arrival, service, 4, no_windows, 1, 1, begin, end, slot)

    def with_percentiles() -> None:
        plain()
        percentiles(end - arrival)

    for name, work in (("completions stored", plain), ("and four percentiles", with_percentiles)):
        yield _rate(f"first in first out over 4 slots, {name}: requests", count, timed(rounds, work), 5e7)


def _all_drivers(rounds: int) -> Iterator[Measurement]:
    """Two streams with home slots, off-home cost, fallback, throttle windows and sizes; a million requests."""
    count = 1_000_000
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1.0e6, count)).astype(np.int64)
    falls = rng.random(count) < 0.1
    offers = replace(
        Offers.of_one_stream(arrival, size=rng.gamma(4.0, 0.25, count)),
        stream=(rng.random(count) < 0.3).astype(np.int32),
        fallback=np.where(falls[:, None], [3, 1], [1, 1]),
    )
    off_home = np.array([[[1, 1], [1, 1], [6, 5], [6, 5]], [[6, 5], [6, 5], [1, 1], [1, 1]]])
    minute = 60 * 10**9
    rules = Rules(
        4,
        (StreamRules(home=(0, 1)), StreamRules(home=(2, 3))),
        placement="home-first",
        off_home=off_home,
        throttle_edges_ns=np.arange(10, dtype=np.int64) * minute,
        throttle=(7, 5),
    )
    services = Services.of_times(np.array([[0, 2_200_000]]))
    service = alone_ns(offers, services) * offers.fallback[:, 0] // offers.fallback[:, 1]
    home = np.array([[True, True, False, False], [False, False, True, True]])
    stream, edges = offers.stream.astype(np.int64), np.array(rules.throttle_edges_ns)
    begin, end, slot = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int32)

    def bare() -> None:
        replay_placed(arrival, service, stream, OWN_FIRST, home, off_home, edges, 7, 5, begin, end, slot)

    yield _rate("replay with all drivers but contention: requests", count, timed(rounds, bare), 1e7)
    seconds = timed(rounds, lambda: replay(offers, services, rules))
    yield _rate("the same with all parts of every request: requests", count, seconds, None)


def _profile(phases: int, repeat: int) -> ServiceProfile:
    """A request of 5 ms, of launches, loads above a slot's fair share of the bandwidth, and computation."""
    rng = np.random.default_rng(1)
    rows = np.zeros(phases, PHASE_DTYPE)
    kinds = np.array(
        [PHASE_KINDS.index(kind) for kind in ("launch", "first", "steady", "cold", "steady", "last")]
    )
    rows["kind"] = np.resize(kinds, phases)
    weight = rng.random(phases) + 0.2
    rows["base_ns"] = np.rint(weight / weight.sum() * 5e6 / repeat)
    demand = np.resize([0.0, 20.0, 4.0, 24.0, 0.0, 20.0], phases)  # bytes/ns; 8.5 is a slot's fair share
    rows["bytes"] = np.rint(rows["base_ns"] * demand)
    return ServiceProfile(rows, repeat, _SLOTS, _BANDWIDTH)


def _load(profile: ServiceProfile) -> Setting:
    """Poisson 640/s with sizes of 5 %, as in the mini case."""
    arrival = np.cumsum(np.random.default_rng(0).exponential(1e9 / 640.0, _REQUESTS)).astype(np.int64)
    size = np.random.default_rng(1000).gamma(400.0, 1.0 / 400.0, _REQUESTS)
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (profile,))
    rules = Rules(_SLOTS, bandwidth_bytes_per_s=_BANDWIDTH)
    return Setting(Offers.of_one_stream(arrival, size=size), services, rules)


def _first_estimates(rounds: int) -> Iterator[Measurement]:
    profile = _profile(36, 12)
    seconds = timed(rounds, lambda: slowdown(profile.phases, _SLOTS, _BANDWIDTH))
    yield Measurement("slowdown table of 36 phases and 8 slots", seconds, 0.008)

    setting = _load(profile)
    given, tables = (setting.offers, setting.services, setting.rules), SlowdownTables()
    seconds = timed(rounds, lambda: first_estimate(*given, SlowdownTables()))
    yield Measurement("first estimate of 12,000 requests, table and parts included", seconds, 0.010)

    count = 1_000_000
    rng = np.random.default_rng(0)
    service = rng.gamma(400.0, 5e6 / 400.0, count).astype(np.int64)
    arrival = np.cumsum(rng.exponential(1e9 / 1_000.0, count)).astype(np.int64)
    sigma = np.array(tables.of(profile, setting.rules).sigma)
    begin, end, slot = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int32)
    none = np.empty(0, np.int64)
    seconds = timed(rounds, lambda: replay_slowed(arrival, service, sigma, none, 1, 1, begin, end, slot))
    yield _rate("replay by a slowdown table over 8 slots: requests", count, seconds, 1e7)


def _exact(rounds: int) -> Iterator[Measurement]:
    setting = _load(_profile(25, 12))
    seconds = timed(rounds, lambda: replay(setting.offers, setting.services, setting.rules))
    yield Measurement("exact contention, 12,000 requests of 300 phases", seconds, 0.4)
    yield _rate("exact contention: ends of phases", _REQUESTS * 300, seconds, 1e7)


def _questions(rounds: int) -> Iterator[Measurement]:
    """The grid of drivers without contention, and the highest rate within an objective."""
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1.25e6, _REQUESTS)).astype(np.int64)
    falls = rng.random(_REQUESTS) < 0.05
    offers = replace(
        Offers.of_one_stream(arrival, size=rng.gamma(4.0, 0.25, _REQUESTS)),
        fallback=np.where(falls[:, None], [3, 1], [1, 1]),
    )
    windows = np.array([2, 5], np.int64) * 10**9
    rules = Rules(_SLOTS, placement="round-robin", throttle_edges_ns=windows, throttle=(7, 5))
    setting = Setting(offers, Services.of_times(np.array([[0, 5_000_000]])), rules)
    drivers = drivers_of(setting)
    seconds = timed(rounds, lambda: blame(setting, drivers, replay))
    yield Measurement("grid of 16 combinations of drivers, 12,000 requests", seconds, 0.033)

    contended = _load(_profile(36, 12))
    limit, rates = Limit("p95", 12_000_000), [100.0 * k for k in range(1, 17)]

    def search() -> None:
        tables = SlowdownTables()

        def estimate(offers: Offers, services: Services, rules: Rules) -> Replayed:
            return first_estimate(offers, services, rules, tables)

        highest_rate(contended, estimate, limit, rates)

    yield Measurement("highest rate within an objective, by first estimates", timed(rounds, search), 1.0)


def _rate(name: str, count: int, seconds: tuple[float, ...], goal: float | None) -> Measurement:
    return Measurement(name, tuple(count / each for each in seconds), goal, "/s", rate=True)
