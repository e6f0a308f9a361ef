"""Shapes of results that onnx does not infer: other domains, old opsets, statistics that it leaves out.

Runs in the reader's child process, inside the fixpoint of `inference.py`. Two ways: an operator whose shapes are
those of a standard one stands in as that one while onnx infers (`stand_in`); the others have a rule here that
gives what is known of each output. Sources: onnxruntime docs/ContribOperators.md, onnx docs/Operators-ml.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnx import NodeProto, helper

from .known import NOTHING, Known, Lookup

Shape = tuple[int, ...]
_MS, _ML, _TRAINING = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"


class Facts:
    """One node and what is known of its inputs, as a rule sees them."""

    def __init__(self, proto: NodeProto, look: Lookup) -> None:
        self.proto, self._look = proto, look
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def input(self, position: int) -> Known:
        """What is known of an input; `NOTHING` where it is left out."""
        names = self.proto.input
        return self._look(names[position]) if position < len(names) and names[position] else NOTHING

    def shape(self, position: int) -> Shape:
        """An input's shape. Raises `LookupError` where it is unknown."""
        shape = self.input(position).shape
        if shape is None:
            raise LookupError(position)
        return shape

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def count(self, *names: str) -> int:
        """Length of the first list attribute of these that there is."""
        return next((len(self.attributes[name]) for name in names if self.attributes.get(name)), 0)


Rule = Callable[[Facts], Sequence[Known | None]]

# Operators whose results are shaped as those of a standard one: its op type, and which inputs it sees.
_STAND_INS: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {
    (_MS, "FusedMatMul"): ("MatMul", (0, 1)),
    (_MS, "FusedConv"): ("Conv", (0, 1)),
    (_MS, "FusedGemm"): ("Gemm", (0, 1)),
    (_MS, "QGemm"): ("Gemm", (0, 3)),
    (_MS, "MatMulIntegerToFloat"): ("MatMul", (0, 1)),
    (_MS, "MatMulInteger16"): ("MatMul", (0, 1)),
    (_MS, "DynamicQuantizeMatMul"): ("MatMul", (0, 1)),
    (_MS, "QLinearAdd"): ("Add", (0, 3)),
    (_MS, "QLinearMul"): ("Mul", (0, 3)),
    (_MS, "QLinearWhere"): ("Where", (0, 1, 4)),
    (_MS, "QLinearAveragePool"): ("AveragePool", (0,)),
    (_MS, "QLinearGlobalAveragePool"): ("GlobalAveragePool", (0,)),
    (_MS, "BiasAdd"): ("Add", (0, 2)),
}


def stand_in(proto: NodeProto) -> NodeProto:
    """The node as onnx can infer it: itself, or the standard one that is shaped like it."""
    known = _STAND_INS.get((proto.domain, proto.op_type))
    given = {a.name: a for a in proto.attribute}
    if known is None or any(name in given for name in ("transBatchA", "transBatchB")):
        return proto
    if known[0] == "MatMul" and any(name in given and given[name].i for name in ("transA", "transB")):
        return proto
    op_type, positions = known
    if any(p >= len(proto.input) or not proto.input[p] for p in positions):
        return proto
    wanted = {a: given[a] for a in _OF_WINDOWS if a in given}
    out = NodeProto(op_type=op_type, name=proto.name)
    out.input.extend(proto.input[p] for p in positions)
    out.output.extend(proto.output[:1])
    out.attribute.extend(wanted.values())
    return out


_OF_WINDOWS = (
    "kernel_shape", "strides", "pads", "dilations", "group", "auto_pad", "ceil_mode", "transA", "transB",
    "count_include_pad",
)  # fmt: skip


# ---------------------------------------------------------------- rules


def _like_first(facts: Facts) -> list[Known]:
    return [Known(facts.input(0).dtype, facts.shape(0))]


def _dropout(facts: Facts) -> list[Known]:
    shape = facts.shape(0)
    return [Known(facts.input(0).dtype, shape), Known("bool", shape)]


def _skip_normalization(facts: Facts) -> list[Known]:
    """The result, mean, inverse deviation, and the sum that was normalised."""
    shape, dtype = facts.shape(0), facts.input(0).dtype
    statistic = Known("float32", (*shape[:-1], 1))
    return [Known(dtype, shape), statistic, statistic, Known(dtype, shape)]


