"""Kernels: about how many seconds a candidate takes, in closed form over the steps of the walk; its cores.

Knows arrays only: those of the nest, its counts and the machine's figures. It orders candidates; the walk over the
steps (`steps.py`, `timing.py`) is done once, for the mapping that wins.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .bands import band_points, band_sum, boxes_met, runs_of
from .boxes import fullest_core
from .candidate import (
    L_BLOCK_THREADS,
    L_BLOCKS,
    L_CAPACITY,
    L_FILE,
    L_THREAD_BYTES,
    L_THREADS,
    MOVED_COLUMNS,
    P_COPIES,
    P_LOADED,
    P_RESIDENT,
    P_STORED,
    P_TAIL_LOADED,
    P_VISITS,
)
from .cycles import (
    M_CACHE,
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
from .hits import (
    X_DRAM_IN,
    X_DRAM_OUT,
    X_IN,
    X_OUT,
)
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    ACC_DEPTH1,
    ACC_ELEMENTS,
    ACC_FIXED,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    AXIS_A,
    AXIS_B,
    AXIS_D0,
    AXIS_D1,
    AXIS_KIND,
    HOME_OUTER,
    HOME_REGISTERS,
    LOOP_DIM,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_BAND,
    OP_CONTRACTION,
    OP_DOMAIN,
    OP_DOMAIN_END,
    OP_END,
    OP_FIRST,
    OP_KEY,
    OP_OFFSET,
    OP_OWN,
    OP_QUERY,
    OP_RESCALE,
    OP_WINDOW,
    TEN_BITS,
    TEN_HOME,
    TEN_PARTIAL,
    W_EFFECTIVE0,
    W_LENGTH,
    WINDOW,
    axis_sum,
    window_span,
)


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64, float64, float64, int64[::1],"
    " int64[::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def registers_bytes(ops, acc, axes, ten, mat, o, points, kept, held, length, loops, path):
    """About how many bytes operator `o` moves between buffer and registers, at the tile lengths given.

    An operand of a contraction is read once per register tile of the dims that it does not touch, a window's elements
    once for all taps where these do not stream; the rest once; sums that wait in the buffer go there and come back once
    per visit but one. ``kept``: the part of its iterations that a band leaves.
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
            for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
                if axes[x, AXIS_KIND] == WINDOW and not mat[o, MAT_K] >> axes[x, AXIS_D1] & 1:
                    p, r = axes[x, AXIS_D0], axes[x, AXIS_D1]
                    p, r = min(length[p], held[p]), min(length[r], held[r])
                    moved *= window_span(p, r, axes[x, AXIS_A], axes[x, AXIS_B]) / (p * r)
        elif ops[o, OP_CONTRACTION]:
            visits = 1.0
            for j in range(acc[a, ACC_DEPTH1]):
                if others >> loops[path[o, j], LOOP_DIM] & 1:
                    visits *= loops[path[o, j], LOOP_TRIPS]
            visits = max(1.0, visits * kept)
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
    seconds = max(
        port / mach[M_PORT], spans[c, column + 1] / mach[M_DEVICE], spans[c, column + 2] / mach[M_CACHE]
    )
    if column != P_STORED and port > 0.0:
        flight = port * stages if resident == 0.0 else max(resident, port * (stages - 1))
        seconds = max(seconds, port * mach[M_LATENCY] / flight)
    return seconds


@kernel("float64(float64[:,::1], int64, int64, float64[::1])", borrows=True)
def first_seconds(spans, c, deepest, mach):
    """Seconds of the first load, of class `c` and of every step: its own bytes are all that is in flight."""
    port, device, cache = spans[deepest, P_LOADED], spans[deepest, P_LOADED + 1], spans[deepest, P_LOADED + 2]
    if c < deepest:
        port += spans[c, P_LOADED]
        device += spans[c, P_LOADED + 1]
        cache += spans[c, P_LOADED + 2]
    seconds = max(port / mach[M_PORT], device / mach[M_DEVICE], cache / mach[M_CACHE])
    return max(seconds, mach[M_LATENCY]) if port > 0.0 else 0.0


