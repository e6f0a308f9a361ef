"""Where everything lies: groups as blocks in layers from top to bottom, operators in layers inside them.

Knows the graph, one plan and the layered-layout kernels; runs on the worker. Must not know Qt, colours or
results. A layout is a pure function of (graph, plan), so undo brings back the same picture; blocks of groups
that did not change come from the cache.

World units are pixels at 100 %, y down. Two levels, because then no two hulls overlap and no edge runs
through a foreign hull::

    outer   one block per fusion group; one line per tensor and reading group (a *crossing*, what is cut)
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

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph, OpKind
from model.plan.plan import Plan

BOX = (148.0, 32.0)
VIEW_BOX = (112.0, 20.0)  # views move nothing: a smaller, paler box
ROW_GAP, COLUMN_GAP = 24.0, 16.0  # between boxes of one group
PAD, TITLE, BOTTOM = 12.0, 28.0, 12.0  # hull around its boxes: sides, top (its title strip), bottom
BLOCK_GAP = 28.0  # between hulls of one layer
CHIP = (84.0, 20.0)
CHIP_LANE = 26.0  # chips of neighbouring lines take turns in two lanes
BEND_MIN, BEND_MAX = 28.0, 88.0
LANE_WIDTH = 12.0  # a line that passes between boxes
PORT_GAP = 48.0  # between lines into one hull: a chip covers no neighbour's line
FEW_ENTRIES = 8  # up to here every line into a hull gets a chip's width

Points = NDArray[np.float64]
Route = list[tuple[float, float]]


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
    """

    graph: OperatorGraph
    plan: Plan
    boxes: Points
    frames: dict[tuple[int, ...], tuple[float, float, float, float]]
    route_start: NDArray[np.int32]
    route_points: Points
    anchors: Points
    bounds: tuple[float, float, float, float]
    provisional: bool = False


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What a layout is a function of. ``blocks`` is a cache that the worker alone reads and writes."""

    graph: OperatorGraph
    plan: Plan
    blocks: MutableMapping[tuple[int, ...], Block] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """The inside of one group, relative to the hull's top left corner.

    Attributes
    ----------
    boxes : float64[members, 4].
    inner : per edge inside (row in ``graph.edges``) the points between both boxes, both ends included.
    entries : per tensor that comes in, x at the top of the hull.
    entry_routes : per edge from outside, the points from the hull's top down to the consumer's box.
    exit_routes : per tensor that goes out, the points from the producer's box down to the hull's bottom.
    """

    width: float
    height: float
    boxes: Points
    inner: dict[int, Route]
    entries: dict[int, float]
    entry_routes: dict[int, Route]
    exit_routes: dict[int, Route]

    def mirrored(self) -> Block:
        """Left and right exchanged."""

        def turned(routes: dict[int, Route]) -> dict[int, Route]:
            return {key: [(self.width - x, y) for x, y in route] for key, route in routes.items()}

        left, top, right, bottom = self.boxes.T
        return Block(
            self.width,
            self.height,
            np.stack([self.width - right, top, self.width - left, bottom], axis=1),
            turned(self.inner),
            {tensor: self.width - x for tensor, x in self.entries.items()},
            turned(self.entry_routes),
            turned(self.exit_routes),
        )


def lay_out(request: LayoutRequest) -> Layout:
    """Place the groups of ``request.plan`` and their operators. Runs on the worker; the plan is legal."""
    graph, plan = request.graph, request.plan
    if not graph.operators:
        return _nothing(graph, plan)
    group_of = np.array(plan.group_of, dtype=np.int64)
    edges = graph.edges.astype(np.int64)
    inside = group_of[edges[:, 0]] == group_of[edges[:, 1]]
    blocks = _blocks(graph, plan, group_of, edges, inside, request.blocks)
    crossings, crossing_of = _crossings(edges, inside, group_of)
    outer = _Outer(blocks, crossings)
    return outer.assemble(graph, plan, edges, inside, crossing_of)


def provisional(graph: OperatorGraph, plan: Plan) -> Layout:
    """A picture at once: operators in rows by their rank, in file order, with straight lines."""
    count = len(graph.operators)
    if not count:
        return _nothing(graph, plan)
    rank = [0] * count
    for producer, consumer, _ in graph.edges.tolist():
        # Rows are sorted by producer and file order is topological: every rank is final when it is read.
        rank[consumer] = max(rank[consumer], rank[producer] + 1)
    ranks = np.array(rank)
    order = np.argsort(ranks, kind="stable")
    width = np.bincount(ranks)
    place = np.empty(count)
    place[order] = np.arange(count) - np.repeat(np.cumsum(width) - width, width)
    x = (place - (width[ranks] - 1) / 2.0) * (BOX[0] + COLUMN_GAP)
    y = ranks * (BOX[1] + 2 * ROW_GAP)
    size = _box_sizes(graph)
    boxes = np.stack([x - size[:, 0] / 2, y - size[:, 1] / 2, x + size[:, 0] / 2, y + size[:, 1] / 2], axis=1)
    edges = graph.edges
    tops = np.stack([x[edges[:, 0]], boxes[edges[:, 0], 3]], axis=1)
    ends = np.stack([x[edges[:, 1]], boxes[edges[:, 1], 1]], axis=1)
    points = np.stack([tops, ends], axis=1).reshape(-1, 2)
    start = np.arange(len(edges) + 1, dtype=np.int32) * 2
    return Layout(graph, plan, boxes, {}, start, points, (tops + ends) / 2, _bounds(boxes), provisional=True)


def _nothing(graph: OperatorGraph, plan: Plan) -> Layout:
    none = np.zeros((0, 2))
    start = np.zeros(1, dtype=np.int32)
    return Layout(graph, plan, np.zeros((0, 4)), {}, start, none, none, (0.0, 0.0, 1.0, 1.0))


def _bounds(boxes: Points) -> tuple[float, float, float, float]:
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _box_sizes(graph: OperatorGraph) -> Points:
    return np.array([VIEW_BOX if o.kind is OpKind.VIEW else BOX for o in graph.operators])


def has_hull(graph: OperatorGraph, operators: tuple[int, ...]) -> bool:
    """Whether a group is drawn with a hull: a view alone is no launch and has none."""
    return len(operators) != 1 or graph.operators[operators[0]].kind is not OpKind.VIEW


def spread(count: int, width: float, gap: float) -> list[float]:
    """`count` offsets around 0, `gap` apart where they fit into `width`, else evenly closer."""
    if count < 2:
        return [0.0] * count
    step = min(gap, (width - COLUMN_GAP) / (count - 1))
    return [(i - (count - 1) / 2.0) * step for i in range(count)]


# ------------------------------------------------------------------------------------------- inside


def _blocks(
    graph: OperatorGraph,
    plan: Plan,
    group_of: NDArray[np.int64],
    edges: NDArray[np.int64],
    inside: NDArray[np.bool_],
    cache: MutableMapping[tuple[int, ...], Block],
) -> list[Block]:
    """The block of every group, from the cache where its operators did not change."""
    missing = [i for i, group in enumerate(plan.groups) if group.operators not in cache]
    wanted = np.zeros(len(plan.groups), dtype=np.bool_)
    wanted[missing] = True
    rows: dict[int, tuple[list[int], list[int], list[int]]] = {i: ([], [], []) for i in missing}
    source, target = group_of[edges[:, 0]], group_of[edges[:, 1]]
    for row in np.flatnonzero(inside & wanted[source]).tolist():
        rows[int(source[row])][0].append(row)
    for row in np.flatnonzero(~inside & wanted[target]).tolist():
        rows[int(target[row])][1].append(row)
    for row in np.flatnonzero(~inside & wanted[source]).tolist():
        rows[int(source[row])][2].append(row)
    sizes = _box_sizes(graph)
    for i in missing:
        operators = plan.groups[i].operators
        make = _single if len(operators) == 1 else _block
        cache[operators] = make(graph, operators, edges, sizes, *rows[i])
    if len(cache) > 4 * len(plan.groups) + 256:  # groups of plans long gone
        kept = {group.operators: cache[group.operators] for group in plan.groups}
        cache.clear()
        cache.update(kept)
    return [cache[group.operators] for group in plan.groups]


def _single(
    graph: OperatorGraph,
    operators: tuple[int, ...],
    edges: NDArray[np.int64],
    sizes: Points,
    inner: list[int],
    entering: list[int],
    leaving: list[int],
) -> Block:
    """One operator; its entries get their places when it is known where they come from."""
    width, height = sizes[operators[0]].tolist()
    left, top, bottom = (PAD, TITLE, BOTTOM) if has_hull(graph, operators) else (0.0, 0.0, 0.0)
    box = np.array([[left, top, left + width, top + height]])
    middle, foot = left + width / 2, top + height
    tensors = sorted({int(edges[row, 2]) for row in leaving})
    exits = {
        tensor: [(middle + dx, foot), (middle + dx, foot + bottom)]
        for tensor, dx in zip(tensors, spread(len(tensors), width, PORT_GAP), strict=True)
    }
    entered = list(dict.fromkeys(int(edges[row, 2]) for row in entering))
    places = spread(len(entered), width, PORT_GAP)
    entries = {tensor: middle + dx for tensor, dx in zip(entered, places, strict=True)}
    routes = {row: [(entries[int(edges[row, 2])], y) for y in (0.0, top)] for row in entering}
    return Block(width + 2 * left, height + top + bottom, box, {}, entries, routes, exits)


def _block(
    graph: OperatorGraph,
    operators: tuple[int, ...],
    edges: NDArray[np.int64],
    sizes: Points,
    inner: list[int],
    entering: list[int],
    leaving: list[int],
) -> Block:
    """Several operators in layers of their own, with entries above and exits below."""
    local = {operator: i for i, operator in enumerate(operators)}
    tensors = list(dict.fromkeys(int(edges[row, 2]) for row in entering))
    entry = {tensor: len(operators) + i for i, tensor in enumerate(tensors)}
    sink = len(operators) + len(tensors)
    leaving_once = {int(edges[row, 2]): row for row in leaving}
    links = [(local[int(edges[row, 0])], local[int(edges[row, 1])]) for row in inner]
    links += [(entry[int(edges[row, 2])], local[int(edges[row, 1])]) for row in entering]
    links += [(local[int(edges[row, 0])], sink) for row in leaving_once.values()]
    port = PORT_GAP - COLUMN_GAP if len(tensors) <= FEW_ENTRIES else LANE_WIDTH
    box = sizes[list(operators)]
    widths = [*box[:, 0].tolist(), *[port] * len(tensors), LANE_WIDTH]
    carried = [int(edges[row, 2]) for row in (*inner, *entering)] + list(leaving_once)
    placed = _layered(widths, links, carried, COLUMN_GAP, roots_down=False)
    heights = np.zeros(int(placed.rank.max()) + 1)
    np.maximum.at(heights, placed.rank[: len(operators)], box[:, 1])
    rows = len(heights) if not leaving_once else int(placed.rank[sink])
    heights = heights[:rows]
    # Entries that run straight down into the boxes below them need no room to bend.
    ends = [end for _, end in links[len(inner) : len(inner) + len(entering)]]
    straight = len(entering) == len(tensors) and all(placed.rank[end] == 1 for end in ends)
    gaps = np.where((heights[:-1] > 0) | (not straight), ROW_GAP, 0.0)
    tops = TITLE + np.concatenate([[0.0], np.cumsum(heights[:-1] + gaps)])
    feet = tops + heights
    middle = placed.x[: len(operators)]
    y = (tops + heights / 2)[placed.rank[: len(operators)]]
    boxes = np.stack(
        [middle - box[:, 0] / 2, y - box[:, 1] / 2, middle + box[:, 0] / 2, y + box[:, 1] / 2], 1
    )
    spans = [boxes[:, 0].min(), boxes[:, 2].max(), *placed.x[len(operators) : sink].tolist(), *placed.lanes]
    shift = PAD - float(min(spans))
    boxes[:, [0, 2]] += shift
    height = float(feet[-1]) + BOTTOM

    def through(link: int, x_from: float, y_from: float) -> Route:
        """From a box's foot or an entry down the lanes of a link, to the foot of its last lane."""
        out = [(x_from, y_from)]
        rank = int(placed.rank[links[link][0]])
        for step, lane in enumerate(placed.lanes_of(link)):
            out += [
                (lane + shift, float(tops[rank + 1 + step])),
                (lane + shift, float(feet[rank + 1 + step])),
            ]
        return out

    paths: list[Route] = []
    for link, (start, _) in enumerate(links):
        x = float(placed.x[start]) + shift
        if start < len(operators):
            paths.append(through(link, x, float(boxes[start, 3])))
        else:
            paths.append([(x, 0.0), *through(link, x, float(feet[placed.rank[start]]))])
    _arrive(paths, links, boxes, sink)
    entries = {tensor: float(placed.x[node]) + shift for tensor, node in entry.items()}
    if straight:
        for row, link in zip(entering, range(len(inner), len(inner) + len(entering)), strict=True):
            x, top = paths[link][-1]
            paths[link] = [(x, 0.0), (x, top)]
            entries[int(edges[row, 2])] = x
    exits: dict[int, Route] = {}
    for tensor, path in zip(leaving_once, paths[len(inner) + len(entering) :], strict=True):
        exits[tensor] = [*path, (path[-1][0], height)]
    return Block(
        float(max(spans)) + shift + PAD,
        height,
        boxes,
        dict(zip(inner, paths, strict=False)),
        entries,
        dict(zip(entering, paths[len(inner) :], strict=False)),
        exits,
    )


