"""The bar over a selection: Fuse, Split, Tile.

Knows the document's selection and the edits of the plan. Must not know the scene: whoever owns the bar places
it, and shows what it hints at or what was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QObject, QRectF, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton, QWidget

from model.errors import PlanError
from model.graph.graph import OperatorGraph
from model.plan.plan import Plan

from ..names import operator_list

if TYPE_CHECKING:
    from ..document import Document


EDGE, GAP = 8.0, 12.0
"""Pixels to the edge of the viewport, and to what is selected."""


def commit_edit(
    document: Document, make: Callable[[OperatorGraph, Plan], Plan], text: str
) -> PlanError | None:
    """Commit what `make` returns: one undo entry. Where it is refused, say why, offer the fix, return it."""
    graph, plan = document.graph, document.plan
    if graph is None or plan is None:
        return None
    document.withdraw_offer()
    try:
        candidate = make(graph, plan)
    except PlanError as refusal:
        fix: Plan | None = getattr(refusal, "fix", None)
        if fix is not None:
            document.set_offer(refusal.sentence(), fix, text)
        document.said.emit(refusal.sentence(), "warning")
        return refusal
    document.commit(candidate, text)
    return None


class SelectionBar(QFrame):
    """Floats over the viewport beside what is selected."""

    refused = Signal(object)
    """Emitted with the `PlanError` of an edit that was not done."""
    tile_clicked = Signal()
    """Emitted when the tile editor is wanted for the selection."""
    hinted = Signal(object)
    """Emitted with operators that fusing would need as well, while the pointer is on Fuse; then with none."""

    def __init__(self, document: Document, parent: QWidget) -> None:
        super().__init__(parent)
        self._document = document
        self._needed: tuple[int, ...] = ()
        self._described: tuple[tuple[int, ...], Plan | None] = ((), None)
        self.setProperty("card", True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName("Selection")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 4, 4, 4)
        row.setSpacing(4)
        self._count = QLabel()
        self._count.setProperty("muted", True)
        row.addWidget(self._count)
        self.fuse_button = self._button("Fuse", "The selected operators become one group (F)", self.fuse)
        self.split_button = self._button("Split", "The selected operators leave their groups (U)", self.split)
        self.tile_button = self._button("Tile", "Tile shapes of the group (T)", self.tile_clicked.emit)
        for button in (self.fuse_button, self.split_button, self.tile_button):
            row.addWidget(button)
        self.fuse_button.installEventFilter(self)
        self.hide()

    def _button(self, text: str, tip: str, clicked: Callable[[], object]) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip)
        button.setAccessibleName(text)
        button.setAutoRaise(True)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.clicked.connect(lambda *_: clicked())
        return button

    def describe(self) -> None:
        """Say how many operators are selected, and how many more fusing them would need."""
        document = self._document
        selection, plan, graph = document.selection, document.plan, document.graph
        if (selection, plan) == self._described:
            return
        self._described = selection, plan
        self._needed = ()
        if graph is not None and plan is not None and document.ready and len(selection) > 1:
            from model.plan import legality  # Numba: not before the window is up

            self._needed = legality.completing_set(graph, plan, selection)
        needed = len(self._needed)
        self._count.setText(f"{len(selection):,} selected")
        between = f"Fuse {len(selection):,} and {needed:,} needed in between"
        self.fuse_button.setText(between if needed else "Fuse")
        self.fuse_button.setAccessibleName(self.fuse_button.text())
        self.adjustSize()

    def fuse(self) -> None:
        """The groups of the selected operators, and what is needed in between, become one."""
        from model.plan import edits

        chosen = (*self._document.selection, *self._needed)
        self._edit(lambda graph, plan: edits.fuse(graph, plan, chosen), "Fuse")

    def split(self) -> None:
        """The selected operators leave their groups."""
        from model.plan import edits

        chosen = self._document.selection
        self._edit(lambda graph, plan: edits.split(graph, plan, chosen), "Split off")

    def _edit(self, make: Callable[[OperatorGraph, Plan], Plan], word: str) -> None:
        document = self._document
        if document.graph is not None and document.selection:
            text = f"{word} {operator_list(document.graph, document.selection, 3)}"
            if (refusal := commit_edit(document, make, text)) is not None:
                self.refused.emit(refusal)

    def place(self, around: QRectF, near: NDArray[np.float64]) -> None:
        """Close to a rectangle of the viewport, where it covers least; inside the viewport in any case.

        Right above or below, or beside it, where that is free; else the nearest of the freest places anywhere.

        Parameters
        ----------
        near : float64[n, 4], left, top, right, bottom in pixels of what should stay free.
        """
        parent = self.parentWidget()
        assert parent is not None
        wide, high = float(self.width()), float(self.height())
        last_x, last_y = max(parent.width() - wide - EDGE, EDGE), max(parent.height() - high - EDGE, EDGE)
        x = min(max(around.center().x() - wide / 2, EDGE), last_x)
        y = min(max(around.center().y() - high / 2, EDGE), last_y)
        above, below = around.top() - high - GAP, around.bottom() + GAP
        left, right = around.left() - wide - GAP, around.right() + GAP
        wanted = [(x, above), (x, below), (right, y), (left, y)]
        wanted = [(a, b) for a, b in wanted if EDGE <= a <= last_x and EDGE <= b <= last_y]
        anywhere = np.stack(
            np.meshgrid(
                np.append(np.arange(EDGE, last_x, wide / 2), last_x),
                np.append(np.arange(EDGE, last_y, high), last_y),
            ),
            axis=-1,
        ).reshape(-1, 2)
        away = np.abs(anywhere - (x, y)).sum(axis=1)
        places = np.concatenate([np.array(wanted).reshape(-1, 2), anywhere[np.argsort(away, kind="stable")]])
        own = [[around.left(), around.top(), around.right(), around.bottom()]]
        low, high_ends = np.split(np.concatenate([near, own]), 2, axis=1)
        shared = np.minimum(places[:, None] + (wide, high), high_ends) - np.maximum(places[:, None], low)
        covered = np.maximum(shared, 0.0).prod(axis=2).sum(axis=1)
        best = places[int(np.argmin(covered))]  # the first of equals
        self.move(round(best[0]), round(best[1]))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tell when the pointer is on Fuse."""
        if watched is self.fuse_button and event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.hinted.emit(self._needed if event.type() == QEvent.Type.Enter else ())
        return super().eventFilter(watched, event)
