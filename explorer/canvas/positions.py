"""A layout as values: where everything lies, and how what lies somewhere is found.

Knows the graph, a plan and a folding. Must not know how positions come about, Qt or colours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph
from model.plan.plan import Plan

from .blocks import Points
from .folding import Folding


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of everything; see the module's docstring.

    Attributes
    ----------
    boxes : float64[operators, 4], left, top, right, bottom of each operator.
    frames : by the operators of a group: left, top, right, bottom of its hull.
    route_start : int32[edges + 1] into `route_points`, in the order of ``graph.edges``.
    route_points : float64[points, 2], from the producer's box down to the consumer's. Between two points
        with different x the line bends with vertical tangents.
    anchors : float64[edges, 2], the middle of the chip that the edge bears where it crosses groups.
    bounds : left, top, right, bottom of everything.
    provisional : a quick picture of ranks that waits for the real one.
    folding : which blocks are closed. The boxes of their operators are all that of the block; lines between two
        of them are points in it.
    opened : rows of ``folding.opened``: left, top, right, bottom of what each holds; not a number where others lie
        between.
    """

    graph: OperatorGraph
    plan: Plan
    boxes: Points
    frames: dict[tuple[int, ...], tuple[float, float, float, float]]
    route_start: NDArray[np.int32]
    route_points: Points
    anchors: Points
    bounds: tuple[float, float, float, float]
    folding: Folding
    provisional: bool = False
    opened: Points = field(default_factory=lambda: np.zeros((0, 4)))

    @cached_property
    def hulls(self) -> Points:
        """float64[groups, 4], `frames` in the order of the plan; not a number where there is none."""
        frames, nowhere = self.frames, (np.nan,) * 4
        found = [frames.get(group.operators, nowhere) for group in self.plan.groups]
        return np.array(found, dtype=np.float64).reshape(-1, 4)

    @cached_property
    def hidden(self) -> NDArray[np.bool_]:
        """bool[edges]: lines inside closed blocks, which are not drawn."""
        slot, edges = self.folding.slot_of, self.graph.edges
        return (slot[edges[:, 0]] >= 0) & (slot[edges[:, 0]] == slot[edges[:, 1]])

    @cached_property
    def pieces(self) -> Pieces:
        """Lines cut at their points, to be found by where they lie; `lay_out` makes them on the worker."""
        points, start = self.route_points, self.route_start
        count = len(start) - 1
        boxes = np.zeros((0, 4))
        if count:
            low = np.minimum.reduceat(points, start[:-1], axis=0)
            high = np.maximum.reduceat(points, start[:-1], axis=0)
            boxes = np.concatenate([low, high], axis=1)
        first = np.ones(len(points), dtype=np.bool_)
        first[start[1:] - 1] = False
        owner = np.repeat(np.arange(count), np.diff(start))
        at = np.flatnonzero(first & ~self.hidden[owner])
        a, b = points[at], points[at + 1]
        owner = owner[at]
        return Pieces(boxes, at, owner, np.concatenate([np.minimum(a, b), np.maximum(a, b)], axis=1))


@dataclass(frozen=True, eq=False)
class Pieces:
    """A piece lies between two points of one line; it is named by the first of them.

    Attributes
    ----------
    edge_boxes : float64[edges, 4], left, top, right, bottom of each line.
    at : int64[pieces], rows of ``route_points``.
    edge : int64[pieces], whose line it is part of.
    boxes : float64[pieces, 4].
    """

    edge_boxes: Points
    at: NDArray[np.int64]
    edge: NDArray[np.int64]
    boxes: Points


def nothing(graph: OperatorGraph, plan: Plan) -> Layout:
    """The layout of a graph without operators."""
    none = np.zeros((0, 2))
    start = np.zeros(1, dtype=np.int32)
    return Layout(graph, plan, np.zeros((0, 4)), {}, start, none, none, (0.0, 0.0, 1.0, 1.0), Folding(0))


def bounds_of(boxes: Points) -> tuple[float, float, float, float]:
    """The rectangle around rectangles, at least one."""
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])
