"""What the serving simulation takes and says: plain values, integer nanoseconds, read-only arrays.

Times are int64 nanoseconds from the start of the window. Definitions are SERVING-MODEL's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..cost.result import PHASE_DTYPE


@dataclass(frozen=True, eq=False, slots=True)
class ServiceProfile:
    """What one request asks of its slot: phases of COST-MODEL 5, played ``repeat`` times.

    Attributes
    ----------
    phases : structured array of `PHASE_DTYPE`.
    slots : partitions that share DRAM; ``bandwidth_bytes_per_s``: what they share.
    energy_j : of one request.
    """

    phases: NDArray[np.void]
    repeat: int
    slots: int
    bandwidth_bytes_per_s: float
    energy_j: float = 0.0

    @property
    def base_ns(self) -> int:
        """Service time of one request alone, exact."""
        return int(self.phases["base_ns"].sum()) * self.repeat

    @property
    def bytes(self) -> int:
        """DRAM bytes of one request, exact."""
        return int(self.phases["bytes"].sum()) * self.repeat


@dataclass(frozen=True, eq=False, slots=True)
class Arrivals:
    """Requests in order of arrival: int64[n] arrays, read-only.

    ``source`` says where they come from ("Azure LLM 2023 code, 8,819 requests, as recorded");
    ``recorded`` is False for synthetic processes; ``endless`` is True where the process has no end, so that
    rho >= 1 is unstable.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    source: str
    recorded: bool
    endless: bool


@dataclass(frozen=True, eq=False, slots=True)
class Requests:
    """Per request, int64[n] read-only, file order; the parts sum to the response exactly.

    ``parts`` maps a part's name (CONTRACT's ``parts``) to int64[n] ns. ``queue`` includes
    ``queue_imbalance``, which is shown within it and not added again.
    """

    arrival_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    completion_ns: NDArray[np.int64]
    slot: NDArray[np.int32]
    parts: tuple[tuple[str, NDArray[np.int64]], ...]


@dataclass(frozen=True, eq=False, slots=True)
class ServingResult:
    """The tail, and what it is made of. Percentiles are nearest rank: sorted[ceil(p n) - 1].

    Attributes
    ----------
    parts : per percentile name ("p95", "p99", "mean") the parts in integer ns; they sum to it exactly
        (``queue_imbalance`` is within ``queue``).
    interval_s : per percentile name (low, high), absent where there is none to give.
    too_few : names of percentiles for which there are too few requests.
    unstable : rho >= 1 of an endless process; percentiles are then not printed. ``utilisation`` is rho.
    notes : what a reader must know (synthetic load, no contention in this version ...).
    """

    requests: Requests
    source: str
    recorded: bool
    slots: int
    unstable: bool
    utilisation: float
    first_estimate: bool
    p50_ns: int
    p95_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    sum_response_ns: int
    completion_sha256: str
    throughput_rps: float
    energy_j_per_request: float
    parts: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    slot_busy_ns: tuple[int, ...]
    slot_requests: tuple[int, ...]
    jain_slots: float
    slo_percentile: float | None
    slo_response_s: float | None
    slo_attainment: float | None
    interval_s: tuple[tuple[str, tuple[float, float]], ...] = ()
    too_few: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


__all__ = ["PHASE_DTYPE", "Arrivals", "Requests", "ServiceProfile", "ServingResult"]
