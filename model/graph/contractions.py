"""Rows of the operator-type table that multiply and accumulate: MatMul, Gemm, Conv, Einsum and kin.

Dim letters are a contract with scripts: batch dims ``b, b_2, ...``; products ``m, n, k``; convolutions
``n`` (batch), ``g`` (groups, where there are several), ``k`` and ``c`` (output and input channels per group),
``p, q, u`` (output pixels), ``r, s, t`` (kernel taps).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .graph import Axis, Dim, OpKind
from .row import Call, Loops, Map, Operand, Shape, Unmodelled, axes_of, axis_of, broadcast, whole

_PIXELS = ("p", "q", "u")
_TAPS = ("r", "s", "t")


def _batch_names(count: int) -> list[str]:
    return ["b" if i == 0 else f"b_{i + 1}" for i in range(count)]


def small_operands(call: Call, first: int, per_axis: dict[int, int]) -> list[Map]:
    """Scales and zero points: one element, or one per index of a dim (`per_axis`: extent -> dim)."""
    out: list[Map] = []
    for position in range(first, len(call.inputs)):
        operand = call.optional(position)
        if operand is None or operand.is_immediate:
            continue
        if operand.elements == 1:
            out.append(Map(position, tuple(Axis() for _ in operand.shape)))
        elif len(operand.shape) == 1 and operand.shape[0] in per_axis:
            out.append(Map(position, axes_of(per_axis[operand.shape[0]])))
        else:
            out.append(whole(position, operand))
    return out


def matmul(call: Call) -> Loops:
    """``Y[b.., m, n] = sum_k A[b.., m, k] B[b.., k, n]`` with numpy's broadcasting of the batch axes."""
    second = 3 if call.op_type == "QLinearMatMul" else 1
    a, b = call.input(0), call.input(second)
    loops = _product(a, b, call.output().shape, second)
    if call.op_type == "MatMul":
        return loops
    rest = [p for p in range(len(call.inputs)) if p not in (0, second)]
    m = next((i for i, dim in enumerate(loops.dims) if dim.name == "m"), 0)
    n = next((i for i, dim in enumerate(loops.dims) if dim.name == "n"), 0)
    per_axis = {loops.dims[m].extent: m, loops.dims[n].extent: n}
    small = [x for x in small_operands(call, 1, per_axis) if x.position in rest]
    return Loops(loops.kind, loops.dims, (*loops.inputs, *small), loops.outputs)


def _product(a: Operand, b: Operand, out: Shape, second: int) -> Loops:
    if not a.shape or not b.shape:
        raise Unmodelled("a product needs operands with axes")
    has_m, has_n = len(a.shape) > 1, len(b.shape) > 1
    batch = out[: len(out) - has_m - has_n]
    dims = [Dim(name, extent) for name, extent in zip(_batch_names(len(batch)), batch, strict=True)]
    m, n = len(batch), len(batch) + has_m
    k = n + has_n
    if has_m:
        dims.append(Dim("m", a.shape[-2]))
    if has_n:
        dims.append(Dim("n", b.shape[-1]))
    depth = a.shape[-1]
    if depth != b.shape[-2 if has_n else -1]:
        raise Unmodelled("the operands' common axes differ")
    dims.append(Dim("k", depth, reduction=True))
    a_axes = (*broadcast(a.shape[:-2], batch), *axes_of(*([m, k] if has_m else [k])))
    b_axes = (*broadcast(b.shape[:-2], batch), *axes_of(*([k, n] if has_n else [k])))
    y_axes = axes_of(*range(len(batch)), *([m] if has_m else []), *([n] if has_n else []))
    return Loops(OpKind.CONTRACTION, tuple(dims), (Map(0, a_axes), Map(second, b_axes)), (Map(0, y_axes),))


def gemm(call: Call) -> Loops:
    """``Y[m, n] = alpha sum_k A[m, k] B[k, n] + beta C``; transA and transB swap the axes of A and B."""
    a, b = call.input(0), call.input(1)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Unmodelled("Gemm needs matrices")
    trans_a, trans_b = call.integer("transA", 0), call.integer("transB", 0)
    m, k = a.shape[::-1] if trans_a else a.shape
    n = b.shape[0] if trans_b else b.shape[1]
    dims = (Dim("m", m), Dim("n", n), Dim("k", k, reduction=True))
    inputs = [
        Map(0, axes_of(2, 0) if trans_a else axes_of(0, 2)),
        Map(1, axes_of(1, 2) if trans_b else axes_of(2, 1)),
    ]
    vector_ops: tuple[tuple[str, float], ...] = ()
    c = call.optional(2)
    if c is not None:
        if not c.is_immediate:
            inputs.append(Map(2, broadcast(c.shape, (m, n))))
        vector_ops = (("add", 1.0 / max(k, 1)),)
    return Loops(OpKind.CONTRACTION, dims, tuple(inputs), (Map(0, axes_of(0, 1)),), vector_ops)


