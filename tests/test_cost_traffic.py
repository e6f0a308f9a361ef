"""Traffic by closed form through `simulate`: products, attention, an MLP; retention, partial sums, recomputation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import ceil

import pytest

from model.cost.result import CostRequest, GroupResult
from model.cost.simulate import simulate
from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.hardware.accelerator import Accelerator
from model.plan.plan import FusionGroup, LevelTile, Plan, Sizes
from tests.cost_graphs import Sketch, attention, mlp, one_buffer, product, systolic

ROOM = one_buffer(1 << 30)


def run(
    graph: OperatorGraph,
    tile: dict[str, int],
    order: str = "",
    retain: Sizes = (),
    machine: Accelerator = ROOM,
    **knobs: object,
) -> GroupResult:
    """All operators in one group with these tiles."""
    level = LevelTile("buffer", tuple(tile.items()), tuple(order.split()), retain)
    members = tuple(range(len(graph.operators)))
    group = FusionGroup(members, levels=(level,), **knobs)  # type: ignore[arg-type]
    return simulate(CostRequest(graph, machine, Plan.of([group]))).groups[0]


def outer(graph: OperatorGraph, group: GroupResult) -> dict[str, tuple[int, int]]:
    """Bytes read and written per tensor between DRAM and the buffer."""
    return {
        graph.tensors[row.tensor].name: (row.read_bytes, row.write_bytes)
        for row in group.traffic
        if (row.outer, row.inner) == ("DRAM", "buffer")
    }


@pytest.mark.parametrize("order", [" ".join(order) for order in itertools.permutations("mnk")])
def test_the_six_loop_orders_of_a_tiled_product(order: str) -> None:
    """Ragged tiles of a 100 x 70 x 45 product, nothing retained beyond what its innermost loop keeps."""
    m, n, k, tile = 100, 70, 45, {"m": 32, "n": 32, "k": 16}
    trips = {"m": ceil(m / 32), "n": ceil(n / 32), "k": ceil(k / 16)}
    graph = product(m, n, k)
    # Depth 3 for all: the tool would hoist where it fits.
    moved = outer(graph, run(graph, tile, order, (("A", 3), ("B", 3), ("Y", 3))))
    inner = order.split()[-1]
    a = m * k * (trips["n"] if inner != "n" else 1)
    b = k * n * (trips["m"] if inner != "m" else 1)
    visits = trips["k"] if inner != "k" else 1
    assert moved == {"A": (a, 0), "B": (b, 0), "Y": (m * n * (visits - 1), m * n * visits)}


def test_partial_sums_have_the_accumulators_width() -> None:
    graph = product(100, 70, 45)
    wide = run(graph, {"m": 32, "n": 32, "k": 16}, "k m n", (("Y", 3),), one_buffer(1 << 30, bits=32))
    assert outer(graph, wide)["Y"] == (100 * 70 * 2 * 4, 100 * 70 * 2 * 4 + 100 * 70)


def test_retention_moves_a_tile_outwards_and_its_footprint_grows() -> None:
    graph = product(128, 96, 64)
    tile = {"m": 32, "n": 32, "k": 64}
    near = run(graph, tile, "m n", (("A", 2), ("B", 2), ("Y", 2)))
    far = run(graph, tile, "m n", (("A", 2), ("B", 0), ("Y", 2)))
    assert outer(graph, near)["B"] == (96 * 64 * 4, 0)
    assert outer(graph, far)["B"] == (96 * 64, 0)
    assert near.footprint_bytes[0][1] == 32 * 64 + 64 * 32 + 32 * 32
    assert far.footprint_bytes[0][1] == 32 * 64 + 64 * 96 + 32 * 32


def test_a_stationary_tile_with_two_streams() -> None:
    """Least traffic of a product in t1 t2 + min(t1, t2) + 1 elements: a row of B stays, A is streamed one by one."""
    graph = product(40, 30, 20)
    group = run(
        graph,
        {"m": 10, "n": 6, "k": 20},
        "m n",
        # Over the tiles m, n, then the elements k, m, n.
        (("A", 4), ("B", 3), ("Y", 2)),
        one_buffer(10 * 6 + 6 + 1),
        elements=("k", "m", "n"),
    )
    assert group.feasible
    moved = outer(graph, group)
    assert moved["A"] == (40 * 20 * 5, 0)
    assert moved["B"] == (20 * 30 * 4, 0)
    assert moved["Y"] == (0, 40 * 30)


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (48, 100), (200, 7), (512, 512)])
def test_attention_moves_queries_and_result_once_keys_and_values_once_a_query_tile(
    rows: int, columns: int
) -> None:
    """FlashAttention-2's shape; no term of queries times keys (Dao, 2023)."""
    queries, keys, head = 300, 512, 32
    graph = attention(queries, keys, head)
    group = run(graph, {"m": rows, "n": columns, "k": head, "n_2": head}, "m n", (("K", 2), ("V", 2)))
    tiles = ceil(queries / rows) if columns < keys else 1
    assert outer(graph, group) == {
        "Q": (queries * head, 0),
        "K": (keys * head * tiles, 0),
        "V": (keys * head * tiles, 0),
        "O": (0, queries * head),
    }
    assert group.recomputed_macs == 0
    # The sums of all but the first key tile are rescaled: one multiplication per element of O.
    vector = queries * keys  # the softmax's own
    assert group.vector_ops == vector + queries * head * (ceil(keys / columns) - 1)


