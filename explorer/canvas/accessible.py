"""The canvas for screen readers: groups as its children, operators as theirs, with names, places and focus.

Knows a canvas. Must not know gestures. There is no widget per group or operator: interfaces are made when a
reader asks and are forgotten when the plan changes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QObject, QPoint, QRect, QSize
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QAccessibleEvent,
    QAccessibleInterface,
    QWindow,
)
from PySide6.QtWidgets import QAccessibleWidget

from .. import look
from ..names import group_label, group_name
from .block_painter import holds
from .painter import state_of
from .scene import Rect

if TYPE_CHECKING:
    from .view import GraphCanvas

_LONGEST = 120


class CanvasInterface(QAccessibleWidget):
    """The canvas: a tree whose first level are the closed blocks, and the groups of the shown plan outside them."""

    def __init__(self, canvas: GraphCanvas) -> None:
        super().__init__(canvas, QAccessible.Role.Tree, "Graph canvas")
        self.canvas = canvas
        self._groups: dict[int, GroupInterface] = {}
        self._blocks: dict[int, BlockInterface] = {}

    def forget(self) -> None:
        """Another plan, graph or folding: all children are made anew."""
        self._groups, self._blocks = {}, {}

    def _closed(self) -> int:
        """How many blocks are closed; they come first."""
        return len(self.canvas.scene.folding.blocks) if self.canvas.has_scene else 0

    def childCount(self) -> int:
        """One for each closed block and each group of which something is seen."""
        return self._closed() + (len(self.canvas.scene.seen_groups) if self.canvas.has_scene else 0)

    def child(self, index: int) -> QAccessibleInterface | None:
        """A closed block or a group."""
        if not 0 <= index < self.childCount():
            return None
        closed = self._closed()
        if index < closed:
            return self._blocks.setdefault(index, BlockInterface(self, index))
        return self.group(int(self.canvas.scene.seen_groups[index - closed]))

    def group(self, group: int) -> GroupInterface:
        """The interface of a group of the shown plan."""
        return self._groups.setdefault(group, GroupInterface(self, group))

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        """Which child of the canvas it is."""
        if isinstance(child, BlockInterface):
            return child.slot
        if not isinstance(child, GroupInterface) or not self.canvas.has_scene:
            return -1
        found = np.flatnonzero(self.canvas.scene.seen_groups == child.index)
        return self._closed() + int(found[0]) if len(found) else -1

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:
        """The closed block or group under a point of the screen."""
        if not self.canvas.has_scene:
            return None
        at = self.canvas.viewport().mapFromGlobal(QPoint(x, y))
        world = self.canvas.camera.to_world(at.x(), at.y())
        closed = self.canvas.scene.blocks_in((*world, *world))
        if len(closed):
            return self.child(int(closed[-1]))
        group = self.canvas.scene.group_at(*world)
        return None if group is None else self.group(group)

    def focusChild(self) -> QAccessibleInterface | None:
        """The operator that the keyboard is at."""
        selection = self.canvas.document.selection
        if not selection or not self.canvas.has_scene or not self.canvas.hasFocus():
            return None
        return self.operator(selection[0])

    def operator(self, operator: int) -> QAccessibleInterface | None:
        """The interface of an operator, or of the closed block that holds it."""
        scene = self.canvas.scene
        if (slot := int(scene.folding.slot_of[operator])) >= 0:
            return self.child(slot)
        group = int(scene.group_of[operator])
        return self.group(group).child(scene.plan.groups[group].operators.index(operator))

    def text(self, kind: QAccessible.Text) -> str:
        """Name and a sentence about the graph."""
        graph = self.canvas.document.graph
        if kind is QAccessible.Text.Name:
            return "Graph canvas" if graph is None else f"Graph canvas, {graph.name}"
        if kind is QAccessible.Text.Description and graph is not None:
            closed = f"{self._closed():,} closed blocks, " if self._closed() else ""
            groups = len(self.canvas.scene.plan.groups) if self.canvas.has_scene else 0
            return f"{closed}{len(graph.operators):,} operators in {groups:,} groups"
        return ""


class _Part(QAccessibleInterface):
    """Shared by groups and operators: they have no object of their own."""

    def __init__(self, top: CanvasInterface) -> None:
        super().__init__()
        self.top = top

    def object(self) -> QObject | None:
        """None: nothing of Qt stands for a part of the picture."""
        return None

    def window(self) -> QWindow | None:
        """The window of the canvas."""
        return self.top.window()

    def setText(self, kind: QAccessible.Text, text: str) -> None:
        """Nothing can be renamed."""

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:
        """The child under a point of the screen."""
        for index in range(self.childCount()):
            child = self.child(index)
            if child is not None and child.rect().contains(x, y):
                return child
        return None

    def _on_screen(self, world: Rect) -> QRect:
        canvas = self.top.canvas
        left, top = canvas.camera.to_screen(world[0], world[1])
        right, bottom = canvas.camera.to_screen(world[2], world[3])
        far = 30_000.0
        corner = QPoint(round(max(min(left, far), -far)), round(max(min(top, far), -far)))
        size = QSize(round(min(right - left, far)), round(min(bottom - top, far)))
        return QRect(canvas.viewport().mapToGlobal(corner), size)


class BlockInterface(_Part):
    """A closed block."""

    def __init__(self, top: CanvasInterface, slot: int) -> None:
        super().__init__(top)
        self.slot = slot

    def isValid(self) -> bool:
        """Whether so many blocks are closed."""
        return self.top.canvas.has_scene and self.slot < len(self.top.canvas.scene.folding.blocks)

    def parent(self) -> QAccessibleInterface:
        """The canvas."""
        return self.top

    def childCount(self) -> int:
        """None while it is closed."""
        return 0

    def child(self, index: int) -> QAccessibleInterface | None:
        """None."""
        return None

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        """None."""
        return -1

    def text(self, kind: QAccessible.Text) -> str:
        """``layers.3, closed block, 60 operators · 1.82 TMAC, DRAM 124 GiB``."""
        if not self.isValid():
            return ""
        scene = self.top.canvas.scene
        if kind is QAccessible.Text.Description:
            return "Enter opens it"
        if kind is not QAccessible.Text.Name:
            return ""
        words = [scene.folding.name(self.slot)[:_LONGEST], "closed block", holds(scene, self.slot)]
        amount = float(scene.traffic.block_bytes[self.slot])
        if amount == amount:  # not NaN: there is a result
            words.append(f"{scene.traffic.memory} {look.fmt_bytes(amount)}")
        return ", ".join(words)

    def rect(self) -> QRect:
        """The box on the screen."""
        if not self.isValid():
            return QRect()
        left, top, right, bottom = self.top.canvas.scene.block_boxes[self.slot].tolist()
        return self._on_screen((left, top, right, bottom))

    def role(self) -> QAccessible.Role:
        """A node of the tree."""
        return QAccessible.Role.TreeItem

    def state(self) -> QAccessible.State:
        """Closed; selected with all its operators."""
        out = QAccessible.State()
        out.collapsed = out.expandable = out.selectable = out.focusable = True  # type: ignore[assignment]
        if self.isValid():
            canvas = self.top.canvas
            folding = canvas.scene.folding
            chosen = set(canvas.document.selection)
            whole = chosen.issuperset(folding.operators(folding.blocks[self.slot]).tolist())
            out.selected = whole  # type: ignore[assignment]
            out.focused = canvas.hasFocus() and whole  # type: ignore[assignment]
        return out


class GroupInterface(_Part):
    """A fusion group."""

    def __init__(self, top: CanvasInterface, index: int) -> None:
        super().__init__(top)
        self.index = index
        self._operators: dict[int, OperatorInterface] = {}

    @property
    def operators(self) -> tuple[int, ...]:
        """Its operators; none when the plan has fewer groups by now."""
        groups = self.top.canvas.scene.plan.groups if self.top.canvas.has_scene else ()
        return groups[self.index].operators if self.index < len(groups) else ()

    def isValid(self) -> bool:
        """Whether the plan still has such a group."""
        return bool(self.operators)

    def parent(self) -> QAccessibleInterface:
        """The canvas."""
        return self.top

    def childCount(self) -> int:
        """One for each operator."""
        return len(self.operators)

    def child(self, index: int) -> QAccessibleInterface | None:
        """An operator."""
        if not 0 <= index < self.childCount():
            return None
        if index not in self._operators:
            self._operators[index] = OperatorInterface(self, index)
        return self._operators[index]

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        """Which operator a child is."""
        return child.place if isinstance(child, OperatorInterface) else -1

    def text(self, kind: QAccessible.Text) -> str:
        """``G3  MatMul Add, 2 operators, 842 µs, spills 3.1 MiB``."""
        if kind is not QAccessible.Text.Name or not self.isValid():
            return ""
        scene = self.top.canvas.scene
        count = len(self.operators)
        words = [
            group_label(scene.graph, self.index, self.operators)[:_LONGEST],
            f"{count:,} operators" if count != 1 else "1 operator",
        ]
        if (result := scene.result_of(self.index)) is not None:
            words.append(look.fmt_seconds(result.latency_s))
            words += [state] if (state := state_of(result)[2]) else []
        return ", ".join(words)

    def rect(self) -> QRect:
        """The hull on the screen."""
        if not self.isValid():
            return QRect()
        left, top, right, bottom = self.top.canvas.scene.hull_rects[self.index].tolist()
        return self._on_screen((left, top, right, bottom))

    def role(self) -> QAccessible.Role:
        """A node of the tree."""
        return QAccessible.Role.TreeItem

    def state(self) -> QAccessible.State:
        """Open, and selected with all its operators."""
        out = QAccessible.State()
        out.expanded = out.selectable = True  # type: ignore[assignment]
        chosen = set(self.top.canvas.document.selection)
        out.selected = bool(chosen) and chosen.issuperset(self.operators)  # type: ignore[assignment]
        return out


class OperatorInterface(_Part):
    """An operator inside a group."""

    def __init__(self, group: GroupInterface, place: int) -> None:
        super().__init__(group.top)
        self._group = group
        self.place = place

    @property
    def operator(self) -> int | None:
        """Its index in the graph; None when the group has fewer operators by now."""
        operators = self._group.operators
        return operators[self.place] if self.place < len(operators) else None

    def isValid(self) -> bool:
        """Whether the group still has such an operator."""
        return self.operator is not None

    def parent(self) -> QAccessibleInterface:
        """The group."""
        return self._group

    def childCount(self) -> int:
        """None."""
        return 0

    def child(self, index: int) -> QAccessibleInterface | None:
        """None."""
        return None

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        """None."""
        return -1

    def text(self, kind: QAccessible.Text) -> str:
        """``MatMul_4, MatMul, DRAM 4.0 MiB, in G3``."""
        index = self.operator
        if kind is not QAccessible.Text.Name or index is None:
            return ""
        scene = self.top.canvas.scene
        operator = scene.graph.operators[index]
        words = [" ".join(operator.name.split())[:_LONGEST], operator.op_type]
        amount = float(scene.traffic.bytes[index])
        if amount == amount:  # not NaN: there is a result
            words.append(f"{scene.traffic.memory} {look.fmt_bytes(amount)}")
        return ", ".join([*words, f"in {group_name(self._group.index)}"])

    def rect(self) -> QRect:
        """The box on the screen."""
        index = self.operator
        if index is None:
            return QRect()
        left, top, right, bottom = self.top.canvas.scene.boxes[index].tolist()
        return self._on_screen((left, top, right, bottom))

    def role(self) -> QAccessible.Role:
        """A leaf of the tree."""
        return QAccessible.Role.TreeItem

    def state(self) -> QAccessible.State:
        """Selected, focused."""
        canvas = self.top.canvas
        selection = canvas.document.selection
        out = QAccessible.State()
        out.selectable = out.focusable = True  # type: ignore[assignment]
        out.selected = self.operator in selection  # type: ignore[assignment]
        out.focused = canvas.hasFocus() and selection[:1] == (self.operator,)  # type: ignore[assignment]
        return out


def _interface(key: str, made_for: QObject) -> QAccessibleInterface | None:
    """Qt asks for the interface of an object; others than canvases are not ours."""
    from .view import GraphCanvas

    if not isinstance(made_for, GraphCanvas):
        return None
    made_for.interface = CanvasInterface(made_for)
    return made_for.interface


@cache
def install() -> None:
    """Let Qt ask here; only the first call counts."""
    QAccessible.installFactory(_interface)


def tell_focus(interface: CanvasInterface) -> None:
    """The keyboard is at another operator."""
    if QAccessible.isActive() and (child := interface.focusChild()) is not None:
        QAccessible.updateAccessibility(QAccessibleEvent(child, QAccessible.Event.Focus))


def announce(canvas: QObject, sentence: str) -> None:
    """Let a screen reader say a sentence."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(canvas, sentence))
