"""Cards of tile sizes: ``G3.buffer.n``: what a size divides, what it fills, and what its neighbours would do.

Unlike the other cards these simulate: the plan once for each neighbour, with the other tiles as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import PlanError, UsageError
from ..plan.edits import set_group
from ..plan.plan import LevelTile, group_name
from ..terminal import quantity, size
from ..why import Card, Figure
from .result import CostResult, GroupResult, LevelMapping
from .simulate import GroupCache, simulate
from .why_parts import dram_bytes, group_label


def tile_why(result: CostResult, index: int, memory: str, dim: str) -> Card:
    """The card of the tile of `dim` in level `memory` of group `index`.

    Raises
    ------
    UsageError : no such level or dim in this group, or the group runs again for another.
    """
    group = result.groups[index]
    level = next((level for level in group.levels if level.memory == memory), None)
    tile = None if level is None else dict(level.tile).get(dim)
    if level is None or tile is None or group.replays >= 0:
        there = "; ".join(f"{one.memory}: {', '.join(name for name, _ in one.tile)}" for one in group.levels)
        raise UsageError(
            f"{group_name(index)} has no tile {memory}.{dim}",
            where="--why",
            lever=f"It has {there or 'none'}.",
        )
    machine = result.request.accelerator
    extent = dict(group.dims)[dim]
    trips = -(-extent // tile)
    unit = _unit(result, tile)
    capacity = next((one.capacity_bytes for one in machine.memory if one.name == memory), 0)
    chosen = f"{memory}.tile" in group.chosen
    return Card(
        f"{group_name(index)}.{memory}.{dim}",
        f"Tile of {dim} in {memory} of {group_label(result, index)}",
        Figure("tile", tile),
        f"of {extent:,}, in {trips:,} trip{'s' * (trips != 1)}"
        + (f", the last of {extent - tile * (trips - 1):,}" if extent % tile else ", all alike"),
        (
            Figure("who says so", "the tool" if chosen else "the plan"),
            *([Figure(f"multiple of the machine's {unit}", tile // unit)] if unit > 1 else []),
            *(
                [Figure(f"held in {memory}", dict(group.footprint_bytes).get(memory, 0), "B")]
                if capacity
                else []
            ),
            *([Figure(f"capacity of {memory}", capacity, "B")] if capacity else []),
            Figure("waves over the cores", group.waves),
            Figure("latency", group.latency_s, "s"),
            Figure("DRAM traffic", sum(dram_bytes(result, group)), "B"),
            *_neighbours(result, index, level, dim, unit),
        ),
        note="Neighbours: one trip fewer and one more, the other tiles of this level as they are, order and retention "
        "chosen anew. Of what fits the tool takes the least latency plus an eighth of the DRAM time.",
    )


def _unit(result: CostResult, tile: int) -> int:
    """The largest side of the matrix unit, or the lanes, of which `tile` is a multiple; 1 where of none."""
    machine = result.request.accelerator
    matrix, vector = machine.matrix_unit, machine.vector_unit
    sides = [] if matrix is None else [matrix.rows, matrix.columns, *matrix.mma]
    sides += [] if vector is None else [vector.lanes]
    return max((side for side in sides if side > 1 and tile % side == 0), default=1)


def _neighbours(result: CostResult, index: int, level: LevelMapping, dim: str, unit: int) -> list[Figure]:
    """What the next larger and the next smaller size would do."""
    group = result.groups[index]
    tile, extent = dict(level.tile)[dim], dict(group.dims)[dim]
    trips = -(-extent // tile)
    sizes: list[tuple[str, int]] = []
    if trips > 1:
        sizes.append(("larger", min(extent, _rounded(-(-extent // (trips - 1)), unit))))
    if tile > 1:
        smaller = min(tile - 1, _rounded(-(-extent // (trips + 1)), unit))
        sizes.append(("smaller", smaller if smaller < unit else smaller // unit * unit))
    cache = GroupCache()
    return [
        Figure(f"next {word}, {other:,}", _told(result, index, level, dim, other, cache))
        for word, other in sizes
    ]


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _told(result: CostResult, index: int, level: LevelMapping, dim: str, tile: int, cache: GroupCache) -> str:
    """What the group would do at this size, in words."""
    request, group = result.request, result.groups[index]
    place = next(i for i, one in enumerate(request.plan.groups) if one.operators == group.operators)
    knobs = {one.memory: one for one in request.plan.groups[place].levels}
    sizes = tuple((name, tile if name == dim else extent) for name, extent in level.tile)
    knobs[level.memory] = replace(knobs.get(level.memory, LevelTile(level.memory)), tile=sizes)
    try:
        plan = set_group(request.graph, request.plan, place, levels=tuple(knobs.values()))
        found = simulate(replace(request, plan=plan), cache, with_unfused=False).groups[index]
    except PlanError as fault:  # a loop tree of the plan's own may not take it
        return fault.what
    return _compared(result, group, found)


def _compared(result: CostResult, now: GroupResult, other: GroupResult) -> str:
    if other.infeasible is not None:
        misfit = other.infeasible
        return f"does not fit: {size(misfit.demand_bytes)} in {misfit.memory}, {size(misfit.capacity_bytes)} available"
    moved, before = sum(dram_bytes(result, other)), sum(dram_bytes(result, now))
    held = dict(other.footprint_bytes).get(result.request.accelerator.buffer.name, 0)
    return (
        f"{quantity(other.latency_s, 's')} ({_change(other.latency_s, now.latency_s)}), "
        f"DRAM {size(moved)} ({_change(moved, before)}), "
        f"{other.waves} wave{'s' * (other.waves != 1)}, holds {size(held)}"
    )


def _change(value: float, before: float) -> str:
    return f"{value / before - 1:+.1%}" if before else "none before"
