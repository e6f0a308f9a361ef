"""Kernels: the mapping that is used where the plan is silent (docs/loop-tree.md, section 6).

Knows arrays only: those of the nest (columns in `sweep.py`, without private loops), the machine's figures and ladders
of tile sizes. Deterministic: a fixed order of candidates and a fixed number of evaluations, never the clock.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .candidate import (
    P_RESIDENT,
    S_COST,
    S_FETCHED,
    S_FLOOR,
    S_MISFIT,
    S_REFETCH,
    S_SECONDS,
    S_STAGES,
    SCORES,
    SPAN_COLUMNS,
)
from .cycles import M_INFLIGHT
from .estimate import registers_bytes
from .hits import CROSSED, tolls
from .judging import better, judge
from .retention import branch, set_depths
from .steps import STEP_COLUMNS, TOLL_COLUMNS, walk
from .sweep import (
    LOOP_DIM,
    LOOP_STEP,
    W_LENGTH,
    WORK_ROWS,
)
from .timing import RESOURCES, TERM_COLUMNS, pipeline


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1],"
    " float64[::1], float64[::1], int64, float64[::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[::1], float64[:,::1], int64[::1], float64[::1], float64)",
    borrows=True,
)
def assess(
    ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat, rate, vector, mach,
    independent, limits, counts, points, rows, work, length, split, spans, tile, score, floor,
):  # fmt: skip
    """Score the canonical tree of `order` at `tile`, into ``score``; returns the evaluations that it took (1).

    ``floor``: bits of elements to and from DRAM where everything is whole; 0 where that does not fit.
    """
    branch(ops, barred, extents, tile, order, path, lengths, loops)
    set_depths(ops, acc, axes, ten, extents, tile, order, asked, loops, path, lengths, limits)
    judge(
        ops, acc, axes, ten, extents, loops, path, lengths, asked, unit, held, mat, rate, vector, mach, independent,
        limits, counts, points, rows, work, length, split, spans, score,
    )  # fmt: skip
    score[S_REFETCH] = 1.0 if floor > 0.0 and score[S_MISFIT] == 0.0 and score[S_FETCHED] > floor else 0.0
    return 1


@kernel(
    "float64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1],"
    " float64[::1], float64[::1], int64, float64[::1], int64[::1], float64[::1], float64)"
)
def walked_cost(
    ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat, rate, vector, mach,
    independent, limits, tile, score, floor,
):  # fmt: skip
    """S_COST of one candidate with the seconds of the walk over its steps instead of the estimate; fills ``score``."""
    operators, dims = ops.shape[0], extents.size
    rows = np.zeros_like(path)
    work = np.zeros((WORK_ROWS, max(operators, acc.shape[0]) + 2), np.int64)
    counts = np.zeros((acc.shape[0], CROSSED), np.int64)
    points = np.zeros(operators, np.int64)
    length = extents.copy()
    split = np.ones(dims, np.int64)
    spans = np.zeros((2 * path.shape[1] + 2, SPAN_COLUMNS), np.float64)
    assess(
        ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat, rate, vector, mach,
        independent, limits, counts, points, rows, work, length, split, spans, tile, score, floor,
    )  # fmt: skip
    if score[S_MISFIT] > 0.0:
        return score[S_COST]
    onchip = np.zeros((2, operators), np.float64)
    for o in range(operators):
        for j in range(work[W_LENGTH, o]):
            length[loops[rows[o, j], LOOP_DIM]] = loops[rows[o, j], LOOP_STEP]
        moved = registers_bytes(ops, acc, axes, ten, mat, o, float(points[o]), held, length, loops, rows)
        onchip[0, o] = moved / max(1, points[o])
        length[:] = extents
    cores = split.copy()
    for d in range(dims):
        if not independent >> d & 1:
            cores[d] = 0
    figures = mach.copy()
    figures[M_INFLIGHT] = spans[0, P_RESIDENT]
    toll = np.empty((acc.shape[0], TOLL_COLUMNS), np.float64)
    tolls(acc, ten, counts, toll)
    steps = np.empty((1024, STEP_COLUMNS), np.float64)
    count = walk(
        ops, acc, axes, ten, extents, loops, path, lengths, rows, work, counts, mat, rate, vector, onchip, figures,
        cores, np.array([-1.0, 0.0, 0.0]), toll, np.zeros((0, dims), np.int64), steps,
    )  # fmt: skip
    stages = int(score[S_STAGES])
    seconds = pipeline(steps, count, stages, figures, np.ones(RESOURCES), np.zeros((0, TERM_COLUMNS)))
    return seconds + score[S_COST] - score[S_SECONDS]


@kernel("void(int64[:,:,::1], int64, int64, int64[::1])", borrows=True)
def put(ladder, bundle, rung, tile):
    """Set the tile sizes of one bundle's dims to a rung of its ladder."""
    for d in range(tile.size):
        if ladder[bundle, rung, d] > 0:
            tile[d] = ladder[bundle, rung, d]


