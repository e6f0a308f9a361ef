"""Graphviz DOT, of the plain kind that model tools write: one statement a node or edge, nothing nested.

    digraph mlp {
      x [op=Input, shape="8x64", dtype=float16];
      w [op=Weight, shape="64x256", dtype=float16];
      mm [label="MatMul\\nfirst"];
      mm -> act [label="mm_out\\n8x256 float16"];
    }

The first line of a node's label (or ``op``) is its ONNX op type, the second its name; in-edges are its operands
in the order of the file. An edge's label names the value that flows, a second line gives its shape. Attributes
that Graphviz does not know are the operator's (``pads="1,1,1,1"``). Shapes that are not written are inferred as
for ONNX. Subgraphs group for the eye only. Runs in the reader's child process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from .raw import Attribute
from .translated import Shape, Translation, fault
from .xla_text import integers

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+|//[^\n]*|^\#[^\n]*)|(?P<line>\n)|(?P<comment>/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<edge>->|--)|(?P<word>[\w.+-]+)|(?P<mark>[\[\]{}=;,:])""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# https://graphviz.org/doc/info/attrs.html; `shape` is an outline there unless it is made of numbers.
_DRAWING = frozenset({
    "label", "shape", "color", "style", "fillcolor", "fontname", "fontsize", "fontcolor", "penwidth", "width",
    "height", "tooltip", "URL", "href", "id", "class", "xlabel", "pos", "peripheries", "group", "rank", "margin",
    "image", "labelloc", "fixedsize", "ordering", "comment", "gradientangle", "op", "name", "dtype",
})  # fmt: skip
_SHAPE = re.compile(r"(scalar|[A-Za-z_]\w*(?:x\w+)*|\d+(?:x\w+)*)(?:\s+(\w+))?")
_NUMBER = re.compile(r"-?\d{1,19}")
_SOURCES = frozenset({"input", "weight", "constant", "initializer", "parameter"})
_SINKS = frozenset({"output"})


@dataclass(slots=True)
class _Node:
    line: int
    attributes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _Edge:
    line: int
    source: str
    target: str
    attributes: dict[str, str]


def read(text: str) -> Translation:
    """The graph of the file.

    Raises
    ------
    FileError : a fault of syntax, with its line; an undirected graph.
    """
    parser = _Parser(text)
    parser.run()
    return _written(parser.nodes, parser.edges)


class _Parser:
    """One pass over the tokens."""

    def __init__(self, text: str) -> None:
        self.nodes: dict[str, _Node] = {}
        self.edges: list[_Edge] = []
        self._tokens: list[tuple[str, int, bool]] = []
        line, at = 1, 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise fault(f"this is no DOT of the plain kind: {text[at : at + 20]!r}", line)
            kind = match.lastgroup
            if kind in ("quoted", "edge", "word", "mark"):
                quoted = kind == "quoted"
                self._tokens.append((_unquoted(match[0]) if quoted else match[0], line, quoted))
            line += match[0].count("\n")
            at = match.end()
        self._at = 0
        self._last = line

    def run(self) -> None:
        """Read the whole file."""
        head = self._word().lower()
        if head == "strict":
            head = self._word().lower()
        if head != "digraph":
            raise fault("an undirected graph says not what comes first", self._line(), "Write a digraph.")
        if self._peek() != "{":
            self._word()
        self._take("{")
        depth = 1
        while depth:
            token = self._peek()
            if token == "":
                raise fault(
                    "the file ends before the graph is closed with '}'",
                    self._last,
                    "Download or copy it again.",
                )
            if token in ("{", "}", ";", ","):
                depth += {"{": 1, "}": -1}.get(token, 0)
                self._at += 1
            elif token.lower() == "subgraph" and not self._quoted():
                self._at += 1
                if self._peek() != "{":
                    self._word()
            else:
                self._statement()

    def _statement(self) -> None:
        line = self._line()
        chain = [self._name()]
        if self._peek() == "=" and not self._quoted():
            self._at += 1
            self._word()
            return
        while self._peek() in ("->", "--") and not self._quoted():
            if self._peek() == "--":
                raise fault("'--' is an edge without a direction", line, "Write '->'.")
            self._at += 1
            if self._peek() == "{":
                raise fault(
                    "an edge to several nodes in braces is not read", line, "Write one edge a statement."
                )
            chain.append(self._name())
        attributes = self._attributes()
        if len(chain) == 1:
            if chain[0].lower() not in ("node", "edge", "graph"):
                self.nodes.setdefault(chain[0], _Node(line)).attributes.update(attributes)
            return
        for source, target in pairwise(chain):
            for name in (source, target):
                self.nodes.setdefault(name, _Node(line))
            self.edges.append(_Edge(line, source, target, attributes))

    def _attributes(self) -> dict[str, str]:
        out: dict[str, str] = {}
        while self._peek() == "[" and not self._quoted():
            self._at += 1
            while not (self._peek() == "]" and not self._quoted()):
                key = self._word()
                if self._peek() == "=":
                    self._at += 1
                    out[key] = self._word()
                if self._peek() in (",", ";") and not self._quoted():
                    self._at += 1
            self._at += 1
        return out

    def _name(self) -> str:
        """A node; a port after it says only where the edge is drawn."""
        name = self._word()
        while self._peek() == ":" and not self._quoted():
            self._at += 1
            self._word()
        return name

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _quoted(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][2]

    def _line(self) -> int:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else self._last

    def _word(self) -> str:
        if self._at >= len(self._tokens):
            raise fault(
                "the file ends in the middle of a statement", self._last, "Download or copy it again."
            )
        token, line, quoted = self._tokens[self._at]
        if not quoted and token in ("[", "]", "{", "}", "=", ";", ",", ":", "->", "--"):
            raise fault(f"a name was expected, not {token!r}", line)
        self._at += 1
        return token

    def _take(self, wanted: str) -> None:
        line = self._line()
        if self._peek() != wanted:
            raise fault(f"{wanted!r} was expected, not {self._peek()[:40]!r}", line)
        self._at += 1


def _unquoted(text: str) -> str:
    return re.sub(r"\\([nlr])", "\n", text[1:-1]).replace('\\"', '"').replace("\\\\", "\\")


def _written(nodes: dict[str, _Node], edges: list[_Edge]) -> Translation:
    out = Translation("")
    reads: dict[str, list[str]] = {name: [] for name in nodes}
    made: dict[str, dict[str, tuple[str, Shape | None]]] = {name: {} for name in nodes}
    for edge in edges:
        first, _, second = edge.attributes.get("label", "").partition("\n")
        value = first.strip() or edge.source
        dtype, shape = _shape_of(second, edge.attributes, edge.line)
        known = made[edge.source].get(value)
        if known is None or known[1] is None:
            made[edge.source][value] = (dtype, shape)
        reads[edge.target].append(value)
    for name, node in nodes.items():
        lines = [part.strip() for part in node.attributes.get("label", "").split("\n")]
        op_type = node.attributes.get("op") or lines[0] or name
        title = node.attributes.get("name") or (lines[1] if len(lines) > 1 else "") or name
        results = made[name]
        if op_type.lower() in _SINKS:
            for value in reads[name]:
                out.output(value)
            continue
        own = _shape_of("", node.attributes, node.line)
        if op_type.lower() in _SOURCES:
            for value, (dtype, shape) in (results or {title: own}).items():
                dtype, shape = (dtype, shape) if shape is not None else own
                if op_type.lower() == "input":
                    out.input(value, dtype or "float32", shape)
                elif shape is not None and all(isinstance(extent, int) for extent in shape):
                    out.weight(value, dtype or "float32", [int(extent) for extent in shape])
                else:
                    raise fault(f"weight {title!r} has no shape of numbers", node.line)
            continue
        values = list(results) or [name]
        for value, (dtype, shape) in results.items():
            if shape is not None or own[1] is not None:
                out.value(value, dtype or own[0] or "float32", shape if shape is not None else own[1])
        if not results and own[1] is not None:
            out.value(values[0], own[0] or "float32", own[1])
        attributes = {key: _attribute(text) for key, text in node.attributes.items() if key not in _DRAWING}
        domain, _, plain = op_type.rpartition("::")
        out.node(plain, reads[name], values, name=title, domain=domain, attributes=attributes)
        if not results:
            out.output(values[0])
    return out


def _shape_of(text: str, attributes: dict[str, str], line: int) -> tuple[str, Shape | None]:
    """``1x64x56 float16``, from an edge's label or from ``shape`` and ``dtype``; ("", None) where there is none."""
    written = text.strip() or attributes.get("shape", "")
    match = _SHAPE.fullmatch(written)
    dtype = attributes.get("dtype", "")
    if match is None or (not text and "x" not in written and not written.isdigit() and written != "scalar"):
        return dtype, None
    if written[0].isalpha() and match[1] != "scalar" and not any(c.isdigit() for c in written):
        return dtype, None  # an outline: box, hexagon
    dims: list[int | str] = []
    for part in match[1].split("x") if match[1] != "scalar" else []:
        if part.isdigit():
            if len(part) > 20:
                raise fault(f"an extent of {len(part)} digits", line)
            dims.append(int(part))
        else:
            dims.append(part)
    return match[2] or dtype, tuple(dims)


def _attribute(text: str) -> Attribute:
    """``3,3`` as integers, ``2`` as one, ``0.5`` as a float, else text."""
    parts = [part.strip() for part in text.split(",")]
    if all(_NUMBER.fullmatch(part) for part in parts):
        numbers = integers(",".join(parts))
        return numbers if len(parts) > 1 else numbers[0]
    try:
        return float(text)
    except ValueError:
        return text
