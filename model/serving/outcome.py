"""What is said of a replay: percentiles and their parts, streams, slots, batches, and what a reader must know.

Knows what was replayed and what happened to every request; computes no times.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .arrivals import exact
from .drivers import Setting
from .intervals import Intervals, intervals
from .offers import Offered
from .result import PERCENTILES, Bus, Requests, ServiceProfile, ServingResult, StreamResult, TokenResult
from .rules import Replayed, Rules, dynamic_energy_j
from .streams import Stream, Workload
from .tail import (
    Times,
    build_up,
    exact_sum,
    jain,
    parts_at,
    parts_of_mean,
    percentiles,
    rank_of,
)


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A workload that is ready to be replayed: its requests and what they cost as one table, and the rules.

    ``own`` are the caller's profiles; ``workload`` has the rate that was asked for.
    """

    workload: Workload
    own: tuple[ServiceProfile, ...]
    table: Offered
    rules: Rules

    @property
    def setting(self) -> Setting:
        """What a replay, a driver's value and a what-if are functions of."""
        return Setting(self.table.offers, self.table.services, self.rules)


def outcome(
    prepared: Prepared, done: Replayed, first_estimate: bool = False, seconds: float = 0.0
) -> ServingResult:
    """Everything that is said of a replay of what was prepared; `seconds`: how long it took before this."""
    began = time.perf_counter()
    workload, table, rules = prepared.workload, prepared.table, prepared.rules
    done = _in_whose_place(table, done)
    offers, slots = table.offers, rules.slots or 0
    arrival = offers.arrival_ns
    requests = Requests(
        arrival,
        done.start_ns,
        done.completion_ns,
        done.slot,
        done.parts,
        offers.stream,
        done.batch,
    )
    for array in (arrival, offers.stream):
        array.setflags(write=False)
    response = requests.completion_ns - arrival
    count = response.size
    first, last = int(arrival[0]), int(requests.completion_ns.max())
    busy, served = _per_slot(done, slots)
    endless = all(stream.arrivals.endless for stream in workload.streams)
    recorded = any(stream.arrivals.recorded for stream in workload.streams)
    load, fullest = _endless_load(prepared, done)
    rho = load if endless else _measured_load(done, requests, slots)
    unstable = fullest >= 1.0
    at = dict(zip((name for name, _ in PERCENTILES), percentiles(response), strict=True))
    parts = [
        (name, parts_at(rank_of(share, count), response, requests.parts))
        for name, share in PERCENTILES
        if name != "p999"
    ]
    # Of a first estimate there are no bounds, and of a trace too few is not said.
    silent = unstable or (recorded and first_estimate)
    trust = Intervals("", (), ()) if silent else intervals(response, recorded, bounded=not first_estimate)
    generating = [k for k, stream in enumerate(workload.streams) if stream.generation is not None]
    token_times = _token_times(requests, done, np.isin(offers.stream, generating))
    trusts = [
        (kind, intervals(times, recorded, bounded=not first_estimate))
        for kind, times in token_times.items()
        if times.size and not unstable
    ]
    sizes = np.bincount(offers.stream, minlength=len(workload.streams))
    by_stream = np.split(np.argsort(offers.stream, kind="stable"), np.cumsum(sizes)[:-1])
    streams = tuple(
        replace(
            _stream(stream, table, mine, response[mine]),
            tokens=_tokens(offers.stream, [k] if k in generating else [], requests, done),
        )
        for k, (stream, mine) in enumerate(zip(workload.streams, by_stream, strict=True))
    )
    judged = [stream for stream in streams if stream.slo_attainment is not None]
    span_s = (last - first) * 1e-9
    padding = dict(requests.parts).get("padding")
    service = exact_sum(done.served_ns)
    return ServingResult(
        requests=requests,
        source=_title(workload, count),
        recorded=recorded,
        slots=slots or count,
        unstable=unstable,
        utilisation=rho,
        first_estimate=first_estimate,
        p50_ns=at["p50"],
        p95_ns=at["p95"],
        p99_ns=at["p99"],
        p999_ns=at["p999"],
        max_ns=int(response.max()),
        sum_response_ns=exact_sum(response),
        completion_sha256=hashlib.sha256(requests.completion_ns.astype("<i8").tobytes()).hexdigest(),
        throughput_rps=count / span_s if span_s > 0.0 else 0.0,
        energy_j_per_request=_energy(table, done, (last - first) * 1e-9),
        parts=(*parts, ("mean", parts_of_mean(response, requests.parts))),
        slot_busy_ns=busy,
        slot_requests=served,
        jain_slots=jain(busy) if busy else 1.0,
        slo_percentile=judged[0].slo_percentile if len(judged) == 1 else None,
        slo_response_s=judged[0].slo_response_s if len(judged) == 1 else None,
        slo_attainment=_shared_attainment(judged),
        interval_s=trust.bounds_s,
        interval_method=trust.method,
        # Of a trace itself every percentile is exact, whatever it says of others like it.
        too_few=() if recorded else trust.too_few,
        notes=_notes(prepared, rho, fullest, unstable, trust),
        rate_per_s=sum(stream.arrivals.rate_per_s for stream in workload.streams),
        build_up=None if unstable else build_up(arrival, requests.start_ns),
        streams=streams,
        jain_streams=jain([stream.slowdown for stream in streams]),
        jain_streams_mean=jain([stream.mean_s for stream in streams]),
        batch_sizes=_batch_sizes(done),
        padding_share=exact_sum(padding) / service if padding is not None and service else 0.0,
        fallback_share=float(table.fell_back.mean()),
        jitter_s=float(response.std()) * 1e-9,
        throttled_ns=sum(
            max(0, min(end, last) - max(begin, first)) for begin, end in workload.throttle.windows_ns
        )
        + (done.warmed.low_clock_ns if done.warmed is not None else 0),
        warmed=done.warmed,
        tokens=_tokens(offers.stream, generating, requests, done),
        bus=_bus(table, rules, done, (last - first) * 1e-9),
        ranked_ns=tuple(
            (name, _ascending(times))
            for name, times in (("response", response), *token_times.items())
            if times.size
        ),
        token_interval_s=tuple(
            (f"{kind}.{name}", bounds) for kind, each in trusts for name, bounds in each.bounds_s
        ),
        token_too_few=()
        if recorded
        else tuple(f"{kind}.{name}" for kind, each in trusts for name in each.too_few),
        seconds=seconds + time.perf_counter() - began,
    )


