"""Fixtures for every test: the reference files beside the checkout, and an offscreen Qt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the checkout; the test is skipped where it is absent."""
    path = Path(__file__).resolve().parents[1].parent / "shared"
    if not (path / "oracles").is_dir():
        pytest.skip("the reference folder `shared` is not beside this checkout")
    return path


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Compile every kernel before the first test: a test that waits for a worker must not wait for a compiler."""
    from model import compiled

    compiled.load_all()
