"""Kernels of the cost room as plain Python, from their sources, with one term changed where a test plants a fault."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from model import compiled

Fault = tuple[str, str, str]
"""A kernel file's name, a term that stands in it once, and what takes its place."""
NO_FAULT: Fault = ("", "", "")


def plain_kernels(
    names: Sequence[str], fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> dict[str, ModuleType]:
    """The files `names` of ``model/cost``, in the order in which they import each other, run without Numba."""
    package = "plain_kernels_of"
    stub = ModuleType(f"{package}.compiled")
    stub.kernel = lambda *_, **__: lambda function: function  # type: ignore[attr-defined]
    for name in (package, f"{package}.cost"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules[name].__path__ = []
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    where, old, new = fault
    assert not where or where in names
    made: dict[str, ModuleType] = {}
    for name in names:
        source = (Path(compiled.__file__).parent / "cost" / f"{name}.py").read_text(encoding="utf-8")
        if name == where:
            assert source.count(old) == 1, f"{old!r} is not once in {name}.py any more: choose another term"
            source = source.replace(old, new)
        module = made[name] = ModuleType(f"{package}.cost.{name}")
        module.__package__ = f"{package}.cost"
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, f"{name}.py with a fault", "exec"), module.__dict__)
    return made
