"""Rows of the operator-type table that move elements, and views, which move none.

Dims are ``i0, i1, ...`` over the output (over the input where one operator writes several outputs). Wherever
the index map is affine the operands say so; a Concat reads each input at its offset, and indices outside an
operand are never touched. A Reshape that regroups axes is mixed radix on one side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from .graph import Axis, Dim, OpKind
from .row import (
    Call,
    Loops,
    Map,
    Operand,
    Row,
    Shape,
    Unmodelled,
    axes_of,
    axis_of,
    broadcast,
    element_dims,
    expected_distinct,
    normal_axis,
    whole,
)


def _moved(
    dims: tuple[Dim, ...], inputs: Sequence[Map], outputs: Sequence[Map], linear: bool = True
) -> Loops:
    return Loops(OpKind.MOVEMENT, dims, tuple(inputs), tuple(outputs), linear=linear)


def _updated(dims: tuple[Dim, ...], inputs: Sequence[Map], output: Map) -> Loops:
    """A state that is changed where it lies: its old elements are neither read nor written."""
    return Loops(OpKind.MOVEMENT, dims, tuple(inputs), (output,), updates=True)


def _identity(rank: int) -> tuple[Axis, ...]:
    return axes_of(*range(rank))


def same_elements(call: Call) -> Loops:
    """Identity and Dropout in inference: a view of the first input. A mask output costs nothing here."""
    rank = len(call.input(0).shape)
    dims = element_dims(call.input(0).shape)
    outputs = [Map(0, _identity(rank))]
    outputs += [whole(p, operand, 0) for p, operand in enumerate(call.outputs) if p and operand is not None]
    return Loops(OpKind.VIEW, dims, (Map(0, _identity(rank)),), tuple(outputs), linear=True)


def reshape(call: Call) -> Loops:
    """Reshape, Squeeze, Unsqueeze, Flatten: the same elements under other axes."""
    x, y = call.input(0), call.output()
    if x.elements != y.elements:
        raise Unmodelled(f"{x.elements} elements cannot become {y.elements}")
    first, last, factors = _regrouped(x.shape, y.shape)
    if factors is None:
        outputs = (Map(0, _identity(len(y.shape))),)
        return Loops(OpKind.VIEW, element_dims(y.shape), (whole(0, x),), outputs, linear=True)
    extents = (*x.shape[:first], *factors, *x.shape[len(x.shape) - last :])
    inputs = (Map(0, _grouped(x.shape, first, last, factors)),)
    outputs = (Map(0, _grouped(y.shape, first, last, factors)),)
    return Loops(OpKind.VIEW, element_dims(extents), inputs, outputs, linear=True)


def _regrouped(a: Shape, b: Shape) -> tuple[int, int, Shape | None]:
    """How many first and last axes agree, and the common factors of those in between."""
    short = min(len(a), len(b))
    first = next((i for i in range(short) if a[i] != b[i]), short)
    rest = short - first
    last = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    return first, last, common_factors(a[first : len(a) - last], b[first : len(b) - last])


def common_factors(a: Shape, b: Shape) -> Shape | None:
    """Extents that both shapes are groups of, outermost first, without ones; None where there are none.

    Cut points of a shape are the products of its last axes. Both shapes are groups of the factors between
    the union of all cut points, exactly where each cut point divides the next.
    """
    if math.prod(a) != math.prod(b) or 0 in a:
        return None
    cuts = sorted({*_cuts(a), *_cuts(b)})
    if any(large % small for small, large in pairwise(cuts)):
        return None
    return tuple(large // small for small, large in reversed(list(pairwise(cuts))))


def _cuts(shape: Shape) -> set[int]:
    cuts, product = {1}, 1
    for extent in reversed(shape):
        product *= extent
        cuts.add(product)
    return cuts


def _grouped(shape: Shape, first: int, last: int, factors: Shape) -> tuple[Axis, ...]:
    """Per axis of `shape` the dims that it groups: its own, or some of the factors in mixed radix."""
    axes = list(axes_of(*range(first)))
    at = 0
    for extent in shape[first : len(shape) - last]:
        begin, product = at, 1
        while product < extent:
            product *= factors[at]
            at += 1
        terms: list[tuple[int, int]] = []
        for dim in range(begin, at):
            product //= factors[dim]
            terms.append((first + dim, product))
        axes.append(Axis(tuple(terms)))
    after = first + len(factors)
    return (*axes, *axes_of(*range(after, after + last)))


def transpose(call: Call) -> Loops:
    """``Y[i0, i1, ..] = X[.. permuted ..]``; without perm the axes are reversed."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    perm = call.integers("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise Unmodelled(f"perm {perm} is no permutation of {rank} axes")
    place = {axis: dim for dim, axis in enumerate(perm)}
    inputs = [Map(0, tuple(axis_of(place[axis]) for axis in range(rank)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(rank))])


