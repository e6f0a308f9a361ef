"""Registers: one gauge a group, live against the limit, with spill, occupancy and what would relieve it.

Knows `RegisterUse`. The tick is the limit; a bar past it spills, and the row says so in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QLabel, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from model.cost.result import CostResult, RegisterUse
from model.graph.graph import OperatorGraph

from .. import look, why
from ..digest import Digest
from ..document import Document
from ..names import group_label, group_name
from .panel import Panel
from .rows import ROW_ROLE, Column, Rows, RowsTable, group_rows_of

FULL = 1.25
"""The bar's right end, in limits: room to see how far past the limit a group is."""


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """One group's gauge."""

    graph: OperatorGraph
    index: int
    operators: tuple[int, ...]
    use: RegisterUse
    replays: int = -1

    @property
    def label(self) -> str:
        """Made when it is painted."""
        return group_label(self.graph, self.index, self.operators, self.replays)

    @property
    def pressure(self) -> float:
        """Live over limit; 0 where the machine has no limit."""
        return self.use.live / self.use.limit if self.use.limit > 0 else 0.0

    @property
    def spills(self) -> bool:
        """Whether anything is spilled."""
        return self.use.spilled_bytes > 0

    @property
    def reading(self) -> str:
        """``181 / 255 · occupancy 0.50``."""
        use = self.use
        if use.limit <= 0:
            return "no limit given"
        if use.unit == "bytes":
            live = f"{look.fmt_bytes(use.live)} / {look.fmt_bytes(use.limit)}"
        else:
            live = f"{use.live:,} / {use.limit:,}"
        if self.spills:
            return f"{live} · ⚠ spills {look.fmt_bytes(use.spilled_bytes)}"
        return live if use.unit == "bytes" else f"{live} · occupancy {use.occupancy:.2f}"

    @property
    def state(self) -> str:
        """Colour of the gauge: "warn" where it spills, which is slower but no fault, else "good"."""
        return "warn" if self.spills else "good"

    @property
    def tip(self) -> str:
        """Everything that is known, on separate lines."""
        use = self.use
        lines = [self.label, f"live {use.live:,} of {use.limit:,} {use.unit} ({self.pressure:.0%})"]
        if self.spills:
            lines.append(
                f"spills {look.fmt_bytes_exact(use.spilled_bytes)} to {use.spill_to}, and reads it back"
            )
        if use.unit != "bytes":
            lines.append(f"thread occupancy {use.occupancy:.2f}")
        if use.limited_by:
            lines.append(f"limited by {use.limited_by}")
        if use.relief:
            lines.append(f"Try: {use.relief}")
        return "\n".join(lines)


def gauge_rows(digest: Digest) -> Rows:
    """Groups by pressure, the tightest first; ties in the plan's order."""
    result, limit = digest.result, digest.limit
    pressure = np.divide(digest.live, limit, out=np.zeros(len(limit)), where=limit > 0)
    order = np.lexsort((-pressure, digest.spilled <= 0)).tolist()
    return group_rows_of(result, lambda index: gauge_row(result, index), order)


def gauge_row(result: CostResult, index: int) -> GaugeRow:
    """The gauge of one group."""
    group = result.groups[index]
    return GaugeRow(result.request.graph, index, group.operators, group.registers, group.replays)


