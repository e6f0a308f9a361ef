"""Kernels: cycles of the compute units, the steps of a walk, the pipeline over them and its phases.

Knows arrays only: the nest's (columns in `sweep.py`), the machine's figures as one float64 vector, and per operator
what feeds the units. The laws are in docs/loop-tree.md, sections 4 and 5. Seconds and bytes are float64 here; the
caller makes exact integers of them.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .sweep import (
    ACC_AXES,
    ACC_AXES_END,
    ACC_FIXED,
    ACC_TENSOR,
    ACC_TOUCH,
    ACC_WRITE,
    AXIS_A,
    AXIS_B,
    AXIS_C,
    AXIS_D0,
    AXIS_D1,
    AXIS_KIND,
    AXIS_N,
    HOME_OUTER,
    INDIRECT,
    LOOP_DIM,
    LOOP_STEP,
    LOOP_TRIPS,
    OP_END,
    OP_FIRST,
    OP_OWN,
    OP_RESCALE,
    OP_TREE,
    OP_WRITES,
    PARTIAL_WRITES,
    READS,
    SIMPLE,
    TEN_BITS,
    TEN_EXPORTED,
    TEN_HOME,
    TEN_PARTIAL,
    W_EFFECTIVE0,
    W_LEADER,
    W_SKIP,
    W_TREE,
    WRITES,
    window_elements,
)

# Figures of the machine, ``mach`` float64[MACHINE_FIGURES].
M_UNIT, M_ROWS, M_COLUMNS, M_FLOW, M_OVERLAP, M_MMA_M, M_MMA_N, M_MMA_K = 0, 1, 2, 3, 4, 5, 6, 7
M_CLOCK, M_LANES, M_PORT, M_DEVICE, M_LATENCY, M_ONCHIP, M_INFLIGHT, M_RESCALE = 8, 9, 10, 11, 12, 13, 14, 15
MACHINE_FIGURES = 16
NO_UNIT, SYSTOLIC, TENSOR_CORE = 0, 1, 2
OUTPUT_STATIONARY, WEIGHT_STATIONARY, INPUT_STATIONARY = 0, 1, 2
# Columns of ``mat`` int64[operators, MAT_COLUMNS]: whether the matrix unit runs it, and masks of its dims.
MAT_USED, MAT_M, MAT_N, MAT_K, MAT_PRODUCTS = 0, 1, 2, 3, 4
MAT_COLUMNS = 5
# Columns of ``steps`` float64[steps, STEP_COLUMNS]. Bytes: of one core's port, and of the device for the whole wave.
T_PORT, T_DEVICE, T_REFETCH, T_OUT_PORT, T_OUT_DEVICE, T_OUT_REFETCH, T_SPILL = 0, 1, 2, 3, 4, 5, 6
T_MATRIX, T_VECTOR, T_TAIL, T_ONCHIP, T_WEIGHT, T_BLOCK, T_COLD, T_CYCLES, T_SPILL_ONCHIP = (
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
)
STEP_COLUMNS = 16
# Relief of one resource each, ``relief`` float64[RESOURCES]: times are divided by it.
R_MATRIX, R_VECTOR, R_DRAM, R_ONCHIP, R_LATENCY, R_SPILL, R_OCCUPANCY = 0, 1, 2, 3, 4, 5, 6
RESOURCES = 7
# Columns of ``terms`` and phases float64[.., TERM_COLUMNS]; kinds are those of `result.PHASE_KINDS`.
P_KIND, P_SECONDS, P_BYTES, P_SPILL, P_REFETCH, P_BLOCK = 0, 1, 2, 3, 4, 5
TERM_COLUMNS = 6
FIRST, COLD, STEADY, LAST = 1, 2, 3, 4


@kernel("float64(float64[::1], float64, int64, int64, int64, int64)")
def matrix_cycles(mach, rate, m, n, k, products):
    """Cycles of `products` matrix products m x n x k on one unit that does `rate` MACs a cycle.

    Systolic R x C arrays: SCALE-Sim's folds (Samajdar et al., 2018), un-overlapped, or with the fill of a fold
    hidden under the fold before. A precision with fewer MACs a cycle than R*C stretches every cycle. Tensor
    cores: the product padded to whole MMA instructions.
    """
    unit = mach[M_UNIT]
    if unit == SYSTOLIC:
        rows, columns = int(mach[M_ROWS]), int(mach[M_COLUMNS])
        flow = mach[M_FLOW]
        if flow == OUTPUT_STATIONARY:
            folds, stream, fill = -(-m // rows) * -(-n // columns), k, rows + columns - 2
        elif flow == WEIGHT_STATIONARY:
            folds, stream, fill = -(-k // rows) * -(-n // columns), m, 2 * rows + columns - 2
        else:
            folds, stream, fill = -(-k // rows) * -(-m // columns), n, 2 * rows + columns - 2
        if mach[M_OVERLAP] != 0.0:
            cycles = float(products * folds * max(stream, rows) + fill)
        else:
            cycles = float(products * folds * (stream + fill))
        return cycles * (rows * columns / rate)
    if unit == TENSOR_CORE:
        a, b, c = int(mach[M_MMA_M]), int(mach[M_MMA_N]), int(mach[M_MMA_K])
        padded = float(-(-m // a) * a) * float(-(-n // b) * b) * float(-(-k // c) * c)
        return padded * products / rate
    return 0.0


@kernel("int64(int64, int64[::1])")
def volume(mask, length):
    """Product of the lengths of the dims in `mask`."""
    total = 1
    for d in range(length.size):
        if mask >> d & 1:
            total *= length[d]
    return total


@kernel("UniTuple(int64, 2)(int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])")
def span_of(dim, row, depth, loops, index, extents):
    """Start and length of the tile along `dim` at the loops' current iterations."""
    for j in range(depth):
        l = row[j]
        if loops[l, LOOP_DIM] == dim:
            start = index[l] * loops[l, LOOP_STEP]
            return start, min(loops[l, LOOP_STEP], extents[dim] - start)
    return 0, extents[dim]


