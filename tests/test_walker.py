"""The kernels against the walker: 5,000 random groups, integer for integer; faults in a kernel are seen.

``python -m tests.test_walker 0 100000`` compares any range of seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest

from model.cost import evaluate as evaluate_module
from model.cost.crossing import crossing, passing
from model.cost.evaluate import NestCounts, evaluate
from model.cost.layout import pack, workspace
from model.cost.nest import (
    BUFFER,
    OUTER,
    REGISTERS,
    IndirectAxis,
    Nest,
    NestAccess,
    NestAxis,
    NestOperator,
    NestTensor,
    SimpleAxis,
    WindowAxis,
)
from model.cost.sweep import ACC_OPERATOR, ACC_TENSOR
from tests import walker
from tests.cost_graphs import one_buffer
from tests.plain_kernels import NO_FAULT, plain_kernels
from tests.random_nests import random_nest

GROUPS = 5000
# Of 2,000 groups at least so many have each property.
SHARES = {
    "ragged": 1000,
    "several operators": 1000,
    "reduction outside its retention": 667,
    "element-nest retention": 500,
    "registers": 500,
    "2 buffers": 500,
    "3 buffers": 250,
    "home in a further buffer": 150,
    "shared stream further in": 50,
    "3 operators": 500,
    "window": 300,
    "shared input": 300,
    "foreign loop skipped": 300,
    "axis kept whole": 250,
    "padding": 250,
    "indirect": 250,
    "written through": 200,
    "shared stream": 150,
    "recomputed": 150,
    "fixed": 100,
    "running statistics": 50,
    "home in registers": 50,
    "rescaled sums": 15,
    "follows a window": 150,
    "band": 400,
    "pinned": 250,
    "spilled": 150,
    "shared sums": 100,
}
KERNELS = ("sweep", "bands", "footprint", "traffic")  # in the order in which they import each other
FAULTS = {
    "a window is a key wider": (
        "bands",
        "pairs_below(q0, q1, k0, k1, offset - window)",
        "pairs_below(q0, q1, k0, k1, offset - window - 1)",
    ),
    "a query tile does not read its last query's key": (
        "bands",
        "reach_sum(q, k, offset - window + 1, offset,",
        "reach_sum(q, k, offset - window + 1, offset - 1,",
    ),
    "a key tile is seen by a query too many": (
        "bands",
        "reach_sum(k, q, -offset, window - 1 - offset,",
        "reach_sum(k, q, -offset, window - offset,",
    ),
    "a tile without a point is visited": (
        "bands",
        "(end - 1) // step - first // step + 1\n        elif",
        "(end - 1) // step - first // step + 2\n        elif",
    ),
    "all cores that share a bounded sum have a part of it": (
        "bands",
        "held * min(cores,",
        "held * max(cores,",
    ),
    "sums of a bounded domain never come back": (
        "traffic",
        "beside * (visits - once)",
        "0 * beside * (visits - once)",
    ),
    "the first statistic of a bounded domain rescales too": (
        "traffic",
        "(visits - band_sum(",
        "(visits - 0 * band_sum(",
    ),
    "a rolling window brings each tile whole": (
        "sweep",
        "    if kind == WINDOW:\n        return window_sum(",
        "    if kind == WINDOW or kind == ROLLING:\n        return window_sum(",
    ),
    "a line buffer takes no room": ("footprint", "if at < 0 or not inner or kept <= 0:", "if True:"),
    "what follows a window runs once whatever its tiles": (
        "traffic",
        "axis_sum(axes, x, rows[o], kept, loops, extents)",
        "axis_sum(axes, x, rows[o], 0, loops, extents)",
    ),
    "a pinned tile goes when its readers are done": (
        "footprint",
        "        if ten[t, TEN_PINNED] and level == 0:",
        "        if ten[t, TEN_PINNED] and level == 99:",
    ),
    "the parts of a shared sum are not put together": (
        "traffic",
        "sums *= sharers(own, rows[o],",
        "sums *= 1 + 0 * sharers(own, rows[o],",
    ),
    "a split loop outside the retention makes parts too": (
        "traffic",
        "sharers(own, rows[o], depth, work[W_TREE, o], loops)",
        "sharers(own, rows[o], 0, work[W_TREE, o], loops)",
    ),
    "a ragged piece counts as a whole one": (
        "sweep",
        "full += number * (size // step)",
        "full += number * ((size + step - 1) // step)",
    ),
    "a window counts every pair": (
        "sweep",
        "total -= points_inside(p0 + jump_p,",
        "total -= 0 * points_inside(p0,",
    ),
    "a loop of one trip ends the retention": (
        "sweep",
        "& 1 and loops[loop, LOOP_TRIPS] > 1:",
        "& 1 and loops[loop, LOOP_TRIPS] > 0:",
    ),
    "the first visit reads sums back": (
        "traffic",
        "counts[a, PARTIAL_READS] = partial",
        "counts[a, PARTIAL_READS] = partial + writes",
    ),
    "loops that do not touch an operand cost nothing": (
        "traffic",
        "reads = once * repeats(",
        "reads = once + 0 * repeats(",
    ),
    "a retained output is made again": ("traffic", "if j >= r:", "if j > r:"),
    "every reader fetches for itself": ("traffic", "if same:", "if same and q == o:"),
    "what stays takes room for every stage": (
        "footprint",
        "if streamed and r > 0 else 1",
        "if streamed else 1",
    ),
    "sums at rest take the tensor's width": (
        "footprint",
        "rows[o], inner, loops)",
        "rows[o], 0, loops)",
    ),
    "statistics of the whole extent": (
        "footprint",
        "elements *= step_of(d, path[o], j, loops, extents)",
        "elements *= step_of(d, path[o], 0, loops, extents)",
    ),
    "what is kept further in is asked of the outermost buffer": (
        "traffic",
        "acc[a, ACC_DEPTH0 + kept]",
        "acc[a, ACC_DEPTH0]",
    ),
    "what is at home in a further buffer stays out of none": (
        "footprint",
        "if home > level + 1 or",
        "if home == HOME_REGISTERS or",
    ),
    "what is at home in an outer buffer does not pass the next": (
        "traffic",
        "crosses = ten[t, TEN_HOME] <= level",
        "crosses = ten[t, TEN_HOME] <= 0",
    ),
    "statistics are in every buffer": (
        "footprint",
        "operators if level == buffers - 1 else 0",
        "operators",
    ),
    "sums at rest are told by the registers alone": (
        "footprint",
        "work[W_EFFECTIVE0 + W_PAIR * (level + 1), a]",
        "work[W_EFFECTIVE0 + W_PAIR * (levels - 1), a]",
    ),
    "a further buffer has the stages of the outermost": (
        "traffic",
        "levels, stages[level],",
        "levels, stages[0],",
    ),
    "readers of what the group made share a stream further in": (
        "traffic",
        "ten[acc[a, ACC_TENSOR], TEN_PRODUCER] >= 0",
        "ten[acc[a, ACC_TENSOR], TEN_PRODUCER] >= 99",
    ),
}


def axis_of(axis: NestAxis) -> tuple:
    if isinstance(axis, SimpleAxis):
        return "simple", axis.dim, axis.coefficient, axis.offset, axis.extent
    if isinstance(axis, WindowAxis):
        kind = "rolling" if axis.rolling else "window"
        return kind, axis.p, axis.r, axis.stride, axis.dilation, axis.offset, axis.extent
    return "indirect", axis.dims, axis.distinct


def plain(nest: Nest) -> walker.Group:
    """The nest as the walker's tuples."""

    def accesses(found: tuple) -> tuple[walker.Access, ...]:
        return tuple(walker.Access(a.tensor, tuple(map(axis_of, a.axes)), a.depth, a.fixed) for a in found)

    operators = tuple(
        walker.Operator(
            op.leaf,
            op.tree_depth,
            op.dims,
            op.reductions,
            op.contraction,
            op.pointwise,
            accesses(op.reads),
            accesses(op.writes),
            op.statistics,
            op.rescale,
            tuple(map(axis_of, op.domain)),
            (op.band.q, op.band.k, op.band.offset, op.band.window) if op.band else (),
        )
        for op in nest.operators
    )
    tensors = tuple(
        walker.Tensor(t.bits, t.partial_bits, t.home, t.written_outside, t.elements, t.pinned, t.spilled)
        for t in nest.tensors
    )
    return walker.Group(
        nest.extents, nest.loops, operators, tensors, nest.stages, nest.splits, nest.inner_stages
    )


