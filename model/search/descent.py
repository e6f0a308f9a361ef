"""Kernels: the tiles of least traffic for each shape of a mapping, by branch and bound over boxes of tile sizes.

A *shape* is a loop tree with element loops and a depth for every access; only the tile sizes are open. A box holds all
tiles between a smallest and a largest one. Traffic falls and footprint grows with a tile, so the traffic of the largest
tile and the footprint of the smallest bound a box. What is compared are the exact counts of docs/loop-tree.md: these
kernels know arrays and call the cost room's laws, they hold none of their own.
"""

from __future__ import annotations

from ..compiled import kernel
from ..cost.footprint import buffer_peak
from ..cost.sweep import (
    ACC_DEPTH0,
    ACC_OPERATOR,
    ACC_TENSOR,
    ACC_TOUCH,
    LOOP_DIM,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_STATISTICS,
    OP_TREE,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_BITS,
    TEN_PARTIAL,
    W_EFFECTIVE0,
    WRITES,
    effective,
)
from ..cost.traffic import count_access, prepare

TILED, SINGLE = 0, 1
"""``LOOP_STEP`` of a shape's loops: the tile of its dim, or single elements."""
B_BYTES, B_SHAPE, B_COUNT, B_MOST, B_CUT = 0, 1, 2, 3, 4
"""Columns of ``best``: least bytes so far, their shape, evaluations so far, how many there may be, 1: they ended."""
BEST_COLUMNS = 5
BOXES = 512
"""Boxes that can wait: at most one per halving of every dim. Where they do not suffice the search ends."""

_NEST = "int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1]"


@kernel(
    "void(int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def cut(ops, extents, tile, online, statistics, shape_loops, loops, path):
    """Give the loops of a shape their steps and trips; running statistics where a shared online loop is cut."""
    for i in range(loops.shape[0]):
        d = shape_loops[i, LOOP_DIM]
        if shape_loops[i, LOOP_STEP] == SINGLE:
            loops[i, LOOP_STEP] = 1
            loops[i, LOOP_TRIPS] = tile[d]
        else:
            loops[i, LOOP_STEP] = tile[d]
            loops[i, LOOP_TRIPS] = -(-extents[d] // tile[d])
    for i in range(online.shape[0]):
        ops[online[i, 0], OP_STATISTICS] = 0
    for i in range(online.shape[0]):
        p, q, mask = online[i, 0], online[i, 1], online[i, 2]
        for j in range(min(ops[p, OP_TREE], ops[q, OP_TREE])):
            if path[p, j] != path[q, j]:
                break
            if mask >> loops[path[p, j], LOOP_DIM] & 1 and loops[path[p, j], LOOP_TRIPS] > 1:
                ops[p, OP_STATISTICS] = statistics[p]


@kernel(
    f"int64({_NEST}, int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def moved(ops, acc, axes, ten, extents, loops, path, lengths, counts, points, bits, rows, work):
    """Bytes from and to the outer level, rounded up once per tensor and direction."""
    prepare(ops, acc, axes, ten, extents, loops, path, lengths, 1, 1, points, rows, work)
    for t in range(ten.shape[0]):
        bits[t, 0] = 0
        bits[t, 1] = 0
    for a in range(acc.shape[0]):
        count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, work[W_EFFECTIVE0, a], counts, rows, work)
        t = acc[a, ACC_TENSOR]
        bits[t, 0] += counts[a, READS] * ten[t, TEN_BITS] + counts[a, PARTIAL_READS] * ten[t, TEN_PARTIAL]
        bits[t, 1] += counts[a, WRITES] * ten[t, TEN_BITS] + counts[a, PARTIAL_WRITES] * ten[t, TEN_PARTIAL]
    total = 0
    for t in range(ten.shape[0]):
        total += (bits[t, 0] + 7) // 8 + (bits[t, 1] + 7) // 8
    return total


@kernel(f"int64({_NEST}, int64, int64[::1], int64[:,::1], int64[:,::1])", borrows=True)
def held(ops, acc, axes, ten, extents, loops, path, lengths, stages, points, rows, work):
    """Bytes of the buffer at the peak."""
    prepare(ops, acc, axes, ten, extents, loops, path, lengths, 1, 1, points, rows, work)
    return buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 1, stages, rows, work)


@kernel("boolean(int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1])", borrows=True)
def agrees(acc, twice, loops, path, lengths):
    """Whether for each tensor of `twice` one number of loops says the depth of all its reads, as a plan does.

    It counts the loops of several trips on each path, and stops where a path ends; a read is as deep for any number
    between the loop outside its tile and the next one that touches it.
    """
    for i in range(twice.size):
        low, high = 0, 1 << 62
        for a in range(acc.shape[0]):
            if acc[a, ACC_TENSOR] != twice[i]:
                continue
            o = acc[a, ACC_OPERATOR]
            touch = acc[a, ACC_TOUCH]
            inside = effective(touch, path[o], acc[a, ACC_DEPTH0], loops)
            number = 0
            for j in range(lengths[o]):
                cuts = loops[path[o, j], LOOP_TRIPS] > 1
                if j == inside:
                    low = max(low, number)
                if j >= inside and cuts and touch >> loops[path[o, j], LOOP_DIM] & 1:
                    high = min(high, number)
                    break
                number += cuts
            if inside == lengths[o]:
                low = max(low, number)
        if low > high:
            return False
    return True


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[::1], int64[::1])",
    borrows=True,
)
def take(ops, acc, loops, path, lengths, shape_loops, shape_path, shape_lengths, shape_tree, depths):
    """Copy one shape to where the laws read it."""
    for i in range(loops.shape[0]):
        for j in range(loops.shape[1]):
            loops[i, j] = shape_loops[i, j]
    for o in range(ops.shape[0]):
        ops[o, OP_TREE] = shape_tree[o]
        lengths[o] = shape_lengths[o]
        for j in range(path.shape[1]):
            path[o, j] = shape_path[o, j]
    for a in range(acc.shape[0]):
        acc[a, ACC_DEPTH0] = depths[a]


