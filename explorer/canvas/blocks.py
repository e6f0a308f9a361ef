"""The inside of a fusion group, or a closed block of the graph: boxes in layers, entries above them, exits below.

Knows the layered-layout kernels; runs on the worker. Must not know plans, names, Qt or colours. A block is a
pure function of the group's `Shape`, and the blocks of a deep model have few shapes: each is placed once.

Measures of the whole picture live here as well. World units are pixels at 100 %, y down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from model.graph.graph import OperatorGraph, OpKind

BOX = (148.0, 32.0)
VIEW_BOX = (112.0, 20.0)  # views move nothing: a smaller, paler box
CLOSED_BOX = (216.0, 52.0)  # a closed block: its name, and what it holds
ROW_GAP, COLUMN_GAP = 24.0, 16.0  # between boxes of one group
PAD, TITLE, BOTTOM = 12.0, 28.0, 12.0  # hull around its boxes: sides, top (its title strip), bottom
BLOCK_GAP = 28.0  # between hulls of one layer
CHIP = (84.0, 20.0)
CHIP_LANE, CHIP_LANES = 26.0, 4  # chips of neighbouring lines take turns in lanes above each other
BEND_MIN, BEND_MAX = 28.0, 88.0
LANE_WIDTH = 12.0  # a line that passes between boxes
PORT_GAP = 48.0  # between lines into one hull: a chip covers no neighbour's line
FEW_ENTRIES = 8  # up to here every line into a hull gets a chip's width

Points = NDArray[np.float64]


Route = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the block of a group depends on. Operators, entries and exits are numbered within the group.

    Attributes
    ----------
    views : per operator whether it is a view.
    hull : whether there is a hull around the boxes.
    closed : whether it is a closed block of the graph: one box, whatever it holds.
    inner : per line inside: producer, consumer, and a number for its tensor.
    entering : per line from outside: its entry (one per tensor) and consumer.
    leaving : per exit (one per tensor) its producer.
    """

    views: tuple[bool, ...]
    hull: bool
    inner: tuple[tuple[int, int, int], ...]
    entering: tuple[tuple[int, int], ...]
    leaving: tuple[int, ...]
    closed: bool = False

    @property
    def entries(self) -> int:
        """How many tensors come in."""
        return max((entry for entry, _ in self.entering), default=-1) + 1


@dataclass(frozen=True, eq=False)
class Block:
    """The inside of one group, relative to the hull's top left corner.

    Attributes
    ----------
    boxes : float64[operators, 4].
    inner : per line inside, float64[points, 2] from box to box.
    entries : per tensor that comes in, x at the top of the hull.
    entry_routes : per line from outside, from the hull's top down to the consumer's box.
    exits : per tensor that goes out, x at the bottom of the hull.
    exit_routes : per tensor that goes out, from the producer's box down to the hull's bottom.
    """

    width: float
    height: float
    boxes: Points
    inner: tuple[Points, ...]
    entries: tuple[float, ...]
    entry_routes: tuple[Points, ...]
    exits: tuple[float, ...]
    exit_routes: tuple[Points, ...]

    @cached_property
    def mirrored(self) -> Block:
        """Left and right exchanged: made once for all groups of the shape."""

        def turned(routes: tuple[Points, ...]) -> tuple[Points, ...]:
            return tuple(route * (-1.0, 1.0) + (self.width, 0.0) for route in routes)

        left, top, right, bottom = self.boxes.T
        return Block(
            self.width,
            self.height,
            np.stack([self.width - right, top, self.width - left, bottom], axis=1),
            turned(self.inner),
            tuple(self.width - x for x in self.entries),
            turned(self.entry_routes),
            tuple(self.width - x for x in self.exits),
            turned(self.exit_routes),
        )


def has_hull(graph: OperatorGraph, operators: tuple[int, ...]) -> bool:
    """Whether a group is drawn with a hull: a view alone is no launch and has none."""
    return len(operators) != 1 or graph.operators[operators[0]].kind is not OpKind.VIEW


def spread(count: int, width: float, gap: float) -> list[float]:
    """`count` offsets around 0, `gap` apart where they fit into `width`, else evenly closer."""
    if count < 2:
        return [0.0] * count
    step = min(gap, (width - COLUMN_GAP) / (count - 1))
    return [(i - (count - 1) / 2.0) * step for i in range(count)]