def conv(call: Call) -> Loops:
    """``Y[n, (g, k), p, q] = sum_{c, r, s} X[n, (g, c), p*stride + r*dilation - pad, ..] W[(g, k), c, r, s]``

    A dim of extent 1 of a grouped convolution is left out: a depthwise one has neither k nor c.
    """
    weight_at = 3 if call.op_type == "QLinearConv" else 1
    bias_at = {"Conv": 2, "QLinearConv": 8}.get(call.op_type)
    x, w, y = call.input(0), call.input(weight_at), call.output()
    rank = len(w.shape) - 2
    if not 1 <= rank <= 3 or len(x.shape) != rank + 2 or len(y.shape) != rank + 2:
        raise Unmodelled("a convolution over 1, 2 or 3 axes was expected")
    groups = call.integer("group", 1)
    if groups < 1 or w.shape[0] % groups:
        raise Unmodelled(f"{groups} groups do not divide {w.shape[0]} output channels")
    per_group, channels = w.shape[0] // groups, w.shape[1]
    dims = [Dim("n", x.shape[0])]
    g = k = c = -1
    if groups > 1:
        g = _add(dims, Dim("g", groups))
    if groups == 1 or per_group > 1:
        k = _add(dims, Dim("k", per_group))
    pixels = [_add(dims, Dim(_PIXELS[i], y.shape[2 + i])) for i in range(rank)]
    if groups == 1 or channels > 1:
        c = _add(dims, Dim("c", channels, reduction=True))
    taps = [_add(dims, Dim(_TAPS[i], w.shape[2 + i], reduction=True)) for i in range(rank)]

    windows = window_axes(call, x.shape[2:], w.shape[2:], y.shape[2:], pixels, taps)
    c_axis = axis_of(c) if c >= 0 else Axis()
    x_axes = (axis_of(0), _mixed((g, channels), (c, 1)), *windows)
    w_axes = (_mixed((g, per_group), (k, 1)), c_axis, *axes_of(*taps))
    y_axes = (axis_of(0), _mixed((g, per_group), (k, 1)), *axes_of(*pixels))
    inputs = [Map(0, x_axes), Map(weight_at, w_axes)]
    vector_ops: tuple[tuple[str, float], ...] = ()
    bias = None if bias_at is None else call.optional(bias_at)
    if bias is not None and bias_at is not None:
        inputs.append(Map(bias_at, (_mixed((g, per_group), (k, 1)),)))
        vector_ops = (("add", 1.0 / max(1, channels * math.prod(w.shape[2:]))),)
    if call.op_type != "Conv":
        per_channel = {w.shape[0]: k} if groups == 1 else {}
        known = {0, weight_at, bias_at}
        inputs += [m for m in small_operands(call, 1, per_channel) if m.position not in known]
    return Loops(OpKind.CONTRACTION, tuple(dims), tuple(inputs), (Map(0, y_axes),), vector_ops)


def _add(dims: list[Dim], dim: Dim) -> int:
    dims.append(dim)
    return len(dims) - 1


def _mixed(*terms: tuple[int, int]) -> Axis:
    """An axis over several dims; dims that are left out (-1) have extent 1 and address nothing."""
    return Axis(tuple((dim, coefficient) for dim, coefficient in terms if dim >= 0))


def window_axes(
    call: Call,
    size: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    pixels: Sequence[int],
    taps: Sequence[int],
) -> tuple[Axis, ...]:
    """Axes ``p * stride + r * dilation - pad`` of a windowed operand, from the call's attributes."""
    rank = len(kernel)
    strides = call.integers("strides") or (1,) * rank
    dilations = call.integers("dilations") or (1,) * rank
    if len(strides) != rank or len(dilations) != rank:
        raise Unmodelled("strides and dilations do not fit the kernel")
    pads = _pads_before(call, size, kernel, out, strides, dilations)
    return tuple(
        Axis(((pixels[i], strides[i]), (taps[i], dilations[i])), -pads[i])
        if kernel[i] > 1
        else Axis(((pixels[i], strides[i]),), -pads[i])
        for i in range(rank)
    )


