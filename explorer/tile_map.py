"""A small map of the group's latency over the sizes of two dims: now, the fastest, the tool's pick, what does not fit.

Latency alone: the tool also weighs an eighth of the time of the DRAM traffic, so its pick need not be the fastest cell.
Knows cost requests and the background lanes of the document. It asks for a few cells at a time, so that an
edit never waits for it; a map belongs to one group, level, machine and set of other knobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFontMetrics,
    QHelpEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QToolTip, QWidget

from model.cost.result import CostRequest, CostResult, GroupResult
from model.plan.plan import FusionGroup, LevelTile, Plan

from . import look
from .alone import cut_out
from .controls import Combo, muted
from .document import Document
from .runner import Lane
from .tile_sizes import ladder, units

MOST_SIZES = 11
SLICE = 3  # cells a job: an edit waits for at most that many evaluations
CAPTION, LEGEND = 32, 78
TICKS = 14  # of the legend: the sizes of the columns, right below them
CELL_HEIGHT = 14
WORTH = 1.005  # a cell that gains less is no faster
WEIGHED = "The tool weighs latency plus ⅛ of DRAM time"


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


def bare(group: FusionGroup, memory: str, dims: tuple[str, str]) -> FusionGroup:
    """The group's knobs without the sizes of two dims at one level."""
    own = group.level(memory)
    rest = tuple((dim, size) for dim, size in own.tile if dim not in dims)
    others = tuple(level for level in group.levels if level.memory != memory)
    return replace(group, levels=(*others, replace(own, tile=rest)))


