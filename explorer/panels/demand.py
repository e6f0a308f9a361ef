"""DRAM demand over time: what one request asks of memory, phase by phase, alone on its slot.

Knows `GroupResult.phases`: nanoseconds and bytes that sum exactly to latency and traffic. Zoom and pan by
wheel and drag; what does not fit the screen is reduced to the largest demand per column, never to an average
(one average per launch hides the bursts that lengthen a tail).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QBrush, QPen
from PySide6.QtWidgets import QLabel

from model.cost.result import PHASE_KINDS, CostResult

from .. import look
from ..document import Document
from ..names import group_label, group_tints
from .panel import Panel

MOST_BARS = 1500


@dataclass(frozen=True, slots=True)
class Demand:
    """Phases in order: begin and end in seconds, bytes per second, kind and group of each."""

    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    kind: NDArray[np.int32]
    group: NDArray[np.int32]

    @staticmethod
    def of(result: CostResult) -> Demand:
        """All phases of all groups, one after the other."""
        if not result.groups:
            empty = np.zeros(0)
            return Demand(empty, empty, empty, np.zeros(0, np.int32), np.zeros(0, np.int32))
        phases = np.concatenate([group.phases for group in result.groups])
        owner = np.repeat(
            np.arange(len(result.groups), dtype=np.int32), [len(group.phases) for group in result.groups]
        )
        lasting = phases["base_ns"] > 0
        phases, owner = phases[lasting], owner[lasting]
        end_ns = np.cumsum(phases["base_ns"])
        begin_ns = end_ns - phases["base_ns"]
        rate = phases["bytes"] * 1e9 / phases["base_ns"]
        return Demand(begin_ns * 1e-9, end_ns * 1e-9, rate, phases["kind"].astype(np.int32), owner)

    @property
    def peak(self) -> float:
        """Largest demand in bytes per second."""
        return float(self.bytes_per_s.max()) if len(self.bytes_per_s) else 0.0

    @property
    def mean(self) -> float:
        """Bytes over the whole time."""
        if not len(self.end_s):
            return 0.0
        moved = float(((self.end_s - self.begin_s) * self.bytes_per_s).sum())
        return moved / float(self.end_s[-1])

    def at(self, time_s: float) -> int:
        """Index of the phase at a time; -1 outside."""
        if not len(self.end_s) or not 0.0 <= time_s < self.end_s[-1]:
            return -1
        return int(np.searchsorted(self.end_s, time_s, side="right"))

    def bars(self, low_s: float, high_s: float, most: int = MOST_BARS) -> NDArray[np.int64]:
        """Indices of the phases to draw between two times: all, or the highest of each column."""
        first = int(np.searchsorted(self.end_s, low_s, side="right"))
        last = int(np.searchsorted(self.begin_s, high_s, side="left"))
        inside = np.arange(first, max(first, last), dtype=np.int64)
        if len(inside) <= most:
            return inside
        column = (self.begin_s[inside] - low_s) / max(high_s - low_s, 1e-30) * most
        column = np.clip(column.astype(np.int64), 0, most - 1)
        order = np.lexsort((self.bytes_per_s[inside], column))
        highest = np.append(np.flatnonzero(np.diff(column[order])), len(order) - 1)
        return inside[np.sort(order[highest])]


class DemandProfile(Panel):
    """The demand panel. pyqtgraph is imported when it is first shown: 0.9 s that the start does not pay."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "demand", "Demand over time", "DRAM bytes per second of one request alone")
        self._plot: Any = None
        self._bars: Any = None
        self._limit: Any = None
        self._demand: Demand | None = None
        self._result: CostResult | None = None
        self.reading = QLabel()
        self.reading.setProperty("muted", True)
        self.reading.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.follow("cost", document.cost_changed)
        document.selection_changed.connect(self._highlight)

    def _build(self) -> Any:
        """The plot."""
        import pyqtgraph

        pyqtgraph.setConfigOptions(antialias=False)
        plot: Any = pyqtgraph.PlotWidget()
        plot.setMenuEnabled(False)
        plot.hideButtons()
        plot.setMouseEnabled(x=True, y=False)
        plot.setAccessibleName("DRAM demand over time")
        plot.getAxis("bottom").setLabel("time", units="s")
        plot.getAxis("left").setLabel("demand", units="B/s")
        plot.getViewBox().setDefaultPadding(0.0)
        scene: Any = plot.scene()  # pyqtgraph's own class, with signals of its own
        scene.sigMouseMoved.connect(self._moved)
        scene.sigMouseClicked.connect(self._clicked)
        plot.getViewBox().sigXRangeChanged.connect(lambda *_: self._draw())
        self._bars = pyqtgraph.BarGraphItem(x0=[], x1=[], height=[])
        self._limit = pyqtgraph.InfiniteLine(
            angle=0, label="", labelOpts={"position": 0.98, "anchors": [(1, 0), (1, 0)]}
        )
        plot.addItem(self._bars)
        plot.addItem(self._limit)
        self.body.addWidget(plot, 1)
        self.body.addWidget(self.reading)
        return plot

    def _colour(self) -> None:
        """The theme's colours; the plot is not a styled widget."""
        colours = look.palette()
        self._plot.setBackground(colours.panel)
        for side in ("left", "bottom"):
            axis = self._plot.getAxis(side)
            axis.setPen(colours.faint)
            axis.setTextPen(colours.muted)
            axis.setTickFont(look.font(look.TINY))
            axis.label.setFont(look.font(look.TINY))
        self._limit.setPen(QPen(colours.bad, 0, Qt.PenStyle.DashLine))
        self._limit.label.setColor(colours.muted)
        self._limit.label.setFont(look.font(look.TINY))
        self._limit.label.fill = QBrush(colours.panel)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and self._plot is not None:
            self._colour()
            self._draw()

    def redraw(self) -> None:
        """The newest result's phases; the zoom is kept while the time stays about the same."""
        result = self.document.cost
        if self.explain_absence("the demand") or result is None:
            return
        if self._plot is None:
            self._plot = self._build()
            self._colour()
        before = self._demand
        self._result, self._demand = result, Demand.of(result)
        demand = self._demand
        if not len(demand.end_s):
            self.say("No group takes any time. Bind the symbolic dims (Ctrl+B).")
            return
        peak, mean = look.fmt_rate(demand.peak), look.fmt_rate(demand.mean)
        self.set_line(f"DRAM, one request alone · peak {peak} · mean {mean}")
        self.reading.setText("Point at a phase to read it; wheel zooms, double-click shows everything.")
        port = result.request.accelerator.slot_bandwidth_bytes_per_s
        limited = bool(np.isfinite(port))
        self._limit.setVisible(limited)
        top = demand.peak
        if limited:
            self._limit.setValue(port)
            self._limit.label.setText(f"port {look.fmt_rate(port)}")
            top = max(top, port)
        self._plot.setYRange(0, top * 1.12, padding=0)
        end = float(demand.end_s[-1])
        self._plot.setLimits(xMin=0, xMax=end)
        if before is None or not len(before.end_s) or abs(end / float(before.end_s[-1]) - 1) > 0.02:
            self._plot.setXRange(0, end, padding=0)
        self._draw()
        self.show_body()

    def _draw(self) -> None:
        demand, result = self._demand, self._result
        if demand is None or result is None or self._plot is None:
            return
        low, high = self._plot.getViewBox().viewRange()[0]
        chosen = demand.bars(low, high)
        colours = look.palette()
        tints = group_tints(result.request.plan, len(colours.groups))
        brushes = [colours.group(int(tints[group])) for group in demand.group[chosen]]
        picked = self._picked()
        if picked is not None:
            brushes = [
                brush if group == picked else look.mix(colours.panel, brush, 0.35)
                for brush, group in zip(brushes, demand.group[chosen], strict=True)
            ]
        self._bars.setOpts(
            x0=demand.begin_s[chosen],
            x1=demand.end_s[chosen],
            height=demand.bytes_per_s[chosen],
            brushes=brushes,
            pens=[QPen(Qt.PenStyle.NoPen)] * len(brushes),
        )

    def _picked(self) -> int | None:
        """The group of the result that holds the first selected operator."""
        if self._result is None or not self.document.selection:
            return None
        return self._result.request.plan.group_of[self.document.selection[0]]

    def _highlight(self) -> None:
        if self._plot is not None and self.isVisible():
            self._draw()

    def _phase_under(self, position: Any) -> int:
        if self._demand is None:
            return -1
        point = self._plot.getViewBox().mapSceneToView(position)
        return self._demand.at(point.x())

    def _moved(self, position: Any) -> None:
        phase, demand, result = self._phase_under(position), self._demand, self._result
        if phase < 0 or demand is None or result is None:
            return
        group = int(demand.group[phase])
        label = group_label(result.request.graph, group, result.groups[group].operators)
        lasts = look.fmt_seconds(float(demand.end_s[phase] - demand.begin_s[phase]))
        rate = look.fmt_rate(float(demand.bytes_per_s[phase]))
        kind = PHASE_KINDS[int(demand.kind[phase])]
        begin = look.fmt_seconds(float(demand.begin_s[phase]))
        self.reading.setText(f"{label} · {kind} · {rate} for {lasts} from {begin}")

    def _clicked(self, event: Any) -> None:
        if event.double() and self._demand is not None:
            self._plot.setXRange(0, float(self._demand.end_s[-1]), padding=0)
            return
        phase = self._phase_under(event.scenePos())
        if phase >= 0 and self._demand is not None and self._result is not None:
            self.document.select(self._result.groups[int(self._demand.group[phase])].operators)
