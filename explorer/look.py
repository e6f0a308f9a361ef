"""How the window looks and how numbers read: two palettes, fonts, the 4-pixel grid, number formats.

Knows colours and text. Must not know the document, the model or any panel. A number on screen is
formatted here and nowhere else. `set_theme` changes the palette of the application; Qt then tells every
widget (``PaletteChange``), so a custom-painted widget only asks `palette` while it paints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

GRID = 4
"""All distances are multiples of this many pixels."""
BODY, SMALL, TINY, TITLE, FIGURE = 12, 11, 10, 14, 17
"""Type sizes in pixels."""
RADIUS = 6


# ------------------------------------------------------------------------------------------ colours
@dataclass(frozen=True)
class Palette:
    """One theme. State colours are for state only and go with a sign, a word or a hatch.

    ``groups``: fill colours of fusion groups, told apart by the colour-blind (Okabe and Ito 2008, with the
    blue of the mockup for the first); used at low opacity, with `group_text` for letters on the ground.
    """

    dark: bool
    ground: QColor  # behind the docks
    panel: QColor
    canvas: QColor
    sunken: QColor  # fields, empty bars
    line: QColor  # hairlines and frames
    line_strong: QColor  # frames of controls
    text: QColor
    muted: QColor
    faint: QColor  # edges and axes, never text
    accent: QColor  # focus and the primary action
    accent_text: QColor  # text on the accent
    selected: QColor
    selected_line: QColor
    good: QColor
    warn: QColor
    bad: QColor
    tag: QColor  # the note beside the pointer
    tag_text: QColor
    tag_strong: QColor
    groups: tuple[QColor, ...]
    group_text: tuple[QColor, ...]

    def group(self, index: int) -> QColor:
        """Fill colour of fusion group `index`."""
        return self.groups[index % len(self.groups)]

    @property
    def hull_share(self) -> float:
        """Opacity of a group's colour inside its hull."""
        return 0.15 if self.dark else 0.09

    def hull(self, index: int) -> QColor:
        """The inside of the hull of fusion group `index`, opaque."""
        return mix(self.canvas, self.group(index), self.hull_share)

    def group_label(self, index: int) -> QColor:
        """The same hue, readable as text on panel and canvas."""
        return self.group_text[index % len(self.group_text)]


def _palette(dark: bool, groups: str, group_text: str, **colours: str) -> Palette:
    return Palette(
        dark=dark,
        groups=tuple(QColor(f"#{code}") for code in groups.split()),
        group_text=tuple(QColor(f"#{code}") for code in group_text.split()),
        **{name: QColor(f"#{code}") for name, code in colours.items()},
    )


LIGHT = _palette(
    False,
    "4C78A8 E69F00 009E73 CC79A7 56B4E9 D55E00 8C6BB1 8A7B2F",
    "3D648F 8A5F00 00734F A0487A 1F6F9E B04D00 6E4E97 6B5E1C",
    ground="F5F6F8",
    panel="FFFFFF",
    canvas="FBFCFD",
    sunken="EEF0F4",
    line="DDE1E7",
    line_strong="C6CCD6",
    text="1C2430",
    muted="5D6778",
    faint="98A2B3",
    accent="2456D6",
    accent_text="FFFFFF",
    selected="EAF0FF",
    selected_line="9DB7F9",
    good="0B7A53",
    warn="A84E07",
    bad="B42318",
    tag="1C2430",
    tag_text="FFFFFF",
    tag_strong="FDE68A",
)

DARK = _palette(
    True,
    "6C9BD1 E8AC3A 2FB98E D992BB 6EC1EE EC7F3C A98BD0 B3A354",
    "8DB4E2 E8B554 4FC9A2 E2A6C8 86CCF2 F19A62 BDA3DE C7B96E",
    ground="12161C",
    panel="1A2029",
    canvas="151A21",
    sunken="252D38",
    line="2F3844",
    line_strong="465264",
    text="E4E9F0",
    muted="A0ABBB",
    faint="6B778A",
    accent="7AA2FF",
    accent_text="0E1420",
    selected="22304D",
    selected_line="4F74C4",
    good="4FC08D",
    warn="F0A45A",
    bad="FF8A80",
    tag="E4E9F0",
    tag_text="12161C",
    tag_strong="7A4A00",
)

