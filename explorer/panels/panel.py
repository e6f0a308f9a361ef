"""What every panel is: a title, one grey line that says what is measured, and a body or a message.

Knows the document's signals. A panel draws from a result and the request inside it, never from the current
plan; while it is hidden it only remembers that it is behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, SignalInstance
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from ..document import Document
from ..look import GRID
from ..runner import Lane

_PATIENCE_S = 0.1
_LOOK_AGAIN_MS = 12


class Panel(QWidget):
    """Subclasses fill `body` and implement `redraw`."""

    _turn_is_taken = False
    """Whether a panel was drawn anew in this turn of the event loop: the others wait for the next ones, because all of
    them, and their paints, would add up to a turn that is felt."""
    line_changed = Signal(str)
    """Emitted when the grey line changed; the dock's title bar shows it."""

    def __init__(self, document: Document, name: str, title: str, line: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(title)
        self.document = document
        self.title = title
        self.line = self._plain_line = line
        self.caveats: tuple[
            str, ...
        ] = ()  # sentences about all that is shown; the title bar shows a sign for them
        self._failed = ""  # why there is no result, until there may be one
        self._sentences = 0  # how often a sentence took the body's place
        self._behind = True
        self._gives_way_since: float | None = None
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._take_turn)
        self._message = QLabel()
        self._message.setWordWrap(True)
        self._message.setProperty("muted", True)
        self._message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._message.setMargin(4 * GRID)
        self._message.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # long paths
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.content = QWidget()
        self.body = QVBoxLayout(self.content)
        self.body.setContentsMargins(3 * GRID, 0, 3 * GRID, 2 * GRID)
        self.body.setSpacing(2 * GRID)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self._pages = QStackedLayout()
        column.addLayout(self._pages, 1)
        self.foot = QVBoxLayout()  # stays beside a sentence too: the controls that may lead out of it
        column.addLayout(self.foot)
        self._pages.addWidget(self._message)
        self._pages.addWidget(self.content)
        self.say("Nothing to show yet.")

    def follow(self, kind: str, *signals: SignalInstance) -> None:
        """Draw anew on `signals`; show the sentence when the result of `kind`, or the cost, could not be computed."""
        document = self.document
        for signal in (document.graph_changed, *signals):
            signal.connect(self.invalidate)
        document.ready_changed.connect(self._waited)

        def failed(what: str, sentence: str) -> None:
            if what in (kind, "cost"):
                self._failed = sentence if what == "cost" else ""
                self._soon.stop()
                self.say(sentence, "error")

        document.failed.connect(failed)
        document.cost_changed.connect(self._forget_failure)  # a result, or another graph or machine

    def _forget_failure(self, *_: object) -> None:
        self._failed = ""

    def _waited(self) -> None:
        if self.document.cost is None:
            self.invalidate()

    def set_line(self, line: str) -> None:
        """Change the grey line."""
        if line != self.line:
            self.line = line
            self.line_changed.emit(line)

    def set_caveats(self, sentences: tuple[str, ...]) -> None:
        """Change what the sign before the grey line stands for."""
        if sentences != self.caveats:
            self.caveats = sentences
            self.line_changed.emit(self.line)

    def say(self, sentence: str, level: str = "note") -> None:
        """Show a sentence in place of the body: what is missing and what to try. No figure stays in the line."""
        self._sentences += 1
        self.set_line(self._plain_line)
        sign = {"error": "✕  ", "warning": "⚠  "}.get(level, "")
        self._message.setText(sign + sentence)
        state = {"error": "bad", "warning": "warn"}.get(level, "")
        if self._message.property("state") != state:
            self._message.setProperty("state", state)
            self._message.style().polish(self._message)
        self._pages.setCurrentWidget(self._message)

    def ask(self, lane: Lane, title: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """As `Document.ask`, but once a sentence has taken the body's place the answer is not heard: it is older."""
        said = self._sentences
        self.document.ask(lane, title, work, lambda answer: done(answer) if said == self._sentences else None)

    def show_body(self) -> None:
        """Show the body."""
        self._pages.setCurrentWidget(self.content)

    @property
    def message(self) -> str:
        """The sentence shown in place of the body; empty while the body is shown."""
        return self._message.text() if self._pages.currentWidget() is self._message else ""

    def invalidate(self, *_: object) -> None:
        """Draw anew, in a turn of the event loop of its own, or when next shown."""
        self._behind = True
        # Behind another tab Qt counts a panel as visible, but no part of it is.
        if self.isVisible() and not self.visibleRegion().isEmpty():
            self._soon.start(0)

    @property
    def is_due(self) -> bool:
        """Whether it is drawn anew in one of the next turns."""
        return self._soon.isActive()

    def _take_turn(self) -> None:
        if self._gives_way():
            self._soon.start(_LOOK_AGAIN_MS)
            return
        if Panel._turn_is_taken:
            self._soon.start(0)
            return
        Panel._turn_is_taken = True
        QTimer.singleShot(0, _end_turn)
        self.catch_up()

    def _gives_way(self) -> bool:
        """Whether the worker computes what the hand waits for: drawing panels would take the interpreter's lock from
        it. No panel waits for longer than `_PATIENCE_S`.
        """
        if not self.document.runner.is_on(Lane.COST, Lane.SERVING):
            return False
        now = time.monotonic()
        self._gives_way_since = self._gives_way_since or now
        return now < self._gives_way_since + _PATIENCE_S

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what changed while hidden."""
        super().showEvent(event)
        self.catch_up()

    def catch_up(self) -> None:
        """Draw anew if something changed since the last time and anyone can see it."""
        self._soon.stop()
        self._gives_way_since = None
        if self._behind and self.isVisible():
            self._behind = False
            self.redraw()

    def redraw(self) -> None:
        """Bring the body up to date."""
        raise NotImplementedError

    def explain_absence(self, what: str) -> bool:
        """Say why there is no cost result, or none of the newest plan; False where the body can be drawn."""
        document = self.document
        if document.graph is None:
            self.say("No model is open. Open one with Ctrl+O, drop a file here, or take a sample.")
        elif document.accelerator is None:
            self.say("No machine is chosen. Choose one in the header.")
        elif not document.graph.operators:
            self.say(
                "This model has no operators: there is nothing to measure. Open another one with Ctrl+O."
            )
        elif self._failed:  # what is there is of a plan before
            self.say(self._failed, "error")
        elif document.cost is None:
            self.say(f"{document.preparing}…" if document.preparing else f"Computing {what}…")
        else:
            return False
        return True


def _end_turn() -> None:
    Panel._turn_is_taken = False
