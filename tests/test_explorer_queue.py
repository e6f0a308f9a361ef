"""The queue over time: profiles by columns against a count by hand, slots' work, the panel."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PySide6.QtCore import QPointF

from explorer.document import Document
from explorer.panels.queue import Queue
from explorer.timeline import Timeline
from model.serving.result import BuildUp, Requests, ServingResult

from . import made_results
from .explorer_engine import HandEngine, workload
from .test_explorer_document import settle


def four_requests() -> ServingResult:
    """Two slots; the last two are one batch, which waits from 10 and 20 to 40 ns, a quarter of its run stalled."""

    def column(*values: int) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    requests = Requests(
        arrival_ns=column(0, 0, 10, 20),
        start_ns=column(0, 0, 40, 40),
        completion_ns=column(40, 60, 80, 80),
        slot=np.array([0, 1, 0, 0], dtype=np.int32),
        parts=(("stall_burst", column(0, 6, 10, 10)), ("base", column(40, 54, 30, 30))),
        batch=np.array([1, 1, 2, 2], dtype=np.int32),
    )
    return replace(
        made_results.serving(),
        requests=requests,
        slots=2,
        slot_busy_ns=(80, 60),
        slot_requests=(3, 1),
        sum_response_ns=230,
        build_up=BuildUp(2, 20, 30, 10, 2, 0, 2),
    )


def test_who_waits_and_what_slots_do_by_hand():
    line = Timeline.of(four_requests())
    assert (line.begin_ns, line.end_ns) == (0, 80)
    assert line.most_waiting(0, 80, 4).tolist() == [1, 2, 0, 0]
    assert [line.waiting_at(at) for at in (5, 10, 19, 20, 39, 40)] == [0, 1, 1, 2, 2, 0]
    assert line.longest_wait(0, 80, 8).tolist() == [0, 30, 20, 0, 0, 0, 0, 0]
    first, second = line.slots
    assert (
        first.size.tolist() == [1, 2] and first.stall_ns.tolist() == [0, 10] and second.size.tolist() == [1]
    )
    busy, stalled = first.shares(0, 80, 2)
    assert busy.tolist() == [1.0, 1.0] and stalled.tolist() == [0.0, 0.25]
    busy, stalled = second.shares(0, 80, 2)
    assert busy.tolist() == [1.0, 0.5] and stalled == pytest.approx([0.1, 0.05])
    assert [second.at(at) for at in (0, 59, 60)] == [0, 0, -1]
    assert list(first.inside(0, 40)) == [0] and list(first.inside(41, 50)) == [1]
    low, high = line.around_peak()
    assert low <= 10 and 40 <= high <= 80


@pytest.mark.parametrize("columns", [1, 7, 64])
def test_columns_hold_the_most_of_every_moment(columns):
    rng = np.random.default_rng(3)
    arrival = np.sort(rng.integers(0, 10_000, 300))
    start = arrival + rng.integers(0, 400, 300)
    base = four_requests()
    requests = Requests(
        arrival, start, start + 50, np.zeros(300, dtype=np.int32), (("base", np.full(300, 50)),)
    )
    line = Timeline.of(replace(base, requests=requests, slot_busy_ns=(1,)))
    low, high = 1_000.0, 9_000.0
    edges = np.linspace(low, high, columns + 1)
    waiting = [int(((arrival <= at) & (start > at)).sum()) for at in range(10_500)]
    found = line.most_waiting(low, high, columns)
    for column, (a, b) in enumerate(pairwise(edges.tolist())):
        assert found[column] == max(waiting[int(a) : int(np.ceil(b))])


def test_the_panel_draws_zooms_to_the_peak_and_says_what_is_there(qtbot):
    engine = HandEngine()
    document = Document(engine=engine)
    panel = Queue(document)
    qtbot.addWidget(panel)
    panel.resize(700, 260)
    panel.show()
    document.set_accelerator(made_results.machine())
    document.set_workload(workload())
    document.set_graph(made_results.chain(), made_results.plan())
    settle(qtbot, document)
    # Nothing that is due may lay the queue out again, over the one that is put there by hand.
    qtbot.waitUntil(lambda: panel.chart.timeline is not None and not panel.is_due, timeout=20_000)
    settle(qtbot, document)
    panel.chart.show_timeline(Timeline.of(four_requests()))
    said: list[str] = []
    panel.chart.pointed.connect(said.append)
    plot = panel.chart._plot()
    _, slots = panel.chart._strips()
    panel.chart.pointed_at(QPointF(plot.left() + plot.width() * 0.75, slots.top() + 2))
    assert said[-1].startswith("at 60.0 ns: 0 wait · 1 of 2 slots busy · slot 0: a batch of 2 for 40")
    panel.peak.click()
    assert panel.chart.high_s - panel.chart.low_s < 80e-9 or panel.chart.begin_s == panel.chart.low_s
    panel.whole.click()
    assert (panel.chart.low_s, panel.chart.high_s) == (0.0, pytest.approx(80e-9))
    panel.grab()
    engine.unstable = True
    assert document.load is not None
    document.set_load(replace(document.load, slots=1))
    settle(qtbot, document)
    panel.catch_up()
    assert "Unstable" in panel.message
    assert document.close()
