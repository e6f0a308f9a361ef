"""A workload and a plan's profile to a tail: the requests replayed one by one, in integer nanoseconds.

Knows how service times come about (given, drawn, or the plan's, with jitter), which rules apply in which
order (SERVING-MODEL: padding, fallback, off-home, throttle; this version has fallback and throttle), and what
is said of the result. In this version slots do not slow each other down; results say so.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .arrivals import LATEST_NS, exact
from .profile import launch_ns
from .replay import replay_round_robin, replay_shared
from .result import PERCENTILES, Requests, ServiceProfile, ServingResult
from .tail import (
    Times,
    build_up,
    exact_sum,
    interval,
    jain,
    parts_at,
    parts_of_mean,
    rank_of,
    relaxation,
    too_few,
    waiting_beside_idle,
)
from .workload import UNLIMITED, DrawnService, GivenService, Stream, Workload

_LATEST_NS = 1 << 62


def serve(
    workload: Workload,
    profile: ServiceProfile | None = None,
    slots: int | None = None,
    rate_per_s: float | None = None,
) -> ServingResult:
    """Replay a workload first in, first out.

    Parameters
    ----------
    profile : of the plan; used where the workload has no service times of its own.
    slots : instead of the workload's and the profile's.
    rate_per_s : of all streams together, instead of the workload's: see `at_rate`.

    Raises
    ------
    UsageError : neither workload nor profile says how long a request takes, or times leave int64.
    """
    began = time.perf_counter()
    if rate_per_s is not None:
        workload = at_rate(workload, rate_per_s)
    (stream,) = workload.streams
    source = stream.service if stream.service is not None else profile
    if source is None:
        raise UsageError(
            "nothing says how long a request takes",
            where=workload.path or workload.name,
            lever="Give a GRAPH or --profile FILE, or set service in the stream.",
        )
    unlimited = slots is None and workload.slots == UNLIMITED
    count = stream.arrivals.arrival_ns.size if unlimited else _slots(workload, source, slots)
    base = base_times(stream, source, workload.seed)
    requests = _replay(workload, stream, base, count, unlimited)
    return _result(workload, stream, source, profile, requests, 0 if unlimited else count, began)


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """The workload with its arrivals stretched in time to another mean rate of all streams together.

    A trace keeps its rhythm. A Poisson process stretched is the Poisson process of the other rate, with the same
    draws.

    Raises
    ------
    UsageError : no rate, requests that all come at once, or times beyond 36 years.
    """
    where = workload.path or workload.name
    if not 0.0 < rate_per_s < math.inf:
        raise UsageError(f"{rate_per_s:g} requests/s is no rate", lever="Give a number above 0.")
    own = sum(stream.arrivals.rate_per_s for stream in workload.streams)
    if own <= 0.0:
        raise UsageError("all requests come at once, so they have no rate to set", where=where)

    def stretched(stream: Stream) -> Stream:
        arrivals = stream.arrivals
        times = np.floor((arrivals.arrival_ns - arrivals.arrival_ns[0]) * (own / rate_per_s))
        if times[-1] > LATEST_NS:
            raise UsageError(f"at {rate_per_s:g} requests/s it would take over 36 years", where=where)
        rate = rate_per_s * (arrivals.rate_per_s / own)
        return replace(
            stream,
            arrivals=replace(arrivals, arrival_ns=times.astype(np.int64), set_rate_per_s=rate),
            rate_per_s=None if stream.rate_per_s is None else rate,
        )

    return replace(workload, streams=tuple(stretched(stream) for stream in workload.streams))


def _slots(
    workload: Workload, source: GivenService | DrawnService | ServiceProfile, slots: int | None
) -> int:
    """The first that speaks: the caller, the workload, the profile; else one slot."""
    if slots is not None:
        if slots < 1:
            raise UsageError(f"{slots} slots cannot serve; at least 1 is needed")
        return slots
    if workload.slots is not None:
        return workload.slots
    return source.slots if isinstance(source, ServiceProfile) else 1


def base_times(stream: Stream, source: GivenService | DrawnService | ServiceProfile, seed: int) -> Times:
    """int64[n] ns: each request alone on its slot, size jitter included, before fallback and throttle.

    Jitter is ``default_rng(1000 + seed).gamma(1/cv**2, cv**2, n)`` on everything but launches, rounded to
    the nearest ns; drawn services come from ``default_rng(2000 + seed)``.
    """
    count = stream.arrivals.arrival_ns.size
    fixed = 0
    if isinstance(source, ServiceProfile):
        base = np.full(count, source.base_ns, dtype=np.int64)
        fixed = launch_ns(source)
    elif isinstance(source, DrawnService):
        mean_ns = source.mean_s * 1e9
        draw = np.random.default_rng(2000 + seed)
        drawn = draw.exponential(mean_ns, count) if source.dist == "exponential" else np.full(count, mean_ns)
        base = np.rint(drawn).astype(np.int64)
    else:
        tokens = stream.arrivals
        _fits(
            source.base_ns
            + source.per_input_ns * int(tokens.input_tokens.max())
            + source.per_output_ns * int(tokens.output_tokens.max())
        )
        base = (
            source.base_ns
            + source.per_input_ns * tokens.input_tokens
            + source.per_output_ns * tokens.output_tokens
        )
    if stream.jitter_cv > 0.0:
        square = stream.jitter_cv**2
        factor = np.random.default_rng(1000 + seed).gamma(1.0 / square, square, count)
        scaled = (base - fixed) * factor
        _fits(int(scaled.max()) + fixed)
        base = fixed + np.rint(scaled).astype(np.int64)
    return base


def _fits(latest_ns: int) -> None:
    if latest_ns >= _LATEST_NS:
        raise UsageError(
            f"a time of {latest_ns:.3g} ns is beyond what integer nanoseconds hold (146 years)",
            lever="Check the units of the service times.",
        )


def _replay(workload: Workload, stream: Stream, base: Times, slots: int, unlimited: bool) -> Requests:
    """Fallback, then placement and throttle; the parts, each from its own event."""
    arrival = np.array(stream.arrivals.arrival_ns)  # a writable copy: kernels take no read-only arrays
    rule, throttle = stream.fallback, workload.throttle
    service = base
    if rule is not None:
        _fits(int(base.max()) * rule.num)
        long = stream.arrivals.input_tokens > rule.max_input_tokens
        service = np.where(long, base * rule.num // rule.den, base)
    most = max(1, throttle.num if throttle.windows_ns else 1)
    _fits(int(service.max()) * most)
    _fits(int(arrival[-1]) + exact_sum(service) * most)
    edges = np.array(throttle.windows_ns, dtype=np.int64).reshape(-1)
    start, completion = np.empty_like(arrival), np.empty_like(arrival)
    slot = np.empty(arrival.size, dtype=np.int32)
    # As many slots as requests, one each: nobody waits, and round robin finds them without a search.
    spread = unlimited or workload.placement == "round-robin"
    replay = replay_round_robin if spread else replay_shared
    replay(arrival, service, slots, edges, throttle.num, throttle.den, start, completion, slot)

    queue = start - arrival
    # With one queue for all slots, a request waits only while every slot is busy.
    imbalance = waiting_beside_idle(arrival, start, completion, slots) if spread else np.zeros_like(queue)
    parts: list[tuple[str, Times]] = [("queue", queue), ("queue_imbalance", imbalance), ("base", base)]
    if rule is not None:
        parts.append(("fallback", service - base))
    if throttle.windows_ns:
        parts.append(("throttle", completion - start - service))
    for array in (arrival, start, completion, slot, *(values for _, values in parts)):
        array.setflags(write=False)
    return Requests(arrival, start, completion, slot, tuple(parts))


def _result(
    workload: Workload,
    stream: Stream,
    source: GivenService | DrawnService | ServiceProfile,
    profile: ServiceProfile | None,
    requests: Requests,
    slots: int,
    began: float,
) -> ServingResult:
    """Everything that is said of a replay; `slots` is 0 for unlimited ones."""
    response = requests.completion_ns - requests.arrival_ns
    order = np.argsort(response, kind="stable")
    count = response.size
    busy, served = _per_slot(requests, slots)
    rho = _utilisation(stream, source, requests, slots)
    unstable = stream.arrivals.endless and rho >= 1.0
    at = {name: int(response[order[rank_of(share, count) - 1]]) for name, share in PERCENTILES}
    parts = [
        (name, parts_at(rank_of(share, count), order, response, requests.parts))
        for name, share in PERCENTILES
        if name != "p999"
    ]
    steady = stream.arrivals.endless and not unstable
    relaxed = relaxation(response) if steady else 1.0
    few = tuple(name for name, share in PERCENTILES if steady and too_few(count, relaxed, share))
    objective = stream.objective
    span_s = (int(requests.completion_ns.max()) - int(requests.arrival_ns[0])) * 1e-9
    return ServingResult(
        requests=requests,
        source=stream.arrivals.title,
        recorded=stream.arrivals.recorded,
        slots=slots or count,
        unstable=unstable,
        utilisation=rho,
        first_estimate=False,
        p50_ns=at["p50"],
        p95_ns=at["p95"],
        p99_ns=at["p99"],
        p999_ns=at["p999"],
        max_ns=int(response[order[-1]]),
        sum_response_ns=exact_sum(response),
        completion_sha256=hashlib.sha256(requests.completion_ns.astype("<i8").tobytes()).hexdigest(),
        throughput_rps=count / span_s if span_s > 0.0 else 0.0,
        energy_j_per_request=source.energy_j if isinstance(source, ServiceProfile) else 0.0,
        parts=(*parts, ("mean", parts_of_mean(response, requests.parts))),
        slot_busy_ns=busy,
        slot_requests=served,
        jain_slots=jain(busy) if busy else 1.0,
        slo_percentile=objective.percentile if objective else None,
        slo_response_s=objective.response_s if objective else None,
        slo_attainment=_attainment(response, objective.response_s) if objective else None,
        interval_s=tuple(
            (name, interval(response, share)) for name, share in PERCENTILES if steady and name not in few
        ),
        too_few=few,
        notes=_notes(workload, stream, source, profile, slots, rho, unstable),
        seconds=time.perf_counter() - began,
        rate_per_s=stream.arrivals.rate_per_s,
        build_up=None if unstable else build_up(requests.arrival_ns, requests.start_ns),
    )


def _per_slot(requests: Requests, slots: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Busy ns and requests of each slot; empty for unlimited slots."""
    if slots == 0:
        return (), ()
    busy = np.zeros(slots, dtype=np.int64)
    np.add.at(busy, requests.slot, requests.completion_ns - requests.start_ns)
    served = np.bincount(requests.slot, minlength=slots)
    return tuple(int(value) for value in busy), tuple(int(value) for value in served)