def as_walked(counts: NestCounts) -> walker.Counts:
    """The kernels' counts in the walker's shape."""
    rows = tuple(
        (s.tensor, s.operator, s.level, s.reads, s.writes, s.partial_reads, s.partial_writes)
        for s in counts.streams
    )
    return walker.Counts(rows, counts.footprint_bytes, counts.macs, counts.points, counts.rescale_ops)


def properties(nest: Nest, counts: walker.Counts) -> set[str]:
    """What is particular about a group; the names that the report prints."""
    tree = walker.Tree(plain(nest))
    found = {f"{len(nest.operators)} operators", f"{tree.buffers} buffers"}
    found.update({"registers"} if tree.levels > tree.buffers else ())
    written = {access.tensor: access for op in nest.operators for access in op.writes}
    readers = Counter(t for op in nest.operators for t in {access.tensor for access in op.reads})
    for index, (dim, step, _) in enumerate(nest.loops):
        outside = [nest.loops[loop][1] for loop in tree.up(index)[:-1] if nest.loops[loop][0] == dim]
        if (outside[-1] if outside else nest.extents[dim]) % step:
            found.add("ragged")
    for o, op in enumerate(nest.operators):
        if counts.points[o] > prod(nest.extents[dim] for dim in op.dims):
            found.add("recomputed")
        if tree.skipped[o]:
            found.add("foreign loop skipped")
        if op.statistics and any(
            nest.loops[loop][0] in op.reductions for loop in tree.path[o][: op.tree_depth]
        ):
            found.add("running statistics")
        for access in (*op.reads, *op.writes):
            home = nest.tensors[access.tensor].home
            made_here = access.tensor in written
            found.update({"window"} if any(isinstance(axis, WindowAxis) for axis in access.axes) else ())
            found.update({"indirect"} if any(isinstance(axis, IndirectAxis) for axis in access.axes) else ())
            found.update({"padding"} if any(pads(axis, nest) for axis in access.axes) else ())
            found.update({"fixed"} if access.fixed >= 0 else ())
            found.update({"element-nest retention"} if access.depth[0] > op.tree_depth else ())
            found.update({"home in registers"} if home == REGISTERS else ())
            found.update({"home in a further buffer"} if BUFFER < home < REGISTERS else ())
            found.update({"written through"} if home and nest.tensors[access.tensor].written_outside else ())
            if access in op.reads and made_here and access.axes != written[access.tensor].axes:
                found.add("axis kept whole")
            if access in op.reads and not made_here and readers[access.tensor] > 1:
                found.add("shared input")
    if any(row[2] == 0 and row[5] for row in counts.streams):
        found.add("reduction outside its retention")
    found.update({"follows a window"} if any(op.domain for op in nest.operators) else ())
    found.update({"band"} if any(op.band for op in nest.operators) else ())
    found.update({"pinned"} if any(t.pinned for t in nest.tensors) else ())
    found.update({"spilled"} if any(t.spilled for t in nest.tensors) else ())
    found.update({"shared sums"} if nest.splits else ())
    found.update({"rescaled sums"} if counts.rescale_ops else ())
    found.update({"shared stream"} if shares_a_stream(tree, 0) else ())
    found.update(
        {"shared stream further in"}
        if any(shares_a_stream(tree, level) for level in range(1, tree.buffers))
        else ()
    )
    return found


