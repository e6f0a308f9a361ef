"""A model for the window's tests: answers by hand, at once, and as slow or as broken as a test asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from explorer.engine import Engine, ServingRequest
from model.cost.result import CostRequest, CostResult
from model.errors import FileError
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator
from model.plan.plan import Plan
from model.serving.drivers import Blame
from model.serving.over_time import OverTime
from model.serving.result import ServingResult
from model.serving.streams import Throttle, Workload

from . import made_results


class HandEngine(Engine):
    """Latency follows the number of groups, so that every edit shows; nothing is compiled.

    As the real one, it tells of the unfused plan of a graph only after it was asked to put that beside a result.

    Attributes
    ----------
    gate : cleared: cost requests wait for it, as a slow computation would.
    begun : revision of the cost request that began last.
    asked : revisions of the cost requests that were computed, in order.
    fault : raised by the next cost request.
    unfit : whether results keep their group that does not fit.
    estimates : whether a tail begins with a first estimate and ends with its drivers; its exact replay then waits for
        `exact_gate`, and `slices` counts those that were gone on with.
    question_gate : as `gate`, for the search of the highest rate, which answers 3.14159 requests/s.
    looked : stretches of time in which was looked at what slots share.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = -1
        self.asked: list[int] = []
        self.fault: Exception | None = None
        self.serving_fault: Exception | None = None
        self.unfit = False
        self.unstable = False
        self.estimates = False
        self.exact_gate = threading.Event()
        self.exact_gate.set()
        self.slices = 0
        self.question_gate = threading.Event()
        self.question_gate.set()
        self.question_fault: Exception | None = None
        self.looked: list[tuple[int, int]] = []
        self._beside: OperatorGraph | None = None  # whose unfused plan is known

    def load_graph(
        self, source: str, bindings: Mapping[str, int], cancelled: Callable[[], bool]
    ) -> OperatorGraph:
        if "missing" in source:
            raise FileError("no such file", where=source, lever="Choose another.")
        return made_results.chain()

    def load_hardware(self, source: str) -> Accelerator:
        return made_results.machine()

    def load_workload(self, source: str) -> Workload:
        return workload(source)

    def starting_plan(self, graph: OperatorGraph) -> Plan:
        return made_results.plan()

    def simulate(self, request: CostRequest) -> CostResult:
        self.begun = request.revision
        assert self.gate.wait(20)
        self.asked.append(request.revision)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        result = made_results.cost(
            request.graph, request.plan, request.revision, scale=0.5 + len(request.plan.groups) / 8
        )
        result = replace(result, request=request)
        result = result if self.unfit else made_results.fitting(result)
        return result if self._beside is request.graph else alone(result)

    def beside_unfused(self, result: CostResult) -> Iterator[CostResult | None]:
        yield None
        self._beside = result.request.graph
        whole = made_results.cost(result.request.graph)
        reduction = whole.totals.launch_overhead_reduction
        totals = replace(result.totals, launch_overhead_reduction=reduction)
        yield replace(result, totals=totals, baseline=whole.baseline)

    def simulate_alone(self, request: CostRequest) -> CostResult:
        return made_results.fitting(made_results.cost(request.graph, request.plan, request.revision))

    def tail(self, request: ServingRequest) -> Iterator[ServingResult | Blame | None]:
        fault, self.serving_fault = self.serving_fault, None
        if fault is not None:
            raise fault
        p95_ms = 20.0 + 5.0 * len(request.cost.groups)
        result = replace(made_results.serving(p95_ms, unstable=self.unstable), slots=request.load.slots or 4)
        if self.estimates:
            yield replace(result, first_estimate=True)
            assert self.exact_gate.wait(20)
            yield None
            self.slices += 1
        yield result
        if self.estimates:
            yield made_results.blame(result)

    def over_time(
        self, request: ServingRequest, low_ns: int, high_ns: int, columns: int
    ) -> Iterator[tuple[OverTime, tuple[float, float]] | None]:
        self.looked.append((low_ns, high_ns))
        yield None
        yield made_results.over_time(low_ns, high_ns, columns), (0.84, 0.25)

    def highest_rate(self, request: ServingRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any]] | None]:
        yield None
        assert self.question_gate.wait(20)
        fault, self.question_fault = self.question_fault, None
        if fault is not None:
            raise fault
        rate = {
            "set_rate_per_s": 3.14159,
            "percentile": "p99",
            "limit_s": 0.6,
            "tried": 9,
            "first_estimate": False,
        }
        yield rate, {"what": "objective", "cause": "contention_queue"}

    def load_kernels(self) -> None:
        pass


def alone(result: CostResult) -> CostResult:
    """The same without the unfused plan beside it."""
    return replace(result, totals=replace(result.totals, launch_overhead_reduction=None), baseline=None)


def workload(name: str = "azure-code") -> Workload:
    """A workload that only has a name: the hand-made engine asks for no more."""
    return Workload(name, "", "sha256:workload", 0, None, "dynamic", False, Throttle(), ())
