"""When requests come and how long they are: recorded traces, and synthetic processes.

Knows the arithmetic of windows and rates and the stated draws; knows nothing of slots or service. Times are exact
integer nanoseconds.

- A *window* [a, b) is cut from the trace's own time, counted from its first request, and then starts at 0.
- A *rate* r stretches what is left: arrival' = floor((arrival - first) * n * 10**9 / (r * (last - first))),
  with r as the exact decimal that was written. So n requests take n / r seconds, shape kept.
- Draws of stream k come from ``numpy.random.default_rng((purpose + seed, k))``, purposes 0, 1000, 2000, 3000 below.
  NumPy ignores zeros at the end, so that for the first stream this is ``default_rng(purpose + seed)``. No stream's
  draws depend on another stream, nor on how many requests are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .result import Arrivals
from .traces import LATEST_NS, Trace

MOST_REQUESTS = 20_000_000
_MOST_STATES = 1_000_000

ARRIVALS, JITTER, SERVICE, STATES = 0, 1000, 2000, 3000
"""What random numbers are for: each purpose has its own generator."""


def generator(purpose: int, seed: int, stream: int) -> np.random.Generator:
    """The generator of one stream's draws for one purpose (`ARRIVALS` ...)."""
    return np.random.default_rng((purpose + seed, stream))


def exact(value: float) -> Fraction:
    """The decimal that a person wrote for `value`: 0.1 is one tenth."""
    return Fraction(repr(value))


def recorded(
    trace: Trace,
    name: str,
    *,
    rate_per_s: float | None = None,
    window_s: tuple[float, float] | None = None,
    requests: int | None = None,
    stream: NDArray[np.int32] | None = None,
) -> Arrivals:
    """A trace as arrivals: the window cut out, at most `requests` of it, then stretched to the rate.

    Parameters
    ----------
    stream : the trace's own streams that belong here (indices into ``trace.streams``); None: all requests.

    Raises
    ------
    UsageError : nothing is left, or a rate for requests that all come at once.
    """
    arrival, keep = trace.arrival_ns, np.ones(trace.arrival_ns.size, dtype=bool)
    if stream is not None:
        keep = np.isin(trace.stream, stream)
    if window_s is not None:
        begin, end = (int(exact(edge) * 10**9) for edge in window_s)
        keep &= (arrival >= begin) & (arrival < end)
        arrival = arrival - begin
        name += f", window {window_s[0]:g} to {window_s[1]:g} s"
    kept = np.flatnonzero(keep)[:requests]
    if kept.size == 0:
        raise UsageError("no request of the trace lies in the window", lever="Widen window_s.")
    arrival = arrival[kept]
    if rate_per_s is not None:
        arrival = _stretch(arrival, rate_per_s)
    return Arrivals(
        _frozen(arrival),
        _frozen(trace.input_tokens[kept]),
        _frozen(trace.output_tokens[kept]),
        name,
        recorded=True,
        endless=False,
        set_rate_per_s=rate_per_s,
        prefix_blocks=_frozen(trace.prefix_blocks[kept]),
        cached_blocks=_frozen(trace.cached_blocks[kept]),
        size_factor=_frozen(trace.size_factor[kept]) if np.any(trace.size_factor[kept] != 1.0) else None,
    )


