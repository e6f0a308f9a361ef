"""Nonsense in files that people write: whatever stands in them, one clear sentence and no traceback.

Good files are damaged at random, in their values and in their bytes, from a fixed seed: what a loader says
must be a `TilewrightError` of one line that names the file.
"""

from __future__ import annotations

import copy
import json
import os
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.cost.document import simulate_document
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.errors import TilewrightError
from model.graph.load import load_graph
from model.hardware.loader import load_hardware
from model.packaged import folder
from model.plan.edits import contraction_tails
from model.plan.file import load_plan
from model.serving.workload import load_workload
from tests.drawn import drawn
from tests.test_plan_files import CONTRACT
from tests.test_serving_files import CONTRACT_EXAMPLE, MINIMAL

GRAPH = drawn("MatMul_0 = MatMul(A, w); Relu_1 = Relu(MatMul_0); s = Softmax(Relu_1); t = Softmax(s)")
JUNK: tuple[Any, ...] = (
    float("nan"), float("inf"), -float("inf"), -1, 0, -0.0, 0.5, 1e308, 5e-324, 2**53 + 1, 2**63, 10**30, 10**400,
    True, "", "x", "é\x00\n\u202e", "a" * 500, "1", [], {}, [[]], [1, 2], [{}], {"a": 1}, {"": 1}, {"kind": []},
    {"kind": "x"}, {"kind": 1},
)  # fmt: skip
LONGEST = 3000  # letters of a sentence: twenty faults, each with its path


