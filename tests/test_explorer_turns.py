"""The turn clock sees a slow turn and names what it did."""

from __future__ import annotations

import threading
import time

from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from explorer.turns import TurnClock


def _dawdle() -> None:
    end = time.perf_counter() + 0.12
    while time.perf_counter() < end:
        time.sleep(0.01)


def test_a_slow_turn_is_kept_with_its_stack(qtbot: QtBot) -> None:
    clock = TurnClock(keep=True)
    clock.start()
    QTimer.singleShot(10, _dawdle)
    qtbot.waitUntil(lambda: bool(clock.slow), timeout=5000)
    clock.stop()
    took, stack = clock.slow[0]
    assert took > 0.1
    assert "_dawdle" in stack
    assert max(clock.delays_s) >= took
    assert not any(thread.name == "turn-watch" for thread in threading.enumerate())
