"""A file from someone else on its way to the reader's child: checked for what it is, copied, and hashed.

It goes through memory in pieces only, so a file of 2 GiB costs this process nothing. Whatever a path may lead
to, opening it neither blocks nor fills the memory: folders, devices, pipes without a writer, sparse files.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import FileError, TilewrightError

MAX_FILE_BYTES = 2**31 - 1  # what protobuf itself can hold
PIPE_PATIENCE_S = 5.0  # without a byte
_PIECE = 2**20
_POLL_S = 0.05


class Cancelled(TilewrightError):
    """The one who asked no longer wants the answer."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file's bytes at rest.

    Attributes
    ----------
    file : a temporary file: one line of the request, padded with blanks, then the bytes.
    content : the bytes, mapped and not read.
    digest : ``sha256:...`` of the bytes.
    """

    file: IO[bytes]
    content: bytes | mmap.mmap
    digest: str


@contextmanager
def incoming(
    path: Path,
    request: bytes,
    check: Callable[[bytes], None],
    cancelled: Callable[[], bool] | None = None,
) -> Generator[Incoming]:
    """Copy what `path` leads to behind the line `request`.

    `check` sees the first piece before more is copied, and raises where that is enough to refuse the file.

    Raises
    ------
    FileError : a folder, a device, too large, a pipe that says nothing, or not readable.
    Cancelled : `cancelled` said True while a pipe was waited for.
    """
    # As many blanks as make the bytes begin where a system can map them.
    line = (
        request.ljust(-(-(len(request) + 1) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY - 1)
        + b"\n"
    )
    digest = hashlib.sha256()
    size = 0
    with tempfile.TemporaryFile() as file:
        file.write(line)
        try:
            for piece in _pieces(path, cancelled):
                if size == 0:
                    check(piece)
                size += len(piece)
                if size > MAX_FILE_BYTES:
                    raise _too_large(f"more than {MAX_FILE_BYTES}", str(path))
                digest.update(piece)
                file.write(piece)
            file.flush()
        except OSError as error:
            raise FileError(f"it cannot be read ({error.strerror or error})", where=str(path)) from error
        named = "sha256:" + digest.hexdigest()
        if size == 0:  # nothing cannot be mapped
            yield Incoming(file, b"", named)
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=len(line)) as content:
            yield Incoming(file, content, named)


def _too_large(size: str, where: str) -> FileError:
    return FileError(
        f"the file has {size} bytes; a protobuf holds at most {MAX_FILE_BYTES}",
        where=where,
        lever="Save the model with external data; only dims and element types are read.",
    )


def _pieces(path: Path, cancelled: Callable[[], bool] | None) -> Iterator[bytes]:
    """What the file holds, piece by piece; the kind of file is asked of what was opened, not of the name."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    )
    with io.FileIO(os.open(path, flags), closefd=True) as stream:
        found = os.fstat(stream.fileno())
        if stat.S_ISREG(found.st_mode):
            if found.st_size > MAX_FILE_BYTES:
                raise _too_large(f"{found.st_size:,}", str(path))
            while piece := stream.read(_PIECE):
                yield piece
        elif stat.S_ISFIFO(found.st_mode):
            yield from _from_pipe(stream, str(path), cancelled)
        else:
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or socket"
            raise FileError(f"this is {kind}, not a file", where=str(path), lever="Name a model file.")


def _from_pipe(stream: io.FileIO, where: str, cancelled: Callable[[], bool] | None) -> Iterator[bytes]:
    """Until the writer ends. One that has not come or says nothing is waited for a few seconds."""
    started, silent_since = False, time.monotonic()
    while True:
        piece = stream.read(_PIECE)  # None: there is a writer, and it has said nothing new
        if piece:
            started, silent_since = True, time.monotonic()
            yield piece
            continue
        if piece is not None and started:
            return
        if cancelled is not None and cancelled():
            raise Cancelled("reading was cancelled", where=where)
        if time.monotonic() - silent_since > PIPE_PATIENCE_S:
            raise FileError(
                f"nothing came through this pipe for {PIPE_PATIENCE_S:.0f} s",
                where=where,
                lever="Write the model into a file first.",
            )
        time.sleep(_POLL_S)
