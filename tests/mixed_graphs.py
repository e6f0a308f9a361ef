"""Random graphs of every kind of operator for properties, and machines with and without registers, cores and caches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.hardware.accelerator import Launch, MemoryLevel, Partition
from model.hardware.loader import load_hardware
from tests.cost_graphs import Sketch, one_buffer, systolic
from tests.test_cost_halo import convolution

extent = st.integers(1, 40)
STEPS = ("product", "Relu", "Bias", "Residual", "softmax", "norm", "transpose", "branches", "gather", "mean")


def one(dim: int) -> Axis:
    return Axis(((dim, 1),))


def transpose(sketch: Sketch, x: str) -> str:
    rows, columns = sketch.shapes[x]
    name = sketch.tensor(f"T{len(sketch.operators)}", columns, rows)
    dims = [Dim("i0", columns), Dim("i1", rows)]
    return sketch.add("Transpose", OpKind.MOVEMENT, dims, [(x, [one(1), one(0)])], (name, [one(0), one(1)]))


def gather(sketch: Sketch, x: str, rows: int) -> str:
    """Rows of `x` by value: as many different ones as there are at most."""
    size, columns = sketch.shapes[x]
    name = sketch.tensor(f"T{len(sketch.operators)}", rows, columns)
    dims = [Dim("i0", rows), Dim("i1", columns)]
    table = [Axis(((0, 1),), distinct=min(rows, size)), one(1)]
    return sketch.add("Gather", OpKind.MOVEMENT, dims, [(x, table)], (name, [one(0), one(1)]))


def mean(sketch: Sketch, x: str) -> str:
    """Columns summed up."""
    rows, columns = sketch.shapes[x]
    name = sketch.tensor(f"T{len(sketch.operators)}", rows)
    dims = [Dim("i0", rows), Dim("i1", columns, reduction=True)]
    return sketch.add(
        "ReduceMean", OpKind.REDUCTION, dims, [(x, [one(0), one(1)])], (name, [one(0)]), (("add", 1.0),)
    )


@st.composite
def rows_and_columns(draw: st.DrawFn) -> OperatorGraph:
    """One to five steps on a matrix, each on the result of the one before."""
    sketch = Sketch(draw(st.sampled_from(["int8", "float16", "float32"])))
    last = sketch.tensor("X", draw(extent), draw(extent))
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5)):
        number, (rows, columns) = len(sketch.operators), sketch.shapes[last]
        name = f"T{number}"
        if step == "product":
            weight = sketch.tensor(f"W{number}", columns, draw(extent), weight=True)
            last = sketch.product(last, weight, name)
        elif step == "softmax":
            last = sketch.softmax(last, name)
        elif step == "norm":
            last = sketch.softmax(last, name, "RMSNormalization", draw(st.booleans()))
        elif step == "transpose":
            last = transpose(sketch, last)
        elif step == "gather":
            last = gather(sketch, last, draw(extent))
        elif step == "branches":  # three products of one input, summed
            widths = [sketch.tensor(f"W{number}_{i}", columns, rows, weight=True) for i in range(3)]
            made = [sketch.product(last, width, f"B{number}_{i}") for i, width in enumerate(widths)]
            last = sketch.pointwise("Sum", made, name)
        elif step == "mean":
            last = mean(sketch, last)
            break
        else:
            other = {
                "Relu": [],
                "Bias": [sketch.tensor(f"C{number}", columns, weight=True)] if step == "Bias" else [],
                "Residual": [sketch.tensor(f"C{number}", rows, columns)] if step == "Residual" else [],
            }[step]
            last = sketch.pointwise(step, [last, *other], name)
    return sketch.graph(last)


@st.composite
def images(draw: st.DrawFn) -> OperatorGraph:
    """One to three convolutions on an image, some with a rectifier behind them."""
    sketch = Sketch(draw(st.sampled_from(["int8", "float16"])))
    last = sketch.tensor("X", draw(st.integers(1, 6)), draw(st.integers(6, 14)), draw(st.integers(6, 14)))
    for _ in range(draw(st.integers(1, 3))):
        smallest = min(sketch.shapes[last][1:])
        kernel = draw(st.integers(1, min(3, smallest)))
        last = convolution(
            sketch, last, draw(st.integers(1, 8)), kernel, draw(st.integers(1, 2)), draw(st.integers(0, 1))
        )
        if draw(st.booleans()):
            last = sketch.pointwise("Relu", [last], f"R{len(sketch.operators)}")
    return sketch.graph(last)


graphs = st.one_of(rows_and_columns(), rows_and_columns(), images())


def cached(
    capacity: int, buffer: int, slots: int = 1, cores: int = 1, sector: int = 1, scope: str = "device"
):  # type: ignore[no-untyped-def]
    """A systolic machine with a cache between DRAM and the buffers."""
    machine = systolic(8, 8, capacity=buffer, cores=slots * cores)
    dram = replace(machine.memory[0], access_bytes=sector)
    level = MemoryLevel("L2", scope, capacity, 4e9, kind="cache", access_bytes=sector)
    return replace(
        machine,
        memory=(dram, level, machine.memory[1]),
        partition=Partition(slots, cores),
        digest=f"sha256:cached-{capacity}-{buffer}-{slots}-{cores}-{sector}-{scope}",
    )


BARE = (
    systolic(8, 8, capacity=4096),
    systolic(8, 8, "weight-stationary", overlap=True, capacity=1 << 16),
    systolic(8, 8, "weight-stationary", capacity=2048, cores=4),
    one_buffer(2048),
    replace(
        systolic(4, 16, "input-stationary", capacity=8192), launch=Launch(2e-7, 1e-7), digest="sha256:is"
    ),
    load_hardware("edge-npu"),
    load_hardware("tpu-v4i"),
    load_hardware("gemmini"),
)
CACHED = (
    cached(1 << 10, 2048),
    cached(1 << 13, 2048, slots=2, sector=32),
    cached(1 << 14, 1024, cores=4, sector=32),
    cached(1 << 12, 2048, scope="core"),
    load_hardware("a100"),
)
bare_machines = st.sampled_from(BARE)
machines = st.sampled_from(BARE + CACHED)
