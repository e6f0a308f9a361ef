"""Kernels: one candidate's tree, and at which depth each of its tiles stays (docs/loop-tree.md, sections 1, 2 and 6).

Knows arrays only: those of the nest (columns in `sweep.py`, without private loops). Knows no seconds.
"""

from __future__ import annotations

from ..compiled import kernel
from .candidate import (
    A_DEPTH,
    A_HOME,
    A_LEAST,
    L_FURTHER,
    L_LISTED,
    L_ROOM,
)
from .footprint import (
    buffer_peak,
)
from .sweep import (
    ACC_DEPTH0,
    ACC_DEPTH1,
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_OPERATOR,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_BUFFER,
    HOME_OUTER,
    HOME_REGISTERS,
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_AROUND,
    OP_CONTRACTION,
    OP_OWN,
    OP_TREE,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_BITS,
    TEN_HOME,
    TEN_PARTIAL,
    TEN_PRODUCER,
    TEN_SPILLED,
    W_BYTES0,
    W_DEPTH0,
    W_DEPTH1,
    W_EFFECTIVE0,
    W_EFFECTIVE1,
    W_LEADER,
    W_SKIP,
    WRITES,
    effective,
    tile_elements,
)
from .traffic import (
    count_access,
)


@kernel("int64(int64, int64[::1], int64[:,::1], int64)", borrows=True)
def whole_tile(d, extents, loops, given):
    """What the loops ``loops[:given]`` leave of dim `d` to be cut: the tile outside, else the extent."""
    size = extents[d]
    for loop in range(given):
        if loops[loop, LOOP_DIM] == d:
            size = min(size, loops[loop, LOOP_STEP])
    return size


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[:,::1])",
    borrows=True,
)
def branch(ops, barred, extents, tile, order, path, lengths, loops):
    """The canonical tree of a loop order: fills the paths and loops, and OP_TREE; returns the number of loops.

    Dim by dim, neighbours that have the dim and may share a loop over it form a run under one loop. Dims whose
    tile is the whole extent have no loop. An empty order keeps the tree that the arrays hold. Where the first OP_AROUND
    loops of the paths are given, the canonical tree grows at each place inside them, and cuts their tiles.
    """
    operators = ops.shape[0]
    if order.size == 0:  # the user's tree: only steps and trips follow the tile
        for loop in range(loops.shape[0] if extents.size else 0):
            d = loops[loop, LOOP_DIM]
            loops[loop, LOOP_STEP] = tile[d]
            loops[loop, LOOP_TRIPS] = -(-extents[d] // tile[d])
        for o in range(operators):
            ops[o, OP_TREE] = lengths[o]
        return loops.shape[0] if extents.size else 0
    given = 0
    for o in range(operators):
        lengths[o] = ops[o, OP_AROUND]
        for j in range(lengths[o]):
            given = max(given, path[o, j] + 1)
    number = given
    for i in range(order.size):
        d = order[i]
        whole = whole_tile(d, extents, loops, given)
        if tile[d] >= whole:
            continue
        inside = 0
        start = 0
        for o in range(operators):
            has = ops[o, OP_OWN] >> d & 1
            depth = lengths[o]
            # Under the same loops as the one before, which may stand under the new one by now.
            go_on = o > 0 and has == inside and lengths[o - 1] - inside == depth
            go_on = go_on and (depth == 0 or path[o - 1, depth - 1] == path[o, depth - 1])
            if has and go_on:
                for p in range(start, o):
                    go_on = go_on and not barred[p, o] >> d & 1
            if not go_on:
                start = o
                if has:
                    loops[number, LOOP_DIM] = d
                    loops[number, LOOP_STEP] = tile[d]
                    loops[number, LOOP_TRIPS] = -(-whole // tile[d])
                    loops[number, LOOP_FIRST] = o
                    number += 1
            if has:
                path[o, depth] = number - 1
                lengths[o] += 1
                loops[number - 1, LOOP_LAST] = o
            inside = has
    for o in range(operators):
        ops[o, OP_TREE] = lengths[o]
    return number


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], float64)",
    borrows=True,
)
def set_register_depth(ops, acc, axes, ten, extents, a, asked, loops, path, lengths, room):
    """The depth of access `a` at the registers, by its depth at the buffer; the home of what it writes.

    An output stays in the registers over as many of its sum loops of several trips as it fits in `room` bytes; over
    the others its partial sums go back to the buffer, and then the buffer is its home too.
    """
    o = acc[a, ACC_OPERATOR]
    acc[a, ACC_DEPTH1] = lengths[o]
    if not acc[a, ACC_WRITE]:
        return
    t = acc[a, ACC_TENSOR]
    ten[t, TEN_HOME] = asked[a, A_HOME]
    sums = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
    for j in range(acc[a, ACC_DEPTH0], lengths[o]):
        loop = path[o, j]
        if not sums >> loops[loop, LOOP_DIM] & 1 or loops[loop, LOOP_TRIPS] == 1:
            continue
        held = tile_elements(acc, a, axes, path[o], j, loops, extents)
        if not ops[o, OP_CONTRACTION] or held * ten[t, TEN_PARTIAL] <= 8.0 * room:
            acc[a, ACC_DEPTH1] = j
            return
        if ten[t, TEN_HOME] == HOME_REGISTERS:
            ten[t, TEN_HOME] = HOME_BUFFER


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1],"
    " int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], float64[::1])",
    borrows=True,
)
def set_depths(ops, acc, axes, ten, extents, tile, order, asked, loops, path, lengths, limits):
    """Depths where nothing is hoisted: tiles of the whole tree; intermediates where producer and readers part.

    ``asked[:, A_DEPTH]`` >= 0 is a depth that the user set; of the dims that the user listed it counts
    those of one trip too; in a further buffer it counts the loops as they are, those outside included.
    """
    for a in range(acc.shape[0]):
        o = acc[a, ACC_OPERATOR]
        t = acc[a, ACC_TENSOR]
        depth = lengths[o]
        if ten[t, TEN_HOME] != HOME_OUTER:
            p = ten[t, TEN_PRODUCER]
            depth = lengths[p]
            for b in range(acc.shape[0]):
                if acc[b, ACC_TENSOR] == t:
                    q = acc[b, ACC_OPERATOR]
                    common = 0
                    while common < min(depth, lengths[q]) and path[p, common] == path[q, common]:
                        common += 1
                    depth = common
        if asked[a, A_DEPTH] >= 0:
            wanted = asked[a, A_DEPTH]
            if order.size > 0 and limits[L_FURTHER] == 0.0:
                wanted, seen = 0, 0
                for i in range(order.size):
                    d = order[i]
                    cut = tile[d] < extents[d]
                    if ops[o, OP_OWN] >> d & 1 and seen < asked[a, A_DEPTH] and (cut or i < limits[L_LISTED]):
                        seen += 1
                        wanted += cut
            depth = max(min(depth, wanted), asked[a, A_LEAST])
        # Loops that the tensor does not see make no difference: equal tiles get equal depths, and can be shared.
        acc[a, ACC_DEPTH0] = effective(acc[a, ACC_TOUCH], path[o], depth, loops)
        set_register_depth(ops, acc, axes, ten, extents, a, asked, loops, path, lengths, limits[L_ROOM])


