"""The fuzz of the readers finds what it should: 300 cases with a fixed seed, and faults planted on purpose."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from model.graph.readers import read
from model.packaged import folder

from . import fuzz_readers
from .fuzz_readers import run, seeds_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the child's limits are Unix's")

SAMPLES = folder("sample_graphs")
_kept: list[bytearray] = []


def _seeds() -> list[bytes]:
    paths = [*sorted(SAMPLES.glob("*.onnx")), *sorted((SAMPLES / "formats").glob("mlp.*"))]
    return seeds_of(paths)


def test_damaged_files_are_answered_or_refused() -> None:
    report = run(_seeds(), 300, seed=1)
    assert not report.findings, report.text()
    assert report.cases == 300 and report.answered > 20 and sum(report.refused.values()) > 100


# Readers with a fault: the child imports them from here by name.


def raises(content: bytes) -> dict[str, Any]:
    """Fails on an odd length, as a reader that trusts a field would."""
    if len(content) % 7 == 3:
        raise KeyError("a planted fault")
    return read(content, {})


def dies(content: bytes) -> dict[str, Any]:
    """Raises what the child does not catch."""
    if len(content) % 7 == 3:
        raise AttributeError("a planted fault")
    return read(content, {})


def loops(content: bytes) -> dict[str, Any]:
    """Never comes back."""
    while len(content) % 7 == 3:
        time.sleep(1)
    return read(content, {})


def eats(content: bytes) -> dict[str, Any]:
    """Keeps four megabytes of every file."""
    _kept.append(bytearray(b"x" * 4 * 2**20))
    return read(content, {})


def lies(content: bytes) -> dict[str, Any]:
    """Answers what no reader may."""
    answer = read(content, {})
    if answer["nodes"]:
        answer["nodes"][4] = [True for _ in answer["nodes"][4]]
    return answer


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (raises, "an exception that is none of ours"),
        (dies, "the child died with code 1"),
        (loops, "no answer within"),
        (eats, "the child grew by"),
        (lies, "an answer that the parent does not take"),
    ],
)
def test_a_planted_fault_is_found(reader: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reader is loops:
        monkeypatch.setattr(fuzz_readers, "CASE_S", 3.0)
    report = run(_seeds(), 300, seed=2, reader=f"{__name__}:{reader.__name__}", stop_after=1)
    assert len(report.findings) == 1 and says in report.findings[0].what, report.text()
    assert report.findings[0].content


def test_what_the_fuzz_found_stays_mended(tmp_path: Path) -> None:
    """Metadata that is no text; a node without results, among constants and not."""
    from onnx import ModelProto, TensorProto, helper, save_model

    from model.errors import FileError
    from model.graph.load import load_graph

    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["w"], []),
        helper.make_node("Softmax", ["x"], []),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [weight]))
    path = tmp_path / "m.onnx"
    save_model(model, path)
    operators = load_graph(path).operators
    assert [(op.op_type, op.reason) for op in operators] == [
        ("Relu", ""),
        ("Softmax", "a result that it must have is left out"),
    ]

    del model.graph.node[1:]
    model.metadata_props.add(key="tilewright.bind", value="batch=1")
    path.write_bytes(model.SerializeToString().replace(b"batch=1", b"b\xe1tch=1"))
    assert isinstance(ModelProto.FromString(path.read_bytes()), ModelProto)
    with pytest.raises(FileError, match="a name in it is no text: b'b"):
        load_graph(path)