def _normalization(facts: Facts) -> list[Known]:
    """The result and statistics over `axis` and all after it."""
    shape, dtype = facts.shape(0), facts.input(0).dtype
    axis = facts.integer("axis", -1) % max(len(shape), 1)
    statistic = Known("float32", tuple(1 if i >= axis else extent for i, extent in enumerate(shape)))
    return [Known(dtype, shape), statistic, statistic]


def _fused_matmul(facts: Facts) -> list[Known]:
    """MatMul with the last two axes of either operand swapped first, or the first with the one before the last."""
    a, b = list(facts.shape(0)), list(facts.shape(1))
    for shape, letter in ((a, "A"), (b, "B")):
        if facts.integer(f"transBatch{letter}"):
            shape[:-1] = [*shape[1:-1], shape[0]]
        if facts.integer(f"trans{letter}"):
            shape[-2:] = shape[-2:][::-1]
    batch = _broadcast(a[:-2], b[:-2])
    return [Known(facts.input(0).dtype, (*batch, a[-2], b[-1]))]


def _broadcast(a: Sequence[int], b: Sequence[int]) -> Shape:
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in (a, b)]
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))


def _nbits(facts: Facts) -> list[Known]:
    return [Known(facts.input(0).dtype, (*facts.shape(0)[:-1], facts.integer("N")))]


def _quantised_concat(facts: Facts) -> list[Known]:
    """Scale and zero point of the result, then three inputs per part."""
    parts = [facts.shape(position) for position in range(2, len(facts.proto.input), 3)]
    axis = facts.integer("axis") % max(len(parts[0]), 1)
    shape = tuple(sum(p[axis] for p in parts) if i == axis else e for i, e in enumerate(parts[0]))
    return [Known(facts.input(2).dtype, shape)]


def _gemm(facts: Facts) -> list[Known]:
    a, b = facts.shape(0), facts.shape(1)
    rows, columns = facts.integer("transA"), facts.integer("transB")
    return [Known(facts.input(0).dtype, (a[1] if rows else a[0], b[0] if columns else b[1]))]


