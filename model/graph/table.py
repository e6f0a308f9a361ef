"""The operator-type table: one row per op type, from a call to its loop nest (COST-MODEL 1, GRAPHS 2).

To add an operator type: one row here and one test worked by hand. A row names the kind of loops
(`contractions.py`, `elementwise.py`, `movement.py`, `windows.py`) and the vector operations per point of the
domain. An op type without a row is opaque: compulsory bytes, a barrier, a reason; it never stops a file.
"""

from __future__ import annotations

from .aten import ROWS as ATEN
from .contractions import conv, conv_transpose, deformable, einsum, gemm, matmul
from .elementwise import (
    arg_reduce,
    batch_normalization,
    cast_like,
    channels_last_group_norm,
    cross_entropy,
    cumulative,
    dynamic_quantize,
    global_pool,
    group_normalization,
    instance_normalization,
    layer_normalization,
    normalized,
    optimizer,
    per_channel,
    pointwise,
    reduce,
    rotary,
    softmax,
    top_k,
)
from .equation import BAND, LOOPS, banded, stated
from .movement import (
    centre,
    concat,
    depth_to_space,
    expand,
    features,
    filled,
    gather,
    gather_elements,
    gather_tuples,
    labelled,
    like,
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
    tensor_scatter,
    tile,
    transpose,
)
from .quantised import (
    biased,
    dynamic_matmul,
    fused_conv,
    fused_matmul,
    linear_classifier,
    linear_regressor,
    matmul_nbits,
    quantised_concat,
    quantised_gemm,
    quantised_global_pool,
    quantised_pair,
    quantised_pool,
    quantised_reduce,
    quantised_softmax,
    quantised_unary,
    quantised_where,
    skip_normalization,
)
from .recurrent import recurrence
from .row import Call, Loops, Map, Operand, Row, Unmodelled
from .windows import columns_to_image, fourier, grid_sample, lrn, pool, resize, roi
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
    "DeformConv": deformable,
    # Per unit and step: the gates' functions, the products and sums of the cell.
    "LSTM": recurrence(4, ("sigmoid", 3.0), ("tanh", 2.0), ("mul", 3.0), ("add", 9.0)),
    "GRU": recurrence(3, ("sigmoid", 2.0), ("tanh", 1.0), ("mul", 3.0), ("add", 7.0)),
    "RNN": recurrence(1, ("tanh", 1.0), ("add", 2.0)),
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
    "RotaryEmbedding": rotary,
    "SwiGLU": pointwise(("sigmoid", 1.0), ("mul", 2.0)),
    "BitCast": pointwise(("cast", 1.0)),
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
    **_same(layer_normalization(*_RMS_NORM), "RMSNormalization", "SimplifiedLayerNormalization"),
    "MeanVarianceNormalization": normalized((0, 2, 3), *_LAYER_NORM),
    **_same(cross_entropy, "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
    **_same(fourier, "DFT", "STFT"),
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    **_same(cumulative, "CumSum", "CumProd"),
    "TopK": top_k,
    "DynamicQuantizeLinear": dynamic_quantize,
    # windows
    "MaxPool": pool("max"),
    "AveragePool": pool("add"),
    "LpPool": pool("mul"),
    "LRN": lrn,
    **_same(resize, "Resize", "Upsample"),
    "GridSample": grid_sample,
    "RoiAlign": roi(4.0),
    "MaxRoiPool": roi(1.0),
    **_same(columns_to_image, "Col2Im", "MaxUnpool"),
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
    **_same(filled(), "Range", "ConstantOfShape", "EyeLike", "BlackmanWindow", "HammingWindow", "HannWindow",
            "MelWeightMatrix", "AffineGrid"),
    **_same(filled(("random", 1.0)), "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"),
    **_same(like(("random", 1.0)), "RandomNormalLike", "RandomUniformLike"),
    "TensorScatter": tensor_scatter,
    "CenterCropPad": centre,
    # views
    **_same(reshape, "Reshape", "Squeeze", "Unsqueeze", "Flatten"),
    **_same(same_elements, "Identity", "Dropout"),
}  # fmt: skip

_GELU = (("erf", 1.0), ("add", 1.0), ("mul", 3.0))
_FAST_GELU = (("tanh", 1.0), ("add", 2.0), ("mul", 5.0))

