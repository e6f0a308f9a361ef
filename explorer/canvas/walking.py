"""Where the keyboard goes from an operator: to what it reads, to what reads it, to its neighbours in the row.

A closed block is one thing: the way leads from any of its operators to what its box is tied to.

Knows a scene. Must not know keys or the document.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from .scene import Scene

SAME_ROW = 40.0  # middles of operators of one row are at most so far apart


class Way(Enum):
    """A direction on the canvas."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    LEFT = "left"
    RIGHT = "right"


def step(scene: Scene, operator: int, way: Way) -> int | None:
    """The nearest operator that way, or None."""
    edges = scene.graph.edges
    middles = (scene.boxes[:, :2] + scene.boxes[:, 2:]) / 2
    here = np.zeros(len(middles), dtype=np.bool_)
    here[list(scene.folding.together(operator))] = True
    if way is Way.PRODUCER:
        found = edges[here[edges[:, 1]] & ~here[edges[:, 0]], 0]
    elif way is Way.CONSUMER:
        found = edges[here[edges[:, 0]] & ~here[edges[:, 1]], 1]
    else:
        side = 1.0 if way is Way.RIGHT else -1.0
        x, y = middles[operator]
        found = np.flatnonzero((np.abs(middles[:, 1] - y) < SAME_ROW) & ((middles[:, 0] - x) * side > 1.0))
    if not len(found):
        return None
    away = np.abs(middles[found] - middles[operator])
    return int(found[int(np.argmin(away[:, 0] + away[:, 1] * 0.01))])


def nearest(scene: Scene, x: float, y: float) -> int:
    """The operator nearest to a point of the world; there must be one."""
    middles = (scene.boxes[:, :2] + scene.boxes[:, 2:]) / 2
    return int(np.argmin(np.abs(middles - (x, y)).sum(axis=1)))
