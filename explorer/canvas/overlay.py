"""What follows the pointer or the keyboard, drawn over the picture: feedback, focus, states.

Knows a scene, a camera and one `Feedback` value. Must not know gestures or the document. Nothing here is
kept between frames; the picture below stays as it is while this changes, so moving the pointer costs a copy
of the picture and a few strokes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QPolygonF, QTransform

from .. import look
from .camera import Camera
from .painter import READ, ScenePainter, draw_sign, route_path
from .scene import Hit, Part, Rect, Scene

Point = tuple[float, float]
OFFER = "Enter: include it. Esc: cancel"
OFFER_MANY = "Enter: include them. Esc: cancel"
NO_OFFER = "Esc: cancel"
TAG_WIDTH = 280.0


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a gesture wants to be seen. Points are in world units.

    Attributes
    ----------
    pointer : where the hand is.
    carried : operators in the hand; ghosts of their boxes follow the pointer by `shift`.
    cut : left, right and height of the boundary as it lies now.
    ghost : left, right and height of the boundary where the hand wants it and must not have it.
    target : group that would take what is carried.
    offenders, path, joining : what a refusal names: the two that cannot share a group, the way that would
        close the cycle, and what the fix would include.
    lines : edges that are cut.
    text : the tag at the pointer; `offer` is its second line, in the strong colour.
    """

    pointer: Point | None = None
    carried: tuple[int, ...] = ()
    shift: Point = (0.0, 0.0)
    cut: tuple[float, float, float] | None = None
    ghost: tuple[float, float, float] | None = None
    target: int | None = None
    offenders: tuple[int, ...] = ()
    path: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    band: Rect | None = None
    stroke: tuple[Point, ...] = ()
    text: str = ""
    offer: str = ""


NOTHING = Feedback()


