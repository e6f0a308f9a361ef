"""The first estimate: a table of how far requests slow each other down, and a replay by it (SERVING-MODEL, stage 0).

Knows profiles and rules; knows no workload file and no percentile. sigma(k) is how many times as long work takes on a
slot while k slots run the same profile at random phases (MINICASE 3.9). The replay then lets all in service progress
at 1 / sigma(k), so it needs no phases. Against the exact replay p95 is a few per mille off on Poisson arrivals and a
few per cent on recorded ones; streams on different plans get the mean of their tables, so nothing is said per stream.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..cost.result import PHASE_KINDS
from .exact import replay
from .profile import LAUNCH
from .result import ServiceProfile
from .rules import Offers, Replayed, Rules, Services, Times
from .slowdown_kernels import replay_slowed, stretch

_STEADY = PHASE_KINDS.index("steady")
_CAUSES = 4
# Of the copies' sizes: without it identical copies march in lockstep. MINICASE has 0.05, which gives the same table
# after thousands of runs (sigma(8) of its plans 1.335, 1.672, 1.115; here 1.334, 1.672, 1.112); more of it parts the
# copies sooner, so that few runs suffice.
_JITTER_CV = 0.5
_RUNS = 40  # of each copy, where the profile is short
_EVENTS = 30_000  # ends of phases in one table, at most about
_EVERY = 16  # tables of more slots are measured at some k only, and straight in between
_KEPT = 256


@dataclass(frozen=True, eq=False, slots=True)
class Slowdown:
    """How requests on a plan slow each other down.

    Attributes
    ----------
    sigma : float64[slots + 1], at least 1 and never falling; sigma[0] is 1.
    causes : float64[4], the shares of burst, steady, spill and refetch of all stalls on full slots; sum to 1, or to 0
        where nothing stalls.
    """

    sigma: NDArray[np.float64]
    causes: NDArray[np.float64]


class SlowdownTables:
    """Tables that were computed before, by what they are a function of; those used last are kept."""

    def __init__(self) -> None:
        self._known: dict[bytes, Slowdown] = {}

    def of(self, profile: ServiceProfile, rules: Rules) -> Slowdown:
        """The table of a profile under the rules' slots, bandwidth and efficiency loss."""
        assert rules.slots is not None
        state = hashlib.sha256(profile.phases.tobytes())
        state.update(repr((rules.slots, rules.bandwidth_bytes_per_s, rules.efficiency_loss)).encode())
        key = state.digest()
        table = self._known.pop(key, None)
        if table is None:
            table = slowdown(profile.phases, rules.slots, rules.bandwidth_bytes_per_s, rules.efficiency_loss)
        self._known[key] = table
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return table


def slowdown(
    phases: NDArray[np.void], slots: int, bandwidth_bytes_per_s: float, efficiency_loss: float = 0.0
) -> Slowdown:
    """sigma(k) for k = 1..slots, from k copies of the phases in a closed loop with random begins and sizes.

    Sizes are gamma with a coefficient of variation of 0.5 and leave launches as they are. A copy runs 40 times, fewer
    where the profile is long: then it sees more phases in each run. Repeats are folded into one run: they lengthen all
    phases alike, and rates depend on demands only. Seeds are fixed: the same profile always has the same table.
    """
    phases = phases[phases["base_ns"] > 0]
    bandwidth = bandwidth_bytes_per_s * 1e-9
    base = phases["base_ns"].astype(np.float64)
    demand = phases["bytes"] / base
    sigma = np.ones(slots + 1)
    stalled = np.zeros(base.size)
    there = bandwidth * (1.0 - efficiency_loss * (slots - 1) / slots)
    if base.size == 0 or slots * float(demand.max()) <= there:
        return _read_only(sigma, np.zeros(_CAUSES))
    scales = phases["kind"] != LAUNCH
    measured = _measured(slots)
    copies_in_all = sum(measured)
    runs = min(float(_RUNS), _EVENTS / (copies_in_all * base.size))
    rng = np.random.default_rng(0)
    begin, sizes = rng.random(slots), rng.gamma(1.0 / _JITTER_CV**2, _JITTER_CV**2, 4096)
    for k in measured:
        events = max(1, round(runs * k * base.size))
        stalled[:] = 0.0
        sigma[k] = stretch(
            k, events, base, demand, scales, bandwidth, efficiency_loss, begin[:k].copy(), sizes, stalled
        )
    sigma[1:] = np.interp(np.arange(1, slots + 1), measured, sigma[measured])
    return _read_only(np.maximum.accumulate(sigma), _causes(phases, stalled))


def _read_only(sigma: NDArray[np.float64], causes: NDArray[np.float64]) -> Slowdown:
    sigma.setflags(write=False)
    causes.setflags(write=False)
    return Slowdown(sigma, causes)