@kernel("boolean(int64, int64, int64[:,::1], int64[:,::1], int64[::1])")
def leads(o, loop, rows, loops, cores):
    """Whether `loop` is one of the outermost loops that are split over cores."""
    for j in range(rows.shape[1]):
        l = rows[o, j]
        if cores[loops[l, LOOP_DIM]] == 0:
            return False
        if l == loop:
            return True
    return False


@kernel("float64(int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])")
def visits_share(o, rows, work, loops, cores):
    """Cores that walk operator `o` at one time."""
    share = 1.0
    for j in range(work[W_TREE, o]):
        d = loops[rows[o, j], LOOP_DIM]
        if cores[d] == 0:
            break
        share *= cores[d]
    return share


@kernel("int64(int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64[:,::1], int64[::1], int64[::1])")
def real_tile(acc, a, axes, row, depth, loops, index, extents):
    """Elements of access `a`'s tile at `depth`, at the loops' current iterations (tree loops only)."""
    total = 1
    for x in range(acc[a, ACC_AXES], acc[a, ACC_AXES_END]):
        kind = axes[x, AXIS_KIND]
        if kind == INDIRECT:
            size = 1
            for d in range(extents.size):
                if axes[x, AXIS_A] >> d & 1:
                    size *= span_of(d, row, depth, loops, index, extents)[1]
            total *= min(size, axes[x, AXIS_N])
            continue
        start, size = span_of(axes[x, AXIS_D0], row, depth, loops, index, extents)
        if kind == SIMPLE:
            total *= min(size, axes[x, AXIS_A])
        else:
            start_r, size_r = span_of(axes[x, AXIS_D1], row, depth, loops, index, extents)
            total *= window_elements(
                start, start + size, start_r, start_r + size_r,
                axes[x, AXIS_A], axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N],
            )  # fmt: skip
    return total


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64, int64[:,::1], int64[:,::1])"
)
def representatives(ops, loops, path, lengths, cores, room, shown, weight):
    """Which iterations of each tree loop are walked, and how often each counts.

    A loop of n iterations is walked at 0, 1, 2, n-2 and n-1, the third standing for all in the middle: only the
    first differs from its successor in what it loads, and only the last in its size. Where that is more than
    `room` steps in all, at 0, 1 and n-1. ``shown[l, 0]`` is how many; then the iterations.
    """
    for most in (5, 3):
        for l in range(loops.shape[0]):
            shown[l, 0] = 0
        steps = 0
        for o in range(ops.shape[0]):
            here = 1
            leading = True
            for j in range(ops[o, OP_TREE]):
                l = path[o, j]
                trips = loops[l, LOOP_TRIPS]
                leading = leading and cores[loops[l, LOOP_DIM]] > 0
                if leading:
                    trips = -(-trips // cores[loops[l, LOOP_DIM]])
                if shown[l, 0] == 0:
                    count = min(trips, most)
                    shown[l, 0] = count
                    for i in range(count):
                        shown[l, 1 + i] = i
                        weight[l, 1 + i] = 1
                    if trips > most:
                        shown[l, most] = trips - 1
                        if most == 5:
                            shown[l, 4] = trips - 2
                            weight[l, 3] = trips - 4
                        else:
                            weight[l, 2] = trips - 2
                    weight[l, 0] = trips
                here *= shown[l, 0]
            steps += here
        if steps <= room:
            break


@kernel("int64(int64[:,::1], int64[:,::1], int64[::1], int64[:,::1])")
def program(ops, path, lengths, code):
    """The tree as a program: (0, loop) opens, (1, operator) visits, (2, loop) closes. Returns its length."""
    size = 0
    depth = 0
    open_loops = np.empty(path.shape[1], np.int64)
    for o in range(ops.shape[0] + 1):
        common = 0
        if o < ops.shape[0]:
            while common < depth and common < ops[o, OP_TREE] and open_loops[common] == path[o, common]:
                common += 1
        while depth > common:
            depth -= 1
            code[size, 0] = 2
            code[size, 1] = open_loops[depth]
            size += 1
        if o == ops.shape[0]:
            break
        while depth < ops[o, OP_TREE]:
            open_loops[depth] = path[o, depth]
            code[size, 0] = 0
            code[size, 1] = path[o, depth]
            size += 1
            depth += 1
        code[size, 0] = 1
        code[size, 1] = o
        size += 1
    return size


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[:,::1], int64, int64[::1], int64[::1], float64[::1], int64[::1], int64[:,::1],"
    " float64[::1])"
)
def load_and_store(
    ops, acc, axes, ten, extents, loops, rows, work, counts, o, index, last, visits, cores, shown, step
):
    """Add to ``step`` what operator `o` loads and stores at the loops' current iterations.

    Where a tile is cut in the private nest its part of a step is the mean over all steps.
    """
    tree = work[W_TREE, o]
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        bits = float(ten[t, TEN_BITS]) / 8.0
        partial = float(ten[t, TEN_PARTIAL]) / 8.0
        if ten[t, TEN_HOME] != HOME_OUTER:
            if acc[a, ACC_WRITE] and ten[t, TEN_EXPORTED]:
                mean = counts[a, WRITES] * bits / visits[o]
                step[T_OUT_PORT] += mean
                step[T_OUT_DEVICE] += mean * visits_share(o, rows, work, loops, cores)
            continue
        if acc[a, ACC_WRITE] == 0 and work[W_LEADER, a] != a:
            continue
        depth = work[W_EFFECTIVE0, a]
        copies = 1.0
        first, final, sum_first, sum_last, again = True, True, True, True, False
        for j in range(tree):
            l = rows[o, j]
            d = loops[l, LOOP_DIM]
            if j >= depth:
                first = first and index[l] == 0
                final = final and index[l] == last[l]
                continue
            if cores[d] > 1 and leads(o, l, rows, loops, cores):
                copies *= cores[d]
            if not acc[a, ACC_TOUCH] >> d & 1:
                again = again or index[l] > 0
                if ops[o, OP_OWN] >> d & 1:
                    sum_first = sum_first and index[l] == 0
                    sum_last = sum_last and index[l] == last[l]
        if acc[a, ACC_FIXED] >= 0:
            elements = float(acc[a, ACC_FIXED])
            for j in range(tree):
                first = first and index[rows[o, j]] == 0
                final = final and index[rows[o, j]] == last[rows[o, j]]
        elif depth > tree:
            first, final = True, True
            if acc[a, ACC_WRITE] == 0:
                elements = counts[a, READS] / visits[o]
                copies = visits_share(o, rows, work, loops, cores)
            else:
                copies = visits_share(o, rows, work, loops, cores)
                elements = counts[a, WRITES] / visits[o]
                extra = counts[a, PARTIAL_WRITES] / visits[o] * partial
                step[T_PORT] += extra
                step[T_DEVICE] += extra * copies
                step[T_REFETCH] += extra * copies
                step[T_OUT_PORT] += extra
                step[T_OUT_DEVICE] += extra * copies
                step[T_OUT_REFETCH] += extra * copies
        else:
            elements = float(real_tile(acc, a, axes, rows[o], depth, loops, index, extents))
        if acc[a, ACC_WRITE] == 0:
            if first:
                size = elements * bits
                step[T_PORT] += size
                step[T_DEVICE] += size * copies
                if again:
                    step[T_REFETCH] += size * copies
                if depth == 0:
                    step[T_COLD] = 1.0
            continue
        if depth <= tree and first and not sum_first:
            step[T_PORT] += elements * partial
            step[T_DEVICE] += elements * partial * copies
            step[T_REFETCH] += elements * partial * copies
        if final:
            size = elements * (bits if sum_last or depth > tree else partial)
            step[T_OUT_PORT] += size
            step[T_OUT_DEVICE] += size * copies
            if not (sum_last or depth > tree):
                step[T_OUT_REFETCH] += size * copies


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], float64[::1], float64[::1],"
    " float64[::1], float64[::1], int64[::1], float64[::1], float64[:,::1])"
)
def walk(
    ops, acc, axes, ten, extents, loops, path, lengths, rows, work, counts, mat, rate, vector, onchip, mach, cores,
    spill, steps,
):  # fmt: skip
    """The steps of the busiest core, in order; returns how many rows of ``steps`` are filled.

    Parameters
    ----------
    rows, work, counts : as `traffic.measure` left them (`counts` of level 0).
    mat, rate : per operator what runs on the matrix unit, and its MACs a cycle.
    vector : cycles of one lane per executed point.
    onchip : bytes between buffer and registers per executed point.
    cores : per dim over how many cores its outermost loops are split; 0: a dim that some operator reduces.
    spill : operator, DRAM bytes, buffer bytes of each of its steps.
    steps : float64[room, STEP_COLUMNS]; a vector step that follows a matrix step joins it.
    """
    shown = np.zeros((loops.shape[0], 6), np.int64)
    weight = np.zeros((loops.shape[0], 6), np.int64)
    representatives(ops, loops, path, lengths, cores, steps.shape[0], shown, weight)
    code = np.empty((2 * loops.shape[0] + ops.shape[0] + 1, 2), np.int64)
    size = program(ops, path, lengths, code)
    begin = np.zeros(loops.shape[0], np.int64)
    at = np.zeros(loops.shape[0], np.int64)
    index = np.zeros(loops.shape[0], np.int64)
    last = np.zeros(loops.shape[0], np.int64)
    visits = np.ones(ops.shape[0], np.float64)
    for o in range(ops.shape[0]):
        for j in range(work[W_TREE, o]):
            visits[o] *= loops[rows[o, j], LOOP_TRIPS]
    for l in range(loops.shape[0]):
        last[l] = weight[l, 0] - 1
    length = extents.copy()
    step = np.zeros(STEP_COLUMNS, np.float64)
    count = 0
    factor = 1.0
    block, owner, blocks = 0, -1, 0
    pc = 0
    while pc < size:
        what, arg = code[pc, 0], code[pc, 1]
        pc += 1
        if what == 1:
            o = arg
            skip = False
            for j in range(ops[o, OP_TREE]):
                l = path[o, j]
                if work[W_SKIP, o] >> j & 1 and index[l] > 0:
                    skip = True
                d = loops[l, LOOP_DIM]
                low = index[l] * loops[l, LOOP_STEP]
                length[d] = min(loops[l, LOOP_STEP], extents[d] - low)
            if not skip and count < steps.shape[0]:
                step[:] = 0.0
                load_and_store(
                    ops, acc, axes, ten, extents, loops, rows, work, counts, o, index, last, visits, cores, shown,
                    step,
                )  # fmt: skip
                points = float(volume(ops[o, OP_OWN], length))
                busy = vector[o] * np.ceil(points / mach[M_LANES]) / mach[M_CLOCK]
                if ops[o, OP_RESCALE]:
                    online = False
                    for j in range(work[W_TREE, o]):
                        l = rows[o, j]
                        online = online or (ops[o, OP_RESCALE] >> loops[l, LOOP_DIM] & 1 and index[l] > 0)
                    if online:
                        a = ops[o, OP_WRITES]
                        tile = float(
                            real_tile(acc, a, axes, rows[o], work[W_EFFECTIVE0, a], loops, index, extents)
                        )
                        busy += np.ceil(tile / mach[M_LANES]) * mach[M_RESCALE] / mach[M_CLOCK]
                step[T_ONCHIP] = onchip[o] * points
                step[T_WEIGHT] = factor
                step[T_BLOCK] = block
                if spill[0] == o:
                    step[T_SPILL] = spill[1]
                    step[T_SPILL_ONCHIP] = spill[2]
                if mat[o, MAT_USED]:
                    step[T_CYCLES] = matrix_cycles(
                        mach, rate[o], volume(mat[o, MAT_M], length), volume(mat[o, MAT_N], length),
                        volume(mat[o, MAT_K], length), volume(mat[o, MAT_PRODUCTS], length),
                    )  # fmt: skip
                    step[T_MATRIX] = step[T_CYCLES] / mach[M_CLOCK]
                    step[T_TAIL] = busy
                elif (
                    count > 0
                    and steps[count - 1, T_MATRIX] > 0.0
                    and steps[count - 1, T_WEIGHT] == factor
                    and steps[count - 1, T_BLOCK] == block
                ):
                    for column in range(T_TAIL):
                        steps[count - 1, column] += step[column]
                    steps[count - 1, T_TAIL] += busy
                    steps[count - 1, T_ONCHIP] += step[T_ONCHIP]
                    steps[count - 1, T_SPILL_ONCHIP] += step[T_SPILL_ONCHIP]
                    steps[count - 1, T_COLD] = max(steps[count - 1, T_COLD], step[T_COLD])
                    skip = True
                else:
                    step[T_VECTOR] = busy
                if not skip:
                    steps[count, :] = step
                    count += 1
            for j in range(ops[o, OP_TREE]):
                d = loops[path[o, j], LOOP_DIM]
                length[d] = extents[d]
            continue
        l = arg
        if what == 0:
            begin[l] = pc
            at[l] = 0
        else:
            factor /= weight[l, 1 + at[l]]
            if owner == l:
                block, owner = 0, -1
            at[l] += 1
            if at[l] == shown[l, 0]:
                index[l] = 0
                continue
            pc = begin[l]
        index[l] = shown[l, 1 + at[l]]
        factor *= weight[l, 1 + at[l]]
        if owner < 0 and weight[l, 1 + at[l]] > 1:
            blocks += 1
            block, owner = blocks, l
    return count


