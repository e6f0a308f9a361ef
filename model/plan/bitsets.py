"""Kernels of plan legality: the quotient graph of a partition, its cycles and what lies between.

A partition is `label`: int32[operators], the group of each operator, numbers below `groups`; numbers may be
unused. Operator edges are CSR arrays `start` int32[operators + 1], `target` int32[edges], and operators are
numbered in a topological order. Knows arrays only; what is legal, and the sentences, are in `legality.py`.

Everything but `fusible_edges` is linear in operators and edges: a question costs some ten microseconds at
5,000 operators, so that nothing has to be kept up to date between two moves of the mouse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel

# Groups whose reachability is kept at once: 32 words of 64 bits an operator keep 20,000 operators in 5 MB.
_COLUMNS = 2048


@kernel("Tuple((int32[::1], int32[::1]))(int32[::1], int64)")
def members_of(label: NDArray[np.int32], groups: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Operators by group, ascending: CSR, ``first`` int32[groups + 1] and ``member`` int32[operators]."""
    first = np.zeros(groups + 1, dtype=np.int32)
    for u in range(label.shape[0]):
        first[label[u] + 1] += 1
    for g in range(groups):
        first[g + 1] += first[g]
    fill = first[:-1].copy()
    member = np.empty(label.shape[0], dtype=np.int32)
    for u in range(label.shape[0]):
        member[fill[label[u]]] = u
        fill[label[u]] += 1
    return first, member


@kernel("int32[::1](int32[::1], int64)")
def renumbered(label: NDArray[np.int32], groups: int) -> NDArray[np.int32]:
    """The same partition with groups numbered by their first operator, without gaps: a plan's numbering."""
    name = np.full(groups, -1, dtype=np.int32)
    out = np.empty(label.shape[0], dtype=np.int32)
    following = 0
    for u in range(label.shape[0]):
        if name[label[u]] < 0:
            name[label[u]] = following
            following += 1
        out[u] = name[label[u]]
    return out


@kernel("Tuple((int32[::1], int64))(int32[::1], int64, int32[::1], int32[::1])")
def quotient_order(
    label: NDArray[np.int32], groups: int, start: NDArray[np.int32], target: NDArray[np.int32]
) -> tuple[NDArray[np.int32], int]:
    """Kahn's order of the groups, and how many have a place in it; fewer than `groups`: there is a cycle.

    Returns
    -------
    order : int32[groups]; beyond the second value it is -1.
    """
    first, member = members_of(label, groups)
    waiting = np.zeros(groups, dtype=np.int32)
    for u in range(label.shape[0]):
        for e in range(start[u], start[u + 1]):
            if label[target[e]] != label[u]:
                waiting[label[target[e]]] += 1
    order = np.full(groups, -1, dtype=np.int32)
    placed = 0
    for g in range(groups):
        if waiting[g] == 0:
            order[placed] = g
            placed += 1
    head = 0
    while head < placed:
        g = order[head]
        head += 1
        for i in range(first[g], first[g + 1]):
            u = member[i]
            for e in range(start[u], start[u + 1]):
                h = label[target[e]]
                if h != g:
                    waiting[h] -= 1
                    if waiting[h] == 0:
                        order[placed] = h
                        placed += 1
    return order, placed


@kernel("int64(int32[::1], int64, int32[::1], int32[::1])")
def looping_group(
    label: NDArray[np.int32], groups: int, start: NDArray[np.int32], target: NDArray[np.int32]
) -> int:
    """A group that lies on a cycle of the quotient graph, or -1.

    Every group that Kahn cannot place has a predecessor that he cannot place either: walking back along
    such predecessors must come round.
    """
    order, placed = quotient_order(label, groups, start, target)
    if placed == groups:
        return -1
    stuck = np.ones(groups, dtype=np.uint8)
    for i in range(placed):
        stuck[order[i]] = 0
    before = np.full(groups, -1, dtype=np.int32)
    for u in range(label.shape[0]):
        for e in range(start[u], start[u + 1]):
            g, h = label[u], label[target[e]]
            if g != h and stuck[g] == 1 and stuck[h] == 1 and before[h] < 0:
                before[h] = g
    g = 0
    while stuck[g] == 0:
        g += 1
    for _ in range(groups):
        g = before[g]
    return g


