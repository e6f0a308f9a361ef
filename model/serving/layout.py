"""Rules and services laid out as the arrays of the event kernels: what one-shot requests and iterations share.

Knows `rules.py`'s values and the kernels' columns; runs nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from . import events as ev
from . import phases as ph
from . import thermal_kernels as tk
from .result import Warmed
from .rules import Clients, Factors, Offers, Rules, Services, Times
from .thermal import Heat, at_low_clock

_PLACEMENTS = {
    "dynamic": ev.LEAST_FREE,
    "static": ev.BOUND,
    "round-robin": ev.BOUND,
    "home-first": ev.HOME_FIRST,
    "stealing": ev.STEALING,
}
_DISCIPLINES = {"fifo": ev.FIFO, "priority": ev.PRIORITY, "deficit-round-robin": ev.DEFICIT}


def rule_array(rules: Rules, shared: bool) -> Times:
    rule = np.zeros(ev.RULES, np.int64)
    unlimited = rules.slots is None
    rule[ev.R_PLACEMENT] = ev.LOWEST if unlimited else _PLACEMENTS[rules.placement]
    rule[ev.R_DISCIPLINE] = _DISCIPLINES[rules.discipline]
    limits = [limit for limit in (rules.slots, rules.admission_limit) if limit is not None]
    rule[ev.R_LIMIT] = min(limits, default=ph.NEVER)
    rule[ev.R_LINGERS] = any(stream.batch > 1 and stream.linger_ns > 0 for stream in rules.streams)
    rule[ev.R_OFF_HOME] = rules.off_home is not None and not unlimited
    rule[ev.R_SHARED] = shared or preempts(rules)  # launches are phases
    rule[ev.R_NUM], rule[ev.R_DEN] = rules.throttle
    rule[ev.R_PREEMPT] = preempts(rules)
    return rule


def window_edges(rules: Rules) -> Times:
    edges = rules.throttle_edges_ns
    return np.zeros(0, np.int64) if edges is None else np.array(edges, np.int64)


def home_arrays(rules: Rules, slots: int) -> tuple[NDArray[np.bool_], Factors]:
    """bool[streams, slots]: which are a stream's own; and the factor on each, int64[streams, slots, 2]."""
    home = np.zeros((len(rules.streams), slots), np.bool_)
    off_home = np.ones((len(rules.streams), slots, 2), np.int64)
    if rules.slots is not None:
        if rules.placement in ("static", "home-first", "stealing"):
            for index, stream in enumerate(rules.streams):
                home[index, list(stream.home)] = True
        if rules.off_home is not None:
            off_home[:] = rules.off_home
    return home, off_home


