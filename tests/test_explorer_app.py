"""The composition root as a user meets it: a picture without a display, readable refusals, no traceback."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from explorer import display
from explorer.__main__ import main
from model.errors import TilewrightError

ROOT = Path(__file__).resolve().parents[1]


def run(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """One start of the program in `folder`, without a display and with a home of its own."""
    clean = {
        k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    clean.update(PYTHONPATH=str(ROOT), **environment)
    return subprocess.run(
        [sys.executable, "-m", "explorer", *arguments],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms always have a display")
def test_without_a_display_the_window_becomes_a_picture(tmp_path):
    done = run(["residual_block"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("No display: wrote a picture of the window to ")
    image = QImage(str(tmp_path / "tilewright.png"))
    assert image.width() == 1680 and image.height() == 1020
    colours = {image.pixelColor(x, y).name() for x in range(0, 1680, 7) for y in range(0, 1020, 7)}
    assert len(colours) > 50  # a whole window, not an empty page
    assert "propagateSizeHints" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_model_ends_with_one_line_and_exit_2(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"not a model at all")
    done = run(["broken.onnx", "--picture", "out.png"], tmp_path)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tilewright: ") and "broken.onnx" in last
    assert "Traceback" not in done.stderr and not (tmp_path / "out.png").exists()


def test_a_picture_of_what_was_asked_for(tmp_path):
    """Theme, scale, size, plan and workload of the window; the plan is the one in the file."""
    plan = tmp_path / "alone.json"
    assert main(["plan", "swiglu_mlp", "--unfused", "-o", str(plan)]) == 0
    words = ["swiglu_mlp", "--picture", "mlp", "--theme", "dark", "--scale", "200", "--size", "1400x900"]
    done = run([*words, "--plan", str(plan), "--workload", "poisson"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("mlp.png (2800 × 1800 pixels)") and "Traceback" not in done.stderr
    dark = QImage(str(tmp_path / "mlp.png"))
    assert (dark.width(), dark.height()) == (2800, 1800)
    corners = [dark.pixelColor(x, y).lightness() for x in range(0, 2800, 50) for y in range(0, 1800, 50)]
    assert sorted(corners)[len(corners) // 2] < 100
    done = run([*words, "--workload", "poisson"], tmp_path)
    assert QImage(str(tmp_path / "mlp.png")) != dark  # the starting plan is another


def test_a_picture_of_the_start_page_is_light(tmp_path):
    done = run(["--picture", "start.png", "--size", "900x700"], tmp_path)
    assert done.returncode == 0, done.stderr
    page = QImage(str(tmp_path / "start.png"))
    colours = [page.pixelColor(x, y) for x in range(0, page.width(), 9) for y in range(0, page.height(), 9)]
    assert sorted(colour.lightness() for colour in colours)[len(colours) // 2] > 200
    assert len({colour.name() for colour in colours}) > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["swiglu_mlp", "--picture", "x.txt"],
            "x.txt: a picture of the window is a PNG, not .txt. Write x.png",
        ),
        (["swiglu_mlp", "--picture", ""], "is no name of a file"),
        (["swiglu_mlp", "--picture", "/nowhere/x.png"], "there is no folder /nowhere"),
        (["swiglu_mlp", "--picture", "x.png", "--plan", "nothing"], "nothing: no such plan file"),
        (["--plan", "x.json"], "--plan is of FILE, and none is given"),
        (["--workload", "azure-cod"], "Did you mean azure-code?"),
        (["--picture", "x.png", "residual_bloc"], "Did you mean residual_block?"),
        (["--scale", "20"], "give 50 to 400, in per cent"),
        (["--size", "10x10"], "give 800x600 to 7680x4320"),
        (["--theme", "pink"], "choose from"),
    ],
)
def test_what_no_window_could_open_is_refused_before_one_opens(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as ended:  # argparse
        code = ended.code
    told = capsys.readouterr()
    assert code == 2 and said in told.err and told.err.count("\n") == 1 and not told.out
    assert not list(tmp_path.iterdir())


def test_an_unknown_machine_ends_with_exit_2(tmp_path):
    done = run(["swiglu_mlp", "--hardware", "no-such-machine", "--picture", "out.png"], tmp_path)
    assert done.returncode == 2 and "no-such-machine" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_system_library_is_named_with_its_packages():
    fault = display.import_fault(ImportError("libEGL.so.1: cannot open shared object file: No such file"))
    assert isinstance(fault, TilewrightError)
    for words in ("libEGL.so.1", "apt-get install libegl1", "dnf install", "pacman -S"):
        assert words in fault.sentence()
    other = display.import_fault(ImportError("No module named 'PySide6'"))
    assert "pip install PySide6-Essentials" in other.sentence()


@pytest.mark.skipif(sys.platform != "linux", reason="X11")
def test_why_there_is_no_window(monkeypatch):
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert display.why_no_window() == "No display"
    monkeypatch.setenv("DISPLAY", ":4711")
    monkeypatch.setattr(display, "_missing_library", lambda: "")
    assert display.why_no_window() == "The display :4711 does not answer"
    monkeypatch.setattr(display, "_missing_library", lambda: "libxcb-cursor.so.0")
    assert "libxcb-cursor.so.0" in display.why_no_window()
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert display.why_no_window() == "QT_QPA_PLATFORM is offscreen"


@pytest.mark.skipif(sys.platform != "linux", reason="X11")
def test_a_plugin_that_does_not_load_names_the_library(monkeypatch):
    def refuse(name: str) -> None:
        raise OSError("libxcb-cursor.so.0: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert display._missing_library() == "libxcb-cursor.so.0"
