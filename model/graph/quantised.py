"""Rows of the operator-type table for quantised and fused operators of onnxruntime.

Each is a standard nest with more small operands (scales, zero points) or with its operands in other places; the
nest itself comes from the standard row. Scales and zero points of one element are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .contractions import conv, gemm, matmul, small_operands
from .elementwise import pointwise, reduce, softmax
from .graph import Axis, Dim, OpKind
from .movement import concat
from .row import (
    Call,
    Loops,
    Map,
    Operand,
    Row,
    Unmodelled,
    VectorOps,
    axes_of,
    axis_of,
    broadcast,
    element_dims,
    whole,
)
from .windows import pool


def seen_as(row: Row, op_type: str, *positions: int, ops: VectorOps = ()) -> Row:
    """The nest that `row` gives `op_type` on the inputs at `positions`; all others are small and read once.

    `ops`: vector operations per element of the result on top of the row's own.
    """

    def seen(call: Call) -> Loops:
        call = replace(call, inputs=tuple(call.inputs))
        inner = replace(call, op_type=op_type, inputs=tuple(call.optional(p) for p in positions))
        loops = row(inner)
        inputs = [replace(m, position=positions[m.position]) for m in loops.inputs]
        inputs += [
            whole(p, operand)
            for p, operand in enumerate(call.inputs)
            if operand is not None and p not in positions and not operand.is_immediate
        ]
        share = call.output().elements / max(_points(loops), 1)
        more = tuple((name, count * share) for name, count in ops)
        return replace(loops, inputs=tuple(inputs), vector_ops=(*loops.vector_ops, *more))

    return seen


def _points(loops: Loops) -> int:
    count = 1
    for dim in loops.dims:
        count *= dim.extent
    return count


_REQUANTISE: VectorOps = (("mul", 1.0), ("round", 1.0), ("cast", 1.0))
_ACTIVATIONS = {
    "Relu": "relu", "LeakyRelu": "max", "Tanh": "tanh", "Sigmoid": "sigmoid", "Clip": "max", "HardSigmoid": "max",
}  # fmt: skip


def matmul_nbits(call: Call) -> Loops:
    """``Y[b.., m, n] = sum_k A[b.., m, k] scale[n, k // block] (B[n, k] - zero)`` with B of 2, 4 or 8 bits.

    The reader has told B apart into one element per weight. Every weight is unpacked and scaled once a use.
    """
    a, b, y = call.input(0), call.input(1), call.output()
    columns, depth = call.integer("N", 0), call.integer("K", 0)
    if not a.shape or a.shape[-1] != depth or len(b.shape) != 2 or b.shape[0] != columns:
        raise Unmodelled("its packed weights are not N x K")
    batch = a.shape[:-2]
    names = ["b" if i == 0 else f"b_{i + 1}" for i in range(len(batch))]
    dims = [Dim(name, extent) for name, extent in zip(names, batch, strict=True)]
    if len(a.shape) > 1:
        dims.append(Dim("m", a.shape[-2]))
    rows = range(len(dims))
    n, k = len(dims), len(dims) + 1
    dims += [Dim("n", columns), Dim("k", depth, reduction=True)]
    inputs = [Map(0, axes_of(*rows, k)), Map(1, axes_of(n, k))]
    inputs += [
        whole(p, o) for p in range(2, len(call.inputs)) if (o := call.optional(p)) and not o.is_immediate
    ]
    if len(y.shape) != len(rows) + 1:
        raise Unmodelled("the output's rank does not fit")
    unpacking = (("cast", 1.0), ("mul", 1.0))
    return Loops(OpKind.CONTRACTION, tuple(dims), tuple(inputs), (Map(0, axes_of(*rows, n)),), unpacking)


def fused_matmul(call: Call) -> Loops:
    """``alpha op(A) op(B)``: the last two axes of either operand swapped, or the first with the one before the last."""
    a, b = call.input(0), call.input(1)
    views: list[Operand] = []
    orders: list[list[int]] = []
    for operand, letter in ((a, "A"), (b, "B")):
        order = list(range(len(operand.shape)))
        if call.integer(f"transBatch{letter}", 0):
            order[:-1] = [*order[1:-1], order[0]]
        if call.integer(f"trans{letter}", 0):
            order[-2:] = order[-2:][::-1]
        orders.append(order)
        views.append(replace(operand, shape=tuple(operand.shape[i] for i in order)))
    loops = matmul(replace(call, op_type="MatMul", inputs=tuple(views)))
    inputs = tuple(
        replace(m, axes=tuple(m.axes[order.index(i)] for i in range(len(order))))
        for m, order in zip(loops.inputs, orders, strict=True)
    )
    return replace(loops, inputs=inputs)


def fused_conv(call: Call) -> Loops:
    """A convolution, a bias, one more addend, an activation."""
    loops = conv(replace(call, op_type="Conv", inputs=call.inputs[:3]))
    share = call.output().elements / max(_points(loops), 1)
    ops = [(_ACTIVATIONS.get(call.text("activation"), "max"), share)]
    inputs = list(loops.inputs)
    if call.optional(3) is not None:
        inputs.append(replace(loops.outputs[0], position=3))
        ops.append(("add", share))
    return replace(loops, inputs=tuple(inputs), vector_ops=(*loops.vector_ops, *ops))


def quantised_pair(primitive: str) -> Row:
    """A row for QLinearAdd and QLinearMul: A, its scale and zero point, B, its, the result's."""
    ops = ((primitive, 1.0), ("sub", 2.0), ("mul", 2.0), *_REQUANTISE)

    def row(call: Call) -> Loops:
        return seen_as(pointwise(*ops), "", 0, 3)(call)

    return row


def quantised_where(call: Call) -> Loops:
    """QLinearWhere: the condition, X, its scale and zero point, Y, its, the result's."""
    return seen_as(pointwise(("select", 1.0), *_REQUANTISE), "", 0, 1, 4)(call)


def quantised_concat(call: Call) -> Loops:
    """QLinearConcat: the result's scale and zero point, then three operands per part. Each element is rescaled."""
    positions = tuple(range(2, len(call.inputs), 3))
    loops = seen_as(concat, "Concat", *positions)(call)
    return replace(loops, kind=OpKind.POINTWISE, vector_ops=_REQUANTISE)


def quantised_pool(call: Call) -> Loops:
    """QLinearAveragePool, over NCHW (``channels_last`` is refused: its windows lie elsewhere)."""
    _refuse_channels_last(call)
    return seen_as(pool("add"), "AveragePool", 0, ops=_REQUANTISE)(call)


def quantised_global_pool(call: Call) -> Loops:
    """QLinearGlobalAveragePool: all axes after batch and channels (before the channels, where they come last)."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    last = call.integer("channels_last", 0)
    reduced = list(range(1, rank - 1) if last else range(2, rank))
    loops = Loops(
        OpKind.REDUCTION,
        element_dims(x.shape, reduced),
        (Map(0, axes_of(*range(rank))),),
        (Map(0, tuple(Axis() if i in reduced else axis_of(i) for i in range(len(y.shape)))),),
        (("add", 1.0),),
    )
    return seen_as(lambda _: loops, "", 0, ops=_REQUANTISE)(call)


def _refuse_channels_last(call: Call) -> None:
    if call.integer("channels_last", 0):
        raise Unmodelled("channels last is not modelled")


def quantised_gemm(call: Call) -> Loops:
    """QGemm: A, scale, zero, B, scale, zero, C, and the result's."""
    return seen_as(gemm, "Gemm", 0, 3, 6, ops=_REQUANTISE)(call)


def dynamic_matmul(call: Call) -> Loops:
    """DynamicQuantizeMatMul and MatMulIntegerToFloat: a product whose result is scaled, with a bias along n."""
    loops = matmul(replace(call, op_type="MatMul", inputs=call.inputs[:2]))
    n = next((i for i, dim in enumerate(loops.dims) if dim.name == "n"), 0)
    small = small_operands(call, 2, {loops.dims[n].extent: n})
    share = call.output().elements / max(_points(loops), 1)
    return replace(loops, inputs=(*loops.inputs, *small), vector_ops=(("mul", share), ("add", share)))


def quantised_unary(*ops: tuple[str, float]) -> Row:
    """A row for QLinearSigmoid and QLinearLeakyRelu: X and four small operands."""
    return seen_as(pointwise(("sub", 1.0), ("mul", 1.0), *ops, *_REQUANTISE), "", 0)


def quantised_reduce(call: Call) -> Loops:
    """QLinearReduceMean: X and four small operands."""
    return seen_as(reduce(("add", 1.0)), "ReduceMean", 0, ops=_REQUANTISE)(call)


def quantised_softmax(*ops: tuple[str, float]) -> Row:
    """A row for QLinearSoftmax."""
    return seen_as(softmax(*ops), "Softmax", 0, ops=_REQUANTISE)


def biased(*ops: tuple[str, float]) -> Row:
    """A row for an activation with an optional bias along the last axis (FastGelu, BiasGelu)."""

    def row(call: Call) -> Loops:
        more = (("add", 1.0),) if call.optional(1) is not None else ()
        return pointwise(*more, *ops)(call)

    return row


def skip_normalization(*ops: tuple[str, float]) -> Row:
    """A row for Skip(Simplified)LayerNormalization: input, skip, scale, (shift,) bias; the sum may be an output.

    A running form exists as for the plain ones, but the sum is written as well: two passes where it is wanted.
    """

    def row(call: Call) -> Loops:
        x = call.input(0)
        rank = len(x.shape)
        inputs = [Map(0, axes_of(*range(rank)))]
        added = 0
        for position in range(1, len(call.inputs)):
            operand = call.optional(position)
            if operand is not None and not operand.is_immediate:
                shape = operand.shape
                if position == 1 and len(shape) == rank - 1:
                    shape = (1, *shape)
                    axes = broadcast(shape, x.shape)[1:]
                else:
                    axes = broadcast(shape, x.shape)
                inputs.append(Map(position, axes))
                last = 4 if call.op_type == "SkipLayerNormalization" else 3
                added += position in (1, last)
        statistic = (*axes_of(*range(rank - 1)), Axis())
        outputs = [
            Map(p, axes_of(*range(rank)) if p in (0, 3) else statistic)
            for p, operand in enumerate(call.outputs)
            if operand is not None
        ]
        dims = element_dims(x.shape, [rank - 1])
        more = (("add", float(added)),)
        return Loops(OpKind.REDUCTION, dims, tuple(inputs), tuple(outputs), (*more, *ops), online=True)

    return row


def linear(call: Call, outputs: Sequence[int]) -> Loops:
    """ai.onnx.ml linear models: ``Y[n, c] = sum_f X[n, f] W[c, f]`` with weights in an attribute."""
    x = call.input(0)
    y = call.output(outputs[0])
    rows = 1 if len(x.shape) < 2 else x.shape[0]
    features = x.shape[-1] if x.shape else 1
    weights = call.attributes.get("coefficients")
    count = len(weights) if isinstance(weights, tuple) else 0
    if len(y.shape) != 2 or not features or count % features:
        raise Unmodelled("its coefficients do not fit its input")
    classes = max(count // features, 1)
    dims = (Dim("n", rows), Dim("c", classes), Dim("f", features, reduction=True))
    inputs = (Map(0, axes_of(0, 2) if len(x.shape) == 2 else axes_of(2)),)
    if y.shape[1] == classes:
        result = Map(outputs[0], axes_of(0, 1))
    else:  # of two classes one is computed, the other follows
        result = whole(outputs[0], y)
    others = [whole(p, o) for p, o in enumerate(call.outputs) if o is not None and p != outputs[0]]
    ops = (("add", 1.0 / features),)
    return Loops(OpKind.CONTRACTION, dims, inputs, (result, *others), ops)


def linear_classifier(call: Call) -> Loops:
    """Scores of each class, and the best one's label."""
    return linear(call, (1,))


def linear_regressor(call: Call) -> Loops:
    """One value per target."""
    return linear(call, (0,))
