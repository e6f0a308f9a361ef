"""The picture below the pointer's feedback, kept between frames: only what changed is drawn again.

Knows a painter of scenes and a camera. Must not know why something changed. A moved camera shifts the kept
picture by whole device pixels and draws the strips that came into view; damage is drawn inside its rectangle.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QRect, QRectF, QSize
from PySide6.QtGui import QPainter, QPixmap

from .. import look
from .camera import Camera
from .painter import ScenePainter
from .scene import Rect

MOST_PIECES = 6


class Backing:
    """A pixmap of the viewport's size that is brought up to date before each frame."""

    def __init__(self) -> None:
        self._pixmap = QPixmap()
        self._camera: Camera | None = None
        self._theme: look.Palette | None = None
        self._damage: list[QRect] = []

    def forget(self) -> None:
        """Everything changed."""
        self._camera = None

    def damage(self, world: Rect, camera: Camera) -> QRect:
        """A part of the world changed; returns the part of the viewport that must be shown anew."""
        left, top = camera.to_screen(world[0], world[1])
        right, bottom = camera.to_screen(world[2], world[3])
        far = 1e6  # the graph may be larger than a QRect
        left, top = max(left, -far), max(top, -far)
        rect = QRect(
            math.floor(left) - 4,
            math.floor(top) - 4,
            math.ceil(min(right, far) - left) + 9,
            math.ceil(min(bottom, far) - top) + 9,
        )
        self._damage.append(rect)
        if len(self._damage) > MOST_PIECES:
            whole = QRect()
            for piece in self._damage:
                whole = whole.united(piece)
            self._damage = [whole]
        return rect

    def picture(self, pictures: ScenePainter, camera: Camera, size: QSize, ratio: float) -> QPixmap:
        """The picture as it is now."""
        wanted = QSize(round(size.width() * ratio), round(size.height() * ratio))
        whole = QRect(0, 0, size.width(), size.height())
        old = self._camera
        if self._pixmap.size() != wanted or self._pixmap.devicePixelRatio() != ratio:
            self._pixmap = QPixmap(wanted)
            self._pixmap.setDevicePixelRatio(ratio)
            old = None
        if self._theme is not look.palette():
            self._theme, old = look.palette(), None
        if old is None or old.zoom != camera.zoom:
            self._damage = [whole]
        elif old != camera:
            self._shift(old, camera, whole, ratio)
        self._camera = camera
        pieces, self._damage = self._damage, []
        for piece in pieces:
            visible = piece.intersected(whole)
            if not visible.isEmpty():
                painter = QPainter(self._pixmap)
                painter.setClipRect(visible)
                pictures.paint(painter, camera, QRectF(visible))
                painter.end()
        return self._pixmap

    def _shift(self, old: Camera, camera: Camera, whole: QRect, ratio: float) -> None:
        dx = round((old.x - camera.x) * camera.zoom * ratio)
        dy = round((old.y - camera.y) * camera.zoom * ratio)
        if abs(dx) >= self._pixmap.width() or abs(dy) >= self._pixmap.height():
            self._damage = [whole]
            return
        self._pixmap.scroll(dx, dy, self._pixmap.rect())
        # Logical pixels of the strips, rounded outwards.
        across, down = math.ceil(abs(dx) / ratio) + 1, math.ceil(abs(dy) / ratio) + 1
        self._damage = [
            piece.translated(round(dx / ratio), round(dy / ratio)).adjusted(-1, -1, 1, 1)
            for piece in self._damage
        ]
        if dx:
            left = 0 if dx > 0 else whole.width() - across
            self._damage.append(QRect(left, 0, across, whole.height()))
        if dy:
            top = 0 if dy > 0 else whole.height() - down
            self._damage.append(QRect(0, top, whole.width(), down))
