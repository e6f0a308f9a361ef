"""Kernels: exact traffic and executed points of one nest (docs/loop-tree.md, section 2).

Knows arrays only; their columns are named in `sweep.py`.
"""

from __future__ import annotations

from ..compiled import kernel
from .footprint import (
    inline_buffer_peak,
    level_peak,
    register_peak,
    repeats_earlier,
)
from .sweep import (
    ACC_DEPTH0,
    ACC_EARLIER,
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_PLAIN,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_OUTER,
    LOOP_DIM,
    OP_DOMAIN,
    OP_DOMAIN_END,
    OP_END,
    OP_OWN,
    OP_POINTS,
    OP_RESCALE,
    OP_SPLIT,
    OP_TREE,
    OP_WRITES,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_ELEMENTS,
    TEN_EXPORTED,
    TEN_HOME,
    TEN_PRODUCER,
    W_DEPTH0,
    W_EFFECTIVE0,
    W_FOREIGN,
    W_LAST,
    W_LEADER,
    W_LENGTH,
    W_PAIR,
    W_SKIP,
    W_TREE,
    WRITES,
    axis_sum,
    effective,
    repeats,
    sharers,
    swept,
)


@kernel(
    "boolean(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64,"
    " int64[:,::1])",
    borrows=True,
)
def skips(o, j, ops, acc, ten, path, loops, lengths, buffers, work):
    """Whether operator `o` skips loop `j` of its path: retained across it, or nobody reads there.

    Retained in the buffer that is the output's home: the outermost for what lives outside, the innermost for registers.
    """
    for a in range(ops[o, OP_WRITES], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        kept = max(1, min(ten[t, TEN_HOME], buffers)) - 1
        r = effective(acc[a, ACC_TOUCH], path[o], acc[a, ACC_DEPTH0 + kept], loops)
        if j >= r:
            continue
        if ten[t, TEN_HOME] == HOME_OUTER or ten[t, TEN_EXPORTED]:
            return False
        for b in range(ops[o, OP_END], acc.shape[0]):
            if acc[b, ACC_TENSOR] == t and acc[b, ACC_WRITE] == 0:
                q = acc[b, ACC_OPERATOR]
                skipped = False
                for i in range(lengths[q]):
                    if path[q, i] == path[o, j]:
                        skipped = (work[W_SKIP, q] >> i & 1) != 0
                if not skipped:
                    return False
    return True


@kernel("void(int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1])", inline=True, borrows=True)
def find_streams(acc, ten, level, rows, work):
    """Per access the one that leads its stream into the buffer of pair `level`; per leader the stream's last reader."""
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        work[W_LEADER, a] = a
        work[W_LAST, a] = o
        b = acc[a, ACC_EARLIER]
        if b < 0 or ten[acc[a, ACC_TENSOR], TEN_HOME] > level:
            continue
        depth = work[W_DEPTH0 + W_PAIR * level, a]
        while b >= 0:
            q = acc[b, ACC_OPERATOR]
            same = work[W_DEPTH0 + W_PAIR * level, b] == depth
            # Streamed without room, or made in the group and at home further out: nothing to share.
            alone = acc[a, ACC_FIXED] >= 0 or ten[acc[a, ACC_TENSOR], TEN_PRODUCER] >= 0
            same = same and (not alone or q == o)
            for j in range(depth if same else 0):
                same = same and rows[q, j] == rows[o, j]
            if same:
                leader = work[W_LEADER, b]
                work[W_LEADER, a] = leader
                work[W_LAST, leader] = o
                break
            b = acc[b, ACC_EARLIER]


@kernel("void(int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1])", borrows=True)
def streams_into(acc, ten, level, rows, work):
    """`find_streams`, not inlined: for what is not done for every candidate."""
    find_streams(acc, ten, level, rows, work)


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1],"
    " int64, int64, int64[::1], int64[:,::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def prepare(ops, acc, axes, ten, extents, loops, path, lengths, buffers, levels, points, rows, work):
    """Skips, remaining paths, effective depths, streams and executed points; returns the vector work of rescaling.

    Fills ``points``, ``rows`` (the paths without skipped loops) and the rows of ``work`` but those of footprints; its
    streams are those of level 0. ``buffers`` of the ``levels`` pairs lead into a buffer, one more into the registers.
    """
    rescale = 0
    for o in range(ops.shape[0] - 1, -1, -1):  # whether a loop is skipped depends on the operators behind
        kept, tree, skip, foreign = 0, 0, 0, 0
        own = ops[o, OP_OWN]
        for j in range(lengths[o]):
            loop = path[o, j]
            bit = 1 << loops[loop, LOOP_DIM]
            if not own & bit:
                if skips(o, j, ops, acc, ten, path, loops, lengths, buffers, work):
                    skip |= 1 << j
                    continue
                foreign |= bit
            rows[o, kept] = loop
            kept += 1
            if j < ops[o, OP_TREE]:
                tree = kept
        work[W_SKIP, o] = skip
        work[W_LENGTH, o] = kept
        work[W_TREE, o] = tree
        work[W_FOREIGN, o] = foreign
        again = repeats(foreign, rows[o], kept, loops, extents) if foreign else 1
        points[o] = ops[o, OP_POINTS] * again
        for x in range(ops[o, OP_DOMAIN], ops[o, OP_DOMAIN_END]):
            points[o] *= axis_sum(axes, x, rows[o], kept, loops, extents)
        if ops[o, OP_RESCALE]:
            visits = repeats(ops[o, OP_RESCALE], rows[o], tree, loops, extents)
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
            work[W_DEPTH0 + W_PAIR * level, a] = depth
            work[W_EFFECTIVE0 + W_PAIR * level, a] = effective(acc[a, ACC_TOUCH], rows[o], depth, loops)
    find_streams(acc, ten, 0, rows, work)
    return rescale


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64, int64, int64, int64,"
    " int64[:,::1], int64[:,::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def count_access(ops, acc, axes, ten, extents, loops, level, buffers, a, depth, counts, rows, work):
    """Elements that access `a` moves at `level` with effective depth `depth`, into ``counts[a]``.

    Into a buffer, where `level` < `buffers`, by the streams that `find_streams` found last.
    """
    o = acc[a, ACC_OPERATOR]
    t = acc[a, ACC_TENSOR]
    touch = acc[a, ACC_TOUCH]
    crosses = ten[t, TEN_HOME] <= level  # level is the lowest home from which a tensor crosses it
    reads, writes, partial = 0, 0, 0
    if acc[a, ACC_WRITE]:
        if not crosses:
            if ten[t, TEN_EXPORTED]:
                writes = ten[t, TEN_ELEMENTS]
        elif acc[a, ACC_FIXED] >= 0:
            writes = acc[a, ACC_FIXED]
        else:
            own = ops[o, OP_OWN] & ~touch
            sums = repeats(own, rows[o], depth, loops, extents)
            if ops[o, OP_SPLIT] and level == 0:
                sums *= sharers(own, rows[o], depth, work[W_TREE, o], loops)
            once = acc[a, ACC_ELEMENTS]
            if not acc[a, ACC_PLAIN]:
                once = swept(acc, a, axes, rows[o], depth, loops, extents)
            writes = once * repeats(work[W_FOREIGN, o], rows[o], depth, loops, extents)
            partial = writes * (sums - 1)
    elif crosses and (
        work[W_LEADER, a] == a if level < buffers else not repeats_earlier(acc, a, level, work)
    ):
        if acc[a, ACC_FIXED] >= 0:
            reads = acc[a, ACC_FIXED]
        else:
            once = acc[a, ACC_ELEMENTS]
            if not acc[a, ACC_PLAIN]:
                once = swept(acc, a, axes, rows[o], depth, loops, extents)
            reads = once * repeats(~touch, rows[o], depth, loops, extents)
    counts[a, READS] = reads
    counts[a, WRITES] = writes
    counts[a, PARTIAL_READS] = partial
    counts[a, PARTIAL_WRITES] = partial


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def count_level(
    ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages, counts, rows, work
):  # fmt: skip
    """Counts and footprint of one further buffer, that of pair `level` > 0; leaves its streams in ``work``."""
    streams_into(acc, ten, level, rows, work)
    for a in range(acc.shape[0]):
        depth = work[W_EFFECTIVE0 + W_PAIR * level, a]
        count_access(ops, acc, axes, ten, extents, loops, level, buffers, a, depth, counts, rows, work)
    return level_peak(
        ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages, rows, work
    )


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64[::1], int64, int64[:,:,::1], int64[::1], int64[::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def measure(
    ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, fragments, counts, points, footprint, rows,
    work,
):  # fmt: skip
    """Fill counts, executed points and footprints of one nest; returns the vector work of online rescaling.

    Parameters
    ----------
    ops, acc, axes, ten, loops : arrays with the columns named in `sweep.py`.
    extents : int64[dims].
    path, lengths : int64[operators, longest path + 1] loops from the root, and how many.
    levels : pairs of levels; one more than there are buffers where the machine has registers.
    stages : int64[buffers], copies of a streamed tile in each, outermost first.
    fragments : 0: operand tiles take no room in the registers (the machine feeds its unit from the buffer).
    counts : result, int64[levels, accesses, 4].
    points, footprint : results, int64[operators] and int64[levels].
    rows, work : workspace; `rows` int64 like `path`. The streams that are left in it are those of level 0.
    """
    buffers = stages.size
    rescale = prepare(ops, acc, axes, ten, extents, loops, path, lengths, buffers, levels, points, rows, work)
    if buffers > 1:
        for level in range(buffers - 1, 0, -1):
            footprint[level] = count_level(
                ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages[level],
                counts[level], rows, work,
            )  # fmt: skip
        streams_into(acc, ten, 0, rows, work)
    outer = counts[0]
    for a in range(acc.shape[0]):
        count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, work[W_EFFECTIVE0, a], outer, rows, work)
    footprint[0] = inline_buffer_peak(
        ops, acc, axes, ten, extents, loops, path, lengths, 0, buffers, levels, stages[0], rows, work
    )
    if levels > buffers:
        inner = counts[buffers]
        for a in range(acc.shape[0]):
            depth = work[W_EFFECTIVE0 + W_PAIR * buffers, a]
            count_access(ops, acc, axes, ten, extents, loops, buffers, buffers, a, depth, inner, rows, work)
        footprint[buffers] = register_peak(
            ops, acc, axes, ten, extents, loops, path, lengths, buffers, fragments, rows, work
        )
    return rescale
