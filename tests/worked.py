"""One result worked by hand: MatMul + Relu, 64 x 32 by 32 x 48 in int8, on a machine that holds it whole.

A[m,k] 64x32 = 2,048 B, B[k,n] 32x48 = 1,536 B, Y[m,n] 64x48 = 3,072 B. Fused, T = A B never leaves the
registers: DRAM reads 2,048 + 1,536 = 3,584, writes 3,072. Unfused: T is written and read once more, + 6,144.
MACs 64*32*48 = 98,304. On a 32x32 output-stationary array: ceil(64/32) ceil(48/32) (32+32+32-2) = 376 cycles.
DRAM at 1 GB/s and 1 GHz: a byte a cycle. One tile: L 3,584 ns, C 376 ns (Relu 3,072/32 = 96 cycles on 32
lanes follows: 472), S 3,072 ns; latency 3,584 + 472 + 3,072 = 7,128 ns. Launch 1,000 ns.
On chip: the array reads A once per column fold, 2 x 2,048, and B once per row fold, 2 x 1,536; the result
leaves the accumulators once, 3,072. Of 12,800 operator bytes 6,656 reach DRAM: reuse ratio 0.48.
"""

from __future__ import annotations

from model.graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from model.hardware.accelerator import (
    Accelerator,
    Launch,
    MatrixUnit,
    MemoryLevel,
    Registers,
    VectorUnit,
)
from model.plan.plan import FusionGroup, LevelTile, Plan

ACCESS_MK = (Axis(((0, 1),)), Axis(((2, 1),)))
ACCESS_KN = (Axis(((2, 1),)), Axis(((1, 1),)))
ACCESS_MN = (Axis(((0, 1),)), Axis(((1, 1),)))


def graph() -> OperatorGraph:
    """The two-operator graph, as a reader would make it."""
    tensors = (
        Tensor(0, "A", "int8", (64, 32), TensorRole.INPUT),
        Tensor(1, "B", "int8", (32, 48), TensorRole.WEIGHT),
        Tensor(2, "T", "int8", (64, 48), TensorRole.ACTIVATION),
        Tensor(3, "Y", "int8", (64, 48), TensorRole.ACTIVATION, is_output=True),
    )
    matmul = Operator(
        0,
        "MatMul_0",
        "MatMul",
        OpKind.CONTRACTION,
        (Dim("m", 64), Dim("n", 48), Dim("k", 32, reduction=True)),
        (Access(0, ACCESS_MK), Access(1, ACCESS_KN)),
        (Access(2, ACCESS_MN),),
        identity="#0",
    )
    relu = Operator(
        1,
        "Relu_1",
        "Relu",
        OpKind.POINTWISE,
        (Dim("i0", 64), Dim("i1", 48)),
        (Access(2, ACCESS_MN),),
        (Access(3, ACCESS_MN),),
        identity="#1",
        vector_ops=(("relu", 1.0),),
    )
    return OperatorGraph("worked", tensors, (matmul, relu), digest="sha256:worked")


def machine() -> Accelerator:
    """The machine of the docstring: one core, whose buffer holds everything."""
    return Accelerator(
        name="worked",
        source="tests",
        digest="sha256:worked-machine",
        clock_hz=1e9,
        cores=1,
        memory=(
            MemoryLevel("DRAM", "device", 1 << 30, 1e9),
            MemoryLevel("buffer", "core", 1 << 20, 256e9),
        ),
        launch=Launch(issue_s=0.0, gap_s=1e-6),
        matrix_unit=MatrixUnit("systolic", (("int8", 1024.0),), rows=32, columns=32),
        vector_unit=VectorUnit(32),
        registers=Registers("accumulator", capacity_bytes=65536),
    )


WHOLE = LevelTile("buffer", tile=(("m", 64), ("n", 48), ("k", 32)))


def fused() -> Plan:
    """Both operators in one group, everything in one tile."""
    return Plan.of([FusionGroup((0, 1), levels=(WHOLE,))])


def unfused() -> Plan:
    """Each operator alone, everything in one tile."""
    relu = LevelTile("buffer", tile=(("i0", 64), ("i1", 48)))
    return Plan.of([FusionGroup((0,), levels=(WHOLE,)), FusionGroup((1,), levels=(relu,))])
