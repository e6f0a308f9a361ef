"""Nodes that are several loop nests, written out into their parts at reading.

Runs in the reader's child process. One operator is one loop nest (COST-MODEL 1), so attention becomes its two
products, the softmax between them and the append to its cache: each with exact index maps, and free to be fused
into one group again, which is what a fused kernel is. The parts stand in the block of the node and bear its name:
``Attention_3/scores``. Their loops are equations (`equation.py`), or those of an ordinary op type.

Knows how to make nodes and values; the families are in `attention.py`; here only what is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import helper

from .equation import Equation
from .functions import FileNode
from .graph import OpKind
from .known import Known, Lookup


class NotYet(Exception):
    """Something that the parts depend on is not known (yet)."""


class Parts:
    """The parts of one node, in order, and what is known of the values that they make.

    Attributes
    ----------
    nodes : the parts.
    made : per value name what is known of it.
    """

    def __init__(self, node: FileNode, look: Lookup) -> None:
        self._node, self._look = node, look
        proto = node.proto
        self._title = proto.name or f"{proto.op_type}{node.identity}"
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        self.nodes: list[FileNode] = []
        self.made: dict[str, Known] = {}

    def has(self, position: int) -> str:
        """The name of an optional input; "" where it is left out."""
        names = self._node.proto.input
        return names[position] if position < len(names) else ""

    def wants(self, position: int) -> str:
        """The name of an output; "" where nobody asked for it."""
        names = self._node.proto.output
        return names[position] if position < len(names) else ""

    def known(self, name: str) -> Known:
        """What is known of a value that has a shape.

        Raises
        ------
        NotYet : its shape is unknown.
        """
        known = self.made.get(name) or self._look(name)
        if known.shape is None:
            raise NotYet(name)
        return known

    def shape(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        """The shape of a value.

        Raises
        ------
        NotYet : unknown. ValueError : it has another rank than `rank`.
        """
        shape = self.known(name).shape or ()
        if rank is not None and len(shape) != rank:
            raise ValueError(f"{name!r} has {len(shape)} axes, not {rank}")
        return shape

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def value(self, suffix: str, dtype: str, shape: Sequence[int], name: str = "") -> str:
        """A new value between the parts, or `name`, one of the node's outputs; its name."""
        name = name or f"{self._title}{self._node.identity}/{suffix}"
        self.made[name] = Known(dtype, tuple(shape))
        return name

    def add(
        self, suffix: str, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """A part of an ordinary op type."""
        name = f"{self._title}/{suffix}"
        proto = helper.make_node(op_type, list(inputs), list(outputs), name=name, **attributes)
        identity = f"{self._node.identity}/{suffix}"
        scope = (*self._node.scope, self._title)
        self.nodes.append(FileNode(proto, identity, self._node.version, scope, is_part=True))

    def state(
        self, suffix: str, op_type: str, inputs: Sequence[str], outputs: Sequence[str], equation: Equation
    ) -> None:
        """A part whose loops are an equation."""
        self.add(suffix, op_type, inputs, outputs, **equation.attributes())


Writer = Callable[[Parts], None]


def embed_layer_normalization(parts: Parts) -> None:
    """com.microsoft: rows of two or three tables, their sum, its normalisation; the mask's lengths."""
    ids, segments, words, positions, kinds, scale, shift, mask, places = map(parts.has, range(9))
    batch, rows = parts.shape(ids, 2)
    table = parts.known(words)
    shape = (batch, rows, parts.shape(words, 2)[1])
    summed = []
    for suffix, tensor, index in (("words", words, ids), ("segments", kinds, segments)):
        if tensor and index:
            summed.append(parts.value(suffix, table.dtype, shape))
            parts.add(suffix, "Gather", [tensor, index], summed[-1:], axis=0)
    if places:
        summed.append(parts.value("positions", table.dtype, (*parts.shape(places), shape[2])))
        parts.add("positions", "Gather", [positions, places], summed[-1:], axis=0)
    else:  # without positions they count from 0: the first rows of the table
        summed.append(parts.value("positions", table.dtype, shape[1:]))
        nest = Equation("m k -> m k", {"m": rows, "k": shape[2]}, OpKind.MOVEMENT)
        parts.state("positions", "Slice", [positions], summed[-1:], nest)
    total = parts.value("sum", table.dtype, shape, parts.wants(2))
    parts.add("sum", "Sum", summed, [total])
    out = parts.value("out", table.dtype, shape, parts.wants(0))
    given = [name for name in (total, scale, shift) if name]
    parts.add("normalized", "LayerNormalization", given, [out], axis=-1)
    if parts.wants(1):
        lengths = parts.value("lengths", "int32", (batch,), parts.wants(1))
        if mask:
            parts.add("lengths", "ReduceSum", [mask], [lengths], axes=[1], keepdims=0)
        else:
            parts.state(
                "lengths", "ConstantOfShape", [], [lengths], Equation(" -> b", {"b": batch}, OpKind.MOVEMENT)
            )


def write_out(
    node: FileNode, look: Lookup, writers: Mapping[tuple[str, str], Writer]
) -> tuple[list[FileNode], dict[str, Known]] | None:
    """The parts of `node` and what is known of their values; None where it has none, or not yet.

    A node that does not fit its own definition keeps a reason and stays whole.
    """
    writer = writers.get((node.proto.domain, node.proto.op_type))
    if writer is None or node.reason:
        return None
    parts = Parts(node, look)
    try:
        writer(parts)
    except NotYet:
        return None
    except (ValueError, IndexError, ZeroDivisionError, TypeError) as error:
        node.reason = f"its operands do not fit ({error})"
        return None
    return parts.nodes, parts.made
