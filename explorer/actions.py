"""The one list of actions: menus, command palette (Ctrl+K) and key sheet (F1) are made from it.

Knows names, keys and words. Must not know how anything is done: `handler` names a method of the object that
`owner` says (the window, the editor or the canvas), and `reason` says why an action is greyed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from .document import Document


class Owner(StrEnum):
    """Whose method `Action.handler` is."""

    WINDOW = "window"
    EDITOR = "editor"  # edits of the selection: explorer/editor.py
    CANVAS = "canvas"  # keys that only work while the canvas has the focus
    BLOCKS = "blocks"  # so do these: explorer/canvas/block_hand.py


Reason = Callable[["Document"], str]


def always(document: Document) -> str:
    """Never greyed."""
    return ""


def needs_graph(document: Document) -> str:
    """Greyed until a graph is open."""
    return "" if document.graph is not None else "No model is open. Open one or take a sample."


def needs_selection(document: Document) -> str:
    """Greyed until operators are selected and edits can be checked."""
    if reason := needs_graph(document):
        return reason
    if not document.ready:
        return "Kernels are still compiling; edits are checked with them."
    return "" if document.selection else "Nothing is selected. Click an operator, or drag a box around some."


def needs_chosen(document: Document) -> str:
    """Greyed until operators are selected."""
    return needs_graph(document) or ("" if document.selection else "Nothing is selected.")


def needs_nested(document: Document) -> str:
    """Greyed until a control-flow operator is selected whose nested graphs were read."""
    if reason := needs_chosen(document):
        return reason
    graph = document.graph
    inside = graph is not None and any(graph.operators[i].runs for i in document.selection)
    return "" if inside else "What is selected holds no nested graph: If, Loop and Scan do."


def needs_training(document: Document) -> str:
    """Greyed where the model has no backward pass, for which activations are saved."""
    if reason := needs_selection(document):
        return reason
    graph = document.graph
    trains = graph is not None and graph.forward is not None
    return "" if trains else "This model has no backward pass: nothing is saved for one."


def needs_cost(document: Document) -> str:
    """Greyed until there is a result."""
    if reason := needs_graph(document):
        return reason
    return "" if document.cost is not None else "Nothing is computed yet. Wait a moment, or choose a machine."


def needs_undo(document: Document) -> str:
    """Greyed where there is nothing to undo."""
    return "" if document.undo_stack.canUndo() else "No edit to undo."


def needs_redo(document: Document) -> str:
    """Greyed where there is nothing to redo."""
    return "" if document.undo_stack.canRedo() else "No edit to redo."


def needs_offer(document: Document) -> str:
    """Greyed where no fix is on offer."""
    return "" if document.offer is not None else "No fix is on offer: it comes with a refused edit."


def needs_symbols(document: Document) -> str:
    """Greyed where the file has no symbolic dims and lacks no shape (each one that it lacks is a warning)."""
    if reason := needs_graph(document):
        return reason
    graph = document.graph
    asks = graph is not None and (graph.symbols or graph.warnings)
    return "" if asks else "This model has no symbolic dims, and no shape is missing."


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that the user can do.

    Attributes
    ----------
    id : stable name, lower case with dots.
    shortcut : Qt's portable text; several are separated by a space; empty for none.
    menu : title of its menu; the order of menus is the order of first appearance.
    rule : whether a line goes above it in the menu.
    check : whether it is a state that is on or off.
    """

    id: str
    text: str
    shortcut: str
    menu: str
    tip: str
    handler: str
    owner: Owner = Owner.WINDOW
    reason: Reason = always
    rule: bool = False
    check: bool = False


W, E, C, B = Owner.WINDOW, Owner.EDITOR, Owner.CANVAS, Owner.BLOCKS

