"""The window: one list of actions, edits by key, find, tiles, layout that stays on the screen, opening."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, QRect, QSettings, Qt, QUrl
from PySide6.QtGui import QDropEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QScrollArea

from explorer import actions, export, look
from explorer.actions import ACTIONS, Owner
from explorer.bind_dialog import BindDialog
from explorer.chooser import Chooser, Entry, matching
from explorer.dialogs import KeySheet, key_rows
from explorer.docks import PLACES, on_screen
from explorer.document import Document
from explorer.panels.panel import Panel
from explorer.search import index
from explorer.startpage import Card
from explorer.tile_map import thinned
from explorer.tile_sizes import Fit, ladder, stepped, units
from explorer.window import Window
from model.cost.result import CostRequest
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.packaged import folder
from model.plan.edits import contraction_tails

from . import made_results, worked
from .explorer_engine import HandEngine, workload
from .test_explorer_document import merged, settle


@pytest.fixture(scope="module", autouse=True)
def theme(qapp: QApplication):
    look.prepare(qapp)
    look.set_theme(qapp, "light")


@pytest.fixture
def settings(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "settings.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def window(qtbot, settings):
    """A window with the hand-made engine and nothing open."""
    made = Window(Document(engine=HandEngine()), settings)
    made.canvas.stage.animated = False
    qtbot.addWidget(made)
    made.show()
    yield made
    assert made.document.close()


def at_rest(qtbot, window: Window) -> None:
    """Until every answer has arrived and the tile editor shows it."""
    settle(qtbot, window.document)
    qtbot.waitUntil(lambda: not window.tiles.is_due, timeout=5_000)


def fill(qtbot, window: Window) -> None:
    document = window.document
    document.set_accelerator(made_results.machine())
    document.set_workload(workload())
    document.set_graph(made_results.chain())
    at_rest(qtbot, window)


# ------------------------------------------------------------------------------------------ actions
def test_every_key_belongs_to_one_action():
    seen: dict[str, str] = {}
    for action in ACTIONS:
        for key in actions.shortcuts(action):
            text = key.toString(QKeySequence.SequenceFormat.PortableText)
            assert text, f"{action.id}: {action.shortcut!r} is no key"
            assert text not in seen, f"{text}: {action.id} and {seen.get(text)}"
            assert "Alt" not in text
            seen[text] = action.id
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)


def test_every_action_is_in_a_menu_in_the_palette_and_leads_to_a_method(window):
    in_menus = {
        found.objectName() for top in window.menuBar().actions() for found in top.menu().actions() if found
    }
    owners = {
        Owner.WINDOW: window,
        Owner.EDITOR: window.editor,
        Owner.CANVAS: window.canvas,
        Owner.BLOCKS: window.canvas.blocks,
    }
    for action in ACTIONS:
        assert action.id in in_menus
        assert callable(getattr(owners[action.owner], action.handler))
        assert action.tip and action.text
    window.command_palette()
    assert [entry.text for entry in window._choosing._entries] == [a.text.rstrip("…") for a in ACTIONS]
    window._choosing.reject()


def test_a_greyed_action_says_why(qtbot, window):
    window._refresh_actions()
    fuse = window.actions_by_id["plan.fuse"]
    assert not fuse.isEnabled() and "No model is open" in fuse.toolTip()
    fill(qtbot, window)
    window._refresh_actions()
    assert not fuse.isEnabled() and "Nothing is selected" in fuse.toolTip()
    window.document.select((1, 3))
    window._refresh_actions()
    assert fuse.isEnabled() and fuse.toolTip() == "Selected operators become one group"


def test_the_key_sheet_shows_every_key(qtbot, window):
    rows = dict(key_rows())
    shown = {keys for lines in rows.values() for keys, _ in lines}
    for action in ACTIONS:
        for key in actions.shortcuts(action):
            text = key.toString(QKeySequence.SequenceFormat.NativeText)
            assert any(text in line for line in shown)
    sheet = KeySheet(window)
    qtbot.addWidget(sheet)
    sheet.show()
    assert sheet.grab().width() <= sheet.screen().availableGeometry().width()
    (area,) = sheet.findChildren(QScrollArea)
    assert area.horizontalScrollBar().maximum() == 0


# -------------------------------------------------------------------------------------------- edits
def test_fuse_split_and_undo_by_key(qtbot, window):
    fill(qtbot, window)
    document = window.document
    start = document.plan
    window.activateWindow()
    document.select((2, 3))
    settle(qtbot, document)
    window.actions_by_id["plan.fuse"].trigger()
    assert [g.operators for g in document.plan.groups] == [(0, 1, 2, 3, 4), (5, 6, 7, 8), (9,)]
    document.select((4,))
    window.actions_by_id["plan.split"].trigger()
    assert (4,) in [g.operators for g in document.plan.groups]
    for _ in range(2):
        qtbot.wait(5)  # actions are enabled in the next turn of the event loop
        qtbot.keyClick(window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert document.plan == start


def test_grow_and_shrink_are_inverse(qtbot, window):
    fill(qtbot, window)
    document = window.document
    document.select((0,))
    window.editor.grow()
    assert document.plan.groups[0].operators == (0, 1, 2, 3)
    window.editor.shrink()
    assert document.plan.groups[0].operators == (0, 1, 2)


def test_nudging_the_cut_down_and_up_again_leaves_no_entry(qtbot, window):
    fill(qtbot, window)
    document = window.document
    start = document.plan
    document.select((2,))
    window.editor.cut_down()
    assert document.plan.groups[0].operators == (0, 1, 2, 3)
    window.editor.cut_down()
    assert document.plan.groups[0].operators == (0, 1, 2, 3, 4)
    assert document.undo_stack.count() == 1
    window.editor.cut_up()
    window.editor.cut_up()
    assert document.plan == start and document.undo_stack.count() == 0
    window.editor.cut_up()
    assert document.plan.groups[0].operators == (0, 1) and document.plan.groups[1].operators == (2, 3, 4)


def test_toggling_the_cut_twice_comes_back(qtbot, window):
    fill(qtbot, window)
    document = window.document
    start = document.plan
    document.select((4, 5))
    window.editor.toggle()
    assert len(document.plan.groups) == 3
    window.editor.toggle()
    assert document.plan == start


def test_a_refusal_is_said_and_its_fix_is_one_key_away(qtbot, window):
    fill(qtbot, window)
    document = window.document
    said: list[tuple[str, str]] = []
    document.said.connect(lambda *words: said.append(words))
    document.select((0, 9))
    before = document.plan
    window.editor.fuse()  # without what lies between, this would close a cycle
    assert document.plan is before and said[-1][1] == "warning" and "cycle" in said[-1][0]
    assert window.status.sentence.text().startswith("⚠")
    assert document.offer is not None
    qtbot.wait(5)
    window.actions_by_id["plan.fix"].trigger()
    assert len(document.plan.groups) == 1


def test_a_refusal_hides_the_bar_and_goes_with_the_next_undo(qtbot, window):
    fill(qtbot, window)
    document, bar = window.document, window.canvas.bar
    document.select((2, 3))
    window.editor.fuse()
    document.select((0, 9))
    assert bar.isVisibleTo(window)
    window.editor.fuse()
    assert document.offer is not None and not bar.isVisibleTo(window)
    document.undo()
    assert document.offer is None and window.status.sentence.text() == ""
    assert bar.isVisibleTo(window)


def test_verbs_without_a_selection_say_what_to_do(qtbot, window):
    fill(qtbot, window)
    window.document.select(())
    for verb in ("fuse", "split", "toggle", "grow", "shrink", "cut_up", "automatic_tile"):
        getattr(window.editor, verb)()
        assert "Select" in window.status.sentence.text()
    assert window.document.undo_stack.count() == 0


def test_moving_to_a_group_from_the_list(qtbot, window):
    fill(qtbot, window)
    window.document.select((4,))
    window.move_dialog()
    window._choosing.typed.setText("g3")
    window._choosing._search()
    window._choosing.take()
    assert window.document.plan.groups[2].operators == (4, 5, 6, 7, 8)


# --------------------------------------------------------------------------------------------- find
def test_find_by_name_type_shape_dtype_and_attribute():
    graph = made_results.chain()
    found = index(graph)

    def hits(text: str) -> set[int]:
        entries = [Entry(f.name, f.remark, f.words, lambda: None) for f in found]
        names = {entry.text for entry in matching(entries, text)}
        return {f.operator for f in found if f.name in names}

    assert hits("MatMul_6") == {6}
    assert hits("rmsnorm") == {0, 5}
    assert hits("1024x1024 bf16") == {1, 3, 6, 9}
    assert hits("alpha=0.5") == {7}
    assert hits("k=1024") == {1, 3, 6, 9}
    assert hits("no such thing") == set()


def test_find_points_and_selects(qtbot, window):
    fill(qtbot, window)
    window.find()
    window._choosing.typed.setText("silu")
    window._choosing._search()
    qtbot.keyClick(window._choosing.typed, Qt.Key.Key_Return)
    assert window.document.selection == (7,)
    stage = window.canvas.stage
    x, y = stage.camera.to_screen(*stage.middle(7))
    assert abs(x - stage.size.width() / 2) < 1 and abs(y - stage.size.height() / 2) < 1


def test_a_chooser_says_when_nothing_matches(qtbot, window):
    chooser = Chooser(window, "Find", "…", [Entry("a", "", "a", lambda: None)])
    qtbot.addWidget(chooser)
    chooser.typed.setText("zzz")
    chooser._search()
    assert "Nothing matches" in chooser.count.text()
    chooser.take()  # nothing is marked: nothing happens


# -------------------------------------------------------------------------------------------- tiles
def test_the_ladder_is_legal_ascending_and_short():
    for extent in (1, 2, 7, 64, 100, 4096, 14_336, 151_936):
        for unit in (1, 16, 32):
            sizes = ladder(extent, unit)
            assert sizes == tuple(sorted(set(sizes))) and sizes[0] == 1 and sizes[-1] == extent
            assert len(sizes) <= 48
    assert 128 in ladder(14_336, 32)


def test_steps_pass_the_rungs_and_stop_at_the_ends():
    rungs = ladder(512, 32)
    assert stepped(128, 512, 32, 1) == rungs[rungs.index(128) + 1]
    assert stepped(128, 512, 32, -1) == rungs[rungs.index(128) - 1]
    assert stepped(130, 512, 32, -1) == 128
    assert stepped(512, 512, 32, 5) == 512 and stepped(1, 512, 32, -5) == 1


def test_fit_words():
    assert Fit(128, 512, 32).words == "aligned · 4 trips"
    assert Fit(192, 14_336, 32).words == "ragged · 75 trips"
    assert Fit(100, 512, 32).words == "off 32 · 6 trips"
    assert Fit(512, 512, 32).words == "aligned · one trip"
    assert Fit(1, 2, 1).words == "2 trips" and Fit(3, 8, 1).words == "3 trips"  # nothing to be aligned to
    assert "96 or 128" in Fit(100, 512, 32).tip


def test_units_follow_the_roles_of_the_dims():
    result = made_results.cost()
    machine = replace(
        made_results.machine(),
        matrix_unit=replace(made_results.machine().matrix_unit, rows=16, columns=64),
    )
    flow = machine.matrix_unit.dataflow
    wanted = {"output-stationary": (16, 64, 1), "weight-stationary": (1, 64, 16)}[flow]
    request = replace(result.request, accelerator=machine)
    assert units(request, 1) == dict(zip("mnk", wanted, strict=True))


def test_a_batch_is_never_judged_by_the_array():
    graph = load_graph("swiglu_mlp")  # b x m rows of tokens, as b_2 and b_3 where they differ
    request = CostRequest(graph, load_hardware("edge-npu"), contraction_tails(graph), "", 0)
    for group in range(len(request.plan.groups)):
        wide = units(request, group)
        batch = [unit for dim, unit in wide.items() if dim.startswith("b")]
        assert all(unit == 1 for unit in batch)
        assert len(batch) == 1 or "m" not in wide
    assert any(max(units(request, group).values()) > 1 for group in range(len(request.plan.groups)))


def test_stepping_typing_and_taking_best(qtbot, window):
    fill(qtbot, window)
    document, tiles = window.document, window.tiles
    document.select((3,))
    at_rest(qtbot, window)
    assert tiles.title == "Tile · G2"
    row = tiles.rows[0]
    assert row.dim == "m" and row.state.text() == "chosen"
    row.step(1)
    assert dict(document.plan.groups[1].level("buffer").tile)["m"] > 128
    row.number.setFocus()
    row.number.setText("100")
    row.number.setModified(True)
    qtbot.keyClick(row.number, Qt.Key.Key_Return)
    assert dict(document.plan.groups[1].level("buffer").tile) == {"m": 100}
    assert document.undo_stack.count() == 1  # both were the tile of m
    at_rest(qtbot, window)
    assert row.state.text() == "set ×" and tiles.automatic.isVisibleTo(tiles)
    tiles.automatic.click()
    assert not document.plan.groups[1].has_knobs
    at_rest(qtbot, window)
    assert not tiles.automatic.isVisibleTo(tiles)  # nothing is set: the tool's own choice is in use


def filled_map(qtbot, window):
    """The map of the second group, every cell known."""
    fill(qtbot, window)
    window.document.select((3,))
    settle(qtbot, window.document)
    chart = window.tiles.map
    qtbot.waitUntil(lambda: chart._key is not None and not chart._missing(), timeout=20_000)
    return chart


def test_the_fastest_cell_of_the_map_is_offered_only_where_it_gains(qtbot, window):
    chart = filled_map(qtbot, window)
    document, tiles = window.document, window.tiles
    now_s = document.cost.groups[1].latency_s
    assert chart._now in chart._cells  # the plan's own sizes have a cell: the fastest and now compare
    assert chart._pick == chart._now  # nothing is set: now is the tool's pick
    chart._cells = dict.fromkeys(chart._cells, (now_s, True))
    chart.completed.emit()
    assert not tiles.fastest.isVisibleTo(tiles) and not tiles.automatic.isVisibleTo(tiles)
    cell = next(each for each in chart._cells if each != chart._now)
    chart._cells[cell] = (now_s / 2.0, True)
    chart.completed.emit()
    gain = look.fmt_delta(now_s / 2.0, now_s, "seconds")
    assert tiles.fastest.isVisibleTo(tiles) and tiles.fastest.text() == f"Use the map's fastest: {gain}"
    assert not tiles.automatic.isVisibleTo(tiles)
    tiles.fastest.click()
    dims = chart._key.dims
    assert dict(document.plan.groups[1].level("buffer").tile) == dict(zip(dims, cell, strict=True))
    settle(qtbot, document)
    qtbot.waitUntil(lambda: tiles.automatic.isVisibleTo(tiles), timeout=5000)
    assert tiles.automatic.text() == "Let the tool choose"


def test_the_axes_of_the_map_are_the_longest_dims_until_others_are_picked(qtbot, window):
    chart = filled_map(qtbot, window)
    assert chart._key.dims == ("n", "k")  # of m 512, n 1024, k 1024
    assert [chart.across.itemText(i) for i in range(chart.across.count())] == ["m", "n", "k"]
    chart.across.setCurrentText("m")
    chart.across.activated.emit(0)
    assert chart._key.dims == ("m", "k") and not chart._cells
    qtbot.waitUntil(lambda: not chart._missing(), timeout=20_000)
    chart.down.setCurrentText("m")  # the other axis gives way
    chart.down.activated.emit(0)
    assert chart._key.dims == ("k", "m")
    window.document.select((0,))
    qtbot.waitUntil(lambda: chart._index == 0, timeout=5000)
    assert chart._key.dims == ("n", "k")


def test_the_old_map_is_empty_while_the_new_one_is_not_there(qtbot, window):
    chart = filled_map(qtbot, window)
    document = window.document
    rect = chart._rect(1, 1).center().toPoint()

    def colour() -> str:
        return chart.grab().toImage().pixelColor(rect * chart.devicePixelRatioF()).name()

    known = colour()
    document.engine.gate.clear()
    window.tiles.set_size("m", 64, preview=True)  # not a dim of the map: another map
    assert chart._stale and colour() == look.palette().sunken.name() != known
    assert chart.faster() is None
    document.preview(None)
    assert not chart._stale and colour() == known
    window.tiles.set_size("n", 64)  # the same map, another place in it
    assert not chart._stale
    document.engine.gate.set()


def test_the_sizes_of_the_map_hold_where_the_plan_is():
    ladder_of = tuple(2**i for i in range(15))
    for now in (1, 3, 100, 256, 5000, 16384, 20000):
        for most in (3, 11, 15, 40):
            sizes = thinned(ladder_of, now, most)
            assert now in sizes and list(sizes) == sorted(set(sizes)) and len(sizes) <= max(most, 16)
            assert sizes[0] == 1 and sizes[-1] >= 16384


def test_enter_in_a_size_gives_the_keys_back_and_a_size_too_large_is_the_whole_dim(qtbot, window):
    fill(qtbot, window)
    document, tiles = window.document, window.tiles
    document.select((3,))
    at_rest(qtbot, window)
    window.activateWindow()
    row = tiles.rows[0]
    before, extent = document.plan, row.fit.extent
    row.number.setFocus()
    row.number.selectAll()
    qtbot.keyClicks(row.number, f"{extent}0")
    assert row.number.text() == f"{extent}0"
    qtbot.keyClick(row.number, Qt.Key.Key_Return)
    assert dict(document.plan.groups[1].level("buffer").tile) == {"m": extent}
    assert f"{extent}0" in window.status.sentence.text().replace(",", "")
    assert not row.number.hasFocus() and window.canvas.hasFocus()
    qtbot.wait(5)
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert document.plan == before


def test_tiles_that_an_edit_or_a_machine_drops_are_named(qtbot, window):
    fill(qtbot, window)
    document, words = window.document, window.status.sentence
    document.select((3,))
    at_rest(qtbot, window)
    window.tiles.rows[0].put(32)
    machine = made_results.machine()
    shared = replace(machine.memory[1], name="shared")
    document.set_accelerator(replace(machine, name="a100", memory=(machine.memory[0], shared)))
    assert "Tiles set for buffer do not apply to a100's shared" in words.text()
    document.set_accelerator(machine)
    assert words.text() == ""
    document.select((2, 3))
    window.editor.fuse()
    assert words.text().startswith("G1: the tile is chosen anew")


def test_scrubbing_previews_and_is_one_entry(qtbot, window):
    fill(qtbot, window)
    document, row = window.document, window.tiles.rows[0]
    document.select((3,))
    at_rest(qtbot, window)
    before = document.plan
    number = row.number
    start = number.rect().center()
    qtbot.mousePress(number, Qt.MouseButton.LeftButton, pos=start)
    for step in (6, 14, 24):
        qtbot.mouseMove(number, start + type(start)(step, 0))
    assert document.previewing and document.plan is before
    qtbot.mouseRelease(number, Qt.MouseButton.LeftButton, pos=start)
    assert document.undo_stack.count() == 1 and not document.previewing
    document.undo()
    assert document.plan == before


def test_order_and_stages_are_knobs(qtbot, window):
    fill(qtbot, window)
    document, tiles = window.document, window.tiles
    document.select((3,))
    at_rest(qtbot, window)
    tiles.order.setCurrentIndex(2)
    tiles.order.activated.emit(2)
    assert document.plan.groups[1].level("buffer").loop_order == tiles.order.itemData(2)
    at_rest(qtbot, window)
    tiles.stages.activated.emit(1)
    assert document.plan.groups[1].stages == 1


def test_the_tile_map_fills_in_the_background_and_a_click_sets_both(qtbot, window):
    fill(qtbot, window)
    document, chart = window.document, window.tiles.map
    document.select((3,))
    qtbot.waitUntil(lambda: len(chart._cells) == len(chart._columns) * len(chart._rows) > 0, timeout=20_000)
    where = chart._rect(1, 2).center().toPoint()
    chart.resize(220, chart.height())
    qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart._rect(1, 2).center().toPoint())
    assert where is not None
    tile = dict(document.plan.groups[1].level("buffer").tile)
    assert tile == {"n": chart._columns[1], "k": chart._rows[2]}


# ------------------------------------------------------------------------------------ layout, theme
def test_a_geometry_beyond_the_screen_is_brought_back():
    screens = [QRect(0, 0, 1280, 720), QRect(1280, 0, 800, 600)]
    assert on_screen(QRect(5000, 5000, 900, 700), screens) == QRect(380, 20, 900, 700)
    assert on_screen(QRect(-200, -50, 2000, 2000), screens) == screens[0]
    assert on_screen(QRect(1400, 100, 300, 300), screens) == QRect(1400, 100, 300, 300)
    assert on_screen(QRect(1, 2, 3, 4), []) == QRect(1, 2, 3, 4)


@pytest.mark.parametrize(("height", "tabbed"), [(880, False), (680, True)])
def test_registers_are_a_tab_beside_the_traffic_only_in_a_short_window(qtbot, settings, height, tabbed):
    document = Document(engine=HandEngine())
    window = Window(document, settings)
    qtbot.addWidget(window)
    window.resize(1400, height)
    window.show()
    fill(qtbot, window)
    qtbot.wait(20)
    docks = window.docks
    beside = docks.docks["registers"] in docks.tabifiedDockWidgets(docks.docks["traffic"])
    assert beside is tabbed and window.height() == height
    window.resize(1400, 880)
    qtbot.wait(20)
    window.reset_layout()
    assert not docks.tabifiedDockWidgets(docks.docks["traffic"])
    assert document.close()


def test_the_layout_is_kept_and_reset(qtbot, settings):
    first = Window(Document(engine=HandEngine()), settings)
    qtbot.addWidget(first)
    first.show()
    first.docks.docks["demand"].close()
    first.docks.docks["traffic"].setFloating(True)
    first.docks.docks["traffic"].move(9000, 9000)
    first.close()
    second = Window(Document(engine=HandEngine()), settings)
    qtbot.addWidget(second)
    second.show()
    second.document.set_graph(made_results.chain())
    assert not second.docks.docks["demand"].isVisible()
    floating = second.docks.docks["traffic"]
    assert floating.isFloating() and second.screen().availableGeometry().contains(
        floating.geometry().topLeft()
    )
    second.reset_layout()
    assert all(second.docks.docks[name].isVisibleTo(second.docks) for name in PLACES if name != "groups")
    assert not floating.isFloating()
    second.close()


def test_a_layout_of_another_version_is_ignored(qtbot, settings):
    settings.setValue("window/docks", b"not a layout")
    made = Window(Document(engine=HandEngine()), settings)
    qtbot.addWidget(made)
    made.show()
    assert not made.docks.docks["traffic"].isFloating()
    made.close()


def test_f6_goes_round_the_panels(qtbot, window):
    fill(qtbot, window)
    window.activateWindow()
    window.canvas.setFocus()
    names = [window.docks.step_focus(1) for _ in range(len(PLACES) + 1)]
    assert set(names) == {*PLACES, "canvas"} and names[-1] == "canvas"
    assert window.docks.step_focus(-1) == names[-2]


def test_both_themes_repaint_the_window(qtbot, window):
    fill(qtbot, window)
    light = window.grab().toImage().pixelColor(3, 3)
    window.switch_theme()
    assert look.palette().dark and window.settings.value("theme") == "dark"
    dark = window.grab().toImage().pixelColor(3, 3)
    assert light.lightness() > 200 and dark.lightness() < 60
    window.theme_light()
    assert not look.palette().dark


# -------------------------------------------------------------------------------- opening, exporting
def test_the_menu_of_recent_files_calls_a_sample_by_its_name(qtbot, window, tmp_path):
    mine = tmp_path / "mine.onnx"
    mine.write_bytes(b"x")
    sample = folder("sample_graphs") / "swiglu_mlp.onnx"
    window.settings.setValue("recent", [str(sample), str(mine), str(tmp_path / "gone.onnx")])
    window._fill_recent()
    assert [entry.text() for entry in window.recent_menu.actions()] == ["swiglu_mlp (sample)", "mine.onnx"]


def test_the_start_page_lists_samples_and_recent_files(qtbot, window, tmp_path):
    recent = tmp_path / "mine.onnx"
    recent.write_bytes(b"x")
    sample = folder("sample_graphs") / "swiglu_mlp.onnx"
    window.start.show_recent([str(recent), str(tmp_path / "gone.onnx"), str(sample)])
    names = [card.text() for card in window.start.findChildren(Card)]
    assert "transformer_block" in names and "mine.onnx" in names and "gone.onnx" not in names
    assert "swiglu_mlp.onnx" not in names and names.count("swiglu_mlp") == 2
    assert window.pages.currentWidget() is window.start
    with qtbot.waitSignal(window.start.wanted) as wanted:
        next(c for c in window.start.findChildren(Card) if c.text() == "mine.onnx").click()
    assert wanted.args == [str(recent)]


def test_a_file_that_cannot_be_read_is_explained_on_the_start_page(qtbot, window):
    window.open("missing.onnx")
    qtbot.waitUntil(lambda: window.start.error.isVisible(), timeout=20_000)
    assert "no such file. Choose another." in window.start.error.text()


def test_a_dropped_file_is_opened(qtbot, window, tmp_path):
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(tmp_path / "a.onnx")), QUrl.fromLocalFile(str(tmp_path / "b.onnx"))])
    window.dropEvent(
        QDropEvent(
            QPointF(5, 5),
            Qt.DropAction.CopyAction,
            mime,
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )
    )
    qtbot.waitUntil(lambda: window.document.graph is not None, timeout=20_000)
    settle(qtbot, window.document)
    assert window.pages.currentWidget() is window.docks


def test_the_window_opens_on_the_worked_graph(qtbot, window):
    document = window.document
    document.set_accelerator(made_results.machine())
    document.set_graph(worked.graph(), contraction_tails(worked.graph()))
    settle(qtbot, document)
    assert window.header.name.text() == "worked"
    assert not window.grab().isNull()


def test_dims_are_bound_by_their_names(qtbot, window):
    fill(qtbot, window)
    dialog = BindDialog(window, window.document.graph)
    qtbot.addWidget(dialog)
    assert list(dialog.fields) == ["seq"]
    dialog.fields["seq"].setValue(77)
    assert dialog.bindings() == {"seq": 77}


def test_exports_add_their_suffix_and_hold_what_is_seen(qtbot, window, tmp_path, monkeypatch):
    fill(qtbot, window)
    target = tmp_path / "out"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", staticmethod(lambda *_: (str(target), "")))
    for verb, suffix in (
        ("save_plan", ".json"),
        ("export_csv", ".csv"),
        ("export_picture", ".png"),
        ("export_svg", ".svg"),
    ):
        getattr(window, verb)()
        assert (tmp_path / f"out{suffix}").stat().st_size > 0
        assert "Written" in window.status.sentence.text()
    table = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == 5 and table[0].startswith("group,operators,latency_s")
    saved = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [group["operators"][0] for group in saved["groups"]] == [
        "RMSNorm_0",
        "MatMul_3",
        "RMSNorm_5",
        "MatMul_9",
    ]
    assert window.document.undo_stack.isClean()


def test_plans_are_saved_where_the_last_plan_was_and_at_home_where_that_is_closed(
    qtbot, window, tmp_path, monkeypatch
):
    fill(qtbot, window)
    proposed: list[Path] = []
    models, plans, home = tmp_path / "models", tmp_path / "plans", tmp_path / "home"
    for folder_ in (models, plans, home):
        folder_.mkdir()

    def ask(_parent, _title, proposal, _kind):
        proposed.append(Path(proposal).parent)
        return str(plans / "mine.json"), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", staticmethod(ask))
    monkeypatch.setattr(Path, "home", staticmethod(lambda: home))
    window.settings.setValue("folder", str(models))
    assert window.save_plan() and window.save_plan()
    assert proposed == [models, plans]
    window.export_csv()  # other files stay where the last file was
    assert proposed[-1] == models
    window.settings.setValue("plan_folder", str(tmp_path / "gone"))
    assert window.save_plan()
    assert proposed[-1] == home


def test_letters_in_a_size_are_refused_in_words(qtbot, window):
    fill(qtbot, window)
    window.document.select((3,))
    at_rest(qtbot, window)
    number = window.tiles.rows[0].number
    number.setFocus()
    number.selectAll()
    qtbot.keyClicks(number, "a")
    assert "a size is a whole number" in window.tiles.words.text() + window.status.sentence.text()


def test_an_export_that_fails_is_said(qtbot, window, tmp_path, monkeypatch):
    fill(qtbot, window)
    nowhere = str(tmp_path / "no" / "such" / "folder")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", staticmethod(lambda *_: (nowhere, "")))
    for verb in ("export_csv", "export_picture", "save_plan"):
        getattr(window, verb)()
        assert window.status.sentence.text().startswith("✕")


def test_suffixes():
    assert export.with_suffix("a", ".png").name == "a.png"
    assert export.with_suffix("a.PNG", ".png").name == "a.PNG"
    assert export.with_suffix("a.b", ".png").name == "a.b.png"


def test_what_runs_is_shown_after_a_while_and_can_be_cancelled(qtbot, window):
    fill(qtbot, window)
    document, status = window.document, window.status
    assert not status.cancel.isVisible()
    document.engine.gate.clear()
    document.select((0,))
    window.editor.grow()
    qtbot.waitUntil(lambda: status.cancel.isVisible(), timeout=20_000)
    assert "Computing" in status.work.text()
    status.cancel.click()
    document.engine.gate.set()
    settle(qtbot, document)
    assert not status.cancel.isVisible()
    # No answer comes for the plan that is shown: the strip says whose numbers these are.
    assert document.cost.request.plan != document.shown_plan
    qtbot.waitUntil(lambda: all(metric.shown.aside == "not computed" for metric in window.header.metrics))
    document.undo()
    settle(qtbot, document)
    assert all(metric.shown.aside != "not computed" for metric in window.header.metrics)


def test_the_window_says_that_kernels_compile_and_edits_wait(qtbot, window, monkeypatch):
    document = window.document
    monkeypatch.setattr(document.kernels, "start", lambda: None)
    document.start_kernels()
    fill_without_waiting = made_results.chain()
    document.set_accelerator(made_results.machine())
    document.set_graph(fill_without_waiting)
    document.kernels.take_output("kernel 3 of 41: model.cost.traffic.evaluate\n")
    assert "Compiling kernels, 3 of 41" in window.status.work.text() and window.status.work.isVisible()
    document.select((1, 3))
    window._refresh_actions()
    assert "still compiling" in window.actions_by_id["plan.fuse"].toolTip()
    window.editor.fuse()
    assert document.undo_stack.count() == 0
    document.kernels.finished.emit(True, "")
    qtbot.waitUntil(lambda: document.cost is not None, timeout=20_000)
    settle(qtbot, document)
    assert not window.status.work.isVisible() and document.ready


def test_a_panel_behind_another_tab_draws_nothing_until_it_comes_to_the_front(qtbot, window):
    fill(qtbot, window)
    qtbot.wait(50)
    panels = {name: window.docks.docks[name].findChild(Panel) for name in ("demand", "groups")}
    drawn: list[str] = []
    for name, panel in panels.items():
        panel.redraw = lambda name=name, real=panel.redraw: (drawn.append(name), real())  # type: ignore
    window.document.commit(merged(window.document.plan, 0), "Fuse")
    settle(qtbot, window.document)
    qtbot.waitUntil(lambda: "demand" in drawn, timeout=5_000)
    qtbot.wait(50)
    assert "groups" not in drawn
    window.docks.docks["groups"].raise_()
    qtbot.waitUntil(lambda: "groups" in drawn, timeout=5_000)
    assert panels["groups"].table.model().rowCount() == len(window.document.plan.groups)
    drawn.clear()
    window.document.undo()
    settle(qtbot, window.document)
    qtbot.waitUntil(lambda: "groups" in drawn, timeout=5_000)
    qtbot.wait(50)
    assert "demand" not in drawn


@pytest.mark.parametrize("ask", ["find", "command_palette", "key_sheet", "about", "move_dialog"])
@pytest.mark.parametrize("in_tiles", [False, True])
def test_after_a_dialog_the_keys_are_where_they_were(qtbot, window, monkeypatch, ask, in_tiles):
    fill(qtbot, window)
    window.document.select((3,))
    at_rest(qtbot, window)
    place = window.tiles.rows[0].number if in_tiles else window.canvas
    place.setFocus()
    activated: list[bool] = []
    monkeypatch.setattr(window, "activateWindow", lambda: activated.append(True))
    getattr(window, ask)()
    dialog = QApplication.activeModalWidget()
    assert isinstance(dialog, QDialog)
    place.clearFocus()  # as a desktop without a window below leaves it
    dialog.reject()
    assert activated and window.focusWidget() is place


def test_a_plan_just_loaded_counts_as_saved_until_the_next_edit(qtbot, window, tmp_path):
    fill(qtbot, window)
    document = window.document
    document._plan_read(merged(document.plan, 0), document.graph, "kept.json")
    assert document.undo_stack.count() == 1 and document.undo_stack.isClean()
    document.undo()
    assert not document.undo_stack.isClean()
    document.redo()
    assert document.undo_stack.isClean()
    document.commit(merged(document.plan, 0), "Fuse")
    assert not document.undo_stack.isClean()


def test_packaged_plans_are_offered_by_name_and_opened(qtbot, window, monkeypatch):
    fill(qtbot, window)
    opened: list[str] = []
    monkeypatch.setattr(window.document, "open", opened.append)
    window.choose_plan()
    entries = window._choosing._entries
    assert [entry.text for entry in entries] == [
        "mini-case-boundary-back",
        "mini-case-maximum",
        "mini-case-moderate",
    ]
    assert all(entry.remark.startswith("mini_case on npu-8-slots") for entry in entries)
    entries[1].call()
    window._choosing.reject()
    assert [Path(name).name for name in opened] == ["mini-case-maximum.json"]
