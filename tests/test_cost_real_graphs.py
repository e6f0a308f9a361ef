"""Six real graphs on three machines: totals are sums of parts; operators whose operands fit move them once."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.cost.document import simulate_document
from model.cost.profile import service_phases
from model.cost.result import CostRequest
from model.cost.simulate import GroupCache, alone, simulate
from model.graph.graph import OpKind
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails

GRAPHS = {
    "light_resnet50": {},
    "light_vgg19": {},
    "zigzag_mobilenetv2": {},
    "vit_b16": {},
    "bert_base_dynamic": {"batch": 1, "seq": 128},
    "llama3_8b_1layer_prefill512": {},
}
MACHINES = ("edge-npu", "a100", "systolic-32")


@pytest.mark.shared
@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs_add_up(shared: Path, name: str) -> None:
    bindings = GRAPHS[name]
    graph = load_graph(shared / "graphs" / "open" / f"{name}.onnx", bindings)
    cache = GroupCache()
    once = 0
    for machine in map(load_hardware, MACHINES):
        dram = machine.dram.name
        fused = simulate(CostRequest(graph, machine, contraction_tails(graph)), cache)
        single = simulate(CostRequest(graph, machine, alone(graph)), cache)
        assert single.totals == single.baseline == fused.baseline
        for result in (fused, single):
            totals, groups = result.totals, result.groups
            assert totals.dram_read_bytes == sum(g.dram_bytes(dram)[0] for g in groups)
            assert totals.dram_write_bytes == sum(g.dram_bytes(dram)[1] for g in groups)
            assert totals.macs == sum(g.macs for g in groups) >= graph.macs
            assert totals.operator_bytes == sum(g.operator_bytes for g in groups)
            assert totals.launches == sum(g.launches for g in groups)
            assert totals.energy_j == pytest.approx(sum(g.energy_j for g in groups))
            phases = service_phases(result)
            assert int(phases["base_ns"].sum()) == round(totals.latency_s * 1e9)
            assert int(phases["bytes"].sum()) == totals.dram_read_bytes + totals.dram_write_bytes
            end = 0.0
            for group in groups:
                assert group.start_s >= end - 1e-12
                end = group.start_s + group.latency_s
                assert sum(group.dram_bytes(dram)) >= group.compulsory_bytes
            assert end == pytest.approx(totals.latency_s)
            assert totals.onchip_reuse_ratio == pytest.approx(
                1.0 - (totals.dram_read_bytes + totals.dram_write_bytes) / totals.operator_bytes
            )
        assert fused.totals.operator_bytes == single.totals.operator_bytes
        # The SCALE-Sim machine has no launches to save.
        overhead, before = fused.totals.launch_s, single.totals.launch_s
        expected = 1.0 - overhead / before if before else 0.0
        assert fused.totals.launch_overhead_reduction == pytest.approx(expected)
        for group in single.groups:
            kind = graph.operators[group.operators[0]].kind
            if kind is OpKind.VIEW:
                assert group.launches == 0
                assert not group.traffic
            elif group.operator_bytes <= machine.buffer.capacity_bytes:
                assert sum(group.dram_bytes(dram)) == group.operator_bytes
                once += 1
        assert simulate_document(fused)["totals"]["launches"] == fused.totals.launches
    # The least tensor of the vision transformer, 197 x 768 floats, fits no buffer here.
    assert once > 0 or name == "vit_b16"
