"""Cards that explain numbers: every number has one, and its inputs and shares give the number."""

from __future__ import annotations

import json
import re

import pytest

from explorer.__main__ import main
from model.cost.result import CostRequest, CostResult, Totals
from model.cost.simulate import simulate
from model.cost.why import numbers, why
from model.errors import UsageError
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.plan.edits import contraction_tails, set_level, unfused
from model.plan.plan import LevelTile
from model.serving.document import serving_document
from model.serving.profile import profile_of
from model.serving.serve import serve
from model.serving.why import NUMBERS
from model.serving.why import numbers as serving_numbers
from model.serving.why import why as serving_why
from model.serving.workload import load_workload
from model.terminal import quantity, size
from model.why import card_text, figure_text

from .cost_graphs import Sketch, one_buffer, product


@pytest.fixture(scope="module")
def result() -> CostResult:
    graph = load_graph("transformer_block")
    return simulate(CostRequest(graph, load_hardware("edge-npu"), contraction_tails(graph)))


def test_every_total_has_a_card_and_every_card_a_text(result):
    named = {name.removeprefix("totals.") for name in numbers(result) if name.startswith("totals.")}
    assert named == set(Totals.__dataclass_fields__) | {"dram_bytes", "footprint_bytes"}
    for number in numbers(result):
        card = why(result, number)
        assert card.title and card.formula and card.value.value is not None
        assert card_text(card).startswith(card.number)


def test_shares_of_a_sum_are_the_largest_groups_and_at_most_the_whole(result):
    for number in ("latency_s", "dram_bytes", "macs", "energy_j", "operator_bytes"):
        card = why(result, number)
        values = [share.value for share in card.shares]
        assert values == sorted(values, reverse=True)
        assert 0.5 < sum(share.of_total for share in card.shares) <= 1.0 + 1e-9
        for share in card.shares:
            assert share.of_total == pytest.approx(share.value / card.value.value, rel=1e-6)


def test_the_formula_of_the_reuse_ratio_gives_the_ratio(result):
    card = why(result, "totals.onchip_reuse_ratio")
    inputs = {figure.name: figure.value for figure in card.inputs}
    assert card.value.value == pytest.approx(1.0 - inputs["DRAM bytes"] / inputs["operator bytes"])
    card = why(result, "launch_overhead_reduction")
    now, unfused = (figure.value for figure in card.inputs)
    assert card.value.value == pytest.approx(1.0 - now / unfused)


def test_a_footprint_names_its_tensors_and_where_they_lie(result):
    card = why(result, "footprint_bytes")
    level = result.request.accelerator.buffer.name
    sums: list[list[float]] = []
    for share in card.shares:
        if share.name.startswith("  "):
            assert share.name.endswith(f" in {level}") or "written over an input" in share.name
            sums[-1][1] += share.value
        else:
            sums.append([share.value, 0.0])
    launched = [group for group in result.groups if group.launches]
    held = [dict(group.footprint_bytes)[level] for group in launched]
    assert [own for own, _ in sums] == sorted(held, reverse=True)
    assert all(own == parts for own, parts in sums)
    largest = max(range(len(result.groups)), key=lambda i: len(result.groups[i].resident))
    alone = why(result, f"G{largest + 1}.footprint_bytes")
    assert len(alone.shares) == len(result.groups[largest].resident)


def test_tensors_of_a_group_sum_to_its_traffic(result):
    card = why(result, "G2.dram_bytes")
    assert sum(share.value for share in card.shares) == card.value.value
    assert sum(share.of_total for share in card.shares) == pytest.approx(1.0)
    assert "Loop tree: " in card.note


def test_parts_of_a_percentile_sum_to_it(result):
    outcome = serve(load_workload("azure-code"), profile_of(result))
    for number in NUMBERS:
        assert serving_why(outcome, number).number == number
    card = serving_why(outcome, "p95_s")
    assert sum(share.value for share in card.shares) == pytest.approx(card.value.value)


