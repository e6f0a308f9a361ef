"""The queue over time: how many wait, how long those that come will wait, what each slot does, stalls apart; and on
the same axis when the clock was low, how warm it was and what the KV cache held.

Knows `Timeline`, which the worker makes of the serving result, and `Shared`. What does not fit the screen is reduced to
the largest value per column of pixels, slots to their busy and stalled share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QHBoxLayout, QPushButton

from model.serving.result import ServingResult

from .. import look
from ..controls import ElidedLabel
from ..document import Document
from ..runner import Lane
from ..shared import Shared
from ..timeline import SlotWork, Timeline
from .panel import Panel
from .timechart import TimeChart

if TYPE_CHECKING:  # its kernels are not loaded on the GUI thread
    from model.serving.over_time import OverTime

COLUMN = 2
"""Pixels of one column of time."""
ROOM = 6
"""Pixels that a batch must have on average to be drawn by itself."""
ROW, LEAST_ROW = 18.0, 7.0
"""Pixels of a slot's row, at most and at least: slots that find no room are counted and not drawn."""
RUNS, STALLS = 2, 1
"""Colours of a slot's work and of its stalls, as the parts of the tail have them."""
DIE, CACHE = 5, 4
"""Colours of the die's temperature and of the KV cache."""
SLOTS_SHARE = {2: 0.55, 3: 0.46, 4: 0.38}
"""Part of the plot's height that slots may take beside so many strips."""


