"""What a mapped group's traffic with the outside is in bytes: whole sectors, and only what a cache does not have.

Knows the counts and arrays of one nest, the outer memory levels, and which tensors the cache holds before and after;
knows no seconds and no other group. The laws are in docs/loop-tree.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..hardware.accelerator import Accelerator
from . import steps as w
from . import sweep as k
from .layout import NestArrays
from .runs import sectored_bits
from .traffic import count_access

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
    cache = machine.cache
    near = machine.dram if cache is None else cache
    buffer, plain = _bits(arrays, counts, work[k.W_EFFECTIVE0], rows, near.access_bytes)
    dram = buffer
    first = _first_pass(arrays, plain, work[k.W_EFFECTIVE0], rows, arrays.loops)
    if cache is not None:
        waves = _waves(arrays, cores)
        depths = _depths(machine.cache_share_bytes, arrays, rows, work, cores)
        missed = np.zeros_like(counts)
        for a in range(arrays.acc.shape[0]):
            count_access(
                arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, waves, 0, 1, a, int(depths[a]),
                missed, rows, work,
            )  # fmt: skip
        dram, plain = _bits(arrays, missed, depths, rows, machine.dram.access_bytes)
        dram = np.minimum(dram, buffer) if machine.dram.access_bytes <= cache.access_bytes else dram
        first = _first_pass(arrays, plain, depths, rows, waves)
        _take_held(arrays, plain, first, dram, warm, kept)
    spilled = arrays.ten[arrays.acc[:, k.ACC_TENSOR], k.TEN_SPILLED] == 1
    exported = arrays.ten[arrays.acc[:, k.ACC_TENSOR], k.TEN_EXPORTED] == 1
    # What is neither the first pass nor a last write was there before; scaled where sectors made it more.
    scale = np.divide(dram, plain, out=np.zeros(dram.shape), where=plain > 0)
    again = (plain - first) * scale
    returned = np.rint(again).astype(np.int64)
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
        toll=_toll(arrays, counts, buffer, dram),
    )


def passing(arrays: NestArrays, counts: Ints, rows: Ints, work: Ints, level: int, sector_bytes: int) -> Ints:
    """Bits of every access, inwards and outwards, that cross pair `level` in whole sectors of the level outside."""
    depths = work[k.W_EFFECTIVE0 + k.W_PAIR * level]
    return _bits(arrays, counts, depths, rows, sector_bytes, level)[0]


def _bits(
    arrays: NestArrays, counts: Ints, depths: Ints, rows: Ints, sector_bytes: int, level: int = 0
) -> tuple[Ints, Ints]:
    """Bits inwards and outwards per access in whole sectors, and as they are."""
    tensors = arrays.ten[arrays.acc[:, k.ACC_TENSOR]]
    bits, partial = tensors[:, k.TEN_BITS], tensors[:, k.TEN_PARTIAL]
    plain = np.stack(
        (
            counts[:, k.READS] * bits + counts[:, k.PARTIAL_READS] * partial,
            counts[:, k.WRITES] * bits + counts[:, k.PARTIAL_WRITES] * partial,
        ),
        axis=1,
    )
    if sector_bytes == 1:
        return plain, plain
    out = plain.copy()
    for a in np.flatnonzero(plain.any(axis=1)).tolist():
        whole = int(counts[a, k.READS] + counts[a, k.WRITES])
        wide = sectored_bits(arrays, a, rows, int(depths[a]), whole, int(bits[a]), sector_bytes, level)
        sums = 0
        if counts[a, k.PARTIAL_WRITES]:
            part = int(counts[a, k.PARTIAL_WRITES])
            sums = sectored_bits(arrays, a, rows, int(depths[a]), part, int(partial[a]), sector_bytes, level)
        out[a] = (sums, wide + sums) if arrays.acc[a, k.ACC_WRITE] else (wide, 0)
    return out, plain


def _first_pass(arrays: NestArrays, plain: Ints, depths: Ints, rows: Ints, loops: Ints) -> Ints:
    """Of the bits as they are, those of the first pass over each tile; of outputs, the last, finished writes."""
    out = np.zeros_like(plain)
    tensors = arrays.ten[arrays.acc[:, k.ACC_TENSOR]]
    for a in np.flatnonzero(plain.any(axis=1)).tolist():
        o = int(arrays.acc[a, k.ACC_OPERATOR])
        if arrays.acc[a, k.ACC_WRITE]:
            sums = int(plain[a, 0]) // int(tensors[a, k.TEN_PARTIAL]) * int(tensors[a, k.TEN_PARTIAL])
            out[a, 1] = plain[a, 1] - sums
        elif arrays.acc[a, k.ACC_FIXED] >= 0:
            out[a, 0] = plain[a, 0]
        else:
            untouched = ~int(arrays.acc[a, k.ACC_TOUCH])
            again = int(k.repeats(untouched, rows[o], int(depths[a]), loops, arrays.extents))
            out[a, 0] = plain[a, 0] // again
    return out


def _take_held(
    arrays: NestArrays, plain: Ints, first: Ints, dram: Ints, warm: frozenset[int], kept: frozenset[int]
) -> None:
    """Leave out of ``dram`` the first pass over warm tensors, and the finished writes of kept ones."""
    for a, (tensor, write) in enumerate(arrays.acc[:, (k.ACC_TENSOR, k.ACC_WRITE)].tolist()):
        if plain[a, write] and tensor in (kept if write else warm):
            dram[a, write] -= int(dram[a, write]) * int(first[a, write]) // int(plain[a, write])


def _toll(arrays: NestArrays, counts: Ints, buffer: Ints, dram: Ints) -> NDArray[np.float64]:
    """Bytes that pass a port and DRAM per byte of an access's tiles."""
    tensors = arrays.ten[arrays.acc[:, k.ACC_TENSOR]]
    bits, partial = tensors[:, k.TEN_BITS], tensors[:, k.TEN_PARTIAL]
    out = np.ones((arrays.acc.shape[0], w.TOLL_COLUMNS))
    sides = ((k.READS, k.PARTIAL_READS, 0), (k.WRITES, k.PARTIAL_WRITES, 1))
    for whole, sums, side in sides:
        moved = counts[:, whole] * bits + counts[:, sums] * partial
        port, outer = (w.TOLL_PORT, w.TOLL_DRAM) if side == 0 else (w.TOLL_OUT_PORT, w.TOLL_OUT_DRAM)
        np.divide(buffer[:, side], moved, out=out[:, port], where=moved > 0)
        np.divide(dram[:, side], moved, out=out[:, outer], where=moved > 0)
    return out


