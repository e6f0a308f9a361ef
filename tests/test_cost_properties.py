"""Properties of costs on random groups and tiles: bounds, sums, monotony, and what fusing may and may not add."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost.profile import service_phases
from model.cost.result import CostRequest, CostResult, GroupResult
from model.cost.simulate import GroupCache, simulate
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator, Launch, MemoryLevel
from model.hardware.loader import load_hardware
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import Sketch, attention, mlp, one_buffer, product, systolic

extent = st.integers(1, 40)


@st.composite
def block(draw: st.DrawFn) -> OperatorGraph:
    """A product, a pointwise tail of one to three operators, sometimes a second product after it."""
    m, n, k, p = draw(extent), draw(extent), draw(extent), draw(extent)
    sketch = Sketch(draw(st.sampled_from(["int8", "float16", "float32"])))
    sketch.tensor("X", m, k)
    sketch.tensor("W", k, n, weight=True)
    last = sketch.product("X", "W", "t0")
    for i in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["Relu", "Bias", "Residual"]))
        extra = {
            "Relu": [],
            "Bias": [sketch.tensor(f"c{i}", n, weight=True)],
            "Residual": [sketch.tensor(f"c{i}", m, n)],
        }[kind]
        last = sketch.pointwise(kind, [last, *extra], f"t{i + 1}")
    if draw(st.booleans()):
        sketch.tensor("V", n, p, weight=True)
        last = sketch.product(last, "V", "y")
    return sketch.graph(last)


machines = st.sampled_from(
    [
        systolic(8, 8, capacity=4096),
        systolic(8, 8, "weight-stationary", overlap=True, capacity=1 << 16),
        one_buffer(2048),
        replace(systolic(4, 16, "input-stationary", capacity=8192), launch=Launch(2e-7, 1e-7), digest="is"),
    ]
)


def together(graph: OperatorGraph, **knobs: object) -> Plan:
    return Plan.of([FusionGroup(tuple(range(len(graph.operators))), **knobs)])  # type: ignore[arg-type]


def moved(group: GroupResult) -> int:
    return sum(group.dram_bytes("DRAM"))


def check_sums(result: CostResult) -> None:
    """Totals are the sums of their parts; phases are the latency and the traffic."""
    totals, groups = result.totals, result.groups
    assert totals.dram_read_bytes == sum(g.dram_bytes("DRAM")[0] for g in groups)
    assert totals.dram_write_bytes == sum(g.dram_bytes("DRAM")[1] for g in groups)
    assert totals.macs == sum(g.macs for g in groups)
    assert totals.launches == sum(g.launches for g in groups)
    assert totals.operator_bytes == sum(g.operator_bytes for g in groups)
    assert totals.spill_bytes == sum(g.registers.spilled_bytes for g in groups)
    assert totals.energy_j == pytest.approx(sum(g.energy_j for g in groups))
    assert round(totals.latency_s * 1e9) == sum(round(g.latency_s * 1e9) for g in groups) + round(
        totals.launch_s * 1e9
    )
    phases = service_phases(result)
    assert int(phases["base_ns"].sum()) == round(totals.latency_s * 1e9)
    assert int(phases["bytes"].sum()) == totals.dram_read_bytes + totals.dram_write_bytes
    assert (phases["base_ns"] >= 0).all()
    assert (phases["spill"] >= 0).all()
    assert (phases["refetch"] >= 0).all()
    assert (phases["spill"] + phases["refetch"] <= phases["bytes"]).all()


@settings(deadline=None, max_examples=60)
@given(block(), machines)
def test_traffic_is_at_least_compulsory_and_everything_sums(
    graph: OperatorGraph, machine: Accelerator
) -> None:
    result = simulate(CostRequest(graph, machine, together(graph)))
    check_sums(result)
    for group in result.groups:
        assert moved(group) >= group.compulsory_bytes
        assert group.lower_bound_bytes >= group.compulsory_bytes or group.bound_source == "compulsory"
        assert moved(group) >= group.lower_bound_bytes
    assert result.totals.onchip_reuse_ratio <= 1.0
    assert result.baseline.onchip_reuse_ratio <= 0.0 or result.baseline.dram_read_bytes == 0


@settings(deadline=None, max_examples=60)
@given(block(), machines)
def test_an_operator_whose_operands_fit_moves_them_exactly_once(
    graph: OperatorGraph, machine: Accelerator
) -> None:
    result = simulate(CostRequest(graph, machine, unfused(graph)))
    check_sums(result)
    assert result.totals.onchip_reuse_ratio == result.baseline.onchip_reuse_ratio
    assert result.totals.launch_overhead_reduction == 0.0
    for group in result.groups:
        # Sums in the buffer of a machine without accumulators are wider than the output.
        if 4 * group.operator_bytes <= machine.buffer.capacity_bytes:
            assert moved(group) == group.operator_bytes == group.compulsory_bytes


@settings(deadline=None, max_examples=40)
@given(block(), st.data())
def test_fusing_at_equal_tiles_adds_nothing_for_the_fused_tensors(
    graph: OperatorGraph, data: st.DataObject
) -> None:
    """Rows in one tile size throughout: what is produced and read inside never reaches DRAM, inputs are as before."""
    machine = one_buffer(1 << 30)
    rows = data.draw(st.integers(1, 40))
    fused = simulate(
        CostRequest(graph, machine, together(graph, levels=(LevelTile("buffer", (("m", rows),), ("m",)),)))
    ).groups[0]
    inside = {op.outputs[0].tensor for op in graph.operators[:-1]}
    outside = {row.tensor for row in fused.traffic if row.outer == "DRAM"}
    assert not inside & outside
    separate = simulate(
        CostRequest(
            graph,
            machine,
            Plan.of(
                [
                    FusionGroup((op.index,), levels=(LevelTile("buffer", ((op.dims[0].name, rows),)),))
                    for op in graph.operators
                ]
            ),
        )
    )
    assert moved(fused) <= sum(moved(group) for group in separate.groups)
    assert fused.macs == separate.totals.macs


@settings(deadline=None, max_examples=60)
@given(extent, extent, extent, st.data())
def test_footprint_is_monotone_in_tiles(m: int, n: int, k: int, data: st.DataObject) -> None:
    graph, machine = product(m, n, k), one_buffer(1 << 30, bits=8)
    order = tuple(data.draw(st.permutations("mnk")))
    retain = (("A", 3), ("B", 3), ("Y", 3))
    small = {name: data.draw(st.integers(1, size)) for name, size in zip("mnk", (m, n, k), strict=True)}
    large = {
        name: data.draw(st.integers(small[name], size)) for name, size in zip("mnk", (m, n, k), strict=True)
    }

    def held(tile: dict[str, int]) -> int:
        level = LevelTile("buffer", tuple(tile.items()), order, retain)
        return (
            simulate(CostRequest(graph, machine, together(graph, levels=(level,))))
            .groups[0]
            .footprint_bytes[0][1]
        )

    assert held(small) <= held(large)


@pytest.mark.parametrize("make", [lambda: mlp(96, 64, 256), lambda: attention(64, 96, 16, 4)])
def test_more_room_never_moves_more(make) -> None:  # type: ignore[no-untyped-def]
    graph = make()
    last = None
    for capacity in (1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 20):
        now = moved(simulate(CostRequest(graph, one_buffer(capacity), together(graph))).groups[0])
        assert last is None or now <= last
        last = now


def test_results_do_not_depend_on_the_cache_or_on_what_was_asked_before() -> None:
    graph = mlp(128, 64, 256)
    machine = load_hardware("edge-npu")
    plans = [together(graph), unfused(graph), Plan.of([FusionGroup((0, 1)), FusionGroup((2,))])]
    cache = GroupCache()
    for plan in plans + plans[::-1]:
        for precision in ("", "int8"):
            request = CostRequest(graph, machine, plan, precision)
            warm, fresh = simulate(request, cache), simulate(request)
            assert warm.totals == fresh.totals
            assert warm.baseline == fresh.baseline
            for one, other in zip(warm.groups, fresh.groups, strict=True):
                assert np.array_equal(one.phases, other.phases)
                for field in fields(GroupResult):
                    if field.name != "phases":
                        assert getattr(one, field.name) == getattr(other, field.name)


def test_equal_blocks_are_solved_once_and_keep_their_own_names() -> None:
    sketch = Sketch()
    sketch.tensor("x0", 64, 64)
    for i in range(6):
        sketch.tensor(f"w{i}", 64, 64, weight=True)
        sketch.product(f"x{i}", f"w{i}", f"t{i}")
        sketch.pointwise("Relu", [f"t{i}"], f"x{i + 1}", "relu")
    graph = sketch.graph("x6")
    plan = Plan.of([FusionGroup((2 * i, 2 * i + 1)) for i in range(6)])
    result = simulate(CostRequest(graph, load_hardware("edge-npu"), plan))
    # One pair, one product, one Relu; the last pair and the last Relu write a graph output.
    assert result.evaluated == 5
    for i, group in enumerate(result.groups):
        assert f"MatMul_{2 * i}" in group.tree
        names = {graph.tensors[row.tensor].name for row in group.traffic if row.outer == "DRAM"}
        assert names == {f"x{i}", f"w{i}", f"x{i + 1}"}
    starts = [group.start_s for group in result.groups]
    assert starts == sorted(starts)


def test_an_edit_solves_only_what_it_touches() -> None:
    graph = mlp(128, 64, 256)
    machine = load_hardware("edge-npu")
    cache = GroupCache()
    before = simulate(CostRequest(graph, machine, unfused(graph)), cache)
    kept = before.request.plan.groups[2]
    edited = Plan.of([FusionGroup((0, 1)), kept])
    after = simulate(CostRequest(graph, machine, edited), cache)
    assert after.evaluated == 1
    assert after.groups[1].levels == before.groups[2].levels
    assert after.groups[1].start_s != before.groups[2].start_s


def test_parts_that_a_machine_leaves_out_do_not_limit() -> None:
    bare = Accelerator(
        name="bare",
        source="tests",
        digest="sha256:bare",
        clock_hz=1e9,
        cores=1,
        memory=(MemoryLevel("DRAM", "device", 1 << 40), MemoryLevel("buffer", "core", 1 << 20)),
    )
    result = simulate(CostRequest(product(64, 64, 64), bare, unfused(product(64, 64, 64))))
    assert result.totals.latency_s == 0.0
    assert result.totals.dram_read_bytes == 2 * 64 * 64
    assert result.totals.bottleneck == "none"
    assert result.groups[0].registers.spilled_bytes == 0


def test_an_operator_without_dims_is_one_element() -> None:
    sketch = Sketch()
    sketch.tensor("x")
    sketch.pointwise("Relu", ["x"], "y", "relu")
    result = simulate(CostRequest(sketch.graph("y"), load_hardware("edge-npu"), together(sketch.graph("y"))))
    check_sums(result)
    assert result.totals.dram_read_bytes == result.totals.dram_write_bytes == 1


def test_a_view_at_the_end_of_a_group_cuts_no_dims() -> None:
    """A product and the reshape of its result map as the product alone: nobody in the group reads the pieces."""
    from tests.test_cost_unify import split_heads

    graph, machine = split_heads().graph("S"), load_hardware("edge-npu")
    plan = Plan.of([FusionGroup((0, 1)), FusionGroup((2,))])
    with_view = simulate(CostRequest(graph, machine, plan)).groups[0]
    single = simulate(CostRequest(graph, machine, unfused(graph))).groups[0]
    assert with_view.dims == single.dims == (("m", 16), ("n", 24), ("k", 32))
    assert with_view.levels == single.levels
    assert with_view.latency_s == single.latency_s
    assert with_view.dim_of == (("m", "n", "k"), ("", "", ""))
