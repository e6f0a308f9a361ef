"""Every shape that a mapping of one group can have: loop trees, orders of the element loops, depths of the tiles.

Knows the group's dims, operators and accesses and nothing of extents, sizes or machines: two groups of one structure
have the same shapes, which are made once. Laws: docs/loop-tree.md, sections 1 and 2. The space: every operator stands
under a tile loop of each of its dims (loops of one trip change nothing), shared with neighbours or its own; a
contraction's element loops run in one order for the group. That a plan gives every tensor one depth is seen to where a
tile is found (`descent.agrees`).

What can never be the best is left out, for any tile and any capacity: a depth from which the tile can be made smaller
without being fetched again; and of two ways to run one operator in the same place the one whose every operand has no
smaller tile, no fewer fetches and no longer a life.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, permutations, product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cost import sweep as k
from .descent import SINGLE, TILED
from .dominance import promising, unbeaten
from .structure import Structure, StructureAccess

MOST_SHAPES = 40_000
"""Shapes of one structure; beyond them the list ends and the search is not exact."""
_FREE_GROUP = (
    4,
    6,
)  # operators and dims of a group whose loops may be shared in any way; in larger ones all that can
_FREE_DIMS = (
    4  # of one operator whose loops may stand in any order; of more, dims that are alike stay together
)
_MOST_OPERATORS = 64  # of a group that is searched at all
_FEW_ORDERS = 6  # of the elements that the contractions of a larger group have in common
_MOST_ORDERS = 120  # of one operator's own loops, or of its elements

Ints = NDArray[np.int64]
Forest = tuple["Node", ...]
_Nest = tuple[Forest, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""Shared loops, and per operator its own tile loops and its element loops."""


@dataclass(frozen=True, slots=True)
class Node:
    """A loop that several operators share and what runs in it; ``operator`` >= 0: a leaf instead."""

    operator: int
    dim: int = -1
    body: Forest = ()


class Way(NamedTuple):
    """An operator's own tile loops, its element loops, and per access the depth; -1: it stays in the buffer."""

    loops: tuple[int, ...]
    elements: tuple[int, ...]
    depths: tuple[int, ...]


_NO_WAY = Way((), (), ())


@dataclass(frozen=True, slots=True)
class Option:
    """Equally good ways to run an operator under given shared loops.

    ``cost`` grows with every tile, every number of fetches and every life of an access; ``ways`` per order of the
    element loops that contractions have in common (by number).
    """

    cost: tuple[int, ...]
    ways: dict[int, Way]


class _Placed(NamedTuple):
    """An option under certain shared loops: its orders of elements as a mask, and per order the way and all depths."""

    orders: int
    ways: list[Way]
    depths: list[tuple[int, ...]]


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
    found = _Enumeration(structure).shapes()
    kept = promising(structure, found)
    return replace(found, nest_of=found.nest_of[kept], depths=found.depths[kept])


