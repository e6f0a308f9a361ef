"""If, Loop and Scan: what their nested graphs make of what goes in, how often they run, which branch is taken.

Runs in the reader's child process, inside the fixpoint of `inference.py`. A control-flow node stays a barrier whose
nested graphs are read like the file's own, with the outer values that they capture as inputs; the number of trips
and the taken branch are parameters that the user binds like symbolic dims (``trips:Loop#3``, ``branch:If#0``), as
far as the file does not settle them. A branch is written out in place of its If where the condition is a constant,
and where it is the larger part of the graph around it: a file whose whole model stands in one If is that model.

ONNX: If-1 to 25, Loop-1 to 25, Scan-9 to 25.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto, NodeProto, helper

from .constants import take_constants
from .functions import FileNode, Functions, free_names, path_of, rename
from .known import Known, Lookup
from .wiring import Warnings, Wiring

PREFIXES = ("trips:", "branch:")
_FOREVER = 2**31  # a Loop with more trips than this runs until its condition says so
_BRANCHES = ("then_branch", "else_branch")


@dataclass(slots=True)
class Entered:
    """What became of a control-flow node.

    Attributes
    ----------
    facts : what is known of its outputs.
    bodies : label, number of runs and answer of each nested graph, where it stays a barrier.
    nodes : what stands in its place, where its branch was written out; else None.
    constants : those of the branch that was written out.
    reason : why some output has no shape; empty where all have.
    """

    facts: dict[str, Known] = field(default_factory=dict)
    bodies: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    nodes: list[FileNode] | None = None
    constants: dict[str, Known] = field(default_factory=dict)
    reason: str = ""


class Parameters:
    """Trip counts and taken branches: what the user gave, what was assumed, in order of appearance."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self._given = {name: number for name, number in given.items() if name.startswith(PREFIXES)}
        self._owner: dict[str, str] = {}
        self.values: dict[str, int] = {}
        self.assumed: list[str] = []

    def of(self, kind: str, node: FileNode) -> int:
        """The number of trips of a Loop, or which branch of an If is taken; 1 where the user does not say.

        Nodes of one name are told apart by their place.
        """
        name = f"{kind}:{_title(node)}"
        if self._owner.setdefault(name, node.identity) != node.identity:
            name = f"{kind}:{node.proto.op_type}{node.identity}"
        if name not in self.values:
            self.values[name] = self._given.get(name, 1)
            if name not in self._given:
                self.assumed.append(name)
        return self.values[name]

    def unknown(self) -> list[str]:
        """Names that the user gave and nothing asked for."""
        return [name for name in self._given if name not in self.values]


# Reads a nested graph: the graph, its path, its inputs, the constants that it captures -> answer, outputs.
ReadBody = Callable[[GraphProto, str, dict[str, Known], dict[str, Known]], tuple[dict[str, Any], list[Known]]]


