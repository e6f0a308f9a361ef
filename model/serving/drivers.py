"""Which driver a percentile is owed to: Shapley values over all combinations of drivers on and off.

Knows what switching a driver off means for `rules.py`'s values; a replay is handed in, or run in slices. The same
requests are replayed in every combination, so that differences are the drivers' alone. A driver's value is its mean
effect over all orders in which drivers could be switched on (Shapley 1953): it depends on no order, the values sum to
the whole effect exactly, and one may be negative, where a driver relieves others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .exact import Replay
from .rules import Offers, Replayed, Rules, Services
from .tail import exact_sum, rank_of, ranked

BLAMED: tuple[tuple[str, Fraction], ...] = (("p95", Fraction(95, 100)), ("p99", Fraction(99, 100)))


Run = Callable[[Offers, Services, Rules], Replayed]
"""A replay. One that is cancelled raises; nothing is caught here."""


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """What a replay is a function of.

    ``instead``, int32[plans]: the compiled plan in whose place a fallback plan runs, -1 for compiled plans; None where
    nothing falls back to another plan.
    """

    offers: Offers
    services: Services
    rules: Rules
    instead: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Driver:
    """Something that makes responses longer, and the same setting without it.

    Another plan's services make a driver as well: ``Driver("fusion", lambda s: replace(s, services=unfused))``.
    """

    name: str
    off: Callable[[Setting], Setting]


@dataclass(frozen=True, slots=True)
class Coalition:
    """One combination: the drivers that are on, its percentiles, and whether more work comes than can be served.

    ``overloaded`` coalitions (rho >= 1, of all slots, or of the busiest where each has its own line) have percentiles
    that say how long the run was.
    """

    on: tuple[str, ...]
    percentiles_ns: tuple[int, ...]
    overloaded: bool


@dataclass(frozen=True, slots=True)
class Blame:
    """The whole grid and each driver's value.

    Attributes
    ----------
    grid : coalition of bit mask m at place m; bit i is driver i.
    values_ns : (percentile's name, (driver's name, exact ns) each); they sum to the percentile with all on less that
        with all off.
    """

    drivers: tuple[str, ...]
    grid: tuple[Coalition, ...]
    values_ns: tuple[tuple[str, tuple[tuple[str, Fraction], ...]], ...]

    def document(self) -> dict[str, object]:
        """CONTRACT's ``shapley``: seconds by driver, what is left with all off, and the overloaded coalitions."""
        out: dict[str, object] = {}
        for place, (name, values) in enumerate(self.values_ns):
            out[f"{name}_s"] = {driver: float(value) * 1e-9 for driver, value in values}
            out[f"{name}_base_s"] = self.grid[0].percentiles_ns[place] * 1e-9
        out["overloaded"] = [list(coalition.on) for coalition in self.grid if coalition.overloaded]
        return out


def drivers_of(setting: Setting) -> tuple[Driver, ...]:
    """The drivers that the setting has: always queueing; fallback, static partition, throttle, contention."""
    offers, services, rules = setting.offers, setting.services, setting.rules
    there = {
        "queueing": rules.slots is not None,
        "fallback": bool((offers.fallback[:, 0] != offers.fallback[:, 1]).any())
        or (setting.instead is not None and bool((setting.instead[offers.plan] >= 0).any())),
        "static_partition": rules.placement in _PARTITIONED,
        "throttle": rules.heat is not None
        or (rules.throttle_edges_ns is not None and rules.throttle_edges_ns.size > 0),
        "contention": math.isfinite(rules.bandwidth_bytes_per_s)
        and any(profile.bytes > 0 for profile in services.profiles),
    }
    return tuple(Driver(name, _OFF[name]) for name, present in there.items() if present)


_PARTITIONED = ("static", "round-robin")


def _rules(setting: Setting, **changed: object) -> Setting:
    return replace(setting, rules=replace(setting.rules, **changed))


def _without_fallback(setting: Setting) -> Setting:
    offers = replace(setting.offers, fallback=np.ones_like(setting.offers.fallback))
    if setting.instead is not None:
        meant = setting.instead[offers.plan]
        offers = replace(offers, plan=np.where(meant >= 0, meant, offers.plan))
    if offers.generation is not None:
        streams = tuple(replace(each, beyond=(1, 1)) for each in offers.generation.streams)
        offers = replace(offers, generation=replace(offers.generation, streams=streams))
    return replace(setting, offers=offers)


