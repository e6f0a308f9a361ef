"""`tilewright tune --tiles-only` and its door: what is found is a plan, no worse than the tool's own choice."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.__main__ import main
from model.cost.result import CostRequest, Totals
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.packaged import folder
from model.plan.edits import contraction_tails
from model.plan.file import load_plan
from model.plan.plan import FusionGroup, LevelTile, Plan
from model.search.tune import OBJECTIVES, tune_tiles
from tests.cost_graphs import Sketch, attention, mlp, one_buffer, product


def moved(totals: Totals) -> int:
    return totals.dram_read_bytes + totals.dram_write_bytes


def whole(graph) -> Plan:
    return Plan((FusionGroup(tuple(range(len(graph.operators)))),))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("machine", ["edge-npu", "a100", "one-buffer"])
def test_never_worse_than_the_tools_own_choice(objective: str, machine: str) -> None:
    graph = load_graph("attention_prefill")
    request = CostRequest(graph, load_hardware(machine), contraction_tails(graph))
    own = simulate(request)
    tuned = tune_tiles(request, objective)
    for before, after in zip(own.groups, tuned.result.groups, strict=True):
        value = {
            "traffic": lambda group: sum(group.dram_bytes(request.accelerator.dram.name)),
            "latency": lambda group: group.latency_s,
            "energy": lambda group: group.energy_j,
        }[objective]
        assert value(after) <= value(before) and after.feasible
    again = tune_tiles(request, objective)
    assert again.result.request.plan == tuned.result.request.plan
    assert again.evaluations == tuned.evaluations


@pytest.mark.parametrize("graph", [product(96, 60, 120), mlp(64, 32, 96), attention(64, 96, 16, heads=3)])
def test_a_larger_buffer_never_moves_more(graph) -> None:
    before = None
    for capacity in (64, 100, 256, 1000, 1024, 5000, 20_000, 100_000):
        tuned = tune_tiles(CostRequest(graph, one_buffer(capacity), whole(graph), "int8"))
        if not tuned.result.totals.feasible:
            assert before is None
            continue
        assert tuned.exact and tuned.gap == 0.0
        assert tuned.result.totals.peak_footprint_bytes <= capacity
        assert before is None or moved(tuned.result.totals) <= before
        before = moved(tuned.result.totals)
    assert (
        before
        == simulate(
            CostRequest(graph, one_buffer(1 << 30), whole(graph), "int8")
        ).totals.compulsory_dram_bytes
    )


def stationary(m: int, n: int, k: int, capacity: int, dividing: bool) -> int:
    """Least traffic of a product by its closed form: one operand held t1 by t2, the third dim streamed one by one.

    With C held `tm` by `tn`: |A| ceil(N/tn) + |B| ceil(M/tm) + |C|. With A held `tm` by `tk`, r = ceil(K/tk):
    |A| + |B| ceil(M/tm) + (2r - 1) |C|; with B alike. Room: t1 t2 + min(t1, t2) + 1.
    """

    def sizes(extent: int) -> list[int]:
        return [t for t in range(1, extent + 1) if not dividing or extent % t == 0]

    def holds(one: int, other: int):
        return [
            (-(-one // s), -(-other // t))
            for s in sizes(one)
            for t in sizes(other)
            if s * t + min(s, t) + 1 <= capacity
        ]

    a, b, c = m * k, k * n, m * n
    found = [a * cols + b * rows + c for rows, cols in holds(m, n)]
    found += [a + b * rows + (2 * sums - 1) * c for rows, sums in holds(m, k)]
    found += [b + a * cols + (2 * sums - 1) * c for sums, cols in holds(k, n)]
    return min(found)


@pytest.mark.parametrize("dividing", [False, True])
def test_one_product_is_its_closed_form(dividing: bool) -> None:
    draw = random.Random(11)
    for _ in range(60):
        m, n, k = (draw.choice((1, 2, 3, 7, 12, 24, 30, 41, 64)) for _ in range(3))
        capacity = draw.randint(3, 1500)
        graph = product(m, n, k)
        tuned = tune_tiles(CostRequest(graph, one_buffer(capacity), whole(graph), "int8"), dividing=dividing)
        assert moved(tuned.result.totals) == stationary(m, n, k, capacity, dividing), (m, n, k, capacity)
        assert tuned.exact


def test_heads_cost_nothing_outermost() -> None:
    one = tune_tiles(CostRequest(g := attention(64, 96, 16), one_buffer(2000), whole(g), "int8"))
    three = tune_tiles(CostRequest(g := attention(64, 96, 16, heads=3), one_buffer(2000), whole(g), "int8"))
    assert moved(three.result.totals) == 3 * moved(one.result.totals)


def test_a_search_cut_short_says_so() -> None:
    graph = attention(512, 512, 64)
    request = CostRequest(graph, one_buffer(16384), whole(graph), "int8")
    full = tune_tiles(request)
    short = tune_tiles(request, evaluations=300)
    late = tune_tiles(request, budget_s=1e-9)
    assert full.exact and full.gap == 0.0
    for cut in (short, late):
        assert not cut.exact and cut.gap is not None and cut.gap > 0.0
        assert moved(full.result.totals) <= moved(cut.result.totals) <= moved(simulate(request).totals)
    assert short.evaluations <= 300 and late.evaluations == 0 and late.kept == (0,)


@pytest.mark.parametrize("length", [6, 12, 100])
def test_a_long_group_is_searched_as_far_as_it_goes(length: int) -> None:
    """Products and activations in turn: never worse than the tool's own choice, and not called exact."""
    sketch = Sketch()
    last = sketch.tensor("X", 16, 8)
    for number in range(length // 2):
        weight = sketch.tensor(f"W{number}", 8, 8, weight=True)
        last = sketch.pointwise("Relu", [sketch.product(last, weight, f"T{number}")], f"Y{number}")
    graph = sketch.graph(last)
    request = CostRequest(graph, one_buffer(300), whole(graph), "int8")
    tuned = tune_tiles(request)
    assert not tuned.exact and tuned.kept == (() if length < 64 else (0,))
    assert moved(tuned.result.totals) <= moved(simulate(request).totals)


def test_what_the_user_set_stays() -> None:
    graph = product(96, 60, 120)
    mine = FusionGroup((0,), levels=(LevelTile("buffer", (("m", 7),)),))
    tuned = tune_tiles(CostRequest(graph, one_buffer(1000), Plan((mine,)), "int8"))
    assert tuned.result.request.plan.groups == (mine,) and tuned.kept == (0,) and not tuned.exact


def test_the_command_writes_the_plan_that_it_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    words = [
        "tune",
        "attention_prefill",
        "--hardware",
        "one-buffer",
        "--objective",
        "traffic",
        "--tiles-only",
    ]
    assert main([*words, "-o", str(plan), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    search = document["search"]
    assert search["objective"] == "traffic" and search["exact"] is True and search["gap"] == 0.0
    assert search["evaluations"] > 0 and search["seconds"] > 0.0 and search["kept"] == []
    graph = load_graph("attention_prefill")
    result = simulate(CostRequest(graph, load_hardware("one-buffer"), load_plan(plan, graph)))
    assert (
        moved(result.totals) == document["totals"]["dram_read_bytes"] + document["totals"]["dram_write_bytes"]
    )
    assert main([*words]) == 0
    assert "exact: no tiles, orders and depths" in capsys.readouterr().out


def test_what_does_not_fit_is_answered_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = tmp_path / "tiny.toml"
    text = (folder("assets") / "hardware" / "one-buffer.toml").read_text(encoding="utf-8")
    machine.write_text(text.replace("capacity_bytes = 65536", "capacity_bytes = 2"), encoding="utf-8")
    words = [
        "tune",
        "attention_prefill",
        "--hardware",
        str(machine),
        "--objective",
        "traffic",
        "--tiles-only",
    ]
    assert main([*words, "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["totals"]["feasible"] is False
    assert "does not fit" in captured.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--objective", "traffic"], "--tiles-only"),
        (["--tiles-only", "--objective", "p95"], "tiles are not searched for the tail"),
        (["--tiles-only", "--evaluations", "0"], "at least 1"),
        (["--tiles-only", "--budget", "nan"], "above 0"),
        (["--tiles-only", "--precision", "int9"], "int9"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "attention_prefill", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and captured.err.count("\n") == 1


def test_one_stage_of_single_copies_is_what_the_machine_has() -> None:
    """On a machine that copies ahead the plan of least latency may have two stages; of least traffic it has one."""
    graph = load_graph("swiglu_mlp")
    request = CostRequest(graph, load_hardware("edge-npu"), contraction_tails(graph))
    assert all(g.stages in (0, 1) for g in tune_tiles(request, "traffic").result.request.plan.groups)
    single = replace(request, accelerator=load_hardware("one-buffer"))
    assert all(g.stages in (0, 1) for g in tune_tiles(single, "latency").result.request.plan.groups)
