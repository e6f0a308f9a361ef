"""A small map of the group's latency over the sizes of two dims: now, best found, what does not fit.

Knows cost requests and the background lanes of the document. It asks for a few cells at a time, so that an
edit never waits for it; a map belongs to one group, level, machine and set of other knobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QHelpEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from model.cost.result import CostRequest, CostResult, LevelMapping
from model.plan.plan import FusionGroup, LevelTile, Plan

from . import look
from .alone import cut_out
from .document import Document
from .runner import Lane
from .tile_sizes import ladder, units

MOST_SIZES = 11
SLICE = 3  # cells a job: an edit waits for at most that many evaluations
CAPTION, LEGEND = 20, 48
TICKS = 14  # of the legend: the sizes of the columns, right below them
CELL_HEIGHT = 14
WORTH = 1.005  # a cell that gains less is no better


@dataclass(frozen=True, slots=True)
class MapKey:
    """What a map is a function of."""

    graph: int
    machine: str
    precision: str
    memory: str
    dims: tuple[str, str]
    group: Any  # the group's knobs without the sizes of the two dims


def thinned(sizes: tuple[int, ...], now: int, most: int = MOST_SIZES) -> tuple[int, ...]:
    """At most `most` of them, evenly spread over the ladder, both ends kept, and `now` in place of its neighbour."""
    if len(sizes) > most:
        places = {round(i * (len(sizes) - 1) / (most - 1)) for i in range(most)}
        sizes = tuple(sizes[place] for place in sorted(places))
    if now in sizes or now < 1:
        return sizes
    inner = range(1, len(sizes) - 1)
    if len(sizes) < most or not inner:
        return tuple(sorted((*sizes, now)))
    near = min(inner, key=lambda i: abs(math.log(sizes[i] / now)))
    return tuple(sorted((*sizes[:near], now, *sizes[near + 1 :])))


class TileMap(QWidget):
    """The map widget."""

    picked = Signal(dict)
    """Emitted with {dim: size} when a cell was clicked."""
    completed = Signal()
    """Emitted when the last cell is known."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self._key: MapKey | None = None
        self._request: CostRequest | None = None
        self._index = 0
        self._columns: tuple[int, ...] = ()
        self._rows: tuple[int, ...] = ()
        self._cells: dict[tuple[int, int], tuple[float, bool]] = {}
        self._now: tuple[int, int] = (0, 0)
        self._gutter = 0  # pixels at the left of the cells
        self._start = QTimer(self)
        self._start.setSingleShot(True)
        self._start.setInterval(400)  # at rest: not in the middle of a row of edits
        self._start.timeout.connect(self._ask)
        self._caption()

    def _caption(self) -> None:
        """Name for the screen reader."""
        dims = self._key.dims if self._key else ("", "")
        self.setAccessibleName(f"Latency over {dims[0]} by {dims[1]} tiles" if self._key else "Tile map")

    # -- what to show ------------------------------------------------------------------------------
    def show_group(self, result: CostResult, index: int, memory: str) -> None:
        """Map of one group of a result; kept where only the two sizes changed."""
        group = result.groups[index]
        mapping = next((level for level in group.levels if level.memory == memory), None)
        extents = dict(group.dims)
        tiled = [dim for dim, _ in mapping.tile if extents.get(dim, 1) > 1] if mapping else []
        if mapping is None or len(tiled) < 2:
            self._key = None
            self.setVisible(False)
            return
        dims = (tiled[0], tiled[1])
        request = result.request
        knobs = request.plan.groups[index]
        own = knobs.level(memory)
        rest = tuple((dim, size) for dim, size in own.tile if dim not in dims)
        others = tuple(level for level in knobs.levels if level.memory != memory)
        bare = replace(knobs, levels=(*others, replace(own, tile=rest)))
        key = MapKey(id(request.graph), request.accelerator.digest, request.precision, memory, dims, bare)
        self._request, self._index = request, index
        self.setVisible(True)
        self.mark(mapping, dims)
        if key != self._key:
            wide = units(request.graph, request.accelerator, group)
            self._key = key
            now = dict(mapping.tile)  # where the plan is has a cell of its own, so that best and now compare
            self._columns, self._rows = (
                thinned(ladder(extents[dim], wide.get(dim, 1)), now[dim]) for dim in dims
            )
            self._cells = {}
            self._gutter = self._widest()
            self._caption()
            self.setFixedHeight(CAPTION + CELL_HEIGHT * len(self._rows) + LEGEND)
        if len(self._cells) < len(self._columns) * len(self._rows):
            self._start.start()
        self.update()

    def mark(self, mapping: LevelMapping, dims: tuple[str, str] | None = None) -> None:
        """Where the plan is now."""
        wanted = dims or (self._key.dims if self._key else None)
        if wanted is not None:
            sizes = dict(mapping.tile)
            self._now = (sizes.get(wanted[0], 0), sizes.get(wanted[1], 0))
            self.update()

    def knobs_at(self, knobs: FusionGroup, column: int, row: int) -> FusionGroup:
        """The group's knobs with these two sizes set."""
        assert self._key is not None
        own = knobs.level(self._key.memory)
        tile = {**dict(own.tile), self._key.dims[0]: column, self._key.dims[1]: row}
        level = LevelTile(own.memory, tuple(tile.items()), own.loop_order, own.retain)
        others = tuple(one for one in knobs.levels if one.memory != own.memory)
        return replace(knobs, levels=(*others, level))

    @property
    def is_waiting(self) -> bool:
        """Whether it is about to ask for cells."""
        return self._start.isActive()

    # -- the background ----------------------------------------------------------------------------
    def _missing(self) -> list[tuple[int, int]]:
        return [(c, r) for r in self._rows for c in self._columns if (c, r) not in self._cells]

    def _ask(self) -> None:
        request, key, index = self._request, self._key, self._index
        if request is None or key is None or not self.isVisible():
            return
        cells = self._missing()[:SLICE]
        if not cells:
            return
        engine = self.document.engine
        knobs = request.plan.groups[index]
        tried = [self.knobs_at(knobs, *cell) for cell in cells]

        def work() -> list[tuple[float, bool]]:
            # Alone: the other groups of a large graph would cost a hundred times as much.
            graph = cut_out(request.graph, knobs.operators)
            members = tuple(range(len(graph.operators)))
            out: list[tuple[float, bool]] = []
            for one in tried:
                plan = Plan((replace(one, operators=members),))
                group = engine.simulate_alone(replace(request, graph=graph, plan=plan)).groups[0]
                out.append((group.latency_s, group.infeasible is None))
            return out

        def done(found: tuple[tuple[float, bool], ...]) -> None:
            if key == self._key:
                self._cells.update(zip(cells, found, strict=True))
                self.update()
                if not self._missing():
                    self.completed.emit()
                if not self.is_waiting:  # an edit came in between: at rest it goes on
                    self._ask()

        self.document.ask(Lane.MAP, "Mapping tile sizes", work, done)

    # -- painting ----------------------------------------------------------------------------------
    def sizeHint(self) -> QSize:
        """Fixed height, any width."""
        return QSize(200, self.height())

    def _rect(self, column: int, row: int) -> QRectF:
        gutter = self._gutter
        wide = (self.width() - gutter) / max(1, len(self._columns))
        return QRectF(gutter + column * wide, CAPTION + row * CELL_HEIGHT, wide - 1, CELL_HEIGHT - 1)

    def _widest(self) -> int:
        """Pixels that the sizes of the rows take at the left."""
        metrics = QFontMetrics(look.font(look.TINY))
        ends = [f"{size:,}" for size in (*self._rows[:1], *self._rows[-1:])]
        ends.append(f"{self._key.dims[1]} ↓" if self._key else "")
        return max(metrics.horizontalAdvance(text) for text in ends) + 5

    def _best(self) -> tuple[int, int] | None:
        fitting = [(latency, cell) for cell, (latency, fits) in self._cells.items() if fits]
        return min(fitting)[1] if fitting else None

    def better(self) -> tuple[dict[str, int], float] | None:
        """The fastest cell's sizes and latency where the map is complete and where the plan is, is slower."""
        best = None if self._key is None or self._missing() else self._best()
        now = self._cells.get(self._now)
        if best is None or now is None or (now[1] and now[0] <= self._cells[best][0] * WORTH):
            return None
        return dict(zip(self._key.dims, best, strict=True)), self._cells[best][0]  # type: ignore[union-attr]

    def paintEvent(self, event: QPaintEvent) -> None:
        """Caption, cells, marks, legend."""
        if self._key is None:
            return
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(look.font(look.BODY, strong=True))
        painter.setPen(colours.text)
        painter.drawText(
            QRectF(0, 0, self.width(), CAPTION - 4),
            Qt.AlignmentFlag.AlignVCenter,
            f"latency over {self._key.dims[0]} → and {self._key.dims[1]} ↓",
        )
        fitting = [latency for latency, fits in self._cells.values() if fits]
        low, high = (min(fitting), max(fitting)) if fitting else (1.0, 1.0)
        best = self._best()
        for y, row in enumerate(self._rows):
            for x, column in enumerate(self._columns):
                self._cell(painter, self._rect(x, y), (column, row), low, high)
        self._ticks(painter)
        self._marks(painter, best)
        self._legend(painter, low, high, bool(fitting))
        painter.end()

    def _cell(self, painter: QPainter, rect: QRectF, cell: tuple[int, int], low: float, high: float) -> None:
        colours = look.palette()
        known = self._cells.get(cell)
        if known is None:
            painter.fillRect(rect, colours.sunken)
        elif not known[1]:
            painter.fillRect(rect, colours.sunken)
            painter.fillRect(rect, QBrush(colours.faint, Qt.BrushStyle.BDiagPattern))
        else:
            # Bright is fast: the eye finds the best corner.
            slow = math.log(known[0] / low) / math.log(high / low) if high > low else 0.0
            painter.fillRect(rect, look.heat_color(1.0 - slow))

    def _place(self, cell: tuple[int, int]) -> QRectF | None:
        """The cell nearest to two sizes."""
        if not self._columns or not self._rows or min(cell) < 1:
            return None
        x = min(range(len(self._columns)), key=lambda i: abs(math.log(self._columns[i] / cell[0])))
        y = min(range(len(self._rows)), key=lambda i: abs(math.log(self._rows[i] / cell[1])))
        return self._rect(x, y)

    def _marks(self, painter: QPainter, best: tuple[int, int] | None) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        now = self._place(self._now)
        if now is not None:
            for width, color in ((3.0, "#000000"), (1.5, "#FFFFFF")):
                painter.setPen(QPen(QColor(color), width))
                painter.drawRect(now.adjusted(1, 1, -1, -1))
        if best is not None and len(self._cells) == len(self._columns) * len(self._rows):
            ring = self._place(best)
            assert ring is not None
            for width, color in ((3.0, "#FFFFFF"), (1.5, "#000000")):
                painter.setPen(QPen(QColor(color), width))
                painter.drawEllipse(ring.center(), 4, 4)

    def _ticks(self, painter: QPainter) -> None:
        """The first and the last size of each axis: columns below the cells, rows at their left."""
        painter.setFont(look.font(look.TINY))
        painter.setPen(look.palette().muted)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        gutter, last = self._gutter, len(self._rows) - 1
        for row in {0, last}:
            rect = QRectF(0, CAPTION + row * CELL_HEIGHT, gutter - 4, CELL_HEIGHT - 1)
            painter.drawText(rect, right, f"{self._rows[row]:,}")
        line = QRectF(gutter, CAPTION + CELL_HEIGHT * (last + 1), self.width() - gutter, TICKS)
        assert self._key is not None
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, f"{self._columns[0]:,}")
        painter.drawText(line, Qt.AlignmentFlag.AlignCenter, f"{self._key.dims[0]} →")
        painter.drawText(line, right, f"{self._columns[-1]:,}")
        if last > 1:
            middle = QRectF(0, CAPTION + last / 2 * CELL_HEIGHT, gutter - 4, CELL_HEIGHT - 1)
            painter.drawText(middle, right, f"{self._key.dims[1]} ↓")

    def _legend(self, painter: QPainter, low: float, high: float, known: bool) -> None:
        colours = look.palette()
        top = CAPTION + CELL_HEIGHT * len(self._rows) + TICKS + 3
        painter.setFont(look.font(look.TINY))
        painter.setPen(colours.muted)
        row = QRectF(0, top, self.width(), 14)
        if not known:
            painter.drawText(row, Qt.AlignmentFlag.AlignLeft, "computing at rest …")
            return
        slow, fast = f"slower {look.fmt_seconds(high)}", f"{look.fmt_seconds(low)} faster"
        metrics = painter.fontMetrics()
        left = metrics.horizontalAdvance(slow) + 6
        bar = 56
        painter.drawText(row, Qt.AlignmentFlag.AlignLeft, slow)
        for step in range(bar):
            painter.fillRect(QRectF(left + step, top + 3, 1, 7), look.heat_color(step / (bar - 1)))
        painter.drawText(row.adjusted(left + bar + 6, 0, 0, 0), Qt.AlignmentFlag.AlignLeft, fast)
        done = len(self._cells) == len(self._columns) * len(self._rows)
        words = "□ now   ○ best here   ▨ no fit" if done else "computing …"
        painter.drawText(row.translated(0, 15), Qt.AlignmentFlag.AlignLeft, words)

    # -- pointing ----------------------------------------------------------------------------------
    def _under(self, at: QPointF) -> tuple[int, int] | None:
        if not self._columns or not self._rows:
            return None
        gutter = self._gutter
        x = math.floor((at.x() - gutter) / ((self.width() - gutter) / len(self._columns)))
        y = int((at.y() - CAPTION) / CELL_HEIGHT)
        if 0 <= x < len(self._columns) and 0 <= y < len(self._rows) and at.y() >= CAPTION:
            return self._columns[x], self._rows[y]
        return None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A click sets both sizes."""
        cell = self._under(event.position())
        if cell is not None and self._key is not None and event.button() is Qt.MouseButton.LeftButton:
            self.picked.emit({self._key.dims[0]: cell[0], self._key.dims[1]: cell[1]})

    def event(self, event: Any) -> bool:
        """The cell's numbers as its tip."""
        if isinstance(event, QHelpEvent) and self._key is not None:
            cell = self._under(QPointF(event.pos()))
            known = self._cells.get(cell) if cell is not None else None
            if cell is not None:
                words = "not computed yet" if known is None else look.fmt_seconds(known[0])
                if known is not None and not known[1]:
                    words = "does not fit"
                text = f"{self._key.dims[0]} {cell[0]:,}, {self._key.dims[1]} {cell[1]:,}: {words}"
                QToolTip.showText(event.globalPos(), text, self)
                return True
        return super().event(event)
