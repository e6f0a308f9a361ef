"""Kernels: how an operand's tiles lie in memory: contiguous runs, and the whole sectors that they take.

Knows the arrays of one nest (columns in `sweep.py`); knows no machine but the bits of a sector. The law is in
docs/loop-tree.md, section 4, "Outside the buffer".
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .bands import even_reach, even_step, floor_sum, keys_seen, queries_seeing
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    AXIS_A,
    AXIS_B,
    AXIS_C,
    AXIS_D0,
    AXIS_D1,
    AXIS_KIND,
    AXIS_N,
    INDIRECT,
    LOOP_DIM,
    LOOP_SPLIT,
    LOOP_STEP,
    OP_BAND,
    OP_KEY,
    OP_OFFSET,
    OP_QUERY,
    OP_SPLIT,
    OP_TREE,
    OP_WINDOW,
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
    "int64(int64, int64, int64, int64, int64[::1], int64, int64[:,::1], boolean, int64, int64, int64)",
    borrows=True,
)
def line_bits(begin, end, d, extent, row, depth, loops, consecutive, inner, bits, sector):
    """Bits in whole sectors of the elements ``[begin, end)`` along dim `d`, cut by its loops among ``row[:depth]``."""
    step = even_step(extent, d, row, depth, loops)
    taken = 0
    if step > 0 and (end - 1) // step > begin // step + 1:  # pieces between the first and the last are whole
        whole = (end - 1) // step - begin // step - 1
        taken += whole * tile_bits(step, consecutive or step == 1, inner, bits, sector)
        last = (end - 1) // step * step
        taken += tile_bits(end - last, consecutive or end - last == 1, inner, bits, sector)
        end = (begin // step + 1) * step
    while begin < end:
        to = min(end, piece_end(begin, extent, d, row, depth, loops))
        taken += tile_bits(to - begin, consecutive or to - begin == 1, inner, bits, sector)
        begin = to
    return taken


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)", borrows=True)
def residue_bits(first, step, count, divisor, inner, bits, sector):
    """Bits in whole sectors of runs of ``(first + i step) % divisor`` elements, over ``0 <= i < count``."""
    if count <= 0:
        return 0
    if step == 1:  # of r elements: the sectors of all shorter runs are a sum of floors
        one = inner * bits
        start = first % divisor
        laps, rest = (start + count) // divisor, (start + count) % divisor
        total = laps * floor_sum(divisor, sector, one, sector - 1) + floor_sum(rest, sector, one, sector - 1)
        return (total - floor_sum(start, sector, one, sector - 1)) * sector
    a, b = divisor, step % divisor
    while b:
        a, b = b, a % b
    period = divisor // a
    total = 0
    for i in range(min(period, count)):
        times = count // period + (i < count % period)
        total += times * rounded((first + i * step) % divisor * inner, bits, sector)
    return total


@kernel("int64(int64, int64, int64, int64, int64, int64)", borrows=True)
def span_bits(begin, end, cut, inner, bits, sector):
    """Bits in whole sectors of the elements ``[begin, end)`` cut at multiples of `cut`, each piece one run."""
    if end <= begin:
        return 0
    if (end - 1) // cut == begin // cut:
        return rounded((end - begin) * inner, bits, sector)
    whole = end // cut - -(-begin // cut)
    taken = whole * rounded(cut * inner, bits, sector) + rounded(-begin % cut * inner, bits, sector)
    return taken + rounded(end % cut * inner, bits, sector)


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)", borrows=True)
def even_bits(size, extent, cut, other, low, high, inner, bits, sector):
    """`span_bits` of ``[a + low, b + high)``, at most ``[0, other)``, over the pieces [a, b) of `size` of an extent.

    What is left of a piece at either end depends on its place modulo `cut`, and comes again.
    """
    count = -(-extent // size) - 1
    a = count * size  # the last one alone: it may be smaller
    taken = span_bits(max(0, a + low), min(other, extent + high), cut, inner, bits, sector)
    # Of the others those that meet any (as in `bands.boxes_met`).
    start = max(0, -((size + high - 1) // size))
    stop = min(count, -((low - other) // size))
    if stop <= start:
        return taken
    full = min(stop, max(start, -((size + high - other) // size)))  # from here on they reach the end
    inside = min(stop, max(start, -(low // size)))  # from here on they begin inside
    one = rounded(cut * inner, bits, sector)
    whole = floor_sum(full - start, cut, size, (start + 1) * size + high) + (stop - full) * (other // cut)
    whole -= floor_sum(stop - inside, cut, size, inside * size + low + cut - 1)
    taken += whole * one
    taken += residue_bits((start + 1) * size + high, size, full - start, cut, inner, bits, sector)
    taken += (stop - full) * rounded(other % cut * inner, bits, sector)
    # From the last one backwards: their distances from the next cut.
    taken += residue_bits(-((stop - 1) * size + low), size, stop - inside, cut, inner, bits, sector)
    # Those that lie between two cuts were taken for a piece on either side of one.
    span = size + high - low
    if span < cut and inside < full:
        g, b = cut, size % cut
        while b:
            g, b = b, g % b
        period = cut // g
        for i in range(min(period, full - inside)):
            begin = ((inside + i) * size + low) % cut
            if begin > 0 and begin + span < cut:
                times = (full - inside) // period + (i < (full - inside) % period)
                both = rounded((cut - begin) * inner, bits, sector) + rounded(
                    (begin + span) * inner, bits, sector
                )
                taken += times * (rounded(span * inner, bits, sector) + one - both)
    last = other // cut * cut
    i = max(inside, full, -((low - last - 1) // size))  # behind the last cut, up to the end
    while i < stop:
        begin = i * size + low
        if begin > last and begin % cut > 0:
            both = rounded(-begin % cut * inner, bits, sector) + rounded(other % cut * inner, bits, sector)
            taken += rounded((other - begin) * inner, bits, sector) + one - both
        i += 1
    return taken


@kernel(
    "boolean(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64, int64[::1], int64, int64[:,::1], int64[::1],"
    " boolean)",
    borrows=True,
)
def is_whole_band(ops, acc, axes, a, x, row, depth, loops, extents, uncut):
    """Whether axis `x` over a dim of a band is whole: one box has all of the tensor's, and `a` touches one of both."""
    o = acc[a, ACC_OPERATOR]
    q, k, d = ops[o, OP_QUERY], ops[o, OP_KEY], axes[x, AXIS_D0]
    other = k if d == q else q
    if acc[a, ACC_TOUCH] >> other & 1 or axes[x, AXIS_N] != axes[x, AXIS_A]:
        return False
    if even_step(extents[d], d, row, depth, loops) != extents[d]:
        return False
    if even_step(extents[other], other, row, 0 if uncut else depth, loops) != extents[other]:
        return False
    if d == k:
        first, end = keys_seen(ops, o, 0, extents[q], 0, extents[k])
    else:
        first, end = queries_seeing(ops, o, 0, extents[q], 0, extents[k])
    return end - first == extents[d]


