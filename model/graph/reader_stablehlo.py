"""StableHLO as MLIR text in the generic form, which is the same for every dialect.

``%0 = "stablehlo.add"(%a, %b) <{attributes}> ({regions}) : (types) -> types``. The pretty form has a syntax per
operator and is refused with the way to print the other one. Private functions are written out where they are
called; loops and branches stay opaque operators. Runs in the reader's child process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .raw import Attribute
from .translated import Shape, fault
from .xla_text import Instruction, Type, XlaTranslation, dtype_of, integers

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*)|(?P<line>\n)
    |(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<arrow>->)|(?P<word>%[\w.$-]+(?:\#\d+)?|[%^@\#!]?(?:[\w.$+?*]|-(?!>))+|[@\#!])|(?P<mark>[-()\[\]{}<>,:=|/&;])""",
    re.VERBOSE,
)
_GENERIC_LEVER = (
    "Print the generic form: stablehlo-opt --mlir-print-op-generic, or in JAX "
    "lowered.compiler_ir('stablehlo').operation.get_asm(print_generic_op_form=True)."
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DEPTH_LIMIT = 100
_VISIT_LIMIT = 400_000
_DIALECTS = ("stablehlo.", "mhlo.", "chlo.", "vhlo.")
_SHAPED = re.compile(r"tensor<((?:[\d?]+x)*)(.*)>", re.DOTALL)


@dataclass(slots=True)
class _Op:
    """One operation as it stands in the text."""

    line: int
    name: str
    results: list[str]
    operands: list[str]
    attributes: dict[str, str]
    regions: list[list[_Block]] = field(default_factory=list["list[_Block]"])
    types: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Block:
    arguments: list[tuple[str, str]]
    ops: list[_Op] = field(default_factory=list[_Op])


def read(text: str) -> XlaTranslation:
    """The graph of the public function.

    Raises
    ------
    FileError : the pretty form, a fault of syntax (with its line), calls without end, no function.
    """
    top = _Parser(text).ops()
    functions: dict[str, _Op] = {}
    for op in _everything(top):
        if op.name == "func.func":
            functions[op.attributes.get("sym_name", "").strip('"')] = op
    main = functions.get("main") or next(
        (f for f in functions.values() if "private" not in f.attributes.get("sym_visibility", "")), None
    )
    if main is None:
        raise fault("the module holds no public function")
    return _Writer(functions).graph(main)


def _everything(ops: list[_Op]) -> list[_Op]:
    """Operations of the module and of modules inside it."""
    found: list[_Op] = []
    rest = list(ops)
    while rest:
        op = rest.pop(0)
        found.append(op)
        if op.name == "builtin.module":
            rest[:0] = [inner for region in op.regions for block in region for inner in block.ops]
    return found


# ---------------------------------------------------------------- parsing


class _Parser:
    """One pass over the tokens, one call per nested region."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._lines: list[int] = []
        line, at = 1, 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise fault(f"this is no MLIR: {text[at : at + 20]!r}", line)
            if match.lastgroup == "line":
                line += 1
            elif match.lastgroup != "space":
                self._tokens.append(match[0])
                self._lines.append(line)
            at = match.end()
        self._at = 0
        self._end = len(self._tokens)

    def ops(self, depth: int = 0) -> list[_Op]:
        """Operations up to the end of the region (or of the text), without block labels."""
        return [op for block in self._blocks(depth) for op in block.ops]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < self._end else ""

    def _line(self) -> int:
        return self._lines[min(self._at, self._end - 1)] if self._end else 1

    def _next(self) -> str:
        if self._at >= self._end:
            raise fault(
                "the file ends in the middle of an operation", self._line(), "Download or copy it again."
            )
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str) -> None:
        line = self._line()
        found = self._next()
        if found != wanted:
            raise fault(f"{wanted!r} was expected, not {found[:40]!r}", line)

    def _skip(self, wanted: str) -> bool:
        if self._peek() == wanted:
            self._at += 1
            return True
        return False

    def _blocks(self, depth: int) -> list[_Block]:
        if depth > _DEPTH_LIMIT:
            raise fault(f"regions nest more than {_DEPTH_LIMIT} deep", self._line())
        blocks = [_Block([])]
        while self._peek() not in ("", "}"):
            token = self._peek()
            if token.startswith("^"):
                blocks.append(_Block(self._block_head()))
            elif token[0] == "#" or token[0] == "!":
                self._alias()
            else:
                blocks[-1].ops.append(self._op(depth))
        if depth == 0 and self._peek() == "}":
            raise fault("'}' closes nothing", self._line())
        return blocks

    def _block_head(self) -> list[tuple[str, str]]:
        self._next()
        arguments: list[tuple[str, str]] = []
        if self._skip("("):
            while not self._skip(")"):
                name = self._next()
                self._expect(":")
                arguments.append((name, self._type()))
                self._skip(",")
        self._expect(":")
        return arguments

    def _alias(self) -> None:
        """``#loc1 = loc(...)``, ``!t = ...``: names for attributes and types; places in a source say nothing here."""
        self._next()
        self._expect("=")
        self._value(("",))
        while self._at < self._end and self._lines[self._at] == self._lines[self._at - 1]:
            self._value(("",))

    def _op(self, depth: int) -> _Op:
        line = self._line()
        results: list[str] = []
        if self._peek().startswith("%"):
            while True:
                name = self._next()
                count = 1
                if self._skip(":"):
                    count = next(iter(integers(self._next())), 1)
                if not 1 <= count <= 10_000:
                    raise fault(f"{name!r} stands for {count} results", line)
                results += [name] if count == 1 else [f"{name}#{i}" for i in range(count)]
                if not self._skip(","):
                    break
            self._expect("=")
        quoted = self._next()
        if not quoted.startswith('"'):
            if re.match(r"(module|func\.func|stablehlo\.|mhlo\.|return|func\.return)", quoted):
                raise fault("this is MLIR in its pretty form, which cannot be read", line, _GENERIC_LEVER)
            raise fault(f"the name of an operation in quotes was expected, not {quoted[:40]!r}", line)
        op = _Op(line, quoted.strip('"'), results, [], {})
        self._expect("(")
        while not self._skip(")"):
            op.operands.append(self._next())
            self._skip(",")
        if self._peek() == "[":
            self._value((":", "<", "(", "{"))
        if self._skip("<"):
            op.attributes.update(self._attributes())
            self._expect(">")
        if self._peek() == "(":
            self._next()
            while not self._skip(")"):
                self._expect("{")
                op.regions.append(self._blocks(depth + 1))
                self._expect("}")
                self._skip(",")
        if self._peek() == "{":
            op.attributes.update(self._attributes())
        self._expect(":")
        self._types()
        self._expect("->")
        op.types = self._types()
        if self._peek() == "loc":
            self._next()
            self._value(("",), groups=1)
        return op

    def _attributes(self) -> dict[str, str]:
        """``{key = value, flag}``; values stay text."""
        out: dict[str, str] = {}
        self._expect("{")
        while not self._skip("}"):
            key = self._next().strip('"')
            out[key] = self._value((",", "}")) if self._skip("=") else ""
            self._skip(",")
        return out

    def _types(self) -> list[str]:
        if self._peek() != "(":
            return [self._type()]
        self._next()
        types: list[str] = []
        while not self._skip(")"):
            types.append(self._type())
            self._skip(",")
        return types

    def _type(self) -> str:
        kind = self._next()
        if kind in (")", ",", "}", "{"):
            raise fault(f"a type was expected, not {kind!r}", self._line())
        if kind == "(":  # of a function
            self._at -= 1
            return self._value((",", ")", "="), groups=1)
        if self._peek() == "<":
            kind += self._value((",", ")"), groups=1)
        return kind

    def _value(self, stops: Sequence[str], groups: int = 0) -> str:
        """The text up to one of `stops` outside of all brackets, or of the next `groups` brackets."""
        parts: list[str] = []
        open_: list[str] = []
        line = self._line()
        while self._at < self._end:
            token = self._tokens[self._at]
            if not open_ and token in stops:
                break
            self._at += 1
            parts.append(token)
            if token in _CLOSING:
                open_.append(_CLOSING[token])
            elif open_ and token == open_[-1]:
                open_.pop()
                if not open_ and groups:
                    break
            if not open_ and stops == ("",):
                break
        if open_:
            raise fault(f"a bracket is not closed; {open_[-1]!r} is missing", line)
        return " ".join(parts) if len(parts) > 1 else "".join(parts)


def _type_of(written: str, line: int) -> Type:
    """``tensor < 2x128xf32 >`` as element type and shape."""
    text = written.replace(" ", "")
    match = _SHAPED.fullmatch(text)
    if match is None:
        return Type("" if text.startswith("!") else dtype_of(text), None)
    dtype, _, _encoding = match[2].partition(",")
    digits = match[1].split("x")[:-1]
    if any("?" in extent for extent in digits):
        return Type(dtype_of(dtype), None)
    if any(len(extent) > 20 for extent in digits):
        raise fault(f"an extent of {max(map(len, digits))} digits", line)
    dims = tuple(int(extent) for extent in digits)
    complex_of = re.fullmatch(r"complex<f(\d+)>", dtype)
    return Type(f"complex{2 * int(complex_of[1])}" if complex_of else dtype_of(dtype), dims)


# ---------------------------------------------------------------- writing


class _Writer:
    """Writes the public function and all that it calls into one translation."""

    def __init__(self, functions: dict[str, _Op]) -> None:
        self._functions = functions
        self._out = XlaTranslation("")
        self._visited = 0

    def graph(self, main: _Op) -> XlaTranslation:
        block = _body(main)
        names: list[str] = []
        for name, written in block.arguments:
            kind = _type_of(written, main.line)
            names.append(self._out.unique(name.lstrip("%")))
            shape: Shape | None = kind.shape
            if shape is None and written.replace(" ", "").startswith("tensor<"):
                shape = _symbolic(written, names[-1])
            self._out.input(names[-1], kind.dtype, shape)
        for name in self._written_out(main, names, (), 0):
            self._out.output(self._out.written(name))
        return self._out

    def _written_out(
        self, function: _Op, arguments: Sequence[str], scope: tuple[str, ...], depth: int
    ) -> list[str]:
        if depth > _DEPTH_LIMIT // 2:
            raise fault("calls nest too deep, or a function calls itself", function.line)
        block = _body(function)
        if len(block.arguments) != len(arguments):
            raise fault(
                f"it is called with {len(arguments)} operands and has {len(block.arguments)}", function.line
            )
        values = {name: value for (name, _), value in zip(block.arguments, arguments, strict=True)}
        for op in block.ops:
            self._visited += 1
            if self._visited > _VISIT_LIMIT:
                raise fault(f"its calls expand to more than {_VISIT_LIMIT:,} operations", function.line)
            operands = [values.get(name, f"{name} (line {op.line})") for name in op.operands]
            if op.name in ("func.return", "stablehlo.return", "mhlo.return"):
                return operands
            made = self._made(op, operands, scope, depth)
            for name, value in zip(op.results, made, strict=False):
                if name in values:
                    raise fault(f"{name!r} is written twice", op.line)
                values[name] = value
                if name.endswith("#0"):
                    values.setdefault(name[:-2], value)
        return []

    def _made(self, op: _Op, operands: list[str], scope: tuple[str, ...], depth: int) -> list[str]:
        """What the operation's results are called; operators are added on the way."""
        if op.name in ("func.call", "stablehlo.composite"):
            called = (
                op.attributes.get("callee", op.attributes.get("decomposition", ""))
                .replace(" ", "")
                .strip('@"')
            )
            if called not in self._functions:
                raise fault(f"it calls {called!r}, which the module does not have", op.line)
            return self._written_out(self._functions[called], operands, (*scope, called), depth + 1)
        names = [self._out.unique(name.lstrip("%")) for name in op.results]
        kinds = [_type_of(written, op.line) for written in op.types]
        results = list(zip(names, kinds, strict=False))
        opcode = op.name
        for dialect in _DIALECTS:
            opcode = opcode.removeprefix(dialect)
        if opcode in ("constant", "arith.constant") and results:
            self._out.constant(*results[0])
            return names
        title = names[0] if names else f"line_{op.line}"
        if title[0].isdigit() or not names:
            title = f"{opcode}_{title}"
        attributes = _attributes(opcode, op)
        self._out.instruction(Instruction(opcode, title, operands, results, attributes, scope))
        return names


def _body(function: _Op) -> _Block:
    """A function's block: the last one that has arguments or operations."""
    blocks = [b for region in function.regions for b in region if b.ops or b.arguments]
    if not blocks:
        raise fault("the function has no body", function.line)
    return blocks[-1]


def _symbolic(written: str, name: str) -> Shape:
    """A dynamic dim of an input gets a name that can be bound: ``arg0_1``."""
    match = _SHAPED.fullmatch(written.replace(" ", ""))
    extents = match[1].split("x")[:-1] if match else []
    return tuple(f"{name}_{i}" if "?" in extent else int(extent[:20]) for i, extent in enumerate(extents))


_FIELDS = {
    "lhs_batching_dimensions": "lhs_batch",
    "rhs_batching_dimensions": "rhs_batch",
    "lhs_contracting_dimensions": "lhs_contract",
    "rhs_contracting_dimensions": "rhs_contract",
}
_LISTS = {
    "broadcast_dimensions": "dims",
    "dimensions": "dimensions",
    "permutation": "permutation",
    "start_indices": "start_indices",
    "strides": "strides",
    "edge_padding_low": "low",
    "interior_padding": "interior",
    "slice_sizes": "slice_sizes",
    "window_dimensions": "window",
    "window_strides": "strides",
    "window_dilations": "dilations",
    "rhs_dilation": "dilations",
    "lhs_dilation": "lhs_dilation",
}
_NUMBERS = {
    "dimension": "dimension",
    "feature_group_count": "group",
    "batch_group_count": "batch_group_count",
}


_SPLAT = re.compile(r"dense\s*<\s*(-?\d+)\s*>\s*:\s*tensor\s*<\s*(\d{1,3})x(?:(\d{1,3})x)?i")


def _listed(text: str) -> tuple[int, ...]:
    """``array<i64: 0, 1>``, ``dense<[0, 1]> : tensor<2xi64>``, ``dense<1> : tensor<4xi64>``: the numbers in it."""
    splat = _SPLAT.match(text)
    if splat:
        return integers(splat[1]) * (int(splat[2]) * int(splat[3] or 1))
    inside = text.partition(":")[2] if text.startswith("array") else text.partition("> :")[0]
    return integers(re.sub(r"\bi\d+\b", "", inside))


def _attributes(opcode: str, op: _Op) -> dict[str, Attribute]:
    """The attributes that decide a loop nest, as integers."""
    out: dict[str, Attribute] = {}
    for key, value in op.attributes.items():
        if key == "dot_dimension_numbers":
            for name, short in _FIELDS.items():
                match = re.search(name + r"\s*=\s*\[([^\]]*)\]", value)
                out[short] = integers(match[1]) if match else ()
        elif key == "dimension_numbers" and opcode == "convolution":
            out.update(_convolution_axes(value))
        elif key == "padding":
            rows = _listed(value)
            out["pads"] = (*rows[0::2], *rows[1::2])
        elif key in _LISTS:
            out[_LISTS[key]] = _listed(value)
        elif key in _NUMBERS:
            out[_NUMBERS[key]] = (integers(value.partition(":")[0]) or (1,))[0]
        elif key == "call_target_name":
            out["target"] = value.strip('"')
    if op.regions:
        ops = [inner for block in op.regions[0] for inner in block.ops]
        names = [inner.name.rpartition(".")[2] for inner in ops]
        out["body"] = tuple(name for name in names if name not in ("return", "constant"))
    return out


def _convolution_axes(text: str) -> dict[str, Attribute]:
    """``#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`` as axes: batch, features, pixels."""
    out: dict[str, Attribute] = {}
    orders = [part.replace(",", " ").split() for part in re.findall(r"\[([^\]]*)\]", text)[:3]]
    for key, labels, lead in zip(("x_axes", "w_axes", "y_axes"), orders, ("bf", "oi", "bf"), strict=False):
        wanted = (*lead, *map(str, range(len(labels) - 2)))
        out[key] = tuple(labels.index(label) if label in labels else -1 for label in wanted)
    return out
