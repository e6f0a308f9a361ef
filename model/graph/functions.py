"""The nodes of a file, with model-local functions written out in place as far as that stays small.

Runs in the reader's child process. A function that calls others can expand to more nodes than any memory
holds (1,966 bytes are enough); so the expanded nodes are counted over the call graph first. Every node keeps
its identity (graph path and index in the file) and its block path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

EXPANSION_LIMIT = 50_000  # nodes after expansion
_DEPTH_LIMIT = 32
_PATH_LIMIT = 20_000  # characters of scopes that are looked at
_QUOTED = re.compile(r"'([^']*)'")  # the items of a list of texts that Python has printed
_NO_SCOPE = "_empty_nn_module_stack_from_metadata_hook"  # torch's word for an operator of no module
Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class FileNode:
    """One node: its protobuf, where it stands, the opset version of its domain, what hinders modelling.

    ``is_part``: one of several that a node was written out into (`parts.py`); what it makes is known.
    ``entered``: its nested graphs were read; ``bodies``: label, number of runs and answer of each.
    """

    proto: NodeProto
    identity: str
    version: int
    scope: tuple[str, ...] = ()
    reason: str = ""
    is_part: bool = False
    entered: bool = False
    bodies: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """How messages call it: its name, else its op type and what it writes."""
        made = next((name for name in self.proto.output if name), "?")
        return (self.proto.name or f"{self.proto.op_type} that writes {made!r}")[:80]


def opset_versions(entries: Iterator[object]) -> dict[str, int]:
    """Opset version by domain; the standard domain is ""."""
    versions = {("" if e.domain == "ai.onnx" else e.domain): e.version for e in entries}  # type: ignore[attr-defined]
    versions.setdefault("", 1)
    return versions


class Functions:
    """The model-local functions of a file; writes their calls out, as long as the whole stays small.

    Calls stay as they are, with a reason, where the expansion would exceed `EXPANSION_LIMIT` nodes or a
    function calls itself.
    """

    def __init__(self, model: ModelProto, warnings: list[tuple[str, str, str]]) -> None:
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._versions = opset_versions(iter(model.opset_import))
        self._counts = _counts(self._functions)
        self._left = EXPANSION_LIMIT
        self._warnings = warnings

    def nodes(self, graph: GraphProto, path: str = "", scope: tuple[str, ...] = ()) -> list[FileNode]:
        """The nodes of a graph (the file's own, or one nested at `path`) with every call written out."""
        refused = self._refusal(graph) if self._functions else ""
        out: list[FileNode] = []
        for index, proto in enumerate(graph.node):
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            node = FileNode(proto, f"{path}#{index}", self._versions.get(domain, 0), scope)
            if refused and (proto.domain, proto.op_type) in self._functions:
                node.reason = refused
                out.append(node)
            else:
                out.extend(_written_out(node, self._functions))
        return out

    def _refusal(self, graph: GraphProto) -> str:
        total = sum(self._counts.get((node.domain, node.op_type), 1) for node in graph.node)
        refused = ""
        if not all(self._counts.values()):
            refused = "a function of the file calls itself, or calls nest too deep"
        elif total > self._left:
            refused = f"its functions expand to {total} operators, more than {EXPANSION_LIMIT}"
        else:
            self._left -= total
        if refused and not any(what == refused for _, what, _ in self._warnings):
            self._warnings.append(("functions", refused, "Their calls are shown as opaque operators."))
        return refused


def _counts(functions: Mapping[Key, FunctionProto]) -> dict[Key, int]:
    """Nodes that one call of each function becomes; 0 where the function calls itself or nests too deep."""
    called = {key: [(node.domain, node.op_type) for node in f.node] for key, f in functions.items()}
    counts: dict[Key, int] = {}
    for _ in range(_DEPTH_LIMIT):
        ready = [
            k for k in functions if k not in counts and all(c in counts for c in called[k] if c in functions)
        ]
        counts.update((key, max(1, sum(counts.get(c, 1) for c in called[key]))) for key in ready)
        if not ready:
            break
    return {key: counts.get(key, 0) for key in functions}


def _written_out(node: FileNode, functions: Mapping[Key, FunctionProto]) -> list[FileNode]:
    """`node` itself, or the bodies of what it calls, with fresh names for inner values."""
    out: list[FileNode] = []
    stack = [node]
    while stack:
        call = stack.pop()
        function = functions.get((call.proto.domain, call.proto.op_type))
        if function is None:
            out.append(call)
        else:
            stack.extend(reversed(_body(call, function)))
    return out


def _body(call: FileNode, function: FunctionProto) -> list[FileNode]:
    proto = call.proto
    title = proto.name or function.name
    prefix = f"{title}{call.identity}/"
    names = dict.fromkeys(function.input, "")
    names.update(zip(function.input, proto.input, strict=False))
    names.update((formal, name) for formal, name in zip(function.output, proto.output, strict=False) if name)
    given = {attribute.name: attribute for attribute in function.attribute_proto}
    given.update((attribute.name, attribute) for attribute in proto.attribute)
    versions = opset_versions(iter(function.opset_import))
    body: list[FileNode] = []
    for index, original in enumerate(function.node):
        node = NodeProto()
        node.CopyFrom(original)
        rename(node, names, prefix)
        _bind_attributes(node, given)
        node.name = f"{title}/{original.name or f'{original.op_type}_{index}'}"
        identity = f"{call.identity}/{function.name}#{index}"
        domain = "" if node.domain == "ai.onnx" else node.domain
        body.append(FileNode(node, identity, versions.get(domain, 0), (*call.scope, title)))
    return body


def rename(node: NodeProto, names: dict[str, str], prefix: str) -> None:
    """Formal names become actual ones, inner names get the call's prefix, in nested graphs as well."""

    def actual(name: str) -> str:
        return names.setdefault(name, prefix + name) if name else ""

    stack: list[NodeProto | GraphProto] = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, GraphProto):
            for value in (*at.input, *at.output, *at.value_info, *at.initializer):
                value.name = actual(value.name)
            stack.extend(at.node)
        else:
            at.input[:] = [actual(name) for name in at.input]
            at.output[:] = [actual(name) for name in at.output]
            stack.extend(graphs_of(at))


