"""Traps of fusion and tiling come out of the model on packaged, unedited machines, each with a control.

A control lacks the mechanism and shows nothing of it: that is what tells the trap from a model that punishes fusion as
such.
"""

from __future__ import annotations

import pytest

from model.cost.result import CostRequest, CostResult
from model.cost.simulate import simulate
from model.graph.graph import OperatorGraph
from model.hardware.loader import load_hardware
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan
from model.search.tune import tune_tiles
from tests.cost_graphs import Sketch, attention, mlp, product


def cost(graph: OperatorGraph, machine: str, *groups: FusionGroup) -> CostResult:
    """The graph in these groups, or unfused."""
    plan = Plan.of(groups) if groups else unfused(graph)
    return simulate(CostRequest(graph, load_hardware(machine), plan))


def whole(graph: OperatorGraph) -> FusionGroup:
    return FusionGroup(tuple(range(len(graph.operators))))


def moved(result: CostResult) -> int:
    return result.totals.dram_read_bytes + result.totals.dram_write_bytes


def seconds(result: CostResult) -> float:
    assert result.totals.feasible
    return result.totals.latency_s


# -- pressure --------------------------------------------------------------------------------------
def branches(count: int) -> OperatorGraph:
    """A product whose result goes through `count` branches that are summed: all of them live at the same time."""
    sketch = Sketch("float16")
    sketch.tensor("X", 4096, 1024)
    sketch.tensor("W", 1024, 1024, weight=True)
    sketch.product("X", "W", "Y")
    for i in range(count):
        sketch.pointwise(f"Branch{i}", ["Y"], f"T{i}")
    total = "T0"
    for i in range(1, count):
        total = sketch.pointwise("Add", [total, f"T{i}"], f"S{i}")
    return sketch.graph(total)


def epilogue(count: int, threads: int, fused: bool) -> CostResult:
    """The branches in the product's group, or in one of their own; a tile of 128 x 128 on so many threads."""
    graph = branches(count)
    last = len(graph.operators)
    tile = (LevelTile("shared", (("m", 128), ("n", 128), ("k", 32))),)
    if fused:
        return cost(graph, "a100", FusionGroup(tuple(range(last)), tile, threads=threads))
    apart = FusionGroup(tuple(range(1, last)))
    return cost(graph, "a100", FusionGroup((0,), tile, threads=threads), apart)


def test_fusing_on_until_pressure_spills_and_latency_rises() -> None:
    few, many = (1, 2), 6
    for count in few:  # an epilogue that fits is worth fusing
        fused = epilogue(count, 128, True)
        assert fused.totals.spill_bytes == 0
        assert seconds(fused) < seconds(epilogue(count, 128, False))
    spilled = epilogue(many, 128, True)
    use = spilled.groups[0].registers
    assert use.live > use.limit and use.limited_by == "registers" and use.spill_to == "HBM"
    assert seconds(spilled) > 1.2 * seconds(epilogue(many, 128, False))
    # Control: the same group on twice the threads, each with half of the tile.
    roomy = epilogue(many, 256, True)
    assert roomy.totals.spill_bytes == 0
    assert seconds(roomy) < seconds(epilogue(many, 256, False))


# -- cores -----------------------------------------------------------------------------------------
def test_over_fusing_a_one_row_decode_mlp_starves_cores() -> None:
    graph = mlp(1, 4096, 14336, "float16")
    apart, fused = cost(graph, "a100"), cost(graph, "a100", whole(graph))
    # One row is one tile: what the second product reduces cannot be dealt over cores any more.
    assert moved(fused) < 1.05 * moved(apart)  # tiles that deal columns evenly end within sectors
    assert fused.totals.launches < apart.totals.launches
    assert all("n" in dict(group.parallel) for group in (apart.groups[0], apart.groups[2]))
    assert "n" not in dict(fused.groups[0].parallel)
    assert seconds(fused) > 3 * seconds(apart)
    # Controls: a machine of one core has none to starve; many rows are tiles enough for all.
    alone = cost(graph, "tpu-v4i", whole(graph))
    assert seconds(alone) < 1.1 * seconds(cost(graph, "tpu-v4i"))
    for rows, better in ((1, False), (108 * 128, True)):
        graph = mlp(rows, 384, 1536, "float16")
        fused = cost(graph, "a100", whole(graph))
        assert ("m" in dict(fused.groups[0].parallel)) is better
        assert (seconds(fused) < seconds(cost(graph, "a100"))) is better


