"""DRAM bytes of every operator and of every closed block, and the colour scale that they are shown on.

Knows a result's digest, which charges a tensor that crosses the DRAM boundary to the operators that touch it.
Must not know colours or widgets.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..digest import Digest

STEPS = 32
"""Colours that operators are drawn with: boxes of one colour are drawn in one call."""
UNKNOWN = -1


class OperatorTraffic:
    """Bytes per operator of the newest result, and the scale from least to most."""

    def __init__(self, operators: int) -> None:
        self._nothing = np.full(operators, np.nan)
        self.memory = "DRAM"
        self.bytes: NDArray[np.float64] = self._nothing
        self._steps: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # of operators, of blocks
        self._slot_of = np.full(operators, -1, dtype=np.int64)
        self.block_bytes: NDArray[np.float64] = np.zeros(0)  # of closed blocks, the sum over their operators
        self.low = self.high = 0.0
        self.frozen = False
        """Whether the scale stays as it is: during a drag, so that colours can be compared."""

    @property
    def known(self) -> bool:
        """Whether there is a result to show."""
        return self.high > 0

    def fold(self, slot_of: NDArray[np.int64], blocks: int) -> None:
        """So many blocks are closed; `slot_of` says which operators they hold, -1 for none."""
        self._slot_of = slot_of
        self.block_bytes = np.full(blocks, np.nan)
        self._sum()

    def _sum(self) -> None:
        """The blocks' sums and, unless it is frozen, the scale of all that is seen."""
        inside = self._slot_of >= 0
        if inside.any() and self.bytes is not self._nothing:
            amounts = np.nan_to_num(self.bytes[inside])
            sums = np.zeros(len(self.block_bytes))
            np.add.at(sums, self._slot_of[inside], amounts)
            self.block_bytes = sums
        else:
            self.block_bytes = np.full(len(self.block_bytes), np.nan)
        if not (self.frozen and self.known):
            self._scale()
        self._steps = None

    def update(self, digest: Digest | None) -> None:
        """Take another result, or none."""
        if digest is None:
            self.bytes = self._nothing
            self._sum()
            return
        self.memory = digest.result.request.accelerator.dram.name
        self.bytes = digest.operator_bytes
        self._sum()

    def _scale(self) -> None:
        seen = np.concatenate([self.bytes[self._slot_of < 0], self.block_bytes])
        some = seen[seen > 0]
        if not len(some):
            self.low = self.high = 0.0
            return
        self.high = float(some.max())
        # Six decades are what the eye can tell apart; the crumbs below share the darkest colour.
        self.low = max(float(some.min()), self.high * 1e-6)
        if self.low == self.high:
            self.low = self.high / 2

    def steps(self) -> NDArray[np.int64]:
        """Per operator its colour, 0 to `STEPS` - 1, `UNKNOWN` where there is no result. Not to be changed."""
        return self._both()[0]

    def block_steps(self) -> NDArray[np.int64]:
        """Per closed block its colour. Not to be changed."""
        return self._both()[1]

    def _both(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._steps is None:
            self._steps = self._colours(self.bytes), self._colours(self.block_bytes)
        return self._steps

    def _colours(self, amounts: NDArray[np.float64]) -> NDArray[np.int64]:
        out = np.full(len(amounts), UNKNOWN, dtype=np.int64)
        known = ~np.isnan(amounts)
        if self.high <= 0:
            out[known] = 0
            return out
        span = math.log(self.high / self.low)
        share = np.log(np.maximum(amounts[known], self.low) / self.low) / span
        out[known] = np.clip(np.round(share * (STEPS - 1)), 0, STEPS - 1).astype(np.int64)
        return out
