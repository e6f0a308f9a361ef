"""Every shape that a mapping of one group can have: loop trees, orders of the element loops, depths of the tiles.

Knows the group's dims, operators and accesses and nothing of extents, sizes or machines: two groups of one structure
have the same shapes, which are made once. Laws: docs/loop-tree.md, sections 1 and 2. The space: every operator stands
under a tile loop of each of its dims (loops of one trip change nothing), shared with neighbours or its own; a
contraction's element loops run in one order for the group; each tensor from or to outside has one depth.

What can never be the best is left out, for any tile and any capacity: a depth from which the tile can be made smaller
without being fetched again; and of two ways to run one operator in the same place the one whose every operand has no
smaller tile, no fewer fetches and no longer a life.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, permutations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cost import sweep as k
from ..cost.layout import axis_dims
from ..cost.nest import OUTER, SimpleAxis
from ..cost.problem import Problem
from .descent import SINGLE, TILED

MOST_SHAPES = 20_000
"""Shapes of one structure; beyond them the list ends and the search is not exact."""
_FREE_OPERATORS = 3  # of a group whose loops may be shared in any way; in larger ones what can be shared is
_CHOICES = 2_000  # of the options of a larger group's operators together, under given shared loops
_FREE_DIMS = (
    4  # of one operator whose loops may stand in any order; of more, dims that are alike stay together
)
_MOST_ORDERS = 120  # of one operator's own loops, or of its elements

Ints = NDArray[np.int64]
Forest = tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A loop that several operators share and what runs in it; ``operator`` >= 0: a leaf instead."""

    operator: int
    dim: int = -1
    body: Forest = ()


@dataclass(frozen=True, slots=True)
class StructureAccess:
    """``touch``: dims that address the operand; ``loose``: those whose cuts change how much is fetched in all."""

    tensor: int
    write: bool
    touch: int
    loose: int


@dataclass(frozen=True, slots=True)
class StructureOperator:
    """Dims of several points only."""

    dims: tuple[int, ...]
    reductions: tuple[int, ...]
    contraction: bool
    pointwise: bool
    accesses: tuple[StructureAccess, ...]


@dataclass(frozen=True)
class Structure:
    """What the shapes of a group depend on.

    ``inner``: per tensor whether it stays in the buffer. ``singles``: whether tiles may stay inside element loops; not
    where registers stand below the buffer, whose loops come between.
    """

    dims: int
    operators: tuple[StructureOperator, ...]
    inner: tuple[bool, ...]
    barred: tuple[tuple[int, int, int], ...]
    singles: bool

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """Dims that every access of every operator is cut along: outermost, one by one, they cost nothing."""
        alike = (1 << self.dims) - 1
        for operator in self.operators:
            for access in operator.accesses:
                alike &= access.touch & ~access.loose
        for _, _, mask in self.barred:
            alike &= ~mask
        return tuple(d for d in range(self.dims) if alike >> d & 1)

    @cached_property
    def uses(self) -> tuple[tuple[object, ...], ...]:
        """Per dim how every operator and every access has it: dims with equal uses are alike."""
        return tuple(
            tuple(
                (
                    d in op.dims,
                    d in op.reductions,
                    *((a.touch >> d & 1, a.loose >> d & 1) for a in op.accesses),
                )
                for op in self.operators
            )
            for d in range(self.dims)
        )

    @cached_property
    def read_twice(self) -> frozenset[int]:
        """Tensors from outside that several operators read: one depth, and perhaps one stream."""
        readers: dict[int, set[int]] = {}
        for o, operator in enumerate(self.operators):
            for access in operator.accesses:
                if not access.write and not self.inner[access.tensor]:
                    readers.setdefault(access.tensor, set()).add(o)
        return frozenset(tensor for tensor, found in readers.items() if len(found) > 1)

    @cached_property
    def elements_in_common(self) -> tuple[int, ...]:
        """Dims of several contractions: their element loops stand in one order."""
        count = [0] * self.dims
        for operator in self.operators:
            for d in operator.dims if operator.contraction else ():
                count[d] += 1
        return tuple(d for d in range(self.dims) if count[d] > 1 and d not in self.batch)


