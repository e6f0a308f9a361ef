"""Loop trees: canonical ones, their text both ways, and refusals that name operators, dim and law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from model.cost import retention
from model.cost.layout import pack
from model.cost.nest import Nest, NestAccess, NestOperator, NestTensor
from model.cost.tree import canonical, check, from_text, leaves, paths, to_text
from model.cost.unify import GroupSpace, unify
from model.errors import PlanError
from tests import worked
from tests.cost_graphs import attention, mlp
from tests.test_cost_unify import split_heads


def named(space: GroupSpace) -> list[str]:
    return [f"op{i}" for i in range(len(space.operators))]


def text(space: GroupSpace, order: str) -> str:
    dims = [space.names.index(name) for name in order.split()]
    return to_text(canonical(space, dims), space.names, named(space))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("m n k", "m { n { op0(k), op1 } }"),
        ("n k m", "n { op0(k, m), op1(m) }"),
        ("k m n", "op0(k, m, n), m { n { op1 } }"),
        ("m", "m { op0, op1 }"),
        ("", "op0, op1"),
    ],
)
def test_the_canonical_tree_of_a_product_and_its_tail(order: str, expected: str) -> None:
    # A run of one operator is written in its parentheses: "m { n { op1 } }" is "op1(m, n)".
    wanted = expected.replace("m { n { op1 } }", "op1(m, n)")
    assert text(unify(worked.graph(), (0, 1)), order) == wanted


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("b m n k n_2", "b { m { n { op0(k), op1, op2(n_2) } } }"),  # FlashAttention-2
        ("m k n", "m { op0(k, n), n { op1, op2 } }"),
        ("n_2 m", "m { op0, op1 }, op2(n_2, m)"),
    ],
)
def test_the_canonical_tree_of_attention(order: str, expected: str) -> None:
    assert text(unify(attention(16, 24, 8, 2), (0, 1, 2)), order) == expected


def test_an_mlp_shares_rows_and_the_hidden_dim() -> None:
    space = unify(mlp(16, 8, 32), (0, 1, 2))
    assert text(space, "m n k n_2") == "m { n { op0(k), op1, op2(n_2) } }"


@pytest.mark.parametrize(
    "make", [lambda: (worked.graph(), (0, 1)), lambda: (attention(4, 6, 2, 2), (0, 1, 2))]
)
def test_text_and_tree_are_two_forms_of_one_thing(make) -> None:  # type: ignore[no-untyped-def]
    graph, members = make()
    space = unify(graph, members)
    names = named(space)
    for count in range(len(space.names) + 1):
        for order in itertools.permutations(range(len(space.names)), count):
            tree = canonical(space, order)
            check(space, tree, names)
            written = to_text(tree, space.names, names)
            assert from_text(written, space, {name: i for i, name in enumerate(names)}) == tree
            assert [leaf.operator for leaf in leaves(tree)] == list(range(len(names)))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("m { op0(k), op1", "not closed"),
        ("m { op0(k), op1 } }", "not opened"),
        ("z { op0, op1 }", "no dim 'z'"),
        ("op0, op2", "no operator 'op2'"),
        ("op1, op0", "file order"),
        ("op0", "file order"),
        ("op0(z), op1", "no dim 'z'"),
        ("op0(m, op1", "not closed|no dim"),
        ("{ op0, op1 }", "should stand"),
    ],
)
def test_text_that_is_no_tree_is_refused_with_its_place(wrong: str, reason: str) -> None:
    space = unify(worked.graph(), (0, 1))
    with pytest.raises(PlanError, match=reason):
        from_text(wrong, space, {"op0": 0, "op1": 1})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("k { op0, op1 }", "op1 cannot run inside op0's reduction over k"),
        ("m { op0(m), op1 }", "two loops over m"),
        (
            "m { op0(k), n { op1(k) } }",
            None,
        ),  # a foreign loop at a pointwise operator is recomputation, legal
    ],
)
def test_trees_against_the_laws(wrong: str, reason: str | None) -> None:
    space = unify(worked.graph(), (0, 1))
    tree = from_text(wrong, space, {"op0": 0, "op1": 1})
    if reason is None:
        check(space, tree, ["op0", "op1"])
    else:
        with pytest.raises(PlanError, match=reason) as caught:
            check(space, tree, ["op0", "op1"])
        assert caught.value.lever


def test_a_foreign_loop_inside_a_reduction_is_refused() -> None:
    space = unify(split_heads().graph("S"), (0, 1, 2))
    tree = from_text("m { op0(k, p), op1 }", space, {"op0": 0, "op1": 1})
    with pytest.raises(PlanError, match="not op0's own and lies inside its reduction"):
        check(space, tree, ["op0", "op1"])


def test_an_axis_that_stays_whole_is_no_shared_loop() -> None:
    sketch_space = unify(mlp(16, 8, 8), (0, 1, 2))
    names = named(sketch_space)
    # n is the hidden dim: the sum of the second product, shared with the first: legal.
    check(sketch_space, from_text("n { op0, op1, op2 }", sketch_space, dict(zip(names, range(3)))), names)  # noqa: B905


def test_the_kernel_grows_the_same_trees() -> None:
    """`retention.branch` and `tree.canonical` are one rule: every order of three groups."""
    cases = [(worked.graph(), (0, 1)), (attention(4, 6, 2, 2), (0, 1, 2)), (mlp(4, 6, 8), (0, 1, 2))]
    for graph, members in cases:
        space = unify(graph, members)
        base = Nest(
            space.extents,
            (),
            tuple(
                NestOperator(
                    -1, 0, op.dims, op.reductions, False, False,
                    tuple(NestAccess(a.tensor, a.axes, (0,)) for a in op.reads),
                    tuple(NestAccess(a.tensor, a.axes, (0,)) for a in op.writes),
                )
                for op in space.operators
            ),
            (NestTensor(8, 32),) * len(space.tensors),
        )  # fmt: skip
        arrays = pack(base)
        count, dims = len(space.operators), len(space.extents)
        barred = np.zeros((count, count), np.int64)
        for p, c, mask in space.barred:
            barred[p, c] = mask
        tile = np.ones(dims, np.int64)
        for order in itertools.permutations(range(dims)):
            path = np.zeros((count, dims + 1), np.int64)
            lengths = np.zeros(count, np.int64)
            loops = np.zeros((count * dims + 1, 5), np.int64)
            retention.branch(
                arrays.ops, barred, arrays.extents, tile, np.array(order, np.int64), path, lengths, loops
            )
            grown = [[int(loops[loop, 0]) for loop in path[o, : lengths[o]]] for o in range(count)]
            wanted = paths(canonical(space, order))
            assert grown == [list(over) for _, over in wanted]
            # The same operators share the same loops.
            for a, b in itertools.combinations(range(count), 2):
                shared = len(set(path[a, : lengths[a]].tolist()) & set(path[b, : lengths[b]].tolist()))
                assert shared == len(set(wanted[a][0]) & set(wanted[b][0]))