@kernel(
    "UniTuple(int64, 2)(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64, int64[::1], int64, int64[:,::1],"
    " int64[::1], boolean, boolean, int64, int64, int64)",
    borrows=True,
)
def band_runs(ops, acc, axes, a, x, row, depth, loops, extents, uncut, parts, inner, bits, sector):
    """Elements of axis `x` over a dim of a band and bits in whole sectors, summed over the boxes.

    ``uncut``: no loop cuts a dim of the band that the access does not touch. ``parts``: a box counts once for each core
    that shares its sums and has a point of it.
    """
    o, d = acc[a, ACC_OPERATOR], axes[x, AXIS_D0]
    q, k = ops[o, OP_QUERY], ops[o, OP_KEY]
    other = k if d == q else q
    consecutive = abs(axes[x, AXIS_B]) <= 1
    along, taken = 0, 0
    shared = -1
    if parts and ops[o, OP_SPLIT]:
        for j in range(depth, ops[o, OP_TREE]):
            if loops[row[j], LOOP_DIM] == other and loops[row[j], LOOP_SPLIT] > 1:
                shared = row[j]
    if shared >= 0:  # no loop over the other dim stands outside
        begin = 0
        while begin < extents[d]:
            end = piece_end(begin, extents[d], d, row, depth, loops)
            if d == q:
                first, last = keys_seen(ops, o, begin, end, 0, extents[k])
                low, high = queries_seeing(ops, o, begin, end, 0, extents[k])
            else:
                first, last = queries_seeing(ops, o, 0, extents[q], begin, end)
                low, high = keys_seen(ops, o, 0, extents[q], begin, end)
            if last > first:
                step = loops[shared, LOOP_STEP]
                times = min(loops[shared, LOOP_SPLIT], (last - 1) // step - first // step + 1)
                along += times * (high - low)
                taken += times * tile_bits(high - low, consecutive or high - low == 1, inner, bits, sector)
            begin = end
        return along, taken
    lines = acc[a, ACC_TOUCH] >> other & 1 != 0  # the tile is another one at each index of the other dim
    cut = even_step(extents[d], d, row, depth, loops)
    size = 1 if lines else even_step(extents[other], other, row, 0 if uncut else depth, loops)
    if cut > 0 and size > 0:
        before, after = ops[o, OP_OFFSET] - ops[o, OP_WINDOW] + 1, ops[o, OP_OFFSET]
        if d == q:
            before, after = -ops[o, OP_OFFSET], ops[o, OP_WINDOW] - 1 - ops[o, OP_OFFSET]
        along = even_reach(size, extents[other], extents[d], before, after)
        if consecutive:
            return along, even_bits(size, extents[other], cut, extents[d], before, after, inner, bits, sector)
        return along, along * rounded(inner, bits, sector)
    begin = 0
    while begin < extents[other]:
        end = begin + 1
        if not lines:
            end = piece_end(begin, extents[other], other, row, 0 if uncut else depth, loops)
        if d == k:
            low, high = keys_seen(ops, o, begin, end, 0, extents[k])
        else:
            low, high = queries_seeing(ops, o, 0, extents[q], begin, end)
        along += high - low
        taken += line_bits(low, high, d, extents[d], row, depth, loops, consecutive, inner, bits, sector)
        begin = end
    return along, taken


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1],"
    " int64, int64, int64, int64, boolean)",
    borrows=True,
)
def sectored_bits(
    ops, acc, axes, ten, a, row, depth, loops, extents, level, elements, bits, sector, uncut
):  # fmt: skip
    """Bits in whole sectors of the tiles of access `a` at `depth` that move `elements` elements of `bits` bits in all.

    Along the last axis that a loop cuts, a tile's elements are one run where they are consecutive, else each is
    a run; the whole axes behind it lengthen every run. Other axes and other loops repeat the runs. ``level`` is the
    pair of levels that they cross. ``uncut``: no loop cuts a dim of a band that the access does not touch.
    """
    if acc[a, ACC_FIXED] >= 0 or ten[acc[a, ACC_TENSOR], TEN_HOME] > level:  # one run
        return rounded(elements, bits, sector)
    inner = 1
    for x in range(acc[a, ACC_AXES_END] - 1, acc[a, ACC_AXES] - 1, -1):
        banded = (
            axes[x, AXIS_KIND] == SIMPLE and ops[acc[a, ACC_OPERATOR], OP_BAND] >> axes[x, AXIS_D0] & 1 != 0
        )
        whole = 0 if banded else whole_axis(axes, x, row, depth, loops, extents)
        if banded and is_whole_band(ops, acc, axes, a, x, row, depth, loops, extents, uncut):
            whole = axes[x, AXIS_A]
        if whole > 0:
            inner *= whole
            continue
        if banded:
            parts = acc[a, ACC_WRITE] != 0 and level == 0 and not uncut
            along, taken = band_runs(
                ops, acc, axes, a, x, row, depth, loops, extents, uncut, parts, inner, bits, sector
            )
        elif axes[x, AXIS_KIND] == SIMPLE:
            along, taken = simple_runs(axes, x, row, depth, loops, extents, inner, bits, sector)
        elif axes[x, AXIS_KIND] == INDIRECT:
            along = indirect_sum(axes, x, row, depth, loops, extents)
            taken = tile_bits(along, False, inner, bits, sector)
        else:
            along, taken = window_runs(axes, x, row, depth, loops, extents, inner, bits, sector)
        return taken * (elements // (along * inner)) if along > 0 else 0
    return rounded(inner, bits, sector) * (elements // inner)