# Cividis (Nunez, Anderton and Renslow 2018; CC0) at every eighth entry; between them linear, at most 5 of
# 255 from the published table.
_CIVIDIS = (
    "00204d 00265a 002c69 00306f 06366e 1f3c6d 2d426c 38486b 414d6b 4a536b 52596c 595f6d"
    " 61646f 686a71 6f7073 767676 7d7c78 848179 8b8779 938e78 9b9477 a39a76 aca174 b4a872"
    " bcaf6f c5b56c cebc68 d7c463 e0cb5e e9d358 f2da50 fbe248 ffea46"
)


def _table() -> NDArray[np.uint8]:
    anchors = np.array([[int(code[i : i + 2], 16) for i in (0, 2, 4)] for code in _CIVIDIS.split()])
    at = np.round(np.linspace(0, 255, len(anchors)))
    out = np.stack([np.interp(np.arange(256), at, anchors[:, c]) for c in range(3)], axis=1)
    out = np.round(out).astype(np.uint8)
    out.setflags(write=False)
    return out


CIVIDIS: NDArray[np.uint8] = _table()
"""uint8[256, 3]: the heat colours, dark blue for little and yellow for much."""


def heat_color(fraction: float) -> QColor:
    """The heat colour at `fraction` of the scale, clipped to 0..1."""
    red, green, blue = CIVIDIS[int(min(max(fraction, 0.0), 1.0) * 255.0 + 0.5)]
    return QColor(int(red), int(green), int(blue))


def heat_fraction(value: float, low: float, high: float) -> float:
    """Where `value` lies on a logarithmic scale from `low` to `high`; 0 for anything at or below low."""
    if value <= low or low <= 0 or high <= low:
        return 0.0 if value <= low else 1.0
    return min(1.0, math.log(value / low) / math.log(high / low))


