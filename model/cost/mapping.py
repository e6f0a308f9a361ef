"""How a group is mapped: the user's knobs, and for the rest what the tool chooses (docs/loop-tree.md, section 6).

Knows a group's space, one machine and the knobs of one group; makes a `Nest`. It knows no seconds: `solve.py` walks
what is chosen here. User-set parts are respected exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import BITS
from ..graph.graph import OperatorGraph, OpKind
from ..plan.plan import FusionGroup
from . import search_kernels as s
from . import sweep as k
from . import timing as t
from .layout import NestArrays, axis_dims, pack, repack, whole_elements
from .nest import BUFFER, OUTER, REGISTERS, Nest, NestAccess, NestOperator, NestTensor, WindowAxis
from .tree import Tree, canonical, check, from_text, paths, plain_name
from .unify import GroupSpace, SpaceAccess, SpaceOperator
from .units import Machine, compute_type, element_type

BUFFER_NAME, REGISTERS_NAME = "buffer", "registers"
_STATISTICS = 2  # running values per row: maximum and sum, mean and variance
_EVALUATIONS = 1200  # of the search, per group
_PERMUTED = 4  # dims whose loop order is searched; further ones keep their order, innermost


@dataclass(frozen=True, slots=True)
class Roles:
    """Group dims by what a contraction does with them; ``outer`` are products of a batch, groups and taps."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    outer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One group on one machine before anything is chosen: a nest without loops and what its operators ask.

    ``names`` are the members' names as trees write them; ``tensor_names`` those of the local tensors.
    """

    space: GroupSpace
    machine: Machine
    base: Nest
    arrays: NestArrays
    roles: tuple[Roles | None, ...]
    mat: NDArray[np.int64]
    rate: NDArray[np.float64]
    vector: NDArray[np.float64]
    barred: NDArray[np.int64]
    names: tuple[str, ...]
    tensor_names: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped group: the nest and, in group dims, what it was made of.

    ``depth`` per access (reads, then writes, operator by operator) is counted over the loops as shown.
    ``parallel`` per dim the cores over it. ``misfit_bytes`` > 0: the least that was found does not fit.
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
    misfit_bytes: int
    chosen: tuple[str, ...]
    notes: tuple[str, ...]


def roles_of(space: GroupSpace, operator: SpaceOperator, im2col: bool) -> Roles | None:
    """Which dims of a contraction are rows, columns, sums and separate products; None where it is no product.

    The two operands are the first two that touch a reduction dim. A dim that both operands and the output have is
    a batch or a group: separate products. The taps of a window are separate products too, unless the machine
    unrolls windows (im2col).
    """
    sums = set(operator.reductions)
    touched = [{d for axis in access.axes for d in axis_dims(axis)} for access in operator.reads]
    operands = [i for i, dims in enumerate(touched) if dims & sums]
    if len(operands) < 2 or not operator.writes:
        return None
    a, b = touched[operands[0]], touched[operands[1]]
    out = {d for axis in operator.writes[0].axes for d in axis_dims(axis)}
    taps: set[int] = set()
    if not im2col:
        axes = operator.reads[operands[0]].axes + operator.reads[operands[1]].axes
        taps = {axis.r for axis in axes if isinstance(axis, WindowAxis)} & sums
    m = tuple(d for d in operator.dims if d in a and d in out and d not in b)
    n = tuple(d for d in operator.dims if d in b and d in out and d not in a)
    inner = tuple(d for d in operator.dims if d in sums and d in a and d in b and d not in taps)
    rest = tuple(d for d in operator.dims if d not in m + n + inner)
    return Roles(m, n, inner, rest)


def pose(
    graph: OperatorGraph, group: FusionGroup, space: GroupSpace, machine: Machine, precision: str
) -> Problem:
    """The problem of mapping `group`; `precision` is already the group's own where it has one.

    Raises
    ------
    OverflowError
        Where counts would not fit 64-bit integers.
    """
    unit = machine.accelerator.matrix_unit
    members = [graph.operators[i] for i in group.operators]
    roles: list[Roles | None] = []
    rate = np.ones(len(space.operators))
    vector = np.zeros(len(space.operators))
    mat = np.zeros((len(space.operators), t.MAT_COLUMNS), np.int64)
    warnings: list[str] = []
    operators: list[NestOperator] = []
    for i, operator in enumerate(space.operators):
        member = members[operator.member]
        contraction = member.kind is OpKind.CONTRACTION
        role = roles_of(space, operator, unit is not None and unit.conv == "im2col") if contraction else None
        if contraction and role is None:
            role = Roles(operator.dims, (), (), ())
        roles.append(role)
        vector[i] = machine.operator_cycles(member)
        if role is not None and unit is not None:
            mat[i] = (1, *(sum(1 << d for d in dims) for dims in (role.m, role.n, role.k, role.outer)))
            rate[i], note = machine.rate(compute_type(graph, member, precision))
            if note and note not in warnings:
                warnings.append(note)
        operators.append(
            NestOperator(
                leaf=-1,
                tree_depth=0,
                dims=operator.dims,
                reductions=operator.reductions,
                contraction=contraction,
                pointwise=member.kind is OpKind.POINTWISE,
                reads=tuple(_flat(access, machine.levels) for access in operator.reads),
                writes=tuple(_flat(access, machine.levels) for access in operator.writes),
            )
        )
    tensors: list[NestTensor] = []
    for local, index in enumerate(space.tensors):
        bits = BITS.get(element_type(graph.tensors[index].dtype, precision), 0)
        size = 0
        if space.producer[local] >= 0:
            for access in space.operators[space.producer[local]].writes:
                if access.tensor == local:
                    size = access.fixed if access.fixed >= 0 else whole_elements(access.axes, space.extents)
        home = BUFFER if space.intermediate(local) else OUTER
        exported = home != OUTER and space.exported[local]
        tensors.append(NestTensor(bits, machine.partial_bits(bits), home, exported, size))
    base = Nest(space.extents, (), tuple(operators), tuple(tensors))
    barred = np.zeros((len(operators), len(operators)), np.int64)
    for producer, consumer, mask in space.barred:
        barred[producer, consumer] = mask
    return Problem(
        space=space,
        machine=machine,
        base=base,
        arrays=pack(base),
        roles=tuple(roles),
        mat=mat,
        rate=rate,
        vector=vector,
        barred=barred,
        names=tuple(
            plain_name(members[op.member].name, f"{members[op.member].op_type}_{members[op.member].index}")
            for op in space.operators
        ),
        tensor_names=tuple(graph.tensors[index].name for index in space.tensors),
        warnings=tuple(warnings),
    )


def _flat(access: SpaceAccess, levels: int) -> NestAccess:
    return NestAccess(access.tensor, access.axes, (0,) * levels, access.fixed)


class _Knobs:
    """The user's settings of one group in group dims and local tensors; unknown names become notes."""

    def __init__(self, problem: Problem, group: FusionGroup) -> None:
        self.problem = problem
        self.notes: list[str] = []
        self.number = {name: d for d, name in enumerate(problem.space.names)}
        machine = problem.machine.accelerator
        known = {machine.buffer.name, BUFFER_NAME}
        outer = [level for level in group.levels if level.memory in known]
        inner = [level for level in group.levels if level.memory == REGISTERS_NAME]
        for level in group.levels:
            if level.memory not in known | {REGISTERS_NAME}:
                self.notes.append(
                    f"{level.memory} is no explicit level of {machine.name}: its tile is not used"
                )
        self.tile = self.sizes([pair for level in outer for pair in level.tile])
        self.order = self.dims([name for level in outer for name in level.loop_order])
        self.retain = self.depths([pair for level in outer for pair in level.retain])
        self.register_tile = self.sizes([pair for level in inner for pair in level.tile])
        self.register_order = self.dims([name for level in inner for name in level.loop_order])
        self.register_retain = self.depths([pair for level in inner for pair in level.retain])
        self.elements = self.dims(list(group.elements))
        self.parallel = self.sizes(list(group.parallel), clamp=False)
        self.stages = group.stages
        self.tree: Tree | None = None
        if group.tree:
            names = {name: i for i, name in enumerate(problem.names)}
            self.tree = from_text(group.tree, problem.space, names)
            check(problem.space, self.tree, problem.names)

    def _dim(self, name: str) -> int | None:
        if name not in self.number:
            self.notes.append(
                f"no dim {name!r} in this group; its dims are {', '.join(self.problem.space.names)}"
            )
        return self.number.get(name)

    def sizes(self, pairs: list[tuple[str, int]], clamp: bool = True) -> dict[int, int]:
        out: dict[int, int] = {}
        for name, size in pairs:
            d = self._dim(name)
            if d is not None:
                out[d] = max(1, min(size, self.problem.space.extents[d]) if clamp else size)
        return out

    def dims(self, names: list[str]) -> tuple[int, ...]:
        found = [d for d in (self._dim(name) for name in names) if d is not None]
        return tuple(dict.fromkeys(found))

    def depths(self, pairs: list[tuple[str, int]]) -> dict[int, int]:
        out: dict[int, int] = {}
        for name, depth in pairs:
            if name in self.problem.tensor_names:
                out[self.problem.tensor_names.index(name)] = max(0, depth)
            else:
                self.notes.append(f"no tensor {name!r} in this group: its retention is not used")
        return out


