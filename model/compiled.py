"""Where compiled kernels are kept, and how they are declared. Imported before Numba, by all that need it.

Numba's own cache goes stale when a callee in another file changes, and does not know a file that was moved. So the
kernels of a file are kept in a folder named by the digest of its text and of the text of every kernel file that it
imports, directly or not, inside one folder for the versions of Python, Numba, llvmlite and numpy: a change compiles
what it can change, and checkouts, worktrees and wheels share what is the same. Knows no room of the model; kernel
files know only this decorator, numpy and numba.

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
    "model.cost.runs",
    "model.cost.hits",
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


_IMPORT = re.compile(r"^from ([.\w]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def _imports(module: str, text: str) -> set[str]:
    """The kernel files that `text`, the source of `module`, imports by name (``from .sweep import ...``)."""
    found: set[str] = set()
    for source, names in _IMPORT.findall(text):
        up = len(source) - len(source.lstrip("."))
        inside = module.split(".")[:-up] if up else []
        package = ".".join([*inside, *filter(None, source[up:].split("."))])
        found.add(package)
        found |= {f"{package}.{name}" for name in re.findall(r"\w+", names)}
    return found & set(KERNEL_MODULES)


def _digests() -> dict[str, str]:
    """For each kernel file twelve hex digits over all that its machine code is made of."""
    text = {module: _source(module).read_text(encoding="utf-8") for module in KERNEL_MODULES}
    imported = {module: _imports(module, source) for module, source in text.items()}
    digests: dict[str, str] = {}
    for module in KERNEL_MODULES:
        closure, waiting = {module}, [module]
        while waiting:
            more = imported[waiting.pop()] - closure
            closure |= more
            waiting += more
        state = hashlib.sha256()
        for other in sorted(closure):
            state.update(other.encode() + b"\0" + text[other].encode() + b"\0")
        digests[module] = state.hexdigest()[:12]
    return digests


def _versions() -> str:
    """Twelve hex digits over what shapes machine code besides the sources: also how kernels are declared."""
    state = hashlib.sha256(Path(__file__).read_bytes())
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
    name = f"kernels-{_versions()}"
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
_DIGESTS = _digests()


class ByContent:
    """Tells Numba where the kernels of one file are kept (its interface of a cache locator)."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> ByContent | None:
        """None for a function that is not ours, and where nothing can be written."""
        del py_file  # where the text lies does not matter
        if FOLDER is None or py_func.__module__ not in _DIGESTS:
            return None
        return cls(py_func.__module__, py_func.__code__.co_firstlineno)

    def __init__(self, module: str, line: int) -> None:
        self._digest, self._line = _DIGESTS[module], line
        assert FOLDER is not None
        self._folder = FOLDER / f"{module}-{self._digest}"
        self._py_file = str(_source(module))  # for Numba's warnings

    def ensure_cache_path(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """The folder of the file's kernels."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """What the folder is named by: it never goes stale."""
        return self._digest

    def get_disambiguator(self) -> str:
        """Tells kernels of the same name apart."""
        return str(self._line)


LOCATORS = "model.compiled.ByContent,UserWideCacheLocator"
"""Ours first; anyone else's kernels in this process are kept where Numba keeps them."""

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
    from numba import config, njit

    config.CACHE_LOCATOR_CLASSES = LOCATORS  # type: ignore[attr-defined]

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


def _marker() -> Path | None:
    """Touched when the kernels of every file, as its text is now, are in the cache."""
    state = hashlib.sha256("".join(_DIGESTS.values()).encode())
    return None if FOLDER is None else FOLDER / f"complete-{state.hexdigest()[:12]}"


def ready() -> bool:
    """Whether the cache has been filled before, so that kernels load instead of compiling."""
    marker = _marker()
    return marker is not None and marker.exists()


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
    marker = _marker()
    if FOLDER is not None and marker is not None:
        marker.touch()
        _remove_old(FOLDER)


def _remove_old(folder: Path, age_s: float = 30 * 86400.0) -> None:
    """Mark what is in use, and delete our own folders that were not for `age_s` seconds."""
    now = time.time()
    in_use = {folder} | {folder / f"{module}-{digest}" for module, digest in _DIGESTS.items()}
    for one in in_use:
        if one.is_dir():
            os.utime(one, (now, now))
    for other in (*folder.parent.glob("kernels-*"), *folder.glob("model.*-*")):
        try:
            if other not in in_use and now - other.stat().st_mtime > age_s:
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
