"""The mini case: more fusion is faster alone, and moves more through DRAM than leaving one boundary in."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.cost.profile import contention
from model.cost.result import CostRequest, CostResult
from model.cost.simulate import GroupCache, simulate
from tests import minicase


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CostResult]:
    """The three plans on twelve blocks, with the case's row tiles."""
    graph, machine = minicase.graph_and_machine(tmp_path_factory.mktemp("minicase"), blocks=12)
    cache = GroupCache()
    return {
        name: simulate(CostRequest(graph, machine, minicase.plan(graph, name)), cache)
        for name in minicase.PLANS
    }


def test_every_operator_of_the_block_is_read_as_it_is(tmp_path: Path) -> None:
    graph, _ = minicase.graph_and_machine(tmp_path)
    assert [operator.name for operator in graph.operators] == list(minicase.BLOCK)
    # 4 D D + 2 S D + 2 D F per row: projections, scores and mixing, feed-forward.
    rows, width, hidden = minicase.ROWS, minicase.WIDTH, minicase.HIDDEN
    macs = rows * (4 * width * width + 2 * rows * width + 2 * width * hidden)
    assert sum(operator.macs for operator in graph.operators) == macs


def test_launches_and_feasibility(results: dict[str, CostResult]) -> None:
    assert {name: result.totals.launches for name, result in results.items()} == {
        "mod": 36,
        "max": 12,
        "back": 24,
    }
    assert all(result.totals.feasible for result in results.values())


def test_alone_more_fusion_is_faster(results: dict[str, CostResult]) -> None:
    latency = {name: result.totals.latency_s for name, result in results.items()}
    assert latency["max"] < latency["back"] < latency["mod"]


def test_most_bytes_where_all_is_fused_and_least_with_one_boundary_back(
    results: dict[str, CostResult],
) -> None:
    moved = {
        name: result.totals.dram_read_bytes + result.totals.dram_write_bytes
        for name, result in results.items()
    }
    assert moved["max"] > 1.1 * moved["mod"] and moved["mod"] > 1.3 * moved["back"]
    # What is moved again is there for one reason: the weights that no longer stay.
    again = {
        name: sum(int(group.phases["refetch"].sum()) for group in result.groups)
        for name, result in results.items()
    }
    assert again["back"] == 0 and again["max"] > 4 * again["mod"]


def test_the_shared_bus_turns_the_order_round(results: dict[str, CostResult]) -> None:
    """Eight aligned copies: the lockstep stretch 1 + X_c makes the fastest plan alone the slowest."""
    stretched = {}
    for name, result in results.items():
        slots, bandwidth = 8, 68e9
        stretched[name] = sum(
            group.phases["base_ns"].sum() * (1 + contention(group.phases, slots, bandwidth)[1])
            for group in result.groups
        )
    assert stretched["max"] > 1.1 * stretched["back"]
    assert stretched["mod"] > stretched["back"]
