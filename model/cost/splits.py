"""How the user's split over cores is dealt: independent dims by `parallel`, sums by `split_reduction`.

Knows a posed problem, the knobs of one group, and a tree with its tile (docs/loop-tree.md, section 4).
"""

from __future__ import annotations

from math import prod

from .knobs import Knobs
from .layout import axis_dims
from .problem import Problem


def _leading(chains: list[tuple[tuple[int, ...], tuple[int, ...]]], reduced: set[int]) -> list[int]:
    """Dims whose loops stand outside every reduction, in every operator that stands under them."""
    outer: list[int] = []
    inner: set[int] = set()
    for _, dims in chains:
        free = True
        for d in dims:
            free = free and d not in reduced
            if free and d not in outer:
                outer.append(d)
            elif not free:
                inner.add(d)
    return [d for d in outer if d not in inner]


def asked_split(
    problem: Problem,
    knobs: Knobs,
    chains: list[tuple[tuple[int, ...], tuple[int, ...]]],
    tile: list[int],
) -> tuple[tuple[int, int], ...]:
    """The user's split, as far as there are cores, trips and independent outer loops for it."""
    space, left = problem.space, max(1, problem.machine.cores // prod(knobs.split.values()))
    reduced = {d for operator in space.operators for d in operator.reductions}
    leading = [d for d in _leading(chains, reduced) if tile[d] < space.extents[d]]
    out: list[tuple[int, int]] = []
    for d, asked in knobs.parallel.items():
        trips = -(-space.extents[d] // tile[d])
        share = max(1, min(asked, trips if d in leading else 1, left))
        if share < asked:
            knobs.notes.append(
                f"{space.names[d]} is split over {share} of {asked} cores: no more loops or cores"
            )
        left //= share
        if share > 1:
            out.append((d, share))
    return tuple(out)


def shared_sums(
    problem: Problem,
    knobs: Knobs,
    chains: list[tuple[tuple[int, ...], tuple[int, ...]]],
    tile: list[int],
    spilled: frozenset[int],
) -> list[tuple[int, int, int]]:
    """The user's split of sums as (loop, dim, cores), as far as the tree has a loop for it; else a note says why."""
    space, out = problem.space, []
    left = problem.machine.cores
    for d, asked in knobs.split.items():
        loops: set[int] = set()
        why = ""
        for o, (numbers, dims) in enumerate(chains):
            if d not in space.operators[o].dims:
                continue
            if d not in dims or tile[d] >= space.extents[d]:
                why = "it is not cut"
                break
            at = dims.index(d)
            loops.add(numbers[at])
            outside = set(dims[:at]) - set(knobs.split)
            if any(outside & set(operator.reductions) for operator in space.operators):
                why = "its loop stands inside another sum's"
            band = space.operators[o].band
            if band is not None and any(d != one and {d, one} == {band.q, band.k} for _, one, _ in out):
                why = f"those over {space.names[band.q if d == band.k else band.k]} are, and a mask ties the two"
            for access in space.operators[o].writes:
                inside = all(d not in axis_dims(axis) for axis in access.axes)
                if inside and space.intermediate(access.tensor) and access.tensor not in spilled:
                    why = f"{problem.tensor_names[access.tensor]} does not leave the group"
        if not why and len(loops) != 1:
            why = "it has several loops"
        share = min(asked, -(-space.extents[d] // tile[d]), left)
        if why or share < 2:
            knobs.notes.append(
                f"the sums over {space.names[d]} are not split: {why or 'there is one core or one trip'}"
            )
            continue
        if share < asked:
            knobs.notes.append(
                f"the sums over {space.names[d]} are split over {share} of {asked} cores: no more trips or cores"
            )
        left //= share
        out.append((loops.pop(), d, share))
    return out
