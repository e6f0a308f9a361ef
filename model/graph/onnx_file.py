"""ONNX files as plain facts: parse, check, expand functions, hand to inference, write down what was found.

Runs in the reader's child process only (`child.py`), because it and `inference.py` are the only places
that touch protobufs from others. Knows how ONNX writes things; knows no loop nests. External data is never
opened: only dims and element types count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from ..errors import FileError, UsageError
from . import bindings as symbolic
from .dtypes import BITS
from .functions import FileNode, expand
from .inference import NOTHING, Inference, Known, dtype_name
from .sniff import damage
from .wiring import Warnings, Wiring

VALUES_LIMIT = 4096  # elements of a constant that the table may look at (axes, pads, indices)
DEFAULTS_KEY = "tilewright.bind"  # metadata: what symbolic dims stand for where the user does not say
_NAME_LIMIT = 20_000  # characters of any text that is passed on
_QUOTED = re.compile(r"'([^']*)'")  # the items of a list of texts that Python has printed


def read_model(content: bytes, given: Mapping[str, int]) -> dict[str, Any]:
    """Everything that the table needs to know of a file, as JSON (the fields of `raw.RawGraph`).

    Raises
    ------
    FileError : not a protobuf, cut off, nested too deep, empty, or with names that are no text.
    UsageError : `given` binds a symbol that the file does not have.
    """
    model = _parse(content)
    _check_text(model)
    try:
        return facts(model, given)
    except (TypeError, ValueError, AttributeError):
        _check_all_text(model)
        raise


def facts(model: ModelProto, given: Mapping[str, int]) -> dict[str, Any]:
    """The same of a model that is parsed already."""
    warnings: Warnings = []
    constants, nodes = _take_constants(model.graph, expand(model, warnings), warnings)
    inputs = [value for value in model.graph.input if value.name not in constants]
    outputs = [value.name for value in model.graph.output]
    own = next((entry.value for entry in model.metadata_props if entry.key == DEFAULTS_KEY), "")
    symbols, bindings, known = _bind(inputs, given, own, warnings)
    wiring = Wiring(nodes, [*known, *constants], outputs, warnings)
    known.update((name, NOTHING) for name in wiring.undefined)

    stored = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}

    def hint(name: str) -> Known:
        return _known(stored[name], bindings) if name in stored else NOTHING

    inference = Inference(model, wiring.order, known, constants, hint)
    inference.run()

    outputs = [inference.alias(name) for name in outputs]
    used = dict.fromkeys((*known, *outputs))
    for node in inference.live:
        read = (*node.proto.input, *wiring.captured[node])
        used.update(dict.fromkeys((*map(inference.alias, read), *node.proto.output)))
    used.pop("", None)
    names = _Names(inference, used)
    stored.update((value.name, value) for value in inputs)
    declared = {
        name: _declared(stored[name]) for name in used if name in stored and _is_symbolic(stored[name])
    }
    return {
        "name": _text(model.graph.name),
        "inputs": list(known),
        "outputs": list(map(names.of, outputs)),
        "values": [_value_row(name, inference, names, declared.get(name)) for name in used],
        "nodes": [_node_row(node, wiring.captured[node], names.of) for node in inference.live],
        "symbols": list(symbols),
        "bindings": [[name, bindings[name]] for name in bindings],
        "warnings": [[_text(part) for part in warning] for warning in warnings],
        "refusal": _text(wiring.refusal),
    }


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


# ---------------------------------------------------------------- parsing


def _parse(content: bytes) -> ModelProto:
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # DecodeError lives in protobuf, whose module names differ by version
        what, lever = damage(content)
        raise FileError(what, lever=lever) from error
    if not model.HasField("graph"):
        raise FileError(
            "this is no ONNX model: the message holds no graph", lever="Check that this is the model file."
        )
    graph = model.graph
    if not graph.node and not graph.output and not graph.initializer:
        raise FileError("the model is empty: no operators, no outputs", lever="Export the model again.")
    return model


def _check_text(model: ModelProto) -> None:
    """Refuse names that are no UTF-8: protobuf hands them on as bytes.

    Nested graphs, metadata and the like are looked at only where they have made something else fail.
    """
    graph = model.graph
    names = [
        value.name
        for part in (graph.input, graph.output, graph.initializer, graph.value_info)
        for value in part
    ]
    for node in (*graph.node, *(node for function in model.functions for node in function.node)):
        names += (node.name, node.op_type, node.domain, *node.input, *node.output)
        names += (attribute.name for attribute in node.attribute)
    for value in graph.input:
        names += (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    bad = next((n for n in names if not isinstance(n, str)), None)  # pyright: ignore[reportUnnecessaryIsInstance]
    if bad is not None:
        raise _no_text(bad)


def _check_all_text(model: ModelProto) -> None:
    """The same for every text of the file, at any depth."""
    rest: list[Any] = [model]
    while rest:
        for field, value in rest.pop().ListFields():
            values = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
            if field.type == field.TYPE_MESSAGE:
                rest.extend(values)
            elif field.type == field.TYPE_STRING and (
                bad := next((v for v in values if isinstance(v, bytes)), None)
            ):
                raise _no_text(bad)


def _no_text(bad: Any) -> FileError:
    return FileError(
        f"a name in it is no text: {bad[:80]!r}", lever="The file is damaged; export or download it again."
    )


# ---------------------------------------------------------------- constants


def _take_constants(
    graph: GraphProto, nodes: list[FileNode], warnings: Warnings
) -> tuple[dict[str, Known], list[FileNode]]:
    """All initializers and Constant nodes as facts, and the nodes that are left.

    Payloads are read only where they are small and inside the file.
    """
    constants: dict[str, Known] = {}
    for tensor in graph.initializer:
        constants[tensor.name] = tensor_facts(tensor, tensor.name, warnings)
    for sparse in graph.sparse_initializer:
        constants[sparse.values.name] = Known(dtype_name(sparse.values.data_type), tuple(sparse.dims))
    left: list[FileNode] = []
    for node in nodes:
        is_constant = node.proto.op_type == "Constant" and not node.proto.input and node.proto.output
        facts = constant_facts(node.proto, warnings) if is_constant else None
        if facts is None:
            left.append(node)
        else:
            constants[node.proto.output[0]] = facts
    return constants, left


def constant_facts(node: NodeProto, warnings: Warnings) -> Known | None:
    """What a Constant node holds; None where it holds something that is no tensor."""
    for attribute in node.attribute:
        where = node.output[0] if node.output else node.name
        if attribute.name == "value":
            return tensor_facts(attribute.t, where, warnings)
        if attribute.name in ("value_int", "value_ints"):
            values = attribute.i if attribute.name == "value_int" else list(attribute.ints)
            return _small("int64", np.array(values, dtype=np.int64))
        if attribute.name in ("value_float", "value_floats"):
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            return _small("float32", np.array(values, dtype=np.float32))
        if attribute.name == "value_string":
            return Known("string", ())
        if attribute.name == "value_strings":
            return Known("string", (len(attribute.strings),))
        if attribute.name == "sparse_value":
            sparse = attribute.sparse_tensor
            return Known(dtype_name(sparse.values.data_type), tuple(sparse.dims))
    return None


def _small(dtype: str, values: np.ndarray) -> Known:
    return Known(dtype, values.shape, values if values.size <= VALUES_LIMIT else None)


def tensor_facts(tensor: TensorProto, where: str, warnings: Warnings) -> Known:
    """Element type and dims of a stored tensor, and its payload where that is small and inside the file."""
    dtype, dims = dtype_name(tensor.data_type), tuple(tensor.dims)
    if any(extent < 0 for extent in dims):
        warnings.append((where, f"its dims {list(dims)} are negative", "Its shape is unknown."))
        return Known(dtype, None)
    if tensor.data_location == TensorProto.EXTERNAL:
        _check_location(tensor, where, warnings)
        return Known(dtype, dims)
    count = 1
    for extent in dims:
        count *= extent
    held = _held_elements(tensor)
    if held is not None and held != count and (held or count <= VALUES_LIMIT):
        shape = "x".join(map(str, dims))
        warnings.append(
            (where, f"its dims say {shape} = {count} elements but the file holds {held}",
             "The declared shape is used.")
        )  # fmt: skip
        return Known(dtype, dims)
    if count > VALUES_LIMIT or held is None or held != count:
        return Known(dtype, dims)
    try:
        return Known(dtype, dims, onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError):
        warnings.append((where, "its payload cannot be read", "Only its dims are used."))
        return Known(dtype, dims)


def _held_elements(tensor: TensorProto) -> int | None:
    """How many elements the payload holds; None where that is not a matter of counting bytes."""
    width = BITS.get(dtype_name(tensor.data_type), 0)
    if width < 8:
        return None
    if tensor.raw_data:
        return len(tensor.raw_data) * 8 // width
    return max(len(tensor.float_data), len(tensor.int32_data), len(tensor.int64_data),
               len(tensor.double_data), len(tensor.uint64_data))  # fmt: skip


def _check_location(tensor: TensorProto, where: str, warnings: Warnings) -> None:
    """Warn of weights that would lie outside the model's folder. They are never opened in any case."""
    for entry in tensor.external_data:
        if entry.key != "location":
            continue
        parts = entry.value.replace("\\", "/").split("/")
        if ".." in parts or entry.value.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", entry.value):
            warnings.append(
                (where, f"its weights path {entry.value!r} leaves the model's folder",
                 "It was not opened; only dims and element type are used.")
            )  # fmt: skip


