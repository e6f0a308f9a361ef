"""The header strip: what is open, on what machine, and the metrics that stay visible with their deltas.

`metrics` is a pure function of results; the widgets only draw what it says. A delta never stands without the
name of its baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QEvent, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QContextMenuEvent,
    QFontMetrics,
    QGuiApplication,
    QHelpEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from model.cost.result import CostResult
from model.graph.dtypes import SHORT, is_float
from model.graph.graph import OperatorGraph
from model.serving.result import ServingResult

from . import look, why
from .controls import ElidedLabel
from .document import Document
from .look import GRID
from .names import group_name
from .results import Baseline

HEIGHT = 64
LEFT = 272


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric as text. ``aside`` stands right above ``against``: a delta and its baseline."""

    caption: str
    value: str = look.NO_NUMBER
    aside: str = ""
    against: str = ""
    state: str = ""  # of the aside: "", good, warn, bad
    why: Callable[[], str] | None = field(default=None, compare=False)  # text of the tip, made when asked
    behind: bool = False  # belongs to an older plan than the rest


def metrics(
    cost: CostResult | None,
    serving: ServingResult | None,
    baseline: Baseline | None,
    *,
    serving_is_behind: bool = False,
) -> tuple[MetricValue, ...]:
    """Launch reduction, on-chip reuse, latency, p95, p99, bottleneck, feasibility."""
    captions = ("Launch reduction", "On-chip reuse", "Latency", "p95", "p99", "Bottleneck", "Feasible")
    if cost is None:
        return tuple(MetricValue(caption) for caption in captions)
    now = cost.totals
    base = baseline.totals if baseline is not None else None
    label = f"vs {baseline.label}" if baseline is not None else ""

    def delta(value: float, against: float | None, kind: str, higher_is_better: bool) -> tuple[str, str, str]:
        if against is None:
            return "", "", ""
        text = look.fmt_delta(value, against, kind)
        if text in ("±0", look.NO_NUMBER):
            return text, label, ""
        return text, label, "good" if (value > against) == higher_is_better else "bad"

    reduction = now.launch_overhead_reduction
    reuse = now.onchip_reuse_ratio
    return (
        MetricValue(
            captions[0],
            look.fmt_percent(reduction),
            *delta(reduction, base.launch_overhead_reduction if base else None, "percent", True),
            why=lambda: why.launch_reduction(now, cost.baseline),
        ),
        MetricValue(
            captions[1],
            look.fmt_ratio(reuse),
            *delta(reuse, base.onchip_reuse_ratio if base else None, "ratio", True),
            why=lambda: why.onchip_reuse(now),
        ),
        MetricValue(
            captions[2],
            look.fmt_seconds(now.latency_s),
            *delta(now.latency_s, base.latency_s if base else None, "seconds", False),
            why=lambda: why.latency(cost),
        ),
        _percentile(serving, baseline, label, "p95", 0.95, serving_is_behind, now.feasible),
        _percentile(serving, baseline, label, "p99", 0.99, serving_is_behind, now.feasible),
        MetricValue(
            captions[5],
            now.bottleneck or look.NO_NUMBER,
            f"gain {look.fmt_percent(now.bottleneck_gain)}" if now.bottleneck_gain > 0 else "",
            "per 10 %" if now.bottleneck_gain > 0 else "",
            "warn",
            why=lambda: why.bottleneck(cost),
        ),
        _feasible(cost),
    )


def _percentile(
    serving: ServingResult | None,
    baseline: Baseline | None,
    label: str,
    name: str,
    share: float,
    behind: bool,
    fits: bool,
) -> MetricValue:
    if serving is None:
        return MetricValue(name, aside="" if fits else "does not fit", state="bad")
    if serving.unstable:
        return MetricValue(
            name, "unstable", f"ρ {serving.utilisation:.2f}", "queue grows", "bad", behind=behind
        )
    if name in serving.too_few:
        return MetricValue(name, look.NO_NUMBER, "", "too few requests", behind=behind)
    ns = serving.p95_ns if name == "p95" else serving.p99_ns
    aside = state = against = ""
    base = baseline.serving if baseline is not None else None
    if base is not None and base.unstable:
        aside, against, state = "stable", label, "good"
    elif base is not None:
        base_ns = base.p95_ns if name == "p95" else base.p99_ns
        aside, against = look.fmt_delta(ns * 1e-9, base_ns * 1e-9, "seconds"), label
        state = "" if aside == "±0" else "good" if ns < base_ns else "bad"
    if serving.utilisation > 1.0:  # a recorded trace ends, so there is a number: but of a queue that grew
        against = " ".join(part for part in (aside, against) if part) or "queue grows"
        aside, state = f"overloaded: ρ {serving.utilisation:.1f}", "warn"
    return MetricValue(
        name,
        look.fmt_ns(ns),
        aside,
        against,
        state,
        lambda: why.percentile(serving, name, share, ns),
        behind,
    )


