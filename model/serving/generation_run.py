"""One pass over requests that are answered token by token: the arrays of `generation_kernels.py`, and a run in slices.

Knows the values of `rules.py` and `generation.py` and the kernel's columns; knows no workload file. One-shot requests
beside them are requests of one chunk and one token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import events as ev
from . import generation_kernels as gk
from . import phases as ph
from .generation import Generated, Generation
from .layout import (
    arrivals_of,
    heat_arrays,
    home_arrays,
    idle_slots,
    phase_arrays,
    pool_arrays,
    rule_array,
    warmed,
    window_edges,
)
from .over_time import Seen, View
from .result import Warmed
from .rules import Clients, Offers, Rules, Services, Times

_FIRST_SLOTS = 16  # of a run that gets as many as it needs
_PARTS = {
    "interleaved": gk.P_INTERLEAVED,
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


class Iterations:
    """Start, completion and slot of each request, int64[n], int64[n], int32[n], filled as far as it has come."""

    def __init__(
        self,
        offers: Offers,
        generation: Generation,
        services: Services,
        rules: Rules,
        shared: bool,
        view: View | None = None,
        clients: Clients | None = None,
    ) -> None:
        count = offers.arrival_ns.size
        slots = rules.slots or min(count, _FIRST_SLOTS)
        self._rules, self._generation = rules, generation
        self._batch = max(stream.batch for stream in rules.streams)
        self._lanes, queue, lane_of = _lanes(offers, rules)
        self._stream, decode = _streams(generation, rules)
        pool, pool_of = pool_arrays(rules)
        if not shared:
            pool[ph.B_BANDWIDTH] = np.inf
        rule = rule_array(rules, shared)
        rule[ev.R_SHARED] = shared
        self._off_home = home_arrays(rules, slots)[1]
        services, self._heat, joules, low_base, low_profile_of = heat_arrays(services, rules)
        self._die = np.zeros(count if self._heat.size else 0, np.float64)
        spent = np.array([*(profile.energy_j for profile in services.profiles), 0.0])  # row -1: none
        self.state = np.zeros(gk.STATES, np.int64)
        self.state[gk.X_NOW] = -1
        self.arrival, self._clients = arrivals_of(offers, clients)
        self.start = np.zeros(count, np.int64)
        self.completion = np.zeros(count, np.int64)
        self.slot_of = np.zeros(count, np.int32)
        self.full = offers.arrival_ns
        self._progress = np.zeros((count, gk.PROGRESS_COLUMNS), np.int64)
        self._energy = np.zeros(count, np.float64)
        self._sizes = np.zeros(self._batch + 1, np.int64)
        self._parts = np.zeros((count, gk.P_INTERLEAVED + 1), np.int64)
        self._before: tuple[Any, ...] = (
            rule,
            self.state,
            pool,
            rules.efficiency_loss,
            window_edges(rules),
            self.arrival,
            _requests(offers, generation, lane_of),
            np.ascontiguousarray(np.stack((offers.size, generation.step_size), axis=1), np.float64),
            self._stream,
            decode,
            queue,
            self._lanes,
        )
        self._costs: tuple[Any, ...] = (
            np.array(services.base_ns, np.int64),
            np.array(services.launch_ns, np.int64),
            np.array(services.profile_of, np.int64),
            np.array(generation.instead, np.int64),
            np.ascontiguousarray(spent[services.profile_of]),
            *phase_arrays(services),
            pool_of,
            self._heat,
            joules,
            low_base,
            low_profile_of,
            self._die,
        )
        self._slot, self._flow = idle_slots(slots)
        self._seats = _seats(slots, self._batch)
        self.seen = Seen.of(view, rules.slots, self._heat.size > 0)
        self._answer = gk.MORE

    @property
    def progress(self) -> float:
        """From 0 to 1, by requests that are done."""
        return int(self.state[gk.X_DONE]) / self.start.size

    def step(self, events: int) -> bool:
        """Go on by `events` events; True when all are served."""
        if self._answer == gk.FINISHED:
            return True
        arguments: tuple[Any, ...] = (
            *self._before,
            self._off_home,
            *self._costs,
            self._allowed(),
            self._slot,
            self._flow,
            *self._seats,
            self.start,
            self.completion,
            self.slot_of,
            self._progress,
            self._energy,
            self._sizes,
            self._parts,
            self.seen.view,
            self.seen.moved,
            self.seen.warmth,
            *self._clients,
        )
        self._answer = gk.advance_iterations(events, *arguments)
        if self._answer == gk.MORE_SLOTS:
            slots = self._slot.shape[1]
            more = idle_slots(slots)
            self._slot, self._flow = np.hstack((self._slot, more[0])), np.hstack((self._flow, more[1]))
            seat, *others = self._seats
            new_seat, *new = _seats(slots, self._batch)
            self._seats = (
                np.hstack((seat, new_seat)),
                *(np.vstack(pair) for pair in zip(others, new, strict=True)),
            )
            self._off_home = home_arrays(self._rules, 2 * slots)[1]
        return self._answer == gk.FINISHED

    def _allowed(self) -> NDArray[np.int64]:
        """int64[lanes, slots]: 2 at home, 1 where a lane may go as well, 0 where it may not."""
        rules, slots = self._rules, self._slot.shape[1]
        allowed = np.ones((self._lanes.shape[0], slots), np.int64)
        if rules.slots is None:
            return allowed
        for lane, stream in enumerate(self._lanes[:, gk.L_STREAM].tolist()):
            home = list(rules.streams[stream].home)
            if rules.placement == "static":
                allowed[lane] = 0
            if rules.placement in ("static", "home-first", "stealing"):
                allowed[lane, home] = 2
            elif rules.placement == "round-robin":
                allowed[lane] = np.arange(slots) == lane % slots
        return allowed

    @property
    def beside_idle(self) -> Times:
        """int64[n] ns that a request waited while some slot was idle."""
        return np.ascontiguousarray(self._progress[:, gk.G_IDLE_NS])

    @property
    def mean_batch(self) -> NDArray[np.int32]:
        """int32[n]: members of a request's iterations on average, rounded."""
        return np.rint(self._progress[:, gk.G_MEMBERS] / self._progress[:, gk.G_ITERATIONS]).astype(np.int32)

    def parts(self) -> dict[str, Times]:
        """Parts of the time from start to completion, each int64[n]."""
        return {name: np.ascontiguousarray(self._parts[:, column]) for name, column in _PARTS.items()}

    def warmed(self) -> Warmed | None:
        """What heat did; None where nothing warms."""
        return warmed(self._heat, self._die)

    def generated(self) -> Generated:
        """What happened token by token."""
        busy = self._seats[0][gk.T_BUSY]
        if self._rules.slots is None:
            busy = np.array([busy.sum()])
        first = np.ascontiguousarray(self._progress[:, gk.G_FIRST_NS])
        full = self._progress[:, gk.G_FULL] > 0
        for array in (first, self._energy, busy, self._sizes, full):
            array.setflags(write=False)
        peak = tuple(self._stream[:, gk.W_PEAK].tolist())
        return Generated(first, self._generation.tokens, self._energy, busy, self._sizes, full, peak)


