"""Fixtures for every test: the reference files beside the checkout, and an offscreen Qt."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the checkout; the test is skipped where it is absent."""
    path = Path(__file__).resolve().parents[1].parent / "shared"
    if not (path / "oracles").is_dir():
        pytest.skip("the reference folder `shared` is not beside this checkout")
    return path


def pytest_configure(config: pytest.Config) -> None:
    """Fill the kernel cache before a test file is imported, which would compile what it needs one after the other."""
    from model import compiled

    if hasattr(config, "workerinput") or compiled.ready():  # of xdist: its controller has done it
        return
    print(f"compiling {compiled.count()} kernels, once; it takes some minutes", file=sys.stderr, flush=True)
    compiled.fill()


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Load every kernel before the first test: a test that waits for a worker must not wait for them."""
    from model import compiled

    compiled.load_all()


@pytest.fixture(autouse=True)
def cycles_end_on_this_thread(kernels: None) -> Iterator[None]:
    """Look for cycles between tests only, as `explorer.pace` does at rest: Python collects on whichever thread asks for
    memory, and a worker that collects the windows of earlier tests ends Qt's widgets off the GUI thread.
    """
    if "explorer.runner" not in sys.modules:
        yield
        return
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # what was imported and compiled is not walked again
    gc.disable()
    yield
    gc.collect()
    gc.enable()


@pytest.fixture(autouse=True)
def no_worker_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends every worker that a test began: one that fails before it closes its document takes no other test with it."""
    window = sys.modules.get("explorer.runner")
    made: list[Any] = []
    if window is not None:
        begin = window.Runner.__init__

        def begun(runner: Any, *arguments: Any, **named: Any) -> None:
            begin(runner, *arguments, **named)
            made.append(runner)

        monkeypatch.setattr(window.Runner, "__init__", begun)
    yield
    for runner in made:
        runner.close()
