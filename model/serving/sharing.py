"""Cases of processor sharing, replayed with contention: how far their figures are from the reference.

Knows one file of reference cases (schema ``contention-oracle/1``): everybody is served at once, and k requests progress
at rate ``min(1, c / k)`` each. Here: slots without end, one phase a request, each asking for a c-th of the bandwidth. A
unit of time is a second. Tolerances as in `theory.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost.result import PHASE_DTYPE, PHASE_KINDS
from ..packaged import named_file
from .exact import replay
from .result import PERCENTILES, ServiceProfile
from .rules import Offers, Rules, Services, Times
from .tail import rank_of
from .theory import Figure, service_of
from .traces import read_trace

SCHEMA = "contention-oracle/1"
_MILLION = 1_000_000
_SECOND = 1_000_000_000


def check_traces(document: Mapping[str, Any], source: str) -> Iterator[list[Figure]]:
    """`check_trace` of every trace of a file of reference cases: in the folder ``traces`` beside its own, or packaged.

    Raises
    ------
    FileError : a trace that is in neither.
    """
    folder = Path(source).resolve().parent.parent / "traces"
    for case in document.get("replays", ()):
        name = Path(case["trace"]).name
        there, packaged = folder / name, named_file(name, "assets/traces", Path(name).suffix)
        yield check_trace(case, there if there.is_file() or packaged is None else packaged)


def check_case(case: Mapping[str, Any], requests: int = _MILLION, seed: int = 0) -> list[Figure]:
    """Replay Poisson arrivals from an empty start, leave out the warm-up, and compare every figure.

    Parameters
    ----------
    requests : that count; before them a warm-up as the case says, of at most half as many.
    """
    warmup = min(int(case["warmup"]), requests // 2)
    draw = np.random.default_rng(seed)
    arrival = np.cumsum(draw.exponential(_SECOND / case["arrival_rate"], warmup + requests)).astype(np.int64)
    size = service_of(case, "service_alone").draw(draw, warmup + requests) / _SECOND
    response = _responses(arrival, size, int(case["streams_at_full_speed"]))[warmup:] / _SECOND
    found = _figures(response, size[warmup:])
    scale = max(1.0, _MILLION / requests) ** 0.5
    return [
        Figure(case["id"], name, found[name], case["ref"][name], tolerance * scale)
        for name, tolerance in case["tol_1e6"].items()
    ]


def check_trace(case: Mapping[str, Any], trace: Path) -> list[Figure]:
    """Replay a recorded trace whose requests take ``base + per input + per output`` ns alone; figures in ns."""
    read, times = read_trace(trace, "tilewright"), case["service"]
    tokens = times["per_input_ns"] * read.input_tokens + times["per_output_ns"] * read.output_tokens
    service = times["base_ns"] + tokens
    response = _responses(read.arrival_ns, service / _SECOND, int(case["c"]))
    found = {f"{name}_ns": value for name, value in _figures(response, np.ones(response.size)).items()}
    found |= {"max_ns": float(response.max()), "max_slowdown": float((response / service).max())}
    name = f"{Path(case['trace']).stem}_c{case['c']}"
    return [
        Figure(name, figure, found[figure], value, value * case["tolerance_rel"])
        for figure, value in case.items()
        if figure in found
    ]


def _responses(arrival: Times, size: NDArray[np.float64], at_full_speed: int) -> Times:
    """int64[n] ns, of requests that take `size` seconds alone; `at_full_speed` of them can run at rate 1."""
    phase = np.array([(PHASE_KINDS.index("steady"), _SECOND, _SECOND, 0, 0)], dtype=PHASE_DTYPE)
    bandwidth = float(at_full_speed * _SECOND)  # a byte/ns for each
    profile = ServiceProfile(phase, 1, at_full_speed, bandwidth)
    services = Services.of_profiles(np.array([[-1, 0]], dtype=np.int32), (profile,))
    offers = Offers.of_one_stream(np.ascontiguousarray(arrival), size=size)
    done = replay(offers, services, Rules(None, bandwidth_bytes_per_s=bandwidth))
    return done.completion_ns - arrival


def _figures(response: NDArray[Any], alone: NDArray[np.float64]) -> dict[str, float]:
    ordered = np.sort(response)
    percentiles = {
        name: float(ordered[rank_of(share, ordered.size) - 1])
        for name, share in PERCENTILES
        if name != "p999"
    }
    return {
        "mean_response": float(response.mean()),
        "mean_slowdown": float((response / alone).mean()),
        **percentiles,
    }
