"""The packaged sample graphs: what the script builds is what is in the repository, in real sizes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from model.graph.load import load_graph
from model.packaged import folder

SAMPLES = folder("sample_graphs")


def sample_script() -> ModuleType:
    """`sample_graphs/build.py`, which is no package."""
    spec = importlib.util.spec_from_file_location("sample_build", SAMPLES / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_what_the_script_builds(tmp_path: Path) -> None:
    script = sample_script()
    built = script.build(tmp_path)
    assert len(built) == 2 * len(script.SAMPLES) == 20
    for path in built:
        committed = SAMPLES / path.name
        assert committed.stat().st_size < 50_000
        if path.suffix == ".onnx":
            assert onnx.load_model(path) == onnx.load_model(committed)
        else:
            assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


# Batch 1, 512 rows: projections, twice the square of the rows per head, MLP.
ATTENTION_7B = 512 * 4 * 4096**2 + 2 * 512**2 * 4096
SWIGLU = 512 * 3 * 4096 * 14336
BLOCK = 512 * (2 * 4096**2 + 2 * 4096 * 1024) + 2 * 512**2 * 4096 + SWIGLU
BOTTLENECK = 56 * 56 * (256 * 64 + 64 * 64 * 9 + 64 * 256)
# One row for each of 8 requests against 2,048 keys and values of 32 heads.
DECODE = 8 * (2 * 4096**2 + 2 * 4096 * 1024) + 8 * 2 * 2048 * 4096
INVERTED = 14 * 14 * (64 * 384 + 384 * 9 + 384 * 64)
UNET = 128 * 128 * 9 * (3 * 64 * 64 + 128 * 64) + 64 * 64 * (9 * (64 * 128 + 128 * 128) + 4 * 128 * 64)
ENCODER = 12 * 512 * (4 * 384**2 + 2 * 512 * 384 + 2 * 384 * 1536)
EXPERTS = 4 * (4096 * 8 + 2 * 3 * 4096 * 14336)


@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [
        ("attention_prefill", ATTENTION_7B, 4 * 4096**2),
        ("swiglu_mlp", SWIGLU, 3 * 4096 * 14336),
        ("transformer_block", BLOCK, 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096),
        ("residual_block", BOTTLENECK, 256 * 64 + 64 * 64 * 9 + 64 * 256 + 64 + 64 + 256),
        ("decode_kv", DECODE, 2 * 4096**2 + 2 * 4096 * 1024),
        ("inverted_residual", INVERTED, 64 * 384 + 384 * 9 + 384 * 64 + 384 + 384 + 64),
        (
            "unet_level",
            UNET,
            9 * (3 * 64 * 64 + 128 * 64) + 9 * (64 * 128 + 128 * 128) + 4 * 128 * 64 + 5 * 64 + 2 * 128,
        ),
        ("mixture_of_experts", EXPERTS, 4096 * 8 + 8 * 3 * 4096 * 14336),
        ("mini_case", ENCODER, 12 * (4 * 384**2 + 2 * 384 * 1536 + 2 * 384)),
        ("training_step", 5 * 256 * 1024 * 4096, 0),  # its weights are inputs, updated as outputs
    ],
)
def test_sizes(name: str, macs: int, parameters: int) -> None:
    graph = load_graph(name)
    assert graph.macs == macs
    assert graph.parameter_bytes == 2 * parameters
    assert graph.warnings == ()
    assert all(op.name and not op.reason for op in graph.operators)


def test_the_block_binds_batch_and_length() -> None:
    graph = load_graph("transformer_block", {"batch": 2, "seq": 64})
    assert graph.bindings == (("batch", 2), ("seq", 64))
    softmax = graph.operators[graph.operator_by_name["attn_softmax"]]
    assert [d.extent for d in softmax.dims] == [2, 8, 4, 64, 64]
    assert softmax.online
