"""The start page: open, samples, recent files, and that anything can be dropped.

Knows where samples lie. Tells what was chosen by a signal and opens nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QEnterEvent, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from model.packaged import folder, headline

from . import look
from .look import GRID

COLUMN = 440


def samples() -> list[tuple[str, str]]:
    """(name, one line about it) of every packaged graph."""
    found: list[tuple[str, str]] = []
    for path in sorted(folder("sample_graphs").glob("*.onnx")):
        summary = path.with_suffix(".txt")
        found.append((path.stem, headline(summary) if summary.is_file() else ""))
    return found


def file_words(path: Path) -> tuple[str, str]:
    """(name, line about it) of a file that was opened: a packaged sample by its name, others by their path."""
    if path.resolve().parent == folder("sample_graphs").resolve():
        return path.stem, "sample"
    return path.name, str(path)


class Card(QAbstractButton):
    """A button with a name and a grey line about it."""

    def __init__(self, name: str, line: str) -> None:
        super().__init__()
        self.setText(name)
        self.line = line
        self.setToolTip(line)
        self.setAccessibleName(name)
        self.setAccessibleDescription(line)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._under = False

    def sizeHint(self) -> QSize:
        """Two lines."""
        return QSize(COLUMN, 52)

    def enterEvent(self, event: QEnterEvent) -> None:
        """Show that it can be pressed."""
        self._under = True
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        """Plain again."""
        self._under = False
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Frame, name, line."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        strong = self.hasFocus() or self._under
        painter.setPen(QPen(colours.accent if strong else colours.line, 1))
        painter.setBrush(colours.selected if self.isDown() else colours.panel)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), look.RADIUS, look.RADIUS)
        inner = QRectF(self.rect()).adjusted(3 * GRID, 2 * GRID, -3 * GRID, -2 * GRID)
        painter.setFont(look.font(13, strong=True))
        painter.setPen(colours.text)
        name = QFontMetrics(painter.font()).elidedText(
            self.text(), Qt.TextElideMode.ElideMiddle, int(inner.width())
        )
        painter.drawText(inner, Qt.AlignmentFlag.AlignTop, name)
        painter.setFont(look.font(look.SMALL))
        painter.setPen(colours.muted)
        line = QFontMetrics(painter.font()).elidedText(
            self.line, Qt.TextElideMode.ElideRight, int(inner.width())
        )
        painter.drawText(inner, Qt.AlignmentFlag.AlignBottom, line)
        painter.end()


class StartPage(QWidget):
    """Shown while nothing is open."""

    wanted = Signal(str)
    """Emitted with a path or the name of a sample."""
    browse = Signal()
    """Emitted when a file dialog is asked for."""
    closing = Signal(bool)
    """Emitted when models shall open with their blocks closed, however small they are, or no longer."""
    back = Signal()
    """Emitted when the open model is to be shown again."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Start page")
        self.error = QLabel()
        self.error.setWordWrap(True)
        self.error.setProperty("state", "bad")
        self.error.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.error.setVisible(False)
        self._samples = QVBoxLayout()
        self._recent = QVBoxLayout()
        for column in (self._samples, self._recent):
            column.setSpacing(2 * GRID)
        title = QLabel("Tilewright")
        title.setFont(look.font(26, strong=True))
        line = QLabel(
            "Draw fusion boundaries, pick tile shapes, and see what they do to the tail that users feel."
        )
        line.setProperty("muted", True)
        line.setWordWrap(True)
        self.return_to = QPushButton()
        self.return_to.setProperty("quiet", True)
        self.return_to.clicked.connect(self.back)
        self.return_to.setVisible(False)
        self.open = QPushButton("Open a model…")
        self.open.setProperty("primary", True)
        self.open.clicked.connect(self.browse)
        hint = QLabel("or drop an .onnx file anywhere in this window")
        hint.setProperty("muted", True)
        row = QHBoxLayout()
        row.setSpacing(3 * GRID)
        row.addWidget(self.open)
        row.addWidget(hint)
        row.addStretch(1)
        row.addWidget(self.return_to)
        inner = QWidget()
        inner.setMaximumWidth(2 * COLUMN + 6 * GRID)
        page = QVBoxLayout(inner)
        page.setContentsMargins(0, 12 * GRID, 0, 6 * GRID)
        page.setSpacing(2 * GRID)
        page.addWidget(title)
        page.addWidget(line)
        page.addSpacing(2 * GRID)
        page.addLayout(row)
        self.close_blocks = QCheckBox("Open models with their blocks closed, also small ones")
        self.close_blocks.setToolTip(
            "Layers and stages as one box each. Above 200 operators this is always so."
        )
        self.close_blocks.toggled.connect(self.closing)
        page.addWidget(self.close_blocks)
        page.addWidget(self.error)
        page.addSpacing(4 * GRID)
        columns = QHBoxLayout()
        columns.setSpacing(6 * GRID)
        for heading, column in (("Samples", self._samples), ("Recent", self._recent)):
            side = QVBoxLayout()
            side.setSpacing(2 * GRID)
            label = QLabel(heading)
            label.setProperty("title", True)
            side.addWidget(label)
            side.addLayout(column)
            side.addStretch(1)
            columns.addLayout(side, 1)
        page.addLayout(columns)
        page.addStretch(1)
        centred = QWidget()
        middle = QHBoxLayout(centred)
        middle.setContentsMargins(6 * GRID, 0, 6 * GRID, 0)
        middle.addStretch(1)
        middle.addWidget(inner, 100)
        middle.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(centred)
        scroll.viewport().setAutoFillBackground(False)
        centred.setAutoFillBackground(False)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(scroll)
        packed = [(name, line, name) for name, line in samples()]
        self._fill(self._samples, packed, "No sample is installed. Open a model of your own.")

    def show_recent(self, paths: Sequence[str]) -> None:
        """List recent files, the newest first; those that are gone are left out."""
        there = [(*file_words(path), str(path)) for path in map(Path, paths) if path.is_file()]
        self._fill(self._recent, there, "Nothing yet. Files that you open appear here.")

    def show_open(self, name: str) -> None:
        """Offer the way back to the open model; empty where none is open."""
        self.return_to.setText(f"Back to {name}")
        self.return_to.setVisible(bool(name))

    def show_error(self, sentence: str) -> None:
        """Say why the last file did not open; empty: nothing."""
        self.error.setText(f"✕  {sentence}" if sentence else "")
        self.error.setVisible(bool(sentence))

    def _fill(self, column: QVBoxLayout, rows: Sequence[tuple[str, str, str]], empty: str) -> None:
        """Cards of (name, line about it, what to open)."""
        while (item := column.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for name, line, source in rows:
            card = Card(name, line)
            card.clicked.connect(lambda _=False, chosen=source: self.wanted.emit(chosen))
            column.addWidget(card)
        if not rows:
            label = QLabel(empty)
            label.setProperty("muted", True)
            label.setWordWrap(True)
            column.addWidget(label)
