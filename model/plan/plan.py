"""A plan: a partition of the operators into fusion groups, and what the user set for each group.

Immutable values, no behaviour beyond look-ups. Edits are in `edits.py`, legality in `legality.py`, text
notation in `notation.py`, the JSON file in `file.py`. Knows the graph's operator indices and nothing of
machines: level names are plain text.

A *knob* is what the user set. Everything left at its empty value is chosen by the cost room, is used,
and comes back in the result marked ``chosen``; it is never written into the plan value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

Sizes = tuple[tuple[str, int], ...]  # sorted by the order in which they were written; (dim, number)


def group_name(index: int) -> str:
    """``G3``: what the third group of a plan is called, in the window, in tables and in JSON."""
    return f"G{index + 1}"


@dataclass(frozen=True, slots=True)
class LevelTile:
    """What the user set for one memory level of one group. Empty parts are chosen by the tool.

    Attributes
    ----------
    memory : the level's name in the machine file; "registers" for the register tile.
    tile : (dim, extent of the tile) in elements.
    loop_order : dims of the loops over these tiles, outermost first.
    retain : (tensor name, loop depth at which its tile stays).
    """

    memory: str
    tile: Sizes = ()
    loop_order: tuple[str, ...] = ()
    retain: Sizes = ()


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Operators that run as one launch, with the knobs that the user set for them.

    Attributes
    ----------
    operators : indices in the graph, ascending (file order), at least one.
    elements : order of the element loops, outermost first; empty: chosen.
    tree : loop tree as text, e.g. ``m { n { MatMul_0(k), Relu_1 } }``; empty: chosen.
    parallel : (dim, cores over it); empty: chosen.
    stages : 1 single, 2 double buffering, more a deeper pipeline; 0: chosen.
    threads : threads per block on a simt machine; 0: chosen.
    precision : short name (bf16, int8 ...); empty: the file's.
    recompute : names of tensors that this group makes and the backward pass computes again instead of keeping them
        (`plan/recompute.py`).
    """

    operators: tuple[int, ...]
    levels: tuple[LevelTile, ...] = ()
    elements: tuple[str, ...] = ()
    tree: str = ""
    parallel: Sizes = ()
    split_reduction: Sizes = ()
    stages: int = 0
    threads: int = 0
    precision: str = ""
    sparsity: str = ""
    halo: str = ""
    recompute: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()

    def level(self, memory: str) -> LevelTile:
        """What the user set for `memory`; an empty `LevelTile` where nothing."""
        for level in self.levels:
            if level.memory == memory:
                return level
        return LevelTile(memory)

    @property
    def has_knobs(self) -> bool:
        """Whether anything but the membership was set."""
        return _KNOBS(self) != _NO_KNOBS


_KNOBS = attrgetter(*[field.name for field in fields(FusionGroup) if field.name != "operators"])
_NO_KNOBS = _KNOBS(FusionGroup((0,)))


@dataclass(frozen=True)
class Plan:
    """A partition of the graph's operators.

    Invariants: every operator is in exactly one group; groups are sorted by their first operator; operators
    within a group ascend. `Plan.of` establishes them. Legality (acyclic quotient, connected, no barrier) is
    checked by `legality.check`, and every public edit returns only legal plans.
    """

    groups: tuple[FusionGroup, ...]

    @staticmethod
    def of(groups: list[FusionGroup] | tuple[FusionGroup, ...]) -> Plan:
        """A plan from groups in any order."""
        return Plan(tuple(sorted(groups, key=lambda group: group.operators[0])))

    @staticmethod
    def unfused(operators: int) -> Plan:
        """Each of so many operators in a group of its own: needs no kernel, so a window can show it at once."""
        return Plan(tuple(FusionGroup((operator,)) for operator in range(operators)))

    @cached_property
    def membership(self) -> NDArray[np.int32]:
        """int32[operators]: the index of each operator's group. Read-only."""
        lengths = [len(group.operators) for group in self.groups]
        flat = [operator for group in self.groups for operator in group.operators]
        out = np.empty(len(flat), dtype=np.int32)
        out[flat] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        out.setflags(write=False)
        return out

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Per operator the index of its group."""
        return tuple(self.membership.tolist())

    def changed(self, before: Plan) -> tuple[int, ...]:
        """Indices of the groups that `before` does not hold with the same operators and knobs, by value."""
        if self is before:
            return ()
        # Edits hand the groups that they leave alone on as the same objects: comparing these is free.
        old = {group.operators[0]: group for group in before.groups}
        return tuple(
            index
            for index, group in enumerate(self.groups)
            if (other := old.get(group.operators[0])) is not group and other != group
        )
