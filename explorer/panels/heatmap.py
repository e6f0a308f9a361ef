"""Traffic heatmap: bytes of groups, operators or tensors between each pair of memory levels.

Knows `CostResult.traffic` and its digest. The sums here only add what the model counted. Between two levels
a tensor counts once per group: what is read at its first reader there, what is written at its producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from model.cost.result import Traffic
from model.graph.graph import OperatorGraph

from .. import look, why
from ..controls import Combo
from ..digest import Digest, Pair, first_readers, skips
from ..document import Document
from ..names import group_label
from ..runner import Lane
from .panel import Panel
from .rows import ROW_ROLE, Column, Rows, RowsTable, group_rows_of

MODES = ("groups", "operators", "tensors")


Cells = dict[Pair, tuple[int, int]]
"""Read and written bytes per pair of levels."""


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """One line of the map. The label is made when it is painted: a graph has thousands of lines."""

    graph: OperatorGraph
    kind: str  # of MODES
    place: int  # number of the group, operator or tensor
    operators: tuple[int, ...]
    cells: Cells
    replays: int = -1

    @property
    def label(self) -> str:
        """``G3  MatMul Silu``, or the name of the operator or tensor."""
        if self.kind == "groups":
            return group_label(self.graph, self.place, self.operators, self.replays)
        return (self.graph.operators if self.kind == "operators" else self.graph.tensors)[self.place].name

    def total(self, pair: Pair) -> int:
        """Bytes read and written between a pair of levels."""
        read, write = self.cells.get(pair, (0, 0))
        return read + write


def _add(cells: Cells, crossing: Traffic, read: int, write: int) -> None:
    pair = (crossing.outer, crossing.inner)
    before = cells.get(pair)
    cells[pair] = (read, write) if before is None else (before[0] + read, before[1] + write)


def rows_by_group(digest: Digest) -> Rows:
    """One row per fusion group, in the plan's order."""
    result, pairs = digest.result, digest.pairs
    graph = result.request.graph

    def make(index: int) -> TrafficRow:
        read, written = digest.read[index].tolist(), digest.written[index].tolist()
        cells = dict(zip(pairs, zip(read, written, strict=True), strict=True))
        group = result.groups[index]
        return TrafficRow(graph, "groups", index, group.operators, cells, group.replays)

    return group_rows_of(result, make)


def rows_by_operator(digest: Digest) -> Rows:
    """One row per operator: reads at the first reader in its group, writes at the producer."""
    result, graph = digest.result, digest.result.request.graph
    sums: dict[int, Cells] = {}
    for group in result.groups:
        readers, writers = first_readers(result, group)
        for crossing in group.traffic:
            fallback = group.operators[0]
            writer = writers.get(crossing.tensor, fallback)
            reader = readers.get(crossing.tensor, writer)
            if crossing.read_bytes:
                _add(sums.setdefault(reader, {}), crossing, crossing.read_bytes, 0)
            if crossing.write_bytes:
                _add(sums.setdefault(writer, {}), crossing, 0, crossing.write_bytes)
    return Rows.of([TrafficRow(graph, "operators", o, (o,), sums[o]) for o in sorted(sums)])


def rows_by_tensor(digest: Digest) -> Rows:
    """One row per tensor that moves, most bytes first; clicking selects who writes and reads it."""
    result, graph = digest.result, digest.result.request.graph
    sums: dict[int, Cells] = {}
    for group in result.groups:
        for crossing in group.traffic:
            _add(sums.setdefault(crossing.tensor, {}), crossing, crossing.read_bytes, crossing.write_bytes)
    rows: list[TrafficRow] = []
    for tensor, cells in sums.items():
        writer = int(graph.producer[tensor])
        touching = ((writer,) if writer >= 0 else ()) + graph.consumers[tensor]
        rows.append(TrafficRow(graph, "tensors", tensor, touching, cells))
    outermost = digest.pairs[:1]
    rows.sort(key=lambda row: -sum(row.total(pair) for pair in outermost))
    return Rows.of(rows)


