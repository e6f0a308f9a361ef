"""What one simulation says: plain values and read-only arrays. Units are in the names.

Definitions are COST-MODEL's; `commands` prints these as CONTRACT's JSON, `explorer` draws them. Nothing
here computes anything that needs a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import OperatorGraph
from ..hardware.accelerator import Accelerator
from ..plan.plan import Plan, Sizes


@dataclass(frozen=True, slots=True)
class CostRequest:
    """Everything a cost result is a pure function of. ``precision``: "" or a short name for all floats."""

    graph: OperatorGraph
    accelerator: Accelerator
    plan: Plan
    precision: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one tensor between two levels within one group. ``outer`` and ``inner`` are memory names."""

    tensor: int
    outer: str
    inner: str
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class LevelMapping:
    """The mapping that was used at one level. ``chosen`` parts were not set by the user.

    ``trips``: ceil(extent / tile) per dim of the loop order.
    """

    memory: str
    tile: Sizes
    loop_order: tuple[str, ...]
    retain: Sizes
    trips: Sizes


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """Registers of one group: live against limit (registers per thread, or bytes at the array)."""

    live: int
    limit: int
    unit: str  # "registers per thread" or "bytes"
    spilled_bytes: int  # written and read back over the whole group
    spill_to: str  # memory name, "" where nothing spills
    occupancy: float  # threads resident / threads_max; 1.0 on accumulator machines
    limited_by: str  # "registers", "scratchpad", "threads", "blocks", "" where not limiting
    relief: str  # what would relieve it, "" where nothing is needed


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Why a group does not fit, and what would make it fit."""

    memory: str
    demand_bytes: int
    capacity_bytes: int
    levers: tuple[str, ...]


# Kinds of a profile phase, by their code in `Profile.phases`.
PHASE_KINDS: tuple[str, ...] = ("launch", "first", "cold", "steady", "last")
PHASE_DTYPE = np.dtype(
    [("kind", "i4"), ("base_ns", "i8"), ("bytes", "i8"), ("spill", "i8"), ("refetch", "i8")]
)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The resource whose 10 % relief shortens the latency most, and by what part of the latency.

    ``name`` is a class of COST-MODEL 7 ("matrix compute", "DRAM bandwidth", ...), a set joined with " + "
    ("balanced: ..."), or "infeasible".
    """

    name: str
    gain_of_10_percent: float
    evidence: str


