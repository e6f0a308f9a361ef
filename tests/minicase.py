"""The mini case's encoder block as an ONNX model, its machine as a file, and its three plans.

Graph and machine are those of the case that "maximum fusion is faster alone and slower in the tail": S = 512, D = 384,
F = 1536, 6 heads, int8, on eight slots of one 64 x 64 weight-stationary core each. Heads lead (Einsum), so that
no view is needed; K and V come before Q, because their rows are whole before the first row of Q is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from model.graph.graph import OperatorGraph
from model.graph.load import load_graph
from model.hardware.accelerator import Accelerator
from model.hardware.loader import load_hardware
from model.plan.plan import FusionGroup, LevelTile, Plan

ROWS, WIDTH, HIDDEN, HEADS = 512, 384, 1536, 6
HEAD = WIDTH // HEADS

MACHINE = """
format = 1
name = "mini-case"
source = "assumed: the class of edge NPUs, no product"
clock_hz = 1.0e9
cores = 8
[launch]
gap_s = 5.0e-6
[partition]
slots = 8
cores_per_slot = 1
[matrix_unit]
kind = "systolic"
rows = 64
columns = 64
dataflow = "weight-stationary"
macs_per_cycle = { int8 = 4096 }
overlap_folds = true
[vector_unit]
lanes = 128
cycles = { LayerNormalization = 4, Gelu = 4, Softmax = 5, Add = 1 }
[registers]
model = "accumulator"
capacity_bytes = 131072
[[memory]]
name = "DRAM"
scope = "device"
capacity_bytes = 8.0e9
bandwidth_bytes_per_s = 68.0e9
bandwidth_per_core_bytes_per_s = 32.0e9
[[memory]]
name = "scratchpad"
scope = "core"
capacity_bytes = 2097152
bandwidth_bytes_per_s = 256.0e9
"""

# One block's operators, in file order.
BLOCK = ("LN1", "K", "V", "Q", "QK", "SM", "AV", "PROJ", "ADD1", "LN2", "FF1", "GELU", "FF2", "ADD2")
ROW_DIMS = {"LN1": "i0", "QK": "m", "LN2": "i0"}  # first operator of a group: its row dim
# The plans of the case: groups of one block, each with the rows of its tile.
PLANS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "mod": (("LN1", "Q", 192), ("QK", "ADD1", 256), ("LN2", "ADD2", 171)),
    "max": (("LN1", "ADD2", 171),),
    "back": (("LN1", "ADD1", 256), ("LN2", "ADD2", 171)),
}


def model(blocks: int = 1) -> onnx.ModelProto:
    """The encoder of so many blocks."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        size = 1
        for extent in shape:
            size *= extent
        weights.append(helper.make_tensor(name, TensorProto.INT8, shape, bytes(size), raw=True))
        return name

    def node(name: str, op_type: str, *inputs: str, **attributes: Any) -> str:

        nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    x = "X"
    for block in range(blocks):
        b = f"{block}_" if blocks > 1 else ""
        normed = node(f"{b}LN1", "LayerNormalization", x, weight(f"{b}LN1_scale", WIDTH), axis=-1)
        heads = {
            name: node(
                f"{b}{name}",
                "Einsum",
                normed,
                weight(f"{b}W{name}", HEADS, WIDTH, HEAD),
                equation="sd,hde->hse",
            )
            for name in ("K", "V", "Q")
        }
        scores = node(f"{b}QK", "Einsum", heads["Q"], heads["K"], equation="hme,hpe->hmp")
        shares = node(f"{b}SM", "Softmax", scores, axis=-1)
        mixed = node(f"{b}AV", "Einsum", shares, heads["V"], equation="hmp,hpe->hme")
        out = node(
            f"{b}PROJ", "Einsum", mixed, weight(f"{b}WPROJ", HEADS, HEAD, WIDTH), equation="hme,hed->md"
        )
        x = node(f"{b}ADD1", "Add", x, out)
        normed = node(f"{b}LN2", "LayerNormalization", x, weight(f"{b}LN2_scale", WIDTH), axis=-1)
        wide = node(f"{b}FF1", "MatMul", normed, weight(f"{b}WFF1", WIDTH, HIDDEN))
        active = node(f"{b}GELU", "Gelu", wide)
        narrow = node(f"{b}FF2", "MatMul", active, weight(f"{b}WFF2", HIDDEN, WIDTH))
        x = node(f"{b}ADD2", "Add", x, narrow)
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("X", TensorProto.INT8, [ROWS, WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.INT8, [ROWS, WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def graph_and_machine(folder: Path, blocks: int = 1) -> tuple[OperatorGraph, Accelerator]:
    """Graph and machine, read from files."""
    onnx.save_model(model(blocks), folder / "encoder.onnx")
    (folder / "mini-case.toml").write_text(MACHINE, encoding="utf-8")
    return load_graph(folder / "encoder.onnx"), load_hardware(folder / "mini-case.toml")


def plan(graph: OperatorGraph, name: str, rows: bool = True) -> Plan:
    """One of the plans in every block; ``rows``: with the case's row tiles, else with what the tool chooses."""
    groups: list[FusionGroup] = []
    for begin in range(0, len(graph.operators), len(BLOCK)):
        for first, last, tile in PLANS[name]:
            members = range(begin + BLOCK.index(first), begin + BLOCK.index(last) + 1)
            levels = (LevelTile("scratchpad", ((ROW_DIMS[first], tile),)),) if rows else ()
            groups.append(FusionGroup(tuple(members), levels))
    return Plan.of(groups)