def _title(workload: Workload, count: int) -> str:
    if len(workload.streams) == 1:
        return workload.streams[0].arrivals.title
    rate = sum(stream.arrivals.rate_per_s for stream in workload.streams)
    names = ", ".join(stream.name for stream in workload.streams[:4])
    more = f" and {len(workload.streams) - 4} more" if len(workload.streams) > 4 else ""
    return f"{rate:.4g} requests/s, {count:,} requests of {len(workload.streams)} streams: {names}{more}"


def _energy(table: Offered, done: Replayed, span_s: float) -> float:
    """Joules of a request on average, idle time included: ``(sum over batches of their profile's energy + static power
    * time from first arrival to last completion) / requests``. So batches share what they spend, and what the machine
    draws while it waits is somebody's as well. 0 where no profile says any.
    """
    static_w = table.machine.static_w if table.machine is not None else 0.0
    return (
        float(dynamic_energy_j(table.offers, table.services, done).mean())
        + static_w * span_s / done.batch.size
    )


def _bus(table: Offered, rules: Rules, done: Replayed, span_s: float) -> Bus | None:
    """What one-shot requests asked of the DRAM that they share; None where nothing is shared or nothing is known."""
    services, offers = table.services, table.offers
    bandwidth = rules.bandwidth_bytes_per_s
    if done.generated is not None or not math.isfinite(bandwidth) or not services.profiles:
        return None
    if rules.slots is None or span_s <= 0.0:
        return None
    which = services.profile_of[offers.plan, done.batch]
    share = offers.size / done.batch  # a batch's bytes and time go with the mean size of its requests
    each = np.array(
        [*((profile.bytes, profile.base_ns) for profile in services.profiles), (0, 0)], np.float64
    )
    moved, alone_ns = share @ each[which]  # row -1: no profile
    if alone_ns == 0.0:
        return None
    slots = min(rules.slots, rules.admission_limit or rules.slots)
    return Bus(float(moved / (bandwidth * span_s)), float(slots * moved / (bandwidth * alone_ns * 1e-9)))


