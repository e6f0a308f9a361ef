"""Whether a window can be opened here, and what is missing where it cannot. Imports no Qt.

Qt aborts the process when its platform plugin cannot start, so the plugin and the display are tried by hand
first, in milliseconds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from model.errors import TilewrightError

PACKAGES = (
    "Debian, Ubuntu: sudo apt-get install libegl1 libgl1 libxkbcommon-x11-0 libdbus-1-3 libxcb-cursor0 "
    "libxcb-icccm4 libxcb-keysyms1 libxcb-image0 libxcb-render-util0 libxcb-shape0 libxcb-xinerama0",
    "Fedora: sudo dnf install mesa-libEGL mesa-libGL libxkbcommon-x11 dbus-libs xcb-util-cursor xcb-util-wm "
    "xcb-util-keysyms xcb-util-image xcb-util-renderutil",
    "Arch: sudo pacman -S libglvnd libxkbcommon-x11 dbus xcb-util-cursor xcb-util-wm xcb-util-keysyms "
    "xcb-util-image xcb-util-renderutil",
)
WINDOWLESS = ("offscreen", "minimal", "vnc")


def import_fault(error: ImportError) -> TilewrightError:
    """What an import of Qt that failed means to a user."""
    text = str(error)
    if ".so" in text:
        library = text.split(":")[0].strip()
        return TilewrightError(
            f"Qt needs the system library {library}, which is not installed", lever="; ".join(PACKAGES)
        )
    return TilewrightError(
        f"Qt cannot be loaded ({text})", lever="Install it with: python -m pip install PySide6-Essentials"
    )


def why_no_window() -> str:
    """Why no window can be opened; empty where one can."""
    asked = os.environ.get("QT_QPA_PLATFORM", "").split(":")[0].split(";")[0]
    if asked in WINDOWLESS:
        return f"QT_QPA_PLATFORM is {asked}"
    if sys.platform != "linux":
        return ""
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        return "No display"
    if asked.startswith("wayland") or not os.environ.get("DISPLAY"):
        return ""
    missing = _missing_library()
    if missing:
        return f"Qt's window needs the system library {missing}, which is not installed"
    if not os.environ.get("WAYLAND_DISPLAY") and not _answers():
        return f"The display {os.environ['DISPLAY']} does not answer"
    return ""


def _missing_library() -> str:
    """The first library that Qt's X11 plugin lacks; empty where it loads."""
    found = importlib.util.find_spec("PySide6")
    if found is None or not found.submodule_search_locations:
        return ""
    plugin = (
        Path(next(iter(found.submodule_search_locations))) / "Qt" / "plugins" / "platforms" / "libqxcb.so"
    )
    if not plugin.is_file():
        return ""  # Qt comes from elsewhere (a distribution): its packages know what they need
    try:
        ctypes.CDLL(str(plugin))
    except OSError as error:
        return str(error).split(":")[0]
    return ""


def _answers() -> bool:
    """Whether an X server takes a connection."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return True  # then Qt must say
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    xcb.xcb_connection_has_error.argtypes = (ctypes.c_void_p,)
    xcb.xcb_disconnect.argtypes = (ctypes.c_void_p,)
    connection = xcb.xcb_connect(None, None)
    broken = bool(xcb.xcb_connection_has_error(connection))
    xcb.xcb_disconnect(connection)
    return not broken
