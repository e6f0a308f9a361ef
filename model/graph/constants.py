"""Constants of a file as facts: initializers and Constant nodes, their dims, types and small payloads.

Runs in the reader's child process. Payloads are read only where they are small and inside the file; external data
is never opened, and a location outside the model's folder is reported.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto

from .dtypes import BITS
from .functions import FileNode
from .inference import dtype_name
from .known import Known
from .wiring import Warnings

VALUES_LIMIT = 4096  # elements of a constant that the table may look at (axes, pads, indices)


def take_constants(
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
