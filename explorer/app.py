"""The composition root: builds the application, the document and the window, and wires them.

Knows command-line arguments, settings, the log and the display. Where no window can be opened, or a picture
is asked for, the same window is drawn offscreen, completely computed, into a file.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import platformdirs

from model.errors import FileError, TilewrightError
from model.graph.bindings import parse_bindings

from .display import PACKAGES, import_fault, why_no_window

if TYPE_CHECKING:
    from PySide6.QtCore import QSettings
    from PySide6.QtWidgets import QApplication

    from .document import Document
    from .window import Window

DEFAULT_MACHINE = "edge-npu"
DEFAULT_WORKLOAD = "azure-code"
DEFAULT_PICTURE = "tilewright.png"
SAMPLE = "transformer_block"
PICTURE_SIZE = (1680, 1020)
PICTURE_LIMIT_S = 900.0

log = logging.getLogger("tilewright")


def open_window(arguments: argparse.Namespace) -> int:
    """Open the window and run it; without a display, write a picture of it.

    Parameters
    ----------
    arguments : ``file``, ``hardware``, ``workload``, ``plan`` (a path), ``bind``, ``picture`` and ``theme``, all texts
        or None; ``scale``, a factor, and ``size``, width and height in points, or None.

    Returns
    -------
    The exit code: 0; 1 where the picture is of an unfinished window.

    Raises
    ------
    TilewrightError : Qt cannot be loaded, or (for a picture) the file is unusable.
    """
    bindings = parse_bindings(arguments.bind or "")
    hindrance = why_no_window()
    if arguments.scale is not None:
        os.environ["QT_SCALE_FACTOR"] = str(arguments.scale)  # Qt reads it once, when the application begins
    if arguments.picture is not None or hindrance:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        if hindrance.startswith("Qt's window"):
            print(f"{hindrance}.\n" + "\n".join(f"  {line}" for line in PACKAGES), file=sys.stderr)
        return _picture(arguments, bindings, hindrance if arguments.picture is None else "")
    return _interactive(arguments, bindings)


def make_application() -> QApplication:
    """The one `QApplication`, with names, style and font."""
    try:
        from PySide6.QtWidgets import QApplication
    except ImportError as error:
        raise import_fault(error) from error
    from . import look

    existing = QApplication.instance()
    application = existing if isinstance(existing, QApplication) else QApplication(["tilewright"])
    application.setApplicationName("tilewright")
    application.setOrganizationName("tilewright")
    application.setApplicationDisplayName("Tilewright")
    look.prepare(application)
    return application


def _begin(window: Window, arguments: argparse.Namespace, bindings: dict[str, int]) -> None:
    """Ask for machine, workload and model, in this order, and for the kernels."""
    document = window.document
    document.start_kernels()
    document.choose_hardware(arguments.hardware or DEFAULT_MACHINE)
    document.choose_workload(arguments.workload or DEFAULT_WORKLOAD)
    if arguments.file:
        if arguments.plan:
            _open_after(document, arguments.plan)
        document.open(arguments.file, bindings)


def _open_after(document: Document, plan: str) -> None:
    """Open a plan file when the model is there and what it starts with: a proposal that is late would replace it."""

    def opened(_: object) -> None:
        if document.cost is None:
            return  # told as well that there is nothing yet
        document.cost_changed.disconnect(opened)
        document.open(plan)

    document.cost_changed.connect(opened)


def _interactive(arguments: argparse.Namespace, bindings: dict[str, int]) -> int:
    application = make_application()
    from PySide6.QtCore import QSettings, QTimer

    from . import look
    from .document import Document
    from .pace import Pace
    from .turns import TurnClock
    from .window import Window

    log_file = _start_log()
    settings = QSettings()
    look.set_theme(application, arguments.theme or str(settings.value("theme", "system")))
    document = Document()
    document.log_file = log_file
    window = Window(document, settings, log_file=log_file)
    window.ask_before_leaving = True
    _tell_faults(document)
    if arguments.size is not None:
        window.resize(*arguments.size)
    window.show()
    pace = Pace(document)
    clock = TurnClock()
    clock.start()
    QTimer.singleShot(0, lambda: _begin(window, arguments, bindings))
    code = application.exec()
    clock.stop()
    pace.end()
    ended = document.close()
    sys.excepthook = sys.__excepthook__
    if not ended:
        # The worker is in the middle of compiling; tearing the interpreter down under it would abort.
        logging.shutdown()
        os._exit(code)
    return code


def _start_log() -> str:
    """Warnings and worse go to a file in the user's log folder; its path, empty where there is none."""
    logging.captureWarnings(True)
    try:
        folder = Path(platformdirs.user_log_dir("tilewright", appauthor=False))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tilewright.log"
        handler: logging.Handler = RotatingFileHandler(
            path, maxBytes=1 << 20, backupCount=2, encoding="utf-8"
        )
    except OSError:
        path, handler = None, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    return str(path) if path is not None else ""


