"""Measure the window on this machine: first picture, layout, frames, edits, GUI turns, memory

The real window is opened (offscreen where there is no display) on a real model; every figure is taken through
it. Kernels are loaded first. Frames are forced repaints of the canvas: they count what the GUI thread spends.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from model.commands.bench import repeated
from model.errors import TilewrightError, UsageError
from model.graph.bindings import parse_bindings
from model.graph.graph import OperatorGraph
from model.measured import Measurement, report
from model.plan.plan import Plan

from .display import why_no_window

if TYPE_CHECKING:
    from .document import Document
    from .turns import TurnClock
    from .window import Window

FRAMES = 120
BLOCKS = 8  # opened one after the other
LIMIT_S = 300.0
BEAT_MS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graphs",
        nargs="*",
        default=[],
        metavar="GRAPH",
        help="models or samples (default: the transformer block repeated to 1,000 and 5,000 operators)",
    )
    parser.add_argument("--hardware", default="edge-npu", help="machine (default: %(default)s)")
    parser.add_argument("--workload", default="azure-code", help="workload (default: %(default)s)")
    parser.add_argument("--bind", default="", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument("--edits", type=int, default=30, help="edits in the middle (default: %(default)s)")
    parser.add_argument(
        "--drags",
        type=int,
        default=50,
        help="boundary drags under a trace of 12,000 requests (default: %(default)s)",
    )
    parser.add_argument(
        "--drags-graph",
        default="transformer_block",
        help="model that they are done on (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    if arguments.edits < 1:
        raise UsageError(f"--edits {arguments.edits}", lever="Give at least 1.")
    if why_no_window():
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from .app import make_application

    application = make_application()
    bench = Bench(application, arguments)
    rows: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        for source in arguments.graphs or ("1000", "5000"):
            rows += bench.measure(source, Path(folder))
        if arguments.drags > 0:
            rows += bench.measure_drags(arguments.drags_graph, Path(folder))
    report(rows, as_json=arguments.json)
    sys.stdout.flush()
    return 0


class Memory(threading.Thread):
    """The process's largest resident size while it runs, looked at every 20 ms."""

    def __init__(self) -> None:
        super().__init__(name="memory-watch", daemon=True)
        self.peak_bytes = 0
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Look until `end`."""
        process = psutil.Process()
        while not self._stop_asked.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)

    def end(self) -> int:
        """Stop looking; the peak in bytes."""
        self._stop_asked.set()
        self.join()
        return self.peak_bytes


class Bench:
    """One window at a time, driven as a user would and timed."""

    def __init__(self, application: Any, arguments: argparse.Namespace) -> None:
        self._application = application
        self._arguments = arguments

    def measure(self, source: str, folder: Path) -> list[Measurement]:
        """All rows of one model; `source` may be a number of operators to repeat the sample to."""
        with self._window(folder) as window:
            window.document.choose_workload(self._arguments.workload)
            self._until(lambda: window.document.workload is not None, "the workload")
            return list(self._rows(window, source))

    def measure_drags(self, source: str, folder: Path) -> list[Measurement]:
        """Boundary drags under a trace, with their own GUI turns."""
        with self._window(folder) as window:
            return list(self._drag_rows(window, source, folder))

    @contextmanager
    def _window(self, folder: Path) -> Generator[Window]:
        """A window with kernels loaded and a machine chosen."""
        from PySide6.QtCore import QSettings, Qt, QTimer

        from .document import Document
        from .pace import Pace
        from .window import Window

        settings = QSettings(str(folder / "settings.ini"), QSettings.Format.IniFormat)
        document = Document()
        window = Window(document, settings)
        window.canvas.stage.animated = False
        window.resize(1680, 1020)
        window.show()
        pace = Pace(document)
        beat = QTimer(timerType=Qt.TimerType.PreciseTimer)  # no wait is longer than this
        beat.start(BEAT_MS)
        try:
            document.start_kernels()
            self._until(lambda: document.ready, "kernels")
            document.choose_hardware(self._arguments.hardware)
            self._until(lambda: document.accelerator is not None, "machine")
            yield window
        finally:
            beat.stop()
            window.close()
            pace.end()
            document.close()
            window.deleteLater()
            self._application.processEvents()

    def _drag_rows(self, window: Window, source: str, folder: Path) -> Iterator[Measurement]:
        from .bench_drags import LOAD, REQUESTS, Drags, write_workload
        from .turns import TurnClock

        document, machine = window.document, window.document.accelerator
        assert machine is not None
        document.open(source)
        self._until(lambda: document.cost is not None and document.runner.is_idle, "the model")
        assert document.graph is not None and document.cost is not None
        slots = machine.partition.slots
        rate = LOAD * slots / document.cost.totals.latency_s
        began = time.perf_counter()
        document.choose_workload(str(write_workload(folder, rate)))
        self._until(lambda: document.serving is not None and _rests(window), "the tail")
        read = time.perf_counter() - began
        title = f"{document.graph.name} under {REQUESTS:,} requests at {rate:.3g}/s on {slots} slots"
        clock = TurnClock(keep=True)
        clock.start()
        rows: list[Measurement] = []
        for cleared in (True, False):
            rows += Drags(window, self._pump, self._until, cleared=cleared).run(self._arguments.drags)
        clock.stop()
        yield Measurement(f"{title}: workload read and replayed", (read,), None)
        yield from rows
        yield from _turns(clock)

    def _pump(self) -> None:
        """Handle what is there, or sleep until there is something, as a window does: a loop that keeps looking takes
        the interpreter's lock from the worker so often that it measures itself.
        """
        from PySide6.QtCore import QEventLoop

        self._application.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)

    def _rows(self, window: Window, source: str) -> Iterator[Measurement]:
        from .turns import TurnClock

        document = window.document
        gc.collect()
        memory = Memory()
        memory.start()
        clock = TurnClock(keep=True)
        began = time.perf_counter()
        if source.isdigit():
            graph = self._repeated(int(source))
            clock.start()
        else:
            clock.start()
            faults: list[str] = []
            document.said.connect(lambda text, level: faults.append(text) if level == "error" else None)
            document.open(source, parse_bindings(self._arguments.bind))
            self._until(lambda: document.graph is not None or bool(faults), "the model")
            if document.graph is None:
                raise TilewrightError(faults[0])
            graph = document.graph
        title = f"{graph.name}, {len(graph.operators):,} operators"
        yield Measurement(f"{title}: file read", (time.perf_counter() - began,), None)

        first, laid_out, first_cost, beside = self._open(window, graph)
        yield Measurement("  parsed to first picture", (first,), 0.300)
        yield Measurement("  parsed to laid out", (laid_out,), 1.0)
        yield Measurement("  parsed to first numbers", (first_cost,), None)
        yield Measurement("  parsed to the unfused plan beside them", (beside,), None)
        goal = 1 / 60 if len(graph.operators) <= 5_600 else 0.033
        window.canvas.zoom_to_fit()
        yield Measurement("  pan, all in view: frame", self._pan(window), goal)
        yield Measurement("  zoom, from all to a few: frame", self._zoom(window), goal)
        yield Measurement("  pan, a few in view: frame", self._pan(window), goal)
        opened, found = self._blocks(window)
        if opened:
            yield Measurement("  open a closed block to its picture", opened, 0.300)
        if found:
            yield Measurement("  go to an operator in a closed block to its picture", found, 0.300)
        costs, tails = self._edits(window)
        yield Measurement("  edit in the middle to its numbers", costs, 0.016)
        if tails:
            yield Measurement("  edit in the middle to its p95", tails, 0.100)
        clock.stop()
        yield from _turns(clock)
        yield Measurement("  peak memory", (float(memory.end()),), None, "B")

    def _repeated(self, operators: int) -> OperatorGraph:
        from model.graph.load import load_graph

        return repeated(load_graph("transformer_block"), operators)

    def _open(self, window: Window, graph: OperatorGraph) -> tuple[float, float, float, float]:
        """Seconds from a parsed graph to its first picture, layout and numbers, and to those of the unfused plan."""
        document, canvas = window.document, window.canvas
        if document.graph is graph:  # the file was opened a moment ago: let it be seen, then begin again
            self._until(
                lambda: document.cost is not None and not canvas.stage.is_waiting, "the first numbers"
            )
        unfused = Plan.unfused(len(graph.operators))  # a file's is made where the file is read
        self._application.processEvents()
        began = time.perf_counter()
        seen: dict[str, float] = {}

        def note(name: str, there: bool) -> None:
            if there and name not in seen:
                seen[name] = time.perf_counter() - began

        document.engine.forget()
        document.set_graph(graph, unfused=unfused)

        def complete() -> bool:
            if "picture" not in seen:
                note("picture", canvas.has_scene and canvas.stage.picture() is not None)
            note("layout", canvas.has_scene and not canvas.stage.is_waiting)
            cost = document.cost
            note("numbers", cost is not None and cost.request.plan is document.plan)
            note("beside", cost is not None and cost.baseline is not None)
            return (
                len(seen) == 4
            )  # the exact tail of a large model takes minutes; it gives way to what follows

        self._until(complete, "the picture and the numbers")
        return seen["picture"], seen["layout"], seen["numbers"], seen["beside"]

    def _frame(self, window: Window) -> float:
        began = time.perf_counter()
        window.canvas.viewport().repaint()
        return time.perf_counter() - began

    def _pan(self, window: Window) -> tuple[float, ...]:
        canvas = window.canvas
        out: list[float] = []
        for step in range(FRAMES):
            way = 1 if step % 40 < 20 else -1
            canvas.set_camera(canvas.camera.panned(13.0 * way, 9.0 * way))
            out.append(self._frame(window))
            self._application.processEvents()
        return tuple(out)

    def _zoom(self, window: Window) -> tuple[float, ...]:
        canvas = window.canvas
        middle = canvas.viewport().rect().center()
        factor = (1.0 / canvas.camera.zoom) ** (1.0 / FRAMES)
        out: list[float] = []
        for _ in range(FRAMES):
            canvas.set_camera(canvas.camera.zoomed(factor, middle.x(), middle.y()))
            out.append(self._frame(window))
            self._application.processEvents()
        return tuple(out)

    def _blocks(self, window: Window) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Open closed blocks one by one, the first ones; then close them and go to operators inside them."""
        canvas = window.canvas
        folding = canvas.scene.folding
        some = folding.blocks[:: max(1, len(folding.blocks) // BLOCKS)][:BLOCKS]
        opened: list[float] = []
        found: list[float] = []
        for block in some:
            operator = int(folding.operators(block)[-1])
            for change, times in (
                (lambda chosen=block: canvas.stage.fold(canvas.scene.folding.opening([chosen])), opened),
                (lambda inside=operator: canvas.blocks.uncover((inside,)), found),
            ):
                began = time.perf_counter()
                change()
                self._until(lambda: not canvas.stage.is_folding, "the block")
                self._frame(window)
                times.append(time.perf_counter() - began)
                canvas.stage.fold(folding)
                self._until(lambda: not canvas.stage.is_folding, "the block")
        self._until(partial(_rests, window), "rest")
        return tuple(opened), tuple(found)

    def _edits(self, window: Window) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Toggle edges in the middle, each a structure that the cache has not seen; undo between."""
        from model.plan import edits

        document = window.document
        graph, plan = document.graph, document.plan
        assert graph is not None and plan is not None
        half = len(graph.operators) // 2
        middle = sorted(graph.edges.tolist(), key=lambda edge: abs(edge[0] - half))
        costs: list[float] = []
        tails: list[float] = []
        structures: set[tuple[object, ...]] = set()
        for producer, consumer, _ in middle:
            if len(costs) == self._arguments.edits:
                break
            ends = (graph.operators[producer], graph.operators[consumer])
            structure = tuple(
                (end.op_type, end.dims, end.inputs[0].axes if end.inputs else ()) for end in ends
            )
            if structure in structures:
                continue
            structures.add(structure)
            began = time.perf_counter()
            try:
                candidate = edits.toggle(graph, plan, producer, consumer)
            except TilewrightError:
                continue
            document.commit(candidate, "bench")
            self._until(partial(_shows, document, candidate), "numbers")
            costs.append(time.perf_counter() - began)
            if document.cost is not None and document.cost.totals.feasible:
                self._until(partial(_served, document, candidate), "the p95")
                tails.append(time.perf_counter() - began)
            self._until(partial(_rests, window), "rest")
            document.undo()
            self._until(partial(_rests, window), "rest")
        return tuple(costs), tuple(tails)

    def _until(self, there: Callable[[], bool], what: str) -> None:
        end = time.perf_counter() + LIMIT_S
        while not there():
            if time.perf_counter() > end:
                raise TilewrightError(
                    f"{what} took longer than {LIMIT_S:.0f} s", lever="Try a smaller model."
                )
            self._pump()


def _turns(clock: TurnClock) -> Iterator[Measurement]:
    """How long the GUI thread's turns were, and what the last long ones did."""
    yield Measurement("  longest GUI turn", (max(clock.delays_s),), 0.050)
    yield Measurement("  GUI turns, 99.9 % within", (_percentile(clock.delays_s, 0.999),), 0.050)
    for seconds, stack in clock.slow[-3:]:
        print(f"GUI turn of {seconds * 1e3:.0f} ms:\n{stack}", file=sys.stderr)


def _rests(window: Window) -> bool:
    """Whether the layout and a tail of what is shown are there.

    The exact tail of a large model goes on for long: as for a person, the next edit ends it between two slices.
    """
    document = window.document
    cost = document.cost
    if cost is None or cost.request.plan is not document.plan or window.canvas.stage.is_settling:
        return False
    return not cost.totals.feasible or document.workload is None or _served(document, cost.request.plan)


def _shows(document: Document, plan: Plan) -> bool:
    return document.cost is not None and document.cost.request.plan is plan


def _served(document: Document, plan: Plan) -> bool:
    return document.served is not None and document.served.cost.request.plan is plan


def _percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
