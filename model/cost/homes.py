"""Where a group's intermediates live: registers, buffer, or outside for want of room. One buffer at a time.

Knows a problem posed for one buffer and the knobs of one group; asks `mapping.py` for the best mapping under each
choice (docs/loop-tree.md, sections 2 and 6).
"""

from __future__ import annotations

from .evaluate import counts_of
from .knobs import Knobs
from .layout import axis_dims
from .mapping import Mapping, best_mapping
from .nest import BUFFER, OUTER
from .problem import Problem
from .tree import paths

_RETRIES = 3  # with less room, where the tile that was found does not fit after all
_SPILLS = 8  # intermediates that are tried outside, one more at a time


def settle(
    problem: Problem, knobs: Knobs, outside: frozenset[int] = frozenset(), spare_bytes: int = 0
) -> Mapping:
    """Map a group into one buffer: the knobs as they are set, the rest by search.

    ``outside``: intermediates that are not to live in this buffer; ``spare_bytes`` of it are left free.
    """
    found = _chosen_homes(problem, knobs, outside, spare_bytes)
    if not _fits(problem, found):
        found = _with_spills(problem, knobs, found, outside, spare_bytes)
    return found


def _fits(problem: Problem, mapping: Mapping) -> bool:
    """Whether the buffer holds it. The search does without the element loops, under which a tile may be smaller."""
    return (
        not mapping.misfit_bytes
        or _held_bytes(problem, mapping)[problem.level] <= problem.machine.capacity_bytes
    )


def _with_spills(
    problem: Problem, knobs: Knobs, found: Mapping, outside: frozenset[int], spare_bytes: int
) -> Mapping:
    """The mapping with as few intermediates outside as make it fit, the largest tiles first; `found` where none does.

    Two of one size are told apart by their number: the same answer every time.
    """
    space = problem.space
    room = {
        local: _tile_bytes(problem, found, local)
        for local, tensor in enumerate(problem.base.tensors)
        if tensor.home == BUFFER and tensor.elements and local not in outside
    }
    spilled: list[int] = []
    fitting: Mapping | None = None
    for local in sorted(room, key=lambda local: (-room[local], local))[:_SPILLS]:
        if space.operators[space.producer[local]].writes[0].fixed >= 0:
            continue
        spilled.append(local)
        trial = _chosen_homes(problem, knobs, outside.union(spilled), spare_bytes)
        if _fits(problem, trial):
            fitting = trial
            break
    if fitting is None:
        return found
    for local in spilled[:-1]:
        fewer = outside.union(spilled) - {local}
        trial = _chosen_homes(problem, knobs, fewer, spare_bytes)
        if _fits(problem, trial):
            spilled.remove(local)
            fitting = trial
    return fitting


def _tile_bytes(problem: Problem, mapping: Mapping, local: int) -> int:
    """Bytes of an intermediate's tile in the buffer."""
    size = 1
    operator = mapping.nest.operators[problem.space.producer[local]]
    access = next(access for access in operator.writes if access.tensor == local)
    path: list[tuple[int, int]] = []
    loop = operator.leaf
    while loop >= 0:
        dim, step, loop = mapping.nest.loops[loop]
        path.append((dim, step))
    path.reverse()
    for axis in access.axes:
        for d in axis_dims(axis):
            steps = [step for dim, step in path[: access.depth[problem.level]] if dim == d]
            size *= min([mapping.nest.extents[d], *steps])
    return size * problem.base.tensors[local].bits // 8


def _chosen_homes(problem: Problem, knobs: Knobs, spilled: frozenset[int], spare_bytes: int = 0) -> Mapping:
    """The best mapping with these intermediates outside, and of the others as many in the registers as fit."""
    # What the user retains in the buffer is at home there.
    homes = _register_homes(problem) - spilled - knobs.retain.keys()
    found = best_mapping(problem, knobs, homes, spilled, spare_bytes=spare_bytes)
    apart = frozenset(local for local in homes if not _under_one_loop(problem, found, local))
    if apart:
        homes -= apart
        found = best_mapping(problem, knobs, homes, spilled, spare_bytes=spare_bytes)
    registers = problem.machine.accelerator.registers
    if registers is not None:
        limit = registers.capacity_bytes if registers.model == "accumulator" else 4 * registers.per_core
        # First the values of the fused epilogue make room for the sums, then the sums of several contractions.
        if homes and _held_bytes(problem, found)[-1] > limit:
            homes = frozenset()
            found = best_mapping(problem, knobs, homes, spilled, spare_bytes=spare_bytes)
        if _held_bytes(problem, found)[-1] > limit:
            return best_mapping(problem, knobs, homes, spilled, False, spare_bytes)
    # The search does without the private loops; where its footprint falls short of theirs, it looks for a smaller one.
    capacity = problem.machine.capacity_bytes
    for _ in range(_RETRIES):
        excess = _held_bytes(problem, found)[problem.level] - capacity
        if found.misfit_bytes or excess <= 0:
            break
        found = best_mapping(
            problem, knobs, homes, spilled, spare_bytes=capacity - found.estimated_bytes + excess
        )
    return found


def _under_one_loop(problem: Problem, mapping: Mapping, local: int) -> bool:
    """Whether a tensor's producer and readers stand under the same innermost loop of the tree."""
    given = 0 if problem.around is None else len(problem.around.loops)
    chains = [
        (*outer, *(given + loop for loop in loops))
        for outer, (loops, _) in zip(problem.outside, paths(mapping.tree), strict=True)
    ]
    made = chains[problem.space.producer[local]]
    users = [chains[r] for r in problem.space.readers[local]]
    if any(users[0] != loops for loops in users) or users[0] != made[: len(users[0])]:
        return False
    others = [loops for o, loops in enumerate(chains) if o != problem.space.producer[local]]
    return all(loop not in loops for loop in made[len(users[0]) :] for loops in others)


def _held_bytes(problem: Problem, mapping: Mapping) -> tuple[int, ...]:
    """Footprints of every buffer so far, outermost first, and of the registers."""
    return counts_of(mapping.nest, mapping.arrays, fragments=False).footprint_bytes


def _register_homes(problem: Problem) -> frozenset[int]:
    """Intermediates that may live in the registers: read by pointwise operators only, with all their dims."""
    if problem.machine.levels < 2:
        return frozenset()
    space = problem.space
    homes: list[int] = []
    for local, tensor in enumerate(problem.base.tensors):
        if tensor.home == OUTER:
            continue
        writer = space.operators[space.producer[local]]
        access = next(a for a in writer.writes if a.tensor == local)
        dims = {d for axis in access.axes for d in axis_dims(axis)}
        readers = space.readers[local]
        if access.fixed < 0 and all(
            problem.base.operators[r].pointwise and dims <= set(space.operators[r].dims) for r in readers
        ):
            homes.append(local)
    return frozenset(homes)
