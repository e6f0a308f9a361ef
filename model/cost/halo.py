"""Windows inside a group: a producer's dim follows its consumer's tile, larger by the halo.

Knows group spaces and halo modes; knows no tiles. A dim that follows is taken out of the space: everything that it
addressed is addressed by the consumer's dim and the window instead (docs/loop-tree.md, section 1).
"""

from __future__ import annotations

from dataclasses import replace

from .layout import axis_dims
from .nest import NestAxis, SimpleAxis, WindowAxis
from .unify import GroupSpace, SpaceAccess, SpaceOperator


def followed(space: GroupSpace, mode: str) -> GroupSpace:
    """The space with every window inside it joined that can be.

    A dim follows where all that read it inside the group read it through one window (or have it as their own and
    follow with it), no operator has both it and the window's dim, it is no sum, and nothing addresses it by value.

    Parameters
    ----------
    mode : "retain": every element is made and fetched once; "retain-rows": along the last window of a tensor, and
        the rows that tiles share are made again; "recompute": all that tiles share is.
    """
    passed: set[int] = set()
    while (found := _next_window(space, passed)) is not None:
        dim, window = found
        passed.add(dim)
        space = _joined(space, dim, window) or space
    if not space.gone:
        return space
    gone = sum(1 << d for d in space.gone)
    return replace(
        space,
        operators=tuple(_in_mode(operator, space.halos, mode) for operator in space.operators),
        barred=tuple((p, c, mask & ~gone) for p, c, mask in space.barred),
    )


def _next_window(space: GroupSpace, passed: set[int]) -> tuple[int, WindowAxis] | None:
    """A dim that a window inside the group reads, and the window.

    The last consumer comes first: what it follows is settled before what follows it.
    """
    for reader in reversed(space.operators):
        for access in reader.reads:
            for axis, source in _beside(space, access):
                if (
                    isinstance(axis, WindowAxis)
                    and source == SimpleAxis(source.dim)
                    and source.dim not in passed
                ):
                    return source.dim, axis
    return None


def _made(space: GroupSpace, tensor: int) -> tuple[SimpleAxis, ...]:
    """The axes by which an intermediate is written; none where it is no such tensor or one of them is not plain."""
    if not space.intermediate(tensor):
        return ()
    writer = space.operators[space.producer[tensor]]
    axes = next(access.axes for access in writer.writes if access.tensor == tensor)
    return tuple(axis if isinstance(axis, SimpleAxis) else SimpleAxis(-1, 0) for axis in axes)


def _beside(space: GroupSpace, access: SpaceAccess) -> list[tuple[NestAxis, SimpleAxis]]:
    """The axes of a read beside those by which the tensor is written.

    A window of one element is read by two axes, of which the second has one element: it stands beside none.
    """
    made, found = _made(space, access.tensor), []
    left = len(access.axes)
    for axis in access.axes:
        at = len(found)
        single = isinstance(axis, SimpleAxis) and space.extents[axis.dim] == 1
        if at < len(made) and not (single and left > len(made) - at and space.extents[made[at].dim] > 1):
            found.append((axis, made[at]))
        left -= 1
    return found


def _joined(space: GroupSpace, dim: int, window: WindowAxis) -> GroupSpace | None:
    """The space with `dim` taken out in favour of `window`; None where something stands against it."""
    extents = [*space.extents, (space.extents[window.r] - 1) * window.dilation + 1]
    follower = len(space.extents)
    last = min(space.extents[dim], window.extent)
    domain = WindowAxis(window.p, follower, window.stride, 1, window.offset, last)

    def follow(axis: NestAxis) -> NestAxis | None:
        if dim not in axis_dims(axis):
            return axis
        if axis == SimpleAxis(dim):
            return domain
        if isinstance(axis, SimpleAxis) and axis.coefficient == 1:
            end = min(axis.extent, last + axis.offset)
            return replace(domain, offset=domain.offset + axis.offset, extent=end)
        if not isinstance(axis, WindowAxis) or axis.p != dim:
            return None
        reach = (space.extents[axis.r] - 1) * axis.dilation
        extents.append((extents[follower] - 1) * axis.stride + reach + 1)
        offset = window.offset * axis.stride + axis.offset
        end = min(axis.extent, (last - 1) * axis.stride + axis.offset + reach + 1)
        return WindowAxis(window.p, len(extents) - 1, window.stride * axis.stride, 1, offset, end)

    operators: list[SpaceOperator] = []
    for operator in space.operators:
        for access in operator.reads:
            for axis, source in _beside(space, access):
                if source.dim == dim and axis not in (source, window):
                    return None
        if dim not in operator.dims:
            operators.append(operator)
            continue
        if window.p in operator.dims or dim in operator.reductions:
            return None
        if operator.band is not None and dim in (operator.band.q, operator.band.k):
            return None
        accesses: list[SpaceAccess] = []
        for access in operator.reads + operator.writes:
            axes = [follow(axis) for axis in access.axes]
            if None in axes:
                return None
            accesses.append(replace(access, axes=tuple(axis for axis in axes if axis is not None)))
        operators.append(
            replace(
                operator,
                dims=tuple(
                    d for old in operator.dims for d in ((window.p, follower) if old == dim else (old,))
                ),
                reads=tuple(accesses[: len(operator.reads)]),
                writes=tuple(accesses[len(operator.reads) :]),
                domain=(*operator.domain, domain),
            )
        )
    names = [f"{space.names[dim]}_halo{i or ''}" for i in range(len(extents) - follower)]
    return replace(
        space,
        names=(*space.names, *names),
        extents=tuple(extents),
        operators=tuple(operators),
        gone=space.gone | {dim},
        halos=space.halos | set(range(follower, len(extents))),
    )


def _in_mode(operator: SpaceOperator, halos: frozenset[int], mode: str) -> SpaceOperator:
    """An operator with the windows of which the shared part stays."""

    def rolled(axes: tuple[NestAxis, ...]) -> tuple[NestAxis, ...]:
        at = [i for i, axis in enumerate(axes) if isinstance(axis, WindowAxis) and axis.r in halos]
        stays = at if mode == "retain" else at[-1:] if mode == "retain-rows" else []
        return tuple(
            replace(axis, rolling=True) if i in stays and isinstance(axis, WindowAxis) else axis
            for i, axis in enumerate(axes)
        )

    ordered: list[WindowAxis] = sorted(operator.domain, key=lambda axis: operator.dims.index(axis.p))
    domain = rolled(tuple(ordered))
    return replace(
        operator,
        reads=tuple(replace(access, axes=rolled(access.axes)) for access in operator.reads),
        writes=tuple(replace(access, axes=rolled(access.axes)) for access in operator.writes),
        domain=tuple(axis for axis in domain if isinstance(axis, WindowAxis)),
    )
