"""Every panel opens empty, full and with an error; what it shows is what the result says."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QMessageBox

from explorer import header, look, why
from explorer.digest import Demand, Digest, level_pairs
from explorer.docks import DockTitle
from explorer.document import Document
from explorer.names import group_name
from explorer.panels.demand import DemandProfile, capped
from explorer.panels.distribution import Curve, label_places
from explorer.panels.explanation import Explanation
from explorer.panels.groups import GroupsTable, group_rows
from explorer.panels.heatmap import (
    MODES,
    Heatmap,
    Scale,
    rows_by_group,
    rows_by_operator,
    rows_by_tensor,
)
from explorer.panels.history import History
from explorer.panels.latency import Latency, overload_sentence
from explorer.panels.parts import shown_parts
from explorer.panels.registers import RegisterGauges, gauge_rows
from explorer.panels.rows import Column, Rows, RowsModel
from explorer.results import Baseline
from explorer.tiles import TileEditor
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.cost.why import why as cost_why
from model.errors import FileError
from model.graph.graph import OperatorGraph
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.plan import FusionGroup, Plan
from model.plan.starting import starting_plan

from . import made_results
from .explorer_engine import HandEngine, workload
from .test_explorer_document import merged, settle

PANELS = (Heatmap, RegisterGauges, Latency, DemandProfile, GroupsTable, Explanation, History, TileEditor)


@pytest.fixture(scope="module", autouse=True)
def theme(qapp: QApplication):
    """The look as in the program."""
    look.prepare(qapp)
    look.set_theme(qapp, "light")


@pytest.fixture
def document(qtbot):
    made = Document(engine=HandEngine())
    made.engine.unfit = True
    yield made
    assert made.close()


def fill(qtbot, document: Document) -> None:
    document.engine.unfit = False
    document.set_accelerator(made_results.machine())
    document.set_workload(workload())
    document.set_graph(made_results.chain())
    settle(qtbot, document)


@pytest.mark.parametrize("kind", PANELS)
@pytest.mark.parametrize("theme_name", ["light", "dark"])
def test_a_panel_opens_empty_full_and_with_an_error(qtbot, qapp, document, kind, theme_name):
    look.set_theme(qapp, theme_name)
    panel = kind(document)
    qtbot.addWidget(panel)
    panel.resize(420, 320)
    panel.show()
    assert panel.title and panel.line
    assert panel.message.endswith((".", "…"))
    panel.grab()
    fill(qtbot, document)
    if kind is History:
        document.commit(merged(document.plan, 0), "Fuse")
        settle(qtbot, document)
    assert panel.message == ""
    assert not panel.grab().isNull()
    for name in ("cost", "serving"):
        document.failed.emit(name, "group 2: made for the test. Try another.")
    if kind is not History:
        assert "made for the test" in panel.message
    panel.grab()
    document.set_graph(None)
    panel.catch_up()
    assert panel.message
    look.set_theme(qapp, "light")


@pytest.mark.parametrize("kind", PANELS)
def test_a_hidden_panel_catches_up_when_shown(qtbot, document, kind):
    panel = kind(document)
    qtbot.addWidget(panel)
    fill(qtbot, document)
    document.commit(merged(document.plan, 0), "Fuse")
    settle(qtbot, document)
    panel.show()
    assert panel.message == ""


@pytest.mark.parametrize("kind", PANELS)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_selection_in_the_next_model_is_not_looked_up_in_the_last_one(qtbot, document, kind, hidden):
    panel = kind(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    panel.catch_up()
    panel.setVisible(not hidden)
    larger = made_results.chain(made_results.TYPES * 4)
    last = len(larger.operators) - 1
    document.engine.gate.clear()  # nothing is known of the larger model yet
    document.set_graph(larger, Plan.unfused(last + 1))
    for operator in (last, 0, last):
        document.select((operator,))
    qtbot.wait(5)
    document.engine.gate.set()
    settle(qtbot, document)
    document.select((last - 1,))
    panel.show()
    panel.catch_up()
    table = getattr(panel, "table", None)
    if kind is DemandProfile:
        assert panel.chart.group == last - 1
        assert panel.chart.demand is not None and int(panel.chart.demand.group.max()) == last
    elif kind is TileEditor:
        assert panel.title.endswith(group_name(last - 1))
    elif table is not None:
        marked = [panel.table.row_at(index).operators for index in table.selectionModel().selectedRows()]
        assert marked == [(last - 1,)]


def test_traffic_rows_sum_to_the_result_in_every_mode():
    result = made_results.cost()
    digest = Digest.of(result)
    pairs = level_pairs(result)
    assert pairs == digest.pairs
    assert pairs == (("DRAM", "buffer"), ("buffer", "registers"))
    for pair in pairs:
        want = sum(
            row.read_bytes + row.write_bytes
            for group in result.groups
            for row in group.traffic
            if (row.outer, row.inner) == pair
        )
        for rows in (rows_by_group(digest), rows_by_operator(digest), rows_by_tensor(digest)):
            assert sum(row.total(pair) for row in rows) == want


def test_every_explicit_level_has_its_pair_in_the_map_and_its_line_in_the_tips():
    graph = load_graph("swiglu_mlp")
    plan = starting_plan(graph).plan
    result = simulate(CostRequest(graph, load_hardware("tpu-v4i"), plan, "bf16"))
    digest = Digest.of(result)
    pairs = digest.pairs
    assert pairs == (("HBM", "CMEM"), ("CMEM", "VMEM"), ("VMEM", "registers"))
    for row, group in zip(rows_by_group(digest), result.groups, strict=True):
        assert [row.total(pair) for pair in pairs] == [group.moved_bytes()[pair] for pair in pairs]
    row = group_rows(result)[0]
    for outer, inner in pairs:
        assert f"{outer} ↔ {inner}: " in row.traffic_tip
    assert " in CMEM\n" in row.fit_tip and " in VMEM\n" in row.fit_tip
    card = cost_why(result, "G1.dram_bytes")
    told = {figure.name: figure.value for figure in card.inputs}
    assert told["CMEM to and from VMEM"] == result.groups[0].moved_bytes()["CMEM", "VMEM"]


def test_the_colour_scale_spans_what_is_shown_and_survives_one_number():
    digest = Digest.of(made_results.cost())
    scale = Scale.of(rows_by_group(digest), digest.pairs)
    assert scale == Scale.of_groups(digest)
    assert scale.fraction(int(scale.low)) == 0.0 and scale.fraction(int(scale.high)) == 1.0
    assert Scale(5, 5).fraction(5) == 1.0
    assert Scale.of([], ()) == Scale(0, 0)


def test_a_click_in_the_traffic_map_selects_and_the_selection_is_marked(qtbot, document):
    panel = Heatmap(document)
    qtbot.addWidget(panel)
    panel.resize(460, 300)
    panel.show()
    fill(qtbot, document)
    where = panel.table.visualRect(panel.table.model().index(2, 1)).center()
    qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert document.selection == (5, 6, 7, 8)
    document.select((3,))
    assert [index.row() for index in panel.table.selectionModel().selectedRows()] == [1]


@pytest.mark.parametrize("mode", [1, 2])
def test_rows_of_operators_and_tensors_are_added_up_on_the_worker(qtbot, document, mode):
    panel = Heatmap(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    panel.mode.setCurrentIndex(mode)
    qtbot.waitUntil(lambda: panel.table.rows.shown[0].kind == MODES[mode], timeout=20_000)
    settle(qtbot, document)
    document.select((3,))
    marked = [panel.table.row_at(index) for index in panel.table.selectionModel().selectedRows()]
    assert marked and all(3 in row.operators for row in marked)
    panel.mode.setCurrentIndex(0)
    qtbot.waitUntil(lambda: panel.table.rows.shown[0].kind == "groups", timeout=20_000)


def test_a_table_keeps_its_place_when_rows_come_and_go(qtbot):
    model = RowsModel((Column("Number", str, lambda row: row.operators[0]),))
    told: list[str] = []
    model.modelReset.connect(lambda: told.append("reset"))
    model.rowsInserted.connect(lambda _, first, last: told.append(f"+{first}-{last}"))
    model.rowsRemoved.connect(lambda _, first, last: told.append(f"-{first}-{last}"))
    for count in (5, 3, 3, 6, 0):
        model.replace(Rows.of([FusionGroup((number,)) for number in range(count)]))
        assert model.rowCount() == count == len(list(model.shown))
    assert told == ["reset", "-3-4", "+3-5", "reset"]
    model.replace(Rows.of([FusionGroup((number, number + 9)) for number in (4, 2, 7)]))
    model.sort(0, Qt.SortOrder.DescendingOrder)
    assert [row.operators[0] for row in model.shown] == [7, 4, 2]
    assert model.shown.places((11, 7)) == [0, 2] and model.rows.places((11, 7)) == [1, 2]


def test_the_colour_scale_is_frozen_while_a_gesture_previews(qtbot, document):
    panel = Heatmap(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    before = panel.cells.scale
    document.preview(merged(document.plan, 2))
    settle(qtbot, document)
    assert panel.cells.scale == before
    document.preview(None)


def test_gauges_put_what_spills_first_and_say_it_in_words():
    rows = gauge_rows(Digest.of(made_results.cost()))
    assert rows[0].spills and rows[0].index == 2
    assert "spills 3.0 MiB" in rows[0].reading and "⚠" in rows[0].reading
    assert "Try: split before Mul_8" in rows[0].tip
    assert [row.state for row in rows] == ["warn", "good", "good", "good"]  # a spill is no fault: it may pay


def test_simt_gauges_show_occupancy():
    result = made_results.cost()
    use = replace(result.groups[0].registers, live=181, limit=255, unit="registers per thread", occupancy=0.5)
    groups = (replace(result.groups[0], registers=use), *result.groups[1:])
    row = next(r for r in gauge_rows(Digest.of(replace(result, groups=groups))) if r.index == 0)
    assert row.reading == "181 / 255 · occupancy 0.50"


def test_the_groups_table_sorts_by_value_and_filters_by_word(qtbot, document):
    panel = GroupsTable(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    column = [c.title for c in panel.table.rows.columns].index("Latency")
    panel.table.sortByColumn(column, Qt.SortOrder.DescendingOrder)
    assert panel.table.row_at(panel.table.model().index(0, 0)).index == 3
    panel.filter.setText("spills")
    assert panel.table.model().rowCount() == 1
    assert panel.line.startswith("1 of 4")
    text = panel.table.selected_text().splitlines()
    assert text[0].startswith("Group\t") and len(text) == 2
    assert sum(row.share for row in group_rows(document.cost)) > 0


def test_the_groups_line_counts_what_launches_and_the_filter_groups(qtbot, document):
    panel = GroupsTable(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    digest = document.digest
    views = replace(digest.result, totals=replace(digest.result.totals, launches=3))
    document.results.digest = replace(digest, result=views)  # one of the four groups is of views alone
    panel.invalidate()
    panel.catch_up()
    assert panel.line.startswith("4 groups · 3 launches")
    panel.filter.setText("silu")
    assert panel.line.startswith("1 of 4 groups · 3 launches")


def test_no_demand_is_shown_above_the_port_and_wide_groups_bear_their_names(qtbot, document):
    panel = DemandProfile(document)
    qtbot.addWidget(panel)
    panel.resize(640, 240)
    panel.show()
    fill(qtbot, document)
    panel.catch_up()
    chart, whole = panel.chart, document.digest.demand
    port = whole.peak * 0.999  # as a phase whose time was rounded down
    assert capped(whole, port).peak == port
    assert capped(whole, float("inf")).peak == whole.peak
    spans = chart.spans(chart._plot(), chart.demand)
    assert [group for group, _, _ in spans] == [0, 1, 2, 3]
    assert all(right == pytest.approx(left) for (_, _, right), (_, left, _) in itertools.pairwise(spans))
    begin, end = (
        float(times[whole.group == 2][place]) for times, place in ((whole.begin_s, 0), (whole.end_s, -1))
    )
    chart.show_range(begin, end)
    assert [group for group, _, _ in chart.spans(chart._plot(), chart.demand)] == [2]


def test_demand_sums_to_bytes_and_keeps_every_peak_when_thinned():
    result = made_results.cost()
    demand = Demand.of(result)
    moved = ((demand.end_s - demand.begin_s) * demand.bytes_per_s).sum()
    assert moved == pytest.approx(sum(int(group.phases["bytes"].sum()) for group in result.groups))
    assert demand.end_s[-1] == pytest.approx(
        sum(int(group.phases["base_ns"].sum()) for group in result.groups) * 1e-9
    )
    rng = np.random.default_rng(0)
    edges = np.arange(20_001) * 1e-6
    many = Demand(
        edges[:-1], edges[1:], rng.random(20_000), np.zeros(20_000, np.int32), np.zeros(20_000, np.int32)
    )
    drawn = many.bars(0.0, float(edges[-1]), 100)
    assert len(drawn) <= 101 and int(np.argmax(many.bytes_per_s)) in drawn
    assert many.at(float(edges[7]) + 5e-7) == 7 and many.at(-1.0) == -1 and many.at(1.0) == -1


def test_the_curve_runs_through_the_percentiles_of_the_model():
    result = made_results.serving()
    curve = Curve.of(dict(result.ranked_ns)["response"])
    for share, ns in ((0.5, result.p50_ns), (0.99, result.p99_ns)):
        assert np.interp(share, curve.shares, curve.times_ns) == pytest.approx(ns, rel=0.02)
    assert curve.times_ns[-1] == result.max_ns
    assert np.all(np.diff(curve.times_ns) >= 0)


def test_parts_are_largest_first_and_what_lies_within_is_not_added_again():
    result = made_results.serving()
    parts = shown_parts(result, "p95")
    assert sum(ns for _, ns, _ in parts) == result.p95_ns
    assert [name for name, _, _ in parts] == ["queue", "base"] and parts[0][2] > 0
    assert shown_parts(result, "p42") == []


def test_latency_says_unstable_and_shows_no_percentile(qtbot, document):
    document.engine.unstable = True
    panel = Latency(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    assert "Unstable" in panel.message and "rho ≥ 1" in panel.message and "add slots" in panel.message
    p95 = header.metrics(document.cost, document.serving, document.baseline)[4]
    assert p95.value == "unstable"


def test_an_overloaded_trace_is_said_beside_its_percentile():
    served = replace(made_results.serving(), utilisation=17.2)
    base = Baseline("unfused", made_results.plan(), None, made_results.serving(60.0))
    shown = header.metrics(made_results.cost(), served, replace(base, totals=made_results.cost().totals))
    assert shown[4].aside == "overloaded: ρ 17.2" and shown[4].state == "warn"
    assert shown[4].against.startswith("−") and shown[4].against.endswith(" ms vs unfused")
    assert "Overloaded: ρ 17.2" in overload_sentence(served)
    assert overload_sentence(made_results.serving()) == ""


def test_register_advice_is_of_the_selected_group(qtbot, document):
    panel = RegisterGauges(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    spilling = next(row for row in gauge_rows(document.digest) if row.spills or row.use.relief)
    calm = next(row for row in gauge_rows(document.digest) if not row.spills and not row.use.relief)
    document.select(spilling.operators)
    panel.catch_up()
    assert panel.advice.isVisible() and panel.advice.text().startswith(
        f"⚠ {group_name(spilling.index)} spills"
    )
    assert "a time that the choice counts in. To avoid it: split before Mul_8" in panel.advice.text()
    document.select(calm.operators)
    panel.catch_up()
    assert not panel.advice.isVisible()


def test_latency_says_which_group_does_not_fit(qtbot, document):
    panel = Latency(document)
    qtbot.addWidget(panel)
    panel.show()
    document.set_accelerator(made_results.machine())
    document.set_workload(workload())
    document.set_graph(made_results.chain())
    settle(qtbot, document)
    assert "G4 needs 700 KiB in buffer" in panel.message and "halve k" in panel.message


def test_slots_set_in_the_panel_reach_the_document(qtbot, document):
    panel = Latency(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    panel.knobs.slots.setValue(9)
    qtbot.waitUntil(lambda: document.serving is not None and document.serving.slots == 9, timeout=20_000)
    assert document.load.slots == 9
    assert "9 slots" in panel.line


def test_history_lists_edits_with_what_they_did_and_goes_there(qtbot, document):
    panel = History(document)
    qtbot.addWidget(panel)
    panel.show()
    fill(qtbot, document)
    start = document.plan
    document.commit(merged(start, 0), "Fuse two")
    settle(qtbot, document)
    steps = panel.steps.steps
    assert [step.text for step in steps] == ["As opened", "Fuse two"]
    assert steps[1].delta.startswith("p95 −") and steps[1].state == "good"
    panel.view.clicked.emit(panel.steps.index(0, 0))
    assert document.plan == start
    panel.catch_up()
    assert panel.steps.steps[1].undone


# ------------------------------------------------------------------------------------------- header
def test_header_deltas_name_their_baseline():
    result = made_results.fitting(made_results.cost())
    unfused = Baseline("unfused", result.request.plan, result.baseline, made_results.serving(60.0))
    shown = header.metrics(result, made_results.serving(40.0), unfused)
    assert [m.caption for m in shown] == [
        "Launch reduction",
        "On-chip reuse",
        "DRAM",
        "Latency",
        "p95",
        "p99",
        "Bottleneck",
        "Feasible",
    ]
    assert (shown[0].value, shown[0].aside, shown[0].against) == ("60.0 %", "+60.0 pt", "vs unfused")
    assert (shown[1].value, shown[1].aside, shown[1].state) == ("0.500", "+0.500", "good")
    assert (shown[2].value, shown[2].aside, shown[2].state) == ("48.0 MiB", "±0", "")
    assert (shown[3].value, shown[3].aside, shown[3].state) == ("1.82 ms", "−0.61 ms", "good")
    assert shown[4].aside.startswith("−") and shown[4].state == "good"
    assert shown[6].aside == "gain 6.1 %" and shown[7].value == "4 / 4"
    for metric in shown:
        assert metric.why is not None and metric.why().startswith("<p><b>")
    for metric in shown:
        assert bool(metric.aside) == bool(metric.against)


def test_header_without_results_and_with_a_plan_that_does_not_fit():
    assert all(m.value == look.NO_NUMBER for m in header.metrics(None, None, None))
    shown = header.metrics(made_results.cost(), None, None)
    assert shown[7].value == "3 / 4" and shown[7].aside == "does not fit" and shown[7].against == "G4"
    assert shown[4].value == look.NO_NUMBER and shown[4].aside == "does not fit"


def test_equal_numbers_are_neither_good_nor_bad():
    result = made_results.cost()
    same = Baseline("pinned", result.request.plan, result.totals, made_results.serving())
    shown = header.metrics(result, made_results.serving(), same)
    assert [m.aside for m in shown[:6]] == ["±0"] * 6 and not any(m.state for m in shown[:6])


def test_labels_of_percentiles_never_lie_on_each_other():
    for places in ([0, 0, 0], [10, 200, 390], [380, 390, 400], [300, 310, 312], [5, 6, 300], [100, 290, 300]):
        widths = [70.0, 72.0, 74.0]
        rows = label_places([float(place) for place in places], widths, 0.0, 400.0)
        for i, (start, line) in enumerate(rows):
            assert start >= 0.0 and start + widths[i] <= 400.0
            for j in range(i):
                other, its = rows[j]
                assert its != line or other + widths[j] <= start, (places, rows)


def test_a_cost_that_cannot_be_computed_is_said_by_every_panel_and_stays(qtbot, document):
    panels = [Latency(document), DemandProfile(document), RegisterGauges(document)]
    for panel in panels:
        qtbot.addWidget(panel)
        panel.show()
    fill(qtbot, document)
    demand = panels[1]
    assert "peak" in demand.line
    document.engine.fault = FileError("the graph has a cycle, so nothing can be simulated")
    document.set_accelerator(made_results.machine())
    qtbot.waitUntil(lambda: all("cycle" in panel.message for panel in panels), timeout=5000)
    assert "peak" not in demand.line  # no figure of the graph before
    document.select((0,))
    demand.invalidate()
    demand.catch_up()
    assert "cycle" in demand.message


def test_a_graph_without_operators_says_so(qtbot, document):
    panels = [Latency(document), DemandProfile(document), RegisterGauges(document)]
    for panel in panels:
        qtbot.addWidget(panel)
        panel.show()
    document.set_accelerator(made_results.machine())
    document.set_graph(OperatorGraph("empty", (), ()))
    for panel in panels:
        panel.catch_up()
        assert "no operators" in panel.message


def test_negative_reuse_is_explained():
    result = made_results.cost()
    worse = replace(result, totals=replace(result.totals, onchip_reuse_ratio=-1.824))
    assert "Negative here" in why.card_html(cost_why(worse, "onchip_reuse_ratio"))
    assert "Negative here" not in why.card_html(cost_why(result, "onchip_reuse_ratio"))


@pytest.mark.parametrize("width", [1000, 1280, 1500, 1900])
def test_a_narrow_strip_drops_p99_first_and_cuts_nothing(qtbot, document, width):
    strip = header.Header(document)
    qtbot.addWidget(strip)
    strip.resize(width, header.HEIGHT)
    strip.show()
    fill(qtbot, document)
    strip.machine.show_current("a-machine-with-a-name-that-is-longer-than-its-room", "")
    strip.refresh()
    qtbot.wait(1)
    shown = {m.shown.caption for m in strip.metrics if m.isVisible()}
    assert ("p99" not in shown) or shown == set(header.CAPTIONS)
    assert {"Launch reduction", "On-chip reuse", "p95"} <= shown
    for metric in strip.metrics:
        if metric.isVisible():
            assert metric.width() >= metric.minimumSizeHint().width()
    for choice in (strip.machine, strip.badge, strip.precision, strip.workload):
        assert choice.width() >= choice.sizeHint().width()


def test_caveats_stand_in_the_header_and_on_the_traffic_panel(qtbot, document, monkeypatch):
    strip, panel = header.Header(document), Heatmap(document)
    for widget in (strip, panel):
        qtbot.addWidget(widget)
        widget.show()
    assert strip.badge.isHidden()
    fill(qtbot, document)
    panel.catch_up()
    assert strip.badge.isVisible() and strip.badge.text() == "⚠ 1 caveat"
    sentence = "buffer: a level is left out. merge it"
    assert strip.badge.sentences == panel.caveats == (sentence,)
    assert sentence in strip.badge.toolTip()
    title = DockTitle(panel)
    qtbot.addWidget(title)
    assert sentence in title.toolTip()
    strip.badge.click()
    (box,) = strip.badge.findChildren(QMessageBox)
    assert sentence in box.text()
    box.close()


def test_the_machine_in_use_is_ticked_and_every_machine_says_what_it_is(qtbot, document):
    strip = header.Header(document)
    qtbot.addWidget(strip)
    strip.machine.offer(("a100", "edge-npu"), [("From a file…", lambda: None)])
    strip.machine.show_current("edge-npu", "edge-npu")
    strip.machine.menu().aboutToShow.emit()
    offered = {action.text(): action for action in strip.machine.menu().actions()}
    assert [name for name, action in offered.items() if action.isChecked()] == ["edge-npu"]
    assert offered["a100"].toolTip().startswith("NVIDIA A100 SXM4 80 GB")
    strip.machine.show_current("mine", "mine")
    strip.machine.menu().aboutToShow.emit()
    ticked = [action.text() for action in strip.machine.menu().actions() if action.isChecked()]
    assert ticked == ["mine"]


def test_the_why_panel_explains_plan_group_and_tail_and_keeps_the_number(qtbot, document):
    panel = Explanation(document)
    qtbot.addWidget(panel)
    panel.show()
    panel.catch_up()
    assert "No model is open" in panel.message
    fill(qtbot, document)
    panel.catch_up()
    assert panel.message == ""
    shown = [panel.list.item(i).text() for i in range(panel.list.count())]
    assert shown[0] == "plan · latency (seconds)" and "tail · p95 (seconds)" in shown
    assert "Latency of one request alone: 1.82 ms" in panel.card.text()
    document.select((document.cost.groups[1].operators[0],))
    panel.catch_up()
    assert panel.list.item(0).text() == "G2 · latency (seconds)"
    panel.list.setCurrentRow(2)
    qtbot.waitUntil(lambda: "Footprint of G2" in panel.card.text(), timeout=2_000)
    document.select((document.cost.groups[0].operators[0],))
    panel.catch_up()
    assert "Footprint of G1" in panel.card.text()