def box_sizes(views: NDArray[np.bool_]) -> Points:
    """float64[operators, 2]: width and height of each operator's box."""
    return np.where(np.asarray(views, dtype=np.bool_)[:, None], np.array(VIEW_BOX), np.array(BOX))


@lru_cache(maxsize=4096)
def make_block(shape: Shape) -> Block:
    """The block of all groups of this shape."""
    return _single(shape) if len(shape.views) == 1 else _Inner(shape).block()


def _single(shape: Shape) -> Block:
    """One operator; who comes by which entry is decided when it is known from where."""
    width, height = CLOSED_BOX if shape.closed else VIEW_BOX if shape.views[0] else BOX
    left, top, bottom = (PAD, TITLE, BOTTOM) if shape.hull else (0.0, 0.0, 0.0)
    middle, foot = left + width / 2, top + height
    entries = tuple(middle + dx for dx in spread(shape.entries, width, PORT_GAP))
    exits = tuple(middle + dx for dx in spread(len(shape.leaving), width, PORT_GAP))
    return Block(
        width + 2 * left,
        height + top + bottom,
        np.array([[left, top, left + width, top + height]]),
        (),
        entries,
        tuple(np.array([(entries[entry], 0.0), (entries[entry], top)]) for entry, _ in shape.entering),
        exits,
        tuple(np.array([(x, foot), (x, foot + bottom)]) for x in exits),
    )


class _Inner:
    """Several operators in layers. Nodes: the operators, an entry per tensor that comes in, one sink.

    The sink hangs below every operator that has no reader inside and takes every tensor that leaves: so each
    exit has a lane past the operators below its producer, and its lane in the last row is where it leaves.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.box = box_sizes(np.array(shape.views))
        self.count = len(shape.views)
        self.sink = self.count + shape.entries
        inside = [(start, end) for start, end, _ in shape.inner]
        ends = sorted(set(range(self.count)) - {start for start, _ in inside} - set(shape.leaving))
        self.links = [
            *inside,
            *((self.count + entry, end) for entry, end in shape.entering),
            *((start, self.sink) for start in (*shape.leaving, *ends)),
        ]
        self.entering = range(len(inside), len(inside) + len(shape.entering))
        # Lines of one tensor share their lanes; what hangs on the sink alone is no line at all.
        carried = [tensor for _, _, tensor in shape.inner] + [0] * len(shape.entering)
        carried += [-1 - i for i in range(len(shape.leaving) + len(ends))]
        port = PORT_GAP - COLUMN_GAP if shape.entries <= FEW_ENTRIES else LANE_WIDTH
        widths = [*self.box[:, 0].tolist(), *[port] * shape.entries, LANE_WIDTH]
        self.placed = in_layers(widths, self.links, carried, COLUMN_GAP, roots_down=False)
        self._rows()

    def _rows(self) -> None:
        """Heights of the rows, boxes in them, and everything shifted to begin at the hull's left edge."""
        rank, x = self.placed.rank[: self.count], self.placed.x
        heights = np.zeros(int(self.placed.rank[self.sink]))
        np.maximum.at(heights, rank, self.box[:, 1])
        # Entries that run straight down into the boxes below them need no room to bend.
        ends = [self.links[link][1] for link in self.entering]
        self.straight = len(ends) == self.shape.entries and all(self.placed.rank[end] == 1 for end in ends)
        gaps = np.where((heights[:-1] > 0) | (not self.straight), ROW_GAP, 0.0)
        self.tops = TITLE + np.concatenate([[0.0], np.cumsum(heights[:-1] + gaps)])
        self.feet = self.tops + heights
        middle, y = x[: self.count], (self.tops + heights / 2)[rank]
        wide, high = self.box[:, 0] / 2, self.box[:, 1] / 2
        boxes = np.stack([middle - wide, y - high, middle + wide, y + high], axis=1)
        spans = [
            boxes[:, 0].min(),
            boxes[:, 2].max(),
            *x[self.count : self.sink].tolist(),
            *self.placed.lanes,
        ]
        self.shift = PAD - float(min(spans))
        boxes[:, [0, 2]] += self.shift
        self.boxes = boxes
        self.width = float(max(spans)) + self.shift + PAD
        self.height = float(self.feet[-1]) + BOTTOM

    def _path(self, link: int) -> Route:
        """From a box's foot, or the hull's top, down the lanes of a link to the foot of its last lane."""
        start = self.links[link][0]
        x, rank = float(self.placed.x[start]) + self.shift, int(self.placed.rank[start])
        if start < self.count:
            out = [(x, float(self.boxes[start, 3]))]
        else:
            out = [(x, 0.0), (x, float(self.feet[rank]))]
        for step, lane in enumerate(self.placed.lanes_of(link), rank + 1):
            out += [(lane + self.shift, float(self.tops[step])), (lane + self.shift, float(self.feet[step]))]
        return out

    def _arrive(self, paths: list[Route]) -> None:
        """Spread the lines that end at one box over its top, from left to right as they come."""
        arriving: dict[int, list[int]] = {}
        for link, (_, end) in enumerate(self.links):
            if end != self.sink:
                arriving.setdefault(end, []).append(link)
        for end, found in arriving.items():
            left, top, right, _ = self.boxes[end].tolist()
            found.sort(key=lambda link: paths[link][-1][0])
            boxes_only = all(self.links[link][0] < self.count for link in found)
            places = spread(len(found), right - left, ROW_GAP if boxes_only else PORT_GAP)
            for link, dx in zip(found, places, strict=True):
                x = paths[link][-1][0]
                # A lone line from above stays straight as long as it meets the box.
                if len(found) > 1 or not left + PAD < x < right - PAD:
                    x = (left + right) / 2 + dx
                paths[link].append((x, top))

    def block(self) -> Block:
        """The finished block."""
        paths = [self._path(link) for link in range(len(self.links))]
        self._arrive(paths)
        entries = [float(x) + self.shift for x in self.placed.x[self.count : self.sink]]
        if self.straight:
            for (entry, _), link in zip(self.shape.entering, self.entering, strict=True):
                x, top = paths[link][-1]
                paths[link] = [(x, 0.0), (x, top)]
                entries[entry] = x
        first = self.entering.stop
        leaving = [
            [*path, (path[-1][0], self.height)] for path in paths[first : first + len(self.shape.leaving)]
        ]
        return Block(
            self.width,
            self.height,
            self.boxes,
            _arrays(paths[: self.entering.start]),
            tuple(entries),
            _arrays(paths[self.entering.start : first]),
            tuple(path[-1][0] for path in leaving),
            _arrays(leaving),
        )