@pytest.mark.parametrize("name", ["code-answers", "warm-afternoon", "static-starves"])
def test_every_number_of_a_tail_has_a_card_that_says_what_its_json_says(name):
    outcome = serve(load_workload(name))
    document = serving_document(outcome)
    asked = serving_numbers(outcome)
    assert set(NUMBERS) <= set(asked)
    for number in asked:
        card = serving_why(outcome, number)
        assert card.number == number and card.formula and card.inputs, number
        value: object = document
        for key in number.split(".")[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        if number == "serving.busiest_slot":
            value = max(slot["utilisation"] for slot in document["slots"])
        if value is not None:
            assert card.value.value == pytest.approx(value), number
    there = {number.split(".")[1] for number in asked}
    assert ({"ttft", "tpot", "kv_peak_bytes", "tokens_per_s"} <= there) == (name == "code-answers")
    assert ("thermal" in there) == (name == "warm-afternoon")
    assert ("goodput_rps" in there) == (name != "warm-afternoon")
    with pytest.raises(UsageError, match=re.escape("no number 'serving.ttft.p42_s'")):
        serving_why(outcome, "serving.ttft.p42_s")


def test_goodput_counts_who_answers_in_time():
    outcome = serve(load_workload("code-answers"))
    response = outcome.requests.completion_ns - outcome.requests.arrival_ns
    span_s = float(outcome.requests.completion_ns.max() - outcome.requests.arrival_ns[0]) * 1e-9
    assert outcome.goodput_rps == pytest.approx(float((response <= 5_000_000_000).sum()) / span_s)
    assert serving_document(outcome)["goodput_rps"] == outcome.goodput_rps
    assert serve(load_workload("warm-afternoon")).goodput_rps is None


def test_an_unknown_number_is_refused_with_the_nearest(result):
    with pytest.raises(UsageError, match=re.escape("totals.latency_s")):
        why(result, "latency")
    with pytest.raises(UsageError, match="This plan has G1 to G"):
        why(result, "G99.latency_s")
    with pytest.raises(UsageError, match="no number 'nonsense'"):
        why(result, "nonsense")


def test_the_command_prints_the_card(capsys):
    assert main(["simulate", "swiglu_mlp", "--why", "G1.footprint_bytes"]) == 0
    assert "resident in buffer" in capsys.readouterr().out
    assert main(["simulate", "swiglu_mlp", "--why", "energy_j", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["why"]["value"]["value"] == printed["totals"]["energy_j"]
    assert main(["simulate", "swiglu_mlp", "--why", "serving.p95_s"]) == 2
    assert "--workload" in capsys.readouterr().err
    assert main(["simulate", "swiglu_mlp", "--why", "p42"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_figures_are_written_with_their_units():
    assert figure_text(231735296, "B") == "221 MiB"
    assert figure_text(0.797, "share") == "79.7%"
    assert figure_text(1.82e-3, "s") == "1.82 ms"
    assert figure_text(8819, "") == "8,819"
    assert figure_text(True, "") == "yes"


@pytest.mark.parametrize("sample", ["transformer_block", "inverted_residual", "training_step", "unet_level"])
@pytest.mark.parametrize("machine", ["edge-npu", "a100"])
def test_a_footprint_is_shared_out_to_its_tensors(sample: str, machine: str) -> None:
    graph = load_graph(sample)
    result = simulate(CostRequest(graph, load_hardware(machine), contraction_tails(graph)))
    buffer = result.request.accelerator.buffer.name
    for index, group in enumerate(result.groups):
        held = dict(group.footprint_bytes).get(buffer, 0)
        card = why(result, f"G{index + 1}.footprint_bytes")
        assert sum(size for _, size in group.resident) == held
        if held:
            touched = {
                a.tensor
                for o in group.operators
                for a in (*graph.operators[o].inputs, *graph.operators[o].outputs)
            }
            roots = {graph.roots[tensor] for tensor in touched}
            assert {tensor for tensor, _ in group.resident} <= touched | roots | {-1}
            assert all(size > 0 for tensor, size in group.resident if tensor >= 0)
            assert card.shares
            assert sum(share.value for share in card.shares) == held


def test_the_shares_of_a_footprint_by_hand() -> None:
    """k { n { MatMul } }: all of Y (4x5) stays, of A (4x6) a column per k, of B (6x5) an element per k and n."""
    graph = product(4, 5, 6)
    level = LevelTile("buffer", (("m", 4), ("n", 1), ("k", 1)), ("k", "n"), (("A", 1), ("B", 2), ("Y", 0)))
    plan = set_level(graph, unfused(graph), 0, level)
    result = simulate(CostRequest(graph, one_buffer(1 << 12), plan))
    shares = {share.name: share.value for share in why(result, "G1.footprint_bytes").shares}
    assert shares == {"Y in buffer": 20, "A in buffer": 4, "B in buffer": 1}
    assert dict(result.groups[0].footprint_bytes) == {"buffer": 25}


def test_what_is_written_over_an_input_is_not_held_twice() -> None:
    """Relu over 64 bytes at once: the input's tile and the output's, of which one takes the place of the other."""
    sketch = Sketch()
    sketch.tensor("x", 8, 8)
    graph = sketch.graph(sketch.pointwise("Relu", ["x"], "y", "relu"))
    level = LevelTile("buffer", (("i0", 8), ("i1", 8)), (), (("x", 0), ("y", 0)))
    result = simulate(CostRequest(graph, one_buffer(1 << 12), set_level(graph, unfused(graph), 0, level)))
    named = {graph.tensors[t].name if t >= 0 else "": size for t, size in result.groups[0].resident}
    assert named == {"x": 64, "y": 64, "": -64}
    assert dict(result.groups[0].footprint_bytes) == {"buffer": 64}


def test_a_tile_size_says_what_it_divides_and_what_its_neighbours_would_do() -> None:
    graph, machine = load_graph("swiglu_mlp"), load_hardware("edge-npu")
    result = simulate(CostRequest(graph, machine, contraction_tails(graph)))
    card = why(result, "G1.buffer.m")
    said = {figure.name: figure.value for figure in card.inputs}
    group = result.groups[0]
    assert card.value.value == dict(group.levels[0].tile)["m"] == 256
    assert card.formula == "of 512, in 2 trips, all alike"
    assert said["who says so"] == "the tool"
    assert said["multiple of the machine's 32"] == 8
    assert said["held in buffer"] == said["capacity of buffer"] == 512 << 10
    assert said["next larger, 512"] == "does not fit: 768 KiB in buffer, 512 KiB available"
    # The smaller one, set by hand with the other tiles as they are, is what the card says of it.
    tile = tuple((dim, 192 if dim == "m" else extent) for dim, extent in group.levels[0].tile)
    plan = set_level(graph, contraction_tails(graph), 0, LevelTile("buffer", tile))
    other = simulate(CostRequest(graph, machine, plan))
    told = str(said["next smaller, 192"])
    assert told.startswith(f"{quantity(other.groups[0].latency_s, 's')} (+")
    assert f"DRAM {size(sum(other.groups[0].dram_bytes('DRAM')))} (+" in told
    own = why(other, "G1.buffer.m")
    assert own.formula == "of 512, in 3 trips, the last of 128"
    assert {figure.name: figure.value for figure in own.inputs}["who says so"] == "the plan"


def test_every_tile_of_every_level_has_a_card(result) -> None:
    few = simulate(CostRequest(product(40, 50, 60), one_buffer(1 << 12), unfused(product(40, 50, 60))))
    for level in few.groups[0].levels:
        for dim, extent in level.tile:
            assert why(few, f"g1.{level.memory}.{dim}").value.value == extent
    for number, message in (
        ("G1.buffer.zz", "G1 has no tile buffer.zz. It has buffer: "),
        ("G1.DRAM.m", "G1 has no tile DRAM.m"),
        ("G99.buffer.m", "no group G99. This plan has G1 to G16"),
        ("G" + "9" * 5000 + ".latency_s", "no group"),
        ("a.b.c", "no number 'a.b.c'"),
    ):
        with pytest.raises(UsageError) as caught:
            why(result, number)
        assert message in caught.value.sentence()
