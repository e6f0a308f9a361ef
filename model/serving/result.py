"""What the serving simulation takes and says: plain values, integer nanoseconds, read-only arrays.

Times are int64 nanoseconds from the start of the window. Definitions are SERVING-MODEL's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..cost.result import PHASE_DTYPE
from ..hardware.accelerator import Thermal, Topology

PERCENTILES: tuple[tuple[str, Fraction], ...] = (
    ("p50", Fraction(1, 2)),
    ("p95", Fraction(95, 100)),
    ("p99", Fraction(99, 100)),
    ("p999", Fraction(999, 1000)),
)

# Parts that are shown within another one and are not added again.
WITHIN: dict[str, str] = {"queue_imbalance": "queue"}


@dataclass(frozen=True, eq=False, slots=True)
class ServiceProfile:
    """What one request asks of its slot: phases of COST-MODEL 5, played ``repeat`` times.

    Attributes
    ----------
    phases : structured array of `PHASE_DTYPE`.
    slots : partitions that share DRAM; ``bandwidth_bytes_per_s``: what they share.
    energy_j : of one request, or of one batch where the profile is a batch's; static power apart.
    static_w : what the whole machine draws at all times. thermal : how it warms; None: not said.
    port_bytes_per_s : what one slot can fetch; infinite: not said.
    efficiency_loss : of the bandwidth under k users, ``loss * (k - 1) / k`` of it.
    topology : how far slots are from each other; None: not said.
    past_bytes : of a decode step, the cache that it reads: inputs with a dim that is the past.
    """

    phases: NDArray[np.void]
    repeat: int
    slots: int
    bandwidth_bytes_per_s: float
    energy_j: float = 0.0
    efficiency_loss: float = 0.0
    topology: Topology | None = None
    past_bytes: int = 0
    static_w: float = 0.0
    port_bytes_per_s: float = float("inf")
    thermal: Thermal | None = None

    @property
    def base_ns(self) -> int:
        """Service time of one request alone, exact."""
        return int(self.phases["base_ns"].sum()) * self.repeat

    @property
    def bytes(self) -> int:
        """DRAM bytes of one request, exact."""
        return int(self.phases["bytes"].sum()) * self.repeat


@dataclass(frozen=True, eq=False, slots=True)
class Warmed:
    """What heat did to a replay.

    Attributes
    ----------
    die_c : float64[n], when the request's batch started (of iterations: its first).
    peak_die_c, peak_sink_c, sink_c : highest temperatures at any event, and the sink's at the end.
    low_clock_ns : how long the die kept the clock low. capped : batches whose clock the power cap lowered.
    energy_j : all that was drawn, from time 0 to the last event; static power included.
    throttle_c : where the die lowers the clock.
    """

    die_c: NDArray[np.float64]
    peak_die_c: float
    peak_sink_c: float
    sink_c: float
    low_clock_ns: int
    capped: int
    energy_j: float
    throttle_c: float


@dataclass(frozen=True, eq=False, slots=True)
class Arrivals:
    """Requests in order of arrival: int64[n] arrays, read-only.

    ``source`` says where they come from ("azure_llm_2023_code", "Poisson, synthetic (seed 0)"); ``recorded`` is
    False for synthetic processes; ``endless`` is True where the process has no end, so that rho >= 1 is unstable;
    ``set_rate_per_s`` is the rate that was asked for, None for a trace as it was recorded. ``prefix_blocks`` and
    ``cached_blocks`` (int64) and ``size_factor`` (float64) are None where nothing says them.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    source: str
    recorded: bool
    endless: bool
    set_rate_per_s: float | None = None
    prefix_blocks: NDArray[np.int64] | None = None
    cached_blocks: NDArray[np.int64] | None = None
    size_factor: NDArray[np.float64] | None = None

    @property
    def rate_per_s(self) -> float:
        """The mean rate: as set, else n over the time from first to last; 0 where all come at once."""
        if self.set_rate_per_s is not None:
            return self.set_rate_per_s
        span_ns = int(self.arrival_ns[-1] - self.arrival_ns[0]) if self.arrival_ns.size else 0
        return self.arrival_ns.size * 1e9 / span_ns if span_ns > 0 else 0.0

    @property
    def title(self) -> str:
        """``1 requests/s, 8,819 requests of azure_llm_2023_code, time scaled``: what matters first."""
        rate = f"{self.rate_per_s:.4g} requests/s" if self.rate_per_s > 0.0 else "all at once"
        count = f"{self.arrival_ns.size:,} requests"
        if not self.recorded:
            return f"{rate}, {count}, {self.source}"
        return f"{rate}, {count} of {self.source}, {'as recorded' if self.set_rate_per_s is None else 'time scaled'}"


