"""Both ends of the reader's child process: files from others are parsed there, under limits, not here.

The parent starts ``python -m model.graph.child`` on one line of JSON and the file's bytes, and waits with a
time limit, a memory limit and an optional ``cancelled`` question; the child answers JSON (`raw.py`). The child
also limits itself where the system can (``resource``). Knows processes and limits; what is read from the bytes
is `readers.py`'s, imported only in the child.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from ..errors import FileError, TilewrightError, UsageError
from .incoming import Cancelled, Incoming

TIME_LIMIT_S = 20.0  # of processor time, and a second per MiB of the file, up to 40 more
MEMORY_LIMIT_BYTES = 2 * 2**30
ANSWER_LIMIT_BYTES = 128 * 2**20  # of JSON: about 500,000 operators
_POLL_S = 0.05
_SLOWEST = 4.0  # times the limit, where other programs leave the child no processor
_ROOT = str(Path(__file__).resolve().parents[2])


def request(bindings: Mapping[str, int]) -> bytes:
    """The line that stands before a file's bytes: what the child is asked."""
    return json.dumps({"bindings": dict(bindings)}).encode()


def _limits(size: int) -> tuple[float, int]:
    """Seconds and bytes of memory that reading a file of `size` bytes may take."""
    return TIME_LIMIT_S + min(size / 2**20, 40.0), MEMORY_LIMIT_BYTES + 4 * size


def read_in_child(
    source: Incoming,
    where: str,
    cancelled: Callable[[], bool] | None = None,
) -> bytes:
    """Parse, infer and fold a file in a limited child process; its answer is for `raw.read_answer`.

    Parameters
    ----------
    source : the file's bytes behind the line that `request` makes.
    where : what messages call the file.
    cancelled : asked every 50 ms; the child is killed once it says True.

    Raises
    ------
    FileError : the child exceeded its time or memory, or died.
    Cancelled : `cancelled` said True.
    """
    # Files, not pipes: nothing blocks, and the answer's size can be watched while it grows.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaints:
        source.file.seek(0)
        process = _start(source.file, answer, complaints)
        try:
            _wait(process, answer, _limits(len(source.content)), where, cancelled)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        answer.seek(0)
        text = answer.read()
        if process.returncode != 0 or not text:
            complaints.seek(0)
            raise _died(process.returncode, complaints.read()[-2000:], where)
    return text


def _start(question: Any, answer: Any, complaints: Any) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    paths = [_ROOT, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    # One thread: a linear algebra library reserves memory per thread, which the limit would count.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "model.graph.child"],
        stdin=question,
        stdout=answer,
        stderr=complaints,
        env=environment,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows: no console flashes up
    )


def _wait(
    process: subprocess.Popen[bytes],
    answer: Any,
    limits: tuple[float, int],
    where: str,
    cancelled: Callable[[], bool] | None,
) -> None:
    """Watch the child until it ends.

    Raises
    ------
    FileError : over time, memory or answer size. Cancelled : no longer wanted.
    """
    seconds, memory = limits
    started = time.monotonic()
    while True:
        try:
            process.wait(timeout=_POLL_S)
            return
        except subprocess.TimeoutExpired:
            pass
        if cancelled is not None and cancelled():
            raise Cancelled("reading was cancelled", where=where)
        waited = time.monotonic() - started
        if waited > seconds and (_processor_s(process.pid) > seconds or waited > _SLOWEST * seconds):
            raise FileError(
                f"reading took longer than {seconds:.0f} s and was stopped",
                where=where,
                lever="The file may be made to exhaust its reader; simplify it (onnxsim) or split it.",
            )
        if _resident_bytes(process.pid) > memory:
            raise FileError(
                f"reading needs more than {memory / 2**30:.1f} GiB of memory and was stopped",
                where=where,
                lever="The file may be made to exhaust its reader; simplify it (onnxsim) or split it.",
            )
        if os.fstat(answer.fileno()).st_size > ANSWER_LIMIT_BYTES:
            raise FileError("the graph is too large to show", where=where, lever="Split the model.")


def _processor_s(pid: int) -> float:
    """Processor time that the process has used; 0 where it has just ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def _resident_bytes(pid: int) -> int:
    """Memory that the process holds now; 0 where it has just ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def _died(code: int, complaints: bytes, where: str) -> FileError:
    """A readable error for a child that ended without an answer."""
    if b"MemoryError" in complaints or b"bad_alloc" in complaints:
        return FileError("reading ran out of memory", where=where, lever="Simplify or split the model.")
    lines = complaints.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1][:200] if lines else f"exit code {code}"
    return FileError(f"the reader stopped ({last})", where=where, lever="Check the model with onnx.checker.")


# ---------------------------------------------------------------- the child's side


def _limit_self(memory: int, seconds: int) -> None:
    """Limit memory, processor time, core dumps and files of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: the parent watches alone
        return
    for name, limit in (
        ("RLIMIT_AS", memory),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_FSIZE", ANSWER_LIMIT_BYTES),
    ):
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        with contextlib.suppress(ValueError, OSError):  # a system may refuse one limit and honour others
            _soft, hard = resource.getrlimit(kind)
            wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (wanted, hard))


def main() -> int:
    """The child: read the request, answer one JSON document on standard output."""
    asked = json.loads(sys.stdin.buffer.readline())
    answer_to = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not mix with the answer
    content = sys.stdin.buffer.read()
    seconds, memory = _limits(len(content))
    _limit_self(memory + len(content), int(seconds) + 1)
    gc.disable()  # one short run over millions of objects that nothing will need afterwards
    from .readers import read

    text = answered(lambda: read(content, asked["bindings"]))
    with os.fdopen(answer_to, "wb") as out:
        out.write(text)
    return 0


def answered(read: Callable[[], dict[str, Any]]) -> bytes:
    """What `read` finds, or why it refuses, as the one JSON document of the answer."""
    try:
        return json.dumps(read(), separators=(",", ":"), default=_no_text).encode()
    except TilewrightError as error:
        kind = "usage" if isinstance(error, UsageError) else "file"
        return _error(kind, error.what, error.where, error.lever)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        ArithmeticError,
        RuntimeError,
    ) as error:
        what = f"it cannot be understood ({type(error).__name__}: {str(error)[:200]})"
        return _error("file", what, "", "Check it with onnx.checker.")


def _no_text(value: Any) -> Any:
    """Protobuf hands text on as bytes where it is none; JSON asks here what to do with it."""
    if isinstance(value, bytes):
        what = f"a name in it is no text: {value[:80]!r}"
        raise FileError(what, lever="The file is damaged; export or download it again.")
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _error(kind: str, what: str, where: str, lever: str) -> bytes:
    return json.dumps({"error": {"kind": kind, "what": what, "where": where, "lever": lever}}).encode()


if __name__ == "__main__":
    status = main()
    # Tearing down large protobufs takes as long as reading them; the answer is out.
    sys.stderr.flush()
    os._exit(status)
