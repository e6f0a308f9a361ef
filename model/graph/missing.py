"""Which shapes a person has to give because neither the file nor inference has them.

Knows the graph's values. What is asked for is the least: graph inputs without a shape, and results that are
unknown although everything they are made from is known; what lies behind follows from these.
"""

from __future__ import annotations

from dataclasses import dataclass

from .graph import OperatorGraph, TensorRole


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