@kernel("int32[::1](int32[::1], int64, int64, int32[::1], int32[::1])")
def path_back(
    label: NDArray[np.int32],
    groups: int,
    pivot: int,
    start: NDArray[np.int32],
    target: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Fewest operators on a way out of group `pivot` and back into it; empty where there is none.

    Returns
    -------
    int32[length]: the first and the last operator are in `pivot`. Neighbours on the path are joined by an
    edge, or stand in the same group: a group is entered at one operator and may be left at another.
    """
    first, member = members_of(label, groups)
    count = label.shape[0]
    before = np.full(count, -1, dtype=np.int32)
    queue = np.empty(count, dtype=np.int32)
    opened = np.zeros(groups, dtype=np.uint8)
    tail = 0
    for i in range(first[pivot], first[pivot + 1]):
        u = member[i]
        for e in range(start[u], start[u + 1]):
            v = target[e]
            if label[v] != pivot and before[v] < 0:
                before[v] = u
                queue[tail] = v
                tail += 1
    head = 0
    while head < tail:
        u = queue[head]
        head += 1
        for e in range(start[u], start[u + 1]):
            v = target[e]
            if label[v] == pivot:
                length = 2
                w = u
                while label[w] != pivot:
                    w = before[w]
                    length += 1
                path = np.empty(length, dtype=np.int32)
                path[length - 1] = v
                w = u
                for k in range(length - 2, -1, -1):
                    path[k] = w
                    w = before[w]
                return path
            if before[v] < 0:
                before[v] = u
                queue[tail] = v
                tail += 1
        g = label[u]
        if opened[g] == 0:
            opened[g] = 1
            for i in range(first[g], first[g + 1]):
                v = member[i]
                if v != u and before[v] < 0:
                    before[v] = u
                    queue[tail] = v
                    tail += 1
    return np.empty(0, dtype=np.int32)


@kernel("uint8[::1](int32[::1], int64, int64, int32[::1], int32[::1], boolean)")
def _reached(
    label: NDArray[np.int32],
    groups: int,
    pivot: int,
    start: NDArray[np.int32],
    target: NDArray[np.int32],
    backwards: bool,
) -> NDArray[np.uint8]:
    """uint8[groups]: 1 for what group `pivot` reaches over quotient edges (or is reached from) and itself."""
    count = label.shape[0]
    if backwards:
        turned = np.zeros(count + 1, dtype=np.int32)
        for e in range(target.shape[0]):
            turned[target[e] + 1] += 1
        for u in range(count):
            turned[u + 1] += turned[u]
        fill = turned[:-1].copy()
        source = np.empty(target.shape[0], dtype=np.int32)
        for u in range(count):
            for e in range(start[u], start[u + 1]):
                source[fill[target[e]]] = u
                fill[target[e]] += 1
        start, target = turned, source
    first, member = members_of(label, groups)
    seen = np.zeros(groups, dtype=np.uint8)
    stack = np.empty(groups, dtype=np.int32)
    stack[0] = pivot
    seen[pivot] = 1
    height = 1
    while height > 0:
        height -= 1
        g = stack[height]
        for i in range(first[g], first[g + 1]):
            u = member[i]
            for e in range(start[u], start[u + 1]):
                h = label[target[e]]
                if seen[h] == 0:
                    seen[h] = 1
                    stack[height] = h
                    height += 1
    return seen


@kernel("uint8[::1](int32[::1], int64, int64, int32[::1], int32[::1])")
def closure(
    label: NDArray[np.int32],
    groups: int,
    pivot: int,
    start: NDArray[np.int32],
    target: NDArray[np.int32],
) -> NDArray[np.uint8]:
    """uint8[groups]: 1 for `pivot` and every group on a way out of it and back.

    These are the groups that must join `pivot`, and joining them is enough where every cycle runs through
    `pivot`: a further way out and back would run through groups that are reached from it and reach it,
    and those are in the set already.
    """
    ahead = _reached(label, groups, pivot, start, target, False)
    behind = _reached(label, groups, pivot, start, target, True)
    return ahead & behind


@kernel("int32[::1](int32[::1], int64, int32[::1], int32[::1], int32[::1], uint8[::1])")
def phases(
    label: NDArray[np.int32],
    groups: int,
    start: NDArray[np.int32],
    target: NDArray[np.int32],
    order: NDArray[np.int32],
    pivots: NDArray[np.uint8],
) -> NDArray[np.int32]:
    """int32[groups]: how many of the groups marked in `pivots` a way to each group can pass at most.

    Groups of one phase, `pivots` left out, can be joined within the bounds of an older acyclic partition
    without closing a cycle: along an edge phases never fall, and out of a pivot they rise.
    """
    first, member = members_of(label, groups)
    phase = np.zeros(groups, dtype=np.int32)
    for g in order:
        passed = phase[g] + pivots[g]
        for i in range(first[g], first[g + 1]):
            u = member[i]
            for e in range(start[u], start[u + 1]):
                h = label[target[e]]
                if h != g and phase[h] < passed:
                    phase[h] = passed
    return phase


@kernel("int32[::1](int32[::1], int64, int32[::1], int32[::1], int64)")
def connected_parts(
    label: NDArray[np.int32],
    groups: int,
    first_link: NDArray[np.int32],
    link: NDArray[np.int32],
    tensors: int,
) -> NDArray[np.int32]:
    """int32[operators]: the lowest operator of the part of its group that each operator is connected with.

    Two operators of a group are connected through a tensor that both touch.

    Parameters
    ----------
    first_link, link : CSR, the tensors that each operator touches.
    """
    count = label.shape[0]
    root = np.arange(count).astype(np.int32)
    _, member = members_of(label, groups)
    toucher = np.full(tensors, -1, dtype=np.int32)
    for i in range(count):
        u = member[i]
        for k in range(first_link[u], first_link[u + 1]):
            v = toucher[link[k]]
            toucher[link[k]] = u
            if v >= 0 and label[v] == label[u]:
                a, b = u, v
                while root[a] != a:
                    root[a] = root[root[a]]
                    a = root[a]
                while root[b] != b:
                    root[b] = root[root[b]]
                    b = root[b]
                if a < b:
                    root[b] = a
                else:
                    root[a] = b
    for u in range(count):  # a root is never above its operator, so one ascending pass flattens
        root[u] = root[root[u]]
    return root


@kernel("uint8[::1](int32[::1], int64, int32[::1], int32[::1])")
def fusible_edges(
    label: NDArray[np.int32], groups: int, start: NDArray[np.int32], target: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """uint8[edges]: 1 where joining the groups of both ends leaves the acyclic quotient graph acyclic.

    Joining g and h closes a cycle exactly where another way leads from g to h than their own edges. Per
    group a bitset holds what it reaches over at least two edges; columns come in blocks, which keeps the
    bitsets small at any number of groups.
    """
    order, placed = quotient_order(label, groups, start, target)
    first, member = members_of(label, groups)
    position = np.empty(groups, dtype=np.int32)
    for i in range(placed):
        position[order[i]] = i
    out = np.ones(target.shape[0], dtype=np.uint8)
    words = _COLUMNS // 64
    one = np.uint64(1)
    reached = np.zeros((groups, words), dtype=np.uint64)
    through = np.empty(words, dtype=np.uint64)
    for low in range(0, placed, _COLUMNS):
        high = min(placed, low + _COLUMNS)
        for i in range(high - 1, -1, -1):
            g = order[i]
            through[:] = np.uint64(0)
            for j in range(first[g], first[g + 1]):
                u = member[j]
                for e in range(start[u], start[u + 1]):
                    h = label[target[e]]
                    if h != g and position[h] < high:
                        for w in range(words):
                            through[w] |= reached[h, w]
            for w in range(words):
                reached[g, w] = through[w]
            for j in range(first[g], first[g + 1]):
                u = member[j]
                for e in range(start[u], start[u + 1]):
                    h = label[target[e]]
                    at = position[h] - low
                    if h != g and 0 <= at < _COLUMNS:
                        bit = one << np.uint64(at & 63)
                        if through[at >> 6] & bit:
                            out[e] = 0
                        reached[g, at >> 6] |= bit
    return out


def writable(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Copies that kernels accept: C-contiguous and writable (a read-only array is another Numba type)."""
    return tuple(np.array(array, order="C") for array in arrays)
