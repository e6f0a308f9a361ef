"""Layered layout: ranks, an order inside each rank, coordinates; top-down and deterministic.

Knows arrays only: nodes with sizes, links between them. Ranks are longest paths; a link that passes ranks
gets a *lane* in each; `ordering.py` orders the rows, `alignment.py` finds coordinates that keep chains and
lanes straight.

Links of one source and one bundle share their lanes, like a stem that branches where each link ends: a
tensor that 80 layers read costs one lane a rank, not 80::

      u            rows hold one component each while they are ordered; at the end components are set side
      |\\           by side on shelves, and their ranks are shifted by the shelf.
      | v
      |\\
      | w
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel
from .alignment import balanced, blocks, by_key, compacted, yielding
from .ordering import first_order, ordered, sorted_neighbours

_I32 = NDArray[np.int32]
_F64 = NDArray[np.float64]

_SWEEPS = 12  # at most; they end where no crossing is left or four sweeps brought nothing
_SHELF_RATIO = 1.6  # width to height of a picture of many components
_SHELF_NODES = 12  # a shelf holds at least so many nodes of mean width


@dataclass(frozen=True, slots=True)
class Layered:
    """Nodes in ranks, links in lanes.

    Attributes
    ----------
    rank : int32[nodes], 0 at the top.
    x : float64[nodes], the middle.
    lane_first, lane_end : int32[links]; ``lane_x[first:end]`` is the x of the link's lane in each rank
        between its ends, from above. Links of one stem point to the same lanes.
    lane_x : float64[lanes].
    """

    rank: _I32
    x: _F64
    lane_first: _I32
    lane_end: _I32
    lane_x: _F64


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture: middles of nodes and the line of every edge. x to the right, y down, both from 0.

    Attributes
    ----------
    x, y : float64[nodes], the middle.
    rank : int32[nodes].
    point_start : int32[edges + 1] into the points, edges in CSR order.
    point_x, point_y : float64; from the source's lower rim over the bends to the target's upper rim.
    width, height : of the whole.
    """

    x: _F64
    y: _F64
    rank: _I32
    point_start: _I32
    point_x: _F64
    point_y: _F64
    width: float
    height: float


def layered(
    source: NDArray[Any],
    target: NDArray[Any],
    width: NDArray[Any],
    *,
    bundle: NDArray[Any] | None = None,
    gap: float = 24.0,
    lane_width: float = 12.0,
    row_height: float = 72.0,
    roots_down: bool = True,
) -> Layered:
    """Ranks, x and lanes of an acyclic graph; for callers that make rows and lines of their own.

    Parameters
    ----------
    source, target : integer[links], any order; parallel links are allowed.
    width : float[nodes].
    bundle : integer[links], from 0; links of one source and equal bundles share lanes. None: all of a source.
    gap : least distance between neighbours in a rank.
    lane_width : room of a lane.
    row_height : of one rank, roughly; it decides how components are set on shelves.
    roots_down : put nodes without a source right above their first target instead of at the top.

    Raises
    ------
    ValueError : the links form a cycle.
    """
    links, nodes = len(source), len(width)
    if nodes == 0:
        return Layered(_ints([]), _floats([]), _ints([]), _ints([]), _floats([]))
    bundles = np.zeros(links, dtype=np.int32) if bundle is None else _ints(bundle)
    placed = _place(
        _ints(source), _ints(target), bundles, _floats(width), gap, lane_width, row_height, roots_down
    )
    return Layered(*placed)


