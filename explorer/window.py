"""The window: menus from the one list of actions, header, start page or docks, status bar.

Knows which widget does what. Must not know how anything is computed: every handler is one or two calls on the
document, the editor, the canvas or the docks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QSettings, QTimer, Slot
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QGuiApplication
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFileDialog,
    QMainWindow,
    QMenu,
    QMessageBox,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from model.errors import TilewrightError
from model.graph.bindings import bindings_text
from model.packaged import folder, headline

from . import actions, export, look
from .actions import ACTIONS, Owner
from .bind_dialog import BindDialog
from .bound import remember, remembered
from .canvas.folding import CLOSED_ABOVE
from .canvas.view import GraphCanvas
from .chooser import Chooser, Entry
from .dialogs import KeySheet, about_text
from .docks import Docks, on_screen, screens
from .document import Document
from .editor import Editor
from .header import FILE_PRECISION, Header
from .names import group_label
from .nested import NestedView
from .panels.demand import DemandProfile
from .panels.explanation import Explanation
from .panels.groups import GroupsTable
from .panels.heatmap import Heatmap
from .panels.history import History
from .panels.latency import Latency
from .panels.queue import Queue
from .panels.registers import RegisterGauges
from .runner import Lane
from .search import Found, index
from .shared import Shared
from .startpage import StartPage, file_words
from .statusline import StatusLine
from .tiles import TileEditor

MOST_RECENT = 10
CLOSED = "blocks/closed"  # setting: small models open with their blocks closed as well
FOLDER, PLAN_FOLDER = "folder", "plan_folder"  # settings: where files, and plans, were last
MODEL_FILES = "Models and plans (*.onnx *.pt2 *.mlir *.hlo *.txt *.dot *.json);;All files (*)"


def packaged(kind: str) -> tuple[str, ...]:
    """Names of the machines ("hardware") or workloads ("workloads") that ship with the program."""
    return tuple(sorted(path.stem for path in (folder("assets") / kind).glob("*.toml")))


class Window(QMainWindow):
    """The one top-level window."""

    def __init__(self, document: Document, settings: QSettings, *, log_file: str = "") -> None:
        super().__init__()
        self.document = document
        self.settings = settings
        self.log_file = log_file
        self.ask_before_leaving = False  # the composition root turns it on where a person sits
        self.editor = Editor(document)
        self._found: tuple[Found, ...] = ()
        self._choosing: Chooser | None = None
        self._as_last_time: dict[str, int] = {}  # what was remembered for the file that is read
        self._bound: dict[str, int] | None = None  # what was given in the dialog for the file that is read
        self.setWindowTitle("Tilewright")
        self.setAcceptDrops(True)
        self.header = Header(document)
        self.canvas = GraphCanvas(document)
        self.tiles = TileEditor(document)
        self.shared = Shared(document)
        self.panels = (
            self.tiles,
            History(document),
            Heatmap(document),
            RegisterGauges(document),
            Latency(document),
            DemandProfile(document, self.shared),
            Queue(document, self.shared),
            GroupsTable(document),
            Explanation(document),
        )
        self.docks = Docks(self.canvas, self.panels)
        for panel in self.panels:  # a tab that comes to the front
            self.docks.docks[panel.objectName()].visibilityChanged.connect(panel.catch_up)
        self.start = StartPage()
        self.pages = QStackedWidget()
        self.pages.addWidget(self.start)
        self.pages.addWidget(self.docks)
        middle = QWidget()
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.pages, 1)
        self.setCentralWidget(middle)
        self.status = StatusLine(document)
        self.setStatusBar(self.status)
        owners = {
            Owner.WINDOW: self,
            Owner.EDITOR: self.editor,
            Owner.CANVAS: self.canvas,
            Owner.BLOCKS: self.canvas.blocks,
        }
        self.actions_by_id = actions.build(owners, self, self.canvas)
        self._make_menus()
        self._connect()
        self._restore()
        self._refresh_actions()

    # -- building ----------------------------------------------------------------------------------
    def _make_menus(self) -> None:
        bar = self.menuBar()
        menus: dict[str, QMenu] = {}
        for entry in ACTIONS:
            menu = menus.get(entry.menu)
            if menu is None:
                menu = menus[entry.menu] = bar.addMenu(entry.menu)
                menu.setToolTipsVisible(True)
                menu.aboutToShow.connect(self._refresh_actions)
            if entry.rule:
                menu.addSeparator()
            menu.addAction(self.actions_by_id[entry.id])
        self.recent_menu = QMenu("Recent", self)
        menus["File"].insertMenu(self.actions_by_id["plan.save"], self.recent_menu)
        self.recent_menu.aboutToShow.connect(self._fill_recent)
        panels = QMenu("Panels", self)
        for dock in self.docks.docks.values():
            panels.addAction(dock.toggleViewAction())
        menus["View"].insertMenu(self.actions_by_id["view.reset"], panels)

    def _connect(self) -> None:
        document = self.document
        document.graph_changed.connect(self._graph_changed)
        document.said.connect(self._said)
        for signal in (
            document.graph_changed,
            document.plan_changed,
            document.selection_changed,
            document.offer_changed,
            document.ready_changed,
            document.undo_stack.indexChanged,
            document.cost_changed,
        ):
            signal.connect(self._refresh_soon)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(0)
        self._soon.timeout.connect(self._refresh_actions)
        self.canvas.nested_wanted.connect(self._look_inside)
        self.canvas.tile_requested.connect(lambda *_: self.show_tiles())
        self.tiles.left.connect(self.canvas.setFocus)
        self.start.wanted.connect(self.open)
        self.start.browse.connect(self.open_dialog)
        self.start.closing.connect(self._close_blocks)
        self.start.back.connect(lambda: self.pages.setCurrentWidget(self.docks))
        self.status.cancel.clicked.connect(self.cancel_background)
        self.header.machine.chosen.connect(document.choose_hardware)
        self.header.machine.offer(packaged("hardware"), [("From a file…", self._machine_dialog)])
        self.header.workload.chosen.connect(document.choose_workload)
        self.header.workload.offer(packaged("workloads"), [("From a file…", self._workload_dialog)])
        self.header.precision.chosen.connect(self._precision_chosen)
        self.header.precision.offer((FILE_PRECISION, "fp32", "bf16", "fp16", "int8"))
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._desktop_changed)

    def _refresh_soon(self, *_: object) -> None:
        self._soon.start()

    def _refresh_actions(self) -> None:
        actions.refresh(self.actions_by_id, self.document)

    @property
    def is_settling(self) -> bool:
        """Whether something shown waits for a timer before it asks the worker."""
        due = any(panel.is_due for panel in self.panels)
        due = due or self.shared.is_due
        return due or self.tiles.map.is_waiting or self.canvas.stage.is_settling

    # -- layout and theme --------------------------------------------------------------------------
    def _restore(self) -> None:
        self.start.show_recent(self.recent_files())
        self.start.close_blocks.setChecked(str(self.settings.value(CLOSED, "false")) == "true")
        self.resize(1400, 880)
        geometry = self.settings.value("window/geometry")
        if isinstance(geometry, QByteArray):
            self.restoreGeometry(geometry)
        places = screens()
        if not self.isMaximized() and not self.isFullScreen():
            self.setGeometry(on_screen(self.geometry(), places))
        state = self.settings.value("window/docks")
        if state is not None:
            self.docks.restore_layout(state)

    @Slot(bool)
    def _close_blocks(self, always: bool) -> None:
        """Whether small models open with their blocks closed as well."""
        self.settings.setValue(CLOSED, "true" if always else "false")
        self.canvas.stage.closed_above = 0 if always else CLOSED_ABOVE

    def reset_layout(self) -> None:
        """All panels back in their places."""
        self.settings.remove("window/docks")
        self.docks.reset()
        self.document.said.emit("Panels are back in their places.", "note")

    def theme_system(self) -> None:
        """As the desktop says."""
        self._use_theme("system")

    def theme_light(self) -> None:
        """Light."""
        self._use_theme("light")

    def theme_dark(self) -> None:
        """Dark."""
        self._use_theme("dark")

    def switch_theme(self) -> None:
        """The other one."""
        self._use_theme("light" if look.palette().dark else "dark")

    def _use_theme(self, theme: str) -> None:
        application = QApplication.instance()
        if isinstance(application, QApplication):
            self.settings.setValue("theme", theme)
            look.set_theme(application, theme)

    @Slot()
    def _desktop_changed(self, *_: object) -> None:
        if self.settings.value("theme", "system") == "system":
            QTimer.singleShot(0, self.theme_system)

    # -- opening -----------------------------------------------------------------------------------
    def open(self, source: str) -> None:
        """Open a model, a plan or a sample."""
        if not source.endswith(".json") and not self._may_leave():
            return
        self.start.show_error("")
        self._bound, self._as_last_time = None, {}
        kept = remembered(self.settings, source)
        if kept is None:
            self.document.open(source)
        else:
            self._as_last_time = kept.bindings
            self.document.open(source, kept.bindings, kept.digest)

    def open_dialog(self) -> None:
        """Ask for a file."""
        name = self._ask_file("Open", MODEL_FILES)
        if name:
            self._keep_folder(name)
            self.open(name)

    def show_start(self) -> None:
        """The start page; the open model stays open."""
        graph = self.document.graph
        self.start.show_open(graph.name if graph is not None else "")
        self.start.show_recent(self.recent_files())
        self.pages.setCurrentWidget(self.start)

    def bind_dialog(self) -> None:
        """Ask for the numbers of symbolic dims and for missing shapes, and read the model again."""
        graph = self.document.graph
        if graph is None:
            return
        dialog = BindDialog(self, graph)
        dialog.accepted.connect(lambda: self._rebind(dialog.bindings()))
        dialog.defaults_wanted.connect(lambda: self._rebind({}))
        self._open_dialog(dialog)

    def show_nested(self) -> None:
        """Show what the selected control flow holds."""
        graph = self.document.graph
        if graph is not None:
            for operator in [i for i in self.document.selection if graph.operators[i].runs][:1]:
                self._look_inside(operator)

    def _look_inside(self, operator: int) -> None:
        if self.document.graph is not None:
            self._open_dialog(NestedView(self, self.document.graph, operator))

    def _rebind(self, bindings: dict[str, int]) -> None:
        """Read the open model with these numbers; they are remembered once it could be read."""
        self._bound = bindings
        self.document.rebind(bindings)

    def load_plan(self) -> None:
        """Ask for a plan of the open model."""
        name = self._ask_file("Load plan", "Plans (*.json)", PLAN_FOLDER)
        if name:
            self._keep_folder(name, PLAN_FOLDER)
            self.document.open(name)

    def choose_plan(self) -> None:
        """Offer the plans that come with samples; one of another model is refused as any file is."""
        entries = []
        for path in sorted((folder("assets") / "plans").glob("*.json")):
            about = headline(path.with_suffix(".txt"))
            use = lambda chosen=str(path): self.document.open(chosen)  # noqa: E731
            entries.append(Entry(path.stem, about, f"{path.stem} {about}".lower(), use))
        self._choose("Packaged plan", "Name, model or machine", entries)

    def _machine_dialog(self) -> None:
        self._toml_dialog("Machine", self.document.choose_hardware)

    def _workload_dialog(self) -> None:
        self._toml_dialog("Workload", self.document.choose_workload)

    def _toml_dialog(self, title: str, use: Callable[[str], None]) -> None:
        name = self._ask_file(title, f"{title} (*.toml)")
        if name:
            self._keep_folder(name)
            use(name)

    def _precision_chosen(self, name: str) -> None:
        self.document.set_precision("" if name == FILE_PRECISION else name)

    def _graph_changed(self) -> None:
        graph = self.document.graph
        self._found = ()
        self.pages.setCurrentWidget(self.start if graph is None else self.docks)
        self.setWindowTitle("Tilewright" if graph is None else f"{graph.name} — Tilewright")
        if graph is None:
            return
        if graph.path:
            self._add_recent(graph.path)
            if self._bound is not None:
                remember(self.settings, graph, self._bound)
                self._bound = None
        count = len(graph.operators)
        words = f"{graph.name}: {count:,} operator{'s' if count != 1 else ''}."
        if self._as_last_time and self._as_last_time.items() <= dict(graph.bindings).items():
            numbers = ", ".join(f"{k}={v}" for k, v in bindings_text(self._as_last_time).items())
            words = f"{words} Bound as last time: {numbers}. Ctrl+B changes that."
        self._as_last_time = {}
        if graph.warnings:
            first, others = graph.warnings[0], len(graph.warnings) - 1
            lever = "Bind them with Ctrl+B." if first.where == "symbolic dims" else first.lever
            said = " ".join(part for part in (f"{first.where}: {first.what}.", lever) if part)
            more = f" {others:,} more: `tilewright inspect` lists them." if others else ""
            self.document.said.emit(f"{words} {said}{more}", "warning")
        else:
            self.document.said.emit(words, "note")
        self.canvas.setFocus()
        engine = self.document.engine
        self.document.ask(Lane.INDEX, "Indexing operators", lambda: engine.find_index(graph), self._indexed)

    def _indexed(self, found: tuple[Found, ...]) -> None:
        self._found = found

    def _said(self, sentence: str, level: str) -> None:
        if level == "error" and self.pages.currentWidget() is self.start:
            self.start.show_error(sentence)

    # -- recent files ------------------------------------------------------------------------------
    def recent_files(self) -> list[str]:
        """Paths, the newest first."""
        kept = self.settings.value("recent", [])
        return [str(path) for path in kept] if isinstance(kept, list) else [str(kept)] if kept else []

    def _add_recent(self, path: str) -> None:
        whole = str(Path(path).resolve())
        paths = [whole, *(other for other in self.recent_files() if other != whole)][:MOST_RECENT]
        self.settings.setValue("recent", paths)

    def _fill_recent(self) -> None:
        self.recent_menu.clear()
        paths = [path for path in self.recent_files() if Path(path).is_file()]
        for path in paths:
            name, line = file_words(Path(path))
            entry = self.recent_menu.addAction(f"{name} (sample)" if line == "sample" else name)
            entry.setToolTip(path)
            entry.triggered.connect(lambda _=False, chosen=path: self.open(chosen))
        if not paths:
            self.recent_menu.addAction("Nothing yet").setEnabled(False)

    def _last_folder(self, kind: str = FOLDER) -> str:
        """Where a file of this kind was last, else any file."""
        return str(self.settings.value(kind) or self.settings.value(FOLDER, ""))

    def _ask_file(self, title: str, kinds: str, kind: str = FOLDER) -> str:
        """The path of a file to read; empty where none was chosen."""
        before = self.focusWidget()
        name, _ = QFileDialog.getOpenFileName(self, title, self._last_folder(kind), kinds)
        self._take_keys_back(before)
        return name

    def _keep_folder(self, name: str, kind: str = FOLDER) -> None:
        self.settings.setValue(kind, str(Path(name).parent))

    # -- saving and exporting ----------------------------------------------------------------------
    def save_plan(self) -> bool:
        """Ask where to, and save the committed plan; True when it was saved."""
        graph, plan = self.document.graph, self.document.plan
        if graph is None or plan is None:
            return False
        path = self._ask_path("Save plan", f"{graph.name}.plan", ".json", "Plan (*.json)", PLAN_FOLDER)
        if path is None:
            return False

        def write() -> None:
            from model.plan.file import save_plan

            save_plan(path, graph, plan)

        saved = self._write(write, path)
        if saved:
            self.document.undo_stack.setClean()
        return saved

    def export_picture(self) -> None:
        """The canvas as PNG."""
        self._export_canvas(".png", "Picture (*.png)")

    def export_svg(self) -> None:
        """The canvas as SVG."""
        self._export_canvas(".svg", "Drawing (*.svg)")

    def _export_canvas(self, suffix: str, kind: str) -> None:
        path = self._ask_path("Export canvas", self._graph_name(), suffix, kind)
        if path is not None:
            self._write(lambda: export.write_picture(self.canvas, path), path)

    def export_csv(self) -> None:
        """The groups, all digits."""
        result = self.document.cost
        if result is not None:
            path = self._ask_path("Export groups", f"{self._graph_name()}.groups", ".csv", "Table (*.csv)")
            if path is not None:
                self._write(lambda: export.write_text(path, export.groups_csv(result)), path)

    def export_json(self) -> None:
        """The whole result."""
        result = self.document.cost
        if result is not None:
            serving = None if self.document.serving_is_behind else self.document.serving
            path = self._ask_path("Export result", f"{self._graph_name()}.result", ".json", "Result (*.json)")
            if path is not None:
                self._write(lambda: export.write_text(path, export.result_json(result, serving)), path)

    def _graph_name(self) -> str:
        return self.document.graph.name if self.document.graph is not None else "tilewright"

    def _ask_path(
        self, title: str, name: str, suffix: str, kind: str, folder_kind: str = FOLDER
    ) -> Path | None:
        """Where to write; begins at home where the last folder, a shared one of models for instance, is closed."""
        last = Path(self._last_folder(folder_kind))
        proposal = str((last if os.access(last, os.W_OK) else Path.home()) / f"{name}{suffix}")
        before = self.focusWidget()
        chosen, _ = QFileDialog.getSaveFileName(self, title, proposal, kind)
        self._take_keys_back(before)
        if not chosen:
            return None
        self._keep_folder(chosen, folder_kind)
        return export.with_suffix(chosen, suffix)

    def _write(self, write: Callable[[], None], path: Path) -> bool:
        try:
            write()
        except TilewrightError as error:
            self.document.said.emit(error.sentence(), "error")
            return False
        self.document.said.emit(f"Written: {path}", "note")
        return True

    # -- plan and selection ------------------------------------------------------------------------
    def undo(self) -> None:
        """One edit back."""
        self.document.undo()

    def redo(self) -> None:
        """One edit forward."""
        self.document.redo()

    def take_offer(self) -> None:
        """Do what the last refusal offers."""
        self.document.take_offer()

    def pin_baseline(self) -> None:
        """Deltas against this plan."""
        self.document.pin_baseline()
        self.document.said.emit("Pinned: deltas are against this plan now.", "note")

    def unpin_baseline(self) -> None:
        """Deltas against the unfused plan."""
        self.document.unpin_baseline()
        self.document.said.emit("Deltas are against the unfused plan.", "note")

    def show_tiles(self) -> None:
        """The tile editor gets the keyboard."""
        self.docks.focus_on("tiles")
        self.tiles.focus_first()

    def move_dialog(self) -> None:
        """Choose the group that the selected operators join."""
        graph, plan = self.document.graph, self.document.plan
        if graph is None or plan is None:
            return
        entries = []
        for place, group in enumerate(plan.groups):
            label = group_label(graph, place, group.operators)
            names = " ".join(graph.operators[o].name for o in group.operators[:50])
            entries.append(
                Entry(
                    label,
                    f"{len(group.operators):,} operators",
                    f"{label} {names}".lower(),
                    lambda chosen=place: self.editor.move_to(chosen),
                )
            )
        self._choose("Move to group", "A group's number, a type or an operator's name", entries)

    # -- finding -----------------------------------------------------------------------------------
    def find(self) -> None:
        """Operators by name, op type, shape, dtype or attribute; those pointed at come into view."""
        graph = self.document.graph
        if graph is None:
            return
        if not self._found:
            self._found = index(graph)
        entries = [
            Entry(found.name, found.remark, found.words, lambda chosen=found.operator: self._uncover(chosen))
            for found in self._found
        ]
        places = {id(entry): found.operator for entry, found in zip(entries, self._found, strict=True)}
        self._choose(
            "Find",
            "Name, op type, shape (512x1024), dtype, attribute (axis=1) …",
            entries,
            lambda entry: self._go(places[id(entry)]),
        )

    def _go(self, operator: int) -> None:
        self.document.select((operator,))
        self.canvas.centre((operator,))

    def _uncover(self, operator: int) -> None:
        """Like `_go`, and what hides the operator opens: pointing alone opens nothing."""
        self.document.select((operator,))
        self.canvas.blocks.uncover((operator,))

    def command_palette(self) -> None:
        """Every action by name."""
        entries = [
            Entry(
                action.text.rstrip("…"),
                action.menu,
                f"{action.text} {action.menu} {action.tip}".lower(),
                self.actions_by_id[action.id].trigger,
                action.reason(self.document),
                actions.shortcut_text(action),
            )
            for action in ACTIONS
        ]
        self._choose("Commands", "What do you want to do?", entries)

    def _choose(self, title: str, hint: str, entries: list[Entry], point: Any = None) -> None:
        self._choosing = Chooser(self, title, hint, entries, point=point)
        self._open_dialog(self._choosing)

    def _open_dialog(self, dialog: QDialog) -> None:
        """Show a dialog over the window; where the hand was before gets its keys back."""
        before = self.focusWidget()
        dialog.finished.connect(lambda *_: self._take_keys_back(before))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _take_keys_back(self, before: QWidget | None) -> None:
        """After a dialog: not every desktop activates the window below by itself, and the canvas would be deaf."""
        self.activateWindow()
        if self.pages.currentWidget() is self.start:
            return
        last = before if before is not None and isValid(before) and before.isVisible() else None
        now = self.focusWidget()
        if now is None or now is last or not now.isVisible():  # else what was chosen has moved the focus
            (last or self.canvas).setFocus()

    # -- view --------------------------------------------------------------------------------------
    def zoom_to_fit(self) -> None:
        """The whole graph."""
        self.canvas.zoom_to_fit()

    def zoom_in(self) -> None:
        """Larger."""
        self.canvas.zoom_in()

    def zoom_out(self) -> None:
        """Smaller."""
        self.canvas.zoom_out()

    def reveal_selection(self) -> None:
        """The selected operators."""
        self.canvas.reveal(self.document.selection)

    def next_dock(self) -> None:
        """The keyboard moves on."""
        self.docks.step_focus(1)

    def previous_dock(self) -> None:
        """The keyboard moves back."""
        self.docks.step_focus(-1)

    # -- help and the end --------------------------------------------------------------------------
    def cancel_background(self) -> None:
        """Forget what waits and the answer of what runs."""
        self.document.runner.cancel()
        self.canvas.stage.cancelled()
        self.document.said.emit("Cancelled. Any edit computes again.", "note")

    def key_sheet(self) -> None:
        """Every key on one sheet."""
        self._open_dialog(KeySheet(self))

    def about(self) -> None:
        """Version, licences, log."""
        box = QMessageBox(QMessageBox.Icon.NoIcon, "About", about_text(self.log_file), parent=self)
        self._open_dialog(box)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Files may be dropped anywhere."""
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Open the first local file; say so where more were dropped."""
        paths = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
        if not paths:
            return
        event.acceptProposedAction()
        if len(paths) > 1:
            self.document.said.emit(f"{len(paths)} files were dropped; the first one is opened.", "note")
        self.open(paths[0])

    def _may_leave(self) -> bool:
        """Ask about edits that are in no file; True where the plan may be left."""
        if not self.ask_before_leaving or self.document.undo_stack.isClean():
            return True
        buttons = QMessageBox.StandardButton
        answer = QMessageBox.question(
            self,
            "Tilewright",
            "The plan has edits that are not saved. Save it first?",
            buttons.Save | buttons.Discard | buttons.Cancel,
        )
        if answer == buttons.Save:
            return self.save_plan()
        return answer == buttons.Discard

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the layout, end the worker."""
        if not self._may_leave():
            event.ignore()
            return
        self.settings.setValue("window/geometry", self.saveGeometry())
        self.settings.setValue("window/docks", self.docks.layout_state())
        self.document.close()
        super().closeEvent(event)
