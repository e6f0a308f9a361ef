"""Why: one number of the plan, of the selected group or of the tail, with its formula, inputs and shares.

Knows the model's cards; a card is made when it is looked at.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QLabel, QListWidget, QListWidgetItem, QScrollArea, QSizePolicy

from model.cost.result import CostResult
from model.cost.why import numbers
from model.cost.why import why as cost_why
from model.serving.why import numbers as serving_numbers
from model.serving.why import why as serving_why
from model.why import Card

from .. import why
from ..document import Document
from ..look import GRID
from ..names import group_name
from .panel import Panel

NAME = int(Qt.ItemDataRole.UserRole)
_OF_GROUP = "G1."
SCOPES = {
    "totals": "plan",
    "serving": "tail",
    "serving.ttft": "first token",
    "serving.tpot": "output token",
    "serving.thermal": "heat",
}


def words(number: str) -> str:
    """``G3 · footprint (bytes)``: a number's name for a person."""
    scope, _, name = number.rpartition(".")
    unit = {"s": " (seconds)", "bytes": " (bytes)", "j": " (joules)", "rps": " (requests/s)", "c": " (°C)"}
    stem, _, last = name.rpartition("_")
    plain = stem.replace("_", " ") + unit[last] if stem and last in unit else name.replace("_", " ")
    if stem.endswith("_per"):
        plain = f"{stem.replace('_', ' ')} second"
    if name == "shared_dram_s":
        plain = "shared DRAM (seconds)"
    if name == "rate_per_s":
        plain = "offered rate (requests/s)"
    if name == "throughput_rps":
        plain = "served rate (requests/s)"
    if name == "U_c":
        plain = "U_c, load of the shared bus"
    return f"{SCOPES.get(scope, scope)} · {plain}"


class Explanation(Panel):
    """A list of numbers at the left, the card of one at the right."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "why", "Why", "formula, inputs and shares of one number")
        self.list = QListWidget()
        self.list.setAccessibleName("Numbers")
        self.list.setFixedWidth(60 * GRID)
        self.card = QLabel()
        self.card.setWordWrap(True)
        self.card.setTextFormat(Qt.TextFormat.RichText)
        self.card.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.card.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.card.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(self.card)
        scroll.setStyleSheet("QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; }")
        row = QHBoxLayout()
        row.setSpacing(3 * GRID)
        row.addWidget(self.list)
        row.addWidget(scroll, 1)
        self.body.addLayout(row)
        self._chosen = "totals.latency_s"
        self._names: tuple[str, ...] = ()
        self.list.currentItemChanged.connect(self._choose)
        self.follow("cost", document.cost_changed, document.serving_changed, document.selection_changed)

    def redraw(self) -> None:
        """The numbers that there are now, and the card of the chosen one."""
        result = self.document.cost
        if self.explain_absence("numbers") or result is None:
            return
        self.show_body()
        names = self._numbers(result)
        if names != self._names:
            self._names = names
            self._fill()
        self._show()

    def _numbers(self, result: CostResult) -> tuple[str, ...]:
        group = self._group(result)
        every = numbers(result)
        plan = tuple(name for name in every if not name.startswith(_OF_GROUP))
        own: tuple[str, ...] = ()
        if group is not None:
            scope = f"{group_name(group)}."
            own = tuple(scope + name.removeprefix(_OF_GROUP) for name in every if name.startswith(_OF_GROUP))
        served = self.document.serving
        return own + plan + (serving_numbers(served) if served is not None else ())

    def _group(self, result: CostResult) -> int | None:
        """The selected operator's group in the plan that the result is of."""
        chosen = self.document.selection
        return result.request.plan.group_of[chosen[0]] if chosen else None

    def _fill(self) -> None:
        """The list anew; the number stays chosen under the group that is selected now."""
        same = self._chosen.rpartition(".")[2]
        if self._chosen not in self._names:
            self._chosen = next((n for n in self._names if n.rpartition(".")[2] == same), "totals.latency_s")
        self.list.blockSignals(True)
        self.list.clear()
        for name in self._names:
            item = QListWidgetItem(words(name))
            item.setData(NAME, name)
            self.list.addItem(item)
            if name == self._chosen:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)

    def _choose(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self._chosen = item.data(NAME)
            QTimer.singleShot(0, self, self._show)

    def _show(self) -> None:
        result = self.document.cost
        if result is not None:
            self.card.setText(why.card_html(self._card(result)))

    def _card(self, result: CostResult) -> Card:
        served = self.document.serving
        if self._chosen.startswith("serving.") and served is not None:
            return serving_why(served, self._chosen)
        return cost_why(result, self._chosen)
