"""Why a number is what it is: a card of formula, inputs, units and shares, as plain values.

Knows no result: `cost/why.py` and `serving/why.py` make cards of theirs, `simulate --why` prints them, and the window
draws the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .terminal import columns, quantity, size


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit: "s", "B", "J", "Hz", "B/s", "MAC", "share" (of one), "ratio", "" (a count or words)."""

    name: str
    value: float | str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """What one contributor adds to the number, and which part of it that is (None where parts have no sum)."""

    name: str
    value: float
    of_total: float | None


@dataclass(frozen=True, slots=True)
class Card:
    """Everything that explains one number.

    Attributes
    ----------
    number : its name, as ``--why`` takes it and JSON writes it: ``totals.latency_s``, ``G3.footprint_bytes``.
    formula : in words and signs, as COST-MODEL or SERVING-MODEL define it.
    inputs : what the formula is made of.
    shares : the largest contributors, in descending order; their unit is the number's.
    note : what to know when reading it; "" for nothing.
    """

    number: str
    title: str
    value: Figure
    formula: str
    inputs: tuple[Figure, ...] = ()
    shares: tuple[Share, ...] = ()
    note: str = ""


def shares_of(
    parts: Sequence[tuple[str, float]], total: float | None = None, most: int = 8
) -> tuple[Share, ...]:
    """The largest of the named parts that are not 0, largest first, with their part of `total` (None: of their sum)."""
    whole = sum(value for _, value in parts) if total is None else total
    ordered = sorted((part for part in parts if part[1]), key=lambda part: -abs(part[1]))
    return tuple(Share(name, value, value / whole if whole else None) for name, value in ordered[:most])


def card_document(card: Card) -> dict[str, Any]:
    """A card as plain values for JSON."""
    return asdict(card)


def figure_text(value: float | str, unit: str) -> str:
    """``221 MiB``, ``1.82 ms``, ``79.7 %``: as commands print numbers."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "B":
        return size(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "ratio":
        return f"{value:.4g}"
    if unit:
        return quantity(value, unit)
    return f"{value:,}" if float(value).is_integer() else f"{value:,.4g}"


def card_text(card: Card) -> str:
    """A card for a terminal."""
    unit = card.value.unit
    lines = [
        f"{card.number} = {figure_text(card.value.value, unit)}",
        f"{card.title}: {card.formula}",
    ]
    if card.inputs:
        rows = [[figure.name, figure_text(figure.value, figure.unit)] for figure in card.inputs]
        lines += ["", columns(rows, indent="  ", right=(1,))]
    if card.shares:
        rows = [
            [share.name, figure_text(share.value, unit)]
            + ([f"{share.of_total:.1%}"] if share.of_total is not None else [])
            for share in card.shares
        ]
        lines += ["", "  of it", columns(rows, indent="  ", right=(1, 2))]
    if card.note:
        lines += ["", card.note]
    return "\n".join(lines)
