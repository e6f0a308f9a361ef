"""Cards of the cost model: for each number of a `CostResult` its formula, inputs and shares.

The door: which number is asked for. Numbers of the whole plan are named ``totals.NAME`` (`why_plan.py`), those of a
group ``G3.NAME`` (`why_group.py`), tile sizes ``G3.MEMORY.DIM`` (`why_tile.py`); these know the definitions.
"""

from __future__ import annotations

import difflib

from ..errors import UsageError
from ..why import Card
from .result import CostResult
from .why_group import GROUP
from .why_plan import TOTALS


def numbers(result: CostResult) -> tuple[str, ...]:
    """Names of all numbers that have a card: of the plan, then of the first group (the others bear the same)."""
    return tuple(f"totals.{name}" for name in TOTALS) + tuple(f"G1.{name}" for name in GROUP)


def _group(result: CostResult, name: str) -> int:
    """The index of the group that is called `name`, as ``G3``."""
    digits = name[1:] if name[:1] in ("G", "g") else ""
    index = int(digits) - 1 if digits.isdecimal() and len(digits) < 10 else -1
    if not 0 <= index < len(result.groups):
        raise UsageError(
            f"no group {name}", where="--why", lever=f"This plan has G1 to G{len(result.groups)}."
        )
    return index


def why(result: CostResult, number: str) -> Card:
    """The card of one number: ``totals.latency_s`` (or ``latency_s``), ``G3.footprint_bytes``, a tile ``G3.buffer.n``.

    Raises
    ------
    UsageError : no number of that name, or no such group.
    """
    scope, _, name = number.rpartition(".")
    if scope in ("", "totals") and name in TOTALS:
        return TOTALS[name](result)
    if name in GROUP and scope and scope != "totals":
        return GROUP[name](result, _group(result, scope))
    first, _, rest = number.partition(".")
    memory, _, dim = rest.rpartition(".")
    if memory and first[:1] in ("G", "g") and first[1:].isdecimal():
        from .why_tile import tile_why  # it simulates: the window must not load kernels for its other cards

        return tile_why(result, _group(result, first), memory, dim)
    known = numbers(result)
    close = difflib.get_close_matches(number, known, 3, 0.5) or [
        full for full in known if name and name in full
    ]
    raise UsageError(
        f"no number {number!r}",
        where="--why",
        lever=f"Did you mean {', '.join(close[:3])}?" if close else f"It takes {', '.join(known)}.",
    )