ACTIONS: tuple[Action, ...] = (
    # id, text, keys, menu, tip, handler
    Action("file.open", "Open…", "Ctrl+O", "File", "Open an ONNX model or a saved plan", "open_dialog"),
    Action(
        "file.samples", "Samples", "Ctrl+Shift+O", "File", "Start page: samples, recent files", "show_start"
    ),
    Action(
        "file.bind",
        "Bind dims…",
        "Ctrl+B",
        "File",
        "Give symbolic dims their numbers, and shapes to what has none",
        "bind_dialog",
        reason=needs_symbols,
    ),
    Action(
        "plan.save",
        "Save plan…",
        "Ctrl+S",
        "File",
        "Save groups and knobs as JSON",
        "save_plan",
        reason=needs_graph,
        rule=True,
    ),
    Action(
        "plan.load",
        "Load plan…",
        "Ctrl+L",
        "File",
        "Load a plan for this model: one undo entry",
        "load_plan",
        reason=needs_graph,
    ),
    Action(
        "plan.packaged",
        "Packaged plan…",
        "",
        "File",
        "Load a plan that comes with a sample: one undo entry",
        "choose_plan",
        reason=needs_graph,
    ),
    Action(
        "export.picture",
        "Export canvas as PNG…",
        "Ctrl+E",
        "File",
        "The canvas as it is seen, as PNG",
        "export_picture",
        reason=needs_graph,
        rule=True,
    ),
    Action(
        "export.svg",
        "Export canvas as SVG…",
        "",
        "File",
        "The canvas as it is seen, as SVG",
        "export_svg",
        reason=needs_graph,
    ),
    Action(
        "export.csv",
        "Export groups as CSV…",
        "",
        "File",
        "The groups table, all digits",
        "export_csv",
        reason=needs_cost,
    ),
    Action(
        "export.json",
        "Export result as JSON…",
        "",
        "File",
        "What `tilewright simulate --json` prints",
        "export_json",
        reason=needs_cost,
    ),
    Action("file.quit", "Quit", "Ctrl+Q", "File", "Close the window", "close", rule=True),
    Action("edit.undo", "Undo", "Ctrl+Z", "Edit", "Take the last edit back", "undo", reason=needs_undo),
    Action(
        "edit.redo", "Redo", "Ctrl+Shift+Z Ctrl+Y", "Edit", "Do the edit again", "redo", reason=needs_redo
    ),
    Action(
        "edit.find",
        "Find…",
        "Ctrl+F",
        "Edit",
        "By name, op type, shape, dtype or attribute",
        "find",
        reason=needs_graph,
        rule=True,
    ),
    Action("edit.palette", "Command palette", "Ctrl+K", "Edit", "Every action by name", "command_palette"),
    Action("edit.all", "Select all", "Ctrl+A", "Edit", "Select every operator", "select_all", E, needs_graph),
    Action(
        "plan.fuse", "Fuse", "F", "Plan", "Selected operators become one group", "fuse", E, needs_selection
    ),
    Action(
        "plan.split",
        "Split",
        "U",
        "Plan",
        "Selected operators leave their group",
        "split",
        E,
        needs_selection,
    ),
    Action(
        "plan.toggle",
        "Toggle cut",
        "X",
        "Plan",
        "Fuse across, or cut, the edges that leave the selection",
        "toggle",
        E,
        needs_selection,
    ),
    Action(
        "plan.grow",
        "Grow group",
        "G",
        "Plan",
        "Take the next consumer into the group",
        "grow",
        E,
        needs_selection,
    ),
    Action(
        "plan.shrink",
        "Shrink group",
        "Shift+G",
        "Plan",
        "Let the last operator leave the group",
        "shrink",
        E,
        needs_selection,
    ),
    Action(
        "plan.cut_up",
        "Move cut up",
        "[",
        "Plan",
        "The boundary below the selected operator moves up",
        "cut_up",
        E,
        needs_selection,
    ),
    Action(
        "plan.cut_down",
        "Move cut down",
        "]",
        "Plan",
        "The boundary below the selected operator moves down",
        "cut_down",
        E,
        needs_selection,
    ),
    Action(
        "plan.move",
        "Move to group…",
        "M",
        "Plan",
        "Selected operators join another group, chosen from a list",
        "move_dialog",
        reason=needs_selection,
    ),
    Action(
        "plan.fix",
        "Take offered fix",
        ".",
        "Plan",
        "Do what the refusal offers",
        "take_offer",
        W,
        needs_offer,
    ),
    Action(
        "plan.tile",
        "Tile…",
        "T",
        "Plan",
        "Go to the tile editor of the selected group",
        "show_tiles",
        reason=needs_selection,
        rule=True,
    ),
    Action(
        "plan.best",
        "Let the tool choose",
        "Shift+T",
        "Plan",
        "Forget every size, order and stage count that was set for the group",
        "automatic_tile",
        E,
        needs_selection,
    ),
    Action(
        "plan.recompute",
        "Compute again or save",
        "R",
        "Plan",
        "The backward pass of a training step computes what the selected operators make again, instead of keeping it",
        "recompute",
        E,
        needs_training,
    ),
    Action(
        "plan.pin",
        "Pin as baseline",
        "B",
        "Plan",
        "Deltas are against this plan from now on",
        "pin_baseline",
        reason=needs_cost,
        rule=True,
    ),
    Action(
        "plan.unpin",
        "Baseline: unfused",
        "Shift+B",
        "Plan",
        "Deltas are against the unfused plan",
        "unpin_baseline",
        reason=needs_cost,
    ),
    Action("view.fit", "Zoom to fit", "Ctrl+0", "View", "The whole graph", "zoom_to_fit", reason=needs_graph),
    Action("view.in", "Zoom in", "Ctrl++ Ctrl+=", "View", "Larger", "zoom_in", reason=needs_graph),
    Action("view.out", "Zoom out", "Ctrl+-", "View", "Smaller", "zoom_out", reason=needs_graph),
    Action(
        "view.selection",
        "Zoom to selection",
        "Z",
        "View",
        "Bring the selected operators into view",
        "reveal_selection",
        reason=needs_selection,
    ),
    Action(
        "block.open",
        "Open block",
        "+",
        "View",
        "The closed block that is selected shows what it holds (or Enter, or a double-click)",
        "open_block",
        B,
        needs_chosen,
        rule=True,
    ),
    Action(
        "block.close",
        "Close block",
        "-",
        "View",
        "The block around what is selected becomes one box (or Shift+Enter)",
        "close_block",
        B,
        needs_chosen,
    ),
    Action(
        "view.nested",
        "Look inside",
        "Shift+I",
        "View",
        "The nested graphs of the selected If, Loop or Scan (or a double-click on it)",
        "show_nested",
        reason=needs_nested,
    ),
    Action(
        "block.open_all",
        "Open all blocks",
        "*",
        "View",
        "See every operator",
        "open_all_blocks",
        B,
        needs_graph,
    ),
    Action(
        "block.close_all",
        "Close all blocks",
        "/",
        "View",
        "Layers and stages as one box each",
        "close_all_blocks",
        B,
        needs_graph,
    ),
    Action("view.next_dock", "Next panel", "F6", "View", "Move the focus on", "next_dock", rule=True),
    Action(
        "view.previous_dock", "Previous panel", "Shift+F6", "View", "Move the focus back", "previous_dock"
    ),
    Action("view.reset", "Reset layout", "", "View", "All panels back in their places", "reset_layout"),
    Action(
        "view.system",
        "Theme: system",
        "",
        "View",
        "Light or dark as the desktop says",
        "theme_system",
        rule=True,
    ),
    Action("view.light", "Theme: light", "", "View", "Light", "theme_light"),
    Action("view.dark", "Theme: dark", "", "View", "Dark", "theme_dark"),
    Action("view.theme", "Switch light and dark", "Ctrl+Shift+D", "View", "The other theme", "switch_theme"),
    Action(
        "go.producer",
        "To producer",
        "Up",
        "Go",
        "From an operator to what it reads",
        "walk_up",
        C,
        needs_graph,
    ),
    Action("go.consumer", "To consumer", "Down", "Go", "To what reads it", "walk_down", C, needs_graph),
    Action(
        "go.left", "To left sibling", "Left", "Go", "Same layer, to the left", "walk_left", C, needs_graph
    ),
    Action(
        "go.right",
        "To right sibling",
        "Right",
        "Go",
        "Same layer, to the right",
        "walk_right",
        C,
        needs_graph,
    ),
    Action("go.group", "Next group", "Tab", "Go", "Select the next group", "next_group", C, needs_graph),
    Action(
        "go.group_back",
        "Previous group",
        "Shift+Tab",
        "Go",
        "Select the group before",
        "previous_group",
        C,
        needs_graph,
    ),
    Action(
        "work.cancel", "Cancel", "Ctrl+.", "Help", "Stop what runs in the background", "cancel_background"
    ),
    Action("help.keys", "Keys", "F1", "Help", "Every key on one sheet", "key_sheet"),
    Action("help.about", "About Tilewright", "", "Help", "Version, licences, where the log is", "about"),
)


