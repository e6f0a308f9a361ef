"""Which tensors make up a group's footprint: bytes of each in the outermost buffer at the peak.

Knows arrays and the kernel of the footprint (docs/loop-tree.md, section 3), whose law it does not write down again: a
tensor's part is what the peak loses when its elements have no bits. Only the peak's place is found here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import sweep as k
from .footprint import level_peak
from .layout import NestArrays

Ints = NDArray[np.int64]

IN_PLACE = -1
"""Stands for a pointwise operator that writes over its dying input: bytes that are not needed twice, negative."""


def resident(arrays: NestArrays, rows: Ints, work: Ints) -> tuple[tuple[int, int], ...]:
    """Pairs (local tensor, bytes of all its tiles) at the operator where the footprint peaks; `IN_PLACE` last.

    Their sum is the footprint. Running statistics of an online reduction count with the tensor that it writes.

    Parameters
    ----------
    rows, work : as `traffic.measure` left them; ``work`` is left with the same footprint's rows.
    """

    def live(ten: Ints) -> tuple[int, Ints]:
        peak = level_peak(
            arrays.ops, arrays.acc, arrays.axes, ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
            0, arrays.buffers, arrays.levels, int(arrays.stages[0]), rows, work,
        )  # fmt: skip
        return int(peak), np.cumsum(work[k.W_LIVE, : arrays.ops.shape[0]])

    peak, whole = live(arrays.ten)
    # Where nothing is written in place the peak is what lives there; else the fullest operator is the one.
    at = np.flatnonzero(whole == peak)
    place = int(at[0]) if at.size else int(np.argmax(whole))
    out: list[tuple[int, int]] = []
    for tensor in range(arrays.ten.shape[0]):
        without = arrays.ten.copy()
        without[tensor, [k.TEN_BITS, k.TEN_PARTIAL]] = 0
        part = int(whole[place] - live(without)[1][place])
        if part:
            out.append((tensor, part))
    live(arrays.ten)
    if whole[place] != peak:
        out.append((IN_PLACE, peak - int(whole[place])))
    return tuple(out)
