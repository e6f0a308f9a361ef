"""What lies on the canvas, as arrays: boxes, hulls, cut chips, lines, heat; and what is under a point.

Knows a layout, the plan that is shown and the newest result. Must not know widgets, painters or colours.
There is no object per operator: culling and hit tests are comparisons over arrays, microseconds at 20,000
operators.

Hulls follow the plan at once, also in a drag, while boxes and lines stay where the layout put them. A group
that the layout placed keeps its frame; another gets the rectangle around its boxes, or, where that would
enclose foreign boxes, the union of its boxes and inner lines (`Scene.is_loose`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.cost.result import GroupResult
from model.graph.graph import OperatorGraph, OpKind
from model.plan.plan import FusionGroup, Plan

from ..digest import Digest
from ..names import first_operators
from .blocks import BOTTOM, CHIP, PAD, TITLE
from .heat import OperatorTraffic
from .positions import Layout

_STRETCH = 2048  # groups of two plans that are compared at a time
MOST_UNPLACED = 150  # hulls that are fitted between their neighbours, one by one
FRAME_TITLE, FRAME_GAP = (
    20.0,
    10.0,
)  # of an open block: the strip with its name, and the room around what it holds
STRAIGHT = 0.5  # a piece of a line that goes less than this sideways is straight
Rect = tuple[float, float, float, float]  # left, top, right, bottom
Points = NDArray[np.float64]


class Part(Enum):
    """What is under the pointer."""

    NOTHING = auto()
    OPERATOR = auto()
    CHIP = auto()
    RIM = auto()  # lower rim of a hull; its upper one is the lower one of what it reads
    UPPER_RIM = auto()
    HULL = auto()  # inside, its title included
    BLOCK = auto()  # a closed block
    FRAME = auto()  # the name of an open block
    EDGE = auto()


@dataclass(frozen=True, slots=True)
class Hit:
    """A part and its index: operator, chip (row of the chips), group, edge (row of ``graph.edges``), slot, open block.

    Slots are those of closed blocks in ``Scene.folding``; open blocks are rows of ``folding.opened``.
    """

    part: Part
    index: int = -1


@dataclass(frozen=True, slots=True)
class Chip:
    """One cut: a tensor that crosses into one reading group. ``edge`` is a row of ``graph.edges``."""

    edge: int
    producer: int
    consumer: int
    tensor: int
    source: int
    target: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What another plan changes of the picture.

    Attributes
    ----------
    kept : per group its index in the plan before, -1 where it is new.
    touched : around hulls and chips that came, went or changed.
    renamed : around hulls that only have another number.
    """

    kept: NDArray[np.int64]
    touched: Rect | None
    renamed: Rect | None


