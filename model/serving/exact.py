"""The exact replay: rules laid out as arrays, run in slices, and every request's response split into its parts.

Knows `rules.py`'s values and the kernels' arrays; knows no workload file and no percentile. The replay runs twice on
the same requests, as is and with bandwidth without end: waiting in the second is queue, what the first adds to it is
queueing caused by contention (MINICASE 4).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from . import events as ev
from . import phases as ph
from .generation_run import Iterations
from .layout import (
    arrivals_of,
    contended,
    heat_arrays,
    home_arrays,
    idle_slots,
    phase_arrays,
    pool_arrays,
    preempts,
    rule_array,
    warmed,
    window_edges,
)
from .over_time import OverTime, Seen, View
from .replay import ANY, OWN, OWN_FIRST, TURN, replay_placed, replay_round_robin, replay_shared
from .result import Warmed
from .rules import PARTS, Clients, Factors, Offers, Replayed, Rules, Services, Times
from .tail import exact_sum

SLICE_EVENTS = 400_000
"""Events between two looks at whether to go on: well under 100 ms."""

_COLUMNS = {
    "preempted": ev.P_PREEMPTED,
    "base": ev.P_BASE,
    "padding": ev.P_PADDING,
    "fallback": ev.P_FALLBACK,
    "off_home": ev.P_OFF_HOME,
    "stall_burst": ev.P_BURST,
    "stall_steady": ev.P_STEADY,
    "stall_spill": ev.P_SPILL,
    "stall_refetch": ev.P_REFETCH,
    "throttle": ev.P_THROTTLE,
}
_LATEST_NS = float(1 << 62)
_FIRST_SLOTS = 64  # of a run that gets as many as it needs


class Replay:
    """One exact replay, in slices: ``while not run.step(): ...``, then `result`.

    Raises
    ------
    UsageError : nothing to replay, a stream without slots or bandwidth, times beyond int64.
    """

    def __init__(self, offers: Offers, services: Services, rules: Rules) -> None:
        _check(offers, services, rules)
        self._offers, self._services, self._rules = offers, services, rules
        self._alone: _Run | _Plain | Iterations
        self._shared: _Run | Iterations | None = None
        if offers.generation is not None:
            self._alone = Iterations(offers, offers.generation, services, rules, shared=False)
            if contended(services, rules):
                self._shared = Iterations(offers, offers.generation, services, rules, shared=True)
            return
        if _is_plain(rules):
            self._alone = _Plain(offers, services, rules)
        else:
            self._alone = _Run(offers, services, rules, shared=False)
        if contended(services, rules):
            self._shared = _Run(offers, services, rules, shared=True)

    @property
    def progress(self) -> float:
        """From 0 to 1, by requests that are done."""
        if self._shared is None:
            return self._alone.progress
        return 0.1 * self._alone.progress + 0.9 * self._shared.progress

    def step(self, events: int = SLICE_EVENTS) -> bool:
        """Go on by about `events` events; True when all is done."""
        if not self._alone.step(events):
            return False
        return self._shared is None or self._shared.step(events)

    def result(self) -> Replayed:
        """The replay; only after `step` said that all is done."""
        alone = self._alone
        run = self._shared or alone
        arrival = self._offers.arrival_ns
        ready = np.maximum(arrival, alone.full)
        queue = alone.start - ready
        if isinstance(alone, Iterations):
            beside_idle = alone.beside_idle
        elif _one_line(self._rules):
            beside_idle = np.zeros_like(queue)  # one line for all slots: who waits, waits while all are busy
        else:
            beside_idle = _beside_idle(ready, alone, self._rules.slots)
        nothing = np.zeros_like(queue)
        found = {
            "batch_wait": ready - arrival,
            "queue": queue,
            "queue_imbalance": beside_idle,
            "contention_queue": run.start - alone.start,
            **run.parts(),
        }
        if self._offers.generation is not None:
            names = (*PARTS[: PARTS.index("base")], "interleaved", *PARTS[PARTS.index("base") :])
        else:
            names = PARTS
        parts = tuple((name, found.get(name, nothing)) for name in names)
        generated = run.generated() if isinstance(run, Iterations) else None
        if isinstance(run, Iterations):
            batch, leader = run.mean_batch, np.arange(arrival.size)
        else:
            leader = run.leader
            batch = np.bincount(leader, minlength=arrival.size)[leader].astype(np.int32)
        # Of endless slots each batch has its own, whichever of the arrays' columns it was kept in.
        slot = run.slot_of if self._rules.slots is not None else leader.astype(np.int32)
        for array in (run.start, run.completion, slot, batch, *(values for _, values in parts)):
            array.setflags(write=False)
        heat = None if isinstance(run, _Plain) else run.warmed()
        held = run.held_ns if isinstance(run, _Run) and self._rules.slots is not None else None
        return Replayed(run.start, run.completion, slot, batch, parts, generated, heat, held)


def replay(offers: Offers, services: Services, rules: Rules) -> Replayed:
    """All of a `Replay` at once; raises as it does."""
    run = Replay(offers, services, rules)
    while not run.step():
        pass
    return run.result()


def answered(offers: Offers, services: Services, rules: Rules, clients: Clients) -> Times:
    """int64[n] ns, ascending: when the requests of a closed loop come. Those of `offers` are not read.

    A replay of them at these times is the run that they were found in, to the nanosecond.

    Raises
    ------
    UsageError : as `Replay` does.
    """
    latest = np.full_like(offers.arrival_ns, min(exact_sum(clients.think_ns), int(_LATEST_NS)))
    _check(replace(offers, arrival_ns=latest), services, rules)
    shared = contended(services, rules)
    run: _Run | Iterations
    if offers.generation is not None:
        run = Iterations(offers, offers.generation, services, rules, shared, clients=clients)
    else:
        run = _Run(offers, services, rules, shared, clients=clients)
    while not run.step(SLICE_EVENTS):
        pass
    return run.arrival


class Watch:
    """The exact replay once more, looked at over a stretch of time: ``while not watch.step(): ...``, then `result`.

    It is the same run: starts and completions are those of `Replay`, to the nanosecond.

    Raises
    ------
    UsageError : as `Replay` does.
    """

    def __init__(self, offers: Offers, services: Services, rules: Rules, view: View) -> None:
        _check(offers, services, rules)
        self._given = view, offers, rules
        self._run: _Run | Iterations
        if offers.generation is not None:
            self._run = Iterations(offers, offers.generation, services, rules, True, view)
        else:
            self._run = _Run(offers, services, rules, True, view)

    def step(self, events: int = SLICE_EVENTS // 2) -> bool:
        """Go on by about `events` events, which take longer than unseen ones; True when all is seen."""
        return self._run.step(events)

    def result(self) -> OverTime:
        """What was seen; only after `step` said that all is."""
        view, offers, rules = self._given
        return OverTime.of(view, self._run.seen, offers, rules, self._run.start, self._run.completion)


def alone_ns(offers: Offers, services: Services) -> Times:
    """int64[n] ns: each request in a batch of its own, before fallback, off-home and throttle."""
    plan = offers.plan
    fixed = services.launch_ns[plan, 1]
    rest = services.base_ns[plan, 1] - fixed + offers.own_ns
    scaled = np.rint(offers.size * rest).astype(np.int64)
    return fixed + np.where(offers.size == 1.0, rest, scaled)


class _Plain:
    """First in, first out, without batches: the fast kernels."""

    def __init__(self, offers: Offers, services: Services, rules: Rules) -> None:
        count = offers.arrival_ns.size
        self.start = np.empty(count, np.int64)
        self.completion = np.empty(count, np.int64)
        self.slot_of = np.empty(count, np.int32)
        self.leader = np.arange(count)
        self.full = offers.arrival_ns
        self.progress = 0.0
        self._parts: dict[str, Times] = {}
        self._given = offers, services, rules

    def step(self, events: int) -> bool:
        """All at once: a million requests take a few hundredths of a second."""
        if self.progress == 1.0:
            return True
        offers, services, rules = self._given
        arrival = np.array(offers.arrival_ns)
        base = alone_ns(offers, services)
        own, asked = _times(base, offers.padding), _times(base, offers.fallback)
        filled = (self.start, self.completion, self.slot_of)
        if rules.slots is None:
            replay_round_robin(arrival, asked, arrival.size, window_edges(rules), *rules.throttle, *filled)
        elif rules.placement == "round-robin" and rules.off_home is None:
            replay_round_robin(arrival, asked, rules.slots, window_edges(rules), *rules.throttle, *filled)
        elif rules.placement == "dynamic" and rules.off_home is None:
            replay_shared(arrival, asked, rules.slots, window_edges(rules), *rules.throttle, *filled)
        else:
            home, off_home = home_arrays(rules, rules.slots)
            stream = np.array(offers.stream, np.int64)
            kind = _PLAIN_PLACEMENTS[rules.placement]
            replay_placed(
                arrival, asked, stream, kind, home, off_home, window_edges(rules), *rules.throttle, *filled
            )
            if rules.off_home is not None:
                longer = _times(asked, off_home[stream, self.slot_of])
                self._parts["off_home"] = longer - asked
        takes = asked + self._parts.get("off_home", 0)
        self._parts |= {
            "base": own,
            "padding": base - own,
            "fallback": asked - base,
            "throttle": self.completion - self.start - takes,
        }
        self.progress = 1.0
        return True

    def parts(self) -> dict[str, Times]:
        """Parts of the service time; those that are missing are 0."""
        return self._parts


def _times(time: Times, factor: Factors) -> Times:
    """A new array ``time * num // den``; where all factors are 1, without the divisions."""
    num, den = factor[:, 0], factor[:, 1]
    return time.copy() if bool((num == den).all()) else time * num // den


