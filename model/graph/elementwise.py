"""Rows of the operator-type table that work element by element, and those that reduce.

Dims are ``i0, i1, ...`` over the axes of the (input's) shape. Constants of one element are compiled into
the kernel and are no operands.
"""

from __future__ import annotations

from .graph import Axis, Dim, OpKind
from .row import (
    Call,
    Loops,
    Map,
    Row,
    Shape,
    Unmodelled,
    VectorOps,
    axes_of,
    axis_of,
    broadcast,
    element_dims,
    normal_axis,
    whole,
)


def pointwise(*vector_ops: tuple[str, float], linear: bool = False) -> Row:
    """A row for an operator that computes each output element from its broadcast inputs.

    ``linear``: the output is linear in the first operand (for a product: in either one).
    """

    def row(call: Call) -> Loops:
        y = call.output()
        inputs = tuple(
            Map(position, broadcast(operand.shape, y.shape))
            for position, operand in enumerate(call.inputs)
            if operand is not None and not operand.is_immediate
        )
        outputs = tuple(
            Map(position, broadcast(operand.shape, y.shape))
            for position, operand in enumerate(call.outputs)
            if operand is not None
        )
        names = [operand.name for operand in call.inputs if operand is not None]
        still_linear = linear and len(set(names)) == len(names)
        if call.op_type == "Div" and call.input(0).is_immediate:
            still_linear = False
        ops = vector_ops
        if call.op_type in ("Sum", "Max", "Min", "Mean"):
            ops = tuple((name, count * max(1, len(names) - 1)) for name, count in vector_ops)
        return Loops(OpKind.POINTWISE, element_dims(y.shape), inputs, outputs, ops, linear=still_linear)

    return row


def cast_like(call: Call) -> Loops:
    """CastLike: of the second operand only the element type is used."""
    x, y = call.input(0), call.output()
    inputs = (Map(0, broadcast(x.shape, y.shape)), whole(1, call.input(1), 0))
    outputs = (Map(0, axes_of(*range(len(y.shape)))),)
    return Loops(OpKind.POINTWISE, element_dims(y.shape), inputs, outputs, (("cast", 1.0),), linear=True)


def per_channel(*vector_ops: tuple[str, float], linear: bool = False) -> Row:
    """A row for an operator whose further operands are scalars or run along one axis (scales, statistics)."""

    def row(call: Call) -> Loops:
        x, y = call.input(0), call.output()
        default = 1
        axis = normal_axis(call.integer("axis", default), len(x.shape)) if x.shape else 0
        inputs = [Map(0, axes_of(*range(len(x.shape))))]
        for position in range(1, len(call.inputs)):
            operand = call.optional(position)
            if operand is None or operand.is_immediate:
                continue
            if operand.elements == 1:
                inputs.append(Map(position, tuple(Axis() for _ in operand.shape)))
            elif len(operand.shape) == 1 and axis < len(x.shape) and operand.shape[0] == x.shape[axis]:
                inputs.append(Map(position, axes_of(axis)))
            else:
                inputs.append(whole(position, operand))
        outputs = (Map(0, axes_of(*range(len(y.shape)))),)
        return Loops(
            OpKind.POINTWISE, element_dims(x.shape), tuple(inputs), outputs, vector_ops, linear=linear
        )

    return row


def batch_normalization(call: Call) -> Loops:
    """In inference ``scale' x + shift'`` per channel; in training a reduction over all axes but these."""
    training = call.integer("training_mode", 0) or sum(o is not None for o in call.outputs) > 1
    loops = per_channel(("mul", 1.0), ("add", 1.0))(call)
    if not training:
        return loops
    rank = len(call.input(0).shape)
    reduced = [axis for axis in range(rank) if axis != 1]
    outputs = [loops.outputs[0]]
    outputs += [Map(p, axes_of(1)) for p, o in enumerate(call.outputs) if p and o is not None]
    ops = (("add", 3.0), ("mul", 3.0))
    dims = element_dims(call.input(0).shape, reduced)
    return Loops(OpKind.REDUCTION, dims, loops.inputs, tuple(outputs), ops)


