"""What the oracles are asked through: their numbers, ONNX and machine files made on the spot, the command."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from explorer.__main__ import main

HERE = Path(__file__).parent / "oracles"


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of one table; the file says where they come from."""
    document = json.loads((HERE / f"{table}.json").read_text(encoding="utf-8"))
    return [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]


def onnx_file(
    path: Path, nodes: Sequence[Any], inputs: Mapping[str, Iterable[int]], outputs: Sequence[str]
) -> Path:
    """A model of float tensors; shapes but the inputs' are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "made",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save_model(model, path)
    return path


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    """One operator, named like its output."""
    return helper.make_node(op_type, list(inputs), [output], name=output, **attributes)


def one_buffer(folder: Path, capacity: int) -> Path:
    """The oracles' machine: one buffer of single copies under DRAM, sums as wide as everything else."""
    path = folder / f"one-buffer-{capacity}.toml"
    path.write_text(
        f"""format = 1
name = "one-buffer"
source = "the oracles' machine"
clock_hz = 1.0e9
cores = 1
partial_sum_precision = "int8"
online_statistics = false
[[memory]]
name = "DRAM"
scope = "device"
capacity_bytes = 1.0e15
bandwidth_bytes_per_s = 1.0e9
[[memory]]
name = "buffer"
scope = "core"
capacity_bytes = {capacity}
double_buffer = false
""",
        encoding="utf-8",
    )
    return path


def systolic(folder: Path, height: int, width: int, dataflow: str, overlap: bool = False) -> Path:
    """An array whose buffer and accumulators hold everything."""
    path = folder / f"systolic-{height}-{width}-{dataflow}-{overlap}.toml"
    path.write_text(
        f"""format = 1
name = "systolic"
source = "an array whose buffer holds all"
clock_hz = 1.0e9
cores = 1
[matrix_unit]
kind = "systolic"
rows = {height}
columns = {width}
dataflow = "{dataflow}"
macs_per_cycle = {{ int8 = {height * width} }}
overlap_folds = {str(overlap).lower()}
[registers]
model = "accumulator"
capacity_bytes = 1000000000
[[memory]]
name = "DRAM"
scope = "device"
capacity_bytes = 1.0e15
bandwidth_bytes_per_s = 1.0e9
[[memory]]
name = "buffer"
scope = "core"
capacity_bytes = 1000000000000
bandwidth_bytes_per_s = 1.0e18
double_buffer = false
""",
        encoding="utf-8",
    )
    return path


def grouped(path: Path, groups: Sequence[Sequence[str]]) -> Path:
    """A plan of these groups; operators that it does not name stand alone."""
    path.write_text(
        json.dumps({"format": 1, "groups": [{"operators": list(g)} for g in groups]}), encoding="utf-8"
    )
    return path


def document(*words: object) -> dict[str, Any]:
    """What a command prints with ``--json``, run in this process; its exit code says whether the plan fits."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*map(str, words), "--precision", "int8", "--json"])
    found = json.loads(out.getvalue())
    assert code == (1 if words[0] == "tune" and not found["totals"]["feasible"] else 0)
    return found


def moved(found: Mapping[str, Any]) -> int:
    """Elements from and to DRAM: a byte each."""
    return found["totals"]["dram_read_bytes"] + found["totals"]["dram_write_bytes"]
