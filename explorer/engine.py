"""What the worker runs: the doors of the model, imported where they are called.

Knows which function of the model answers which question. Must not know Qt. Every method runs on the worker
thread, takes frozen values and returns frozen values; the imports are inside because Numba and onnx cost
more than the window may wait.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.cost.result import CostRequest, CostResult
from model.errors import FileError
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator
from model.packaged import input_file
from model.plan.plan import Plan

from .digest import Digest
from .load import Load
from .search import Found, index

if TYPE_CHECKING:
    from model.plan.carry import Carried
    from model.serving.drivers import Blame
    from model.serving.outcome import Prepared
    from model.serving.over_time import OverTime
    from model.serving.result import ServingResult
    from model.serving.streams import Workload


_SLICE_EVENTS = 50_000
"""Of a replay, between two looks at whether something more urgent waits."""


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """What a serving result is a function of."""

    cost: CostResult
    load: Load

    @property
    def revision(self) -> int:
        """The revision of the plan behind it."""
        return self.cost.request.revision


class Engine:
    """The model, as the worker sees it. Holds caches: evaluated groups, the last digest, the last requests served."""

    def __init__(self) -> None:
        self._cache: Any = None
        self._alone: Any = None
        self._digest: Digest | None = None
        self._tables: Any = None
        self._reseeded: tuple[Load, Workload] | None = None
        self._last: tuple[ServingRequest, Prepared] | None = None

    def forget(self) -> None:
        """Forget solved groups and slowdown tables, as at a start."""
        self._cache = self._digest = self._tables = self._last = None

    def load_graph(
        self, source: str, bindings: Mapping[str, int], cancelled: Callable[[], bool]
    ) -> OperatorGraph:
        """Read an ONNX file or a sample; reading stops once `cancelled` says so."""
        from model.graph.load import load_graph

        return load_graph(source, bindings, cancelled)

    def digest_of(self, source: str) -> str:
        """The digest of a file, or of a sample, as its graph will have it; empty where it cannot be read."""
        try:
            path = input_file(source, "sample_graphs", ".onnx", "no such file", "Choose another.")
            return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, FileError):
            return ""

    def rebind(
        self, graph: OperatorGraph, plan: Plan, bindings: Mapping[str, int], cancelled: Callable[[], bool]
    ) -> tuple[OperatorGraph, Carried | None]:
        """Read the file of `graph` with other numbers, and carry its plan over where that is legal."""
        from model.plan.carry import carried

        again = self.load_graph(graph.path, bindings, cancelled)
        return again, carried(graph, plan, again)

    def find_index(self, graph: OperatorGraph) -> tuple[Found, ...]:
        """What `search` finds operators by."""
        return index(graph)

    def load_plan(self, path: str, graph: OperatorGraph | None) -> Plan:
        """Read a saved plan for `graph`."""
        from model.plan.file import load_plan

        if graph is None:
            raise FileError(
                "a plan belongs to a graph, and none is open",
                where=Path(path).name,
                lever="Open the graph first, then the plan.",
            )
        return load_plan(path, graph)

    def load_hardware(self, source: str) -> Accelerator:
        """Read a machine file or a packaged machine."""
        from model.hardware.loader import load_hardware

        return load_hardware(source)

    def load_workload(self, source: str) -> Workload:
        """Read a workload file or a packaged workload."""
        from model.serving.workload import load_workload

        return load_workload(source)

    def starting_plan(self, graph: OperatorGraph) -> Plan:
        """The file's own fusions, else one contraction with its pointwise tail per group."""
        from model.plan.starting import starting_plan

        _ = graph.successors, graph.links  # what the first edit asks for on the GUI thread
        return starting_plan(graph).plan

    def simulate(self, request: CostRequest) -> CostResult:
        """Cost of one plan; groups that were seen before come from the cache.

        The unfused plan is beside it where it is known: `beside_unfused` makes it so.
        """
        from model.cost.simulate import GroupCache, simulate

        if self._cache is None:
            self._cache = GroupCache()
        return simulate(request, self._cache, with_unfused=False)

    def beside_unfused(self, result: CostResult) -> Iterator[CostResult | None]:
        """`result` with the unfused plan beside it, after slices that end in None."""
        from model.cost.simulate import beside_unfused

        if self._cache is not None:
            yield from beside_unfused(result, self._cache)

    def digest(self, result: CostResult) -> Digest:
        """What the window draws of a result; groups as in the last one come from there."""
        self._digest = Digest.of(result, self._digest)
        return self._digest

    def simulate_alone(self, request: CostRequest) -> CostResult:
        """Cost of a graph that is not the open one: what is cached of that stays as it is."""
        from model.cost.simulate import GroupCache, simulate

        if self._alone is None:
            self._alone = GroupCache()
        return simulate(request, self._alone, with_unfused=False)

    def tail(self, request: ServingRequest) -> Iterator[ServingResult | Blame | None]:
        """The tail of one plan under a load, a slice of some milliseconds at each step: an edit waits for its end.

        A first estimate where the rules allow one and slots contend, the exact result, and what it is owed to; None
        after slices that end in nothing. Whoever wants no more just stops asking.
        """
        from model.serving.drivers import blaming, drivers_of
        from model.serving.exact import Replay
        from model.serving.outcome import outcome
        from model.serving.slowdown import SlowdownTables, can_estimate, first_estimate

        prepared = self._prepared(request)
        setting = prepared.setting
        drivers = drivers_of(setting)
        contended = any(driver.name == "contention" for driver in drivers)
        if contended and can_estimate(setting.offers, setting.rules):
            if self._tables is None:
                self._tables = SlowdownTables()
            done = first_estimate(setting.offers, setting.services, setting.rules, self._tables)
            yield outcome(prepared, done, first_estimate=True)
        run = Replay(setting.offers, setting.services, setting.rules)
        while not run.step(_SLICE_EVENTS):
            yield None
        exact = outcome(prepared, run.result())
        yield exact
        closed = any(stream.loop is not None for stream in prepared.workload.streams)
        if (
            exact.utilisation < 1.0 and not closed
        ):  # of a queue that grows, shares only say how long it was watched
            yield from blaming(setting, drivers)

    def highest_rate(self, request: ServingRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any]] | None]:
        """The what-ifs ``rate`` and ``ramp`` of a load with an objective: how far it goes, and what breaks first.

        None after each slice, then both.
        """
        from model.serving.questions import answers, highest_in_slices

        prepared = self._prepared(request)
        (ramp,) = answers(prepared, ("ramp",))
        yield None
        rate = yield from highest_in_slices(prepared)
        yield rate, ramp

    def over_time(
        self, request: ServingRequest, low_ns: int, high_ns: int, columns: int
    ) -> Iterator[tuple[OverTime, tuple[float, float]] | None]:
        """What slots share in a stretch of time: None after each slice of the replay, then the answer.

        With it U_c and X_c of the request's plan on these slots.
        """
        from model.cost.profile import contention, service_phases
        from model.serving.exact import Watch
        from model.serving.over_time import View

        setting = self._prepared(request).setting
        watch = Watch(setting.offers, setting.services, setting.rules, View(low_ns, high_ns, columns))
        while not watch.step(_SLICE_EVENTS):
            yield None
        seen, cost = watch.result(), request.cost
        bandwidth = cost.request.accelerator.dram.bandwidth_bytes_per_s or math.inf
        yield seen, contention(service_phases(cost), seen.slots or 1, bandwidth)

    def _prepared(self, request: ServingRequest) -> Prepared:
        """The requests with what each costs; those of the last request are kept, as more is asked about them."""
        if self._last is None or self._last[0] is not request:
            self._last = request, self._prepare(request)
        return self._last[1]

    def _prepare(self, request: ServingRequest) -> Prepared:
        from model.graph.load import load_graph
        from model.serving.planned import profiles_of
        from model.serving.serve import prepare

        load, graph = request.load, request.cost.request.graph
        partition = request.cost.request.accelerator.partition
        workload = load.applied(self._drawn(load), partition.slots)
        own, plans = profiles_of(
            workload, request.cost, lambda dims: load_graph(graph.path, dict(graph.bindings) | dict(dims))
        )
        return prepare(workload, own, load.slots, load.rate_per_s, plans)

    def _drawn(self, load: Load) -> Workload:
        """The load's workload under the load's seed; the file is read again where that is another one."""
        workload = load.workload
        if load.seed is None or load.seed == workload.seed or not workload.path:
            return workload
        known = self._reseeded
        if known is None or known[0].workload is not workload or known[0].seed != load.seed:
            from model.serving.workload import load_workload

            known = self._reseeded = load, load_workload(workload.path, load.seed)
        return known[1]

    def load_kernels(self) -> None:
        """Import every kernel file, from the cache where it is filled."""
        from model import compiled

        compiled.load_all()