def choose(problem: Problem, group: FusionGroup) -> Mapping:
    """Map a group: the knobs as they are set, the rest by search.

    Raises
    ------
    PlanError
        Where the group's tree is not legal.
    """
    knobs = _Knobs(problem, group)
    homes = _register_homes(problem)
    found = _found(problem, knobs, homes)
    apart = frozenset(local for local in homes if not _under_one_loop(problem, found, local))
    if apart:
        homes -= apart
        found = _found(problem, knobs, homes)
    registers = problem.machine.accelerator.registers
    if homes and registers is not None:
        live = _register_bytes(problem, found)
        limit = registers.capacity_bytes if registers.model == "accumulator" else 4 * registers.per_core
        if live > limit:  # the fused epilogue does not fit beside the sums: its values live in the buffer
            found = _found(problem, knobs, frozenset())
    return found


def _under_one_loop(problem: Problem, mapping: Mapping, local: int) -> bool:
    """Whether a tensor's producer and readers stand under the same innermost loop of the tree."""
    chains = paths(mapping.tree)
    made = chains[problem.space.producer[local]][0]
    users = [chains[r][0] for r in problem.space.readers[local]]
    if any(users[0] != loops for loops in users) or users[0] != made[: len(users[0])]:
        return False
    others = [loops for o, (loops, _) in enumerate(chains) if o != problem.space.producer[local]]
    return all(loop not in loops for loop in made[len(users[0]) :] for loops in others)


