"""Numbers as commands print them."""

from __future__ import annotations

import pytest

from model.terminal import quantity, size


@pytest.mark.parametrize(
    ("value", "unit", "digits", "text"),
    [
        (25.6e9, "B/s", 4, "25.6 GB/s"),
        (999.99996e3, "B", 4, "1 MB"),
        (7.94e-4, "s", 2, "794 µs"),
        (123_456, "B", 2, "123 kB"),
        (0, "B", 4, "0 B"),
        (-5e-7, "s", 4, "-500 ns"),
        (None, "s", 4, "-"),
        (599.0, "s", 4, "599 s"),
        (2345.0, "s", 4, "39.08 min"),
        (-1412.4, "s", 3, "-23.5 min"),
        (36_000.0, "s", 3, "10 h"),
        (36e6, "s", 3, "10000 h"),
        (2345.0, "B", 4, "2.345 kB"),
    ],
)
def test_quantity(value: float | None, unit: str, digits: int, text: str) -> None:
    assert quantity(value, unit, digits) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (999 << 20, "999 MiB"),
        (1000 << 20, "0.9766 GiB"),
        (-1010 << 20, "-0.9863 GiB"),
    ],
)
def test_size(count: int | None, text: str) -> None:
    assert size(count) == text
