"""Palettes can be read, the heat map is cividis, numbers read as people write them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PySide6.QtGui import QColor, QPalette

from explorer import look

GROUNDS = ("panel", "canvas", "ground", "sunken", "selected")
INKS = ("text", "muted", "accent", "good", "warn", "bad")


@pytest.mark.parametrize("palette", [look.LIGHT, look.DARK], ids=["light", "dark"])
def test_every_text_colour_reaches_contrast_4_5_on_every_ground(palette):
    for ground in GROUNDS:
        for ink in INKS:
            ratio = look.contrast(getattr(palette, ink), getattr(palette, ground))
            assert ratio >= 4.5, f"{ink} on {ground}: {ratio:.2f}"
        for colour in palette.group_text:
            assert look.contrast(colour, getattr(palette, ground)) >= 4.5, f"{colour.name()} on {ground}"
    for index in range(len(palette.groups)):
        for ink in (palette.group_label(index), palette.muted, palette.warn, palette.bad, palette.text):
            assert look.contrast(ink, palette.hull(index)) >= 4.5, f"{ink.name()} on hull {index}"
    disabled = look._qt_palette(palette).color(QPalette.ColorGroup.Disabled, QPalette.ColorRole.Text)
    assert min(look.contrast(disabled, getattr(palette, ground)) for ground in GROUNDS) >= 4.5
    assert look.contrast(palette.accent_text, palette.accent) >= 4.5
    assert look.contrast(palette.tag_text, palette.tag) >= 4.5
    assert look.contrast(palette.tag_strong, palette.tag) >= 4.5


def test_numbers_in_heat_cells_and_group_bars_can_be_read():
    fills = [look.heat_color(step / 255) for step in range(256)]
    fills += [*look.LIGHT.groups, *look.DARK.groups]
    assert min(look.contrast(look.text_on(fill), fill) for fill in fills) >= 4.5


def test_group_colours_can_be_told_apart_and_repeat():
    for palette in (look.LIGHT, look.DARK):
        assert len({colour.name() for colour in palette.groups}) == len(palette.groups) == 8
        assert palette.group(0) == palette.group(8)


def test_cividis_grows_in_luminance_from_dark_blue_to_yellow():
    light = [look.luminance(look.heat_color(step / 255)) for step in range(256)]
    assert np.all(np.diff(light) > -1e-3)
    assert tuple(look.CIVIDIS[0]) == (0, 0x20, 0x4D) and tuple(look.CIVIDIS[255]) == (0xFF, 0xEA, 0x46)
    assert not look.CIVIDIS.flags.writeable


def test_the_contrast_formula_on_known_pairs():
    assert look.contrast(QColor("#000000"), QColor("#FFFFFF")) == pytest.approx(21.0)
    assert look.contrast(QColor("#777777"), QColor("#FFFFFF")) == pytest.approx(4.48, abs=0.01)


def test_the_style_sheet_names_no_unknown_colour():
    for palette in (look.LIGHT, look.DARK):
        assert "@" not in look._style_sheet(palette)


def test_heat_fractions_are_logarithmic():
    assert look.heat_fraction(10, 1, 100) == pytest.approx(0.5)
    assert look.heat_fraction(0, 1, 100) == 0.0
    assert look.heat_fraction(1000, 1, 100) == 1.0


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (1023.9 * 1024, "1.0 MiB"),
        (4 << 20, "4.0 MiB"),
        (221 << 20, "221 MiB"),
        (999 << 20, "999 MiB"),
        (1000 << 20, "1.0 GiB"),
        (-1010 << 20, "−1.0 GiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (-2048, "−2.0 KiB"),
        (None, "–"),
    ],
)
def test_bytes(count, text):
    assert look.fmt_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.82e-3, "1.82 ms"),
        (842e-6, "842 µs"),
        (999.7e-6, "1.00 ms"),
        (41.72e-3, "41.7 ms"),
        (32.5, "32.5 s"),
        (599, "599 s"),
        (900, "15.0 min"),
        (136_064, "37.8 h"),
        (3e-9, "3.00 ns"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_seconds(seconds, text):
    assert look.fmt_seconds(seconds) == text


@pytest.mark.parametrize(
    ("now", "base", "kind", "text"),
    [
        (1.82e-3, 2.43e-3, "seconds", "−0.61 ms"),
        (41.7e-3, 38.8e-3, "seconds", "+2.90 ms"),
        (0.797, 0.217, "percent", "+58.0 pt"),
        (0.913, 0.573, "ratio", "+0.340"),
        (4 << 20, 5 << 20, "bytes", "−1.0 MiB"),
        (14, 69, "count", "−55"),
        (0.5, 0.5, "ratio", "±0"),
        (1.0, 1.0000001, "seconds", "±0"),
        (1.0, math.inf, "seconds", "–"),
    ],
)
def test_deltas(now, base, kind, text):
    assert look.fmt_delta(now, base, kind) == text


def test_other_numbers():
    assert look.fmt_count(8819) == "8,819"
    assert look.fmt_quantity(2_147_483_648) == "2.15 G"
    assert look.fmt_rate(3.35e12) == "3.35 TB/s" and look.fmt_rate(math.inf) == "unlimited"
    assert look.fmt_percent(0.797) == "79.7 %" and look.fmt_ratio(-10.408) == "−10.408"
    assert look.fmt_interval(40.5e-3, 42.9e-3) == "40.5 to 42.9 ms"
    assert look.fmt_shape((8, "seq", 4096)) == "8 × seq × 4,096" and look.fmt_shape(()) == "scalar"
    assert look.fmt_bytes_exact(4 << 20) == "4,194,304 B (4.0 MiB)"
    with pytest.raises(ValueError, match="furlongs"):
        look.fmt_delta(1, 2, "furlongs")
