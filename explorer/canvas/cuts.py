"""Where the boundary between two groups may lie: the operators on both sides in the order of the flow.

Knows the graph, a plan and where boxes lie. Must not know Qt. A `CutTrack` turns a pointer into a number of
operators that change sides, and that number into an edit; whether it is legal is the plan's room to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph
from model.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class CutTrack:
    """The ways one boundary can go.

    Attributes
    ----------
    upper : operators above the boundary, nearest first: those that go below when it moves up.
    lower : operators below it, nearest first; empty at a hull that nothing reads.
    up_at, down_at : per operator of `upper` and `lower` the height that the pointer must pass.
    """

    upper: tuple[int, ...]
    lower: tuple[int, ...]
    up_at: tuple[float, ...]
    down_at: tuple[float, ...]

    @staticmethod
    def between(
        graph: OperatorGraph,
        boxes: NDArray[np.float64],
        upper: tuple[int, ...],
        lower: tuple[int, ...],
        at: float,
    ) -> CutTrack:
        """The track of the boundary that lies at height `at` between the operators of two groups."""
        start, target = graph.successors
        readers = {o: target[start[o] : start[o + 1]].tolist() for o in (*upper, *lower)}
        sources: dict[int, list[int]] = {o: [] for o in (*upper, *lower)}
        for producer, found in readers.items():
            for consumer in found:
                if consumer in sources:
                    sources[consumer].append(producer)
        middle = {o: float(boxes[o, 1] + boxes[o, 3]) / 2 for o in (*upper, *lower)}
        down = _flow(lower, upper, sources, readers, middle, 1.0)
        up = _flow(upper, lower, readers, sources, middle, -1.0)
        return CutTrack(
            up,
            down,
            _heights(boxes, up, at, -1.0),
            _heights(boxes, down, at, 1.0),
        )

    def step_at(self, y: float) -> int:
        """How many operators change sides with the pointer at `y`: positive go up, negative go down."""
        down = int(np.searchsorted(self.down_at, y, side="right"))
        return down or -int(np.sum(np.array(self.up_at) > y))

    def candidate(self, graph: OperatorGraph, plan: Plan, step: int) -> Plan:
        """The plan with the boundary moved by `step` operators; raises `Refusal` where that is not legal."""
        from model.plan import edits  # Numba: not before the window is up

        if step == 0:
            return plan
        if step > 0:
            return edits.move(graph, plan, self.lower[:step], self.upper[0])
        if self.lower:
            return edits.move(graph, plan, self.upper[:-step], self.lower[0])
        return edits.split(graph, plan, self.upper[:-step])


def _flow(
    members: tuple[int, ...],
    others: Iterable[int],
    before: dict[int, list[int]],
    after: dict[int, list[int]],
    middle: dict[int, float],
    direction: float,
) -> tuple[int, ...]:
    """`members` as the boundary passes them: along the flow, neighbours of what was passed first."""
    inside = set(members)
    passed = set(others)
    waiting = {o: sum(1 for other in before[o] if other in inside) for o in members}
    ready = [o for o in members if not waiting[o]]
    out: list[int] = []
    while ready:
        ready.sort(key=lambda o: (not passed.intersection(before[o] + after[o]), direction * middle[o], o))
        taken = ready.pop(0)
        out.append(taken)
        passed.add(taken)
        for other in after[taken]:
            if other in waiting:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
    return tuple(out)


def _heights(
    boxes: NDArray[np.float64], operators: tuple[int, ...], at: float, direction: float
) -> tuple[float, ...]:
    """The height at which each operator changes sides: its middle; operators of one row share its height."""
    out: list[float] = []
    last = at
    for position, operator in enumerate(operators):
        top, bottom = float(boxes[operator, 1]), float(boxes[operator, 3])
        row = [o for o in operators if boxes[o, 1] == boxes[operator, 1]]
        place = sum(1 for o in operators[:position] if boxes[o, 1] == boxes[operator, 1])
        share = (place + 1) / (len(row) + 1)
        wanted = top + (bottom - top) * (share if direction > 0 else 1 - share)
        last = max(last, wanted) if direction > 0 else min(last, wanted)
        out.append(last)
    return tuple(out)
