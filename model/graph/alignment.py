"""Coordinates of ordered rows: the alignment half of layered layout (Brandes and Koepf 2001).

Each vertex is aligned with the median of its neighbours in the row before, four times: from above and from
below, from the left and from the right. Vertices that are aligned form a block with one x. Blocks are placed
by longest paths, in linear time, and a vertex gets the mean of the middle two of its four coordinates.

Knows arrays only. Vertices are nodes, and after them lanes (what a link occupies in a rank that it passes);
`first` int32[rows + 1] cuts `order`, the vertices row by row, and `place` is a vertex's position in its row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel

_I32 = NDArray[np.int32]
_F64 = NDArray[np.float64]


@kernel("Tuple((int32[::1], int32[::1]))(int32[::1], int64)")
def by_key(key: _I32, keys: int) -> tuple[_I32, _I32]:
    """CSR of the positions that hold each key, ascending: ``first`` int32[keys + 1], ``item``."""
    first = np.zeros(keys + 1, dtype=np.int32)
    for i in range(key.shape[0]):
        first[key[i] + 1] += 1
    for k in range(keys):
        first[k + 1] += first[k]
    fill = first[:-1].copy()
    item = np.empty(key.shape[0], dtype=np.int32)
    for i in range(key.shape[0]):
        item[fill[key[i]]] = i
        fill[key[i]] += 1
    return first, item


@kernel("int64(int32[::1], int32[::1], int64, int64)")
def _inner_above(first_up: _I32, up: _I32, v: int, nodes: int) -> int:
    """The lane right above lane `v` in the same link, or -1."""
    if v >= nodes and first_up[v] < first_up[v + 1] and up[first_up[v]] >= nodes:
        return int(up[first_up[v]])
    return -1


@kernel("uint8[::1](int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int64)")
def yielding(
    order: _I32, first: _I32, place: _I32, first_up: _I32, up: _I32, nodes: int
) -> NDArray[np.uint8]:
    """uint8[pieces], in the order of `up`: 1 for pieces that cross an inner piece of a lane."""
    out = np.zeros(up.shape[0], dtype=np.uint8)
    for r in range(1, first.shape[0] - 1):
        left, scanned = 0, first[r]
        for i in range(first[r], first[r + 1]):
            inner = _inner_above(first_up, up, int(order[i]), nodes)
            if inner < 0 and i + 1 < first[r + 1]:
                continue
            right = place[inner] if inner >= 0 else first[r] - first[r - 1]
            while scanned <= i:
                v = order[scanned]
                if _inner_above(first_up, up, int(v), nodes) < 0:
                    for k in range(first_up[v], first_up[v + 1]):
                        if place[up[k]] < left or place[up[k]] > right:
                            out[k] = 1
                scanned += 1
            left = right
    return out


@kernel(
    "int32[::1](int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], uint8[::1], boolean, boolean)"
)
def blocks(
    order: _I32,
    first: _I32,
    place: _I32,
    first_near: _I32,
    near: _I32,
    yielding: NDArray[np.uint8],
    downwards: bool,
    mirrored: bool,
) -> _I32:
    """int32[vertices]: the first vertex of the block that each is aligned with, following medians.

    `near` are the neighbours in the row before (above if `downwards`), sorted by place.
    """
    rows = first.shape[0] - 1
    root = np.arange(order.shape[0]).astype(np.int32)
    for step in range(1, rows):
        r = step if downwards else rows - 1 - step
        barrier = -1
        length = first[r + 1] - first[r]
        for i in range(length):
            v = order[first[r + 1] - 1 - i if mirrored else first[r] + i]
            low, degree = first_near[v], first_near[v + 1] - first_near[v]
            for half in range(2):
                if degree == 0 or root[v] != v:
                    break
                middle = (degree - 1 + half) // 2
                k = low + (degree - 1 - middle if mirrored else middle)
                u = near[k]
                before = r - 1 if downwards else r + 1
                at = first[before + 1] - first[before] - 1 - place[u] if mirrored else place[u]
                if yielding[k] == 0 and at > barrier:
                    root[v] = root[u]
                    barrier = at
    return root


@kernel("float64[::1](int32[::1], int32[::1], int32[::1], float64[::1], float64, boolean)")
def compacted(order: _I32, first: _I32, root: _I32, width: _F64, gap: float, mirrored: bool) -> _F64:
    """x of every vertex: blocks as far left as their neighbours let them, then as near to the right ones."""
    vertices, rows = order.shape[0], first.shape[0] - 1
    left = np.empty(vertices, dtype=np.int32)
    right = np.empty(vertices, dtype=np.int32)
    apart = np.empty(vertices, dtype=np.float64)
    waiting = np.zeros(vertices, dtype=np.int32)
    pairs = 0
    for r in range(rows):
        for i in range(first[r], first[r + 1] - 1):
            u, v = (order[i + 1], order[i]) if mirrored else (order[i], order[i + 1])
            left[pairs], right[pairs] = root[u], root[v]
            apart[pairs] = (width[u] + width[v]) / 2 + gap
            waiting[root[v]] += 1
            pairs += 1
    begin, pair = by_key(left[:pairs].copy(), vertices)
    queue = np.empty(vertices, dtype=np.int32)
    tail = 0
    for v in range(vertices):
        if root[v] == v and waiting[v] == 0:
            queue[tail] = v
            tail += 1
    x = np.zeros(vertices, dtype=np.float64)
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        for k in range(begin[u], begin[u + 1]):
            v = right[pair[k]]
            x[v] = max(x[v], x[u] + apart[pair[k]])
            waiting[v] -= 1
            if waiting[v] == 0:
                queue[tail] = v
                tail += 1
    for i in range(tail - 1, -1, -1):
        u = queue[i]
        nearest = np.inf
        for k in range(begin[u], begin[u + 1]):
            nearest = min(nearest, x[right[pair[k]]] - apart[pair[k]])
        if nearest < np.inf:
            x[u] = max(x[u], nearest)
    out = np.empty(vertices, dtype=np.float64)
    for v in range(vertices):
        out[v] = -x[root[v]] if mirrored else x[root[v]]
    return out


@kernel("float64[::1](float64[:, ::1], float64[::1], int32[::1], int64)")
def balanced(four: _F64, width: _F64, component: _I32, components: int) -> _F64:
    """The mean of the middle two of four coordinates, each first set against the narrowest of its component.

    Rows of `four`: down left, down right, up left, up right. A distance that all four keep, it keeps.
    """
    vertices = width.shape[0]
    low = np.full((4, components), np.inf)
    high = np.full((4, components), -np.inf)
    for a in range(4):
        for v in range(vertices):
            c = component[v]
            low[a, c] = min(low[a, c], four[a, v] - width[v] / 2)
            high[a, c] = max(high[a, c], four[a, v] + width[v] / 2)
    shift = np.empty((4, components))
    for c in range(components):
        narrow = np.argmin(high[:, c] - low[:, c])
        for a in range(4):
            shift[a, c] = low[narrow, c] - low[a, c] if a % 2 == 0 else high[narrow, c] - high[a, c]
    out = np.empty(vertices, dtype=np.float64)
    for v in range(vertices):
        total, least, most = 0.0, np.inf, -np.inf
        for a in range(4):
            at = four[a, v] + shift[a, component[v]]
            total += at
            least, most = min(least, at), max(most, at)
        out[v] = (total - least - most) / 2
    return out