@dataclass(frozen=True, slots=True)
class BuildUp:
    """When the queue built up. Times are from the start of the window, each the first where several are alike.

    Attributes
    ----------
    peak_waiting, peak_at_ns : most requests that waited at one time.
    longest_ns, longest_from_ns : the longest stretch in which some request waited at every moment.
    busiest_requests, busiest_from_ns, busiest_window_ns : most arrivals in [t, t + window): a window of a minute,
        or a tenth of the time between first and last arrival where that is shorter. Window 0: all at once.
    """

    peak_waiting: int
    peak_at_ns: int
    longest_ns: int
    longest_from_ns: int
    busiest_requests: int
    busiest_from_ns: int
    busiest_window_ns: int

    @property
    def busiest_rate_per_s(self) -> float:
        """Requests per second in the busiest window; 0 where all come at once."""
        return self.busiest_requests * 1e9 / self.busiest_window_ns if self.busiest_window_ns else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class Requests:
    """Per request, int64[n] read-only, by arrival; the parts sum to the response exactly.

    ``parts`` maps a part's name (CONTRACT's ``parts``) to int64[n] ns. ``queue`` includes
    ``queue_imbalance``, which is shown within it and not added again. ``stream`` is the index of the request's
    stream, ``batch`` how many requests ran with it, itself included.
    """

    arrival_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    completion_ns: NDArray[np.int64]
    slot: NDArray[np.int32]
    parts: tuple[tuple[str, NDArray[np.int64]], ...]
    stream: NDArray[np.int32] | None = None
    batch: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class StreamResult:
    """One stream's tail.

    Attributes
    ----------
    slowdown : its responses over the time that its requests take alone on a slot, both summed.
    tokens : where they are answered token by token.
    fallback_share : of its requests. slo_attainment : share of them within ``slo_response_s``; None: no objective.
    """

    name: str
    requests: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    mean_s: float
    slowdown: float
    fallback_share: float
    slo_percentile: float | None = None
    slo_response_s: float | None = None
    slo_attainment: float | None = None
    tokens: TokenResult | None = None


@dataclass(frozen=True, slots=True)
class TokenResult:
    """Requests that were answered token by token.

    Attributes
    ----------
    ttft_ns : from arrival to the first token, at each of `PERCENTILES`.
    tpot_ns : time per output token after the first, ``(completion - first token) // (tokens - 1)`` of each request that
        has more than one, at each of `PERCENTILES`; empty where none has. ``tpot_mean_s`` is over all such tokens.
    output_tokens : of all; ``tokens_per_s``: from first arrival to last completion.
    kv_peak_bytes : the most that a stream's requests held at one time; 0 where nothing says how much a token takes.
    kv_full_share : of requests, whose turn it was to join while the cache had no room for them.
    """

    ttft_ns: tuple[int, ...]
    ttft_mean_s: float
    tpot_ns: tuple[int, ...]
    tpot_mean_s: float
    output_tokens: int
    tokens_per_s: float
    kv_peak_bytes: int
    kv_full_share: float


