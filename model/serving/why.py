"""Cards of the serving model: for each figure of a tail its definition, inputs and parts.

Knows the definitions of SERVING-MODEL and what a result holds; computes nothing that the result has not. Numbers are
named ``serving.NAME``.
"""

from __future__ import annotations

import difflib

from ..errors import UsageError
from ..why import Card, Figure, shares_of
from .result import PERCENTILES, WITHIN, ServingResult

_PERCENTILES = {f"{name}_s": share for name, share in PERCENTILES}
NUMBERS = (
    *(f"serving.{name}" for name in _PERCENTILES),
    "serving.mean_s",
    "serving.utilisation",
    "serving.throughput_rps",
    "serving.slo_attainment",
)


def why(result: ServingResult, number: str) -> Card:
    """The card of one number: ``serving.p95_s`` (or ``p95_s``).

    Raises
    ------
    UsageError : no number of that name.
    """
    name = number.removeprefix("serving.")
    if name in _PERCENTILES:
        return _percentile(result, name)
    if f"serving.{name}" in NUMBERS:
        return {
            "mean_s": _mean,
            "utilisation": _utilisation,
            "throughput_rps": _throughput,
            "slo_attainment": _attainment,
        }[name](result)
    close = difflib.get_close_matches(number, NUMBERS, 3, 0.5)
    raise UsageError(
        f"no number {number!r}", where="--why", lever=f"Did you mean {', '.join(close or NUMBERS)}?"
    )


def _common(result: ServingResult) -> list[Figure]:
    return [
        Figure("requests", len(result.requests.arrival_ns)),
        Figure("slots", result.slots),
        Figure("utilisation ρ", result.utilisation, "ratio"),
    ]


def _percentile(result: ServingResult, name: str) -> Card:
    short = name.removesuffix("_s")
    ns: int = getattr(result, f"{short}_ns")
    inputs = _common(result)
    for interval, (low, high) in result.interval_s:
        if interval == short:
            inputs += [Figure("95 % interval, from", low, "s"), Figure("95 % interval, to", high, "s")]
    parts = dict(result.parts).get(short, ())
    notes = [f"{result.source}."]
    if short in result.too_few:
        notes.append("Too few requests for an interval.")
    if result.unstable:
        notes.append("Unstable: an endless process at ρ ≥ 1 has no percentiles.")
    return Card(
        f"serving.{name}",
        f"{short} of the response time",
        Figure(short, ns * 1e-9, "s"),
        f"nearest rank: sorted[⌈{float(_PERCENTILES[name]):g} n⌉ − 1] of n responses, from arrival to completion",
        (*inputs, Figure("exactly", f"{ns:,} ns")),
        shares_of(
            [(part.replace("_", " "), value * 1e-9) for part, value in parts if part not in WITHIN],
            ns * 1e-9,
            most=16,
        ),
        " ".join(notes),
    )


def _mean(result: ServingResult) -> Card:
    count = len(result.requests.arrival_ns)
    mean_s = result.sum_response_ns / count * 1e-9
    return Card(
        "serving.mean_s",
        "Mean of the response time",
        Figure("mean", mean_s, "s"),
        "sum of responses / requests",
        tuple(_common(result)),
        shares_of(
            [
                (part.replace("_", " "), value * 1e-9)
                for part, value in dict(result.parts).get("mean", ())
                if part not in WITHIN
            ],
            mean_s,
            most=16,
        ),
        f"{result.source}.",
    )


def _utilisation(result: ServingResult) -> Card:
    return Card(
        "serving.utilisation",
        "Utilisation ρ",
        Figure("ρ", result.utilisation, "ratio"),
        "arrival rate × mean service time / slots; of a trace: work / (slots × time between first and last arrival)",
        (Figure("slots", result.slots), Figure("arrival rate", result.rate_per_s, "requests/s")),
        note="An endless process at ρ ≥ 1 is unstable: its queue grows without end.",
    )


def _throughput(result: ServingResult) -> Card:
    return Card(
        "serving.throughput_rps",
        "Throughput",
        Figure("throughput", result.throughput_rps, "requests/s"),
        "requests / time from the first arrival to the last completion",
        (
            Figure("requests", len(result.requests.arrival_ns)),
            Figure("arrival rate", result.rate_per_s, "requests/s"),
        ),
    )


def _attainment(result: ServingResult) -> Card:
    limit, share = result.slo_response_s, result.slo_percentile
    return Card(
        "serving.slo_attainment",
        "Objective attained",
        Figure("attained", result.slo_attainment or 0.0, "share"),
        "requests that answer within the objective / requests",
        ()
        if limit is None or share is None
        else (Figure("objective", limit, "s"), Figure("of requests", share, "share")),
        note="" if limit is not None else "The workload states no objective (slo).",
    )