def _pads_before(
    call: Call,
    size: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    rank = len(kernel)
    mode = call.text("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = call.integers("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise Unmodelled("pads do not fit the kernel")
        return pads[:rank]
    if mode == "VALID":
        return (0,) * rank
    before: list[int] = []
    for i in range(rank):
        total = max(0, (out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size[i])
        before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return tuple(before)


def conv_transpose(call: Call) -> Loops:
    """``Y[n, (g, k), p*stride + r - pad, ..] += X[n, (g, c), p, ..] W[(g, c), k, r, ..]`` over input pixels.

    Where stride and kernel agree, every output element is written once and the taps are output dims
    (mixed radix). Else windows overlap on the output, which is then kept whole.
    """
    x, w, y = call.input(0), call.input(1), call.output()
    rank = len(w.shape) - 2
    if not 1 <= rank <= 3 or len(x.shape) != rank + 2:
        raise Unmodelled("a convolution over 1, 2 or 3 axes was expected")
    groups = call.integer("group", 1)
    if groups < 1 or x.shape[1] % groups:
        raise Unmodelled(f"{groups} groups do not divide {x.shape[1]} input channels")
    kernel, per_group, channels = w.shape[2:], w.shape[1], x.shape[1] // groups
    strides = call.integers("strides") or (1,) * rank
    tiles = all(
        y.shape[2 + i] == x.shape[2 + i] * strides[i] and strides[i] == kernel[i] for i in range(rank)
    ) and not any(call.integers("pads") or ())
    dims = [Dim("n", x.shape[0])]
    g = _add(dims, Dim("g", groups)) if groups > 1 else -1
    k = _add(dims, Dim("k", per_group))
    pixels = [_add(dims, Dim(_PIXELS[i], x.shape[2 + i])) for i in range(rank)]
    c = _add(dims, Dim("c", channels, reduction=True))
    taps = [_add(dims, Dim(_TAPS[i], kernel[i], reduction=not tiles)) for i in range(rank)]
    into = _mixed((g, channels), (c, 1))
    inputs = [Map(0, (axis_of(0), into, *axes_of(*pixels))), Map(1, (into, axis_of(k), *axes_of(*taps)))]
    if tiles:
        spread = tuple(Axis(((pixels[i], strides[i]), (taps[i], 1))) for i in range(rank))
        output = Map(0, (axis_of(0), _mixed((g, per_group), (k, 1)), *spread))
    else:
        output = whole(0, y)
    vector_ops: tuple[tuple[str, float], ...] = ()
    if call.optional(2) is not None:
        inputs.append(Map(2, (_mixed((g, per_group), (k, 1)),)))
        points = math.prod(dim.extent for dim in dims)
        vector_ops = (("add", y.elements / max(points, 1)),)
    return Loops(OpKind.CONTRACTION, tuple(dims), tuple(inputs), (output,), vector_ops)


def einsum(call: Call) -> Loops:
    """Dims are the equation's letters; letters that the output lacks are reductions."""
    left, arrow, right = call.text("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in left or not arrow or len(terms) != len(call.inputs):
        raise Unmodelled("only Einsum with letters and an explicit output is modelled")
    extents: dict[str, int] = {}
    for position, term in enumerate(terms):
        shape = call.input(position).shape
        if len(shape) != len(term):
            raise Unmodelled("an Einsum term does not fit its operand")
        for letter, extent in zip(term, shape, strict=True):
            extents[letter] = max(extents.get(letter, 1), extent)
    order = [*dict.fromkeys(right), *(letter for letter in extents if letter not in right)]
    at = {letter: i for i, letter in enumerate(order)}
    dims = tuple(Dim(letter, extents[letter], letter not in right) for letter in order)
    inputs = tuple(
        Map(
            position,
            tuple(
                axis_of(at[letter]) if extent == extents[letter] else Axis()
                for letter, extent in zip(term, call.input(position).shape, strict=True)
            ),
        )
        for position, term in enumerate(terms)
    )
    outputs = (Map(0, axes_of(*(at[letter] for letter in right))),)
    if len(terms) > 1:
        return Loops(OpKind.CONTRACTION, dims, inputs, outputs)
    if any(dim.reduction for dim in dims):
        return Loops(OpKind.REDUCTION, dims, inputs, outputs, (("add", 1.0),))
    return Loops(OpKind.MOVEMENT, dims, inputs, outputs, linear=True)


def deformable(call: Call) -> Loops:
    """DeformConv: a convolution whose taps lie where offsets say; each is mixed from four neighbours.

    The input counts as read once: where the taps lie is a matter of values.
    """
    x, w, offset, y = call.input(0), call.input(1), call.input(2), call.output()
    plain = Call("Conv", (x, w, call.optional(3)), call.outputs, call.attributes, call.version)
    loops = conv(plain)
    inputs = [whole(0, x), *(m for m in loops.inputs if m.position == 1), whole(2, offset)]
    inputs += [Map(3, m.axes) for m in loops.inputs if m.position == 2]
    if (mask := call.optional(4)) is not None and not mask.is_immediate:
        inputs.append(whole(4, mask))
    samples = y.shape[0] * x.shape[1] * math.prod(y.shape[2:]) * math.prod(w.shape[2:])
    points = math.prod(dim.extent for dim in loops.dims)
    share = 4.0 * samples / max(points, 1)
    ops = (*loops.vector_ops, ("mul", share), ("add", share))
    return Loops(loops.kind, loops.dims, tuple(inputs), loops.outputs, ops)
