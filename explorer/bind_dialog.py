"""The dialog that asks for numbers: of symbolic dims, and of shapes that neither the file nor inference has.

Knows the graph. Changes nothing itself: values come back by `accept`, or the wish to have the defaults again.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLabel,
    QLineEdit,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from model.errors import UsageError
from model.graph.bindings import SHAPE, bindings_text, shape_bindings, shapes_of
from model.graph.graph import OperatorGraph
from model.graph.missing import Missing, missing_shapes

from .look import GRID

MOST_ASKED = 50  # shapes; of more, the first ones settle the others as a rule
_LONGEST = 48


class BindDialog(QDialog):
    """A number for each symbolic dim, a shape for each value that lacks one."""

    defaults_wanted = Signal()
    """Emitted when the numbers that the tool assumes are to be used again."""

    def __init__(self, parent: QWidget, graph: OperatorGraph) -> None:
        super().__init__(parent)
        self.setWindowTitle("Bind dims")
        self.fields: dict[str, QSpinBox] = {}
        self.shapes: dict[str, QLineEdit] = {}
        bound = dict(graph.bindings)
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(3 * GRID)
        if graph.symbols:
            column.addLayout(self._numbers(graph, bound))
        asked = self._asked(graph, bound)
        if asked:
            column.addLayout(self._shapes(asked, bindings_text(bound)))
        if not graph.symbols and not asked:
            column.addWidget(QLabel("There is nothing to bind: every shape is known."))
        column.addStretch(1)
        words = QLabel(
            "The model is read again with these numbers; its groups are kept. They are remembered."
        )
        words.setProperty("muted", True)
        words.setWordWrap(True)
        self.fault = QLabel()
        self.fault.setProperty("state", "bad")
        self.fault.setWordWrap(True)
        self.fault.hide()
        kinds = QDialogButtonBox.StandardButton
        buttons = QDialogButtonBox(kinds.Ok | kinds.Cancel | kinds.RestoreDefaults)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        buttons.button(kinds.RestoreDefaults).clicked.connect(self._restore)
        scroll = QScrollArea()
        scroll.setWidget(inner)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(4 * GRID, 4 * GRID, 4 * GRID, 3 * GRID)
        layout.setSpacing(3 * GRID)
        layout.addWidget(words)
        layout.addWidget(scroll, 1)
        layout.addWidget(self.fault)
        layout.addWidget(buttons)
        wanted = inner.sizeHint()
        self.resize(max(wanted.width() + 12 * GRID, 380), min(wanted.height() + 36 * GRID, 640))

    def _numbers(self, graph: OperatorGraph, bound: dict[str, int]) -> QFormLayout:
        form = _form()
        for symbol in graph.symbols:
            field = QSpinBox()
            field.setRange(1, 2**31 - 1)
            field.setValue(bound.get(symbol, 1))
            field.setAccessibleName(symbol)
            self.fields[symbol] = field
            label = QLabel(_short(symbol))
            label.setFixedHeight(field.sizeHint().height())
            label.setBuddy(field)
            form.addRow(label, field)
        return form

    @staticmethod
    def _asked(graph: OperatorGraph, bound: dict[str, int]) -> list[Missing]:
        """Shapes that were given before, to be changed, then those that are missing."""
        given = [Missing(name, "given", "the file has no shape for it") for name in shapes_of(bound)]
        return [*given, *missing_shapes(graph)][:MOST_ASKED]

    def _shapes(self, asked: list[Missing], written: dict[str, str]) -> QFormLayout:
        form = _form()
        title = QLabel("Shapes that the file lacks. Leave empty what you do not know: it stays a barrier.")
        title.setWordWrap(True)
        form.addRow(title)
        for missing in asked:
            field = QLineEdit(written.get(SHAPE + missing.name, ""))
            field.setPlaceholderText("1x3x224x224")
            field.setAccessibleName(f"Shape of {missing.name}")
            field.setAccessibleDescription(f"{missing.what}: {missing.reason}")
            field.setToolTip(missing.reason)
            self.shapes[missing.name] = field
            label = QLabel(_short(missing.name))
            label.setBuddy(field)
            why = QLabel(f"{_short(missing.what)}: {missing.reason}")
            why.setTextFormat(Qt.TextFormat.PlainText)
            why.setProperty("muted", True)
            why.setWordWrap(True)
            form.addRow(label, field)
            form.addRow(why)
        return form

    def bindings(self) -> dict[str, int]:
        """What is filled in.

        Raises
        ------
        UsageError : a shape that was typed is none.
        """
        out = {symbol: field.value() for symbol, field in self.fields.items()}
        for name, field in self.shapes.items():
            if field.text().strip():
                out.update(shape_bindings(name, field.text()))
        return out

    def accept(self) -> None:
        """Close, unless a shape is none: then say so."""
        try:
            self.bindings()
        except UsageError as fault:
            self.fault.setText(fault.sentence())
            self.fault.show()
            return
        super().accept()

    def _restore(self) -> None:
        self.defaults_wanted.emit()
        self.reject()


def _form() -> QFormLayout:
    form = QFormLayout()
    form.setLabelAlignment(Qt.AlignmentFlag.AlignVCenter)
    form.setHorizontalSpacing(4 * GRID)
    return form


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST // 2]}…{plain[-_LONGEST // 2 + 1 :]}"
