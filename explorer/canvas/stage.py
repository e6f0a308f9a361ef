"""What is on the canvas and which part of it is seen: scene, its painter, the kept picture, the camera.

Knows the document's graph, plan and result, which blocks of the graph are closed, and asks the worker for
layouts. Must not know gestures, keys or the pointer. Positions never change while they are held; a layout that
comes meanwhile waits. Where a layout is shown, an operator stays where it is seen and the sides of the graph
that are in view stay in view; from the moment
that someone else moves the camera, a layout on its way no longer does.

A graph is shown as a quick picture of ranks if its layout takes longer than a blink (kernels that still
compile). Until the user moves the picture or edits, every layout and every size is seen from its best side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, QSizeF, QTimer, Signal, Slot
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QWidget

from model.graph.graph import OperatorGraph
from model.plan.plan import Plan

from ..runner import Lane
from .backing import Backing
from .camera import Camera
from .folding import CLOSED_ABOVE, Folding, Unit
from .layout import LayoutRequest, Member, Patience, lay_out
from .minimap import Minimap
from .painter import LABEL, READ, ScenePainter
from .positions import Layout
from .quick import provisional
from .scene import Rect, Scene, around
from .transition import Transition

if TYPE_CHECKING:
    from ..document import Document

ANIMATED_IN_VIEW, ANIMATED_IN_ALL = 600, 3000  # more operators than these are not moved one by one
QUICK_PICTURE_MS = 150  # a layout that is there sooner needs no stand-in
REST_MS = (
    80  # after an edit, before its layout is asked for: numbers come first, and of a burst only the last
)
QUICK_PICTURE_LIMIT = 1_500  # operators
READABLE_FIT = 0.34  # below this a graph opens at its beginning instead of as a whole
OPENING_ZOOM = REVEALED_ZOOM = 0.9


class Stage(QObject):
    """See the module's docstring.

    ``animated`` False: layouts take effect at once. ``closed_above``: a graph of more operators opens with its
    blocks closed.
    """

    changed = Signal()
    """Emitted when the picture must be shown anew."""
    moved = Signal()
    """Emitted when boxes lie elsewhere, or another part is seen."""
    layout_shown = Signal()
    """Emitted when a computed layout came on screen."""

    def __init__(self, document: Document, viewport: QWidget) -> None:
        super().__init__(viewport)
        self._document = document
        self._viewport = viewport
        self.animated = True
        self.closed_above = CLOSED_ABOVE
        self.scene: Scene | None = None
        self.pictures: ScenePainter | None = None
        self.minimap: Minimap | None = None
        self.camera = Camera()
        self._backing = Backing()
        self._members: dict[Unit, Member] = {}
        self._folding: Folding | None = None  # as it is wanted; None until the graph's blocks are known
        self._asked: tuple[Plan, Folding | None] | None = None
        self._pinned: int | None = (
            None  # the operator that stays under the hand while a block opens or closes
        )
        self._stopped = False
        self._then: Callable[[], None] | None = None  # once the folding that is wanted is shown
        self._held = False
        self._rescale = False  # numbers came while the colours were held
        self._waiting: Layout | None = None
        self._settled = False  # the user chose what is seen
        self._transition: Transition | None = None
        self._carries = False  # whether the transition moves the camera as well
        self._midway = False  # boxes lie somewhere between two layouts
        self._quick = QTimer(self)
        self._quick.setSingleShot(True)
        self._quick.setInterval(QUICK_PICTURE_MS)
        self._quick.timeout.connect(self._show_provisional)
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST_MS)
        self._rest.timeout.connect(self._ask_layout)

    # -- the document changed ------------------------------------------------------------------------
    def take_graph(self) -> None:
        """Another graph, or none."""
        self._stop_transition()
        self.scene = self.pictures = self.minimap = self._waiting = self._asked = None
        self._folding = self._pinned = self._then = None
        self._members = {}
        self._held = self._settled = self._rescale = self._midway = self._stopped = False
        self._backing.forget()
        self._quick.stop()
        self._rest.stop()
        graph = self._document.graph
        # A large scene holds the GUI thread; the real layout is there nearly as soon, once kernels are.
        if graph is not None and (len(graph.operators) <= QUICK_PICTURE_LIMIT or not self._document.ready):
            self._quick.start()
        self.changed.emit()

    def take_plan(self) -> None:
        """Another plan is shown: hulls and chips follow at once, positions with the next layout."""
        plan = self._document.shown_plan
        if self.scene is not None and self.pictures is not None and plan is not None:
            change = self.scene.set_plan(plan)
            if change is not None:
                recoloured = self.scene.hull_rects[self.pictures.plan_changed(change.kept)]
                self._damaged(change.touched)
                self._damaged(around(recoloured))
                if self.camera.zoom >= LABEL:  # numbers are read
                    self._damaged(change.renamed)
            self.changed.emit()
            small = len(plan.membership) <= QUICK_PICTURE_LIMIT
            if self.scene.layout.provisional and small and not self._held:
                self._show(provisional(self.scene.graph, plan))  # it has room for these hulls only
        if self.scene is None or self.scene.layout.provisional:
            if not self._document.proposing:
                self._ask_layout()
        elif not self._document.previewing:
            self._rest.start()

    def take_result(self) -> None:
        """Another result is shown, or none."""
        if self.scene is not None and self.minimap is not None:
            self._rescale = self._held
            self._damaged(self.scene.set_result(self._document.digest))
            self.minimap.forget()
            self.changed.emit()

    def _damaged(self, touched: Rect | None) -> None:
        """The picture of a part of the world is another one."""
        if touched is not None:
            self._backing.damage(touched, self.camera)

    # -- layouts -------------------------------------------------------------------------------------
    def _ask_layout(self) -> None:
        graph, plan = self._document.graph, self._document.plan
        if graph is None or plan is None:
            return
        scene = self.scene
        folding, closed_above = self._folding, self.closed_above
        shown = None if scene is None or scene.layout.provisional else (scene.layout.plan, scene.folding)
        expected = self._asked or (None if self._midway and self._transition is None else shown)
        refolded = shown is not None and shown[1] is not folding
        if (
            expected is not None
            and expected[1] is folding
            and np.array_equal(expected[0].membership, plan.membership)
        ):
            return
        self._asked = plan, folding
        title = f"Laying out {len(graph.operators):,} operators"
        # A block that was opened is waited for; after an edit the numbers go first.
        lane = Lane.LAYOUT if shown is None or refolded else Lane.RELAYOUT
        members, unwanted = self._members, self._document.runner.is_unwanted

        def work() -> tuple[Layout, Scene | None]:
            request = LayoutRequest(graph, plan, members, folding or opening(graph, closed_above, unwanted))
            layout = lay_out(request, unwanted)
            return layout, Scene(layout) if scene is None else None

        self._document.ask(lane, title, work, self._take_layout)

    def _take_layout(self, answer: tuple[Layout, Scene | None]) -> None:
        layout, scene = answer
        if layout.graph is not self._document.graph:
            return
        if self._asked is not None and layout.plan is self._asked[0]:
            self._asked = None
        if self._folding is None:
            self._folding = layout.folding
        if layout.folding.closed != self._folding.closed:
            return  # blocks were opened or closed meanwhile
        if self._held:
            self._waiting = layout
        else:
            self._show(layout, scene)

    def hold(self) -> None:
        """A button is down: until `release` positions and colours stay as they are, also those on their way."""
        if self._held:
            return
        self._held = True
        if (transition := self._stop_transition()) is not None:
            self._waiting = transition.after
        if self.scene is not None:
            self.scene.traffic.frozen = True

    def release(self) -> None:
        """Positions and colours follow the document again."""
        if not self._held:
            return
        self._held = False
        scene = self.scene
        if scene is not None:
            scene.traffic.frozen = False
            if self._rescale:
                self.take_result()
        layout, self._waiting = self._waiting, None
        plan = self._document.plan
        if plan is None or scene is None:
            return
        if (
            layout is not None
            and self._folding is not None
            and layout.folding.closed == self._folding.closed
            and np.array_equal(layout.plan.membership, plan.membership)
        ):
            self._show(layout)
        elif layout is not None:
            self._ask_layout()
        elif scene.layout.provisional and scene.layout.plan is not plan:
            self.take_plan()

    @Slot()
    def _show_provisional(self) -> None:
        graph, plan = self._document.graph, self._document.plan
        if self.scene is None and graph is not None and plan is not None:
            self._show(provisional(graph, plan))

    @property
    def is_waiting(self) -> bool:
        """Whether what is shown, if anything, is not the computed layout, for longer than a blink."""
        if self.scene is None:
            return self._document.graph is not None and not self._quick.isActive()
        return self.scene.layout.provisional

    @property
    def is_settling(self) -> bool:
        """Whether a layout is about to be asked for."""
        return self._rest.isActive()

    def _show(self, layout: Layout, made: Scene | None = None) -> None:
        """Show `layout`; ``made`` is its scene where the worker made one."""
        self._stop_transition()
        self._quick.stop()
        scene = self.scene
        if scene is None:
            scene = self.scene = made or Scene(layout)
            self.pictures, self.minimap = ScenePainter(scene), Minimap(scene)
            scene.set_plan(self._document.shown_plan or layout.plan)
            scene.set_result(self._document.digest)
            self._repositioned()
        elif self._settled and self._can_animate(layout):
            self._animate_to(layout)
        else:
            camera = self._following(layout) if self._settled else None
            self._midway = False
            scene.set_layout(layout)
            self._repositioned(camera)
        if not self._settled:
            self.first_look()
        if not layout.provisional:
            self.layout_shown.emit()
            self._pinned = None
            then, self._then = self._then, None
            if then is not None:
                then()

    def _repositioned(self, camera: Camera | None = None) -> None:
        """Boxes lie elsewhere, and are seen by `camera` from now on: draw everything anew."""
        assert self.pictures is not None and self.minimap is not None
        self.pictures.moved()
        self.minimap.forget()
        self._backing.forget()
        if camera is not None:
            self.camera = camera.snapped(self._viewport.devicePixelRatioF())
        self.moved.emit()
        self.changed.emit()

    def _following(self, layout: Layout) -> Camera:
        """The camera that sees `layout` as the present one is seen: from the same side, and as much of it."""
        scene, camera = self.scene, self.camera
        assert scene is not None
        operator = self._anchor()
        if operator is None:
            return camera
        x, y = camera.to_screen(*_middle(scene.boxes, operator))
        now_x, now_y = camera.to_screen(*_middle(layout.boxes, operator))
        held = camera.panned(x - now_x, y - now_y)
        if self._pinned is not None:
            return held
        return held.keeping(camera, scene.layout.bounds, layout.bounds, self.size.width(), self.size.height())

    def _anchor(self) -> int | None:
        """An operator that shall not move on screen: under the hand, a selected one in view, the most central one."""
        if self._pinned is not None:
            return self._pinned
        scene = self.scene
        if scene is None or not len(scene.boxes):
            return None
        seen = self.seen
        visible = scene.operators_in(seen)
        chosen = np.intersect1d(np.array(self._document.selection[:500], dtype=np.int64), visible)
        if len(chosen):
            return int(chosen[0])
        visible = np.concatenate([visible, scene.folding.first[scene.blocks_in(seen)]])
        pool = visible if len(visible) else np.arange(len(scene.boxes))
        middle = np.array([(seen[0] + seen[2]) / 2, (seen[1] + seen[3]) / 2])
        away = (scene.boxes[pool, :2] + scene.boxes[pool, 2:]) / 2 - middle
        return int(pool[int(np.argmin(np.abs(away).sum(axis=1)))])

    def _can_animate(self, layout: Layout) -> bool:
        scene = self.scene
        if scene is None or not self.animated or not self._viewport.isVisible():
            return False
        if scene.layout.provisional or layout.provisional or len(scene.boxes) > ANIMATED_IN_ALL:
            return False  # also where few are seen: every line takes part
        return len(scene.operators_in(self.seen)) <= ANIMATED_IN_VIEW

    def _animate_to(self, layout: Layout) -> None:
        scene, start = self.scene, self.camera
        assert scene is not None
        end = self._following(layout)
        hulls = {g.operators: tuple(scene.hull_rects[i]) for i, g in enumerate(scene.plan.groups)}

        def show(way: Layout, share: float) -> None:
            if share >= 1.0:
                self._stop_transition()
                self._midway = False
            scene.set_layout(way)
            self._repositioned(start.towards(end, share) if self._carries else None)

        self._transition = Transition(scene.layout, layout, hulls, show, self)
        self._carries = self._midway = True
        self._transition.start()

    def _stop_transition(self) -> Transition | None:
        """Boxes stay where they are now; the transition that was under way, if any."""
        transition, self._transition = self._transition, None
        if transition is not None:
            transition.end()
        return transition

    # -- blocks --------------------------------------------------------------------------------------
    @property
    def folding(self) -> Folding | None:
        """Which blocks are closed, or will be in a moment; None where no graph is laid out."""
        return self._folding

    @property
    def is_folding(self) -> bool:
        """Whether blocks were opened or closed, and that is not on screen yet."""
        scene, wanted = self.scene, self._folding
        return scene is not None and wanted is not None and scene.folding.closed != wanted.closed

    def fold(
        self, folding: Folding, pinned: int | None = None, then: Callable[[], None] | None = None
    ) -> None:
        """Open and close blocks.

        Parameters
        ----------
        pinned : an operator whose box, or block, stays where it is seen.
        then : called when they are shown.
        """
        if self._folding is None or self.scene is None or self.scene.layout.provisional:
            return
        self.settle()
        if folding.closed == self._folding.closed:
            if then is not None:
                then()
            return
        self._folding, self._pinned, self._then = folding, pinned, then
        self._ask_layout()

    def cancelled(self) -> None:
        """The worker forgot what it was asked: what is shown is what is wanted."""
        self._asked = self._pinned = self._then = None
        self._stopped = self.scene is None and self._document.graph is not None
        if self.scene is not None and not self.scene.layout.provisional:
            self._folding = self.scene.folding
        self.changed.emit()

    @property
    def is_stopped(self) -> bool:
        """Whether the first layout of the graph was cancelled."""
        return self._stopped and self.scene is None

    def resume(self) -> None:
        """Lay the graph out after all."""
        if self.is_stopped:
            self._stopped = False
            self._ask_layout()
            self.changed.emit()

    # -- what is seen --------------------------------------------------------------------------------
    def picture(self) -> QPixmap | None:
        """The viewport's picture as it is now; None where there is nothing to show."""
        if self.pictures is None:
            return None
        viewport = self._viewport
        return self._backing.picture(
            self.pictures, self.camera, viewport.size(), viewport.devicePixelRatioF()
        )

    @property
    def size(self) -> QSizeF:
        """The viewport's, in logical pixels."""
        return QSizeF(self._viewport.size())

    @property
    def seen(self) -> Rect:
        """The part of the world in view."""
        return self.camera.seen(self.size.width(), self.size.height())

    def middle(self, operator: int) -> tuple[float, float]:
        """The middle of an operator's box."""
        assert self.scene is not None
        return _middle(self.scene.boxes, operator)

    def around(self, operators: Iterable[int]) -> Rect:
        """The rectangle around the boxes of some operators, at least one."""
        assert self.scene is not None
        boxes = self.scene.boxes[list(operators)]
        low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])

    def hulls_around(self, operators: Iterable[int]) -> Rect:
        """The rectangle around the hulls that hold some operators, at least one."""
        assert self.scene is not None
        rects = self.scene.hull_rects[np.unique(self.scene.group_of[list(operators)])]
        low, high = rects[:, :2].min(axis=0), rects[:, 2:].max(axis=0)
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])

    def settle(self) -> None:
        """From now on the user decides what is seen."""
        self._settled = True

    def set_camera(self, camera: Camera) -> None:
        """See another part, or larger, or smaller; what moves boxes no longer moves the camera."""
        self._carries = False
        camera = camera.snapped(self._viewport.devicePixelRatioF())
        if camera != self.camera:
            self.camera = camera
            self.moved.emit()
            self.changed.emit()

    def resized(self, dx: float, dy: float) -> None:
        """The viewport grew by so much: keep the middle in the middle, or the best side in view."""
        if self.scene is None:
            return
        if self._settled:
            self.set_camera(self.camera.panned(dx / 2, dy / 2))
        else:
            self.first_look()

    def fit(self, rect: Rect | None = None) -> None:
        """See all of `rect`, or of the graph."""
        if self.scene is not None:
            coming = self.scene.layout if self._transition is None else self._transition.after
            whole = rect or coming.bounds
            self.set_camera(Camera.fitting(whole, self.size.width(), self.size.height()))

    def zoom(self, factor: float) -> None:
        """Larger or smaller about the middle."""
        self.set_camera(self.camera.zoomed(factor, self.size.width() / 2, self.size.height() / 2))

    def reveal(self, operators: Iterable[int]) -> None:
        """Move the picture just so far that these operators are seen, readable."""
        chosen = list(operators)
        if self.scene is None or not chosen:
            return
        camera = self.camera
        if camera.zoom < READ:
            camera = camera.zoomed(REVEALED_ZOOM / camera.zoom, *camera.to_screen(*self.middle(chosen[0])))
        self.set_camera(camera.showing(self.around(chosen), self.size.width(), self.size.height()))

    def centre(self, operators: Iterable[int]) -> None:
        """Move the picture so that these operators lie in the middle, readable."""
        chosen = list(operators)
        if self.scene is None or not chosen:
            return
        zoom = self.camera.zoom if self.camera.zoom >= READ else REVEALED_ZOOM
        left, top, right, bottom = self.around(chosen)
        width, height = self.size.width() / zoom, self.size.height() / zoom
        self.set_camera(Camera((left + right - width) / 2, (top + bottom - height) / 2, zoom))

    def first_look(self) -> None:
        """The whole graph where it can be made out, else its beginning, readable."""
        scene, size = self.scene, self.size
        if scene is None:
            return
        bounds = scene.layout.bounds
        camera = Camera.fitting(bounds, size.width(), size.height())
        if camera.zoom < READABLE_FIT and len(scene.boxes):
            first = np.unique(scene.boxes[scene.boxes[:, 1] <= scene.boxes[:, 1].min() + 1.0], axis=0)
            middle = float((first[:, 0] + first[:, 2]).mean() / 2)
            zoom = OPENING_ZOOM
            camera = Camera(middle - size.width() / zoom / 2, bounds[1] - 40.0 / zoom, zoom)
        self.set_camera(camera)


def opening(graph: OperatorGraph, closed_above: int, unwanted: Callable[[], bool] | None = None) -> Folding:
    """The blocks of a graph that opens, closed where there are more operators. Runs on the worker.

    Raises
    ------
    Unwanted : `unwanted` said True between two steps.
    """
    from model.graph.hierarchy import hierarchy

    whole = Folding(len(graph.operators), hierarchy(graph, Patience(unwanted).check))
    large = len(graph.operators) > closed_above
    return whole.with_closed(whole.hierarchy.opening()) if large and whole.hierarchy is not None else whole


def _middle(boxes: NDArray[np.float64], operator: int) -> tuple[float, float]:
    """The middle of a row of boxes: left, top, right, bottom."""
    left, top, right, bottom = boxes[operator].tolist()
    return (left + right) / 2, (top + bottom) / 2