@kernel("float64(int64[:,::1], int64[:,::1], int64, int64, int64[::1], float64[:,::1])", borrows=True)
def tiles_along(loops, rows, o, j, extents, spans):
    """By how many tiles what all iterations of a loop do is divided, for what one does on the busiest core.

    Where cores are split over it, the busiest one has whole tiles alone; else the mean is over the ragged one too.
    """
    loop = rows[o, j]
    if spans[j + 1, P_COPIES] > spans[j, P_COPIES]:
        return extents[loops[loop, LOOP_DIM]] / loops[loop, LOOP_STEP]
    return float(loops[loop, LOOP_TRIPS])


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[::1], int64[:,::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], float64, int64, int64, float64[:,::1])",
    borrows=True,
)
def add_bursts(ops, acc, ten, o, extents, loops, rows, work, counts, heavy, deepest, loaded, spans):
    """Add what operator `o` moves to the steps that it is part of, `deepest` loops deep: means over its tiles.

    ``loaded``: the column of its loads. ``heavy``: of tiles that differ under a band those of the busiest core.
    """
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        into, out = counts[a, X_IN], counts[a, X_OUT]
        if into + out == 0:
            continue
        r = 0 if acc[a, ACC_FIXED] >= 0 else work[W_EFFECTIVE0, a]
        if ten[t, TEN_HOME] != HOME_OUTER:
            r = work[W_LENGTH, o]
        times = 8.0
        if ops[o, OP_BAND]:
            times *= runs_of(ops, o, rows[o], r, loops, extents)
            if acc[a, ACC_TOUCH] >> ops[o, OP_KEY] & 1:
                cut = acc[a, ACC_TOUCH] >> ops[o, OP_QUERY] & 1 == 0
                for j in range(r):
                    cut = cut and loops[rows[o, j], LOOP_DIM] != ops[o, OP_KEY]
                if cut or acc[a, ACC_TOUCH] >> ops[o, OP_QUERY] & 1:  # keys of a tile of queries, or pairs
                    times /= heavy
        else:
            for j in range(r):
                if acc[a, ACC_TOUCH] >> loops[rows[o, j], LOOP_DIM] & 1:
                    times *= tiles_along(loops, rows, o, j, extents, spans)
                else:
                    times *= loops[rows[o, j], LOOP_TRIPS]
        r = min(r, deepest)
        copies = spans[r, P_COPIES] / times
        spans[r, loaded] += into / times
        spans[r, loaded + 1] += counts[a, X_DRAM_IN] * copies
        spans[r, loaded + 2] += into * copies
        spans[r, P_STORED] += out / times
        spans[r, P_STORED + 1] += counts[a, X_DRAM_OUT] * copies
        spans[r, P_STORED + 2] += out * copies


