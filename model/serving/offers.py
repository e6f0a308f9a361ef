"""A workload's streams to one table of offers and one of services: what comes when, and what each costs.

Knows how a request's length chooses its plan, and where sizes, padding and fallback come from; knows no queue. The
order of the rules is SERVING-MODEL's: padding, fallback (off-home and throttle belong to the replay).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .arrivals import JITTER, SERVICE, generator
from .exact import alone_ns
from .generation import Decoding, Generation, steps_ns
from .generation_offers import Chunks, decoding_of, kv_bytes
from .result import ServiceProfile
from .rules import Factors, Offers, Services, StreamRules, Times
from .streams import Cost, DrawnService, Fallback, GivenService, PlanFile, Stream, Workload, cost_by_size

LATEST_RESPONSE_NS = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Offered:
    """All requests of a workload, ready for a replay.

    Attributes
    ----------
    streams : how each stream is treated.
    alone_ns : int64[n]: each request alone on its slot, padding included, before fallback.
    fell_back : bool[n]: no compiled plan holds the request.
    instead : int32[plans]: the compiled plan in whose place a fallback plan runs; -1 for compiled plans.
    load_s : per stream, seconds of one slot that a request takes on average where batches are full, without sizes.
    machine : the profile that says slots and bandwidth; None where all times are given.
    """

    offers: Offers
    services: Services
    streams: tuple[StreamRules, ...]
    alone_ns: Times
    fell_back: NDArray[np.bool_]
    instead: NDArray[np.int32]
    load_s: tuple[float, ...]
    machine: ServiceProfile | None


def offered(
    workload: Workload, own: Sequence[ServiceProfile], plans: Mapping[PlanFile, ServiceProfile]
) -> Offered:
    """The table of all requests, ascending by (arrival, stream, index in the stream).

    Parameters
    ----------
    own : profiles of the caller's plan at batch size 1, 2, ...; used by streams that say nothing themselves.
    plans : the profile of each of ``workload.plan_files``.

    Raises
    ------
    UsageError : nothing says how long a request takes, no plan holds it, or times leave int64.
    """
    table = _Table(max(stream.batch for stream in workload.streams), plans)
    tables = [_Requests(table, workload, k, own) for k in range(len(workload.streams))]
    arrival = np.concatenate([stream.arrivals.arrival_ns for stream in workload.streams])
    order = np.argsort(arrival, kind="stable")

    def merged(name: str) -> NDArray:
        return np.ascontiguousarray(np.concatenate([getattr(part, name) for part in tables])[order])

    stream = np.repeat(np.arange(len(tables), dtype=np.int32), [part.size.size for part in tables])[order]
    plan = merged("plan")
    offers = Offers(
        np.ascontiguousarray(arrival[order]),
        stream,
        plan,
        merged("own_ns"),
        merged("size"),
        merged("padding"),
        merged("fallback"),
    )
    services = table.services()
    alone = alone_ns(offers, services)
    for column in (offers.fallback[:, 0], offers.padding[:, 0], offers.padding[:, 1]):
        fits(int((alone.astype(np.float64) * column).max()))
    if any(each.generation is not None for each in workload.streams):
        rest = np.concatenate([part.rest_ns(services) for part in tables])[order]
        decoding = tuple(part.decoding for part in tables)
        instead = np.array(table.instead, dtype=np.int32)
        generation = Generation(
            merged("chunks"),
            merged("later"),
            merged("past"),
            merged("outputs"),
            merged("kv_bytes"),
            merged("step_size"),
            rest,
            instead,
            decoding,
        )
        offers = replace(offers, generation=generation)
    else:
        rest = np.zeros_like(alone)
    recompile = merged("recompile_ns")
    for i in np.flatnonzero(recompile).tolist():
        offers.fallback[i] = _within_int64(int(alone[i]) + int(recompile[i]), max(1, int(alone[i])))
    shares = dict(workload.shares)
    return Offered(
        offers,
        services,
        tuple(
            StreamRules(
                each.home, each.weight, each.priority, each.batch, each.linger_ns, shares.get(each.name)
            )
            for each in workload.streams
        ),
        alone + rest,
        merged("fell_back"),
        np.array(table.instead, dtype=np.int32),
        tuple(part.load_s(services, each) for part, each in zip(tables, workload.streams, strict=True)),
        table.machine(workload.path or workload.name),
    )


class _Table:
    """Rows of `Services` as they are found: one a compiled plan."""

    def __init__(self, batch: int, plans: Mapping[PlanFile, ServiceProfile]) -> None:
        self.batch = batch
        self.plans = plans
        self.rows: list[list[Cost]] = []
        self.instead: list[int] = []
        self.profiles: list[ServiceProfile] = []

    def add(self, costs: Sequence[Cost], instead: int = -1) -> int:
        """A row: the cost of a batch of 1, 2, ... requests."""
        known = [self.known(cost) for cost in costs]
        for cost, named in zip(known, costs, strict=True):
            if cost is None and isinstance(named, PlanFile):
                raise UsageError(
                    f"the plan {named.path} must be simulated, and no graph is given", lever="Give a GRAPH."
                )
        self.rows.append([cost for cost in known if cost is not None])
        self.instead.append(instead)
        self.profiles += [cost for cost in known if isinstance(cost, ServiceProfile)]
        return len(self.rows) - 1

    def known(self, cost: Cost) -> Cost | None:
        """The profile of a plan file, where it has been simulated; other costs are what they are."""
        return self.plans.get(cost) if isinstance(cost, PlanFile) else cost

    def machine(self, where: str) -> ServiceProfile | None:
        """A profile that says slots and bandwidth for all: they share one machine."""
        bandwidths = sorted({profile.bandwidth_bytes_per_s for profile in self.profiles})
        if len(bandwidths) > 1:
            raise UsageError(
                f"its profiles are of different machines, of {bandwidths[0]:g} and {bandwidths[-1]:g} bytes/s",
                where=where,
                lever="Make them for one machine.",
            )
        return self.profiles[0] if self.profiles else None

    def services(self) -> Services:
        """int[plans, batch + 1] each; sizes that a row does not reach are 0."""
        distinct: dict[int, int] = {}
        for profile in self.profiles:
            distinct.setdefault(id(profile), len(distinct))
        profiles = tuple({id(profile): profile for profile in self.profiles}.values())
        which = np.full((len(self.rows), self.batch + 1), -1, dtype=np.int32)
        given = np.zeros(which.shape, dtype=np.int64)
        for row, costs in enumerate(self.rows):
            for size, cost in enumerate(costs, start=1):
                if isinstance(cost, ServiceProfile):
                    which[row, size] = distinct[id(cost)]
                elif isinstance(cost, int):
                    given[row, size] = cost
        if not profiles:
            return Services.of_times(given)
        found = Services.of_profiles(which, profiles)
        return Services(np.where(which >= 0, found.base_ns, given), found.launch_ns, which, profiles)


class _Requests:
    """One stream's columns of the table."""

    plan: NDArray[np.int32]
    own_ns: Times
    size: NDArray[np.float64]
    padding: Factors
    fallback: Factors
    fell_back: NDArray[np.bool_]
    recompile_ns: Times
    lengths: Times | None = None
    rows: NDArray[np.int32]

    def __init__(self, table: _Table, workload: Workload, k: int, own: Sequence[ServiceProfile]) -> None:
        stream = workload.streams[k]
        self.cut = Chunks.of(stream)
        self.tokens = self.cut.first
        count = self.tokens.size
        self.size = self.step_size = _sizes(stream, workload.seed, k)
        self.own_ns = np.zeros(count, dtype=np.int64)
        self.padding = np.ones((count, 2), dtype=np.int64)
        self.fallback = np.ones((count, 2), dtype=np.int64)
        self.fell_back = np.zeros(count, dtype=np.bool_)
        if stream.plans:
            self._planned(table, stream)
        else:
            self._unplanned(table, stream, workload, k, own)
            if stream.fallback is not None and stream.fallback.max_input_tokens is not None:
                self.fell_back = self.tokens > stream.fallback.max_input_tokens
        self.recompile_ns = np.zeros(count, dtype=np.int64)
        if stream.fallback is not None:
            self._falls_back(stream.fallback)
        self._generates(table, stream)

    def _generates(self, table: _Table, stream: Stream) -> None:
        """What comes after the first chunk; one-shot requests have no more."""
        rule, count = stream.generation, self.tokens.size
        self.chunks, self.past = self.cut.count, np.zeros(count, dtype=np.int64)
        self.outputs, self.kv_bytes = np.ones_like(self.past), np.zeros_like(self.past)
        self.later = np.zeros((count, 2, 4), dtype=np.int64)
        self.later[..., 2:] = 1
        self.decoding = Decoding()
        if rule is None:
            return
        self.past = stream.arrivals.input_tokens
        self.outputs = np.maximum(1, stream.arrivals.output_tokens)
        self.decoding = decoding_of(stream, self.past, self.outputs, table.add)
        self.kv_bytes = kv_bytes(stream, self.past + self.outputs, table.known)
        if int(self.chunks.max()) == 1:
            return
        given = stream.service
        limit = stream.fallback.max_input_tokens if stream.fallback is not None else None
        for place, tokens in enumerate((np.full(count, rule.chunk_tokens), self.cut.last)):
            if isinstance(given, GivenService):
                # base_ns is the run's, not the chunk's: the chunks of a prompt take as long as the whole of it.
                self.later[:, place, 0] = table.add([0] * stream.batch)
                self.later[:, place, 1] = given.per_input_ns * tokens + place * given.per_output_ns
            elif self.lengths is None or self.lengths[0] == 0:
                raise UsageError(
                    "prefill in chunks needs to know what a chunk takes, and no plans have a length",
                    where=f"stream {stream.name}",
                    lever="Give plans with lengths, or service with per_input_ns, or leave prefill_chunk_tokens out.",
                )
            elif rule.chunk_tokens > min(int(self.lengths[-1]), limit or rule.chunk_tokens):
                raise UsageError(
                    f"chunks of {rule.chunk_tokens:,} tokens are longer than what compiled plans hold",
                    where=f"stream {stream.name}",
                    lever="Lower prefill_chunk_tokens, or add a longer plan.",
                )
            else:
                at = np.searchsorted(self.lengths, tokens)
                self.later[:, place, 0], self.later[:, place, 1] = self.rows[at], 0
                self.later[:, place, 2], self.later[:, place, 3] = tokens, self.lengths[at]

    def rest_ns(self, services: Services) -> Times:
        """int64[n]: what each request alone on its slot takes after its first chunk."""
        one = services.base_ns[self.later[..., 0], 1] + self.later[..., 1]
        between = np.maximum(self.chunks - 2, 0) * one[:, 0]
        filling = np.where(self.chunks > 1, between + one[:, 1], 0) * self.size
        steps = steps_ns(self.decoding, services.base_ns, 1, self.past, self.outputs) * self.step_size
        fits(int((filling + steps).max()))
        return np.rint(filling + steps).astype(np.int64)

    def _planned(self, table: _Table, stream: Stream) -> None:
        """Each request on the shortest plan that holds it; those that none holds on what the fallback says."""
        lengths = sorted({plan.length or 0 for plan in stream.plans})
        rows = np.array(
            [table.add(cost_by_size(stream.plans, length or None, stream.batch)) for length in lengths],
            dtype=np.int32,
        )
        self.lengths, self.rows = np.array(lengths, dtype=np.int64), rows
        if lengths == [0]:  # one plan for every length
            self.plan = np.full(self.tokens.size, rows[0])
            if stream.fallback is not None and stream.fallback.max_input_tokens is not None:
                self.fell_back = self.tokens > stream.fallback.max_input_tokens
            return
        place = np.searchsorted(lengths, self.tokens)
        beyond = place == len(lengths)
        rule = stream.fallback
        if rule is None and beyond.any():
            raise UsageError(
                f"a request of {int(self.tokens.max()):,} tokens is longer than the longest plan ({lengths[-1]:,})",
                where=f"stream {stream.name}",
                lever="Add a longer plan, or set fallback.",
            )
        at = np.minimum(place, len(lengths) - 1)
        self.plan = rows[at]
        own = np.where(beyond, 1, self.tokens)
        self.padding = np.stack([own, np.where(beyond, 1, np.array(lengths)[at])], axis=1).astype(np.int64)
        if rule is None:
            return
        limit = lengths[-1] if rule.max_input_tokens is None else rule.max_input_tokens
        self.fell_back = beyond | (self.tokens > limit)
        scaled = beyond
        if rule.plans:
            row = table.add(cost_by_size(rule.plans, lengths[-1], stream.batch), instead=int(rows[-1]))
            self.plan[self.fell_back] = row
            self.padding[self.fell_back] = 1
            scaled = self.fell_back
        # A plan of the longest length stands for another length: its work grows with the tokens.
        self.size = np.where(scaled, self.size * self.tokens / lengths[-1], self.size)

    def _unplanned(
        self, table: _Table, stream: Stream, workload: Workload, k: int, own: Sequence[ServiceProfile]
    ) -> None:
        """One row for all requests: given, drawn, the stream's own profile, or the caller's plan."""
        source, arrivals = stream.service, stream.arrivals
        if isinstance(source, DrawnService):
            drawn = source.draw(generator(SERVICE, workload.seed, k), self.tokens.size)
            self.own_ns = np.rint(drawn).astype(np.int64)
            row = table.add([0] * stream.batch)
        elif isinstance(source, GivenService):
            most = source.per_input_ns * int(self.tokens.max())
            fits(
                source.base_ns
                + stream.batch * (most + source.per_output_ns * int(arrivals.output_tokens.max()))
            )
            yields = arrivals.output_tokens
            if stream.generation is not None:  # the last chunk yields the first token
                yields = (self.cut.count == 1).astype(np.int64)
            self.own_ns = source.per_input_ns * self.tokens + source.per_output_ns * yields
            row = table.add([source.base_ns] * stream.batch)
        else:
            profiles = (source,) if source is not None else own
            if not profiles:
                raise UsageError(
                    "nothing says how long a request takes",
                    where=workload.path or workload.name,
                    lever="Give a GRAPH or --profile FILE, or set service in the stream.",
                )
            if len(profiles) < stream.batch:
                raise UsageError(
                    f"a batch of {stream.batch} runs the plan at that size, and costs are known up to {len(profiles)}",
                    where=f"{workload.path or workload.name}: stream {stream.name}",
                    lever="Name the graph's batch dim in bind.batch, give plans with a batch, or set batch.max = 1.",
                )
            row = table.add(profiles[: stream.batch])
        self.plan = np.full(self.tokens.size, row, dtype=np.int32)

    def _falls_back(self, rule: Fallback) -> None:
        if rule.recompile_ns:
            # The first request of each length waits for its plan; the later ones find it.
            waits = np.flatnonzero(self.fell_back)
            self.recompile_ns[waits[np.unique(self.tokens[waits], return_index=True)[1]]] = rule.recompile_ns
        elif not rule.plans:
            self.fallback[self.fell_back] = rule.num, rule.den

    def load_s(self, services: Services, stream: Stream) -> float:
        """Seconds of one slot that a request takes on average where batches are full, without sizes."""
        ratio = self.fallback[:, 0] / self.fallback[:, 1]
        if isinstance(stream.service, DrawnService):
            return stream.service.mean_s * float(ratio.mean())
        own = services.base_ns[self.plan, stream.batch] / stream.batch + self.own_ns
        if stream.generation is not None:
            steps = steps_ns(self.decoding, services.base_ns, stream.batch, self.past, self.outputs)
            alone = steps_ns(self.decoding, services.base_ns, 1, self.past, self.outputs)
            own = own + (self.rest_ns(services) - alone) + steps
        return float((own * ratio).mean()) * 1e-9


def _within_int64(num: int, den: int) -> tuple[int, int]:
    """A factor close to num / den whose product with `den` stays within int64; exact where that is so anyway."""
    over = max(0, (num * den).bit_length() - 62)
    if over == 0:
        return num, den
    close = Fraction(num, den).limit_denominator(max(1, (1 << 62) // num))
    return close.numerator, close.denominator


def _sizes(stream: Stream, seed: int, k: int) -> NDArray[np.float64]:
    """float64[n]: the trace's size factors times the jitter ``gamma(1/cv**2, cv**2, n)``."""
    factor = stream.arrivals.size_factor
    count = stream.arrivals.arrival_ns.size
    size = np.ones(count) if factor is None else factor.copy()
    if stream.jitter_cv > 0.0:
        square = stream.jitter_cv**2
        size *= generator(JITTER, seed, k).gamma(1.0 / square, square, count)
    return size


def fits(latest_ns: int) -> None:
    """Refuse times beyond int64, with room for sums."""
    if latest_ns >= LATEST_RESPONSE_NS:
        raise UsageError(
            f"a time of {latest_ns:.3g} ns is beyond what integer nanoseconds hold (146 years)",
            lever="Check the units of the service times.",
        )
