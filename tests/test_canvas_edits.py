"""After any edits, undone or not, the canvas shows what a freshly opened window would show of that plan."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from explorer.canvas.accessible import CanvasInterface
from explorer.canvas.layout import LayoutRequest, lay_out
from explorer.canvas.painter import ScenePainter
from explorer.canvas.positions import Layout
from explorer.canvas.scene import MOST_UNPLACED, Scene, kept_groups
from explorer.canvas.view import GraphCanvas
from explorer.digest import Digest
from explorer.document import Document
from model.errors import PlanError
from model.graph.graph import OperatorGraph
from model.hardware.loader import load_hardware
from model.plan import edits
from model.plan.file import plan_digest
from model.plan.plan import FusionGroup, Plan

from .canvas_hand import Hand, hand_on
from .test_canvas_layout import random_graph, random_plan
from .test_canvas_picture import assert_as_fresh

WAIT_MS = 60_000


def rest(hand: Hand) -> None:
    """Until the numbers and the layout of the last edit are shown."""
    document, stage = hand.document, hand.canvas.stage

    def at_rest() -> bool:
        cost = document.cost
        computed = cost is not None and cost.request.plan is document.plan
        return computed and document.runner.is_idle and not stage.is_settling

    hand.qtbot.waitUntil(at_rest, timeout=WAIT_MS)
    hand.qtbot.wait(1)
    hand.qtbot.waitUntil(at_rest, timeout=WAIT_MS)


def candidates(graph: OperatorGraph, plan: Plan, rng: np.random.Generator) -> Plan:
    """A random legal edit."""
    while True:
        producer, consumer, _ = graph.edges[int(rng.integers(len(graph.edges)))].tolist()
        try:
            if rng.random() < 0.3:
                return edits.set_group(graph, plan, plan.group_of[producer], stages=int(rng.integers(1, 4)))
            return edits.toggle(graph, plan, producer, consumer)
        except PlanError:
            continue


def assert_same_scene(shown: Scene, layout: Layout, plan: Plan, digest: Digest | None) -> None:
    """`shown` has come to `plan` by edits; another scene of the same layout is given it at once."""
    fresh = Scene(layout)
    fresh.set_plan(plan)
    fresh.set_result(digest)
    for name in (
        "boxes",
        "hull_rects",
        "hull_drawn",
        "_loose",
        "chip_edges",
        "chip_xy",
        "crosses",
        "group_of",
    ):
        np.testing.assert_array_equal(getattr(shown, name), getattr(fresh, name), name)
    np.testing.assert_array_equal(shown.traffic.bytes, fresh.traffic.bytes)
    np.testing.assert_array_equal(shown.traffic.steps(), fresh.traffic.steps())
    np.testing.assert_array_equal(shown._looks(), fresh._looks())
    for group in range(len(plan.groups)):
        assert shown.result_of(group) is fresh.result_of(group)
        one, other = ScenePainter(shown), ScenePainter(fresh)
        assert one.hull_path(group) == other.hull_path(group)
        assert one.tint(group) == other.tint(group)


def assert_same_digest(digest: Digest) -> None:
    """A digest that took over rows of the one before is the digest of its result."""
    fresh = Digest.of(digest.result)
    assert digest.pairs == fresh.pairs
    for name in ("read", "written", "crosses", "operator_bytes", "figures", "looks"):
        np.testing.assert_array_equal(getattr(digest, name), getattr(fresh, name), name)
    for name in ("begin_s", "end_s", "bytes_per_s", "kind", "group"):
        np.testing.assert_array_equal(getattr(digest.demand, name), getattr(fresh.demand, name), name)


def spoken(canvas: GraphCanvas) -> list[list[str]]:
    """The names that a screen reader hears: each group's, then its operators'."""
    top = canvas.interface or CanvasInterface(canvas)
    out: list[list[str]] = []
    for index in range(top.childCount()):
        group = top.child(index)
        assert group is not None
        inside = [group.child(i) for i in range(group.childCount())]
        out.append([part.text(QAccessible.Text.Name) for part in (group, *inside) if part is not None])
    return out


def layout_of(document: Document) -> Layout:
    assert document.graph is not None and document.plan is not None
    return lay_out(LayoutRequest(document.graph, document.plan, {}))


@pytest.mark.parametrize("zoom", [0.3, 0.8])
def test_random_edits_undo_and_redo_show_what_a_fresh_window_shows(qtbot: QtBot, zoom: float) -> None:
    graph = random_graph(5)
    rng = np.random.default_rng(11)
    with hand_on(qtbot, graph, edits.contraction_tails, zoom) as hand:
        document, canvas = hand.document, hand.canvas
        document.set_accelerator(load_hardware("edge-npu"))
        rest(hand)
        canvas.interface = CanvasInterface(canvas)
        digests = [plan_digest(graph, document.plan)]
        actions = ["edit"] * 10 + ["undo"] * 5 + ["redo"] * 3 + ["edit"] * 2 + ["undo"] * 10
        at = 0
        for step, action in enumerate(actions):
            layout = canvas.scene.layout
            if action == "edit":
                document.commit(candidates(graph, document.plan, rng), f"edit {step}")
                at += 1
                digests[at:] = [plan_digest(graph, document.plan)]
            elif action == "undo":
                document.undo()
                at -= 1
            else:
                document.redo()
                at += 1
            assert plan_digest(graph, document.plan) == digests[at]
            # At once, over the old layout and with the old numbers; then at rest.
            assert_same_scene(canvas.scene, layout, document.plan, document.digest)
            assert_as_fresh(canvas, (step, action))
            if step % 3 == 2:
                rest(hand)
                assert_same_digest(document.digest)
                assert_same_scene(canvas.scene, layout_of(document), document.plan, document.digest)
                assert_as_fresh(canvas, (step, action))
                kept = spoken(canvas)
                canvas.interface = None
                assert kept == spoken(canvas)
                canvas.interface = CanvasInterface(canvas)
        assert at == 0


def test_an_escaped_drag_leaves_the_scene_as_it_was(qtbot: QtBot) -> None:
    graph = random_graph(6)
    rng = np.random.default_rng(3)
    with hand_on(qtbot, graph, edits.contraction_tails, 0.8) as hand:
        document, canvas = hand.document, hand.canvas
        document.set_accelerator(load_hardware("edge-npu"))
        rest(hand)
        plan, layout = document.plan, canvas.scene.layout
        canvas.stage.hold()
        for _ in range(6):
            document.preview(candidates(graph, plan, rng))
            assert_same_scene(canvas.scene, layout, document.shown_plan, document.digest)
        document.preview(None)
        canvas.stage.release()
        rest(hand)
        assert document.plan is plan and document.undo_stack.count() == 0
        assert canvas.scene.layout is layout
        assert_same_scene(canvas.scene, layout, plan, document.digest)
        assert_as_fresh(canvas, "escaped")


def test_groups_kept_by_an_edit_are_found_wherever_they_moved() -> None:
    for seed in range(12):
        graph = random_graph(seed)
        rng = np.random.default_rng(seed)
        before = random_plan(graph, seed)
        after = before
        for _ in range(int(rng.integers(0, 4))):
            after = candidates(graph, after, rng)
        places = {id(group): index for index, group in enumerate(before.groups)}
        want = [places.get(id(group), -1) for group in after.groups]
        assert kept_groups(before, after).tolist() == want
    one = Plan.unfused(3)
    assert kept_groups(one, Plan(())).tolist() == [] and kept_groups(Plan(()), one).tolist() == [-1, -1, -1]


def test_many_hulls_that_no_layout_placed_are_drawn_around_their_boxes() -> None:
    graph = random_graph(2, 1500)
    scene = Scene(lay_out(LayoutRequest(graph, edits.unfused(graph), {})))
    plan = edits.contraction_tails(graph)
    assert sum(len(group.operators) > 1 for group in plan.groups) > MOST_UNPLACED
    scene.set_plan(plan)
    for group, rect in zip(plan.groups, scene.hull_rects, strict=True):
        boxes = scene.boxes[list(group.operators)]
        assert (rect[:2] < boxes[:, :2]).all() and (rect[2:] > boxes[:, 2:]).all()


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 5000])
def test_groups_that_two_plans_share_are_found_over_stretches_of_any_length(count):
    chance = random.Random(count)
    before = Plan.unfused(count)
    index = {id(group): place for place, group in enumerate(before.groups)}
    for _ in range(20):
        groups = list(before.groups)
        for _ in range(chance.randint(0, 3)):
            if not groups:
                break
            at = chance.randrange(len(groups))
            members = tuple(o for group in groups[at : at + 2] for o in group.operators)
            groups[at : at + 2] = [FusionGroup(members)] if chance.random() < 0.7 else []
        expected = [index.get(id(group), -1) for group in groups]
        assert kept_groups(before, Plan(tuple(groups))).tolist() == expected
