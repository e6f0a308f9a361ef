"""Kernels: the peak bytes that a nest holds in its buffers and in the registers (docs/loop-tree.md, section 3).

Knows arrays only. `traffic.measure` fills the workspace rows that these read.
"""

from __future__ import annotations

from ..compiled import kernel
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    ACC_EARLIER,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_PLAIN,
    ACC_SHAPE,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    AXIS_A,
    AXIS_B,
    AXIS_D0,
    AXIS_D1,
    AXIS_KIND,
    AXIS_N,
    HOME_REGISTERS,
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_TRIPS,
    OP_CONTRACTION,
    OP_END,
    OP_FIRST,
    OP_OWN,
    OP_POINTWISE,
    OP_REDUCED,
    OP_SPLIT,
    OP_STATISTICS,
    OP_TREE,
    OP_WRITES,
    ROLLING,
    SIMPLE,
    TEN_BITS,
    TEN_ELEMENTS,
    TEN_HOME,
    TEN_LAST,
    TEN_PARTIAL,
    TEN_PINNED,
    TEN_PRODUCER,
    W_BYTES0,
    W_DEPTH0,
    W_EFFECTIVE0,
    W_LAST,
    W_LEADER,
    W_LENGTH,
    W_LIVE,
    W_PAIR,
    W_SAVED,
    W_SKIP,
    W_TILE0,
    W_TREE,
    odd_tile,
    sharers,
    step_of,
    tile_elements,
)


