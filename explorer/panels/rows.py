"""Tables of a panel: rows of values, columns that format them, selection that follows the document.

Knows Qt's table classes and `Column`. Must not know what the rows mean: a row only has ``operators``. A graph
has thousands of groups, so a row is made when it is seen. Sorting and filtering are done here on Python values:
a proxy model would ask for every cell again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    Qt,
    Signal,
)
from PySide6.QtGui import QBrush, QGuiApplication, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from model.cost.result import CostResult

from .. import look
from ..document import Document

Index = QModelIndex | QPersistentModelIndex
ROW_HEIGHT = 22
ROW_ROLE = int(Qt.ItemDataRole.UserRole)
SIDES = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "right": Qt.AlignmentFlag.AlignRight,
    "center": Qt.AlignmentFlag.AlignHCenter,
}


class HasOperators(Protocol):
    """A row stands for these operators; empty where it stands for none."""

    @property
    def operators(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Column:
    """How one value of a row is shown.

    Attributes
    ----------
    text : what is painted; ``value``: what is sorted by; ``row_tip``: the exact figure or the formula.
    state : "", "good", "warn" or "bad": colour of the text, which says the state in words as well.
    """

    title: str
    text: Callable[[Any], str]
    value: Callable[[Any], Any]
    tip: str = ""
    row_tip: Callable[[Any], str] | None = None
    align: str = "right"
    state: Callable[[Any], str] | None = None


class Rows:
    """Rows that are made when they are asked for.

    Parameters
    ----------
    make : a row by its number.
    holding : numbers of the rows that hold any of some operators.
    order : numbers in the order in which the rows stand; all, as they come, where None.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], Any],
        holding: Callable[[Iterable[int]], Iterable[int]],
        order: Sequence[int] | None = None,
    ) -> None:
        self._make = make
        self._holding = holding
        self._order: Sequence[int] = range(count) if order is None else order

    @staticmethod
    def of(rows: Sequence[HasOperators]) -> Rows:
        """Rows that are there already."""
        by_operator: dict[int, list[int]] = {}

        def holding(operators: Iterable[int]) -> Iterable[int]:
            if not by_operator:
                for number, row in enumerate(rows):
                    for operator in row.operators:
                        by_operator.setdefault(operator, []).append(number)
            return {number for operator in operators for number in by_operator.get(operator, ())}

        return Rows(len(rows), rows.__getitem__, holding)

    def arranged(self, order: Sequence[int]) -> Rows:
        """The same rows in another order, or fewer of them."""
        return Rows(0, self._make, self._holding, order)

    def places(self, operators: Iterable[int]) -> list[int]:
        """Where the rows stand that hold any of some operators, in ascending order."""
        numbers = set(self._holding(operators))
        if isinstance(self._order, range):
            return sorted(number for number in numbers if number in self._order)
        return [place for place, number in enumerate(self._order) if number in numbers]

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the rows as they stand."""
        return self._order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Any:
        return self._make(self._order[place])

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._order)


def group_rows_of(result: CostResult, make: Callable[[int], Any], order: Sequence[int] | None = None) -> Rows:
    """One row a group of a result, made from the group's index."""
    membership = result.request.plan.membership

    def holding(operators: Iterable[int]) -> Iterable[int]:
        return membership[list(operators)].tolist()

    return Rows(len(result.groups), make, holding, order)


NO_ROWS = Rows(0, lambda _: None, lambda _: ())


class RowsModel(QAbstractTableModel):
    """Read-only rows under columns; replaced as a whole with every result.

    Attributes
    ----------
    rows : all of them, as given; ``shown``: those that the filter keeps, in the order of the sort.
    """

    def __init__(self, columns: Sequence[Column], words: Callable[[Any], str] | None = None) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.rows = self.shown = NO_ROWS
        self._text_of = words
        self._wanted: tuple[str, ...] = ()
        self._by = -1
        self._descending = False

    def replace(self, rows: Rows, columns: Sequence[Column] | None = None) -> None:
        """Show other rows; the view keeps its place where the columns are the same."""
        titles = [column.title for column in self.columns]
        self.rows = rows
        if columns is not None:
            self.columns = tuple(columns)
        before, shown = len(self.shown), self._arranged()
        now = len(shown)
        if titles != [column.title for column in self.columns] or not before or not now:
            self._reset(shown)
            return
        # The rows that there are more or fewer of come or go at the end: a reset would lose the view's place.
        if now < before:
            self.beginRemoveRows(QModelIndex(), now, before - 1)
            self.shown = shown
            self.endRemoveRows()
        elif now > before:
            self.beginInsertRows(QModelIndex(), before, now - 1)
            self.shown = shown
            self.endInsertRows()
        self.shown = shown
        self.dataChanged.emit(self.index(0, 0), self.index(now - 1, len(self.columns) - 1))

    def _reset(self, shown: Rows) -> None:
        self.beginResetModel()
        self.shown = shown
        self.endResetModel()

    def set_words(self, text: str) -> None:
        """Keep rows whose text holds all these words."""
        self._wanted = tuple(text.lower().split())
        self._reset(self._arranged())

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """By the value of a column; -1: as given."""
        self._by, self._descending = column, order is Qt.SortOrder.DescendingOrder
        self._reset(self._arranged())

    def _arranged(self) -> Rows:
        words, text, rows = self._wanted, self._text_of, self.rows
        if words and text is not None:
            texts = zip(rows.numbers, (text(row).lower() for row in rows), strict=True)
            rows = rows.arranged([number for number, line in texts if all(word in line for word in words)])
        if 0 <= self._by < len(self.columns):
            value = self.columns[self._by].value
            keys = dict(zip(rows.numbers, map(value, rows), strict=True))
            rows = rows.arranged(sorted(rows.numbers, key=keys.__getitem__, reverse=self._descending))
        return rows

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Rows shown; none below a row."""
        return 0 if parent.isValid() else len(self.shown)

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
        if not index.isValid() or index.row() >= len(self.shown):
            return None
        row, column = self.shown[index.row()], self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
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


class RowsTable(QTableView):
    """The view: whole rows, keyboard, copy, selection in step with the document."""

    resized = Signal()
    """Emitted when the view has another width, so that columns can be shared anew."""

    def __init__(
        self,
        document: Document,
        columns: Sequence[Column],
        *,
        header: bool = True,
        words: Callable[[Any], str] | None = None,
    ) -> None:
        super().__init__()
        self.document = document
        self.rows = RowsModel(columns, words)
        self.setModel(self.rows)
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
        self.rows.modelReset.connect(self.follow)
        document.selection_changed.connect(self.follow)
        document.graph_changed.connect(self._forget)

    def _forget(self) -> None:
        """The rows are of another graph, whose operators the selection knows nothing of."""
        self.show_rows(NO_ROWS)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tell the panel."""
        super().resizeEvent(event)
        self.resized.emit()

    def show_rows(self, rows: Rows, columns: Sequence[Column] | None = None) -> None:
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
        wanted = self.document.selection
        self._following = True
        try:
            selection = QItemSelection()
            first: QModelIndex | None = None
            for place in self.rows.shown.places(wanted) if wanted else ():
                index = self.rows.index(place, 0)
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
        """Selected rows (all that are shown where none is) with the header, tab-separated."""
        chosen = self.selectionModel().selectedRows()
        rows = [self.row_at(index) for index in chosen] or list(self.rows.shown)
        lines = ["\t".join(column.title for column in self.rows.columns)]
        lines += ["\t".join(column.text(row) for column in self.rows.columns) for row in rows]
        return "\n".join(lines)