def idle_slots(slots: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    slot = np.zeros((ph.SLOT_ROWS, slots), np.int64)
    slot[ph.S_END] = slot[ph.S_BEGIN] = ph.NEVER
    return slot, np.zeros((ph.FLOW_ROWS, slots), np.float64)


def arrivals_of(
    offers: Offers, clients: Clients | None
) -> tuple[Times, tuple[NDArray[np.int64], Times, Times]]:
    """When requests come, int64[n] ns, to be filled where clients send them; ``coming``, ``think`` and ``client_of`` of
    `closed` at time 0.
    """
    arrival = np.array(offers.arrival_ns, np.int64)
    if clients is None:
        return arrival, (np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    coming = np.empty((clients.count + 1, 2), np.int64)
    first = clients.think_ns[: clients.count]
    order = np.argsort(first, kind="stable")
    coming[0] = clients.count, 0
    coming[1:, 0], coming[1:, 1] = first[order], order  # ascending, so that it is a heap
    arrival[0] = coming[1, 0]
    return arrival, (coming, np.array(clients.think_ns), np.zeros_like(arrival))


def phase_arrays(services: Services) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Profiles one after another: rows of each and its repeats, phases, and their demand with its inverse."""
    ends = np.cumsum([profile.phases.size for profile in services.profiles], dtype=np.int64)
    profile = np.zeros((len(services.profiles), 3), np.int64)
    total = int(ends[-1]) if ends.size else 0
    phase = np.zeros((total, ph.PHASE_COLUMNS), np.int64)
    demand = np.zeros((total, 2), np.float64)
    for index, (one, end) in enumerate(zip(services.profiles, ends.tolist(), strict=True)):
        rows = slice(end - one.phases.size, end)
        profile[index] = rows.start, rows.stop, one.repeat
        moved, base = one.phases["bytes"], one.phases["base_ns"]
        phase[rows, ph.M_KIND], phase[rows, ph.M_BASE] = one.phases["kind"], base
        asks = np.divide(moved, base, where=base > 0, out=np.zeros(base.size))
        demand[rows, 0] = np.rint(asks / ph.GRAIN) * ph.GRAIN
        demand[rows, 1] = np.divide(
            1.0, demand[rows, 0], where=demand[rows, 0] > 0.0, out=np.zeros(base.size)
        )
        # Products of a stall and a share must stay in int64: beyond 2 GiB bytes are shared in larger units.
        unit = np.maximum(1, moved >> 30)
        phase[rows, ph.M_WHOLE] = moved // unit
        phase[rows, ph.M_SPILL] = one.phases["spill"] // unit
        phase[rows, ph.M_REFETCH] = one.phases["refetch"] // unit
    return profile, phase, demand


def pool_arrays(rules: Rules) -> tuple[NDArray[np.float64], Times]:
    """The pools' table, and the pool of each stream; the first is for streams without a share."""
    own = [stream.share for stream in rules.streams if stream.share is not None]
    shares, pool_of = [1.0 - sum(own)], np.zeros(len(rules.streams), np.int64)
    for index, stream in enumerate(rules.streams):
        if stream.share is not None:
            pool_of[index] = len(shares)
            shares.append(stream.share)
    pool = np.zeros((ph.POOL_ROWS, len(shares)), np.float64)
    # Some grains more, so that c demands of B / c, each rounded, fit.
    pool[ph.B_BANDWIDTH] = np.array(shares) * (rules.bandwidth_bytes_per_s * 1e-9) + 1024 * ph.GRAIN
    return pool, pool_of


def contended(services: Services, rules: Rules) -> bool:
    """Whether any rate can fall below 1: somebody asks for bytes, and bandwidth ends."""
    return bool(np.isfinite(rules.bandwidth_bytes_per_s)) and any(
        bool((profile.phases["bytes"] > 0).any()) for profile in services.profiles
    )


def preempts(rules: Rules) -> bool:
    return rules.preempt and rules.discipline == "priority" and rules.slots is not None


def heat_arrays(
    services: Services, rules: Rules
) -> tuple[Services, NDArray[np.float64], NDArray[np.float64], Times, Times]:
    """Services with the profiles of the low clock after all others; then what `advance` takes of heat.

    Returns
    -------
    services, float64[HEAT] (empty where nothing warms), joules float64[plans, batches + 1], and base ns and profile of
    plans at the low clock, int64 of that shape.
    """
    heat = np.zeros(0) if rules.heat is None else heat_array(rules.heat)
    joules = np.full(services.base_ns.shape, -1.0)
    base, which = np.array(services.base_ns, np.int64), np.array(services.profile_of, np.int64)
    if rules.heat is None:
        return services, heat, joules, base, which
    ratio = rules.heat.thermal.throttled_clock_ratio
    low = tuple(at_low_clock(profile, ratio) for profile in services.profiles)
    there = which >= 0
    if low:
        spent = np.array([profile.energy_j or -1.0 for profile in services.profiles])
        joules = np.where(there, spent[which], -1.0)
        takes = np.array([profile.base_ns for profile in low], np.int64)
        base = np.where(there, takes[which], base)
    fixed = services.launch_ns
    base = np.where(there, base, fixed + np.rint((base - fixed) / ratio).astype(np.int64))
    return (
        replace(services, profiles=services.profiles + low),
        heat,
        joules,
        base,
        np.where(there, which + len(low), which),
    )


def heat_array(source: Heat) -> NDArray[np.float64]:
    """float64[HEAT] of `thermal_kernels`, at time 0."""
    t = source.thermal
    heat = np.zeros(tk.HEAT)
    coupling = t.sink_k_per_w / (t.die_k_per_w * t.sink_s)  # 1 / (R_die C_sink)
    heat[tk.H_DIE_DIE], heat[tk.H_DIE_SINK] = -1.0 / t.die_s, 1.0 / t.die_s
    heat[tk.H_SINK_DIE], heat[tk.H_SINK_SINK] = coupling, -coupling - 1.0 / t.sink_s
    half = 0.5 * (heat[tk.H_DIE_DIE] + heat[tk.H_SINK_SINK])
    root = math.sqrt(half * half - 1.0 / (t.die_s * t.sink_s))
    heat[tk.H_FAST] = half - root
    heat[tk.H_LATE] = 1.0 / (t.die_s * t.sink_s) / heat[tk.H_FAST]  # their product; no difference of likes
    heat[tk.H_R_DIE], heat[tk.H_R_SINK], heat[tk.H_AMBIENT] = t.die_k_per_w, t.sink_k_per_w, t.ambient_c
    heat[tk.H_THROTTLE], heat[tk.H_RESUME] = t.throttle_c, t.resume_c
    heat[tk.H_CLOCK] = t.throttled_clock_ratio
    heat[tk.H_CAP] = math.inf if t.power_cap_w is None else t.power_cap_w
    heat[tk.H_STATIC] = heat[tk.H_WATTS] = source.static_w
    heat[tk.H_BUSY] = max(0.0, t.tdp_w - source.static_w) / source.slots
    heat[tk.H_SINK] = t.ambient_c + source.static_w * t.sink_k_per_w
    heat[tk.H_DIE] = heat[tk.H_SINK] + source.static_w * t.die_k_per_w
    heat[tk.H_PEAK_DIE], heat[tk.H_PEAK_SINK] = heat[tk.H_DIE], heat[tk.H_SINK]
    return heat


def warmed(heat: NDArray[np.float64], die_c: NDArray[np.float64]) -> Warmed | None:
    """What heat did, from the kernel's array after a run; None where nothing warms."""
    if heat.size == 0:
        return None
    die_c.setflags(write=False)
    return Warmed(
        die_c,
        float(heat[tk.H_PEAK_DIE]),
        float(heat[tk.H_PEAK_SINK]),
        float(heat[tk.H_SINK]),
        round(float(heat[tk.H_SLOW_NS])),
        round(float(heat[tk.H_CAPPED])),
        float(heat[tk.H_ENERGY]),
        float(heat[tk.H_THROTTLE]),
    )
