"""Several explicit on-chip levels: one product worked by hand, what is chosen against every choice, and the walker.

By hand: A[m,k] 256 x 64 by B[k,n] 64 x 256 in int8 on DRAM (1 B/ns), 64 KiB shared (16 B/ns), 4 KiB per core (64 B/ns),
accumulators at an 8 x 8 output-stationary array, 1 GHz. Tiles m 128, n 64 under m { n } in the shared buffer, m 32,
n 12 under m { n } in the core's; k is whole in both. Loops: m (2), n (4), m' (4), n' (6: five of 12, one of 4).

DRAM: A stays for a row of tiles, 256*64 = 16,384 once. B comes for each of 2 rows of tiles: 32,768. Y once: 65,536.
Shared to core: A's 32 x 64 stay while n' turns, and come again in each of the 4 iterations of n: 65,536. B comes for
each of the 8 pieces of m: 131,072. Y once: 65,536. Core to registers (8 x 8): A for each of the 4 * (5*2 + 1) = 44
pieces of n, 720,896; B for each of the 32 of m, 524,288; Y once.
Single copies: shared 128*64 + 64*64 + 128*64 = 20,480; core 32*64 + 64*12 + 32*12 = 3,200.
Cycles: a fold takes 64 + 8 + 8 - 2 = 78; per shared tile 4*4 row folds and 11 column folds: 13,728; eight: 109,824.
One stage: everything one after the other, 114,688 ns at DRAM, 262,144 / 16 = 16,384 ns into and out of the core's
buffer, 109,824 ns of work: 240,896 ns.
Two stages: the core's 6,400 bytes do not fit, the shared 40,960 do. C = (109,824 + 16,384) / 8 = 15,776 each; L is
4,096 but 12,288 in the first step of a row, S 8,192. Only beside the fourth step is there more to move, 12,288 + 8,192:
12,288 + 7*15,776 + 20,480 + 8,192 = 151,392 ns.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from model.cost.document import simulate_document
from model.cost.evaluate import evaluate
from model.cost.halo import followed
from model.cost.inwards import choose
from model.cost.mapping import Mapping
from model.cost.nest import Nest
from model.cost.problem import Problem, pose
from model.cost.result import CostRequest, GroupResult
from model.cost.simulate import simulate
from model.cost.unify import unify
from model.cost.units import Machine
from model.graph.graph import OperatorGraph
from model.graph.load import load_graph
from model.hardware.accelerator import (
    Accelerator,
    MatrixUnit,
    MemoryLevel,
    Partition,
    Registers,
    VectorUnit,
)
from model.hardware.loader import load_hardware
from model.plan.plan import FusionGroup, LevelTile, Plan
from model.plan.starting import starting_plan
from model.search.tune import tune_tiles
from tests import walker
from tests.cost_graphs import Sketch, attention, mlp, product
from tests.test_cost_halo import chain as convolutions
from tests.test_walker import as_walked, plain

KIB = 1024


def three_levels(*rooms: int, cores: int = 1, registers: int = 64 * KIB) -> Accelerator:
    """DRAM, a shared buffer and further ones per core, of these sizes; 0 registers: none, and no units."""
    names = ("shared", "core", "inmost")
    rates = (16e9, 64e9, 256e9)
    buffers = tuple(
        MemoryLevel(name, "core" if i else "device", room, rate, energy_j_per_byte=10.0 ** -(11 + i))
        for i, (name, room, rate) in enumerate(zip(names, rooms, rates, strict=False))
    )
    dram = MemoryLevel("DRAM", "device", 1 << 33, 1e9, energy_j_per_byte=1e-10)
    bare = Accelerator(
        name="levels",
        source="tests",
        digest=f"levels {rooms} {cores} {registers}",
        clock_hz=1e9,
        cores=cores,
        memory=(dram, *buffers),
        partition=Partition(1, cores),
        partial_sum_bits=None if registers else 8,
    )
    if not registers:
        return bare
    return replace(
        bare,
        registers=Registers("accumulator", capacity_bytes=registers),
        matrix_unit=MatrixUnit("systolic", (("int8", 64.0),), rows=8, columns=8),
        vector_unit=VectorUnit(8),
    )


def by_hand(stages: int, **knobs: object) -> FusionGroup:
    shared = LevelTile(
        "shared", (("m", 128), ("n", 64), ("k", 64)), ("m", "n"), (("A", 1), ("B", 2), ("Y", 2))
    )
    core = LevelTile("core", (("m", 32), ("n", 12), ("k", 64)), ("m", "n"), (("A", 3), ("B", 4), ("Y", 4)))
    return replace(FusionGroup((0,), levels=(core, shared), stages=stages), **knobs)


def solved(graph: OperatorGraph, machine: Accelerator, group: FusionGroup) -> GroupResult:
    return simulate(CostRequest(graph, machine, Plan.of([group]))).groups[0]


def traffic(graph: OperatorGraph, found: GroupResult) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes read and written by tensor and outer level."""
    return {
        (graph.tensors[row.tensor].name, row.outer): (row.read_bytes, row.write_bytes)
        for row in found.traffic
    }


