"""Which tensors a cache still holds from one group of a plan to the next (docs/loop-tree.md, section 4).

Knows how many bytes of which tensors each group touches, in launch order; knows no machine and no time.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

Touch = tuple[int, int, bool, bool]
"""A tensor, its distinct bytes, whether the group reads it, whether it writes it."""


def held(
    groups: Sequence[Sequence[Touch]], share_bytes: int, final: Set[int]
) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Per group the tensors that it finds in the cache, and those that it writes and that never reach DRAM.

    A tensor is found where all that was touched since, the groups of the last use and of this one with everything
    of theirs, fits `share_bytes`: a least-recently-used cache that is asked for whole tensors. What was never touched
    is not there: one of the uses since it last came in must have had as many bytes of it as this one (an append to a
    KV cache has its own rows). A written one never reaches DRAM where every later use finds it and someone uses it;
    then it is dead, and its place is written anew.

    Parameters
    ----------
    final : tensors that must reach DRAM: the graph's outputs.
    """
    size: dict[int, int] = {}
    for touches in groups:
        for tensor, touched, _, _ in touches:
            if touched > size.get(tensor, -1):
                size[tensor] = touched
    inside = dict.fromkeys(size, 0)  # per tensor the groups of the window that touch it
    last = dict.fromkeys(size, -1)
    came_in = dict.fromkeys(size, 0)  # bytes of the widest use since then
    total, low = 0, 0
    writer: dict[int, int] = {}
    lost: set[int] = set(final)
    used: set[int] = set()
    warm: list[frozenset[int]] = []
    nothing: frozenset[int] = frozenset()
    for number, touches in enumerate(groups):
        for tensor, _, _, _ in touches:
            if not inside[tensor]:
                total += size[tensor]
            inside[tensor] += 1
        while total > share_bytes:
            for tensor, _, _, _ in groups[low]:
                inside[tensor] -= 1
                if not inside[tensor]:
                    total -= size[tensor]
            low += 1
        found: list[int] = []
        for tensor, touched, read, write in touches:
            stayed = came_in[tensor] if last[tensor] >= low else 0
            if read:
                hit = stayed >= touched > 0
                if hit:
                    found.append(tensor)
                if tensor in writer:
                    used.add(tensor)
                    if not hit:
                        lost.add(tensor)
            if write:
                writer.setdefault(tensor, number)
            last[tensor] = number
            came_in[tensor] = max(stayed, touched)
        warm.append(frozenset(found) if found else nothing)
    kept: dict[int, list[int]] = {}
    for tensor in used - lost:
        kept.setdefault(writer[tensor], []).append(tensor)
    return [
        (found, frozenset(kept[number]) if number in kept else nothing) for number, found in enumerate(warm)
    ]
