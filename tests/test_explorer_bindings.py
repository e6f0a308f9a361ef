"""Numbers for symbolic dims and for shapes that a file lacks: asked for, checked, used, remembered."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from explorer.bind_dialog import BindDialog
from explorer.bound import remember, remembered
from explorer.document import Document
from explorer.window import Window
from model.errors import UsageError
from model.graph.bindings import bindings_text, parse_bindings, shapes_of
from model.graph.load import load_graph
from model.graph.missing import missing_shapes


@pytest.fixture
def shapeless(tmp_path: Path) -> Path:
    """``x`` has no shape; an operator that nobody knows stands between two Relu."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Fold", ["a"], ["b"], name="odd", domain="acme"),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    path = tmp_path / "shapeless.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets), path)
    return path


def test_shapes_are_bindings() -> None:
    bound = parse_bindings("batch=2,shape:x=1x3x224x224,shape:/a/b=scalar")
    assert bound == {
        "batch": 2,
        **{f"shape:x[{i}]": e for i, e in enumerate((1, 3, 224, 224))},
        "shape:/a/b[]": 1,
    }
    assert shapes_of(bound) == {"x": (1, 3, 224, 224), "/a/b": ()}
    assert bindings_text(bound) == {"batch": "2", "shape:x": "1x3x224x224", "shape:/a/b": "scalar"}
    for wrong in ("shape:x=", "shape:x=1x", "shape:x=0x3", "shape:x=1x3,shape:x=2x3", "shape:x=axb"):
        with pytest.raises(UsageError):
            parse_bindings(wrong)


def test_what_is_missing_and_what_follows_from_it(shapeless: Path) -> None:
    graph = load_graph(shapeless)
    assert [missing.name for missing in missing_shapes(graph)] == ["x"]
    graph = load_graph(shapeless, parse_bindings("shape:x=4x8"))
    assert [(missing.name, missing.what) for missing in missing_shapes(graph)] == [("b", "Fold odd")]
    assert "acme::Fold" in missing_shapes(graph)[0].reason
    graph = load_graph(shapeless, parse_bindings("shape:x=4x8,shape:b=32"))
    assert missing_shapes(graph) == ()
    assert [o.kind.value for o in graph.operators] == ["pointwise", "opaque", "pointwise"]
    assert graph.operators[2].points == 32
    assert bindings_text(dict(graph.bindings)) == {"shape:x": "4x8", "shape:b": "32"}
    with pytest.raises(UsageError, match="no value 'z'"):
        load_graph(shapeless, parse_bindings("shape:z=4"))


def test_a_shape_that_is_not_needed_is_told(shapeless: Path) -> None:
    graph = load_graph(shapeless, parse_bindings("shape:x=4x8,shape:a=3x3"))
    assert graph.operators[0].points == 32
    assert any(w.where == "a" and "not used" in w.what for w in graph.warnings)


@pytest.fixture
def window(qtbot: QtBot, tmp_path: Path):
    document = Document()
    found = Window(document, QSettings(str(tmp_path / "settings.ini"), QSettings.Format.IniFormat))
    qtbot.addWidget(found)
    yield found
    assert document.close()


def test_the_dialog_asks_for_missing_shapes_and_they_are_remembered(
    qtbot: QtBot, window: Window, shapeless: Path
) -> None:
    document = window.document
    window.open(str(shapeless))
    qtbot.waitUntil(lambda: document.graph is not None, timeout=60_000)
    assert document.graph is not None
    dialog = BindDialog(window, document.graph)
    qtbot.addWidget(dialog)
    assert list(dialog.shapes) == ["x"]
    dialog.shapes["x"].setText("4 by 8")
    dialog.accept()
    assert not dialog.result() and "no shape" in dialog.fault.text()
    dialog.shapes["x"].setText("4, 8")
    dialog.accept()
    assert dialog.result()
    window._rebind(dialog.bindings())
    qtbot.waitUntil(lambda: document.graph is not None and bool(document.graph.bindings), timeout=60_000)
    graph = document.graph
    again = BindDialog(window, graph)
    qtbot.addWidget(again)
    assert list(again.shapes) == ["x", "b"] and again.shapes["x"].text() == "4x8"
    # The next time the file opens like this, and says so.
    sentences: list[str] = []
    document.said.connect(lambda text, level: sentences.append(text))
    window.open(str(shapeless))
    qtbot.waitUntil(lambda: document.graph is not graph, timeout=60_000)
    assert document.graph is not None and dict(document.graph.bindings) == dict(graph.bindings)
    assert any("Bound as last time: shape:x=4x8" in sentence for sentence in sentences)
    # Another file at that place gets its defaults.
    model = onnx.load(shapeless)
    model.doc_string = "another"
    onnx.save(model, shapeless)
    graph = document.graph
    window.open(str(shapeless))
    qtbot.waitUntil(lambda: document.graph is not graph, timeout=60_000)
    assert document.graph is not None and document.graph.bindings == ()


def test_what_is_remembered_is_checked(tmp_path: Path, shapeless: Path) -> None:
    settings = QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat)
    assert remembered(settings, str(shapeless)) is None
    graph = load_graph(shapeless)
    remember(settings, graph, {"shape:x[0]": 4})
    kept = remembered(settings, str(shapeless))
    assert kept is not None and (kept.digest, kept.bindings) == (graph.digest, {"shape:x[0]": 4})
    remember(settings, graph, {})
    assert remembered(settings, str(shapeless)) is None
    settings.setValue("bound", '{"' + str(shapeless) + '": {"digest": 3, "bindings": []}}')
    assert remembered(settings, str(shapeless)) is None
    settings.setValue("bound", "no JSON")
    assert remembered(settings, str(shapeless)) is None
