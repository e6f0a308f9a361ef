"""How a group is mapped buffer by buffer: the outermost first, then each further one inside the tiles of the one before.

Knows a posed problem and the knobs of one group; asks `homes.py` for the mapping of one buffer at a time, on a machine
of that buffer alone (`Machine.around`), and puts the nests together (docs/loop-tree.md, sections 1 and 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..plan.plan import FusionGroup, LevelTile
from . import sweep as k
from .evaluate import counts_of
from .homes import settle
from .knobs import Knobs, of_buffer, unknown_levels
from .layout import axis_dims, pack, repack, whole_elements
from .mapping import Further, Mapping
from .nest import BUFFER, REGISTERS, Nest, NestAccess, NestOperator, NestTensor
from .problem import REGISTERS_NAME, Problem
from .units import Machine

_RETRIES = 4  # with less room, where tiles that fit one buffer at a time do not fit together

Path = list[int]
"""Loops from the root of a nest inwards."""


def choose(problem: Problem, group: FusionGroup) -> Mapping:
    """Map a group: the knobs as they are set, the rest by search, least traffic of the outermost level first.

    Raises
    ------
    PlanError
        Where the group's tree is not legal.
    """
    machine = problem.machine
    buffers = machine.accelerator.buffers
    if len(buffers) == 1:
        found = settle(problem, Knobs(problem, group))
    else:
        # The sums of a tile that the buffers inside leave unfinished are wider than the outer search took them to be.
        spare = [0] * len(buffers)
        for _ in range(_RETRIES + 1):
            found = _inwards(problem, group, spare)
            held = counts_of(found.nest, found.arrays, fragments=False).footprint_bytes
            over = [held[i] - machine.room(buffer) for i, buffer in enumerate(buffers)]
            first = next((i for i, bytes_over in enumerate(over) if bytes_over > 0), -1)
            if first < 0 or found.misfit_bytes:
                break
            spare[first] += over[first]
        found = replace(found, misfit_bytes=max(found.misfit_bytes, *over))
    unknown = unknown_levels(group, machine.accelerator)
    return replace(found, notes=(*unknown, *found.notes)) if unknown else found


def _inwards(problem: Problem, group: FusionGroup, spare: Sequence[int]) -> Mapping:
    """A mapping of every buffer, the outermost first; ``spare`` bytes of each are left free."""
    machine = problem.machine
    outermost = _around(problem, machine.around[0], problem.space.extents)
    knobs = Knobs(outermost, of_buffer(group, machine.accelerator, 0))
    found = settle(outermost, knobs, spare_bytes=spare[0])
    for number in range(1, len(spare)):
        found = _deepened(problem, group, found, number, spare[number])
    return found


def _around(
    problem: Problem, machine: Machine, extents: tuple[int, ...], outside: Nest | None = None
) -> Problem:
    """The problem of one buffer: a group of these extents, on a machine of that buffer alone.

    ``outside``: the nest whose tree loops stand around it.
    """
    space, base = problem.space, problem.base
    barred = problem.barred
    if outside is not None:  # no loop is shared by operators that sit at different places outside
        places = [_tree(outside, operator) for operator in outside.operators]
        apart = np.array([[one != other for other in places] for one in places])
        barred = np.where(apart, np.int64(-1), barred)
        pairs = tuple((int(p), int(o), int(barred[p, o])) for p, o in np.argwhere(barred).tolist())
        space = replace(space, extents=extents, barred=pairs)

    def flat(access: NestAccess) -> NestAccess:
        return replace(access, depth=(0,) * machine.levels)

    operators = tuple(
        replace(op, reads=tuple(map(flat, op.reads)), writes=tuple(map(flat, op.writes)))
        for op in base.operators
    )
    tensors: list[NestTensor] = list(base.tensors)
    for operator in operators:
        for access in operator.writes:
            if access.fixed < 0:
                size = whole_elements(access.axes, extents)
                tensors[access.tensor] = replace(tensors[access.tensor], elements=size)
    nest = Nest(extents, (), operators, tuple(tensors))
    arrays = pack(nest)
    if outside is not None:
        arrays.acc[:, k.ACC_AROUND] = [
            _surroundings(outside, operator, access)
            for operator in outside.operators
            for access in operator.reads + operator.writes
        ]
    return replace(problem, space=space, machine=machine, base=nest, arrays=arrays, barred=barred)


def _surroundings(nest: Nest, operator: NestOperator, access: NestAccess) -> int:
    """The bits of ACC_AROUND: how the tree loops of `nest` go on around a tile of theirs."""
    touched = {d for axis in access.axes for d in axis_dims(axis)}
    size, turning = list(nest.extents), list[int]()
    for loop in _tree(nest, operator):
        dim, step, _ = nest.loops[loop]
        if step < size[dim]:
            turning.append(dim)
            size[dim] = step
    last = max((i for i, dim in enumerate(turning) if dim in touched), default=-1)
    sums = [i for i, dim in enumerate(turning) if dim in operator.dims and dim not in touched]
    bits = k.COMES_AND_GOES if last >= 0 else 0
    if sums:
        bits |= k.SUMS_AROUND | (k.SUMS_OUTSIDE if sums[0] < last else 0)
    return bits


def _deepened(
    problem: Problem, group: FusionGroup, found: Mapping, number: int, spare_bytes: int
) -> Mapping:
    """The mapping with tiles for buffer `number` too, inside the tiles that were found for those outside it."""
    machine, nest = problem.machine, found.nest
    trees = [_tree(nest, operator) for operator in nest.operators]
    inner = _around(problem, machine.around[number], found.tiles[-1], nest)
    wanted = of_buffer(group, machine.accelerator, number)
    knobs = Knobs(inner, replace(wanted, levels=_shifted(problem, wanted, trees)))
    outside = frozenset(
        local
        for local, tensor in enumerate(nest.tensors)
        if problem.base.tensors[local].home == BUFFER
        and (tensor.home < number or not _within(problem, found, local, trees))
    )
    within = settle(inner, knobs, outside, spare_bytes)
    return _merged(problem, wanted, found, within, trees, number)


def _path(nest: Nest, operator: NestOperator) -> Path:
    """The loops from the root to an operator."""
    path: Path = []
    loop = operator.leaf
    while loop >= 0:
        path.append(loop)
        loop = nest.loops[loop][2]
    return path[::-1]


def _tree(nest: Nest, operator: NestOperator) -> Path:
    """The tree loops of an operator's path."""
    return _path(nest, operator)[: operator.tree_depth]


