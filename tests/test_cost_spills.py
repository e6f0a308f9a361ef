"""What the buffer has no room for: pinned weights, intermediates that spill, sums that cores share."""

from __future__ import annotations

from dataclasses import replace

from model.cost.result import CostRequest, CostResult
from model.cost.simulate import simulate
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator, Partition
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import Sketch, mlp, one_buffer, product, systolic


def dram(result: CostResult, name: str) -> tuple[int, int]:
    tensors = [tensor.name for tensor in result.request.graph.tensors]
    rows = [
        row
        for group in result.groups
        for row in group.traffic
        if row.outer == "DRAM" and tensors[row.tensor] == name
    ]
    return sum(row.read_bytes for row in rows), sum(row.write_bytes for row in rows)


def refetching(pinned: tuple[str, ...], capacity: int = 1 << 12) -> CostResult:
    """Y[64, 64] = A[64, 32] B[32, 64], columns in tiles of 16 inside rows in tiles of 16."""
    level = LevelTile("buffer", (("m", 16), ("n", 16), ("k", 32)), ("m", "n"), (("Y", 2),))
    if not pinned:
        level = replace(level, retain=(("Y", 2), ("B", 2)))
    group = FusionGroup((0,), (level,), pinned=pinned)
    return simulate(CostRequest(product(64, 64, 32), one_buffer(capacity), Plan.of([group])))


def test_a_pinned_weight_is_fetched_once_and_takes_its_room_for_as_long_as_the_group_runs() -> None:
    loose, pinned = refetching(()), refetching(("B",))
    assert dram(loose, "B") == (4 * 2048, 0)
    assert dram(pinned, "B") == (2048, 0)
    # A tile 16 x 32, Y tile 16 x 16, and B: a tile of 32 x 16, or all of it.
    assert dict(loose.groups[0].footprint_bytes)["buffer"] == 512 + 256 + 512
    assert dict(pinned.groups[0].footprint_bytes)["buffer"] == 512 + 256 + 2048


def test_what_is_pinned_has_room_beside_every_operator() -> None:
    graph = mlp(16, 32, 64)
    tile = LevelTile("buffer", tuple((name, 1 << 20) for name in ("m", "n", "k", "n_2")))
    group = FusionGroup((0, 1, 2), (tile,))
    loose = simulate(CostRequest(graph, one_buffer(1 << 16), Plan.of([group])))
    pinned = simulate(CostRequest(graph, one_buffer(1 << 16), Plan.of([replace(group, pinned=("W1",))])))
    # While the second product runs: T or H 16 x 64, W2 64 x 32, Y 16 x 32; W1 32 x 64 only where it is pinned.
    assert dict(loose.groups[0].footprint_bytes)["buffer"] == 512 + 2048 + 1024
    assert dict(pinned.groups[0].footprint_bytes)["buffer"] == 1024 + 2048 + 512 + 2048


def test_pinning_what_does_not_come_from_outside_is_said() -> None:
    graph = mlp(16, 32, 64)
    group = FusionGroup((0, 1, 2), pinned=("T", "nothing"))
    result = simulate(CostRequest(graph, one_buffer(1 << 16), Plan.of([group])))
    said = " ".join(what for _, what, _ in result.warnings)
    assert "T is made in this group" in said and "no tensor 'nothing'" in said


def wide_and_narrow() -> OperatorGraph:
    """A long-lived intermediate T: Y = relu(relu(T W)) V + T."""
    sketch = Sketch()
    sketch.tensor("X", 32, 32)
    sketch.tensor("W", 32, 128, weight=True)
    sketch.tensor("V", 128, 32, weight=True)
    sketch.pointwise("Relu", ["X"], "T", "relu")
    sketch.product("T", "W", "U")
    sketch.product("U", "V", "Z")
    sketch.pointwise("Add", ["Z", "T"], "Y", "add")
    return sketch.graph("Y")


def all_whole(capacity: int) -> CostResult:
    graph = wide_and_narrow()
    space = ("i0", "i1", "n", "m", "k", "n_2")
    tile = LevelTile("buffer", tuple((name, 1 << 20) for name in space))
    group = FusionGroup((0, 1, 2, 3), (tile,))
    return simulate(CostRequest(graph, one_buffer(capacity), Plan.of([group])))


def test_an_intermediate_without_room_goes_to_dram_and_comes_back() -> None:
    # The second product: U 32 x 128, V 128 x 32, Z 32 x 32, and T 32 x 32 which waits for the sum.
    needed = 4096 + 4096 + 1024 + 1024
    fits, spills = all_whole(needed), all_whole(needed - 1)
    assert fits.totals.spill_bytes == 0 and fits.groups[0].spill_to == ""
    assert dram(fits, "T") == (0, 0)
    group = spills.groups[0]
    assert spills.totals.feasible and group.spill_to == "DRAM"
    assert dram(spills, "T") == (2 * 1024, 1024)  # both readers fetch it
    assert spills.totals.spill_bytes == 3 * 1024 == int(group.phases["spill"].sum())
    assert int(group.phases["refetch"].sum()) == 0
    assert spills.totals.latency_s > fits.totals.latency_s
    assert int(group.phases["bytes"].sum()) == sum(group.dram_bytes("DRAM"))
    assert spills.totals.intermediate_onchip_share < 1.0 == fits.totals.intermediate_onchip_share


def test_what_spilling_does_not_help_stays_infeasible() -> None:
    result = all_whole(4096)
    assert not result.totals.feasible and result.totals.spill_bytes == 0


def cores(count: int, **parts: object) -> Accelerator:
    machine = systolic(16, 16, cores=count, capacity=1 << 16, bandwidth=1e12)
    return replace(
        machine, partition=Partition(1, count), partial_sum_bits=32, digest=f"cores-{count}", **parts
    )  # type: ignore[arg-type]


def decode(split: int) -> CostResult:
    """One row: Y[1, 16] = A[1, 4096] B[4096, 16]; only the sum can keep several cores busy."""
    group = FusionGroup((0,), split_reduction=(("k", split),) if split > 1 else ())
    return simulate(CostRequest(product(1, 16, 4096), cores(8), Plan.of([group])))


def test_cores_that_share_a_sum_finish_earlier_and_move_their_parts() -> None:
    alone, shared = decode(1), decode(8)
    assert shared.totals.latency_s < alone.totals.latency_s / 2
    assert dict(shared.groups[0].split_reduction) == {"k": 8}
    assert dram(alone, "Y") == (0, 16)
    assert dram(shared, "Y") == (
        7 * 16 * 4,
        16 + 7 * 16 * 4,
    )  # seven parts of 32-bit sums go out and come back
    assert shared.totals.vector_ops == alone.totals.vector_ops + 7 * 16
    assert dram(shared, "B") == dram(alone, "B") == (65_536, 0)


def test_a_sum_that_stays_in_the_group_is_not_shared_and_the_result_says_why() -> None:
    graph = mlp(16, 256, 64)
    group = FusionGroup((0, 1, 2), split_reduction=(("k", 4),))
    result = simulate(CostRequest(graph, cores(4), Plan.of([group])))
    assert result.groups[0].split_reduction == ()
    assert any("T does not leave the group" in what for _, what, _ in result.warnings)
