"""The machine as an immutable value: what CONTRACT's hardware TOML says, in SI units.

Knows nothing of graphs or plans. `loader.py` makes it from a file. Parts that a file leaves out are None
and mean "not limiting"; results say so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One level, outermost (DRAM) first.

    ``scope`` is "device" (shared by all cores) or "core"; ``kind`` is "scratchpad" (explicit tiles) or
    "cache" (no tile). ``bandwidth_per_core_bytes_per_s`` is a core's own port, None: the level's.
    ``double_buffer`` False: single copies, no landing zone; forces stages = 1.
    """

    name: str
    scope: str
    capacity_bytes: int
    bandwidth_bytes_per_s: float | None = None
    kind: str = "scratchpad"
    latency_s: float = 0.0
    bandwidth_per_core_bytes_per_s: float | None = None
    efficiency_loss: float = 0.0
    energy_j_per_byte: float = 0.0
    double_buffer: bool = True
    access_bytes: int = 1


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """Per core. ``kind`` "systolic" (rows, columns, dataflow) or "tensor-core" (mma = m, n, k)."""

    kind: str
    macs_per_cycle: tuple[tuple[str, float], ...]  # by short precision name
    rows: int = 0
    columns: int = 0
    dataflow: str = "output-stationary"
    overlap_folds: bool = False
    mma: tuple[int, int, int] = (1, 1, 1)
    conv: str = "channels"


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """Per core: ``lanes`` elements per step, ``cycles`` per element by primitive or by operator type."""

    lanes: int
    cycles: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Registers:
    """``model`` "accumulator" (capacity_bytes at the array) or "simt" (the CUDA occupancy figures)."""

    model: str
    capacity_bytes: int = 0
    per_core: int = 0  # 32-bit registers
    per_thread_max: int = 255
    allocation_unit: int = 256  # registers, per warp
    warp: int = 32
    threads_max: int = 0
    blocks_max: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Group i starts at max(end of i-1 + gap, (i + 1) * issue)."""

    issue_s: float = 0.0
    gap_s: float = 0.0
    instruction_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """How serving cuts the device. A request occupies one slot; its plan is simulated on that slot."""

    slots: int = 1
    cores_per_slot: int = 1


@dataclass(frozen=True, slots=True)
class Topology:
    """How far a request is from its home slot: hops by ``kind`` (mesh, ring, bus, crossbar)."""

    kind: str = "bus"
    columns: int = 1
    off_home_factor_per_hop: float = 0.0

    def hops(self, one: int, other: int, slots: int) -> int:
        """From slot to slot: mesh Manhattan (row by row, `columns` wide), ring the shorter way, bus and crossbar 1."""
        if self.kind == "mesh":
            (row, column), (to_row, to_column) = divmod(one, self.columns), divmod(other, self.columns)
            return abs(row - to_row) + abs(column - to_column)
        if self.kind == "ring":
            return min((one - other) % slots, (other - one) % slots)
        return int(one != other)


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules; zero where the file is silent."""

    mac_j: tuple[tuple[str, float], ...] = ()
    launch_j: float = 0.0
    static_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Thermal:
    """Two nodes, die (seconds) and sink (minutes). Read here, simulated by the serving issue."""

    tdp_w: float
    ambient_c: float
    die_k_per_w: float
    die_s: float
    sink_k_per_w: float
    sink_s: float
    throttle_c: float
    resume_c: float
    throttled_clock_ratio: float
    power_cap_w: float | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One machine. ``memory[0]`` is DRAM; ``buffers`` are the explicit on-chip levels.

    ``partial_sum_bits``: width of partial sums that leave the compute units; None: accumulator width (32).
    ``online_statistics``: whether running maximum and sum of an online softmax take room.
    """

    name: str
    source: str
    digest: str
    clock_hz: float
    cores: int
    memory: tuple[MemoryLevel, ...]
    launch: Launch = Launch()
    partition: Partition = Partition()
    matrix_unit: MatrixUnit | None = None
    vector_unit: VectorUnit | None = None
    registers: Registers | None = None
    topology: Topology | None = None
    energy: Energy = Energy()
    thermal: Thermal | None = None
    partial_sum_bits: int | None = None
    online_statistics: bool = True
    # What is read but not in the sums yet: (where, what, lever); results pass them on.
    warnings: tuple[tuple[str, str, str], ...] = ()

    @property
    def dram(self) -> MemoryLevel:
        """The outermost level."""
        return self.memory[0]

    @property
    def buffers(self) -> tuple[MemoryLevel, ...]:
        """The explicit on-chip levels, outermost first, which tiles are cut for. The loader sees to one at least."""
        return tuple(level for level in self.memory[1:] if level.kind == "scratchpad")

    @property
    def buffer(self) -> MemoryLevel:
        """The outermost explicit on-chip level: what is fetched from outside goes there."""
        return self.buffers[0]

    @property
    def cache(self) -> MemoryLevel | None:
        """The cache between the outermost level and the buffer, where there is one."""
        between = self.memory[1 : self.memory.index(self.buffer)]
        return next((level for level in between if level.kind == "cache"), None)

    @property
    def cache_share_bytes(self) -> int:
        """What a plan has of the cache while all slots are in use; all of it where only one core has it."""
        cache = self.cache
        if cache is None:
            return 0
        return cache.capacity_bytes if cache.scope == "core" else cache.capacity_bytes // self.partition.slots

    @property
    def slot_cores(self) -> int:
        """Cores of one partition; a plan is simulated on these."""
        return self.partition.cores_per_slot

    @property
    def slot_bandwidth_bytes_per_s(self) -> float:
        """The DRAM port of one slot: its cores' ports, at most the device's bandwidth."""
        device = self.dram.bandwidth_bytes_per_s
        port = self.dram.bandwidth_per_core_bytes_per_s
        if device is None:
            return float("inf") if port is None else port * self.slot_cores
        return device if port is None else min(device, port * self.slot_cores)
