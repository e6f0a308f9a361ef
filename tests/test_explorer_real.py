"""The window on a real sample with the real model: what is shown is what the saved plan computes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QSettings, Qt
from PySide6.QtTest import QTest

from explorer import look
from explorer.document import Document
from explorer.panels.panel import Panel
from explorer.window import Window

from .test_explorer_document import settle

LIMIT_MS = 600_000  # the first run on a machine compiles the kernels


@pytest.fixture
def window(qtbot, qapp, tmp_path):
    look.prepare(qapp)
    look.set_theme(qapp, "light")
    document = Document()
    made = Window(document, QSettings(str(tmp_path / "settings.ini"), QSettings.Format.IniFormat))
    made.canvas.stage.animated = False
    qtbot.addWidget(made)
    made.show()
    document.start_kernels()
    document.choose_hardware("edge-npu")
    document.choose_workload("azure-code")
    document.open("swiglu_mlp")
    qtbot.waitUntil(lambda: document.ready and document.serving is not None, timeout=LIMIT_MS)
    settle(qtbot, document)
    yield made
    assert document.close()


def test_numbers_after_an_edit_are_those_of_the_saved_plan(qtbot, window, tmp_path):
    from model.cost.result import CostRequest
    from model.cost.simulate import simulate
    from model.plan.file import load_plan, save_plan
    from model.serving.profile import profile_of
    from model.serving.serve import serve

    document = window.document
    before = document.cost
    document.select((0, 1, 2, 3, 4))
    window.editor.fuse()
    document.select((0,))
    settle(qtbot, document)
    window.tiles.catch_up()
    window.tiles.rows[0].put(64)
    settle(qtbot, document)
    assert document.cost.totals != before.totals and document.undo_stack.count() == 2
    path = tmp_path / "plan.json"
    save_plan(path, document.graph, document.plan)
    plan = load_plan(path, document.graph)
    again = simulate(CostRequest(document.graph, document.accelerator, plan))
    assert again.totals == document.cost.totals
    if document.serving is not None:
        assert serve(document.workload, profile_of(again)).p95_ns == document.serving.p95_ns
    shown = {metric.shown.caption: metric.shown.value for metric in window.header.metrics}
    assert shown["Latency"] == look.fmt_seconds(again.totals.latency_s)
    assert shown["On-chip reuse"] == look.fmt_ratio(again.totals.onchip_reuse_ratio)
    document.undo()
    document.undo()
    settle(qtbot, document)
    assert document.cost.totals == before.totals


def test_another_rate_and_other_slots_reach_the_replay(qtbot, window):
    document = window.document
    calm = document.serving.p95_ns
    document.set_load(replace(document.load, slots=1))
    settle(qtbot, document)
    assert document.serving.slots == 1 and document.serving.p95_ns > calm
    document.set_load(replace(document.load, slots=None, rate_per_s=1.0))
    settle(qtbot, document)
    assert "1 requests/s" in document.serving.source
    assert document.serving.utilisation < 1.0


def test_a_group_alone_costs_what_it_costs_in_its_graph(qtbot, window):
    from dataclasses import replace

    from explorer.alone import cut_out
    from model.plan.plan import FusionGroup, Plan

    document = window.document
    for group in document.cost.groups:
        alone = cut_out(document.graph, group.operators)
        members = tuple(range(len(group.operators)))
        request = replace(document.cost.request, graph=alone, plan=Plan((FusionGroup(members),)))
        assert document.engine.simulate_alone(request).groups[0].latency_s == group.latency_s


@pytest.mark.shared
def test_broken_models_are_shown_or_refused_in_one_sentence(qtbot, window, shared):
    """Every file that others broke: a picture where there is one, no figure of the model before, no trace."""
    document = window.document
    said: list[tuple[str, str]] = []
    document.said.connect(lambda sentence, level: said.append((sentence, level)))
    panels = [dock.widget().findChild(Panel) for dock in window.docks.docks.values()]
    for path in sorted((shared / "graphs" / "hostile").glob("*.onnx")):
        if path.stem == "chain_10k_deep":
            continue
        before = document.graph
        said.clear()
        window.open(str(path))
        settle(qtbot, document)
        assert said, path.stem
        assert all("\n" not in sentence and "Traceback" not in sentence for sentence, _ in said)
        assert not any("fault of Tilewright's own" in sentence for sentence, _ in said), said
        if document.graph is before:  # refused: what was open stays
            assert any(level == "error" and path.name in sentence for sentence, level in said)
            continue
        assert document.graph.name == path.stem
        assert (document.cost is None) == bool(document.graph.refusal)
        if document.graph.refusal:
            for panel in panels:
                panel.catch_up()
                if panel.isVisible() and panel.objectName() != "history":
                    assert document.graph.refusal in panel.message
            shown = {metric.shown.caption: metric.shown.value for metric in window.header.metrics}
            assert shown["Latency"] == look.NO_NUMBER


def test_the_highest_rate_within_an_objective_is_found_set_and_kept(qtbot, window):
    document = window.document
    panel = next(panel for panel in window.panels if panel.objectName() == "latency")
    document.choose_workload("poisson")  # of the trace, bursts break any tight objective at every rate
    qtbot.waitUntil(lambda: document.workload.name == "poisson", timeout=LIMIT_MS)
    settle(qtbot, document)
    limit_s = 8.0 * document.cost.totals.latency_s
    document.set_load(replace(document.load, objective_s=limit_s))
    settle(qtbot, document)
    panel.catch_up()
    assert panel.highest.isEnabled()
    told: list[str] = []
    document.said.connect(lambda text, _: told.append(text))
    panel.highest.click()
    qtbot.waitUntil(lambda: document.load.rate_per_s is not None, timeout=LIMIT_MS)
    settle(qtbot, document)
    assert "requests/s keep p95 within" in told[-1]
    assert document.serving.p95_ns * 1e-9 <= limit_s  # as it is replayed exactly
    held = document.load.rate_per_s
    document.set_load(replace(document.load, rate_per_s=1.1 * held))
    settle(qtbot, document)
    assert document.serving.p95_ns * 1e-9 > 0.95 * limit_s


def test_a_bench_of_drags_measures_what_is_on_screen(qtbot, window):
    from explorer.bench_drags import Drags

    def until(there, what):
        qtbot.waitUntil(there, timeout=LIMIT_MS)

    drags = Drags(window, lambda: qtbot.wait(1), until, cleared=True)
    rows = list(drags.run(1))
    assert [len(row.samples) for row in rows] == [1, 1, 1]
    assert 0.0 < drags.cost_s[0] <= drags.first_s[0] <= drags.exact_s[0]


def test_a_user_finds_the_highest_load_within_p99_and_what_limits_it(qtbot, window):
    """README's path, by mouse and keys: an objective, the search, and what breaks beyond; the limit is kept exactly."""
    document = window.document
    panel = next(panel for panel in window.panels if panel.objectName() == "latency")
    document.choose_workload("poisson")
    qtbot.waitUntil(lambda: document.workload.name == "poisson", timeout=LIMIT_MS)
    settle(qtbot, document)
    panel.catch_up()
    knobs = panel.knobs
    assert knobs.isVisible() and not knobs.highest.isEnabled()
    knobs.percentile.setFocus()
    for _ in range(knobs.percentile.findText("p99")):
        QTest.keyClick(knobs.percentile, Qt.Key.Key_Down)
    limit_ms = round(10_000.0 * document.cost.totals.latency_s, 1)
    knobs.limit.setFocus()
    QTest.keyClick(knobs.limit, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(knobs.limit, f"{limit_ms}")
    QTest.keyClick(knobs.limit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: document.load.limit_s is not None, timeout=LIMIT_MS)
    settle(qtbot, document)
    panel.catch_up()
    assert document.load.asked == 0.99 and knobs.highest.isEnabled()
    QTest.mouseClick(knobs.highest, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: document.load.rate_per_s is not None, timeout=LIMIT_MS)
    settle(qtbot, document)
    panel.catch_up()
    result = document.serving
    assert result.p99_ns * 1e-6 <= limit_ms and result.slo_attainment >= 0.99
    assert panel.found.isVisible() and "keep p99 within" in panel.found.text()
    assert "breaks first" in panel.found.text() and "grows most" in panel.found.text()
    assert "p99 within" in panel.distribution._objective() and knobs.rate.value() == document.load.rate_per_s
    assert panel.limiting.title == "What limits p99"  # what was asked for is what is split
    assert sum(each.ns for each in panel.limits.limits) > 0.85 * result.p99_ns
    assert panel.limits.limits[0].lever and panel.owed.text().startswith("p99 by driver (Shapley) = ")
    held = document.load.rate_per_s
    document.set_load(replace(document.load, rate_per_s=1.03 * held))  # and a little more breaks it
    settle(qtbot, document)
    assert document.serving.slo_attainment < 0.99
