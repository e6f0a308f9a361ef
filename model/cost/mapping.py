"""How a group is mapped: the user's knobs, and for the rest what the tool chooses (docs/loop-tree.md, section 6).

Knows a group's space, one machine and the knobs of one group; makes a `Nest`. It knows no seconds: `solve.py` walks
what is chosen here. User-set parts are respected exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from . import candidate as n
from . import cycles as c
from . import search_kernels as s
from . import sweep as k
from .crossing import sectors_and_share
from .hits import CROSSED, WIDE_LOOPS
from .knobs import Knobs
from .ladders import bundles_of, ladders, orders_of, single_sizes, units_of
from .layout import NestArrays, repack
from .nest import OUTER, REGISTERS, Nest, NestAccess, NestOperator
from .private import Private, held_tile, private_nest, register_depth
from .problem import Problem
from .splits import asked_split, shared_sums
from .tree import Tree, canonical, paths
from .units import UNLIMITED

_EVALUATIONS = 1200  # of the search, per group
# Tiles drawn anew, by how many contractions there are (none, one, several); of how many each is the best; evaluations
# to polish one.
_DRAWS, _TRIES, _POLISHED = (1, 3, 6), 96, 160
_DRAWS_SPLIT, _POLISHED_SPLIT = (
    (1, 5, 6),
    240,
)  # where a group has several cores: how they are dealt is one more choice
_WALKED = 60  # walks to polish the best one of several contractions


@dataclass(frozen=True, slots=True)
class Further:
    """What a mapping has of a further buffer: tile and loop order in group dims, copies of a streamed tile."""

    tile: tuple[int, ...]
    order: tuple[int, ...]
    stages: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped group: the nest and, in group dims, what it was made of.

    ``tree``, ``tile``, ``order`` and ``stages`` are those of the outermost buffer, ``further`` those of the others.
    ``retained`` per level and local tensor the depth that the user set. ``parallel`` per dim the cores over it.
    ``misfit_bytes`` > 0: the least that was found does not fit. ``spilled``: local intermediates that live outside, for
    want of room. ``split`` per reduced dim the cores that share its sums. ``estimated_s`` and ``estimated_bytes``: the
    latency and the footprint that it was chosen by.
    """

    nest: Nest
    arrays: NestArrays
    tree: Tree
    tile: tuple[int, ...]
    order: tuple[int, ...]
    register_tile: tuple[int, ...]
    register_order: tuple[int, ...]
    elements: tuple[int, ...]
    stages: int
    parallel: tuple[tuple[int, int], ...]
    retained: tuple[dict[int, int], ...]
    misfit_bytes: int
    estimated_s: float
    estimated_bytes: int
    spilled: frozenset[int]
    split: tuple[tuple[int, int], ...]
    chosen: tuple[str, ...]
    notes: tuple[str, ...]
    further: tuple[Further, ...] = ()

    @property
    def tiles(self) -> tuple[tuple[int, ...], ...]:
        """The tile in each buffer, outermost first."""
        return (self.tile, *(buffer.tile for buffer in self.further))


