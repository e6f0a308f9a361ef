"""Latency: percentiles, the distribution beside the baseline's, times of tokens, the tail's exact parts and what limits
it, streams, slots, heat, the load.

Knows `ServingResult`. Percentiles are nearest rank and come from the model. What is set below stands over the
workload's own, and stays in reach where there is nothing to draw: it may be the way out. Where the panel is wide, the
distribution stands beside what it is made of, else above it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QLabel, QVBoxLayout, QWidget

from model.cost.result import CostResult
from model.plan.plan import Plan
from model.serving.limits import cause_of, limits, part_words
from model.serving.result import ServingResult

from .. import look
from ..controls import Combo, Fold, muted, scrolling
from ..document import Document
from ..engine import ServingRequest
from ..load import DEFAULT_PERCENTILE, Load
from ..names import group_name
from ..runner import Lane
from .distribution import MEASURES, Distribution
from .knobs import RATE_DIGITS, Knobs
from .limits import SHAPLEY_TIP, Limits, driver_sentence
from .panel import Panel
from .parts import Parts, shown_parts
from .streams import SlotBars, StreamTable
from .tokens import SHOWN, TokenTimes, token_facts

JUDGED = ("p95", "p99")
"""Percentiles whose parts and drivers are told."""
WIDE = 720
"""From this width on the panel has two columns."""


def _slots(count: int) -> str:
    return f"{count:,} slot{'s' if count != 1 else ''}"


def unstable_sentence(result: ServingResult) -> str:
    """What rho >= 1 of an endless process means, and what to try."""
    return (
        f"Unstable: requests ask for {result.utilisation:,.3g} times what {_slots(result.slots)} can do "
        "(rho ≥ 1), so the queue grows without end and there is no p95. "
        "Lower the rate, add slots, or shorten the plan."
    )


def overload_sentence(result: ServingResult) -> str:
    """What rho > 1 of a recorded trace means, and what to try; empty where it is not."""
    if result.unstable or result.utilisation <= 1.0:
        return ""
    return (
        f"⚠ Overloaded: ρ {result.utilisation:,.3g}. The queue grows as long as the trace lasts; these times "
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


def slots_sentence(result: ServingResult, machine_slots: int, endless: bool) -> str:
    """What more slots than the machine has mean; empty where there are no more."""
    if endless or not 0 < machine_slots < result.slots:
        return ""
    return (
        f"⚠ {_slots(result.slots)} on a machine of {machine_slots:,}: each computes at full speed, as on "
        f"{result.slots / machine_slots:.3g} machines. Set Slots to {machine_slots:,} at most to stay within this one."
    )


def heat_sentence(result: ServingResult) -> str:
    """``Die at most 86.0 °C, sink 84.1 °C · clock low for 55.4 min, 91.7 % of the time``; empty where nothing warms."""
    heat = result.warmed
    if heat is None:
        return ""
    parts = [f"Die at most {look.fmt_celsius(heat.peak_die_c)}, sink {look.fmt_celsius(heat.peak_sink_c)}"]
    if heat.low_clock_ns and result.span_s:
        share = look.fmt_percent(heat.low_clock_ns * 1e-9 / result.span_s)
        parts.append(f"clock low for {look.fmt_ns(heat.low_clock_ns)}, {share} of the time")
    else:
        parts.append(f"the clock stays up, to {look.fmt_celsius(heat.throttle_c)}")
    if heat.capped:
        parts.append(f"{heat.capped:,} batches slowed by the power cap")
    return " · ".join(parts)


def facts_of(result: ServingResult) -> str:
    """How full, how fair, what was lost to shapes: one line."""
    facts = [f"ρ {result.utilisation:.2f}", f"Jain over slots {result.jain_slots:.2f}"]
    if len(result.streams) > 1:
        facts.append(f"over streams {result.jain_streams:.2f}")
    elif result.streams:
        facts.append(f"slowdown {result.streams[0].slowdown:.2f}")
    batches = sum(count for _, count in result.batch_sizes)
    mean = sum(size * count for size, count in result.batch_sizes) / batches if batches else 1.0
    if mean > 1.0:
        facts.append(f"mean batch {mean:.1f}")
    for name, share in (
        ("padding", result.padding_share),
        ("fallback", result.fallback_share),
        ("preempted", result.preempted_share),
    ):
        if share:
            facts.append(f"{name} {look.fmt_percent(share)}")
    served = f"served {result.throughput_rps:.4g} requests/s to the last completion"
    if result.goodput_rps is not None:
        served += f", {result.goodput_rps:.4g} of it within the objective"
    facts.append(served)
    if result.energy_j_per_request > 0.0:
        facts.append(f"{look.fmt_quantity(result.energy_j_per_request, 'J')} a request")
    return " · ".join(facts)


def highest_sentence(rate: dict[str, Any], ramp: dict[str, Any]) -> str:
    """What the search found: the rate, how it was replayed, and what breaks first beyond it."""
    how = f"{rate['tried']} rates tried" + (", by the first estimate" if rate["first_estimate"] else "")
    limit = f"{rate['percentile']} within {look.fmt_seconds(rate['limit_s'])}"
    if not rate.get("set_rate_per_s"):
        return f"No rate keeps {limit} ({how}). Shorten the plan, add slots, or relax the objective."
    part = ramp.get("cause") or ""
    name = part_words(part)
    cause = cause_of(part) if part else ""
    grows = f": {name} grows most{f' ({cause})' if cause != name else ''}." if part else "."
    first = {"capacity": "the slots' capacity", "objective": "the objective"}.get(ramp.get("what") or "", "")
    beyond = f" Beyond it {first} breaks first{grows}" if first else ""
    return f"{rate['set_rate_per_s']:.4g} requests/s keep {limit} ({how}).{beyond}"


FACTS_TIP = (
    "ρ: utilisation of the slots. Jain's index: 1 is even, 1/n all in one; over slots of busy time, over streams of "
    "slowdown: responses over the times alone on a slot. Padding: share of service time; fallback and preempted: share "
    "of requests. Offered is the rate at which requests arrive, in the grey line and the Rate knob; served is requests "
    "over the time from first arrival to last completion, so a queue that is left at the end makes it less. Within the "
    "objective: goodput. Each has a card in Why."
)


def few_sentence(few: tuple[str, ...], what: str = "") -> str:
    """Which percentiles shown have too few requests for an interval, and what to try; empty where none has."""
    named = [name for name in few if name in SHOWN]
    if not named:
        return ""
    return (
        f"⚠ Too few requests for an interval of {', '.join(named)}{what}. Try more requests in the workload file, or a "
        "lower rate."
    )


def offered(result: ServingResult) -> str:
    """What arrives: ``offered 8.5 requests/s, 12,000 requests, …``."""
    return f"offered {result.source}" if result.source[:1].isdigit() else result.source


def _sentence(state: str = "") -> QLabel:
    """A sentence in the panel's column; hidden while there is none."""
    label = QLabel()
    label.setWordWrap(True)
    label.setProperty("strong", True)
    if state:
        label.setProperty("state", state)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setVisible(False)
    return label