def expand(call: Call) -> Loops:
    """Expand: broadcasting written out."""
    x, y = call.input(0), call.output()
    return _moved(
        element_dims(y.shape), [Map(0, broadcast(x.shape, y.shape))], [Map(0, _identity(len(y.shape)))]
    )


def concat(call: Call) -> Loops:
    """Each input at its offset along the axis; a cache that comes in and goes out is appended to where it lies."""
    y = call.output()
    rank = len(y.shape)
    axis = normal_axis(call.integer("axis", 1 if call.version < 4 else 0), rank)
    if _is_cache(call, rank):
        return _appended(call, rank, axis)
    inputs: list[Map] = []
    offset = 0
    for position in range(len(call.inputs)):
        x = call.input(position)
        if len(x.shape) != rank:
            raise Unmodelled("the inputs' ranks differ")
        if x.elements:
            inputs.append(Map(position, _shifted(rank, axis, -offset)))
        offset += x.shape[axis]
    if offset != y.shape[axis]:
        raise Unmodelled("the inputs do not add up to the output")
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(rank))], linear=False)


def _is_cache(call: Call, rank: int) -> bool:
    """Whether rows are added to a state of the model: keys or values of at least batch, sequence and depth."""
    if len(call.inputs) != 2 or rank < 3:
        return False
    past, new = call.input(0), call.input(1)
    return past.state and call.output().state and not (new.state or new.constant) and len(past.shape) == rank


def _appended(call: Call, rank: int, axis: int) -> Loops:
    """An append in place: only the new rows move (COST-MODEL 1)."""
    past, new, y = call.input(0), call.input(1), call.output()
    if past.shape[axis] + new.shape[axis] != y.shape[axis]:
        raise Unmodelled("the inputs do not add up to the output")
    inputs = [whole(0, past, 0), Map(1, _identity(rank))]
    return _updated(element_dims(new.shape), inputs, Map(0, _shifted(rank, axis, past.shape[axis])))


