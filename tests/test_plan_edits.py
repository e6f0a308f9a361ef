"""Edits: what they make of plans written as text, which knobs stay, and that every result is legal."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import PlanError, UsageError
from model.graph.graph import OperatorGraph
from model.plan import edits
from model.plan.legality import Refusal, check
from model.plan.notation import from_text, to_text
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.drawn import drawn
from tests.test_plan_legality import TRAP, graphs, legal_by_networkx

CHAIN = "a = MatMul(x, w); b = Relu(a); c = MatMul(b, w2); d = Relu(c)"


def text_of(graph: OperatorGraph, plan: Plan) -> str:
    assert legal_by_networkx(graph, plan)
    return to_text(graph, plan)


def at(graph: OperatorGraph, text: str) -> list[int]:
    return [graph.operator_by_name[name] for name in text.split()]


@pytest.mark.parametrize(
    ("graph", "plan"),
    [
        (CHAIN, "[a b] [c d]"),
        # A branch that meets again is part of the tail: x * sigmoid(x).
        ("a = MatMul(x, w); s = Sigmoid(a); y = Mul(a, s); z = Softmax(y)", "[a s y] [z]"),
        # A join of two contractions goes to the later one; the gate keeps its own tail.
        (
            "g = MatMul(x, w); s = Sigmoid(g); h = Mul(g, s); u = MatMul(x, w2); y = Mul(h, u)",
            "[g s h] [u y]",
        ),
        # What leaves for elsewhere ends the tail before the operator with two consumers' join.
        ("a = MatMul(x, w); b = Relu(a); c = Softmax(a)", "[a] [b] [c]"),
        ("a = MatMul(x, w); b = Relu(a); c = Relu(b); d = Softmax(b); e = Add(c, d)", "[a b] [c] [d] [e]"),
        # Views lie within tails, and go with what they view elsewhere; a view of an input stands alone.
        ("a = MatMul(x, w); v = Reshape(a); r = Relu(v); u = Reshape(x)", "[a v r] [u]"),
        ("a = Softmax(x); v = Reshape(a); u = Reshape(v); c = If(x); p = Reshape(c)", "[a v u] [c] [p]"),
        ("a = MatMul(x, w); b = Add(a, r); c = Transpose(b)", "[a b] [c]"),
    ],
)
def test_contraction_tails(graph: str, plan: str) -> None:
    assert text_of(drawn(graph), edits.contraction_tails(drawn(graph))) == plan


def test_a_tail_does_not_swallow_a_wide_fan() -> None:
    fan = "a = MatMul(x, w); " + "; ".join(f"r{i} = Relu(a)" for i in range(40))
    graph = drawn(f"{fan}; s = Sum({', '.join(f'r{i}' for i in range(40))})")
    assert len(edits.contraction_tails(graph).groups) == 42


def test_fuse_split_move_in_text() -> None:
    graph = drawn(CHAIN)
    plan = edits.unfused(graph)
    assert text_of(graph, plan) == "[a] [b] [c] [d]"
    plan = edits.fuse(graph, plan, at(graph, "b c"))
    assert text_of(graph, plan) == "[a] [b c] [d]"
    plan = edits.fuse(graph, plan, at(graph, "a c d"))
    assert text_of(graph, plan) == "[a b c d]"
    assert text_of(graph, edits.split(graph, plan, at(graph, "b"))) == "[a] [b] [c d]"
    plan = edits.split(graph, plan, at(graph, "c d"))
    assert text_of(graph, plan) == "[a b] [c d]"
    assert text_of(graph, edits.move(graph, plan, at(graph, "b"), 2)) == "[a] [b c d]"
    assert text_of(graph, edits.move(graph, plan, at(graph, "c"), 0)) == "[a b c] [d]"


def test_what_an_operator_leaves_behind() -> None:
    graph = drawn("a = Relu(x); b = Relu(a); c = Add(a, b); d = Relu(a); p = Relu(x)")
    whole = from_text(graph, "[a b c d] [p]")
    assert text_of(graph, edits.split(graph, whole, at(graph, "b"))) == "[a d] [b] [c] [p]"
    assert text_of(graph, edits.split(graph, whole, at(graph, "a"))) == "[a] [b c d] [p]"
    assert text_of(graph, edits.move(graph, whole, at(graph, "a"), 4)) == "[a p] [b c d]"
    # c and d stay together because both read a; two that share nothing part.
    assert text_of(graph, edits.split(graph, whole, at(graph, "c d"))) == "[a b] [c d] [p]"
    graph = drawn(CHAIN)
    assert (
        text_of(graph, edits.split(graph, from_text(graph, "[a b c d]"), at(graph, "a d"))) == "[a] [b c] [d]"
    )


def test_split_of_a_set_with_an_operator_between_is_refused_and_completed() -> None:
    graph = drawn("a = Relu(x); b = Relu(a); c = Add(a, b); d = Relu(c)")
    plan = from_text(graph, "[a b c d]")
    with pytest.raises(Refusal) as caught:
        edits.split(graph, plan, at(graph, "a c"))
    assert caught.value.completing == (1,)
    assert caught.value.fix is not None
    assert text_of(graph, caught.value.fix) == "[a b c] [d]"


def test_move_that_would_close_a_cycle_carries_its_fix() -> None:
    graph = drawn(TRAP)
    plan = edits.unfused(graph)
    with pytest.raises(Refusal) as caught:
        edits.move(graph, plan, at(graph, "D_add"), 0)
    assert caught.value.path == (0, 1, 2, 3)
    assert caught.value.fix == from_text(graph, "[A_relu B_matmul C_softmax D_add]")


@pytest.mark.parametrize(
    ("graph", "whole", "edge", "cut"),
    [
        (CHAIN, "[a b c d]", "b c", "[a b] [c d]"),
        ("a = Relu(x); b = Relu(z); c = Add(a, b)", "[a b c]", "a c", "[a] [b c]"),
        ("a = Relu(x); p = Relu(a); q = Relu(z); c = Add(a, q)", "[a p q c]", "a c", "[a p] [q c]"),
        ("a = Relu(x); b = Relu(a); c = Relu(b); d = Add(a, c)", "[a b c d]", "b c", "[a b] [c d]"),
        ("a = Relu(x); b = Relu(a); p = Relu(z); c = Add(a, b, p)", "[a b c p]", "b c", "[a b] [p c]"),
    ],
)
def test_toggle_cuts_and_fuses_back(graph: str, whole: str, edge: str, cut: str) -> None:
    drawing = drawn(graph)
    before = from_text(drawing, whole)
    producer, consumer = at(drawing, edge)
    after = edits.toggle(drawing, before, producer, consumer)
    assert text_of(drawing, after) == cut
    assert edits.toggle(drawing, after, producer, consumer) == before


def test_fusing_apart_operators_is_refused_with_both() -> None:
    graph = drawn("a = Relu(x); b = Relu(z)")
    with pytest.raises(Refusal, match="`a` with `b`: no tensor connects them"):
        edits.fuse(graph, edits.unfused(graph), (0, 1))


def test_knobs_stay_where_they_still_mean_the_same() -> None:
    graph = drawn(CHAIN)
    plan = from_text(graph, "[a b] [c] [d]")
    level = LevelTile("buffer", tile=(("m", 4),))
    plan = edits.set_level(graph, plan, 0, level)
    plan = edits.set_group(graph, plan, 0, stages=2, precision="bf16", pinned=("w", "x"), recompute=("a",))
    plan = edits.set_group(graph, plan, 1, stages=2, precision="int8", pinned=("w2",))
    plan = edits.set_group(graph, plan, 2, stages=3, tree="m { d }")
    fused = edits.fuse(graph, plan, at(graph, "a c"))
    assert fused.groups[0] == FusionGroup((0, 1, 2), stages=2, pinned=("w", "x", "w2"), recompute=("a",))
    assert fused.groups[1] is plan.groups[2]
    assert fused.changed(plan) == (0,)
    cut = edits.toggle(graph, plan, 0, 1)
    assert cut.groups[0] == FusionGroup((0,), stages=2, precision="bf16", pinned=("w", "x"), recompute=("a",))
    assert cut.groups[1] == FusionGroup((1,), stages=2, precision="bf16")


def test_levels_are_set_replaced_and_unset() -> None:
    graph = drawn(CHAIN)
    plan = edits.unfused(graph)
    buffer, registers = LevelTile("buffer", (("m", 4),)), LevelTile("registers", (("m", 2),))
    two = edits.set_level(graph, edits.set_level(graph, plan, 1, buffer), 1, registers)
    assert two.groups[1].levels == (buffer, registers)
    wider = replace(buffer, tile=(("m", 8),))
    assert edits.set_level(graph, two, 1, wider).groups[1].levels == (wider, registers)
    one = edits.set_level(graph, two, 1, LevelTile("buffer"))
    assert one.groups[1].levels == (registers,)
    assert edits.set_level(graph, one, 1, LevelTile("registers")) == plan
    assert two.changed(plan) == (1,) and two.changed(two) == () and two.changed(replace(two)) == ()
    with pytest.raises(PlanError, match="a tile of 0 along m"):
        edits.set_level(graph, plan, 0, LevelTile("buffer", (("m", 0),)))
    with pytest.raises(UsageError, match="no knob 'stage'"):
        edits.set_group(graph, plan, 0, stage=2)
    with pytest.raises(UsageError, match="there is no group 4"):
        edits.set_group(graph, plan, 4, stages=2)


def test_edits_that_change_nothing_return_the_same_plan() -> None:
    graph = drawn(CHAIN)
    plan = from_text(graph, "[a b] [c] [d]")
    assert edits.fuse(graph, plan, (0, 1)) is plan
    assert edits.split(graph, plan, (0, 1)) is plan
    assert edits.move(graph, plan, (1,), 0) is plan
    assert edits.set_group(graph, plan, 0, stages=0) is plan


def test_wrong_operators_and_edges_are_usage_errors() -> None:
    graph = drawn(CHAIN)
    plan = edits.unfused(graph)
    for operators in ((), (9,), (-1,)):
        with pytest.raises(UsageError, match="Operators are 0 to 3"):
            edits.fuse(graph, plan, operators)
    with pytest.raises(UsageError, match="no edge leads from `a` to `d`"):
        edits.toggle(graph, plan, 0, 3)


@st.composite
def edited(draw: st.DrawFn) -> tuple[OperatorGraph, list[Plan]]:
    """A graph and the plans of a random session of edits, refused ones taken at their fix."""
    graph = draw(graphs(most=10))
    plans = [draw(st.sampled_from([edits.unfused, edits.contraction_tails]))(graph)]
    operator = st.sampled_from(range(len(graph.operators)))
    several = st.lists(operator, min_size=1, max_size=4)
    for _ in range(draw(st.integers(1, 8))):
        plan = plans[-1]
        kind = draw(st.sampled_from(["fuse", "split", "move", "toggle", "knob"]))
        try:
            if kind == "fuse":
                plan = edits.fuse(graph, plan, draw(several))
            elif kind == "split":
                plan = edits.split(graph, plan, draw(several))
            elif kind == "move":
                plan = edits.move(graph, plan, draw(several), draw(operator))
            elif kind == "toggle" and len(graph.edges):
                producer, consumer, _ = draw(st.sampled_from(graph.edges.tolist()))
                plan = edits.toggle(graph, plan, producer, consumer)
            else:
                plan = edits.set_group(graph, plan, draw(st.integers(0, len(plan.groups) - 1)), stages=2)
        except Refusal as refusal:
            assert (refusal.fix is None) == (not refusal.completing)
            plan = refusal.fix or plan
        plans.append(plan)
    return graph, plans


@settings(max_examples=400, deadline=None)
@given(edited())
def test_every_edit_is_legal_and_says_what_it_changed(session: tuple[OperatorGraph, list[Plan]]) -> None:
    graph, plans = session
    for before, after in pairwise(plans):
        assert legal_by_networkx(graph, after) and check(graph, after) is None
        assert sorted(o for group in after.groups for o in group.operators) == list(
            range(len(graph.operators))
        )
        assert [group.operators for group in Plan.of(after.groups).groups] == [
            g.operators for g in after.groups
        ]
        fresh = Plan(after.groups)
        assert fresh.membership.tolist() == after.membership.tolist() == list(after.group_of)
        old = set(before.groups)
        assert after.changed(before) == tuple(i for i, g in enumerate(after.groups) if g not in old)
        assert after.changed(before) == fresh.changed(Plan(tuple(map(replace, before.groups))))


@settings(max_examples=300, deadline=None)
@given(edited(), st.data())
def test_edit_then_inverse_is_the_original_value(
    session: tuple[OperatorGraph, list[Plan]], data: st.DataObject
) -> None:
    graph, plans = session
    plan = Plan(tuple(FusionGroup(group.operators) for group in plans[-1].groups))
    operator = data.draw(st.sampled_from(range(len(graph.operators))))
    # Parting a group and fusing its parts; fusing and parting again.
    members = plan.groups[plan.group_of[operator]].operators
    assert edits.fuse(graph, edits.split(graph, plan, (operator,)), members) == plan
    for producer, consumer, _ in graph.edges.tolist():
        one, other = plan.group_of[producer], plan.group_of[consumer]
        if one != other:
            try:
                fused = edits.toggle(graph, plan, producer, consumer)
            except Refusal:
                continue
            assert edits.split(graph, fused, plan.groups[other].operators) == plan
            back = edits.split(graph, fused, plan.groups[one].operators)
            assert back == plan


def test_benchmark_one_edit_of_5_580_operators(benchmark) -> None:
    layer = [f"t{i} = Add(t{i - 1}, t{max(i - 9, 0)})" for i in range(1, 5580)]
    graph = drawn("; ".join(["t0 = Relu(x)", *layer]))
    plan = edits.unfused(graph)
    fused = benchmark(edits.toggle, graph, plan, 2790, 2791)
    assert fused.changed(plan)[0] == 2790
