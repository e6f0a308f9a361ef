"""The cost of a whole graph under one plan: groups solved once per structure, launched in order, summed.

Knows every other part of this room; the only door that others need. A result is a pure function of its request:
a `GroupCache` makes it faster and never different.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..graph.graph import OperatorGraph
from ..plan.plan import FusionGroup
from .remembered import Facts, GroupCache, Run, Scope
from .result import PHASE_DTYPE, CostRequest, CostResult, GroupResult, LevelMapping, Traffic
from .solution import Solution
from .sums import Sums, launch_overhead_reduction


def simulate(
    request: CostRequest, cache: GroupCache | None = None, *, with_unfused: bool = True
) -> CostResult:
    """The cost of `request.plan`, and of the unfused plan beside it.

    Parameters
    ----------
    cache : remembers solved groups between calls; the result is the same without one.
    with_unfused : False: nothing is solved for the unfused plan, and the result only tells of it what the cache
        knows; `beside_unfused` adds the rest.

    Raises
    ------
    FileError
        Where the graph can only be looked at: a cycle, a tensor with two writers, sizes beyond counting.
    PlanError
        Where a group's loop tree is not legal or cannot be read.
    """
    if request.graph.refusal:
        raise FileError(
            f"{request.graph.refusal}, so nothing can be simulated",
            where=request.graph.path or request.graph.name,
            lever="Export the model again; `tilewright inspect` and the window still show it.",
        )
    began = time.perf_counter()
    kept = cache is not None
    cache = GroupCache() if cache is None else cache
    before = cache.evaluated
    with _no_collection():
        scope = cache.scope(request)
        if with_unfused:
            for _ in cache.solve_unfused(scope):
                pass
        baseline, run = scope.baseline, cache.run_of(request, scope)
        scope, order = run.scope, run.launches
        groups = [run.plan.groups[i] for i in order] if run.order else run.plan.groups
        cold: list[Solution] = []
        for group in groups:
            known = scope.cold.get(group.operators[0])
            if known is None or (known[0] is not group and known[0] != group):
                known = scope.cold[group.operators[0]] = (group, cache.solution(scope, group))
            cold.append(known[1])
        solutions = cache.with_cache(scope, [group.operators for group in groups], cold)
        sums = Sums.of(request.accelerator, solutions, run.again())
        placed = _placed(groups, cache, scope, solutions, sums)
        if run.order:
            placed = _with_replays(run, placed)
        saved, held_bytes = run.saved(request.graph)
        if kept:
            for group in placed:
                _ = group.traffic
    return CostResult(
        request=request,
        groups=placed,
        totals=scope.totals(sums, held_bytes),
        baseline=baseline,
        warnings=_warnings(request, placed, run),
        seconds=time.perf_counter() - began,
        evaluated=cache.evaluated - before,
        order=run.order,
        saved=tuple(saved),
    )


def beside_unfused(result: CostResult, cache: GroupCache) -> Iterator[CostResult | None]:
    """`result` with the unfused plan beside it; a None before it for each structure that is solved on the way.

    Between two of them the cache may serve other requests; where it forgot this one's graph for them, nothing comes.
    """
    scope = cache.scope(result.request)
    for _ in cache.solve_unfused(scope):
        yield None
    if scope.baseline is None:
        return
    reduction = launch_overhead_reduction(
        round(result.totals.launch_s * 1e9), round(scope.baseline.launch_s * 1e9)
    )
    totals = replace(result.totals, launch_overhead_reduction=reduction)
    yield replace(result, totals=totals, baseline=scope.baseline)


@contextmanager
def _no_collection() -> Generator[None, None, None]:
    """Without Python's cyclic collector, which would run over the whole graph several times for some thousand results.

    None of what is made here is part of a cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _placed(
    groups: Sequence[FusionGroup],
    cache: GroupCache,
    scope: Scope,
    solutions: Sequence[Solution],
    sums: Sums,
) -> tuple[GroupResult, ...]:
    """Results of groups in launch order: solutions with names, tensors and starts."""
    last = scope.last
    if len(last) > 2 * len(solutions) + 100:  # entries of groups that were long since split or fused
        last.clear()
        scope.cold.clear()
    out: list[GroupResult] = []
    for group, solution, start_s, delay in zip(
        groups, solutions, sums.starts_s.tolist(), sums.delays_ns.tolist(), strict=True
    ):
        first = group.operators[0]
        known = last.get(first)
        if known is None or known[1] is not solution or known[0].operators != group.operators:
            result = _named(scope, group, solution, start_s, _with_launch(cache, solution, delay))
        elif known[3] != delay:
            result = _copy(known[2], start_s, _with_launch(cache, solution, delay))
        elif known[2].start_s != start_s:
            result = _copy(known[2], start_s, known[2].phases)
        else:
            result = known[2]
        if known is None or result is not known[2] or group is not known[0]:
            last[first] = (group, solution, result, delay)
        out.append(result)
    return tuple(out)