def test_a_product_worked_by_hand() -> None:
    graph = product(256, 256, 64)
    found = solved(graph, three_levels(64 * KIB, 4 * KIB), by_hand(1))
    assert traffic(graph, found) == {
        ("A", "DRAM"): (16_384, 0),
        ("B", "DRAM"): (32_768, 0),
        ("Y", "DRAM"): (0, 65_536),
        ("A", "shared"): (65_536, 0),
        ("B", "shared"): (131_072, 0),
        ("Y", "shared"): (0, 65_536),
        ("A", "core"): (720_896, 0),
        ("B", "core"): (524_288, 0),
        ("Y", "core"): (0, 65_536),
    }
    assert dict(found.footprint_bytes) == {"shared": 20_480, "core": 3_200, "registers": 256}
    assert found.cycles == 109_824
    assert round(found.latency_s * 1e9) == 240_896
    # Every byte at both of its levels: DRAM 1e-10, shared 1e-11, core 1e-12, registers 0.
    assert found.energy_j == pytest.approx(114_688 * 1.1e-10 + 262_144 * 1.1e-11 + 1_310_720 * 1e-12)
    assert [level.memory for level in found.levels] == ["shared", "core", "registers"]
    assert dict(found.levels[1].trips) == {"m": 4, "n": 6, "k": 1}
    assert not {"shared.tile", "core.tile", "core.loop_order", "core.retain"} & set(found.chosen)


def test_the_stage_that_fits_is_told_per_level() -> None:
    found = solved(product(256, 256, 64), three_levels(64 * KIB, 4 * KIB), by_hand(2))
    assert dict(found.footprint_bytes)["shared"] == 40_960
    assert dict(found.footprint_bytes)["core"] == 3_200
    assert round(found.latency_s * 1e9) == 151_392
    assert ["core" in what for _, what, _ in found.warnings] == [True]
    roomy = solved(product(256, 256, 64), three_levels(64 * KIB, 8 * KIB), by_hand(2))
    assert dict(roomy.footprint_bytes)["core"] == 6_400
    assert not roomy.warnings
    # 16,384 ns of copies hide behind 109,824 ns of work: C is 13,728, and the fourth step waits as before.
    assert round(roomy.latency_s * 1e9) == 12_288 + 7 * 13_728 + 20_480 + 8_192


def test_cores_share_what_the_shared_buffer_reads() -> None:
    """Two cores over the rows: bytes are those of the one walk; each has a part of the shared buffer, and its own."""
    graph = product(256, 256, 64)
    alone = solved(graph, three_levels(64 * KIB, 4 * KIB), by_hand(1))
    both = solved(graph, three_levels(64 * KIB, 4 * KIB, cores=2), by_hand(1, parallel=(("m", 2),)))
    assert traffic(graph, both) == traffic(graph, alone)
    assert both.parallel == (("m", 2),)
    assert dict(both.footprint_bytes) == {"shared": 2 * 20_480, "core": 3_200, "registers": 256}
    assert both.cycles == alone.cycles / 2


def test_what_is_in_the_way_of_latency_counts_at_each_level() -> None:
    """100 ns before each tile out of the shared buffer: 8*4*6 times B and Y, of which one is on its way at a time."""
    machine = three_levels(64 * KIB, 4 * KIB)
    far = replace(machine.memory[1], latency_s=1e-7)
    slow = replace(machine, memory=(machine.memory[0], far, machine.memory[2]), digest="far")
    found = solved(product(256, 256, 64), slow, by_hand(1))
    assert round(found.latency_s * 1e9) == 114_688 + 109_824 + 8 * 4 * 6 * 100


