"""What the tool chooses where the plan is silent: its estimate against the walk, and its tiles against drawn ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from model.cost import cycles as c
from model.cost.counted import Counted
from model.cost.inwards import choose
from model.cost.operands import Operands
from model.cost.problem import pose
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.cost.solve import solve
from model.cost.unify import unify
from model.cost.units import Machine
from model.cost.walked import Walked
from model.graph.band import ENDLESS
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan import edits
from model.plan.plan import FusionGroup, LevelTile
from tests.cost_graphs import attention, masked

SAMPLES = ("attention_prefill", "swiglu_mlp", "residual_block")
MACHINES = ("edge-npu", "a100", "tpu-v4i", "ethos-like")


def groups(sample: str) -> Iterator[tuple[Operands, FusionGroup]]:
    """The starting plan's groups, each structure once."""
    graph = load_graph(sample)
    operands = Operands(graph, {})
    seen: set[object] = set()
    for group in edits.contraction_tails(graph).groups:
        operators = [graph.operators[i] for i in group.operators]
        key = tuple((op.op_type, op.kind, tuple((d.name, d.extent) for d in op.dims)) for op in operators)
        if key not in seen:
            seen.add(key)
            yield operands, group


def test_the_estimate_that_orders_candidates_follows_the_walk() -> None:
    off: list[float] = []
    for sample in SAMPLES:
        for operands, group in groups(sample):
            for name in MACHINES:
                machine = Machine(load_hardware(name))
                space = unify(operands.graph, group.operators)
                problem = pose(operands.graph, group, space, machine, "bf16")
                mapping = choose(problem, group)
                walked = Walked(Counted(operands, group, problem, mapping, "bf16"))
                off.append(abs(mapping.estimated_s / walked.seconds - 1.0))
    assert len(off) > 40
    assert np.quantile(off, 0.5) < 0.01
    assert np.quantile(off, 0.9) < 0.05
    assert max(off) < 0.25


BANDS = ((512, 512, 0, ENDLESS), (2048, 2048, 0, ENDLESS), (1024, 1024, 0, 128), (256, 2048, 1792, ENDLESS))


def test_the_estimate_sees_what_a_mask_leaves() -> None:
    """Causal, sliding and continued attention, fused and apart, on one head and on many: cores have uneven work."""
    off: list[float] = []
    for heads in (1, 4, 16):
        for queries, keys, offset, window in BANDS:
            graph = masked(attention(queries, keys, 64, heads, "float16"), offset, window)
            operands = Operands(graph, {})
            for members in ((0, 1, 2), (0,), (1,), (2,)):
                group, space = FusionGroup(members), unify(graph, members)
                for name in MACHINES:
                    problem = pose(graph, group, space, Machine(load_hardware(name)), "bf16")
                    mapping = choose(problem, group)
                    walked = Walked(Counted(operands, group, problem, mapping, "bf16"))
                    off.append(abs(mapping.estimated_s / walked.seconds - 1.0))
    assert np.quantile(off, 0.5) < 0.03
    assert np.quantile(off, 0.9) < 0.15
    assert max(off) < 0.6  # a few tiles of very different numbers of points, none of them hidden by another


@pytest.mark.parametrize("name", MACHINES)
def test_no_drawn_tile_is_much_better(name: str) -> None:
    """`T + D / 8` of what is chosen, against the best of 40 tiles drawn at random, other knobs left to the tool."""
    machine = Machine(load_hardware(name))
    draw = random.Random(7)
    ratios: list[float] = []
    for operands, group in groups("attention_prefill"):

        def value(group: FusionGroup, operands: Operands = operands) -> float:
            found = solve(operands, group, machine, "bf16")
            moved = found.dram_read_bytes + found.dram_write_bytes
            seconds = found.latency_ns * 1e-9 + moved / 8 / machine.figures[c.M_DEVICE]
            return seconds if found.infeasible is None else float("inf")

        dims = [(d, e) for d, e in solve(operands, group, machine, "bf16").dims if e > 1]
        if not dims:
            continue
        best = float("inf")
        for _ in range(40):
            tile = tuple((d, min(e, 1 << draw.randrange(1 + e.bit_length()))) for d, e in dims)
            level = LevelTile(machine.accelerator.buffer.name, tile)
            best = min(best, value(replace(group, levels=(level,))))
        ratios.append(value(group) / best)
    assert len(ratios) >= 8
    assert max(ratios) < 1.05
    assert sum(ratios) / len(ratios) < 1.01


ATTENTION = ("attn_scores", "attn_scale", "attn_softmax", "attn_context")


@pytest.mark.parametrize("name", ["edge-npu", "a100"])
@pytest.mark.parametrize(
    "pinned", [(("n_2", 128),), (("b_2", 1), ("b_3", 2)), (("m", 128), ("n", 256), ("n_2", 128))]
)
def test_a_search_with_less_freedom_is_hardly_better(name: str, pinned: tuple[tuple[str, int], ...]) -> None:
    """Fused attention, where the steps of two products and the tail between them alternate; and a product alone."""
    graph = load_graph("transformer_block")
    operands, machine = Operands(graph, {}), Machine(load_hardware(name))
    members = ("attn_k",) if "k" in dict(pinned) else ATTENTION
    free = FusionGroup(tuple(graph.operator_by_name[operator] for operator in members))
    level = LevelTile(machine.accelerator.buffer.name, pinned)

    def value(group: FusionGroup) -> float:
        found = solve(operands, group, machine, "fp16")
        moved = found.dram_read_bytes + found.dram_write_bytes
        return found.latency_ns * 1e-9 + moved / 8 / machine.figures[c.M_DEVICE]

    assert value(free) < 1.05 * value(replace(free, levels=(level,)))


@pytest.mark.parametrize("name", ["edge-npu", "a100"])
def test_without_registers_the_tool_chooses_what_fits(name: str) -> None:
    """Unfinished sums rest in the buffer at their full width then: the search must count them so too."""
    machine = replace(load_hardware(name), registers=None, digest=f"{name}, no registers")
    for sample in ("swiglu_mlp", "residual_block"):
        graph = load_graph(sample)
        result = simulate(CostRequest(graph, machine, edits.contraction_tails(graph)))
        assert result.totals.feasible and result.baseline.feasible
