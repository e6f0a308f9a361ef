"""The turn clock sees a slow turn and names what it did; the collector of cycles waits for a rest."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from explorer.document import Document
from explorer.pace import SWITCH_S, Pace
from explorer.turns import TurnClock

from . import made_results
from .explorer_engine import HandEngine
from .test_explorer_document import settle


def _dawdle() -> None:
    end = time.perf_counter() + 0.12
    while time.perf_counter() < end:
        time.sleep(0.01)


def test_a_slow_turn_is_kept_and_logged_with_its_stack(
    qtbot: QtBot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tilewright.turns")
    clock = TurnClock(keep=True)
    clock.start()
    QTimer.singleShot(10, _dawdle)
    qtbot.waitUntil(lambda: bool(clock.slow), timeout=5000)
    clock.stop()
    took, stack = clock.slow[0]
    assert took > 0.1
    assert "_dawdle" in stack
    assert "GUI turn of" in caplog.text and "_dawdle" in caplog.text
    assert max(clock.delays_s) >= took
    assert not any(thread.name == "turn-watch" for thread in threading.enumerate())


class _Node:
    def __init__(self) -> None:
        self.own = self  # a cycle


def test_cycles_are_collected_at_rest_and_not_in_a_turn(qtbot: QtBot) -> None:
    before = gc.isenabled(), sys.getswitchinterval()
    document = Document(engine=HandEngine())
    pace = Pace(document)
    try:
        assert not gc.isenabled() and sys.getswitchinterval() == pytest.approx(SWITCH_S)
        document.set_accelerator(made_results.machine())
        document.set_graph(made_results.chain())
        settle(qtbot, document)
        cycle = weakref.ref(_Node())
        assert cycle() is not None
        document.commit(made_results.plan(), "Edit")
        settle(qtbot, document)
        assert cycle() is not None
        qtbot.waitUntil(lambda: cycle() is None, timeout=10_000)
        assert gc.get_freeze_count() > 0
    finally:
        pace.end()
        assert document.close()
    assert (gc.isenabled(), sys.getswitchinterval()) == before
