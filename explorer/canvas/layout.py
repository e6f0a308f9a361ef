"""Where everything lies: groups as blocks in layers from top to bottom, operators in layers inside them.

Knows the graph, one plan and the layered-layout kernels; runs on the worker. Must not know Qt, colours or
results. A layout is a pure function of (graph, plan), so undo brings back the same picture; blocks of groups
that did not change come from the cache.

World units are pixels at 100 %, y down. Two levels, because then no two hulls overlap and no edge runs
through a foreign hull::

    outer   one block per unit (a fusion group, or a closed block of the graph: folding.py); one line per tensor
            and reading unit (a *crossing*, what is cut)
    inner   the operators of one group, an entry per tensor that comes in, an exit for all that goes out

    ┌ hull of the producer ┐
    │        box           │      between two layers: exits run down straight, bend once in the
    └────────┬─────────────┘      middle zone, then run down straight again to the reader's hull:
        chips of exits            cut chips sit on the straight parts, where nothing else passes
    ──────── bends ─────────
        chips of entries
    ┌────────┴─────────────┐
    │   hull of a reader   │
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph, OpKind
from model.plan.plan import Plan

from .blocks import (
    BEND_MAX,
    BEND_MIN,
    BLOCK_GAP,
    CHIP,
    CHIP_LANE,
    CHIP_LANES,
    FEW_ENTRIES,
    Block,
    Points,
    Shape,
    has_hull,
    in_layers,
    make_block,
)
from .folding import Folding, Unit
from .positions import Layout, nothing

MOST_OPENED = 300  # open blocks that are looked for a frame; of more, none can be told apart


@dataclass(frozen=True, eq=False)
class Member:
    """A unit with its block: which tensors and lines (rows of ``graph.edges``) its parts stand for.

    Attributes
    ----------
    entry_of, exit_of : by a tensor that comes in, or goes out, its entry or exit of the block.
    leaving, exits : edges that leave, and the exit that each takes.
    """

    block: Block
    entry_of: dict[int, int]
    exit_of: dict[int, int]
    inner: tuple[int, ...]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]
    exits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What a layout is a function of. ``members`` is a cache that the worker alone reads and writes.

    ``folding`` None: every operator is seen.
    """

    graph: OperatorGraph
    plan: Plan
    members: MutableMapping[Unit, Member] = field(compare=False)
    folding: Folding | None = None


class Unwanted(Exception):
    """Whoever asked for a layout no longer wants it."""


class Patience:
    """Asks now and then whether a layout is still wanted."""

    def __init__(self, unwanted: Callable[[], bool] | None) -> None:
        self._unwanted = unwanted

    def check(self) -> None:
        """Raise `Unwanted` where it is not."""
        if self._unwanted is not None and self._unwanted():
            raise Unwanted


def lay_out(request: LayoutRequest, unwanted: Callable[[], bool] | None = None) -> Layout:
    """Place closed blocks and groups of ``request.plan`` with their operators. On the worker; the plan is legal.

    Raises
    ------
    Unwanted : `unwanted` said True between two steps.
    """
    graph, plan = request.graph, request.plan
    if not graph.operators:
        return nothing(graph, plan)
    edges = graph.edges.astype(np.int64)
    folding = request.folding or Folding(len(graph.operators))
    units, unit_of = folding.units(plan)
    patience = Patience(unwanted)
    patience.check()
    members = _members(graph, units, unit_of, edges, request.members, patience)
    outer = _Outer(graph, plan, folding, edges, units, unit_of, members, patience)
    patience.check()
    layout = outer.layout()
    _ = layout.pieces, layout.hulls  # made here and not on the GUI thread
    return layout


def _members(
    graph: OperatorGraph,
    units: list[Unit],
    unit_of: NDArray[np.int64],
    edges: NDArray[np.int64],
    cache: MutableMapping[Unit, Member],
    patience: Patience,
) -> list[Member]:
    """Every unit with its block, from the cache where its operators did not change."""
    missing = [i for i, unit in enumerate(units) if unit not in cache]
    wanted = np.zeros(len(units), dtype=np.bool_)
    wanted[missing] = True
    source, target = unit_of[edges[:, 0]], unit_of[edges[:, 1]]
    inside = source == target
    inner = _rows_by(source, inside & wanted[source])
    entering = _rows_by(target, ~inside & wanted[target])
    leaving = _rows_by(source, ~inside & wanted[source])
    rows = edges.tolist()
    for count, i in enumerate(missing):
        if not count % 256:
            patience.check()
        cache[units[i]] = _member(
            graph, rows, units[i], inner.get(i, []), entering.get(i, []), leaving.get(i, [])
        )
    if len(cache) > 4 * len(units) + 256:  # groups of plans long gone
        kept = {unit: cache[unit] for unit in units}
        cache.clear()
        cache.update(kept)
    return [cache[unit] for unit in units]


