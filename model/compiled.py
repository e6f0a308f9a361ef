"""Where compiled kernels are kept, and how they are declared. Imported before Numba, by all that need it.

Numba's own cache goes stale when a callee in another file changes. So the cache folder is named by the
digest of every kernel source and of the versions of Python, Numba, llvmlite and numpy: a change makes a new
folder. Knows no room of the model; kernel files know only this decorator, numpy and numba.

Kernels have declared signatures and compile when their file is imported (or load from the cache in
milliseconds). The window therefore fills the cache in a child process first::

    python -m model.compiled        # prints "kernel 3 of 41: model.cost.traffic.evaluate" lines
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

_F = TypeVar("_F", bound=Callable[..., Any])
_ROOT = Path(__file__).resolve().parent.parent

# Files that hold kernels or numbers that kernels are compiled with, those that the first picture needs first.
KERNEL_MODULES: tuple[str, ...] = (
    "model.graph.alignment",
    "model.graph.ordering",
    "model.graph.layering",
    "model.plan.bitsets",
    "model.cost.sweep",
    "model.cost.footprint",
    "model.cost.traffic",
    "model.cost.cycles",
    "model.cost.steps",
    "model.cost.timing",
    "model.cost.candidate",
    "model.cost.retention",
    "model.cost.estimate",
    "model.cost.judging",
    "model.cost.search_kernels",
    "model.search.descent",
    "model.serving.replay",
    "model.serving.closed",
    "model.serving.phases",
    "model.serving.thermal_kernels",
    "model.serving.tail_kernels",
    "model.serving.slowdown_kernels",
    "model.serving.events",
    "model.serving.generation_kernels",
)


def _source(module: str) -> Path:
    return _ROOT.joinpath(*module.split(".")).with_suffix(".py")


def _digest() -> str:
    """Twelve hex digits over all kernel sources and the versions that shape machine code."""
    state = hashlib.sha256()
    for module in KERNEL_MODULES:
        path = _source(module)
        if path.is_file():
            state.update(module.encode() + b"\0" + path.read_bytes())
    state.update(platform.python_version().encode() + platform.machine().encode())
    for package in ("numba", "llvmlite", "numpy"):
        state.update(importlib.metadata.version(package).encode())
    return state.hexdigest()[:12]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_folder() -> Path | None:
    """The first writable of: TILEWRIGHT_CACHE, the user's cache folder, a private temporary folder."""
    name = f"kernels-{_digest()}"
    places = [Path(platformdirs.user_cache_dir("tilewright"))]
    if os.environ.get("TILEWRIGHT_CACHE"):
        places.insert(0, Path(os.environ["TILEWRIGHT_CACHE"]))
    for place in places:
        if _writable(place / name):
            return place / name
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    shared = Path(tempfile.gettempdir()) / f"tilewright-{owner}"
    # A folder that someone else made could hold someone else's machine code.
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and (shared.stat().st_uid != os.getuid() or shared.is_symlink()):
            return None
    except OSError:
        return None
    return shared / name if _writable(shared / name) else None


FOLDER: Path | None = _choose_folder()
"""The cache folder, or None: no folder is writable and kernels compile anew at each start."""

if FOLDER is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(FOLDER)
    if "numba" in sys.modules:  # someone imported it first: tell it as well
        sys.modules["numba"].config.CACHE_DIR = str(FOLDER)  # type: ignore[attr-defined]

_progress: Callable[[str], None] | None = None
_declared: list[tuple[str, Any]] = []


def kernel(*signatures: str, inline: bool = False, borrows: bool = False) -> Callable[[_F], _F]:
    """Declare a kernel: compiled for exactly `signatures`, without the GIL, kept on disk.

    Parameters
    ----------
    signatures : Numba signatures, e.g. ``"int64(int64[::1], float64)"``. Arrays are C-contiguous and
        writable; callers never pass read-only arrays (another Numba type).
    inline : its code goes into every kernel that calls it; for a few lines that run very often.
    borrows : it makes no array and copies none into another (Numba refuses to compile it otherwise): references to its
        arguments and to views of them are not counted, which would take longer than what a small kernel does.
    """
    from numba import njit

    def declare(function: _F) -> _F:
        options: dict[str, Any] = {
            "nogil": True,
            "cache": FOLDER is not None,
            "forceinline": inline,
            "_nrt": not borrows,
        }
        compiled: Any = njit(list(signatures), **options)(function)
        _declared.append((f"{function.__module__}.{function.__name__}", compiled))
        if _progress is not None:
            _progress(f"{function.__module__}.{function.__name__}")
        return compiled

    return declare


def declared() -> tuple[tuple[str, Any], ...]:
    """Every kernel declared so far with its dispatcher; a test holds them to their declared signatures."""
    return tuple(_declared)


def count() -> int:
    """How many kernels all kernel files declare, counted in their text (nothing is imported)."""
    pattern = re.compile(r"^@kernel\(", re.MULTILINE)
    return sum(
        len(pattern.findall(_source(module).read_text(encoding="utf-8")))
        for module in KERNEL_MODULES
        if _source(module).is_file()
    )


_READY = "complete"


def ready() -> bool:
    """Whether the cache folder has been filled before, so that kernels load instead of compiling."""
    return FOLDER is not None and (FOLDER / _READY).exists()


def load_all(progress: Callable[[int, int, str], None] | None = None) -> None:
    """Import every kernel file (compiling what is not cached) and mark the cache as complete.

    ``progress(done, of, name)`` is called after each kernel.
    """
    global _progress
    total, done = count(), 0

    def step(name: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, name)

    _progress = step
    try:
        for module in KERNEL_MODULES:
            if _source(module).is_file():
                importlib.import_module(module)
    finally:
        _progress = None
    if FOLDER is not None:
        (FOLDER / _READY).touch()
        _remove_old(FOLDER)


def _remove_old(keep: Path, age_s: float = 30 * 86400.0) -> None:
    """Delete our own folders of earlier versions that nobody filled or touched for `age_s` seconds."""
    for other in keep.parent.glob("kernels-*"):
        marker = other / _READY
        stamp = marker if marker.exists() else other
        try:
            if other != keep and time.time() - stamp.stat().st_mtime > age_s:
                shutil.rmtree(other, ignore_errors=True)
        except OSError:
            continue


def main() -> int:
    """The child process: fill the cache and say how far it is, one line a kernel."""
    # Running as __main__ would make a second copy of this module; the kernels register with the real one.
    real = importlib.import_module("model.compiled")
    real.load_all(lambda done, of, name: print(f"kernel {done} of {of}: {name}", flush=True))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