def _grey(tip: str = "") -> QLabel:
    """A small grey sentence that wraps."""
    label = muted("")
    label.setWordWrap(True)
    label.setToolTip(tip)
    return label


def _tell(label: QLabel, text: str) -> None:
    label.setText(text)
    label.setVisible(bool(text))


def _rounded_down(rate_per_s: float) -> float:
    """As the knob shows it, and not above."""
    return math.floor(rate_per_s * 10.0**RATE_DIGITS) / 10.0**RATE_DIGITS


def _runs_the_plan(load: Load | None) -> bool:
    """Whether slots are the machine's: of service times of the workload's own they are only places."""
    return load is not None and any(s.service is None and not s.plans for s in load.workload.streams)


def _whose(load: Load | None) -> str:
    """The stream whose objective is drawn, where there are several."""
    if load is None or load.judged is None or len(load.workload.streams) == 1:
        return ""
    return load.workload.streams[load.judged].name


class Latency(Panel):
    """The latency panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "latency", "Latency", "response time of requests under a workload")
        self._unserved = ""  # why there is no tail, until there may be one
        self._searching = False
        self.distribution = Distribution()
        self.distribution.setAccessibleName("Distribution of response times")
        self.distribution.limit_set.connect(self._set_limit)
        self.parts = Parts()
        self.parts.setAccessibleName("Parts of the tail")
        self.which = Combo("Percentile that is split into parts")
        self.which.setFixedWidth(72)
        self.which.addItems([*JUDGED, "mean"])
        self.which.currentIndexChanged.connect(self.invalidate)
        self.overload = _sentence("warn")
        self.found = _sentence()
        self.found.setAccessibleName("The highest rate that was found")
        self._searched: tuple[Load, Plan | None] | None = None  # what `found` is of
        self.tokens = TokenTimes()
        self.tokens.chosen.connect(self.invalidate)
        self.answered = _grey()
        self.heat = _grey("Over time, and when the clock was low: in Queue")
        self.limits = Limits()
        self.owed = _grey(SHAPLEY_TIP)
        self.streams = StreamTable(document)
        self.slots = SlotBars()
        self.facts = _grey(FACTS_TIP)
        self.few = _grey("Decided for each percentile from the autocorrelation of the responses")
        self.few.setProperty("state", "warn")
        self.notes = QLabel()
        self.notes.setWordWrap(True)
        self.notes.setProperty("tiny", True)
        self._compose()
        self.knobs = Knobs()
        self.knobs.turned.connect(document.set_load)
        self.highest = self.knobs.highest
        self.highest.clicked.connect(self._find_highest)
        self.rule = QFrame()
        self.rule.setProperty("rule", True)
        self.rule.setFixedHeight(1)  # what is scrolled ends here
        self.foot.addWidget(self.rule)
        self.foot.addWidget(self.knobs)
        self.foot.setContentsMargins(12, 0, 12, 8)
        self.foot.setSpacing(6)
        self.rule.setVisible(False)
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

    def _compose(self) -> None:
        """Two halves, above or beside each other."""
        column = scrolling(self.body)
        column.setContentsMargins(0, 0, 6, 0)  # beside the bar that scrolls
        self.body.setContentsMargins(12, 0, 6, 0)
        column.setSpacing(6)
        column.addWidget(self.overload)
        column.addWidget(self.found)
        self.halves = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self.halves.setSpacing(column.spacing())
        first, second = QWidget(), QWidget()
        shape, make_up = QVBoxLayout(first), QVBoxLayout(second)
        for half in (shape, make_up):
            half.setContentsMargins(0, 0, 0, 0)
            half.setSpacing(column.spacing())
        shape.addWidget(self.distribution, 1)
        for widget in (self.few, self.tokens, self.answered, self.heat):
            shape.addWidget(widget)
        self.heading = Fold("tail, exact parts")
        self.heading.head.insertWidget(0, self.which)
        self.heading.inside.addWidget(self.parts)
        self.limiting = Fold("What limits it")
        self.limiting.inside.addWidget(self.limits)
        self.limiting.inside.addWidget(self.owed)
        self.serving = Fold("Slots and streams")
        for widget in (self.slots, self.streams, self.facts, self.notes):
            self.serving.inside.addWidget(widget)
        for fold in (self.heading, self.limiting, self.serving):
            make_up.addWidget(fold)
        make_up.addStretch(1)
        self.halves.addWidget(first, 1)
        self.halves.addWidget(second, 1)
        column.addLayout(self.halves, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """One column or two."""
        super().resizeEvent(event)
        wide = self.width() >= WIDE
        self.halves.setDirection(
            QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        )
        self.halves.setSpacing(16 if wide else 6)

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
            self._searching = True
            self.highest.setEnabled(False)
            document.ask_in_slices(
                Lane.QUESTION,
                "Searching the highest rate within the objective",
                document.engine.highest_rate(served),
                lambda found: self._take_highest(served, found),
                lambda fault: self._end_search(),
            )

    def _end_search(self) -> None:
        self._searching = False
        self.invalidate()

    def _take_highest(self, served: ServingRequest, found: tuple[dict[str, Any], dict[str, Any]]) -> None:
        document, rate = self.document, found[0].get("set_rate_per_s")
        self._end_search()
        if document.load != served.load or document.plan != served.cost.request.plan:
            document.said.emit(
                "The highest rate was searched for what has changed meanwhile: nothing was set. Ask again.",
                "warning",
            )
            return
        sentence = highest_sentence(*found)
        document.said.emit(sentence, "note" if rate else "warning")
        self.found.setText(sentence)
        load = served.load
        if rate:
            load = replace(load, rate_per_s=_rounded_down(rate))
        self._searched = load, document.plan
        if found[0]["percentile"] in JUDGED:  # what is asked is what limits this one
            self.which.setCurrentText(found[0]["percentile"])
        if load != served.load:
            document.set_load(load)

    def redraw(self) -> None:
        """The newest serving result beside the baseline's."""
        document, result, load = self.document, self.document.serving, self.document.load
        self._show_knobs(load)
        self._show_search(load)
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
        source = f"{offered(result)} · {_slots(result.slots)}"
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
        asked = load.asked if load is not None else DEFAULT_PERCENTILE
        self._show_answers(result)
        measure = self.tokens.measure if result.tokens is not None else "response"
        self.distribution.show_results(
            result, base, label, settable=settable, asked=asked, measure=measure, whose=_whose(load)
        )
        which = self.which.currentText()
        count = max(1, len(result.requests.arrival_ns))
        total = {"p95": result.p95_ns, "p99": result.p99_ns}.get(which, result.sum_response_ns // count)
        of = " of the response" if result.tokens is not None else ""
        self.heading.set_title(
            f"tail{of}, first estimate of its parts" if result.first_estimate else f"tail{of}, exact parts"
        )
        self.parts.show_parts(shown_parts(result, which), total)
        machine = document.accelerator
        slots = machine.partition.slots if machine is not None else 0
        warnings = (
            overload_sentence(result),
            slots_sentence(result, slots, not result.slot_busy_ns) if _runs_the_plan(load) else "",
        )
        _tell(self.overload, "\n".join(text for text in warnings if text))
        self.limiting.set_title(f"What limits {'the mean' if which == 'mean' else which}")
        self.limits.show_limits(limits(result, which, document.drivers))
        _tell(self.owed, driver_sentence(document.drivers, which))
        several = len(result.streams) > 1  # of one, the picture and the facts say all
        self.streams.setVisible(several)
        if several:
            self.streams.show_streams(result)
        self.slots.show_slots(result)
        self.facts.setText(facts_of(result))
        if measure == "response":
            few, of = result.too_few, ""
        else:
            scope, of = f"{measure}.", f" of the {MEASURES[measure]}"
            few = tuple(n.removeprefix(scope) for n in result.token_too_few if n.startswith(scope))
        _tell(self.few, few_sentence(few, of))
        notes = (note for note in result.notes if not note.startswith("overloaded:"))  # said above
        self.notes.setText(" · ".join(("nearest rank", *notes)))

    def _show_answers(self, result: ServingResult) -> None:
        """What was answered token by token, and how warm it got."""
        tokens, served = result.tokens, self.document.served
        self.tokens.setVisible(tokens is not None)
        if tokens is not None:
            self.tokens.show_tokens(result, tokens)
        rules = [] if served is None else [s.generation for s in served.load.workload.streams if s.generation]
        capacity = rules[0].kv_capacity_bytes if len(rules) == 1 else None
        _tell(self.answered, "" if tokens is None else token_facts(tokens, capacity))
        _tell(self.heat, heat_sentence(result))

    def _show_search(self, load: Load | None) -> None:
        """What the last search found, as long as it is of what is shown; and whether there can be another."""
        document, searched = self.document, self._searched
        if searched is not None and (load, document.plan) != searched:
            self._searched = searched = None
        self.found.setVisible(searched is not None)
        served, judged = document.served, load is not None and load.judged is not None
        ready = judged and load is not None and load.limit_s is not None and served is not None
        self.highest.setEnabled(ready and not self._searching)
        self.highest.setToolTip(
            "Search the highest rate at which the objective holds, set it, and say what breaks first beyond it"
            if ready
            else "Needs an objective: give a time beside it, or drag the SLO line"
            if judged
            else "Needs one stream with an objective: set slo in the workload file"
        )

    def _show_knobs(self, load: Load | None) -> None:
        machine = self.document.accelerator
        shown = load is not None and self.document.graph is not None
        self.knobs.setVisible(shown)
        self.rule.setVisible(shown)
        if shown and load is not None:
            self.knobs.show_load(load, machine.partition.slots if machine is not None else 1)
