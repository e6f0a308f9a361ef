"""The latency panel by hand: knobs of the workload shown, the objective's line, what is said in each state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest

from explorer import header, look
from explorer.document import Document
from explorer.panels.distribution import MEASURES, Measured
from explorer.panels.latency import (
    WIDE,
    Latency,
    facts_of,
    few_sentence,
    heat_sentence,
    highest_sentence,
    slots_sentence,
)
from explorer.panels.limits import driver_sentence, limit_words, shown_limits
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
    assert panel.line.startswith("first estimate") and "first estimate" in panel.heading.title
    assert header.metrics(document.cost, document.serving, None)[4].caption == "p95 · estimate"
    engine.exact_gate.set()
    with qtbot.waitSignal(document.drivers_changed, timeout=LIMIT_MS):
        pass
    panel.catch_up()
    assert "first estimate" not in panel.line and panel.heading.title == "tail, exact parts"
    assert panel.owed.text().startswith("p95 by driver (Shapley) = ") and "queueing" in panel.owed.text()
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
    said = driver_sentence(blame, "p95").replace("\u00a0", " ")
    queueing, contention = (look.fmt_seconds(float(ns) * 1e-9) for _, ns in blame.values_ns[0][1])
    assert said == (
        f"p95 by driver (Shapley) = 1.80 ms without any + {queueing} queueing + {contention} contention."
    )
    assert driver_sentence(blame, "mean") == "" and driver_sentence(None, "p95") == ""
    full = replace(result, padding_share=0.25, fallback_share=0.5, batch_sizes=((1, 10), (3, 10)))
    assert "mean batch 2.0 · padding 25.0 % · fallback 50.0 %" in facts_of(full)
    assert "batch" not in facts_of(result)


def test_a_driver_with_a_minus_is_explained():
    result = made_results.serving()
    blame = made_results.blame(result)
    assert "minus" not in driver_sentence(blame, "p95")
    (name, values), *rest = blame.values_ns
    below = replace(blame, values_ns=((name, (values[0], ("contention", -values[1][1]))), *rest))
    said = driver_sentence(below, "p95").replace("\u00a0", " ")
    assert f"{look.MINUS} {look.fmt_seconds(float(values[1][1]) * 1e-9)} contention" in said
    assert said.endswith("The minus: contention spares the others more than it costs itself.")
    queued = replace(blame, values_ns=((name, (("queueing", -values[0][1]), values[1])), *rest))
    assert "who waits for a slot asks for no DRAM" in driver_sentence(queued, "p95")


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
    assert "served 120.5 requests/s to the last completion, 30.12 of it within the objective" in facts_of(
        replace(result, streams=(judged, free))
    )
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
    assert texts["ttft.p95_s"] == "7.73 s" and texts["tpot.mean_s"] == "45.7 ms" and len(texts) == 12
    assert texts["response.p95_s"] == look.fmt_ns(result.p95_ns)
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
        "Beyond it the objective breaks first: queue behind stalls grows most (shared DRAM)."
    )
    none = highest_sentence(rate | {"set_rate_per_s": None, "first_estimate": False}, ramp)
    assert none.startswith("No rate keeps p99 within 600 ms (23 rates tried). Shorten")
    assert highest_sentence(rate, {"what": "", "cause": ""}).endswith("estimate).")


def told_tokens() -> TokenResult:
    ns = 1_000_000
    return TokenResult(
        (10 * ns, 20 * ns, 30 * ns, 40 * ns),
        0.011,
        (2 * ns, 4 * ns, 5 * ns, 6 * ns),
        0.0021,
        4_000,
        40.0,
        0,
        0.0,
    )


def with_tokens(result):
    """The same answered token by token: 100 times to the first token, 1 to 100 ms."""
    first = np.arange(1, 101, dtype=np.int64) * 1_000_000
    return replace(
        result,
        tokens=told_tokens(),
        ranked_ns=(*result.ranked_ns, ("ttft", first), ("tpot", first // 10)),
        token_interval_s=(("ttft.p95", (0.018, 0.022)),),
        token_too_few=("ttft.p99", "tpot.p99"),
    )


def test_the_hand_chooses_which_time_the_distribution_is_of(qtbot, panel, engine, monkeypatch):
    document, drawn = panel.document, panel.distribution
    assert not panel.tokens.isVisible() and drawn.measure == "response" and drawn._grip() is not None
    plain = engine.tail
    monkeypatch.setattr(engine, "tail", lambda request: (with_tokens(result) for result in plain(request)))
    document.set_load(replace(document.load, objective_s=0.05))
    settle(qtbot, document)
    panel.catch_up()
    assert panel.tokens.isVisible() and drawn.limit_ns == pytest.approx(35e6)  # as the made result says
    assert panel.heading.title == "tail of the response, exact parts"
    QTest.mouseClick(panel.tokens.buttons["ttft"], Qt.MouseButton.LeftButton)
    panel.catch_up()
    assert drawn.measure == "ttft" and dict(drawn._marks()) == {
        "p50": 10**7,
        "p95": 2 * 10**7,
        "p99": 3 * 10**7,
    }
    assert drawn._curve.within(25e6) == 0.25  # 25 of the 100
    assert drawn.limit_ns is None and drawn._grip() is None  # the objective is of the response
    labels = [text for text, _, _ in drawn._labels()]
    assert labels == ["p50 10.0 ms", "p95 20.0 ± 2.0 ms", "p99 30.0 ms, too few"]
    assert "p99 of the time to first token" in panel.few.text() and panel.few.isVisible()
    panel.tokens.buttons["response"].setFocus()
    QTest.keyClick(panel.tokens.buttons["response"], Qt.Key.Key_Space)
    panel.catch_up()
    assert drawn.measure == "response" and drawn.limit_ns is not None
    drawn.grab()  # it is painted without a fault


def test_a_result_without_such_times_has_none():
    result = made_results.serving()
    assert Measured.of(result, "ttft") is None and set(MEASURES) == {"response", "ttft", "tpot"}


def test_what_limits_is_ranked_with_figure_and_lever(qtbot, panel):
    result = panel.document.serving
    assert panel.limiting.title == "What limits p95"
    (queue,) = panel.limits.limits  # service is under 5 % of it
    parts = dict(dict(result.parts)["p95"])
    assert queue.name == "queue" and queue.ns == parts["queue"]
    said = limit_words(queue)
    assert said.startswith(f"Queue: {look.fmt_ns(parts['queue'])}, ") and "utilisation of the slots" in said
    assert f"{look.fmt_ns(parts['queue_imbalance'])} while another slot was idle" in said and "Try: " in said
    assert look.fmt_ns(parts["queue"]) in panel.limits.text()
    panel.which.setFocus()
    QTest.keyClick(panel.which, Qt.Key.Key_Down)
    panel.catch_up()
    assert panel.limiting.title == "What limits p99"
    assert panel.limits.limits[0].ns == dict(dict(result.parts)["p99"])["queue"]
    assert shown_limits(()) == ()


def test_sections_and_knobs_fold_and_the_line_says_what_is_folded(qtbot, panel):
    knobs = panel.knobs
    assert not knobs.batch.isVisible() and knobs.rate.isVisible() and knobs.limit.isVisible()
    assert "batch 1" in knobs.more.title and "dynamic" in knobs.more.title and not knobs.reset.isVisible()
    QTest.mouseClick(knobs.more.button, Qt.MouseButton.LeftButton)
    assert knobs.batch.isVisible()
    knobs.batch.setValue(8)
    qtbot.waitUntil(lambda: panel.document.load.batch == 8, timeout=LIMIT_MS)
    settle(qtbot, panel.document)
    panel.catch_up()
    assert "batch 8" in knobs.more.title and knobs.reset.isVisible()
    panel.limiting.button.setFocus()
    QTest.keyClick(panel.limiting.button, Qt.Key.Key_Space)
    assert not panel.limits.isVisible() and panel.limiting.button.accessibleName().endswith("hidden")
    QTest.keyClick(panel.limiting.button, Qt.Key.Key_Space)
    assert panel.limits.isVisible()


def test_an_objective_of_one_stream_among_several_says_whose_it_is(panel):
    drawn, result = panel.distribution, panel.document.serving
    drawn.show_results(result, None, "", settable=True, whose="chat")
    assert drawn._objective() == "SLO chat p95 within 35.0 ms · 91.0 % are"
    plot = drawn._plot()
    at = QPointF(drawn._grip(), plot.center().y()).toPoint()
    QTest.mousePress(drawn, Qt.MouseButton.LeftButton, pos=at)
    QTest.mouseMove(drawn, QPointF(plot.left() + 20, plot.center().y()).toPoint())
    # The curve is of all streams: it does not say how many of this one's are.
    assert drawn._objective().startswith("SLO chat p95 within ") and "are" not in drawn._objective()
    drawn.grab()
    QTest.keyClick(drawn, Qt.Key.Key_Escape)
    assert drawn._objective().endswith("91.0 % are")


def test_a_wide_panel_has_two_columns(qtbot, panel):
    def beside() -> bool:
        place = panel.limits.mapTo(panel, panel.limits.rect().topLeft())
        return place.x() > panel.distribution.mapTo(panel, panel.distribution.rect().topRight()).x()

    assert not beside()
    panel.resize(WIDE + 80, 480)
    qtbot.waitUntil(beside, timeout=LIMIT_MS)
    panel.resize(440, 480)
    qtbot.waitUntil(lambda: not beside(), timeout=LIMIT_MS)


def test_too_few_requests_says_which_and_what_to_try():
    assert few_sentence(("p999",)) == ""  # none that is shown
    assert few_sentence(("p95", "p99", "p999")) == (
        "⚠ Too few requests for an interval of p95, p99. Try more requests in the workload file, or a lower rate."
    )