def pads(axis: NestAxis, nest: Nest) -> bool:
    """Whether some index points lie outside the axis."""
    if isinstance(axis, IndirectAxis):
        return False
    dims = (axis.dim,) if isinstance(axis, SimpleAxis) else (axis.p, axis.r)
    whole = {dim: range(nest.extents[dim]) for dim in dims}
    unbounded = (*axis_of(axis)[:-2], 1 << 40, 1 << 62)  # far from every border
    return len(walker.coordinates(axis_of(axis), whole)) < len(walker.coordinates(unbounded, whole))


def shares_a_stream(tree: walker.Tree, level: int) -> bool:
    """Whether several operators read one stream into the buffer of a pair of levels."""
    names = [
        (o, tree.shared_stream(o, access, level))
        for o, op in enumerate(tree.group.operators)
        for access in op.reads
        if tree.group.tensors[access.tensor].home == OUTER and access.fixed < 0
    ]
    users: dict[tuple, set[int]] = {}
    for o, name in names:
        users.setdefault(name, set()).add(o)
    return any(len(operators) > 1 for operators in users.values())


@cache
def walked(seed: int) -> tuple[Nest, walker.Counts]:
    """A random group and what the walker counts in it."""
    nest = random_nest(seed)
    return nest, walker.walk(plain(nest))


