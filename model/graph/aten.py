"""Rows of torch's ATen operators, as torch.export writes them: most are ONNX's under other attribute names.

The reader passes tensors as operands in the order of the operator's schema, every other argument as an
attribute under its schema name (``stride``, ``dim``); an overload's name and the underscore of an in-place
variant are gone. Schemas: https://pytorch.org/docs/stable/torch.compiler_ir.html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .contractions import conv, conv_transpose, gemm, matmul
from .elementwise import (
    arg_reduce,
    cumulative,
    group_normalization,
    layer_normalization,
    per_channel,
    pointwise,
    softmax,
    top_k,
)
from .elementwise import reduce as reduction
from .graph import Axis, Dim, OpKind
from .movement import (
    concat,
    expand,
    filled,
    gather,
    gather_elements,
    masked_copy,
    reshape,
    same_elements,
    transpose,
)
from .raw import Attribute
from .row import (
    Call,
    Loops,
    Map,
    Row,
    Unmodelled,
    axes_of,
    axis_of,
    element_dims,
    normal_axis,
    whole,
)
from .windows import pool, resize


def _as(
    row: Row,
    op_type: str = "",
    operands: tuple[int, ...] | None = None,
    attributes: Callable[[Call], Mapping[str, Attribute]] | None = None,
) -> Row:
    """ONNX's `row` for a call whose operands stand in another order and whose attributes have other names.

    ``operands``: per operand of the ONNX operator its position here.
    """

    def adapted(call: Call) -> Loops:
        named = call.attributes if attributes is None else attributes(call)
        chosen = call.inputs
        if operands is not None:
            chosen = tuple(call.optional(position) for position in operands)
        loops = row(replace(call, op_type=op_type or call.op_type, inputs=chosen, attributes=named))
        if operands is None:
            return loops
        return replace(loops, inputs=tuple(replace(m, position=operands[m.position]) for m in loops.inputs))

    return adapted


def _axis(call: Call, default: int = -1) -> Mapping[str, Attribute]:
    """``dim`` as ONNX's ``axis``."""
    return {"axis": call.integer("dim", default)}


def _axes(call: Call) -> Mapping[str, Attribute]:
    """``dim``, one or several or none, as ONNX's ``axes``."""
    return {"axes": call.integers("dim") or ()}


# ---------------------------------------------------------------- contractions


def _linear(call: Call) -> Loops:
    """``Y[b.., n] = sum_k X[b.., k] W[n, k] + bias[n]``: a matrix product with the weight's axes swapped."""
    x, w = call.input(0), call.input(1)
    if len(w.shape) != 2 or not x.shape:
        raise Unmodelled("a matrix as weight was expected")
    swapped = replace(w, shape=w.shape[::-1])
    loops = matmul(Call("MatMul", (x, swapped), call.outputs, {}))
    weight = loops.inputs[1]
    inputs = [loops.inputs[0], replace(weight, axes=weight.axes[::-1])]
    bias = call.optional(2)
    if bias is None:
        return replace(loops, inputs=tuple(inputs))
    if not bias.is_immediate:
        n = next(i for i, dim in enumerate(loops.dims) if dim.name == "n")
        inputs.append(Map(2, axes_of(n)))
    return replace(loops, inputs=tuple(inputs), vector_ops=(("add", 1.0 / max(1, w.shape[1])),))


