"""Partitions as one line of text: ``[MatMul_0 Relu_1] [Softmax_2]``.

For tests, messages and notes. Groups are brackets, operators are names; a name that holds a blank, a
bracket or a quote stands in double quotes, escaped as in JSON. Knobs are not in it (`file.py` has them), and
what it says need not be legal (`legality.check`).
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches

from ..errors import PlanError
from ..graph.graph import OperatorGraph
from .plan import FusionGroup, Plan

_TOKEN = re.compile(r'\s*(\[|\]|"(?:[^"\\]|\\.)*"|[^\s\[\]"]+|.)', re.DOTALL)
_PLAIN = re.compile(r'[^\s\[\]"]+')


def to_text(graph: OperatorGraph, plan: Plan) -> str:
    """The partition with every operator by its name; groups and operators in the plan's order."""
    return " ".join(
        f"[{' '.join(_quoted(graph.operators[operator].name) for operator in group.operators)}]"
        for group in plan.groups
    )


def from_text(graph: OperatorGraph, text: str) -> Plan:
    """The plan without knobs that `text` says; operators that it does not name stand alone.

    An operator goes by its name, by ``<OpType>_<index>``, or by its type where the graph has one such.

    Raises
    ------
    PlanError : an unknown or repeated operator, or brackets that do not match; with the place in the text.
    """
    found: list[list[int]] = []
    seen: set[int] = set()
    inside = False
    for match in _TOKEN.finditer(text.rstrip()):
        token, where = match.group(1), f"plan text, character {match.start(1) + 1}"
        if token == "[" and not inside:
            inside = True
            found.append([])
        elif token == "]" and inside and found[-1]:
            inside = False
        elif token in "[]" or not inside:
            raise PlanError(f"{token!r} is out of place", where=where, lever="Write [A B] [C].")
        else:
            operator = operator_called(graph, _name(token, where), where)
            if operator in seen:
                raise PlanError(f"operator {token} is named twice", where=where)
            seen.add(operator)
            found[-1].append(operator)
    if inside:
        raise PlanError("the last [ is not closed", where="plan text", lever="Write [A B] [C].")
    alone = [[operator.index] for operator in graph.operators if operator.index not in seen]
    return Plan.of([FusionGroup(tuple(sorted(members))) for members in found + alone])


def find_operator(graph: OperatorGraph, name: str) -> int | None:
    """The operator with this name, or ``<OpType>_<index>``; None where there is none."""
    return graph.operator_by_name.get(name)


def suggestion(graph: OperatorGraph, name: str) -> str:
    """A lever for an unknown operator name: what it may have meant."""
    close = get_close_matches(name, graph.operator_by_name, n=1)
    return f"Did you mean {close[0]!r}?" if close else "`tilewright inspect` lists the operators."


def operator_called(graph: OperatorGraph, name: str, where: str) -> int:
    """The operator that a person means: by its name, by ``<OpType>_<index>``, or by its type where there is one such.

    Raises
    ------
    PlanError : none, or several of that type; `where` is where the name stands.
    """
    operator = find_operator(graph, name)
    if operator is not None:
        return operator
    alike = [operator.index for operator in graph.operators if operator.op_type == name]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise PlanError(f"{len(alike)} operators are a {name}", where=where, lever="Use the names.")
    raise PlanError(f"there is no operator {name[:80]!r}", where=where, lever=suggestion(graph, name))


def _name(token: str, where: str) -> str:
    """The name that a token of the text says, its quotes taken off."""
    try:
        return json.loads(token) if token.startswith('"') else token
    except ValueError:
        raise PlanError(f"{token} is not a quoted name", where=where) from None


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
