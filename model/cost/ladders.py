"""What the mapping search tries: tile sizes of each dim, dims that are cut together, loop orders.

Knows a posed problem and the user's knobs; knows no cost.
"""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from numpy.typing import NDArray

from . import sweep as k
from .knobs import Knobs
from .layout import axis_dims
from .nest import OUTER, WindowAxis
from .problem import Problem
from .tree import paths

_SHARES = 8  # how often the cores are halved, thirded and so on for the pieces of a dim
_PERMUTED = 4  # dims whose loop order is searched; further ones keep their order, innermost


def units_of(problem: Problem) -> list[int]:
    """The aligned size of each dim: what the matrix unit takes at once, lanes for vector work, else 1."""
    space, machine = problem.space, problem.machine.accelerator
    unit = [1] * len(space.extents)
    matrix = machine.matrix_unit
    taken: set[int] = set()
    for role in problem.roles:
        if role is None or matrix is None:
            continue
        if matrix.kind == "systolic":
            sizes = {
                "output-stationary": (matrix.rows, matrix.columns, 1),
                "weight-stationary": (1, matrix.columns, matrix.rows),
                "input-stationary": (matrix.columns, 1, matrix.rows),
            }[matrix.dataflow]
        else:
            sizes = matrix.mma
        for dims, size in zip((role.m, role.n, role.k), sizes, strict=True):
            if dims and dims[-1] not in taken:
                unit[dims[-1]] = max(unit[dims[-1]], size)
                taken.add(dims[-1])
    lanes = 1 if machine.vector_unit is None else machine.vector_unit.lanes
    if not taken:
        widest = max(range(len(unit)), key=lambda d: (space.extents[d] > 1, d), default=-1)
        if widest >= 0:
            unit[widest] = lanes
    return unit


