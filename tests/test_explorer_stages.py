"""The tail comes in stages: an estimate, the exact replay in slices that an edit ends, what it is owed to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QObject

from explorer import look
from explorer.document import Document
from explorer.header import Header
from explorer.load import Load
from explorer.panels import panel as panels
from explorer.panels.groups import GroupsTable
from explorer.runner import Lane
from model.serving.streams import Objective, Stream

from . import made_results
from .explorer_engine import HandEngine, alone, workload
from .test_explorer_document import merged, settle

LIMIT_MS = 20_000


@pytest.fixture
def document(qtbot):
    engine = HandEngine()
    engine.estimates = True
    made = Document(engine=engine)
    made.set_accelerator(made_results.machine())
    made.set_workload(workload())
    made.set_graph(made_results.chain(), made_results.plan())
    yield made
    engine.exact_gate.set()
    assert made.close()


def test_an_estimate_then_the_exact_tail_then_its_drivers(qtbot, document):
    settle(qtbot, document)
    seen: list[bool] = []
    document.serving_changed.connect(lambda result: seen.append(result.first_estimate) if result else None)
    with qtbot.waitSignal(document.drivers_changed, timeout=LIMIT_MS):
        document.commit(merged(document.plan, 0), "Fuse")
    assert seen == [True, False]
    result, (_, values) = document.serving, document.drivers.values_ns[0]
    assert sum(ns for _, ns in values) == result.p95_ns - document.drivers.grid[0].percentiles_ns[0]
    settle(qtbot, document)
    settle(qtbot, document)
    assert not document.baseline.serving.first_estimate


def test_the_unfused_plan_comes_beside_the_cost_after_the_estimate_and_once(qtbot):
    engine = HandEngine()
    engine.estimates = True
    document = Document(engine=engine)
    seen: list[str] = []
    document.cost_changed.connect(
        lambda cost: seen.append("cost" if cost.baseline is None else "beside") if cost else None
    )
    document.serving_changed.connect(
        lambda tail: seen.append("estimate" if tail.first_estimate else "exact") if tail else None
    )
    document.set_accelerator(made_results.machine())
    document.set_workload(workload())
    document.set_graph(made_results.chain(), made_results.plan())
    try:
        settle(qtbot, document)
        assert seen[:2] == ["cost", "estimate"]
        assert sorted(seen[2:]) == ["beside", "exact"]  # here the worker is faster than a turn of the window
        assert document.cost.totals.launch_overhead_reduction == 0.6
        assert document.baseline.totals.launch_overhead_reduction is not None
        document.commit(merged(document.plan, 0), "Fuse")
        settle(qtbot, document)
        assert seen[4:] == ["beside", "estimate", "exact"]
    finally:
        assert document.close()


def test_a_newer_cost_that_came_before_the_unfused_plan_gets_it_as_well(qtbot, document):
    settle(qtbot, document)
    results, whole = document.results, document.digest.result
    bare = alone(whole)
    results.digest = replace(document.digest, result=bare)
    results._take_beside(replace(whole, request=replace(whole.request, revision=0)), results.epoch)
    assert document.cost is bare  # not its numbers
    settle(qtbot, document)
    assert document.cost.baseline is not None and document.cost.request is bare.request
    results.digest = replace(document.digest, result=bare)
    results._take_beside(whole, results.epoch - 1)
    settle(qtbot, document)
    assert document.cost is bare  # of another graph or machine


def test_an_edit_ends_the_exact_replay_of_the_plan_before(qtbot, document):
    settle(qtbot, document)
    engine = document.engine
    engine.exact_gate.clear()
    engine.slices = 0
    document.commit(merged(document.plan, 0), "Fuse")
    qtbot.waitUntil(lambda: document.serving.first_estimate, timeout=LIMIT_MS)
    first = document.served.revision
    document.commit(merged(document.plan, 0), "Fuse")
    engine.exact_gate.set()
    settle(qtbot, document)
    assert document.served.revision == document.revision > first
    assert not document.serving.first_estimate and document.drivers is not None
    assert engine.slices == 1  # of the second plan only: the first one's replay was not gone on with


def test_no_older_result_takes_the_place_of_a_newer_one(qtbot, document):
    settle(qtbot, document)
    results, served, shown = document.results, document.served, document.serving
    epoch = results._load_epoch
    older = replace(served, cost=replace(served.cost, request=replace(served.cost.request, revision=0)))
    results._take_stage(older, made_results.serving(1.0), epoch)
    results._take_stage(served, replace(made_results.serving(1.0), first_estimate=True), epoch)
    results._take_stage(served, made_results.serving(1.0), epoch - 1)
    assert document.serving is shown


def test_a_knob_keeps_what_is_shown_until_there_is_something_newer(qtbot, document):
    settle(qtbot, document)
    shown = document.serving
    document.set_load(replace(document.load, slots=9))
    assert document.serving is shown and document.serving_is_behind and document.drivers is not None
    settle(qtbot, document)
    assert document.serving.slots == 9 and not document.serving_is_behind
    document.set_load(document.load.plain)
    settle(qtbot, document)
    assert document.serving.slots == 4 and document.load.changed == ()


def test_knobs_say_what_is_served_and_leave_the_file_alone():
    def stream(name: str, **more: object) -> Stream:
        return Stream(name, None, None, None, **more)  # type: ignore[arg-type]

    two = replace(workload(), streams=(stream("a"), stream("b", batch=2)))
    load = Load(two, batch=8, linger_s=0.002, placement="static", contention=True)
    served = load.applied(two, 4)
    assert [s.batch for s in served.streams] == [8, 8] and served.streams[0].linger_ns == 2_000_000
    assert [s.home for s in served.streams] == [(0, 2), (1, 3)]
    assert served.placement == "static" and served.contention and not two.contention
    assert load.changed == ("batch", "linger_s", "placement", "contention")
    assert Load(two).judged is None  # two streams without an objective: whose would it be?
    judged = replace(two, streams=(two.streams[0], stream("b", objective=Objective(0.99, 1.0))))
    assert Load(judged).judged == 1
    assert Load(judged, objective_s=0.5).applied(judged, 4).streams[1].objective == Objective(0.99, 0.5)
    own = replace(two, streams=(stream("a", home=(3,)), stream("b")))
    assert [s.home for s in Load(own, placement="static").applied(own, 4).streams] == [(3,), (0,)]
    assert Load(two, placement="home-first", slots=1).applied(two, 4).streams[1].home == (0,)


def test_a_cost_that_comes_late_does_not_take_the_place_of_the_newer_plans_tail(qtbot, document, monkeypatch):
    """The worker has begun the tail of a newer plan: asking for this one's would replace that in its lane."""
    settle(qtbot, document)
    results, digest = document.results, document.digest
    request = digest.result.request
    late = replace(
        digest, result=replace(digest.result, request=replace(request, revision=request.revision + 1))
    )
    results._followed = (request.revision + 2, results._load_epoch)
    asked: list[object] = []
    monkeypatch.setattr(document.runner, "submit", asked.append)
    results._take_cost(late, results.epoch)
    assert document.cost is late.result and asked == []