def test_sectors_of_the_shared_buffer_round_up() -> None:
    """64-byte sectors: B's runs of 12 take one each, 64 of them, 6 a shared tile, for 8 pieces of m and 4 of n."""
    graph, machine = product(256, 256, 64), three_levels(64 * KIB, 4 * KIB)
    wide = replace(machine.memory[1], access_bytes=64)
    coarse = replace(machine, memory=(machine.memory[0], wide, machine.memory[2]), digest="coarse")
    found = traffic(graph, solved(graph, coarse, by_hand(1)))
    assert found["B", "shared"] == (64 * 6 * 4 * 8 * 64, 0)
    assert found["B", "DRAM"] == (32_768, 0)
    assert found["A", "shared"] == (65_536, 0)


def test_tiles_that_do_not_fit_inside_are_said_of_their_level() -> None:
    found = solved(product(256, 256, 64), three_levels(64 * KIB, 2 * KIB), by_hand(1))
    assert found.infeasible is not None
    assert (found.infeasible.memory, found.infeasible.demand_bytes) == ("core", 3_200)
    assert found.infeasible.capacity_bytes == 2 * KIB
    assert (found.bottleneck.name, found.bottleneck.evidence) == ("infeasible", "3,200 B do not fit")


def test_registers_spill_to_the_innermost_buffer_with_room() -> None:
    """A register tile of 32 x 12 sums, 1,536 B, in accumulators of 1,024: 512 are too many at 192 core tiles."""
    held = LevelTile("registers", (("m", 32), ("n", 12), ("k", 64)))
    group = by_hand(1)
    group = replace(group, levels=(*group.levels, held))
    for core, where in ((4 * KIB, "core"), (3_300, "shared")):
        found = solved(product(256, 256, 64), three_levels(64 * KIB, core, registers=1_024), group)
        assert found.spill_to == where
        assert found.spill_bytes == 2 * 512 * 8 * 4 * 6


# What is chosen.


def chain(rows: int, widths: tuple[int, ...]) -> OperatorGraph:
    """Products one after the other with a Relu between, rows by the first width to the last."""
    sketch = Sketch()
    last = sketch.tensor("X", rows, widths[0])
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        sketch.tensor(f"W{i}", before, after, weight=True)
        last = sketch.product(last, f"W{i}", f"T{i}")
        if i + 2 < len(widths):
            last = sketch.pointwise("Relu", [last], f"R{i}")
    return sketch.graph(last)


def posed(graph: OperatorGraph, machine: Accelerator, group: FusionGroup) -> tuple[Problem, Mapping]:
    problem = pose(graph, group, unify(graph, group.operators), Machine(machine), "")
    return problem, choose(problem, group)


SMALL = (
    (product(6, 5, 4), (48, 12)),
    (product(6, 5, 4), (40, 10, 4)),
    (product(5, 3, 7), (30, 8)),
    (chain(5, (4, 6, 3)), (64, 20)),
    (chain(4, (3, 5, 4, 2)), (40, 24, 12)),
    (chain(6, (2, 6)), (24, 9)),
)


@pytest.mark.parametrize("registers", [0, 256])
@pytest.mark.parametrize(("graph", "rooms"), SMALL)
def test_the_walker_counts_what_was_chosen(
    graph: OperatorGraph, rooms: tuple[int, ...], registers: int
) -> None:
    rooms = tuple(4 * room for room in rooms) if registers else rooms
    group = FusionGroup(tuple(range(len(graph.operators))))
    problem, mapping = posed(graph, three_levels(*rooms, registers=registers), group)
    counts = evaluate(mapping.nest)
    assert walker.walk(plain(mapping.nest)) == as_walked(counts)
    assert mapping.misfit_bytes <= 0
    held = counts.footprint_bytes[: len(rooms)]
    assert all(bytes_held <= room for bytes_held, room in zip(held, rooms, strict=True))
    assert all(
        small <= large
        for inner, outer in itertools.pairwise((problem.space.extents, *mapping.tiles))
        for small, large in zip(outer, inner, strict=True)
    )