@dataclass(frozen=True, slots=True)
class Scale:
    """Ends of the logarithmic colour scale in bytes; low 0 means that there is nothing to show."""

    low: float
    high: float

    @staticmethod
    def of(rows: Iterable[TrafficRow], pairs: Sequence[Pair]) -> Scale:
        """From the smallest to the largest count that is not zero."""
        counts = [count for row in rows for pair in pairs if (count := row.total(pair)) > 0]
        return Scale(min(counts), max(counts)) if counts else Scale(0, 0)

    @staticmethod
    def of_groups(digest: Digest) -> Scale:
        """From the smallest to the largest count of a group that is not zero."""
        counts = digest.read + digest.written
        counts = counts[counts > 0]
        return Scale(int(counts.min()), int(counts.max())) if len(counts) else Scale(0, 0)

    def fraction(self, count: int) -> float:
        """Where a count lies; a scale of one number shows it as much."""
        return 1.0 if self.low == self.high else look.heat_fraction(count, self.low, self.high)


class _HeatCells(QStyledItemDelegate):
    """Paints labels plainly and cells as heat with their number."""

    def __init__(self, table: RowsTable) -> None:
        super().__init__(table)
        self.pairs: tuple[Pair, ...] = ()
        self.scale = Scale(0, 0)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """One cell."""
        colours = look.palette()
        row: TrafficRow = index.data(ROW_ROLE)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)  # type: ignore[attr-defined]
        painter.save()
        if index.column() == 0:
            painter.setFont(look.font(look.BODY, strong=chosen))
            painter.setPen(colours.accent if chosen else colours.text)
            text = QFontMetrics(painter.font()).elidedText(
                row.label, Qt.TextElideMode.ElideRight, int(rect.width()) - 8
            )
            painter.drawText(rect.adjusted(0, 0, -8, 0), Qt.AlignmentFlag.AlignVCenter, text)
        else:
            self._cell(painter, rect.adjusted(0, 0, -1, -1), row.total(self.pairs[index.column() - 1]))
        painter.restore()

    def _cell(self, painter: QPainter, rect: QRectF, count: int) -> None:
        colours = look.palette()
        fill = look.heat_color(self.scale.fraction(count)) if count else colours.sunken
        painter.fillRect(rect, fill)
        painter.setFont(look.font(look.SMALL, strong=count > 0))
        painter.setPen(look.text_on(fill) if count else colours.muted)
        text = look.fmt_bytes(count)
        metrics = QFontMetrics(painter.font())
        if metrics.horizontalAdvance(text) > rect.width() - 4:
            text = text.partition(" ")[0]
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)


class _Legend(QWidget):
    """The colour bar with the bytes at its ends."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale(0, 0)
        self.setFixedHeight(20)

    def sizeHint(self) -> QSize:
        """Wide enough for the bar and both numbers."""
        return QSize(220, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Bar, ends, and what they measure."""
        painter = QPainter(self)
        painter.setFont(look.font(look.TINY))
        painter.setPen(look.palette().muted)
        if self.scale.high <= 0:
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, "nothing moves")
            painter.end()
            return
        low, high = look.fmt_bytes(self.scale.low), look.fmt_bytes(self.scale.high)
        metrics = painter.fontMetrics()
        left = metrics.horizontalAdvance(low) + 6
        width = 96
        middle = self.height() / 2
        painter.drawText(QRectF(0, 0, left, self.height()), Qt.AlignmentFlag.AlignVCenter, low)
        for step in range(width):
            painter.fillRect(QRectF(left + step, middle - 4, 1, 8), look.heat_color(step / (width - 1)))
        rest = QRectF(left + width + 6, 0, self.width(), self.height())
        painter.drawText(rest, Qt.AlignmentFlag.AlignVCenter, high)
        painter.end()


