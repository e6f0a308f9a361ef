"""Packs a nest into the arrays that the kernels read. Knows their columns and nothing of machines or names.

Raises OverflowError where a count of the nest could leave 64 bits, so that kernels need no checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from . import sweep as k
from .nest import IndirectAxis, Nest, NestAccess, NestAxis, SimpleAxis, WindowAxis

Ints = NDArray[np.int64]
_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class NestArrays:
    """One nest as int64 arrays; columns are named in `traffic.py`. Writable, because kernels are declared so."""

    ops: Ints
    acc: Ints
    axes: Ints
    ten: Ints
    extents: Ints
    loops: Ints
    path: Ints
    lengths: Ints
    levels: int
    stages: int


def points_inside(axis: SimpleAxis, extent: int) -> int:
    """Points of the dim whose element lies inside the axis."""
    c, o, n = axis.coefficient, axis.offset, axis.extent
    if c < 0:  # the same elements, counted from the other end
        o, c = o + c * (extent - 1), -c
    if c == 0:
        return extent if 0 <= o < n else 0
    low = max(0, -(o // c))
    high = min(extent - 1, (n - 1 - o) // c)
    return max(0, high - low + 1)


def _axis_row(axis: NestAxis, extents: tuple[int, ...]) -> tuple[int, ...]:
    match axis:
        case SimpleAxis():
            return (k.SIMPLE, axis.dim, 0, points_inside(axis, extents[axis.dim]), 0, 0, 0)
        case WindowAxis():
            if axis.stride < 1 or axis.dilation < 1:
                raise ValueError("a window axis needs a positive stride and dilation")
            return (k.WINDOW, axis.p, axis.r, axis.stride, axis.dilation, axis.offset, axis.extent)
        case IndirectAxis():
            return (k.INDIRECT, axis.dims[0], 0, sum(1 << d for d in axis.dims), 0, 0, axis.distinct)


def axis_dims(axis: NestAxis) -> tuple[int, ...]:
    """The dims that an axis touches."""
    match axis:
        case SimpleAxis():
            return (axis.dim,)
        case WindowAxis():
            return (axis.p, axis.r)
        case IndirectAxis():
            return axis.dims


def whole_elements(axes: tuple[NestAxis, ...], extents: tuple[int, ...]) -> int:
    """Elements that an access addresses in all (Python integer)."""
    total = 1
    for axis in axes:
        match axis:
            case SimpleAxis():
                total *= points_inside(axis, extents[axis.dim])
            case WindowAxis():
                total *= int(
                    k.window_elements(
                        0, extents[axis.p], 0, extents[axis.r],
                        axis.stride, axis.dilation, axis.offset, axis.extent,
                    )
                )  # fmt: skip
            case IndirectAxis():
                total *= min(prod(extents[d] for d in axis.dims), axis.distinct)
    return total


class _Shapes:
    """Numbers for tuples of axes, so that kernels compare one integer."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def of(self, access: NestAccess) -> int:
        # Which axis of the tensor a dim stands on does not matter for what is moved together.
        key = (access.axes, access.fixed)
        return self._numbers.setdefault(key, len(self._numbers))


