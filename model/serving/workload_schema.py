"""The workload file's schema: every key that CONTRACT names, checked strictly, and what of it comes later.

Knows the shape of the file only; `workload.py` makes values of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from ..schema import Count, Index, Name, Nanoseconds, NonNegative, Positive, Strict
from .arrivals import TraceFormat

LEAST_RATE, MOST_RATE, MOST_SLOTS = 1e-6, 1e9, 65_536

Rate = Annotated[float, Field(ge=LEAST_RATE, le=MOST_RATE)]
"""Requests a second: from one in eleven days to one a nanosecond."""
Moment = Annotated[float, Field(ge=0, le=1.1e9)]
"""Seconds since a workload's begin, at most 35 years."""


class PlacementPart(Strict):
    kind: Literal["dynamic", "static", "round-robin", "home-first", "stealing"] = "dynamic"
    off_home_factor: NonNegative | None = None


class ContentionPart(Strict):
    enabled: bool = True
    admission_limit: Count | None = None
    shares: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)


class ThrottlePart(Strict):
    thermal: bool = False
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


class QueuePart(Strict):
    discipline: Literal["fifo", "priority", "deficit-round-robin"] = "fifo"
    quantum_s: Positive | None = None


class TraceArrivalsPart(Strict):
    kind: Literal["trace"]
    file: Name
    format: TraceFormat = "tilewright"
    rate_per_s: Rate | None = None


class SyntheticArrivalsPart(Strict):
    kind: Literal["poisson", "constant"]
    rate_per_s: Rate


class LaterArrivalsPart(Strict):
    """Processes of a later version: their own keys are not judged, the kind is refused."""

    model_config = ConfigDict(extra="allow")
    kind: Literal["mmpp", "closed"]


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
    max: Count = 1
    linger_s: NonNegative = 0.0


class PlanAtPart(Strict):
    length: Count | None = None
    past: Count | None = None
    batch: Count = 1
    plan: Name


class ServicePart(Strict):
    base_ns: Nanoseconds | None = None
    per_input_ns: Nanoseconds = 0
    per_output_ns: Nanoseconds = 0
    dist: Literal["exponential", "deterministic"] | None = None
    mean_s: Annotated[float, Field(gt=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given, drawn = self.base_ns is not None, self.dist is not None or self.mean_s is not None
        if given == drawn or (drawn and (self.dist is None or self.mean_s is None)):
            raise ValueError("needs either base_ns (and per_input_ns, per_output_ns) or dist and mean_s")
        if drawn and (self.per_input_ns or self.per_output_ns):
            raise ValueError("dist and mean_s take no per_input_ns or per_output_ns")
        return self


class FallbackPart(Strict):
    max_input_tokens: Index
    num: Count | None = None
    den: Count = 1
    plan: Name | None = None
    recompile_s: NonNegative | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(part is not None for part in (self.num, self.plan, self.recompile_s)) != 1:
            raise ValueError("needs exactly one of num (with den), plan and recompile_s")
        return self


class ObjectivePart(Strict):
    percentile: Annotated[float, Field(gt=0, lt=1)]
    response_s: Positive


class GenerationPart(Strict):
    decode: list[PlanAtPart] = Field(default_factory=list)
    kv_capacity_bytes: Count | None = None
    prefix_cache: bool = False
    prefill_chunk_tokens: Index = 0


class StreamPart(Strict):
    name: Name = "requests"
    kind: Literal["one-shot", "generation"] = "one-shot"
    arrivals: Annotated[
        TraceArrivalsPart | SyntheticArrivalsPart | LaterArrivalsPart, Field(discriminator="kind")
    ]
    jitter: JitterPart | None = None
    batch: BatchPart = BatchPart()
    bind: dict[str, Name] = Field(default_factory=dict)
    plans: list[PlanAtPart] = Field(default_factory=list)
    profile: Name | None = None
    service: ServicePart | None = None
    fallback: FallbackPart | None = None
    priority: int = 0
    home_slot: Index = 0
    weight: Positive = 1.0
    slo: ObjectivePart | None = None
    generation: GenerationPart | None = None

    @model_validator(mode="after")
    def _one_service(self) -> Self:
        if sum((bool(self.plans), self.profile is not None, self.service is not None)) > 1:
            raise ValueError("plans, profile and service exclude each other")
        return self


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
    stream: Annotated[list[StreamPart], Field(min_length=1)]

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
    def _extent(self) -> Self:
        if self.requests is not None and self.window_s is not None:
            raise ValueError("requests and window_s exclude each other")
        if self.window_s is not None and self.window_s[1] <= self.window_s[0]:
            raise ValueError(f"window_s: the window [{self.window_s[0]:g}, {self.window_s[1]:g}) is empty")
        return self


def later(file: WorkloadFile) -> list[str]:
    """What the file asks for and this version does not simulate, as ``path = value``."""
    found: list[str] = []

    def unless(fine: bool, text: str) -> None:
        if not fine:
            found.append(text)

    unless(len(file.stream) == 1, f"{len(file.stream)} streams at once")
    place = file.placement
    unless(place.kind in ("dynamic", "round-robin"), f"placement.kind = {place.kind!r}")
    unless(place.off_home_factor is None, "placement.off_home_factor")
    limit = file.contention.admission_limit
    enough = limit is None or (isinstance(file.slots, int) and limit >= file.slots)
    unless(enough, f"contention.admission_limit = {limit}")
    unless(not file.contention.shares, "contention.shares")
    unless(not file.throttle.thermal, "throttle.thermal = true")
    unless(file.queue.discipline == "fifo", f"queue.discipline = {file.queue.discipline!r}")
    for index, stream in enumerate(file.stream):
        at = f"stream[{index}]."
        unless(stream.kind == "one-shot", f"{at}kind = {stream.kind!r}")
        unless(stream.generation is None, f"{at}generation")
        unless(
            not isinstance(stream.arrivals, LaterArrivalsPart),
            f"{at}arrivals.kind = {stream.arrivals.kind!r}",
        )
        unless(stream.batch.max == 1, f"{at}batch.max = {stream.batch.max}")
        unless(not stream.bind, f"{at}bind")
        unless(not stream.plans, f"{at}plans")
        short = stream.fallback is None or stream.fallback.num is not None
        unless(short, f"{at}fallback with plan or recompile_s")
    return found
