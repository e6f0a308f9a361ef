"""Build the sample graphs and a text summary beside each: ``python sample_graphs/build.py``.

The sizes are those of published models; the weights are none: each is a ConstantOfShape node, so that a file
takes a few kilobytes, is valid ONNX, and even runs. What a symbolic dim stands for where the user does not
say is written into the file (metadata ``tilewright.bind``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper, save_model

HERE = Path(__file__).resolve().parent
OPSET, IR_VERSION = 23, 11  # RMSNormalization came with opset 23
FLOAT = TensorProto.FLOAT16
Extent = int | str


class Builder:
    """Collects nodes; every method returns the name of the value that it makes."""

    def __init__(self, about: str, bind: str) -> None:
        self.about = about
        self.bind = bind
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs: list[tuple[str, Sequence[Extent]]] = []

    def input(self, name: str, *shape: Extent) -> str:
        """A graph input."""
        self.inputs.append((name, shape))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A weight without a payload."""
        extents = self.integers(f"{name}_shape", shape)
        value = numpy_helper.from_array(np.full(1, 0.02, dtype=np.float16))
        self.nodes.append(helper.make_node("ConstantOfShape", [extents], [name], value=value))
        return name

    def integers(self, name: str, values: Sequence[int]) -> str:
        """A small list of integers: a shape, axes."""
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """A number that is compiled into the operator."""
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype=np.float16), name))
        return name

    def node(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        """One operator, named in plain words; its value bears the same name."""
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, name: str, x: str, rows: int, columns: int) -> str:
        """``x W`` with W of rows x columns."""
        return self.node("MatMul", name, x, self.weight(f"{name}_weight", rows, columns))

    def heads(self, name: str, x: str, *shape: int, perm: Sequence[int]) -> str:
        """Split the last axis into heads and bring them before the rows."""
        split = self.node("Reshape", f"{name}_heads", x, self.integers(f"{name}_split", (0, 0, *shape)))
        return self.node("Transpose", f"{name}_rows", split, perm=list(perm))

    def model(self, name: str, output: str, *shape: Extent) -> ModelProto:
        """The checked model."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, FLOAT, s) for n, s in self.inputs],
            [helper.make_tensor_value_info(output, FLOAT, shape)],
            self.initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="tilewright",
        )
        helper.set_model_props(model, {"about": self.about, "tilewright.bind": self.bind})
        checker.check_model(model, full_check=True)
        return model


def attention(b: Builder, x: str, width: int, heads: int, shared: int, depth: int) -> str:
    """Projections, scores, softmax, context, output projection. `shared` query heads read one key head.

    With shared heads, queries are (batch, key head, query head of it, row, depth) and keys and values have
    one query head, which the product repeats without copying.
    """
    groups = heads // shared
    split = (groups, shared) if shared > 1 else (groups,)
    single = (groups, 1) if shared > 1 else (groups,)
    rows, columns = ((0, 2, 3, 1, 4), (0, 2, 3, 4, 1)) if shared > 1 else ((0, 2, 1, 3), (0, 2, 3, 1))
    back = (0, 3, 1, 2, 4) if shared > 1 else (0, 2, 1, 3)
    q = b.heads("attn_q", b.linear("attn_q", x, width, heads * depth), *split, depth, perm=rows)
    k = b.heads("attn_k", b.linear("attn_k", x, width, groups * depth), *single, depth, perm=columns)
    v = b.heads("attn_v", b.linear("attn_v", x, width, groups * depth), *single, depth, perm=rows)
    scores = b.node("MatMul", "attn_scores", q, k)
    scaled = b.node("Mul", "attn_scale", scores, b.scalar("attn_scale_factor", depth**-0.5))
    context = b.node("MatMul", "attn_context", b.node("Softmax", "attn_softmax", scaled, axis=-1), v)
    together = b.node("Transpose", "attn_context_rows", context, perm=list(back))
    merged = b.node("Reshape", "attn_merge", together, b.integers("attn_merged", (0, 0, heads * depth)))
    return b.linear("attn_out", merged, heads * depth, width)


def swiglu(b: Builder, x: str, width: int, hidden: int) -> str:
    """``(silu(x Wg) * x Wu) Wd``."""
    gate = b.linear("mlp_gate", x, width, hidden)
    up = b.linear("mlp_up", x, width, hidden)
    silu = b.node("Mul", "mlp_silu", gate, b.node("Sigmoid", "mlp_sigmoid", gate))
    return b.linear("mlp_down", b.node("Mul", "mlp_mul", silu, up), hidden, width)


def attention_prefill() -> ModelProto:
    """Llama-2-7B: 32 heads of 128, each with its own keys."""
    b = Builder(
        "Llama-2-7B attention, prefill: 32 heads of 128, no mask, no rotary embedding", "batch=1,seq=512"
    )
    x = b.input("x", "batch", "seq", 4096)
    return b.model("attention_prefill", attention(b, x, 4096, 32, 1, 128), "batch", "seq", 4096)


def swiglu_mlp() -> ModelProto:
    """Llama-3-8B: 4096 to 14336 and back."""
    b = Builder("Llama-3-8B SwiGLU MLP: 4096 to 14336 and back", "batch=1,seq=512")
    x = b.input("x", "batch", "seq", 4096)
    return b.model("swiglu_mlp", swiglu(b, x, 4096, 14336), "batch", "seq", 4096)


def transformer_block() -> ModelProto:
    """Llama-3-8B: pre-norm, 32 query heads on 8 key heads, SwiGLU, two residuals."""
    b = Builder(
        "Llama-3-8B block: RMSNorm, attention (32 on 8 heads), SwiGLU MLP; no mask, no rotary embedding",
        "batch=1,seq=512",
    )
    x = b.input("x", "batch", "seq", 4096)
    normed = b.node(
        "RMSNormalization", "attn_norm", x, b.weight("attn_norm_weight", 4096), axis=-1, epsilon=1e-5
    )
    x = b.node("Add", "attn_residual", x, attention(b, normed, 4096, 32, 4, 128))
    normed = b.node(
        "RMSNormalization", "mlp_norm", x, b.weight("mlp_norm_weight", 4096), axis=-1, epsilon=1e-5
    )
    y = b.node("Add", "mlp_residual", x, swiglu(b, normed, 4096, 14336))
    return b.model("transformer_block", y, "batch", "seq", 4096)


def residual_block() -> ModelProto:
    """ResNet-50, second stage: 1x1, 3x3, 1x1 at 56 x 56 with the input added; norms folded into biases."""
    b = Builder("ResNet-50 bottleneck block at 56 x 56, batch norms folded", "batch=1")

    def convolution(name: str, x: str, out: int, channels: int, taps: int) -> str:
        weight = b.weight(f"{name}_weight", out, channels, taps, taps)
        bias = b.weight(f"{name}_bias", out)
        pads = [taps // 2] * 4
        return b.node("Conv", name, x, weight, bias, kernel_shape=[taps, taps], pads=pads)

    x = b.input("x", "batch", 256, 56, 56)
    y = b.node("Relu", "reduce_relu", convolution("reduce_conv", x, 64, 256, 1))
    y = b.node("Relu", "spatial_relu", convolution("spatial_conv", y, 64, 64, 3))
    y = b.node("Add", "residual_add", convolution("expand_conv", y, 256, 64, 1), x)
    return b.model("residual_block", b.node("Relu", "residual_relu", y), "batch", 256, 56, 56)


SAMPLES: tuple[Callable[[], ModelProto], ...] = (
    attention_prefill,
    swiglu_mlp,
    transformer_block,
    residual_block,
)


def build(folder: Path = HERE) -> tuple[Path, ...]:
    """Write every sample and its summary into `folder`; returns the files."""
    from model.graph.load import load_graph
    from model.graph.summary import text_summary

    written: list[Path] = []
    for make in SAMPLES:
        model = make()
        about = next(entry.value for entry in model.metadata_props if entry.key == "about")
        path = folder / f"{make.__name__}.onnx"
        save_model(model, path)
        summary = path.with_suffix(".txt")
        summary.write_text(f"{about}\n\n{text_summary(load_graph(path))}\n", encoding="utf-8")
        written += [path, summary]
    return tuple(written)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    for file in build():
        print(file.name, file.stat().st_size)