@kernel(
    "void(int64, int64, int64, int64, int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def add_live(size, r, first, last, path, lengths, loops, rows, work):
    """Add `size` bytes while a tile lives: from operator `first` to `last`, in one iteration of the loop at depth `r`.

    Whole children of that loop count (of the root for 0); loops of one trip are seen through.
    """
    position = r
    if r > 0 and work[W_SKIP, first]:  # where the loop stands on the full path
        while path[first, position - 1] != rows[first, r - 1]:
            position += 1
    low, high = first, last
    for j in range(position, lengths[first]):
        loop = path[first, j]
        if loops[loop, LOOP_TRIPS] > 1:
            low = loops[loop, LOOP_FIRST]
            high = max(high, loops[loop, LOOP_LAST])
            break
    if last > first and high == last:  # it ends in another child; a loop has one depth on all paths
        for j in range(position, lengths[last]):
            loop = path[last, j]
            if loops[loop, LOOP_TRIPS] > 1:
                high = loops[loop, LOOP_LAST]
                break
    work[W_LIVE, low] += size
    work[W_LIVE, high + 1] -= size


@kernel(
    "void(int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64, int64[:,::1], int64[::1], int64[:,::1])",
    borrows=True,
)
def add_lines(acc, a, axes, row, depth, bits, loops, extents, work):
    """Add the line buffers of access `a`: what rolling windows keep while other loops of the tensor run inside."""
    for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
        if axes[x, AXIS_KIND] != ROLLING:
            continue
        at, inner = -1, False
        for j in range(depth):
            loop = row[j]
            if loops[loop, LOOP_TRIPS] == 1:
                continue
            if loops[loop, LOOP_DIM] == axes[x, AXIS_D0]:
                at, inner = j, False
            elif acc[a, ACC_TOUCH] >> loops[loop, LOOP_DIM] & 1:
                inner = True
        kept = (extents[axes[x, AXIS_D1]] - 1) * axes[x, AXIS_B] + 1 - axes[x, AXIS_A]
        if at < 0 or not inner or kept <= 0:
            continue
        elements = min(kept, axes[x, AXIS_N])
        for y in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
            if y == x:
                continue
            if axes[y, AXIS_KIND] == SIMPLE:
                elements *= min(step_of(axes[y, AXIS_D0], row, at + 1, loops, extents), axes[y, AXIS_A])
            else:
                elements *= odd_tile(axes, y, row, at + 1, loops, extents)
        size = (elements * bits + 7) // 8
        work[W_LIVE, loops[row[at], LOOP_FIRST]] += size
        work[W_LIVE, loops[row[at], LOOP_LAST] + 1] -= size


@kernel("boolean(int64, int64[::1], int64, int64[:,::1])", inline=True, borrows=True)
def unfinished(sums, row, depth, loops):
    """Whether a loop of several trips over a dim of the mask `sums` stands among ``row[:depth]``."""
    for j in range(depth if sums else 0):
        loop = row[j]
        if sums >> loops[loop, LOOP_DIM] & 1 and loops[loop, LOOP_TRIPS] > 1:
            return True
    return False


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64, int64[:,::1])", inline=True, borrows=True
)
def source_of(acc, ten, ops, a, level, work):
    """The access whose tile a read finds in the buffer: its stream's leader, or its producer's; -1: none there."""
    t = acc[a, ACC_TENSOR]
    if ten[t, TEN_HOME] <= level:
        return work[W_LEADER, a]
    if ten[t, TEN_HOME] > level + 1:
        return -1
    p = ten[t, TEN_PRODUCER]
    for b in range(ops[p, OP_WRITES], ops[p, OP_END]):
        if acc[b, ACC_TENSOR] == t:
            return b
    return -1


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64, int64, int64[:,::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def inline_buffer_peak(
    ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages, rows, work
):  # fmt: skip
    """`level_peak`, for the kernel that does little else."""
    operators = ops.shape[0]
    for o in range(operators + 1):
        work[W_LIVE, o] = 0
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        t = acc[a, ACC_TENSOR]
        home = ten[t, TEN_HOME]
        work[W_TILE0, a] = 0
        work[W_BYTES0, a] = 0
        streamed = home <= level
        if home > level + 1 or (not streamed and acc[a, ACC_WRITE] == 0) or work[W_LEADER, a] != a:
            continue
        if acc[a, ACC_FIXED] >= 0:
            if streamed:
                continue
            elements = ten[t, TEN_ELEMENTS]
        else:
            elements = tile_elements(
                acc, a, axes, rows[o], work[W_DEPTH0 + W_PAIR * level, a], loops, extents
            )
        bits = ten[t, TEN_BITS]
        if acc[a, ACC_WRITE] and acc[a, ACC_FIXED] < 0:
            inner = work[W_LENGTH, o]
            if level + 1 < levels:
                inner = work[W_EFFECTIVE0 + W_PAIR * (level + 1), a]
            sums = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
            if unfinished(sums, rows[o], inner, loops) or (
                ops[o, OP_SPLIT] and sharers(sums, rows[o], 0, work[W_TREE, o], loops) > 1
            ):
                bits = ten[t, TEN_PARTIAL]
        size = (elements * bits + 7) // 8
        work[W_TILE0, a] = elements
        work[W_BYTES0, a] = size
        if not acc[a, ACC_PLAIN] and acc[a, ACC_FIXED] < 0:
            depth = work[W_DEPTH0 + W_PAIR * level, a]
            add_lines(acc, a, axes, rows[o], depth, ten[t, TEN_BITS], loops, extents, work)
        if ten[t, TEN_PINNED] and level == 0:
            work[W_LIVE, 0] += size
            work[W_LIVE, operators] -= size
            continue
        r = work[W_EFFECTIVE0 + W_PAIR * level, a]
        last = work[W_LAST, a] if streamed else max(o, ten[t, TEN_LAST])
        add_live(size * (stages if streamed and r > 0 else 1), r, o, last, path, lengths, loops, rows, work)
    for o in range(operators if level == buffers - 1 else 0):  # statistics are next to the units
        if ops[o, OP_STATISTICS] == 0:
            continue
        for j in range(ops[o, OP_TREE]):
            if ops[o, OP_REDUCED] >> loops[path[o, j], LOOP_DIM] & 1:
                elements = ops[o, OP_STATISTICS]
                for d in range(extents.size):
                    if (ops[o, OP_OWN] & ~ops[o, OP_REDUCED]) >> d & 1:
                        elements *= step_of(d, path[o], j, loops, extents)
                size = (elements * ten[acc[ops[o, OP_WRITES], ACC_TENSOR], TEN_PARTIAL] + 7) // 8
                work[W_LIVE, loops[path[o, j], LOOP_FIRST]] += size
                work[W_LIVE, loops[path[o, j], LOOP_LAST] + 1] -= size
                break
    peak = 0
    live = 0
    for o in range(operators):
        live += work[W_LIVE, o]
        saved = 0
        if ops[o, OP_POINTWISE]:
            for a in range(ops[o, OP_FIRST], ops[o, OP_WRITES]):
                source = source_of(acc, ten, ops, a, level, work)
                if source < 0 or acc[a, ACC_FIXED] >= 0:
                    continue
                t = acc[a, ACC_TENSOR]
                last = work[W_LAST, source] if ten[t, TEN_HOME] <= level else ten[t, TEN_LAST]
                if last != o:
                    continue
                for b in range(ops[o, OP_WRITES], ops[o, OP_END]):
                    if (
                        ten[acc[b, ACC_TENSOR], TEN_HOME] <= level + 1
                        and acc[a, ACC_SHAPE] == acc[b, ACC_SHAPE]
                        and work[W_EFFECTIVE0 + W_PAIR * level, source]
                        == work[W_EFFECTIVE0 + W_PAIR * level, b]
                    ):
                        saved = max(saved, min(work[W_BYTES0, source], work[W_BYTES0, b]))
        peak = max(peak, live - saved)
    return peak


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64[:,::1], int64[:,::1])",
    borrows=True,
)
def buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work):
    """`level_peak` of a nest with one buffer."""
    return inline_buffer_peak(
        ops, acc, axes, ten, extents, loops, path, lengths, 0, 1, levels, stages, rows, work
    )


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64, int64, int64[:,::1], int64[:,::1])",
    borrows=True,
)
def level_peak(
    ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages, rows, work
):
    """Bytes held in the buffer of pair `level`, whose streams `work` has; W_TILE0 (elements), W_BYTES0 (one copy)."""
    return inline_buffer_peak(
        ops, acc, axes, ten, extents, loops, path, lengths, level, buffers, levels, stages, rows, work
    )


