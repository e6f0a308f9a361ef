"""Which time the distribution is of, where requests are answered token by token: the response, the time to the first
token, or the time of each further one; each with its percentiles. And the tokens' rate and cache.

Knows `TokenResult`. All figures are the model's; each says why it is what it is.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QGridLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QToolTip,
    QWidget,
)

from model.serving.result import ServingResult, TokenResult
from model.serving.why import why as serving_why

from .. import look, why
from ..controls import muted

SHOWN = ("p50", "p95", "p99")
ROWS = (("response", "Response"), ("ttft", "First token"), ("tpot", "Output token"))
TIPS = {
    "response": "End to end: from arrival to the last token",
    "ttft": "TTFT: from arrival to the first token",
    "tpot": "TPOT: time per output token after the first, of each request",
}


class _Figure(QLabel):
    """A number whose tip is made when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.why: Callable[[], str] = str

    def event(self, event: QEvent) -> bool:
        """The card of the number."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), self.why(), self)
            return True
        return super().event(event)


class TokenTimes(QWidget):
    """Three rows of percentiles and their means; the chosen row is what the distribution shows."""

    chosen = Signal(str)
    """Emitted with "response", "ttft" or "tpot" when the hand chooses another."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Times of tokens")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(0)
        self.figures: dict[str, _Figure] = {}
        self.buttons: dict[str, QPushButton] = {}
        self._group = QButtonGroup(self)
        shown = muted("shown above")
        shown.setToolTip("Choose which of the times the distribution is of")
        grid.addWidget(shown, 0, 0)
        for column, name in enumerate((*SHOWN, "mean"), 1):
            head = muted(name)
            head.setAlignment(Qt.AlignmentFlag.AlignRight)
            grid.addWidget(head, 0, column)
            grid.setColumnStretch(column, 1)
        for row, (kind, words) in enumerate(ROWS, 1):
            button = self.buttons[kind] = QPushButton()
            button.setText(words)
            button.setCheckable(True)
            button.setProperty("row", True)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            button.setToolTip(f"{TIPS[kind]}. Press to draw its distribution")
            button.clicked.connect(lambda _=False, kind=kind: self.chosen.emit(kind))
            self._group.addButton(button)
            grid.addWidget(button, row, 0)
            for column, name in enumerate((*SHOWN, "mean"), 1):
                figure = self.figures[f"{kind}.{name}_s"] = _Figure()
                figure.setAccessibleName(f"{words} {name}")
                grid.addWidget(figure, row, column)
        self.buttons["response"].setChecked(True)

    @property
    def measure(self) -> str:
        """What is chosen."""
        return next(kind for kind, button in self.buttons.items() if button.isChecked())

    def show_tokens(self, result: ServingResult, tokens: TokenResult) -> None:
        """The times of a result."""
        count = max(1, len(result.requests.arrival_ns))
        response = (result.p50_ns, result.p95_ns, result.p99_ns)
        for kind, values, mean_s in (
            ("response", response, result.sum_response_ns / count * 1e-9),
            ("ttft", tokens.ttft_ns, tokens.ttft_mean_s),
            ("tpot", tokens.tpot_ns, tokens.tpot_mean_s),
        ):
            self.buttons[kind].setEnabled(bool(values))
            texts = [look.fmt_ns(ns) for ns in values[: len(SHOWN)]] or [look.NO_NUMBER] * len(SHOWN)
            texts.append(look.fmt_seconds(mean_s) if values else look.NO_NUMBER)
            for name, text in zip((*SHOWN, "mean"), texts, strict=True):
                number = f"{kind}.{name}_s"
                self.figures[number].setText(text)
                self.figures[number].why = (
                    _card(result, number.removeprefix("response."))
                    if values
                    else lambda: "No answer has a second token"
                )
        if not tokens.tpot_ns and self.measure == "tpot":
            self.buttons["response"].setChecked(True)


def _card(result: ServingResult, number: str) -> Callable[[], str]:
    return lambda: why.card_html(serving_why(result, f"serving.{number}"))


def token_facts(tokens: TokenResult, capacity_bytes: int | None) -> str:
    """``133 tokens/s · KV cache at most 7.5 GiB of 7.5 GiB, full when the turn of 12.0 % of the requests came``."""
    facts = [f"{look.fmt_quantity(tokens.tokens_per_s, 'tokens/s')}"]
    if tokens.kv_peak_bytes:
        room = f" of {look.fmt_bytes(capacity_bytes)}" if capacity_bytes is not None else ""
        full = (
            f", full when the turn of {look.fmt_percent(tokens.kv_full_share)} of the requests came"
            if tokens.kv_full_share
            else ""
        )
        facts.append(f"KV cache at most {look.fmt_bytes(tokens.kv_peak_bytes)}{room}{full}")
    return " · ".join(facts)
