"""Boundary drags by a real pointer under a trace of 12,000 requests: when the p95 of the plan is on screen.

Knows the window and how a hand acts on its canvas. Times run from the move of the pointer that made the last plan of
the drag to the header's figure of that very plan, painted. A first pass clears all caches before every drag, so that
every group is solved anew; a second one does not, as when someone works.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model.measured import Measurement

if TYPE_CHECKING:
    from .window import Window

REQUESTS = 12_000
LOAD = 0.3
"""Of the slots' time, at the starting plan: high enough for slots to contend and a queue to build."""
ZOOM = 0.8
STEPS = 8
STEP_S = 0.008
"""Between two moves of the pointer: 125 a second, as a mouse sends them."""
ATTEMPTS = 20
"""For each drag that is wanted: many end where they began, or at a plan that does not fit."""

Until = Callable[[Callable[[], bool], str], None]


def write_workload(folder: Path, rate_per_s: float) -> Path:
    """A trace of gamma-spaced, bursty arrivals (cv 1.5) and the workload that replays it; seeded."""
    gaps = np.random.default_rng(0).gamma(1 / 2.25, 2.25 / rate_per_s, REQUESTS)
    arrivals = (np.cumsum(gaps) * 1e9).astype(np.int64)
    rows = "\n".join(f"{ns},512,1" for ns in arrivals.tolist())
    (folder / "drags.csv").write_text(f"arrival_ns,input_tokens,output_tokens\n{rows}\n", encoding="utf-8")
    path = folder / "drags.toml"
    path.write_text(
        'format = 1\n[[stream]]\nname = "drags"\nkind = "one-shot"\n'
        'arrivals = { kind = "trace", file = "drags.csv", format = "tilewright" }\n'
        'jitter = { kind = "gamma", cv = 0.05 }\n',
        encoding="utf-8",
    )
    return path


class Drags:
    """The hand, and what it waits for.

    Attributes
    ----------
    cost_s, first_s, exact_s : per drag, from the last plan's move to its cost, its first p95, and its exact one.
    """

    def __init__(self, window: Window, pump: Callable[[], None], until: Until, *, cleared: bool) -> None:
        self._window, self._pump, self._until, self._cleared = window, pump, until, cleared
        self.cost_s: list[float] = []
        self.first_s: list[float] = []
        self.exact_s: list[float] = []
        self._random = random.Random(0)
        self._began = 0.0  # when the plan shown became the one it is
        self._cost = self._first = self._exact = 0.0
        # After the header, which paints what it hears of before anybody else hears.
        for signal in (window.document.cost_changed, window.document.serving_changed):
            signal.connect(self._look)

    def run(self, count: int) -> Iterator[Measurement]:
        """Drag until `count` drags had a tail, and tell."""
        for _ in range(count * ATTEMPTS):
            if len(self.exact_s) == count:
                break
            self._drag()
        how = "caches cleared" if self._cleared else "as one works"
        yield Measurement(f"  boundary drag, {how}: its traffic and latency", tuple(self.cost_s), None)
        yield Measurement(f"  boundary drag, {how}: first p95 on screen", tuple(self.first_s), 0.100)
        yield Measurement(f"  boundary drag, {how}: exact p95 on screen", tuple(self.exact_s), 1.0)

    def _drag(self) -> None:
        from PySide6.QtCore import QPoint, Qt
        from PySide6.QtTest import QTest

        from .canvas.camera import Camera

        window, document = self._window, self._window.document
        canvas, viewport = window.canvas, window.canvas.viewport()
        before, start = document.plan, document.undo_stack.index()
        scene = canvas.scene
        handles = np.flatnonzero(scene.chip_is_handle)
        chip = scene.chip(int(self._random.choice(handles.tolist())))
        room = viewport.size() / (2 * ZOOM)
        canvas.set_camera(Camera(chip.x - room.width(), chip.y - room.height(), ZOOM))
        self._pump()
        x, y = canvas.camera.to_screen(chip.x, chip.y)
        at = QPoint(round(x), round(y))
        goal = at + QPoint(
            self._random.randint(-30, 30),
            self._random.choice((-1, 1)) * self._random.randint(60, at.y() - 20),
        )
        if self._cleared:
            document.engine.forget()
        self._began = self._cost = self._first = self._exact = 0.0
        shown = document.shown_plan
        QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=at)
        for step in range(1, STEPS + 1):
            moved = time.perf_counter()
            QTest.mouseMove(viewport, at + (goal - at) * (step / STEPS))
            if document.shown_plan != shown:
                shown, self._began = document.shown_plan, moved
                self._cost = self._first = self._exact = 0.0
            while time.perf_counter() < moved + STEP_S:
                self._pump()
        QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=goal)
        if document.plan != before:
            self._until(lambda: bool(self._exact) or not self._fits(), "the exact p95")
        if self._exact and document.plan != before:
            self.cost_s.append(self._cost - self._began)
            self.first_s.append(self._first - self._began)
            self.exact_s.append(self._exact - self._began)
        self._until(lambda: document.runner.is_idle and not canvas.stage.is_settling, "rest")
        if document.undo_stack.index() != start:
            document.undo()
        self._until(lambda: document.runner.is_idle and not canvas.stage.is_settling, "rest")

    def _fits(self) -> bool:
        """Whether the plan shown can be served, as far as is known."""
        cost = self._window.document.cost
        if cost is None or cost.request.plan != self._window.document.plan:
            return True
        return cost.totals.feasible

    def _look(self, *_: object) -> None:
        """Note what is on screen by now of the plan that is shown."""
        from . import look

        document, now = self._window.document, time.perf_counter()
        cost, served, serving = document.cost, document.served, document.serving
        if cost is not None and cost.request.plan == document.shown_plan:
            self._cost = self._cost or now
        if served is None or serving is None or served.cost.request.plan != document.shown_plan:
            return
        metric = self._window.header.metrics[4].shown
        if metric.value != look.fmt_ns(serving.p95_ns) or metric.behind:
            return
        if serving.first_estimate == ("estimate" in metric.caption):
            self._first = self._first or now
            if not serving.first_estimate:
                self._exact = self._exact or now
