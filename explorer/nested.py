"""The nested graphs of a control-flow operator, to look at: one canvas that shows them, and what they nest in turn.

Knows a graph's bodies and how often each runs; edits nothing.
"""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QDialog, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from model.graph.graph import OperatorGraph

from . import look
from .canvas.view import GraphCanvas
from .document import Document
from .look import GRID


class NestedView(QDialog):
    """Shows one body at a time. A double-click on control flow inside opens that in the same way."""

    def __init__(self, parent: QWidget, graph: OperatorGraph, operator: int) -> None:
        super().__init__(parent)
        node = graph.operators[operator]
        self.setWindowTitle(f"Inside {node.op_type} {node.name}"[:200])
        self._bodies = [(path, graph.bodies[path], runs) for path, runs in node.runs if path in graph.bodies]
        self.document = Document()
        self.canvas = GraphCanvas(self.document)
        self.canvas.read_only = True
        self.canvas.nested_wanted.connect(self._deeper)
        self.choice = QComboBox()
        self.choice.setAccessibleName("Nested graph")
        for path, body, runs in self._bodies:
            self.choice.addItem(
                f"{path.rpartition('/')[2]}: {_times(runs)}, {len(body.operators):,} operators"
            )
        self.about = QLabel()
        self.about.setProperty("muted", True)
        self.choice.currentIndexChanged.connect(self._show)
        head = QHBoxLayout()
        head.addWidget(self.choice)
        head.addWidget(self.about, 1)
        layout = QVBoxLayout(self)
        layout.setSpacing(2 * GRID)
        layout.addLayout(head)
        layout.addWidget(self.canvas, 1)
        self.resize(900, 700)
        self.finished.connect(lambda *_: self.document.close())
        self._show(0)

    def _show(self, index: int) -> None:
        if not 0 <= index < len(self._bodies):
            return
        _, body, _ = self._bodies[index]
        self.document.set_graph(body)
        macs = look.fmt_quantity(body.macs, "MAC")
        self.about.setText(f"{macs} a run · to look at: what is inside runs as one operator")

    def _deeper(self, operator: int) -> None:
        graph = self.document.graph
        if graph is not None and graph.operators[operator].runs:
            NestedView(self, graph, operator).open()


def _times(runs: int) -> str:
    return "not taken" if runs == 0 else "runs once" if runs == 1 else f"runs {runs:,} times"
