"""What groups and operators are called on screen: one place, so that canvas, panels and messages agree.

Knows the graph's values. A group's number is its place in the plan (groups are sorted by first operator); its
colour follows its first operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.cost.result import CostResult
from model.graph.graph import OperatorGraph, OpKind
from model.plan.plan import Plan, group_name

SHOWN_TYPES = 4


def first_operators(plan: Plan) -> NDArray[np.int64]:
    """Per group its first operator, without a walk over tens of thousands of groups."""
    label = plan.membership
    out = np.zeros(len(plan.groups), dtype=np.int64)
    out[label[::-1]] = np.arange(
        len(label) - 1, -1, -1
    )  # of several the last one written stays: the first operator
    return out


def result_tints(result: CostResult, colours: int) -> NDArray[np.int64]:
    """`group_tints` of a result's plan; a replay has the colour of the group that it runs again."""
    tints = group_tints(result.request.plan, colours)
    again = [group.replays for group in result.groups[len(tints) :]]
    return np.concatenate([tints, tints[again]]) if again else tints


def group_tints(plan: Plan, colours: int) -> NDArray[np.int64]:
    """Per group the index of its colour, below `colours`.

    It follows the group's first operator: an edit leaves the colours of all other groups alone, but where two
    neighbours in the plan would be alike.
    """
    first = first_operators(plan)
    tints = (first + first // 8 * 3 + first // 64 * 5) % colours  # groups of equal size differ as well
    alike = np.flatnonzero(tints[1:] == tints[:-1]) + 1
    tints[alike] = (tints[alike] + 3) % colours
    return tints


def operator_types(graph: OperatorGraph, operators: Iterable[int]) -> str:
    """``MatMul Silu MatMul Mul``, at most four types and how many more; views are left out."""
    members = [graph.operators[o] for o in operators]
    shown = [o.op_type for o in members if o.kind is not OpKind.VIEW] or [o.op_type for o in members]
    more = len(shown) - SHOWN_TYPES
    return " ".join(shown[:SHOWN_TYPES]) + (f" +{more}" if more > 0 else "")


def group_label(graph: OperatorGraph, index: int, operators: Sequence[int], replays: int = -1) -> str:
    """``G3  MatMul Silu MatMul Mul``; one operator by its own name. ``replays``: the group that runs again here."""
    again = f"  {group_name(replays)} again:" if replays >= 0 else ""
    if len(operators) == 1:
        return f"{group_name(index)}{again}  {graph.operators[operators[0]].name}"
    return f"{group_name(index)}{again}  {operator_types(graph, operators)}"


def result_label(result: CostResult, index: int) -> str:
    """`group_label` of a group of a result."""
    group = result.groups[index]
    return group_label(result.request.graph, index, group.operators, group.replays)


def operator_list(graph: OperatorGraph, operators: Sequence[int], most: int = 6) -> str:
    """``MatMul_4, Add_5 and 3 more``: for sentences."""
    names = [graph.operators[o].name for o in operators[:most]]
    more = len(operators) - len(names)
    if more > 0:
        return f"{', '.join(names)} and {more:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
