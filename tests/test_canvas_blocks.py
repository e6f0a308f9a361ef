"""Closed blocks: one box each whatever the plan, opened and closed in place, edits inside them as safe as outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from explorer.canvas.accessible import CanvasInterface
from explorer.canvas.folding import Folding
from explorer.canvas.layout import LayoutRequest, lay_out
from explorer.canvas.positions import Layout
from explorer.canvas.scene import Hit, Part, Scene
from explorer.canvas.stage import opening
from explorer.canvas.tips import tip
from explorer.runner import Lane
from model.graph.graph import OperatorGraph
from model.graph.hierarchy import hierarchy
from model.plan import edits
from model.plan.plan import Plan

from .canvas_hand import Hand, hand_on
from .drawn import drawn
from .test_canvas_edits import candidates
from .test_canvas_layout import overlaps, random_graph, random_plan


def scoped(graph: OperatorGraph, scopes: list[str]) -> OperatorGraph:
    """The same graph with these scopes, ``a/b``, one per operator."""
    operators = zip(graph.operators, scopes, strict=True)
    parts = (replace(o, scope=tuple(p for p in scope.split("/") if p)) for o, scope in operators)
    return replace(graph, operators=tuple(parts))


def layers(count: int) -> OperatorGraph:
    """A chain of residual layers of six operators, ``layers.0`` and so on, with something before and after."""
    text, scopes, before = ["e = Relu(x)"], [""], "e"
    for i in range(count):
        text += [f"n{i} = RMSNorm({before})", f"a{i} = MatMul(n{i}, w)", f"b{i} = Relu(a{i})"]
        text += [f"c{i} = MatMul(b{i}, w)", f"d{i} = Relu(c{i})", f"r{i} = Add({before}, d{i})"]
        scopes += [f"layers.{i}"] * 6
        before = f"r{i}"
    return scoped(drawn("; ".join([*text, f"h = MatMul({before}, w)"])), [*scopes, ""])


def some_scopes(seed: int, count: int) -> list[str]:
    """Scopes in runs, with strangers among them."""
    rng = np.random.default_rng(seed)
    out = [f"s.{i // 9}/t.{i // 3}" if rng.random() < 0.9 else "s.0" for i in range(count)]
    return ["" if rng.random() < 0.1 else scope for scope in out]


def some_folding(graph: OperatorGraph, seed: int) -> Folding:
    """Disjoint blocks, closed at random."""
    found = hierarchy(graph)
    rng = np.random.default_rng(seed)
    closed: set[int] = set()
    for block in range(len(found.name)):
        if rng.random() < 0.5 and not closed.intersection(found.path(block)):
            closed.add(block)
    return Folding(len(graph.operators), found, frozenset(closed))


def place(graph: OperatorGraph, plan: Plan, folding: Folding | None) -> Layout:
    return lay_out(LayoutRequest(graph, plan, {}, folding))


@pytest.mark.parametrize("seed", range(12))
def test_closed_blocks_and_what_is_seen_of_groups_lie_apart(seed: int) -> None:
    bare = random_graph(seed)
    graph = scoped(bare, some_scopes(seed, len(bare.operators)))
    plan = random_plan(graph, seed)
    folding = some_folding(graph, seed)
    layout = place(graph, plan, folding)
    shown = folding.shown
    for slot, block in enumerate(folding.blocks):
        boxes = layout.boxes[folding.operators(block)]
        assert (boxes == boxes[0]).all() and folding.slot_of[folding.first[slot]] == slot
    boxes = np.concatenate([layout.boxes[shown], layout.boxes[folding.first]])
    assert np.array_equal(overlaps(boxes, boxes), np.eye(len(boxes), dtype=bool))
    for edge, (producer, consumer, _) in enumerate(graph.edges.tolist()):
        route = layout.route_points[layout.route_start[edge] : layout.route_start[edge + 1]]
        if layout.hidden[edge]:
            assert folding.slot_of[producer] == folding.slot_of[consumer] >= 0
            assert (route == route[0]).all()
        else:
            assert (np.diff(route[:, 1]) >= 0).all()  # lines run down: no box is its own ancestor
            assert route[0, 1] == layout.boxes[producer, 3] and route[-1, 1] == layout.boxes[consumer, 1]
    assert not layout.hidden[layout.pieces.edge].any()
    scene = Scene(layout)
    assert not scene.operators_in((-1e9, -1e9, 1e9, 1e9)).tolist() or shown.any()
    assert set(scene.operators_in((-1e9, -1e9, 1e9, 1e9)).tolist()) == set(np.flatnonzero(shown).tolist())
    assert len(scene.blocks_in((-1e9, -1e9, 1e9, 1e9))) == len(folding.blocks)
    for chip in scene.chips_in((-1e9, -1e9, 1e9, 1e9)).tolist():
        value = scene.chip(chip)
        assert value.source != value.target
        assert scene.chip_is_handle[chip] == (shown[value.producer] and shown[value.consumer])


@pytest.mark.parametrize("seed", range(4))
def test_with_everything_open_the_picture_is_that_of_a_graph_without_blocks(seed: int) -> None:
    bare = random_graph(seed)
    graph = scoped(bare, some_scopes(seed, len(bare.operators)))
    plan = random_plan(graph, seed)
    everything = Folding(len(graph.operators), hierarchy(graph))
    one, other = place(graph, plan, everything), place(graph, plan, None)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    np.testing.assert_array_equal(one.route_points, other.route_points)


def test_opening_revealing_and_closing() -> None:
    graph = scoped(
        drawn("; ".join(["t0 = Relu(x)", *(f"t{i} = Relu(t{i - 1})" for i in range(1, 12))])),
        [f"a.{i // 6}/b.{i // 3}" for i in range(12)],
    )
    whole = Folding(12, hierarchy(graph))
    found = whole.hierarchy
    assert found is not None
    top = whole.with_closed(found.children(-1).tolist())
    assert [top.name(slot) for slot in range(2)] == ["a.0", "a.1"] and top.boxes == 2
    inside = top.opening([top.blocks[0]])
    assert [inside.name(slot) for slot in range(3)] == ["b.0", "b.1", "a.1"]
    assert [found.name[block] for block in inside.opened] == ["a.0"]
    seen = top.revealing([4])
    assert [seen.name(slot) for slot in range(2)] == ["b.0", "a.1"] and seen.shown[3:6].all()
    assert seen.closing([4]).closed == inside.closed
    assert seen.closing([4]).closing([4]).closed == top.closed
    assert top.together(4) == (0, 1, 2, 3, 4, 5) and seen.together(4) == (4,)
    assert opening(layers(12), 100).closed == frozenset()
    assert len(opening(layers(12), 10).closed) == 12


@pytest.fixture
def hand(qtbot: QtBot):
    """Twelve layers, each closed."""
    with hand_on(qtbot, layers(12), zoom=1.0) as found:
        found.canvas.blocks.close_all_blocks()
        qtbot.waitUntil(lambda: len(found.canvas.scene.folding.blocks) == 12, timeout=60_000)
        yield found


def open_now(hand: Hand, blocks: int) -> None:
    hand.qtbot.waitUntil(lambda: len(hand.canvas.scene.folding.blocks) == blocks, timeout=60_000)


def settled(hand: Hand) -> None:
    """Until the layout of the last edit is shown."""
    stage, runner = hand.canvas.stage, hand.document.runner
    hand.qtbot.waitUntil(lambda: runner.is_idle and not stage.is_settling, timeout=60_000)
    hand.qtbot.wait(1)


def test_a_block_opens_where_it_was_clicked_and_closes_there(hand: Hand) -> None:
    canvas = hand.canvas
    canvas.stage.centre([hand.operator("n5")])
    before = hand.at(hand.middle("n5"))
    assert canvas.hit_at(before.toPointF()).part is Part.BLOCK
    hand.double_click(hand.middle("n5"))
    open_now(hand, 11)
    assert (hand.at(hand.middle("n5")) - before).manhattanLength() <= 2
    folding = canvas.scene.folding
    assert folding.hierarchy is not None
    assert [folding.hierarchy.name[block] for block in folding.opened] == ["layers.5"]
    left, top, _, _ = canvas.scene.frame(0)
    canvas.stage.centre([hand.operator("n5")])
    hand.double_click((left + 12, top + 8))
    open_now(hand, 12)
    assert hand.document.undo_stack.count() == 0  # it is no edit


def test_keys_open_close_and_walk_over_closed_blocks(hand: Hand) -> None:
    hand.document.select(hand.canvas.scene.folding.together(hand.operator("a3")))
    hand.canvas.walk_down()
    assert hand.operator("a4") in hand.document.selection and len(hand.document.selection) > 1
    hand.canvas.walk_up()
    assert hand.operator("a3") in hand.document.selection
    hand.key(Qt.Key.Key_Return)
    open_now(hand, 11)
    hand.document.select([hand.operator("a3")])
    hand.canvas.blocks.close_block()
    open_now(hand, 12)
    hand.qtbot.waitUntil(lambda: len(hand.document.selection) > 1)  # the block is selected as a whole
    hand.canvas.next_group()
    assert hand.operator("a4") in hand.document.selection
    hand.canvas.blocks.open_all_blocks()
    open_now(hand, 0)


def test_find_opens_what_hides_the_operator(hand: Hand) -> None:
    hand.canvas.blocks.uncover((hand.operator("b7"),))
    open_now(hand, 11)
    x, y = hand.canvas.camera.to_screen(*hand.middle("b7"))
    assert abs(x - 450) < 3 and abs(y - hand.canvas.stage.size.height() / 2) < 3


def test_edits_inside_and_across_closed_blocks_are_legal_and_undone(hand: Hand) -> None:
    before = hand.groups
    document, graph = hand.document, hand.document.graph
    assert graph is not None and document.plan is not None
    document.commit(edits.fuse(graph, document.plan, [hand.operator(n) for n in ("a2", "b2")]), "inside")
    document.commit(edits.fuse(graph, document.plan, [hand.operator(n) for n in ("r3", "n4")]), "across")
    settled(hand)
    assert "[a2 b2]" in hand.groups and "[r3 n4]" in hand.groups
    hand.double_click(hand.middle("n4"))
    open_now(hand, 11)
    group = int(hand.canvas.scene.group_of[hand.operator("n4")])
    assert hand.canvas.scene.members(group) == [hand.operator("n4")]  # r3 is in the closed layer above
    assert hand.canvas.scene.hull_drawn[group]
    document.undo()
    document.undo()
    settled(hand)
    assert hand.groups == before


@pytest.mark.parametrize("seed", range(3))
def test_after_random_edits_a_folded_scene_is_that_of_a_fresh_one(seed: int) -> None:
    bare = random_graph(seed)
    graph = scoped(bare, some_scopes(seed, len(bare.operators)))
    plan = edits.contraction_tails(graph)
    layout = place(graph, plan, some_folding(graph, seed))
    scene = Scene(layout)
    rng = np.random.default_rng(seed)
    for _ in range(25):
        plan = candidates(graph, plan, rng)
        scene.set_plan(plan)
        fresh = Scene(layout)
        fresh.set_plan(plan)
        fresh.set_layout(layout)
        for name in ("hull_rects", "hull_drawn", "chip_edges", "chip_is_handle", "seen_groups"):
            np.testing.assert_array_equal(getattr(scene, name), getattr(fresh, name), name)


def test_a_closed_block_says_what_it_holds(hand: Hand) -> None:
    scene = hand.canvas.scene
    hit = hand.canvas.hit_at(hand.at(hand.middle("n5")).toPointF())
    words = tip(scene, hit, None)
    assert "layers.5" in words and "operators" in words and "Enter" in words
    top = CanvasInterface(hand.canvas)
    assert top.childCount() == 12 + 2  # the layers, and what lies before and after them
    block = top.operator(hand.operator("n5"))
    assert block is not None
    assert block.text(QAccessible.Text.Name).startswith("layers.5, closed block, 6 operators")
    assert top.indexOfChild(block) == hit.index


def test_what_was_cancelled_can_be_asked_for_again(hand: Hand) -> None:
    canvas, runner = hand.canvas, hand.document.runner
    runner.hold(Lane.LAYOUT)
    canvas.blocks.turn(Hit(Part.BLOCK, 3), canvas.scene.folding.together(hand.operator("n3")))
    assert canvas.stage.is_folding
    runner.cancel()
    canvas.stage.cancelled()
    runner.release(Lane.LAYOUT)
    settled(hand)
    assert not canvas.stage.is_folding and len(canvas.scene.folding.blocks) == 12
    canvas.blocks.turn(Hit(Part.BLOCK, 3), canvas.scene.folding.together(hand.operator("n3")))
    open_now(hand, 11)


def test_a_first_layout_that_was_cancelled_begins_again(qtbot: QtBot) -> None:
    with hand_on(qtbot, None) as hand:
        hand.canvas.stage._quick.setInterval(10_000)  # no stand-in
        runner = hand.document.runner
        runner.hold(Lane.LAYOUT, Lane.PLAN)
        hand.document.set_graph(layers(3), Plan.unfused(20))
        runner.cancel()
        hand.canvas.stage.cancelled()
        runner.release(Lane.LAYOUT, Lane.PLAN)
        assert "cancelled" in hand.canvas._state() and not hand.canvas.has_scene
        hand.canvas.zoom_to_fit()
        qtbot.waitUntil(lambda: hand.canvas.has_scene, timeout=60_000)
        assert hand.canvas._state() == ""
