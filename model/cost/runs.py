"""How an operand's tiles lie in memory: contiguous runs, and the whole sectors that they take (docs/loop-tree.md, 4).

Knows the arrays of one nest; knows no machine but the bytes of a sector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import bands as b
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
    loops: Ints | None = None,
    sums: bool = True,
) -> int:
    """Bits in whole sectors of the tiles of access `a` at `depth` that move `elements` elements of `bits` bits in all.

    Along the last axis that a loop cuts, a tile's elements are one run where they are consecutive, else each is
    a run; the whole axes behind it lengthen every run. Other axes and other loops repeat the runs.

    Parameters
    ----------
    level : the pair of levels that they cross.
    loops : that cut the dims of a band, where they are not the nest's own.
    sums : whether dims of a band that the access does not touch are cut at all.
    """
    sector = 8 * sector_bytes

    def rounded(count: int) -> int:
        return -(-count * bits // sector) * sector

    crosses = arrays.ten[arrays.acc[a, k.ACC_TENSOR], k.TEN_HOME] <= level
    if arrays.acc[a, k.ACC_FIXED] >= 0 or not crosses:  # one run
        return rounded(elements)
    o = int(arrays.acc[a, k.ACC_OPERATOR])
    row, band = rows[o], int(arrays.ops[o, k.OP_BAND])
    boxes = _Boxes(arrays, a, row, depth, arrays.loops if loops is None else loops, sums)
    boxes.split = boxes.split and level == 0
    inner = 1
    for x in range(int(arrays.acc[a, k.ACC_AXES_END]) - 1, int(arrays.acc[a, k.ACC_AXES]) - 1, -1):
        banded = arrays.axes[x, k.AXIS_KIND] == k.SIMPLE and band >> int(arrays.axes[x, k.AXIS_D0]) & 1
        whole = boxes.whole(x) if banded else _whole(arrays, x, row, depth)
        if whole:
            inner *= whole
            continue
        along = taken = 0
        for size, consecutive, times in boxes.tiles(x) if banded else _tiles(arrays, x, row, depth):
            along += size * times
            taken += (rounded(size * inner) if consecutive else size * rounded(inner)) * times
        return taken * (elements // (along * inner)) if along else 0
    return rounded(inner) * (elements // inner) if inner else 0


class _Boxes:
    """The boxes that loops cut out of the band of an access's operator, and the elements along its axes there."""

    def __init__(self, arrays: NestArrays, a: int, row: Ints, depth: int, loops: Ints, sums: bool) -> None:
        self.arrays, self.row, self.depth, self.loops, self.sums = arrays, row, depth, loops, sums
        o = int(arrays.acc[a, k.ACC_OPERATOR])
        self.touch = int(arrays.acc[a, k.ACC_TOUCH])
        self.tree = int(arrays.ops[o, k.OP_TREE])
        self.split = bool(arrays.ops[o, k.OP_SPLIT]) and bool(arrays.acc[a, k.ACC_WRITE])
        self.q, self.k, self.offset, self.window = arrays.ops[o, k.OP_QUERY : k.OP_WINDOW + 1].tolist()

    def _reach(self, d: int) -> tuple[int, int, int]:
        """The band's other dim, and where its interval of `d` begins and ends for indices [a, b) of it."""
        if d == self.k:
            return self.q, self.offset - self.window + 1, self.offset
        return self.k, -self.offset, self.window - 1 - self.offset

    def _edges(self, d: int, cut: bool) -> tuple[Ints, Ints]:
        """Where the pieces of `d` begin and end."""
        extent = int(self.arrays.extents[d])
        depth = self.depth if cut else 0
        step = int(b.even_step(extent, d, self.row, depth, self.loops))
        if step:
            first = np.arange(0, extent, step)
        else:
            first = np.array([low for low, _ in _edges(self.arrays, d, self.row, depth, self.loops)])
        return first, np.append(first[1:], extent)

    def whole(self, x: int) -> int:
        """The axis's elements where every tile has all of the tensor's, else 0."""
        _, d, _, points, _, _, size = self.arrays.axes[x].tolist()
        other, low, high = self._reach(d)
        cuts = self._edges(d, True)[0].size + self._edges(other, self.sums)[0].size
        if self.touch >> other & 1 or cuts > 2 or size != points:
            return 0
        seen = min(int(self.arrays.extents[d]), int(self.arrays.extents[other]) + high) - max(0, low)
        return points if seen == points else 0

    def tiles(self, x: int) -> list[tuple[int, bool, int]]:
        """(elements, whether they are consecutive, how many such tiles) along axis `x`."""
        _, d, _, _, coefficient, _, _ = self.arrays.axes[x].tolist()
        other, low, high = self._reach(d)
        first, end = self._edges(d, True)
        if self.touch >> other & 1:  # a line for each index of the other dim
            begin = np.arange(int(self.arrays.extents[other]))
            begins, ends = begin + low, begin + 1 + high
        else:
            begin, stop = self._edges(other, self.sums)
            begins, ends = begin + low, stop + high
        begins, ends = np.maximum(begins, 0), np.minimum(ends, int(self.arrays.extents[d]))
        begins, ends = begins[ends > begins], ends[ends > begins]
        at, to = np.searchsorted(first, begins, "right") - 1, np.searchsorted(first, ends, "left") - 1
        one = at == to
        sizes = [ends[one] - begins[one], (end[at] - begins)[~one], (ends - first[to])[~one]]
        # The pieces between the first and the last of an interval are met whole.
        inside = np.zeros(first.size + 1, np.int64)
        np.add.at(inside, at[~one] + 1, 1)
        np.add.at(inside, to[~one], -1)
        often = np.concatenate((np.ones(sum(map(len, sizes)), np.int64), np.cumsum(inside)[:-1]))
        size = np.concatenate((*sizes, end - first))
        if self.sums and self.split and not self.touch >> other & 1:
            size, often = self._shared(d, other, first, end, size, often)
        table: dict[int, int] = {}
        for length, times in zip(size.tolist(), often.tolist(), strict=True):
            table[length] = table.get(length, 0) + times
        return [
            (length, abs(coefficient) <= 1 or length == 1, times) for length, times in table.items() if times
        ]

    def _shared(
        self, d: int, other: int, first: Ints, end: Ints, size: Ints, often: Ints
    ) -> tuple[Ints, Ints]:
        """`tiles` where cores share the sums over `other`: each box as often as cores have a point of it."""
        for loop in self.row[self.depth : self.tree].tolist():
            dim, step, cores = self.loops[loop, (k.LOOP_DIM, k.LOOP_STEP, k.LOOP_SPLIT)].tolist()
            if dim != other or cores == 1:
                continue
            _, low, high = self._reach(other)
            begins, ends = np.maximum(first + low, 0), np.minimum(end + high, int(self.arrays.extents[other]))
            fine = ends > begins
            _, low, high = self._reach(d)
            held = np.minimum(end, int(self.arrays.extents[other]) + high) - np.maximum(first, low)
            return held[fine], np.minimum(cores, (ends - 1) // step - begins // step + 1)[fine]
        return size, often


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


def _edges(
    arrays: NestArrays, d: int, row: Ints, depth: int, loops: Ints | None = None
) -> list[tuple[int, int]]:
    """Where the pieces that the loops cut dim `d` into begin and end."""
    found: list[tuple[int, int]] = []
    at, extent = 0, int(arrays.extents[d])
    while at < extent:
        end = int(k.piece_end(at, extent, d, row, depth, arrays.loops if loops is None else loops))
        found.append((at, end))
        at = end
    return found
