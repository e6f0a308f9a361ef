"""What the hand does: each gesture is an object, its docstring one sentence of user behaviour.

Knows the scene, the document and the edits of the plan. Must not know widgets or painting: a gesture says
what it wants to be seen by a `Feedback`. One gesture is at most one undo entry; Escape leaves no trace; a
gesture that ends where it began leaves none either. What is refused changes nothing: a cut stays at the last
legal place, the reason goes to the tag, to ``document.said`` and, with its fix, to ``document.set_offer``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from model.errors import PlanError
from model.plan.plan import Plan

from .. import look
from ..names import group_name, operator_list
from .blocks import PAD, TITLE
from .camera import Camera
from .cuts import CutTrack
from .overlay import NO_OFFER, NOTHING, OFFER, OFFER_MANY, Feedback, Point
from .scene import Chip, Rect, Scene

if TYPE_CHECKING:
    from ..document import Document


class Hand(Protocol):
    """What a gesture may ask of the canvas."""

    document: Document

    @property
    def scene(self) -> Scene: ...

    @property
    def camera(self) -> Camera: ...

    def set_camera(self, camera: Camera) -> None: ...


class Gesture:
    """Press, move, release. Points are in world units; `moved` is False until the hand really moved."""

    def __init__(self, hand: Hand, at: Point) -> None:
        self.hand = hand
        self.start = at
        self.moved = False
        self.feedback = NOTHING

    def move(self, at: Point) -> None:
        """The hand is at a point now."""

    def release(self) -> None:
        """The hand let go; only called after a move."""

    def click(self) -> None:
        """The hand let go where it had pressed."""

    def cancel(self) -> None:
        """Escape, or the canvas lost the pointer: no trace."""

    def take_fix(self) -> bool:
        """Enter: do what a refusal offers; False where there is nothing on offer."""
        return False


class Pan(Gesture):
    """Drag the empty canvas, or anything with the middle button or the space bar, to move the picture."""

    def __init__(self, hand: Hand, at: Point, meant: tuple[int, ...] = ()) -> None:
        super().__init__(hand, at)
        self._camera = hand.camera
        self._meant = meant

    def move(self, at: Point) -> None:
        """Keep the world point that was pressed under the pointer."""
        now = self.hand.camera
        dx, dy = (at[0] - self.start[0]) * now.zoom, (at[1] - self.start[1]) * now.zoom
        self.hand.set_camera(now.panned(dx, dy))

    def click(self) -> None:
        """A click selects what was meant: the operators of a hull, nothing on the empty canvas."""
        self.hand.document.select(self._meant)

    def cancel(self) -> None:
        """Back to where the picture was."""
        self.hand.set_camera(self._camera)


class MapPan(Gesture):
    """Press and drag on the minimap to see that part."""

    def __init__(self, hand: Hand, at: Point, where: Callable[[Point], Point], middle: Point) -> None:
        super().__init__(hand, at)
        self._where, self._middle = where, middle
        self._zoom = hand.camera.zoom
        self.moved = True
        self._go(hand.camera.to_screen(*at))

    def move(self, at: Point) -> None:
        """Points are of the world; the map wants those of the viewport."""
        self._go(self.hand.camera.to_screen(*at))

    def _go(self, on_screen: Point) -> None:
        x, y = self._where(on_screen)
        zoom = self._zoom
        self.hand.set_camera(Camera(x - self._middle[0] / zoom, y - self._middle[1] / zoom, zoom))


class BoxSelect(Gesture):
    """Hold Shift and drag a box on the canvas: the operators in it are selected."""

    def __init__(self, hand: Hand, at: Point, keep: tuple[int, ...]) -> None:
        super().__init__(hand, at)
        self._keep = keep
        self._before = hand.document.selection

    def _band(self, at: Point) -> Rect:
        (ax, ay), (bx, by) = self.start, at
        return min(ax, bx), min(ay, by), max(ax, bx), max(ay, by)

    def move(self, at: Point) -> None:
        """Draw the box and ring what it holds."""
        band = self._band(at)
        scene = self.hand.scene
        found = np.concatenate([scene.operators_in(band), scene.folding.first[scene.blocks_in(band)]])
        boxes = scene.boxes[found]
        middles = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((middles >= band[:2]) & (middles <= band[2:])).all(axis=1)
        chosen = tuple(o for one in found[inside].tolist() for o in scene.folding.together(one))
        self.hand.document.select((*self._keep, *chosen))
        text = f"{len(chosen):,} operators" if len(chosen) != 1 else "1 operator"
        self.feedback = Feedback(pointer=at, band=band, text=text)

    def cancel(self) -> None:
        """The selection is what it was."""
        self.hand.document.select(self._before)


def explained(refusal: PlanError, shown: Feedback) -> Feedback:
    """`shown` with everything that explains a refusal: offenders, the way round, the fix, the sentence."""
    completing: tuple[int, ...] = getattr(refusal, "completing", ())
    fixable = getattr(refusal, "fix", None) is not None
    offer = (OFFER if len(completing) == 1 else OFFER_MANY) if fixable else NO_OFFER
    return replace(
        shown,
        target=None,
        offenders=getattr(refusal, "operators", ()),
        path=getattr(refusal, "path", ()),
        joining=completing if fixable else (),
        text=refusal.sentence(),
        offer=offer,
    )


class Edit(Gesture):
    """Shared by gestures that change the plan: try a candidate, preview it, or explain the refusal."""

    def __init__(self, hand: Hand, at: Point) -> None:
        super().__init__(hand, at)
        plan = hand.document.plan
        assert plan is not None  # the canvas starts no gesture without a plan
        self.base = plan
        self.candidate: Plan | None = None
        self.text = ""
        self.refusal: PlanError | None = None
        self._refused_text = ""

    def attempt(self, make: Callable[[], Plan], text: str) -> bool:
        """Preview what `make` returns; where it is refused, the preview stays and the reason is told."""
        document = self.hand.document
        try:
            plan = make()
        except PlanError as refusal:
            self._refuse(refusal, text)
            return False
        self.refusal = None
        document.withdraw_offer()
        self.candidate, self.text = (None, "") if plan == self.base else (plan, text)
        document.preview(self.candidate)
        return True

    def _refuse(self, refusal: PlanError, text: str) -> None:
        document = self.hand.document
        sentence = refusal.sentence()
        told = self.refusal is not None and self.refusal.sentence() == sentence
        self.refusal, self._refused_text = refusal, text
        fix: Plan | None = getattr(refusal, "fix", None)
        if fix is None:
            document.withdraw_offer()
        else:
            document.set_offer(sentence, fix, text)
        if not told:
            document.said.emit(sentence, "warning")

    def release(self) -> None:
        """One undo entry for what is shown; none where nothing changed. A fix on offer stays on offer."""
        document, refusal = self.hand.document, self.refusal
        if self.candidate is None:
            document.preview(None)
        else:
            document.commit(self.candidate, self.text)
        fix: Plan | None = getattr(refusal, "fix", None)
        if refusal is not None and fix is not None:
            document.set_offer(refusal.sentence(), fix, self._refused_text)

    def cancel(self) -> None:
        """No trace."""
        self.refusal = None
        self.hand.document.withdraw_offer()
        self.hand.document.preview(None)

    def take_fix(self) -> bool:
        """Commit the plan that includes what is needed."""
        fix: Plan | None = getattr(self.refusal, "fix", None)
        if fix is None:
            return False
        self.hand.document.commit(fix, self._refused_text)
        return True


class BoundaryDrag(Edit):
    """Drag a cut chip, or the rim of a hull, along the flow: operators change sides one by one.

    The plan stays at the nearest legal cut between the old place and the pointer; a dashed ghost shows where
    the hand wants it.
    """

    def __init__(
        self, hand: Hand, at: Point, upper: tuple[int, ...], lower: tuple[int, ...], chip: Chip | None
    ) -> None:
        super().__init__(hand, at)
        self._chip = chip
        scene = hand.scene
        self._track = CutTrack.between(scene.graph, scene.boxes, upper, lower, at[1])
        self._step = 0
        boxes = scene.boxes[[*upper, *lower]]
        self._span = float(boxes[:, 0].min()) - PAD, float(boxes[:, 2].max()) + PAD

    @staticmethod
    def at_chip(hand: Hand, at: Point, chip: Chip) -> BoundaryDrag:
        """The boundary that a chip sits on."""
        groups = hand.scene.plan.groups
        return BoundaryDrag(hand, at, groups[chip.source].operators, groups[chip.target].operators, chip)

    @staticmethod
    def at_rim(hand: Hand, at: Point, group: int, *, above: bool) -> BoundaryDrag:
        """The boundary on one side of a hull: towards the group whose chip is nearest to the pointer."""
        scene = hand.scene
        edges, group_of = scene.graph.edges, scene.group_of
        near = (group_of[edges[scene.chip_edges, 1 if above else 0]] == group) & scene.chip_is_handle
        rows = np.flatnonzero(near)
        operators = scene.plan.groups[group].operators
        if not len(rows):
            return BoundaryDrag(hand, at, *(((), operators) if above else (operators, ())), None)
        away = np.abs(np.nan_to_num(scene.chip_xy[rows, 0], nan=1e12) - at[0])
        return BoundaryDrag.at_chip(hand, at, scene.chip(int(rows[int(np.argmin(away))])))

    def click(self) -> None:
        """A click on a chip selects both ends of its cut, so that keys move and toggle it."""
        if self._chip is not None:
            self.hand.document.select((self._chip.producer, self._chip.consumer))

    def move(self, at: Point) -> None:
        """Snap to the operators that the pointer passed; go back towards the old place where refused."""
        if not self._track.upper:  # nothing above to give operators to, or to take them from
            return
        step = self._track.step_at(at[1])
        if step != self._step:
            self._step = step
            self._snap(step)
        shown = Feedback(pointer=at, cut=(*self._span, self._height()), text=self._words())
        if self.refusal is not None:
            shown = explained(self.refusal, replace(shown, ghost=(*self._span, at[1])))
        self.feedback = shown

    def _snap(self, step: int) -> None:
        graph = self.hand.scene.graph
        if self.attempt(lambda: self._track.candidate(graph, self.base, step), self._title(step)):
            return
        # What was passed on the way may be legal where the place under the pointer is not.
        refusal, text = self.refusal, self._refused_text
        for nearer in range(step - 1, 0, -1) if step > 0 else range(step + 1, 0):
            try:
                plan = self._track.candidate(graph, self.base, nearer)
            except PlanError:
                continue
            self.candidate, self.text = plan, self._title(nearer)
            self.hand.document.preview(plan)
            break
        self.refusal, self._refused_text = refusal, text

    def _title(self, step: int) -> str:
        graph = self.hand.scene.graph
        passed = self._track.lower[:step] if step > 0 else self._track.upper[:-step]
        names = operator_list(graph, passed, 2)
        emptied = len(passed) == len(self._track.lower if step > 0 else self._track.upper)
        if emptied:
            return f"Fuse across the cut: {names}"
        return f"Move the cut {'down' if step > 0 else 'up'} past {names}"

    def _height(self) -> float:
        """Where the boundary lies now: between the operators on both sides of the plan that is shown."""
        scene, track = self.hand.scene, self._track
        plan = self.candidate or self.base
        label = plan.membership
        home = label[track.upper[-1]] if track.upper else -1
        above = [o for o in (*track.upper, *track.lower) if label[o] == home]
        below = [o for o in (*track.upper, *track.lower) if label[o] != home]
        if not below:
            return float(scene.boxes[above, 3].max()) + PAD
        if not above:
            return float(scene.boxes[below, 1].min()) - TITLE
        top, bottom = float(scene.boxes[above, 3].max()), float(scene.boxes[below, 1].min())
        # Close to what is below it: between two far groups lie others.
        return max((top + bottom) / 2, bottom - TITLE - PAD)

    def _words(self) -> str:
        """``3 operators | 2 operators · 4.0 MiB cross``."""
        scene, track = self.hand.scene, self._track
        label = (self.candidate or self.base).membership
        both = np.array([*track.upper, *track.lower])
        sizes = [int(np.sum(label[both] == one)) for one in dict.fromkeys(label[both].tolist())]
        edges = scene.graph.edges
        mine = np.zeros(len(label), dtype=np.bool_)
        mine[both] = True
        crossing = mine[edges[:, 0]] & mine[edges[:, 1]] & (label[edges[:, 0]] != label[edges[:, 1]])
        tensors = set(edges[crossing, 2].tolist())
        if not tensors:
            return f"one group of {len(both)} operators"
        amount = sum(scene.graph.tensors[t].bytes or 0 for t in tensors)
        counts = " | ".join(f"{size:,}" for size in sizes)
        return f"{counts} operators · {look.fmt_bytes(amount)} cross"


class MoveOperators(Edit):
    """Drag an operator, or the selection it belongs to, onto another hull: it moves to that group."""

    def __init__(self, hand: Hand, at: Point, pressed: int, add: bool) -> None:
        super().__init__(hand, at)
        selection = hand.document.selection
        self.operators = selection if pressed in selection else (pressed,)
        self._pressed, self._add = pressed, add
        self._target: int | None = None

    def move(self, at: Point) -> None:
        """Ghosts follow the pointer; over a hull the plan shows what dropping would do."""
        scene, document = self.hand.scene, self.hand.document
        target = self._hull_at(at)
        if target != self._target:
            self._target = target
            if target is None:
                self.refusal = None
                document.withdraw_offer()
                self.candidate = None
                document.preview(None)
            else:
                name = group_name(target)
                text = f"Move {operator_list(scene.graph, self.operators, 2)} to {name}"
                member = self.base.groups[target].operators[0]
                if not self.attempt(lambda: self._moved(member), text):
                    self.candidate = None  # dropping here moves nothing, wherever the hand has been before
                    document.preview(None)
        shift = at[0] - self.start[0], at[1] - self.start[1]
        words = "Drop on a hull to move there. Esc: cancel" if target is None else self.text
        home = None if target is None or self.candidate is None else self._home()
        shown = Feedback(pointer=at, carried=self.operators, shift=shift, target=home, text=words)
        self.feedback = explained(self.refusal, shown) if self.refusal is not None else shown

    def _moved(self, member: int) -> Plan:
        from model.plan import edits  # Numba: not before the window is up

        return edits.move(self.hand.scene.graph, self.base, self.operators, member)

    def _home(self) -> int:
        return int(self.hand.scene.group_of[self.operators[0]])

    def _hull_at(self, at: Point) -> int | None:
        """The group under the pointer in the plan as it was; its own hull is no target."""
        scene = self.hand.scene
        boxes = scene.boxes
        best: int | None = None
        for group in self._groups_at(at):
            operators = self.base.groups[group].operators
            if not set(operators) >= set(self.operators):
                best = group
                left, top = boxes[list(operators), :2].min(axis=0)
                right, bottom = boxes[list(operators), 2:].max(axis=0)
                if left <= at[0] <= right and top <= at[1] <= bottom:
                    return group
        return best

    def _groups_at(self, at: Point) -> list[int]:
        frames = self.hand.scene.layout.frames
        label = self.base.membership
        near = self.hand.scene.operators_in((at[0] - 400, at[1] - 400, at[0] + 400, at[1] + 400))
        found: list[int] = []
        for group in dict.fromkeys(label[near].tolist()):
            operators = self.base.groups[group].operators
            frame = frames.get(operators)
            if frame is None:
                boxes = self.hand.scene.boxes[list(operators)]
                low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
                frame = low[0] - PAD, low[1] - TITLE, high[0] + PAD, high[1] + PAD
            if frame[0] <= at[0] <= frame[2] and frame[1] <= at[1] <= frame[3]:
                found.append(group)
        return found

    def click(self) -> None:
        """A click selects the operator; with Ctrl or Shift it joins or leaves the selection."""
        document = self.hand.document
        if not self._add:
            document.select((self._pressed,))
        elif self._pressed in document.selection:
            document.select(o for o in document.selection if o != self._pressed)
        else:
            document.select((*document.selection, self._pressed))


class Knife(Edit):
    """Hold C and drag across lines: each edge crossed is cut."""

    def __init__(self, hand: Hand, at: Point) -> None:
        super().__init__(hand, at)
        self._stroke: list[Point] = [at]
        self._cut: list[int] = []

    def move(self, at: Point) -> None:
        """Cut what the last piece of the stroke crosses."""
        scene = self.hand.scene
        last = self._stroke[-1]
        self._stroke.append(at)
        crossed = [edge for edge in crossed_edges(scene, last, at) if edge not in self._cut]
        fresh = [edge for edge in crossed if self._inside(edge)]
        if fresh:
            self._cut += fresh
            names = operator_list(scene.graph, [int(scene.graph.edges[e, 1]) for e in self._cut], 2)
            self.attempt(self._parted, f"Cut before {names}")
        count = len(self._cut)
        text = f"{count} edge{'s' if count != 1 else ''} cut" if count else "Cross lines inside groups to cut"
        shown = Feedback(pointer=at, stroke=tuple(self._stroke), lines=tuple(self._cut), text=text)
        self.feedback = explained(self.refusal, shown) if self.refusal is not None else shown

    def _inside(self, edge: int) -> bool:
        producer, consumer, _ = self.hand.scene.graph.edges[edge]
        return bool(self.base.membership[producer] == self.base.membership[consumer])

    def _parted(self) -> Plan:
        from model.plan import edits  # Numba: not before the window is up

        graph, plan = self.hand.scene.graph, self.base
        for edge in self._cut:
            producer, consumer = (int(v) for v in graph.edges[edge, :2])
            if plan.membership[producer] == plan.membership[consumer]:  # an earlier cut may have parted them
                plan = edits.toggle(graph, plan, producer, consumer)
        return plan


def crossed_edges(scene: Scene, a: Point, b: Point) -> list[int]:
    """Edges that the piece from `a` to `b` crosses as they are drawn."""
    around = (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))
    out: list[int] = []
    for edge in scene.edges_in(around).tolist():
        points = scene.sampled(edge)
        p, q = points[:-1], points[1:]
        side_a = _side(p, q, a)
        side_b = _side(p, q, b)
        direction = np.array([b[0] - a[0], b[1] - a[1]])
        side_p = direction[0] * (p[:, 1] - a[1]) - direction[1] * (p[:, 0] - a[0])
        side_q = direction[0] * (q[:, 1] - a[1]) - direction[1] * (q[:, 0] - a[0])
        if np.any((side_a * side_b < 0) & (side_p * side_q <= 0)):
            out.append(edge)
    return out


def _side(p: np.ndarray, q: np.ndarray, point: Point) -> np.ndarray:
    return (q[:, 0] - p[:, 0]) * (point[1] - p[:, 1]) - (q[:, 1] - p[:, 1]) * (point[0] - p[:, 0])