class Scene:
    """Everything that is drawn for one graph, plan and result. Made on any thread; then lives on the GUI thread."""

    def __init__(self, layout: Layout) -> None:
        self.graph: OperatorGraph = layout.graph
        self.traffic = OperatorTraffic(len(self.graph.operators))
        self.is_view = np.array([o.kind is OpKind.VIEW for o in self.graph.operators], dtype=np.bool_)
        self.is_opaque = np.array([o.kind is OpKind.OPAQUE for o in self.graph.operators], dtype=np.bool_)
        self.edge_bytes = np.array(
            [self.graph.tensors[t].bytes or 0 for t in self.graph.edges[:, 2].tolist()], dtype=np.float64
        )
        self.edge_class = _classes(self.edge_bytes)
        self.plan = layout.plan
        self._digest: Digest | None = None
        self._row_of: dict[tuple[int, ...], int] | None = (
            None  # of the digest's groups, made when one is asked for
        )
        self._rows = np.full(len(self.plan.groups), -1)  # of every shown group in the digest
        self.set_layout(layout)

    # -- what is shown -----------------------------------------------------------------------------
    def set_layout(self, layout: Layout) -> None:
        """Take new positions; the plan stays."""
        self.layout = layout
        self.boxes = layout.boxes
        self.folding = folding = layout.folding
        # What a frame looks through is what can be seen, not all there is.
        self._seen = np.flatnonzero(folding.shown)
        self._seen_boxes = layout.boxes[self._seen]
        self.drawn_edges = np.flatnonzero(~layout.hidden)
        self.block_boxes = layout.boxes[folding.first]
        away = FRAME_GAP
        self._frames = layout.opened + np.array([-away, -away - FRAME_TITLE, away, away])
        self.traffic.fold(folding.slot_of, len(folding.blocks))
        self.edge_boxes = layout.pieces.edge_boxes
        self._take_groups()
        kept = kept_groups(layout.plan, self.plan)
        self.hull_rects = _taken(layout.hulls, kept, np.nan)
        self._loose = np.zeros(len(kept), dtype=np.bool_)
        self._placed = ~np.isnan(self.hull_rects[:, 0]) | self._veiled
        veiled = np.flatnonzero(self._veiled)
        self.hull_rects[veiled] = self.boxes[first_operators(self.plan)[veiled]]
        self._hulls(np.flatnonzero(~self._placed))
        self._place_chips()

    def set_plan(self, plan: Plan) -> PlanChange | None:
        """Show `plan` over the same positions; what changes, None where it is shown already."""
        if plan is self.plan:
            return None
        before, self.plan = self.plan, plan
        old_rects, old_edges = self.hull_rects, self.chip_edges
        kept = kept_groups(before, plan)
        self.hull_rects = _taken(old_rects, kept, 0.0)
        self._loose, self._placed = _taken(self._loose, kept, False), _taken(self._placed, kept, False)
        self._rows = _taken(self._rows, kept, -1)
        self._take_groups()
        # Hulls that no layout placed give way to their neighbours: any of these may be another one now.
        drawn_anew = np.flatnonzero(~self._placed)
        self._hulls(drawn_anew)
        for group in np.flatnonzero(kept < 0).tolist():
            self._rows[group] = self._row(group)
        self._place_chips()
        stays = np.zeros(len(old_rects), dtype=np.bool_)
        stays[kept[self._placed & (kept >= 0)]] = True
        touched = [old_rects[~stays], self.hull_rects[drawn_anew], self.hull_rects[kept < 0]]
        moved = np.zeros(len(self.graph.edges), dtype=np.bool_)
        moved[old_edges] = True
        moved[self.chip_edges] ^= True
        anchors = self.layout.anchors[moved]
        touched.append(np.concatenate([anchors - CHIP, anchors + CHIP], axis=1))
        renamed = self.hull_rects[(kept >= 0) & (kept != np.arange(len(kept)))]
        return PlanChange(kept, around(np.concatenate(touched)), around(renamed))

    def set_result(self, digest: Digest | None) -> Rect | None:
        """Take the numbers of a result; groups that it does not know show none.

        Returns the part of the world whose picture changes, None if none.
        """
        steps, block_steps, looks = self.traffic.steps(), self.traffic.block_steps(), self._looks()
        self.traffic.update(digest)
        self._digest = digest
        if digest is None:
            self._rows = np.full(len(self.plan.groups), -1)
        else:
            self._rows = kept_groups(digest.result.request.plan, self.plan)
            for group in np.flatnonzero(self._rows < 0).tolist():
                self._rows[group] = self._row(group)
        now = self._looks()
        other = ((now != looks) & ~(np.isnan(now) & np.isnan(looks))).any(axis=1)
        in_loose = (other & self._loose)[self.group_of]
        boxes = self.boxes[((self.traffic.steps() != steps) | in_loose) & self.folding.shown]
        blocks = self.block_boxes[self.traffic.block_steps() != block_steps]
        return around(np.concatenate([boxes, blocks, self.hull_rects[other & ~self._veiled]]))

    def _row(self, group: int) -> int:
        """The row of the digest that has the numbers of a shown group, -1 where there are none."""
        if self._digest is None:
            return -1
        result, operators = self._digest.result, self.plan.groups[group].operators
        row = int(result.request.plan.membership[operators[0]])
        return row if result.groups[row].operators == operators else -1

    def _looks(self) -> NDArray[np.float64]:
        """float64[groups, 3]: what titles and hulls show of each group's numbers; NaN where there are none."""
        if self._digest is None:
            return np.full((len(self._rows), 3), np.nan)
        return _taken(self._digest.looks, self._rows, np.nan)

    def result_of(self, group: int) -> GroupResult | None:
        """The numbers of a shown group, or None where the newest result has none for it."""
        row = int(self._rows[group])
        return None if self._digest is None or row < 0 else self._digest.result.groups[row]

    # -- hulls ---------------------------------------------------------------------------------------
    def _take_groups(self) -> None:
        """Membership, and which groups have a hull: a view alone is no launch and has none."""
        self.group_of = self.plan.membership.astype(np.int64)
        count = len(self.plan.groups)
        members = np.bincount(self.group_of, minlength=count)
        views = np.bincount(self.group_of[self.is_view], minlength=count)
        self._veiled = members == np.bincount(self.group_of[~self.folding.shown], minlength=count)
        self.seen_groups = np.flatnonzero(~self._veiled)  # of which an operator has a box of its own
        self.hull_drawn = ((members != 1) | (views != 1)) & ~self._veiled
        self._drawn = np.flatnonzero(self.hull_drawn)

    def _hulls(self, groups: NDArray[np.int64]) -> None:
        """Hulls of groups that the layout may not have placed."""
        if len(groups) <= MOST_UNPLACED:
            for group in groups.tolist():
                self._hull(group)
            return
        # Another plan altogether; its layout comes in a moment. Until then no hull gives way to its neighbours.
        low, high = np.full((len(self.plan.groups), 2), np.inf), np.full((len(self.plan.groups), 2), -np.inf)
        seen = self.folding.shown | self._veiled[self.group_of]
        np.minimum.at(low, self.group_of[seen], self.boxes[seen, :2])
        np.maximum.at(high, self.group_of[seen], self.boxes[seen, 2:])
        rims = np.concatenate([low - PAD, high + PAD], axis=1)
        self.hull_rects[groups] = rims[groups]
        several = np.bincount(self.group_of, minlength=len(low)) > 1
        self._loose[groups] = (several & ~self._veiled)[groups]

    def _hull(self, group: int) -> None:
        operators = self.plan.groups[group].operators
        self._loose[group] = False
        frame = self.layout.frames.get(operators)
        self._placed[group] = frame is not None
        if frame is not None:
            self.hull_rects[group] = frame
            return
        if self._veiled[group]:  # it is not drawn: no neighbour can change how
            self._placed[group], self.hull_rects[group] = True, self.boxes[operators[0]]
            return
        boxes = self.boxes[self.members(group)]
        left, top = boxes[:, :2].min(axis=0)
        right, bottom = boxes[:, 2:].max(axis=0)
        whole = (left, top, right, bottom)
        inside = self.operators_in(whole)
        strange = (self.group_of[inside] != group).any() or len(self.blocks_in(whole)) > 0
        self._loose[group] = bool(strange)
        # Where the layout left no room for a rim, because this was one group, two hulls share the gap.
        near = self.operators_in((left, top - 2 * TITLE, right, bottom + 2 * BOTTOM))
        strangers = self.boxes[near[self.group_of[near] != group]]
        above = top - strangers[strangers[:, 3] <= top, 3].max(initial=top - 2 * TITLE)
        below = strangers[strangers[:, 1] >= bottom, 1].min(initial=bottom + 2 * BOTTOM) - bottom
        self.hull_rects[group] = (
            left - PAD,
            top - min(TITLE, above / 2 - 1.0),
            right + PAD,
            bottom + min(BOTTOM, below / 2 - 1.0),
        )

    def members(self, group: int) -> list[int]:
        """The operators of a group that have a box of their own; all where none has."""
        operators = self.plan.groups[group].operators
        if not len(self.folding.blocks):
            return list(operators)
        shown = self.folding.shown
        return [operator for operator in operators if shown[operator]] or list(operators)

    def is_loose(self, group: int) -> bool:
        """Whether the group's rectangle would enclose foreign boxes, so that its hull is their union."""
        return bool(self._loose[group])

    def inner_edges(self, group: int) -> NDArray[np.int64]:
        """Rows of ``graph.edges`` inside a group, both ends seen."""
        members = self.plan.groups[group].operators
        edges = self.graph.edges
        # Edges are sorted by producer: a slice covers the group, whatever else lies between.
        first, last = np.searchsorted(edges[:, 0], [members[0], members[-1] + 1])
        part = edges[first:last]
        shown = self.folding.shown
        within = (self.group_of[part[:, 0]] == group) & (self.group_of[part[:, 1]] == group)
        within &= shown[part[:, 0]] & shown[part[:, 1]]
        return np.flatnonzero(within) + int(first)

    # -- chips ---------------------------------------------------------------------------------------
    def _place_chips(self) -> None:
        """One chip per tensor and reading group or closed block, at the anchor of the first edge that bears it."""
        edges, slot = self.graph.edges, self.folding.slot_of
        target = self.group_of[edges[:, 1]]
        self.crosses = self.group_of[edges[:, 0]] != target
        groups, slots = len(self.plan.groups), len(self.folding.blocks)
        rows = self.drawn_edges[self.crosses[self.drawn_edges]]
        reader = slot[edges[rows, 1]]
        reader = np.where(reader >= 0, groups + reader, target[rows])
        key = edges[rows, 2].astype(np.int64) * (groups + slots + 1) + reader
        _, first = np.unique(key, return_index=True)
        self.chip_edges = rows[first]
        self.chip_xy = self.layout.anchors[self.chip_edges]
        ends = edges[self.chip_edges]
        self.chip_is_handle = (slot[ends[:, 0]] < 0) & (slot[ends[:, 1]] < 0)

    def chip(self, index: int) -> Chip:
        """One chip as a value."""
        edge = int(self.chip_edges[index])
        producer, consumer, tensor = (int(v) for v in self.graph.edges[edge])
        x, y = (float(v) for v in self.chip_xy[index])
        groups = int(self.group_of[producer]), int(self.group_of[consumer])
        return Chip(edge, producer, consumer, tensor, *groups, x, y)

    def chip_at_edge(self, edge: int) -> int | None:
        """The chip of the cut that `edge` is part of."""
        producer, consumer, tensor = (int(v) for v in self.graph.edges[edge])
        reads = self.graph.edges[self.chip_edges, 1]
        slot = self.folding.slot_of
        beside = self.group_of[reads] == self.group_of[consumer]
        if slot[consumer] >= 0:
            beside = slot[reads] == slot[consumer]
        same = (self.graph.edges[self.chip_edges, 2] == tensor) & beside
        found = np.flatnonzero(same)
        return int(found[0]) if self.group_of[producer] != self.group_of[consumer] and len(found) else None

    # -- what is where -------------------------------------------------------------------------------
    def operators_in(self, rect: Rect) -> NDArray[np.int64]:
        """Operators with a box of their own that meets `rect`."""
        return self._seen[_meeting(self._seen_boxes, rect)]

    def blocks_in(self, rect: Rect) -> NDArray[np.int64]:
        """Slots of the closed blocks that meet `rect`."""
        return _meeting(self.block_boxes, rect)

    def frames_in(self, rect: Rect) -> NDArray[np.int64]:
        """Open blocks, as rows of ``folding.opened``, whose frame meets `rect`."""
        return _meeting(self._frames, rect)

    def hulls_in(self, rect: Rect) -> NDArray[np.int64]:
        """Groups whose drawn hull meets `rect`."""
        return self._drawn[_meeting(self.hull_rects[self._drawn], rect)]

    def edges_in(self, rect: Rect) -> NDArray[np.int64]:
        """Edges of which a piece may meet `rect`."""
        pieces = self.layout.pieces
        return np.unique(pieces.edge[_meeting(pieces.boxes, rect)])

    def pieces_in(self, rect: Rect) -> tuple[NDArray[np.int64], Points, Points]:
        """Per piece of a line that may meet `rect`: its edge, and the points between which it runs."""
        pieces, points = self.layout.pieces, self.layout.route_points
        found = _meeting(pieces.boxes, rect)
        at = pieces.at[found]
        return pieces.edge[found], points[at], points[at + 1]

    def chips_in(self, rect: Rect) -> NDArray[np.int64]:
        """Chips that meet `rect`; none in a provisional picture, where no line keeps room for them."""
        if self.layout.provisional:
            return np.empty(0, dtype=np.int64)
        x, y = self.chip_xy[:, 0], self.chip_xy[:, 1]
        half_width, half_height = CHIP[0] / 2, CHIP[1] / 2
        return np.flatnonzero(
            (x > rect[0] - half_width)
            & (x < rect[2] + half_width)
            & (y > rect[1] - half_height)
            & (y < rect[3] + half_height)
        )

    def hit(self, x: float, y: float, reach: float, *, chips: bool = True) -> Hit:
        """What is at a point of the world.

        Parameters
        ----------
        reach : how far beside a thin thing still counts, in world units.
        chips : whether chips are drawn at this zoom.
        """
        here = (x - reach, y - reach, x + reach, y + reach)
        if chips and len(found := self.chips_in((x, y, x, y))):
            return Hit(Part.CHIP, int(found[-1]))
        if len(found := self.operators_in((x, y, x, y))):
            return Hit(Part.OPERATOR, int(found[-1]))
        if len(found := self.blocks_in((x, y, x, y))):
            return Hit(Part.BLOCK, int(found[-1]))
        hulls = self.hulls_in(here)
        for group in hulls[::-1].tolist():
            left, top, right, bottom = self.hull_rects[group].tolist()
            if left <= x <= right:
                if abs(y - bottom) <= reach:
                    return Hit(Part.RIM, group)
                if abs(y - top) <= reach:
                    return Hit(Part.UPPER_RIM, group)
        if (edge := self._edge_at(x, y, reach)) is not None:
            return Hit(Part.EDGE, edge)
        for group in hulls[::-1].tolist():
            left, top, right, bottom = self.hull_rects[group].tolist()
            if left <= x <= right and top <= y <= bottom:
                return Hit(Part.HULL, group)
        for row in self.frames_in((x, y, x, y))[::-1].tolist():
            if y <= self._frames[row, 1] + FRAME_TITLE:
                return Hit(Part.FRAME, row)
        return Hit(Part.NOTHING)

    def frame(self, row: int) -> Rect:
        """The frame of an open block, with its title strip above what it holds."""
        left, top, right, bottom = self._frames[row].tolist()
        return left, top, right, bottom

    def _edge_at(self, x: float, y: float, reach: float) -> int | None:
        edges, a, b = self.pieces_in((x - reach, y - reach, x + reach, y + reach))
        if not len(edges):
            return None
        points = along(a, b, *share_of(a, b, x - reach, x + reach), y - reach, y + reach)
        away = np.hypot(points[..., 0] - x, points[..., 1] - y).min(axis=1)
        best = int(np.argmin(away))
        return int(edges[best]) if away[best] <= reach else None

    def sampled(self, edge: int) -> Points:
        """Points along a line as it is drawn, bends included."""
        route = self.route(edge)
        return along(route[:-1], route[1:], *share_of(route[:-1], route[1:])).reshape(-1, 2)

    def route(self, edge: int) -> Points:
        """The points of one line, producer first."""
        start = self.layout.route_start
        return self.layout.route_points[start[edge] : start[edge + 1]]

    def group_at(self, x: float, y: float) -> int | None:
        """The group whose hull, or lone box, lies under a point."""
        found = _meeting(self.hull_rects, (x, y, x, y))
        return int(found[-1]) if len(found) else None


