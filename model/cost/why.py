"""Cards of the cost model: for each number of a `CostResult` its formula, inputs and shares.

The door: which number is asked for. Numbers of the whole plan are named ``totals.NAME`` (`why_plan.py`), those of a
group ``G3.NAME`` (`why_group.py`); these know the definitions.
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


def why(result: CostResult, number: str) -> Card:
    """The card of one number: ``totals.latency_s`` (or ``latency_s``), ``G3.footprint_bytes``.

    Raises
    ------
    UsageError : no number of that name, or no such group.
    """
    scope, _, name = number.rpartition(".")
    if scope in ("", "totals") and name in TOTALS:
        return TOTALS[name](result)
    index = int(scope[1:]) - 1 if scope[:1] in ("G", "g") and scope[1:].isdecimal() else -1
    if name in GROUP and scope and scope != "totals":
        if not 0 <= index < len(result.groups):
            raise UsageError(
                f"no group {scope}", where="--why", lever=f"This plan has G1 to G{len(result.groups)}."
            )
        return GROUP[name](result, index)
    known = numbers(result)
    close = difflib.get_close_matches(number, known, 3, 0.5) or [
        full for full in known if name and name in full
    ]
    raise UsageError(
        f"no number {number!r}",
        where="--why",
        lever=f"Did you mean {', '.join(close[:3])}?" if close else f"It takes {', '.join(known)}.",
    )