class TileMap(QWidget):
    """The map widget; empty while the plan shown is one that it is not of."""

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
        self._group: GroupResult | None = None
        self._chosen: tuple[object, tuple[str, str]] | None = None  # axes that the user picked, and for what
        self._pick: tuple[int, int] | None = None  # what the tool chooses
        self._stale = False
        self._columns: tuple[int, ...] = ()
        self._rows: tuple[int, ...] = ()
        self._cells: dict[tuple[int, int], tuple[float, bool]] = {}
        self._now: tuple[int, int] = (0, 0)
        self._gutter = 0  # pixels at the left of the cells
        self._start = QTimer(self)
        self._start.setSingleShot(True)
        self._start.setInterval(400)  # at rest: not in the middle of a row of edits
        self._start.timeout.connect(self._ask)
        self.across, self.down = Combo("Dim of the map's columns"), Combo("Dim of the map's rows")
        self._head = QWidget(self)
        row = QHBoxLayout(self._head)
        row.setContentsMargins(0, 0, 0, 0)
        for part in (muted("Latency"), self.across, muted("→ and"), self.down, muted("↓")):
            row.addWidget(part, 1 if isinstance(part, Combo) else 0)
        self.across.activated.connect(lambda *_: self._axes_picked(0))
        self.down.activated.connect(lambda *_: self._axes_picked(1))
        document.graph_changed.connect(self._forget)
        document.plan_changed.connect(self._compare)
        document.machine_changed.connect(self._compare)
        self._caption()

    def _caption(self) -> None:
        """Name for the screen reader."""
        dims = self._key.dims if self._key else ("", "")
        self.setAccessibleName(f"Latency over {dims[0]} by {dims[1]} tiles" if self._key else "Tile map")

    # -- what to show ------------------------------------------------------------------------------
    def _forget(self) -> None:
        """Another graph: no group of it is known."""
        self._key = self._request = self._group = self._chosen = None
        self.setVisible(False)

    def _compare(self) -> None:
        """See whether the map is one of the plan and the machine that are shown."""
        plan, key, request, machine = (
            self.document.shown_plan,
            self._key,
            self._request,
            self.document.accelerator,
        )
        if plan is None or key is None or request is None or machine is None:
            return
        mine = request.plan.groups[self._index]
        index = plan.group_of[mine.operators[0]]
        now = plan.groups[index]
        stale = (
            (machine.digest, self.document.precision) != (key.machine, key.precision)
            or now.operators != mine.operators
            or bare(now, key.memory, key.dims) != key.group
        )
        if stale != self._stale:
            self._stale = stale
            self.completed.emit()
            self.update()

    def _axes(self, group: GroupResult, memory: str) -> tuple[str, str] | None:
        """The dims that the map spans: those picked for this group, else its two longest."""
        extents = {dim: extent for dim, extent in group.dims if extent > 1}
        if len(extents) < 2:
            return None
        longest = sorted(extents, key=lambda dim: -extents[dim])[:2]
        axes = tuple(dim for dim in extents if dim in longest)
        if self._chosen is not None and self._chosen[0] == (group.operators, memory):
            axes = self._chosen[1]
        for combo, axis in ((self.across, axes[0]), (self.down, axes[1])):
            if [combo.itemText(i) for i in range(combo.count())] != list(extents):
                combo.clear()
                combo.addItems(list(extents))
            combo.setCurrentText(axis)
        return axes[0], axes[1]

    def _axes_picked(self, which: int) -> None:
        """One axis is another dim now; the other one gives way where it was that dim."""
        key, request, group = self._key, self._request, self._group
        if key is None or request is None or group is None:
            return
        axes = [self.across.currentText(), self.down.currentText()]
        if axes[0] == axes[1]:
            axes[1 - which] = key.dims[which]
        self._chosen = (group.operators, key.memory), (axes[0], axes[1])
        self._show(request, group, key.memory)
        self.completed.emit()

    def show_group(self, result: CostResult, index: int, memory: str) -> None:
        """Map of one group of a result; kept where only the two sizes changed."""
        self._index = index
        self._show(result.request, result.groups[index], memory)

    def _show(self, request: CostRequest, group: GroupResult, memory: str) -> None:
        dims = self._axes(group, memory) if any(level.memory == memory for level in group.levels) else None
        if dims is None:
            self._key = None
            self.setVisible(False)
            return
        knobs = bare(request.plan.groups[self._index], memory, dims)
        key = MapKey(id(request.graph), request.accelerator.digest, request.precision, memory, dims, knobs)
        self._request, self._group = request, group
        self.setVisible(True)
        if key != self._key:
            wide, extents = units(request, self._index), dict(group.dims)
            self._key = key
            self.mark(group)
            # Where the plan is has a cell of its own, so that the fastest and now compare.
            self._columns, self._rows = (
                thinned(ladder(extents[dim], wide.get(dim, 1)), now)
                for dim, now in zip(dims, self._now, strict=True)
            )
            self._cells, self._pick = {}, None
            self._gutter = self._widest()
            self._caption()
            self.setFixedHeight(CAPTION + CELL_HEIGHT * len(self._rows) + LEGEND)
        self.mark(group)
        self._compare()
        if self._missing():
            self._start.start()
        self.update()

    def mark(self, group: GroupResult) -> None:
        """Where the plan is now."""
        self._group = group
        if self._key is not None:
            self._now = self._sizes(group)
            self.update()

    def _sizes(self, group: GroupResult) -> tuple[int, int]:
        """The tile of the two dims in a group's mapping; a dim that is not cut is whole."""
        assert self._key is not None
        memory, dims = self._key.memory, self._key.dims
        tile = next((dict(level.tile) for level in group.levels if level.memory == memory), {})
        extents = dict(group.dims)
        return tile.get(dims[0], extents.get(dims[0], 0)), tile.get(dims[1], extents.get(dims[1], 0))

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
        picks = self._pick is None
        cells = self._missing()[: SLICE - picks]
        if not cells:
            return
        engine = self.document.engine
        knobs = request.plan.groups[index]
        # What the tool chooses itself comes first.
        tried = [key.group] * picks + [self.knobs_at(knobs, *cell) for cell in cells]

        def work() -> list[GroupResult]:
            # Alone: the other groups of a large graph would cost a hundred times as much.
            graph = cut_out(request.graph, knobs.operators)
            members = tuple(range(len(graph.operators)))
            plans = (Plan((replace(one, operators=members),)) for one in tried)
            return [
                engine.simulate_alone(replace(request, graph=graph, plan=plan)).groups[0] for plan in plans
            ]

        def done(found: list[GroupResult]) -> None:
            if key == self._key:
                if picks:
                    self._pick = self._sizes(found[0])
                known = [(group.latency_s, group.infeasible is None) for group in found[picks:]]
                self._cells.update(zip(cells, known, strict=True))
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

    def faster(self) -> tuple[dict[str, int], float] | None:
        """The fastest cell's sizes and seconds, where the map is whole and the group as shown is slower, or no fit."""
        key, group = self._key, self._group
        best = None if key is None or self._stale or self._missing() else self._best()
        if key is None or group is None or best is None:
            return None
        latency_s = self._cells[best][0]
        if group.infeasible is None and group.latency_s <= latency_s * WORTH:
            return None
        return dict(zip(key.dims, best, strict=True)), latency_s

    def paintEvent(self, event: QPaintEvent) -> None:
        """Cells, marks, legend."""
        if self._key is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        fitting = [latency for latency, fits in self._cells.values() if fits and not self._stale]
        low, high = (min(fitting), max(fitting)) if fitting else (1.0, 1.0)
        best = self._best()
        for y, row in enumerate(self._rows):
            for x, column in enumerate(self._columns):
                self._cell(painter, self._rect(x, y), (column, row), low, high)
        self._ticks(painter)
        if not self._stale:
            self._marks(painter, best)
        self._legend(painter, low, high, bool(fitting))
        painter.end()

    def _cell(self, painter: QPainter, rect: QRectF, cell: tuple[int, int], low: float, high: float) -> None:
        colours = look.palette()
        known = None if self._stale else self._cells.get(cell)
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
        pick = None if self._pick is None else self._place(self._pick)
        if pick is not None:
            at, corners = pick.center(), ((0, -5), (5, 0), (0, 5), (-5, 0))
            for width, color in ((3.0, "#000000"), (1.5, "#FFFFFF")):
                painter.setPen(QPen(QColor(color), width))
                painter.drawPolygon([at + QPointF(x, y) for x, y in corners])
        if best is not None and not self._missing():
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
        words = "□ now  ○ fastest here  ▨ no fit" if known and not self._missing() else "computing …"
        for line, text in enumerate((words, "◇ the tool's pick", WEIGHED), 1):
            painter.drawText(row.translated(0, 15 * line), Qt.AlignmentFlag.AlignLeft, text)
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

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The choice of the axes stands above the cells."""
        super().resizeEvent(event)
        self._head.setGeometry(0, 0, self.width(), CAPTION - 6)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A click sets both sizes."""
        cell = self._under(event.position())
        if (
            cell is not None
            and self._key is not None
            and not self._stale
            and event.button() is Qt.MouseButton.LeftButton
        ):
            self.picked.emit({self._key.dims[0]: cell[0], self._key.dims[1]: cell[1]})

    def event(self, event: Any) -> bool:
        """The cell's numbers as its tip."""
        if isinstance(event, QHelpEvent) and self._key is not None:
            cell = self._under(QPointF(event.pos()))
            known = self._cells.get(cell) if cell is not None and not self._stale else None
            if cell is not None:
                words = "not computed yet" if known is None else look.fmt_seconds(known[0])
                if known is not None and not known[1]:
                    words = "does not fit"
                text = f"{self._key.dims[0]} {cell[0]:,}, {self._key.dims[1]} {cell[1]:,}: {words}"
                QToolTip.showText(event.globalPos(), text, self)
                return True
        return super().event(event)
