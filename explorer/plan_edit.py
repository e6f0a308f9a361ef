"""The undo command: because plans are immutable values, one class serves every edit. And what edits lose.

Knows two plans and how to make one the committed plan. Must not know what the edit was.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QUndoCommand

from model.hardware.accelerator import Accelerator
from model.plan.plan import Plan


class PlanEdit(QUndoCommand):
    """The one undo command: a plan before, a plan after, what was done.

    Consecutive edits with the same `merge` key (nudges of one cut, scrubs of one tile) become one entry; an
    entry that ends where it began removes itself.
    """

    def __init__(
        self, install: Callable[[Plan], None], before: Plan, after: Plan, text: str, merge: str
    ) -> None:
        super().__init__(text)
        self._install = install
        self.before = before
        self.after = after
        self.merge = merge

    def id(self) -> int:
        """One kind of command; -1 tells Qt that this one never merges."""
        return 1 if self.merge else -1

    def mergeWith(self, other: QUndoCommand) -> bool:
        """Take a later edit with the same key into this entry."""
        if not isinstance(other, PlanEdit) or other.merge != self.merge:
            return False
        self.after = other.after
        self.setText(other.text())
        if self.after == self.before:
            self.setObsolete(True)
        return True

    def undo(self) -> None:
        """Back to the plan before."""
        self._install(self.before)

    def redo(self) -> None:
        """To the plan after; Qt also calls it when the entry is pushed."""
        self._install(self.after)


def tiles_lost(before: Plan, after: Plan) -> tuple[int, ...]:
    """Groups of `after` that have no knobs, although operators of theirs were in a group that had some.

    A group that kept its operators had its knobs taken off on purpose and is not counted.
    """
    was_in, lost = before.membership, []
    for index in after.changed(before):
        group = after.groups[index]
        sources = {int(was_in[o]) for o in group.operators}
        if not group.has_knobs and any(
            before.groups[source].has_knobs and before.groups[source].operators != group.operators
            for source in sources
        ):
            lost.append(index)
    return tuple(lost)


def idle_levels(plan: Plan | None, accelerator: Accelerator) -> tuple[str, ...]:
    """Memory levels for which `plan` sets tiles and which `accelerator` lacks, in order of appearance."""
    there = {level.name for level in accelerator.memory}
    groups = () if plan is None else plan.groups
    return tuple(
        dict.fromkeys(level.memory for group in groups for level in group.levels if level.memory not in there)
    )
