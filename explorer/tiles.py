"""The tile editor: per dim of the selected group a stepper with scrub, loop order, stages, what fits.

Knows `GroupResult` (what is used and what of it was chosen) and the pure edits of the plan. What the user
sets is a knob; everything else stays chosen by the tool and says so. Previews while scrubbing, one undo entry
on release.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, permutations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
)

from model.cost.result import CostResult, GroupResult, LevelMapping
from model.errors import PlanError
from model.plan.plan import LevelTile, Plan

from . import look, why
from .controls import Combo, muted, scrolling
from .document import Document
from .look import GRID
from .names import group_name, operator_types
from .panels.panel import Panel
from .tile_map import WEIGHED, TileMap
from .tile_rows import DimRow, Footprint
from .tile_sizes import Fit, units

MOST_ORDERS = 24
FASTEST, AUTOMATIC = "Use the map's fastest", "Let the tool choose"


class TileEditor(Panel):
    """The tile panel."""

    left = Signal()
    """Emitted when a size was entered: the keyboard may go back to the canvas."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "tiles", "Tile", "sizes, order and stages of one group")
        self._result: CostResult | None = None
        self._group: GroupResult | None = None
        self._index = 0
        self._memory = ""
        self.level = Combo("Memory level")
        self.level.currentIndexChanged.connect(self._level_picked)
        self.order = Combo("Loop order")
        self.order.activated.connect(self._order_picked)
        self.stages = Combo("Stages")
        self.stages.activated.connect(self._stages_picked)
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(2 * GRID)
        self.grid.setVerticalSpacing(2)
        self.grid.setColumnStretch(1, 1)
        self.rows: list[DimRow] = []
        self.footprint = Footprint()
        self.footprint.setAccessibleName("Footprint")
        self.map = TileMap(document)
        self.map.picked.connect(self.set_pair)
        self.map.completed.connect(self._show_offers)
        self.words = QLabel()
        self.words.setWordWrap(True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.fastest = QPushButton(FASTEST)
        self.fastest.clicked.connect(self.use_fastest)
        self.automatic = QPushButton(AUTOMATIC)
        self.automatic.setToolTip("Forget every size, order and stage count that was set for this group")
        self.automatic.clicked.connect(self.choose_all)
        self._lay_out()
        self.follow("cost", document.cost_changed, document.selection_changed)
        document.graph_changed.connect(self._forget)

    def _lay_out(self) -> None:
        column = scrolling(self.body)
        level = QHBoxLayout()
        level.addWidget(muted("Level"))
        level.addWidget(self.level, 1)
        column.addLayout(level)
        column.addLayout(self.grid)
        lines = QGridLayout()
        lines.setHorizontalSpacing(2 * GRID)
        lines.setVerticalSpacing(GRID)
        lines.setColumnStretch(1, 1)
        lines.addWidget(muted("Order"), 0, 0)
        lines.addWidget(self.order, 0, 1)
        lines.addWidget(muted("Stages"), 1, 0)
        lines.addWidget(self.stages, 1, 1)
        column.addLayout(lines)
        column.addWidget(self.footprint)
        column.addWidget(self.words)
        column.addWidget(self.map)
        column.addStretch(1)
        self.body.addWidget(self.fastest)
        self.body.addWidget(self.automatic)

    def _forget(self) -> None:
        """The group shown is one of another graph."""
        self._result = self._group = None

    # -- what is shown -----------------------------------------------------------------------------
    def redraw(self) -> None:
        """The selected group of the newest result, or the one that takes longest."""
        result = self.document.cost
        if self.explain_absence("tiles") or result is None:
            return
        self._result = result
        self._index = self._wanted(result)
        group = self._group = result.groups[self._index]
        if not group.levels:
            why_not = " ".join(f"{what}. {lever}".strip() for _, what, lever in group.warnings[:2])
            words = f"{group_name(self._index)} has no loops to tile"
            self.say(f"{words}: {why_not}" if why_not else f"{words}.", "warning" if why_not else "note")
            return
        self._show_levels(group)
        mapping = self._mapping(group)
        types = operator_types(result.request.graph, group.operators)
        self.set_title(f"Tile · {group_name(self._index)}")
        self.set_line(types if self.document.selection else f"{types} · takes longest")
        self._show_dims(result, group, mapping)
        self._show_order(group, mapping)
        self._show_stages(group)
        self._show_footprint(result, group)
        if not self.document.previewing:
            self.map.show_group(result, self._index, self._memory)
        else:
            self.map.mark(group)
        self._show_offers()
        self.show_body()

    def _show_offers(self) -> None:
        """The map's fastest cell where it is faster than what is shown; the tool's choice where something is set."""
        result = self._result
        if result is None or self._index >= len(result.groups):
            return
        faster = self.map.faster() if self.map.isVisibleTo(self) else None
        self.fastest.setVisible(faster is not None)
        self.automatic.setVisible(result.request.plan.groups[self._index].has_knobs)
        if faster is not None:
            group, (sizes, latency_s) = result.groups[self._index], faster
            gain = (
                look.fmt_delta(latency_s, group.latency_s, "seconds")
                if group.infeasible is None
                else "it fits"
            )
            self.fastest.setText(f"{FASTEST}: {gain}")
            cell = ", ".join(f"{dim} {size:,}" for dim, size in sizes.items())
            self.fastest.setToolTip(f"Set {cell}: {look.fmt_seconds(latency_s)}. {WEIGHED}.")

    def say(self, sentence: str, level: str = "note") -> None:
        """No group is shown: none in the title."""
        self.set_title("Tile")
        super().say(sentence, level)

    def set_title(self, title: str) -> None:
        """Change the title; the dock's bar follows with the line."""
        if title != self.title:
            self.title = title
            self.setAccessibleName(title)
            self.line_changed.emit(self.line)

    def _wanted(self, result: CostResult) -> int:
        chosen = self.document.selection
        if chosen:
            return result.request.plan.group_of[chosen[0]]
        digest = self.document.digest
        assert digest is not None and digest.result is result
        return int(digest.latency_s.argmax())

    def _show_levels(self, group: GroupResult) -> None:
        names = [level.memory for level in group.levels]
        if names != [self.level.itemText(i) for i in range(self.level.count())]:
            self.level.blockSignals(True)
            self.level.clear()
            self.level.addItems(names)
            if self._memory in names:
                self.level.setCurrentText(self._memory)
            self.level.blockSignals(False)
        self._memory = self.level.currentText()

    def _level_picked(self, _: int) -> None:
        self._memory = self.level.currentText()
        self.invalidate()

    def _mapping(self, group: GroupResult) -> LevelMapping:
        for mapping in group.levels:
            if mapping.memory == self._memory:
                return mapping
        return LevelMapping(self._memory, (), (), (), ())

    def _knobs(self, plan: Plan) -> LevelTile:
        return plan.groups[self._index].level(self._memory)

    def _show_dims(self, result: CostResult, group: GroupResult, mapping: LevelMapping) -> None:
        extents, sizes = dict(group.dims), dict(mapping.tile)
        wide = units(result.request, self._index)
        was_set = dict(self._knobs(result.request.plan).tile)
        dims = [dim for dim, extent in group.dims if dim in sizes or extent > 1]
        while len(self.rows) < len(dims):
            self.rows.append(DimRow(self, self.grid, len(self.rows)))
        for row, dim in zip(self.rows, dims, strict=False):
            size = sizes.get(dim, extents[dim])
            row.show(dim, Fit(max(1, size), max(1, extents[dim]), wide.get(dim, 1)), dim in was_set)
        for row in self.rows[len(dims) :]:
            row.hide()

    def _show_order(self, group: GroupResult, mapping: LevelMapping) -> None:
        used = mapping.loop_order
        assert self._result is not None
        was_set = bool(self._knobs(self._result.request.plan).loop_order)
        orders = [used, *(o for o in islice(permutations(used), MOST_ORDERS) if o != used)]
        self.order.clear()
        for place, order in enumerate(orders):
            mark = "" if was_set or place else " · chosen"
            self.order.addItem((" → ".join(order) or "no loop") + mark, order)
        if was_set:
            self.order.addItem("let the tool choose", ())
        self.order.setEnabled(len(used) > 1 or was_set)
        self.order.setToolTip(f"Loops outermost first. Loop tree: {group.tree or 'none'}")

    def _show_stages(self, group: GroupResult) -> None:
        assert self._result is not None
        was_set = self._result.request.plan.groups[self._index].stages
        self.stages.clear()
        self.stages.addItem(f"{_stages_words(group.stages)}{'' if was_set else ' · chosen'}", group.stages)
        for count in (1, 2, 3, 4):
            if count != group.stages:
                self.stages.addItem(_stages_words(count), count)
        if was_set:
            self.stages.addItem("let the tool choose", 0)
        self.stages.setToolTip("Copies of a streamed tile: two let a load run under the compute before it")

    def _show_footprint(self, result: CostResult, group: GroupResult) -> None:
        machine = result.request.accelerator
        room = {level.name: level.capacity_bytes for level in machine.memory[1:]}
        if machine.registers is not None and machine.registers.capacity_bytes:
            room["registers"] = machine.registers.capacity_bytes
        self.footprint.show_rows(
            [(name, live, room[name]) for name, live in group.footprint_bytes if name in room]
        )
        sentences: list[str] = []
        if group.infeasible is not None:
            lack = group.infeasible
            levers = "; ".join(lack.levers) or "a smaller tile, or split the group"
            sentences.append(
                f"✕ Needs {look.fmt_bytes(lack.demand_bytes)} in {lack.memory}, "
                f"{look.fmt_bytes(lack.capacity_bytes)} available. Try: {levers}."
            )
        if words := why.spill(result, self._index):
            sentences.append(f"⚠ {words[0].upper()}{words[1:]}.")
        sentences += [f"⚠ {what}. {lever}".strip() for _, what, lever in group.warnings[:2]]
        state = "bad" if group.infeasible is not None else "warn"
        self._words(" ".join(sentences), state)

    def _words(self, text: str, state: str) -> None:
        self.words.setText(text)
        self.words.setVisible(bool(text))
        self.words.setProperty("state", state)
        self.words.style().polish(self.words)

    # -- edits -------------------------------------------------------------------------------------
    def set_size(self, dim: str, size: int | None, *, preview: bool = False) -> None:
        """Set the tile of one dim; None lets the tool choose it."""
        self.set_sizes({dim: size}, preview=preview)

    def set_pair(self, sizes: dict[str, int]) -> None:
        """Set several dims at once: a click in the map."""
        self.set_sizes(dict(sizes))

    def set_sizes(self, sizes: dict[str, int | None], *, preview: bool = False) -> None:
        """One edit of this level's tile."""
        plan = self.document.plan
        if plan is None or self._group is None:
            return
        knobs = self._knobs(plan)
        tile = dict(knobs.tile)
        for dim, size in sizes.items():
            if size is None:
                tile.pop(dim, None)
            else:
                tile[dim] = size
        changed = ", ".join(
            f"{dim} {size if size is not None else 'automatic'}" for dim, size in sizes.items()
        )
        text = f"Tile {changed} in {group_name(self._index)}"
        merge = f"tile {self._group.operators[0]} {self._memory} {' '.join(sizes)}"
        self._edit(replace(knobs, tile=tuple(tile.items())), text, merge, preview)

    @property
    def previewing(self) -> bool:
        """Whether a scrub is under way."""
        return self.document.previewing

    def note(self, sentence: str) -> None:
        """Say what became of a size that was typed."""
        self.document.said.emit(sentence, "note")

    def leave(self) -> None:
        """Enter was pressed in a size."""
        self.left.emit()

    def cancel(self) -> None:
        """A scrub was given up: no trace."""
        self.document.preview(None)

    def drop(self, dim: str) -> None:
        """The end of a scrub: commit what is previewed."""
        shown, plan = self.document.shown_plan, self.document.plan
        if shown is None or shown is plan or self._group is None:
            self.document.preview(None)
            return
        size = dict(shown.groups[self._index].level(self._memory).tile).get(dim)
        self.document.commit(shown, f"Tile {dim} {size} in {group_name(self._index)}")

    def _order_picked(self, place: int) -> None:
        plan, order = self.document.plan, self.order.itemData(place)
        if plan is not None and self._group is not None and order is not None and (place or not order):
            words = f"Order {' → '.join(order)}" if order else "Order automatic"
            self._edit(
                replace(self._knobs(plan), loop_order=tuple(order)), f"{words} in {group_name(self._index)}"
            )

    def _stages_picked(self, place: int) -> None:
        from model.plan import edits

        document, count = self.document, self.stages.itemData(place)
        if document.graph is None or document.plan is None or not place or not self._usable():
            return
        plan = edits.set_group(document.graph, document.plan, self._index, stages=count)
        document.commit(plan, f"Stages {count or 'automatic'} in {group_name(self._index)}")

    def _edit(self, level: LevelTile, text: str, merge: str = "", preview: bool = False) -> None:
        from model.plan import edits

        document = self.document
        if document.graph is None or document.plan is None or not self._usable():
            return
        try:
            plan = edits.set_level(document.graph, document.plan, self._index, level)
        except PlanError as refusal:
            document.said.emit(refusal.sentence(), "warning")
            self._words(f"⚠ {refusal.sentence()}", "warn")
            for row in self.rows:
                row.restore()
            return
        if preview:
            document.preview(plan)
        else:
            document.commit(plan, text, merge)

    def _usable(self) -> bool:
        """Whether the group shown is still a group of the committed plan."""
        plan, group = self.document.plan, self._group
        if not self.document.ready:
            self.document.said.emit("Kernels are still compiling; a moment.", "note")
            return False
        return (
            plan is not None
            and group is not None
            and self._index < len(plan.groups)
            and plan.groups[self._index].operators == group.operators
        )

    def use_fastest(self) -> None:
        """Set the sizes of the map's fastest cell."""
        faster = self.map.faster()
        if faster is not None:
            self.set_pair(faster[0])

    def choose_all(self) -> None:
        """Forget every knob of the group: the tool chooses."""
        from model.plan.plan import FusionGroup

        plan = self.document.plan
        if plan is not None and self._group is not None and self._usable():
            groups = list(plan.groups)
            groups[self._index] = FusionGroup(groups[self._index].operators)
            self.document.commit(
                replace(plan, groups=tuple(groups)), f"{AUTOMATIC} in {group_name(self._index)}"
            )

    def focus_first(self) -> None:
        """The keyboard goes to the first dim."""
        if self.rows:
            self.rows[0].number.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.rows[0].number.selectAll()

    def changeEvent(self, event: QEvent) -> None:
        """Custom fonts and colours follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.map.update()
            self.footprint.update()


def _stages_words(count: int) -> str:
    return {1: "1 single buffer", 2: "2 double buffer"}.get(count, f"{count} stages")