def split(call: Call) -> Loops:
    """One loop over the input; each output is written at its offset along the axis."""
    x = call.input(0)
    rank = len(x.shape)
    axis = normal_axis(call.integer("axis", 0), rank)
    extent, parts = x.shape[axis], len(call.outputs)
    equal = -(-extent // parts)
    sizes = call.integers("split", 1) or tuple(min(equal, extent - equal * i) for i in range(parts))
    if len(sizes) != parts or sum(sizes) != extent:
        raise Unmodelled("the outputs do not add up to the input")
    outputs: list[Map] = []
    offset = 0
    for position, size in enumerate(sizes):
        if call.outputs[position] is not None:
            outputs.append(Map(position, _shifted(rank, axis, -offset)))
        offset += size
    return _moved(element_dims(x.shape), [Map(0, _identity(rank))], outputs)


def _shifted(rank: int, axis: int, offset: int) -> tuple[Axis, ...]:
    return tuple(axis_of(i, 1, offset if i == axis else 0) for i in range(rank))


def slice_(call: Call) -> Loops:
    """``Y[.., i, ..] = X[.., start + i * step, ..]``; bounds from attributes (opset 9) or constant inputs."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    starts = call.integers("starts", 1)
    if starts is None:
        raise Unmodelled("Slice without starts")
    axes = call.integers("axes", 3) or tuple(range(len(starts)))
    steps = call.integers("steps", 4) or (1,) * len(starts)
    begin, stride = [0] * rank, [1] * rank
    for start, axis, step in zip(starts, axes, steps, strict=False):
        at = normal_axis(axis, rank)
        extent = x.shape[at]
        first = start + extent if start < 0 else start
        begin[at] = max(0, min(first, extent if step > 0 else extent - 1))
        stride[at] = step
    inputs = [Map(0, tuple(axis_of(i, stride[i], begin[i]) for i in range(rank)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(rank))])


def pad(call: Call) -> Loops:
    """The input inside its border; what is written into the border is never read."""
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    name = "paddings" if "paddings" in call.attributes else "pads"
    pads = call.integers(name, 1)
    axes = call.integers("axes", 3) or tuple(range(rank))
    if pads is None or len(pads) != 2 * len(axes):
        raise Unmodelled("pads do not fit the input")
    before = [0] * rank
    for axis, amount in zip(axes, pads, strict=False):
        before[normal_axis(axis, rank)] = amount
    inputs = [Map(0, tuple(axis_of(i, 1, -before[i]) for i in range(rank)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(rank))])


def tile(call: Call) -> Loops:
    """Repeats: a repeated axis is a dim ``t`` of repetitions and one of the input's elements."""
    x, y = call.input(0), call.output()
    if len(x.shape) != len(y.shape):
        raise Unmodelled("Tile keeps the rank")
    dims: list[Dim] = []
    x_axes: list[Axis] = []
    y_axes: list[Axis] = []
    for axis, (extent, repeated) in enumerate(zip(x.shape, y.shape, strict=True)):
        if extent and repeated % extent:
            raise Unmodelled("the repeats are not whole")
        terms: list[tuple[int, int]] = []
        if repeated != extent:
            terms.append((len(dims), extent))
            dims.append(Dim(f"t{axis}", repeated // max(extent, 1)))
        if repeated == extent or extent != 1:
            terms.append((len(dims), 1))
            dims.append(Dim(f"i{axis}", extent))
            x_axes.append(axis_of(len(dims) - 1))
        else:
            x_axes.append(Axis())
        y_axes.append(Axis(tuple(terms)))
    return _moved(tuple(dims), [Map(0, tuple(x_axes))], [Map(0, tuple(y_axes))])


def gather(call: Call) -> Loops:
    """Rows picked by index: constant indices are known, others count the expected number of distinct rows."""
    x, indices, y = call.input(0), call.input(1), call.output()
    rank = len(x.shape)
    axis = normal_axis(call.integer("axis", 0), rank)
    count = len(indices.shape)
    if len(y.shape) != rank - 1 + count:
        raise Unmodelled("the output's rank does not fit")
    picked = _picked(indices, x.shape[axis], tuple(range(axis, axis + count)))
    after = range(axis + count, len(y.shape))
    inputs = [Map(0, (*axes_of(*range(axis)), picked, *axes_of(*after)))]
    if not indices.constant:
        inputs.append(Map(1, axes_of(*range(axis, axis + count))))
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])


def _picked(indices: Operand, extent: int, dims: tuple[int, ...]) -> Axis:
    """The gathered axis: affine where constant indices are evenly spaced, else addressed by value."""
    values = indices.values
    if values is not None and len(indices.shape) <= 1 and values:
        whole_numbers = [int(value) + extent if value < 0 else int(value) for value in values]
        steps = {b - a for a, b in pairwise(whole_numbers)}
        if not indices.shape:
            return Axis((), whole_numbers[0])
        if len(steps) <= 1:
            return axis_of(dims[0], steps.pop() if steps else 1, whole_numbers[0])
    distinct = indices.distinct
    if distinct is None:
        distinct = expected_distinct(extent, indices.elements)
    if indices.elements == 1 and not dims:
        return Axis((), 0, 1)
    return Axis(tuple((dim, 1) for dim in dims), 0, distinct)


def gather_tuples(call: Call) -> Loops:
    """GatherND: index tuples pick slices; expected distinct slices are read (of experts, those that are hit)."""
    x, indices, y = call.input(0), call.input(1), call.output()
    if not indices.shape:
        raise Unmodelled("GatherND needs index tuples")
    batch, width = call.integer("batch_dims", 0), indices.shape[-1]
    rows = math.prod(x.shape[batch : batch + width])
    picks = math.prod(indices.shape[batch:-1])
    points = len(indices.shape) - 1
    if width == 1 and not batch and len(y.shape) == points + len(x.shape) - 1:
        # One index a tuple is what Gather does on the first axis: the slices keep their axes.
        row = Axis(tuple((dim, 1) for dim in range(points)), 0, expected_distinct(rows, picks))
        inputs = [Map(0, (row, *axes_of(*range(points, len(y.shape)))))]
        if not indices.constant:
            inputs.append(Map(1, (*axes_of(*range(points)), Axis())))
        return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])
    slices = math.prod(x.shape[:batch]) * math.prod(x.shape[batch + width :])
    inputs = [whole(0, x, expected_distinct(rows, picks) * slices)]
    if not indices.constant:
        inputs.append(whole(1, indices))
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])