def _register_bytes(problem: Problem, mapping: Mapping) -> int:
    from .evaluate import counts_of

    return counts_of(mapping.nest, mapping.arrays, fragments=False).footprint_bytes[1]


def _register_homes(problem: Problem) -> frozenset[int]:
    """Intermediates that may live in the registers: read by pointwise operators only, with all their dims."""
    if problem.machine.levels < 2:
        return frozenset()
    space = problem.space
    homes: list[int] = []
    for local, tensor in enumerate(problem.base.tensors):
        if tensor.home == OUTER:
            continue
        writer = space.operators[space.producer[local]]
        access = next(a for a in writer.writes if a.tensor == local)
        dims = {d for axis in access.axes for d in axis_dims(axis)}
        readers = space.readers[local]
        if access.fixed < 0 and all(
            problem.base.operators[r].pointwise and dims <= set(space.operators[r].dims) for r in readers
        ):
            homes.append(local)
    return frozenset(homes)


# The search.


def _limits(problem: Problem, stages: int) -> NDArray[np.float64]:
    out = np.zeros(s.LIMITS)
    machine = problem.machine
    registers = machine.accelerator.registers
    out[s.L_CAPACITY] = machine.capacity_bytes
    out[s.L_CORES] = machine.cores
    out[s.L_SIMT] = machine.simt
    if registers is None:
        out[s.L_REGISTERS] = 1e30
    elif registers.model == "accumulator":
        out[s.L_REGISTERS] = registers.capacity_bytes
    else:
        out[s.L_REGISTERS] = 2.0 * registers.per_core  # half of the file: the rest is operands and addresses
    out[s.L_DOUBLE] = machine.accelerator.buffer.double_buffer
    out[s.L_STAGES] = 1 if not machine.accelerator.buffer.double_buffer else stages
    return out


