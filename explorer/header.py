"""The header strip: what is open, on what machine, and the metrics that stay visible with their deltas.

`metrics` is a pure function of results; the widgets only draw what it says. A delta never stands without the
name of its baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

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
    QMenu,
    QMessageBox,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from model.cost.result import CostResult
from model.cost.why import why as cost_why
from model.graph.bindings import bindings_text
from model.graph.dtypes import SHORT, is_float
from model.graph.graph import OperatorGraph
from model.packaged import folder, headline
from model.serving.result import ServingResult
from model.serving.why import why as serving_why

from . import look, why
from .controls import ElidedLabel
from .document import Document
from .look import GRID
from .names import group_name
from .results import Baseline

HEIGHT = 64
LEFT = 272
CAPTIONS = ("Launch reduction", "On-chip reuse", "DRAM", "Latency", "p95", "p99", "Bottleneck", "Feasible")
BRIEF = ("Bottleneck",)
GIVE_WAY = ("p99", "DRAM", "Bottleneck", "Feasible", "Latency")
"""Which metrics leave a narrow window, in this order: the panels show them too. Those of `BRIEF` first lose what stands
at their right, which their tips say too."""
FILE_PRECISION = "as the file says"
MOST_NAME = 132
"""Pixels that the name of a machine or a workload may take before its middle is left out."""


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
    """One value for each of `CAPTIONS`."""
    if cost is None:
        return tuple(MetricValue(caption) for caption in CAPTIONS)
    now = cost.totals
    base = baseline.totals if baseline is not None else None
    label = f"vs {baseline.label}" if baseline is not None else ""

    def delta(
        value: float | None, against: float | None, kind: str, higher_is_better: bool
    ) -> tuple[str, str, str]:
        if value is None or against is None:
            return "", "", ""
        text = look.fmt_delta(value, against, kind)
        if text in ("±0", look.NO_NUMBER):
            return text, label, ""
        return text, label, "good" if (value > against) == higher_is_better else "bad"

    reduction = now.launch_overhead_reduction
    reuse = now.onchip_reuse_ratio
    moved = now.dram_read_bytes + now.dram_write_bytes
    return (
        MetricValue(
            "Launch reduction",
            look.fmt_percent(reduction),
            *delta(reduction, base.launch_overhead_reduction if base else None, "percent", True),
            why=lambda: _tip(cost, "launch_overhead_reduction"),
        ),
        MetricValue(
            "On-chip reuse",
            look.fmt_ratio(reuse),
            *delta(reuse, base.onchip_reuse_ratio if base else None, "ratio", True),
            why=lambda: _tip(cost, "onchip_reuse_ratio"),
        ),
        MetricValue(
            "DRAM",
            look.fmt_bytes(moved),
            *delta(moved, base.dram_read_bytes + base.dram_write_bytes if base else None, "bytes", False),
            why=lambda: _tip(cost, "dram_bytes"),
        ),
        MetricValue(
            "Latency",
            look.fmt_seconds(now.latency_s),
            *delta(now.latency_s, base.latency_s if base else None, "seconds", False),
            why=lambda: _tip(cost, "latency_s"),
        ),
        _percentile(serving, baseline, label, "p95", serving_is_behind, now.feasible),
        _percentile(serving, baseline, label, "p99", serving_is_behind, now.feasible),
        MetricValue(
            "Bottleneck",
            now.bottleneck or look.NO_NUMBER,
            f"gain {look.fmt_percent(now.bottleneck_gain)}" if now.bottleneck_gain > 0 else "",
            "per 10 %" if now.bottleneck_gain > 0 else "",
            "warn",
            why=lambda: _tip(cost, "bottleneck"),
        ),
        _feasible(cost),
    )


def _tip(cost: CostResult, number: str) -> str:
    return why.card_html(cost_why(cost, number))


def _percentile(
    serving: ServingResult | None,
    baseline: Baseline | None,
    label: str,
    name: str,
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
    caption = f"{name} · estimate" if serving.first_estimate else name
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
        caption,
        look.fmt_ns(ns),
        aside,
        against,
        state,
        lambda: why.card_html(serving_why(serving, f"{name}_s")),
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
    return MetricValue("Feasible", value, aside, against, state, lambda: _tip(cost, "feasible"))


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


def _about(kind: str, name: str) -> str:
    """The line about a packaged machine ("hardware") or workload ("workloads")."""
    return headline(folder("assets") / kind / f"{name}.toml")


class Metric(QWidget):
    """One metric, painted: caption and value left, delta and baseline right; copy by context menu."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = MetricValue("")
        self.brief = False  # the right column is left out
        self._columns: tuple[int, int] | None = None
        self.setFixedHeight(HEIGHT - 2)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def show_value(self, value: MetricValue) -> bool:
        """Draw another value; False where it is the same."""
        if value == self.shown:
            self.shown = value  # its reason may speak of a newer result
            return False
        self.shown, self._columns = value, None
        self.setAccessibleName(value.caption)
        self.setAccessibleDescription(f"{value.value} {value.aside} {value.against}".strip())
        self.updateGeometry()
        self.update()
        return True

    def show_brief(self, brief: bool) -> None:
        """Leave out the right column, or show it again."""
        if brief != self.brief:
            self.brief, self._columns = brief, None
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
        right = 0 if self.brief else right
        self._columns = left, right
        return left, right

    def sizeHint(self) -> QSize:
        """Both columns with room between them."""
        left, right = self._widths()
        return QSize(left + right + 10 * GRID, HEIGHT - 2)

    def minimumSizeHint(self) -> QSize:
        """The value and its delta are never cut."""
        left, right = self._widths()
        return QSize(left + right + (7 if right else 6) * GRID, HEIGHT - 2)

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
        if self.brief:
            painter.end()
            return
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
    """A quiet button whose menu chooses one of several names; the one in use is ticked.

    Parameters
    ----------
    about : one line about a name, asked for when the menu opens; empty where there is none.
    """

    chosen = Signal(str)

    def __init__(self, what: str, tip: str, about: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._tip, self._about, self._current = tip, about, ""
        self._names: tuple[str, ...] = ()
        self._extra: tuple[tuple[str, Callable[[], object]], ...] = ()
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.setAutoRaise(True)
        self.setAccessibleName(what)
        self.setToolTip(tip)
        self.setText(what)
        self.setProperty("choice", True)
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        menu.aboutToShow.connect(self._fill)
        self.setMenu(menu)

    def offer(self, names: Sequence[str], extra: Sequence[tuple[str, Callable[[], object]]] = ()) -> None:
        """What the menu holds: names and, below a line, other ways to choose."""
        self._names, self._extra = tuple(names), tuple(extra)
        self._fill()

    def show_current(self, text: str, name: str) -> None:
        """Show `text` on the button and tick `name` in the menu; empty for none."""
        self._current = name
        short = self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, MOST_NAME)
        self.setText(f"{short} ▾")
        self.setToolTip(self._tip if short == text else f"{text}\n{self._tip}")

    def _fill(self) -> None:
        menu = self.menu()
        menu.clear()
        own = () if self._current in ("", *self._names) else (self._current,)  # from a file of the user's
        for name in (*self._names, *own):
            action = menu.addAction(name)
            action.setCheckable(True)
            action.setChecked(name == self._current)
            action.setEnabled(name not in own)
            if self._about is not None and name not in own:
                action.setToolTip(self._about(name))
            action.triggered.connect(lambda _=False, chosen=name: self.chosen.emit(chosen))
        if self._extra:
            menu.addSeparator()
            for text, call in self._extra:
                menu.addAction(text).triggered.connect(lambda _=False, wanted=call: wanted())


