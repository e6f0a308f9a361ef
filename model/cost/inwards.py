"""How a group is mapped buffer by buffer: the outermost first, then each further one inside the tiles outside it.

Knows a posed problem and the knobs of one group; poses the problem of one buffer at a time, on a machine of that buffer
alone (`Machine.around`), and has `homes.py` solve it (docs/loop-tree.md, sections 1 and 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..plan.plan import FusionGroup
from . import sweep as k
from .evaluate import counts_of
from .homes import settle
from .knobs import Knobs, of_buffer, unknown_levels
from .layout import NestArrays, pack, repack
from .mapping import Further, Mapping
from .nest import BUFFER, Nest, NestAccess
from .problem import REGISTERS_NAME, Around, Problem
from .units import Machine

_RETRIES = 4  # with less room, where tiles that fit one buffer at a time do not fit together


def choose(problem: Problem, group: FusionGroup) -> Mapping:
    """Map a group: the knobs as they are set, the rest by search, least cost at the outermost level first.

    Raises
    ------
    PlanError
        Where the group's tree is not legal.
    """
    machine = problem.machine.accelerator
    several = len(machine.buffers) > 1
    found = _together(problem, group) if several else settle(problem, Knobs(problem, group))
    unknown = unknown_levels(group, machine) if group.levels else []
    return replace(found, notes=(*unknown, *found.notes)) if unknown else found


def _together(problem: Problem, group: FusionGroup) -> Mapping:
    """A mapping of several buffers that fits each of them, or misses by as much as it says."""
    buffers = problem.machine.accelerator.buffers
    spare = [0] * len(buffers)
    tries = 0
    while True:
        found = _inwards(problem, group, spare)
        held = counts_of(found.nest, found.arrays, fragments=False).footprint_bytes
        over = [held[i] - problem.machine.room(buffer) for i, buffer in enumerate(buffers)]
        first = next((i for i, too_many in enumerate(over) if too_many > 0), -1)
        if first < 0 or found.misfit_bytes or tries == _RETRIES:
            return replace(found, misfit_bytes=max(0, *over))
        tries += 1
        spare[first] += over[first]


def _inwards(problem: Problem, group: FusionGroup, spare: Sequence[int]) -> Mapping:
    """A mapping of every buffer, the outermost first; ``spare`` bytes of each are left free."""
    machine = problem.machine
    base = _flat(problem.base, machine.around[0].levels)
    outermost = replace(
        problem, machine=machine.around[0], base=base, arrays=pack(base, problem.arrays.widest)
    )
    knobs = Knobs(outermost, of_buffer(group, machine.accelerator, 0))
    found = settle(outermost, knobs, spare_bytes=spare[0])
    for number in range(1, len(spare)):
        inner = _around(problem, machine.around[number], found)
        knobs = Knobs(inner, of_buffer(group, machine.accelerator, number))
        outside = frozenset(  # what already lives further out stays there
            local
            for local, tensor in enumerate(found.nest.tensors)
            if problem.base.tensors[local].home == BUFFER and tensor.home < number
        )
        found = _joined(problem, found, settle(inner, knobs, outside, spare[number]), number)
    return replace(found, arrays=repack(problem.arrays, found.nest))


def _flat(base: Nest, levels: int) -> Nest:
    """A nest without loops, whose accesses have so many depths."""

    def flat(access: NestAccess) -> NestAccess:
        return replace(access, depth=(0,) * levels)

    operators = tuple(
        replace(op, reads=tuple(map(flat, op.reads)), writes=tuple(map(flat, op.writes)))
        for op in base.operators
    )
    return replace(base, operators=operators)


def _around(problem: Problem, machine: Machine, found: Mapping) -> Problem:
    """The problem of the next buffer inside those of `found`: its extents are their tiles, on that buffer's machine."""
    nest, arrays = found.nest, found.arrays
    paths = tuple(
        tuple(arrays.path[o, : operator.tree_depth].tolist()) for o, operator in enumerate(nest.operators)
    )
    # No loop is shared by operators that sit at different places outside.
    apart = np.array([[one != other for other in paths] for one in paths])
    barred = np.where(apart, np.int64(-1), problem.barred)
    pairs = tuple((one, other, int(barred[one, other])) for one, other in np.argwhere(barred).tolist())
    given = 1 + max((loop for path in paths for loop in path), default=-1)
    base = _flat(problem.base, nest.buffers + machine.levels)
    return replace(
        problem,
        space=replace(problem.space, extents=found.tiles[-1], barred=pairs),
        machine=machine,
        base=base,
        arrays=pack(base, problem.arrays.widest),
        barred=barred,
        around=Around(
            nest,
            paths,
            arrays.loops[:given],
            _depths_outside(arrays, paths, nest.buffers - 1),
            _rooms_for_sums(problem, found),
        ),
    )


def _depths_outside(arrays: NestArrays, paths: Sequence[Sequence[int]], level: int) -> tuple[int, ...]:
    """Per access its effective depth at `level`, at most all tree loops."""
    out: list[int] = []
    for row in arrays.acc.tolist():
        o = row[k.ACC_OPERATOR]
        depth = min(row[k.ACC_DEPTH0 + level], len(paths[o]))
        out.append(int(k.effective(row[k.ACC_TOUCH], arrays.path[o], depth, arrays.loops)))
    return tuple(out)


def _rooms_for_sums(problem: Problem, found: Mapping) -> tuple[bool, ...]:
    """Per access whether the buffers outside have room for it in the width of unfinished sums.

    All together, else those that are that wide there already.
    """
    nest, arrays, machine = found.nest, found.arrays, problem.machine
    tensors = tuple(replace(tensor, bits=tensor.partial_bits) for tensor in nest.tensors)
    widest = replace(nest, tensors=tensors)
    held = counts_of(widest, pack(widest), fragments=False).footprint_bytes[: nest.buffers]
    buffers = machine.accelerator.buffers
    if all(size <= machine.room(buffer) for size, buffer in zip(held, buffers, strict=False)):
        return (True,) * len(arrays.acc)
    out: list[bool] = []
    for row in arrays.acc.tolist():
        o, touch = row[k.ACC_OPERATOR], row[k.ACC_TOUCH]
        reach = int(k.effective(touch, arrays.path[o], row[k.ACC_DEPTH0 + nest.buffers], arrays.loops))
        loops = arrays.loops[arrays.path[o, :reach]].tolist()
        sums = int(arrays.ops[o, k.OP_OWN]) & ~touch
        out.append(any(sums >> loop[k.LOOP_DIM] & 1 and loop[k.LOOP_TRIPS] > 1 for loop in loops))
    return tuple(out)


def _joined(problem: Problem, found: Mapping, inner: Mapping, number: int) -> Mapping:
    """The mapping of the buffers outside with that of buffer `number` inside them, whose nest has them all."""
    name = problem.machine.accelerator.buffers[number].name
    private = (f"{REGISTERS_NAME}.tile", "elements")
    chosen = [part for part in found.chosen if part not in private]
    chosen += [part for part in inner.chosen if part in private or part.startswith(f"{name}.")]
    return replace(
        found,
        nest=inner.nest,
        arrays=inner.arrays,
        further=(*found.further, Further(inner.tile, inner.order, inner.stages)),
        register_tile=inner.register_tile,
        register_order=inner.register_order,
        elements=inner.elements,
        retained=(*found.retained[:number], *inner.retained),
        misfit_bytes=max(found.misfit_bytes, inner.misfit_bytes),
        chosen=tuple(chosen),
        notes=tuple(dict.fromkeys((*found.notes, *inner.notes))),
    )
