"""Loop nests written as equations: ``b m h.g.k, b n h.k -> b h.g m n`` (notation of einops).

What one node of a file does in several nests (attention) is written out at reading into parts, whose loops
the reader states in this notation; the row here turns it back into index maps. Knows text, dims and axes;
knows no op type. Both ends of the notation live in this file.

Operands are separated by ``,``; axes by spaces. An axis is letters joined by ``.``, outermost first (mixed
radix, as a head split makes it), possibly after an offset: ``4096+h.k``. ``_`` is an axis at index 0. ``*`` is
an operand without an index map, read or written whole once; ``*7`` one of which seven elements are touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .band import ENDLESS, Band
from .graph import Axis, Dim, OpKind
from .row import Call, Loops, Map, Operand, Unmodelled, VectorOps, whole

LOOPS = "loops"  # the attribute that holds the equation; no op type of ONNX has one of that name
BAND = "band"  # nor of this one, which any part may have


@dataclass(frozen=True, slots=True)
class Equation:
    """One nest in words.

    Attributes
    ----------
    text : operands, ``->``, results.
    extents : per letter its extent; the order is that of the dims.
    reduced : letters that are reductions although a result has them (a statistic, a recurrence).
    ops : vector operations per point.
    band : queries, keys, offset and, of a sliding one, window: what a mask leaves (`banded`).
    """

    text: str
    extents: Mapping[str, int]
    kind: OpKind = OpKind.CONTRACTION
    reduced: str = ""
    ops: VectorOps = ()
    band: str = ""

    def attributes(self) -> dict[str, str]:
        """As attributes of a node."""
        written = {
            LOOPS: self.text,
            "extents": " ".join(f"{letter}={extent}" for letter, extent in self.extents.items()),
            "kind": self.kind.value,
            "reduced": self.reduced,
            "ops": " ".join(f"{name}={count!r}" for name, count in self.ops),
            BAND: self.band,
        }
        return {key: value for key, value in written.items() if value}


def stated(call: Call) -> Loops:
    """The loops that the node's attributes state; see `Equation`."""
    extents = {letter: int(extent) for letter, extent in _pairs(call.text("extents"))}
    left, _, right = call.text(LOOPS).partition("->")
    at = {letter: index for index, letter in enumerate(extents)}
    try:
        outputs = _maps(right, call.outputs, at, extents)
        inputs = _maps(left, call.inputs, at, extents)
        kind = OpKind(call.text("kind"))
    except KeyError as error:
        raise Unmodelled(f"its equation has no extent for {error}") from error
    kept = {dim for m in outputs for axis in m.axes for dim, _ in axis.terms}
    reduced = call.text("reduced")
    dims = tuple(
        Dim(letter, extent, at[letter] not in kept or letter in reduced) for letter, extent in extents.items()
    )
    return Loops(
        kind,
        dims,
        inputs,
        outputs,
        tuple((name, float(count)) for name, count in _pairs(call.text("ops"))),
        linear=kind is OpKind.MOVEMENT,
        updates=kind is OpKind.MOVEMENT and any(m.addressed == 0 for m in inputs),
    )


def band_text(band: Band, names: Sequence[str]) -> str:
    """A band as `banded` reads it; `names`: of all dims."""
    window = "" if band.window == ENDLESS else f" {band.window}"
    return f"{names[band.q]} {names[band.k]} {band.offset}{window}"


def banded(loops: Loops, text: str, call: Call) -> Loops:
    """The loops with the band that `text` states: ``m n 5`` or ``m n 5 4``; none where it leaves all or nothing.

    Raises
    ------
    Unmodelled : it is no band, or an operand has one of its dims otherwise than on an axis of its own.
    """
    words = text.split()
    at = {dim.name: i for i, dim in enumerate(loops.dims)}
    if len(words) not in (3, 4) or words[0] == words[1] or not {words[0], words[1]} <= at.keys():
        raise Unmodelled(f"{text!r} is no band over its dims")
    try:
        offset, *window = map(int, words[2:])
    except ValueError as error:
        raise Unmodelled(f"{text!r} is no band over its dims") from error
    q, k = at[words[0]], at[words[1]]
    band = Band(q, k, offset, *window)
    queries, keys = loops.dims[q].extent, loops.dims[k].extent
    if abs(offset) > ENDLESS or not 0 < band.window <= ENDLESS or not queries or not keys:
        raise Unmodelled(f"{text!r} is no band over its dims")
    for maps, operands in ((loops.inputs, call.inputs), (loops.outputs, call.outputs)):
        for m in maps:
            operand = operands[m.position]
            for axis, size in zip(m.axes, operand.shape if operand else (), strict=False):
                found = [dim for dim, _ in axis.terms if dim in (q, k)]
                last = axis.offset + sum(c * (loops.dims[d].extent - 1) for d, c in axis.terms)
                if found and (len(axis.terms) > 1 or axis.distinct is not None or not 0 <= last < size):
                    raise Unmodelled(
                        f"an operand does not have the dims of its band {text!r} on axes of their own"
                    )
    points = band.points(queries, keys)
    return loops if points in (0, queries * keys) else replace(loops, band=band)


def _pairs(text: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for item in text.split():
        name, equals, value = item.partition("=")
        if not equals:
            raise Unmodelled(f"{item!r} is not name=number")
        out.append((name, value))
    return out


def _maps(
    text: str, operands: tuple[Operand | None, ...], at: Mapping[str, int], extents: Mapping[str, int]
) -> tuple[Map, ...]:
    """One map per operand that is there; a left-out operand has an empty term."""
    terms = text.split(",") if operands else []
    if len(terms) != len(operands):
        raise Unmodelled("its equation does not fit its operands")
    out: list[Map] = []
    for position, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        if operand is None:
            continue
        term = term.strip()
        if term.startswith("*"):
            out.append(whole(position, operand, int(term[1:]) if term[1:] else None))
        else:
            out.append(Map(position, tuple(_axis(word, at, extents) for word in term.split())))
    return tuple(out)


def _axis(word: str, at: Mapping[str, int], extents: Mapping[str, int]) -> Axis:
    offset, plus, letters = word.rpartition("+")
    if letters == "_":
        return Axis((), int(offset) if plus else 0)
    terms: list[tuple[int, int]] = []
    stride = 1
    for letter in reversed(letters.split(".")):
        terms.append((at[letter], stride))
        stride *= extents[letter]
    return Axis(tuple(reversed(terms)), int(offset) if plus else 0)