# ---------------------------------------------------------------- inputs and bindings


def _bind(
    inputs: list[ValueInfoProto], given: Mapping[str, int], own: str, warnings: Warnings
) -> tuple[tuple[str, ...], dict[str, int], dict[str, Known]]:
    """Symbols of the graph inputs, the number of each, and the inputs' shapes under them.

    `own`: what the file itself proposes for symbols, as ``batch=1,seq=512``.
    """
    positions: dict[str, list[int]] = {}
    declared: dict[str, tuple[int | str, ...] | None] = {}
    for value in inputs:
        declared[value.name] = _input_shape(value, warnings)
        for axis, extent in enumerate(declared[value.name] or ()):
            if isinstance(extent, str):
                for symbol in symbolic.symbols_of(extent):
                    positions.setdefault(symbol, []).append(axis)
    values, defaulted = symbolic.resolve(positions, given, _proposed(own))
    if defaulted:
        chosen = ", ".join(f"{name}={values[name]}" for name in defaulted)
        warnings.append(("symbolic dims", f"assumed {chosen}", "Bind them: --bind name=number."))
    known: dict[str, Known] = {}
    for value in inputs:
        dtype = dtype_name(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else ""
        known[value.name] = Known(dtype, _numbers(declared[value.name], values, value.name, warnings))
    return tuple(positions), values, known


def _proposed(own: str) -> dict[str, int]:
    try:
        return symbolic.parse_bindings(own)
    except UsageError:
        return {}  # a proposal that cannot be read is none


def _input_shape(value: ValueInfoProto, warnings: Warnings) -> tuple[int | str, ...] | None:
    """The declared shape of a graph input; a dim without a name gets one that can be bound."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "untyped value"
        warnings.append(
            (value.name, f"is a {kind.removesuffix('_type')}, not a tensor", "It has no size here.")
        )
        return None
    if not value.type.tensor_type.HasField("shape"):
        warnings.append(
            (
                value.name,
                "the file gives this input no shape",
                "Give it a shape in the file and export again.",
            )
        )
        return None
    out: list[int | str] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        name = f"{value.name}_{axis}"
        if dim.dim_param:
            out.append(dim.dim_param if dim.dim_param != "?" else name)
        elif not dim.HasField("dim_value"):
            out.append(name)
        elif dim.dim_value == -1:
            warnings.append((value.name, f"axis {axis} is -1, taken as unknown", f"Bind {name} to a number."))
            out.append(name)
        else:
            out.append(dim.dim_value)
    return tuple(out)


def _numbers(
    declared: tuple[int | str, ...] | None, values: Mapping[str, int], where: str, warnings: Warnings
) -> tuple[int, ...] | None:
    if declared is None:
        return None
    shape = [extent if isinstance(extent, int) else symbolic.evaluate(extent, values) for extent in declared]
    if not all(extent is not None and 0 <= extent < 2**63 for extent in shape):
        text = "x".join(map(str, declared))
        warnings.append((where, f"its shape {text} is not possible", "What depends on it has no shape."))
        return None
    return tuple(extent for extent in shape if extent is not None)


def _is_symbolic(value: ValueInfoProto) -> bool:
    """Whether the file writes a dim of the value's shape as a name, or not at all."""
    return any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)


