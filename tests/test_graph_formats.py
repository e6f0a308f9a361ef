"""Formats other than ONNX: samples of the same small network, operators worked by hand, faults named by line."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from model.errors import FileError
from model.graph.band import ENDLESS
from model.graph.graph import Operator, OperatorGraph, OpKind, TensorRole
from model.graph.load import load_graph
from model.packaged import folder
from model.plan.starting import starting_plan

SAMPLES = folder("sample_graphs") / "formats"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "graphs" / "open" / "other"
NAMES = ("mlp.pt2", "mlp.stablehlo.mlir", "mlp.hlo.txt", "mlp.dot")
MLP = 2 * 8 * 64 * 256  # two products of 8 rows


def the(graph: OperatorGraph, name: str) -> Operator:
    """An operator by name."""
    return graph.operators[graph.operator_by_name[name]]


def dims(operator: Operator) -> list[tuple[str, int, bool]]:
    return [(d.name, d.extent, d.reduction) for d in operator.dims]


@pytest.mark.parametrize("name", NAMES)
def test_one_network_in_every_format(name: str) -> None:
    graph = load_graph(SAMPLES / name)
    assert [op.kind.value for op in graph.operators] == [
        "contraction",
        *["pointwise"] * 2,
        "contraction",
        "pointwise",
    ]
    assert graph.macs == MLP and not graph.warnings and not graph.refusal
    assert [t.shape for t in graph.tensors if t.is_output] == [(8, 64)]
    assert {t.dtype for t in graph.tensors} == {"float16"}
    assert sum(t.bytes or 0 for t in graph.tensors if t.role is not TensorRole.ACTIVATION) in (
        2 * (8 * 64 + 2 * 64 * 256),
        2 * (8 * 64 + 2 * 64 * 256) + 2,  # with the number 0.5 as a tensor
    )


def test_the_archive_is_what_the_script_builds(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("formats_build", SAMPLES / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(tmp_path / "mlp.pt2")
    assert (tmp_path / "mlp.pt2").read_bytes() == (SAMPLES / "mlp.pt2").read_bytes()


def test_weights_and_blocks_of_an_archive_have_the_modules_names() -> None:
    graph = load_graph(SAMPLES / "mlp.pt2")
    assert {t.name for t in graph.tensors if t.role is TensorRole.WEIGHT} == {"w1", "w2"}
    assert [op.scope for op in graph.operators] == [("up",), ("up",), ("up",), ("down",), ()]


def test_fusions_of_hlo_are_the_plan() -> None:
    graph = load_graph(SAMPLES / "mlp.hlo.txt")
    assert graph.fusions == ((0, 1, 2), (3, 4))
    start = starting_plan(graph)
    assert [group.operators for group in start.plan.groups] == [(0, 1, 2), (3, 4)]
    assert start.source == "the file's own 2 fusions of several operators" and not start.refused


def hlo(tmp_path: Path, body: str, before: str = "") -> OperatorGraph:
    path = tmp_path / "made.hlo.txt"
    path.write_text(f"HloModule made\n{before}\nENTRY main {{\n{body}\n}}\n")
    return load_graph(path)


def test_a_fusion_that_is_no_group_is_named(tmp_path: Path) -> None:
    fused = (
        "f {\n  a = f32[4] parameter(0)\n  b = f32[4] parameter(1)\n  e = f32[4] exponential(a)\n"
        "  t = f32[4] tanh(b)\n  ROOT r = (f32[4], f32[4]) tuple(e, t)\n}"
    )
    body = (
        "  x = f32[4] parameter(0)\n  y = f32[4] parameter(1)\n"
        "  two = (f32[4], f32[4]) fusion(x, y), kind=kLoop, calls=f\n"
        "  first = f32[4] get-tuple-element(two), index=0\n  ROOT second = f32[4] negate(first)"
    )
    graph = hlo(tmp_path, body, fused)
    assert [op.name for op in graph.operators] == ["e", "t", "second"] and graph.fusions == ((0, 1),)
    start = starting_plan(graph)
    assert len(start.plan.groups) == 3 and len(start.refused) == 1 and "e" in start.refused[0]


def test_convolution_of_hlo_in_any_layout(tmp_path: Path) -> None:
    """Channels last, stride 2, pads 1: 14x14 pixels become 7x7; 2 * 49 * 16 * 8 * 9 products."""
    body = (
        "  x = f32[2,14,14,8]{3,2,1,0} parameter(0)\n  w = f32[3,3,8,16] parameter(1)\n"
        "  ROOT c = f32[2,7,7,16] convolution(x, w), window={size=3x3 stride=2x2 pad=1_0x1_0}, "
        "dim_labels=b01f_01io->b01f"
    )
    conv = the(hlo(tmp_path, body), "c")
    assert conv.kind is OpKind.CONTRACTION and conv.macs == 2 * 49 * 16 * 8 * 9
    assert dims(conv) == [("n", 2, False), ("k", 16, False), ("p", 7, False), ("q", 7, False),
                          ("c", 8, True), ("r", 3, True), ("s", 3, True)]  # fmt: skip
    assert conv.inputs[0].axes[1].terms == ((2, 2), (5, 1)) and conv.inputs[0].axes[1].offset == -1
    assert [axis.terms for axis in conv.inputs[1].axes] == [((5, 1),), ((6, 1),), ((4, 1),), ((1, 1),)]
    assert [axis.terms for axis in conv.outputs[0].axes] == [((0, 1),), ((2, 1),), ((3, 1),), ((1, 1),)]


def test_grouped_convolution_of_hlo(tmp_path: Path) -> None:
    body = (
        "  x = f32[1,8,8,32] parameter(0)\n  w = f32[3,3,1,32] parameter(1)\n"
        "  ROOT c = f32[1,6,6,32] convolution(x, w), window={size=3x3}, dim_labels=b01f_01io->b01f, "
        "feature_group_count=32"
    )
    assert the(hlo(tmp_path, body), "c").macs == 36 * 32 * 9


def test_windows_slices_and_padding_of_hlo(tmp_path: Path) -> None:
    add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] maximum(a, b)\n}"
    body = (
        "  x = f32[1,8,8,4] parameter(0)\n  z = f32[] constant(-inf)\n"
        "  pool = f32[1,4,4,4] reduce-window(x, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add\n"
        "  part = f32[1,2,4,4] slice(pool), slice={[0:1], [1:3], [0:4], [0:4]}\n"
        "  wide = f32[1,4,4,4] pad(part, z), padding=0_0x1_1x0_0x0_0\n"
        "  back = f32[1,4,4,4] reverse(wide), dimensions={1}\n"
        "  join = f32[1,8,4,4] concatenate(back, wide), dimensions={1}\n"
        "  ROOT flip = f32[8,1,4,4] transpose(join), dimensions={1,0,2,3}"
    )
    graph = hlo(tmp_path, body, add)
    assert [op.kind.value for op in graph.operators] == ["window", *["movement"] * 5] and not graph.warnings
    pool = the(graph, "pool")
    assert pool.points == 64 * 4 and pool.vector_ops == (("max", 1.0),)
    assert the(graph, "part").inputs[0].axes[1].offset == 1
    assert the(graph, "wide").inputs[0].axes[1].offset == -1
    assert the(graph, "back").inputs[0].axes[1].terms == ((1, -1),)
    assert [a.axes[1].offset for a in the(graph, "join").inputs] == [0, -4]


def test_old_hlo_writes_types_before_operands_and_loops_are_opaque(tmp_path: Path) -> None:
    body = (
        "  %p = (f32[8,4]{1,0}, /*index=1*/f32[4,2]{1,0}) parameter(0)\n"
        "  %a = f32[8,4]{1,0} get-tuple-element((f32[8,4], f32[4,2]) %p), index=0\n"
        "  %b = f32[4,2]{1,0} get-tuple-element((f32[8,4], f32[4,2]) %p), index=1\n"
        "  %d = f32[8,2]{1,0} dot(f32[8,4]{1,0} %a, f32[4,2]{1,0} %b), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n"
        "  ROOT %w = f32[8,2]{1,0} while(f32[8,2]{1,0} %d), condition=%c, body=%d"
    )
    graph = hlo(tmp_path, body)
    assert the(graph, "d").macs == 8 * 2 * 4
    assert the(graph, "w").kind is OpKind.OPAQUE and "xla::while" in the(graph, "w").reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n", "line 2: the file ends inside computation 'e'"),
        ("HloModule m\nENTRY e {\n  what is this\n}\n", "line 3: this is no HLO instruction"),
        ("HloModule m\nENTRY e {\n  a = f32[2] tanh(b\n}\n", "line 3: a bracket has no end"),
        ("HloModule m\nENTRY e {\n  a = f32[2] fusion(), calls=%f\n}\n", "line 3: 'a' calls 'f', which the module"),
        ("HloModule m\nENTRY e {\n  a = f32[2] call(), to_apply=e\n}\n", "calls nest too deep, or 'e' calls itself"),
        ("HloModule m\nENTRY e {\n  a = (f32[2] tanh(b)\n}\n", "line 3: no type where one was expected"),
        ("HloModule m\n", "the module holds no computation"),
        ('"builtin.module"() ({\n  "func.func"() ({\n', "line 2: the file ends in the middle"),
        ('"builtin.module"() ({\n}) : () -> ()\n', "the module holds no public function"),
        ('"builtin.module"() ({\n  %0 = stablehlo.add %1\n}) : () -> ()\n', "line 2: this is MLIR in its pretty form"),
        ("module @m {\n  func.func public @main() {\n", "line 1: this is MLIR in its pretty form"),
        ('"builtin.module"() ({\n  %0 = "stablehlo.add"(%1 : f32\n', "line 2: "),
        ('"builtin.module"() ({\n' * 200, "regions nest more than"),
        ("digraph g {\n  a -> b\n", "line 3: the file ends before the graph is closed"),
        ("digraph g {\n  a -> [b];\n}", "line 2: a name was expected, not '['"),
        ("graph g {\n  a -- b;\n}", "line 1: an undirected graph"),
        ("digraph g {\n  w [op=Weight];\n  w -> m;\n  m [op=Relu];\n}", "line 2: weight 'w' has no shape"),
        ("digraph g {\n}", "it holds no operators"),
    ],
)  # fmt: skip
def test_faults_of_texts_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        load_graph(path)
    assert says in caught.value.sentence() and caught.value.lever


def test_faults_of_wiring_are_named_as_in_onnx(tmp_path: Path) -> None:
    graph = hlo(tmp_path, "  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a, ghost)")
    assert any("nothing makes value 'ghost (line 5)', which b reads" in w.what for w in graph.warnings)
    path = tmp_path / "cycle.dot"
    path.write_text("digraph g {\n a [op=Relu]; b [op=Relu];\n a -> b;\n b -> a;\n}")
    assert "the graph has a cycle: a -> b -> a" in load_graph(path).refusal


def test_calls_that_double_are_counted_before_memory_is(tmp_path: Path) -> None:
    """Forty functions that each call the next one twice: 2^40 operators."""
    parts = [f"f{i} {{\n  p = f32[] parameter(0)\n  q = f32[] call(p), to_apply=f{i + 1}\n"
             f"  ROOT r = f32[] call(q), to_apply=f{i + 1}\n}}" for i in range(40)]  # fmt: skip
    parts.append("f40 {\n  p = f32[] parameter(0)\n  ROOT r = f32[] tanh(p)\n}")
    with pytest.raises(FileError, match=r"expand to more than|more than 200,000 operators"):
        hlo(tmp_path, "  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f0", "\n".join(parts))


# ---------------------------------------------------------------- torch.export


def exported(tmp_path: Path, nodes: list[dict[str, Any]], shapes: dict[str, tuple[Any, ...]],
             given: tuple[str, ...], out: str) -> OperatorGraph:  # fmt: skip
    """An archive of these nodes; sizes are numbers, or (expression, hint)."""
    values = {
        name: {"dtype": 7, "sizes": [
            {"as_int": s} if isinstance(s, int) else {"as_expr": {"expr_str": s[0], "hint": {"as_int": s[1]}}}
            for s in shape]}
        for name, shape in shapes.items()
    }  # fmt: skip
    graph = {"inputs": [{"as_tensor": {"name": n}} for n in given], "outputs": [{"as_tensor": {"name": out}}],
             "nodes": nodes, "tensor_values": values}  # fmt: skip
    document = {
        "graph_module": {"graph": graph, "signature": {"input_specs": []}},
        "schema_version": {"major": 8},
    }
    path = tmp_path / "made.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("made/models/model.json", json.dumps(document))
    return load_graph(path)


def node(target: str, out: str, *arguments: tuple[str, str, Any]) -> dict[str, Any]:
    """``(schema name, kind, value)`` per argument."""
    inputs = [
        {"name": name, "arg": {f"as_{kind}": {"name": value} if kind == "tensor" else value}}
        for name, kind, value in arguments
    ]
    return {"target": f"torch.ops.aten.{target}", "inputs": inputs,
            "outputs": [{"as_tensor": {"name": out}}], "name": out, "metadata": {}}  # fmt: skip


def test_linear_and_addmm_are_products_with_a_bias(tmp_path: Path) -> None:
    nodes = [
        node(
            "linear.default",
            "y",
            ("input", "tensor", "x"),
            ("weight", "tensor", "w"),
            ("bias", "tensor", "b"),
        ),
        node("view.default", "v", ("self", "tensor", "y"), ("size", "ints", [10, 6])),
        node("addmm.default", "z", ("self", "tensor", "b"), ("mat1", "tensor", "v"), ("mat2", "tensor", "m")),
    ]
    shapes = {"x": (2, 5, 8), "w": (6, 8), "b": (6,), "y": (2, 5, 6), "v": (10, 6), "m": (6, 6), "z": (10, 6)}
    graph = exported(tmp_path, nodes, shapes, ("x", "w", "b", "m"), "z")
    y, z = the(graph, "y"), the(graph, "z")
    assert dims(y) == [("b", 2, False), ("m", 5, False), ("n", 6, False), ("k", 8, True)]
    assert [axis.terms for axis in y.inputs[1].axes] == [((2, 1),), ((3, 1),)]
    assert [axis.terms for axis in y.inputs[2].axes] == [((2, 1),)] and y.vector_ops == (("add", 1 / 8),)
    assert z.macs == 10 * 6 * 6 and graph.tensors[z.inputs[0].tensor].name == "v" and len(z.inputs) == 3
    assert the(graph, "v").kind is OpKind.VIEW


def test_attention_is_written_out(tmp_path: Path) -> None:
    nodes = [node("scaled_dot_product_attention.default", "y", ("query", "tensor", "q"), ("key", "tensor", "k"),
                  ("value", "tensor", "v"), ("attn_mask", "none", True), ("is_causal", "bool", True))]  # fmt: skip
    shapes = {"q": (2, 4, 16, 8), "k": (2, 4, 32, 8), "v": (2, 4, 32, 8), "y": (2, 4, 16, 8)}
    graph = exported(tmp_path, nodes, shapes, ("q", "k", "v"), "y")
    assert [op.op_type for op in graph.operators] == ["Einsum", "Mul", "Softmax", "Einsum"]
    assert graph.macs == 2 * (2 * 4 * 16 * 32 * 8) and not graph.warnings
    # torch's causal mask lets query i see keys 0 to i: 16 * 17 / 2 of 512 pairs, in every part.
    assert graph.bounded_macs == 2 * (2 * 4 * 136 * 8)
    assert [op.band is not None and (op.band.offset, op.band.window) for op in graph.operators] == [
        (0, ENDLESS)
    ] * 4


def test_torch_operators_by_hand(tmp_path: Path) -> None:
    """One of each kind; the dims of each are its attributes worked out on paper."""
    nodes = [
        node("conv2d.default", "c", ("input", "tensor", "x"), ("weight", "tensor", "w"), ("bias", "none", True),
             ("stride", "ints", [2, 2]), ("padding", "ints", [1, 1]), ("groups", "int", 4)),
        node("max_pool2d.default", "p", ("self", "tensor", "c"), ("kernel_size", "ints", [2, 2]),
             ("stride", "ints", [2, 2])),
        node("adaptive_avg_pool2d.default", "g", ("self", "tensor", "p"), ("output_size", "ints", [1, 1])),
        node("permute.default", "t", ("self", "tensor", "p"), ("dims", "ints", [0, 2, 3, 1])),
        node("layer_norm.default", "l", ("input", "tensor", "t"), ("normalized_shape", "ints", [8])),
        node("softmax.int", "s", ("self", "tensor", "l"), ("dim", "int", -1)),
        node("sum.dim_IntList", "r", ("self", "tensor", "s"), ("dim", "ints", [1, 2])),
        node("slice.Tensor", "h", ("self", "tensor", "r"), ("dim", "int", 1), ("start", "int", 2),
             ("end", "int", 2**63 - 1)),
        node("select.int", "o", ("self", "tensor", "h"), ("dim", "int", 0), ("index", "int", -1)),
        node("erfinv.default", "e", ("self", "tensor", "o")),
    ]  # fmt: skip
    shapes = {"x": (2, 8, 16, 16), "w": (8, 2, 3, 3), "c": (2, 8, 8, 8), "p": (2, 8, 4, 4), "g": (2, 8, 1, 1),
              "t": (2, 4, 4, 8), "l": (2, 4, 4, 8), "s": (2, 4, 4, 8), "r": (2, 8), "h": (2, 6), "o": (6,),
              "e": (6,)}  # fmt: skip
    graph = exported(tmp_path, nodes, shapes, ("x", "w"), "e")
    kinds = ["contraction", "window", "window", "movement", "reduction", "reduction", "reduction", "movement",
             "movement", "opaque"]  # fmt: skip
    assert [op.kind.value for op in graph.operators] == kinds
    assert the(graph, "c").macs == 2 * 8 * 64 * 2 * 9
    assert the(graph, "p").points == 2 * 8 * 16 * 4 and the(graph, "g").points == 2 * 8 * 16
    assert the(graph, "s").online and dims(the(graph, "s"))[3] == ("i3", 8, True)
    assert [d for d in dims(the(graph, "r")) if d[2]] == [("i1", 4, True), ("i2", 4, True)]
    assert the(graph, "h").inputs[0].axes[1].offset == 2
    assert the(graph, "o").inputs[0].axes[0].offset == 1 and the(graph, "o").inputs[0].axes[0].terms == ()
    assert "aten::erfinv" in the(graph, "e").reason


def test_symbols_of_an_archive_have_the_numbers_of_the_export(tmp_path: Path) -> None:
    nodes = [node("relu.default", "y", ("self", "tensor", "x"))]
    shapes = {"x": (("s0", 6), 4), "y": (("s0", 6), 4)}
    assert exported(tmp_path, nodes, shapes, ("x",), "y").bindings == (("s0", 6),)


def archive(tmp_path: Path, **files: str | bytes) -> Path:
    path = tmp_path / "broken.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is no JSON: line 1"),
        (b"[" * 200_000, "nests too deep"),
        (b"\xff\xfe{", "is no JSON"),
        (b"{}", "not as torch.export writes it"),
        (b"[]", "not as torch.export writes it"),
        (b'{"graph_module": {"graph": {"nodes": 3}, "signature": {}}}', "not as torch.export writes it"),
        (b"x" * (300 * 2**20), "unpacks to more than 256 MiB"),
    ],
)
def test_faults_of_archives_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = archive(tmp_path, **{"m/models/model.json": content})
    with pytest.raises(FileError) as caught:
        load_graph(path)
    assert says in caught.value.sentence()


def test_an_archive_that_is_cut_or_of_another_kind_is_named(tmp_path: Path) -> None:
    whole = (SAMPLES / "mlp.pt2").read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"damaged|zip archive"):
        load_graph(path)
    with pytest.raises(FileError, match="neither an ONNX file nor a torch"):
        load_graph(archive(tmp_path, **{"a.txt": b"x"}))
    with pytest.raises(FileError, match="PyTorch archive"):
        load_graph(archive(tmp_path, **{"m/data.pkl": b"x"}))


# ---------------------------------------------------------------- files of the real tools


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "operators", "macs"),
    [
        ("attn_mlp.hlo.txt", 38, None),
        ("attn_mlp.stablehlo.generic.mlir", 30, None),
        # Two images of 64x64: He et al.'s 1.8e9 at 224x224 are 1,813,561,344 of convolutions, and a classifier.
        ("resnet18.pt2", 69, 2 * (1_813_561_344 * 4 // 49 + 512_000)),
    ],
)
def test_files_of_real_tools(name: str, operators: int, macs: int | None) -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared reference files are not beside the checkout")
    graph = load_graph(SHARED / name)
    rows, width = 2 * 128, 64
    attention = 4 * rows * width**2 + 2 * 2 * 128 * 128 * width + 2 * rows * width * 256
    assert len(graph.operators) == operators and graph.macs == (macs or attention)
    assert not graph.warnings and all(not op.reason for op in graph.operators)


@pytest.mark.shared
def test_fusions_of_a_real_compiler_are_a_legal_plan() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared reference files are not beside the checkout")
    graph = load_graph(SHARED / "attn_mlp.hlo.txt")
    start = starting_plan(graph)
    assert len(graph.fusions) == 12 and not start.refused
    assert len(start.plan.groups) == 12 + 4  # and four views outside


@pytest.mark.shared
def test_the_pretty_form_says_how_to_print_the_other(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared reference files are not beside the checkout")
    with pytest.raises(FileError, match=r"line 1: .*pretty form.*--mlir-print-op-generic"):
        load_graph(SHARED / "attn_mlp.stablehlo.mlir")
    assert len(load_graph(SHARED / "unet_256.dot").operators) == 129


def test_attributes_of_stablehlo(tmp_path: Path) -> None:
    """Every attribute form of the generic text: arrays, dense lists and splats, named numbers, two results."""
    body = """
    %c = "stablehlo.convolution"(%x, %w) <{batch_group_count = 1 : i64, dimension_numbers =
        #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64,
        padding = dense<[[1, 0], [1, 0]]> : tensor<2x2xi64>, window_strides = array<i64: 2, 2>}>
        : (tensor<2x14x14x8xf32>, tensor<3x3x8x16xf32>) -> tensor<2x7x7x16xf32>
    %z = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %p = "stablehlo.reduce_window"(%c, %z) <{padding = dense<[[0, 0], [1, 0], [1, 0], [0, 0]]> : tensor<4x2xi64>,
        window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%m) : (tensor<f32>) -> ()
    }) : (tensor<2x7x7x16xf32>, tensor<f32>) -> tensor<2x4x4x16xf32>
    %s = "stablehlo.slice"(%p) {start_indices = dense<[0, 1, 0, 0]> : tensor<4xi64>,
        limit_indices = dense<[2, 3, 4, 16]> : tensor<4xi64>, strides = dense<1> : tensor<4xi64>}
        : (tensor<2x4x4x16xf32>) -> tensor<2x2x4x16xf32> loc("a file":1:2)
    %t = "stablehlo.transpose"(%s) <{permutation = array<i64: 1, 0, 2, 3>}>
        : (tensor<2x2x4x16xf32>) -> tensor<2x2x4x16xf32>
    %k:2 = "stablehlo.custom_call"(%t) <{call_target_name = "two"}>
        : (tensor<2x2x4x16xf32>) -> (tensor<2xf32>, tensor<3xf32>)
    %j = "stablehlo.concatenate"(%k#0, %k#1) <{dimension = 0 : i64}>
        : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
    "func.return"(%j) : (tensor<5xf32>) -> ()"""  # fmt: skip
    path = tmp_path / "m.mlir"
    path.write_text(
        '#loc = loc(unknown)\n"builtin.module"() ({\n"func.func"() <{sym_name = "main"}> ({\n'
        f"^bb0(%x: tensor<2x14x14x8xf32>, %w: tensor<3x3x8x16xf32>):{body}\n}}) : () -> () }}) : () -> ()\n"
    )
    graph = load_graph(path)
    kinds = ["contraction", "window", "movement", "movement", "opaque", "movement"]
    assert [op.kind.value for op in graph.operators] == kinds
    conv, pool, part = (the(graph, name) for name in ("c", "p", "s"))
    assert conv.macs == 2 * 49 * 16 * 8 * 9
    assert conv.inputs[0].axes[1].terms == ((2, 2), (5, 1)) and conv.inputs[0].axes[1].offset == -1
    assert pool.vector_ops == (("max", 1.0),) and pool.inputs[0].axes[1].offset == -1
    assert pool.inputs[0].axes[2].terms == ((2, 2), (5, 1)) and pool.points == 2 * 16 * 16 * 4
    assert part.inputs[0].axes[1].offset == 1
    assert [access.axes[0].offset for access in the(graph, "j").inputs] == [0, -2]
    assert "custom_call" in the(graph, "k#0").reason
