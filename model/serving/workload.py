"""Workload files: TOML as CONTRACT writes it, to the requests and rules of a replay.

Knows the file format and what this version simulates. Every key of the contract is understood; one that would
change the numbers and is not simulated yet is refused by name, never ignored. The recorded trace is read
here, so that a `Workload` is a complete value: serving is a pure function of it and of the plan's profile.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import FileError, UsageError
from ..packaged import input_file, named_file, packaged_names
from ..schema import read_bytes, read_toml
from .arrivals import read_trace, recorded, synthetic
from .profile import load_profile
from .result import Arrivals, ServiceProfile
from .workload_schema import (
    StreamPart,
    SyntheticArrivalsPart,
    ThrottlePart,
    TraceArrivalsPart,
    WorkloadFile,
    later,
)


@dataclass(frozen=True, slots=True)
class GivenService:
    """``base_ns + per_input_ns * input tokens + per_output_ns * output tokens``."""

    base_ns: int
    per_input_ns: int
    per_output_ns: int


@dataclass(frozen=True, slots=True)
class DrawnService:
    """Service times drawn from ``default_rng(2000 + seed)``: "exponential", or "deterministic"."""

    dist: str
    mean_s: float


@dataclass(frozen=True, slots=True)
class Fallback:
    """Requests with more input tokens take ``service * num // den``, before anything else."""

    max_input_tokens: int
    num: int
    den: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """Requests that start inside a window take ``service * num // den``; windows are disjoint, ascending."""

    windows_ns: tuple[tuple[int, int], ...] = ()
    num: int = 1
    den: int = 1


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
    service : None where the plan's profile gives the service time.
    jitter_cv : coefficient of variation of the size, 0 for none.
    """

    name: str
    arrivals: Arrivals
    rate_per_s: float | None
    service: GivenService | DrawnService | ServiceProfile | None
    jitter_cv: float = 0.0
    fallback: Fallback | None = None
    objective: Objective | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A whole workload file.

    Attributes
    ----------
    slots : None where the machine decides; `UNLIMITED` for a slot for each request.
    placement : "dynamic" (one queue) or "round-robin" (request i at slot i mod slots).
    streams : exactly one in this version.
    notes : what a reader of the results must know about the file.
    """

    name: str
    path: str
    digest: str
    seed: int
    slots: int | None
    placement: str
    contention: bool
    throttle: Throttle
    streams: tuple[Stream, ...]
    notes: tuple[str, ...] = ()


UNLIMITED = 0


def packaged_workloads() -> tuple[str, ...]:
    """Names of the workloads that ship with the program, sorted."""
    return packaged_names("assets/workloads", ".toml")


def workload_path(source: str | Path) -> Path:
    """The file that `source` means: a file of that name, else the packaged workload of that name."""
    return input_file(
        source,
        "assets/workloads",
        ".toml",
        f"no such workload file, and no packaged workload of that name ({', '.join(packaged_workloads())})",
        "Give a .toml file or one of these names.",
    )


def load_workload(source: str | Path) -> Workload:
    """Read a workload, and the trace or profile that it names, from a file or by a packaged name.

    Traces and profiles are looked for beside the workload file, then among the packaged traces.

    Raises
    ------
    FileError : missing files, faults (all at once, with their paths), what this version cannot simulate, or a
        window or rate that leaves no requests.
    """
    path = workload_path(source)
    content = read_bytes(path)
    file = read_toml(content, WorkloadFile, str(source))
    missing = later(file)
    if missing:
        raise FileError(
            f"not simulated in this version: {', '.join(missing)}",
            where=str(source),
            lever="Leave it out to simulate the rest.",
        )
    try:
        stream, notes = _stream(file, path, str(source))
    except UsageError as error:  # a window or rate that leaves nothing: say in which file
        raise FileError(error.what, where=str(source), lever=error.lever) from error
    return Workload(
        name=path.stem,
        path=str(path),
        digest="sha256:" + hashlib.sha256(content).hexdigest(),
        seed=file.seed,
        slots=UNLIMITED if file.slots == "unlimited" else file.slots,
        placement=file.placement.kind,
        contention=file.contention.enabled,
        throttle=_throttle(file.throttle),
        streams=(stream,),
        notes=notes,
    )


def _beside(name: str, path: Path, where: str) -> Path:
    """The file called `name` beside the workload file, or the packaged trace of that name."""
    for candidate in (path.parent / name, named_file(name, "assets/traces", Path(name).suffix)):
        if candidate is not None and os.path.isfile(candidate):
            return candidate
    raise FileError(
        f"names the file {name!r}, which is neither in {path.parent} nor among the packaged traces",
        where=where,
        lever="Put it beside the workload file, or correct the name.",
    )


def _stream(file: WorkloadFile, path: Path, where: str) -> tuple[Stream, tuple[str, ...]]:
    """The one stream with its trace or process, and what must be said about it."""
    part = file.stream[0]
    window = (file.window_s[0], file.window_s[1]) if file.window_s is not None else None
    notes: tuple[str, ...] = ()
    if isinstance(part.arrivals, TraceArrivalsPart):
        found = _beside(part.arrivals.file, path, f"{where}: stream[0].arrivals.file")
        trace = read_trace(found, part.arrivals.format)
        notes = trace.notes
        arrivals = recorded(
            trace,
            found.stem,
            rate_per_s=part.arrivals.rate_per_s,
            window_s=window,
            requests=file.requests,
        )
        rate = None
    else:
        assert isinstance(part.arrivals, SyntheticArrivalsPart)  # `later` refused the others
        kind, rate = part.arrivals.kind, part.arrivals.rate_per_s
        arrivals = synthetic(kind, rate, file.seed, requests=file.requests, window_s=window)
        _needs_tokens(part, where)
    fallback = part.fallback
    stream = Stream(
        name=part.name,
        arrivals=arrivals,
        rate_per_s=rate,
        service=_service(part, path, where),
        jitter_cv=part.jitter.cv if part.jitter else 0.0,
        fallback=(
            Fallback(fallback.max_input_tokens, fallback.num, fallback.den)
            if fallback is not None and fallback.num is not None
            else None
        ),
        objective=Objective(part.slo.percentile, part.slo.response_s) if part.slo else None,
    )
    return stream, notes


def _needs_tokens(part: StreamPart, where: str) -> None:
    """Refuse token-dependent rules for synthetic arrivals, which carry no tokens."""
    service = part.service
    wanted = "fallback.max_input_tokens" if part.fallback is not None else ""
    if service is not None and (service.per_input_ns or service.per_output_ns):
        wanted = "service.per_input_ns and per_output_ns"
    if wanted:
        raise FileError(
            f"{wanted} need token counts, and {part.arrivals.kind} arrivals have none",
            where=f"{where}: stream[0]",
            lever="Use a recorded trace, or leave them out.",
        )


def _service(part: StreamPart, path: Path, where: str) -> GivenService | DrawnService | ServiceProfile | None:
    if part.profile is not None:
        return load_profile(_beside(part.profile, path, f"{where}: stream[0].profile"))
    given = part.service
    if given is None:
        return None
    if given.dist is not None and given.mean_s is not None:
        return DrawnService(given.dist, given.mean_s)
    return GivenService(given.base_ns or 0, given.per_input_ns, given.per_output_ns)


def _throttle(part: ThrottlePart) -> Throttle:
    """Windows in order, those that touch or overlap joined; no windows where the factor is one."""
    num, den = part.factor
    joined: list[list[int]] = []
    for begin, end in sorted(part.windows_ns):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    if num == den:
        joined = []
    return Throttle(tuple((begin, end) for begin, end in joined), num, den)
