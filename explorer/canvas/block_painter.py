"""Draws closed blocks, each a box with its name and what it holds, and frames around open ones.

Knows a scene and the palette. Must not know the document or the rest of the picture.
"""

from __future__ import annotations

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from .. import look
from .heat import UNKNOWN
from .scene import FRAME_TITLE, Rect, Scene
from .texts import Texts, elided, font

RADIUS = 9.0
_EDGE = 4.0  # of the sheets that seem to lie below: there is more inside
_SIGN = 22.0  # room for the sign on the left
LEAST_TITLE = 0.25  # zoom from which a frame has its name


def holds(scene: Scene, slot: int) -> str:
    """``60 operators · 1.75 TMAC``."""
    folding = scene.folding
    assert folding.hierarchy is not None
    block = folding.blocks[slot]
    count = f"{len(folding.operators(block)):,} operators"
    macs = folding.hierarchy.macs[block]
    return f"{count} · {look.fmt_quantity(macs, 'MAC')}" if macs else count


class BlockPainter:
    """Of one scene; see the module's docstring."""

    def __init__(self, scene: Scene, texts: Texts) -> None:
        self._scene, self._texts = scene, texts

    # -- closed --------------------------------------------------------------------------------------
    def blocks(
        self, painter: QPainter, seen: Rect, zoom: float, read: float, fills: list[QColor], plain: QColor
    ) -> None:
        """Closed blocks in view: their name from afar already, what they hold where it can be read (`read`)."""
        scene, palette = self._scene, look.palette()
        rim = QColor(0, 0, 0, 70) if not palette.dark else QColor(255, 255, 255, 60)
        steps = scene.traffic.block_steps()
        for slot in scene.blocks_in(seen).tolist():
            left, top, right, bottom = scene.block_boxes[slot].tolist()
            step = int(steps[slot])
            fill = plain if step == UNKNOWN else fills[step]
            ink = palette.text if step == UNKNOWN else look.text_on(fill)
            rect = QRectF(left, top, right - left, bottom - top - _EDGE)
            painter.setPen(QPen(rim, max(1.0, 0.7 / zoom)))
            painter.setBrush(look.mix(fill, palette.canvas, 0.45))
            painter.drawRoundedRect(rect.adjusted(5.0, _EDGE, -5.0, _EDGE - 0.5), RADIUS, RADIUS)
            painter.setBrush(fill)
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS, RADIUS)
            painter.setPen(ink)
            if zoom >= read:
                self._words(painter, slot, rect, ink)
            else:
                self._name(painter, slot, rect, zoom)

    def _words(self, painter: QPainter, slot: int, rect: QRectF, ink: QColor) -> None:
        sign(painter, rect.left() + 13.0, rect.center().y(), ink, plus=True)
        x, room = rect.left() + _SIGN + 3.0, rect.width() - _SIGN - 12.0
        name = elided(self._scene.folding.name(slot), look.BODY, room, strong=True, middle=True)
        static, _ = self._texts.get(name, look.BODY, True)
        painter.setPen(ink)
        painter.setFont(font(look.BODY, strong=True))
        painter.drawStaticText(QPointF(x, rect.center().y() - static.size().height() - 0.5), static)
        static, _ = self._texts.get(elided(holds(self._scene, slot), look.TINY, room), look.TINY)
        painter.setFont(font(look.TINY))
        painter.drawStaticText(QPointF(x, rect.center().y() + 1.5), static)

    def _name(self, painter: QPainter, slot: int, rect: QRectF, zoom: float) -> None:
        """The name alone, at screen size; nothing where it does not fit."""
        name = elided(
            self._scene.folding.name(slot), look.TINY, rect.width() * zoom - 8.0, strong=True, middle=True
        )
        static, width = self._texts.get(name, look.TINY, True)
        if len(name) < 3 or static.size().height() > rect.height() * zoom + 2:
            return
        painter.save()
        painter.translate(rect.center())
        painter.scale(1 / zoom, 1 / zoom)
        painter.setFont(font(look.TINY, strong=True))
        painter.drawStaticText(QPointF(-width / 2, -static.size().height() / 2), static)
        painter.restore()

    # -- open ----------------------------------------------------------------------------------------
    def frames(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        """A pale frame around what each open block holds."""
        scene, palette = self._scene, look.palette()
        ground = QColor(palette.text)
        ground.setAlphaF(0.025)
        for row in scene.frames_in(seen).tolist():
            left, top, right, bottom = scene.frame(row)
            painter.setPen(QPen(palette.line_strong, max(1.0, 0.7 / zoom), Qt.PenStyle.DashLine))
            painter.setBrush(ground)
            painter.drawRoundedRect(QRectF(left, top, right - left, bottom - top), RADIUS, RADIUS)

    def titles(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        """The names of open blocks, over what passes behind them; a double-click there closes the block."""
        if zoom >= LEAST_TITLE:
            for row in self._scene.frames_in(seen).tolist():
                self._title(painter, row, self._scene.frame(row), zoom)

    def _title(self, painter: QPainter, row: int, frame: Rect, zoom: float) -> None:
        palette, folding = look.palette(), self._scene.folding
        assert folding.hierarchy is not None
        left, top, right, _ = frame
        name = folding.hierarchy.name[folding.opened[row]]
        scale = max(1.0, 0.7 / zoom)
        text = elided(name, look.SMALL, (right - left) / scale - 28.0, strong=True, middle=True)
        static, width = self._texts.get(text, look.SMALL, True)
        painter.save()
        painter.translate(left, top + FRAME_TITLE / 2)
        painter.scale(scale, scale)
        painter.fillRect(QRectF(5.0, -6.0, width + 22.0, 16.0), look.mix(palette.canvas, palette.text, 0.025))
        sign(painter, 12.0, 2.0, palette.muted, plus=False)
        painter.setPen(palette.muted)
        painter.setFont(font(look.SMALL, strong=True))
        painter.drawStaticText(QPointF(23.0, 2.0 - static.size().height() / 2), static)
        painter.restore()


def sign(painter: QPainter, x: float, y: float, ink: QColor, *, plus: bool) -> None:
    """A small square with a plus (there is more inside) or a minus (it can be closed)."""
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(ink, 1.2))
    painter.drawRoundedRect(QRectF(x - 5.0, y - 5.0, 10.0, 10.0), 2.0, 2.0)
    painter.drawLine(QLineF(x - 2.5, y, x + 2.5, y))
    if plus:
        painter.drawLine(QLineF(x, y - 2.5, x, y + 2.5))
