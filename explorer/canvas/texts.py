"""Texts that are drawn again and again, kept ready: layout of a word takes longer than drawing it.

Knows Qt's fonts. Must not know what the words are about.
"""

from __future__ import annotations

from functools import cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF, QStaticText, QTransform

from .. import look

_MOST = 4000


@cache
def font(pixels: int, *, strong: bool = False) -> QFont:
    """Asking the system for a font takes longer than drawing a word with it."""
    return look.font(pixels, strong=strong)


def made(text: str, pixels: int, strong: bool) -> tuple[QStaticText, float]:
    """A text to be drawn many times, and its width."""
    static = QStaticText(text)
    static.setTextFormat(Qt.TextFormat.PlainText)
    static.setPerformanceHint(QStaticText.PerformanceHint.AggressiveCaching)
    face = font(pixels, strong=strong)
    static.prepare(QTransform(), face)
    return static, QFontMetricsF(face).horizontalAdvance(text) if text else 0.0


def elided(text: str, pixels: int, room: float, *, strong: bool = False, middle: bool = False) -> str:
    """`text` cut at its end, or in the middle, to a width."""
    # Names of thousands of characters are cut before they are measured.
    metrics = QFontMetricsF(font(pixels, strong=strong))
    mode = Qt.TextElideMode.ElideMiddle if middle else Qt.TextElideMode.ElideRight
    return metrics.elidedText(text if len(text) <= 200 else text[:200], mode, room)


class Texts:
    """Texts by what they say and how large; the oldest are not told from the newest when they become too many."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, bool], tuple[QStaticText, float]] = {}

    def get(self, text: str, pixels: int, strong: bool = False) -> tuple[QStaticText, float]:
        """A text and its width."""
        key = (text, pixels, strong)
        if key not in self._kept:
            if len(self._kept) > _MOST:
                self._kept.clear()
            self._kept[key] = made(text, pixels, strong)
        return self._kept[key]
