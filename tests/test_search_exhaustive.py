"""The search of least traffic against every mapping there is, counted by the walker: 300 random groups.

``python -m tests.test_search_exhaustive 0 1000`` compares any range of seeds. The enumeration here knows the laws by
`tree.check` and docs/loop-tree.md alone: all tiles, all trees over the dims that a tile cuts, all orders of the element
loops, one depth per tensor; it takes nothing from `model/search`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from math import prod
from random import Random

from model.cost.nest import OUTER, Nest, NestOperator
from model.cost.problem import Problem, pose
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.cost.tree import Leaf, Loop, Tree, check, paths
from model.cost.unify import unify
from model.cost.units import Machine
from model.errors import PlanError
from model.graph.band import ENDLESS, Band
from model.graph.graph import Axis, Dim, OperatorGraph, OpKind
from model.plan.plan import FusionGroup, Plan
from model.search.least import least_traffic
from tests import walker
from tests.cost_graphs import Sketch, one_buffer
from tests.test_walker import plain

GROUPS = 300
KINDS = ("product",) * 4 + ("pointwise", "softmax", "window") * 2 + ("reduce",)
MOST_WALKS = 160  # groups of more trees, tiles and orders are passed over


# Groups.


def random_graph(draw: Random) -> OperatorGraph:
    """Two or three operators in a chain: products, windows, pointwise work, reductions, online or not."""
    sketch = Sketch()
    last, count = "", draw.choice((2, 2, 3, 3))
    sizes = (1, 1, 2, 2, 3) if count == 3 else (1, 1, 2, 2, 2, 3, 3, 4, 5, 6)
    outputs: list[str] = []
    for number in range(count):
        kind = draw.choice(KINDS)
        if not last:
            last = sketch.tensor("A", draw.choice(sizes), draw.choice(sizes))
        rows, columns = (
            sketch.shapes[last][-2:] if len(sketch.shapes[last]) > 1 else (*sketch.shapes[last], 1)
        )
        made = f"T{number}"
        if len(sketch.shapes[last]) == 1:
            sketch.pointwise("Relu", [last], made)
        elif kind == "product":
            transposed = draw.random() < 0.3
            other = "A" if draw.random() < 0.15 and sketch.shapes["A"][0] == columns else ""
            other = other or sketch.tensor(f"B{number}", columns, draw.choice(sizes))
            if transposed:
                axes = {name: Axis(((i, 1),)) for i, name in enumerate("mnk")}
                dims = [Dim("m", rows), Dim("n", sketch.shapes[other][1]), Dim("k", columns, reduction=True)]
                sketch.add(
                    "Gemm",
                    OpKind.CONTRACTION,
                    dims,
                    [(last, [axes["m"], axes["k"]]), (other, [axes["k"], axes["n"]])],
                    (made, [axes["n"], axes["m"]]),
                )
            else:
                sketch.product(last, other, made)
        elif kind == "pointwise":
            inputs = [last]
            if draw.random() < 0.5:
                shared = sketch.shapes["A"] == (rows, columns) and draw.random() < 0.5
                inputs.append("A" if shared else sketch.tensor(f"B{number}", rows, columns))
            sketch.pointwise("Add", inputs, made, linear=draw.random() < 0.5)
        elif kind == "softmax":
            sketch.softmax(last, made, online=draw.random() < 0.7)
        elif kind == "window" and columns >= 2:
            taps = draw.choice((2, 2, 3)) if columns >= 3 else 2
            stride = draw.choice((1, 1, 2))
            places = (columns - taps) // stride + 1
            dims = [Dim("m", rows), Dim("p", places), Dim("r", taps, reduction=True)]
            weights = sketch.tensor(f"W{number}", taps)
            moving = Axis(((1, stride), (2, 1)))
            sketch.add(
                "Conv",
                OpKind.CONTRACTION,
                dims,
                [(last, [Axis(((0, 1),)), moving]), (weights, [Axis(((2, 1),))])],
                (made, [Axis(((0, 1),)), Axis(((1, 1),))]),
            )
        else:
            dims = [Dim("i", rows), Dim("j", columns, reduction=True)]
            axes = [Axis(((0, 1),)), Axis(((1, 1),))]
            sketch.add("ReduceSum", OpKind.REDUCTION, dims, [(last, axes)], (made, axes[:1]))
        last = made
        if number + 1 < count and draw.random() < 0.1:
            outputs.append(made)
    return sketch.graph(last, *outputs)


def masked(graph: OperatorGraph, draw: Random) -> OperatorGraph:
    """The graph with a band over two dims of some operators."""
    operators = list(graph.operators)
    for i, op in enumerate(operators):
        axes = [axis for access in (*op.inputs, *op.outputs) for axis in access.axes]
        free = [d for d in range(len(op.dims)) if all(len(a.terms) == 1 for a in axes if d in dict(a.terms))]
        if len(free) < 2 or draw.random() < 0.6:
            continue
        q, k = draw.sample(free, 2)
        ends = op.dims[q].extent, op.dims[k].extent
        band = Band(q, k, draw.randint(1 - ends[0], sum(ends)), draw.choice((1, 2, 3, ENDLESS)))
        if draw.random() < 0.3:
            band = Band(q, k, 0)
        if 0 < band.points(*ends) < prod(ends):
            operators[i] = replace(op, band=band)
    return replace(graph, operators=tuple(operators))


# All mappings.


def trees(problem: Problem, cut: set[int]) -> Iterator[Tree]:
    """Every legal tree in which each operator stands under a loop over each of its dims that is cut."""
    own = [[d for d in op.dims if d in cut] for op in problem.space.operators]

    def bodies(first: int, last: int, above: tuple[int, ...]) -> Iterator[Tree]:
        if first == last:
            yield ()
            return
        for end in range(first + 1, last + 1):
            heads: list[Loop | Leaf] = []
            if end - first == 1:
                heads += [
                    Leaf(first, order) for order in permutations(d for d in own[first] if d not in above)
                ]
            else:
                for d in sorted(cut - set(above)):
                    heads += [Loop(d, body) for body in bodies(first, end, (*above, d))]
            for head in heads:
                for rest in bodies(end, last, above):
                    yield (head, *rest)

    for tree in bodies(0, len(own), ()):
        try:
            check(problem.space, tree, problem.names)
        except PlanError:
            continue
        yield tree


def element_orders(problem: Problem, tile: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Orders of the element loops of all contractions together."""
    dims = {d for op in problem.base.operators if op.contraction for d in op.dims if tile[d] > 1}
    return list(permutations(sorted(dims)))


