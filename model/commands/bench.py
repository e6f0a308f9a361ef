"""Measure the model's speed on this machine: medians, 95 % points and the goal beside each

Every figure is taken in this one run, so that rows can be compared; a shared machine makes all of them worse
together. Kernels are loaded before any clock starts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cost.nest import (
    BUFFER,
    REGISTERS,
    Nest,
    NestAccess,
    NestOperator,
    NestTensor,
    SimpleAxis,
    WindowAxis,
)
from ..errors import UsageError
from ..graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from ..measured import Measurement, report, timed
from ..terminal import TOOL, columns, print_json

if TYPE_CHECKING:
    from ..search.structure import Structure


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
    parser.add_argument(
        "--coverage",
        type=int,
        metavar="SEEDS",
        help="instead: how often the tail's intervals contain the truth, over this many seeds (200 take minutes)",
    )
    parser.add_argument(
        "--oracles",
        metavar="FILE",
        help="instead: replay this file of reference cases (queueing or contention); exit 1 where a figure is missed",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=1_000_000,
        metavar="N",
        help="requests of each case of --oracles after its warm-up (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}", lever="Give at least 1.")
    if arguments.coverage is not None:
        return _coverage(arguments.coverage, as_json=arguments.json)
    if arguments.oracles is not None:
        return _oracles(arguments)
    rows = [
        row
        for make in (_cost_rows, _search_rows, _plan_rows, _layout_rows, _serving_rows)
        for row in make(arguments)
        if arguments.only in row.name
    ]
    report(rows, as_json=arguments.json)
    return 0


def _coverage(seeds: int, *, as_json: bool) -> int:
    """Print how often the tail's intervals contain the truth."""
    from ..serving.coverage import LOADS, measure, table

    if seeds < 1:
        raise UsageError(f"--coverage {seeds}", lever="Give at least 1.")
    found = [row for load in LOADS for row in measure(load, seeds)]
    if as_json:
        print_json({"format": 1, "tool": TOOL, "seeds": seeds, "rows": [asdict(row) for row in found]})
    else:
        print(columns(table(found), right=range(3, 9)))
    return 0


def _oracles(arguments: argparse.Namespace) -> int:
    """Print each case's worst figure; 1 where one is beyond its tolerance."""
    from ..serving import sharing, theory

    if arguments.requests < 1000:
        raise UsageError(f"--requests {arguments.requests}", lever="Give at least 1000.")
    document = theory.read_reference(arguments.oracles, (theory.SCHEMA, sharing.SCHEMA))
    shared = document["schema"] == sharing.SCHEMA
    check_case = sharing.check_case if shared else theory.check_case
    cases = [case for case in document["cases"] if arguments.only in case["id"]]
    found = [check_case(case, arguments.requests) for case in cases]
    if shared:
        found += [
            one for one in sharing.check_traces(document, arguments.oracles) if arguments.only in one[0].case
        ]
    worst = [max(figures, key=lambda figure: figure.off) for figures in found]
    if arguments.json:
        rows = [
            {
                "case": one.case,
                "figures": len(figures),
                "within": one.off <= 1.0,
                "worst": asdict(one) | {"off": one.off},
            }
            for figures, one in zip(found, worst, strict=True)
        ]
        print_json({"format": 1, "tool": TOOL, "requests": arguments.requests, "cases": rows})
    else:
        head = ("case", "figures", "worst", "found", "reference", "in tolerances")
        rows = [
            (
                one.case,
                str(len(figures)),
                one.name,
                f"{one.found:.6g}",
                f"{one.reference:.6g}",
                f"{one.off:.2f}",
            )
            for figures, one in zip(found, worst, strict=True)
        ]
        print(columns([head, *rows], right=(1, 3, 4, 5)))
        print(f"{sum(one.off <= 1.0 for one in worst)} of {len(worst)} cases within tolerance")
    return int(any(one.off > 1.0 for one in worst))


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