def _window(call: Call) -> Mapping[str, Attribute]:
    """Stride, padding and dilation of a convolution or pool; one number means the same for every axis."""
    weight = call.optional(1)
    kernel = call.integers("kernel_size") or ()
    rank = len(call.output().shape) - 2
    if weight is None and len(kernel) == 1:
        kernel = kernel * rank

    def each(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        given = call.integers(name) or default
        return given * rank if len(given) == 1 else given

    out: dict[str, Attribute] = {
        "strides": each("stride", kernel or (1,) * rank),
        "dilations": each("dilation", (1,) * rank),
        "group": call.integer("groups", 1),
    }
    if call.text("padding") == "same":
        out["auto_pad"] = "SAME_UPPER"
    elif not call.text("padding"):
        out["pads"] = each("padding", (0,) * rank) * 2
    if kernel:
        out["kernel_shape"] = kernel
    return out


def _convolution(call: Call) -> Loops:
    if call.integer("transposed", 0) or "transpose" in call.op_type:
        return _as(conv_transpose, "ConvTranspose", attributes=_window)(call)
    return _as(conv, "Conv", attributes=_window)(call)


# ---------------------------------------------------------------- reductions and windows


def _normalized(call: Call) -> Mapping[str, Attribute]:
    return {"axis": -max(1, len(call.integers("normalized_shape") or ()))}


def _group_norm(call: Call) -> Loops:
    groups = call.integer("num_groups", call.integer("group", 1))
    return _as(group_normalization, "GroupNormalization", attributes=lambda _: {"num_groups": groups})(call)


def _adaptive_pool(call: Call) -> Loops:
    """A mean over windows that tile the input evenly; over all of it where the result has one pixel."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    if len(y.shape) != rank or any(b < 1 or a % b for a, b in zip(x.shape, y.shape, strict=True)):
        raise Unmodelled("its windows differ in size")
    dims = list(element_dims(y.shape))
    axes: list[Axis] = []
    for axis, (extent, out) in enumerate(zip(x.shape, y.shape, strict=True)):
        size = extent // out
        if size == 1:
            axes.append(axis_of(axis))
            continue
        axes.append(Axis(((axis, size), (len(dims), 1))))
        dims.append(Dim(f"r{axis}", size, reduction=True))
    op = "max" if "max" in call.op_type else "add"
    out_axes = (Map(0, axes_of(*range(rank))),)
    return Loops(OpKind.WINDOW, tuple(dims), (Map(0, tuple(axes)),), out_axes, ((op, 1.0),))


def _reduced_or_pointwise(op: str) -> Row:
    """``max`` and ``min``: of two tensors, or over a dim."""

    def row(call: Call) -> Loops:
        if len([o for o in call.inputs if o is not None]) > 1:
            return pointwise((op, 1.0))(call)
        return _as(reduction((op, 1.0)), attributes=_axes)(call)

    return row


# ---------------------------------------------------------------- movement


def _permute(call: Call) -> Mapping[str, Attribute]:
    rank = len(call.input(0).shape)
    perm = list(range(rank))
    if call.op_type == "permute":
        perm = [normal_axis(axis, rank) for axis in call.integers("dims") or ()]
    elif rank > 1:
        first, second = (call.integer("dim0", 0), call.integer("dim1", 1)) if call.op_type != "t" else (0, 1)
        first, second = normal_axis(first, rank), normal_axis(second, rank)
        perm[first], perm[second] = perm[second], perm[first]
    return {"perm": tuple(perm)}


def _sliced(call: Call) -> Loops:
    """slice, select, narrow: a part along one axis; select takes the axis away."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    axis = normal_axis(call.integer("dim", 0), rank)
    if axis >= rank:
        raise Unmodelled("it has no such axis")
    start = call.integer("index" if call.op_type == "select" else "start", 0)
    start = max(0, min(start + x.shape[axis] if start < 0 else start, x.shape[axis]))
    step = call.integer("step", 1)
    axes = [axis_of(i) for i in range(rank)]
    if call.op_type == "select":
        axes = [axis_of(i) for i in range(rank - 1)]
        axes.insert(axis, Axis((), start))
    else:
        axes[axis] = axis_of(axis, step, start)
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), (Map(0, tuple(axes)),),
                 (Map(0, axes_of(*range(len(y.shape)))),), linear=True)  # fmt: skip


def _split(call: Call) -> Loops:
    """split, chunk, unbind: each result at its offset along the axis."""
    x = call.input(0)
    rank = len(x.shape)
    axis = normal_axis(call.integer("dim", 0), rank)
    gone = call.op_type == "unbind"
    outputs: list[Map] = []
    offset = 0
    for position, y in enumerate(call.outputs):
        size = 1 if gone else 0 if y is None else y.shape[axis]
        if y is None and not gone:
            raise Unmodelled("the shape of one of its outputs is unknown")
        axes = [axis_of(i, 1, -offset if i == axis else 0) for i in range(rank) if not (gone and i == axis)]
        if y is not None:
            outputs.append(whole(position, y) if gone else Map(position, tuple(axes)))
        offset += size
    if offset != x.shape[axis]:
        raise Unmodelled("the outputs do not add up to the input")
    return Loops(
        OpKind.MOVEMENT, element_dims(x.shape), (Map(0, axes_of(*range(rank))),), tuple(outputs), linear=True
    )


def _stack(call: Call) -> Loops:
    """Each input is one index of the new axis."""
    y = call.output()
    inputs = tuple(whole(p, o) for p, o in enumerate(call.inputs) if o is not None)
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), inputs, (Map(0, axes_of(*range(len(y.shape)))),))


def _cat(call: Call) -> Loops:
    return _as(concat, attributes=lambda _: {"axis": call.integer("dim", 0)})(call)


