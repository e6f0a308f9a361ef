"""The operator-type table: one row per op type, from a call to its loop nest (COST-MODEL 1, GRAPHS 2).

To add an operator type: one row here and one test worked by hand. A row names the kind of loops
(`contractions.py`, `elementwise.py`, `movement.py`, `windows.py`) and the vector operations per point of the
domain. An op type without a row is opaque: compulsory bytes, a barrier, a reason; it never stops a file.
"""

from __future__ import annotations

from .aten import ROWS as ATEN
from .contractions import conv, conv_transpose, einsum, gemm, matmul
from .elementwise import (
    arg_reduce,
    batch_normalization,
    cast_like,
    cumulative,
    dynamic_quantize,
    global_pool,
    group_normalization,
    instance_normalization,
    layer_normalization,
    per_channel,
    pointwise,
    reduce,
    softmax,
    top_k,
)
from .movement import (
    concat,
    depth_to_space,
    expand,
    filled,
    gather,
    gather_elements,
    gather_tuples,
    masked_copy,
    one_hot,
    pad,
    reshape,
    reverse_sequence,
    same_elements,
    scatter,
    slice_,
    space_to_depth,
    split,
    tile,
    transpose,
)
from .row import Call, Loops, Map, Operand, Row, Unmodelled
from .windows import lrn, pool, resize
from .xla import ROWS as XLA


def _unary(*names: str) -> dict[str, Row]:
    """Rows of one vector operation that bears the op type's name in lower case."""
    return {name: pointwise((name.lower(), 1.0)) for name in names}


def _same(row: Row, *names: str) -> dict[str, Row]:
    return dict.fromkeys(names, row)


_SOFTMAX = (("max", 1.0), ("sub", 1.0), ("exp", 1.0), ("add", 1.0), ("mul", 1.0))
_LAYER_NORM = (("add", 3.0), ("mul", 3.0))
_RMS_NORM = (("add", 1.0), ("mul", 3.0))

TABLE: dict[str, Row] = {
    # contractions
    **_same(matmul, "MatMul", "MatMulInteger", "QLinearMatMul"),
    **_same(conv, "Conv", "ConvInteger", "QLinearConv"),
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "Einsum": einsum,
    # pointwise
    "Add": pointwise(("add", 1.0)),
    "Sub": pointwise(("sub", 1.0)),
    "Sum": pointwise(("add", 1.0)),
    "Mean": pointwise(("add", 1.0), ("mul", 1.0)),
    "Mul": pointwise(("mul", 1.0), linear=True),
    "Div": pointwise(("div", 1.0), linear=True),
    "Neg": pointwise(("neg", 1.0), linear=True),
    "Cast": pointwise(("cast", 1.0), linear=True),
    "CastLike": cast_like,
    **_same(pointwise(("compare", 1.0)), "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    **_same(pointwise(("logic", 1.0)), "And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
            "BitwiseNot", "BitShift", "IsNaN", "IsInf"),
    "Where": pointwise(("select", 1.0)),
    "Clip": pointwise(("max", 1.0), ("min", 1.0)),
    **_unary("Max", "Min", "Pow", "Mod", "Relu", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sigmoid",
             "Abs", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
             "Cosh", "Asinh", "Acosh", "Atanh"),
    "LeakyRelu": pointwise(("mul", 1.0), ("max", 1.0)),
    "PRelu": pointwise(("mul", 1.0), ("max", 1.0)),
    "ThresholdedRelu": pointwise(("compare", 1.0), ("select", 1.0)),
    **_same(pointwise(("exp", 1.0), ("sub", 1.0), ("mul", 1.0), ("select", 1.0)), "Elu", "Selu", "Celu"),
    "HardSigmoid": pointwise(("mul", 1.0), ("add", 1.0), ("max", 1.0), ("min", 1.0)),
    "HardSwish": pointwise(("mul", 2.0), ("add", 1.0), ("max", 1.0), ("min", 1.0)),
    "Softplus": pointwise(("exp", 1.0), ("add", 1.0), ("log", 1.0)),
    "Softsign": pointwise(("abs", 1.0), ("add", 1.0), ("div", 1.0)),
    "Mish": pointwise(("exp", 1.0), ("add", 1.0), ("log", 1.0), ("tanh", 1.0), ("mul", 1.0)),
    "Shrink": pointwise(("compare", 1.0), ("add", 1.0), ("select", 1.0)),
    "Swish": pointwise(("sigmoid", 1.0), ("mul", 1.0)),
    "Gelu": pointwise(("erf", 1.0), ("add", 1.0), ("mul", 3.0)),
    "QuantizeLinear": per_channel(("div", 1.0), ("round", 1.0), ("cast", 1.0)),
    "DequantizeLinear": per_channel(("cast", 1.0), ("sub", 1.0), ("mul", 1.0)),
    "BatchNormalization": batch_normalization,
    # reductions
    **_same(reduce(("add", 1.0)), "ReduceSum", "ReduceMean"),
    "ReduceMax": reduce(("max", 1.0)),
    "ReduceMin": reduce(("min", 1.0)),
    "ReduceProd": reduce(("mul", 1.0)),
    "ReduceL1": reduce(("abs", 1.0), ("add", 1.0)),
    **_same(reduce(("mul", 1.0), ("add", 1.0)), "ReduceL2", "ReduceSumSquare"),
    "ReduceLogSum": reduce(("add", 1.0)),
    "ReduceLogSumExp": reduce(("max", 1.0), ("exp", 1.0), ("add", 1.0)),
    **_same(arg_reduce, "ArgMax", "ArgMin"),
    "GlobalAveragePool": global_pool(("add", 1.0)),
    "GlobalMaxPool": global_pool(("max", 1.0)),
    "GlobalLpPool": global_pool(("mul", 1.0), ("add", 1.0)),
    "Softmax": softmax(*_SOFTMAX, online=True),
    "LogSoftmax": softmax(("max", 1.0), ("sub", 2.0), ("exp", 1.0), ("add", 1.0)),
    "Hardmax": softmax(("max", 1.0), ("compare", 1.0)),
    "LpNormalization": softmax(("mul", 1.0), ("add", 1.0), ("div", 1.0)),
    "LayerNormalization": layer_normalization(*_LAYER_NORM),
    "RMSNormalization": layer_normalization(*_RMS_NORM),
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "CumSum": cumulative,
    "TopK": top_k,
    "DynamicQuantizeLinear": dynamic_quantize,
    # windows
    "MaxPool": pool("max"),
    "AveragePool": pool("add"),
    "LpPool": pool("mul"),
    "LRN": lrn,
    **_same(resize, "Resize", "Upsample"),
    # movement
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Gather": gather,
    "GatherND": gather_tuples,
    "GatherElements": gather_elements,
    **_same(scatter, "ScatterND", "ScatterElements", "Scatter"),
    "Pad": pad,
    "Expand": expand,
    "Tile": tile,
    "OneHot": one_hot,
    "Trilu": masked_copy,
    "ReverseSequence": reverse_sequence,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    **_same(filled(), "Range", "ConstantOfShape", "EyeLike"),
    # views
    **_same(reshape, "Reshape", "Squeeze", "Unsqueeze", "Flatten"),
    **_same(same_elements, "Identity", "Dropout"),
}  # fmt: skip

