"""The window on a training step: compute again by key, undo, and what panels show of a replay."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.digest import Digest
from explorer.document import Document
from explorer.editor import Editor
from explorer.panels.groups import group_rows
from explorer.panels.heatmap import rows_by_operator
from model.cost.result import CostRequest
from model.cost.simulate import GroupCache, simulate
from model.plan import edits
from model.plan.recompute import recompute

from .cost_graphs import one_buffer
from .training_graphs import chain

STEP = chain(4, [3, 6, 5], relu=True)
Y1 = next(tensor.index for tensor in STEP.tensors if tensor.name == "y1")


@pytest.fixture
def document(qtbot):
    made = Document()
    yield made

    assert made.close()


def test_a_key_computes_again_and_saves_again_with_one_undo_entry_each(qtbot, document):
    said: list[str] = []
    document.said.connect(lambda sentence, _: said.append(sentence))
    document.set_accelerator(one_buffer(1 << 20))
    document.set_graph(STEP)
    qtbot.waitUntil(lambda: document.ready and document.runner.is_idle, timeout=300_000)
    document.commit(edits.unfused(STEP), "unfused")
    entries = document.undo_stack.count()
    editor = Editor(document)
    document.select((0, 1))
    editor.recompute()
    assert [group.recompute for group in document.plan.groups[:2]] == [("y1",), ("h1",)]
    assert document.undo_stack.count() == entries + 1
    assert "Compute y1, h1 again" in document.undo_stack.text(entries)
    editor.recompute()
    assert document.plan == edits.unfused(STEP)
    document.undo_stack.undo()
    assert document.plan.groups[0].recompute == ("y1",)
    document.select((5,))  # a gradient
    editor.recompute()
    assert "in the backward pass already" in said[-1]


def test_panels_show_replays_behind_the_plans_groups():
    cache, machine = GroupCache(), one_buffer(1 << 20)
    plain = edits.unfused(STEP)
    before = simulate(CostRequest(STEP, machine, plain), cache)
    after = simulate(CostRequest(STEP, machine, recompute(STEP, plain, [Y1])), cache)
    first = Digest.of(before)
    second = Digest.of(after, first)
    for figure in ("read", "written", "operator_bytes", "latency_s"):
        assert np.array_equal(getattr(second, figure), getattr(Digest.of(after), figure), equal_nan=True), (
            figure
        )
    replay = sum(after.groups[-1].dram_bytes("DRAM"))
    assert second.operator_bytes[0] == first.operator_bytes[0] + replay
    assert np.nansum(second.operator_bytes) == after.totals.dram_read_bytes + after.totals.dram_write_bytes
    rows = group_rows(after)
    assert rows[len(rows) - 1].label == "G12  G1 again:  MatMul_0"
    assert {row.place for row in rows_by_operator(second)} == set(range(len(STEP.operators)))
    # The replay stands in the demand where it runs, before the first group that reads y1 again.
    owners = second.demand.group.tolist()
    assert owners.index(len(STEP.operators)) < owners.index(8)
    third = Digest.of(simulate(CostRequest(STEP, machine, plain), cache), second)
    assert np.array_equal(third.operator_bytes, first.operator_bytes, equal_nan=True)