def reduce(*vector_ops: tuple[str, float]) -> Row:
    """A row for Reduce*: axes from the attribute or the second input, none of them meaning all."""

    def row(call: Call) -> Loops:
        x, y = call.input(0), call.output()
        rank = len(x.shape)
        axes = call.integers("axes", 1)
        if not axes:
            axes = () if call.integer("noop_with_empty_axes", 0) else tuple(range(rank))
        return _reduced(x.shape, [normal_axis(axis, rank) for axis in axes], y.shape, call, vector_ops)

    return row


def _reduced(shape: Shape, axes: list[int], out: Shape, call: Call, vector_ops: VectorOps) -> Loops:
    rank = len(shape)
    if len(out) == rank:
        y_axes = tuple(Axis() if i in axes else axis_of(i) for i in range(rank))
    elif len(out) == rank - len(set(axes)):
        y_axes = axes_of(*(i for i in range(rank) if i not in axes))
    else:
        raise Unmodelled("the output's rank does not fit the reduced axes")
    return Loops(
        OpKind.REDUCTION,
        element_dims(shape, axes),
        (Map(0, axes_of(*range(rank))),),
        tuple(Map(position, y_axes) for position, operand in enumerate(call.outputs) if operand is not None),
        vector_ops,
    )


def arg_reduce(call: Call) -> Loops:
    """ArgMax and ArgMin: one axis, `keepdims` by the output's rank."""
    x = call.input(0)
    axis = normal_axis(call.integer("axis", 0), len(x.shape))
    return _reduced(x.shape, [axis], call.output().shape, call, (("compare", 1.0),))


def global_pool(*vector_ops: tuple[str, float]) -> Row:
    """A row for Global*Pool: a reduction over all axes after batch and channels."""

    def row(call: Call) -> Loops:
        x = call.input(0)
        return _reduced(x.shape, list(range(2, len(x.shape))), call.output().shape, call, vector_ops)

    return row


def softmax(*vector_ops: tuple[str, float], online: bool = False) -> Row:
    """A row for operators that need a statistic over one axis and give every element back.

    Before opset 13 the axis (default 1) and all after it were one.
    """

    def row(call: Call) -> Loops:
        x = call.input(0)
        rank = len(x.shape)
        old = call.version < 13 and call.op_type != "LpNormalization"
        axis = normal_axis(call.integer("axis", 1 if old else -1), rank)
        reduced = list(range(axis, rank)) if old else [axis]
        maps = (Map(0, axes_of(*range(rank))),)
        return Loops(OpKind.REDUCTION, element_dims(x.shape, reduced), maps, maps, vector_ops, online)

    return row


def layer_normalization(*vector_ops: tuple[str, float]) -> Row:
    """A row for LayerNormalization and RMSNormalization: a statistic over `axis` and all axes after it."""

    def row(call: Call) -> Loops:
        x = call.input(0)
        rank = len(x.shape)
        axis = normal_axis(call.integer("axis", -1), rank)
        reduced = list(range(axis, rank))
        inputs = [Map(0, axes_of(*range(rank)))]
        for position in (1, 2):
            operand = call.optional(position)
            if operand is not None and not operand.is_immediate:
                inputs.append(Map(position, broadcast(operand.shape, x.shape)))
        outputs = [Map(0, axes_of(*range(rank)))]
        statistic = tuple(Axis() if i in reduced else axis_of(i) for i in range(rank))
        outputs += [Map(p, statistic) for p, operand in enumerate(call.outputs) if p and operand is not None]
        dims = element_dims(x.shape, reduced)
        return Loops(OpKind.REDUCTION, dims, tuple(inputs), tuple(outputs), vector_ops, online=True)

    return row


def instance_normalization(call: Call) -> Loops:
    """A statistic per sample and channel over all further axes."""
    x = call.input(0)
    rank = len(x.shape)
    maps = Map(0, axes_of(*range(rank)))
    inputs = [maps]
    inputs += [
        Map(p, axes_of(1)) for p in (1, 2) if (o := call.optional(p)) is not None and not o.is_immediate
    ]
    ops = (("add", 3.0), ("mul", 3.0))
    return Loops(OpKind.REDUCTION, element_dims(x.shape, range(2, rank)), tuple(inputs), (maps,), ops)


