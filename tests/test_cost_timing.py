"""Cycles against SCALE-Sim, the pipeline against its law and a simulated schedule, launches, waves, phases."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost import cycles
from model.cost import steps as walking
from model.cost import timing as t
from model.cost.profile import service_phases
from model.cost.result import PHASE_KINDS, CostRequest, GroupResult
from model.cost.simulate import simulate
from model.graph.graph import Access, Operator, OperatorGraph, OpKind
from model.hardware.accelerator import Accelerator, Launch, MatrixUnit, MemoryLevel, Partition, VectorUnit
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import Sketch, product, systolic

FLOWS = {"os": "output-stationary", "ws": "weight-stationary", "is": "input-stationary"}

# M, N, K, rows = columns, dataflow, cycles: `oracles/e_scalesim_systolic_open.json` (SCALE-Sim 3.0.0; its own count
# is one less, from cycle 0).
SCALE_SIM = [
    (1, 1000, 512, 128, "is", 5_528),
    (31, 31, 31, 128, "is", 413),
    (1, 1000, 512, 16, "is", 33_472),
    (197, 64, 197, 32, "is", 7_742),
    (128, 128, 128, 128, "os", 382),
    (256, 256, 256, 128, "os", 2_040),
    (1, 256, 256, 16, "os", 4_576),
    (197, 64, 197, 16, "os", 11_804),
    (100, 70, 45, 32, "os", 1_284),
    (256, 10, 84, 32, "os", 1_168),
    (1, 1000, 512, 128, "ws", 12_256),
    (256, 10, 84, 16, "ws", 1_812),
    (31, 31, 31, 32, "ws", 125),
]


def single(graph: OperatorGraph, machine: Accelerator, **tile: int) -> GroupResult:
    """The graph's operators in one group; tiles as given, whole where not."""
    members = tuple(range(len(graph.operators)))
    level = LevelTile("buffer", tuple(tile.items()))
    return simulate(CostRequest(graph, machine, Plan.of([FusionGroup(members, levels=(level,))]))).groups[0]


@pytest.mark.parametrize(("m", "n", "k", "size", "flow", "cycles"), SCALE_SIM)
def test_cycles_are_scale_sims(m: int, n: int, k: int, size: int, flow: str, cycles: int) -> None:
    group = single(product(m, n, k), systolic(size, size, FLOWS[flow]), m=m, n=n, k=k)
    assert group.cycles == cycles


@pytest.mark.shared
def test_cycles_are_scale_sims_in_every_row(shared: Path) -> None:
    rows = json.loads((shared / "oracles" / "e_scalesim_systolic_open.json").read_text())["rows"]
    for row in rows:
        machine = systolic(row["array_rows"], row["array_cols"], FLOWS[row["dataflow"]])
        m, n, k = row["M"], row["N"], row["K"]
        group = single(product(m, n, k), machine, m=m, n=n, k=k)
        assert group.cycles == row["formula_cycles"] == row["compute_cycles_no_stall"] + 1


def test_buffer_reads_of_the_array_are_scale_sims() -> None:
    """Output-stationary: the operands once per fold of the other side, the sums once (README of the oracles, e)."""
    m, n, k = 100, 70, 45
    group = single(product(m, n, k), systolic(32, 32), m=m, n=n, k=k)
    inner = {row.tensor: row for row in group.traffic if row.outer == "buffer"}
    assert inner[0].read_bytes == m * k * ceil(n / 32)
    assert inner[1].read_bytes == k * n * ceil(m / 32)
    assert inner[2].write_bytes == m * n


def test_overlapped_folds_hide_their_fill() -> None:
    """MINICASE 1: ceil(K/64) ceil(N/64) max(M, 64) + 190 on a 64 x 64 weight-stationary array."""
    machine = systolic(64, 64, "weight-stationary", overlap=True)
    assert single(product(171, 1152, 384), machine, m=171, n=1152, k=384).cycles == 6 * 18 * 171 + 190
    assert single(product(16, 384, 384), machine, m=16, n=384, k=384).cycles == 6 * 6 * 64 + 190


def test_a_slower_precision_stretches_every_cycle() -> None:
    machine = systolic(32, 32)
    unit = MatrixUnit("systolic", (("int8", 1024.0), ("fp32", 256.0)), 32, 32)
    slow = replace(machine, matrix_unit=unit, digest="slow")
    assert single(product(32, 32, 32), slow, m=32, n=32, k=32).cycles == 94
    assert single(product(32, 32, 32, dtype="float32"), slow, m=32, n=32, k=32).cycles == 4 * 94


