"""Small dialogs: the key sheet, about.

Knows the list of actions.
"""

from __future__ import annotations

import sys
from html import escape

import PySide6
from PySide6.QtCore import Qt, qVersion
from PySide6.QtWidgets import (
    QDialog,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

import model

from .actions import ACTIONS, shortcuts
from .look import GRID

GESTURES = (
    ("Drag a cut chip or a hull's rim", "Move the boundary along the flow"),
    ("Double-click a chip", "Fuse or cut"),
    ("Double-click a block or its name", "Open or close it"),
    ("Double-click an If, Loop or Scan", "Look inside"),
    ("Drag an operator onto a hull", "Move it to that group"),
    ("Shift and drag", "Box select"),
    ("Hold C and drag", "Knife: cut every edge crossed"),
    ("Drag the canvas, or the middle button", "Pan"),
    ("Wheel", "Zoom at the pointer"),
    ("Esc", "Leave a gesture without a trace"),
    ("Enter", "Take the fix that is offered; else open the selected block (Shift: close it)"),
)


def key_rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """Per menu its (keys, text), in the order of the list of actions; then the gestures of the mouse."""
    menus: dict[str, list[tuple[str, str]]] = {}
    for action in ACTIONS:
        keys = " or ".join(key.toString(key.SequenceFormat.NativeText) for key in shortcuts(action))
        if keys:
            menus.setdefault(action.menu, []).append((keys, action.text.rstrip("…")))
    return [*menus.items(), ("Mouse on the canvas", list(GESTURES))]


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><td><b>{escape(keys)}</b>&nbsp;&nbsp;</td><td>{escape(text)}</td></tr>" for keys, text in rows
    )
    return f"<p><b>{escape(title)}</b></p><table cellpadding='2'>{lines}</table>"


class KeySheet(QDialog):
    """Every key on one sheet."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keys")
        *keys, gestures = [_section(title, rows) for title, rows in key_rows()]
        columns: list[list[str]] = [[], []]
        for section in keys:
            shorter = min(columns, key=lambda parts: sum(part.count("<tr>") + 2 for part in parts))
            shorter.append(section)
        sides = "".join(f"<td style='padding-right:40px'>{''.join(parts)}</td>" for parts in columns)
        sheet = QLabel(f"<table><tr>{sides}</tr></table>{gestures}")
        sheet.setTextFormat(Qt.TextFormat.RichText)
        sheet.setMargin(4 * GRID)
        sheet.setAlignment(Qt.AlignmentFlag.AlignTop)
        sheet.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        scroll = QScrollArea()
        scroll.setWidget(sheet)
        scroll.setWidgetResizable(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scroll)
        wanted, screen = sheet.sizeHint(), parent.screen().availableGeometry()
        bar = scroll.verticalScrollBar().sizeHint().width() + 2 * scroll.frameWidth()
        self.resize(min(wanted.width() + bar, screen.width()), min(wanted.height() + 4, 780, screen.height()))


def about_text(log_file: str) -> str:
    """Version, what it runs on, licences, where the log is."""
    return (
        f"<p><b>Tilewright {escape(model.__version__)}</b><br>"
        "Explore operator fusion and tile shapes on an accelerator.</p>"
        f"<p>Python {sys.version.split()[0]} · PySide6 {PySide6.__version__} · Qt {qVersion()}</p>"
        "<p>MIT licence. Qt and PySide6 are used under the LGPL.</p>"
        f"<p>Log: {escape(log_file or 'standard error')}</p>"
    )
