"""Kernels: how batches go through their phases, and how the phases that run share DRAM.

Know arrays and scalars only; `events.py` says when.

A batch takes its whole time as one phase, or the phases of its profile. Ends of phases come from running totals: all
launches so far, plus all else so far times the batch's size, rounded to the nearest ns; where fallback, off-home or
throttle stretch the batch, that is stretched and rounded down. So phases sum to the batch's time exactly, and each is
rounded once. Bytes scale with size and not with the stretch: demand is the profile's, over the stretch.

Sharing (MINICASE 3.5): demand d = bytes / base, in units of `GRAIN` bytes/ns, so that sums of demands are exact in
float64 and can be kept up to date instead of made anew. While the demands of a pool sum to at most its bandwidth, all
run at rate 1; else at ``min(1, level / d)`` with the max-min level. A phase ends at ``ceil(now + rest / rate)``; its
stall, end - begin - length, is never negative: rates are at most 1, and rounding is monotone. The rest is float64, not
fixed point: hours of work and rates of 1e-6 both fit, whole numbers stay exact where rates are 1, and the same
operations give the same bits everywhere. It is brought up to date where rates are below 1
or become so; a rest under a millionth of a ns counts as none, so that a division's rounding never costs a whole ns.
"""

from __future__ import annotations

import math

from ..compiled import kernel

NEVER = 1 << 62
GRAIN = 2.0**-30  # bytes/ns of a demand: about a byte/s; sums are exact up to 8 PB/s
# Rows of ``slot``: int64[SLOT_ROWS, slots].
(
    S_END,  # of the phase; NEVER where idle
    S_FREE,  # since when
    S_BEGIN,  # of the phase
    S_LENGTH,  # of the phase at rate 1
    S_SINCE,  # when the rest was last brought up to date
    S_FIRST,  # the batch is queue[first : first + count]
    S_COUNT,
    S_PROFILE,  # row of ``profile``
    S_ROW,  # next phase
    S_REPEATS,  # left, this one included
    S_FIXED,  # launches until the phase's end
    S_SCALED,  # the rest until there
    S_REACHED,  # ns of the batch's time until there
    S_SERVICE,  # the batch's time at rate 1
    S_POOL,
    S_BURST,  # stalls so far
    S_STEADY,
    S_SPILL,
    S_REFETCH,
    S_PREEMPTED,  # ns off its slot so far
    S_FROM,  # where it was before it was suspended
    S_ENTER,  # since when the slot has been held by it
) = range(22)
SLOT_ROWS = 22
# Rows of ``flow``: float64[FLOW_ROWS, slots]. F_WATTS: what the batch draws at rate 1.
F_DEMAND, F_INVERSE, F_RATE, F_REST, F_SIZE, F_STRETCH, F_WATTS = range(7)
FLOW_ROWS = 7
# Rows of ``pool``, streams that share a part of the bandwidth: float64[POOL_ROWS, pools].
B_BANDWIDTH, B_LOAD, B_USERS, B_TIGHT = range(4)
POOL_ROWS = 4
# Columns of ``phase``: int64[phases, PHASE_COLUMNS]. Spill and refetch are out of M_WHOLE, all below 2**31.
M_KIND, M_BASE, M_WHOLE, M_SPILL, M_REFETCH = range(5)
PHASE_COLUMNS = 5
LAUNCH, STEADY = 0, 3
# ``view``: float64[2], where the first column of time begins and how long each lasts, in ns.
V_LOW, V_WIDE = range(2)
# Last axis of ``moved``: float64[rows, columns, CAUSES], bytes; C_UNMET: asked for and not given.
C_PLAIN, C_SPILL, C_REFETCH, C_UNMET = range(4)
CAUSES = 4


@kernel("void(int64, float64, int64[:,::1], float64[:,::1], float64[:,::1])", inline=True, borrows=True)
def ask(j, wanted, slot, flow, pool):
    """Slot `j` asks for `wanted` bytes/ns from now on."""
    p, before = slot[S_POOL, j], flow[F_DEMAND, j]
    pool[B_LOAD, p] += wanted - before
    pool[B_USERS, p] += (1.0 if wanted > 0.0 else 0.0) - (1.0 if before > 0.0 else 0.0)
    flow[F_DEMAND, j] = wanted


