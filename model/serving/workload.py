"""Workload files: TOML as CONTRACT writes it, to the requests and rules of a replay.

Knows the file format and what this version simulates. Every key of the contract is understood; one that would
change the numbers and is not simulated yet is refused by name, never ignored. Recorded traces and profiles are read
here, so that a `Workload` is a complete value: serving is a pure function of it and of plans' profiles.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..errors import FileError, UsageError
from ..hardware.loader import load_hardware
from ..packaged import input_file, named_file, packaged_names
from ..schema import MOST_FAULTS, read_bytes, read_toml
from .arrivals import ClosedLoop, Process, exact, first_of_all, recorded, synthetic
from .generation import PREFIX_BLOCK_TOKENS
from .profile import load_profile
from .result import Arrivals, ServiceProfile
from .streams import (
    UNFUSED,
    UNLIMITED,
    Cost,
    DrawnService,
    Fallback,
    GenerationRule,
    GivenService,
    Objective,
    PlanAt,
    PlanFile,
    Stream,
    Throttle,
    Workload,
)
from .thermal import Heat
from .traces import Trace, read_trace
from .workload_schema import (
    ClosedArrivalsPart,
    FallbackPart,
    GenerationPart,
    ModulatedArrivalsPart,
    PlanAtPart,
    StreamPart,
    ThrottlePart,
    TraceArrivalsPart,
    WorkloadFile,
    later,
)

_Made = TypeVar("_Made")


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


def load_workload(source: str | Path, seed: int | None = None) -> Workload:
    """Read a workload, and the traces and profiles that it names, from a file or by a packaged name.

    Traces, profiles and plans are looked for beside the workload file, then among the packaged traces. `seed` instead
    of the file's own: everything is drawn anew.

    Raises
    ------
    FileError : missing files, faults (all at once, with their paths), what this version cannot simulate, or a
        window or rate that leaves no requests.
    """
    path = workload_path(source)
    content = read_bytes(path)
    file = read_toml(content, WorkloadFile, str(source))
    if seed is not None:
        file = file.model_copy(update={"seed": seed})
    missing = later(file)
    if missing:
        raise FileError(
            f"not simulated in this version: {', '.join(missing)}",
            where=str(source),
            lever="Leave it out to simulate the rest.",
        )
    reader = _Reader(file, path, str(source))
    try:
        arrivals = reader.arrivals()
    except UsageError as error:  # a window or rate that leaves nothing: say in which file
        raise FileError(error.what, where=str(source), lever=error.lever) from error
    factor, quantum = file.placement.off_home_factor, file.queue.quantum_s
    return Workload(
        name=path.stem,
        path=str(path),
        digest="sha256:" + hashlib.sha256(content).hexdigest(),
        seed=file.seed,
        slots=UNLIMITED if file.slots == "unlimited" else file.slots,
        placement=file.placement.kind,
        contention=file.contention.enabled,
        throttle=_throttle(file.throttle, reader.heat()),
        streams=reader.streams(arrivals),
        notes=tuple(reader.notes),
        admission_limit=file.contention.admission_limit,
        shares=tuple(file.contention.shares.items()),
        off_home=None if factor is None else exact(factor),
        discipline=file.queue.discipline,
        quantum_ns=1_000_000 if quantum is None else max(1, _ns(quantum)),
        # MINICASE 3.7: a slot turns to a higher class at the next launch, unless the file keeps it from that.
        preempt=file.queue.discipline == "priority" and file.queue.preempt is not False,
    )


def _ns(seconds: float) -> int:
    """Whole nanoseconds of the decimal that was written, rounded down."""
    return int(exact(seconds) * 10**9)


class _Reader:
    """Reads what a workload file names, each file once; collects what must be said about them."""

    def __init__(self, file: WorkloadFile, path: Path, where: str) -> None:
        self.file, self.path, self.where = file, path, where
        self.names = file.names()
        self.notes: list[str] = []
        self._traces: dict[tuple[Path, str], Trace] = {}
        self._profiles: dict[Path, ServiceProfile] = {}

    def arrivals(self) -> Sequence[Arrivals]:
        """The requests of every stream, those that the file's window and count leave."""
        window = (self.file.window_s[0], self.file.window_s[1]) if self.file.window_s is not None else None
        count = self.file.requests

        def source(k: int) -> Arrivals | Process:
            part = self.file.stream[k]
            if isinstance(part.arrivals, TraceArrivalsPart):
                return self._recorded(k, part.arrivals, window)
            if isinstance(part.arrivals, ClosedArrivalsPart):
                return _loop(part.arrivals).unanswered(self.file.seed, count or 0)
            process = _process(part)
            return process if count else synthetic(process, self.file.seed, k, window_s=window)

        sources = self._of_all(source)
        if count:
            return first_of_all(sources, self.file.seed, count)
        return [source for source in sources if isinstance(source, Arrivals)]

    def streams(self, arrivals: Sequence[Arrivals]) -> tuple[Stream, ...]:
        """Every stream as a value."""
        return tuple(self._of_all(lambda k: self._stream(k, arrivals[k])))

    def _of_all(self, make: Callable[[int], _Made]) -> list[_Made]:
        """`make` of every stream; the faults of all of them at once."""
        made: list[_Made] = []
        faults: list[FileError] = []
        for k in range(len(self.file.stream)):
            try:
                made.append(make(k))
            except FileError as fault:
                faults.append(fault)
        if len(faults) > 1:
            said = dict.fromkeys(f"{fault.where}: {fault.what}" for fault in faults[:MOST_FAULTS])
            more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
            raise FileError("; ".join(said) + more, lever=faults[0].lever) from faults[0]
        if faults:
            raise faults[0]
        return made

    def _recorded(self, k: int, part: TraceArrivalsPart, window: tuple[float, float] | None) -> Arrivals:
        found = self._beside(part.file, f"stream[{k}].arrivals.file")
        if (found, part.format) not in self._traces:
            trace = self._traces[found, part.format] = read_trace(found, part.format)
            self.notes += trace.notes
        trace = self._traces[found, part.format]
        own = None
        if trace.streams:
            owners = [self._owner(name, found, line) for name, line in trace.streams]
            own = np.flatnonzero(np.array(owners) == k).astype(np.int32)
            if own.size == 0:
                raise FileError(
                    f"has no request of stream[{k}] {self.names[k]!r}",
                    where=str(found),
                    lever="Leave the stream out.",
                )
            self._nobody_left_out(owners, part)
        return recorded(
            trace,
            found.stem,
            rate_per_s=part.rate_per_s,
            window_s=window,
            requests=self.file.requests,
            stream=own,
        )

    def heat(self) -> Heat | None:
        """How the machine warms that the workload names."""
        name = self.file.throttle.hardware
        if name is None:
            return None
        beside = self.path.parent / name
        machine = load_hardware(beside if beside.is_file() else name)
        if machine.thermal is None:
            raise FileError(
                f"names {name!r}, which does not say how it warms",
                where=f"{self.where}: throttle.hardware",
                lever="Give it a [thermal] section, or name another.",
            )
        return Heat(machine.thermal, machine.energy.static_w, machine.partition.slots)

    def _owner(self, name: str, trace: Path, line: int) -> int:
        """Which stream of the workload a trace's stream is: by name, else by place."""
        if name in self.names:
            return self.names.index(name)
        if name.isascii() and name.isdigit() and int(name) < len(self.names):
            return int(name)
        raise FileError(
            f"stream {name!r} is none of the workload's ({', '.join(self.names)}), nor the number of one",
            where=f"{trace}:{line}",
        )

    def _nobody_left_out(self, owners: list[int], part: TraceArrivalsPart) -> None:
        """Requests of a trace whose stream reads another file would be lost without a word."""
        for owner in set(owners):
            other = self.file.stream[owner].arrivals
            if not isinstance(other, TraceArrivalsPart) or other.file != part.file:
                name = self.names[owner]
                self.notes.append(
                    f"{part.file} has requests of stream {name!r}, which does not read it; they are left out"
                )

    def _beside(self, name: str, key: str) -> Path:
        """The file called `name` beside the workload file, or the packaged trace of that name."""
        for candidate in (self.path.parent / name, named_file(name, "assets/traces", Path(name).suffix)):
            if candidate is not None and os.path.isfile(candidate):
                return candidate
        raise FileError(
            f"names the file {name!r}, which is neither in {self.path.parent} nor among the packaged traces",
            where=f"{self.where}: {key}",
            lever="Put it beside the workload file, or correct the name.",
        )

    def _stream(self, k: int, arrivals: Arrivals) -> Stream:
        """Stream k as a value."""
        part = self.file.stream[k]
        self._needs_tokens(k, part)
        return Stream(
            name=self.names[k],
            arrivals=arrivals,
            rate_per_s=arrivals.rate_per_s if arrivals.endless else None,
            service=self._service(k, part),
            jitter_cv=part.jitter.cv if part.jitter else 0.0,
            fallback=self._fallback(k, part) if part.fallback else None,
            objective=Objective(part.slo.percentile, part.slo.response_s) if part.slo else None,
            batch=part.batch.max,
            linger_ns=_ns(part.batch.linger_s),
            plans=tuple(plan for i in range(len(part.plans)) for plan in self._plans(k, i, part)),
            bind=_bound(part),
            priority=part.priority,
            home=tuple(part.home_slot) if isinstance(part.home_slot, list) else (part.home_slot,),
            weight=part.weight,
            loop=_loop(part.arrivals) if isinstance(part.arrivals, ClosedArrivalsPart) else None,
            generation=self._generation(k, part),
        )

    def _generation(self, k: int, part: StreamPart) -> GenerationRule | None:
        if part.kind == "one-shot":
            if part.generation is not None:
                self.notes.append(
                    f"stream {self.names[k]!r} is one-shot: its generation section has no effect"
                )
            return None
        rule = part.generation or GenerationPart()
        decode: list[PlanAt] = []
        for i, plan in enumerate(rule.decode):
            largest = max(other.batch for other in rule.decode if other.past == plan.past)
            last = part.batch.max if plan.batch == largest and plan.plan else plan.batch
            decode += (
                PlanAt(plan.past, size, self._step(k, i, part, rule, size))
                for size in range(plan.batch, max(last, plan.batch) + 1)
            )
        block = (rule.prefix_block_tokens or PREFIX_BLOCK_TOKENS) if rule.prefix_cache else 0
        return GenerationRule(
            tuple(decode), rule.kv_capacity_bytes, rule.kv_bytes_per_token, block, rule.prefill_chunk_tokens
        )

    def _step(self, k: int, i: int, part: StreamPart, rule: GenerationPart, size: int) -> Cost:
        """What a decode step of `size` requests costs."""
        plan, at = rule.decode[i], f"stream[{k}].generation.decode[{i}]"
        if plan.plan is None:
            return self._cost(plan, at, part, None, size)
        own = part.bind
        wanted = {own.past: plan.past, own.batch: size if size > 1 or own.batch else None}
        if rule.graph is None and own.length is not None:
            wanted[own.length] = 1  # the graph of the prompt, for one more token
        if None in (dim for dim, value in wanted.items() if value is not None):
            raise FileError(
                f"asks for past {plan.past} and batch {size}, and bind does not name dims of the graph that are these",
                where=f"{self.where}: {at}",
                lever='Set bind = { past = "name of the dim", batch = "name of the dim" }.',
            )
        dims = tuple((dim, value) for dim, value in wanted.items() if dim is not None and value is not None)
        path = plan.plan if plan.plan == UNFUSED else str(self._beside(plan.plan, f"{at}.plan"))
        graph = rule.graph
        if graph is not None and (self.path.parent / graph).is_file():
            graph = str(self.path.parent / graph)
        return PlanFile(path, dims, graph, own.past)

    def _plans(self, k: int, i: int, part: StreamPart) -> list[PlanAt]:
        """One entry of the file; the largest of its length is simulated at every batch size beyond its own."""
        plan = part.plans[i]
        largest = max(other.batch for other in part.plans if other.length == plan.length)
        last = part.batch.max if plan.batch == largest and plan.plan else plan.batch
        at = f"stream[{k}].plans[{i}]"
        return [
            PlanAt(plan.length, size, self._cost(plan, at, part, plan.length, size))
            for size in range(plan.batch, max(last, plan.batch) + 1)
        ]

    def _needs_tokens(self, k: int, part: StreamPart) -> None:
        """Refuse token-dependent rules for arrivals that carry no tokens."""
        arrivals, service = part.arrivals, part.service
        if isinstance(arrivals, TraceArrivalsPart):
            return
        wanted = ""
        if part.fallback is not None and not arrivals.input_tokens:
            wanted = "fallback.max_input_tokens needs input_tokens"
        if any(plan.length for plan in part.plans) and not arrivals.input_tokens:
            wanted = "plans with a length need input_tokens"
        if service is not None and service.per_input_ns and not arrivals.input_tokens:
            wanted = "service.per_input_ns needs input_tokens"
        if service is not None and service.per_output_ns and not arrivals.output_tokens:
            wanted = "service.per_output_ns needs output_tokens"
        if wanted:
            raise FileError(
                f"{wanted}, and these {arrivals.kind} arrivals have none",
                where=f"{self.where}: stream[{k}]",
                lever="Set it in arrivals, use a recorded trace, or leave it out.",
            )

    def _service(self, k: int, part: StreamPart) -> GivenService | DrawnService | ServiceProfile | None:
        if part.profile is not None:
            return self._profile(part.profile, f"stream[{k}].profile")
        given = part.service
        if given is None:
            return None
        if given.dist is not None and given.mean_s is not None:
            return DrawnService(
                given.dist, given.mean_s, given.cv or 0.0, given.slow_share or 0.0, given.slow_factor or 1.0
            )
        return GivenService(given.base_ns or 0, given.per_input_ns, given.per_output_ns)

    def _profile(self, name: str, key: str) -> ServiceProfile:
        found = self._beside(name, key)
        if found not in self._profiles:
            self._profiles[found] = load_profile(found)
        return self._profiles[found]

    def _cost(
        self, part: PlanAtPart | FallbackPart, key: str, stream: StreamPart, length: int | None, batch: int
    ) -> Cost:
        """What `part` names: a profile, nanoseconds, or a plan under the bindings of its length and batch size."""
        if part.profile is not None:
            return self._profile(part.profile, f"{key}.profile")
        if isinstance(part, PlanAtPart) and part.base_ns is not None:
            return part.base_ns
        bound = dict(_bound(stream))
        wanted = {"length": length, "batch": batch if batch > 1 or "batch" in bound else None}
        for what, value in wanted.items():
            if value is not None and what not in bound:
                raise FileError(
                    f"asks for {what} {value}, and bind names no dim of the graph that is the {what}",
                    where=f"{self.where}: {key}",
                    lever=f'Set bind = {{ {what} = "name of the dim" }}.',
                )
        dims = tuple((bound[what], value) for what, value in wanted.items() if value is not None)
        name = part.plan or ""
        # The plan without fusion is no file: every graph has it.
        return PlanFile(name if name == UNFUSED else str(self._beside(name, f"{key}.plan")), dims)

    def _fallback(self, k: int, part: StreamPart) -> Fallback:
        rule = part.fallback
        assert rule is not None
        at = f"stream[{k}].fallback"
        if rule.plan or rule.profile:
            longest = max((plan.length or 0 for plan in part.plans), default=0)
            if not longest:
                raise FileError(
                    "another plan stands beside plans that have a length, and there are none",
                    where=f"{self.where}: {at}",
                    lever="Set plans, or num and den.",
                )
            sizes = sorted({plan.batch for plan in part.plans if plan.length == longest})
            if rule.profile and len(sizes) > 1:
                raise FileError(
                    f"one profile cannot say what batches of {sizes[0]} and of {sizes[1]} cost",
                    where=f"{self.where}: {at}.profile",
                    lever="Name a plan, or set num and den.",
                )
            plans = (PlanAt(longest, size, self._cost(rule, at, part, longest, size)) for size in sizes)
            return Fallback(rule.max_input_tokens, plans=tuple(plans))
        return Fallback(
            rule.max_input_tokens,
            rule.num or 1,
            rule.den,
            recompile_ns=_ns(rule.recompile_s) if rule.recompile_s is not None else 0,
        )


def _bound(part: StreamPart) -> tuple[tuple[str, str], ...]:
    named = (("length", part.bind.length), ("batch", part.bind.batch))
    return tuple((what, dim) for what, dim in named if dim is not None)


def _process(part: StreamPart) -> Process:
    given = part.arrivals
    assert not isinstance(given, TraceArrivalsPart | ClosedArrivalsPart)
    if isinstance(given, ModulatedArrivalsPart):
        rates, dwells = tuple(given.rates_per_s), tuple(given.dwells_s)
    else:
        rates, dwells = (given.rate_per_s,), ()
    return Process(given.kind, rates, dwells, given.input_tokens, given.output_tokens)


def _loop(part: ClosedArrivalsPart) -> ClosedLoop:
    return ClosedLoop(part.clients, part.think_s, part.think, part.input_tokens, part.output_tokens)


def _throttle(part: ThrottlePart, heat: Heat | None) -> Throttle:
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
    windows = tuple((begin, end) for begin, end in joined)
    return Throttle(windows, num, den, part.thermal, heat, part.ambient_c)
