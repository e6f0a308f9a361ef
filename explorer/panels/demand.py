"""DRAM demand over time: what one request asks of memory, phase by phase, alone on its slot; and what all slots take of
the bus that they share, while requests are served.

Knows the digest's `Demand`: the phases of all groups, whose nanoseconds and bytes sum exactly to latency and
traffic. What does not fit the screen is reduced to the largest demand per pixel column, never to an average (one
average per launch hides the bursts that lengthen a tail). What slots share is `Shared`'s, drawn by `bus.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout

from model.cost.result import PHASE_KINDS, CostResult
from model.serving.result import ServingResult

from .. import look
from ..controls import Combo, ElidedLabel
from ..digest import Demand
from ..document import Document
from ..names import group_name, result_label, result_tints
from ..shared import Shared
from .bus import BusChart
from .panel import Panel
from .timechart import LEFT, TimeChart, ticks

NARROW = 16.0
"""Pixels: no group's name has room in fewer."""
ALONE, BY_SLOT, BY_CAUSE = "One request alone", "All slots", "All slots by cause"
MODES = (ALONE, BY_SLOT, BY_CAUSE)
MUCH = 0.7
"""U_c from which on slots will wait for the bus (MINICASE 3.8)."""
BUS_TIP = (
    "U_c: load of the shared bus if all slots run the plan at once, slots · bytes / (bandwidth · time alone). "
    "X_c: how much longer identical requests in step take, the sum of time · max(0, demand · slots / bandwidth − 1) / "
    f"time alone. From U_c {MUCH} on slots wait for DRAM."
)


def capped(demand: Demand, port: float) -> Demand:
    """The demand with no rate above the port's: phases last whole nanoseconds, and a short one is rounded down."""
    return replace(demand, bytes_per_s=np.minimum(demand.bytes_per_s, port))


