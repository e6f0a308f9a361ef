"""What a workload can be asked beside its tail: which driver, and what if.

Chooses grids, and by which replay; the rest is `drivers` and `whatif`.
Shapley values are of exact replays. What-ifs on one line for all slots run on the first estimate where slots contend,
and say so: a curve is dozens of replays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from .arrivals import exact
from .drivers import Run, blame, drivers_of
from .exact import replay
from .outcome import Prepared
from .rules import Offers, Replayed, Rules, Services
from .slowdown import SlowdownTables, can_estimate, first_estimate
from .thermal_drift import drift
from .whatif import (
    Limit,
    batch_sweep,
    beside_poisson,
    confirmed,
    highest_rate,
    load_curve,
    ramp,
    reaching_down,
    static_against_dynamic,
)

_UTILISATIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05)
_BATCHES = (1, 2, 4, 8, 16, 32)
_LINGERS_S = (0.0, 0.25, 1.0)
"""Lingers that are tried, in mean service times of one request."""
_FREE_REPLAYS = 8_000_000
"""Requests over all combinations of drivers that are replayed without being asked for, where slots do not contend."""


def blamed(prepared: Prepared, asked: bool) -> dict[str, Any] | None:
    """CONTRACT's ``shapley``; None where it was not `asked` for and takes long: contention, or millions of requests.

    Raises
    ------
    UsageError : asked for of a closed loop, whose arrivals are other ones without a driver.
    """
    drivers = drivers_of(prepared.setting)
    if prepared.workload.streams[0].loop is not None:
        if asked:
            raise UsageError(
                "a closed loop has no drivers apart: without one its requests come at other times"
            )
        return None
    replays = prepared.table.alone_ns.size << len(drivers)
    if not asked and (replays > _FREE_REPLAYS or any(driver.name == "contention" for driver in drivers)):
        return None
    return blame(prepared.setting, drivers, replay).document()


def sigma(prepared: Prepared) -> list[float] | None:
    """CONTRACT's ``sigma``: how many times as long the plan of most requests takes while 1, 2, ... slots run it.

    None where slots do not contend.
    """
    services, rules = prepared.table.services, prepared.rules
    if rules.slots is None or not math.isfinite(rules.bandwidth_bytes_per_s) or not services.profiles:
        return None
    plan = int(np.argmax(np.bincount(prepared.table.offers.plan)))
    which = int(services.profile_of[plan, 1])
    if which < 0:
        return None
    return SlowdownTables().of(services.profiles[which], rules).sigma[1:].tolist()


def _load(prepared: Prepared, run: Run) -> dict[str, Any]:
    return load_curve(prepared.setting, run, _rates(prepared), _percentile(prepared)).document()


def _ramp(prepared: Prepared, run: Run) -> dict[str, Any]:
    limit = _limit(prepared)
    rates = reaching_down(prepared.setting, run, limit, _rates(prepared))
    return ramp(load_curve(prepared.setting, run, rates, limit.percentile).points, limit).document()


def highest_in_slices(prepared: Prepared) -> Generator[None, None, dict[str, Any]]:
    """The what-if ``rate``: searched by the first estimate where that may answer, then held against exact replays.

    ``set_rate_per_s`` is the rate as ``--rate`` and the window take it: of a drawn process they stretch its mean rate,
    which n over first to last arrival is not exactly.

    Raises
    ------
    UsageError : the workload has not the one objective to judge by.
    """
    quickly, setting, limit = _Quickly(), prepared.setting, _limit(prepared)
    rates = reaching_down(setting, quickly, limit, _rates(prepared))
    found = highest_rate(setting, quickly, limit, rates)
    yield
    if quickly.estimated:
        found = yield from confirmed(setting, found)
    answer = found.document() | {"first_estimate": False}
    if found.point is not None:
        own = sum(stream.arrivals.rate_per_s for stream in prepared.workload.streams)
        arrival = setting.offers.arrival_ns
        counted = arrival.size * 1e9 / max(1, int(arrival[-1] - arrival[0]))
        answer["set_rate_per_s"] = found.point.rate_per_s * own / counted
    return answer


def _rate(prepared: Prepared, run: Run) -> dict[str, Any]:
    slices = highest_in_slices(prepared)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value


def _batch(prepared: Prepared, run: Run) -> dict[str, Any]:
    known = prepared.table.services.base_ns.shape[1] - 1
    sizes = [size for size in _BATCHES if size <= known]
    if len(sizes) < 2:
        raise UsageError(
            "what batches cost is known for one request only",
            where=prepared.workload.path,
            lever="Set batch.max of a stream to the largest that is to be tried.",
        )
    mean_ns = float(prepared.table.alone_ns.mean())
    lingers = sorted({int(mean_ns * share) for share in _LINGERS_S})
    if prepared.table.offers.generation is not None:
        lingers = [0]  # an iteration waits for nobody
    return batch_sweep(prepared.setting, run, sizes, lingers, _limit(prepared)).document()


def _placement(prepared: Prepared, run: Run) -> dict[str, Any]:
    homes = {slot for stream in prepared.rules.streams for slot in stream.home}
    if prepared.rules.slots is None or max(homes) >= prepared.rules.slots:
        raise UsageError("its streams have no home slots to be placed at", where=prepared.workload.path)
    return static_against_dynamic(prepared.setting, run, _percentile(prepared)).document()


def _poisson(prepared: Prepared, run: Run) -> dict[str, Any]:
    return beside_poisson(prepared.setting, run, _percentile(prepared), prepared.workload.seed)


def _heat(prepared: Prepared, run: Run) -> dict[str, Any]:
    if prepared.rules.heat is None:
        raise UsageError(
            "nothing warms in this workload",
            where=prepared.workload.path,
            lever="Set throttle.thermal = true.",
        )
    return drift(prepared.setting, run)


QUESTIONS: dict[str, Callable[[Prepared, Run], dict[str, Any]]] = {
    "load": _load,
    "batch": _batch,
    "rate": _rate,
    "ramp": _ramp,
    "placement": _placement,
    "poisson": _poisson,
    "heat": _heat,
}
"""What can be asked: load against latency; batch and linger; the highest rate within the objective; what breaks first;
static against dynamic placement; recorded beside Poisson arrivals; an hour of it while the machine warms."""


class _Quickly:
    """A replay by the first estimate where that may answer, else exact; `estimated`: whether one was."""

    def __init__(self) -> None:
        self._tables = SlowdownTables()
        self.estimated = False

    def __call__(self, offers: Offers, services: Services, rules: Rules) -> Replayed:
        if not can_estimate(offers, rules):
            return replay(offers, services, rules)
        self.estimated = self.estimated or bool(services.profiles)
        return first_estimate(offers, services, rules, self._tables)


def answers(prepared: Prepared, questions: Sequence[str]) -> list[dict[str, Any]]:
    """CONTRACT's ``whatif[]``: one entry for each of `QUESTIONS` asked; ``first_estimate`` says how it was replayed.

    Raises
    ------
    UsageError : an unknown question, or the only one asked, where this workload does not answer it (no objective, one
        batch size); beside others it is said in its entry, ``not_answered``.
    """
    if questions and prepared.workload.streams[0].loop is not None:
        raise UsageError("a closed loop's requests come as they are answered; what-ifs are of given arrivals")
    run = _Quickly()
    found: list[dict[str, Any]] = []
    for question in questions:
        if question not in QUESTIONS:
            raise UsageError(f"no question {question!r}", lever=f"Ask {', '.join(QUESTIONS)}.")
        run.estimated = False
        try:
            answer = QUESTIONS[question](prepared, run)
        except UsageError as error:
            if len(questions) == 1:
                raise
            found.append({"kind": question, "not_answered": error.sentence()})  # the others can be
            continue
        found.append({"kind": question, "first_estimate": run.estimated} | answer)
    return found


def _rates(prepared: Prepared) -> list[float]:
    """Rates at which the requests' work, in full batches, takes the slots' time in `_UTILISATIONS` parts."""
    slots = prepared.rules.slots
    if slots is None:
        raise UsageError("unlimited slots have no load", where=prepared.workload.path, lever="Set slots.")
    requests = np.bincount(prepared.table.offers.stream)
    work_s = float(requests @ np.array(prepared.table.load_s)) / float(requests.sum())
    return [slots / work_s * share for share in _UTILISATIONS]


def _limit(prepared: Prepared) -> Limit:
    """The objective of the workload, where exactly one stream has one."""
    objectives = [stream.objective for stream in prepared.workload.streams if stream.objective is not None]
    if len(objectives) != 1:
        raise UsageError(
            "needs one objective to judge by",
            where=prepared.workload.path,
            lever="Give --slo p99=SECONDS, or set slo = { percentile = 0.99, response_s = ... } in one stream.",
        )
    (objective,) = objectives
    return Limit(_name(objective.percentile), int(exact(objective.response_s) * 10**9))


def _percentile(prepared: Prepared) -> str:
    return next(
        (_name(each.objective.percentile) for each in prepared.workload.streams if each.objective), "p95"
    )


def _name(percentile: float) -> str:
    """The percentile's name, where what-ifs know it."""
    names = {0.5: "p50", 0.95: "p95", 0.99: "p99", 0.999: "p999"}
    if percentile not in names:
        raise UsageError(
            f"what-ifs judge p50, p95, p99 or p99.9, not {percentile:g}",
            lever="Set slo.percentile to one of them.",
        )
    return names[percentile]
