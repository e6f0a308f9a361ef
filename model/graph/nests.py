"""Every node's loop nest, from the table: computed once for all nodes that are alike.

A model repeats its layers: 50,000 operators are some hundred different calls. Two calls are alike where op type,
attributes and everything that a row may see of the operands agree; names it sees only as "the same one twice".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

from .graph import OpKind
from .raw import Attribute, RawGraph, RawNode, RawValue
from .row import Call, Loops, Map, Operand, Unmodelled
from .table import loops_of

_TEXT_LIMIT = 200  # characters of an attribute that is kept


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one node, its operands by value name, why it is opaque, and its attributes as text."""

    loops: Loops
    reads: tuple[tuple[str, Map], ...]
    writes: tuple[tuple[str, Map], ...]
    reason: str
    attributes: tuple[tuple[str, str], ...]


class Nests:
    """The nests of one graph."""

    def __init__(self, raw: RawGraph) -> None:
        self._raw = raw
        self._states = _states(raw)
        self._alike: dict[Hashable, int] = {}
        self._kind: dict[str, int] = {}
        for name, value in raw.values.items():
            state = name in self._states
            seen = (value.shape, value.dtype, value.constant, value.values, value.distinct, state)
            self._kind[name] = self._alike.setdefault(seen, len(self._alike))
        self._loops: dict[Hashable, tuple[Loops, str]] = {}
        self._texts: dict[Hashable, tuple[tuple[str, str], ...]] = {}

    def of_all(self) -> list[Nest]:
        """Per node, in order. Operators read only what comes before them: reads that close a cycle are left out."""
        nests = [self._of(node) for node in self._raw.nodes]
        writer = {name: index for index, nest in enumerate(nests) for name, _ in nest.writes}
        for index, nest in enumerate(nests):
            if any(writer.get(name, -1) >= index for name, _ in nest.reads):
                reads = tuple(read for read in nest.reads if writer.get(read[0], -1) < index)
                nests[index] = replace(nest, reads=reads)
        return nests

    def _of(self, node: RawNode) -> Nest:
        """The node's loops. Operands that its row leaves out stay edges of the graph: see `_rest`."""
        inputs = (*node.inputs, *node.captured)
        attributes = tuple(node.attributes.items())
        loops, reason = self._loops_of(node, attributes)
        reads = [(inputs[m.position], m) for m in loops.inputs]
        writes = [(node.outputs[m.position], m) for m in loops.outputs]
        opaque = loops.kind is OpKind.OPAQUE
        if opaque or len(reads) < len(inputs):
            reads += self._rest(inputs, loops.inputs, constants=opaque)
        if opaque or len(writes) < len(node.outputs):
            writes += self._rest(node.outputs, loops.outputs, constants=True)
        texts = self._texts.get(attributes)
        if texts is None:
            texts = tuple((key, _text(value)) for key, value in attributes)
            self._texts[attributes] = texts
        return Nest(loops, tuple(reads), tuple(writes), reason, texts)

    def _loops_of(self, node: RawNode, attributes: tuple[tuple[str, Attribute], ...]) -> tuple[Loops, str]:
        """Loops and "", or no loops and the reason."""
        if node.reason:
            return _OPAQUE, node.reason
        values = self._raw.values
        for name in node.inputs:
            if name and ((value := values.get(name)) is None or value.shape is None):
                return _OPAQUE, f"the shape of its input {name!r} is unknown"
        twice = len(set(node.inputs)) < len(node.inputs)
        key = (
            node.op_type,
            node.domain,
            node.version,
            attributes,
            tuple(self._kind.get(name, -1) for name in node.inputs),
            tuple(self._kind.get(name, -1) for name in node.outputs),
            tuple(map(node.inputs.index, node.inputs)) if twice else (),
        )
        found = self._loops.get(key)
        if found is None:
            try:
                found = loops_of(self._call(node), node.domain), ""
            except Unmodelled as unmodelled:
                found = _OPAQUE, str(unmodelled)
            self._loops[key] = found
        return found

    def _call(self, node: RawNode) -> Call:
        """The call; an output of unknown shape is None, and `Call.output` says so. Names are positions."""
        values = self._raw.values
        inputs = tuple(self._operand(values.get(name), str(node.inputs.index(name))) for name in node.inputs)
        outputs = tuple(self._operand(values.get(name), f"out {i}") for i, name in enumerate(node.outputs))
        return Call(node.op_type, inputs, outputs, node.attributes, node.version)

    def _operand(self, value: RawValue | None, name: str) -> Operand | None:
        if value is None or value.shape is None:
            return None
        state = value.name in self._states
        return Operand(name, value.shape, value.dtype, value.constant, value.values, value.distinct, state)

    def _rest(self, names: tuple[str, ...], named: tuple[Map, ...], constants: bool) -> list[tuple[str, Map]]:
        """Operands without an index map, whole: a shape computed at run time, everything of an opaque operator.

        Constants among them (axes, pads, a known shape) are compiled into the kernel and left out, unless
        `constants`: nobody knows what an opaque operator does with them.
        """
        have = {m.position for m in named}
        out: list[tuple[str, Map]] = []
        for position, name in enumerate(names):
            value = self._raw.values.get(name)
            if position in have or not name or value is None or (value.constant and not constants):
                continue
            size = 0 if value.shape is None else math.prod(value.shape)
            out.append((name, Map(position, whole=True, addressed=size)))
        return out


_OPAQUE = Loops(OpKind.OPAQUE, (), (), ())


_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def _states(raw: RawGraph) -> frozenset[str]:
    """Values that are a graph input or output by views alone; of inputs, those with one reader (`Operand.state`)."""
    readers = Counter(name for node in raw.nodes for name in (*node.inputs, *node.captured))
    inside = {name for name in raw.inputs if readers[name] == 1}
    outside = set(raw.outputs)
    for node in raw.nodes:
        if node.op_type in _VIEWS and node.inputs and node.inputs[0] in inside:
            inside.update(name for name in node.outputs if readers[name] == 1)
    for node in reversed(raw.nodes):
        if node.op_type in _VIEWS and node.inputs and not outside.isdisjoint(node.outputs):
            outside.add(node.inputs[0])
    return frozenset(inside | outside)


def _text(value: Attribute) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"
