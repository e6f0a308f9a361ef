"""Random small groups for the walker: legal by docs/loop-tree.md, and odd in every way that it allows.

A group grows backwards from nothing: an operator of a random kind over fresh dims, then operators that read
what the ones before wrote or read. The tree grows by putting loops around random runs of operators as long as
the laws hold. Everything follows from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from random import Random

from model.cost.layout import points_inside, whole_elements
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
from model.graph.band import ENDLESS, Band

MOST_VISITS = 2500  # of leaves in one walk: 2,000 groups stay cheap
KINDS = ("contraction",) * 7 + ("pointwise",) * 2 + ("reduction",) * 2 + ("movement",)


@dataclass
class Draft:
    """An operator in the making. ``reads`` and ``outputs``: (tensor, axes, fixed)."""

    kind: str
    dims: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    reads: list[tuple[int, tuple[NestAxis, ...], int]] = field(default_factory=list)
    outputs: list[tuple[int, tuple[NestAxis, ...], int]] = field(default_factory=list)
    keeps_reductions: bool = False
    online: bool = False
    path: list[Loop] = field(default_factory=list)
    tree_depth: int = 0


@dataclass(eq=False)
class Loop:
    """A loop in the making; children are loops and operator indices."""

    dim: int
    step: int
    children: list[Loop | int] = field(default_factory=list)
    index: int = -1


class Builder:
    """One group."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.extents: list[int] = []
        self.drafts: list[Draft] = []
        self.bits: list[int] = []  # per tensor
        self.axes_of: dict[int, tuple[NestAxis, ...]] = {}  # by which a tensor was addressed first
        self.not_shared: dict[tuple[int, int], set[int]] = {}  # producer, consumer: dims of kept-whole axes
        self.levels = random.choice((1, 1, 1, 2, 2))
        # Operators share every tree loop that the laws let them; pointwise ones follow their producer.
        self.together = random.random() < (0.4 if self.levels == 1 else 0.7)

    # ---------------------------------------------------------------- operators

    def dim(self, extent: int = 0) -> int:
        self.extents.append(extent or self.random.choice((1, 2, 2, 3, 3, 4, 4, 5, 5, 6)))
        return len(self.extents) - 1

    def tensor(self) -> int:
        self.bits.append(self.random.choice((4, 8, 8, 16, 32, 3)))
        return len(self.bits) - 1

    def operator(self) -> None:
        """Add one operator that reads an earlier output or shares an earlier input, or stands alone."""
        random, number = self.random, len(self.drafts)
        draft = Draft(self.kind_after(self.drafts[-1] if self.drafts else None))
        produced = [(d, output) for d in range(number) for output in self.drafts[d].outputs]
        outside = list(self.axes_of)
        if number and produced and (random.random() < 0.75 or not outside):
            producer, (tensor, axes, fixed) = (
                produced[-1] if random.random() < 0.6 else random.choice(produced)
            )
            if fixed < 0:
                self.read_intermediate(draft, number, producer, tensor, axes)
                if random.random() < 0.08:  # twice, in two ways: x times its own transpose
                    self.read_intermediate(draft, number, producer, tensor, axes)
            else:
                self.not_shared[producer, number] = set(self.drafts[producer].dims)
                draft.reads.append((tensor, (), fixed))
        elif number and outside:
            self.read_as_before(draft, random.choice(outside))
        self.fill(draft)
        self.drafts.append(draft)

    def kind_after(self, before: Draft | None) -> str:
        """A kind; often what makes a home in registers or a running statistic worth having."""
        if before is None and self.random.random() < 0.4:
            return "contraction"
        if before is not None and before.online and self.random.random() < 0.6:
            return "contraction"
        if before is not None and self.levels == 2 and self.together and self.random.random() < 0.7:
            return "pointwise"
        return self.random.choice(KINDS)

    def own(self, draft: Draft, dim: int, may_reduce: bool = True) -> int:
        """`dim` becomes one of the operator's dims, perhaps a reduction."""
        if dim not in draft.dims:
            draft.dims.append(dim)
            wanted = draft.kind in ("contraction", "reduction") and self.random.random() < 0.45
            if may_reduce and wanted:
                draft.reductions.append(dim)
        return dim

    def read_intermediate(
        self, draft: Draft, number: int, producer: int, tensor: int, written: tuple[NestAxis, ...]
    ) -> None:
        """Read a producer's output: along most axes by its dims, along some kept whole or by a window."""
        axes: list[NestAxis] = []
        whole: set[int] = set()
        for axis in written:
            assert isinstance(axis, SimpleAxis)
            tail = self.levels == 2 and self.together and draft.kind == "pointwise"
            draw = self.random.random() * (0.8 if tail else 1.0)
            online = self.drafts[producer].online and axis.dim in self.drafts[producer].reductions
            if draft.kind == "contraction" and online and draw < 0.75 and axis.dim not in draft.dims:
                draft.dims.append(axis.dim)
                draft.reductions.append(axis.dim)
            if draw < 0.75:
                axes.append(SimpleAxis(self.own(draft, axis.dim)))
                continue
            whole.add(axis.dim)
            extent = self.extents[axis.dim]
            if draw < 0.85 or draft.kind == "pointwise":
                axes.append(SimpleAxis(self.own(draft, self.dim(extent)), 1, 0, extent))
            else:
                axes.append(self.window(draft, extent))
        self.not_shared.setdefault((producer, number), set()).update(whole)
        draft.reads.append((tensor, tuple(axes), -1))

    def window(self, draft: Draft, extent: int) -> WindowAxis:
        p = self.own(draft, self.dim(self.random.randint(1, 4)), may_reduce=False)
        r = self.dim(self.random.randint(1, 3))
        draft.dims.append(r)
        draft.reductions.append(r)
        stride, dilation = self.random.choice((1, 1, 2)), self.random.choice((1, 1, 2))
        return WindowAxis(p, r, stride, dilation, self.random.choice((0, 0, -1)), extent)

    def read_as_before(self, draft: Draft, tensor: int) -> None:
        """Read an outside tensor as an earlier operator does, or by dims of one's own."""
        if not self.axes_of[tensor]:
            draft.reads.append((tensor, (), self.random.randint(1, 30)))
        elif self.random.random() < 0.75:
            for axis in self.axes_of[tensor]:
                for dim in dims_of(axis):
                    self.own(draft, dim)
            draft.reads.append((tensor, self.axes_of[tensor], -1))
        else:
            self.own(draft, self.dim())
            draft.reads.append((tensor, self.outside_axes(draft), -1))

    def fill(self, draft: Draft) -> None:
        """Give the operator what its kind needs: dims, reductions, operands, an output."""
        random = self.random
        while len(draft.dims) < random.choice((1, 2, 2, 2)):
            self.own(draft, self.dim())
        if draft.kind == "contraction":
            if not draft.reductions and random.random() < 0.9:
                draft.reductions.append(self.own(draft, self.dim(), may_reduce=False))
            if len(draft.reductions) == len(draft.dims):
                self.own(draft, self.dim(), may_reduce=False)
        elif draft.kind == "reduction":
            draft.reductions = draft.reductions or [random.choice(draft.dims)]
            draft.keeps_reductions = random.random() < 0.6 and not self.has_window(draft)
            draft.online = draft.keeps_reductions and random.random() < 0.7
        elif not self.has_window(draft):
            draft.reductions = []
        for _ in range(max(0, random.choice((1, 2, 2)) - len(draft.reads))):
            fixed = random.randint(1, 30) if random.random() < 0.04 else -1
            axes = () if fixed >= 0 else self.outside_axes(draft)
            tensor = self.tensor()
            self.axes_of[tensor] = axes
            draft.reads.append((tensor, axes, fixed))
        kept = [d for d in draft.dims if draft.keeps_reductions or d not in draft.reductions]
        if random.random() < 0.06:  # the same operand once more: x * x
            draft.reads.append(random.choice(draft.reads))
        if draft.kind == "movement" and random.random() < 0.1:
            draft.outputs.append((self.tensor(), (), random.randint(1, 30)))
            return
        random.shuffle(kept)
        draft.outputs.append((self.tensor(), tuple(SimpleAxis(dim) for dim in kept), -1))
        if draft.kind != "contraction" and random.random() < 0.1:  # a mean beside the normalised rows
            some = [dim for dim in kept if dim not in draft.reductions] or kept
            draft.outputs.append((self.tensor(), tuple(SimpleAxis(dim) for dim in some), -1))

    @staticmethod
    def has_window(draft: Draft) -> bool:
        return any(isinstance(axis, WindowAxis) for _, axes, _ in draft.reads for axis in axes)

    def outside_axes(self, draft: Draft) -> tuple[NestAxis, ...]:
        """An operand from outside over some of the operator's dims, in any way of addressing."""
        random, axes = self.random, []
        dims = list(draft.dims)
        random.shuffle(dims)
        if draft.kind != "contraction" or random.random() < 0.3:
            dims = dims[: random.randint(1, len(dims))] if random.random() < 0.4 else dims
        else:
            spatial = [d for d in dims if d not in draft.reductions]
            left_out = random.choice(spatial) if spatial and len(dims) > 1 else -1
            dims = [d for d in dims if d != left_out]
        while dims:
            dim, draw = dims.pop(), random.random()
            if draw < 0.7 or (draft.kind == "pointwise" and draw < 0.9):
                axes.append(SimpleAxis(dim))
            elif draw < 0.78:
                extent = random.randint(1, 2 * self.extents[dim])
                axes.append(SimpleAxis(dim, random.choice((1, 2)), random.choice((-1, 0, 1)), extent))
            elif draw < 0.86:
                over = (dim, dims.pop()) if dims and random.random() < 0.5 else (dim,)
                axes.append(IndirectAxis(over, random.randint(1, prod(self.extents[d] for d in over) + 1)))
            elif dims:
                extent = random.randint(1, 9)
                offset = random.choice((0, 0, -1, -2))
                axes.append(
                    WindowAxis(
                        dim, dims.pop(), random.choice((1, 2)), random.choice((1, 1, 2)), offset, extent
                    )
                )
        return tuple(axes)

    # --------------------------------------------------------------------- tree

    def grow(self) -> Loop:
        """The tree: loops around runs of operators, then each operator's own loops."""
        root = Loop(-1, 0)
        self.loops_around(root, list(range(len(self.drafts))), [])
        return root

    def range_of(self, dim: int, path: list[Loop]) -> int:
        steps = [loop.step for loop in path if loop.dim == dim]
        return steps[-1] if steps else self.extents[dim]

    def loops_around(self, node: Loop, operators: list[int], path: list[Loop]) -> None:
        """Fill `node` with `operators`, some of them inside a new loop."""
        random = self.random
        if operators and len(path) < 4 and random.random() < 0.8:
            whole = self.together and random.random() < 0.9
            begin = 0 if whole or random.random() < 0.6 else random.randrange(len(operators))
            end = len(operators)
            if not whole and random.random() < 0.4:
                end = random.randint(begin + 1, len(operators))
            run = operators[begin:end]
            dims = [dim for dim in range(len(self.extents)) if self.may_loop(dim, run, path)]
            if dims:
                dim = random.choice(dims)
                loop = Loop(dim, self.step(self.range_of(dim, path)))
                self.loops_around(node, operators[:begin], path)
                node.children.append(loop)
                self.loops_around(loop, run, [*path, loop])
                self.loops_around(node, operators[end:], path)
                return
        if len(operators) > 1:
            self.loops_around(node, operators[:1], path)
            self.loops_around(node, operators[1:], path)
        elif operators:
            self.leaf(node, operators[0], path)

    def step(self, whole: int) -> int:
        """A step, more often one that leaves a ragged piece."""
        ragged = [step for step in range(2, whole) if whole % step]
        if ragged and self.random.random() < 0.6:
            return self.random.choice(ragged)
        return self.random.randint(1, whole) if self.random.random() < 0.9 else whole

    def may_loop(self, dim: int, run: list[int], path: list[Loop]) -> bool:
        """Whether the laws allow a loop over `dim` around `run` here."""
        if self.range_of(dim, path) == 1 and self.random.random() < 0.8:
            return False
        own = [o for o in run if dim in self.drafts[o].dims]
        foreign = [o for o in run if o not in own]
        if not own or (foreign and self.random.random() < 0.4):
            return False
        reducing = {loop.dim for loop in path}
        if any(reducing.intersection(self.drafts[o].reductions) for o in foreign):
            return False
        for (producer, consumer), whole in self.not_shared.items():
            draft = self.drafts[producer]
            if (
                producer in run
                and consumer in run
                and (dim in whole or (dim in draft.reductions and not draft.online))
            ):
                return False
        return True

    def leaf(self, node: Loop, o: int, path: list[Loop]) -> None:
        """An operator at its place, under register loops and element loops of its own."""
        random, draft = self.random, self.drafts[o]
        draft.tree_depth = len(path)
        path = list(path)
        rounds = [False, True] if self.levels == 2 else [True]
        for elements in rounds:
            if elements and random.random() < 0.25:
                continue
            order = list(draft.dims)
            random.shuffle(order)
            if random.random() < 0.8:  # unfinished sums leave where a reduction is outermost
                order.sort(key=lambda dim: dim not in draft.reductions)
            for dim in order:
                whole = self.range_of(dim, path)
                step = 1 if elements else self.step(whole)
                if step < whole:
                    loop = Loop(dim, step)
                    node.children.append(loop)
                    path.append(loop)
                    node = loop
        node.children.append(o)
        draft.path = path

    # --------------------------------------------------------------- retention

    def nest(self) -> Nest | None:
        """The finished group, or None where a walk of it would take too long."""
        root = self.grow()
        loops: list[tuple[int, int, int]] = []

        def number(loop: Loop, parent: int) -> None:
            for child in loop.children:
                if isinstance(child, Loop):
                    child.index = len(loops)
                    loops.append((child.dim, child.step, parent))
                    number(child, child.index)

        number(root, -1)
        visits = sum(
            prod(-(-self.range_of(loop.dim, d.path[:i]) // loop.step) for i, loop in enumerate(d.path))
            for d in self.drafts
        )
        if visits > MOST_VISITS:
            return None
        self.settle_tensors()
        operators = tuple(self.finished(o) for o in range(len(self.drafts)))
        return Nest(
            tuple(self.extents), tuple(loops), operators, tuple(self.tensors), self.random.choice((1, 2, 3))
        )

    def settle_tensors(self) -> None:
        """Homes and depths of intermediates, and one depth for most shared inputs."""
        random = self.random
        self.readers: dict[int, list[int]] = {}
        for o, draft in enumerate(self.drafts):
            for tensor, _, _ in draft.reads:
                self.readers.setdefault(tensor, []).append(o)
        partial = random.choice((16, 32))
        self.tensors = [NestTensor(bits, max(bits, partial)) for bits in self.bits]
        self.depth_of: dict[int, int] = {}
        for o, draft in enumerate(self.drafts):
            for tensor, axes, fixed in draft.outputs:
                readers = self.readers.get(tensor, [])
                if not readers:
                    continue
                fits = self.fits_registers(o, axes, readers) and random.random() < 0.9
                elements = fixed
                if fixed < 0:
                    elements = prod(self.extents[d] for axis in axes for d in dims_of(axis))
                self.tensors[tensor] = NestTensor(
                    self.bits[tensor],
                    max(self.bits[tensor], partial),
                    REGISTERS if fits else BUFFER,
                    random.random() < 0.25,
                    elements,
                )
                shared = self.shared_loops(o, readers)
                self.depth_of[tensor] = shared if random.random() < 0.7 else random.randint(0, shared)
        for tensor, readers in self.readers.items():
            if len(readers) > 1 and tensor not in self.depth_of and random.random() < 0.8:
                self.depth_of[tensor] = random.randint(0, self.shared_loops(readers[0], readers[1:]))

    def shared_loops(self, o: int, others: list[int]) -> int:
        """How many loops of `o` are loops of all `others`."""
        count = 0
        while count < len(self.drafts[o].path) and all(
            count < len(self.drafts[other].path)
            and self.drafts[other].path[count] is self.drafts[o].path[count]
            for other in others
        ):
            count += 1
        return count

    def fits_registers(self, o: int, axes: tuple[NestAxis, ...], readers: list[int]) -> bool:
        draft = self.drafts[o]
        tree = draft.path[: draft.tree_depth]
        dims = {d for axis in axes for d in dims_of(axis)}
        return (
            self.levels == 2
            and all(self.drafts[r].kind == "pointwise" and dims <= set(self.drafts[r].dims) for r in readers)
            and all(self.drafts[r].path[: self.drafts[r].tree_depth] == tree for r in readers)
        )

    def finished(self, o: int) -> NestOperator:
        draft = self.drafts[o]
        reads = tuple(
            NestAccess(tensor, axes, self.depths(o, tensor, None), fixed)
            for tensor, axes, fixed in draft.reads
        )
        writes = tuple(
            NestAccess(tensor, axes, self.depths(o, tensor, axes), fixed)
            for tensor, axes, fixed in draft.outputs
        )
        return NestOperator(
            leaf=draft.path[-1].index if draft.path else -1,
            tree_depth=draft.tree_depth,
            dims=tuple(draft.dims),
            reductions=tuple(draft.reductions),
            contraction=draft.kind == "contraction",
            pointwise=draft.kind == "pointwise",
            reads=reads,
            writes=writes,
            statistics=self.random.choice((0, 1, 2)) if draft.online else 0,
            rescale=self.rescaled_over(draft) if draft.kind == "contraction" else (),
        )

    def rescaled_over(self, draft: Draft) -> tuple[int, ...]:
        """The dims of online reductions that feed the operator and that it reduces as well."""
        feeding = [
            producer
            for producer in self.drafts
            if producer.online and {t for t, _, _ in producer.outputs} & {t for t, _, _ in draft.reads}
        ]
        return tuple(sorted({d for p in feeding for d in p.reductions if d in draft.reductions}))

    def depths(self, o: int, tensor: int, output: tuple[NestAxis, ...] | None) -> tuple[int, ...]:
        """Where a tile stays: in the tree or in the element nest; unfinished sums are let out gladly."""
        random, draft = self.random, self.drafts[o]
        total = len(draft.path)
        deepest = total if self.levels == 1 or random.random() < 0.4 else draft.tree_depth
        outer = random.randint(0, deepest)
        if tensor in self.depth_of:
            outer = self.depth_of[tensor]
        elif output is not None and random.random() < 0.9:
            sums = [
                i
                for i, loop in enumerate(draft.path[:deepest])
                if loop.dim in draft.reductions and loop.step < self.range_of(loop.dim, draft.path[:i])
            ]
            inside = [
                i + 1
                for i, loop in enumerate(draft.path[:deepest])
                if sums and i > sums[0] and any(loop.dim in dims_of(axis) for axis in output)
            ]
            outer = random.randint(inside[0], deepest) if inside else outer
        if self.levels == 1:
            return (outer,)
        if draft.kind != "contraction":
            return (outer, max(outer, draft.tree_depth))
        return (outer, random.randint(outer, total))


def dims_of(axis: NestAxis) -> tuple[int, ...]:
    """The dims of one axis."""
    if isinstance(axis, SimpleAxis):
        return (axis.dim,)
    return (axis.p, axis.r) if isinstance(axis, WindowAxis) else axis.dims


def random_nest(seed: int) -> Nest:
    """The group of this seed."""
    random = Random(seed)
    while True:
        builder = Builder(random)
        for _ in range(random.choice((1, 1, 2, 2, 3, 3))):
            builder.operator()
        nest = builder.nest()
        if nest is not None:
            return deepened(beset(nest, Random(-1 - seed)), Random(f"buffers of {seed}"))


def beset(nest: Nest, random: Random) -> Nest:
    """The group with some tensors pinned, some intermediates spilled and some sums shared by cores."""
    written = {access.tensor for op in nest.operators for access in op.writes}
    nest = masked(following(nest, random), random)
    tensors = list(nest.tensors)
    for i, tensor in enumerate(tensors):
        if tensor.home == OUTER and i not in written and random.random() < 0.12:
            tensors[i] = replace(tensor, pinned=True)
        elif tensor.home == BUFFER and random.random() < 0.2:
            tensors[i] = replace(tensor, home=OUTER, spilled=True)
    paths = [path_of(nest, op) for op in nest.operators]

    def settled(o: int, access: NestAccess) -> NestAccess:
        outer, *inner = access.depth
        if tensors[access.tensor].pinned:
            outer = 0
        elif tensors[access.tensor].spilled:
            outer = random.randint(outer, inner[0] if inner else len(paths[o]))
        return replace(access, depth=(outer, *inner))

    operators = tuple(
        replace(
            op,
            reads=tuple(settled(o, access) for access in op.reads),
            writes=tuple(settled(o, access) for access in op.writes),
        )
        for o, op in enumerate(nest.operators)
    )
    nest = replace(nest, operators=operators, tensors=tuple(tensors))
    splits: list[tuple[int, int]] = []
    for loop, (dim, step, _) in enumerate(nest.loops):
        trips = -(-nest.extents[dim] // step)
        if trips > 1 and may_split(nest, paths, loop, splits) and random.random() < 0.5:
            splits.append((loop, random.randint(2, trips)))
    return replace(nest, splits=tuple(splits))


def deepened(nest: Nest, random: Random) -> Nest:
    """The group on a machine with up to two further buffers inside the outermost one: tiles, homes and stages there."""
    further = random.choice((0, 0, 0, 1, 1, 2))
    if not further:
        return nest
    tensors = tuple(
        replace(tensor, home=random.randint(BUFFER, BUFFER + further)) if tensor.home == BUFFER else tensor
        for tensor in nest.tensors
    )
    # Readers of one tensor keep its tiles alike, as often as not: else they would rarely share a stream.
    alike = {
        t: [random.choice((0, 0, 1, 2)) for _ in range(further)] if random.random() < 0.7 else []
        for t in range(len(tensors))
    }

    def settled(access: NestAccess, path: int) -> NestAccess:
        outer, *inner = access.depth
        most = inner[0] if inner else path
        home = tensors[access.tensor].home
        depths = [outer]
        for level, more in enumerate(alike[access.tensor] or [-1] * further, BUFFER):
            before = depths[-1]
            depth = min(before + more, most) if more >= 0 else random.randint(before, most)
            depths.append(before if BUFFER <= home != REGISTERS and level < home else depth)
        return replace(access, depth=(*depths, *inner))

    operators = tuple(
        replace(
            op,
            reads=tuple(settled(access, len(path_of(nest, op))) for access in op.reads),
            writes=tuple(settled(access, len(path_of(nest, op))) for access in op.writes),
        )
        for op in nest.operators
    )
    stages = tuple(random.choice((1, 2, 3)) for _ in range(further))
    return replace(nest, operators=operators, tensors=tensors, inner_stages=stages)


def following(nest: Nest, random: Random) -> Nest:
    """The group with some dims of its operators following a window over that dim, by rows made again or kept."""
    extents, operators, tensors = list(nest.extents), list(nest.operators), list(nest.tensors)
    for o, op in enumerate(operators):
        shown = path_of(nest, op)
        for dim in op.dims:
            loops = [at for at, loop in enumerate(shown) if nest.loops[loop][0] == dim]
            axes = [axis for a in (*op.reads, *op.writes) for axis in a.axes if dim in dims_of(axis)]
            private = bool(loops) and loops[-1] >= op.tree_depth
            if not axes or private or dim in op.reductions or any(axis != SimpleAxis(dim) for axis in axes):
                continue
            if random.random() > 0.3:
                continue
            extents.append(random.choice((1, 2, 3)))
            stride = random.choice((1, 1, 2))
            size = random.randint(1, (extents[dim] - 1) * stride + extents[-1])
            window = WindowAxis(
                dim, len(extents) - 1, stride, 1, random.choice((0, 0, -1)), size, random.random() < 0.5
            )
            op = follower(op, dim, window)
        operators[o] = op
    for op in operators:
        for access in op.writes:
            if op.domain and access.fixed < 0:
                size = whole_elements(access.axes, tuple(extents))
                tensors[access.tensor] = replace(tensors[access.tensor], elements=size)
    return replace(nest, extents=tuple(extents), operators=tuple(operators), tensors=tuple(tensors))


def masked(nest: Nest, random: Random) -> Nest:
    """The group with a band over two dims of some operators, most often one band for all that have both dims."""
    if random.random() < 0.6:
        return nest
    operators, tensors = list(nest.operators), list(nest.tensors)
    drawn: dict[frozenset[int], Band] = {}
    readers = [{access.tensor for access in op.reads} for op in operators]

    def shares(o: int) -> bool:
        """Whether another operator reads what this one does: under one band alone that is one stream."""
        return any(readers[o] & other for q, other in enumerate(readers) if q != o)

    for o, op in enumerate(operators):
        free = [d for d in op.dims if addressed_simply(op, d, nest.extents)]
        random.shuffle(free)
        known = [pair for pair in drawn if pair <= set(free)]
        if known and random.random() < 0.9:
            operators[o] = replace(op, band=drawn[random.choice(known)])
        elif len(free) > 1 and random.random() < (0.3 if shares(o) else 0.8):
            q, k = free[:2]
            queries, keys = nest.extents[q], nest.extents[k]
            bands = [
                Band(q, k, offset, window)
                for offset in range(1 - queries, queries + keys)
                for window in (1, 2, 3, 5, ENDLESS)
            ]
            some = [band for band in bands if 0 < band.points(queries, keys) < queries * keys]
            if some:
                causal = Band(q, k, 0)
                band = causal if causal in some and random.random() < 0.25 else random.choice(some)
                drawn[frozenset((q, k))] = band
                operators[o] = replace(op, band=band)
    for op in operators:
        for access in op.writes:
            if op.band is not None and access.fixed < 0:
                size = whole_elements(access.axes, nest.extents, op.band)
                tensors[access.tensor] = replace(tensors[access.tensor], elements=size)
    return replace(nest, operators=tuple(operators), tensors=tuple(tensors))


def addressed_simply(op: NestOperator, dim: int, extents: tuple[int, ...]) -> bool:
    """Whether every access has a dim on a simple axis without padding, or not at all."""
    return all(
        isinstance(axis, SimpleAxis) and points_inside(axis, extents[dim]) == extents[dim]
        for axis in (*op.domain, *(axis for access in (*op.reads, *op.writes) for axis in access.axes))
        if dim in dims_of(axis)
    )


def follower(op: NestOperator, dim: int, window: WindowAxis) -> NestOperator:
    """An operator of which `dim` follows `window`."""

    def follow(access: NestAccess) -> NestAccess:
        return replace(
            access, axes=tuple(window if axis == SimpleAxis(dim) else axis for axis in access.axes)
        )

    return replace(
        op,
        dims=(*op.dims, window.r),
        reads=tuple(map(follow, op.reads)),
        writes=tuple(map(follow, op.writes)),
        domain=(*op.domain, window),
    )


def path_of(nest: Nest, operator: NestOperator) -> list[int]:
    """The loops from the root to an operator's leaf."""
    path: list[int] = []
    loop = operator.leaf
    while loop >= 0:
        path.append(loop)
        loop = nest.loops[loop][2]
    return path[::-1]


def may_split(nest: Nest, paths: list[list[int]], loop: int, splits: list[tuple[int, int]]) -> bool:
    """Whether cores may share the sums over a loop: what they sum up is at home outside."""
    dim = nest.loops[loop][0]
    summed = False
    shared = {nest.loops[other][0] for other, _ in splits}
    for op, path in zip(nest.operators, paths, strict=True):
        if loop not in path:
            continue
        if op.band is not None and dim in (op.band.q, op.band.k) and shared & {op.band.q, op.band.k}:
            return False
        at = path.index(loop)
        if at >= op.tree_depth or any(nest.loops[other][0] == dim for other in path[:at]):
            return False
        if dim not in op.dims:
            continue
        for access in op.writes:
            if all(dim not in dims_of(axis) for axis in access.axes):
                summed = True
                if nest.tensors[access.tensor].home != OUTER or access.fixed >= 0:
                    return False
    return summed
