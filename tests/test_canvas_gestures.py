"""The hand on the canvas: real presses, moves and releases on the viewport, and what the plan is then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QKeyEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from explorer.editor import Editor
from model.graph.graph import OperatorGraph
from model.plan import edits
from model.plan.notation import from_text
from model.plan.plan import Plan

from .canvas_hand import Hand, hand_on
from .drawn import drawn

CHAIN = "a = Relu(x); b = MatMul(a, w1); c = Relu(b); d = Relu(c); e = MatMul(d, w2)"
# d reads a, and what comes of a by way of b and c: fusing a and d needs both.
TRAP = "a = Relu(x); b = MatMul(a, w); c = Softmax(b); d = Add(a, c)"


def plan(text: str) -> Callable[[OperatorGraph], Plan]:
    return lambda graph: from_text(graph, text)


def below(hand: Hand, name: str) -> tuple[float, float]:
    x, y = hand.middle(name)
    return x, y + 14


def test_a_boundary_drag_moves_the_cut_and_makes_one_undo_entry(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        undo = hand.document.undo_stack
        hand.drag(hand.chip("b", "c"), below(hand, "c"))
        assert hand.shown == "[a b c] [d] [e]"
        assert hand.groups == "[a b] [c d] [e]"
        assert undo.count() == 0
        hand.release(below(hand, "c"))
        assert hand.groups == hand.shown == "[a b c] [d] [e]"
        assert undo.count() == 1
        assert undo.text(0) == "Move the cut down past c"
        undo.undo()
        assert hand.groups == "[a b] [c d] [e]"


def test_a_boundary_snaps_operator_by_operator_in_both_directions(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        chip = hand.chip("b", "c")
        seen: list[str] = []
        hand.document.plan_changed.connect(lambda: seen.append(hand.shown))
        hand.drag(chip, below(hand, "d"))
        assert hand.shown == "[a b c d] [e]"
        hand.move(chip)
        assert hand.shown == "[a b] [c d] [e]"
        x, y = hand.middle("a")
        hand.move((x, y - 14))
        assert hand.shown == "[a b c d] [e]"
        hand.release((x, y - 14))
        assert list(dict.fromkeys(seen)) == [
            "[a b c] [d] [e]",
            "[a b c d] [e]",
            "[a b] [c d] [e]",
            "[a] [b c d] [e]",
        ]
        assert hand.document.undo_stack.count() == 1


def test_a_drag_back_to_where_it_began_leaves_no_entry(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        chip = hand.chip("b", "c")
        hand.drag(chip, below(hand, "c"), chip)
        hand.release(chip)
        assert hand.groups == hand.shown == "[a b] [c d] [e]"
        assert not hand.document.previewing
        assert hand.document.undo_stack.count() == 0


def test_escape_leaves_no_trace(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        before = hand.document.plan
        hand.drag(hand.chip("b", "c"), below(hand, "d"))
        assert hand.shown != hand.groups
        hand.key(Qt.Key.Key_Escape)
        assert hand.document.plan is before
        assert hand.document.shown_plan is before
        assert hand.canvas.gesture is None
        hand.move(below(hand, "c"))
        hand.release(below(hand, "c"))
        assert hand.document.plan is before
        assert hand.document.undo_stack.count() == 0
        assert not hand.canvas.scene.traffic.frozen


def test_a_hull_rim_drags_the_boundary_and_parts_a_group_that_nothing_reads(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn("a = Relu(x); b = Relu(a); c = Relu(b)"), plan("[a b c]")) as hand:
        left, _, right, bottom = hand.canvas.scene.hull_rects[0].tolist()
        x, y = hand.middle("b")
        hand.drag(((left + right) / 2, bottom), (x, y + 20))
        assert hand.shown == "[a b] [c]"
        hand.release((x, y + 20))
        assert hand.groups == "[a b] [c]"
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        left, top, right, _ = hand.canvas.scene.hull_rects[1].tolist()
        hand.drag((left + 20, top), below(hand, "c"))
        hand.release(below(hand, "c"))
        assert hand.groups == "[a b c] [d] [e]"


@pytest.fixture(params=["drawn", pytest.param("file", marks=pytest.mark.shared)])
def trap(request: pytest.FixtureRequest) -> OperatorGraph:
    """The convexity trap, drawn and as the reference file."""
    if request.param == "drawn":
        return drawn(TRAP)
    shared: Path = request.getfixturevalue("shared")
    from model.graph.load import load_graph

    return load_graph(shared / "graphs" / "open" / "edge_convexity_trap.onnx")


def test_the_convexity_trap_is_refused_with_its_path_and_repaired_with_one_key(
    qtbot: QtBot, trap: OperatorGraph
) -> None:
    with hand_on(qtbot, trap) as hand:
        first, second, third, last = (operator.name for operator in trap.operators)
        before = hand.document.plan
        hand.drag(hand.middle(last), hand.middle(first))
        gesture = hand.canvas.gesture
        assert gesture is not None
        shown = gesture.feedback
        assert shown.path == (0, 1, 2, 3)
        assert set(shown.offenders) == {0, 3}
        assert shown.joining == (1, 2)
        assert shown.offer == "Enter: include them. Esc: cancel"
        assert f"`{second}` and `{third}`" in shown.text
        assert hand.sentences[-1] == (shown.text, "warning")
        assert hand.document.plan is hand.document.shown_plan is before
        hand.key(Qt.Key.Key_Return)
        assert hand.groups == f"[{first} {second} {third} {last}]"
        assert hand.document.undo_stack.count() == 1
        hand.release(hand.middle(first))
        assert hand.document.undo_stack.count() == 1


def test_a_refused_cut_stays_at_the_last_legal_place(qtbot: QtBot) -> None:
    # Moving the boundary past b and c is legal; past x1, an opaque operator, nothing is.
    text = "a = Relu(x); b = Relu(a); c = Relu(b); o = If(c); d = Relu(o)"
    with hand_on(qtbot, drawn(text), plan("[a] [b c] [o] [d]")) as hand:
        hand.drag(hand.chip("c", "o"), below(hand, "o"))
        gesture = hand.canvas.gesture
        assert gesture is not None
        assert hand.shown == "[a] [b c] [o] [d]"
        assert gesture.feedback.ghost is not None
        assert gesture.feedback.offer == "Esc: cancel"
        assert "cannot be fused" in hand.sentences[-1][0]
        hand.release(below(hand, "o"))
        assert hand.document.undo_stack.count() == 0
    # a and c may join, and then b must: with b still outside, the cut stays before c.
    text = "a = Relu(x); b = MatMul(a, w); c = Add(a, b); d = Relu(c)"
    with hand_on(qtbot, drawn(text), plan("[a] [b] [c d]")) as hand:
        hand.drag(hand.chip("a", "c"), below(hand, "c"))
        gesture = hand.canvas.gesture
        assert gesture is not None and gesture.feedback.path == (0, 1, 2)
        assert hand.shown == "[a] [b] [c d]"
        hand.key(Qt.Key.Key_Enter)
        assert hand.groups == "[a b c] [d]"


def test_a_refusal_stays_on_offer_after_the_hand_let_go(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(TRAP)) as hand:
        hand.drag(hand.middle("d"), hand.middle("a"))
        hand.release(hand.middle("a"))
        assert hand.groups == "[a] [b] [c] [d]"
        assert hand.document.offer is not None
        hand.key(Qt.Key.Key_Period)
        assert hand.groups == "[a b c d]"
        assert hand.document.offer is None


def test_a_double_click_on_a_chip_fuses_and_on_a_line_cuts(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        hand.double_click(hand.chip("b", "c"))
        assert hand.groups == "[a b c d] [e]"
        assert hand.document.undo_stack.count() == 1
        qtbot.waitUntil(lambda: len(hand.canvas.scene.layout.frames) == 2, timeout=10_000)
        (x, y), (_, lower) = hand.middle("c"), hand.middle("d")
        hand.double_click((x, (y + lower) / 2))
        assert hand.groups == "[a b c] [d] [e]"
        assert hand.document.undo_stack.count() == 2


def test_a_refused_double_click_explains_itself(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(TRAP)) as hand:
        hand.double_click(hand.chip("a", "d"))
        assert hand.groups == "[a] [b] [c] [d]"
        assert "would make a cycle" in hand.sentences[-1][0]
        assert hand.document.offer is not None
        hand.key(Qt.Key.Key_Return)
        assert hand.groups == "[a b c d]"


def test_an_operator_dropped_on_another_hull_moves_there(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        left, top, _, _ = hand.canvas.scene.hull_rects[0].tolist()
        inside = left + 8, top + 8
        hand.drag(hand.middle("c"), inside)
        assert hand.shown == "[a b c] [d] [e]"
        hand.release(inside)
        assert hand.groups == "[a b c] [d] [e]"
        assert hand.document.undo_stack.text(0) == "Move c to G1"


def test_an_operator_dropped_on_nothing_stays(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        left, top, _, _ = hand.canvas.scene.layout.bounds
        hand.drag(hand.middle("c"), hand.middle("a"), (left - 60, top))
        hand.release((left - 60, top))
        assert hand.groups == hand.shown == "[a b] [c d] [e]"
        assert hand.document.undo_stack.count() == 0


def test_a_selection_moves_as_one(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a] [b] [c] [d e]")) as hand:
        hand.document.select((hand.operator("b"), hand.operator("c")))
        left, top, _, _ = hand.canvas.scene.hull_rects[0].tolist()
        hand.drag(hand.middle("c"), (left + 8, top + 8))
        hand.release((left + 8, top + 8))
        assert hand.groups == "[a b c] [d e]"
        assert hand.document.undo_stack.count() == 1


def test_a_box_selects_and_its_bar_fuses_and_splits(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN)) as hand:
        (x, top), (_, bottom) = hand.middle("b"), hand.middle("d")
        corner = x - 100, top - 20
        hand.drag(corner, (x + 100, bottom + 20), keys=Qt.KeyboardModifier.ShiftModifier)
        assert hand.canvas.gesture is not None and hand.canvas.gesture.feedback.text == "3 operators"
        assert not hand.canvas.bar.isVisible()
        hand.release((x + 100, bottom + 20))
        bar = hand.canvas.bar
        assert hand.document.selection == (1, 2, 3)
        assert bar.isVisible()
        QTest.mouseClick(bar.fuse_button, Qt.MouseButton.LeftButton)
        assert hand.groups == "[a] [b c d] [e]"
        hand.document.select((2, 3))
        QTest.mouseClick(bar.split_button, Qt.MouseButton.LeftButton)
        assert hand.groups == "[a] [b] [c d] [e]"
        asked: list[int] = []
        hand.canvas.tile_requested.connect(asked.append)
        QTest.mouseClick(bar.tile_button, Qt.MouseButton.LeftButton)
        assert asked == [2]


@pytest.mark.parametrize("chosen", ["a b", "c d", "g h", "b c d e f g"])
def test_the_bar_lies_on_no_operator_or_chip_where_there_is_room(qtbot: QtBot, chosen: str) -> None:
    chain = "; ".join(f"{b} = Relu({a})" for a, b in pairwise("xabcdefgh"))
    with hand_on(qtbot, drawn(chain), plan("[a b] [c d] [e f] [g h]")) as hand:
        canvas = hand.canvas
        hand.document.select(hand.operator(name) for name in chosen.split())
        assert canvas.bar.isVisible()
        bar = QRectF(canvas.bar.geometry())
        assert QRectF(canvas.viewport().rect()).contains(bar)
        for a, b, c, d in canvas._in_the_way().tolist():
            assert not bar.intersects(QRectF(a, b, c - a, d - b))


def test_the_bar_names_what_fusing_needs_in_between(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(TRAP)) as hand:
        hand.document.select((0, 3))
        bar = hand.canvas.bar
        assert bar.fuse_button.text() == "Fuse 2 and 2 needed in between"
        QApplication.sendEvent(bar.fuse_button, QEvent(QEvent.Type.Leave))
        QTest.mouseClick(bar.fuse_button, Qt.MouseButton.LeftButton)
        assert hand.groups == "[a b c d]"


def test_the_knife_cuts_every_line_it_crosses_as_one_edit(qtbot: QtBot) -> None:
    text = "a = Relu(x); b = Relu(a); c = Relu(a); d = Add(b, c)"
    with hand_on(qtbot, drawn(text), plan("[a b c d]")) as hand:
        (left, y), (right, _) = hand.middle("b"), hand.middle("c")
        _, below_y = hand.middle("d")
        height = (y + below_y) / 2
        QTest.keyPress(hand.canvas, Qt.Key.Key_C)
        hand.drag((min(left, right) - 120, height), (max(left, right) + 120, height))
        hand.release((max(left, right) + 120, height))
        QTest.keyRelease(hand.canvas, Qt.Key.Key_C)
        assert hand.groups == "[a b c] [d]"
        assert hand.document.undo_stack.count() == 1


def test_dragging_the_empty_canvas_pans_and_a_click_selects_nothing(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN)) as hand:
        hand.document.select((0,))
        left, top, _, _ = hand.canvas.scene.layout.bounds
        away = left - 120, top + 100
        before = hand.canvas.camera
        start = hand.at(away)
        QTest.mousePress(hand.canvas.viewport(), Qt.MouseButton.LeftButton, pos=start)
        QTest.mouseMove(hand.canvas.viewport(), start + QPoint(30, 20))
        QTest.mouseMove(hand.canvas.viewport(), start + QPoint(50, 40))
        QTest.mouseRelease(hand.canvas.viewport(), Qt.MouseButton.LeftButton, pos=start + QPoint(50, 40))
        after = hand.canvas.camera
        assert after.zoom == before.zoom
        assert (before.x - after.x) * after.zoom == pytest.approx(50, abs=1)
        assert (before.y - after.y) * after.zoom == pytest.approx(40, abs=1)
        assert hand.document.selection == (0,)
        QTest.mouseClick(hand.canvas.viewport(), Qt.MouseButton.LeftButton, pos=start)
        assert hand.document.selection == ()


def test_the_wheel_zooms_about_the_pointer(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN)) as hand:
        viewport = hand.canvas.viewport()
        at = QPointF(300.0, 200.0)
        before = hand.canvas.camera
        fixed = before.to_world(at.x(), at.y())
        event = QWheelEvent(
            at,
            QPointF(viewport.mapToGlobal(at.toPoint())),
            QPoint(),
            QPoint(0, 240),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(viewport, event)
        after = hand.canvas.camera
        assert after.zoom == pytest.approx(before.zoom * 1.44)
        assert after.to_screen(*fixed) == pytest.approx((300.0, 200.0), abs=1.0)


def test_a_click_selects_and_ctrl_adds(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        viewport, left = hand.canvas.viewport(), Qt.MouseButton.LeftButton
        QTest.mouseClick(viewport, left, pos=hand.at(hand.middle("a")))
        assert hand.document.selection == (0,)
        QTest.mouseClick(viewport, left, Qt.KeyboardModifier.ControlModifier, hand.at(hand.middle("c")))
        assert hand.document.selection == (0, 2)
        QTest.mouseClick(viewport, left, Qt.KeyboardModifier.ControlModifier, hand.at(hand.middle("a")))
        assert hand.document.selection == (2,)
        x0, y0, _, _ = hand.canvas.scene.hull_rects[0].tolist()
        QTest.mouseClick(viewport, left, pos=hand.at((x0 + 7, y0 + 40)))
        assert hand.document.selection == (0, 1)


def test_nothing_moves_and_no_colour_changes_while_a_cut_is_dragged(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        boxes = hand.canvas.scene.boxes.copy()
        hand.drag(hand.chip("b", "c"), below(hand, "d"))
        assert hand.canvas.scene.traffic.frozen
        qtbot.wait(50)
        assert (hand.canvas.scene.boxes == boxes).all()
        with qtbot.waitSignal(hand.canvas.layout_shown, timeout=10_000):
            hand.release(below(hand, "d"))
        assert not hand.canvas.scene.traffic.frozen
        assert len(hand.canvas.scene.layout.frames) == 2


def test_an_undo_in_the_middle_of_a_drag_ends_it(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        hand.double_click(hand.chip("d", "e"))
        qtbot.waitUntil(lambda: len(hand.canvas.scene.layout.frames) == 2, timeout=10_000)
        hand.drag(hand.chip("b", "c"), below(hand, "c"))
        hand.document.undo()
        assert hand.canvas.gesture is None
        hand.release(below(hand, "c"))
        assert hand.groups == hand.shown == "[a b] [c d] [e]"
        assert hand.document.undo_stack.index() == 0


def test_without_kernels_nothing_is_edited_and_the_reason_is_said(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), plan("[a b] [c d] [e]")) as hand:
        hand.document._ready = False
        hand.drag(hand.chip("b", "c"), below(hand, "c"))
        hand.release(below(hand, "c"))
        hand.drag(hand.middle("c"), hand.middle("a"))
        hand.release(hand.middle("a"))
        hand.double_click(hand.chip("b", "c"))
        assert hand.groups == "[a b] [c d] [e]"
        assert all("compiling" in text for text, _ in hand.sentences) and hand.sentences


def test_a_held_space_bar_pans_from_anywhere(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN), edits.contraction_tails) as hand:
        before = hand.canvas.camera
        QTest.keyPress(hand.canvas, Qt.Key.Key_Space)
        start = hand.middle("a")
        hand.drag(start, (start[0] + 60, start[1] + 60))
        hand.release(start)
        QApplication.sendEvent(
            hand.canvas,
            QKeyEvent(QEvent.Type.KeyRelease, Qt.Key.Key_Space, Qt.KeyboardModifier.NoModifier),
        )
        assert hand.canvas.camera != before
        assert hand.document.undo_stack.count() == 0


def test_a_click_on_a_chip_puts_the_keys_on_its_cut(qtbot: QtBot) -> None:
    text = "a = Relu(x); b = Relu(a); c = Relu(a); d = Relu(b); e = Relu(c)"
    with hand_on(qtbot, drawn(text), plan("[a] [b d] [c e]")) as hand:
        editor = Editor(hand.document)
        for consumer, moved in (("b", "[a b] [c e] [d]"), ("c", "[a c] [b d] [e]")):
            hand.document.commit(from_text(hand.canvas.scene.graph, "[a] [b d] [c e]"), "again")
            qtbot.waitUntil(lambda: len(hand.canvas.scene.layout.frames) == 3, timeout=10_000)
            QTest.mouseClick(
                hand.canvas.viewport(), Qt.MouseButton.LeftButton, pos=hand.at(hand.chip("a", consumer))
            )
            assert hand.document.selection == (hand.operator("a"), hand.operator(consumer))
            editor.cut_down()
            assert hand.groups == moved
            editor.cut_up()
            assert hand.groups == "[a] [b d] [c e]"
            editor.toggle()
            assert hand.shown.count("[") == 2


def test_escape_gives_a_box_select_its_old_selection_back(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(CHAIN)) as hand:
        hand.document.select((4,))
        x, y = hand.middle("b")
        hand.drag((x - 100, y - 20), (x + 100, y + 20), keys=Qt.KeyboardModifier.ShiftModifier)
        assert hand.document.selection == (1,)
        hand.key(Qt.Key.Key_Escape)
        assert hand.document.selection == (4,)


def test_a_refused_key_is_explained_on_the_canvas(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(TRAP)) as hand:
        hand.document.select((0, 3))
        Editor(hand.document).fuse()
        shown = hand.canvas._standing
        assert shown.joining == (1, 2) and "would make a cycle" in shown.text
        assert shown.offer == "Enter: include them. Esc: cancel"
        assert not hand.canvas.grab().isNull()
        hand.key(Qt.Key.Key_Return)
        assert hand.groups == "[a b c d]"
        assert hand.canvas._standing.text == ""