@kernel("boolean(int64[:,::1], int64[:,::1], int64, int64, int64)", borrows=True)
def reads_as(acc, ops, operator, tensor, shape):
    """Whether `operator` reads `tensor` with the axes numbered `shape`."""
    for a in range(ops[operator, OP_FIRST], ops[operator, OP_WRITES]):
        if acc[a, ACC_TENSOR] == tensor and acc[a, ACC_SHAPE] == shape:
            return True
    return False


@kernel(
    "int64(int64[:,::1], int64, int64, int64[:,::1], int64[::1], int64[:,::1], int64[:,::1])", borrows=True
)
def shared_loops(acc, tensor, producer, path, lengths, rows, work):
    """How many leading loops of the producer's remaining path all readers of `tensor` stand under as well."""
    shared = work[W_LENGTH, producer]
    for b in range(acc.shape[0]):
        if acc[b, ACC_TENSOR] != tensor or acc[b, ACC_WRITE]:
            continue
        q = acc[b, ACC_OPERATOR]
        common = 0
        i = 0
        while common < shared:
            while i < lengths[q] and path[q, i] != rows[producer, common]:
                i += 1
            if i == lengths[q]:
                break
            common += 1
        shared = min(shared, common)
    return shared


@kernel("boolean(int64[:,::1], int64, int64, int64[:,::1])", inline=True, borrows=True)
def repeats_earlier(acc, a, level, work):
    """Whether an earlier read of the same operator is the same stream at the registers."""
    b = acc[a, ACC_EARLIER]
    while b >= 0 and acc[b, ACC_OPERATOR] == acc[a, ACC_OPERATOR]:
        if work[W_DEPTH0 + W_PAIR * level, b] == work[W_DEPTH0 + W_PAIR * level, a]:
            return True
        b = acc[b, ACC_EARLIER]
    return False


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64,"
    " int64[:,::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def held_bytes(ops, acc, a, axes, ten, extents, loops, level, rows, work):
    """Bytes of the tile of access `a` in the registers."""
    o, t = acc[a, ACC_OPERATOR], acc[a, ACC_TENSOR]
    bits = ten[t, TEN_BITS]
    if acc[a, ACC_WRITE]:
        sums = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
        if unfinished(sums, rows[o], work[W_LENGTH, o], loops):
            bits = ten[t, TEN_PARTIAL]
    depth = work[W_DEPTH0 + W_PAIR * level, a]
    return (tile_elements(acc, a, axes, rows[o], depth, loops, extents) * bits + 7) // 8


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64, int64, int64[:,::1], int64[:,::1])",
    borrows=True,
)
def register_peak(ops, acc, axes, ten, extents, loops, path, lengths, level, fragments, rows, work):
    """Bytes held in the registers, inside pair `level`: tiles of contractions, and the intermediates at home there.

    Leaves the operator at the peak in ``work[W_SAVED, operators]``.
    """
    operators = ops.shape[0]
    for o in range(operators + 1):
        work[W_LIVE, o] = 0
        work[W_SAVED, o] = 0
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        t = acc[a, ACC_TENSOR]
        here = ten[t, TEN_HOME] == HOME_REGISTERS
        if acc[a, ACC_FIXED] >= 0 or not (here or ops[o, OP_CONTRACTION]):
            continue
        if acc[a, ACC_WRITE] == 0 and (here or fragments == 0 or repeats_earlier(acc, a, level, work)):
            continue
        size = held_bytes(ops, acc, a, axes, ten, extents, loops, level, rows, work)
        r = work[W_EFFECTIVE0 + W_PAIR * level, a]
        last = o
        if here:
            last = ten[t, TEN_LAST]
            r = min(r, shared_loops(acc, t, o, path, lengths, rows, work))
            if ops[last, OP_POINTWISE]:  # in place: a pointwise last reader whose output is at home here
                for b in range(ops[last, OP_WRITES], ops[last, OP_END]):
                    if ten[acc[b, ACC_TENSOR], TEN_HOME] != HOME_REGISTERS or acc[b, ACC_FIXED] >= 0:
                        continue
                    if reads_as(acc, ops, last, t, acc[b, ACC_SHAPE]):
                        other = held_bytes(ops, acc, b, axes, ten, extents, loops, level, rows, work)
                        work[W_SAVED, last] = max(work[W_SAVED, last], min(size, other))
        add_live(size, r, o, last, path, lengths, loops, rows, work)
    peak = 0
    live = 0
    where = 0
    for o in range(operators):
        live += work[W_LIVE, o]
        if live - work[W_SAVED, o] > peak:
            peak, where = live - work[W_SAVED, o], o
    work[W_SAVED, operators] = where
    return peak
