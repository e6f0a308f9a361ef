"""The mapping of one group that moves least, and the knobs that say it in a plan.

Knows a posed group on a machine with one buffer; knows no seconds. `shapes.py` lists what a mapping can look like,
`descent.py` finds the tiles. The result is a witness: `simulate` counts the same bytes for the plan that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from ..cost import sweep as k
from ..cost.nest import OUTER
from ..cost.problem import Problem
from ..cost.tree import Leaf, Loop, Tree, to_text
from ..plan.plan import FusionGroup, LevelTile
from .descent import B_BYTES, B_COUNT, B_MOST, B_SHAPE, BEST_COLUMNS, BOXES, SINGLE, descend, probe, weigh
from .shapes import Forest, Shapes, Structure, shapes_of, structure_of

MOST_EVALUATIONS = 2_000_000
_UNBOUNDED = (1 << 62) - 1
_EVERY_SIZE = 64  # extents up to which a dim of windows or look-ups is cut in every size

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Least:
    """The least traffic that fits.

    Attributes
    ----------
    bytes : moved between outer level and buffer, each tensor and direction rounded up once.
    footprint_bytes : of the buffer at the peak.
    group : the operators with the knobs of this mapping.
    exact : whether no mapping of the space moves less (`shapes.py` names the space).
    evaluations : footprints and traffics that were counted.
    """

    bytes: int
    footprint_bytes: int
    group: FusionGroup
    exact: bool
    evaluations: int


def least_traffic(
    problem: Problem,
    group: FusionGroup,
    dividing: bool = False,
    stages: int = 1,
    evaluations: int = MOST_EVALUATIONS,
    memo: dict[object, _Found] | None = None,
) -> Least | None:
    """The tiles, loops and depths of least traffic among those that fit the buffer; None where nothing fits.

    Parameters
    ----------
    dividing : only tiles that divide their extents.
    stages : copies of a streamed tile.
    evaluations : counts at most; where they run out the result is what was found by then.
    memo : remembers what was found for groups that differ in names only; keep one for one machine.
    """
    structure = structure_of(problem)
    shapes = shapes_of(structure)
    arrays = problem.arrays
    tables = (arrays.acc, arrays.axes, arrays.ten, arrays.extents)
    key = (
        structure,
        *(table.tobytes() for table in tables),
        problem.statistics,
        dividing,
        stages,
        evaluations,
    )
    found = memo.get(key) if memo is not None else None
    fresh = found is None
    if found is None:
        found = _find(problem, structure, shapes, dividing, stages, evaluations)
        if memo is not None:
            memo[key] = found
    if found.shape < 0:
        return None
    return Least(
        bytes=found.bytes,
        footprint_bytes=found.footprint_bytes,
        group=_knobs(problem, shapes, found.shape, found.tile, group, stages),
        exact=found.exact,
        evaluations=found.evaluations if fresh else 0,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """``shape`` -1: nothing fits."""

    bytes: int
    footprint_bytes: int
    shape: int
    tile: tuple[int, ...]
    exact: bool
    evaluations: int


def _find(
    problem: Problem, structure: Structure, shapes: Shapes, dividing: bool, stages: int, evaluations: int
) -> _Found:
    """The search itself: coarse sizes first, because a good tile prunes; then all of them."""
    room = _Room(problem, shapes, stages)
    sizes = tile_sizes(problem, structure, dividing)
    best = np.zeros(BEST_COLUMNS, np.int64)
    best[B_BYTES], best[B_SHAPE], best[B_MOST] = _UNBOUNDED, -1, evaluations
    tile = np.ones(structure.dims, np.int64)
    order = room.order(sizes)
    for tried in (_thinned(sizes), sizes):
        room.descend(tried, order, best, tile)
    shape = int(best[B_SHAPE])
    footprint = room.shrink(shape, sizes, tile, int(best[B_BYTES])) if shape >= 0 else 0
    exact = shapes.exact and bool(best[B_COUNT] < best[B_MOST])
    return _Found(int(best[B_BYTES]), footprint, shape, tuple(tile.tolist()), exact, int(best[B_COUNT]))


def tile_sizes(problem: Problem, structure: Structure, dividing: bool) -> list[list[int]]:
    """Per dim the sizes worth trying, ascending: for each number of trips the smallest, or the divisors.

    A larger tile of as many trips moves the same and holds more. Where windows overlap or look-ups repeat, what moves
    follows the sizes themselves: every one is tried while they are few.
    """
    loose = 0
    for operator in structure.operators:
        for access in operator.accesses:
            loose |= access.loose
    out: list[list[int]] = []
    for d, extent in enumerate(problem.space.extents):
        if d in structure.batch:
            out.append([1])
        elif dividing:
            out.append([size for size in range(1, extent + 1) if extent % size == 0])
        elif loose >> d & 1 and extent <= _EVERY_SIZE:
            out.append(list(range(1, extent + 1)))
        else:
            root = isqrt(extent)
            out.append(sorted({*range(1, root + 1), *(-(-extent // trips) for trips in range(1, root + 2))}))
    return out


def _thinned(sizes: list[list[int]]) -> list[list[int]]:
    """Sizes that at least double."""
    out: list[list[int]] = []
    for row in sizes:
        kept = [row[-1]]
        for size in reversed(row):
            if 2 * size <= kept[-1] or (size == row[0] and size < kept[-1]):
                kept.append(size)
        out.append(kept[::-1])
    return out


def _table(sizes: list[list[int]]) -> tuple[Ints, Ints]:
    """Rows of different lengths as one array and their lengths."""
    table = np.zeros((len(sizes), max(map(len, sizes), default=1)), np.int64)
    for d, row in enumerate(sizes):
        table[d, : len(row)] = row
    return table, np.array([len(row) for row in sizes], np.int64)


class _Room:
    """A problem's arrays and workspace for the kernels; what they write is written here alone."""

    def __init__(self, problem: Problem, shapes: Shapes, stages: int) -> None:
        arrays = problem.arrays
        operators, accesses = arrays.ops.shape[0], arrays.acc.shape[0]
        self.shapes, self.stages, self.capacity = shapes, stages, problem.machine.capacity_bytes
        self.nest = (arrays.ops.copy(), arrays.acc.copy(), arrays.axes, arrays.ten, arrays.extents)
        self.loops = np.zeros(shapes.loops.shape[1:], np.int64)
        self.path = np.zeros(shapes.path.shape[1:], np.int64)
        self.lengths = np.zeros(operators, np.int64)
        self.online = np.array(problem.space.online, np.int64).reshape(-1, 3)
        self.statistics = np.array(problem.statistics, np.int64)
        self.space = (
            np.zeros((accesses, 4), np.int64),
            np.zeros(operators, np.int64),
            np.zeros((arrays.ten.shape[0], 2), np.int64),
            np.zeros(shapes.path.shape[1:], np.int64),
            np.zeros((k.WORK_ROWS, max(operators, accesses) + 2), np.int64),
        )

    def order(self, sizes: list[list[int]]) -> Ints:
        """The shapes that can fit, those of less traffic with a tile of equal sides first."""
        shapes = self.shapes
        seen = np.zeros(len(shapes.nest_of), np.int64)
        probe(
            *self.nest, self.loops, self.path, self.lengths, self.online, self.statistics, shapes.loops, shapes.path,
            shapes.lengths, shapes.tree, shapes.nest_of, shapes.depths, *_table(_thinned(sizes)), self.capacity,
            self.stages, seen, *self.space, np.zeros(len(sizes), np.int64),
        )  # fmt: skip
        order = np.argsort(seen, kind="stable")
        return order[seen[order] < _UNBOUNDED]

    def descend(self, sizes: list[list[int]], order: Ints, best: Ints, tile: Ints) -> None:
        """Improve `best` and `tile` over the shapes of `order`."""
        shapes, dims = self.shapes, len(sizes)
        descend(
            *self.nest, self.loops, self.path, self.lengths, self.online, self.statistics, shapes.loops, shapes.path,
            shapes.lengths, shapes.tree, shapes.nest_of, shapes.depths, order, *_table(sizes), self.capacity,
            self.stages, best, tile, *self.space, np.zeros((BOXES, 2, dims), np.int64), np.zeros(dims, np.int64),
        )  # fmt: skip

    def weigh(self, shape: int, tile: Ints) -> tuple[int, int]:
        """Bytes moved and held by one tile of a shape."""
        n = int(self.shapes.nest_of[shape])
        ops, acc = self.nest[:2]
        ops[:, k.OP_TREE] = self.shapes.tree[n]
        acc[:, k.ACC_DEPTH0] = self.shapes.depths[shape]
        moved = weigh(
            *self.nest, self.shapes.loops[n].copy(), self.shapes.path[n], self.shapes.lengths[n], self.online,
            self.statistics, self.shapes.loops[n], self.stages, tile, *self.space,
        )  # fmt: skip
        return int(moved), int(self.space[1][0])

    def shrink(self, shape: int, sizes: list[list[int]], tile: Ints, least: int) -> int:
        """Make each dim's tile as small as moves no more; returns the footprint."""
        for d, row in enumerate(sizes):
            low, high = 0, row.index(int(tile[d]))
            while low < high:
                middle = (low + high) // 2
                tile[d] = row[middle]
                moved, footprint = self.weigh(shape, tile)
                if moved <= least and footprint <= self.capacity:
                    high = middle
                else:
                    low = middle + 1
            tile[d] = row[high]
        return self.weigh(shape, tile)[1]


