"""Rows of the operators of XLA: StableHLO and HLO say the same things under names that differ little.

The readers pass StableHLO's names and flat integer attributes (`dot_general`'s batching dimensions are
``lhs_batch``); what they mean is in https://openxla.org/stablehlo/spec. Dims are named as ONNX's rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .contractions import conv
from .elementwise import pointwise
from .graph import Axis, Dim, OpKind
from .movement import concat, reshape, same_elements, slice_, transpose
from .row import Call, Loops, Map, Row, Unmodelled, axes_of, axis_of, element_dims, expected_distinct, whole

_PRIMITIVES: dict[str, tuple[tuple[str, float], ...]] = {
    **{name: ((name, 1.0),) for name in ("sqrt", "tanh", "abs", "sign", "floor", "ceil", "tan", "erf", "atan2")},
    "add": (("add", 1.0),),
    "subtract": (("sub", 1.0),),
    "multiply": (("mul", 1.0),),
    "divide": (("div", 1.0),),
    "maximum": (("max", 1.0),),
    "minimum": (("min", 1.0),),
    "power": (("pow", 1.0),),
    "remainder": (("mod", 1.0),),
    "negate": (("neg", 1.0),),
    "exponential": (("exp", 1.0),),
    "exponential_minus_one": (("exp", 1.0), ("sub", 1.0)),
    "log": (("log", 1.0),),
    "log_plus_one": (("add", 1.0), ("log", 1.0)),
    "logistic": (("sigmoid", 1.0),),
    "rsqrt": (("sqrt", 1.0), ("reciprocal", 1.0)),
    "cbrt": (("pow", 1.0),),
    "sine": (("sin", 1.0),),
    "cosine": (("cos", 1.0),),
    "round_nearest_afz": (("round", 1.0),),
    "round_nearest_even": (("round", 1.0),),
    "compare": (("compare", 1.0),),
    "select": (("select", 1.0),),
    "clamp": (("max", 1.0), ("min", 1.0)),
    "convert": (("cast", 1.0),),
    "reduce_precision": (("cast", 1.0),),
    **dict.fromkeys(
        ("and", "or", "xor", "not", "is_finite", "shift_left", "shift_right_logical",
         "shift_right_arithmetic", "popcnt", "count_leading_zeros"),
        (("logic", 1.0),),
    ),
}  # fmt: skip
_LINEAR = frozenset({"multiply", "divide", "negate", "convert"})
ELEMENTWISE = frozenset(_PRIMITIVES)


def _body(call: Call) -> tuple[tuple[str, float], ...]:
    """The vector operations of a reduction's region, per point."""
    names = call.attributes.get("body", ())
    ops = [
        op
        for name in (names if isinstance(names, tuple) else (names,))
        for op in _PRIMITIVES.get(str(name), ())
    ]
    return tuple(ops) or (("add", 1.0),)


def dot_general(call: Call) -> Loops:
    """``Y[b.., m.., n..] = sum_k A B`` over the named batching and contracting axes of both operands."""
    a, b, y = call.input(0), call.input(1), call.output()
    batch_a, batch_b = call.integers("lhs_batch") or (), call.integers("rhs_batch") or ()
    deep_a, deep_b = call.integers("lhs_contract") or (), call.integers("rhs_contract") or ()
    if len(batch_a) != len(batch_b) or len(deep_a) != len(deep_b):
        raise Unmodelled("its batching or contracting axes do not pair up")
    free_a = [i for i in range(len(a.shape)) if i not in (*batch_a, *deep_a)]
    free_b = [i for i in range(len(b.shape)) if i not in (*batch_b, *deep_b)]
    dims: list[Dim] = []
    for letter, axes, shape in (("b", batch_a, a.shape), ("m", free_a, a.shape), ("n", free_b, b.shape)):
        dims += [Dim(_numbered(letter, i), shape[axis]) for i, axis in enumerate(axes)]
    if tuple(dim.extent for dim in dims) != y.shape:
        raise Unmodelled("its result has not the shape that its axes make")
    results = len(dims)
    dims += [Dim(_numbered("k", i), a.shape[axis], reduction=True) for i, axis in enumerate(deep_a)]
    place_a = {**_places(batch_a, 0), **_places(free_a, len(batch_a)), **_places(deep_a, results)}
    first_n = len(batch_a) + len(free_a)
    place_b = {**_places(batch_b, 0), **_places(free_b, first_n), **_places(deep_b, results)}
    if any(b.shape[axis] != dims[dim].extent for axis, dim in place_b.items()):
        raise Unmodelled("the operands' common axes differ")
    inputs = (
        Map(0, axes_of(*(place_a[i] for i in range(len(a.shape))))),
        Map(1, axes_of(*(place_b[i] for i in range(len(b.shape))))),
    )
    return Loops(OpKind.CONTRACTION, tuple(dims), inputs, (Map(0, axes_of(*range(results))),))


