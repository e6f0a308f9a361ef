"""Control flow on a machine: the operators of its nested graphs, each alone, as often as they run.

Knows the door to one group's figures by what is handed in, and launches; knows no plan: a nested graph has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..graph.graph import Operator, OperatorGraph
from ..hardware.accelerator import Accelerator
from .result import PHASE_DTYPE, PHASE_KINDS, Bottleneck
from .solution import RESOURCE_NAMES, LocalTraffic, Solution
from .sums import Sums

_SUMMED = (
    "macs", "recomputed_macs", "vector_ops", "launches", "cycles", "ideal_cycles", "compulsory_bytes",
    "lower_bound_bytes", "operator_bytes", "energy_j", "dram_read_bytes", "dram_write_bytes", "operand_bytes",
    "kept_bytes", "spill_bytes", "compute_s", "dram_s",
)  # fmt: skip


def with_bodies(
    graph: OperatorGraph,
    operator: Operator,
    accelerator: Accelerator,
    alone: Callable[[OperatorGraph], list[Solution]],
    bare: Solution,
) -> Solution:
    """`bare`, the control-flow operator itself, with the work of its nested graphs.

    A nested graph takes from the start of its first launch to the end of its last, once per run (COST-MODEL 5). What
    its operators move stands under the first tensor that the control flow writes: the graph has no other name for it.

    Parameters
    ----------
    alone : the solutions of a graph's operators, each in a group of its own.
    """
    sums: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
    latency_ns = refetch = code = 0
    fits = bare.infeasible
    saved_s = np.zeros(len(bare.relieved_s))
    for path, times in operator.runs:
        solutions = alone(graph.bodies[path])
        for solution in solutions:
            for name in _SUMMED:
                sums[name] += times * getattr(solution, name)
            refetch += times * int(solution.phases["refetch"].sum())
            code += solution.code_bytes
            fits = fits or (solution.infeasible if times else None)
            saved_s += times * (solution.latency_ns * 1e-9 - np.array(solution.relieved_s))
        latency_ns += times * Sums.of(accelerator, solutions).end_ns
    if not latency_ns or not operator.outputs:
        return bare
    relieved = latency_ns * 1e-9 - np.maximum(saved_s, 0.0)
    best = int(np.argmin(relieved[: len(RESOURCE_NAMES)]))
    gain = 1.0 - float(relieved[best]) / (latency_ns * 1e-9)
    name = RESOURCE_NAMES[best] if gain >= 0.01 else "launch"
    moved = sums["dram_read_bytes"] + sums["dram_write_bytes"]
    spill = min(sums["spill_bytes"], moved)
    phase = (PHASE_KINDS.index("steady"), latency_ns, moved, spill, min(refetch, moved - spill))
    runs = " and ".join(f"{path} {times:,} times" for path, times in operator.runs)
    open_ones = [
        f"{name}={number}" for name, number in graph.bindings if name.startswith(("trips:", "branch:"))
    ]
    lever = f"Bind what the file leaves open: --bind {','.join(open_ones[:3])}" if open_ones else ""
    under = len({access.tensor for access in operator.inputs})  # where `tensors_of` has the first output
    return replace(
        bare,
        **sums,
        latency_ns=latency_ns,
        code_bytes=code,
        infeasible=fits,
        phases=np.array([phase], PHASE_DTYPE),
        traffic=(
            LocalTraffic(
                under,
                accelerator.dram.name,
                accelerator.buffer.name,
                int(sums["dram_read_bytes"]),
                int(sums["dram_write_bytes"]),
            ),
        ),
        relieved_s=tuple(relieved.tolist()),
        bottleneck=Bottleneck(name, gain, "its nested graphs, operator by operator"),
        warnings=(
            (f"control flow: operator by operator, {runs}; no group of the plan reaches into it", lever),
        ),
    )
