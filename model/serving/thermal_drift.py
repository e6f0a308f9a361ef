"""An hour of traffic while the machine warms: tails by window, and beside them those of a clock that never lowers.

A replay is handed in. The hour's traffic is the workload's own, again and again where that is shorter.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np

from .drivers import Run, Setting
from .result import PERCENTILES
from .rules import Offers, Replayed
from .tail import Times, percentiles

_HOUR_NS = 3_600 * 10**9
_WINDOWS = 12
_MOST_REQUESTS = 2_000_000


def repeated(offers: Offers, until_ns: int = _HOUR_NS) -> tuple[Offers, int]:
    """The requests again and again until `until_ns`, a mean gap between the rounds; and how many rounds began.

    At least one whole round, and at most 2,000,000 requests, where an hour has more.
    """
    arrival, count = offers.arrival_ns, offers.arrival_ns.size
    first = int(arrival[0])
    span = int(arrival[-1]) - first
    period = max(1, span + span // max(1, count - 1))
    rounds = max(1, min(-(-until_ns // period), _MOST_REQUESTS // count))
    shift = np.repeat(np.arange(rounds, dtype=np.int64) * period, count)
    again = np.tile(arrival - first, rounds) + shift
    kept = int(np.searchsorted(again, max(until_ns, span + 1)))

    def tiled(values: Any) -> Any:
        out = {}
        for field in fields(values):
            value = getattr(values, field.name)
            if isinstance(value, np.ndarray) and field.name != "instead":
                out[field.name] = np.concatenate([value] * rounds)[:kept]
        return replace(values, **out)

    told = offers.generation
    longer = replace(tiled(offers), generation=None if told is None else tiled(told))
    return replace(longer, arrival_ns=again[:kept]), rounds


def drift(setting: Setting, run: Run) -> dict[str, Any]:
    """An entry of CONTRACT's ``whatif[]``: percentiles and temperatures by five minutes of arrivals; then of all, as it
    is and at full clock.

    The rules have heat (`Rules.heat`).
    """
    offers, rounds = repeated(setting.offers)
    warm = run(offers, setting.services, setting.rules)
    source, heat = setting.rules.heat, warm.warmed
    assert source is not None and heat is not None
    # The same replay at full clock, however warm: were heat left out, the first estimate might answer instead.
    never = replace(source.thermal, throttle_c=math.inf, power_cap_w=None)
    unlimited = replace(setting.rules, heat=replace(source, thermal=never))
    cold = run(offers, setting.services, unlimited)
    arrival = offers.arrival_ns
    length = max(1, min(_HOUR_NS // _WINDOWS, int(arrival[-1]) + 1))
    points = [
        _point(warm, arrival, lo, hi, begin, length, setting.rules.slots)
        for lo, hi, begin in _windows(arrival, length)
    ]
    return {
        "kind": "heat",
        "hours": int(arrival[-1]) / _HOUR_NS,
        "rounds": rounds,
        "low_clock_s": heat.low_clock_ns * 1e-9,
        "peak_die_c": heat.peak_die_c,
        "peak_sink_c": heat.peak_sink_c,
        "points": points,
        "warm": _whole(warm, arrival, setting.rules.slots),
        "full_clock": _whole(cold, arrival, setting.rules.slots),
    }


def _windows(arrival: Times, length: int) -> list[tuple[int, int, int]]:
    """(first request, last + 1, begin in ns) of every window that some request came in."""
    begins = np.arange(0, int(arrival[-1]) + 1, length)
    edges = np.searchsorted(arrival, np.append(begins, begins[-1] + length))
    found = zip(edges[:-1].tolist(), edges[1:].tolist(), begins.tolist(), strict=True)
    return [(lo, hi, begin) for lo, hi, begin in found if hi > lo]


def _point(
    done: Replayed, arrival: Times, lo: int, hi: int, begin: int, length: int, slots: int | None
) -> dict[str, Any]:
    heat = done.warmed
    assert heat is not None
    throttle = dict(done.parts)["throttle"][lo:hi]
    return {
        "from_s": begin * 1e-9,
        "requests": hi - lo,
        "die_c": float(heat.die_c[lo:hi].mean()),
        "peak_die_c": float(heat.die_c[lo:hi].max()),
        "throttled_share": float((throttle > 0).mean()),
        **_tail(done, arrival, slice(lo, hi), length, slots),
    }


def _whole(done: Replayed, arrival: Times, slots: int | None) -> dict[str, Any]:
    return _tail(done, arrival, slice(None), int(arrival[-1]) or 1, slots)


def _tail(done: Replayed, arrival: Times, which: slice, length: int, slots: int | None) -> dict[str, Any]:
    response = (done.completion_ns - arrival)[which]
    work = int((done.served_ns // done.batch)[which].sum())
    names = (f"{name}_s" for name, _ in PERCENTILES)
    return {
        "rate_per_s": response.size * 1e9 / length,
        "utilisation": work / (slots * length) if slots is not None else 0.0,
        **dict(zip(names, (value * 1e-9 for value in percentiles(response)), strict=True)),
    }