_OFF: dict[str, Callable[[Setting], Setting]] = {
    "queueing": lambda setting: _rules(setting, slots=None),  # a slot for each request
    "fallback": _without_fallback,
    "static_partition": lambda setting: _rules(setting, placement="dynamic"),
    "throttle": lambda setting: _rules(setting, throttle_edges_ns=None, heat=None),
    "contention": lambda setting: _rules(setting, bandwidth_bytes_per_s=math.inf),
}


def switched(setting: Setting, drivers: Sequence[Driver], mask: int) -> Setting:
    """The setting with driver i on where bit i of `mask` is set, and off otherwise."""
    for place, driver in enumerate(drivers):
        if not mask >> place & 1:
            setting = driver.off(setting)
    return setting


def blame(setting: Setting, drivers: Sequence[Driver], run: Run) -> Blame:
    """Replay every combination and split p95 and p99 over the drivers."""
    grid: list[Coalition] = []
    for mask in range(1 << len(drivers)):
        one = switched(setting, drivers, mask)
        grid.append(_coalition(one, drivers, mask, run(one.offers, one.services, one.rules)))
    return _split(drivers, grid)


def blaming(setting: Setting, drivers: Sequence[Driver]) -> Iterator[Blame | None]:
    """`blame` by exact replays in slices: None after each, and the answer in the end."""
    grid: list[Coalition] = []
    for mask in range(1 << len(drivers)):
        one = switched(setting, drivers, mask)
        replay = Replay(one.offers, one.services, one.rules)
        while not replay.step(_SLICE_EVENTS):
            yield None
        grid.append(_coalition(one, drivers, mask, replay.result()))
        yield None
    yield _split(drivers, grid)


_SLICE_EVENTS = 20_000  # with a slot for each request an event costs what there is in service


def _coalition(one: Setting, drivers: Sequence[Driver], mask: int, done: Replayed) -> Coalition:
    response = done.completion_ns - one.offers.arrival_ns
    at = ranked(response, [rank_of(share, response.size) for _, share in BLAMED])
    on = tuple(driver.name for place, driver in enumerate(drivers) if mask >> place & 1)
    return Coalition(on, tuple(at), _overloaded(one, done))


def _split(drivers: Sequence[Driver], grid: Sequence[Coalition]) -> Blame:
    names = tuple(driver.name for driver in drivers)
    values = tuple(
        (name, tuple(zip(names, shapley([one.percentiles_ns[place] for one in grid]), strict=True)))
        for place, (name, _) in enumerate(BLAMED)
    )
    return Blame(names, tuple(grid), values)


def shapley(worth: Sequence[int]) -> tuple[Fraction, ...]:
    """Shapley value of each of n players, exact; ``worth[mask]`` is that of a coalition, 2**n of them.

    ``phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! (worth(S + i) - worth(S))``; they sum to ``worth[-1] -
    worth[0]``.
    """
    players = len(worth).bit_length() - 1
    if len(worth) != 1 << players:
        raise ValueError(f"{len(worth)} coalitions are no power of two")
    orders = [math.factorial(s) * math.factorial(players - s - 1) for s in range(players)]
    return tuple(
        Fraction(
            sum(
                orders[mask.bit_count()] * (worth[mask | 1 << player] - worth[mask])
                for mask in range(len(worth))
                if not mask >> player & 1
            ),
            math.factorial(players),
        )
        for player in range(players)
    )


def _overloaded(setting: Setting, done: Replayed) -> bool:
    """Whether work comes faster than the slots, or the busiest with a line of its own, serve it."""
    rules, arrival = setting.rules, setting.offers.arrival_ns
    span = int(arrival[-1] - arrival[0])
    if rules.slots is None or span == 0:
        return False
    if done.generated is not None:
        busy = done.generated.busy_ns
        return exact_sum(busy) >= rules.slots * span or (
            rules.placement in _PARTITIONED and int(busy.max()) >= span
        )
    work = done.served_ns
    if (done.batch > 1).any():
        work = work // done.batch  # of a batch, each its part
    if rules.placement not in _PARTITIONED:
        return exact_sum(work) >= rules.slots * span
    return float(np.bincount(done.slot, work.astype(np.float64)).max()) >= span
