"""The slice by the user's door: a model opened, a boundary dragged, the same numbers by command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings, Qt
from pytestqt.qtbot import QtBot

from explorer.__main__ import main
from explorer.document import Document
from explorer.window import Window
from model.plan.file import save_plan

from .canvas_hand import Hand


@pytest.fixture
def window(qtbot: QtBot, tmp_path: Path) -> Iterator[Window]:
    settings = QSettings(str(tmp_path / "settings.ini"), QSettings.Format.IniFormat)
    document = Document()
    shown = Window(document, settings)
    shown.canvas.stage.animated = False
    qtbot.addWidget(shown)
    shown.resize(1500, 900)
    shown.show()
    document.choose_hardware("edge-npu")
    document.choose_workload("azure-code")
    yield shown
    shown.close()
    assert document.close()


def opened(qtbot: QtBot, window: Window, source: str) -> Hand:
    document = window.document
    hand = Hand(qtbot, document, window.canvas)
    document.open(source)
    qtbot.waitUntil(lambda: document.graph is not None, timeout=60_000)
    settled(qtbot, window)
    window.canvas.zoom_to_fit()
    return hand


def settled(qtbot: QtBot, window: Window) -> None:
    document = window.document
    qtbot.waitUntil(
        lambda: (
            document.runner.is_idle
            and not window.is_settling
            and not window.canvas.stage.is_waiting
            and document.cost is not None
            and document.cost.request.plan is document.plan
        ),
        timeout=120_000,
    )


def test_what_the_window_shows_after_a_drag_is_what_the_command_says(
    qtbot: QtBot, window: Window, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = opened(qtbot, window, "swiglu_mlp")
    document = window.document
    before = document.plan
    scene = window.canvas.scene
    chip = scene.chip(0)
    assert document.graph is not None
    producer, consumer = (document.graph.operators[i].name for i in (chip.producer, chip.consumer))
    x, y = hand.middle(consumer)
    hand.drag((chip.x, chip.y), (x, y + 12))
    assert document.previewing
    assert document.plan is before
    hand.release((x, y + 12))
    settled(qtbot, window)
    assert document.plan != before
    assert document.undo_stack.count() == 1
    assert document.plan is not None
    home = document.plan.group_of
    assert home[chip.producer] == home[chip.consumer], (producer, consumer)

    saved = tmp_path / "dragged.json"
    save_plan(saved, document.graph, document.plan)
    capsys.readouterr()
    words = ["simulate", "swiglu_mlp", "--hardware", "edge-npu", "--plan", str(saved)]
    assert main([*words, "--workload", "azure-code", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert document.cost is not None and document.serving is not None
    shown = document.cost.totals
    for name in (
        "latency_s",
        "launches",
        "launch_s",
        "dram_read_bytes",
        "dram_write_bytes",
        "onchip_reuse_ratio",
        "launch_overhead_reduction",
        "spill_bytes",
        "macs",
        "peak_footprint_bytes",
        "feasible",
        "bottleneck",
    ):
        assert told["totals"][name] == getattr(shown, name), name
    assert told["serving"]["p95_ns"] == document.serving.p95_ns
    assert told["serving"]["completion_sha256"] == document.serving.completion_sha256

    document.undo()
    assert document.plan == before


def test_escape_leaves_no_trace(qtbot: QtBot, window: Window) -> None:
    hand = opened(qtbot, window, "swiglu_mlp")
    document = window.document
    before, revision = document.plan, document.cost
    chip = window.canvas.scene.chip(0)
    assert document.graph is not None
    x, y = hand.middle(document.graph.operators[chip.consumer].name)
    hand.drag((chip.x, chip.y), (x, y + 12))
    assert document.previewing
    hand.key(Qt.Key.Key_Escape)
    hand.release((x, y + 12))
    settled(qtbot, window)
    assert document.plan is before
    assert not document.previewing
    assert document.undo_stack.count() == 0
    assert document.cost is not None and revision is not None
    assert document.cost.totals == revision.totals


@pytest.mark.shared
def test_the_convexity_trap_is_refused_with_its_path_and_mended_with_one_key(
    qtbot: QtBot, window: Window, shared: Path
) -> None:
    hand = opened(qtbot, window, str(shared / "graphs" / "open" / "edge_convexity_trap.onnx"))
    document = window.document
    assert hand.groups.count("[") == 4 or "[" in hand.groups
    hand.drag(hand.middle("D_add"), hand.middle("A_relu"))
    said = " ".join(text for text, _ in hand.sentences)
    assert "cycle" in said
    assert "B_matmul" in said and "C_softmax" in said
    assert not any(
        {"A_relu", "D_add"} <= set(group.split()) for group in hand.groups.replace("[", "").split("]")
    )
    hand.key(Qt.Key.Key_Return)
    settled(qtbot, window)
    assert hand.groups == "[A_relu B_matmul C_softmax D_add]"
    assert document.undo_stack.count() == 1
    hand.release(hand.middle("A_relu"))
    assert document.undo_stack.count() == 1