def pack(nest: Nest) -> NestArrays:
    """Arrays of `nest`.

    Raises
    ------
    OverflowError
        Where the points of an operator, with the loops of others that it stands under, times 64 bits and the
        number of accesses, reach 2**62.
    ValueError
        Where the nest breaks its own rules (operators of a loop not consecutive, a dim in two axes).
    """
    extents = nest.extents
    paths: list[list[int]] = []
    for operator in nest.operators:
        chain: list[int] = []
        loop = operator.leaf
        while loop >= 0:
            chain.append(loop)
            loop = nest.loops[loop][2]
        paths.append(chain[::-1])
    longest = max((len(chain) for chain in paths), default=0)
    loops = np.zeros((max(1, len(nest.loops)), k.LOOP_COLUMNS), np.int64)
    path = np.zeros((len(paths), longest + 1), np.int64)
    lengths = np.array([len(chain) for chain in paths], np.int64)
    loops[:, k.LOOP_FIRST] = -1
    for o, chain in enumerate(paths):
        for j, loop in enumerate(chain):
            path[o, j] = loop
            dim, step, _ = nest.loops[loop]
            outer = [nest.loops[other][1] for other in chain[:j] if nest.loops[other][0] == dim]
            reach = min([extents[dim], *outer])
            first = int(loops[loop, k.LOOP_FIRST])
            if first < 0:
                first = o
            elif int(loops[loop, k.LOOP_LAST]) != o - 1:
                raise ValueError("the operators of a loop must be consecutive")
            loops[loop] = (dim, step, -(-reach // step), first, o)
    shapes = _Shapes()
    op_rows: list[tuple[int, ...]] = []
    acc_rows: list[tuple[int, ...]] = []
    axis_rows: list[tuple[int, ...]] = []
    producer = [-1] * len(nest.tensors)
    last = [-1] * len(nest.tensors)
    levels = 1
    bound = 0
    for o, operator in enumerate(nest.operators):
        own = sum(1 << d for d in operator.dims)
        first = len(acc_rows)
        reach = prod(extents[d] for d in operator.dims)
        for d in {nest.loops[loop][0] for loop in paths[o]} - set(operator.dims):
            reach *= extents[d]
        bound += reach * 64 * (len(operator.reads) + len(operator.writes) + 1)
        for is_write, accesses in ((0, operator.reads), (1, operator.writes)):
            for access in accesses:
                touched = [d for axis in access.axes for d in axis_dims(axis)]
                if len(set(touched)) != len(touched):
                    raise ValueError("a dim stands in two axes of one access")
                begin = len(axis_rows)
                axis_rows.extend(_axis_row(axis, extents) for axis in access.axes)
                levels = max(levels, len(access.depth))
                elements = access.fixed if access.fixed >= 0 else whole_elements(access.axes, extents)
                bound += elements * 64
                acc_rows.append(
                    (
                        o, access.tensor, is_write, sum(1 << d for d in touched), access.fixed, begin,
                        len(axis_rows), shapes.of(access), elements, access.depth[0], access.depth[-1],
                    )
                )  # fmt: skip
                if is_write:
                    producer[access.tensor] = o
                else:
                    last[access.tensor] = max(last[access.tensor], o)
        middle = first + len(operator.reads)
        op_rows.append(
            (
                own, sum(1 << d for d in operator.reductions), operator.contraction, operator.pointwise,
                operator.statistics, sum(1 << d for d in operator.rescale), first, middle, len(acc_rows),
                operator.tree_depth,
            )
        )  # fmt: skip
    bound += sum(t.elements * 64 for t in nest.tensors)
    if bound >= _LIMIT or len(extents) > 62:
        raise OverflowError("the counts of this group do not fit 64-bit integers")
    ten = [
        (t.bits, t.partial_bits, t.home, t.written_outside, t.elements, producer[i], last[i])
        for i, t in enumerate(nest.tensors)
    ]
    return NestArrays(
        ops=np.array(op_rows, np.int64).reshape(-1, k.OP_COLUMNS),
        acc=np.array(acc_rows, np.int64).reshape(-1, k.ACC_COLUMNS),
        axes=np.array(axis_rows, np.int64).reshape(-1, k.AXIS_COLUMNS),
        ten=np.array(ten, np.int64).reshape(-1, k.TEN_COLUMNS),
        extents=np.array(extents, np.int64),
        loops=loops,
        path=path,
        lengths=lengths,
        levels=levels,
        stages=nest.stages,
    )


def workspace(arrays: NestArrays) -> tuple[Ints, Ints]:
    """The ``rows`` and ``work`` arrays that `traffic.measure` needs."""
    width = max(arrays.ops.shape[0], arrays.acc.shape[0]) + 2
    return np.zeros_like(arrays.path), np.zeros((k.WORK_ROWS, width), np.int64)
