"""Control flow in the cost model: nested graphs count operator by operator, as often as they run."""

from __future__ import annotations

from model.cost.result import CostRequest, CostResult
from model.cost.simulate import simulate
from model.graph.graph import OperatorGraph
from model.plan.edits import unfused

from .cost_graphs import one_buffer
from .test_graph_control import LOOP, LOOP_INPUTS, read

MACHINE = one_buffer(1 << 16)


def cost(graph: OperatorGraph) -> CostResult:
    return simulate(CostRequest(graph, MACHINE, unfused(graph)))


def loop(trips: int) -> OperatorGraph:
    return read([LOOP], LOOP_INPUTS, ["last", "all"], {"trips:steps": trips})


def test_a_loop_costs_its_body_so_often() -> None:
    """A trip: 3x4 by 4x4 in fp32 is 48 MACs, reads 48 + 64 bytes, writes 48; its Relu reads 48 and writes 48."""
    five = cost(loop(5))
    assert five.totals.macs == five.request.graph.macs == 5 * 48
    assert five.totals.recomputed_macs == 0
    assert (five.totals.dram_read_bytes, five.totals.dram_write_bytes) == (5 * (48 + 64 + 48), 5 * (48 + 48))
    assert five.totals.latency_s == 5 * cost(loop(1)).totals.latency_s
    body = cost(loop(5).bodies["#0/body"])
    assert five.totals.latency_s == 5 * body.totals.latency_s
    assert five.totals.operator_bytes == 5 * body.totals.operator_bytes
    (group,) = five.groups
    assert int(group.phases["bytes"].sum()) == sum(group.dram_bytes("DRAM"))


def test_it_says_what_was_counted_and_how_to_bind_it() -> None:
    said = [text for text in cost(loop(5)).warnings if "operator by operator" in text[1]]
    assert [(what, lever) for _, what, lever in said] == [
        (
            "control flow: operator by operator, #0/body 5 times; no group of the plan reaches into it",
            "Bind what the file leaves open: --bind trips:steps=5",
        )
    ]


def test_loops_of_the_same_form_but_other_trips_are_not_one() -> None:
    from model.cost.simulate import GroupCache

    cache = GroupCache()
    for trips in (5, 2, 5):
        graph = loop(trips)
        assert simulate(CostRequest(graph, MACHINE, unfused(graph)), cache).totals.macs == trips * 48
