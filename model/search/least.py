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
from .descent import (
    B_BYTES,
    B_COUNT,
    B_CUT,
    B_MOST,
    B_SHAPE,
    BEST_COLUMNS,
    BOXES,
    SINGLE,
    descend,
    probe,
    weigh,
)
from .shapes import Forest, Shapes, shapes_of
from .structure import Structure, structure_of

MOST_EVALUATIONS = 2_000_000
_UNBOUNDED = (1 << 62) - 1
_EVERY_SIZE = 64  # extents up to which a dim of windows or look-ups is cut in every size
_MOST_TRIPS = 2048  # of each number up to it the tile is tried, and each tile up to it; beyond, doublings

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Least:
    """The least traffic that fits.

    Attributes
    ----------
    bytes : moved between outer level and buffer, each tensor and direction rounded up once.
    footprint_bytes : of the buffer at the peak.
    group : the operators with the knobs of this mapping, its tiles as small as move no more.
    roomy : the same with tiles as large as fit and move no more: for units that want to be fed.
    exact : whether no mapping of the space moves less (`shapes.py` names the space).
    evaluations : footprints and traffics that were counted.
    """

    bytes: int
    footprint_bytes: int
    group: FusionGroup
    roomy: FusionGroup
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
    tables = (arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents)
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
        roomy=_knobs(problem, shapes, found.shape, found.roomy, group, stages),
        exact=found.exact,
        evaluations=found.evaluations if fresh else 0,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """``shape`` -1: nothing fits. ``roomy``: the largest tile beside the smallest."""

    bytes: int
    footprint_bytes: int
    shape: int
    tile: tuple[int, ...]
    roomy: tuple[int, ...]
    exact: bool
    evaluations: int


def _find(
    problem: Problem, structure: Structure, shapes: Shapes, dividing: bool, stages: int, evaluations: int
) -> _Found:
    """The search itself: coarse sizes first, because a good tile prunes; then all of them."""
    room = _Room(problem, structure, shapes, stages)
    sizes = tile_sizes(problem, structure, dividing)
    best = np.zeros(BEST_COLUMNS, np.int64)
    best[B_BYTES], best[B_SHAPE], best[B_MOST] = _UNBOUNDED, -1, evaluations
    tile = np.ones(structure.dims, np.int64)
    order = room.order(sizes)
    for tried in (_thinned(sizes), sizes):
        room.descend(tried, order, best, tile)
    shape, least = int(best[B_SHAPE]), int(best[B_BYTES])
    complete = max(problem.space.extents, default=1) <= _MOST_TRIPS**2 and not any(
        extent > _EVERY_SIZE and band >> d & 1
        for band in problem.arrays.ops[:, k.OP_BAND].tolist()
        for d, extent in enumerate(problem.space.extents)
    )
    exact = shapes.exact and complete and not best[B_CUT]
    if shape < 0:
        return _Found(least, 0, shape, (), (), exact, int(best[B_COUNT]))
    footprint = room.shrink(shape, sizes, tile, least)
    roomy = tile.copy()
    room.grow(shape, tile_sizes(problem, structure, dividing, batch=True), roomy, least)
    return _Found(
        least, footprint, shape, tuple(tile.tolist()), tuple(roomy.tolist()), exact, int(best[B_COUNT])
    )


def tile_sizes(
    problem: Problem, structure: Structure, dividing: bool, batch: bool = False
) -> list[list[int]]:
    """Per dim the sizes worth trying, ascending: for each number of trips the smallest, or the divisors.

    A larger tile of as many trips moves the same and holds more. Where windows overlap or look-ups repeat, what moves
    follows the sizes themselves: every one is tried while they are few. Dims of a batch are cut into single ones
    unless `batch`.
    """
    loose = 0
    for operator in structure.operators:
        for access in operator.accesses:
            loose |= access.loose
    for band in problem.arrays.ops[:, k.OP_BAND].tolist():
        loose |= band
    out: list[list[int]] = []
    for d, extent in enumerate(problem.space.extents):
        if d in structure.batch and not batch:
            out.append([1])
        elif dividing:
            low = [size for size in range(1, min(isqrt(extent), 1 << 20) + 1) if extent % size == 0]
            out.append(sorted({*low, *(extent // size for size in low)}))
        elif loose >> d & 1 and extent <= _EVERY_SIZE:
            out.append(list(range(1, extent + 1)))
        else:
            root = min(isqrt(extent), _MOST_TRIPS)
            doubled = {1 << i for i in range(extent.bit_length() if extent > root**2 + 2 * root else 0)}
            out.append(
                sorted({*range(1, root + 1), *(-(-extent // t) for t in range(1, root + 2)), *doubled})
            )
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

    def __init__(self, problem: Problem, structure: Structure, shapes: Shapes, stages: int) -> None:
        arrays = problem.arrays
        operators, accesses = arrays.ops.shape[0], arrays.acc.shape[0]
        self.shapes, self.stages, self.capacity = shapes, stages, problem.machine.capacity_bytes
        self.nest = (arrays.ops.copy(), arrays.acc.copy(), arrays.axes, arrays.ten, arrays.extents)
        self.loops = np.zeros(shapes.loops.shape[1:], np.int64)
        self.path = np.zeros(shapes.path.shape[1:], np.int64)
        self.lengths = np.zeros(operators, np.int64)
        self.online = np.array(problem.space.online, np.int64).reshape(-1, 3)
        self.twice = np.array(sorted(structure.read_twice), np.int64)
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
            shapes.lengths, shapes.tree, shapes.nest_of, shapes.depths, self.twice, order, *_table(sizes),
            self.capacity, self.stages, best, tile, *self.space, np.zeros((BOXES, 2, dims), np.int64),
            np.zeros(dims, np.int64),
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

    def grow(self, shape: int, sizes: list[list[int]], tile: Ints, least: int) -> None:
        """Make the tile as large as moves no more and fits: dim by dim in turn to about twice its size."""
        growing = True
        while growing:
            growing = False
            for d, row in enumerate(sizes):
                before = int(tile[d])
                larger = [size for size in row if size > before]
                if not larger:
                    continue
                tile[d] = max((size for size in larger if size <= 2 * before), default=larger[0])
                moved, footprint = self.weigh(shape, tile)
                if moved <= least and footprint <= self.capacity:
                    growing = True
                else:
                    tile[d] = before


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
        path = shapes.loops[n][shapes.path[n, o, : shapes.lengths[n, o]]].tolist()
        looped = [
            tile[row[k.LOOP_DIM]] > 1 if row[k.LOOP_STEP] == SINGLE else row[k.LOOP_DIM] in cut
            for row in path
        ]
        for access in operator.reads + operator.writes:
            depth = int(shapes.depths[shape, a])
            touch = int(problem.arrays.acc[a, k.ACC_TOUCH])
            while depth and not (looped[depth - 1] and touch >> path[depth - 1][k.LOOP_DIM] & 1):
                depth -= 1
            if (
                problem.base.tensors[access.tensor].home == OUTER
            ):  # the deepest of its reads (`descent.agrees`)
                retain[access.tensor] = max(retain.get(access.tensor, 0), sum(looped[:depth]))
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
