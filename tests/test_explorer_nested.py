"""Looking inside control flow: what nests in what, and that nothing there can be edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QSettings, Qt
from PySide6.QtWidgets import QApplication

from explorer import look
from explorer.document import Document
from explorer.nested import NestedView
from explorer.window import Window

from .test_explorer_document import settle
from .test_graph_control import LOOP, LOOP_INPUTS, read


@pytest.fixture(autouse=True)
def theme(qapp: QApplication):
    look.prepare(qapp)
    look.set_theme(qapp, "light")


@pytest.fixture
def window(qtbot, tmp_path: Path):
    made = Window(Document(), QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat))
    made.canvas.stage.animated = False
    qtbot.addWidget(made)
    made.show()
    yield made
    assert made.document.close()


def test_a_loop_is_looked_into(qtbot, window):
    document = window.document
    document.set_graph(read([LOOP], LOOP_INPUTS, ["last", "all"], {"trips:steps": 5}))
    settle(qtbot, document)
    assert not window.actions_by_id["view.nested"].isEnabled()
    document.select((0,))
    qtbot.waitUntil(lambda: window.actions_by_id["view.nested"].isEnabled(), timeout=5_000)
    window.actions_by_id["view.nested"].trigger()
    inside = window.findChild(NestedView)
    assert inside is not None
    with qtbot.waitSignal(inside.canvas.layout_shown, timeout=30_000):
        pass
    assert inside.choice.itemText(0) == "body: runs 5 times, 3 operators"
    assert "48 MAC a run" in inside.about.text()
    shown = inside.document
    assert [operator.name for operator in shown.graph.operators] == ["mm", "keep", "Relu_2"]
    # A drag from one operator to another would fuse them in the window; here it moves the picture at most.
    before = shown.plan
    boxes = inside.canvas.stage.scene.boxes
    at = [
        QPoint(*(int(v) for v in inside.canvas.camera.to_screen(float(np.mean(b[[0, 2]])), float(b[1] + 8))))
        for b in boxes[:2]
    ]
    qtbot.mousePress(inside.canvas.viewport(), Qt.MouseButton.LeftButton, pos=at[0])
    qtbot.mouseMove(inside.canvas.viewport(), at[1])
    qtbot.mouseRelease(inside.canvas.viewport(), Qt.MouseButton.LeftButton, pos=at[1])
    assert shown.plan is before and shown.undo_stack.count() == 0
    inside.close()
    qtbot.waitUntil(lambda: shown.runner.is_idle, timeout=5_000)