def _sizes(extent: int, unit: int, fine: bool) -> list[int]:
    """Tile sizes of one dim: the unit doubled, even cuts rounded up to the unit, the whole extent."""
    sizes = {extent}
    size = 1 if fine else unit
    while size < extent:
        sizes.add(size)
        size *= 2
    for cuts in (2, 3, 4, 6):
        even = -(-extent // cuts)
        aligned = -(-even // unit) * unit
        if aligned < extent:
            sizes.add(aligned)
    return sorted(sizes)


def bundles_of(problem: Problem, knobs: Knobs) -> list[tuple[int, ...]]:
    """Dims that are cut together, outermost first: those that the same operands have, as an image's rows and columns.

    Cutting the outer one while the inner one is cut makes more pieces and saves nothing that whole inner ones do not.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for d, extent in enumerate(problem.space.extents):
        if d in knobs.tile or extent == 1 or d in knobs.order or knobs.tree is not None:
            alike[d,] = [d]
            continue
        touched = tuple(bool(row >> d & 1) for row in problem.arrays.acc[:, k.ACC_TOUCH].tolist())
        owners = tuple((d in operator.dims, d in operator.reductions) for operator in problem.base.operators)
        alike.setdefault((touched, owners), []).append(d)
    return [tuple(dims) for dims in alike.values()]


def ladders(
    problem: Problem, knobs: Knobs, bundles: list[tuple[int, ...]], units: list[int], fine: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ladder of each bundle and its rungs: an outer dim is cut only where the inner ones are whole."""
    extents = problem.space.extents
    taps = {
        axis.r
        for operator in problem.base.operators
        for access in operator.reads
        for axis in access.axes
        if isinstance(axis, WindowAxis)
    }
    ladders: list[list[dict[int, int]]] = []
    for bundle in bundles:
        steps: list[dict[int, int]] = []
        for inner in range(len(bundle) - 1, -1, -1):
            d = bundle[inner]
            if d in knobs.tile:
                sizes = [knobs.tile[d]]
            elif d in taps and not fine:  # a window's taps stay together
                sizes = [extents[d]]
            else:
                sizes = _sizes(extents[d], units[d], fine)
            first = dict.fromkeys(bundle[:inner], 1) | {done: extents[done] for done in bundle[inner + 1 :]}
            # An outer dim of one element is where the inner ladder ended.
            steps.extend(first | {d: size} for size in sizes if not (steps and size == 1))
        ladders.append(steps)
    out = np.zeros((len(bundles), max((len(steps) for steps in ladders), default=1), len(extents)), np.int64)
    for b, steps in enumerate(ladders):
        for rung, sizes in enumerate(steps):
            for d, size in sizes.items():
                out[b, rung, d] = size
    return out, np.array([len(steps) for steps in ladders], np.int64)


def single_sizes(problem: Problem, knobs: Knobs, units: list[int]) -> NDArray[np.int64]:
    """Per dim the sizes that are tried by itself, 0 after the last: none where the user set one.

    Of dims that cores can be split over also as many pieces as all cores, a half of them, and so on.
    """
    extents, cores = problem.space.extents, problem.machine.cores
    reduced = {d for operator in problem.space.operators for d in operator.reductions}
    shares = [cores // parts for parts in range(1, _SHARES + 1) if cores // parts > 1]
    looped = set(range(len(extents)))
    if knobs.tree is not None:
        looped = {d for _, dims in paths(knobs.tree) for d in dims}
    rows: list[list[int]] = []
    for d, extent in enumerate(extents):
        free = d in looped and d not in knobs.tile and extent > 1
        dealt = {-(-extent // share) for share in shares if share < extent and d not in reduced}
        rows.append(sorted(dealt.union(_sizes(extent, units[d], True))) if free else [])
    out = np.zeros((len(rows), max((len(row) for row in rows), default=0) + 1), np.int64)
    for d, row in enumerate(rows):
        out[d, : len(row)] = row
    return out


def orders_of(
    problem: Problem, knobs: Knobs, bundles: list[tuple[int, ...]], cut: set[int]
) -> NDArray[np.int64]:
    """Loop orders that are tried, as rows; bundles stay together. ``cut``: the dims that may have several trips.

    The others stand innermost.
    """
    space = problem.space
    if knobs.tree is not None:
        return np.zeros((1, 0), np.int64)
    looped = [tuple(d for d in bundle if d in cut) for bundle in bundles]
    looped = [bundle for bundle in looped if bundle]
    if knobs.order:
        rest = [d for bundle in looped for d in bundle if d not in knobs.order]
        rows = [(*knobs.order, *rest)]
    else:
        reduced = {d for operator in space.operators for d in operator.reductions}

        def everywhere(bundle: tuple[int, ...]) -> bool:
            d = bundle[0]
            return d not in reduced and all(d in op.dims for op in space.operators)

        # Dims that every external operand is cut along cost nothing outermost.
        batch = [bundle for bundle in looped if everywhere(bundle) and _cuts_all(problem, bundle[0])]
        rest = [bundle for bundle in looped if bundle not in batch]
        rest.sort(
            key=lambda bundle: (
                -everywhere(bundle),
                -sum(bundle[0] in op.dims for op in space.operators),
                -prod(space.extents[d] for d in bundle),
                bundle,
            )
        )
        count = _PERMUTED if len(space.operators) <= 6 else 3
        rows = [
            tuple(d for bundle in (*batch, *order, *rest[count:]) for d in bundle)
            for order in itertools.permutations(rest[:count])
        ]
    dims = range(len(space.extents))
    return np.array([(*row, *(d for d in dims if d not in row)) for row in rows], np.int64)


def _cuts_all(problem: Problem, dim: int) -> bool:
    return all(
        any(dim in axis_dims(axis) for axis in access.axes)
        for operator in problem.base.operators
        for access in operator.reads + operator.writes
        if problem.base.tensors[access.tensor].home == OUTER and access.fixed < 0
    )
