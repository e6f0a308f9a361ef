"""Kernels: exact traffic and executed points of one nest (docs/loop-tree.md, section 2).

Knows arrays only; their columns are named in `sweep.py`.
"""

from __future__ import annotations

from ..compiled import kernel
from .footprint import (
    buffer_peak,
    register_peak,
    repeats_earlier,
)
from .sweep import (
    ACC_DEPTH0,
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_SHAPE,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_OUTER,
    LOOP_DIM,
    OP_END,
    OP_OWN,
    OP_RESCALE,
    OP_TREE,
    OP_WRITES,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_ELEMENTS,
    TEN_EXPORTED,
    TEN_HOME,
    W_DEPTH0,
    W_EFFECTIVE0,
    W_FOREIGN,
    W_LAST,
    W_LEADER,
    W_LENGTH,
    W_SKIP,
    W_TREE,
    WRITES,
    effective,
    repeats,
    swept,
)


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1])"
)
def mark_skips(ops, acc, ten, path, loops, lengths, work):
    """Per operator the positions of its path that it skips (retained across, or nobody reads there)."""
    for o in range(ops.shape[0] - 1, -1, -1):
        work[W_SKIP, o] = 0
        for j in range(lengths[o]):
            if ops[o, OP_OWN] >> loops[path[o, j], LOOP_DIM] & 1:
                continue
            idle = True
            for a in range(ops[o, OP_WRITES], ops[o, OP_END]):
                r = acc[a, ACC_DEPTH0]
                r = effective(acc[a, ACC_TOUCH], path[o], r, loops)
                if j >= r:
                    continue
                t = acc[a, ACC_TENSOR]
                idle = ten[t, TEN_HOME] != HOME_OUTER and ten[t, TEN_EXPORTED] == 0
                if idle:
                    for b in range(ops[o, OP_END], acc.shape[0]):
                        if acc[b, ACC_TENSOR] == t and acc[b, ACC_WRITE] == 0:
                            q = acc[b, ACC_OPERATOR]
                            skipped = False
                            for i in range(lengths[q]):
                                if path[q, i] == path[o, j]:
                                    skipped = (work[W_SKIP, q] >> i & 1) != 0
                            idle = idle and skipped
                if not idle:
                    break
            if idle:
                work[W_SKIP, o] |= 1 << j