def _numbered(letter: str, index: int) -> str:
    return letter if index == 0 else f"{letter}_{index + 1}"


def _places(axes: Sequence[int], first: int) -> dict[int, int]:
    return {axis: first + i for i, axis in enumerate(axes)}


def convolution(call: Call) -> Loops:
    """ONNX's convolution with the axes of operands and result in the order that the dimension numbers name.

    ``x_axes, w_axes, y_axes``: where batch, features and pixels (kernel: outputs, inputs, taps) stand.
    """
    orders = [call.integers(name) or () for name in ("x_axes", "w_axes", "y_axes")]
    operands = (call.input(0), call.input(1), call.output())
    if any(sorted(order) != list(range(len(o.shape))) for order, o in zip(orders, operands, strict=True)):
        raise Unmodelled("its dimension numbers do not fit its operands")
    if any(extent != 1 for extent in call.integers("lhs_dilation") or ()):
        raise Unmodelled("a convolution over a dilated input (a transposed one) has no loop nest here")
    if call.integer("batch_group_count", 1) != 1:
        raise Unmodelled("a convolution with groups of batches has no loop nest here")
    x, w, y = (
        replace(operand, shape=tuple(operand.shape[axis] for axis in order))
        for order, operand in zip(orders, operands, strict=True)
    )
    loops = conv(Call("Conv", (x, w), (y,), call.attributes, call.version))
    inputs = tuple(
        replace(m, axes=_back(m.axes, order)) for m, order in zip(loops.inputs, orders, strict=False)
    )
    return replace(
        loops,
        inputs=inputs,
        outputs=(replace(loops.outputs[0], axes=_back(loops.outputs[0].axes, orders[2])),),
    )


def _back(axes: tuple[Axis, ...], order: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(axes[order.index(axis)] for axis in range(len(axes)))


def broadcast_in_dim(call: Call) -> Loops:
    """Axis i of the operand is axis ``dims[i]`` of the result; where its extent is 1 it is repeated."""
    x, y = call.input(0), call.output()
    dims = call.integers("dims") or ()
    if len(dims) != len(x.shape) or any(not 0 <= dim < len(y.shape) for dim in dims):
        raise Unmodelled("its dimensions do not fit its operand")
    if x.elements == y.elements and list(dims) == sorted(dims):
        return reshape(call)
    axes: list[Axis] = []
    for extent, dim in zip(x.shape, dims, strict=True):
        if extent not in (1, y.shape[dim]):
            raise Unmodelled(f"extent {extent} cannot be repeated to {y.shape[dim]}")
        axes.append(axis_of(dim) if extent == y.shape[dim] else Axis())
    out = (Map(0, axes_of(*range(len(y.shape)))),)
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), (Map(0, tuple(axes)),), out, linear=True)


