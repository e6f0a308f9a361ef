"""Causal and sliding-window attention: what a mask leaves out is not run, not moved and not waited for.

The numbers are worked by hand from docs/loop-tree.md, section 2, or counted over all pairs of queries and keys.
"""

from __future__ import annotations

from math import ceil

import pytest

from model.cost.result import CostRequest, GroupResult
from model.cost.simulate import simulate
from model.graph.band import ENDLESS
from model.graph.graph import OperatorGraph
from model.hardware.accelerator import Accelerator, Partition
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import attention, masked, one_buffer, systolic

ROOM = one_buffer(1 << 30)
HEAD = 8


def run(
    graph: OperatorGraph,
    rows: int,
    columns: int,
    order: str = "m n",
    machine: Accelerator = ROOM,
    **knobs: object,
) -> GroupResult:
    """Fused attention with tiles of `rows` queries by `columns` keys; nothing is kept longer than it must."""
    head = graph.operators[0].dims[-1].extent
    tile = (("m", rows), ("n", columns), ("k", head), ("n_2", head))
    level = LevelTile("buffer", tile, tuple(order.split()), tuple((name, 2) for name in "QKVO"))
    group = FusionGroup((0, 1, 2), levels=(level,), **knobs)  # type: ignore[arg-type]
    return simulate(CostRequest(graph, machine, Plan.of([group]))).groups[0]


def outer(graph: OperatorGraph, group: GroupResult) -> dict[str, tuple[int, int]]:
    return {
        graph.tensors[row.tensor].name: (row.read_bytes, row.write_bytes)
        for row in group.traffic
        if (row.outer, row.inner) == ("DRAM", "buffer")
    }


def test_causal_attention_of_four_by_hand() -> None:
    """4 queries on 4 keys in tiles of 2, head 8: 10 of 16 pairs; the tile of keys 2, 3 is not there for queries 0, 1.

    Queries 0, 1 read keys 0, 1; queries 2, 3 read all four: 6 rows of K and of V. Queries 2, 3 rescale once.
    """
    graph = masked(attention(4, 4, HEAD))
    group = run(graph, 2, 2)
    assert group.macs == 2 * 10 * HEAD and group.recomputed_macs == 0
    assert outer(graph, group) == {
        "Q": (4 * HEAD, 0), "K": (6 * HEAD, 0), "V": (6 * HEAD, 0), "O": (0, 4 * HEAD),
    }  # fmt: skip
    assert group.vector_ops == 10 + 2 * HEAD
    # Keys outside, queries inside: keys 0, 1 are seen by all four, keys 2, 3 by the last two. The two rows of the
    # result that both see are written and read back once more.
    group = run(graph, 2, 2, "n m")
    assert outer(graph, group) == {
        "Q": (6 * HEAD, 0), "K": (4 * HEAD, 0), "V": (4 * HEAD, 0), "O": (2 * HEAD, (4 + 2) * HEAD),
    }  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (48, 100), (200, 7), (1, 13)])
