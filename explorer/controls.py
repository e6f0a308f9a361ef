"""Small controls that style sheets cannot draw: a combo box with an arrow, a label that elides, a body that scrolls.

Knows Qt and the look, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from . import look


class Combo(QComboBox):
    """A combo box that may be narrower than its longest entry and never scrolls by accident."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(4)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The frame and text, then the arrow: style sheets take the style's own away."""
        super().paintEvent(event)
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colours.muted if self.isEnabled() else colours.faint, 1.3))
        x, y = self.width() - 12.0, self.height() / 2
        painter.drawPolyline([QPointF(x - 3.5, y - 2), QPointF(x, y + 1.5), QPointF(x + 3.5, y - 2)])
        painter.end()

    def showPopup(self) -> None:
        """Entries that the list may cut say all of it in their tips."""
        for place in range(self.count()):
            self.setItemData(place, self.itemText(place), Qt.ItemDataRole.ToolTipRole)
        super().showPopup()

    def event(self, event: QEvent) -> bool:
        """The tip begins with the entry in use: the box may be too narrow for it."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            tip = "\n".join(part for part in (self.currentText(), self.toolTip()) if part)
            QToolTip.showText(event.globalPos(), tip, self)
            return True
        return super().event(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """A wheel over a panel scrolls the panel; with the focus it steps."""
        step_or_scroll(self, event, super().wheelEvent)


class ElidedLabel(QLabel):
    """A grey line that takes what room there is and ends in an ellipsis where that is short; `state` colours it."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.setProperty("muted", True)

    def paintEvent(self, event: QPaintEvent) -> None:
        """As any label, elided where the text is too long; what is selected is shown as far as it goes."""
        room = self.contentsRect().adjusted(max(self.indent(), 0), 0, 0, 0)
        if self.hasSelectedText() or self.fontMetrics().horizontalAdvance(self.text()) <= room.width():
            super().paintEvent(event)
            return
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
        painter.end()


class _Heading(QPushButton):
    """A button as wide as there is room, its text elided where that is short."""

    def __init__(self) -> None:
        super().__init__()
        self.setCheckable(True)
        self.setProperty("fold", True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.words = ""

    def say(self, words: str) -> None:
        self.words = words
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        room = max(0, self.width() - 4)
        self.setText(self.fontMetrics().elidedText(self.words, Qt.TextElideMode.ElideRight, room))


class Fold(QWidget):
    """A heading that shows and hides what is added to `inside`; `head` has room at its right end."""

    def __init__(self, title: str, *, opened: bool = True) -> None:
        super().__init__()
        self._title = title
        self.button = _Heading()
        self.button.setChecked(opened)
        self.button.toggled.connect(self._show)
        self.head = QHBoxLayout()
        self.head.setSpacing(6)
        self.head.addWidget(self.button, 1)
        self._body = QWidget()
        self.inside = QVBoxLayout(self._body)
        self.inside.setContentsMargins(0, 0, 0, 0)
        self.inside.setSpacing(6)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(self.head)
        column.addWidget(self._body)
        self._show()

    @property
    def title(self) -> str:
        """The heading."""
        return self._title

    def set_title(self, title: str) -> None:
        """Another heading."""
        self._title = title
        self._show()

    def _show(self) -> None:
        opened = self.button.isChecked()
        self.button.say(f"{'▾' if opened else '▸'} {self._title}")
        self.button.setAccessibleName(f"{self._title}, {'shown' if opened else 'hidden'}")
        self._body.setVisible(opened)


def step_or_scroll(widget: QWidget, event: QWheelEvent, step: Callable[[QWheelEvent], None]) -> None:
    """Hand a wheel's turn to a control that has the focus, else to what it stands in."""
    if widget.hasFocus():
        step(event)
    else:
        event.ignore()


def muted(text: str) -> QLabel:
    """A small grey label."""
    label = QLabel(text)
    label.setProperty("muted", True)
    return label


def scrolling(body: QVBoxLayout) -> QVBoxLayout:
    """The column of a body that scrolls downwards where it is too short for what stands in it."""
    inner = QWidget()
    column = QVBoxLayout(inner)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(body.spacing())
    scroll = QScrollArea()
    scroll.setWidgetResizable(True)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setFrameShape(QFrame.Shape.NoFrame)
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    scroll.setWidget(inner)
    inner.setAutoFillBackground(False)
    scroll.viewport().setAutoFillBackground(False)
    body.addWidget(scroll, 1)
    return column
