"""Kernels: how loops cut the points of a band into boxes, and what operands have in them (docs/loop-tree.md, 2).

Knows arrays only; their columns are named in `sweep.py`. A box is a piece of the band's queries by a piece of its
keys. Counts are int64.
"""

from __future__ import annotations

from ..compiled import kernel
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    AXIS_D0,
    AXIS_KIND,
    LOOP_DIM,
    LOOP_SPLIT,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_BAND,
    OP_FEWEST,
    OP_KEY,
    OP_OFFSET,
    OP_QUERY,
    OP_WINDOW,
    SIMPLE,
    axis_sum,
    iterations,
    piece_end,
    step_of,
)


@kernel("int64(int64, int64, int64, int64[::1], int64, int64[:,::1])", borrows=True)
def piece_number(x, extent, dim, row, depth, loops):
    """How many pieces of the loops over `dim` among ``row[:depth]`` end before the one that holds index `x`."""
    low, high, number = 0, extent, 0
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == dim:
            step = loops[row[j], LOOP_STEP]
            before = (x - low) // step
            number += before * iterations(step, dim, row[j + 1 :], depth - j - 1, loops)
            low += before * step
            high = min(high, low + step)
    return number


@kernel("int64(int64, int64, int64[::1], int64, int64[:,::1])", borrows=True)
def even_step(extent, dim, row, depth, loops):
    """The size of the pieces of `dim`, where all but the last are alike; 0 where they are not."""
    size = extent
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == dim:
            size = min(size, loops[row[j], LOOP_STEP])
    for j in range(depth):
        if loops[row[j], LOOP_DIM] == dim and loops[row[j], LOOP_STEP] % size:
            return 0
    return size