class QueueChart(TimeChart):
    """Strips and the slots below them, over one axis of time."""

    pointed = Signal(str)
    """Emitted with what stands at the pointer; empty beside the plot."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("The queue over time")
        self.timeline: Timeline | None = None
        self.seen: OverTime | None = None
        self.throttle_c = 0.0
        self.slow_ns: tuple[tuple[int, int], ...] = ()

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
            self.show_all()
        else:
            self.show_range(self.low_s, self.high_s)
        built = timeline.result.build_up if timeline is not None else None
        if built is not None:
            self.setAccessibleDescription(f"at most {built.peak_waiting:,} requests wait at one time")
        self.update()

    def show_seen(
        self, seen: OverTime | None, throttle_c: float, slow_ns: tuple[tuple[int, int], ...]
    ) -> None:
        """Draw temperatures (the clock lowers at `throttle_c`) and the cache, and the windows of a low clock."""
        self.seen, self.throttle_c, self.slow_ns = seen, throttle_c, slow_ns
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
        room = self._plot().height() * SLOTS_SHARE[len(self.strips())]
        high = min(ROW, max(LEAST_ROW, room / max(1, count)))
        return min(count, int(room / high)), high

    def strips(self) -> tuple[str, ...]:
        """Names of the strips above the slots."""
        seen = self.seen
        heat = ("die",) if seen is not None and len(seen.die_c) else ()
        cache = ("KV",) if seen is not None and len(seen.kv_bytes) else ()
        return ("waiting", "wait", *heat, *cache)

    def _strips(self) -> tuple[dict[str, QRectF], QRectF]:
        """The places of the strips, and of the slots."""
        plot, names = self._plot(), self.strips()
        shown, high = self.drawn_slots()
        slots = QRectF(plot.left(), plot.bottom() - shown * high, plot.width(), shown * high)
        each = (slots.top() - plot.top() - 6 * len(names)) / len(names)
        first = QRectF(plot.left(), plot.top(), plot.width(), each)
        return {name: first.translated(0, place * (each + 6)) for place, name in enumerate(names)}, slots

    # -- painting ----------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """Profiles, slots, the peak, the axis."""
        timeline = self.timeline
        if timeline is None or self.high_s <= self.low_s:
            return
        painter = QPainter(self)
        strips, slots = self._strips()
        first = strips["waiting"]
        self._low_clock(painter, first.top(), slots.bottom())
        columns = max(16, int(first.width() / COLUMN))
        low, high = self.low_s * 1e9, self.high_s * 1e9
        accent = look.palette().accent
        most = timeline.most_waiting(low, high, columns)
        top = int(most.max(initial=0))
        self.strip_name(painter, first, look.fmt_count(top), "waiting")
        self.steps(painter, first, most.astype(np.float64), top, accent)
        longest = timeline.longest_wait(low, high, columns)
        top = int(longest.max(initial=0))
        self.strip_name(painter, strips["wait"], look.fmt_ns(top), "wait")
        self.steps(painter, strips["wait"], longest.astype(np.float64), top, accent)
        if "die" in strips:
            self._temperatures(painter, strips["die"])
        if "KV" in strips:
            self._cache(painter, strips["KV"])
        shown, row = self.drawn_slots()
        for number, work in enumerate(timeline.slots[:shown]):
            place = QRectF(slots.left(), slots.top() + number * row, slots.width(), row - 2)
            self._slot(painter, place, work)
            if number == 0 or row >= 10:
                self.caption(painter, place, f"slot {number}")
        self._peak(painter, first, slots.bottom())
        self.time_axis(painter, self._plot())
        self.focus_frame(painter)
        painter.end()

    def _low_clock(self, painter: QPainter, top: float, bottom: float) -> None:
        """A hatched ground where batches run slower: windows of the workload, and what heat made of the clock."""
        plot = self._plot()
        stretches = [(begin * 1e-9, end * 1e-9) for begin, end in self.slow_ns]
        seen = self.seen
        if seen is not None and seen.low_clock.any():
            edges = (seen.view.low_ns + seen.view.column_ns * np.arange(seen.view.columns + 1)) * 1e-9
            low = np.concatenate(([False], seen.low_clock >= 0.5, [False])).astype(np.int8)
            turns = np.flatnonzero(np.diff(low))
            stretches += list(zip(edges[turns[::2]].tolist(), edges[turns[1::2]].tolist(), strict=True))
        colours = look.palette()
        ground = look.mix(colours.panel, colours.warn, 0.10)
        hatch = QBrush(look.mix(colours.panel, colours.warn, 0.35), Qt.BrushStyle.BDiagPattern)
        for begin, end in stretches:
            left, right = (min(max(self._x(plot, at), plot.left()), plot.right()) for at in (begin, end))
            if right > left:
                painter.fillRect(QRectF(left, top, right - left, bottom - top), ground)
                painter.fillRect(QRectF(left, top, right - left, bottom - top), hatch)

    def _temperatures(self, painter: QPainter, place: QRectF) -> None:
        """Die and sink as lines, and where the clock lowers."""
        seen, colours = self.seen, look.palette()
        assert seen is not None
        known = np.isfinite(seen.die_c)
        if not known.any():
            return
        low = min(float(seen.sink_c[known].min()), float(seen.die_c[known].min())) - 1.0
        high = max(float(seen.die_c[known].max()), min(self.throttle_c, low + 200.0)) + 1.0

        def line(celsius: np.ndarray) -> QPolygonF:
            at = (seen.view.low_ns + seen.view.column_ns * np.flatnonzero(known)) * 1e-9
            x = place.left() + place.width() * (at - self.low_s) / (self.high_s - self.low_s)
            y = place.bottom() - place.height() * (celsius[known] - low) / (high - low)
            inside = (x >= place.left() - 1) & (x <= place.right() + 1)
            return QPolygonF(list(map(QPointF, x[inside].tolist(), y[inside].tolist())))

        painter.setPen(QPen(colours.line, 1))
        painter.drawLine(place.bottomLeft(), place.bottomRight())
        y = place.bottom() - place.height() * (self.throttle_c - low) / (high - low)
        painter.setPen(QPen(colours.warn, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(place.left(), y), QPointF(place.right(), y))
        painter.setPen(QPen(colours.faint, 1.5))
        painter.drawPolyline(line(seen.sink_c))
        painter.setPen(QPen(colours.group(DIE), 1.5))
        painter.drawPolyline(line(seen.die_c))
        self.strip_name(painter, place, look.fmt_celsius(float(seen.die_c[known].max())), "die")

    def _cache(self, painter: QPainter, place: QRectF) -> None:
        """What the cache held at the most, of its capacity where there is one."""
        seen = self.seen
        assert seen is not None
        held = seen.kv_bytes.astype(np.float64)
        room = float(seen.kv_capacity_bytes or 0)
        self.strip_name(painter, place, look.fmt_bytes(float(held.max())), "KV")
        self.steps(painter, place, held, room or float(held.max()), look.palette().group_label(CACHE))
        if room:
            painter.setPen(QPen(look.palette().warn, 1, Qt.PenStyle.DashLine))
            painter.drawLine(place.topLeft(), place.topRight())

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
        said += self._shared_at(ns)
        _, slots = self._strips()
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

    def _shared_at(self, ns: float) -> list[str]:
        """Temperatures, clock and cache at a time."""
        seen, said = self.seen, []
        if any(begin <= ns < end for begin, end in self.slow_ns):
            said.append("throttled by the workload")
        column = int((ns - seen.view.low_ns) // seen.view.column_ns) if seen is not None else -1
        if seen is None or not 0 <= column < seen.view.columns:
            return said
        if len(seen.die_c) and np.isfinite(seen.die_c[column]):
            die, sink = float(seen.die_c[column]), float(seen.sink_c[column])
            clock = ", clock low" if seen.low_clock[column] >= 0.5 else ""
            said.append(f"die {look.fmt_celsius(die)}, sink {look.fmt_celsius(sink)}{clock}")
        if len(seen.kv_bytes):
            room = (
                f" of {look.fmt_bytes(seen.kv_capacity_bytes)}" if seen.kv_capacity_bytes is not None else ""
            )
            said.append(f"KV cache {look.fmt_bytes(int(seen.kv_bytes[column]))}{room}")
        return said


class Queue(Panel):
    """The queue panel."""

    HINT = "Slots: work, and below it in orange what DRAM made it wait · wheel zooms, drag pans, double-click shows all"
    HATCHED = "Hatched: batches take longer · "
    WARM = "Die orange, sink grey, dashed where the clock lowers · "

    def __init__(self, document: Document, shared: Shared | None = None) -> None:
        super().__init__(document, "queue", "Queue", "requests that wait, and what each slot does")
        self.shared = shared or Shared(document)
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
        self.chart.pointed.connect(lambda text: self.reading.setText(text or self._hint()))
        self.chart.range_changed.connect(self.shared.show)
        self.shared.window_changed.connect(self.chart.show_range)
        self.shared.changed.connect(self.invalidate)
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
        if shown is None:
            self.say("Laying out the queue…")
        else:
            self._show(shown)
        if shown is None or shown.result is not result:
            self.ask(Lane.QUEUE, "Laying out the queue", lambda: Timeline.of(result), self._take)

    def _take(self, timeline: Timeline) -> None:
        self.chart.show_timeline(timeline)
        self._show(timeline)

    def _show(self, timeline: Timeline) -> None:
        served = self.document.served
        throttle = () if served is None else served.load.workload.throttle.windows_ns
        heat = timeline.result.warmed
        self.chart.show_seen(self.shared.seen, 0.0 if heat is None else heat.throttle_c, throttle)
        if heat is not None or timeline.result.tokens is not None:
            self.shared.show(self.chart.low_s, self.chart.high_s)
        self.reading.setText(self._hint())
        self._describe(timeline.result)
        self.show_body()

    def _hint(self) -> str:
        timeline = self.chart.timeline
        slow = timeline is not None and timeline.result.throttled_ns > 0
        warm = timeline is not None and timeline.result.warmed is not None
        return (self.HATCHED if slow else "") + (self.WARM if warm else "") + self.HINT

    def _describe(self, result: ServingResult) -> None:
        built = result.build_up
        shown, _ = self.chart.drawn_slots()
        parts = ["first estimate"] if result.first_estimate else []
        if built is not None and built.peak_waiting:
            parts.append(f"at most {built.peak_waiting:,} wait, at {look.fmt_ns(built.peak_at_ns)}")
            parts.append(f"someone waits for {look.fmt_ns(built.longest_ns)} on end")
        else:
            parts.append("nobody waits")
        heat = result.warmed
        if heat is not None:
            parts.append(f"die at most {look.fmt_celsius(heat.peak_die_c)}")
        if result.throttled_ns:
            parts.append(f"throttled for {look.fmt_ns(result.throttled_ns)}")
        if not result.slot_busy_ns:
            parts.append("slots without end")
        elif shown < len(result.slot_busy_ns):
            parts.append(f"{shown} of {len(result.slot_busy_ns):,} slots drawn")
        self.set_line(" · ".join(parts))
