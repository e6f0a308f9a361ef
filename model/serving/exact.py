"""The exact replay: rules laid out as arrays, run in slices, and every request's response split into its parts.

Knows `rules.py`'s values and the kernels' arrays; knows no workload file and no percentile. The replay runs twice on
the same requests, as is and with bandwidth without end: waiting in the second is queue, what the first adds to it is
queueing caused by contention (MINICASE 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from . import events as ev
from . import phases as ph
from .replay import ANY, OWN, OWN_FIRST, TURN, replay_placed, replay_round_robin, replay_shared
from .rules import PARTS, Factors, Offers, Replayed, Rules, Services, Times

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
        self._contended = _contended(services, rules)
        self._alone: _Run | _Plain
        if _is_plain(rules):
            self._alone = _Plain(offers, services, rules)
        else:
            self._alone = _Run(offers, services, rules, shared=False)
        self._shared = _Run(offers, services, rules, shared=True) if self._contended else None

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
        if _one_line(self._rules):
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
        parts = tuple((name, found.get(name, nothing)) for name in PARTS)
        batch = np.bincount(run.leader, minlength=arrival.size)[run.leader].astype(np.int32)
        # Of endless slots each batch has its own, whichever of the arrays' columns it was kept in.
        slot = run.slot_of if self._rules.slots is not None else run.leader.astype(np.int32)
        for array in (run.start, run.completion, slot, batch, *(values for _, values in parts)):
            array.setflags(write=False)
        return Replayed(run.start, run.completion, slot, batch, parts)


def replay(offers: Offers, services: Services, rules: Rules) -> Replayed:
    """All of a `Replay` at once; raises as it does."""
    run = Replay(offers, services, rules)
    while not run.step():
        pass
    return run.result()


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
            replay_round_robin(arrival, asked, arrival.size, _edges(rules), *rules.throttle, *filled)
        elif rules.placement == "round-robin" and rules.off_home is None:
            replay_round_robin(arrival, asked, rules.slots, _edges(rules), *rules.throttle, *filled)
        elif rules.placement == "dynamic" and rules.off_home is None:
            replay_shared(arrival, asked, rules.slots, _edges(rules), *rules.throttle, *filled)
        else:
            home, off_home = _homes(rules, rules.slots)
            stream = np.array(offers.stream, np.int64)
            kind = _PLAIN_PLACEMENTS[rules.placement]
            replay_placed(
                arrival, asked, stream, kind, home, off_home, _edges(rules), *rules.throttle, *filled
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

    def __init__(self, offers: Offers, services: Services, rules: Rules, shared: bool) -> None:
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
        home, off_home = _homes(rules, slots)
        profile, phase, demand = _phases(services)
        pool, pool_of = _pools(rules)
        if not shared:
            pool[ph.B_BANDWIDTH] = np.inf
        self.state = np.zeros(ev.STATES, np.int64)
        self.state[ev.X_NOW] = -1
        self.start = np.zeros(count, np.int64)
        self.completion = np.zeros(count, np.int64)
        self.full = np.zeros(count, np.int64)
        self.slot_of = np.zeros(count, np.int32)
        self.leader = np.zeros(count, np.int64)
        self._parts = np.zeros((count, ev.PART_COLUMNS), np.int64)
        self._slot, self._flow = _idle(slots)
        # A slot's batch is suspended for one of higher priority, that one for one of yet higher priority ...
        classes = len({stream.priority for stream in rules.streams})
        self._held = _idle(slots * classes if _preempts(rules) else 0)
        self._before = (
            _rule(rules, shared),
            self.state,
            pool,
            rules.efficiency_loss,
            _edges(rules),
            np.array(offers.arrival_ns, np.int64),
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
            self.leader,
            self._parts,
        )
        if self._answer == ev.MORE_SLOTS:
            slot, flow = _idle(self._slot.shape[1])
            self._slot = np.hstack((self._slot, slot))
            self._flow = np.hstack((self._flow, flow))
        return self._answer == ev.FINISHED

    def parts(self) -> dict[str, Times]:
        """Parts of the service time, each int64[n]."""
        return {name: np.ascontiguousarray(self._parts[:, column]) for name, column in _COLUMNS.items()}


def _homes(rules: Rules, slots: int) -> tuple[NDArray[np.bool_], Factors]:
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


def _idle(slots: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    slot = np.zeros((ph.SLOT_ROWS, slots), np.int64)
    slot[ph.S_END] = slot[ph.S_BEGIN] = ph.NEVER
    return slot, np.zeros((ph.FLOW_ROWS, slots), np.float64)


_PLACEMENTS = {
    "dynamic": ev.LEAST_FREE,
    "static": ev.BOUND,
    "round-robin": ev.BOUND,
    "home-first": ev.HOME_FIRST,
    "stealing": ev.STEALING,
}
_PLAIN_PLACEMENTS = {"dynamic": ANY, "static": OWN, "round-robin": TURN, "home-first": OWN_FIRST}
_DISCIPLINES = {"fifo": ev.FIFO, "priority": ev.PRIORITY, "deficit-round-robin": ev.DEFICIT}


def _rule(rules: Rules, shared: bool) -> Times:
    rule = np.zeros(ev.RULES, np.int64)
    unlimited = rules.slots is None
    rule[ev.R_PLACEMENT] = ev.LOWEST if unlimited else _PLACEMENTS[rules.placement]
    rule[ev.R_DISCIPLINE] = _DISCIPLINES[rules.discipline]
    limits = [limit for limit in (rules.slots, rules.admission_limit) if limit is not None]
    rule[ev.R_LIMIT] = min(limits, default=ph.NEVER)
    rule[ev.R_LINGERS] = any(stream.batch > 1 and stream.linger_ns > 0 for stream in rules.streams)
    rule[ev.R_OFF_HOME] = rules.off_home is not None and not unlimited
    rule[ev.R_SHARED] = shared or _preempts(rules)  # launches are phases
    rule[ev.R_NUM], rule[ev.R_DEN] = rules.throttle
    rule[ev.R_PREEMPT] = _preempts(rules)
    return rule


def _edges(rules: Rules) -> Times:
    edges = rules.throttle_edges_ns
    return np.zeros(0, np.int64) if edges is None else np.array(edges, np.int64)


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


def _phases(services: Services) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
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


def _pools(rules: Rules) -> tuple[NDArray[np.float64], Times]:
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


def _contended(services: Services, rules: Rules) -> bool:
    """Whether any rate can fall below 1: somebody asks for bytes, and bandwidth ends."""
    return bool(np.isfinite(rules.bandwidth_bytes_per_s)) and any(
        bool((profile.phases["bytes"] > 0).any()) for profile in services.profiles
    )


def _one_line(rules: Rules) -> bool:
    """Whether a request waits only while every slot is busy."""
    unlimited = rules.slots is None
    limited = rules.admission_limit is not None and rules.admission_limit < (rules.slots or ph.NEVER)
    return (unlimited or rules.placement in ("dynamic", "home-first", "stealing")) and not limited


def _preempts(rules: Rules) -> bool:
    return rules.preempt and rules.discipline == "priority" and rules.slots is not None


def _is_plain(rules: Rules) -> bool:
    """Whether the fast kernels know all rules; bandwidth apart."""
    return (
        rules.discipline == "fifo"
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
    largest_size = np.maximum(1.0, offers.size)
    alone = (services.base_ns.max(axis=1).astype(float)[offers.plan] + offers.own_ns) * largest_size
    latest = float(offers.arrival_ns[-1]) + float(alone.sum()) * longer
    if max(latest, float(alone.max()) * longer * times) >= _LATEST_NS:
        raise UsageError(
            "times beyond what integer nanoseconds hold (146 years)",
            lever="Check the units of the service times.",
        )
