"""What a replay takes and gives: offers, services and rules in, times and parts out. Values only.

The seam between what a workload says (files, streams, plans; resolved before) and the event kernel, which sees the
arrays of these values. Times are int64 nanoseconds from the start of the window. A factor is a pair
``(num, den)``, applied as ``time * num // den``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .generation import Generated, Generation
from .profile import launch_ns
from .result import ServiceProfile, Warmed
from .thermal import Heat

Times = NDArray[np.int64]
Factors = NDArray[np.int64]
"""``(num, den)``: int64[..., 2], num >= 0, den >= 1."""

Placement = Literal["dynamic", "static", "round-robin", "home-first", "stealing"]
Discipline = Literal["fifo", "priority", "deficit-round-robin"]

PARTS: tuple[str, ...] = (
    "batch_wait",
    "queue",
    "queue_imbalance",
    "contention_queue",
    "preempted",
    "base",
    "padding",
    "fallback",
    "off_home",
    "stall_burst",
    "stall_steady",
    "stall_spill",
    "stall_refetch",
    "throttle",
)
"""Parts of a response, as they are shown; they sum to it, but for ``queue_imbalance``, which lies within ``queue``: the
wait while fewer batches were under way than there are slots."""


@dataclass(frozen=True, eq=False, slots=True)
class Offers:
    """All requests of all streams, ascending by (arrival_ns, stream, index in the stream).

    Attributes
    ----------
    arrival_ns : int64[n].
    stream : int32[n], index into `Rules.streams`.
    plan : int32[n], row of `Services`: the compiled plan that the request runs.
    own_ns : int64[n]: what the request adds to its batch's time (token terms; 0 where a profile says it all).
    size : float64[n]: multiplies every base ns but launches, and its bytes; 1.0 without jitter.
    padding : int64[n, 2] factor <= 1: the share of the plan's time that is the request's own work; (1, 1) for all.
    fallback : int64[n, 2] factor on the plan's time where no compiled plan holds the request; (1, 1) for none.
    generation : what requests ask for that are answered token by token: all of the above is then their first chunk
        of prefill, and one-shot requests are of one chunk and one token. None: all are one-shot.
    """

    arrival_ns: Times
    stream: NDArray[np.int32]
    plan: NDArray[np.int32]
    own_ns: Times
    size: NDArray[np.float64]
    padding: Factors
    fallback: Factors
    generation: Generation | None = None

    @classmethod
    def of_one_stream(
        cls, arrival_ns: Times, own_ns: Times | None = None, size: NDArray[np.float64] | None = None
    ) -> Offers:
        """Requests of one stream on one plan, without padding and fallback."""
        count = arrival_ns.size
        zeros = np.zeros(count, dtype=np.int32)
        return cls(
            arrival_ns,
            zeros,
            zeros,
            np.zeros(count, dtype=np.int64) if own_ns is None else own_ns,
            np.ones(count) if size is None else size,
            np.ones((count, 2), dtype=np.int64),
            np.ones((count, 2), dtype=np.int64),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Services:
    """How long a batch takes alone on its slot, and what it asks of DRAM meanwhile.

    A batch of b requests takes ``launch_ns + rint(mean size * (base_ns - launch_ns + sum of own_ns))`` ns.

    Attributes
    ----------
    base_ns : int64[plans, largest batch + 1], by plan and batch size; column 0 is unused.
    launch_ns : of the same shape: the part of `base_ns` that sizes do not touch.
    profile_of : int32 of the same shape: which of `profiles` is played; -1 where only a time is given, which asks
        nothing of DRAM.
    profiles : each as it was simulated at its batch size.
    """

    base_ns: Times
    launch_ns: Times
    profile_of: NDArray[np.int32]
    profiles: tuple[ServiceProfile, ...] = ()

    @classmethod
    def of_times(cls, base_ns: Times) -> Services:
        """Given times, int64[plans, largest batch + 1]."""
        return cls(base_ns, np.zeros_like(base_ns), np.full(base_ns.shape, -1, dtype=np.int32))

    @classmethod
    def of_profiles(cls, profile_of: NDArray[np.int32], profiles: tuple[ServiceProfile, ...]) -> Services:
        """Profiles by plan and batch size, int32[plans, largest batch + 1]; -1 in the unused column 0."""
        launch = np.array([launch_ns(profile) for profile in profiles], dtype=np.int64)
        base = np.array([profile.base_ns for profile in profiles], dtype=np.int64)
        there = profile_of >= 0
        return cls(
            np.where(there, base[profile_of], 0), np.where(there, launch[profile_of], 0), profile_of, profiles
        )


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How one stream is treated.

    Attributes
    ----------
    home : its slots, for every placement but "dynamic" and "round-robin".
    weight : its part of each round of deficit round robin.
    priority : the larger goes first under "priority".
    batch : the most requests of a batch; ``linger_ns``: how long the oldest waits for the batch to fill.
    share : the part of the bandwidth that is the stream's alone; None: what the others leave, together with all
        streams that have none.
    """

    home: tuple[int, ...] = (0,)
    weight: float = 1.0
    priority: int = 0
    batch: int = 1
    linger_ns: int = 0
    share: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Rules:
    """The rules of a replay.

    Attributes
    ----------
    slots : how many; None: as many as there are requests, so that nobody waits.
    streams : at least one.
    placement : which idle slot a batch takes. "dynamic": the least (free since, index) of all; "static": the same of
        the stream's home slots only; "round-robin": request i waits for slot ``i mod slots``; "home-first": a home
        slot that is idle, else the lowest idle; "stealing": as home-first, but a slot that falls free takes a request
        at home there before all others.
    discipline : which ready batch goes first. "fifo": that of the oldest request; "priority": that of the highest
        priority, then the oldest; "deficit-round-robin": streams in turn, each ``quantum_ns * weight`` more per turn.
    preempt : under "priority", a batch that plays a profile lets higher priorities go first before each launch.
    off_home : int64[streams, slots, 2], factor on the time of a batch on that slot; None: 1 everywhere.
    bandwidth_bytes_per_s : what all slots share; infinite: no contention.
    efficiency_loss : of the bandwidth under k users: ``1 - loss * (k - 1) / k`` of it is there.
    admission_limit : the most batches in service at one time; None: one for each slot.
    throttle_edges_ns : int64[2 w]: begin, end, begin, end ..., strictly ascending; a batch that starts inside takes
        ``throttle`` times as long, the whole of it.
    heat : batches that start while the die is hot, or over the power cap, run at the low clock; None: nothing warms.
    """

    slots: int | None
    streams: tuple[StreamRules, ...] = (StreamRules(),)
    placement: Placement = "dynamic"
    discipline: Discipline = "fifo"
    quantum_ns: int = 1_000_000
    preempt: bool = False
    off_home: Factors | None = None
    bandwidth_bytes_per_s: float = float("inf")
    efficiency_loss: float = 0.0
    admission_limit: int | None = None
    throttle_edges_ns: Times | None = None
    throttle: tuple[int, int] = (1, 1)
    heat: Heat | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Clients:
    """Clients of a closed loop: each asks, waits for the answer, thinks, and asks again.

    ``think_ns`` int64[count + n]: before each client's first request, then after request 0, 1, ... in order of arrival.
    """

    count: int
    think_ns: Times


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """What happened to every request, in the order of the offers; arrays are read-only.

    Attributes
    ----------
    start_ns, completion_ns : int64[n].
    slot, batch : int32[n]: where it started, and with how many in its batch (of iterations: on average, rounded).
    parts : ``(name, int64[n] ns)`` for each of `PARTS`, each from its own event; where requests are answered token
        by token also ``interleaved``: of a request's iterations the time in which others' segments ran.
    generated : what happened token by token; None where all are one-shot. warmed : what heat did; None: nothing warms.
    held_ns : int64[slots], how long batches held each slot; None where every batch stays on the slot where it started.
    """

    start_ns: Times
    completion_ns: Times
    slot: NDArray[np.int32]
    batch: NDArray[np.int32]
    parts: tuple[tuple[str, Times], ...]
    generated: Generated | None = None
    warmed: Warmed | None = None
    held_ns: Times | None = None

    @property
    def served_ns(self) -> Times:
        """int64[n]: how long each request's batch held a slot: what it waited for while suspended is not part of it."""
        return self.completion_ns - self.start_ns - dict(self.parts)["preempted"]


def dynamic_energy_j(offers: Offers, services: Services, done: Replayed) -> NDArray[np.float64]:
    """float64[n] joules: of every batch its profile's energy, shared by its requests; static power apart."""
    if done.generated is not None:
        return done.generated.energy_j
    each = np.array([*(profile.energy_j for profile in services.profiles), 0.0])  # row -1: none
    return each[services.profile_of[offers.plan, done.batch]] / done.batch
