"""A distribution of times: a curve over a histogram, the baseline dashed, percentiles with their intervals.

Knows `ServingResult`. The curve is thinned from the same requests that the model took the percentiles of. The objective
is a line that the hand takes hold of: while it moves, the share of requests within it is read off the same requests. It
is of the response, so times of tokens have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from model.serving.result import ServingResult

from .. import look
from ..load import DEFAULT_PERCENTILE

POINTS = 256
BAR = 5
"""Pixels of one bar of the histogram."""
LABEL = 14.0
"""Height of a percentile's label."""
GRIP = 6.0
"""Pixels beside the objective's line at which the hand takes hold of it."""
BESIDE = 3.0
"""The baseline may stretch the axis so far: what is looked at keeps a third of it."""
STEP = 1.02
"""One key stroke moves the objective by this factor."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A distribution thinned to what a screen can show: times in ns and the share of requests at or below.

    ``ranked``, int64[n] ns, are all responses in ascending order.
    """

    times_ns: NDArray[np.float64]
    shares: NDArray[np.float64]
    ranked: NDArray[np.int64]

    @staticmethod
    def of(ranked: NDArray[np.int64]) -> Curve:
        """Every rank where there are few, else evenly spread ranks and the last hundredth in detail."""
        count = len(ranked)
        if count == 0:
            return NO_CURVE
        spread = np.linspace(1, count, min(count, POINTS))
        tail = np.linspace(0.99 * count, count, min(count, POINTS // 4))
        ranks = np.unique(np.ceil(np.concatenate([spread, tail])).astype(np.int64))
        ranks = ranks[(ranks >= 1) & (ranks <= count)]
        return Curve(ranked[ranks - 1].astype(np.float64), ranks / count, ranked)

    def within(self, ns: float) -> float:
        """Share of requests that answer within a time."""
        return float(np.searchsorted(self.ranked, ns, side="right")) / max(1, len(self.ranked))


NO_CURVE = Curve(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))


MEASURES = {"response": "response", "ttft": "time to first token", "tpot": "time per output token"}
NAMES = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Measured:
    """One of `MEASURES` of a result: percentiles in ns by name, intervals in s of those that have one, and which have
    too few requests for one.
    """

    percentiles_ns: dict[str, int]
    interval_s: dict[str, tuple[float, float]]
    too_few: tuple[str, ...]
    ranked_ns: NDArray[np.int64]

    @staticmethod
    def of(result: ServingResult, measure: str) -> Measured | None:
        """None where the result has no such times."""
        ranked = dict(result.ranked_ns).get(measure)
        if ranked is None:
            return None
        if measure == "response":
            values = (result.p50_ns, result.p95_ns, result.p99_ns)
            return Measured(
                dict(zip(NAMES, values, strict=True)), dict(result.interval_s), result.too_few, ranked
            )
        tokens, scope = result.tokens, f"{measure}."
        assert tokens is not None
        values = tokens.ttft_ns if measure == "ttft" else tokens.tpot_ns
        intervals = {
            name.removeprefix(scope): ends for name, ends in result.token_interval_s if name.startswith(scope)
        }
        few = tuple(name.removeprefix(scope) for name in result.token_too_few if name.startswith(scope))
        return Measured(dict(zip(NAMES, values, strict=False)), intervals, few, ranked)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Response times on the screen: ends in ns, linear or logarithmic."""

    left_ns: float
    right_ns: float
    logarithmic: bool

    def x(self, plot: QRectF, ns: float) -> float:
        """Where a time lies within `plot`, clipped to it."""
        return float(self.xs(plot, np.array([ns]))[0])

    def ns(self, plot: QRectF, x: float) -> float:
        """The time at a place, within the axis."""
        share = min(1.0, max(0.0, (x - plot.left()) / max(1.0, plot.width())))
        if self.logarithmic:
            return self.left_ns * (self.right_ns / self.left_ns) ** share
        return self.left_ns + (self.right_ns - self.left_ns) * share

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

    limit_set = Signal(int)
    """Emitted with the objective in ns that the hand has set, when it lets go."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumHeight(128)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMouseTracking(True)
        self.result: ServingResult | None = None
        self.baseline: ServingResult | None = None
        self.label = ""
        self.settable = False
        self.whose = ""  # the stream that has the objective, of several
        self.asked = DEFAULT_PERCENTILE  # of an objective that the hand may set
        self._moving_ns: float | None = None  # the objective that the hand set, until a result knows of it
        self._held = False
        self._held_axis = TimeAxis(0.0, 1.0, False)
        self._curve = self._base_curve = NO_CURVE
        self.measure = "response"
        self._shown: Measured | None = None
        self._base: Measured | None = None

    def sizeHint(self) -> QSize:
        """As low as its labels and ten steps of the curve can be read; it takes what room there is."""
        return QSize(380, 136)

    def show_results(
        self,
        result: ServingResult,
        baseline: ServingResult | None,
        label: str,
        *,
        settable: bool = False,
        asked: float = DEFAULT_PERCENTILE,
        measure: str = "response",
        whose: str = "",
    ) -> None:
        """Draw one of `MEASURES` of `result`, and of `baseline` with its label where there is one.

        `settable`: there can be an objective, that the share `asked` of the requests answers within a time; of the
        stream `whose` where there are several.
        """
        if measure != self.measure or (result is not self.result and not self._held):
            self._moving_ns, self._held = None, False
        if (result, measure) != (self.result, self.measure):
            self._shown = Measured.of(result, measure)
            self._curve = Curve.of(self._shown.ranked_ns) if self._shown is not None else NO_CURVE
        if (baseline, measure) != (self.baseline, self.measure):
            self._base = Measured.of(baseline, measure) if baseline is not None else None
            self._base_curve = Curve.of(self._base.ranked_ns) if self._base is not None else NO_CURVE
        self.result, self.baseline, self.label, self.measure = result, baseline, label, measure
        settable = settable and measure == "response"
        self.settable, self.asked, self.whose = settable, asked, whose
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if settable else Qt.FocusPolicy.NoFocus)
        marks = ", ".join(f"{name} {look.fmt_ns(ns)}" for name, ns in self._marks())
        self.setAccessibleDescription(
            f"{MEASURES[measure]}: {marks}" + (f", {self._objective()}" if settable else "")
        )
        self.update()

    # -- the objective -----------------------------------------------------------------------------
    @property
    def limit_ns(self) -> float | None:
        """The objective as it is shown: under the hand, else the result's."""
        return self._given_ns() if self._moving_ns is None else self._moving_ns

    def _objective(self) -> str:
        """``SLO p95 within 35.0 ms · 91.2 % are``."""
        limit, result = self.limit_ns, self.result
        if limit is None or result is None:
            return "drag to set an objective"
        share = result.slo_percentile or self.asked
        whose = f"{self.whose} " if self.whose else ""
        within = f"SLO {whose}{look.fmt_percentile(share)} within {look.fmt_ns(round(limit))}"
        attained = self._attained(limit)
        return within if attained is None else f"{within} · {look.fmt_percent(attained)} are"

    def _attained(self, limit_ns: float) -> float | None:
        """The model's figure, but while the hand moves the line; None where the curve is of other streams too."""
        known = self.result.slo_attainment if self.result is not None else None
        if known is not None and self._moving_ns is None:
            return known
        return None if self.whose else self._curve.within(limit_ns)

    def _plot(self) -> QRectF:
        top = 20.0 + LABEL * max((line for _, _, line in self._labels()), default=0)
        return QRectF(22, top, self.width() - 34, self.height() - top - 22)

    def _labels(self) -> list[tuple[str, float, int]]:
        """Text, left end and line of each percentile's label; where they would overlap, p95 stands above the others."""
        marks = self._marks()
        if not marks or not len(self._curve.times_ns):
            return []
        across, axis = QRectF(22, 0, self.width() - 34, 1), self._axis_of()
        metrics = QFontMetricsF(look.font(look.SMALL, strong=True))
        texts = [self._label(name, ns) for name, ns in marks]
        widths = [metrics.horizontalAdvance(text) for text in texts]
        places = [axis.x(across, float(ns)) for _, ns in marks]
        rows = label_places(
            places, widths, across.left(), across.right() + 10
        )  # left of it stands the axis's own
        return [(text, start, line) for text, (start, line) in zip(texts, rows, strict=True)]

    def _grip(self) -> float | None:
        """Where the hand takes hold of the objective; at the right end where there is none or it lies beyond."""
        if not self.settable or not len(self._curve.times_ns):
            return None
        plot, limit = self._plot(), self.limit_ns
        return plot.right() if limit is None else self._axis_of().x(plot, limit)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the objective."""
        grip = self._grip()
        near = grip is not None and abs(event.position().x() - grip) <= GRIP
        if event.button() is Qt.MouseButton.LeftButton and near:
            self._held_axis, self._held = self._axis_of(), True
            self._moving_ns = self._held_axis.ns(self._plot(), event.position().x())
            self.update()
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move it; else say by the pointer's shape that it can be moved."""
        if self._held:
            self._moving_ns = max(1.0, self._held_axis.ns(self._plot(), event.position().x()))
            self.update()
            return
        grip = self._grip()
        near = grip is not None and abs(event.position().x() - grip) <= GRIP
        self.setCursor(Qt.CursorShape.SizeHorCursor if near else Qt.CursorShape.ArrowCursor)
        self.setToolTip(f"{self._objective()}. Drag the line to set it." if near else "")

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Set it."""
        held, self._held = self._held, False
        if held and self._moving_ns is not None:
            self.limit_set.emit(round(self._moving_ns))
            self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right move the objective; Escape lets go of it."""
        key, limit = event.key(), self.limit_ns
        if key == Qt.Key.Key_Escape and self._held:
            self._moving_ns, self._held = None, False
            self.update()
        elif self.settable and self.result is not None and key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            begin = float(self.result.p95_ns) if limit is None else limit
            self.limit_set.emit(max(1, round(begin * STEP if key == Qt.Key.Key_Right else begin / STEP)))
        else:
            super().keyPressEvent(event)

    def _given_ns(self) -> float | None:
        """The result's own objective, of what is shown."""
        limit = self.result.slo_response_s if self.result is not None and self.measure == "response" else None
        return None if limit is None else limit * 1e9

    def _marks(self) -> tuple[tuple[str, int], ...]:
        """Percentiles by name; none before there is a result."""
        return tuple(self._shown.percentiles_ns.items()) if self._shown is not None else ()

    # -- painting ----------------------------------------------------------------------------------
    def _axis_of(self) -> TimeAxis:
        """From nothing to a little past p99; logarithmic where the tail is far away; held still under the hand."""
        if self._held:
            return self._held_axis
        marks, limit = dict(self._marks()), self._given_ns()
        right = max(1.0, marks["p99"] * 1.06)
        if self._base is not None and self.baseline is not None and not self.baseline.unstable:
            right = max(right, min(float(self._base.percentiles_ns["p99"]), BESIDE * right))
        if limit is not None:
            right = max(right, min(limit * 1.06, 2.0 * right))
        logarithmic = right > 25.0 * max(1.0, float(marks["p50"]))
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
        plot = self._plot()
        axis = self._axis_of()
        self._histogram(painter, plot, axis)
        self._intervals(painter, plot, axis)
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
        if self.hasFocus():
            painter.setPen(QPen(colours.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()

    def _histogram(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        """Where responses lie: the fullest bar is half as high as the plot."""
        bars = max(1, int(plot.width() / BAR))
        edges = [axis.ns(plot, plot.left() + plot.width() * at / bars) for at in range(bars + 1)]
        counts = np.diff(np.searchsorted(self._curve.ranked, edges, side="right"))
        most = int(counts.max())
        if not most:
            return
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.mix(look.palette().panel, look.palette().accent, 0.16))
        wide = plot.width() / bars
        painter.drawRects(
            [
                QRectF(plot.left() + bar * wide, plot.bottom() - high, wide - 1, high)
                for bar, high in enumerate((plot.height() / 2 * counts / most).tolist())
                if high
            ]
        )
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def _intervals(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        """A band about each percentile that has an interval."""
        assert self._shown is not None
        band = QColor(look.palette().accent)
        band.setAlphaF(0.14)
        for name, (low, high) in self._shown.interval_s.items():
            if name in NAMES:
                left, right = axis.x(plot, low * 1e9), axis.x(plot, high * 1e9)
                painter.fillRect(QRectF(left, plot.top(), max(1.0, right - left), plot.height()), band)

    def _line(self, painter: QPainter, plot: QRectF, axis: TimeAxis, curve: Curve, pen: QPen) -> None:
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        seen = curve.times_ns <= axis.right_ns
        x = axis.xs(plot, curve.times_ns[seen]).tolist()
        y = (plot.bottom() - plot.height() * curve.shares[seen]).tolist()
        first = QPointF(axis.x(plot, float(curve.times_ns[0])), plot.bottom())
        painter.drawPolyline(QPolygonF([first, *map(QPointF, x, y)]))

    def _percentiles(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        """Dashed lines with their labels."""
        colours = look.palette()
        painter.setPen(QPen(colours.faint, 1, Qt.PenStyle.DashLine))
        for _, ns in self._marks():
            at = axis.x(plot, float(ns))
            painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()))
        painter.setFont(look.font(look.SMALL, strong=True))
        painter.setPen(colours.text)
        for text, start, line in self._labels():
            row = QRectF(start, plot.top() - 4 - LABEL * (line + 1), self.width(), LABEL)
            painter.drawText(row, Qt.AlignmentFlag.AlignLeft, text)

    def _label(self, name: str, ns: int) -> str:
        assert self._shown is not None
        if name in self._shown.too_few:  # the number is this run's; what it says of the load is not known
            return f"{name} {look.fmt_ns(ns)}, too few"
        interval = self._shown.interval_s.get(name)
        if interval is None:
            return f"{name} {look.fmt_ns(ns)}"
        return f"{name} {look.fmt_within(ns * 1e-9, *interval)}"

    def _slo(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        result, limit = self.result, self.limit_ns
        assert result is not None
        colours = look.palette()
        painter.setFont(look.font(look.TINY, strong=True))
        metrics = painter.fontMetrics()
        if limit is None:
            if self.settable:
                text = "◂ SLO: drag"
                wide = metrics.horizontalAdvance(text)
                painter.setPen(QPen(colours.muted, 1.5))
                painter.drawLine(QPointF(plot.right(), plot.bottom() - 22), plot.bottomRight())
                row = QRectF(plot.right() - wide - 6, plot.bottom() - 20, wide + 2, 14)
                painter.drawText(row, Qt.AlignmentFlag.AlignLeft, text)
            return
        attained = self._attained(limit)
        missed = attained is not None and attained < (result.slo_percentile or self.asked)
        colour = colours.muted if attained is None else colours.bad if missed else colours.good
        painter.setPen(QPen(colour, 2.0 if self._held else 1.5))
        at = axis.x(plot, limit)
        painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()))
        painter.fillRect(QRectF(at - 3, plot.bottom() - 4, 6, 8), colour)  # what the hand takes hold of
        beyond = " ▸" if limit > axis.right_ns else ""
        sign = "" if attained is None else "✕ " if missed else "✓ "
        text = f"{sign}{self._objective()}{beyond}"
        wide = metrics.horizontalAdvance(text)
        start = at - wide - 6 if at - wide - 6 > plot.left() else at + 6
        plate = QRectF(start - 2, plot.bottom() - 18, wide + 4, 14)
        painter.fillRect(plate, colours.panel)
        painter.drawText(plate.adjusted(2, 0, 2, 0), Qt.AlignmentFlag.AlignLeft, text)

    def _ends(self, painter: QPainter, plot: QRectF, axis: TimeAxis) -> None:
        colours = look.palette()
        painter.setFont(look.font(look.TINY))
        painter.setPen(colours.muted)
        row = QRectF(plot.left(), plot.bottom() + 4, plot.width() + 8, 13)
        left = look.fmt_ns(int(axis.left_ns)) if axis.logarithmic else "0"
        right = look.fmt_ns(int(axis.right_ns))
        painter.drawText(row, Qt.AlignmentFlag.AlignLeft, left)
        painter.drawText(row, Qt.AlignmentFlag.AlignRight, right)
        metrics = painter.fontMetrics()
        room = row.width() - 2 * max(metrics.horizontalAdvance(left), metrics.horizontalAdvance(right)) - 16
        middle = f"{MEASURES[self.measure]}{', log' if axis.logarithmic else ''}"
        if len(self._base_curve.times_ns):
            base = f"- -  {self.label}"
            legends = (
                f"{base}        ——  this plan        {middle}",
                f"{base}    —— this plan    {middle}",
                f"{base}    {middle}",
            )
            middle = next((text for text in legends if metrics.horizontalAdvance(text) <= room), middle)
        painter.drawText(row, Qt.AlignmentFlag.AlignHCenter, middle)
