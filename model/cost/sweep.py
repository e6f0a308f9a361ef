"""Kernels: the columns of a nest's arrays, and how its loops cut dims into pieces and tiles.

Knows arrays only; `layout.py` packs them. The laws are in docs/loop-tree.md, section 2. Counts are int64 elements;
`layout.py` refuses nests whose counts could overflow.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel

# Columns of ``ops`` int64[operators, OP_COLUMNS].
OP_OWN, OP_REDUCED, OP_CONTRACTION, OP_POINTWISE, OP_STATISTICS, OP_RESCALE = 0, 1, 2, 3, 4, 5
OP_FIRST, OP_WRITES, OP_END, OP_TREE = (
    6,
    7,
    8,
    9,
)  # its accesses: reads, then writes; loops of the tree on its path
OP_POINTS = 10  # of its domain
OP_SPLIT = 11  # whether cores share one of its sums
OP_DOMAIN, OP_DOMAIN_END = 12, 13  # axes that stand for two of its dims each; OP_POINTS is of the others
OP_AROUND = 14  # in a search: loops at the head of its path that are given
OP_COLUMNS = 15
# Columns of ``acc`` int64[accesses, ACC_COLUMNS]; accesses are sorted by operator.
ACC_OPERATOR, ACC_TENSOR, ACC_WRITE, ACC_TOUCH, ACC_FIXED, ACC_AXES, ACC_AXES_END, ACC_SHAPE = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
)
ACC_ELEMENTS = 8
ACC_PLAIN, ACC_EARLIER = (
    9,
    10,
)  # all of its axes are simple; the read before it of the same tensor and shape, or -1
# The depth at each pair of levels, ACC_DEPTH0 + pair, stands last: as many columns as there are pairs, at least two.
ACC_DEPTH0, ACC_DEPTH1 = 11, 12
ACC_COLUMNS = 13
# Columns of ``axes`` int64[axes, AXIS_COLUMNS]; kinds and their parameters.
AXIS_KIND, AXIS_D0, AXIS_D1, AXIS_A, AXIS_B, AXIS_C, AXIS_N = 0, 1, 2, 3, 4, 5, 6
AXIS_COLUMNS = 7
SIMPLE, WINDOW, INDIRECT, ROLLING = (
    0,
    1,
    2,
    3,
)  # A: points inside / stride / mask of dims; B: coefficient / dilation; C: offset; N: extent or distinct
# Columns of ``ten`` int64[tensors, TEN_COLUMNS].
TEN_BITS, TEN_PARTIAL, TEN_HOME, TEN_EXPORTED, TEN_ELEMENTS, TEN_PRODUCER, TEN_LAST = 0, 1, 2, 3, 4, 5, 6
TEN_PINNED, TEN_SPILLED = 7, 8
TEN_COLUMNS = 9
# Columns of ``loops`` int64[loops, LOOP_COLUMNS].
LOOP_DIM, LOOP_STEP, LOOP_TRIPS, LOOP_FIRST, LOOP_LAST = 0, 1, 2, 3, 4
LOOP_SPLIT = 5  # cores that share the sums over it; read where OP_SPLIT says so
LOOP_COLUMNS = 6
# A home is the number of its level, counted from the outermost one; the registers are inside any buffer. A tensor
# crosses the pair of levels `level`, `level` + 1 where its home is at most `level`.
HOME_OUTER, HOME_BUFFER, HOME_REGISTERS = 0, 1, 64
# Columns of the result ``counts`` int64[pairs of levels, accesses, 4].
READS, WRITES, PARTIAL_READS, PARTIAL_WRITES = 0, 1, 2, 3
# Rows of the workspace int64[WORK_ROWS, accesses or operators + 2]; two rows more per pair of levels beyond two.
W_LEADER, W_TILE0, W_BYTES0, W_SKIP, W_LENGTH, W_TREE, W_LIVE, W_SAVED, W_FOREIGN, W_LAST = range(10)
W_EFFECTIVE0, W_DEPTH0, W_EFFECTIVE1, W_DEPTH1 = 10, 11, 12, 13
W_PAIR = 2  # rows from the depths of one pair of levels to those of the next
WORK_ROWS = 14


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", borrows=True)
def points_inside(p0, p1, r0, r1, stride, dilation, offset, extent):
    """Pairs (p, r) of the rectangle with ``0 <= p*stride + r*dilation + offset < extent``."""
    total = 0
    if p1 <= p0 or r1 <= r0:
        return 0
    if p0 * stride + r0 * dilation + offset >= 0 and (
        (p1 - 1) * stride + (r1 - 1) * dilation + offset < extent
    ):  # far from the borders
        return (p1 - p0) * (r1 - r0)
    if r1 - r0 <= p1 - p0:
        for r in range(r0, r1):
            base = r * dilation + offset
            low = max(p0, -(base // stride))
            high = min(p1 - 1, (extent - 1 - base) // stride)
            if high >= low:
                total += high - low + 1
    else:
        for p in range(p0, p1):
            base = p * stride + offset
            low = max(r0, -(base // dilation))
            high = min(r1 - 1, (extent - 1 - base) // dilation)
            if high >= low:
                total += high - low + 1
    return total


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", borrows=True)
def window_elements(p0, p1, r0, r1, stride, dilation, offset, extent):
    """Distinct elements that a window tile touches inside the axis.

    Two pairs name one element where they differ by a multiple of (d', -s'), s' and d' being stride and dilation
    over their greatest common divisor. Each such chain has one pair without a predecessor in the rectangle.
    """
    a, b = stride, dilation
    while b:
        a, b = b, a % b
    jump_p, jump_r = dilation // a, stride // a
    total = points_inside(p0, p1, r0, r1, stride, dilation, offset, extent)
    if p1 - p0 > jump_p and r1 - r0 > jump_r:
        total -= points_inside(p0 + jump_p, p1, r0, r1 - jump_r, stride, dilation, offset, extent)
    return total


@kernel("int64(int64, int64, int64, int64)", borrows=True)
def window_span(p, r, stride, dilation):
    """Distinct elements of a window tile of p by r pairs, borders not seen."""
    a, b = stride, dilation
    while b:
        a, b = b, a % b
    jump_p, jump_r = dilation // a, stride // a
    total = p * r
    if p > jump_p and r > jump_r:
        total -= (p - jump_p) * (r - jump_r)
    return total


@kernel("int64(int64, int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])", borrows=True)
def pieces(extent, dim, row, depth, loops, sizes, numbers):
    """Sizes of the pieces that the loops over `dim` among ``row[:depth]`` cut `extent` into; how many of each."""
    count = 1
    sizes[0] = extent
    numbers[0] = 1
    for j in range(depth):
        if loops[row[j], LOOP_DIM] != dim:
            continue
        step = loops[row[j], LOOP_STEP]
        full = 0
        kept = 0
        for i in range(count):
            size, number = sizes[i], numbers[i]
            full += number * (size // step)
            if size % step:
                sizes[kept] = size % step
                numbers[kept] = number
                kept += 1
        if full:
            sizes[kept] = step
            numbers[kept] = full
            kept += 1
        count = kept
    return count


@kernel("int64(int64, int64, int64[::1], int64, int64[:,::1])")
def iterations(extent, dim, row, depth, loops):
    """Iterations of the loops over `dim` among ``row[:depth]``: the pieces that they cut `extent` into."""
    outer, inner = 0, 0  # the steps that matter so far; 0: none
    for j in range(depth):
        if loops[row[j], LOOP_DIM] != dim:
            continue
        step = loops[row[j], LOOP_STEP]
        if inner > 0 and inner % step > 0:
            if outer > 0:
                break
            outer = inner
        # Else pieces of `step` end wherever those of `inner` end: as if that loop were not there.
        inner = step
    else:
        if inner == 0:
            return 1
        if outer == 0:
            return (extent + inner - 1) // inner
        return extent // outer * ((outer + inner - 1) // inner) + (extent % outer + inner - 1) // inner
    sizes = np.empty(depth + 2, np.int64)
    numbers = np.empty(depth + 2, np.int64)
    count = pieces(extent, dim, row, depth, loops, sizes, numbers)
    total = 0
    for i in range(count):
        total += numbers[i]
    return total


@kernel("int64(int64, int64, int64, int64[::1], int64, int64[:,::1])", borrows=True)
def piece_end(x, extent, dim, row, depth, loops):
    """Where the piece that holds index `x` ends."""
    low, high = 0, extent
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == dim:
            step = loops[row[j], LOOP_STEP]
            low += (x - low) // step * step
            high = min(high, low + step)
    return high


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def window_sum(axes, x, row, depth, loops, extents):
    """Elements of window axis `x` summed over all pairs of its tiles."""
    p_dim, r_dim = axes[x, AXIS_D0], axes[x, AXIS_D1]
    p_extent, r_extent = extents[p_dim], extents[r_dim]
    total = 0
    p = 0
    while p < p_extent:
        p_end = piece_end(p, p_extent, p_dim, row, depth, loops)
        r = 0
        while r < r_extent:
            r_end = piece_end(r, r_extent, r_dim, row, depth, loops)
            total += window_elements(
                p, p_end, r, r_end, axes[x, AXIS_A], axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N]
            )
            r = r_end
        p = p_end
    return total


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])")
def indirect_sum(axes, x, row, depth, loops, extents):
    """Elements of indirect axis `x` summed over all its tiles: min(product of the tile, distinct) each."""
    # One list of (product, number) is extended dim by dim.
    room = 1
    mask = axes[x, AXIS_A]
    for d in range(extents.size):
        if mask >> d & 1:
            room *= depth + 2
    sizes = np.empty(room, np.int64)
    numbers = np.empty(room, np.int64)
    new_sizes = np.empty(room, np.int64)
    new_numbers = np.empty(room, np.int64)
    one_size = np.empty(depth + 2, np.int64)
    one_number = np.empty(depth + 2, np.int64)
    count = 1
    sizes[0] = 1
    numbers[0] = 1
    for d in range(extents.size):
        if not mask >> d & 1:
            continue
        ways = pieces(extents[d], d, row, depth, loops, one_size, one_number)
        kept = 0
        for i in range(count):
            for j in range(ways):
                new_sizes[kept] = sizes[i] * one_size[j]
                new_numbers[kept] = numbers[i] * one_number[j]
                kept += 1
        count = kept
        for i in range(count):
            sizes[i] = new_sizes[i]
            numbers[i] = new_numbers[i]
    total = 0
    for i in range(count):
        total += min(sizes[i], axes[x, AXIS_N]) * numbers[i]
    return total


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def axis_sum(axes, x, row, depth, loops, extents):
    """Elements of axis `x` summed over its tiles among ``row[:depth]``; a rolling window has each element once."""
    kind = axes[x, AXIS_KIND]
    if kind == SIMPLE:
        return axes[x, AXIS_A]
    if kind == WINDOW:
        return window_sum(axes, x, row, depth, loops, extents)
    if kind == ROLLING:
        return window_elements(
            0, extents[axes[x, AXIS_D0]], 0, extents[axes[x, AXIS_D1]],
            axes[x, AXIS_A], axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N],
        )  # fmt: skip
    return indirect_sum(axes, x, row, depth, loops, extents)


@kernel("int64(int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def swept(acc, a, axes, row, depth, loops, extents):
    """Elements of access `a` summed over the iterations of the loops that touch it, among ``row[:depth]``."""
    total = 1
    for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
        total *= axis_sum(axes, x, row, depth, loops, extents)
    return total


@kernel("int64(int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def nested_repeats(mask, row, depth, loops, extents):
    """`repeats` where a dim has several loops."""
    total = 1
    seen = 0
    for j in range(depth):
        d = loops[row[j], LOOP_DIM]
        bit = 1 << d
        if mask & bit and not seen & bit:
            seen |= bit
            total *= iterations(extents[d], d, row, depth, loops)
    return total


@kernel("int64(int64, int64[::1], int64, int64[:,::1], int64[::1])", inline=True, borrows=True)
def repeats(mask, row, depth, loops, extents):
    """Iterations of the loops over the dims of `mask` among ``row[:depth]``."""
    total = 1
    seen = 0
    nested = 0
    for j in range(depth):
        loop = row[j]
        bit = mask & 1 << loops[loop, LOOP_DIM]
        if bit:
            nested |= seen & bit
            seen |= bit
            total *= loops[loop, LOOP_TRIPS]
    if nested:  # the only loop of a dim has its static trips
        total = nested_repeats(mask, row, depth, loops, extents)
    return total


@kernel("int64(int64, int64[::1], int64, int64, int64[:,::1])", borrows=True)
def sharers(sums, row, begin, end, loops):
    """Cores that share the sums over dims of the mask `sums` whose loops stand in ``row[begin:end]``."""
    total = 1
    for j in range(begin, end):
        if sums >> loops[row[j], LOOP_DIM] & 1:
            total *= loops[row[j], LOOP_SPLIT]
    return total


@kernel("int64(int64, int64[::1], int64, int64[:,::1], int64[::1])", inline=True, borrows=True)
def step_of(dim, row, depth, loops, extents):
    """Full size of the tile along `dim`: the smallest step of its loops among ``row[:depth]``, else the extent."""
    size = extents[dim]
    for j in range(depth):
        loop = row[j]
        if loops[loop, LOOP_DIM] == dim:
            size = min(size, loops[loop, LOOP_STEP])
    return size


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def odd_tile(axes, x, row, depth, loops, extents):
    """Elements of window or indirect axis `x` in the full-size tile at `depth`."""
    if axes[x, AXIS_KIND] != INDIRECT:
        span = window_span(
            step_of(axes[x, AXIS_D0], row, depth, loops, extents),
            step_of(axes[x, AXIS_D1], row, depth, loops, extents),
            axes[x, AXIS_A],
            axes[x, AXIS_B],
        )
        return min(span, axes[x, AXIS_N])
    size = 1
    for d in range(extents.size):
        if axes[x, AXIS_A] >> d & 1:
            size *= step_of(d, row, depth, loops, extents)
    return min(size, axes[x, AXIS_N])


@kernel(
    "int64(int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64[:,::1], int64[::1])",
    inline=True,
    borrows=True,
)
def tile_elements(acc, a, axes, row, depth, loops, extents):
    """Elements of the full-size tile of access `a` at `depth`."""
    total = 1
    for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
        if axes[x, AXIS_KIND] == SIMPLE:
            total *= min(step_of(axes[x, AXIS_D0], row, depth, loops, extents), axes[x, AXIS_A])
        else:
            total *= odd_tile(axes, x, row, depth, loops, extents)
    return total


@kernel("int64(int64, int64[::1], int64, int64[:,::1])", inline=True, borrows=True)
def effective(touch, row, depth, loops):
    """Effective depth r': from `depth` outward past loops that do not touch the tensor or have one static trip."""
    while depth > 0:
        loop = row[depth - 1]
        if touch >> loops[loop, LOOP_DIM] & 1 and loops[loop, LOOP_TRIPS] > 1:
            break
        depth -= 1
    return depth


@kernel("int64(int64[:,::1], int64, int64, int64)", borrows=True)
def points_between(axes, x, begin, end):
    """Points of a simple axis inside it, among indices `begin` to `end` (excluded) of its dim."""
    step, offset, extent = axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N]
    if step > 0:
        low, high = -(offset // step), (extent - 1 - offset) // step
    elif step < 0:
        low, high = -((extent - 1 - offset) // -step), offset // -step
    else:
        low, high = (begin, end) if 0 <= offset < extent else (0, -1)
    return max(0, min(high + 1, end) - max(low, begin))