# Operators of other formats, by the domain that their readers put them in.
_OTHER_DOMAINS: dict[str, dict[str, Row]] = {"xla": XLA, "aten": ATEN}

# Why these have no loop nest; whatever is not named here is simply unknown.
REASONS: dict[str, str] = {
    **dict.fromkeys(("If", "Loop", "Scan"), "control flow: its nested graphs are not modelled"),
    **dict.fromkeys(
        ("NonZero", "Compress", "Unique", "NonMaxSuppression"), "the size of its output depends on values"
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "a recurrence over time steps has no loop nest here"),
}


def loops_of(call: Call, domain: str = "") -> Loops:
    """The loop nest of a call.

    Raises
    ------
    Unmodelled : no row for the op type, or this use of it has no loop nest; the text says why.
    """
    row = TABLE.get(call.op_type) if domain == "" else _OTHER_DOMAINS.get(domain, {}).get(call.op_type)
    if row is None:
        known = REASONS.get(call.op_type) if domain == "" else None
        title = f"{domain}::{call.op_type}" if domain else call.op_type
        raise Unmodelled(known or f"{title} is not in the operator-type table")
    try:
        loops = row(call)
    except (IndexError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise Unmodelled(f"its shapes or attributes do not fit ({error})") from error
    for maps, operands in ((loops.inputs, call.inputs), (loops.outputs, call.outputs)):
        if any(m.position >= len(operands) for m in maps):
            raise Unmodelled("a result that it must have is left out")
        if not all(_fits(m, operands[m.position], len(loops.dims)) for m in maps):
            raise Unmodelled("the ranks of its operands do not fit")
    return loops


def _fits(m: Map, operand: Operand | None, dims: int) -> bool:
    """Whether an index map has one axis per axis of its operand and names only dims that there are.

    A row may trust that its operands fit each other, as onnx demands; broken files end here.
    """
    if operand is None or m.whole:
        return operand is not None
    return len(m.axes) == len(operand.shape) and all(d < dims for axis in m.axes for d, _ in axis.terms)
