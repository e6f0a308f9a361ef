"""The cache's law against its literal walk: random groups at DRAM bit for bit, chains of groups, faults that are seen.

``python -m tests.test_cache_walker 0 100000`` compares any range of seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest

from model.cost import crossing as crossing_module
from model.cost import reuse
from model.cost.layout import pack, workspace
from model.cost.nest import Nest
from model.cost.sweep import ACC_OPERATOR, ACC_WRITE
from model.cost.traffic import measure
from model.hardware.accelerator import Accelerator, MemoryLevel, Partition
from tests import cache_walker
from tests.cost_graphs import one_buffer
from tests.plain_kernels import NO_FAULT, plain_kernels
from tests.random_nests import path_of, random_nest
from tests.test_walker import plain

GROUPS = 1500
# Of these groups at least so many have each property.
SHARES = {
    "fetches less": 600,
    "all fits": 600,
    "a loop's iteration fits": 150,
    "not even a step fits": 300,
    "cores": 100,
    "shared sums": 50,
    "found": 400,
    "spilled and never written": 60,
    "sectors": 900,
    "2 levels": 400,
}
KERNELS = ("sweep", "bands", "footprint", "traffic", "boxes", "cycles", "steps", "runs", "hits")
FAULTS = {
    "a reader never finds what another has left": (
        "hits",
        "            return True\n    return False",
        "            pass\n    return False",
    ),
    "cores of a wave each fetch for themselves": (
        "hits",
        "count = count // trips * -(-trips // cores[d])",
        "pass",
    ),
    "cores of a wave touch one tile": ("hits", "tile *= max(1, cores[d])", "tile *= 1"),
    "the share is one byte more": ("hits", "everything = size <= share", "everything = size <= share + 1"),
    "only single steps may fit": (
        "hits",
        "        while 0 <= kept <= tree:",
        "        kept = max(kept, tree)\n        while 0 <= kept <= tree:",
    ),
    "a dead tensor is written": (
        "hits",
        "and not counts[t, X_LOST]:",
        "and not counts[t, X_LOST] and False:",
    ),
    "readers of one tensor count twice": (
        "hits",
        "total += max(0, size - counts[t, X_MOST])",
        "total += size",
    ),
    "a wave stores one core's sums": (
        "hits",
        "apart = work[W_FOREIGN, o] & stored if write",
        "apart = ops[o, 0] | -1 if write",
    ),
    "a tile stays no longer than in the buffer": (
        "hits",
        "min(work[W_EFFECTIVE0, a], max(0, counts[a, X_KEPT]))",
        "work[W_EFFECTIVE0, a]",
    ),
    "a strided run is one": ("runs", "consecutive = abs(step) <= 1", "consecutive = True"),
}


def set_cores(nest: Nest, random: Random) -> tuple[Nest, tuple[int, ...]]:
    """The group, and over how many cores each dim's loop of the tree is split, where it may be."""
    paths = [path_of(nest, op) for op in nest.operators]
    over = [[nest.loops[loop][0] for loop in path] for path in paths]
    reduced = {dim for op in nest.operators for dim in op.reductions}
    single = {dim for dim in range(len(nest.extents)) if all(dims.count(dim) < 2 for dims in over)}
    splits = tuple((loop, share) for loop, share in nest.splits if nest.loops[loop][0] in single)
    cores = [0 if dim in reduced else 1 for dim in range(len(nest.extents))]
    for loop, share in splits:
        cores[nest.loops[loop][0]] = share
    for dim in sorted(single - reduced):
        trips = [
            -(-nest.extents[dim] // nest.loops[loop][1])
            for op, path in zip(nest.operators, paths, strict=True)
            for loop in path[: op.tree_depth]
            if nest.loops[loop][0] == dim
        ]
        leads = all(
            place < op.tree_depth and not reduced.intersection(dims[:place])
            for op, dims in zip(nest.operators, over, strict=True)
            for place in [dims.index(dim) if dim in dims else -1]
        )
        if trips and leads and random.random() < 0.7:
            cores[dim] = random.randint(1, min(trips))
    return replace(nest, splits=splits), tuple(cores)


def machine_of(near: int, far: int, share: int, random: Random) -> Accelerator:
    """A buffer under a cache of which a slot's share is `share` bytes: one of several slots, or of one core alone."""
    machine = one_buffer(1)
    slots = random.choice((1, 1, 3))
    scope = random.choice(("device", "core"))
    capacity = share * slots + random.randrange(slots) if scope == "device" else share
    level = MemoryLevel("L2", scope, capacity, 4e9, kind="cache", access_bytes=near)
    memory = (replace(machine.memory[0], access_bytes=far), level, machine.memory[1])
    return replace(machine, memory=memory, cores=slots, partition=Partition(slots, 1))


@cache
def case(seed: int) -> tuple[Nest, cache_walker.Cached, Accelerator]:
    """A random group on random cores behind a random cache."""
    random = Random(-seed)
    nest, cores = set_cores(random_nest(seed), random)
    near, far = random.choice(((1, 1), (1, 8), (1, 32), (4, 32)))
    share = int(2 ** random.uniform(0, 12))
    return nest, cache_walker.Cached(cores, share, far), machine_of(near, far, share, random)


@cache
def walked(seed: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    nest, cached, _ = case(seed)
    return cache_walker.dram_bits(plain(nest), cached)


def counted(seed: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    """What the closed form says, in the walker's shape."""
    nest, cached, machine = case(seed)
    arrays = pack(nest)
    counts, points = (
        np.zeros((arrays.levels, len(arrays.acc), 4), np.int64),
        np.zeros(len(arrays.ops), np.int64),
    )
    rows, work = workspace(arrays)
    measure(
        arrays.ops, arrays.acc, arrays.axes, arrays.ten, arrays.extents, arrays.loops, arrays.path, arrays.lengths,
        arrays.levels, arrays.stages, 1, counts, points, np.zeros(arrays.levels, np.int64), rows, work,
    )  # fmt: skip
    cores = np.array(cached.cores, np.int64)
    dram = crossing_module.crossing(machine, arrays, counts[0], rows, work, cores).dram.tolist()
    out: dict[tuple[int, int, int], tuple[int, int]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for (o, write), (into, back) in zip(arrays.acc[:, (ACC_OPERATOR, ACC_WRITE)].tolist(), dram, strict=True):
        if into or back:
            out[o, write, seen[o, write]] = into, back
        seen[o, write] += 1
    return out


def disagreement(seed: int) -> str:
    """How the closed form and the walk differ on a group; empty where they agree."""
    one, other = walked(seed), counted(seed)
    return "" if one == other else f"\nseed {seed}: walked {one}, closed form {other}"


def properties(seed: int) -> set[str]:
    """What is particular about a group behind its cache."""
    nest, cached, machine = case(seed)
    group = plain(nest)
    play = cache_walker.Play(group, cached)
    bare = cache_walker.dram_bits(group, cached._replace(share=-1, cores=(0,) * len(cached.cores)))
    found = {f"{play.tree.levels} levels"}
    reads = [(o, number, access) for o, write, number, access in play.accesses if not write]
    found.update({"found"} if any(play.is_found(*read) for read in reads) else ())
    found.update(
        {"fetches less"} if sum(map(sum, walked(seed).values())) < sum(map(sum, bare.values())) else ()
    )
    found.update({"cores"} if max(cached.cores, default=0) > 1 else ())
    found.update({"shared sums"} if nest.splits else ())
    found.update({"sectors"} if machine.dram.access_bytes > 1 else ())
    spilled = {i for i, tensor in enumerate(nest.tensors) if tensor.spilled and not tensor.written_outside}
    writes = [(o, n) for o, w, n, access in play.accesses if w and access.tensor in spilled]
    found.update(
        {"spilled and never written"} if any((o, 1, n) not in walked(seed) for o, n in writes) else ()
    )
    for o, place in enumerate(play.stays):
        fits = "a loop's iteration fits" if place < len(play.shown[o]) else ""
        names = {cache_walker.EVERYTHING: "all fits", cache_walker.NOTHING: "not even a step fits"}
        found.add(names.get(place, fits))
    return found - {""}


def test_a_cache_lets_through_what_its_walk_fetches(capsys: pytest.CaptureFixture[str]) -> None:
    found: Counter[str] = Counter()
    for seed in range(GROUPS):
        assert not disagreement(seed)
        found.update(properties(seed))
    with capsys.disabled():
        print(
            f"\n{GROUPS:,} groups agree; of these " + ", ".join(f"{found[name]:,} {name}" for name in SHARES)
        )
    assert {name: found[name] for name in SHARES if found[name] < SHARES[name]} == {}


def with_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `crossing` run on the kernels' sources as plain Python, with one term changed ("": none)."""
    made = plain_kernels(KERNELS, FAULTS.get(fault, NO_FAULT), monkeypatch)
    monkeypatch.setattr(crossing_module, "h", made["hits"])


def test_the_kernels_as_plain_python_agree_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault("", monkeypatch)
    assert "".join(disagreement(seed) for seed in range(60)) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_term_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fault(fault, monkeypatch)
    assert any(disagreement(seed) for seed in range(GROUPS))


# Chains of groups.


def random_chain(random: Random) -> tuple[list[list[cache_walker.Touch]], int, set[int]]:
    """Groups that touch tensors, each written once at most and before it is read; a share; the graph's outputs."""
    written: dict[int, int] = {}
    groups: list[list[cache_walker.Touch]] = []
    outside = random.randint(1, 4)
    sizes = [random.randint(1, 40) for _ in range(outside)]
    for number in range(random.randint(1, 12)):
        reads = random.sample(range(len(sizes)), min(len(sizes), random.randint(1, 3)))
        group = [(tensor, random.randint(1, sizes[tensor]), True, False) for tensor in reads]
        for _ in range(random.choice((0, 1, 1, 2))):
            sizes.append(random.randint(1, 40))
            written[len(sizes) - 1] = number
            inside = random.random() < 0.15  # made and used in the group, for want of room
            group.append((len(sizes) - 1, sizes[-1], inside, True))
        groups.append(group)
    final = {tensor for tensor in written if random.random() < 0.2}
    return groups, random.randint(1, 200), final


def chains_differ(seed: int) -> str:
    groups, share, final = random_chain(Random(seed))
    closed = [(set(found), set(kept)) for found, kept in reuse.held(groups, share, final)]
    literal = cache_walker.found_between(groups, share, final)
    return "" if closed == literal else f"\nseed {seed}: walked {literal}, closed form {closed}"


def test_chains_of_groups_find_what_their_walk_finds() -> None:
    assert "".join(chains_differ(seed) for seed in range(3000)) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("while total > share_bytes:", "while total >= share_bytes:"),
        ("if last[tensor] >= low else 0", "if last[tensor] >= 0 else 0"),
        ("hit = stayed >= touched > 0", "hit = stayed > 0"),
        ("= max(stayed, touched)", "= touched"),
        ("lost.add(tensor)", "pass"),
        ("lost: set[int] = set(final)", "lost: set[int] = set()"),
        ("if touched > size.get(tensor, -1):", "if tensor not in size:"),
    ],
)
def test_a_fault_between_groups_is_caught(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(reuse.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{old!r} is not once in reuse.py any more: choose another term"
    module = ModuleType("reuse with a fault")
    exec(compile(source.replace(old, new), "reuse.py with a fault", "exec"), module.__dict__)
    monkeypatch.setattr(reuse, "held", module.held)
    assert any(chains_differ(seed) for seed in range(3000))


def main(low: int, high: int) -> int:
    """Compare seeds of a range and print where both sides differ."""
    differing = [text for seed in range(low, high) if (text := disagreement(seed) + chains_differ(seed))]
    print(f"{high - low:,} groups, {len(differing)} disagree{''.join(differing[:10])}")
    return 1 if differing else 0


if __name__ == "__main__":
    np.seterr(all="raise")
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
