"""Tiles, loop orders and retention of every group of a plan, for one objective; boundaries stay as they are.

Knows requests, groups and the search of least traffic; the only door of this room that commands need. Whatever is found
is a plan that `simulate` counts: a group's own choice (docs/loop-tree.md, section 6) is replaced only by a better one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..cost.problem import pose
from ..cost.result import CostRequest, CostResult, GroupResult
from ..cost.simulate import GroupCache, simulate
from ..cost.solve import unmapped
from ..cost.unify import unify
from ..cost.units import Machine
from ..graph.graph import OpKind
from ..plan.plan import FusionGroup, Plan
from .least import MOST_EVALUATIONS, Least, least_traffic

OBJECTIVES = ("traffic", "latency", "energy")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A plan, what it costs, and how far the search went.

    Attributes
    ----------
    result : of the plan that was found, which stands in its request; ``before``: of the plan that it began with.
    exact : whether no tiles, orders and depths of these groups move less; only ever for "traffic".
    gap : traffic over what no plan of these groups goes below, less 1; None for other objectives, and where a cache
        holds more than that.
    evaluations : mappings that were bounded or counted.
    kept : groups (by index) that stay as they were: their knobs are the user's, or nothing could be searched.
    """

    result: CostResult
    before: CostResult
    objective: str
    exact: bool
    gap: float | None
    evaluations: int
    seconds: float
    kept: tuple[int, ...]


def tune_tiles(
    request: CostRequest,
    objective: str = "traffic",
    dividing: bool = False,
    evaluations: int | None = None,
    budget_s: float | None = None,
) -> Tuned:
    """Search the mapping of every group of `request.plan` that has no knobs.

    Deterministic unless a budget cuts it off. Never worse than what the tool chooses by itself, as far as that has
    the tiles that are asked for.

    Parameters
    ----------
    objective : one of `OBJECTIVES`; for latency and energy the best of a few: the tool's choice, and the mappings of
        least traffic with one and with two stages.
    dividing : only tiles that divide their extents.
    evaluations : of all groups together; None: as many as the search needs, up to a limit per group.
    budget_s : seconds after which no further group is begun.

    Raises
    ------
    FileError, PlanError
        As `simulate`.
    """
    began = time.perf_counter()
    cache = GroupCache()
    own = simulate(request, cache)
    search = _Search(request, dividing, evaluations)
    found: list[list[Least]] = []
    for group in request.plan.groups:
        late = budget_s is not None and time.perf_counter() - began > budget_s
        found.append([] if late else list(search.found(group, objective)))
    groups = list(request.plan.groups)
    results = list(
        own.groups[: len(groups)]
    )  # replays follow, and have the tiles of the groups that they run again
    proven = [False] * len(groups)
    trials = [
        [replace(knobs, recompute=group.recompute) for least in each for knobs in (least.group, least.roomy)]
        for group, each in zip(groups, found, strict=True)
    ]
    for turn in range(max(map(len, trials), default=0)):
        tried = [
            trial[turn] if turn < len(trial) else group for trial, group in zip(trials, groups, strict=True)
        ]
        counted = simulate(replace(request, plan=Plan.of(tried)), cache).groups
        for i, result in enumerate(counted[: len(groups)]):
            if turn >= len(trials[i]):
                continue
            if turn == 0:
                proven[i] = found[i][0].exact and _moved(request, result) == found[i][0].bytes
            unasked = turn == 0 and dividing and result.feasible and not _divides(results[i])
            if unasked or _score(request, result, objective) < _score(request, results[i], objective):
                groups[i], results[i] = tried[i], result
    proven = [
        sure and _moved(request, result) == least[0].bytes if least else sure
        for sure, result, least in zip(proven, results, found, strict=True)
    ]
    result = simulate(replace(request, plan=Plan.of(groups)), cache)
    gap = None
    if objective == "traffic":
        moved = sum(_moved(request, group) for group in result.groups)
        bound = sum(
            _moved(request, group) if i < len(proven) and proven[i] else group.lower_bound_bytes
            for i, group in enumerate(result.groups)
        )
        # A cache may hold what the bound of a group alone counts as fetched: there is nothing to compare with then.
        gap = None if moved < bound else moved / bound - 1.0 if bound else 0.0
    idle = [group.launches == 0 for group in result.groups[: len(groups)]]
    return Tuned(
        result=result,
        before=own,
        objective=objective,
        exact=objective == "traffic" and all(a or b for a, b in zip(proven, idle, strict=True)),
        gap=gap,
        evaluations=search.evaluations,
        seconds=time.perf_counter() - began,
        kept=tuple(i for i, (least, rest) in enumerate(zip(found, idle, strict=True)) if not (least or rest)),
    )


class _Search:
    """Mappings of least traffic of one request's groups; those of one structure are searched once."""

    def __init__(self, request: CostRequest, dividing: bool, evaluations: int | None) -> None:
        self.request, self.dividing = request, dividing
        self.machine = Machine(request.accelerator).around[0]  # what passes the outermost buffer
        self.left = evaluations
        self.evaluations = 0
        self.memo = {}

    def found(self, group: FusionGroup, objective: str) -> Iterator[Least]:
        """Mappings of least traffic, the one with single tiles first; none where a group stays as it is."""
        graph = self.request.graph
        members = [graph.operators[i] for i in group.operators]
        group = replace(group, recompute=())
        if group.has_knobs or all(op.kind is OpKind.VIEW for op in members) or unmapped(graph, group):
            return
        try:
            space = unify(graph, group.operators)
            problem = pose(graph, group, space, self.machine, self.request.precision)
        except OverflowError:
            return
        double = self.machine.accelerator.buffer.double_buffer
        for stages in (1, 2) if double and objective != "traffic" else (1,):
            most = MOST_EVALUATIONS if self.left is None else min(MOST_EVALUATIONS, self.left)
            found = least_traffic(problem, group, self.dividing, stages, most, self.memo)
            if found is None:
                continue
            self.evaluations += found.evaluations
            if self.left is not None:
                self.left -= found.evaluations
            yield found


def _moved(request: CostRequest, group: GroupResult) -> int:
    return sum(group.dram_bytes(request.accelerator.dram.name))


def _score(request: CostRequest, group: GroupResult, objective: str) -> tuple[float, ...]:
    """Less is better: what fits, then the objective, then traffic, then latency, then footprint."""
    first = {"traffic": 0.0, "latency": group.latency_s, "energy": group.energy_j}[objective]
    held = group.footprint_bytes[0][1] if group.footprint_bytes else 0
    return not group.feasible, first, _moved(request, group), group.latency_s, held


def _divides(group: GroupResult) -> bool:
    """Whether every tile of a group divides its extent."""
    extents = dict(group.dims)
    return all(extents[dim] % size == 0 for level in group.levels for dim, size in level.tile)
