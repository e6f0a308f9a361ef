"""A measured speed: its samples, the goal beside it, and how it is printed. Knows nothing of what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .terminal import TOOL, columns, print_json, quantity


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: samples in seconds a call, or in calls a second where ``rate``; ``goal`` in the same unit."""

    name: str
    samples: tuple[float, ...]
    goal: float | None
    unit: str = "s"
    rate: bool = False

    @property
    def median(self) -> float:
        """The middle sample."""
        return float(np.median(self.samples))

    @property
    def slow(self) -> float:
        """The sample that 95 % are at least as good as (nearest rank)."""
        order = sorted(self.samples, reverse=self.rate)
        return order[max(0, -(-95 * len(order) // 100) - 1)]

    @property
    def ratio(self) -> float | None:
        """How many times better than the goal the median is; below 1 the goal is missed."""
        if self.goal is None:
            return None
        return self.median / self.goal if self.rate else self.goal / self.median


def timed(rounds: int, work: Callable[[], object]) -> tuple[float, ...]:
    """Seconds of each of `rounds` calls, after one that is not counted."""
    work()
    out: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        out.append(time.perf_counter() - began)
    return tuple(out)


def report(rows: Sequence[Measurement], *, as_json: bool) -> None:
    """Print measurements as a table or as one JSON document."""
    if as_json:
        print_json(
            {
                "format": 1,
                "tool": TOOL,
                "rows": [
                    {
                        "name": row.name,
                        "unit": row.unit,
                        "median": row.median,
                        "p95": row.slow,
                        "samples": len(row.samples),
                        "goal": row.goal,
                        "times_better_than_goal": row.ratio,
                    }
                    for row in rows
                ],
            }
        )
        return
    table = [("", "median", "95 % within", "goal", "times better", "samples")]
    for row in rows:
        goal = "-" if row.goal is None else quantity(row.goal, row.unit, 3)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        table.append(
            (
                row.name,
                quantity(row.median, row.unit, 3),
                quantity(row.slow, row.unit, 3),
                goal,
                ratio,
                str(len(row.samples)),
            )
        )
    print(columns(table, right=(1, 2, 3, 4, 5)))