def _rows_by(group: NDArray[np.int64], wanted: NDArray[np.bool_]) -> dict[int, list[int]]:
    """Rows of the edges where `wanted`, by their group."""
    out: dict[int, list[int]] = {}
    rows = np.flatnonzero(wanted)
    for row, owner in zip(rows.tolist(), group[rows].tolist(), strict=True):
        out.setdefault(owner, []).append(row)
    return out


def _member(
    graph: OperatorGraph,
    rows: list[list[int]],
    unit: Unit,
    inner: list[int],
    entering: list[int],
    leaving: list[int],
) -> Member:
    operators, closed = unit.operators, unit.block >= 0
    if closed:  # one box; the lines inside are not drawn
        inner = []
    local = {operator: 0 if closed else i for i, operator in enumerate(operators)}
    number: dict[int, int] = {}
    entry: dict[int, int] = {}
    leaves: dict[int, int] = {}
    for row in entering:
        entry.setdefault(rows[row][2], len(entry))
    for row in leaving:
        leaves.setdefault(rows[row][2], len(leaves))
    from_where = {rows[row][2]: local[rows[row][0]] for row in leaving}
    # Lists inside: a generator for each of thousands of groups would take half as long again.
    shape = Shape(
        (False,)
        if closed
        else tuple([graph.operators[operator].kind is OpKind.VIEW for operator in operators]),
        not closed and has_hull(graph, operators),
        tuple(
            [
                (local[producer], local[consumer], number.setdefault(tensor, len(number)))
                for producer, consumer, tensor in [rows[row] for row in inner]
            ]
        ),
        tuple([(entry[tensor], local[consumer]) for _, consumer, tensor in [rows[row] for row in entering]]),
        tuple([from_where[tensor] for tensor in leaves]),
        closed,
    )
    return Member(
        make_block(shape),
        entry,
        leaves,
        tuple(inner),
        tuple(entering),
        tuple(leaving),
        tuple([leaves[rows[row][2]] for row in leaving]),
    )


