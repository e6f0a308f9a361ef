"""Where the files that ship with the program lie: in the wheel, or in a checkout.

Knows the two layouts and nothing of what the files mean.
"""

from __future__ import annotations

from pathlib import Path

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
        if candidate.suffix == suffix and candidate.is_file():
            return candidate
    return None


def headline(path: Path) -> str:
    """The first line of a text file that ships with the program: a comment that says what the file is."""
    with path.open(encoding="utf-8") as stream:
        return stream.readline().strip().lstrip("# ")
