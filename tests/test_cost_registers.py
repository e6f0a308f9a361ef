"""Occupancy by the CUDA rules, register demand, and where the excess spills."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.cost.registers import (
    THREAD_OVERHEAD,
    accumulator_demand,
    occupancy,
    pick_threads,
    relief,
    thread_demand,
)
from model.cost.result import CostRequest, GroupResult
from model.cost.simulate import simulate
from model.hardware.accelerator import Accelerator, Partition, Registers
from model.hardware.loader import load_hardware
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests import worked
from tests.cost_graphs import product, systolic

# Compute capability 8.0: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
A100 = Registers("simt", per_core=65_536, per_thread_max=255, warp=32, threads_max=2_048, blocks_max=32)
KIB = 1024


@pytest.mark.parametrize(
    ("registers", "threads", "scratch", "blocks", "limit"),
    [
        (32, 256, 0, 8, "threads"),  # 8 x 256 = 2,048 threads: full
        (64, 256, 0, 4, "registers"),  # 65,536 / (64 x 256)
        (65, 256, 0, 3, "registers"),  # rounded up to 72 a thread: 2,304 a warp
        (255, 256, 0, 1, "registers"),
        (32, 256, 100 * KIB, 1, "scratchpad"),
        (32, 256, 40 * KIB, 4, "scratchpad"),
        (16, 32, 0, 32, "blocks"),  # 32 blocks of one warp
    ],
)
def test_resident_blocks_follow_the_occupancy_rules(
    registers: int, threads: int, scratch: int, blocks: int, limit: str
) -> None:
    held = occupancy(A100, registers, threads, scratch, 164 * KIB)
    assert held.blocks == blocks
    assert held.share == pytest.approx(min(1.0, blocks * threads / 2_048))
    assert held.limited_by == ("" if held.share == 1.0 else limit)


def test_a_threads_registers_are_its_part_of_the_tile() -> None:
    demand = thread_demand(A100, 128 * 128 * 4, 256)
    assert demand.live == THREAD_OVERHEAD + 64
    assert demand.limit == 255
    assert demand.excess_bytes == 0
    heavy = thread_demand(A100, 128 * 128 * 4, 32)
    assert heavy.live == THREAD_OVERHEAD + 512
    assert heavy.excess_bytes == (heavy.live - 255) * 32 * 4
    assert "a smaller tile of the output dims" in relief(heavy, None)
    assert pick_threads(A100, 128 * 128 * 4) == 256
    assert pick_threads(A100, 1) == 128


def test_accumulators_are_counted_in_bytes() -> None:
    demand = accumulator_demand(Registers("accumulator", capacity_bytes=4_096), 5_000)
    assert (demand.live, demand.limit, demand.excess_bytes) == (5_000, 4_096, 904)


def spilling(capacity: int) -> tuple[Accelerator, GroupResult]:
    """A 64 x 64 output tile of 32-bit sums held over two sum tiles, in 4 KiB of accumulators: 12 KiB too many."""
    machine = replace(
        systolic(32, 32, capacity=capacity, bandwidth=8e9),
        registers=Registers("accumulator", capacity_bytes=4_096),
        digest=f"spill {capacity}",
    )
    level = LevelTile("buffer", (("m", 64), ("n", 64), ("k", 32)), ("k",))
    graph = product(64, 64, 64)
    held = LevelTile("registers", retain=((graph.tensors[2].name, 0),))
    plan = Plan.of([FusionGroup((0,), levels=(level, held), stages=1)])
    return machine, simulate(CostRequest(graph, machine, plan)).groups[0]


def test_sums_that_do_not_fit_wait_in_the_buffer() -> None:
    """The same group left to the tool: a 32 x 32 tile at the array, partial sums back to the buffer after each tile."""
    machine, _ = spilling(HELD + EXCESS)
    level = LevelTile("buffer", (("m", 64), ("n", 64), ("k", 32)), ("k",))
    plan = Plan.of([FusionGroup((0,), levels=(level,), stages=1)])
    (group,) = simulate(CostRequest(product(64, 64, 64), machine, plan)).groups
    assert (group.registers.live, group.registers.spilled_bytes) == (32 * 32 * 4, 0)
    # Two visits: one partial sum written and read back, and the result of one byte.
    (row,) = [row for row in group.traffic if row.outer == "buffer" and row.tensor == 2]
    assert (row.read_bytes, row.write_bytes) == (64 * 64 * 4, 64 * 64 * 4 + 64 * 64)
    assert group.footprint_bytes[0][1] == 2 * 64 * 32 + 64 * 64 * 4
    assert sum(group.dram_bytes(machine.dram.name)) == group.compulsory_bytes


HELD = 2 * 64 * 32 + 64 * 64  # A, B and the result, one byte each
EXCESS = 64 * 64 * 4 - 4_096


def test_the_excess_spills_to_the_buffer_where_it_has_room() -> None:
    machine, group = spilling(HELD + EXCESS)
    assert group.footprint_bytes[0][1] == HELD
    assert group.registers.live == 64 * 64 * 4
    # Written and read back in each of the two steps.
    assert group.registers.spilled_bytes == 2 * 2 * EXCESS
    assert group.registers.spill_to == "buffer"
    assert group.registers.limited_by == "registers"
    assert group.registers.relief
    assert sum(group.dram_bytes(machine.dram.name)) == group.compulsory_bytes
    assert int(group.phases["spill"].sum()) == 0


def test_without_room_it_spills_to_dram_and_costs_its_time() -> None:
    roomy = spilling(HELD + EXCESS)[1]
    machine, group = spilling(HELD + EXCESS - 1)
    assert group.registers.spill_to == "DRAM"
    assert group.registers.spilled_bytes == 2 * 2 * EXCESS
    assert sum(group.dram_bytes(machine.dram.name)) == group.compulsory_bytes + 2 * 2 * EXCESS
    assert int(group.phases["spill"].sum()) == 2 * 2 * EXCESS
    extra = 2 * 2 * EXCESS / 8e9
    assert group.latency_s - roomy.latency_s == pytest.approx(extra, rel=1e-3)


def test_all_cores_spill_through_one_bus() -> None:
    """Four cores that spill to DRAM at once share its bandwidth: no less time than all bytes at the slot's rate."""
    graph = product(256, 64, 64)
    machine = replace(
        systolic(32, 32, capacity=HELD, bandwidth=8e9, cores=4),
        partition=Partition(1, 4),
        registers=Registers("accumulator", capacity_bytes=4_096),
        digest="four cores spill",
    )
    level = LevelTile("buffer", (("m", 64), ("n", 64), ("k", 32)), ("m", "k"))
    held = LevelTile("registers", retain=((graph.tensors[2].name, 1),))
    plan = Plan.of([FusionGroup((0,), levels=(level, held), parallel=(("m", 4),), stages=1)])
    (group,) = simulate(CostRequest(graph, machine, plan)).groups
    assert dict(group.parallel) == {"m": 4}
    assert group.registers.spill_to == "DRAM"
    moved = sum(group.dram_bytes(machine.dram.name))
    assert group.registers.spilled_bytes == 4 * 2 * 2 * EXCESS
    assert group.latency_s >= moved / 8e9