def every_inner_nest(nest: Nest, trees: int, tile: tuple[int, ...]) -> Iterator[Nest]:
    """A product's nest with every tile, order and depths of a second buffer inside the loops of the first."""
    (operator,) = nest.operators
    outer = nest.loops[:trees]
    for sizes in itertools.product(*(range(1, size + 1) for size in tile)):
        cut = [d for d in range(3) if sizes[d] < tile[d]]
        for order in itertools.permutations(cut):
            inner = [(d, sizes[d]) for d in order]
            elements = [(d, 1) for d in operator.reductions if sizes[d] > 1]
            loops = list(outer)
            for d, size in inner + elements:
                loops.append((d, size, len(loops) - 1))
            accesses = (*operator.reads, *operator.writes)
            for depths in itertools.product(*(range(a.depth[0], trees + len(inner) + 1) for a in accesses)):
                settled = [
                    replace(access, depth=(access.depth[0], depth))
                    for access, depth in zip(accesses, depths, strict=True)
                ]
                yield replace(
                    nest,
                    loops=tuple(loops),
                    operators=(
                        replace(
                            operator,
                            leaf=len(loops) - 1,
                            tree_depth=trees + len(inner),
                            reads=tuple(settled[:2]),
                            writes=tuple(settled[2:]),
                        ),
                    ),
                )


def drawn(draw: random.Random) -> tuple[OperatorGraph, str]:
    """A small group of a random kind, and the halo mode of its windows."""
    few = draw.randint
    kind = draw.choice(("product", "chain", "attention", "mlp", "windows"))
    if kind == "product":
        return product(few(1, 9), few(1, 9), few(1, 9)), ""
    if kind == "chain":
        return chain(few(1, 6), tuple(few(1, 6) for _ in range(few(3, 4)))), ""
    if kind == "attention":
        return attention(few(2, 6), few(2, 6), few(1, 4), few(1, 2)), ""
    if kind == "mlp":
        return mlp(few(1, 5), few(1, 5), few(1, 6)), ""
    layers = [[2, few(1, 3), few(2, 3), 1, few(0, 1)], [3, 2, 2, few(1, 2), 0]]
    return convolutions([2, 7, 6], layers), draw.choice(("", "retain", "retain-rows", "recompute"))


def test_the_walker_counts_what_was_chosen_for_groups_of_all_kinds() -> None:
    """Whether or not it fits; where it does not, the mapping says by how much."""
    for seed in range(60):
        draw = random.Random(seed)
        graph, halo = drawn(draw)
        registers = draw.choice((0, 64, 256))
        sizes = [draw.choice((6, 8, 12, 16, 24, 40, 64, 128)) for _ in range(draw.randint(2, 3))]
        rooms = sorted((size * (4 if registers else 1) for size in sizes), reverse=True)
        group = FusionGroup(tuple(range(len(graph.operators))), halo=halo)
        space = unify(graph, group.operators)
        machine = Machine(three_levels(*rooms, registers=registers))
        mapping = choose(pose(graph, group, followed(space, halo) if halo else space, machine, ""), group)
        counts = evaluate(mapping.nest)
        assert walker.walk(plain(mapping.nest)) == as_walked(counts), seed
        over = max(held - room for held, room in zip(counts.footprint_bytes, rooms, strict=False))
        assert mapping.misfit_bytes == max(0, over), seed


def bytes_at(nest: Nest, level: int) -> int:
    return sum(
        row.reads + row.writes + row.partial_reads + row.partial_writes
        for row in evaluate(nest).streams
        if row.level == level
    )


@pytest.mark.parametrize(
    ("sizes", "rooms"),
    [((4, 4, 3), (24, 8)), ((5, 3, 4), (30, 7)), ((4, 3, 5), (20, 6)), ((3, 3, 6), (18, 7))],
)
def test_two_levels_against_every_choice(sizes: tuple[int, int, int], rooms: tuple[int, int]) -> None:
    """Least traffic at DRAM is that of one buffer (itself held to every choice); then the least inside it.

    The inner search has no proof of it: it is held to a tenth more than the best of all tiles, orders and depths,
    and is that best in each of these.
    """
    graph = product(*sizes)
    machine = three_levels(*rooms, registers=0)
    one = replace(machine, memory=machine.memory[:2], digest=f"one {rooms}")
    plan = Plan.of([FusionGroup((0,))])
    least = tune_tiles(CostRequest(graph, one, plan))
    found = tune_tiles(CostRequest(graph, machine, plan))
    moved = [sum(result.result.groups[0].dram_bytes("DRAM")) for result in (least, found)]
    assert least.exact
    assert moved[0] == moved[1]
    (group,) = found.result.request.plan.groups
    _, mapping = posed(graph, machine, group)
    trees = mapping.nest.operators[0].tree_depth - len(mapping.further[0].order)
    best = min(
        bytes_at(nest, 1)
        for nest in every_inner_nest(mapping.nest, trees, mapping.tile)
        if evaluate(nest).footprint_bytes[1] <= rooms[1]
    )
    assert best <= bytes_at(mapping.nest, 1) <= 1.1 * best


