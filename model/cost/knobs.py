"""The user's settings of one group for one buffer, in group dims and local tensors.

Knows a problem posed for one buffer and a plan's values. What a name does not fit becomes a note, never an error: an
edit elsewhere may have renamed a dim.
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware.accelerator import Accelerator
from ..plan.plan import FusionGroup
from .nest import WindowAxis
from .problem import BUFFER_NAME, REGISTERS_NAME, Problem
from .tree import Tree, check, from_text


def unknown_levels(group: FusionGroup, machine: Accelerator) -> list[str]:
    """Notes on the levels that the group sets and the machine does not have."""
    known = {BUFFER_NAME, REGISTERS_NAME, *(buffer.name for buffer in machine.buffers)}
    return [
        f"{level.memory} is no explicit level of {machine.name}: its tile is not used"
        for level in group.levels
        if level.memory not in known
    ]


def of_buffer(group: FusionGroup, machine: Accelerator, number: int) -> FusionGroup:
    """What a group sets of buffer `number` and of the registers, and of the outermost one all that is no level's.

    Stages are those of the outermost buffer; where they are single, so are those of all others.
    """
    if len(machine.buffers) == 1:
        return group
    others = {buffer.name for i, buffer in enumerate(machine.buffers) if i != number}
    levels = tuple(level for level in group.levels if level.memory not in others)
    if number == 0:
        return replace(group, levels=levels)
    levels = tuple(
        level for level in levels if level.memory in (machine.buffers[number].name, REGISTERS_NAME)
    )
    single = 1 if group.stages == 1 else 0
    return FusionGroup(group.operators, levels, group.elements, stages=single, threads=group.threads)


class Knobs:
    """The user's settings of one group in group dims and local tensors; unknown names become notes."""

    def __init__(self, problem: Problem, group: FusionGroup) -> None:
        self.problem = problem
        self.notes: list[str] = []
        self.number = {name: d for d, name in enumerate(problem.space.names)}
        machine = problem.machine.accelerator
        outer = [level for level in group.levels if level.memory in (machine.buffer.name, BUFFER_NAME)]
        inner = [level for level in group.levels if level.memory == REGISTERS_NAME]
        self.tile = self.sizes([pair for level in outer for pair in level.tile])
        self.order = self.dims([name for level in outer for name in level.loop_order])
        self.retain = self.depths([pair for level in outer for pair in level.retain])
        self.register_tile = self.sizes([pair for level in inner for pair in level.tile])
        self.register_order = self.dims([name for level in inner for name in level.loop_order])
        self.register_retain = self.depths([pair for level in inner for pair in level.retain])
        self.elements = self.dims(list(group.elements))
        self.parallel = self.sizes(list(group.parallel), clamp=False)
        self.stages = group.stages
        self.threads = group.threads
        if group.stages > 1 and not machine.buffer.double_buffer:
            self.notes.append(f"{machine.buffer.name} holds single copies: one stage is used")
        registers = machine.registers
        if registers is not None and registers.model == "simt" and group.threads > registers.threads_max:
            self.notes.append(f"a core holds at most {registers.threads_max:,} threads: so many are used")
        if group.sparsity:
            self.notes.append(
                f"sparsity {group.sparsity!r} is not simulated: MACs and bytes are counted dense"
            )
        if group.halo and not problem.space.still and _windows(problem):
            self.notes.append(
                "no window of this group can be joined: what it reads stays whole along that axis"
            )
        for d in problem.space.still:
            if self.tile.get(d, problem.space.extents[d]) < problem.space.extents[d]:
                self.notes.append(f"{problem.space.names[d]} follows a window: it has no tile of its own")
            self.tile[d] = problem.space.extents[d]
        self.pinned = self._pinned(group)
        self.split = self._split(group)
        self.tree: Tree | None = None
        if group.tree:
            self.tree = from_text(group.tree, problem.space, problem.number)
            check(problem.space, self.tree, problem.names)

    def _pinned(self, group: FusionGroup) -> frozenset[int]:
        """Tensors from outside that stay in the buffer; what the group makes has its place there anyway."""
        found: set[int] = set()
        for name in group.pinned:
            if name not in self.problem.tensor_names:
                self.notes.append(f"no tensor {name!r} in this group: it is not pinned")
                continue
            local = self.problem.tensor_names.index(name)
            if self.problem.space.producer[local] >= 0:
                self.notes.append(f"{name} is made in this group: only what comes from outside is pinned")
            else:
                found.add(local)
        return frozenset(found)

    def _split(self, group: FusionGroup) -> dict[int, int]:
        """Cores over reduced dims; a dim whose tile is open is cut so that each core has a part."""
        reduced = {d for operator in self.problem.space.operators for d in operator.reductions}
        out: dict[int, int] = {}
        for d, cores in self.sizes(list(group.split_reduction), clamp=False).items():
            if d not in reduced:
                self.notes.append(
                    f"no operator of this group reduces {self.problem.space.names[d]}: "
                    "split_reduction is for sums, parallel for other dims"
                )
            elif cores > 1:
                out[d] = cores
                self.tile.setdefault(d, -(-self.problem.space.extents[d] // cores))
        return out

    def depth(self, local: int) -> int:
        """The depth at the buffer that the user asks of a tensor: 0 where it is pinned, -1 where nothing is asked."""
        return 0 if local in self.pinned else self.retain.get(local, -1)

    def _dim(self, name: str) -> int | None:
        if name not in self.number:
            self.notes.append(
                f"no dim {name!r} in this group; its dims are {', '.join(self.problem.space.names)}"
            )
        return self.number.get(name)

    def sizes(self, pairs: list[tuple[str, int]], clamp: bool = True) -> dict[int, int]:
        out: dict[int, int] = {}
        for name, size in pairs:
            d = self._dim(name)
            if d is not None:
                out[d] = max(1, min(size, self.problem.space.extents[d]) if clamp else size)
        return out

    def dims(self, names: list[str]) -> tuple[int, ...]:
        found = [d for d in (self._dim(name) for name in names) if d is not None]
        return tuple(dict.fromkeys(found))

    def depths(self, pairs: list[tuple[str, int]]) -> dict[int, int]:
        out: dict[int, int] = {}
        for name, depth in pairs:
            if name in self.problem.tensor_names:
                out[self.problem.tensor_names.index(name)] = max(0, depth)
            else:
                self.notes.append(f"no tensor {name!r} in this group: its retention is not used")
        return out


def _windows(problem: Problem) -> bool:
    """Whether a window inside the group reads what the group makes."""
    return any(
        isinstance(axis, WindowAxis) and problem.space.intermediate(access.tensor)
        for operator in problem.space.operators
        for access in operator.reads
        for axis in access.axes
    )
