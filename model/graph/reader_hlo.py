"""XLA's HLO text (``xla_dump_to``, ``compiled.as_text()``): the operators, and the fusions as groups.

Fused and called computations are written out in place; what a fusion holds becomes one group of the plan that
the file itself makes. Loops and branches stay opaque operators. Every instruction is one line (a constant may
take several). Runs in the reader's child process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .raw import Attribute
from .translated import Shape, fault
from .xla_text import Instruction, Type, XlaTranslation, dtype_of, integers

_COMMENT = re.compile(r"/\*.*?\*/")
_HEADER = re.compile(r"(ENTRY\s+)?%?([\w.-]+)\s*(\(.*\)\s*->\s*.+?)?\s*\{$")
_LINE = re.compile(r"(ROOT\s+)?%?([^\s=]+)\s*=\s*(.+)", re.DOTALL)
_OPCODE = re.compile(r"\s*([a-z][\w-]*)\(")
_ARRAY = re.compile(r"\s*(\w+)\[([^\]]*)\](?:\{[^}]*\})?")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_NAMES = {"dot": "dot_general", "broadcast": "broadcast_in_dim"}
_DEPTH_LIMIT = 60
_VISIT_LIMIT = 400_000  # instructions that are looked at, those of repeated calls included
_JOINED_LINES = 100_000  # of one constant

Value = str | list["Value"]  # the name of a value, or the parts of a tuple
Shaped = Type | list["Shaped"]


@dataclass(slots=True)
class _Line:
    """One instruction: where it stands, what it is, and its attributes as they are written."""

    number: int
    name: str
    kind: Shaped
    opcode: str
    operands: list[str]
    inside: str  # what stands between the parentheses
    attributes: dict[str, str]
    root: bool


@dataclass(slots=True)
class _Computation:
    name: str
    line: int
    entry: bool
    lines: list[_Line] = field(default_factory=list["_Line"])


def read(text: str) -> XlaTranslation:
    """The graph of the entry computation.

    Raises
    ------
    FileError : a line that is no instruction, calls without end, no entry; the message names the line.
    """
    computations = _parse(text)
    entries = [c for c in computations.values() if c.entry] or list(computations.values())[-1:]
    if not entries:
        raise fault("the module holds no computation")
    return _Writer(computations).graph(entries[0])


# ---------------------------------------------------------------- parsing


def _parse(text: str) -> dict[str, _Computation]:
    computations: dict[str, _Computation] = {}
    current: _Computation | None = None
    rows = iter(enumerate(text.splitlines(), 1))
    for number, row in rows:
        line = _COMMENT.sub("", row).strip()
        if current is None:
            header = _HEADER.match(line)
            if header and not line.startswith("HloModule"):
                current = _Computation(header[2], number, bool(header[1]))
            continue
        if line.startswith("}"):
            if current.name in computations:
                raise fault(f"computation {current.name!r} stands there twice", current.line)
            computations[current.name] = current
            current = None
        elif line:
            for _ in range(_JOINED_LINES):
                if line.count("(") <= line.count(")") or "constant(" not in line:
                    break
                line += " " + next(rows, (0, ")"))[1].strip()
            current.lines.append(_instruction(line, number))
    if current is not None:
        raise fault(
            f"the file ends inside computation {current.name!r}", current.line, "Download or copy it again."
        )
    return computations


def _instruction(line: str, number: int) -> _Line:
    match = _LINE.match(line)
    if match is None:
        raise fault(f"this is no HLO instruction: {line[:60]!r}", number)
    rest = match[3]
    kind, at = _type(rest, 0, number)
    opcode = _OPCODE.match(rest, at)
    if opcode is None:
        raise fault(f"no operator after the type of {match[2]!r}", number)
    end = _closing(rest, opcode.end() - 1, number)
    inside = rest[opcode.end() : end]
    attributes: dict[str, str] = {}
    for part in _parts(rest[end + 1 :]):
        key, equals, value = part.partition("=")
        if equals:
            attributes[key.strip()] = value.strip()
    operands = [part.split()[-1].lstrip("%") for part in _parts(inside) if part.strip()]
    name = opcode[1].replace("-", "_")
    return _Line(number, match[2], kind, _NAMES.get(name, name), operands, inside, attributes, bool(match[1]))


def _type(text: str, at: int, number: int, depth: int = 0) -> tuple[Shaped, int]:
    """The type that starts at `at`, and where it ends."""
    while at < len(text) and text[at] in " ,":
        at += 1
    if text[at : at + 1] == "(":
        if depth > _DEPTH_LIMIT:
            raise fault("tuples nest too deep", number)
        parts: list[Shaped] = []
        at += 1
        while True:
            while at < len(text) and text[at] in " ,":
                at += 1
            if at >= len(text):
                raise fault("a tuple type has no end", number)
            if text[at] == ")":
                return parts, at + 1
            part, at = _type(text, at, number, depth + 1)
            parts.append(part)
    array = _ARRAY.match(text, at)
    if array is None:
        raise fault(f"no type where one was expected: {text[at : at + 30]!r}", number)
    if array[1] in ("token", "opaque"):
        return Type("", None), array.end()
    shape: Shape = integers(array[2].replace("<=", ""))  # a bounded dim counts as its bound
    return Type(dtype_of(array[1]), shape), array.end()


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{},]')  # a text in quotes is passed over as one
_OPEN, _CLOSE = "([{", ")]}"


def _closing(text: str, at: int, number: int) -> int:
    """Where the bracket at `at` closes."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        if mark[0] in _OPEN:
            depth += 1
        elif mark[0] in _CLOSE:
            depth -= 1
            if depth == 0:
                return mark.start()
    raise fault("a bracket has no end", number)


