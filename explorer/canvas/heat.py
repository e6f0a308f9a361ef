"""DRAM bytes of every operator, and the colour scale that they are shown on.

Knows a cost result. Must not know colours or widgets. A tensor that crosses the DRAM boundary is charged to
the operators that touch it: writes to its producer, reads to the first operator of the group that reads it,
as in the traffic panel; so the operators of a group sum to the group's traffic.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from model.cost.result import CostResult, GroupResult
from model.graph.graph import OperatorGraph

STEPS = 32
"""Colours that operators are drawn with: boxes of one colour are drawn in one call."""
UNKNOWN = -1


class OperatorTraffic:
    """Bytes per operator of the newest result, and the scale from least to most."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._shares: dict[tuple[int, int], tuple[object, list[int], list[float]]] = {}
        self._touched: list[frozenset[int]] = [
            frozenset(access.tensor for access in operator.inputs) for operator in graph.operators
        ]
        self.memory = "DRAM"
        self.bytes: NDArray[np.float64] = np.full(len(graph.operators), np.nan)
        self.low = self.high = 0.0
        self.frozen = False
        """Whether the scale stays as it is: during a drag, so that colours can be compared."""

    @property
    def known(self) -> bool:
        """Whether there is a result to show."""
        return self.high > 0

    def update(self, result: CostResult | None) -> None:
        """Take another result, or none. Groups that did not change are not added up again."""
        if result is None:
            self._shares = {}
            self.bytes = np.full(len(self._graph.operators), np.nan)
            self.low = self.high = 0.0
            return
        self.memory = result.request.accelerator.dram.name
        shares: dict[tuple[int, int], tuple[object, list[int], list[float]]] = {}
        operators: list[int] = []
        amounts: list[float] = []
        for group in result.groups:
            # By the traffic and not by the result: a group that only starts later has the same traffic. It is
            # kept beside its shares, so that its id cannot be given to another one.
            key = (group.operators[0], id(group.traffic))
            entry = self._shares.get(key) or (group.traffic, *self._share(group))
            shares[key] = entry
            operators += entry[1]
            amounts += entry[2]
        self._shares = shares
        self.bytes = np.full(len(self._graph.operators), np.nan)
        self.bytes[operators] = amounts
        if not (self.frozen and self.known):
            self._scale()

    def _share(self, group: GroupResult) -> tuple[list[int], list[float]]:
        amount = dict.fromkeys(group.operators, 0.0)
        for row in group.traffic:
            if row.outer != self.memory:
                continue
            producer = int(self._graph.producer[row.tensor])
            writer = producer if producer in amount else group.operators[0]
            amount[writer] += row.write_bytes
            reads = (operator for operator in group.operators if row.tensor in self._touched[operator])
            amount[next(reads, writer)] += row.read_bytes
        return list(amount), list(amount.values())

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
