"""Kernels: the steps of one core's walk through a nest (docs/loop-tree.md, sections 4 and 5).

Knows arrays only: the nest's (columns in `sweep.py`), the machine's figures (`cycles.py`) and per operator what feeds
its units. Bytes, cycles and seconds are float64.
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel
from .cycles import (
    M_CLOCK,
    M_LANES,
    M_RESCALE,
    MAT_K,
    MAT_M,
    MAT_N,
    MAT_PRODUCTS,
    MAT_USED,
    matrix_cycles,
    volume,
)
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
    OP_DOMAIN,
    OP_DOMAIN_END,
    OP_END,
    OP_FIRST,
    OP_OWN,
    OP_RESCALE,
    OP_SPLIT,
    OP_TREE,
    OP_WRITES,
    PARTIAL_WRITES,
    READS,
    ROLLING,
    SIMPLE,
    TEN_BITS,
    TEN_EXPORTED,
    TEN_HOME,
    TEN_PARTIAL,
    TEN_SPILLED,
    W_EFFECTIVE0,
    W_LEADER,
    W_SKIP,
    W_TREE,
    WRITES,
    points_between,
    sharers,
    window_elements,
)

# Columns of ``steps`` float64[steps, STEP_COLUMNS]. Bytes: of one core's port, of the cache (all cores), of DRAM (all
# cores; of these, what is refetched and what is spilled from the buffer). T_SPILL: from the registers.
T_PORT, T_CACHE, T_DEVICE, T_REFETCH, T_SPILLED = 0, 1, 2, 3, 4
T_OUT_PORT, T_OUT_CACHE, T_OUT_DEVICE, T_OUT_REFETCH, T_OUT_SPILLED = 5, 6, 7, 8, 9
T_SPILL, T_SPILL_DEVICE, T_SPILL_ONCHIP, T_ONCHIP, T_MATRIX, T_VECTOR = 10, 11, 12, 13, 14, 15
T_WAIT = 16  # bytes into further buffers with single copies: the units wait for them
T_TAIL = 17  # the columns before it are summed where a tail joins its step
T_WEIGHT, T_BLOCK, T_COLD, T_CYCLES = 18, 19, 20, 21
STEP_COLUMNS = 22
# Columns of ``toll`` float64[accesses, TOLL_COLUMNS]: bytes that pass a port and DRAM per byte of an access's tiles.
TOLL_PORT, TOLL_DRAM, TOLL_OUT_PORT, TOLL_OUT_DRAM = 0, 1, 2, 3
TOLL_COLUMNS = 4


@kernel("UniTuple(int64, 2)(int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])", borrows=True)
def span_of(dim, row, depth, loops, index, extents):
    """Start and length of the tile along `dim` at the loops' current iterations."""
    for j in range(depth):
        loop = row[j]
        if loops[loop, LOOP_DIM] == dim:
            start = index[loop] * loops[loop, LOOP_STEP]
            return start, min(loops[loop, LOOP_STEP], extents[dim] - start)
    return 0, extents[dim]


@kernel("float64(int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])", borrows=True)
def visits_share(o, rows, work, loops, cores):
    """Cores that walk operator `o` at one time."""
    share = 1.0
    for j in range(work[W_TREE, o]):
        d = loops[rows[o, j], LOOP_DIM]
        if cores[d] == 0:
            break
        share *= cores[d]
    return share


@kernel("int64(int64[:,::1], int64, int64[::1], int64, int64[:,::1], int64[::1], int64[::1])", borrows=True)
def window_tile(axes, x, row, depth, loops, index, extents):
    """Elements of window axis `x` in the tile at the loops' current iterations; of a rolling one, the new ones."""
    start, size = span_of(axes[x, AXIS_D0], row, depth, loops, index, extents)
    start_r, size_r = span_of(axes[x, AXIS_D1], row, depth, loops, index, extents)
    stride, dilation, offset, extent = axes[x, AXIS_A], axes[x, AXIS_B], axes[x, AXIS_C], axes[x, AXIS_N]
    end, end_r = start + size, start_r + size_r
    if axes[x, AXIS_KIND] != ROLLING:
        return window_elements(start, end, start_r, end_r, stride, dilation, offset, extent)
    return window_elements(0, end, start_r, end_r, stride, dilation, offset, extent) - window_elements(
        0, start, start_r, end_r, stride, dilation, offset, extent
    )