def nest_of(
    problem: Problem, tile: tuple[int, ...], tree: Tree, elements: tuple[int, ...], depth: dict[int, int]
) -> Nest:
    """The nest of a mapping; ``depth``: loops outside the tile of each tensor from or to outside."""
    base, chains = problem.base, paths(tree)
    rows: dict[int, tuple[int, int, int]] = {}
    for numbers, dims in chains:
        for i, (loop, d) in enumerate(zip(numbers, dims, strict=True)):
            rows[loop] = (d, tile[d], numbers[i - 1] if i else -1)
    loops = [rows[i] for i in range(len(rows))]
    operators: list[NestOperator] = []
    for o, op in enumerate(base.operators):
        numbers, _ = chains[o]
        leaf = numbers[-1] if numbers else -1
        inner = (
            [d for d in elements if d in op.dims]
            if op.contraction
            else [d for d in op.reductions if tile[d] > 1]
        )
        for d in inner:
            loops.append((d, 1, leaf))
            leaf = len(loops) - 1
        found = []
        for access in op.reads + op.writes:
            if base.tensors[access.tensor].home == OUTER:
                deep = min(depth[access.tensor], len(numbers) + len(inner))
            else:
                makers = [problem.space.producer[access.tensor], *problem.space.readers[access.tensor]]
                shared = set(chains[makers[0]][0]).intersection(*(chains[m][0] for m in makers))
                deep = len(shared)
            found.append(replace(access, depth=(deep,)))
        reads, writes = tuple(found[: len(op.reads)]), tuple(found[len(op.reads) :])
        operators.append(replace(op, leaf=leaf, tree_depth=len(numbers), reads=reads, writes=writes))
    for p, c, mask in problem.space.online:
        (mine, dims), theirs = chains[p], chains[c][0]
        shared = tuple(d for loop, d in zip(mine, dims, strict=True) if loop in theirs and mask >> d & 1)
        if shared:
            operators[p] = replace(operators[p], statistics=problem.statistics[p])
            operators[c] = replace(operators[c], rescale=shared)
    return Nest(base.extents, tuple(loops), tuple(operators), base.tensors, 1)


def moved_by_tensor(counts: walker.Counts) -> Counter[int]:
    """Bytes per tensor, one byte an element."""
    out: Counter[int] = Counter()
    for tensor, _, level, *numbers in counts.streams:
        if level == 0:
            out[tensor] += sum(numbers)
    return out


