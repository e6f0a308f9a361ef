"""What slots share, over time, in the window: the bus by slot and cause, heat and cache beside the queue, one zoom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from explorer import look
from explorer.document import Document
from explorer.panels.bus import CAUSES
from explorer.panels.demand import ALONE, BY_CAUSE, BY_SLOT, DemandProfile
from explorer.panels.queue import Queue
from explorer.shared import COLUMNS, Shared
from model.serving.result import ServingResult, Warmed
from model.serving.streams import Throttle

from . import made_results
from .explorer_engine import HandEngine, workload
from .test_explorer_document import settle

LIMIT_MS = 20_000


def warm_result(result: ServingResult) -> ServingResult:
    heat = Warmed(np.full(2000, 60.0), 90.0, 70.0, 70.0, 200_000_000, 0, 5.0, 85.0)
    return replace(result, warmed=heat, throttled_ns=200_000_000)


class WarmEngine(HandEngine):
    """Serves results that warmed."""

    def tail(self, request):
        for answer in super().tail(request):
            yield warm_result(answer) if isinstance(answer, ServingResult) else answer


@pytest.fixture
def panels(qtbot, qapp: QApplication):
    look.prepare(qapp)
    look.set_theme(qapp, "light")
    document = Document(engine=WarmEngine())
    shared = Shared(document)
    made = DemandProfile(document, shared), Queue(document, shared)
    for panel in made:
        qtbot.addWidget(panel)
        panel.resize(700, 300)
        panel.show()
    document.set_accelerator(made_results.machine())
    document.set_workload(replace(workload(), throttle=Throttle(((400_000_000, 900_000_000),), 7, 5)))
    document.set_graph(made_results.chain(), made_results.plan())
    settle(qtbot, document)
    qtbot.waitUntil(lambda: shared.seen is not None, timeout=LIMIT_MS)
    yield made
    assert document.close()


def test_the_bus_is_drawn_by_slot_and_by_cause_and_says_what_stands_there(qtbot, panels):
    demand, _ = panels
    assert demand.mode.currentText() == ALONE and "one request alone" in demand.line
    demand.mode.setCurrentText(BY_SLOT)
    qtbot.waitUntil(lambda: demand.bus.isVisible() and not demand.message, timeout=LIMIT_MS)
    assert not demand.chart.isVisible()
    assert "2 slots share 10.0 GB/s" in demand.line and "⚠ U_c 0.84 · X_c 0.25" in demand.line
    assert "mean 90.0 % full" in demand.line  # 8 GB/s, and 10 in the second half, of 10
    bus = demand.bus
    assert bus.names() == ["slot 0", "slot 1"]
    assert bus._rates[0] == pytest.approx(np.full(COLUMNS, 8e9))
    said: list[str] = []
    bus.pointed.connect(said.append)
    plot = bus._plot()
    _, rows = bus._places()
    bus.pointed_at(QPointF(plot.left() + 0.75 * plot.width(), rows.bottom() - 4))
    assert "bus 100.0 % full · slot 1: 2.00 GB/s refetch, 3.00 GB/s not given" in said[-1]
    bus.pointed_at(QPointF(plot.left() + 0.25 * plot.width(), rows.bottom() - 4))
    assert "bus 80.0 % full · slot 1: nothing" in said[-1]
    demand.mode.setCurrentText(BY_CAUSE)
    qtbot.waitUntil(lambda: bus.names() == list(CAUSES), timeout=LIMIT_MS)
    bus.pointed_at(QPointF(plot.left() + 0.25 * plot.width(), rows.top() + 4))
    assert said[-1].endswith("fetch, store 6.00 GB/s")
    # Where slots contend hardest is brightest, and nothing is not the darkest colour but no colour.
    image = bus.grab().toImage()
    scale = image.devicePixelRatio()
    place = QPointF(plot.left() + 0.25 * plot.width(), rows.bottom() - 4)
    nothing = image.pixelColor(int(place.x() * scale), int(place.y() * scale))
    assert nothing == look.palette().sunken
    demand.mode.setCurrentText(ALONE)
    qtbot.waitUntil(lambda: demand.chart.isVisible(), timeout=LIMIT_MS)


def test_heat_clock_and_cache_stand_on_the_axis_of_the_queue(qtbot, panels):
    _, queue = panels
    qtbot.waitUntil(lambda: queue.chart.seen is not None, timeout=LIMIT_MS)
    chart = queue.chart
    assert chart.strips() == ("waiting", "wait", "die", "KV")
    assert chart.slow_ns == ((400_000_000, 900_000_000),) and chart.throttle_c == 85.0
    assert "die at most 90.0 °C" in queue.line and "throttled for 200 ms" in queue.line
    assert queue.reading.text().startswith("Hatched: batches take longer · Die orange")
    strips, slots = chart._strips()
    tops = [place.top() for place in strips.values()]
    assert tops == sorted(tops) and all(place.height() > 8 for place in strips.values())
    assert max(place.bottom() for place in strips.values()) <= slots.top() + 1e-6
    said: list[str] = []
    chart.pointed.connect(said.append)
    plot = chart._plot()
    ends = chart.end_s - chart.begin_s

    def at(seconds: float) -> str:
        chart.pointed_at(
            QPointF(plot.left() + plot.width() * (seconds - chart.begin_s) / ends, plot.top() + 2)
        )
        return said[-1]

    assert "throttled by the workload" in at(0.5) and "throttled by the workload" not in at(1.0)
    assert "clock low" in at(chart.begin_s + 0.95 * ends) and "clock low" not in at(1.0)
    assert "KV cache 3.0 MiB of 4.0 MiB" in at(1.0)
    image = (
        chart.grab().toImage()
    )  # the window is hatched over the waiting strip, beside it there is the panel
    ratio = image.devicePixelRatio()

    def ground(seconds: float) -> set[str]:
        x = int((plot.left() + plot.width() * (seconds - chart.begin_s) / ends) * ratio)
        y = int(strips["waiting"].top() * ratio) - 2
        return {image.pixelColor(x + dx, y + dy).name() for dx in range(6) for dy in (3, 4, 5)}

    assert len(ground(0.6)) > len(ground(1.2))


def test_queue_and_demand_show_the_same_time_and_ask_for_it_once(qtbot, panels):
    demand, queue = panels
    demand.mode.setCurrentText(BY_SLOT)
    qtbot.waitUntil(lambda: demand.bus.isVisible() and not demand.message, timeout=LIMIT_MS)
    engine = demand.document.engine
    settle(qtbot, demand.document)
    asked = len(engine.looked)
    chart = demand.bus
    plot = chart._plot()
    at = QPointF(plot.center())
    for _ in range(5):
        QApplication.sendEvent(
            chart,
            QWheelEvent(
                at, chart.mapToGlobal(at), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton,
                Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
            ),
        )  # fmt: skip
    assert chart.high_s - chart.low_s < 0.4 * (chart.end_s - chart.begin_s)
    assert (queue.chart.low_s, queue.chart.high_s) == pytest.approx((chart.low_s, chart.high_s), abs=1e-8)
    qtbot.waitUntil(lambda: len(engine.looked) > asked, timeout=LIMIT_MS)
    settle(qtbot, demand.document)
    low, high = engine.looked[-1]
    assert len(engine.looked) == asked + 1  # one question for both, when the wheel rests
    assert (low * 1e-9, high * 1e-9) == pytest.approx((chart.low_s, chart.high_s), abs=2e-9)
    QTest.keyClick(queue.chart, Qt.Key.Key_0)
    assert (chart.low_s, chart.high_s) == pytest.approx((chart.begin_s, chart.end_s))


def test_another_workload_forgets_what_was_seen_and_says_that_it_looks_anew(qtbot, panels):
    demand, _ = panels
    document, shared = demand.document, demand.shared
    demand.mode.setCurrentText(BY_SLOT)
    qtbot.waitUntil(lambda: not demand.message, timeout=LIMIT_MS)
    document.set_workload(None)
    demand.catch_up()
    assert shared.seen is None
    assert demand.message.startswith("Nothing is served yet") and demand.mode.isVisible()
    document.set_workload(workload("other"))
    settle(qtbot, document)
    qtbot.waitUntil(lambda: shared.seen is not None and not demand.message, timeout=LIMIT_MS)