def _split(facts: Facts) -> list[Known]:
    """Split with sizes as an attribute, or in equal parts."""
    shape, dtype = facts.shape(0), facts.input(0).dtype
    axis, parts = facts.integer("axis") % max(len(shape), 1), len(facts.proto.output)
    equal = -(-shape[axis] // max(parts, 1))
    sizes = facts.attributes.get("split")
    if sizes is None and facts.input(1) is not NOTHING:
        raise LookupError("the sizes are an operand")
    sizes = sizes or [min(equal, shape[axis] - equal * i) for i in range(parts)]
    return [Known(dtype, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _classifier(facts: Facts) -> list[Known]:
    """ai.onnx.ml classifiers: a label and a score per class of each sample."""
    rows = facts.shape(0)[0] if len(facts.shape(0)) > 1 else 1
    text = facts.count("classlabels_strings", "classlabels_string")
    classes = text or facts.count("classlabels_ints", "classlabels_int64s") or facts.count("intercepts")
    return [Known("string" if text else "int64", (rows,)), Known("float32", (rows, max(classes, 1)))]


def _regressor(facts: Facts) -> list[Known]:
    rows = facts.shape(0)[0] if len(facts.shape(0)) > 1 else 1
    return [Known("float32", (rows, facts.integer("targets", facts.integer("n_targets", 1))))]


def _float_like_first(facts: Facts) -> list[Known]:
    return [Known("float32", facts.shape(0))]


def _labels(facts: Facts) -> list[Known]:
    kinds = {"values_strings": "string", "values_int64s": "int64", "values_floats": "float32"}
    dtype = next((kinds[name] for name in kinds if name in facts.attributes), facts.input(0).dtype)
    return [Known(dtype, facts.shape(0))]


def _features(facts: Facts) -> list[Known]:
    shape = facts.shape(0)
    lead = shape[:-1] if len(shape) > 1 else (1,)
    return [Known(facts.input(0).dtype, (*lead, math.prod(facts.shape(1))))]


def _categories(facts: Facts) -> list[Known]:
    return [Known("float32", (*facts.shape(0), facts.count("cats_int64s", "cats_strings")))]


def _optimizer(facts: Facts) -> list[Known]:
    """Rate and step, then as many values, gradients and states: what is new of all but the gradients."""
    per = {"Adam": 4, "Adagrad": 3, "Momentum": 3}[facts.proto.op_type]
    tensors = (len(facts.proto.input) - 2) // per
    kept = [*range(2, 2 + tensors), *range(2 + 2 * tensors, 2 + per * tensors)]
    return [Known(facts.input(p).dtype, facts.shape(p)) for p in kept]


def _quantised_range(facts: Facts) -> list[Known]:
    return [Known("uint8", facts.shape(0)), Known("float32", ()), Known("uint8", ())]


def _group_norm(facts: Facts) -> list[Known]:
    known = Known(facts.input(0).dtype, facts.shape(0))
    return [known, known]


_LIKE_FIRST: dict[str, tuple[str, ...]] = {
    "": (
        "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN", "Gelu", "RMSNormalization",
        "MeanVarianceNormalization", "RotaryEmbedding", "Swish", "TensorScatter", "SwiGLU",
    ),
    _MS: (
        "FastGelu", "Gelu", "BiasGelu", "QuickGelu", "BiasSoftmax", "BiasDropout", "RotaryEmbedding",
        "GemmaRotaryEmbedding", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QuantizeLinear",
        "Trilu", "ReluGrad", "GeluGrad", "FastGeluGrad", "SigmoidGrad", "TanhGrad", "SoftmaxGrad",
        "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13",
    ),
    _ML: ("Binarizer", "Imputer", "CategoryMapper"),
}  # fmt: skip

RULES: dict[tuple[str, str], Rule] = {
    **{(domain, name): _like_first for domain, names in _LIKE_FIRST.items() for name in names},
    ("", "Dropout"): _dropout,
    ("", "Gemm"): _gemm,
    ("", "Split"): _split,
    ("", "SimplifiedLayerNormalization"): _normalization,
    ("", "DynamicQuantizeLinear"): _quantised_range,
    (_MS, "SimplifiedLayerNormalization"): _normalization,
    (_MS, "SkipLayerNormalization"): _skip_normalization,
    (_MS, "SkipSimplifiedLayerNormalization"): _skip_normalization,
    (_MS, "GroupNorm"): _group_norm,
    (_MS, "SkipGroupNorm"): _group_norm,
    (_MS, "FusedMatMul"): _fused_matmul,
    (_MS, "MatMulNBits"): _nbits,
    (_MS, "MatMulBnb4"): _nbits,
    (_MS, "QLinearConcat"): _quantised_concat,
    (_MS, "DequantizeLinear"): _float_like_first,
    **{(_ML, name): _classifier for name in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")},
    **{(_ML, name): _regressor for name in ("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor")},
    (_ML, "TreeEnsemble"): _regressor,
    (_ML, "Normalizer"): _float_like_first,
    (_ML, "Scaler"): _float_like_first,
    (_ML, "LabelEncoder"): _labels,
    (_ML, "ArrayFeatureExtractor"): _features,
    (_ML, "OneHotEncoder"): _categories,
    **{(_TRAINING, name): _optimizer for name in ("Adam", "Adagrad", "Momentum")},
}


def unpacked(proto: NodeProto, look: Lookup) -> tuple[str, Known] | None:
    """The weights of MatMulNBits as what they are, one element of 2, 4 or 8 bits each, not bytes of packed ones.

    The file holds N x blocks x bytes; a padded last block stays part of the tensor, as it is stored.
    """
    if (proto.domain, proto.op_type) != (_MS, "MatMulNBits") or len(proto.input) < 2:
        return None
    facts = Facts(proto, look)
    stored = facts.input(1)
    bits, block, rows = facts.integer("bits", 4), facts.integer("block_size"), facts.integer("N")
    if stored.dtype != "uint8" or stored.shape is None or bits not in (2, 4, 8) or block < 1 or rows < 1:
        return None
    if stored.elements * 8 % (bits * rows) or stored.shape[0] != rows:
        return None
    return proto.input[1], Known(f"uint{bits}", (rows, stored.elements * 8 // (bits * rows)))


def ruled(proto: NodeProto, look: Lookup) -> dict[str, Known]:
    """What the rules know of the outputs of a node; empty where they know nothing (yet)."""
    rule = RULES.get((proto.domain if proto.domain != "ai.onnx" else "", proto.op_type))
    if rule is None:
        return {}
    try:
        facts = rule(Facts(proto, look))
    except (LookupError, ValueError, TypeError, ZeroDivisionError):
        return {}
    return {name: fact for name, fact in zip(proto.output, facts, strict=False) if name and fact is not None}