def _utilisation(
    stream: Stream,
    source: GivenService | DrawnService | ServiceProfile,
    requests: Requests,
    slots: int,
) -> float:
    """rho: offered work over capacity. 0 for unlimited slots.

    Endless processes: rate times expected service over slots, exact. Traces: work of all requests over
    slots times the time from first to last arrival (to the last completion where all come at once).
    """
    if slots == 0:
        return 0.0
    if stream.rate_per_s is not None:
        if isinstance(source, DrawnService):
            mean_s = source.mean_s
        else:
            mean_s = source.base_ns * 1e-9
        return stream.rate_per_s * mean_s / slots
    work = exact_sum(requests.completion_ns - requests.start_ns)
    first = int(requests.arrival_ns[0])
    span = int(requests.arrival_ns[-1]) - first or int(requests.completion_ns.max()) - first
    return work / (slots * span) if span else 0.0


def _attainment(response: NDArray[np.int64], response_s: float) -> float:
    """Share of requests that answer within the objective."""
    limit = int(exact(response_s) * 10**9)
    return int(np.count_nonzero(response <= limit)) / response.size


def _notes(
    workload: Workload,
    stream: Stream,
    source: GivenService | DrawnService | ServiceProfile,
    profile: ServiceProfile | None,
    slots: int,
    rho: float,
    unstable: bool,
) -> tuple[str, ...]:
    """What a reader must know before believing the numbers."""
    said = list(workload.notes)
    planned = isinstance(source, ServiceProfile)
    if unstable and stream.rate_per_s is not None:
        excess = stream.rate_per_s * (1.0 - 1.0 / rho)
        said.append(
            f"unstable: rho = {rho:.3g}; the queue grows by {excess:.3g} requests/s without end, so there "
            "are no percentiles. Lower the rate or add slots"
        )
    elif slots > 0 and rho >= 1.0:
        said.append(
            f"overloaded: rho = {rho:.3g}; the queue grows for as long as the trace lasts, and the percentiles "
            "say how long that was. Lower the rate or add slots"
        )
    if profile is not None and source is not profile:
        said.append("service times are the workload's own; the plan does not change them")
    if planned and workload.contention and (slots == 0 or slots > 1):
        said.append("slots do not contend for DRAM in this version, so tails under load read low")
    if planned and stream.arrivals.recorded:
        said.append(
            "every request is one run of the graph at its bound shape; the trace's token counts are not used"
        )
    if planned and stream.jitter_cv == 0.0:
        said.append("all requests are the same size: the workload states no jitter")
    if stream.arrivals.recorded:
        said.append("percentiles are exact for this trace; they have no interval for other traces like it")
    elif not unstable:
        said.append("synthetic load, from an empty start; nothing is dropped as warm-up")
    return tuple(said)
