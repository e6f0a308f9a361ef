"""Every format opens through the window's door; a compiler's fusions are the plan that it starts with."""

from __future__ import annotations

import pytest

from explorer.document import Document
from explorer.engine import Engine
from model.packaged import folder

from .test_explorer_document import settle

SAMPLES = folder("sample_graphs") / "formats"


@pytest.mark.parametrize("name", ["mlp.pt2", "mlp.stablehlo.mlir", "mlp.hlo.txt", "mlp.dot"])
def test_a_format_opens(qtbot, name: str) -> None:
    document = Document(engine=Engine())
    document.open(str(SAMPLES / name))
    settle(qtbot, document)
    assert document.graph is not None and len(document.graph.operators) == 5
    groups = [group.operators for group in document.engine.starting_plan(document.graph).groups]
    assert groups == [(0, 1, 2), (3, 4)]
    assert document.close()