@kernel("float64(float64[:,::1], int64, int64, float64[::1], float64[::1])")
def load_seconds(steps, i, stages, mach, relief):
    """Seconds to load step `i`: port, share of the device, or Little's law."""
    spill = steps[i, T_SPILL] / 2.0 / relief[R_SPILL]
    port = steps[i, T_PORT] + spill
    if port == 0.0:
        return 0.0
    device = steps[i, T_DEVICE] + spill
    seconds = max(port / mach[M_PORT], device / mach[M_DEVICE]) / relief[R_DRAM]
    flight = port * stages
    if (
        mach[M_INFLIGHT] > 0.0
    ):  # simt: the resident threads' loads, or the tiles that asynchronous copies are ahead
        flight = max(mach[M_INFLIGHT], port * (stages - 1))
    return max(seconds, port * mach[M_LATENCY] / (flight * relief[R_OCCUPANCY]) / relief[R_LATENCY])


@kernel("float64(float64[:,::1], int64, float64[::1], float64[::1])")
def store_seconds(steps, i, mach, relief):
    """Seconds to store what step `i` made."""
    spill = steps[i, T_SPILL] / 2.0 / relief[R_SPILL]
    port = (steps[i, T_OUT_PORT] + spill) / mach[M_PORT]
    return max(port, (steps[i, T_OUT_DEVICE] + spill) / mach[M_DEVICE]) / relief[R_DRAM]


