"""Parts of the tile editor: a figure that can be typed and scrubbed, one dim's row, the footprint bars.

Knows widgets and `Fit`. Must not know plans: what a row wants goes to `Sizes`.
"""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QPointF, QRectF, QRegularExpression, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QRegularExpressionValidator,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from . import look
from .tile_sizes import Fit, stepped

SCRUB_PIXELS = 10


class Sizes(Protocol):
    """What a row may ask of the editor."""

    @property
    def previewing(self) -> bool: ...

    def set_size(self, dim: str, size: int | None, *, preview: bool = False) -> None: ...

    def drop(self, dim: str) -> None: ...

    def cancel(self) -> None: ...

    def note(self, sentence: str) -> None: ...

    def leave(self) -> None: ...


class Number(QLineEdit):
    """The figure of a stepper: type any integer, or press and drag sideways to pass the good sizes."""

    scrubbed = Signal(int)
    """Emitted while dragging, with the rungs away from where the drag began."""
    dropped = Signal()
    """Emitted when a drag ends."""
    cancelled = Signal()
    """Emitted when Escape ends a drag."""
    entered = Signal(int)
    """Emitted when a number was typed."""
    clamped = Signal(str)
    """Emitted after `entered` with what was typed, where it is no size: 0, or beyond the extent."""
    taken = Signal()
    """Emitted when Enter was pressed: the hand is done here."""
    nudged = Signal(int)
    """Emitted by the arrow keys and the wheel, with the rungs to go."""

    def __init__(self) -> None:
        super().__init__()
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setFrame(False)
        self.setProperty("bare", True)
        self.setFont(look.font(13, strong=True))
        self.setCursor(Qt.CursorShape.SizeHorCursor)
        self.setToolTip("Drag sideways, use the wheel or the arrow keys, or type any number and press Enter")
        self._pressed: QPointF | None = None
        self._scrubbing = False
        self._shown = self._extent = 1
        # Any digits: a validator with the extent as its bound would swallow the last digit of a larger number.
        self.setValidator(QRegularExpressionValidator(QRegularExpression("[0-9]+"), self))
        self.returnPressed.connect(self._enter)
        self.returnPressed.connect(self.taken)

    def show_number(self, value: int, extent: int) -> None:
        """Show `value` unless the user is typing."""
        self._shown, self._extent = value, extent
        if not (self.hasFocus() and self.isModified()):
            self.setText(str(value))

    def _enter(self) -> None:
        """Take what was typed; a number that is no size becomes the nearest one, and that is told."""
        self.setModified(False)
        typed = self.text()
        size = max(1, min(int(typed), self._extent))
        self.setText(str(size))
        if size != self._shown:
            self._shown = size
            self.entered.emit(size)
        if size != int(typed):
            self.clamped.emit(typed.lstrip("0") or "0")

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Leaving the field takes what was typed, where it is a legal number."""
        super().focusOutEvent(event)
        if self.isModified() and self.hasAcceptableInput():
            self._enter()
        self.setModified(False)
        self.setText(str(self._shown))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A press may become a scrub or a click into the text."""
        if event.button() is Qt.MouseButton.LeftButton:
            self._pressed = event.position()
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Beyond a few pixels sideways the press is a scrub."""
        if self._pressed is None:
            super().mouseMoveEvent(event)
            return
        away = event.position().x() - self._pressed.x()
        if not self._scrubbing and abs(away) < 4:
            return
        self._scrubbing = True
        self.deselect()
        self.scrubbed.emit(round(away / SCRUB_PIXELS))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """The end of a scrub is one edit."""
        self._pressed = None
        if self._scrubbing:
            self._scrubbing = False
            self.dropped.emit()
            return
        super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows step; Escape takes a scrub or what was typed back."""
        if event.key() == Qt.Key.Key_Escape:
            if self._scrubbing:
                self._scrubbing, self._pressed = False, None
                self.cancelled.emit()
            self.setModified(False)
            self.setText(str(self._shown))
            return
        if event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.nudged.emit(1 if event.key() == Qt.Key.Key_Up else -1)
            return
        super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel steps only where the field has the focus, so that scrolling a panel changes nothing."""
        if self.hasFocus() and event.angleDelta().y():
            self.nudged.emit(1 if event.angleDelta().y() > 0 else -1)
            event.accept()
        else:
            event.ignore()


class DimRow:
    """One dim: name, extent, stepper, how it fits, whether it was chosen or set."""

    def __init__(self, editor: Sizes, grid: QGridLayout, row: int) -> None:
        self.editor = editor
        self.dim, self.fit = "", Fit(1, 1, 1)
        self._from = 1
        self.name = QLabel()
        self.name.setFont(look.font(look.TITLE, strong=True, mono=True))
        self.extent = QLabel()
        self.extent.setProperty("muted", True)
        self.number = Number()
        self.hint = QLabel()
        self.hint.setProperty("tiny", True)
        self.state = QToolButton()
        self.state.setAutoRaise(True)
        self.state.setProperty("tag", True)
        self.box = QFrame()
        self.box.setProperty("stepper", True)
        self.box.setFixedSize(96, 26)
        inside = QHBoxLayout(self.box)
        inside.setContentsMargins(2, 1, 2, 1)
        inside.setSpacing(0)
        less, more = QToolButton(), QToolButton()
        for button, text, by in ((less, "−", -1), (more, "+", 1)):
            button.setText(text)
            button.setAutoRaise(True)
            button.setFixedSize(22, 22)
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.setAutoRepeat(True)
            button.clicked.connect(lambda _=False, rungs=by: self.step(rungs))
        inside.addWidget(less)
        inside.addWidget(self.number, 1)
        inside.addWidget(more)
        line = 2 * row
        grid.addWidget(self.name, line, 0)
        grid.addWidget(self.extent, line, 1)
        grid.addWidget(self.box, line, 2)
        grid.addWidget(self.state, line, 3, Qt.AlignmentFlag.AlignRight)
        grid.addWidget(self.hint, line + 1, 1, 1, 3, Qt.AlignmentFlag.AlignRight)
        self.widgets = (self.name, self.extent, self.box, self.state, self.hint)
        self.number.scrubbed.connect(self._scrub)
        self.number.dropped.connect(self._drop)
        self.number.cancelled.connect(editor.cancel)
        self.number.entered.connect(self.put)
        self.number.clamped.connect(self._clamped)
        self.number.taken.connect(editor.leave)
        self.number.inputRejected.connect(
            lambda: editor.note(f"{self.dim}: a size is a whole number, type digits.")
        )
        self.number.nudged.connect(self.step)
        self.state.clicked.connect(lambda: editor.set_size(self.dim, None))

    def show(self, dim: str, fit: Fit, was_set: bool) -> None:
        """Show one dim of the mapping in use."""
        self.dim = dim
        if not self.editor.previewing:
            self._from = fit.size
        self.fit = fit
        self.name.setText(dim)
        self.extent.setText(f"of {fit.extent:,}")
        self.number.show_number(fit.size, fit.extent)
        self.number.setAccessibleName(f"Tile of {dim}")
        self.hint.setText(fit.words)
        self.hint.setToolTip(fit.tip)
        self.hint.setProperty("state", "" if fit.aligned else "warn")
        self.hint.style().polish(self.hint)
        self.state.setText("set ×" if was_set else "chosen")
        self.state.setEnabled(was_set)
        self.state.setToolTip("You set it. Click: let the tool choose" if was_set else "The tool chose it")
        for widget in self.widgets:
            widget.setVisible(True)

    def hide(self) -> None:
        """No such dim in this group."""
        for widget in self.widgets:
            widget.setVisible(False)

    def step(self, rungs: int) -> None:
        """Some rungs along the ladder: one edit, merged with the last one of this dim."""
        self.put(stepped(self.fit.size, self.fit.extent, self.fit.unit, rungs))

    def put(self, size: int) -> None:
        """Set this size."""
        self.editor.set_size(self.dim, max(1, min(size, self.fit.extent)))

    def _clamped(self, typed: str) -> None:
        size = f"{self.fit.extent:,}, the whole dim" if int(typed) else "1"
        self.editor.note(f"{self.dim} has {self.fit.extent:,}: {int(typed):,} was taken as {size}.")

    def restore(self) -> None:
        """Show the size in use again: what was typed was refused."""
        self.number.show_number(self.fit.size, self.fit.extent)

    def _scrub(self, rungs: int) -> None:
        size = stepped(self._from, self.fit.extent, self.fit.unit, rungs)
        self.number.setText(str(size))
        self.editor.set_size(self.dim, size, preview=True)

    def _drop(self) -> None:
        self.editor.drop(self.dim)


class Footprint(QWidget):
    """How full a level is at the schedule's peak."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, int]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_rows(self, rows: list[tuple[str, int, int]]) -> None:
        """(level, bytes resident, capacity) of each level that has a capacity."""
        self.rows = rows
        self.setFixedHeight(26 * len(rows))
        self.setAccessibleDescription(
            ", ".join(f"{name} {look.fmt_bytes(live)} of {look.fmt_bytes(room)}" for name, live, room in rows)
        )
        self.update()

    def sizeHint(self) -> QSize:
        """A line a level."""
        return QSize(200, 26 * len(self.rows))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Name, reading, bar."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for line, (name, live, room) in enumerate(self.rows):
            top = line * 26
            over = live > room
            spills = over and name == "registers"
            state = colours.warn if spills else colours.bad if over else colours.good
            painter.setFont(look.font(look.SMALL))
            painter.setPen(colours.muted)
            row = QRectF(0, top, self.width(), 15)
            painter.drawText(row, Qt.AlignmentFlag.AlignLeft, name)
            painter.setPen(state if over else colours.muted)
            lack = " · ⚠ spills" if spills else " · ✕ does not fit" if over else ""
            reading = f"{look.fmt_bytes(live)} of {look.fmt_bytes(room)}{lack}"
            painter.drawText(row, Qt.AlignmentFlag.AlignRight, reading)
            bar = QRectF(0, top + 17, self.width(), 5)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.sunken)
            painter.drawRoundedRect(bar, 2, 2)
            bar.setWidth(max(2.0, bar.width() * min(1.0, live / room if room else 0.0)))
            painter.setBrush(state)
            painter.drawRoundedRect(bar, 2, 2)
        painter.end()
