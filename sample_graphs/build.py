"""Build the sample graphs, a text summary beside each, and the packaged plans: ``python sample_graphs/build.py``.

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
        self.outputs: list[tuple[str, Sequence[Extent]]] = []

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

    def convolution(
        self, name: str, x: str, out: int, channels: int, taps: int, groups: int = 1, stride: int = 1
    ) -> str:
        """A padded convolution with bias: ``channels`` in and ``out`` out, `taps` x `taps`."""
        weight = self.weight(f"{name}_weight", out, channels // groups, taps, taps)
        bias = self.weight(f"{name}_bias", out)
        attributes = {"kernel_shape": [taps, taps], "pads": [taps // 2] * 4, "strides": [stride] * 2}
        return self.node("Conv", name, x, weight, bias, group=groups, **attributes)

    def heads(self, name: str, x: str, *shape: int, perm: Sequence[int]) -> str:
        """Split the last axis into heads and bring them before the rows."""
        split = self.node("Reshape", f"{name}_heads", x, self.integers(f"{name}_split", (0, 0, *shape)))
        return self.node("Transpose", f"{name}_rows", split, perm=list(perm))

    def output(self, name: str, *shape: Extent) -> None:
        """A further graph output."""
        self.outputs.append((name, shape))

    def model(self, name: str, output: str, *shape: Extent) -> ModelProto:
        """The checked model; `output` stands before the further ones."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, FLOAT, s) for n, s in self.inputs],
            [helper.make_tensor_value_info(n, FLOAT, s) for n, s in [(output, shape), *self.outputs]],
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
    x = b.input("x", "batch", 256, 56, 56)
    y = b.node("Relu", "reduce_relu", b.convolution("reduce_conv", x, 64, 256, 1))
    y = b.node("Relu", "spatial_relu", b.convolution("spatial_conv", y, 64, 64, 3))
    y = b.node("Add", "residual_add", b.convolution("expand_conv", y, 256, 64, 1), x)
    return b.model("residual_block", b.node("Relu", "residual_relu", y), "batch", 256, 56, 56)


def decode_kv() -> ModelProto:
    """Llama-3-8B attention for one new token: its key and value are appended to those of the past."""
    b = Builder(
        "Llama-3-8B attention, one decode step with a KV cache: 32 query heads on 8 key heads of 128",
        "batch=8,past=2047",
    )
    x = b.input("x", "batch", 1, 4096)
    q = b.node(
        "Reshape", "attn_q_heads", b.linear("attn_q", x, 4096, 4096), b.integers("q_split", (0, 8, 4, 128))
    )

    def cached(letter: str) -> str:
        new = b.linear(f"attn_{letter}", x, 4096, 1024)
        row = b.node("Reshape", f"attn_{letter}_heads", new, b.integers(f"{letter}_split", (0, 8, 1, 128)))
        past = b.input(f"past_{letter}", "batch", 8, "past", 128)
        b.output(f"present_{letter}", "batch", 8, "past + 1", 128)
        return b.node("Concat", f"present_{letter}", past, row, axis=2)

    keys = b.node("Transpose", "attn_k_columns", cached("k"), perm=[0, 1, 3, 2])
    scores = b.node("MatMul", "attn_scores", q, keys)
    scaled = b.node("Mul", "attn_scale", scores, b.scalar("attn_scale_factor", 128**-0.5))
    context = b.node(
        "MatMul", "attn_context", b.node("Softmax", "attn_softmax", scaled, axis=-1), cached("v")
    )
    merged = b.node("Reshape", "attn_merge", context, b.integers("attn_merged", (0, 1, 4096)))
    return b.model("decode_kv", b.linear("attn_out", merged, 4096, 4096), "batch", 1, 4096)


def inverted_residual() -> ModelProto:
    """MobileNetV2 at 14 x 14: 64 channels widened to 384, a depthwise 3x3, and back, with the input added."""
    b = Builder("MobileNetV2 inverted residual at 14 x 14, 64 to 384 channels, batch norms folded", "batch=1")
    top = b.scalar("six", 6.0)
    zero = b.scalar("zero", 0.0)
    x = b.input("x", "batch", 64, 14, 14)
    y = b.node("Clip", "expand_relu6", b.convolution("expand_conv", x, 384, 64, 1), zero, top)
    y = b.node("Clip", "depthwise_relu6", b.convolution("depthwise_conv", y, 384, 384, 3, 384), zero, top)
    y = b.node("Add", "residual_add", b.convolution("project_conv", y, 64, 384, 1), x)
    return b.model("inverted_residual", y, "batch", 64, 14, 14)


