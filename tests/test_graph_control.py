"""If, Loop and Scan: their bodies as graphs, how often they run, which branch is taken, what their outputs are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from explorer.__main__ import main
from model.errors import UsageError
from model.graph.graph import OperatorGraph, OpKind
from model.graph.load import graph_of, load_graph
from model.graph.raw import read_answer
from model.graph.readers import read as read_file
from model.graph.summary import inspect_document, text_summary

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def read(
    nodes: list[NodeProto],
    inputs: Mapping[str, tuple[tuple[int, ...], int]],
    outputs: list[str],
    bindings: dict[str, int] | None = None,
    constants: dict[str, np.ndarray] | None = None,
) -> OperatorGraph:
    graph = GraphProto(name="g", node=nodes)
    graph.input.extend(info(name, kind, shape) for name, (shape, kind) in inputs.items())
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in (constants or {}).items()
    )
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(helper.make_opsetid("", 17))
    answer = json.dumps(read_file(model.SerializeToString(), bindings or {})).encode()
    return graph_of(read_answer(answer, "here"), name="g")


def body(
    nodes: list[NodeProto], inputs: list[str], outputs: list[str], **constants: np.ndarray
) -> GraphProto:
    graph = GraphProto(name="body", node=nodes)
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return graph


def shape_of(graph: OperatorGraph, name: str) -> tuple[int, ...] | None:
    return next(t.shape for t in graph.tensors if t.name == name)


MATMUL = helper.make_node("MatMul", ["state", "w"], ["next"], name="mm")
KEEP = helper.make_node("Identity", ["go"], ["still"], name="keep")
LOOP = helper.make_node(
    "Loop", ["count", "", "x"], ["last", "all"], name="steps",
    body=body([MATMUL, KEEP, helper.make_node("Relu", ["next"], ["row"])], ["i", "go", "state"],
              ["still", "next", "row"]),
)  # fmt: skip
LOOP_INPUTS = {"x": ((3, 4), F32), "w": ((4, 4), F32), "count": ((), I64)}


def test_a_loop_is_a_barrier_whose_body_can_be_looked_into() -> None:
    """3 x 4 by 4 x 4 is 48 multiply-accumulates; five trips are 240."""
    graph = read([LOOP], LOOP_INPUTS, ["last", "all"], {"trips:steps": 5})
    assert [(o.op_type, o.kind) for o in graph.operators] == [("Loop", OpKind.OPAQUE)]
    assert graph.operators[0].reason == "control flow: a barrier"
    assert graph.operators[0].runs == (("#0/body", 5),)
    inner = graph.bodies["#0/body"]
    assert [o.name for o in inner.operators] == ["mm", "keep", "Relu_2"]
    assert inner.macs == 48 and graph.macs == 240
    assert shape_of(graph, "last") == (3, 4) and shape_of(graph, "all") == (5, 3, 4)
    assert "trips:steps" in graph.symbols and ("trips:steps", 5) in graph.bindings


def test_an_unknown_trip_count_is_assumed_to_be_one_and_said() -> None:
    graph = read([LOOP], LOOP_INPUTS, ["last", "all"])
    assert graph.macs == 48 and shape_of(graph, "all") == (1, 3, 4)
    assert any("assumed trips:steps=1" in w.what for w in graph.warnings)
    document = inspect_document(graph)
    assert document["bodies"]["#0/body"]["runs"] == 1
    assert document["bodies"]["#0/body"]["operators"][0]["name"] == "mm"
    assert "nested #0/body" in text_summary(graph)


def test_a_constant_trip_count_needs_no_parameter() -> None:
    inputs = {name: LOOP_INPUTS[name] for name in ("x", "w")}
    graph = read([LOOP], inputs, ["last"], constants={"count": np.array(7)})
    assert graph.macs == 7 * 48 and not graph.symbols


def test_a_parameter_that_nothing_asks_for_is_refused() -> None:
    with pytest.raises(UsageError, match="no parameter 'trips:other'"):
        read([LOOP], LOOP_INPUTS, ["last"], {"trips:other": 5})


def test_a_state_that_grows_has_no_shape_after_several_trips() -> None:
    grow = helper.make_node("Concat", ["state", "state"], ["next"], axis=0)
    loop = helper.make_node(
        "Loop", ["count", "", "x"], ["last"], body=body([grow, KEEP], ["i", "go", "state"], ["still", "next"])
    )
    graph = read([loop], LOOP_INPUTS, ["last"], {"trips:Loop#0": 2})
    assert shape_of(graph, "last") is None
    assert graph.operators[0].reason == "control flow: the shape of its state changes from trip to trip"
    assert shape_of(read([loop], LOOP_INPUTS, ["last"]), "last") == (6, 4)


def test_a_scan_runs_over_the_axis_that_it_scans() -> None:
    """7 rows of 4 by 4 x 4 each: 7 * 16; the results stacked at axis 1."""
    step = helper.make_node("MatMul", ["row", "w"], ["out"])
    total = helper.make_node("Add", ["sum", "out"], ["sum_out"])
    scan = helper.make_node(
        "Scan", ["start", "x"], ["sum_last", "rows"], num_scan_inputs=1, scan_input_axes=[1],
        scan_output_axes=[1], body=body([step, total], ["sum", "row"], ["sum_out", "out"]),
    )  # fmt: skip
    inputs = {"start": ((4,), F32), "x": ((4, 7), F32), "w": ((4, 4), F32)}
    graph = read([scan], inputs, ["sum_last", "rows"])
    assert graph.operators[0].runs == (("#0/body", 7),) and graph.macs == 7 * 16
    assert shape_of(graph, "sum_last") == (4,) and shape_of(graph, "rows") == (4, 7)


def branches(small: bool = False) -> NodeProto:
    big = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["r"])]
    if not small:
        big.append(helper.make_node("MatMul", ["r", "w"], ["z"]))
    return helper.make_node(
        "If", ["c"], ["out"], name="which",
        then_branch=body(big, [], ["r" if small else "z"]),
        else_branch=body([helper.make_node("Neg", ["x"], ["y"])], [], ["y"]),
    )  # fmt: skip


IF_INPUTS = {"x": ((3, 4), F32), "w": ((4, 4), F32), "c": ((), BOOL)}
AROUND = [helper.make_node("Tanh", ["out"], ["t"]), helper.make_node("Exp", ["t"], ["e"])]


def test_an_if_counts_the_branch_that_is_taken() -> None:
    graph = read([branches(small=True), *AROUND], IF_INPUTS, ["e"])
    assert graph.macs == 48 and len(graph.operators) == 3
    assert graph.operators[0].runs == (("#0/then_branch", 1), ("#0/else_branch", 0))
    assert set(graph.bodies) == {"#0/then_branch", "#0/else_branch"}
    other = read([branches(small=True), *AROUND], IF_INPUTS, ["e"], {"branch:which": 2})
    assert other.macs == 0 and shape_of(other, "out") == (3, 4)


def test_a_model_inside_an_if_is_written_out() -> None:
    graph = read([branches()], IF_INPUTS, ["out"])
    assert [o.op_type for o in graph.operators] == ["MatMul", "Relu", "MatMul"]
    assert graph.macs == 96 and all(o.scope == ("which",) for o in graph.operators)
    assert not any(o.kind is OpKind.OPAQUE for o in graph.operators)
    other = read([branches()], IF_INPUTS, ["out"], {"branch:which": 2})
    assert [o.op_type for o in other.operators] == ["If"], "one node is not more than the graph around it"


@pytest.mark.parametrize(("condition", "op_types"), [(True, ["MatMul", "Relu", "MatMul"]), (False, ["Neg"])])
def test_a_constant_condition_leaves_only_its_branch(condition: bool, op_types: list[str]) -> None:
    inputs = {name: IF_INPUTS[name] for name in ("x", "w")}
    graph = read([branches(), *AROUND], inputs, ["e"], constants={"c": np.array(condition)})
    assert [o.op_type for o in graph.operators] == [*op_types, "Tanh", "Exp"]
    assert not graph.symbols


def test_branches_may_return_what_they_capture_and_constants() -> None:
    node = helper.make_node(
        "If", ["c"], ["a", "b"],
        then_branch=body([], [], ["x", "k"], k=np.zeros((2, 2), np.float32)),
        else_branch=body([], [], ["x", "k"], k=np.ones((2, 2), np.float32)),
    )  # fmt: skip
    graph = read([node], {"x": ((3, 4), F32)}, ["a", "b"], constants={"c": np.array(True)})
    assert {o.kind for o in graph.operators} <= {OpKind.VIEW}
    assert shape_of(graph, "a") == (3, 4)


def test_names_of_a_branch_do_not_meet_names_around_it() -> None:
    """Both the branch and the graph around it have a `y`."""
    graph = read(
        [helper.make_node("Abs", ["x"], ["y0"]), branches()], IF_INPUTS, ["out", "y0"], {"branch:which": 1}
    )
    names = [t.name for t in graph.tensors]
    assert len(set(names)) == len(names) and "out" in names


def test_a_nested_parameter_is_found_and_bodies_nest() -> None:
    inner = helper.make_node(
        "Loop", ["count", "", "state"], ["next"], name="inner",
        body=body([helper.make_node("MatMul", ["s", "w"], ["s2"]), helper.make_node("Identity", ["g"], ["g2"])],
                  ["j", "g", "s"], ["g2", "s2"]),
    )  # fmt: skip
    outer = helper.make_node(
        "Loop", ["count", "", "x"], ["last"], name="outer",
        body=body([inner, KEEP], ["i", "go", "state"], ["still", "next"]),
    )  # fmt: skip
    graph = read([outer], LOOP_INPUTS, ["last"], {"trips:outer": 3, "trips:inner": 4})
    assert graph.macs == 3 * 4 * 48
    assert list(graph.bodies["#0/body"].bodies) == ["#0/body#0/body"]


def test_weights_of_a_body_are_parameters_once() -> None:
    w = np.zeros((4, 4), np.float32)
    node = helper.make_node("MatMul", ["state", "v"], ["next"])
    loop = helper.make_node(
        "Loop", ["count", "", "x"], ["last"],
        body=body([node, KEEP], ["i", "go", "state"], ["still", "next"], v=w),
    )  # fmt: skip
    inputs = {name: LOOP_INPUTS[name] for name in ("x", "count")}
    graph = read([loop], inputs, ["last"], {"trips:Loop#0": 9})
    assert graph.parameter_bytes == 64
    captured = helper.make_node("MatMul", ["state", "w"], ["next"])
    loop = helper.make_node(
        "Loop", ["count", "", "x"], ["last"],
        body=body([captured, KEEP], ["i", "go", "state"], ["still", "next"]),
    )  # fmt: skip
    graph = read([loop], inputs, ["last"], {"trips:Loop#0": 9}, constants={"w": w})
    assert graph.parameter_bytes == 64 and graph.macs == 9 * 48


def test_stored_shapes_that_contradict_are_reported() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = GraphProto(name="g", node=[node, helper.make_node("Relu", ["y"], ["z"])])
    graph.input.extend([info("x", F32, (3, 4)), info("w", F32, (4, 5))])
    graph.value_info.append(info("y", F32, (3, 7)))
    graph.output.append(info("z", F32, (3, 5)))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(helper.make_opsetid("", 17))
    answer: dict[str, Any] = read_file(model.SerializeToString(), {})
    assert any("y is 3x5, not 3x7" in what for _, what, _ in answer["warnings"])


@pytest.mark.shared
def test_real_control_flow(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of a voice detector stands in one If; a quantised LSTM in a Scan; four kinds nest in one file."""
    folder = shared / "graphs" / "open"
    voice = load_graph(folder / "silero_vad.onnx")
    assert not any(o.kind is OpKind.OPAQUE for o in voice.operators)
    assert sum(o.kind is OpKind.CONTRACTION for o in voice.operators) == 7
    scan = load_graph(folder / "tract_qlstm.onnx", {"input_0": 6})
    assert next(iter(scan.bodies.values())).macs * 6 == scan.macs > 0
    nested = load_graph(folder / "burn_nested_if_loop_if_scan.onnx")
    paths: list[str] = []
    stack = [nested]
    while stack:
        at = stack.pop()
        paths += at.bodies
        stack += at.bodies.values()
    assert len(paths) == 6
    assert (
        main(["inspect", str(folder / "edge_loop_runtime_trip_count.onnx"), "--bind", "trips:loop=12"]) == 0
    )
    assert "runs 12x" in capsys.readouterr().out