@kernel("int64(int64, int64, int64, int64)", borrows=True)
def clamped_sum(first, step, count, most):
    """Sum of ``min(max(0, first + i step), most)`` over ``0 <= i < count``; `step` > 0."""
    rising = min(count, max(0, -(first // step)))  # from here on they are at least 0
    full = min(count, max(rising, -((first - most) // step)))  # and from here on `most`
    terms = full - rising
    return terms * first + step * (rising + full - 1) * terms // 2 + (count - full) * most


@kernel("int64(int64, int64, int64, int64, int64)", borrows=True)
def even_reach(step, extent, most, low, high):
    """`reach_sum` for pieces of `step` out of `extent`, and `most` other indices."""
    count = -(-extent // step)
    ends = clamped_sum(step + high, step, count - 1, most) + min(max(0, extent + high), most)
    return ends - clamped_sum(low, step, count, most)


@kernel("int64(int64, int64, int64, int64, int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def reach_sum(dim, other, low, high, cut, row, depth, loops, extents):
    """Sum over the pieces [a, b) of `dim` of the indices of `other` in ``[a + low, b + high)``.

    `cut` 0: `dim` is one piece whatever the loops.
    """
    extent, most = extents[dim], extents[other]
    reach = depth if cut else 0
    step = even_step(extent, dim, row, reach, loops)
    if step > 0:
        return even_reach(step, extent, most, low, high)
    total = 0
    a = 0
    while a < extent:
        b = piece_end(a, extent, dim, row, reach, loops)
        total += max(0, min(b + high, most) - max(0, a + low))
        a = b
    return total


@kernel("int64(int64, int64)", inline=True, borrows=True)
def ramp(x, most):
    """Sum of ``min(y, most)`` over ``0 < y <= x``."""
    if x <= 0:
        return 0
    if x <= most:
        return x * (x + 1) // 2
    return most * (most + 1) // 2 + (x - most) * most


@kernel("int64(int64, int64, int64, int64, int64)", borrows=True)
def pairs_below(q0, q1, k0, k1, shift):
    """Pairs of ``[q0, q1) x [k0, k1)`` with ``k <= q + shift``."""
    if q1 <= q0 or k1 <= k0:
        return 0
    return ramp(q1 + shift - k0, k1 - k0) - ramp(q0 + shift - k0, k1 - k0)


@kernel("int64(int64, int64, int64, int64, int64, int64)", borrows=True)
def band_points(q0, q1, k0, k1, offset, window):
    """Pairs of ``[q0, q1) x [k0, k1)`` with ``0 <= q + offset - k < window``."""
    return pairs_below(q0, q1, k0, k1, offset) - pairs_below(q0, q1, k0, k1, offset - window)


@kernel("UniTuple(int64, 2)(int64[:,::1], int64, int64, int64, int64, int64)", borrows=True)
def keys_seen(ops, o, q0, q1, k0, k1):
    """First and end of the keys in the box ``[q0, q1) x [k0, k1)`` that `o`'s band leaves some query of it."""
    first = max(k0, q0 + ops[o, OP_OFFSET] - ops[o, OP_WINDOW] + 1)
    return first, max(first, min(k1, q1 + ops[o, OP_OFFSET]))


@kernel("UniTuple(int64, 2)(int64[:,::1], int64, int64, int64, int64, int64)", borrows=True)
def queries_seeing(ops, o, q0, q1, k0, k1):
    """First and end of the queries in the box ``[q0, q1) x [k0, k1)`` that `o`'s band leaves some key of it."""
    first = max(q0, k0 - ops[o, OP_OFFSET])
    return first, max(first, min(q1, k1 + ops[o, OP_WINDOW] - 1 - ops[o, OP_OFFSET]))


@kernel("int64(int64, int64, int64, int64)", borrows=True)
def floor_sum(count, divisor, step, first):
    """Sum of ``(first + i step) // divisor`` over ``0 <= i < count``; none of them is negative.

    Euclid's algorithm on the lattice points under a line (Graham, Knuth, Patashnik, Concrete Mathematics, 3.5).
    """
    total = 0
    while count > 0:
        total += (count - 1) * count // 2 * (step // divisor) + count * (first // divisor)
        step, first = step % divisor, first % divisor
        top = step * count + first
        if top < divisor:
            break
        count, first = top // divisor, top % divisor
        divisor, step = step, divisor
    return total


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64)", borrows=True)
def boxes_met(begin, size, stride, extent, step, other, low, high):
    """Pieces of `step` out of `other` indices that meet ``[a + low, b + high)``, summed over pieces [a, b) of a dim.

    The pieces begin at `begin`, `begin` + `stride`, ... and have `size` indices, the last one what is left of `extent`.
    """
    count = -((begin - extent) // stride) if begin < extent else 0
    total = 0
    if count > 0:  # the last one alone: it may be smaller
        a = begin + (count - 1) * stride
        first, end = max(0, a + low), min(other, min(a + size, extent) + high)
        if end > first:
            total += (end - 1) // step - first // step + 1
        count -= 1
    # Of the others those that meet any: from the first that ends past index 0 to the last that begins before the end.
    start = max(0, -((begin + size + high - 1) // stride))
    stop = min(count, -((begin + low - other) // stride))
    if stop <= start:
        return total
    full = min(
        stop, max(start, -((begin + size + high - other) // stride))
    )  # from here on they reach the end
    total += floor_sum(full - start, step, stride, begin + start * stride + size + high - 1)
    total += (stop - full) * ((other - 1) // step)
    inner = min(stop, max(start, -((begin + low) // stride)))  # from here on they begin inside
    total -= floor_sum(stop - inner, step, stride, begin + inner * stride + low)
    return total + stop - start


@kernel("int64(int64[:,::1], int64, int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def fewest(ops, o, touch, row, depth, loops, extents):
    """At least `band_sum` for any pieces that are at most as large as those of ``row[:depth]``.

    An index is met once per piece that holds one of those it goes with: of n neighbours at least ``ceil(n / piece)``.
    """
    q, k = ops[o, OP_QUERY], ops[o, OP_KEY]
    points = band_points(0, extents[q], 0, extents[k], ops[o, OP_OFFSET], ops[o, OP_WINDOW])
    if touch >> q & 1 and touch >> k & 1:
        return points
    step_q, step_k = step_of(q, row, depth, loops, extents), step_of(k, row, depth, loops, extents)
    total = 0
    if touch >> q & 1:
        for i in range(extents[q]):
            first, end = keys_seen(ops, o, i, i + 1, 0, extents[k])
            total += -((first - end) // step_k)
    elif touch >> k & 1:
        for i in range(extents[k]):
            first, end = queries_seeing(ops, o, 0, extents[q], i, i + 1)
            total += -((first - end) // step_q)
    else:
        total = -(-points // (step_q * step_k))
    return total


@kernel("int64(int64[:,::1], int64, int64, int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def band_sum(ops, o, touch, cut, row, depth, loops, extents):
    """Elements along the dims of operator `o`'s band, summed over the boxes that ``row[:depth]`` cuts them into.

    `touch`: the dims that the operand touches; none: the boxes with a point. `cut`: dims whose loops count.
    """
    q, k, offset, window = ops[o, OP_QUERY], ops[o, OP_KEY], ops[o, OP_OFFSET], ops[o, OP_WINDOW]
    if ops[o, OP_FEWEST]:
        return fewest(ops, o, touch, row, depth, loops, extents)
    if touch >> q & 1:
        if touch >> k & 1:
            return band_points(0, extents[q], 0, extents[k], offset, window)
        return reach_sum(k, q, -offset, window - 1 - offset, cut >> k & 1, row, depth, loops, extents)
    if touch >> k & 1:
        return reach_sum(q, k, offset - window + 1, offset, cut >> q & 1, row, depth, loops, extents)
    total = 0
    a = 0
    keys = depth if cut >> k & 1 else 0
    step = even_step(extents[k], k, row, keys, loops)
    rows = even_step(extents[q], q, row, depth if cut >> q & 1 else 0, loops)
    if step > 0 and rows > 0:
        return boxes_met(0, rows, rows, extents[q], step, extents[k], offset - window + 1, offset)
    while a < extents[q]:
        b = piece_end(a, extents[q], q, row, depth if cut >> q & 1 else 0, loops)
        first, end = max(0, a + offset - window + 1), min(extents[k], b + offset)
        if end > first and step > 0:
            total += (end - 1) // step - first // step + 1
        elif end > first:
            total += piece_number(end - 1, extents[k], k, row, keys, loops) + 1
            total -= piece_number(first, extents[k], k, row, keys, loops)
        a = b
    return total


@kernel("int64(int64[:,::1], int64, int64, int64[::1], int64, int64, int64[:,::1], int64[::1])", borrows=True)
def band_parts(ops, o, touch, row, depth, tree, loops, extents):
    """`band_sum`, each box as often as cores that share its sums (over a loop in ``row[depth:tree]``) have a point."""
    band = ops[o, OP_BAND] & ~touch
    for j in range(depth, tree):
        shared, step, cores = loops[row[j], LOOP_DIM], loops[row[j], LOOP_STEP], loops[row[j], LOOP_SPLIT]
        if cores == 1 or not band >> shared & 1:
            continue
        offset, window = ops[o, OP_OFFSET], ops[o, OP_WINDOW]
        other, low, high = ops[o, OP_QUERY], offset - window + 1, offset
        if shared == other:
            other, low, high = ops[o, OP_KEY], -offset, window - 1 - offset
        total = 0
        a = 0
        while a < extents[other]:
            b = piece_end(a, extents[other], other, row, depth, loops)
            first, end = max(0, a + low), min(extents[shared], b + high)
            if end > first:
                # Indices of the other dim that meet any of the shared one.
                held = min(b, extents[shared] - low) - max(a, -high) if touch >> other & 1 else 1
                total += held * min(cores, (end - 1) // step - first // step + 1)
            a = b
        return total
    return band_sum(ops, o, touch, -1, row, depth, loops, extents)


@kernel(
    "int64(int64[:,::1], int64, int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64[:,::1], int64[::1])",
    borrows=True,
)
def beside_band(ops, o, acc, a, axes, row, depth, loops, extents):
    """`swept` over the axes of access `a` that its operator's band has nothing to do with."""
    total = 1
    for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
        if axes[x, AXIS_KIND] != SIMPLE or not ops[o, OP_BAND] >> axes[x, AXIS_D0] & 1:
            total *= axis_sum(axes, x, row, depth, loops, extents)
    return total


@kernel("float64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1])", borrows=True)
def runs_of(ops, o, row, depth, loops, extents):
    """How often the loops ``row[:depth]`` of operator `o`, one per dim, bring it another iteration."""
    total = 1.0
    band = ops[o, OP_BAND]
    cut = False
    for j in range(depth):
        if band >> loops[row[j], LOOP_DIM] & 1:
            cut = True
        else:
            total *= loops[row[j], LOOP_TRIPS]
    return total * band_sum(ops, o, 0, -1, row, depth, loops, extents) if cut else total