def _seats(slots: int, batch: int) -> tuple[NDArray[Any], ...]:
    """Who sits on idle slots, and the segments of their iterations: at most one a member, and one that decodes."""
    return (
        np.zeros((gk.SEAT_ROWS, slots), np.int64),
        np.zeros((slots, batch), np.int64),
        np.zeros((slots, batch), np.int64),
        np.zeros((slots, batch + 1, gk.SEGMENT_COLUMNS), np.int64),
        np.zeros((slots, batch + 1), np.float64),
        np.zeros((slots, batch + 1), np.float64),
    )


def _lanes(offers: Offers, rules: Rules) -> tuple[NDArray[np.int64], Times, Times]:
    """The lanes' table, requests by lane, and the lane of each: one a stream, or one a stream and slot."""
    lane_of = np.array(offers.stream, np.int64)
    turns = rules.slots if rules.placement == "round-robin" and rules.slots is not None else 1
    lane_of = lane_of * turns + np.arange(lane_of.size) % turns
    lanes = np.zeros((len(rules.streams) * turns, gk.LANE_COLUMNS), np.int64)
    size = np.bincount(lane_of, minlength=lanes.shape[0])
    lanes[:, gk.L_HEAD] = lanes[:, gk.L_TAIL] = np.cumsum(size) - size
    lanes[:, gk.L_STREAM] = np.arange(lanes.shape[0]) // turns
    return lanes, np.argsort(lane_of, kind="stable"), lane_of


def _streams(generation: Generation, rules: Rules) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The streams' table, and their decode plans one after another: (past, plan)."""
    table = np.zeros((len(rules.streams), gk.STREAM_COLUMNS), np.int64)
    decode: list[tuple[int, int]] = []
    for s, (stream, decoding) in enumerate(zip(rules.streams, generation.streams, strict=True)):
        table[s, gk.W_PRIORITY], table[s, gk.W_BATCH] = stream.priority, stream.batch
        table[s, gk.W_BEGIN] = len(decode)
        decode += decoding.plans
        table[s, gk.W_END] = len(decode)
        table[s, gk.W_STEP] = decoding.step_ns
        table[s, gk.W_NUM], table[s, gk.W_DEN] = decoding.beyond
        limit = decoding.kv_capacity_bytes
        table[s, gk.W_CAPACITY] = ph.NEVER if limit is None else limit
        table[s, gk.W_CHUNKED] = decoding.chunked
    return table, np.array(decode, np.int64).reshape(-1, 2)


def _requests(offers: Offers, generation: Generation, lane_of: Times) -> NDArray[np.int64]:
    """int64[n, REQUEST_COLUMNS]."""
    table = np.empty((lane_of.size, gk.REQUEST_COLUMNS), np.int64)
    table[:, gk.C_STREAM], table[:, gk.C_LANE] = offers.stream, lane_of
    table[:, gk.C_CHUNKS] = generation.chunks
    table[:, gk.C_FALL : gk.C_FALL_DEN + 1] = offers.fallback
    table[:, gk.C_PAST], table[:, gk.C_OUT] = generation.past, generation.tokens
    table[:, gk.C_KV] = generation.kv_bytes
    first = np.stack((offers.plan, offers.own_ns, offers.padding[:, 0], offers.padding[:, 1]), axis=1)
    table[:, gk.C_CHUNK : gk.C_CHUNK + gk.CHUNK_COLUMNS] = first
    table[:, gk.C_CHUNK + gk.CHUNK_COLUMNS :] = generation.later.reshape(lane_of.size, -1)
    return table
