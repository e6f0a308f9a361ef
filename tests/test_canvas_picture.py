"""What is drawn: the kept picture equals a fresh one, nothing raises, states are said in words and signs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QImage, QPainter, QPixmap
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from explorer import look
from explorer.canvas.camera import Camera
from explorer.canvas.heat import STEPS, UNKNOWN, OperatorTraffic
from explorer.canvas.layout import LayoutRequest, lay_out
from explorer.canvas.painter import ScenePainter, short_name, state_of, summary
from explorer.canvas.scene import Hit, Part, Scene
from explorer.canvas.tips import tip
from explorer.canvas.view import GraphCanvas
from explorer.digest import Digest
from explorer.names import group_tints
from model.graph.graph import OperatorGraph
from model.plan import edits
from model.plan.notation import from_text
from model.plan.plan import FusionGroup, Plan

from . import made_results
from .canvas_hand import hand_on
from .drawn import drawn
from .test_canvas_layout import ATTENTION, PLANS, random_graph, random_plan

SIZE = QSize(900, 700)
ZOOMS = (0.02, 0.1, 0.3, 0.5, 0.72, 1.0, 2.0)


def scene_of(graph: OperatorGraph, plan: Plan) -> Scene:
    return Scene(lay_out(LayoutRequest(graph, plan, {})))


def painted(scene: Scene, camera: Camera, size: QSize = SIZE) -> QImage:
    pixmap = QPixmap(size)
    painter = QPainter(pixmap)
    ScenePainter(scene).paint(painter, camera, QRectF(0, 0, size.width(), size.height()))
    painter.end()
    return pixmap.toImage().convertToFormat(QImage.Format.Format_RGB32)


def pixels(image: QImage) -> np.ndarray:
    plain = image.convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(plain.constBits(), dtype=np.uint8).reshape(plain.height(), plain.width(), 4)


def hand_scene() -> Scene:
    """The made result on its graph: a group that spills, one that does not fit."""
    scene = scene_of(made_results.chain(), made_results.plan())
    scene.set_result(Digest.of(made_results.cost()))
    return scene


# ------------------------------------------------------------------------------------ kept pictures


def kept(canvas: GraphCanvas) -> np.ndarray:
    picture = canvas.stage.picture()
    assert picture is not None
    return pixels(picture.toImage())


def assert_as_fresh(canvas: GraphCanvas, case: object) -> None:
    """The kept picture is the one that would be drawn now, but for glyphs that round another way."""
    after = kept(canvas).astype(np.int64)
    canvas.stage._backing.forget()
    differs = np.abs(after - kept(canvas).astype(np.int64)).max(axis=2) > 3
    assert differs.mean() < 1e-3, case


@pytest.mark.parametrize("zoom", [0.3, 0.8, 1.0])
def test_a_panned_picture_equals_one_drawn_anew(qtbot: QtBot, zoom: float) -> None:
    graph = random_graph(3)
    with hand_on(qtbot, graph, edits.contraction_tails, zoom) as hand:
        canvas = hand.canvas
        kept(canvas)
        for dx, dy in ((-40, -60), (13, -7), (-300, 5), (0, -699), (2000, 0), (-1999, 650)):
            canvas.set_camera(canvas.camera.panned(dx, dy))
            assert_as_fresh(canvas, (dx, dy))


def test_after_edits_the_kept_picture_equals_one_drawn_anew(qtbot: QtBot) -> None:
    graph = drawn(ATTENTION)
    with hand_on(qtbot, graph, lambda g: from_text(g, PLANS["attention"]), 0.8) as hand:
        document, canvas = hand.document, hand.canvas
        kept(canvas)
        for text in (PLANS["tail outside"], PLANS["whole"], "", PLANS["attention"]):
            document.preview(from_text(graph, text))
            assert_as_fresh(canvas, text)


def test_another_theme_draws_everything_anew(qtbot: QtBot, qapp: QApplication) -> None:
    with hand_on(qtbot, drawn(ATTENTION)) as hand:
        try:
            look.set_theme(qapp, "light")
            light = kept(hand.canvas)[5, 5].tolist()
            look.set_theme(qapp, "dark")
            dark = kept(hand.canvas)[5, 5].tolist()
        finally:
            look.set_theme(qapp, "light")
        assert max(dark[:3]) < 60 < 200 < min(light[:3])


# --------------------------------------------------------------------------------- nothing can break


def test_every_zoom_of_every_state_is_drawn(qapp: QApplication) -> None:
    scene = hand_scene()
    left, top, right, bottom = scene.layout.bounds
    for zoom in ZOOMS:
        camera = Camera((left + right) / 2 - 450 / zoom, (top + bottom) / 2 - 350 / zoom, zoom)
        image = pixels(painted(scene, camera))
        assert len(np.unique(image.reshape(-1, 4), axis=0)) >= 5, zoom


def test_graphs_of_any_size_are_drawn(qtbot: QtBot) -> None:
    with hand_on(qtbot, None) as hand:
        assert not hand.canvas.grab().isNull()
    with hand_on(qtbot, OperatorGraph("empty", (), ())) as hand:
        hand.canvas.walk_down()
        hand.canvas.next_group()
        hand.canvas.zoom_in()
        assert not hand.canvas.grab().isNull()
    with hand_on(qtbot, drawn("y = Relu(x)")) as hand:
        assert not hand.canvas.grab().isNull()
    chain = drawn("; ".join(["t0 = Relu(x)", *(f"t{i} = Relu(t{i - 1})" for i in range(1, 10_000))]))
    with hand_on(qtbot, chain) as hand:
        for zoom in (hand.canvas.camera.zoom, 0.05, 0.3, 1.0):
            hand.canvas.set_camera(replace(hand.canvas.camera, zoom=zoom))
            assert not hand.canvas.grab().isNull()


def test_names_of_any_kind_are_drawn_and_shortened(qtbot: QtBot) -> None:
    graph = drawn("a = Relu(x); b = MatMul(a, w); c = Softmax(b)")
    names = ("й" * 5000, "数据\n\t<b>bold</b> & 😀 عربى", "\u200b" * 40)
    operators = tuple(replace(o, name=n) for o, n in zip(graph.operators, names, strict=True))
    tensors = tuple(replace(t, name=t.name + "<i>" + "x" * 5000) for t in graph.tensors)
    odd = replace(graph, operators=operators, tensors=tensors)
    with hand_on(qtbot, odd, lambda g: from_text(graph, "[a b] [c]")) as hand:
        canvas = hand.canvas
        for zoom in (0.5, 1.0, 2.0):
            canvas.set_camera(replace(canvas.camera, zoom=zoom))
            assert not canvas.grab().isNull()
        text = tip(canvas.scene, Hit(Part.OPERATOR, 1), None)
        assert "&lt;b&gt;bold&lt;/b&gt; &amp;" in text and "<b>" not in text
        assert all(len(line) < 400 for line in text.split("<br>"))
        for hit in (Hit(Part.EDGE, 0), Hit(Part.CHIP, 0), Hit(Part.HULL, 0), Hit(Part.RIM, 1)):
            assert "<i>" not in tip(canvas.scene, hit, None)


# ------------------------------------------------------------------------------------ words and signs


def test_names_say_what_the_op_type_does_not() -> None:
    graph = drawn("a = MatMul(x, w)")
    for name, short in (
        ("/model/layers.0/q_proj/MatMul", "q_proj"),
        ("MatMul_3", "3"),
        ("node_MatMul_12", "12"),
        ("MatMul", ""),
        ("p2o.Add.3", "p2o.Add.3"),
        ("q\nproj", "q proj"),
    ):
        assert short_name(replace(graph.operators[0], name=name)) == short
    assert summary(["MatMul", "Add", "Add", "Relu"]) == "MatMul · Add ×2 · Relu"


def test_states_of_groups_have_a_sign_and_words() -> None:
    scene = hand_scene()
    states = [state_of(scene.result_of(group)) for group in range(4)]
    kinds = [kind for kind, _, _ in states]
    assert "warn" in kinds and "bad" in kinds
    for kind, word, words in states:
        assert bool(kind) == bool(word) == bool(words)
        assert words.startswith(word)
    assert state_of(None) == ("", "", "")


def test_tips_give_the_numbers_of_a_group_and_of_a_cut() -> None:
    scene, result = hand_scene(), made_results.cost()
    group = tip(scene, Hit(Part.HULL, 0), result)
    assert "latency" in group and "DRAM" in group and "3 operators" in group
    cut = tip(scene, Hit(Part.CHIP, 0), result)
    tensor = scene.graph.tensors[scene.chip(0).tensor]
    assert look.fmt_bytes_exact(tensor.bytes or 0) in cut and look.fmt_shape(tensor.shape) in cut
    assert "crosses from G1 to G2" in cut and "Double-click: fuse" in cut
    assert "not computed yet" in tip(scene_of(scene.graph, scene.plan), Hit(Part.HULL, 0), None)
    assert tip(scene, Hit(Part.NOTHING), result) == ""


# ------------------------------------------------------------------------------------------- heat


def test_heat_sums_to_the_traffic_of_dram_and_its_ends_are_the_scale() -> None:
    result = made_results.cost()
    traffic = OperatorTraffic(len(result.request.graph.operators))
    assert (traffic.steps() == UNKNOWN).all() and not traffic.known
    traffic.update(Digest.of(result))
    dram = result.request.accelerator.dram.name
    total = sum(sum(group.dram_bytes(dram)) for group in result.groups)
    assert traffic.bytes.sum() == total
    steps = traffic.steps()
    assert steps[int(np.argmax(traffic.bytes))] == STEPS - 1
    assert traffic.high == traffic.bytes.max()


def test_a_frozen_scale_keeps_its_ends_while_numbers_change() -> None:
    result = made_results.cost()
    traffic = OperatorTraffic(len(result.request.graph.operators))
    traffic.update(Digest.of(result))
    ends = traffic.low, traffic.high
    doubled = tuple(
        replace(group, traffic=tuple(replace(row, read_bytes=row.read_bytes * 8) for row in group.traffic))
        for group in result.groups
    )
    traffic.frozen = True
    traffic.update(Digest.of(replace(result, groups=doubled)))
    assert (traffic.low, traffic.high) == ends
    assert traffic.steps().max() == STEPS - 1
    traffic.frozen = False
    traffic.update(Digest.of(replace(result, groups=doubled)))
    assert traffic.high > ends[1]


# ------------------------------------------------------------------------------------------ hit test


@pytest.mark.parametrize("seed", range(4))
def test_what_is_under_a_point_is_what_is_drawn_there(seed: int) -> None:
    graph = random_graph(seed)
    scene = scene_of(graph, random_plan(graph, seed))
    for operator, (left, top, right, bottom) in enumerate(scene.boxes.tolist()):
        assert scene.hit((left + right) / 2, (top + bottom) / 2, 4.0) == Hit(Part.OPERATOR, operator)
    for index, (x, y) in enumerate(scene.chip_xy.tolist()):
        if x == x:
            assert scene.hit(x, y, 4.0) == Hit(Part.CHIP, index)
            assert scene.hit(x, y, 4.0, chips=False).part is not Part.CHIP
            assert scene.chip_at_edge(scene.chip(index).edge) == index
    for group in np.flatnonzero(scene.hull_drawn).tolist():
        left, top, right, bottom = scene.hull_rects[group].tolist()
        assert scene.hit(left + 14, bottom, 2.0) == Hit(Part.RIM, group)
        assert scene.hit(left + 14, top, 2.0) == Hit(Part.UPPER_RIM, group)
        assert scene.hit(left + 5, (top + bottom) / 2, 1.0) == Hit(Part.HULL, group)
        assert scene.group_at(left + 5, (top + bottom) / 2) == group
    left, top, _, _ = scene.layout.bounds
    assert scene.hit(left - 500, top - 500, 5.0) == Hit(Part.NOTHING)
    for edge in range(0, len(graph.edges), 7):
        x, y = scene.sampled(edge)[8]
        hit = scene.hit(float(x), float(y), 3.0, chips=False)
        assert hit.part in (Part.EDGE, Part.OPERATOR, Part.RIM, Part.UPPER_RIM)


def test_a_hull_that_would_enclose_strangers_is_the_union_of_its_boxes(qapp: QApplication) -> None:
    graph = drawn("a = Relu(x); b = Relu(a); c = Relu(b); d = Add(a, c)")
    scene = scene_of(graph, from_text(graph, "[a] [b c] [d]"))
    assert not scene.is_loose(0)
    scene.set_plan(from_text(graph, "[a b] [c d]"))
    assert not scene.is_loose(0) and not scene.is_loose(1)
    scene.set_plan(Plan.of([replace(scene.plan.groups[0], operators=(0, 3)), *singles(1, 2)]))
    assert scene.is_loose(0)
    path = ScenePainter(scene).hull_path(0)
    left, top, right, bottom = scene.boxes[1].tolist()
    assert not path.contains(QPointF((left + right) / 2, (top + bottom) / 2))
    for operator in (0, 3):
        left, top, right, bottom = scene.boxes[operator].tolist()
        assert path.contains(QPointF((left + right) / 2, (top + bottom) / 2))


def singles(*operators: int) -> list[FusionGroup]:
    return [FusionGroup((operator,)) for operator in operators]


# ------------------------------------------------------------------------------------------ pictures


def test_what_is_seen_is_saved_as_png_and_svg(qtbot: QtBot, tmp_path: Path) -> None:
    with hand_on(qtbot, drawn(ATTENTION), zoom=0.8) as hand:
        canvas = hand.canvas
        canvas.render_picture(tmp_path / "a.png", QSize(600, 400), 2.0)
        image = QImage(str(tmp_path / "a.png"))
        assert (image.width(), image.height()) == (1200, 800)
        canvas.render_picture(tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text(encoding="utf-8")
        assert text.startswith("<?xml") and "RMSNorm" in text
        with pytest.raises(OSError):
            canvas.render_picture(tmp_path / "nowhere" / "a.png")
        with pytest.raises(OSError):
            canvas.render_picture(tmp_path / "nowhere" / "a.svg")


def test_colours_of_groups_stay_with_their_first_operator() -> None:
    graph = drawn("; ".join(["t0 = Relu(x)", *(f"t{i} = Relu(t{i - 1})" for i in range(1, 64))]))
    for size in (1, 2, 3, 8, 16):
        groups = [tuple(range(i, min(i + size, 64))) for i in range(0, 64, size)]
        plan = Plan.of([FusionGroup(group) for group in groups])
        tints = group_tints(plan, 8)
        assert (tints[1:] != tints[:-1]).all() and tints.min() >= 0 and tints.max() < 8
    before = Plan.of([FusionGroup((i, i + 1)) for i in range(0, 64, 2)])
    after = edits.fuse(graph, before, (10, 12))
    kept = {group.operators: int(t) for group, t in zip(before.groups, group_tints(before, 8), strict=True)}
    changed = [
        group.operators
        for group, t in zip(after.groups, group_tints(after, 8), strict=True)
        if group.operators in kept and kept[group.operators] != t
    ]
    assert len(changed) <= 1