def shortcuts(action: Action) -> list[QKeySequence]:
    """The keys of an action, first the one that is shown."""
    return [QKeySequence.fromString(text) for text in action.shortcut.split()]


def shortcut_text(action: Action) -> str:
    """The first key as this platform writes it; empty for none."""
    keys = shortcuts(action)
    return keys[0].toString(QKeySequence.SequenceFormat.NativeText) if keys else ""


def build(owners: Mapping[Owner, Any], parent: QWidget, canvas: QWidget) -> dict[str, QAction]:
    """A `QAction` for each entry, wired to its owner's method.

    Keys of the window work everywhere in `parent`; keys of the canvas only while `canvas` has the focus.

    Raises
    ------
    AttributeError : an owner lacks a method that the list names.
    """
    built: dict[str, QAction] = {}
    for entry in ACTIONS:
        made = QAction(entry.text, parent)
        made.setObjectName(entry.id)
        made.setShortcuts(shortcuts(entry))
        made.setCheckable(entry.check)
        made.setStatusTip(entry.tip)
        made.setToolTip(entry.tip)
        made.triggered.connect(_without_arguments(getattr(owners[entry.owner], entry.handler)))
        if entry.owner in (Owner.CANVAS, Owner.BLOCKS):
            made.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            canvas.addAction(made)
        else:
            made.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            parent.addAction(made)
        built[entry.id] = made
    return built


def _without_arguments(handler: Callable[[], object]) -> Callable[..., None]:
    """`triggered` carries a bool that no handler wants."""

    def call(*_: object) -> None:
        handler()

    return call


def refresh(built: Mapping[str, QAction], document: Document) -> None:
    """Enable what can be done now; a greyed action says why in its tip."""
    for entry in ACTIONS:
        reason = entry.reason(document)
        made = built[entry.id]
        made.setEnabled(not reason)
        tip = reason or entry.tip
        made.setStatusTip(tip)
        made.setToolTip(tip)
