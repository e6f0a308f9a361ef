"""Write a plan: the starting one, the unfused one, a saved one or groups as text, and fuse, split and cut in it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import PlanError, UsageError
from ..graph.bindings import parse_bindings
from ..graph.graph import OperatorGraph
from ..graph.load import load_graph
from ..plan import edits
from ..plan.file import load_plan, plan_digest, plan_document, save_plan
from ..plan.legality import Refusal, check, named
from ..plan.notation import from_text, operator_called, to_text
from ..plan.plan import Plan
from ..plan.starting import starting_plan
from ..schema import must_be_writable
from ..terminal import TOOL, print_json
from .inspect import groups_text
from .simulate import ROWS

Edit = tuple[str, list[str]]
"""One edit of the command line: its option and the operators that it names."""


class _Next(argparse.Action):
    """Adds an edit to those before it, whatever their kind: they are made in the order in which they are written."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.edits = [*namespace.edits, (option_string, list(values or ()))]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph",
        help="a model file (ONNX, .pt2, StableHLO, HLO, DOT), or the name of a sample (`tilewright samples`)",
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    begin = parser.add_argument_group(
        "what to begin with (none: the file's own fusions (HLO), else contractions with their tails)"
    ).add_mutually_exclusive_group()
    begin.add_argument("--plan", default=None, help="a saved plan or a packaged one; its knobs are kept")
    begin.add_argument("--unfused", action="store_true", help="every operator alone")
    begin.add_argument(
        "--groups", default=None, metavar="TEXT", help="'[A B] [C D]'; what it does not name is alone"
    )
    how = parser.add_argument_group("edits, made in the order in which they are written")
    for option, count, metavar, text in (
        ("--fuse", "+", "OP", "the groups of these operators become one"),
        ("--split", "+", "OP", "these operators leave their groups and form one of their own"),
        ("--toggle", 2, ("PRODUCER", "CONSUMER"), "fuse across this edge; inside a group, cut there"),
    ):
        how.add_argument(
            option, nargs=count, action=_Next, dest="edits", default=[], metavar=metavar, help=text
        )
    how.add_argument(
        "--complete",
        action="store_true",
        help="where an edit needs further operators to be legal, take them as well and say which",
    )
    parser.add_argument("-o", "--output", default=None, metavar="PLAN", help="write the plan to this file")
    parser.add_argument("--all", action="store_true", help="list every group")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Make the plan, write it and print its groups; 0."""
    if arguments.output is not None:
        must_be_writable(arguments.output, arguments.graph)
    graph = load_graph(arguments.graph, parse_bindings(arguments.bind))
    plan, source = _begun(graph, arguments)
    said = [f"began with {source}: {_counted(plan)}"]
    for edit in arguments.edits:
        plan, added = _edited(graph, plan, edit, arguments.complete)
        said.append(f"{' '.join((edit[0], *edit[1]))}: {_counted(plan)}")
        if added:
            said.append(f"  taken as well: {_listed(graph, added)}")
    if arguments.output is not None:
        save_plan(Path(arguments.output), graph, plan)
    if arguments.json:
        print_json(
            {
                "format": 1,
                "tool": TOOL,
                "inputs": {"graph": {"path": graph.path, "digest": graph.digest}, "began_with": source},
                "digest": plan_digest(graph, plan),
                "text": to_text(graph, plan),
                "plan": plan_document(graph, plan),
            }
        )
        return 0
    from ..cost.described import groups_document  # the cost room loads only where dims are shown

    print(f"{graph.name}: {len(graph.operators):,} operators in {_counted(plan)}")
    print("\n".join(said) + "\n")
    print(groups_text(groups_document(graph, plan), len(plan.groups) if arguments.all else ROWS))
    print(
        f"\nwritten: {arguments.output}"
        if arguments.output
        else "\nnot written: give -o PLAN to keep the plan"
    )
    return 0


def _begun(graph: OperatorGraph, arguments: argparse.Namespace) -> tuple[Plan, str]:
    """The plan before any edit, and what it is."""
    if arguments.plan is not None:
        return load_plan(arguments.plan, graph), arguments.plan
    if arguments.unfused:
        return edits.unfused(graph), "every operator alone"
    if arguments.groups is not None:
        plan = from_text(graph, arguments.groups)
        if (refusal := check(graph, plan)) is not None:
            fix = _listed(graph, refusal.completing)
            raise PlanError(
                f"{refusal.where}: {refusal.what}",
                where="--groups",
                lever=f"Add {fix}, or split the group." if fix else refusal.lever,
            )
        return plan, "the groups of --groups"
    start = starting_plan(graph)
    for sentence in start.refused:
        print(f"note: {sentence}", file=sys.stderr)
    return start.plan, start.source


def _edited(graph: OperatorGraph, plan: Plan, edit: Edit, complete: bool) -> tuple[Plan, tuple[int, ...]]:
    """The plan after one edit, and the operators that joined because it would not be legal without.

    Raises
    ------
    PlanError, UsageError : no such operator or edge, or the edit is not legal; with what to write instead.
    """
    option, names = edit
    operators = [operator_called(graph, name, option) for name in names]
    try:
        if option == "--fuse":
            if len(set(operators)) < 2:
                raise UsageError(f"{option} {names[0]} joins nothing", lever="Name two operators or more.")
            return edits.fuse(graph, plan, operators), ()
        if option == "--split":
            return edits.split(graph, plan, operators), ()
        return edits.toggle(graph, plan, *operators), ()
    except Refusal as refusal:
        if refusal.fix is None:
            raise PlanError(
                f"{refusal.where}: {refusal.what}", where=option, lever=refusal.lever
            ) from refusal
        if complete:
            return refusal.fix, refusal.completing
        raise PlanError(
            f"{refusal.where}: {refusal.what}",
            where=option,
            lever=f"Take {_listed(graph, refusal.completing)} as well: name them, or give --complete.",
        ) from refusal


def _counted(plan: Plan) -> str:
    count = len(plan.groups)
    return f"{count:,} group{'s' * (count != 1)}"


def _listed(graph: OperatorGraph, operators: Sequence[int], most: int = 8) -> str:
    """Names of operators, those beyond `most` counted."""
    more = f" and {len(operators) - most} more" if len(operators) > most else ""
    return ", ".join(named(graph, operator) for operator in operators[:most]) + more
