"""Multiply-accumulates of an ONNX file, counted from onnx's own shapes alone: the independent side of a comparison.

Knows nothing of the program: it binds the inputs, lets `onnx.shape_inference` run over the file as it is, and adds up
one formula per op type over the raw nodes. Where a shape is missing it says so rather than guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import helper, inliner, shape_inference

CONTRACTIONS = {
    "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "MatMulInteger", "QLinearMatMul", "QLinearConv",
    "ConvInteger", "MatMulNBits", "LSTM", "GRU", "RNN", "Attention",
}  # fmt: skip
Shapes = dict[str, tuple[int, ...]]


class Unshaped(Exception):
    """onnx's inference gives a contraction no shape; the file cannot be counted this way."""


def plain_macs(path: Path, bindings: Mapping[str, int]) -> int:
    """Multiply-accumulates of the file at `path`.

    Raises
    ------
    Unshaped : an operand of a contraction has no shape.
    """
    model = onnx.load(str(path), load_external_data=False)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                name, _, more = dim.dim_param.partition(" + ")
                dim.dim_value = bindings[name] + int(more or 0)
    # What the file says of values inside was written for other numbers.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    model = shape_inference.infer_shapes(inliner.inline_local_functions(model), data_prop=True)
    shapes: Shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes.setdefault(value.name, tuple(d.dim_value for d in dims))
    for node in model.graph.node:
        if node.op_type == "Constant":
            shapes.update((node.output[0], tuple(a.t.dims)) for a in node.attribute if a.name == "value")
    return sum(_macs(node, shapes) for node in model.graph.node if node.op_type in CONTRACTIONS)


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    try:
        return _formula(node, shapes, {a.name: helper.get_attribute_value(a) for a in node.attribute})
    except KeyError as missing:
        raise Unshaped(f"{node.op_type} {node.name}: {missing}") from missing


def _formula(node: onnx.NodeProto, shapes: Shapes, attributes: dict[str, object]) -> int:
    kind, read, made = node.op_type, node.input, node.output[0]
    if kind in ("MatMul", "MatMulInteger", "QLinearMatMul"):
        return math.prod(shapes[made]) * shapes[read[0]][-1]
    if kind == "MatMulNBits":
        return math.prod(shapes[read[0]]) * int(str(attributes["N"]))
    if kind == "Gemm":
        a = shapes[read[0]]
        return math.prod(shapes[made]) * (a[0] if attributes.get("transA") else a[1])
    if kind in ("Conv", "ConvInteger", "QLinearConv"):
        weight = shapes[read[3 if kind == "QLinearConv" else 1]]
        return math.prod(shapes[made]) * math.prod(weight[1:])
    if kind == "ConvTranspose":
        return math.prod(shapes[read[0]]) * math.prod(shapes[read[1]][1:])
    if kind == "Einsum":
        letters: dict[str, int] = {}
        equation = attributes["equation"]
        assert isinstance(equation, bytes)
        for term, name in zip(
            equation.decode().replace(" ", "").split("->")[0].split(","), read, strict=True
        ):
            letters.update(zip(term, shapes[name], strict=True))
        return math.prod(letters.values())
    if kind == "Attention":
        q, k, v = (shapes[name] for name in read[:3])
        return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])
    steps, batch, width = shapes[read[0]]
    directions, gates, hidden = shapes[read[2]]
    return steps * batch * directions * gates * (width + hidden)