def test_running_statistics_take_room_unless_the_machine_says_no() -> None:
    graph = attention(64, 512, 32)
    tile = {"m": 16, "n": 64, "k": 32, "n_2": 32}
    without = run(graph, tile, "m n")
    with_room = systolic(8, 8)
    assert run(graph, tile, "m n", machine=with_room).tree == without.tree
    told = replace(one_buffer(1 << 30), online_statistics=True, partial_sum_bits=32, digest="other")
    silent = replace(told, online_statistics=False, digest="another")
    # Two running values of 32 bits per row of the tile.
    difference = run(graph, tile, "m n", machine=told).footprint_bytes[0][1]
    difference -= run(graph, tile, "m n", machine=silent).footprint_bytes[0][1]
    assert difference == 2 * 16 * 4


def test_a_two_layer_mlp_moves_its_weights_once_a_row_tile() -> None:
    tokens, model, hidden = 200, 48, 160
    graph = mlp(tokens, model, hidden)
    tile = {"m": 64, "n": 32, "k": model, "n_2": model}
    group = run(graph, tile, "m n", (("W1", 2), ("W2", 2)))
    tiles = ceil(tokens / 64)
    assert outer(graph, group) == {
        "X": (tokens * model, 0),
        "W1": (model * hidden * tiles, 0),
        "W2": (hidden * model * tiles, 0),
        "Y": (0, tokens * model),
    }


def test_a_foreign_loop_runs_the_producer_again() -> None:
    """Columns of the result outermost: the hidden layer is computed once for each tile of them."""
    tokens, model, hidden = 64, 48, 160
    graph = mlp(tokens, model, hidden)
    tree = "n_2 { n { MatMul_0, Relu_1, MatMul_2 } }"
    group = run(graph, {"m": tokens, "n": 32, "k": model, "n_2": 16}, retain=(("W1", 2),), tree=tree)
    once = tokens * hidden * model
    assert group.macs == 3 * once + once
    assert group.recomputed_macs == 2 * once
    assert outer(graph, group)["W1"] == (model * hidden * 3, 0)
    # With the hidden layer whole its output is retained across the loop, and it runs once.
    kept = run(
        graph, {"m": tokens, "n": hidden, "k": model, "n_2": 16}, tree="n_2 { MatMul_0, Relu_1, MatMul_2 }"
    )
    assert kept.recomputed_macs == 0
    assert outer(graph, kept)["W1"] == (model * hidden, 0)


def test_an_intermediate_that_someone_outside_reads_is_written_once() -> None:
    sketch = Sketch()
    sketch.tensor("X", 64, 32)
    sketch.tensor("W", 32, 16, weight=True)
    sketch.product("X", "W", "T")
    sketch.pointwise("Relu", ["T"], "Y", "relu")
    graph = sketch.graph("T", "Y")
    group = run(graph, {"m": 16, "n": 16, "k": 32}, "m")
    assert outer(graph, group)["T"] == (0, 64 * 16)
    assert outer(graph, group)["Y"] == (0, 64 * 16)


def test_one_input_of_two_products_is_read_once_where_their_loops_are_shared() -> None:
    sketch = Sketch()
    sketch.tensor("X", 64, 32)
    sketch.tensor("W1", 32, 16, weight=True)
    sketch.tensor("W2", 32, 16, weight=True)
    sketch.product("X", "W1", "Q")
    sketch.product("X", "W2", "K")
    graph = sketch.graph("Q", "K")
    group = run(graph, {"m": 16, "n": 16, "k": 32, "n_2": 16}, "m")
    assert group.tree == "m { MatMul_0, MatMul_1 }"
    assert outer(graph, group)["X"] == (64 * 32, 0)


def test_a_window_reads_its_halo_and_never_the_padding() -> None:
    """A 3-wide convolution of 18 points, stride 1, padding 1, in tiles of 6."""
    sketch = Sketch()
    sketch.tensor("X", 18, 4)
    sketch.tensor("W", 3, 4, 5, weight=True)
    sketch.add(
        "Conv",
        OpKind.CONTRACTION,
        [Dim("p", 18), Dim("n", 5), Dim("r", 3, reduction=True), Dim("c", 4, reduction=True)],
        [
            ("X", [Axis(((0, 1), (2, 1)), -1), Axis(((3, 1),))]),
            ("W", [Axis(((2, 1),)), Axis(((3, 1),)), Axis(((1, 1),))]),
        ],
        ("Y", [Axis(((0, 1),)), Axis(((1, 1),))]),
    )
    graph = sketch.graph("Y")
    group = run(graph, {"p": 6, "n": 5, "r": 3, "c": 4}, "p", (("X", 1),))
    # Tiles read rows -1..6, 5..12, 11..18; rows -1 and 18 are padding.
    assert outer(graph, group)["X"] == ((7 + 8 + 7) * 4, 0)
    assert outer(graph, run(graph, {"p": 18, "n": 5, "r": 3, "c": 4}))["X"] == (18 * 4, 0)


