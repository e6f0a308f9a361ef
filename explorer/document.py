"""The state of the window: graph, machine, workload, plan, preview, undo, baseline, selection, results.

Everything shown is a pure function of values held here. Knows the model's values and the runner. Must not
know widgets. Everything is called on the GUI thread; nothing here reads a file or computes.

An edit is a new `Plan`. `preview` shows one while the hand is still on the mouse; `commit` makes it one undo
entry; ``preview(None)`` leaves no trace. Each change raises `revision` and asks `Results` for new numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QUndoStack

from model.cost.result import CostRequest, CostResult
from model.errors import TilewrightError, UsageError
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator
from model.plan.plan import Plan

from .digest import Digest
from .engine import Engine, ServingRequest
from .load import Load
from .names import group_name
from .plan_edit import PlanEdit, idle_levels, tiles_lost
from .results import UNFUSED, Baseline, Results
from .runner import Job, Kernels, Lane, Runner, trace_of

if TYPE_CHECKING:
    from model.plan.carry import Carried
    from model.serving.drivers import Blame
    from model.serving.result import ServingResult
    from model.serving.streams import Workload

log = logging.getLogger("tilewright")

NO_KERNELS = "No kernels"
NEEDS_KERNELS = (
    Lane.LAYOUT,
    Lane.PLAN,
    Lane.COST,
    Lane.SERVING,
    Lane.UNFUSED,
    Lane.RELAYOUT,
    Lane.EXACT,
    Lane.SHARED,
    Lane.QUESTION,
    Lane.BASELINE,
    Lane.GRADIENT,
    Lane.MAP,
    Lane.DRIVERS,
)
_OVER = object()  # what slices end with


@dataclass(frozen=True, slots=True)
class Offer:
    """A fix for a refused edit, taken by one key: the sentence, the legal plan, the undo text."""

    sentence: str
    plan: Plan
    text: str


class Document(QObject):
    """The one owner of state. See the module's docstring."""

    graph_changed = Signal()
    """Emitted when another graph (or none) is open; plan, selection and results are reset before."""
    plan_changed = Signal()
    """Emitted when the committed plan or the preview changed: outlines redraw at once."""
    cost_changed = Signal(object)
    """Emitted with a newer `CostResult`; None when there is none any more."""
    serving_changed = Signal(object)
    """Emitted with a newer `ServingResult`; None when there is none any more."""
    drivers_changed = Signal()
    """Emitted when it is known what the tail is owed to, or no longer."""
    baseline_changed = Signal()
    """Emitted when the pinned baseline, or its numbers, changed."""
    selection_changed = Signal()
    """Emitted when other operators are selected."""
    machine_changed = Signal()
    """Emitted when the accelerator, the workload, the precision or the serving controls changed."""
    said = Signal(str, str)
    """Emitted with a sentence for the user and its level: note, warning, error."""
    failed = Signal(str, str)
    """Emitted when something could not be had: "cost", "serving" or "open" (a file), and the sentence."""
    busy_changed = Signal(str)
    """Emitted with what runs in the background; empty when nothing does."""
    ready_changed = Signal()
    """Emitted when kernels became usable, and when the text of `preparing` changed."""
    offer_changed = Signal()
    """Emitted when a fix is offered, taken or gone."""

    def __init__(self, parent: QObject | None = None, engine: Engine | None = None) -> None:
        super().__init__(parent)
        self.engine = engine or Engine()
        self.log_file = ""  # where faults of our own are told in full; the composition root knows
        self.runner = Runner(self)
        self.kernels = Kernels(self)
        self.results = Results(self.engine, self.runner, self.request, self)
        self.undo_stack = QUndoStack(self)
        self._graph: OperatorGraph | None = None
        self._accelerator: Accelerator | None = None
        self._load: Load | None = None
        self._precision = ""
        self._plan: Plan | None = None
        self._preview: Plan | None = None
        self._selection: tuple[int, ...] = ()
        self._offer: Offer | None = None
        self._sliced: dict[
            Lane, Iterator[Any]
        ] = {}  # the newest question of each lane that is answered in slices
        self._revision = 0
        self._proposing = False
        self._ready = True
        self._preparing = ""
        self.runner.busy_changed.connect(self.busy_changed)
        self.runner.failed.connect(self._background_failed)
        self.results.cost_changed.connect(self.cost_changed)
        self.results.serving_changed.connect(self.serving_changed)
        self.results.drivers_changed.connect(self.drivers_changed)
        self.results.baseline_changed.connect(self.baseline_changed)
        self.results.failed.connect(self._result_failed)
        self.kernels.progress.connect(self._kernel_compiled)
        self.kernels.module_done.connect(self._kernel_module_done)
        self.kernels.finished.connect(self._kernels_filled)

    # -- what is shown -----------------------------------------------------------------------------
    @property
    def graph(self) -> OperatorGraph | None:
        """The open graph."""
        return self._graph

    @property
    def accelerator(self) -> Accelerator | None:
        """The machine."""
        return self._accelerator

    @property
    def workload(self) -> Workload | None:
        """The serving workload, as its file says it."""
        return None if self._load is None else self._load.workload

    @property
    def load(self) -> Load | None:
        """The serving workload with what the latency panel set over it."""
        return self._load

    @property
    def precision(self) -> str:
        """Short name that all floats are computed in; empty: as the file says."""
        return self._precision

    @property
    def plan(self) -> Plan | None:
        """The committed plan."""
        return self._plan

    @property
    def shown_plan(self) -> Plan | None:
        """The preview while there is one, else the committed plan."""
        return self._plan if self._preview is None else self._preview

    @property
    def previewing(self) -> bool:
        """Whether a gesture shows a plan that is not committed."""
        return self._preview is not None

    @property
    def proposing(self) -> bool:
        """Whether a starting plan comes in a moment: what is shown until then is not worth a layout."""
        return self._proposing

    @property
    def cost(self) -> CostResult | None:
        """The newest cost result; its request says of which plan."""
        return self.results.cost

    @property
    def digest(self) -> Digest | None:
        """The newest cost result as arrays."""
        return self.results.digest

    @property
    def serving(self) -> ServingResult | None:
        """The newest serving result."""
        return self.results.serving

    @property
    def served(self) -> ServingRequest | None:
        """What the serving result is a function of."""
        return self.results.served

    @property
    def serving_is_behind(self) -> bool:
        """Whether the serving result belongs to an older plan than the cost result shown, or to another load."""
        return self.results.serving_is_behind

    @property
    def drivers(self) -> Blame | None:
        """What the serving result shown is owed to; None until it is known."""
        return self.results.drivers

    @property
    def baseline(self) -> Baseline | None:
        """What deltas are against: unfused until something is pinned."""
        return self.results.baseline

    @property
    def selection(self) -> tuple[int, ...]:
        """Selected operators, ascending."""
        return self._selection

    @property
    def revision(self) -> int:
        """Raised by every change of the plan shown."""
        return self._revision

    @property
    def offer(self) -> Offer | None:
        """The fix that is on offer for the last refused edit."""
        return self._offer

    @property
    def ready(self) -> bool:
        """Whether kernels are loaded: edits are checked with them."""
        return self._ready

    @property
    def preparing(self) -> str:
        """``Compiling kernels, 3 of 41`` while they are not loaded, else empty."""
        return self._preparing

    def selected_group(self) -> int | None:
        """Index in the shown plan of the first selected operator's group."""
        plan = self.shown_plan
        if plan is None or not self._selection:
            return None
        return plan.group_of[self._selection[0]]

    # -- kernels -----------------------------------------------------------------------------------
    def start_kernels(self) -> None:
        """Make kernels usable without stopping the window; call it once, after the window is up."""
        self._ready = False
        self._preparing = "Loading kernels"
        self.runner.hold(*NEEDS_KERNELS)
        self.kernels.start()

    @Slot(int, int, str)
    def _kernel_compiled(self, done: int, total: int, name: str) -> None:
        self._preparing = f"Compiling kernels, {done} of {max(done, total)} (once)"
        self.ready_changed.emit()

    @Slot(str)
    def _kernel_module_done(self, module: str) -> None:
        if module == "model.graph.layering":  # the first picture need not wait for the others
            self.runner.release(Lane.LAYOUT)

    @Slot(bool, str)
    def _kernels_filled(self, filled: bool, reason: str) -> None:
        self._preparing = "Loading kernels"
        self.ready_changed.emit()
        if not filled:
            self.said.emit(f"{reason} They are compiled inside the window now; it may stutter.", "warning")
        self.runner.submit(
            Job(
                Lane.KERNELS,
                "Loading kernels" if filled else "Compiling kernels",
                self.engine.load_kernels,
                lambda _: self._kernels_loaded(),
                self._kernels_failed,
            )
        )

    def _kernels_loaded(self) -> None:
        self._ready, self._preparing = True, ""
        self.runner.release(*NEEDS_KERNELS)
        self.ready_changed.emit()

    def _kernels_failed(self, fault: BaseException) -> None:
        log.error("kernels did not load\n%s", trace_of(fault))
        self._preparing = NO_KERNELS
        self.ready_changed.emit()
        self.said.emit(
            f"Kernels could not be loaded ({type(fault).__name__}: {fault}). Nothing can be computed; "
            "try `python -m model.compiled` in a terminal, or reinstall numba.",
            "error",
        )

    # -- opening -----------------------------------------------------------------------------------
    def open(self, source: str, bindings: Mapping[str, int] | None = None, digest: str = "") -> None:
        """Read a model, a sample or a plan in the background; errors are `said` and change nothing.

        `digest`: of the file that `bindings` were given for; another file at that place gets its defaults.
        """
        values = dict(bindings or {})
        name = source.replace("\\", "/").rpartition("/")[2]
        title = f"Reading {name}"
        if name.endswith(".json"):
            graph = self._graph
            self._background(
                title,
                lambda: self.engine.load_plan(source, graph),
                lambda plan: self._plan_read(plan, graph, name),
            )
        else:
            self._background(
                title,
                lambda: _with_unfused(self._read(source, values, digest)),
                lambda read: self.set_graph(read[0], unfused=read[1]),
            )

    def _read(self, source: str, bindings: dict[str, int], digest: str) -> OperatorGraph:
        """On the worker: the model with numbers that were given now, or remembered for a file of this digest."""
        if not digest:
            return self.engine.load_graph(source, bindings, self.runner.is_unwanted)
        if self.engine.digest_of(source) == digest:
            try:
                return self.engine.load_graph(source, bindings, self.runner.is_unwanted)
            except UsageError as fault:  # remembered by another version, which read other symbols
                log.warning("remembered numbers of %s do not fit: %s", source, fault)
        return self.engine.load_graph(source, {}, self.runner.is_unwanted)

    def _plan_read(self, plan: Plan, graph: OperatorGraph | None, name: str) -> None:
        if graph is not self._graph:
            return
        self.commit(plan, f"Load {name}")
        self.undo_stack.setClean()  # it is in that file
        self.said.emit(f"Plan {name} loaded.", "note")

    def rebind(self, bindings: Mapping[str, int]) -> None:
        """Read the open graph again with other numbers for its symbolic dims; the plan is carried over."""
        graph, plan = self._graph, self._plan
        if graph is not None and plan is not None and graph.path:
            self._background(
                f"Reading {graph.name}",
                lambda: self.engine.rebind(graph, plan, bindings, self.runner.is_unwanted),
                self._rebound,
            )

    def _rebound(self, read: tuple[OperatorGraph, Carried | None]) -> None:
        graph, kept = read
        self.set_graph(graph, None if kept is None else kept.plan)
        if kept is not None:
            self.said.emit(kept.sentence(), "note")
        else:
            self.said.emit("The plan would not be legal with these numbers; it starts anew.", "warning")

    def choose_hardware(self, source: str) -> None:
        """Read a machine in the background and use it."""
        self._background(
            f"Reading machine {source}", lambda: self.engine.load_hardware(source), self.set_accelerator
        )

    def choose_workload(self, source: str) -> None:
        """Read a workload in the background and use it."""
        self._background(
            f"Reading workload {source}", lambda: self.engine.load_workload(source), self.set_workload
        )

    def _background(self, title: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.runner.submit(
            Job(Lane.FILE, title, work, done, lambda fault: self._result_failed("open", fault))
        )

    # -- setting values ----------------------------------------------------------------------------
    def set_graph(
        self, graph: OperatorGraph | None, plan: Plan | None = None, unfused: Plan | None = None
    ) -> None:
        """Show `graph` with `plan`, or with the starting plan as soon as it is proposed.

        `unfused`: that plan of it, where the worker has made it: 50,000 groups take a tenth of a second.
        """
        self.runner.drop(*NEEDS_KERNELS)
        self.undo_stack.clear()
        self._graph = graph
        self._preview = None
        self._selection = ()
        self._offer = None
        if unfused is None and graph is not None:
            unfused = Plan.unfused(len(graph.operators))
        self._plan = plan or unfused
        self._proposing = graph is not None and plan is None and self._ready
        self._revision += 1
        # First: what listeners ask for when they hear of the graph must belong to its epoch.
        self.results.begin(None if unfused is None else Baseline(UNFUSED, unfused))
        self.graph_changed.emit()
        self.plan_changed.emit()
        self.selection_changed.emit()
        if graph is None:
            return
        if plan is not None:
            self._request_cost()
            return
        self.runner.submit(
            Job(
                Lane.PLAN,
                "Proposing a starting plan",
                lambda: self.engine.starting_plan(graph),
                lambda proposal: self._start_with(proposal, graph),
                lambda fault: self._no_proposal(fault, graph),
            )
        )

    def _start_with(self, proposal: Plan, graph: OperatorGraph) -> None:
        if graph is self._graph and not self.undo_stack.count() and not self.previewing:
            self._plan = proposal
            self._begin()

    def _no_proposal(self, fault: BaseException, graph: OperatorGraph) -> None:
        self._background_failed(fault)
        if graph is self._graph:
            self._begin()

    def _begin(self) -> None:
        """The plan to start with is known. The worker takes what comes first: the picture, then the numbers."""
        self._proposing = False
        self._revision += 1
        self.withdraw_offer()
        self.plan_changed.emit()
        self._request_cost()

    def set_accelerator(self, accelerator: Accelerator) -> None:
        """Use another machine: the same plan, all numbers anew."""
        self._accelerator = accelerator
        self._new_epoch()
        idle = idle_levels(self._plan, accelerator)
        if idle:
            there = ", ".join(level.name for level in accelerator.memory[1:])
            self.said.emit(
                f"Tiles set for {', '.join(idle)} do not apply to {accelerator.name}'s {there}; "
                "they are kept for machines that have it.",
                "warning",
            )

    def set_precision(self, precision: str) -> None:
        """Compute all floats in `precision` (short name; empty: as the file says)."""
        self._precision = precision
        self._new_epoch()

    def set_workload(self, workload: Workload | None) -> None:
        """Use another workload, as its file says it."""
        self.set_load(None if workload is None else Load(workload))

    def set_load(self, load: Load | None) -> None:
        """Serve `load`, e.g. ``replace(document.load, slots=2)``; nothing where it is the same."""
        if load != self._load:
            self._load = load
            self.machine_changed.emit()
            self.results.set_load(load)

    def _new_epoch(self) -> None:
        self._revision += 1
        self.machine_changed.emit()
        self.results.begin(self.results.baseline)
        self._request_cost()

    # -- editing -----------------------------------------------------------------------------------
    def preview(self, plan: Plan | None) -> None:
        """Show `plan` without committing it; None ends the preview and leaves no trace."""
        if plan == self._preview:
            return
        self._preview = plan
        self._show()

    def commit(self, plan: Plan, text: str, merge: str = "") -> None:
        """Make `plan` the committed one with one undo entry; nothing where it is the committed one.

        Parameters
        ----------
        text : what was done, for the undo list.
        merge : key under which consecutive edits become one entry, e.g. ``cut 3-4``.
        """
        before = self._plan
        if before is None:
            return
        previewed, self._preview = self._preview, None
        self.withdraw_offer()
        if plan == before:
            if previewed is not None:
                self._show()
            return
        self.undo_stack.push(PlanEdit(self._install, before, plan, text, merge))
        lost = tiles_lost(before, plan)
        if lost:
            names = ", ".join(group_name(index) for index in lost[:3]) + (" …" if len(lost) > 3 else "")
            what = "tile is" if len(lost) == 1 else "tiles are"
            self.said.emit(f"{names}: the {what} chosen anew; what was set was for other operators.", "note")

    def undo(self) -> None:
        """One entry back."""
        self.preview(None)
        self.undo_stack.undo()

    def redo(self) -> None:
        """One entry forward."""
        self.preview(None)
        self.undo_stack.redo()

    def _install(self, plan: Plan) -> None:
        self._plan = plan
        self._preview = None
        self.withdraw_offer()  # it was for the plan before: undo and redo come here too
        self._show()

    def _show(self) -> None:
        self._proposing = False
        self._revision += 1
        # First the numbers: listeners of `plan_changed` ask for layouts, and the worker takes what comes first.
        self._request_cost()
        self.plan_changed.emit()

    def select(self, operators: Iterable[int]) -> None:
        """Select operators (indices in the graph)."""
        chosen = tuple(sorted(set(operators)))
        if chosen != self._selection:
            self._selection = chosen
            self.selection_changed.emit()

    # -- refusals and their fix --------------------------------------------------------------------
    def set_offer(self, sentence: str, plan: Plan, text: str) -> None:
        """Offer a legal plan in place of a refused one; `take_offer` commits it."""
        self._offer = Offer(sentence, plan, text)
        self.offer_changed.emit()

    def take_offer(self) -> None:
        """Commit the plan on offer."""
        offer = self._offer
        if offer is not None:
            self.commit(offer.plan, offer.text)

    def withdraw_offer(self) -> None:
        """Forget the offer; nothing where there is none."""
        if self._offer is not None:
            self._offer = None
            self.offer_changed.emit()

    # -- baseline ----------------------------------------------------------------------------------
    def pin_baseline(self) -> None:
        """Deltas are against the committed plan from now on."""
        if self._plan is None:
            return
        self.results.pin(Baseline("pinned", self._plan))

    def unpin_baseline(self) -> None:
        """Deltas are against the unfused plan again."""
        if self._graph is not None:
            self.results.pin(Baseline(UNFUSED, Plan.unfused(len(self._graph.operators))))

    # -- requests and answers ----------------------------------------------------------------------
    def ask(
        self,
        lane: Lane,
        title: str,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Compute something of one's own in the background (layout, gradient, tile map).

        ``done`` is called on the GUI thread unless graph or machine changed meanwhile; ``failed``, where `work`
        raises, after it was said. `work` runs on the worker and should take under 100 ms: ask again from ``done`` for
        the next slice, or see `ask_in_slices`.
        """
        self.runner.submit(self._own(lane, title, work, done, failed, None))

    def ask_in_slices(
        self,
        lane: Lane,
        title: str,
        slices: Iterator[Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """The same for what takes longer: `slices` go on until something as urgent waits; ``done`` hears what is not
        None. Another question in the lane ends this one.
        """
        self._sliced[lane] = slices

        def then(answer: Any) -> Job | None:
            over = answer is _OVER or self._sliced.get(lane) is not slices
            return None if over else step()

        def take(answer: Any) -> None:
            if answer is not None and answer is not _OVER:
                done(answer)

        def work() -> Any:
            while (answer := next(slices, _OVER)) is None:
                if self.runner.gives_way():
                    break
            return answer

        def step() -> Job:
            return self._own(lane, title, work, take, failed, then)

        self.runner.submit(step())

    def _own(
        self,
        lane: Lane,
        title: str,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None] | None,
        then: Callable[[Any], Job | None] | None,
    ) -> Job:
        epoch = self.results.epoch

        def tell(answer: Any) -> None:
            if epoch == self.results.epoch:
                done(answer)

        def fail(fault: BaseException) -> None:
            self._background_failed(fault)
            if failed is not None and epoch == self.results.epoch:
                failed(fault)

        return Job(lane, title, work, tell, fail, then)

    def request(self, plan: Plan) -> CostRequest | None:
        """The frozen cost request of `plan` under the present graph, machine and precision."""
        if self._graph is None or self._accelerator is None:
            return None
        return CostRequest(self._graph, self._accelerator, plan, self._precision, self._revision)

    def _request_cost(self) -> None:
        plan = self.shown_plan
        request = None if plan is None else self.request(plan)
        if request is not None:
            self.results.ask(request)

    # -- faults ------------------------------------------------------------------------------------
    def _result_failed(self, kind: str, fault: BaseException) -> None:
        sentence = self._log_fault(fault)
        if kind != "baseline":  # without its numbers there is no delta; the plan's own fault says why
            self.said.emit(sentence, "error")
            self.failed.emit(kind, sentence)

    @Slot(object)
    def _background_failed(self, fault: BaseException) -> None:
        self.said.emit(self._log_fault(fault), "error")

    def _log_fault(self, fault: BaseException) -> str:
        """The sentence for the user; a fault of our own goes to the log with its trace."""
        if isinstance(fault, TilewrightError):
            return fault.sentence()
        log.error("a background job failed\n%s", trace_of(fault))
        return (
            f"A fault of Tilewright's own: {type(fault).__name__}: {fault}. The plan is untouched; "
            f"undo the last edit or open another file. Details: {self.log_file or 'on standard error'}"
        )

    def close(self) -> bool:
        """End the worker and the compiling child; True when no thread is left."""
        self.kernels.close()
        return self.runner.close()


def _with_unfused(graph: OperatorGraph) -> tuple[OperatorGraph, Plan]:
    """On the worker: a graph and its unfused plan, what is asked of both at once made."""
    plan = Plan.unfused(len(graph.operators))
    _ = plan.membership, graph.edges
    return graph, plan