# -- tiles -----------------------------------------------------------------------------------------
def least(extent: int, dividing: bool) -> int:
    graph = product(extent, extent, extent)
    request = CostRequest(graph, load_hardware("one-buffer"), unfused(graph))
    tuned = tune_tiles(request, "traffic", dividing)
    assert tuned.exact
    return moved(tuned.result)


def test_a_ragged_tile_beats_every_dividing_one() -> None:
    # 256 x 256 outputs would fill the 64 KiB, 256 x 128 are the next that divide, and 256 x 171 fit. A once for each of
    # three or four column tiles, B once for each of two row tiles, the result once.
    assert least(512, dividing=False) == (3 + 2 + 1) * 512**2
    assert least(512, dividing=True) == (4 + 2 + 1) * 512**2
    # Control: 192 divides 384, and nothing ragged is better.
    assert least(384, dividing=False) == least(384, dividing=True) == (2 + 2 + 1) * 384**2


def rows_at_a_time(machine: str, rows: int) -> CostResult:
    tile = LevelTile("buffer", (("m", rows), ("n", 64), ("k", 512)))
    return cost(product(1920, 1920, 512), machine, FusionGroup((0,), (tile,)))


def test_a_misaligned_tile_loses_utilisation() -> None:
    aligned, beyond = rows_at_a_time("edge-npu", 32), rows_at_a_time("edge-npu", 33)
    # 33 rows take two folds of a 32 x 32 array, of which the second holds one row.
    assert beyond.groups[0].utilisation < 0.55 * aligned.groups[0].utilisation
    assert seconds(beyond) > 1.8 * seconds(aligned) and moved(beyond) == moved(aligned)
    # Controls: the next aligned tile; a machine without an array.
    assert rows_at_a_time("edge-npu", 64).groups[0].utilisation == aligned.groups[0].utilisation
    plain = [seconds(rows_at_a_time("one-buffer", rows)) for rows in (32, 33)]
    assert plain[0] == plain[1]


# -- softmax ---------------------------------------------------------------------------------------
def bent_attention(keys: int) -> OperatorGraph:
    """Attention with a Gelu between softmax and values: not linear in the softmax, which needs its whole row."""
    sketch = Sketch("int8")
    sketch.tensor("Q", 1, 512, 64)
    sketch.tensor("K", 1, 64, keys)
    sketch.tensor("V", 1, keys, 64)
    sketch.product("Q", "K", "S")
    sketch.softmax("S", "P")
    sketch.pointwise("Gelu", ["P"], "G", "erf")
    sketch.product("G", "V", "O")
    return sketch.graph("O")


def test_a_softmax_that_may_not_be_online_needs_its_rows_whole() -> None:
    keys = 65536
    bent, plain = bent_attention(keys), attention(512, keys, 64)
    fused, online = cost(bent, "edge-npu", whole(bent)), cost(plain, "edge-npu", whole(plain))
    # Whole rows of 65,536 scores leave room for few queries, and every few read all keys and values.
    assert moved(fused) > 100 * moved(online)
    assert dict(fused.groups[0].levels[0].tile)["m"] < dict(online.groups[0].levels[0].tile)["m"]
    # Control: where a whole row fits, being online is worth nothing.
    roomy = [moved(cost(graph, "tpu-v4i", whole(graph))) for graph in (bent, plain)]
    assert roomy[0] == roomy[1]