def structure_of(problem: Problem) -> Structure:
    """The structure of a posed group."""
    base, extents = problem.base, problem.space.extents
    sized = sum(1 << d for d, extent in enumerate(extents) if extent > 1)
    operators: list[StructureOperator] = []
    for operator in base.operators:
        accesses: list[StructureAccess] = []
        for write, found in ((False, operator.reads), (True, operator.writes)):
            for access in found:
                touch = sum({1 << d for axis in access.axes for d in axis_dims(axis)}) & sized
                odd = {d for axis in access.axes if not isinstance(axis, SimpleAxis) for d in axis_dims(axis)}
                accesses.append(
                    StructureAccess(access.tensor, write, touch, sum(1 << d for d in odd) & sized)
                )
        operators.append(
            StructureOperator(
                tuple(d for d in operator.dims if extents[d] > 1),
                tuple(d for d in operator.reductions if extents[d] > 1),
                operator.contraction,
                operator.pointwise,
                tuple(accesses),
            )
        )
    return Structure(
        len(extents),
        tuple(operators),
        tuple(tensor.home != OUTER for tensor in base.tensors),
        problem.space.barred,
        problem.machine.levels == 1,
    )


class Way(NamedTuple):
    """An operator's own tile loops, its element loops, and per access the depth; -1: it stays in the buffer."""

    loops: tuple[int, ...]
    elements: tuple[int, ...]
    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """Equally good ways to run an operator under given shared loops.

    ``cost`` grows with every tile, every number of fetches and every life of an access; ``ways`` per order of the
    element loops that contractions have in common (by number).
    """

    cost: tuple[int, ...]
    ways: dict[int, Way]


@dataclass(frozen=True, slots=True)
class Shapes:
    """All shapes of a structure, as `descent.descend` reads them.

    Attributes
    ----------
    loops, path, lengths, tree : per nest its loops, the operators' paths, their lengths, how many are tile loops.
    nest_of, depths : per shape.
    forests, private, elements : per nest the shared loops, each operator's own ones, and the order of element loops.
    exact : whether the list is complete.
    """

    loops: Ints
    path: Ints
    lengths: Ints
    tree: Ints
    nest_of: Ints
    depths: Ints
    forests: tuple[Forest, ...]
    private: tuple[tuple[tuple[int, ...], ...], ...]
    elements: tuple[tuple[int, ...], ...]
    exact: bool


@lru_cache(maxsize=256)
def shapes_of(structure: Structure) -> Shapes:
    """Enumerate the shapes of a structure, those of the most shared loops first."""
    return _Enumeration(structure).shapes()