def group_normalization(call: Call) -> Loops:
    """A statistic per sample and group of channels: dims n, g, c (reduced) and the pixels (reduced)."""
    x = call.input(0)
    groups = call.integer("num_groups", 1)
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise Unmodelled("the groups do not divide the channels")
    per_group = x.shape[1] // groups
    dims = [Dim("n", x.shape[0]), Dim("g", groups), Dim("c", per_group, reduction=True)]
    dims += [Dim(f"i{i}", extent, reduction=True) for i, extent in enumerate(x.shape) if i > 1]
    channel = Axis(((1, per_group), (2, 1)))
    maps = Map(0, (axis_of(0), channel, *axes_of(*range(3, len(dims)))))
    inputs = [maps]
    for position in (1, 2):
        operand = call.optional(position)
        if operand is not None and not operand.is_immediate:
            # Opset 18 has a scale per group, opset 21 one per channel.
            inputs.append(Map(position, (channel,) if operand.elements == x.shape[1] else axes_of(1)))
    ops = (("add", 3.0), ("mul", 3.0))
    return Loops(OpKind.REDUCTION, tuple(dims), tuple(inputs), (maps,), ops)


def cumulative(call: Call) -> Loops:
    """CumSum: a running sum along one axis; every element comes back."""
    x = call.input(0)
    axes = call.integers("axis", 1)
    reduced = [normal_axis(axes[0] if axes else 0, len(x.shape))]
    maps = (Map(0, axes_of(*range(len(x.shape)))),)
    return Loops(OpKind.REDUCTION, element_dims(x.shape, reduced), maps, maps, (("add", 1.0),))


def top_k(call: Call) -> Loops:
    """TopK: reads every element; the k results per row lie where the values say."""
    x = call.input(0)
    axis = normal_axis(call.integer("axis", -1), len(x.shape))
    outputs = tuple(whole(p, operand) for p, operand in enumerate(call.outputs) if operand is not None)
    dims = element_dims(x.shape, [axis])
    return Loops(
        OpKind.REDUCTION, dims, (Map(0, axes_of(*range(len(x.shape)))),), outputs, (("compare", 2.0),)
    )


def dynamic_quantize(call: Call) -> Loops:
    """DynamicQuantizeLinear: the range of the whole tensor first, then every element."""
    x = call.input(0)
    rank = len(x.shape)
    maps = Map(0, axes_of(*range(rank)))
    outputs = [maps, *(Map(p) for p, o in enumerate(call.outputs) if p and o is not None)]
    ops = (("max", 1.0), ("min", 1.0), ("mul", 1.0), ("cast", 1.0))
    return Loops(OpKind.REDUCTION, element_dims(x.shape, range(rank)), (maps,), tuple(outputs), ops)


