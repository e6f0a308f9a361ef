"""Plan files: the JSON of CONTRACT, to and from a `Plan`.

Only knobs are in the file: what the tool chose is chosen again. Knows the file format and the names of
operators, and leaves tiles, dims and memories to the cost room, which knows the machine.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ..errors import FileError, PlanError
from ..graph.dtypes import PRECISIONS
from ..graph.graph import OperatorGraph
from ..packaged import input_file
from ..schema import MOST_FAULTS, Count, Index, Name, Strict, read_bytes, read_json, write_whole
from .legality import check, named
from .notation import find_operator, suggestion
from .plan import FusionGroup, LevelTile, Plan
from .recompute import recompute, why_not

_LARGEST_PLAN_BYTES = 64 << 20  # ten times the plan of a model with 20,000 operators

_LongName = Annotated[
    str, Field(min_length=1)
]  # names of operators and tensors are as long as files make them


class _Level(Strict):
    tile: dict[Name, Count] = Field(default_factory=dict)
    loop_order: list[Name] = Field(default_factory=list)
    retain: dict[_LongName, Index] = Field(default_factory=dict)


class _Group(Strict):
    operators: Annotated[list[_LongName], Field(min_length=1)]
    levels: dict[Name, _Level] = Field(default_factory=dict)
    elements: list[Name] = Field(default_factory=list)
    tree: str | None = None
    parallel: dict[Name, Count] = Field(default_factory=dict)
    split_reduction: dict[Name, Count] = Field(default_factory=dict)
    stages: Count | None = None
    threads: Count | None = None
    precision: str | None = None
    sparsity: str | None = None
    halo: Literal["retain", "retain-rows", "recompute"] | None = None
    recompute: list[_LongName] = Field(default_factory=list)
    pinned: list[_LongName] = Field(default_factory=list)

    @field_validator("precision")
    @classmethod
    def _known_precision(cls, value: str | None) -> str | None:
        if value is not None and value not in PRECISIONS:
            raise ValueError(f"unknown precision {value!r}; known are {', '.join(PRECISIONS)}")
        return value


class _Plan(Strict):
    format: Literal[1]
    graph: str | None = None
    groups: list[_Group] = Field(default_factory=list)


def load_plan(path: str | Path, graph: OperatorGraph) -> Plan:
    """The plan in a file, else the packaged one of that name, for this graph; operators it does not name stand alone.

    Raises
    ------
    FileError : not readable, faults with their paths, another graph, unknown operators, an illegal group, a tensor
        that cannot be computed again.
    """
    path = input_file(
        path,
        "assets/plans",
        ".json",
        "no such plan file, and no packaged plan of that name",
        "Give a plan that was saved, or a name that `tilewright samples` lists.",
    )
    where = str(path)
    document = read_json(read_bytes(path, _LARGEST_PLAN_BYTES), _Plan, where)
    if document.graph is not None and document.graph != graph.digest:
        raise FileError(
            f"was made for another graph ({_short(document.graph)}; {graph.name} is {_short(graph.digest)})",
            where=where,
            lever=f'Open that graph, or, if the operators are the same, write "graph": "{graph.digest}".',
        )
    members = _members(graph, document, where)
    groups = [_group(group, operators) for group, operators in zip(document.groups, members, strict=True)]
    named_there = {operator for operators in members for operator in operators}
    groups += [FusionGroup((o.index,)) for o in graph.operators if o.index not in named_there]
    plan = Plan.of(groups)
    if (refusal := check(graph, plan)) is not None:
        index = next(i for i, operators in enumerate(members) if refusal.operators[0] in operators)
        fix = ", ".join(named(graph, operator) for operator in refusal.completing[:5])
        raise FileError(
            f"{refusal.where}: {refusal.what}",
            where=f"{where}: groups[{index}]",
            lever=f"Add {fix} or split the group." if fix else "Split the group.",
        ) from refusal
    return _recomputing(graph, document, plan, where)


def save_plan(path: str | Path, graph: OperatorGraph, plan: Plan) -> None:
    """Write the plan; the file appears whole or not at all. One line a group, so that files can be compared.

    Raises
    ------
    FileError : the file cannot be written.
    """
    write_whole(Path(path), _text(plan_document(graph, plan)).encode("utf-8"))


def plan_document(graph: OperatorGraph, plan: Plan) -> dict[str, Any]:
    """The plan as CONTRACT's JSON object: every group, and of its knobs those that the user set."""
    return {
        "format": 1,
        "graph": graph.digest,
        "groups": [_group_document(graph, group) for group in plan.groups],
    }


