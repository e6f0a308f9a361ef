"""A workload as a value: streams with their requests, what these cost, and the rules that they meet.

Knows no file: `workload.py` reads one. What follows from these values is `offers`' and `serve`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from .arrivals import ClosedLoop
from .result import Arrivals, ServiceProfile
from .rules import Discipline, Placement
from .thermal import Heat


@dataclass(frozen=True, slots=True)
class GivenService:
    """``base_ns + per_input_ns * input tokens + per_output_ns * output tokens``; a batch takes `base_ns` once."""

    base_ns: int
    per_input_ns: int
    per_output_ns: int


@dataclass(frozen=True, slots=True)
class DrawnService:
    """Service times that are drawn: see `arrivals.SERVICE` for the generator.

    Attributes
    ----------
    dist : "exponential", "deterministic", "lognormal" of coefficient of variation `cv`, or "two-point": `slow_share`
        of the requests take `slow_factor` times as long as the others.
    """

    dist: str
    mean_s: float
    cv: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 1.0

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """float64[count] ns."""
        mean_ns = self.mean_s * 1e9
        if self.dist == "exponential":
            return random.exponential(mean_ns, count)
        if self.dist == "lognormal":
            spread = np.log1p(self.cv**2)
            return random.lognormal(np.log(mean_ns) - spread / 2.0, np.sqrt(spread), count)
        if self.dist == "two-point":
            fast = mean_ns / (1.0 + self.slow_share * (self.slow_factor - 1.0))
            return np.where(random.random(count) < self.slow_share, fast * self.slow_factor, fast)
        return np.full(count, mean_ns)


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A saved plan whose cost is not known before it is simulated, with the graph's dims bound as given.

    ``graph``: another graph than the caller's; None: that one. ``past``: the dim along which the cache grows.
    """

    path: str
    bindings: tuple[tuple[str, int], ...]
    graph: str | None = None
    past: str | None = None


