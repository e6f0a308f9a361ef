"""Draws a scene: hulls, lines, boxes, chips, titles, in batches, with as much detail as can be read.

Knows a scene, a camera and the palette. Must not know the document, widgets or gestures; what changes with
the pointer is the overlay's. The painter's caches hold nothing that a new scene could not make again.

Levels of detail by zoom: `READ` (text that grows with the boxes, chips with their bytes), `LABEL` (op types
and group numbers at a size of their own), `SHAPE` (boxes, hulls, lines, chips as dots), and from afar plain
rectangles in one call per colour, with only those lines that are long enough to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QPainter,
    QPainterPath,
    QPainterPathStroker,
    QPen,
    QPolygonF,
    QStaticText,
    QTransform,
)

from model.cost.result import GroupResult
from model.graph.graph import Operator

from .. import look
from ..names import group_name, group_tints
from .block_painter import BlockPainter
from .blocks import CHIP, PAD
from .camera import Camera
from .heat import STEPS, UNKNOWN
from .scene import STRAIGHT, Rect, Scene, along, share_of
from .texts import Texts, elided, font, made

READ, LABEL, SHAPE = 0.7, 0.4, 0.2
_WIDTHS = (1.0, 1.3, 1.7, 2.2, 2.8)  # of lines, by class of bytes
_LEAST, _FEW = 0.04, 400  # where the graph is small, shapes are worth their strokes from farther away
_LONG = 1600.0  # pixels beyond which a line is cut to what is seen of it
_MIXED = np.array([1.0, 7919.0, 104729.0, 1299709.0])  # makes one number of two points: equal where they are
_LOOSE_LIMIT = 80  # members up to which a loose hull is united into one outline


def short_name(operator: Operator) -> str:
    """What the name tells beyond the op type: ``/q_proj/MatMul`` -> ``q_proj``, ``MatMul_3`` -> ``3``."""
    words = [word for word in operator.name.replace("\\", "/").split("/") if word.strip()]
    kind = operator.op_type.lower()
    for word in reversed(words):
        rest = word
        for prefix in ("node_", f"{kind}_", f"{kind}."):
            if rest.lower().startswith(prefix):
                rest = rest[len(prefix) :]
        if rest.strip("_. ") and rest.lower() != kind:
            return " ".join(rest[:200].split())
    return ""


def summary(types: Iterable[str]) -> str:
    """``MatMul · Add ×2 · Relu``: runs of one op type are counted."""
    runs: list[list[object]] = []
    for name in types:
        if runs and runs[-1][0] == name:
            runs[-1][1] = int(str(runs[-1][1])) + 1
        else:
            runs.append([name, 1])
    return " · ".join(str(name) if count == 1 else f"{name} ×{count}" for name, count in runs)


def state_of(result: GroupResult | None) -> tuple[str, str, str]:
    """(kind, word, words) of a group's state: "bad" does not fit, "warn" spills, "" neither."""
    if result is None:
        return "", "", ""
    if result.infeasible is not None:
        lack = result.infeasible
        needs = f"{look.fmt_bytes(lack.demand_bytes)} of {look.fmt_bytes(lack.capacity_bytes)}"
        return "bad", "does not fit", f"does not fit: {lack.memory} {needs}"
    spilled = result.registers.spilled_bytes
    return ("warn", "spills", f"spills {look.fmt_bytes(spilled)}") if spilled else ("", "", "")