class _Enumeration:
    """One run; the steps are methods so that each is short."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.exact = True
        self.orders = self.arranged(structure.elements_in_common)
        if len(structure.operators) > _FREE_GROUP[0]:
            self.orders = self.orders[:_FEW_ORDERS]
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
        if len(structure.operators) > _MOST_OPERATORS:
            self.exact = False
            return self.packed([], [])
        nests: dict[tuple[object, ...], int] = {}
        parts: list[_Nest] = []
        rows: dict[tuple[int, ...], None] = {}
        writers = {a.tensor: o for o, op in enumerate(structure.operators) for a in op.accesses if a.write}
        inner = [
            [a.tensor if structure.inner[a.tensor] else -1 for a in op.accesses] for op in structure.operators
        ]
        forests, free = self.all_forests()
        for number, forest in enumerate(forests):
            above = _above(forest)
            kept = {
                t: min(
                    _common(forest, writers[t], o)
                    for o, op in enumerate(structure.operators)
                    for a in op.accesses
                    if a.tensor == t and not a.write
                )
                for t, inside in enumerate(structure.inner)
                if inside
            }
            options = [self.options(o, tuple(above[o])) for o in range(len(structure.operators))]
            if not free:
                options = self.fewer(options, MOST_SHAPES // len(forests) // len(options))
            choices = [[self.placed(one, inner[o], kept) for one in each] for o, each in enumerate(options)]
            for mask, chosen in self.agreed(choices, (1 << len(self.orders)) - 1):
                if len(rows) >= MOST_SHAPES:
                    self.exact = False
                    return self.packed(parts, list(rows))
                order = (mask & -mask).bit_length() - 1
                ways = [found.ways[order] for found in chosen]
                key = (number, *((way.loops, way.elements) for way in ways))
                nest = nests.setdefault(key, len(nests))
                if nest == len(parts):
                    loops, elements = tuple(way.loops for way in ways), tuple(way.elements for way in ways)
                    parts.append((forest, loops, elements))
                rows[nest, *(depth for found in chosen for depth in found.depths[order])] = None
        return self.packed(parts, list(rows))

    def fewer(self, options: list[list[Option]], most: int) -> list[list[Option]]:
        """The first options of each operator, so that they make about `most` combinations."""
        out = list(options)
        while prod(len(each) for each in out) > max(1, most):
            self.exact = False
            longest = max(range(len(out)), key=lambda o: len(out[o]))
            out[longest] = out[longest][: len(out[longest]) // 2]
        return out

    def placed(self, option: Option, inner: list[int], kept: dict[int, int]) -> _Placed:
        """An option under certain shared loops, where the depths of what stays inside are known."""
        ways = [option.ways.get(number, _NO_WAY) for number in range(len(self.orders))]
        depths = [
            tuple(kept[t] if t >= 0 else depth for t, depth in zip(inner, way.depths, strict=False))
            for way in ways
        ]
        return _Placed(sum(1 << number for number in option.ways), ways, depths)

    def agreed(self, choices: list[list[_Placed]], orders: int) -> Iterator[tuple[int, tuple[_Placed, ...]]]:
        """One option of each operator, where they agree on an order of elements; the orders as a mask."""
        if not choices:
            yield orders, ()
            return
        for option in choices[0]:
            both = orders & option.orders
            if both:
                for mask, rest in self.agreed(choices[1:], both):
                    yield mask, (option, *rest)

    def all_forests(self) -> tuple[list[Forest], bool]:
        """The shared loops of the whole group, under loops over its batch dims; whether these are all there are."""
        count = len(self.structure.operators)
        batch = self.structure.batch if count > 1 else ()
        dims = tuple(
            d
            for d in range(self.structure.dims)
            if d not in batch and any(d in op.dims for op in self.structure.operators)
        )
        free = count <= _FREE_GROUP[0] and (count == 1 or len(dims) <= _FREE_GROUP[1])
        if free:
            bodies = list(self.forests(0, count, batch))
        else:
            self.exact = False
            orders = self.arranged(dims)
            grown = (
                self.grown(0, count, order[:cut]) for order in orders for cut in range(len(order), -1, -1)
            )
            bodies = list(dict.fromkeys(grown))
        out: list[Forest] = []
        for body in bodies:
            for d in reversed(batch):
                body = (Node(-1, d, body),)
            out.append(body)
        return out, free

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
        nests: list[_Nest],
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
    ways = [frozenset(option.ways) for option in options]
    orders = sorted(frozenset().union(*ways))
    missing = [[number not in way for number in orders] for way in ways]
    costs = [(*option.cost, *lacks) for option, lacks in zip(options, missing, strict=True)]
    return [options[i] for i in unbeaten(np.array(costs, np.int8))]


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
                rows.extend((d, kind, 1, o, o, 1) for d, kind in own)
                members.append(o)
                continue
            number = len(rows)
            rows.append(())
            inside = visit(node.body, [*outside, number])
            rows[number] = (node.dim, TILED, 1, inside[0], inside[-1], 1)  # no core shares a sum
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