def plan_digest(graph: OperatorGraph, plan: Plan) -> str:
    """``sha256:...`` of the plan's file: equal for equal plans of one graph."""
    return f"sha256:{hashlib.sha256(_text(plan_document(graph, plan)).encode('utf-8')).hexdigest()}"


def _text(document: dict[str, Any]) -> str:
    lines = ",\n".join(f"  {json.dumps(group, ensure_ascii=False)}" for group in document["groups"])
    head = json.dumps({key: document[key] for key in ("format", "graph")}, ensure_ascii=False)[1:-1]
    return f'{{{head},\n "groups": [\n{lines}\n]}}\n'


def _group_document(graph: OperatorGraph, group: FusionGroup) -> dict[str, Any]:
    document: dict[str, Any] = {"operators": [graph.operators[operator].name for operator in group.operators]}
    if group.levels:
        document["levels"] = {
            level.memory: {
                key: value
                for key, value in (
                    ("tile", dict(level.tile)),
                    ("loop_order", list(level.loop_order)),
                    ("retain", dict(level.retain)),
                )
                if value
            }
            for level in group.levels
        }
    for key in ("parallel", "split_reduction"):
        if value := getattr(group, key):
            document[key] = dict(value)
    for key in ("elements", "recompute", "pinned"):
        if value := getattr(group, key):
            document[key] = list(value)
    for key in ("tree", "stages", "threads", "precision", "sparsity", "halo"):
        if value := getattr(group, key):
            document[key] = value
    return document


def _members(graph: OperatorGraph, document: _Plan, where: str) -> list[tuple[int, ...]]:
    """Per group of the file its operators, ascending; every unknown or repeated name is a fault."""
    faults: list[str] = []
    lever = ""
    first: dict[int, str] = {}
    members: list[tuple[int, ...]] = []
    for i, group in enumerate(document.groups):
        found: list[int] = []
        for j, name in enumerate(group.operators):
            operator = find_operator(graph, name)
            path = f"groups[{i}].operators[{j}]"
            if operator is None:
                faults.append(f"{path}: there is no operator {name[:80]!r}")
                lever = lever or suggestion(graph, name)
            elif operator in first:
                faults.append(f"{path}: {named(graph, operator)} is in {first[operator]} already")
            else:
                first[operator] = path
                found.append(operator)
        members.append(tuple(sorted(found)))
    if faults:
        raise FileError(_several(faults), where=where, lever=lever)
    return members


def _recomputing(graph: OperatorGraph, document: _Plan, plan: Plan, where: str) -> Plan:
    """The plan with the tensors that the file computes again, each listed by the group that makes it."""
    number = {tensor.name: tensor.index for tensor in graph.tensors}
    faults: list[str] = []
    found: list[int] = []
    lever = ""
    for i, group in enumerate(document.groups):
        for j, name in enumerate(group.recompute):
            path = f"groups[{i}].recompute[{j}]"
            if name not in number:
                saved = [graph.tensors[tensor].name for tensor in graph.saved]
                close = difflib.get_close_matches(name[:80], saved, 1, 0.5)
                lever = lever or (f"Did you mean {close[0]!r}?" if close else "")
                faults.append(f"{path}: there is no tensor {name[:80]!r}")
            elif why := why_not(graph, number[name]):
                faults.append(f"{path}: {name[:80]!r} cannot be computed again: {why}")
            else:
                found.append(number[name])
    if faults:
        raise FileError(_several(faults), where=where, lever=lever or "Take it out of the list.")
    try:
        return recompute(graph, plan, found)
    except PlanError as fault:
        raise FileError(f"{fault.where}: {fault.what}", where=where, lever=fault.lever) from fault


def _several(faults: list[str]) -> str:
    """Faults in one sentence, the first ones in full."""
    more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
    return "; ".join(faults[:MOST_FAULTS]) + more


def _group(group: _Group, operators: tuple[int, ...]) -> FusionGroup:
    return FusionGroup(
        operators,
        levels=tuple(
            LevelTile(memory, tuple(level.tile.items()), tuple(level.loop_order), tuple(level.retain.items()))
            for memory, level in group.levels.items()
            if level != _Level()
        ),
        elements=tuple(group.elements),
        tree=group.tree or "",
        parallel=tuple(group.parallel.items()),
        split_reduction=tuple(group.split_reduction.items()),
        stages=group.stages or 0,
        threads=group.threads or 0,
        precision=group.precision or "",
        sparsity=group.sparsity or "",
        halo=group.halo or "",
        pinned=tuple(group.pinned),
    )


def _short(digest: str) -> str:
    return digest if len(digest) <= 19 else f"{digest[:19]}…"
