"""Files from others: real ones answer, broken ones get a readable sentence, the reader keeps its limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from explorer.__main__ import main
from model.errors import FileError, TilewrightError, UsageError
from model.graph import child
from model.graph.graph import OperatorGraph, OpKind, TensorRole
from model.graph.incoming import Cancelled
from model.graph.load import load_graph
from model.graph.raw import read_answer
from model.graph.summary import inspect_document, text_summary

_SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "graphs"


def _files(folder: str) -> list[Any]:
    found = sorted((_SHARED / folder).glob("*.onnx"))
    return [pytest.param(path, id=path.stem) for path in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason="the reference folder is not beside this checkout"))
    ]


def hold(graph: OperatorGraph) -> None:
    """The invariants of `graph.py` that everyone relies on."""
    assert [op.index for op in graph.operators] == list(range(len(graph.operators)))
    assert [t.index for t in graph.tensors] == list(range(len(graph.tensors)))
    names = [op.name for op in graph.operators]
    assert len(set(names)) == len(names)
    assert len({t.name for t in graph.tensors}) == len(graph.tensors)
    assert len({op.identity for op in graph.operators}) == len(names)
    written: set[int] = set()
    for op in graph.operators:
        for access in op.inputs:
            tensor = graph.tensors[access.tensor]
            assert tensor.role is not TensorRole.ACTIVATION or access.tensor in written, "topological order"
        for access in op.outputs:
            assert access.tensor not in written, "one writer"
            assert graph.tensors[access.tensor].role is TensorRole.ACTIVATION
            written.add(access.tensor)
        for access in (*op.inputs, *op.outputs):
            shape = graph.tensors[access.tensor].shape
            assert access.whole == (access.addressed is not None)
            assert access.whole or (shape is not None and len(access.axes) == len(shape))
            assert all(0 <= dim < len(op.dims) for axis in access.axes for dim, _ in axis.terms)
        assert len({dim.name for dim in op.dims}) == len(op.dims)
        assert (op.kind is OpKind.OPAQUE) == bool(op.reason)
    producer = graph.producer
    for source, to, tensor in graph.edges:
        assert producer[tensor] == source < to
        assert any(a.tensor == tensor for a in graph.operators[to].inputs)


@pytest.mark.shared
@pytest.mark.parametrize("path", _files("open"))
def test_every_open_file_answers(path: Path) -> None:
    graph = load_graph(path)
    hold(graph)
    document = inspect_document(graph)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert len(document["operators"]) == document["graph"]["operators"] == len(graph.operators)
    assert all(operator["known"] or operator["reason"] for operator in document["operators"])
    assert "multiply-accumulates" in text_summary(graph)


HOSTILE: dict[str, tuple[int, str]] = {
    "chain_10k_deep": (0, "10000"),
    "cyclic_graph": (0, "n1 -> n2 -> n3 -> n1"),
    "dim_2pow63": (0, "unrealistic size"),
    "duplicate_outputs_ssa": (0, "'a' is written twice, by n1 and by n2"),
    "empty": (2, "the file is empty (0 bytes)"),
    "external_path_traversal": (0, "leaves the model's folder"),
    "git_lfs_pointer": (2, "git lfs pull"),
    "json_inside": (2, "this is JSON"),
    "nan_inf_scales": (0, "its scales or sizes [1.0, 1.0, nan, -2.0] are no positive numbers"),
    "negative_dims": (0, "axis 0 is -1, taken as unknown"),
    "nested_if_2000_deep": (2, "nesting too deep"),
    "nested_if_25_deep": (0, "control flow"),
    "pytorch_zip_renamed": (2, "PyTorch archive"),
    "text_file": (2, "the first bytes look like text"),
    "truncated_half": (2, "ends in the middle of the graph: it has 171122 bytes, expected 342112"),
    "undefined_tensors": (0, "nothing makes value 'missing_weight', which mm reads"),
    "wrong_dims_vs_data": (0, "1000x1000 = 1000000 elements but the file holds 4000"),
}


@pytest.mark.shared
@pytest.mark.parametrize("path", _files("hostile"))
def test_every_hostile_file_gets_a_readable_message(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, words = HOSTILE[path.stem]
    assert main(["inspect", str(path)]) == code
    out, err = capsys.readouterr()
    assert words in (err if code else out)
    assert "Traceback" not in out + err
    assert err.count("\n") == (1 if code else 0)
    if code == 0:
        hold(load_graph(path))


UNCOUNTABLE = {
    "cyclic_graph": "the graph has a cycle: n1 -> n2 -> n3 -> n1, so nothing can be simulated",
    "duplicate_outputs_ssa": "value 'a' is written twice, by n1 and by n2, so nothing can be simulated",
    "dim_2pow63": "has the unrealistic size",
}
UNSERVABLE = {"negative_dims": "the shape of no tensor is known"}
"""What is simulated with a warning, but takes no time that could be served."""


@pytest.mark.shared
@pytest.mark.parametrize("path", [p for p in _files("hostile") if p.id != "chain_10k_deep"])
def test_every_hostile_file_is_simulated_or_refused_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = HOSTILE[path.stem]
    if path.stem in UNCOUNTABLE:
        code, words = 2, UNCOUNTABLE[path.stem]
    for command in (
        ["simulate", str(path), "--json"],
        ["serve", str(path), "--workload", "poisson", "--json"],
    ):
        if command[0] == "serve" and path.stem in UNSERVABLE:
            code, words = 2, UNSERVABLE[path.stem]
        assert main(command) == code
        out, err = capsys.readouterr()
        if code:
            assert words in err and path.name in err and err.count("\n") == 1 and not out
            continue
        document = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
        if command[0] == "simulate":
            said = " ".join(w["where"] + " " + w["what"] for w in document["warnings"])
            assert words in said and not err


@pytest.mark.shared
def test_cycles_and_double_writers_are_shown_but_refuse_to_be_simulated(shared: Path) -> None:
    hostile = shared / "graphs" / "hostile"
    assert "cycle" in load_graph(hostile / "cyclic_graph.onnx").refusal
    assert "twice" in load_graph(hostile / "duplicate_outputs_ssa.onnx").refusal
    assert load_graph(hostile / "undefined_tensors.onnx").refusal == ""


@pytest.mark.shared
def test_totals_of_absurd_sizes_are_exact(shared: Path) -> None:
    """2^62 x 2^62 elements by 8 columns: no 64-bit number holds it."""
    graph = load_graph(shared / "graphs" / "hostile" / "dim_2pow63.onnx")
    assert graph.macs % 2**62 == 0 and graph.macs > 2**124


# ---------------------------------------------------------------- small files made here


def save(tmp_path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **more: Any) -> Path:
    """A model of float inputs; `more`: initializers, functions, opsets."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in more.get("weights", {}).items()],
    )
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in more.get("opsets", {"": 18}).items()
    ]
    model = helper.make_model(graph, opset_imports=opsets, functions=more.get("functions", []), ir_version=10)
    path = tmp_path / "made.onnx"
    onnx.save_model(model, path)
    return path


