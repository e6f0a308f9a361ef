"""Results of the plan that is shown: asked for in the background, taken when newer than what is there.

Knows the engine, the runner and the order of questions: cost first, then the tail under the workload, then the
baseline's own numbers. Must not know how a plan is edited. Of one epoch (same graph, machine, load) an answer
is accepted when it is newer than the one shown: accepting only the newest would starve the display in a drag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from model.cost.result import CostRequest, CostResult, Totals
from model.plan.plan import Plan

from .digest import Digest
from .engine import Engine, ServingRequest
from .runner import Job, Lane, Runner

if TYPE_CHECKING:
    from model.serving.result import ServingResult
    from model.serving.streams import Workload

UNFUSED = "unfused"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What deltas are against: a plan with its own numbers, None until they are computed."""

    label: str
    plan: Plan
    totals: Totals | None = None
    serving: ServingResult | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What is served: a workload, with slots and rate set over its own."""

    workload: Workload
    slots: int | None = None
    rate_per_s: float | None = None


class Results(QObject):
    """Cost, serving and baseline as they are shown."""

    cost_changed = Signal(object)
    """Emitted with a newer `CostResult`; None when there is none any more."""
    serving_changed = Signal(object)
    """Emitted with a newer `ServingResult`; None when there is none any more."""
    baseline_changed = Signal()
    """Emitted when the baseline, or its numbers, changed."""
    failed = Signal(str, object)
    """Emitted with "cost", "serving" or "baseline" and the exception."""

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        request_for: Callable[[Plan], CostRequest | None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._runner = runner
        self._request_for = request_for
        self._epoch = 0
        self._load_epoch = 0
        self._followed = (-1, -1)  # revision and load epoch of the tail that the worker began by itself
        self.load: Load | None = None
        self.digest: Digest | None = None  # of the cost that is shown
        self.serving: ServingResult | None = None
        self.served: ServingRequest | None = None
        self.baseline: Baseline | None = None

    @property
    def cost(self) -> CostResult | None:
        """The cost result that is shown."""
        return None if self.digest is None else self.digest.result

    @property
    def epoch(self) -> int:
        """Changes with graph, machine and precision."""
        return self._epoch

    @property
    def serving_is_behind(self) -> bool:
        """Whether the serving result belongs to an older plan than the cost result."""
        if self.cost is None or self.served is None:
            return False
        return self.served.revision < self.cost.request.revision

    # -- what they are results of ------------------------------------------------------------------
    def begin(self, baseline: Baseline | None) -> None:
        """Another graph, machine or precision: nothing that was computed counts any more."""
        self._epoch += 1
        self._load_epoch += 1
        self.digest = self.serving = self.served = None
        self.baseline = None if baseline is None else replace(baseline, totals=None, serving=None)
        self.baseline_changed.emit()
        self.cost_changed.emit(None)
        self.serving_changed.emit(None)

    def set_load(self, load: Load | None) -> None:
        """Another workload, or other slots or rate: only the tails are computed anew."""
        self.load = load
        self._load_epoch += 1  # after the load: the worker reads them in the other order
        self.serving = self.served = None
        if self.baseline is not None:
            self.baseline = replace(self.baseline, serving=None)
        self.serving_changed.emit(None)
        self._ask_serving()

    def pin(self, baseline: Baseline) -> None:
        """Take deltas against another plan; what is known of it is used at once."""
        cost = self.cost
        if cost is not None and cost.request.plan == baseline.plan:
            serving = None if self.serving_is_behind else self.serving
            baseline = replace(baseline, totals=cost.totals, serving=serving)
        self.baseline = baseline
        self.baseline_changed.emit()
        self._ask_baseline()

    # -- cost --------------------------------------------------------------------------------------
    def ask(self, request: CostRequest) -> None:
        """Compute the cost of a plan, then what follows from it."""
        epoch = self._epoch
        self._runner.drop(Lane.SERVING)  # of an older plan; this plan's own follows its cost
        self._runner.submit(
            Job(
                Lane.COST,
                "Computing traffic and latency",
                lambda: self._engine.digest(self._engine.simulate(request)),
                lambda digest: self._take_cost(digest, epoch),
                lambda fault: self._fail("cost", fault, epoch == self._epoch),
                lambda digest: self._tail_after(digest.result),
            )
        )

    def _tail_after(self, cost: CostResult) -> Job | None:
        """The tail of a plan, right behind its cost and not after a turn of the GUI thread. On the worker."""
        load_epoch, load = self._load_epoch, self.load
        if load is None or not cost.totals.feasible or self._runner.has_waiting(Lane.COST):
            return None
        self._followed = (cost.request.revision, load_epoch)
        return self._tail(cost, load, load_epoch)

    def _take_cost(self, digest: Digest, epoch: int) -> None:
        result = digest.result
        shown = -1 if self.cost is None else self.cost.request.revision
        if epoch != self._epoch or result.request.revision <= shown:
            return
        self.digest = digest
        baseline = self.baseline
        if baseline is not None and baseline.totals is None and baseline.label == UNFUSED:
            self.baseline = replace(baseline, totals=result.baseline)
            self.baseline_changed.emit()
        self.cost_changed.emit(result)
        if not self._runner.has_waiting(Lane.COST):
            if self._followed == (result.request.revision, self._load_epoch):
                self._ask_baseline()
            else:  # it does not fit, or the load is another one by now
                self._ask_serving()

    # -- serving -----------------------------------------------------------------------------------
    def _ask_serving(self) -> None:
        cost, load = self.cost, self.load
        if cost is None:
            return
        if not cost.totals.feasible:
            # What does not fit cannot be served; the panel says which group and why.
            if self.serving is not None:
                self.serving = self.served = None
                self.serving_changed.emit(None)
        elif load is not None:
            self._runner.submit(self._tail(cost, load, self._load_epoch))
        self._ask_baseline()

    def _tail(self, cost: CostResult, load: Load, epoch: int) -> Job:
        request = ServingRequest(cost, load.workload, load.slots, load.rate_per_s)
        return Job(
            Lane.SERVING,
            "Serving the workload",
            lambda: self._engine.serve(request),
            lambda result: self._take_serving(request, result, epoch),
            lambda fault: self._fail("serving", fault, epoch == self._load_epoch),
        )

    def _take_serving(self, request: ServingRequest, result: ServingResult, epoch: int) -> None:
        shown = -1 if self.served is None else self.served.revision
        if epoch != self._load_epoch or request.revision <= shown:
            return
        self.served, self.serving = request, result
        self.serving_changed.emit(result)

    # -- baseline ----------------------------------------------------------------------------------
    def _ask_baseline(self) -> None:
        """Compute what the baseline lacks, after everything that the hand waits for."""
        baseline, load = self.baseline, self.load
        if baseline is None:
            return
        unserved = load is not None and baseline.serving is None
        complete = baseline.totals is not None and not (unserved and baseline.totals.feasible)
        request = self._request_for(baseline.plan)
        if complete or request is None:
            return
        epoch = self._load_epoch

        def work() -> Baseline:
            cost = self._engine.simulate(request)
            serving = None
            if load is not None and cost.totals.feasible:
                serving = self._engine.serve(ServingRequest(cost, load.workload, load.slots, load.rate_per_s))
            return replace(baseline, totals=cost.totals, serving=serving)

        def done(computed: Baseline) -> None:
            now = self.baseline
            if epoch == self._load_epoch and now is not None and now.plan == computed.plan:
                self.baseline = replace(computed, label=now.label)
                self.baseline_changed.emit()

        def failed(fault: BaseException) -> None:
            self._fail("baseline", fault, epoch == self._load_epoch)

        self._runner.submit(Job(Lane.BASELINE, "Computing the baseline", work, done, failed))

    def _fail(self, kind: str, fault: BaseException, current: bool) -> None:
        if current:
            self.failed.emit(kind, fault)
