"""Group dims: through tensors, views and mixed radix; what stays whole; names; what a loop may not be shared over."""

from __future__ import annotations

from model.cost.nest import IndirectAxis, SimpleAxis, WindowAxis
from model.cost.unify import GroupSpace, unify
from model.graph.graph import Access, Axis, Dim, OpKind
from tests import worked
from tests.cost_graphs import Sketch, attention, mlp


def barred(space: GroupSpace) -> dict[tuple[int, int], set[str]]:
    """Per edge the dims that no shared loop may be over."""
    return {
        (p, c): {name for d, name in enumerate(space.names) if mask >> d & 1} for p, c, mask in space.barred
    }


def test_a_product_and_its_tail_share_rows_and_columns() -> None:
    space = unify(worked.graph(), (0, 1))
    assert space.names == ("m", "n", "k")
    assert space.extents == (64, 48, 32)
    assert space.dim_of == (("m", "n", "k"), ("m", "n"))
    assert barred(space) == {(0, 1): {"k"}}
    assert space.exported == (False, False, False, True)
    assert space.intermediate(2)


def test_attention_has_one_dim_for_keys_and_two_for_heads_width() -> None:
    space = unify(attention(16, 24, 8, heads=2), (0, 1, 2))
    assert dict(zip(space.names, space.extents, strict=True)) == {"b": 2, "m": 16, "n": 24, "k": 8, "n_2": 8}
    assert space.dim_of == (("b", "m", "n", "k"), ("b", "m", "n"), ("b", "m", "n_2", "n"))
    # The softmax is online towards the product over the keys, so n is free there; k is a sum.
    assert barred(space) == {(0, 1): {"k"}, (1, 2): set()}
    (online,) = space.online
    assert online[:2] == (1, 2)


def test_a_softmax_that_is_read_outside_is_not_online() -> None:
    sketch = Sketch()
    sketch.tensor("Q", 1, 16, 8)
    sketch.tensor("K", 1, 8, 24)
    sketch.tensor("V", 1, 24, 8)
    sketch.product("Q", "K", "S")
    sketch.softmax("S", "P")
    sketch.product("P", "V", "O")
    space = unify(sketch.graph("P", "O"), (0, 1, 2))
    assert space.online == ()
    assert barred(space)[1, 2] == {"n"}


def test_a_norm_before_a_non_linearity_needs_the_whole_row() -> None:
    def group(middle: str, linear: bool) -> GroupSpace:
        sketch = Sketch()
        sketch.tensor("X", 16, 8)
        sketch.tensor("W", 8, 4, weight=True)
        sketch.softmax("X", "N", "RMSNormalization")
        sketch.pointwise(middle, ["N"], "H", linear=linear)
        sketch.product("H", "W", "Y")
        return unify(sketch.graph("Y"), (0, 1, 2))

    assert len(group("Mul", linear=True).online) == 1
    assert group("Gelu", linear=False).online == ()


def test_two_dims_of_one_operator_are_never_made_one() -> None:
    """LayerNorm -> X; T = X W; Y = T + X would make n = k: X stays whole along its columns."""
    sketch = Sketch()
    sketch.tensor("A", 16, 8)
    sketch.tensor("W", 8, 8, weight=True)
    sketch.softmax("A", "X", "LayerNormalization", online=False)
    sketch.product("X", "W", "T")
    sketch.pointwise("Add", ["T", "X"], "Y")
    space = unify(sketch.graph("Y"), (0, 1, 2))
    # The softmax's columns became the product's k, so the sum's columns are n and X's may not be.
    assert space.dim_of == (("i0", "i1"), ("i0", "n", "i1"), ("i0", "n"))
    assert barred(space) == {(0, 1): {"i1"}, (0, 2): {"i1"}, (1, 2): {"i1"}}


def test_a_square_product_of_a_tensor_with_itself_keeps_its_rows_apart() -> None:
    sketch = Sketch()
    sketch.tensor("X", 16, 16)
    sketch.pointwise("Relu", ["X"], "R", "relu")
    sketch.product("R", "R", "Y")
    space = unify(sketch.graph("Y"), (0, 1))
    # R is read as [m, k] and as [k, n]; i0 can be m or k, not both.
    assert len({space.dim_of[1][0], space.dim_of[1][1], space.dim_of[1][2]}) == 3
    assert barred(space)[0, 1] != set()


def split_heads() -> Sketch:
    """T[m, n] = X W; view [m, h, d]; S[h, m, p] = T[m, h, d] K[h, d, p]."""
    sketch = Sketch()
    sketch.tensor("X", 16, 32)
    sketch.tensor("W", 32, 24, weight=True)
    sketch.tensor("K", 3, 8, 10)
    sketch.product("X", "W", "T")
    dims = [Dim("i0", 16), Dim("i1", 3), Dim("i2", 8)]
    sketch.tensor("V", 16, 3, 8)
    sketch.add(
        "Reshape",
        OpKind.VIEW,
        dims,
        [("T", [Axis(((0, 1),)), Axis(((1, 8), (2, 1)))])],
        ("V", [Axis(((0, 1),)), Axis(((1, 1),)), Axis(((2, 1),))]),
        linear=True,
    )
    sketch.add(
        "MatMul",
        OpKind.CONTRACTION,
        [Dim("h", 3), Dim("m", 16), Dim("p", 10), Dim("d", 8, reduction=True)],
        [
            ("V", [Axis(((1, 1),)), Axis(((0, 1),)), Axis(((3, 1),))]),
            ("K", [Axis(((0, 1),)), Axis(((3, 1),)), Axis(((2, 1),))]),
        ],
        ("S", [Axis(((0, 1),)), Axis(((1, 1),)), Axis(((2, 1),))]),
    )
    return sketch