def _knobs(
    problem: Problem, shapes: Shapes, shape: int, tile: tuple[int, ...], group: FusionGroup, stages: int
) -> FusionGroup:
    """A shape with its tiles in a plan's words; loops of one trip are left out."""
    space, n = problem.space, int(shapes.nest_of[shape])
    names = space.names
    cut = {d for d in range(len(tile)) if tile[d] < space.extents[d]}
    forest, private = shapes.forests[n], shapes.private[n]

    def tree(body: Forest) -> Tree:
        out: list[Loop | Leaf] = []
        for node in body:
            if node.operator >= 0:
                out.append(Leaf(node.operator, tuple(d for d in private[node.operator] if d in cut)))
            elif node.dim in cut:
                out.append(Loop(node.dim, tree(node.body)))
            else:
                out.extend(tree(node.body))
        return tuple(out)

    retain: dict[int, int] = {}
    a = 0
    for o, operator in enumerate(problem.base.operators):
        path = shapes.loops[n][shapes.path[n, o, : shapes.lengths[n, o]]]
        for access in operator.reads + operator.writes:
            if problem.base.tensors[access.tensor].home == OUTER:
                outside = path[: shapes.depths[shape, a]].tolist()
                retain[access.tensor] = sum(
                    tile[row[k.LOOP_DIM]] > 1 if row[k.LOOP_STEP] == SINGLE else row[k.LOOP_DIM] in cut
                    for row in outside
                )
            a += 1
    order = list(dict.fromkeys(row[k.LOOP_DIM] for row in shapes.loops[n].tolist() if row[k.LOOP_DIM] in cut))
    level = LevelTile(
        problem.machine.accelerator.buffer.name,
        tuple((names[d], tile[d]) for d in range(len(tile)) if space.extents[d] > 1),
        tuple(names[d] for d in order),
        tuple((problem.tensor_names[t], depth) for t, depth in retain.items()),
    )
    return replace(
        group,
        levels=(level,),
        tree=to_text(tree(forest), names, problem.names),
        elements=tuple(names[d] for d in shapes.elements[n] if tile[d] > 1),
        stages=stages,
    )