def unet_level() -> ModelProto:
    """One level of a U-Net: down, through the bottom, up again, and joined with the skip connection."""
    b = Builder(
        "U-Net level at 128 x 128: 64 channels, 128 below, skip connection joined by a Concat", "batch=1"
    )

    def pair(name: str, x: str, out: int, channels: int) -> str:
        first = b.node("Relu", f"{name}_1_relu", b.convolution(f"{name}_1_conv", x, out, channels, 3))
        return b.node("Relu", f"{name}_2_relu", b.convolution(f"{name}_2_conv", first, out, out, 3))

    skip = pair("down", b.input("x", "batch", 64, 128, 128), 64, 64)
    low = b.node("MaxPool", "pool", skip, kernel_shape=[2, 2], strides=[2, 2])
    bottom = pair("bottom", low, 128, 64)
    weight, bias = b.weight("up_weight", 128, 64, 2, 2), b.weight("up_bias", 64)
    raised = b.node("ConvTranspose", "up", bottom, weight, bias, kernel_shape=[2, 2], strides=[2, 2])
    joined = b.node("Concat", "skip_join", skip, raised, axis=1)
    return b.model("unet_level", pair("merge", joined, 64, 128), "batch", 64, 128, 128)


def mixture_of_experts() -> ModelProto:
    """Mixtral-8x7B MLP: two of eight experts a token, their weights gathered by the router's choice."""
    b = Builder(
        "Mixtral-8x7B expert MLP, two of eight experts for each of the tokens being decoded", "tokens=4"
    )
    x = b.input("x", "tokens", 4096)
    odds = b.node("Softmax", "router_softmax", b.linear("router", x, 4096, 8), axis=-1)
    share, chosen = "router_share", "router_choice"
    b.nodes.append(
        helper.make_node(
            "TopK", [odds, b.integers("two", (2,))], [share, chosen], name="router_top2", axis=-1
        )
    )

    def expert(name: str, rows: int, columns: int) -> str:
        return b.node(
            "Gather", f"{name}_choice", b.weight(f"{name}_weights", 8, rows, columns), chosen, axis=0
        )

    row = b.node("Reshape", "token_row", x, b.integers("as_row", (0, 1, 1, 4096)))
    gate = b.node("MatMul", "gate", row, expert("gate", 4096, 14336))
    up = b.node("MatMul", "up", row, expert("up", 4096, 14336))
    silu = b.node("Mul", "silu", gate, b.node("Sigmoid", "sigmoid", gate))
    down = b.node("MatMul", "down", b.node("Mul", "gated", silu, up), expert("down", 14336, 4096))
    weighted = b.node("Reshape", "share_column", share, b.integers("as_column", (0, 2, 1, 1)))
    mixed = b.node(
        "ReduceSum",
        "mix",
        b.node("Mul", "weighted", down, weighted),
        b.integers("mixed_axes", (1, 2)),
        keepdims=0,
    )
    return b.model("mixture_of_experts", mixed, "tokens", 4096)


def training_step() -> ModelProto:
    """A two-layer perceptron trained by one step of SGD: forward, backward, and the update, in one graph."""
    b = Builder(
        "Training step of a two-layer MLP, 1024 to 4096 and back: forward, backward, SGD", "batch=256"
    )
    x, target = b.input("x", "batch", 1024), b.input("target", "batch", 1024)
    first, second = b.input("w1", 1024, 4096), b.input("w2", 4096, 1024)
    hidden = b.node("MatMul", "forward_1", x, first)
    active = b.node("Relu", "forward_relu", hidden)
    error = b.node("Sub", "loss_gradient", b.node("MatMul", "forward_2", active, second), target)
    second_gradient = b.node("Gemm", "backward_w2", active, error, transA=1)
    back = b.node("Gemm", "backward_2", error, second, transB=1)
    passed = b.node(
        "Cast",
        "backward_mask",
        b.node("Greater", "backward_positive", hidden, b.scalar("zero", 0.0)),
        to=FLOAT,
    )
    first_gradient = b.node("Gemm", "backward_w1", x, b.node("Mul", "backward_relu", back, passed), transA=1)
    rate = b.scalar("learning_rate", 0.01)
    for layer, weight, gradient, shape in (
        (2, second, second_gradient, (4096, 1024)),
        (1, first, first_gradient, (1024, 4096)),
    ):
        step = b.node("Mul", f"optimizer_step_{layer}", gradient, rate)
        b.output(b.node("Sub", f"optimizer_w{layer}", weight, step), *shape)
    name, shape = b.outputs.pop()
    return b.model("training_step", name, *shape)


