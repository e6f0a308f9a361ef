"""One percentile as a stacked bar of its exact parts, with a legend that carries the numbers.

Knows the names of SERVING-MODEL's parts. The parts sum to the percentile exactly; the model made them so.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from model.serving.limits import part_words
from model.serving.result import ServingResult

from .. import look

WITHIN = {"queue_imbalance": "queue"}
"""Parts that lie within another one and are not added again."""
PART_TIPS = {
    "queue": "waiting for a slot, as it would be if DRAM were not shared",
    "contention_queue": "the start now less the start if DRAM were not shared: slots that stall are free later",
    "base": "alone on a slot",
    "stall_burst": "waiting for shared DRAM in first, cold and last phases",
    "stall_steady": "waiting for shared DRAM in all other phases",
    "stall_spill": "waiting for shared DRAM with what is spilled",
    "stall_refetch": "waiting for shared DRAM with what is fetched again",
    "batch_wait": "waiting for others to share a batch",
    "interleaved": "iterations in which other requests' tokens ran",
}
STYLES = {
    "queue": (0, False),
    "contention_queue": (5, False),
    "base": (2, False),
    "stall_burst": (1, False),
    "stall_steady": (3, False),
    "stall_spill": (4, False),
    "batch_wait": (6, False),
    "stall_refetch": (7, False),
    "preempted": (0, True),
    "throttle": (5, True),
    "padding": (2, True),
    "fallback": (3, True),
    "off_home": (4, True),
    "interleaved": (6, True),
}
"""A part keeps its colour in every picture; parts that need something special are hatched in the colour of another."""


def shown_parts(result: ServingResult, percentile: str) -> list[tuple[str, int, int]]:
    """(name, ns, ns of it that is imbalance) of a percentile's parts that are not zero, largest first."""
    for name, parts in result.parts:
        if name == percentile:
            values = dict(parts)
            inside = {outer: values.get(inner, 0) for inner, outer in WITHIN.items()}
            rows = [(p, ns, inside.get(p, 0)) for p, ns in parts if p not in WITHIN and ns != 0]
            return sorted(rows, key=lambda row: -abs(row[1]))
    return []


class Parts(QWidget):
    """One percentile as a stacked bar of its exact parts, with a legend that carries the numbers."""

    BAR = 18

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, int, int]] = []
        self.total_ns = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_parts(self, parts: list[tuple[str, int, int]], total_ns: int) -> None:
        """Draw these parts of `total_ns`."""
        self.parts, self.total_ns = parts, total_ns
        self.setAccessibleDescription(", ".join(f"{part_words(p)} {look.fmt_ns(ns)}" for p, ns, _ in parts))
        self.setToolTip("\n".join(self._tip(*part) for part in parts) + "\nThe parts sum to it exactly.")
        self.updateGeometry()
        self.update()

    def _tip(self, part: str, ns: int, inside: int) -> str:
        share = look.fmt_percent(ns / self.total_ns) if self.total_ns else look.NO_NUMBER
        imbalance = f", of which {look.fmt_ns(inside)} while another slot was idle" if inside else ""
        meaning = f"\n    {PART_TIPS[part]}" if part in PART_TIPS else ""
        return f"{part_words(part)}: {ns:,} ns ({share}){imbalance}{meaning}"

    def _legend_texts(self) -> list[str]:
        texts = []
        for part, ns, inside in self.parts:
            extra = f" (imbalance {look.fmt_ns(inside)})" if inside else ""
            texts.append(f"{part_words(part)} {look.fmt_ns(ns)}{extra}")
        return texts

    def _places(self, width: int) -> list[QRectF]:
        """Where each legend entry goes; wraps."""
        metrics = self.fontMetrics()
        places, left, top = [], 0.0, self.BAR + 6.0
        for text in self._legend_texts():
            wide = metrics.horizontalAdvance(text) + 28
            if left and left + wide > width:
                left, top = 0.0, top + 16
            places.append(QRectF(left, top, wide, 16))
            left += wide
        return places

    def sizeHint(self) -> QSize:
        """Bar and as many legend lines as the width asks for."""
        return QSize(300, self.heightForWidth(max(200, self.width())))

    def minimumSizeHint(self) -> QSize:
        """The same: the legend is never cut."""
        return QSize(160, self.heightForWidth(max(200, self.width())))

    def hasHeightForWidth(self) -> bool:
        """The legend wraps."""
        return True

    def heightForWidth(self, width: int) -> int:
        """Height that the legend takes at this width."""
        places = self._places(width)
        return int(places[-1].bottom()) + 2 if places else self.BAR + 4

    def paintEvent(self, event: QPaintEvent) -> None:
        """Bar, numbers where they fit, legend."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        positive = sum(max(0, ns) for _, ns, _ in self.parts)
        left = 0.0
        small = look.font(look.SMALL, strong=True)
        for place, (part, ns, _), text in zip(
            self._places(self.width()), self.parts, self._legend_texts(), strict=True
        ):
            hue, hatched = STYLES[part]
            fill = colours.group(hue)
            mark = QRectF(place.left(), place.top() + 4, 8, 8)
            if ns > 0 and positive:
                wide = self.width() * ns / positive
                bar = QRectF(left, 0, max(1.0, wide - 1), self.BAR)
                self._fill(painter, bar, fill, hatched)
                number = look.fmt_ns(ns)
                painter.setFont(small)
                taken = painter.fontMetrics().horizontalAdvance(number) + 8
                if taken < wide:
                    if hatched:  # digits do not stand on stripes
                        middle = QRectF(bar.center().x() - taken / 2, 2, taken, self.BAR - 4)
                        painter.fillRect(middle, fill)
                    painter.setPen(look.text_on(fill))
                    painter.drawText(bar, Qt.AlignmentFlag.AlignCenter, number)
                left += wide
            elif positive:  # signed: it takes back what the others add
                wide = max(2.0, self.width() * -ns / positive)
                relief = QBrush(colours.text, Qt.BrushStyle.BDiagPattern)
                painter.fillRect(QRectF(self.width() - wide, 0, wide, self.BAR), relief)
                painter.fillRect(QRectF(self.width() - wide, 0, wide, 3), fill)
            self._fill(painter, mark, fill, hatched)
            painter.setFont(look.font(look.SMALL))
            painter.setPen(colours.muted)
            painter.drawText(place.adjusted(14, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, text)
        painter.end()

    @staticmethod
    def _fill(painter: QPainter, place: QRectF, fill: QColor, hatched: bool) -> None:
        painter.fillRect(place, fill)
        if hatched:
            stripes = QColor(look.palette().panel)
            stripes.setAlphaF(0.75)
            painter.fillRect(place, QBrush(stripes, Qt.BrushStyle.BDiagPattern))
