"""Registers: what a group's tiles hold live, thread occupancy, and what spills (COST-MODEL 4).

Knows the machine's register figures and numbers of bytes; knows no graph. Two models: ``accumulator`` (bytes at the
array) and ``simt`` (registers per thread under the CUDA occupancy rules: CUDA C++ Programming Guide, "Compute
Capabilities", and the occupancy calculator's rounding).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware.accelerator import Registers

# Registers of a thread for addresses, loop counters and predicates, beside what tiles need (ASSUMPTIONS.md).
THREAD_OVERHEAD = 24
# Widest load of one thread, bytes: its share of the bytes in flight (Volkov, "Understanding Latency Hiding", 2016).
BYTES_PER_THREAD_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks that are resident on one core, and which limit stops the next one."""

    blocks: int
    warps: int
    share: float
    limited_by: str


def occupancy(
    registers: Registers, per_thread: int, threads: int, block_bytes: int, core_bytes: int
) -> Occupancy:
    """Resident blocks of a core by the CUDA rules.

    Parameters
    ----------
    per_thread : registers of a thread; a warp's are rounded up to the allocation unit.
    threads : threads of a block.
    block_bytes, core_bytes : scratchpad of a block, and of the core.
    """
    warps = -(-threads // registers.warp)
    unit = registers.allocation_unit
    warp_registers = -(-per_thread * registers.warp // unit) * unit
    limits = {
        "threads": registers.threads_max // (warps * registers.warp),
        "blocks": registers.blocks_max,
        "registers": registers.per_core // warp_registers // warps,
        "scratchpad": core_bytes // block_bytes if block_bytes > 0 else registers.blocks_max,
    }
    name = min(limits, key=lambda key: limits[key])
    blocks = limits[name]
    share = blocks * warps * registers.warp / registers.threads_max
    return Occupancy(blocks, blocks * warps, min(1.0, share), "" if share >= 1.0 else name)


@dataclass(frozen=True, slots=True)
class RegisterDemand:
    """Live against limit, in the model's unit, and the excess of one tile in bytes."""

    live: int
    limit: int
    unit: str
    excess_bytes: int


def accumulator_demand(registers: Registers, live_bytes: int) -> RegisterDemand:
    """Bytes at the array: accumulators and the live values of the fused epilogue."""
    excess = max(0, live_bytes - registers.capacity_bytes)
    return RegisterDemand(live_bytes, registers.capacity_bytes, "bytes", excess)


def thread_demand(registers: Registers, block_bytes: int, threads: int) -> RegisterDemand:
    """Registers of a thread: its share of the block's live bytes, plus `THREAD_OVERHEAD`."""
    live = THREAD_OVERHEAD + -(-block_bytes // (4 * threads))
    limit = min(registers.per_thread_max, registers.per_core // max(registers.warp, threads))
    excess = max(0, live - limit) * threads * 4
    return RegisterDemand(live, limit, "registers per thread", excess)


def pick_threads(registers: Registers, block_bytes: int) -> int:
    """The fewest threads, from 128 on by doubling, that leave a thread at most half its registers for tiles."""
    threads = 4 * registers.warp
    most = min(1024, registers.threads_max)
    while threads * 2 <= most and block_bytes > threads * 4 * (registers.per_thread_max // 2):
        threads *= 2
    return threads


def relief(demand: RegisterDemand, held: Occupancy | None) -> str:
    """What would relieve the registers or the occupancy, as a sentence; empty where nothing is needed."""
    if demand.excess_bytes > 0:
        return "a smaller tile of the output dims, a reduction that is not tiled, or a split of the group"
    if held is not None and held.limited_by == "scratchpad":
        return "a smaller buffer tile or fewer stages would let another block run beside it"
    if held is not None and held.limited_by == "registers":
        return "a smaller register tile or more threads a block would let another block run beside it"
    return ""
