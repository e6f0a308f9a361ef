"""A workload and a plan's profile to a tail: the requests replayed one by one, in integer nanoseconds.

Knows which rules a workload means on a machine of so many slots. What a request costs is `offers`' business, what
happens to it the replay's, what is said of it `outcome`'s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..errors import UsageError
from .arrivals import exact
from .exact import answered, replay
from .offers import Offered, offered
from .outcome import Prepared, outcome
from .result import ServiceProfile, ServingResult
from .rules import Clients, Factors, Replayed, Rules, StreamRules
from .slowdown import SlowdownTables, can_estimate, first_estimate
from .streams import UNLIMITED, PlanFile, Stream, Workload
from .thermal import Heat
from .traces import LATEST_NS

_NEEDS_HOME = ("static", "home-first", "stealing")
_MOST_PLACES = 1_000_000


def serve(
    workload: Workload,
    profile: ServiceProfile | Sequence[ServiceProfile] | None = None,
    slots: int | None = None,
    rate_per_s: float | None = None,
    plans: Mapping[PlanFile, ServiceProfile] | None = None,
    tables: SlowdownTables | None = None,
) -> ServingResult:
    """Replay a workload request by request.

    Parameters
    ----------
    profile : of the plan, or of the plan at batch size 1, 2, ...; used by streams that say nothing of their own.
    slots : instead of the workload's and the profile's.
    rate_per_s : of all streams together, instead of the workload's: see `at_rate`.
    plans : the profile of each of ``workload.plan_files``.
    tables : for the first estimate instead of the exact replay, where the rules allow it (`slowdown.can_estimate`).

    Raises
    ------
    UsageError : nothing says how long a request takes, no plan holds it, a home slot that is not there, or
        times that leave int64.
    """
    began = time.perf_counter()
    prepared = prepare(workload, profile, slots, rate_per_s, plans)
    if tables is not None and can_estimate(prepared.table.offers, prepared.rules):
        done, first = (
            first_estimate(prepared.table.offers, prepared.table.services, prepared.rules, tables),
            True,
        )
    else:
        done, first = replayed(prepared), False
    return outcome(prepared, done, first, time.perf_counter() - began)


def prepare(
    workload: Workload,
    profile: ServiceProfile | Sequence[ServiceProfile] | None = None,
    slots: int | None = None,
    rate_per_s: float | None = None,
    plans: Mapping[PlanFile, ServiceProfile] | None = None,
) -> Prepared:
    """Everything but the replay, for those who run it in slices: see `serve` for arguments and errors.

    ``run = exact.Replay(offers, services, rules)`` of what this gives goes on a slice at a time, and
    ``outcome(prepared, run.result())`` says what came of it.
    """
    if rate_per_s is not None:
        workload = at_rate(workload, rate_per_s)
    own = () if profile is None else (profile,) if isinstance(profile, ServiceProfile) else tuple(profile)
    table = offered(workload, own, plans or {})
    rules = rules_of(workload, table, slots)
    if workload.streams[0].loop is not None:
        workload, table = _answered(workload, table, rules)
    return Prepared(workload, own, table, rules)


def replayed(prepared: Prepared) -> Replayed:
    """What happens to every request, exactly."""
    return replay(prepared.table.offers, prepared.table.services, prepared.rules)


def _answered(workload: Workload, table: Offered, rules: Rules) -> tuple[Workload, Offered]:
    """A closed loop's requests at the times at which they come where slots serve by these rules."""
    (stream,) = workload.streams
    assert stream.loop is not None
    clients = Clients(stream.loop.clients, stream.loop.draw(workload.seed, table.offers.arrival_ns.size))
    arrival = answered(table.offers, table.services, rules, clients)
    arrival.setflags(write=False)
    arrivals = replace(stream.arrivals, arrival_ns=arrival)
    return (
        replace(workload, streams=(replace(stream, arrivals=arrivals),)),
        replace(table, offers=replace(table.offers, arrival_ns=arrival)),
    )


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
    if any(stream.loop is not None for stream in workload.streams):
        raise UsageError(
            "a closed loop has no rate to set: its clients ask again when they are answered",
            where=where,
            lever="Change clients or think_s.",
        )
    own = sum(stream.arrivals.rate_per_s for stream in workload.streams)
    if own <= 0.0:
        raise UsageError("all requests come at once, so they have no rate to set", where=where)
    first = min(int(stream.arrivals.arrival_ns[0]) for stream in workload.streams)

    def stretched(stream: Stream) -> Stream:
        arrivals = stream.arrivals
        times = np.floor((arrivals.arrival_ns - first) * (own / rate_per_s))
        if times[-1] > LATEST_NS:
            raise UsageError(f"at {rate_per_s:g} requests/s it would take over 36 years", where=where)
        rate = rate_per_s * (arrivals.rate_per_s / own)
        return replace(
            stream,
            arrivals=replace(arrivals, arrival_ns=times.astype(np.int64), set_rate_per_s=rate),
            rate_per_s=None if stream.rate_per_s is None else rate,
        )

    return replace(workload, streams=tuple(stretched(stream) for stream in workload.streams))


