"""Windows fused in tiles: MACs and reads of convolution chains in three halo modes, exact; what stays, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.cost.counted import Counted
from model.cost.halo import followed
from model.cost.inwards import choose
from model.cost.operands import Operands
from model.cost.problem import pose
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.cost.unify import unify
from model.cost.units import Machine
from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.cost_graphs import Sketch, one_buffer, systolic

MODES = ("retain", "retain-rows", "recompute")
ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "halo_numbers.json").read_text(encoding="utf-8")
)["rows"]


def convolution(sketch: Sketch, x: str, out: int, kernel: int, stride: int = 1, pad: int = 0) -> str:
    """One more convolution: letters c, p, q of the output, k, r, s of the sum."""
    channels, rows, columns = sketch.shapes[x]
    high, wide = ((size + 2 * pad - kernel) // stride + 1 for size in (rows, columns))
    number = len(sketch.operators)
    weights = sketch.tensor(f"W{number}", out, channels, kernel, kernel, weight=True)
    dims = [Dim("c", out), Dim("p", high), Dim("q", wide)]
    dims += [
        Dim(name, extent, reduction=True)
        for name, extent in zip("krs", (channels, kernel, kernel), strict=True)
    ]
    one = {d: Axis(((d, 1),)) for d in range(6)}
    image = [one[3], Axis(((1, stride), (4, 1)), -pad), Axis(((2, stride), (5, 1)), -pad)]
    sketch.tensor(f"T{number}", out, high, wide)
    return sketch.add(
        "Conv",
        OpKind.CONTRACTION,
        dims,
        [(x, image), (weights, [one[0], one[3], one[4], one[5]])],
        (f"T{number}", [one[0], one[1], one[2]]),
    )


def chain(image: list[int], layers: list[list[int]]) -> OperatorGraph:
    """Convolutions one after the other; a layer is channels in and out, kernel, stride, padding."""
    sketch = Sketch()
    x = sketch.tensor("X", *image)
    for _, out, kernel, stride, pad in layers:
        x = convolution(sketch, x, out, kernel, stride, pad)
    return sketch.graph(x)


def fused(graph: OperatorGraph, tile: tuple[int, int], mode: str) -> FusionGroup:
    """All of a chain in raster order, the last map alone cut; no tile stays for longer."""
    members = tuple(range(len(graph.operators)))
    names = [operator.name for operator in graph.operators]
    space = followed(unify(graph, members), mode)
    _, rows, columns, *_ = space.dim_of[-1]
    sizes = dict(zip(space.names, space.extents, strict=True))
    sizes[rows], sizes[columns] = tile
    level = LevelTile("buffer", tuple(sizes.items()), retain=(("X", 2),))
    tree = f"{rows} {{ {columns} {{ {', '.join(names)} }} }}"
    return FusionGroup(members, (level,), tree=tree, halo=mode)


def counted(graph: OperatorGraph, group: FusionGroup) -> Counted:
    machine = Machine(one_buffer(1 << 40))
    space = followed(unify(graph, group.operators), group.halo)
    problem = pose(graph, group, space, machine, "")
    return Counted(Operands(graph, {}), group, problem, choose(problem, group), "")


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['net']}-{row['tile'][0]}x{row['tile'][1]}" for row in ROWS])
def test_macs_and_reads_of_a_chain_are_exact_in_three_modes(row: dict[str, Any]) -> None:
    channels, high, wide = row["map"]
    graph = chain([channels, high, wide], row["layers"])
    for mode, (read, macs) in row["modes"].items():
        found = counted(graph, fused(graph, (row["tile"][0], row["tile"][1]), mode))
        assert found.points.tolist() == macs
        rows = {graph.tensors[found.space.tensors[r[0]]].name: r for r in enumerate_traffic(found)}
        assert rows["X"][1] == read
        last = f"T{len(row['layers']) - 1}"
        assert rows[last][2] == graph.tensors[[t.name for t in graph.tensors].index(last)].elements
        assert [name for name in rows if name.startswith("T")] == [last]
        for i, (inside, out, kernel, _, _) in enumerate(row["layers"]):
            assert rows[f"W{i}"][1] == inside * out * kernel * kernel


def enumerate_traffic(found: Counted) -> list[tuple[int, int, int]]:
    """(local tensor, bytes read, bytes written) from and to DRAM."""
    place = {found.place(local): local for local in range(len(found.space.tensors))}
    return [
        (place[row.tensor], row.read_bytes, row.write_bytes) for row in found.traffic() if row.outer == "DRAM"
    ]


def small() -> OperatorGraph:
    """8 x 8 -> 6 x 6 -> 4 x 4, one channel of 3 x 3 windows."""
    return chain([1, 8, 8], [[1, 1, 3, 1, 0], [1, 1, 3, 1, 0]])


@pytest.mark.parametrize(
    ("mode", "points", "read", "footprint"),
    [
        # Tiles 2 x 2 of the last map, 4 x 4 of the map between, 6 x 6 of the first, both windows of 9 weights.
        # Four tiles with everything anew.
        ("recompute", 4 * 16, 4 * 36, 36 + 9 + 16 + 9),
        # Columns stay: two rows of tiles of 4 x 6 and of 6 x 8.
        ("retain-rows", 2 * 24, 2 * 48, 36 + 9 + 16 + 9),
        # Two rows of the map between (6 wide) and four of the first (8 wide: 5 - 1 overlap) stay as well.
        ("retain", 36, 64, 36 + 9 + 16 + 9 + 2 * 6 + (5 - 1) * 8),
    ],
)
def test_two_windows_by_hand(mode: str, points: int, read: int, footprint: int) -> None:
    graph = small()
    found = counted(graph, fused(graph, (2, 2), mode))
    assert found.points.tolist() == [points * 9, 16 * 9]
    rows = {graph.tensors[found.space.tensors[r[0]]].name: r for r in enumerate_traffic(found)}
    assert rows["X"][1] == read
    # Each operand of the first product; while the second runs the last map's 2 x 2 takes the place of the first's.
    assert int(found.footprint[0]) == footprint


def test_a_bigger_halo_is_paid_in_time_and_recomputed_macs() -> None:
    graph = small()
    latency, again = {}, {}
    for mode in MODES:
        group = fused(graph, (2, 2), mode)
        result = simulate(CostRequest(graph, systolic(4, 4, capacity=1 << 20), Plan.of([group])))
        assert result.totals.feasible, mode
        latency[mode], again[mode] = result.totals.latency_s, result.groups[0].recomputed_macs
        moved = sum(result.groups[0].dram_bytes("DRAM"))
        assert int(result.groups[0].phases["bytes"].sum()) == moved
    assert again == {"retain": 0, "retain-rows": 12 * 9, "recompute": 28 * 9}
    assert latency["retain"] <= latency["retain-rows"] <= latency["recompute"]


def test_a_block_with_a_way_round_keeps_its_axis_whole() -> None:
    """Y = X' + conv(X'): the sum would have both the rows and the rows that follow them."""
    sketch = Sketch()
    sketch.tensor("X", 1, 8, 8)
    sketch.pointwise("Relu", ["X"], "R", "relu")
    convolution(sketch, "R", 1, 3, 1, 1)
    sketch.pointwise("Add", ["T1", "R"], "Y")
    graph = sketch.graph("Y")
    space = unify(graph, (0, 1, 2))
    assert followed(space, "retain") == space
    result = simulate(
        CostRequest(graph, one_buffer(1 << 16), Plan.of([FusionGroup((0, 1, 2), halo="retain")]))
    )
    assert any("no window of this group can be joined" in what for _, what, _ in result.warnings)