def _with_replays(run: Run, launched: tuple[GroupResult, ...]) -> tuple[GroupResult, ...]:
    """Results in launch order as the plan orders the groups, the replays among them marked as such."""
    out = [result for _, result in sorted(zip(run.order, launched, strict=True), key=lambda pair: pair[0])]
    for index, source in enumerate(run.replays):
        if source >= 0:
            out[index] = marked = _copy(out[index], out[index].start_s, out[index].phases)
            marked.__dict__.update(replays=source, recomputed_macs=marked.macs, operator_bytes=0)
    return tuple(out)


def _with_launch(cache: GroupCache, solution: Solution, delay_ns: int) -> NDArray[np.void]:
    """The profile of a group behind its launch; equal ones are one array."""
    known = cache.launched.get((id(solution), delay_ns))
    if known is not None:
        return known[1]
    found = solution.phases
    if solution.launches:
        found = np.zeros(len(solution.phases) + 1, PHASE_DTYPE)
        found[0] = (0, delay_ns, 0, 0, 0)
        found[1:] = solution.phases
        found.setflags(write=False)
    cache.launched[id(solution), delay_ns] = (solution, found)
    return found


class _Named(GroupResult):
    """A solution under the names of one group.

    It holds what is its own; what all groups of a solution have in common is read from there, and names are looked up
    when someone reads them: an edit moves the start of every later group, and few of many are ever looked at.
    """

    _facts: Facts
    _solution: Solution
    _common: dict[str, object]
    _members: tuple[int, ...]

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["_common"][name]
        except KeyError:
            raise AttributeError(name) from None

    @cached_property
    def tree(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        name, members = self._facts.leaf_name, self._members
        return "".join(
            [part if isinstance(part, str) else name(members[part]) for part in self._solution.tree]
        )

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        tensors = self._facts.original_tensors(self._members)
        return tuple(
            [
                Traffic(tensors[row.tensor], row.outer, row.inner, row.read_bytes, row.write_bytes)
                for row in self._solution.traffic
            ]
        )

    @cached_property
    def resident(self) -> tuple[tuple[int, int], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        tensors = self._facts.original_tensors(self._members)
        found = [(tensors[place] if place >= 0 else place, size) for place, size in self._solution.resident]
        return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))

    @cached_property
    def levels(self) -> tuple[LevelMapping, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        names = [self._facts.graph.tensors[tensor].name for tensor in self._facts.tensors(self._members)]
        return tuple(
            [
                LevelMapping(
                    level.memory,
                    level.tile,
                    level.loop_order,
                    tuple([(names[t], depth) for t, depth in retain]),
                    level.trips,
                )
                for level, retain in zip(self._solution.levels, self._solution.retain, strict=True)
            ]
        )


def _copy(result: GroupResult, start_s: float, phases: NDArray[np.void]) -> _Named:
    """The same result at another start; `dataclasses.replace` would set forty fields one by one."""
    own = result.__dict__.copy()
    own["start_s"] = start_s
    own["phases"] = phases
    out = object.__new__(_Named)
    object.__setattr__(out, "__dict__", own)
    return out


def _named(
    scope: Scope, group: FusionGroup, solution: Solution, start_s: float, phases: NDArray[np.void]
) -> _Named:
    """A solution under the names of one group."""
    common = scope.common.get(id(solution))
    if common is None:
        common = scope.common[id(solution)] = _common(scope.facts, solution)
    out = object.__new__(_Named)
    own: dict[str, object] = {
        "_common": common,
        "operators": scope.facts.originals(group.operators),
        "_members": group.operators,
        "start_s": start_s,
        "phases": phases,
    }
    if solution.warnings:
        where = _label(scope.facts.graph, group.operators)
        own["warnings"] = tuple([(where, what, lever) for what, lever in solution.warnings])
    object.__setattr__(out, "__dict__", own)
    return out


def _common(facts: Facts, solution: Solution) -> dict[str, object]:
    """What all groups of one solution in one graph have in common: `_Named` reads it as its own."""
    own = {"operators", "levels", "tree", "traffic", "start_s", "phases", "warnings", "replays", "resident"}
    derived: dict[str, object] = {
        "latency_s": solution.latency_ns / 1e9,
        "utilisation": solution.ideal_cycles / solution.cycles if solution.cycles > 0.0 else 1.0,
        "_facts": facts,
        "_solution": solution,
    }
    names = {field.name for field in fields(GroupResult)} - own - set(derived)
    return derived | {name: getattr(solution, name) for name in names}


def _label(graph: OperatorGraph, members: tuple[int, ...]) -> str:
    """The group by its operators, as messages name it."""
    names = [graph.operators[i].name for i in members[:2]]
    return ", ".join(names) + (f" and {len(members) - 2} more" if len(members) > 2 else "")


def _too_large(request: CostRequest) -> list[tuple[str, str, str]]:
    """That the outermost level does not hold the weights as stored; groups are judged by the levels below it."""
    dram, held = request.accelerator.dram, request.graph.parameter_bytes
    if request.precision or held <= dram.capacity_bytes:
        return []
    what = f"the weights take {held:,} bytes, {dram.capacity_bytes:,} available; all is simulated as if they fitted"
    return [
        (f"{request.accelerator.name}: {dram.name}", what, "Take a larger machine, or a part of the model.")
    ]


def _precisions(request: CostRequest) -> list[tuple[str, str, str]]:
    """That groups of the plan compute in another type than the unfused plan beside it does."""
    own = request.precision or "the file's types"
    counts = Counter(g.precision for g in request.plan.groups if g.precision not in ("", request.precision))
    return [
        (
            "plan",
            f"{count:,} of {len(request.plan.groups):,} groups compute in {name}, the unfused plan beside it in {own}: "
            "part of the change is the precision's",
            f"Compare at equal precision: --precision {name}.",
        )
        for name, count in counts.items()
    ]


def _warnings(
    request: CostRequest, groups: tuple[GroupResult, ...], run: Run
) -> tuple[tuple[str, str, str], ...]:
    """The graph's, the machine's, the plan's and the groups' warnings; one that many groups share stands once."""
    out = [(w.where, w.what, w.lever) for w in request.graph.warnings]
    out.extend(request.accelerator.warnings)
    out.extend(_too_large(request))
    out.extend(_precisions(request))
    out.extend([(name, f"is not computed again: {why}", "") for name, why in run.kept])
    shared: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for where, what, lever in group.warnings:
            shared.setdefault((what, lever), []).append(where)
    for (what, lever), places in shared.items():
        more = f" and {len(places) - 1} more groups" if len(places) > 1 else ""
        out.append((places[0] + more, what, lever))
    return tuple(out)
