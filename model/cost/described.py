"""Groups of a plan as loop nests, before any machine: their dims and a loop tree, as ``inspect --plan`` shows them.

Knows group spaces and trees; knows no tile and no machine.
"""

from __future__ import annotations

from typing import Any

from ..graph.graph import OperatorGraph
from ..plan.plan import FusionGroup, Plan, group_name
from .tree import canonical, plain_name, to_text
from .unify import GroupSpace, unify


def groups_document(graph: OperatorGraph, plan: Plan) -> list[dict[str, Any]]:
    """Per group: its operators, dims, which of its dims each operator's dims are, and its loop tree.

    The tree is the plan's where the plan has one; else the canonical tree of the dims in their order, ``"chosen":
    True``: what the tool takes depends on the machine.
    """
    return [_group(graph, group, index) for index, group in enumerate(plan.groups)]


def _group(graph: OperatorGraph, group: FusionGroup, index: int) -> dict[str, Any]:
    space = unify(graph, group.operators)
    members = [graph.operators[i] for i in group.operators]
    names = [member.name for member in members]
    return {
        "id": group_name(index),
        "operators": names,
        "dims": dict(zip(space.names, space.extents, strict=True)),
        "dim_of": {name: list(dims) for name, dims in zip(names, space.dim_of, strict=True)},
        "tree": group.tree or _canonical(graph, group, space),
        "chosen": not group.tree,
    }


def _canonical(graph: OperatorGraph, group: FusionGroup, space: GroupSpace) -> str:
    members = [graph.operators[group.operators[operator.member]] for operator in space.operators]
    # A loop over a reduction last: the sums of what is outside it are then complete where consumers run.
    reduced = {d for operator in space.operators for d in operator.reductions}
    order = sorted(range(len(space.names)), key=lambda d: d in reduced)
    return to_text(
        canonical(space, order),
        space.names,
        [plain_name(member.name, f"{member.op_type}_{member.index}") for member in members],
    )
