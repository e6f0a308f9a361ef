"""What if: the same requests at other rates, batches, placements and arrivals, each replayed and compared.

Knows how a setting is changed and how curves are read (knee, break-even, highest rate, what breaks first); a replay is
handed in, so that all of it runs on the first estimate as well as on the exact replay. Nothing here is smoothed or
fitted: every point is a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .drivers import Run, Setting
from .exact import Replay
from .result import PERCENTILES, WITHIN
from .rules import PARTS, StreamRules, dynamic_energy_j
from .tail import exact_sum, parts_at, percentiles, rank_of

_NAMES = tuple(name for name, _ in PERCENTILES)
_LARGEST_FACTOR = 64.0


@dataclass(frozen=True, slots=True)
class Point:
    """One replay.

    Attributes
    ----------
    rate_per_s : mean rate of arrivals, n over first to last. throughput_rps : n over first arrival to last completion.
    energy_j : per request, static power apart; 0 where no profile says any.
    utilisation : work over slots and time between first and last arrival; 0 for unlimited slots.
    percentiles_ns : of `PERCENTILES`. parts : (name, ns) that sum to the percentile that is judged.
    """

    rate_per_s: float
    throughput_rps: float
    energy_j: float
    utilisation: float
    percentiles_ns: tuple[int, ...]
    parts: tuple[tuple[str, int], ...]

    def at(self, percentile: str) -> int:
        """Ns of one of `PERCENTILES`, by name."""
        return self.percentiles_ns[_NAMES.index(percentile)]

    def document(self) -> dict[str, Any]:
        """As JSON: seconds, and parts in whole ns."""
        out = {key: value for key, value in asdict(self).items() if key not in ("percentiles_ns", "parts")}
        out |= {f"{name}_s": value * 1e-9 for name, value in zip(_NAMES, self.percentiles_ns, strict=True)}
        return out | {"parts_ns": dict(self.parts)}


@dataclass(frozen=True, slots=True)
class Limit:
    """An objective: this percentile within this time."""

    percentile: str
    response_ns: int

    def met(self, point: Point) -> bool:
        """Whether the point keeps to it."""
        return point.at(self.percentile) <= self.response_ns


def measure(setting: Setting, run: Run, percentile: str = "p95") -> Point:
    """Replay a setting; `percentile` is the one whose parts are told."""
    offers, rules = setting.offers, setting.rules
    done = run(offers, setting.services, rules)
    arrival, count = offers.arrival_ns, offers.arrival_ns.size
    response = done.completion_ns - arrival
    first, span = int(arrival[0]), int(arrival[-1] - arrival[0])
    whole = int(done.completion_ns.max()) - first
    if done.generated is not None:
        work = exact_sum(done.generated.busy_ns)
    else:
        work = exact_sum(done.served_ns // done.batch)
    rank = rank_of(dict(PERCENTILES)[percentile], count)
    return Point(
        count * 1e9 / span if span else 0.0,
        count * 1e9 / whole if whole else 0.0,
        float(dynamic_energy_j(offers, setting.services, done).mean()),
        work / (rules.slots * span) if rules.slots is not None and span else 0.0,
        tuple(percentiles(response)),
        parts_at(rank, response, done.parts),
    )


# ---------------------------------------------------------------- settings like this one


def at_rate(setting: Setting, rate_per_s: float) -> Setting:
    """Arrivals stretched in time, their rhythm kept, so that n of them take n / rate seconds; rounded down to ns."""
    arrival = setting.offers.arrival_ns
    since = arrival - arrival[0]
    stretch = arrival.size * 1e9 / (rate_per_s * max(1, int(since[-1])))
    return _arriving(setting, np.floor(since * stretch).astype(np.int64))


def as_poisson(setting: Setting, seed: int = 0) -> Setting:
    """The same requests in the same order, arriving as a Poisson process of the same rate: ``default_rng(seed)``."""
    arrival = setting.offers.arrival_ns
    gaps = np.random.default_rng(seed).exponential(int(arrival[-1] - arrival[0]) / arrival.size, arrival.size)
    return _arriving(setting, np.rint(np.cumsum(gaps)).astype(np.int64))


def _arriving(setting: Setting, arrival_ns: np.ndarray) -> Setting:
    return replace(setting, offers=replace(setting.offers, arrival_ns=arrival_ns))


def with_batches(setting: Setting, batch: int, linger_ns: int) -> Setting:
    """At most `batch` requests of a stream together, the oldest waiting at most `linger_ns` for the others."""

    def changed(stream: StreamRules) -> StreamRules:
        return replace(stream, batch=batch, linger_ns=linger_ns)

    return _streams(setting, changed)


def _streams(setting: Setting, changed: Callable[[StreamRules], StreamRules]) -> Setting:
    rules = setting.rules
    return replace(setting, rules=replace(rules, streams=tuple(changed(stream) for stream in rules.streams)))


def placed(setting: Setting, placement: str, off_home: Fraction = Fraction(1)) -> Setting:
    """The streams' home slots with another placement, and a factor on the time of what runs elsewhere."""
    rules = setting.rules
    factors = None
    if off_home != 1 and rules.slots is not None:
        factors = np.empty((len(rules.streams), rules.slots, 2), np.int64)
        factors[:] = off_home.numerator, off_home.denominator
        for index, stream in enumerate(rules.streams):
            factors[index, list(stream.home)] = 1, 1
    return replace(setting, rules=replace(rules, placement=placement, off_home=factors))


