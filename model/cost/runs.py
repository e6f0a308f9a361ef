"""How an operand's tiles lie in memory: contiguous runs, and the whole sectors that they take (docs/loop-tree.md, 4).

Knows the arrays of one nest; knows no machine but the bytes of a sector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import sweep as k
from .layout import NestArrays

Ints = NDArray[np.int64]


def sectored_bits(
    arrays: NestArrays,
    a: int,
    rows: Ints,
    depth: int,
    elements: int,
    bits: int,
    sector_bytes: int,
    level: int = 0,
) -> int:
    """Bits in whole sectors of the tiles of access `a` at `depth` that move `elements` elements of `bits` bits in all.

    Along the last axis that a loop cuts, a tile's elements are one run where they are consecutive, else each is
    a run; the whole axes behind it lengthen every run. Other axes and other loops repeat the runs. ``level`` is the
    pair of levels that they cross.
    """
    sector = 8 * sector_bytes

    def rounded(count: int) -> int:
        return -(-count * bits // sector) * sector

    crosses = arrays.ten[arrays.acc[a, k.ACC_TENSOR], k.TEN_HOME] <= level
    if arrays.acc[a, k.ACC_FIXED] >= 0 or not crosses:  # one run
        return rounded(elements)
    row = rows[int(arrays.acc[a, k.ACC_OPERATOR])]
    inner = 1
    for x in range(int(arrays.acc[a, k.ACC_AXES_END]) - 1, int(arrays.acc[a, k.ACC_AXES]) - 1, -1):
        whole = _whole(arrays, x, row, depth)
        if whole:
            inner *= whole
            continue
        along = taken = 0
        for size, consecutive, times in _tiles(arrays, x, row, depth):
            along += size * times
            taken += (rounded(size * inner) if consecutive else size * rounded(inner)) * times
        return taken * (elements // (along * inner)) if along else 0
    return rounded(inner) * (elements // inner) if inner else 0


def _whole(arrays: NestArrays, x: int, row: Ints, depth: int) -> int:
    """The axis's elements where every tile has all of the tensor's, else 0."""
    kind, d, _, points, _, _, size = arrays.axes[x].tolist()
    cut = any(
        arrays.loops[loop, k.LOOP_DIM] == d and arrays.loops[loop, k.LOOP_TRIPS] > 1
        for loop in row[:depth].tolist()
    )
    return points if kind == k.SIMPLE and size == points and not cut else 0


def _tiles(arrays: NestArrays, x: int, row: Ints, depth: int) -> list[tuple[int, bool, int]]:
    """(elements, whether they are consecutive, how many such tiles) along axis `x`."""
    kind, d, r, one, two, offset, extent = arrays.axes[x].tolist()
    loops, extents = arrays.loops, arrays.extents
    if kind == k.SIMPLE and one < extents[d]:  # borders
        low, high = (-(offset // two), (extent - 1 - offset) // two) if two > 0 else (0, -1)
        if two < 0:
            low, high = -((extent - 1 - offset) // -two), offset // -two
        cut = [(max(low, p0), min(high + 1, p1)) for p0, p1 in _edges(arrays, d, row, depth)]
        return [(p1 - p0, abs(two) == 1 or p1 - p0 == 1, 1) for p0, p1 in cut if p1 > p0]
    if kind == k.SIMPLE:
        sizes, numbers = np.zeros(depth + 2, np.int64), np.zeros(depth + 2, np.int64)
        count = int(k.pieces(int(extents[d]), d, row, depth, loops, sizes, numbers))
        return [
            (size, abs(two) <= 1 or size == 1, times)
            for size, times in zip(sizes[:count].tolist(), numbers[:count].tolist(), strict=True)
        ]
    if kind == k.INDIRECT:
        return [(int(k.indirect_sum(arrays.axes, x, row, depth, loops, extents)), False, 1)]
    out: list[tuple[int, bool, int]] = []
    for p0, p1 in _edges(arrays, d, row, depth):
        for r0, r1 in _edges(arrays, r, row, depth):
            size = int(k.window_elements(p0, p1, r0, r1, one, two, offset, extent))
            if kind == k.ROLLING:  # what the tiles before it had is there
                size = int(k.window_elements(0, p1, r0, r1, one, two, offset, extent))
                size -= int(k.window_elements(0, p0, r0, r1, one, two, offset, extent))
            span = (p1 - p0 - 1) * one + (r1 - r0 - 1) * two + 1
            dense = int(k.window_span(p1 - p0, r1 - r0, one, two)) == span
            out.append((size, dense, 1))
    return out


def _edges(arrays: NestArrays, d: int, row: Ints, depth: int) -> list[tuple[int, int]]:
    """Where the pieces that the loops cut dim `d` into begin and end."""
    found: list[tuple[int, int]] = []
    at, extent = 0, int(arrays.extents[d])
    while at < extent:
        end = int(k.piece_end(at, extent, d, row, depth, arrays.loops))
        found.append((at, end))
        at = end
    return found
