"""A solved group as plain values that do not depend on where in the plan it stands.

Operators and tensors are named by position in the group, so that equal groups elsewhere share a solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import OperatorGraph
from ..plan.plan import Sizes
from .result import PHASE_DTYPE, Bottleneck, Infeasible, LevelMapping, RegisterUse

RESOURCE_NAMES = (
    "matrix compute",
    "vector",
    "DRAM bandwidth",
    "on-chip bandwidth",
    "memory latency",
    "spill",
    "occupancy",
    "core imbalance",
)  # fmt: skip
# Sets that are tried together where no single resource gains 1 %.
RESOURCE_SETS = ((0, 2), (1, 2), (0, 1), (2, 3), (0, 1, 2))
_NO_PHASES = np.zeros(0, PHASE_DTYPE)
NO_REGISTERS = RegisterUse(0, 0, "bytes", 0, "", 1.0, "", "")


@dataclass(frozen=True, slots=True)
class LocalTraffic:
    """`Traffic` with the tensor as a position in ``Solution.tensors``."""

    tensor: int
    outer: str
    inner: str
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """A solved group. Fields are those of `GroupResult` unless said.

    Attributes
    ----------
    tensors : the group's tensors in order of first use; ``traffic`` and ``retain`` count in them.
    tree : the tree's text as parts: strings, and positions of members where a name stands.
    latency_ns : integer; `latency_s` is it in seconds. ``relieved_s`` per resource of `RESOURCE_NAMES` the
        latency with that resource 10 % better.
    launches : 0 for groups of views.
    operand_bytes : numerator of the reuse factor; kept_bytes : intermediates that never reach DRAM.
    resident : (tensor, bytes in the buffer at the peak); `resident.IN_PLACE` for what is not needed twice.
    touched : (tensor, distinct bytes, read, written) of what crosses: what a cache sees.
    """

    dims: Sizes
    dim_of: tuple[tuple[str, ...], ...]
    levels: tuple[LevelMapping, ...]
    retain: tuple[tuple[tuple[int, int], ...], ...]
    tree: tuple[str | int, ...]
    elements: tuple[str, ...]
    parallel: Sizes
    stages: int
    threads: int
    traffic: tuple[LocalTraffic, ...]
    footprint_bytes: tuple[tuple[str, int], ...]
    macs: int
    recomputed_macs: int
    vector_ops: int
    compute_s: float
    dram_s: float
    latency_ns: int
    launches: int
    cycles: float
    ideal_cycles: float
    waves: int
    registers: RegisterUse
    compulsory_bytes: int
    lower_bound_bytes: int
    bound_source: str
    operator_bytes: int
    energy_j: float
    code_bytes: int
    complexity: float
    phases: NDArray[np.void]
    chosen: tuple[str, ...]
    bottleneck: Bottleneck
    infeasible: Infeasible | None
    warnings: tuple[tuple[str, str], ...]
    relieved_s: tuple[float, ...]
    dram_read_bytes: int
    dram_write_bytes: int
    operand_bytes: int
    kept_bytes: int
    split_reduction: Sizes = ()
    spill_bytes: int = 0
    spill_to: str = ""
    touched: tuple[tuple[int, int, bool, bool], ...] = ()
    resident: tuple[tuple[int, int], ...] = ()


def balanced(resources: tuple[int, ...]) -> str:
    """The name of a set of resources that only together gain 1 %."""
    return "balanced: " + " + ".join(RESOURCE_NAMES[i] for i in resources)


def tensors_of(graph: OperatorGraph, members: tuple[int, ...]) -> tuple[int, ...]:
    """The tensors of a group in order of first use: what `Solution` counts in."""
    seen: dict[int, None] = {}
    for index in members:
        operator = graph.operators[index]
        for access in operator.inputs + operator.outputs:
            seen.setdefault(access.tensor)
    return tuple(seen)


def plain(names: tuple[str, ...], extents: tuple[int, ...], dim_of: tuple[tuple[str, ...], ...]) -> Solution:
    return Solution(
        dims=tuple(zip(names, extents, strict=True)),
        dim_of=dim_of,
        levels=(),
        retain=(),
        tree=(),
        elements=(),
        parallel=(),
        stages=1,
        threads=0,
        traffic=(),
        footprint_bytes=(),
        macs=0,
        recomputed_macs=0,
        vector_ops=0,
        compute_s=0.0,
        dram_s=0.0,
        latency_ns=0,
        launches=0,
        cycles=0.0,
        ideal_cycles=0.0,
        waves=0,
        registers=NO_REGISTERS,
        compulsory_bytes=0,
        lower_bound_bytes=0,
        bound_source="compulsory",
        operator_bytes=0,
        energy_j=0.0,
        code_bytes=0,
        complexity=0.0,
        phases=_NO_PHASES,
        chosen=(),
        bottleneck=Bottleneck("none", 0.0, "views move nothing"),
        infeasible=None,
        warnings=(),
        relieved_s=(0.0,) * (len(RESOURCE_NAMES) + len(RESOURCE_SETS)),
        dram_read_bytes=0,
        dram_write_bytes=0,
        operand_bytes=0,
        kept_bytes=0,
    )
