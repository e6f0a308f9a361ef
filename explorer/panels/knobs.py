"""The controls of what is served: each is a knob of the workload shown, with what its file says as the way back.

Knows `Load` and Qt. A knob makes another `Load`; the file is never written. What a knob shows at its lowest stop is the
file's own value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QValidator, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from .. import look
from ..controls import Combo, Fold, muted, step_or_scroll
from ..load import PLACEMENTS, Load

SETTLE_MS = 120
"""A knob that is turned is heard when it rests so long."""
WIDEST = 140
"""Pixels of a knob, however much room there is."""
CONTENTION = ("private", "shared")
"""DRAM, by whether slots contend for it: each as if it were alone on it, or all with one bandwidth that ends."""
RATE_DIGITS = 4
"""After the point: a search may find a rate of a request an hour."""


PERCENTILES = (0.5, 0.95, 0.99, 0.999)
"""Of an objective: those that what-ifs know."""


class Knobs(QWidget):
    """Rate and objective; slots, batch and linger, placement, DRAM and seed behind a line; and back to the file."""

    turned = Signal(object)
    """Emitted with another `Load`."""

    def __init__(self) -> None:
        super().__init__()
        self.load: Load | None = None
        self.rate = _decimal(0.0, 1e9, " /s", "Arrival rate in requests per second")
        self.rate.setDecimals(RATE_DIGITS)
        self.rate.setToolTip("Mean arrival rate of all streams; a trace keeps its rhythm and is stretched")
        self.slots = _whole(0, 4096, "Slots")
        self.slots.setToolTip("Partitions of the device that serve requests at the same time")
        self.batch = _whole(0, 1024, "Largest batch")
        self.batch.setToolTip(
            "Most requests of a batch; the plan is simulated at every size, so the graph needs a symbolic batch dim"
        )
        self.linger = _decimal(-1.0, 1e6, " ms", "Linger in milliseconds")
        self.linger.setToolTip("How long the oldest request of a batch waits for others")
        self.placement = Combo("Placement")
        self.placement.setToolTip(
            "Which slot a batch takes. Streams whose file names no home are spread over the slots"
        )
        self.contention = Combo("DRAM of the slots")
        self.contention.setToolTip(
            "Whether slots share one DRAM bandwidth (contention in the workload file) or each has all of it"
        )
        self.seed = _whole(-1, 2**31 - 1, "Seed")
        self.seed.setToolTip("Of everything that is drawn: arrivals that are no trace, sizes, service times")
        self.percentile = Combo("Percentile of the objective")
        self.percentile.setToolTip("How many of the requests must answer within the objective")
        self.limit = _decimal(0.0, 1e9, " ms", "Objective in milliseconds")
        self.limit.setToolTip(
            "The response time within which so many must answer (SLO): a number here, or drag the line in the picture"
        )
        self.highest = QPushButton("Highest rate")
        self.placement.setMinimumWidth(84)  # the others may be narrower than their style's own idea
        self.percentile.setMinimumWidth(60)
        self.contention.setMinimumWidth(76)
        self.reset = QPushButton("Reset")
        self.reset.setToolTip("As the file says: take every knob back, the objective too")
        self.reset.setProperty("quiet", True)
        self.reset.clicked.connect(self._reset)
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(SETTLE_MS)
        self._settle.timeout.connect(self._tell)
        self._compose()
        for widget in (self.rate, self.slots, self.batch, self.linger, self.seed, self.limit):
            widget.valueChanged.connect(lambda *_: self._settle.start())
        for widget in (self.placement, self.contention, self.percentile):
            widget.activated.connect(lambda *_: self._tell())

    def _compose(self) -> None:
        """What is turned most in one row; the others behind one line that says what they are set to."""
        first = QHBoxLayout()
        first.setSpacing(6)
        for text, widget, share in (
            ("Rate", self.rate, 5),
            ("SLO", self.percentile, 4),
            ("≤", self.limit, 5),
            ("", self.highest, 0),
        ):
            if text:
                first.addWidget(_labelled(text, widget))
            first.addWidget(widget, share)
        for widget in (self.rate, self.percentile, self.limit):
            widget.setMaximumWidth(WIDEST)
        first.addStretch(0)
        self.more = Fold("", opened=False)
        self.more.button.setProperty("muted", True)
        self.more.button.setToolTip("Slots, batches, placement, DRAM and seed: show or hide their knobs")
        self.more.head.addWidget(self.reset)
        grid = QGridLayout()
        grid.setHorizontalSpacing(6)
        grid.setVerticalSpacing(4)
        rows = (
            (("Slots", self.slots), ("Batch", self.batch), ("Linger", self.linger)),
            (("Place", self.placement), ("DRAM", self.contention), ("Seed", self.seed)),
        )
        for row, knobs in enumerate(rows):
            for column, (text, widget) in enumerate(knobs):
                grid.addWidget(_labelled(text, widget), row, 2 * column)
                grid.addWidget(widget, row, 2 * column + 1)
                grid.setColumnStretch(2 * column + 1, 1)
        self.more.inside.addLayout(grid)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(first)
        column.addWidget(self.more)

    def show_load(self, load: Load, machine_slots: int) -> None:
        """Show a load's values without setting them again; `machine_slots`: where the file leaves them open."""
        workload, streams = load.workload, load.workload.streams
        same_file = self.load is not None and self.load.workload is workload
        self.load = load
        rate = sum(stream.arrivals.rate_per_s for stream in streams)
        batch = {stream.batch for stream in streams}
        linger = {stream.linger_ns for stream in streams}
        own_slots = "no end" if workload.slots == 0 else f"{workload.slots or machine_slots:,}"
        _show(self.rate, load.rate_per_s or 0.0, f"{_four(rate)} /s")
        _show(self.slots, load.slots or 0, own_slots)
        _show(self.batch, load.batch or 0, f"{batch.pop()}" if len(batch) == 1 else "several")
        _show(
            self.linger,
            -1.0 if load.linger_s is None else load.linger_s * 1e3,
            f"{linger.pop() * 1e-6:g} ms" if len(linger) == 1 else "several",
        )
        own = None if load.judged is None else streams[load.judged].objective
        _show(
            self.limit,
            0.0 if load.objective_s is None else load.objective_s * 1e3,
            "none" if own is None else f"{own.response_s * 1e3:,g} ms",
        )
        _show(self.seed, -1 if load.seed is None else load.seed, f"{workload.seed}")
        if not same_file:
            share = load.plain.asked
            others = tuple(look.fmt_percentile(each) for each in PERCENTILES if each != share)
            _offer(self.percentile, look.fmt_percentile(share), others)
            _offer(self.placement, f"{workload.placement}", PLACEMENTS)
            _offer(self.contention, CONTENTION[workload.contention], CONTENTION)
        chosen = load.objective_percentile
        _choose(self.percentile, None if chosen is None else look.fmt_percentile(chosen))
        for widget in (self.percentile, self.limit):
            widget.setEnabled(load.judged is not None)
        _choose(self.placement, load.placement)
        _choose(self.contention, None if load.contention is None else CONTENTION[load.contention])
        closed = any(stream.loop is not None for stream in streams)
        self.rate.setEnabled(not closed)
        self.more.set_title(
            " · ".join(
                (
                    f"{self.slots.text()} slot{'s' * (self.slots.text() != '1')}",
                    f"batch {self.batch.text()}",
                    f"linger {self.linger.text()}",
                    self.placement.currentText(),
                    f"{self.contention.currentText()} DRAM",
                    f"seed {self.seed.text()}",
                )
            )
        )
        self.reset.setVisible(bool(load.changed))
        self.reset.setEnabled(bool(load.changed))
        self.reset.setToolTip(
            f"As the file says: take back what was set ({', '.join(_NAMES.get(name, name) for name in load.changed)})"
            if load.changed
            else "Nothing is set over what the file says"
        )

    def _read(self) -> Load | None:
        if self.load is None:
            return None
        contention = self.contention.currentData()
        return replace(
            self.load,
            rate_per_s=self.rate.value() or None,
            slots=self.slots.value() or None,
            batch=self.batch.value() or None,
            linger_s=None if self.linger.value() < 0.0 else self.linger.value() * 1e-3,
            placement=self.placement.currentData(),
            contention=None if contention is None else contention == CONTENTION[True],
            seed=None if self.seed.value() < 0 else self.seed.value(),
            objective_s=self._limit_s(),
            objective_percentile=_NAMED.get(self.percentile.currentData()),
        )

    def _limit_s(self) -> float | None:
        """As it is set; what the hand dragged is finer than what is shown, and stays as long as this is not turned."""
        assert self.load is not None
        set_s = self.load.objective_s
        if set_s is not None and abs(self.limit.value() - set_s * 1e3) < 0.005:
            return set_s
        return self.limit.value() * 1e-3 or None

    def _tell(self) -> None:
        self._settle.stop()
        load = self._read()
        if load is not None and load != self.load:
            self.turned.emit(load)

    def _reset(self) -> None:
        self._settle.stop()
        if self.load is not None:
            self.turned.emit(self.load.plain)