def test_tensor_cores_pad_to_whole_instructions() -> None:
    unit = MatrixUnit("tensor-core", (("int8", 2048.0),), mma=(16, 8, 16))
    machine = replace(systolic(32, 32), matrix_unit=unit, digest="mma")
    group = single(product(17, 9, 33), machine, m=17, n=9, k=33)
    assert group.cycles == pytest.approx(32 * 16 * 48 / 2048)
    assert group.utilisation == pytest.approx(17 * 9 * 33 / (32 * 16 * 48))


def test_a_precision_that_is_no_faster_there_runs_on_the_lanes() -> None:
    """fp32 without TF32: one row of a decode step is not padded to sixteen."""
    unit = MatrixUnit("tensor-core", (("bf16", 1024.0), ("fp32", 64.0)), mma=(16, 8, 16))
    machine = replace(systolic(32, 32), matrix_unit=unit, vector_unit=VectorUnit(64), digest="no tf32")
    group = single(product(1, 64, 64, dtype="float32"), machine, m=1, n=64, k=64)
    assert group.cycles == pytest.approx(1 * 64 * 64 / 64)
    padded = single(product(1, 64, 64, dtype="bfloat16"), machine, m=1, n=64, k=64)
    assert padded.cycles == pytest.approx(16 * 64 * 64 / 1024)


def test_products_of_a_batch_run_one_after_the_other() -> None:
    sketch = Sketch()
    sketch.tensor("A", 5, 32, 16)
    sketch.tensor("B", 5, 16, 32)
    sketch.product("A", "B", "Y")
    group = single(sketch.graph("Y"), systolic(32, 32), b=5, m=32, n=32, k=16)
    assert group.cycles == 5 * (16 + 62)


# The pipeline.


def steps_of(loads: list[float], computes: list[float], stores: list[float]) -> np.ndarray:
    """Steps on a machine that moves a byte a second and computes for so many seconds."""
    steps = np.zeros((len(loads), walking.STEP_COLUMNS))
    steps[:, walking.T_PORT] = steps[:, walking.T_DEVICE] = loads
    steps[:, walking.T_OUT_PORT] = steps[:, walking.T_OUT_DEVICE] = stores
    steps[:, walking.T_MATRIX] = computes
    steps[:, walking.T_WEIGHT] = 1.0
    return steps


UNIT = np.ones(cycles.MACHINE_FIGURES)
UNIT[cycles.M_LATENCY] = UNIT[cycles.M_INFLIGHT] = 0.0
UNIT[cycles.M_ONCHIP] = 1e30

times = st.lists(st.integers(0, 20), min_size=1, max_size=6)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 20), min_size=n, max_size=n)] * 3)
    )
)
def test_the_pipeline_is_the_best_schedule_of_one_port_and_two_buffers(parts: tuple[list[int], ...]) -> None:
    loads, computes, stores = ([float(x) for x in part] for part in parts)
    n = len(loads)
    steps = steps_of(loads, computes, stores)
    terms = np.zeros((n + 2, t.TERM_COLUMNS))
    relief = np.ones(t.RESOURCES)
    double = t.pipeline(steps, n, 2, UNIT, relief, terms)
    law = loads[0] + stores[-1]
    for i in range(n):
        law += max(computes[i], (loads[i + 1] if i + 1 < n else 0.0) + (stores[i - 1] if i else 0.0))
    assert double == pytest.approx(law)
    assert terms[:, t.P_SECONDS].sum() == pytest.approx(double)
    assert terms[:, t.P_BYTES].sum() == pytest.approx(sum(loads) + sum(stores))
    single = t.pipeline(steps, n, 1, UNIT, relief, terms)
    assert single == pytest.approx(sum(loads) + sum(computes) + sum(stores))
    assert terms[:, t.P_SECONDS].sum() == pytest.approx(single)
    assert terms[:, t.P_BYTES].sum() == pytest.approx(sum(loads) + sum(stores))


def test_a_vector_tail_runs_beside_the_next_matrix_step() -> None:
    steps = steps_of([0.0] * 3, [10.0, 10.0, 10.0], [0.0] * 3)
    steps[:, walking.T_TAIL] = [4.0, 12.0, 4.0]
    none, relief = np.zeros((0, t.TERM_COLUMNS)), np.ones(t.RESOURCES)
    # 10, then max(10, 4), then max(10, 12), then the last tail alone.
    assert t.pipeline(steps, 3, 2, UNIT, relief, none) == 10 + 10 + 12 + 4
    assert t.pipeline(steps, 3, 1, UNIT, relief, none) == 30 + 20