class _Run:
    """One pass of the event kernel: its arrays, filled as far as it has come."""

    def __init__(
        self,
        offers: Offers,
        services: Services,
        rules: Rules,
        shared: bool,
        view: View | None = None,
        clients: Clients | None = None,
    ) -> None:
        count, streams = offers.arrival_ns.size, len(rules.streams)
        slots = rules.slots or min(count, _FIRST_SLOTS)
        table = np.empty((count, ev.OFFER_COLUMNS), np.int64)
        table[:, ev.Q_STREAM], table[:, ev.Q_PLAN], table[:, ev.Q_OWN] = (
            offers.stream,
            offers.plan,
            offers.own_ns,
        )
        table[:, ev.Q_PAD : ev.Q_PAD_DEN + 1] = offers.padding
        table[:, ev.Q_FALL : ev.Q_FALL_DEN + 1] = offers.fallback
        lane_of, queue, lanes, allowed = _lanes(offers, rules, slots)
        home, off_home = home_arrays(rules, slots)
        services, self._heat, joules, low_base, low_profile_of = heat_arrays(services, rules)
        self._die = np.zeros(count if self._heat.size else 0, np.float64)
        self._warms = (self._heat, joules, low_base, low_profile_of, self._die)
        profile, phase, demand = phase_arrays(services)
        pool, pool_of = pool_arrays(rules)
        if not shared:
            pool[ph.B_BANDWIDTH] = np.inf
        self.state = np.zeros(ev.STATES, np.int64)
        self.state[ev.X_NOW] = -1
        self.arrival, self._clients = arrivals_of(offers, clients)
        self.start = np.zeros(count, np.int64)
        self.completion = np.zeros(count, np.int64)
        self.full = np.zeros(count, np.int64)
        self.slot_of = np.zeros(count, np.int32)
        self.held_ns = np.zeros(slots, np.int64)
        self.leader = np.zeros(count, np.int64)
        self._parts = np.zeros((count, ev.PART_COLUMNS), np.int64)
        self._slot, self._flow = idle_slots(slots)
        self.seen = Seen.of(view, rules.slots, self._heat.size > 0)
        # A slot's batch is suspended for one of higher priority, that one for one of yet higher priority ...
        classes = len({stream.priority for stream in rules.streams})
        self._held = idle_slots(slots * classes if preempts(rules) else 0)
        self._before = (
            rule_array(rules, shared),
            self.state,
            pool,
            rules.efficiency_loss,
            window_edges(rules),
            self.arrival,
            table,
            np.array(offers.size, np.float64),
            queue,
            lane_of,
            lanes,
            allowed,
            home,
            off_home,
            np.zeros(streams, np.int64),
            np.array([max(1, int(rules.quantum_ns * stream.weight)) for stream in rules.streams], np.int64),
            np.array(services.base_ns, np.int64),
            np.array(services.launch_ns, np.int64),
            np.array(services.profile_of, np.int64),
            profile,
            phase,
            demand,
            pool_of,
        )
        self._answer = ev.MORE

    @property
    def progress(self) -> float:
        return int(self.state[ev.X_DONE]) / self.start.size

    def step(self, events: int) -> bool:
        """Go on by `events` events; True when all are served."""
        if self._answer == ev.FINISHED:
            return True
        self._answer = ev.advance(
            events,
            *self._before,
            self._slot,
            self._flow,
            *self._held,
            self.start,
            self.completion,
            self.full,
            self.slot_of,
            self.held_ns,
            self.leader,
            self._parts,
            *self._warms,
            self.seen.view,
            self.seen.moved,
            self.seen.warmth,
            *self._clients,
        )
        if self._answer == ev.MORE_SLOTS:
            slot, flow = idle_slots(self._slot.shape[1])
            self._slot = np.hstack((self._slot, slot))
            self._flow = np.hstack((self._flow, flow))
            self.held_ns = np.append(self.held_ns, np.zeros_like(self.held_ns))
        return self._answer == ev.FINISHED

    def warmed(self) -> Warmed | None:
        """What heat did; None where nothing warms."""
        return warmed(self._heat, self._die)

    def parts(self) -> dict[str, Times]:
        """Parts of the service time, each int64[n]."""
        return {name: np.ascontiguousarray(self._parts[:, column]) for name, column in _COLUMNS.items()}


