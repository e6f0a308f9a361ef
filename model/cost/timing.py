"""Kernels: the pipeline over the steps of a walk, its phases, and the launches of a plan (COST-MODEL 5).

Knows arrays only; `steps.py` makes the steps. Seconds and bytes are float64 here; the caller makes exact integers of
them.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .cycles import (
    M_CACHE,
    M_DEVICE,
    M_INFLIGHT,
    M_LATENCY,
    M_ONCHIP,
    M_PORT,
)
from .steps import (
    T_BLOCK,
    T_CACHE,
    T_COLD,
    T_CYCLES,
    T_DEVICE,
    T_MATRIX,
    T_ONCHIP,
    T_OUT_CACHE,
    T_OUT_DEVICE,
    T_OUT_PORT,
    T_OUT_REFETCH,
    T_OUT_SPILLED,
    T_PORT,
    T_REFETCH,
    T_SPILL,
    T_SPILL_DEVICE,
    T_SPILL_ONCHIP,
    T_SPILLED,
    T_TAIL,
    T_VECTOR,
    T_WAIT,
    T_WEIGHT,
)

# Relief of one resource each, ``relief`` float64[RESOURCES]: times are divided by it.
R_MATRIX, R_VECTOR, R_DRAM, R_ONCHIP, R_LATENCY, R_SPILL, R_OCCUPANCY = 0, 1, 2, 3, 4, 5, 6
RESOURCES = 7
# Columns of ``terms`` and phases float64[.., TERM_COLUMNS]; kinds are those of `result.PHASE_KINDS`.
P_KIND, P_SECONDS, P_BYTES, P_SPILL, P_REFETCH, P_BLOCK = 0, 1, 2, 3, 4, 5
TERM_COLUMNS = 6
FIRST, COLD, STEADY, LAST = 1, 2, 3, 4


@kernel("float64(float64, float64, float64, float64, float64[::1], float64[::1])", inline=True, borrows=True)
def moving_seconds(port, cache, device, spilled, mach, relief):
    """Seconds that bytes take on a core's port, in the cache and from DRAM; ``spilled`` of DRAM's may be relieved."""
    if device > 0.0:
        kept = 1.0 - spilled / device * (1.0 - 1.0 / relief[R_SPILL])
        port, cache, device = port * kept, cache * kept, device * kept
    outer = max(port / mach[M_PORT], device / mach[M_DEVICE]) / relief[R_DRAM]
    return max(outer, cache / mach[M_CACHE] / relief[R_ONCHIP])


@kernel("float64(float64[:,::1], int64, int64, float64[::1], float64[::1])", borrows=True)
def load_seconds(steps, i, stages, mach, relief):
    """Seconds to load step `i`: port, cache, share of the device, or Little's law."""
    port = steps[i, T_PORT] + steps[i, T_SPILL] / 2.0
    if port == 0.0:
        return 0.0
    spill = steps[i, T_SPILL_DEVICE] / 2.0
    seconds = moving_seconds(
        port, steps[i, T_CACHE] + spill, steps[i, T_DEVICE] + spill, steps[i, T_SPILLED] + spill, mach, relief
    )
    flight = port * stages
    if (
        mach[M_INFLIGHT] > 0.0
    ):  # simt: the resident threads' loads, or the tiles that asynchronous copies are ahead
        flight = max(mach[M_INFLIGHT], port * (stages - 1))
    if i == 0:  # nothing else is on its way yet
        flight = min(flight, port)
    return max(seconds, port * mach[M_LATENCY] / (flight * relief[R_OCCUPANCY]) / relief[R_LATENCY])


@kernel("float64(float64[:,::1], int64, float64[::1], float64[::1])", borrows=True)
def store_seconds(steps, i, mach, relief):
    """Seconds to store what step `i` made."""
    spill = steps[i, T_SPILL_DEVICE] / 2.0
    port, cache = steps[i, T_OUT_PORT] + steps[i, T_SPILL] / 2.0, steps[i, T_OUT_CACHE] + spill
    device, spilled = steps[i, T_OUT_DEVICE] + spill, steps[i, T_OUT_SPILLED] + spill
    return moving_seconds(port, cache, device, spilled, mach, relief)


