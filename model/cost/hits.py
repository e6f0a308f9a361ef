"""Kernels: the bits of every access that pass into and out of the buffer, and those that a cache lets through to DRAM.

Knows the arrays of one nest and its counts (columns in `sweep.py`), the bytes of sectors and a share of a cache;
knows no other group and no seconds. The laws are in docs/loop-tree.md, section 4, "Outside the buffer".
"""

from __future__ import annotations

from ..compiled import kernel
from .runs import sectored_bits
from .steps import TOLL_DRAM, TOLL_OUT_DRAM, TOLL_OUT_PORT, TOLL_PORT
from .sweep import (
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_SHAPE,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_OUTER,
    LOOP_COLUMNS,
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_TRIPS,
    OP_END,
    OP_FIRST,
    OP_REDUCED,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_BITS,
    TEN_EXPORTED,
    TEN_HOME,
    TEN_PARTIAL,
    TEN_SPILLED,
    W_EFFECTIVE0,
    W_FOREIGN,
    W_LEADER,
    W_LENGTH,
    W_TREE,
    WRITES,
    repeats,
    tile_elements,
)
from .traffic import count_access

# Further columns of ``counts`` int64[accesses, CROSSED], all in bits: what passes into and out of the buffer; what
# passes from and to DRAM; that as it is, before it is rounded to sectors; of these the first pass over each tile and
# the finished writes. X_DEPTH: the depth of the tile that stays on this side of DRAM; X_KEPT as `stay` says; X_FOUND: 1
# where an earlier access of the group left it in the cache. Of tensors, which are no more than accesses, workspace: the
# largest tile, and whether some reader does not find it.
X_IN, X_OUT, X_DRAM_IN, X_DRAM_OUT = 4, 5, 6, 7
X_PLAIN_IN, X_PLAIN_OUT, X_FIRST_IN, X_FIRST_OUT = 8, 9, 10, 11
X_DEPTH, X_KEPT, X_FOUND, X_MOST, X_LOST = 12, 13, 14, 15, 16
CROSSED = 17
LOOP_TOUCHED = LOOP_COLUMNS  # a further column of ``loops``, workspace: bytes that one iteration touches
WIDE_LOOPS = LOOP_COLUMNS + 1


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64, int64,"
    " int64[:,::1], int64, int64)",
    borrows=True,
)
def in_sectors(acc, axes, ten, a, row, depth, loops, extents, level, sector_bytes, counts, into, out):
    """Bits of access `a` in whole sectors from its counts at a pair of levels, into the columns `into` and `out`."""
    t = acc[a, ACC_TENSOR]
    bits, partial = ten[t, TEN_BITS], ten[t, TEN_PARTIAL]
    reads, writes = counts[a, READS], counts[a, WRITES]
    wide, sums = (reads + writes) * bits, counts[a, PARTIAL_WRITES] * partial
    if sector_bytes > 1:
        sector, part = 8 * sector_bytes, counts[a, PARTIAL_WRITES]
        if wide > 0:
            wide = sectored_bits(
                acc, axes, ten, a, row, depth, loops, extents, level, reads + writes, bits, sector
            )
        if sums > 0:
            sums = sectored_bits(acc, axes, ten, a, row, depth, loops, extents, level, part, partial, sector)
    counts[a, into] = sums if acc[a, ACC_WRITE] else wide
    counts[a, out] = wide + sums if acc[a, ACC_WRITE] else 0


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64,"
    " int64[:,::1])",
    borrows=True,
)
def cross_pair(acc, axes, ten, extents, loops, rows, depths, level, sector_bytes, counts):
    """X_IN and X_OUT of every access at one pair of levels, of which the outer one moves whole sectors."""
    for a in range(acc.shape[0]):
        row = rows[acc[a, ACC_OPERATOR]]
        in_sectors(
            acc, axes, ten, a, row, depths[a], loops, extents, level, sector_bytes, counts, X_IN, X_OUT
        )


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64, int64, int64, int64[:,::1])",
    borrows=True,
)
def touched_bytes(ops, acc, axes, ten, extents, loops, rows, work, cores, first, last, until, counts):
    """Distinct bytes that cross in one iteration of loop `until`, on all cores of a wave; -1: in the whole walk.

    Of the operators `first` to `last`; per tensor its largest tile. Loops are numbered from the outside.
    """
    for t in range(ten.shape[0]):
        counts[t, X_MOST] = 0
    total = 0
    for o in range(first, last + 1):
        outside = 0
        while outside < work[W_TREE, o] and rows[o, outside] <= until:
            outside += 1
        for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
            t = acc[a, ACC_TENSOR]
            if ten[t, TEN_HOME] != HOME_OUTER and not (acc[a, ACC_WRITE] and ten[t, TEN_EXPORTED]):
                continue
            elements = acc[a, ACC_ELEMENTS]
            if acc[a, ACC_FIXED] < 0:
                tile = tile_elements(acc, a, axes, rows[o], outside, loops, extents)
                seen = ~acc[a, ACC_TOUCH]
                for j in range(outside):
                    d = loops[rows[o, j], LOOP_DIM]
                    if not seen >> d & 1:
                        seen |= 1 << d
                        tile *= max(1, cores[d])
                elements = min(elements, tile)
            size = (elements * ten[t, TEN_BITS] + 7) // 8
            total += max(0, size - counts[t, X_MOST])
            counts[t, X_MOST] = max(size, counts[t, X_MOST])
    return total


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64, int64[:,::1])",
    borrows=True,
)
def stay(ops, acc, axes, ten, extents, loops, rows, work, cores, share, counts):
    """X_KEPT: how many loops stand outside the outermost one of which one iteration fits `share`.

    -1 where everything that the group touches fits; one more than there are loops where not even one step does.
    """
    last = ops.shape[0] - 1
    size = touched_bytes(ops, acc, axes, ten, extents, loops, rows, work, cores, 0, last, -1, counts)
    everything = size <= share
    for loop in range(loops.shape[0]):
        loops[loop, LOOP_TOUCHED] = -1  # not yet known
    for o in range(ops.shape[0]):
        tree = work[W_TREE, o]
        kept = -1 if everything else 0
        while 0 <= kept <= tree:
            if kept == tree:
                size = touched_bytes(
                    ops, acc, axes, ten, extents, loops, rows, work, cores, o, o, loops.shape[0], counts
                )
            else:
                loop = rows[o, kept]
                if loops[loop, LOOP_TOUCHED] < 0:
                    loops[loop, LOOP_TOUCHED] = touched_bytes(
                        ops, acc, axes, ten, extents, loops, rows, work, cores, loops[loop, LOOP_FIRST],
                        loops[loop, LOOP_LAST], loop, counts,
                    )  # fmt: skip
                size = loops[loop, LOOP_TOUCHED]
            if size <= share:
                break
            kept += 1
        if kept > tree:
            kept = work[W_LENGTH, o] + 1
        for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
            counts[a, X_KEPT] = kept


