"""What limits a tail: the parts of a percentile gathered by what causes them, ranked, each with what it is short of.

Knows what a result says and which lever moves which cause; computes no time that the result has not. The parts sum to
the percentile, so the limits do as well; Shapley's values of the drivers (`drivers`) stand beside them where they are
known and answer another question: by how much the percentile would change without the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..why import Figure
from .result import PERCENTILES, WITHIN, ServingResult

if TYPE_CHECKING:  # its kernels are not needed to say what they found
    from .drivers import Blame

SHARED_DRAM = "shared DRAM"
_MEMORY = ("contention_queue", "stall_burst", "stall_steady", "stall_spill", "stall_refetch")
CAUSES: dict[str, tuple[str, ...]] = {
    SHARED_DRAM: _MEMORY,
    "queue": ("queue",),
    "service": ("base",),
    "linger": ("batch_wait",),
    "interleaving": ("interleaved",),
    "preemption": ("preempted",),
    "throttling": ("throttle",),
    "padding": ("padding",),
    "fallback": ("fallback",),
    "off home": ("off_home",),
}
"""Parts of a response by what causes them; every part but those within another is in one."""

_PART_WORDS = {
    "base": "service",
    "contention_queue": "queue behind stalls",
    "stall_burst": "burst stall",
    "stall_steady": "steady stall",
    "stall_spill": "spill stall",
    "stall_refetch": "refetch stall",
    "batch_wait": "batch wait",
    "queue_imbalance": "imbalance",
    "off_home": "off home",
}
MEANINGS = {
    SHARED_DRAM: "stalls while slots share the DRAM bandwidth, and the queue that these stalls make longer",
    "queue": "waiting for a slot, as it would be if DRAM were not shared",
    "service": "the plan's own time, alone on a slot",
    "linger": "waiting for others to share a batch",
    "interleaving": "iterations in which other requests' tokens ran",
    "preemption": "slots given up to a higher priority",
    "throttling": "a lower clock, of heat or of the power cap",
    "padding": "work on tokens that are not there",
    "fallback": "requests that no compiled plan holds",
    "off home": "slots that are not the stream's own",
}

_DRIVERS = {
    "shared DRAM": "contention",
    "queue": "queueing",
    "throttling": "throttle",
    "fallback": "fallback",
}
_LEVERS = {
    "queue": "lower the rate, add slots, or shorten the plan",
    "service": "shorten the plan: fuse or tile what takes longest",
    "linger": "shorten the linger, or make batches smaller",
    "interleaving": "smaller prefill chunks, smaller batches, or more slots",
    "preemption": "fewer requests of higher priority, or more slots",
    "throttling": "better cooling, a higher power cap, or a plan that draws less energy",
    "padding": "compile plans for more lengths",
    "fallback": "compile a plan for the requests that have none",
    "off home": "more home slots for the stream, or home-first placement",
}
_MEMORY_LEVERS = {
    "stall_spill": "spill less: split the group that spills",
    "stall_refetch": "refetch less: larger tiles, or split the group that refetches",
}
_LESS_TRAFFIC = "a plan with fewer DRAM bytes, or fewer slots at a time"


@dataclass(frozen=True, slots=True)
class Limiter:
    """One cause of a percentile.

    Attributes
    ----------
    name : of `CAUSES`, or "KV cache", whose wait is within the queue.
    ns : its part of the percentile; they sum to it. None for what lies within another one.
    share : of the percentile.
    largest : the part of it that is most.
    load : how full is what it is short of; a figure's name is read after its value ("9.0 % full on average").
    driver_ns : Shapley's value of the driver behind it; None where it is not known or there is none.
    lever : what to try.
    """

    name: str
    ns: int | None
    share: float | None
    largest: str
    load: tuple[Figure, ...]
    driver_ns: float | None
    lever: str

    def document(self) -> dict[str, Any]:
        """An entry of ``limits[]``: whole ns, seconds for Shapley's value."""
        out: dict[str, Any] = {"name": self.name}
        if self.ns is not None:
            out |= {"ns": self.ns, "share": self.share, "largest_part": self.largest}
        if self.load:
            out["load"] = {figure.name: figure.value for figure in self.load}
        if self.driver_ns is not None:
            out["shapley_s"] = self.driver_ns * 1e-9
        return out | {"try": self.lever}