def paint_feedback(
    painter: QPainter, scene: Scene, pictures: ScenePainter, camera: Camera, size: QSizeF, shown: Feedback
) -> None:
    """Draw `shown` over the picture."""
    palette = look.palette()
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setWorldTransform(_world(camera), True)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if shown.target is not None:
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawPath(pictures.hull_path(shown.target))
    for operator in _once(scene, np.array(shown.joining, dtype=np.int64)).tolist():
        painter.setPen(_pen(palette.accent, 1.6, Qt.PenStyle.DotLine))
        painter.drawRoundedRect(_around(scene, operator, 4.0, camera), 8, 8)
    _draw_path(painter, scene, pictures, shown.path, palette.bad, camera.zoom)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for edge in shown.lines:
        painter.setPen(_pen(palette.accent, 2.5))
        painter.drawPath(route_path(scene.route(edge)))
    for operator in _once(scene, np.array(shown.offenders, dtype=np.int64)).tolist():
        rect = _around(scene, operator, 4.0, camera)
        painter.setPen(_pen(palette.bad, 2.0, Qt.PenStyle.DashLine))
        painter.drawRoundedRect(rect, 8, 8)
        painter.save()
        painter.translate(rect.topRight())
        painter.scale(1 / camera.zoom, 1 / camera.zoom)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(palette.panel)
        painter.drawEllipse(QPointF(0, 0), 9.0, 9.0)
        draw_sign(painter, "bad", 0.0, 0.0, palette.bad)
        painter.restore()
        painter.setBrush(Qt.BrushStyle.NoBrush)
    if shown.cut is not None:
        left, right, y = shown.cut
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawLine(QPointF(left, y), QPointF(right, y))
    if shown.ghost is not None:
        left, right, y = shown.ghost
        painter.setPen(_pen(palette.bad, 1.5, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(left, y), QPointF(right, y))
    for operator in shown.carried[:40]:
        ghost = QColor(palette.accent)
        ghost.setAlphaF(0.18)
        painter.setPen(_pen(palette.accent, 1.5))
        painter.setBrush(ghost)
        painter.drawRoundedRect(_around(scene, operator, 0.0, camera).translated(*shown.shift), 5, 5)
    if shown.band is not None:
        left, top, right, bottom = shown.band
        fill = QColor(palette.accent)
        fill.setAlphaF(0.10)
        painter.setPen(_pen(palette.accent, 1.0))
        painter.setBrush(fill)
        painter.drawRect(QRectF(left, top, right - left, bottom - top))
    if len(shown.stroke) > 1:
        painter.setPen(_pen(palette.accent, 1.5, Qt.PenStyle.DashLine))
        painter.drawPolyline(QPolygonF([QPointF(*point) for point in shown.stroke]))
    painter.restore()
    if shown.text and shown.pointer is not None:
        _tag(painter, QPointF(*camera.to_screen(*shown.pointer)), size, shown.text, shown.offer)


def paint_focus(
    painter: QPainter,
    scene: Scene,
    pictures: ScenePainter,
    camera: Camera,
    selection: tuple[int, ...],
    hover: Hit,
    focused: bool,
) -> None:
    """Rings around what is selected, a second one where the keyboard is, and the thing under the pointer."""
    palette = look.palette()
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setWorldTransform(_world(camera), True)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    chosen = _once(scene, np.array(selection, dtype=np.int64))
    if len(chosen) > 2000:  # a ring that nobody can tell from its neighbour is not drawn
        chosen = np.array([], dtype=np.int64)
    for operator in chosen.tolist():
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawRoundedRect(_around(scene, operator, 3.0, camera), 7, 7)
    if focused and len(chosen) == 1:
        painter.setPen(_pen(palette.accent, 1.0))
        painter.drawRoundedRect(_around(scene, int(chosen[0]), 6.5, camera), 10, 10)
    if hover.part in (Part.OPERATOR, Part.BLOCK):
        under = hover.index if hover.part is Part.OPERATOR else int(scene.folding.first[hover.index])
        painter.setPen(_pen(palette.muted, 1.5))
        painter.drawRoundedRect(_around(scene, under, 1.5, camera), 6, 6)
    elif hover.part is Part.FRAME:
        left, top, right, bottom = scene.frame(hover.index)
        painter.setPen(_pen(palette.accent, 1.5))
        painter.drawRoundedRect(QRectF(left, top, right - left, bottom - top), 9, 9)
    elif hover.part is Part.EDGE:
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawPath(route_path(scene.route(hover.index)))
    elif hover.part is Part.CHIP:
        chip = scene.chip(hover.index)
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawPath(route_path(scene.route(chip.edge)))
        rect = pictures.chip_rect(hover.index)
        pictures.draw_chip(painter, hover.index)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(_pen(palette.accent, 2.0))
        painter.drawRoundedRect(rect, rect.height() / 2, rect.height() / 2)
    elif hover.part in (Part.RIM, Part.UPPER_RIM):
        left, top, right, bottom = scene.hull_rects[hover.index].tolist()
        y = bottom if hover.part is Part.RIM else top
        painter.setPen(_pen(palette.accent, 3.0))
        painter.drawLine(QPointF(left + 12, y), QPointF(right - 12, y))
    painter.restore()


def _once(scene: Scene, operators: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the operators of one closed block only one: they share its box."""
    slot = scene.folding.slot_of[operators]
    _, first = np.unique(slot, return_index=True)
    return np.sort(np.concatenate([operators[slot < 0], operators[first[slot[first] >= 0]]]))


def paint_banner(painter: QPainter, size: QSizeF, text: str) -> None:
    """A state of the whole canvas, in the middle of its upper edge."""
    palette = look.palette()
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setFont(look.font(look.BODY))
    width = QFontMetricsF(look.font(look.BODY)).horizontalAdvance(text) + 32
    rect = QRectF((size.width() - width) / 2, 12, width, 28)
    _card(painter, rect)
    painter.setPen(palette.text)
    painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), text)
    painter.restore()


def _tag(painter: QPainter, at: QPointF, size: QSizeF, text: str, offer: str) -> None:
    """The note beside the pointer, inside the viewport."""
    palette = look.palette()
    font, strong = look.font(look.SMALL), look.font(look.SMALL, strong=True)
    flags = int(Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft)
    room = QRectF(0, 0, TAG_WIDTH, 2000)
    body = QFontMetricsF(font).boundingRect(room, flags, text[:400])
    below = QFontMetricsF(strong).boundingRect(room, flags, offer) if offer else QRectF()
    width = max(body.width(), below.width()) + 22
    height = body.height() + (below.height() + 3 if offer else 0.0) + 14
    x = min(at.x() + 18, size.width() - width - 8)
    y = at.y() + 20
    if y + height > size.height() - 8:
        y = at.y() - height - 12
    rect = QRectF(max(x, 8.0), max(y, 8.0), width, height)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(palette.tag)
    painter.drawRoundedRect(rect, 6, 6)
    painter.setPen(palette.tag_text)
    painter.setFont(font)
    inner = rect.adjusted(11, 7, -11, -7)
    painter.drawText(inner, flags, text[:400])
    if offer:
        painter.setPen(palette.tag_strong)
        painter.setFont(strong)
        painter.drawText(inner.adjusted(0, body.height() + 3, 0, 0), flags, offer)
    painter.restore()


def _draw_path(
    painter: QPainter, scene: Scene, pictures: ScenePainter, path: tuple[int, ...], ink: QColor, zoom: float
) -> None:
    """The way that would close the cycle, along the real lines where there are any, with arrow heads."""
    edges = scene.graph.edges
    for one, other in pairwise(path):
        rows = np.flatnonzero((edges[:, 0] == one) & (edges[:, 1] == other))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if len(rows):
            route = scene.route(int(rows[0]))
            painter.setPen(_pen(ink, 2.5))
            painter.drawPath(route_path(route))
            _arrow(painter, QPointF(*route[-1]), math.pi / 2, ink)
            chip = scene.chip_at_edge(int(rows[0]))
            if chip is not None and zoom >= READ:  # the bytes stay readable under the line
                pictures.draw_chip(painter, chip)
        else:  # two operators of one group: the way goes through the group
            a, b = _centre(scene, one), _centre(scene, other)
            line = QPainterPath(a)
            line.lineTo(b)
            painter.setPen(_pen(ink, 2.0, Qt.PenStyle.DotLine))
            painter.drawPath(line)
            _arrow(painter, b, math.atan2(b.y() - a.y(), b.x() - a.x()), ink)


def _arrow(painter: QPainter, tip: QPointF, angle: float, ink: QColor) -> None:
    wings = [
        QPointF(tip.x() - 9 * math.cos(angle + side), tip.y() - 9 * math.sin(angle + side))
        for side in (-0.45, 0.45)
    ]
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ink)
    painter.drawPolygon(QPolygonF([tip, *wings]))


def _centre(scene: Scene, operator: int) -> QPointF:
    left, top, right, bottom = scene.boxes[operator].tolist()
    return QPointF((left + right) / 2, (top + bottom) / 2)


def _around(scene: Scene, operator: int, pixels: float, camera: Camera) -> QRectF:
    """An operator's box, larger by screen pixels on each side, at least three pixels high."""
    left, top, right, bottom = scene.boxes[operator].tolist()
    away = max(pixels / max(camera.zoom, 0.5), (3.0 / camera.zoom - (bottom - top)) / 2)
    return QRectF(left - away, top - away, right - left + 2 * away, bottom - top + 2 * away)


def _card(painter: QPainter, rect: QRectF) -> None:
    palette = look.palette()
    painter.setPen(QPen(palette.line, 1.0))
    painter.setBrush(palette.panel)
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), look.RADIUS, look.RADIUS)


def _pen(ink: QColor, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
    pen = QPen(ink, width, style, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin)
    pen.setCosmetic(True)
    return pen


def _world(camera: Camera) -> QTransform:
    zoom = camera.zoom
    return QTransform(zoom, 0, 0, zoom, -camera.x * zoom, -camera.y * zoom)
