"""Latency: percentiles, the distribution beside the baseline's, the tail's exact parts, streams, slots, the load.

Knows `ServingResult`. Percentiles are nearest rank and come from the model. What is set below stands over the
workload's own, and stays in reach where there is nothing to draw: it may be the way out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton

from model.cost.result import CostResult
from model.serving.result import ServingResult

from .. import look
from ..controls import Combo, muted, scrolling
from ..document import Document
from ..load import Load
from ..names import group_name
from ..runner import Lane
from .distribution import Distribution
from .knobs import Knobs
from .panel import Panel
from .parts import Parts, part_name, shown_parts
from .streams import SlotBars, StreamTable

if TYPE_CHECKING:  # its kernels are not loaded on the GUI thread
    from model.serving.drivers import Blame

DRIVER_NAMES = {"static_partition": "static partition"}


def _slots(count: int) -> str:
    return f"{count:,} slot{'s' if count != 1 else ''}"


def unstable_sentence(result: ServingResult) -> str:
    """What rho >= 1 of an endless process means, and what to try."""
    return (
        f"Unstable: requests ask for {result.utilisation:.2f} times what {_slots(result.slots)} can do "
        "(rho ≥ 1), so the queue grows without end and there is no p95. "
        "Lower the rate, add slots, or shorten the plan."
    )


def overload_sentence(result: ServingResult) -> str:
    """What rho > 1 of a recorded trace means, and what to try; empty where it is not."""
    if result.unstable or result.utilisation <= 1.0:
        return ""
    return (
        f"⚠ Overloaded: ρ {result.utilisation:.1f}. The queue grows as long as the trace lasts; these times "
        "are of that queue. Lower the rate, add slots, or shorten the plan."
    )


def unfit_sentence(cost: CostResult | None) -> str:
    """Why a plan cannot be served: the first group that does not fit, and its levers; empty where all fit."""
    for index, group in enumerate(cost.groups if cost is not None else ()):
        lack = group.infeasible
        if lack is not None:
            levers = "; ".join(lack.levers) or "split it"
            return (
                f"No request can be served: {group_name(index)} needs {look.fmt_bytes(lack.demand_bytes)} in "
                f"{lack.memory}, {look.fmt_bytes(lack.capacity_bytes)} available. Try: {levers}."
            )
    return ""


def driver_sentence(blame: Blame | None, percentile: str) -> str:
    """``p95 is owed to: queueing +1.50 s, contention +3.10 ms; 221 ms with neither``; empty where it is not known."""
    if blame is None:
        return ""
    for place, (name, values) in enumerate(blame.values_ns):
        if name == percentile:
            ordered = sorted(values, key=lambda pair: -abs(pair[1]))
            owed = ", ".join(f"{DRIVER_NAMES.get(driver, driver)} {_signed(ns)}" for driver, ns in ordered)
            left = look.fmt_ns(blame.grid[0].percentiles_ns[place])
            flagged = any(coalition.overloaded for coalition in blame.grid)
            caveat = " (some combinations are overloaded)" if flagged else ""
            return f"{name} by driver: {owed}; {left} without{caveat}"
    return ""


def _signed(ns: Fraction) -> str:
    text = look.fmt_seconds(float(ns) * 1e-9)
    return f"+{text}" if ns > 0 else text


def facts_of(result: ServingResult) -> str:
    """How full, how fair, what was lost to shapes: one line."""
    facts = [f"ρ {result.utilisation:.2f}", f"Jain over slots {result.jain_slots:.2f}"]
    if len(result.streams) > 1:
        facts.append(f"over streams {result.jain_streams:.2f}")
    batches = sum(count for _, count in result.batch_sizes)
    mean = sum(size * count for size, count in result.batch_sizes) / batches if batches else 1.0
    if mean > 1.0:
        facts.append(f"mean batch {mean:.1f}")
    for name, share in (("padding", result.padding_share), ("fallback", result.fallback_share)):
        if share:
            facts.append(f"{name} {look.fmt_percent(share)}")
    facts.append(f"{result.throughput_rps:.4g} requests/s served")
    return " · ".join(facts)


def highest_sentence(rate: dict[str, Any], ramp: dict[str, Any]) -> str:
    """What the search found: the rate, how it was replayed, and what breaks first beyond it."""
    how = f"{rate['tried']} rates tried" + (", by the first estimate" if rate["first_estimate"] else "")
    limit = f"{rate['percentile']} within {look.fmt_seconds(rate['limit_s'])}"
    if not rate["rate_per_s"]:
        return f"No rate keeps {limit} ({how}). Shorten the plan, add slots, or relax the objective."
    cause = part_name(ramp["cause"]) if ramp.get("cause") else ""
    first = {"capacity": "the slots' capacity", "objective": "the objective"}.get(ramp.get("what") or "", "")
    beyond = (
        f" Beyond it {first} breaks first" + (f": {cause} grows most." if cause else ".") if first else ""
    )
    return f"{rate['rate_per_s']:.4g} requests/s keep {limit} ({how}).{beyond}"


FACTS_TIP = (
    "ρ: utilisation of the slots. Jain's index: 1 is even, 1/n all in one; over slots of busy time, over streams of "
    "slowdown. Padding: share of service time; fallback: share of requests."
)


class Latency(Panel):
    """The latency panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "latency", "Latency", "response time of requests under a workload")
        self._unserved = ""  # why there is no tail, until there may be one
        self.distribution = Distribution()
        self.distribution.setAccessibleName("Distribution of response times")
        self.distribution.limit_set.connect(self._set_limit)
        self.parts = Parts()
        self.parts.setAccessibleName("Parts of the tail")
        self.which = Combo("Percentile that is split into parts")
        self.which.setFixedWidth(72)
        self.which.addItems(["p95", "p99", "mean"])
        self.which.currentIndexChanged.connect(self.invalidate)
        self.overload = QLabel()
        self.overload.setWordWrap(True)
        self.overload.setProperty("strong", True)
        self.overload.setProperty("state", "warn")
        self.overload.setVisible(False)
        self.owed = muted("")
        self.owed.setWordWrap(True)
        self.owed.setToolTip(
            "Shapley values: the mean effect of each driver over all orders of switching them on, of exact replays of "
            "the same requests. They sum to the percentile; one may be negative, where a driver relieves others."
        )
        self.streams = StreamTable(document)
        self.slots = SlotBars()
        self.facts = muted("")
        self.facts.setWordWrap(True)
        self.facts.setToolTip(FACTS_TIP)
        self.notes = QLabel()
        self.notes.setWordWrap(True)
        self.notes.setProperty("tiny", True)
        heading = QLabel("tail, exact parts")
        heading.setProperty("strong", True)
        self.heading = heading
        head = QHBoxLayout()
        head.setSpacing(6)
        head.addWidget(self.which)
        head.addWidget(heading)
        head.addStretch(1)
        self.highest = QPushButton("Highest rate")
        self.highest.setProperty("quiet", True)
        self.highest.clicked.connect(self._find_highest)
        head.addWidget(self.highest)
        column = scrolling(self.body)
        column.addWidget(self.overload)
        column.addWidget(self.distribution, 1)
        column.addLayout(head)
        column.addWidget(self.parts)
        column.addWidget(self.owed)
        column.addWidget(self.streams)
        column.addWidget(self.slots)
        column.addWidget(self.facts)
        column.addWidget(self.notes)
        self.knobs = Knobs()
        self.knobs.turned.connect(document.set_load)
        self.foot.addWidget(self.knobs)
        self.foot.setContentsMargins(12, 4, 12, 8)
        self.knobs.setVisible(False)
        document.failed.connect(self._keep_failure)
        document.machine_changed.connect(self._forget_unserved)
        self.follow(
            "serving",
            document.serving_changed,
            document.drivers_changed,
            document.baseline_changed,
            document.machine_changed,
            document.cost_changed,
        )

    def _keep_failure(self, what: str, sentence: str) -> None:
        if what == "serving":
            self._unserved = sentence

    def _forget_unserved(self) -> None:
        self._unserved = ""

    def _set_limit(self, limit_ns: int) -> None:
        load = self.document.load
        if load is not None:
            self.document.set_load(replace(load, objective_s=limit_ns * 1e-9))

    def _find_highest(self) -> None:
        """Search the rate up to which the objective holds, set it, and say what breaks beyond."""
        document, served = self.document, self.document.served
        if served is not None:
            self.highest.setEnabled(False)
            document.ask(
                Lane.QUESTION,
                "Searching the highest rate within the objective",
                lambda: document.engine.highest_rate(served),
                self._take_highest,
            )

    def _take_highest(self, found: tuple[dict[str, Any], dict[str, Any]]) -> None:
        rate, load = found[0]["rate_per_s"], self.document.load
        self.document.said.emit(highest_sentence(*found), "note" if rate else "warning")
        if rate and load is not None:
            self.document.set_load(replace(load, rate_per_s=math.floor(rate * 100) / 100))
        self.invalidate()

    def redraw(self) -> None:
        """The newest serving result beside the baseline's."""
        document, result, load = self.document, self.document.serving, self.document.load
        self._show_knobs(load)
        if self.explain_absence("latency"):
            return
        if load is None and result is None:
            self.say("No workload is chosen. Choose one in the header to see p95 and p99.")
            return
        if result is None:
            lacking = unfit_sentence(document.cost)
            if self._unserved and not lacking:
                self.say(self._unserved, "error")
            else:
                self.say(lacking or "Serving the workload…", "warning" if lacking else "note")
            return
        self._unserved = ""
        source = f"{result.source} · {_slots(result.slots)}"
        if result.first_estimate:
            source = f"first estimate · {source}"
        if document.serving_is_behind:
            source += " · behind what is set"
        if result.unstable:
            self.say(unstable_sentence(result), "warning")
            self.set_line(source)
            return
        if not len(result.requests.arrival_ns):
            self.say("The workload holds no request. Choose a longer window or another trace.", "warning")
            return
        self.set_line(source)
        self._draw(result, load)
        self.show_body()

    def _draw(self, result: ServingResult, load: Load | None) -> None:
        document = self.document
        baseline = document.baseline
        base = baseline.serving if baseline is not None and baseline.serving is not result else None
        label = baseline.label if baseline is not None else ""
        settable = load is not None and load.judged is not None
        self.distribution.show_results(result, base, label, settable=settable)
        which = self.which.currentText()
        count = max(1, len(result.requests.arrival_ns))
        total = {"p95": result.p95_ns, "p99": result.p99_ns}.get(which, result.sum_response_ns // count)
        self.heading.setText(
            "tail, first estimate of its parts" if result.first_estimate else "tail, exact parts"
        )
        self.parts.show_parts(shown_parts(result, which), total)
        overload = overload_sentence(result)
        self.overload.setText(overload)
        self.overload.setVisible(bool(overload))
        owed = driver_sentence(document.drivers, which)
        self.owed.setText(owed)
        self.owed.setVisible(bool(owed))
        several = len(result.streams) > 1 or any(s.slo_attainment is not None for s in result.streams)
        self.streams.setVisible(several)
        if several:
            self.streams.show_streams(result)
        judged = result.slo_response_s is not None
        self.highest.setEnabled(judged)
        self.highest.setToolTip(
            "Search the highest rate at which the objective holds, set it, and say what breaks first beyond it"
            if judged
            else "Needs one objective: drag the SLO line, or set slo in the workload file"
        )
        self.slots.show_slots(result)
        self.facts.setText(facts_of(result))
        few = (f"too few requests for an interval of {', '.join(result.too_few)}",) if result.too_few else ()
        self.notes.setText(" · ".join(("nearest rank", *few, *result.notes)))

    def _show_knobs(self, load: Load | None) -> None:
        machine = self.document.accelerator
        shown = load is not None and self.document.graph is not None
        self.knobs.setVisible(shown)
        if shown and load is not None:
            self.knobs.show_load(load, machine.partition.slots if machine is not None else 1)
