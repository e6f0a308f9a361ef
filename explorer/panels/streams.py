"""Who was served how: streams with their tails and objectives, and how busy each slot was.

Knows `ServingResult`. All figures are the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from model.serving.document import slots_of
from model.serving.result import ServingResult, StreamResult

from .. import look
from ..document import Document
from .rows import ROW_HEIGHT, Column, Rows, RowsTable

MOST_ROWS = 6
MOST_SLOTS = 64
"""Slots beyond these are not drawn one by one."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream; it stands for no operators."""

    stream: StreamResult
    operators: tuple[int, ...] = ()

    @property
    def attainment(self) -> str:
        """Share of requests within the objective, and the objective; a dash where there is none."""
        stream = self.stream
        if stream.slo_attainment is None or stream.slo_response_s is None or stream.slo_percentile is None:
            return look.NO_NUMBER
        sign = "✓" if self.met else "✕"
        return f"{sign} {look.fmt_percent(stream.slo_attainment)}"

    @property
    def met(self) -> bool:
        """Whether the share that the objective asks for answers within it."""
        stream = self.stream
        return (stream.slo_attainment or 0.0) >= (stream.slo_percentile or 0.0)

    @property
    def tip(self) -> str:
        """The objective in full."""
        stream = self.stream
        if stream.slo_response_s is None or stream.slo_percentile is None:
            return "no objective"
        return (
            f"{look.fmt_percent(stream.slo_attainment)} of requests within "
            f"{look.fmt_seconds(stream.slo_response_s)}; the objective is {look.fmt_percent(stream.slo_percentile)}"
        )


COLUMNS = (
    Column(
        "Stream",
        lambda row: row.stream.name,
        lambda row: row.stream.name,
        row_tip=lambda row: f"{row.stream.name}: {look.fmt_count(row.stream.requests)} requests",
        align="left",
    ),
    Column(
        "Requests",
        lambda row: look.fmt_count(row.stream.requests),
        lambda row: row.stream.requests,
        "replayed",
    ),
    Column(
        "p95",
        lambda row: look.fmt_ns(row.stream.p95_ns),
        lambda row: row.stream.p95_ns,
        "95th percentile of its responses, nearest rank",
    ),
    Column(
        "Slowdown",
        lambda row: f"{row.stream.slowdown:.2f}",
        lambda row: row.stream.slowdown,
        "responses over the times alone on a slot, both summed",
    ),
    Column(
        "Within SLO",
        lambda row: row.attainment,
        lambda row: row.stream.slo_attainment if row.stream.slo_attainment is not None else -1.0,
        "share of its requests that answer within its objective",
        lambda row: row.tip,
        state=lambda row: "" if row.stream.slo_attainment is None else "good" if row.met else "bad",
    ),
)


def _of_tokens(row: StreamRow, name: str) -> int | None:
    """p95 of a stream's times to first token, or per token, in ns."""
    tokens = row.stream.tokens
    values = () if tokens is None else getattr(tokens, f"{name}_ns")
    return values[1] if values else None


TOKEN_COLUMNS = tuple(
    Column(
        f"{name.upper()} p95",
        lambda row, name=name: look.fmt_ns(_of_tokens(row, name)),
        lambda row, name=name: _of_tokens(row, name) or 0,
        tip,
    )
    for name, tip in (
        ("ttft", "95th percentile of the time to the first token"),
        ("tpot", "95th percentile of the time per output token"),
    )
)


class StreamTable(RowsTable):
    """One row a stream, as high as its rows."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, COLUMNS)
        self.setAccessibleName("Streams")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def show_streams(self, result: ServingResult) -> None:
        """The streams of a result."""
        answers = any(stream.tokens is not None for stream in result.streams)
        # With times of tokens there is no room for how many requests it has: that is in the tip of its name.
        columns = (COLUMNS[0], COLUMNS[2], *TOKEN_COLUMNS, *COLUMNS[3:]) if answers else COLUMNS
        self.show_rows(Rows.of([StreamRow(stream) for stream in result.streams]), columns)
        header = self.horizontalHeader()
        for place in range(len(columns)):
            header.setSectionResizeMode(
                place, header.ResizeMode.ResizeToContents if place else header.ResizeMode.Stretch
            )
        shown = min(MOST_ROWS, max(1, len(result.streams)))
        self.setFixedHeight(self.horizontalHeader().sizeHint().height() + shown * ROW_HEIGHT + 2)


class SlotBars(QWidget):
    """How busy each slot was, from first arrival to last completion: bars with their share."""

    HEIGHT = 34

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []
        self.setAccessibleName("Utilisation of slots")
        self.setFixedHeight(self.HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """One line of bars with their figures."""
        return QSize(300, self.HEIGHT)

    def show_slots(self, result: ServingResult) -> None:
        """The slots of a result."""
        self.shares = [share for share, _, _ in slots_of(result)]
        shown = 0 < len(self.shares) <= MOST_SLOTS
        self.setVisible(shown)
        if not shown:
            return
        mean = sum(self.shares) / len(self.shares)
        text = f"busiest slot {look.fmt_percent(max(self.shares))}, mean {look.fmt_percent(mean)}"
        each = "\n".join(
            f"slot {slot}: {look.fmt_percent(share)}, {count:,} requests"
            for slot, (share, count) in enumerate(zip(self.shares, result.slot_requests, strict=True))
        )
        self.setAccessibleDescription(text)
        self.setToolTip(f"Busy from first arrival to last completion: {text}\n{each}")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """A box per slot, filled as far as it was busy."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setFont(look.font(look.TINY))
        wide = self.width() / max(1, len(self.shares))
        metrics = painter.fontMetrics()
        for slot, share in enumerate(self.shares):
            box = QRectF(slot * wide, 0, wide - 3, 14)
            painter.fillRect(box, colours.sunken)
            full = QRectF(box)
            full.setWidth(box.width() * min(1.0, share))
            painter.fillRect(full, colours.group(2))
            text = f"slot {slot}  {look.fmt_percent(share)}"
            if metrics.horizontalAdvance(text) > wide - 4:
                text = f"{share * 100:.0f}"
            if metrics.horizontalAdvance(text) <= wide - 2:
                painter.setPen(colours.muted)
                painter.drawText(QRectF(slot * wide, 16, wide, 14), Qt.AlignmentFlag.AlignLeft, text)
        painter.end()