@pytest.mark.parametrize(
    ("queries", "keys", "offset", "window"),
    [(300, 300, 0, ENDLESS), (300, 300, 0, 64), (100, 356, 256, ENDLESS), (64, 400, 200, 50)],
)
def test_a_query_tile_reads_the_keys_that_it_sees(
    rows: int, columns: int, queries: int, keys: int, offset: int, window: int
) -> None:
    """FlashAttention-2's order: per tile of queries the keys from its first one's window to its last one's own."""
    graph = masked(attention(queries, keys, HEAD), offset, window)
    seen = [[k for k in range(keys) if 0 <= q + offset - k < window] for q in range(queries)]
    group = run(graph, rows, columns)
    read = sum(
        len({k for q in range(first, min(first + rows, queries)) for k in seen[q]})
        for first in range(0, queries, rows)
    )
    points = sum(map(len, seen))
    assert group.macs == 2 * points * HEAD
    assert outer(graph, group) == {
        "Q": (queries * HEAD, 0), "K": (read * HEAD, 0), "V": (read * HEAD, 0), "O": (0, queries * HEAD),
    }  # fmt: skip
    visits = sum(len({k // columns for k in keys}) for keys in seen)
    assert group.vector_ops == points + HEAD * (visits - queries)
    if window < ENDLESS:  # no tile sees more than its own span and the window
        assert read <= ceil(queries / rows) * (rows + window - 1)


def test_a_causal_mask_halves_macs_and_keys_of_a_long_sequence() -> None:
    """2,048 tokens in tiles of 64: 32 tiles read 64 + 128 + ... = 64 * 32 * 33 / 2 keys of 32 * 2,048."""
    whole, causal = attention(2048, 2048, HEAD), masked(attention(2048, 2048, HEAD))
    full, half = run(whole, 64, 64), run(causal, 64, 64)
    assert half.macs * 4096 == full.macs * 2049
    assert outer(causal, half)["K"][0] * 64 == outer(whole, full)["K"][0] * 33


def test_a_window_of_all_keys_is_causal_and_a_decode_step_reads_its_past() -> None:
    causal, wide = masked(attention(96, 96, HEAD)), masked(attention(96, 96, HEAD), 0, 96)
    one, other = run(causal, 16, 16), run(wide, 16, 16)
    assert (one.macs, one.vector_ops, one.traffic, one.latency_s) == (
        other.macs, other.vector_ops, other.traffic, other.latency_s,
    )  # fmt: skip
    # One query after 95 keys sees all of them; with a window of 40 only the last 40.
    step, near = masked(attention(1, 96, HEAD), 95), masked(attention(1, 96, HEAD), 95, 40)
    assert outer(step, run(step, 1, 16))["K"] == (96 * HEAD, 0)
    assert outer(near, run(near, 1, 16))["K"] == (40 * HEAD, 0)
    assert run(step, 1, 16).macs == 2 * 96 * HEAD and run(near, 1, 16).macs == 2 * 40 * HEAD


def test_a_decode_step_in_a_window_is_one_over_the_keys_of_the_window() -> None:
    """The keys that it does not see are not there: bytes, steps and cycles are those of a cache of 512 keys."""
    machine = systolic(16, 16, bandwidth=1e10)
    for rows, columns in ((1, 64), (1, 16), (1, 128)):
        near = run(masked(attention(1, 4096, 64), 4095, 512), rows, columns, machine=machine)
        short = run(attention(1, 512, 64), rows, columns, machine=machine)
        assert (near.macs, near.vector_ops, near.latency_s, near.cycles) == (
            short.macs, short.vector_ops, short.latency_s, short.cycles,
        )  # fmt: skip
        assert [(t.read_bytes, t.write_bytes) for t in near.traffic] == [
            (t.read_bytes, t.write_bytes) for t in short.traffic
        ]


def test_alone_each_part_moves_what_the_mask_leaves() -> None:
    """Scores and weights are 4 * 5 / 2 = 10 of 16 elements; all four keys are read."""
    graph = masked(attention(4, 4, HEAD))
    result = simulate(CostRequest(graph, ROOM, unfused(graph)))
    scores, weights, values = (outer(graph, group) for group in result.groups)
    assert scores == {"Q": (32, 0), "K": (32, 0), "S": (0, 10)}
    assert weights == {"S": (10, 0), "P": (0, 10)}
    assert values == {"P": (10, 0), "V": (32, 0), "O": (0, 32)}
    assert result.totals.macs == 2 * 10 * HEAD == graph.bounded_macs
    assert result.totals.operator_bytes == 64 + 10 + 20 + 10 + 64
    assert result.totals.compulsory_dram_bytes == 4 * 32


def test_the_unit_works_on_the_tiles_that_are_not_wholly_outside() -> None:
    """Output-stationary 16 x 16, tiles of 16, head 16: a tile of scores folds in 16 + 16 + 16 - 2 = 46 cycles.

    Of 8 x 8 tiles 36 hold a pair; sliding windows of 17 touch two tiles a row, of 16 + 17 keys three.
    """
    machine = systolic(16, 16)
    whole = attention(128, 128, 16)
    for graph, tiles in (
        (whole, 64),
        (masked(whole), 36),
        (masked(whole, 0, 17), 15),
        (masked(whole, 0, 18), 21),
    ):
        assert run(graph, 16, 16, machine=machine).cycles == pytest.approx(2 * 46 * tiles)


@pytest.mark.parametrize("sides", [(2, 10), (3, 9), (16, 16)])
def test_cycles_count_the_tiles_of_any_shape(sides: tuple[int, int]) -> None:
    """More tiles than the walk visits one by one: those it stands still for are as many as there are."""
    rows, columns = sides
    machine, head = systolic(4, 4), 4
    for offset, window in ((0, ENDLESS), (0, 50), (30, 40)):
        graph = masked(attention(180, 210, head), offset, window)
        tiles = {
            (q // rows, k // columns) for q in range(180) for k in range(210) if 0 <= q + offset - k < window
        }
        # The array folds rows x columns of the scores, rows x head of the values.
        cycles = sum(
            ceil(min(rows, 180 - q * rows) / 4) * ceil(min(columns, 210 - k * columns) / 4) * (head + 6)
            + ceil(min(rows, 180 - q * rows) / 4) * (min(columns, 210 - k * columns) + 6)
            for q, k in tiles
        )
        found = run(graph, rows, columns, machine=machine).cycles
        assert found == pytest.approx(cycles, rel=0.02)


def test_the_busiest_core_has_the_most_pairs() -> None:
    """8 tiles of 16 queries on 4 cores, dealt in turn: the last core has tiles 3 and 7, of 4 + 8 of the 36 tiles."""
    machine = systolic(16, 16, cores=4, partition=Partition(1, 4))
    group = run(masked(attention(128, 128, 16)), 16, 16, machine=machine, parallel=(("m", 4),))
    assert group.cycles == pytest.approx(2 * 46 * (4 + 8))
    assert group.waves == 2


def test_cores_of_both_dims_meet_where_there_are_points() -> None:
    """Scores alone, in a window of 16: cores of keys are chosen among the keys that the queries of a core see."""
    graph = masked(attention(256, 256, 16), 0, 16)
    machine = systolic(16, 16, cores=64, bandwidth=1e11, partition=Partition(1, 64))
    level = LevelTile("buffer", (("m", 16), ("n", 16), ("k", 16)), ("m", "n"))
    for parallel in ((("m", 4), ("n", 16)), (("m", 16), ("n", 4)), (("m", 2), ("n", 13))):
        group = FusionGroup((0,), levels=(level,), parallel=parallel)
        found = simulate(CostRequest(graph, machine, Plan.of([group, FusionGroup((1,)), FusionGroup((2,))])))
        # 16 x 16 tiles of which each row has two, the first one.
        tiles = [(i, j) for i in range(16) for j in (i - 1, i) if j >= 0]
        (_, rows), (_, columns) = parallel
        most = max(
            sum(i % rows == a and j % columns == b for i, j in tiles)
            for a in range(rows)
            for b in range(columns)
        )
        assert 46 <= found.groups[0].cycles <= 46 * most + 1e-6


def test_masked_attention_is_faster_in_every_way_it_can_be() -> None:
    """The search sees the mask: it never takes longer than without, and about half where compute limits it."""
    for cores in (1, 4):
        machine = systolic(16, 16, cores=cores, bandwidth=1e11, partition=Partition(1, cores))
        whole = attention(512, 512, 16, heads=2)
        plan = Plan.of([FusionGroup((0, 1, 2))])
        full = simulate(CostRequest(whole, machine, plan)).groups[0]
        half = simulate(CostRequest(masked(whole), machine, plan)).groups[0]
        near = simulate(CostRequest(masked(whole, 0, 64), machine, plan)).groups[0]
        assert half.latency_s < 0.75 * full.latency_s
        assert near.latency_s < 0.5 * half.latency_s
