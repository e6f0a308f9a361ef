"""Group dims: the operators' dims made one through the tensors that connect them (docs/loop-tree.md, section 1).

Knows the graph's loop nests and nothing of machines, tiles or loop orders. A `GroupSpace` is what every mapping of a
group shares; `mapping.py` adds loops and depths and makes a `Nest` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ..graph.band import Band
from ..graph.graph import Access, Axis, Operator, OperatorGraph, OpKind
from .nest import IndirectAxis, NestAxis, SimpleAxis, WindowAxis


@dataclass(frozen=True, slots=True)
class SpaceAccess:
    """One operand in group dims: the tensor (local number), its axes; ``fixed`` and ``at`` as in `NestAccess`."""

    tensor: int
    axes: tuple[NestAxis, ...]
    fixed: int = -1
    at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceOperator:
    """One member that does work. ``member``: its position among the group's operators (views counted).

    ``domain``: windows that stand for two of its dims each, ``band``: the only points, as in `NestOperator`.
    """

    member: int
    dims: tuple[int, ...]
    reductions: tuple[int, ...]
    reads: tuple[SpaceAccess, ...]
    writes: tuple[SpaceAccess, ...]
    domain: tuple[WindowAxis, ...] = ()
    band: Band | None = None


@dataclass(frozen=True, slots=True)
class GroupSpace:
    """A fusion group before any tile is chosen.

    Attributes
    ----------
    names, extents : the group dims.
    operators : members without the views, in file order.
    dim_of : per member (views too) the group dim of each of its dims; factors joined with ``*``; empty for the
        dims of a view that no working member reads.
    tensors : graph index of each local tensor; views are replaced by what they view.
    producer : per local tensor the operator (position in ``operators``) that writes it, -1 for external ones.
    readers : per local tensor the operators that read it.
    exported : per local tensor whether someone outside reads it or it is a graph output.
    barred : (producer, consumer, mask of dims) that no loop shared by the two may be over.
    online : (producer, consumer contraction, mask of dims): running reductions that the consumer may follow.
    gone, halos : dims that follow a window (`halo.py`) and are no operator's any more, and the windows' own: neither
        has loops.
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]
    operators: tuple[SpaceOperator, ...]
    dim_of: tuple[tuple[str, ...], ...]
    tensors: tuple[int, ...]
    producer: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    exported: tuple[bool, ...]
    barred: tuple[tuple[int, int, int], ...]
    online: tuple[tuple[int, int, int], ...]
    gone: frozenset[int] = frozenset()
    halos: frozenset[int] = frozenset()

    @property
    def still(self) -> frozenset[int]:
        """Dims without loops."""
        return self.gone | self.halos

    def intermediate(self, tensor: int) -> bool:
        """Whether local `tensor` is produced and read inside the group."""
        return self.producer[tensor] >= 0 and bool(self.readers[tensor])


