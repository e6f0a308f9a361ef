"""The one family of errors that a user sees: what, where, and what to do."""

from __future__ import annotations

_LONGEST_PLACE = 400


class TilewrightError(Exception):
    """An error with a readable message; commands print it on one line and exit 2.

    Parameters
    ----------
    what : what is wrong, with the numbers.
    where : file and path inside it, or the operator or group; empty if the message says it.
    lever : what the user can do about it; empty if nothing.
    """

    def __init__(self, what: str, *, where: str = "", lever: str = "") -> None:
        self.what = what
        self.where = where
        self.lever = lever
        super().__init__(self.sentence())

    def sentence(self) -> str:
        """The whole message on one line: ``where: what. lever.``"""
        where = self.where
        if len(where) > _LONGEST_PLACE:
            where = f"{where[: _LONGEST_PLACE // 2]}…{where[-_LONGEST_PLACE // 2 :]}"
        head = f"{where}: {self.what}" if where else self.what
        text = " ".join(head.split())
        if self.lever:
            text = f"{text.rstrip('.')}. {self.lever}"
        if not text.isprintable():  # names come from files and from the command line
            text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return text if text.endswith((".", "!", "?")) else text + "."


class FileError(TilewrightError):
    """A file that cannot be read or written: missing, broken, of the wrong kind, with an unknown key."""


class UsageError(TilewrightError):
    """A wrong argument of a command or of a public function."""


class PlanError(TilewrightError):
    """An edit or a plan that is not legal; `explorer` shows it beside the pointer."""


class UnknownShapeError(TilewrightError):
    """A question that needs numbers where the graph has none: bind the dim or give the shape."""
