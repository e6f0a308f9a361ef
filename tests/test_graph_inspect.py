"""`tilewright inspect`: what a person sees, what a script gets, what wrong usage says."""

from __future__ import annotations

import json

import pytest

from explorer.__main__ import main
from model.errors import UsageError
from model.graph.bindings import DEFAULT_EXTENT, evaluate, parse_bindings, resolve, symbols_of
from model.graph.load import load_graph
from model.graph.summary import printable
from model.plan.file import save_plan
from model.plan.notation import from_text


def test_the_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "swiglu_mlp", "--bind", "batch=2,seq=16", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["format"] == 1
    assert document["bindings"] == {"batch": 2, "seq": 16}
    assert document["graph"]["digest"].startswith("sha256:")
    gate = document["operators"][0]
    assert gate["name"] == "mlp_gate"
    assert gate["dims"] == {"b": 2, "m": 16, "n": 14336, "k": 4096}
    assert (gate["known"], gate["reason"], gate["kind"]) == (True, "", "contraction")
    assert gate["inputs"] == ["x", "mlp_gate_weight"] and gate["outputs"] == ["mlp_gate"]
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert tensors["x"]["shape"] == [2, 16, 4096] and tensors["x"]["declared"] == ["batch", "seq", 4096]
    assert tensors["mlp_gate_weight"]["role"] == "weight"
    assert tensors["mlp_gate_weight"]["bytes"] == 4096 * 14336 * 2
    assert document["totals"]["macs"] == 3 * 2 * 16 * 4096 * 14336


def test_the_table_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "residual_block"]) == 0
    out = capsys.readouterr().out
    assert "spatial_conv" in out and "[c=64] [r=3] [s=3]" in out
    assert main(["inspect", "transformer_block", "--all"]) == 0
    assert "mlp_residual" in capsys.readouterr().out


def test_groups_of_a_plan_with_their_dims_and_trees(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph("attention_prefill")
    fused = from_text(graph, "[attn_scores attn_scale attn_softmax attn_context]")
    save_plan(tmp_path / "plan.json", graph, fused)
    words = ["inspect", "attention_prefill", "--plan", str(tmp_path / "plan.json")]
    assert main([*words, "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    group = next(group for group in groups if len(group["operators"]) == 4)
    # b and heads, rows, keys, depth of the scores, and of the context: the keys are its sum.
    assert sorted(group["dims"].values()) == [1, 32, 128, 128, 512, 512]
    assert group["dim_of"]["attn_scores"][3] == group["dim_of"]["attn_context"][4]
    assert group["chosen"] and group["tree"].index("attn_scores") < group["tree"].index("attn_context")
    assert main(words) == 0
    assert "(chosen when simulated)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inspect", "swiglu_mlp", "--bind", "sequence=16"], "no symbolic dim 'sequence'"),
        (
            ["inspect", "swiglu_mlp", "--bind", "seq=0"],
            "'seq' is bound to 0, and an empty dim leaves no loops",
        ),
        (["inspect", "swiglu_mlp", "--bind", "seq"], "'seq' is not name=number"),
        (["inspect", "nowhere"], "no such file"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_bindings_as_text() -> None:
    assert parse_bindings("batch=8, seq=512,") == {"batch": 8, "seq": 512}
    assert parse_bindings("") == {}
    assert parse_bindings("p2o.DynamicDimension.0=4") == {"p2o.DynamicDimension.0": 4}
    for wrong in ("seq=4.5", "seq=-1", "=3", "seq=1,seq=2", "seq=99999999999999999999", "seq=٣"):
        with pytest.raises(UsageError):
            parse_bindings(wrong)


@pytest.mark.parametrize(
    ("text", "symbols", "value"),
    [
        ("past", ("past",), 7),
        ("past + 1", ("past",), 8),
        ("2*past - seq", ("past", "seq"), 11),
        ("seq//2", ("seq",), 1),
        ("unk__12", ("unk__12",), None),
        ("a-b.c", ("a-b.c",), None),
        ("__import__('os')", ("__import__('os')",), None),
        ("9**9**9", ("9**9**9",), None),
        ("партия + 1", ("партия",), None),
    ],
)
def test_symbolic_arithmetic(text: str, symbols: tuple[str, ...], value: int | None) -> None:
    assert symbols_of(text) == symbols
    assert evaluate(text, {"past": 7, "seq": 3}) == value


def test_defaults_of_symbols() -> None:
    positions = {"N": [0], "seq": [1], "batch_plus_1": [0], "batch": [0], "unk__4": [0], "unk__5": [1]}
    values, defaulted = resolve(positions, {"batch": 6}, {"seq": 512})
    assert values == {
        "N": 1, "seq": 512, "batch_plus_1": 7, "batch": 6, "unk__4": 1, "unk__5": DEFAULT_EXTENT,
    }  # fmt: skip
    assert defaulted == ("N", "unk__4", "unk__5")


def test_names_cannot_drive_a_terminal() -> None:
    assert printable("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(printable("n" * 5000)) == 44
