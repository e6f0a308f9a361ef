"""What passes a level moves in whole sectors: a stream of width one pays for what it does not use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.cost.result import CostRequest, CostResult
from model.cost.simulate import simulate
from model.hardware.accelerator import Accelerator
from model.hardware.loader import load_hardware
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import one_buffer, product


def sectored(access_bytes: int) -> Accelerator:
    machine = one_buffer(1 << 16)
    dram = replace(machine.memory[0], access_bytes=access_bytes)
    return replace(machine, memory=(dram, machine.memory[1]), digest=f"sha256:sectors-{access_bytes}")


def streamed(machine: Accelerator, k: int, dtype: str = "int8") -> CostResult:
    """Y[64, 64] = A[64, 96] B[96, 64]: Y stays, A comes in columns and B in rows, k at a time."""
    buffer = machine.buffer.name
    level = LevelTile(buffer, (("m", 64), ("n", 64), ("k", k)), ("k",), (("A", 1), ("B", 1), ("Y", 0)))
    graph = product(64, 64, 96, dtype)
    return simulate(CostRequest(graph, machine, Plan.of([FusionGroup((0,), (level,))])))


def crossed(result: CostResult, outer: str) -> dict[str, int]:
    """Bytes per tensor that pass inwards and outwards below a level."""
    names = [tensor.name for tensor in result.request.graph.tensors]
    (group,) = result.groups
    return {
        names[row.tensor]: row.read_bytes + row.write_bytes for row in group.traffic if row.outer == outer
    }


@pytest.mark.parametrize(
    ("access_bytes", "k", "a"),
    [
        (1, 1, 64 * 96),
        (32, 1, 64 * 96 * 32),  # a column: every element is a run of its own
        (32, 40, 64 * (64 + 64 + 32)),  # runs of 40, 40 and 16 bytes
        (32, 96, 64 * 96),  # whole rows: one run
    ],
)
def test_a_stream_down_a_row_major_matrix(access_bytes: int, k: int, a: int) -> None:
    result = streamed(sectored(access_bytes), k)
    # B comes in whole rows of 64 bytes and Y leaves whole: neither wastes anything.
    assert crossed(result, "DRAM") == {"A": a, "B": 96 * 64, "Y": 64 * 64}
    moved = sum(int(group.phases["bytes"].sum()) for group in result.groups)
    assert moved == result.totals.dram_read_bytes + result.totals.dram_write_bytes == a + 96 * 64 + 64 * 64


def test_the_waste_takes_time() -> None:
    narrow, wide = streamed(sectored(32), 1), streamed(sectored(1), 1)
    wasted = 64 * 96 * 31
    assert narrow.totals.latency_s == pytest.approx(wide.totals.latency_s + wasted * 1e-9, rel=1e-6)


def test_on_the_packaged_a100_the_cache_absorbs_what_its_port_does_not() -> None:
    result = streamed(load_hardware("a100"), 1, "float16")
    assert crossed(result, "L2")["A"] == 64 * 96 * 32
    assert crossed(result, "HBM")["A"] == 64 * 96 * 2
