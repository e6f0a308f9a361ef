"""Blocks of a graph: the layers, stages and heads that a person would name, nested in each other.

Knows the graph's values alone. Blocks come from the scopes that the reader found (metadata, paths in names,
functions); where most operators have none, from repetition: a stretch of operators whose types come again and
again. What is left and still too long to look at is cut into sections where few tensors pass.

Blocks are *runs* of one topological order of the operators (`Hierarchy.order`), so that any set of disjoint
blocks may be drawn as one box each: lines between runs of a topological order only go forward, no box can be
its own ancestor. A scope whose operators cannot lie together (something outside reads it and feeds it) is
split into as many blocks as it takes::

    file order    a0 b0 a1 b1        scopes a = {a0, a1}, b = {b0, b1}
    a0 -> a1, b0 -> b1               order a0 a1 b0 b1: one block each
    a0 -> b0 -> a1 -> b1             four operators alone: a and b would read each other

Everything is a function of the graph and deterministic; O(n log n) in operators and edges for scopes of bounded
depth (deeper ones than `DEEPEST` are not told apart).
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from .graph import OperatorGraph, OpKind, TensorRole

DEEPEST = 16  # scopes below this depth belong to the last one
SCOPED_SHARE = 0.5  # of operators must have a scope, else repetition tells more
LONGEST_LIST = 200  # items of one block that can be looked at; more are cut into sections
SECTIONS, SECTION_ITEMS = 64, 64  # at most so many sections, of about so many items where they suffice
MOST_BOXES = 200  # boxes that a graph opens with at most
ENOUGH_BOXES = 16  # from here on blocks stay closed: the picture can be read
LAYERS = 4  # so many numbered siblings that hold most of the graph are its layers: they stay closed
COVERED = (
    0.9  # of operators in what repeats at one distance; with less a network of stages may be told better
)
_WINDOW = 4  # operators that must come again for a repetition to be looked for
_PERIODS = 24  # distances that are tried
_SHORTEST_PERIOD = 4
_PATIENCE = 4096  # operators between two looks at whether to go on
_NESTED = 40  # operators of a copy that may hold copies of its own
_COPY = re.compile(r" \(\d+\)$")  # what tells siblings of one name apart


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Nested blocks, each a run of `order`. Blocks are numbered as they are met: a parent before its children.

    Attributes
    ----------
    order : int32[operators], a topological order.
    name : per block, unique among its siblings as a rule, readable alone (``layers.3``, not ``3``).
    parent : int32[blocks], -1 for those at the top.
    start, end : int32[blocks], the run in `order`; at least two operators.
    form : int32[blocks]: equal where op types and extents are equal, operator by operator.
    home : int32[operators], the innermost block of each operator, -1 where it is in none.
    macs : multiply-accumulates per block (Python integers).
    source : "scopes", "repetition" or "" where there are no blocks.
    """

    order: NDArray[np.int32]
    name: tuple[str, ...]
    parent: NDArray[np.int32]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    form: NDArray[np.int32]
    home: NDArray[np.int32]
    macs: tuple[int, ...]
    source: str

    def operators(self, block: int) -> NDArray[np.int32]:
        """The operators of a block, in topological order."""
        return self.order[self.start[block] : self.end[block]]

    def path(self, block: int) -> tuple[int, ...]:
        """A block and those around it, outermost first."""
        out = [block]
        while (above := int(self.parent[out[-1]])) >= 0:
            out.append(above)
        return tuple(reversed(out))

    def children(self, block: int) -> NDArray[np.int64]:
        """The blocks right inside a block; those at the top for -1."""
        return np.flatnonzero(self.parent == block)

    def outermost(self, closed: Iterable[int]) -> NDArray[np.int32]:
        """int32[operators]: the outermost block of `closed` that holds each operator, -1 where none does."""
        out = np.full(len(self.order), -1, dtype=np.int32)
        for block in sorted(closed, reverse=True):  # a parent comes last: it writes over its children
            out[self.operators(block)] = block
        return out

    def opening(self, most: int = MOST_BOXES, enough: int = ENOUGH_BOXES) -> frozenset[int]:
        """The blocks that are closed when a graph opens: alike ones alike, no more than `most` boxes in all.

        From the top, the largest blocks are opened, with all that are more than half as large, until there
        are `enough` boxes, or the layers are seen, or the next step would make more than `most`.
        """
        size = self.end - self.start
        boxes = Counter(self.parent.tolist())  # right inside each block: blocks, and operators alone
        for home, alone in Counter(self.home.tolist()).items():
            boxes[home] += alone
        closed, count = set(self.children(-1).tolist()), boxes[-1]
        while closed and count < enough and not self._are_layers(closed):
            largest = max(int(size[block]) for block in closed)
            opened = [block for block in closed if 2 * int(size[block]) > largest]
            more = sum(boxes[block] - 1 for block in opened)
            if count + more > most:
                break
            count += more
            closed.difference_update(opened)
            closed.update(child for block in opened for child in self.children(block).tolist())
        return frozenset(closed)

    def _are_layers(self, blocks: Iterable[int]) -> bool:
        """Whether numbered siblings hold more than half of all operators."""
        siblings: dict[tuple[int, str], list[int]] = {}
        for block in blocks:
            if (stem := _stem(self.name[block])) != self.name[block]:
                siblings.setdefault((int(self.parent[block]), stem), []).append(block)
        held = [
            sum(len(self.operators(b)) for b in found) for found in siblings.values() if len(found) >= LAYERS
        ]
        return 2 * max(held, default=0) > len(self.order)

    def runs(self, blocks: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Neighbours of one form together, as ``layers.0 … layers.79 ×80``: the name and the blocks."""
        out: list[tuple[str, list[int]]] = []
        for _, run in groupby(blocks, key=lambda block: (int(self.form[block]), _stem(self.name[block]))):
            found = list(run)
            first, last = self.name[found[0]], self.name[found[-1]]
            out.append((first if len(found) == 1 else f"{first} … {last} ×{len(found):,}", found))
        return out


def parameter_bytes(graph: OperatorGraph, operators: Iterable[int]) -> int:
    """Bytes of the weights that some operators read, each tensor once, at the file's element types."""
    read = {access.tensor for operator in operators for access in graph.operators[operator].inputs}
    weights = (graph.tensors[tensor] for tensor in read if graph.tensors[tensor].role is TensorRole.WEIGHT)
    return sum(tensor.bytes or 0 for tensor in weights)


def hierarchy(graph: OperatorGraph, check: Callable[[], object] = lambda: None) -> Hierarchy:
    """The blocks of `graph`; none where it has neither scopes nor repetition and is short.

    `check` is called between steps: what it raises ends the work.
    """
    return _Builder(graph, check).build()


@dataclass(slots=True)
class _Block:
    """A block while it is made; items are operators and blocks, in their order."""

    name: str
    items: list[int | _Block]


class _Builder:
    """From scopes or repetition to a tree, and from the tree to arrays."""

    def __init__(self, graph: OperatorGraph, check: Callable[[], object]) -> None:
        self.graph = graph
        self._check = check
        self.count = len(graph.operators)
        scoped = sum(1 for operator in graph.operators if operator.scope)
        self.by_scope = scoped > SCOPED_SHARE * self.count
        kinds: dict[object, int] = {}
        self.type_of = [kinds.setdefault((o.domain, o.op_type), len(kinds)) for o in graph.operators]
        self._item = [-1] * self.count  # in which item of the block at hand an operator lies

    def build(self) -> Hierarchy:
        """The finished blocks."""
        if self.by_scope:
            items = self._scoped(list(range(self.count)), 0, "")
        else:
            whole = list(range(self.count))
            items, inside = self._repeated(whole, "block."), self._branching("block.")
            covered, better = (
                sum(len(_members(i)) for i in of if isinstance(i, _Block)) for of in (items, inside)
            )
            if covered < COVERED * self.count and better > covered:
                items = inside
        return self._arrays(self._sections(_plain(items, self.count), ""))

    # -- scopes --------------------------------------------------------------------------------------
    def _scoped(self, operators: list[int], depth: int, above: str) -> list[int | _Block]:
        """Operators (ascending) of one block, those of one scope together, in topological order."""
        self._check()
        scopes = [self.graph.operators[operator].scope for operator in operators]
        names = [scope[depth] if depth < min(len(scope), DEEPEST) else None for scope in scopes]
        parts: list[tuple[str | None, list[int]]] = []
        for name, run in groupby(zip(names, operators, strict=True), key=lambda pair: pair[0]):
            members = [operator for _, operator in run]
            parts += [(name, members)] if name is not None else [(None, [member]) for member in members]
        named = [name for name, _ in parts if name is not None]
        if len(set(named)) < len(named):
            parts = self._together(parts)
        pieces = Counter(name for name, _ in parts if name is not None)
        met: Counter[str] = Counter()
        out: list[int | _Block] = []
        for name, members in parts:
            if name is None or len(members) == 1:
                out += members
                continue
            met[name] += 1
            own = readable(name, above)
            inside = self._scoped(members, depth + 1, own)
            out.append(_Block(own if pieces[name] == 1 else f"{own} ({met[name]})", inside))
        return out

    def _together(self, parts: list[tuple[str | None, list[int]]]) -> list[tuple[str | None, list[int]]]:
        """Parts of one name joined where that makes no cycle, in topological order, the file's where it is free."""
        number: dict[str, int] = {}
        self._check()
        item_of = [number.setdefault(n, len(number)) if n is not None else -1 for n, _ in parts]
        joined: list[tuple[str | None, list[int]]] = [(name, []) for name in number]
        for item, part in zip(item_of, parts, strict=True):
            if item < 0:
                joined.append(part)
            else:
                joined[item][1].extend(part[1])
        reads = self._between(joined)
        self._check()
        knots = _knots(reads)
        self._check()
        if len(knots) < len(joined):  # some would read each other: these stay as they lie in the file
            untied: list[tuple[str | None, list[int]]] = []
            for knot in knots:
                if len(knot) == 1:
                    untied.append(joined[knot[0]])
                    continue
                tied = sorted((operator, joined[item][0]) for item in knot for operator in joined[item][1])
                for name, run in groupby(tied, key=lambda pair: pair[1]):
                    members = [operator for operator, _ in run]
                    untied += [(name, members)] if name is not None else [(None, [m]) for m in members]
            joined = untied
            reads = self._between(joined)
        return [joined[item] for item in _in_order(reads, [members[0] for _, members in joined])]

    def _between(self, parts: list[tuple[str | None, list[int]]]) -> list[set[int]]:
        """Per part the parts that read it."""
        start, target = self._successors
        item = self._item
        for index, (_, members) in enumerate(parts):
            for operator in members:
                item[operator] = index
        out: list[set[int]] = [set() for _ in parts]
        self._check()
        for index, (_, members) in enumerate(parts):
            for operator in members:
                if operator % _PATIENCE == 0:
                    self._check()
                for reader in target[start[operator] : start[operator + 1]]:
                    if (other := item[reader]) >= 0 and other != index:
                        out[index].add(other)
        for _, members in parts:
            for operator in members:
                item[operator] = -1
        return out

    @cached_property
    def _successors(self) -> tuple[list[int], list[int]]:
        start, target = self.graph.successors
        return start.tolist(), target.tolist()

    # -- repetition ----------------------------------------------------------------------------------
    def _repeated(self, operators: list[int], prefix: str) -> list[int | _Block]:
        """Neighbours in the file: each copy of what repeats a block, cut where the fewest tensors pass; also inside."""
        self._check()
        types = np.array([self.type_of[operator] for operator in operators], dtype=np.int64)
        out: list[int | _Block] = []
        done = number = 0
        for first, end, period in repetitions(types):
            at = np.arange(first, first + min(period, end - first - period + 1))
            cost = self._passing[operators[0] + at] + self._passing[operators[0] + at + period]
            begin = int(at[int(np.argmin(cost))])
            out += operators[done:begin]
            for done in range(begin, end - period + 1, period):
                copy = operators[done : done + period]
                name = f"{prefix}{number}"
                out.append(_Block(name, self._repeated(copy, f"{name}.") if period >= _NESTED else [*copy]))
                number += 1
            done += period
        return [*out, *operators[done:]]

    def _branching(self, prefix: str) -> list[int | _Block]:
        """Stretches that one tensor enters, in which it branches, and that one leaves, where such a form comes again.

        The residual blocks of a convolutional network: they come in stages of which the first block has a form of its
        own, so that nothing repeats at one distance. What follows element by element belongs to the stretch before.
        """
        self._check()
        passing, operators = self._passing, self.graph.operators
        found: list[tuple[int, int, tuple[int, ...]]] = []
        tails: dict[tuple[int, ...], list[int]] = {}  # per form how many operators follow, of each stretch
        at = 0
        while at < self.count:
            end = at + 1
            if passing[at] == 1 and passing[end] > 1:
                while passing[end] > 1:
                    end += 1
                after = end
                while (
                    after < self.count
                    and operators[after].kind is OpKind.POINTWISE
                    and passing[after + 1] <= 1
                ):
                    after += 1  # but for what the next stretch begins with
                form = tuple(self.type_of[at:end])
                found.append((at, end, form))
                tails.setdefault(form, []).append(after - end)
            at = end
        self._check()
        out: list[int | _Block] = []
        done = number = 0
        for first, join, form in found:
            end = join + min(tails[form])
            if len(tails[form]) < 2 or end - first < _SHORTEST_PERIOD:
                continue
            out += [*range(done, first), _Block(f"{prefix}{number}", list(range(first, end)))]
            done, number = end, number + 1
        return [*out, *range(done, self.count)]

    @cached_property
    def _passing(self) -> NDArray[np.int64]:
        """int64[operators + 1]: tensors that are written before and read from a place of the file order on."""
        edges = self.graph.edges.astype(np.int64)
        out = np.zeros(self.count + 2, dtype=np.int64)
        if len(edges):
            tensors, which = np.unique(edges[:, 2], return_inverse=True)
            last = np.zeros(len(tensors), dtype=np.int64)
            np.maximum.at(last, which.reshape(-1), edges[:, 1])
            np.add.at(out, self.graph.producer[tensors].astype(np.int64) + 1, 1)
            np.add.at(out, last + 1, -1)
        return np.cumsum(out)[: self.count + 1]

    # -- sections ------------------------------------------------------------------------------------
    def _sections(self, items: list[int | _Block], above: str) -> list[int | _Block]:
        """Lists that are too long to look at, cut into sections where few tensors pass; also inside."""
        self._check()
        for item in items:
            if isinstance(item, _Block):
                item.items = self._sections(item.items, item.name)
        if len(items) <= LONGEST_LIST:
            return items
        count = min(SECTIONS, -(-len(items) // SECTION_ITEMS))
        passing = self._passing_items(items)
        slack = max(1, len(items) // (4 * count))
        cuts = [0]
        for section in range(1, count):
            ideal = section * len(items) // count
            near = np.arange(ideal - slack, ideal + slack + 1)
            cost = passing[near] * (2 * slack) + np.abs(near - ideal)  # of equal ones the nearest
            cuts.append(int(near[int(np.argmin(cost))]))
        cuts.append(len(items))
        out: list[int | _Block] = []
        for first, end in pairwise(cuts):
            part = items[first:end]
            name = f"{self._name(part[0])} … {self._name(part[-1])}"
            out.append(_Block(name, self._sections(part, above)))
        return out

    def _name(self, item: int | _Block) -> str:
        return item.name.split(" … ")[0] if isinstance(item, _Block) else self.graph.operators[item].name

    def _passing_items(self, items: list[int | _Block]) -> NDArray[np.int64]:
        """int64[items + 1]: tensors that pass between neighbours of a list."""
        place = np.full(self.count, -1, dtype=np.int64)
        for index, item in enumerate(items):
            place[_members(item)] = index
        edges = self.graph.edges
        source, target = place[edges[:, 0]], place[edges[:, 1]]
        kept = (source >= 0) & (target > source)
        out = np.zeros(len(items) + 2, dtype=np.int64)
        tensors, which = np.unique(edges[kept, 2], return_inverse=True)
        last, first = np.zeros(len(tensors), dtype=np.int64), np.full(len(tensors), len(items))
        np.maximum.at(last, which.reshape(-1), target[kept])
        np.minimum.at(first, which.reshape(-1), source[kept])
        np.add.at(out, first + 1, 1)
        np.add.at(out, last + 1, -1)
        return np.cumsum(out)[: len(items) + 1]

    # -- arrays --------------------------------------------------------------------------------------
    def _arrays(self, items: list[int | _Block]) -> Hierarchy:
        order: list[int] = []
        names: list[str] = []
        parents: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        home = [-1] * self.count
        waiting: list[tuple[int | _Block, int]] = [(item, -1) for item in reversed(items)]
        closing: list[tuple[int, int]] = []  # blocks under way, and how many items wait below them
        while waiting or closing:
            while closing and len(waiting) == closing[-1][1]:
                ends[closing.pop()[0]] = len(order)
            if not waiting:
                break
            item, parent = waiting.pop()
            if isinstance(item, _Block):
                closing.append((len(names), len(waiting)))
                waiting += [(inner, len(names)) for inner in reversed(item.items)]
                names.append(item.name)
                parents.append(parent)
                starts.append(len(order))
                ends.append(-1)
            else:
                home[item] = parent
                order.append(item)
        self._check()
        operators = self.graph.operators
        shapes: dict[object, int] = {}
        look = [shapes.setdefault((self.type_of[o], operators[o].dims), len(shapes)) for o in order]
        self._check()
        forms: dict[tuple[int, ...], int] = {}
        form = [forms.setdefault(tuple(look[a:b]), len(forms)) for a, b in zip(starts, ends, strict=True)]
        macs = [0]
        for operator in order:
            macs.append(macs[-1] + operators[operator].macs)
        return Hierarchy(
            np.array(order, dtype=np.int32),
            _told_apart(names, parents),
            np.array(parents, dtype=np.int32),
            np.array(starts, dtype=np.int32),
            np.array(ends, dtype=np.int32),
            np.array(form, dtype=np.int32),
            np.array(home, dtype=np.int32),
            tuple(macs[b] - macs[a] for a, b in zip(starts, ends, strict=True)),
            ("scopes" if self.by_scope else "repetition") if names else "",
        )


def readable(name: str, above: str) -> str:
    """A scope's name that can be read alone: ``3`` inside ``blocks`` is ``blocks.3``."""
    clean = "".join(c if c.isprintable() else " " for c in name)[:200].strip() or "block"
    if "/" in clean:  # torch repeats the path: ``down.0/down.0.1``
        clean = clean.rpartition("/")[2] or clean
    return f"{above}.{clean}" if above and clean[:1].isdigit() else clean


def _stem(name: str) -> str:
    """A name without its number: equal for ``layers.3`` and ``layers.40``, for ``model (1)`` and ``model (2)``."""
    name = _COPY.sub("", name)
    return name.rstrip("0123456789").rstrip("._") if name[-1:].isdigit() else name


def _told_apart(names: list[str], parents: list[int]) -> tuple[str, ...]:
    """Names in which ``resnets.0`` of several stages is ``up_blocks.1.resnets.0`` in each; siblings are numbered."""
    often = Counter(names)
    longer = [
        f"{names[parent]}.{name}"
        if often[name] > 1 and parent >= 0 and _stem(name) != name and not name.startswith(names[parent])
        else name
        for name, parent in zip(names, parents, strict=True)
    ]
    alike = Counter(zip(longer, parents, strict=True))
    met: Counter[tuple[str, int]] = Counter()
    out: list[str] = []
    for one in zip(longer, parents, strict=True):
        met[one] += 1
        out.append(one[0] if alike[one] == 1 else f"{one[0]} ({met[one]})")
    return tuple(out)


def _members(item: int | _Block) -> list[int]:
    out: list[int] = []
    waiting = [item]
    while waiting:
        taken = waiting.pop()
        if isinstance(taken, _Block):
            waiting += taken.items
        else:
            out.append(taken)
    return out


def _plain(items: list[int | _Block], whole: int) -> list[int | _Block]:
    """Without blocks that tell nothing: one that holds all there is, one that holds one item."""
    out: list[int | _Block] = []
    for item in items:
        if not isinstance(item, _Block):
            out.append(item)
            continue
        item.items = _plain(item.items, 0)
        if len(item.items) == 1:
            inner = item.items[0]
            if isinstance(inner, _Block) and _stem(item.name) != item.name:
                inner.name = item.name  # ``layers.0`` says more than ``model`` around it or ``conv`` inside
            out.append(inner)
        else:
            out.append(item)
    if whole and len(out) == 1 and isinstance(out[0], _Block):
        return out[0].items
    return out


def _knots(reads: list[set[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion), each ascending."""
    count = len(reads)
    index, low, on_stack = [-1] * count, [0] * count, [False] * count
    stack: list[int] = []
    out: list[list[int]] = []
    clock = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        calls = [(root, iter(sorted(reads[root])))]
        index[root] = low[root] = clock
        clock += 1
        stack.append(root)
        on_stack[root] = True
        while calls:
            node, rest = calls[-1]
            for other in rest:
                if index[other] < 0:
                    index[other] = low[other] = clock
                    clock += 1
                    stack.append(other)
                    on_stack[other] = True
                    calls.append((other, iter(sorted(reads[other]))))
                    break
                if on_stack[other]:
                    low[node] = min(low[node], index[other])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[node])
                if low[node] == index[node]:
                    knot: list[int] = []
                    while not knot or knot[-1] != node:
                        knot.append(stack.pop())
                        on_stack[knot[-1]] = False
                    out.append(sorted(knot))
    return out


def _in_order(reads: list[set[int]], key: list[int]) -> list[int]:
    """A topological order of an acyclic relation; of what may come next, the least key."""
    waiting = [0] * len(reads)
    for readers in reads:
        for reader in readers:
            waiting[reader] += 1
    ready = [(key[item], item) for item, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        out.append(item)
        for reader in reads[item]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (key[reader], reader))
    return out


def repetitions(types: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Stretches in which every type comes again at one distance: (first, end, period), disjoint, ascending.

    Candidates are the commonest distances between windows of `_WINDOW` equal types. Of overlapping stretches
    the one that covers most is kept, of equal ones that of the shorter period. A stretch holds two copies at least.
    """
    count = len(types)
    if count < 2 * _SHORTEST_PERIOD:
        return []
    windows = np.stack([types[i : count - _WINDOW + 1 + i] for i in range(_WINDOW)], axis=1)
    _, which = np.unique(windows, axis=0, return_inverse=True)
    which = which.reshape(-1)
    by_window = np.argsort(which, kind="stable")
    gaps = np.diff(by_window)[which[by_window[1:]] == which[by_window[:-1]]]
    periods, often = np.unique(gaps[gaps >= _SHORTEST_PERIOD], return_counts=True)
    common = periods[np.lexsort((periods, -often))][:_PERIODS]
    found: list[tuple[int, int, int]] = []  # covered (negative), period, first
    for period in common.tolist():
        same = np.concatenate([[False], types[:-period] == types[period:], [False]])
        edge = np.flatnonzero(same[1:] != same[:-1])
        for first, end in zip(edge[::2].tolist(), edge[1::2].tolist(), strict=True):
            if end - first >= period:
                found.append((first - end - period, period, first))
    taken = np.zeros(count, dtype=np.bool_)
    out: list[tuple[int, int, int]] = []
    for covered, period, first in sorted(found):
        if not taken[first : first - covered].any():
            taken[first : first - covered] = True
            out.append((first, first - covered, period))
    return sorted(out)
