"""The order inside the rows of a layered layout: barycentre sweeps that keep the fewest crossings.

Knows arrays only. Vertices stand in rows; `first` int32[rows + 1] cuts an order into them, `place` is a
vertex's position in its row; neighbours above and below are CSR, always in the row next to the vertex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel
from .alignment import by_key

_I32 = NDArray[np.int32]
_F64 = NDArray[np.float64]

_INSERTION = 48  # rows up to this length are sorted by insertion: they are nearly in order


@kernel("int32[::1](int32[::1], int64, int32[::1], int32[::1], int32[::1])")
def first_order(row: _I32, rows: int, first_down: _I32, down: _I32, by_row: _I32) -> _I32:
    """Vertices row by row, in the order in which a depth-first walk from the top meets them."""
    vertices = row.shape[0]
    first, _ = by_key(row, rows)
    fill = first[:-1].copy()
    order = np.empty(vertices, dtype=np.int32)
    seen = np.zeros(vertices, dtype=np.uint8)
    stack = np.empty(down.shape[0] + 1, dtype=np.int32)
    for top in by_row:
        stack[0] = top
        height = 1
        while height > 0:
            height -= 1
            v = stack[height]
            if seen[v] == 0:
                seen[v] = 1
                order[fill[row[v]]] = v
                fill[row[v]] += 1
                for i in range(first_down[v + 1] - 1, first_down[v] - 1, -1):
                    if seen[down[i]] == 0:
                        stack[height] = down[i]
                        height += 1
    return order


@kernel("void(int32[::1], float64[::1], int64, int64, boolean)")
def _sort_row(order: _I32, key: _F64, low: int, high: int, reverse_ties: bool) -> None:
    """Sort ``order[low:high]`` by ``key`` of the vertex, stable or with equal keys turned round."""
    if reverse_ties:
        order[low:high] = order[low:high][::-1].copy()
    if high - low > _INSERTION:
        row = order[low:high].copy()
        keys = np.empty(high - low, dtype=np.float64)
        for i in range(high - low):
            keys[i] = key[row[i]]
        order[low:high] = row[np.argsort(keys, kind="mergesort")]
        return
    for i in range(low + 1, high):
        v = order[i]
        j = i - 1
        while j >= low and key[order[j]] > key[v]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = v


@kernel("int64(int32[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def _crossings(order: _I32, first: _I32, place: _I32, first_down: _I32, down: _I32) -> int:
    """Crossings between all neighbouring rows, counted with a Fenwick tree over the lower row."""
    total = 0
    for r in range(first.shape[0] - 2):
        length = first[r + 2] - first[r + 1]
        tree = np.zeros(length + 1, dtype=np.int32)
        inserted = 0
        for i in range(first[r], first[r + 1]):
            v = order[i]
            for k in range(first_down[v], first_down[v + 1]):
                at = place[down[k]] + 1
                while at > 0:
                    total -= tree[at]
                    at -= at & -at
                total += inserted
            for k in range(first_down[v], first_down[v + 1]):
                at = place[down[k]] + 1
                while at <= length:
                    tree[at] += 1
                    at += at & -at
                inserted += 1
    return int(total)


@kernel(
    "int32[::1](int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int64)"
)
def ordered(
    start: _I32,
    row: _I32,
    first: _I32,
    first_down: _I32,
    down: _I32,
    first_up: _I32,
    up: _I32,
    sweeps: int,
) -> _I32:
    """The order with the fewest crossings that barycentre sweeps, down and up in turn, come by."""
    vertices, rows = row.shape[0], first.shape[0] - 1
    order = start.copy()
    place = np.empty(vertices, dtype=np.int32)
    share = np.empty(vertices, dtype=np.float64)  # place in the row, from 0 to 1
    for v in range(vertices):
        i = v - first[row[order[v]]]
        place[order[v]] = i
        share[order[v]] = (i + 0.5) / (first[row[order[v]] + 1] - first[row[order[v]]])
    best, fewest, idle = order.copy(), _crossings(order, first, place, first_down, down), 0
    key = np.empty(vertices, dtype=np.float64)
    for sweep in range(sweeps):
        if fewest == 0 or idle == 4:
            break
        downwards = sweep % 2 == 0
        for step in range(1, rows):
            r = step if downwards else rows - 1 - step
            for i in range(first[r], first[r + 1]):
                v = order[i]
                low, high = (
                    (first_up[v], first_up[v + 1]) if downwards else (first_down[v], first_down[v + 1])
                )
                key[v] = share[v]
                if high > low:
                    total = 0.0
                    for k in range(low, high):
                        total += share[up[k] if downwards else down[k]]
                    key[v] = total / (high - low)
            _sort_row(order, key, first[r], first[r + 1], sweep % 4 >= 2)
            for i in range(first[r], first[r + 1]):
                place[order[i]] = i - first[r]
                share[order[i]] = (i - first[r] + 0.5) / (first[r + 1] - first[r])
        crossings = _crossings(order, first, place, first_down, down)
        idle += 1
        if crossings < fewest:
            best, fewest, idle = order.copy(), crossings, 0
    return best


@kernel("int32[::1](int32[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def sorted_neighbours(order: _I32, first_other: _I32, other: _I32, first_own: _I32, own: _I32) -> _I32:
    """The neighbour lists `own` sorted by place: filled by walking the other side in its order."""
    fill = first_own[:-1].copy()
    out = np.empty(own.shape[0], dtype=np.int32)
    for v in order:
        for k in range(first_other[v], first_other[v + 1]):
            out[fill[other[k]]] = v
            fill[other[k]] += 1
    return out