def layered_layout(
    start: NDArray[Any],
    target: NDArray[Any],
    width: NDArray[Any],
    height: NDArray[Any],
    *,
    gap_x: float = 24.0,
    gap_y: float = 40.0,
    lane_width: float = 12.0,
) -> Layout:
    """The whole picture of an acyclic graph in CSR form.

    Parameters
    ----------
    start, target : integer[nodes + 1] and integer[edges].
    width, height : float[nodes].
    gap_x, gap_y : least distance between neighbours in a rank, and between ranks.

    Raises
    ------
    ValueError : the edges form a cycle.
    """
    nodes = len(start) - 1
    source = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(start))
    mean = float(np.mean(height)) if nodes else 0.0
    placed = layered(source, target, width, gap=gap_x, lane_width=lane_width, row_height=mean + gap_y)
    if nodes == 0:
        none = _floats([])
        return Layout(none, none, placed.rank, _ints([0]), none, none, 0.0, 0.0)
    tall = np.zeros(int(placed.rank.max()) + 1)
    np.maximum.at(tall, placed.rank, height)
    top = np.concatenate([[0.0], np.cumsum(tall[:-1] + gap_y)])
    y = (top + tall / 2)[placed.rank]
    points = _polylines(
        source,
        _ints(target),
        placed.rank,
        placed.x,
        y,
        _floats(height),
        placed.lane_first,
        placed.lane_end,
        placed.lane_x,
        top,
        top + tall,
    )
    right = float(max((placed.x + np.asarray(width) / 2).max(), points[1].max(initial=0.0)))
    return Layout(placed.x, y, placed.rank, *points, width=right, height=float(top[-1] + tall[-1]))


def _ints(values: Any) -> _I32:
    return np.array(values, dtype=np.int32, order="C")


def _floats(values: Any) -> _F64:
    return np.array(values, dtype=np.float64, order="C")


@kernel("int32[::1](int32[::1], int32[::1], int64, boolean)")
def _ranks(source: _I32, target: _I32, nodes: int, roots_down: bool) -> _I32:
    """Longest path from a root; roots then come down to right above their nearest target."""
    first, out = by_key(source, nodes)
    waiting = np.zeros(nodes, dtype=np.int32)
    for e in range(target.shape[0]):
        waiting[target[e]] += 1
    root = waiting == 0
    rank = np.zeros(nodes, dtype=np.int32)
    queue = np.empty(nodes, dtype=np.int32)
    tail = 0
    for u in range(nodes):
        if root[u]:
            queue[tail] = u
            tail += 1
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        for i in range(first[u], first[u + 1]):
            v = target[out[i]]
            rank[v] = max(rank[v], rank[u] + 1)
            waiting[v] -= 1
            if waiting[v] == 0:
                queue[tail] = v
                tail += 1
    if tail < nodes:
        raise ValueError("the links form a cycle")
    if roots_down:
        for u in range(nodes):
            if root[u] and first[u] < first[u + 1]:
                nearest = rank[target[out[first[u]]]]
                for i in range(first[u], first[u + 1]):
                    nearest = min(nearest, rank[target[out[i]]])
                rank[u] = nearest - 1
    return rank


@kernel(
    "Tuple((int32[::1], int32[::1], int32[::1], int32[::1]))(int32[::1], int32[::1], int32[::1], int32[::1])"
)
def _lanes(source: _I32, target: _I32, bundle: _I32, rank: _I32) -> tuple[_I32, _I32, _I32, _I32]:
    """The lanes of each link, and all links as pieces from rank to rank; a stem's pieces stand there once.

    Returns
    -------
    lane : int32[links], the first lane of the link's stem; lanes of a stem are consecutive, one a rank.
    lane_rank : int32[lanes].
    upper, lower : int32[pieces], the vertices above and below; vertices are the nodes and then the lanes.
    """
    nodes, links = rank.shape[0], source.shape[0]
    first, out = by_key(source, nodes)
    bundles = 1
    for e in range(links):
        bundles = max(bundles, bundle[e] + 1)
    seen = np.full(bundles, -1, dtype=np.int32)
    length = np.zeros(bundles, dtype=np.int32)
    begin = np.zeros(bundles, dtype=np.int32)
    lane = np.zeros(links, dtype=np.int32)
    count = 0
    for u in range(nodes):
        for i in range(first[u], first[u + 1]):
            e = out[i]
            b = bundle[e]
            if seen[b] != u:
                seen[b] = u
                length[b] = 0
            length[b] = max(length[b], rank[target[e]] - rank[u] - 1)
        for i in range(first[u], first[u + 1]):
            b = bundle[out[i]]
            if length[b] >= 0:  # met for the first time: the stem's lanes are given out
                begin[b] = count
                count += length[b]
                length[b] = -1
            lane[out[i]] = begin[b]
    lane_rank = np.full(count, -1, dtype=np.int32)
    upper = np.empty(links + count, dtype=np.int32)
    lower = np.empty(links + count, dtype=np.int32)
    pieces = 0
    for e in range(links):
        passed = rank[target[e]] - rank[source[e]] - 1
        for i in range(passed - 1, -1, -1):  # from below, up to what another link of the stem has done
            here = lane[e] + i
            if lane_rank[here] >= 0:
                break
            lane_rank[here] = rank[source[e]] + 1 + i
            upper[pieces] = source[e] if i == 0 else nodes + here - 1
            lower[pieces] = nodes + here
            pieces += 1
        upper[pieces] = source[e] if passed == 0 else nodes + lane[e] + passed - 1
        lower[pieces] = target[e]
        pieces += 1
    return lane, lane_rank, upper[:pieces].copy(), lower[:pieces].copy()


