"""Multiply-accumulates and parameter bytes of real models, counted independently of the program.

Where there is a paper, from its tables: each function below adds up layers as they are listed. For every other named
model with `plain_counts.py`, which reads only what onnx infers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from model.graph.load import load_graph
from tests.plain_counts import plain_macs

Count = tuple[int, int]  # multiply-accumulates, parameters


def resnet50() -> Count:
    """He et al. 2016, table 1 (50-layer), 224 x 224; stride on the 3x3, as the file's trainer has it.

    Batch norms carry scale, shift, mean and variance.
    """
    macs, parameters = 112 * 112 * 64 * 3 * 49, 64 * 3 * 49 + 4 * 64
    channels, size = 64, 56
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            out = 4 * width
            inner = size if block or width == 64 else size // 2
            layers = [
                (size, width, channels),
                (inner, width, width * 9),
                (inner, out, width),
            ]
            if block == 0:
                layers.append((inner, out, channels))
            for pixels, to, fan_in in layers:
                macs += pixels * pixels * to * fan_in
                parameters += to * fan_in + 4 * to
            channels, size = out, inner
    return macs + 2048 * 1000, parameters + 2048 * 1000 + 1000


def vgg19() -> Count:
    """Simonyan and Zisserman 2015, table 1, configuration E."""
    macs = parameters = 0
    channels, size = 3, 224
    for layers, width in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
        for _ in range(layers):
            macs += size * size * width * channels * 9
            parameters += width * channels * 9 + width
            channels = width
        size //= 2
    for rows, columns in ((512 * 49, 4096), (4096, 4096), (4096, 1000)):
        macs += rows * columns
        parameters += rows * columns + columns
    return macs, parameters


def mobilenet_v2() -> Count:
    """Sandler et al. 2018, table 2, 224 x 224; batch norms folded into a bias per channel."""
    macs = parameters = 0

    def layer(size: int, out: int, fan_in: int) -> None:
        nonlocal macs, parameters
        macs += size * size * out * fan_in
        parameters += out * fan_in + out

    layer(112, 32, 27)
    channels, size = 32, 112
    for factor, width, repeats, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(repeats):
            inner = channels * factor
            if factor > 1:
                layer(size, inner, channels)
            size = size // stride if block == 0 else size
            layer(size, inner, 9)
            layer(size, width, inner)
            channels = width
    layer(7, 1280, 320)
    layer(1, 1000, 1280)
    return macs, parameters


def encoder(rows: int, width: int, layers: int) -> Count:
    """Vaswani et al. 2017: four projections, two products of attention, an MLP four times as wide."""
    macs = 4 * rows * width**2 + 2 * rows**2 * width + 8 * rows * width**2
    parameters = 4 * (width**2 + width) + 8 * width**2 + 5 * width + 4 * width
    return layers * macs, layers * parameters


def vit_b16() -> Count:
    """Dosovitskiy et al. 2021, table 1: 12 layers of 768, patches of 16, no head."""
    macs, parameters = encoder(197, 768, 12)
    patches = 196 * 768 * 768
    return macs + patches, parameters + 768 * 768 + 768 + 768 + 197 * 768 + 2 * 768


def bert_base() -> Count:
    """Devlin et al. 2019: 12 layers of 768, vocabulary 30,522, no pooler; one sequence of 128."""
    macs, parameters = encoder(128, 768, 12)
    return macs, parameters + (30522 + 512 + 2) * 768 + 2 * 768


def llama3_8b_layer() -> Count:
    """Grattafiori et al. 2024, table 3, one layer, 512 tokens; the file cuts the vocabulary to 1,024."""
    rows, width, hidden, shared, vocabulary = 512, 4096, 14336, 1024, 1024
    weights = 2 * width**2 + 2 * width * shared + 3 * width * hidden + width * vocabulary
    macs = rows * weights + 2 * rows**2 * width
    return macs, weights + vocabulary * width + 3 * width


def gpt2() -> Count:
    """Radford et al. 2019, the smallest: 12 layers of 768, vocabulary 50,257; 128 tokens.

    The file stores the head apart from the embedding that it is tied to.
    """
    macs, parameters = encoder(128, 768, 12)
    return macs + 128 * 768 * 50257, parameters + (2 * 50257 + 1024) * 768 + 2 * 768


def llama3_70b() -> Count:
    """Grattafiori et al. 2024, table 3: 80 layers of 8,192, 64 query and 8 key heads, MLP 28,672, vocabulary 128,256;
    2,048 tokens.
    """
    rows, width, hidden, shared, vocabulary = 2048, 8192, 28672, 1024, 128256
    layer = 2 * width**2 + 2 * width * shared + 3 * width * hidden
    macs = 80 * (rows * layer + 2 * rows**2 * width) + rows * width * vocabulary
    return macs, 80 * (layer + 2 * width) + 2 * vocabulary * width + width


def tiny_gpt2_with_past() -> Count:
    """5 layers of 32 with one packed projection, MLP 128, vocabulary 1,000; 128 tokens after 128 others.

    Scores and values see 256 keys each; nothing is skipped for the causal mask.
    """
    layer = 128 * 32 * 96 + 2 * 128 * 256 * 32 + 128 * 32 * 32 + 2 * 128 * 32 * 128
    return 5 * layer + 128 * 32 * 1000, 0


PAPERS: dict[str, tuple[Callable[[], Count], dict[str, int]]] = {
    "light_resnet50": (resnet50, {}),
    "light_vgg19": (vgg19, {}),
    "zigzag_mobilenetv2": (mobilenet_v2, {}),
    "vit_b16": (vit_b16, {}),
    "bert_base_dynamic": (bert_base, {"batch": 1, "seq": 128}),
    "llama3_8b_1layer_prefill512": (llama3_8b_layer, {}),
    "gpt2_prefill_legacy_op14": (gpt2, {"batch": 1, "seq": 128}),
    "llama3_70b_80layer_prefill2048": (llama3_70b, {}),
    "genai_tiny_gpt2_past": (tiny_gpt2_with_past, {"batch_size": 1, "seq_len": 128, "past_seq_len": 128}),
}

# Counted from onnx's own shapes.
PLAIN: dict[str, dict[str, int]] = {
    "basic_pitch_nmp": {"unk__749": 2},
    "bilstm_lm_op13": {"b": 3, "t": 20},
    "dlrm_26tables": {"batch": 64},
    "efficientnet_b0_dynbatch": {"batch": 2},
    "light_bvlc_alexnet": {},
    "light_inception_v1": {},
    "light_inception_v2": {},
    "light_resnet50": {},
    "light_squeezenet": {},
    "light_vgg19": {},
    "llama3_70b_80layer_prefill2048": {},
    "llama3_8b_1layer_decode_kv": {"past": 2047},
    "llama3_8b_1layer_prefill512": {},
    "llama_2layer_opset23": {},
    "magika_v3_3": {"unk__214": 1},
    "mixtral_moe_1layer": {},
    "mobilenetv2_qdq_int8_perchannel": {},
    "mobilenetv3_large_op13": {"N": 4},
    "onnxscript_nested_functions": {"B": 2, "S": 64},
    "ppocrv4_det": {
        "p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 640, "p2o.DynamicDimension.2": 480,
    },
    "stream_attention_head": {},
    "stream_swiglu_256_4096_14336": {},
    "train_gpt2_2layer_fwd_bwd_sgd": {},
    "unet_256_op16": {},
    "vit_b16": {},
    "wonnx_opt_mnist": {},
    "zigzag_mobilenetv2": {},
    "zigzag_resnet18": {},
}  # fmt: skip

# The others were exported with random weights: equal ones (zero biases, unit scales) are stored once, and
# tables of positions and masks are constants of the file.
SAME_WEIGHTS_AS_THE_PAPER = {"light_resnet50", "light_vgg19", "zigzag_mobilenetv2"}


@pytest.mark.shared
@pytest.mark.parametrize("name", PAPERS)
def test_counts_equal_those_of_the_paper(name: str, shared: Path) -> None:
    count, bindings = PAPERS[name]
    macs, parameters = count()
    graph = load_graph(shared / "graphs" / "open" / f"{name}.onnx", bindings)
    # To the last one: no such operator may be missed or counted twice.
    assert graph.macs == macs
    if name in SAME_WEIGHTS_AS_THE_PAPER:
        assert graph.parameter_bytes == 4 * parameters
    elif parameters:
        assert graph.parameter_bytes == pytest.approx(4 * parameters, rel=0.01)


@pytest.mark.shared
@pytest.mark.parametrize("name", PLAIN)
def test_counts_equal_those_from_plain_shapes(name: str, shared: Path) -> None:
    path = shared / "graphs" / "open" / f"{name}.onnx"
    assert load_graph(path, PLAIN[name]).macs == plain_macs(path, PLAIN[name]) > 0