def _padded(call: Call) -> Loops:
    """``pad`` counts from the last axis: (left, right, top, bottom, ...); the border is never read."""
    x, y = call.input(0), call.output()
    amounts = call.integers("pad") or call.integers("padding") or ()
    rank = len(x.shape)
    if len(amounts) > 2 * rank or len(amounts) % 2 or len(y.shape) != rank:
        raise Unmodelled("its padding does not fit its operand")
    before = [0] * rank
    for i, amount in enumerate(amounts[0::2]):
        before[rank - 1 - i] = amount
    read = Map(0, tuple(axis_of(i, 1, -amount) for i, amount in enumerate(before)))
    return Loops(
        OpKind.MOVEMENT, element_dims(y.shape), (read,), (Map(0, axes_of(*range(rank))),), linear=True
    )


def _cast(call: Call) -> Loops:
    """``to`` and ``_to_copy``: nothing where the element type stays."""
    x, y = call.input(0), call.output()
    if x.dtype == y.dtype:
        return same_elements(call)
    one = replace(call, inputs=call.inputs[:1])
    return pointwise(("cast", 1.0), linear=True)(one)


def _indexed(call: Call) -> Loops:
    """``index``: the elements of the result, wherever the indices say."""
    x, y = call.input(0), call.output()
    inputs = [whole(0, x, min(x.elements, y.elements))]
    inputs += [whole(p, o) for p, o in enumerate(call.inputs) if p and o is not None and not o.is_immediate]
    return Loops(
        OpKind.MOVEMENT, element_dims(y.shape), tuple(inputs), (Map(0, axes_of(*range(len(y.shape)))),)
    )


def _written_into(call: Call) -> Loops:
    """index_put, scatter and kin: the first operand is copied, the others land where values say."""
    y = call.output()
    inputs = [whole(p, o) for p, o in enumerate(call.inputs) if o is not None and not o.is_immediate]
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), tuple(inputs), (whole(0, y),))


def _expanded(call: Call) -> Loops:
    return expand(replace(call, inputs=call.inputs[:1]))


def _div(call: Call) -> Loops:
    return pointwise(("div", 1.0), linear=True)(replace(call, op_type="Div"))


def _first_of(row: Row) -> Row:
    """A row that sees the first result only; masks and saved statistics cost nothing in inference."""

    def adapted(call: Call) -> Loops:
        return row(replace(call, outputs=call.outputs[:1]))

    return adapted


def _named(*names: str, ops: tuple[tuple[str, float], ...] = (), linear: bool = False) -> dict[str, Row]:
    return {name: pointwise(*(ops or ((name, 1.0),)), linear=linear) for name in names}


_BATCH_NORM = per_channel(("mul", 1.0), ("add", 1.0))
_SOFTMAX = (("max", 1.0), ("sub", 1.0), ("exp", 1.0), ("add", 1.0), ("mul", 1.0))