def test_littles_law_bounds_a_small_load() -> None:
    mach = UNIT.copy()
    mach[cycles.M_LATENCY] = 50.0
    steps, relief = steps_of([8.0], [0.0], [0.0]), np.ones(t.RESOURCES)
    none = np.zeros((0, t.TERM_COLUMNS))
    # One tile in flight per stage: 8 B need 50 s with one, 25 s with two; but the first has nothing beside it.
    assert t.pipeline(steps, 1, 1, mach, relief, none) == 50.0
    assert t.pipeline(steps, 1, 2, mach, relief, none) == 50.0
    two = steps_of([8.0, 8.0], [0.0, 0.0], [0.0, 0.0])
    assert t.pipeline(two, 2, 1, mach, relief, none) == 100.0
    assert t.pipeline(two, 2, 2, mach, relief, none) == 75.0
    mach[cycles.M_INFLIGHT] = 4.0  # simt: the resident threads ask for 4 B at once
    assert t.pipeline(steps, 1, 1, mach, relief, none) == 100.0


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2]))
def test_middles_shown_once_count_as_often_as_they_run(m: int, n: int, k: int, stages: int) -> None:
    """The walk shows five iterations of a long loop; all steps written out give the same seconds."""
    tile = {"m": 3, "n": 2, "k": 4}
    graph = product(3 * m + 1, 2 * n + 1, 4 * k + 1)
    level = LevelTile("buffer", tuple(tile.items()), ("m", "n", "k"), (("A", 3), ("B", 3), ("Y", 3)))
    group = FusionGroup((0,), levels=(level,), stages=stages)
    machine = replace(systolic(4, 4, bandwidth=40e9), digest="steps")
    found = simulate(CostRequest(graph, machine, Plan.of([group]))).groups[0]
    loads, computes, stores = [], [], []

    def cut(extent: int, step: int) -> list[int]:
        return [min(step, extent - at) for at in range(0, extent, step)]

    sums = cut(4 * k + 1, 4)
    for rows in cut(3 * m + 1, 3):
        for columns in cut(2 * n + 1, 2):
            for i, inner in enumerate(sums):
                loads.append(float(rows * inner + inner * columns))
                computes.append(ceil(rows / 4) * ceil(columns / 4) * (inner + 6) * 1e-9)
                stores.append(float(rows * columns) if i == len(sums) - 1 else 0.0)
    mach = UNIT.copy()
    mach[cycles.M_PORT] = mach[cycles.M_DEVICE] = 40e9
    steps = steps_of(loads, computes, stores)
    none = np.zeros((0, t.TERM_COLUMNS))
    expected = t.pipeline(steps, len(loads), stages, mach, np.ones(t.RESOURCES), none)
    assert found.latency_s == pytest.approx(expected, abs=0.501e-9, rel=0.0)  # a whole number of ns


def test_a_plan_that_leaves_no_room_loses_its_second_stage_and_says_so() -> None:
    graph = product(64, 64, 64)
    level = LevelTile("buffer", (("m", 32), ("n", 64), ("k", 64)), ("m",))
    plan = Plan.of([FusionGroup((0,), levels=(level,))])
    two = 2 * 32 * 64 + 64 * 64 + 2 * 32 * 64
    roomy = simulate(CostRequest(graph, systolic(32, 32, capacity=two), plan)).groups[0]
    tight = simulate(CostRequest(graph, systolic(32, 32, capacity=two - 1), plan)).groups[0]
    assert (roomy.stages, tight.stages) == (2, 1)
    assert tight.latency_s > roomy.latency_s
    assert any("no room for a second stage" in what for _, what, _ in tight.warnings)
    assert not roomy.warnings


# Launches.


def chain(count: int) -> OperatorGraph:
    sketch = Sketch()
    sketch.tensor("x0", 1000)
    for i in range(count):
        sketch.pointwise("Relu", [f"x{i}"], f"x{i + 1}", "relu")
    return sketch.graph(f"x{count}")


