"""Packs a nest into the arrays that the kernels read. Knows their columns and nothing of machines or names.

Raises OverflowError where a count of the nest could leave 64 bits, so that kernels need no checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from . import sweep as k
from .nest import IndirectAxis, Nest, NestAccess, NestAxis, NestOperator, SimpleAxis, WindowAxis

Ints = NDArray[np.int64]
_LIMIT = 1 << 62
_TOO_LARGE = "the counts of this group do not fit 64-bit integers"


@dataclass(frozen=True, slots=True)
class NestArrays:
    """One nest as int64 arrays; columns are named in `sweep.py`. Writable, because kernels are declared so.

    ``widest``: the most bits that an element moves as, which counts leave room for.
    """

    ops: Ints
    acc: Ints
    axes: Ints
    ten: Ints
    extents: Ints
    loops: Ints
    path: Ints
    lengths: Ints
    levels: int
    stages: Ints
    widest: int

    @property
    def buffers(self) -> int:
        """Explicit on-chip levels, the registers aside."""
        return self.stages.size


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
            extent = extents[axis.dim]
            size = extent if axis.extent == _LIMIT else axis.extent
            points = points_inside(axis, extent)
            return (k.SIMPLE, axis.dim, 0, points, axis.coefficient, axis.offset, size)
        case WindowAxis():
            if axis.stride < 1 or axis.dilation < 1:
                raise ValueError("a window axis needs a positive stride and dilation")
            kind = k.ROLLING if axis.rolling else k.WINDOW
            return (kind, axis.p, axis.r, axis.stride, axis.dilation, axis.offset, axis.extent)
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
        key = (access.axes, access.fixed, access.at)
        return self._numbers.setdefault(key, len(self._numbers))


def pack(nest: Nest, widest: int = 64) -> NestArrays:
    """Arrays of `nest`, of which an element moves as `widest` bits at most: 64, or a sector.

    Raises
    ------
    OverflowError
        Where the points of an operator, with the loops of others that it stands under, times `widest` and the
        number of accesses, reach 2**62.
    ValueError
        Where the nest breaks its own rules (operators of a loop not consecutive, a dim in two axes).
    """
    extents = nest.extents
    shapes = _Shapes()
    op_rows: list[tuple[int, ...]] = []
    acc_rows: list[tuple[int, ...]] = []
    axis_rows: list[tuple[int, ...]] = []
    producer = [-1] * len(nest.tensors)
    last = [-1] * len(nest.tensors)
    read_before: dict[tuple[int, int], int] = {}
    levels = 1
    for o, operator in enumerate(nest.operators):
        first = len(acc_rows)
        for is_write, accesses in ((0, operator.reads), (1, operator.writes)):
            for access in accesses:
                touched = [d for axis in access.axes for d in axis_dims(axis)]
                if len(set(touched)) != len(touched):
                    raise ValueError("a dim stands in two axes of one access")
                begin = len(axis_rows)
                axis_rows.extend([_axis_row(axis, extents) for axis in access.axes])
                levels = max(levels, len(access.depth))
                elements = access.fixed if access.fixed >= 0 else whole_elements(access.axes, extents)
                if elements >= _LIMIT or max(extents, default=0) >= _LIMIT:
                    raise OverflowError(_TOO_LARGE)
                shape, earlier = shapes.of(access), -1
                if is_write:
                    producer[access.tensor] = o
                else:
                    last[access.tensor] = o
                    earlier = read_before.get((access.tensor, shape), -1)
                    read_before[access.tensor, shape] = len(acc_rows)
                acc_rows.append(
                    (
                        o, access.tensor, is_write, sum([1 << d for d in touched]), access.fixed, begin,
                        len(axis_rows), shape, elements, all(isinstance(axis, SimpleAxis) for axis in access.axes),
                        earlier, *_depths(access),
                    )
                )  # fmt: skip
        begin = len(axis_rows)
        axis_rows.extend([_axis_row(axis, extents) for axis in operator.domain])
        op_rows.append(_operator_row(nest, operator, first, len(acc_rows), (begin, len(axis_rows))))
    ten = [
        (
            t.bits, t.partial_bits, t.home, t.written_outside, t.elements, producer[i], last[i], t.pinned,
            t.spilled,
        )
        for i, t in enumerate(nest.tensors)
    ]  # fmt: skip
    loops, path, lengths = _paths(nest, [row[k.ACC_ELEMENTS] for row in acc_rows], widest)
    return NestArrays(
        ops=np.array(op_rows, np.int64).reshape(-1, k.OP_COLUMNS),
        acc=np.array(acc_rows, np.int64).reshape(-1, k.ACC_DEPTH0 + max(2, levels)),
        axes=np.array(axis_rows, np.int64).reshape(-1, k.AXIS_COLUMNS),
        ten=np.array(ten, np.int64).reshape(-1, k.TEN_COLUMNS),
        extents=np.array(extents, np.int64),
        loops=loops,
        path=path,
        lengths=lengths,
        levels=levels,
        stages=np.array((nest.stages, *nest.inner_stages), np.int64),
        widest=widest,
    )


def _depths(access: NestAccess) -> tuple[int, ...]:
    """The columns of the depths: at least two, the last one repeated."""
    return access.depth if len(access.depth) > 1 else access.depth * 2


def _operator_row(
    nest: Nest, operator: NestOperator, first: int, end: int, domain: tuple[int, int]
) -> tuple[int, ...]:
    followed = {d for axis in operator.domain for d in axis_dims(axis)}
    split = {nest.loops[loop][0] for loop, _ in nest.splits}.intersection(operator.dims)
    return (
        sum([1 << d for d in operator.dims]), sum([1 << d for d in operator.reductions]), operator.contraction,
        operator.pointwise, operator.statistics, sum([1 << d for d in operator.rescale]), first,
        first + len(operator.reads), end, operator.tree_depth,
        prod([nest.extents[d] for d in operator.dims if d not in followed]), bool(split), *domain, 0,
    )  # fmt: skip


def repack(base: NestArrays, nest: Nest) -> NestArrays:
    """Arrays of `nest`, which differs from the one of `base` in loops, depths, what tensors do, stages, splits."""
    acc, ten = base.acc.copy(), base.ten.copy()
    accesses = [access for operator in nest.operators for access in operator.reads + operator.writes]
    acc[:, k.ACC_DEPTH0 :] = [_depths(access) for access in accesses]
    ten[:, k.TEN_HOME] = [tensor.home for tensor in nest.tensors]
    ten[:, k.TEN_PINNED] = [tensor.pinned for tensor in nest.tensors]
    ten[:, k.TEN_SPILLED] = [tensor.spilled for tensor in nest.tensors]
    ends = base.ops[:, k.OP_END].tolist()
    domains = base.ops[:, k.OP_DOMAIN].tolist(), base.ops[:, k.OP_DOMAIN_END].tolist()
    rows = [
        _operator_row(nest, op, end - len(op.reads) - len(op.writes), end, (begin, stop))
        for op, end, begin, stop in zip(nest.operators, ends, *domains, strict=True)
    ]
    loops, path, lengths = _paths(nest, acc[:, k.ACC_ELEMENTS].tolist(), base.widest)
    return NestArrays(
        ops=np.array(rows, np.int64).reshape(-1, k.OP_COLUMNS),
        acc=acc,
        axes=base.axes,
        ten=ten,
        extents=base.extents,
        loops=loops,
        path=path,
        lengths=lengths,
        levels=base.levels,
        stages=np.array((nest.stages, *nest.inner_stages), np.int64),
        widest=base.widest,
    )


def _paths(nest: Nest, elements: list[int], widest: int) -> tuple[Ints, Ints, Ints]:
    """Loops, paths and their lengths; refuses what could overflow."""
    extents = nest.extents
    paths: list[list[int]] = []
    for operator in nest.operators:
        chain: list[int] = []
        loop = operator.leaf
        while loop >= 0:
            chain.append(loop)
            loop = nest.loops[loop][2]
        paths.append(chain[::-1])
    bound = sum(elements) + sum([t.elements for t in nest.tensors])
    for operator, chain in zip(nest.operators, paths, strict=True):
        dims = set(operator.dims).union([nest.loops[loop][0] for loop in chain])
        bound += prod([extents[d] for d in dims]) * (len(operator.reads) + len(operator.writes) + 1)
    if bound * widest >= _LIMIT or len(extents) > 62:
        raise OverflowError(_TOO_LARGE)
    rows: list[tuple[int, ...]] = [(0, 1, 1, 0, 0, 1)] * max(1, len(nest.loops))
    splits = dict(nest.splits)
    seen: dict[int, int] = {}  # loop -> its last operator so far
    for o, chain in enumerate(paths):
        reach: dict[int, int] = {}
        for loop in chain:
            dim, step, _ = nest.loops[loop]
            size = reach.get(dim, extents[dim])
            reach[dim] = min(size, step)
            if loop not in seen:
                rows[loop] = (dim, step, -(-size // step), o, o, splits.get(loop, 1))
            elif seen[loop] != o - 1:
                raise ValueError("the operators of a loop must be consecutive")
            else:
                rows[loop] = (*rows[loop][: k.LOOP_LAST], o, splits.get(loop, 1))
            seen[loop] = o
    longest = max((len(chain) for chain in paths), default=0)
    path = np.array([chain + [0] * (longest + 1 - len(chain)) for chain in paths], np.int64)
    return (
        np.array(rows, np.int64),
        path.reshape(len(paths), longest + 1),
        np.array([len(chain) for chain in paths], np.int64),
    )


def workspace(arrays: NestArrays) -> tuple[Ints, Ints]:
    """The ``rows`` and ``work`` arrays that `traffic.measure` needs."""
    width = max(arrays.ops.shape[0], arrays.acc.shape[0]) + 2
    rows = k.WORK_ROWS + k.W_PAIR * max(0, arrays.levels - 2)
    return np.zeros_like(arrays.path), np.zeros((rows, width), np.int64)
