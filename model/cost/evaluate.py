"""Exact traffic, footprint and work of one mapped group: the numbers that the literal walker counts as well.

Knows the nest and nothing of machines, seconds or names. The laws are in docs/loop-tree.md, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .layout import NestArrays, pack, workspace
from .nest import Nest
from .sweep import ACC_OPERATOR, ACC_TENSOR
from .traffic import measure


@dataclass(frozen=True, slots=True)
class StreamCount:
    """Elements of one tensor that cross one pair of levels, counted at one operator.

    ``level``: of the pair, 0 outer <-> outermost buffer, the last one innermost buffer <-> registers where the machine
    has some. ``reads`` move inwards, ``writes`` outwards, at the
    tensor's width; ``partial_reads`` and ``partial_writes`` are moved at partial-sum width and not in the
    first two. A stream that several operators share is counted at the first of them.
    """

    tensor: int
    operator: int
    level: int
    reads: int
    writes: int
    partial_reads: int = 0
    partial_writes: int = 0


@dataclass(frozen=True, slots=True)
class NestCounts:
    """What one walk of the nest moves, holds and does.

    Attributes
    ----------
    streams : one row per (tensor, operator, level) that moves anything, sorted by (level, operator, tensor);
        accesses of one operator to one tensor are summed.
    footprint_bytes : per level the peak.
    macs : per operator the executed points of a contraction, else 0.
    points : per operator the executed points of its domain, recomputation counted.
    rescale_ops : vector multiplications that online reductions add.
    """

    streams: tuple[StreamCount, ...]
    footprint_bytes: tuple[int, ...]
    macs: tuple[int, ...]
    points: tuple[int, ...]
    rescale_ops: int


def evaluate(nest: Nest) -> NestCounts:
    """Evaluate the laws of docs/loop-tree.md in closed form.

    Raises
    ------
    OverflowError
        Where a count does not fit 64 bits.
    """
    arrays = pack(nest)
    return counts_of(nest, arrays)


def counts_of(nest: Nest, arrays: NestArrays, fragments: bool = True) -> NestCounts:
    """The counts of a packed nest; ``fragments`` False: operand tiles take no room in the registers."""
    counts = np.zeros((arrays.levels, arrays.acc.shape[0], 4), np.int64)
    points = np.zeros(len(nest.operators), np.int64)
    footprint = np.zeros(arrays.levels, np.int64)
    rows, work = workspace(arrays)
    rescale = measure(
        arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
        arrays.levels, arrays.stages, int(fragments), counts, points, footprint, rows, work,
    )  # fmt: skip
    sums: dict[tuple[int, int, int], list[int]] = {}
    for level in range(arrays.levels):
        for a, row in enumerate(counts[level].tolist()):
            if any(row):
                key = (level, int(arrays.acc[a, ACC_OPERATOR]), int(arrays.acc[a, ACC_TENSOR]))
                total = sums.setdefault(key, [0, 0, 0, 0])
                for column, number in enumerate(row):
                    total[column] += number
    streams = tuple(
        StreamCount(tensor, operator, level, *sums[level, operator, tensor])
        for level, operator, tensor in sorted(sums)
    )
    executed = tuple(int(n) for n in points)
    macs = tuple(n if op.contraction else 0 for n, op in zip(executed, nest.operators, strict=True))
    return NestCounts(streams, tuple(int(b) for b in footprint), macs, executed, int(rescale))
