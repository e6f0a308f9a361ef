"""Legality: refusals with the right path and fix, held to an independent check by networkx."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.graph.graph import OperatorGraph, OpKind
from model.graph.load import load_graph
from model.plan import edits
from model.plan.legality import Reason, Refusal, check, completing_set, fusible
from model.plan.notation import from_text, to_text
from model.plan.plan import FusionGroup, Plan
from tests.drawn import drawn

TRAP = """
A_relu = Relu(x); B_matmul = MatMul(A_relu, w); C_softmax = Softmax(B_matmul); D_add = Add(A_relu, C_softmax)
"""


def names(graph: OperatorGraph, operators: tuple[int, ...]) -> list[str]:
    return [graph.operators[operator].name for operator in operators]


def refused(graph: OperatorGraph, text: str) -> Refusal:
    refusal = check(graph, from_text(graph, text))
    assert refusal is not None
    return refusal


def legal_by_networkx(graph: OperatorGraph, plan: Plan) -> bool:
    """Quotient graph, connectedness and barriers with networkx and sets alone."""
    home = {operator: index for index, group in enumerate(plan.groups) for operator in group.operators}
    quotient = nx.DiGraph()
    quotient.add_nodes_from(range(len(plan.groups)))
    for producer, consumer, _ in graph.edges.tolist():
        if home[producer] != home[consumer]:
            quotient.add_edge(home[producer], home[consumer])
    if not nx.is_directed_acyclic_graph(quotient):
        return False
    for group in plan.groups:
        ties = nx.Graph()
        ties.add_nodes_from(("operator", operator) for operator in group.operators)
        for operator in group.operators:
            accesses = graph.operators[operator].inputs + graph.operators[operator].outputs
            ties.add_edges_from((("operator", operator), ("tensor", access.tensor)) for access in accesses)
        if not nx.is_connected(ties):
            return False
        opaque = any(graph.operators[o].kind is OpKind.OPAQUE for o in group.operators)
        if opaque and len(group.operators) > 1:
            return False
    return True


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> OperatorGraph:
    """Random graphs: each operator reads one to three earlier tensors; some are opaque."""
    statements = []
    for index in range(draw(st.integers(1, most))):
        earlier = ["x", "z"] + [f"t{i}" for i in range(index)]
        sources = draw(st.lists(st.sampled_from(earlier[-6:]), min_size=1, max_size=3, unique=True))
        op_type = draw(st.sampled_from(["Relu", "MatMul", "Softmax", "Reshape", "Add", "Add", "Mul", "If"]))
        statements.append(f"t{index} = {op_type}({', '.join(sources)})")
    return drawn("; ".join(statements))


@st.composite
def partitions(draw: st.DrawFn, graph: OperatorGraph) -> Plan:
    """Any partition at all, legal or not."""
    count = len(graph.operators)
    label = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    members: dict[int, list[int]] = {}
    for operator, group in enumerate(label):
        members.setdefault(group, []).append(operator)
    return Plan.of([FusionGroup(tuple(operators)) for operators in members.values()])


def test_trap_is_refused_with_its_path_and_completed() -> None:
    graph = drawn(TRAP)
    refusal = refused(graph, "[A_relu D_add] [B_matmul] [C_softmax]")
    assert refusal.reason is Reason.CYCLE
    assert names(graph, refusal.path) == ["A_relu", "B_matmul", "C_softmax", "D_add"]
    assert names(graph, refusal.operators) == ["A_relu", "D_add"]
    assert names(graph, refusal.completing) == ["B_matmul", "C_softmax"]
    assert refusal.sentence() == (
        "`A_relu` with `D_add`: would make a cycle through `B_matmul` and `C_softmax`. Include them?"
    )


@pytest.mark.shared
def test_trap_file_holds_the_drawn_trap(shared) -> None:
    load = pytest.importorskip("model.graph.load")
    graph = load.load_graph(shared / "graphs" / "open" / "edge_convexity_trap.onnx")
    with pytest.raises(Refusal) as caught:
        edits.fuse(graph, edits.unfused(graph), (0, 3))
    assert names(graph, caught.value.path) == ["A_relu", "B_matmul", "C_softmax", "D_add"]
    assert caught.value.fix is not None
    assert to_text(graph, caught.value.fix) == "[A_relu B_matmul C_softmax D_add]"


def test_two_convex_groups_that_feed_each_other() -> None:
    graph = drawn("a = Relu(x); b = Relu(z); c = Add(a, z); d = Add(b, x)")
    # a -> c and b -> d; a and d share x, b and c share z: each group convex, no way comes back.
    refusal = refused(graph, "[a d] [b c]")
    assert names(graph, refusal.path) == ["a", "c", "b", "d"]
    assert names(graph, refusal.completing) == ["b", "c"]


def test_one_name_in_the_question() -> None:
    graph = drawn("a = Relu(x); Add_17 = Add(a, w); c = Add(a, Add_17)")
    refusal = refused(graph, "[a c] [Add_17]")
    assert "would make a cycle through `Add_17`. Include it?" in refusal.sentence()


def test_a_barrier_names_itself_and_its_reason() -> None:
    graph = drawn("a = Relu(x); b = If(a); c = Relu(b)")
    refusal = refused(graph, "[a b] [c]")
    assert refusal.reason is Reason.BARRIER
    assert names(graph, refusal.operators) == ["b", "a"]
    assert "`b`, which cannot be fused" in refusal.sentence()
    assert refusal.completing == ()


def test_a_barrier_on_the_way_leaves_no_completing_set() -> None:
    graph = drawn("a = Relu(x); b = If(a); c = Add(a, b)")
    refusal = refused(graph, "[a c] [b]")
    assert refusal.reason is Reason.CYCLE
    assert refusal.completing == ()
    assert "nothing can be added" in refusal.sentence()
    assert completing_set(graph, edits.unfused(graph), (0, 2)) == ()


def test_shared_inputs_connect_and_a_shared_epsilon_does_not() -> None:
    graph = drawn("q = MatMul(x, w1); k = MatMul(x, w2); e = Add(q, w:1); f = Add(k, w:1)")
    assert check(graph, from_text(graph, "[q k] [e] [f]")) is None
    refusal = refused(graph, "[q] [k] [e f]")
    assert refusal.reason is Reason.APART
    assert names(graph, refusal.operators) == ["e", "f"]


def test_long_names_and_line_breaks_stay_on_one_short_line() -> None:
    graph = drawn("a = Relu(x); b = Add(a, w); c = Add(a, b)")
    odd = "br\neak " + "n" * 5000
    operators = (*graph.operators[:1], *(o for o in graph.operators[1:]))
    object.__setattr__(operators[1], "name", odd)
    sentence = refused(OperatorGraph("odd", graph.tensors, operators), "[a c]").sentence()
    assert len(sentence) < 250 and "\n" not in sentence


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_check_agrees_with_networkx_on_any_partition(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    plan = data.draw(partitions(graph))
    refusal = check(graph, plan)
    assert (refusal is None) == legal_by_networkx(graph, plan)
    if refusal is not None and refusal.reason is Reason.CYCLE:
        _assert_is_a_way_out_and_back(graph, plan, refusal)


def _assert_is_a_way_out_and_back(graph: OperatorGraph, plan: Plan, refusal: Refusal) -> None:
    path = refusal.path
    edges = {(producer, consumer) for producer, consumer, _ in graph.edges.tolist()}
    home = plan.group_of
    assert home[path[0]] == home[path[-1]]
    assert all(home[operator] != home[path[0]] for operator in path[1:-1])
    assert (path[0], path[1]) in edges and (path[-2], path[-1]) in edges
    for one, other in pairwise(path):
        assert (one, other) in edges or home[one] == home[other]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_completing_set_is_the_least_that_helps(data: st.DataObject) -> None:
    graph = data.draw(graphs(most=7))
    plan = edits.contraction_tails(graph)
    asked = data.draw(st.sets(st.sampled_from(range(len(graph.operators))), min_size=1, max_size=3))
    union = {o for one in asked for o in plan.groups[plan.group_of[one]].operators}
    others = [group.operators for group in plan.groups if not union.intersection(group.operators)]
    found = completing_set(graph, plan, asked)
    if not found:
        return
    acyclic = []
    for chosen in range(1 << len(others)):
        joined = union.union(*(group for i, group in enumerate(others) if chosen >> i & 1))
        rest = [group for i, group in enumerate(others) if not chosen >> i & 1]
        candidate = Plan.of([FusionGroup(tuple(sorted(joined))), *map(FusionGroup, rest)])
        refusal = check(graph, candidate)
        if refusal is None or refusal.reason is Reason.APART:
            acyclic.append(joined - union)
    assert min(acyclic, key=len) == set(found)
    assert all(set(found) <= other for other in acyclic)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_fusible_tells_what_toggle_would_allow(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    plan = edits.contraction_tails(graph)
    told = fusible(graph, plan)
    for allowed, (producer, consumer, _) in zip(told, graph.edges.tolist(), strict=True):
        try:
            edits.toggle(graph, plan, producer, consumer)
            assert allowed
        except Refusal:
            assert not allowed


def test_fusible_beyond_one_block_of_columns() -> None:
    chain = "; ".join(
        f"t{i} = Add({'x' if i == 0 else f't{i - 1}'}, {'x' if i < 2 else f't{i - 2}'})" for i in range(5000)
    )
    graph = drawn(chain)
    told = fusible(graph, edits.unfused(graph))
    span = graph.edges[:, 1] - graph.edges[:, 0]
    assert np.array_equal(told, span == 1)


def test_an_update_in_place_is_a_barrier() -> None:
    """Fused with its reader, the rows that were there before would never be read from memory."""
    graph = load_graph("decode_kv")
    plan = edits.unfused(graph)
    at = graph.operator_by_name
    append, reader = at["present_k"], at["attn_k_columns"]
    assert graph.operators[append].updates
    with pytest.raises(Refusal, match="updates a cache in place"):
        edits.fuse(graph, plan, (append, reader))
    row = next(i for i, edge in enumerate(graph.edges.tolist()) if edge[:2] == [append, reader])
    assert not fusible(graph, plan)[row]