def test_launches_follow_issue_and_gap() -> None:
    """Group i starts at max(end of i-1 + gap, (i+1) * issue)."""
    graph = chain(4)
    for issue, gap in ((0.0, 3e-6), (5e-6, 1e-6), (1e-6, 0.5e-6)):
        machine = replace(systolic(4, 4), launch=Launch(issue, gap), digest=f"{issue}-{gap}")
        result = simulate(CostRequest(graph, machine, unfused(graph)))
        end = overhead = 0.0
        for i, group in enumerate(result.groups):
            start = max(end + gap, (i + 1) * issue)
            assert group.start_s == pytest.approx(start)
            overhead += start - end
            end = start + group.latency_s
        assert result.totals.latency_s == pytest.approx(end)
        assert result.totals.launch_s == pytest.approx(overhead)


def test_views_launch_nothing_and_opaque_operators_move_their_bytes() -> None:
    graph = chain(3)
    a, b, c = graph.operators
    view = Operator(1, "Reshape_1", "Reshape", OpKind.VIEW, b.dims, b.inputs, b.outputs, linear=True)
    ends = [Access(access.tensor, whole=True) for access in c.inputs + c.outputs]
    opaque = Operator(
        2, "Magic_2", "Magic", OpKind.OPAQUE, (), (ends[0],), (ends[1],), reason="unknown operator"
    )
    mixed = replace(graph, operators=(a, view, opaque))
    result = simulate(CostRequest(mixed, systolic(4, 4), unfused(mixed)))
    assert [group.launches for group in result.groups] == [1, 0, 1]
    assert result.totals.launches == 2
    assert result.groups[1].latency_s == 0.0
    assert result.groups[1].traffic == ()
    assert result.groups[2].compulsory_bytes == 2_000
    assert result.groups[2].latency_s == pytest.approx(2_000 / 1e9)
    assert any("unknown operator" in what for _, what, _ in result.warnings)


# Cores.


def test_tiles_are_dealt_over_cores_in_waves() -> None:
    """Ten row tiles on four cores: three waves, of which the last is half empty."""
    machine = replace(systolic(8, 8, cores=4), partition=Partition(1, 4), digest="four cores")
    graph = product(80, 8, 8)
    level = LevelTile("buffer", (("m", 8), ("n", 8), ("k", 8)), ("m",), (("B", 0),))
    group = simulate(CostRequest(graph, machine, Plan.of([FusionGroup((0,), levels=(level,))]))).groups[0]
    assert group.parallel == (("m", 4),)
    assert group.waves == 3
    assert group.cycles == 3 * (8 + 14)
    # DRAM bytes are those of the sequential walk: B is shared by the cores.
    assert group.dram_bytes("DRAM") == (80 * 8 + 64, 80 * 8)
    assert int(group.phases["bytes"].sum()) == 80 * 8 + 64 + 80 * 8


def test_one_tile_keeps_one_core_busy_and_that_shows() -> None:
    machine = replace(systolic(8, 8, cores=4, bandwidth=1e13), partition=Partition(1, 4), digest="starved")
    group = single(product(8, 8, 4096), machine, m=8, n=8, k=4096)
    assert group.parallel == ()
    assert group.utilisation == pytest.approx(1 / 4 * 4096 / (4096 + 14))


def test_a_slot_is_simulated_on_its_own_cores_and_port() -> None:
    """Four slots of one core: the port is the core's, the bus is not divided here."""
    machine = replace(
        systolic(8, 8, cores=4),
        memory=(
            MemoryLevel("DRAM", "device", 1 << 40, 4e9, bandwidth_per_core_bytes_per_s=1e9),
            MemoryLevel("buffer", "core", 1 << 20, 1e15),
        ),
        partition=Partition(4, 1),
        digest="slots",
    )
    group = single(product(8, 8, 8), machine, m=8, n=8, k=8)
    assert round(group.latency_s * 1e9) == 128 + 22 + 64


# Phases.


def test_phases_are_few_and_keep_their_sums() -> None:
    graph = product(512, 512, 512)
    level = LevelTile("buffer", (("m", 32), ("n", 64), ("k", 128)), ("m", "n", "k"))
    plan = Plan.of([FusionGroup((0,), levels=(level,))])
    result = simulate(CostRequest(graph, systolic(32, 32, bandwidth=2e9, capacity=100_000), plan))
    (group,) = result.groups
    phases = service_phases(result)
    assert len(phases) <= 9
    kinds = [PHASE_KINDS[kind] for kind in phases["kind"]]
    assert kinds[0] == "launch"
    assert kinds[1] == "first"
    assert kinds[-1] == "last"
    assert int(phases["base_ns"].sum()) == round(result.totals.latency_s * 1e9)
    assert int(phases["bytes"].sum()) == result.totals.dram_read_bytes + result.totals.dram_write_bytes
    refetched = sum(group.dram_bytes("DRAM")) - group.compulsory_bytes
    assert int(phases["refetch"].sum()) == refetched > 0
    assert (phases["refetch"] + phases["spill"] <= phases["bytes"]).all()