def _shifted(problem: Problem, group: FusionGroup, trees: Sequence[Path]) -> tuple[LevelTile, ...]:
    """The group's levels with depths counted from inside the loops of the buffers outside."""
    first: dict[str, int] = {}
    for operator, tree in zip(problem.base.operators, trees, strict=True):
        for access in operator.reads + operator.writes:
            first.setdefault(problem.tensor_names[access.tensor], len(tree))
    return tuple(
        replace(level, retain=tuple((name, max(0, depth - first.get(name, 0))) for name, depth in level.retain))
        for level in group.levels
    )


def _within(problem: Problem, found: Mapping, local: int, trees: Sequence[Path]) -> bool:
    """Whether all of an intermediate that lives at one time lies in one tile of the buffers outside.

    It does where no loop cuts it that its producer does not share with every reader.
    """
    space, nest = problem.space, found.nest
    users = [trees[space.producer[local]], *(trees[reader] for reader in space.readers[local])]
    shared = 0
    while all(len(tree) > shared and tree[shared] == users[0][shared] for tree in users):
        shared += 1
    touched = {
        d
        for operator in nest.operators
        for access in operator.reads + operator.writes
        if access.tensor == local
        for axis in access.axes
        for d in axis_dims(axis)
    }
    return all(nest.loops[loop][0] not in touched for tree in users for loop in tree[shared:])


