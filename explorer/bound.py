"""Numbers that were given for the symbolic dims of a file, remembered until the next time it is opened.

Knows the settings. A file is known by its path and its digest: another one at the same place gets its defaults.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QSettings

from model.graph.graph import OperatorGraph
from model.packaged import folder

_KEY = "bound"
_MOST = 200  # files


@dataclass(frozen=True, slots=True)
class Bound:
    """What was given for the file of a digest."""

    digest: str
    bindings: dict[str, int]


def remember(settings: QSettings, graph: OperatorGraph, bindings: dict[str, int]) -> None:
    """Keep `bindings` for the file of `graph`; none: it opens with its defaults again."""
    kept = _kept(settings)
    kept.pop(place := _place(graph.path), None)
    if bindings:
        kept[place] = {"digest": graph.digest, "bindings": bindings}
    newest = list(kept.items())[-_MOST:]
    settings.setValue(_KEY, json.dumps(dict(newest)))


def remembered(settings: QSettings, source: str) -> Bound | None:
    """What was given for a path or the name of a sample; None where nothing was."""
    entry = _kept(settings).get(_place(source))
    if not isinstance(entry, dict):
        return None
    digest, bindings = entry.get("digest"), entry.get("bindings")
    if not isinstance(digest, str) or not digest or not isinstance(bindings, dict):
        return None
    numbers = {str(name): number for name, number in bindings.items() if type(number) is int and number > 0}
    return Bound(digest, numbers)


def _place(source: str) -> str:
    path = Path(source)
    if not path.suffix and not path.exists():
        path = folder("sample_graphs") / f"{source}.onnx"
    return str(path.resolve())


def _kept(settings: QSettings) -> dict[str, object]:
    """By path; settings that somebody else wrote are none."""
    try:
        found = json.loads(str(settings.value(_KEY, "{}")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