def _bind_attributes(node: NodeProto, given: Mapping[str, AttributeProto]) -> None:
    """References to attributes of the function become the values of this call."""
    bound: list[AttributeProto] = []
    for attribute in node.attribute:
        copy = AttributeProto()
        if not attribute.ref_attr_name:
            copy.CopyFrom(attribute)
        elif attribute.ref_attr_name in given:
            copy.CopyFrom(given[attribute.ref_attr_name])
            copy.name = attribute.name
        else:
            continue
        bound.append(copy)
    del node.attribute[:]
    node.attribute.extend(bound)


def graphs_of(node: NodeProto) -> list[GraphProto]:
    """The graphs nested directly in a node (branches of If, body of Loop and Scan)."""
    out: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            out.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            out.extend(attribute.graphs)
    return out


def captured_names(node: NodeProto) -> tuple[str, ...]:
    """Values of the surrounding graph that the node's nested graphs read, in order of appearance."""
    graphs = graphs_of(node)
    return free_names(graphs, inputs_too=node.op_type == "If") if graphs else ()


def free_names(graphs: list[GraphProto], *, inputs_too: bool) -> tuple[str, ...]:
    """Values that `graphs` and what is nested in them read and do not make, in order of appearance.

    `inputs_too`: what they declare as inputs comes from around them as well. Branches of an If have no inputs, but
    some files declare what they capture.
    """
    free: dict[str, None] = {}
    stack: list[tuple[GraphProto, frozenset[str], bool]] = [(g, frozenset(), inputs_too) for g in graphs]
    while stack:
        graph, outer, open_inputs = stack.pop()
        inner = outer | {tensor.name for tensor in graph.initializer}
        inner |= {name for child in graph.node for name in child.output}
        if not open_inputs:
            inner |= {value.name for value in graph.input}
        for child in graph.node:
            free.update((name, None) for name in child.input if name and name not in inner)
            stack.extend((nested, inner, child.op_type == "If") for nested in graphs_of(child))
        free.update((value.name, None) for value in graph.output if value.name and value.name not in inner)
    return tuple(free)


def path_of(node: NodeProto) -> tuple[str, ...]:
    """The block path that a node states: torch's name scopes, else the path in its name; outermost first."""
    scopes = next((e.value for e in node.metadata_props if e.key == "pkg.torch.onnx.name_scopes"), "")
    if scopes:
        return _torch_path(scopes)
    if "/" in node.name and len(node.name) < 1000:
        return tuple(part for part in node.name.split("/")[:-1] if part)
    return ()


def _torch_path(written: str) -> tuple[str, ...]:
    """``['', 'm', 'm.layers.0', 'm.layers.0.mlp', 'mul_3']`` is m / layers.0 / mlp; the last is the node."""
    path: list[str] = []
    before = ""
    for scope in _QUOTED.findall(written[:_PATH_LIMIT])[:-1]:
        if scope and scope != _NO_SCOPE:
            path.append(scope.removeprefix(f"{before}.") if before else scope)
            before = scope
    return tuple(path)
