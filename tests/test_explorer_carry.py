"""A plan carried over to other numbers for symbolic dims."""

from __future__ import annotations

from dataclasses import replace

from model.plan.carry import carried
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan

from . import made_results

TILED = LevelTile("buffer", (("m", 128),), ("m", "n"))


def tiled_plan() -> Plan:
    groups = made_results.plan().groups
    return Plan((replace(groups[0], levels=(TILED,), stages=2, parallel=(("m", 4),)), *groups[1:]))


def test_the_same_extents_keep_everything():
    graph = made_results.chain()
    found = carried(graph, tiled_plan(), made_results.chain())
    assert found is not None and found.plan == tiled_plan()
    assert (found.apart, found.untiled) == (0, 0)


def test_other_extents_drop_tile_sizes_and_keep_groups_orders_and_stages():
    found = carried(made_results.chain(), tiled_plan(), made_results.chain(rows=64))
    assert found is not None and (found.apart, found.untiled) == (0, 1)
    first = found.plan.groups[0]
    assert first == FusionGroup((0, 1, 2), levels=(LevelTile("buffer", (), ("m", "n")),), stages=2)
    assert found.plan.groups[1:] == made_results.plan().groups[1:]
    assert "Tile sizes of 1 " in found.sentence()


def test_a_group_that_lost_an_operator_comes_apart():
    shorter = made_results.chain(made_results.TYPES[:8])
    found = carried(made_results.chain(), tiled_plan(), shorter)
    assert found is not None and found.apart == 1
    assert [group.operators for group in found.plan.groups] == [(0, 1, 2), (3, 4), (5,), (6,), (7,)]
    assert found.plan.groups[0] == tiled_plan().groups[0]


def test_what_is_not_legal_is_not_carried():
    graph = made_results.chain()
    ends = Plan.of([FusionGroup((0, 9)), *(group for group in unfused(graph).groups[1:-1])])
    assert carried(graph, ends, graph) is None
