"""What of a training file is its forward pass, and what that leaves behind for the backward pass.

A file does not say where its forward pass ends: this does, from index maps and reachability alone. Knows the graph;
knows no plan and no machine.

A weight ``W`` is *trained* where one contraction ``y = a W`` reads it and a later one, which depends on ``y``, reads
the same ``a`` and writes as many elements as ``W`` has: its gradient, ``a^T dy`` (Rumelhart, Hinton, Williams 1986). An
optimizer operator (`ai.onnx.preview.training`) says outright what it trains. The forward pass is what the loss needs:
the first output of one floating-point element that depends on the last trained weight's ``y`` and on no gradient;
in a file that hands out no loss, that last ``y`` itself. Everything else is the backward pass and the update.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

if TYPE_CHECKING:
    from .graph import Operator, OperatorGraph

OPTIMIZERS = "ai.onnx.preview.training"
"""The domain of Adam, Adagrad, Momentum and Gradient."""

_SAME_NUMBERS = frozenset(
    {"Transpose", "Cast", "Identity"}
)  # and views: each element once, in another place or width
_FLOATS = ("float", "bfloat")


def forward_pass(graph: OperatorGraph) -> NDArray[np.bool_] | None:
    """bool[operators]: which belong to the forward pass; None where the graph trains nothing."""
    source = _sources(graph)
    trained, gradient = _last_gradient(graph, source)
    made = [] if trained < 0 else [gradient]
    steps = [o.index for o in graph.operators if o.domain == OPTIMIZERS]
    if steps:
        told = {source[a.tensor] for i in steps for a in graph.operators[i].inputs}
        first: dict[int, int] = {}  # the backward pass reads a weight as well, and later
        for operator in graph.operators:
            if operator.kind == "contraction":
                for tensor in {source[access.tensor] for access in operator.inputs} & told:
                    if graph.producer[tensor] < 0:
                        first.setdefault(tensor, operator.index)
        trained = max([trained, *first.values()])
    if trained < 0:
        return None
    late = _downstream(graph, made + steps)
    after = _downstream(graph, [trained])
    ends = [trained]
    for tensor in graph.tensors:
        end = int(graph.producer[tensor.index])
        scalar = tensor.is_output and tensor.elements == 1 and tensor.dtype.startswith(_FLOATS)
        if scalar and end >= 0 and after[end] and not late[end]:
            ends.append(end)
            break
    return _upstream(graph, ends)


def saved_tensors(graph: OperatorGraph) -> tuple[int, ...]:
    """The saved activations: tensors of the forward pass that an operator of the backward pass reads, ascending.

    A view stands for what it views. Inputs, weights and folded constants are there anyway and are none of them.
    """
    forward = graph.forward
    if forward is None:
        return ()
    found: set[int] = set()
    for operator in graph.operators:
        if forward[operator.index] or operator.kind == "view":
            continue
        for access in operator.inputs:
            root = graph.roots[access.tensor]
            if (made := int(graph.producer[root])) >= 0 and forward[made]:
                found.add(root)
    return tuple(sorted(found))


def _last_gradient(graph: OperatorGraph, source: list[int]) -> tuple[int, int]:
    """The last contraction that reads a trained weight, and the one that makes its gradient; -1 where there is none.

    From the end on, and only between the two: a look at every pair would take seconds of a large graph.
    """
    contractions = [o for o in graph.operators if o.kind == "contraction" and len(o.inputs) > 1]
    readers: dict[int, list[Operator]] = {}
    for operator in contractions:
        for tensor in {source[access.tensor] for access in operator.inputs[:2]}:
            readers.setdefault(tensor, []).append(operator)
    for operator in reversed(contractions):
        operands = [source[access.tensor] for access in operator.inputs[:2]]
        for weight, other in (operands, operands[::-1]):
            elements = graph.tensors[weight].elements
            if graph.producer[weight] >= 0 or graph.tensors[other].role == "weight" or weight == other:
                continue
            for later in readers[other]:
                alike = bool(elements) and graph.tensors[later.outputs[0].tensor].elements == elements
                if alike and _leads(graph, operator.index, later.index):
                    return operator.index, later.index
    return -1, -1


def _leads(graph: OperatorGraph, one: int, other: int) -> bool:
    """Whether operator `other` depends on `one`."""
    start, target = graph.successors
    found = {one}
    for index in range(one, other):
        if index in found:
            found.update(target[start[index] : start[index + 1]].tolist())
    return other in found and other > one


def _sources(graph: OperatorGraph) -> list[int]:
    """Per tensor the one whose numbers it holds in another order, shape or width; itself where there is none."""
    out = list(range(len(graph.tensors)))
    for operator in graph.operators:
        if operator.inputs and (operator.kind == "view" or operator.op_type in _SAME_NUMBERS):
            for access in operator.outputs:
                out[access.tensor] = out[operator.inputs[0].tensor]
    return out


def _downstream(graph: OperatorGraph, operators: list[int]) -> NDArray[np.bool_]:
    """bool[operators]: these and whatever depends on them. Operators are in topological order."""
    out = np.zeros(len(graph.operators), np.bool_)
    out[operators] = True
    start, target = graph.successors
    for index in range(min(operators, default=len(out)), len(out)):
        if out[index]:
            out[target[start[index] : start[index + 1]]] = True
    return out


def _upstream(graph: OperatorGraph, operators: list[int]) -> NDArray[np.bool_]:
    """bool[operators]: these and whatever they depend on."""
    out = np.zeros(len(graph.operators), np.bool_)
    out[operators] = True
    start, target = graph.successors
    for index in range(max(operators, default=-1), -1, -1):
        out[index] |= out[target[start[index] : start[index + 1]]].any()
    return out


def forward_only(graph: OperatorGraph) -> OperatorGraph:
    """The forward pass alone, as inference runs it: what the backward pass would read is no longer kept.

    Outputs are what the graph hands out of the forward pass, and what its operators make and none of them reads.

    Raises
    ------
    UsageError : the graph trains nothing.
    """
    forward = graph.forward
    if forward is None:
        raise UsageError(
            "holds no backward pass, so all of it is the forward pass",
            where=graph.path or graph.name,
            lever="Leave --forward out.",
        )
    kept = [operator for operator in graph.operators if forward[operator.index]]
    touched = sorted({access.tensor for o in kept for access in (*o.inputs, *o.outputs)})
    number = {tensor: index for index, tensor in enumerate(touched)}
    read = {access.tensor for operator in kept for access in operator.inputs}
    made = [access.tensor for operator in kept for access in operator.outputs]
    ends = {tensor for tensor in made if tensor not in read}
    return replace(
        graph,
        name=f"{graph.name}, forward",
        digest=f"{graph.digest}#forward",
        tensors=tuple(
            replace(graph.tensors[t], index=number[t], is_output=graph.tensors[t].is_output or t in ends)
            for t in touched
        ),
        operators=tuple(
            replace(
                operator,
                index=index,
                inputs=tuple(replace(a, tensor=number[a.tensor]) for a in operator.inputs),
                outputs=tuple(replace(a, tensor=number[a.tensor]) for a in operator.outputs),
            )
            for index, operator in enumerate(kept)
        ),
        fusions=(),
    )