def mini_case() -> ModelProto:
    """Twelve encoder blocks: 512 rows of 384, six heads, 1536 within. Einsum keeps heads in place: nothing moves."""
    about = "Twelve encoder blocks, 512 x 384, six heads, 1536 within: fused too far, its tail grows"
    b = Builder(about, "batch=1")
    x = b.input("x", "batch", 512, 384)
    for block in range(12):
        at = f"block_{block}"

        def norm(name: str, y: str, at: str = at) -> str:
            return b.node(
                "LayerNormalization", f"{at}/{name}", y, b.weight(f"{at}/{name}_weight", 384), axis=-1
            )

        def product(name: str, equation: str, *operands: str, at: str = at) -> str:
            return b.node("Einsum", f"{at}/{name}", *operands, equation=equation)

        y = norm("norm_1", x)
        q, k, v = (
            product(letter, "bsd,dhe->bshe", y, b.weight(f"{at}/{letter}_weight", 384, 6, 64))
            for letter in "qkv"
        )
        odds = b.node("Softmax", f"{at}/softmax", product("scores", "bshe,bthe->bhst", q, k), axis=-1)
        context = product("context", "bhst,bthe->bshe", odds, v)
        out = product("out", "bshe,hed->bsd", context, b.weight(f"{at}/out_weight", 6, 64, 384))
        x = b.node("Add", f"{at}/add_1", out, x)
        wide = b.linear(f"{at}/ffn_1", norm("norm_2", x), 384, 1536)
        x = b.node(
            "Add", f"{at}/add_2", b.linear(f"{at}/ffn_2", b.node("Gelu", f"{at}/gelu", wide), 1536, 384), x
        )
    return b.model("mini_case", x, "batch", 512, 384)


# The mini case's plans (docs/mini-case.md): the groups of one block, at int8.
_ATTENTION, _FEED_FORWARD = "scores softmax context out add_1", "norm_2 ffn_1 gelu ffn_2 add_2"
PLANS: dict[str, tuple[str, ...]] = {
    "mini-case-moderate": ("norm_1 q k v", _ATTENTION, _FEED_FORWARD),
    "mini-case-maximum": (f"norm_1 q k v {_ATTENTION} {_FEED_FORWARD}",),
    "mini-case-boundary-back": (f"norm_1 q k v {_ATTENTION}", _FEED_FORWARD),
}


SAMPLES: tuple[Callable[[], ModelProto], ...] = (
    attention_prefill,
    swiglu_mlp,
    transformer_block,
    residual_block,
    decode_kv,
    inverted_residual,
    unet_level,
    mixture_of_experts,
    training_step,
    mini_case,
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


def build_plans(folder: Path) -> tuple[Path, ...]:
    """Write the plans of the sample mini_case; returns the files."""
    from model.graph.load import load_graph
    from model.plan.file import save_plan
    from model.plan.plan import FusionGroup, Plan

    graph = load_graph("mini_case")
    written: list[Path] = []
    for name, groups in PLANS.items():
        members = (
            tuple(graph.operator_by_name[f"block_{block}/{operator}"] for operator in group.split())
            for block in range(12)
            for group in groups
        )
        plan = Plan.of([FusionGroup(tuple(sorted(operators)), precision="int8") for operators in members])
        path = folder / f"{name}.json"
        save_plan(path, graph, plan)
        written.append(path)
    return tuple(written)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    for file in build() + build_plans(HERE.parent / "assets" / "plans"):
        print(file.name, file.stat().st_size)