def _cost_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..cost.result import CostRequest
    from ..cost.simulate import GroupCache, simulate
    from ..graph.load import load_graph
    from ..hardware.loader import load_hardware
    from ..plan import edits

    machine = load_hardware(arguments.hardware)
    model = load_graph(arguments.graph)
    # The goal's figure is of one group. Beside it three kinds, so that it does not stand for more than it is.
    for name, nests, at_least in (
        ("one mapping of two operators", (_two_products(),), 5e6),
        ("mappings of two products, of a product and its tail, of a window", _two_operator_groups(), None),
    ):
        yield Measurement(
            f"traffic, footprint and work of {name}: evaluations",
            tuple(_evaluations_per_second(arguments.rounds, nests)),
            at_least,
            "/s",
            rate=True,
        )
    for operators, goal in ((1_000, None), (10_000, 0.150)):
        graph = repeated(model, operators)
        request = CostRequest(graph, machine, edits.contraction_tails(graph))
        yield Measurement(
            f"{len(graph.operators):,} operators from nothing, unfused plan included",
            timed(arguments.rounds, lambda request=request: simulate(request)),
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


def _access(tensor: int, dims: Sequence[int], *depth: int) -> NestAccess:
    return NestAccess(tensor, tuple(SimpleAxis(d) for d in dims), depth)


def _two_products() -> Nest:
    """T = A B, E = T D under ``m { MatMul_0(k), MatMul_1(p) }``."""
    m, n, k, p = range(4)
    outer, inner = NestTensor(8, 32), NestTensor(8, 32, BUFFER, elements=500 * 300)
    a, b = _access(0, (m, k), 2), _access(1, (k, n), 2)
    made, read = _access(2, (m, n), 1), _access(2, (m, n), 1)
    d, e = _access(3, (n, p), 2), _access(4, (m, p), 2)
    return Nest(
        extents=(500, 300, 200, 100),
        loops=((m, 64, -1), (k, 48, 0), (p, 32, 0)),
        operators=(
            NestOperator(1, 2, (m, n, k), (k,), True, False, (a, b), (made,)),
            NestOperator(2, 2, (m, n, p), (n,), True, False, (read, d), (e,)),
        ),
        tensors=(outer, outer, inner, outer, outer),
    )


def _product_and_tail() -> Nest:
    """``m { n { MatMul_0(k), Relu_1 } }`` on a machine with registers, which hold what passes between the two."""
    m, n, k = range(3)
    outer, inner = NestTensor(8, 32), NestTensor(8, 32, REGISTERS, elements=500 * 300)
    a, b = _access(0, (m, k), 3, 6), _access(1, (k, n), 3, 6)
    made, read, y = _access(2, (m, n), 2, 2), _access(2, (m, n), 2, 2), _access(3, (m, n), 2, 2)
    tree, private = (
        ((m, 64, -1), (n, 64, 0), (k, 48, 1)),
        ((m, 16, 2), (n, 16, 3), (k, 1, 4), (m, 1, 5), (n, 1, 6)),
    )
    return Nest(
        extents=(500, 300, 200),
        loops=tree + private,
        operators=(
            NestOperator(7, 3, (m, n, k), (k,), True, False, (a, b), (made,)),
            NestOperator(1, 2, (m, n), (), False, True, (read,), (y,)),
        ),
        tensors=(outer, outer, inner, outer),
    )


def _window_and_tail() -> Nest:
    """A 3 x 3 convolution of stride 2 with padding, and its activation: ``p { o { Conv_0(c), Relu_1 } }``."""
    o, p, q, c, r, s = range(6)
    outer, inner = NestTensor(8, 32), NestTensor(8, 32, BUFFER, elements=128 * 56 * 56)
    rows, columns = WindowAxis(p, r, 2, 1, -1, 112), WindowAxis(q, s, 2, 1, -1, 112)
    image, weight = NestAccess(0, (SimpleAxis(c), rows, columns), (3,)), _access(1, (o, c, r, s), 3)
    made, read, y = _access(2, (o, p, q), 2), _access(2, (o, p, q), 2), _access(3, (o, p, q), 2)
    return Nest(
        extents=(128, 56, 56, 64, 3, 3),
        loops=((p, 14, -1), (o, 32, 0), (c, 16, 1)),
        operators=(
            NestOperator(2, 3, (o, p, q, c, r, s), (c, r, s), True, False, (image, weight), (made,)),
            NestOperator(1, 2, (o, p, q), (), False, True, (read,), (y,)),
        ),
        tensors=(outer, outer, inner, outer),
    )


def _two_operator_groups() -> tuple[Nest, ...]:
    return _two_products(), _product_and_tail(), _window_and_tail()


def _evaluations_per_second(rounds: int, nests: Sequence[Nest]) -> Iterator[float]:
    """Of the nests in turn, in a compiled loop; the outermost tile is another one each time."""
    from numba import njit

    from ..cost.layout import pack, workspace
    from ..cost.traffic import measure

    bare: dict[str, Any] = {"nogil": True, "_nrt": False}  # as the kernels: the loop is not what is measured

    @njit(**bare)
    def often(
        times,
        loops,
        ops,
        acc,
        axes,
        ten,
        extents,
        path,
        lengths,
        levels,
        stages,
        counts,
        points,
        peak,
        rows,
        work,
    ):  # type: ignore[no-untyped-def]
        moved = 0
        at = 0
        for _ in range(times):
            tiles = loops[at]
            at = at + 1 if at + 1 < loops.shape[0] else 0
            measure(
                ops, acc, axes, ten, extents, tiles, path, lengths, levels, stages, 1, counts, points, peak, rows, work,
            )  # fmt: skip
            moved += counts[0, 0, 0] + peak[0]
        return moved

    given: list[tuple[object, ...]] = []
    for nest in nests:
        (dim, size, parent), *inside = nest.loops
        sizes = range(max(1, size // 2), size + size // 2)
        tiles = [pack(replace(nest, loops=((dim, tile, parent), *inside))) for tile in sizes]
        a = tiles[0]
        loops = np.array([each.loops for each in tiles])
        counts = np.zeros((a.levels, a.acc.shape[0], 4), np.int64)
        points, peak = np.zeros(len(nest.operators), np.int64), np.zeros(a.levels, np.int64)
        rows, work = workspace(a)
        given.append(
            (
                loops, a.ops, a.acc, a.axes, a.ten, a.extents, a.path, a.lengths, a.levels, a.stages, counts, points,
                peak, rows, work,
            )
        )  # fmt: skip

    times = 100_000

    def round_robin() -> None:
        for one in given:
            often(times, *one)

    for seconds in timed(rounds, round_robin):
        yield len(given) * times / seconds


def _search_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    """Least traffic, its witness included; the shapes of a structure are made once, and measured by themselves."""
    from ..cost.problem import pose
    from ..cost.unify import unify
    from ..cost.units import Machine
    from ..hardware.loader import load_hardware
    from ..plan.plan import FusionGroup
    from ..search.least import least_traffic
    from ..search.shapes import shapes_of
    from ..search.structure import structure_of

    machine = Machine(load_hardware("one-buffer"))
    for name, graph, goal in (
        ("a product, 1,024 each way", _chain(1024, (1024, 1024)), 0.005),
        ("two products, 1,024 rows, 64 to 1,024 to 64", _chain(1024, (64, 1024, 64)), 0.020),
        ("attention, 2,048 by 2,048, heads of 64", _chain(2048, (64, 2048, 64), softmax=True), 0.020),
    ):
        group = FusionGroup(tuple(range(len(graph.operators))))
        problem = pose(graph, group, unify(graph, group.operators), machine, "int8")

        structure = structure_of(problem)

        def anew(structure: Structure = structure) -> None:
            shapes_of.cache_clear()
            shapes_of(structure)

        yield Measurement(f"shapes of {name}", timed(arguments.rounds, anew), None)
        yield Measurement(
            f"least traffic of {name}",
            timed(arguments.rounds, lambda problem=problem, group=group: least_traffic(problem, group)),
            goal,
        )


def _chain(rows: int, widths: Sequence[int], softmax: bool = False) -> OperatorGraph:
    """Products one after the other, ``rows`` by the first width to the last; ``softmax``: one behind the first."""
    tensors: list[Tensor] = []
    operators: list[Operator] = []

    def tensor(shape: tuple[int, ...], role: TensorRole) -> int:
        tensors.append(Tensor(len(tensors), f"t{len(tensors)}", "int8", shape, role))
        return len(tensors) - 1

    def add(
        op_type: str, kind: OpKind, dims: tuple[Dim, ...], reads: Sequence[tuple[int, str]], write: str
    ) -> int:
        place = {dim.name: i for i, dim in enumerate(dims)}
        size = {dim.name: dim.extent for dim in dims}
        made = tensor(tuple(size[letter] for letter in write), TensorRole.ACTIVATION)
        inputs, outputs = (
            tuple(Access(t, tuple(Axis(((place[letter], 1),)) for letter in letters)) for t, letters in found)
            for found in (reads, [(made, write)])
        )
        operators.append(
            Operator(
                len(operators),
                f"o{len(operators)}",
                op_type,
                kind,
                dims,
                inputs,
                outputs,
                online=op_type == "Softmax",
            )
        )
        return made

    last = tensor((rows, widths[0]), TensorRole.INPUT)
    for number, (inner, outer) in enumerate(pairwise(widths)):
        if softmax and number == 1:
            last = add(
                "Softmax",
                OpKind.REDUCTION,
                (Dim("i", rows), Dim("j", inner, reduction=True)),
                [(last, "ij")],
                "ij",
            )
        dims = (Dim("m", rows), Dim("n", outer), Dim("k", inner, reduction=True))
        weight = tensor((inner, outer), TensorRole.INPUT)
        last = add("MatMul", OpKind.CONTRACTION, dims, [(last, "mk"), (weight, "kn")], "mn")
    tensors[last] = replace(tensors[last], is_output=True)
    return OperatorGraph("chain", tuple(tensors), tuple(operators))


def _plan_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..graph.load import load_graph
    from ..plan import edits, legality

    graph = repeated(load_graph(arguments.graph), 5_580)
    plan = edits.contraction_tails(graph)
    rounds = 10 * arguments.rounds
    yield Measurement(
        f"legality of a plan of {len(graph.operators):,} operators",
        timed(rounds, lambda: legality.check(graph, plan)),
        None,
    )
    middle = graph.edges[len(graph.edges) // 2].tolist()
    yield Measurement(
        f"one edit of a plan of {len(graph.operators):,} operators",
        timed(rounds, lambda: edits.toggle(graph, plan, middle[0], middle[1])),
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
        timed(arguments.rounds, lambda: layered_layout(start, target, width, height)),
        None,
    )


def _serving_rows(arguments: argparse.Namespace) -> Iterator[Measurement]:
    from ..serving.speed import rows

    return rows(arguments.rounds)
