"""What commands print: numbers with units and aligned columns for a person, one JSON document for a script.

Knows nothing of what is printed. The window has its own formats in `explorer/look.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import __version__

TOOL: dict[str, str] = {"name": "tilewright", "version": __version__}
"""CONTRACT's ``tool{name,version}``."""

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))
_LONG = ((3600.0, "h"), (60.0, "min"))  # seconds of it
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def quantity(value: float | None, unit: str, digits: int = 4) -> str:
    """``25.6 GB/s`` from 25.6e9 and ``B/s``: an SI prefix and `digits` significant digits; "-" for None.

    Seconds are minutes from ten minutes on and hours from ten hours on, as in the window.
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return f"{value} {unit}"
    size = abs(value)
    for long, name in _LONG if unit == "s" else ():
        if size >= 10.0 * long * 0.9995:
            text = f"{value / long:.{digits}g}"
            return f"{text if 'e' not in text else f'{value / long:.0f}'} {name}"
    steps = _PREFIXES if size >= 1.0 or size == 0.0 else _SMALL
    # Rounding comes first: 999.99996 in four digits is 1.000 k, not 1000.
    size = float(f"{size:.{digits}g}")
    scale, prefix = next(((s, p) for s, p in steps if size >= s), steps[-1])
    text = f"{value / scale:.{digits}g}"
    if "e" in text:  # fewer digits than the integer part has: 790, not 7.9e+02
        text = f"{value / scale:.0f}"
    return f"{text} {prefix}{unit}".strip()


def size(count: float | None, digits: int = 4) -> str:
    """``260 MiB``: bytes with a binary prefix and `digits` significant digits, as the window shows them.

    From 1,000 of a unit on the next one is shown, as there; bytes alone go on to 1,023.
    """
    if count is None:
        return "-"
    least = [(s * 999.5 / 1024 if s > 1024 else s, s, u) for s, u in _BINARY]
    scale, unit = next(((s, u) for from_, s, u in least if abs(count) >= from_), (1, "B"))
    text = f"{count / scale:.{digits}g}"
    return f"{text if 'e' not in text else f'{count / scale:.0f}'} {unit}"


def capacity(count: int) -> str:
    """``512 KiB`` where a binary unit divides exactly, else ``8 GB``."""
    for scale, unit in _BINARY:
        if count % scale == 0 and 1 <= count // scale < 10_000:
            return f"{count // scale:,} {unit}"
    return quantity(float(count), "B")


def columns(rows: Sequence[Sequence[str]], indent: str = "", right: Sequence[int] = ()) -> str:
    """Rows as lines with aligned columns; those in `right` are aligned to the right."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(len(row) for row in rows))]
    lines: list[str] = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output. NaN and infinity are refused: they are not JSON."""
    print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