def _arrive(paths: list[Route], links: list[tuple[int, int]], boxes: Points, sink: int) -> None:
    """Spread the lines that end at one box over its top, from left to right as they come."""
    arriving: dict[int, list[int]] = {}
    for link, (_, end) in enumerate(links):
        if end != sink:
            arriving.setdefault(end, []).append(link)
    for end, found in arriving.items():
        left, top, right, _ = boxes[end].tolist()
        found.sort(key=lambda link: paths[link][-1][0])
        boxes_only = all(links[link][0] < len(boxes) for link in found)
        places = spread(len(found), right - left, ROW_GAP if boxes_only else PORT_GAP)
        for link, dx in zip(found, places, strict=True):
            x_last = paths[link][-1][0]
            x = (left + right) / 2 + dx
            # A line from straight above stays straight as long as it meets the box.
            paths[link].append((x_last if len(found) == 1 and left + PAD < x_last < right - PAD else x, top))


# ------------------------------------------------------------------------------------------ outside


def _crossings(
    edges: NDArray[np.int64], inside: NDArray[np.bool_], group_of: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """int64[crossings, 3] tensor, producing group, reading group; and per edge its crossing, -1 inside."""
    rows = np.flatnonzero(~inside)
    keys = np.stack([edges[rows, 2], group_of[edges[rows, 0]], group_of[edges[rows, 1]]], axis=1)
    crossings, which = np.unique(keys, axis=0, return_inverse=True)
    crossing_of = np.full(len(edges), -1, dtype=np.int64)
    crossing_of[rows] = which.reshape(-1)
    return crossings, crossing_of


class _Outer:
    """The blocks placed in layers, and the lines between them."""

    def __init__(self, blocks: list[Block], crossings: NDArray[np.int64]) -> None:
        self.blocks = list(blocks)
        self.crossings: list[tuple[int, int, int]] = [tuple(row) for row in crossings.tolist()]
        self.placed = _layered(
            [block.width for block in blocks],
            [(source, target) for _, source, target in self.crossings],
            [tensor for tensor, _, _ in self.crossings],
            BLOCK_GAP,
            roots_down=True,
        )
        self.left = np.round(self.placed.x - np.array([block.width for block in blocks]) / 2)
        self.entries = [dict(block.entries) for block in blocks]
        self._order_entries()
        self._mirror()
        self.chip_lane, self.at_source = self._chips()
        self._rows()

    def _leaves_at(self, crossing: int) -> float:
        tensor, source, _ = self.crossings[crossing]
        return float(self.left[source]) + self.blocks[source].exit_routes[tensor][-1][0]

    def _comes_from(self, crossing: int) -> float:
        lanes = self.placed.lanes_of(crossing)
        return float(lanes[-1]) if len(lanes) else self._leaves_at(crossing)

    def _order_entries(self) -> None:
        """Lines into a lone operator meet its top in the order in which they come."""
        coming: dict[int, list[int]] = {}
        for crossing, (_, _, target) in enumerate(self.crossings):
            if len(self.blocks[target].boxes) == 1:
                coming.setdefault(target, []).append(crossing)
        for target, found in coming.items():
            places = sorted(self.entries[target].values())
            found.sort(key=self._comes_from)
            self.entries[target] = {
                self.crossings[crossing][0]: x for crossing, x in zip(found, places, strict=True)
            }

    def _mirror(self) -> None:
        """Turn a block round where its lines come in the opposite order from that of its entries."""
        coming: dict[int, list[tuple[float, float]]] = {}
        for crossing, (tensor, _, target) in enumerate(self.crossings):
            if len(self.blocks[target].boxes) > 1:
                place = self._comes_from(crossing), self.entries[target][tensor]
                coming.setdefault(target, []).append(place)
        for target, found in coming.items():
            if len(found) > 1:
                x = np.array(found[:64])
                order = np.sign(np.subtract.outer(x[:, 0], x[:, 0]) * np.subtract.outer(x[:, 1], x[:, 1]))
                if order.sum() < 0:
                    self.blocks[target] = mirrored = self.blocks[target].mirrored()
                    self.entries[target] = dict(mirrored.entries)

    def _chips(self) -> tuple[list[int], list[bool]]:
        """Per crossing the lane of its chip (-1: no room), and whether it hangs below the producer's hull."""
        readers: dict[int, int] = {}
        for tensor, _, _ in self.crossings:
            readers[tensor] = readers.get(tensor, 0) + 1
        at_source = [
            readers[tensor] == 1
            and len(self.entries[target]) > FEW_ENTRIES
            and len(self.blocks[source].exit_routes) <= 2
            for tensor, source, target in self.crossings
        ]
        lanes = [-1] * len(self.crossings)
        at_hull: dict[tuple[bool, int], list[tuple[float, int]]] = {}
        for crossing, (tensor, source, target) in enumerate(self.crossings):
            above = at_source[crossing]
            x = self.blocks[source].exit_routes[tensor][-1][0] if above else self.entries[target][tensor]
            at_hull.setdefault((above, source if above else target), []).append((x, crossing))
        for found in at_hull.values():
            last = [-np.inf] * 4
            for x, crossing in sorted(found):
                free = [lane for lane in range(4) if x - last[lane] >= CHIP[0] + 4]
                if free:
                    lanes[crossing] = free[0]
                    last[free[0]] = x
        return lanes, at_source

    def _rows(self) -> None:
        """Top and foot of every layer, and where lines between two layers begin and end to bend."""
        rank = self.placed.rank
        rows = int(rank.max()) + 1
        height, below, above, reach = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows)
        np.maximum.at(height, rank, np.array([block.height for block in self.blocks]))
        for crossing, (tensor, source, target) in enumerate(self.crossings):
            lane = self.chip_lane[crossing] + 1
            if self.at_source[crossing]:
                below[rank[source]] = max(below[rank[source]], lane)
            else:
                above[rank[target]] = max(above[rank[target]], lane)
            x, row = self._leaves_at(crossing), int(rank[source])
            for lane_x in (*self.placed.lanes_of(crossing), self.left[target] + self.entries[target][tensor]):
                reach[row] = max(reach[row], abs(lane_x - x))
                x, row = lane_x, row + 1
        bend = np.round(np.clip(reach * 0.08, BEND_MIN, BEND_MAX))
        below, above = below * CHIP_LANE + 4, above * CHIP_LANE + 4
        step = height[:-1] + below[:-1] + bend[:-1] + above[1:]
        self.top = np.concatenate([[0.0], np.cumsum(step)])
        self.bend_from = self.top + height + below
        self.bend_to = self.top - above

    def _line(self, crossing: int) -> Route:
        """The points of a crossing between the producer's hull and the reader's."""
        tensor, source, target = self.crossings[crossing]
        row = int(self.placed.rank[source])
        out = [(self._leaves_at(crossing), float(self.bend_from[row]))]
        for lane in self.placed.lanes_of(crossing):
            row += 1
            out += [(float(lane), float(self.bend_to[row])), (float(lane), float(self.bend_from[row]))]
        x = float(self.left[target]) + self.entries[target][tensor]
        out.append((x, float(self.bend_to[int(self.placed.rank[target])])))
        return out

    def _anchor(self, crossing: int) -> tuple[float, float]:
        tensor, source, target = self.crossings[crossing]
        lane = self.chip_lane[crossing]
        if lane < 0:
            return np.nan, np.nan
        away = CHIP_LANE * lane + CHIP[1] / 2 + 6
        if self.at_source[crossing]:
            foot = float(self.top[self.placed.rank[source]]) + self.blocks[source].height
            return self._leaves_at(crossing), foot + away
        x = float(self.left[target]) + self.entries[target][tensor]
        return x, float(self.top[self.placed.rank[target]]) - away

    def assemble(
        self,
        graph: OperatorGraph,
        plan: Plan,
        edges: NDArray[np.int64],
        inside: NDArray[np.bool_],
        crossing_of: NDArray[np.int64],
    ) -> Layout:
        """Everything in world coordinates."""
        top = self.top[self.placed.rank]
        boxes = np.empty((len(graph.operators), 4))
        frames: dict[tuple[int, ...], tuple[float, float, float, float]] = {}
        for g, (group, block) in enumerate(zip(plan.groups, self.blocks, strict=True)):
            x, y = float(self.left[g]), float(top[g])
            boxes[list(group.operators)] = block.boxes + np.array([x, y, x, y])
            frames[group.operators] = (x, y, x + block.width, y + block.height)
        lines = [self._line(crossing) for crossing in range(len(self.crossings))]
        middles = [self._anchor(crossing) for crossing in range(len(self.crossings))]
        points: Route = []
        start = np.zeros(len(edges) + 1, dtype=np.int32)
        anchors = np.empty((len(edges), 2))
        group_of = plan.group_of
        for row, (producer, consumer, tensor) in enumerate(edges.tolist()):
            source, target = group_of[producer], group_of[consumer]
            x, y = float(self.left[source]), float(top[source])
            if inside[row]:
                path = self.blocks[source].inner[row]
                points += [(px + x, py + y) for px, py in path]
                (ax, ay), (bx, by) = path[-2], path[-1]
                anchors[row] = x + (ax + bx) / 2, y + (ay + by) / 2
            else:
                crossing = int(crossing_of[row])
                points += [(px + x, py + y) for px, py in self.blocks[source].exit_routes[tensor]]
                points += lines[crossing]
                x, y = float(self.left[target]), float(top[target])
                block = self.blocks[target]
                if len(block.boxes) == 1:
                    x += self.entries[target][tensor]
                    points += [(x, y), (x, y + float(block.boxes[0, 1]))]
                else:
                    points += [(px + x, py + y) for px, py in block.entry_routes[row]]
                anchors[row] = middles[crossing]
            start[row + 1] = len(points)
        placed = np.array(points, dtype=np.float64).reshape(-1, 2)
        hulls = np.array(list(frames.values()))
        low = np.minimum(hulls[:, :2].min(axis=0), placed.min(axis=0, initial=np.inf))
        high = np.maximum(hulls[:, 2:].max(axis=0), placed.max(axis=0, initial=-np.inf))
        bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        return Layout(graph, plan, boxes, frames, start, placed, anchors, bounds)


