"""What the command says beside the tail: drivers and what-ifs, and how it refuses what has no answer."""

from __future__ import annotations

import json

import pytest

from explorer.__main__ import main
from model.packaged import folder

LOADED = """format = 1
requests = 4000
slots = 2
placement = { kind = "static" }
[[stream]]
name = "a"
home_slot = 0
arrivals = { kind = "poisson", rate_per_s = 60.0, input_tokens = 1 }
batch = { max = 4, linger_s = 0.002 }
service = { base_ns = 8000000, per_input_ns = 2000000 }
slo = { percentile = 0.95, response_s = 0.2 }
[[stream]]
name = "b"
home_slot = 1
arrivals = { kind = "poisson", rate_per_s = 20.0, input_tokens = 1 }
batch = { max = 4, linger_s = 0.002 }
service = { base_ns = 8000000, per_input_ns = 2000000 }
"""


def served(folder, capsys, text: str, *words: str):
    (folder / "w.toml").write_text(text, encoding="utf-8")
    code = main(["serve", "--workload", str(folder / "w.toml"), "--json", *words])
    said = capsys.readouterr()
    return json.loads(said.out)["serving"] if code == 0 else said.err


def test_drivers_sum_to_the_percentile(tmp_path, capsys):
    found = served(tmp_path, capsys, LOADED)
    shapley = found["shapley"]
    assert set(shapley["p95_s"]) == {"queueing", "static_partition"}
    for percentile in ("p95", "p99"):
        whole = sum(shapley[f"{percentile}_s"].values()) + shapley[f"{percentile}_base_s"]
        assert whole == pytest.approx(found[f"{percentile}_s"], rel=1e-12)


def test_contention_is_split_only_when_asked(tmp_path, capsys):
    asks = {
        "format": 1,
        "slots": 2,
        "bandwidth_bytes_per_s": 1e9,
        "phases": [["steady", 500000, 400000, 0, 0]],
    }
    (tmp_path / "p.json").write_text(json.dumps(asks), encoding="utf-8")
    text = """format = 1
requests = 500
[[stream]]
arrivals = { kind = "poisson", rate_per_s = 2000.0 }
jitter = { cv = 0.1 }
profile = "p.json"
"""
    found = served(tmp_path, capsys, text)
    assert "shapley" not in found
    # Two at 0.8 of the bandwidth each take turns at worst: 1.6 times as long.
    assert found["sigma"][0] == 1.0 and found["sigma"][1] == pytest.approx(1.6, rel=0.01)
    drivers = served(tmp_path, capsys, text, "--drivers")["shapley"]["p95_s"]
    assert set(drivers) == {"queueing", "contention"} and drivers["contention"] > 0.0


def test_every_question_has_an_answer(tmp_path, capsys):
    asked = ["load", "batch", "rate", "ramp", "placement"]
    found = served(tmp_path, capsys, LOADED, "--what-if", ",".join(asked))["whatif"]
    kinds = [answer["kind"] for answer in found]
    assert kinds == ["load", "batch", "highest_rate", "ramp", "placement"]
    assert not any(answer["first_estimate"] for answer in found)  # batches: every replay is exact
    assert main(["serve", "--workload", str(tmp_path / "w.toml"), "--what-if", "load,rate"]) == 0
    assert "what if: highest rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        (LOADED, "weather", "no question 'weather'"),
        (LOADED.replace("slo =", "# slo ="), "rate", "needs one objective to judge by"),
        (LOADED.replace("max = 4", "max = 1"), "batch", "what batches cost is known for one request only"),
        (LOADED.replace("0.95", "0.9"), "load", "what-ifs judge p50, p95, p99 or p99.9"),
    ],
)
def test_what_has_no_answer_is_refused(tmp_path, capsys, text, asked, said):
    assert said in served(tmp_path, capsys, text, "--what-if", asked)


def packaged(capsys, name: str, *words: str):
    assert main(["serve", "--workload", name, "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["serving"]


def test_the_traps_show_the_way_out(capsys):
    """The figures of docs/serving.md."""
    starves = packaged(capsys, "static-starves", "--what-if", "placement")
    (answer,) = starves["whatif"]
    assert answer["static"]["p95_s"] == starves["p95_s"] == pytest.approx(0.162, rel=0.01)
    assert answer["dynamic"]["p95_s"] == pytest.approx(0.0328, rel=0.01)
    assert starves["streams"][0]["slo_attainment"] < 0.95 < starves["slots"][0]["utilisation"] + 0.1

    always = packaged(capsys, "dynamic-always", "--what-if", "placement")
    (answer,) = always["whatif"]
    assert always["p95_s"] == pytest.approx(0.1479, rel=0.01)
    assert answer["static"]["p95_s"] == pytest.approx(0.1028, rel=0.01)
    assert answer["break_even_off_home_factor"] == pytest.approx(1.38, abs=0.01)

    batched = packaged(capsys, "batch-for-throughput", "--what-if", "batch")
    (answer,) = batched["whatif"]
    assert batched["p95_s"] == pytest.approx(0.0255, rel=0.01)
    points = {(point["batch"], point["linger_s"]): point for point in answer["points"]}
    assert points[4, 0.0]["p95_s"] == pytest.approx(0.0051, rel=0.01) and points[4, 0.0]["within"]


def test_leaving_home_can_make_more_work_than_the_slots_do(tmp_path, capsys):
    """At 1.6 times the time away from home rho 0.7 becomes more than 1: unstable, and no percentiles."""
    text = (folder("assets/workloads") / "dynamic-always.toml").read_text(encoding="utf-8")
    found = served(tmp_path, capsys, text.replace("off_home_factor = 1.45", "off_home_factor = 1.6"))
    assert found["unstable"] and found["utilisation"] > 1.0 and "p95_s" not in found
