"""Reference figures: replays to the nanosecond, best plan lengths exactly, queueing theory within its tolerance.

Those of the packaged trace are in ``serving_references.json`` (its source stands there) and need nothing else; the rest
are read from the reference folder where that is beside the checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from explorer.__main__ import main
from model.packaged import named_file
from model.serving.lengths import choose_lengths, cost_of
from model.serving.streams import DrawnService
from model.serving.theory import check_case, service_of

ROOT = Path(__file__).resolve().parents[1]
REFERENCES = json.loads((ROOT / "tests" / "serving_references.json").read_text(encoding="utf-8"))


def reference_toml(case, trace: str) -> str:
    """The workload file that says what a reference case says."""
    lines = ["format = 1", f"slots = {case.get('servers', 1)}"]
    if case.get("partition") == "round_robin_by_index":
        lines.append('placement = { kind = "round-robin" }')
    if throttle := case.get("throttle"):
        windows, factor = throttle["windows_ns"], [throttle["num"], throttle["den"]]
        lines.append(f"throttle = {{ windows_ns = {windows}, factor = {factor} }}")
    service = ", ".join(f"{key} = {value}" for key, value in case["service"].items())
    lines += [
        "[[stream]]",
        f'arrivals = {{ kind = "trace", file = "{trace}" }}',
        f"service = {{ {service} }}",
    ]
    if fallback := case.get("fallback"):
        lines.append(
            "fallback = { " + ", ".join(f"{key} = {value}" for key, value in fallback.items()) + " }"
        )
    if "max_batch" in case:
        linger_s = Fraction(case["timeout_ns"], 10**9)
        lines.append(f"batch = {{ max = {case['max_batch']}, linger_s = {float(linger_s)!r} }}")
    return "\n".join(lines) + "\n"


def written(folder: Path, text: str) -> str:
    path = folder / "workload.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def agrees(found, wanted) -> None:
    """Every figure of a reference replay, exactly."""
    assert found["completion_sha256"] == wanted["completion_sha256"]
    assert found["requests"] == wanted["n"]
    for key in ("p50_ns", "p95_ns", "p99_ns", "max_ns", "sum_response_ns"):
        assert found[key] == wanted[key]
    if "core_busy_ns" in wanted:
        assert [slot["busy_ns"] for slot in found["slots"]] == wanted["core_busy_ns"]
        assert [slot["requests"] for slot in found["slots"]] == wanted["core_requests"]
        assert found["utilisation"] == pytest.approx(wanted["offered_load"], rel=1e-9)
    if "batches" in wanted:
        assert sum(batch["count"] for batch in found["batches"]) == wanted["batches"]
        assert found["mean_batch"] == pytest.approx(wanted["mean_batch"], rel=1e-12)
    for percentile in ("p95", "p99"):
        parts = found["parts"][percentile]
        assert sum(parts.values()) - parts["queue_imbalance"] == wanted[f"{percentile}_ns"]


@pytest.mark.parametrize("case", REFERENCES["replay"], ids=lambda case: case["id"])
def test_replays_of_the_packaged_trace_to_the_nanosecond(tmp_path, capsys, case):
    path = written(tmp_path, reference_toml(case, case["trace"]))
    assert main(["serve", "--workload", path, "--json"]) == 0
    agrees(json.loads(capsys.readouterr().out)["serving"], case["result"])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["mooncake_conv_c14_fifo", "mooncake_conv_c14_throttle"])
def test_replays_of_another_trace_to_the_nanosecond(shared, tmp_path, capsys, name):
    cases = json.loads((shared / "oracles" / "replay_open.json").read_text())["cases"]
    case = next(case for case in cases if case["id"] == name)
    trace = shared / "traces" / Path(case["trace"]).name
    assert (
        main(["serve", "--workload", written(tmp_path, reference_toml(case, trace.as_posix())), "--json"])
        == 0
    )
    agrees(json.loads(capsys.readouterr().out)["serving"], case["result"])


@pytest.mark.parametrize("case", REFERENCES["replay"][-1:], ids=lambda case: case["id"])
def test_the_command_as_its_own_process(tmp_path, case):
    path = written(tmp_path, reference_toml(case, case["trace"]))
    command = [sys.executable, "-m", "explorer", "serve", "--workload", path, "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=True)
    agrees(json.loads(done.stdout)["serving"], case["result"])


@pytest.mark.shared
def test_the_grid_of_drivers_and_its_shapley_values_to_the_nanosecond(shared, tmp_path, capsys):
    """16 replays: queueing, fallback, static partition and throttle on and off; 24 times the values are whole."""
    grid = json.loads((shared / "oracles" / "replay_open.json").read_text())["whatif"]
    trace = (shared / "traces" / Path(grid["trace"]).name).as_posix()
    for point in grid["grid"]:
        case, on = dict(grid), point["on"]
        if not on["fallback"]:
            del case["fallback"]
        if not on["throttle"]:
            del case["throttle"]
        if on["static_partition"]:
            case["partition"] = "round_robin_by_index"
        text = reference_toml(case, trace)
        if not on["queueing"]:
            text = text.replace("slots = 8", 'slots = "unlimited"')
        assert main(["serve", "--workload", written(tmp_path, text), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["serving"]
        for key in ("p50_ns", "p95_ns", "p99_ns", "sum_response_ns", "completion_sha256"):
            assert found[key] == point[key]
        if all(on.values()):
            for percentile, values in grid["shapley"].items():
                told = found["shapley"][f"{percentile.removesuffix('_ns')}_s"]
                base = found["shapley"][f"{percentile.removesuffix('_ns')}_base_s"]
                assert round(base * 1e9) == values["base"]
                assert {name: round(value * 24e9) for name, value in told.items()} == {
                    name.removesuffix("_x24"): value
                    for name, value in values.items()
                    if name.endswith("_x24")
                }


def told(capsys, arguments: list[str]) -> dict:
    assert main(["serve", *arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["choose_lengths"]
    return found


def best_lengths_agree(capsys, folder: Path, case, trace: str) -> None:
    path = written(folder, f'format = 1\n[[stream]]\narrivals = {{ kind = "trace", file = "{trace}" }}\n')
    for row in case["rows"]:
        choose = ["--workload", path, "--choose-lengths", str(row["K"])]
        cover = told(capsys, choose)
        assert (cover["cost_tokens"], cover["fallbacks"]) == (row["cover_cost"], 0)
        assert cover["own_tokens"] == case["total_tokens"] and cover["requests"] == case["n"]
        assert cover["powers_of_two"]["plans"] == case["pow2_plans"]
        assert cover["powers_of_two"]["cost_tokens"] == case["pow2_cost"]
        assert told(capsys, [*choose, "--fallback-factor", "3"])["cost_tokens"] == row["fallback3_cost"]
        half = told(capsys, [*choose, "--fallback-factor", "3", "--train-half"])
        assert half["later"]["cost_tokens"] == row["train_half_cost_on_second"]
        assert half["later"]["fallbacks"] == row["train_half_fallbacks_on_second"]
        assert half["hindsight"]["cost_tokens"] == row["best_second_half_cost"]


def test_best_lengths_for_the_packaged_trace(tmp_path, capsys):
    best_lengths_agree(capsys, tmp_path, REFERENCES["retune"], REFERENCES["retune"]["trace"])


@pytest.mark.shared
def test_best_lengths_for_another_trace(shared, tmp_path, capsys):
    cases = json.loads((shared / "oracles" / "retune_open.json").read_text())["cases"]
    case = next(case for case in cases if "mooncake" in case["trace"])
    trace = shared / "traces" / Path(case["trace"]).name
    best_lengths_agree(capsys, tmp_path, case, trace.as_posix())


def test_best_lengths_equal_trying_every_choice():
    from itertools import combinations

    random = np.random.default_rng(1)
    for _ in range(150):
        tokens = random.integers(1, 30, random.integers(1, 12))
        most, factor = (
            int(random.integers(1, 4)),
            Fraction(int(random.integers(0, 8)), int(random.integers(1, 4))),
        )
        lengths = np.unique(tokens).tolist()
        every = [plans for k in range(1, most + 1) for plans in combinations(lengths, k)]
        least = min(cost_of(tokens, plans, factor).cost_tokens for plans in every)
        assert choose_lengths(tokens, most, factor).cost_tokens == least
        covering = [plans for plans in every if plans[-1] == lengths[-1]]
        least = min(cost_of(tokens, plans, Fraction(0)).cost_tokens for plans in covering)
        assert choose_lengths(tokens, most).cost_tokens == least


@pytest.mark.parametrize("words", [["--choose-lengths", "0"], ["--train-half"], ["--fallback-factor", "3"]])
def test_wrong_wishes_for_lengths_are_one_line(tmp_path, capsys, words):
    path = written(
        tmp_path, 'format = 1\n[[stream]]\narrivals = { kind = "trace", file = "azure_llm_2023_code.csv" }\n'
    )
    assert main(["serve", "--workload", path, *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("case", REFERENCES["queueing"], ids=lambda case: case["id"])
def test_queueing_theory_within_its_tolerance(case):
    """200,000 requests after the warm-up; tolerances grow with the root of how many fewer these are than a million."""
    figures = check_case(case, 200_000)
    assert {figure.name for figure in figures} == set(case["tol_1e6"]) - set(case.get("do_not_check", ()))
    assert [figure for figure in figures if figure.off > 1.0] == []


def test_the_bench_replays_a_file_of_reference_cases(tmp_path, capsys):
    path = tmp_path / "cases.json"
    case = REFERENCES["queueing"][0]
    path.write_text(json.dumps({"schema": "queueing-oracle/1", "cases": [case]}), encoding="utf-8")
    asked = ["bench", "--oracles", str(path), "--requests", "100000", "--json"]
    assert main(asked) == 0
    (row,) = json.loads(capsys.readouterr().out)["cases"]
    assert row["case"] == case["id"] and row["within"] and row["worst"]["off"] < 1.0
    wrong = case | {"ref": {name: value * 2 for name, value in case["ref"].items()}}
    path.write_text(json.dumps({"schema": "queueing-oracle/1", "cases": [wrong]}), encoding="utf-8")
    assert main(asked) == 1
    path.write_text("{}", encoding="utf-8")
    assert main(asked) == 2


@pytest.mark.parametrize(
    ("service", "law"),
    [
        ({"dist": "lognormal_cv2", "mean": 1.0}, DrawnService("lognormal", 1.0, cv=2.0)),
        ({"dist": "lognormal", "cv": 0.5, "mean": 3}, DrawnService("lognormal", 3.0, cv=0.5)),
        ({"dist": "two-point", "mean": 1.0, "fast": 0.5, "slow": 2.0, "p_slow": 0.1},
         DrawnService("two-point", 1.0, slow_share=0.1, slow_factor=4.0)),
    ],
)  # fmt: skip
def test_laws_of_reference_cases(service, law):
    assert service_of({"id": "x", "service": service}) == law


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"warmup": None}, "has no 'warmup'"),
        ({"service": {"dist": "weibull", "mean": 1.0}}, "'weibull' is no law"),
        ({"do_not_check": list(REFERENCES["queueing"][0]["tol_1e6"])}, "has no figure to compare"),
    ],
)
def test_a_broken_reference_case_is_one_line(tmp_path, capsys, changed, said):
    case = {name: value for name, value in (REFERENCES["queueing"][0] | changed).items() if value is not None}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"schema": "queueing-oracle/1", "cases": [case]}), encoding="utf-8")
    assert main(["bench", "--oracles", str(path), "--requests", "1000"]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told and case["id"] in told and len(told.splitlines()) == 1


def test_the_packaged_trace_is_there():
    assert named_file("azure_llm_2023_code.csv", "assets/traces", ".csv") is not None