def _stretch(arrival: NDArray[np.int64], rate_per_s: float) -> NDArray[np.int64]:
    """Arrivals stretched so that n of them take n / rate seconds; exact (Python integers), then floored."""
    first, last = int(arrival[0]), int(arrival[-1])
    if last == first:
        raise UsageError("all requests come at once, so they have no rate to scale")
    factor = Fraction(arrival.size * 10**9, last - first) / exact(rate_per_s)
    if arrival.size * 10**9 / rate_per_s > LATEST_NS:
        raise UsageError(f"at {rate_per_s:g} requests/s the trace would take over 36 years")
    up, down = factor.numerator, factor.denominator
    return np.array([(int(time) - first) * up // down for time in arrival], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Process:
    """An endless process of arrivals.

    Attributes
    ----------
    kind : "poisson": gaps are exponential. "constant": request i comes at i / rate. "mmpp": Poisson at the first or
        the second rate, by a state that lasts an exponential time and then changes to the other.
    rates_per_s : one rate, or one for each state.
    dwells_s : "mmpp": how long each state lasts on average.
    input_tokens, output_tokens : of every request; 0 where nothing says them.
    """

    kind: Literal["poisson", "constant", "mmpp"]
    rates_per_s: tuple[float, ...]
    dwells_s: tuple[float, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def rate_per_s(self) -> float:
        """The mean rate."""
        if not self.dwells_s:
            return self.rates_per_s[0]
        requests = sum(rate * dwell for rate, dwell in zip(self.rates_per_s, self.dwells_s, strict=True))
        return requests / sum(self.dwells_s)

    def draw(self, seed: int, stream: int, count: int) -> NDArray[np.int64]:
        """int64[count] ns: the first arrivals; a larger draw begins with the same numbers.

        Poisson is ``cumsum(exponential(1 / rate, n))``, rounded to the nearest nanosecond.
        """
        if self.kind == "constant":
            return _constant(self.rate_per_s, count)
        random = generator(ARRIVALS, seed, stream)
        if self.kind == "poisson":
            times = np.cumsum(random.exponential(1.0 / self.rate_per_s, count))
        else:
            times = self._modulated(np.cumsum(random.exponential(1.0, count)), seed, stream)
        return np.rint(times * 1e9).astype(np.int64)

    def _modulated(self, work: NDArray[np.float64], seed: int, stream: int) -> NDArray[np.float64]:
        """When the rate, integrated over time, reaches `work` (a Poisson process of rate 1): arrivals in seconds.

        The state at time 0 is drawn from the stationary distribution. Draws of states come from their own generator:
        one uniform, then a standard exponential for each stay.
        """
        dwells, rates = np.array(self.dwells_s), np.array(self.rates_per_s)
        stays = int(2.2 * work[-1] / self.rate_per_s / dwells.mean()) + 64
        while True:
            random = generator(STATES, seed, stream)
            first = int(random.random() >= dwells[0] / dwells.sum())
            state = (first + np.arange(stays)) % 2
            lasts = random.exponential(1.0, stays) * dwells[state]
            done = np.cumsum(lasts * rates[state])
            if done[-1] >= work[-1]:
                break
            stays *= 2
        at = np.searchsorted(done, work)
        began = np.concatenate([[0.0], np.cumsum(lasts)])[at]
        before = np.concatenate([[0.0], done])[at]
        return began + (work - before) / rates[state[at]]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients that wait for their answer, think for a while, and ask again.

    Attributes
    ----------
    think_s : mean time between an answer and the client's next request; ``think``: "exponential" or "constant".
    """

    clients: int
    think_s: float
    think: Literal["exponential", "constant"]
    input_tokens: int = 0
    output_tokens: int = 0

    def draw(self, seed: int, requests: int) -> NDArray[np.int64]:
        """int64[clients + requests] ns: how long is thought before each client's first request, then after each."""
        count = self.clients + requests
        if self.think == "constant":
            return np.full(count, int(exact(self.think_s) * 10**9), dtype=np.int64)
        thought = generator(ARRIVALS, seed, 0).exponential(self.think_s, count)
        return np.rint(thought * 1e9).astype(np.int64)

    def unanswered(self, seed: int, requests: int) -> Arrivals:
        """The requests before it is known when they come: all at 0."""
        if requests > MOST_REQUESTS:
            raise UsageError(f"{requests:,} requests are more than this version replays")
        return Arrivals(
            _frozen(np.zeros(requests, dtype=np.int64)),
            _frozen(np.full(requests, self.input_tokens, dtype=np.int64)),
            _frozen(np.full(requests, self.output_tokens, dtype=np.int64)),
            f"{self.clients:,} clients, closed loop, synthetic (seed {seed})",
            recorded=False,
            endless=False,
        )


def _constant(rate_per_s: float, count: int) -> NDArray[np.int64]:
    period = 10**9 / exact(rate_per_s)
    up, down = period.numerator, period.denominator
    if count * up < 2**62:
        return np.arange(count, dtype=np.int64) * up // down
    return np.array([i * up // down for i in range(count)], dtype=np.int64)


def synthetic(
    process: Process,
    seed: int,
    stream: int = 0,
    *,
    requests: int | None = None,
    window_s: tuple[float, float] | None = None,
) -> Arrivals:
    """Arrivals of an endless process: the first `requests` of it, or those in the window [a, b) s.

    Raises
    ------
    UsageError : neither or no request in the window, or times beyond 36 years.
    """
    rate = process.rate_per_s
    if requests is None and window_s is None:
        raise UsageError(f"a {process.kind} process has no end of its own", lever="Set requests or window_s.")
    expected = float(requests) if requests is not None else (window_s or (0.0, 0.0))[1] * rate
    if expected > MOST_REQUESTS or expected / rate * 1e9 > LATEST_NS:
        raise UsageError(
            f"{expected:.6g} requests at {rate:g}/s are more than this version replays",
            lever=f"At most {MOST_REQUESTS:,} requests within 36 years.",
        )
    if process.dwells_s and expected / rate > _MOST_STATES * min(process.dwells_s):
        raise UsageError("the states of an mmpp change too often", lever="Set longer dwells_s.")
    if window_s is None:
        arrival = process.draw(seed, stream, requests or 0)
    else:
        begin, end = (round(edge * 1e9) for edge in window_s)
        count = int(expected + 10.0 * expected**0.5) + 100
        arrival = process.draw(seed, stream, count)
        while arrival[-1] < end:
            count *= 2
            arrival = process.draw(seed, stream, count)
        arrival = arrival[(arrival >= begin) & (arrival < end)] - begin
        if arrival.size == 0:
            raise UsageError("no request lies in the window", lever="Widen window_s.")
    name = {"poisson": "Poisson", "constant": "constant rate", "mmpp": "two-state MMPP"}[process.kind]
    return Arrivals(
        _frozen(arrival),
        _frozen(np.full(arrival.size, process.input_tokens, dtype=np.int64)),
        _frozen(np.full(arrival.size, process.output_tokens, dtype=np.int64)),
        f"{name}, synthetic (seed {seed})",
        recorded=False,
        endless=True,
        set_rate_per_s=rate,
    )


def first_of_all(sources: Sequence[Arrivals | Process], seed: int, requests: int) -> tuple[Arrivals, ...]:
    """The first `requests` of all streams together, as each stream's arrivals.

    Parameters
    ----------
    sources : per stream its arrivals, or the process that they are drawn from.

    Raises
    ------
    UsageError : a stream has none of them.
    """
    total = sum(source.rate_per_s for source in sources if isinstance(source, Process))

    def enough(source: Arrivals | Process) -> int:
        mean = requests * source.rate_per_s / total if isinstance(source, Process) else 0.0
        return min(requests, int(mean + 8.0 * mean**0.5) + 16)

    counts = [enough(source) for source in sources]
    while True:
        drawn = [
            synthetic(source, seed, k, requests=counts[k]) if isinstance(source, Process) else source
            for k, source in enumerate(sources)
        ]
        times = np.concatenate([arrivals.arrival_ns for arrivals in drawn])
        kept = np.argsort(times, kind="stable")[:requests]
        short = [
            k
            for k, source in enumerate(sources)
            if isinstance(source, Process)
            and counts[k] < requests
            and (kept.size < requests or drawn[k].arrival_ns[-1] < times[kept[-1]])
        ]
        if not short:
            break
        for k in short:
            counts[k] = min(requests, 2 * counts[k])
    of = np.repeat(np.arange(len(drawn)), [arrivals.arrival_ns.size for arrivals in drawn])
    taken = np.bincount(of[kept], minlength=len(drawn))
    if not taken.all():
        raise UsageError(
            f"none of the first {requests:,} requests is of stream[{int(np.argmin(taken))}]",
            lever="Raise requests, or leave the stream out.",
        )
    return tuple(_first(arrivals, int(count)) for arrivals, count in zip(drawn, taken, strict=True))


def _first(arrivals: Arrivals, count: int) -> Arrivals:
    columns = ("arrival_ns", "input_tokens", "output_tokens", "prefix_blocks", "cached_blocks", "size_factor")
    every = {name: getattr(arrivals, name) for name in columns}
    return replace(arrivals, **{name: column[:count] for name, column in every.items() if column is not None})


def _frozen(values: NDArray) -> NDArray:
    out = np.ascontiguousarray(values)
    out.setflags(write=False)
    return out
