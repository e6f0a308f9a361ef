"""What the tooltip says: the numbers of an operator, an edge, a cut or a group, as plain lines.

Knows a scene, a hit and the newest result. Must not know widgets. Names from files are shown as text: nothing
in them is taken for markup, and names of thousands of characters are shortened.
"""

from __future__ import annotations

import numpy as np

from model.cost.result import CostResult, GroupResult
from model.graph.graph import Tensor
from model.graph.hierarchy import parameter_bytes

from .. import look
from ..names import group_label, group_name
from .block_painter import holds
from .painter import state_of
from .scene import Hit as _Hit
from .scene import Part, Scene

LONGEST = 90


def tip(scene: Scene, hit: _Hit, result: CostResult | None) -> str:
    """The lines for what lies under the pointer; empty for nothing."""
    lines: list[str] = []
    if hit.part is Part.OPERATOR:
        lines = _operator(scene, hit.index)
    elif hit.part is Part.EDGE:
        lines = _edge(scene, hit.index)
    elif hit.part is Part.CHIP:
        handle = scene.chip_is_handle[hit.index]
        lines = [
            *_edge(scene, scene.chip(hit.index).edge),
            "Drag along the flow: move the cut. Double-click: fuse."
            if handle
            else "Double-click: open the closed block, to cut or fuse inside.",
        ]
    elif hit.part is Part.BLOCK:
        lines = _block(scene, hit.index)
    elif hit.part is Part.FRAME:
        lines = ["Double-click: close this block."]
    elif hit.part in (Part.HULL, Part.RIM, Part.UPPER_RIM):
        lines = _group(scene, hit.index, result)
        if hit.part is not Part.HULL:
            lines.append("Drag along the flow: move the boundary.")
    return "<qt>" + "<br>".join(_escaped(line) for line in lines) + "</qt>" if lines else ""


def _escaped(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST // 2]}…{plain[-LONGEST // 2 :]}"


def _tensor(tensor: Tensor) -> str:
    amount = look.fmt_bytes(tensor.bytes)
    return f"{_short(tensor.name)}  {look.fmt_shape(tensor.shape)} {tensor.dtype}, {amount}"


def _operator(scene: Scene, index: int) -> list[str]:
    graph = scene.graph
    operator = graph.operators[index]
    lines = [f"{_short(operator.name)}  {operator.op_type}, {operator.kind.value}"]
    if operator.scope:
        lines.append(_short(" / ".join(operator.scope)))
    if operator.dims:
        dims = " · ".join(
            f"{d.name} {d.extent:,}{' (reduced)' if d.reduction else ''}" for d in operator.dims
        )
        lines.append(dims)
    lines += [f"in   {_tensor(graph.tensors[access.tensor])}" for access in operator.inputs[:6]]
    if len(operator.inputs) > 6:
        lines.append(f"in   and {len(operator.inputs) - 6:,} more")
    lines += [f"out  {_tensor(graph.tensors[access.tensor])}" for access in operator.outputs[:4]]
    if operator.macs:
        lines.append(f"{look.fmt_quantity(operator.macs, 'MAC')}")
    amount = scene.traffic.bytes[index]
    if amount == amount:  # not NaN: there is a result
        home = group_name(int(scene.group_of[index]))
        lines.append(f"{scene.traffic.memory} {look.fmt_bytes_exact(round(float(amount)))} in {home}")
    if operator.reason:
        lines.append(_short(operator.reason))
        if any(graph.tensors[access.tensor].shape is None for access in operator.outputs):
            lines.append("Give its result a shape: Ctrl+B.")
    return lines


def _block(scene: Scene, slot: int) -> list[str]:
    folding = scene.folding
    assert folding.hierarchy is not None
    block = folding.blocks[slot]
    operators = folding.operators(block)
    path = " / ".join(folding.hierarchy.name[step] for step in folding.hierarchy.path(block))
    groups = len(np.unique(scene.group_of[operators]))
    lines = [
        _short(path),
        f"{holds(scene, slot)} in {groups:,} group{'s' if groups != 1 else ''}",
        f"parameters {look.fmt_bytes(parameter_bytes(scene.graph, operators.tolist()))}",
    ]
    amount = scene.traffic.block_bytes[slot]
    if amount == amount:  # not NaN: there is a result
        lines.append(f"{scene.traffic.memory} {look.fmt_bytes_exact(round(float(amount)))} by its operators")
    return [*lines, "Double-click, or Enter: open it."]


def _edge(scene: Scene, row: int) -> list[str]:
    graph = scene.graph
    producer, consumer, tensor = (int(v) for v in graph.edges[row])
    value = graph.tensors[tensor]
    lines = [
        f"{_short(graph.operators[producer].name)} → {_short(graph.operators[consumer].name)}",
        f"{_short(value.name)}  {look.fmt_shape(value.shape)} {value.dtype}",
    ]
    if value.bytes is not None:
        lines.append(look.fmt_bytes_exact(value.bytes))
    source, target = int(scene.group_of[producer]), int(scene.group_of[consumer])
    if source == target:
        lines.append(f"inside {group_name(source)}. Double-click: cut here.")
    else:
        lines.append(f"crosses from {group_name(source)} to {group_name(target)}")
    return lines


def _group(scene: Scene, group: int, result: CostResult | None) -> list[str]:
    operators = scene.plan.groups[group].operators
    count = f"{len(operators):,} operators" if len(operators) != 1 else "1 operator"
    lines = [_short(group_label(scene.graph, group, operators)), count]
    found: GroupResult | None = scene.result_of(group)
    if found is None or result is None:
        return [*lines, "not computed yet"]
    read, written = found.dram_bytes(result.request.accelerator.dram.name)
    lines.append(f"latency {look.fmt_seconds(found.latency_s)}, limited by {found.bottleneck.name}")
    lines.append(f"DRAM {look.fmt_bytes(read)} read, {look.fmt_bytes(written)} written")
    lines += [f"{memory} {look.fmt_bytes(amount)} at most in use" for memory, amount in found.footprint_bytes]
    _, _, words = state_of(found)
    if words:
        lines.append(words)
    return lines
