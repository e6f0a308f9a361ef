"""Where compiled kernels are kept, and how they are declared. Imported before Numba, by all that need it.

Numba's own cache goes stale when a callee in another file changes, and does not know a file that was moved. So the
kernels of a file are kept in a folder named by the digest of its text and of the text of every kernel file that it
imports, directly or not, inside one folder for the versions of Python, Numba, llvmlite and numpy: a change compiles
what it can change, and checkouts, worktrees and wheels share what is the same. Knows no room of the model; kernel
files know only this decorator, numpy and numba.

Kernels have declared signatures and compile when their file is imported (or load from the cache in
milliseconds). The window and the commands therefore fill the cache first, in processes of their own::

    python -m model.compiled        # prints "kernel 3 of 41: model.cost.traffic.measure" lines
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
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
    "model.cost.bands",
    "model.cost.footprint",
    "model.cost.traffic",
    "model.cost.cycles",
    "model.cost.boxes",
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
    text = Path(__file__).read_text(encoding="utf-8")
    state = hashlib.sha256(text[text.index("\ndef kernel(") : text.index("\ndef declared(")].encode())
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

Tell = Callable[[str], None]
_heard: Tell | None = None
_before_the_first: Tell | None = None
_declared: list[tuple[str, Any]] = []
_MOST_PROCESSES = 4
"""That compile at one time: more would wait for each other, as files do for those that they import."""


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
    global _before_the_first
    if _before_the_first is not None:
        tell, _before_the_first = _before_the_first, None
        if not ready():
            with suppress(RuntimeError):  # what failed there fails here as well, where it is told
                fill(tell)
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
        if _heard is not None:
            _heard(f"{function.__module__}.{function.__name__}")
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


def load_all() -> None:
    """Import every kernel file, compiling what is not cached, and mark the cache as complete."""
    for module in KERNEL_MODULES:
        if _source(module).is_file():
            importlib.import_module(module)
    _complete()


def _complete() -> None:
    marker = _marker()
    if FOLDER is not None and marker is not None:
        marker.touch()
        _remove_old(FOLDER)


def fill_before_the_first(tell: Tell) -> None:
    """The first kernel that this process declares fills the cache where it is not complete; `tell` as in `fill`."""
    global _before_the_first
    _before_the_first = tell


def hear_of_kernels(heard: Tell) -> None:
    """Let `heard` hear the full name of each kernel once it is there."""
    global _heard
    _heard = heard


def fill(tell: Tell | None = None) -> None:
    """Compile every kernel that is not cached, in processes of their own, as many as there are cores (four at most).

    Parameters
    ----------
    tell : hears a line for each kernel, ``kernel 3 of 41: model.cost.traffic.measure``, and for each file of which all
        are there, ``file model.cost.traffic``.

    Raises
    ------
    RuntimeError : a process failed; the message is the last line that it said.
    """
    if FOLDER is None:
        return
    total = count()
    found = 0
    faults: list[str] = []
    waiting = {
        module: _imports(module, source.read_text(encoding="utf-8"))
        for module in KERNEL_MODULES
        if (source := _source(module)).is_file()
    }
    filled: set[str] = set()
    turn = threading.Condition()

    def next_file() -> str | None:
        """A file whose imports are there, so that no kernel is compiled twice; None: no more."""
        with turn:
            while waiting and not faults:
                for module, needed in waiting.items():
                    if needed <= filled:
                        del waiting[module]
                        return module
                turn.wait()
        return None

    def hear(line: str) -> None:
        nonlocal found
        with turn:
            kind, _, name = line.partition(" ")
            if kind == "kernel":
                found += 1
                line = f"kernel {found} of {max(found, total)}: {name}"
            elif kind == "file":
                filled.add(name)
                turn.notify_all()
            if tell is not None:
                tell(line)

    def work() -> None:
        try:
            with _Child() as child:
                while (module := next_file()) is not None:
                    for line in child.compile(module):
                        hear(line)
        except Exception as fault:
            with turn:
                faults.append(str(fault))
                turn.notify_all()

    threads = [
        threading.Thread(target=work) for _ in range(max(1, min(_MOST_PROCESSES, os.cpu_count() or 1)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise RuntimeError(faults[0])
    _complete()


class _Child:
    """A process that compiles the files it is told, one after the other."""

    def __enter__(self) -> _Child:
        command = [sys.executable, "-m", "model.compiled", "--child"]
        # Its faults go to a file: a pipe that nobody reads would fill up.
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        return self

    def compile(self, module: str) -> Iterator[str]:
        """The child's lines about a file, the last of them ``file NAME``."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # it has ended; why is told below
            process.stdin.write(module + "\n")
            process.stdin.flush()
        for line in process.stdout:
            if line.startswith((f"kernel {module}.", "file ")):  # not what it imports
                yield line.rstrip("\n")
            if line.startswith("file "):
                return
        self._said.seek(0)
        last = self._said.read().strip().splitlines()[-1:] or [f"exit code {process.wait()}"]
        raise RuntimeError(last[0])

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._said.close()


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
    """Fill the cache and say how far it is, a line a kernel; with ``--child`` one of the processes that do."""
    # Running as __main__ would make a second copy of this module; the kernels register with the real one.
    real = importlib.import_module("model.compiled")
    say = partial(print, flush=True)
    if "--child" not in sys.argv:
        try:
            real.fill(say)
        except RuntimeError as fault:
            print(fault, file=sys.stderr)
            return 1
        return 0
    real.hear_of_kernels(lambda name: say(f"kernel {name}"))
    for line in sys.stdin:
        importlib.import_module(line.strip())
        say(f"file {line.strip()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
