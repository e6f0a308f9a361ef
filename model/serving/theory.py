"""Cases of queueing theory, replayed: how far their figures are from the reference.

Knows one file of reference cases (schema ``queueing-oracle/1``: M/M/c, M/D/1, M/G/1, batches with a time-out, streams
on their own or on all slots) and how each is written as a workload. A unit of time there is a second here. A figure may
be off by its tolerance at a million requests, times sqrt(million / requests).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError
from ..schema import read_bytes
from .result import PERCENTILES
from .rules import Replayed
from .serve import prepare, replayed
from .streams import DrawnService
from .tail import jain, rank_of
from .workload import load_workload

SCHEMA = "queueing-oracle/1"
_MILLION = 1_000_000
_LARGEST_FILE = 1 << 26


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one case: `off` is the distance from the reference in tolerances; above 1 it is missed."""

    case: str
    name: str
    found: float
    reference: float
    tolerance: float

    @property
    def off(self) -> float:
        """Distance from the reference in tolerances."""
        return abs(self.found - self.reference) / self.tolerance


class _Object(dict[str, Any]):
    """A JSON object of a file of reference cases: a key that is missing is the file's fault."""

    def __init__(self, source: str, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._source = source

    def __missing__(self, key: str) -> Any:
        inside = f": {self['id']}" if "id" in self else ""
        raise FileError(f"has no {key!r}", where=f"{self._source}{inside}")


def read_reference(source: str, schemas: Collection[str]) -> dict[str, Any]:
    """The document of a file of reference cases, of one of `schemas`.

    Raises
    ------
    FileError : not readable, not JSON, or of another schema; later, where a key is looked up that is not there.
    """
    path = Path(source)
    try:
        document = json.loads(
            read_bytes(path, _LARGEST_FILE), object_hook=lambda found: _Object(source, found)
        )
    except ValueError as error:
        raise FileError("is not valid JSON", where=source) from error
    if not isinstance(document, dict) or document.get("schema") not in schemas:
        known = " or ".join(schemas)
        raise FileError(f"is not a file of reference cases: its schema is not {known}", where=source)
    return document


def check_case(case: Mapping[str, Any], requests: int = _MILLION, seed: int = 0) -> list[Figure]:
    """Replay a case, leave out its warm-up, and compare every figure that has a tolerance.

    Parameters
    ----------
    requests : that count; the case's warm-up comes before them.

    Raises
    ------
    FileError : nothing of it is to be compared, or it is none that a workload can say.
    """
    skipped = set(case.get("do_not_check", ()))
    if skipped >= set(case["tol_1e6"]):
        raise FileError("has no figure to compare", where=str(case["id"]))
    warmup = int(case["warmup"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(workload_text(case, warmup + requests, seed), encoding="utf-8")
        workload = load_workload(path)
    prepared = prepare(workload)
    offers = prepared.table.offers
    found = _figures(replayed(prepared), offers.arrival_ns, offers.stream, len(workload.streams), warmup)
    scale = max(1.0, _MILLION / requests) ** 0.5
    return [
        Figure(case["id"], name, found[name], case["ref"][name], tolerance * scale)
        for name, tolerance in case["tol_1e6"].items()
        if name not in skipped
    ]


def workload_text(case: Mapping[str, Any], requests: int, seed: int) -> str:
    """The case as a workload file."""
    lines = ["format = 1", f"seed = {seed}", f"requests = {requests}"]
    if "max_batch" in case:
        lines += [
            "slots = 1",
            "[[stream]]",
            f"arrivals = {{ kind = 'poisson', rate_per_s = {case['arrival_rate']!r}, input_tokens = 1 }}",
            f"batch = {{ max = {case['max_batch']}, linger_s = {case['timeout']!r} }}",
            f"service = {{ base_ns = {round(case['a'] * 1e9)}, per_input_ns = {round(case['c'] * 1e9)} }}",
        ]
        return "\n".join(lines)
    streams = zip(case["arrival_rates"], case["home_core"], strict=True) if "cores" in case else None
    lines.append(f"slots = {case.get('servers', case.get('cores'))}")
    if streams is None:
        return "\n".join([*lines, "[[stream]]", *_stream(case, case["arrival_rate"])])
    if case["mode"] == "static":
        lines.append('placement = { kind = "static" }')
    else:
        lines.append(
            f'placement = {{ kind = "home-first", off_home_factor = {case["off_home_service_factor"]!r} }}'
        )
    for rate, home in streams:
        lines += ["[[stream]]", f"home_slot = {home}", *_stream(case, rate)]
    return "\n".join(lines)


def service_of(case: Mapping[str, Any], key: str = "service") -> DrawnService:
    """How long requests of a case take; a log-normal law has its variation beside its name or in it.

    Raises
    ------
    FileError : a law that is not known.
    """
    given = case[key]
    dist, mean_s = str(given["dist"]), float(given["mean"])
    name, _, cv = dist.partition("_cv")
    if name == "lognormal":
        return DrawnService(name, mean_s, cv=float(cv or given["cv"]))
    if dist == "two-point":
        ratio = round(given["slow"] / given["fast"], 9)
        return DrawnService(dist, mean_s, slow_share=float(given["p_slow"]), slow_factor=ratio)
    if dist not in ("exponential", "deterministic"):
        raise FileError(f"{dist!r} is no law that is known here", where=f"{case['id']}: {key}.dist")
    return DrawnService(dist, mean_s)


def _stream(case: Mapping[str, Any], rate: float) -> tuple[str, str]:
    law = service_of(case)
    more = {"lognormal": ("cv",), "two-point": ("slow_share", "slow_factor")}.get(law.dist, ())
    figures = "".join(f", {name} = {getattr(law, name)!r}" for name in more)
    return (
        f'arrivals = {{ kind = "poisson", rate_per_s = {rate!r} }}',
        f'service = {{ dist = "{law.dist}", mean_s = {law.mean_s!r}{figures} }}',
    )


def _figures(
    done: Replayed, arrival: np.ndarray, stream: np.ndarray, streams: int, warmup: int
) -> dict[str, float]:
    """Every figure that a case may ask for, of the requests after the warm-up, in seconds."""
    arrival, stream = arrival[warmup:], stream[warmup:]
    start, end, slot = done.start_ns[warmup:], done.completion_ns[warmup:], done.slot[warmup:]
    response = (end - arrival) * 1e-9
    ranked = np.sort(response)
    found = {name: float(ranked[rank_of(share, ranked.size) - 1]) for name, share in PERCENTILES}
    found["mean_response"] = float(response.mean())
    found["mean_wait"] = float((start - arrival).mean()) * 1e-9
    found["mean_batch"] = float(ranked.size / (1.0 / done.batch[warmup:]).sum())
    means = [float(response[stream == k].mean()) for k in range(streams)]
    found |= {f"stream{k}_mean": mean for k, mean in enumerate(means)}
    found["jain_stream_mean"] = jain(means)
    span = float(arrival[-1] - arrival[0])
    busy = np.bincount(slot, weights=(end - start).astype(np.float64)) / span
    found |= {f"core{k}_util": float(share) for k, share in enumerate(busy)}
    found["util_mean"] = float(busy.mean())
    found["util_max_over_mean"] = float(busy.max() / busy.mean())
    return found
