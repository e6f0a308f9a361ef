"""Latency: percentiles, the distribution beside the baseline's, the exact parts of the tail, the load.

Knows `ServingResult`. Percentiles are nearest rank and come from the model. The slots and the rate set here
override the workload's own.
"""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QDoubleSpinBox, QHBoxLayout, QLabel, QSpinBox

from model.cost.result import CostResult
from model.serving.result import ServingResult

from .. import look
from ..controls import Combo, ElidedLabel, scrolling
from ..document import Document
from ..names import group_name
from .distribution import Distribution
from .panel import Panel
from .parts import Parts, shown_parts


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


class Latency(Panel):
    """The latency panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "latency", "Latency", "response time of requests under a workload")
        self.distribution = Distribution()
        self.distribution.setAccessibleName("Distribution of response times")
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
        self.notes = QLabel()
        self.notes.setWordWrap(True)
        self.notes.setProperty("tiny", True)
        heading = QLabel("tail, exact parts")
        heading.setProperty("strong", True)
        head = QHBoxLayout()
        head.setSpacing(6)
        head.addWidget(self.which)
        head.addWidget(heading)
        head.addStretch(1)
        column = scrolling(self.body)
        column.addWidget(self.overload)
        column.addWidget(self.distribution, 1)
        column.addLayout(head)
        column.addWidget(self.parts)
        column.addLayout(self._controls())
        column.addWidget(self.notes)
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(250)
        self._settle.timeout.connect(self._set_load)
        self.follow(
            "serving",
            document.serving_changed,
            document.baseline_changed,
            document.machine_changed,
            document.cost_changed,
        )

    def _controls(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(6)
        self.slots = QSpinBox()
        self.slots.setRange(0, 4096)
        self.slots.setSpecialValueText("as given")
        self.slots.setAccessibleName("Slots")
        self.slots.setToolTip("Partitions that serve requests at the same time; 0: the workload's own")
        self.rate = QDoubleSpinBox()
        self.rate.setRange(0.0, 1e9)
        self.rate.setDecimals(2)
        self.rate.setSpecialValueText("as given")
        self.rate.setSuffix(" /s")
        self.rate.setAccessibleName("Arrival rate in requests per second")
        self.rate.setToolTip("Mean arrival rate; a trace keeps its rhythm and is stretched. 0: its own")
        self.rate.setStepType(QDoubleSpinBox.StepType.AdaptiveDecimalStepType)
        self.facts = ElidedLabel()
        self.facts.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for text, widget in (("Slots", self.slots), ("Rate", self.rate)):
            label = QLabel(text)
            label.setProperty("muted", True)
            label.setBuddy(widget)
            row.addWidget(label)
            row.addWidget(widget)
            widget.setAlignment(Qt.AlignmentFlag.AlignCenter)
            widget.setFixedWidth(72 if widget is self.slots else 92)
            widget.valueChanged.connect(lambda *_: self._settle.start())
        row.addWidget(self.facts, 1)
        return row

    def _set_load(self) -> None:
        load = self.document.load
        if load is not None:
            slots, rate_per_s = self.slots.value() or None, self.rate.value() or None
            self.document.set_load(replace(load, slots=slots, rate_per_s=rate_per_s))

    def redraw(self) -> None:
        """The newest serving result beside the baseline's."""
        document, result = self.document, self.document.serving
        if self.explain_absence("latency"):
            return
        if document.workload is None and result is None:
            self.say("No workload is chosen. Choose one in the header to see p95 and p99.")
            return
        if result is None:
            lacking = unfit_sentence(document.cost)
            self.say(lacking or "Serving the workload…", "warning" if lacking else "note")
            return
        self._read_controls()
        source = f"{result.source} · {_slots(result.slots)}"
        if result.first_estimate:
            source += " · first estimate"
        if document.serving_is_behind:
            source += " · behind the plan shown"
        if result.unstable:
            self.say(unstable_sentence(result), "warning")
            self.set_line(source)
            return
        if not len(result.requests.arrival_ns):
            self.say("The workload holds no request. Choose a longer window or another trace.", "warning")
            return
        self.set_line(source)
        baseline = document.baseline
        base = baseline.serving if baseline is not None and baseline.serving is not result else None
        label = baseline.label if baseline is not None else ""
        self.distribution.show_results(result, base, label)
        which = self.which.currentText()
        count = max(1, len(result.requests.arrival_ns))
        total = {"p95": result.p95_ns, "p99": result.p99_ns}.get(which, result.sum_response_ns // count)
        self.parts.show_parts(shown_parts(result, which), total)
        overload = overload_sentence(result)
        self.overload.setText(overload)
        self.overload.setVisible(bool(overload))
        facts = f"ρ {result.utilisation:.2f} · Jain {result.jain_slots:.2f}"
        self.facts.setText(facts)
        self.facts.setToolTip(
            f"{facts}\nUtilisation of the slots; Jain's fairness index over slots (1 is even)"
        )
        self.notes.setText(" · ".join(("nearest rank", *result.notes)))
        self.show_body()

    def _read_controls(self) -> None:
        """Show the document's values without setting them again."""
        load = self.document.load
        if load is None:
            return
        for widget, value in ((self.slots, load.slots or 0), (self.rate, load.rate_per_s or 0.0)):
            if not widget.hasFocus() and widget.value() != value:
                widget.blockSignals(True)
                widget.setValue(value)  # type: ignore[arg-type]
                widget.blockSignals(False)
