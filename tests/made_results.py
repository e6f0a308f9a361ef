"""Cost and serving results made by hand for the panels: no kernel runs, every state of a panel is in them.

Ten operators of a gated block in four groups, one group that spills, one that does not fit. The numbers are
plain inventions that keep the sums true: totals are sums over the groups, parts sum to their percentile.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from explorer.engine import ServingRequest
from model.cost.result import (
    PHASE_DTYPE,
    Bottleneck,
    CostRequest,
    CostResult,
    GroupResult,
    Infeasible,
    LevelMapping,
    RegisterUse,
    Totals,
    Traffic,
)
from model.graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from model.hardware.accelerator import Accelerator, MatrixUnit, MemoryLevel, Partition, Registers
from model.plan.plan import FusionGroup, Plan
from model.serving.drivers import Blame, Coalition
from model.serving.over_time import OverTime, View
from model.serving.result import Requests, ServingResult

MIB = 1 << 20
TYPES = ("RMSNorm", "MatMul", "Softmax", "MatMul", "Add", "RMSNorm", "MatMul", "Silu", "Mul", "MatMul")


def machine() -> Accelerator:
    """Two levels and accumulators, four cores."""
    return Accelerator(
        name="hand-npu",
        source="made for tests",
        digest="sha256:machine",
        clock_hz=1e9,
        cores=4,
        memory=(
            MemoryLevel("DRAM", "device", 8 << 30, 25.6e9),
            MemoryLevel("buffer", "core", 512 << 10, 256e9),
        ),
        partition=Partition(4, 1),
        matrix_unit=MatrixUnit("systolic", (("int8", 1024.0),), 32, 32),
        registers=Registers("accumulator", capacity_bytes=65536),
    )


def chain(types: tuple[str, ...] = TYPES, rows: int = 512, width: int = 1024) -> OperatorGraph:
    """A chain of operators over one ``rows x width`` activation; contractions read a weight."""
    tensors = [Tensor(0, "input", "bfloat16", (rows, width), TensorRole.INPUT)]
    operators: list[Operator] = []
    plain = (Axis(((0, 1),)), Axis(((1, 1),)))
    for index, op_type in enumerate(types):
        last = len(tensors) - 1 if index == 0 else operators[-1].outputs[0].tensor
        out = len(tensors)
        tensors.append(
            Tensor(
                out,
                f"x{index}",
                "bfloat16",
                (rows, width),
                TensorRole.ACTIVATION,
                is_output=index == len(types) - 1,
            )
        )
        if op_type == "MatMul":
            tensors.append(Tensor(out + 1, f"W{index}", "bfloat16", (width, width), TensorRole.WEIGHT))
            dims = (Dim("m", rows), Dim("n", width), Dim("k", width, reduction=True))
            reads = (
                Access(last, (Axis(((0, 1),)), Axis(((2, 1),)))),
                Access(out + 1, (Axis(((2, 1),)), Axis(((1, 1),)))),
            )
            kind = OpKind.CONTRACTION
        else:
            dims, reads, kind = (Dim("i0", rows), Dim("i1", width)), (Access(last, plain),), OpKind.POINTWISE
        operators.append(
            Operator(
                index,
                f"{op_type}_{index}",
                op_type,
                kind,
                dims,
                reads,
                (Access(out, plain),),
                identity=f"#{index}",
                attributes=(("alpha", "0.5"),) if op_type == "Silu" else (),
            )
        )
    return OperatorGraph(
        "hand_block", tuple(tensors), tuple(operators), digest="sha256:hand", symbols=("seq",)
    )


def plan() -> Plan:
    """Four groups of the ten operators."""
    return Plan.of([FusionGroup(o) for o in ((0, 1, 2), (3, 4), (5, 6, 7, 8), (9,))])


def totals(**changes: object) -> Totals:
    """Totals of the result, with changes."""
    base = Totals(
        latency_s=1.82e-3,
        launches=4,
        launch_s=8e-6,
        compute_s=1.1e-3,
        dram_s=1.6e-3,
        dram_read_bytes=40 * MIB,
        dram_write_bytes=8 * MIB,
        operator_bytes=96 * MIB,
        onchip_reuse_ratio=0.5,
        reuse_factor=31.0,
        intermediate_onchip_share=0.72,
        launch_overhead_reduction=0.6,
        compulsory_dram_bytes=20 * MIB,
        lower_bound_dram_bytes=20 * MIB,
        spill_bytes=3 * MIB,
        peak_footprint_bytes=700 << 10,
        macs=2_147_483_648,
        recomputed_macs=0,
        vector_ops=5_242_880,
        energy_j=0.01,
        code_bytes=12_000,
        complexity=14.0,
        feasible=False,
        bottleneck="DRAM bandwidth",
        bottleneck_gain=0.061,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def _phases(latency_ns: int, moved: int) -> np.ndarray:
    """A launch, a first load, two bursts with calm between them, a last store."""
    rows = [
        (0, 2000, 0, 0, 0),
        (1, latency_ns // 10, moved // 5, 0, 0),
        (3, latency_ns // 5, moved // 20, 0, 0),
        (2, latency_ns // 5, moved // 4, 0, moved // 8),
        (3, latency_ns // 5, moved // 20, moved // 40, 0),
    ]
    left_ns = latency_ns - sum(row[1] for row in rows[1:])
    left = moved - sum(row[2] for row in rows)
    return np.array([*rows, (4, left_ns, left, 0, 0)], dtype=PHASE_DTYPE)


def _group(graph: OperatorGraph, operators: tuple[int, ...], index: int, start_s: float) -> GroupResult:
    read, write = (10 + 5 * index) * MIB, (1 + index) * MIB
    latency = (0.2 + 0.2 * index) * 1e-3
    first, last = graph.operators[operators[0]], graph.operators[operators[-1]]
    spills, fits = index == 2, index != 3
    return GroupResult(
        operators=operators,
        dims=(("m", 512), ("n", 1024), ("k", 1024)),
        dim_of=tuple(tuple("mnk"[: len(graph.operators[o].dims)]) for o in operators),
        levels=(
            LevelMapping(
                "buffer",
                (("m", 128), ("n", 192), ("k", 64)),
                ("m", "n", "k"),
                (),
                (("m", 4), ("n", 6), ("k", 16)),
            ),
            LevelMapping(
                "registers", (("m", 32), ("n", 32), ("k", 64)), ("m", "n"), (), (("m", 4), ("n", 6))
            ),
        ),
        tree="m { n { MatMul_1(k), Softmax_2 } }",
        elements=("m", "n", "k"),
        parallel=(("m", 4),),
        stages=2 if fits else 1,
        threads=0,
        traffic=(
            Traffic(first.inputs[0].tensor, "DRAM", "buffer", read, 0),
            Traffic(last.outputs[0].tensor, "DRAM", "buffer", 0, write),
            Traffic(first.inputs[0].tensor, "buffer", "registers", read * 6, 0),
            Traffic(last.outputs[0].tensor, "buffer", "registers", 0, write),
        ),
        footprint_bytes=(("buffer", (300 if fits else 700) << 10), ("registers", 40_000 + 20_000 * index)),
        macs=536_870_912,
        recomputed_macs=0,
        vector_ops=1_000_000,
        compute_s=latency * 0.6,
        dram_s=latency * 0.9,
        latency_s=latency,
        start_s=start_s,
        launches=1,
        cycles=latency * 1e9,
        ideal_cycles=latency * 0.5e9,
        utilisation=0.5,
        waves=6,
        registers=RegisterUse(
            live=40_000 + 20_000 * index,
            limit=65_536,
            unit="bytes",
            spilled_bytes=3 * MIB if spills else 0,
            spill_to="DRAM" if spills else "",
            occupancy=1.0,
            limited_by="registers" if spills else "",
            relief="split before Mul_8, or n 192 → 128" if spills else "",
        ),
        compulsory_bytes=4 * MIB,
        lower_bound_bytes=4 * MIB,
        bound_source="compulsory",
        operator_bytes=24 * MIB,
        energy_j=0.0025,
        code_bytes=3000,
        complexity=3.5,
        phases=_phases(int(latency * 1e9), read + write),
        chosen=("buffer.tile", "tree", "stages") if index != 1 else ("tree",),
        bottleneck=Bottleneck("DRAM bandwidth" if fits else "infeasible", 0.07, "DRAM 90 % of the time"),
        infeasible=None
        if fits
        else Infeasible("buffer", 700 << 10, 512 << 10, ("halve k", "split before MatMul_9")),
        split_reduction=(),
        spill_bytes=3 * MIB if spills else 0,
        spill_to="DRAM" if spills else "",
    )


def cost(
    graph: OperatorGraph | None = None, chosen: Plan | None = None, revision: int = 1, scale: float = 1.0
) -> CostResult:
    """The whole result; `scale` stretches the latency, so that two results differ."""
    graph = graph or chain()
    chosen = chosen or plan()
    request = CostRequest(graph, machine(), chosen, "", revision)
    groups: list[GroupResult] = []
    start = 2e-6
    for index, group in enumerate(chosen.groups):
        groups.append(_group(graph, group.operators, index % 4, start))
        start += groups[-1].latency_s + 2e-6
    return CostResult(
        request=request,
        groups=tuple(groups),
        totals=totals(latency_s=1.82e-3 * scale, launches=len(groups)),
        baseline=totals(
            latency_s=2.43e-3,
            launches=len(graph.operators),
            launch_s=20e-6,
            launch_overhead_reduction=0.0,
            onchip_reuse_ratio=0.0,
            bottleneck="launch",
            feasible=True,
        ),
        warnings=(("buffer", "a level is left out", "merge it"),),
        seconds=0.001,
        evaluated=len(groups),
    )


def fitting(result: CostResult) -> CostResult:
    """The same with every group fitting, so that it can be served."""
    groups = tuple(replace(group, infeasible=None) for group in result.groups)
    return replace(result, groups=groups, totals=replace(result.totals, feasible=True))


def over_time(low_ns: int = 0, high_ns: int = 2_000_000_000, columns: int = 720) -> OverTime:
    """Two slots on a bus of 10 GB/s: the first takes 8 GB/s, a quarter of it spill, the second nothing until the
    middle, then 2 GB/s; the die warms from 30 to 90 °C and the clock is low in the last tenth.
    """
    view = View(low_ns, high_ns, columns)
    moved = np.zeros((2, columns, 4))
    moved[0, :, 0], moved[0, :, 1] = 6.0 * view.column_ns, 2.0 * view.column_ns
    moved[1, columns // 2 :, 2], moved[1, columns // 2 :, 3] = 2.0 * view.column_ns, 3.0 * view.column_ns
    low = np.zeros(columns)
    low[columns - columns // 10 :] = 1.0
    held = np.full(columns, 3 * MIB, dtype=np.int64)
    die, sink = np.linspace(30.0, 90.0, columns + 1), np.linspace(28.0, 70.0, columns + 1)
    return OverTime(view, moved, 2, 10e9, die, sink, low, held, 4 * MIB)


def serving(p95_ms: float = 41.7, *, unstable: bool = False) -> ServingResult:
    """A tail of 2,000 requests: percentiles are of these very requests, parts sum to p95 and p99."""
    rng = np.random.default_rng(0)
    count = 2000
    response = np.sort((rng.gamma(2.0, p95_ms / 4.7, count) * 1e6).astype(np.int64) + 1_800_000)
    arrival = np.arange(count, dtype=np.int64) * 1_000_000
    base = np.full(count, 1_800_000, dtype=np.int64)

    def at(p: float) -> int:
        return int(response[int(np.ceil(p * count)) - 1])

    def split(total: int) -> tuple[tuple[str, int], ...]:
        queue = total - 1_800_000
        return (("queue", queue), ("queue_imbalance", queue // 5), ("base", 1_800_000))

    return ServingResult(
        requests=Requests(
            arrival,
            arrival + response - base,
            arrival + response,
            np.zeros(count, dtype=np.int32),
            (("queue", response - base), ("base", base)),
        ),
        source="Azure code trace, 2,000 requests, as recorded",
        recorded=True,
        slots=4,
        unstable=unstable,
        utilisation=1.31 if unstable else 0.71,
        first_estimate=False,
        p50_ns=at(0.5),
        p95_ns=at(0.95),
        p99_ns=at(0.99),
        p999_ns=at(0.999),
        max_ns=int(response[-1]),
        sum_response_ns=int(response.sum()),
        completion_sha256="0" * 64,
        throughput_rps=120.5,
        energy_j_per_request=0.01,
        parts=(("p95", split(at(0.95))), ("p99", split(at(0.99))), ("mean", split(int(response.mean())))),
        slot_busy_ns=(10, 10, 9, 8),
        slot_requests=(500, 500, 500, 500),
        jain_slots=0.98,
        slo_percentile=0.95,
        slo_response_s=0.035,
        slo_attainment=0.91,
        interval_s=(("p95", (at(0.95) * 0.97e-9, at(0.95) * 1.03e-9)),),
        too_few=("p999",),
        notes=("Contention between slots is not simulated in this version.",),
        seconds=0.004,
        ranked_ns=(("response", response),),
    )


def served(result: CostResult | None = None) -> ServingRequest:
    """A request for `serving` without a workload file behind it."""
    return ServingRequest(result or cost(), None)  # type: ignore[arg-type]


def blame(result: ServingResult) -> Blame:
    """p95 and p99 owed to queueing and contention, all that is beyond 1.8 ms, three parts to one."""
    base = 1_800_000
    grid = tuple(
        Coalition(on, (p95, p99), False)
        for on, p95, p99 in (
            ((), base, base),
            (("queueing", "contention"), result.p95_ns, result.p99_ns),
        )
    )
    values = tuple(
        (name, (("queueing", Fraction(3 * (ns - base), 4)), ("contention", Fraction(ns - base, 4))))
        for name, ns in (("p95", result.p95_ns), ("p99", result.p99_ns))
    )
    return Blame(("queueing", "contention"), grid, values)