def test_a_gpu_group_says_its_threads_and_what_limits_them() -> None:
    level = LevelTile("shared", (("m", 128), ("n", 128), ("k", 32)), ("m", "n", "k"))
    plan = Plan.of([FusionGroup((0,), levels=(level,), threads=256)])
    request = CostRequest(product(1024, 1024, 1024, "bfloat16"), load_hardware("a100"), plan)
    (group,) = simulate(request).groups
    assert group.threads == 256
    assert "threads" not in group.chosen
    # 128 x 128 sums of 32 bits over 256 threads.
    assert group.registers.live == THREAD_OVERHEAD + 64
    assert group.registers.unit == "registers per thread"
    assert 0.0 < group.registers.occupancy < 1.0
    assert group.registers.limited_by in ("registers", "scratchpad")
    assert group.registers.relief
    chosen = simulate(replace(request, plan=Plan.of([FusionGroup((0,))]))).groups[0]
    assert "threads" in chosen.chosen


def test_the_epilogue_lives_in_the_registers_while_it_fits() -> None:
    """Relu after the product: nothing crosses to the buffer in between; without room the intermediate lives there."""
    fits = simulate(CostRequest(worked.graph(), worked.machine(), worked.fused())).groups[0]
    assert not [row for row in fits.traffic if row.tensor == 2]
    small = replace(
        worked.machine(), registers=Registers("accumulator", capacity_bytes=1_024), digest="small"
    )
    apart = simulate(CostRequest(worked.graph(), small, worked.fused())).groups[0]
    crossing = [(row.outer, row.read_bytes, row.write_bytes) for row in apart.traffic if row.tensor == 2]
    assert ("buffer", 3_072, 3_072) in crossing
    assert not [row for row in crossing if row[0] == "DRAM"]