class _Enumeration:
    """One run; the steps are methods so that each is short."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.exact = True
        self.orders = list(permutations(structure.elements_in_common))
        self.known: dict[tuple[int, tuple[int, ...]], list[Option]] = {}

    # Shared loops.

    def forests(self, first: int, last: int, above: tuple[int, ...]) -> Iterator[Forest]:
        """What may stand under the loops `above`: runs of operators under a further loop, or operators alone."""
        if first == last:
            yield ()
            return
        for end in range(last, first, -1):
            for head in self.blocks(first, end, above):
                for rest in self.forests(end, last, above):
                    yield (head, *rest)

    def blocks(self, first: int, end: int, above: tuple[int, ...]) -> Iterator[Node]:
        if end - first == 1:
            yield Node(first)
            return
        own = [
            sum(d in op.dims for op in self.structure.operators[first:end])
            for d in range(self.structure.dims)
        ]
        for d in sorted(range(self.structure.dims), key=lambda d: -own[d]):
            if d not in above and self.may_share(d, first, end, above):
                for body in self.forests(first, end, (*above, d)):
                    yield Node(-1, d, body)

    def may_share(self, dim: int, first: int, end: int, above: tuple[int, ...]) -> bool:
        """Whether the laws allow one loop over `dim` around a run of operators."""
        operators = self.structure.operators[first:end]
        own = [dim in operator.dims for operator in operators]
        if not any(own):
            return False
        if any(not has and set(above) & set(op.reductions) for has, op in zip(own, operators, strict=True)):
            return False
        return not any(
            first <= p < end and first <= c < end and mask >> dim & 1 for p, c, mask in self.structure.barred
        )

    # One operator.

    def options(self, o: int, above: tuple[int, ...]) -> list[Option]:
        """The ways to run an operator under the shared loops `above` that no other way beats."""
        key = (o, above)
        if key in self.known:
            return self.known[key]
        operator = self.structure.operators[o]
        own = tuple(d for d in operator.dims if d not in above)
        placed = [i for i, a in enumerate(operator.accesses) if not self.structure.inner[a.tensor]]
        orders = self.arranged(own) if placed else [own]
        inners = [operator.reductions if self.structure.singles else ()]
        if operator.contraction and self.structure.singles:
            inner = tuple(d for d in operator.dims if d not in self.structure.batch)
            inners = self.arranged(inner) if placed else [inner]
        found: dict[tuple[int, ...], Option] = {}
        for private, elements in product(orders, inners):
            path = (*above, *private, *elements)
            tiled = len(above) + len(private)
            agreeing = self.agreeing(elements) if operator.contraction and placed else range(len(self.orders))
            choices = [
                [
                    (depth, self.cost(access, path, tiled, depth, len(above)))
                    for depth in self.depths(access, path)
                ]
                for access in (operator.accesses[i] for i in placed)
            ]
            for chosen in product(*choices):
                cost = tuple(number for _, part in chosen for number in part)
                option = found.setdefault(cost, Option(cost, {}))
                for number in agreeing:
                    if number not in option.ways:
                        every = [-1] * len(operator.accesses)
                        for i, (depth, _) in zip(placed, chosen, strict=True):
                            every[i] = depth
                        option.ways[number] = Way(private, elements, tuple(every))
        out = list(found.values())
        if not operator.pointwise:  # working in place needs equal depths, which a smaller tile may not have
            out = _unbeaten(out)
        self.known[key] = out
        return out

    def arranged(self, dims: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The orders of some dims; where they are many, of bundles of dims that are alike, and the first ones."""
        bundles = [(d,) for d in dims]
        if len(dims) > _FREE_DIMS:
            self.exact = False
            alike: dict[tuple[object, ...], tuple[int, ...]] = {}
            for d in dims:
                key = self.structure.uses[d]
                alike[key] = (*alike.get(key, ()), d)
            bundles = list(alike.values())
        found = [
            tuple(d for bundle in order for d in bundle)
            for order in islice(permutations(bundles), _MOST_ORDERS + 1)
        ]
        if len(found) > _MOST_ORDERS:
            self.exact = False
            found.pop()
        return found

    def agreeing(self, elements: tuple[int, ...]) -> list[int]:
        """The orders of the dims in common that an order of element loops agrees with."""
        common = [d for d in elements if d in self.structure.elements_in_common]
        return [i for i, order in enumerate(self.orders) if [d for d in order if d in common] == common]

    def depths(self, access: StructureAccess, path: tuple[int, ...]) -> list[int]:
        """Depths that matter: where a loop that does not touch the operand follows one that does."""
        touched = [bool(access.touch >> d & 1) for d in path]
        out: list[int] = []
        for depth in range(len(path) + 1):
            if depth and not touched[depth - 1]:
                continue
            follows = depth < len(path) and touched[depth]
            # Further in, the tile is smaller and fetched as often, unless its edges overlap or it is shared.
            if follows and not access.loose and access.tensor not in self.structure.read_twice:
                continue
            out.append(depth)
        return out

    def cost(
        self, access: StructureAccess, path: tuple[int, ...], tiled: int, depth: int, shared: int
    ) -> tuple[int, ...]:
        """What grows with traffic and footprint: per dim 0, 1 or 2 for one, tile or extent; the life; the place."""
        state = [0] * self.structure.dims
        for place, d in enumerate(path[:depth]):
            state[d] = 1 if place < tiled else 2
        out: list[int] = []
        for d, s in enumerate(state):
            if access.touch >> d & 1:
                out.append(2 - s)
            if not access.touch >> d & 1 or access.loose >> d & 1:
                out.append(s)
        out.append(max(0, shared - depth))
        if access.tensor in self.structure.read_twice:
            out.extend((depth, -depth))
        return tuple(out)

    # All together.

    def shapes(self) -> Shapes:
        """Every combination of shared loops and options, each nest once."""
        structure = self.structure
        nests: dict[tuple[Forest, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]], int] = {}
        rows: dict[tuple[int, ...], None] = {}
        writers = {a.tensor: o for o, op in enumerate(structure.operators) for a in op.accesses if a.write}
        for forest in self.all_forests():
            above = _above(forest)
            kept = {
                t: min(
                    _common(forest, writers[t], o)
                    for o, op in enumerate(structure.operators)
                    for a in op.accesses
                    if a.tensor == t and not a.write
                )
                for t, inner in enumerate(structure.inner)
                if inner
            }
            choices = [self.options(o, tuple(above[o])) for o in range(len(structure.operators))]
            if len(choices) > _FREE_OPERATORS:
                most = max(2, int(_CHOICES ** (1 / len(choices))))
                self.exact = self.exact and all(len(options) <= most for options in choices)
                choices = [options[:most] for options in choices]
            for options in self.agreed(choices, frozenset(range(len(self.orders))), {}):
                number = min(frozenset.intersection(*(frozenset(option.ways) for option in options)))
                ways = [option.ways[number] for option in options]
                if len(rows) >= MOST_SHAPES:
                    self.exact = False
                    return self.packed(list(nests), list(rows))
                depths: list[int] = []
                for operator, way in zip(structure.operators, ways, strict=True):
                    for access, depth in zip(operator.accesses, way.depths, strict=True):
                        depths.append(kept[access.tensor] if depth < 0 else depth)
                key = (forest, tuple(way.loops for way in ways), tuple(way.elements for way in ways))
                rows[nests.setdefault(key, len(nests)), *depths] = None
        return self.packed(list(nests), list(rows))

    def agreed(
        self, choices: list[list[Option]], orders: frozenset[int], said: dict[int, int]
    ) -> Iterator[tuple[Option, ...]]:
        """One option of each operator, where they agree on an order of elements and on each tensor's depth."""
        if not choices:
            yield ()
            return
        o = len(self.structure.operators) - len(choices)
        for option in choices[0]:
            both = orders & option.ways.keys()
            if not both:
                continue
            depths = option.ways[min(both)].depths  # of such a tensor the same in all ways
            here = {
                access.tensor: depth
                for access, depth in zip(self.structure.operators[o].accesses, depths, strict=True)
                if access.tensor in self.structure.read_twice
            }
            if any(said.get(tensor, depth) != depth for tensor, depth in here.items()):
                continue
            for rest in self.agreed(choices[1:], both, said | here):
                yield (option, *rest)

    def all_forests(self) -> Iterator[Forest]:
        """The shared loops of the whole group, under loops over its batch dims."""
        count = len(self.structure.operators)
        batch = self.structure.batch if count > 1 else ()
        if count <= _FREE_OPERATORS:
            bodies = self.forests(0, count, batch)
        else:
            self.exact = False
            dims = tuple(d for d in range(self.structure.dims) if d not in batch)
            orders = self.arranged(
                tuple(d for d in dims if any(d in op.dims for op in self.structure.operators))
            )
            grown = (
                self.grown(0, count, order[:cut]) for order in orders for cut in range(len(order), -1, -1)
            )
            bodies = iter(dict.fromkeys(grown))
        for body in bodies:
            for d in reversed(batch):
                body = (Node(-1, d, body),)
            yield body

    def grown(self, first: int, last: int, order: tuple[int, ...]) -> Forest:
        """The canonical tree of a loop order (docs/loop-tree.md, section 1): loops over single operators are theirs."""
        if not order or last - first == 1:
            return tuple(Node(o) for o in range(first, last))
        out: list[Node] = []
        at = first
        while at < last:
            end = at + 1
            while end < last and order[0] in self.structure.operators[at].dims:
                if order[0] not in self.structure.operators[end].dims or not self.may_share(
                    order[0], at, end + 1, ()
                ):
                    break
                end += 1
            if end - at > 1:
                out.append(Node(-1, order[0], self.grown(at, end, order[1:])))
            else:  # with those behind that have no such loop either
                while end < last and order[0] not in self.structure.operators[end].dims:
                    end += 1
                out.extend(self.grown(at, end, order[1:]))
            at = end
        return tuple(out)

    def packed(
        self,
        nests: list[tuple[Forest, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]],
        rows: list[tuple[int, ...]],
    ) -> Shapes:
        """The arrays."""
        operators = len(self.structure.operators)
        # Only operators with an operand from or to outside tell their element loops apart.
        tells = [
            op.contraction and not all(self.structure.inner[a.tensor] for a in op.accesses)
            for op in self.structure.operators
        ]
        drawn = [_loops_of(forest, private, elements) for forest, private, elements in nests]
        longest = max((len(path) for _, paths in drawn for path in paths), default=0)
        count = max((len(loops) for loops, _ in drawn), default=0) or 1
        loops = np.zeros((len(nests), count, k.LOOP_COLUMNS), np.int64)
        path = np.zeros((len(nests), operators, longest + 1), np.int64)
        lengths = np.zeros((len(nests), operators), np.int64)
        tree = np.zeros((len(nests), operators), np.int64)
        for n, ((found, paths), (_, _, elements)) in enumerate(zip(drawn, nests, strict=True)):
            if found:
                loops[n, : len(found)] = found
            for o, own in enumerate(paths):
                path[n, o, : len(own)] = own
                lengths[n, o] = len(own)
                tree[n, o] = len(own) - len(elements[o])
        accesses = sum(len(op.accesses) for op in self.structure.operators)
        table = np.array(rows, np.int64).reshape(len(rows), accesses + 1)
        return Shapes(
            loops=loops,
            path=path,
            lengths=lengths,
            tree=tree,
            nest_of=np.ascontiguousarray(table[:, 0]),
            depths=np.ascontiguousarray(table[:, 1:]),
            forests=tuple(forest for forest, _, _ in nests),
            private=tuple(private for _, private, _ in nests),
            elements=tuple(
                _merged([e for e, told in zip(elements, tells, strict=True) if told])
                for *_, elements in nests
            ),
            exact=self.exact,
        )


