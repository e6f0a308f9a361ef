"""Rows of the operator-type table with windows and without weights: pooling, LRN, Resize.

Dims as for convolutions: ``n``, ``c``, output pixels ``p, q, u``, window taps ``r, s, t`` (reductions).
"""

from __future__ import annotations

import math

from .contractions import window_axes
from .graph import Axis, Dim, OpKind
from .row import Call, Loops, Map, Row, Unmodelled, axes_of, axis_of, element_dims, whole

_PIXELS = ("p", "q", "u")
_TAPS = ("r", "s", "t")


def pool(primitive: str) -> Row:
    """A row for MaxPool, AveragePool, LpPool: one operation per point of the window."""

    def row(call: Call) -> Loops:
        x, y = call.input(0), call.output()
        kernel = call.integers("kernel_shape") or ()
        rank = len(kernel)
        if not 1 <= rank <= 3 or len(x.shape) != rank + 2 or len(y.shape) != rank + 2:
            raise Unmodelled("pooling over 1, 2 or 3 axes was expected")
        dims = [Dim("n", x.shape[0]), Dim("c", x.shape[1])]
        dims += [Dim(_PIXELS[i], y.shape[2 + i]) for i in range(rank)]
        dims += [Dim(_TAPS[i], kernel[i], reduction=True) for i in range(rank)]
        pixels, taps = range(2, 2 + rank), range(2 + rank, 2 + 2 * rank)
        windows = window_axes(call, x.shape[2:], kernel, y.shape[2:], pixels, taps)
        inputs = (Map(0, (axis_of(0), axis_of(1), *windows)),)
        y_axes = axes_of(0, 1, *pixels)
        outputs = tuple(Map(p, y_axes) for p, operand in enumerate(call.outputs) if operand is not None)
        ops = ((primitive, 1.0),)
        if primitive == "add":
            ops += (("mul", 1.0 / math.prod(kernel)),)
        return Loops(OpKind.WINDOW, tuple(dims), inputs, outputs, ops)

    return row


