"""A cache between DRAM and the buffers: what is found there, across groups and within one, and at which share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.cost.result import CostRequest, CostResult
from model.cost.reuse import held
from model.cost.simulate import GroupCache, simulate
from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.graph.load import load_graph
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


def test_what_no_use_had_is_not_there() -> None:
    # An append writes 2 bytes of tensor 0; the first to read all 10 fetches them, the next one finds them.
    append, small, whole = (0, 2, False, True), (0, 3, True, False), (0, 10, True, False)
    found = [warm for warm, _ in held([[append], [small], [whole], [small], [whole]], 100, frozenset())]
    assert found == [frozenset(), frozenset(), frozenset(), {0}, {0}]


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


def summed_branches() -> OperatorGraph:
    """Y[64, 64] = X W0 + X W1 + X W2, bytes: three products of one input."""
    sketch = Sketch()
    sketch.tensor("X", 64, 64)
    parts: list[str] = []
    for i in range(3):
        sketch.tensor(f"W{i}", 64, 64, weight=True)
        parts.append(sketch.product("X", f"W{i}", f"P{i}"))
    sketch.pointwise("Sum", parts, "Y")
    return sketch.graph("Y")


@pytest.mark.parametrize(
    ("capacity", "read"),
    [
        # All of the group: X, three weights, Y, 4,096 bytes each. A reader by other loops finds X then.
        (5 * 4096, 4096),
        (5 * 4096 - 1, 3 * 4096),
    ],
)
def test_a_reader_finds_what_another_of_its_group_left(capacity: int, read: int) -> None:
    """Each product has loops of its own, so that X comes in three times; behind a cache that holds all, once."""
    graph = summed_branches()
    tree = "MatMul_0(m), MatMul_1(m), MatMul_2(m), Sum_3"
    level = LevelTile("buffer", (("m", 16),), retain=(("X", 1),))
    plan = Plan.of([FusionGroup((0, 1, 2, 3), (level,), tree=tree)])
    result = simulate(CostRequest(graph, with_cache(capacity), plan))
    assert dram(result, "X") == (read, 0)
    rows = [row for row in result.groups[0].traffic if row.outer == "L2" and row.tensor == 0]
    assert sum(row.read_bytes for row in rows) == 3 * 4096


def test_what_spills_into_a_cache_that_holds_it_never_reaches_dram() -> None:
    """All tiles whole, and the widest intermediate without room in the buffer: it is dead before it is driven out."""
    from tests.test_cost_spills import all_whole

    without = all_whole(10_239)
    request = without.request
    bare = request.accelerator

    def behind(capacity: int) -> CostResult:
        level = MemoryLevel("L2", "device", capacity, 4e9, kind="cache")
        memory = (bare.memory[0], level, *bare.memory[1:])
        machine = replace(bare, memory=memory, digest=f"{bare.digest}, L2 of {capacity}")
        return simulate(replace(request, accelerator=machine))

    small, large = behind(1), behind(1 << 20)
    spilled = [group.spill_bytes for group in (without.groups[0], small.groups[0], large.groups[0])]
    assert len(set(spilled)) == 1 and spilled[0] > 0
    assert small.groups[0].spill_to == "DRAM" and large.groups[0].spill_to == "L2"
    moved = [r.totals.dram_read_bytes + r.totals.dram_write_bytes for r in (without, small, large)]
    assert moved[0] == moved[1] == moved[2] + spilled[0]


def test_what_is_refetched_of_a_tensor_that_was_warm_is_all_that_dram_moves_of_it() -> None:
    """B is found for its first pass, and fetched three times more: all of these are refetches, none is lost."""
    from model.cost.crossing import crossing
    from model.cost.layout import workspace
    from model.cost.traffic import measure
    from tests.test_walker import pack, product_nest

    nest = product_nest("mnk", {"m": 2, "n": 3, "k": 2})
    arrays = pack(nest)
    counts = np.zeros((arrays.levels, len(arrays.acc), 4), np.int64)
    rows, work = workspace(arrays)
    measure(
        arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
        arrays.levels, arrays.stages, 1, counts, np.zeros(1, np.int64), np.zeros(arrays.levels, np.int64), rows, work,
    )  # fmt: skip
    cores = np.zeros(3, np.int64)
    machine = with_cache(1)
    cold = crossing(machine, arrays, counts[0], rows, work, cores)
    warm = crossing(machine, arrays, counts[0], rows, work, cores, frozenset({1}))
    # B of 30 bytes comes twice: once more than it is there.
    assert cold.dram[1].tolist() == [2 * 30 * 8, 0] and warm.dram[1].tolist() == [30 * 8, 0]
    assert warm.refetched == cold.refetched


def test_tiles_are_chosen_for_what_they_cost_in_whole_sectors() -> None:
    """Of a product of which not all fits, B comes in rows of at least a sector where DRAM moves 64 bytes at once."""
    graph = product(64, 512, 512)
    machine = one_buffer(1 << 14)
    dram_level = replace(machine.memory[0], access_bytes=64)
    coarse = replace(machine, memory=(dram_level, machine.memory[1]), digest="sha256:coarse")
    chosen = simulate(CostRequest(graph, coarse, unfused(graph))).groups[0]
    fine = simulate(CostRequest(graph, machine, unfused(graph))).groups[0]
    tile = dict(fine.levels[0].tile)
    level = LevelTile("buffer", tuple(tile.items()), fine.levels[0].loop_order, fine.levels[0].retain)
    kept = simulate(CostRequest(graph, coarse, Plan.of([FusionGroup((0,), (level,))]))).groups[0]
    assert chosen.latency_s <= kept.latency_s
    assert dict(chosen.levels[0].tile)["n"] % 64 == 0


def test_a_decode_step_needs_its_whole_kv_cache_wherever_it_runs() -> None:
    graph = load_graph("decode_kv")
    weights = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    row = 2 * 8 * 8 * 128  # one token's keys, or values, of a batch of 8
    compulsory = weights + 2 * (2 * 8 * 4096) + 2 * (2047 + 1) * row
    for machine in ("edge-npu", "a100"):
        totals = simulate(CostRequest(graph, load_hardware(machine), unfused(graph))).totals
        assert totals.compulsory_dram_bytes == compulsory == 151_126_016
        assert totals.dram_read_bytes >= weights + 2 * 2047 * row  # 64 MiB of cache do not stay in 40