@kernel("float64(float64[:,::1], int64, int64, int64, float64[::1], float64[::1])", borrows=True)
def compute_seconds(steps, i, count, stages, mach, relief):
    """Seconds of the units at step `i`; with two stages a vector tail runs beside the next matrix step."""
    matrix = steps[i, T_MATRIX] / relief[R_MATRIX]
    tail = steps[i, T_TAIL] / relief[R_VECTOR]
    if stages < 2:
        busy = matrix + tail
    else:
        before = steps[i - 1, T_TAIL] / relief[R_VECTOR] if i > 0 else 0.0
        busy = max(matrix, before)
        if i == count - 1:
            busy += tail
    busy += steps[i, T_VECTOR] / relief[R_VECTOR] + steps[i, T_WAIT] / mach[M_ONCHIP] / relief[R_ONCHIP]
    moved = steps[i, T_ONCHIP] + steps[i, T_SPILL_ONCHIP] / relief[R_SPILL]
    return max(busy, moved / mach[M_ONCHIP] / relief[R_ONCHIP])


@kernel("void(float64[:,::1], int64, float64, float64[:,::1], int64)", borrows=True)
def add_load(steps, i, times, terms, row):
    """Add the bytes that step `i` loads, `times` over, to a term."""
    spill = steps[i, T_SPILL_DEVICE] / 2.0
    terms[row, P_BYTES] += (steps[i, T_DEVICE] + spill) * times
    terms[row, P_SPILL] += (steps[i, T_SPILLED] + spill) * times
    terms[row, P_REFETCH] += steps[i, T_REFETCH] * times


@kernel("void(float64[:,::1], int64, float64, float64[:,::1], int64)", borrows=True)
def add_store(steps, i, times, terms, row):
    """Add the bytes that step `i` stores, `times` over, to a term."""
    spill = steps[i, T_SPILL_DEVICE] / 2.0
    terms[row, P_BYTES] += (steps[i, T_OUT_DEVICE] + spill) * times
    terms[row, P_SPILL] += (steps[i, T_OUT_SPILLED] + spill) * times
    terms[row, P_REFETCH] += steps[i, T_OUT_REFETCH] * times


@kernel("float64(float64[:,::1], int64, int64, float64[::1], float64[::1], float64[:,::1])", borrows=True)
def pipeline(steps, count, stages, mach, relief, terms):
    """Seconds of all steps; fills ``terms`` (count + 2 rows) unless it has none.

    Single buffered: the sum of L + C + S. Double buffered: ``L_1 + sum max(C_i, L_{i+1} + S_{i-1}) + S_n``, which
    equals the best schedule of one port and two buffers.
    """
    if count == 0:
        return 0.0
    keep = terms.shape[0] > 0
    head = load_seconds(steps, 0, stages, mach, relief)
    foot = store_seconds(steps, count - 1, mach, relief)
    total = head + foot
    for i in range(count):
        weight = steps[i, T_WEIGHT]
        busy = compute_seconds(steps, i, count, stages, mach, relief)
        if stages >= 2:
            moving = load_seconds(steps, i + 1, stages, mach, relief) if i + 1 < count else 0.0
            if i > 0:
                moving += store_seconds(steps, i - 1, mach, relief)
            seconds = max(busy, moving) * weight
        else:
            seconds = busy * weight
            seconds += load_seconds(steps, i, stages, mach, relief) * (weight if i > 0 else weight - 1.0)
            final = weight if i < count - 1 else weight - 1.0
            seconds += store_seconds(steps, i, mach, relief) * final
        total += seconds
        if keep:
            terms[i + 1, :] = 0.0
            terms[i + 1, P_KIND] = STEADY
            terms[i + 1, P_SECONDS] = seconds
            terms[i + 1, P_BLOCK] = steps[i, T_BLOCK]
            into = i + 1 if stages >= 2 else i
            out = i - 1 if stages >= 2 else i
            if into < count and (into > 0 or weight > 1.0):
                times = weight if stages >= 2 or i > 0 else weight - 1.0
                add_load(steps, into, times, terms, i + 1)
                if steps[into, T_COLD] > 0.0:
                    terms[i + 1, P_KIND] = COLD
            if out >= 0 and (out < count - 1 or weight > 1.0):
                times = weight if stages >= 2 or i < count - 1 else weight - 1.0
                add_store(steps, out, times, terms, i + 1)
    if keep:
        terms[0, :] = 0.0
        terms[count + 1, :] = 0.0
        terms[0, P_KIND], terms[0, P_SECONDS] = FIRST, head
        terms[count + 1, P_KIND], terms[count + 1, P_SECONDS] = LAST, foot
        add_load(steps, 0, 1.0, terms, 0)
        add_store(steps, count - 1, 1.0, terms, count + 1)
    return total


@kernel("float64(float64[:,::1], int64)", borrows=True)
def demand(phase, i):
    """Bytes a second of one phase."""
    return phase[i, P_BYTES] / max(1e-30, phase[i, P_SECONDS])


