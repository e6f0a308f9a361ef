"""How much of every real file is understood: the table by file, the bound of the task, and reasons for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.graph.graph import Operator, OperatorGraph, OpKind
from model.graph.load import load_graph

# Made by hand to hold what nobody can know: inputs without shapes, unknown domains, sequences.
EDGE = "edge_"
LEAST_SHARE = 0.95


def everything(graph: OperatorGraph) -> Iterator[tuple[OperatorGraph, Operator]]:
    """Operators that work, those of nested graphs included; constants are none, views cost nothing."""
    for operator in graph.operators:
        if operator.kind is not OpKind.VIEW:
            yield graph, operator
    for body in graph.bodies.values():
        yield from everything(body)


@pytest.mark.shared
def test_operators_of_real_files_have_known_dims(shared: Path) -> None:
    """The table; run with ``-s`` to see it."""
    short: list[str] = []
    for path in sorted((shared / "graphs" / "open").glob("*.onnx")):
        found = list(everything(load_graph(path)))
        left = [operator for graph, operator in found if not graph.is_known(operator)]
        share = 1.0 if not found else 1.0 - len(left) / len(found)
        why = Counter(f"{operator.op_type}: {operator.reason}" for operator in left)
        print(f"{path.stem:36} {len(found):5} {share:7.1%}  {'; '.join(why)[:100]}")
        assert all(operator.reason for operator in left), path.stem
        if share < LEAST_SHARE and not path.stem.startswith(EDGE):
            short.append(f"{path.stem} {share:.1%}")
    assert not short


@pytest.mark.shared
def test_no_product_is_counted_as_something_else(shared: Path) -> None:
    """In every file, whatever multiplies and accumulates is a contraction; nothing else is."""
    products = ("MatMul", "Gemm", "Conv", "Einsum", "Attention", "LSTM", "GRU", "RNN", "LinearClassifier")
    for path in sorted((shared / "graphs" / "open").glob("*.onnx")):
        for _, operator in everything(load_graph(path)):
            multiplies = (
                any(word in operator.op_type for word in products) and operator.op_type != "FancyAttention"
            )
            if operator.kind is not OpKind.OPAQUE:
                assert (operator.kind is OpKind.CONTRACTION) == multiplies, (path.stem, operator.name)
