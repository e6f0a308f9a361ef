"""Which shapes a person has to give because neither the file nor inference has them.

Knows the graph's values. What is asked for is the least: graph inputs without a shape, and results that are
unknown although everything they are made from is known; what lies behind follows from these.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnknownShapeError
from .graph import OperatorGraph, OpKind, TensorRole


@dataclass(frozen=True, slots=True)
class Missing:
    """One value without a shape: its name, what it is (``graph input``, or who writes it), and why it is unknown."""

    name: str
    what: str
    reason: str


def missing_shapes(graph: OperatorGraph) -> tuple[Missing, ...]:
    """In the order of the graph; inputs first. Values without a name cannot be given a shape and are left out."""
    out = [
        Missing(tensor.name, "graph input", "the file gives it no shape")
        for tensor in graph.tensors
        if tensor.role is TensorRole.INPUT and tensor.shape is None
    ]
    for operator in graph.operators:
        unknown = [a.tensor for a in operator.outputs if graph.tensors[a.tensor].shape is None]
        if unknown and all(graph.tensors[a.tensor].shape is not None for a in operator.inputs):
            reason = operator.reason or "its shape depends on values that are not known"
            what = f"{operator.op_type} {operator.name}"
            out += [Missing(graph.tensors[tensor].name, what, reason) for tensor in unknown]
    return tuple(missing for missing in out if missing.name)


def require_sizes(graph: OperatorGraph) -> None:
    """Refuse a graph of which nothing can be counted: no operator works on a tensor whose shape is known.

    Raises
    ------
    UnknownShapeError : it says which shapes are missing, and how to give them.
    """
    working = [operator for operator in graph.operators if operator.kind is not OpKind.VIEW]
    if not working or any(
        graph.tensors[access.tensor].shape is not None
        for operator in working
        for access in (*operator.inputs, *operator.outputs)
    ):
        return
    missing = missing_shapes(graph)
    count = f"{len(working):,} operators" if len(working) > 1 else "operator"
    inputs = [one for one in missing if one.what == "graph input"]
    if inputs:
        asked = ",".join(f"shape:{one.name}=1x3x224x224" for one in inputs[:3])
        more = f" and {len(inputs) - 3} more" if len(inputs) > 3 else ""
        lever = f"Give it the shapes of its inputs{more}, e.g. --bind {asked}, or write them into the file."
    else:
        first = working[0]
        why = first.reason or "nothing is known of it"
        lever = f"Write its inputs into the file, with their shapes: {first.name}: {why}."
    raise UnknownShapeError(
        f"the shape of no tensor is known, so there is nothing to count in its {count}",
        where=graph.path or graph.name,
        lever=lever,
    )
