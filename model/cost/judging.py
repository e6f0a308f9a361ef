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
    HOME_BUFFER,
    HOME_OUTER,
    HOME_REGISTERS,
    LOOP_DIM,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_CONTRACTION,
    OP_END,
    OP_FIRST,
    OP_OWN,
    OP_RESCALE,
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
    W_LENGTH,
    W_SKIP,
    WRITES,
    effective,
    step_of,
    tile_elements,
)
from .traffic import (
    count_access,
    prepare,
)

# Figures of one candidate, ``score`` float64[SCORES], compared from left to right.
S_MISFIT, S_REFETCH, S_COST, S_TRAFFIC, S_FOOTPRINT, S_STAGES, S_SECONDS = 0, 1, 2, 3, 4, 5, 6
S_FLOOR = 7  # of a search's winner: traffic in bits where everything is whole, 0 where that does not fit
SCORES = 8
# Limits of the search, ``limits`` float64[LIMITS].
L_CAPACITY, L_CORES, L_REGISTERS, L_DOUBLE, L_STAGES, L_ROOM = 0, 1, 2, 3, 4, 5
# On simt, else 0: threads and blocks of a core at most, a block's threads, a thread's bytes for tiles, bytes of a core.
L_THREADS, L_BLOCKS, L_BLOCK_THREADS, L_THREAD_BYTES, L_FILE = 6, 7, 8, 9, 10
L_LISTED = 11  # dims at the head of every order that the user listed
LIMITS = 12
# What is asked of an access, ``asked`` int64[accesses, ASKED]: depth at the buffer (-1: none), home of its tensor.
A_DEPTH, A_HOME = 0, 1
ASKED = 2


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
        for loop in range(loops.shape[0] if extents.size else 0):
            d = loops[loop, LOOP_DIM]
            loops[loop, LOOP_STEP] = tile[d]
            loops[loop, LOOP_TRIPS] = -(-extents[d] // tile[d])
        for o in range(operators):
            ops[o, OP_TREE] = lengths[o]
        return loops.shape[0] if extents.size else 0
    number = 0
    for o in range(operators):
        lengths[o] = 0
    for i in range(order.size):
        d = order[i]
        if tile[d] >= extents[d]:
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
    those of one trip too.
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
            if order.size > 0:
                wanted, seen = 0, 0
                for i in range(order.size):
                    d = order[i]
                    cut = tile[d] < extents[d]
                    if ops[o, OP_OWN] >> d & 1 and seen < asked[a, A_DEPTH] and (cut or i < limits[L_LISTED]):
                        seen += 1
                        wanted += cut
            depth = min(depth, wanted)
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
    " int64[::1], int64[:,::1], float64, int64, int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])",
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
        move_stream(
            ops, acc, axes, ten, extents, asked, loops, path, lengths, room, best, best_depth, rows, work
        )
        after = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
        if after > capacity:
            move_stream(
                ops, acc, axes, ten, extents, asked, loops, path, lengths, room, best, before, rows, work
            )
            return buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, 2, stages, rows, work)
        count_access(ops, acc, axes, ten, extents, loops, 0, best, best_depth, counts, rows, work)
        peak = after
    return peak


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64, float64, int64[::1], int64[::1], int64[:,::1],"
    " int64[:,::1])",
    borrows=True,
)
def registers_bytes(ops, acc, ten, o, points, held, length, loops, path):
    """About how many bytes operator `o` moves between buffer and registers, at the tile lengths given.

    An operand of a contraction is read once per register tile of the dims that it does not touch; the rest once; sums
    that wait in the buffer go there and come back once per visit but one.
    """
    total = 0.0
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        if ten[t, TEN_HOME] == HOME_REGISTERS:
            continue
        moved = float(acc[a, ACC_ELEMENTS])
        others = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
        if ops[o, OP_CONTRACTION] and acc[a, ACC_WRITE] == 0:
            moved = points
            for d in range(length.size):
                if others >> d & 1:
                    moved /= min(length[d], held[d])
        elif ops[o, OP_CONTRACTION]:
            visits = 1.0
            for j in range(acc[a, ACC_DEPTH1]):
                if others >> loops[path[o, j], LOOP_DIM] & 1:
                    visits *= loops[path[o, j], LOOP_TRIPS]
            total += moved * 2.0 * (visits - 1.0) * ten[t, TEN_PARTIAL] / 8.0
        total += moved * ten[t, TEN_BITS] / 8.0
    return total


