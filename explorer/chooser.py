"""Type a few letters, pick from a list: the command palette, find, and the choice of a group.

Knows entries: a text, a grey remark, what is searched, and what to call. Must not know what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    QTimer,
)
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QDialog,
    QLabel,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from . import look
from .look import GRID

Index = QModelIndex | QPersistentModelIndex
ENTRY = int(Qt.ItemDataRole.UserRole)
MOST = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``words`` is searched in lower case; a ``reason`` greys it and says why; ``keys`` stand last."""

    text: str
    remark: str
    words: str
    call: Callable[[], object]
    reason: str = ""
    keys: str = ""


def matching(entries: Sequence[Entry], typed: str, most: int = MOST) -> list[Entry]:
    """Entries that hold every typed word; those whose text begins with the first word come first."""
    words = typed.lower().split()
    if not words:
        return list(entries[:most])
    found = [entry for entry in entries if all(word in entry.words for word in words)]
    first = words[0]

    def rank(entry: Entry) -> int:
        text = entry.text.lower()
        return 0 if text.startswith(first) else 1 if first in text else 2

    return sorted(found, key=rank)[:most]


class _Entries(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    def replace(self, entries: list[Entry]) -> None:
        self.beginResetModel()
        self.entries = entries
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.entries)

    def data(self, index: Index, role: int = 0) -> object:
        if not index.isValid() or index.row() >= len(self.entries):
            return None
        entry = self.entries[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return "  ".join(part for part in (entry.text, entry.remark, entry.keys) if part)
        if role == Qt.ItemDataRole.ToolTipRole:
            return entry.reason or entry.remark
        return entry if role == ENTRY else None


class _Line(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, 26)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        colours, entry = look.palette(), index.data(ENTRY)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        painter.save()
        if option.state & QStyle.StateFlag.State_Selected:  # type: ignore[attr-defined]
            painter.fillRect(rect, colours.selected)
        inner = rect.adjusted(2 * GRID, 0, -2 * GRID, 0)
        painter.setFont(look.font(look.SMALL))
        painter.setPen(colours.muted)
        remark = entry.reason or entry.remark
        metrics = QFontMetrics(painter.font())
        if entry.keys:
            flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(inner, flags, entry.keys)
            inner.setRight(inner.right() - metrics.horizontalAdvance(entry.keys) - 3 * GRID)
        room = min(metrics.horizontalAdvance(remark) + GRID, int(inner.width() * 0.6))
        painter.drawText(
            inner,
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
            metrics.elidedText(remark, Qt.TextElideMode.ElideRight, room),
        )
        painter.setFont(look.font(look.BODY))
        painter.setPen(colours.muted if entry.reason else colours.text)
        left = int(inner.width()) - room - 3 * GRID
        text = QFontMetrics(painter.font()).elidedText(entry.text, Qt.TextElideMode.ElideMiddle, left)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, text)
        painter.restore()


class Chooser(QDialog):
    """A line to type in above the list; Up, Down, Enter, Escape."""

    def __init__(
        self,
        parent: QWidget,
        title: str,
        hint: str,
        entries: Sequence[Entry],
        *,
        point: Callable[[Entry], object] | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setModal(True)
        self.resize(560, 420)
        self._entries = tuple(entries)
        self._point = point
        self.typed = QLineEdit()
        self.typed.setPlaceholderText(hint)
        self.typed.setAccessibleName(title)
        self.typed.setClearButtonEnabled(True)
        self.typed.installEventFilter(self)
        self.found = _Entries()
        self.list = QListView()
        self.list.setModel(self.found)
        self.list.setItemDelegate(_Line(self.list))
        self.list.setUniformItemSizes(True)
        # Lines end where the view ends; by themselves they keep the width that the view had at first.
        self.list.setResizeMode(QListView.ResizeMode.Adjust)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setAccessibleName(f"{title}: matches")
        self.list.clicked.connect(lambda *_: self.take())
        self.count = QLabel()
        self.count.setProperty("muted", True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(3 * GRID, 3 * GRID, 3 * GRID, 2 * GRID)
        layout.setSpacing(2 * GRID)
        for widget in (self.typed, self.list, self.count):
            layout.addWidget(widget)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(40 if len(self._entries) > 2000 else 0)
        self._soon.timeout.connect(self._search)
        self.typed.textChanged.connect(lambda *_: self._soon.start())
        self.list.selectionModel().currentChanged.connect(self._pointed)
        self._search()

    def _search(self) -> None:
        found = matching(self._entries, self.typed.text())
        self.found.replace(found)
        if found:
            self.list.setCurrentIndex(self.found.index(0, 0))
        whole = len(self._entries)
        shown = f"{len(found):,} of {whole:,}" if len(found) < MOST else f"the first {MOST:,} of {whole:,}"
        self.count.setText(
            f"{shown} · Enter takes it, Esc leaves" if found else "Nothing matches. Type fewer words."
        )

    def _pointed(self, index: QModelIndex, _: QModelIndex) -> None:
        entry = index.data(ENTRY) if index.isValid() else None
        if entry is not None and self._point is not None and self.isVisible():
            self._point(entry)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Arrows move in the list while the line keeps the focus; Enter takes."""
        if watched is self.typed and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            key = event.key()
            moves = {
                Qt.Key.Key_Up: -1,
                Qt.Key.Key_Down: 1,
                Qt.Key.Key_PageUp: -10,
                Qt.Key.Key_PageDown: 10,
            }
            if key in moves:
                row = self.list.currentIndex().row() + moves[Qt.Key(key)]
                row = max(0, min(len(self.found.entries) - 1, row))
                self.list.setCurrentIndex(self.found.index(row, 0))
                return True
            if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                if self._soon.isActive():
                    self._soon.stop()
                    self._search()
                self.take()
                return True
        return super().eventFilter(watched, event)

    def take(self) -> None:
        """Close and do what the marked entry says; a greyed one only says its reason."""
        entry = self.list.currentIndex().data(ENTRY)
        if entry is None:
            return
        if entry.reason:
            self.count.setText(entry.reason)
            return
        self.accept()
        entry.call()
