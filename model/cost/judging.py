"""Kernels: the score of one candidate of the mapping search, and which of two scores is better.

Knows arrays only: those of the nest (columns in `sweep.py`, without private loops) and the machine's figures.
"""

from __future__ import annotations

from ..compiled import kernel
from .candidate import (
    A_LEAST,
    A_WIDE,
    L_CAPACITY,
    L_CORES,
    L_DOUBLE,
    L_FAR,
    L_LEVELS,
    L_NEAR,
    L_REGISTERS,
    L_ROOM,
    L_SHARE,
    L_STAGES,
    P_RESIDENT,
    S_COST,
    S_FETCHED,
    S_FOOTPRINT,
    S_MISFIT,
    S_REFETCH,
    S_SECONDS,
    S_STAGES,
    S_TRAFFIC,
)
from .cycles import (
    M_DEVICE,
    M_ONCHIP,
    M_PORT,
)
from .estimate import estimate, resident_bytes, split_cores
from .footprint import (
    buffer_peak,
)
from .hits import X_DRAM_IN, X_DRAM_OUT, X_PLAIN_IN, X_PLAIN_OUT, cross
from .retention import hoist, register_reach
from .sweep import (
    ACC_DEPTH1,
    ACC_OPERATOR,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    HOME_OUTER,
    LOOP_DIM,
    LOOP_TRIPS,
    OP_CONTRACTION,
    OP_END,
    OP_OWN,
    OP_WRITES,
    TEN_BITS,
    TEN_HOME,
    TEN_PARTIAL,
    W_EFFECTIVE0,
    step_of,
    tile_elements,
)
from .traffic import (
    count_access,
    prepare,
)


@kernel(
    "boolean(int64[:,::1], int64[:,::1], int64[:,::1], int64, int64[:,::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def leaves_sums(ops, acc, ten, a, loops, rows, work):
    """Whether output `a` is put down outside with unfinished sums."""
    o = acc[a, ACC_OPERATOR]
    if ten[acc[a, ACC_TENSOR], TEN_HOME] != HOME_OUTER:
        return False
    sums = ops[o, OP_OWN] & ~acc[a, ACC_TOUCH]
    for j in range(work[W_EFFECTIVE0, a]):
        loop = rows[o, j]
        if sums >> loops[loop, LOOP_DIM] & 1 and loops[loop, LOOP_TRIPS] > 1:
            return True
    return False


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

    The seconds are an estimate; the walk over the steps is done once, for the mapping that wins. ``counts`` int64[
    accesses, CROSSED] of `hits.cross`.
    """
    rescale = prepare(ops, acc, axes, ten, extents, loops, path, lengths, 1, 2, points, rows, work)
    for a in range(acc.shape[0]):
        register_reach(ops, acc, a, loops, rows, work)
    capacity, levels = int(limits[L_CAPACITY]), int(limits[L_LEVELS])
    stages = (
        1 if limits[L_DOUBLE] == 0.0 else (int(min(2.0, limits[L_STAGES])) if limits[L_STAGES] > 0.0 else 2)
    )
    peak = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
    if peak > capacity and stages == 2 and limits[L_STAGES] == 0.0:
        stages = 1
        peak = buffer_peak(ops, acc, axes, ten, extents, loops, path, lengths, levels, stages, rows, work)
    score[S_MISFIT] = max(0, peak - capacity)
    score[S_REFETCH:] = 0.0
    score[S_STAGES] = stages
    score[S_FOOTPRINT] = peak
    if peak > capacity:
        return
    for a in range(acc.shape[0]):
        count_access(ops, acc, axes, ten, extents, loops, 0, 1, a, work[W_EFFECTIVE0, a], counts, rows, work)
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
        levels,
        capacity,
        stages,
        peak,
        counts,
        rows,
        work,
    )
    for a in range(acc.shape[0]):
        if acc[a, ACC_WRITE] and asked[a, A_WIDE] == 0 and leaves_sums(ops, acc, ten, a, loops, rows, work):
            o, t = acc[a, ACC_OPERATOR], acc[a, ACC_TENSOR]
            elements = tile_elements(acc, a, axes, rows[o], asked[a, A_LEAST], loops, extents)
            wider = elements * (ten[t, TEN_PARTIAL] - ten[t, TEN_BITS])
            score[S_MISFIT] += (wider + 7) // 8
    if score[S_MISFIT] > 0.0:
        return
    split_cores(ops, loops, path, lengths, independent, int(limits[L_CORES]), split)
    cross(
        ops, acc, axes, ten, extents, loops, rows, work, split, int(limits[L_NEAR]), int(limits[L_FAR]),
        int(limits[L_SHARE]), counts,
    )  # fmt: skip
    bits, fetched = 0, 0
    for a in range(acc.shape[0]):
        bits += counts[a, X_DRAM_IN] + counts[a, X_DRAM_OUT]
        fetched += counts[a, X_PLAIN_IN] + counts[a, X_PLAIN_OUT]
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
    spans[0, P_RESIDENT] = resident
    seconds = estimate(
        ops, acc, axes, ten, extents, loops, rows, work, counts, points, unit, held, mat, rate, vector, mach,
        independent, split, resident, stages, rescale, length, spans,
    )  # fmt: skip
    width = min(mach[M_PORT] * used, mach[M_DEVICE])
    excess = max(0.0, unfinished - limits[L_REGISTERS])
    seconds += 2.0 * excess * returns / (width if excess > capacity - peak else mach[M_ONCHIP])
    score[S_TRAFFIC] = bits
    score[S_FETCHED] = fetched
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