_PLAIN_PLACEMENTS = {"dynamic": ANY, "static": OWN, "round-robin": TURN, "home-first": OWN_FIRST}


def _lanes(
    offers: Offers, rules: Rules, slots: int
) -> tuple[Times, Times, NDArray[np.int64], NDArray[np.bool_]]:
    """Which requests stand in one line: as few lines as the rules can tell apart.

    Returns
    -------
    lane of each request, requests by lane, the lanes' table, and bool[lanes, slots]: where a lane may go.
    """
    count = offers.arrival_ns.size
    key = np.zeros(count, np.int64)
    batches = any(stream.batch > 1 for stream in rules.streams)
    round_robin = rules.placement == "round-robin" and rules.slots is not None
    if batches or rules.discipline != "fifo" or rules.placement in ("static", "stealing"):
        key += offers.stream
    if batches:  # one batch is one run of one plan
        falls = np.zeros(count, np.int64)
        longer = offers.fallback[:, 0] != offers.fallback[:, 1]
        falls[longer] = 1 + np.unique(offers.fallback[longer], axis=0, return_inverse=True)[1].reshape(-1)
        key = (key * (int(offers.plan.max()) + 1) + offers.plan) * (int(falls.max()) + 1) + falls
    if round_robin:
        key = key * slots + np.arange(count) % slots
    taken = np.bincount(key) > 0
    lane_of = (np.cumsum(taken) - 1)[key]
    size = np.bincount(lane_of)
    queue = np.argsort(lane_of.astype(np.uint16) if size.size < 1 << 16 else lane_of, kind="stable")
    begin = np.cumsum(size) - size
    first = queue[begin]
    lanes = np.zeros((size.size, ev.LANE_COLUMNS), np.int64)
    allowed = np.ones((size.size, slots), np.bool_)
    for lane, request in enumerate(first.tolist()):
        stream = rules.streams[int(offers.stream[request])]
        lanes[lane, ev.G_BATCH], lanes[lane, ev.G_LINGER] = (
            stream.batch,
            stream.linger_ns if stream.batch > 1 else 0,
        )
        lanes[lane, ev.G_PRIORITY], lanes[lane, ev.G_STREAM] = stream.priority, offers.stream[request]
        if rules.slots is not None and rules.placement == "static":
            allowed[lane] = False
            allowed[lane, list(stream.home)] = True
        elif round_robin:
            allowed[lane] = np.arange(slots) == request % slots
    lanes[:, ev.G_HEAD] = lanes[:, ev.G_TAIL] = begin
    return lane_of, queue, lanes, allowed