@kernel(
    f"void({_NEST}, int64[:,::1], int64[::1], int64[:,:,::1], int64[:,:,::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64, int64[::1],"
    " int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])",
    borrows=True,
)
def probe(
    ops, acc, axes, ten, extents, loops, path, lengths, online, statistics, shape_loops, shape_path, shape_lengths,
    shape_tree, nest_of, depths, sizes, number, capacity, stages, seen, counts, points, bits, rows, work, trial,
):  # fmt: skip
    """Bytes that each shape moves with the largest tile of equal sides that fits, into `seen`; 2**62 where none fits.

    Parameters as of `descend`.
    """
    most = 0
    for d in range(extents.size):
        most = max(most, sizes[d, number[d] - 1])
    for s in range(nest_of.size):
        n = nest_of[s]
        take(
            ops,
            acc,
            loops,
            path,
            lengths,
            shape_loops[n],
            shape_path[n],
            shape_lengths[n],
            shape_tree[n],
            depths[s],
        )
        seen[s] = 1 << 62
        side = 1
        while side < 2 * most:
            for d in range(extents.size):
                trial[d] = sizes[d, 0]
                for i in range(number[d]):
                    if sizes[d, i] <= side:
                        trial[d] = sizes[d, i]
            cut(ops, extents, trial, online, statistics, shape_loops[n], loops, path)
            if (
                held(ops, acc, axes, ten, extents, loops, path, lengths, stages, points, rows, work)
                > capacity
            ):
                break
            seen[s] = moved(
                ops, acc, axes, ten, extents, loops, path, lengths, counts, points, bits, rows, work
            )
            side *= 2