class Chart(TimeChart):
    """The plot; a click picks a group."""

    pointed = Signal(int)
    """Emitted with the phase under the pointer, -1 for none."""
    picked = Signal(int)
    """Emitted with the group of the phase that was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("DRAM demand over time")
        self.demand: Demand | None = None
        self.port: float | None = None
        self.group: int | None = None
        self.tints: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def end_s(self) -> float:
        """When the request is done."""
        return self.demand.whole_s if self.demand is not None else 0.0

    def sizeHint(self) -> QSize:
        """Wide and low."""
        return QSize(640, 160)

    def show_demand(self, demand: Demand, port: float | None, tints: NDArray[np.int64]) -> None:
        """Draw `demand`, groups in the colours of `tints`; the zoom is kept while the whole time is about the same."""
        before = self.demand.whole_s if self.demand is not None else 0.0
        self.demand, self.port, self.tints = demand, port, tints
        if not before or abs(demand.whole_s / before - 1.0) > 0.02 or self.high_s > demand.whole_s:
            self.low_s, self.high_s = 0.0, demand.whole_s
        self.update()

    def forget(self) -> None:
        """Draw nothing."""
        self.demand, self.group = None, None
        self.update()

    def show_group(self, group: int | None) -> None:
        """Bring out one group; None: all alike."""
        if group != self.group:
            self.group = group
            self.update()

    # -- painting ----------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """Axes, bars, the port's limit."""
        demand = self.demand
        if demand is None or self.high_s <= self.low_s:
            return
        painter = QPainter(self)
        plot = self._plot()
        top = max(demand.peak, self.port or 0.0) * 1.08 or 1.0
        self._axes(painter, plot, top)
        self._bars(painter, plot, top, demand)
        self._names(painter, plot, demand)
        self._limit(painter, plot, top)
        self.focus_frame(painter)
        painter.end()

    def _axes(self, painter: QPainter, plot: QRectF, top: float) -> None:
        colours = look.palette()
        painter.setFont(look.font(look.TINY))
        rates = ticks(0.0, top, max(2, int(plot.height() / 32)))
        for value, label in zip(rates, look.fmt_ticks(rates, "B/s"), strict=True):
            y = round(plot.bottom() - plot.height() * value / top)
            painter.setPen(QPen(colours.line, 1))
            painter.drawLine(QPointF(plot.left(), y + 0.5), QPointF(plot.right(), y + 0.5))
            painter.setPen(colours.muted)
            painter.drawText(
                QRectF(0, y - 8, LEFT - 6, 16),
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
                label,
            )
        self.time_axis(painter, plot)

    def _bars(self, painter: QPainter, plot: QRectF, top: float, demand: Demand) -> None:
        colours = look.palette()
        chosen = demand.bars(self.low_s, self.high_s, max(64, int(plot.width())))
        scale = plot.width() / (self.high_s - self.low_s)
        left = plot.left() + (np.maximum(demand.begin_s[chosen], self.low_s) - self.low_s) * scale
        right = plot.left() + (np.minimum(demand.end_s[chosen], self.high_s) - self.low_s) * scale
        height = plot.height() * demand.bytes_per_s[chosen] / top
        wide = np.maximum(1.0, right - left)
        hue = self.tints[demand.group[chosen]]
        lit = (
            np.ones(len(chosen), dtype=np.bool_) if self.group is None else demand.group[chosen] == self.group
        )
        # One call a colour: each call into Qt gives the interpreter's lock away and may have to wait for it.
        painter.setPen(Qt.PenStyle.NoPen)
        for number in np.unique(hue).tolist():
            fill = colours.groups[number]
            for some, brush in ((lit, fill), (~lit, look.mix(colours.panel, fill, 0.35))):
                of = some & (hue == number)
                if of.any():
                    sides = (left[of], plot.bottom() - height[of], wide[of], height[of])
                    painter.setBrush(brush)
                    painter.drawRects(list(map(QRectF, *(side.tolist() for side in sides))))
        painter.setPen(QPen(colours.faint, 1))
        painter.drawLine(plot.bottomLeft(), plot.bottomRight())

    def _names(self, painter: QPainter, plot: QRectF, demand: Demand) -> None:
        """The group's name at the foot of its bars, where they are wide enough: colours come again."""
        painter.setFont(look.font(look.TINY))
        metrics = painter.fontMetrics()
        for group, left, right in self.spans(plot, demand):
            text = group_name(group)
            wide = metrics.horizontalAdvance(text) + look.GRID
            if right - left < wide + 2:
                continue
            plate = QRectF((left + right - wide) / 2, plot.bottom() - 16, wide, 14)
            painter.fillRect(plate, look.palette().panel)
            painter.setPen(look.palette().text if group == self.group else look.palette().muted)
            painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, text)

    def spans(self, plot: QRectF, demand: Demand) -> list[tuple[int, float, float]]:
        """Groups that may have room for a name: each with where its bars begin and end within the plot."""
        first = int(np.searchsorted(demand.end_s, self.low_s, side="right"))
        last = int(np.searchsorted(demand.begin_s, self.high_s, side="left"))
        if last <= first:
            return []
        starts = first + np.flatnonzero(np.diff(demand.group[first:last], prepend=-1))
        ends = np.append(starts[1:], last) - 1
        scale = plot.width() / (self.high_s - self.low_s)
        left = plot.left() + (np.maximum(demand.begin_s[starts], self.low_s) - self.low_s) * scale
        right = plot.left() + (np.minimum(demand.end_s[ends], self.high_s) - self.low_s) * scale
        wide = right - left >= NARROW
        columns = demand.group[starts][wide].tolist(), left[wide].tolist(), right[wide].tolist()
        return list(zip(*columns, strict=True))

    def _limit(self, painter: QPainter, plot: QRectF, top: float) -> None:
        if self.port is None:
            return
        colours = look.palette()
        y = round(plot.bottom() - plot.height() * self.port / top) + 0.5
        painter.setPen(QPen(colours.bad, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        painter.setFont(look.font(look.TINY))
        text = f"port {look.fmt_rate(self.port)}"
        wide = painter.fontMetrics().horizontalAdvance(text) + 2 * look.GRID
        plate = QRectF(plot.right() - wide, y - 16, wide, 15)
        painter.fillRect(plate, colours.panel)
        painter.setPen(colours.bad)
        painter.drawText(plate, Qt.AlignmentFlag.AlignCenter, text)

    # -- the hand ----------------------------------------------------------------------------------
    def phase_at(self, x: float) -> int:
        """The phase under a place of the widget."""
        time_s = self.time_at(x)
        return -1 if self.demand is None or time_s is None else self.demand.at(time_s)

    def pointed_at(self, at: QPointF) -> None:
        """Say which phase it is."""
        self.pointed.emit(self.phase_at(at.x()))

    def clicked_at(self, x: float) -> None:
        """Pick the group."""
        phase = self.phase_at(x)
        if phase >= 0 and self.demand is not None:
            self.picked.emit(int(self.demand.group[phase]))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right pick the group before and after; plus, minus and 0 zoom."""
        demand, key = self.demand, event.key()
        if demand is None or not len(demand.group) or key not in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            super().keyPressEvent(event)
            return
        step = 1 if key == Qt.Key.Key_Right else -1
        now = self.group if self.group is not None else (-1 if step > 0 else int(demand.group[-1]) + 1)
        self.picked.emit(min(max(now + step, 0), int(demand.group[-1])))


class DemandProfile(Panel):
    """The demand panel."""

    HINT = "Point at a phase to read it · wheel zooms, drag pans, double-click shows everything"
    BUS_HINT = "Point at a row to read it · wheel zooms here and in the queue, drag pans, double-click shows everything"

    def __init__(self, document: Document, shared: Shared | None = None) -> None:
        super().__init__(document, "demand", "Demand over time", "DRAM bytes per second over time")
        self._result: CostResult | None = None
        self.shared = shared or Shared(document)
        self.chart = Chart()
        self.bus = BusChart()
        self.reading = ElidedLabel()
        self.reading.setText(self.HINT)
        self.mode = Combo("Whose demand")
        self.mode.setMinimumWidth(152)
        self.mode.addItems(list(MODES))
        self.mode.setToolTip(BUS_TIP)
        self.mode.currentIndexChanged.connect(self.invalidate)
        self.body.addWidget(self.chart, 1)
        self.body.addWidget(self.bus, 1)
        foot = QHBoxLayout()  # in reach beside a sentence as well
        foot.setContentsMargins(12, 0, 12, 8)
        foot.addWidget(self.reading, 1)
        foot.addWidget(self.mode)
        self.foot.addLayout(foot)
        self.chart.pointed.connect(self._read)
        self.chart.picked.connect(self._pick)
        self.bus.pointed.connect(lambda text: self.reading.setText(text or self.BUS_HINT))
        self.bus.range_changed.connect(self.shared.show)
        self.shared.window_changed.connect(self.bus.show_range)
        self.shared.changed.connect(self._shared_changed)
        self.follow("cost", document.cost_changed, document.serving_changed, document.machine_changed)
        document.selection_changed.connect(self._mark)
        document.graph_changed.connect(self._forget)

    def _forget(self) -> None:
        """What is drawn is of another graph, whose operators the selection knows nothing of."""
        self._result = None
        self.chart.forget()
        self.bus.show_seen(None, self.bus.by_cause)

    def _shared_changed(self) -> None:
        if self.mode.currentText() != ALONE:
            self.invalidate()

    def redraw(self) -> None:
        """The newest result's phases, or what the replay's slots take."""
        digest = self.document.digest
        alone = self.mode.currentText() == ALONE
        self.chart.setVisible(alone)
        self.bus.setVisible(not alone)
        self.reading.setText("")
        if self.explain_absence("the demand") or digest is None:
            return
        if not alone:
            self._show_bus()
            return
        result = digest.result
        port = result.request.accelerator.slot_bandwidth_bytes_per_s
        demand = capped(digest.demand, port)
        if not demand.whole_s:
            self.say("No group takes any time. Bind the symbolic dims (Ctrl+B).")
            return
        self._result = result
        self.set_line(
            f"DRAM, one request alone · peak {look.fmt_rate(demand.peak)} · mean {look.fmt_rate(digest.demand.mean)}"
        )
        tints = result_tints(result, len(look.palette().groups))
        self.chart.show_demand(demand, port if math.isfinite(port) else None, tints)
        self._mark()
        self.reading.setText(self.HINT)
        self.show_body()

    def _show_bus(self) -> None:
        served, seen = self.document.serving, self.shared.seen
        if served is None:
            self.say(
                "Nothing is served yet. Choose a workload in the header, or see Latency for what is missing."
            )
            return
        if served.unstable:
            self.say(
                "Unstable: the queue grows without end. Lower the rate or add slots (see Latency).", "warning"
            )
            return
        requests = served.requests
        begin_s, end_s = int(requests.arrival_ns[0]) * 1e-9, int(requests.completion_ns.max()) * 1e-9
        self.bus.show_ends(begin_s, end_s)
        self.shared.show(self.bus.low_s, self.bus.high_s)
        if seen is None:
            self.say("Replaying every request, and looking at the bus…")
            return
        if not seen.moved_bytes.any():
            self.say(
                "Nothing is known of this workload's DRAM traffic: its service times are its own. Choose one whose "
                "requests run the plan."
            )
            return
        self.bus.show_seen(seen, self.mode.currentText() == BY_CAUSE)
        self.set_line(self._bus_line(served))
        self.reading.setText(self.BUS_HINT)
        self.show_body()

    def _bus_line(self, served: ServingResult) -> str:
        """How full the bus is, and what the plan makes of it in closed form."""
        seen, pressure = self.shared.seen, self.shared.pressure
        assert seen is not None
        slots = "slots without end" if not seen.slots else f"{seen.slots:,} slot{'s' * (seen.slots != 1)}"
        if math.isfinite(seen.bandwidth_bytes_per_s):
            parts = [f"{slots} share {look.fmt_rate(seen.bandwidth_bytes_per_s)}"]
            parts.append(f"mean {look.fmt_percent(float(seen.load.mean()))} full")
            u, x = pressure
            sign = "⚠ " if u > MUCH else ""
            parts.append(f"{sign}U_c {u:.2f} · X_c {x:.2f} of this plan")
        else:
            parts = [f"{slots}, and bandwidth without end"]
        behind = self.shared.of is not served
        return " · ".join((*(("of the replay before",) if behind else ()), *parts))

    def _mark(self) -> None:
        """Bring out the group of the result that holds the first selected operator."""
        chosen = self.document.selection
        if self._result is not None:
            self.chart.show_group(self._result.request.plan.group_of[chosen[0]] if chosen else None)

    def _read(self, phase: int) -> None:
        demand, result = self.chart.demand, self._result
        if phase < 0 or demand is None or result is None:
            self.reading.setText(self.HINT)
            return
        group = int(demand.group[phase])
        label = result_label(result, group)
        lasts = look.fmt_seconds(float(demand.end_s[phase] - demand.begin_s[phase]))
        rate = look.fmt_rate(float(demand.bytes_per_s[phase]))
        begin = look.fmt_seconds(float(demand.begin_s[phase]))
        self.reading.setText(
            f"{label} · {PHASE_KINDS[int(demand.kind[phase])]} · {rate} for {lasts} from {begin}"
        )

    def _pick(self, group: int) -> None:
        if self._result is not None and group < len(self._result.groups):
            self.document.select(self._result.groups[group].operators)
