"""The slow plain truth of replays, for tests: lists, loops and fractions, nothing of the model."""

from __future__ import annotations

import math
from fractions import Fraction


def replay(arrival, service, slots, placement="dynamic", windows=(), factor=(1, 1)):
    """Start, completion and slot of every request, by looking at every slot for every request."""
    free = [0] * slots
    out = []
    for i, (came, needs) in enumerate(zip(arrival, service, strict=True)):
        if placement == "dynamic":
            slot = min(range(slots), key=lambda s: (free[s], s))
        else:
            slot = i % slots
        start = max(came, free[slot])
        if any(begin <= start < end for begin, end in windows):
            needs = needs * factor[0] // factor[1]
        free[slot] = start + needs
        out.append((start, start + needs, slot))
    return out


def waiting_beside_idle(arrival, rows, slots):
    """Per request the nanoseconds of its wait in which fewer than `slots` requests were in service."""
    out = []
    for came, (start, _, _) in zip(arrival, rows, strict=True):
        busy = [sum(1 for begin, end, _ in rows if begin <= t < end) for t in range(came, start)]
        out.append(sum(1 for number in busy if number < slots))
    return out


# ---------------------------------------------------------------- batches, disciplines, placements, contention


NOTHING = Fraction(1, 10**6)  # ns: a rest this short is none
GRAIN = Fraction(1, 2**30)  # bytes/ns: what demands are rounded to


class Batch:
    """Requests that run together on a slot: what is left of their phases, and where their time went."""

    def __init__(self, members, slot, phases, parts):
        self.members, self.slot, self.parts = members, slot, parts
        self.phases = phases  # (ns, bytes per ns, kind, bytes, spill, refetch)
        self.preempted = 0
        self.stall = {"stall_burst": 0, "stall_steady": 0, "stall_spill": 0, "stall_refetch": 0}

    def begin(self, now):
        """Begin the next phase of some length; False: nothing is left."""
        while self.phases and self.phases[0][0] == 0:
            self.phases.pop(0)
        if self.phases:
            self.begun, self.rest = now, Fraction(self.phases[0][0])
        return bool(self.phases)

    @property
    def demand(self):
        return self.phases[0][1]

    def finish_phase(self, now):
        length, _, kind, moved, spill, refetch = self.phases.pop(0)
        stall = now - self.begun - length
        if stall:
            other = "stall_steady" if kind == 3 else "stall_burst"
            shares = {
                other: Fraction(stall * (moved - spill - refetch), moved),
                "stall_spill": Fraction(stall * spill, moved),
                "stall_refetch": Fraction(stall * refetch, moved),
            }
            whole = {name: math.floor(share) for name, share in shares.items()}
            by_remainder = sorted(shares, key=lambda name: whole[name] - shares[name])
            for name in by_remainder[: stall - sum(whole.values())]:
                whole[name] += 1
            for name, ns in whole.items():
                self.stall[name] += ns


def levels(demands, bandwidth):
    """Max-min shares of each demand."""
    given = {}
    while len(given) < len(demands):
        fair = (bandwidth - sum(given.values())) / (len(demands) - len(given))
        content = [j for j in demands if j not in given and demands[j] <= fair]
        for j in content:
            given[j] = demands[j]
        if not content:
            for j in demands:
                given.setdefault(j, fair)
    return given