_EVENLY = np.linspace(0.0, 1.0, 24)


def share_of(
    a: Points, b: Points, left: float = -np.inf, right: float = np.inf
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per piece from `a` to `b` the part, from 0 to 1 along it, that lies between two x.

    A bend is a cubic with vertical tangents: x goes by ``3 t^2 - 2 t^3``, whose inverse is closed.
    """
    across = b[:, 0] - a[:, 0]
    bends = np.abs(across) >= STRAIGHT
    safe = np.where(bends, across, 1.0)
    low, high = (left - a[:, 0]) / safe, (right - a[:, 0]) / safe
    ends = np.clip(np.sort(np.stack([low, high]), axis=0), 0.0, 1.0)
    t = 0.5 - np.sin(np.arcsin(1.0 - 2.0 * ends) / 3.0)
    return np.where(bends, t[0], 0.0), np.where(bends, t[1], 1.0)


def along(
    a: Points,
    b: Points,
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
    top: float = -np.inf,
    bottom: float = np.inf,
    at: NDArray[np.float64] = _EVENLY,
) -> Points:
    """float64[pieces, samples, 2]: points of each piece between two shares of it; y is cut to a band.

    ``at`` : where the samples lie, 0 at ``begin`` and 1 at ``end``.
    """
    t = begin[:, None] + (end - begin)[:, None] * at
    x = a[:, :1] + (b[:, :1] - a[:, :1]) * (t * t * (3.0 - 2.0 * t))
    rise = 1.5 * t * (1.0 - t) + t**3
    y = a[:, 1:] + (b[:, 1:] - a[:, 1:]) * np.where(np.abs(b[:, :1] - a[:, :1]) < STRAIGHT, t, rise)
    return np.stack([x, np.clip(y, top, bottom)], axis=2)


def kept_groups(before: Plan, plan: Plan) -> NDArray[np.int64]:
    """Per group of `plan` its index in `before`, -1 where it is none of those: the same objects, as edits keep them."""
    old, new = before.groups, plan.groups
    most = min(len(old), len(new))
    head = _alike(old, new, most) if old is not new else most
    tail = _alike(old[::-1], new[::-1], most - head)
    out = np.full(len(new), -1)
    out[:head] = np.arange(head)
    out[len(new) - tail :] = np.arange(len(old) - tail, len(old))
    between = {id(group): head + place for place, group in enumerate(old[head : len(old) - tail])}
    if between:
        out[head : len(new) - tail] = [between.get(id(group), -1) for group in new[head : len(new) - tail]]
    return out


def _alike(old: tuple[FusionGroup, ...], new: tuple[FusionGroup, ...], most: int) -> int:
    """How many groups at the beginning, at most `most`, are the same.

    Stretches of a tuple are compared in one go, and one by one only where they differ: of 50,000 groups an edit leaves
    nearly all alone, and the worker's Python would come between any two turns of a loop over them.
    """
    place = 0
    while place < most and old[place] is new[place]:
        end = min(most, place + _STRETCH)
        if old[place:end] == new[place:end]:
            place = end
        else:
            place += 1 + next(
                (i for i in range(end - place - 1) if old[place + 1 + i] is not new[place + 1 + i]),
                end - place - 1,
            )
    return place


def _taken(values: NDArray[Any], rows: NDArray[np.int64], otherwise: float) -> NDArray[Any]:
    """``values[rows]``, `otherwise` where a row is -1."""
    if not len(values):
        return np.full((len(rows), *values.shape[1:]), otherwise, dtype=values.dtype)
    out = values[rows]
    out[rows < 0] = otherwise
    return out


def around(boxes: Points) -> Rect | None:
    """The rectangle around boxes, with room for a rim and a title; None where there is none."""
    columns = boxes.T  # numpy goes over four long columns faster than over many short rows
    there = ~np.logical_or.reduce([np.isnan(column) for column in columns])
    if not there.any():
        return None
    left, top, right, bottom = [column[there] for column in columns]
    return (
        float(left.min()) - TITLE,
        float(top.min()) - TITLE,
        float(right.max()) + TITLE,
        float(bottom.max()) + TITLE,
    )


def _meeting(boxes: Points, rect: Rect) -> NDArray[np.int64]:
    return np.flatnonzero(
        (boxes[:, 0] <= rect[2])
        & (boxes[:, 2] >= rect[0])
        & (boxes[:, 1] <= rect[3])
        & (boxes[:, 3] >= rect[1])
    )


def _classes(amounts: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 to 4 by the logarithm of bytes between the least and the most in this graph."""
    some = amounts[amounts > 0]
    if not len(some) or some.max() <= some.min():
        return np.ones(len(amounts), dtype=np.int64)
    low, high = np.log(some.min()), np.log(some.max())
    share = (np.log(np.maximum(amounts, some.min())) - low) / (high - low)
    return np.minimum((share * 5).astype(np.int64), 4)
