"""Layered layout: what must hold for any graph, and pictures small enough to judge."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.graph.layering import Layered, Layout, layered, layered_layout

GAP, LANE = 24.0, 12.0
Links = list[tuple[int, int]]


def csr(nodes: int, links: Links) -> tuple[np.ndarray, np.ndarray]:
    ordered = sorted(links)
    start = np.zeros(nodes + 1, dtype=np.int32)
    for source, _ in ordered:
        start[source + 1] += 1
    return np.cumsum(start, dtype=np.int32), np.array([target for _, target in ordered], dtype=np.int32)


def lay_out(nodes: int, links: Links, width: float = 100.0, height: float = 30.0) -> Layout:
    return layered_layout(*csr(nodes, links), np.full(nodes, width), np.full(nodes, height))


def place(nodes: int, links: Links, width: float = 100.0, **options: object) -> Layered:
    ends = np.array(links, dtype=np.int32).reshape(-1, 2)
    return layered(ends[:, 0], ends[:, 1], np.full(nodes, width), **options)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Links, list[float]]:
    """Random acyclic graphs in random numbering, with parallel links and loose nodes."""
    nodes = draw(st.integers(1, 30))
    number = draw(st.permutations(range(nodes)))
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(
        lambda ends: ends[0] != ends[1]
    )
    found = draw(st.lists(pairs, max_size=45)) if nodes > 1 else []
    links = [(number[min(ends)], number[max(ends)]) for ends in found]
    widths = draw(st.lists(st.sampled_from([10.0, 80.0, 300.0]), min_size=nodes, max_size=nodes))
    return nodes, links, widths


@settings(max_examples=300, deadline=None)
@given(graphs(), st.booleans())
def test_ranks_rows_and_lanes_of_any_graph(drawing: tuple[int, Links, list[float]], roots_down: bool) -> None:
    nodes, links, widths = drawing
    ends = np.array(links, dtype=np.int32).reshape(-1, 2)
    bundle = np.arange(len(links)) % 3
    placed = layered(
        ends[:, 0], ends[:, 1], widths, bundle=bundle, gap=GAP, lane_width=LANE, roots_down=roots_down
    )
    occupied: dict[int, dict[tuple[float, float], None]] = {}
    for node in range(nodes):
        occupied.setdefault(int(placed.rank[node]), {})[(float(placed.x[node]), widths[node])] = None
    for link, (source, target) in enumerate(links):
        lanes = placed.lane_x[placed.lane_first[link] : placed.lane_end[link]].tolist()
        assert len(lanes) == placed.rank[target] - placed.rank[source] - 1
        for passed, x in enumerate(lanes, int(placed.rank[source]) + 1):
            occupied[passed][(x, LANE)] = None
    assert sorted(occupied) == list(range(len(occupied)))
    assert sum(map(len, occupied.values())) == nodes + len(placed.lane_x)  # nothing hides behind another
    for row in occupied.values():
        for (x, width), (following, wide) in pairwise(sorted(row)):
            assert following - x >= (width + wide) / 2 + GAP - 1e-6


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_edges_run_down_from_rim_to_rim(drawing: tuple[int, Links, list[float]]) -> None:
    nodes, links, widths = drawing
    start, target = csr(nodes, links)
    source = np.repeat(np.arange(nodes), np.diff(start))
    height = np.array([20.0 + 7 * (node % 4) for node in range(nodes)])
    layout = layered_layout(start, target, np.array(widths), height)
    for edge, (u, v) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        points = slice(layout.point_start[edge], layout.point_start[edge + 1])
        xs, ys = layout.point_x[points].tolist(), layout.point_y[points].tolist()
        assert (xs[0], ys[0]) == (layout.x[u], layout.y[u] + height[u] / 2)
        assert (xs[-1], ys[-1]) == (layout.x[v], layout.y[v] - height[v] / 2)
        assert all(above < below for above, below in pairwise(ys))
        assert not any(a == b == c for a, b, c in zip(xs, xs[1:], xs[2:], strict=False))
    assert (layout.x - np.array(widths) / 2).min() >= -1e-6 and (layout.y - height / 2).min() >= -1e-6
    assert (layout.x + np.array(widths) / 2).max() <= layout.width + 1e-6
    assert (layout.y + height / 2).max() <= layout.height + 1e-6
    again = layered_layout(start, target, np.array(widths), height)
    assert all(np.array_equal(getattr(layout, name), getattr(again, name)) for name in ("x", "y", "point_x"))


def test_a_diamond_is_symmetric_under_its_top() -> None:
    layout = lay_out(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert layout.x[0] == layout.x[3] == (layout.x[1] + layout.x[2]) / 2
    assert abs(layout.x[1] - layout.x[2]) == 100.0 + GAP
    assert layout.rank.tolist() == [0, 1, 1, 2]
    assert (layout.width, layout.height) == (224.0, 3 * 30.0 + 2 * 40.0)


def test_a_residual_runs_straight_beside_its_chain() -> None:
    layout = lay_out(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4)])
    assert layout.x[1] == layout.x[0] and layout.x[2] == layout.x[3]
    skip = slice(layout.point_start[2], layout.point_start[3])
    assert len(layout.point_x[skip]) == 4 and layout.point_x[skip][1] == layout.point_x[skip][2]


def test_a_chain_of_10_000_is_one_straight_column() -> None:
    layout = lay_out(10_000, list(pairwise(range(10_000))))
    assert np.unique(layout.x).size == 1
    assert np.array_equal(layout.rank, np.arange(10_000))
    assert len(layout.point_x) == 2 * 9_999


def test_a_fan_of_1_500_stands_in_one_row_under_its_middle() -> None:
    fan = [(0, node) for node in range(1, 1501)] + [(node, 1501) for node in range(1, 1501)]
    layout = lay_out(1502, fan)
    assert layout.rank[1:-1].tolist() == [1] * 1500
    assert np.array_equal(np.argsort(layout.x[1:-1]), np.arange(1500))  # kept in file order
    assert layout.x[0] == layout.x[-1] == pytest.approx(layout.width / 2, abs=(100 + GAP) / 2 + 1e-6)


def test_order_undoes_what_the_numbering_crosses() -> None:
    # Two towers whose floors are numbered alternately: no crossing is needed.
    links = [(0, 3), (1, 2), (2, 5), (3, 4), (4, 7), (5, 6), (0, 8), (1, 8)]
    placed = place(9, links, roots_down=False)
    left = [placed.x[a] < placed.x[b] for a, b in ((0, 1), (3, 2), (4, 5), (7, 6))]
    assert len(set(left)) == 1


def test_roots_come_down_to_their_reader_or_stay_at_the_top() -> None:
    links = [(0, 1), (1, 2), (2, 3), (4, 3)]
    assert place(5, links).rank.tolist() == [0, 1, 2, 3, 2]
    assert place(5, links, roots_down=False).rank.tolist() == [0, 1, 2, 3, 0]


def test_links_of_one_stem_share_their_lanes_and_bundles_do_not() -> None:
    chain = list(pairwise(range(100)))
    readers = [(0, node) for node in range(10, 100, 10)]
    assert len(place(100, chain + readers).lane_x) == 90 - 1
    apart = place(100, chain + readers, bundle=np.array([0] * 99 + list(range(1, 10))))
    assert len(apart.lane_x) == sum(node - 1 for node in range(10, 100, 10))


def test_components_stand_side_by_side_and_below() -> None:
    links = [(3 * part + i, 3 * part + i + 1) for part in range(100) for i in (0, 1)]
    layout = lay_out(300, links)
    assert 1.0 < layout.width / layout.height < 2.5
    boxes = [
        (
            layout.x[v : v + 3].min(),
            layout.y[v : v + 3].min(),
            layout.x[v : v + 3].max(),
            layout.y[v : v + 3].max(),
        )
        for v in range(0, 300, 3)
    ]
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            beside = one[0] - other[2] > 100 or other[0] - one[2] > 100
            assert beside or one[1] - other[3] > 30 or other[1] - one[3] > 30
    loose = lay_out(40, [])
    assert loose.rank.max() > 1 and len({*zip(loose.x.tolist(), loose.y.tolist(), strict=True)}) == 40


def test_few_components_stay_in_one_row() -> None:
    assert lay_out(3, []).rank.tolist() == [0, 0, 0]


def test_nothing_and_one_and_a_cycle() -> None:
    nothing = lay_out(0, [])
    assert (len(nothing.x), len(nothing.point_x), nothing.point_start.tolist()) == (0, 0, [0])
    assert (nothing.width, nothing.height) == (0.0, 0.0)
    assert len(place(0, []).rank) == 0
    one = lay_out(1, [])
    assert (one.x.tolist(), one.y.tolist(), one.width, one.height) == ([50.0], [15.0], 100.0, 30.0)
    with pytest.raises(ValueError, match="cycle"):
        lay_out(3, [(0, 1), (1, 2), (2, 1)])


def test_read_only_arrays_are_welcome() -> None:
    start, target = csr(3, [(0, 1), (1, 2)])
    arrays = [start, target, np.full(3, 100.0), np.full(3, 30.0)]
    for array in arrays:
        array.setflags(write=False)
    assert layered_layout(*arrays).rank.tolist() == [0, 1, 2]


def decoder(layers: int) -> tuple[int, Links]:
    """Blocks of 70 operators in chains with residuals; two tensors at the top are read in every block."""
    links: Links = []
    for layer in range(layers):
        base = 2 + 70 * layer
        links += pairwise(range(base, base + 70))
        links += [
            (base, base + 30),
            (base + 30, base + 69),
            (0, base + 12),
            (1, base + 15),
            (base + 5, base + 20),
        ]
        if layer:
            links.append((base - 1, base))
    return 2 + 70 * layers, links


@pytest.mark.parametrize("layers", [80, 285])
def test_benchmark_decoder(benchmark, layers: int) -> None:
    nodes, links = decoder(layers)
    start, target = csr(nodes, links)
    width, height = np.full(nodes, 148.0), np.full(nodes, 32.0)
    layout = benchmark(layered_layout, start, target, width, height)
    assert layout.rank.max() == 70 * layers - 1


def test_benchmark_random_20_000(benchmark) -> None:
    random = np.random.default_rng(0)
    target = np.arange(1, 20_000)
    links = [(int(max(0, v - 1 - random.geometric(0.1))), int(v)) for v in target for _ in range(2)]
    start, target = csr(20_000, links)
    width, height = np.full(20_000, 148.0), np.full(20_000, 32.0)
    assert np.isfinite(benchmark(layered_layout, start, target, width, height).x).all()