class Exhaustive:
    """All mappings of a group, each counted once: bytes by tensor and depth; footprints where they are asked for."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        base = problem.base
        outer = [t for t, tensor in enumerate(base.tensors) if tensor.home == OUTER]
        written = [a.tensor for op in base.operators for a in op.writes if a.tensor in outer]
        self.read = [t for t in outer if t not in written]
        self.written = written
        self.mappings: list[tuple] = []
        self.walks = 0

    def enumerate(self) -> bool:
        """List all tiles, trees, orders and depths of what is written; False: too many."""
        extents = self.problem.space.extents
        for tile in product(*(range(1, e + 1) for e in extents)):
            cut = {d for d, e in enumerate(extents) if tile[d] < e}
            orders = element_orders(self.problem, tile)
            for tree in trees(self.problem, cut):
                self.walks += len(orders)
                if self.walks > MOST_WALKS:
                    return False
                self.mappings.extend((tile, tree, order) for order in orders)
        return True

    def least(self, capacity: int) -> int | None:
        """Fewest bytes that fit `capacity`. Reads do not depend on each other's depths: each is counted alone."""
        best: int | None = None
        extents = self.problem.space.extents
        everything = dict.fromkeys((*self.read, *self.written), 0)
        leaves = tuple(Leaf(o) for o in range(len(self.problem.base.operators)))
        untiled = nest_of(self.problem, extents, leaves, (), everything)
        once = moved_by_tensor(walker.walk(plain(untiled))).total()
        for tile, tree, order in self.mappings:
            if best == once:  # nothing is read or written twice
                break
            whole = plain(nest_of(self.problem, tile, tree, order, everything))
            longest = max(len(path) for path in walker.Tree(whole).path)
            smallest = plain(nest_of(self.problem, tile, tree, order, dict.fromkeys(everything, longest)))
            if (
                walker.footprint_bytes(walker.Tree(smallest), 0) > 2 * capacity
            ):  # in place is half at the least
                continue
            for depths in product(range(longest + 1), repeat=len(self.written)):
                out = dict(zip(self.written, depths, strict=True))
                # The bytes of each read by its depth, from one walk per depth.
                at: dict[tuple[int, int], int] = {}
                for depth in range(longest + 1) if self.read else (0,):
                    nest = nest_of(self.problem, tile, tree, order, out | dict.fromkeys(self.read, depth))
                    counted = moved_by_tensor(walker.walk(plain(nest)))
                    at |= {(t, depth): counted[t] for t in self.read}
                    fixed = sum(n for t, n in counted.items() if t not in self.read)
                ways = sorted(
                    (fixed + sum(at[t, d] for t, d in zip(self.read, chosen, strict=True)), chosen)
                    for chosen in product(range(longest + 1), repeat=len(self.read))
                )
                for total, chosen in ways:
                    if best is not None and total >= best:
                        break
                    depth = out | dict(zip(self.read, chosen, strict=True))
                    group = plain(nest_of(self.problem, tile, tree, order, depth))
                    if walker.footprint_bytes(walker.Tree(group), 0) <= capacity:
                        best = total
                        break
        return best


def compare(seed: int) -> str:
    """Both searches on the group of a seed; what it was, or why it was passed over."""
    draw = Random(seed)
    graph = masked(random_graph(draw), Random(-1 - seed))
    statistics = draw.random() < 0.3
    group = FusionGroup(tuple(range(len(graph.operators))))
    space = unify(graph, group.operators)
    if prod(space.extents) > 400:
        return ""
    small = replace(one_buffer(1), online_statistics=statistics)
    exhaustive = Exhaustive(pose(graph, group, space, Machine(small), "int8"))
    if not exhaustive.enumerate():
        return ""
    everything = sum(prod(t.shape or ()) for t in graph.tensors)
    capacity = draw.randint(1, 4) if draw.random() < 0.1 else draw.randint(3, max(4, everything))
    machine = replace(small, memory=(small.memory[0], replace(small.memory[1], capacity_bytes=capacity)))
    machine = replace(machine, digest=f"{seed}")
    found = least_traffic(pose(graph, group, space, Machine(machine), "int8"), group)
    least = exhaustive.least(capacity)
    assert (found.bytes if found else None) == least, (seed, capacity, found, least)
    if found is not None:
        assert found.exact
        result = simulate(CostRequest(graph, machine, Plan((found.group,)), "int8"))
        assert sum(result.groups[0].dram_bytes("DRAM")) == found.bytes, (seed, found)
        assert result.groups[0].footprint_bytes[0][1] == found.footprint_bytes <= capacity, (seed, found)
    kinds = [op.op_type if op.band is None else f"banded {op.op_type}" for op in graph.operators]
    return " ".join(kinds) + ("" if found else " (nothing fits)")


def test_no_mapping_moves_less_than_what_the_search_finds() -> None:
    kinds: Counter[str] = Counter()
    seed = 0
    while kinds.total() < GROUPS:
        kinds[compare(seed)] += 1
        del kinds[""]
        seed += 1
    for part in ("MatMul", "Gemm", "Conv", "Softmax", "Add", "ReduceSum", "nothing fits", "banded"):
        assert sum(count for kind, count in kinds.items() if part in kind) >= 10, part
    assert sum(count for kind, count in kinds.items() if kind.count(" ") - kind.count("banded ") >= 2) >= 60


if __name__ == "__main__":
    totals = Counter(compare(seed) for seed in range(int(sys.argv[1]), int(sys.argv[2])))
    print(totals.most_common(40))
