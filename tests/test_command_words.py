"""What a person reads where a command cannot do what was asked, or compares: one line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer.__main__ import main
from model.commands.simulate import simulate_text
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails, unfused
from model.plan.file import load_plan, plan_digest
from model.plan.plan import FusionGroup, Plan
from model.terminal import quantity

POISSON = "batch-for-throughput"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that is refused."""
    assert main(list(words)) == 2
    out, fault = capsys.readouterr()
    assert not out
    assert fault.count("\n") == 1
    return fault


def test_a_bound_number_is_said_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "swiglu_mlp", "--bind"]
    assert "'seq' is bound to 9999999999999. Extents" in said(capsys, *words, "seq=9999999999999")
    assert f"bound to {'7' * 20}… (300 digits)" in said(capsys, *words, f"seq={'7' * 300}")
    assert "bound to 88888888888888" in said(capsys, *words, "shape:x=3x88888888888888")


def test_what_cannot_be_tuned_says_what_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Give --tiles-only; --plan FILE says whose groups" in said(capsys, "tune", "swiglu_mlp")
    tail = said(capsys, "tune", "swiglu_mlp", "--tiles-only", "--objective", "p95")
    assert "serve GRAPH --plan PLAN --workload NAME" in tail
    assert "Use traffic, latency, energy" in said(capsys, "tune", "swiglu_mlp", "--objective", "speed")


def test_tune_compares_with_the_plan_that_it_began_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "tuned.json"
    words = ["tune", "swiglu_mlp", "--tiles-only", "--objective", "traffic"]
    assert main([*words, "-o", str(plan)]) == 0
    text = capsys.readouterr().out
    assert "this plan" in text.splitlines()[2]
    assert "began with" in text.splitlines()[2]
    assert "began with: contractions with their tails" in text
    assert f"written: {plan}" in text
    assert main([*words, "--json"]) == 0
    search = json.loads(capsys.readouterr().out)["search"]
    graph = load_graph("swiglu_mlp")
    found = load_plan(plan, graph)
    changed = [f"G{i + 1}" for i, group in enumerate(found.groups) if group.has_knobs]
    assert search["changed"] == changed
    for name in changed:
        assert f"\n{name} " in text.split("changed")[1]
    began = simulate(CostRequest(graph, load_hardware("edge-npu"), Plan.of([_bare(g) for g in found.groups])))
    assert search["began_with"]["latency_s"] == began.totals.latency_s
    assert main([*words, "--plan", str(plan)]) == 0
    again = capsys.readouterr().out
    assert "changed: no group" in again
    assert f"began with: {plan}" in again
    assert "not written: give -o PLAN" in again


def _bare(group: FusionGroup) -> FusionGroup:
    return FusionGroup(group.operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "digraph g { a [label=MatMul]; r [label=Relu]; a -> r; }",
            "in its 2 operators. Write its inputs into",
        ),
        ("digraph g { x [op=Input]; r [label=Relu]; x -> r; }", "e.g. --bind shape:x=1x3x224x224"),
    ],
)
def test_a_file_without_any_shape_is_no_table_of_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "bare.dot"
    path.write_text(text)
    for command in (["tune", "--tiles-only"], ["serve", "--workload", "poisson"]):
        assert message in said(capsys, *command, str(path))
    assert main(["simulate", str(path)]) == 0
    text = capsys.readouterr().out
    assert message in text
    assert text.count("\n") == 1