_NAMES = {
    "rate_per_s": "rate",
    "linger_s": "linger",
    "objective_s": "objective",
    "objective_percentile": "its percentile",
}


_NAMED = {look.fmt_percentile(share): share for share in PERCENTILES}


def _labelled(text: str, widget: QWidget) -> QLabel:
    label = muted(text)
    label.setBuddy(widget)
    return label


class _Whole(QSpinBox):
    """A wheel over a knob scrolls the panel; with the focus it steps."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        step_or_scroll(self, event, super().wheelEvent)


class _Decimal(QDoubleSpinBox):
    """The same for other numbers, without digits that say nothing: ``8.5``, ``5,000``."""

    def textFromValue(self, value: float) -> str:
        """As many digits after the point as there are, at most."""
        return f"{value:,.{self.decimals()}f}".rstrip("0").rstrip(".")

    def valueFromText(self, text: str) -> float:
        """Digits with or without groups; a comma is never the point."""
        return float(text.removesuffix(self.suffix()).replace(",", "") or 0.0)

    def validate(self, text: str, pos: int) -> object:
        """As Qt does, whatever the groups."""
        bare = text.removesuffix(self.suffix()).replace(",", "")
        try:
            fits = self.minimum() <= float(bare) <= self.maximum()
        except ValueError:
            partial = bare in ("", "-", ".", "-.")
            return (QValidator.State.Intermediate if partial else QValidator.State.Invalid), text, pos
        return (QValidator.State.Acceptable if fits else QValidator.State.Intermediate), text, pos

    def wheelEvent(self, event: QWheelEvent) -> None:
        step_or_scroll(self, event, super().wheelEvent)


def _whole(low: int, high: int, name: str) -> QSpinBox:
    box = _Whole()
    box.setRange(low, high)
    _prepare(box, name)
    return box


def _decimal(low: float, high: float, suffix: str, name: str) -> QDoubleSpinBox:
    box = _Decimal()
    box.setDecimals(2)
    box.setRange(low, high)
    box.setSuffix(suffix)
    if low == 0.0:
        box.setStepType(QDoubleSpinBox.StepType.AdaptiveDecimalStepType)
    _prepare(box, name)
    return box


def _prepare(box: QAbstractSpinBox, name: str) -> None:
    box.setAccessibleName(name)
    box.setAlignment(Qt.AlignmentFlag.AlignCenter)
    box.setMinimumWidth(60)
    box.setSizePolicy(
        QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed
    )  # not as wide as its largest number
    box.setKeyboardTracking(False)
    box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)


def _four(value: float) -> str:
    """Four significant digits at least, and all before the point: ``8.5``, ``0.1234``, ``12,345``."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


def _show(box: QSpinBox | QDoubleSpinBox, value: float, own: str) -> None:
    box.setSpecialValueText(own)
    if not box.hasFocus() and box.value() != value:
        _quietly(box, lambda: box.setValue(value))  # type: ignore[arg-type]


def _offer(box: QComboBox, own: str, names: tuple[str, ...]) -> None:
    box.clear()
    box.addItem(own, None)
    for name in names:
        if name != own:
            box.addItem(name, name)


def _choose(box: QComboBox, name: str | None) -> None:
    _quietly(box, lambda: box.setCurrentIndex(max(0, box.findData(name)) if name is not None else 0))


def _quietly(box: QWidget, change: Callable[[], object]) -> None:
    box.blockSignals(True)
    change()
    box.blockSignals(False)
