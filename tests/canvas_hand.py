"""A canvas on a real document, and a hand that presses, moves and releases on its viewport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from explorer.canvas.camera import Camera
from explorer.canvas.view import GraphCanvas
from explorer.document import Document
from model.graph.graph import OperatorGraph
from model.plan import edits
from model.plan.plan import Plan

LEFT = Qt.MouseButton.LeftButton
NONE = Qt.KeyboardModifier.NoModifier


class Hand:
    """Acts on the viewport in world units, and reads the plan as text."""

    def __init__(self, qtbot: QtBot, document: Document, canvas: GraphCanvas) -> None:
        self.qtbot, self.document, self.canvas = qtbot, document, canvas
        self.sentences: list[tuple[str, str]] = []
        document.said.connect(lambda text, level: self.sentences.append((text, level)))

    @property
    def groups(self) -> str:
        """The committed plan, ``[a b] [c]``."""
        return _text(self.document, self.document.plan)

    @property
    def shown(self) -> str:
        """The plan on screen."""
        return _text(self.document, self.document.shown_plan)

    def operator(self, name: str) -> int:
        """Index of an operator."""
        assert self.document.graph is not None
        return self.document.graph.operator_by_name[name]

    def middle(self, name: str) -> tuple[float, float]:
        """The middle of an operator's box."""
        left, top, right, bottom = self.canvas.scene.boxes[self.operator(name)].tolist()
        return (left + right) / 2, (top + bottom) / 2

    def chip(self, producer: str, consumer: str) -> tuple[float, float]:
        """The middle of the chip between two operators."""
        scene = self.canvas.scene
        wanted = self.operator(producer), self.operator(consumer)
        for index in range(len(scene.chip_edges)):
            chip = scene.chip(index)
            if (chip.producer, chip.consumer) == wanted:
                return chip.x, chip.y
        raise AssertionError(f"no chip from {producer} to {consumer}")

    def at(self, world: tuple[float, float]) -> QPoint:
        """A world point in the viewport."""
        x, y = self.canvas.camera.to_screen(*world)
        return QPoint(round(x), round(y))

    def press(self, world: tuple[float, float], keys: Qt.KeyboardModifier = NONE) -> None:
        """The left button goes down."""
        QTest.mousePress(self.canvas.viewport(), LEFT, keys, self.at(world))

    def move(self, *path: tuple[float, float], steps: int = 6) -> None:
        """The pointer goes through these points, with stops on the way."""
        for world in path:
            goal = self.at(world)
            start = getattr(self, "_last", goal)
            for i in range(1, steps + 1):
                where = start + (goal - start) * (i / steps)
                QTest.mouseMove(self.canvas.viewport(), where)
                self.qtbot.wait(1)
            self._last = goal

    def drag(self, start: tuple[float, float], *path: tuple[float, float], keys: object = NONE) -> None:
        """Press and move, without release."""
        assert isinstance(keys, Qt.KeyboardModifier)
        self._last = self.at(start)
        self.press(start, keys)
        self.move(*path)

    def release(self, world: tuple[float, float], keys: Qt.KeyboardModifier = NONE) -> None:
        """The left button comes up."""
        QTest.mouseRelease(self.canvas.viewport(), LEFT, keys, self.at(world))

    def double_click(self, world: tuple[float, float]) -> None:
        """As a system sends it: press, release, double-click, release."""
        where = self.at(world)
        QTest.mouseClick(self.canvas.viewport(), LEFT, NONE, where)
        QTest.mouseDClick(self.canvas.viewport(), LEFT, NONE, where)
        QTest.mouseRelease(self.canvas.viewport(), LEFT, NONE, where)

    def key(self, key: Qt.Key) -> None:
        """A key on the canvas."""
        QTest.keyClick(self.canvas, key)


def _text(document: Document, plan: Plan | None) -> str:
    assert plan is not None and document.graph is not None
    names = [o.name for o in document.graph.operators]
    return " ".join("[" + " ".join(names[o] for o in group.operators) + "]" for group in plan.groups)


@contextmanager
def hand_on(
    qtbot: QtBot,
    graph: OperatorGraph | None,
    make: Callable[[OperatorGraph], Plan] = edits.unfused,
    zoom: float | None = None,
) -> Iterator[Hand]:
    """A canvas of 900 x 700 that shows `graph` whole (or at `zoom` from its beginning), laid out."""
    document = Document()
    canvas = GraphCanvas(document)
    canvas.stage.animated = False
    canvas.resize(900, 700)
    qtbot.addWidget(canvas)
    canvas.show()
    qtbot.waitExposed(canvas)
    hand = Hand(qtbot, document, canvas)
    try:
        if graph is not None:
            with qtbot.waitSignal(canvas.layout_shown, timeout=60_000):
                document.set_graph(graph, make(graph))
            if zoom is None:
                canvas.zoom_to_fit()
            else:
                left, top, _, _ = canvas.scene.layout.bounds
                canvas.set_camera(Camera(left - 40, top - 40, zoom))
        yield hand
    finally:
        assert document.close()