def _feasible(cost: CostResult) -> MetricValue:
    whole = len(cost.groups)
    lacking: list[int] = []
    spilling: list[int] = []
    if not cost.totals.feasible:  # the totals say so at once where there is none
        lacking = [index for index, group in enumerate(cost.groups) if group.infeasible is not None]
    if cost.totals.spill_bytes:
        spilling = [index for index, group in enumerate(cost.groups) if group.registers.spilled_bytes]
    aside = against = state = ""
    if lacking:
        aside, against, state = "do not fit", _some(lacking), "bad"
        aside = "does not fit" if len(lacking) == 1 else f"{len(lacking):,} do not fit"
    elif spilling:
        aside, against, state = (
            f"{len(spilling):,} spill{'s' * (len(spilling) == 1)}",
            _some(spilling),
            "warn",
        )
    value = f"{whole - len(lacking):,} / {whole:,}"
    return MetricValue("Feasible", value, aside, against, state, lambda: why.feasibility(cost))


def _some(groups: list[int]) -> str:
    names = ", ".join(group_name(index) for index in groups[:2])
    return f"{names} …" if len(groups) > 2 else names


def file_precision(graph: OperatorGraph) -> str:
    """Short name of the float type that most tensors of the file have; ``integers`` where none is a float."""
    counts = Counter([tensor.dtype for tensor in graph.tensors])
    floats = {dtype: count for dtype, count in counts.items() if is_float(dtype)}
    if not floats:
        return "integers"
    most = max(floats, key=floats.__getitem__)
    return SHORT.get(most, most)


class Metric(QWidget):
    """One metric, painted: caption and value left, delta and baseline right; copy by context menu."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = MetricValue("")
        self._columns: tuple[int, int] | None = None
        self.setFixedHeight(HEIGHT - 2)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def show_value(self, value: MetricValue) -> None:
        """Draw another value."""
        if value == self.shown:
            self.shown = value  # its reason may speak of a newer result
            return
        self.shown, self._columns = value, None
        self.setAccessibleName(value.caption)
        self.setAccessibleDescription(f"{value.value} {value.aside} {value.against}".strip())
        self.updateGeometry()
        self.update()

    def _widths(self) -> tuple[int, int]:
        """Pixels of the left and the right column; measured once a value."""
        if self._columns is not None:
            return self._columns
        big, small = (QFontMetrics(look.font(size, strong=True)) for size in (look.FIGURE, look.SMALL))
        plain, tiny = QFontMetrics(look.font(look.SMALL)), QFontMetrics(look.font(look.TINY))
        left = max(plain.horizontalAdvance(self.shown.caption), big.horizontalAdvance(self.shown.value))
        right = max(small.horizontalAdvance(self.shown.aside), tiny.horizontalAdvance(self.shown.against))
        self._columns = left, right
        return left, right

    def sizeHint(self) -> QSize:
        """Both columns with room between them."""
        left, right = self._widths()
        return QSize(left + right + 10 * GRID, HEIGHT - 2)

    def minimumSizeHint(self) -> QSize:
        """The value and its delta are never cut."""
        left, right = self._widths()
        return QSize(left + right + 7 * GRID, HEIGHT - 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A hairline at the left, then the four texts."""
        colours, value = look.palette(), self.shown
        painter = QPainter(self)
        painter.setPen(colours.line)
        painter.drawLine(0, 12, 0, self.height() - 12)
        left, right = 12, self.width() - 10
        flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom
        ends = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom
        painter.setFont(look.font(look.SMALL))
        painter.setPen(colours.muted)
        painter.drawText(QRect(left, 8, right - left, 16), flags, value.caption)
        painter.setFont(look.font(look.FIGURE, strong=True))
        painter.setPen(colours.muted if value.behind else colours.text)
        painter.drawText(QRect(left, 24, right - left, 24), flags, value.value)
        painter.setFont(look.font(look.SMALL, strong=True))
        painter.setPen(getattr(colours, value.state) if value.state and not value.behind else colours.muted)
        painter.drawText(QRect(left, 14, right - left, 16), ends, value.aside)
        painter.setFont(look.font(look.TINY))
        painter.setPen(colours.muted)
        painter.drawText(QRect(left, 30, right - left, 17), ends, value.against)
        painter.end()

    def event(self, event: QEvent) -> bool:
        """The reason is made when the pointer asks for it."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            if self.shown.why is not None:
                QToolTip.showText(event.globalPos(), self.shown.why(), self)
            return True
        return super().event(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Copy the number."""
        menu = QMenu(self)
        text = f"{self.shown.caption} {self.shown.value}"
        copy = QAction(f"Copy “{text}”", menu)
        copy.triggered.connect(lambda: QGuiApplication.clipboard().setText(text))
        menu.addAction(copy)
        menu.exec(event.globalPos())
        menu.deleteLater()


