"""Kernels: one candidate of the mapping search: its tree, depths, retention, and what it would cost.

Knows arrays only: those of the nest (columns in `sweep.py`, without private loops) and the machine's figures. The
seconds are an estimate that orders candidates; the walk over the steps is done once, for the mapping that wins.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .cycles import (
    M_CLOCK,
    M_DEVICE,
    M_LANES,
    M_LATENCY,
    M_ONCHIP,
    M_PORT,
    M_RESCALE,
    MAT_K,
    MAT_M,
    MAT_N,
    MAT_PRODUCTS,
    MAT_USED,
    matrix_cycles,
    volume,
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
    HOME_OUTER,
    HOME_REGISTERS,
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_END,
    OP_FIRST,
    OP_OWN,
    OP_TREE,
    OP_WRITES,
    PARTIAL_READS,
    PARTIAL_WRITES,
    READS,
    TEN_BITS,
    TEN_HOME,
    TEN_PARTIAL,
    TEN_PRODUCER,
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
    prepare,
)

# Figures of one candidate, ``score`` float64[SCORES], compared from left to right.
S_MISFIT, S_REFETCH, S_COST, S_TRAFFIC, S_FOOTPRINT, S_STAGES, S_SECONDS = 0, 1, 2, 3, 4, 5, 6
SCORES = 7
# Limits of the search, ``limits`` float64[LIMITS].
L_CAPACITY, L_CORES, L_REGISTERS, L_DOUBLE, L_STAGES, L_SIMT = 0, 1, 2, 3, 4, 5
LIMITS = 6


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[:,::1])",
    borrows=True,
)
def branch(ops, barred, extents, tile, order, path, lengths, loops):
    """The canonical tree of a loop order: fills the paths and loops, and OP_TREE; returns the number of loops.

    Dim by dim, neighbours that have the dim and may share a loop over it form a run under one loop. Dims whose
    tile is the whole extent have no loop. An empty order keeps the tree that the arrays hold.
    """
    operators = ops.shape[0]
    if order.size == 0:  # the user's tree: only steps and trips follow the tile
        for loop in range(loops.shape[0]):
            d = loops[loop, LOOP_DIM]
            loops[loop, LOOP_STEP] = tile[d]
            loops[loop, LOOP_TRIPS] = -(-extents[d] // tile[d])
        for o in range(operators):
            ops[o, OP_TREE] = lengths[o]
        return loops.shape[0]
    number = 0
    for o in range(operators):
        lengths[o] = 0
    for i in range(order.size):
        d = order[i]
        if d < 0 or tile[d] >= extents[d]:
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
                    loops[number, LOOP_TRIPS] = -(-extents[d] // tile[d])
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


@kernel("void(int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[::1])", borrows=True)
def set_register_depth(ops, acc, a, loops, path, lengths):
    """The depth of access `a` at the registers, by its depth at the buffer."""
    o = acc[a, ACC_OPERATOR]
    acc[a, ACC_DEPTH1] = lengths[o]
    if acc[a, ACC_WRITE]:
        for j in range(acc[a, ACC_DEPTH0], lengths[o]):
            loop = path[o, j]
            sums = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
            if sums >> loops[loop, LOOP_DIM] & 1 and loops[loop, LOOP_TRIPS] > 1:
                acc[a, ACC_DEPTH1] = j
                break


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[:,::1], int64[:,::1], int64[::1])",
    borrows=True,
)
def set_depths(ops, acc, ten, extents, tile, order, kept, loops, path, lengths):
    """Depths where nothing is hoisted: tiles of the whole tree; intermediates where producer and readers part.

    At the registers an output stays just outside its outermost sum loop of several trips inside its depth.
    ``kept`` >= 0 is a depth that the user set; it counts the loops of the order, those of one trip too.
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
        if kept[a] >= 0:
            wanted = kept[a]
            if order.size > 0:
                wanted, seen = 0, 0
                for i in range(order.size):
                    d = order[i]
                    if d >= 0 and ops[o, OP_OWN] >> d & 1 and seen < kept[a]:
                        seen += 1
                        wanted += tile[d] < extents[d]
            depth = min(depth, wanted)
        # Loops that the tensor does not see make no difference: equal tiles get equal depths, and can be shared.
        acc[a, ACC_DEPTH0] = effective(acc[a, ACC_TOUCH], path[o], depth, loops)
        set_register_depth(ops, acc, a, loops, path, lengths)