WORTH = 0.995  # an odd size must save half a percent


@kernel("int64(int64[:,::1], int64, int64, int64)")
def next_size(sizes, d, size, way):
    """The next larger (`way` 1) or smaller (-1) of dim `d`'s sizes; 0: there is none."""
    found = 0
    for i in range(sizes.shape[1]):
        one = sizes[d, i]
        if one > 0 and (one - size) * way > 0 and (found == 0 or (found - one) * way > 0):
            found = one
    return found


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1],"
    " float64[::1], float64[::1], int64, float64[::1], int64[:,::1], int64, int64, float64, int64[::1], float64[::1])"
)
def scatter(
    ops, acc, axes, ten, extents, barred, loops, path, lengths, orders, asked, unit, held, mat, rate, vector, mach,
    independent, limits, sizes, tries, seed, floor, tile, score,
):  # fmt: skip
    """The best of `tries` tiles drawn from `sizes` under orders drawn alike, into ``tile`` and ``score``; its order.

    The draws are a linear congruential sequence (Knuth's MMIX) from `seed`: the same ones every time.
    """
    dims = extents.size
    rows = np.zeros_like(path)
    work = np.zeros((WORK_ROWS, max(ops.shape[0], acc.shape[0]) + 2), np.int64)
    counts = np.zeros((acc.shape[0], CROSSED), np.int64)
    points = np.zeros(ops.shape[0], np.int64)
    length = extents.copy()
    split = np.ones(dims, np.int64)
    spans = np.zeros((2 * path.shape[1] + 2, SPAN_COLUMNS), np.float64)
    here = np.zeros(SCORES, np.float64)
    size = tile.copy()
    start = tile.copy()
    state = seed
    best = -1
    for _ in range(tries):
        state = state * 6364136223846793005 + 1442695040888963407
        number = (state >> 33 & 0x3FFFFFFF) % orders.shape[0]
        for d in range(dims):
            size[d] = start[d]
            many = 0
            while many < sizes.shape[1] and sizes[d, many] > 0:
                many += 1
            if many > 0:
                state = state * 6364136223846793005 + 1442695040888963407
                size[d] = sizes[d, (state >> 33 & 0x3FFFFFFF) % many]
        assess(
            ops, acc, axes, ten, extents, barred, loops, path, lengths, orders[number], asked, unit, held, mat, rate,
            vector, mach, independent, limits, counts, points, rows, work, length, split, spans, size, here, floor,
        )  # fmt: skip
        if best < 0 or better(here, score):
            best = number
            score[:] = here
            tile[:] = size
    return best


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1],"
    " float64[::1], float64[::1], int64, float64[::1], int64[:,::1], int64, boolean, float64, int64[::1],"
    " float64[::1])"
)
def polish(
    ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat, rate, vector, mach,
    independent, limits, sizes, budget, walking, floor, tile, score,
):  # fmt: skip
    """Improve `tile` and its `score` dim by dim, each on its own: by any of its sizes, by one unit, by a pair.

    ``sizes`` int64[dims, most]: what may be tried (0: nothing). A pair raises one dim and lowers another: what is left
    where the buffer is full. ``walking``: by the walk over the steps. Returns the evaluations; `path`, `lengths` and
    `loops` are those of the last one.
    """
    dims = extents.size
    rows = np.zeros_like(path)
    work = np.zeros((WORK_ROWS, max(ops.shape[0], acc.shape[0]) + 2), np.int64)
    counts = np.zeros((acc.shape[0], CROSSED), np.int64)
    points = np.zeros(ops.shape[0], np.int64)
    length = extents.copy()
    split = np.ones(dims, np.int64)
    spans = np.zeros((2 * path.shape[1] + 2, SPAN_COLUMNS), np.float64)
    here = np.zeros(SCORES, np.float64)
    best = score.copy()
    goal = tile.copy()
    size = tile.copy()
    spent = 0
    moving = True
    while moving and spent < budget:
        moving = False
        for pairs in range(2):
            for d in range(dims):
                if sizes[d, 0] == 0 or spent >= budget:
                    continue
                largest = next_size(sizes, d, 1 << 62, -1)
                for i in range(sizes.shape[1] + 2 if pairs == 0 else dims):
                    size[:] = tile
                    if pairs == 1:
                        larger = next_size(sizes, d, tile[d], 1)
                        smaller = next_size(sizes, i, tile[i], -1) if sizes[i, 0] > 0 else 0
                        if i == d or larger == 0 or smaller == 0:
                            continue
                        size[d], size[i] = larger, smaller
                    elif i < sizes.shape[1]:
                        if sizes[d, i] == 0:
                            continue
                        size[d] = sizes[d, i]
                    elif unit[d] > 1:
                        size[d] = tile[d] + (unit[d] if i == sizes.shape[1] else -unit[d])
                    if size[d] < 1 or size[d] > largest or (pairs == 0 and size[d] == tile[d]):
                        continue
                    spent += 1
                    if walking:
                        here[S_COST] = walked_cost(
                            ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat,
                            rate, vector, mach, independent, limits, size, here, floor,
                        )  # fmt: skip
                    else:
                        assess(
                            ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat,
                            rate, vector, mach, independent, limits, counts, points, rows, work, length, split, spans,
                            size, here, floor,
                        )  # fmt: skip
                    if better(here, best) and (
                        here[S_COST] < WORTH * best[S_COST]
                        or here[S_REFETCH] < best[S_REFETCH]
                        or best[S_MISFIT] > 0.0
                    ):
                        best[:] = here
                        goal[:] = size
                        moving = True
            if moving:
                break
        tile[:] = goal
        score[:] = best
    return spent


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1], float64[::1], float64[::1], int64,"
    " float64[::1], int64[:,:,::1], int64[::1], int64, int64[:,::1], int64[::1], int64[:,::1], int64[::1],"
    " float64[::1])"
)
def search(
    ops, acc, axes, ten, extents, barred, orders, asked, unit, held, mat, rate, vector, mach, independent, limits,
    ladder, rungs, budget, path, lengths, loops, tile, score,
):  # fmt: skip
    """The best order and tile; returns the number of the order, with ``tile`` and ``score`` filled.

    Every order is climbed from its largest even tile that fits, one rung of one bundle at a time; the best few then
    also by raising one bundle and lowering another, which is what is left where the buffer is full.

    Parameters
    ----------
    orders : int64[orders, dims]; int64[1, 0] keeps the tree in `path`, `lengths` and `loops`.
    unit, held : int64[dims] aligned size, and what the registers hold along each dim.
    ladder, rungs : int64[bundles, rungs, dims] tile sizes that are tried, ascending (0: not of the bundle), and how
        many rungs. A bundle is dims that are cut together, the inner one first.
    budget : evaluations in all.
    """
    operators, accesses, dims, many, bundles = (
        ops.shape[0],
        acc.shape[0],
        extents.size,
        orders.shape[0],
        rungs.size,
    )
    rows = np.zeros_like(path)
    work = np.zeros((WORK_ROWS, max(operators, accesses) + 2), np.int64)
    counts = np.zeros((accesses, CROSSED), np.int64)
    points = np.zeros(operators, np.int64)
    length = extents.copy()
    split = np.ones(dims, np.int64)
    spans = np.zeros((2 * path.shape[1] + 2, SPAN_COLUMNS), np.float64)
    now = np.zeros(SCORES, np.float64)
    here = np.zeros(SCORES, np.float64)
    at = np.zeros(bundles, np.int64)
    size = np.zeros(dims, np.int64)
    ends = np.zeros((many, bundles), np.int64)
    marks = np.zeros((many, SCORES), np.float64)
    costs = np.full(many, np.inf)
    # Everything whole: the least that can be moved, where it fits.
    tall = 0
    for b in range(bundles):
        put(ladder, b, rungs[b] - 1, tile)
        tall = max(tall, rungs[b])
    whole = True
    for d in range(dims):
        whole = whole and tile[d] >= extents[d]
    floor = 0.0
    spent = assess(
        ops, acc, axes, ten, extents, barred, loops, path, lengths, orders[0], asked, unit, held, mat, rate, vector,
        mach, independent, limits, counts, points, rows, work, length, split, spans, tile, score, floor,
    )  # fmt: skip
    best = 0
    if whole and score[S_MISFIT] == 0.0:
        floor = score[S_FETCHED]
    if tall < 2:
        score[S_FLOOR] = floor
        return best
    looped = np.zeros((many, bundles), np.int64)
    for number in range(many):
        for b in range(bundles):
            for d in range(dims):
                if ladder[b, 0, d] > 0:
                    for i in range(orders.shape[1]):
                        looped[number, b] |= orders[number, i] == d
                    if orders.shape[1] == 0:
                        for loop in range(loops.shape[0]):
                            looped[number, b] |= loops[loop, LOOP_DIM] == d
    few = min(3, many)
    share = max(16, budget // (2 * many))
    for lap in range(many + few):
        first_lap = lap < many
        number = lap
        if not first_lap:
            number = np.argmin(costs)
            if np.isinf(costs[number]):
                break
            costs[number] = np.inf
        order = orders[number]
        if first_lap:
            for level in range(tall):
                for b in range(bundles):
                    at[b] = min(level, rungs[b] - 1) if looped[number, b] else rungs[b] - 1
                    put(ladder, b, at[b], size)
                spent += assess(
                    ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat, rate,
                    vector, mach, independent, limits, counts, points, rows, work, length, split, spans, size, here,
                    floor,
                )  # fmt: skip
                if level == 0 or better(here, now):
                    now[:] = here
                    ends[number, :] = at
                if here[S_MISFIT] > 0.0:
                    break
        else:
            now[:] = marks[number]
        for b in range(bundles):
            at[b] = ends[number, b]
            put(ladder, b, at[b], size)
        until = spent + (share if first_lap else budget // (2 * few))
        moving = True
        while moving and spent < until:
            moving = False
            up, down, by = -1, -1, 0
            for b in range(bundles):
                if not looped[number, b] or rungs[b] < 2:
                    continue
                for other in range(-1, bundles if not first_lap else 0):
                    if other == b or (other >= 0 and (not looped[number, other] or at[other] == 0)):
                        continue
                    for way in range(4):
                        # Up, down, far up, to the whole; with another bundle one rung down: up only.
                        step = 1
                        if way == 1:
                            step = -1
                        elif way == 2:
                            step = 3
                        elif way == 3:
                            step = rungs[b] - 1 - at[b]
                        goal = at[b] + step
                        if (
                            goal < 0
                            or goal >= rungs[b]
                            or (way > 0 and other >= 0)
                            or (way == 3 and step < 2)
                        ):
                            continue
                        put(ladder, b, goal, size)
                        if other >= 0:
                            put(ladder, other, at[other] - 1, size)
                        spent += assess(
                            ops, acc, axes, ten, extents, barred, loops, path, lengths, order, asked, unit, held, mat,
                            rate, vector, mach, independent, limits, counts, points, rows, work, length, split, spans,
                            size, here, floor,
                        )  # fmt: skip
                        put(ladder, b, at[b], size)
                        if other >= 0:
                            put(ladder, other, at[other], size)
                        if better(here, now):
                            now[:] = here
                            up, down, by = b, other, step
            if up >= 0:
                at[up] += by
                put(ladder, up, at[up], size)
                if down >= 0:
                    at[down] -= 1
                    put(ladder, down, at[down], size)
                moving = True
        if first_lap:
            costs[number] = now[S_COST] if now[S_MISFIT] == 0.0 else 1e30 + now[S_MISFIT]
            ends[number, :] = at
            marks[number, :] = now
        if better(now, score):
            score[:] = now
            best = number
            for d in range(dims):
                tile[d] = size[d]
    score[S_FLOOR] = floor
    return best
