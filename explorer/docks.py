"""The inner window: canvas in the middle, panels in docks around it, their layout kept and reset.

Knows panels only as `Panel`, not what they show. A kept layout is never restored beyond the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import QByteArray, QRect, QSize, Qt, QTimer
from PySide6.QtGui import QFontMetrics, QGuiApplication, QPainter, QPaintEvent, QPen, QShowEvent
from PySide6.QtWidgets import QDockWidget, QFrame, QMainWindow, QSizePolicy, QTabWidget, QVBoxLayout, QWidget

from . import look, why
from .look import GRID
from .panels.panel import Panel

STATE_VERSION = 3
LEFT, RIGHT, BOTTOM = (
    Qt.DockWidgetArea.LeftDockWidgetArea,
    Qt.DockWidgetArea.RightDockWidgetArea,
    Qt.DockWidgetArea.BottomDockWidgetArea,
)
PLACES: dict[str, tuple[Qt.DockWidgetArea, int]] = {
    "tiles": (LEFT, 620),
    "history": (LEFT, 200),
    "traffic": (RIGHT, 178),
    "registers": (RIGHT, 122),
    "latency": (RIGHT, 512),
    "demand": (BOTTOM, 250),
    "queue": (BOTTOM, 250),
    "groups": (BOTTOM, 250),
    "why": (BOTTOM, 250),
}
"""Where each panel stands by default, and its share of the height there. The bottom panels are tabs."""
WIDTHS = {LEFT: 288, RIGHT: 440}
MOST_SHARES = {LEFT: 0.24, RIGHT: 0.33}
"""Of a narrow window's width: the canvas keeps the rest."""
SHORT = 720
"""Below this height three panels above each other show nothing: the registers become a tab beside the traffic."""


