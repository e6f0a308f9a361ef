"""The JSON of ``simulate`` (CONTRACT): a cost result, and the serving result beside it, as plain values.

Knows field names and units of the contract; computes nothing that a result does not hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..plan.file import plan_digest, plan_document
from ..plan.plan import group_name
from ..terminal import TOOL
from .profile import BURST_WINDOW_S, burstiness, contention
from .result import PHASE_KINDS, CostRequest, CostResult, GroupResult, Totals
from .units import UNLIMITED


def totals_document(totals: Totals) -> dict[str, Any]:
    """CONTRACT's ``totals`` (and ``baseline``)."""
    return dataclasses.asdict(totals)


def inputs_document(request: CostRequest) -> dict[str, Any]:
    """CONTRACT's ``inputs``."""
    graph, machine = request.graph, request.accelerator
    return {
        "graph": {
            "path": graph.path or graph.name,
            "digest": graph.digest,
            "operators": len(graph.operators),
            "tensors": len(graph.tensors),
        },
        "hardware": {"name": machine.name, "digest": machine.digest, "cores": request.accelerator.slot_cores},
        "plan": {"digest": plan_digest(graph, request.plan), "groups": len(request.plan.groups)},
        "bindings": dict(graph.bindings),
        "precision": request.precision or None,
        "workload": None,
    }


def group_document(result: CostResult, number: int) -> dict[str, Any]:
    """One entry of CONTRACT's ``groups``."""
    group = result.groups[number]
    request = result.request
    graph, machine = request.graph, request.accelerator
    shared = machine.dram.bandwidth_bytes_per_s or UNLIMITED
    stretch = contention(group.phases, machine.partition.slots, shared)
    reads, writes = group.dram_bytes(machine.dram.name)
    return {
        "id": group_name(number),
        "operators": [graph.operators[i].name for i in group.operators],
        "recomputes": group_name(group.replays) if group.replays >= 0 else None,
        "dims": dict(group.dims),
        "dim_of": {
            graph.operators[i].name: list(names)
            for i, names in zip(group.operators, group.dim_of, strict=True)
        },
        "levels": {
            level.memory: {
                "tile": dict(level.tile),
                "loop_order": list(level.loop_order),
                "retain": dict(level.retain),
                "trips": dict(level.trips),
            }
            for level in group.levels
        },
        "tree": group.tree,
        "elements": list(group.elements),
        "parallel": dict(group.parallel),
        "split_reduction": dict(group.split_reduction),
        "stages": group.stages,
        "threads": group.threads,
        "start_s": group.start_s,
        "latency_s": group.latency_s,
        "compute_s": group.compute_s,
        "dram_s": group.dram_s,
        "launches": group.launches,
        "traffic": [
            {
                "tensor": graph.tensors[row.tensor].name,
                "from": row.outer,
                "to": row.inner,
                "read_bytes": row.read_bytes,
                "write_bytes": row.write_bytes,
            }
            for row in group.traffic
        ],
        "footprint_bytes": dict(group.footprint_bytes),
        "resident": [
            {"tensor": graph.tensors[tensor].name if tensor >= 0 else None, "bytes": size}
            for tensor, size in group.resident
        ],
        "registers": {
            "live": group.registers.live,
            "limit": group.registers.limit,
            "unit": group.registers.unit,
            "spilled_bytes": group.registers.spilled_bytes,
            "occupancy": group.registers.occupancy,
            "limited_by": group.registers.limited_by,
            "relief": group.registers.relief,
        },
        "spill_bytes": group.spill_bytes,
        "spill_to": group.spill_to or None,
        "macs": group.macs,
        "recomputed_macs": group.recomputed_macs,
        "vector_ops": group.vector_ops,
        "utilisation": group.utilisation,
        "cycles": group.cycles,
        "ideal_cycles": group.ideal_cycles,
        "waves": group.waves,
        "operator_bytes": group.operator_bytes,
        "compulsory_bytes": group.compulsory_bytes,
        "energy_j": group.energy_j,
        "code_bytes": group.code_bytes,
        "complexity": group.complexity,
        "phases": _phases(group),
        "U_c": stretch[0],
        "X_c": stretch[1],
        "burstiness": burstiness(group, BURST_WINDOW_S),
        "chosen": list(group.chosen),
        "bottleneck": {
            "class": group.bottleneck.name,
            "gain_of_10_percent": group.bottleneck.gain_of_10_percent,
            "evidence": group.bottleneck.evidence,
        },
        "bound": {
            "bytes": group.lower_bound_bytes,
            "source": group.bound_source,
            "ratio": (reads + writes) / group.lower_bound_bytes if group.lower_bound_bytes else None,
        },
        "feasible": group.feasible,
        "infeasible": None
        if group.infeasible is None
        else {
            "memory": group.infeasible.memory,
            "demand": group.infeasible.demand_bytes,
            "capacity": group.infeasible.capacity_bytes,
            "levers": list(group.infeasible.levers),
        },
    }


def _phases(group: GroupResult) -> list[list[Any]]:
    return [
        [PHASE_KINDS[kind], base, moved, spill, refetch]
        for kind, base, moved, spill, refetch in group.phases.tolist()
    ]


def simulate_document(result: CostResult, serving: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """CONTRACT's JSON of ``simulate``.

    Parameters
    ----------
    serving : the document of the plan's tail under a workload, as `serving.document` makes it; None: left out.
    """
    document: dict[str, Any] = {
        "format": 1,
        "tool": TOOL,
        "inputs": inputs_document(result.request),
        "totals": totals_document(result.totals),
        "baseline": None if result.baseline is None else totals_document(result.baseline),
        "groups": [group_document(result, i) for i in range(len(result.groups))],
        "plan": plan_document(result.request.graph, result.request.plan),
        "launch_order": [group_name(i) for i in result.launched()],
        "saved_activations": [
            {
                "tensor": result.request.graph.tensors[one.tensor].name,
                "bytes": one.bytes,
                "from": group_name(one.made),
                "to": group_name(one.last),
                "recomputed": result.groups[one.made].replays >= 0,
            }
            for one in result.saved
        ],
        "burst_window_s": BURST_WINDOW_S,
        "warnings": [
            {"where": where, "what": what, "lever": lever} for where, what, lever in result.warnings
        ],
    }
    if serving is not None:
        document["serving"] = dict(serving)
    return document
