"""Which blocks of the graph are closed: each is drawn as one box, and what is inside is not drawn.

Knows the graph's hierarchy and a plan's membership. Must not know positions, Qt or results. A `Folding` is a
value; opening or closing a block makes another one.

What the layout places are *units*: a closed block, or what is seen of one fusion group. A group may reach into
a closed block, or around it; then what is seen of it is parted at the closed blocks, so that no unit can be
its own ancestor: closed blocks are runs of one topological order, and a part lies in one gap between them::

    order       a a [ closed ] b c [ closed ] d        group {a, b, c, d}: units a a · b c · d
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.graph.hierarchy import Hierarchy
from model.plan.plan import Plan

CLOSED_ABOVE = 200
"""Operators; a graph with more opens with its blocks closed: so many no longer fit legibly into one view."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the layout places as one thing; ``block`` -1: it is (a part of) a fusion group."""

    operators: tuple[int, ...]
    block: int = -1


@dataclass(frozen=True, eq=False)
class Folding:
    """See the module's docstring.

    Attributes
    ----------
    count : operators of the graph.
    hierarchy : None for a quick picture, where every operator is seen.
    closed : disjoint blocks of the hierarchy.
    """

    count: int
    hierarchy: Hierarchy | None = None
    closed: frozenset[int] = frozenset()

    # -- what is seen --------------------------------------------------------------------------------
    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The closed blocks in topological order; a *slot* is a place in this list."""
        found = self.hierarchy
        return () if found is None else tuple(sorted(self.closed, key=lambda block: int(found.start[block])))

    @cached_property
    def slot_of(self) -> NDArray[np.int64]:
        """int64[operators]: the slot of the closed block that holds each operator, -1 where it is seen."""
        out = np.full(self.count, -1, dtype=np.int64)
        for slot, block in enumerate(self.blocks):
            out[self.operators(block)] = slot
        return out

    @cached_property
    def shown(self) -> NDArray[np.bool_]:
        """bool[operators]: whether an operator has a box of its own."""
        return self.slot_of < 0

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """int64[slots]: an operator of each closed block; its box is that of the block."""
        return np.array([self.operators(block)[0] for block in self.blocks], dtype=np.int64)

    @property
    def boxes(self) -> int:
        """How many boxes are drawn."""
        return int(self.shown.sum()) + len(self.blocks)

    def operators(self, block: int) -> NDArray[np.int32]:
        """The operators of a block."""
        assert self.hierarchy is not None
        return self.hierarchy.operators(block)

    def together(self, operator: int) -> tuple[int, ...]:
        """What is one box with an operator: all of its closed block, or itself."""
        slot = int(self.slot_of[operator])
        return (operator,) if slot < 0 else tuple(sorted(self.operators(self.blocks[slot]).tolist()))

    def name(self, slot: int) -> str:
        """The name of a closed block."""
        assert self.hierarchy is not None
        return self.hierarchy.name[self.blocks[slot]]

    @cached_property
    def opened(self) -> tuple[int, ...]:
        """Blocks that are open while others are closed, a parent before its children; not those that hold most."""
        found = self.hierarchy
        if found is None or not self.closed:
            return ()
        inside = set(self.closed)
        for block in range(len(found.name)):  # a parent comes first
            if int(found.parent[block]) in inside:
                inside.add(block)
        size = found.end - found.start
        return tuple(b for b in range(len(found.name)) if b not in inside and 2 * size[b] <= self.count)

    def units(self, plan: Plan) -> tuple[list[Unit], NDArray[np.int64]]:
        """What is placed under `plan`, and per operator which of it: int64[operators]."""
        if not self.closed:
            return [Unit(group.operators) for group in plan.groups], plan.membership.astype(np.int64)
        assert self.hierarchy is not None
        order = self.hierarchy.order
        gap = np.zeros(self.count, dtype=np.int64)
        passed = np.zeros(self.count, dtype=np.int64)
        passed[self.hierarchy.end[list(self.blocks)] - 1] = 1
        gap[order] = np.cumsum(passed)
        slots = len(self.blocks)
        key = np.where(self.shown, plan.membership.astype(np.int64) * (slots + 1) + gap, -1 - self.slot_of)
        _, first, unit_of = np.unique(key, return_index=True, return_inverse=True)
        unit_of = unit_of.reshape(-1)
        members = np.split(np.argsort(unit_of, kind="stable"), np.cumsum(np.bincount(unit_of))[:-1])
        units = [
            Unit(tuple(found.tolist()), -1 if (slot := int(self.slot_of[one])) < 0 else self.blocks[slot])
            for found, one in zip(members, first.tolist(), strict=True)
        ]
        return units, unit_of

    # -- other foldings ------------------------------------------------------------------------------
    def with_closed(self, closed: Iterable[int]) -> Folding:
        """The same graph with these blocks closed."""
        return Folding(self.count, self.hierarchy, frozenset(closed))

    def opening(self, blocks: Iterable[int]) -> Folding:
        """With some closed blocks opened, those inside them closed."""
        if self.hierarchy is None:
            return self
        gone = self.closed.intersection(blocks)
        inside = (child for block in gone for child in self.hierarchy.children(block).tolist())
        return self.with_closed({*(self.closed - gone), *inside})

    def revealing(self, operators: Iterable[int]) -> Folding:
        """With everything opened that hides one of `operators`; siblings stay closed."""
        out = self
        wanted = np.array(list(operators), dtype=np.int64)
        while len(hidden := np.unique(out.slot_of[wanted][out.slot_of[wanted] >= 0])):
            out = out.opening(out.blocks[slot] for slot in hidden.tolist())
        return out

    def closing(self, operators: Iterable[int]) -> Folding:
        """With the smallest open block around each of `operators` closed."""
        found = self.hierarchy
        if found is None:
            return self
        around: set[int] = set()
        for operator in operators:
            slot = int(self.slot_of[operator])
            block = int(found.home[operator]) if slot < 0 else int(found.parent[self.blocks[slot]])
            if block >= 0:
                around.add(block)
        out = self
        for block in around:
            if not around.intersection(found.path(block)[:-1]):
                out = out.closing_block(block)
        return out

    def closing_block(self, block: int) -> Folding:
        """With one open block closed."""
        assert self.hierarchy is not None
        inside = (other for other in self.closed if block in self.hierarchy.path(other))
        return self.with_closed({*self.closed.difference(inside), block})
