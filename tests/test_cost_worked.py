"""The worked example, digit for digit: traffic, footprint, cycles, seconds, phases, totals and the JSON."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.cost import remembered
from model.cost.document import simulate_document
from model.cost.profile import burstiness, contention, service_phases
from model.cost.result import PHASE_KINDS, CostRequest, CostResult
from model.cost.simulate import GroupCache, beside_unfused, simulate
from model.cost.why import numbers, why
from model.plan.edits import unfused
from tests import worked


@pytest.fixture(scope="module")
def result() -> CostResult:
    return simulate(CostRequest(worked.graph(), worked.machine(), worked.fused()))


def test_traffic_of_every_tensor_and_pair_of_levels(result: CostResult) -> None:
    (group,) = result.groups
    names = [tensor.name for tensor in result.request.graph.tensors]
    rows = {
        (names[row.tensor], row.outer, row.inner): (row.read_bytes, row.write_bytes) for row in group.traffic
    }
    assert rows == {
        ("A", "DRAM", "buffer"): (2_048, 0),
        ("B", "DRAM", "buffer"): (1_536, 0),
        ("Y", "DRAM", "buffer"): (0, 3_072),
        ("A", "buffer", "registers"): (2 * 2_048, 0),
        ("B", "buffer", "registers"): (2 * 1_536, 0),
        ("Y", "buffer", "registers"): (0, 3_072),
    }


def test_seconds_cycles_and_footprint(result: CostResult) -> None:
    (group,) = result.groups
    assert group.cycles == 376
    assert group.ideal_cycles == 96
    assert group.utilisation == pytest.approx(96 / 376)
    assert round(group.latency_s * 1e9) == 3_584 + 472 + 3_072
    assert round(group.start_s * 1e9) == 1_000
    # A and B while the product runs; then Relu takes the sums (32-bit, one array tile) as they come.
    assert dict(group.footprint_bytes) == {"buffer": 2_048 + 1_536, "registers": 32 * 32 * 4}
    assert group.tree == "MatMul_0, Relu_1"
    assert group.macs == 98_304
    assert group.vector_ops == 3_072
    assert group.feasible


def test_phases_sum_to_the_latency_and_the_traffic(result: CostResult) -> None:
    phases = service_phases(result)
    kinds = [PHASE_KINDS[kind] for kind in phases["kind"]]
    assert list(zip(kinds, phases["base_ns"].tolist(), phases["bytes"].tolist(), strict=True)) == [
        ("launch", 1_000, 0),
        ("first", 3_584, 3_584),
        ("steady", 472, 0),
        ("last", 3_072, 3_072),
    ]


def test_totals_and_both_primary_metrics(result: CostResult) -> None:
    totals = result.totals
    assert round(totals.latency_s * 1e9) == 8_128
    assert totals.launches == 1
    assert totals.dram_read_bytes == 3_584
    assert totals.dram_write_bytes == 3_072
    assert totals.operator_bytes == 12_800
    assert totals.onchip_reuse_ratio == pytest.approx(1 - 6_656 / 12_800)
    assert totals.launch_overhead_reduction == pytest.approx(0.5)
    assert totals.intermediate_onchip_share == 1.0
    assert totals.compulsory_dram_bytes == 6_656
    # Two operands a MAC, the pointwise operand, both outputs.
    assert totals.reuse_factor == pytest.approx((2 * 98_304 + 3_072 + 2 * 3_072) / 6_656)
    assert totals.bottleneck == "DRAM bandwidth"
    # 6,656 of 8,128 ns are at the port; a tenth more bandwidth saves an eleventh of them.
    assert totals.bottleneck_gain == pytest.approx(6_656 / 11 / 8_128)


def test_unfused_writes_and_reads_the_intermediate(result: CostResult) -> None:
    unfused = simulate(CostRequest(worked.graph(), worked.machine(), worked.unfused()))
    assert unfused.totals.dram_read_bytes == 3_584 + 3_072
    assert unfused.totals.dram_write_bytes == 3_072 + 3_072
    assert unfused.totals.onchip_reuse_ratio == 0.0
    assert unfused.totals.launch_overhead_reduction == 0.0
    # MatMul: 3,584 + 376 + 3,072. Relu: 3,072 + 96 + 3,072. Two launches.
    assert round(unfused.totals.latency_s * 1e9) == 1_000 + 7_032 + 1_000 + 6_240
    assert result.baseline.dram_read_bytes == unfused.totals.dram_read_bytes


def test_two_tiles_overlap_loads_with_compute() -> None:
    """Rows in two tiles of 32: B stays, the second tile's A loads while the first is computed."""
    graph, machine = worked.graph(), worked.machine()
    group = worked.fused().groups[0]
    level = worked.LevelTile("buffer", tile=(("m", 32), ("n", 48), ("k", 32)), loop_order=("m",))
    plan = worked.Plan.of([worked.FusionGroup(group.operators, levels=(level,), stages=2)])
    (result,) = simulate(CostRequest(graph, machine, plan)).groups
    assert result.tree == "m { MatMul_0, Relu_1 }"
    # A tile: ceil(32/32) ceil(48/32) (32+32+32-2) = 188 cycles, its Relu 1,536/32 = 48 after it.
    # L1 1,536 + 1,024; then max(188, 1,024); then max(188, 48) + 48 against S 1,536; S 1,536.
    assert round(result.latency_s * 1e9) == 2_560 + 1_024 + 1_536 + 1_536
    assert sum(row.read_bytes for row in result.traffic if row.outer == "DRAM") == 3_584
    # Twice Y's tile while Relu runs, B throughout; A's two tiles only while the product runs.
    assert dict(result.footprint_bytes)["buffer"] == 1_536 + max(2 * 1_024, 2 * 1_536)
    single = simulate(
        CostRequest(graph, machine, worked.Plan.of([worked.FusionGroup((0, 1), levels=(level,), stages=1)]))
    ).groups[0]
    assert round(single.latency_s * 1e9) == 3_584 + 2 * (188 + 48) + 3_072