class Heatmap(Panel):
    """The traffic panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "traffic", "Traffic", "bytes between memory levels · log scale")
        self.mode = Combo("Rows of the traffic map")
        self.mode.setFixedWidth(104)
        self.mode.addItems([mode.capitalize() for mode in MODES])
        self.mode.currentIndexChanged.connect(self.invalidate)
        self.table = RowsTable(document, (_label_column(),))
        self.table.setAccessibleName("Traffic by row and memory level")
        self.cells = _HeatCells(self.table)
        self.table.setItemDelegate(self.cells)
        self.table.resized.connect(self._share_width)
        self.legend = _Legend()
        foot = QHBoxLayout()
        foot.addWidget(self.legend, 1)
        foot.addWidget(self.mode)
        self.body.addWidget(self.table, 1)
        self.body.addLayout(foot)
        self.follow("cost", document.cost_changed)

    def redraw(self) -> None:
        """Rows of the newest result in the chosen mode."""
        digest = self.document.digest
        self.set_caveats(() if digest is None else why.caveats(digest.result))
        if self.explain_absence("traffic") or digest is None:
            return
        mode = MODES[max(0, self.mode.currentIndex())]
        if mode == "groups":
            self._show(digest, rows_by_group(digest), Scale.of_groups(digest))
            return

        def work() -> tuple[Rows, Scale]:
            rows = rows_by_operator(digest) if mode == "operators" else rows_by_tensor(digest)
            return rows, Scale.of(rows, digest.pairs)

        def done(answer: tuple[Rows, Scale]) -> None:
            if mode == MODES[self.mode.currentIndex()]:
                self._show(digest, *answer)

        self.ask(Lane.ROWS, f"Adding up {mode}", work, done)

    def _show(self, digest: Digest, rows: Rows, scale: Scale) -> None:
        """Show rows of a result; the colour scale is frozen during a drag."""
        pairs = digest.pairs
        if not len(rows) or not pairs:
            self.say("No operator of this graph moves a byte that is known. Bind its symbolic dims (Ctrl+B).")
            return
        if not self.document.previewing or self.cells.scale.high <= 0 or pairs != self.cells.pairs:
            self.cells.scale = self.legend.scale = scale
        self.cells.pairs = pairs
        columns = [_label_column(), *(_pair_column(digest, place) for place in range(len(pairs)))]
        self.table.show_rows(rows, columns)
        self._share_width()
        self.legend.update()
        self.show_body()

    def _share_width(self) -> None:
        """Cells share what the labels leave."""
        count = self.table.rows.columnCount() - 1
        if count < 1:
            return
        width = self.table.viewport().width()
        cell = max(52, int(width * 0.62) // count)
        self.table.setColumnWidth(0, max(72, width - cell * count))
        for column in range(1, count + 1):
            self.table.setColumnWidth(column, cell)


def _label_column() -> Column:
    return Column("", lambda row: row.label, lambda row: row.place, align="left")


def _pair_column(digest: Digest, place: int) -> Column:
    result, pair = digest.result, digest.pairs[place]
    outer, inner = pair

    def tip(row: TrafficRow) -> str:
        read, write = row.cells.get(pair, (0, 0))
        whole = int(digest.read[:, place].sum() + digest.written[:, place].sum())
        share = row.total(pair) / max(1, whole)
        return (
            f"{row.label}\n{outer} to {inner}: read {look.fmt_bytes_exact(read)}, "
            f"written {look.fmt_bytes_exact(write)}\n"
            f"{look.fmt_percent(share)} of all bytes between these levels"
        )

    return Column(
        f"{outer} spill" if skips(result, pair) else outer,
        lambda row: look.fmt_bytes(row.total(pair)),
        lambda row: row.total(pair),
        f"Bytes read and written between {outer} and {inner}",
        tip,
        "center",
    )