@kernel(
    "boolean(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64)",
    borrows=True,
)
def is_found(acc, ten, rows, work, counts, a):
    """Whether read `a` finds in the cache what an earlier access of the group had of the tensor."""
    t, o = acc[a, ACC_TENSOR], acc[a, ACC_OPERATOR]
    if acc[a, ACC_WRITE] or ten[t, TEN_HOME] != HOME_OUTER or acc[a, ACC_FIXED] >= 0:
        return False
    for b in range(a):
        q = acc[b, ACC_OPERATOR]
        if acc[b, ACC_TENSOR] != t or (q == o and acc[b, ACC_WRITE]):
            continue
        alike = acc[b, ACC_SHAPE] == acc[a, ACC_SHAPE]
        if counts[a, X_KEPT] < 0 and (acc[b, ACC_WRITE] or alike):
            return True
        # In one iteration of a loop that both stand under, of which one iteration fits.
        shared = 0
        while shared < min(work[W_LENGTH, q], work[W_LENGTH, o]) and rows[q, shared] == rows[o, shared]:
            shared += 1
        if alike and counts[a, X_KEPT] < shared:
            return True
    return False


@kernel("int64(int64, int64, int64[::1], int64, int64, int64[:,::1], int64[::1])", borrows=True)
def in_waves(count, mask, row, depth, tree, loops, cores):
    """`count`, which is repeated over the loops of dims in `mask` among ``row[:depth]``, once for each wave of cores.

    Only loops of the tree are split, the outermost of their dim; a dim of several loops is left as it is.
    """
    for j in range(min(depth, tree)):
        d, trips = loops[row[j], LOOP_DIM], loops[row[j], LOOP_TRIPS]
        if not mask >> d & 1 or cores[d] < 2:
            continue
        alone = True
        for i in range(depth):
            alone = alone and (i == j or loops[row[i], LOOP_DIM] != d)
        if alone:
            count = count // trips * -(-trips // cores[d])
    return count


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64, int64, int64, int64[:,::1])",
    borrows=True,
)
def let_through(ops, acc, axes, ten, extents, loops, rows, work, cores, stored, a, far, counts):
    """The columns of ``counts[a]`` at DRAM but X_DEPTH.

    What the cores of a wave fetch at one time is fetched once; what they store, once where it is the same: over loops
    of the dims ``stored`` that are not the operator's own.
    """
    o, t, depth = acc[a, ACC_OPERATOR], acc[a, ACC_TENSOR], counts[a, X_DEPTH]
    reads, writes, back, sums = (
        counts[a, READS],
        counts[a, WRITES],
        counts[a, PARTIAL_READS],
        counts[a, PARTIAL_WRITES],
    )
    write = acc[a, ACC_WRITE] != 0
    count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, depth, counts, rows, work)
    if acc[a, ACC_FIXED] < 0 and ten[t, TEN_HOME] == HOME_OUTER:
        apart = work[W_FOREIGN, o] & stored if write else ~acc[a, ACC_TOUCH]
        for column in range(4):
            counts[a, column] = in_waves(
                counts[a, column], apart, rows[o], depth, work[W_TREE, o], loops, cores
            )
    if write and ten[t, TEN_SPILLED] and not ten[t, TEN_EXPORTED] and not counts[t, X_LOST]:
        counts[a, WRITES] = 0  # dead before it is driven out
    if counts[a, X_FOUND]:
        counts[a, READS] = 0
    whole = (counts[a, READS] + counts[a, WRITES]) * ten[t, TEN_BITS]
    unfinished = counts[a, PARTIAL_WRITES] * ten[t, TEN_PARTIAL]
    in_sectors(acc, axes, ten, a, rows[o], depth, loops, extents, 0, far, counts, X_DRAM_IN, X_DRAM_OUT)
    again = 1
    if not write and acc[a, ACC_FIXED] < 0:
        again = repeats(~acc[a, ACC_TOUCH], rows[o], depth, loops, extents)
        again = in_waves(again, ~acc[a, ACC_TOUCH], rows[o], depth, work[W_TREE, o], loops, cores)
    counts[a, X_PLAIN_IN] = unfinished if write else whole
    counts[a, X_PLAIN_OUT] = whole + unfinished if write else 0
    counts[a, X_FIRST_IN] = 0 if write else whole // again
    counts[a, X_FIRST_OUT] = whole if write else 0
    counts[a, READS], counts[a, WRITES] = reads, writes
    counts[a, PARTIAL_READS], counts[a, PARTIAL_WRITES] = back, sums


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64, int64, int64, int64[:,::1])",
    borrows=True,
)
def through_cache(ops, acc, axes, ten, extents, loops, rows, work, cores, near, far, share, counts):
    """The columns of ``counts`` at DRAM, of a machine with a cache."""
    stay(ops, acc, axes, ten, extents, loops, rows, work, cores, share, counts)
    for t in range(ten.shape[0]):
        counts[t, X_LOST] = 0
    stored = -1
    for o in range(ops.shape[0]):
        stored &= ~ops[o, OP_REDUCED]
    for a in range(acc.shape[0]):
        leads = acc[a, ACC_WRITE] == 0 and work[W_LEADER, a] == a
        counts[a, X_FOUND] = leads and is_found(acc, ten, rows, work, counts, a)
        if leads and not counts[a, X_FOUND]:
            counts[acc[a, ACC_TENSOR], X_LOST] = 1
        counts[a, X_DEPTH] = min(work[W_EFFECTIVE0, a], max(0, counts[a, X_KEPT]))
    for a in range(acc.shape[0]):
        let_through(ops, acc, axes, ten, extents, loops, rows, work, cores, stored, a, far, counts)
        if far <= near:  # a part of what passes on the other side
            counts[a, X_DRAM_IN] = min(counts[a, X_DRAM_IN], counts[a, X_IN])
            counts[a, X_DRAM_OUT] = min(counts[a, X_DRAM_OUT], counts[a, X_OUT])


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64, int64, int64, int64[:,::1])",
    borrows=True,
)
def cross(ops, acc, axes, ten, extents, loops, rows, work, cores, near, far, share, counts):
    """Fill the further columns of ``counts`` from the first four, as `traffic.count_access` left them at level 0.

    Parameters
    ----------
    loops : int64[loops, WIDE_LOOPS].
    rows, work : as `traffic.prepare` left them.
    cores : int64[dims] over how many cores the outermost loops of each dim are split; 0 and 1: not split.
    near, far : bytes of a sector next to the buffer, and at DRAM.
    share : bytes of the cache between them that are this group's; -1: there is none.
    """
    cross_pair(acc, axes, ten, extents, loops, rows, work[W_EFFECTIVE0], 0, near, counts)
    if share >= 0:
        through_cache(ops, acc, axes, ten, extents, loops, rows, work, cores, near, far, share, counts)
        return
    for a in range(acc.shape[0]):
        t = acc[a, ACC_TENSOR]
        whole = (counts[a, READS] + counts[a, WRITES]) * ten[t, TEN_BITS]
        sums = counts[a, PARTIAL_WRITES] * ten[t, TEN_PARTIAL]
        write = acc[a, ACC_WRITE] != 0
        again = 1
        if not write and acc[a, ACC_FIXED] < 0:
            o = acc[a, ACC_OPERATOR]
            again = repeats(~acc[a, ACC_TOUCH], rows[o], work[W_EFFECTIVE0, a], loops, extents)
        counts[a, X_DEPTH] = work[W_EFFECTIVE0, a]
        counts[a, X_DRAM_IN], counts[a, X_DRAM_OUT] = counts[a, X_IN], counts[a, X_OUT]
        counts[a, X_PLAIN_IN] = sums if write else whole
        counts[a, X_PLAIN_OUT] = whole + sums if write else 0
        counts[a, X_FIRST_IN] = 0 if write else whole // again
        counts[a, X_FIRST_OUT] = whole if write else 0


@kernel("void(int64[:,::1], int64[:,::1], int64[:,::1], float64[:,::1])", borrows=True)
def tolls(acc, ten, counts, toll):
    """Bytes that pass a port and DRAM per byte of an access's tiles, for `steps.walk`; 1 where it moves nothing."""
    for a in range(acc.shape[0]):
        t = acc[a, ACC_TENSOR]
        bits, partial = ten[t, TEN_BITS], ten[t, TEN_PARTIAL]
        into = float(counts[a, READS] * bits + counts[a, PARTIAL_READS] * partial)
        out = float(counts[a, WRITES] * bits + counts[a, PARTIAL_WRITES] * partial)
        toll[a, :] = 1.0
        if into > 0.0:
            toll[a, TOLL_PORT] = counts[a, X_IN] / into
            toll[a, TOLL_DRAM] = counts[a, X_DRAM_IN] / into
        if out > 0.0:
            toll[a, TOLL_OUT_PORT] = counts[a, X_OUT] / out
            toll[a, TOLL_OUT_DRAM] = counts[a, X_DRAM_OUT] / out
