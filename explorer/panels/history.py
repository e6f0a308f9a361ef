"""History: the undo list, each edit with what it did to p95 (or to the latency where nothing is served).

Knows the undo stack and results as they pass by. A click goes to the plan after that edit.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from model.cost.result import CostResult
from model.plan.plan import Plan
from model.serving.result import ServingResult

from .. import look
from ..document import Document
from ..plan_edit import PlanEdit
from .panel import Panel

Index = QModelIndex | QPersistentModelIndex
ROW = int(Qt.ItemDataRole.UserRole)


@dataclass(slots=True)
class Seen:
    """What was computed of a plan while it was the committed one."""

    plan: Plan
    latency_s: float
    p95_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the list. ``delta`` is empty until both plans were computed."""

    number: int
    text: str
    delta: str
    state: str
    undone: bool


class _Steps(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self.steps: tuple[Step, ...] = ()

    def replace(self, steps: tuple[Step, ...]) -> None:
        self.beginResetModel()
        self.steps = steps
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.steps)

    def data(self, index: Index, role: int = 0) -> object:
        if not index.isValid() or index.row() >= len(self.steps):
            return None
        step = self.steps[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            undone = " (undone)" if step.undone else ""
            return f"{step.number}  {step.text}{undone}" + (f"\n{step.delta}" if step.delta else "")
        return step if role == ROW else None


class _Line(QStyledItemDelegate):
    """A numbered disc, what was done, and what it changed."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(160, 38)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        colours, step = look.palette(), index.data(ROW)
        rect = QRectF(option.rect).adjusted(0, 1, 0, -1)  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:  # type: ignore[attr-defined]
            painter.setPen(colours.selected_line)
            painter.setBrush(colours.selected)
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        disc = QRectF(rect.left() + 8, rect.top() + 8, 18, 18)
        fill = colours.faint if step.undone else getattr(colours, step.state) if step.state else colours.muted
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawEllipse(disc)
        painter.setPen(look.text_on(fill))
        painter.setFont(look.font(look.TINY, strong=True))
        painter.drawText(disc, Qt.AlignmentFlag.AlignCenter, str(step.number))
        painter.setFont(look.font(look.BODY, strong=not step.undone))
        painter.setPen(colours.muted if step.undone else colours.text)
        below = "undone" if step.undone else step.delta
        top = rect.top() + (2 if below else 9)
        line = QRectF(rect.left() + 34, top, rect.width() - 40, 17)
        text = QFontMetrics(painter.font()).elidedText(
            step.text, Qt.TextElideMode.ElideRight, int(line.width())
        )
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, text)
        painter.setFont(look.font(look.SMALL, strong=bool(step.state)))
        painter.setPen(getattr(colours, step.state) if step.state and not step.undone else colours.muted)
        painter.drawText(line.translated(0, 16), Qt.AlignmentFlag.AlignVCenter, below)
        painter.restore()


class History(Panel):
    """The history panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "history", "History", "edits since the model was opened")
        self.steps = _Steps()
        self.view = QListView()
        self.view.setModel(self.steps)
        self.view.setItemDelegate(_Line(self.view))
        self.view.setAccessibleName("Edits, oldest first")
        self.view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.view.clicked.connect(self._go)
        self.view.activated.connect(self._go)
        self.body.addWidget(self.view, 1)
        self._seen: list[Seen] = []
        document.graph_changed.connect(self._forget)
        document.machine_changed.connect(self._forget)
        document.undo_stack.indexChanged.connect(self.invalidate)
        document.cost_changed.connect(self._cost)
        document.serving_changed.connect(self._serving)

    def _forget(self) -> None:
        """Numbers of another machine or load are not comparable."""
        self._seen.clear()
        self.invalidate()

    def _cost(self, result: CostResult | None) -> None:
        if result is not None and result.request.plan is self.document.plan:
            seen = self._of(result.request.plan)
            if seen is None:
                self._seen.append(Seen(result.request.plan, result.totals.latency_s))
            self.invalidate()

    def _serving(self, result: ServingResult | None) -> None:
        served = self.document.served
        if result is None or served is None or result.unstable:
            return
        seen = self._of(served.cost.request.plan)
        if seen is not None:
            seen.p95_ns = result.p95_ns
            self.invalidate()

    def _of(self, plan: Plan) -> Seen | None:
        return next((seen for seen in reversed(self._seen) if seen.plan is plan), None)

    def redraw(self) -> None:
        """One line per undo entry."""
        stack = self.document.undo_stack
        if self.document.graph is None or stack.count() == 0:
            self.say(
                "No edit yet. Drag a cut chip or a hull's rim, double-click a chip, or select operators and "
                "press F to fuse, U to split. Every edit appears here and can be taken back."
            )
            self.set_line("edits since the model was opened")
            return
        steps = [Step(0, "As opened", "", "", False)]
        for position in range(stack.count()):
            command = stack.command(position)
            assert isinstance(command, PlanEdit)
            delta, state = self._delta(command)
            steps.append(Step(position + 1, command.text(), delta, state, position >= stack.index()))
        self.steps.replace(tuple(steps))
        here = self.steps.index(stack.index(), 0)
        self.view.setCurrentIndex(here)
        self.view.scrollTo(here)
        count = stack.count()
        self.set_line(f"{count:,} edit{'s' if count != 1 else ''} · click one to go there")
        self.show_body()

    def _delta(self, command: PlanEdit) -> tuple[str, str]:
        before, after = self._of(command.before), self._of(command.after)
        if before is None or after is None:
            return "", ""
        if before.p95_ns is not None and after.p95_ns is not None:
            what, now, base = "p95", after.p95_ns * 1e-9, before.p95_ns * 1e-9
        else:
            what, now, base = "latency", after.latency_s, before.latency_s
        difference = look.fmt_delta(now, base, "seconds")
        if difference == "±0":
            return f"{what} unchanged", ""
        return f"{what} {difference}", "good" if now < base else "bad"

    def _go(self, index: QModelIndex) -> None:
        self.document.preview(None)
        self.document.undo_stack.setIndex(index.row())
