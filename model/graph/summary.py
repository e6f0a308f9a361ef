"""A graph in words: `inspect`'s JSON document and the text for a person. Nothing is simulated here.

Names come from files of others: control characters are written as escapes and long ones are cut, so that a
name can neither break a table nor drive a terminal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..terminal import TOOL, columns, quantity, size
from .bindings import bindings_text
from .graph import Operator, OperatorGraph, Tensor, TensorRole
from .hierarchy import hierarchy, parameter_bytes
from .load import size_text

ROWS = 120  # operators that the text lists before it says how many are left
_WIDTH = 44


def inspect_document(graph: OperatorGraph) -> dict[str, Any]:
    """CONTRACT's JSON of `inspect`, without a plan."""
    return {
        "format": 1,
        "tool": TOOL,
        "graph": {
            "name": graph.name,
            "path": graph.path,
            "digest": graph.digest,
            "operators": len(graph.operators),
            "tensors": len(graph.tensors),
        },
        **_contents(graph),
        "bindings": dict(graph.bindings),
        "symbols": list(graph.symbols),
        "blocks": _blocks(graph),
        "refusal": graph.refusal,
        "warnings": [{"where": w.where, "what": w.what, "lever": w.lever} for w in graph.warnings],
    }


def _contents(graph: OperatorGraph) -> dict[str, Any]:
    """Totals, operators and tensors, and the same of every nested graph."""
    runs, saved = _runs(graph), frozenset(graph.saved)
    return {
        "totals": {
            "macs": graph.macs,
            "bounded_macs": graph.bounded_macs,
            "parameter_bytes": graph.parameter_bytes,
            "saved_activation_bytes": _saved_bytes(graph),
        },
        "operators": [_operator(operator, graph) for operator in graph.operators],
        "tensors": [_tensor(tensor, saved) for tensor in graph.tensors],
        "bodies": {path: {"runs": runs[path], **_contents(body)} for path, body in graph.bodies.items()},
    }


def _saved_bytes(graph: OperatorGraph) -> int:
    """Bytes that cross from the forward to the backward pass, each tensor once; 0 where nothing is trained."""
    return sum(graph.tensors[tensor].bytes or 0 for tensor in graph.saved)


def _runs(graph: OperatorGraph) -> dict[str, int]:
    """How often each nested graph runs."""
    return {path: times for operator in graph.operators for path, times in operator.runs}


def _operator(operator: Operator, graph: OperatorGraph) -> dict[str, Any]:
    return {
        "name": operator.name,
        "identity": operator.identity,
        "op_type": f"{operator.domain}::{operator.op_type}" if operator.domain else operator.op_type,
        "kind": operator.kind.value,
        "dims": {dim.name: dim.extent for dim in operator.dims},
        "reductions": [dim.name for dim in operator.dims if dim.reduction],
        "macs": operator.macs,
        "bounded_macs": operator.bounded_macs,
        "known": graph.is_known(operator),
        "pass": None if graph.forward is None else "forward" if graph.forward[operator.index] else "backward",
        "reason": operator.reason,
        "inputs": [graph.tensors[access.tensor].name for access in operator.inputs],
        "outputs": [graph.tensors[access.tensor].name for access in operator.outputs],
        "scope": list(operator.scope),
    }


def _tensor(tensor: Tensor, saved: frozenset[int]) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": None if tensor.shape is None else list(tensor.shape),
        "declared": None if tensor.declared is None else list(tensor.declared),
        "bytes": tensor.bytes,
        "role": tensor.role.value,
        "output": tensor.is_output,
        "saved": tensor.index in saved,
    }


def _blocks(graph: OperatorGraph) -> list[dict[str, Any]]:
    """Every block of the graph, a parent before its children."""
    found = hierarchy(graph)
    return [
        {
            "path": "/".join(found.name[step] for step in found.path(block)),
            "operators": len(found.operators(block)),
            "macs": found.macs[block],
            "parameter_bytes": parameter_bytes(graph, found.operators(block).tolist()),
        }
        for block in range(len(found.name))
    ]


