"""The DRAM bus that slots share, over time: how full it is, and who of the slots, or which cause, takes how much.

Knows `Shared`'s answer. A column of the picture is a column of the answer: bytes that passed in it, over its time.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QPen

from .. import look
from .timechart import TimeChart

if TYPE_CHECKING:  # its kernels are not loaded on the GUI thread
    from model.serving.over_time import OverTime

CAUSES = ("fetch, store", "spill", "refetch", "not given")
"""Rows by cause, in the order of `OverTime.moved_bytes`' last axis."""
GIVEN = 3
"""So many of them passed; the last was asked for and not given."""
LOAD = 0.30
"""Part of the height that the load of the whole bus takes."""
LEAST_ROW = 9.0
LEGEND = 72
"""Pixels of the colour bar."""
DECADES = 3.0
"""Of the logarithmic scale by cause: what passes is far less than what is asked for in vain."""


class BusChart(TimeChart):
    """The bus's load above a heatmap of slots or causes, over one axis of time."""

    pointed = Signal(str)
    """Emitted with what stands at the pointer; empty beside the plot."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("The shared DRAM bus over time")
        self.seen: OverTime | None = None
        self.by_cause = False
        self._ends = 0.0, 0.0
        self._rates: NDArray[np.float64] = np.zeros((0, 0))

    def sizeHint(self) -> QSize:
        """Wide and low."""
        return QSize(640, 160)

    @property
    def begin_s(self) -> float:
        """The first arrival of the replay."""
        return self._ends[0]

    @property
    def end_s(self) -> float:
        """Its last completion."""
        return self._ends[1]

    def show_ends(self, begin_s: float, end_s: float) -> None:
        """Times of a replay; the zoom is kept where it lasts about as long."""
        before = self._ends[1] - self._ends[0]
        self._ends = begin_s, end_s
        if not before or abs((end_s - begin_s) / before - 1.0) > 0.02:
            self.show_all()
        else:
            self.show_range(self.low_s, self.high_s)

    def show_seen(self, seen: OverTime | None, by_cause: bool) -> None:
        """Draw an answer, its rows by slot or by cause."""
        self.seen, self.by_cause = seen, by_cause
        if seen is None:
            self._rates = np.zeros((0, 0))
        else:
            column_s = seen.view.column_ns * 1e-9
            given = seen.moved_bytes[:, :, :GIVEN].sum(axis=2)
            causes = seen.moved_bytes.sum(axis=0).T
            self._rates = (causes if by_cause else given) / column_s
        self.update()

    # -- rows --------------------------------------------------------------------------------------
    def names(self) -> list[str]:
        """What each row is."""
        seen = self.seen
        if seen is None or self.by_cause:
            return list(CAUSES) if seen is not None else []
        rows = len(self._rates)
        if not seen.slots:
            return ["all slots"]
        first = [-(-row * seen.slots // rows) for row in range(rows + 1)]
        return [f"slot {a}" if b - a == 1 else f"slots {a}–{b - 1}" for a, b in pairwise(first)]

    def _places(self) -> tuple[QRectF, QRectF]:
        """Of the load, and of the heatmap."""
        plot = self._plot()
        upper = QRectF(plot.left(), plot.top(), plot.width(), plot.height() * LOAD)
        return upper, QRectF(
            plot.left(), upper.bottom() + 6, plot.width(), plot.height() - upper.height() - 6
        )

    # -- painting ----------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """The load, the heatmap, its legend, the axis."""
        seen = self.seen
        if seen is None or self.high_s <= self.low_s:
            return
        painter = QPainter(self)
        upper, lower = self._places()
        self._load(painter, upper, seen)
        self._heat(painter, lower, seen)
        self._legend(painter)
        self.time_axis(painter, self._plot())
        self.focus_frame(painter)
        painter.end()

    def _span(self, place: QRectF, seen: OverTime) -> QRectF:
        """Where the answer's stretch of time lies while another one is on its way."""
        left = self._x(place, seen.view.low_ns * 1e-9)
        right = self._x(place, (seen.view.low_ns + seen.view.column_ns * seen.view.columns) * 1e-9)
        return QRectF(left, place.top(), right - left, place.height())

    def _load(self, painter: QPainter, place: QRectF, seen: OverTime) -> None:
        column_s = seen.view.column_ns * 1e-9
        rate = seen.moved_bytes[:, :, :GIVEN].sum(axis=(0, 2)) / column_s
        ends = math.isfinite(seen.bandwidth_bytes_per_s)
        top = seen.bandwidth_bytes_per_s if ends else float(rate.max(initial=0.0))
        most = float(rate.max(initial=0.0))
        share = look.fmt_percent(most / top) if ends and top else look.fmt_rate(most)
        self.strip_name(painter, place, share, "bus")
        painter.save()
        painter.setClipRect(place.adjusted(-1, -2, 1, 2))
        self.steps(painter, self._span(place, seen), rate, top, look.palette().accent)
        painter.restore()
        if ends:
            painter.setPen(QPen(look.palette().bad, 1, Qt.PenStyle.DashLine))
            painter.drawLine(place.topLeft(), place.topRight())
            painter.setFont(look.font(look.TINY))
            text = f"shared {look.fmt_rate(top)}"
            painter.setPen(look.palette().bad)
            row = QRectF(place.left(), place.top() - 15, place.width(), 14)
            painter.drawText(row, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, text)

    def _heat(self, painter: QPainter, place: QRectF, seen: OverTime) -> None:
        """One picture of all cells: a call for each would take the interpreter's lock thousands of times."""
        rates = self._rates
        top = float(rates.max(initial=0.0))
        painter.fillRect(place, look.palette().sunken)
        high = place.height() / max(1, len(rates))
        if top > 0.0:
            index = np.round(self._fractions(rates, top) * 255.0).astype(np.int64)
            pixels = np.ones((*rates.shape, 4), dtype=np.uint8) * 255
            pixels[..., :3] = look.CIVIDIS[index]
            pixels[rates <= 0.0, 3] = 0  # nothing there: the ground shows
            pixels = np.ascontiguousarray(pixels)
            image = QImage(
                pixels.data, rates.shape[1], rates.shape[0], 4 * rates.shape[1], QImage.Format.Format_RGBA8888
            )
            painter.save()
            painter.setClipRect(place)
            painter.drawImage(self._span(place, seen), image)
            painter.restore()
        painter.setPen(QPen(look.palette().panel, 1))
        names = self.names()
        every = max(1, math.ceil(LEAST_ROW / high)) if high > 0 else 1
        for row, name in enumerate(names):
            at = QRectF(place.left(), place.top() + row * high, place.width(), high)
            if row and high >= 4.0:
                painter.setPen(QPen(look.palette().panel, 1))
                painter.drawLine(at.topLeft(), at.topRight())
            if row % every == 0:
                self.caption(painter, QRectF(at.left(), at.center().y() - 7, at.width(), 14), name)

    def _fractions(self, rates: NDArray[np.float64], top: float) -> NDArray[np.float64]:
        """Where rates lie on the colour scale: by slot from nothing on, by cause in decades below the largest."""
        share = rates / top
        if not self.by_cause:
            return share
        low = 10.0**-DECADES
        return np.log10(np.maximum(share, low) / low) / DECADES

    def _legend(self, painter: QPainter) -> None:
        """The colours and their ends, above the plot at the right."""
        top = float(self._rates.max(initial=0.0))
        if top <= 0.0:
            return
        plot = self._plot()
        painter.setFont(look.font(look.TINY))
        text = look.fmt_rate(top)
        least = f"log, {look.fmt_rate(top * 10.0**-DECADES)}" if self.by_cause else "0"
        wide = painter.fontMetrics().horizontalAdvance(text)
        left = plot.right() - wide - look.GRID - LEGEND
        painter.setPen(look.palette().muted)
        painter.drawText(QRectF(0, 0, left - look.GRID, 14), Qt.AlignmentFlag.AlignRight, least)
        painter.drawText(QRectF(left + LEGEND + look.GRID, 0, wide + 2, 14), Qt.AlignmentFlag.AlignLeft, text)
        for step in range(LEGEND):
            painter.fillRect(QRectF(left + step, 3, 1, 8), look.heat_color(step / (LEGEND - 1)))

    # -- the hand ----------------------------------------------------------------------------------
    def pointed_at(self, at: QPointF) -> None:
        """Say how full the bus is, and what the row under the pointer gets."""
        time_s, seen = self.time_at(at.x()), self.seen
        column = -1
        if time_s is not None and seen is not None:
            column = int((time_s * 1e9 - seen.view.low_ns) // seen.view.column_ns)
        if time_s is None or seen is None or not 0 <= column < seen.view.columns:
            self.pointed.emit("")
            return
        column_s = seen.view.column_ns * 1e-9
        said = [f"at {look.fmt_seconds(time_s)} (mean of {look.fmt_seconds(column_s)})"]
        if math.isfinite(seen.bandwidth_bytes_per_s):
            said.append(f"bus {look.fmt_percent(float(seen.load[column]))} full")
        _, lower = self._places()
        row = int((at.y() - lower.top()) / lower.height() * len(self._rates)) if lower.contains(at) else -1
        if 0 <= row < len(self._rates):
            name = self.names()[row]
            if self.by_cause:
                said.append(f"{name} {look.fmt_rate(float(self._rates[row, column]))}")
            else:
                cell = (seen.moved_bytes[row, column] / column_s).tolist()
                parts = [
                    f"{look.fmt_rate(rate)} {cause}" for rate, cause in zip(cell, CAUSES, strict=True) if rate
                ]
                said.append(f"{name}: {', '.join(parts) or 'nothing'}")
        self.pointed.emit(" · ".join(said))