def test_a_plan_of_what_was_chosen_is_the_same_mapping() -> None:
    for graph in (product(96, 80, 64), chain(96, (64, 96, 48))):
        machine = three_levels(8 * KIB, 2 * KIB, registers=1 * KIB)
        members = tuple(range(len(graph.operators)))
        found = solved(graph, machine, FusionGroup(members))
        assert found.feasible
        levels = tuple(
            LevelTile(level.memory, level.tile, level.loop_order, level.retain) for level in found.levels
        )
        again = solved(
            graph,
            machine,
            FusionGroup(
                members,
                levels,
                tree=found.tree,
                elements=found.elements,
                parallel=found.parallel,
                stages=found.stages,
            ),
        )
        assert traffic(graph, again) == traffic(graph, found)
        assert again.footprint_bytes == found.footprint_bytes
        assert again.latency_s == pytest.approx(found.latency_s)


def test_a_buffer_that_holds_all_changes_nothing_outside() -> None:
    """With an inner buffer as large as the outer one, DRAM traffic is that of the machine without it."""
    graph = chain(96, (64, 96, 48))
    group = FusionGroup(tuple(range(len(graph.operators))))
    machine = three_levels(16 * KIB, 16 * KIB, registers=1 * KIB)
    one = replace(machine, memory=machine.memory[:2], digest="one")
    assert sum(solved(graph, machine, group).dram_bytes("DRAM")) == sum(
        solved(graph, one, group).dram_bytes("DRAM")
    )


def test_an_intermediate_lives_in_the_innermost_buffer_that_has_room() -> None:
    """T is 64 x 64 in int8: at a core with 16 KiB it never passes the shared buffer, at one with 1 KiB it does."""
    graph = chain(64, (64, 64, 64))
    group = FusionGroup((0, 1, 2))
    for room, passes in ((16 * KIB, False), (1 * KIB, True)):
        machine = three_levels(64 * KIB, room, registers=1 * KIB)
        found = solved(graph, machine, group)
        assert found.feasible
        assert {name for name, outer in traffic(graph, found) if outer == "DRAM"} == {"X", "W0", "W1", "T1"}
        assert (
            bool({"T0", "R0"} & {name for name, outer in traffic(graph, found) if outer == "shared"})
            == passes
        )


@pytest.mark.parametrize(
    "name", ["transformer_block", "inverted_residual", "attention_prefill", "swiglu_mlp"]
)
def test_a_packaged_machine_with_two_buffers_fits_the_samples(name: str) -> None:
    machine = load_hardware("tpu-v4i")
    assert [buffer.name for buffer in machine.buffers] == ["CMEM", "VMEM"]
    graph = load_graph(name)
    result = simulate(CostRequest(graph, machine, starting_plan(graph).plan, "bf16"))
    assert result.totals.feasible
    for group, document in zip(result.groups, simulate_document(result)["groups"], strict=True):
        if not group.launches:
            continue
        assert {"CMEM", "VMEM"} <= set(document["footprint_bytes"])
        assert {"CMEM", "VMEM"} <= set(document["levels"])
        assert {("HBM", "CMEM"), ("CMEM", "VMEM")} <= {
            (row["from"], row["to"]) for row in document["traffic"]
        }


def test_random_products_fit_every_level() -> None:
    draw = random.Random(7)
    for _ in range(40):
        sizes = draw.randint(1, 300), draw.randint(1, 300), draw.randint(1, 300)
        rooms = sorted((draw.choice((1, 2, 4, 8, 32)) * KIB for _ in range(draw.randint(2, 3))), reverse=True)
        graph = product(*sizes)
        machine = three_levels(*rooms, registers=draw.choice((256, 1_024)))
        _, mapping = posed(graph, machine, FusionGroup((0,)))
        held = evaluate(mapping.nest).footprint_bytes
        assert mapping.misfit_bytes <= 0, (sizes, rooms)
        assert all(one <= room for one, room in zip(held, rooms, strict=False)), (sizes, rooms)