_MICROSOFT: dict[str, Row] = {
    "MatMulNBits": matmul_nbits,
    "FusedMatMul": fused_matmul,
    "FusedConv": fused_conv,
    "FusedGemm": gemm,
    "QGemm": quantised_gemm,
    **_same(dynamic_matmul, "DynamicQuantizeMatMul", "MatMulIntegerToFloat"),
    "MatMulInteger16": matmul,
    "QLinearAdd": quantised_pair("add"),
    "QLinearMul": quantised_pair("mul"),
    "QLinearWhere": quantised_where,
    "QLinearConcat": quantised_concat,
    "QLinearAveragePool": quantised_pool,
    "QLinearGlobalAveragePool": quantised_global_pool,
    "QLinearReduceMean": quantised_reduce,
    "QLinearSigmoid": quantised_unary(("sigmoid", 1.0)),
    "QLinearLeakyRelu": quantised_unary(("mul", 1.0), ("max", 1.0)),
    "QLinearSoftmax": quantised_softmax(*_SOFTMAX),
    "QuantizeLinear": TABLE["QuantizeLinear"],
    "DequantizeLinear": TABLE["DequantizeLinear"],
    "FastGelu": biased(*_FAST_GELU),
    **_same(biased(*_GELU), "Gelu", "BiasGelu"),
    "QuickGelu": pointwise(("sigmoid", 1.0), ("mul", 2.0)),
    "BiasAdd": pointwise(("add", 2.0)),
    "RotaryEmbedding": rotary,
    "SkipLayerNormalization": skip_normalization(*_LAYER_NORM),
    "SkipSimplifiedLayerNormalization": skip_normalization(*_RMS_NORM),
    "SimplifiedLayerNormalization": layer_normalization(*_RMS_NORM),
    **_same(channels_last_group_norm, "GroupNorm", "SkipGroupNorm"),
    "Trilu": masked_copy,
    # Gradients, as a training file holds them.
    **_same(pointwise(("compare", 1.0), ("select", 1.0)), "ReluGrad"),
    **_same(pointwise(("mul", 2.0), ("sub", 1.0)), "SigmoidGrad", "TanhGrad"),
    **_same(pointwise(("exp", 1.0), ("erf", 1.0), ("mul", 5.0), ("add", 2.0)), "GeluGrad", "FastGeluGrad"),
}  # fmt: skip

_MACHINE_LEARNING: dict[str, Row] = {
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Scaler": pointwise(("sub", 1.0), ("mul", 1.0)),
    "Binarizer": pointwise(("compare", 1.0)),
    "Imputer": pointwise(("compare", 1.0), ("select", 1.0)),
    "Normalizer": normalized((-1,), ("mul", 1.0), ("add", 1.0), ("div", 1.0)),
    **_same(pointwise(("select", 1.0)), "LabelEncoder", "CategoryMapper"),
    "ArrayFeatureExtractor": features,
    "ZipMap": labelled,
}

_TRAINING: dict[str, Row] = {
    "Adam": optimizer(4, ("mul", 7.0), ("add", 4.0), ("sqrt", 1.0), ("div", 1.0)),
    "Adagrad": optimizer(3, ("mul", 4.0), ("add", 3.0), ("sqrt", 1.0), ("div", 1.0)),
    "Momentum": optimizer(3, ("mul", 4.0), ("add", 3.0)),
}

# By domain; the rows of a domain that is not here do not exist.
TABLES: dict[str, dict[str, Row]] = {
    "": TABLE,
    "com.microsoft": _MICROSOFT,
    "ai.onnx.ml": _MACHINE_LEARNING,
    "ai.onnx.preview.training": _TRAINING,
    "xla": XLA,  # operators of other formats, in the domain that their readers put them in
    "aten": ATEN,
}

_TREES = "what a decision tree reads and compares depends on values"
_VECTORS = "how many support vectors it multiplies is in its attributes"
_SEQUENCE = "a sequence of tensors has no size here"
_TEXT = "texts have no size here"

# Why these have no loop nest; whatever is not named here is simply unknown.
REASONS: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), "control flow: a barrier"),
        **dict.fromkeys(
            ("NonZero", "Compress", "Unique", "NonMaxSuppression"), "the size of its output depends on values"
        ),
        **dict.fromkeys(
            ("SplitToSequence", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase",
             "SequenceAt", "SequenceLength", "ConcatFromSequence"), _SEQUENCE),
        **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), "an optional value: a barrier"),
        **dict.fromkeys(("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
                        _TEXT),
        "ImageDecoder": "how large a compressed image is depends on its bytes",
        "Det": "a factorisation has no loop nest here",
        "LinearAttention": "a recurrence over a matrix state has no loop nest here",
        "CausalConvWithState": "a convolution with a state has no loop nest here",
        "Attention": "its operands do not fit",
    },
    "com.microsoft": {
        "PagedAttention": "which blocks of its cache it reads depends on values",
        "QMoE": "which experts it runs depends on values",
        "MoE": "which experts it runs depends on values",
        **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling"), "a whole generation loop in one operator"),
        **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "EmbedLayerNormalization"),
                        "the shapes of its operands are not known"),
    },
    "ai.onnx.ml": {
        **dict.fromkeys(("CastMap", "DictVectorizer"), "a map has no size here"),
        **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), _TREES),
        **dict.fromkeys(("SVMClassifier", "SVMRegressor"), _VECTORS),
        "OneHotEncoder": "its categories are in its attributes",
        "FeatureVectorizer": "how wide its inputs are is in its attributes",
    },
}  # fmt: skip


def loops_of(call: Call, domain: str = "") -> Loops:
    """The loop nest of a call.

    Raises
    ------
    Unmodelled : no row for the op type, or this use of it has no loop nest; the text says why.
    """
    row = stated if LOOPS in call.attributes else TABLES.get(domain, {}).get(call.op_type)
    if row is None:
        title = f"{domain}::{call.op_type}" if domain else call.op_type
        known = REASONS.get(domain, {}).get(call.op_type)
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
    return banded(loops, call.text(BAND), call) if call.attributes.get(BAND) else loops


def _fits(m: Map, operand: Operand | None, dims: int) -> bool:
    """Whether an index map has one axis per axis of its operand and names only dims that there are.

    A row may trust that its operands fit each other, as onnx demands; broken files end here.
    """
    if operand is None or m.whole:
        return operand is not None
    return len(m.axes) == len(operand.shape) and all(d < dims for axis in m.axes for d, _ in axis.terms)
