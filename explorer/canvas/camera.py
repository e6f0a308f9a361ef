"""Which part of the world is seen, and how large: one value, changed by making another.

Knows numbers only. Screen units are logical pixels of the viewport.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Rect = tuple[float, float, float, float]
"""Left, top, right, bottom in world units."""
SMALLEST, LARGEST = 0.001, 4.0
MARGIN = 24.0


@dataclass(frozen=True, slots=True)
class Camera:
    """The world point at the viewport's top left corner, and screen pixels per world unit."""

    x: float = 0.0
    y: float = 0.0
    zoom: float = 1.0

    def to_world(self, x: float, y: float) -> tuple[float, float]:
        """The world point under a screen point."""
        return self.x + x / self.zoom, self.y + y / self.zoom

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        """Where a world point is seen."""
        return (x - self.x) * self.zoom, (y - self.y) * self.zoom

    def seen(self, width: float, height: float) -> Rect:
        """Left, top, right, bottom of the world that a viewport of this size shows."""
        return self.x, self.y, self.x + width / self.zoom, self.y + height / self.zoom

    def panned(self, dx: float, dy: float) -> Camera:
        """The picture moved by screen pixels."""
        return replace(self, x=self.x - dx / self.zoom, y=self.y - dy / self.zoom)

    def zoomed(self, factor: float, x: float, y: float) -> Camera:
        """Larger by `factor`, while the world point under the screen point stays where it is."""
        zoom = min(max(self.zoom * factor, SMALLEST), LARGEST)
        world_x, world_y = self.to_world(x, y)
        return Camera(world_x - x / zoom, world_y - y / zoom, zoom)

    def snapped(self, ratio: float) -> Camera:
        """Moved by less than a device pixel, so that pictures can be shifted by whole pixels."""
        step = self.zoom * ratio
        return replace(self, x=round(self.x * step) / step, y=round(self.y * step) / step)

    def showing(self, rect: Rect, width: float, height: float) -> Camera:
        """Moved just so far that `rect` is seen with a margin; its top left corner where it is too large."""
        margin = MARGIN / self.zoom
        left, top, right, bottom = self.seen(width, height)
        dx = min(rect[0] - margin - left, 0.0) or max(rect[2] + margin - right, 0.0)
        dy = min(rect[1] - margin - top, 0.0) or max(rect[3] + margin - bottom, 0.0)
        dx, dy = (
            min(dx, rect[0] - margin - left) if dx > 0 else dx,
            (min(dy, rect[1] - margin - top) if dy > 0 else dy),
        )
        return replace(self, x=self.x + dx, y=self.y + dy)

    def keeping(self, before: Camera, old: Rect, new: Rect, width: float, height: float) -> Camera:
        """Moved just so far that the sides of `old` that `before` shows are seen of `new`, the first ones at least.

        What was seen as a whole is seen as a whole, smaller if it must be.
        """
        was, seen, margin = before.seen(width, height), self.seen(width, height), MARGIN / self.zoom
        slack = 1.0 / self.zoom
        room = (old[0] - was[0], old[1] - was[1], was[2] - old[2], was[3] - old[3])
        span = new[2] - new[0], new[3] - new[1]
        if min(room) >= -slack and (span[0] > width / self.zoom or span[1] > height / self.zoom):
            return Camera.fitting(new, width, height, self.zoom)
        moved = [0.0, 0.0]
        for axis in (0, 1):
            first, last = min(room[axis], margin), min(room[axis + 2], margin)
            if last >= -slack:
                moved[axis] = max(0.0, new[axis + 2] + last - seen[axis + 2])
            if first >= -slack:
                moved[axis] = min(moved[axis], new[axis] - first - seen[axis])
        return replace(self, x=self.x + moved[0], y=self.y + moved[1])

    def towards(self, end: Camera, share: float) -> Camera:
        """On the way to another one: from 0, here, to 1, there."""
        return Camera(
            self.x + (end.x - self.x) * share,
            self.y + (end.y - self.y) * share,
            self.zoom + (end.zoom - self.zoom) * share,
        )

    @staticmethod
    def fitting(rect: Rect, width: float, height: float, largest: float = 1.0) -> Camera:
        """All of `rect` in the middle of a viewport, no larger than `largest`."""
        room_x, room_y = max(width - 2 * MARGIN, 1.0), max(height - 2 * MARGIN, 1.0)
        wide, high = max(rect[2] - rect[0], 1.0), max(rect[3] - rect[1], 1.0)
        zoom = min(max(min(room_x / wide, room_y / high), SMALLEST), largest)
        return Camera(
            (rect[0] + rect[2]) / 2 - width / zoom / 2, (rect[1] + rect[3]) / 2 - height / zoom / 2, zoom
        )
