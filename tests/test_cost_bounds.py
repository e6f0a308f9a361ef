"""Properties that hold for every kind of group on every kind of machine: bounds, monotony, and sums of parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost.evaluate import evaluate
from model.cost.nest import Nest, NestAxis, NestOperator, WindowAxis
from model.cost.profile import service_phases
from model.cost.result import CostRequest, CostResult, GroupResult
from model.cost.simulate import simulate
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator
from model.plan.plan import FusionGroup, LevelTile, Plan
from model.search.tune import tune_tiles
from tests.cost_graphs import one_buffer
from tests.mixed_graphs import bare_machines, cached, graphs, machines
from tests.random_nests import random_nest


def together(graph: OperatorGraph, **knobs: object) -> Plan:
    return Plan.of([FusionGroup(tuple(range(len(graph.operators))), **knobs)])  # type: ignore[arg-type]


def cut(graph: OperatorGraph, data: st.DataObject) -> Plan:
    """The operators in file order, cut into groups at random."""
    edges = [i for i in range(1, len(graph.operators)) if data.draw(st.booleans())]
    return Plan.of([FusionGroup(tuple(range(a, b))) for a, b in pairwise([0, *edges, len(graph.operators)])])


def moved(result: CostResult, group: GroupResult) -> int:
    return sum(group.dram_bytes(result.request.accelerator.dram.name))


def drawn_tile(graph: OperatorGraph, machine: Accelerator, data: st.DataObject) -> LevelTile:
    """Some sizes for some dims of all operators in one group."""
    dims = simulate(CostRequest(graph, machine, together(graph))).groups[0].dims
    sizes = {name: data.draw(st.integers(1, size)) for name, size in dims if data.draw(st.booleans())}
    return LevelTile(machine.buffer.name, tuple(sizes.items()))


@settings(deadline=None, max_examples=100)
@given(graphs, machines, st.data())
def test_a_group_moves_at_least_its_inputs_and_outputs_once(
    graph: OperatorGraph, machine: Accelerator, data: st.DataObject
) -> None:
    """A group alone: no cache has anything of it before, and its outputs are the graph's."""
    tiles = [LevelTile(machine.buffer.name), drawn_tile(graph, machine, data)]
    for level in tiles:
        result = simulate(CostRequest(graph, machine, together(graph, levels=(level,))))
        (group,) = result.groups
        assert moved(result, group) >= group.compulsory_bytes
        assert moved(result, group) >= group.lower_bound_bytes
        assert group.energy_j >= group.compulsory_bytes * machine.dram.energy_j_per_byte


@settings(deadline=None, max_examples=100)
@given(graphs, machines, st.data())
def test_what_is_fused_at_equal_tiles_moves_no_more_of_the_fused_tensors(
    graph: OperatorGraph, machine: Accelerator, data: st.DataObject
) -> None:
    """The same tile of every dim, in the group's names in the one plan and in each operator's own in the other."""
    level = drawn_tile(graph, machine, data)
    result = simulate(CostRequest(graph, machine, together(graph, levels=(level,))))
    (group,) = result.groups
    sizes = dict(level.tile)
    alone = Plan.of(
        [
            FusionGroup(
                (op.index,),
                levels=(
                    LevelTile(
                        machine.buffer.name,
                        tuple(
                            (dim.name, min(sizes[name], dim.extent))
                            for dim, name in zip(op.dims, names, strict=True)
                            if name in sizes
                        ),
                    ),
                ),
            )
            for op, names in zip(graph.operators, group.dim_of, strict=True)
        ]
    )
    separate = simulate(CostRequest(graph, machine, alone))
    produced = {access.tensor for op in graph.operators for access in op.outputs}
    inside = {
        tensor for tensor in produced if graph.consumers[tensor] and not graph.tensors[tensor].is_output
    }
    if result.totals.spill_bytes == 0:
        assert outside(result, inside) == 0
    if not any(group.spill_bytes for group in (*result.groups, *separate.groups)):
        assert outside(result, inside) <= outside(separate, inside)


def outside(result: CostResult, tensors: set[int]) -> int:
    """Bytes of these tensors that pass the outermost level."""
    dram = result.request.accelerator.dram.name
    return sum(
        row.read_bytes + row.write_bytes
        for group in result.groups
        for row in group.traffic
        if row.outer == dram and row.tensor in tensors
    )


# Footprint.