# ---------------------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, eq=False)
class _Placed:
    """Nodes in layers: rank and x (the middle) of each; per link the x of its lane in each layer between."""

    rank: NDArray[np.int32]
    x: Points
    lanes: list[float]
    lane_first: list[int]
    lane_end: list[int]

    def lanes_of(self, link: int) -> list[float]:
        """x of the link's lanes, from the layer below its producer to that above its consumer."""
        return self.lanes[self.lane_first[link] : self.lane_end[link]]


def _layered(
    widths: list[float], links: list[tuple[int, int]], tensors: list[int], gap: float, *, roots_down: bool
) -> _Placed:
    """The layered-layout kernels on lists; links of one node and one tensor share their lanes."""
    from model.graph.layering import layered  # Numba: loaded on the worker, not with the window

    ends = np.array(links, dtype=np.int32).reshape(-1, 2)
    _, bundle = np.unique(np.array(tensors, dtype=np.int64), return_inverse=True)
    placed = layered(
        ends[:, 0],
        ends[:, 1],
        np.array(widths),
        bundle=bundle.reshape(-1),
        gap=gap,
        lane_width=LANE_WIDTH,
        row_height=160.0,
        roots_down=roots_down,
    )
    # Whole pixels: boxes and straight lines are sharp at 100 %.
    x, lanes = np.round(placed.x), np.round(placed.lane_x).tolist()
    return _Placed(placed.rank, x, lanes, placed.lane_first.tolist(), placed.lane_end.tolist())
