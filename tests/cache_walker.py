"""The slow plain truth of a cache: what a group fetches from DRAM, tile by tile and wave by wave; what groups leave.

Written from docs/loop-tree.md, section 4, "Outside the buffer"; on the tuples of `tests/walker.py`, and nothing of the
cost room. For each stream the iterations outside its tile are gone through one by one, put in order by the time at
which the cores of a wave come to them, and what is fetched or stored at one time is moved once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import prod
from typing import NamedTuple

from tests.walker import (
    OUTER,
    Access,
    Group,
    Tree,
    coordinates,
    elements,
    full_size,
    runs,
    touched,
)

EVERYTHING, NOTHING = -1, 1 << 62


class Cached(NamedTuple):
    """``cores``: per dim over how many its tree loops are split. ``share``: bytes; ``sector``: bytes at DRAM."""

    cores: tuple[int, ...]
    share: int
    sector: int


def dram_bits(group: Group, cached: Cached) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Bits from and to DRAM per (operator, whether it is a write, number among these accesses)."""
    return Play(group, cached).bits()


def summed_parts(tree: Tree, o: int, access: Access, depth: int, dims: set[int]) -> int:
    """Cores that share the sums of an output over loops inside its tile, over other dims than `dims`."""
    return prod(
        cores
        for loop, cores in tree.shared_sums(o, access)
        if loop in tree.loops[o][depth:] and tree.group.loops[loop][0] not in dims
    )