def _parts(text: str) -> list[str]:
    """The text split at the commas that stand in no bracket and no quotes."""
    parts: list[str] = []
    depth, start = 0, 0
    for mark in _MARK.finditer(text):
        if mark[0] in _OPEN:
            depth += 1
        elif mark[0] in _CLOSE:
            depth -= 1
        elif mark[0] == "," and depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [*parts, text[start:]]


# ---------------------------------------------------------------- writing


class _Writer:
    """Writes the entry computation and everything that it calls into one translation."""

    def __init__(self, computations: dict[str, _Computation]) -> None:
        self._computations = computations
        self._out = XlaTranslation("")
        self._visited = 0

    def graph(self, entry: _Computation) -> XlaTranslation:
        arguments: list[Value] = []
        parameters = [line for line in entry.lines if line.opcode == "parameter"]
        for line in sorted(parameters, key=_position):
            if _position(line) != len(arguments):
                raise fault(f"parameter {len(arguments)} is missing before this one", line.number)
            arguments.append(self._named(line.name, line.kind))
            for name, kind in _leaves(arguments[-1], line.kind):
                self._out.input(name, kind.dtype, kind.shape)
        result = self._written_out(entry, arguments, "", 0)
        for name in _flat(result):
            self._out.output(self._out.written(name))
        return self._out

    def _named(self, name: str, kind: Shaped) -> Value:
        """A name for each part of a value: its own, or that with a number where calls repeat it."""
        if isinstance(kind, list):
            return [self._named(f"{name}.{i}", part) for i, part in enumerate(kind)]
        return self._out.unique(name)

    def _written_out(
        self, computation: _Computation, arguments: Sequence[Value], group: str, depth: int
    ) -> Value:
        if depth > _DEPTH_LIMIT:
            raise fault(f"calls nest too deep, or {computation.name!r} calls itself", computation.line)
        values: dict[str, Value] = {}
        result: Value = []
        for line in computation.lines:
            self._visited += 1
            if self._visited > _VISIT_LIMIT:
                raise fault(f"its calls expand to more than {_VISIT_LIMIT:,} instructions", computation.line)
            if line.name in values:
                raise fault(f"{line.name!r} is written twice in {computation.name!r}", line.number)
            value = self._value(line, values, arguments, group, depth)
            values[line.name] = value
            if line.root or line is computation.lines[-1]:
                result = value if line.root or result == [] else result
        return result

    def _value(
        self, line: _Line, values: dict[str, Value], arguments: Sequence[Value], group: str, depth: int
    ) -> Value:
        """What the instruction makes; operators are added on the way."""
        if line.opcode == "parameter":
            position = _position(line)
            if position >= len(arguments):
                raise fault(f"parameter {position} is not among what the caller gives", line.number)
            return arguments[position]
        if line.opcode == "constant":
            name = self._named(line.name, line.kind)
            for part, kind in _leaves(name, line.kind):
                self._out.constant(part, kind)
            return name
        operands = [values.get(operand, f"{operand} (line {line.number})") for operand in line.operands]
        if line.opcode == "tuple":
            return operands
        if line.opcode == "get_tuple_element" and operands:
            index = next(iter(integers(line.attributes.get("index", ""))), -1)
            parts = operands[0]
            if not isinstance(parts, list) or not 0 <= index < len(parts):
                raise fault(f"{line.operands[0]!r} has no part {index}", line.number)
            return parts[index]
        called = line.attributes.get("calls" if line.opcode == "fusion" else "to_apply", "").lstrip("%")
        if line.opcode in ("fusion", "call"):
            if called not in self._computations:
                raise fault(f"{line.name!r} calls {called!r}, which the module does not have", line.number)
            inner = group or (line.name if line.opcode == "fusion" else "")
            return self._written_out(self._computations[called], operands, inner, depth + 1)
        name = self._named(line.name, line.kind)
        body = self._computations.get(called)
        self._out.instruction(
            Instruction(
                line.opcode,
                _first(name, line.name),
                [part for operand in operands for part in _flat(operand)],
                _leaves(name, line.kind),
                _attributes(line, body),
                _scope(line),
                group,
            )
        )
        return name