class ScenePainter:
    """Draws one scene; keeps what is dear to make (texts, paths, rectangles) between frames."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._palette = look.palette()
        self._rects: dict[int, QRectF] = {}
        self._paths: dict[int, QPainterPath] = {}
        self._loose_paths: dict[int, QPainterPath] = {}
        self._texts = Texts()
        self._closed = BlockPainter(scene, self._texts)
        self.forget()

    def forget(self) -> None:
        """Another palette: make everything again."""
        self._palette = look.palette()
        palette = self._palette
        self._fills = [look.heat_color(step / (STEPS - 1)) for step in range(STEPS)]
        self._inks = [look.text_on(fill) for fill in self._fills]
        self._plain = look.mix(palette.panel, palette.faint, 0.35)
        self._names: dict[int, tuple[QStaticText, QStaticText, float, float]] = {}
        self.moved()

    def moved(self) -> None:
        """Boxes and lines lie elsewhere."""
        self._rects = {}
        self._paths = {}
        self._loose_paths = {}
        self._tints = group_tints(self.scene.plan, len(self._palette.groups))

    def plan_changed(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """The scene shows another plan, of which groups were `kept` (their index before, else -1).

        Returns groups that were kept and have another colour now.
        """
        self._loose_paths = {}
        before, self._tints = self._tints, group_tints(self.scene.plan, len(self._palette.groups))
        return np.flatnonzero((kept >= 0) & (self._tints != before[kept]))

    # -- the whole picture ---------------------------------------------------------------------------
    def paint(self, painter: QPainter, camera: Camera, exposed: QRectF) -> None:
        """Draw what lies in `exposed` (screen pixels), the ground included."""
        if look.palette() is not self._palette:
            self.forget()
        painter.fillRect(exposed, self._palette.canvas)
        left, top = camera.to_world(exposed.left(), exposed.top())
        right, bottom = camera.to_world(exposed.right(), exposed.bottom())
        # Chips and rims reach a little beyond the rectangles that they are found by.
        seen: Rect = (left - 16.0, top - 16.0, right + 16.0, bottom + 16.0)
        painter.save()
        painter.setWorldTransform(
            QTransform(camera.zoom, 0, 0, camera.zoom, -camera.x * camera.zoom, -camera.y * camera.zoom),
            True,
        )
        if self.is_detailed(seen, camera.zoom):
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._closed.frames(painter, seen, camera.zoom)
            self._hulls(painter, seen, camera.zoom)
            self._lines(painter, seen, camera.zoom)
            self._boxes(painter, seen, camera.zoom)
            self._closed.blocks(painter, seen, camera.zoom, READ, self._fills, self._plain)
            self._closed.titles(painter, seen, camera.zoom)
            if camera.zoom >= LABEL:
                self._titles(painter, seen, camera.zoom)
            if camera.zoom >= SHAPE:
                self._chips(painter, seen, camera.zoom)
        else:
            self._far_hulls(painter, seen, camera.zoom)
            self._far_lines(painter, seen, camera.zoom)
            self._far_boxes(painter, seen, camera.zoom)
        painter.restore()

    def is_detailed(self, seen: Rect, zoom: float) -> bool:
        """Whether hulls, boxes and lines are drawn one by one: when they are large, or few."""
        if zoom >= SHAPE:
            return True
        boxes = len(self.scene.operators_in(seen)) + len(self.scene.blocks_in(seen))
        return zoom >= _LEAST and boxes <= _FEW

    # -- hulls ---------------------------------------------------------------------------------------
    def tint(self, group: int) -> int:
        """Index of a group's colour."""
        return int(self._tints[group])

    def _hulls(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        share = self._palette.hull_share
        for group in self.scene.hulls_in(seen).tolist():
            fill = QColor(self._palette.group(self.tint(group)))
            rim = QColor(fill)
            fill.setAlphaF(share)
            rim.setAlphaF(0.7)
            pen = QPen(rim, max(1.5, 0.8 / zoom))
            path = self.hull_path(group)
            kind, _, _ = state_of(self.scene.result_of(group))
            if kind == "bad":
                pen.setColor(self._palette.bad)
                pen.setStyle(Qt.PenStyle.DashLine)
            painter.setPen(pen)
            painter.setBrush(fill)
            painter.drawPath(path)
            if kind == "bad":
                hatch = QColor(self._palette.bad)
                hatch.setAlphaF(0.22)
                brush = QBrush(hatch, Qt.BrushStyle.BDiagPattern)
                brush.setTransform(QTransform.fromScale(1 / zoom, 1 / zoom))
                painter.fillPath(path, brush)

    def hull_path(self, group: int) -> QPainterPath:
        """The outline of a group's hull in world units."""
        scene = self.scene
        path = QPainterPath()
        if not scene.is_loose(group):
            left, top, right, bottom = scene.hull_rects[group].tolist()
            path.addRoundedRect(QRectF(left, top, right - left, bottom - top), 12, 12)
            return path
        if group in self._loose_paths:
            return self._loose_paths[group]
        members = scene.members(group)
        path.setFillRule(Qt.FillRule.WindingFill)
        for left, top, right, bottom in scene.boxes[members].tolist():
            path.addRoundedRect(QRectF(left - 10, top - 10, right - left + 20, bottom - top + 20), 12, 12)
        if len(members) <= _LOOSE_LIMIT:
            lines = QPainterPath()
            for edge in scene.inner_edges(group).tolist():
                lines.addPath(self._path(edge))
            stroker = QPainterPathStroker()
            stroker.setWidth(24)
            path.addPath(stroker.createStroke(lines))
            path = path.simplified()
        self._loose_paths[group] = path
        return path

    def _titles(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        for group in self.scene.hulls_in(seen).tolist():
            if zoom >= READ:
                self._title(painter, group)
            else:
                self._number(painter, group, zoom)

    def _number(self, painter: QPainter, group: int, zoom: float) -> None:
        """Only the group's number and the sign of its state, at screen size."""
        left, top, right, _ = self.scene.hull_rects[group].tolist()
        kind, _, _ = state_of(self.scene.result_of(group))
        painter.save()
        painter.translate(left, top + 14.0)
        painter.scale(1 / zoom, 1 / zoom)
        ground = self._title_ground(group)
        label = group_name(group)
        self._plate(
            painter, label, look.TINY, True, self._palette.group_label(self.tint(group)), ground, 6, 0
        )
        if kind:
            ink = self._palette.bad if kind == "bad" else self._palette.warn
            draw_sign(painter, kind, (right - left) * zoom - 12.0, 0.0, ink)
        painter.restore()

    def _title_ground(self, group: int) -> QColor:
        """What the title lies on: the hull's tint over the canvas, opaque."""
        palette = self._palette
        return palette.hull(self.tint(group))

    def _title(self, painter: QPainter, group: int) -> None:
        """``G5  MatMul · Silu          842 µs   ! spills 3.1 MiB`` along the hull's upper rim."""
        scene, palette = self.scene, self._palette
        left, top, right, _ = scene.hull_rects[group].tolist()
        if scene.is_loose(group):
            boxes = scene.boxes[scene.members(group)]
            first = boxes[int(np.argmin(boxes[:, 1]))]
            left, top, right = float(first[0]) - 10, float(first[1]) - 30, float(first[2]) + 10
        tint = self.tint(group)
        ground = self._title_ground(group)
        result = scene.result_of(group)
        strip = float(scene.boxes[scene.members(group), 1].min()) - top
        y, x_left, x_right = top + min(14.0, strip / 2), left + PAD, right - PAD
        kind, word, words = state_of(result)
        room = x_right - x_left - 34.0
        if result is not None and kind != "bad":  # what does not fit takes no time
            time = look.fmt_seconds(result.latency_s)
            x_right -= self._plate(
                painter, time, look.TINY, False, palette.muted, ground, x_right, y, right=True
            )
            x_right -= 8.0
        if kind:
            text = words if room > 240.0 else word
            ink = palette.bad if kind == "bad" else palette.warn
            x_right -= self._plate(painter, text, look.TINY, True, ink, ground, x_right, y, right=True)
            draw_sign(painter, kind, x_right - 12.0, y, ink)
            x_right -= 26.0
        label = group_name(group)
        ink = palette.group_label(tint)
        x_left += self._plate(painter, label, look.SMALL, True, ink, ground, x_left, y) + 8.0
        operators = scene.plan.groups[group].operators
        if len(operators) > 1 and strip > 20.0:  # else a chip lies there
            types = summary(scene.graph.operators[o].op_type for o in operators[:64])
            text = elided(types, look.TINY, x_right - x_left)
            if text == types or x_right - x_left > 110.0:  # a stump of a word tells nothing
                self._plate(painter, text, look.TINY, False, palette.muted, ground, x_left, y)

    def _plate(
        self,
        painter: QPainter,
        text: str,
        pixels: int,
        strong: bool,
        ink: QColor,
        ground: QColor,
        x: float,
        y: float,
        *,
        right: bool = False,
    ) -> float:
        """Text on a plate, so that lines seem to pass behind it; returns its width."""
        static, width = self._texts.get(text, pixels, strong)
        x = x - width if right else x
        painter.setPen(Qt.PenStyle.NoPen)
        painter.fillRect(QRectF(x - 2, y - 7, width + 4, 14), ground)
        painter.setPen(ink)
        painter.setFont(font(pixels, strong=strong))
        painter.drawStaticText(QPointF(x, y - static.size().height() / 2), static)
        return width

    # -- lines ---------------------------------------------------------------------------------------
    def _path(self, edge: int) -> QPainterPath:
        path = self._paths.get(edge)
        if path is None:
            path = self._paths[edge] = route_path(self.scene.route(edge))
        return path

    def _lines(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        """Whole lines from a cache; of lines far longer than the screen only what is seen, once a pixel."""
        scene = self.scene
        edges, a, b = scene.pieces_in(seen)
        boxes = scene.edge_boxes[edges]
        long = np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) * zoom > _LONG
        whole = np.unique(edges[~long])
        edges, a, b = edges[long], a[long], b[long]
        begin, end = share_of(a, b, seen[0], seen[2])
        ends = along(a, b, begin, end, seen[1], seen[3], np.array([0.0, 1.0])).reshape(-1, 4)
        _, once = np.unique(np.round(ends * (zoom / 2)) @ _MIXED, return_index=True)
        cut = along(a[once], b[once], begin[once], end[once], seen[1], seen[3])
        classes = scene.edge_class[edges[once]]
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for step, width in enumerate(_WIDTHS):
            pen = QPen(self._palette.faint, max(width, 0.7 / zoom))
            pen.setCapStyle(Qt.PenCapStyle.FlatCap)
            painter.setPen(pen)
            for edge in whole[scene.edge_class[whole] == step].tolist():
                painter.drawPath(self._path(edge))
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)  # pieces must meet
            painter.setPen(pen)
            for piece in cut[classes == step].tolist():
                (ax, _), (bx, _) = piece[0], piece[-1]
                shown = piece if abs(ax - bx) >= STRAIGHT else (piece[0], piece[-1])
                painter.drawPolyline(QPolygonF([QPointF(x, y) for x, y in shown]))

    # -- boxes ---------------------------------------------------------------------------------------
    def _rectangles(self, operators: NDArray[np.int64]) -> dict[int, QRectF]:
        """Rectangles of at least these operators: made when they are first seen."""
        missing = [operator for operator in operators.tolist() if operator not in self._rects]
        if missing:
            left, top, right, bottom = self.scene.boxes[missing].T
            sides = (left, top, right - left, bottom - top)
            made = map(QRectF, *(side.tolist() for side in sides))
            self._rects.update(zip(missing, made, strict=True))
        return self._rects

    def _steps(self, operators: NDArray[np.int64]) -> NDArray[np.int64]:
        steps = self.scene.traffic.steps()[operators]
        steps[self.scene.is_view[operators]] = UNKNOWN
        return steps

    def _boxes(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        scene, palette = self.scene, self._palette
        visible = scene.operators_in(seen)
        rects, steps = self._rectangles(visible), self._steps(visible).tolist()
        rim = QColor(0, 0, 0, 34) if not palette.dark else QColor(255, 255, 255, 30)
        plain = QPen(rim, 1.0)
        readable = zoom >= READ
        for operator, step in zip(visible.tolist(), steps, strict=True):
            fill = self._plain if step == UNKNOWN else self._fills[step]
            ink = palette.text if step == UNKNOWN else self._inks[step]
            painter.setPen(plain)
            if scene.is_view[operator]:
                fill, ink = palette.panel, palette.muted
                painter.setPen(QPen(palette.line_strong, 1.0))
            elif scene.is_opaque[operator]:
                fill, ink = palette.sunken, palette.text
                painter.setPen(QPen(palette.muted, 1.0, Qt.PenStyle.DashLine))
            painter.setBrush(fill)
            rect = rects[operator]
            if readable:
                radius = 5.0 if not scene.is_view[operator] else 8.0
                painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
                self._name(painter, operator, rect, ink)
            else:
                painter.drawRect(rect)
                if zoom >= LABEL:
                    self._type(painter, operator, rect, ink, zoom)

    def _type(self, painter: QPainter, operator: int, rect: QRectF, ink: QColor, zoom: float) -> None:
        """The op type alone, at screen size; nothing where it does not fit."""
        text = self.scene.graph.operators[operator].op_type[:40]
        static, width = self._texts.get(text, look.TINY, True)
        if width + 6 > rect.width() * zoom or static.size().height() > rect.height() * zoom + 3:
            return
        painter.save()
        painter.translate(rect.center())
        painter.scale(1 / zoom, 1 / zoom)
        painter.setPen(ink)
        painter.setFont(font(look.TINY, strong=True))
        painter.drawStaticText(QPointF(-width / 2, -static.size().height() / 2), static)
        painter.restore()

    def _name(self, painter: QPainter, operator: int, rect: QRectF, ink: QColor) -> None:
        """Op type emphasised, then what the name adds; both elided to the box."""
        kept = self._names.get(operator)
        size = look.SMALL if self.scene.is_view[operator] else look.BODY
        if kept is None:
            value = self.scene.graph.operators[operator]
            room = rect.width() - 16.0
            kind, kind_width = made(elided(value.op_type, size, room, strong=True), size, True)
            name = short_name(value)
            left = room - kind_width - 5.0
            text = elided(name, size, left) if name and left > 18.0 else ""
            rest, rest_width = made(text, size, False)
            kept = self._names[operator] = (kind, rest, kind_width, rest_width)
        kind, rest, kind_width, rest_width = kept
        whole = kind_width + (rest_width + 5.0 if rest_width else 0.0)
        x = rect.center().x() - whole / 2
        y = rect.center().y() - kind.size().height() / 2
        painter.setPen(ink)
        painter.setFont(font(size, strong=True))
        painter.drawStaticText(QPointF(x, y), kind)
        if rest_width:
            painter.setFont(font(size))
            painter.drawStaticText(QPointF(x + kind_width + 5.0, y), rest)

    # -- chips ---------------------------------------------------------------------------------------
    def _chips(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        scene = self.scene
        for index in scene.chips_in(seen).tolist():
            x, y = scene.chip_xy[index].tolist()
            if zoom < READ:
                if not scene.chip_is_handle[index]:
                    continue
                painter.setPen(QPen(self._palette.faint, max(1.0, 0.8 / zoom)))
                painter.setBrush(self._palette.panel)
                painter.drawEllipse(QPointF(x, y), 7.0, 7.0)
            else:
                self.draw_chip(painter, index)

    def chip_rect(self, index: int) -> QRectF:
        """Where a chip with its bytes lies, in world units."""
        x, y = self.scene.chip_xy[index].tolist()
        _, width = self._texts.get(self._chip_text(index), look.TINY, False)
        return QRectF(x - width / 2 - 17.0, y - CHIP[1] / 2, width + 34.0, CHIP[1])

    def _chip_text(self, index: int) -> str:
        return look.fmt_bytes(self.scene.edge_bytes[int(self.scene.chip_edges[index])])

    def draw_chip(self, painter: QPainter, index: int) -> None:
        """A pill with the cut sign and the bytes that cross."""
        palette, rect = self._palette, self.chip_rect(index)
        if not self.scene.chip_is_handle[index]:  # bytes to read, nothing to take hold of
            static, _ = self._texts.get(self._chip_text(index), look.TINY, False)
            size = static.size()
            at = QPointF(rect.center().x() - size.width() / 2, rect.center().y() - size.height() / 2)
            painter.fillRect(QRectF(at, size).adjusted(-3.0, 1.0, 3.0, -1.0), palette.canvas)
            painter.setPen(palette.muted)
            painter.setFont(font(look.TINY))
            painter.drawStaticText(at, static)
            return
        painter.setPen(QPen(palette.line_strong, 1.0))
        painter.setBrush(palette.panel)
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), CHIP[1] / 2, CHIP[1] / 2)
        y = rect.center().y()
        draw_cut_sign(painter, rect.left() + 14.0, y, palette.muted)
        static, _ = self._texts.get(self._chip_text(index), look.TINY, False)
        painter.setPen(palette.text)
        painter.setFont(font(look.TINY))
        painter.drawStaticText(QPointF(rect.left() + 24.0, y - static.size().height() / 2), static)

    # -- from afar -----------------------------------------------------------------------------------
    def _far_hulls(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        scene = self.scene
        visible = scene.hulls_in(seen)
        sizes = scene.hull_rects[visible]
        visible = visible[(sizes[:, 3] - sizes[:, 1]) * zoom >= 6.0]
        batches: dict[int, list[QRectF]] = {}
        for group, (a, b, c, d) in zip(visible.tolist(), scene.hull_rects[visible].tolist(), strict=True):
            batches.setdefault(self.tint(group), []).append(QRectF(a, b, c - a, d - b))
        painter.setPen(Qt.PenStyle.NoPen)
        for tint, rects in batches.items():
            fill = QColor(self._palette.group(tint))
            fill.setAlphaF(0.3)
            painter.setBrush(fill)
            painter.drawRects(rects)

    def _far_lines(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        """Straight pieces from box to box, those of more than a few pixels, at most one per pixel pair."""
        scene = self.scene
        boxes = scene.edge_boxes[scene.drawn_edges]
        reach = np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) * zoom
        here = (boxes[:, 0] <= seen[2]) & (boxes[:, 2] >= seen[0])
        here &= (boxes[:, 1] <= seen[3]) & (boxes[:, 3] >= seen[1])
        visible = scene.drawn_edges[here & (reach >= 4.0)]
        if not len(visible):
            return
        start, points = scene.layout.route_start, scene.layout.route_points
        a, b = points[start[visible]], points[start[visible + 1] - 1]
        cells = np.round(np.concatenate([a, b], axis=1) * (zoom / 2))
        _, once = np.unique(cells @ _MIXED, return_index=True)
        ends = np.concatenate([a[once], b[once]], axis=1).tolist()
        color = QColor(self._palette.faint)
        color.setAlphaF(0.7)
        pen = QPen(color, 1.0)
        pen.setCosmetic(True)
        painter.setPen(pen)
        painter.drawLines([QLineF(*end) for end in ends])

    def _far_boxes(self, painter: QPainter, seen: Rect, zoom: float) -> None:
        visible = self.scene.operators_in(seen)
        rects, steps = self._rectangles(visible), self._steps(visible)
        order = np.argsort(steps, kind="stable")
        sorted_steps, sorted_boxes = steps[order], visible[order]
        painter.setPen(Qt.PenStyle.NoPen)
        for step in np.unique(sorted_steps).tolist():
            first, last = np.searchsorted(sorted_steps, [step, step + 1])
            painter.setBrush(self._plain if step == UNKNOWN else self._fills[step])
            painter.drawRects([rects[i] for i in sorted_boxes[first:last].tolist()])
        steps = self.scene.traffic.block_steps()
        for slot in self.scene.blocks_in(seen).tolist():
            left, top, right, bottom = self.scene.block_boxes[slot].tolist()
            step = int(steps[slot])
            painter.setBrush(self._plain if step == UNKNOWN else self._fills[step])
            painter.drawRect(QRectF(left, top, right - left, bottom - top))


def route_path(route: NDArray[np.float64]) -> QPainterPath:
    """A line through points: straight where x stays, else a bend with vertical tangents."""
    points = route.tolist()
    path = QPainterPath(QPointF(*points[0]))
    for (ax, ay), (bx, by) in pairwise(points):
        if abs(ax - bx) < STRAIGHT:
            path.lineTo(bx, by)
        else:
            middle = (ay + by) / 2
            path.cubicTo(ax, middle, bx, middle, bx, by)
    return path


def draw_sign(painter: QPainter, kind: str, x: float, y: float, ink: QColor) -> None:
    """A sign of 12 pixels around (x, y): "warn" a triangle with a bar, "bad" a crossed circle."""
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(ink, 1.4, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin))
    if kind == "warn":
        painter.drawPolygon(
            QPolygonF([QPointF(x, y - 5), QPointF(x + 5.5, y + 4.5), QPointF(x - 5.5, y + 4.5)])
        )
        painter.drawLine(QPointF(x, y - 1.5), QPointF(x, y + 1))
        painter.drawPoint(QPointF(x, y + 2.8))
    else:
        painter.drawEllipse(QPointF(x, y), 5.0, 5.0)
        reach = 5.0 * math.sqrt(0.5)
        painter.drawLine(QPointF(x - reach, y + reach), QPointF(x + reach, y - reach))


def draw_cut_sign(painter: QPainter, x: float, y: float, ink: QColor) -> None:
    """Two opposed arrows: bytes out to memory and in again."""
    painter.setPen(QPen(ink, 1.1, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for side in (-1.0, 1.0):
        line = y + side * 2.2
        tip = x + side * 4.5
        painter.drawLine(QPointF(x - 4.5, line), QPointF(x + 4.5, line))
        painter.drawLine(QPointF(tip, line), QPointF(tip - side * 2.2, line - 2.0))
        painter.drawLine(QPointF(tip, line), QPointF(tip - side * 2.2, line + 2.0))
