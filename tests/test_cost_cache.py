"""A cache between DRAM and the buffers: what is found there, across groups and within one, and at which share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.cost.result import CostRequest, CostResult
from model.cost.reuse import held
from model.cost.simulate import GroupCache, simulate
from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.hardware.accelerator import Accelerator, MemoryLevel, Partition
from model.hardware.loader import load_hardware
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import Sketch, mlp, one_buffer, product


def with_cache(capacity: int, buffer: int = 1 << 16, slots: int = 1) -> Accelerator:
    """One buffer, and a cache outside it."""
    machine = one_buffer(buffer)
    cache = MemoryLevel("L2", "device", capacity, 4e9, kind="cache")
    return replace(
        machine,
        memory=(machine.memory[0], cache, machine.memory[1]),
        digest=f"sha256:cache-{capacity}-{buffer}-{slots}",
        cores=slots,
        partition=Partition(slots, 1),
    )


def without_cache(buffer: int = 1 << 16) -> Accelerator:
    return one_buffer(buffer)


def dram(result: CostResult, name: str) -> tuple[int, int]:
    """Bytes of a tensor that are read from and written to DRAM, over all groups."""
    tensors = [tensor.name for tensor in result.request.graph.tensors]
    rows = [
        row
        for group in result.groups
        for row in group.traffic
        if row.outer == "DRAM" and tensors[row.tensor] == name
    ]
    return sum(row.read_bytes for row in rows), sum(row.write_bytes for row in rows)


def chain(length: int, rows: int = 64) -> OperatorGraph:
    """`length` pointwise operators, one after the other, on rows x 64 bytes."""
    sketch = Sketch()
    name = sketch.tensor("X", rows, 64)
    for i in range(length):
        name = sketch.pointwise("Relu", [name], f"T{i}", "relu")
    return sketch.graph(name)


def test_a_small_intermediate_never_leaves_the_cache_though_unfused() -> None:
    graph = chain(3)
    result = simulate(CostRequest(graph, with_cache(3 * 4096), unfused(graph)))
    assert dram(result, "X") == (4096, 0)
    assert dram(result, "T0") == dram(result, "T1") == (0, 0)
    assert dram(result, "T2") == (0, 4096)
    totals = result.totals
    assert totals.dram_read_bytes + totals.dram_write_bytes == 2 * 4096 == totals.compulsory_dram_bytes
    assert totals.intermediate_onchip_share == 1.0
    control = simulate(CostRequest(graph, without_cache(), unfused(graph)))
    assert dram(control, "T0") == dram(control, "T1") == (4096, 4096)


def test_all_that_crosses_is_still_counted_at_the_cache() -> None:
    graph = chain(3)
    result = simulate(CostRequest(graph, with_cache(1 << 20), unfused(graph)))
    rows = [row for group in result.groups for row in group.traffic if row.outer == "L2"]
    assert sum(row.read_bytes + row.write_bytes for row in rows) == 6 * 4096 == result.totals.operator_bytes


def test_concurrent_requests_shrink_the_share() -> None:
    graph = chain(3)
    alone = simulate(CostRequest(graph, with_cache(4 * 4096), unfused(graph)))
    four = simulate(CostRequest(graph, with_cache(4 * 4096, slots=4), unfused(graph)))
    assert dram(alone, "T0") == (0, 0)
    assert dram(four, "T0") == (4096, 4096)


def test_a_whole_tensor_is_lost_to_what_came_between() -> None:
    # Tensor 0 is read by groups 0 and 2; group 1 touches 30 bytes between.
    groups = [[(0, 10, True, False), (1, 10, False, True)], [(2, 30, True, False)], [(0, 10, True, False)]]
    assert held(groups, 50, frozenset())[2][0] == {0}
    assert held(groups, 49, frozenset())[2][0] == frozenset()


def test_what_is_written_reaches_dram_where_one_reader_does_not_find_it_or_the_graph_hands_it_out() -> None:
    made, big = (1, 10, False, True), (2, 100, True, False)
    used = (1, 10, True, False)
    assert held([[made], [used]], 10, frozenset())[0][1] == {1}
    assert held([[made], [used]], 10, frozenset({1}))[0][1] == frozenset()
    assert held([[made], [used], [big], [used]], 105, frozenset())[0][1] == frozenset()
    assert held([[made], [used], [big], [used]], 110, frozenset())[0][1] == {1}
    assert held([[made]], 10, frozenset())[0][1] == frozenset()  # nobody needs it: it is not known to be dead


def test_an_operator_of_which_nothing_is_known_sweeps_the_cache() -> None:
    sketch = Sketch()
    sketch.tensor("X", 64, 64)
    sketch.pointwise("Relu", ["X"], "T", "relu")
    whole = (Axis(((0, 1),)), Axis(((1, 1),)))
    dims = [Dim("i0", 64), Dim("i1", 64)]
    sketch.add("Mystery", OpKind.OPAQUE, dims, [("T", whole)], ("O", whole))
    sketch.pointwise("Add", ["O", "T"], "Y", "add")
    graph = sketch.graph("Y")
    result = simulate(CostRequest(graph, with_cache(1 << 30), unfused(graph)))
    assert dram(result, "T") == (2 * 4096, 4096) and dram(result, "O") == (4096, 4096)


def tiled(machine: Accelerator) -> CostResult:
    """Y[64, 64] = A[64, 64] B[64, 64], rows in four tiles outside columns in four: A stays, B is fetched four times."""
    level = LevelTile("buffer", (("m", 16), ("n", 16), ("k", 64)), ("m", "n"), (("A", 1), ("B", 2), ("Y", 2)))
    return simulate(CostRequest(product(64, 64, 64), machine, Plan.of([FusionGroup((0,), (level,))])))


@pytest.mark.parametrize(
    ("capacity", "read"),
    [
        # One iteration of m: A 16 x 64, all of B, Y 16 x 64: 1,024 + 4,096 + 1,024 bytes.
        (6144, 4096),
        (6143, 4 * 4096),
    ],
)
def test_a_tile_is_found_again_where_one_iteration_fits(capacity: int, read: int) -> None:
    result = tiled(with_cache(capacity))
    assert dram(result, "B") == (read, 0)
    assert dram(result, "A") == (4096, 0) and dram(result, "Y") == (0, 4096)
    assert dram(tiled(without_cache()), "B") == (4 * 4096, 0)
    refetched = sum(int(group.phases["refetch"].sum()) for group in result.groups)
    assert refetched == read - 4096


def test_a_plan_is_faster_with_a_cache_and_an_edit_gives_what_a_fresh_start_gives() -> None:
    graph = mlp(64, 64, 128)
    machine = with_cache(1 << 20, buffer=1 << 14)
    cache = GroupCache()
    first = simulate(CostRequest(graph, machine, unfused(graph)), cache)
    assert (
        first.totals.latency_s
        < simulate(CostRequest(graph, one_buffer(1 << 14), unfused(graph))).totals.latency_s
    )
    pair = Plan.of([FusionGroup((0, 1)), FusionGroup((2,))])
    edited = simulate(CostRequest(graph, machine, pair), cache)
    fresh = simulate(CostRequest(graph, machine, pair))
    assert edited.totals == fresh.totals and edited.baseline == fresh.baseline
    assert [group.traffic for group in edited.groups] == [group.traffic for group in fresh.groups]
    again = simulate(CostRequest(graph, machine, unfused(graph)), cache)
    assert again.totals == first.totals == again.baseline
    for result in (first, edited):
        moved = sum(int(group.phases["bytes"].sum()) for group in result.groups)
        assert moved == result.totals.dram_read_bytes + result.totals.dram_write_bytes


def test_the_packaged_a100_keeps_small_intermediates_in_its_l2() -> None:
    machine = load_hardware("a100")
    graph = mlp(128, 1024, 4096, dtype="float16")
    result = simulate(CostRequest(graph, machine, unfused(graph)))
    moved = result.totals.dram_read_bytes + result.totals.dram_write_bytes
    assert moved == result.totals.compulsory_dram_bytes
    bare = replace(machine, memory=(machine.memory[0], machine.memory[2]), digest="sha256:no-l2")
    control = simulate(CostRequest(graph, bare, unfused(graph)))
    assert control.totals.dram_read_bytes + control.totals.dram_write_bytes > moved
