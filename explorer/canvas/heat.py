"""DRAM bytes of every operator, and the colour scale that they are shown on.

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
        self.low = self.high = 0.0
        self.frozen = False
        """Whether the scale stays as it is: during a drag, so that colours can be compared."""

    @property
    def known(self) -> bool:
        """Whether there is a result to show."""
        return self.high > 0

    def update(self, digest: Digest | None) -> None:
        """Take another result, or none."""
        if digest is None:
            self.bytes = self._nothing
            self.low = self.high = 0.0
            return
        self.memory = digest.result.request.accelerator.dram.name
        self.bytes = digest.operator_bytes
        if not (self.frozen and self.known):
            self._scale()

    def _scale(self) -> None:
        some = self.bytes[self.bytes > 0]
        if not len(some):
            self.low = self.high = 0.0
            return
        self.high = float(some.max())
        # Six decades are what the eye can tell apart; the crumbs below share the darkest colour.
        self.low = max(float(some.min()), self.high * 1e-6)
        if self.low == self.high:
            self.low = self.high / 2

    def steps(self) -> NDArray[np.int64]:
        """Per operator its colour, 0 to `STEPS` - 1, `UNKNOWN` where there is no result."""
        out = np.full(len(self.bytes), UNKNOWN, dtype=np.int64)
        known = ~np.isnan(self.bytes)
        if self.high <= 0:
            out[known] = 0
            return out
        span = math.log(self.high / self.low)
        share = np.log(np.maximum(self.bytes[known], self.low) / self.low) / span
        out[known] = np.clip(np.round(share * (STEPS - 1)), 0, STEPS - 1).astype(np.int64)
        return out
