"""`tilewright plan`: a plan from the command line, without the window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer.__main__ import main
from model.graph.load import load_graph
from model.plan import edits
from model.plan.file import load_plan
from model.plan.notation import from_text, to_text
from model.plan.starting import starting_plan

from .test_command_words import said

GRAPH = "swiglu_mlp"


def made(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["plan", GRAPH, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_plans_to_begin_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph(GRAPH)
    for words, plan in (
        ([], starting_plan(graph).plan),
        (["--unfused"], edits.unfused(graph)),
        (["--groups", "[mlp_gate mlp_sigmoid]"], from_text(graph, "[mlp_gate mlp_sigmoid]")),
    ):
        path = tmp_path / "plan.json"
        text = made(capsys, *words, "-o", str(path))["text"]
        assert text == to_text(graph, plan)
        assert load_plan(path, graph) == plan
        assert made(capsys, "--plan", str(path))["text"] == text


def test_edits_are_made_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph(GRAPH)
    first, second = (graph.operators[i].name for i in graph.edges[0][:2])
    fused = made(capsys, "--unfused", "--fuse", first, second)
    assert f"[{first} {second}]" in fused["text"]
    assert made(capsys, "--unfused", "--toggle", first, second)["text"] == fused["text"]
    alone = to_text(graph, edits.unfused(graph))
    assert made(capsys, "--unfused", "--fuse", first, second, "--split", second)["text"] == alone
    assert made(capsys, "--unfused", "--split", second, "--fuse", first, second)["text"] == fused["text"]


def test_what_is_not_legal_offers_the_fix_and_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", GRAPH, "--unfused", "--fuse", "mlp_gate", "mlp_down"]
    assert "Take `mlp_sigmoid`, `mlp_silu`, `mlp_mul` as well: name them, or give --complete" in said(
        capsys, *words
    )
    assert main([*words, "--complete"]) == 0
    text = capsys.readouterr().out
    assert "taken as well: `mlp_sigmoid`, `mlp_silu`, `mlp_mul`" in text and "6 operators in 2 groups" in text
    assert "--groups: `mlp_gate` with `mlp_down`" in said(
        capsys, "plan", GRAPH, "--groups", "[mlp_gate mlp_down]"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--fuse", "mlp_gate", "mlp_siluu"],
            "--fuse: there is no operator 'mlp_siluu'. Did you mean 'mlp_silu'?",
        ),
        (["--fuse", "mlp_gate"], "--fuse mlp_gate joins nothing"),
        (["--toggle", "mlp_gate", "mlp_down"], "no edge leads from `mlp_gate` to `mlp_down`"),
        (["--groups", "[mlp_gate"], "the last [ is not closed"),
        (["--fuse", "MatMul", "mlp_silu"], "3 operators are a MatMul"),
        (["-o", "/nowhere/at/all.json"], "there is no folder /nowhere/at"),
        (["-o", "/"], "is a folder"),
        (["-o", ""], "is no name of a file"),
        (["-o", "-"], "is no name of a file"),
        (["-o", "x\0y"], "is no name of a file"),
        (["-o", "a" * 5000], "is a name of more than 255 bytes"),
        (["-o", "/dev/null"], "is no ordinary file"),
        (["--plan", ""], "no such plan file"),
    ],
)
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in said(capsys, "plan", GRAPH, *words)


def test_what_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.dot"
    model.write_text("digraph g { x [op=Input]; r [label=Relu]; x -> r; }")
    before = model.read_bytes()
    for words in (["plan", str(model)], ["tune", str(model), "--tiles-only"]):
        assert "is read here and would be lost" in said(capsys, *words, "-o", str(model))
    assert model.read_bytes() == before
    path = tmp_path / "plan.json"  # a plan that is edited in place is no such loss
    assert main(["plan", GRAPH, "-o", str(path)]) == 0
    assert main(["plan", GRAPH, "--plan", str(path), "--split", "mlp_silu", "-o", str(path)]) == 0
