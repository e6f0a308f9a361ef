"""Where things lie: hulls apart, lines from box to box and through no foreign one, chips on free parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from explorer.canvas.blocks import CHIP, make_block
from explorer.canvas.cuts import CutTrack
from explorer.canvas.folding import Unit
from explorer.canvas.layout import LayoutRequest, Member, Unwanted, lay_out
from explorer.canvas.positions import Layout
from explorer.canvas.quick import provisional
from explorer.canvas.scene import Scene
from explorer.canvas.transition import between
from model.graph.graph import OperatorGraph
from model.plan import edits
from model.plan.notation import from_text
from model.plan.plan import Plan

from .drawn import drawn

ATTENTION = """
n = RMSNorm(x); q = MatMul(n, w1); k = MatMul(n, w2); v = MatMul(n, w3); kt = Transpose(k)
s = MatMul(q, kt); p = Softmax(s); c = MatMul(p, v); o = MatMul(c, w4); r = Add(x, o); h = RMSNorm(r)
g = MatMul(h, w5); u = MatMul(h, w6); sg = Sigmoid(g); sw = Mul(g, sg); m = Mul(sw, u); d = MatMul(m, w7)
y = Add(r, d)
"""
PLANS = {
    "unfused": "",
    "attention": "[q] [k kt] [v] [s p c] [o r h] [g sg sw u m] [d y]",
    "whole": "[n q k kt v s p c o r h g u sg sw m d y]",
    "tail outside": "[n q k v] [kt s p c] [g sg sw] [u m d y]",
}


def random_graph(seed: int, count: int = 60) -> OperatorGraph:
    rng = np.random.default_rng(seed)
    text = ["t0 = Relu(x)"]
    for i in range(1, count):
        sources = {int(max(0, i - 1 - rng.integers(0, 6))) for _ in range(int(rng.integers(1, 4)))}
        kind = ("MatMul", "Add", "Reshape", "Softmax", "Mul")[int(rng.integers(0, 5))]
        text.append(f"t{i} = {kind}({', '.join(f't{s}' for s in sorted(sources))})")
    return drawn("; ".join(text))


def random_plan(graph: OperatorGraph, seed: int) -> Plan:
    """Some legal fusions: tails, then edges fused in random order where that is allowed."""
    from model.errors import PlanError

    plan = edits.contraction_tails(graph)
    rng = np.random.default_rng(seed)
    for row in rng.permutation(len(graph.edges))[:25].tolist():
        producer, consumer, _ = graph.edges[row].tolist()
        try:
            plan = edits.fuse(graph, plan, (producer, consumer))
        except PlanError:
            continue
    return plan


def place(graph: OperatorGraph, plan: Plan, members: dict[Unit, Member] | None = None) -> Layout:
    return lay_out(LayoutRequest(graph, plan, {} if members is None else members))


def cases() -> list[tuple[OperatorGraph, Plan]]:
    graph = drawn(ATTENTION)
    found = [(graph, from_text(graph, text)) for text in PLANS.values()]
    for seed in range(8):
        other = random_graph(seed)
        found.append((other, random_plan(other, seed)))
    return found


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool[len(a), len(b)]: rectangles that share more than a line."""
    return (
        (a[:, None, 0] < b[None, :, 2] - 1e-6)
        & (a[:, None, 2] > b[None, :, 0] + 1e-6)
        & (a[:, None, 1] < b[None, :, 3] - 1e-6)
        & (a[:, None, 3] > b[None, :, 1] + 1e-6)
    )


@pytest.mark.parametrize("case", range(12))
def test_hulls_are_apart_and_hold_their_boxes(case: int) -> None:
    graph, plan = cases()[case]
    layout = place(graph, plan)
    frames = np.array([layout.frames[group.operators] for group in plan.groups])
    assert not (overlaps(frames, frames) & ~np.eye(len(frames), dtype=bool)).any()
    boxes = layout.boxes
    assert not (overlaps(boxes, boxes) & ~np.eye(len(boxes), dtype=bool)).any()
    for index, group in enumerate(plan.groups):
        inside = boxes[list(group.operators)]
        assert (inside[:, :2] >= frames[index, :2]).all() and (inside[:, 2:] <= frames[index, 2:]).all()