class Control:
    """Enters the control-flow nodes of one file."""

    def __init__(
        self, functions: Functions, parameters: Parameters, warnings: Warnings, read: ReadBody
    ) -> None:
        self._functions, self._parameters = functions, parameters
        self._warnings, self._read = warnings, read

    def enter(self, node: FileNode, look: Lookup, constant: set[str], around: int) -> Entered | None:
        """What becomes of `node`; None as long as the shape of something that it reads is unknown.

        Parameters
        ----------
        look, constant : what is known of outer values, and which of them are constants.
        around : nodes of the graph that holds it.
        """
        proto = node.proto
        graphs = {a.name: a.g for a in proto.attribute if a.HasField("g")}
        free = free_names(list(graphs.values()), inputs_too=proto.op_type == "If")
        if any(look(name).shape is None for name in (*proto.input, *free) if name):
            return None
        outer = _Outer(look, constant)
        if proto.op_type == "If" and set(_BRANCHES) <= set(graphs):
            return self._enter_if(node, graphs, outer, around)
        if proto.op_type == "Loop" and "body" in graphs and len(proto.input) >= 2:
            return self._enter_loop(node, graphs["body"], outer)
        if proto.op_type == "Scan" and "body" in graphs and node.version >= 9:
            return self._enter_scan(node, graphs["body"], outer)
        return Entered(reason="control flow of a form that is not modelled")

    # ------------------------------------------------------------ If

    def _enter_if(
        self, node: FileNode, graphs: Mapping[str, GraphProto], outer: _Outer, around: int
    ) -> Entered:
        condition = outer.look(node.proto.input[0])
        if condition.values is not None and condition.values.size:
            return self._written_out(node, graphs, 0 if condition.values.ravel()[0] else 1)
        number = self._parameters.of("branch", node)
        taken = 0 if number == 1 else 1
        if _working(graphs[_BRANCHES[taken]]) > around:
            return self._written_out(node, graphs, taken)
        entered = Entered()
        for index, label in enumerate(_BRANCHES):
            captured = free_names([graphs[label]], inputs_too=True)
            answer, results = self._read(
                graphs[label], f"{node.identity}/{label}", outer.inputs(captured), outer.constants(captured)
            )
            entered.bodies.append((label, int(index == taken), answer))
            if index == taken:
                entered.facts = _named(node.proto, results)
        return entered

    def _written_out(self, node: FileNode, graphs: Mapping[str, GraphProto], taken: int) -> Entered:
        """The branch's nodes with names of their own, in the block of the If."""
        label, proto = _BRANCHES[taken], node.proto
        graph = GraphProto()
        graph.CopyFrom(graphs[label])
        title = proto.name or _title(node)
        prefix = f"{title}{node.identity}/"
        outside = free_names([graph], inputs_too=True)
        results = [value.name for value in graph.output]
        inner = {name for child in graph.node for name in child.output}
        names = {
            name: wanted
            for name, wanted in zip(results, proto.output, strict=False)
            if name in inner and results.count(name) == 1 and wanted
        }
        names.update((name, name) for name in outside)
        nodes = self._functions.nodes(graph, f"{node.identity}/{label}", (*node.scope, title))
        constants, nodes = take_constants(graph, nodes, self._warnings)
        for child in nodes:
            rename(child.proto, names, prefix)
            child.scope = (*child.scope, *path_of(child.proto))
        constants = {names.setdefault(name, prefix + name): known for name, known in constants.items()}
        for name, wanted in zip(results, proto.output, strict=False):
            if wanted and names.get(name, prefix + name) != wanted:
                view = helper.make_node("Identity", [names.get(name, prefix + name)], [wanted])
                identity = f"{node.identity}/{label}#={len(nodes)}"
                nodes.append(FileNode(view, identity, node.version, (*node.scope, title)))
        wiring = Wiring(nodes, [*outside, *constants], list(filter(None, proto.output)), self._warnings)
        return Entered(nodes=wiring.order, constants=constants)

    # ------------------------------------------------------------ Loop and Scan

    def _enter_loop(self, node: FileNode, body: GraphProto, outer: _Outer) -> Entered:
        proto = node.proto
        limit = outer.look(proto.input[0]) if proto.input[0] else None
        count = None
        if limit is not None and limit.values is not None and limit.values.size:
            count = int(limit.values.ravel()[0])
        if count is None or not 0 <= count < _FOREVER:
            count = self._parameters.of("trips", node)
        carried = [outer.look(name) for name in proto.input[2:]]
        given = [Known("int64", ()), Known("bool", ()), *carried]
        answer, results = self._run(node, body, outer, given)
        entered = Entered(bodies=[("body", count, answer)])
        states, scanned = results[1 : 1 + len(carried)], results[1 + len(carried) :]
        facts = [_after(count, before, after) for before, after in zip(carried, states, strict=False)]
        facts += [_stacked(known, count, 0) for known in scanned]
        if any(known.shape is None for known in facts):
            entered.reason = "control flow: the shape of its state changes from trip to trip"
        entered.facts = _named(proto, facts)
        return entered

    def _enter_scan(self, node: FileNode, body: GraphProto, outer: _Outer) -> Entered:
        proto = node.proto
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute if not a.HasField("g")}
        scans = int(attributes.get("num_scan_inputs", 1))
        given = [outer.look(name) for name in proto.input]
        states, scanned = given[: len(given) - scans], given[len(given) - scans :]
        axes = attributes.get("scan_input_axes") or [0] * scans
        rows: list[Known] = []
        count = 1
        for known, axis in zip(scanned, axes, strict=False):
            shape = list(known.shape or ())
            if not -len(shape) <= axis < len(shape):
                return Entered(reason="control flow: it scans an axis that is not there")
            count = shape.pop(axis)
            rows.append(Known(known.dtype, tuple(shape)))
        answer, results = self._run(node, body, outer, [*states, *rows])
        entered = Entered(bodies=[("body", count, answer)])
        facts = [_after(count, a, b) for a, b in zip(states, results, strict=False)]
        stacked = results[len(states) :]
        axes = attributes.get("scan_output_axes") or [0] * len(stacked)
        facts += [_stacked(known, count, axis) for known, axis in zip(stacked, axes, strict=False)]
        entered.facts = _named(proto, facts)
        return entered

    def _run(
        self, node: FileNode, body: GraphProto, outer: _Outer, given: list[Known]
    ) -> tuple[dict[str, Any], list[Known]]:
        """One trip."""
        captured = free_names([body], inputs_too=False)
        inputs = {value.name: known for value, known in zip(body.input, given, strict=False)}
        inputs.update((name, known) for name, known in outer.inputs(captured).items() if name not in inputs)
        return self._read(body, f"{node.identity}/body", inputs, outer.constants(captured))


class _Outer:
    """What a nested graph sees of the values around it."""

    def __init__(self, look: Lookup, constant: set[str]) -> None:
        self.look, self._constant = look, constant

    def inputs(self, names: tuple[str, ...]) -> dict[str, Known]:
        return {name: self.look(name) for name in names if name not in self._constant}

    def constants(self, names: tuple[str, ...]) -> dict[str, Known]:
        return {name: self.look(name) for name in names if name in self._constant}


def _title(node: FileNode) -> str:
    """What a parameter calls the node: its name, else its op type and place; no character that a binding splits at."""
    name = node.proto.name or f"{node.proto.op_type}{node.identity}"
    return re.sub(r"[\s,=]", "_", name)[:80]


def _working(graph: GraphProto) -> int:
    """Nodes that compute something."""
    return sum(node.op_type != "Constant" for node in graph.node)


def _named(proto: NodeProto, facts: list[Known]) -> dict[str, Known]:
    return {name: known for name, known in zip(proto.output, facts, strict=False) if name}


def _after(trips: int, before: Known, after: Known) -> Known:
    """A carried value at the end; without a shape where it changes with every trip of several."""
    if trips == 0 or before.shape == after.shape:
        return Known(before.dtype, before.shape)
    return Known(after.dtype, after.shape if trips == 1 else None)


def _stacked(known: Known, trips: int, axis: int) -> Known:
    """What the trips of a scan output make together."""
    if known.shape is None:
        return known
    at = axis + len(known.shape) + 1 if axis < 0 else axis
    return Known(known.dtype, (*known.shape[:at], trips, *known.shape[at:]))