def _limits(problem: Problem, knobs: Knobs, sums_held: bool) -> NDArray[np.float64]:
    out = np.zeros(n.LIMITS)
    machine = problem.machine
    registers = machine.accelerator.registers
    out[n.L_CAPACITY] = machine.capacity_bytes
    out[n.L_CORES] = max(1, machine.cores // prod(knobs.split.values()))
    if registers is None:
        out[n.L_REGISTERS] = 1e30
    elif registers.model == "accumulator":
        out[n.L_REGISTERS] = registers.capacity_bytes
    else:
        out[n.L_REGISTERS] = 2.0 * registers.per_core  # half of the file: the rest is operands and addresses
        out[n.L_FILE] = 4.0 * registers.per_core
        out[n.L_THREADS], out[n.L_BLOCKS] = registers.threads_max, registers.blocks_max
        out[n.L_BLOCK_THREADS], out[n.L_THREAD_BYTES] = knobs.threads, 2.0 * registers.per_thread_max
    out[n.L_ROOM] = out[n.L_REGISTERS] if sums_held else 0.0
    out[n.L_DOUBLE] = machine.accelerator.buffer.double_buffer
    out[n.L_STAGES] = 1 if not machine.accelerator.buffer.double_buffer else knobs.stages
    out[n.L_LISTED] = len(knobs.order)
    out[n.L_FURTHER] = problem.level > 0
    out[n.L_LEVELS] = 2 if machine.levels == 2 else 0
    out[n.L_NEAR], out[n.L_FAR], out[n.L_SHARE] = sectors_and_share(machine.accelerator)
    return out


def best_mapping(
    problem: Problem,
    knobs: Knobs,
    homes: frozenset[int],
    spilled: frozenset[int],
    sums_held: bool = True,
    spare_bytes: int = 0,
) -> Mapping:
    """The search's winner with these intermediates at home in the registers, and outside.

    ``sums_held`` False: no sum stays in the registers while its tile of terms changes. ``spare_bytes`` of the buffer
    are left free.
    """
    space = problem.space
    arrays = problem.arrays
    dims = len(space.extents)
    units = units_of(problem)
    held = np.array(space.extents, np.int64)
    for role in problem.roles:
        if role is not None:
            for d, size in held_tile(problem, role, space.extents)[0].items():
                held[d] = min(held[d], size)
    ops, acc, ten = arrays.ops.copy(), arrays.acc.copy(), arrays.ten.copy()
    for local in homes:
        ten[local, k.TEN_HOME] = REGISTERS
    for local in spilled:
        ten[local, k.TEN_HOME], ten[local, k.TEN_SPILLED] = OUTER, 1
    for local in knobs.pinned:
        ten[local, k.TEN_PINNED] = 1
    for producer, consumer, mask in space.online:
        ops[consumer, k.OP_RESCALE] |= mask
        ops[producer, k.OP_STATISTICS] = problem.statistics[producer]
    ops[:, k.OP_AROUND] = [len(path) for path in problem.outside]
    asked = np.full((acc.shape[0], n.ASKED), -1, np.int64)
    for a in range(acc.shape[0]):
        home = ten[acc[a, k.ACC_TENSOR], k.TEN_HOME]
        least = 0 if problem.around is None or home != OUTER else problem.around.least[a]
        wide = problem.around is None or problem.around.wide[a]
        asked[a] = knobs.depth(int(acc[a, k.ACC_TENSOR])), home, least, wide
    limits = _limits(problem, knobs, sums_held)
    limits[n.L_CAPACITY] -= spare_bytes
    figures = problem.machine.figures
    if problem.machine.levels < 2:  # what the units take from the buffer is not counted
        figures = figures.copy()
        figures[c.M_ONCHIP] = UNLIMITED
    reduced = {d for operator in space.operators for d in operator.reductions}
    independent = sum(1 << d for d in range(dims) if d not in reduced)
    score = np.zeros(n.SCORES)
    tile = np.zeros(dims, np.int64)
    orders = np.zeros((1, 0), np.int64)
    best = 0
    bundles = bundles_of(problem, knobs)
    for fine in (False, True):
        ladder, rungs = ladders(problem, knobs, bundles, units, fine)
        least = np.where(ladder > 0, ladder, 1 << 62).min(axis=(0, 1), initial=1 << 62)
        cut = {d for d in range(dims) if least[d] < space.extents[d]}
        orders = orders_of(problem, knobs, bundles, cut)
        path, lengths, loops = _room(problem, knobs)
        best = s.search(
            ops, acc, arrays.axes, ten, arrays.extents, problem.barred, orders, asked, np.array(units, np.int64),
            held, problem.mat, problem.rate, problem.vector, figures, independent, limits, ladder, rungs,
            _EVALUATIONS, path, lengths, loops, tile, score,
        )  # fmt: skip
        if score[n.S_MISFIT] == 0.0 or all(d in knobs.tile for d in range(dims)):
            break
    best = _polished(
        problem,
        knobs,
        figures,
        ops,
        acc,
        ten,
        asked,
        orders,
        best,
        units,
        held,
        independent,
        limits,
        tile,
        score,
    )
    path, lengths, loops = _room(problem, knobs)
    split = np.ones(dims, np.int64)
    s.assess(
        ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[best], asked,
        np.array(units, np.int64), held, problem.mat, problem.rate, problem.vector, figures, independent, limits,
        np.zeros((acc.shape[0], CROSSED), np.int64), np.zeros(ops.shape[0], np.int64), np.zeros_like(path),
        np.zeros((k.WORK_ROWS, max(acc.shape[0], ops.shape[0]) + 2), np.int64), arrays.extents.copy(), split,
        np.zeros((2 * path.shape[1] + 2, n.SPAN_COLUMNS)), tile, score, 0.0,
    )  # fmt: skip
    order = tuple(orders[best].tolist())
    homes = frozenset(local for local in homes if ten[local, k.TEN_HOME] == REGISTERS)
    return _mapped(
        problem, knobs, homes, spilled, order, [int(size) for size in tile], acc, score, split.tolist()
    )


def _polished(
    problem: Problem,
    knobs: Knobs,
    figures: NDArray[np.float64],
    ops: NDArray[np.int64],
    acc: NDArray[np.int64],
    ten: NDArray[np.int64],
    asked: NDArray[np.int64],
    orders: NDArray[np.int64],
    best: int,
    units: list[int],
    held: NDArray[np.int64],
    independent: int,
    limits: NDArray[np.float64],
    tile: NDArray[np.int64],
    score: NDArray[np.float64],
) -> int:
    """Let go of bundles, taps and rungs: each dim on its own, from the best tile and from a few drawn ones.

    Of the polished ones the walk over the steps decides. Improves ``tile`` and ``score``; returns the number of the
    order.
    """
    arrays = problem.arrays
    sizes = single_sizes(problem, knobs, units)
    floor = float(score[n.S_FLOOR])
    path, lengths, loops = _room(problem, knobs)
    unit = np.array(units, np.int64)
    contractions = sum(role is not None for role in problem.roles)
    least = np.inf
    start, fits, begin = tile.copy(), score.copy(), best
    several = problem.machine.cores > 1
    draws, budget = (_DRAWS_SPLIT, _POLISHED_SPLIT) if several else (_DRAWS, _POLISHED)
    for draw in range(draws[min(2, contractions)] + 1):
        trial, mark, number = start.copy(), fits.copy(), begin
        if draw:
            number = s.scatter(
                ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders, asked, unit,
                held, problem.mat, problem.rate, problem.vector, figures, independent, limits, sizes, _TRIES, draw,
                floor, trial, mark,
            )  # fmt: skip
        s.polish(
            ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[number], asked,
            unit, held, problem.mat, problem.rate, problem.vector, figures, independent, limits, sizes, budget, False,
            floor, trial, mark,
        )  # fmt: skip
        # Fitting and needless refetches are the score's; among equals the walk decides.
        if draw and (mark[n.S_MISFIT], mark[n.S_REFETCH]) > (score[n.S_MISFIT], score[n.S_REFETCH]):
            continue
        cost = float(mark[n.S_COST])
        if problem.around is None:  # a further buffer's steps are part of those of the outermost one
            cost = s.walked_cost(
                ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[number], asked,
                unit, held, problem.mat, problem.rate, problem.vector, figures, independent, limits, trial, mark.copy(),
                floor,
            )  # fmt: skip
        if not draw or mark[n.S_MISFIT] < score[n.S_MISFIT] or cost < s.WORTH * least:
            tile[:], score[:], best, least = trial, mark, number, cost
    # Where cores are dealt and the steps of several contractions alternate, the estimate is off by some percent: the
    # walk has the last word.
    if several and contractions > 1 and problem.around is None:
        score[n.S_COST] = least
        s.polish(
            ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[best], asked, unit,
            held, problem.mat, problem.rate, problem.vector, figures, independent, limits, sizes, _WALKED, True, floor,
            tile, score,
        )  # fmt: skip
        least = float(score[n.S_COST])
    # A small last piece costs more than its share: even cuts, and one cut fewer, by the walk.
    for d in np.flatnonzero(sizes[:, 0] > 0).tolist() if problem.around is None else []:
        extent = problem.space.extents[d]
        trips = -(-extent // int(tile[d]))
        if extent % int(tile[d]) == 0:
            continue
        for size in {-(-extent // trips), -(-extent // max(1, trips - 1))} - {int(tile[d])}:
            trial, mark = tile.copy(), score.copy()
            trial[d] = size
            cost = s.walked_cost(
                ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[best], asked,
                unit, held, problem.mat, problem.rate, problem.vector, figures, independent, limits, trial, mark,
                floor,
            )  # fmt: skip
            fits = mark[n.S_MISFIT] == 0.0 and not 0.0 < floor < mark[n.S_FETCHED]
            if fits and cost < s.WORTH * least:
                tile[:], score[:], least = trial, mark, cost
    return best


def _room(problem: Problem, knobs: Knobs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Arrays for paths, their lengths and loops; filled where the user gave a tree."""
    operators, dims = len(problem.space.operators), len(problem.space.extents)
    if knobs.tree is None:
        given = 0 if problem.around is None else len(problem.around.loops)
        path = np.zeros((operators, max(map(len, problem.outside)) + dims + 1), np.int64)
        loops = np.zeros((given + operators * dims + 1, WIDE_LOOPS), np.int64)
        if problem.around is not None:
            loops[:given, : k.LOOP_COLUMNS] = problem.around.loops
            for o, outer in enumerate(problem.outside):
                path[o, : len(outer)] = outer
        return path, np.zeros(operators, np.int64), loops
    chains = paths(knobs.tree)
    longest = max((len(loops) for loops, _ in chains), default=0)
    count = 1 + max((loop for loops, _ in chains for loop in loops), default=-1)
    path = np.zeros((operators, longest + 1), np.int64)
    lengths = np.array([len(loops) for loops, _ in chains], np.int64)
    loops = np.zeros((count, WIDE_LOOPS), np.int64)
    loops[:, k.LOOP_FIRST] = operators
    for o, (numbers, over) in enumerate(chains):
        path[o, : len(numbers)] = numbers
        for loop, dim in zip(numbers, over, strict=True):
            loops[loop, k.LOOP_DIM] = dim
            loops[loop, k.LOOP_FIRST] = min(loops[loop, k.LOOP_FIRST], o)
            loops[loop, k.LOOP_LAST] = o
    return path, lengths, loops


# From the winner to a nest.


def _mapped(
    problem: Problem,
    knobs: Knobs,
    homes: frozenset[int],
    spilled: frozenset[int],
    order: tuple[int, ...],
    tile: list[int],
    acc: NDArray[np.int64],
    score: NDArray[np.float64],
    split: list[int],
) -> Mapping:
    space, machine, around = problem.space, problem.machine, problem.around
    looped = [d for d in order if tile[d] < space.extents[d]]
    tree = knobs.tree if knobs.tree is not None else canonical(space, looped)
    chains = paths(tree)
    rows = [] if around is None else list(around.nest.loops[: len(around.loops)])
    given = len(rows)
    loops: dict[int, tuple[int, int, int]] = {}
    for outer, (numbers, dims) in zip(problem.outside, chains, strict=True):
        for i, (loop, d) in enumerate(zip(numbers, dims, strict=True)):
            loops[loop] = (d, tile[d], given + numbers[i - 1] if i else outer[-1] if outer else -1)
    rows += [loops[i] for i in range(len(loops))]
    operators: list[NestOperator] = []
    registers: dict[int, int] = {}
    outer_order: list[int] = []
    elements: list[int] = []
    nests: list[Private] = []
    # Preorder: private loops are appended per operator; parents are known by number, so any order will do.
    position = 0
    for o, operator in enumerate(problem.base.operators if around is None else around.nest.operators):
        numbers, dims = chains[o]
        outer = problem.outside[o]
        private = private_nest(problem, knobs, o, tile)
        parent = given + numbers[-1] if numbers else outer[-1] if outer else -1
        for d, size in private.loops:
            rows.append((d, size, parent))
            parent = len(rows) - 1
        if problem.roles[o] is not None:
            for d, size in private.tile.items():
                registers.setdefault(d, size)
            nests.append(private)
            outer_order.extend(d for d in private.order if d not in outer_order)
            elements.extend(d for d in private.elements if d not in elements)
        tree_depth = len(outer) + len(numbers)
        path = [rows[loop][:2] for loop in outer] + [(d, tile[d]) for d in dims] + private.loops
        reads: list[NestAccess] = []
        writes: list[NestAccess] = []
        for access in operator.reads + operator.writes:
            depth0 = int(acc[position, k.ACC_DEPTH0])
            wanted = knobs.retain.get(access.tensor)
            if wanted is not None and around is not None:
                depth0 = min(len(path), wanted) if wanted > tree_depth else depth0
            elif wanted is not None and problem.base.tensors[access.tensor].home == OUTER:
                shown = [d for d in (*knobs.order, *looped) if d in operator.dims]
                shown = list(dims if knobs.tree is not None else dict.fromkeys(shown))
                if wanted > len(shown):
                    depth0 = min(len(path), tree_depth + wanted - len(shown))
            write = len(reads) == len(operator.reads)
            depths = (depth0,)
            if around is not None:
                depths = (*(min(depth, depth0) for depth in access.depth[: problem.level]), depth0)
            if machine.levels == 2:
                reach = (depth0, int(acc[position, k.ACC_DEPTH1]))
                inner = register_depth(problem, o, access, reach, path, tree_depth, private, write, homes)
                if access.tensor in knobs.register_retain:
                    inner = min(len(path), knobs.register_retain[access.tensor])
                depths = (*depths, inner)
            (writes if write else reads).append(replace(access, depth=depths))
            position += 1
        operators.append(
            replace(operator, leaf=parent, tree_depth=tree_depth, reads=tuple(reads), writes=tuple(writes))
        )
    operators = _online(problem, operators, chains, tile)
    stages = knobs.stages if knobs.stages > 2 else int(score[n.S_STAGES])
    if not machine.accelerator.buffer.double_buffer:
        stages = 1
    splits = shared_sums(problem, knobs, chains, tile, spilled)
    if around is None:
        tensors = tuple(
            replace(
                tensor,
                home=REGISTERS if i in homes else OUTER if i in spilled else tensor.home,
                pinned=i in knobs.pinned,
                spilled=i in spilled,
            )
            for i, tensor in enumerate(problem.base.tensors)
        )
        shared = tuple((i, s) for i, _, s in splits)
        nest = Nest(space.extents, tuple(rows), tuple(operators), tensors, stages, shared)
    else:
        tensors = tuple(
            replace(tensor, home=_inner_home(problem, homes, spilled, i, tensor.home))
            for i, tensor in enumerate(around.nest.tensors)
        )
        nest = replace(
            around.nest,
            loops=tuple(rows),
            operators=tuple(operators),
            tensors=tensors,
            inner_stages=(*around.nest.inner_stages, stages),
        )
    parallel = tuple((d, share) for d, share in enumerate(split) if share > 1)
    if knobs.parallel:
        parallel = asked_split(problem, knobs, chains, tile)
    return Mapping(
        nest=nest,
        arrays=repack(problem.arrays, nest),
        tree=tree,
        tile=tuple(tile),
        order=(*knobs.order, *(d for d in looped if d not in knobs.order)),
        register_tile=tuple(registers.get(d, tile[d]) for d in range(len(tile))),
        register_order=tuple(outer_order) if _said([nest.order for nest in nests], outer_order) else (),
        elements=knobs.elements
        or (tuple(elements) if _said([nest.elements for nest in nests], elements) else ()),
        stages=stages,
        parallel=parallel,
        retained=(knobs.retain, knobs.register_retain),
        misfit_bytes=int(score[n.S_MISFIT]),
        estimated_s=float(score[n.S_SECONDS]),
        estimated_bytes=int(score[n.S_FOOTPRINT]),
        spilled=spilled,
        split=tuple((d, share) for _, d, share in splits),
        chosen=_chosen(problem, knobs),
        notes=tuple(knobs.notes),
    )


def _inner_home(
    problem: Problem, homes: frozenset[int], spilled: frozenset[int], local: int, outer: int
) -> int:
    """Where a tensor lives once there is a further buffer; ``outer``: where it lived without."""
    if local in homes:
        return REGISTERS
    if problem.base.tensors[local].home == OUTER or local in spilled:
        return min(outer, problem.level)
    return problem.level + 1


def _said(orders: list[list[int]], together: list[int]) -> bool:
    """Whether one order of dims, as a plan gives it, says the order of every operator."""
    return all([d for d in together if d in order] == order for order in orders)


def _online(
    problem: Problem,
    operators: list[NestOperator],
    chains: list[tuple[tuple[int, ...], tuple[int, ...]]],
    tile: list[int],
) -> list[NestOperator]:
    """Running statistics of the producers, and the rescaling of the consumers, where a reduction loop is shared."""
    out = list(operators)
    for producer, consumer, mask in problem.space.online:
        mine, dims = chains[producer]
        shared = tuple(
            d
            for loop, d in zip(mine, dims, strict=True)
            if loop in chains[consumer][0] and mask >> d & 1 and tile[d] < problem.space.extents[d]
        )
        if not shared:
            continue
        out[producer] = replace(out[producer], statistics=problem.statistics[producer])
        out[consumer] = replace(out[consumer], rescale=tuple(sorted({*out[consumer].rescale, *shared})))
    return out


def _chosen(problem: Problem, knobs: Knobs) -> tuple[str, ...]:
    """Names of the parts that the user left open."""
    buffer = problem.machine.accelerator.buffer.name
    out: list[str] = []
    if any(extent > 1 and d not in knobs.tile for d, extent in enumerate(problem.space.extents)):
        out.append(f"{buffer}.tile")
    if not knobs.order:
        out.append(f"{buffer}.loop_order")
    if any(t.home == OUTER and i not in knobs.retain for i, t in enumerate(problem.base.tensors)):
        out.append(f"{buffer}.retain")
    if knobs.tree is None:
        out.append("tree")
    if problem.machine.levels == 2 and not knobs.register_tile:
        out.append("registers.tile")
    if not knobs.elements:
        out.append("elements")
    if not knobs.parallel:
        out.append("parallel")
    if not knobs.stages:
        out.append("stages")
    return tuple(out)