def floats(*shape: int) -> np.ndarray:
    """A weight."""
    return np.ones(shape, dtype=np.float32)


def test_weights_behind_constants_are_hidden_named_and_counted_once(tmp_path: Path) -> None:
    """A transposed weight keeps its stored name; Identity is an alias; a tied one is read transposed."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["w_t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w_t"], ["y"]),
        helper.make_node("Identity", ["b"], ["same"]),
        helper.make_node("Add", ["y", "same"], ["z"]),
        helper.make_node("Add", ["z", "b"], ["u"]),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["table"], ["table_t"]),
        helper.make_node("MatMul", ["rows", "table_t"], ["logits"]),
    ]
    weights = {"w": floats(5, 8), "b": floats(5), "table": floats(50, 8)}
    path = save(tmp_path, nodes, {"x": [4, 8], "ids": [3]}, ["u", "logits"], weights=weights)
    graph = load_graph(path)
    assert [op.op_type for op in graph.operators] == ["MatMul", "Add", "Add", "Gather", "MatMul"]
    assert sorted(t.name for t in graph.tensors if t.role is TensorRole.WEIGHT) == ["b", "table", "w"]
    assert graph.parameter_bytes == 4 * (40 + 5 + 400)
    tied = graph.operators[4]
    assert graph.tensors[tied.inputs[1].tensor].name == "table"
    n, k = (next(i for i, d in enumerate(tied.dims) if d.name == name) for name in "nk")
    assert [axis.terms for axis in tied.inputs[1].axes] == [((n, 1),), ((k, 1),)]


def test_quantised_weights_keep_their_stored_bytes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    weights = {"q": np.ones((8, 5), dtype=np.int8), "scale": np.array(0.5, dtype=np.float32)}
    graph = load_graph(save(tmp_path, nodes, {"x": [4, 8]}, ["y"], weights=weights))
    assert graph.parameter_bytes == 40
    assert [op.op_type for op in graph.operators] == ["MatMul"]


def test_shape_arithmetic_is_folded_away(tmp_path: Path) -> None:
    """x of [n, 12] becomes [2n, 6]; nothing of the arithmetic is left."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "axes"], ["part"]),
        helper.make_node("Concat", ["part", "six"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {
        "zero": np.array(0), "two": np.array(2), "axes": np.array([0]), "six": np.array([6]),
    }  # fmt: skip
    path = save(tmp_path, nodes, {"x": ["n", 12]}, ["y"], weights=weights)
    for n in (1, 7):
        graph = load_graph(path, {"n": n})
        assert [op.op_type for op in graph.operators] == ["Reshape"]
        assert graph.tensors[graph.operators[0].outputs[0].tensor].shape == (2 * n, 6)
        assert graph.bindings == (("n", n),)
        assert graph.parameter_bytes == 0


def test_stored_shapes_give_way_to_bindings(tmp_path: Path) -> None:
    """The file says that y is 1 x 8; bound to 5 rows it is 5 x 8."""
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": ["rows", 8]}, ["y"])
    model = onnx.load_model(path)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8]))
    onnx.save_model(model, path)
    graph = load_graph(path, {"rows": 5})
    assert graph.tensors[graph.operators[0].outputs[0].tensor].shape == (5, 8)


