"""What a row of the operator-type table gets and gives: a call with its operands, and its loops.

Knows index maps (`graph.Axis`) and how ONNX writes attributes and operands; knows no single op type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .band import Band
from .graph import Axis, Dim, OpKind
from .raw import Attribute

Shape = tuple[int, ...]
VectorOps = tuple[tuple[str, float], ...]


class Unmodelled(Exception):
    """This call has no loop nest here; the text says why. The operator becomes opaque."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One input or output of a call with a known shape.

    Attributes
    ----------
    values : of small constants, flat.
    state : as an input, a graph input (or a view of one) that nothing else reads; as an output, a graph output (or
        what becomes one by views). What comes in and goes out so may be updated where it lies.
    """

    name: str
    shape: Shape
    dtype: str = ""
    constant: bool = False
    values: tuple[int | float, ...] | None = None
    distinct: int | None = None
    state: bool = False

    @property
    def elements(self) -> int:
        """Number of elements (Python integer, exact)."""
        return math.prod(self.shape)

    @property
    def is_immediate(self) -> bool:
        """A constant of one element: compiled into the kernel, never read from memory."""
        return self.constant and self.elements == 1


@dataclass(frozen=True, slots=True)
class Call:
    """One node with its operands; None where an optional one is left out or an output has no known shape.

    ``version`` is the opset version of the node's domain.
    """

    op_type: str
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Attribute]
    version: int = 23

    def input(self, position: int) -> Operand:
        """A required input. Raises `Unmodelled` where it is left out."""
        operand = self.optional(position)
        if operand is None:
            raise Unmodelled(f"input {position} is missing")
        return operand

    def optional(self, position: int) -> Operand | None:
        """An optional input, or None."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int = 0) -> Operand:
        """A required output. Raises `Unmodelled` where its shape is not known."""
        operand = self.outputs[position] if position < len(self.outputs) else None
        if operand is None:
            raise Unmodelled("the shape of its output could not be inferred")
        return operand

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return int(value) if isinstance(value, (int, float)) else default

    def text(self, name: str, default: str = "") -> str:
        """A text attribute."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else default

    def integers(self, name: str, position: int | None = None) -> tuple[int, ...] | None:
        """A list of integers: the attribute, or the constant input at `position` of newer opsets.

        Returns None where neither is there. Raises `Unmodelled` where the input is not a constant.
        """
        value = self.attributes.get(name)
        if isinstance(value, (int, float)):
            return (int(value),)
        if isinstance(value, tuple):
            return tuple(int(item) for item in value)
        operand = None if position is None else self.optional(position)
        if operand is None:
            return None
        if operand.values is None:
            raise Unmodelled(f"{name} is not a constant")
        return tuple(int(item) for item in operand.values)


@dataclass(frozen=True, slots=True)
class Map:
    """How one operand of a call is addressed; see `graph.Access`. ``position``: among inputs or outputs."""

    position: int
    axes: tuple[Axis, ...] = ()
    whole: bool = False
    addressed: int | None = None


@dataclass(frozen=True, slots=True)
class Loops:
    """The loop nest of one call; see `graph.Operator`."""

    kind: OpKind
    dims: tuple[Dim, ...]
    inputs: tuple[Map, ...]
    outputs: tuple[Map, ...]
    vector_ops: VectorOps = ()
    online: bool = False
    linear: bool = False
    band: Band | None = None
    updates: bool = False


Row = Callable[[Call], Loops]


@lru_cache(maxsize=4096)
def axis_of(dim: int, coefficient: int = 1, offset: int = 0) -> Axis:
    """The axis that one dim addresses."""
    return Axis(((dim, coefficient),), offset)


def axes_of(*dims: int) -> tuple[Axis, ...]:
    """One plain axis per dim."""
    return tuple(axis_of(dim) for dim in dims)


def element_dims(shape: Sequence[int], reduced: Sequence[int] = ()) -> tuple[Dim, ...]:
    """Dims i0, i1, ... over `shape`; those in `reduced` are reductions."""
    return tuple(Dim(f"i{i}", extent, i in reduced) for i, extent in enumerate(shape))


def broadcast(shape: Shape, over: Shape) -> tuple[Axis, ...]:
    """Axes of an operand of `shape` in a nest over the dims of `over`, aligned at the last axis.

    Raises
    ------
    Unmodelled : the shapes do not broadcast.
    """
    first = len(over) - len(shape)
    if first < 0:
        raise Unmodelled(f"operand {_shape(shape)} has more axes than the result {_shape(over)}")
    out: list[Axis] = []
    for axis, extent in enumerate(shape):
        if extent == over[first + axis]:
            out.append(axis_of(first + axis))
        elif extent == 1:
            out.append(Axis())
        else:
            raise Unmodelled(f"operand {_shape(shape)} does not broadcast to {_shape(over)}")
    return tuple(out)


def normal_axis(axis: int, rank: int) -> int:
    """A possibly negative axis as 0 <= axis < rank (rank itself allowed, as Flatten uses it)."""
    normal = axis + rank if axis < 0 else axis
    if not 0 <= normal <= rank:
        raise Unmodelled(f"axis {axis} is outside rank {rank}")
    return normal


def whole(position: int, operand: Operand, addressed: int | None = None) -> Map:
    """An operand whose index map is not expressible: `addressed` elements (default all) once."""
    return Map(position, whole=True, addressed=operand.elements if addressed is None else addressed)


def expected_distinct(rows: int, picks: int) -> int:
    """Expected number of distinct rows among `picks` uniform picks from `rows`, rounded.

    ``rows (1 - (1 - 1/rows)^picks)``, the occupancy problem (Feller, vol. 1, IV.2).
    """
    if rows <= 1 or picks <= 1:
        return min(rows, picks)
    return max(1, min(rows, picks, round(-rows * math.expm1(picks * math.log1p(-1.0 / rows)))))


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"