class Play:
    """One group whose tiles are kept by a cache."""

    def __init__(self, group: Group, cached: Cached) -> None:
        self.group, self.cached, self.tree = group, cached, Tree(group)
        # The remaining loops that the tree's text shows; the private ones behind them are one.
        self.shown = [
            [loop for loop in path[: op.tree_depth] if loop not in skipped]
            for path, op, skipped in zip(self.tree.path, group.operators, self.tree.skipped, strict=True)
        ]
        self.accesses = [
            (o, write, number, access)
            for o, op in enumerate(group.operators)
            for write, accesses in ((0, op.reads), (1, op.writes))
            for number, access in enumerate(accesses)
        ]
        self.stays = [self.stay(o) for o in range(len(group.operators))]

    def crosses(self, access: Access, write: int) -> bool:
        tensor = self.group.tensors[access.tensor]
        return tensor.home == OUTER or bool(write and tensor.written_outside)

    def size(self, o: int, access: Access) -> int:
        """Elements that an access addresses in all."""
        if access.fixed >= 0:
            return access.fixed
        band = self.group.operators[o].band
        whole = {dim: range(self.group.extents[dim]) for dim in touched(access.axes) | set(band[:2])}
        if not band:
            return prod(len(coordinates(axis, whole)) for axis in access.axes)
        return len(elements(access, band, whole, fresh=False))

    # What one iteration touches.

    def reach(self, members: Sequence[int], outside: Sequence[Sequence[int]]) -> int:
        """Distinct bytes that the operators touch while each of their loops `outside` stands at one iteration."""
        most: dict[int, int] = {}
        for o, write, _, access in self.accesses:
            if o not in members or not self.crosses(access, write):
                continue
            loops = outside[members.index(o)]
            most_of_all = self.size(o, access)
            if access.fixed < 0:
                tile: dict[int, range] = {}
                apart = 1  # cores with a tile of their own
                for dim in touched(access.axes):
                    steps = [self.group.loops[loop][1] for loop in loops if self.group.loops[loop][0] == dim]
                    extent = self.group.extents[dim]
                    tile[dim] = range(min([extent, *steps]))
                    apart *= max(1, self.cached.cores[dim]) if steps else 1
                here = prod(full_size(axis, tile, self.group.extents) for axis in access.axes)
                most_of_all = min(most_of_all, here * apart)
            bits = most_of_all * self.group.tensors[access.tensor].bits
            most[access.tensor] = max(most.get(access.tensor, 0), -(-bits // 8))
        return sum(most.values())

    def stay(self, o: int) -> int:
        """How many loops stand outside the outermost one of which an iteration fits."""
        everyone = range(len(self.group.operators))
        if self.reach(everyone, [[] for _ in everyone]) <= self.cached.share:
            return EVERYTHING
        for place, loop in enumerate(self.shown[o]):
            members = [q for q in everyone if loop in self.tree.path[q]]
            around = set(self.tree.up(loop))
            outside = [[one for one in self.shown[q] if one in around] for q in members]
            if self.reach(members, outside) <= self.cached.share:
                return place
        if self.reach([o], [self.shown[o]]) <= self.cached.share:
            return len(self.shown[o])
        return NOTHING

    # What is moved.

    def bits(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        out: dict[tuple[int, int, int], tuple[int, int]] = {}
        streams: set[tuple] = set()
        found: dict[int, list[bool]] = {}  # per tensor, of each stream of its readers
        leading: list[tuple[int, int, int, Access]] = []
        for o, write, number, access in self.accesses:
            name = (self.tree.shared_stream(o, access, 0), o if access.fixed >= 0 else -1)
            if not self.crosses(access, write) or (not write and name in streams):
                continue
            if not write:
                streams.add(name)
                found.setdefault(access.tensor, []).append(self.is_found(o, number, access))
            leading.append((o, write, number, access))
        for o, write, number, access in leading:
            if write:
                out[o, write, number] = self.stored(o, access, found.get(access.tensor, []))
            elif not self.is_found(o, number, access):
                out[o, write, number] = self.fetched(o, access), 0
        return {name: row for name, row in out.items() if any(row)}

    def is_found(self, o: int, number: int, access: Access) -> bool:
        """Whether an earlier access of the group has left in the cache what this read needs."""
        if access.fixed >= 0:
            return False
        for q, write, before, other in self.accesses:
            if other.tensor != access.tensor or q > o or (q == o and (write or before >= number)):
                continue
            bands = self.group.operators[q].band == self.group.operators[o].band
            alike = (other.axes, other.fixed) == (access.axes, access.fixed) and bands
            if self.stays[o] == EVERYTHING and (write or alike):
                return True
            pairs = zip(self.tree.loops[o], self.tree.loops[q], strict=False)
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            if alike and self.stays[o] < shared:
                return True
        return False

    def depth(self, o: int, access: Access) -> int:
        return min(len(self.tree.tile_loops(o, access, 0)), max(0, self.stays[o]))

    def iterations(self, loops: Sequence[int]) -> Iterator[tuple[dict[int, int], dict[int, range]]]:
        """Every iteration of nested loops: the number of each, and the piece of each dim."""

        def go(place: int, numbers: dict[int, int], pieces: dict[int, range]) -> Iterator:
            if place == len(loops):
                yield numbers, pieces
                return
            dim, step, _ = self.group.loops[loops[place]]
            whole = pieces.get(dim, range(self.group.extents[dim]))
            for number, start in enumerate(range(whole.start, whole.stop, step)):
                piece = range(start, min(start + step, whole.stop))
                yield from go(place + 1, {**numbers, loops[place]: number}, {**pieces, dim: piece})

        yield from go(0, {}, {})

    def pieces(self, loops: Sequence[int], numbers: dict[int, int]) -> dict[int, range]:
        """The piece of each dim at these iterations of some loops."""
        found: dict[int, range] = {}
        for loop in loops:
            dim, step, _ = self.group.loops[loop]
            whole = found.get(dim, range(self.group.extents[dim]))
            start = whole.start + numbers[loop] * step
            found[dim] = range(start, min(start + step, whole.stop))
        return found

    def time(
        self, o: int, loops: Sequence[int], numbers: dict[int, int], storing: bool = False
    ) -> tuple[int, ...]:
        """When the cores of a wave are at these iterations: all of one wave at one time, but for sums they store."""
        reduced = {dim for op in self.group.operators for dim in op.reductions} if storing else set()
        cores = {
            loop: max(1, self.cached.cores[self.group.loops[loop][0]])
            for loop in self.shown[o]
            if self.group.loops[loop][0] not in reduced
        }
        return tuple(numbers[loop] // cores.get(loop, 1) for loop in loops)

    def tile(self, o: int, access: Access, pieces: dict[int, range]) -> dict[int, range]:
        dims = touched(access.axes) | set(self.group.operators[o].band[:2])
        return {dim: pieces.get(dim, range(self.group.extents[dim])) for dim in sorted(dims)}

    def rounded(self, lengths: Sequence[int], bits: int) -> int:
        if self.cached.sector == 1:  # single bytes: bits are summed, and rounded up once per tensor
            return sum(lengths) * bits
        sector = 8 * self.cached.sector
        return sum(-(-length * bits // sector) * sector for length in lengths)

    def fetched(self, o: int, access: Access) -> int:
        bits = self.group.tensors[access.tensor].bits
        if access.fixed >= 0:
            return self.rounded([access.fixed], bits)
        loops = self.tree.loops[o][: self.depth(o, access)]
        band = self.group.operators[o].band
        apart = set(band[:2]) - touched(access.axes)  # their pieces at one time are one
        seen: dict[tuple, dict[int, range]] = {}
        for numbers, pieces in self.iterations(loops):
            tile = self.tile(o, access, pieces)
            same = tuple((dim, piece) for dim, piece in tile.items() if dim not in apart)
            event = (self.time(o, loops, numbers), same)
            wide = seen.setdefault(event, tile)  # what cores fetch at one time is fetched once
            seen[event] = wide | {
                dim: range(min(wide[dim].start, tile[dim].start), max(wide[dim].stop, tile[dim].stop))
                for dim in apart
            }
        return sum(
            self.rounded(runs(access, band, tile, self.group.extents), bits)
            for tile in seen.values()
            if elements(access, band, tile)
        )

    def stored(self, o: int, access: Access, found: Sequence[bool]) -> tuple[int, int]:
        """Partial sums that come back; what is written, partial sums included."""
        tensor = self.group.tensors[access.tensor]
        if tensor.home != OUTER:
            return 0, self.rounded([tensor.elements], tensor.bits)
        if access.fixed >= 0:
            return 0, self.rounded([access.fixed], tensor.bits)
        depth = self.depth(o, access)
        loops = self.tree.loops[o][:depth]
        dead = tensor.spilled and not tensor.written_outside and bool(found) and all(found)
        visits: dict[tuple, set[tuple[int, ...]]] = {}  # per tile and execution, the sums that come to it
        own = set(self.group.operators[o].dims)
        if self.group.operators[o].band:
            here = self.stored_in_boxes(o, access, depth, dead, True)
            if self.cached.sector > 1:
                return here
            # Units of one byte are no larger than the cache's: at most what passes on its other side.
            near = self.stored_in_boxes(o, access, len(self.tree.tile_loops(o, access, 0)), False, False)
            return min(here[0], near[0]), min(here[1], near[1])
        for numbers, pieces in self.iterations(loops):
            tile = self.tile(o, access, pieces)
            again = [loop for loop in loops if self.tree.foreign(o, loop)]
            sums = [
                loop
                for loop in loops
                if self.group.loops[loop][0] in own and self.group.loops[loop][0] not in tile
            ]
            key = (self.time(o, again, numbers, storing=True), tuple(tile.items()))
            visits.setdefault(key, set()).add(tuple(numbers[loop] for loop in sums))
        written = partial = 0
        for (_, tile), sums in visits.items():
            if elements(access, (), dict(tile)):
                lengths = runs(access, (), dict(tile), self.group.extents)
                written += 0 if dead else self.rounded(lengths, tensor.bits)
                times = len(sums) * summed_parts(self.tree, o, access, depth, set()) - 1
                partial += times * self.rounded(lengths, tensor.partial_bits)
        return partial, written + partial

    def stored_in_boxes(self, o: int, access: Access, depth: int, dead: bool, waves: bool) -> tuple[int, int]:
        """`stored` under a band: all visits, box by box and core by core, less one of each tile with sums uncut."""
        band, extents = self.group.operators[o].band, self.group.extents
        tensor, loops = self.group.tensors[access.tensor], self.tree.loops[o]
        shared = [
            (place, cores)
            for place, loop in enumerate(loops)
            for one, cores in self.tree.shared_sums(o, access)
            if one == loop and place >= depth and self.group.loops[loop][0] in band[:2]
        ]
        deepest = max([depth, *(place + 1 for place, _ in shared)])
        times = summed_parts(self.tree, o, access, depth, set(band[:2]))
        apart = set(band[:2]) - touched(access.axes)
        visits: set[tuple] = set()
        whole: dict[tuple, dict[int, range]] = {}
        units = count = once = written = 0
        for numbers, pieces in self.iterations(loops[:deepest]):
            if not elements(access, band, self.tile(o, access, pieces)):
                continue
            here = loops[:depth]
            box = self.tile(o, access, self.pieces(here, numbers))
            again = [loop for loop in here if self.tree.foreign(o, loop)]
            moment = tuple(numbers[loop] for loop in again)
            if waves:
                moment = self.time(o, again, numbers, storing=True)
            kept = tuple(sorted((dim, piece.start) for dim, piece in box.items()))
            others = tuple(numbers[loop] for loop in here if loop not in again)
            cores = tuple(numbers[loops[place]] % number for place, number in shared)
            if (moment, kept, others, cores) in visits:
                continue
            visits.add((moment, kept, others, cores))
            lengths = runs(access, band, box, extents)
            units += times * self.rounded(lengths, tensor.partial_bits)
            count += times * len(elements(access, band, box))
            uncut = {**box, **{dim: range(extents[dim]) for dim in apart}}
            whole[moment, tuple(sorted((dim, piece.start) for dim, piece in uncut.items()))] = uncut
        for tile in whole.values():
            lengths = runs(access, band, tile, extents)
            units -= self.rounded(lengths, tensor.partial_bits)
            once += len(elements(access, band, tile))
            written += 0 if dead else self.rounded(lengths, tensor.bits)
        partial = units if count > once else 0
        return partial, written + partial


# Between groups.

Touch = tuple[int, int, bool, bool]  # a tensor, its bytes, whether it is read, whether it is written


def found_between(
    groups: Sequence[Sequence[Touch]], share: int, final: set[int]
) -> list[tuple[set[int], set[int]]]:
    """Per group the tensors that it finds in the cache, and those that it writes and that never reach DRAM."""
    bytes_of: dict[int, int] = {}
    for group in groups:
        for tensor, size, _, _ in group:
            bytes_of[tensor] = max(size, bytes_of.get(tensor, 0))
    out: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in groups]

    def is_found(tensor: int, at: int, wanted: int) -> bool:
        there, before = 0, -1
        for i in range(at + 1):
            had = [row[1] for row in groups[i] if row[0] == tensor]
            if not had:
                continue
            between = {row[0] for group in groups[before : i + 1] for row in group} if before >= 0 else set()
            if before < 0 or sum(bytes_of[one] for one in between) > share:
                there = 0  # it has gone, or never was there
            if i == at:
                return there >= wanted
            there, before = max(there, *had), i
        return False

    for at, group in enumerate(groups):
        out[at][0].update(tensor for tensor, size, read, _ in group if read and is_found(tensor, at, size))
    for tensor in bytes_of:
        writers = [i for i, group in enumerate(groups) if any(row[0] == tensor and row[3] for row in group)]
        if not writers or tensor in final:
            continue
        readers = [
            i
            for i, group in enumerate(groups)
            if i > writers[0] and any(row[0] == tensor and row[2] for row in group)
        ]
        if readers and all(tensor in out[i][0] for i in readers):
            out[writers[0]][1].add(tensor)
    return out