def luminance(color: QColor) -> float:
    """Relative luminance, WCAG 2.2."""

    def channel(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return 0.2126 * channel(color.redF()) + 0.7152 * channel(color.greenF()) + 0.0722 * channel(color.blueF())


def contrast(one: QColor, other: QColor) -> float:
    """Contrast ratio, WCAG 2.2: 1 (same) to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def text_on(color: QColor) -> QColor:
    """Black or white, whichever reads better on `color`; one of them always reaches 4.58."""
    black, white = QColor("#000000"), QColor("#FFFFFF")
    return white if contrast(white, color) >= contrast(black, color) else black


def mix(one: QColor, other: QColor, share: float) -> QColor:
    """`share` of `other` laid over `one`, opaque: a tint whose contrast can be checked."""
    keep = 1.0 - share
    return QColor.fromRgbF(
        one.redF() * keep + other.redF() * share,
        one.greenF() * keep + other.greenF() * share,
        one.blueF() * keep + other.blueF() * share,
    )


# -------------------------------------------------------------------------------------------- theme
_current = LIGHT


def palette() -> Palette:
    """The palette in use."""
    return _current


def set_theme(application: QApplication, theme: str) -> Palette:
    """Use "light", "dark" or "system" (what the desktop says) for the whole application.

    Widgets are told by Qt through ``QEvent.PaletteChange``.
    """
    global _current
    hints = QGuiApplication.styleHints()
    wanted = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}.get(theme, Qt.ColorScheme.Unknown)
    if hasattr(hints, "setColorScheme"):
        hints.setColorScheme(wanted)  # window frames and native dialogs follow too
    dark = theme == "dark" or (theme == "system" and hints.colorScheme() is Qt.ColorScheme.Dark)
    _current = DARK if dark else LIGHT
    application.setPalette(_qt_palette(_current))
    application.setStyleSheet(_style_sheet(_current))
    return _current


def prepare(application: QApplication) -> None:
    """Style and font, once, before the first widget."""
    application.setStyle("Fusion")
    application.setFont(font())


def _qt_palette(look: Palette) -> QPalette:
    out = QPalette()
    role = QPalette.ColorRole
    for target, color in (
        (role.Window, look.ground),
        (role.WindowText, look.text),
        (role.Base, look.panel),
        (role.AlternateBase, look.ground),
        (role.Text, look.text),
        (role.Button, look.panel),
        (role.ButtonText, look.text),
        (role.ToolTipBase, look.tag),
        (role.ToolTipText, look.tag_text),
        (role.PlaceholderText, look.muted),
        (role.Highlight, look.accent),
        (role.HighlightedText, look.accent_text),
        (role.Link, look.accent),
        (role.Mid, look.line),
        (role.Dark, look.line_strong),
        (role.Light, look.panel),
        (role.BrightText, look.bad),
    ):
        out.setColor(target, color)
    for target in (role.Text, role.WindowText, role.ButtonText):
        out.setColor(QPalette.ColorGroup.Disabled, target, look.muted)
    return out


def _style_sheet(look: Palette) -> str:
    """The few rules that Fusion needs to look like the mockup. Names in braces are fields of `Palette`."""
    names = {
        f.name: getattr(look, f.name).name()
        for f in fields(look)
        if isinstance(getattr(look, f.name), QColor)
    }
    sheet = _SHEET
    for name, code in names.items():
        sheet = sheet.replace(f"@{name};", f"{code};").replace(f"@{name} ", f"{code} ")
    return sheet


_SHEET = """
QMainWindow, QDialog { background: @ground; }
QMainWindow::separator { background: @ground; width: 8px; height: 8px; }
QMenuBar { background: @panel; border-bottom: 1px solid @line; }
QMenuBar::item { padding: 4px 8px; background: transparent; }
QMenuBar::item:selected { background: @selected; color: @text; border-radius: 4px; }
QMenu { background: @panel; border: 1px solid @line_strong; padding: 4px; }
QMenu::item { padding: 4px 24px 4px 12px; border-radius: 4px; }
QMenu::item:selected { background: @selected; color: @text; }
QMenu::item:disabled { color: @muted; }
QMenu::separator { height: 1px; background: @line; margin: 4px 8px; }
QStatusBar { background: @panel; border-top: 1px solid @line; min-height: 28px; }
QStatusBar::item { border: none; }
QToolTip { background: @tag; color: @tag_text; border: 1px solid @tag; padding: 4px; }
QPushButton { background: @panel; border: 1px solid @line_strong; border-radius: 5px; padding: 4px 12px;
    min-height: 16px; }
QPushButton:hover { background: @sunken; }
QPushButton:focus { border: 1px solid @accent; }
QPushButton:disabled { color: @muted; border: 1px solid @line; }
QPushButton[primary="true"] { background: @accent; color: @accent_text; border: 1px solid @accent;
    font-weight: 600; }
QPushButton[primary="true"]:disabled { background: @sunken; color: @muted; border: 1px solid @line; }
QPushButton[quiet="true"] { border: 1px solid transparent; background: transparent; color: @muted;
    padding: 4px 8px; }
QPushButton[quiet="true"]:hover { background: @sunken; color: @text; }
QPushButton[quiet="true"]:focus { border: 1px solid @accent; }
QPushButton[fold="true"], QPushButton[row="true"] { border: 1px solid transparent; background: transparent;
    padding: 0; text-align: left; }
QPushButton[fold="true"] { font-weight: 600; }
QPushButton[fold="true"][muted="true"] { color: @muted; font-size: 11px; font-weight: 400; }
QPushButton[fold="true"]:hover, QPushButton[row="true"]:hover { background: @sunken; }
QPushButton[fold="true"]:focus, QPushButton[row="true"]:focus { border: 1px solid @accent; }
QPushButton[row="true"] { padding: 0 4px; }
QPushButton[row="true"]:checked { background: @selected; border: 1px solid @selected_line; }
QPushButton[row="true"]:disabled { color: @muted; border: 1px solid transparent; }
QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox { background: @sunken; border: 1px solid @line;
    border-radius: 5px; padding: 3px 6px; min-height: 18px; selection-background-color: @accent;
    selection-color: @accent_text; }
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus { border: 1px solid @accent; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { width: 0; border: none; }
QAbstractSpinBox QLineEdit { border: none; padding: 0; min-height: 0; background: transparent; }
QComboBox::drop-down { border: none; width: 18px; }
QComboBox::down-arrow { image: none; }
QComboBox QAbstractItemView { background: @panel; border: 1px solid @line_strong;
    selection-background-color: @selected; selection-color: @text; }
QTableView, QListView, QTreeView { background: @panel; border: none; gridline-color: @line;
    selection-background-color: @selected; selection-color: @text; outline: none; }
QTableView:focus, QListView:focus { outline: none; }
QHeaderView { background: @panel; }
QHeaderView::section { background: @panel; color: @muted; border: none; border-bottom: 1px solid @line;
    padding: 4px 6px; }
QTableCornerButton::section { background: @panel; border: none; }
QScrollArea { border: none; background: transparent; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: @line_strong; border-radius: 3px; margin: 2px; min-height: 24px;
    min-width: 24px; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QTabBar { background: @ground; }
QTabBar::tab { background: transparent; color: @muted; padding: 4px 12px; border: none;
    border-bottom: 2px solid transparent; }
QTabBar::tab:selected { color: @text; border-bottom: 2px solid @accent; font-weight: 600; }
QTabBar::tab:focus { color: @accent; }
QProgressBar { background: @sunken; border: none; border-radius: 3px; max-height: 6px; }
QProgressBar::chunk { background: @accent; border-radius: 3px; }
QLabel[muted="true"] { color: @muted; font-size: 11px; }
QLabel[tiny="true"] { color: @muted; font-size: 10px; }
QLabel[title="true"] { font-size: 14px; font-weight: 600; }
QLabel[strong="true"] { font-weight: 600; }
QLabel[state="good"] { color: @good; }
QLabel[state="warn"] { color: @warn; }
QLabel[state="bad"] { color: @bad; }
QFrame[cardbody="true"] { background: @panel; border: 1px solid @line; border-top: none;
    border-bottom-left-radius: 6px; border-bottom-right-radius: 6px; }
QFrame[stepper="true"] { background: @sunken; border: 1px solid @line; border-radius: 5px; }
QLineEdit[bare="true"] { background: transparent; border: none; padding: 0; min-height: 16px;
    font-size: 13px; font-weight: 600; }
QToolButton { border: none; border-radius: 4px; padding: 2px 4px; background: transparent; color: @muted; }
QToolButton:hover { background: @sunken; color: @text; }
QToolButton:focus { border: 1px solid @accent; }
QToolButton[choice="true"] { padding: 1px 10px 1px 0; font-size: 12px; }
QToolButton::menu-indicator { image: none; width: 0; }
QToolButton[badge="true"] { padding: 1px 10px 1px 0; font-size: 12px; color: @warn; }
QToolButton[tag="true"] { font-size: 10px; padding: 0 2px; color: @accent; }
QToolButton[tag="true"]:disabled { color: @muted; background: transparent; }
#header { background: @panel; border: none; border-bottom: 1px solid @line; }
QFrame[card="true"] { background: @panel; border: 1px solid @line; border-radius: 6px; }
QFrame[rule="true"] { background: @line; border: none; }
QDockWidget { color: @text; }
"""


# -------------------------------------------------------------------------------------------- fonts
@lru_cache(maxsize=64)
def font(pixels: int = BODY, *, strong: bool = False, mono: bool = False) -> QFont:
    """The system's font at `pixels`, semi-bold if `strong`, fixed pitch if `mono`; digits of one width.

    Shared: it is asked for in every paint, so nobody changes what is returned.
    """
    kind = QFontDatabase.SystemFont.FixedFont if mono else QFontDatabase.SystemFont.GeneralFont
    out = QFontDatabase.systemFont(kind)
    out.setPixelSize(pixels)
    out.setWeight(QFont.Weight.DemiBold if strong else QFont.Weight.Normal)
    if hasattr(QFont, "Tag"):
        out.setFeature(QFont.Tag("tnum"), 1)
    return out


# ------------------------------------------------------------------------------------ number formats
# Amounts of bytes, held or moved, are binary (KiB, MiB), as memories are built and tiles are cut; rates are decimal
# (GB/s), as data sheets, standards of memories and profilers write bandwidths. So no MB ever stands beside a MiB, and a
# prefix alone tells an amount from a rate.
NO_NUMBER = "–"
MINUS = "−"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LONG = ((3600.0, "h"), (60.0, "min"))  # from ten of them on
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _plain(value: float) -> str:
    """Three significant digits without exponent: 1.82, 41.7, 842."""
    size = abs(value)
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:,.{digits}f}".replace("-", MINUS)


def bytes_unit(count: float) -> tuple[float, str]:
    """(divisor, unit) that shows `count` bytes with at most three digits before the point; below 1 KiB as they are."""
    power, size = 0, abs(count)
    while size >= (999.5 if power else 1023.5) and power < len(_BINARY) - 1:
        size /= 1024.0
        power += 1
    return 1024.0**power, _BINARY[power]


def fmt_bytes(count: float | None) -> str:
    """``221 MiB``, ``4.0 MiB``, ``16 B``: binary units, at most three digits of precision."""
    if count is None or not math.isfinite(count):
        return NO_NUMBER
    divisor, unit = bytes_unit(count)
    if unit == "B":
        return f"{count:,.0f} B".replace("-", MINUS)
    value = count / divisor
    digits = 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {unit}".replace("-", MINUS)


def fmt_bytes_exact(count: int) -> str:
    """``4,194,304 B (4.0 MiB)``: for tooltips and copying."""
    short = fmt_bytes(count)
    return short if short.endswith(" B") else f"{count:,} B ({short})".replace("-", MINUS)


def seconds_unit(value: float) -> tuple[float, str]:
    """(divisor, unit) for a time in seconds."""
    size = abs(value)
    for divisor, unit in _LONG:
        if size >= 10 * divisor * 0.9995:
            return divisor, unit
    for divisor, unit in _SECONDS:
        if size >= divisor * 0.9995:
            return divisor, unit
    return _SECONDS[-1]


def fmt_seconds(value: float | None) -> str:
    """``1.82 ms``, ``842 µs``, ``37.8 h``: SI prefix, or minutes and hours from ten on; three digits."""
    if value is None or not math.isfinite(value):
        return NO_NUMBER
    if value == 0:
        return "0 s"
    divisor, unit = seconds_unit(value)
    return f"{_plain(value / divisor)} {unit}"


def fmt_ns(value: int | None) -> str:
    """A time given in nanoseconds, as `fmt_seconds`."""
    return NO_NUMBER if value is None else fmt_seconds(value * 1e-9)


def fmt_count(count: int | None) -> str:
    """``8,819``: every digit, grouped."""
    return NO_NUMBER if count is None else f"{count:,}".replace("-", MINUS)


def fmt_quantity(value: float, unit: str = "") -> str:
    """``22.5 G``, ``3.35 TB/s``: decimal prefix, three significant digits, then `unit`.

    Raises
    ------
    ValueError : `unit` is bytes, an amount: `fmt_bytes` writes those.
    """
    if unit == "B":
        raise ValueError("amounts of bytes have binary prefixes: use fmt_bytes")
    if not math.isfinite(value):
        return "unlimited" if value > 0 else NO_NUMBER
    for divisor, prefix in _SI:
        if abs(value) >= divisor * 0.9995:
            return f"{_plain(value / divisor)} {prefix}{unit}"
    number = f"{value:,.0f}" if float(value).is_integer() else _plain(value)
    return f"{number} {unit}".rstrip().replace("-", MINUS)


def fmt_ticks(values: list[float], unit: str) -> list[str]:
    """Labels of an axis: one unit for all ("s" for times, else a decimal prefix), no trailing zeros."""
    most = max((abs(value) for value in values), default=0.0)
    if unit == "s":
        divisor, name = seconds_unit(min(most, 1.0))  # decades stay round numbers: no hours
    else:
        divisor, prefix = next(((d, p) for d, p in _SI if most >= d), (1.0, ""))
        name = f"{prefix}{unit}"
    return [f"{value / divisor:,g} {name}" if value else "0" for value in values]


def fmt_rate(bytes_per_s: float) -> str:
    """``3.35 TB/s``: bandwidth in decimal bytes, as data sheets write it."""
    return fmt_quantity(bytes_per_s, "B/s")


def fmt_celsius(degrees: float) -> str:
    """``84.9 °C``."""
    return f"{degrees:.1f} °C".replace("-", MINUS) if math.isfinite(degrees) else NO_NUMBER


def fmt_percent(fraction: float | None) -> str:
    """``79.7 %`` of a fraction of one."""
    if fraction is None or not math.isfinite(fraction):
        return NO_NUMBER
    return f"{fraction * 100:.1f} %".replace("-", MINUS)


def fmt_percentile(share: float) -> str:
    """``p95`` of 0.95, ``p99.9`` of 0.999."""
    return f"p{100.0 * share:.6g}"


def fmt_ratio(value: float | None) -> str:
    """``0.913``."""
    if value is None or not math.isfinite(value):
        return NO_NUMBER
    return f"{value:.3f}".replace("-", MINUS) if abs(value) < 100 else _plain(value)


def fmt_delta(now: float, base: float, kind: str) -> str:
    """``−0.61 ms``: `now` minus `base` in the unit in which `now` is shown; ``±0`` where it shows no digit.

    Parameters
    ----------
    kind : "seconds", "bytes", "percent" (points, ``pt``), "ratio" or "count" (both without a unit). The
        caller names the baseline.
    """
    difference, unit = now - base, ""
    if not math.isfinite(difference):
        return NO_NUMBER
    if kind == "seconds":
        divisor, unit = seconds_unit(now)
        shown = _plain(abs(difference) / divisor)
    elif kind == "bytes":
        divisor, unit = bytes_unit(now)
        shown = f"{abs(difference) / divisor:,.{0 if unit == 'B' else 1}f}"
    elif kind == "percent":
        shown, unit = f"{abs(difference) * 100:.1f}", "pt"
    elif kind == "ratio":
        shown = f"{abs(difference):.3f}"
    elif kind == "count":
        shown = f"{abs(difference):,.0f}"
    else:
        raise ValueError(f"no number format is called {kind!r}")
    if not any(digit in shown for digit in "123456789"):
        return "±0"
    return f"{'+' if difference > 0 else MINUS}{shown} {unit}".rstrip()


def fmt_within(value_s: float, low_s: float, high_s: float) -> str:
    """``1.46 −0.02 +0.15 s``, ``41.7 ± 1.2 ms``: a time and how far the ends of its interval lie, in its own digits."""
    divisor, unit = seconds_unit(value_s)
    number = _plain(value_s / divisor)
    digits = len(number.partition(".")[2])
    below, above = (f"{max(0.0, away) / divisor:,.{digits}f}" for away in (value_s - low_s, high_s - value_s))
    beside = f"± {above}" if below == above else f"{MINUS}{below} +{above}"
    return f"{number} {beside} {unit}"


def fmt_interval(low_s: float, high_s: float) -> str:
    """``40.5 to 42.9 ms``: a 95 % interval of a time, one unit for both ends."""
    divisor, unit = seconds_unit(high_s)
    return f"{_plain(low_s / divisor)} to {_plain(high_s / divisor)} {unit}"


def fmt_shape(shape: tuple[int | str, ...] | None) -> str:
    """``8 × 512 × 4,096``; a scalar is said, not shown as nothing."""
    if shape is None:
        return "unknown shape"
    return " × ".join(f"{extent:,}" if isinstance(extent, int) else extent for extent in shape) or "scalar"