@kernel(
    f"void({_NEST}, int64[:,::1], int64[::1], int64[:,:,::1], int64[:,:,::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64, int64, int64[::1],"
    " int64[::1],"
    " int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], int64[::1])",
    borrows=True,
)
def descend(
    ops, acc, axes, ten, extents, loops, path, lengths, online, statistics, shape_loops, shape_path, shape_lengths,
    shape_tree, nest_of, depths, twice, order, sizes, number, capacity, stages, best, tile,
    counts, points, bits, rows, work, boxes, trial,
):  # fmt: skip
    """Improve `best` and `tile` over all shapes, in this order; stop where the evaluations are used up.

    Parameters
    ----------
    loops, path, lengths : of the shape at hand, filled here.
    shape_loops, shape_path, shape_lengths, shape_tree : per nest its loops (``LOOP_STEP`` says which kind), the paths,
        their lengths, and how many of each are tile loops.
    nest_of, depths : per shape its nest, and the depth of each access; ``order`` the shapes, promising ones first.
    twice : tensors from outside that are read more than once.
    sizes, number : per dim the sizes that a tile may have, ascending, and how many.
    best, tile : results; ``best[B_BYTES]`` is what must be undercut.
    boxes : workspace int64[BOXES, 2, dims]: smallest and largest size by index; `trial` int64[dims].
    """
    dims = extents.size
    for s in order:
        n = nest_of[s]
        take(
            ops,
            acc,
            loops,
            path,
            lengths,
            shape_loops[n],
            shape_path[n],
            shape_lengths[n],
            shape_tree[n],
            depths[s],
        )
        for d in range(dims):
            boxes[0, 0, d] = 0
            boxes[0, 1, d] = number[d] - 1
        waiting = 1
        while waiting > 0:
            if best[B_COUNT] + dims + 3 > best[B_MOST] or waiting + 2 > boxes.shape[0]:  # what a box may take
                best[B_CUT] = 1
                return
            waiting -= 1
            low, high = boxes[waiting, 0], boxes[waiting, 1]
            for d in range(dims):
                trial[d] = sizes[d, low[d]]
            cut(ops, extents, trial, online, statistics, shape_loops[n], loops, path)
            best[B_COUNT] += 1
            if (
                held(ops, acc, axes, ten, extents, loops, path, lengths, stages, points, rows, work)
                > capacity
            ):
                continue
            for d in range(dims):
                trial[d] = sizes[d, high[d]]
            cut(ops, extents, trial, online, statistics, shape_loops[n], loops, path)
            best[B_COUNT] += 1
            least = moved(
                ops, acc, axes, ten, extents, loops, path, lengths, counts, points, bits, rows, work
            )
            if least >= best[B_BYTES]:
                continue
            # A tile as small as moves no more than the largest: where it fits, the box is done.
            widest, split = 0, -1
            for d in range(dims):
                if low[d] == high[d]:
                    continue
                trial[d] = sizes[d, low[d]]
                cut(ops, extents, trial, online, statistics, shape_loops[n], loops, path)
                best[B_COUNT] += 1
                if (
                    moved(
                        ops, acc, axes, ten, extents, loops, path, lengths, counts, points, bits, rows, work
                    )
                    > least
                ):
                    trial[d] = sizes[d, high[d]]
                    if high[d] - low[d] > widest:
                        widest, split = high[d] - low[d], d
            cut(ops, extents, trial, online, statistics, shape_loops[n], loops, path)
            best[B_COUNT] += 1
            if held(
                ops, acc, axes, ten, extents, loops, path, lengths, stages, points, rows, work
            ) <= capacity and agrees(acc, twice, loops, path, lengths):
                best[B_BYTES], best[B_SHAPE] = least, s
                for d in range(dims):
                    tile[d] = trial[d]
                continue
            for d in range(dims if split < 0 else 0):
                if high[d] - low[d] > widest:
                    widest, split = high[d] - low[d], d
            if split < 0:
                continue
            middle = (low[split] + high[split]) // 2
            for d in range(dims):
                boxes[waiting + 1, 0, d] = low[d]
                boxes[waiting + 1, 1, d] = high[d]
            boxes[waiting, 1, split] = middle
            boxes[waiting + 1, 0, split] = middle + 1
            waiting += 2


@kernel(
    f"int64({_NEST}, int64[:,::1], int64[::1], int64[:,::1], int64, int64[::1], int64[:,::1], int64[::1], int64[:,::1],"
    " int64[:,::1], int64[:,::1])",
    borrows=True,
)
def weigh(
    ops, acc, axes, ten, extents, loops, path, lengths, online, statistics, shape_loops, stages, tile, counts, points,
    bits, rows, work,
):  # fmt: skip
    """Bytes moved by one tile; ``points[0]`` is left holding its footprint."""
    cut(ops, extents, tile, online, statistics, shape_loops, loops, path)
    peak = held(ops, acc, axes, ten, extents, loops, path, lengths, stages, points, rows, work)
    total = moved(ops, acc, axes, ten, extents, loops, path, lengths, counts, points, bits, rows, work)
    points[0] = peak
    return total