def test_sub_byte_elements_are_summed_in_bits() -> None:
    graph = product(5, 3, 7, dtype="int4")
    moved = outer(graph, run(graph, {"m": 5, "n": 3, "k": 7}))
    assert moved == {
        "A": ((5 * 7 * 4 + 7) // 8, 0),
        "B": ((7 * 3 * 4 + 7) // 8, 0),
        "Y": (0, (5 * 3 * 4 + 7) // 8),
    }


def test_a_precision_replaces_floats_only() -> None:
    graph = product(16, 16, 16, dtype="float32")
    narrow = simulate(CostRequest(graph, ROOM, Plan.of([FusionGroup((0,))]), precision="bf16"))
    assert narrow.totals.dram_read_bytes == 2 * 16 * 16 * 2
    own = simulate(CostRequest(graph, ROOM, Plan.of([FusionGroup((0,), precision="int8")]), precision="bf16"))
    assert own.totals.dram_read_bytes == 2 * 16 * 16
    whole = product(16, 16, 16, dtype="int8")
    assert (
        simulate(CostRequest(whole, ROOM, Plan.of([FusionGroup((0,))]), precision="bf16")).totals.macs == 4096
    )


def test_a_tree_and_its_order_are_the_same_mapping() -> None:
    graph = attention(64, 128, 16)
    tile = {"m": 16, "n": 32, "k": 16, "n_2": 16}
    ordered = run(graph, tile, "m n")
    written = run(graph, tile, tree=ordered.tree)
    assert written.traffic == ordered.traffic
    assert written.footprint_bytes == ordered.footprint_bytes
    assert written.latency_s == ordered.latency_s


def test_what_does_not_fit_is_shown_with_demand_capacity_and_levers() -> None:
    graph = product(64, 64, 64)
    request = CostRequest(
        graph,
        one_buffer(1024),
        Plan.of([FusionGroup((0,), levels=(LevelTile("buffer", (("m", 64), ("n", 64), ("k", 64))),))]),
    )
    result = simulate(request)
    (group,) = result.groups
    assert not group.feasible
    assert group.infeasible is not None
    assert group.infeasible.demand_bytes == 3 * 64 * 64
    assert group.infeasible.capacity_bytes == 1024
    assert group.infeasible.levers
    assert not result.totals.feasible
    assert result.totals.bottleneck == "infeasible"
    # Its figures are those of the tiles that were asked for.
    assert outer(graph, group) == {"A": (4096, 0), "B": (4096, 0), "Y": (0, 4096)}


def test_unknown_names_in_a_plan_are_said_and_not_used() -> None:
    graph = product(64, 64, 64)
    group = run(graph, {"m": 64, "zz": 3}, retain=(("nothing", 1),))
    said = " ".join(what for _, what, _ in group.warnings)
    assert "no dim 'zz'" in said
    assert "no tensor 'nothing'" in said


def test_a_tree_may_name_operators_by_type_and_index() -> None:
    sketch = Sketch()
    sketch.tensor("X", 64, 32)
    sketch.tensor("W", 32, 16, weight=True)
    sketch.product("X", "W", "T")
    sketch.pointwise("Relu", ["T"], "Y", "relu")
    plain = sketch.graph("Y")
    odd = replace(
        plain,
        operators=(replace(plain.operators[0], name="block {1}, product"), plain.operators[1]),
    )
    group = run(odd, {"m": 16, "n": 16, "k": 32}, tree="m { MatMul_0, Relu_1 }")
    # A name that could not be read back is written by type and index.
    assert group.tree == "m { MatMul_0, Relu_1 }"


def test_single_copies_force_one_stage() -> None:
    group = run(product(64, 64, 64), {"m": 16, "n": 64, "k": 64}, stages=2)
    assert group.stages == 1
    assert any("single copies" in what for _, what, _ in group.warnings)


def test_two_slices_of_one_tensor_are_two_streams() -> None:
    """Rows 0 and 10 of a tensor, read side by side, are not one read (embedding tables picked by constant rows)."""
    sketch = Sketch()
    sketch.tensor("X", 26, 64)
    row = [Dim("i", 64)]
    for number, offset in enumerate((0, 10)):
        axes = (Axis((), offset), Axis(((0, 1),)))
        sketch.add("Gather", OpKind.MOVEMENT, row, [("X", axes)], (f"Y{number}", (Axis(((0, 1),)),)))
    graph = sketch.graph("Y0", "Y1")
    group = simulate(CostRequest(graph, one_buffer(1 << 20), Plan.of([FusionGroup((0, 1))]))).groups[0]
    assert outer(graph, group)["X"] == (128, 0)
    assert group.compulsory_bytes == 256