def _tell_faults(document: Document) -> None:
    """A fault in a handler is logged and said in the status bar; it never ends the window."""

    def told(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, fault, trace)
            return
        if isinstance(fault, TilewrightError):
            document.said.emit(fault.sentence(), "error")
            return
        log.error("unhandled fault\n%s", "".join(traceback.format_exception(kind, fault, trace)))
        document.said.emit(
            f"A fault of Tilewright's own: {kind.__name__}: {fault}. The plan is as it was. "
            f"Details: {document.log_file or 'on standard error'}",
            "error",
        )

    sys.excepthook = told


# ------------------------------------------------------------------------------------------- picture
def _picture(arguments: argparse.Namespace, bindings: dict[str, int], hindrance: str) -> int:
    """Draw the whole window, everything computed, into a PNG."""
    target = _png(DEFAULT_PICTURE if arguments.picture is None else arguments.picture)
    if hindrance and not arguments.file:
        arguments.file = SAMPLE  # nobody can click on the start page of a picture that was not asked for
    application = make_application()
    from . import look
    from .document import Document
    from .window import Window

    _drop_size_hints()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        settings = _settings_in(folder)
        look.set_theme(application, arguments.theme or "light")
        document = Document()
        window = Window(document, settings)
        window.canvas.stage.animated = False
        faults: list[tuple[str, str]] = []
        document.failed.connect(lambda kind, sentence: faults.append((kind, sentence)))
        window.resize(*(arguments.size or PICTURE_SIZE))
        window.show()
        try:
            _begin(window, arguments, bindings)
            finished = _wait_until_computed(application, window, faults)
            unread = [sentence for kind, sentence in faults if kind == "open"]
            if unread or (arguments.file and document.graph is None):
                raise FileError((unread or ["the model could not be read in time"])[0])
            for _, sentence in faults:
                print(f"tilewright: {sentence}", file=sys.stderr)
            drawn = window.grab()
            if not drawn.save(str(target)):
                raise FileError(
                    "the picture cannot be written", where=str(target), lever="Choose another folder."
                )
        finally:
            window.close()
            ended = document.close()
    reason = f"{hindrance}: wrote" if hindrance else "Wrote"
    print(
        f"{reason} a picture of the window to {target.resolve()} ({drawn.width()} × {drawn.height()} pixels)"
    )
    sys.stdout.flush()
    if not ended:
        os._exit(0 if finished else 1)
    return 0 if finished else 1


def _png(name: str) -> Path:
    """Where a picture goes; ``.png`` is added where there is no suffix.

    Raises
    ------
    FileError : another suffix, which says another format than the one that is written; or it cannot be written.
    """
    from model.schema import must_be_writable  # brings pydantic, which no start of the window waits for

    target = Path(name)
    if name and not target.suffix:
        target = target.with_name(target.name + ".png")
    elif name and target.suffix.lower() != ".png":
        raise FileError(
            f"a picture of the window is a PNG, not {target.suffix}",
            where=name,
            lever=f"Write {target.with_suffix('.png')}, or leave the suffix out.",
        )
    must_be_writable(target if name else name)
    return target


def _drop_size_hints() -> None:
    """Qt's offscreen plugin complains at every window about hints that no picture needs; all else is passed on."""
    from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

    def told(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
        if "propagateSizeHints" not in message:
            print(message, file=sys.stderr)

    qInstallMessageHandler(told)


def _settings_in(folder: str) -> QSettings:
    """Settings of a picture: always the default layout, and the user's own stay as they are."""
    from PySide6.QtCore import QSettings

    return QSettings(str(Path(folder) / "settings.ini"), QSettings.Format.IniFormat)


def _wait_until_computed(application: QApplication, window: Window, faults: list[tuple[str, str]]) -> bool:
    """Run the event loop until nothing is left to compute; progress goes to standard error."""
    from .document import NO_KERNELS

    document = window.document
    told = ""
    calm = 0
    began = time.monotonic()
    while time.monotonic() - began < PICTURE_LIMIT_S:
        application.processEvents()
        time.sleep(0.01)
        now = document.preparing
        step = now.partition(" of ")[0].rpartition(" ")[2]
        if now and now != told and (not step.isdigit() or int(step) % 10 in (0, 1)):
            print(f"tilewright: {now} …", file=sys.stderr)
            told = now
        waiting = not document.ready and document.preparing != NO_KERNELS
        idle = document.runner.is_idle and not waiting and not window.is_settling
        calm = calm + 1 if idle else 0
        if calm >= 40 or any(kind == "open" for kind, _ in faults):
            return True
    print(
        f"tilewright: gave up after {PICTURE_LIMIT_S:.0f} s; the picture shows what was there.",
        file=sys.stderr,
    )
    return False
