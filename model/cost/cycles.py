"""Kernels: the machine's figures as one vector, and cycles of its matrix unit (COST-MODEL 5).

Knows arrays and scalars only; `units.py` fills the figures.
"""

from __future__ import annotations

from ..compiled import kernel

# Figures of the machine, ``mach`` float64[MACHINE_FIGURES].
M_UNIT, M_ROWS, M_COLUMNS, M_FLOW, M_OVERLAP, M_MMA_M, M_MMA_N, M_MMA_K = 0, 1, 2, 3, 4, 5, 6, 7
M_CLOCK, M_LANES, M_PORT, M_DEVICE, M_LATENCY, M_ONCHIP, M_INFLIGHT, M_RESCALE = 8, 9, 10, 11, 12, 13, 14, 15
M_CACHE = 16  # bytes a second of the cache between DRAM and the buffers, for the slot
MACHINE_FIGURES = 17
NO_UNIT, SYSTOLIC, TENSOR_CORE = 0, 1, 2
OUTPUT_STATIONARY, WEIGHT_STATIONARY, INPUT_STATIONARY = 0, 1, 2
# Columns of ``mat`` int64[operators, MAT_COLUMNS]: whether the matrix unit runs it, and masks of its dims.
MAT_USED, MAT_M, MAT_N, MAT_K, MAT_PRODUCTS = 0, 1, 2, 3, 4
MAT_COLUMNS = 5


@kernel("float64(float64[::1], float64, int64, int64, int64, int64)", borrows=True)
def matrix_cycles(mach, rate, m, n, k, products):
    """Cycles of `products` matrix products m x n x k on one unit that does `rate` MACs a cycle.

    Systolic R x C arrays: SCALE-Sim's folds (Samajdar et al., 2018), un-overlapped, or with the fill of a fold
    hidden under the fold before. A precision with fewer MACs a cycle than R*C stretches every cycle. Tensor
    cores: the product padded to whole MMA instructions, in precisions that are faster there than on the vector lanes.
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
    if unit == TENSOR_CORE and rate <= mach[M_LANES]:  # no faster than the lanes: they do it, without MMA
        return float(m) * float(n) * float(k) * products / rate
    if unit == TENSOR_CORE:
        a, b, c = int(mach[M_MMA_M]), int(mach[M_MMA_N]), int(mach[M_MMA_K])
        padded = float(-(-m // a) * a) * float(-(-n // b) * b) * float(-(-k // c) * c)
        return padded * products / rate
    return 0.0


@kernel("int64(int64, int64[::1])", borrows=True)
def volume(mask, length):
    """Product of the lengths of the dims in `mask`."""
    total = 1
    for d in range(length.size):
        if mask >> d & 1:
            total *= length[d]
    return total
