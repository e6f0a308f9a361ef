"""Build ``mlp.pt2``, the network of the texts beside it as torch.export writes one: ``python build.py``.

No torch is needed: an archive is a zip with the graph as JSON (torch/_export/serde/schema.py, version 8).
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLOAT16, STRIDED = 6, 7
_DATE = (2026, 1, 1, 0, 0, 0)


def _tensor(*sizes: int) -> dict[str, Any]:
    return {"dtype": FLOAT16, "sizes": [{"as_int": size} for size in sizes], "layout": STRIDED}


def _node(target: str, name: str, module: str, **arguments: Any) -> dict[str, Any]:
    inputs = [
        {
            "name": key,
            "arg": {"as_tensor": {"name": value}} if isinstance(value, str) else {"as_float": value},
        }
        for key, value in arguments.items()
    ]
    stack = f"L__self__,,Mlp;L__self__{module},{module},torch.nn.Module" if module else "L__self__,,Mlp"
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": inputs,
        "outputs": [{"as_tensor": {"name": name}}],
        "metadata": {"nn_module_stack": stack},
        "name": name,
    }


def document() -> dict[str, Any]:
    """The exported program."""
    values = {
        "p_w1": _tensor(64, 256), "p_w2": _tensor(256, 64), "x": _tensor(8, 64), "first": _tensor(8, 256),
        "scaled": _tensor(8, 256), "act": _tensor(8, 256), "second": _tensor(8, 64), "sum_1": _tensor(8, 64),
    }  # fmt: skip
    graph = {
        "inputs": [{"as_tensor": {"name": name}} for name in ("p_w1", "p_w2", "x")],
        "outputs": [{"as_tensor": {"name": "sum_1"}}],
        "nodes": [
            _node("mm.default", "first", "up", self="x", mat2="p_w1"),
            _node("mul.Tensor", "scaled", "up", self="first", other=0.5),
            _node("tanh_.default", "act", "up", self="scaled"),
            _node("mm.default", "second", "down", self="act", mat2="p_w2"),
            _node("add.Tensor", "sum_1", "", self="second", other="x"),
        ],
        "tensor_values": values,
    }
    specs: list[dict[str, Any]] = [
        {"parameter": {"arg": {"name": f"p_{name}"}, "parameter_name": name}} for name in ("w1", "w2")
    ]
    specs.append({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})
    return {
        "graph_module": {"graph": graph, "signature": {"input_specs": specs, "output_specs": []}},
        "schema_version": {"major": 8, "minor": 0},
    }


def build(path: Path) -> None:
    """Write the archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, text in (
            ("mlp/archive_format", "pt2"),
            ("mlp/models/model.json", json.dumps(document(), indent=1)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _DATE), text)


if __name__ == "__main__":
    build(HERE / "mlp.pt2")