def test_weights_that_stay_are_a_cold_pass() -> None:
    """Two products under one row loop, all weights retained: the second's weights are loaded in iteration 0 only."""
    sketch = Sketch()
    sketch.tensor("X", 256, 64)
    sketch.tensor("W1", 64, 64, weight=True)
    sketch.tensor("W2", 64, 64, weight=True)
    sketch.product("X", "W1", "T")
    sketch.product("T", "W2", "Y")
    graph = sketch.graph("Y")
    level = LevelTile("buffer", (("m", 32), ("n", 64), ("k", 64), ("n_2", 64)), ("m",))
    plan = Plan.of([FusionGroup((0, 1), levels=(level,))])
    (group,) = simulate(CostRequest(graph, systolic(32, 32, bandwidth=32e9), plan)).groups
    kinds = [PHASE_KINDS[kind] for kind in group.phases["kind"]]
    assert kinds[1:3] == ["first", "cold"]
    assert group.phases["bytes"][1] == 32 * 64 + 64 * 64
    assert group.phases["bytes"][2] == 64 * 64


def test_merging_takes_the_neighbours_that_move_least() -> None:
    terms = np.zeros((12, t.TERM_COLUMNS))
    terms[:, t.P_KIND] = t.STEADY
    terms[:, t.P_SECONDS] = 1.0
    terms[:, t.P_BYTES] = [10, 10.1, 50, 5, 90, 1, 70, 3, 60, 2, 80, 4]
    out = np.zeros((12, t.TERM_COLUMNS))
    count = t.phases(terms, 12, 100.0, 8, out)
    assert count == 8
    assert out[:count, t.P_SECONDS].sum() == 12.0
    assert out[:count, t.P_BYTES].sum() == pytest.approx(terms[:, t.P_BYTES].sum())
    # The first two differ by 0.1 % of the port and are one phase of two seconds, or part of a longer one.
    assert out[0, t.P_SECONDS] >= 2.0


def test_the_bottleneck_is_the_resource_whose_relief_helps_most() -> None:
    graph = product(512, 512, 512)
    starved = simulate(CostRequest(graph, systolic(32, 32, bandwidth=1e8), unfused(graph)))
    fed = simulate(CostRequest(graph, systolic(32, 32, bandwidth=1e12), unfused(graph)))
    assert starved.totals.bottleneck == "DRAM bandwidth"
    assert fed.totals.bottleneck == "matrix compute"
    assert fed.totals.bottleneck_gain == pytest.approx(1 - 1 / 1.1, abs=0.01)
    launching = replace(systolic(32, 32, bandwidth=1e12), launch=Launch(0.0, 1e-2), digest="launch")
    assert simulate(CostRequest(graph, launching, unfused(graph))).totals.bottleneck == "launch"


def test_the_evidence_tells_matrix_and_vector_time_apart() -> None:
    """They overlap: their sum, `compute_s`, may exceed the latency; each alone does not."""
    sketch = Sketch()
    sketch.tensor("X", 512, 512)
    sketch.tensor("W", 512, 512, weight=True)
    sketch.product("X", "W", "T")
    sketch.pointwise("Relu", ["T"], "Y", "relu")
    graph = sketch.graph("Y")
    machine = systolic(32, 32, bandwidth=1e12)
    (group,) = simulate(CostRequest(graph, machine, Plan.of([FusionGroup((0, 1))]))).groups
    found = re.fullmatch(
        r"busy side by side: matrix unit (\S+ \S+), vector unit (\S+ \S+), loads and stores (\S+ \S+); "
        r"all of it takes (\S+ \S+)",
        group.bottleneck.evidence,
    )
    assert found is not None
    prefixes = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    matrix, vector, moving, whole = (
        float(text.split()[0]) * prefixes[text.split()[1]] for text in found.groups()
    )
    assert matrix > 0.0 and vector > 0.0
    assert matrix + vector == pytest.approx(group.compute_s, rel=1e-3)
    assert moving == pytest.approx(group.dram_s, rel=1e-3)
    assert max(matrix, vector, moving) <= whole * 1.001