Cost = PlanFile | ServiceProfile | int
"""What one batch costs: a plan to simulate, its profile, or nanoseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanAt:
    """A compiled plan: it runs batches of up to `batch` requests of up to `length` tokens (None: of any length)."""

    length: int | None
    batch: int
    cost: Cost


@dataclass(frozen=True, slots=True, eq=False)
class Fallback:
    """What a request does that no compiled plan holds; exactly one of the last three speaks.

    Attributes
    ----------
    max_input_tokens : requests longer than this fall back; None: those longer than the longest plan.
    num, den : it takes ``num / den`` of the plan's time.
    plans : it runs another plan (unfused), known at the longest plan's length and batch sizes.
    recompile_ns : the first request of each such length waits for its plan to be compiled.
    """

    max_input_tokens: int | None
    num: int = 1
    den: int = 1
    plans: tuple[PlanAt, ...] = ()
    recompile_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRule:
    """How a stream's requests are answered token by token.

    Attributes
    ----------
    decode : compiled plans of one step, whose `length` is the longest past that they hold. Empty: the stream's given
        service time says what a token takes.
    kv_capacity_bytes : the most that the stream's requests hold on all slots together; None: no limit.
    kv_bytes_per_token : None: the past tensors of the decode graph say it.
    prefix_block_tokens : tokens of a cached block, which is not computed again; 0: every prompt is computed whole.
    chunk_tokens : the most tokens of a prompt that one iteration takes; 0: all of it.
    """

    decode: tuple[PlanAt, ...] = ()
    kv_capacity_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    prefix_block_tokens: int = 0
    chunk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Throttle:
    """Requests that start inside a window take ``service * num // den``; windows are disjoint, ascending.

    ``thermal``: the machine warms as well, that of the plans, else that of ``heat``; ``ambient_c``: instead of its own.
    """

    windows_ns: tuple[tuple[int, int], ...] = ()
    num: int = 1
    den: int = 1
    thermal: bool = False
    heat: Heat | None = None
    ambient_c: float | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A service-level objective: the share `percentile` of requests answers within `response_s`."""

    percentile: float
    response_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One source of requests.

    Attributes
    ----------
    rate_per_s : of an endless process; None for a trace.
    service : None where `plans` or the caller's plan gives the service time.
    jitter_cv : coefficient of variation of the size, 0 for none.
    batch, linger_ns : the most requests of a batch, and how long the oldest waits for others.
    plans : compiled plans per length and batch size; empty where there is one for everything.
    bind : the graph's dims that length and batch size fill, as ("length", dim) and ("batch", dim).
    priority : the larger goes first. home : its slots. weight : its part of each round of deficit round robin.
    loop : the clients of a closed loop, whose requests come as they are answered; the only stream then.
    generation : how its requests are answered token by token; None: one run of the graph each.
    """

    name: str
    arrivals: Arrivals
    rate_per_s: float | None
    service: GivenService | DrawnService | ServiceProfile | None
    jitter_cv: float = 0.0
    fallback: Fallback | None = None
    objective: Objective | None = None
    batch: int = 1
    linger_ns: int = 0
    plans: tuple[PlanAt, ...] = ()
    bind: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    home: tuple[int, ...] = (0,)
    weight: float = 1.0
    loop: ClosedLoop | None = None
    generation: GenerationRule | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A whole workload file.

    Attributes
    ----------
    slots : None where the machine decides; `UNLIMITED` for a slot for each request.
    placement, discipline, preempt : see `rules.Rules`.
    contention : False: bandwidth without end.
    notes : what a reader of the results must know about the file.
    admission_limit : the most batches in service at one time. shares : (stream, part of the bandwidth).
    off_home : factor on every slot but a stream's home; None: by the machine's topology.
    """

    name: str
    path: str
    digest: str
    seed: int
    slots: int | None
    placement: Placement
    contention: bool
    throttle: Throttle
    streams: tuple[Stream, ...]
    notes: tuple[str, ...] = ()
    admission_limit: int | None = None
    shares: tuple[tuple[str, float], ...] = ()
    off_home: Fraction | None = None
    discipline: Discipline = "fifo"
    quantum_ns: int = 1_000_000
    preempt: bool = False

    @property
    def plan_files(self) -> tuple[PlanFile, ...]:
        """Plans that must be simulated before this workload can be served."""
        costs = [
            plan.cost
            for stream in self.streams
            for plan in (
                *stream.plans,
                *(stream.fallback.plans if stream.fallback else ()),
                *(stream.generation.decode if stream.generation else ()),
            )
        ]
        return tuple(dict.fromkeys(cost for cost in costs if isinstance(cost, PlanFile)))


def cost_by_size(plans: Sequence[PlanAt], length: int | None, batch: int) -> list[Cost]:
    """Per batch size 1 to `batch` the cost of the smallest compiled batch of `length` that holds it."""
    there = {plan.batch: plan.cost for plan in plans if plan.length == length}
    return [there[min(size for size in there if size >= wanted)] for wanted in range(1, batch + 1)]


UNLIMITED = 0

UNFUSED = "unfused"
"""The name that means the graph's plan without any fusion, wherever a plan's file may stand."""


DEFAULT_PERCENTILE = 0.95
"""Of an objective that is given as a response time alone."""


def judged(workload: Workload) -> int | None:
    """The stream whose objective can be set: the only one that has one, or the only one there is."""
    having = [k for k, stream in enumerate(workload.streams) if stream.objective is not None]
    if len(having) == 1:
        return having[0]
    return 0 if not having and len(workload.streams) == 1 else None


def with_objective(workload: Workload, response_s: float, percentile: float | None = None) -> Workload:
    """`workload` with another objective of the stream that `judged` names; as it is where it names none.

    Parameters
    ----------
    percentile : share of the requests; None: the stream's own, else `DEFAULT_PERCENTILE`.
    """
    which = judged(workload)
    if which is None:
        return workload
    streams = list(workload.streams)
    own = streams[which].objective
    share = percentile or (own.percentile if own is not None else DEFAULT_PERCENTILE)
    streams[which] = replace(streams[which], objective=Objective(share, response_s))
    return replace(workload, streams=tuple(streams))
