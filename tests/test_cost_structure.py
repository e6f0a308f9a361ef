"""What a graph is for the cost room: bytes of the whole, structures that share a solution, names of their own."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.commands.bench import repeated
from model.cost import sweep as k
from model.cost.operands import Operands
from model.cost.result import CostRequest, GroupResult
from model.cost.simulate import GroupCache, simulate
from model.graph.graph import OpKind
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails, unfused
from tests.cost_graphs import Sketch, attention, mlp, one_buffer


@pytest.mark.parametrize("name", ["transformer_block", "attention_prefill", "residual_block", "swiglu_mlp"])
def test_the_whole_graph_is_the_group_of_all_operators(name: str) -> None:
    graph = load_graph(name)
    operands = Operands(graph, {})
    compulsory, intermediate = operands.whole_graph("int8")
    assert compulsory == operands.compulsory_bytes(tuple(range(len(graph.operators))), "int8")
    root = {t.index: t.index for t in graph.tensors}
    read: set[int] = set()
    for operator in graph.operators:
        if operator.kind is OpKind.VIEW:
            root[operator.outputs[0].tensor] = root[operator.inputs[0].tensor]
        else:
            read.update(root[access.tensor] for access in operator.inputs)
    made = [a.tensor for op in graph.operators if op.kind is not OpKind.VIEW for a in op.outputs]
    sizes = [(graph.tensors[t].elements or 0) * operands.bits(t, "int8") for t in made if t in read]
    assert intermediate == sum(-(-bits // 8) for bits in sizes)


def test_a_shared_weight_counts_once_and_a_part_that_is_read_in_two_ways_at_most_whole() -> None:
    sketch = Sketch("int8")
    sketch.tensor("X", 4, 6)
    sketch.tensor("c", 6, weight=True)
    first = sketch.pointwise("Add", ["X", "c"], "Y")
    second = sketch.pointwise("Mul", [first, "c"], "Z")
    graph = sketch.graph(sketch.pointwise("Add", [second, "X"], "O"))
    # X 24 and c 6 once, O 24; Y and Z stay inside.
    assert Operands(graph, {}).whole_graph("") == (24 + 6 + 24, 24 + 24)


def test_a_tensor_that_is_read_twice_makes_another_structure() -> None:
    sketch = Sketch("int8")
    sketch.tensor("X", 4, 6)
    sketch.tensor("Y", 4, 6)
    square = sketch.pointwise("Mul", ["X", "X"], "S")
    product = sketch.pointwise("Mul", ["X", "Y"], "P")
    again = sketch.pointwise("Mul", [product, square], "Q")
    graph = sketch.graph(sketch.pointwise("Mul", [again, "Y"], "O"))
    structure = Operands(graph, {}).structure
    assert structure[1] == structure[2]
    assert len({structure[0], structure[1], structure[3]}) == 3  # O is a graph output


def test_equal_groups_share_figures_and_have_their_own_names() -> None:
    graph = repeated(mlp(32, 16, 48), 6)
    request = CostRequest(graph, one_buffer(4096), contraction_tails(graph))
    cache = GroupCache()
    first = simulate(request, cache)
    one, other = first.groups[0], first.groups[2]
    assert one.operators == (0, 1) and other.operators == (3, 4)
    assert (one.macs, one.latency_s, one.dims) == (other.macs, other.latency_s, other.dims)
    assert one.start_s < other.start_s
    assert {graph.tensors[row.tensor].name for row in one.traffic} == {"0/X", "0/W1", "0/H"}
    assert {graph.tensors[row.tensor].name for row in other.traffic} == {"0/Y", "1/W1", "1/H"}
    assert "0/MatMul_0" in one.tree and "1/MatMul_0" in other.tree
    assert {name for name, _ in other.levels[0].retain} == {"0/Y", "1/W1", "1/T", "1/H"}
    with pytest.raises(AttributeError, match="no_such_figure"):
        other.no_such_figure  # type: ignore[attr-defined]  # noqa: B018
    changed = replace(other, start_s=1.0)
    assert changed.start_s == 1.0 and changed.traffic == other.traffic and changed.macs == other.macs
    # A graph of the same structure under other names, in the same cache.
    renamed = replace(graph, tensors=tuple(replace(t, name=t.name + "'") for t in graph.tensors))
    again = simulate(replace(request, graph=renamed), cache)
    assert again.evaluated == 0
    assert {name for name, _ in again.groups[2].levels[0].retain} == {"0/Y'", "1/W1'", "1/T'", "1/H'"}


def test_names_that_were_read_stay_when_a_group_moves() -> None:
    graph = repeated(attention(64, 64, 16), 9)
    machine = load_hardware("edge-npu")
    cache = GroupCache()
    before = simulate(CostRequest(graph, machine, contraction_tails(graph)), cache)
    read = [group.traffic for group in before.groups]
    after = simulate(CostRequest(graph, machine, unfused(graph)), cache)
    fresh = simulate(CostRequest(graph, machine, unfused(graph)))
    assert read == [group.traffic for group in before.groups]
    for group, expected in zip(after.groups, fresh.groups, strict=True):
        for field in fields(GroupResult):
            left, right = getattr(group, field.name), getattr(expected, field.name)
            assert np.array_equal(left, right) if field.name == "phases" else left == right


@given(st.integers(1, 500), st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_iterations_of_nested_loops_are_the_pieces_that_they_cut(extent: int, steps: list[int]) -> None:
    steps = sorted(steps, reverse=True)
    loops = np.array([(0, step, 1, 0, 0) for step in steps], np.int64)
    row = np.arange(len(steps))
    pieces = [extent]
    for step in steps:
        pieces = [min(step, size - at) for size in pieces for at in range(0, size, step)]
    assert k.iterations(extent, 0, row, len(steps), loops) == len(pieces)
