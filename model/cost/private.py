"""An operator's private nest: register tile, element loops, and the depths at the registers.

Knows one machine's units and one operator at a time (docs/loop-tree.md, sections 1 and 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .knobs import Knobs
from .layout import axis_dims
from .nest import NestAccess
from .problem import Problem, Roles


@dataclass(frozen=True, slots=True)
class Private:
    """An operator's private loops: register tile and order, element order, and how many element loops stream."""

    tile: dict[int, int]
    order: list[int]
    elements: list[int]
    streams: int
    loops: list[tuple[int, int]]
    register_loops: int


def private_nest(problem: Problem, knobs: Knobs, o: int, tile: list[int]) -> Private:
    """Register and element loops of one operator.

    By dataflow (SCALE-Sim's): output-stationary holds rows x columns of the output and streams the sum;
    weight-stationary holds sum x columns and streams the rows of the output; input-stationary alike.
    """
    operator = problem.base.operators[o]
    role = problem.roles[o]
    if role is None:
        # Vector work streams through the registers; only sums need their element loops (unfinished sums).
        inner = [d for d in operator.reductions if tile[d] > 1] if problem.machine.levels == 1 else []
        return Private({}, [], inner, 0, [(d, 1) for d in inner], 0)
    held, streamed, order = held_tile(problem, role, tile)
    followed = {d for axis in operator.domain for d in axis_dims(axis)}  # their tile is the consumer's affair
    sizes = {d: tile[d] if d in followed else min(tile[d], held.get(d, tile[d])) for d in operator.dims}
    sizes.update({d: min(size, tile[d]) for d, size in knobs.register_tile.items() if d in sizes})
    if problem.machine.levels == 1:
        sizes = {d: tile[d] for d in operator.dims}
    if knobs.register_order:
        order = [d for d in knobs.register_order if d in order] + [
            d for d in order if d not in knobs.register_order
        ]
    order = [d for d in order if sizes[d] < tile[d]]
    if knobs.elements:
        inner = [d for d in knobs.elements if d in sizes] + [
            d for d in operator.dims if d not in knobs.elements
        ]
        streams = [d for d in inner if sizes[d] > 1 and d not in followed]
        streaming = 0
        while streaming < len(streams) and streams[streaming] in streamed:
            streaming += 1
    else:
        inner = [d for d in streamed if d in sizes] + [d for d in operator.dims if d not in streamed]
        streaming = sum(1 for d in streamed if sizes[d] > 1 and d not in followed)
    inner = [d for d in inner if sizes[d] > 1 and d not in followed]
    loops = [(d, sizes[d]) for d in order] + [(d, 1) for d in inner]
    return Private(sizes, order, inner, streaming, loops, len(order))


def held_tile(
    problem: Problem, role: Roles, tile: Sequence[int]
) -> tuple[dict[int, int], list[int], list[int]]:
    """Register tile by dim, the dims that stream through it, and the order of the register loops."""
    unit = problem.machine.accelerator.matrix_unit
    sums = [d for d in role.outer if any(d in op.reductions for op in problem.base.operators)]
    batch = [d for d in role.outer if d not in sums]
    # Where outputs are stationary the window of a tile stays for all its taps, while the other sums stream.
    windowed = unit is None or unit.kind == "tensor-core" or unit.dataflow == "output-stationary"
    held = dict.fromkeys(batch if windowed else role.outer, 1)

    def spread(dims: tuple[int, ...], room: int) -> None:
        for d in reversed(dims):
            held[d] = max(1, min(tile[d], room))
            room //= held[d]

    if unit is None or unit.kind == "tensor-core":
        # A warp's part of a block's tile, or a thread's where there is no matrix unit.
        rows, columns = (64, 32) if unit is not None else (8, 8)
        spread(role.m, rows)
        spread(role.n, columns)
        return held, list(role.k), [*batch, *role.m, *role.n]
    if unit.dataflow == "output-stationary":
        spread(role.m, unit.rows)
        spread(role.n, unit.columns)
        return held, list(role.k), [*batch, *role.m, *role.n]
    if unit.dataflow == "weight-stationary":
        spread(role.n, unit.columns)
        spread(role.k, unit.rows)
        return held, list(role.m), [*batch, *role.n, *sums, *role.k]
    spread(role.m, unit.columns)
    spread(role.k, unit.rows)
    return held, list(role.n), [*batch, *role.m, *sums, *role.k]


def register_depth(
    problem: Problem,
    o: int,
    access: NestAccess,
    depths: tuple[int, int],
    path: list[tuple[int, int]],
    tree_depth: int,
    private: Private,
    write: bool,
    homes: frozenset[int],
) -> int:
    """The depth at the registers (docs/loop-tree.md, section 2, "Between buffer and registers").

    ``depths`` at the buffer, and at the registers as far as the tree goes: what the search chose.
    """
    if problem.roles[o] is None:
        return len(path) if write and access.tensor in homes else tree_depth
    if not write:
        return tree_depth + private.register_loops + private.streams
    outer, inner = depths
    if inner < tree_depth:
        return inner
    operator = problem.base.operators[o]
    touched = {d for axis in access.axes for d in axis_dims(axis)}
    size = list(problem.space.extents)
    for place, (d, step) in enumerate(path):
        if place >= max(outer, tree_depth) and d in operator.dims and d not in touched and step < size[d]:
            return place
        size[d] = min(size[d], step)
    return max(outer, tree_depth + private.register_loops)