class Choice(QToolButton):
    """A quiet button whose menu chooses one of several names."""

    chosen = Signal(str)

    def __init__(self, what: str, tip: str) -> None:
        super().__init__()
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.setAutoRaise(True)
        self.setAccessibleName(what)
        self.setToolTip(tip)
        self.setText(what)
        self.setProperty("choice", True)
        self.setMenu(QMenu(self))

    def offer(self, names: Sequence[str], extra: Sequence[tuple[str, Callable[[], object]]] = ()) -> None:
        """Fill the menu with names and, below a line, other ways to choose."""
        menu = self.menu()
        menu.clear()
        for name in names:
            action = menu.addAction(name)
            action.triggered.connect(lambda _=False, chosen=name: self.chosen.emit(chosen))
        if extra:
            menu.addSeparator()
            for text, call in extra:
                menu.addAction(text).triggered.connect(lambda _=False, wanted=call: wanted())


class Header(QFrame):
    """The strip itself."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.setObjectName("header")
        self.setFixedHeight(HEIGHT)
        self.name = QLabel("Tilewright")
        self.name.setFont(look.font(16, strong=True))
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.machine = Choice("machine", "The accelerator that the plan runs on")
        self.workload = Choice("workload", "The requests that p95 and p99 are of")
        self.precision = Choice("as the file says", "Element type that all floats are computed in")
        self.binding = ElidedLabel()
        self.metrics = [Metric() for _ in range(7)]
        self._file_precision = ""
        self._lay_out()
        document.graph_changed.connect(self._graph_changed)
        for signal in (document.graph_changed, document.machine_changed, document.baseline_changed):
            signal.connect(self.refresh)
        document.plan_changed.connect(self._name)
        document.cost_changed.connect(self.refresh)
        document.serving_changed.connect(self.refresh)
        self.refresh()

    def _lay_out(self) -> None:
        second = QHBoxLayout()
        second.setSpacing(0)
        second.setContentsMargins(0, 0, 0, 0)
        for widget in (self.machine, self.precision, self.workload):
            second.addWidget(widget)
        second.addWidget(self.binding, 1)
        left = QVBoxLayout()
        left.setContentsMargins(4 * GRID, GRID, 2 * GRID, GRID)
        left.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        left.setSpacing(0)
        left.addStretch(1)
        left.addWidget(self.name)
        left.addLayout(second)
        left.addStretch(1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 2 * GRID, 0)
        row.setSpacing(0)
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)
        self._left = QWidget()
        self._left.setLayout(left)
        self._left.setMinimumWidth(LEFT)
        row.addWidget(self._left, 1)
        for metric in self.metrics:
            row.addWidget(metric)

    def _graph_changed(self) -> None:
        graph = self.document.graph
        self._file_precision = "" if graph is None else file_precision(graph)

    def refresh(self, *_: object) -> None:
        """Show the document's newest results."""
        document = self.document
        self.setVisible(document.graph is not None)
        for metric, value in zip(
            self.metrics,
            metrics(
                document.cost,
                document.serving,
                document.baseline,
                serving_is_behind=document.serving_is_behind,
            ),
            strict=True,
        ):
            metric.show_value(value)
        self._name()
        self._make_room()

    def _name(self) -> None:
        """What is open, and how it is grouped now."""
        document = self.document
        graph, plan = document.graph, document.shown_plan
        if graph is None or plan is None:
            return
        self.name.setText(graph.name)
        self.name.setToolTip(graph.path)
        self.machine.setText(f"{document.accelerator.name if document.accelerator else 'choose a machine'} ▾")
        self.workload.setText(f"{document.workload.name if document.workload else 'no workload'} ▾")
        self.precision.setText(f"{document.precision or self._file_precision} ▾")
        bound = " · ".join(f"{name} {value:,}" for name, value in graph.bindings)
        count = f"{len(graph.operators):,} operators in {len(plan.groups):,} groups"
        self.binding.setText(" · ".join(part for part in (bound, count) if part))
        self.binding.setToolTip(self.binding.text())

    def minimumSizeHint(self) -> QSize:
        """Never what makes the window wide."""
        return QSize(480, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window p99 gives way first, then bottleneck and feasibility: panels show them too."""
        super().resizeEvent(event)
        self._make_room()

    def _make_room(self) -> None:
        order = (4, 5, 6, 2)
        room = self.width() - self._left.minimumWidth()
        needed = [metric.minimumSizeHint().width() for metric in self.metrics]
        hidden: set[int] = set()
        for index in order:
            if sum(width for i, width in enumerate(needed) if i not in hidden) > room:
                hidden.add(index)
        for index, metric in enumerate(self.metrics):
            metric.setVisible(index not in hidden)