def _position(line: _Line) -> int:
    return next(iter(integers(line.inside)), 0)


def _first(value: Value, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _flat(value: Value) -> list[str]:
    return [value] if isinstance(value, str) else [name for part in value for name in _flat(part)]


def _leaves(value: Value, kind: Shaped) -> list[tuple[str, Type]]:
    if isinstance(value, str) or isinstance(kind, Type):
        return [(name, kind if isinstance(kind, Type) else Type("", None)) for name in _flat(value)]
    return [leaf for v, k in zip(value, kind, strict=False) for leaf in _leaves(v, k)]


# HLO's attributes under the names that the rows of `xla.py` know.
_RENAMED = {
    "lhs_batch_dims": "lhs_batch",
    "rhs_batch_dims": "rhs_batch",
    "lhs_contracting_dims": "lhs_contract",
    "rhs_contracting_dims": "rhs_contract",
    "feature_group_count": "group",
    "batch_group_count": "batch_group_count",
    "dynamic_slice_sizes": "slice_sizes",
    "slice_sizes": "slice_sizes",
}


def _attributes(line: _Line, body: _Computation | None) -> dict[str, Attribute]:
    """The attributes that decide a loop nest, as integers."""
    out: dict[str, Attribute] = {}
    for key, value in line.attributes.items():
        if key in _RENAMED:
            numbers = integers(value)
            one = key.endswith("_count")
            out[_RENAMED[key]] = (numbers or (1,))[0] if one else numbers
        elif key == "dimensions":
            name = {"broadcast_in_dim": "dims", "transpose": "permutation"}.get(line.opcode, "dimensions")
            out[name] = integers(value)
            if line.opcode == "concatenate":
                out["dimension"] = (integers(value) or (0,))[0]
        elif key == "slice":
            ranges = [integers(part) for part in re.findall(r"\[([^\]]*)\]", value)]
            out["start_indices"] = tuple((r or (0,))[0] for r in ranges)
            out["strides"] = tuple(r[2] if len(r) > 2 else 1 for r in ranges)
        elif key == "padding":
            edges = [(*integers(part.replace("_", " ")), 0, 0) for part in value.split("x")]
            out["low"] = tuple(edge[0] for edge in edges)
            out["interior"] = tuple(edge[2] if len(edge) > 4 else 0 for edge in edges)
        elif key == "direction":
            out["direction"] = value
        elif key == "custom_call_target":
            out["target"] = value.strip('"')
    if line.opcode == "broadcast_in_dim":
        out.setdefault("dims", ())
    if line.opcode in ("convolution", "reduce_window"):
        out.update(_window(line))
    if body is not None:
        out["body"] = tuple(
            inner.opcode for inner in body.lines if inner.opcode not in ("parameter", "constant")
        )
    return out


def _window(line: _Line) -> dict[str, Attribute]:
    """``window={size=3x3 stride=2x2 pad=1_1x1_1 rhs_dilate=1x1}`` and ``dim_labels=b01f_01io->b01f``."""
    fields = dict(
        part.split("=", 1) for part in line.attributes.get("window", "{}").strip("{}").split() if "=" in part
    )
    size = integers(fields.get("size", "").replace("x", " "))
    rank = len(size)
    ones = (1,) * rank
    pads = [(*integers(part.replace("_", " ")), 0, 0)[:2] for part in fields.get("pad", "").split("x")] or []
    pads = pads if len(pads) == rank else [(0, 0)] * rank
    flat = (*(low for low, _ in pads), *(high for _, high in pads))
    strides = integers(fields.get("stride", "").replace("x", " ")) or ones
    dilations = integers(fields.get("rhs_dilate", "").replace("x", " ")) or ones
    out: dict[str, Attribute] = {"pads": flat, "strides": strides, "dilations": dilations}
    if line.opcode == "reduce_window":
        return {**out, "window": size}
    out["lhs_dilation"] = integers(fields.get("lhs_dilate", "").replace("x", " ")) or ones
    x, _, rest = line.attributes.get("dim_labels", "").partition("_")
    w, _, y = rest.partition("->")
    for key, labels, lead in (("x_axes", x, "bf"), ("w_axes", w, "oi"), ("y_axes", y, "bf")):
        wanted = (*lead, *map(str, range(rank)))
        out[key] = tuple(labels.find(label) for label in wanted)
    return out


def _scope(line: _Line) -> tuple[str, ...]:
    """``jit(f)/layers_0/attn/dot_general``: the path between the traced function and the primitive."""
    match = _OP_NAME.search(line.attributes.get("metadata", ""))
    parts = match[1].split("/")[:-1] if match else []
    return tuple(part for part in parts if part and "(" not in part and "->" not in part)
