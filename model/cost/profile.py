"""What one request of a plan asks of its slot, phase by phase: the cost room's side of the service profile.

Knows cost results; knows no slots that share anything and no queue.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .result import PHASE_DTYPE, CostResult, GroupResult

BURST_WINDOW_S = 100e-6
"""The window of ``burstiness``."""


def service_phases(result: CostResult) -> NDArray[np.void]:
    """Phases of one request in launch order, launches included.

    Returns
    -------
    structured array of `PHASE_DTYPE`, read-only; its nanoseconds sum to the plan's latency, its bytes to the plan's
    DRAM traffic, exactly.
    """
    # Joined as bytes: numpy joins structured arrays field by field, a hundred times slower.
    parts = [
        group.phases.view(np.uint8) for i in result.launched() if len((group := result.groups[i]).phases)
    ]
    out = np.concatenate(parts).view(PHASE_DTYPE) if parts else np.zeros(0, PHASE_DTYPE)
    out.setflags(write=False)
    return out


def contention(phases: NDArray[np.void], slots: int, bandwidth_bytes_per_s: float) -> tuple[float, float]:
    """``U_c`` and ``X_c`` of a group's or a request's phases on `slots` slots that share a bandwidth (MINICASE 3.8).

    U_c is the shared bus's load if all slots run them at once, ``slots * bytes / (B * seconds)``; X_c the stretch
    of identical, aligned copies beyond 1, ``sum base * max(0, d * slots / B - 1) / seconds``.
    """
    seconds = float(phases["base_ns"].sum()) * 1e-9
    if seconds == 0.0 or bandwidth_bytes_per_s <= 0.0 or not np.isfinite(bandwidth_bytes_per_s):
        return 0.0, 0.0
    moved = phases["bytes"].astype(float)
    base = phases["base_ns"].astype(float) * 1e-9
    share = slots / bandwidth_bytes_per_s
    return float(moved.sum() * share / seconds), float(np.maximum(0.0, moved * share - base).sum() / seconds)


def burstiness(group: GroupResult, window_s: float) -> float:
    """Largest mean demand over any window of `window_s`, over the mean demand; a description, not an indicator."""
    base = group.phases["base_ns"].astype(float) * 1e-9
    moved = group.phases["bytes"].astype(float)
    total, seconds = float(moved.sum()), float(base.sum())
    if total == 0.0 or seconds <= window_s:
        return 1.0
    edges = np.concatenate(([0.0], np.cumsum(base)))
    carried = np.concatenate(([0.0], np.cumsum(moved)))
    # The best window starts or ends at an edge of a phase.
    starts = np.clip(np.concatenate((edges, edges - window_s)), 0.0, seconds - window_s)
    within = np.interp(starts + window_s, edges, carried) - np.interp(starts, edges, carried)
    return float(within.max() / window_s / (total / seconds))