@dataclass(frozen=True, slots=True)
class Bus:
    """How much of the DRAM that slots share was asked for.

    Attributes
    ----------
    mean_load : bytes of all batches over bandwidth times the time from first arrival to last completion.
    all_at_once : the same while all slots run such batches alone, ``slots * bytes / (bandwidth * time alone)``: above
        1 they stall whenever all are busy.
    """

    mean_load: float
    all_at_once: float


@dataclass(frozen=True, eq=False, slots=True)
class ServingResult:
    """The tail, and what it is made of. Percentiles are nearest rank: sorted[ceil(p n) - 1].

    Attributes
    ----------
    parts : per percentile name ("p95", "p99", "mean") the parts in integer ns; they sum to it exactly
        (``queue_imbalance`` is within ``queue``).
    interval_s : per percentile name (low, high), absent where there is none to give, and of a first estimate;
        ``interval_method``: how it was found. "block bootstrap" is for other traces like the one that was replayed.
    too_few : names of percentiles for which there are too few requests.
    rate_per_s : mean rate of the arrivals as replayed. build_up : when the queue built up.
    unstable : rho >= 1 of an endless process; percentiles are then not printed. ``utilisation`` is rho.
    notes : what a reader must know (synthetic load, no contention ...).
    slo_percentile, slo_response_s : where exactly one stream has an objective; ``slo_attainment`` is over the requests
        of all streams that have one.
    jain_streams, jain_streams_mean : Jain's index over streams of slowdown, and of mean response.
    tokens : of requests that were answered token by token; None where there are none.
    warmed : what heat did; None where nothing warms.
    batch_sizes : (size, how many batches), or iterations. padding_share : of all service time, spent on padding.
    jitter_s : standard deviation of the response. throttled_ns : throttled time from first arrival to last completion.
    bus : the DRAM that one-shot requests share; None where slots do not contend, or tokens are answered.
    ranked_ns : (name, int64[n] ascending, read-only) of what a distribution can be drawn of: "response", and where
        requests are answered token by token "ttft" and "tpot", of those that have it.
    token_interval_s, token_too_few : as `interval_s` and `too_few`, of the last two; names are ``ttft.p95``.
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
    rate_per_s: float = 0.0
    build_up: BuildUp | None = None
    streams: tuple[StreamResult, ...] = ()
    jain_streams: float = 1.0
    jain_streams_mean: float = 1.0
    batch_sizes: tuple[tuple[int, int], ...] = ()
    padding_share: float = 0.0
    fallback_share: float = 0.0
    jitter_s: float = 0.0
    throttled_ns: int = 0
    interval_method: str = ""
    tokens: TokenResult | None = None
    warmed: Warmed | None = None
    bus: Bus | None = None
    ranked_ns: tuple[tuple[str, NDArray[np.int64]], ...] = ()
    token_interval_s: tuple[tuple[str, tuple[float, float]], ...] = ()
    token_too_few: tuple[str, ...] = ()

    @property
    def span_s(self) -> float:
        """From first arrival to last completion."""
        count = self.requests.arrival_ns.size
        return count / self.throughput_rps if self.throughput_rps > 0.0 else 0.0

    @property
    def goodput_rps(self) -> float | None:
        """Requests per second, from first arrival to last completion, that answer within their stream's objective; None
        where no stream has one.
        """
        judged = [stream for stream in self.streams if stream.slo_attainment is not None]
        if not judged or self.span_s == 0.0:
            return None
        within = sum(round((stream.slo_attainment or 0.0) * stream.requests) for stream in judged)
        return within / self.span_s

    @property
    def preempted_share(self) -> float:
        """Of the requests, those that gave up their slot to a higher priority for some time."""
        waits = dict(self.requests.parts).get("preempted")
        return 0.0 if waits is None or not waits.size else float((waits > 0).mean())


__all__ = [
    "PHASE_DTYPE",
    "Arrivals",
    "BuildUp",
    "Bus",
    "Requests",
    "ServiceProfile",
    "ServingResult",
    "StreamResult",
    "TokenResult",
    "Warmed",
]