@pytest.mark.parametrize("case", range(12))
def test_lines_run_down_from_box_to_box_and_through_no_foreign_one(case: int) -> None:
    graph, plan = cases()[case]
    layout = place(graph, plan)
    for row, (producer, consumer, _) in enumerate(graph.edges.tolist()):
        route = layout.route_points[layout.route_start[row] : layout.route_start[row + 1]]
        (x0, y0), (x1, y1) = route[0], route[-1]
        assert y0 == layout.boxes[producer, 3] and y1 == layout.boxes[consumer, 1]
        assert layout.boxes[producer, 0] <= x0 <= layout.boxes[producer, 2]
        assert layout.boxes[consumer, 0] <= x1 <= layout.boxes[consumer, 2]
        assert (np.diff(route[:, 1]) >= 0).all()
        straight = np.array(
            [(ax, ay, bx, by) for (ax, ay), (bx, by) in pairwise(route.tolist()) if ax == bx and by > ay]
        ).reshape(-1, 4)
        crossed = overlaps(straight + np.array([-0.5, 0.0, 0.5, 0.0]), layout.boxes).any(axis=0)
        assert not crossed.any(), (producer, consumer, np.flatnonzero(crossed))


@pytest.mark.parametrize("case", range(12))
def test_chips_of_cuts_lie_on_no_box_no_hull_and_no_other_chip(case: int) -> None:
    graph, plan = cases()[case]
    layout = place(graph, plan)
    label = plan.membership
    edges = graph.edges
    crossing = label[edges[:, 0]] != label[edges[:, 1]]
    middles = np.unique(layout.anchors[crossing], axis=0)
    middles = middles[~np.isnan(middles).any(axis=1)]
    half = np.array([CHIP[0] / 2, CHIP[1] / 2])
    chips = np.concatenate([middles - half, middles + half], axis=1)
    assert len(chips) or len(plan.groups) == 1
    assert not overlaps(chips, layout.boxes).any()
    assert not overlaps(chips, np.array(list(layout.frames.values()))).any()
    assert not (overlaps(chips, chips) & ~np.eye(len(chips), dtype=bool)).any()


def test_a_layout_is_a_function_of_graph_and_plan_and_the_cache_changes_nothing() -> None:
    graph = drawn(ATTENTION)
    members: dict[Unit, Member] = {}
    before = from_text(graph, PLANS["attention"])
    first = place(graph, before, members)
    place(graph, from_text(graph, PLANS["whole"]), members)
    again = place(graph, from_text(graph, PLANS["attention"]), members)
    fresh = place(graph, before)
    for layout in (again, fresh):
        assert (layout.boxes == first.boxes).all()
        assert (layout.route_points == first.route_points).all()
        assert layout.frames == first.frames


def test_lines_into_a_hull_come_in_the_order_of_its_entries() -> None:
    graph = drawn("a = Relu(x); b = Relu(x2); c = Relu(x3); s = Relu(b); t = Add(c, s); u = Add(a, t)")
    layout = place(graph, from_text(graph, "[a] [b] [c] [s t u]"))
    label = np.array([0, 1, 2, 3, 3, 3])
    rows = np.flatnonzero(label[graph.edges[:, 0]] != label[graph.edges[:, 1]])
    leaves = [layout.route_points[layout.route_start[row], 0] for row in rows]
    enters = [layout.anchors[row, 0] for row in rows]
    assert np.argsort(leaves).tolist() == np.argsort(enters).tolist()


def test_equal_shapes_share_one_block() -> None:
    text = "; ".join(f"a{i} = MatMul(x{i}, w{i}); b{i} = Relu(a{i})" for i in range(9))
    graph = drawn(text)
    make_block.cache_clear()
    place(graph, edits.contraction_tails(graph))
    assert make_block.cache_info().misses == 1


def test_a_chain_of_ten_thousand_and_a_wide_join_are_placed() -> None:
    chain = drawn("; ".join(["t0 = Relu(x)", *(f"t{i} = Relu(t{i - 1})" for i in range(1, 10_000))]))
    layout = place(chain, edits.unfused(chain))
    assert (np.diff(layout.boxes[:, 1]) > 0).all()
    names = [f"r{i}" for i in range(300)]
    join = drawn(
        "; ".join(["s = Relu(x)", *(f"{n} = Relu(s)" for n in names), f"y = Sum({', '.join(names)})"])
    )
    wide = place(join, edits.unfused(join))
    assert np.isfinite(wide.boxes).all() and np.isfinite(wide.route_points).all()
    # Each of the three hundred has its chip below it: above the join there is no room for them.
    last = graph_rows(join, 301)
    assert not np.isnan(wide.anchors[last]).any()


