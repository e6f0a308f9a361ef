"""Which shapes can never be the best, whatever the tile and the capacity: others are no worse in every way.

Knows the arrays of shapes and the structure that they are of. Each shape becomes a row of small numbers that grow with
its traffic and its footprint: per access and dim whether the tile spans one element, a tile or the extent, and how
often the loops over a dim that does not address it fetch it again; per tile while which operators it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..cost import sweep as k
from .descent import SINGLE
from .structure import Structure

if TYPE_CHECKING:
    from .shapes import Shapes

Ints = NDArray[np.int64]
Costs = NDArray[np.int8]


def unbeaten(costs: Costs) -> Ints:
    """Rows that no other row undercuts or equals in every column; of equal rows the first. In the rows' order."""
    order = np.argsort(costs.sum(axis=1, dtype=np.int64), kind="stable")  # only a smaller sum can beat
    left = costs[order]
    kept: list[int] = []
    alive = np.arange(len(order))
    while alive.size:
        first = int(alive[0])
        kept.append(int(order[first]))
        alive = alive[1:]
        alive = alive[(left[alive] < left[first]).any(axis=1)]
    return np.array(sorted(kept), np.int64)


def promising(structure: Structure, shapes: Shapes) -> Ints:
    """Shapes that no other one beats; all of them where more than tiles and their lives counts.

    That is where one stream serves several reads, and where running statistics take room.
    """
    if len(structure.operators) < 2 or structure.read_twice or structure.running:
        return np.arange(len(shapes.nest_of))
    parts: list[Ints] = []
    made: dict[int, Ints] = {}  # per tensor in the buffer the depth of its tile
    a = 0
    for o, operator in enumerate(structure.operators):
        depths: list[Ints] = []
        for access in operator.accesses:
            inner = structure.inner[access.tensor]
            if inner and not access.write:
                depths.append(made[access.tensor])
                a += 1
                continue
            depth = _effective(shapes, o, access.touch, shapes.depths[:, a])
            depths.append(depth)
            a += 1
            state = _states(shapes, structure.dims, o, depth)
            for d in range(structure.dims):
                if access.touch >> d & 1:
                    parts.append(2 - state[:, d])
                if not access.touch >> d & 1 or access.loose >> d & 1:
                    parts.append(state[:, d])
            last = o
            if inner:
                made[access.tensor] = depth
                last = max(
                    q
                    for q, reader in enumerate(structure.operators)
                    if any(read.tensor == access.tensor for read in reader.accesses)
                )
            parts.extend(_lives(shapes, o, last, depth))
        if (
            operator.pointwise
        ):  # in place where input and output come and go together: then the larger tile counts
            pairs = list(zip(operator.accesses, depths, strict=True))
            parts.extend(
                (one != other).astype(np.int64)
                for read, one in pairs
                for write, other in pairs
                if write.write and not read.write and read.touch == write.touch
            )
    return unbeaten(np.stack(parts, axis=1).astype(np.int8))


def _path(shapes: Shapes, o: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Per shape and place on an operator's path the loop, its dim, 1 for tile and 2 for element loops; the length."""
    path = shapes.path[shapes.nest_of, o]
    rows = shapes.loops[shapes.nest_of[:, None], path]
    kind = np.where(rows[:, :, k.LOOP_STEP] == SINGLE, 2, 1)
    return path, rows[:, :, k.LOOP_DIM], kind, shapes.lengths[shapes.nest_of, o]


def _effective(shapes: Shapes, o: int, touch: int, depth: Ints) -> Ints:
    """Depths without the loops directly outside that do not touch the operand."""
    _, dims, _, _ = _path(shapes, o)
    touches = (touch >> dims & 1).astype(bool)
    places = np.arange(1, dims.shape[1] + 1)
    return np.where(touches & (places <= depth[:, None]), places, 0).max(axis=1)


def _states(shapes: Shapes, count: int, o: int, depth: Ints) -> Ints:
    """Per shape and dim: 0 without a loop over it outside the tile, 1 with a tile loop, 2 with an element loop."""
    _, dims, kind, _ = _path(shapes, o)
    outside = np.where(np.arange(dims.shape[1]) < depth[:, None], kind, 0)
    return np.stack([np.where(dims == d, outside, 0).max(axis=1) for d in range(count)], axis=1)


def _lives(shapes: Shapes, first: int, last: int, depth: Ints) -> list[Ints]:
    """Per operator and shape whether a tile is there while it runs: whole children of the loop at `depth` count."""
    operators = shapes.path.shape[1]
    paths = [_path(shapes, q) for q in range(operators)]
    rows = np.arange(len(depth))

    def same_child(one: int, other: int) -> NDArray[np.bool_]:
        """Whether two operators stand under the same loop right inside `depth`, or are one."""
        if one == other:
            return np.ones(len(depth), bool)
        at = np.minimum(depth, paths[one][0].shape[1] - 1)
        both = (paths[one][3] > depth) & (paths[other][3] > depth)
        return both & (paths[one][0][rows, at] == paths[other][0][rows, at])

    out: list[Ints] = []
    for q in range(operators):
        if first <= q <= last:
            alive = np.ones(len(depth), bool)
        else:
            alive = same_child(first if q < first else last, q)
        out.append(alive.astype(np.int64))
    return out
