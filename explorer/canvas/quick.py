"""A picture at once, while the real layout is made: groups in rows by their rank, straight lines.

Knows the graph and a plan. Needs no kernel, so it may run on the GUI thread for small graphs. Must not know Qt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph, OpKind
from model.plan.plan import Plan

from .blocks import BLOCK_GAP, BOTTOM, PAD, ROW_GAP, TITLE, box_sizes, has_hull
from .folding import Folding
from .positions import Layout, bounds_of, nothing


def provisional(graph: OperatorGraph, plan: Plan) -> Layout:
    """A picture at once: groups in rows by their rank, operators stacked in them, with straight lines.

    No two boxes and no two hulls overlap; lines may run through anything.
    """
    if not graph.operators:
        return nothing(graph, plan)
    group, edges = plan.membership.astype(np.int64), graph.edges
    size = box_sizes(np.array([o.kind is OpKind.VIEW for o in graph.operators]))
    hull = np.array([has_hull(graph, g.operators) for g in plan.groups])
    # Inside: one below the other in file order, which is topological.
    order = np.argsort(group, kind="stable")
    step = size[order, 1] + ROW_GAP
    ends, last = np.cumsum(step), np.cumsum(np.bincount(group))
    stack = np.diff(ends[last - 1], prepend=0.0)
    down = np.empty(len(order))
    down[order] = ends - step - np.repeat(ends[last - 1] - stack, np.diff(last, prepend=0))
    down += np.where(hull, TITLE, 0.0)[group]
    high = stack - ROW_GAP + np.where(hull, TITLE + BOTTOM, 0.0)
    wide = np.zeros(len(hull))
    np.maximum.at(wide, group, size[:, 0])
    wide += np.where(hull, 2 * PAD, 0.0)
    # Outside: side by side, each row about the middle.
    rank = _ranks(group[edges[:, 0]], group[edges[:, 1]], len(hull))
    rows = np.zeros(int(rank.max()) + 1)
    np.maximum.at(rows, rank, high)
    top = (np.cumsum(rows + 2 * ROW_GAP) - rows - 2 * ROW_GAP)[rank]
    in_rows = np.argsort(rank, kind="stable")
    right = np.cumsum(wide[in_rows] + BLOCK_GAP)
    end = np.cumsum(np.bincount(rank))
    middle = (right[end - 1] + np.concatenate([[0.0], right[end[:-1] - 1]]) - BLOCK_GAP) / 2
    left = np.empty(len(hull))
    left[in_rows] = right - wide[in_rows] - BLOCK_GAP - middle[rank[in_rows]]
    left = np.round(left)
    corner = np.stack([(left + wide / 2)[group] - size[:, 0] / 2, top[group] + down], axis=1)
    boxes = np.concatenate([corner, corner + size], axis=1)
    rects = np.stack([left, top, left + wide, top + high], axis=1)
    frames = {g.operators: tuple(rect) for g, rect in zip(plan.groups, rects.tolist(), strict=True)}
    x = boxes[:, [0, 2]].mean(axis=1)
    tops = np.stack([x[edges[:, 0]], boxes[edges[:, 0], 3]], axis=1)
    ends_at = np.stack([x[edges[:, 1]], boxes[edges[:, 1], 1]], axis=1)
    points = np.stack([tops, ends_at], axis=1).reshape(-1, 2)
    start = np.arange(len(edges) + 1, dtype=np.int32) * 2
    anchors = (tops + ends_at) / 2
    whole = Folding(len(graph.operators))
    return Layout(
        graph, plan, boxes, frames, start, points, anchors, bounds_of(rects), whole, provisional=True
    )


def _ranks(source: NDArray[np.int64], target: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Longest-path ranks of `count` groups over the links between them; Kahn's algorithm, without kernels."""
    readers: list[list[int]] = [[] for _ in range(count)]
    across = source != target
    pairs = np.unique(source[across] * count + target[across])
    for one, other in zip((pairs // count).tolist(), (pairs % count).tolist(), strict=True):
        readers[one].append(other)
    waiting = np.bincount(pairs % count, minlength=count).tolist()
    ranks = [0] * count
    ready = [group for group in range(count) if not waiting[group]]
    while ready:
        group = ready.pop()
        for reader in readers[group]:
            ranks[reader] = max(ranks[reader], ranks[group] + 1)
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return np.array(ranks, dtype=np.int64)
