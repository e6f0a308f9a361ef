"""Kernels: the boxes of a band at the loops' current iterations, and which of them the busiest core walks.

Knows arrays only (columns in `sweep.py`). The laws are in docs/loop-tree.md, sections 2 and 5.
"""

from __future__ import annotations

from ..compiled import kernel
from .bands import band_points, keys_seen, queries_seeing
from .sweep import (
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_BAND,
    OP_KEY,
    OP_OFFSET,
    OP_QUERY,
    OP_TREE,
    OP_WINDOW,
)


@kernel("UniTuple(int64, 2)(int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])", borrows=True)
def span_of(dim, row, depth, loops, place, extents):
    """Start and length of the tile along `dim` at the loops' current iterations."""
    for j in range(depth):
        loop = row[j]
        if loops[loop, LOOP_DIM] == dim:
            start = place[loop] * loops[loop, LOOP_STEP]
            return start, min(loops[loop, LOOP_STEP], extents[dim] - start)
    return 0, extents[dim]


@kernel(
    "UniTuple(int64, 4)(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def box_of(ops, o, row, depth, loops, place, extents):
    """The box of operator `o`'s band at the loops' current iterations: first and end of its queries, of its keys."""
    q, queries = span_of(ops[o, OP_QUERY], row, depth, loops, place, extents)
    k, keys = span_of(ops[o, OP_KEY], row, depth, loops, place, extents)
    return q, q + queries, k, k + keys


@kernel("int64(int64[:,::1], int64, int64, UniTuple(int64, 4))", borrows=True)
def box_elements(ops, o, touch, box):
    """Elements along the dims of a band that an access of operator `o` has in a box; 1 or 0 where it touches none."""
    q0, q1, k0, k1 = box
    if touch >> ops[o, OP_QUERY] & 1:
        if touch >> ops[o, OP_KEY] & 1:
            return band_points(q0, q1, k0, k1, ops[o, OP_OFFSET], ops[o, OP_WINDOW])
        first, end = queries_seeing(ops, o, q0, q1, k0, k1)
        return end - first
    first, end = keys_seen(ops, o, q0, q1, k0, k1)
    return end - first if touch >> ops[o, OP_KEY] & 1 else int(end > first)


@kernel("float64(int64[:,::1], int64, int64, UniTuple(int64, 4), UniTuple(int64, 4))", borrows=True)
def part_in(ops, o, touch, box, other):
    """The part of an access's elements in `box` that it has in the box `other` too; it touches one dim of the band."""
    if touch >> ops[o, OP_QUERY] & 1:
        first, end = queries_seeing(ops, o, box[0], box[1], box[2], box[3])
        low, high = queries_seeing(ops, o, other[0], other[1], other[2], other[3])
    else:
        first, end = keys_seen(ops, o, box[0], box[1], box[2], box[3])
        low, high = keys_seen(ops, o, other[0], other[1], other[2], other[3])
    return max(0, min(end, high) - max(first, low)) / max(1, end - first)


@kernel(
    "UniTuple(float64, 2)(int64[:,::1], int64, int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def parts_beside(ops, o, touch, row, depth, loops, place, extents):
    """The parts of a banded access's tile that boxes before, and after, along the dim it does not touch have too.

    They are 0 where it touches both dims or none, or the other one is not cut among ``row[:depth]``.
    """
    band = ops[o, OP_BAND]
    if touch & band == 0 or touch & band == band:
        return 0.0, 0.0
    q0, q1, k0, k1 = box_of(ops, o, row, depth, loops, place, extents)
    box = (q0, q1, k0, k1)
    queries, keys = extents[ops[o, OP_QUERY]], extents[ops[o, OP_KEY]]
    before, after = (0, q0, k0, k1), (q1, queries, k0, k1)
    if touch >> ops[o, OP_QUERY] & 1:
        before, after = (q0, q1, 0, k0), (q0, q1, k1, keys)
    earlier, later = 0.0, 0.0
    if before[1] > before[0] and before[3] > before[2]:
        earlier = part_in(ops, o, touch, box, before)
    if after[1] > after[0] and after[3] > after[2]:
        later = part_in(ops, o, touch, box, after)
    return earlier, later


@kernel(
    "UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64[:,::1], int64[:,::1], int64[::1])",
    borrows=True,
)
def fullest_core(loop, o, cores, begin, size, stride, ops, loops, extents):
    """Of the cores that share the iterations of `loop` in turn the first with most points of a band; its points.

    Along the other dim of the band those count that lie in the pieces of `size` from `begin`, `begin` + `stride`, ...
    """
    d, step = loops[loop, LOOP_DIM], loops[loop, LOOP_STEP]
    queries = d == ops[o, OP_QUERY]
    other = extents[ops[o, OP_KEY]] if queries else extents[ops[o, OP_QUERY]]
    best, most = 0, -1
    for core in range(cores):
        points = 0
        for low in range(core * step, extents[d], cores * step):
            high = min(low + step, extents[d])
            for a in range(begin, other, stride):
                b = min(a + size, other)
                q0, q1, k0, k1 = (low, high, a, b) if queries else (a, b, low, high)
                points += band_points(q0, q1, k0, k1, ops[o, OP_OFFSET], ops[o, OP_WINDOW])
        if points > most:
            best, most = core, points
    return best, most


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    borrows=True,
)
def deal_banded(ops, loops, path, cores, extents, core, stride):
    """Per loop over a dim of a band: which core is the busiest, and among how many.

    Core c has the iterations c, c + stride, ... The inner one of two loops of a band is looked at where the core of the
    outer one has iterations. Of loops that have nothing to do with bands ``stride`` stays 0.
    """
    for o in range(ops.shape[0]):
        leading = True
        outer = -1
        for j in range(ops[o, OP_TREE] if ops[o, OP_BAND] else 0):
            loop = path[o, j]
            d = loops[loop, LOOP_DIM]
            leading = leading and cores[d] > 0
            if not ops[o, OP_BAND] >> d & 1:
                continue
            if stride[loop] == 0:
                stride[loop] = min(cores[d], loops[loop, LOOP_TRIPS]) if leading else 1
                begin, size, step = 0, 1 << 40, 1 << 40  # all of the other dim
                if outer >= 0 and stride[outer] > 1:
                    size = loops[outer, LOOP_STEP]
                    begin, step = core[outer] * size, stride[outer] * size
                if stride[loop] > 1:
                    core[loop] = fullest_core(loop, o, stride[loop], begin, size, step, ops, loops, extents)[
                        0
                    ]
            outer = loop


@kernel(
    "UniTuple(int64, 2)(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def range_of(loop, depth, ops, loops, path, place, extents):
    """First and end of the iterations of `loop` in which an operator has a point, `depth` loops standing outside."""
    d, step = loops[loop, LOOP_DIM], loops[loop, LOOP_STEP]
    first, end = loops[loop, LOOP_TRIPS], 0
    for o in range(loops[loop, LOOP_FIRST], loops[loop, LOOP_LAST] + 1):
        if not ops[o, OP_BAND] >> d & 1:
            return 0, loops[loop, LOOP_TRIPS]
        q0, q1, k0, k1 = box_of(ops, o, path[o], depth, loops, place, extents)
        low, high = keys_seen(ops, o, q0, q1, k0, k1)
        if d == ops[o, OP_QUERY]:
            low, high = queries_seeing(ops, o, q0, q1, k0, k1)
        if high > low:
            first, end = min(first, low // step), max(end, (high - 1) // step + 1)
    return first, max(first, end)


@kernel(
    "UniTuple(int64, 2)(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1])",
    borrows=True,
)
def trips_of(loop, depth, ops, loops, path, core, stride, place, extents):
    """The busiest core's first iteration of `loop` in which an operator has a point, and how many it has of them."""
    first, end = range_of(loop, depth, ops, loops, path, place, extents)
    start = core[loop] + max(0, -((core[loop] - first) // stride[loop])) * stride[loop]
    return start, max(0, -((start - end) // stride[loop]))


@kernel(
    "float64(int64, int64, int64, int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])",
    borrows=True,
)
def mean_trips(loop, depth, trips, most, ops, loops, path, state, extents):
    """Of `loop`, which has `trips` iterations now: their mean over what a loop outside stands at one iteration for."""
    at, last, place, low, stride, core = state[1], state[3], state[4], state[5], state[6], state[7]
    o = loops[loop, LOOP_FIRST]
    for j in range(depth - 1, -1, -1):
        outer = path[o, j]
        if stride[outer] == 0:
            continue
        if last[outer] < most or at[outer] != most // 2:
            return float(trips)
        ends, middle = (most - 3) // 2, (last[outer] + 1) // 2
        here, total, count = place[outer], 0, 0
        for i in range(ends, last[outer] + 1 - ends):
            if i not in (middle - 1, middle + 1):
                place[outer] = low[outer] + i * stride[outer]
                total += trips_of(loop, depth, ops, loops, path, core, stride, place, extents)[1]
                count += 1
        place[outer] = here
        return total / count
    return float(trips)


@kernel("void(int64, int64, int64, float64, int64[:,::1], float64[:,::1])", borrows=True)
def show_banded(loop, trips, most, mean, shown, weight):
    """`steps.show` for a loop over a dim of a band, which has `mean` trips where it stands for several: 7 or 5 of them.

    At the ends as without a band, then the middle one between its neighbours: what changes at the ends are not only
    the outermost iterations, and a step's term has the load after it and the store before it.
    """
    count = min(trips, most)
    shown[loop, 0] = count
    weight[loop, 0] = trips
    for i in range(count):
        shown[loop, 1 + i] = i
        weight[loop, 1 + i] = 1.0
    if trips > most:
        ends, middle = (most - 3) // 2, most // 2 + 1
        for i in range(3):
            shown[loop, middle - 1 + i] = trips // 2 - 1 + i
        for i in range(ends):
            shown[loop, most - i] = trips - 1 - i
        weight[loop, middle] = mean - most + 1
        if weight[loop, middle] > 0.0:
            return
        weight[loop, middle] = trips - most + 1
    for i in range(count):
        weight[loop, 1 + i] *= mean / trips
