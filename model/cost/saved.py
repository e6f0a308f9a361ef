"""Saved activations of a training step: what the forward pass leaves in DRAM for the backward pass, and for how long.

Knows a graph's two passes, a plan and the order of its launches; knows no tiles and no time. One law for what is saved
and for what is computed again: a tensor is held from the launch that makes it to the last launch of the backward pass
that reads it. A tensor whose readers of the backward pass all run in the group that makes it never leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import bytes_of
from ..graph.graph import OperatorGraph, OpKind
from ..plan.plan import Plan
from .result import SavedTensor


def saved_tensors(
    graph: OperatorGraph,
    plan: Plan,
    order: Sequence[int],
    forward: NDArray[np.bool_],
    candidates: Sequence[int],
    bits: Callable[[int, str], int],
) -> list[SavedTensor]:
    """The tensors among `candidates` that another group of the backward pass reads, in the order of `candidates`.

    Parameters
    ----------
    order : groups as they are launched.
    forward : per operator whether it is of the forward pass.
    candidates : tensors that are no views.
    bits : of one element of a tensor, at a precision.
    """
    rank = np.empty(len(order), np.int64)
    rank[list(order)] = np.arange(len(order))
    names: dict[int, list[int]] = {tensor: [tensor] for tensor in candidates}
    out: list[SavedTensor] = []
    for tensor, shown in names.items():
        made = int(plan.membership[graph.producer[tensor]])
        last = -1
        for name in shown:
            for reader in graph.consumers[name]:
                operator, group = graph.operators[reader], int(plan.membership[reader])
                if operator.kind is OpKind.VIEW:
                    if operator.inputs[0].tensor == name:
                        shown.extend(access.tensor for access in operator.outputs)
                elif not forward[reader] and group != made and (last < 0 or rank[group] > rank[last]):
                    last = group
        if last >= 0:
            size = bytes_of(graph.tensors[tensor].elements or 0, bits(tensor, plan.groups[made].precision))
            out.append(SavedTensor(tensor, size, made, last))
    return out


def peak_bytes(saved: Sequence[SavedTensor], order: Sequence[int]) -> int:
    """The most that is held at one time: a tensor counts from the launch that makes it to the last that reads it."""
    rank = {group: place for place, group in enumerate(order)}
    change = np.zeros(len(order) + 1, np.int64)
    for one in saved:
        change[rank[one.made]] += one.bytes
        change[rank[one.last] + 1] -= one.bytes
    return int(change.cumsum().max(initial=0))
