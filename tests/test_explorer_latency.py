"""The latency panel by hand: knobs of the workload shown, the objective's line, what is said in each state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest

from explorer import header, look
from explorer.document import Document
from explorer.panels.latency import Latency, driver_sentence, facts_of, highest_sentence
from explorer.panels.streams import StreamRow
from model.errors import UsageError
from model.serving.result import Arrivals, StreamResult
from model.serving.streams import Stream, Workload

from . import made_results
from .explorer_engine import HandEngine, workload
from .test_explorer_document import settle

LIMIT_MS = 20_000


def one_stream() -> Workload:
    none = np.zeros(2, dtype=np.int64)
    arrivals = Arrivals(np.array([0, 10**9]), none, none, "two requests", recorded=True, endless=False)
    return replace(workload(), streams=(Stream("only", arrivals, None, None),))


@pytest.fixture
def engine():
    return HandEngine()


@pytest.fixture
def panel(qtbot, engine):
    document = Document(engine=engine)
    made = Latency(document)
    qtbot.addWidget(made)
    made.resize(460, 640)
    made.show()
    document.set_accelerator(made_results.machine())
    document.set_workload(one_stream())
    document.set_graph(made_results.chain(), made_results.plan())
    settle(qtbot, document)
    made.catch_up()
    yield made
    engine.exact_gate.set()
    assert document.close()


def test_each_knob_makes_another_load_and_reset_takes_them_back(qtbot, panel):
    document, knobs = panel.document, panel.knobs
    assert knobs.isVisible() and not knobs.reset.isEnabled()
    assert knobs.rate.text() == "2 /s" and knobs.batch.text() == "1" and knobs.linger.text() == "0 ms"
    knobs.batch.setValue(8)
    knobs.linger.setValue(2.0)
    knobs.rate.setValue(30.0)
    knobs.seed.setValue(3)
    qtbot.waitUntil(lambda: len(document.load.changed) == 4, timeout=LIMIT_MS)
    knobs.placement.setCurrentIndex(knobs.placement.findData("round-robin"))
    knobs.placement.activated.emit(knobs.placement.currentIndex())
    knobs.contention.setCurrentIndex(1)
    knobs.contention.activated.emit(1)
    load = document.load
    assert (load.rate_per_s, load.batch, load.linger_s, load.seed) == (30.0, 8, 0.002, 3)
    assert load.placement == "round-robin" and load.contention is True
    assert load.workload.streams[0].batch == 1  # the file's own value is as it was
    settle(qtbot, document)
    panel.catch_up()
    QTest.mouseClick(knobs.reset, Qt.MouseButton.LeftButton)
    assert document.load == document.load.plain
    settle(qtbot, document)
    panel.catch_up()
    assert knobs.batch.text() == "1" and knobs.placement.currentText() == "dynamic"


def test_the_objective_is_dragged_and_attainment_follows(qtbot, panel):
    document, drawn = panel.document, panel.distribution
    grip = drawn._grip()
    assert grip is not None
    plot = drawn._plot()
    middle = int(plot.center().y())
    to = int(plot.left() + plot.width() * 0.6)
    QTest.mousePress(drawn, Qt.MouseButton.LeftButton, pos=QPointF(grip, middle).toPoint())
    QTest.mouseMove(drawn, QPointF(to, middle).toPoint())
    limit = drawn.limit_ns
    assert limit == pytest.approx(drawn._held_axis.ns(plot, to))
    responses = document.serving.requests.completion_ns - document.serving.requests.arrival_ns
    share = float((responses <= limit).mean())
    assert look.fmt_percent(share) in drawn._objective()
    assert document.load.objective_s is None  # the hand still has it
    QTest.mouseRelease(drawn, Qt.MouseButton.LeftButton, pos=QPointF(to, middle).toPoint())
    assert document.load.objective_s == pytest.approx(limit * 1e-9, abs=1e-9)
    before = document.load.objective_s
    drawn.setFocus()
    QTest.keyClick(drawn, Qt.Key.Key_Right)
    assert before is not None and (document.load.objective_s or 0.0) > before


def test_a_first_estimate_is_said_so_until_the_exact_tail_is_there(qtbot, panel, engine):
    document = panel.document
    engine.estimates = True
    engine.exact_gate.clear()
    document.set_load(replace(document.load, slots=5))
    qtbot.waitUntil(lambda: document.serving.first_estimate, timeout=LIMIT_MS)
    panel.catch_up()
    assert panel.line.startswith("first estimate") and "first estimate" in panel.heading.text()
    assert header.metrics(document.cost, document.serving, None)[4].caption == "p95 · estimate"
    engine.exact_gate.set()
    with qtbot.waitSignal(document.drivers_changed, timeout=LIMIT_MS):
        pass
    panel.catch_up()
    assert "first estimate" not in panel.line and panel.heading.text() == "tail, exact parts"
    assert panel.owed.text().startswith("p95 by driver: queueing +")
    settle(qtbot, document)


def test_what_cannot_be_served_says_why_and_leaves_the_knobs_in_reach(qtbot, panel, engine):
    document = panel.document
    engine.serving_fault = UsageError("a batch of 8 runs the plan at that size", lever="Set bind.")
    panel.knobs.batch.setValue(8)
    with qtbot.waitSignal(document.failed, timeout=LIMIT_MS):
        pass
    settle(qtbot, document)
    panel.catch_up()
    assert "a batch of 8" in panel.message and panel.knobs.isVisible() and document.serving is None
    panel.knobs.reset.click()
    settle(qtbot, document)
    panel.catch_up()
    assert not panel.message


def test_drivers_and_facts_are_said_in_words():
    result = made_results.serving()
    blame = made_results.blame(result)
    said = driver_sentence(blame, "p95")
    assert said.endswith("; 1.80 ms without") and said.index("queueing") < said.index("contention")
    assert driver_sentence(blame, "mean") == "" and driver_sentence(None, "p95") == ""
    full = replace(result, padding_share=0.25, fallback_share=0.5, batch_sizes=((1, 10), (3, 10)))
    assert "mean batch 2.0 · padding 25.0 % · fallback 50.0 %" in facts_of(full)
    assert "batch" not in facts_of(result)


def test_a_stream_says_whether_its_objective_is_met():
    one = StreamResult("chat", 100, 1, 2, 3, 1e-9, 1.0, 0.0, 0.95, 0.02, 0.94)
    assert StreamRow(one).attainment == "✕ 94.0 %"
    assert StreamRow(replace(one, slo_attainment=0.95)).attainment == "✓ 95.0 %"
    none = replace(one, slo_attainment=None, slo_percentile=None, slo_response_s=None)
    assert StreamRow(none).attainment == look.NO_NUMBER and StreamRow(none).tip == "no objective"


def test_the_highest_rate_is_said_with_what_breaks_beyond_it():
    rate = {"rate_per_s": 6.831, "percentile": "p99", "limit_s": 0.6, "tried": 23, "first_estimate": True}
    ramp = {"what": "objective", "cause": "contention_queue"}
    said = highest_sentence(rate, ramp)
    assert said == (
        "6.831 requests/s keep p99 within 600 ms (23 rates tried, by the first estimate). "
        "Beyond it the objective breaks first: contention grows most."
    )
    none = highest_sentence(rate | {"rate_per_s": None, "first_estimate": False}, ramp)
    assert none.startswith("No rate keeps p99 within 600 ms (23 rates tried). Shorten")
    assert highest_sentence(rate, {"what": "", "cause": ""}).endswith("estimate).")