class DockTitle(QWidget):
    """The head of a panel's card: title left, grey line right."""

    def __init__(self, panel: Panel) -> None:
        super().__init__()
        self.panel = panel
        self.setFixedHeight(34)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        panel.line_changed.connect(self._line_changed)
        self._line_changed(panel.line)

    def _line_changed(self, line: str) -> None:
        hint = "Drag to move, double-click to float. View, Panels shows and hides."
        sentences = why.caveat_tip(self.panel.caveats)
        self.setToolTip(f"<p>{escape(line)}</p>{sentences}<p>{hint}</p>")  # rich text wraps long sentences
        self.update()

    def _tabbed(self) -> bool:
        dock = self.parent()
        if not isinstance(dock, QDockWidget):
            return False
        home = dock.parent()
        return isinstance(home, Docks) and bool(home.tabifiedDockWidgets(dock))

    def sizeHint(self) -> QSize:
        """A dock asks for it; the line may be cut."""
        return QSize(120, 34)

    def minimumSizeHint(self) -> QSize:
        """The same height at any width."""
        return QSize(60, 34)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The upper part of a card, then both texts; the line gives way."""
        colours = look.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colours.line, 1))
        painter.setBrush(colours.panel)
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, 12), look.RADIUS, look.RADIUS)
        inner = self.rect().adjusted(3 * GRID, 2, -3 * GRID, 0)
        tabbed = self._tabbed()
        if not tabbed:  # a tab says the title already
            painter.setFont(look.font(look.TITLE, strong=True))
            painter.setPen(colours.text)
            painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, self.panel.title)
            inner.setLeft(
                inner.left() + QFontMetrics(painter.font()).horizontalAdvance(self.panel.title) + 4 * GRID
            )
        painter.setFont(look.font(look.SMALL))
        metrics = QFontMetrics(painter.font())
        badge = why.caveat_badge(len(self.panel.caveats))
        taken = metrics.horizontalAdvance(badge) + 2 * GRID if badge else 0
        line = metrics.elidedText(
            self.panel.line, Qt.TextElideMode.ElideMiddle, max(0, inner.width() - taken)
        )
        if not tabbed:  # both stand at the right end
            inner.setLeft(max(inner.left(), inner.right() - taken - metrics.horizontalAdvance(line)))
        painter.setPen(colours.warn)
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, badge)
        painter.setPen(colours.muted)
        painter.drawText(inner.adjusted(taken, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, line)
        painter.end()


class Docks(QMainWindow):
    """Canvas and panels. Its own `QMainWindow`, so that cards have margins to the window's edge."""

    def __init__(self, canvas: QWidget, panels: Sequence[Panel]) -> None:
        super().__init__()
        self.setWindowFlags(Qt.WindowType.Widget)
        self.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        self.setDockOptions(
            QMainWindow.DockOption.AllowNestedDocks
            | QMainWindow.DockOption.AllowTabbedDocks
            | QMainWindow.DockOption.AnimatedDocks
        )
        self.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        for corner, area in (
            (Qt.Corner.TopLeftCorner, LEFT),
            (Qt.Corner.BottomLeftCorner, LEFT),
            (Qt.Corner.TopRightCorner, RIGHT),
            (Qt.Corner.BottomRightCorner, RIGHT),
        ):
            self.setCorner(corner, area)
        self.canvas = canvas
        frame = QFrame()
        frame.setProperty("card", True)
        frame.setMinimumSize(240, 200)
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(1, 1, 1, 1)
        inside.addWidget(canvas)
        self.setCentralWidget(frame)
        self.docks: dict[str, QDockWidget] = {}
        self._shared = False
        for panel in panels:
            dock = QDockWidget(panel.title, self)
            dock.setObjectName(f"dock.{panel.objectName()}")
            dock.setTitleBarWidget(DockTitle(panel))
            card = QFrame()
            card.setProperty("cardbody", True)
            body = QVBoxLayout(card)
            body.setContentsMargins(1, 0, 1, 1)
            body.addWidget(panel)
            dock.setWidget(card)
            self.docks[panel.objectName()] = dock
        self.reset()

    def reset(self) -> None:
        """Every panel back in its place and shown."""
        for dock in self.docks.values():
            self.removeDockWidget(dock)
        first: dict[Qt.DockWidgetArea, QDockWidget] = {}
        for name, (area, _) in PLACES.items():
            dock = self.docks.get(name)
            if dock is None:
                continue
            self.addDockWidget(area, dock)
            dock.setFloating(False)
            if area == BOTTOM and area in first:
                self.tabifyDockWidget(first[area], dock)
            first.setdefault(area, dock)
            dock.show()
        if BOTTOM in first:
            first[BOTTOM].raise_()
        self._share()

    def showEvent(self, event: QShowEvent) -> None:
        """Qt only takes sizes of docks once there is a window to share."""
        super().showEvent(event)
        if not self._shared:
            self._shared = True
            QTimer.singleShot(0, self, self._share)

    def _share(self) -> None:
        """Default widths and heights."""
        traffic, registers = self.docks.get("traffic"), self.docks.get("registers")
        # Before it is shown it has no height of its own.
        if traffic is not None and registers is not None and self._shared and self.height() < SHORT:
            self.tabifyDockWidget(traffic, registers)
            traffic.raise_()
            both = PLACES["traffic"][1] + PLACES["registers"][1]
        else:
            both = 0
        for area in (LEFT, RIGHT, BOTTOM):
            there = [(self.docks[n], h) for n, (a, h) in PLACES.items() if a == area and n in self.docks]
            if not there:
                continue
            docks, heights = [dock for dock, _ in there], [height for _, height in there]
            if area == RIGHT and both:  # one place for two tabs
                heights = [both if dock in (traffic, registers) else height for dock, height in there]
            if area == BOTTOM:
                self.resizeDocks(docks[:1], heights[:1], Qt.Orientation.Vertical)
            else:
                self.resizeDocks(docks, heights, Qt.Orientation.Vertical)
                width = min(WIDTHS[area], int(self.width() * MOST_SHARES[area]))
                self.resizeDocks(docks[:1], [width], Qt.Orientation.Horizontal)

    # -- keeping -----------------------------------------------------------------------------------
    def layout_state(self) -> QByteArray:
        """The layout, to be kept."""
        return self.saveState(STATE_VERSION)

    def restore_layout(self, state: object) -> bool:
        """Back to a kept layout; False, with the default layout, where it is not usable."""
        if not isinstance(state, QByteArray) or not self.restoreState(state, STATE_VERSION):
            self.reset()
            return False
        self._shared = True
        for dock in self.docks.values():
            if dock.isFloating():
                dock.setGeometry(on_screen(dock.geometry(), screens()))
        return True

    # -- keyboard ----------------------------------------------------------------------------------
    def step_focus(self, step: int) -> str:
        """Move the focus to the next place (canvas, then panels that are shown); returns its name."""
        order: list[tuple[str, QWidget]] = [("canvas", self.canvas)]
        order += [(name, dock) for name, dock in self.docks.items() if dock.isVisible()]
        focus = self.window().focusWidget()
        here = (
            -1
            if focus is None
            else next(
                (i for i, (_, place) in enumerate(order) if place is focus or place.isAncestorOf(focus)), -1
            )
        )
        name, _ = order[(here + step) % len(order)] if here >= 0 else order[0]
        self.focus_on(name)
        return name

    def focus_on(self, name: str) -> None:
        """Show a panel, bring it to the front and give it the keyboard."""
        dock = self.docks.get(name)
        if dock is None:
            self.canvas.setFocus(Qt.FocusReason.ShortcutFocusReason)
            return
        dock.show()
        dock.raise_()
        panel = dock.widget().findChild(Panel)
        target = first_focusable(panel) if panel is not None else None
        (target or dock).setFocus(Qt.FocusReason.ShortcutFocusReason)


def first_focusable(widget: QWidget) -> QWidget | None:
    """The first visible child that takes the focus by Tab, in the order of the focus chain."""
    child = widget.nextInFocusChain()
    while child is not None and child is not widget:
        wanted = child.focusPolicy() & Qt.FocusPolicy.TabFocus
        if widget.isAncestorOf(child) and wanted and child.isVisible() and child.isEnabled():
            return child
        child = child.nextInFocusChain()
    return None


def on_screen(wanted: QRect, places: Sequence[QRect]) -> QRect:
    """`wanted`, shrunk and moved so that it lies whole on the screen that holds most of it."""
    if not places:
        return wanted

    def shared(screen: QRect) -> int:
        both = screen.intersected(wanted)
        return max(0, both.width()) * max(0, both.height())

    best = max(places, key=shared)
    width, height = min(wanted.width(), best.width()), min(wanted.height(), best.height())
    left = min(max(wanted.left(), best.left()), best.right() + 1 - width)
    top = min(max(wanted.top(), best.top()), best.bottom() + 1 - height)
    return QRect(left, top, width, height)


def screens() -> list[QRect]:
    """What of each screen a window may cover."""
    return [screen.availableGeometry() for screen in QGuiApplication.screens()]