@kernel("float64(float64[:,::1], int64, int64, int64, float64[::1], float64[::1])")
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
    busy += steps[i, T_VECTOR] / relief[R_VECTOR]
    moved = steps[i, T_ONCHIP] + steps[i, T_SPILL_ONCHIP] / relief[R_SPILL]
    return max(busy, moved / mach[M_ONCHIP] / relief[R_ONCHIP])


@kernel("void(float64[:,::1], int64, float64, float64[:,::1], int64)")
def add_load(steps, i, times, terms, row):
    """Add the bytes that step `i` loads, `times` over, to a term."""
    spill = steps[i, T_SPILL] / 2.0
    terms[row, P_BYTES] += (steps[i, T_DEVICE] + spill) * times
    terms[row, P_SPILL] += spill * times
    terms[row, P_REFETCH] += steps[i, T_REFETCH] * times


@kernel("void(float64[:,::1], int64, float64, float64[:,::1], int64)")
def add_store(steps, i, times, terms, row):
    """Add the bytes that step `i` stores, `times` over, to a term."""
    spill = steps[i, T_SPILL] / 2.0
    terms[row, P_BYTES] += (steps[i, T_OUT_DEVICE] + spill) * times
    terms[row, P_SPILL] += spill * times
    terms[row, P_REFETCH] += steps[i, T_OUT_REFETCH] * times


@kernel("float64(float64[:,::1], int64, int64, float64[::1], float64[::1], float64[:,::1])")
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


@kernel("float64(float64[:,::1], int64)")
def demand(phase, i):
    """Bytes a second of one phase."""
    return phase[i, P_BYTES] / max(1e-30, phase[i, P_SECONDS])


@kernel("void(float64[:,::1], int64, float64[:,::1], int64)")
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


@kernel("float64(float64[::1], float64, float64)")
def makespan(seconds, issue, gap):
    """End of the last group: group i starts at ``max(end of i-1 + gap, (i + 1) * issue)``."""
    end = 0.0
    for i in range(seconds.size):
        end = max(end + gap, (i + 1) * issue) + seconds[i]
    return end


@kernel("int64(int64[::1], int64[::1], int64, int64, int64[::1], int64[::1])")
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