@kernel(
    "int64(int64[:,::1], int64, int64[:,::1], int64[::1], int64, int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
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
        if kind == SIMPLE:
            d = axes[x, AXIS_D0]
            start, size = span_of(d, row, depth, loops, index, extents)
            total *= size if axes[x, AXIS_A] == extents[d] else points_between(axes, x, start, start + size)
        else:
            total *= window_tile(axes, x, row, depth, loops, index, extents)
    return total


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64, int64[:,::1], int64[:,::1])",
    borrows=True,
)
def representatives(ops, loops, path, lengths, cores, room, shown, weight):
    """Which iterations of each tree loop are walked, and how often each counts.

    A loop of n iterations is walked at 0, 1, 2, n-2 and n-1, the third standing for all in the middle: only the
    first differs from its successor in what it loads, and only the last in its size. Where that is more than
    `room` steps in all, at 0, 1 and n-1. ``shown[loop, 0]`` is how many; then the iterations.
    """
    for most in (5, 3):
        for loop in range(loops.shape[0]):
            shown[loop, 0] = 0
        steps = 0
        for o in range(ops.shape[0]):
            here = 1
            leading = True
            for j in range(ops[o, OP_TREE]):
                loop = path[o, j]
                trips = loops[loop, LOOP_TRIPS]
                leading = leading and cores[loops[loop, LOOP_DIM]] > 0
                if leading:
                    trips = -(-trips // cores[loops[loop, LOOP_DIM]])
                if shown[loop, 0] == 0:
                    count = min(trips, most)
                    shown[loop, 0] = count
                    for i in range(count):
                        shown[loop, 1 + i] = i
                        weight[loop, 1 + i] = 1
                    if trips > most:
                        shown[loop, most] = trips - 1
                        if most == 5:
                            shown[loop, 4] = trips - 2
                            weight[loop, 3] = trips - 4
                        else:
                            weight[loop, 2] = trips - 2
                    weight[loop, 0] = trips
                here *= shown[loop, 0]
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


@kernel("void(float64[::1], float64, float64, float64[:,::1], int64, float64, float64)", borrows=True)
def add_in(step, size, copies, toll, a, again, spilled):
    """Add a load of `size` bytes by each of `copies` cores to ``step``: `again`, `spilled` are 0 or 1."""
    step[T_PORT] += size * toll[a, TOLL_PORT]
    step[T_CACHE] += size * toll[a, TOLL_PORT] * copies
    moved = size * toll[a, TOLL_DRAM] * copies
    step[T_DEVICE] += moved
    step[T_REFETCH] += moved * again
    step[T_SPILLED] += moved * spilled


@kernel("void(float64[::1], float64, float64, float64[:,::1], int64, float64, float64)", borrows=True)
def add_out(step, size, copies, toll, a, again, spilled):
    """Add a store of `size` bytes by each of `copies` cores to ``step``: `again`, `spilled` are 0 or 1."""
    step[T_OUT_PORT] += size * toll[a, TOLL_OUT_PORT]
    step[T_OUT_CACHE] += size * toll[a, TOLL_OUT_PORT] * copies
    moved = size * toll[a, TOLL_OUT_DRAM] * copies
    step[T_OUT_DEVICE] += moved
    step[T_OUT_REFETCH] += moved * again
    step[T_OUT_SPILLED] += moved * spilled


@kernel(
    "void(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[:,::1], int64, int64[::1], int64[::1], float64[::1], int64[::1], float64[:,::1],"
    " float64[::1])",
    borrows=True,
)
def load_and_store(
    ops, acc, axes, ten, extents, loops, rows, work, counts, o, index, last, visits, cores, toll, step
):
    """Add to ``step`` what operator `o` loads and stores at the loops' current iterations.

    Where a tile is cut in the private nest its part of a step is the mean over all steps.
    """
    tree = work[W_TREE, o]
    for a in range(ops[o, OP_FIRST], ops[o, OP_END]):
        t = acc[a, ACC_TENSOR]
        bits = float(ten[t, TEN_BITS]) / 8.0
        partial = float(ten[t, TEN_PARTIAL]) / 8.0
        spilled = float(ten[t, TEN_SPILLED])
        if ten[t, TEN_HOME] != HOME_OUTER:
            if acc[a, ACC_WRITE] and ten[t, TEN_EXPORTED]:
                share = visits_share(o, rows, work, loops, cores)
                add_out(step, counts[a, WRITES] * bits / visits[o], share, toll, a, 0.0, 0.0)
            continue
        if acc[a, ACC_WRITE] == 0 and work[W_LEADER, a] != a:
            continue
        depth = work[W_EFFECTIVE0, a]
        copies = 1.0
        first, final, sum_first, sum_last, again = True, True, True, True, False
        for j in range(tree):
            loop = rows[o, j]
            d = loops[loop, LOOP_DIM]
            if j >= depth:
                first = first and index[loop] == 0
                final = final and index[loop] == last[loop]
                continue
            if cores[d] > 1:  # only loops outside every reduction are split
                copies *= cores[d]
            if not acc[a, ACC_TOUCH] >> d & 1:
                again = again or index[loop] > 0
                if ops[o, OP_OWN] >> d & 1:
                    sum_first = sum_first and index[loop] == 0
                    sum_last = sum_last and index[loop] == last[loop]
        if acc[a, ACC_FIXED] >= 0:
            elements = float(acc[a, ACC_FIXED])
            for j in range(tree):
                first = first and index[rows[o, j]] == 0
                final = final and index[rows[o, j]] == last[rows[o, j]]
        elif depth > tree:
            first, final = True, True
            copies = visits_share(o, rows, work, loops, cores)
            if acc[a, ACC_WRITE] == 0:
                elements = counts[a, READS] / visits[o]
            else:
                elements = counts[a, WRITES] / visits[o]
                extra = counts[a, PARTIAL_WRITES] / visits[o] * partial
                add_in(step, extra, copies, toll, a, 1.0, 0.0)
                add_out(step, extra, copies, toll, a, 1.0, 0.0)
        else:
            elements = float(real_tile(acc, a, axes, rows[o], depth, loops, index, extents))
        if acc[a, ACC_WRITE] == 0:
            if first:
                repeated = 1.0 if again and spilled == 0.0 else 0.0
                add_in(step, elements * bits, copies, toll, a, repeated, spilled)
                if depth == 0:
                    step[T_COLD] = 1.0
            continue
        if depth <= tree and first and not sum_first:
            add_in(step, elements * partial, copies, toll, a, 1.0, 0.0)
        if final:
            if sum_last or depth > tree:
                lost = 0.0 if ten[t, TEN_EXPORTED] else spilled
                if ops[o, OP_SPLIT]:  # each core's part, and what combining them moves
                    cut = float(sharers(ops[o, OP_OWN] & ~acc[a, ACC_TOUCH], rows[o], depth, tree, loops))
                    extra = elements * partial * (cut - 1.0) / cut
                    add_in(step, extra, copies * cut, toll, a, 1.0, 0.0)
                    add_out(step, extra, copies * cut, toll, a, 1.0, 0.0)
                    bits /= cut
                    copies *= cut
                add_out(step, elements * bits, copies, toll, a, 0.0, lost)
            else:
                add_out(step, elements * partial, copies, toll, a, 1.0, 0.0)


@kernel("int64(int64, int64, int64[:,::1], int64[::1], int64[::1])")
def cut_further(length, d, further, sizes, numbers):
    """Sizes of the tiles that further buffers cut `length` elements of dim `d` into; how many of each."""
    count = 1
    sizes[0] = length
    numbers[0] = 1
    for level in range(further.shape[0]):
        step = further[level, d]
        whole, kept = 0, 0
        for i in range(count):
            size, number = sizes[i], numbers[i]
            whole += number * (size // step)
            if size % step:
                sizes[kept], numbers[kept] = size % step, number
                kept += 1
        if whole:
            sizes[kept], numbers[kept] = step, whole
            kept += 1
        count = kept
    return count


@kernel("float64(int64[:,::1], int64, float64, float64[::1], int64[::1])", borrows=True)
def tile_cycles(mat, o, rate, mach, length):
    """Cycles of operator `o`'s matrix work on one tile of the lengths given."""
    return matrix_cycles(
        mach, rate, volume(mat[o, MAT_M], length), volume(mat[o, MAT_N], length), volume(mat[o, MAT_K], length),
        volume(mat[o, MAT_PRODUCTS], length),
    )  # fmt: skip


@kernel("float64(int64[:,::1], int64[:,::1], int64, float64, int64[:,::1], float64[::1], int64[::1])")
def fed_cycles(ops, mat, o, rate, further, mach, length):
    """`tile_cycles` of every tile that the innermost of further buffers feeds, over the lengths given."""
    dims = length.size
    sizes = np.empty((dims, further.shape[0] + 2), np.int64)
    numbers = np.empty((dims, further.shape[0] + 2), np.int64)
    many = np.ones(dims, np.int64)
    at = np.zeros(dims, np.int64)
    inner = length.copy()
    for d in range(dims):
        if ops[o, OP_OWN] >> d & 1:
            many[d] = cut_further(length[d], d, further, sizes[d], numbers[d])
    total = 0.0
    while True:
        times = 1.0
        for d in range(dims):
            if ops[o, OP_OWN] >> d & 1:
                inner[d] = sizes[d, at[d]]
                times *= numbers[d, at[d]]
        total += times * tile_cycles(mat, o, rate, mach, inner)
        d = 0
        while d < dims and at[d] + 1 == many[d]:
            at[d] = 0
            d += 1
        if d == dims:
            return total
        at[d] += 1


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], float64[::1], float64[::1], float64[:,::1],"
    " float64[::1], int64[::1], float64[::1], float64[:,::1], int64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1],"
    " int64[:,::1], int64,"
    " int64[:,::1], float64[::1], int64[::1], float64[::1])",
    borrows=True,
)
def follow(
    ops, acc, axes, ten, extents, loops, path, rows, work, counts, mat, rate, vector, onchip, mach, cores, spill,
    toll, further, steps, shown, weight, code, size, state, visits, length, step,
):  # fmt: skip
    """Run the `program` of a tree for `walk`.

    ``shown``, ``weight`` : as `representatives` leaves them. ``state`` int64[4, loops], ``step`` : workspace, zeros;
    ``visits`` : steps per operator in all; ``length`` : the extents.
    """
    begin, at, index, last = state[0], state[1], state[2], state[3]
    for loop in range(loops.shape[0]):
        last[loop] = weight[loop, 0] - 1
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
                loop = path[o, j]
                if work[W_SKIP, o] >> j & 1 and index[loop] > 0:
                    skip = True
                d = loops[loop, LOOP_DIM]
                low = index[loop] * loops[loop, LOOP_STEP]
                length[d] = min(loops[loop, LOOP_STEP], extents[d] - low)
            if not skip and count < steps.shape[0]:
                for x in range(ops[o, OP_DOMAIN], ops[o, OP_DOMAIN_END]):
                    length[axes[x, AXIS_D0]] = window_tile(
                        axes, x, path[o], ops[o, OP_TREE], loops, index, extents
                    )
                    length[axes[x, AXIS_D1]] = 1
                step[:] = 0.0
                load_and_store(
                    ops, acc, axes, ten, extents, loops, rows, work, counts, o, index, last, visits, cores, toll,
                    step,
                )  # fmt: skip
                points = float(volume(ops[o, OP_OWN], length))
                busy = vector[o] * np.ceil(points / mach[M_LANES]) / mach[M_CLOCK]
                if ops[o, OP_RESCALE]:
                    online = False
                    for j in range(work[W_TREE, o]):
                        loop = rows[o, j]
                        online = online or (
                            ops[o, OP_RESCALE] >> loops[loop, LOOP_DIM] & 1 and index[loop] > 0
                        )
                    if online:
                        a = ops[o, OP_WRITES]
                        tile = float(
                            real_tile(acc, a, axes, rows[o], work[W_EFFECTIVE0, a], loops, index, extents)
                        )
                        busy += np.ceil(tile / mach[M_LANES]) * mach[M_RESCALE] / mach[M_CLOCK]
                step[T_ONCHIP] = onchip[0, o] * points
                step[T_WAIT] = onchip[1, o] * points
                step[T_WEIGHT] = factor
                step[T_BLOCK] = block
                if spill[0] == o:
                    step[T_SPILL] = spill[1]
                    step[T_SPILL_DEVICE] = spill[1] * visits_share(o, rows, work, loops, cores)
                    step[T_SPILL_ONCHIP] = spill[2]
                if mat[o, MAT_USED]:
                    if further.shape[0] == 0:
                        step[T_CYCLES] = tile_cycles(mat, o, rate[o], mach, length)
                    else:
                        step[T_CYCLES] = fed_cycles(ops, mat, o, rate[o], further, mach, length)
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
                    steps[count - 1, T_COLD] = max(steps[count - 1, T_COLD], step[T_COLD])
                    skip = True
                else:
                    step[T_VECTOR] = busy
                if not skip:
                    for column in range(STEP_COLUMNS):
                        steps[count, column] = step[column]
                    count += 1
            for j in range(ops[o, OP_TREE]):
                d = loops[path[o, j], LOOP_DIM]
                length[d] = extents[d]
            for x in range(ops[o, OP_DOMAIN], ops[o, OP_DOMAIN_END]):
                length[axes[x, AXIS_D0]] = extents[axes[x, AXIS_D0]]
                length[axes[x, AXIS_D1]] = extents[axes[x, AXIS_D1]]
            continue
        loop = arg
        if what == 0:
            begin[loop] = pc
            at[loop] = 0
        else:
            factor /= weight[loop, 1 + at[loop]]
            if owner == loop:
                block, owner = 0, -1
            at[loop] += 1
            if at[loop] == shown[loop, 0]:
                index[loop] = 0
                continue
            pc = begin[loop]
        index[loop] = shown[loop, 1 + at[loop]]
        factor *= weight[loop, 1 + at[loop]]
        if owner < 0 and weight[loop, 1 + at[loop]] > 1:
            blocks += 1
            block, owner = blocks, loop
    return count


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,::1],"
    " int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], float64[::1], float64[::1],"
    " float64[:,::1], float64[::1], int64[::1], float64[::1], float64[:,::1], int64[:,::1], float64[:,::1])"
)
def walk(
    ops, acc, axes, ten, extents, loops, path, lengths, rows, work, counts, mat, rate, vector, onchip, mach, cores,
    spill, toll, further, steps,
):  # fmt: skip
    """The steps of the busiest core, in order; returns how many rows of ``steps`` are filled.

    Parameters
    ----------
    rows, work, counts : as `traffic.measure` left them (`counts` of level 0).
    mat, rate : per operator what runs on the matrix unit, and its MACs a cycle.
    vector : cycles of one lane per executed point.
    onchip : float64[2, operators] bytes on chip per executed point: that pass beside the work, that the units wait for.
    cores : per dim over how many cores its outermost loops are split; 0: a dim that some operator reduces.
    spill : operator, DRAM bytes, buffer bytes of each of its steps.
    toll : per access bytes that pass a port and DRAM per byte of its tiles (`crossing.py`); ones: as they are.
    further : int64[further buffers, dims] their tiles, whose loops are not among the walked ones.
    steps : float64[room, STEP_COLUMNS]; a vector step that follows a matrix step joins it.
    """
    shown = np.zeros((loops.shape[0], 6), np.int64)
    weight = np.zeros((loops.shape[0], 6), np.int64)
    representatives(ops, loops, path, lengths, cores, steps.shape[0], shown, weight)
    code = np.empty((2 * loops.shape[0] + ops.shape[0] + 1, 2), np.int64)
    size = program(ops, path, lengths, code)
    state = np.zeros((4, loops.shape[0]), np.int64)
    visits = np.ones(ops.shape[0], np.float64)
    for o in range(ops.shape[0]):
        for j in range(work[W_TREE, o]):
            visits[o] *= loops[rows[o, j], LOOP_TRIPS]
    return follow(
        ops, acc, axes, ten, extents, loops, path, rows, work, counts, mat, rate, vector, onchip, mach, cores, spill,
        toll, further, steps, shown, weight, code, size, state, visits, extents.copy(), np.zeros(STEP_COLUMNS),
    )  # fmt: skip