def test_the_document_is_the_contracts(result: CostResult) -> None:
    document = simulate_document(result)
    assert {"tool", "inputs", "totals", "baseline", "groups", "warnings"} <= set(document)
    (group,) = document["groups"]
    assert group["operators"] == ["MatMul_0", "Relu_1"]
    assert group["levels"]["buffer"]["tile"] == {"m": 64, "n": 48, "k": 32}
    assert group["levels"]["buffer"]["trips"] == {"m": 1, "n": 1, "k": 1}
    assert group["phases"][0] == ["launch", 1_000, 0, 0, 0]
    assert group["bottleneck"]["class"] == "DRAM bandwidth"
    assert group["feasible"] is True
    assert group["infeasible"] is None
    assert document["totals"]["latency_s"] == result.totals.latency_s
    assert set(document["baseline"]) == set(document["totals"])
    # What the user set is not marked as chosen; what the tool chose is.
    assert "buffer.tile" not in group["chosen"]
    assert "stages" in group["chosen"]


def test_contention_figures_by_hand(result: CostResult) -> None:
    (group,) = result.groups
    # Four slots on 2 GB/s: 4 x 6,656 B in 8,128 ns; both DRAM phases ask 4 GB/s, twice the bus.
    load, stretch = contention(group.phases, 4, 2e9)
    assert load == pytest.approx(4 * 6_656 / 2 / 8_128)
    assert stretch == pytest.approx(6_656 / 8_128)
    # The best microsecond is all transfer: 1 GB/s against 6,656 B in 8,128 ns.
    assert burstiness(group, 1e-6) == pytest.approx(8_128 / 6_656)


def test_a_cache_changes_nothing_but_the_work() -> None:
    request = CostRequest(worked.graph(), worked.machine(), worked.fused())
    cache = GroupCache()
    first = simulate(request, cache)
    again = simulate(request, cache)
    assert first.evaluated == 3  # the group and the two operators of the unfused plan
    assert again.evaluated == 0
    fresh = simulate(request)
    for one in (first, again):
        assert one.totals == fresh.totals
        assert one.baseline == fresh.baseline
        assert np.array_equal(service_phases(one), service_phases(fresh))
    other = simulate(CostRequest(request.graph, request.accelerator, unfused(request.graph)), cache)
    assert other.evaluated == 0  # the baseline solved them
    assert other.totals == other.baseline


def test_the_unfused_plan_can_follow_the_cost_and_says_the_same() -> None:
    request = CostRequest(worked.graph(), worked.machine(), worked.fused())
    cache = GroupCache()
    alone = simulate(request, cache, with_unfused=False)
    assert alone.evaluated == 1 and alone.baseline is None
    assert alone.totals.launch_overhead_reduction is None
    *slices, whole = beside_unfused(alone, cache)
    assert slices == [None, None] and whole is not None  # two operators of different structure
    fresh = simulate(request)
    assert (whole.totals, whole.baseline) == (fresh.totals, fresh.baseline)
    again = simulate(request, cache, with_unfused=False)
    assert (again.totals, again.baseline) == (fresh.totals, fresh.baseline)  # it is known by now


def test_a_card_says_what_is_known_without_the_unfused_plan() -> None:
    alone = simulate(
        CostRequest(worked.graph(), worked.machine(), worked.fused()), GroupCache(), with_unfused=False
    )
    for number in numbers(alone):
        assert not any(figure.name == "unfused" for figure in why(alone, number).inputs)
    assert why(alone, "launch_overhead_reduction").value.value == "not known yet"
    assert simulate_document(alone)["baseline"] is None


def test_the_unfused_plan_of_a_graph_that_the_cache_forgot_meanwhile_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = CostRequest(worked.graph(), worked.machine(), worked.fused())
    cache = GroupCache()
    slices = beside_unfused(simulate(request, cache, with_unfused=False), cache)
    assert next(slices) is None
    monkeypatch.setattr(remembered, "_REMEMBERED", 0)
    few = replace(request, graph=replace(request.graph, operators=request.graph.operators[:0]))
    cache.scope(few)
    assert list(slices) == []
    monkeypatch.undo()
    assert simulate(request, cache).totals == simulate(request).totals
