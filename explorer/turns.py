"""How long a click would have to wait, and what the GUI thread was doing when that was too long.

Event dispatchers differ in when they say that they block (GLib dispatches inside its wait), so the turn is
not read from their signals. A watching thread knocks every 10 ms by a queued signal and sees how long the
answer takes: that delay is the rest of the turn that was running. Once it passes the limit, the watcher notes
the GUI thread's stack, because afterwards it is too late to ask.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

from PySide6.QtCore import QObject, Qt, Signal, Slot

LIMIT_S = 0.050
PERIOD_S = 0.010
_log = logging.getLogger("tilewright.turns")


class TurnClock(QObject):
    """Measures the GUI thread's delays between `start` and `stop`; lives on the GUI thread.

    Attributes
    ----------
    delays_s : every answer's delay in seconds, in order; only kept where ``keep`` is True.
    slow : (seconds, stack as text) of delays beyond the limit, the last hundred.
    """

    _knock = Signal()

    def __init__(self, parent: QObject | None = None, *, keep: bool = False, limit_s: float = LIMIT_S):
        super().__init__(parent)
        self.delays_s: list[float] = []
        self.slow: list[tuple[float, str]] = []
        self._keep = keep
        self._limit_s = limit_s
        self._asked_at = 0.0
        self._stack = ""
        self._answered = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._gui_thread = threading.get_ident()
        self._knock.connect(self._answer, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Begin to measure."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="turn-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End measuring and the watching thread."""
        if self._thread is not None:
            self._stop.set()
            self._answered.set()
            self._thread.join()
            self._thread = None

    @Slot()
    def _answer(self) -> None:
        delay = time.perf_counter() - self._asked_at
        if self._keep:
            self.delays_s.append(delay)
        if delay > self._limit_s:
            self.slow.append((delay, self._stack))
            del self.slow[:-100]
            _log.warning("GUI turn of %.0f ms\n%s", delay * 1e3, self._stack or "(over before it was seen)")
        self._answered.set()

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._stack = ""
            self._answered.clear()
            self._asked_at = time.perf_counter()
            self._knock.emit()
            if not self._answered.wait(self._limit_s):
                frame = sys._current_frames().get(self._gui_thread)
                if frame is not None:
                    self._stack = "".join(traceback.format_stack(frame, limit=12))
                # A frame that is kept keeps its locals: a painter would outlive its paint event, and Qt aborts.
                del frame
                while not self._answered.wait(0.2) and not self._stop.is_set():
                    continue
