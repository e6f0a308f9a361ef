"""One fusion group cut out of its graph, as a graph of its own.

A group's cost does not depend on the other groups, so trying many tiles of it need not compute them.
Knows the graph's values only.
"""

from __future__ import annotations

from dataclasses import replace

from model.graph.graph import Access, OperatorGraph, TensorRole


def cut_out(graph: OperatorGraph, operators: tuple[int, ...]) -> OperatorGraph:
    """The graph of `operators` alone: what they read from outside is an input, what is read outside an output."""
    inside = set(operators)
    tensors: dict[int, int] = {}
    for number in operators:
        operator = graph.operators[number]
        for access in (*operator.inputs, *operator.outputs):
            tensors.setdefault(access.tensor, len(tensors))

    def renumbered(accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        return tuple(replace(access, tensor=tensors[access.tensor]) for access in accesses)

    kept = []
    for old, new in tensors.items():
        tensor = graph.tensors[old]
        made_here = int(graph.producer[old]) in inside
        role = tensor.role
        if role is TensorRole.ACTIVATION and not made_here:
            role = TensorRole.INPUT
        leaves = tensor.is_output or any(reader not in inside for reader in graph.consumers[old])
        kept.append(replace(tensor, index=new, role=role, is_output=made_here and leaves))
    members = tuple(
        replace(
            graph.operators[old],
            index=new,
            inputs=renumbered(graph.operators[old].inputs),
            outputs=renumbered(graph.operators[old].outputs),
        )
        for new, old in enumerate(operators)
    )
    return OperatorGraph(f"{graph.name}, one group", tuple(kept), members, bindings=graph.bindings)