class Paints(QObject):
    """Counts what a widget paints."""

    def __init__(self, widget) -> None:
        super().__init__(widget)
        self.count = 0
        widget.installEventFilter(self)

    def eventFilter(self, watched, event) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return False


def test_the_header_paints_a_figure_before_anybody_else_hears_of_it(qtbot, document):
    strip = Header(document)
    qtbot.addWidget(strip)
    strip.resize(1600, 64)
    strip.show()
    settle(qtbot, document)
    paints, seen = Paints(strip.metrics[4]), []
    document.serving_changed.connect(
        lambda tail: seen.append((paints.count, strip.metrics[4].shown.value, tail.p95_ns)) if tail else None
    )
    before = paints.count
    document.commit(merged(document.plan, 0), "Fuse")
    settle(qtbot, document)
    (painted, value, ns), *_ = seen
    assert painted > before and value == look.fmt_ns(ns)


@pytest.mark.parametrize("patience_s", [30.0, 0.0])
def test_panels_give_way_to_what_the_hand_waits_for_but_not_for_long(
    qtbot, document, monkeypatch, patience_s
):
    monkeypatch.setattr(panels, "_PATIENCE_S", patience_s)
    settle(qtbot, document)
    table = GroupsTable(document)
    qtbot.addWidget(table)
    table.show()
    table.catch_up()
    drawn: list[bool] = []
    redraw = table.redraw
    monkeypatch.setattr(
        table, "redraw", lambda: (drawn.append(document.runner.is_on(Lane.COST)), redraw())[1]
    )
    engine = document.engine
    engine.gate.clear()
    document.commit(merged(document.plan, 0), "Fuse")
    qtbot.waitUntil(lambda: engine.begun == document.revision, timeout=LIMIT_MS)
    table.invalidate()
    if patience_s:
        qtbot.wait(60)
        assert not drawn and table.is_due
    else:
        qtbot.waitUntil(lambda: drawn == [True], timeout=LIMIT_MS)
    engine.gate.set()
    settle(qtbot, document)
    qtbot.waitUntil(lambda: bool(drawn) and not table.is_due, timeout=LIMIT_MS)
    assert not drawn[-1]
