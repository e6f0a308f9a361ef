"""The tile editor: per dim of the selected group a stepper with scrub, loop order, stages, what fits.

Knows `GroupResult` (what is used and what of it was chosen) and the pure edits of the plan. What the user
sets is a knob; everything else stays chosen by the tool and says so. Previews while scrubbing, one undo entry
on release.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, permutations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QIntValidator,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from model.cost.result import CostResult, GroupResult, LevelMapping
from model.errors import PlanError
from model.plan.plan import LevelTile, Plan

from . import look
from .controls import Combo, muted
from .document import Document
from .look import GRID
from .names import group_name, operator_types
from .panels.panel import Panel
from .tile_map import TileMap
from .tile_sizes import Fit, stepped, units

SCRUB_PIXELS = 10
MOST_ORDERS = 24


class Number(QLineEdit):
    """The figure of a stepper: type any integer, or press and drag sideways to pass the good sizes."""

    scrubbed = Signal(int)
    """Emitted while dragging, with the rungs away from where the drag began."""
    dropped = Signal()
    """Emitted when a drag ends."""
    cancelled = Signal()
    """Emitted when Escape ends a drag."""
    entered = Signal(int)
    """Emitted when a number was typed."""
    nudged = Signal(int)
    """Emitted by the arrow keys and the wheel, with the rungs to go."""

    def __init__(self) -> None:
        super().__init__()
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setFrame(False)
        self.setProperty("bare", True)
        self.setFont(look.font(13, strong=True))
        self.setCursor(Qt.CursorShape.SizeHorCursor)
        self.setToolTip("Drag sideways, use the wheel or the arrow keys, or type any number and press Enter")
        self._pressed: QPointF | None = None
        self._scrubbing = False
        self._shown = 1
        self.returnPressed.connect(self._enter)

    def show_number(self, value: int, extent: int) -> None:
        """Show `value` unless the user is typing."""
        self._shown = value
        self.setValidator(QIntValidator(1, min(extent, 2**31 - 1), self))
        if not (self.hasFocus() and self.isModified()):
            self.setText(str(value))

    def _enter(self) -> None:
        self.setModified(False)
        if self.text() and int(self.text()) != self._shown:
            self.entered.emit(int(self.text()))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Leaving the field takes what was typed, where it is a legal number."""
        super().focusOutEvent(event)
        if self.isModified() and self.hasAcceptableInput():
            self._enter()
        self.setModified(False)
        self.setText(str(self._shown))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A press may become a scrub or a click into the text."""
        if event.button() is Qt.MouseButton.LeftButton:
            self._pressed = event.position()
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Beyond a few pixels sideways the press is a scrub."""
        if self._pressed is None:
            super().mouseMoveEvent(event)
            return
        away = event.position().x() - self._pressed.x()
        if not self._scrubbing and abs(away) < 4:
            return
        self._scrubbing = True
        self.deselect()
        self.scrubbed.emit(round(away / SCRUB_PIXELS))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """The end of a scrub is one edit."""
        self._pressed = None
        if self._scrubbing:
            self._scrubbing = False
            self.dropped.emit()
            return
        super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows step; Escape takes a scrub or what was typed back."""
        if event.key() == Qt.Key.Key_Escape:
            if self._scrubbing:
                self._scrubbing, self._pressed = False, None
                self.cancelled.emit()
            self.setModified(False)
            self.setText(str(self._shown))
            return
        if event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.nudged.emit(1 if event.key() == Qt.Key.Key_Up else -1)
            return
        super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel steps only where the field has the focus, so that scrolling a panel changes nothing."""
        if self.hasFocus() and event.angleDelta().y():
            self.nudged.emit(1 if event.angleDelta().y() > 0 else -1)
            event.accept()
        else:
            event.ignore()