class _Classes:
    """Dims under unification: classes with extents, the operators that hold them, and their factors.

    Invariant: no operator holds one class twice; a merge or a factoring that would break it is refused.
    """

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._factors: list[tuple[int, ...]] = []
        self.extent: list[int] = []
        self._holders: list[int] = []
        self._rigid: list[bool] = []  # addressed other than in plain radix: must stay one loop

    def new(self, extent: int, holders: int, rigid: bool) -> int:
        self._parent.append(len(self._parent))
        self._factors.append(())
        self.extent.append(extent)
        self._holders.append(holders)
        self._rigid.append(rigid)
        return len(self._parent) - 1

    def root(self, c: int) -> int:
        while self._parent[c] != c:
            self._parent[c] = self._parent[self._parent[c]]
            c = self._parent[c]
        return c

    def resolve(self, c: int) -> tuple[int, ...]:
        """The classes that `c` stands for, outermost factor first."""
        c = self.root(c)
        if not self._factors[c]:
            return (c,)
        return tuple(part for factor in self._factors[c] for part in self.resolve(factor))

    def _may_merge(self, pairs: list[tuple[int, int]]) -> bool:
        holders: dict[int, int] = {}
        into: dict[int, int] = {}
        for left, right in pairs:
            left, right = into.get(left, left), into.get(right, right)
            if left == right:
                continue
            a, b = holders.get(left, self._holders[left]), holders.get(right, self._holders[right])
            if a & b:
                return False
            holders[left] = a | b
            into = {c: left if r == right else r for c, r in into.items()} | {right: left}
        return True

    def unify(self, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
        """Make the two radix lists one, factoring the side that is a single dim; False: kept as they were."""
        sizes_left = [self.extent[c] for c in left]
        sizes_right = [self.extent[c] for c in right]
        if sizes_left != sizes_right:
            if len(left) == 1 and len(right) > 1 and sizes_left[0] == prod(sizes_right):
                return self._factor(left[0], right)
            if len(right) == 1 and len(left) > 1 and sizes_right[0] == prod(sizes_left):
                return self._factor(right[0], left)
            return False
        pairs = [(a, b) for a, b in zip(left, right, strict=True) if a != b]
        if not self._may_merge(pairs):
            return False
        for a, b in pairs:
            self._merge(self.root(a), self.root(b))
        return True

    def _merge(self, a: int, b: int) -> None:
        if a == b:
            return
        a, b = min(a, b), max(a, b)
        self._parent[b] = a
        self._holders[a] |= self._holders[b]
        self._rigid[a] = self._rigid[a] or self._rigid[b]

    def _factor(self, whole: int, parts: tuple[int, ...]) -> bool:
        if self._rigid[whole] or len(set(parts)) < len(parts):
            return False
        if any(self._holders[whole] & self._holders[part] for part in parts):
            return False
        factors = tuple(self.new(self.extent[part], self._holders[whole], False) for part in parts)
        self._factors[whole] = factors
        for factor, part in zip(factors, parts, strict=True):
            self._merge(factor, part)
        return True


def _radix(axis: Axis, extents: list[int], size: int) -> list[int] | None:
    """The dims that address `axis` as digits, most significant first; None where they do not cover it exactly."""
    if axis.distinct is not None or axis.offset != 0 or not axis.terms:
        return None
    terms = sorted(axis.terms, key=lambda term: -term[1])
    weight = 1
    for dim, coefficient in reversed(terms):
        if extents[dim] == 1 and len(terms) > 1:
            continue
        if coefficient != weight:
            return None
        weight *= extents[dim]
    if weight != size:
        return None
    digits = [dim for dim, _ in terms if extents[dim] > 1]
    return digits or [terms[0][0]]


class _Unifier:
    """One run over one group; the steps are methods so that each is short."""

    def __init__(self, graph: OperatorGraph, members: tuple[int, ...]) -> None:
        self.graph = graph
        self.members = [graph.operators[i] for i in members]
        self.inside = set(members)
        self.position = {index: at for at, index in enumerate(members)}
        self.classes = _Classes()
        self.of: list[list[int]] = []  # per member, per dim the class that it started as
        self.alias: dict[int, int] = {}  # a view's output -> what it views
        self.idle = self._idle_views()
        for at, operator in enumerate(self.members):
            rigid = self._rigid_dims(operator)
            self.of.append(
                [self.classes.new(d.extent, 1 << at, i in rigid) for i, d in enumerate(operator.dims)]
            )
            if operator.kind is OpKind.VIEW and operator.inputs:
                source = operator.inputs[0].tensor
                for access in operator.outputs:
                    self.alias[access.tensor] = self.alias.get(source, source)

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self.graph.tensors[tensor].shape or ()

    def _rigid_dims(self, operator: Operator) -> set[int]:
        """Dims that are addressed other than as digits of an axis, or by a band: they cannot be factored."""
        extents = [d.extent for d in operator.dims]
        rigid = set() if operator.band is None else {operator.band.q, operator.band.k}
        for access in operator.inputs + operator.outputs:
            shape = self._shape(access.tensor)
            for axis, size in zip(access.axes, shape, strict=False):
                if _radix(axis, extents, size) is None:
                    rigid.update(dim for dim, _ in axis.terms)
        return rigid

    def _digits(self, at: int, axis: Axis, size: int) -> tuple[int, ...] | None:
        operator = self.members[at]
        digits = _radix(axis, [d.extent for d in operator.dims], size)
        if digits is None:
            return None
        return tuple(part for dim in digits for part in self.classes.resolve(self.of[at][dim]))

    def _join(self, left: tuple[int, Access], right: tuple[int, Access]) -> list[int]:
        """Unify two accesses of one tensor axis by axis; returns the axes that stay whole."""
        (at, one), (to, other) = left, right
        shape = self._shape(one.tensor)
        if one.whole or other.whole or len(one.axes) != len(shape) or len(other.axes) != len(shape):
            return list(range(len(shape)))
        whole: list[int] = []
        for number, size in enumerate(shape):
            a = self._digits(at, one.axes[number], size)
            b = self._digits(to, other.axes[number], size)
            if a is not None and b is not None:
                if not self.classes.unify(a, b):
                    whole.append(number)
            elif size > 1:
                whole.append(number)
        return whole

    def run(self) -> GroupSpace:
        """Intermediates first, in file order, then what members read from outside together."""
        writer: dict[int, tuple[int, Access]] = {}
        joints: list[tuple[int, Access, int, list[int]]] = []  # producer, its access, consumer, whole axes
        outside: dict[int, tuple[int, Access]] = {}
        later: list[tuple[tuple[int, Access], tuple[int, Access]]] = []
        for at, operator in enumerate(self.members):
            if at in self.idle:
                continue
            for access in operator.inputs:
                if access.tensor in writer:
                    source, written = writer[access.tensor]
                    whole = self._join((source, written), (at, access))
                    joints.append((source, written, at, whole))
                elif access.tensor in outside:
                    later.append((outside[access.tensor], (at, access)))
                else:
                    outside[access.tensor] = (at, access)
            for access in operator.outputs:
                writer[access.tensor] = (at, access)
        for left, right in later:
            self._join(left, right)
        return self._space(joints)

    def _idle_views(self) -> set[int]:
        """Views whose output no working member reads: they would only cut dims that nobody else has."""
        used: set[int] = set()
        idle: set[int] = set()
        for at in range(len(self.members) - 1, -1, -1):
            operator = self.members[at]
            if operator.kind is OpKind.VIEW and not any(access.tensor in used for access in operator.outputs):
                idle.add(at)
            else:
                used.update(access.tensor for access in operator.inputs)
        return idle if len(idle) < len(self.members) else set()

    # From classes to numbers and names.

    def _space(self, joints: list[tuple[int, Access, int, list[int]]]) -> GroupSpace:
        number, names, extents = self._names()
        workers = [at for at, op in enumerate(self.members) if op.kind is not OpKind.VIEW]
        place = {at: i for i, at in enumerate(workers)}
        local: dict[int, int] = {}
        operators = tuple(self._operator(at, number, local) for at in workers)
        producer = [-1] * len(local)
        readers: list[list[int]] = [[] for _ in local]
        for i, operator in enumerate(operators):
            for access in operator.writes:
                producer[access.tensor] = i
            for access in operator.reads:
                if not readers[access.tensor] or readers[access.tensor][-1] != i:
                    readers[access.tensor].append(i)
        exported = [False] * len(local)
        for at in range(len(self.members)):
            for access in self.members[at].outputs:
                tensor = self.graph.tensors[access.tensor]
                read = any(c not in self.inside for c in self.graph.consumers[access.tensor])
                root = local.get(self.alias.get(access.tensor, access.tensor))
                if root is not None and (tensor.is_output or read):
                    exported[root] = True
        # An output that nobody reads at all is still written.
        for t, at in enumerate(producer):
            exported[t] = exported[t] or (at >= 0 and not readers[t])
        whole = self._whole_masks(joints, number)
        flows = self._flows(workers)
        online = self._online(workers, flows, place, number, exported, local)
        return GroupSpace(
            names=names,
            extents=extents,
            operators=operators,
            dim_of=tuple(
                tuple(
                    "" if at in self.idle else "*".join(names[number[c]] for c in self.classes.resolve(start))
                    for start in starts
                )
                for at, starts in enumerate(self.of)
            ),
            tensors=tuple(local),
            producer=tuple(producer),
            readers=tuple(tuple(r) for r in readers),
            exported=tuple(exported),
            barred=self._barred(operators, workers, flows, whole, online, place),
            online=tuple((place[p], place[c], mask) for p, c, mask, _ in online if c >= 0),
        )

    def _names(self) -> tuple[dict[int, int], tuple[str, ...], tuple[int, ...]]:
        """Numbers in order of first use by a working member; letters of the first that holds the dim whole."""
        order: list[int] = []
        letter: dict[int, str] = {}
        shown = [at for at in range(len(self.members)) if at not in self.idle]
        ranked = sorted(shown, key=lambda at: self.members[at].kind is OpKind.VIEW)
        for at in ranked:
            for dim, start in zip(self.members[at].dims, self.of[at], strict=True):
                parts = self.classes.resolve(start)
                for part in parts:
                    if part not in order:
                        order.append(part)
                if len(parts) == 1:
                    letter.setdefault(parts[0], dim.name)
        taken: set[str] = set()
        names: list[str] = []
        for part in order:
            stem = letter.get(part, "x")
            name, count = stem, 1
            while name in taken:
                count += 1
                name = f"{stem}_{count}"
            taken.add(name)
            names.append(name)
        number = {part: i for i, part in enumerate(order)}
        return number, tuple(names), tuple(self.classes.extent[part] for part in order)

    def _dims(self, at: int, dims: list[int], number: dict[int, int]) -> list[int]:
        return [number[c] for dim in dims for c in self.classes.resolve(self.of[at][dim])]

    def _operator(self, at: int, number: dict[int, int], local: dict[int, int]) -> SpaceOperator:
        operator = self.members[at]
        reductions = [i for i, d in enumerate(operator.dims) if d.reduction]
        reads = tuple(self._access(at, a, number, local) for a in operator.inputs)
        writes = tuple(self._access(at, a, number, local) for a in operator.outputs)
        return SpaceOperator(
            member=at,
            dims=tuple(self._dims(at, list(range(len(operator.dims))), number)),
            reductions=tuple(self._dims(at, reductions, number)),
            reads=reads,
            writes=writes,
            band=None if operator.band is None else self._band(at, operator.band, number),
        )

    def _band(self, at: int, band: Band, number: dict[int, int]) -> Band:
        """The band in group dims: its own are never factored."""
        (q,), (k,) = self._dims(at, [band.q], number), self._dims(at, [band.k], number)
        return replace(band, q=q, k=k)

    def _access(self, at: int, access: Access, number: dict[int, int], local: dict[int, int]) -> SpaceAccess:
        root = self.alias.get(access.tensor, access.tensor)
        tensor = local.setdefault(root, len(local))
        size = self.graph.tensors[access.tensor].elements or 0
        if access.whole:
            return SpaceAccess(tensor, (), size if access.addressed is None else access.addressed)
        axes: list[NestAxis] = []
        used: set[int] = set()
        for axis, extent in zip(access.axes, self._shape(access.tensor), strict=True):
            dims = [d for d in self._dims(at, [dim for dim, _ in axis.terms], number) if d not in used]
            used.update(dims)
            if dims:  # a dim that stood on an axis before (a diagonal) adds nothing
                axes.extend(self._axis(at, axis, extent, dims))
        at_index = tuple(axis.offset for axis in access.axes if not axis.terms)
        return SpaceAccess(tensor, tuple(axes), at=at_index if any(at_index) else ())

    def _axis(self, at: int, axis: Axis, extent: int, dims: list[int]) -> list[NestAxis]:
        local_extents = [d.extent for d in self.members[at].dims]
        if axis.distinct is not None:
            return [IndirectAxis(tuple(dims), axis.distinct)]
        if _radix(axis, local_extents, extent) is not None:
            return [SimpleAxis(d) for d in dims]
        if len(dims) == len(axis.terms) == 1:
            return [SimpleAxis(dims[0], axis.terms[0][1], axis.offset, extent)]
        if len(dims) == len(axis.terms) == 2:
            (_, a), (_, b) = axis.terms
            if a > 0 and b > 0:
                return [WindowAxis(dims[0], dims[1], a, b, axis.offset, extent)]
        # Other affine axes: at most the axis, at most one element per point.
        return [IndirectAxis(tuple(dims), extent)]

    def _whole_masks(
        self, joints: list[tuple[int, Access, int, list[int]]], number: dict[int, int]
    ) -> dict[tuple[int, int], int]:
        """Per joint (producer, consumer) the producer's dims on axes that stay whole."""
        masks: dict[tuple[int, int], int] = {}
        for at, access, to, whole in joints:
            mask = 0
            if access.whole:
                dims = list(range(len(self.members[at].dims)))
            else:
                dims = [dim for i in whole if i < len(access.axes) for dim, _ in access.axes[i].terms]
            for d in self._dims(at, dims, number):
                mask |= 1 << d
            masks[at, to] = masks.get((at, to), 0) | mask
        return masks

    def _flows(self, workers: list[int]) -> list[tuple[int, int, tuple[int, ...]]]:
        """Edges between working members: (producer, consumer, the views in between, first one first)."""
        writer = {a.tensor: at for at, op in enumerate(self.members) for a in op.outputs}
        flows: list[tuple[int, int, tuple[int, ...]]] = []
        for at in workers:
            for access in self.members[at].inputs:
                tensor, views = access.tensor, ()
                while tensor in writer and self.members[writer[tensor]].kind is OpKind.VIEW:
                    view = writer[tensor]
                    views = (view, *views)
                    tensor = self.members[view].inputs[0].tensor
                if tensor in writer:
                    flows.append((writer[tensor], at, views))
        return flows

    def _online(
        self,
        workers: list[int],
        flows: list[tuple[int, int, tuple[int, ...]]],
        place: dict[int, int],
        number: dict[int, int],
        exported: list[bool],
        local: dict[int, int],
    ) -> list[tuple[int, int, int, frozenset[int]]]:
        """Online producers: (producer, contraction, dims, members whose reads of it may follow inside the loop).

        A producer is online towards its consumers where every path from it reaches, through linear operators
        only, a contraction over that dim, and nothing on the way is read outside.
        """
        after: dict[int, list[int]] = {}
        for source, to, _ in flows:
            after.setdefault(source, []).append(to)
        found: list[tuple[int, int, int, frozenset[int]]] = []
        for at in workers:
            operator = self.members[at]
            if not operator.online:
                continue
            mask = 0
            for d in self._dims(at, [i for i, d in enumerate(operator.dims) if d.reduction], number):
                mask |= 1 << d
            ends: set[int] = set()
            way = {at}
            queue, fine = [at], True
            while queue and fine:
                here = queue.pop()
                roots = [local[self.alias.get(a.tensor, a.tensor)] for a in self.members[here].outputs]
                fine = not any(exported[r] for r in roots) and bool(after.get(here))
                for to in after.get(here, ()):
                    member = self.members[to]
                    sums = [i for i, d in enumerate(member.dims) if d.reduction]
                    over = sum(1 << d for d in self._dims(to, sums, number))
                    if member.kind is OpKind.CONTRACTION and over & mask:
                        ends.add(to)
                    elif member.linear and to not in way:
                        way.add(to)
                        queue.append(to)
                    elif to not in way:
                        fine = False
            if fine and ends:
                found.extend((at, end, mask, frozenset(way)) for end in sorted(ends))
        return found

    def _barred(
        self,
        operators: tuple[SpaceOperator, ...],
        workers: list[int],
        flows: list[tuple[int, int, tuple[int, ...]]],
        whole: dict[tuple[int, int], int],
        online: list[tuple[int, int, int, frozenset[int]]],
        place: dict[int, int],
    ) -> tuple[tuple[int, int, int], ...]:
        running = {at for at, _, _, _ in online}
        rows: dict[tuple[int, int], int] = {}
        for source, to, views in flows:
            producer = operators[place[source]]
            mask = 0 if source in running else sum(1 << d for d in producer.reductions)
            steps = [source, *views, to]
            own = sum(1 << d for d in producer.dims)
            for a, b in pairwise(steps):
                kept = whole.get((a, b), 0)
                # An axis that a view keeps whole hides which of the producer's dims it came from.
                mask |= kept if a == source else (own if kept else 0)
            key = (place[source], place[to])
            rows[key] = rows.get(key, 0) | mask
        return tuple((p, c, mask) for (p, c), mask in sorted(rows.items()))


def unify(graph: OperatorGraph, members: tuple[int, ...]) -> GroupSpace:
    """The group space of the operators `members` (indices in the graph, ascending)."""
    return _Unifier(graph, members).run()
