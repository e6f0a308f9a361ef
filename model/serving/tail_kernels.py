"""Kernels of the tail's statistics: many ranks of a long array at once, and resampled blocks.

Know arrays and scalars only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel

BINS = 1 << 13
"""A bin for 0, then 128 for each power of two up to 2**63: a bin's values differ by less than 1 %."""

_SHIFT = 45  # leaves the exponent and seven bits of the mantissa
_LEAST = (1023 << 7) - 1  # what is left of 1.0, less one


@kernel("int64(int64)", inline=True, borrows=True)
def bin_of(value: int) -> int:
    """The bin of a value from 0 on; ascends with the value. A float64's bits are exponent, then mantissa."""
    return max(0, int(np.float64(value).view(np.int64) >> _SHIFT) - _LEAST)


@kernel("void(int64[::1], int64[::1])", borrows=True)
def count_bins(values: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Add to ``counts``, int64[BINS], how many of the values, all from 0 on, lie in each bin."""
    for i in range(values.size):
        counts[bin_of(values[i])] += 1


@kernel("int64(int64[::1], boolean[::1], int64[::1])", borrows=True)
def pick_bins(values: NDArray[np.int64], wanted: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
    """Copy the values whose bin is wanted into ``out``, in their order; returns how many.

    ``out`` must hold all of them.
    """
    count = 0
    for i in range(values.size):
        if wanted[bin_of(values[i])]:
            out[count] = values[i]
            count += 1
    return count


@kernel("void(int32[::1], int64[::1], int32[:,::1], int64[:,::1], int64[:,::1])")
def resampled_ranks(
    block: NDArray[np.int32],
    sizes: NDArray[np.int64],
    drawn: NDArray[np.int32],
    shares: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Where the percentiles lie after blocks of a series were drawn anew.

    Parameters
    ----------
    block : int32[n], the block of each value, the values in ascending order.
    sizes : int64[m], values in each block.
    drawn : int32[r, m], for each of r repetitions the blocks that make its series.
    shares : int64[p, 2], fractions above 0 and below 1, descending.
    out : int64[r, p], filled: the place in ascending order of the nearest-rank percentile. Percentiles lie near the
        top, so that the walk begins there.
    """
    weight = np.zeros(sizes.size, np.int64)
    for repetition in range(drawn.shape[0]):
        weight[:] = 0
        total = 0
        for k in range(drawn.shape[1]):
            weight[drawn[repetition, k]] += 1
            total += sizes[drawn[repetition, k]]
        at = block.size
        above = 0
        for p in range(shares.shape[0]):
            rank = -(-shares[p, 0] * total // shares[p, 1])
            need = total - rank + 1
            while above < need:
                at -= 1
                above += weight[block[at]]
            out[repetition, p] = at
