"""Rules and services laid out as the arrays of the event kernels: what one-shot requests and iterations share.

Knows `rules.py`'s values and the kernels' columns; runs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import events as ev
from . import phases as ph
from .rules import Factors, Rules, Services, Times

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