def _unbeaten(options: list[Option]) -> list[Option]:
    """Without those that another one beats in every cost, in at least as many orders of element loops."""
    if len(options) < 2:
        return options
    costs = np.array([option.cost for option in options], np.int16).reshape(len(options), -1)
    ways = [frozenset(option.ways) for option in options]
    order = np.argsort(costs.sum(axis=1), kind="stable")  # only a smaller sum can beat
    kept: list[int] = []
    for i in order.tolist():
        beaten = np.flatnonzero((costs[kept] <= costs[i]).all(axis=1)) if kept else ()
        if not any(ways[i] <= ways[kept[j]] for j in beaten):
            kept.append(i)
    return [options[i] for i in kept]


def _above(forest: Forest) -> dict[int, list[int]]:
    """Per operator the dims of the shared loops that it stands under."""
    out: dict[int, list[int]] = {}

    def visit(body: Forest, dims: list[int]) -> None:
        for node in body:
            if node.operator >= 0:
                out[node.operator] = dims
            else:
                visit(node.body, [*dims, node.dim])

    visit(forest, [])
    return out


def _common(forest: Forest, one: int, other: int) -> int:
    """How many loops two operators share."""
    for node in forest:
        below = _above((node,)) if node.operator < 0 else {}
        if one in below and other in below:
            return 1 + _common(node.body, one, other)
    return 0