def _token_times(requests: Requests, done: Replayed, mine: NDArray[np.bool_]) -> dict[str, Times]:
    """ns to the first token, and per further token of those of two tokens or more, in order of arrival."""
    told = done.generated
    if told is None:
        return {}
    several = mine & (told.tokens > 1)
    took = (requests.completion_ns - told.first_token_ns)[several]
    return {
        "ttft": (told.first_token_ns - requests.arrival_ns)[mine],
        "tpot": took // (told.tokens[several] - 1),
    }


def _ascending(times: Times) -> Times:
    out = np.sort(times)
    out.setflags(write=False)
    return out


def _tokens(
    of: NDArray[np.int32], streams: Sequence[int], requests: Requests, done: Replayed
) -> TokenResult | None:
    """What is said of the requests of these streams, which are answered token by token; None where there are none."""
    told = done.generated
    if told is None or not streams:
        return None
    mine = np.isin(of, streams)
    first, each = _token_times(requests, done, mine).values()
    several = mine & (told.tokens > 1)
    took, further = (requests.completion_ns - told.first_token_ns)[several], told.tokens[several] - 1
    yielded = int(told.tokens[mine].sum())
    span_ns = int(requests.completion_ns[mine].max() - requests.arrival_ns[mine].min())
    return TokenResult(
        ttft_ns=tuple(percentiles(first)),
        ttft_mean_s=exact_sum(first) / first.size * 1e-9,
        tpot_ns=tuple(percentiles(each)) if each.size else (),
        tpot_mean_s=exact_sum(took) / exact_sum(further) * 1e-9 if each.size else 0.0,
        output_tokens=yielded,
        tokens_per_s=yielded * 1e9 / span_ns if span_ns else 0.0,
        kv_peak_bytes=max(told.kv_peak_bytes[k] for k in streams),
        kv_full_share=float(told.found_full[mine].mean()),
    )


def _stream(stream: Stream, table: Offered, mine: NDArray[np.intp], own: Times) -> StreamResult:
    """The tail of one stream, whose requests are `mine` and have the responses `own`."""
    ranked = np.sort(own)
    objective = stream.objective
    within = None
    if objective is not None:
        within = int(np.searchsorted(ranked, int(exact(objective.response_s) * 10**9), side="right"))
    alone = exact_sum(table.alone_ns[mine])
    at = {name: int(ranked[rank_of(share, own.size) - 1]) for name, share in PERCENTILES}
    return StreamResult(
        name=stream.name,
        requests=own.size,
        p50_ns=at["p50"],
        p95_ns=at["p95"],
        p99_ns=at["p99"],
        mean_s=exact_sum(own) / own.size * 1e-9,
        slowdown=exact_sum(own) / alone if alone else 1.0,
        fallback_share=float(table.fell_back[mine].mean()),
        slo_percentile=objective.percentile if objective else None,
        slo_response_s=objective.response_s if objective else None,
        slo_attainment=None if within is None else within / own.size,
    )


def _shared_attainment(judged: Sequence[StreamResult]) -> float | None:
    """Share of the requests that have an objective which answer within it."""
    if len(judged) == 1:
        return judged[0].slo_attainment
    count = sum(stream.requests for stream in judged)
    within = sum(round((stream.slo_attainment or 0.0) * stream.requests) for stream in judged)
    return within / count if count else None