@kernel("int64(int64[::1], int64[::1])", borrows=True)
def traffic_bits(row, ten_row):
    """Bits that one access moves to and from outside."""
    whole = row[READS] + row[WRITES]
    return whole * ten_row[TEN_BITS] + (row[PARTIAL_READS] + row[PARTIAL_WRITES]) * ten_row[TEN_PARTIAL]


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64,"
    " int64[:,::1], int64[:,::1])",
    borrows=True,
)
def move_stream(ops, acc, ten, loops, path, lengths, leader, depth, rows, work):
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
            set_register_depth(ops, acc, b, loops, path, lengths)
            work[W_DEPTH0, b] = depth
            work[W_EFFECTIVE0, b] = depth
            inner = acc[b, ACC_DEPTH1]
            gone = work[W_SKIP, o] & ((1 << inner) - 1)
            while gone:
                inner -= 1
                gone &= gone - 1
            work[W_DEPTH1, b] = inner
            work[W_EFFECTIVE1, b] = effective(acc[b, ACC_TOUCH], rows[o], inner, loops)


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[::1], int64, int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def hoist(
    ops, acc, axes, ten, extents, loops, path, lengths, kept, capacity, stages, peak, counts, rows, work
):
    """Keep tiles further outside while they fit, most bits saved per byte held first; returns the new peak.

    ``kept`` >= 0 marks accesses whose depth the user set. Readers of one stream move together. Depths, effective
    depths and counts of level 0 follow.
    """
    for _ in range(2 * acc.shape[0]):
        best, best_depth, best_gain = -1, 0, 0.0
        for a in range(acc.shape[0]):
            depth = work[W_EFFECTIVE0, a]
            if depth == 0 or work[W_LEADER, a] != a or kept[a] >= 0 or acc[a, ACC_FIXED] >= 0:
                continue
            t = acc[a, ACC_TENSOR]
            if ten[t, TEN_HOME] != HOME_OUTER:
                continue
            now = traffic_bits(counts[a], ten[t])
            if now <= acc[a, ACC_ELEMENTS] * ten[t, TEN_BITS]:
                continue
            o = acc[a, ACC_OPERATOR]
            held = work[W_BYTES0, a] * stages
            before = depth
            while depth > 0:
                depth = effective(acc[a, ACC_TOUCH], rows[o], depth - 1, loops)
                elements = tile_elements(acc, a, axes, rows[o], depth, loops, extents)
                size = (elements * ten[t, TEN_BITS] + 7) // 8 * (stages if depth > 0 else 1)
                if peak + size - held > capacity:
                    break
                count_access(ops, acc, axes, ten, extents, loops, 0, a, depth, counts, rows, work)
                then = traffic_bits(counts[a], ten[t])
                gain = (now - then) / max(1.0, float(size - held))
                if then < now and gain > best_gain:
                    best, best_depth, best_gain = a, depth, gain
            count_access(ops, acc, axes, ten, extents, loops, 0, a, before, counts, rows, work)
        if best < 0:
            return peak
        before = work[W_EFFECTIVE0, best]
        move_stream(ops, acc, ten, loops, path, lengths, best, best_depth, rows, work)
        after = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
        if after > capacity:
            move_stream(ops, acc, ten, loops, path, lengths, best, before, rows, work)
            return buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
        count_access(ops, acc, axes, ten, extents, loops, 0, best, best_depth, counts, rows, work)
        peak = after
    return peak


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64, float64, int64[::1], int64[::1], int64)",
    borrows=True,
)
def registers_bytes(ops, acc, ten, o, points, held, length, matrix):
    """About how many bytes operator `o` moves between buffer and registers, at the tile lengths given.

    An operand of the matrix unit is read once per register tile of the dims that it does not touch; the rest once.
    """
    total = 0.0
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        if ten[t, TEN_HOME] == HOME_REGISTERS:
            continue
        moved = float(acc[a, ACC_ELEMENTS])
        if matrix and acc[a, ACC_WRITE] == 0:
            moved = points
            for d in range(length.size):
                if (ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]) >> d & 1:
                    moved /= min(length[d], held[d])
        total += moved * ten[t, TEN_BITS] / 8.0
    return total


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def fetches(ops, acc, ten, o, path, loops, work):
    """Steps of operator `o` that load something from outside."""
    depth = -1
    for a in range(ops[o, OP_FIRST], ops[o, OP_WRITES]):
        if ten[acc[a, ACC_TENSOR], TEN_HOME] == HOME_OUTER and work[W_LEADER, a] == a:
            depth = max(depth, work[W_EFFECTIVE0, a])
    if depth < 0:
        return 0.0
    steps = 1.0
    for j in range(depth):
        steps *= loops[path[o, j], LOOP_TRIPS]
    return steps


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], float64[::1], float64[::1], float64[::1], int64,"
    " float64[::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], float64[::1])",
    borrows=True,
)
def judge(
    ops, acc, axes, ten, extents, loops, path, lengths, kept, unit, held, mat, rate, vector, mach, independent, limits,
    counts, points, rows, work, length, score,
):  # fmt: skip
    """Score one tree with its tiles: does it fit, at how many stages, how long, how much traffic.

    The seconds are an estimate of the pipeline: first load, then the larger of compute and the rest of the
    traffic, then last store. The walk over the steps is done once, for the mapping that wins.
    """
    rescale = prepare(ops, acc, ten, extents, loops, path, lengths, 2, points, rows, work)
    capacity = int(limits[L_CAPACITY])
    stages = (
        1 if limits[L_DOUBLE] == 0.0 else (int(min(2.0, limits[L_STAGES])) if limits[L_STAGES] > 0.0 else 2)
    )
    peak = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
    if peak > capacity and stages == 2 and limits[L_STAGES] == 0.0:
        stages = 1
        peak = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
    score[S_MISFIT] = max(0, peak - capacity)
    score[S_REFETCH:] = 0.0
    score[S_STAGES] = stages
    score[S_FOOTPRINT] = peak
    if peak > capacity:
        return
    for a in range(acc.shape[0]):
        count_access(ops, acc, axes, ten, extents, loops, 0, a, work[W_EFFECTIVE0, a], counts, rows, work)
    peak = hoist(
        ops, acc, axes, ten, extents, loops, path, lengths, kept, capacity, stages, peak, counts, rows, work
    )
    bits, inward = 0, 0
    first, final = 0.0, 0.0
    end = ops.shape[0] - 1
    for a in range(acc.shape[0]):
        t = acc[a, ACC_TENSOR]
        bits += traffic_bits(counts[a], ten[t])
        inward += counts[a, READS] * ten[t, TEN_BITS] + counts[a, PARTIAL_READS] * ten[t, TEN_PARTIAL]
        if ten[t, TEN_HOME] == HOME_OUTER and work[W_LEADER, a] == a:
            if acc[a, ACC_OPERATOR] == 0 and acc[a, ACC_WRITE] == 0:
                first += work[W_BYTES0, a]
            if acc[a, ACC_OPERATOR] == end and acc[a, ACC_WRITE]:
                final += work[W_BYTES0, a]
    matrix, lead, tail, unfinished, returns, inner = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    most, used = 0.0, 1.0
    seen = False
    for o in range(ops.shape[0]):
        steps, real, tiles = 1.0, 1.0, 1.0
        leading = True
        for j in range(lengths[o]):
            loop = path[o, j]
            d = loops[loop, LOOP_DIM]
            length[d] = loops[loop, LOOP_STEP]
            steps *= loops[loop, LOOP_TRIPS]
            real *= -(-extents[d] // unit[d]) * unit[d] / loops[loop, LOOP_STEP]
            leading = leading and (independent >> d & 1) != 0
            if leading:
                tiles *= loops[loop, LOOP_TRIPS]
        share = tiles / np.ceil(tiles / limits[L_CORES])
        used = max(used, share)
        most += fetches(ops, acc, ten, o, path, loops, work) / share
        if mat[o, MAT_USED]:
            seen = True
            cycles = matrix_cycles(
                mach, rate[o], volume(mat[o, MAT_M], length), volume(mat[o, MAT_N], length),
                volume(mat[o, MAT_K], length), volume(mat[o, MAT_PRODUCTS], length),
            )  # fmt: skip
            matrix += cycles * min(real, steps) / share
            for a in range(ops[o, OP_WRITES], ops[o, OP_END]):
                if acc[a, ACC_DEPTH1] < lengths[o]:
                    elements = tile_elements(acc, a, axes, path[o], acc[a, ACC_DEPTH1], loops, extents)
                    # Sums that wait for their next terms wait together, beside each other.
                    unfinished += float(elements * ten[acc[a, ACC_TENSOR], TEN_PARTIAL]) / 8.0
                    returns = max(returns, steps / share)
        if mach[M_ONCHIP] < 1e29:
            inner += (
                registers_bytes(ops, acc, ten, o, float(points[o]), held, length, mat[o, MAT_USED]) / share
            )
        busy = vector[o] * points[o] / mach[M_LANES] / share
        if seen:
            tail += busy
        else:
            lead += busy
        for j in range(lengths[o]):
            d = loops[path[o, j], LOOP_DIM]
            length[d] = extents[d]
    tail += rescale * mach[M_RESCALE] / mach[M_LANES] / used
    width = min(mach[M_PORT] * used, mach[M_DEVICE])
    moving = bits / 8.0 / width
    excess = max(0.0, unfinished - limits[L_REGISTERS])
    spilled = 2.0 * excess * returns
    onchip = spilled / mach[M_ONCHIP]
    if excess > capacity - peak:
        moving += spilled / width
        onchip = 0.0
    # A step's load takes at least its share of the latency: a tile in flight per stage, on simt per copy ahead.
    ahead = max(1.0, stages - limits[L_SIMT])
    moving += max(0.0, most * mach[M_LATENCY] / ahead - inward / 8.0 / width)
    first = min(first / mach[M_PORT], moving)
    final = min(final / mach[M_PORT], moving - first)
    if stages >= 2:
        busy = max((lead + max(matrix, tail)) / mach[M_CLOCK] + onchip, inner / mach[M_ONCHIP])
        seconds = first + final + max(busy, moving - first - final)
    else:
        seconds = max((lead + matrix + tail) / mach[M_CLOCK] + onchip, inner / mach[M_ONCHIP]) + moving
    score[S_TRAFFIC] = bits
    score[S_FOOTPRINT] = peak
    score[S_SECONDS] = seconds
    score[S_COST] = seconds + bits / 64.0 / width


@kernel("boolean(float64[::1], float64[::1])", borrows=True)
def better(one, other):
    """Whether score `one` comes before `other`: fits, no needless refetch, cost, traffic, footprint."""
    for i in range(S_FOOTPRINT + 1):
        margin = 1e-9 * abs(other[i])
        if one[i] < other[i] - margin:
            return True
        if one[i] > other[i] + margin:
            return False
    return False
