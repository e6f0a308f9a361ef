"""The distribution of response times: a curve, the baseline dashed, percentiles and the SLO as lines.

Knows `ServingResult`. The curve is thinned from the same requests that the model took the percentiles of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from model.serving.result import ServingResult

from .. import look

POINTS = 256


@dataclass(frozen=True, slots=True)
class Curve:
    """A distribution thinned to what a screen can show: times in ns and the share of requests at or below."""

    times_ns: NDArray[np.float64]
    shares: NDArray[np.float64]

    @staticmethod
    def of(result: ServingResult) -> Curve:
        """Every rank where there are few, else evenly spread ranks and the last hundredth in detail."""
        response = np.sort(result.requests.completion_ns - result.requests.arrival_ns)
        count = len(response)
        if count == 0:
            return Curve(np.zeros(0), np.zeros(0))
        spread = np.linspace(1, count, min(count, POINTS))
        tail = np.linspace(0.99 * count, count, min(count, POINTS // 4))
        ranks = np.unique(np.ceil(np.concatenate([spread, tail])).astype(np.int64))
        ranks = ranks[(ranks >= 1) & (ranks <= count)]
        return Curve(response[ranks - 1].astype(np.float64), ranks / count)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Response times on the screen: ends in ns, linear or logarithmic."""

    left_ns: float
    right_ns: float
    logarithmic: bool

    def x(self, plot: QRectF, ns: float) -> float:
        """Where a time lies within `plot`, clipped to it."""
        return float(self.xs(plot, np.array([ns]))[0])

    def xs(self, plot: QRectF, ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where times lie within `plot`, clipped to it."""
        if self.logarithmic:
            share = np.log(np.maximum(ns, self.left_ns) / self.left_ns) / math.log(
                self.right_ns / self.left_ns
            )
        else:
            share = (ns - self.left_ns) / (self.right_ns - self.left_ns)
        return plot.left() + plot.width() * np.clip(share, 0.0, 1.0)


def label_places(
    places: list[float], widths: list[float], left: float, right: float
) -> list[tuple[float, int]]:
    """Where three labels begin, and their lines (0 below, 1 above), so that none lies on another.

    Each stands about its place. Where they would meet, the middle one goes up and the outer two make room.
    """
    starts = [min(max(left, at - width / 2), right - width) for at, width in zip(places, widths, strict=True)]
    ends = [start + width + 8 for start, width in zip(starts, widths, strict=True)]
    if ends[0] <= starts[1] and ends[1] <= starts[2]:
        return [(start, 0) for start in starts]
    apart = max(0.0, ends[0] - starts[2])
    first = min(max(left, starts[0] - apart / 2), right - widths[2] - 8 - widths[0])
    return [(first, 0), (starts[1], 1), (max(starts[2], first + widths[0] + 8), 0)]


class Distribution(QWidget):
    """The share of requests answered within a time; the baseline dashed; percentiles and SLO as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumHeight(132)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.result: ServingResult | None = None
        self.baseline: ServingResult | None = None
        self.label = ""
        self._curve = Curve(np.zeros(0), np.zeros(0))
        self._base_curve = self._curve

    def sizeHint(self) -> QSize:
        """As in the mockup."""
        return QSize(380, 168)

    def show_results(self, result: ServingResult, baseline: ServingResult | None, label: str) -> None:
        """Draw `result`, and `baseline` with its label where there is one."""
        if result is not self.result:
            self._curve = Curve.of(result)
        if baseline is not self.baseline:
            self._base_curve = Curve.of(baseline) if baseline is not None else Curve(np.zeros(0), np.zeros(0))
        self.result, self.baseline, self.label = result, baseline, label
        self.setAccessibleDescription(
            f"p50 {look.fmt_ns(result.p50_ns)}, p95 {look.fmt_ns(result.p95_ns)}, "
            f"p99 {look.fmt_ns(result.p99_ns)}"
        )
        self.update()

    def _axis_of(self) -> TimeAxis:
        """From nothing to a little past p99; logarithmic where the tail is far away."""
        result = self.result
        assert result is not None
        right = max(1.0, float(result.p99_ns) * 1.06)
        if self.baseline is not None and not self.baseline.unstable:
            right = max(right, min(float(self.baseline.p99_ns), 20.0 * right))
        logarithmic = right > 25.0 * max(1.0, float(result.p50_ns))
        return TimeAxis(
            max(1.0, float(self._curve.times_ns[0]) * 0.9) if logarithmic else 0.0, right, logarithmic
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        """Frame, curves, percentile lines, labels."""
        if self.result is None or not len(self._curve.times_ns):
            return
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        plot = QRectF(22, 34, self.width() - 34, self.height() - 34 - 22)
        axis = self._axis_of()
        painter.setPen(QPen(colours.faint, 1))
        painter.drawLine(plot.bottomLeft(), plot.topLeft())
        painter.drawLine(plot.bottomLeft(), plot.bottomRight())
        painter.setFont(look.font(look.TINY))
        painter.setPen(colours.muted)
        painter.drawText(QRectF(0, plot.top() - 8, 18, 16), Qt.AlignmentFlag.AlignRight, "1")
        painter.drawText(QRectF(0, plot.bottom() - 12, 18, 16), Qt.AlignmentFlag.AlignRight, "0")
        self._percentiles(painter, plot, axis)
        self._slo(painter, plot, axis)
        if len(self._base_curve.times_ns):
            pen = QPen(colours.faint, 1.5, Qt.PenStyle.DashLine)
            self._line(painter, plot, axis, self._base_curve, pen)
        self._line(painter, plot, axis, self._curve, QPen(colours.accent, 2))
        self._ends(painter, plot, axis)
        painter.end()

    def _line(self, painter: QPainter, plot: QRectF, axis: TimeAxis, curve: Curve, pen: QPen) -> None:
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        seen = curve.times_ns <= axis.right_ns
        x = axis.xs(plot, curve.times_ns[seen]).tolist()
        y = (plot.bottom() - plot.height() * curve.shares[seen]).tolist()
        first = QPointF(axis.x(plot, float(curve.times_ns[0])), plot.bottom())
        painter.drawPolyline(QPolygonF([first, *map(QPointF, x, y)]))

    def _percentiles(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        """Dashed lines with their labels; where these would overlap, p95 stands above the other two."""
        assert self.result is not None
        colours, result = look.palette(), self.result
        painter.setFont(look.font(look.SMALL, strong=True))
        marks = (("p50", result.p50_ns), ("p95", result.p95_ns), ("p99", result.p99_ns))
        texts = [self._label(name, ns) for name, ns in marks]
        widths = [float(painter.fontMetrics().horizontalAdvance(text)) for text in texts]
        places = [axis.x(plot, float(ns)) for _, ns in marks]
        painter.setPen(QPen(colours.faint, 1, Qt.PenStyle.DashLine))
        for at in places:
            painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()))
        painter.setPen(colours.text)
        rows = label_places(places, widths, plot.left() - 18, plot.right() + 10)
        for text, width, (start, line) in zip(texts, widths, rows, strict=True):
            painter.drawText(
                QRectF(start, plot.top() - 18 - 14 * line, width + 2, 14), Qt.AlignmentFlag.AlignLeft, text
            )

    def _label(self, name: str, ns: int) -> str:
        assert self.result is not None
        if name in self.result.too_few:
            return f"{name} too few requests"
        interval = dict(self.result.interval_s).get(name)
        if interval is None:
            return f"{name} {look.fmt_ns(ns)}"
        divisor, unit = look.seconds_unit(ns * 1e-9)
        half = (interval[1] - interval[0]) / 2 / divisor
        return f"{name} {look.fmt_ns(ns).split(' ')[0]} ± {half:.2g} {unit}"

    def _slo(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        assert self.result is not None
        limit = self.result.slo_response_s
        if limit is None or limit * 1e9 > axis.right_ns:
            return
        colours = look.palette()
        missed = self.result.p95_ns > limit * 1e9
        painter.setPen(QPen(colours.bad if missed else colours.good, 1.5))
        at = axis.x(plot, limit * 1e9)
        painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()))
        painter.setFont(look.font(look.TINY, strong=True))
        text = f"SLO {look.fmt_seconds(limit)}"
        width = painter.fontMetrics().horizontalAdvance(text)
        start = at - width - 4 if at - width - 4 > plot.left() else at + 4
        painter.drawText(QRectF(start, plot.bottom() - 16, width + 2, 14), Qt.AlignmentFlag.AlignLeft, text)

    def _ends(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        colours = look.palette()
        painter.setFont(look.font(look.TINY))
        painter.setPen(colours.muted)
        row = QRectF(plot.left(), plot.bottom() + 4, plot.width() + 8, 13)
        painter.drawText(
            row, Qt.AlignmentFlag.AlignLeft, look.fmt_ns(int(axis.left_ns)) if axis.logarithmic else "0"
        )
        painter.drawText(row, Qt.AlignmentFlag.AlignRight, look.fmt_ns(int(axis.right_ns)))
        middle = f"response{', log' if axis.logarithmic else ''}"
        if len(self._base_curve.times_ns):
            middle = f"- -  {self.label}        ——  this plan        {middle}"
        painter.drawText(row, Qt.AlignmentFlag.AlignHCenter, middle)