def rotary(call: Call) -> Loops:
    """RotaryEmbedding: every pair of elements turned by the angle of its row; the tables' rows read once.

    ONNX gives positions last, onnxruntime second; only the tables' touched rows count.
    """
    x = call.input(0)
    maps = Map(0, axes_of(*range(len(x.shape))))
    inputs = [maps]
    depth = x.shape[-1]
    heads = call.integer("num_heads", 0)
    if len(x.shape) == 3 and heads and depth % heads == 0:
        depth //= heads
    rows = x.shape[0] * (x.shape[1] if len(x.shape) == 3 else x.shape[-2])
    for position in range(1, len(call.inputs)):
        operand = call.optional(position)
        if operand is not None and not operand.is_immediate:
            table = operand.dtype.startswith(("float", "bfloat"))
            inputs.append(
                whole(position, operand, min(operand.elements, rows * depth // 2) if table else None)
            )
    return Loops(
        OpKind.POINTWISE, element_dims(x.shape), tuple(inputs), (maps,), (("mul", 2.0), ("add", 1.0))
    )


def normalized(axes: tuple[int, ...], *vector_ops: tuple[str, float]) -> Row:
    """A row for MeanVarianceNormalization and the like: a statistic over the attribute's axes (default `axes`)."""

    def row(call: Call) -> Loops:
        x = call.input(0)
        rank = len(x.shape)
        reduced = [normal_axis(axis, rank) for axis in call.integers("axes") or axes]
        maps = (Map(0, axes_of(*range(rank))),)
        return Loops(OpKind.REDUCTION, element_dims(x.shape, reduced), maps, maps, vector_ops)

    return row


def channels_last_group_norm(call: Call) -> Loops:
    """com.microsoft GroupNorm and SkipGroupNorm over NHWC: a statistic per sample and group."""
    x = call.input(0)
    if not call.integer("channels_last", 1):
        return group_normalization(call)
    groups = call.integer("groups", 1)
    if len(x.shape) != 4 or groups < 1 or x.shape[3] % groups:
        raise Unmodelled("the groups do not divide the channels")
    n, height, width, channels = x.shape
    dims = (
        Dim("n", n), Dim("i1", height, True), Dim("i2", width, True), Dim("g", groups),
        Dim("c", channels // groups, True),
    )  # fmt: skip
    channel = Axis(((3, channels // groups), (4, 1)))
    axes = (*axes_of(0, 1, 2), channel)
    inputs = [Map(0, axes)]
    for position in range(1, len(call.inputs)):
        operand = call.optional(position)
        if operand is None or operand.is_immediate:
            continue
        if operand.shape == x.shape:
            inputs.append(Map(position, axes))
        elif operand.shape == (channels,):
            inputs.append(Map(position, (channel,)))
        else:
            inputs.append(whole(position, operand))
    outputs = tuple(Map(p, axes) for p, operand in enumerate(call.outputs) if operand is not None)
    return Loops(OpKind.REDUCTION, dims, tuple(inputs), outputs, (("add", 3.0), ("mul", 3.0)))


def cross_entropy(call: Call) -> Loops:
    """SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: over the classes, and over all where it is a mean."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    if rank < 2:
        raise Unmodelled("a loss needs samples and classes")
    each = call.text("reduction", "mean") == "none"
    reduced = [1] if each else list(range(rank))
    rest = tuple(axis_of(i) for i in range(rank) if i != 1)
    inputs = [Map(0, axes_of(*range(rank))), Map(1, rest)]
    if (weights := call.optional(2)) is not None and not weights.is_immediate:
        inputs.append(Map(2, axes_of(1)))
    outputs = [Map(0, rest if each else ())]
    if len(y.shape) != len(outputs[0].axes):
        raise Unmodelled("the output's rank does not fit")
    if len(call.outputs) > 1 and call.outputs[1] is not None:
        outputs.append(Map(1, axes_of(*range(rank))))
    ops: VectorOps = (("select", 1.0), ("add", 1.0))
    if call.op_type == "SoftmaxCrossEntropyLoss":
        ops = (("max", 1.0), ("sub", 1.0), ("exp", 1.0), ("add", 1.0), *ops)
    return Loops(OpKind.REDUCTION, element_dims(x.shape, reduced), tuple(inputs), tuple(outputs), ops)


def optimizer(operands: int, *vector_ops: tuple[str, float]) -> Row:
    """A row for Adam, Adagrad, Momentum on one tensor: `operands` tensors in, all but the gradient out."""

    def row(call: Call) -> Loops:
        if len(call.inputs) != 2 + operands:
            raise Unmodelled("it updates several tensors at once, which are no one loop nest")
        x = call.input(2)
        rank = len(x.shape)
        inputs = tuple(Map(2 + i, broadcast(call.input(2 + i).shape, x.shape)) for i in range(operands))
        outputs = tuple(
            Map(p, axes_of(*range(rank))) for p, operand in enumerate(call.outputs) if operand is not None
        )
        return Loops(OpKind.POINTWISE, element_dims(x.shape), inputs, outputs, vector_ops)

    return row