def reduce(call: Call) -> Loops:
    """The first half of the operands is reduced, the second half holds what it starts from."""
    x, y = call.input(0), call.output()
    reduced = call.integers("dimensions") or ()
    kept = [axis for axis in range(len(x.shape)) if axis not in reduced]
    if len(kept) != len(y.shape):
        raise Unmodelled("its result's rank does not fit the reduced axes")
    inputs = tuple(Map(p, axes_of(*range(len(x.shape)))) for p in range(max(1, len(call.inputs) // 2)))
    outputs = tuple(Map(p, axes_of(*kept)) for p, o in enumerate(call.outputs) if o is not None)
    return Loops(OpKind.REDUCTION, element_dims(x.shape, reduced), inputs, outputs, _body(call))


def reduce_window(call: Call) -> Loops:
    """Any axis may have a window: ``strides``, ``dilations`` and ``pads`` (low ends first) name every axis."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    window = call.integers("window") or (1,) * rank
    strides, dilations = call.integers("strides") or (1,) * rank, call.integers("dilations") or (1,) * rank
    pads = call.integers("pads") or (0,) * (2 * rank)
    if {rank} != {len(y.shape), len(window), len(strides), len(dilations), len(pads) // 2}:
        raise Unmodelled("its window does not fit its operand")
    dims = list(element_dims(y.shape))
    axes: list[Axis] = []
    for axis in range(rank):
        terms = [(axis, strides[axis])]
        if window[axis] > 1:
            terms.append((len(dims), dilations[axis]))
            dims.append(Dim(f"r{axis}", window[axis], reduction=True))
        axes.append(Axis(tuple(terms), -pads[axis]))
    out = (Map(0, axes_of(*range(rank))),)
    return Loops(OpKind.WINDOW, tuple(dims), (Map(0, tuple(axes)),), out, _body(call))


def pad(call: Call) -> Loops:
    """``low`` elements before, ``interior`` between: what is not the operand is never read."""
    x, y = call.input(0), call.output()
    low, interior = call.integers("low") or (), call.integers("interior") or (0,) * len(x.shape)
    if len(low) != len(x.shape) or len(y.shape) != len(x.shape):
        raise Unmodelled("its padding does not fit its operand")
    if any(interior):
        read = whole(0, x)
    else:
        read = Map(0, tuple(axis_of(i, 1, -amount) for i, amount in enumerate(low)))
    return Loops(
        OpKind.MOVEMENT, element_dims(y.shape), (read,), (Map(0, axes_of(*range(len(y.shape)))),), linear=True
    )


def _picked(call: Call) -> Loops:
    """dynamic_slice and gather: the elements of the result are read; where they lie is decided by values."""
    x, y = call.input(0), call.output()
    elements = min(x.elements, y.elements)
    sizes = call.integers("slice_sizes")
    if sizes and x.elements and call.op_type == "gather":
        row = 1
        for extent in sizes:
            row *= max(1, extent)
        elements = row * expected_distinct(x.elements // row or 1, max(1, y.elements // row))
    inputs = [whole(0, x, min(x.elements, elements))]
    inputs += [whole(p, o) for p, o in enumerate(call.inputs) if p and o is not None and not o.is_immediate]
    return Loops(
        OpKind.MOVEMENT, element_dims(y.shape), tuple(inputs), (Map(0, axes_of(*range(len(y.shape)))),)
    )


def _written_into(call: Call) -> Loops:
    """dynamic_update_slice and scatter: the operand is copied, the updates land where values say."""
    y = call.output()
    inputs = [whole(p, o) for p, o in enumerate(call.inputs) if o is not None and not o.is_immediate]
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), tuple(inputs), (whole(0, y),))


def _moved(call: Call) -> Loops:
    """copy and reverse: every element, in another order."""
    x, y = call.input(0), call.output()
    back = set(call.integers("dimensions") or ()) if call.op_type == "reverse" else set[int]()
    axes = tuple(axis_of(i, -1, extent - 1) if i in back else axis_of(i) for i, extent in enumerate(x.shape))
    return Loops(
        OpKind.MOVEMENT,
        element_dims(y.shape),
        (Map(0, axes),),
        (Map(0, axes_of(*range(len(y.shape)))),),
        linear=True,
    )


def _iota(call: Call) -> Loops:
    y = call.output()
    return Loops(OpKind.MOVEMENT, element_dims(y.shape), (), (Map(0, axes_of(*range(len(y.shape)))),))


def _divide(call: Call) -> Loops:
    """Linear in the first operand unless that is a number: ONNX's row knows."""
    return pointwise(("div", 1.0), linear=True)(replace(call, op_type="Div"))


def renamed(row: Row, **names: str) -> Row:
    """A row of ONNX's table under attributes of other names."""

    def adapted(call: Call) -> Loops:
        attributes = {names.get(key, key): value for key, value in call.attributes.items()}
        return row(replace(call, attributes=attributes))

    return adapted


ROWS: dict[str, Callable[[Call], Loops]] = {
    **{name: pointwise(*ops, linear=name in _LINEAR) for name, ops in _PRIMITIVES.items()},
    "divide": _divide,
    "dot_general": dot_general,
    "convolution": convolution,
    "broadcast_in_dim": broadcast_in_dim,
    "reduce": reduce,
    "reduce_window": reduce_window,
    "transpose": renamed(transpose, permutation="perm"),
    "concatenate": renamed(concat, dimension="axis"),
    "slice": renamed(slice_, start_indices="starts", strides="steps"),
    "pad": pad,
    "dynamic_slice": _picked,
    "gather": _picked,
    "dynamic_update_slice": _written_into,
    "scatter": _written_into,
    "copy": _moved,
    "reverse": _moved,
    "iota": _iota,
    **dict.fromkeys(("reshape", "bitcast", "bitcast_convert"), reshape),
    **dict.fromkeys(("optimization_barrier", "copy_done"), same_elements),
}
