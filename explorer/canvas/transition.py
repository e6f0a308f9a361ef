"""From one layout to the next in less than a fifth of a second, so that the eye can follow.

Knows layouts and a clock of Qt. Must not know why the layout changed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QEasingCurve, QObject, QVariantAnimation

from .positions import Layout

DURATION_MS = 160


class Transition(QVariantAnimation):
    """Calls `show` with every layout on the way and how far it is from 0 to 1, last with the new one itself."""

    def __init__(
        self,
        before: Layout,
        after: Layout,
        hulls: dict[tuple[int, ...], tuple[float, ...]],
        show: Callable[[Layout, float], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._before, self.after, self._hulls, self._show = before, after, hulls, show
        self.setStartValue(0.0)
        self.setEndValue(1.0)
        self.setDuration(DURATION_MS)
        self.setEasingCurve(QEasingCurve.Type.OutCubic)
        self.valueChanged.connect(self._step)

    def _step(self, share: float) -> None:
        if share >= 1.0:
            self._show(self.after, 1.0)
        else:
            self._show(between(self._before, self.after, self._hulls, share), share)

    def end(self) -> None:
        """Show nothing more."""
        self.stop()
        self.deleteLater()


def between(
    before: Layout, after: Layout, hulls: dict[tuple[int, ...], tuple[float, ...]], share: float
) -> Layout:
    """Positions on the way; lines run straight from box to box meanwhile.

    Parameters
    ----------
    hulls : left, top, right, bottom of the hulls as they are seen before, by the operators of their group.
    share : from 0, before, to 1, after.
    """
    boxes = before.boxes + (after.boxes - before.boxes) * share
    frames: dict[tuple[int, ...], tuple[float, float, float, float]] = {}
    for operators, frame in after.frames.items():
        if (old := hulls.get(operators)) is not None:
            a, b, c, d = (float(o) + (n - float(o)) * share for o, n in zip(old, frame, strict=True))
            frames[operators] = (a, b, c, d)
    edges = after.graph.edges
    middle = (boxes[:, 0] + boxes[:, 2]) / 2
    tops = np.stack([middle[edges[:, 0]], boxes[edges[:, 0], 3]], axis=1)
    ends = np.stack([middle[edges[:, 1]], boxes[edges[:, 1], 1]], axis=1)
    points = np.stack([tops, ends], axis=1).reshape(-1, 2)
    start = np.arange(len(edges) + 1, dtype=np.int32) * 2
    anchors = before.anchors + (after.anchors - before.anchors) * share
    opened = np.full_like(after.opened, np.nan)  # drawn again when everything is in its place
    return Layout(
        after.graph,
        after.plan,
        boxes,
        frames,
        start,
        points,
        anchors,
        after.bounds,
        after.folding,
        opened=opened,
    )
