"""Results of the plan that is shown: asked for in the background, taken when newer than what is there.

Knows the engine, the runner and the order of questions: cost first, then the first estimate of the tail, the unfused
plan beside it (once per epoch), the tail's exact replay in slices, the baseline's own numbers and, at rest, what the
tail is owed to. Must not know how a plan is edited.
Of one epoch (same graph, machine, load) an answer is accepted when it is newer than the one shown: accepting only the
newest would starve the display in a drag. Of one plan the exact tail is newer than its first estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from model.cost.result import CostRequest, CostResult, Totals
from model.plan.plan import Plan

from .digest import Digest
from .engine import Engine, ServingRequest
from .load import Load
from .runner import Job, Lane, Runner

if TYPE_CHECKING:
    from model.serving.drivers import Blame
    from model.serving.result import ServingResult

UNFUSED = "unfused"

TITLES = {
    Lane.SERVING: "Estimating the tail",
    Lane.UNFUSED: "Simulating the unfused plan",
    Lane.EXACT: "Replaying every request",
    Lane.BASELINE: "Computing the baseline",
    Lane.DRIVERS: "Splitting the tail over its drivers",
}
_OVER = object()  # what a sequence of slices ends with


@dataclass(frozen=True, slots=True)
class Baseline:
    """What deltas are against: a plan with its own numbers, None until they are computed."""

    label: str
    plan: Plan
    totals: Totals | None = None
    serving: ServingResult | None = None


class Results(QObject):
    """Cost, serving and baseline as they are shown."""

    cost_changed = Signal(object)
    """Emitted with a newer `CostResult`; None when there is none any more."""
    serving_changed = Signal(object)
    """Emitted with a newer `ServingResult`; None when there is none any more."""
    drivers_changed = Signal()
    """Emitted when it is known what the tail is owed to, or no longer."""
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
        self._baseline_asked = 0  # how often: slices for an earlier question are not gone on with
        self._asked = -1  # revision of the newest cost request: slices of older tails are not gone on with
        self.load: Load | None = None
        self.digest: Digest | None = None  # of the cost that is shown
        self.serving: ServingResult | None = None
        self.served: ServingRequest | None = None
        self.drivers: Blame | None = None  # of the serving result shown
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
        """Whether the serving result belongs to an older plan than the cost result, or to another load."""
        if self.cost is None or self.served is None:
            return False
        return self.served.revision < self.cost.request.revision or self.served.load != self.load

    # -- what they are results of ------------------------------------------------------------------
    def begin(self, baseline: Baseline | None) -> None:
        """Another graph, machine or precision: nothing that was computed counts any more."""
        self._epoch += 1
        self._load_epoch += 1
        self.digest = self.serving = self.served = self.drivers = None
        self.baseline = None if baseline is None else replace(baseline, totals=None, serving=None)
        self.baseline_changed.emit()
        self.cost_changed.emit(None)
        self.serving_changed.emit(None)

    def set_load(self, load: Load | None) -> None:
        """Serve something else: only the tails are computed anew.

        Where only knobs of the same workload differ, the result shown stays, as one that is behind, until there is
        another: a control that is scrubbed does not make the panel flicker.
        """
        before, self.load = self.load, load
        self._load_epoch += 1  # after the load: the worker reads them in the other order
        self._runner.drop(Lane.SERVING, Lane.EXACT, Lane.DRIVERS, Lane.BASELINE)
        if before is None or load is None or before.workload is not load.workload:
            self._forget_tail()
        else:
            self.serving_changed.emit(self.serving)  # it is behind now
        if self.baseline is not None:
            self.baseline = replace(self.baseline, serving=None)
            self.baseline_changed.emit()
        self._ask_serving()

    def _forget_tail(self) -> None:
        self.serving = self.served = self.drivers = None
        self.serving_changed.emit(None)

    def pin(self, baseline: Baseline) -> None:
        """Take deltas against another plan; what is known of it is used at once."""
        cost = self.cost
        if cost is not None and cost.baseline is not None and cost.request.plan == baseline.plan:
            serving = None if self.serving_is_behind else self.serving
            baseline = replace(baseline, totals=cost.totals, serving=serving)
        elif cost is not None and baseline.label == UNFUSED:
            baseline = replace(baseline, totals=cost.baseline)
        self.baseline = baseline
        self.baseline_changed.emit()
        self._ask_baseline()

    # -- cost --------------------------------------------------------------------------------------
    def ask(self, request: CostRequest) -> None:
        """Compute the cost of a plan, then what follows from it."""
        epoch, self._asked = self._epoch, request.revision
        self._runner.drop(Lane.EXACT, Lane.DRIVERS)  # of an older plan; this plan's own follow its cost
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
        if result.baseline is None:
            self._ask_unfused(result, epoch)
        else:
            self._know_unfused(result.baseline)
        self.cost_changed.emit(result)
        followed, here = self._followed, (result.request.revision, self._load_epoch)
        if self._runner.has_waiting(Lane.COST) or followed[0] > here[0]:
            return  # a newer cost is on its way, and asking for this one's tail would take the place of that one's
        if followed == here:
            self._ask_baseline()
        else:  # it does not fit, or the load is another one by now
            self._ask_serving()

    def _ask_unfused(self, result: CostResult, epoch: int) -> None:
        """Put the unfused plan beside a result that came without: nothing that the hand waits for needs it."""
        self._runner.submit(
            self._sliced(
                Lane.UNFUSED,
                self._engine.beside_unfused(result),
                lambda answer, lane: lane if epoch == self._epoch else None,
                lambda beside: self._take_beside(beside, epoch),
                lambda fault: self._fail("baseline", fault, epoch == self._epoch),
            )
        )

    def _take_beside(self, result: CostResult, epoch: int) -> None:
        if epoch != self._epoch or result.baseline is None:
            return
        self._know_unfused(result.baseline)
        digest = self.digest
        if digest is None or digest.result.baseline is not None:
            return
        if digest.result.request.revision == result.request.revision:
            self.digest = replace(digest, result=result)
            self.cost_changed.emit(result)
        else:  # a newer one came meanwhile, and its question gave way to this one's next slice
            self._ask_unfused(digest.result, epoch)

    def _know_unfused(self, totals: Totals) -> None:
        baseline = self.baseline
        if baseline is not None and baseline.totals is None and baseline.label == UNFUSED:
            self.baseline = replace(baseline, totals=totals)
            self.baseline_changed.emit()

    # -- serving -----------------------------------------------------------------------------------
    def _ask_serving(self) -> None:
        cost, load = self.cost, self.load
        if cost is None:
            return
        if not cost.totals.feasible:
            # What does not fit cannot be served; the panel says which group and why.
            if self.serving is not None:
                self._forget_tail()
        elif load is not None:
            self._runner.submit(self._tail(cost, load, self._load_epoch))
        self._ask_baseline()

    def _tail(self, cost: CostResult, load: Load, epoch: int) -> Job:
        request = ServingRequest(cost, load)

        def lane(answer: object, now: Lane) -> Lane | None:
            if request.revision < self._asked or epoch != self._load_epoch:
                return None
            first_estimate = getattr(answer, "first_estimate", None)
            return now if first_estimate is None else Lane.EXACT if first_estimate else Lane.DRIVERS

        return self._sliced(
            Lane.SERVING,
            self._engine.tail(request),
            lane,
            lambda answer: self._take_stage(request, answer, epoch),
            lambda fault: self._fail_tail(fault, epoch),
        )

    def _sliced(
        self,
        lane: Lane,
        stages: Iterator[Any],
        follow: Callable[[object, Lane], Lane | None],
        take: Callable[[Any], None],
        failed: Callable[[BaseException], None],
    ) -> Job:
        """The next answer of `stages`; its followers go on with them. After every slice anything as urgent runs first.

        Parameters
        ----------
        stages : answers, and None after slices that end in nothing.
        follow : the lane of the slice after an answer; None: no more. On the worker.
        take : hears every answer that is not None.
        """

        def then(answer: object) -> Job | None:
            after = None if answer is _OVER else follow(answer, lane)
            return None if after is None else self._sliced(after, stages, follow, take, failed)

        def work() -> object:
            while (answer := next(stages, _OVER)) is None:
                if self._runner.gives_way():
                    break
            return answer

        return Job(
            lane,
            TITLES[lane],
            work,
            lambda answer: None if answer is None or answer is _OVER else take(answer),
            failed,
            then,
        )

    def _take_stage(self, request: ServingRequest, answer: ServingResult | Blame, epoch: int) -> None:
        if epoch != self._load_epoch or self.cost is None or not self.cost.totals.feasible:
            return
        shown, served = self.serving, self.served
        current = served is not None and served.load == request.load
        if not hasattr(answer, "first_estimate"):  # who caused the tail that is shown, if it still is
            if current and served is not None and served.revision == request.revision:
                self.drivers = answer  # type: ignore[assignment]
                self.drivers_changed.emit()
            return
        result: ServingResult = answer  # type: ignore[assignment]
        if current and served is not None and shown is not None:
            newer = (request.revision, not result.first_estimate) > (
                served.revision,
                not shown.first_estimate,
            )
            if not newer:
                return
        self.served, self.serving, self.drivers = request, result, None
        self.serving_changed.emit(result)

    def _fail_tail(self, fault: BaseException, epoch: int) -> None:
        if epoch == self._load_epoch:
            self._forget_tail()
        self._fail("serving", fault, epoch == self._load_epoch)

    # -- baseline ----------------------------------------------------------------------------------
    def _ask_baseline(self) -> None:
        """Compute what the baseline lacks, after everything that the hand waits for."""
        baseline, load = self.baseline, self.load
        if baseline is None:
            return
        totals = baseline.totals
        unserved = load is not None and (baseline.serving is None or baseline.serving.first_estimate)
        if totals is None:
            lacking = unserved or baseline.label != UNFUSED  # whose totals come by themselves
        else:
            lacking = unserved and totals.feasible
        request = self._request_for(baseline.plan)
        if not lacking or request is None:
            return
        epoch = self._load_epoch
        self._baseline_asked += 1
        asked = self._baseline_asked

        def done(computed: Baseline) -> None:
            now = self.baseline
            if epoch == self._load_epoch and now is not None and now.plan == computed.plan:
                self.baseline = replace(computed, label=now.label)
                self.baseline_changed.emit()

        self._runner.submit(
            self._sliced(
                Lane.BASELINE,
                self._baseline_stages(baseline, request, load),
                lambda answer, lane: lane if asked == self._baseline_asked else None,
                done,
                lambda fault: self._fail("baseline", fault, epoch == self._load_epoch),
            )
        )

    def _baseline_stages(
        self, baseline: Baseline, request: CostRequest, load: Load | None
    ) -> Iterator[Baseline | None]:
        """The baseline with its totals, then with its tail as that gets better; on the worker."""
        cost = self._engine.simulate(request)
        if cost.baseline is None:
            for beside in self._engine.beside_unfused(cost):
                cost = beside or cost
                yield None
        known = replace(baseline, totals=cost.totals)
        yield known
        if load is None or not cost.totals.feasible:
            return
        for answer in self._engine.tail(ServingRequest(cost, load)):
            if answer is None:
                yield None
                continue
            result: ServingResult = answer  # type: ignore[assignment]  # what it is owed to is not asked for
            yield replace(known, serving=result)
            if not result.first_estimate:
                return

    def _fail(self, kind: str, fault: BaseException, current: bool) -> None:
        if current:
            self.failed.emit(kind, fault)