def _declared(value: ValueInfoProto) -> list[int | str] | None:
    """The shape as the file writes it, for display; unnamed dims as "?"."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return [
        _text(dim.dim_param) if dim.dim_param else dim.dim_value if dim.HasField("dim_value") else "?"
        for dim in value.type.tensor_type.shape.dim
    ]


def _known(value: ValueInfoProto, bindings: Mapping[str, int]) -> Known:
    """What the file itself says of a value under `bindings`; only a last resort (GRAPHS 3)."""
    if not value.type.HasField("tensor_type"):
        return Known("", None)
    dtype = dtype_name(value.type.tensor_type.elem_type)
    declared = _declared(value)
    if declared is None:
        return Known(dtype, None)
    shape = [e if isinstance(e, int) else symbolic.evaluate(e, bindings) for e in declared]
    if any(extent is None or extent < 0 for extent in shape):
        return Known(dtype, None)
    return Known(dtype, tuple(extent for extent in shape if extent is not None))


# ---------------------------------------------------------------- writing it down


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
        _text(proto.op_type),
        _text("" if proto.domain == "ai.onnx" else proto.domain),
        proto.name,
        node.identity,
        node.version,
        [shown(name) for name in proto.input],
        list(proto.output),
        [shown(name) for name in captured],
        {attribute.name: _attribute(attribute) for attribute in proto.attribute},
        _scope(node),
        node.reason,
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
            _text(t)[:40] for t in list(counts)[:8]
        )
    return AttributeProto.AttributeType.Name(kind).lower()


def _scope(node: FileNode) -> list[str]:
    """The block path: torch's name scopes, else a path in the node's name; outermost first."""
    name = node.proto.name
    scopes = next((e.value for e in node.proto.metadata_props if e.key == "pkg.torch.onnx.name_scopes"), "")
    path = list(node.scope)
    if path:
        pass
    elif scopes:
        path = _torch_scope(scopes)
    elif "/" in name and len(name) < 1000:
        path = [part for part in name.split("/")[:-1] if part]
    return [_text(part) for part in path]


def _torch_scope(written: str) -> list[str]:
    """``['', 'm', 'm.layers.0', 'm.layers.0.mlp', 'mul_3']`` is m / layers.0 / mlp; the last is the node."""
    path: list[str] = []
    before = ""
    for scope in filter(None, _QUOTED.findall(written[:_NAME_LIMIT])[:-1]):
        path.append(scope.removeprefix(f"{before}.") if before else scope)
        before = scope
    return path


def _text(value: str) -> str:
    return value if len(value) <= _NAME_LIMIT else value[:_NAME_LIMIT] + "…"