def disagreement(seed: int) -> str:
    """How the kernels and the walker differ on a group; empty where they agree."""
    nest, counts = walked(seed)
    kernels = as_walked(evaluate(nest))
    differing = [name for name in counts._fields if getattr(counts, name) != getattr(kernels, name)]
    return "".join(
        f"\nseed {seed}, {name}: walked {getattr(counts, name)}, kernels {getattr(kernels, name)}"
        for name in differing
    )


def test_kernels_agree_with_the_walk_of_5_000_groups(capsys: pytest.CaptureFixture[str]) -> None:
    found: Counter[str] = Counter()
    for seed in range(GROUPS):
        assert not disagreement(seed)
        found.update(properties(*walked(seed)))
    found["several operators"] = found["2 operators"] + found["3 operators"]
    with capsys.disabled():
        print(
            f"\n{GROUPS:,} groups agree; of these " + ", ".join(f"{found[name]:,} {name}" for name in SHARES)
        )
    assert {name: found[name] for name in SHARES if found[name] * 2000 < SHARES[name] * GROUPS} == {}


def with_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `evaluate` run on the kernels' sources as plain Python, with one term changed ("": none)."""
    made = plain_kernels(KERNELS, FAULTS.get(fault, NO_FAULT), monkeypatch)
    monkeypatch.setattr(evaluate_module, "measure", made["traffic"].measure)


def test_the_kernels_as_plain_python_agree_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault("", monkeypatch)
    assert "".join(disagreement(seed) for seed in range(100)) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_term_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(fault, monkeypatch)
    assert any(disagreement(seed) for seed in range(GROUPS))


def sectors_differ(seed: int, sector_bytes: int) -> str:
    """How the closed form of whole sectors and the walker differ on a group; empty where they agree."""
    nest = random_nest(seed)
    arrays = pack(nest)
    counts, points = (
        np.zeros((arrays.levels, len(arrays.acc), 4), np.int64),
        np.zeros(len(arrays.ops), np.int64),
    )
    rows, work = workspace(arrays)
    evaluate_module.measure(
        arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
        arrays.levels, arrays.stages, 1, counts, points, np.zeros(arrays.levels, np.int64), rows, work,
    )  # fmt: skip
    memory = one_buffer(1).memory
    machine = replace(one_buffer(1), memory=(replace(memory[0], access_bytes=sector_bytes), memory[1]))
    cores = np.zeros(len(nest.extents), np.int64)
    tables = [crossing(machine, arrays, counts[0], rows, work, cores).buffer]
    inner = range(1, arrays.buffers)
    tables += [passing(arrays, counts[level], rows, work, level, sector_bytes) for level in inner]
    said = ""
    for level, moved in enumerate(tables):
        found: dict[tuple[int, int], list[int]] = {}
        for a, (inwards, outwards) in enumerate(moved.tolist()):
            row = found.setdefault((int(arrays.acc[a, ACC_TENSOR]), int(arrays.acc[a, ACC_OPERATOR])), [0, 0])
            row[0] += inwards
            row[1] += outwards
        found = {name: row for name, row in found.items() if any(row)}
        walked_bits = walker.sector_bits(plain(nest), sector_bytes, level)
        if found != walked_bits:
            said += f"\nseed {seed}, level {level}: walked {walked_bits}, closed form {found}"
    return said


def test_whole_sectors_are_those_of_the_walk() -> None:
    assert "".join(sectors_differ(seed, (2, 4, 32)[seed % 3]) for seed in range(2000)) == ""


