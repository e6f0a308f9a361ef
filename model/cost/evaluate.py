"""Exact traffic, footprint and work of one mapped group: the numbers that the literal walker counts as well.

Knows the nest and nothing of machines, seconds or names. The laws are in docs/loop-tree.md, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from .nest import Nest


@dataclass(frozen=True, slots=True)
class StreamCount:
    """Elements of one tensor that cross one pair of levels, counted at one operator.

    ``level`` 0: outer <-> buffer; 1: buffer <-> registers. ``reads`` move inwards, ``writes`` outwards, at the
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
    raise NotImplementedError(nest)