@kernel("void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64, int64[::1])", borrows=True)
def split_cores(ops, loops, path, lengths, independent, cores, split):
    """Over how many cores each dim's outermost loop is split: the fewest waves, then the fewest cores, then outermost.

    Only loops outside every reduction are split (docs/loop-tree.md, section 4), and of these the first three.
    ``independent``: mask of dims that no operator reduces. ``split`` int64[dims]: 1 where a dim is not split.
    """
    split[:] = 1
    inner = 0
    for o in range(ops.shape[0]):
        free = True
        for j in range(lengths[o]):
            d = loops[path[o, j], LOOP_DIM]
            free = free and independent >> d & 1 != 0
            if not free:
                inner |= 1 << d
    # The three outermost, by dim and trips.
    d0, d1, d2 = -1, -1, -1
    t0, t1, t2 = 1, 1, 1
    seen = inner
    for o in range(ops.shape[0]):
        for j in range(lengths[o]):
            loop = path[o, j]
            d = loops[loop, LOOP_DIM]
            if not independent >> d & 1:
                break
            trips = loops[loop, LOOP_TRIPS]
            if seen >> d & 1 or trips == 1:
                continue
            seen |= 1 << d
            if d0 < 0:
                d0, t0 = d, trips
            elif d1 < 0:
                d1, t1 = d, trips
            elif d2 < 0:
                d2, t2 = d, trips
    if cores <= 1 or d0 < 0:
        return
    best_waves, best_used, best_first, best_second, best_third = 1 << 62, 1 << 62, 1, 1, 1
    # Only counts that change the iterations of the busiest core matter; the innermost takes what is left.
    first = 1
    while first <= cores:
        rows = -(-t0 // first)
        second = 1
        while first * second <= cores:
            columns = -(-t1 // second)
            deep = -(-t2 // min(t2, cores // (first * second)))
            third = -(-t2 // deep)
            waves, used = rows * columns * deep, first * second * third
            outermost = first > best_first or (first == best_first and second > best_second)
            if waves < best_waves or (
                waves == best_waves and (used < best_used or (used == best_used and outermost))
            ):
                best_waves, best_used = waves, used
                best_first, best_second, best_third = first, second, third
            if columns == 1:
                break
            second = -(-t1 // (columns - 1))
        if rows == 1:
            break
        first = -(-t0 // (rows - 1))
    split[d0] = best_first
    if d1 >= 0:
        split[d1] = best_second
    if d2 >= 0:
        split[d2] = best_third


# An operator's steps by how many loops go on, ``spans`` float64[depths, SPAN_COLUMNS]: steps of the busiest core, cores
# that have a tile of their own, and what is moved where so many loops stand outside the tile: bytes of one core's port,
# then of the device for all cores at work, for the loads, the loads of the tail, and the stores of both.
P_VISITS, P_COPIES, P_LOADED, P_TAIL_LOADED, P_STORED = 0, 1, 2, 4, 6
SPAN_COLUMNS = 8


@kernel("float64(float64[::1], float64, float64)", borrows=True)
def resident_bytes(limits, block, live):
    """Bytes that the resident threads of a simt core have in flight; 0 elsewhere (`registers.occupancy`).

    ``block``: scratchpad bytes of a block; ``live``: register bytes of its tiles.
    """
    if limits[L_THREADS] == 0.0:
        return 0.0
    threads = limits[L_BLOCK_THREADS]
    if threads == 0.0:
        threads = 128.0
        while threads * 2.0 <= min(1024.0, limits[L_THREADS]) and live > threads * limits[L_THREAD_BYTES]:
            threads *= 2.0
    blocks = min(limits[L_THREADS] // threads, limits[L_BLOCKS])
    blocks = min(blocks, limits[L_CAPACITY] // max(1.0, block), limits[L_FILE] // (live + threads * 96.0))
    return max(1.0, blocks) * threads * 16.0


@kernel("float64(float64[:,::1], int64, int64, int64, float64, float64[::1])", borrows=True)
def transfer_seconds(spans, c, column, stages, resident, mach):
    """Seconds that a step's bytes take; a load is also bound by what is in flight (as `timing.load_seconds`)."""
    port = spans[c, column]
    seconds = max(port / mach[M_PORT], spans[c, column + 1] / mach[M_DEVICE])
    if column != P_STORED and port > 0.0:
        flight = port * stages if resident == 0.0 else max(resident, port * (stages - 1))
        seconds = max(seconds, port * mach[M_LATENCY] / flight)
    return seconds


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1],"
    " int64, int64, float64[:,::1])",
    borrows=True,
)
def add_bursts(ops, acc, ten, o, loops, rows, work, counts, deepest, loaded, spans):
    """Add what operator `o` moves to the steps that it is part of, `deepest` loops deep: means over its tiles.

    ``loaded``: the column of its loads.
    """
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        bits, partial = ten[t, TEN_BITS], ten[t, TEN_PARTIAL]
        into = counts[a, READS] * bits + counts[a, PARTIAL_READS] * partial
        out = counts[a, WRITES] * bits + counts[a, PARTIAL_WRITES] * partial
        if into + out == 0:
            continue
        r = 0 if acc[a, ACC_FIXED] >= 0 else work[W_EFFECTIVE0, a]
        if ten[t, TEN_HOME] != HOME_OUTER:
            r = work[W_LENGTH, o]
        times = 8.0
        for j in range(r):
            times *= loops[rows[o, j], LOOP_TRIPS]
        r = min(r, deepest)
        spans[r, loaded] += into / times
        spans[r, loaded + 1] += into / times * spans[r, P_COPIES]
        spans[r, P_STORED] += out / times
        spans[r, P_STORED + 1] += out / times * spans[r, P_COPIES]


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[::1], int64[::1], int64[:,::1], float64[::1], float64[::1], float64[::1], int64,"
    " int64[::1], float64, int64, int64, int64[::1], float64[:,::1])",
    borrows=True,
)
def estimate(
    ops, acc, ten, extents, loops, rows, work, counts, points, unit, held, mat, rate, vector, mach, independent,
    split, resident, stages, rescale, length, spans,
):  # fmt: skip
    """About how many seconds the walk over the steps takes (docs/loop-tree.md, section 5), in closed form.

    The steps of an operator, with the vector work that follows in the same iteration as its tail, differ by the
    outermost loop that has just gone on: by it is known which tiles change. With two stages the bytes of a change
    hide behind one step's work; the first load and the last store behind none.
    """
    operators = ops.shape[0]
    total = 0.0
    last_tail = 0.0
    o = 0
    while o < operators:
        deepest = work[W_LENGTH, o]
        whole, steps = 1.0, 1.0
        leading = True
        for c in range(deepest + 1):
            for column in range(P_LOADED, SPAN_COLUMNS):
                spans[c, column] = 0.0
        spans[0, P_VISITS] = 1.0
        spans[0, P_COPIES] = 1.0
        for j in range(deepest):
            loop = rows[o, j]
            d = loops[loop, LOOP_DIM]
            length[d] = loops[loop, LOOP_STEP]
            steps *= loops[loop, LOOP_TRIPS]
            whole *= -(-extents[d] // unit[d]) * unit[d] / loops[loop, LOOP_STEP]
            leading = leading and (independent >> d & 1) != 0
            share = split[d] if leading else 1
            spans[j + 1, P_COPIES] = spans[j, P_COPIES] * share
            spans[j + 1, P_VISITS] = spans[j, P_VISITS] * -(-loops[loop, LOOP_TRIPS] // share)
        add_bursts(ops, acc, ten, o, loops, rows, work, counts, deepest, P_LOADED, spans)
        inner = registers_bytes(ops, acc, ten, o, float(points[o]), held, length, loops, rows) / steps
        busy = vector[o] * np.ceil(points[o] / steps / mach[M_LANES])
        if ops[o, OP_RESCALE]:
            busy += rescale * mach[M_RESCALE] / steps / mach[M_LANES]
        busy /= mach[M_CLOCK]
        work_s, tail_s, tail_depth = busy, 0.0, deepest
        after = o + 1
        if mat[o, MAT_USED]:
            cycles = matrix_cycles(
                mach, rate[o], volume(mat[o, MAT_M], length), volume(mat[o, MAT_N], length),
                volume(mat[o, MAT_K], length), volume(mat[o, MAT_PRODUCTS], length),
            )  # fmt: skip
            work_s, tail_s = cycles * min(whole / steps, 1.0) / mach[M_CLOCK], busy
            while after < operators and not mat[after, MAT_USED]:
                depth = work[W_LENGTH, after]
                same = depth <= deepest
                for j in range(min(depth, deepest)):
                    same = same and rows[after, j] == rows[o, j]
                if not same:
                    break
                add_bursts(ops, acc, ten, after, loops, rows, work, counts, deepest, P_TAIL_LOADED, spans)
                inner += (
                    registers_bytes(ops, acc, ten, after, float(points[after]), held, length, loops, rows)
                    / steps
                )
                iterations = 1.0
                for j in range(depth):
                    iterations *= loops[rows[o, j], LOOP_TRIPS]
                tail_s += vector[after] * np.ceil(points[after] / iterations / mach[M_LANES]) / mach[M_CLOCK]
                tail_depth = min(tail_depth, depth)
                after += 1
        for j in range(deepest):
            d = loops[rows[o, j], LOOP_DIM]
            length[d] = extents[d]
        visits = spans[deepest, P_VISITS]
        if stages < 2:
            work_s += tail_s * spans[tail_depth, P_VISITS] / visits
        elif tail_depth == deepest:
            work_s = max(work_s, tail_s)
        work_s = max(work_s, inner / mach[M_ONCHIP])
        # Every step, then what the changes of the outer loops add to one of them each.
        each = 0.0
        for column in range(P_LOADED, SPAN_COLUMNS, 2):
            each += transfer_seconds(spans, deepest, column, stages, resident, mach)
        busiest = max(work_s, each)
        seconds = visits * (work_s + each if stages < 2 else busiest)
        for c in range(deepest - 1, -1, -1):
            changes = spans[c, P_VISITS] - spans[c - 1, P_VISITS] if c > 0 else 1.0
            # A tail loads before the last step of the loops inside, and stores after it: at two steps in the same term.
            together = visits == 2.0 * spans[c, P_VISITS]
            waiting = 0.0
            for column in range(P_LOADED, SPAN_COLUMNS, 2):
                if c < deepest - 1:
                    spans[c, column] += spans[c + 1, column]
                    spans[c, column + 1] += spans[c + 1, column + 1]
                more = transfer_seconds(spans, c, column, stages, resident, mach)
                alone = c == 0 and (
                    (o == 0 and column == P_LOADED) or (after == operators and column == P_STORED)
                )
                if stages < 2 or alone:
                    seconds += changes * more
                elif column == P_TAIL_LOADED and together:
                    waiting = more
                else:
                    seconds += changes * (max(work_s, each + more + waiting) - busiest)
                    waiting = 0.0
            if waiting > 0.0:
                seconds += changes * (max(work_s, each + waiting) - busiest)
        if stages >= 2:
            if tail_depth < deepest:
                seconds += spans[tail_depth, P_VISITS] * max(0.0, tail_s - busiest)
            last_tail = tail_s
            if deepest == 0:  # nothing of its own to hide behind
                seconds = work_s + each
            else:
                if o == 0:
                    seconds += transfer_seconds(spans, deepest, P_LOADED, stages, resident, mach)
                if after == operators:
                    seconds += transfer_seconds(spans, deepest, P_STORED, stages, resident, mach)
        total += seconds
        o = after
    return total + last_tail


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1], float64[::1], float64[::1], int64,"
    " float64[::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1],"
    " float64[:,::1], float64[::1])",
    borrows=True,
)
def judge(
    ops, acc, axes, ten, extents, loops, path, lengths, asked, unit, held, mat, rate, vector, mach, independent, limits,
    counts, points, rows, work, length, split, spans, score,
):  # fmt: skip
    """Score one tree with its tiles: does it fit, at how many stages, how long, how much traffic.

    The seconds are an estimate; the walk over the steps is done once, for the mapping that wins.
    """
    rescale = prepare(ops, acc, ten, extents, loops, path, lengths, 2, points, rows, work)
    for a in range(acc.shape[0]):
        register_reach(ops, acc, a, loops, rows, work)
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
        ops,
        acc,
        axes,
        ten,
        extents,
        loops,
        path,
        lengths,
        asked,
        limits[L_ROOM],
        capacity,
        stages,
        peak,
        counts,
        rows,
        work,
    )
    bits = 0
    for a in range(acc.shape[0]):
        bits += traffic_bits(counts[a], ten[acc[a, ACC_TENSOR]])
    split_cores(ops, loops, path, lengths, independent, int(limits[L_CORES]), split)
    # Sums that wait in the registers for their next terms wait together, beside each other.
    unfinished, returns, used, live = 0.0, 0.0, 1.0, 0.0
    for d in range(extents.size):
        used *= split[d]
    for o in range(ops.shape[0]):
        steps = 1.0
        for j in range(lengths[o]):
            steps *= loops[path[o, j], LOOP_TRIPS]
        for a in range(ops[o, OP_WRITES], ops[o, OP_END]):
            if not ops[o, OP_CONTRACTION]:
                continue
            elements = tile_elements(acc, a, axes, path[o], acc[a, ACC_DEPTH1], loops, extents)
            size = float(elements * ten[acc[a, ACC_TENSOR], TEN_PARTIAL]) / 8.0
            if acc[a, ACC_DEPTH1] < lengths[o]:
                unfinished += size
                returns = max(returns, steps / used)
            else:
                for d in range(extents.size):
                    if acc[a, ACC_TOUCH] >> d & 1:
                        size *= min(1.0, held[d] / step_of(d, path[o], lengths[o], loops, extents))
            live = max(live, size)
    resident = resident_bytes(limits, float(peak), max(live, unfinished))
    seconds = estimate(
        ops, acc, ten, extents, loops, rows, work, counts, points, unit, held, mat, rate, vector, mach, independent,
        split, resident, stages, rescale, length, spans,
    )  # fmt: skip
    width = min(mach[M_PORT] * used, mach[M_DEVICE])
    excess = max(0.0, unfinished - limits[L_REGISTERS])
    seconds += 2.0 * excess * returns / (width if excess > capacity - peak else mach[M_ONCHIP])
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