def _measured(slots: int) -> list[int]:
    """1 to 16, then every eighth more, and `slots` itself."""
    found = list(range(1, min(slots, _EVERY) + 1))
    while found[-1] < slots:
        found.append(min(slots, found[-1] + max(1, found[-1] // 8)))
    return found


def _causes(phases: NDArray[np.void], stalled: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[4]: stalls in each phase put down to spill and refetch by byte share, the rest to the phase's kind."""
    total = float(stalled.sum())
    if total == 0.0:
        return np.zeros(_CAUSES)
    moved = np.maximum(1, phases["bytes"])
    spill, refetch = stalled * phases["spill"] / moved, stalled * phases["refetch"] / moved
    rest, steady = stalled - spill - refetch, phases["kind"] == _STEADY
    return np.array([rest[~steady].sum(), rest[steady].sum(), spill.sum(), refetch.sum()]) / total


def can_estimate(rules: Rules, offers: Offers | None = None) -> bool:
    """Whether the first estimate knows all of these rules: one line for all slots, first in first out, no batches.

    Of requests that are answered token by token (`Offers.generation`) it knows nothing.
    """
    return (
        (offers is None or offers.generation is None)
        and rules.slots is not None
        and rules.heat is None
        and rules.placement == "dynamic"
        and rules.discipline == "fifo"
        and rules.off_home is None
        and (rules.admission_limit is None or rules.admission_limit >= rules.slots)
        and all(stream.batch == 1 and stream.share is None for stream in rules.streams)
    )


def first_estimate(offers: Offers, services: Services, rules: Rules, tables: SlowdownTables) -> Replayed:
    """The replay by slowdown tables: approximate where the exact one is not there yet; same requests, same parts.

    Start, completion and every part but the stalls are whole ns of this replay; stalls are put down to their causes by
    their shares on full slots. Only for rules that `can_estimate`.
    """
    assert rules.slots is not None and can_estimate(rules)
    alone = replay(offers, services, replace(rules, bandwidth_bytes_per_s=math.inf))
    assert alone is not None  # nobody cancels it
    table = _mean_table(offers, services, rules, tables)
    if not (table.sigma > 1.0).any():
        return alone
    parts = dict(alone.parts)
    service = parts["base"] + parts["padding"] + parts["fallback"]
    edges = np.zeros(0, np.int64) if rules.throttle_edges_ns is None else np.array(rules.throttle_edges_ns)
    num, den = rules.throttle
    count = service.size
    start, completion, slot = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int32)
    arrival = np.array(offers.arrival_ns)
    replay_slowed(arrival, service, np.array(table.sigma), edges, num, den, start, completion, slot)
    within = np.searchsorted(edges, start, side="right") % 2 == 1
    throttled = np.where(within, service * num // den, service)
    stalls = _split(completion - start - throttled, table.causes)
    parts |= {"contention_queue": start - alone.start_ns, "throttle": throttled - service}
    parts |= zip(("stall_burst", "stall_steady", "stall_spill", "stall_refetch"), stalls, strict=True)
    for array in (start, completion, slot, *parts.values()):
        array.setflags(write=False)
    return Replayed(start, completion, slot, alone.batch, tuple(parts.items()))


def _split(stall: Times, causes: NDArray[np.float64]) -> list[Times]:
    """Each stall in whole ns by cause, in shares that sum to it: differences of cumulative shares, rounded down."""
    cuts = [np.minimum(stall, np.floor(share * stall).astype(np.int64)) for share in np.cumsum(causes)[:-1]]
    edges = [np.zeros_like(stall), *cuts, stall]
    return [after - before for before, after in pairwise(edges)]


def _mean_table(offers: Offers, services: Services, rules: Rules, tables: SlowdownTables) -> Slowdown:
    """The mean of the plans' tables by their share of the requests; plans without a profile slow nobody down."""
    assert rules.slots is not None
    share = np.bincount(offers.plan, minlength=services.profile_of.shape[0]) / offers.plan.size
    sigma, causes = np.zeros(rules.slots + 1), np.zeros(_CAUSES)
    alone = _read_only(np.ones(rules.slots + 1), np.zeros(_CAUSES))
    for plan, part in enumerate(share.tolist()):
        if part > 0.0:
            row = int(services.profile_of[plan, 1])
            table = tables.of(services.profiles[row], rules) if row >= 0 else alone
            sigma += part * table.sigma
            causes += part * (table.sigma[-1] - 1.0) * table.causes
    total = float(causes.sum())
    return Slowdown(np.maximum(1.0, sigma), causes / total if total > 0.0 else causes)
