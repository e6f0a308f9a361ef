"""Which pairs of two dims a mask leaves: causal attention, sliding windows. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass

ENDLESS = 1 << 40
"""A window that no pair reaches: the mask bounds one side only."""


@dataclass(frozen=True, slots=True)
class Band:
    """Of the points over the dims numbered ``q`` and ``k`` those with ``0 <= q + offset - k < window``.

    Queries and keys of attention: ``offset`` keys were there before the first query; a causal mask has an
    `ENDLESS` window, a sliding one sees ``window`` keys.
    """

    q: int
    k: int
    offset: int
    window: int = ENDLESS

    def points(self, queries: int, keys: int) -> int:
        """How many pairs it leaves (Python integer)."""
        return _below(queries, keys, self.offset) - _below(queries, keys, self.offset - self.window)

    def seen(self, dim: int, queries: int, keys: int) -> int:
        """How many indices of one of its dims stand in any pair."""
        if dim == self.k:
            low, high, extent = self.offset - self.window + 1, queries + self.offset, keys
        else:
            low, high, extent = -self.offset, keys + self.window - 1 - self.offset, queries
        return max(0, min(extent, high) - max(0, low))

    def whole(self, queries: int, keys: int) -> bool:
        """Whether it leaves every pair: no mask at all."""
        return self.points(queries, keys) == queries * keys


def _below(queries: int, keys: int, shift: int) -> int:
    """Pairs with ``k <= q + shift``: query q sees ``min(max(0, q + shift + 1), keys)``."""

    def up_to(x: int) -> int:
        """Sum of ``min(max(0, y), keys)`` over all ``y <= x``."""
        if x <= keys:
            return max(0, x) * (max(0, x) + 1) // 2
        return keys * (keys + 1) // 2 + (x - keys) * keys

    return up_to(queries + shift) - up_to(shift)


def between(q: int, k: int, past: int, left: int, right: int, keys: int) -> Band | None:
    """The band of ``p - left <= k <= p + right`` at ``p = q + past``; -1 leaves a side open, None: both are."""
    if left < 0 and right < 0:
        return None
    offset = past + right if right >= 0 else past + keys  # no key is so far ahead
    return Band(q, k, offset, ENDLESS if left < 0 else offset - past + left + 1)