@kernel(
    "float64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64, int64[::1], float64[:,::1])",
    borrows=True,
)
def visit_boxes(ops, o, row, deepest, loops, extents, independent, split, spans):
    """The busiest core's iterations of operator `o`, which has a band, into column P_VISITS of ``spans``.

    Returns how many points a step of this core has, in steps of the mean.
    """
    q, k, offset = ops[o, OP_QUERY], ops[o, OP_KEY], ops[o, OP_OFFSET]
    low = offset - ops[o, OP_WINDOW] + 1
    step_q, step_k, share_q, share_k, core, points = extents[q], extents[k], 1, 1, 0, 0
    leading = True
    others, boxes, heavy = 1.0, 1, 1.0
    for j in range(deepest):
        loop = row[j]
        d = loops[loop, LOOP_DIM]
        leading = leading and (independent >> d & 1) != 0
        share = split[d] if leading else 1
        if d == q:
            step_q, share_q = loops[loop, LOOP_STEP], share
            if share > 1:
                core, points = fullest_core(loop, o, share, 0, extents[k], extents[k], ops, loops, extents)
        elif d == k:
            step_k, share_k = loops[loop, LOOP_STEP], share
        else:
            others *= -(-loops[loop, LOOP_TRIPS] // share)
        if d in (q, k):
            boxes = boxes_met(
                core * step_q, step_q, share_q * step_q, extents[q], step_k, extents[k], low, offset
            )
            if points > 0:
                every = band_points(0, extents[q], 0, extents[k], offset, ops[o, OP_WINDOW])
                mean = every / band_sum(ops, o, 0, -1, row, j + 1, loops, extents)
                heavy = points / max(1, boxes) / mean
            if share_k > 1:  # of every tile of queries a part, rounded up
                tiles = -(-extents[q] // (share_q * step_q))
                boxes = max(1, min(boxes, (boxes + tiles * (share_k - 1) // 2) // share_k))
        spans[j + 1, P_VISITS] = others * boxes
    return heavy


@kernel("int64(int64[:,::1], int64[:,::1], int64, int64, int64)", borrows=True)
def shared_loops(rows, work, one, other, most):
    """How many outer loops, at most `most`, two operators stand under together, skipped loops taken out."""
    count = 0
    while (
        count < min(most, work[W_LENGTH, one], work[W_LENGTH, other])
        and rows[one, count] == rows[other, count]
    ):
        count += 1
    return count


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[:,::1], float64[::1], float64[::1],"
    " float64[::1], int64, int64[::1], float64, int64, int64, int64[::1], float64[:,::1])",
    borrows=True,
)
def estimate(
    ops, acc, axes, ten, extents, loops, rows, work, counts, points, unit, held, mat, rate, vector, mach, independent,
    split, resident, stages, rescale, length, spans,
):  # fmt: skip
    """About how many seconds the walk over the steps takes (docs/loop-tree.md, section 5), in closed form.

    The steps of an operator, with the vector work that follows in the same iteration as its tail, differ by the
    outermost loop that has just gone on: by it is known which tiles change. With two stages the bytes of a change
    hide behind one step's work; the first load and the last store behind none.
    """
    operators = ops.shape[0]
    total = 0.0
    kept = rows.shape[1] + 1  # rows of ``spans`` for the first operator's loads
    before, before_depth, head_depth = 0, 0, 0
    before_work, before_busiest, before_tail, before_visits = 0.0, 0.0, 0.0, 0.0
    head_work, head_each, head_base, head_busiest, head_beside = 0.0, 0.0, 0.0, 0.0, 0.0
    o = 0
    while o < operators:
        deepest = work[W_LENGTH, o]
        whole, steps = 1.0, 1.0
        leading = True
        for c in range(deepest + 1):
            for column in range(P_LOADED, P_RESIDENT):
                spans[c, column] = 0.0
        spans[0, P_VISITS] = 1.0
        spans[0, P_COPIES] = 1.0
        for j in range(deepest):
            loop = rows[o, j]
            d = loops[loop, LOOP_DIM]
            padded = -(-length[d] // unit[d]) * unit[d] / loops[loop, LOOP_STEP]
            length[d] = loops[loop, LOOP_STEP]
            leading = leading and (independent >> d & 1) != 0
            share = split[d] if leading else 1
            spans[j + 1, P_COPIES] = spans[j, P_COPIES] * share
            spans[j + 1, P_VISITS] = spans[j, P_VISITS] * -(-loops[loop, LOOP_TRIPS] // share)
            along = tiles_along(loops, rows, o, j, extents, spans)
            steps *= along
            whole *= along if share > 1 else padded
        for x in range(ops[o, OP_DOMAIN], ops[o, OP_DOMAIN_END]):  # the mean over its tiles
            d = axes[x, AXIS_D0]
            whole_axis = axis_sum(axes, x, rows[o], deepest, loops, extents)
            length[d] = -(-whole_axis // -(-extents[d] // length[d]))
            length[axes[x, AXIS_D1]] = 1
        every, heavy = steps, 1.0
        if ops[o, OP_BAND]:
            steps = runs_of(ops, o, rows[o], deepest, loops, extents)
            heavy = visit_boxes(ops, o, rows[o], deepest, loops, extents, independent, split, spans)
        left = steps / every
        add_bursts(ops, acc, ten, o, extents, loops, rows, work, counts, heavy, deepest, P_LOADED, spans)
        inner = registers_bytes(
            ops, acc, axes, ten, mat, o, float(points[o]), left, held, length, loops, rows
        )
        inner /= steps
        busy = vector[o] * np.ceil(points[o] / steps * heavy / mach[M_LANES])
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
            work_s, tail_s = cycles * min(whole / every, 1.0) / mach[M_CLOCK], busy
            while after < operators and not mat[after, MAT_USED]:
                depth = work[W_LENGTH, after]
                if depth > deepest or shared_loops(rows, work, o, after, depth) < depth:
                    break
                add_bursts(
                    ops, acc, ten, after, extents, loops, rows, work, counts, heavy, deepest, P_TAIL_LOADED,
                    spans,
                )  # fmt: skip
                inner += (
                    registers_bytes(
                        ops, acc, axes, ten, mat, after, float(points[after]), left, held, length, loops, rows
                    )
                    / steps
                )
                iterations = 1.0
                if ops[after, OP_BAND]:
                    iterations = runs_of(ops, after, rows[o], depth, loops, extents)
                else:
                    for j in range(depth):
                        iterations *= tiles_along(loops, rows, o, j, extents, spans)
                tail = vector[after] * np.ceil(points[after] / iterations * heavy / mach[M_LANES])
                tail_s += tail / mach[M_CLOCK]
                tail_depth = min(tail_depth, depth)
                after += 1
        for j in range(deepest):
            d = loops[rows[o, j], LOOP_DIM]
            length[d] = extents[d]
        for x in range(ops[o, OP_DOMAIN], ops[o, OP_DOMAIN_END]):
            length[axes[x, AXIS_D0]] = extents[axes[x, AXIS_D0]]
            length[axes[x, AXIS_D1]] = extents[axes[x, AXIS_D1]]
        visits = spans[deepest, P_VISITS]
        if stages < 2:
            work_s += tail_s * spans[tail_depth, P_VISITS] / visits
        work_s = max(work_s, inner * heavy / mach[M_ONCHIP])
        # Every step, then what the changes of the outer loops add to one of them each.
        each = 0.0
        for column in range(P_LOADED, P_RESIDENT, MOVED_COLUMNS):
            each += transfer_seconds(spans, deepest, column, stages, resident, mach)
        base = transfer_seconds(spans, deepest, P_LOADED, stages, resident, mach)
        busiest = max(work_s, each)
        seconds = visits * (work_s + each if stages < 2 else busiest)
        common = shared_loops(rows, work, o, before, deepest) if o > 0 else -1
        for c in range(deepest - 1, -1, -1):
            changes = spans[c, P_VISITS] - spans[c - 1, P_VISITS] if c > 0 else 1.0
            # A tail loads before the last step of the loops inside, and stores after it: at two steps in the same term.
            together = visits == 2.0 * spans[c, P_VISITS]
            waiting = 0.0
            for column in range(P_LOADED, P_RESIDENT, MOVED_COLUMNS):
                if c < deepest - 1:
                    for part in range(column, column + MOVED_COLUMNS):
                        spans[c, part] += spans[c + 1, part]
                more = transfer_seconds(spans, c, column, stages, resident, mach)
                alone = c == 0 and (
                    (o == 0 and column == P_LOADED) or (after == operators and column == P_STORED)
                )
                if (
                    alone and column == P_LOADED and stages >= 2
                ):  # with the step's own: nothing else is on its way
                    more = first_seconds(spans, c, deepest, mach) - base
                if stages < 2 or alone:
                    seconds += changes * more
                elif (
                    column == P_LOADED and o == 0
                ):  # beside its own steps, or those of the last one: known then
                    spans[kept + c, P_VISITS] = changes
                    spans[kept + c, P_LOADED] = more
                elif column == P_LOADED and c <= common:  # its first step loads beside the last one before it
                    seconds += changes * (max(before_work, base + more) - before_busiest)
                elif column == P_TAIL_LOADED and together:
                    waiting = more
                else:
                    seconds += changes * (max(work_s, each + more + waiting) - busiest)
                    waiting = 0.0
            if waiting > 0.0:
                seconds += changes * (max(work_s, each + waiting) - busiest)
        if stages >= 2:
            # A tail runs beside the next matrix step: one of its own, at the end of its loops one of what follows.
            beside = busiest if mat[o, MAT_USED] else each
            if o > 0:
                over = before_visits
                if before_depth > common:
                    over = min(over, spans[max(0, common), P_VISITS])
                    seconds += (before_visits - over) * max(0.0, before_tail - before_busiest)
                seconds += over * max(0.0, before_tail - beside)
            else:
                head_work, head_each, head_base, head_busiest, head_beside = (
                    work_s,
                    each,
                    base,
                    busiest,
                    beside,
                )
                head_depth = deepest
            if deepest == 0:  # nothing of its own to hide behind
                seconds = work_s + each
                if o == 0:
                    seconds += first_seconds(spans, 0, 0, mach) - base
            else:  # the first step stores nothing of one before it, the last loads nothing for one after it
                stored = transfer_seconds(spans, deepest, P_STORED, stages, resident, mach)
                if o == 0 and after == operators and visits == 1.0:
                    seconds += base + work_s + stored - busiest
                else:
                    if o == 0:
                        seconds += base + max(work_s, each - stored) - busiest
                    if after == operators:
                        seconds += stored + max(work_s, stored) - busiest
        before, before_work, before_busiest = o, work_s, busiest
        before_tail, before_depth, before_visits = tail_s, tail_depth, spans[tail_depth, P_VISITS]
        total += seconds
        o = after
    if stages < 2:
        return total
    # Round the loops, the first operator follows the last.
    common = shared_loops(rows, work, 0, before, head_depth) if before > 0 else -1
    for c in range(1, head_depth):
        changes, more = spans[kept + c, P_VISITS], spans[kept + c, P_LOADED]
        if c <= common:
            total += changes * (max(before_work, head_base + more) - before_busiest)
        else:
            total += changes * (max(head_work, head_each + more) - head_busiest)
    over = 0.0
    if before_depth <= common:
        over = before_visits
    total += max(0.0, over - 1.0) * max(0.0, before_tail - head_beside)
    return total + max(0.0, before_visits - over - 1.0) * max(0.0, before_tail - before_busiest) + before_tail
