"""Both ends of the reader's child process: files from others are parsed there, under limits, not here.

The parent starts ``python -m model.graph.child``, sends one line of JSON and the file's bytes, and waits
with a time limit, a memory limit and an optional ``cancelled`` question; the child answers JSON (`raw.py`).
The child also limits itself where the system can (``resource``). Knows processes and limits; what is read
from the bytes is `readers.py`'s, imported only in the child.
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
from .raw import RawGraph, read_answer

TIME_LIMIT_S = 20.0  # and a second per MiB of the file, up to 40 more
MEMORY_LIMIT_BYTES = 2 * 2**30
ANSWER_LIMIT_BYTES = 128 * 2**20  # of JSON: about 500,000 operators
_POLL_S = 0.05
_ROOT = str(Path(__file__).resolve().parents[2])


class Cancelled(TilewrightError):
    """The one who asked no longer wants the answer."""


def read_in_child(
    content: bytes,
    bindings: Mapping[str, int],
    where: str,
    cancelled: Callable[[], bool] | None = None,
) -> RawGraph:
    """Parse, infer and fold `content` in a limited child process.

    Parameters
    ----------
    content : the file's bytes, sniffed before.
    bindings : numbers for symbolic dims.
    where : what messages call the file.
    cancelled : asked every 50 ms; the child is killed once it says True.

    Raises
    ------
    FileError : the child refused the file, or exceeded its time or memory, or died.
    UsageError : `bindings` names symbols that the file does not have.
    Cancelled : `cancelled` said True.
    """
    memory_limit = MEMORY_LIMIT_BYTES + 4 * len(content)
    limits = {"memory": memory_limit, "seconds": TIME_LIMIT_S + min(len(content) / 2**20, 40.0)}
    request = json.dumps({"bindings": dict(bindings), **limits}).encode() + b"\n"
    # Files, not pipes: nothing blocks, and the answer's size can be watched while it grows.
    with (
        tempfile.TemporaryFile() as question,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as complaints,
    ):
        question.write(request + content)
        question.seek(0)
        process = _start(question, answer, complaints)
        try:
            _wait(process, answer, limits, where, cancelled)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        answer.seek(0)
        text = answer.read()
        if process.returncode != 0 or not text:
            complaints.seek(0)
            raise _died(process.returncode, complaints.read()[-2000:], where)
    return read_answer(text, where)


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
    limits: Mapping[str, float],
    where: str,
    cancelled: Callable[[], bool] | None,
) -> None:
    """Watch the child until it ends.

    Raises
    ------
    FileError : over time, memory or answer size. Cancelled : no longer wanted.
    """
    deadline = time.monotonic() + limits["seconds"]
    while True:
        try:
            process.wait(timeout=_POLL_S)
            return
        except subprocess.TimeoutExpired:
            pass
        if cancelled is not None and cancelled():
            raise Cancelled("reading was cancelled", where=where)
        if time.monotonic() > deadline:
            raise FileError(
                f"reading took longer than {limits['seconds']:.0f} s and was stopped",
                where=where,
                lever="The file may be made to exhaust its reader; simplify it (onnxsim) or split it.",
            )
        if _resident_bytes(process.pid) > limits["memory"]:
            raise FileError(
                f"reading needs more than {limits['memory'] / 2**30:.1f} GiB of memory and was stopped",
                where=where,
                lever="The file may be made to exhaust its reader; simplify it (onnxsim) or split it.",
            )
        if os.fstat(answer.fileno()).st_size > ANSWER_LIMIT_BYTES:
            raise FileError("the graph is too large to show", where=where, lever="Split the model.")


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
    request = json.loads(sys.stdin.buffer.readline())
    answer_to = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not mix with the answer
    content = sys.stdin.buffer.read()
    _limit_self(int(request["memory"]) + len(content), int(request["seconds"]) + 1)
    gc.disable()  # one short run over millions of objects that nothing will need afterwards
    from .readers import read

    try:
        text = json.dumps(read(content, request["bindings"]), separators=(",", ":"))
    except TilewrightError as error:
        kind = "usage" if isinstance(error, UsageError) else "file"
        text = _error(kind, error.what, error.where, error.lever)
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
        text = _error("file", what, "", "Check it with onnx.checker.")
    with os.fdopen(answer_to, "wb") as out:
        out.write(text.encode())
    return 0


def _error(kind: str, what: str, where: str, lever: str) -> str:
    return json.dumps({"error": {"kind": kind, "what": what, "where": where, "lever": lever}})


if __name__ == "__main__":
    status = main()
    # Tearing down large protobufs takes as long as reading them; the answer is out.
    sys.stderr.flush()
    os._exit(status)