def product_nest(order: str, tiles: dict[str, int]) -> Nest:
    """C[m,n] = A[m,k] B[k,n] of 4 x 6 x 5, one loop a dim in this order, tiles at the innermost."""
    dims = {"m": 0, "n": 1, "k": 2}
    loops = tuple((dims[name], tiles[name], i - 1) for i, name in enumerate(order))
    m, n, k = (SimpleAxis(dims[name]) for name in "mnk")
    accesses = [NestAccess(t, axes, (3,)) for t, axes in enumerate(((m, k), (k, n), (m, n)))]
    operator = NestOperator(2, 3, (0, 1, 2), (2,), True, False, tuple(accesses[:2]), tuple(accesses[2:]))
    return Nest((4, 6, 5), loops, (operator,), (NestTensor(8, 32),) * 3)


@pytest.mark.parametrize(
    ("order", "a", "b", "partial"),
    [
        # Tiles 2 x 3 x 2: trips 2, 2, 3. The operand that the innermost loop does not touch stays.
        ("mnk", 20 * 2, 30 * 2, 0),
        ("nmk", 20 * 2, 30 * 2, 0),
        ("mkn", 20, 30 * 2, 24 * 2),
        ("kmn", 20, 30 * 2, 24 * 2),
        ("nkm", 20 * 2, 30, 24 * 2),
        ("knm", 20 * 2, 30, 24 * 2),
    ],
)
def test_the_six_loop_orders_of_a_product_by_hand(order: str, a: int, b: int, partial: int) -> None:
    nest = product_nest(order, {"m": 2, "n": 3, "k": 2})
    expected = ((0, 0, 0, a, 0, 0, 0), (1, 0, 0, b, 0, 0, 0), (2, 0, 0, 0, 24, partial, partial))
    counts = walker.walk(plain(nest))
    assert counts.streams == expected
    assert counts.macs == counts.points == (120,)
    # Tiles of A 2 x 2 and B 2 x 3 in bytes; C 2 x 3 of unfinished 32-bit sums.
    assert counts.footprint_bytes == (4 + 6 + 24,)
    assert as_walked(evaluate(nest)) == counts


def test_a_fused_pair_by_hand() -> None:
    """T[m,n] = A[m,k] B[k,n]; Y[m,p] = T[m,n] W[n,p] under one m loop: T never leaves, B and W stay."""
    m, n, k, p = (SimpleAxis(dim) for dim in range(4))
    # m in tiles of 2 (2 + 2 + 1), whole rows of T.
    first = NestOperator(
        0, 1, (0, 1, 2), (2,), True, False,
        (NestAccess(0, (m, k), (1,)), NestAccess(1, (k, n), (1,))), (NestAccess(2, (m, n), (1,)),),
    )  # fmt: skip
    second = NestOperator(
        0, 1, (0, 1, 3), (1,), True, False,
        (NestAccess(2, (m, n), (1,)), NestAccess(3, (n, p), (0,))), (NestAccess(4, (m, p), (1,)),),
    )  # fmt: skip
    tensors = tuple(
        NestTensor(8, 32, home=1 if t == 2 else OUTER, elements=15 if t == 2 else 0) for t in range(5)
    )
    nest = Nest((5, 3, 4, 2), ((0, 2, -1),), (first, second), tensors, stages=2)
    counts = walker.walk(plain(nest))
    assert counts.streams == (
        (0, 0, 0, 20, 0, 0, 0),
        (1, 0, 0, 12, 0, 0, 0),  # B is not touched by m: it stays
        (3, 1, 0, 6, 0, 0, 0),
        (4, 1, 0, 0, 10, 0, 0),
    )
    # While the first runs: A 2 x 4 twice, B, T 2 x 3, W. While the second runs: T, Y 2 x 2 twice, B, W.
    assert counts.footprint_bytes == (2 * 8 + 12 + 6 + 6,)
    assert counts.macs == (60, 30)
    assert as_walked(evaluate(nest)) == counts


def main(low: int, high: int) -> int:
    """Compare seeds of a range, whole sectors included, and print where both sides differ."""
    differing = [
        text
        for seed in range(low, high)
        if (text := disagreement(seed) + sectors_differ(seed, (2, 4, 32)[seed % 3]))
    ]
    print(f"{high - low:,} groups, {len(differing)} disagree{''.join(differing[:10])}")
    return 1 if differing else 0


if __name__ == "__main__":
    np.seterr(all="raise")
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