class _Gauge(QStyledItemDelegate):
    """Paints the label, the bar with its tick, or the reading."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """One cell."""
        colours = look.palette()
        row: GaugeRow = index.data(ROW_ROLE)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.column() == 1:
            self._bar(painter, rect.adjusted(0, 4, -8, -4), row)
        else:
            label = index.column() == 0
            painter.setFont(look.font(look.BODY if label else look.SMALL, strong=chosen and label))
            if label:
                painter.setPen(colours.accent if chosen else colours.text)
            else:
                painter.setPen(colours.warn if row.spills else colours.muted)
            text = QFontMetrics(painter.font()).elidedText(
                row.label if label else row.reading, Qt.TextElideMode.ElideRight, int(rect.width()) - 8
            )
            painter.drawText(rect.adjusted(0, 0, -8, 0), Qt.AlignmentFlag.AlignVCenter, text)
        painter.restore()

    def _bar(self, painter: QPainter, rect: QRectF, row: GaugeRow) -> None:
        colours = look.palette()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colours.sunken)
        painter.drawRoundedRect(rect, 3, 3)
        if row.use.limit <= 0:
            return
        filled = QRectF(rect)
        filled.setWidth(max(2.0, rect.width() * min(1.0, row.pressure / FULL)))
        painter.setBrush(getattr(colours, row.state))
        painter.drawRoundedRect(filled, 3, 3)
        tick = rect.left() + rect.width() / FULL
        painter.setPen(QPen(colours.text, 2))
        painter.drawLine(int(tick), int(rect.top()) - 1, int(tick), int(rect.bottom()) + 1)


class RegisterGauges(Panel):
    """The registers panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "registers", "Registers", "live / limit")
        self.table = RowsTable(
            document,
            (
                Column("Group", lambda r: r.label, lambda r: r.index, align="left", row_tip=lambda r: r.tip),
                Column(
                    "Pressure", lambda r: f"{r.pressure:.0%}", lambda r: r.pressure, row_tip=lambda r: r.tip
                ),
                Column("Reading", lambda r: r.reading, lambda r: r.use.live, row_tip=lambda r: r.tip),
            ),
            header=False,
        )
        self.table.setAccessibleName("Register pressure by group")
        self.table.setItemDelegate(_Gauge(self.table))
        self.table.resized.connect(self._share_width)
        self.advice = QLabel()
        self.advice.setWordWrap(True)
        self.advice.setProperty("state", "warn")
        self.advice.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.body.addWidget(self.table, 1)
        self.body.addWidget(self.advice)
        self.follow("cost", document.cost_changed, document.selection_changed)

    def redraw(self) -> None:
        """Gauges of the newest result, the tightest group first."""
        digest = self.document.digest
        if self.explain_absence("register pressure") or digest is None:
            return
        result = digest.result
        machine = result.request.accelerator
        if machine.registers is None:
            self.set_line("live / limit")
            self.say(f"{machine.name} gives no registers: they limit nothing there. Choose another machine.")
            return
        per = "per thread" if machine.registers.model == "simt" else "in accumulators"
        spilling, count = int((digest.spilled > 0).sum()), len(result.groups)
        self.set_line(f"live / limit {per}" + (f" · {spilling:,} of {count:,} spill" if spilling else ""))
        self.table.show_rows(gauge_rows(digest))
        self._share_width()
        self._advise(digest)
        self.show_body()

    def _advise(self, digest: Digest) -> None:
        """What relieves the selected group, else the one that takes longest."""
        chosen, result = self.document.selection, digest.result
        self.advice.setVisible(False)
        if not result.groups:
            return
        index = int(result.request.plan.membership[chosen[0]]) if chosen else int(digest.latency_s.argmax())
        worst = gauge_row(result, index)
        if worst.spills or worst.use.relief:
            limit = worst.use.limited_by or "registers"
            words = why.spill(result, worst.index) or f"limited by {limit}. Try: {worst.use.relief}"
            self.advice.setText(f"{'⚠ ' if worst.spills else ''}{group_name(worst.index)} {words}.")
            self.advice.setProperty("state", "warn" if worst.spills else "")
            self.advice.style().polish(self.advice)
            self.advice.setVisible(True)

    def _share_width(self) -> None:
        """The reading keeps its width; label and bar share the rest."""
        width = self.table.viewport().width()
        metrics = QFontMetrics(look.font(look.SMALL))
        readings = [row.reading for row in islice(self.table.rows.rows, 64)]
        longest = metrics.horizontalAdvance(max(readings, key=len, default="0" * 20))
        reading = min(longest + 3 * look.GRID, width * 3 // 5)
        label = (width - reading) * 9 // 20
        self.table.setColumnWidth(0, label)
        self.table.setColumnWidth(1, width - reading - label)
        self.table.setColumnWidth(2, reading)
