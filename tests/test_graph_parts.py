"""Operators of other domains and those that are several nests, each worked by hand; parts walked against onnx.

`parts_of` runs the reader's inference on one node, as a file would hold it, and gives the operators of the graph.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from model.graph.band import ENDLESS, Band, between
from model.graph.equation import Equation, stated
from model.graph.graph import Operator, OperatorGraph, OpKind, TensorRole
from model.graph.load import graph_of
from model.graph.raw import read_answer
from model.graph.readers import read as read_file
from model.graph.row import Call, Loops, Operand, Unmodelled
from model.graph.table import loops_of

F32, I32, I64, U8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8


def graph_with(
    op_type: str,
    *inputs: Any,
    outputs: int = 1,
    domain: str = "com.microsoft",
    opset: int = 17,
    weights: tuple[int, ...] = (),
    skip: tuple[int, ...] = (),
    **attributes: Any,
) -> OperatorGraph:
    """The graph of one node: inputs by shape (or shape and type), None left out; those in `weights` constant."""
    names = ["" if given is None else f"x{i}" for i, given in enumerate(inputs)]
    made = ["" if i in skip else f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, name="op", domain=domain, **attributes)
    graph = onnx.GraphProto(name="g", node=[node])
    for i, given in enumerate(inputs):
        if given is None:
            continue
        shape, kind = given if given and isinstance(given[0], tuple) else (given, F32)
        if i in weights:
            tensor = onnx.TensorProto(name=f"x{i}", data_type=kind, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="w")
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(f"x{i}", kind, shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name)
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(helper.make_opsetid("", opset))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    answer = json.dumps(read_file(model.SerializeToString(), {})).encode()
    return graph_of(read_answer(answer, "here"), name="g")


def words(operator: Operator | Loops) -> str:
    """``m=3 n=5 [k=4]``."""
    return " ".join(
        f"[{d.name}={d.extent}]" if d.reduction else f"{d.name}={d.extent}" for d in operator.dims
    )


def shape_of(graph: OperatorGraph, name: str) -> tuple[int, ...] | None:
    return next(t.shape for t in graph.tensors if t.name == name)


def terms(operator: Operator, position: int) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    return [(axis.terms, axis.offset) for axis in operator.inputs[position].axes]


def by_name(graph: OperatorGraph) -> dict[str, Operator]:
    return {operator.name: operator for operator in graph.operators}


# ---------------------------------------------------------------- the notation


def test_an_equation_says_mixed_radix_offsets_and_fixed_indices() -> None:
    nest = Equation("1+_ b 6+h.k, *3 -> b h", {"b": 2, "h": 3, "k": 4})
    x, y = Operand("x", (2, 2, 18)), Operand("y", (9,))
    loops = stated(Call("Any", (x, y), (Operand("z", (2, 3)),), nest.attributes()))
    assert words(loops) == "b=2 h=3 [k=4]"
    assert [(axis.terms, axis.offset) for axis in loops.inputs[0].axes] == [
        ((), 1), (((0, 1),), 0), (((1, 4), (2, 1)), 6),
    ]  # fmt: skip
    assert loops.inputs[1].whole and loops.inputs[1].addressed == 3
    with pytest.raises(Unmodelled):
        stated(Call("Any", (x,), (y,), nest.attributes()))


# ---------------------------------------------------------------- attention


def test_packed_attention_is_a_projection_an_append_two_products_and_a_softmax() -> None:
    """2 samples of 3 tokens of width 8, 2 heads of 4, 5 keys before: 8 keys in all.

    Projection 2*3*8*24 = 1,152; scores and values 2*2*3*8*4 = 384 each. Causal: query i sees 6 + i keys:
    6 + 7 + 8 = 21 of 24 pairs, so 336 each.
    """
    graph = graph_with(
        "Attention", (2, 3, 8), (8, 24), (24,), ((2, 8), I32), (2, 2, 2, 5, 4),
        outputs=2, weights=(1, 2), num_heads=2, unidirectional=1,
    )  # fmt: skip
    parts = by_name(graph)
    assert list(parts) == [
        "op/projection", "op/append", "op/scores", "op/mask", "op/softmax", "op/values",
    ]  # fmt: skip
    assert [parts[name].macs for name in parts] == [1152, 0, 384, 0, 0, 384]
    assert [parts[name].bounded_macs for name in parts] == [1152, 0, 336, 0, 0, 336]
    assert words(parts["op/scores"]) == "b=2 h=2 m=3 n=8 [k=4]"
    assert words(parts["op/values"]) == "b=2 m=3 h=2 v=4 [n=8]"
    assert parts["op/softmax"].online
    assert shape_of(graph, "y0") == (2, 3, 8)
    assert shape_of(graph, "y1") == (2, 2, 2, 8, 4)
    # The cache: only the three new rows of K and V move, at index 5 and on; the past is not read.
    append = parts["op/append"]
    assert append.points == 2 * 2 * 2 * 3 * 4
    assert append.inputs[0].addressed == 0
    assert append.outputs[0].axes[3].offset == 5
    assert all(operator.scope == ("op",) for operator in graph.operators)


def test_group_query_attention_shares_keys_and_keeps_its_window() -> None:
    """4 query heads on 2 key heads of 8, 6 tokens, nothing before, window 3: 1+2+3+3+3+3 = 15 pairs of 36."""
    graph = graph_with(
        "GroupQueryAttention", (1, 6, 32), (1, 6, 16), (1, 6, 16), None, None, ((1,), I32), ((), I32),
        outputs=3, num_heads=4, kv_num_heads=2, local_window_size=3,
    )  # fmt: skip
    parts = by_name(graph)
    assert words(parts["op/scores"]) == "b=1 h=2 g=2 m=6 n=6 [k=8]"
    assert parts["op/scores"].macs == 4 * 36 * 8
    assert parts["op/scores"].bounded_macs == 4 * 15 * 8
    assert shape_of(graph, "y0") == (1, 6, 32)
    assert shape_of(graph, "y1") == shape_of(graph, "y2") == (1, 2, 6, 8)


def test_packed_group_query_attention_with_rotary_reads_each_part_where_it_lies() -> None:
    """One row holds 4 + 2 + 2 heads of 8: queries at 0, keys at 32, values at 48."""
    graph = graph_with(
        "GroupQueryAttention", (1, 1, 64), None, None, (1, 2, 9, 8), (1, 2, 9, 8), ((1,), I32), ((), I32),
        (64, 4), (64, 4), outputs=3, weights=(7, 8), num_heads=4, kv_num_heads=2, do_rotary=1,
    )  # fmt: skip
    parts = by_name(graph)
    assert list(parts) == [
        "op/rotary_q", "op/rotary_k", "op/keys", "op/cached", "op/scores", "op/softmax", "op/values",
    ]  # fmt: skip
    assert terms(parts["op/rotary_k"], 0)[2][1] == 32
    assert terms(parts["op/cached"], 1)[2][1] == 48
    assert parts["op/rotary_q"].inputs[1].addressed == 4  # half a head of cosines for one row
    assert shape_of(graph, "y1") == (1, 2, 10, 8)
    assert parts["op/scores"].macs == parts["op/scores"].bounded_macs == 4 * 10 * 8


def test_multi_head_attention_adds_its_bias_and_crosses_lengths() -> None:
    """3 queries on 5 keys, 2 heads of 4: 2*3*5*4 = 120 each; a bias of 24 in thirds."""
    graph = graph_with(
        "MultiHeadAttention", (1, 3, 8), (1, 5, 8), (1, 5, 8), (24,), weights=(3,), num_heads=2
    )  # fmt: skip
    parts = by_name(graph)
    assert [parts[f"op/{p}"].macs for p in ("scores", "values")] == [120, 120]
    assert [terms(parts[f"op/{p}_bias"], 1)[0][1] for p in "qkv"] == [0, 8, 16]
    assert shape_of(graph, "y0") == (1, 3, 8)


def test_multi_head_attention_reads_packed_heads() -> None:
    graph = graph_with("MultiHeadAttention", (1, 3, 2, 3, 4), num_heads=2)
    parts = by_name(graph)
    assert [terms(parts["op/scores"], i)[3] for i in (0, 1)] == [((), 0), ((), 1)]
    assert terms(parts["op/values"], 1)[3] == ((), 2)
    assert parts["op/values"].macs == 2 * 3 * 3 * 4


@pytest.mark.parametrize("packed", [False, True])
def test_onnx_attention_walks_to_what_onnx_computes(packed: bool) -> None:
    """Scores, softmax and values, computed point by point from the index maps alone."""
    rng = np.random.default_rng(5)
    b, hq, hk, m, n, d, v = 1, 4, 2, 3, 5, 2, 3
    q, k, w = (rng.normal(size=s).astype(np.float32) for s in ((b, hq, m, d), (b, hk, n, d), (b, hk, n, v)))
    attributes: dict[str, Any] = {"scale": 1.0}
    if packed:
        q, k, w = (a.transpose(0, 2, 1, 3).reshape(a.shape[0], a.shape[2], -1) for a in (q, k, w))
        attributes |= {"q_num_heads": hq, "kv_num_heads": hk}
    graph = graph_with("Attention", q.shape, k.shape, w.shape, domain="", opset=23, **attributes)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(s, F32, a.shape) for s, a in zip("qkv", (q, k, w), strict=True)]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", F32, None)]),
        opset_imports=[helper.make_opsetid("", 23)],
    )
    truth = next(np.asarray(y) for y in ReferenceEvaluator(model).run(None, {"q": q, "k": k, "v": w}))
    parts = by_name(graph)
    scores: Any = _product(parts["op/scores"], graph, [q, k])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(_product(parts["op/values"], graph, [weights, w]), truth, rtol=1e-4)


def _product(operator: Operator, graph: OperatorGraph, arrays: list[Any]) -> Any:
    access = operator.outputs[0]
    out = np.zeros(graph.tensors[access.tensor].shape or ())
    for point in itertools.product(*(range(d.extent) for d in operator.dims)):
        at = [
            tuple(a.offset + sum(c * point[d] for d, c in a.terms) for a in operand.axes)
            for operand in (*operator.inputs, access)
        ]
        out[at[-1]] += np.prod([array[i] for array, i in zip(arrays, at[:-1], strict=True)])
    return out


def test_onnx_attention_is_causal_after_its_past() -> None:
    graph = graph_with(
        "Attention", (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), None, (1, 2, 5, 4), (1, 2, 5, 4),
        outputs=3, domain="", opset=23, is_causal=1,
    )  # fmt: skip
    scores = by_name(graph)["op/scores"]
    assert (scores.macs, scores.bounded_macs) == (2 * 24 * 4, 2 * 21 * 4)
    assert shape_of(graph, "y1") == (1, 2, 8, 4)


@pytest.mark.parametrize(
    ("queries", "keys", "past", "left", "right"),
    [(4, 4, 0, -1, 0), (3, 8, 5, -1, 0), (4, 6, 0, 2, 1), (5, 5, 0, 1, -1), (6, 3, 0, 0, 0), (2, 9, 7, 2, 0)],
)
def test_a_band_leaves_what_a_mask_leaves(queries: int, keys: int, past: int, left: int, right: int) -> None:
    kept = {
        (i, j)
        for i in range(queries)
        for j in range(keys)
        if (left < 0 or j >= i + past - left) and (right < 0 or j <= i + past + right)
    }
    band = between(0, 1, past, left, right, keys)
    assert band is not None
    assert {
        (i, j) for i in range(queries) for j in range(keys) if 0 <= i + band.offset - j < band.window
    } == kept
    assert band.points(queries, keys) == len(kept)
    assert band.seen(0, queries, keys) == len({i for i, _ in kept})
    assert band.seen(1, queries, keys) == len({j for _, j in kept})


def test_a_causal_mask_leaves_half() -> None:
    assert between(0, 1, 0, -1, -1, 7) is None
    assert Band(0, 1, 0).points(2048, 2048) == 2048 * 2049 // 2


def test_all_parts_of_attention_have_the_points_that_the_mask_leaves() -> None:
    """3 queries after 5 keys, window 4: queries see 4 keys each; a mask of its own is read there alone."""
    graph = graph_with(
        "Attention", (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (3, 8), (1, 2, 5, 4), (1, 2, 5, 4),
        outputs=3, domain="", opset=24, is_causal=1, left_window_size=3,
    )  # fmt: skip
    parts = by_name(graph)
    for name in ("op/scores", "op/mask", "op/softmax", "op/values"):
        operator = parts.get(name, parts.get("op/bias"))
        assert operator is not None and operator.band is not None
        dims = [operator.dims[operator.band.q].extent, operator.dims[operator.band.k].extent]
        assert (dims, operator.band.offset, operator.band.window) == ([3, 8], 5, 4)
    assert parts["op/keys"].band is None
    assert parts["op/scores"].bounded_macs == 2 * (4 + 4 + 4) * 4


def test_who_wants_the_scores_wants_all_of_them() -> None:
    graph = graph_with(
        "Attention", (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), outputs=4, domain="", opset=24, is_causal=1
    )  # fmt: skip
    parts = by_name(graph)
    assert parts["op/scores"].band is None
    assert parts["op/values"].band == Band(1, 4, 0, ENDLESS)


@pytest.mark.parametrize(
    ("text", "band"),
    [
        ("b h 0", Band(0, 1, 0)),
        ("h b 1 2", None),
        ("b h 0 1", Band(0, 1, 0, 1)),
        ("b h 9", None),
        ("b h -5", None),
    ],
)
def test_a_band_that_leaves_all_or_nothing_is_none(text: str, band: Band | None) -> None:
    nest = Equation("b h -> b h", {"b": 2, "h": 3}, OpKind.POINTWISE, band=text)
    x, y = Operand("x", (2, 3)), Operand("y", (2, 3))
    found = loops_of(Call("Any", (x,), (y,), nest.attributes()))
    assert found.band == (Band(1, 0, 1, 2) if text == "h b 1 2" else band)


@pytest.mark.parametrize("text", ["b", "b b 0", "b q 0", "b h x", "b h 0 0", "b k 0", f"b h {1 << 50}"])
def test_what_is_no_band_over_its_dims_is_refused(text: str) -> None:
    """k shares an axis with h: there is no run of keys that a query sees."""
    nest = Equation("b h.k -> b h", {"b": 2, "h": 3, "k": 2}, band=text)
    with pytest.raises(Unmodelled):
        loops_of(Call("Any", (Operand("x", (2, 6)),), (Operand("y", (2, 3)),), nest.attributes()))


def test_attention_whose_heads_do_not_divide_stays_whole_and_says_so() -> None:
    graph = graph_with("MultiHeadAttention", (1, 3, 8), (1, 5, 8), (1, 5, 8), num_heads=3)
    assert [o.kind for o in graph.operators] == [OpKind.OPAQUE]
    assert "3 heads do not divide 8" in graph.operators[0].reason


def test_embeddings_are_rows_of_tables_a_sum_and_a_normalisation() -> None:
    ids = ((2, 3), I32)
    graph = graph_with(
        "EmbedLayerNormalization", ids, ids, (100, 8), (16, 8), (2, 8), (8,), (8,), ids,
        outputs=2, weights=(2, 3, 4, 5, 6),
    )  # fmt: skip
    assert [o.name for o in graph.operators] == [
        "op/words", "op/segments", "op/positions", "op/sum", "op/normalized", "op/lengths",
    ]  # fmt: skip
    assert shape_of(graph, "y0") == (2, 3, 8) and shape_of(graph, "y1") == (2,)
    words_read = by_name(graph)["op/words"].inputs[0].axes[0].distinct
    assert words_read == round(100 * (1 - 0.99**6))


# ---------------------------------------------------------------- one nest each


def only(graph: OperatorGraph) -> Operator:
    assert len(graph.operators) == 1
    return graph.operators[0]


def test_four_bit_weights_are_counted_in_bits() -> None:
    """64 x 96 weights of 4 bits in blocks of 32: 64*3 blocks of 16 bytes = 3,072 bytes, and 192 scales."""
    graph = graph_with(
        "MatMulNBits",
        (2, 5, 96),
        ((64, 3, 16), U8),
        (192,),
        weights=(1, 2),
        N=64,
        K=96,
        bits=4,
        block_size=32,
    )
    operator = only(graph)
    assert words(operator) == "b=2 m=5 n=64 [k=96]"
    assert operator.macs == 2 * 5 * 64 * 96
    weight = next(t for t in graph.tensors if t.name == "x1")
    assert (weight.dtype, weight.shape, weight.bytes) == ("uint4", (64, 96), 3072)
    assert graph.parameter_bytes == 3072 + 4 * 192
    assert shape_of(graph, "y0") == (2, 5, 64)


@pytest.mark.parametrize(
    ("op_type", "inputs", "more", "dims", "kind", "result"),
    [
        ("FusedMatMul", ((2, 4, 3), (2, 4, 5)), {"transA": 1}, "b=2 m=3 n=5 [k=4]", "contraction", (2, 3, 5)),
        ("FusedMatMul", ((3, 4), (5, 4)), {"transB": 1}, "m=3 n=5 [k=4]", "contraction", (3, 5)),
        ("FusedConv", ((1, 3, 5, 5), (4, 3, 3, 3)), {"activation": "Relu"},
         "n=1 k=4 p=3 q=3 [c=3] [r=3] [s=3]", "contraction", (1, 4, 3, 3)),
        ("FusedGemm", ((3, 4), (4, 5)), {"activation": "Relu"}, "m=3 n=5 [k=4]", "contraction", (3, 5)),
        ("QGemm", ((3, 4), (), (), (4, 5), (), (), (5,), (), ()), {}, "m=3 n=5 [k=4]", "contraction", (3, 5)),
        ("DynamicQuantizeMatMul", ((3, 4), (4, 5), (5,), (5,), (5,)), {}, "m=3 n=5 [k=4]", "contraction",
         (3, 5)),
        ("MatMulIntegerToFloat", ((2, 3, 4), (4, 5), (), ()), {}, "b=2 m=3 n=5 [k=4]", "contraction",
         (2, 3, 5)),
        ("QLinearAdd", ((2, 3), (), (), (3,), (), (), (), ()), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("QLinearMul", ((2, 3), (), (), (2, 1), (), (), (), ()), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("QLinearSigmoid", ((2, 3), (), (), (), ()), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("QLinearConcat", ((), (), (2, 3), (), (), (2, 4), (), ()), {"axis": 1}, "i0=2 i1=7", "pointwise",
         (2, 7)),
        ("QLinearGlobalAveragePool", ((2, 3, 5, 5), (), (), (), ()), {}, "i0=2 i1=3 [i2=5] [i3=5]",
         "reduction", (2, 3, 1, 1)),
        ("QLinearAveragePool", ((1, 2, 6, 6), (), (), (), ()), {"kernel_shape": [3, 3], "strides": [3, 3]},
         "n=1 c=2 p=2 q=2 [r=3] [s=3]", "window", (1, 2, 2, 2)),
        ("QLinearSoftmax", ((2, 3), (), (), (), ()), {"axis": 1, "opset": 13}, "i0=2 [i1=3]", "reduction",
         (2, 3)),
        ("FastGelu", ((2, 3), (3,)), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("BiasGelu", ((2, 3), (3,)), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("Gelu", ((2, 3),), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("QuickGelu", ((2, 3),), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("BiasAdd", ((2, 4, 3), (3,), (2, 4, 3)), {}, "i0=2 i1=4 i2=3", "pointwise", (2, 4, 3)),
        ("RotaryEmbedding", ((1, 2, 8), ((1, 2), I64), (32, 2), (32, 2)), {"num_heads": 2}, "i0=1 i1=2 i2=8",
         "pointwise", (1, 2, 8)),
        ("SkipLayerNormalization", ((2, 3, 4), (2, 3, 4), (4,), (4,), (4,)), {}, "i0=2 i1=3 [i2=4]",
         "reduction", (2, 3, 4)),
        ("SkipSimplifiedLayerNormalization", ((2, 3, 4), (3, 4), (4,)), {}, "i0=2 i1=3 [i2=4]", "reduction",
         (2, 3, 4)),
        ("SimplifiedLayerNormalization", ((2, 3, 4), (4,)), {"domain": ""}, "i0=2 i1=3 [i2=4]", "reduction",
         (2, 3, 4)),
        ("GroupNorm", ((2, 5, 5, 6), (6,), (6,)), {"groups": 3}, "n=2 [i1=5] [i2=5] g=3 [c=2]", "reduction",
         (2, 5, 5, 6)),
        ("ReluGrad", ((2, 3), (2, 3)), {}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("Scaler", ((2, 3),), {"domain": "ai.onnx.ml"}, "i0=2 i1=3", "pointwise", (2, 3)),
        ("Normalizer", ((2, 3),), {"domain": "ai.onnx.ml"}, "i0=2 [i1=3]", "reduction", (2, 3)),
        ("LinearRegressor", ((5, 4),), {"domain": "ai.onnx.ml", "coefficients": [1.0] * 8, "targets": 2},
         "n=5 c=2 [f=4]", "contraction", (5, 2)),
        ("ArrayFeatureExtractor", ((5, 4), ((2,), I64)), {"domain": "ai.onnx.ml"}, "i0=5 i1=2", "movement",
         (5, 2)),
        # One sampled value per tap and pixel mixes four neighbours; the products are those of Conv.
        ("DeformConv", ((1, 2, 5, 5), (4, 2, 3, 3), (1, 18, 3, 3)), {"domain": "", "opset": 19},
         "n=1 k=4 p=3 q=3 [c=2] [r=3] [s=3]", "contraction", (1, 4, 3, 3)),
        ("GridSample", ((1, 2, 5, 5), (1, 3, 4, 2)), {"domain": "", "opset": 20},
         "i0=1 i1=2 i2=3 i3=4 [x=2]", "window", (1, 2, 3, 4)),
        ("RoiAlign", ((1, 2, 8, 8), (3, 4), ((3,), I64)), {"domain": "", "output_height": 2, "output_width": 2},
         "i0=3 i1=2 i2=2 i3=2", "window", (3, 2, 2, 2)),
        ("MeanVarianceNormalization", ((2, 3, 4, 4),), {"domain": ""}, "[i0=2] i1=3 [i2=4] [i3=4]",
         "reduction", (2, 3, 4, 4)),
        ("SoftmaxCrossEntropyLoss", ((2, 5, 3), ((2, 3), I64)), {"domain": ""}, "[i0=2] [i1=5] [i2=3]",
         "reduction", ()),
        ("RotaryEmbedding", ((1, 2, 3, 4), (3, 2), (3, 2), None), {"domain": "", "opset": 23},
         "i0=1 i1=2 i2=3 i3=4", "pointwise", (1, 2, 3, 4)),
        ("TensorScatter", ((1, 2, 9, 4), (1, 2, 1, 4)), {"domain": "", "opset": 24}, "i0=1 i1=2 i2=1 i3=4",
         "movement", (1, 2, 9, 4)),
    ],
)  # fmt: skip
def test_one_nest(
    op_type: str, inputs: Any, more: dict[str, Any], dims: str, kind: str, result: tuple[int, ...]
) -> None:
    graph = graph_with(op_type, *inputs, **more)
    operator = only(graph)
    assert (words(operator), operator.kind.value, operator.reason) == (dims, kind, "")
    assert shape_of(graph, "y0") == result


def test_transposed_operands_of_a_fused_product_keep_their_axes() -> None:
    operator = only(graph_with("FusedMatMul", (2, 4, 3), (2, 4, 5), transA=1))
    b, m, n, k = range(4)
    assert [t[0][0][0] for t in terms(operator, 0)] == [b, k, m]
    assert [t[0][0][0] for t in terms(operator, 1)] == [b, k, n]


def test_skip_normalisation_writes_its_sum_and_adds_its_bias() -> None:
    graph = graph_with(
        "SkipLayerNormalization",
        (2, 3, 4),
        (2, 3, 4),
        (4,),
        (4,),
        (4,),
        outputs=4,
        skip=(1, 2),
        weights=(2, 3, 4),
    )
    operator = only(graph)
    assert len(operator.outputs) == 2 and shape_of(graph, "y3") == (2, 3, 4)
    assert sum(count for name, count in operator.vector_ops if name == "add") == 2 + 3


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrence_multiplies_input_and_state_of_every_step(op_type: str, gates: int) -> None:
    """7 steps, 2 directions, batch 3, 5 inputs, 4 units: 7*2*3*gates*4*(5+4)."""
    rows = gates * 4
    graph = graph_with(
        op_type, (7, 3, 5), (2, rows, 5), (2, rows, 4), (2, 2 * rows),
        outputs=2, domain="", weights=(1, 2, 3), hidden_size=4, direction="bidirectional",
    )  # fmt: skip
    operator = only(graph)
    assert operator.kind is OpKind.CONTRACTION
    assert operator.macs == 7 * 2 * 3 * gates * 4 * (5 + 4)
    assert words(operator) == f"[t=7] d=2 b=3 h=4 [g={gates}] [k=9]"
    assert shape_of(graph, "y0") == (7, 2, 3, 4) and shape_of(graph, "y1") == (2, 3, 4)
    # The input is read for k < 5, the state's weights for the rest; each weight stands for one k.
    assert terms(operator, 0)[2] == (((5, 1),), 0)
    assert terms(operator, 2)[2] == (((5, 1),), -5)


def test_a_linear_classifier_is_a_product() -> None:
    graph = graph_with(
        "LinearClassifier", (5, 4), outputs=2, domain="ai.onnx.ml", coefficients=[1.0] * 12,
        classlabels_ints=[0, 1, 2], intercepts=[0.0] * 3,
    )  # fmt: skip
    operator = only(graph)
    assert operator.macs == 5 * 3 * 4
    assert shape_of(graph, "y0") == (5,) and shape_of(graph, "y1") == (5, 3)


def test_a_map_of_scores_has_loops_but_no_size() -> None:
    graph = graph_with("ZipMap", (5, 3), domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    operator = only(graph)
    assert words(operator) == "i0=5 i1=3" and shape_of(graph, "y0") is None


def test_an_optimizer_step_is_pointwise_on_its_tensor() -> None:
    scalar, count = (), ((), I64)
    graph = graph_with(
        "Adam", scalar, count, (3, 4), (3, 4), (3, 4), (3, 4), outputs=3, domain="ai.onnx.preview.training"
    )
    operator = only(graph)
    assert (operator.kind, words(operator)) == (OpKind.POINTWISE, "i0=3 i1=4")
    assert [shape_of(graph, f"y{i}") for i in range(3)] == [(3, 4)] * 3


@pytest.mark.parametrize(
    ("domain", "op_type", "inputs", "reason"),
    [
        ("ai.onnx.ml", "TreeEnsembleClassifier", ((5, 4),), "decision tree"),
        ("ai.onnx.ml", "SVMRegressor", ((5, 3),), "support vectors"),
        ("com.microsoft", "QMoE", ((5, 4),), "which experts"),
        ("", "NonZero", ((5, 4),), "depends on values"),
        ("", "SequenceConstruct", ((5, 4),), "sequence of tensors"),
    ],
)
def test_what_has_no_nest_says_why(domain: str, op_type: str, inputs: Any, reason: str) -> None:
    operator = only(graph_with(op_type, *inputs, domain=domain))
    assert operator.kind is OpKind.OPAQUE and reason in operator.reason


def test_old_opsets_have_shapes() -> None:
    """BatchNormalization, Gemm and Split as opset 6 and 2 wrote them."""
    assert shape_of(graph_with("Gemm", (3, 4), (4, 5), (5,), domain="", opset=6), "y0") == (3, 5)
    split = graph_with("Split", (6, 4), outputs=2, domain="", opset=2, axis=0, split=[2, 4])
    assert [shape_of(split, f"y{i}") for i in (0, 1)] == [(2, 4), (4, 4)]
    normal = graph_with("BatchNormalization", (1, 3, 4), *[(3,)] * 4, domain="", opset=6)
    assert shape_of(normal, "y0") == (1, 3, 4)
    mask = graph_with("Dropout", (3, 4), outputs=2, domain="", opset=7)
    assert shape_of(mask, "y1") == (3, 4)


def test_a_tensor_that_is_no_weight_keeps_its_bytes() -> None:
    """Packed weights that are an input of the graph may hold anything."""
    graph = graph_with("MatMulNBits", (5, 96), ((64, 3, 16), U8), (192,), N=64, K=96, bits=4, block_size=32)
    packed = next(t for t in graph.tensors if t.name == "x1")
    assert packed.role is TensorRole.INPUT and packed.bytes == 3072
    assert only(graph).kind is OpKind.OPAQUE


# ---------------------------------------------------------------- state: caches and experts


def test_a_cache_that_comes_in_and_goes_out_is_appended_to_in_place() -> None:
    """2 heads of 4 after 5 rows: one new row of 8 elements moves, the past is not read."""
    operator = only(graph_with("Concat", (1, 2, 5, 4), (1, 2, 1, 4), domain="", axis=2))
    assert operator.inputs[0].addressed is None, "both come from outside: which one is the cache?"
    graph = cached("Concat", [(1, 2, 5, 4), (1, 2, 1, 4)], axis=2)
    append = graph.operators[1]
    assert words(append) == "i0=1 i1=2 i2=1 i3=4"
    assert append.inputs[0].addressed == 0
    assert [axis.offset for axis in append.outputs[0].axes] == [0, 0, 5, 0]
    assert shape_of(graph, "y") == (1, 2, 6, 4)


def cached(op_type: str, shapes: list[tuple[int, ...]], extra: str = "", **attributes: Any) -> OperatorGraph:
    """`op_type` on a state and something computed, its result a graph output."""
    computed = helper.make_node("Relu", ["new"], ["rows"])
    inputs = ["state", extra, "rows"] if extra else ["state", "rows"]
    node = helper.make_node(op_type, inputs, ["y"], **attributes)
    graph = onnx.GraphProto(name="g", node=[computed, node])
    for name, shape in zip(("state", "new"), shapes, strict=True):
        graph.input.append(helper.make_tensor_value_info(name, F32, shape))
    if extra:
        graph.input.append(helper.make_tensor_value_info(extra, I64, (3, 1)))
    graph.output.append(onnx.ValueInfoProto(name="y"))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(helper.make_opsetid("", 17))
    answer = json.dumps(read_file(model.SerializeToString(), {})).encode()
    return graph_of(read_answer(answer, "here"), name="g")


def test_a_paged_cache_takes_only_its_updates() -> None:
    graph = cached("ScatterND", [(9, 4), (3, 4)], "slots")
    scatter = graph.operators[1]
    assert words(scatter) == "i0=3 i1=4"
    assert [m.addressed for m in scatter.inputs] == [0, 3, None]
    assert scatter.outputs[0].addressed == 12


def test_experts_that_are_hit_are_read() -> None:
    """4 tokens with 2 picks each among 8 experts: 8 (1 - (7/8)^8) = 5.25, so 5 of their matrices."""
    graph = graph_with("GatherND", (8, 6, 7), ((8, 1), I64), domain="", weights=(0,))
    gather = only(graph)
    assert words(gather) == "i0=8 i1=6 i2=7"
    assert gather.inputs[0].axes[0].distinct == 5
    assert [axis.terms for axis in gather.inputs[0].axes[1:]] == [((1, 1),), ((2, 1),)]
    assert gather.inputs[1].axes == (gather.outputs[0].axes[0], type(gather.outputs[0].axes[0])())