def _home(outer: NestTensor, inner: NestTensor, number: int) -> int:
    """Where a tensor lives, by where it lives outside buffer `number` and around it."""
    if inner.home == REGISTERS:
        return REGISTERS
    return number + 1 if inner.home == BUFFER else min(outer.home, number)


def _merged(
    problem: Problem,
    wanted: FusionGroup,
    found: Mapping,
    inner: Mapping,
    trees: Sequence[Path],
    number: int,
) -> Mapping:
    """The loops of the buffers outside, and in each of their tiles the nest of buffer `number`."""
    outer, nest = found.nest, inner.nest
    kept = 1 + max((loop for tree in trees for loop in tree), default=-1)
    loops = list(outer.loops[:kept])
    above: dict[int, int] = {}  # what stands over the loops at the root of the inner nest
    for operator, tree in zip(nest.operators, trees, strict=True):
        for loop in _path(nest, operator)[:1]:
            above[loop] = tree[-1] if tree else -1
    for loop, (dim, step, parent) in enumerate(nest.loops):
        loops.append((dim, step, kept + parent if parent >= 0 else above[loop]))
    tensors = tuple(
        replace(tensor, home=_home(tensor, within, number))
        for tensor, within in zip(outer.tensors, nest.tensors, strict=True)
    )
    name = problem.machine.accelerator.buffers[number].name
    asked = {
        memory: {
            problem.tensor_names.index(tensor): depth
            for tensor, depth in wanted.level(memory).retain
            if tensor in problem.tensor_names
        }
        for memory in (name, REGISTERS_NAME)
    }
    operators: list[NestOperator] = []
    for before, operator, tree in zip(outer.operators, nest.operators, trees, strict=True):
        shift, whole = len(tree), len(tree) + len(_path(nest, operator))

        def deeper(access: NestAccess, within: NestAccess, shift: int = shift, whole: int = whole) -> NestAccess:
            home = tensors[access.tensor].home
            before = list(access.depth[:number])
            depth = shift + within.depth[0]
            if home == number + 1 and within.depth[0] == 0:
                depth = before[-1]  # its producer and its readers part outside
            elif home <= number and access.tensor in asked[name]:
                depth = min(whole, asked[name][access.tensor])
            depth = max(depth, min(before[-1], shift))
            registers = (max(depth, shift + each) for each in within.depth[1:])
            return replace(access, depth=(*(min(each, depth) for each in before), depth, *registers))

        operators.append(
            replace(
                before,
                leaf=kept + operator.leaf if operator.leaf >= 0 else (tree[-1] if tree else -1),
                tree_depth=shift + operator.tree_depth,
                reads=tuple(map(deeper, before.reads, operator.reads)),
                writes=tuple(map(deeper, before.writes, operator.writes)),
                statistics=max(before.statistics, operator.statistics),
                rescale=tuple(sorted({*before.rescale, *operator.rescale})),
            )
        )
    together = replace(
        outer,
        loops=tuple(loops),
        operators=tuple(operators),
        tensors=tensors,
        inner_stages=(*outer.inner_stages, nest.stages),
    )
    private = (f"{REGISTERS_NAME}.tile", "elements")
    chosen = [part for part in found.chosen if part not in private]
    chosen += [part for part in inner.chosen if part in private or part.startswith(f"{name}.")]
    last = number + 1 == len(problem.machine.around)
    return replace(
        found,
        nest=together,
        arrays=repack(problem.arrays, together) if last else pack(together),
        further=(*found.further, Further(inner.tile, inner.order, inner.stages)),
        register_tile=inner.register_tile,
        register_order=inner.register_order,
        elements=inner.elements,
        retained=(*found.retained[:number], asked[name], asked[REGISTERS_NAME]),
        misfit_bytes=max(found.misfit_bytes, inner.misfit_bytes),
        chosen=tuple(chosen),
        notes=tuple(dict.fromkeys((*found.notes, *inner.notes))),
    )