def toml(value: Any) -> str:
    """Any value as TOML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {toml(each)}' for key, each in value.items())}}}"
    return str(value)


def damaged(tree: Any, dice: random.Random) -> Any:
    """A copy of a document with one to four of its values changed, doubled, moved or taken away."""
    tree = copy.deepcopy(tree)
    for _ in range(dice.choice((1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        rest = [tree]
        while rest:
            here = rest.pop()
            keys = (
                list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
            )
            places += [(here, key) for key in keys]
            rest += [here[key] for key in keys]
        if not places:
            break
        parent, key = dice.choice(places)
        what = dice.randrange(4)
        if what == 0:
            del parent[key]
        elif what == 1 and isinstance(parent, dict):
            parent[dice.choice(("zzz", "kind", "", "\n", "a.b", f"{key}s"))] = dice.choice(JUNK)
        elif what == 2 and isinstance(parent[key], list):
            parent[key] = parent[key] * dice.choice((0, 2, 30))
        else:
            parent[key] = copy.deepcopy(dice.choice(JUNK))
    return tree


def scrambled(content: bytes, dice: random.Random) -> bytes:
    """The bytes with a few of them changed, cut out or doubled."""
    out = bytearray(content)
    for _ in range(dice.choice((1, 3, 20))):
        at = dice.randrange(len(out) + 1)
        what = dice.randrange(3)
        if what == 0:
            out[at : at + 1] = bytes((dice.randrange(256),))
        elif what == 1:
            del out[at : at + dice.choice((1, 50, 500))]
        else:
            out[at:at] = out[: dice.randrange(40)]
    return bytes(out)


def _toml_document(document: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in document.items())


MACHINES = [path.read_bytes() for path in (folder("assets") / "hardware").glob("*.toml")]
WORKLOADS = [MINIMAL.encode(), CONTRACT_EXAMPLE.encode()]
PLANS = [
    json.dumps({"format": 1, "graph": GRAPH.digest, "groups": [CONTRACT, {"operators": ["s"]}]}).encode()
]
KINDS: dict[str, tuple[list[bytes], Callable[[str], Any], Callable[[Any], str], Callable[[Path], Any]]] = {
    "machine.toml": (MACHINES, tomllib.loads, _toml_document, load_hardware),
    "workload.toml": (WORKLOADS, tomllib.loads, _toml_document, load_workload),
    "plan.json": (PLANS, json.loads, json.dumps, lambda path: load_plan(path, GRAPH)),
}


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_get_one_sentence(tmp_path: Path, name: str) -> None:
    seeds, parse, write, load = KINDS[name]
    dice = random.Random(7)
    path = tmp_path / name
    refused = 0
    for _ in range(250):
        seed = dice.choice(seeds)
        if dice.random() < 0.75:
            path.write_text(write(damaged(parse(seed.decode()), dice)), encoding="utf-8")
        else:
            path.write_bytes(scrambled(seed, dice))
        try:
            load(path)
        except TilewrightError as error:
            refused += 1
            said = error.sentence()
            assert name in said and said.isprintable() and len(said) < LONGEST + len(str(path)), said
            assert "valid dictionary" not in said and "instance of" not in said, said
    assert refused > 100


@pytest.mark.parametrize("name", ["", ".", "a" * 5000, "no\nsuch", "\0", "/dev/null/x"])
@pytest.mark.parametrize("load", [load_hardware, load_workload, lambda path: load_plan(path, GRAPH)])
def test_paths_that_are_no_files(name: str, load: Callable[[str], Any]) -> None:
    with pytest.raises(TilewrightError) as caught:
        load(name)
    assert caught.value.sentence().isprintable() and len(caught.value.sentence()) < 800


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    for load in (load_hardware, load_workload, lambda path: load_plan(path, GRAPH)):
        with pytest.raises(TilewrightError, match=r"folder|directory"):
            load(str(tmp_path))


def test_a_pipe_is_a_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, MACHINES[0])
    os.close(writer)
    try:
        assert load_hardware(f"/dev/fd/{reader}").name
    finally:
        os.close(reader)


def test_values_are_named_in_the_words_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(
        "format = 1\nname = 'x'\nclock_hz = [1]\ncores = {}\nlaunch = 4\nmemory = 3\nscope = 1\n"
        "online_statistics = 2\n'a.b' = 1\n" + f"source = 1{'0' * 400}\n"
    )
    with pytest.raises(TilewrightError) as caught:
        load_hardware(path)
    for part in (
        "clock_hz: should be a number, not a list",
        "cores: should be a whole number, not a table",
        "launch: should be a table of keys, not 4",
        "memory: should be a list, not 3",
        "online_statistics: should be true or false, not 2",
        "source: should be text, not a number of 401 digits",
        "'a.b': unknown key",
        "scope belongs to another table of the file",
    ):
        assert part in caught.value.sentence()


def _numbers(tree: Any) -> list[tuple[Any, Any]]:
    """Every place of a number in a document: its table or list, and the key."""
    found: list[tuple[Any, Any]] = []
    rest = [tree]
    while rest:
        here = rest.pop()
        for key in list(here) if isinstance(here, dict) else range(len(here)):
            if isinstance(here[key], dict | list):
                rest.append(here[key])
            elif isinstance(here[key], int | float) and not isinstance(here[key], bool):
                found.append((here, key))
    return found


def test_whatever_a_machine_file_may_say_gives_finite_numbers(tmp_path: Path) -> None:
    """Figures of any size: a file is refused, or what is computed with it can be written as JSON."""
    graph = load_graph("swiglu_mlp")
    plan = contraction_tails(graph)
    dice = random.Random(3)
    path = tmp_path / "machine.toml"
    simulated = 0
    for _ in range(120):
        tree = tomllib.loads(dice.choice(MACHINES).decode())
        for _ in range(dice.choice((1, 1, 2, 3))):
            place, key = dice.choice(_numbers(tree))
            value = place[key] * 10.0 ** dice.randint(-9, 9) + dice.choice((0, 0, 1))
            place[key] = int(value) if isinstance(place[key], int) else value
        path.write_text(_toml_document(tree))
        try:
            machine = load_hardware(path)
        except TilewrightError:
            continue
        result = simulate(CostRequest(graph, machine, plan))
        json.dumps(simulate_document(result, None), allow_nan=False)
        assert result.totals.latency_s > 0 and result.totals.energy_j >= 0
        simulated += 1
    assert simulated > 25
