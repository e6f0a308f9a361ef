"""What was read of one graph, written down as JSON rows (the fields of `raw.RawGraph`).

Runs in the reader's child process. Knows what the answer looks like and what values are called in it; `onnx_file.py`
decides what is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, ValueInfoProto

from .constants import VALUES_LIMIT
from .functions import FileNode, captured_names, path_of
from .inference import Inference, dtype_name
from .known import NOTHING

_NAME_LIMIT = 20_000  # characters of any text that is passed on


class _Names:
    """What values are called in the answer.

    A weight that was rearranged by folded nodes keeps the name that the file stores it under, unless the
    stored one is read as well; then, where it is a plain transpose, it is declared to be that.
    """

    def __init__(self, inference: Inference, used: Iterable[str]) -> None:
        self._inference = inference
        self._shown: dict[str, str] = {}
        self.transposes: dict[str, tuple[str, tuple[int, ...]]] = {}
        taken = set(used)
        for name in used:
            stored = inference.alias(name)
            while stored in inference.rearranged:
                stored = inference.alias(inference.rearranged[stored])
            if stored == name or stored not in inference.constant:
                continue
            if stored not in taken:
                self._shown[name] = stored
                taken.add(stored)
            elif name in inference.transposed and inference.alias(inference.rearranged[name]) == stored:
                self.transposes[name] = (stored, inference.transposed[name])

    def of(self, name: str) -> str:
        """The name to show for a value of the file."""
        name = self._inference.alias(name)
        return self._shown.get(name, name)


def _is_symbolic(value: ValueInfoProto) -> bool:
    """Whether the file writes a dim of the value's shape as a name, or not at all."""
    return any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


def declared_shape(value: ValueInfoProto) -> list[int | str] | None:
    """The shape as the file writes it, for display; unnamed dims as "?"."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return [
        short_text(dim.dim_param) if dim.dim_param else dim.dim_value if dim.HasField("dim_value") else "?"
        for dim in value.type.tensor_type.shape.dim
    ]


def written_down(
    title: str,
    inputs: list[str],
    outputs: list[str],
    inference: Inference,
    stored: Mapping[str, ValueInfoProto],
) -> dict[str, Any]:
    """One graph. `stored`: what the file says of values, for display."""
    outputs = [inference.alias(name) for name in outputs]
    used = dict.fromkeys((*inputs, *outputs))
    captured = {node: captured_names(node.proto) for node in inference.live}
    for node in inference.live:
        read = (*node.proto.input, *captured[node])
        used.update(dict.fromkeys((*map(inference.alias, read), *node.proto.output)))
    used.pop("", None)
    names = _Names(inference, used)
    declared = {
        name: declared_shape(stored[name]) for name in used if name in stored and _is_symbolic(stored[name])
    }
    return {
        "name": short_text(title),
        "inputs": inputs,
        "outputs": list(map(names.of, outputs)),
        "values": [_value_row(name, inference, names, declared.get(name)) for name in used],
        "nodes": [_node_row(node, captured[node], names.of) for node in inference.live],
    }


def size_text(shape: tuple[int, ...]) -> str:
    """A shape for a message."""
    return "x".join(map(str, shape)) or "scalar"


def _value_row(name: str, inference: Inference, names: _Names, declared: list[int | str] | None) -> list[Any]:
    known = inference.known.get(name, NOTHING)
    values, distinct = None, None
    if known.values is not None and known.values.dtype.kind in "iubf":
        whole = known.values.dtype.kind in "iu"
        if whole and known.values.size > 1:
            distinct = len(np.unique(known.values))
        if known.values.size <= (VALUES_LIMIT if whole else 64):
            values = known.values.ravel().tolist()
    shape = None if known.shape is None else [int(extent) for extent in known.shape]
    stored, perm = names.transposes.get(name, ("", ()))
    constant = name in inference.constant
    return [
        names.of(name),
        known.dtype,
        shape,
        declared,
        constant,
        values,
        distinct,
        names.of(stored),
        list(perm),
    ]


def _node_row(node: FileNode, captured: tuple[str, ...], shown: Callable[[str], str]) -> list[Any]:
    proto = node.proto
    return [
        short_text(proto.op_type),
        short_text("" if proto.domain == "ai.onnx" else proto.domain),
        proto.name,
        node.identity,
        node.version,
        [shown(name) for name in proto.input],
        list(proto.output),
        [shown(name) for name in captured],
        {attribute.name: _attribute(attribute) for attribute in proto.attribute},
        [short_text(part) for part in node.scope or path_of(node.proto)],
        node.reason,
        [[label, runs, answer] for label, runs, answer in node.bodies],
    ]


def _attribute(attribute: AttributeProto) -> Any:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.STRING:
        return attribute.s.decode("utf-8", "replace")[:_NAME_LIMIT]
    if kind == AttributeProto.INTS:
        return list(attribute.ints)
    if kind == AttributeProto.FLOATS:
        return list(attribute.floats)
    if kind == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace")[:_NAME_LIMIT] for text in attribute.strings]
    if kind == AttributeProto.TENSOR:
        return f"tensor {dtype_name(attribute.t.data_type)} {list(attribute.t.dims)}"
    if kind == AttributeProto.GRAPH:
        counts = Counter(node.op_type for node in attribute.g.node)
        return f"graph of {len(attribute.g.node)} operators: " + ", ".join(
            short_text(t)[:40] for t in list(counts)[:8]
        )
    return AttributeProto.AttributeType.Name(kind).lower()


def short_text(value: str) -> str:
    return value if len(value) <= _NAME_LIMIT else value[:_NAME_LIMIT] + "…"