def test_unnamed_repeated_and_clashing_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"], name="dup"),
        helper.make_node("Tanh", ["b"], ["c"], name="dup"),
        helper.make_node("Relu", ["c"], ["d"], name="Relu_0"),
    ]
    graph = load_graph(save(tmp_path, nodes, {"x": [2]}, ["d"]))
    assert [op.name for op in graph.operators] == ["Relu_0_", "Tanh_1", "Tanh_2", "Relu_0"]
    assert [op.identity for op in graph.operators] == ["#0", "#1", "#2", "#3"]
    hold(graph)


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Tanh", ["x"], ["a"], name="first"),
    ]
    graph = load_graph(save(tmp_path, nodes, {"x": [2]}, ["b"]))
    assert [op.name for op in graph.operators] == ["first", "second"]
    assert any("topological" in warning.what for warning in graph.warnings)


def test_functions_are_written_out_with_their_path(tmp_path: Path) -> None:
    inner = helper.make_function(
        "own", "Half", ["v"], ["h"],
        [
            helper.make_node("Constant", [], ["c"], value_float=0.5),
            helper.make_node("Mul", ["v", "c"], ["h"]),
        ],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    outer = helper.make_function(
        "own", "Twice", ["v"], ["h"],
        [
            helper.make_node("Half", ["v"], ["t"], domain="own"),
            helper.make_node("Half", ["t"], ["h"], domain="own"),
        ],
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="own", name="call")]
    path = save(tmp_path, nodes, {"x": [4]}, ["y"], functions=[inner, outer], opsets={"": 18, "own": 1})
    graph = load_graph(path)
    assert [op.op_type for op in graph.operators] == ["Mul", "Mul"]
    assert graph.operators[0].identity == "#0/Twice#0/Half#1"
    assert graph.operators[0].scope == ("call", "call/Half_0")
    hold(graph)


