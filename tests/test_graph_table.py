"""The operator-type table: dims and counts worked by hand, and every index map walked against onnx.reference.

The walk below knows nothing of the table: it visits every point of a nest, computes the element that each
operand addresses there, and does the obvious with it. Its result must be what onnx's own numpy says.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from model.graph.graph import OpKind
from model.graph.row import Call, Loops, Map, Operand, Unmodelled, expected_distinct
from model.graph.table import TABLES, loops_of

OPSET = 22
Const = np.ndarray  # an operand that is given as an array is a constant; one given as a shape is an input


def reference(
    op_type: str, arrays: list[Any], outputs: int, opset: int, **attributes: Any
) -> list[np.ndarray]:
    """What onnx's numpy evaluator makes of one node."""
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], **attributes)
    graph = onnx.GraphProto(name="g", node=[node])
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True) if name
    )
    graph.output.extend(onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(helper.make_opsetid("", opset))
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, {})]


def made(
    op_type: str, *operands: Any, outputs: int = 1, opset: int = OPSET, **attributes: Any
) -> tuple[Loops, list[Any], list[np.ndarray]]:
    """The nest of a call, the arrays it reads (whole numbers, so that sums are exact), the true outputs."""
    rng = np.random.default_rng(7)
    arrays = [
        operand if operand is None or isinstance(operand, np.ndarray)
        else rng.integers(1, 9, operand).astype(np.float32)
        for operand in operands
    ]  # fmt: skip
    truth = reference(op_type, arrays, outputs, opset, **attributes)
    inputs = tuple(
        None if array is None else _operand(f"x{i}", array, isinstance(operands[i], np.ndarray))
        for i, array in enumerate(arrays)
    )
    results = tuple(_operand(f"y{i}", y, False) for i, y in enumerate(truth))
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in attributes.items()}
    return loops_of(Call(op_type, inputs, results, plain, opset)), arrays, truth


def _operand(name: str, array: np.ndarray, constant: bool) -> Operand:
    values = tuple(array.ravel().tolist()) if constant else None
    return Operand(name, array.shape, str(array.dtype), constant, values)