def test_a_head_split_factors_the_columns_and_the_view_disappears() -> None:
    space = unify(split_heads().graph("S"), (0, 1, 2))
    assert dict(zip(space.names, space.extents, strict=True)) == {"m": 16, "h": 3, "d": 8, "k": 32, "p": 10}
    assert space.dim_of == (("m", "h*d", "k"), ("m", "h", "d"), ("h", "m", "p", "d"))
    assert [operator.member for operator in space.operators] == [0, 2]
    d = {name: i for i, name in enumerate(space.names)}
    # The consumer reads the product's own tensor, one simple axis per factor.
    read = space.operators[1].reads[0]
    assert read.tensor == space.operators[0].writes[0].tensor
    assert set(read.axes) == {SimpleAxis(d["h"]), SimpleAxis(d["m"]), SimpleAxis(d["d"])}
    assert barred(space) == {(0, 1): {"k"}}


def test_a_dim_under_a_window_is_kept_whole() -> None:
    """Relu then a 3-wide convolution: its rows are read through a window, so Relu's rows are no shared loop."""
    sketch = Sketch()
    sketch.tensor("X", 18, 4)
    sketch.tensor("W", 3, 4, 5, weight=True)
    sketch.pointwise("Relu", ["X"], "R", "relu")
    dims = [Dim("p", 16), Dim("n", 5), Dim("r", 3, reduction=True), Dim("c", 4, reduction=True)]
    sketch.add(
        "Conv",
        OpKind.CONTRACTION,
        dims,
        [
            ("R", [Axis(((0, 1), (2, 1))), Axis(((3, 1),))]),
            ("W", [Axis(((2, 1),)), Axis(((3, 1),)), Axis(((1, 1),))]),
        ],
        ("Y", [Axis(((0, 1),)), Axis(((1, 1),))]),
    )
    space = unify(sketch.graph("Y"), (0, 1))
    assert space.dim_of == (("i0", "i1"), ("p", "n", "r", "i1"))
    assert barred(space)[0, 1] == {"i0"}
    d = {name: i for i, name in enumerate(space.names)}
    assert space.operators[1].reads[0].axes[0] == WindowAxis(d["p"], d["r"], 1, 1, 0, 18)


def test_readers_of_one_input_share_its_dims() -> None:
    """Q and K projections of one X: rows and sums are common, columns their own."""
    sketch = Sketch()
    sketch.tensor("X", 16, 8)
    sketch.tensor("W1", 8, 4, weight=True)
    sketch.tensor("W2", 8, 6, weight=True)
    sketch.product("X", "W1", "Q")
    sketch.product("X", "W2", "K")
    space = unify(sketch.graph("Q", "K"), (0, 1))
    assert space.dim_of == (("m", "n", "k"), ("m", "n_2", "k"))
    assert space.barred == ()


def test_rows_by_value_and_whole_operands() -> None:
    sketch = Sketch()
    sketch.tensor("table", 100, 8, weight=True)
    sketch.tensor("at", 16, dtype="int64")
    gather = [Axis(((0, 1),), distinct=15), Axis(((1, 1),))]
    sketch.add(
        "Gather",
        OpKind.MOVEMENT,
        [Dim("i0", 16), Dim("i1", 8)],
        [("table", gather), ("at", [Axis(((0, 1),))])],
        ("Y", [Axis(((0, 1),)), Axis(((1, 1),))]),
    )
    graph = sketch.graph("Y")
    space = unify(graph, (0,))
    assert space.operators[0].reads[0].axes == (IndirectAxis((0,), 15), SimpleAxis(1))
    odd = Access(graph.operators[0].inputs[0].tensor, whole=True, addressed=77)
    assert odd.whole  # an operand without an index map is moved once, so many elements
    sketch.operators[0] = type(sketch.operators[0])(
        0, "Odd_0", "Odd", OpKind.MOVEMENT, graph.operators[0].dims, (odd,), graph.operators[0].outputs
    )
    assert unify(sketch.graph("Y"), (0,)).operators[0].reads[0].fixed == 77


def test_a_residual_block_unifies_through_two_products() -> None:
    space = unify(mlp(16, 8, 32), (0, 1, 2))
    assert space.dim_of == (("m", "n", "k"), ("m", "n"), ("m", "n_2", "n"))
    assert barred(space) == {(0, 1): {"k"}, (1, 2): set()}