def _one_of_each_batch(done: Replayed) -> NDArray[np.intp]:
    """A request of every batch: those of one batch share slot, start and end, and come in groups of its size."""
    batch = done.batch
    if int(batch.max()) == 1:
        return np.arange(batch.size)
    order = np.lexsort((batch, done.completion_ns, done.start_ns, done.slot))
    columns = np.stack((done.slot, done.start_ns, done.completion_ns, batch))[:, order]
    new = np.concatenate([[True], (columns[:, 1:] != columns[:, :-1]).any(axis=0)])
    place = np.arange(batch.size)
    within = place - place[new][np.cumsum(new) - 1]
    return order[within % batch[order] == 0]


def _per_slot(done: Replayed, slots: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Busy ns and requests of each slot; empty for unlimited slots."""
    if slots == 0:
        return (), ()
    if done.generated is not None:
        served = np.bincount(done.slot, minlength=slots)
        return tuple(done.generated.busy_ns.tolist()), tuple(served.tolist())
    if done.held_ns is not None:
        busy = done.held_ns
    else:
        one = _one_of_each_batch(done)
        busy = np.zeros(slots, dtype=np.int64)
        np.add.at(busy, done.slot[one], done.served_ns[one])
    served = np.bincount(done.slot, minlength=slots)
    return tuple(int(value) for value in busy), tuple(int(value) for value in served)


def _batch_sizes(done: Replayed) -> tuple[tuple[int, int], ...]:
    """(size, how many batches of it); of iterations where requests are answered token by token."""
    if done.generated is not None:
        iterations = done.generated.iterations
        return tuple((size, int(iterations[size])) for size in np.flatnonzero(iterations).tolist())
    requests = np.bincount(done.batch)
    return tuple((size, int(requests[size]) // size) for size in np.flatnonzero(requests).tolist())


_ON_TOP = ("off_home", "stall_burst", "stall_steady", "stall_spill", "stall_refetch", "throttle")
"""Parts of the time on a slot that a request would not have alone at home."""


def _endless_load(prepared: Prepared, done: Replayed) -> tuple[float, float]:
    """rho of the endless streams, where batches are full; and that of the fullest slot, which decides stability.

    rho is the sum of rate times expected service over the slots, and what this run's batches took beyond their time
    alone (`_ON_TOP`) over slots times the time from first to last arrival: leaving home and contention can make more
    work than the slots do. Where each stream has its own slots ("static"), a slot has its streams' load alone, each
    stream's spread evenly over its slots. (0, 0) for unlimited slots.
    """
    workload, table, rules = prepared.workload, prepared.table, prepared.rules
    if rules.slots is None:
        return 0.0, 0.0
    arrival = table.offers.arrival_ns
    span = max(1, int(arrival[-1] - arrival[0]))
    parts = dict(done.parts)
    on_top = np.bincount(
        done.slot, weights=sum(parts[name] for name in _ON_TOP) / done.batch / span, minlength=rules.slots
    )
    slots = min(rules.slots, rules.admission_limit or rules.slots)
    loads = [
        (stream.rate_per_s or 0.0) * load for stream, load in zip(workload.streams, table.load_s, strict=True)
    ]
    if not any(loads):
        return 0.0, 0.0
    rho = (sum(loads) + float(on_top.sum())) / slots
    if rules.placement != "static":
        return rho, rho
    for stream, load in zip(rules.streams, loads, strict=True):
        on_top[list(stream.home)] += load / len(stream.home)
    return rho, max(rho, float(on_top.max()))


def _measured_load(done: Replayed, requests: Requests, slots: int) -> float:
    """Work of all batches over slots times the time from first to last arrival (to the last completion where all
    come at once); 0 for unlimited slots.
    """
    if done.generated is not None:
        work = exact_sum(done.generated.busy_ns)
    else:
        one = _one_of_each_batch(done)
        work = exact_sum(done.served_ns[one])
    first = int(requests.arrival_ns[0])
    span = int(requests.arrival_ns[-1]) - first or int(requests.completion_ns.max()) - first
    return work / (slots * span) if span and slots else 0.0


def _notes(
    prepared: Prepared, rho: float, fullest: float, unstable: bool, trust: Intervals
) -> tuple[str, ...]:
    """What a reader must know before believing the numbers."""
    workload, own, rules = prepared.workload, prepared.own, prepared.rules
    said = list(workload.notes)
    streams = workload.streams
    planned = [
        stream for stream in streams if stream.service is None or isinstance(stream.service, ServiceProfile)
    ]
    if unstable and fullest > rho:
        said.append(
            f"unstable: the fullest slot is at rho = {fullest:.3g}, so its streams' queue grows without end and there "
            "are no percentiles. Give these streams more slots, or place requests dynamically"
        )
    elif unstable:
        rate = sum(stream.rate_per_s or 0.0 for stream in streams)
        said.append(
            f"unstable: rho = {rho:.3g}; the queue grows by {rate * (1.0 - 1.0 / rho):.3g} requests/s without end, so "
            "there are no percentiles. Lower the rate or add slots"
        )
    elif rules.slots is not None and rho >= 1.0:
        said.append(
            f"overloaded: rho = {rho:.3g}; the queue grows for as long as the trace lasts, and the percentiles "
            "say how long that was. Lower the rate or add slots"
        )
    machine_slots = own[0].slots if own else 0
    if rules.slots is not None and planned and 0 < machine_slots < rules.slots:
        said.append(
            f"{rules.slots:,} slots, and the machine has {machine_slots:,}: each computes at full speed, as on "
            f"{rules.slots / machine_slots:.3g} machines"
            + (" that share one DRAM" if workload.contention else "")
        )
    if own and all(stream.service is not None or stream.plans for stream in streams):
        said.append("service times are the workload's own; the plan does not change them")
    if planned and not workload.contention:
        said.append("slots do not contend for DRAM: the workload says so")
    unread = [
        stream
        for stream in planned
        if stream.arrivals.recorded and not any(plan.length for plan in stream.plans)
    ]
    if any(stream.generation is None for stream in unread):
        said.append(
            "every request is one run of the graph at its bound shape; the trace's token counts are not used"
        )
    if any(stream.generation is not None for stream in unread):
        said.append("every prompt is prefilled at the graph's bound shape, however long it is")
    if any(stream.jitter_cv == 0.0 and stream.arrivals.size_factor is None for stream in planned):
        said.append("all requests are the same size: the workload states no jitter")
    if any(stream.arrivals.recorded for stream in streams):
        said.append("percentiles are exact for this trace" + _of_others(trust))
    elif not unstable:
        said.append("synthetic load, from an empty start; nothing is dropped as warm-up")
    return tuple(said)


def _of_others(trust: Intervals) -> str:
    """What a trace says of other traces like it."""
    some = "; intervals, by block bootstrap, are for other traces like it" if trust.bounds_s else ""
    few = f"; it is too short for an interval of {', '.join(trust.too_few)}" if trust.too_few else ""
    return some + few


def _in_whose_place(table: Offered, done: Replayed) -> Replayed:
    """A fallback plan's time is the base of the plan in whose place it ran, in proportion, and the rest fallback."""
    instead = table.instead[table.offers.plan]
    which = np.flatnonzero(instead >= 0)
    if which.size == 0 or done.generated is not None:  # iterations tell it themselves, plan by plan
        return done
    parts = dict(done.parts)
    base, fallback = parts["base"].copy(), parts["fallback"].copy()
    times, size = table.services.base_ns, done.batch[which]
    own, other = times[table.offers.plan[which], size], times[instead[which], size]
    for i, ran, meant in zip(which.tolist(), own.tolist(), other.tolist(), strict=True):
        kept = int(base[i]) * meant // ran if ran else 0
        fallback[i] += base[i] - kept
        base[i] = kept
    parts |= {"base": base, "fallback": fallback}
    return replace(done, parts=tuple(parts.items()))
