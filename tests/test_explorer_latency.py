"""The latency panel by hand: knobs of the workload shown, the objective's line, what is said in each state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest

from explorer import header, look
from explorer.document import Document
from explorer.panels.latency import (
    Latency,
    driver_sentence,
    facts_of,
    heat_sentence,
    highest_sentence,
    slots_sentence,
)
from explorer.panels.parts import STYLES
from explorer.panels.streams import TOKEN_COLUMNS, StreamRow
from explorer.panels.tokens import TokenTimes, token_facts
from model.errors import UsageError
from model.serving.generation_run import _PARTS
from model.serving.result import Arrivals, StreamResult, TokenResult, Warmed
from model.serving.rules import PARTS
from model.serving.streams import Objective, Stream, Workload

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


def test_the_objective_is_typed_and_its_percentile_chosen(qtbot, panel):
    document, knobs, drawn = panel.document, panel.knobs, panel.distribution
    assert knobs.percentile.currentText() == "p95" and knobs.limit.text() == "none"
    assert not knobs.highest.isEnabled() and "give a time" in knobs.highest.toolTip()
    knobs.percentile.setCurrentIndex(knobs.percentile.findText("p99"))
    knobs.percentile.activated.emit(knobs.percentile.currentIndex())
    assert document.load.objective_percentile == 0.99 and document.load.limit_s is None
    knobs.limit.setFocus()
    QTest.keyClick(knobs.limit, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(knobs.limit, "1,234.5")
    QTest.keyClick(knobs.limit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: document.load.objective_s is not None, timeout=LIMIT_MS)
    assert document.load.objective_s == pytest.approx(1.2345) and knobs.limit.text() == "1,234.5 ms"
    assert document.load.applied(one_stream(), 4).streams[0].objective == Objective(0.99, 1.2345)
    settle(qtbot, document)
    panel.catch_up()
    assert knobs.highest.isEnabled() and knobs.reset.isEnabled()
    knobs.reset.setFocus()
    QTest.mouseClick(knobs.reset, Qt.MouseButton.LeftButton)
    assert document.load == document.load.plain
    settle(qtbot, document)
    panel.catch_up()
    assert knobs.percentile.currentText() == "p95" and knobs.limit.text() == "none"
    # What the hand drags is finer than what is shown, and another knob does not round it.
    drawn.limit_set.emit(123_456_789)
    settle(qtbot, document)
    panel.catch_up()
    assert knobs.limit.text() == "123.46 ms"
    knobs.batch.setValue(2)
    qtbot.waitUntil(lambda: document.load.batch == 2, timeout=LIMIT_MS)
    assert document.load.objective_s == pytest.approx(0.123456789, rel=1e-12)


def test_numbers_in_knobs_say_no_digit_that_says_nothing(panel):
    rate = panel.knobs.rate
    for value, text in ((5000.0, "5,000 /s"), (8.5, "8.5 /s"), (0.1234, "0.1234 /s")):
        rate.setValue(value)
        assert rate.text() == text and rate.valueFromText(text) == value


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


def test_a_driver_below_zero_is_explained():
    result = made_results.serving()
    blame = made_results.blame(result)
    assert "below 0" not in driver_sentence(blame, "p95")
    (name, values), *rest = blame.values_ns
    below = replace(blame, values_ns=((name, (values[0], ("contention", -values[1][1]))), *rest))
    said = driver_sentence(below, "p95")
    assert "contention −" in said
    assert said.endswith("Contention below 0: with it the others cost less, by more than it costs itself")
    queued = replace(blame, values_ns=((name, (("queueing", -values[0][1]), values[1])), *rest))
    assert "who waits asks for no DRAM" in driver_sentence(queued, "p95")


def test_heat_slots_and_goodput_are_said_in_words():
    result = made_results.serving()
    assert heat_sentence(result) == ""
    span_ns = round(result.span_s * 1e9)
    heat = Warmed(np.zeros(2000), 86.04, 84.1, 84.0, span_ns // 4, 12, 5.0, 85.0)
    assert heat_sentence(replace(result, warmed=heat)) == (
        f"Die at most 86.0 °C, sink 84.1 °C · clock low for {look.fmt_ns(span_ns // 4)}, 25.0 % of the time · "
        "12 batches slowed by the power cap"
    )
    cool = replace(heat, low_clock_ns=0, capped=0, peak_die_c=61.0)
    assert heat_sentence(replace(result, warmed=cool)).endswith("the clock stays up, to 85.0 °C")
    assert slots_sentence(result, 4, False) == slots_sentence(result, 2, True) == ""
    assert "4 slots on a machine of 2: each computes at full speed, as on 2 machines" in slots_sentence(
        result, 2, False
    )
    judged = StreamResult("chat", 1000, 1, 2, 3, 1e-9, 1.0, 0.0, 0.95, 0.02, 0.5)
    free = replace(judged, slo_attainment=None, slo_percentile=None, slo_response_s=None)
    # 500 of 2,000 requests within it, at 120.5 a second in all.
    assert "30.12 within the objective" in facts_of(replace(result, streams=(judged, free)))
    assert "within the objective" not in facts_of(result)


def test_times_of_tokens_stand_in_a_table_and_say_why(qtbot):
    ns = 1_000_000
    told = TokenResult(
        (381 * ns, 7_734 * ns, 21_800 * ns, 22_000 * ns), 1.65, (43 * ns, 89 * ns, 92 * ns, 95 * ns), 0.0457,
        41_000, 41.7, 8_000_000_000, 0.037,
    )  # fmt: skip
    table = TokenTimes()
    qtbot.addWidget(table)
    result = replace(made_results.serving(), tokens=told)
    table.show_tokens(result, told)
    texts = {name: figure.text() for name, figure in table.figures.items()}
    assert texts["ttft.p95_s"] == "7.73 s" and texts["tpot.mean_s"] == "45.7 ms" and len(texts) == 8
    assert "time to the first token" in table.figures["ttft.p95_s"].why()
    assert token_facts(told, 8_000_000_000) == (
        "41.7 tokens/s · KV cache at most 7.5 GiB of 7.5 GiB, full when the turn of 3.7 % of the requests came"
    )
    assert token_facts(replace(told, kv_peak_bytes=0), None) == "41.7 tokens/s"
    single = replace(told, tpot_ns=())
    table.show_tokens(replace(result, tokens=single), single)
    assert table.figures["tpot.p95_s"].text() == look.NO_NUMBER
    row = StreamRow(StreamResult("chat", 100, 1, 2, 3, 1e-9, 1.0, 0.0, tokens=told))
    assert [column.text(row) for column in TOKEN_COLUMNS] == ["7.73 s", "89.0 ms"]


def test_every_part_has_a_look_of_its_own():
    shown = {name for name in (*PARTS, *_PARTS) if name != "queue_imbalance"}
    assert shown <= set(STYLES) and len(set(STYLES.values())) == len(STYLES)


def test_an_interval_stands_beside_its_time_in_its_digits():
    assert look.fmt_within(1.464, 1.441, 1.615) == "1.46 −0.02 +0.15 s"
    assert look.fmt_within(0.0417, 0.0405, 0.0429) == "41.7 ± 1.2 ms"
    assert look.fmt_within(1412.4, 1400.0, 1500.0) == "23.5 −0.2 +1.5 min"


def test_a_stream_says_whether_its_objective_is_met():
    one = StreamResult("chat", 100, 1, 2, 3, 1e-9, 1.0, 0.0, 0.95, 0.02, 0.94)
    assert StreamRow(one).attainment == "✕ 94.0 %"
    assert StreamRow(replace(one, slo_attainment=0.95)).attainment == "✓ 95.0 %"
    none = replace(one, slo_attainment=None, slo_percentile=None, slo_response_s=None)
    assert StreamRow(none).attainment == look.NO_NUMBER and StreamRow(none).tip == "no objective"


def test_the_highest_rate_is_said_with_what_breaks_beyond_it():
    rate = {"set_rate_per_s": 6.831, "percentile": "p99", "limit_s": 0.6, "tried": 23, "first_estimate": True}
    ramp = {"what": "objective", "cause": "contention_queue"}
    said = highest_sentence(rate, ramp)
    assert said == (
        "6.831 requests/s keep p99 within 600 ms (23 rates tried, by the first estimate). "
        "Beyond it the objective breaks first: contention grows most."
    )
    none = highest_sentence(rate | {"set_rate_per_s": None, "first_estimate": False}, ramp)
    assert none.startswith("No rate keeps p99 within 600 ms (23 rates tried). Shorten")
    assert highest_sentence(rate, {"what": "", "cause": ""}).endswith("estimate).")