@kernel("Tuple((int32[::1], int64))(int32[::1], int32[::1], int64)")
def _components(upper: _I32, lower: _I32, vertices: int) -> tuple[_I32, int]:
    """Connected components, numbered by their lowest vertex; and how many."""
    root = np.arange(vertices).astype(np.int32)
    for e in range(upper.shape[0]):
        a, b = upper[e], lower[e]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        root[max(a, b)] = min(a, b)
    component = np.empty(vertices, dtype=np.int32)
    count = 0
    for v in range(vertices):
        if root[v] == v:
            component[v] = count
            count += 1
        else:
            component[v] = component[root[v]]
    return component, count


@kernel("void(float64[::1], int32[::1], float64[::1], int32[::1], int64, float64, float64)")
def _shelve(
    x: _F64, rank: _I32, width: _F64, component: _I32, components: int, gap: float, row_height: float
) -> None:
    """Set components side by side from the left, on shelves below each other; changes `x` and `rank`."""
    low = np.full(components, np.inf)
    high = np.full(components, -np.inf)
    upper = np.full(components, 1 << 30)
    deepest = np.zeros(components, dtype=np.int64)
    for v in range(x.shape[0]):
        c = component[v]
        low[c] = min(low[c], x[v] - width[v] / 2)
        high[c] = max(high[c], x[v] + width[v] / 2)
        upper[c] = min(upper[c], rank[v])
        deepest[c] = max(deepest[c], rank[v])
    area = 0.0
    for c in range(components):
        area += (high[c] - low[c] + gap) * (deepest[c] - upper[c] + 1) * row_height
    shelf = max(np.sqrt(area * _SHELF_RATIO), _SHELF_NODES * (np.mean(width) + gap))
    across, base, depth = 0.0, 0, 0
    shift = np.empty(components)
    lower = np.empty(components, dtype=np.int64)
    for c in range(components):
        if across > 0.0 and across + high[c] - low[c] > shelf:
            across, base, depth = 0.0, base + depth, 0
        shift[c] = across - low[c]
        lower[c] = base - upper[c]
        across += high[c] - low[c] + gap
        depth = max(depth, deepest[c] - upper[c] + 1)
    for v in range(x.shape[0]):
        x[v] += shift[component[v]]
        rank[v] += lower[component[v]]


