"""Kernels: how an operand's tiles lie in memory: contiguous runs, and the whole sectors that they take.

Knows the arrays of one nest (columns in `sweep.py`); knows no machine but the bits of a sector. The law is in
docs/loop-tree.md, section 4, "Outside the buffer".
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    ACC_FIXED,
    ACC_TENSOR,
    AXIS_A,
    AXIS_B,
    AXIS_C,
    AXIS_D0,
    AXIS_D1,
    AXIS_KIND,
    AXIS_N,
    INDIRECT,
    LOOP_DIM,
    LOOP_STEP,
    ROLLING,
    SIMPLE,
    TEN_HOME,
    indirect_sum,
    piece_end,
    pieces,
    points_between,
    window_elements,
    window_span,
)


@kernel("int64(int64, int64, int64)", borrows=True)
def rounded(elements, bits, sector):
    """Bits of the whole sectors that a run of `elements` elements of `bits` bits takes."""
    return -(-elements * bits // sector) * sector


@kernel("int64(int64, boolean, int64, int64, int64)", borrows=True)
def tile_bits(size, consecutive, inner, bits, sector):
    """Bits in whole sectors of `size` elements along an axis, each `inner` long: one run, or a run each."""
    if consecutive:
        return rounded(size * inner, bits, sector)
    return size * rounded(inner, bits, sector)


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def whole_axis(axes, x, row, depth, loops, extents):
    """The axis's elements where every tile has all of the tensor's, else 0."""
    if axes[x, AXIS_KIND] != SIMPLE or axes[x, AXIS_N] != axes[x, AXIS_A]:
        return 0
    d = axes[x, AXIS_D0]
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == d and loops[row[j], LOOP_STEP] < extents[d]:
            return 0
    return axes[x, AXIS_A]


@kernel(
    "UniTuple(int64, 2)(int64, int64, int64[::1], int64, int64[:,::1], boolean, int64, int64, int64)",
    inline=True,
)
def nested_runs(extent, d, row, depth, loops, consecutive, inner, bits, sector):
    """`simple_runs` where a dim has several loops, without borders."""
    sizes, numbers = np.empty(depth + 2, np.int64), np.empty(depth + 2, np.int64)
    taken = 0
    for i in range(pieces(extent, d, row, depth, loops, sizes, numbers)):
        taken += tile_bits(sizes[i], consecutive or sizes[i] == 1, inner, bits, sector) * numbers[i]
    return extent, taken


@kernel(
    "UniTuple(int64, 2)(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64, int64, int64)",
    borrows=True,
)
def simple_runs(axes, x, row, depth, loops, extents, inner, bits, sector):
    """Elements of a simple axis and bits in whole sectors, summed over its tiles."""
    d, inside, step = axes[x, AXIS_D0], axes[x, AXIS_A], axes[x, AXIS_B]
    extent = extents[d]
    along, taken = 0, 0
    if inside < extent:  # borders: only the points between them
        begin = 0
        while begin < extent:
            end = piece_end(begin, extent, d, row, depth, loops)
            here = points_between(axes, x, begin, end)
            along += here
            taken += tile_bits(here, abs(step) == 1 or here == 1, inner, bits, sector)
            begin = end
        return along, taken
    consecutive = abs(step) <= 1
    cut, found = extent, 0
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == d:
            cut = loops[row[j], LOOP_STEP]
            found += 1
    if found > 1:
        return nested_runs(extent, d, row, depth, loops, consecutive, inner, bits, sector)
    taken = extent // cut * tile_bits(cut, consecutive or cut == 1, inner, bits, sector)
    left = extent % cut
    return extent, taken + tile_bits(left, consecutive or left == 1, inner, bits, sector)


@kernel(
    "UniTuple(int64, 2)(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64, int64, int64)",
    borrows=True,
)
def window_runs(axes, x, row, depth, loops, extents, inner, bits, sector):
    """Elements of a window axis and bits in whole sectors, summed over all pairs of its tiles."""
    p_dim, r_dim = axes[x, AXIS_D0], axes[x, AXIS_D1]
    stride, dilation, offset, size = axes[x, AXIS_A], axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N]
    along, taken = 0, 0
    p = 0
    while p < extents[p_dim]:
        p_end = piece_end(p, extents[p_dim], p_dim, row, depth, loops)
        r = 0
        while r < extents[r_dim]:
            r_end = piece_end(r, extents[r_dim], r_dim, row, depth, loops)
            if axes[x, AXIS_KIND] == ROLLING:  # what the tiles before it had is there
                here = window_elements(0, p_end, r, r_end, stride, dilation, offset, size)
                here -= window_elements(0, p, r, r_end, stride, dilation, offset, size)
            else:
                here = window_elements(p, p_end, r, r_end, stride, dilation, offset, size)
            span = (p_end - p - 1) * stride + (r_end - r - 1) * dilation + 1
            dense = window_span(p_end - p, r_end - r, stride, dilation) == span
            along += here
            taken += tile_bits(here, dense, inner, bits, sector)
            r = r_end
        p = p_end
    return along, taken


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64, int64,"
    " int64, int64)",
    borrows=True,
)
def sectored_bits(acc, axes, ten, a, row, depth, loops, extents, level, elements, bits, sector):
    """Bits in whole sectors of the tiles of access `a` at `depth` that move `elements` elements of `bits` bits in all.

    Along the last axis that a loop cuts, a tile's elements are one run where they are consecutive, else each is
    a run; the whole axes behind it lengthen every run. Other axes and other loops repeat the runs. ``level`` is the
    pair of levels that they cross.
    """
    if acc[a, ACC_FIXED] >= 0 or ten[acc[a, ACC_TENSOR], TEN_HOME] > level:  # one run
        return rounded(elements, bits, sector)
    inner = 1
    for x in range(acc[a, ACC_AXES_END] - 1, acc[a, ACC_AXES] - 1, -1):
        whole = whole_axis(axes, x, row, depth, loops, extents)
        if whole > 0:
            inner *= whole
            continue
        if axes[x, AXIS_KIND] == SIMPLE:
            along, taken = simple_runs(axes, x, row, depth, loops, extents, inner, bits, sector)
        elif axes[x, AXIS_KIND] == INDIRECT:
            along = indirect_sum(axes, x, row, depth, loops, extents)
            taken = tile_bits(along, False, inner, bits, sector)
        else:
            along, taken = window_runs(axes, x, row, depth, loops, extents, inner, bits, sector)
        return taken * (elements // (along * inner)) if along > 0 else 0
    return rounded(inner, bits, sector) * (elements // inner)
