"""What a mapped group's traffic with the outside is in bytes: whole sectors, and only what a cache does not have.

Knows the counts and arrays of one nest, the outer memory levels, and which tensors the cache holds before and after;
knows no seconds and no other group. The laws are in docs/loop-tree.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..hardware.accelerator import Accelerator
from . import hits as h
from . import steps as w
from . import sweep as k
from .layout import NestArrays

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bits of every access of a nest that pass into and out of the buffer, and that reach DRAM.

    Attributes
    ----------
    buffer, dram : int64[accesses, 2] bits inwards and outwards; equal where there is no cache.
    refetched, spilled : bits of ``dram`` in all that are fetched again or are partial sums; of spilled intermediates.
    toll : float64[accesses, TOLL_COLUMNS] for `steps.walk`.
    """

    buffer: Ints
    dram: Ints
    refetched: int
    spilled: int
    toll: NDArray[np.float64]


def sectors_and_share(machine: Accelerator) -> tuple[int, int, int]:
    """Bytes of a sector next to the buffer and at DRAM, and of the slot's share of the cache; -1: there is none."""
    cache, dram = machine.cache, machine.dram.access_bytes
    return (dram, dram, -1) if cache is None else (cache.access_bytes, dram, machine.cache_share_bytes)


def crossing(
    machine: Accelerator,
    arrays: NestArrays,
    counts: Ints,
    rows: Ints,
    work: Ints,
    cores: Ints,
    warm: frozenset[int] = frozenset(),
    kept: frozenset[int] = frozenset(),
) -> Crossing:
    """The bits that cross, per access.

    Parameters
    ----------
    counts, rows, work : of level 0, as `traffic.measure` left them.
    cores : per dim over how many cores its outermost loops are split; 0: not split.
    warm, kept : tensors that the cache holds when the group starts; that it keeps until nobody needs them any more.
    """
    crossed = np.zeros((arrays.acc.shape[0], h.CROSSED), np.int64)
    crossed[:, :4] = counts
    loops = np.zeros((arrays.loops.shape[0], h.WIDE_LOOPS), np.int64)
    loops[:, : k.LOOP_COLUMNS] = arrays.loops
    near, far, share = sectors_and_share(machine)
    h.cross(
        arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, loops, rows, work, cores, near, far, share,
        crossed,
    )  # fmt: skip
    buffer, dram, plain, first = (
        crossed[:, columns].copy()
        for columns in (
            (h.X_IN, h.X_OUT),
            (h.X_DRAM_IN, h.X_DRAM_OUT),
            (h.X_PLAIN_IN, h.X_PLAIN_OUT),
            (h.X_FIRST_IN, h.X_FIRST_OUT),
        )
    )
    # What is neither the first pass nor a last write was there before; scaled where sectors made it more.
    scale = np.divide(dram, plain, out=np.zeros(dram.shape), where=plain > 0)
    returned = np.rint((plain - first) * scale).astype(np.int64)
    _take_held(arrays, plain, first, dram, warm, kept)
    crossed[:, (h.X_DRAM_IN, h.X_DRAM_OUT)] = dram
    toll = np.ones((arrays.acc.shape[0], w.TOLL_COLUMNS))
    h.tolls(arrays.acc, arrays.ten, crossed, toll)
    spilled = arrays.ten[arrays.acc[:, k.ACC_TENSOR], k.TEN_SPILLED] == 1
    exported = arrays.ten[arrays.acc[:, k.ACC_TENSOR], k.TEN_EXPORTED] == 1
    lost = dram - returned
    lost[:, 1] = np.where(exported, 0, lost[:, 1])
    reads = arrays.acc[:, k.ACC_WRITE] == 0
    lost[:, 0] = np.where(
        reads, dram[:, 0], lost[:, 0]
    )  # a spilled tile is read back for want of room, however often
    return Crossing(
        buffer=buffer,
        dram=dram,
        refetched=int(returned[~(spilled & reads)].sum()),
        spilled=int(lost[spilled].sum()),
        toll=toll,
    )


def passing(arrays: NestArrays, counts: Ints, rows: Ints, work: Ints, level: int, sector_bytes: int) -> Ints:
    """Bits of every access, inwards and outwards, that cross pair `level` in whole sectors of the level outside."""
    crossed = np.zeros((arrays.acc.shape[0], h.CROSSED), np.int64)
    crossed[:, :4] = counts
    h.cross_pair(
        arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, rows,
        work[k.W_EFFECTIVE0 + k.W_PAIR * level], level, sector_bytes, crossed,
    )  # fmt: skip
    return crossed[:, (h.X_IN, h.X_OUT)]


def _take_held(
    arrays: NestArrays, plain: Ints, first: Ints, dram: Ints, warm: frozenset[int], kept: frozenset[int]
) -> None:
    """Leave out of ``dram`` the first pass over warm tensors, and the finished writes of kept ones."""
    for a, (tensor, write) in enumerate(arrays.acc[:, (k.ACC_TENSOR, k.ACC_WRITE)].tolist()):
        if plain[a, write] and tensor in (kept if write else warm):
            dram[a, write] -= int(dram[a, write]) * int(first[a, write]) // int(plain[a, write])
