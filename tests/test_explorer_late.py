"""Answers that were asked for before a sentence took their panel's place come too late: the sentence stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from explorer.document import Document
from explorer.panels.demand import BY_SLOT, DemandProfile
from explorer.panels.heatmap import MODES, Heatmap
from explorer.panels.latency import Latency
from explorer.panels.panel import Panel
from explorer.panels.queue import Queue
from explorer.runner import Lane
from explorer.tiles import TileEditor
from model.errors import FileError, UsageError

from . import made_results
from .explorer_engine import HandEngine
from .test_explorer_document import merged, settle
from .test_explorer_latency import one_stream

LIMIT_MS = 20_000


@pytest.fixture
def document(qtbot):
    made: Any = Document(engine=HandEngine())
    yield made
    made.engine.question_gate.set()
    assert made.close()


def shown(qtbot, document: Any, panel: Panel) -> None:
    qtbot.addWidget(panel)
    panel.resize(480, 560)
    panel.show()
    document.set_accelerator(made_results.machine())
    document.set_workload(one_stream())
    document.set_graph(made_results.chain(), made_results.plan())
    settle(qtbot, document)
    panel.catch_up()
    assert not panel.message


def cost_fails(qtbot, document: Any, panel: Panel) -> None:
    """An edit whose cost cannot be computed: what is shown is of the plan before."""
    document.engine.fault = FileError("made for the test: no cost")
    document.commit(merged(document.plan, 0), "Fuse")
    qtbot.waitUntil(lambda: "made for the test" in panel.message, timeout=LIMIT_MS)


@pytest.mark.parametrize("mode", MODES[1:])
def test_rows_of_traffic_do_not_take_the_place_of_a_fault(qtbot, document, mode):
    panel = Heatmap(document)
    shown(qtbot, document, panel)
    document.runner.hold(Lane.ROWS)
    panel.mode.setCurrentIndex(MODES.index(mode))
    qtbot.waitUntil(lambda: document.runner.has_waiting(Lane.ROWS), timeout=LIMIT_MS)
    cost_fails(qtbot, document, panel)
    document.runner.release(Lane.ROWS)
    settle(qtbot, document)
    assert "made for the test" in panel.message
    document.undo()  # a cost again: everything is shown again
    qtbot.waitUntil(lambda: not panel.message, timeout=LIMIT_MS)


def test_a_layout_of_the_queue_does_not_take_the_place_of_a_fault(qtbot, document):
    panel = Queue(document)
    shown(qtbot, document, panel)
    document.runner.hold(Lane.QUEUE)
    document.set_load(replace(document.load, slots=3))
    qtbot.waitUntil(lambda: document.runner.has_waiting(Lane.QUEUE), timeout=LIMIT_MS)
    document.engine.serving_fault = UsageError("made for the test: no tail")
    document.set_load(replace(document.load, slots=2))
    qtbot.waitUntil(
        lambda: "made for the test" in panel.message or "Nothing" in panel.message, timeout=LIMIT_MS
    )
    document.runner.release(Lane.QUEUE)
    settle(qtbot, document)
    assert panel.message
    document.set_load(replace(document.load, slots=1))
    qtbot.waitUntil(lambda: not panel.message, timeout=LIMIT_MS)


def test_what_was_seen_of_the_bus_does_not_take_the_place_of_a_sentence(qtbot, document):
    panel = DemandProfile(document)
    shown(qtbot, document, panel)
    document.runner.hold(Lane.SHARED)
    panel.mode.setCurrentText(BY_SLOT)
    qtbot.waitUntil(lambda: document.runner.has_waiting(Lane.SHARED), timeout=LIMIT_MS)
    assert "Replaying" in panel.message
    document.engine.unstable = True
    document.set_load(replace(document.load, slots=1))
    qtbot.waitUntil(lambda: "Unstable" in panel.message, timeout=LIMIT_MS)
    document.runner.release(Lane.SHARED)
    settle(qtbot, document)
    panel.catch_up()
    assert "Unstable" in panel.message and panel.shared.seen is None
    document.engine.unstable = False
    document.set_load(replace(document.load, slots=2))
    qtbot.waitUntil(lambda: not panel.message, timeout=LIMIT_MS)
    cost_fails(qtbot, document, panel)
    panel.shared.changed.emit()
    document.serving_changed.emit(document.serving)
    panel.catch_up()
    assert "made for the test" in panel.message


@pytest.mark.parametrize("kind", [Latency, Queue, Heatmap, DemandProfile, TileEditor])
def test_what_comes_after_a_cost_that_failed_is_of_the_plan_before_and_hides_nothing(qtbot, document, kind):
    panel = kind(document)
    shown(qtbot, document, panel)
    document.engine.estimates = True
    cost_fails(qtbot, document, panel)
    document.serving_changed.emit(document.serving)  # a tail of the plan before, its drivers, the baseline
    document.drivers_changed.emit()
    document.baseline_changed.emit()
    panel.invalidate()
    panel.catch_up()
    settle(qtbot, document)
    panel.catch_up()
    assert "made for the test" in panel.message
    document.undo()
    qtbot.waitUntil(lambda: not panel.message, timeout=LIMIT_MS)


def test_cells_of_a_tile_map_do_not_take_the_place_of_a_fault(qtbot, document):
    panel = TileEditor(document)
    shown(qtbot, document, panel)
    document.runner.hold(Lane.MAP)
    document.select((6,))
    qtbot.waitUntil(lambda: document.runner.has_waiting(Lane.MAP), timeout=LIMIT_MS)
    cost_fails(qtbot, document, panel)
    document.runner.release(Lane.MAP)
    settle(qtbot, document)
    panel.catch_up()
    assert "made for the test" in panel.message and not panel.map.isVisible()


@pytest.mark.parametrize("change", ["load", "plan"])
def test_a_rate_that_was_searched_for_something_else_is_not_set(qtbot, document, change):
    panel = Latency(document)
    shown(qtbot, document, panel)
    document.set_load(replace(document.load, objective_s=0.6, objective_percentile=0.99))
    settle(qtbot, document)
    panel.catch_up()
    document.engine.question_gate.clear()
    QTest.mouseClick(panel.highest, Qt.MouseButton.LeftButton)
    assert not panel.highest.isEnabled()
    said: list[str] = []
    document.said.connect(lambda text, _: said.append(text))
    if change == "load":
        document.set_load(replace(document.load, slots=2))
    else:
        document.commit(merged(document.plan, 0), "Fuse")
    document.engine.question_gate.set()
    qtbot.waitUntil(lambda: any("changed meanwhile" in text for text in said), timeout=LIMIT_MS)
    settle(qtbot, document)
    panel.catch_up()
    assert document.load.rate_per_s is None and not panel.found.isVisible()
    assert panel.highest.isEnabled()


def test_a_search_that_fails_can_be_asked_again_and_one_that_ends_stays_until_something_changes(
    qtbot, document
):
    panel = Latency(document)
    shown(qtbot, document, panel)
    document.set_load(replace(document.load, objective_s=0.6, objective_percentile=0.99))
    settle(qtbot, document)
    panel.catch_up()
    document.engine.question_fault = UsageError("made for the test: no answer")
    QTest.mouseClick(panel.highest, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: panel.highest.isEnabled(), timeout=LIMIT_MS)
    QTest.mouseClick(panel.highest, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: document.load.rate_per_s is not None, timeout=LIMIT_MS)
    settle(qtbot, document)
    panel.catch_up()
    assert document.load.rate_per_s == 3.1415  # as the knob shows it, and not above
    assert panel.found.isVisible() and panel.found.text().startswith(
        "3.142 requests/s keep p99 within 600 ms"
    )
    document.set_load(replace(document.load, slots=2))
    settle(qtbot, document)
    panel.catch_up()
    assert not panel.found.isVisible()
