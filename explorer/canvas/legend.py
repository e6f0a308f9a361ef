"""The heat scale in a strip of its own below the picture, so that it covers nothing that can be clicked.

Knows a scene's traffic. Must not know the picture, the camera or the document.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from .. import look
from .heat import OperatorTraffic

HEIGHT = 24
BAR = (160.0, 8.0)
_GAP, _STEPS = 8.0, 60


class Legend(QWidget):
    """The strip. It repaints only where the scale is another one."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._traffic: OperatorTraffic | None = None
        self._shown: tuple[object, ...] = ()

    def show_scale(self, traffic: OperatorTraffic | None) -> None:
        """Follow this scale; None: no graph is shown."""
        self._traffic = traffic
        shown: tuple[object, ...] = ()
        if traffic is not None:
            closed = len(traffic.block_bytes) > 0
            shown = (traffic.memory, traffic.low, traffic.high, traffic.frozen, closed)
        if shown != self._shown:
            self._shown = shown
            self.setAccessibleName("" if traffic is None else " ".join(legend_words(traffic)).strip())
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The ground, a hairline above, the scale."""
        painter = QPainter(self)
        paint_legend(painter, QRectF(self.rect()), self._traffic)
        painter.end()


def legend_words(traffic: OperatorTraffic) -> tuple[str, str, str, str]:
    """What is measured, the least, the most, and what else is to be said."""
    if not traffic.known:
        return f"{traffic.memory} bytes per operator: not computed", "", "", ""
    held = "scale held during the drag" if traffic.frozen else ""
    of = "operator and closed block" if len(traffic.block_bytes) else "operator"
    title = f"{traffic.memory} bytes per {of}, log"
    return title, look.fmt_bytes(traffic.low), look.fmt_bytes(traffic.high), held


def paint_legend(painter: QPainter, rect: QRectF, traffic: OperatorTraffic | None) -> None:
    """Title, least, colours, most, from left to right; what does not fit is left out from the right."""
    palette = look.palette()
    painter.fillRect(rect, palette.canvas)
    painter.fillRect(QRectF(rect.left(), rect.top(), rect.width(), 1.0), palette.line)
    if traffic is None:
        return
    title, low, high, held = legend_words(traffic)
    font = look.font(look.TINY)
    metrics = QFontMetricsF(font)
    painter.setFont(font)
    painter.setPen(palette.muted)
    x, end = rect.left() + 12.0, rect.right() - 12.0
    flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft)
    ends = metrics.horizontalAdvance(low) + metrics.horizontalAdvance(high) + 2 * _GAP
    bar = min(BAR[0], end - x - ends) if low else 0.0
    if x + metrics.horizontalAdvance(title) + _GAP + ends + min(bar, 48.0) > end:
        title = ""  # a narrow canvas: the colours and their ends say more
    bar = min(bar, end - x - ends - (metrics.horizontalAdvance(title) + _GAP if title else 0.0))
    for text in (title, low):
        if text:
            painter.drawText(QRectF(x, rect.top(), end - x, rect.height()), flags, text)
            x += metrics.horizontalAdvance(text) + _GAP
    if low and bar > 16.0:
        top = rect.center().y() - BAR[1] / 2
        for step in range(_STEPS):
            piece = QRectF(x + bar * step / _STEPS, top, bar / _STEPS + 0.6, BAR[1])
            painter.fillRect(piece, look.heat_color(step / (_STEPS - 1)))
        x += bar + _GAP
        for text in (high, held):
            if text and x + metrics.horizontalAdvance(text) <= end + 1.0:
                painter.drawText(QRectF(x, rect.top(), end - x + 1.0, rect.height()), flags, text)
                x += metrics.horizontalAdvance(text) + 2 * _GAP
