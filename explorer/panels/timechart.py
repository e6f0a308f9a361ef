"""A plot over time that the hand zooms and pans: wheel zooms at the pointer, drag pans, double-click shows all.

Knows Qt and the look; what is drawn is the subclass's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPen, QPolygonF, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from .. import look

LEFT, TOP, RIGHT, BOTTOM = 72.0, 16.0, 8.0, 20.0
"""Room around the plot for its labels."""
CAPTION_LINE = 11.0
"""Pixels of one line of a strip's caption."""


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two ends, roughly `about` of them."""
    span = high - low
    if span <= 0 or about < 1:
        return []
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


class TimeChart(QWidget):
    """Holds which times are shown, in seconds between `begin_s` and `end_s`; subclasses paint them and hear clicks."""

    range_changed = Signal(float, float)
    """Emitted with the times that are shown, when they are others."""

    def __init__(self) -> None:
        super().__init__()
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumHeight(96)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.low_s, self.high_s = 0.0, 0.0
        self._pressed: tuple[QPointF, float] | None = None
        self._dragged = False

    @property
    def begin_s(self) -> float:
        """The earliest time there is."""
        return 0.0

    @property
    def end_s(self) -> float:
        """The latest time there is."""
        raise NotImplementedError

    def pointed_at(self, at: QPointF) -> None:
        """The pointer is at this place, and no button is down."""

    def clicked_at(self, x: float) -> None:
        """A click that was no drag."""

    def _plot(self) -> QRectF:
        return QRectF(LEFT, TOP, self.width() - LEFT - RIGHT, self.height() - TOP - BOTTOM)

    def _x(self, plot: QRectF, time_s: float) -> float:
        return plot.left() + plot.width() * (time_s - self.low_s) / (self.high_s - self.low_s)

    def time_at(self, x: float) -> float | None:
        """The time at a place of the widget, in seconds; None beside the plot."""
        plot = self._plot()
        if not plot.left() <= x <= plot.right() or self.high_s <= self.low_s:
            return None
        return self.low_s + (x - plot.left()) / plot.width() * (self.high_s - self.low_s)

    def show_range(self, low_s: float, high_s: float) -> None:
        """Show these times, kept within the whole and not closer than a nanosecond."""
        whole = self.end_s - self.begin_s
        span = min(max(high_s - low_s, 1e-9), whole)
        before = self.low_s, self.high_s
        self.low_s = min(max(self.begin_s, low_s), self.end_s - span)
        self.high_s = self.low_s + span
        if (self.low_s, self.high_s) != before:
            self.range_changed.emit(self.low_s, self.high_s)
        self.update()

    def show_all(self) -> None:
        """Show everything."""
        self.show_range(self.begin_s, self.end_s)

    def time_axis(self, painter: QPainter, plot: QRectF) -> None:
        """Labels of round times below the plot."""
        painter.setFont(look.font(look.TINY))
        painter.setPen(look.palette().muted)
        row = QRectF(0, plot.bottom() + 3, 80, 14)
        times = ticks(self.low_s, self.high_s, max(2, int(plot.width() / 110)))
        for value, label in zip(times, look.fmt_ticks(times, "s"), strict=True):
            x = self._x(plot, value)
            place = min(max(x - 40, plot.left() - 40), plot.right() - 80)
            painter.drawText(row.translated(place, 0), Qt.AlignmentFlag.AlignHCenter, label)

    def caption(self, painter: QPainter, place: QRectF, text: str) -> None:
        """What a strip is, at its left."""
        painter.setFont(look.font(look.TINY))
        painter.setPen(look.palette().muted)
        flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(0, place.top(), LEFT - 6, place.height()), flags, text)

    def strip_name(self, painter: QPainter, place: QRectF, most: str, name: str) -> None:
        """Its largest value above its name at the left of a strip; in one line where it is low."""
        if place.height() < 2 * CAPTION_LINE:
            self.caption(painter, place, f"{name} {most}".strip())
            return
        upper = QRectF(place.left(), place.top(), place.width(), place.height() / 2)
        self.caption(painter, upper, most)
        self.caption(painter, upper.translated(0, place.height() / 2), name)

    def steps(
        self, painter: QPainter, place: QRectF, values: NDArray[np.float64], top: float, colour: QColor
    ) -> None:
        """A filled profile of columns over a strip, from 0 to `top`."""
        painter.setPen(QPen(look.palette().line, 1))
        painter.drawLine(place.bottomLeft(), place.bottomRight())
        if top <= 0.0 or not values.any():
            return
        x = np.linspace(place.left(), place.right(), len(values) + 1)
        y = place.bottom() - place.height() * np.minimum(values / top, 1.0)
        outline = list(map(QPointF, np.repeat(x, 2)[1:-1].tolist(), np.repeat(y, 2).tolist()))
        painter.setBrush(look.mix(look.palette().panel, colour, 0.22))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPolygon(QPolygonF([place.bottomLeft(), *outline, place.bottomRight()]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(colour, 1))
        painter.drawPolyline(QPolygonF(outline))

    def focus_frame(self, painter: QPainter) -> None:
        """A frame where the keyboard is here."""
        if self.hasFocus():
            painter.setPen(QPen(look.palette().accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))

    # -- the hand ----------------------------------------------------------------------------------
    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom at the pointer; sideways pans."""
        if self.end_s <= self.begin_s:
            return
        span = self.high_s - self.low_s
        turn, aside = event.angleDelta().y(), event.angleDelta().x()
        if abs(aside) > abs(turn):
            self.show_range(self.low_s - span * aside / 1200, self.high_s - span * aside / 1200)
        else:
            plot = self._plot()
            share = min(1.0, max(0.0, (event.position().x() - plot.left()) / plot.width()))
            held = self.low_s + share * span
            wider = span * 0.8 ** (turn / 120)
            self.show_range(held - share * wider, held + (1 - share) * wider)
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A press may become a pan or a click."""
        if event.button() is Qt.MouseButton.LeftButton:
            self._pressed, self._dragged = (event.position(), self.low_s), False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Pan while pressed; else say what is under the pointer."""
        if self._pressed is None:
            self.pointed_at(event.position())
            return
        start, low = self._pressed
        away = event.position().x() - start.x()
        if abs(away) > 3:
            self._dragged = True
        if self._dragged:
            span = self.high_s - self.low_s
            moved = low - away / self._plot().width() * span
            self.show_range(moved, moved + span)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A press without a move is a click."""
        pressed, self._pressed = self._pressed, None
        if pressed is not None and not self._dragged:
            self.clicked_at(event.position().x())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Everything."""
        if self.end_s > self.begin_s:
            self.show_all()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Plus, minus and 0 zoom."""
        span, middle = self.high_s - self.low_s, (self.low_s + self.high_s) / 2
        key = event.key()
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.show_range(middle - span * 0.4, middle + span * 0.4)
        elif key == Qt.Key.Key_Minus:
            self.show_range(middle - span * 0.625, middle + span * 0.625)
        elif key == Qt.Key.Key_0:
            self.show_all()
        else:
            super().keyPressEvent(event)
