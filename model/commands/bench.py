"""Measure the model's speed on this machine: medians, 95 % points and the goal beside each

Every figure is taken in this one run, so that rows can be compared; a shared machine makes all of them worse
together. Kernels are loaded before any clock starts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import UsageError
from ..graph.graph import Access, Operator, OperatorGraph, Tensor, TensorRole
from ..terminal import TOOL, columns, print_json, quantity


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: samples in seconds a call, or in calls a second where ``rate``; ``goal`` in the same unit."""

    name: str
    samples: tuple[float, ...]
    goal: float | None
    unit: str = "s"
    rate: bool = False

    @property
    def median(self) -> float:
        """The middle sample."""
        return float(np.median(self.samples))

    @property
    def slow(self) -> float:
        """The sample that 95 % are at least as good as (nearest rank)."""
        order = sorted(self.samples, reverse=self.rate)
        return order[max(0, -(-95 * len(order) // 100) - 1)]

    @property
    def ratio(self) -> float | None:
        """How many times better than the goal the median is; below 1 the goal is missed."""
        if self.goal is None:
            return None
        return self.median / self.goal if self.rate else self.goal / self.median


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph", nargs="?", default="transformer_block", help="model that is repeated (default: %(default)s)"
    )
    parser.add_argument("--hardware", default="edge-npu", help="machine (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=7, help="repetitions of each row (default: %(default)s)"
    )
    parser.add_argument("--only", default="", help="only rows whose name contains this text")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}", lever="Give at least 1.")
    rows = [
        row
        for make in (_cost_rows, _plan_rows, _layout_rows, _serving_rows)
        for row in make(arguments)
        if arguments.only in row.name
    ]
    report(rows, as_json=arguments.json)
    return 0


def report(rows: Sequence[Measurement], *, as_json: bool) -> None:
    """Print measurements as a table or as one JSON document."""
    if as_json:
        print_json(
            {
                "format": 1,
                "tool": TOOL,
                "rows": [
                    {
                        "name": row.name,
                        "unit": row.unit,
                        "median": row.median,
                        "p95": row.slow,
                        "samples": len(row.samples),
                        "goal": row.goal,
                        "times_better_than_goal": row.ratio,
                    }
                    for row in rows
                ],
            }
        )
        return
    table = [("", "median", "95 % within", "goal", "times better", "samples")]
    for row in rows:
        goal = "-" if row.goal is None else quantity(row.goal, row.unit, 3)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        table.append(
            (
                row.name,
                quantity(row.median, row.unit, 3),
                quantity(row.slow, row.unit, 3),
                goal,
                ratio,
                str(len(row.samples)),
            )
        )
    print(columns(table, right=(1, 2, 3, 4, 5)))


def repeated(graph: OperatorGraph, operators: int) -> OperatorGraph:
    """`graph` as a chain of copies with at least `operators` operators, each fed by the one before.

    Raises
    ------
    UsageError
        Where no output of the graph has the shape and type of an input.
    """
    inputs = [t for t in graph.tensors if t.role is TensorRole.INPUT]
    pairs = [
        (i, o)
        for o in graph.tensors
        if o.is_output
        for i in inputs
        if (i.shape, i.dtype) == (o.shape, o.dtype)
    ]
    if not pairs:
        raise UsageError(
            f"{graph.name} cannot be chained: no output has the shape of an input",
            lever="Try transformer_block.",
        )
    entry, leave = pairs[0][0].index, pairs[0][1].index
    copies = max(1, -(-operators // len(graph.operators)))
    tensors: list[Tensor] = []
    chain: list[Operator] = []
    fed = -1
    for copy in range(copies):
        place: dict[int, int] = {}
        for tensor in graph.tensors:
            if tensor.index == entry and copy:
                place[entry] = fed
                continue
            place[tensor.index] = len(tensors)
            inner = tensor.index == leave and copy < copies - 1
            tensors.append(
                replace(
                    tensor,
                    index=len(tensors),
                    name=f"{copy}/{tensor.name}",
                    is_output=tensor.is_output and not inner,
                )
            )
        fed = place[leave]
        for operator in graph.operators:
            chain.append(
                replace(
                    operator,
                    index=len(chain),
                    name=f"{copy}/{operator.name}",
                    identity=f"{copy}/{operator.identity}",
                    inputs=_moved(operator.inputs, place),
                    outputs=_moved(operator.outputs, place),
                )
            )
    return OperatorGraph(f"{graph.name} x {copies}", tuple(tensors), tuple(chain))


def _moved(accesses: tuple[Access, ...], place: dict[int, int]) -> tuple[Access, ...]:
    return tuple(replace(access, tensor=place[access.tensor]) for access in accesses)


def _timed(rounds: int, work: Callable[[], object]) -> tuple[float, ...]:
    work()
    out: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        out.append(time.perf_counter() - began)
    return tuple(out)


def _cost_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..cost.result import CostRequest
    from ..cost.simulate import GroupCache, simulate
    from ..graph.load import load_graph
    from ..hardware.loader import load_hardware
    from ..plan import edits

    machine = load_hardware(arguments.hardware)
    model = load_graph(arguments.graph)
    yield Measurement(
        "traffic, footprint and work of one mapping of two operators: evaluations",
        tuple(_evaluations_per_second(arguments.rounds)),
        5e6,
        "/s",
        rate=True,
    )
    for operators, goal in ((1_000, None), (10_000, 0.150)):
        graph = repeated(model, operators)
        request = CostRequest(graph, machine, edits.contraction_tails(graph))
        yield Measurement(
            f"{len(graph.operators):,} operators from nothing, unfused plan included",
            _timed(arguments.rounds, lambda request=request: simulate(request)),
            goal,
        )
    graph = repeated(model, 1_000)
    plan = edits.contraction_tails(graph)
    cache = GroupCache()
    simulate(CostRequest(graph, machine, plan), cache)
    first, last = len(graph.operators) // 2, len(graph.operators) // 2 + len(model.operators)
    new: list[float] = []
    known: list[float] = []
    for producer, consumer, _ in graph.edges.tolist():
        if not first <= producer < last:
            continue
        # The same edge in the next block is a structure that was solved before: only its names are new.
        for shift, samples in ((0, new), (len(model.operators), known)):
            try:
                began = time.perf_counter()
                edited = edits.toggle(graph, plan, producer + shift, consumer + shift)
                simulate(CostRequest(graph, machine, edited), cache)
                samples.append(time.perf_counter() - began)
            except edits.Refusal:
                continue
    yield Measurement("one edit on 1,000 operators, structure not seen before", tuple(new), 0.005)
    yield Measurement("one edit on 1,000 operators, structure seen before", tuple(known), 0.005)


def _evaluations_per_second(rounds: int) -> Iterator[float]:
    """Of T = A B, E = T D under ``m { MatMul_0(k), MatMul_1(p) }``, in a compiled loop."""
    from numba import njit

    from ..cost.evaluate import evaluate
    from ..cost.layout import pack, workspace
    from ..cost.nest import BUFFER, Nest, NestAccess, NestOperator, NestTensor, SimpleAxis
    from ..cost.traffic import measure

    def access(tensor: int, row: int, column: int, depth: int) -> NestAccess:
        return NestAccess(tensor, (SimpleAxis(row), SimpleAxis(column)), (depth,))

    m, n, k, p = range(4)
    nest = Nest(
        extents=(500, 300, 200, 100),
        loops=((m, 64, -1), (k, 48, 0), (p, 32, 0)),
        operators=(
            NestOperator(
                1,
                2,
                (m, n, k),
                (k,),
                True,
                False,
                (access(0, m, k, 2), access(1, k, n, 2)),
                (access(2, m, n, 1),),
            ),
            NestOperator(
                2,
                2,
                (m, n, p),
                (n,),
                True,
                False,
                (access(2, m, n, 1), access(3, n, p, 2)),
                (access(4, m, p, 2),),
            ),
        ),
        tensors=(
            NestTensor(8, 32),
            NestTensor(8, 32),
            NestTensor(8, 32, BUFFER, elements=500 * 300),
            NestTensor(8, 32),
            NestTensor(8, 32),
        ),
    )
    evaluate(nest)
    a = pack(nest)
    counts = np.zeros((2, a.acc.shape[0], 4), np.int64)
    points, peak = np.zeros(len(nest.operators), np.int64), np.zeros(2, np.int64)
    rows, work = workspace(a)

    @njit(nogil=True)
    def often(times, extents, ops, acc, axes, ten, loops, path, lengths, counts, points, peak, rows, work):  # type: ignore[no-untyped-def]
        moved = 0
        for i in range(times):
            loops[0, 1] = (
                33 + i % 64
            )  # another tile each time, so that nothing can be hoisted out of the loop
            measure(
                ops, acc, axes, ten, extents, loops, path, lengths, 1, 1, 1, counts, points, peak, rows, work
            )
            moved += counts[0, 0, 0]
        return moved

    times = 100_000
    given = (
        a.extents,
        a.ops,
        a.acc,
        a.axes,
        a.ten,
        a.loops,
        a.path,
        a.lengths,
        counts,
        points,
        peak,
        rows,
        work,
    )
    for seconds in _timed(rounds, lambda: often(times, *given)):
        yield times / seconds


def _plan_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..graph.load import load_graph
    from ..plan import edits, legality

    graph = repeated(load_graph(arguments.graph), 5_580)
    plan = edits.contraction_tails(graph)
    rounds = 10 * arguments.rounds
    yield Measurement(
        f"legality of a plan of {len(graph.operators):,} operators",
        _timed(rounds, lambda: legality.check(graph, plan)),
        None,
    )
    middle = graph.edges[len(graph.edges) // 2].tolist()
    yield Measurement(
        f"one edit of a plan of {len(graph.operators):,} operators",
        _timed(rounds, lambda: edits.toggle(graph, plan, middle[0], middle[1])),
        None,
    )


def _layout_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..graph.layering import layered_layout
    from ..graph.load import load_graph

    graph = repeated(load_graph(arguments.graph), 20_000)
    start, target = graph.successors
    nodes = len(graph.operators)
    width, height = np.full(nodes, 120.0), np.full(nodes, 24.0)
    yield Measurement(
        f"layered layout of {nodes:,} operators",
        _timed(arguments.rounds, lambda: layered_layout(start, target, width, height)),
        None,
    )


def _serving_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..serving.replay import replay_shared
    from ..serving.tail import PERCENTILES, rank_of

    count = 2_000_000
    rng = np.random.default_rng(0)
    service = rng.exponential(4e6, count).astype(np.int64)
    arrival = np.cumsum(rng.exponential(1.25e6, count)).astype(np.int64)
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    slot = np.empty(count, np.int32)
    no_windows = np.empty(0, np.int64)

    def replay() -> None:
        replay_shared(arrival, service, 4, no_windows, 1, 1, begin, end, slot)

    def with_percentiles() -> None:
        replay()
        np.partition(end - arrival, [rank_of(share, count) - 1 for _, share in PERCENTILES])

    for name, work in (("completions stored", replay), ("and four percentiles", with_percentiles)):
        yield Measurement(
            f"first in first out over 4 slots, {name}: requests",
            tuple(count / seconds for seconds in _timed(arguments.rounds, work)),
            5e7,
            "/s",
            rate=True,
        )