def test_shapes_that_are_given_make_it_a_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bare.dot"
    path.write_text("digraph g { x [op=Input]; r [label=Relu]; x -> r; }")
    assert main(["simulate", str(path), "--bind", "shape:x=3x4", "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert totals["dram_read_bytes"] == totals["dram_write_bytes"] == 3 * 4 * 4


@pytest.mark.parametrize(
    ("given", "percentile", "seconds"),
    [("0.05", 0.95, 0.05), ("p99=0.05", 0.99, 0.05), ("p99.9=2e-2", 0.999, 0.02), ("p999=1", 0.999, 1.0)],
)
def test_an_objective_on_the_command_line(
    capsys: pytest.CaptureFixture[str], given: str, percentile: float, seconds: float
) -> None:
    assert main(["serve", "--workload", POISSON, "--slo", given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"]["workload"]["slo"] == given
    assert main(["serve", "--workload", POISSON, "--slo", given]) == 0
    assert f"objective {percentile:.10g} within {quantity(seconds, 's')}" in capsys.readouterr().out


def test_an_objective_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("p99", "0", "fast", "p100=1", "p0=1", "-1"):
        assert "is no objective. Give seconds, 0.02" in said(
            capsys, "serve", "--workload", POISSON, f"--slo={text}"
        )
    assert "Give --workload NAME" in said(capsys, "simulate", "swiglu_mlp", "--slo", "0.1")


def test_another_precision_than_the_unfused_plans_is_said() -> None:
    graph, machine = load_graph("swiglu_mlp"), load_hardware("edge-npu")
    narrow = Plan.of(
        [
            FusionGroup(g.operators, precision="int8" if i < 2 else "")
            for i, g in enumerate(unfused(graph).groups)
        ]
    )
    text = simulate_text(simulate(CostRequest(graph, machine, narrow)))
    assert "2 of 6 groups compute in int8, the unfused plan beside it in the file's types" in text
    assert "Compare at equal precision: --precision int8." in text
    assert "compute in int8" not in simulate_text(simulate(CostRequest(graph, machine, narrow, "int8")))


def test_a_limit_that_no_rate_keeps_is_said_and_how_to_give_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "transformer_block", "--workload", "poisson", "--what-if", "rate"]
    assert "Give --slo p99=SECONDS" in said(capsys, *words)
    assert main([*words, "--slo", "p99=0.1"]) == 0  # one request alone takes 169 ms
    assert "no rate keeps it: at 0.0001438 requests/s p99 is still 190 ms" in capsys.readouterr().out


def test_what_a_plan_does_not_name_is_said_to_run_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    graph = load_graph("swiglu_mlp")
    names = [operator.name for operator in graph.operators]
    plan.write_text(json.dumps({"format": 1, "groups": [{"operators": names[:2]}]}))
    assert main(["simulate", "swiglu_mlp", "--plan", str(plan)]) == 0
    groups = len(names) - 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        f"plan: {plan}: {groups} groups, {groups - 1} of one operator (what the file does not name runs alone)"
    )


def test_serve_names_what_it_served(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "serve",
        "transformer_block",
        "--workload",
        "azure-code",
        "--rate",
        "2",
        "--hardware",
        "npu-8-slots",
    ]
    assert main(words) == 0
    heading = capsys.readouterr().out.partition("\n\n")[0]
    assert [line.split()[0] for line in heading.splitlines()] == ["workload", "graph", "plan", "machine"]
    for name in (
        "azure-code --rate 2.0",
        "transformer_block batch=1,seq=512",
        "16 groups, sha256:",
        "npu-8-slots",
    ):
        assert name in heading
    assert main([*words, "--json"]) == 0
    inputs = json.loads(capsys.readouterr().out)["inputs"]
    graph = load_graph("transformer_block")
    assert inputs["plan"]["digest"] == plan_digest(graph, contraction_tails(graph))
    assert inputs["plan"]["groups"] == 16 and inputs["hardware"]["name"] == "npu-8-slots"
    assert inputs["workload"]["streams"] == [
        {"name": "code", "source": "azure_llm_2023_code", "recorded": True}
    ]


def test_what_is_of_a_graph_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--plan", "x.json"], ["--bind", "seq=4"], ["--precision", "int8"], ["--hardware", "a100"]):
        assert "is of GRAPH, and none is given" in said(capsys, "serve", "--workload", POISSON, *words)


def test_an_empty_word_is_no_word_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script's variable that is not set must not mean another plan, or no workload."""
    graph = "swiglu_mlp"
    for words, message in (
        (["simulate", graph, "--plan", ""], "no such plan file"),
        (["simulate", graph, "--workload", ""], "no such workload file"),
        (["inspect", graph, "--plan", ""], "no such plan file"),
        (["tune", graph, "--tiles-only", "--plan", ""], "no such plan file"),
        (["serve", "", "--workload", "poisson"], "no packaged sample of that name"),
        (["serve", "--workload", "poisson", "--profile", ""], "cannot be read"),
    ):
        assert message in said(capsys, *words)
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    for option in ("--hardware", "--plan", "--workload"):
        assert f"{nothing}: is empty" in said(capsys, "simulate", graph, option, str(nothing))


def test_a_folder_and_a_plan_are_no_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "this is a folder, not a file" in said(capsys, str(tmp_path))
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    assert f"Open it with tilewright MODEL --plan {plan}" in said(capsys, str(plan))


def test_a_file_does_not_hide_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["samples"]) == 0
    assert "transformer_block" in capsys.readouterr().out