# The cache.


def _waves(arrays: NestArrays, cores: Ints) -> Ints:
    """The loops with the trips of one core: what the cores of a wave fetch at one time is fetched once."""
    loops = arrays.loops.copy()
    share = np.maximum(1, cores[loops[:, k.LOOP_DIM]]) if cores.size else 1
    loops[:, k.LOOP_TRIPS] = -(-loops[:, k.LOOP_TRIPS] // share)
    return loops


def _depths(share_bytes: int, arrays: NestArrays, rows: Ints, work: Ints, cores: Ints) -> Ints:
    """Per access the depth at which its tile stays in the cache: outside the outermost loop whose iteration fits."""
    operators = arrays.ops.shape[0]
    fits: dict[int, bool] = {}
    depths = work[k.W_EFFECTIVE0, : arrays.acc.shape[0]].copy()
    for o in range(operators):
        tree = int(work[k.W_TREE, o])
        free = int(work[k.W_LENGTH, o]) + 1
        for j in range(tree + 1):
            if j == tree:
                fine = _touched_bytes(arrays, rows, work, cores, range(o, o + 1), tree) <= share_bytes
            else:
                loop = int(rows[o, j])
                if loop not in fits:
                    span = range(
                        int(arrays.loops[loop, k.LOOP_FIRST]), int(arrays.loops[loop, k.LOOP_LAST]) + 1
                    )
                    fits[loop] = _touched_bytes(arrays, rows, work, cores, span, j + 1) <= share_bytes
                fine = fits[loop]
            if fine:
                free = j
                break
        for a in range(int(arrays.ops[o, k.OP_FIRST]), int(arrays.ops[o, k.OP_END])):
            depths[a] = min(int(depths[a]), free)
    return depths


def _touched_bytes(
    arrays: NestArrays, rows: Ints, work: Ints, cores: Ints, operators: range, depth: int
) -> int:
    """Distinct bytes that cross in one iteration of the loop at `depth` - 1, on all cores of a wave."""
    most: dict[int, int] = {}
    for o in operators:
        outside = min(depth, int(work[k.W_TREE, o]))
        for a in range(int(arrays.ops[o, k.OP_FIRST]), int(arrays.ops[o, k.OP_END])):
            tensor = int(arrays.acc[a, k.ACC_TENSOR])
            if arrays.ten[tensor, k.TEN_HOME] != k.HOME_OUTER and not (
                arrays.acc[a, k.ACC_WRITE] and arrays.ten[tensor, k.TEN_EXPORTED]
            ):
                continue
            elements = int(arrays.acc[a, k.ACC_ELEMENTS])
            if arrays.acc[a, k.ACC_FIXED] < 0:
                tile = int(
                    k.tile_elements(
                        arrays.acc, a, arrays.axes, rows[o], outside, arrays.loops, arrays.extents
                    )
                )
                for d in {int(arrays.loops[loop, k.LOOP_DIM]) for loop in rows[o, :outside].tolist()}:
                    if arrays.acc[a, k.ACC_TOUCH] >> d & 1:
                        tile *= max(1, int(cores[d]))
                elements = min(elements, tile)
            size = (elements * int(arrays.ten[tensor, k.TEN_BITS]) + 7) // 8
            most[tensor] = max(most.get(tensor, 0), size)
    return sum(most.values())
