"""The canvas by keyboard and for a screen reader, and what happens while layouts and graphs come and go."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, QSizeF, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from explorer.canvas import legend
from explorer.canvas.camera import Camera
from explorer.canvas.layout import LayoutRequest, lay_out
from explorer.canvas.quick import provisional
from explorer.canvas.view import GraphCanvas
from explorer.digest import Digest
from explorer.document import Document
from explorer.runner import Lane
from model.plan import edits
from model.plan.notation import from_text

from . import made_results
from .canvas_hand import hand_on
from .drawn import drawn
from .test_canvas_layout import ATTENTION, PLANS


def test_arrows_walk_producers_consumers_and_siblings(qtbot: QtBot) -> None:
    graph = drawn("a = Relu(x); b = Relu(a); c = Relu(a); d = Relu(a); e = Add(b, c, d)")
    with hand_on(qtbot, graph) as hand:
        canvas, document = hand.canvas, hand.document
        canvas.walk_down()
        assert len(document.selection) == 1  # the most central one, where none was selected
        document.select((hand.operator("a"),))
        canvas.walk_up()
        assert document.selection == (hand.operator("a"),)  # nothing is above
        canvas.walk_down()
        first = document.selection[0]
        assert first in {hand.operator(name) for name in "bcd"}
        row = sorted((hand.operator(name) for name in "bcd"), key=lambda o: hand.canvas.stage.middle(o)[0])
        document.select(row[:1])
        canvas.walk_left()
        assert document.selection == (row[0],)
        canvas.walk_right()
        canvas.walk_right()
        assert document.selection == (row[2],)
        canvas.walk_down()
        assert document.selection == (hand.operator("e"),)


def test_tab_goes_round_the_groups_and_brings_them_into_view(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"]), 1.0) as hand:
        canvas, document, groups = hand.canvas, hand.document, hand.canvas.scene.plan.groups
        for expected in (*range(len(groups)), 0):
            canvas.next_group()
            assert document.selection == groups[expected].operators
            left, top, right, bottom = canvas.stage.seen
            x, y = canvas.stage.middle(document.selection[0])
            assert left < x < right and top < y < bottom
        canvas.previous_group()
        assert document.selection == groups[-1].operators


def test_escape_lets_go_of_the_selection_last(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn("a = Relu(x); b = MatMul(a, w); c = Add(a, b)")) as hand:
        hand.document.select((0, 2))
        hand.double_click(hand.chip("a", "c"))
        assert hand.document.offer is not None
        hand.document.select((0, 2))
        hand.key(Qt.Key.Key_Escape)
        assert hand.document.offer is None and hand.document.selection == (0, 2)
        hand.key(Qt.Key.Key_Escape)
        assert hand.document.selection == ()


def test_seeing_less_more_and_all(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(ATTENTION), edits.contraction_tails) as hand:
        canvas = hand.canvas
        seen, bounds = canvas.stage.seen, canvas.scene.layout.bounds
        assert seen[0] < bounds[0] and seen[1] < bounds[1] and seen[2] > bounds[2] and seen[3] > bounds[3]
        before = canvas.camera.zoom
        canvas.zoom_in()
        assert canvas.camera.zoom > before
        canvas.zoom_out()
        assert canvas.camera.zoom == pytest.approx(before)
        hand.document.select((3, 4))
        canvas.reveal_selection()
        x, y = canvas.stage.middle(3)
        left, top, right, bottom = canvas.stage.seen
        assert left < x < right and top < y < bottom and canvas.camera.zoom > before


def test_the_minimap_shows_where_one_is_and_takes_one_there(qtbot: QtBot) -> None:
    graph = drawn("; ".join(["t0 = Relu(x)", *(f"t{i} = Relu(t{i - 1})" for i in range(1, 200))]))
    with hand_on(qtbot, graph, zoom=1.0) as hand:
        canvas = hand.canvas
        minimap = canvas.stage.minimap
        assert minimap is not None and canvas._minimap_shown()
        size = canvas.stage.size
        rect = minimap.rect(size)
        target = QPoint(round(rect.center().x()), round(rect.bottom()) - 12)
        world = minimap.to_world(size, QPointF(target))
        QTest.mouseClick(canvas.viewport(), Qt.MouseButton.LeftButton, pos=target)
        left, top, right, bottom = canvas.stage.seen
        assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx(world, abs=1.0)
        assert canvas.camera.zoom == 1.0
        canvas.zoom_to_fit()
        assert not canvas._minimap_shown()


def test_a_camera_keeps_what_it_is_asked_to_keep() -> None:
    camera = Camera(10.0, -5.0, 0.5)
    assert camera.to_world(*camera.to_screen(3.0, 4.0)) == pytest.approx((3.0, 4.0))
    zoomed = camera.zoomed(3.0, 100.0, 50.0)
    assert zoomed.to_world(100.0, 50.0) == pytest.approx(camera.to_world(100.0, 50.0))
    assert camera.zoomed(1e9, 0, 0).zoom == 4.0 and camera.zoomed(1e-9, 0, 0).zoom == 0.001
    shown = camera.showing((5000.0, 5000.0, 5100.0, 5050.0), 800, 600)
    left, top, right, bottom = shown.seen(800, 600)
    assert left < 5000 and top < 5000 and right > 5100 and bottom > 5050
    assert shown.showing((5000.0, 5000.0, 5100.0, 5050.0), 800, 600) == shown
    large = camera.showing((0.0, 0.0, 9000.0, 9000.0), 800, 600)
    assert large.seen(800, 600)[:2] == pytest.approx((-48.0, -48.0))


# ------------------------------------------------------------------------------------ screen reader


def test_groups_and_operators_are_read_with_names_places_and_states(qtbot: QtBot) -> None:
    graph = made_results.chain()
    with hand_on(qtbot, graph, lambda _: made_results.plan()) as hand:
        canvas = hand.canvas
        canvas.scene.set_result(Digest.of(made_results.cost()))
        top = QAccessible.queryAccessibleInterface(canvas)
        assert top.role() == QAccessible.Role.Tree
        assert top.text(QAccessible.Text.Name) == "Graph canvas, hand_block"
        assert top.childCount() == 4
        names = [top.child(i).text(QAccessible.Text.Name) for i in range(4)]
        assert names[0].startswith("G1  RMSNorm MatMul Softmax, 3 operators")
        assert any("spills" in name for name in names) and any("does not fit" in name for name in names)
        group = top.child(1)
        operator = group.child(0)
        assert operator.text(QAccessible.Text.Name).startswith("MatMul_3, MatMul, DRAM")
        assert operator.text(QAccessible.Text.Name).endswith("in G2")
        assert group.rect().contains(operator.rect())
        assert operator.parent() is group and group.parent() is top and group.indexOfChild(operator) == 0
        middle = operator.rect().center()
        assert top.childAt(middle.x(), middle.y()) is group
        assert group.childAt(middle.x(), middle.y()) is operator
        hand.document.select((3,))
        assert operator.state().selected and not top.child(0).child(0).state().selected
        hand.document.preview(edits.unfused(graph))
        assert top.childCount() == len(graph.operators)
        assert not operator.isValid() or operator.text(QAccessible.Text.Name)


# ---------------------------------------------------------------------------- layouts come and go


def canvas_on(qtbot: QtBot, document: Document) -> GraphCanvas:
    canvas = GraphCanvas(document)
    canvas.resize(900, 700)
    qtbot.addWidget(canvas)
    canvas.show()
    qtbot.waitExposed(canvas)
    return canvas


def test_a_quick_picture_stands_in_until_kernels_are_there(qtbot: QtBot) -> None:
    document = Document()
    canvas = canvas_on(qtbot, document)
    graph = drawn(ATTENTION)
    try:
        document.runner.hold(Lane.LAYOUT)
        document.set_graph(graph, edits.unfused(graph))
        assert not canvas.has_scene
        qtbot.waitUntil(lambda: canvas.has_scene, timeout=5000)
        assert canvas.scene.layout.provisional
        assert canvas._state() == "Laying out 18 operators…"
        assert not canvas.grab().isNull()
        with qtbot.waitSignal(canvas.layout_shown, timeout=60_000):
            document.runner.release(Lane.LAYOUT)
        assert not canvas.scene.layout.provisional
        assert canvas._state() == ""
    finally:
        assert document.close()


def test_no_layout_runs_on_the_gui_thread(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from explorer.canvas import stage

    seen: list[bool] = []
    real = stage.lay_out

    def watched(*arguments: object) -> object:
        seen.append(threading.current_thread() is threading.main_thread())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "lay_out", watched)
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        with qtbot.waitSignal(hand.canvas.layout_shown, timeout=10_000):
            hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        assert seen == [False, False]


def test_a_drop_is_animated_and_ends_at_the_new_layout(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        canvas = hand.canvas
        canvas.stage.animated = True
        seen: list[float] = []
        canvas.stage.moved.connect(lambda: seen.append(float(canvas.scene.boxes[-1, 1])))
        hand.document.commit(from_text(graph, PLANS["tail outside"]), "other")
        plan = from_text(graph, PLANS["tail outside"])
        final = lay_out(LayoutRequest(graph, plan, {}))
        qtbot.waitUntil(lambda: bool((canvas.scene.boxes == final.boxes).all()), timeout=5000)
        assert len(set(seen)) > 2


def test_a_press_stops_the_animation_and_the_release_takes_it_on(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        canvas = hand.canvas
        canvas.stage.animated = True
        with qtbot.waitSignal(canvas.layout_shown, timeout=10_000):
            hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        boxes, camera = canvas.scene.boxes.copy(), canvas.camera
        hand.press((-5000.0, -5000.0))
        qtbot.wait(250)
        assert (canvas.scene.boxes == boxes).all() and canvas.camera == camera
        hand.release((-5000.0, -5000.0))
        final = lay_out(LayoutRequest(graph, hand.document.plan, {}))
        qtbot.waitUntil(lambda: bool((canvas.scene.boxes == final.boxes).all()), timeout=5000)
        assert canvas.scene.layout.plan is hand.document.plan


# The fit, and then the press: before the layout, on its way, long after it.
@pytest.mark.parametrize(
    ("fit_ms", "press_ms"), [(0, 0), (0, 100), (0, 500), (120, 50), (500, 0), (500, 500)]
)
def test_a_press_after_an_undo_and_a_fit_moves_nothing(qtbot: QtBot, fit_ms: int, press_ms: int) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        canvas = hand.canvas
        canvas.stage.animated = True
        canvas.set_camera(canvas.camera.zoomed(1.3, 0.0, 0.0))
        with qtbot.waitSignal(canvas.layout_shown, timeout=10_000):
            hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        hand.document.undo()
        qtbot.wait(fit_ms)
        canvas.zoom_to_fit()
        qtbot.wait(press_ms)
        camera, boxes = canvas.camera, canvas.scene.boxes.copy()
        x, y, right, bottom = canvas.scene.hull_rects[0].tolist()
        chosen = canvas.scene.plan.groups[0].operators
        hand.drag((x - 3, y - 3), (right + 3, bottom + 3), keys=Qt.KeyboardModifier.ShiftModifier)
        qtbot.wait(250)
        assert canvas.camera == camera and (canvas.scene.boxes == boxes).all()
        hand.release((right + 3, bottom + 3))
        assert set(chosen) <= set(hand.document.selection)
        final = lay_out(LayoutRequest(graph, hand.document.plan, {}))
        qtbot.waitUntil(lambda: bool((canvas.scene.boxes == final.boxes).all()), timeout=5000)


def test_a_fit_on_the_way_of_a_layout_holds_at_its_end(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        canvas = hand.canvas
        canvas.stage.animated = True
        with qtbot.waitSignal(canvas.layout_shown, timeout=10_000):
            hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        canvas.zoom_to_fit()
        fitted = canvas.camera
        final = lay_out(LayoutRequest(graph, hand.document.plan, {}))
        qtbot.waitUntil(lambda: bool((canvas.scene.boxes == final.boxes).all()), timeout=5000)
        size = canvas.stage.size
        assert canvas.camera == fitted
        assert fitted.zoom == Camera.fitting(final.bounds, size.width(), size.height()).zoom


@pytest.mark.parametrize("animated", [False, True])
def test_a_graph_seen_whole_stays_whole_through_edits_and_undo(qtbot: QtBot, animated: bool) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["whole"])) as hand:
        canvas = hand.canvas
        canvas.stage.animated = animated
        for change in (
            lambda: hand.document.commit(edits.unfused(graph), "apart"),
            hand.document.undo,
            hand.document.redo,
        ):
            change()
            final = lay_out(LayoutRequest(graph, hand.document.plan, {}))
            qtbot.waitUntil(lambda f=final: bool((canvas.scene.boxes == f.boxes).all()), timeout=5000)
            left, top, right, bottom = canvas.scene.layout.bounds
            seen = canvas.stage.seen
            assert seen[0] <= left and seen[1] <= top and seen[2] >= right and seen[3] >= bottom


def test_no_layout_comes_while_a_button_is_down_whatever_the_keys_do(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"])) as hand:
        boxes = hand.canvas.scene.boxes.copy()
        hand.drag((-900.0, -900.0), (-890.0, -890.0))  # a pan
        hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        hand.canvas.escape()
        qtbot.wait(300)
        assert hand.canvas.gesture is None and (hand.canvas.scene.boxes == boxes).all()
        hand.release((-890.0, -890.0))
        final = lay_out(LayoutRequest(graph, hand.document.plan, {}))
        qtbot.waitUntil(lambda: bool((hand.canvas.scene.boxes == final.boxes).all()), timeout=5000)


def test_an_operator_in_view_stays_where_it_is_seen_when_the_layout_changes(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"]), 0.8) as hand:
        canvas = hand.canvas
        hand.document.select((6,))
        canvas.reveal((6,))
        before = hand.at(canvas.stage.middle(6))
        with qtbot.waitSignal(canvas.layout_shown, timeout=10_000):
            hand.document.commit(from_text(graph, PLANS["whole"]), "all")
        after = hand.at(canvas.stage.middle(6))
        assert (after - before).manhattanLength() <= 2


def test_another_graph_replaces_the_scene(qtbot: QtBot) -> None:
    with hand_on(qtbot, drawn(ATTENTION)) as hand:
        canvas, document = hand.canvas, hand.document
        document.set_graph(None)
        assert not canvas.has_scene and not canvas.grab().isNull()
        other = drawn("a = Relu(x); b = Relu(a)")
        with qtbot.waitSignal(canvas.layout_shown, timeout=10_000):
            document.set_graph(other, edits.unfused(other))
        assert canvas.scene.graph is other and len(canvas.scene.boxes) == 2


def test_until_the_user_looks_around_the_best_side_is_shown(qtbot: QtBot) -> None:
    document = Document()
    canvas = canvas_on(qtbot, document)
    graph = drawn(ATTENTION)
    try:
        with qtbot.waitSignal(canvas.layout_shown, timeout=60_000):
            document.set_graph(graph, edits.contraction_tails(graph))
        canvas.resize(700, 900 + legend.HEIGHT)
        qtbot.wait(10)
        size, bounds = canvas.stage.size, canvas.scene.layout.bounds
        assert canvas.camera == Camera.fitting(bounds, size.width(), size.height()).snapped(1.0)
        canvas.zoom_in()
        zoom = canvas.camera.zoom
        middle = canvas.camera.to_world(350.0, 450.0)
        canvas.resize(800, 800 + legend.HEIGHT)
        qtbot.wait(10)
        assert canvas.camera.zoom == zoom
        assert canvas.camera.to_world(400.0, 400.0) == pytest.approx(middle, abs=2.0)
        assert canvas.stage.size == QSizeF(800, 800)
    finally:
        assert document.close()


def test_the_quick_picture_can_be_walked_and_pointed_at(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph) as hand:
        hand.canvas.stage._show(provisional(graph, edits.unfused(graph)))
        hand.document.select((0,))
        hand.canvas.walk_down()
        assert len(hand.document.selection) == 1
        assert hand.canvas.hit_at(QPointF(hand.at(hand.canvas.stage.middle(5)))).index == 5


def test_the_legend_lies_beside_the_picture_and_never_on_it(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph) as hand:
        canvas = hand.canvas
        for width, height in ((1200, 800), (460, 300), (200, 160), (90, 60)):
            canvas.resize(width, height)
            qtbot.wait(5)
            picture, strip = canvas.viewport().geometry(), canvas.legend.geometry()
            assert not picture.intersects(strip) and canvas.rect().contains(strip)
            assert strip.width() == picture.width() and strip.height() == legend.HEIGHT
        canvas.legend.show_scale(canvas.scene.traffic)
        assert not canvas.grab().isNull()


def test_the_quick_picture_follows_the_plan_without_overlaps(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph) as hand:
        stage = hand.canvas.stage
        stage._show(provisional(graph, edits.unfused(graph)))
        hand.document.commit(from_text(graph, PLANS["attention"]), "all")
        hulls = stage.scene.hull_rects
        assert len(hulls) == len(hand.document.plan.groups)
        for i, (left, top, right, bottom) in enumerate(hulls.tolist()):
            for other in hulls[:i].tolist():
                apart = left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
                assert apart
