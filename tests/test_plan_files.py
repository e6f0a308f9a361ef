"""Text notation and plan files: round trips, and every fault with its place and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.errors import FileError, PlanError
from model.graph.graph import OperatorGraph, Tensor, TensorRole
from model.plan import edits
from model.plan.file import load_plan, plan_digest, plan_document, save_plan
from model.plan.notation import from_text, to_text
from model.plan.plan import FusionGroup, LevelTile, Plan
from tests.drawn import drawn
from tests.test_plan_legality import graphs, partitions

GRAPH = drawn("MatMul_0 = MatMul(A, w); Relu_1 = Relu(MatMul_0); s = Softmax(Relu_1); t = Softmax(s)")
FULL = FusionGroup(
    (0, 1),
    levels=(
        LevelTile("buffer", (("m", 128), ("n", 128), ("k", 64)), ("m", "n", "k"), (("A", 1),)),
        LevelTile("registers", (("m", 8), ("n", 8), ("k", 1)), ("m", "n", "k")),
    ),
    elements=("n", "m", "k"),
    tree="m { n { MatMul_0(k), Relu_1 } }",
    parallel=(("m", 4),),
    split_reduction=(("k", 2),),
    stages=2,
    threads=256,
    precision="bf16",
    sparsity="2:4",
    halo="retain",
    pinned=("w",),
)
CONTRACT = {
    "operators": ["MatMul_0", "Relu_1"],
    "levels": {
        "buffer": {
            "tile": {"m": 128, "n": 128, "k": 64},
            "loop_order": ["m", "n", "k"],
            "retain": {"A": 1},
        },
        "registers": {"tile": {"m": 8, "n": 8, "k": 1}, "loop_order": ["m", "n", "k"], "retain": {}},
    },
    "elements": ["n", "m", "k"],
    "tree": "m { n { MatMul_0(k), Relu_1 } }",
    "parallel": {"m": 4},
    "split_reduction": {"k": 2},
    "stages": 2,
    "threads": 256,
    "recompute": [],
    "precision": "bf16",
    "sparsity": "2:4",
    "halo": "retain",
    "pinned": ["w"],
}


def written(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def fault(folder: Path, document: object) -> str:
    with pytest.raises(FileError) as caught:
        load_plan(written(folder, document), GRAPH)
    assert "\n" not in caught.value.sentence()
    return caught.value.sentence()


def test_notation() -> None:
    plan = from_text(GRAPH, "[s] [Relu_1 MatMul_0]")
    assert to_text(GRAPH, plan) == "[MatMul_0 Relu_1] [s] [t]"
    assert from_text(GRAPH, "[MatMul Relu]") == plan
    assert from_text(GRAPH, "[Softmax_2 Softmax_3]").groups[-1].operators == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MatMul Softmax]", "character 9: 2 operators are a Softmax. Use the names"),
        ("[MatMul_0 Relu_9]", "there is no operator 'Relu_9'. Did you mean 'Relu_1'?"),
        ("[MatMul_0] [MatMul_0]", "MatMul_0 is named twice"),
        ("[MatMul_0", "the last [ is not closed"),
        ("MatMul_0", "'MatMul_0' is out of place"),
        ("[[MatMul_0]]", "character 2: '[' is out of place"),
        ("[]", "']' is out of place"),
        ('["MatMul_0]', "is not a quoted name"),
    ],
)
def test_notation_faults(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        from_text(GRAPH, text)
    assert message in caught.value.sentence()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_notation_and_file_keep_any_partition_and_any_name(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    odd = data.draw(
        st.lists(
            st.text(min_size=1), min_size=len(graph.operators), max_size=len(graph.operators), unique=True
        )
    )
    for operator, name in zip(graph.operators, odd, strict=True):
        object.__setattr__(operator, "name", name)
    plan = data.draw(partitions(graph))
    assert from_text(graph, to_text(graph, plan)) == plan


def test_contract_document_both_ways(tmp_path: Path) -> None:
    path = written(tmp_path, {"format": 1, "graph": GRAPH.digest, "groups": [CONTRACT]})
    plan = load_plan(path, GRAPH)
    assert plan == Plan((FULL, FusionGroup((2,)), FusionGroup((3,))))
    document = plan_document(GRAPH, plan)
    assert document["groups"][1:] == [{"operators": ["s"]}, {"operators": ["t"]}]
    expected = json.loads(json.dumps(CONTRACT))
    del expected["levels"]["registers"]["retain"], expected["recompute"]
    assert document["groups"][0] == expected
    save_plan(path, GRAPH, plan)
    assert load_plan(path, GRAPH) == plan
    assert [line for line in path.read_text().splitlines() if "Relu_1" in line] == [
        f"  {json.dumps(expected, ensure_ascii=False)},".replace(
            json.dumps(expected), json.dumps(document["groups"][0])
        )
    ]


def test_what_a_file_leaves_out_is_left_open(tmp_path: Path) -> None:
    plan = load_plan(written(tmp_path, {"format": 1}), GRAPH)
    assert plan == edits.unfused(GRAPH)
    group = {
        "operators": ["MatMul_0"],
        "tree": None,
        "stages": None,
        "sparsity": None,
        "levels": {"buffer": {}},
    }
    assert load_plan(written(tmp_path, {"format": 1, "groups": [group]}), GRAPH) == plan


def test_digest_tells_plans_apart() -> None:
    plan = edits.unfused(GRAPH)
    fused = edits.fuse(GRAPH, plan, (0, 1))
    assert plan_digest(GRAPH, plan) == plan_digest(GRAPH, edits.split(GRAPH, fused, (0,)))
    knob = edits.set_group(GRAPH, plan, 0, stages=2)
    assert len({plan_digest(GRAPH, each) for each in (plan, fused, knob)}) == 3


def test_every_fault_at_once_with_its_path(tmp_path: Path) -> None:
    groups = [
        {
            "operators": ["MatMul_0"],
            "stage": 2,
            "levels": {"buffer": {"tile": {"m": 0, "n": "8"}, "order": []}},
        },
        {"operators": [], "precision": "bf17", "halo": "some", "parallel": {"m": True}},
    ]
    text = fault(tmp_path, {"format": 1, "groups": groups, "extra": 1})
    for part in (
        "plan.json: ",
        "groups[0].stage: unknown key",
        "groups[0].levels.buffer.tile.m: should be greater than 0, not 0",
        "groups[0].levels.buffer.tile.n: should be a whole number, not '8'",
        "groups[0].levels.buffer.order: unknown key",
        "groups[1].operators: ",
        "groups[1].precision: unknown precision 'bf17'; known are fp64",
        "groups[1].halo: should be 'retain', 'retain-rows' or 'recompute', not 'some'",
        "groups[1].parallel.m: should be a whole number, not true",
        "extra: unknown key",
        "Did you mean stages",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "is empty"),
        ("[1]", "is JSON, but not an object"),
        ("[" * 100000, "is not valid JSON"),
        ('{"format": 1, "groups": [], "groups": []}', "the key 'groups' stands twice"),
        ('{"format": NaN}', "format: should be 1"),
        ({"groups": []}, "format: is missing"),
        ({"format": 2}, "format: should be 1, not 2"),
        (
            {"format": 1, "graph": "sha256:other"},
            "made for another graph (sha256:other; drawn is sha256:drawn)",
        ),
        (
            {"format": 1, "groups": [{"operators": ["Relu_1", "relu"]}, {"operators": ["Relu_1"]}]},
            "groups[0].operators[1]: there is no operator 'relu'; "
            "groups[1].operators[0]: `Relu_1` is in groups[0].operators[0] already",
        ),
        (
            {"format": 1, "groups": [{"operators": ["s"]}, {"operators": ["Relu_1", "t"]}]},
            "groups[1]: `Relu_1` with `t`: would make a cycle through `s`. Add `s` or split the group.",
        ),
        (
            {"format": 1, "groups": [{"operators": ["MatMul_0", "t"]}]},
            "would make a cycle through `Relu_1` and `s`. Add `Relu_1`, `s` or split the group.",
        ),
    ],
)
def test_file_faults(tmp_path: Path, document: object, message: str) -> None:
    assert message in fault(tmp_path, document)


def test_a_digest_mismatch_says_what_to_do(tmp_path: Path) -> None:
    text = fault(tmp_path, {"format": 1, "graph": "sha256:other"})
    assert 'Open that graph, or, if the operators are the same, write "graph": "sha256:drawn".' in text


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such plan file"):
        load_plan(tmp_path / "none.json", GRAPH)
    (tmp_path / "plan.json").write_bytes(b"\x80\x81\xff")
    with pytest.raises(FileError, match="is not text in UTF-8"):
        load_plan(tmp_path / "plan.json", GRAPH)


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    save_plan(path, GRAPH, edits.unfused(GRAPH))
    before = path.read_bytes()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FileError, match=r"plan\.json: cannot be written: no space left"):
        save_plan(path, GRAPH, edits.fuse(GRAPH, edits.unfused(GRAPH), (0, 1)))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(FileError, match="cannot be written"):
        save_plan(tmp_path / "none" / "plan.json", GRAPH, edits.unfused(GRAPH))


def test_names_of_any_length_survive_a_file(tmp_path: Path) -> None:
    graph = drawn("a = Relu(x)")
    object.__setattr__(graph.operators[0], "name", 'é"\n' + "n" * 5000)
    tensor = Tensor(0, "t" * 5000, "int8", (4,), TensorRole.INPUT)
    plan = edits.set_group(graph, edits.unfused(graph), 0, pinned=(tensor.name,))
    save_plan(tmp_path / "plan.json", graph, plan)
    assert load_plan(tmp_path / "plan.json", graph) == plan


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_legal_plans_round_trip_through_files(tmp_path: Path, data: st.DataObject) -> None:
    graph: OperatorGraph = data.draw(graphs())
    plan = edits.contraction_tails(graph)
    sizes = st.lists(st.tuples(st.sampled_from("mnkpq"), st.integers(1, 9)), unique_by=lambda pair: pair[0])
    for index in range(len(plan.groups)):
        tile, retain = tuple(data.draw(sizes)), tuple(data.draw(sizes))
        plan = edits.set_level(
            graph, plan, index, LevelTile("buffer", tile, tuple(d for d, _ in tile), retain)
        )
        plan = edits.set_group(graph, plan, index, stages=data.draw(st.integers(0, 3)), parallel=retain)
    save_plan(tmp_path / "plan.json", graph, plan)
    assert load_plan(tmp_path / "plan.json", graph) == plan