def plain_room(nest: Nest) -> Nest:
    """The nest where nothing but tiles takes room: one stage, no wider sums, no statistics, nothing in place, no lines.

    Each of these may take less room with a larger tile: what is fetched once needs one copy, sums that are finished
    are narrow, a loop of one trip needs no line buffer.
    """

    def still(axis: NestAxis) -> NestAxis:
        return replace(axis, rolling=False) if isinstance(axis, WindowAxis) else axis

    def bare(op: NestOperator) -> NestOperator:
        def settled(accesses):  # type: ignore[no-untyped-def]
            return tuple(replace(a, axes=tuple(map(still, a.axes))) for a in accesses)

        return replace(
            op,
            pointwise=False,
            statistics=0,
            reads=settled(op.reads),
            writes=settled(op.writes),
            domain=tuple(replace(axis, rolling=False) for axis in op.domain),
        )

    tensors = tuple(replace(tensor, partial_bits=tensor.bits) for tensor in nest.tensors)
    return replace(nest, stages=1, operators=tuple(map(bare, nest.operators)), tensors=tensors, splits=())


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 1 << 20), st.data())
def test_larger_tiles_take_no_less_room(seed: int, data: st.DataObject) -> None:
    """A loop's step grows while it still takes several: the same tree, the same depths, no smaller footprint."""
    nest = plain_room(random_nest(seed))

    def around(loop: int) -> list[int]:
        parent = nest.loops[loop][2]
        return [] if parent < 0 else [*around(parent), parent]

    room: list[tuple[int, int]] = []
    for loop, (dim, step, _) in enumerate(nest.loops):
        ranges = [nest.loops[other][1] for other in around(loop) if nest.loops[other][0] == dim]
        whole = min([nest.extents[dim], *ranges])
        inner = any(loop in around(other) and nest.loops[other][0] == dim for other in range(len(nest.loops)))
        if step < whole - 1 and not inner:
            room.append((loop, whole))
    if not room:
        return
    loop, whole = data.draw(st.sampled_from(room))
    dim, step, parent = nest.loops[loop]
    larger = data.draw(st.integers(step, whole - 1))
    loops = (*nest.loops[:loop], (dim, larger, parent), *nest.loops[loop + 1 :])
    small, large = evaluate(nest), evaluate(replace(nest, loops=loops))
    assert all(a <= b for a, b in zip(small.footprint_bytes, large.footprint_bytes, strict=True))


# Capacity.


@settings(deadline=None, max_examples=25)
@given(graphs, st.lists(st.integers(60, 6000), min_size=2, max_size=3, unique=True))
def test_a_larger_buffer_moves_no_more_at_the_least(graph: OperatorGraph, capacities: list[int]) -> None:
    before = None
    for capacity in sorted(capacities):
        tuned = tune_tiles(CostRequest(graph, one_buffer(capacity), together(graph), "int8"))
        now = sum(moved(tuned.result, group) for group in tuned.result.groups)
        if not tuned.exact or not tuned.result.totals.feasible:
            continue
        assert before is None or now <= before
        before = now


# Sums.


@settings(deadline=None, max_examples=100)
@given(graphs, machines, st.data())
def test_time_energy_and_bytes_of_a_plan_are_those_of_its_groups(
    graph: OperatorGraph, machine: Accelerator, data: st.DataObject
) -> None:
    result = simulate(CostRequest(graph, machine, cut(graph, data)))
    totals, groups, dram = result.totals, result.groups, machine.dram.name
    assert totals.energy_j == pytest.approx(sum(g.energy_j for g in groups))
    assert totals.dram_read_bytes == sum(g.dram_bytes(dram)[0] for g in groups)
    assert totals.dram_write_bytes == sum(g.dram_bytes(dram)[1] for g in groups)
    busy = sum(round(g.latency_s * 1e9) for g in groups)
    assert round(totals.latency_s * 1e9) == busy + round(totals.launch_s * 1e9)
    for group in groups:
        phases = group.phases
        assert int(phases["bytes"].sum()) == moved(result, group)
        launched = int(phases["base_ns"][phases["kind"] == 0].sum())
        assert int(phases["base_ns"].sum()) - launched == round(group.latency_s * 1e9)
        assert (phases["spill"] + phases["refetch"] <= phases["bytes"]).all()
        assert all((phases[column] >= 0).all() for column in ("base_ns", "bytes", "spill", "refetch"))
    profile = service_phases(result)
    assert int(profile["base_ns"].sum()) == round(totals.latency_s * 1e9)
    assert int(profile["bytes"].sum()) == totals.dram_read_bytes + totals.dram_write_bytes


@settings(deadline=None, max_examples=60)
@given(graphs, bare_machines, st.data())
def test_a_group_costs_the_same_in_every_plan_where_no_cache_is_between(
    graph: OperatorGraph, machine: Accelerator, data: st.DataObject
) -> None:
    """Time, energy and traffic of a group do not depend on the groups around it: nothing overlaps."""
    found: dict[tuple[int, ...], tuple[float, float, int]] = {}
    for _ in range(2):
        result = simulate(CostRequest(graph, machine, cut(graph, data)))
        for group in result.groups:
            cost = group.latency_s, group.energy_j, moved(result, group)
            assert found.setdefault(group.operators, cost) == cost


@settings(deadline=None, max_examples=60)
@given(graphs, st.integers(1, 4), st.data())
def test_a_larger_cache_never_lets_more_through(
    graph: OperatorGraph, cores: int, data: st.DataObject
) -> None:
    """One group, its tiles and its loop order given: whoever found a tile finds it still."""
    dims = simulate(CostRequest(graph, cached(1, 2048, cores=cores), together(graph))).groups[0].dims
    tile = {name: data.draw(st.integers(1, size)) for name, size in dims}
    order = tuple(name for name, size in dims if tile[name] < size)
    before = None
    for capacity in (1 << 6, 1 << 9, 1 << 12, 1 << 20):
        machine = cached(capacity, 2048, cores=cores)
        level = LevelTile(machine.buffer.name, tuple(tile.items()), order)
        result = simulate(CostRequest(graph, machine, together(graph, levels=(level,), stages=1)))
        now = moved(result, result.groups[0])
        assert before is None or now <= before
        before = now
