"""The graph canvas: one widget that shows the scene, turns the hand into gestures, and walks by keyboard.

Knows the document, the scene, its painter and the gestures. Must not know panels or the window. No layout is
computed here: `lay_out` runs on the worker through ``document.ask``, a quick picture of ranks stands in until
it is there, and positions never change while a gesture is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import (
    QEvent,
    QPointF,
    QRectF,
    QSize,
    QSizeF,
    Qt,
    QTimer,
    Signal,
    Slot,
)
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

from model.cost.result import CostResult
from model.errors import PlanError
from model.plan.plan import Plan

from .. import look
from ..names import operator_list
from ..runner import Lane
from . import overlay, tips
from .backing import Backing
from .camera import Camera
from .gestures import BoundaryDrag, BoxSelect, Edit, Gesture, Knife, MapPan, MoveOperators, Pan, explained
from .layout import Layout, LayoutRequest, Member, lay_out, provisional
from .minimap import Minimap
from .overlay import NOTHING, Feedback
from .painter import READ, SHAPE, ScenePainter
from .scene import Hit, Part, Rect, Scene
from .selection_bar import SelectionBar, commit_edit
from .transition import Transition
from .walking import Way, nearest, step

if TYPE_CHECKING:
    from ..document import Document

REACH = 5.0  # pixels beside a thin thing that still count
DRAG_DISTANCE = 4.0
ANIMATED_OPERATORS = 600  # more in view than this are not moved one by one
QUICK_PICTURE_MS = 150  # a layout that is there sooner needs no stand-in
READABLE_FIT = 0.34  # below this a graph opens at its beginning instead of as a whole
NO_EDITS_YET = "Kernels are still compiling; edits are checked with them. Look around meanwhile."


class GraphCanvas(QAbstractScrollArea):
    """See the module's docstring.

    ``animated`` False makes drops and layouts take effect at once.
    """

    tile_requested = Signal(int)
    """Emitted with a group of the shown plan whose tiles are to be edited."""
    camera_changed = Signal()
    """Emitted when another part of the graph is seen, or at another size."""
    layout_shown = Signal()
    """Emitted when a computed layout came on screen."""

    def __init__(self, document: Document, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.document = document
        self.animated = True
        self._scene: Scene | None = None
        self._pictures: ScenePainter | None = None
        self._minimap: Minimap | None = None
        self._camera = Camera()
        self._backing = Backing()
        self._members: dict[tuple[int, ...], Member] = {}
        self._waiting_layout: Layout | None = None
        self._asked: Plan | None = None
        self._fresh = False  # a graph whose first layout has not been seen
        self._gesture: Gesture | None = None
        self._pressed_at = QPointF()
        self._standing = NOTHING  # a refusal that outlives its gesture
        self._hover = Hit(Part.NOTHING)
        self._knife = self._space = False
        self._transition: Transition | None = None
        self._quick = QTimer(self)
        self._quick.setSingleShot(True)
        self._quick.setInterval(QUICK_PICTURE_MS)
        self._quick.timeout.connect(self._show_provisional)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Graph canvas")
        viewport = self.viewport()
        viewport.setMouseTracking(True)
        viewport.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.bar = SelectionBar(document, viewport)
        self.bar.refused.connect(self.explain)
        self.bar.hinted.connect(self._hint)
        self.bar.tile_clicked.connect(self.request_tile)
        document.graph_changed.connect(self._graph_changed)
        document.plan_changed.connect(self._plan_changed)
        document.cost_changed.connect(self._cost_changed)
        document.selection_changed.connect(self._selection_changed)
        document.offer_changed.connect(self._offer_changed)
        self._graph_changed()

    # -- what gestures may ask -----------------------------------------------------------------------
    @property
    def scene(self) -> Scene:
        """What lies on the canvas; there is one while a graph is open."""
        assert self._scene is not None
        return self._scene

    @property
    def has_scene(self) -> bool:
        """Whether a graph is shown."""
        return self._scene is not None

    @property
    def camera(self) -> Camera:
        """Which part is seen."""
        return self._camera

    @property
    def gesture(self) -> Gesture | None:
        """What the hand is doing."""
        return self._gesture

    def set_camera(self, camera: Camera) -> None:
        """See another part, or larger, or smaller."""
        camera = camera.snapped(self.viewport().devicePixelRatioF())
        if camera != self._camera:
            self._camera = camera
            self._place_bar()
            self.viewport().update()
            self.camera_changed.emit()

    # -- layout --------------------------------------------------------------------------------------
    @Slot()
    def _graph_changed(self) -> None:
        graph = self.document.graph
        self._end_transition()
        self._gesture, self._standing, self._hover = None, NOTHING, Hit(Part.NOTHING)
        self._scene = self._pictures = self._minimap = self._waiting_layout = self._asked = None
        self._members = {}
        self._backing.forget()
        self._quick.stop()
        self._fresh = graph is not None
        if graph is not None:
            self._quick.start()
        self._place_bar()
        self.viewport().update()

    def _ask_layout(self) -> None:
        graph, plan = self.document.graph, self.document.plan
        if graph is None or plan is None:
            return
        shown = self._asked or (None if self._fresh or self._scene is None else self._scene.layout.plan)
        if shown is not None and np.array_equal(shown.membership, plan.membership):
            return
        self._asked = plan
        request = LayoutRequest(graph, plan, self._members)
        title = f"Laying out {len(graph.operators):,} operators"
        self.document.ask(Lane.LAYOUT, title, lambda: lay_out(request), self._take_layout)

    def _take_layout(self, layout: Layout) -> None:
        """A layout came back: show it now, or after the gesture."""
        if layout.graph is not self.document.graph:
            return
        if layout.plan is self._asked:
            self._asked = None
        if self._gesture is not None and self._gesture.edits:
            self._waiting_layout = layout
            return
        self._waiting_layout = None
        self._show_layout(layout)

    @Slot()
    def _show_provisional(self) -> None:
        graph, plan = self.document.graph, self.document.plan
        if self._scene is None and graph is not None and plan is not None:
            self._show_layout(provisional(graph, plan))

    def _show_layout(self, layout: Layout) -> None:
        self._end_transition()
        self._quick.stop()
        shown = self.document.shown_plan or layout.plan
        scene = self._scene
        if scene is None:
            scene = self._scene = Scene(layout)
            self._pictures = ScenePainter(scene)
            self._minimap = Minimap(scene)
            scene.set_plan(shown)
            scene.set_result(self.document.cost)
            self._first_look()
        elif self._can_animate(layout):
            self._animate_to(layout)
        else:
            anchor = self._anchor()
            scene.set_layout(layout)
            self._moved(anchor)
        if not layout.provisional:
            if self._fresh:
                self._first_look()
            self._fresh = False
            self.layout_shown.emit()
        self.viewport().update()

    def _moved(self, anchor: tuple[int, QPointF] | None) -> None:
        """Boxes lie elsewhere: keep the anchor where it is seen, draw everything anew."""
        assert self._pictures is not None and self._minimap is not None
        self._pictures.moved()
        self._minimap.forget()
        self._backing.forget()
        self._hover = Hit(Part.NOTHING)
        if anchor is not None:
            operator, seen = anchor
            x, y = self._middle(operator)
            now = self._camera.to_screen(x, y)
            self.set_camera(self._camera.panned(seen.x() - now[0], seen.y() - now[1]))
        self._place_bar()
        self.viewport().update()

    def _middle(self, operator: int) -> tuple[float, float]:
        left, top, right, bottom = self.scene.boxes[operator].tolist()
        return (left + right) / 2, (top + bottom) / 2

    def _anchor(self) -> tuple[int, QPointF] | None:
        """An operator that shall not move on screen: a selected one in view, else the most central one."""
        scene, size = self.scene, self.viewport().size()
        if not len(scene.boxes):
            return None
        seen = self._camera.seen(size.width(), size.height())
        visible = scene.operators_in(seen)
        chosen = [o for o in self.document.selection[:500] if o in set(visible.tolist())]
        if chosen:
            operator = chosen[0]
        else:
            pool = visible if len(visible) else np.arange(len(scene.boxes))
            middle = np.array([(seen[0] + seen[2]) / 2, (seen[1] + seen[3]) / 2])
            away = (scene.boxes[pool, :2] + scene.boxes[pool, 2:]) / 2 - middle
            operator = int(pool[int(np.argmin(np.abs(away).sum(axis=1)))])
        return operator, QPointF(*self._camera.to_screen(*self._middle(operator)))

    def _can_animate(self, layout: Layout) -> bool:
        scene, size = self.scene, self.viewport().size()
        if not self.animated or scene.layout.provisional or layout.provisional or not self.isVisible():
            return False
        seen = self._camera.seen(size.width(), size.height())
        return len(scene.operators_in(seen)) <= ANIMATED_OPERATORS and len(scene.boxes) <= 3000

    def _animate_to(self, layout: Layout) -> None:
        scene, anchor = self.scene, self._anchor()
        hulls = {g.operators: tuple(scene.hull_rects[i]) for i, g in enumerate(scene.plan.groups)}

        def show(way: Layout) -> None:
            scene.set_layout(way)
            self._moved(anchor)

        self._transition = Transition(scene.layout, layout, hulls, show, self)
        self._transition.start()

    def _end_transition(self) -> None:
        transition, self._transition = self._transition, None
        if transition is not None:
            transition.finish()

    # -- the document changed ------------------------------------------------------------------------
    @Slot()
    def _plan_changed(self) -> None:
        gesture = self._gesture
        if isinstance(gesture, Edit) and self.document.plan is not gesture.base:
            self._gesture = None  # the edit was committed by a key, or undone, while the hand was down
            self._end_gesture()
        plan = self.document.shown_plan
        if self._scene is not None and self._pictures is not None and plan is not None:
            changed = self._scene.set_plan(plan)
            self._pictures.plan_changed()
            if changed is not None:
                self._backing.damage(changed, self._camera)
            self._hover = Hit(Part.NOTHING) if self._gesture is None else self._hover
            self.viewport().update()
        if not self.document.previewing:
            self._ask_layout()

    @Slot(object)
    def _cost_changed(self, result: CostResult | None) -> None:
        if self._scene is not None and self._minimap is not None:
            self._scene.set_result(result)
            self._minimap.forget()
            self._backing.forget()
            self.viewport().update()

    @Slot()
    def _selection_changed(self) -> None:
        self._place_bar()
        self.viewport().update()

    @Slot()
    def _offer_changed(self) -> None:
        if self.document.offer is None and self._standing is not NOTHING:
            self._standing = NOTHING
            self.viewport().update()

    # -- painting ------------------------------------------------------------------------------------
    def paintEvent(self, event: QPaintEvent) -> None:
        """The kept picture, then what follows the pointer."""
        viewport = self.viewport()
        size, ratio = viewport.size(), viewport.devicePixelRatioF()
        painter = QPainter(viewport)
        if self._scene is None or self._pictures is None or self._minimap is None:
            painter.fillRect(viewport.rect(), look.palette().canvas)
            graph = self.document.graph
            if graph is not None and self._quick.isActive() is False:
                overlay.paint_banner(painter, QSizeF(size), self._state())
            painter.end()
            return
        picture = self._backing.picture(self._pictures, self._camera, size, ratio)
        painter.drawPixmap(0, 0, picture)
        self._paint_over(painter, QSizeF(size), ratio)
        painter.end()

    def _paint_over(self, painter: QPainter, size: QSizeF, ratio: float) -> None:
        assert self._pictures is not None and self._minimap is not None
        scene, pictures, camera = self.scene, self._pictures, self._camera
        focused = self.hasFocus() or self.viewport().hasFocus()
        overlay.paint_focus(painter, scene, pictures, camera, self.document.selection, self._hover, focused)
        overlay.paint_legend(painter, scene, size)
        if self._minimap_shown():
            self._minimap.paint(painter, size, camera, ratio)
        shown = self._gesture.feedback if self._gesture is not None else self._standing
        if shown is not NOTHING:
            overlay.paint_feedback(painter, scene, pictures, camera, size, shown)
        if text := self._state():
            overlay.paint_banner(painter, size, text)

    def _state(self) -> str:
        """What the canvas is waiting for, or why it is empty."""
        graph = self.document.graph
        if graph is None:
            return ""
        if not graph.operators:
            return "This model has no operators: its outputs are constants or inputs."
        if self._scene is None or self._scene.layout.provisional:
            return self.document.preparing or f"Laying out {len(graph.operators):,} operators…"
        return ""

    def render_picture(self, path: str | Path, size: QSize | None = None, scale: float = 1.0) -> None:
        """What is seen, as a PNG or (by the suffix ``.svg``) as an SVG file.

        Parameters
        ----------
        size : in logical pixels; the viewport's where None. The middle and the zoom stay.
        scale : device pixels per logical pixel of a PNG.

        Raises
        ------
        OSError : the file cannot be written.
        """
        seen = self.viewport().size()
        wanted = size or seen
        camera = self._camera.panned(
            (wanted.width() - seen.width()) / 2, (wanted.height() - seen.height()) / 2
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
        if self._pictures is None:
            painter.fillRect(whole, look.palette().canvas)
            return
        self._pictures.paint(painter, camera, whole)
        overlay.paint_legend(painter, self.scene, size)

    # -- the hand ------------------------------------------------------------------------------------
    def _world(self, at: QPointF) -> tuple[float, float]:
        return self._camera.to_world(at.x(), at.y())

    def hit_at(self, at: QPointF) -> Hit:
        """What lies under a point of the viewport."""
        if self._scene is None:
            return Hit(Part.NOTHING)
        zoom = self._camera.zoom
        hit = self._scene.hit(*self._world(at), REACH / zoom, chips=zoom >= SHAPE)
        if zoom < SHAPE and hit.part in (Part.EDGE, Part.RIM, Part.UPPER_RIM):
            return Hit(Part.NOTHING)
        return hit

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Find what was pressed and begin its gesture."""
        self._end_transition()
        if self._gesture is not None or self._scene is None:
            return
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
        size = QSizeF(self.viewport().size())
        if self._minimap is not None and self._minimap_shown() and self._minimap.rect(size).contains(at):
            minimap = self._minimap
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
        if hit.part is Part.CHIP and self._may_edit():
            return BoundaryDrag.at_chip(self, world, self.scene.chip(hit.index))
        if hit.part in (Part.RIM, Part.UPPER_RIM) and self._may_edit():
            return BoundaryDrag.at_rim(self, world, hit.index, above=hit.part is Part.UPPER_RIM)
        return Pan(self, world, self._meant(hit))

    def _meant(self, hit: Hit) -> tuple[int, ...]:
        """Operators that a click selects: those of a hull, both ends of an edge."""
        if hit.part is Part.HULL:
            return self.scene.plan.groups[hit.index].operators
        if hit.part is Part.EDGE:
            producer, consumer, _ = self.scene.graph.edges[hit.index].tolist()
            return producer, consumer
        return ()

    def _may_edit(self) -> bool:
        if not self.document.ready:
            self.document.said.emit(NO_EDITS_YET, "note")
        return self.document.ready

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move the gesture on, or show what lies under the pointer."""
        at = event.position()
        gesture = self._gesture
        if gesture is None:
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
            if gesture.edits:
                self.scene.traffic.frozen = True
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
        if gesture is None:
            return
        if gesture.moved:
            gesture.release()
            if isinstance(gesture, Edit) and gesture.refusal is not None and self.document.offer is not None:
                self._standing = gesture.feedback
        else:
            gesture.click()
        self._end_gesture()
        self._hover_at(event.position())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """On a chip, or on a line inside a group: fuse or cut there."""
        if self._scene is None or event.button() != Qt.MouseButton.LeftButton:
            return
        hit = self.hit_at(event.position())
        if hit.part is Part.CHIP:
            self.toggle_cut(self.scene.chip(hit.index).edge)
        elif hit.part is Part.EDGE:
            self.toggle_cut(hit.index)
        else:
            self.mousePressEvent(event)

    def _end_gesture(self) -> None:
        if self._scene is not None and self._scene.traffic.frozen:
            self._scene.traffic.frozen = False
            self._scene.set_result(self.document.cost)  # colours on their own scale again
            self._backing.forget()
            if self._minimap is not None:
                self._minimap.forget()
        if self._waiting_layout is not None:
            layout, self._waiting_layout = self._waiting_layout, None
            plan = self.document.plan
            if plan is not None and np.array_equal(layout.plan.membership, plan.membership):
                self._show_layout(layout)
            else:
                self._ask_layout()
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
            self.set_camera(self._camera.panned(pixels.x(), pixels.y()))
        elif turn := event.angleDelta().y() or event.angleDelta().x():
            self.set_camera(self._camera.zoomed(1.2 ** (turn / 120.0), at.x(), at.y()))
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
                self.set_camera(self._camera.zoomed(1.0 + event.value(), at.x(), at.y()))
                return True
        elif event.type() == QEvent.Type.Leave and self._hover.part is not Part.NOTHING:
            self._hover = Hit(Part.NOTHING)
            self.viewport().update()
        return super().viewportEvent(event)

    def _tip(self, at: QPointF) -> str:
        if self._scene is None:
            return ""
        return tips.tip(self._scene, self.hit_at(at), self.document.cost)

    def _minimap_shown(self) -> bool:
        size = self.viewport().size()
        return len(self.scene.boxes) > 1 and size.width() > 420 and size.height() > 260

    # -- keys ----------------------------------------------------------------------------------------
    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keys that belong to the hand: Escape, Enter, the knife, the space bar."""
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.escape()
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

    def _clear_standing(self) -> None:
        self._standing = NOTHING
        self.document.withdraw_offer()
        self.viewport().update()

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
        if self._scene is None or not len(self._scene.boxes):
            return
        selection, size = self.document.selection, self.viewport().size()
        if selection:
            found = step(self._scene, selection[-1] if way is Way.CONSUMER else selection[0], way)
        else:
            found = nearest(self._scene, *self._camera.to_world(size.width() / 2, size.height() / 2))
        if found is not None:
            self._go_to((found,))

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
        if self._scene is None or not self._scene.plan.groups:
            return
        groups, selection = self._scene.plan.groups, self.document.selection
        now = int(self._scene.group_of[selection[0]]) if selection else (-1 if by > 0 else 0)
        self._go_to(groups[(now + by) % len(groups)].operators)

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
        if self._scene is None or not operators:
            return
        left, _, right, bottom = self._scene.boxes[operators[-1]].tolist()
        self._standing = explained(refusal, Feedback(pointer=((left + right) / 2, bottom)))
        self.viewport().update()

    @Slot(object)
    def _hint(self, needed: tuple[int, ...]) -> None:
        self._standing = Feedback(joining=needed) if needed else NOTHING
        self.viewport().update()

    def _place_bar(self) -> None:
        selection = self.document.selection
        busy = self._gesture is not None and self._gesture.moved
        if self._scene is None or len(selection) < 2 or busy:
            self.bar.hide()
            return
        left, top, right, bottom = self._around(selection)
        seen = QRectF(
            QPointF(*self._camera.to_screen(left, top)), QPointF(*self._camera.to_screen(right, bottom))
        )
        if not seen.intersects(QRectF(self.viewport().rect())):
            self.bar.hide()
            return
        self.bar.describe()
        self.bar.place(seen)
        self.bar.show()

    def _around(self, operators: Iterable[int]) -> Rect:
        boxes = self.scene.boxes[list(operators)]
        low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])

    # -- seeing --------------------------------------------------------------------------------------
    def zoom_to_fit(self) -> None:
        """See the whole graph."""
        if self._scene is not None:
            size = self.viewport().size()
            self.set_camera(Camera.fitting(self.scene.layout.bounds, size.width(), size.height()))

    def zoom_in(self) -> None:
        """Larger, about the middle."""
        self._zoom(1.25)

    def zoom_out(self) -> None:
        """Smaller, about the middle."""
        self._zoom(0.8)

    def _zoom(self, factor: float) -> None:
        size = self.viewport().size()
        self.set_camera(self._camera.zoomed(factor, size.width() / 2, size.height() / 2))

    def reveal(self, operators: Iterable[int]) -> None:
        """Move the picture just so far that these operators are seen, readable."""
        chosen = list(operators)
        if self._scene is None or not chosen:
            return
        size, camera = self.viewport().size(), self._camera
        if camera.zoom < READ:
            x, y = camera.to_screen(*self._middle(chosen[0]))
            camera = camera.zoomed(0.8 / camera.zoom, x, y)
        self.set_camera(camera.showing(self._around(chosen), size.width(), size.height()))

    def reveal_selection(self) -> None:
        """Bring the selected operators into view, as large as they fit."""
        if self._scene is not None and self.document.selection:
            size = self.viewport().size()
            rect = self._around(self.document.selection)
            self.set_camera(Camera.fitting(rect, size.width(), size.height()))

    def _first_look(self) -> None:
        """The whole graph where it can be made out, else its beginning, readable."""
        size, bounds = self.viewport().size(), self.scene.layout.bounds
        camera = Camera.fitting(bounds, size.width(), size.height())
        if camera.zoom < READABLE_FIT and len(self.scene.boxes):
            boxes = self.scene.boxes
            first = boxes[boxes[:, 1] <= boxes[:, 1].min() + 1.0]
            middle = float((first[:, 0] + first[:, 2]).mean() / 2)
            zoom = 0.7
            camera = Camera(middle - size.width() / zoom / 2, bounds[1] - 40.0 / zoom, zoom)
        self.set_camera(camera)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the middle in the middle."""
        old, new = event.oldSize(), event.size()
        if old.isValid() and self._scene is not None:
            self.set_camera(
                self._camera.panned((new.width() - old.width()) / 2, (new.height() - old.height()) / 2)
            )
        self._place_bar()
        super().resizeEvent(event)

    def sizeHint(self) -> QSize:
        """Room to start with."""
        return QSize(880, 640)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """There are no scroll bars: the camera moves by itself."""
