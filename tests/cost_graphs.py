"""Small graphs for the cost room's tests, built without a file, and two machines.

Letters are those of the operator table: m, n, k for products, i0, i1 ... for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from model.graph.band import ENDLESS, Band
from model.graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from model.hardware.accelerator import (
    Accelerator,
    Launch,
    MatrixUnit,
    MemoryLevel,
    Registers,
    VectorUnit,
)


class Sketch:
    """A graph under construction: tensors by name, operators in the order in which they are added."""

    def __init__(self, dtype: str = "int8") -> None:
        self.dtype = dtype
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.operators: list[Operator] = []
        self.weights: set[str] = set()
        self.outputs: set[str] = set()

    def tensor(self, name: str, *shape: int, weight: bool = False, dtype: str = "") -> str:
        self.shapes[name] = shape
        self.dtypes[name] = dtype or self.dtype
        if weight:
            self.weights.add(name)
        return name

    def _index(self, name: str) -> int:
        return list(self.shapes).index(name)

    def add(
        self,
        op_type: str,
        kind: OpKind,
        dims: Sequence[Dim],
        inputs: Sequence[tuple[str, Sequence[Axis]]],
        output: tuple[str, Sequence[Axis]],
        vector_ops: tuple[tuple[str, float], ...] = (),
        online: bool = False,
        linear: bool = False,
    ) -> str:
        number = len(self.operators)
        name, axes = output
        if name not in self.shapes:
            self.tensor(name, *(self._extent(axis, dims) for axis in axes))
        self.operators.append(
            Operator(
                number,
                f"{op_type}_{number}",
                op_type,
                kind,
                tuple(dims),
                tuple(Access(self._index(n), tuple(a)) for n, a in inputs),
                (Access(self._index(name), tuple(axes)),),
                vector_ops=vector_ops,
                online=online,
                linear=linear,
            )
        )
        return name

    @staticmethod
    def _extent(axis: Axis, dims: Sequence[Dim]) -> int:
        extent = 1
        for dim, _ in axis.terms:
            extent *= dims[dim].extent
        return extent

    def product(self, a: str, b: str, output: str) -> str:
        """``output[..., m, n] = a[..., m, k] b[..., k, n]``; `b` may lack the leading dims."""
        *batch, m, k = self.shapes[a]
        n = self.shapes[b][-1]
        count = len(batch)
        dims = [
            *(Dim(f"b{i}" if i else "b", e) for i, e in enumerate(batch)),
            Dim("m", m),
            Dim("n", n),
            Dim("k", k, reduction=True),
        ]
        lead = [Axis(((i, 1),)) for i in range(count)]
        axis = {name: Axis(((count + i, 1),)) for i, name in enumerate("mnk")}
        over = lead if len(self.shapes[b]) > 2 else []
        return self.add(
            "MatMul",
            OpKind.CONTRACTION,
            dims,
            [(a, [*lead, axis["m"], axis["k"]]), (b, [*over, axis["k"], axis["n"]])],
            (output, [*lead, axis["m"], axis["n"]]),
        )

    def pointwise(
        self, op_type: str, inputs: Sequence[str], output: str, primitive: str = "add", linear: bool = False
    ) -> str:
        """Element by element; an input of fewer axes is broadcast along the leading ones."""
        shape = max((self.shapes[name] for name in inputs), key=len)
        dims = [Dim(f"i{i}", extent) for i, extent in enumerate(shape)]

        def axes(name: str) -> list[Axis]:
            short = self.shapes[name]
            first = len(shape) - len(short)
            return [Axis(((first + i, 1),)) if e > 1 else Axis() for i, e in enumerate(short)]

        return self.add(
            op_type,
            OpKind.POINTWISE,
            dims,
            [(name, axes(name)) for name in inputs],
            (output, [Axis(((i, 1),)) for i in range(len(shape))]),
            ((primitive, 1.0),),
            linear=linear,
        )

    def softmax(self, x: str, output: str, op_type: str = "Softmax", online: bool = True) -> str:
        """Over the last axis; the output keeps it."""
        shape = self.shapes[x]
        dims = [Dim(f"i{i}", e, reduction=i == len(shape) - 1) for i, e in enumerate(shape)]
        axes = [Axis(((i, 1),)) for i in range(len(shape))]
        return self.add(op_type, OpKind.REDUCTION, dims, [(x, axes)], (output, axes), (("exp", 1.0),), online)

    def graph(self, *outputs: str) -> OperatorGraph:
        made = {op.outputs[0].tensor for op in self.operators}
        tensors = tuple(
            Tensor(
                i,
                name,
                self.dtypes[name],
                shape,
                TensorRole.ACTIVATION
                if i in made
                else (TensorRole.WEIGHT if name in self.weights else TensorRole.INPUT),
                is_output=name in outputs,
            )
            for i, (name, shape) in enumerate(self.shapes.items())
        )
        return OperatorGraph("sketch", tensors, tuple(self.operators), digest="sha256:sketch")


def product(m: int, n: int, k: int, dtype: str = "int8") -> OperatorGraph:
    """Y[m, n] = A[m, k] B[k, n]."""
    sketch = Sketch(dtype)
    sketch.tensor("A", m, k)
    sketch.tensor("B", k, n, weight=True)
    sketch.product("A", "B", "Y")
    return sketch.graph("Y")


def attention(queries: int, keys: int, head: int, heads: int = 1, dtype: str = "int8") -> OperatorGraph:
    """O = softmax(Q K) V, K given transposed; heads lead."""
    sketch = Sketch(dtype)
    sketch.tensor("Q", heads, queries, head)
    sketch.tensor("K", heads, head, keys)
    sketch.tensor("V", heads, keys, head)
    sketch.product("Q", "K", "S")
    sketch.softmax("S", "P")
    sketch.product("P", "V", "O")
    return sketch.graph("O")


def masked(graph: OperatorGraph, offset: int = 0, window: int = ENDLESS) -> OperatorGraph:
    """`attention` where a query sees only the keys of a band: none of the three has a point elsewhere."""
    bands = (Band(1, 2, offset, window), Band(1, 2, offset, window), Band(1, 3, offset, window))
    operators = tuple(replace(op, band=band) for op, band in zip(graph.operators, bands, strict=True))
    return replace(graph, operators=operators, digest=f"{graph.digest}, {offset}, {window}")


def mlp(tokens: int, model: int, hidden: int, dtype: str = "int8") -> OperatorGraph:
    """Y = relu(X W1) W2."""
    sketch = Sketch(dtype)
    sketch.tensor("X", tokens, model)
    sketch.tensor("W1", model, hidden, weight=True)
    sketch.tensor("W2", hidden, model, weight=True)
    sketch.product("X", "W1", "T")
    sketch.pointwise("Relu", ["T"], "H", "relu")
    sketch.product("H", "W2", "Y")
    return sketch.graph("Y")


def one_buffer(capacity: int, bits: int = 8) -> Accelerator:
    """The oracles' machine: one buffer of single copies under DRAM, a byte a nanosecond, nothing else limiting."""
    return Accelerator(
        name="one-buffer",
        source="tests",
        digest=f"sha256:one-buffer-{capacity}",
        clock_hz=1e9,
        cores=1,
        memory=(
            MemoryLevel("DRAM", "device", 1 << 50, 1e9),
            MemoryLevel("buffer", "core", capacity, double_buffer=False),
        ),
        partial_sum_bits=bits,
        online_statistics=False,
    )


def systolic(
    rows: int,
    columns: int,
    dataflow: str = "output-stationary",
    overlap: bool = False,
    capacity: int = 1 << 30,
    cores: int = 1,
    bandwidth: float = 1e9,
    **parts: object,
) -> Accelerator:
    """A systolic array with a buffer and accumulators that hold everything, at 1 GHz."""
    return Accelerator(
        name=f"systolic-{rows}x{columns}",
        source="tests",
        digest=f"sha256:{rows}-{columns}-{dataflow}-{overlap}-{capacity}-{cores}-{bandwidth}-{parts}",
        clock_hz=1e9,
        cores=cores,
        memory=(
            MemoryLevel("DRAM", "device", 1 << 50, bandwidth),
            MemoryLevel("buffer", "core", capacity, 1e15),
        ),
        matrix_unit=MatrixUnit(
            "systolic", (("int8", float(rows * columns)),), rows, columns, dataflow, overlap
        ),
        vector_unit=VectorUnit(32),
        registers=Registers("accumulator", capacity_bytes=1 << 30),
        launch=Launch(),
        **parts,  # type: ignore[arg-type]
    )
