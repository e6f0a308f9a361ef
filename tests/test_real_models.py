"""Seven real models on three machines: totals are the sum of their parts, and what fits whole moves exactly once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from model.cost.profile import service_phases
from model.cost.result import CostRequest, CostResult, GroupResult
from model.cost.simulate import simulate
from model.graph.dtypes import bytes_of
from model.graph.graph import OperatorGraph, OpKind
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails, unfused

MODELS = {
    "light_resnet50": {},
    "light_vgg19": {},
    "zigzag_mobilenetv2": {},
    "vit_b16": {},
    "bert_base_dynamic": {"batch": 1, "seq": 128},
    "llama3_8b_1layer_prefill512": {},
    "unet_256_op16": {},
}
MACHINES = ("a100", "edge-npu", "systolic-32")


@cache
def model(folder: Path, name: str) -> OperatorGraph:
    return load_graph(folder / "graphs" / "open" / f"{name}.onnx", MODELS[name])


def result(folder: Path, name: str, machine: str, *, fused: bool) -> CostResult:
    graph = model(folder, name)
    plan = contraction_tails(graph) if fused else unfused(graph)
    return simulate(CostRequest(graph, load_hardware(machine), plan))


@pytest.mark.shared
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_totals_are_the_sum_of_their_parts(shared: Path, name: str, machine: str) -> None:
    found = result(shared, name, machine, fused=True)
    alone = result(shared, name, machine, fused=False)
    assert alone.totals == alone.baseline == found.baseline
    totals, groups = found.totals, found.groups
    dram = found.request.accelerator.dram.name
    level = found.request.accelerator.cache
    near = dram if level is None else level.name  # what a cache holds between groups need not reach DRAM
    moved = [group.dram_bytes(dram) for group in groups]
    assert totals.dram_read_bytes == sum(read for read, _ in moved)
    assert totals.dram_write_bytes == sum(write for _, write in moved)
    for field in ("macs", "recomputed_macs", "vector_ops", "launches", "code_bytes", "operator_bytes"):
        assert getattr(totals, field) == sum(getattr(group, field) for group in groups), field
    for field in ("energy_j", "compute_s", "dram_s"):
        assert getattr(totals, field) == pytest.approx(sum(getattr(group, field) for group in groups)), field
    assert totals.macs - totals.recomputed_macs == found.request.graph.macs
    assert totals.spill_bytes == sum(group.spill_bytes for group in groups)
    assert sum(map(sum, moved)) >= totals.compulsory_dram_bytes
    assert totals.feasible == all(group.feasible for group in groups)
    # The profile is the same time and the same bytes once more, to the nanosecond and the byte.
    base = sum(int(group.phases["base_ns"].sum()) for group in groups)
    assert base == round(totals.latency_s * 1e9)
    assert sum(int(group.phases["bytes"].sum()) for group in groups) == sum(map(sum, moved))
    request = service_phases(found)
    assert int(request["base_ns"].sum()) == base
    assert int(request["bytes"].sum()) == sum(map(sum, moved))
    launch = sum(int(g.phases["base_ns"][g.phases["kind"] == 0].sum()) for g in groups)
    assert launch == round(totals.launch_s * 1e9)
    end = 0.0
    for group in groups:
        assert group.start_s >= end - 1e-12
        assert sum(group.dram_bytes(near)) >= group.compulsory_bytes
        end = group.start_s + group.latency_s
    assert end == pytest.approx(totals.latency_s)
    # The two primary metrics, from their definitions.
    assert totals.onchip_reuse_ratio == pytest.approx(1.0 - sum(map(sum, moved)) / totals.operator_bytes)
    before_s = found.baseline.launch_s  # 0 on a machine whose file gives no launch cost: nothing to reduce
    reduction = 1.0 - totals.launch_s / before_s if before_s else 0.0
    assert totals.launch_overhead_reduction == pytest.approx(reduction)
    assert found.baseline.launch_overhead_reduction == 0.0


def whole_bytes(graph: OperatorGraph, group: GroupResult) -> int | None:
    """Bytes of all operands of a lone operator that addresses each of its tensors whole; else None."""
    (index,) = group.operators
    operator = graph.operators[index]
    if operator.kind not in (OpKind.CONTRACTION, OpKind.POINTWISE, OpKind.REDUCTION):
        return None
    tensors = {access.tensor: access for access in (*operator.inputs, *operator.outputs)}
    total = 0
    for tensor, access in tensors.items():
        shape = graph.tensors[tensor].shape
        if shape is None or access.whole or access.addressed is not None:
            return None
        for axis, extent in zip(access.axes, shape, strict=True):
            reach = 1
            for dim, coefficient in axis.terms:
                reach += coefficient * (operator.dims[dim].extent - 1)
            plain = axis.distinct is None and axis.offset == 0 and reach == extent
            if not plain or any(c != 1 for _, c in axis.terms[:1] if len(axis.terms) == 1):
                return None
        total += bytes_of(graph.tensors[tensor].elements or 0, graph.tensors[tensor].bits)
    return total


@pytest.mark.shared
@pytest.mark.parametrize("machine", MACHINES)
def test_what_fits_whole_moves_exactly_once(shared: Path, machine: str) -> None:
    checked = 0
    bare = load_hardware(machine)  # in single bytes, and without a cache
    memory = tuple(replace(level, access_bytes=1) for level in bare.memory if level.kind != "cache")
    for name in MODELS:
        graph = model(shared, name)
        found = simulate(CostRequest(graph, replace(bare, memory=memory), unfused(graph)))
        room = found.request.accelerator.buffer.capacity_bytes
        for group in found.groups:
            size = whole_bytes(graph, group)
            # Twice: a double-buffered machine may hold two copies of what it streams.
            if size is None or 2 * size > room:
                continue
            read, write = group.dram_bytes(found.request.accelerator.dram.name)
            assert read + write == size, (name, graph.operators[group.operators[0]].name)
            assert write == group.operator_bytes - read
            checked += 1
    assert checked >= 10