@kernel(
    "boolean(int64, int64, int64[:,::1], float64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1], float64[:,::1])",
    inline=True,
    borrows=True,
)
def next_phase(j, now, slot, flow, pool, profile, phase, demand):
    """Begin the next phase of some length on slot `j`; False: the batch is done."""
    row, repeats, which = slot[S_ROW, j], slot[S_REPEATS, j], slot[S_PROFILE, j]
    fixed, scaled, size, stretch = slot[S_FIXED, j], slot[S_SCALED, j], flow[F_SIZE, j], flow[F_STRETCH, j]
    while repeats > 0:
        if phase[row, M_KIND] == LAUNCH:
            fixed += phase[row, M_BASE]
        else:
            scaled += phase[row, M_BASE]
        reached = fixed + (scaled if size == 1.0 else round(size * scaled))
        if stretch != 1.0:
            reached = min(slot[S_SERVICE, j], int(reached * stretch))
        wanted, inverse = demand[row, 0], demand[row, 1]
        row += 1
        if row == profile[which, 1]:
            row = profile[which, 0]
            repeats -= 1
            if repeats == 0:
                reached = slot[S_SERVICE, j]
        length = reached - slot[S_REACHED, j]
        if length > 0:
            slot[S_ROW, j], slot[S_REPEATS, j], slot[S_REACHED, j] = row, repeats, reached
            slot[S_FIXED, j], slot[S_SCALED, j] = fixed, scaled
            slot[S_BEGIN, j], slot[S_LENGTH, j], slot[S_SINCE, j] = now, length, now
            slot[S_END, j] = now + length
            if stretch != 1.0:
                wanted = round(wanted / stretch / GRAIN) * GRAIN
                inverse = 1.0 / wanted if wanted > 0.0 else 0.0
            ask(j, wanted, slot, flow, pool)
            flow[F_INVERSE, j], flow[F_RATE, j], flow[F_REST, j] = inverse, 1.0, float(length)
            return True
    slot[S_REPEATS, j] = 0
    return False


@kernel("void(int64, int64, int64[:,::1], float64[:,::1], float64[:,::1])", inline=True, borrows=True)
def leave(j, now, slot, flow, pool):
    """Slot `j` is idle from now on."""
    slot[S_END, j], slot[S_BEGIN, j], slot[S_LENGTH, j], slot[S_FREE, j] = NEVER, NEVER, 0, now
    ask(j, 0.0, slot, flow, pool)


@kernel(
    "void(int64, int64, int64[:,::1], float64[:,::1], int64[:,::1], float64[:,::1])",
    inline=True,
    borrows=True,
)
def put(there, here, to, to_flow, of, of_flow):
    """Column `here` of a batch's figures becomes column `there` of others of the same rows."""
    for row in range(SLOT_ROWS):
        to[row, there] = of[row, here]
    for row in range(FLOW_ROWS):
        to_flow[row, there] = of_flow[row, here]


@kernel("void(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])", inline=True, borrows=True)
def split_stall(j, stall, slot, profile, phase):
    """Add the stall of the phase that ends on slot `j` to its causes by byte share, largest remainder."""
    which = slot[S_PROFILE, j]
    row = slot[S_ROW, j] - 1
    if row < profile[which, 0]:
        row = profile[which, 1] - 1
    other = S_STEADY if phase[row, M_KIND] == STEADY else S_BURST
    whole, spill, refetch = phase[row, M_WHOLE], phase[row, M_SPILL], phase[row, M_REFETCH]
    if spill == 0 and refetch == 0:
        slot[other, j] += stall
        return
    # stall = times * whole + left, so that no product leaves 62 bits.
    times, left = stall // whole, stall % whole
    rest = whole - spill - refetch
    a, b, c = left * rest // whole, left * spill // whole, left * refetch // whole
    for _ in range(left - a - b - c):
        over_a, over_b, over_c = left * rest - a * whole, left * spill - b * whole, left * refetch - c * whole
        if over_a >= over_b and over_a >= over_c:
            a += 1
        elif over_b >= over_c:
            b += 1
        else:
            c += 1
    slot[other, j] += times * rest + a
    slot[S_SPILL, j] += times * spill + b
    slot[S_REFETCH, j] += times * refetch + c