def _arrays(paths: list[Route]) -> tuple[Points, ...]:
    return tuple(np.array(path) for path in paths)


@dataclass(frozen=True, eq=False)
class Placed:
    """Nodes in layers: rank and x (the middle) of each; per link the x of its lane in each layer between."""

    rank: NDArray[np.int32]
    x: Points
    lanes: Points
    lane_first: NDArray[np.int32]
    lane_end: NDArray[np.int32]

    def lanes_of(self, link: int) -> list[float]:
        """x of the link's lanes, from the layer below its producer to that above its consumer."""
        return self.lanes[self.lane_first[link] : self.lane_end[link]].tolist()


def in_layers(
    widths: list[float], links: list[tuple[int, int]], tensors: list[int], gap: float, *, roots_down: bool
) -> Placed:
    """The layered-layout kernels on lists; links of one node and one tensor share their lanes."""
    from model.graph.layering import layered  # Numba: loaded on the worker, not with the window

    ends = np.array(links, dtype=np.int32).reshape(-1, 2)
    _, bundle = np.unique(np.array(tensors, dtype=np.int64), return_inverse=True)
    placed = layered(
        ends[:, 0],
        ends[:, 1],
        np.array(widths),
        bundle=bundle.reshape(-1),
        gap=gap,
        lane_width=LANE_WIDTH,
        row_height=160.0,
        roots_down=roots_down,
    )
    # Whole pixels: boxes and straight lines are sharp at 100 %.
    x, lanes = np.round(placed.x), np.round(placed.lane_x)
    return Placed(placed.rank, x, lanes, placed.lane_first, placed.lane_end)