@kernel("void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1])")
def find_streams(acc, ten, rows, work):
    """Per access the one that leads its stream from outside, and per leader the stream's last reader."""
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        t = acc[a, ACC_TENSOR]
        work[W_LEADER, a] = a
        work[W_LAST, a] = o
        if acc[a, ACC_WRITE] or ten[t, TEN_HOME] != HOME_OUTER:
            continue
        for b in range(a):
            if (
                acc[b, ACC_TENSOR] == t
                and acc[b, ACC_WRITE] == 0
                and work[W_LEADER, b] == b
                and acc[b, ACC_SHAPE] == acc[a, ACC_SHAPE]
                and work[W_DEPTH0, b] == work[W_DEPTH0, a]
            ):
                q = acc[b, ACC_OPERATOR]
                same = acc[a, ACC_FIXED] < 0 or q == o  # streamed without room: nothing to share
                for j in range(work[W_DEPTH0, a]):
                    same = same and rows[q, j] == rows[o, j]
                if same:
                    work[W_LEADER, a] = b
                    work[W_LAST, b] = o
                    break


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1],"
    " int64, int64[::1], int64[:,::1], int64[:,::1])"
)
def prepare(ops, acc, ten, extents, loops, path, lengths, levels, points, rows, work):
    """Skips, remaining paths, effective depths, streams and executed points; returns the vector work of rescaling.

    Fills ``points``, ``rows`` (the paths without skipped loops) and the rows of ``work`` but those of footprints.
    """
    mark_skips(ops, acc, ten, path, loops, lengths, work)
    rescale = 0
    for o in range(ops.shape[0]):
        kept = 0
        work[W_TREE, o] = 0
        foreign = 0
        for j in range(lengths[o]):
            if work[W_SKIP, o] >> j & 1:
                continue
            rows[o, kept] = path[o, j]
            kept += 1
            if j < ops[o, OP_TREE]:
                work[W_TREE, o] = kept
            bit = 1 << loops[path[o, j], LOOP_DIM]
            if not ops[o, OP_OWN] & bit:
                foreign |= bit
        work[W_LENGTH, o] = kept
        work[W_FOREIGN, o] = foreign
        again = repeats(foreign, rows[o], kept, loops, extents)
        total = again
        for d in range(extents.size):
            if ops[o, OP_OWN] >> d & 1:
                total *= extents[d]
        points[o] = total
        if ops[o, OP_RESCALE]:
            visits = repeats(ops[o, OP_RESCALE], rows[o], work[W_TREE, o], loops, extents)
            for a in range(ops[o, OP_WRITES], ops[o, OP_END]):
                rescale += acc[a, ACC_ELEMENTS] * again * (visits - 1)
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        for level in range(levels):
            depth = acc[a, ACC_DEPTH0 + level]
            gone = work[W_SKIP, o] & ((1 << depth) - 1)
            while gone:
                depth -= 1
                gone &= gone - 1
            work[W_DEPTH0 + level, a] = depth
            work[W_EFFECTIVE0 + level, a] = effective(acc[a, ACC_TOUCH], rows[o], depth, loops)
    find_streams(acc, ten, rows, work)
    return rescale


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64, int64, int64,"
    " int64[:,::1], int64[:,::1], int64[:,::1])"
)
def count_access(ops, acc, axes, ten, extents, loops, level, a, depth, counts, rows, work):
    """Elements that access `a` moves at `level` with effective depth `depth`, into ``counts[a]``."""
    o = acc[a, ACC_OPERATOR]
    t = acc[a, ACC_TENSOR]
    home = ten[t, TEN_HOME]
    counts[a, READS] = 0
    counts[a, WRITES] = 0
    counts[a, PARTIAL_READS] = 0
    counts[a, PARTIAL_WRITES] = 0
    # The lowest home from which a tensor does not cross this pair of levels.
    crosses = home <= level
    if acc[a, ACC_WRITE]:
        if not crosses:
            if ten[t, TEN_EXPORTED]:
                counts[a, WRITES] = ten[t, TEN_ELEMENTS]
        elif acc[a, ACC_FIXED] >= 0:
            counts[a, WRITES] = acc[a, ACC_FIXED]
        else:
            sums = repeats(ops[o, OP_OWN] & ~acc[a, ACC_TOUCH], rows[o], depth, loops, extents)
            visited = acc[a, ACC_ELEMENTS] * repeats(work[W_FOREIGN, o], rows[o], depth, loops, extents)
            counts[a, WRITES] = visited
            counts[a, PARTIAL_WRITES] = visited * (sums - 1)
            counts[a, PARTIAL_READS] = visited * (sums - 1)
        return
    if not crosses or (level == 0 and work[W_LEADER, a] != a):
        return
    if level == 1 and repeats_earlier(ops, acc, a, work):
        return
    if acc[a, ACC_FIXED] >= 0:
        counts[a, READS] = acc[a, ACC_FIXED]
    else:
        counts[a, READS] = swept(acc, a, axes, rows[o], depth, loops, extents) * repeats(
            ~acc[a, ACC_TOUCH], rows[o], depth, loops, extents
        )


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64, int64[:,:,::1], int64[::1], int64[::1], int64[:,::1], int64[:,::1])"
)
def measure(
    ops,
    acc,
    axes,
    ten,
    extents,
    loops,
    path,
    lengths,
    levels,
    stages,
    fragments,
    counts,
    points,
    footprint,
    rows,
    work,
):
    """Fill counts, executed points and footprints of one nest; returns the vector work of online rescaling.

    Parameters
    ----------
    ops, acc, axes, ten, loops : arrays with the columns named in `sweep.py`.
    extents : int64[dims].
    path, lengths : int64[operators, longest path + 1] loops from the root, and how many.
    levels : 1 or 2 pairs of levels.
    fragments : 0: operand tiles take no room in the registers (the machine feeds its unit from the buffer).
    counts : int64[2, accesses, 4], points : int64[operators], footprint : int64[2] : results.
    rows, work : workspace; `rows` int64 like `path`.
    """
    rescale = prepare(ops, acc, ten, extents, loops, path, lengths, levels, points, rows, work)
    for level in range(levels):
        for a in range(acc.shape[0]):
            depth = work[W_EFFECTIVE0 + level, a]
            count_access(ops, acc, axes, ten, extents, loops, level, a, depth, counts[level], rows, work)
    footprint[0] = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
    if levels == 2:
        footprint[1] = register_peak(
            ops, acc, axes, ten, extents, loops, path, lengths, fragments, rows, work
        )
    return rescale