@kernel("void(float64[:,::1], int64, float64[:,::1], int64)", borrows=True)
def join(out, i, other, j):
    """Add phase `j` of `other` to phase `i`; the longer of the two gives its kind."""
    if other[j, P_SECONDS] > out[i, P_SECONDS]:
        out[i, P_KIND] = other[j, P_KIND]
    for column in range(P_SECONDS, P_BLOCK):
        out[i, column] += other[j, column]


@kernel("int64(float64[:,::1], int64, float64, int64, float64[:,::1])")
def phases(terms, count, port, most, out):
    """Terms to at most `most` phases; returns how many rows of ``out`` are filled.

    Repeated blocks are one phase each. Neighbours of one kind whose demand differs by at most 2 % of the port are
    merged; then, beyond `most`, the neighbours whose merging moves least demand (sum of base * |d - d'|).
    The first load and the last store stay their own.
    """
    size = 0
    for i in range(count):
        if terms[i, P_SECONDS] == 0.0 and terms[i, P_BYTES] == 0.0:
            continue
        if size > 0 and terms[i, P_BLOCK] > 0.0 and out[size - 1, P_BLOCK] == terms[i, P_BLOCK]:
            join(out, size - 1, terms, i)
            continue
        out[size, :] = terms[i, :]
        size += 1
    reading = 1
    writing = 0
    while reading < size:
        same = out[writing, P_KIND] == out[reading, P_KIND]
        if same and abs(demand(out, writing) - demand(out, reading)) <= 0.02 * port:
            join(out, writing, out, reading)
        else:
            writing += 1
            out[writing, :] = out[reading, :]
        reading += 1
    size = min(size, writing + 1)
    while size > most:
        best = -1
        least = 0.0
        for i in range(size - 1):
            if out[i, P_KIND] == FIRST or out[i + 1, P_KIND] == LAST:
                continue
            both = (out[i, P_BYTES] + out[i + 1, P_BYTES]) / max(
                1e-30, out[i, P_SECONDS] + out[i + 1, P_SECONDS]
            )
            moved = out[i, P_SECONDS] * abs(demand(out, i) - both)
            moved += out[i + 1, P_SECONDS] * abs(demand(out, i + 1) - both)
            if best < 0 or moved < least:
                best, least = i, moved
        if best < 0:
            break
        join(out, best, out, best + 1)
        for i in range(best + 1, size - 1):
            out[i, :] = out[i + 1, :]
        size -= 1
    return size


@kernel("void(float64[:,::1], int64, int64, float64[::1], float64[::1])")
def sums(steps, count, stages, mach, out):
    """Seconds of compute, seconds of the port, and cycles of the matrix unit, over all steps."""
    relief = np.ones(RESOURCES)
    out[:3] = 0.0
    for i in range(count):
        busy = (steps[i, T_MATRIX] + steps[i, T_VECTOR] + steps[i, T_TAIL]) * steps[i, T_WEIGHT]
        moving = load_seconds(steps, i, stages, mach, relief) + store_seconds(steps, i, mach, relief)
        out[0] += busy
        out[1] += moving * steps[i, T_WEIGHT]
        out[2] += steps[i, T_CYCLES] * steps[i, T_WEIGHT]


@kernel("float64(float64[::1], float64, float64)", borrows=True)
def makespan(seconds, issue, gap):
    """End of the last group: group i starts at ``max(end of i-1 + gap, (i + 1) * issue)``."""
    end = 0.0
    for i in range(seconds.size):
        end = max(end + gap, (i + 1) * issue) + seconds[i]
    return end


@kernel("int64(int64[::1], int64[::1], int64, int64, int64[::1], int64[::1])", borrows=True)
def launch_times(latency, launched, issue, gap, starts, delays):
    """Starts in nanoseconds, and how long each launch delays; groups of views launch nothing. Returns the end."""
    end = 0
    count = 0
    for i in range(latency.size):
        start = end
        if launched[i]:
            count += 1
            start = max(end + gap, count * issue)
        starts[i] = start
        delays[i] = start - end
        end = start + latency[i]
    return end


@kernel("void(float64[:,::1], int64, int64, float64[::1], float64[:,::1], float64[::1])")
def relieved(steps, count, stages, mach, reliefs, out):
    """Seconds of the pipeline under each row of ``reliefs``."""
    none = np.zeros((0, TERM_COLUMNS))
    for i in range(reliefs.shape[0]):
        out[i] = pipeline(steps, count, stages, mach, reliefs[i], none)
