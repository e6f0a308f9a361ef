"""The queue over time: how many wait, how long those that come will wait, and what each slot does, stalls apart.

Knows `Timeline`, which the worker makes of the serving result. What does not fit the screen is reduced to the largest
value per column of pixels, slots to their busy and stalled share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QHBoxLayout, QPushButton

from model.serving.result import ServingResult

from .. import look
from ..controls import ElidedLabel
from ..document import Document
from ..runner import Lane
from ..timeline import SlotWork, Timeline
from .panel import Panel
from .timechart import LEFT, TimeChart

COLUMN = 2
"""Pixels of one column of time."""
ROOM = 6
"""Pixels that a batch must have on average to be drawn by itself."""
ROW, LEAST_ROW = 18.0, 7.0
"""Pixels of a slot's row, at most and at least: slots that find no room are counted and not drawn."""
RUNS, STALLS = 2, 1
"""Colours of a slot's work and of its stalls, as the parts of the tail have them."""


class QueueChart(TimeChart):
    """Two profiles and the slots below them, over one axis of time."""

    pointed = Signal(str)
    """Emitted with what stands at the pointer; empty beside the plot."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("The queue over time")
        self.timeline: Timeline | None = None

    def sizeHint(self) -> QSize:
        """Wide and low."""
        return QSize(640, 190)

    @property
    def begin_s(self) -> float:
        """The first arrival."""
        return self.timeline.begin_ns * 1e-9 if self.timeline is not None else 0.0

    @property
    def end_s(self) -> float:
        """The last completion."""
        return self.timeline.end_ns * 1e-9 if self.timeline is not None else 0.0

    def show_timeline(self, timeline: Timeline | None) -> None:
        """Draw another replay; the zoom is kept where it lasts about as long."""
        before = self.end_s - self.begin_s
        self.timeline = timeline
        whole = self.end_s - self.begin_s
        if not before or abs(whole / before - 1.0) > 0.02:
            self.low_s, self.high_s = self.begin_s, self.end_s
        else:
            self.show_range(self.low_s, self.high_s)
        built = timeline.result.build_up if timeline is not None else None
        if built is not None:
            self.setAccessibleDescription(f"at most {built.peak_waiting:,} requests wait at one time")
        self.update()

    def show_peak(self) -> None:
        """Show the longest stretch of waiting about the moment at which most wait."""
        if self.timeline is not None:
            low, high = self.timeline.around_peak()
            self.show_range(low * 1e-9, high * 1e-9)

    # -- where things stand ------------------------------------------------------------------------
    def drawn_slots(self) -> tuple[int, float]:
        """How many slots are drawn, and the height of their rows."""
        count = len(self.timeline.slots) if self.timeline is not None else 0
        room = self._plot().height() * 0.55
        high = min(ROW, max(LEAST_ROW, room / max(1, count)))
        return min(count, int(room / high)), high

    def _strips(self) -> tuple[QRectF, QRectF, QRectF]:
        """The places of waiting, of waits, and of the slots."""
        plot = self._plot()
        shown, high = self.drawn_slots()
        slots = QRectF(plot.left(), plot.bottom() - shown * high, plot.width(), shown * high)
        each = (slots.top() - plot.top() - 12) / 2
        waiting = QRectF(plot.left(), plot.top(), plot.width(), each)
        return waiting, waiting.translated(0, each + 6), slots

    # -- painting ----------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """Profiles, slots, the peak, the axis."""
        timeline = self.timeline
        if timeline is None or self.high_s <= self.low_s:
            return
        painter = QPainter(self)
        waiting, waits, slots = self._strips()
        columns = max(16, int(waiting.width() / COLUMN))
        low, high = self.low_s * 1e9, self.high_s * 1e9
        most = timeline.most_waiting(low, high, columns)
        self._profile(painter, waiting, most, "waiting", look.fmt_count(int(most.max(initial=0))))
        longest = timeline.longest_wait(low, high, columns)
        self._profile(painter, waits, longest, "wait", look.fmt_ns(int(longest.max(initial=0))))
        shown, row = self.drawn_slots()
        for number, work in enumerate(timeline.slots[:shown]):
            place = QRectF(slots.left(), slots.top() + number * row, slots.width(), row - 2)
            self._slot(painter, place, work)
            if number == 0 or row >= 10:
                self._caption(painter, place, f"slot {number}")
        self._peak(painter, waiting, slots.bottom())
        self.time_axis(painter, self._plot())
        self.focus_frame(painter)
        painter.end()

    def _caption(self, painter: QPainter, place: QRectF, text: str) -> None:
        painter.setFont(look.font(look.TINY))
        painter.setPen(look.palette().muted)
        flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(0, place.top(), LEFT - 6, place.height()), flags, text)

    def _profile(
        self, painter: QPainter, place: QRectF, values: NDArray[np.int64], name: str, most: str
    ) -> None:
        """A filled profile from nothing to its largest value, which stands beside it."""
        colours = look.palette()
        painter.setPen(QPen(colours.line, 1))
        painter.drawLine(place.bottomLeft(), place.bottomRight())
        upper = QRectF(place.left(), place.top(), place.width(), place.height() / 2)
        self._caption(painter, upper, most)
        self._caption(painter, upper.translated(0, place.height() / 2), name)
        top = int(values.max(initial=0))
        if not top:
            return
        x = np.linspace(place.left(), place.right(), len(values) + 1)
        y = place.bottom() - place.height() * values / top
        outline = list(map(QPointF, np.repeat(x, 2)[1:-1].tolist(), np.repeat(y, 2).tolist()))
        painter.setBrush(look.mix(colours.panel, colours.accent, 0.22))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPolygon(QPolygonF([place.bottomLeft(), *outline, place.bottomRight()]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(colours.accent, 1))
        painter.drawPolyline(QPolygonF(outline))

    def _slot(self, painter: QPainter, place: QRectF, work: SlotWork) -> None:
        """Batches one by one where they have room, else how busy and how stalled each column of time was."""
        colours = look.palette()
        painter.fillRect(place, colours.sunken)
        low, high = self.low_s * 1e9, self.high_s * 1e9
        inside = work.inside(low, high)
        runs: list[QRectF] = []
        stalls: list[QRectF] = []
        if len(inside) * ROOM <= place.width():
            scale = place.width() / (high - low)
            for batch in inside:
                begin, end = int(work.begin_ns[batch]), int(work.end_ns[batch])
                left = place.left() + (max(begin, low) - low) * scale
                right = place.left() + (min(end, high) - low) * scale
                runs.append(QRectF(left, place.top(), max(1.0, right - left - 1), place.height()))
                share = int(work.stall_ns[batch]) / max(1, end - begin)
                if share > 0.0:
                    down = place.height() * share
                    stalls.append(QRectF(left, place.bottom() - down, max(1.0, right - left - 1), down))
        else:
            columns = max(1, int(place.width() / COLUMN))
            busy, stalled = work.shares(low, high, columns)
            for values, rects in ((busy, runs), (stalled, stalls)):
                heights = (np.minimum(values, 1.0) * place.height()).tolist()
                rects += [
                    QRectF(place.left() + column * COLUMN, place.bottom() - down, COLUMN, down)
                    for column, down in enumerate(heights)
                    if down > 0.0
                ]
        painter.setPen(Qt.PenStyle.NoPen)
        for rects, hue in ((runs, RUNS), (stalls, STALLS)):
            if rects:
                painter.setBrush(colours.group(hue))
                painter.drawRects(rects)
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def _peak(self, painter: QPainter, top: QRectF, bottom: float) -> None:
        built = self.timeline.result.build_up if self.timeline is not None else None
        if built is None or not built.peak_waiting:
            return
        at = self._x(self._plot(), built.peak_at_ns * 1e-9)
        if not top.left() <= at <= top.right():
            return
        colours = look.palette()
        painter.setPen(QPen(colours.warn, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(at, top.top() - 4), QPointF(at, bottom))
        painter.setFont(look.font(look.TINY, strong=True))
        text = f"peak: {built.peak_waiting:,} wait"
        wide = painter.fontMetrics().horizontalAdvance(text)
        left = at + 4 if at + 4 + wide < top.right() else at - 4 - wide
        painter.setPen(colours.warn)
        painter.drawText(QRectF(left, 1, wide + 2, 14), Qt.AlignmentFlag.AlignLeft, text)

    # -- the hand ----------------------------------------------------------------------------------
    def pointed_at(self, at: QPointF) -> None:
        """Say how many wait, and what the slot under the pointer does."""
        time_s = self.time_at(at.x())
        timeline = self.timeline
        if timeline is None or time_s is None:
            self.pointed.emit("")
            return
        ns = time_s * 1e9
        said = [
            f"at {look.fmt_seconds(time_s)}: {timeline.waiting_at(ns):,} wait",
            f"{sum(work.at(ns) >= 0 for work in timeline.slots)} of {len(timeline.slots)} slots busy",
        ]
        _, _, slots = self._strips()
        shown, row = self.drawn_slots()
        number = int((at.y() - slots.top()) // row) if shown else -1
        if 0 <= number < shown:
            work = timeline.slots[number]
            batch = work.at(ns)
            if batch < 0:
                said.append(f"slot {number} idle")
            else:
                size, stall = int(work.size[batch]), int(work.stall_ns[batch])
                lasts = int(work.end_ns[batch] - work.begin_ns[batch])
                what = f"a batch of {size}" if size > 1 else "one request"
                said.append(
                    f"slot {number}: {what} for {look.fmt_ns(lasts)}, {look.fmt_ns(stall)} of it stalled"
                )
        self.pointed.emit(" · ".join(said))


class Queue(Panel):
    """The queue panel."""

    HINT = "Slots: work, and below it in orange what DRAM made it wait · wheel zooms, drag pans, double-click shows all"

    def __init__(self, document: Document) -> None:
        super().__init__(document, "queue", "Queue", "requests that wait, and what each slot does")
        self.chart = QueueChart()
        self.reading = ElidedLabel()
        self.reading.setText(self.HINT)
        self.peak = QPushButton("Around the peak")
        self.peak.setToolTip(
            "The longest stretch in which someone waited, about the moment at which most did"
        )
        self.whole = QPushButton("All")
        self.whole.setToolTip("From the first arrival to the last completion (0)")
        foot = QHBoxLayout()
        foot.addWidget(self.reading, 1)
        for button in (self.peak, self.whole):
            button.setProperty("quiet", True)
            foot.addWidget(button)
        self.body.addWidget(self.chart, 1)
        self.body.addLayout(foot)
        self.chart.pointed.connect(lambda text: self.reading.setText(text or self.HINT))
        self.peak.clicked.connect(self.chart.show_peak)
        self.whole.clicked.connect(self.chart.show_all)
        document.graph_changed.connect(lambda: self.chart.show_timeline(None))
        self.follow("serving", document.serving_changed, document.machine_changed)

    def redraw(self) -> None:
        """The newest serving result's timeline, as soon as the worker has made it."""
        result = self.document.serving
        if self.explain_absence("the queue"):
            return
        if result is None:
            self.say(
                "Nothing is served yet. Choose a workload in the header, or see Latency for what is missing."
            )
            return
        if result.unstable:
            self.say(
                "Unstable: the queue grows without end. Lower the rate or add slots (see Latency).", "warning"
            )
            return
        shown = self.chart.timeline
        if shown is None or shown.result is not result:
            self.document.ask(Lane.QUEUE, "Laying out the queue", lambda: Timeline.of(result), self._take)
        if shown is None:
            self.say("Laying out the queue…")
        else:
            self._describe(shown.result)
            self.show_body()

    def _take(self, timeline: Timeline) -> None:
        newest = self.document.serving
        if newest is None or newest.unstable:
            return  # it was asked for before there was nothing to lay out any more: the sentence stays
        self.chart.show_timeline(timeline)
        self._describe(timeline.result)
        self.show_body()

    def _describe(self, result: ServingResult) -> None:
        built = result.build_up
        shown, _ = self.chart.drawn_slots()
        parts = ["first estimate"] if result.first_estimate else []
        if built is not None and built.peak_waiting:
            parts.append(f"at most {built.peak_waiting:,} wait, at {look.fmt_ns(built.peak_at_ns)}")
            parts.append(f"someone waits for {look.fmt_ns(built.longest_ns)} on end")
        else:
            parts.append("nobody waits")
        if not result.slot_busy_ns:
            parts.append("slots without end")
        elif shown < len(result.slot_busy_ns):
            parts.append(f"{shown} of {len(result.slot_busy_ns):,} slots drawn")
        self.set_line(" · ".join(parts))
