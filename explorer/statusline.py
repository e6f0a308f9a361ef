"""The status bar: the last sentence with its sign, what is selected, what runs, Cancel after 300 ms.

Knows the document's signals. Sentences stay until the next one: a reason that vanishes is no reason. What a
warning is about is over with the next edit, undo or machine, and the warning with it.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStatusBar

from .controls import ElidedLabel
from .document import Document
from .look import GRID
from .names import group_name

PATIENCE_MS = 300
SIGNS = {"note": "", "warning": "⚠  ", "error": "✕  "}
STATES = {"note": "", "warning": "warn", "error": "bad"}


class StatusLine(QStatusBar):
    """The bar at the foot of the window."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.setSizeGripEnabled(False)
        self.sentence = ElidedLabel()
        self.sentence.setProperty("muted", False)
        self.sentence.setAccessibleName("Message")
        self.sentence.setIndent(2 * GRID)
        self.setContentsMargins(0, 0, 2 * GRID, 0)
        self.sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.selected = QLabel()
        self.selected.setProperty("muted", True)
        self.work = QLabel()
        self.work.setProperty("muted", True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(96)
        self.cancel = QPushButton("Cancel")
        self.cancel.setProperty("quiet", True)
        self.cancel.setToolTip("Stop what runs in the background (Ctrl+.)")
        self.addWidget(self.sentence, 1)
        for widget in (self.selected, self.work, self.bar, self.cancel):
            self.addPermanentWidget(widget)
        self._late = QTimer(self)
        self._late.setSingleShot(True)
        self._late.setInterval(PATIENCE_MS)
        self._late.timeout.connect(self._show_work)
        self._busy = ""
        self._machine = document.accelerator
        document.undo_stack.indexChanged.connect(self._move_on)
        document.machine_changed.connect(self._machine_changed)
        document.said.connect(self.say)
        document.busy_changed.connect(self._busy_changed)
        document.ready_changed.connect(self._show_work)
        document.kernels.progress.connect(self._compiled)
        document.selection_changed.connect(self._count)
        document.plan_changed.connect(self._count)
        self._show_work()
        self._count()

    def say(self, sentence: str, level: str = "note") -> None:
        """Show a sentence; a screen reader is told as well."""
        self.sentence.setText(SIGNS.get(level, "") + sentence)
        self.sentence.setToolTip(sentence)
        self.sentence.setAccessibleDescription(sentence)
        self.sentence.setProperty("state", STATES.get(level, ""))
        self.sentence.style().polish(self.sentence)
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self.sentence, sentence))

    def _move_on(self, *_: object) -> None:
        """The plan or the machine is another one: a warning about the last one goes."""
        if self.sentence.property("state"):
            self.say("")

    def _machine_changed(self) -> None:
        before, self._machine = self._machine, self.document.accelerator
        if before is not None and before is not self._machine:
            self._move_on()

    def _busy_changed(self, title: str) -> None:
        """Show what runs once it takes longer than a hand waits."""
        self._busy = title
        if not title:
            self._late.stop()
            self._show_work()
        elif self.work.isVisible():
            self._show_work()
        elif not self._late.isActive():
            self._late.start()

    def _compiled(self, done: int, total: int, _: str) -> None:
        self.bar.setRange(0, max(1, total))
        self.bar.setValue(done)

    def _show_work(self) -> None:
        preparing = self.document.preparing
        # Compiling is slow by nature and cannot be cancelled; a running job can.
        text = self._busy if self._busy and not preparing else preparing
        self.work.setText(f"{text} …" if text else "")
        self.work.setVisible(bool(text))
        self.bar.setVisible(bool(text))
        self.cancel.setVisible(bool(self._busy) and not preparing)
        if not preparing:
            self.bar.setRange(0, 0)  # indeterminate

    def _count(self) -> None:
        chosen, plan = self.document.selection, self.document.shown_plan
        if not chosen or plan is None:
            self.selected.setText("")
            return
        groups = sorted({plan.group_of[o] for o in chosen})
        where = group_name(groups[0]) if len(groups) == 1 else f"{len(groups):,} groups"
        self.selected.setText(f"{len(chosen):,} operator{'s' if len(chosen) != 1 else ''} in {where}")