class Badge(QToolButton):
    """What is left out of the numbers: a sign and a word; the sentences in its tip and, on a click, to be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: tuple[str, ...] = ()
        self.setAutoRaise(True)
        self.setProperty("badge", True)
        self.setAccessibleName("Caveats")
        self.setVisible(False)
        self.clicked.connect(self._open)

    def show_sentences(self, sentences: tuple[str, ...]) -> None:
        """Hidden where there are none."""
        self.sentences = sentences
        self.setText(why.caveat_badge(len(sentences)))
        self.setToolTip(why.caveat_tip(sentences))
        self.setAccessibleDescription(" ".join(sentences))
        self.setVisible(bool(sentences))

    def _open(self) -> None:
        box = QMessageBox(
            QMessageBox.Icon.NoIcon, "What the numbers leave out", "\n\n".join(self.sentences), parent=self
        )
        box.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        box.finished.connect(box.deleteLater)
        box.open()


class Header(QFrame):
    """The strip itself."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.setObjectName("header")
        self.setFixedHeight(HEIGHT)
        self.name = ElidedLabel()
        self.name.setProperty("muted", False)
        self.name.setText("Tilewright")
        self.name.setFont(look.font(16, strong=True))
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.machine = Choice("machine", "The accelerator that the plan runs on", partial(_about, "hardware"))
        self.badge = Badge()
        self.workload = Choice(
            "workload", "The requests that p95 and p99 are of", partial(_about, "workloads")
        )
        self.precision = Choice(FILE_PRECISION, "Element type that all floats are computed in")
        self.binding = ElidedLabel()
        self.metrics = [Metric() for _ in CAPTIONS]
        self._file_precision = ""
        self._lay_out()
        document.graph_changed.connect(self._graph_changed)
        for signal in (document.graph_changed, document.machine_changed, document.baseline_changed):
            signal.connect(self.refresh)
        document.plan_changed.connect(self._name)
        document.cost_changed.connect(self._result_changed)
        document.serving_changed.connect(self._result_changed)
        document.busy_changed.connect(self._busy_changed)
        self.refresh()

    def _lay_out(self) -> None:
        second = self._second = QHBoxLayout()
        second.setSpacing(0)
        second.setContentsMargins(0, 0, 0, 0)
        for widget in (self.machine, self.badge, self.precision, self.workload):
            widget.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)  # never cut
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

    def _busy_changed(self, title: str) -> None:
        if not title:
            self.refresh()

    def _result_changed(self, *_: object) -> None:
        """On screen at once: the hand waits for these figures, and canvas and panels take some turns to follow."""
        told = self.badge.sentences
        changed = self._show_metrics()
        if changed or self.badge.sentences != told:
            self._make_room()
        for metric in changed:
            if metric.isVisible():
                metric.repaint()  # with all that is to be painted by now: the others as well
                break

    def refresh(self, *_: object) -> None:
        """Show the document's newest results, and what they are of."""
        self.setVisible(self.document.graph is not None)
        self._show_metrics()
        self._name()
        self._make_room()

    def _show_metrics(self) -> list[Metric]:
        """Those that show something else now."""
        document = self.document
        values = metrics(
            document.cost,
            document.serving,
            document.baseline,
            serving_is_behind=document.serving_is_behind,
        )
        cost = document.cost
        if cost is not None and cost.request.plan != document.shown_plan and document.runner.is_idle:
            # Cancelled or failed: no answer for the shown plan is on its way.
            values = tuple(
                replace(value, aside="not computed", against="plan before", state="", behind=True)
                for value in values
            )
        self.badge.show_sentences(() if cost is None else why.caveats(cost))
        return [
            metric for metric, value in zip(self.metrics, values, strict=True) if metric.show_value(value)
        ]

    def _name(self) -> None:
        """What is open, and how it is grouped now."""
        document = self.document
        graph, plan = document.graph, document.shown_plan
        if graph is None or plan is None:
            return
        self.name.setText(graph.name)
        self.name.setToolTip(f"{graph.name}\n{graph.path}")
        machine = document.accelerator.name if document.accelerator else ""
        workload = document.workload.name if document.workload else ""
        self.machine.show_current(machine or "choose a machine", machine)
        self.workload.show_current(workload or "no workload", workload)
        self.precision.show_current(
            document.precision or self._file_precision, document.precision or FILE_PRECISION
        )
        bound = " · ".join(f"{name} {text}" for name, text in bindings_text(dict(graph.bindings)).items())
        count = f"{len(graph.operators):,} operators in {len(plan.groups):,} groups"
        self.binding.setText(" · ".join(part for part in (bound, count) if part))
        self.binding.setToolTip(self.binding.text())

    def minimumSizeHint(self) -> QSize:
        """Never what makes the window wide."""
        return QSize(480, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window some metrics give way: `GIVE_WAY`."""
        super().resizeEvent(event)
        self._make_room()

    def _make_room(self) -> None:
        self._left.setMinimumWidth(max(LEFT, self._second.minimumSize().width() + 6 * GRID))
        room = self.width() - self._left.minimumWidth() - 2 * GRID
        by_name = dict(zip(CAPTIONS, self.metrics, strict=True))
        hidden: set[str] = set()

        def fits() -> bool:
            shown = (metric for name, metric in by_name.items() if name not in hidden)
            return sum(metric.minimumSizeHint().width() for metric in shown) <= room

        for name in BRIEF:
            by_name[name].show_brief(False)
        for name in GIVE_WAY:
            if name in BRIEF and not fits():
                by_name[name].show_brief(True)
            if not fits():
                hidden.add(name)
        for name, metric in by_name.items():
            metric.setVisible(name not in hidden)
