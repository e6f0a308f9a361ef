"""Recomputation: what a training step saves, what runs again instead, and what that costs; worked by hand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from model.cost.document import simulate_document
from model.cost.profile import service_phases
from model.cost.result import CostRequest, CostResult
from model.cost.simulate import GroupCache, simulate
from model.cost.why import why
from model.errors import FileError, PlanError, UsageError
from model.graph.graph import OperatorGraph
from model.graph.load import graph_of, load_graph
from model.graph.raw import read_answer
from model.graph.readers import read as read_file
from model.graph.training import forward_only
from model.hardware.loader import load_hardware
from model.plan import edits
from model.plan.carry import carried
from model.plan.file import load_plan, save_plan
from model.plan.plan import Plan
from model.plan.recompute import recompute, replays
from model.search.tune import tune_tiles

from .cost_graphs import Sketch, mlp, one_buffer
from .training_graphs import chain

# y1 = y0 W1 (4x6), h1 = relu(y1), y2 = h1 W2 (4x5), loss, and back; two bytes an element. A buffer that holds all.
STEP = chain(4, [3, 6, 5], relu=True)
BYTES = {"y1": 4 * 6 * 2, "h1": 4 * 6 * 2, "y2": 4 * 5 * 2}
FORWARD_MACS = {"y1": 4 * 6 * 3, "y2": 4 * 5 * 6}
MACHINE = one_buffer(1 << 20)


def number(graph: OperatorGraph, *names: str) -> list[int]:
    of = {tensor.name: tensor.index for tensor in graph.tensors}
    return [of[name] for name in names]


def again(graph: OperatorGraph, *names: str, plan: Plan | None = None) -> Plan:
    return recompute(graph, edits.unfused(graph) if plan is None else plan, number(graph, *names))


def cost(graph: OperatorGraph, plan: Plan, cache: GroupCache | None = None) -> CostResult:
    return simulate(CostRequest(graph, MACHINE, plan), cache)


def moved(result: CostResult) -> int:
    return result.totals.dram_read_bytes + result.totals.dram_write_bytes


def names(graph: OperatorGraph, tensors: tuple[int, ...]) -> set[str]:
    return {graph.tensors[tensor].name for tensor in tensors}


def test_the_passes_are_told_apart_by_the_loss_else_by_the_last_trained_weight() -> None:
    forward = {o.name for o in STEP.operators if STEP.forward is not None and STEP.forward[o.index]}
    assert forward == {"MatMul_0", "Relu_1", "MatMul_2", "ReduceSum_3"}
    assert names(STEP, STEP.saved) == {"y1", "h1", "y2"}
    bare = chain(4, [3, 6, 5], relu=True, loss=False)
    assert bare.forward is not None
    assert [o.name for o in bare.operators if bare.forward[o.index]] == ["MatMul_0", "Relu_1", "MatMul_2"]
    assert names(bare, bare.saved) == {"y1", "h1", "y2"}


@pytest.mark.parametrize("sample", ["transformer_block", "decode_kv", "residual_block", "mini_case"])
def test_nothing_is_saved_where_nothing_is_trained(sample: str) -> None:
    graph = load_graph(sample)
    assert graph.forward is None
    assert graph.saved == ()


def test_a_square_attention_block_is_no_training_step() -> None:
    # As many rows as columns: what K's projection writes has the size of Q's weight, and reads the same x.
    block = Sketch()
    for name in ("x", "Wq", "Wk", "Wo"):
        block.tensor(name, 8, 8)
    for made, weight in (("q", "Wq"), ("k", "Wk")):
        block.product("x", weight, made)
    block.product("q", "k", "s")
    block.product("s", "Wo", "o")
    block.pointwise("Add", ["x", "o"], "out")
    assert block.graph("out", "k").forward is None


def test_a_square_residual_is_no_training_step() -> None:
    assert mlp(8, 8, 8).forward is None


def test_saved_activations_are_held_from_their_launch_to_their_last_reader() -> None:
    result = cost(STEP, edits.unfused(STEP))
    assert {STEP.tensors[s.tensor].name: s.bytes for s in result.saved} == BYTES
    assert result.baseline is not None
    assert result.totals.saved_activation_bytes == result.baseline.saved_activation_bytes
    assert result.totals.saved_activation_bytes == sum(BYTES.values())


def test_a_fused_forward_pass_that_writes_no_activation_saves_it_all_the_same_where_backward_reads_it() -> (
    None
):
    plan = edits.fuse(STEP, edits.unfused(STEP), (0, 1))
    assert {STEP.tensors[s.tensor].name for s in cost(STEP, plan).saved} == {"y1", "h1", "y2"}


def test_recomputing_relu_reads_what_stays_saved_and_does_no_macs() -> None:
    before, after = cost(STEP, edits.unfused(STEP)), cost(STEP, again(STEP, "h1"))
    assert after.totals.macs == before.totals.macs
    assert after.totals.recomputed_macs == 0
    # Relu once more: y1 in, h1 out.
    assert moved(after) - moved(before) == BYTES["y1"] + BYTES["h1"]
    assert after.totals.launches == before.totals.launches + 1
    # At the end of the forward pass y1 and y2 are held; then h1 comes back beside y1, when y2 is no longer needed.
    assert after.totals.saved_activation_bytes == BYTES["y1"] + max(BYTES["y2"], BYTES["h1"])


def test_recomputing_a_product_reads_inputs_and_weights_again() -> None:
    before, after = cost(STEP, edits.unfused(STEP)), cost(STEP, again(STEP, "y1"))
    assert after.totals.recomputed_macs == FORWARD_MACS["y1"]
    assert after.totals.macs == before.totals.macs + FORWARD_MACS["y1"]
    assert after.totals.macs - after.totals.recomputed_macs == STEP.macs
    assert moved(after) - moved(before) == (4 * 3 + 3 * 6 + 4 * 6) * 2
    assert after.totals.operator_bytes == before.totals.operator_bytes  # fixed by the graph
    assert after.totals.compulsory_dram_bytes == before.totals.compulsory_dram_bytes
    assert after.totals.saved_activation_bytes == BYTES["h1"] + max(BYTES["y2"], 0)


def test_a_replay_stands_before_the_first_group_that_needs_it_and_what_it_needs_before_it() -> None:
    result = cost(STEP, again(STEP, "y1", "h1"))
    order = [result.groups[i] for i in result.launched()]
    told = [("again " if g.replays >= 0 else "") + STEP.operators[g.operators[0]].name for g in order]
    assert told[:4] == ["MatMul_0", "Relu_1", "MatMul_2", "ReduceSum_3"]
    assert told[4:8] == ["Mul_4", "again MatMul_0", "again Relu_1", "Gemm_5"]
    starts = [group.start_s for group in order]
    assert starts == sorted(starts)
    phases = service_phases(result)
    assert int(phases["base_ns"].sum()) == round(result.totals.latency_s * 1e9)
    assert int(phases["bytes"].sum()) == moved(result)


def test_groups_are_replayed_as_groups_without_what_nobody_needs() -> None:
    plan = edits.fuse(STEP, edits.unfused(STEP), (0, 1))
    result = cost(STEP, again(STEP, "h1", plan=plan))
    replayed = [group for group in result.groups if group.replays >= 0]
    assert [group.operators for group in replayed] == [(1,)]  # y1 is saved for the mask anyway
    both = cost(STEP, again(STEP, "y1", "h1", plan=plan))
    (one,) = [group for group in both.groups if group.replays >= 0]
    assert one.operators == (0, 1)
    assert one.replays == 0
    # The forward group writes nothing any more: h1 goes to MatMul_2 only, so it is written; y1 is not.
    written = {
        STEP.tensors[row.tensor].name: row.write_bytes
        for row in both.groups[0].traffic
        if row.outer == "DRAM"
    }
    assert written.get("y1", 0) == 0
    assert written["h1"] == BYTES["h1"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=3, max_size=6), st.integers(1, 5), st.data())
def test_recomputing_all_activations_of_a_chain_costs_its_forward_macs_once_more(
    widths: list[int], batch: int, data: st.DataObject
) -> None:
    graph = chain(batch, widths)
    everything = sorted(names(graph, graph.saved))
    result = cost(graph, again(graph, *everything))
    forward = sum(batch * a * b for a, b in itertools.pairwise(widths))
    assert result.totals.recomputed_macs == forward
    assert result.totals.macs == graph.macs + forward
    some = data.draw(st.sets(st.sampled_from(everything)))
    partly = cost(graph, again(graph, *sorted(some)))
    layer = {f"y{i}": batch * widths[i - 1] * widths[i] for i in range(1, len(widths))}
    assert partly.totals.recomputed_macs == sum(layer[name] for name in some)
    assert partly.baseline is not None
    assert partly.totals.saved_activation_bytes <= partly.baseline.saved_activation_bytes
    boundary = sum(batch * widths[i] * 2 for i in range(1, len(widths)) if f"y{i}" not in some)
    assert partly.totals.saved_activation_bytes >= boundary


def test_recomputing_nothing_changes_nothing_and_a_cache_changes_nothing() -> None:
    cache = GroupCache()
    plain = edits.unfused(STEP)
    for plan in (plain, again(STEP, "y1"), plain, again(STEP, "y1", "h1"), again(STEP, "y1")):
        warm, cold = cost(STEP, plan, cache), cost(STEP, plan)
        one, other = simulate_document(warm), simulate_document(cold)
        assert one == other
    assert recompute(STEP, plain, []) is plain
    taken_back = recompute(STEP, again(STEP, "y1"), number(STEP, "y1"), again=False)
    assert taken_back == plain
    assert cost(STEP, taken_back).totals == cost(STEP, plain).totals
    assert cost(STEP, taken_back).saved == cost(STEP, plain).saved


def test_what_cannot_be_computed_again_says_why() -> None:
    for name, reason in (
        ("y0", "it is an input of the graph"),
        ("g1", "makes it in the backward pass already"),
        ("W1_new", "makes it in the backward pass already"),
        ("loss", "no operator of the backward pass reads it"),
    ):
        with pytest.raises(PlanError, match=reason):
            again(STEP, name)
    with pytest.raises(PlanError, match="no backward pass"):
        again(mlp(4, 4, 4), "H")
    bare = chain(4, [3, 6, 5], loss=False)
    with pytest.raises(PlanError, match="forward pass does not read it"):
        again(bare, "y2")


def test_a_barrier_does_not_run_again() -> None:
    opaque = _with_opaque()
    with pytest.raises(PlanError, match="`Odd_1` would run again, and cannot: unknown"):
        again(opaque, "h1")


def _with_opaque() -> OperatorGraph:
    from dataclasses import replace

    from model.graph.graph import OpKind

    relu = STEP.operators[1]
    odd = replace(relu, name="Odd_1", op_type="Odd", kind=OpKind.OPAQUE, reason="unknown")
    return replace(STEP, operators=tuple(odd if o is relu else o for o in STEP.operators))


def test_a_group_of_both_passes_has_the_activation_at_hand() -> None:
    # Mul_4 of the backward pass reads y2 where MatMul_2 makes it; nobody else needs y2.
    plan = edits.fuse(STEP, again(STEP, "y2"), (2, 4))
    assert replays(STEP, plan).operators == ()
    result = cost(STEP, plan)
    assert result.totals.recomputed_macs == 0
    assert any(where == "y2" and "not computed again" in what for where, what, _ in result.warnings)
    assert "y2" not in names(STEP, tuple(s.tensor for s in result.saved))


def written(folder: Path, *groups: dict[str, object]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"format": 1, "groups": list(groups)}))
    return path


def test_plan_files_keep_what_is_computed_again(tmp_path: Path) -> None:
    plan = again(STEP, "y1", "h1")
    save_plan(tmp_path / "saved.json", STEP, plan)
    assert load_plan(tmp_path / "saved.json", STEP) == plan
    # Listed anywhere, it is kept with the group that makes it.
    there = load_plan(written(tmp_path, {"operators": ["Gemm_5"], "recompute": ["h1"]}), STEP)
    assert there == again(STEP, "h1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h10", r"groups\[0\]\.recompute\[0\]: there is no tensor 'h10'\. Did you mean 'h1'\?"),
        ("y0", r"groups\[0\]\.recompute\[0\]: 'y0' cannot be computed again: it is an input of the graph"),
        ("g1", "in the backward pass already"),
        ("loss", "no operator of the backward pass reads it"),
    ],
)
def test_faults_of_plan_files(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        load_plan(written(tmp_path, {"operators": ["MatMul_0"], "recompute": [name]}), STEP)


def test_edits_keep_what_a_group_still_makes() -> None:
    plan = edits.fuse(STEP, again(STEP, "y1", "h1"), (0, 1))
    assert plan.groups[0].recompute == ("y1", "h1")
    parted = edits.split(STEP, plan, (1,))
    assert [group.recompute for group in parted.groups[:2]] == [("y1",), ("h1",)]


def test_a_plan_for_other_numbers_keeps_what_can_still_be_computed_again() -> None:
    plan = again(STEP, "y1")
    found = carried(STEP, plan, chain(8, [3, 6, 5], relu=True))
    assert found is not None
    assert found.plan.groups[0].recompute == ("y1",)
    gone = carried(STEP, plan, mlp(4, 3, 6))
    assert gone is None or not any(group.recompute for group in gone.plan.groups)


def test_the_document_says_what_is_held_and_what_runs_again() -> None:
    document = simulate_document(cost(STEP, again(STEP, "y1")))
    assert document["totals"]["saved_activation_bytes"] == BYTES["h1"] + BYTES["y2"]
    last = document["groups"][-1]
    assert last["recomputes"] == "G1"
    assert last["operators"] == ["MatMul_0"]
    assert {row["tensor"] for row in last["traffic"]} == {"y0", "W1", "y1"}
    assert document["launch_order"].index(last["id"]) == 8
    held = {row["tensor"]: row for row in document["saved_activations"]}
    assert held["y1"]["recomputed"]
    assert held["y1"]["from"] == last["id"]
    assert not held["h1"]["recomputed"]


def test_the_card_of_saved_activations_shares_them_out() -> None:
    card = why(cost(STEP, again(STEP, "y1")), "saved_activation_bytes")
    assert card.value.value == BYTES["h1"] + BYTES["y2"]
    assert {share.name: share.value for share in card.shares} == {"h1": BYTES["h1"], "y2": BYTES["y2"]}
    assert any(figure.name == "unfused" and figure.value == sum(BYTES.values()) for figure in card.inputs)


def test_a_real_training_step(shared: Path) -> None:
    graph = load_graph(shared / "graphs/open/train_gpt2_2layer_fwd_bwd_sgd.onnx")
    assert graph.forward is not None
    assert graph.operators[int(graph.forward.nonzero()[0][-1])].name == "node_div"  # the loss
    saved = names(graph, graph.saved)
    assert {"_softmax", "_softmax_1", "tanh", "addmm_2", "_log_softmax"} <= saved
    machine = load_hardware("edge-npu")
    gelu = [name for name in ("mul_1", "tanh", "add_7", "mul_4") if name in saved]
    plan = recompute(graph, edits.contraction_tails(graph), number(graph, *gelu))
    before = simulate(CostRequest(graph, machine, edits.contraction_tails(graph)))
    after = simulate(CostRequest(graph, machine, plan))
    assert after.totals.recomputed_macs == 0  # a GELU from its saved input: no product runs again
    assert after.totals.saved_activation_bytes < before.totals.saved_activation_bytes
    assert after.totals.macs == before.totals.macs


def test_tune_searches_groups_whose_results_are_computed_again_and_their_replays_follow() -> None:
    graph, small = chain(30, [34, 46, 22], relu=True), one_buffer(400)
    plan = again(graph, "y2")
    tuned = tune_tiles(CostRequest(graph, small, plan), "traffic").result
    before = simulate(CostRequest(graph, small, plan))
    assert moved(tuned) < moved(before)
    second, replay = 2, len(plan.groups)
    assert tuned.request.plan.groups[second].recompute == ("y2",)
    assert tuned.request.plan.groups[second].levels
    assert tuned.groups[replay].replays == second
    assert moved_by(tuned, replay) == moved_by(tuned, second) < moved_by(before, second)


def test_adam_says_what_it_trains_and_counts_as_its_own_operator() -> None:
    graph = _trained_by_adam()
    assert graph.forward is not None
    assert [o.name for o in graph.operators if graph.forward[o.index]] == ["first", "active", "second"]
    assert names(graph, graph.saved) == {"hidden", "h", "y"}
    adam = graph.operators[-1]
    result = simulate(CostRequest(graph, MACHINE, edits.unfused(graph)))
    # Weight, gradient and both moments in; weight and moments out; rate and step, one float and one int64.
    assert moved_by(result, len(graph.operators) - 1) == 7 * 6 * 5 * 4 + 4 + 8
    assert adam.macs == 0
    assert result.groups[-1].vector_ops == 13 * 6 * 5


def moved_by(result: CostResult, group: int) -> int:
    return sum(result.groups[group].dram_bytes("DRAM"))


def _trained_by_adam() -> OperatorGraph:
    """Two layers of which only the second is trained, by Adam; the gradient comes from elsewhere for the first."""
    shapes = {"x": (4, 3), "w1": (3, 6), "w2": (6, 5), "target": (4, 5), "m": (6, 5), "v": (6, 5)}
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w1"], ["hidden"], name="first"),
        make("Relu", ["hidden"], ["h"], name="active"),
        make("MatMul", ["h", "w2"], ["y"], name="second"),
        make("Sub", ["y", "target"], ["e"], name="error"),
        make("Greater", ["hidden", "e0"], ["mask"], name="mask"),
        make("Gemm", ["h", "e"], ["dw2"], name="gradient", transA=1),
        make(
            "Adam", ["rate", "step", "w2", "dw2", "m", "v"], ["w2_new", "m_new", "v_new"], name="adam",
            domain="ai.onnx.preview.training",
        ),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs += [value("rate", TensorProto.FLOAT, ()), value("step", TensorProto.INT64, ())]
    inputs += [value("e0", TensorProto.FLOAT, (1,))]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("w2_new", "m_new", "v_new", "mask")]
    graph = helper.make_graph(nodes, "adam", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.preview.training", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    answer = json.dumps(read_file(model.SerializeToString(), {})).encode()
    return graph_of(read_answer(answer, "here"), name="adam")


def test_the_forward_pass_alone_keeps_nothing_for_a_backward_pass() -> None:
    alone = forward_only(STEP)
    assert [operator.name for operator in alone.operators] == [
        "MatMul_0",
        "Relu_1",
        "MatMul_2",
        "ReduceSum_3",
    ]
    assert [tensor.name for tensor in alone.tensors if tensor.is_output] == ["loss"]
    assert alone.macs == sum(FORWARD_MACS.values())
    assert alone.saved == ()
    fused = cost(alone, edits.fuse(alone, edits.unfused(alone), (0, 1)))
    assert "y1" not in {
        alone.tensors[row.tensor].name for row in fused.groups[0].traffic if row.outer == "DRAM"
    }
    with pytest.raises(UsageError, match="holds no backward pass"):
        forward_only(mlp(4, 4, 4))