def _loops_of(
    forest: Forest, private: tuple[tuple[int, ...], ...], elements: tuple[tuple[int, ...], ...]
) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """Loops in preorder as rows of `sweep.py`'s columns, and per operator the loops of its path."""
    rows: list[tuple[int, ...]] = []
    paths: list[list[int]] = [[] for _ in private]

    def visit(body: Forest, outside: list[int]) -> list[int]:
        members: list[int] = []
        for node in body:
            if node.operator >= 0:
                o = node.operator
                own = [(d, TILED) for d in private[o]] + [(d, SINGLE) for d in elements[o]]
                paths[o] = [*outside, *range(len(rows), len(rows) + len(own))]
                rows.extend((d, kind, 1, o, o) for d, kind in own)
                members.append(o)
                continue
            number = len(rows)
            rows.append(())
            inside = visit(node.body, [*outside, number])
            rows[number] = (node.dim, TILED, 1, inside[0], inside[-1])
            members.extend(inside)
        return members

    visit(forest, [])
    return rows, paths


def _merged(orders: list[tuple[int, ...]]) -> tuple[int, ...]:
    """One order that holds each of some orders that agree on what they have in common."""
    after = {
        d: {e for order in orders if d in order for e in order[: order.index(d)]}
        for order in orders
        for d in order
    }
    out: list[int] = []
    while len(out) < len(after):
        out.append(next(d for d, before in after.items() if d not in out and before <= set(out)))
    return tuple(out)
