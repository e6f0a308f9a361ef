"""What limits the tail: its causes, largest first, each with what it is short of and what to try; then the drivers.

Knows `model.serving.limits` and the look. All figures are the model's.
"""

from __future__ import annotations

from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QLabel

from model.serving.limits import MEANINGS, Limiter

from .. import look, why

if TYPE_CHECKING:  # its kernels are not loaded on the GUI thread
    from model.serving.drivers import Blame

LEAST_SHARE = 0.05
"""A cause of less is no limit; the largest always is."""
MOST = 4
DRIVER_NAMES = {"static_partition": "static partition"}
SHAPLEY_TIP = (
    "Shapley values: the mean effect of each driver over all orders of switching them on, of exact replays of the same "
    "requests. With what is left without any of them they sum to the percentile. A driver is all that changes with it: "
    "contention is DRAM being shared at all, queueing is slots being few."
)


class Limits(QLabel):
    """The ranked list as one text, so that it wraps, can be selected and is read out."""

    def __init__(self) -> None:
        super().__init__()
        self.setWordWrap(True)
        self.setTextFormat(Qt.TextFormat.RichText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setAccessibleName("What limits the tail")
        self.limits: tuple[Limiter, ...] = ()

    def show_limits(self, limits: tuple[Limiter, ...]) -> None:
        """Those that matter of all causes."""
        self.limits = shown_limits(limits)
        self.setAccessibleDescription("\n".join(limit_words(limiter) for limiter in self.limits))
        self.setToolTip(
            "\n".join(
                f"{_title(each.name)}: {MEANINGS[each.name]}" for each in limits if each.name in MEANINGS
            )
        )
        self._write()

    def changeEvent(self, event: QEvent) -> None:
        """Another theme has another grey."""
        super().changeEvent(event)
        if event.type() is QEvent.Type.PaletteChange:
            self._write()

    def _write(self) -> None:
        grey = look.palette().muted.name()
        rows: list[str] = []
        for place, each in enumerate(self.limits, 1):
            rows.append(
                f"<tr><td><b>{place}&nbsp; {escape(_title(each.name))}</b></td>"
                f"<td align='right'>{_amount(each)}</td></tr>"
                f"<tr><td colspan='2' style='color: {grey}; font-size: {look.SMALL}px'>"
                f"{escape(_beside(each))}</td></tr>"
            )
        self.setText(f"<table width='100%' cellspacing='0' cellpadding='0'>{''.join(rows)}</table>")


def shown_limits(limits: tuple[Limiter, ...]) -> tuple[Limiter, ...]:
    """The largest and those of `LEAST_SHARE` or more, `MOST` at most; what lies within one of them stays with it."""
    kept = [
        each
        for place, each in enumerate(limits)
        if place == 0 or each.share is None or each.share >= LEAST_SHARE
    ]
    return tuple(kept[:MOST])


def limit_words(limiter: Limiter) -> str:
    """A cause in one line, for a screen reader."""
    amount = "" if limiter.ns is None else f" {look.fmt_ns(limiter.ns)}, {look.fmt_percent(limiter.share)}."
    return f"{_title(limiter.name)}:{amount} {_beside(limiter)}"


def _title(name: str) -> str:
    return name[0].upper() + name[1:]


def _amount(limiter: Limiter) -> str:
    if limiter.ns is None:
        return "within the queue"
    return f"<b>{look.fmt_ns(limiter.ns)}</b> · {look.fmt_percent(limiter.share)}"


def _beside(limiter: Limiter) -> str:
    load = ", ".join(f"{why.figure(each.value, each.unit)} {each.name}" for each in limiter.load)
    return f"{load}. Try: {limiter.lever}" if load else f"Try: {limiter.lever}"


def driver_sentence(blame: Blame | None, percentile: str) -> str:
    """``p95 = 184 ms alone + 2.45 s contention − 705 ms queueing``, and what a minus means; empty where not known."""
    if blame is None:
        return ""
    for place, (name, values) in enumerate(blame.values_ns):
        if name == percentile:
            ordered = sorted(values, key=lambda pair: -abs(pair[1]))
            terms = " ".join(f"{_signed(ns)} {DRIVER_NAMES.get(driver, driver)}" for driver, ns in ordered)
            left = look.fmt_ns(blame.grid[0].percentiles_ns[place])
            flagged = any(coalition.overloaded for coalition in blame.grid)
            caveat = "; overloaded in some combinations" if flagged else ""
            below = [driver for driver, ns in ordered if ns < 0]
            relief = f" {_relief(below, [driver for driver, _ in ordered])}" if below else ""
            return f"{name} by driver (Shapley{caveat}) = {left} without any {terms}.{relief}"
    return ""


def _signed(ns: Fraction) -> str:
    """A sign and its time, which no line break parts."""
    term = f"{look.MINUS if ns < 0 else '+'} {look.fmt_seconds(abs(float(ns)) * 1e-9)}"
    return term.replace(" ", "\u00a0")


def _relief(below: list[str], drivers: list[str]) -> str:
    """What a driver with a minus does: it spares the others more than it adds."""
    if below == ["queueing"] and "contention" in drivers:
        return "The minus: who waits for a slot asks for no DRAM, which spares the others more than the wait costs."
    names = " and ".join(DRIVER_NAMES.get(driver, driver) for driver in below)
    return f"The minus: {names} spares the others more than it costs itself."
