"""One result worked by hand: MatMul + Relu, 64 x 32 by 32 x 48 in int8, on a machine that holds it whole.

A[m,k] 64x32 = 2,048 B, B[k,n] 32x48 = 1,536 B, Y[m,n] 64x48 = 3,072 B. Fused, T = A B never leaves the
registers: DRAM reads 2,048 + 1,536 = 3,584, writes 3,072. Unfused: T is written and read once more, + 6,144.
MACs 64*32*48 = 98,304. On a 32x32 output-stationary array: ceil(64/32) ceil(48/32) (32+32+32-2) = 376 cycles.
DRAM at 1 GB/s and 1 GHz: a byte a cycle. One tile: L 3,584 ns, C 376 ns (Relu 3,072/32 = 96 cycles on 32
lanes follows: 472), S 3,072 ns; latency 3,584 + 472 + 3,072 = 7,128 ns. Launch 1,000 ns.
"""

from __future__ import annotations

from model.graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole

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