@dataclass(frozen=True, eq=False)
class GroupResult:
    """One fusion group on the machine. Without slots: an edit moves the start of every later group, and a
    dictionary is copied ten times as fast as forty slots.

    Attributes
    ----------
    dims : group dims and extents, first operator's letters first.
    dim_of : per operator (in the order of ``operators``) the group dim of each of its dims.
    traffic : every tensor that crosses a pair of levels.
    footprint_bytes : (memory, bytes) at the schedule's peak.
    latency_s : from the group's start to its end, launch excluded.
    start_s : when it starts, after its launch.
    utilisation : ideal cycles / cycles of the matrix unit (1.0 where it has no matrix work).
    phases : structured array `PHASE_DTYPE`; sums equal latency + launch and DRAM bytes exactly in ns, bytes.
    chosen : names of the parts that the tool chose ("buffer.tile", "tree", "stages" ...).
    split_reduction : cores that share the sums over a reduced dim.
    spill_bytes : written and read back for want of room, from the registers and from the buffer; ``spill_to``: where,
        "" where nothing spills.
    resident : (tensor, bytes of its tiles) in the buffer at the peak, the largest first; tensor -1 for what operators
        that write over an input need not hold twice. Their sum is the buffer's footprint.
    replays : the group of the plan whose operators run again here, for tensors that are computed again instead of
        saved; -1 for a group of the plan itself. Its MACs are all recomputed, and no operator bytes are due to it.
    """

    operators: tuple[int, ...]
    dims: Sizes
    dim_of: tuple[tuple[str, ...], ...]
    levels: tuple[LevelMapping, ...]
    tree: str
    elements: tuple[str, ...]
    parallel: Sizes
    stages: int
    threads: int
    traffic: tuple[Traffic, ...]
    footprint_bytes: tuple[tuple[str, int], ...]
    macs: int
    recomputed_macs: int
    vector_ops: int
    compute_s: float
    dram_s: float  # loads and stores, if alone: what a cache gives out and latency are in it
    latency_s: float
    start_s: float
    launches: int
    cycles: float
    ideal_cycles: float
    utilisation: float
    waves: int
    registers: RegisterUse
    compulsory_bytes: int
    lower_bound_bytes: int
    bound_source: str
    operator_bytes: int
    energy_j: float
    code_bytes: int
    complexity: float
    phases: NDArray[np.void]
    chosen: tuple[str, ...]
    bottleneck: Bottleneck
    infeasible: Infeasible | None
    split_reduction: Sizes
    spill_bytes: int
    spill_to: str
    warnings: tuple[tuple[str, str, str], ...] = ()
    replays: int = -1
    resident: tuple[tuple[int, int], ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether the group fits the machine."""
        return self.infeasible is None

    def moved_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes of all tensors by pair of levels (outer, inner)."""
        moved: dict[tuple[str, str], int] = {}
        for row in self.traffic:
            pair = row.outer, row.inner
            moved[pair] = moved.get(pair, 0) + row.read_bytes + row.write_bytes
        return moved

    def dram_bytes(self, dram: str) -> tuple[int, int]:
        """Bytes read from and written to the level named `dram`."""
        rows = [row for row in self.traffic if row.outer == dram]
        return sum(row.read_bytes for row in rows), sum(row.write_bytes for row in rows)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the groups, and the two primary metrics. Field names are CONTRACT's `totals`.

    ``saved_activation_bytes``: the most that is held at one time of what the forward pass leaves for the backward pass
    of a training step, and of what is computed again for it (`cost/saved.py`); 0 where nothing is trained.
    """

    latency_s: float
    launches: int
    launch_s: float
    compute_s: float
    dram_s: float  # loads and stores, if alone: what a cache gives out and latency are in it
    dram_read_bytes: int
    dram_write_bytes: int
    operator_bytes: int
    onchip_reuse_ratio: float
    reuse_factor: float
    intermediate_onchip_share: float
    launch_overhead_reduction: float | None  # None while the unfused plan's launches are not known
    compulsory_dram_bytes: int
    lower_bound_dram_bytes: int
    spill_bytes: int
    peak_footprint_bytes: int
    macs: int
    recomputed_macs: int
    vector_ops: int
    energy_j: float
    code_bytes: int
    complexity: float
    feasible: bool
    bottleneck: str
    bottleneck_gain: float
    saved_activation_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that is held for the backward pass: from group ``made`` to group ``last``, indices in the result."""

    tensor: int
    bytes: int
    made: int
    last: int


@dataclass(frozen=True, eq=False, slots=True)
class CostResult:
    """The whole graph under one plan, and the unfused plan beside it.

    Attributes
    ----------
    groups : those of the plan, as the plan orders them; behind them the replays, if any (`GroupResult.replays`).
    order : indices of ``groups`` in the order of their launches; empty: as they stand.
    saved : what is held for the backward pass of a training step; a tensor that is computed again: from its replay on.
    baseline : None where the unfused plan was not asked for and nobody had solved it yet.
    seconds : how long the computation took; ``evaluated``: how many groups were not in the cache.
    """

    request: CostRequest
    groups: tuple[GroupResult, ...]
    totals: Totals
    baseline: Totals | None
    warnings: tuple[tuple[str, str, str], ...]
    seconds: float
    evaluated: int
    order: Sequence[int] = ()
    saved: tuple[SavedTensor, ...] = ()

    def launched(self) -> Sequence[int]:
        """Indices of ``groups`` in the order of their launches."""
        return self.order or range(len(self.groups))
