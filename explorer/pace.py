"""Nothing in the background holds the window up: the interpreter's lock, and when cycles are looked for.

Knows Python's switch interval and its cyclic collector, and when the document's worker is at rest. Must not
know what is computed. A graph of 5,000 operators and its results are half a million objects without a cycle
among them. The collector would walk over all of them after every few edits, in the middle of a turn of the GUI
thread, for longer than anything that the turn itself does. So it only runs at rest, over what is younger than
the last rest, and what has outlived one is not looked at again.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

if TYPE_CHECKING:
    from .document import Document

SWITCH_S = 0.0002
"""The worker's Python and the window share one lock; at the default 5 ms each of the many calls into Qt that give
the lock away would wait that long for it. Shorter than this, nothing more was gained."""
REST_MS = 1_000


class Pace(QObject):
    """Holds while a window is open, from when it is made until `end`."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._collects = gc.isenabled()
        gc.disable()
        gc.freeze()
        self._large = True
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST_MS)
        self._rest.timeout.connect(self._collect)
        document.graph_changed.connect(self._graph_changed)
        document.cost_changed.connect(self._computed)
        document.runner.busy_changed.connect(self._busy_changed)

    def _graph_changed(self) -> None:
        gc.freeze()
        self._large = True

    def _computed(self, result: object) -> None:
        if result is not None and self._large:  # the first result of a graph is as large as the graph
            self._large = False
            gc.freeze()

    def _busy_changed(self, title: str) -> None:
        if title:
            self._rest.stop()
        else:
            self._rest.start()

    def _collect(self) -> None:
        gc.collect()
        gc.freeze()

    def end(self) -> None:
        """Everything as it was."""
        self._rest.stop()
        sys.setswitchinterval(self._interval_s)
        gc.unfreeze()
        if self._collects:
            gc.enable()
