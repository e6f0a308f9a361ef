"""The slow plain truth: walks a fusion group's loop tree one iteration at a time and counts what it moves.

Written from docs/loop-tree.md, sections 2 and 3. Knows plain tuples and imports nothing of the cost room. A
machine is played literally: it steps through every loop down to the last piece, works out which elements of
each operand the tile holds at that moment (as sets of coordinates, padding left out), fetches when the tile's
loops have moved on, remembers for every single output element how often it was visited, and runs an operator
again wherever the tree says so. That a tile which is not fetched again really is the one at hand is asserted
at every step.

Groups are small: extents up to about 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import NamedTuple

OUTER, BUFFER, REGISTERS = 0, 1, 64  # further buffers, inwards, are 2, 3, ...


class Access(NamedTuple):
    """``axes``: ("simple", dim, coefficient, offset, extent), ("indirect", dims, distinct) or
    ("window" or "rolling", p, r, stride, dilation, offset, extent). ``depth``: per level. ``fixed``: what
    moves, or -1."""

    tensor: int
    axes: tuple[tuple, ...]
    depth: tuple[int, ...]
    fixed: int = -1


class Tensor(NamedTuple):
    bits: int
    partial_bits: int
    home: int = OUTER
    written_outside: bool = False
    elements: int = 0
    pinned: bool = False
    spilled: bool = False


class Operator(NamedTuple):
    leaf: int
    tree_depth: int
    dims: tuple[int, ...]
    reductions: tuple[int, ...]
    contraction: bool
    pointwise: bool
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    statistics: int = 0
    rescale: tuple[int, ...] = ()
    domain: tuple[tuple, ...] = ()  # axes that two of its dims each stand for


class Group(NamedTuple):
    """``loops``: (dim, step, parent) in preorder. ``splits``: (loop, cores that share the sums over it). ``stages``: of
    the outermost buffer; ``inner_stages``: of each further one."""

    extents: tuple[int, ...]
    loops: tuple[tuple[int, int, int], ...]
    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    stages: int = 1
    splits: tuple[tuple[int, int], ...] = ()
    inner_stages: tuple[int, ...] = ()


class Counts(NamedTuple):
    """``streams``: (tensor, operator, level, reads, writes, partial reads, partial writes), sorted by level,
    operator, tensor; rows that move nothing are left out."""

    streams: tuple[tuple[int, int, int, int, int, int, int], ...]
    footprint_bytes: tuple[int, ...]
    macs: tuple[int, ...]
    points: tuple[int, ...]
    rescale_ops: int


def walk(group: Group) -> Counts:
    """Walk the whole group once."""
    tree = Tree(group)
    machine = Machine(tree)
    machine.run()
    points = tuple(machine.points)
    macs = tuple(n if op.contraction else 0 for n, op in zip(points, group.operators, strict=True))
    footprint = tuple(footprint_bytes(tree, level) for level in range(tree.levels))
    return Counts(machine.rows(), footprint, macs, points, machine.rescale_ops())


def touched(axes: Iterable[tuple]) -> set[int]:
    """The dims that address an operand."""
    found: set[int] = set()
    for kind, *rest in axes:
        if kind == "simple":
            found.add(rest[0])
        elif kind in ("window", "rolling"):
            found.update(rest[:2])
        else:
            found.update(rest[0])
    return found


def coordinates(axis: tuple, tile: dict[int, range]) -> set[int]:
    """The coordinates along one axis that a tile holds, inside the axis."""
    kind, *rest = axis
    if kind == "simple":
        dim, coefficient, offset, extent = rest
        return {x for i in tile[dim] if 0 <= (x := coefficient * i + offset) < extent}
    if kind in ("window", "rolling"):
        p, r, stride, dilation, offset, extent = rest
        found = {i * stride + j * dilation + offset for i in tile[p] for j in tile[r]}
        return {x for x in found if 0 <= x < extent}
    dims, distinct = rest
    return set(range(min(prod(len(tile[dim]) for dim in dims), distinct)))


def new_coordinates(axis: tuple, tile: dict[int, range]) -> set[int]:
    """The coordinates that a tile brings: of a rolling window those that no tile before it had."""
    here = coordinates(axis, tile)
    if axis[0] == "rolling":
        here -= coordinates(axis, {**tile, axis[1]: range(tile[axis[1]].start)})
    return here


def full_size(axis: tuple, tile: dict[int, range], extents: tuple[int, ...]) -> int:
    """Room for one axis of a full tile: no borders cut, but never more than the axis holds."""
    kind, *rest = axis
    if kind == "simple":
        inside = coordinates(axis, {rest[0]: range(extents[rest[0]])})
        return min(len(tile[rest[0]]), len(inside))
    if kind in ("window", "rolling"):
        p, r, stride, dilation, _, extent = rest
        return min(len({i * stride + j * dilation for i in tile[p] for j in tile[r]}), extent)
    return len(coordinates(axis, tile))


class Tree:
    """The tree as it stands: paths, trips, who skips which loops, how deep each tile stays."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.levels = max(len(a.depth) for op in group.operators for a in (*op.reads, *op.writes))
        self.buffers = 1 + len(group.inner_stages)
        self.path = [self.up(op.leaf) for op in group.operators]
        self.trips = [self.static_trips(loop) for loop in range(len(group.loops))]
        self.readers: dict[int, list[int]] = {}
        self.producer: dict[int, tuple[int, Access]] = {}
        for o, op in enumerate(group.operators):
            for access in op.reads:
                self.readers.setdefault(access.tensor, []).append(o)
            for access in op.writes:
                self.producer[access.tensor] = (o, access)
        self.skipped: list[set[int]] = [set() for _ in group.operators]
        for o in reversed(range(len(group.operators))):
            self.skipped[o] = {loop for loop in self.path[o] if self.skips(o, loop)}
        self.loops = [
            [loop for loop in path if loop not in skipped]
            for path, skipped in zip(self.path, self.skipped, strict=True)
        ]

    def up(self, loop: int) -> list[int]:
        """The loops from the root down to `loop`."""
        return [] if loop < 0 else [*self.up(self.group.loops[loop][2]), loop]

    def static_trips(self, loop: int) -> int:
        dim, step, parent = self.group.loops[loop]
        outside = [self.group.loops[one][1] for one in self.up(parent) if self.group.loops[one][0] == dim]
        return -(-min(outside[-1] if outside else self.group.extents[dim], self.group.extents[dim]) // step)

    def foreign(self, o: int, loop: int) -> bool:
        return self.group.loops[loop][0] not in self.group.operators[o].dims

    def skips(self, o: int, loop: int) -> bool:
        """Whether operator `o` runs in the first iteration of `loop` only."""
        if not self.foreign(o, loop):
            return False
        at = self.path[o].index(loop)
        for access in self.group.operators[o].writes:
            tensor = self.group.tensors[access.tensor]
            # In the buffer where it lives: the innermost for registers, the outermost for what lives outside.
            kept = self.buffers - 1 if tensor.home == REGISTERS else max(0, tensor.home - 1)
            retained = at >= self.effective(self.path[o], access, access.depth[kept])
            unused = (
                tensor.home != OUTER
                and not tensor.written_outside
                and all(loop in self.skipped[reader] for reader in self.readers[access.tensor])
            )
            if not retained and not unused:
                return False
        return True

    def effective(self, loops: list[int], access: Access, depth: int) -> int:
        """From `depth` outwards, loops that leave the tile as it is do not count."""
        dims = set() if access.fixed >= 0 else touched(access.axes)
        while depth > 0 and (
            self.group.loops[loops[depth - 1]][0] not in dims or self.trips[loops[depth - 1]] == 1
        ):
            depth -= 1
        return depth

    def depth(self, o: int, access: Access, level: int) -> int:
        """The depth of an access among the loops that its operator does not skip."""
        outside = self.path[o][: access.depth[level]]
        return len([loop for loop in outside if loop not in self.skipped[o]])

    def tile_loops(self, o: int, access: Access, level: int) -> list[int]:
        """The loops whose iterations each bring a new tile."""
        return self.loops[o][: self.effective(self.loops[o], access, self.depth(o, access, level))]

    def shared_sums(self, o: int, access: Access) -> list[tuple[int, int]]:
        """The split loops of an operator that its output does not see, and their cores."""
        dims = set(self.group.operators[o].dims) - touched(access.axes)
        return [
            (loop, cores)
            for loop, cores in self.group.splits
            if loop in self.loops[o] and self.group.loops[loop][0] in dims
        ]

    def shared_stream(self, o: int, access: Access, level: int) -> tuple:
        """What two accesses must have in common to be one stream."""
        depth = self.depth(o, access, level)
        if level < self.buffers:
            apart = (o,) if access.tensor in self.producer else ()
            return access.tensor, access.axes, tuple(self.loops[o][:depth]), *apart
        return o, access.tensor, access.axes, depth

    def children(self, node: int) -> list[tuple[bool, int]]:
        """Loops (True, index) and operators (False, index) right below a loop or the root (-1), in order."""
        first: dict[tuple[bool, int], int] = {}
        for o, path in enumerate(self.path):
            at = path.index(node) + 1 if node in path else 0
            if node in path or node < 0:
                first.setdefault((True, path[at]) if at < len(path) else (False, o), o)
        return sorted(first, key=first.__getitem__)

    def operators_in_children(self, node: int) -> Iterator[list[int]]:
        """Per child of a loop the operators in it; loops of one trip are looked through."""
        for is_loop, index in self.children(node):
            if not is_loop:
                yield [index]
            elif self.trips[index] == 1:
                yield from self.operators_in_children(index)
            else:
                yield [o for o, path in enumerate(self.path) if index in path]


class Stream:
    """One operand on its way between two levels: which tile is at hand, and what was moved so far."""

    def __init__(self, tensor: int, owner: int, level: int) -> None:
        self.tensor, self.owner, self.level = tensor, owner, level
        self.reads = self.writes = self.partial = 0
        self.key: tuple[int, ...] | None = None
        self.tile: dict[int, range] = {}
        self.visits: dict[tuple, int] = {}
        self.moves: list[tuple[Access, tuple[int, ...], dict[int, range]]] = []  # with which execution it is
        self.at_hand: dict[tuple[int, ...], tuple[int, ...]] = {}  # per core that shares a sum

    def fetch(self, key: tuple[int, ...], access: Access, tile: dict[int, range]) -> None:
        """Move a tile in, unless it is at hand."""
        if access.fixed >= 0:
            self.reads = access.fixed
        elif key != self.key:
            self.key, self.tile = key, tile
            self.moves.append((access, (), tile))
            self.reads += prod(len(new_coordinates(axis, tile)) for axis in access.axes)
        else:
            assert tile == self.tile, "the tile at hand is not the one that is needed"

    def visit(
        self,
        key: tuple[int, ...],
        core: tuple[int, ...],
        again: tuple[int, ...],
        access: Access,
        tile: dict[int, range],
    ) -> None:
        """A new visit of an output tile by a core; `again`: which execution of the operator this is."""
        if access.fixed >= 0:
            self.visits = dict.fromkeys(((i,) for i in range(access.fixed)), 1)
        elif key != self.at_hand.get(core):
            self.at_hand[core], self.tile = key, tile
            self.moves.append((access, again, tile))
            # What windows share is another element in every tile that has it.
            where = tuple(
                tile[axis[1]].start if axis[0] in ("window", "rolling") else 0 for axis in access.axes
            )
            for element in product(*(new_coordinates(axis, tile) for axis in access.axes)):
                name = (again, where, element)
                self.visits[name] = self.visits.get(name, 0) + 1
        else:
            assert tile == self.tile, "the tile at hand is not the one that is needed"

    def leave(self) -> None:
        """After the walk: the last visit of an element wrote it, those before wrote sums that came back."""
        self.writes = len(self.visits)
        self.partial = sum(visits - 1 for visits in self.visits.values())


class Machine:
    """Walks the tree and moves tiles."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.group = tree, tree.group
        self.iteration = [0] * len(self.group.loops)
        self.piece = [range(0)] * len(self.group.loops)
        self.points = [0] * len(self.group.operators)
        self.streams: dict[tuple, Stream] = {}
        self.through: dict[int, set[tuple]] = {}  # written by an operator and read outside the group
        self.rescaled: dict[tuple, set[tuple[int, ...]]] = {}
        self.below = {node: tree.children(node) for node in range(-1, len(self.group.loops))}
        self.plans = [self.plan(o) for o in range(len(self.group.operators))]

    def plan(self, o: int) -> list[tuple]:
        """Per access of an operator and level: stream, the loops of its tile, how its tile is bound."""
        op, found = self.group.operators[o], []
        for level in range(self.tree.levels):
            for is_read, accesses in ((True, op.reads), (False, op.writes)):
                for access in accesses:
                    home = self.group.tensors[access.tensor].home
                    if home > level:
                        continue
                    name = (level, is_read, self.tree.shared_stream(o, access, level))
                    if not is_read or access.fixed >= 0:
                        name = (*name, o)
                    stream = self.streams.setdefault(name, Stream(access.tensor, o, level))
                    loops = self.tree.tile_loops(o, access, level)
                    bound = self.tree.loops[o][: self.tree.depth(o, access, level)]
                    again = [loop for loop in loops if self.tree.foreign(o, loop)]
                    cores = [] if is_read or level else self.tree.shared_sums(o, access)
                    inside = [(loop, number) for loop, number in cores if loop not in loops]
                    found.append((stream, is_read, access, loops, self.binding(access, bound), again, inside))
        return found

    def binding(self, access: Access, loops: list[int]) -> list[tuple[int, int]]:
        """(dim, innermost loop over it among `loops` or -1) for the dims that address an operand."""
        return [
            (dim, max((loop for loop in loops if self.group.loops[loop][0] == dim), default=-1))
            for dim in sorted(touched(access.axes))
        ]

    def tile(self, binding: list[tuple[int, int]]) -> dict[int, range]:
        return {
            dim: self.piece[loop] if loop >= 0 else range(self.group.extents[dim]) for dim, loop in binding
        }

    def run(self, node: int = -1) -> None:
        """Every child of a node in turn: a loop through all its pieces, an operator once."""
        for is_loop, index in self.below[node]:
            if not is_loop:
                self.execute(index)
                continue
            dim, step, parent = self.group.loops[index]
            outside = [loop for loop in self.tree.up(parent) if self.group.loops[loop][0] == dim]
            whole = self.piece[outside[-1]] if outside else range(self.group.extents[dim])
            for iteration, start in enumerate(range(whole.start, whole.stop, step)):
                self.iteration[index] = iteration
                self.piece[index] = range(start, min(start + step, whole.stop))
                self.run(index)

    def execute(self, o: int) -> None:
        """One run of an operator over the pieces at hand."""
        if any(self.iteration[loop] for loop in self.tree.skipped[o]):
            return
        op = self.group.operators[o]
        here = self.tile([(dim, self.innermost(o, dim)) for dim in op.dims])
        apart = {dim for axis in op.domain for dim in axis[1:3]}
        points = prod(len(piece) for dim, piece in here.items() if dim not in apart)
        self.points[o] += points * prod(len(new_coordinates(axis, here)) for axis in op.domain)
        for stream, is_read, access, loops, binding, again, shared in self.plans[o]:
            key = tuple([self.iteration[loop] for loop in loops])
            if is_read:
                stream.fetch(key, access, self.tile(binding))
            else:
                core = tuple(self.iteration[loop] % cores for loop, cores in shared)
                repeat = tuple(self.iteration[loop] for loop in again)
                stream.visit(key, core, repeat, access, self.tile(binding))
        for access in op.writes:
            tensor = self.group.tensors[access.tensor]
            if tensor.home != OUTER and tensor.written_outside and access.fixed < 0:
                produced = self.through.setdefault(access.tensor, set())
                produced.update(product(*(coordinates(axis, here) for axis in access.axes)))
        if op.rescale:
            self.rescale(o, here)

    def innermost(self, o: int, dim: int) -> int:
        return max((loop for loop in self.tree.path[o] if self.group.loops[loop][0] == dim), default=-1)

    def rescale(self, o: int, here: dict[int, range]) -> None:
        """Note for each sum in the making under which running statistic it was last brought up to date."""
        op, loops = self.group.operators[o], self.tree.loops[o]
        shown = set(self.tree.path[o][: op.tree_depth])
        online = tuple(
            self.iteration[loop]
            for loop in loops
            if loop in shown and self.group.loops[loop][0] in op.rescale
        )
        again = tuple(self.iteration[loop] for loop in loops if self.tree.foreign(o, loop))
        for element in product(*(coordinates(axis, here) for axis in op.writes[0].axes)):
            self.rescaled.setdefault((o, again, element), set()).add(online)

    def rescale_ops(self) -> int:
        """The first statistic finds no sum yet; each further one multiplies it once."""
        return sum(len(statistics) - 1 for statistics in self.rescaled.values())

    def rows(self) -> tuple[tuple[int, int, int, int, int, int, int], ...]:
        """What crossed, summed by level, operator and tensor."""
        sums: dict[tuple[int, int, int], list[int]] = {}
        for stream in self.streams.values():
            stream.leave()
            row = sums.setdefault((stream.level, stream.owner, stream.tensor), [0, 0, 0, 0])
            for column, number in enumerate((stream.reads, stream.writes, stream.partial, stream.partial)):
                row[column] += number
        for tensor, value in enumerate(self.group.tensors):
            if value.home == OUTER or not value.written_outside:
                continue
            o, access = self.tree.producer[tensor]
            assert access.fixed >= 0 or len(self.through[tensor]) == value.elements
            for level in range(min(value.home, self.tree.levels)):
                sums.setdefault((level, o, tensor), [0, 0, 0, 0])[1] += value.elements
        return tuple((tensor, o, level, *row) for (level, o, tensor), row in sorted(sums.items()) if any(row))


def sector_bits(group: Group, sector_bytes: int, which: int = 0) -> dict[tuple[int, int], list[int]]:
    """Bits in whole sectors that cross level `which` per (tensor, operator): inwards and outwards."""
    machine = Machine(Tree(group))
    machine.run()
    sector = 8 * sector_bytes
    found: dict[tuple[int, int], list[int]] = {}

    def add(stream_tensor: int, owner: int, inwards: int, outwards: int) -> None:
        row = found.setdefault((stream_tensor, owner), [0, 0])
        row[0] += inwards
        row[1] += outwards

    def rounded(lengths: Iterable[int], bits: int) -> int:
        return sum(-(-length * bits // sector) * sector for length in lengths)

    for (level, is_read, *_), stream in machine.streams.items():
        if level != which:
            continue
        tensor = group.tensors[stream.tensor]
        stream.leave()
        if not stream.moves:  # fixed: one run
            moved = rounded([stream.reads if is_read else stream.writes], tensor.bits)
            add(stream.tensor, stream.owner, moved if is_read else 0, 0 if is_read else moved)
        finished: set[tuple] = set()
        for access, again, tile in stream.moves:
            lengths = runs(access.axes, tile, group.extents)
            name = (again, tuple(tile.items()))
            if is_read:
                add(stream.tensor, stream.owner, rounded(lengths, tensor.bits), 0)
            elif name not in finished:
                finished.add(name)
                add(stream.tensor, stream.owner, 0, rounded(lengths, tensor.bits))
            else:
                part = rounded(lengths, tensor.partial_bits)
                add(stream.tensor, stream.owner, part, part)
    for number, tensor in enumerate(group.tensors):
        if tensor.home > which and tensor.written_outside:
            add(number, machine.tree.producer[number][0], 0, rounded([tensor.elements], tensor.bits))
    return {name: row for name, row in found.items() if any(row)}


def runs(axes: tuple[tuple, ...], tile: dict[int, range], extents: tuple[int, ...]) -> list[int]:
    """Lengths of the contiguous runs of a tile."""
    inner = 1
    for place in reversed(range(len(axes))):
        here = new_coordinates(axes[place], tile)
        if whole(axes[place], tile, extents):
            inner *= len(here)
            continue
        times = prod(len(new_coordinates(axis, tile)) for axis in axes[:place])
        return ([len(here) * inner] if consecutive(axes[place], tile) else [inner] * len(here)) * times
    return [inner]


def whole(axis: tuple, tile: dict[int, range], extents: tuple[int, ...]) -> bool:
    """Whether every tile is all of the tensor's axis; one that says no size has that of its dim."""
    if axis[0] != "simple" or len(tile[axis[1]]) < extents[axis[1]]:
        return False
    _, dim, _, _, extent = axis
    return len(coordinates(axis, tile)) == (extents[dim] if extent == 1 << 62 else extent)


def consecutive(axis: tuple, tile: dict[int, range]) -> bool:
    """Whether a tile's coordinates follow one another, borders not seen."""
    kind, *rest = axis
    if kind == "indirect":
        return False
    if kind == "simple":
        _, coefficient, _, _ = rest
        return abs(coefficient) == 1 or len(coordinates(axis, tile)) == 1
    p, r, stride, dilation, _, _ = rest
    found = {i * stride + j * dilation for i in tile[p] for j in tile[r]}
    return len(found) == max(found) - min(found) + 1


class Resident(NamedTuple):
    """A tile that takes room: its users, the loop in whose iterations it comes and goes, one copy's bytes."""

    tensor: int
    stream: tuple  # its name; empty for an intermediate
    operators: list[int]  # that use it
    live: set[int]  # that run while it is there
    loop: int
    one: int
    copies: int


def footprint_bytes(tree: Tree, level: int) -> int:
    """The most bytes that are there while an operator runs."""
    buffer = level < tree.buffers
    residents = list(_outer_tiles(tree, level) if buffer else _register_tiles(tree, level))
    residents += _intermediates(tree, level)
    most = 0
    for o, op in enumerate(tree.group.operators):
        live = [resident for resident in residents if o in resident.live]
        total = sum(resident.one * resident.copies for resident in live)
        if buffer:
            total += sum(_lines(tree, access, owner, o, level) for owner, access in _there(tree, level))
        if level == tree.buffers - 1:
            total += sum(_statistics(tree, other, o) for other in range(len(tree.group.operators)))
        if op.pointwise:
            total -= _in_place(tree, o, live, level)
        most = max(most, total)
    return most


def _live(tree: Tree, loop: int, operators: list[int]) -> set[int]:
    """Everything in the children of `loop` from the first that holds one of `operators` to the last."""
    children = list(tree.operators_in_children(loop))
    used = [i for i, child in enumerate(children) if not set(child).isdisjoint(operators)]
    return {o for child in children[used[0] : used[-1] + 1] for o in child}


def _bytes(tree: Tree, o: int, access: Access, level: int, bits: int) -> int:
    """One tile at full size."""
    loops = tree.loops[o][: tree.depth(o, access, level)]
    tile = {}
    for dim in touched(access.axes):
        steps = [tree.group.loops[loop][1] for loop in loops if tree.group.loops[loop][0] == dim]
        extent = tree.group.extents[dim]
        tile[dim] = range(min(steps[-1], extent) if steps else extent)
    return -(-prod(full_size(axis, tile, tree.group.extents) for axis in access.axes) * bits // 8)


def _output_bits(tree: Tree, o: int, access: Access, level: int) -> int:
    """Partial-sum width where sums that are not finished rest in the tile."""
    loops = tree.tile_loops(o, access, level + 1) if level + 1 < tree.levels else tree.loops[o]
    dims = set(tree.group.operators[o].dims) - touched(access.axes)
    tensor = tree.group.tensors[access.tensor]
    unfinished = any(tree.group.loops[loop][0] in dims and tree.trips[loop] > 1 for loop in loops)
    unfinished = unfinished or (level < tree.buffers and bool(tree.shared_sums(o, access)))
    return tensor.partial_bits if unfinished else tensor.bits


def _resident(
    tree: Tree, o: int, access: Access, level: int, operators: list[int], is_read: bool
) -> Resident:
    loops = tree.tile_loops(o, access, level)
    loop = loops[-1] if loops else -1
    bits = tree.group.tensors[access.tensor].bits if is_read else _output_bits(tree, o, access, level)
    stages = (tree.group.stages, *tree.group.inner_stages)
    copies = stages[level] if loops and level < tree.buffers else 1
    one = _bytes(tree, o, access, level, bits)
    stream = tree.shared_stream(o, access, level)
    live = _live(tree, loop, operators)
    if level == 0 and tree.group.tensors[access.tensor].pinned:
        live = set(range(len(tree.group.operators)))
    return Resident(access.tensor, stream, operators, live, loop, one, copies)


def _outer_tiles(tree: Tree, level: int) -> Iterator[Resident]:
    """In a buffer: tiles of what comes from further out or goes there."""
    shared: dict[tuple, tuple[int, Access, list[int]]] = {}
    for o, op in enumerate(tree.group.operators):
        for access in op.reads:
            if tree.group.tensors[access.tensor].home <= level and access.fixed < 0:
                name = tree.shared_stream(o, access, level)
                shared.setdefault(name, (o, access, []))[2].append(o)
        for access in op.writes:
            if tree.group.tensors[access.tensor].home <= level and access.fixed < 0:
                yield _resident(tree, o, access, level, [o], False)
    for o, access, operators in shared.values():
        yield _resident(tree, o, access, level, operators, True)


def _register_tiles(tree: Tree, level: int) -> Iterator[Resident]:
    """In the registers: the tiles of contractions, but for intermediates that live there."""
    for o, op in enumerate(tree.group.operators):
        if not op.contraction:
            continue
        seen: set[tuple] = set()
        for access in (*op.reads, *op.writes):
            is_read = access in op.reads
            name = (is_read, tree.shared_stream(o, access, level))
            home = tree.group.tensors[access.tensor].home
            if access.fixed < 0 and home != REGISTERS and name not in seen:
                seen.add(name)
                yield _resident(tree, o, access, level, [o], is_read)


def _intermediates(tree: Tree, level: int) -> Iterator[Resident]:
    """Tiles of what is made and used in the group, where it lives."""
    for tensor, value in enumerate(tree.group.tensors):
        if value.home != (level + 1 if level < tree.buffers else REGISTERS):
            continue
        o, access = tree.producer[tensor]
        operators = [o, *tree.readers[tensor]]
        loops = tree.tile_loops(o, access, level)
        if level == tree.buffers:
            if access.fixed >= 0:
                continue
            shared = [
                loop
                for loop in tree.loops[o]
                if all(loop in tree.path[reader] for reader in tree.readers[tensor])
            ]
            loops = loops[: len(shared)]
        if access.fixed >= 0:
            one = -(-value.elements * value.bits // 8)
        else:
            one = _bytes(tree, o, access, level, _output_bits(tree, o, access, level))
        loop = loops[-1] if loops else -1
        yield Resident(tensor, (), operators, _live(tree, loop, operators), loop, one, 1)


def _there(tree: Tree, level: int) -> Iterator[tuple[int, Access]]:
    """(operator, access) of every tile in a buffer."""
    seen: set[tuple] = set()
    for o, op in enumerate(tree.group.operators):
        for is_read, access in [(True, read) for read in op.reads] + [(False, write) for write in op.writes]:
            home = tree.group.tensors[access.tensor].home
            name = (is_read, tree.shared_stream(o, access, level), -1 if is_read else o)
            made_here = home == level + 1
            if access.fixed >= 0 or home > level + 1 or (is_read and (made_here or name in seen)):
                continue
            seen.add(name)
            yield o, access


def _lines(tree: Tree, access: Access, owner: int, running: int, level: int) -> int:
    """Bytes of a tile's line buffers while an operator runs."""
    group, total = tree.group, 0
    loops = tree.loops[owner][: tree.depth(owner, access, level)]
    turning = [loop for loop in loops if tree.trips[loop] > 1]
    for axis in access.axes:
        mine = [loop for loop in turning if axis[0] == "rolling" and group.loops[loop][0] == axis[1]]
        if not mine or mine[-1] not in tree.path[running]:
            continue
        inside = turning[turning.index(mine[-1]) + 1 :]
        _, _, r, stride, dilation, _, extent = axis
        kept = min((group.extents[r] - 1) * dilation + 1 - stride, extent)
        if kept <= 0 or not any(group.loops[loop][0] in touched(access.axes) for loop in inside):
            continue
        outside = loops[: loops.index(mine[-1]) + 1]
        tile = {}
        for dim in touched(access.axes):
            steps = [group.loops[loop][1] for loop in outside if group.loops[loop][0] == dim]
            tile[dim] = range(min(steps[-1], group.extents[dim]) if steps else group.extents[dim])
        others = prod(full_size(other, tile, group.extents) for other in access.axes if other is not axis)
        total += -(-kept * others * group.tensors[access.tensor].bits // 8)
    return total


def _statistics(tree: Tree, holder: int, running: int) -> int:
    """Bytes of `holder`'s running statistics while `running` runs."""
    op = tree.group.operators[holder]
    shown = [loop for loop in tree.path[holder][: op.tree_depth] if loop in tree.loops[holder]]
    reducing = [loop for loop in shown if tree.group.loops[loop][0] in op.reductions]
    if not op.statistics or not reducing or reducing[0] not in tree.path[running]:
        return 0
    outside = tree.path[holder][: tree.path[holder].index(reducing[0])]
    rows = 1
    for dim in set(op.dims) - set(op.reductions):
        steps = [tree.group.loops[loop][1] for loop in outside if tree.group.loops[loop][0] == dim]
        rows *= min(steps[-1], tree.group.extents[dim]) if steps else tree.group.extents[dim]
    bits = tree.group.tensors[op.writes[0].tensor].partial_bits
    return -(-op.statistics * rows * bits // 8)


def _in_place(tree: Tree, o: int, live: list[Resident], level: int) -> int:
    """What a pointwise operator saves where its output takes the place of an input that dies there."""
    op, most = tree.group.operators[o], 0
    for read, write in product(op.reads, op.writes):
        if read.fixed >= 0 or write.fixed >= 0 or read.axes != write.axes:
            continue
        outside = tree.group.tensors[read.tensor].home <= level
        for source, target in product(live, live):
            dies = source.tensor == read.tensor and max(source.operators) == o
            own = not outside or source.stream == tree.shared_stream(o, read, level)
            same_loop = level == tree.buffers or source.loop == target.loop
            result = target.tensor == write.tensor and o in target.operators
            if dies and own and result and same_loop:
                most = max(most, min(source.one, target.one))
    return most
