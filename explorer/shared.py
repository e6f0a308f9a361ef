"""What slots share, over time, of the replay that is shown: asked for by the panels that draw it, one question for all.

Knows the document and the engine's question. A stretch of time is asked for anew when it is zoomed, after a short rest;
until the answer is there the panels draw what they have. Of a first estimate nothing is asked: the exact one follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from model.serving.result import ServingResult

from .document import Document
from .runner import Lane

if TYPE_CHECKING:  # its kernels are not loaded on the GUI thread
    from model.serving.over_time import OverTime

COLUMNS = 720
REST_MS = 120


class Shared(QObject):
    """See the module's docstring."""

    changed = Signal()
    """Emitted when `seen` is another one."""
    window_changed = Signal(float, float)
    """Emitted with the stretch of time, in seconds, that panels show."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self._document = document
        self.seen: OverTime | None = None
        self.of: ServingResult | None = None
        """The result that `seen` is of."""
        self.pressure = 0.0, 0.0
        """U_c and X_c of the plan that was served (MINICASE 3.8)."""
        self._asked: tuple[ServingResult, int, int] | None = None
        self._window: tuple[int, int] | None = None
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST_MS)
        self._rest.timeout.connect(self._ask)
        document.graph_changed.connect(self._forget)
        document.serving_changed.connect(self._served)

    def _served(self, result: ServingResult | None) -> None:
        if result is None:
            self._forget()

    def _forget(self) -> None:
        self.seen = self.of = self._asked = self._window = None
        self._rest.stop()

    @property
    def is_due(self) -> bool:
        """Whether it is about to ask."""
        return self._rest.isActive()

    def show(self, low_s: float, high_s: float) -> None:
        """Panels show this stretch of time."""
        window = round(low_s * 1e9), max(round(low_s * 1e9) + 1, round(high_s * 1e9))
        if window != self._window:
            self._window = window
            self.window_changed.emit(low_s, high_s)
        result = self._document.serving
        if result is not None and self._asked != (result, *window):
            self._rest.start()

    def _ask(self) -> None:
        document = self._document
        result, served, window = document.serving, document.served, self._window
        if result is None or served is None or window is None or result.first_estimate or result.unstable:
            return
        self._asked = (result, *window)

        def done(answer: tuple[OverTime, tuple[float, float]]) -> None:
            if document.serving is result:
                (self.seen, self.pressure), self.of = answer, result
                self.changed.emit()

        slices = document.engine.over_time(served, *window, COLUMNS)
        document.ask_in_slices(Lane.SHARED, "Looking at what slots share", slices, done)