def _one_line(rules: Rules) -> bool:
    """Whether a request waits only while every slot is busy."""
    unlimited = rules.slots is None
    limited = rules.admission_limit is not None and rules.admission_limit < (rules.slots or ph.NEVER)
    return (unlimited or rules.placement in ("dynamic", "home-first", "stealing")) and not limited


def _is_plain(rules: Rules) -> bool:
    """Whether the fast kernels know all rules; bandwidth apart."""
    return (
        rules.discipline == "fifo"
        and rules.heat is None
        and (rules.slots is None or rules.placement != "stealing")
        and (rules.admission_limit is None or (rules.slots or ph.NEVER) <= rules.admission_limit)
        and all(stream.batch == 1 for stream in rules.streams)
    )


def _beside_idle(since: Times, run: _Run | _Plain, slots: int | None) -> Times:
    """int64[n] ns: how much of [since, start) fewer than all slots were busy."""
    leads = run.leader == np.arange(run.leader.size)
    moments = np.concatenate((run.start[leads], run.completion[leads]))
    order = np.argsort(moments, kind="stable")
    busy = np.cumsum(np.where(order < moments.size // 2, 1, -1))
    moments = moments[order]
    idle = (busy < (slots or ph.NEVER)).astype(np.int64)
    passed = np.concatenate(([0], np.cumsum(np.diff(moments) * idle[:-1])))

    def before(moment: Times) -> Times:
        last = np.searchsorted(moments, moment, side="right") - 1
        # Every slot is idle before the first start.
        return np.where(last < 0, moment - moments[0], passed[last] + (moment - moments[last]) * idle[last])

    return before(run.start) - before(since)


def _check(offers: Offers, services: Services, rules: Rules) -> None:
    if offers.arrival_ns.size == 0:
        raise UsageError("there are no requests to replay")
    for number, what in ((rules.slots, "slots ="), (rules.admission_limit, "admission limit =")):
        if number is not None and number < 1:
            raise UsageError(f"{what} {number}: nothing would ever start", lever="Give at least 1.")
    largest = services.base_ns.shape[1] - 1
    for index, stream in enumerate(rules.streams):
        if stream.batch < 1 or stream.batch > largest:
            raise UsageError(f"stream {index}: batches of {stream.batch} have no service time")
        homes = rules.slots is not None and rules.placement in ("static", "home-first", "stealing")
        if homes and not (stream.home and all(0 <= slot < (rules.slots or 0) for slot in stream.home)):
            raise UsageError(
                f"stream {index}: its home slots {stream.home} are not among {rules.slots} slots"
            )
    own = [stream.share for stream in rules.streams if stream.share is not None]
    common = len(own) < len(rules.streams)
    if any(share <= 0.0 for share in own) or sum(own) > 1.0 + 1e-9 or (common and sum(own) >= 1.0):
        raise UsageError(
            "the streams' shares of the bandwidth leave nothing for a stream",
            lever="Give shares above 0 that sum to less than 1, or to 1 where every stream has one.",
        )
    # No time leaves int64, nor a time before it is divided.
    off_home = rules.off_home if rules.off_home is not None else np.ones((1, 2), np.int64)
    longer, times = 1.0, 1.0
    for num, den in (
        (offers.fallback[:, 0], offers.fallback[:, 1]),
        (off_home[..., 0], off_home[..., 1]),
        (np.array(rules.throttle[0]), np.array(rules.throttle[1])),
    ):
        longer *= max(1.0, float(np.max(num / den)))
        times = max(times, float(np.max(num)))
    if rules.heat is not None:
        longer /= rules.heat.thermal.throttled_clock_ratio
    largest_size = np.maximum(1.0, offers.size)
    alone = (services.base_ns.max(axis=1).astype(float)[offers.plan] + offers.own_ns) * largest_size
    if offers.generation is not None:
        alone += offers.generation.rest_ns * largest_size
    latest = float(offers.arrival_ns[-1]) + float(alone.sum()) * longer
    if max(latest, float(alone.max()) * longer * times) >= _LATEST_NS:
        raise UsageError(
            "times beyond what integer nanoseconds hold (146 years)",
            lever="Check the units of the service times.",
        )