class Simulator:
    """Offers, services and rules of `model.serving.rules`, looked at afresh at every event."""

    def __init__(self, offers, services, rules, contention):
        self.offers, self.services, self.rules = offers, services, rules
        self.slots = rules.slots or len(offers.arrival_ns)
        self.contention = contention and math.isfinite(rules.bandwidth_bytes_per_s)
        self.waiting = []
        self.running = {}
        self.suspended = []
        self.preempts = rules.preempt and rules.discipline == "priority" and rules.slots
        self.free = [0] * self.slots
        self.deficit = [0] * len(rules.streams)
        self.turn, self.granted = 0, False
        self.done = {}

    def of(self, q):
        return self.rules.streams[self.offers.stream[q]]

    def line(self, q):
        """Requests of one line batch with each other."""
        bound = q % self.slots if self.rules.placement == "round-robin" and self.rules.slots else None
        return (
            int(self.offers.stream[q]),
            int(self.offers.plan[q]),
            tuple(self.offers.fallback[q].tolist()),
            bound,
        )

    def candidates(self):
        """The first batch of each line with when it is full, whether it is now or later."""
        lines = {}
        for q in self.waiting:
            lines.setdefault(self.line(q), []).append(q)
        for members in lines.values():
            most, first = self.of(members[0]).batch, members[0]
            full = int(self.offers.arrival_ns[first]) + (self.of(first).linger_ns if most > 1 else 0)
            if len(members) >= most:
                full = min(full, int(self.offers.arrival_ns[members[most - 1]]))
            yield members[:most], full

    def place(self, q, at_home):
        idle = [j for j in range(self.slots) if j not in self.running]
        home = self.of(q).home
        if self.rules.slots is None:
            return min(idle, default=None)
        if self.rules.placement in ("home-first", "stealing"):
            own = [j for j in idle if j in home]
            return min(own, default=None if at_home else min(idle, default=None))
        if self.rules.placement == "static":
            idle = [j for j in idle if j in home]
        if self.rules.placement == "round-robin":
            idle = [j for j in idle if j == q % self.slots]
        return min(idle, key=lambda j: (self.free[j], j), default=None)

    def choose(self, now):
        """The batch to start now and its slot, or None."""
        if len(self.running) >= min(self.slots, self.rules.admission_limit or self.slots):
            return None
        for at_home in (True, False) if self.rules.placement == "stealing" else (False,):
            able = []
            for members, full in self.candidates():
                slot = self.place(members[0], at_home)
                if full <= now and slot is not None:
                    able.append((members, full, slot))
            if not able:
                continue
            able.sort(key=lambda one: one[0][0])
            if self.rules.discipline == "priority":
                new = max(able, key=lambda one: self.of(one[0][0]).priority)
                held = self.first_suspended()
                if held and self.of(held.members[0]).priority >= self.of(new[0][0]).priority:
                    return held
                return new
            if self.rules.discipline == "deficit-round-robin":
                return self.by_deficit(able)
            return able[0]
        return self.first_suspended()

    def first_suspended(self):
        """Of those for which there is a slot, the highest priority, the earliest suspended; or None."""
        able = [batch for batch in self.suspended if self.back_to(batch) is not None]
        return max(able, key=lambda batch: self.of(batch.members[0]).priority, default=None)

    def back_to(self, batch):
        return self.place(batch.members[0], False) if batch.slot in self.running else batch.slot

    def resume(self, batch, now):
        batch.slot = self.back_to(batch)
        self.suspended.remove(batch)
        batch.preempted += now - batch.since
        if not batch.begin(now):
            batch.phases = [(0, Fraction(0), 3, 0, 0, 0)]
            batch.begun, batch.rest = now, Fraction(0)
        self.running[batch.slot] = batch

    def by_deficit(self, able):
        while True:
            s = self.turn
            mine = [one for one in able if self.offers.stream[one[0][0]] == s]
            if mine:
                if not self.granted:
                    self.deficit[s] += max(1, int(self.rules.quantum_ns * self.rules.streams[s].weight))
                    self.granted = True
                q = mine[0][0][0]
                num, den = self.offers.fallback[q].tolist()
                asks = self.alone(mine[0][0]) * num // den
                if asks <= self.deficit[s]:
                    self.deficit[s] -= asks
                    return mine[0]
            elif not any(self.offers.stream[q] == s for q in self.waiting):
                self.deficit[s] = 0
            self.turn, self.granted = (s + 1) % len(self.deficit), False

    def mean_size(self, members):
        return float(sum(self.offers.size[q] for q in members)) / len(members)

    def alone(self, members):
        plan, size = self.offers.plan[members[0]], self.mean_size(members)
        fixed = int(self.services.launch_ns[plan, len(members)])
        rest = int(self.services.base_ns[plan, len(members)]) - fixed
        rest += sum(int(self.offers.own_ns[q]) for q in members)
        return fixed + (rest if size == 1.0 else round(size * rest))

    def start(self, members, full, slot, now):
        q, rules = members[0], self.rules
        alone = self.alone(members)
        num, den = self.offers.fallback[q].tolist()
        fallback = alone * num // den
        home = fallback
        if rules.off_home is not None and rules.slots is not None:
            num, den = rules.off_home[self.offers.stream[q], slot].tolist()
            home = fallback * num // den
        service = home
        edges = [] if rules.throttle_edges_ns is None else rules.throttle_edges_ns.tolist()
        if any(a <= now < b for a, b in zip(edges[::2], edges[1::2], strict=True)):
            service = home * rules.throttle[0] // rules.throttle[1]
        parts = {"fallback": fallback - alone, "off_home": home - fallback, "throttle": service - home}
        batch = Batch(members, slot, self.phases(members, alone, service), parts)
        for q in members:
            self.waiting.remove(q)
            num, den = self.offers.padding[q].tolist()
            own = alone * num // den
            self.done[q] = {
                "start": now,
                "slot": members[0] if rules.slots is None else slot,
                "batch": len(members),
                "full": full,
                "base": own,
                "padding": alone - own,
                **parts,
            }
        if batch.begin(now):
            self.running[slot] = batch
        else:
            self.finish(batch, now)

    def phases(self, members, alone, service):
        which = int(self.services.profile_of[self.offers.plan[members[0]], len(members)])
        if which < 0 or service == 0 or not (self.contention or self.preempts):
            return [(service, Fraction(0), 3, 0, 0, 0)]
        profile, size = self.services.profiles[which], self.mean_size(members)
        stretch = service / alone if service != alone else 1.0
        rows = profile.phases.tolist() * profile.repeat
        out, fixed, scaled, before = [], 0, 0, 0
        for index, (kind, base, moved, spill, refetch) in enumerate(rows):
            fixed, scaled = (fixed + base, scaled) if kind == 0 else (fixed, scaled + base)
            reached = fixed + (scaled if size == 1.0 else round(size * scaled))
            if stretch != 1.0:
                reached = min(service, int(reached * stretch))
            if index == len(rows) - 1:
                reached = service
            grains = round(moved / base / float(GRAIN)) if base else 0
            if stretch != 1.0:
                grains = round(float(grains * GRAIN) / stretch / float(GRAIN))
            out.append((reached - before, grains * GRAIN, kind, moved, spill, refetch))
            before = reached
        return out

    def finish(self, batch, now):
        self.free[batch.slot] = now
        for q in batch.members:
            self.done[q] |= {"completion": now, "preempted": batch.preempted, **batch.stall}

    def rates(self):
        """Of each running slot: what it gets of what it asks for."""
        out = dict.fromkeys(self.running, Fraction(1))
        if not self.contention:
            return out
        shares = [stream.share for stream in self.rules.streams]
        users = [j for j, batch in self.running.items() if batch.demand > 0]
        bandwidth = Fraction(self.rules.bandwidth_bytes_per_s * 1e-9)
        efficiency = Fraction(1)
        if users:
            efficiency -= Fraction(self.rules.efficiency_loss) * (len(users) - 1) / len(users)
        bandwidth *= efficiency
        pools = {}
        for j in users:
            stream = int(self.offers.stream[self.running[j].members[0]])
            pools.setdefault(stream if shares[stream] is not None else None, []).append(j)
        for pool, inside in pools.items():
            share = Fraction(shares[pool]) if pool is not None else 1 - sum(Fraction(s) for s in shares if s)
            capacity = bandwidth * share + 1024 * GRAIN * efficiency
            demands = {j: self.running[j].demand for j in inside}
            given = demands if sum(demands.values()) <= capacity else levels(demands, capacity)
            out |= {j: given[j] / demands[j] for j in inside}
        return out

    def run(self):
        arrival, following, now, rates = self.offers.arrival_ns.tolist(), 0, -1, {}
        while len(self.done) < len(arrival) or self.running:
            moments = [now + math.ceil(batch.rest / rates[j] - NOTHING) for j, batch in self.running.items()]
            moments += arrival[following : following + 1]
            moments += [full for _, full in self.candidates() if full > now]
            moment = min(moments)
            for j, batch in self.running.items():
                batch.rest -= rates[j] * (moment - now)
            now = moment
            while following < len(arrival) and arrival[following] <= now:
                self.waiting.append(following)
                following += 1
            for j in sorted(j for j, batch in self.running.items() if batch.rest / rates[j] <= NOTHING):
                batch = self.running[j]
                batch.finish_phase(now)
                if self.preempts and batch.phases and batch.phases[0][2] == 0:
                    del self.running[j]
                    self.free[j], batch.since = now, now
                    self.suspended.append(batch)
                elif not batch.begin(now):
                    del self.running[j]
                    self.finish(batch, now)
            while (chosen := self.choose(now)) is not None:
                if isinstance(chosen, Batch):
                    self.resume(chosen, now)
                    continue
                members, full, slot = chosen
                self.start(members, full, slot, now)
            rates = self.rates()
        return [self.done[q] for q in range(len(arrival))]


def replayed(offers, services, rules):
    """Per request a dict of its times and of all its parts, from two runs."""
    alone = Simulator(offers, services, rules, contention=False).run()
    shared = Simulator(offers, services, rules, contention=True).run()
    slots = rules.slots or len(alone)
    heads = {(row["slot"], row["start"], row["completion"], row["full"]) for row in alone}
    out = []
    for came, before, row in zip(offers.arrival_ns.tolist(), alone, shared, strict=True):
        ready = max(came, before["full"])
        idle = sum(
            sum(1 for _, begin, end, _ in heads if begin <= t < end) < slots
            for t in range(ready, before["start"])
        )
        out.append(
            row
            | {
                "batch_wait": ready - came,
                "queue": before["start"] - ready,
                "queue_imbalance": idle,
                "contention_queue": row["start"] - before["start"],
            }
        )
    return out
