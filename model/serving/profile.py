"""Service profiles: what one request asks of its slot, from a plan's cost or from a file.

Knows CONTRACT's service profile JSON and where a cost result keeps its figures; knows no queue. Profiles
that are given are never merged or changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ..cost.result import PHASE_DTYPE, PHASE_KINDS, CostResult
from ..errors import PlanError
from ..plan.plan import group_name
from ..schema import Count, Index, Nanoseconds, NonNegative, Positive, Share, Strict, read_bytes, read_json
from .result import ServiceProfile

LAUNCH = PHASE_KINDS.index("launch")
_LARGEST_PROFILE_BYTES = 1 << 26

_Row = Annotated[tuple[str, Nanoseconds, Index, Index, Index], Field(strict=False)]


class _Profile(Strict):
    format: Literal[1]
    repeat: Count = 1
    slots: Count = 1
    bandwidth_bytes_per_s: Positive
    energy_j: NonNegative = 0.0
    static_w: NonNegative = 0.0
    slot_bandwidth_bytes_per_s: Positive | None = None
    efficiency_loss: Share = 0.0
    phases: Annotated[list[_Row], Field(min_length=1)]

    @model_validator(mode="after")
    def _rows(self) -> Self:
        for index, (kind, _, moved, spill, refetch) in enumerate(self.phases):
            if kind not in PHASE_KINDS:
                raise ValueError(f"phases[{index}][0]: {kind!r} is none of {', '.join(PHASE_KINDS)}")
            if spill + refetch > moved:
                raise ValueError(
                    f"phases[{index}]: spill {spill:,} and refetch {refetch:,} lie within the {moved:,} bytes"
                )
        if sum(row[1] for row in self.phases) * self.repeat > 2**60:
            raise ValueError("one request would take more than 36 years")
        return self


def load_profile(path: Path) -> ServiceProfile:
    """Read a service profile (JSON).

    Raises
    ------
    FileError : missing, not JSON, or with faults: all of them at once with their paths.
    """
    file = read_json(read_bytes(path, _LARGEST_PROFILE_BYTES), _Profile, str(path))
    rows = [(PHASE_KINDS.index(kind), *figures) for kind, *figures in file.phases]
    phases = np.array(rows, dtype=PHASE_DTYPE)
    phases.setflags(write=False)
    return ServiceProfile(
        phases,
        file.repeat,
        file.slots,
        file.bandwidth_bytes_per_s,
        file.energy_j,
        file.efficiency_loss,
        static_w=file.static_w,
        port_bytes_per_s=file.slot_bandwidth_bytes_per_s or float("inf"),
    )


def profile_of(result: CostResult) -> ServiceProfile:
    """The profile of a plan that was simulated on one slot.

    Raises
    ------
    PlanError : a group does not fit the machine, so that there is nothing to serve.
    """
    # The cost room's kernels load only where a plan is served, not for a workload with its own times.
    from ..cost.profile import service_phases

    for index, group in enumerate(result.groups):
        if group.infeasible is not None:
            demand, memory = group.infeasible, group.infeasible.memory
            raise PlanError(
                f"needs {demand.demand_bytes:,} bytes in {memory}, {demand.capacity_bytes:,} available, "
                "so the plan cannot be served",
                where=group_name(index),
                lever=", or ".join(demand.levers),
            )
    machine = result.request.accelerator
    bandwidth = machine.dram.bandwidth_bytes_per_s
    share = machine.slot_cores / machine.cores
    running_s = sum(group.latency_s for group in result.groups)
    return ServiceProfile(
        service_phases(result),
        repeat=1,
        slots=machine.partition.slots,
        bandwidth_bytes_per_s=float("inf") if bandwidth is None else bandwidth,
        # The cost model charges a plan for its slot's static power while it runs; here the machine draws it always.
        energy_j=max(0.0, result.totals.energy_j - machine.energy.static_w * share * running_s),
        static_w=machine.energy.static_w,
        efficiency_loss=machine.dram.efficiency_loss,
        topology=machine.topology,
        port_bytes_per_s=machine.slot_bandwidth_bytes_per_s,
        thermal=machine.thermal,
    )


def launch_ns(profile: ServiceProfile) -> int:
    """Nanoseconds of launches within one request: the part that jitter does not touch."""
    launches = profile.phases["kind"] == LAUNCH
    return int(profile.phases["base_ns"][launches].sum()) * profile.repeat