def test_a_function_bomb_is_not_expanded(tmp_path: Path) -> None:
    """30 functions that call the one before twice: a billion operators in a few kilobytes.

    Counted with the Relu behind the call.
    """
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", "f0", ["v"], ["h"], [helper.make_node("Relu", ["v"], ["h"])], opsets)
    ]
    for i in range(1, 31):
        calls = [
            helper.make_node(f"f{i - 1}", ["v"], ["t"], domain="own"),
            helper.make_node(f"f{i - 1}", ["t"], ["h"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"f{i}", ["v"], ["h"], calls, opsets))
    nodes = [helper.make_node("f30", ["x"], ["y"], domain="own"), helper.make_node("Relu", ["y"], ["z"])]
    path = save(tmp_path, nodes, {"x": [4]}, ["z"], functions=functions, opsets={"": 18, "own": 1})
    graph = load_graph(path)
    assert [op.kind for op in graph.operators] == [OpKind.OPAQUE, OpKind.OPAQUE]
    assert f"{2**30 + 1} operators" in graph.operators[0].reason


def test_a_constant_of_a_pebibyte_is_only_a_number(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["extents"], ["huge"]),
        helper.make_node("Mul", ["huge", "huge"], ["square"]),
        helper.make_node("ReduceSum", ["square"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    path = save(tmp_path, nodes, {"x": [3]}, ["y"], weights={"extents": np.array([2**24, 2**24])})
    assert [op.op_type for op in load_graph(path).operators] == ["Add"]


def test_nested_graphs_keep_their_outer_reads_as_edges(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["outer"], ["r"])], "b", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["outer"], name="tanh"),
        helper.make_node("Greater", ["x", "x"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="if"),
    ]
    graph = load_graph(save(tmp_path, nodes, {"x": []}, ["y"]))
    edges = {(graph.operators[a].name, graph.operators[b].name) for a, b, _ in graph.edges}
    assert ("tanh", "if") in edges


def test_dead_and_skipped_operands(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "", "c"], axis=1, num_outputs=3),
        helper.make_node("Clip", ["a", "", "limit"], ["y"]),
    ]
    graph = load_graph(
        save(tmp_path, nodes, {"x": [2, 6], "unused": [1]}, ["y"], weights={"limit": floats()})
    )
    split = graph.operators[0]
    assert split.kind is OpKind.MOVEMENT
    assert [access.axes[1].offset for access in split.outputs] == [0, -4]
    hold(graph)


# ---------------------------------------------------------------- refusals and limits


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"PK\x03\x04archive", "zip archive"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b'\xef\xbb\xbf{"a": 1}', "JSON"),
        (b"func.func @main() {\n}\n", "pretty form"),
        (b"void main() {\n}\n", "look like text"),
        (b"\x08\x0a\x12\x07pytorch", "no graph"),
        (b"\x00\x01\x02\x03 nonsense", "no protobuf message"),
    ],
)
def test_what_a_file_is_instead(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(FileError, match=words):
        load_graph(path)


def test_a_file_cut_anywhere_never_opens_as_complete(tmp_path: Path) -> None:
    whole = save(
        tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": [4, 4]}, ["y"], weights={"w": floats(9, 9)}
    ).read_bytes()
    cut = tmp_path / "cut.onnx"
    # Behind the graph come the opset imports; cutting exactly before them leaves a valid, older message.
    for length in (3, 10, 40, len(whole) // 2, len(whole) - 9):
        cut.write_bytes(whole[:length])
        with pytest.raises(FileError):
            load_graph(cut)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        load_graph(tmp_path / "nothing.onnx")
    with pytest.raises(FileError, match="folder"):
        load_graph(tmp_path)


def test_unknown_bindings_name_the_symbols_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", "seq"]}, ["y"])
    with pytest.raises(UsageError, match=r"no symbolic dim 'sequence'.*batch, seq"):
        load_graph(path, {"sequence": 4})
    with pytest.raises(UsageError, match="batch"):
        load_graph(path, {"batch": 0})


def test_reading_stops_when_cancelled_or_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    with pytest.raises(Cancelled):
        load_graph(path, cancelled=lambda: True)
    monkeypatch.setattr(child, "TIME_LIMIT_S", 0.0)
    with pytest.raises(FileError, match="took longer than"):
        load_graph(path)
    assert not psutil.Process(os.getpid()).children()


def test_reading_stops_when_it_needs_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    monkeypatch.setattr(child, "MEMORY_LIMIT_BYTES", 2**20)
    with pytest.raises(FileError, match=r"memory|stopped"):
        load_graph(path)
    assert not psutil.Process(os.getpid()).children()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"error": 3}',
        b'{"error": {"kind": [], "what": "", "where": "", "lever": ""}}',
        b"\x80\x04.",
        b"[" * 100_000,
    ],
)
def test_whatever_a_child_answers_only_our_errors_leave(answer: bytes) -> None:
    with pytest.raises(TilewrightError):
        read_answer(answer, "m.onnx")


def test_the_file_is_read_once_and_named_by_its_bytes(tmp_path: Path) -> None:
    import hashlib

    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    graph = load_graph(path)
    assert graph.digest == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert graph == load_graph(str(path))
    assert (graph.path, graph.name) == (str(path), "made")