@pytest.mark.parametrize("keys", [4096, 65536])
def test_a_plan_that_is_best_at_one_length_is_bad_at_another(keys: int) -> None:
    bent, plain = bent_attention(keys), attention(512, keys, 64)
    ratio = seconds(cost(bent, "edge-npu", whole(bent))) / seconds(cost(bent, "edge-npu"))
    if keys == 4096:
        assert ratio < 0.8
    else:
        assert ratio > 3.0
    # Control: with an online softmax the fused plan is the better one at both lengths.
    assert seconds(cost(plain, "edge-npu", whole(plain))) < 0.8 * seconds(cost(plain, "edge-npu"))


# -- caches, stages, sectors -----------------------------------------------------------------------
def test_a_small_intermediate_never_leaves_the_cache_though_unfused() -> None:
    small, large = mlp(128, 1024, 4096, "float16"), mlp(32768, 1024, 4096, "float16")
    kept = cost(small, "a100")
    assert moved(kept) == kept.totals.compulsory_dram_bytes
    assert kept.totals.intermediate_onchip_share == 1.0
    # Controls: an intermediate of six times the cache; the same graph on a machine without one.
    too_large = cost(large, "a100")
    assert moved(too_large) > too_large.totals.compulsory_dram_bytes + 2 * 32768 * 4096 * 2
    without = cost(small, "tpu-v4i")
    assert moved(without) == without.totals.compulsory_dram_bytes + 2 * 2 * 128 * 4096 * 2


def two_products(rows: int, fused: bool) -> CostResult:
    """Y = X W1 W2 in tiles of so many rows, all else whole."""
    sketch = Sketch("int8")
    sketch.tensor("X", 2048, 256)
    sketch.tensor("W1", 256, 640, weight=True)
    sketch.tensor("W2", 640, 256, weight=True)
    sketch.product("X", "W1", "H")
    sketch.product("H", "W2", "Y")

    def tile(**extents: int) -> tuple[LevelTile, ...]:
        return (LevelTile("buffer", tuple(extents.items())),)

    both = FusionGroup((0, 1), tile(m=rows, n=640, k=256, n_2=256))
    first = FusionGroup((0,), tile(m=rows, n=640, k=256))
    second = FusionGroup((1,), tile(m=rows, n=256, k=640))
    return cost(sketch.graph("Y"), "edge-npu", *((both,) if fused else (first, second)))


def test_fusing_loses_the_second_stage() -> None:
    apart, fused = two_products(192, False), two_products(192, True)
    assert [group.stages for group in apart.groups] == [2, 2]
    assert [group.stages for group in fused.groups] == [1]
    assert any("no room for a second stage" in what for _, what, _ in fused.groups[0].warnings)
    # A third of the bytes and one launch less, and slower: loads and stores no longer hide behind the array.
    assert moved(fused) < 0.4 * moved(apart) and seconds(fused) > 1.05 * seconds(apart)
    # Control: tiles of 160 rows leave room for the stage, and fusing helps.
    kept = two_products(160, True)
    assert [group.stages for group in kept.groups] == [2]
    assert seconds(kept) < seconds(two_products(160, False))


def stream(machine: str, columns: int) -> CostResult:
    """Y[64, 64] stays while A comes in so many columns at a time, and B in as many rows."""
    buffer = load_hardware(machine).buffer.name
    retain = (("A", 1), ("B", 1), ("Y", 0))
    tile = LevelTile(buffer, (("m", 64), ("n", 64), ("k", columns)), ("k",), retain)
    return cost(product(64, 64, 96), machine, FusionGroup((0,), (tile,)))


def test_a_byte_stream_of_width_one_pays_for_sectors() -> None:
    narrow, wide = stream("gemmini", 1), stream("gemmini", 96)
    # Each byte of A costs a burst of 64; B and Y move in whole rows of 64.
    assert moved(narrow) == 64 * 96 * 64 + 96 * 64 + 64 * 64
    assert moved(wide) == 64 * 96 + 96 * 64 + 64 * 64
    assert seconds(narrow) > 5 * seconds(wide)
    # Control: a machine that moves single bytes.
    assert moved(stream("one-buffer", 1)) == moved(stream("one-buffer", 96)) == moved(wide)
    assert seconds(stream("one-buffer", 1)) == seconds(stream("one-buffer", 96))
