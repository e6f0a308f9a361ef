"""Kernels: exact traffic and executed points of one nest (docs/loop-tree.md, section 2).

Knows arrays only; their columns are named in `sweep.py`.
"""

from __future__ import annotations

from ..compiled import kernel
from .footprint import buffer_peak, register_peak
from .sweep import (
    ACC_DEPTH0,
    ACC_DEPTH1,
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_SHAPE,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_OUTER,
    HOME_REGISTERS,
    LOOP_DIM,
    OP_END,
    OP_FIRST,
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
    WRITES,
    W_DEPTH0,
    W_DEPTH1,
    W_EFFECTIVE0,
    W_EFFECTIVE1,
    W_FOREIGN,
    W_LAST,
    W_LEADER,
    W_LENGTH,
    W_SKIP,
    W_TREE,
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
    ops, acc, axes, ten, loops : arrays with the columns named above.
    extents : int64[dims].
    path, lengths : int64[operators, longest path + 1] loops from the root, and how many.
    levels : 1 or 2 pairs of levels.
    fragments : 0: operand tiles take no room in the registers (the machine feeds its unit from the buffer).
    counts : int64[2, accesses, 4], points : int64[operators], footprint : int64[2] : results.
    rows, work : workspace; `rows` int64 like `path`: the paths without skipped loops.
    """
    operators = ops.shape[0]
    mark_skips(ops, acc, ten, path, loops, lengths, work)
    rescale = 0
    for o in range(operators):
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
        depth0 = acc[a, ACC_DEPTH0]
        below = (1 << depth0) - 1
        gone = work[W_SKIP, o] & below
        while gone:
            depth0 -= 1
            gone &= gone - 1
        work[W_DEPTH0, a] = depth0
        work[W_EFFECTIVE0, a] = effective(acc[a, ACC_TOUCH], rows[o], depth0, loops)
        if levels == 2:
            depth1 = acc[a, ACC_DEPTH1]
            gone = work[W_SKIP, o] & ((1 << depth1) - 1)
            while gone:
                depth1 -= 1
                gone &= gone - 1
            work[W_DEPTH1, a] = depth1
            work[W_EFFECTIVE1, a] = effective(acc[a, ACC_TOUCH], rows[o], depth1, loops)

    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        t = acc[a, ACC_TENSOR]
        home = ten[t, TEN_HOME]
        work[W_LEADER, a] = a
        work[W_LAST, a] = o
        for level in range(levels):
            for column in range(4):
                counts[level, a, column] = 0
        if acc[a, ACC_WRITE]:
            exported = home != HOME_OUTER and ten[t, TEN_EXPORTED] != 0
            for level in range(levels):
                if level == 0 and home != HOME_OUTER:
                    if exported:
                        counts[0, a, WRITES] = ten[t, TEN_ELEMENTS]
                    continue
                if level == 1 and home == HOME_REGISTERS:
                    if exported:
                        counts[1, a, WRITES] = ten[t, TEN_ELEMENTS]
                    continue
                if acc[a, ACC_FIXED] >= 0:
                    counts[level, a, WRITES] = acc[a, ACC_FIXED]
                    continue
                r = work[W_EFFECTIVE0 + level, a]
                sums = repeats(ops[o, OP_OWN] & ~acc[a, ACC_TOUCH], rows[o], r, loops, extents)
                again = repeats(work[W_FOREIGN, o], rows[o], r, loops, extents)
                elements = acc[a, ACC_ELEMENTS]
                counts[level, a, WRITES] = elements * again
                counts[level, a, PARTIAL_WRITES] = elements * (sums - 1) * again
                counts[level, a, PARTIAL_READS] = elements * (sums - 1) * again
            continue
        # A read: is it part of a stream that an earlier access leads?
        outside = home == HOME_OUTER
        for b in range(a if outside else 0):
            if (
                acc[b, ACC_WRITE] == 0
                and acc[b, ACC_TENSOR] == t
                and work[W_LEADER, b] == b
                and acc[b, ACC_SHAPE] == acc[a, ACC_SHAPE]
                and work[W_DEPTH0, b] == work[W_DEPTH0, a]
            ):
                same = True
                q = acc[b, ACC_OPERATOR]
                for j in range(work[W_DEPTH0, a]):
                    same = same and rows[q, j] == rows[o, j]
                if same:
                    work[W_LEADER, a] = b
                    work[W_LAST, b] = o
                    break
        for level in range(levels):
            if level == 0 and (not outside or work[W_LEADER, a] != a):
                continue
            if level == 1:
                if home == HOME_REGISTERS:
                    continue
                again = 0
                for b in range(ops[o, OP_FIRST], a):
                    if (
                        acc[b, ACC_TENSOR] == t
                        and acc[b, ACC_SHAPE] == acc[a, ACC_SHAPE]
                        and acc[b, ACC_DEPTH1] == acc[a, ACC_DEPTH1]
                    ):
                        again = 1
                if again:
                    continue
            if acc[a, ACC_FIXED] >= 0:
                counts[level, a, READS] = acc[a, ACC_FIXED]
                continue
            r = work[W_EFFECTIVE0 + level, a]
            counts[level, a, READS] = swept(acc, a, axes, rows[o], r, loops, extents) * repeats(
                ~acc[a, ACC_TOUCH], rows[o], r, loops, extents
            )
    footprint[0] = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
    if levels == 2:
        footprint[1] = register_peak(
            ops, acc, axes, ten, extents, loops, path, lengths, fragments, rows, work
        )
    return rescale