@kernel("void(int64, int64, int64[:,::1], float64[:,::1], float64[:,::1], float64)", borrows=True)
def share(now, used, slot, flow, pool, loss):
    """Share the bandwidth of each pool among the phases that run; new ends where a rate changes."""
    end, since, begin, length, of = slot[S_END], slot[S_SINCE], slot[S_BEGIN], slot[S_LENGTH], slot[S_POOL]
    demand, inverse, rate, rest = flow[F_DEMAND], flow[F_INVERSE], flow[F_RATE], flow[F_REST]
    many = pool.shape[1] > 1
    efficiency = 1.0
    if loss > 0.0:
        users = 0.0
        for p in range(pool.shape[1]):
            users += pool[B_USERS, p]
        if users > 1.0:
            efficiency = 1.0 - loss * (users - 1.0) / users
    for p in range(pool.shape[1]):
        capacity, load = pool[B_BANDWIDTH, p] * efficiency, pool[B_LOAD, p]
        tight = load > capacity
        if not tight and pool[B_TIGHT, p] == 0.0:
            continue
        pool[B_TIGHT, p] = 1.0 if tight else 0.0
        level, per_level = math.inf, 0.0
        if tight:
            # Who asks for less than the level gets it; the others share what is left. The level only rises.
            over, above = pool[B_USERS, p], load
            while True:
                level = (capacity - (load - above)) / over
                more, still = 0.0, 0.0
                for j in range(used):  # without branches: which slots are above is anybody's guess
                    above_it = 1.0 if demand[j] > level and (not many or of[j] == p) else 0.0
                    more += demand[j] * above_it
                    still += above_it
                if still == over or still == 0.0:
                    break
                over, above = still, more
            per_level = 1.0 / level
        for j in range(used):
            if many and of[j] != p:
                continue
            left = rest[j] - (now - since[j]) * rate[j]
            slowed = demand[j] > level
            rest[j], since[j] = left, now
            rate[j] = min(1.0, level * inverse[j]) if slowed else 1.0
            left *= demand[j] * per_level if slowed else 1.0
            end[j] = max(now + math.ceil(left - 1e-6), begin[j] + length[j])


@kernel(
    "void(int64, int64, int64, int64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1], float64[::1],"
    "float64[:,:,::1])",
    borrows=True,
)
def pass_by(since, now, used, slot, flow, profile, phase, view, moved):
    """Add what each slot gets of DRAM from `since` to `now`, and what it is short of, to the columns of time.

    Slots share the rows of ``moved`` evenly, in order.
    """
    rows, columns, slots = moved.shape[0], moved.shape[1], slot.shape[1]
    low, wide = view[V_LOW], view[V_WIDE]
    begin, end = max(float(since), low), min(float(now), low + wide * columns)
    if begin >= end:
        return
    first, last = int((begin - low) / wide), min(columns - 1, int((end - low) / wide))
    for j in range(used):
        asks = flow[F_DEMAND, j]
        if asks == 0.0:
            continue
        gets, place = asks * flow[F_RATE, j], j * rows // slots
        which = slot[S_PROFILE, j]
        row = slot[S_ROW, j] - 1
        if row < profile[which, 0]:
            row = profile[which, 1] - 1
        spill, refetch = (
            phase[row, M_SPILL] / phase[row, M_WHOLE],
            phase[row, M_REFETCH] / phase[row, M_WHOLE],
        )
        for column in range(first, last + 1):
            lasts = min(end, low + (column + 1) * wide) - max(begin, low + column * wide)
            if lasts > 0.0:
                cell = moved[place, column]
                cell[C_PLAIN] += gets * lasts * (1.0 - spill - refetch)
                cell[C_SPILL] += gets * lasts * spill
                cell[C_REFETCH] += gets * lasts * refetch
                cell[C_UNMET] += (asks - gets) * lasts