@kernel(
    "Tuple((int32[::1], float64[::1], int32[::1], int32[::1], float64[::1]))"
    "(int32[::1], int32[::1], int32[::1], float64[::1], float64, float64, float64, boolean)"
)
def _place(
    source: _I32,
    target: _I32,
    bundle: _I32,
    node_width: _F64,
    gap: float,
    lane_width: float,
    row_height: float,
    roots_down: bool,
) -> tuple[_I32, _F64, _I32, _I32, _F64]:
    """Everything that `layered` returns."""
    nodes = node_width.shape[0]
    node_rank = _ranks(source, target, nodes, roots_down)
    lane, lane_rank, upper, lower = _lanes(source, target, bundle, node_rank)
    vertices = nodes + lane_rank.shape[0]
    rank = np.empty(vertices, dtype=np.int32)
    rank[:nodes] = node_rank
    rank[nodes:] = lane_rank
    width = np.full(vertices, lane_width)
    width[:nodes] = node_width
    component, components = _components(upper, lower, vertices)
    base = np.zeros(components + 1, dtype=np.int32)
    for v in range(vertices):
        base[component[v] + 1] = max(base[component[v] + 1], rank[v] + 1)
    for c in range(components):
        base[c + 1] += base[c]
    row = np.empty(vertices, dtype=np.int32)
    for v in range(vertices):
        row[v] = base[component[v]] + rank[v]
    first, by_row = by_key(row, base[components])
    first_down, piece = by_key(upper, vertices)
    down = lower[piece]
    first_up, piece = by_key(lower, vertices)
    up = upper[piece]
    order = first_order(row, base[components], first_down, down, by_row)
    order = ordered(order, row, first, first_down, down, first_up, up, _SWEEPS)
    place = np.empty(vertices, dtype=np.int32)
    for i in range(vertices):
        place[order[i]] = i - first[row[order[i]]]
    up = sorted_neighbours(order, first_down, down, first_up, up)
    down = sorted_neighbours(order, first_up, up, first_down, down)
    yield_up = yielding(order, first, place, first_up, up, nodes)
    yield_down = np.zeros(down.shape[0], dtype=np.uint8)
    fill = first_down[:-1].copy()
    for v in order:  # as `down` was filled
        for k in range(first_up[v], first_up[v + 1]):
            yield_down[fill[up[k]]] = yield_up[k]
            fill[up[k]] += 1
    four = np.empty((4, vertices))
    for a in range(4):
        downwards, mirrored = a < 2, a % 2 == 1
        if downwards:
            root = blocks(order, first, place, first_up, up, yield_up, True, mirrored)
        else:
            root = blocks(order, first, place, first_down, down, yield_down, False, mirrored)
        four[a] = compacted(order, first, root, width, gap, mirrored)
    x = balanced(four, width, component, components)
    _shelve(x, rank, width, component, components, gap, row_height)
    lane_end = lane.copy()
    for e in range(source.shape[0]):
        lane_end[e] += node_rank[target[e]] - node_rank[source[e]] - 1
    return rank[:nodes].copy(), x[:nodes].copy(), lane, lane_end, x[nodes:].copy()


@kernel(
    "Tuple((int32[::1], float64[::1], float64[::1]))(int32[::1], int32[::1], int32[::1], float64[::1], "
    "float64[::1], float64[::1], int32[::1], int32[::1], float64[::1], float64[::1], float64[::1])"
)
def _polylines(
    source: _I32,
    target: _I32,
    rank: _I32,
    x: _F64,
    y: _F64,
    height: _F64,
    lane_first: _I32,
    lane_end: _I32,
    lane_x: _F64,
    top: _F64,
    foot: _F64,
) -> tuple[_I32, _F64, _F64]:
    """Points of every edge, straight down through the row of each lane; none inside a straight run."""
    links = source.shape[0]
    start = np.zeros(links + 1, dtype=np.int32)
    points_x = np.empty(0, dtype=np.float64)
    points_y = np.empty(0, dtype=np.float64)
    for filling in range(2):
        count = 0
        for e in range(links):
            u, v = source[e], target[e]
            if filling == 1:
                points_x[count], points_y[count] = x[u], y[u] + height[u] / 2
            count += 1
            for i in range(lane_first[e], lane_end[e]):
                r = rank[u] + 1 + i - lane_first[e]
                above = x[u] if i == lane_first[e] else lane_x[i - 1]
                below = x[v] if i + 1 == lane_end[e] else lane_x[i + 1]
                if above != lane_x[i]:
                    if filling == 1:
                        points_x[count], points_y[count] = lane_x[i], top[r]
                    count += 1
                if below != lane_x[i]:
                    if filling == 1:
                        points_x[count], points_y[count] = lane_x[i], foot[r]
                    count += 1
            if filling == 1:
                points_x[count], points_y[count] = x[v], y[v] - height[v] / 2
            count += 1
            start[e + 1] = count
        if filling == 0:
            points_x = np.empty(count, dtype=np.float64)
            points_y = np.empty(count, dtype=np.float64)
    return start, points_x, points_y