def _units(problem: Problem) -> list[int]:
    """The aligned size of each dim: what the matrix unit takes at once, lanes for vector work, else 1."""
    space, machine = problem.space, problem.machine.accelerator
    unit = [1] * len(space.extents)
    matrix = machine.matrix_unit
    taken: set[int] = set()
    for role in problem.roles:
        if role is None or matrix is None:
            continue
        if matrix.kind == "systolic":
            sizes = {
                "output-stationary": (matrix.rows, matrix.columns, 1),
                "weight-stationary": (1, matrix.columns, matrix.rows),
                "input-stationary": (matrix.columns, 1, matrix.rows),
            }[matrix.dataflow]
        else:
            sizes = matrix.mma
        for dims, size in zip((role.m, role.n, role.k), sizes, strict=True):
            if dims and dims[-1] not in taken:
                unit[dims[-1]] = max(unit[dims[-1]], size)
                taken.add(dims[-1])
    lanes = 1 if machine.vector_unit is None else machine.vector_unit.lanes
    if not taken:
        widest = max(range(len(unit)), key=lambda d: (space.extents[d] > 1, d), default=-1)
        if widest >= 0:
            unit[widest] = lanes
    return unit


def _ladder(extent: int, unit: int, fine: bool) -> list[int]:
    """Tile sizes that are tried: the unit doubled, even cuts rounded up to the unit, the whole extent."""
    sizes = {extent}
    size = 1 if fine else unit
    while size < extent:
        sizes.add(size)
        size *= 2
    for cuts in (2, 3, 4, 6):
        even = -(-extent // cuts)
        aligned = -(-even // unit) * unit
        if aligned < extent:
            sizes.add(aligned)
    return sorted(sizes)


def _orders(problem: Problem, knobs: _Knobs, rungs: list[int]) -> NDArray[np.int64]:
    space = problem.space
    dims = len(space.extents)
    if knobs.tree is not None:
        return np.zeros((1, 0), np.int64)
    looped = [
        d for d in range(dims) if rungs[d] > 1 or knobs.tile.get(d, space.extents[d]) < space.extents[d]
    ]
    if knobs.order:
        rest = [d for d in looped if d not in knobs.order]
        rows = [(*knobs.order, *rest)]
    else:
        reduced = {d for operator in space.operators for d in operator.reductions}
        common = [d for d in looped if d not in reduced and all(d in op.dims for op in space.operators)]
        # Dims that every external operand is cut along cost nothing outermost.
        batch = [d for d in common if _cuts_all(problem, d)]
        rest = [d for d in looped if d not in batch]
        weight = {d: sum(d in op.dims for op in space.operators) for d in rest}
        rest.sort(key=lambda d: (-(d in common), -weight[d], -space.extents[d], d))
        permuted = rest[: _PERMUTED if len(space.operators) <= 6 else 3]
        tails = rest[len(permuted) :]
        rows = [(*batch, *order, *tails) for order in itertools.permutations(permuted)]
    out = np.full((len(rows), dims), -1, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _cuts_all(problem: Problem, dim: int) -> bool:
    return all(
        any(dim in axis_dims(axis) for axis in access.axes)
        for operator in problem.base.operators
        for access in operator.reads + operator.writes
        if problem.base.tensors[access.tensor].home == OUTER and access.fixed < 0
    )


def _found(problem: Problem, knobs: _Knobs, homes: frozenset[int]) -> Mapping:
    space = problem.space
    arrays = problem.arrays
    dims = len(space.extents)
    units = _units(problem)
    held = np.array(space.extents, np.int64)
    for role in problem.roles:
        if role is not None:
            for d, size in _held(problem, role, space.extents)[0].items():
                held[d] = min(held[d], size)
    ops, acc, ten = arrays.ops.copy(), arrays.acc.copy(), arrays.ten.copy()
    for local in homes:
        ten[local, k.TEN_HOME] = REGISTERS
    for producer, consumer, mask in space.online:
        ops[consumer, k.OP_RESCALE] |= mask
        if problem.machine.accelerator.online_statistics:
            ops[producer, k.OP_STATISTICS] = _STATISTICS
    kept = np.full(max(1, acc.shape[0]), -1, np.int64)
    for a in range(acc.shape[0]):
        kept[a] = knobs.retain.get(int(acc[a, k.ACC_TENSOR]), -1)
    limits = _limits(problem, knobs.stages)
    reduced = {d for operator in space.operators for d in operator.reductions}
    independent = sum(1 << d for d in range(dims) if d not in reduced)
    figures = problem.machine.figures
    score = np.zeros(s.SCORES)
    tile = np.zeros(dims, np.int64)
    orders = np.zeros((1, 0), np.int64)
    best = 0
    for fine in (False, True):
        ladders = [
            [knobs.tile[d]] if d in knobs.tile else _ladder(space.extents[d], units[d], fine)
            for d in range(dims)
        ]
        rungs = [len(ladder) for ladder in ladders]
        ladder = np.zeros((dims, max(rungs, default=1)), np.int64)
        for d, sizes in enumerate(ladders):
            ladder[d, : len(sizes)] = sizes
        orders = _orders(problem, knobs, rungs)
        path, lengths, loops = _room(problem, knobs)
        best = s.search(
            ops, acc, arrays.axes, ten, arrays.extents, problem.barred, orders, kept, np.array(units, np.int64),
            held, problem.mat, problem.rate, problem.vector, figures, independent, limits, ladder,
            np.array(rungs, np.int64), _EVALUATIONS, path, lengths, loops, tile, score,
        )  # fmt: skip
        if score[s.S_MISFIT] == 0.0 or all(d in knobs.tile for d in range(dims)):
            break
    path, lengths, loops = _room(problem, knobs)
    s.assess(
        ops, acc, arrays.axes, ten, arrays.extents, problem.barred, loops, path, lengths, orders[best], kept,
        np.array(units, np.int64), held, problem.mat, problem.rate, problem.vector, figures, independent, limits,
        np.zeros((acc.shape[0], 4), np.int64), np.zeros(ops.shape[0], np.int64), np.zeros_like(path),
        np.zeros((k.WORK_ROWS, max(acc.shape[0], ops.shape[0]) + 2), np.int64), arrays.extents.copy(), tile, score,
        0.0,
    )  # fmt: skip
    order = tuple(int(d) for d in orders[best] if d >= 0)
    return _mapped(problem, knobs, homes, order, [int(size) for size in tile], acc, score)


def _room(problem: Problem, knobs: _Knobs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Arrays for paths, their lengths and loops; filled where the user gave a tree."""
    operators, dims = len(problem.space.operators), len(problem.space.extents)
    if knobs.tree is None:
        return (
            np.zeros((operators, dims + 1), np.int64),
            np.zeros(operators, np.int64),
            np.zeros((operators * dims + 1, k.LOOP_COLUMNS), np.int64),
        )
    chains = paths(knobs.tree)
    longest = max((len(loops) for loops, _ in chains), default=0)
    count = 1 + max((loop for loops, _ in chains for loop in loops), default=-1)
    path = np.zeros((operators, longest + 1), np.int64)
    lengths = np.array([len(loops) for loops, _ in chains], np.int64)
    loops = np.zeros((count, k.LOOP_COLUMNS), np.int64)
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
    knobs: _Knobs,
    homes: frozenset[int],
    order: tuple[int, ...],
    tile: list[int],
    acc: NDArray[np.int64],
    score: NDArray[np.float64],
) -> Mapping:
    space, machine = problem.space, problem.machine
    looped = [d for d in order if tile[d] < space.extents[d]]
    tree = knobs.tree if knobs.tree is not None else canonical(space, looped)
    chains = paths(tree)
    loops: dict[int, tuple[int, int, int]] = {}
    for numbers, dims in chains:
        for i, (loop, d) in enumerate(zip(numbers, dims, strict=True)):
            loops[loop] = (d, tile[d], numbers[i - 1] if i else -1)
    rows = [loops[i] for i in range(len(loops))]
    operators: list[NestOperator] = []
    registers: dict[int, int] = {}
    outer_order: list[int] = []
    elements: list[int] = []
    # Preorder: private loops are appended per operator; parents are known by number, so any order will do.
    position = 0
    for o, operator in enumerate(problem.base.operators):
        numbers, dims = chains[o]
        private = _private(problem, knobs, o, tile)
        parent = numbers[-1] if numbers else -1
        for d, size in private.loops:
            rows.append((d, size, parent))
            parent = len(rows) - 1
        if problem.roles[o] is not None:
            for d, size in private.tile.items():
                registers.setdefault(d, size)
            outer_order.extend(d for d in private.order if d not in outer_order)
            elements.extend(d for d in private.elements if d not in elements)
        tree_depth = len(numbers)
        path = [(d, tile[d]) for d in dims] + private.loops
        reads: list[NestAccess] = []
        writes: list[NestAccess] = []
        for access in operator.reads + operator.writes:
            depth0 = int(acc[position, k.ACC_DEPTH0])
            wanted = knobs.retain.get(access.tensor)
            if wanted is not None and problem.base.tensors[access.tensor].home == OUTER:
                shown = [d for d in order if d in operator.dims] if knobs.tree is None else list(dims)
                if wanted > len(shown):
                    depth0 = min(len(path), tree_depth + wanted - len(shown))
            position += 1
            write = len(reads) == len(operator.reads)
            depths = (depth0,)
            if machine.levels == 2:
                inner = _register_depth(problem, o, access, depth0, path, tree_depth, private, write, homes)
                if access.tensor in knobs.register_retain:
                    inner = min(len(path), knobs.register_retain[access.tensor])
                depths = (depth0, inner)
            (writes if write else reads).append(replace(access, depth=depths))
        operators.append(
            replace(operator, leaf=parent, tree_depth=tree_depth, reads=tuple(reads), writes=tuple(writes))
        )
    operators = _online(problem, operators, chains, tile)
    tensors = tuple(
        replace(tensor, home=REGISTERS) if i in homes else tensor
        for i, tensor in enumerate(problem.base.tensors)
    )
    stages = knobs.stages if knobs.stages > 2 else int(score[s.S_STAGES])
    if not machine.accelerator.buffer.double_buffer:
        stages = 1
    nest = Nest(space.extents, tuple(rows), tuple(operators), tensors, stages)
    notes = list(knobs.notes)
    return Mapping(
        nest=nest,
        arrays=repack(problem.arrays, nest),
        tree=tree,
        tile=tuple(tile),
        order=order if knobs.order else tuple(looped),
        register_tile=tuple(registers.get(d, tile[d]) for d in range(len(tile))),
        register_order=tuple(outer_order),
        elements=knobs.elements or tuple(elements),
        stages=stages,
        parallel=_parallel(problem, knobs, chains, tile),
        misfit_bytes=int(score[s.S_MISFIT]),
        chosen=_chosen(problem, knobs),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Private:
    """An operator's private loops: register tile and order, element order, and how many element loops stream."""

    tile: dict[int, int]
    order: list[int]
    elements: list[int]
    streams: int
    loops: list[tuple[int, int]]
    register_loops: int


def _private(problem: Problem, knobs: _Knobs, o: int, tile: list[int]) -> _Private:
    """Register and element loops of one operator.

    By dataflow (SCALE-Sim's): output-stationary holds rows x columns of the output and streams the sum;
    weight-stationary holds sum x columns and streams the rows of the output; input-stationary alike.
    """
    operator = problem.base.operators[o]
    role = problem.roles[o]
    if role is None:
        # Vector work streams through the registers; only sums need their element loops (unfinished sums).
        inner = [d for d in operator.reductions if tile[d] > 1] if problem.machine.levels == 1 else []
        return _Private({}, [], inner, 0, [(d, 1) for d in inner], 0)
    held, streamed, order = _held(problem, role, tile)
    sizes = {d: min(tile[d], held.get(d, tile[d])) for d in operator.dims}
    sizes.update({d: min(size, tile[d]) for d, size in knobs.register_tile.items() if d in sizes})
    if problem.machine.levels == 1:
        sizes = {d: tile[d] for d in operator.dims}
    if knobs.register_order:
        order = [d for d in knobs.register_order if d in order] + [
            d for d in order if d not in knobs.register_order
        ]
    order = [d for d in order if sizes[d] < tile[d]]
    if knobs.elements:
        inner = [d for d in knobs.elements if d in sizes] + [
            d for d in operator.dims if d not in knobs.elements
        ]
        streams = [d for d in inner if sizes[d] > 1]
        streaming = 0
        while streaming < len(streams) and streams[streaming] in streamed:
            streaming += 1
    else:
        inner = [d for d in streamed if d in sizes] + [d for d in operator.dims if d not in streamed]
        streaming = sum(1 for d in streamed if sizes[d] > 1)
    inner = [d for d in inner if sizes[d] > 1]
    loops = [(d, sizes[d]) for d in order] + [(d, 1) for d in inner]
    return _Private(sizes, order, inner, streaming, loops, len(order))


def _held(problem: Problem, role: Roles, tile: Sequence[int]) -> tuple[dict[int, int], list[int], list[int]]:
    """Register tile by dim, the dims that stream through it, and the order of the register loops."""
    unit = problem.machine.accelerator.matrix_unit
    sums = [d for d in role.outer if any(d in op.reductions for op in problem.base.operators)]
    batch = [d for d in role.outer if d not in sums]
    held = dict.fromkeys(role.outer, 1)

    def spread(dims: tuple[int, ...], room: int) -> None:
        for d in reversed(dims):
            held[d] = max(1, min(tile[d], room))
            room //= held[d]

    if unit is None or unit.kind == "tensor-core":
        # A warp's part of a block's tile, or a thread's where there is no matrix unit.
        rows, columns = (64, 32) if unit is not None else (8, 8)
        spread(role.m, rows)
        spread(role.n, columns)
        return held, [*sums, *role.k], [*batch, *role.m, *role.n]
    if unit.dataflow == "output-stationary":
        spread(role.m, unit.rows)
        spread(role.n, unit.columns)
        return held, [*sums, *role.k], [*batch, *role.m, *role.n]
    if unit.dataflow == "weight-stationary":
        spread(role.n, unit.columns)
        spread(role.k, unit.rows)
        return held, list(role.m), [*batch, *role.n, *sums, *role.k]
    spread(role.m, unit.columns)
    spread(role.k, unit.rows)
    return held, list(role.n), [*batch, *role.m, *sums, *role.k]


def _register_depth(
    problem: Problem,
    o: int,
    access: NestAccess,
    depth0: int,
    path: list[tuple[int, int]],
    tree_depth: int,
    private: _Private,
    write: bool,
    homes: frozenset[int],
) -> int:
    """The depth at the registers (docs/loop-tree.md, section 2, "Between buffer and registers")."""
    if problem.roles[o] is None:
        return len(path) if write and access.tensor in homes else tree_depth
    if not write:
        return tree_depth + private.register_loops + private.streams
    operator = problem.base.operators[o]
    touched = {d for axis in access.axes for d in axis_dims(axis)}
    size = list(problem.space.extents)
    for j, (d, step) in enumerate(path):
        if j >= depth0 and d in operator.dims and d not in touched and step < size[d]:
            return j
        size[d] = min(size[d], step)
    return max(depth0, tree_depth + private.register_loops)


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
        if problem.machine.accelerator.online_statistics:
            out[producer] = replace(out[producer], statistics=_STATISTICS)
        out[consumer] = replace(out[consumer], rescale=tuple(sorted({*out[consumer].rescale, *shared})))
    return out


def _parallel(
    problem: Problem,
    knobs: _Knobs,
    chains: list[tuple[tuple[int, ...], tuple[int, ...]]],
    tile: list[int],
) -> tuple[tuple[int, int], ...]:
    """Cores over the outermost independent loops: the fewest waves, then the fewest cores, then outermost first."""
    space, cores = problem.space, problem.machine.cores
    reduced = {d for operator in space.operators for d in operator.reductions}
    leading: list[int] = []
    for _, dims in chains:
        for d in dims:
            if d in reduced:
                break
            if d not in leading and tile[d] < space.extents[d]:
                leading.append(d)
    if knobs.parallel:
        return tuple((d, size) for d, size in knobs.parallel.items() if d in leading)
    if cores <= 1 or not leading:
        return ()
    trips = [-(-space.extents[d] // tile[d]) for d in leading[:3]]
    best: tuple[int, int, tuple[int, ...]] | None = None
    for split in _splits(trips, cores):
        waves = prod(-(-n // c) for n, c in zip(trips, split, strict=True))
        key = (waves, prod(split), tuple(-c for c in split))
        if best is None or key < best:
            best = key
    assert best is not None
    return tuple((d, -c) for d, c in zip(leading, best[2], strict=False) if c < -1)


def _splits(trips: list[int], cores: int) -> list[tuple[int, ...]]:
    """Ways to split up to `cores` over loops: per loop only the counts that change its waves."""
    if not trips:
        return [()]
    counts = sorted({-(-trips[0] // -(-trips[0] // c)) for c in range(1, min(trips[0], cores) + 1)})
    return [(c, *rest) for c in counts for rest in _splits(trips[1:], cores // c)]


def _chosen(problem: Problem, knobs: _Knobs) -> tuple[str, ...]:
    """Names of the parts that the user left open."""
    buffer = problem.machine.accelerator.buffer.name
    out: list[str] = []
    if len(knobs.tile) < len(problem.space.extents):
        out.append(f"{buffer}.tile")
    if not knobs.order:
        out.append(f"{buffer}.loop_order")
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