class DimRow:
    """One dim: name, extent, stepper, how it fits, whether it was chosen or set."""

    def __init__(self, editor: TileEditor, grid: QGridLayout, row: int) -> None:
        self.editor = editor
        self.dim, self.fit = "", Fit(1, 1, 1)
        self._from = 1
        self.name = QLabel()
        self.name.setFont(look.font(look.TITLE, strong=True, mono=True))
        self.extent = QLabel()
        self.extent.setProperty("muted", True)
        self.number = Number()
        self.hint = QLabel()
        self.hint.setProperty("tiny", True)
        self.state = QToolButton()
        self.state.setAutoRaise(True)
        self.state.setProperty("tag", True)
        self.box = QFrame()
        self.box.setProperty("stepper", True)
        self.box.setFixedSize(96, 26)
        inside = QHBoxLayout(self.box)
        inside.setContentsMargins(2, 1, 2, 1)
        inside.setSpacing(0)
        less, more = QToolButton(), QToolButton()
        for button, text, by in ((less, "−", -1), (more, "+", 1)):
            button.setText(text)
            button.setAutoRaise(True)
            button.setFixedSize(22, 22)
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.setAutoRepeat(True)
            button.clicked.connect(lambda _=False, rungs=by: self.step(rungs))
        inside.addWidget(less)
        inside.addWidget(self.number, 1)
        inside.addWidget(more)
        line = 2 * row
        grid.addWidget(self.name, line, 0)
        grid.addWidget(self.extent, line, 1)
        grid.addWidget(self.box, line, 2)
        grid.addWidget(self.state, line, 3, Qt.AlignmentFlag.AlignRight)
        grid.addWidget(self.hint, line + 1, 1, 1, 3, Qt.AlignmentFlag.AlignRight)
        self.widgets = (self.name, self.extent, self.box, self.state, self.hint)
        self.number.scrubbed.connect(self._scrub)
        self.number.dropped.connect(self._drop)
        self.number.cancelled.connect(lambda: editor.document.preview(None))
        self.number.entered.connect(self.put)
        self.number.nudged.connect(self.step)
        self.state.clicked.connect(lambda: editor.set_size(self.dim, None))

    def show(self, dim: str, fit: Fit, was_set: bool) -> None:
        """Show one dim of the mapping in use."""
        self.dim = dim
        if not self.editor.document.previewing:
            self._from = fit.size
        self.fit = fit
        self.name.setText(dim)
        self.extent.setText(f"of {fit.extent:,}")
        self.number.show_number(fit.size, fit.extent)
        self.number.setAccessibleName(f"Tile of {dim}")
        self.hint.setText(fit.words)
        self.hint.setToolTip(fit.tip)
        self.hint.setProperty("state", "" if fit.aligned else "warn")
        self.hint.style().polish(self.hint)
        self.state.setText("set ×" if was_set else "chosen")
        self.state.setEnabled(was_set)
        self.state.setToolTip("You set it. Click: let the tool choose" if was_set else "The tool chose it")
        for widget in self.widgets:
            widget.setVisible(True)

    def hide(self) -> None:
        """No such dim in this group."""
        for widget in self.widgets:
            widget.setVisible(False)

    def step(self, rungs: int) -> None:
        """Some rungs along the ladder: one edit, merged with the last one of this dim."""
        self.put(stepped(self.fit.size, self.fit.extent, self.fit.unit, rungs))

    def put(self, size: int) -> None:
        """Set this size."""
        self.editor.set_size(self.dim, max(1, min(size, self.fit.extent)))

    def _scrub(self, rungs: int) -> None:
        size = stepped(self._from, self.fit.extent, self.fit.unit, rungs)
        self.number.setText(str(size))
        self.editor.set_size(self.dim, size, preview=True)

    def _drop(self) -> None:
        self.editor.drop(self.dim)


