"""The workload file's schema: every key, checked strictly, and what of it comes later.

Knows the shape of the file and what contradicts itself in it; `workload.py` makes values of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..schema import Count, Index, Name, Nanoseconds, Positive, Strict, tell
from .traces import TraceFormat

LEAST_RATE, MOST_RATE, MOST_SLOTS = 1e-6, 1e9, 65_536
MOST_BATCH, MOST_STREAMS = 4096, 1024

Rate = Annotated[float, Field(ge=LEAST_RATE, le=MOST_RATE)]
"""Requests a second: from one in eleven days to one a nanosecond."""
Factor = Annotated[float, Field(ge=1e-3, le=1e3)]
"""How many times as long something takes."""
Seconds = Annotated[float, Field(gt=0, le=1e6)]
"""A duration, at most eleven days."""
Moment = Annotated[float, Field(ge=0, le=1.1e9)]
"""Seconds since a workload's begin, at most 35 years."""


class PlacementPart(Strict):
    kind: Literal["dynamic", "static", "round-robin", "home-first", "stealing"] = "dynamic"
    off_home_factor: Factor | None = None


class ContentionPart(Strict):
    enabled: bool = True
    admission_limit: Count | None = None
    shares: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)


class ThrottlePart(Strict):
    """`hardware`: the machine that warms, where no plan says it; `ambient_c`: instead of the machine's."""

    thermal: bool = False
    hardware: Name | None = None
    ambient_c: Annotated[float, Field(ge=-100, le=200)] | None = None
    windows_ns: list[Annotated[list[Nanoseconds], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list
    )
    factor: Annotated[list[Count], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: [1, 1])

    @field_validator("windows_ns")
    @classmethod
    def _forward(cls, windows: list[list[int]]) -> list[list[int]]:
        for index, (begin, end) in enumerate(windows):
            if end <= begin:
                raise ValueError(f"[{index}]: the window [{begin}, {end}) is empty")
        return windows

    @model_validator(mode="after")
    def _warms(self) -> Self:
        if not self.thermal and (self.hardware is not None or self.ambient_c is not None):
            raise ValueError("hardware and ambient_c belong to thermal = true")
        return self


class QueuePart(Strict):
    discipline: Literal["fifo", "priority", "deficit-round-robin"] = "fifo"
    quantum_s: Seconds | None = None
    preempt: bool | None = None

    @model_validator(mode="after")
    def _quantum(self) -> Self:
        tell(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[str]:
        if self.preempt is not None and self.discipline != "priority":
            yield "preempt belongs to priority"
        if (self.quantum_s is not None) != (self.discipline == "deficit-round-robin"):
            yield "quantum_s belongs to deficit-round-robin, which needs it"


class TraceArrivalsPart(Strict):
    kind: Literal["trace"]
    file: Name
    format: TraceFormat = "tilewright"
    rate_per_s: Rate | None = None


class ProcessArrivalsPart(Strict):
    kind: Literal["poisson", "constant"]
    rate_per_s: Rate
    input_tokens: Index = 0
    output_tokens: Index = 0


class ModulatedArrivalsPart(Strict):
    """Poisson at a rate that changes: `dwells_s` are the mean times in the two states."""

    kind: Literal["mmpp"]
    rates_per_s: Annotated[
        list[Annotated[float, Field(ge=0, le=MOST_RATE)]], Field(min_length=2, max_length=2)
    ]
    dwells_s: Annotated[list[Seconds], Field(min_length=2, max_length=2)]
    input_tokens: Index = 0
    output_tokens: Index = 0

    @model_validator(mode="after")
    def _comes(self) -> Self:
        if any(0.0 < rate < LEAST_RATE for rate in self.rates_per_s) or max(self.rates_per_s) == 0.0:
            raise ValueError(
                f"rates_per_s: each should be 0 or at least {LEAST_RATE:g}, and one of them above 0"
            )
        return self


class ClosedArrivalsPart(Strict):
    """Clients that wait for their answer and think before they ask again."""

    kind: Literal["closed"]
    clients: Annotated[int, Field(ge=1, le=1_000_000)]
    think_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    think: Literal["exponential", "constant"] = "exponential"
    input_tokens: Index = 0
    output_tokens: Index = 0


class JitterPart(Strict):
    kind: Literal["gamma"] = "gamma"
    cv: Annotated[float, Field(ge=0, le=10)]

    @field_validator("cv")
    @classmethod
    def _drawable(cls, cv: float) -> float:
        if 0 < cv < 1e-3:
            raise ValueError(f"should be 0 or from 0.001 to 10, not {cv!r}")
        return cv


class BatchPart(Strict):
    max: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    linger_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0


class PlanAtPart(Strict):
    """A plan compiled for a length and a batch size; what it costs comes from one of the last three."""

    length: Count | None = None
    past: Count | None = None
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    plan: Name | None = None
    profile: Name | None = None
    base_ns: Nanoseconds | None = None

    @model_validator(mode="after")
    def _one_cost(self) -> Self:
        if sum(part is not None for part in (self.plan, self.profile, self.base_ns)) != 1:
            raise ValueError("needs exactly one of plan, profile and base_ns")
        return self


class ServicePart(Strict):
    base_ns: Nanoseconds | None = None
    per_input_ns: Nanoseconds = 0
    per_output_ns: Nanoseconds = 0
    dist: Literal["exponential", "deterministic", "lognormal", "two-point"] | None = None
    mean_s: Seconds | None = None
    cv: Annotated[float, Field(gt=0, le=100)] | None = None
    slow_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    slow_factor: Factor | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        tell(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[str]:
        given, drawn = self.base_ns is not None, self.dist is not None or self.mean_s is not None
        if given == drawn or (drawn and (self.dist is None or self.mean_s is None)):
            yield "needs either base_ns (and per_input_ns, per_output_ns) or dist and mean_s"
        if drawn and (self.per_input_ns or self.per_output_ns):
            yield "dist and mean_s take no per_input_ns or per_output_ns"
        if (self.cv is not None) != (self.dist == "lognormal"):
            yield "cv belongs to lognormal, which needs it"
        slow = (self.slow_share is not None, self.slow_factor is not None)
        if slow != (self.dist == "two-point",) * 2:
            yield "slow_share and slow_factor belong to two-point, which needs both"


class FallbackPart(Strict):
    max_input_tokens: Index | None = None
    num: Count | None = None
    den: Count = 1
    plan: Name | None = None
    profile: Name | None = None
    recompile_s: Annotated[float, Field(ge=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(part is not None for part in (self.num, self.plan, self.profile, self.recompile_s)) != 1:
            raise ValueError("needs exactly one of num (with den), plan, profile and recompile_s")
        return self


class ObjectivePart(Strict):
    percentile: Annotated[float, Field(gt=0, lt=1)]
    response_s: Positive


class GenerationPart(Strict):
    """How requests are answered token by token; a decode plan's `past` is the longest that it holds."""

    decode: list[PlanAtPart] = Field(default_factory=list)
    graph: Name | None = None
    kv_capacity_bytes: Count | None = None
    kv_bytes_per_token: Count | None = None
    prefix_cache: bool = False
    prefix_block_tokens: Count | None = None
    prefill_chunk_tokens: Index = 0

    @model_validator(mode="after")
    def _steps(self) -> Self:
        tell(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[str]:
        if any(plan.length is not None for plan in self.decode):
            yield "decode: a step has no length; past says how much cache it reads"
        pasts = {plan.past for plan in self.decode}
        if None in pasts and len(pasts) > 1:
            yield "decode: either all have a past or none"
        if len({(plan.past, plan.batch) for plan in self.decode}) < len(self.decode):
            yield "decode: two of them have the same past and batch"
        if self.prefix_block_tokens is not None and not self.prefix_cache:
            yield "prefix_block_tokens belongs to prefix_cache = true"


class BindPart(Strict):
    """The graph's symbolic dims that a request's length, the batch size and, of a decode step, the past fill."""

    length: Name | None = None
    batch: Name | None = None
    past: Name | None = None


HomeSlot = Annotated[int, Field(ge=0, lt=MOST_SLOTS)]


class StreamPart(Strict):
    name: Name | None = None
    kind: Literal["one-shot", "generation"] = "one-shot"
    arrivals: Annotated[
        TraceArrivalsPart | ProcessArrivalsPart | ModulatedArrivalsPart | ClosedArrivalsPart,
        Field(discriminator="kind"),
    ]
    jitter: JitterPart | None = None
    batch: BatchPart = BatchPart()
    bind: BindPart = BindPart()
    plans: list[PlanAtPart] = Field(default_factory=list)
    profile: Name | None = None
    service: ServicePart | None = None
    fallback: FallbackPart | None = None
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    home_slot: HomeSlot | Annotated[list[HomeSlot], Field(min_length=1)] = 0
    weight: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.0
    slo: ObjectivePart | None = None
    generation: GenerationPart | None = None

    @model_validator(mode="after")
    def _one_service(self) -> Self:
        tell(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[str]:
        if sum((bool(self.plans), self.profile is not None, self.service is not None)) > 1:
            yield "plans, profile and service exclude each other"
        if self.service is not None and self.service.dist is not None and self.batch.max > 1:
            yield "batch.max: drawn service times have no batch; give base_ns or plans"
        lengths = {plan.length for plan in self.plans}
        for length in lengths:
            largest = max((plan for plan in self.plans if plan.length == length), key=lambda plan: plan.batch)
            most = largest.batch
            grows = largest.plan is not None and self.bind.batch is not None  # simulated at each size beyond
            if most < self.batch.max and not grows:
                what = "plans" if length is None else f"plans of length {length}"
                yield f"batch.max = {self.batch.max}, and {what} reach {most}"
        if None in lengths and len(lengths) > 1:
            yield "plans: either all have a length or none"
        if len({(plan.length, plan.batch) for plan in self.plans}) < len(self.plans):
            yield "plans: two of them have the same length and batch"
        fallback = self.fallback
        if fallback is not None and fallback.max_input_tokens is None and None in (lengths or {None}):
            yield "fallback.max_input_tokens is missing, and no plans with a length say it"
        if any(plan.past is not None for plan in self.plans):
            yield "plans: past is of generation.decode"
        if self.kind == "generation":
            yield from self._generates()

    def _generates(self) -> Iterator[str]:
        rule, given = self.generation or GenerationPart(), self.service
        if given is not None and given.dist is not None:
            yield "service: times that are drawn do not say what a token takes; give base_ns"
        if rule.decode and given is not None and given.per_output_ns:
            yield "generation.decode and service.per_output_ns both say what a step takes"
        if self.batch.linger_s:
            yield "batch.linger_s: an iteration waits for nobody; leave it out"
        for past in {plan.past for plan in rule.decode}:
            most = max((plan for plan in rule.decode if plan.past == past), key=lambda plan: plan.batch)
            if most.batch < self.batch.max and not (most.plan is not None and self.bind.batch is not None):
                which = "decode" if past is None else f"decode plans of past {past}"
                yield f"batch.max = {self.batch.max}, and {which} reach {most.batch}"


class WorkloadFile(Strict):
    format: Literal[1]
    seed: Index = 0
    requests: Count | None = None
    window_s: Annotated[list[Moment], Field(min_length=2, max_length=2)] | None = None
    slots: Any = None
    placement: PlacementPart = PlacementPart()
    contention: ContentionPart = ContentionPart()
    throttle: ThrottlePart = Field(default_factory=ThrottlePart)
    queue: QueuePart = QueuePart()
    stream: Annotated[list[StreamPart], Field(min_length=1, max_length=MOST_STREAMS)]

    @field_validator("slots")
    @classmethod
    def _slots(cls, slots: Any) -> Any:
        whole = isinstance(slots, int) and not isinstance(slots, bool) and 1 <= slots <= MOST_SLOTS
        if slots is not None and slots != "unlimited" and not whole:
            raise ValueError(
                f"should be a whole number from 1 to {MOST_SLOTS:,} or 'unlimited', not {slots!r}"
            )
        return slots

    @model_validator(mode="after")
    def _together(self) -> Self:
        tell(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[str]:
        if self.requests is not None and self.window_s is not None:
            yield "requests and window_s exclude each other"
        closed = any(isinstance(part.arrivals, ClosedArrivalsPart) for part in self.stream)
        if closed and self.requests is None:
            yield "closed arrivals have no end of their own: set requests"
        if self.window_s is not None and self.window_s[1] <= self.window_s[0]:
            yield f"window_s: the window [{self.window_s[0]:g}, {self.window_s[1]:g}) is empty"
        names = self.names()
        if len(set(names)) < len(names):
            yield f"stream: two of them are called {max(names, key=names.count)!r}"
        unknown = sorted(set(self.contention.shares) - set(names))
        if unknown:
            yield f"contention.shares: {unknown[0]!r} is none of the streams {', '.join(names)}"
        if sum(self.contention.shares.values()) > 1.0 + 1e-9:
            yield "contention.shares: they sum to more than 1"

    def names(self) -> list[str]:
        """Of the streams; one without a name is called after its place."""
        alone = len(self.stream) == 1
        return [part.name or ("requests" if alone else f"stream-{k}") for k, part in enumerate(self.stream)]


def later(file: WorkloadFile) -> list[str]:
    """What the file asks for and this version does not simulate, as ``path = value``."""
    found: list[str] = []

    def unless(fine: bool, text: str) -> None:
        if not fine:
            found.append(text)

    generates = any(stream.kind == "generation" for stream in file.stream)
    if generates:
        discipline = file.queue.discipline
        unless(discipline != "deficit-round-robin", f"queue.discipline = {discipline!r} beside generation")
    for index, stream in enumerate(file.stream):
        at = f"stream[{index}]."
        if generates:
            beside = "beside generation"
            unless(stream.batch.linger_s == 0.0, f"{at}batch.linger_s = {stream.batch.linger_s:g} {beside}")
        # Requests are numbered in the order in which they come, which a closed loop finds as it runs.
        if isinstance(stream.arrivals, ClosedArrivalsPart):
            unless(len(file.stream) == 1, "other streams beside closed arrivals")
    return found