def graph_rows(graph: OperatorGraph, consumer: int) -> np.ndarray:
    return np.flatnonzero(graph.edges[:, 1] == consumer)


def test_an_empty_graph_and_a_lone_operator_are_placed() -> None:
    empty = OperatorGraph("empty", (), ())
    assert place(empty, Plan(())).boxes.shape == (0, 4)
    assert provisional(empty, Plan(())).boxes.shape == (0, 4)
    lone = drawn("y = Relu(x)")
    layout = place(lone, edits.unfused(lone))
    assert layout.boxes.shape == (1, 4) and len(layout.route_points) == 0


@pytest.mark.parametrize("name", ["unfused", *PLANS])
def test_the_quick_picture_has_a_row_for_each_rank_and_no_overlaps(name: str) -> None:
    graph = drawn(ATTENTION)
    plan = from_text(graph, PLANS[name]) if name in PLANS else edits.unfused(graph)
    layout = provisional(graph, plan)
    assert layout.provisional
    producers, consumers = graph.edges[:, 0], graph.edges[:, 1]
    assert (layout.boxes[producers, 3] < layout.boxes[consumers, 1]).all()
    boxes = layout.boxes
    assert not (overlaps(boxes, boxes) & ~np.eye(len(boxes), dtype=bool)).any()
    scene = Scene(layout)
    hulls = scene.hull_rects
    assert not (overlaps(hulls, hulls) & ~np.eye(len(hulls), dtype=bool)).any()
    for group, (left, top, right, bottom) in zip(plan.groups, hulls.tolist(), strict=True):
        mine = boxes[list(group.operators)]
        assert left <= mine[:, 0].min() and right >= mine[:, 2].max()
        assert top <= mine[:, 1].min() and bottom >= mine[:, 3].max()
        assert (left + right) / 2 == pytest.approx(mine[:, [0, 2]].mean(), abs=0.5)
    assert len(scene.chip_edges) == 0 or not len(scene.chips_in(layout.bounds))  # no line keeps room for them


def test_the_way_between_two_layouts_begins_and_ends_at_them() -> None:
    graph = drawn(ATTENTION)
    before, after = (place(graph, from_text(graph, PLANS[name])) for name in ("attention", "tail outside"))
    assert np.allclose(between(before, after, {}, 0.0).boxes, before.boxes)
    assert np.allclose(between(before, after, {}, 1.0).boxes, after.boxes)


def test_a_cut_passes_operators_along_the_flow() -> None:
    graph = drawn("a = Relu(x); b = Relu(a); c = Relu(b); d = Relu(b); e = Add(c, d)")
    plan = from_text(graph, "[a b] [c d e]")
    layout = place(graph, plan)
    at = float(layout.boxes[1, 3] + layout.boxes[2, 1]) / 2
    track = CutTrack.between(graph, layout.boxes, (0, 1), (2, 3, 4), at)
    assert track.upper == (1, 0)
    assert set(track.lower[:2]) == {2, 3} and track.lower[2] == 4
    assert track.step_at(at) == 0
    heights = np.linspace(layout.boxes[0, 1] - 5, layout.boxes[4, 3] + 5, 400)
    steps = [track.step_at(float(y)) for y in heights]
    assert steps == sorted(steps) and set(steps) == {-2, -1, 0, 1, 2, 3}
    assert track.candidate(graph, plan, 0) is plan
    assert [g.operators for g in track.candidate(graph, plan, -1).groups] == [(0,), (1, 2, 3, 4)]
    assert [g.operators for g in track.candidate(graph, plan, 3).groups] == [(0, 1, 2, 3, 4)]


def test_a_layout_that_is_no_longer_wanted_ends_between_two_steps() -> None:
    graph = random_graph(1)
    asked: list[int] = []

    def unwanted() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(Unwanted):
        lay_out(LayoutRequest(graph, random_plan(graph, 1), {}), unwanted)
    assert len(asked) == 4