def lrn(call: Call) -> Loops:
    """Local response normalisation: a window of `size` channels around each element."""
    x = call.input(0)
    size = call.integer("size", 1)
    if len(x.shape) < 2 or size < 1:
        raise Unmodelled("LRN needs channels and a window")
    dims = (*element_dims(x.shape), Dim("r", size, reduction=True))
    rank = len(x.shape)
    channel = Axis(((1, 1), (rank, 1)), -((size - 1) // 2))
    inputs = (Map(0, (axis_of(0), channel, *axes_of(*range(2, rank)))),)
    ops = (("mul", 1.0), ("add", 1.0), ("pow", 1.0 / size), ("div", 1.0 / size))
    return Loops(OpKind.WINDOW, dims, inputs, (Map(0, axes_of(*range(rank))),), ops)


def resize(call: Call) -> Loops:
    """Resize and Upsample. Nearest by whole factors is mixed radix; else the input is read whole, once."""
    for operand in call.inputs[1:]:
        if operand is not None and operand.values and not all(value > 0 for value in operand.values):
            raise Unmodelled(f"its scales or sizes {list(operand.values)} are no positive numbers")
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    if len(y.shape) != rank:
        raise Unmodelled("Resize keeps the rank")
    factors = [b // a if a and b % a == 0 else 0 for a, b in zip(x.shape, y.shape, strict=True)]
    if call.text("mode", "nearest") != "nearest" or not all(factors):
        taps = 2.0 ** sum(a != b for a, b in zip(x.shape, y.shape, strict=True))
        ops = (("mul", taps), ("add", max(taps - 1.0, 1.0)))
        outputs = (Map(0, axes_of(*range(rank))),)
        return Loops(OpKind.WINDOW, element_dims(y.shape), (whole(0, x),), outputs, ops)
    dims: list[Dim] = []
    x_axes: list[Axis] = []
    y_axes: list[Axis] = []
    for axis, factor in enumerate(factors):
        at = len(dims)
        dims.append(Dim(f"i{axis}", x.shape[axis]))
        x_axes.append(axis_of(at))
        if factor == 1:
            y_axes.append(axis_of(at))
        else:
            dims.append(Dim(f"t{axis}", factor))
            y_axes.append(Axis(((at, factor), (at + 1, 1))))
    return Loops(
        OpKind.MOVEMENT, tuple(dims), (Map(0, tuple(x_axes)),), (Map(0, tuple(y_axes)),), linear=True
    )


def grid_sample(call: Call) -> Loops:
    """GridSample: each output pixel mixes the neighbours of a point that the grid names; the input is read once.

    Bilinear takes ``2^axes`` neighbours, bicubic ``4^axes``, nearest one.
    """
    x, grid, y = call.input(0), call.input(1), call.output()
    rank = len(y.shape)
    axes = rank - 2
    if axes not in (2, 3) or len(grid.shape) != rank:
        raise Unmodelled("GridSample over 2 or 3 axes was expected")
    mode = call.text("mode", "linear")
    taps = 1.0 if mode == "nearest" else 4.0**axes if "cubic" in mode else 2.0**axes
    dims = (*element_dims(y.shape), Dim("x", axes, reduction=True))
    place = (axis_of(0), *axes_of(*range(2, rank)), axis_of(rank))
    ops = (("mul", taps / axes), ("add", taps / axes))
    outputs = (Map(0, axes_of(*range(rank))),)
    return Loops(OpKind.WINDOW, dims, (whole(0, x), Map(1, place)), outputs, ops)


def roi(taps: float) -> Row:
    """A row for RoiAlign and MaxRoiPool: per region, channel and output pixel, `taps` values of the input.

    The input counts as read once: where the regions lie is a matter of values.
    """

    def row(call: Call) -> Loops:
        y = call.output()
        ratio = call.integer("sampling_ratio", 0)
        count = taps * max(1, ratio * ratio)
        inputs = tuple(whole(p, o) for p, o in enumerate(call.inputs) if o is not None)
        outputs = (Map(0, axes_of(*range(len(y.shape)))),)
        return Loops(OpKind.WINDOW, element_dims(y.shape), inputs, outputs, (("mul", count), ("add", count)))

    return row


def columns_to_image(call: Call) -> Loops:
    """Col2Im and MaxUnpool: every element of the input is added to, or put at, its place of the output."""
    x, y = call.input(0), call.output()
    inputs = [Map(0, axes_of(*range(len(x.shape))))]
    inputs += [whole(p, o) for p, o in enumerate(call.inputs) if p and o is not None and not o.constant]
    return Loops(OpKind.WINDOW, element_dims(x.shape), tuple(inputs), (whole(0, y),), (("add", 1.0),))


def fourier(call: Call) -> Loops:
    """DFT and STFT: ``5 N log2 N`` operations per transform of N points (Cooley and Tukey 1965), all axes else outer.

    Dims are those of the input (of the output for frames, which overlap); the transformed axis is a reduction.
    """
    x, y = call.input(0), call.output()
    if call.op_type == "STFT":
        size = 2 * (y.shape[2] - 1) if call.integer("onesided", 1) else y.shape[2]
        dims = (Dim("n", y.shape[0]), Dim("p", y.shape[1]), Dim("r", y.shape[2], reduction=True), Dim("z", 2))
        outputs = (Map(0, axes_of(0, 1, 2, 3)),)
        inputs = [whole(0, x)]
        points = y.shape[2] * 2
    else:
        axis = call.integer("axis", -2 if call.version >= 20 else 1)
        axis = axis + len(x.shape) if axis < 0 else axis
        size = x.shape[axis]
        dims = element_dims(x.shape, [axis])
        outputs = (whole(0, y),)
        inputs = [Map(0, axes_of(*range(len(x.shape))))]
        points = size * x.shape[-1]
    count = 5.0 * size * math.log2(max(size, 2)) / max(points, 1)
    return Loops(OpKind.REDUCTION, dims, tuple(inputs), outputs, (("mul", count / 2), ("add", count / 2)))
