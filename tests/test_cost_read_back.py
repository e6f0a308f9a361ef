"""What `simulate --json` says of its groups, given back as a plan, is the same result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.cost.document import simulate_document
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails
from model.plan.file import load_plan

KNOBS = ("operators", "levels", "tree", "elements", "parallel", "split_reduction", "stages", "threads")


@pytest.mark.parametrize("machine", ["edge-npu", "a100"])
@pytest.mark.parametrize("sample", ["residual_block", "transformer_block", "training_step"])
def test_groups_read_back_move_and_hold_the_same(sample: str, machine: str, tmp_path: Path) -> None:
    """In residual_block a sum rests in the buffer for want of registers: the plan says so by what it retains there."""
    graph, accelerator = load_graph(sample), load_hardware(machine)
    first = simulate(CostRequest(graph, accelerator, contraction_tails(graph)))
    groups = []
    for group in simulate_document(first)["groups"]:
        knobs = {name: group[name] for name in KNOBS if group[name]}
        for level in knobs.get("levels", {}).values():
            del level["trips"]
        groups.append(knobs)
    path = tmp_path / "back.json"
    path.write_text(json.dumps({"format": 1, "groups": groups}))
    again = simulate(CostRequest(graph, accelerator, load_plan(path, graph)))
    assert again.totals == first.totals
    for one, other in zip(first.groups, again.groups, strict=True):
        assert (one.traffic, one.footprint_bytes, one.tree, one.latency_s) == (
            other.traffic,
            other.footprint_bytes,
            other.tree,
            other.latency_s,
        )
