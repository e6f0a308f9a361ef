"""The mini case: most fusion is fastest alone and slowest under load, and one boundary back restores the tail.

Packaged graph, machine, plans and workloads, unedited (docs/mini-case.md). The control has bandwidth without end:
without contention nothing turns round.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer.__main__ import main
from model.cost.profile import contention
from model.cost.result import CostRequest, CostResult
from model.cost.simulate import GroupCache, simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.packaged import folder
from model.plan.file import load_plan
from model.serving.profile import profile_of
from model.serving.serve import serve
from model.serving.workload import load_workload
from tests.test_samples import sample_script

PLANS = ("moderate", "maximum", "boundary-back")


@pytest.fixture(scope="module")
def results() -> dict[str, CostResult]:
    graph, machine = load_graph("mini_case"), load_hardware("npu-8-slots")
    cache = GroupCache()
    return {
        name: simulate(CostRequest(graph, machine, load_plan(f"mini-case-{name}", graph)), cache)
        for name in PLANS
    }


def moved(result: CostResult) -> int:
    return result.totals.dram_read_bytes + result.totals.dram_write_bytes


def test_launches_and_feasibility(results: dict[str, CostResult]) -> None:
    assert [results[name].totals.launches for name in PLANS] == [36, 12, 24]
    assert all(result.totals.feasible for result in results.values())


def test_alone_most_fusion_is_fastest(results: dict[str, CostResult]) -> None:
    latency = {name: result.totals.latency_s for name, result in results.items()}
    assert latency["maximum"] < latency["boundary-back"] < latency["moderate"]


def test_most_fusion_moves_most_because_weights_no_longer_stay(results: dict[str, CostResult]) -> None:
    moderate, maximum, back = (results[name] for name in PLANS)
    assert moved(maximum) > 1.1 * moved(moderate) and moved(moderate) > 1.1 * moved(back)
    again = [sum(int(group.phases["refetch"].sum()) for group in results[name].groups) for name in PLANS]
    # Bytes beyond what each plan must move once: more than all of the difference is weights fetched again.
    assert again[1] - again[0] > moved(maximum) - moved(moderate)
    assert again[1] > 3 * again[2]


def test_closed_form_warns_of_it(results: dict[str, CostResult]) -> None:
    """U_8 (the bus's load with all slots at work) orders the plans as their tails do, the latency alone does not."""
    phases = [np.concatenate([group.phases for group in results[name].groups]) for name in PLANS]
    load = [contention(each, 8, 68e9)[0] for each in phases]
    assert load[1] > load[0] > load[2] > 0.7


def tails(results: dict[str, CostResult], seed: int, rate: float, contend: bool, folder: Path) -> list[int]:
    text = Path(load_workload("mini-case").path).read_text(encoding="utf-8")
    (folder / "seeded.toml").write_text(text.replace("seed = 0", f"seed = {seed}"), encoding="utf-8")
    workload = replace(load_workload(folder / "seeded.toml"), contention=contend)
    served = [serve(workload, profile_of(results[name]), rate_per_s=rate) for name in PLANS]
    assert not any(each.unstable for each in served)
    return [each.p95_ns for each in served]


@pytest.mark.parametrize(
    ("seed", "rate"), [(0, 640.0), (1, 576.0), (2, 704.0), (3, 640.0), (4, 576.0), (0, 704.0)]
)
def test_under_load_the_order_turns_round_and_without_contention_it_does_not(
    results: dict[str, CostResult], seed: int, rate: float, tmp_path: Path
) -> None:
    moderate, maximum, back = tails(results, seed, rate, True, tmp_path)
    assert maximum > 1.15 * moderate and moderate > 1.10 * back
    moderate, maximum, back = tails(results, seed, rate, False, tmp_path)
    assert maximum < back < moderate


def test_recorded_arrivals_through_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name in PLANS:
        words = ["--hardware", "npu-8-slots", "--plan", f"mini-case-{name}", "--workload", "mini-case-azure"]
        assert main(["serve", "mini_case", *words, "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)["serving"]
    p95 = {name: serving["p95_s"] for name, serving in found.items()}
    assert p95["maximum"] > 1.15 * p95["moderate"] and p95["moderate"] > 1.10 * p95["boundary-back"]
    # The parts say why: what is fetched again stalls it, and the queue behind that is most of the rest.
    parts = found["maximum"]["parts"]["p95"]
    assert parts["contention_queue"] + parts["stall_refetch"] > 0.7 * 1e9 * p95["maximum"]
    assert parts["stall_refetch"] > 4 * found["moderate"]["parts"]["p95"]["stall_refetch"]


def test_on_a_larger_scratchpad_fusing_more_helps(results: dict[str, CostResult], tmp_path: Path) -> None:
    """The neighbouring setting: with 2 MiB the weights stay, and the fastest alone is the fastest under load."""
    machine = results["maximum"].request.accelerator
    memory = tuple(
        replace(level, capacity_bytes=2 << 20) if level.name == "scratchpad" else level
        for level in machine.memory
    )
    larger = replace(machine, memory=memory, digest="")
    again = {name: simulate(replace(result.request, accelerator=larger)) for name, result in results.items()}
    moderate, maximum, _ = tails(again, 0, 640.0, True, tmp_path)
    assert maximum < moderate


def test_packaged_plans_are_what_the_script_builds(tmp_path: Path) -> None:
    for path in sample_script().build_plans(tmp_path):
        packaged = folder("assets") / "plans" / path.name
        assert path.read_text(encoding="utf-8") == packaged.read_text(encoding="utf-8")