@kernel("void(int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[:,::1])", borrows=True)
def register_reach(ops, acc, a, loops, rows, work):
    """W_DEPTH1 and W_EFFECTIVE1 of access `a` from its depth, skipped loops taken out.

    The private loops of a contraction's outputs, which these arrays lack, stand between partial sums and the sum
    loops outside: such a loop is not passed over.
    """
    o = acc[a, ACC_OPERATOR]
    inner = acc[a, ACC_DEPTH1]
    gone = work[W_SKIP, o] & ((1 << inner) - 1)
    while gone:
        inner -= 1
        gone &= gone - 1
    work[W_DEPTH1, a] = inner
    if not (acc[a, ACC_WRITE] and ops[o, OP_CONTRACTION]):
        inner = effective(acc[a, ACC_TOUCH], rows[o], inner, loops)
    work[W_EFFECTIVE1, a] = inner


@kernel("int64(int64[::1], int64[::1])", borrows=True)
def traffic_bits(row, ten_row):
    """Bits that one access moves to and from outside."""
    whole = row[READS] + row[WRITES]
    return whole * ten_row[TEN_BITS] + (row[PARTIAL_READS] + row[PARTIAL_WRITES]) * ten_row[TEN_PARTIAL]


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], float64, int64, int64, int64[:,::1], int64[:,::1])",
    borrows=True,
)
def move_stream(ops, acc, axes, ten, extents, asked, loops, path, lengths, room, leader, depth, rows, work):
    """Set the depth of all accesses of a stream (no operator skips a loop in a canonical tree)."""
    for b in range(acc.shape[0]):
        if work[W_LEADER, b] == leader and acc[b, ACC_TENSOR] == acc[leader, ACC_TENSOR]:
            o = acc[b, ACC_OPERATOR]
            full = 0
            remaining = 0
            while remaining < depth:  # positions on the full path
                if not work[W_SKIP, o] >> full & 1:
                    remaining += 1
                full += 1
            acc[b, ACC_DEPTH0] = full
            set_register_depth(ops, acc, axes, ten, extents, b, asked, loops, path, lengths, room)
            work[W_DEPTH0, b] = depth
            work[W_EFFECTIVE0, b] = depth
            register_reach(ops, acc, b, loops, rows, work)


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], float64, int64, int64, int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def hoist(
    ops,
    acc,
    axes,
    ten,
    extents,
    loops,
    path,
    lengths,
    asked,
    room,
    levels,
    capacity,
    stages,
    peak,
    counts,
    rows,
    work,
):
    """Keep tiles further outside while they fit, most bits saved per byte held first; returns the new peak.

    ``asked[:, A_DEPTH]`` >= 0 marks accesses whose depth the user set. Readers of one stream move together. Depths,
    effective depths and counts of level 0 follow.
    """
    for _ in range(2 * acc.shape[0]):
        best, best_depth, best_gain = -1, 0, 0.0
        for a in range(acc.shape[0]):
            depth = work[W_EFFECTIVE0, a]
            if depth == 0 or work[W_LEADER, a] != a or asked[a, A_DEPTH] >= 0 or acc[a, ACC_FIXED] >= 0:
                continue
            t = acc[a, ACC_TENSOR]
            if ten[t, TEN_HOME] != HOME_OUTER or ten[t, TEN_SPILLED]:
                continue
            now = traffic_bits(counts[a], ten[t])
            if now <= acc[a, ACC_ELEMENTS] * ten[t, TEN_BITS]:
                continue
            o = acc[a, ACC_OPERATOR]
            held = work[W_BYTES0, a] * stages
            before = depth
            while depth > 0:
                depth = effective(acc[a, ACC_TOUCH], rows[o], depth - 1, loops)
                if depth < asked[a, A_LEAST]:
                    break
                elements = tile_elements(acc, a, axes, rows[o], depth, loops, extents)
                size = (elements * ten[t, TEN_BITS] + 7) // 8 * (stages if depth > 0 else 1)
                if peak + size - held > capacity:
                    break
                count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, depth, counts, rows, work)
                then = traffic_bits(counts[a], ten[t])
                gain = (now - then) / max(1.0, float(size - held))
                if then < now and gain > best_gain:
                    best, best_depth, best_gain = a, depth, gain
            count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, before, counts, rows, work)
        if best < 0:
            return peak
        before = work[W_EFFECTIVE0, best]
        move_stream(
            ops, acc, axes, ten, extents, asked, loops, path, lengths, room, best, best_depth, rows, work
        )
        after = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
        if after > capacity:
            move_stream(
                ops, acc, axes, ten, extents, asked, loops, path, lengths, room, best, before, rows, work
            )
            return buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
        count_access(ops, acc, axes, ten, extents, loops, 0, 1, best, best_depth, counts, rows, work)
        peak = after
    return peak