def gather_elements(call: Call) -> Loops:
    """GatherElements: one element of the data per index, expected distinct ones read."""
    x, indices, y = call.input(0), call.input(1), call.output()
    axis = normal_axis(call.integer("axis", 0), len(x.shape))
    lines = max(1, indices.elements // max(1, indices.shape[axis]))
    read = lines * expected_distinct(x.shape[axis], indices.shape[axis])
    inputs = [whole(0, x, min(read, x.elements)), Map(1, _identity(len(y.shape)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])


def scatter(call: Call) -> Loops:
    """ScatterND and ScatterElements: the data is copied, the updates land where the indices say.

    A state of the model (a paged cache) is not copied: only the updates move.
    """
    x, y = call.input(0), call.output()
    rank = len(x.shape)
    small = [whole(p, operand) for p in (1, 2) if not (operand := call.input(p)).is_immediate]
    if x.state and y.state:
        updates = call.input(2)
        moved = [m for m in small if m.position == 1]
        inputs = [whole(0, x, 0), *moved, Map(2, _identity(len(updates.shape)))]
        return _updated(element_dims(updates.shape), inputs, whole(0, y, min(y.elements, updates.elements)))
    return _moved(
        element_dims(x.shape), [Map(0, _identity(rank)), *small], [Map(0, _identity(rank))], linear=False
    )


def one_hot(call: Call) -> Loops:
    """OneHot: an output element compares its place on the axis with the index."""
    indices, y = call.input(0), call.output()
    axis = normal_axis(call.integer("axis", -1), len(y.shape))
    if len(y.shape) != len(indices.shape) + 1:
        raise Unmodelled("the output's rank does not fit")
    inputs = [Map(0, axes_of(*(i for i in range(len(y.shape)) if i != axis)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))], linear=False)


def masked_copy(call: Call) -> Loops:
    """Trilu and the like: a copy of the first input."""
    rank = len(call.input(0).shape)
    return _moved(element_dims(call.input(0).shape), [Map(0, _identity(rank))], [Map(0, _identity(rank))])


def reverse_sequence(call: Call) -> Loops:
    """ReverseSequence: every element moves, by lengths that are values."""
    x, y = call.input(0), call.output()
    inputs = [whole(p, operand) for p, operand in enumerate(call.inputs) if operand is not None]
    return _moved(element_dims(x.shape), inputs, [Map(0, _identity(len(y.shape)))])


def depth_to_space(call: Call) -> Loops:
    """``Y[n, c, (h, d), (w, e)] = X[n, (d, e, c), h, w]``; CRD mode groups channels as (c, d, e)."""
    x = call.input(0)
    n, channels, h, w = _four(x.shape)
    block = call.integer("blocksize", 1)
    depth = channels // (block * block)
    dims = (Dim("n", n), Dim("c", depth), Dim("h", h), Dim("d", block), Dim("w", w), Dim("e", block))
    if call.text("mode", "DCR") == "CRD":
        channel = Axis(((1, block * block), (3, block), (5, 1)))
    else:
        channel = Axis(((3, block * depth), (5, depth), (1, 1)))
    fine = (axis_of(0), axis_of(1), Axis(((2, block), (3, 1))), Axis(((4, block), (5, 1))))
    return _moved(dims, [Map(0, (axis_of(0), channel, axis_of(2), axis_of(4)))], [Map(0, fine)])


def space_to_depth(call: Call) -> Loops:
    """``Y[n, (d, e, c), h, w] = X[n, c, (h, d), (w, e)]``."""
    n, depth, height, width = _four(call.input(0).shape)
    block = call.integer("blocksize", 1)
    high, wide = Dim("h", height // block), Dim("w", width // block)
    dims = (Dim("n", n), Dim("c", depth), high, Dim("d", block), wide, Dim("e", block))
    channel = Axis(((3, block * depth), (5, depth), (1, 1)))
    fine = (axis_of(0), axis_of(1), Axis(((2, block), (3, 1))), Axis(((4, block), (5, 1))))
    return _moved(dims, [Map(0, fine)], [Map(0, (axis_of(0), channel, axis_of(2), axis_of(4)))])


def _four(shape: Shape) -> tuple[int, int, int, int]:
    if len(shape) != 4:
        raise Unmodelled("four axes were expected")
    return shape[0], shape[1], shape[2], shape[3]


def filled(*vector_ops: tuple[str, float]) -> Row:
    """A row for operators that write a tensor and read nothing of size (Range, ConstantOfShape)."""

    def row(call: Call) -> Loops:
        y = call.output()
        outputs = (Map(0, _identity(len(y.shape))),)
        return Loops(OpKind.MOVEMENT, element_dims(y.shape), (), outputs, vector_ops)

    return row


def tensor_scatter(call: Call) -> Loops:
    """TensorScatter: a cache is overwritten in place where the indices say; only the new rows move."""
    cache, update, y = call.input(0), call.input(1), call.output()
    rank = len(update.shape)
    inputs = [whole(0, cache, 0), Map(1, _identity(rank))]
    if (indices := call.optional(2)) is not None and not indices.is_immediate:
        inputs.append(whole(2, indices))
    return _updated(element_dims(update.shape), inputs, whole(0, y, update.elements))


def like(*vector_ops: tuple[str, float]) -> Row:
    """A row for operators that need only the shape of their input (RandomNormalLike)."""

    def row(call: Call) -> Loops:
        loops = filled(*vector_ops)(call)
        inputs = tuple(whole(p, o, 0) for p, o in enumerate(call.inputs) if o is not None)
        return Loops(loops.kind, loops.dims, inputs, loops.outputs, loops.vector_ops)

    return row


def centre(call: Call) -> Loops:
    """CenterCropPad: each axis cut or padded on both sides alike."""
    x, y = call.input(0), call.output()
    if len(x.shape) != len(y.shape):
        raise Unmodelled("CenterCropPad keeps the rank")
    # Cut: the first of what stays; padded: how far the input starts inside, which is never read before.
    begin = [(a - b) // 2 if a >= b else -((b - a) // 2) for a, b in zip(x.shape, y.shape, strict=True)]
    inputs = [Map(0, tuple(axis_of(i, 1, offset) for i, offset in enumerate(begin)))]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])


def features(call: Call) -> Loops:
    """ArrayFeatureExtractor: picked columns of the last axis."""
    x, indices, y = call.input(0), call.input(1), call.output()
    lead = max(1, math.prod(x.shape[:-1]))
    read = lead * expected_distinct(x.shape[-1], indices.elements)
    inputs = [whole(0, x, min(read, x.elements)), whole(1, indices)]
    return _moved(element_dims(y.shape), inputs, [Map(0, _identity(len(y.shape)))])


def labelled(call: Call) -> Loops:
    """ZipMap: every score goes into a map under its label; the map itself has no size here."""
    x = call.input(0)
    return _moved(element_dims(x.shape), [Map(0, _identity(len(x.shape)))], [], linear=False)