ROWS: dict[str, Row] = {
    "linear": _linear,
    **dict.fromkeys(("mm", "bmm", "matmul"), _as(matmul, "MatMul")),
    "addmm": _as(gemm, "Gemm", operands=(1, 2, 0), attributes=lambda _: {}),
    **dict.fromkeys(
        ("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
         "conv_transpose3d"),
        _convolution,
    ),
    # pointwise
    **_named("relu", "sqrt", "exp", "log", "erf", "tanh", "sigmoid", "abs", "sign", "floor", "ceil", "round",
             "sin", "cos", "tan", "reciprocal", "pow", "maximum", "minimum"),
    **_named("add", "rsub", "sub", ops=(("add", 1.0),)),
    "mul": pointwise(("mul", 1.0), linear=True),
    "div": _div,
    "neg": pointwise(("neg", 1.0), linear=True),
    "rsqrt": pointwise(("sqrt", 1.0), ("reciprocal", 1.0)),
    "silu": pointwise(("sigmoid", 1.0), ("mul", 1.0)),
    "gelu": pointwise(("erf", 1.0), ("add", 1.0), ("mul", 3.0)),
    "elu": pointwise(("exp", 1.0), ("sub", 1.0), ("mul", 1.0), ("select", 1.0)),
    "leaky_relu": pointwise(("mul", 1.0), ("max", 1.0)),
    "prelu": per_channel(("mul", 1.0), ("max", 1.0)),
    "hardtanh": pointwise(("max", 1.0), ("min", 1.0)),
    "relu6": pointwise(("max", 1.0), ("min", 1.0)),
    "clamp": pointwise(("max", 1.0), ("min", 1.0)),
    "hardsigmoid": pointwise(("mul", 1.0), ("add", 1.0), ("max", 1.0), ("min", 1.0)),
    "hardswish": pointwise(("mul", 2.0), ("add", 1.0), ("max", 1.0), ("min", 1.0)),
    "softplus": pointwise(("exp", 1.0), ("add", 1.0), ("log", 1.0)),
    "mish": pointwise(("exp", 1.0), ("add", 1.0), ("log", 1.0), ("tanh", 1.0), ("mul", 1.0)),
    "square": pointwise(("mul", 1.0)),
    "addcmul": pointwise(("mul", 1.0), ("add", 1.0)),
    **_named("where", "masked_fill", ops=(("select", 1.0),)),
    **_named("eq", "ne", "lt", "le", "gt", "ge", ops=(("compare", 1.0),)),
    **_named("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "isnan",
             "isinf", ops=(("logic", 1.0),)),
    **dict.fromkeys(("to", "_to_copy", "type_as"), _cast),
    # normalisation and reductions
    **dict.fromkeys(
        ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "_native_batch_norm_legit"),
        _first_of(_as(_BATCH_NORM, attributes=lambda _: {"axis": 1})),
    ),
    "layer_norm": _as(layer_normalization(("add", 3.0), ("mul", 3.0)), attributes=_normalized),
    "native_layer_norm": _first_of(_as(layer_normalization(("add", 3.0), ("mul", 3.0)), attributes=_normalized)),
    "rms_norm": _as(layer_normalization(("add", 1.0), ("mul", 3.0)), attributes=_normalized),
    "group_norm": _group_norm,
    "native_group_norm": _first_of(_group_norm),
    **dict.fromkeys(("softmax", "_softmax"), _as(softmax(*_SOFTMAX, online=True), attributes=_axis)),
    **dict.fromkeys(("log_softmax", "_log_softmax"),
                    _as(softmax(("max", 1.0), ("sub", 2.0), ("exp", 1.0), ("add", 1.0)), attributes=_axis)),
    **dict.fromkeys(("sum", "mean"), _as(reduction(("add", 1.0)), attributes=_axes)),
    **dict.fromkeys(("var", "std"), _as(reduction(("mul", 1.0), ("add", 2.0)), attributes=_axes)),
    "prod": _as(reduction(("mul", 1.0)), attributes=_axes),
    "amax": _as(reduction(("max", 1.0)), attributes=_axes),
    "amin": _as(reduction(("min", 1.0)), attributes=_axes),
    "max": _reduced_or_pointwise("max"),
    "min": _reduced_or_pointwise("min"),
    **dict.fromkeys(("any", "all"), _as(reduction(("logic", 1.0)), attributes=_axes)),
    **dict.fromkeys(("argmax", "argmin"), _as(arg_reduce, attributes=lambda call: _axis(call, 0))),
    "cumsum": _as(cumulative, attributes=lambda call: {"axis": (call.integer("dim", 0),)}),
    "topk": _as(top_k, attributes=_axis),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _as(pool("max"), attributes=_window)),
    "max_pool2d_with_indices": _first_of(_as(pool("max"), attributes=_window)),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _as(pool("add"), attributes=_window)),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d"),
                    _first_of(_adaptive_pool)),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d"),
                    _as(resize, "Resize", operands=(0,), attributes=lambda call: {
                        "mode": "nearest" if "nearest" in call.op_type else "linear"})),
    # movement and views
    **dict.fromkeys(("permute", "transpose", "t"), _as(transpose, attributes=_permute)),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as",
                     "_reshape_alias"), reshape),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias", "dropout", "lift_fresh_copy", "native_dropout",
                     "feature_dropout"), same_elements),
    **dict.fromkeys(("expand", "expand_as"), _expanded),
    **dict.fromkeys(("slice", "select", "narrow"), _sliced),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unbind", "unsafe_split"), _split),
    "cat": _cat,
    "stack": _stack,
    **dict.fromkeys(("pad", "constant_pad_nd"), _padded),
    "embedding": _as(gather, "Gather", attributes=lambda _: {"axis": 0}),
    "index_select": _as(gather, "Gather", attributes=lambda call: {"axis": call.integer("dim", 0)}),
    "gather": _as(gather_elements, attributes=lambda call: {"axis": call.integer("dim", 0)}),
    "index": _indexed,
    **dict.fromkeys(("index_put", "scatter", "slice_scatter", "select_scatter", "index_copy", "copy"), _written_into),
    **dict.fromkeys(("tril", "triu"), masked_copy),
    **dict.fromkeys(("arange", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like",
                     "scalar_tensor", "new_zeros", "new_ones"), filled()),
}  # fmt: skip
