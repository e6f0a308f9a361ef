"""Edits of the selection by key and menu: fuse, split, toggle, grow, shrink, move the cut, forget tiles.

Knows the document and the pure edits of the plan. Must not know widgets. A refusal changes nothing: its
sentence is said, and its fix is put on offer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from model.errors import PlanError
from model.graph.graph import OperatorGraph
from model.plan.plan import Plan

from .names import group_name, operator_list

if TYPE_CHECKING:
    from .document import Document


@dataclass(frozen=True, slots=True)
class _Cut:
    """A boundary that is being nudged: where it began, both sides nearest first, how far it went.

    ``shown`` is the plan after the last nudge; any other plan means that this cut is history.
    """

    number: int
    base: Plan
    upper: tuple[int, ...]
    lower: tuple[int, ...]
    step: int
    shown: Plan


class Editor:
    """The verbs. Each acts on the document's selection and makes at most one undo entry."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._cut: _Cut | None = None
        self._cuts = 0

    # -- verbs -------------------------------------------------------------------------------------
    def select_all(self) -> None:
        """Every operator."""
        graph = self.document.graph
        if graph is not None:
            self.document.select(range(len(graph.operators)))

    def fuse(self) -> None:
        """The groups of the selected operators become one."""
        from model.plan import edits

        found = self._at_hand("fuse")
        if found is None:
            return
        graph, plan, chosen = found
        groups = {plan.group_of[o] for o in chosen}
        if len(groups) < 2:
            self._note(
                "The selection lies in one group already. Select operators of two groups to fuse them."
            )
            return
        text = f"Fuse {operator_list(graph, chosen, 3)}"
        self._try(lambda: edits.fuse(graph, plan, chosen), text)

    def split(self) -> None:
        """The selected operators leave their group."""
        from model.plan import edits

        found = self._at_hand("split")
        if found is not None:
            graph, plan, chosen = found
            text = f"Split off {operator_list(graph, chosen, 3)}"
            self._try(
                lambda: edits.split(graph, plan, chosen), text, "They are a group of their own already."
            )

    def toggle(self) -> None:
        """Fuse across, or cut, the edge from the selection to what reads it."""
        from model.plan import edits

        found = self._at_hand("toggle a cut")
        if found is None:
            return
        graph, plan, chosen = found
        edge = self._edge_of(graph, chosen)
        if edge is None:
            self._note("No edge leaves the selection. Select the operator above the cut.")
            return
        producer, consumer = edge
        same = plan.group_of[producer] == plan.group_of[consumer]
        text = f"{'Cut' if same else 'Fuse'} {operator_list(graph, edge)}"
        self._try(lambda: edits.toggle(graph, plan, producer, consumer), text)

    def grow(self) -> None:
        """The next consumer of the group joins it."""
        from model.plan import edits

        found = self._at_hand("grow a group")
        if found is None:
            return
        graph, plan, chosen = found
        members = plan.groups[plan.group_of[chosen[0]]].operators
        following = self._readers_outside(graph, members)
        if not following:
            self._note("Nothing reads what this group writes, so it cannot grow downwards.")
            return
        text = f"Grow by {operator_list(graph, following[:1])}"
        self._try(lambda: edits.move(graph, plan, following[:1], members[0]), text)

    def shrink(self) -> None:
        """The last operator of the group leaves it."""
        from model.plan import edits

        found = self._at_hand("shrink a group")
        if found is None:
            return
        graph, plan, chosen = found
        members = plan.groups[plan.group_of[chosen[0]]].operators
        if len(members) < 2:
            self._note("The group is one operator; it cannot shrink.")
            return
        text = f"Shrink by {operator_list(graph, members[-1:])}"
        self._try(lambda: edits.split(graph, plan, members[-1:]), text)
        if self.document.plan is not None and members[-1] in chosen and len(chosen) == 1:
            self.document.select(members[-2:-1])  # stay in the group, so that the key can be pressed again

    def move_to(self, group: int) -> None:
        """The selected operators join group `group`."""
        from model.plan import edits

        found = self._at_hand("move")
        if found is None:
            return
        graph, plan, chosen = found
        target = plan.groups[group].operators[0]
        text = f"Move {operator_list(graph, chosen, 3)} to {group_name(group)}"
        self._try(lambda: edits.move(graph, plan, chosen, target), text, "They are in that group already.")

    def automatic_tile(self) -> None:
        """Forget every knob of the selected groups but what is computed again: the tool chooses again."""
        from model.plan.plan import FusionGroup

        found = self._at_hand("set a tile")
        if found is None:
            return
        _, plan, chosen = found
        picked = {plan.group_of[o] for o in chosen}
        groups = tuple(
            FusionGroup(group.operators, recompute=group.recompute) if index in picked else group
            for index, group in enumerate(plan.groups)
        )
        names = ", ".join(group_name(index) for index in sorted(picked)[:3])
        self._try(
            lambda: replace(plan, groups=groups), f"Let the tool choose in {names}", "Nothing was set there."
        )

    def recompute(self) -> None:
        """What the selected operators make is computed again in the backward pass; a second time: saved again."""
        from model.plan.recompute import recompute

        found = self._at_hand("compute again")
        if found is None:
            return
        graph, plan, chosen = found
        made = dict.fromkeys(graph.roots[a.tensor] for o in chosen for a in graph.operators[o].outputs)
        saved = [tensor for tensor in made if tensor in graph.saved] or list(made)
        names = {name for group in plan.groups for name in group.recompute}
        again = not all(graph.tensors[tensor].name in names for tensor in saved)
        what = ", ".join(graph.tensors[tensor].name for tensor in saved[:3])
        text = f"Compute {what} again" if again else f"Save {what}"
        self._try(lambda: recompute(graph, plan, saved, again), text)

    def cut_up(self) -> None:
        """The boundary below the selected operator moves up by one operator."""
        self._nudge(-1)

    def cut_down(self) -> None:
        """The boundary below the selected operator moves down by one operator."""
        self._nudge(1)

    # -- the cut -----------------------------------------------------------------------------------
    def _nudge(self, by: int) -> None:
        from model.plan import edits

        found = self._at_hand("move a cut")
        if found is None:
            return
        graph, plan, chosen = found
        cut = (
            self._cut
            if self._cut is not None and self._cut.shown is plan
            else self._cut_below(graph, plan, chosen)
        )
        if cut is None:
            self._note("There is no cut below the selected operator.")
            return
        step = cut.step + by
        if step > len(cut.lower) or -step > len(cut.upper):
            self._note("The cut is at its end: everything on that side has joined.")
            return

        def moved() -> Plan:
            if step == 0:
                return cut.base
            if step > 0:
                return edits.move(graph, cut.base, cut.lower[:step], cut.upper[0])
            return edits.move(graph, cut.base, cut.upper[:-step], cut.lower[0])

        passed = cut.lower[step - 1 : step] if step > 0 else cut.upper[-step - 1 : -step]
        text = f"Move the cut {'down' if step > 0 else 'up'} past {operator_list(graph, passed)}"
        if self._try(moved, text, merge=f"cut {cut.number}") and self.document.plan is not None:
            self._cut = replace(cut, step=step, shown=self.document.plan)

    def _cut_below(self, graph: OperatorGraph, plan: Plan, chosen: tuple[int, ...]) -> _Cut | None:
        """The boundary between the selected operator's group and the one that reads it next.

        Where both ends of one cut are selected, as a click on its chip does, that cut.
        """
        apart = plan.group_of[chosen[0]] != plan.group_of[chosen[-1]]
        if len(chosen) == 2 and apart and self._edge_of(graph, chosen) == chosen:
            members, following = plan.groups[plan.group_of[chosen[0]]].operators, chosen[1:]
        else:
            members = plan.groups[plan.group_of[chosen[-1]]].operators
            following = self._readers_outside(graph, chosen[-1:], set(members)) or self._readers_outside(
                graph, members
            )
        if not following:
            return None
        self._cuts += 1
        lower = plan.groups[plan.group_of[following[0]]].operators
        return _Cut(self._cuts, plan, tuple(reversed(members)), lower, 0, plan)

    # -- shared ------------------------------------------------------------------------------------
    def _at_hand(self, verb: str) -> tuple[OperatorGraph, Plan, tuple[int, ...]] | None:
        """Graph, committed plan and selection; None, with the reason said, where one is missing."""
        document = self.document
        graph, plan = document.graph, document.plan
        if graph is None or plan is None:
            self._note(f"No model is open, so there is nothing to {verb}.")
        elif not document.ready:
            self._note("Kernels are still compiling; edits are checked with them. A moment.")
        elif not document.selection:
            self._note(f"Select operators to {verb}.")
        else:
            return graph, plan, document.selection
        return None

    def _try(self, make: Callable[[], Plan], text: str, unchanged: str = "", merge: str = "") -> bool:
        """Commit what `make` returns; say the reason where it is refused. True when it was legal."""
        document = self.document
        try:
            plan = make()
        except PlanError as refusal:
            document.said.emit(refusal.sentence(), "warning")
            fix: Plan | None = getattr(refusal, "fix", None)
            if fix is not None:
                document.set_offer(refusal.sentence(), fix, text)
            else:
                document.withdraw_offer()
            return False
        if plan == document.plan and unchanged:
            self._note(unchanged)
        document.commit(plan, text, merge)
        return True

    def _note(self, sentence: str) -> None:
        self.document.said.emit(sentence, "note")

    def _edge_of(self, graph: OperatorGraph, chosen: tuple[int, ...]) -> tuple[int, int] | None:
        """The edge between two selected operators, else the first that leaves the selection."""
        start, target = graph.successors
        leaving: tuple[int, int] | None = None
        for producer in chosen:
            for consumer in target[start[producer] : start[producer + 1]].tolist():
                if len(chosen) == 2 and consumer in chosen:
                    return producer, consumer
                if leaving is None and consumer not in chosen:
                    leaving = producer, consumer
        return leaving

    def _readers_outside(
        self, graph: OperatorGraph, members: tuple[int, ...], inside: set[int] | None = None
    ) -> tuple[int, ...]:
        """Consumers of `members` outside of `inside` (themselves), in file order."""
        start, target = graph.successors
        within = inside or set(members)
        found = {c for o in members for c in target[start[o] : start[o + 1]].tolist() if c not in within}
        return tuple(sorted(found))