class Footprint(QWidget):
    """How full a level is at the schedule's peak."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, int]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_rows(self, rows: list[tuple[str, int, int]]) -> None:
        """(level, bytes resident, capacity) of each level that has a capacity."""
        self.rows = rows
        self.setFixedHeight(26 * len(rows))
        self.setAccessibleDescription(
            ", ".join(f"{name} {look.fmt_bytes(live)} of {look.fmt_bytes(room)}" for name, live, room in rows)
        )
        self.update()

    def sizeHint(self) -> QSize:
        """A line a level."""
        return QSize(200, 26 * len(self.rows))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Name, reading, bar."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for line, (name, live, room) in enumerate(self.rows):
            top = line * 26
            over = live > room
            painter.setFont(look.font(look.SMALL))
            painter.setPen(colours.muted)
            row = QRectF(0, top, self.width(), 15)
            painter.drawText(row, Qt.AlignmentFlag.AlignLeft, name)
            painter.setPen(colours.bad if over else colours.muted)
            lack = "" if not over else " · spills" if name == "registers" else " · does not fit"
            reading = f"{look.fmt_bytes(live)} of {look.fmt_bytes(room)}{lack}"
            painter.drawText(row, Qt.AlignmentFlag.AlignRight, reading)
            bar = QRectF(0, top + 17, self.width(), 5)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.sunken)
            painter.drawRoundedRect(bar, 2, 2)
            bar.setWidth(max(2.0, bar.width() * min(1.0, live / room if room else 0.0)))
            painter.setBrush(colours.bad if over else colours.good)
            painter.drawRoundedRect(bar, 2, 2)
        painter.end()


class TileEditor(Panel):
    """The tile panel."""

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
        self.words = QLabel()
        self.words.setWordWrap(True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.best = QPushButton("Take best")
        self.best.setProperty("primary", True)
        self.best.clicked.connect(self.take_best)
        self._lay_out()
        self.follow("cost", document.cost_changed, document.selection_changed, document.plan_changed)

    def _lay_out(self) -> None:
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2 * GRID)
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
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidget(inner)
        inner.setAutoFillBackground(False)
        scroll.viewport().setAutoFillBackground(False)
        self.body.addWidget(scroll, 1)
        self.body.addWidget(self.best)

    # -- what is shown -----------------------------------------------------------------------------
    def redraw(self) -> None:
        """The selected group of the newest result, or the one that takes longest."""
        result = self.document.cost
        if self.explain_absence("tiles") or result is None:
            return
        if not result.groups:
            self.say("The graph has no operator.")
            return
        self._result = result
        self._index = self._wanted(result)
        group = self._group = result.groups[self._index]
        self._show_levels(group)
        mapping = self._mapping(group)
        types = operator_types(result.request.graph, group.operators)
        self.set_title(f"Tile · {group_name(self._index)}")
        self.set_line(types if self.document.selection else f"{types} · takes longest")
        self._show_dims(result, group, mapping)
        self._show_order(group, mapping)
        self._show_stages(group)
        self._show_footprint(result, group)
        knobs = result.request.plan.groups[self._index]
        self.best.setEnabled(knobs.has_knobs)
        self.best.setToolTip(
            "Forget what was set: the tool chooses the best it finds"
            if knobs.has_knobs
            else "Nothing is set in this group: the tool's own choice is in use"
        )
        if not self.document.previewing:
            self.map.show_group(result, self._index, self._memory)
        else:
            self.map.mark(mapping)
        self.show_body()

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
        return max(range(len(result.groups)), key=lambda index: result.groups[index].latency_s)

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
        wide = units(result.request.graph, result.request.accelerator, group)
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
        if group.registers.spilled_bytes:
            relief = f" Try: {group.registers.relief}." if group.registers.relief else ""
            spilled = look.fmt_bytes(group.registers.spilled_bytes)
            sentences.append(f"⚠ Spills {spilled} to {group.registers.spill_to}.{relief}")
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

    def take_best(self) -> None:
        """Forget every knob of the group."""
        from model.plan.plan import FusionGroup

        plan = self.document.plan
        if plan is not None and self._group is not None and self._usable():
            groups = list(plan.groups)
            groups[self._index] = FusionGroup(groups[self._index].operators)
            self.document.commit(
                replace(plan, groups=tuple(groups)), f"Best tile in {group_name(self._index)}"
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
