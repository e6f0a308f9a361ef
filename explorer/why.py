"""Why a number is what it is, as the text of a tip: the model's cards in the window's formats.

Knows how a card is drawn; what stands in it is `model.cost.why`'s and `model.serving.why`'s.
"""

from __future__ import annotations

from html import escape

from model.cost.result import CostResult
from model.why import Card

from . import look

MOST_CAVEATS = 8
_FORMATS = {
    "s": look.fmt_seconds,
    "B": look.fmt_bytes,
    "share": look.fmt_percent,
    "ratio": look.fmt_ratio,
}


def figure(value: float | str, unit: str) -> str:
    """A number of a card as the window writes it."""
    if isinstance(value, str):
        return value
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    if unit:
        return look.fmt_quantity(value, unit)
    return look.fmt_count(int(value)) if float(value).is_integer() else look.fmt_quantity(value)


def card_html(card: Card) -> str:
    """Rich text: what it is, the formula, the inputs, what it is made of, and what to know."""
    unit = card.value.unit
    rows = [(item.name, figure(item.value, item.unit)) for item in card.inputs]
    for share in card.shares:
        part = f" ({look.fmt_percent(share.of_total)})" if share.of_total is not None else ""
        rows.append((f"of it {share.name}", figure(share.value, unit) + part))
    lines = "".join(
        f"<tr><td>{escape(name)}&nbsp;&nbsp;</td><td align='right'><b>{escape(value)}</b></td></tr>"
        for name, value in rows
    )
    tail = f"<p>{escape(card.note)}</p>" if card.note else ""
    title = f"{card.title}: {figure(card.value.value, unit)}"
    return f"<p><b>{escape(title)}</b><br>{escape(card.formula)}</p><table>{lines}</table>{tail}"


def caveats(result: CostResult) -> tuple[str, ...]:
    """What a reader of all numbers must know, a sentence each: as the commands print them below their tables."""
    return tuple(
        " ".join(part for part in (f"{where}: {what}." if where else f"{what}.", lever) if part)
        for where, what, lever in result.warnings
    )


def caveat_badge(count: int) -> str:
    """``⚠ 1 caveat``; empty for none."""
    return f"⚠ {count:,} caveat{'s' * (count != 1)}" if count else ""


def caveat_tip(sentences: tuple[str, ...]) -> str:
    """Rich text of some caveats: rich, so that long sentences wrap."""
    shown = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences[:MOST_CAVEATS])
    more = len(sentences) - MOST_CAVEATS
    return shown + (f"<p>and {more:,} more.</p>" if more > 0 else "")


def spill(result: CostResult, index: int) -> str:
    """``spills 448 MiB to buffer``, whether the tool chose that, and what would relieve it; "" where none is."""
    use = result.groups[index].registers
    if not use.spilled_bytes:
        return ""
    words = f"spills {look.fmt_bytes(use.spilled_bytes)} to {use.spill_to}"
    chosen = not result.request.plan.groups[index].levels
    words += ", a time that the choice counts in" if chosen else ""
    return f"{words}. {'To avoid it' if chosen else 'Try'}: {use.relief}" if use.relief else words