def limits(result: ServingResult, percentile: str, blame: Blame | None = None) -> tuple[Limiter, ...]:
    """The causes of "p50", "p95", "p99" or "mean" that are not zero, largest first; () where it has no parts.

    The KV cache, where requests found it full, follows the queue that it makes: how much of that is its own, no part
    says.
    """
    parts = dict(dict(result.parts).get(percentile, ()))
    total = sum(ns for name, ns in parts.items() if name not in WITHIN)
    drivers = dict(dict(blame.values_ns).get(percentile, ())) if blame is not None else {}
    found: list[Limiter] = []
    for cause, names in CAUSES.items():
        amounts = {name: parts[name] for name in names if parts.get(name)}
        if not amounts:
            continue
        ns = sum(amounts.values())
        largest = max(amounts, key=lambda name: amounts[name])
        driver = drivers.get(_DRIVERS.get(cause, ""))
        found.append(
            Limiter(
                cause,
                ns,
                ns / total if total else 0.0,
                largest,
                _load(result, cause, parts),
                None if driver is None else float(driver),
                _lever(result, cause, largest, parts),
            )
        )
    found.sort(key=lambda each: -(each.ns or 0))
    cache = _cache(result)
    if cache is not None:
        after = next((place for place, each in enumerate(found, 1) if each.name == "queue"), len(found))
        found.insert(after, cache)
    return tuple(found)


def judged_percentile(result: ServingResult) -> str:
    """The percentile that matters: the objective's, where it is one whose parts are told; else p95."""
    named = {float(share): name for name, share in PERCENTILES}
    name = named.get(result.slo_percentile or 0.0, "p95")
    return name if name in dict(result.parts) else "p95"


def part_words(part: str) -> str:
    """What a part is called for a person."""
    return _PART_WORDS.get(part, part.replace("_", " "))


def cause_of(part: str) -> str:
    """Which of `CAUSES` a part belongs to."""
    outer = WITHIN.get(part, part)
    return next(cause for cause, parts in CAUSES.items() if outer in parts)


def _load(result: ServingResult, cause: str, parts: Mapping[str, int]) -> tuple[Figure, ...]:
    heat = result.warmed
    if cause == SHARED_DRAM and result.bus is not None:
        return (
            Figure("of its bandwidth asked for while all slots run", result.bus.all_at_once, "share"),
            Figure("on average", result.bus.mean_load, "share"),
        )
    if cause == "queue" and result.slot_busy_ns:
        idle = parts.get("queue_imbalance", 0)
        beside = (Figure("while another slot was idle", idle * 1e-9, "s"),) if idle else ()
        return (Figure("utilisation of the slots", result.utilisation, "share"), *beside)
    if cause == "throttling" and heat is not None and result.span_s > 0.0:
        return (Figure("of the time at a low clock", heat.low_clock_ns * 1e-9 / result.span_s, "share"),)
    if cause == "padding" and result.padding_share:
        return (Figure("of the service time", result.padding_share, "share"),)
    if cause == "fallback" and result.fallback_share:
        return (Figure("of the requests", result.fallback_share, "share"),)
    return ()


def _lever(result: ServingResult, cause: str, largest: str, parts: Mapping[str, int]) -> str:
    if cause == SHARED_DRAM:
        return _MEMORY_LEVERS.get(largest, _LESS_TRAFFIC)
    if cause == "queue" and 2 * parts.get("queue_imbalance", 0) > parts["queue"]:
        return "dynamic placement or stealing: slots stand idle while requests wait"
    if cause == "queue" and result.utilisation < _CALM and result.recorded:
        return "add slots for the bursts, or shorten the plan"
    return _LEVERS[cause]


_CALM = 0.5
"""Below this utilisation a queue is of bursts, not of the mean rate."""


def _cache(result: ServingResult) -> Limiter | None:
    tokens = result.tokens
    if tokens is None or not tokens.kv_full_share:
        return None
    load = (
        Figure("of the requests found it full when their turn came", tokens.kv_full_share, "share"),
        Figure("held at most", tokens.kv_peak_bytes, "B"),
    )
    return Limiter("KV cache", None, None, "queue", load, None, "more memory for it, or fewer bytes a token")
