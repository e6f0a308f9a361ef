"""Tables of a panel: rows of values, columns that format them, selection that follows the document.

Knows Qt's table classes and `Column`. Must not know what the rows mean: a row only has ``operators``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QBrush, QGuiApplication, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from .. import look
from ..document import Document

Index = QModelIndex | QPersistentModelIndex
ROW_HEIGHT = 22
SIDES = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "right": Qt.AlignmentFlag.AlignRight,
    "center": Qt.AlignmentFlag.AlignHCenter,
}
SORT_ROLE = int(Qt.ItemDataRole.UserRole)
ROW_ROLE = SORT_ROLE + 1


class HasOperators(Protocol):
    """A row stands for these operators; empty where it stands for none."""

    @property
    def operators(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Column:
    """How one value of a row is shown.

    Attributes
    ----------
    text : what is painted; ``value``: what is sorted by; ``tip``: the exact figure or the formula.
    state : "", "good", "warn" or "bad": colour of the text, which says the state in words as well.
    """

    title: str
    text: Callable[[Any], str]
    value: Callable[[Any], Any]
    tip: str = ""
    row_tip: Callable[[Any], str] | None = None
    align: str = "right"
    state: Callable[[Any], str] | None = None


class RowsModel(QAbstractTableModel):
    """Read-only rows under columns; replaced as a whole with every result."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.rows: tuple[Any, ...] = ()

    def replace(self, rows: Sequence[Any], columns: Sequence[Column] | None = None) -> None:
        """Show other rows. Keeps the view's scroll and sort where the shape is the same."""
        same = columns is None or [c.title for c in columns] == [c.title for c in self.columns]
        if same and len(rows) == len(self.rows) and rows:
            self.columns = tuple(columns) if columns is not None else self.columns
            self.rows = tuple(rows)
            last = self.index(len(rows) - 1, len(self.columns) - 1)
            self.dataChanged.emit(self.index(0, 0), last)
            return
        self.beginResetModel()
        self.rows = tuple(rows)
        if columns is not None:
            self.columns = tuple(columns)
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Rows; none below a row."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Columns."""
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """Titles and what they mean."""
        if orientation is not Qt.Orientation.Horizontal or section >= len(self.columns):
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.title
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.tip
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(SIDES[column.align] | Qt.AlignmentFlag.AlignVCenter)
        return None

    def data(self, index: Index, role: int = 0) -> Any:
        """One cell."""
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        row, column = self.rows[index.row()], self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == SORT_ROLE:
            return column.value(row)
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.row_tip(row) if column.row_tip else column.text(row)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{column.title} {column.text(row)}"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(SIDES[column.align] | Qt.AlignmentFlag.AlignVCenter)
        if role == Qt.ItemDataRole.ForegroundRole and column.state is not None:
            state = column.state(row)
            return QBrush(getattr(look.palette(), state)) if state else None
        return None


class RowsFilter(QSortFilterProxyModel):
    """Sorts by `Column.value`; keeps rows that hold every word of the filter in any column."""

    def __init__(self) -> None:
        super().__init__()
        self.setSortRole(SORT_ROLE)
        self._words: tuple[str, ...] = ()

    def set_words(self, text: str) -> None:
        """Keep rows with all these words."""
        if hasattr(self, "beginFilterChange"):
            self.beginFilterChange()
        self._words = tuple(text.lower().split())
        self.invalidate()

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        """Whether a row is kept."""
        if not self._words:
            return True
        model = self.sourceModel()
        assert isinstance(model, RowsModel)
        row = model.rows[source_row]
        text = " ".join(column.text(row) for column in model.columns).lower()
        return all(word in text for word in self._words)


class RowsTable(QTableView):
    """The view: whole rows, keyboard, copy, selection in step with the document."""

    resized = Signal()
    """Emitted when the view has another width, so that columns can be shared anew."""

    def __init__(self, document: Document, columns: Sequence[Column], *, header: bool = True) -> None:
        super().__init__()
        self.document = document
        self.rows = RowsModel(columns)
        self.filter = RowsFilter()
        self.filter.setSourceModel(self.rows)
        self.setModel(self.filter)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setMinimumSectionSize(40)
        self.horizontalHeader().setVisible(header)
        self._following = False
        self.selectionModel().selectionChanged.connect(self._tell)
        document.selection_changed.connect(self.follow)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tell the panel."""
        super().resizeEvent(event)
        self.resized.emit()

    def show_rows(self, rows: Sequence[HasOperators], columns: Sequence[Column] | None = None) -> None:
        """Replace the rows and mark the selected ones."""
        self._following = True
        try:
            self.rows.replace(rows, columns)
        finally:
            self._following = False
        self.follow()

    def row_at(self, index: Index) -> Any:
        """The row behind a cell of the view."""
        return index.data(ROW_ROLE)

    def _tell(self, *_: QItemSelection) -> None:
        if self._following:
            return
        chosen: set[int] = set()
        for index in self.selectionModel().selectedRows():
            chosen.update(self.row_at(index).operators)
        self._following = True
        try:
            self.document.select(chosen)
        finally:
            self._following = False

    def follow(self) -> None:
        """Mark the rows that hold selected operators."""
        if self._following:
            return
        wanted = set(self.document.selection)
        self._following = True
        try:
            selection = QItemSelection()
            first: QModelIndex | None = None
            if wanted:
                for number, row in enumerate(self.rows.rows):
                    if not wanted.isdisjoint(row.operators):
                        index = self.filter.mapFromSource(self.rows.index(number, 0))
                        if index.isValid():
                            selection.select(index, index)
                            first = first or index
            flags = QItemSelectionModel.SelectionFlag
            self.selectionModel().select(selection, flags.ClearAndSelect | flags.Rows)
            if first is not None and not self.hasFocus():
                self.scrollTo(first)
        finally:
            self._following = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+C copies the selected rows as tab-separated text, numbers as shown."""
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.selected_text())
            return
        super().keyPressEvent(event)

    def selected_text(self) -> str:
        """Selected rows (all where none is) with the header, tab-separated."""
        chosen = self.selectionModel().selectedRows() or [
            self.filter.index(row, 0) for row in range(self.filter.rowCount())
        ]
        lines = ["\t".join(column.title for column in self.rows.columns)]
        lines += ["\t".join(c.text(self.row_at(i)) for c in self.rows.columns) for i in chosen]
        return "\n".join(lines)