# ---------------------------------------------------------------- curves and what they say


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Load against latency, by ascending rate.

    ``knee`` is the place of the largest rate over percentile (Kleinrock's power, 1979): beyond it a per cent more load
    costs more than a per cent of latency.
    """

    percentile: str
    points: tuple[Point, ...]
    knee: int

    def document(self) -> dict[str, Any]:
        """An entry of CONTRACT's ``whatif[]``."""
        return {
            "kind": "load",
            "percentile": self.percentile,
            "points": [point.document() for point in self.points],
            "knee_rate_per_s": self.points[self.knee].rate_per_s,
        }


def load_curve(
    setting: Setting, run: Run, rates_per_s: Sequence[float], percentile: str = "p95"
) -> LoadCurve:
    """Replays at each rate."""
    points = tuple(measure(at_rate(setting, rate), run, percentile) for rate in sorted(rates_per_s))
    power = [point.rate_per_s / max(1, point.at(percentile)) for point in points]
    return LoadCurve(percentile, points, int(np.argmax(power)))


@dataclass(frozen=True, slots=True)
class Batching:
    """One row of the batch and linger sweep; ``within``: whether it keeps to the objective."""

    batch: int
    linger_ns: int
    point: Point
    within: bool


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Throughput, energy and tail by largest batch and linger."""

    limit: Limit
    rows: tuple[Batching, ...]

    def document(self) -> dict[str, Any]:
        """An entry of CONTRACT's ``whatif[]``."""
        return {
            "kind": "batch",
            **_limit_document(self.limit),
            "points": [
                {"batch": row.batch, "linger_s": row.linger_ns * 1e-9, "within": row.within}
                | row.point.document()
                for row in self.rows
            ],
        }


def batch_sweep(
    setting: Setting, run: Run, batches: Sequence[int], lingers_ns: Sequence[int], limit: Limit
) -> BatchSweep:
    """Every largest batch with every linger; a batch of one waits for nobody, so it has one row."""
    rows: list[Batching] = []
    for batch in batches:
        for linger in lingers_ns if batch > 1 else (0,):
            point = measure(with_batches(setting, batch, linger), run, limit.percentile)
            rows.append(Batching(batch, linger, point, limit.met(point)))
    return BatchSweep(limit, tuple(rows))


@dataclass(frozen=True, slots=True)
class HighestRate:
    """The highest rate within an objective.

    Attributes
    ----------
    point : at that rate; None where even the lowest rate misses.
    beyond : at the lowest rate found to miss above it; None where every rate tried keeps to the objective.
    tried : how many rates were replayed.
    """

    limit: Limit
    point: Point | None
    beyond: Point | None
    tried: int

    def document(self) -> dict[str, Any]:
        """An entry of CONTRACT's ``whatif[]``."""
        return {
            "kind": "highest_rate",
            **_limit_document(self.limit),
            "rate_per_s": self.point.rate_per_s if self.point else None,
            "point": self.point.document() if self.point else None,
            "beyond": self.beyond.document() if self.beyond else None,
            "tried": self.tried,
        }


_HALVINGS = 14


def reaching_down(setting: Setting, run: Run, limit: Limit, rates_per_s: Sequence[float]) -> list[float]:
    """The rates, and below them halves of the lowest until one keeps to the objective, fourteen at most.

    A bursty trace may miss an objective at a hundredth of what its slots could do on average.
    """
    lower: list[float] = []
    lowest = min(rates_per_s)
    while len(lower) < _HALVINGS and not _holds(
        measure(at_rate(setting, lowest), run, limit.percentile), limit
    ):
        lowest /= 2.0
        lower.insert(0, lowest)
    return [*lower, *rates_per_s]


def highest_rate(
    setting: Setting, run: Run, limit: Limit, rates_per_s: Sequence[float], within: float = 0.002
) -> HighestRate:
    """The grid's last rate that keeps to the objective, then bisection towards the next one.

    With linger the percentile is not monotone in the rate, so that bisection alone could end in an earlier gap. A rate
    at or above capacity counts as a miss whatever a finite run's percentile says. `within`: relative width at the end.
    """
    known: dict[float, Point] = {}

    def holds(rate: float) -> bool:
        known[rate] = measure(at_rate(setting, rate), run, limit.percentile)
        return _holds(known[rate], limit)

    low, high = last_good(sorted(rates_per_s), holds, within)
    return HighestRate(
        limit,
        None if low is None else known[low],
        None if high is None else known[high],
        len(known),
    )


_SLICE_EVENTS = 50_000  # some milliseconds
_DOWN = 0.02
"""The first step down from a rate that an estimate took for good; each further one is twice as wide."""


def confirmed(
    setting: Setting, found: HighestRate, within: float = 0.005
) -> Generator[None, None, HighestRate]:
    """What a search by the first estimate found, held against exact replays, in slices.

    The estimate's percentiles are some per cent off. A rate that holds exactly is kept, though a higher one might as
    well. Where it misses, lower ones are tried until one holds, and between the two bisection.
    """
    limit, tried = found.limit, found.tried

    def exactly(rate: float) -> Generator[None, None, Point]:
        nonlocal tried
        tried += 1
        at = at_rate(setting, rate)
        replay = Replay(at.offers, at.services, at.rules)
        while not replay.step(_SLICE_EVENTS):
            yield
        done = replay.result()
        return measure(at, lambda *_: done, limit.percentile)

    if found.point is None:
        return found
    rate, step = found.point.rate_per_s, _DOWN
    good, bad = (yield from exactly(rate)), found.beyond
    while not _holds(good, limit):
        if step > 1.0:
            return HighestRate(limit, None, good, tried)
        bad, rate, step = good, rate * (1.0 - step), 2.0 * step
        good = yield from exactly(rate)
    while bad is not None and bad is not found.beyond and bad.rate_per_s > good.rate_per_s * (1.0 + within):
        middle = yield from exactly((good.rate_per_s + bad.rate_per_s) / 2.0)
        good, bad = (middle, bad) if _holds(middle, limit) else (good, middle)
    return HighestRate(limit, good, bad, tried)


def last_good(
    grid: Sequence[float], holds: Callable[[float], bool], within: float
) -> tuple[float | None, float | None]:
    """The last value of an ascending grid that holds, refined towards the next one by bisection to a relative width.

    Returns the value and the nearest above it that was found not to hold. The first is None where none holds (and the
    second the grid's first); the second is None where the grid's last holds.
    """
    good = [place for place, value in enumerate(grid) if holds(value)]
    if not good:
        return None, grid[0]
    if good[-1] == len(grid) - 1:
        return grid[-1], None
    low, high = grid[good[-1]], grid[good[-1] + 1]
    while high > low * (1.0 + within):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _holds(point: Point, limit: Limit) -> bool:
    return point.utilisation < 1.0 and limit.met(point)


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rising load, and what breaks first.

    Attributes
    ----------
    fine, broken : the points on both sides of the first failure; None where there is none.
    what : "capacity" (rho >= 1), "objective" (the percentile misses), or "" where nothing breaks.
    cause : the part of the percentile that grew most between the two; of the first point the largest part.
    """

    limit: Limit
    fine: Point | None
    broken: Point | None
    what: str
    cause: str

    def document(self) -> dict[str, Any]:
        """An entry of CONTRACT's ``whatif[]``."""
        return {
            "kind": "ramp",
            **_limit_document(self.limit),
            "fine": self.fine.document() if self.fine else None,
            "broken": self.broken.document() if self.broken else None,
            "what": self.what,
            "cause": self.cause,
        }


def ramp(points: Sequence[Point], limit: Limit) -> Ramp:
    """What breaks first in a load curve's points, which tell the parts of the limit's percentile."""
    fine: Point | None = None
    for point in points:
        if _holds(point, limit):
            fine = point
            continue
        before = dict(fine.parts) if fine else {}
        grown = {name: amount - before.get(name, 0) for name, amount in point.parts if name not in WITHIN}
        cause = max(PARTS, key=lambda name: grown.get(name, 0))
        return Ramp(limit, fine, point, "capacity" if point.utilisation >= 1.0 else "objective", cause)
    return Ramp(limit, fine, None, "", "")


@dataclass(frozen=True, slots=True)
class Placements:
    """Static partition against letting requests leave home.

    Attributes
    ----------
    dynamic : with no cost off home. break_even : the largest factor on the time of what runs off home at which leaving
        home still is no worse at the percentile; None where it is worse without any cost.
    endless : leaving home is still no worse at the largest factor that was tried, which is ``break_even``.
    """

    percentile: str
    static: Point
    dynamic: Point
    break_even: float | None
    endless: bool

    def document(self) -> dict[str, Any]:
        """An entry of CONTRACT's ``whatif[]``."""
        return {
            "kind": "placement",
            "percentile": self.percentile,
            "static": self.static.document(),
            "dynamic": self.dynamic.document(),
            "break_even_off_home_factor": self.break_even,
            "endless": self.endless,
        }


def static_against_dynamic(
    setting: Setting, run: Run, percentile: str = "p95", within: float = 0.002
) -> Placements:
    """`static` and `home-first` on the same home slots, and the off-home cost at which they are even.

    Factors are tried at 1, 1.25, 1.25**2 ... up to 64; the last that is no worse is refined by bisection.
    """

    def at(placement: str, factor: float = 1.0) -> Point:
        return measure(placed(setting, placement, Fraction(round(factor * 1000), 1000)), run, percentile)

    static, dynamic = at("static"), at("home-first")
    worst = static.at(percentile)
    factors = [1.25**k for k in range(1 + int(np.log(_LARGEST_FACTOR) / np.log(1.25)))]
    low, high = last_good(factors, lambda factor: at("home-first", factor).at(percentile) <= worst, within)
    return Placements(percentile, static, dynamic, low, high is None)


def beside_poisson(setting: Setting, run: Run, percentile: str = "p95", seed: int = 0) -> dict[str, Any]:
    """An entry of CONTRACT's ``whatif[]``: the recorded arrivals beside Poisson ones of the same rate."""
    return {
        "kind": "poisson",
        "seed": seed,
        "recorded": measure(setting, run, percentile).document(),
        "poisson": measure(as_poisson(setting, seed), run, percentile).document(),
    }


def _limit_document(limit: Limit) -> dict[str, Any]:
    return {"percentile": limit.percentile, "limit_s": limit.response_ns * 1e-9}