class _Outer:
    """The units placed in layers, and the lines between them.

    A *crossing* is one tensor that goes from one unit to another; arrays below have one item per crossing.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        plan: Plan,
        folding: Folding,
        edges: NDArray[np.int64],
        units: list[Unit],
        unit_of: NDArray[np.int64],
        members: list[Member],
        patience: Patience,
    ) -> None:
        self.graph, self.plan, self.folding = graph, plan, folding
        self.edges, self.units, self.members = edges, units, members
        self.blocks = [member.block for member in members]
        source, target = unit_of[edges[:, 0]], unit_of[edges[:, 1]]
        self.outside = np.flatnonzero(source != target)
        closed = np.array([unit.block >= 0 for unit in units], dtype=np.bool_)
        self.hidden = (source == target) & closed[source]
        pair = edges[self.outside, 2] * len(members) + target[self.outside]
        _, first, which = np.unique(pair, return_index=True, return_inverse=True)
        self.crossing_of = which.reshape(-1)
        rows = self.outside[first]
        self.tensor, self.source, self.target = edges[rows, 2], source[rows], target[rows]
        widths = [block.width for block in self.blocks]
        links = list(zip(self.source.tolist(), self.target.tolist(), strict=True))
        patience.check()
        self.placed = in_layers(widths, links, self.tensor.tolist(), BLOCK_GAP, roots_down=True)
        self.left = np.round(self.placed.x - np.array(widths) / 2)
        self.lone = np.array([len(block.boxes) == 1 for block in self.blocks], dtype=np.bool_)
        patience.check()
        self._ports()
        patience.check()
        self._chips()
        self._rows()

    def _ports(self) -> None:
        """x at which each crossing leaves its producer's hull and enters its reader's."""
        members, tensors = self.members, self.tensor.tolist()
        leaves = [
            (member := members[group]).block.exits[member.exit_of[tensor]]
            for group, tensor in zip(self.source.tolist(), tensors, strict=True)
        ]
        enters = [
            (member := members[group]).block.entries[member.entry_of[tensor]]
            for group, tensor in zip(self.target.tolist(), tensors, strict=True)
        ]
        self.leaves_at = self.left[self.source] + np.array(leaves)
        entry = np.array(enters)
        passes = self.placed.lane_end > self.placed.lane_first
        comes_from = self.leaves_at.copy()
        comes_from[passes] = self.placed.lanes[self.placed.lane_end[passes] - 1]
        # Lines into a lone operator meet its top in the order in which they come.
        lone = np.flatnonzero(self.lone[self.target])
        as_they_come = lone[np.lexsort((comes_from[lone], self.target[lone]))]
        as_they_lie = lone[np.lexsort((entry[lone], self.target[lone]))]
        entry[as_they_come] = entry[as_they_lie]
        self._mirror(comes_from, entry)
        self.enters_at = self.left[self.target] + entry

    def _mirror(self, comes_from: Points, entry: Points) -> None:
        """Turn a block round where its lines come in the opposite order from that of its entries."""
        coming: dict[int, list[int]] = {}
        for crossing in np.flatnonzero(~self.lone[self.target]).tolist():
            coming.setdefault(int(self.target[crossing]), []).append(crossing)
        for target, found in coming.items():
            few = found[:64]
            if len(few) < 2:
                continue
            sides, places = comes_from[few].tolist(), entry[few].tolist()
            straight = sum(
                (a > b) - (a < b) if places[i] > places[j] else (a < b) - (a > b)
                for i, a in enumerate(sides)
                for j, b in enumerate(sides[:i])
            )
            if straight < 0:
                block = self.blocks[target] = self.blocks[target].mirrored
                entry[found] = block.width - entry[found]
                gone = np.flatnonzero(self.source == target)
                middle = self.left[target] + block.width / 2
                self.leaves_at[gone] = 2 * middle - self.leaves_at[gone]

    def _chips(self) -> None:
        """The lane of each crossing's chip (-1: no room), and whether it hangs below the producer's hull."""
        readers = np.bincount(self.tensor, minlength=len(self.graph.tensors))[self.tensor]
        entries = np.bincount(self.target, minlength=len(self.blocks))[self.target]
        exits = np.array([len(block.exits) for block in self.blocks])[self.source]
        self.at_source = (readers == 1) & (entries > FEW_ENTRIES) & (exits <= 2)
        # Chips of one layer of readers share their lanes; below its producer a chip is alone.
        place_of = np.where(self.at_source, self.source, self.placed.rank[self.target] + len(self.blocks))
        x = np.where(self.at_source, self.leaves_at, self.enters_at)
        lanes = np.full(len(x), -1)
        last, here = [0.0] * CHIP_LANES, -1
        order = np.lexsort((x, place_of))
        places = zip(order.tolist(), place_of[order].tolist(), x[order].tolist(), strict=True)
        for crossing, owner, place in places:
            if owner != here:
                here, last = owner, [-np.inf] * CHIP_LANES
            for lane in range(CHIP_LANES):
                if place - last[lane] >= CHIP[0] + 4:
                    lanes[crossing], last[lane] = lane, place
                    break
        self.chip_lane = lanes

    def _lane_ranks(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Points]:
        """Per lane of every crossing: the crossing, the rank that it passes, and its x."""
        count = (self.placed.lane_end - self.placed.lane_first).astype(np.int64)
        owner = np.repeat(np.arange(len(count)), count)
        step = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        x = self.placed.lanes[self.placed.lane_first[owner] + step]
        return owner, self.placed.rank[self.source[owner]] + 1 + step, x

    def _rows(self) -> None:
        """Top and foot of every layer, and where lines between two layers begin and end to bend."""
        rank = self.placed.rank
        rows = int(rank.max()) + 1
        height, below, above, reach = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows)
        np.maximum.at(height, rank, np.array([block.height for block in self.blocks]))
        hung = self.at_source
        np.maximum.at(below, rank[self.source[hung]], self.chip_lane[hung] + 1)
        np.maximum.at(above, rank[self.target[~hung]], self.chip_lane[~hung] + 1)
        owner, passed, lane_x = self._lane_ranks()
        first = np.ones(len(owner), dtype=np.bool_)
        first[1:] = owner[1:] != owner[:-1]
        before = np.where(first, self.leaves_at[owner], np.roll(lane_x, 1))
        np.maximum.at(reach, passed - 1, np.abs(lane_x - before))
        last_x = self.leaves_at.copy()
        last_x[owner] = lane_x  # of several lanes the last one stays
        np.maximum.at(reach, rank[self.target] - 1, np.abs(self.enters_at - last_x))
        bend = np.round(np.clip(reach * 0.08, BEND_MIN, BEND_MAX))
        below, above = below * CHIP_LANE + 4, above * CHIP_LANE + 4
        step = height[:-1] + below[:-1] + bend[:-1] + above[1:]
        self.top = np.concatenate([[0.0], np.cumsum(step)])
        self.bend_from = self.top + height + below
        self.bend_to = self.top - above

    def _lines(self) -> tuple[Points, NDArray[np.int64]]:
        """The points of every crossing between the two hulls, and where each begins among them."""
        owner, passed, lane_x = self._lane_ranks()
        count = 2 + 2 * np.bincount(owner, minlength=len(self.source))
        start = np.concatenate([[0], np.cumsum(count)])
        points = np.empty((int(start[-1]), 2))
        rank = self.placed.rank
        points[start[:-1]] = np.stack([self.leaves_at, self.bend_from[rank[self.source]]], axis=1)
        points[start[1:] - 1] = np.stack([self.enters_at, self.bend_to[rank[self.target]]], axis=1)
        at = start[owner] + 1 + 2 * (passed - rank[self.source[owner]] - 1)
        points[at] = np.stack([lane_x, self.bend_to[passed]], axis=1)
        points[at + 1] = np.stack([lane_x, self.bend_from[passed]], axis=1)
        return points, start

    def _anchors(self) -> Points:
        """The middle of each crossing's chip; not a number where there is no room for it."""
        away = CHIP_LANE * self.chip_lane + CHIP[1] / 2 + 6
        rank = self.placed.rank
        heights = np.array([block.height for block in self.blocks])
        foot = self.top[rank[self.source]] + heights[self.source]
        y = np.where(self.at_source, foot + away, self.top[rank[self.target]] - away)
        out = np.stack([np.where(self.at_source, self.leaves_at, self.enters_at), y], axis=1)
        out[self.chip_lane < 0] = np.nan
        return out

    def layout(self) -> Layout:
        """Everything in world coordinates."""
        corner = np.stack([self.left, self.top[self.placed.rank]], axis=1)
        size = np.array([(block.width, block.height) for block in self.blocks])
        hulls = np.concatenate([corner, corner + size], axis=1)
        counts = np.array([len(unit.operators) for unit in self.units])
        owners = np.repeat(np.arange(len(self.units)), counts)
        boxes = np.empty((len(self.graph.operators), 4))
        closed = np.array([unit.block >= 0 for unit in self.units], dtype=np.bool_)
        inside = np.concatenate([block.boxes for block in self.blocks])
        per_box = np.repeat(np.where(closed, counts, 1), np.where(closed, 1, counts))
        members = [o for unit in self.units for o in unit.operators]
        boxes[members] = np.repeat(inside, per_box, axis=0) + np.tile(corner, 2)[owners]
        start, points = self._routes(corner, boxes)
        anchors = (points[start[1:] - 1] + points[start[1:] - 2]) / 2
        anchors[self.outside] = self._anchors()[self.crossing_of]
        anchors[self.hidden] = np.nan
        low = np.minimum(hulls[:, :2].min(axis=0), points.min(axis=0, initial=np.inf))
        high = np.maximum(hulls[:, 2:].max(axis=0), points.max(axis=0, initial=-np.inf))
        bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        frames = {
            unit.operators: (a, b, c, d)
            for unit, (a, b, c, d) in zip(self.units, hulls.tolist(), strict=True)
            if unit.block < 0
        }
        return Layout(
            self.graph,
            self.plan,
            boxes,
            frames,
            start.astype(np.int32),
            points,
            anchors,
            bounds,
            self.folding,
            opened=self._opened(hulls),
        )

    def _opened(self, hulls: Points) -> Points:
        """The rectangle of what each open block holds; not a number where something else lies in it."""
        folding = self.folding
        if not folding.opened or len(folding.opened) > MOST_OPENED:
            return np.full((len(folding.opened), 4), np.nan)
        assert folding.hierarchy is not None
        place = np.empty(folding.count, dtype=np.int64)
        place[folding.hierarchy.order] = np.arange(folding.count)
        first = np.array([place[list(unit.operators)].min() for unit in self.units])
        last = np.array([place[list(unit.operators)].max() for unit in self.units])
        out = np.full((len(folding.opened), 4), np.nan)
        for row, block in enumerate(folding.opened):
            start, end = folding.hierarchy.start[block], folding.hierarchy.end[block]
            inside = (first >= start) & (last < end)
            touches = (last >= start) & (first < end)
            if not inside.any() or (touches & ~inside).any():  # a group reaches out of the block
                continue
            low, high = hulls[inside, :2].min(axis=0), hulls[inside, 2:].max(axis=0)
            among = (hulls[:, :2] <= high).all(axis=1) & (hulls[:, 2:] >= low).all(axis=1)
            if (among & ~inside).any():
                continue
            out[row] = (*low, *high)
        return out

    def _routes(self, corner: Points, boxes: Points) -> tuple[NDArray[np.int64], Points]:
        """Every edge from box to box: the inside of the producer's hull, the line between, the reader's."""
        edges = len(self.edges)
        lines, line_start = self._lines()
        line_length = np.diff(line_start)[self.crossing_of]
        inside, entries = self._inside(corner), self._entries(corner)
        lengths = np.zeros((3, edges), dtype=np.int64)
        hidden = np.flatnonzero(self.hidden)
        lengths[0, inside.rows] = inside.lengths
        lengths[0, hidden] = 2
        lengths[1, self.outside] = line_length
        lengths[2, entries.rows] = entries.lengths
        start = np.concatenate([[0], np.cumsum(lengths.sum(axis=0))])
        begin = start[:-1] + np.concatenate(
            [np.zeros((1, edges), dtype=np.int64), np.cumsum(lengths, axis=0)[:2]]
        )
        points = np.empty((int(start[-1]), 2))
        points[_runs(begin[0, inside.rows], inside.lengths)] = inside.points
        middle = boxes[self.edges[hidden, 0]]
        middle = (middle[:, :2] + middle[:, 2:]) / 2
        points[begin[0, hidden]] = points[begin[0, hidden] + 1] = middle
        points[_runs(begin[1, self.outside], line_length)] = lines[
            _runs(line_start[self.crossing_of], line_length)
        ]
        points[_runs(begin[2, entries.rows], entries.lengths)] = entries.points
        return start, points

    def _inside(self, corner: Points) -> _Strokes:
        """Lines inside the hulls of their producers: to a reader in the same group, or to an exit."""
        routes: list[Points] = []
        rows: list[int] = []
        counts: list[int] = []
        for member, block in zip(self.members, self.blocks, strict=True):
            routes += block.inner
            rows += member.inner
            rows += member.leaving
            if len(block.exit_routes) == 1:
                routes += block.exit_routes * len(member.exits)
            else:
                routes += [block.exit_routes[taken] for taken in member.exits]
            counts.append(len(member.inner) + len(member.exits))
        return _strokes(rows, routes, counts, corner)

    def _entries(self, corner: Points) -> _Strokes:
        """Lines inside the hulls of their readers; those of lone operators run straight down."""
        routes: list[Points] = []
        rows: list[int] = []
        counts = np.zeros(len(self.members), dtype=np.int64)
        several = np.flatnonzero(~self.lone).tolist()
        for group in several:
            routes += self.blocks[group].entry_routes
            rows += self.members[group].entering
            counts[group] = len(self.members[group].entering)
        into_several = _strokes(rows, routes, counts, corner)
        alone = self.lone[self.target[self.crossing_of]]
        crossing = self.crossing_of[alone]
        group = self.target[crossing]
        tops = np.array([float(block.boxes[0, 1]) for block in self.blocks])
        x, y = self.enters_at[crossing], corner[group, 1]
        straight = np.stack([x, y, x, y + tops[group]], axis=1).reshape(-1, 2)
        return _Strokes(
            np.concatenate([into_several.rows, self.outside[alone]]),
            np.concatenate([into_several.lengths, np.full(len(crossing), 2)]),
            np.concatenate([into_several.points, straight]),
        )


@dataclass(frozen=True, slots=True)
class _Strokes:
    """Parts of lines: the row of ``graph.edges`` and the number of points of each, and all points in a row."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]
    points: Points


def _strokes(
    rows: list[int], routes: list[Points], counts: list[int] | NDArray[np.int64], corner: Points
) -> _Strokes:
    """Routes inside blocks as parts in the world: ``counts`` of them lie in each block, one after the other."""
    lengths = np.array([len(route) for route in routes], dtype=np.int64)
    if not routes:
        return _Strokes(np.zeros(0, dtype=np.int64), lengths, np.zeros((0, 2)))
    owner = np.repeat(np.arange(len(counts)), counts)
    points = np.concatenate(routes) + np.repeat(corner[owner], lengths, axis=0)
    return _Strokes(np.array(rows, dtype=np.int64), lengths, points)


def _runs(begin: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``begin[0], begin[0] + 1, ... lengths[0] of them, begin[1] ...``."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(begin - before, lengths)
