"""What can be found: every operator with its name, op type, shapes, dtype, attributes and tensor names.

Knows the graph. The index is built on the worker; searching it is one scan over plain text.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.graph.dtypes import SHORT
from model.graph.graph import Operator, OperatorGraph

from . import look


@dataclass(frozen=True, slots=True)
class Found:
    """One operator: what is shown beside its name, and the text that is searched (lower case)."""

    operator: int
    name: str
    remark: str
    words: str


def index(graph: OperatorGraph) -> tuple[Found, ...]:
    """One entry per operator, in file order."""
    return tuple(_entry(graph, operator) for operator in graph.operators)


def _entry(graph: OperatorGraph, operator: Operator) -> Found:
    tensors = [graph.tensors[a.tensor] for a in (*operator.inputs, *operator.outputs)]
    written = [graph.tensors[a.tensor] for a in operator.outputs]
    shape = look.fmt_shape(written[0].shape) if written else ""
    dtype = SHORT.get(written[0].dtype, written[0].dtype) if written else ""
    words = [operator.name, operator.op_type, operator.domain, operator.reason, *operator.scope]
    for tensor in tensors:
        words += [tensor.name, tensor.dtype, SHORT.get(tensor.dtype, "")]
        if tensor.shape is not None:
            words.append("x".join(str(extent) for extent in tensor.shape))
        if tensor.declared is not None:
            words.append("x".join(str(extent) for extent in tensor.declared))
    words += [f"{name}={value}" for name, value in operator.attributes]
    words += [f"{dim.name}={dim.extent}" for dim in operator.dims]
    remark = " · ".join(part for part in (operator.op_type, shape, dtype) if part)
    return Found(operator.index, operator.name, remark, " ".join(words).lower())
