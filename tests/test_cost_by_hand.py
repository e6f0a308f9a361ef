"""`docs/attention-by-hand.md` says what `simulate` says: the plan is read from the page, the numbers stand here too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.cost.result import CostRequest, CostResult, GroupResult
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.file import load_plan

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attention-by-hand.md"
MIB = 1 << 20


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> CostResult:
    (plan,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("by-hand") / "plan.json"
    path.write_text(plan, encoding="utf-8")
    graph = load_graph("attention_prefill")
    return simulate(CostRequest(graph, load_hardware("edge-npu"), load_plan(path, graph)))


def group(result: CostResult, name: str) -> GroupResult:
    index = result.request.graph.operator_by_name[name]
    return next(g for g in result.groups if index in g.operators)


def outer(result: CostResult, found: GroupResult) -> dict[str, float]:
    """MiB to and from DRAM per tensor."""
    tensors = result.request.graph.tensors
    rows = [row for row in found.traffic if row.outer == "DRAM"]
    return {tensors[row.tensor].name: (row.read_bytes + row.write_bytes) / MIB for row in rows}


def on_the_page(text: str) -> None:
    assert text in PAGE.read_text(encoding="utf-8")


def test_the_fused_core(result: CostResult) -> None:
    core = group(result, "attn_scores")
    assert core.tree == "b_2 { m { n { attn_scores, attn_scale, attn_softmax, attn_context } } }"
    on_the_page(core.tree)
    assert outer(result, core) == {
        "attn_q_rows": 4,
        "attn_k_rows": 32,
        "attn_v_rows": 32,
        "attn_context": 4,
    }
    assert dict(core.footprint_bytes) == {"buffer": 147_968, "registers": 36_864}
    assert core.registers.spilled_bytes == 0
    assert core.cycles == 3_112_960
    assert core.ideal_cycles == 2_097_152
    assert round(core.latency_s * 1e9) == 4_720_384
    assert core.bottleneck.name == "DRAM bandwidth"
    assert (core.operator_bytes, core.compulsory_bytes) == (112 * MIB, 16 * MIB)
    for number in ("**72 MiB**", "**147,968 B**", "**36,864 B**", "**3,112,960 cycles**", "**4,720,384 ns**"):
        on_the_page(number)


@pytest.mark.parametrize("name", ["attn_q", "attn_k", "attn_v", "attn_out"])
def test_the_projections(result: CostResult, name: str) -> None:
    found = group(result, name)
    assert sorted(outer(result, found).values()) == [4, 128, 128]
    assert dict(found.footprint_bytes) == {"buffer": 320 * 1024, "registers": 64 * 1024}
    assert round(found.latency_s * 1e9) == 17_044_448
    assert found.compulsory_bytes == 40 * MIB
    assert "buffer.tile" not in found.chosen
    assert "buffer.retain" not in found.chosen
    for number in ("**260 MiB**", "**320 KiB**", "**17,044,448 ns**"):
        on_the_page(number)


def test_the_block(result: CostResult) -> None:
    totals = result.totals
    assert (totals.launches, result.baseline.launches) == (9, 12)
    assert (totals.launch_s, result.baseline.launch_s) == (6e-6, 7.5e-6)
    assert totals.launch_overhead_reduction == pytest.approx(0.2)
    assert totals.operator_bytes == 304 * MIB
    assert totals.dram_read_bytes + totals.dram_write_bytes == 1_144 * MIB
    assert totals.onchip_reuse_ratio == pytest.approx(1 - 1144 / 304)
    assert totals.intermediate_onchip_share == pytest.approx(0.6)
    assert round(totals.latency_s * 1e9) == 75_001_328
    for number in ("**9 launches**", "**20 %**", "**-2.763**", "**60 %**", "**75,001,328 ns**"):
        on_the_page(number)