def _block_table(graph: OperatorGraph) -> str:
    """The blocks that the graph opens with, alike neighbours in one line; empty where there are none."""
    found = hierarchy(graph)
    closed = sorted(found.opening(), key=lambda block: int(found.start[block]))
    if not closed:
        return ""
    table = [("block", "operators", "MAC", "parameters")]
    for name, run in found.runs(closed)[:ROWS]:
        each = "each " if len(run) > 1 else ""
        operators = found.operators(run[0]).tolist()
        table.append(
            (
                printable(name),
                f"{each}{len(operators):,}",
                quantity(found.macs[run[0]], ""),
                quantity(parameter_bytes(graph, operators), "B"),
            )
        )
    alone = int((found.outermost(closed) < 0).sum())
    rest = f"\n  and {alone:,} operators in no block" if alone else ""
    return columns(table, right=(1, 2, 3)) + rest


def text_summary(graph: OperatorGraph, rows: int = ROWS) -> str:
    """The graph for a person: what goes in and out, totals, operators with their dims, warnings."""
    parts = [_head(graph)]
    if blocks := _block_table(graph):
        parts.append(blocks)
    if graph.operators:
        parts.append(_operators(graph, rows))
    if graph.warnings:
        lines = [
            f"  {printable(w.where)}: {printable(w.what, 400)}. {printable(w.lever, 200)}"
            for w in graph.warnings
        ]
        shown = lines[:rows]
        if len(lines) > rows:
            shown.append(f"  and {len(lines) - rows} more")
        parts.append("warnings\n" + "\n".join(line.rstrip() for line in shown))
    return "\n\n".join(parts)


def _head(graph: OperatorGraph) -> str:
    kinds = Counter(operator.kind.value for operator in graph.operators)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
    bound = bindings_text(dict(graph.bindings))
    rows = [
        ("inputs", _values(graph, lambda t: t.role is TensorRole.INPUT)),
        ("outputs", _values(graph, lambda t: t.is_output)),
        ("bindings", ", ".join(f"{printable(name)}={text}" for name, text in bound.items()) or "none"),
        ("operators", f"{len(graph.operators)}: {counted}"),
        ("multiply-accumulates", quantity(graph.macs, "MAC")),
        ("parameters", quantity(graph.parameter_bytes, "B")),
    ]
    if graph.bounded_macs != graph.macs:
        rows.insert(5, ("without masked ones", quantity(graph.bounded_macs, "MAC")))
    if graph.forward is not None:
        ahead = int(graph.forward.sum())
        rows.append(
            ("training", f"{ahead} operators forward, {len(graph.operators) - ahead} backward and update")
        )
        saved = f"{size(_saved_bytes(graph))} in {len(graph.saved)} tensors"
        rows.append(("saved activations", f"{saved} that the backward pass reads"))
    runs = _runs(graph)
    rows += [
        (
            f"nested {path}",
            f"runs {runs[path]:,}x: {len(body.operators)} operators, {quantity(body.macs, 'MAC')} a run",
        )
        for path, body in list(graph.bodies.items())[:8]
    ]
    if graph.refusal:
        rows.append(("cannot be simulated", printable(graph.refusal, 400)))
    return f"{printable(graph.name)}\n{columns(rows, indent='  ')}"


def _values(graph: OperatorGraph, wanted: Any) -> str:
    named = [t for t in graph.tensors if wanted(t)]
    shown = [f"{printable(t.name)} {t.dtype or '?'} {size_text(t.shape)}" for t in named[:6]]
    if len(named) > 6:
        shown.append(f"and {len(named) - 6} more")
    return ", ".join(shown) or "none"


def _operators(graph: OperatorGraph, rows: int) -> str:
    table = [("operator", "type", "kind", "dims (reductions in brackets)", "MAC", "output")]
    for operator in graph.operators[:rows]:
        written = [graph.tensors[access.tensor] for access in operator.outputs]
        table.append(
            (
                printable(operator.name),
                printable(operator.op_type, 24),
                operator.kind.value,
                _dims(operator),
                quantity(operator.macs, "") if operator.macs else "",
                " ".join(size_text(tensor.shape) for tensor in written[:3]),
            )
        )
    text = columns(table, right=(4,))
    left = len(graph.operators) - rows
    return text if left <= 0 else f"{text}\n… and {left} more (--all lists them, --json has everything)"


def _dims(operator: Operator) -> str:
    words = [f"[{d.name}={d.extent}]" if d.reduction else f"{d.name}={d.extent}" for d in operator.dims]
    return " ".join(words) or printable(operator.reason, 60)


def printable(text: str, width: int = _WIDTH) -> str:
    """`text` on one line without control characters, cut in the middle to `width` characters."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if len(clean) <= width:
        return clean
    half = (width - 1) // 2
    return f"{clean[: width - 1 - half]}…{clean[-half:]}"