def rules_of(workload: Workload, table: Offered, slots: int | None) -> Rules:
    """The rules of a workload's replay; `slots` over the workload's, over the machine's, over one.

    Raises
    ------
    UsageError : no slots, or a home slot that is not among them.
    """
    machine = table.machine
    if slots is not None and slots < 1:
        raise UsageError(f"{slots} slots cannot serve; at least 1 is needed")
    count = slots if slots is not None else workload.slots
    if count is None:
        count = machine.slots if machine is not None else 1
    elif count == UNLIMITED:
        count = None
    if count is not None and count * len(table.streams) > _MOST_PLACES:
        raise UsageError(
            f"{len(table.streams):,} streams on {count:,} slots are more than this version replays",
            where=workload.path or workload.name,
            lever=f"At most {_MOST_PLACES:,} of streams times slots.",
        )
    if workload.placement in _NEEDS_HOME:
        for k, stream in enumerate(table.streams):
            if count is None or max(stream.home) >= count:
                there = "slots are unlimited" if count is None else f"there are {count} slots, from 0 on"
                raise UsageError(
                    f"stream[{k}].home_slot is {max(stream.home)}, and {there}",
                    where=workload.path or workload.name,
                    lever="Set slots, or another home_slot.",
                )
    edges = np.array(workload.throttle.windows_ns, dtype=np.int64).reshape(-1)
    return Rules(
        slots=count,
        streams=table.streams,
        placement=workload.placement,
        discipline=workload.discipline,
        quantum_ns=workload.quantum_ns,
        preempt=workload.preempt,
        off_home=_off_home(workload, table.streams, machine, count),
        bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s if workload.contention and machine else math.inf,
        efficiency_loss=machine.efficiency_loss if machine else 0.0,
        admission_limit=workload.admission_limit,
        throttle_edges_ns=edges if edges.size else None,
        throttle=(workload.throttle.num, workload.throttle.den),
        heat=_heat(workload, machine),
    )


def _heat(workload: Workload, machine: ServiceProfile | None) -> Heat | None:
    """What warms: the machine of the plans, else the workload's.

    Raises
    ------
    UsageError : the workload asks for heat, and neither says how a machine warms.
    """
    throttle = workload.throttle
    if not throttle.thermal:
        return None
    if machine is not None and machine.thermal is not None:
        heat = Heat(machine.thermal, machine.static_w, machine.slots)
    elif throttle.heat is not None:
        heat = throttle.heat
    else:
        raise UsageError(
            "throttle.thermal = true, and nothing says how the machine warms",
            where=workload.path or workload.name,
            lever='Set throttle.hardware to a machine with [thermal], such as "edge-npu", or give a GRAPH on one.',
        )
    if throttle.ambient_c is None:
        return heat
    return replace(heat, thermal=replace(heat.thermal, ambient_c=throttle.ambient_c))


def _off_home(
    workload: Workload, streams: Sequence[StreamRules], machine: ServiceProfile | None, slots: int | None
) -> Factors | None:
    """int64[streams, slots, 2]: the file's factor away from home, else the topology's per hop; None: 1 everywhere."""
    topology = machine.topology if machine is not None else None
    if slots is None or (workload.off_home is None and workload.placement not in _NEEDS_HOME):
        return None
    if workload.off_home is None and (topology is None or topology.off_home_factor_per_hop == 0.0):
        return None
    factors = np.ones((len(streams), slots, 2), dtype=np.int64)
    for k, stream in enumerate(streams):
        for slot in set(range(slots)) - set(stream.home):
            factor = workload.off_home
            if factor is None:
                assert topology is not None
                hops = min(topology.hops(home, slot, slots) for home in stream.home)
                factor = 1 + exact(topology.off_home_factor_per_hop) * hops
            factors[k, slot] = factor.numerator, factor.denominator
    return None if np.array_equal(factors[..., 0], factors[..., 1]) else factors
