"""The graph canvas: one widget that shows the scene, turns the hand into gestures, and walks by keyboard.

Knows the document, the stage and the gestures. Must not know panels or the window. Nothing is laid out and
nothing is drawn here that the stage or the overlay can do; methods without arguments are actions of the one
list, for menus and keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, QSizeF, Qt, Signal, Slot
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QNativeGestureEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QToolTip, QWidget

from model.errors import PlanError

from .. import look
from ..names import operator_list
from . import accessible, legend, overlay, tips
from .block_hand import BlockHand
from .blocks import CHIP
from .camera import Camera
from .gestures import BoundaryDrag, BoxSelect, Edit, Gesture, Knife, MapPan, MoveOperators, Pan, explained
from .overlay import NOTHING, OFFER, OFFER_MANY, Feedback
from .painter import SHAPE
from .scene import Hit, Part, Scene
from .selection_bar import SelectionBar, commit_edit
from .stage import Stage
from .walking import Way, nearest, step

if TYPE_CHECKING:
    from ..document import Document

REACH = 5.0  # pixels beside a thin thing that still count
DRAG_DISTANCE = 4.0
MOST_IN_THE_WAY = 200  # boxes and chips that the selection bar looks at: of more, none can be told apart
NO_EDITS_YET = "Kernels are still compiling; edits are checked with them. Look around meanwhile."


class GraphCanvas(QAbstractScrollArea):
    """See the module's docstring."""

    nested_wanted = Signal(int)
    """Emitted with a control-flow operator whose nested graphs are to be shown."""
    tile_requested = Signal(int)
    """Emitted with a group of the shown plan whose tiles are to be edited."""
    camera_changed = Signal()
    """Emitted when another part of the graph is seen, or at another size."""
    layout_shown = Signal()
    """Emitted when a computed layout came on screen."""

    def __init__(self, document: Document, parent: QWidget | None = None) -> None:
        accessible.install()
        super().__init__(parent)
        self.document = document
        self.interface: accessible.CanvasInterface | None = None  # made when a screen reader asks
        self._gesture: Gesture | None = None
        self._pressed_at = QPointF()
        self._standing = NOTHING  # a refusal that outlives its gesture
        self._hover = Hit(Part.NOTHING)
        self._knife = self._space = False
        self.read_only = False  # whether it only shows: no hand moves a boundary
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Graph canvas")
        viewport = self.viewport()
        viewport.setMouseTracking(True)
        viewport.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.legend = legend.Legend(self)
        self.setViewportMargins(0, 0, 0, legend.HEIGHT)
        self.stage = Stage(document, viewport)
        self.stage.changed.connect(self._picture_changed)
        self.stage.moved.connect(self._seen_changed)
        self.stage.layout_shown.connect(self.layout_shown)
        self.stage.layout_shown.connect(self._laid_out)
        self.blocks = BlockHand(document, self.stage)
        self.bar = SelectionBar(document, viewport)
        self.bar.refused.connect(self.explain)
        self.bar.hinted.connect(self._hint)
        self.bar.tile_clicked.connect(self.request_tile)
        document.graph_changed.connect(self._graph_changed)
        document.plan_changed.connect(self._plan_changed)
        document.cost_changed.connect(self._cost_changed)
        document.selection_changed.connect(self._selection_changed)
        document.offer_changed.connect(self._offer_changed)
        document.said.connect(self._said)
        document.ready_changed.connect(viewport.update)
        self._graph_changed()

    # -- what gestures may ask -----------------------------------------------------------------------
    @property
    def scene(self) -> Scene:
        """What lies on the canvas; there is one while a graph is open."""
        assert self.stage.scene is not None
        return self.stage.scene

    @property
    def has_scene(self) -> bool:
        """Whether a graph is shown."""
        return self.stage.scene is not None

    @property
    def camera(self) -> Camera:
        """Which part is seen."""
        return self.stage.camera

    @property
    def gesture(self) -> Gesture | None:
        """What the hand is doing."""
        return self._gesture

    def set_camera(self, camera: Camera) -> None:
        """See another part, or larger, or smaller."""
        self.stage.settle()
        self.stage.set_camera(camera)

    @Slot()
    def _picture_changed(self) -> None:
        self.viewport().update()
        self.legend.show_scale(self.scene.traffic if self.has_scene else None)

    # -- the document changed ------------------------------------------------------------------------
    @Slot()
    def _graph_changed(self) -> None:
        self._gesture, self._standing, self._hover = None, NOTHING, Hit(Part.NOTHING)
        if self.interface is not None:
            self.interface.forget()
        self.stage.take_graph()
        self._place_bar()

    @Slot()
    def _plan_changed(self) -> None:
        gesture = self._gesture
        if isinstance(gesture, Edit) and self.document.plan is not gesture.base:
            self._gesture = None  # the edit was committed by a key, or undone, while the hand was down
            self._end_gesture()
        if not self.document.previewing and self._gesture is None:
            self._standing = NOTHING  # it spoke of another plan
        if self.interface is not None:
            self.interface.forget()
        if self._gesture is None:
            self._hover = Hit(Part.NOTHING)
        if self.document.undo_stack.count():
            self.stage.settle()
        self.stage.take_plan()
        self._place_bar()

    @Slot(object)
    def _cost_changed(self, _: object) -> None:
        self.stage.take_result()

    @Slot()
    def _laid_out(self) -> None:
        """Other blocks may be closed now."""
        if self.interface is not None:
            self.interface.forget()

    @Slot()
    def _seen_changed(self) -> None:
        if self._gesture is None:
            self._hover = Hit(Part.NOTHING)
        self._place_bar()
        self.camera_changed.emit()

    @Slot()
    def _selection_changed(self) -> None:
        if self.interface is not None:
            accessible.tell_focus(self.interface)
        self._place_bar()
        self.viewport().update()

    @Slot()
    def _offer_changed(self) -> None:
        """An edit by key was refused with a fix, or the fix is gone."""
        document = self.document
        offer, plan, selection = document.offer, document.plan, document.selection
        if offer is None:
            self._stand(NOTHING)
        elif self._gesture is None and self._standing is NOTHING and plan is not None and selection:
            label = plan.membership
            mine = {int(label[operator]) for operator in selection}
            fixed = {o for group in offer.plan.changed(plan) for o in offer.plan.groups[group].operators}
            joining = tuple(sorted(o for o in fixed if int(label[o]) not in mine))
            self._stand(self._note_at(selection[-1], offer.sentence, joining))

    @Slot(str, str)
    def _said(self, sentence: str, level: str) -> None:
        accessible.announce(self, sentence)

    # -- painting ------------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """The kept picture, then what follows the pointer."""
        painter = QPainter(self.viewport())
        picture = self.stage.picture()
        if picture is None:
            painter.fillRect(self.viewport().rect(), look.palette().canvas)
        else:
            painter.drawPixmap(0, 0, picture)
            self._paint_over(painter)
        if text := self._state():
            overlay.paint_banner(painter, self.stage.size, text)
        painter.end()

    def _paint_over(self, painter: QPainter) -> None:
        stage, scene, pictures = self.stage, self.stage.scene, self.stage.pictures
        assert scene is not None and pictures is not None and stage.minimap is not None
        focused = self.hasFocus() or self.viewport().hasFocus()
        overlay.paint_focus(
            painter, scene, pictures, stage.camera, self.document.selection, self._hover, focused
        )
        if self._minimap_shown():
            stage.minimap.paint(painter, stage.size, stage.camera, self.viewport().devicePixelRatioF())
        shown = self._gesture.feedback if self._gesture is not None else self._standing
        if shown is not NOTHING:
            overlay.paint_feedback(painter, scene, pictures, stage.camera, stage.size, shown)

    def _state(self) -> str:
        """What the canvas is waiting for, or why it is empty."""
        graph = self.document.graph
        if graph is not None and not graph.operators:
            return "This model has no operators: its outputs are constants or inputs."
        if self.stage.is_stopped:
            return "Laying out was cancelled. Zoom to fit (Ctrl+0) begins again."
        if graph is not None and self.stage.is_waiting:
            return self.document.preparing or f"Laying out {len(graph.operators):,} operators…"
        return ""

    def render_picture(self, path: str | Path, size: QSize | None = None, scale: float = 1.0) -> None:
        """What is seen, as a PNG or (by the suffix ``.svg``) as an SVG file.

        Parameters
        ----------
        size : in logical pixels, the legend's strip included; the canvas's where None. Middle and zoom stay.
        scale : device pixels per logical pixel of a PNG.

        Raises
        ------
        OSError : the file cannot be written.
        """
        seen = self.viewport().size()
        wanted = size or QSize(seen.width(), seen.height() + legend.HEIGHT)
        camera = self.camera.panned(
            (wanted.width() - seen.width()) / 2, (wanted.height() - legend.HEIGHT - seen.height()) / 2
        )
        if str(path).lower().endswith(".svg"):
            from PySide6.QtSvg import QSvgGenerator

            generator = QSvgGenerator()
            generator.setFileName(str(path))
            generator.setSize(wanted)
            generator.setViewBox(QRectF(0, 0, wanted.width(), wanted.height()))
            generator.setTitle(self.document.graph.name if self.document.graph is not None else "canvas")
            painter = QPainter()
            if not painter.begin(generator):
                raise OSError(f"{path} cannot be written")
            self._paint_picture(painter, camera, QSizeF(wanted))
            painter.end()
            return
        pixmap = QPixmap(round(wanted.width() * scale), round(wanted.height() * scale))
        pixmap.setDevicePixelRatio(scale)
        painter = QPainter(pixmap)
        self._paint_picture(painter, camera, QSizeF(wanted))
        painter.end()
        if not pixmap.save(str(path)):
            raise OSError(f"{path} cannot be written")

    def _paint_picture(self, painter: QPainter, camera: Camera, size: QSizeF) -> None:
        whole = QRectF(0, 0, size.width(), size.height())
        if self.stage.pictures is None:
            painter.fillRect(whole, look.palette().canvas)
            return
        self.stage.pictures.paint(painter, camera, whole)
        strip = QRectF(0, size.height() - legend.HEIGHT, size.width(), legend.HEIGHT)
        legend.paint_legend(painter, strip, self.scene.traffic)

    # -- the hand ------------------------------------------------------------------------------------
    def _world(self, at: QPointF) -> tuple[float, float]:
        return self.camera.to_world(at.x(), at.y())

    def hit_at(self, at: QPointF) -> Hit:
        """What lies under a point of the viewport."""
        if not self.has_scene:
            return Hit(Part.NOTHING)
        zoom = self.camera.zoom
        hit = self.scene.hit(*self._world(at), REACH / zoom, chips=zoom >= SHAPE)
        if zoom < SHAPE and hit.part in (Part.EDGE, Part.RIM, Part.UPPER_RIM):
            return Hit(Part.NOTHING)
        return hit

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Find what was pressed and begin its gesture; nothing moves by itself until the button is up again."""
        if self._gesture is not None or not self.has_scene:
            return
        self.stage.hold()
        self._clear_standing()
        at = event.position()
        self._pressed_at = at
        self._gesture = self._gesture_for(event, at)
        self._hover = Hit(Part.NOTHING)
        self._show_cursor()
        self.viewport().update()

    def _gesture_for(self, event: QMouseEvent, at: QPointF) -> Gesture | None:
        world = self._world(at)
        buttons, keys = event.button(), event.modifiers()
        if buttons == Qt.MouseButton.MiddleButton or (self._space and buttons == Qt.MouseButton.LeftButton):
            return Pan(self, world)
        if buttons != Qt.MouseButton.LeftButton:
            return None
        minimap, size = self.stage.minimap, self.stage.size
        if minimap is not None and self._minimap_shown() and minimap.rect(size).contains(at):
            middle = size.width() / 2, size.height() / 2
            return MapPan(self, world, lambda point: minimap.to_world(size, QPointF(*point)), middle)
        shift = bool(keys & Qt.KeyboardModifier.ShiftModifier)
        add = shift or bool(keys & Qt.KeyboardModifier.ControlModifier)
        if self._knife:
            return Knife(self, world) if self._may_edit() else None
        hit = self.hit_at(at)
        if hit.part is Part.OPERATOR:
            return MoveOperators(self, world, hit.index, add)
        if shift:
            keep = self.document.selection if keys & Qt.KeyboardModifier.ControlModifier else ()
            return BoxSelect(self, world, keep)
        if hit.part is Part.CHIP and self.scene.chip_is_handle[hit.index] and self._may_edit():
            return BoundaryDrag.at_chip(self, world, self.scene.chip(hit.index))
        if hit.part in (Part.RIM, Part.UPPER_RIM) and self._may_edit():
            return BoundaryDrag.at_rim(self, world, hit.index, above=hit.part is Part.UPPER_RIM)
        return Pan(self, world, self._meant(hit))

    def _meant(self, hit: Hit) -> tuple[int, ...]:
        """Operators that a click selects: those of a hull or a block, both ends of an edge."""
        if hit.part is Part.HULL:
            return self.scene.plan.groups[hit.index].operators
        folding = self.scene.folding
        if hit.part is Part.EDGE or hit.part is Part.CHIP:
            edge = hit.index if hit.part is Part.EDGE else self.scene.chip(hit.index).edge
            producer, consumer, _ = self.scene.graph.edges[edge].tolist()
            return producer, consumer
        if hit.part is Part.BLOCK:
            return folding.together(int(folding.first[hit.index]))
        if hit.part is Part.FRAME:
            return tuple(folding.operators(folding.opened[hit.index]).tolist())
        return ()

    def _may_edit(self) -> bool:
        if self.read_only:
            return False
        if not self.document.ready:
            self.document.said.emit(NO_EDITS_YET, "note")
        return self.document.ready

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move the gesture on, or show what lies under the pointer."""
        at = event.position()
        gesture = self._gesture
        if gesture is None:
            if event.buttons() == Qt.MouseButton.NoButton:  # it came up where nobody told
                self.stage.release()
            self._hover_at(at)
            return
        if not gesture.moved:
            away = at - self._pressed_at
            if abs(away.x()) + abs(away.y()) < DRAG_DISTANCE:
                return
            if isinstance(gesture, MoveOperators) and not self._may_edit():
                self._gesture = None
                return
            gesture.moved = True
            self.bar.hide()
        gesture.move(self._world(at))
        self.viewport().update()

    def _hover_at(self, at: QPointF) -> None:
        hit = self.hit_at(at)
        if hit != self._hover:
            self._hover = hit
            self._show_cursor()
            self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """End the gesture: one undo entry at most."""
        gesture, self._gesture = self._gesture, None
        if gesture is not None and gesture.moved:
            gesture.release()
            if isinstance(gesture, Edit) and gesture.refusal is not None and self.document.offer is not None:
                self._standing = gesture.feedback
        elif gesture is not None:
            gesture.click()
        if event.buttons() == Qt.MouseButton.NoButton:
            self.stage.release()
        if gesture is not None:
            self._end_gesture()
            self._hover_at(event.position())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """On a chip, or on a line inside a group: fuse or cut there; a closed block opens, an open one closes; control
        flow shows what is inside."""
        if not self.has_scene or event.button() != Qt.MouseButton.LeftButton:
            return
        self.stage.hold()
        hit = self.hit_at(event.position())
        if hit.part in (Part.BLOCK, Part.FRAME) or (
            hit.part is Part.CHIP and not self.scene.chip_is_handle[hit.index]
        ):
            self.blocks.turn(hit, self._meant(hit))
        elif hit.part is Part.OPERATOR and self.scene.graph.operators[hit.index].runs:
            self.nested_wanted.emit(hit.index)
        elif hit.part is Part.CHIP and not self.read_only:
            self.toggle_cut(self.scene.chip(hit.index).edge)
        elif hit.part is Part.EDGE and not self.read_only:
            self.toggle_cut(hit.index)
        else:
            self.mousePressEvent(event)

    def _end_gesture(self) -> None:
        self._show_cursor()
        self._place_bar()
        self.viewport().update()

    def _show_cursor(self) -> None:
        shape = Qt.CursorShape.ArrowCursor
        if isinstance(self._gesture, Pan) and self._gesture.moved:
            shape = Qt.CursorShape.ClosedHandCursor
        elif self._knife:
            shape = Qt.CursorShape.CrossCursor
        elif self._space:
            shape = Qt.CursorShape.OpenHandCursor
        elif self._hover.part in (Part.CHIP, Part.RIM, Part.UPPER_RIM) or isinstance(
            self._gesture, BoundaryDrag
        ):
            shape = Qt.CursorShape.SizeVerCursor
        elif self._hover.part in (Part.OPERATOR, Part.EDGE):
            shape = Qt.CursorShape.PointingHandCursor
        self.viewport().setCursor(shape)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel zooms about the pointer; two fingers on a pad move the picture, with Ctrl they zoom."""
        pixels, at = event.pixelDelta(), event.position()
        zooming = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if not pixels.isNull() and event.phase() != Qt.ScrollPhase.NoScrollPhase and not zooming:
            self.set_camera(self.camera.panned(pixels.x(), pixels.y()))
        elif turn := event.angleDelta().y() or event.angleDelta().x():
            self.set_camera(self.camera.zoomed(1.2 ** (turn / 120.0), at.x(), at.y()))
        event.accept()

    def viewportEvent(self, event: QEvent) -> bool:
        """Tooltips, pinching, and the pointer leaving."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            text = "" if self._gesture is not None else self._tip(QPointF(event.pos()))
            if text:
                QToolTip.showText(event.globalPos(), text, self.viewport())
            else:
                QToolTip.hideText()
            return True
        if isinstance(event, QNativeGestureEvent):
            if event.gestureType() == Qt.NativeGestureType.ZoomNativeGesture:
                at = event.position()
                self.set_camera(self.camera.zoomed(1.0 + event.value(), at.x(), at.y()))
                return True
        elif event.type() == QEvent.Type.Leave and self._hover.part is not Part.NOTHING:
            self._hover = Hit(Part.NOTHING)
            self.viewport().update()
        return super().viewportEvent(event)

    def _tip(self, at: QPointF) -> str:
        return tips.tip(self.scene, self.hit_at(at), self.document.cost) if self.has_scene else ""

    def _minimap_shown(self) -> bool:
        """The map is there where it shows more than the canvas does."""
        size, seen, bounds = self.stage.size, self.stage.seen, self.scene.layout.bounds
        whole = (
            seen[0] <= bounds[0] and seen[1] <= bounds[1] and seen[2] >= bounds[2] and seen[3] >= bounds[3]
        )
        return not whole and size.width() > 600 and size.height() > 300

    # -- keys ----------------------------------------------------------------------------------------
    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keys that belong to the hand: Escape, Enter, the knife, the space bar."""
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.escape()
        elif (
            key in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and self._gesture is None
            and self.document.offer is None
        ):
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self.blocks.close_block()
            else:
                self.blocks.open_block()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Period):
            self.take_fix()
        elif key == Qt.Key.Key_C and not event.modifiers() and not event.isAutoRepeat():
            self._knife = True
            self._show_cursor()
        elif key == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = True
            self._show_cursor()
        else:
            super().keyPressEvent(event)

    def keyReleaseEvent(self, event: QKeyEvent) -> None:
        """The knife is laid down; the space bar is let go."""
        if event.isAutoRepeat():
            return
        if event.key() == Qt.Key.Key_C:
            self._knife = False
        elif event.key() == Qt.Key.Key_Space:
            self._space = False
        else:
            super().keyReleaseEvent(event)
            return
        self._show_cursor()

    def escape(self) -> None:
        """Cancel the gesture without a trace; else forget the refusal; else the selection."""
        gesture, self._gesture = self._gesture, None
        self._knife = False
        if gesture is not None:
            gesture.cancel()
            self._end_gesture()
        elif self._standing is not NOTHING or self.document.offer is not None:
            self._clear_standing()
        else:
            self.document.select(())

    def take_fix(self) -> None:
        """Do what a refusal offers: one undo entry."""
        gesture = self._gesture
        if gesture is not None and gesture.take_fix():
            self._gesture = None
            self._end_gesture()
        elif gesture is None:
            self.document.take_offer()

    def _stand(self, feedback: Feedback) -> None:
        """Show what outlives its gesture; the bar makes room for a sentence."""
        self._standing = feedback
        self._place_bar()
        self.viewport().update()

    def _clear_standing(self) -> None:
        self.document.withdraw_offer()
        self._stand(NOTHING)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The ring of the keyboard appears."""
        super().focusInEvent(event)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Keys that were held are let go elsewhere."""
        super().focusOutEvent(event)
        self._knife = self._space = False
        self.viewport().update()

    # -- walking -------------------------------------------------------------------------------------
    def walk(self, way: Way) -> None:
        """Select the next operator that way; the most central one where none is selected."""
        if not self.has_scene or not len(self.scene.boxes):
            return
        selection, size = self.document.selection, self.stage.size
        if selection:
            found = step(self.scene, selection[-1] if way is Way.CONSUMER else selection[0], way)
        else:
            found = nearest(self.scene, *self.camera.to_world(size.width() / 2, size.height() / 2))
        if found is not None:
            self._go_to(self.scene.folding.together(found))

    def walk_up(self) -> None:
        """To the nearest producer of the selected operator."""
        self.walk(Way.PRODUCER)

    def walk_down(self) -> None:
        """To the nearest consumer of the selected operator."""
        self.walk(Way.CONSUMER)

    def walk_left(self) -> None:
        """To the next operator on the left in the same row."""
        self.walk(Way.LEFT)

    def walk_right(self) -> None:
        """To the next operator on the right in the same row."""
        self.walk(Way.RIGHT)

    def next_group(self) -> None:
        """Select the group after the selected one."""
        self._step_group(1)

    def previous_group(self) -> None:
        """Select the group before the selected one."""
        self._step_group(-1)

    def _step_group(self, by: int) -> None:
        if not self.has_scene or not self.scene.plan.groups:
            return
        groups, selection, folding = self.scene.plan.groups, self.document.selection, self.scene.folding
        now = int(self.scene.group_of[selection[0]]) if selection else (-1 if by > 0 else 0)
        here = int(folding.slot_of[selection[0]]) if selection else -1
        now = (now + by) % len(groups)
        for _ in groups:  # what lies in the closed block that is selected is no next group
            if here < 0 or int(folding.slot_of[groups[now].operators[0]]) != here:
                break
            now = (now + by) % len(groups)
        first = groups[now].operators[0]
        self._go_to(groups[now].operators if folding.shown[first] else folding.together(first))

    def _go_to(self, operators: tuple[int, ...]) -> None:
        self.document.select(operators)
        self.reveal(operators)

    # -- edits without a drag ------------------------------------------------------------------------
    def toggle_cut(self, edge: int) -> None:
        """Fuse across, or cut at, one edge (row of ``graph.edges``)."""
        from model.plan import edits  # Numba: not before the window is up

        if not self._may_edit():
            return
        producer, consumer = (int(v) for v in self.scene.graph.edges[edge, :2])
        word = "Fuse" if self.scene.group_of[producer] != self.scene.group_of[consumer] else "Cut"
        text = f"{word} {operator_list(self.scene.graph, (producer, consumer))}"
        refusal = commit_edit(
            self.document, lambda graph, plan: edits.toggle(graph, plan, producer, consumer), text
        )
        if refusal is not None:
            self.explain(refusal)

    def request_tile(self) -> None:
        """Ask for the tile editor of the selected group."""
        group = self.document.selected_group()
        if group is not None:
            self.tile_requested.emit(group)

    @Slot(object)
    def explain(self, refusal: PlanError) -> None:
        """Show why an edit was refused where it happens, until the next press, Escape or edit."""
        operators: tuple[int, ...] = getattr(refusal, "operators", ()) or self.document.selection[-1:]
        if not self.has_scene or not operators:
            return
        self._stand(explained(refusal, self._note_at(operators[-1], "", ())))

    def _note_at(self, operator: int, text: str, joining: tuple[int, ...]) -> Feedback:
        """A note below an operator, with what the fix would include."""
        if not self.has_scene:
            return NOTHING
        left, _, right, bottom = self.scene.boxes[operator].tolist()
        offer = OFFER if len(joining) == 1 else OFFER_MANY
        return Feedback(pointer=((left + right) / 2, bottom), joining=joining, text=text, offer=offer)

    @Slot(object)
    def _hint(self, needed: tuple[int, ...]) -> None:
        if not self._standing.text:  # hiding the bar under the pointer must not take the refusal away
            self._standing = Feedback(joining=needed) if needed else NOTHING
            self.viewport().update()

    def _place_bar(self) -> None:
        selection = self.document.selection
        busy = self._gesture is not None and self._gesture.moved
        if not self.has_scene or self.read_only or len(selection) < 2 or busy or self._standing.text:
            self.bar.hide()
            return
        left, top, right, bottom = self.stage.hulls_around(selection)
        seen = QRectF(
            QPointF(*self.camera.to_screen(left, top)), QPointF(*self.camera.to_screen(right, bottom))
        )
        if not seen.intersects(QRectF(self.viewport().rect())):
            self.bar.hide()
            return
        self.bar.describe()
        self.bar.place(seen, self._in_the_way())
        self.bar.show()

    def _in_the_way(self) -> NDArray[np.float64]:
        """Boxes, hulls, chips and the minimap as float64[n, 4] in pixels: what the selection bar should leave free."""
        scene, camera, seen = self.scene, self.camera, self.stage.seen
        shown = scene.operators_in(seen)[:MOST_IN_THE_WAY]
        closed = scene.block_boxes[scene.blocks_in(seen)[:MOST_IN_THE_WAY]]
        found = [scene.boxes[shown], scene.hull_rects[np.unique(scene.group_of[shown])], closed]
        if camera.zoom >= SHAPE:
            chips = scene.chip_xy[scene.chips_in(seen)[:MOST_IN_THE_WAY]]
            half = np.array(CHIP) / 2
            found.append(np.concatenate([chips - half, chips + half], axis=1))
        origin = np.array([camera.x, camera.y] * 2)
        pixels = (np.concatenate(found) - origin) * camera.zoom
        if self.stage.minimap is None or not self._minimap_shown():
            return pixels
        little = self.stage.minimap.rect(self.stage.size)
        return np.concatenate([pixels, [[little.left(), little.top(), little.right(), little.bottom()]]])

    # -- seeing --------------------------------------------------------------------------------------
    def zoom_to_fit(self) -> None:
        """See the whole graph; lay it out where that was cancelled."""
        self.stage.resume()
        self.stage.settle()
        self.stage.fit()

    def zoom_in(self) -> None:
        """Larger, about the middle."""
        self.stage.settle()
        self.stage.zoom(1.25)

    def zoom_out(self) -> None:
        """Smaller, about the middle."""
        self.stage.settle()
        self.stage.zoom(0.8)

    def reveal(self, operators: Iterable[int]) -> None:
        """Move the picture just so far that these operators are seen, readable."""
        self.stage.settle()
        self.stage.reveal(operators)

    def centre(self, operators: Iterable[int]) -> None:
        """These operators in the middle, readable."""
        self.stage.settle()
        self.stage.centre(operators)

    def reveal_selection(self) -> None:
        """Bring the selected operators into view, as large as they fit."""
        if self.has_scene and self.document.selection:
            self.stage.settle()
            self.stage.fit(self.stage.around(self.document.selection))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the middle in the middle."""
        old, new = event.oldSize(), event.size()
        if old.isValid():
            self.stage.resized(new.width() - old.width(), new.height() - old.height())
        self._place_bar()
        super().resizeEvent(event)
        below = self.viewport().geometry()
        self.legend.setGeometry(below.left(), below.bottom() + 1, below.width(), legend.HEIGHT)

    def sizeHint(self) -> QSize:
        """Room to start with."""
        return QSize(880, 640)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """There are no scroll bars: the camera moves by itself."""