def element(loops: Loops, m: Map, point: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The element that an operand addresses at a point; None in the padding."""
    assert len(m.axes) == len(shape)
    index = tuple(a.offset + sum(c * point[d] for d, c in a.terms) for a in m.axes)
    return index if all(0 <= i < n for i, n in zip(index, shape, strict=True)) else None


def walk(loops: Loops, arrays: list[Any], truth: list[np.ndarray], reduce: str = "sum") -> list[np.ndarray]:
    """Visit every point: contractions add products, the others carry what their operands hold there."""
    out = [np.full(y.shape, -math.inf if reduce == "max" else 0.0) for y in truth]
    product = loops.kind is OpKind.CONTRACTION
    operands = loops.inputs[:2] if product else loops.inputs
    for point in itertools.product(*(range(dim.extent) for dim in loops.dims)):
        indices = [(m, element(loops, m, point, arrays[m.position].shape)) for m in operands]
        values = [float(arrays[m.position][index]) for m, index in indices if index is not None]
        if not values or (product and len(values) < len(operands)):
            continue  # padding
        value = math.prod(values) if product else sum(values)  # of a Concat's operands one is inside
        for m in loops.outputs:
            index = element(loops, m, point, out[m.position].shape)
            if index is None:
                continue
            if reduce == "max":
                out[m.position][index] = max(out[m.position][index], value)
            elif loops.kind in (OpKind.MOVEMENT, OpKind.VIEW):
                out[m.position][index] = value
            else:
                out[m.position][index] += value
    return out


I64 = np.int64
WALKED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("MatMul", ((3, 4), (4, 5)), {}),
    ("MatMul", ((2, 3, 4), (4, 5)), {}),
    ("MatMul", ((2, 1, 3, 4), (5, 4, 2)), {}),
    ("MatMul", ((4,), (4, 5)), {}),
    ("MatMul", ((2, 3, 4), (4,)), {}),
    ("MatMul", ((4,), (4,)), {}),
    ("Gemm", ((3, 4), (4, 5)), {}),
    ("Gemm", ((4, 3), (5, 4)), {"transA": 1, "transB": 1}),
    ("Conv", ((2, 3, 7, 6), (4, 3, 3, 3)), {"strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}),
    ("Conv", ((1, 4, 5, 5), (6, 2, 3, 3)), {"group": 2, "pads": [1, 1, 1, 1]}),
    ("Conv", ((1, 3, 5, 5), (3, 1, 3, 3)), {"group": 3}),
    ("Conv", ((1, 3, 5, 5), (6, 1, 3, 3)), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", ((1, 2, 6, 6), (3, 2, 2, 2)), {"auto_pad": "SAME_LOWER"}),
    ("Conv", ((2, 3, 9), (4, 3, 3)), {"strides": [2]}),
    ("Conv", ((1, 2, 4, 4, 4), (2, 2, 2, 1, 3)), {}),
    ("ConvTranspose", ((1, 3, 4, 4), (3, 2, 2, 2)), {"strides": [2, 2]}),
    ("Einsum", ((2, 3, 4), (2, 5, 4)), {"equation": "bij,bkj->bik"}),
    ("Einsum", ((3, 4), (4,)), {"equation": "ij, j -> i"}),
    ("Einsum", ((3, 4, 2),), {"equation": "abc->cab"}),
    ("Transpose", ((2, 3, 4),), {"perm": [2, 0, 1]}),
    ("Transpose", ((2, 3, 4),), {}),
    ("Concat", ((2, 3), (2, 1), (2, 4)), {"axis": 1}),
    ("Concat", ((2, 3), (1, 3)), {"axis": -2}),
    ("Slice", ((5, 7), np.array([1, -1], I64), np.array([4, -8], I64), np.array([0, 1], I64),
               np.array([1, -2], I64)), {}),
    ("Slice", ((5, 7), np.array([2], I64), np.array([100], I64), np.array([-1], I64)), {}),
    ("Pad", ((2, 3), np.array([1, 0, 2, 1], I64)), {}),
    ("Pad", ((2, 3), np.array([2, 1], I64), None, np.array([1], I64)), {}),
    ("Expand", ((3, 1), np.array([2, 3, 4], I64)), {}),
    ("Tile", ((2, 1, 3), np.array([2, 4, 1], I64)), {}),
    ("Gather", ((5, 4), np.array(-2, I64)), {"axis": 0}),
    ("Gather", ((5, 4), np.array([0, 2], I64)), {"axis": 1}),
    ("Gather", ((5, 4), np.array([3], I64)), {"axis": 0}),
    ("DepthToSpace", ((1, 8, 2, 3),), {"blocksize": 2}),
    ("DepthToSpace", ((1, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", ((1, 2, 4, 6),), {"blocksize": 2}),
    ("Reshape", ((2, 3, 8), np.array([2, 3, 2, 4], I64)), {}),
    ("Reshape", ((2, 3, 2, 4), np.array([2, 3, 8], I64)), {}),
    ("Reshape", ((4, 6), np.array([8, 3], I64)), {}),
    ("Reshape", ((1, 4, 6), np.array([4, 1, 2, 3], I64)), {}),
    ("Flatten", ((2, 3, 4),), {"axis": 2}),
    ("Unsqueeze", ((2, 3), np.array([0, 2], I64)), {}),
    ("Squeeze", ((1, 2, 1, 3), np.array([0, 2], I64)), {}),
    ("Identity", ((2, 3),), {}),
    ("Dropout", ((2, 3),), {}),
    ("Resize", ((1, 2, 2, 3), None, np.array([1, 1, 2, 3], np.float32)),
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("ReduceSum", ((2, 3, 4), np.array([1], I64)), {}),
    ("ReduceSum", ((2, 3, 4), np.array([0, -1], I64)), {"keepdims": 0}),
    ("ReduceSum", ((2, 3),), {}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "operands", "attributes"), WALKED, ids=lambda v: str(v)[:40])
def test_index_maps_walk_to_what_onnx_computes(op_type: str, operands: Any, attributes: Any) -> None:
    loops, arrays, truth = made(op_type, *operands, **attributes)
    assert not any(m.whole for m in (*loops.inputs, *loops.outputs))
    for got, wanted in zip(walk(loops, arrays, truth), truth, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_split_writes_each_output_at_its_offset() -> None:
    sizes = np.array([1, 4, 2], I64)
    loops, arrays, truth = made("Split", (2, 7), sizes, outputs=3, axis=1)
    for got, wanted in zip(walk(loops, arrays, truth), truth, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 2], "dilations": [2, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ],
)
def test_pooling_windows_walk_to_what_onnx_computes(attributes: Any) -> None:
    loops, arrays, truth = made("MaxPool", (1, 2, 6, 7), **attributes)
    np.testing.assert_array_equal(walk(loops, arrays, truth, "max")[0], truth[0])
    assert loops.kind is OpKind.WINDOW
    assert [d.name for d in loops.dims] == ["n", "c", "p", "q", "r", "s"]
    assert [d.name for d in loops.dims if d.reduction] == ["r", "s"]


def test_lrn_window_is_the_channels_that_onnx_sums() -> None:
    loops, arrays, truth = made("LRN", (6, 6, 2, 1), size=3, alpha=3.0, beta=-1.0, bias=0.0)
    # As many samples as channels: onnx 1.23 runs over the wrong axis otherwise.
    # With beta = -1 and alpha / size = 1 the result is x times the sum of squares over the window.
    squares = walk(loops, [arrays[0] ** 2], truth)[0]
    np.testing.assert_allclose(squares * arrays[0], truth[0], rtol=1e-5)


# ---------------------------------------------------------------- dims and counts by hand


def nest(op_type: str, *operands: Any, **more: Any) -> Loops:
    return made(op_type, *operands, **more)[0]


def words(loops: Loops) -> str:
    """``m=3 n=5 [k=4]``."""
    return " ".join(f"[{d.name}={d.extent}]" if d.reduction else f"{d.name}={d.extent}" for d in loops.dims)


@pytest.mark.parametrize(
    ("op_type", "operands", "more", "dims", "kind"),
    [
        # 3 x 4 by 4 x 5; a batch axis is b, a second one b_2.
        ("MatMul", ((3, 4), (4, 5)), {}, "m=3 n=5 [k=4]", "contraction"),
        ("MatMul", ((2, 6, 3, 4), (6, 4, 5)), {}, "b=2 b_2=6 m=3 n=5 [k=4]", "contraction"),
        ("Gemm", ((3, 4), (5, 4), (5,)), {"transB": 1}, "m=3 n=5 [k=4]", "contraction"),
        # 7x7 input, 3x3 taps, stride 2: (7 - 3) / 2 + 1 = 3 pixels a side.
        ("Conv", ((2, 3, 7, 7), (8, 3, 3, 3)), {"strides": [2, 2]},
         "n=2 k=8 p=3 q=3 [c=3] [r=3] [s=3]", "contraction"),
        # 8 input channels in 2 groups: 4 each; 6 output channels: 3 a group.
        ("Conv", ((1, 8, 5, 5), (6, 4, 1, 1)), {"group": 2},
         "n=1 g=2 k=3 p=5 q=5 [c=4] [r=1] [s=1]", "contraction"),
        # Depthwise: one channel in, one out, so only the groups are left.
        ("Conv", ((1, 8, 5, 5), (8, 1, 3, 3)), {"group": 8}, "n=1 g=8 p=3 q=3 [r=3] [s=3]", "contraction"),
        ("Conv", ((1, 2, 9), (4, 2, 3)), {}, "n=1 k=4 p=7 [c=2] [r=3]", "contraction"),
        ("ConvTranspose", ((1, 3, 4, 4), (3, 2, 2, 2)), {"strides": [2, 2]},
         "n=1 k=2 p=4 q=4 [c=3] r=2 s=2", "contraction"),
        ("ConvTranspose", ((1, 3, 4, 4), (3, 2, 3, 3)), {"strides": [2, 2]},
         "n=1 k=2 p=4 q=4 [c=3] [r=3] [s=3]", "contraction"),
        ("Einsum", ((2, 3, 4), (2, 5, 4)), {"equation": "bqd,bkd->bqk"}, "b=2 q=3 k=5 [d=4]", "contraction"),
        ("Add", ((2, 3), (3,)), {}, "i0=2 i1=3", "pointwise"),
        ("Softmax", ((2, 3, 4),), {"axis": 1}, "i0=2 [i1=3] i2=4", "reduction"),
        # Before opset 13 the axis and all after it were one.
        ("Softmax", ((2, 3, 4),), {"axis": 1, "opset": 11}, "i0=2 [i1=3] [i2=4]", "reduction"),
        ("LayerNormalization", ((2, 3, 4), (3, 4)), {"axis": 1}, "i0=2 [i1=3] [i2=4]", "reduction"),
        ("ReduceMean", ((2, 3, 4),), {}, "[i0=2] [i1=3] [i2=4]", "reduction"),
        ("ReduceMean", ((2, 3, 4),), {"axes": [-1], "opset": 13}, "i0=2 i1=3 [i2=4]", "reduction"),
        ("ArgMax", ((2, 3),), {"axis": 1, "keepdims": 0}, "i0=2 [i1=3]", "reduction"),
        ("GlobalAveragePool", ((2, 3, 5, 5),), {}, "i0=2 i1=3 [i2=5] [i3=5]", "reduction"),
        ("InstanceNormalization", ((2, 3, 5, 5), (3,), (3,)), {}, "i0=2 i1=3 [i2=5] [i3=5]", "reduction"),
        ("GroupNormalization", ((2, 6, 5), (6,), (6,)), {"num_groups": 3, "opset": 21},
         "n=2 g=3 [c=2] [i2=5]", "reduction"),
        ("BatchNormalization", ((2, 3, 4), (3,), (3,), (3,), (3,)), {}, "i0=2 i1=3 i2=4", "pointwise"),
        ("AveragePool", ((1, 2, 6, 6),), {"kernel_shape": [3, 3], "strides": [3, 3]},
         "n=1 c=2 p=2 q=2 [r=3] [s=3]", "window"),
        ("Transpose", ((2, 3, 4),), {"perm": [0, 2, 1]}, "i0=2 i1=4 i2=3", "movement"),
        ("Concat", ((2, 3), (2, 4)), {"axis": 1}, "i0=2 i1=7", "movement"),
        # A head split of 512 rows of 32 heads of 128.
        ("Reshape", ((1, 512, 4096), np.array([1, 512, 32, 128], I64)), {},
         "i0=1 i1=512 i2=32 i3=128", "view"),
    ],
)  # fmt: skip
def test_dims(op_type: str, operands: Any, more: Any, dims: str, kind: str) -> None:
    loops = nest(op_type, *operands, **more)
    assert words(loops) == dims
    assert loops.kind.value == kind


def test_depthwise_channels_are_one_dim_of_all_three_operands() -> None:
    loops = nest("Conv", (1, 8, 5, 5), (8, 1, 3, 3), group=8)
    x, w = loops.inputs
    assert x.axes[1].terms == w.axes[0].terms == loops.outputs[0].axes[1].terms == ((1, 1),)
    assert x.axes[2].terms == ((2, 1), (4, 1))  # p + r


def test_grouped_channels_are_mixed_radix() -> None:
    loops = nest("Conv", (1, 8, 5, 5), (6, 4, 1, 1), group=2)
    names = [d.name for d in loops.dims]
    g, k, c = names.index("g"), names.index("k"), names.index("c")
    assert loops.inputs[0].axes[1].terms == ((g, 4), (c, 1))
    assert loops.inputs[1].axes[0].terms == loops.outputs[0].axes[1].terms == ((g, 3), (k, 1))


def test_a_bias_is_one_addition_per_output_element() -> None:
    conv = nest("Conv", (2, 3, 7, 7), (8, 3, 3, 3), (8,))
    points = math.prod(d.extent for d in conv.dims)
    assert sum(n for _, n in conv.vector_ops) * points == pytest.approx(2 * 8 * 5 * 5)
    gemm = nest("Gemm", (3, 4), (4, 5), (5,))
    assert dict(gemm.vector_ops)["add"] * 3 * 5 * 4 == pytest.approx(15)
    assert nest("MatMul", (3, 4), (4, 5)).vector_ops == ()


def test_batch_broadcast_of_a_product_reads_the_smaller_operand_once() -> None:
    loops = nest("MatMul", (2, 8, 4, 3, 5), (2, 8, 1, 5, 6))
    assert words(loops) == "b=2 b_2=8 b_3=4 m=3 n=6 [k=5]"
    assert loops.inputs[1].axes[2].terms == ()


def test_pointwise_broadcast_drops_dims_and_scalars_are_no_operands() -> None:
    loops = nest("Add", (4, 1, 3), (2, 1))
    assert words(loops) == "i0=4 i1=2 i2=3"
    assert [[a.terms for a in m.axes] for m in loops.inputs] == [[((0, 1),), (), ((2, 1),)], [((1, 1),), ()]]
    assert len(nest("Pow", (4, 3), np.array(2.0, np.float32)).inputs) == 1


def test_linear_and_online_flags() -> None:
    assert nest("Softmax", (2, 3)).online
    assert nest("LayerNormalization", (2, 3), (3,)).online
    assert not nest("LogSoftmax", (2, 3)).online
    assert nest("Mul", (2, 3), (2, 3)).linear
    assert nest("Div", (2, 3), (2, 1)).linear
    assert not nest("Div", np.array(1.0, np.float32), (2, 3)).linear
    assert not nest("Add", (2, 3), (2, 3)).linear
    assert nest("Transpose", (2, 3)).linear
    x = Operand("x", (2, 3))
    assert not loops_of(Call("Mul", (x, x), (Operand("y", (2, 3)),), {})).linear, "a square"


def test_reshape_without_common_factors_is_whole() -> None:
    loops = nest("Reshape", (4, 3), np.array([6, 2], I64))
    assert loops.inputs[0].whole and loops.inputs[0].addressed == 12
    assert loops.kind is OpKind.VIEW


def test_zero_size_has_no_points() -> None:
    loops = nest("MatMul", (0, 8), (8, 4))
    assert words(loops) == "m=0 n=4 [k=8]"
    assert nest("Concat", (0, 8), (3, 8), axis=0).inputs[0].position == 1


def test_gather_reads_expected_distinct_rows() -> None:
    """1,000 rows, 500 uniform picks: 1000 (1 - 0.999^500) = 393.6."""
    indices = Operand("i", (5, 100), "int64")
    table, out = Operand("w", (1000, 16), constant=True), Operand("y", (5, 100, 16))
    loops = loops_of(Call("Gather", (table, indices), (out,), {}))
    assert loops.inputs[0].axes[0].terms == ((0, 1), (1, 1))
    assert loops.inputs[0].axes[0].distinct == 394
    assert loops.inputs[1].axes == loops.outputs[0].axes[:2]


def test_gather_counts_known_indices() -> None:
    loops = nest("Gather", (9, 2), np.array([0, 5, 5, 1], I64))
    assert loops.inputs[0].axes[0].distinct is not None
    known = Operand("i", (4,), "int64", True, (0, 5, 5, 1), distinct=3)
    call = Call("Gather", (Operand("x", (9, 2)), known), (Operand("y", (4, 2)),), {})
    assert loops_of(call).inputs[0].axes[0].distinct == 3


@pytest.mark.parametrize(("rows", "picks"), [(1, 7), (10, 1), (10, 10), (50257, 512), (2**40, 3)])
def test_expected_distinct_is_the_occupancy_formula(rows: int, picks: int) -> None:
    exact = rows * (1 - ((rows - 1) / rows) ** picks) if rows < 2**30 else picks
    assert expected_distinct(rows, picks) == max(1, round(exact))


@pytest.mark.parametrize(("domain", "op_type"), [(d, name) for d in TABLES for name in sorted(TABLES[d])])
def test_a_row_refuses_a_call_without_operands_readably(domain: str, op_type: str) -> None:
    try:
        loops_of(Call(op_type, (), (), {}), domain)
    except Unmodelled as unmodelled:
        assert str(unmodelled)
    else:
        pytest.fail("a call without operands has no loops")


@pytest.mark.parametrize(
    ("op_type", "domain", "words"),
    [("Loop", "", "control flow"), ("Blub", "", "Blub is not in"), ("Relu", "acme", "acme::Relu is not in")],
)
def test_what_is_not_in_the_table_says_so(op_type: str, domain: str, words: str) -> None:
    with pytest.raises(Unmodelled, match=words):
        loops_of(Call(op_type, (), (), {}), domain)


def by_hand(op_type: str, *shapes: tuple[int, ...] | None, out: tuple[int, ...], **attributes: Any) -> Loops:
    """A nest from shapes alone, for what onnx's evaluator cannot compute on floats."""
    inputs = tuple(None if s is None else Operand(f"x{i}", s) for i, s in enumerate(shapes))
    return loops_of(Call(op_type, inputs, (Operand("y", out),), attributes))


def test_integer_products_carry_their_zero_points() -> None:
    loops = by_hand("MatMulInteger", (3, 4), (4, 5), (), (5,), out=(3, 5))
    assert words(loops) == "m=3 n=5 [k=4]"
    assert [(m.position, [a.terms for a in m.axes]) for m in loops.inputs[2:]] == [(2, []), (3, [((1, 1),)])]


def test_quantised_product_and_convolution_find_their_second_operand() -> None:
    """A, its scale and zero point, B, its scale and zero point, the result's."""
    product = by_hand("QLinearMatMul", (3, 4), (), (), (4, 5), (5,), (5,), (), (), out=(3, 5))
    assert words(product) == "m=3 n=5 [k=4]"
    assert [m.position for m in product.inputs] == [0, 3, 1, 2, 4, 5, 6, 7]
    conv = by_hand(
        "QLinearConv", (1, 3, 5, 5), (), (), (8, 3, 3, 3), (8,), (8,), (), (), (8,), out=(1, 8, 3, 3)
    )
    assert words(conv) == "n=1 k=8 p=3 q=3 [c=3] [r=3] [s=3]"
    k = 1
    assert [(m.position, [a.terms for a in m.axes]) for m in conv.inputs if m.position in (4, 8)] == [
        (8, [((k, 1),)]), (4, [((k, 1),)]),
    ]  # fmt: skip


def test_scales_run_along_their_axis() -> None:
    loops = by_hand("QuantizeLinear", (2, 6, 4), (6,), (6,), out=(2, 6, 4), axis=1)
    assert [[a.terms for a in m.axes] for m in loops.inputs[1:]] == [[((1, 1),)], [((1, 1),)]]
    assert loops.kind is OpKind.POINTWISE


def test_batch_normalization_in_training_reduces_all_but_the_channels() -> None:
    operands = (Operand("x", (8, 3, 4)), *(Operand(n, (3,)) for n in "sbmv"))
    outputs = (Operand("y", (8, 3, 4)), Operand("mean", (3,)), Operand("var", (3,)))
    loops = loops_of(Call("BatchNormalization", operands, outputs, {"training_mode": 1}))
    assert words(loops) == "[i0=8] i1=3 [i2=4]"
    assert loops.kind is OpKind.REDUCTION
    assert [a.terms for a in loops.outputs[1].axes] == [((1, 1),)]


def test_data_dependent_copies_read_what_is_expected() -> None:
    """GatherND: 12 tuples into 5 x 6 slices of 7: 30 (1 - (29/30)^12) = 10.03 of them. The rest by size."""
    gathered = by_hand("GatherND", (5, 6, 7), (12, 2), out=(12, 7))
    assert gathered.inputs[0].addressed == 10 * 7
    elements = by_hand("GatherElements", (4, 100), (4, 10), out=(4, 10), axis=1)
    assert elements.inputs[0].addressed == 4 * 10  # 100 (1 - 0.99^10) = 9.56 of each row
    scattered = by_hand("ScatterND", (9, 4), (3, 1), (3, 4), out=(9, 4))
    assert [m.addressed for m in scattered.inputs] == [None, 3, 12]


def test_convolution_transposed_with_overlap_keeps_its_output_whole() -> None:
    loops = by_hand("ConvTranspose", (1, 3, 4, 4), (3, 2, 3, 3), out=(1, 2, 9, 9), strides=(2, 2))
    assert loops.outputs[0].whole and loops.outputs[0].addressed == 2 * 81
    assert math.prod(d.extent for d in loops.dims) == 3 * 2 * 16 * 9  # taps per input pixel


def test_operands_that_do_not_fit_are_refused() -> None:
    for call in (
        Call("MatMul", (Operand("a", (3, 4)), Operand("b", (5, 6))), (Operand("y", (3, 6)),), {}),
        Call("Add", (Operand("a", (3, 4)), Operand("b", (2, 4))), (Operand("y", (3, 4)),), {}),
        Call("Transpose", (Operand("a", (3, 4)),), (Operand("y", (4, 3)),), {"perm": (0, 0)}),
        Call("Relu", (Operand("a", (3, 4)),), (Operand("y", (4,)),), {}),
        Call("Gather", (Operand("a", (3, 4)), Operand("i", (2,))), (Operand("y", (2,)),), {}),
        Call("Reshape", (Operand("a", (3, 4)),), (Operand("y", (5,)),), {}),
    ):
        with pytest.raises(Unmodelled):
            loops_of(call)
