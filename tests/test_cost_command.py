"""`tilewright simulate`: tables for a person, CONTRACT's JSON for a script, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer.__main__ import main
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.packaged import folder
from model.plan.edits import contraction_tails, unfused
from model.plan.file import load_plan, save_plan

TOTALS = [
    "latency_s",
    "launches",
    "launch_s",
    "compute_s",
    "dram_s",
    "dram_read_bytes",
    "dram_write_bytes",
    "operator_bytes",
    "onchip_reuse_ratio",
    "reuse_factor",
    "intermediate_onchip_share",
    "launch_overhead_reduction",
    "compulsory_dram_bytes",
    "lower_bound_dram_bytes",
    "spill_bytes",
    "peak_footprint_bytes",
    "macs",
    "recomputed_macs",
    "vector_ops",
    "energy_j",
    "code_bytes",
    "complexity",
    "feasible",
    "bottleneck",
]
GROUP = [
    "id",
    "operators",
    "dims",
    "levels",
    "tree",
    "latency_s",
    "traffic",
    "footprint_bytes",
    "registers",
    "utilisation",
    "cycles",
    "ideal_cycles",
    "launches",
    "start_s",
    "phases",
    "spill_to",
    "U_c",
    "X_c",
    "burstiness",
    "chosen",
    "bottleneck",
    "bound",
    "feasible",
    "infeasible",
]


@pytest.fixture(scope="module")
def sample() -> str:
    names = sorted(path.stem for path in folder("sample_graphs").glob("*.onnx"))
    return next(name for name in names if "mlp" in name.lower() or "swiglu" in name.lower())


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict:  # type: ignore[type-arg]
    assert main(["simulate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_is_the_contracts(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, sample)
    assert found["tool"]["name"] == "tilewright"
    assert found["format"] == 1
    assert {"graph", "hardware", "plan", "bindings", "workload"} <= set(found["inputs"])
    assert set(TOTALS) <= set(found["totals"])
    assert set(found["totals"]) == set(found["baseline"])
    for group in found["groups"]:
        assert set(GROUP) <= set(group)
        for row in group["traffic"]:
            assert set(row) == {"tensor", "from", "to", "read_bytes", "write_bytes"}
    # The sums of the parts.
    launched = [group for group in found["groups"] if group["launches"]]
    assert found["totals"]["launches"] == len(launched)
    reads = sum(row["read_bytes"] for g in found["groups"] for row in g["traffic"] if row["from"] == "DRAM")
    assert found["totals"]["dram_read_bytes"] == reads
    phases = [phase for group in found["groups"] for phase in group["phases"]]
    assert sum(phase[1] for phase in phases) == round(found["totals"]["latency_s"] * 1e9)


def test_the_default_plan_and_machine_are_said(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph(sample)
    result = simulate(CostRequest(graph, load_hardware("edge-npu"), contraction_tails(graph)))
    found = document(capsys, sample)
    assert found["inputs"]["hardware"]["name"] == "edge-npu"
    assert found["totals"]["latency_s"] == result.totals.latency_s
    assert found["baseline"]["launches"] == result.baseline.launches


def test_a_saved_plan_gives_the_numbers_of_the_plan(
    sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = load_graph(sample)
    path = tmp_path / "plan.json"
    save_plan(path, graph, unfused(graph))
    found = document(capsys, sample, "--plan", str(path))
    assert found["totals"] == found["baseline"]
    expected = simulate(CostRequest(graph, load_hardware("edge-npu"), load_plan(path, graph)))
    assert found["totals"]["latency_s"] == expected.totals.latency_s


def test_the_table_names_both_metrics_and_the_deltas(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", sample, "--hardware", "a100", "--precision", "bf16"]) == 0
    text = capsys.readouterr().out
    for words in (
        "launch-overhead reduction",
        "on-chip reuse ratio",
        "unfused",
        "bottleneck",
        "DRAM traffic",
        "× compulsory",
        "× bound",
    ):
        assert words in text
    assert "a100" in text


def test_a_workload_adds_the_tail(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    from model.serving.workload import packaged_workloads

    without_service = next(name for name in packaged_workloads() if "poisson" in name)
    found = document(capsys, sample, "--workload", without_service, "--rate", "2", "--slots", "3")
    assert found["serving"]["slot_count"] == found["inputs"]["workload"]["slots"] == 3
    assert found["serving"]["rate_per_s"] == found["inputs"]["workload"]["rate_per_s"] == 2.0
    assert found["serving"]["requests"] > 0
    assert found["inputs"]["workload"]["digest"].startswith("sha256:")


def test_wrong_words_are_one_line_and_exit_2(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        [sample, "--precision", "fp7"],
        [sample, "--hardware", "no-such-machine"],
        ["no-such-file.onnx"],
        [sample, "--plan", "no-such-plan.json"],
    ):
        assert main(["simulate", *words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.strip().splitlines()) == 1
        assert "Traceback" not in captured.err


def test_strict_answers_no_where_the_plan_does_not_fit(
    sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = (folder("assets") / "hardware" / "one-buffer.toml").read_text(encoding="utf-8")
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(machine.replace("capacity_bytes = 65536", "capacity_bytes = 2"), encoding="utf-8")
    assert main(["simulate", sample, "--hardware", str(tiny)]) == 0
    text = capsys.readouterr().out
    assert "needs" in text
    assert "available" in text
    assert main(["simulate", sample, "--hardware", str(tiny), "--strict"]) == 1
    captured = capsys.readouterr()
    assert "does not fit" in captured.err
