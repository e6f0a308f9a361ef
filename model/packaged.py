"""Where the files that ship with the program lie: in the wheel, or in a checkout.

Knows the two layouts and nothing of what the files mean.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from .errors import FileError

_HERE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The packaged folder ``assets`` or ``sample_graphs``.

    A wheel carries it inside ``model/``; an editable install or a checkout has it beside ``model/``.
    """
    inside = _HERE / name
    return inside if inside.is_dir() else _HERE.parent / name


def named_file(name: str, where: str, suffix: str) -> Path | None:
    """The packaged file called `name` (with or without its suffix) under folder `where`, or None."""
    if "/" in name or "\\" in name or name in ("", ".", ".."):
        return None
    root = folder(where)
    for candidate in (root / name, root / f"{name}{suffix}"):
        if candidate.suffix == suffix and os.path.isfile(candidate):
            return candidate
    return None


def packaged_names(where: str, suffix: str) -> tuple[str, ...]:
    """Names of the files with this suffix that ship under folder `where`, sorted."""
    return tuple(sorted(path.stem for path in folder(where).glob(f"*{suffix}")))


def input_file(source: str | Path, where: str, suffix: str, absent: str, lever: str) -> Path:
    """What a user means by `source`: the file of that path, else the packaged file of that name.

    A pipe counts as a file. `absent` and `lever` are the sentence where there is neither; a packaged name
    that looks like `source` is named instead of the lever.

    Raises
    ------
    FileError : a folder, or nothing of that name.
    """
    # os.path and not Path: a name that no file system takes is no file, and no fault.
    if os.path.exists(source) and not os.path.isdir(source):
        return Path(source)
    found = named_file(str(source), where, suffix)
    if found is not None:
        return found
    said = str(source)
    if os.path.isdir(source):
        raise FileError("this is a folder, not a file", where=said, lever="Name a file inside it.")
    close = difflib.get_close_matches(said[:80], packaged_names(where, suffix), 1)
    raise FileError(absent, where=said or "''", lever=f"Did you mean {close[0]}?" if close else lever)


def headline(path: Path) -> str:
    """The first line of a text file that ships with the program: a comment that says what the file is."""
    with path.open(encoding="utf-8") as stream:
        return stream.readline().strip().lstrip("# ")
