"""A workload's plans of a graph: simulated at the shapes that it asks for, and refused by name where there are none."""

from __future__ import annotations

import json

import pytest

from explorer.__main__ import main
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails, unfused
from model.plan.file import save_plan
from model.serving.profile import profile_of

PLANNED = """format = 1
requests = 4
contention = { enabled = false }
slots = 1
[[stream]]
arrivals = { kind = "constant", rate_per_s = 1.0, input_tokens = 100 }
batch = { max = 2, linger_s = 2.0 }
bind = { length = "seq", batch = "batch" }
plans = [{ length = 64, batch = 1, plan = "tails.json" }, { length = 128, batch = 1, plan = "unfused" }]
"""


def alone_ns(plan, **bindings: int) -> int:
    graph = load_graph("transformer_block", bindings)
    return profile_of(simulate(CostRequest(graph, load_hardware("edge-npu"), plan(graph)))).base_ns


def run(folder, capsys, text: str, *words: str):
    (folder / "w.toml").write_text(text, encoding="utf-8")
    code = main(["serve", *words, "--workload", str(folder / "w.toml"), "--json"])
    said = capsys.readouterr()
    return json.loads(said.out)["serving"] if code == 0 else said.err


def test_plan_files_are_simulated_at_their_length_and_at_each_batch_size(tmp_path, capsys):
    graph = load_graph("transformer_block", {"seq": 64, "batch": 1})
    save_plan(tmp_path / "tails.json", graph, contraction_tails(graph))
    found = run(tmp_path, capsys, PLANNED, "transformer_block")
    two = alone_ns(unfused, seq=128, batch=2)
    own = two * 100 // 128
    assert found["batches"] == [{"size": 2, "count": 2}]
    assert found["parts"]["mean"]["base"] == own and found["parts"]["mean"]["padding"] == two - own
    assert "Give a GRAPH" in run(tmp_path, capsys, PLANNED)


def test_the_commands_own_plan_runs_at_each_batch_size(tmp_path, capsys):
    text = PLANNED[: PLANNED.index("plans =")].replace("requests = 4", "requests = 2")
    found = run(tmp_path, capsys, text, "transformer_block", "--bind", "seq=64")
    assert found["parts"]["mean"]["base"] == alone_ns(contraction_tails, seq=64, batch=2)
    refused = run(tmp_path, capsys, text.replace(', batch = "batch"', ""), "transformer_block")
    assert "bind names no dim that is the batch" in refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('batch = "batch"', 'batch = "rows"'), "no symbolic dim 'rows'"),
        (
            ('length = "seq", ', ""),
            "asks for length 64, and bind names no dim of the graph that is the length",
        ),
        (("tails.json", "none.json"), "names the file 'none.json'"),
    ],
)
def test_a_dim_that_is_not_there_is_refused_by_name(tmp_path, capsys, change, said):
    graph = load_graph("transformer_block", {"seq": 64, "batch": 1})
    save_plan(tmp_path / "tails.json", graph, contraction_tails(graph))
    assert said in run(tmp_path, capsys, PLANNED.replace(*change), "transformer_block")
