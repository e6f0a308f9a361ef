"""Broken and hostile files as a user meets them: the command in a process of its own, and the path that leads
to no plain file. What each file must be told is `HOSTILE` in test_graph_files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from model.errors import FileError
from model.graph import incoming
from model.graph.load import load_graph
from model.packaged import folder as packaged_folder

from .test_graph_files import HOSTILE, UNCOUNTABLE, _files

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = packaged_folder("sample_graphs")
HANGS_S = 600  # a process that is waited for longer hangs
MOST_KIB = 2**20  # 1 GiB in the process that the user started
PROGRAM = """
import sys
from explorer.__main__ import main
code = main(sys.argv[1:])
status = open("/proc/self/status").read()
print("peak", status.split("VmHWM:")[1].split()[0], file=sys.stderr)
sys.exit(code)
"""  # not getrusage: its peak is inherited from the process that started this one
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="devices and pipes are Unix's")


def run(*arguments: str) -> tuple[int, str, str, int]:
    """Exit code, output, what was said on standard error, and the peak memory in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, text=True, timeout=HANGS_S, cwd=ROOT, check=False,
    )  # fmt: skip
    said, _, peak = done.stderr.rpartition("peak ")
    assert peak.strip().isdigit(), done.stderr
    return done.returncode, done.stdout, said, int(peak)


@needs_linux
@pytest.mark.shared
@pytest.mark.parametrize("command", ["inspect", "simulate"])
@pytest.mark.parametrize("path", _files("hostile"))
def test_a_hostile_file_costs_no_memory_and_gets_its_sentence(path: Path, command: str) -> None:
    code, words = HOSTILE[path.stem]
    if command == "simulate" and path.stem in UNCOUNTABLE:
        code, words = 2, UNCOUNTABLE[path.stem]
    returned, out, said, peak = run(command, str(path))
    assert returned == code and "Traceback" not in out + said
    assert said.count("\n") == (1 if code else 0)
    if code or command == "inspect":
        assert words in (said if code else out)
    assert peak < MOST_KIB


@needs_unix
def test_a_pipe_is_read_and_one_without_a_writer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (SAMPLES / "residual_block.onnx").read_bytes()
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(content))
    writer.start()
    graph = load_graph(pipe)
    writer.join()
    assert graph.digest == load_graph("residual_block").digest
    with pytest.raises(incoming.Cancelled):
        load_graph(pipe, cancelled=lambda: True)
    monkeypatch.setattr(incoming, "PIPE_PATIENCE_S", 0.1)
    with pytest.raises(FileError, match="nothing came through this pipe"):
        load_graph(pipe)


@needs_unix
def test_devices_folders_and_links_to_them_are_no_files(tmp_path: Path) -> None:
    link = tmp_path / "zero.onnx"
    link.symlink_to("/dev/zero")
    for path in ("/dev/null", "/dev/zero", link):
        with pytest.raises(FileError, match="a device or socket, not a file"):
            load_graph(path)
    folder = tmp_path / "folder.onnx"
    folder.symlink_to(tmp_path)
    with pytest.raises(FileError, match="folder"):
        load_graph(folder)
    loop = tmp_path / "loop.onnx"
    loop.symlink_to(loop)
    with pytest.raises(FileError, match=r"no such file|cannot be read"):
        load_graph(loop)
    link.unlink()
    link.symlink_to(SAMPLES / "swiglu_mlp.onnx")
    assert load_graph(link).operators


def sparse(tmp_path: Path, size: int, head: bytes = b"") -> Path:
    path = tmp_path / "sparse.onnx"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


def test_a_sparse_file_is_refused_by_its_size_or_its_first_bytes(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has 1,099,511,627,776 bytes"):
        load_graph(sparse(tmp_path, 2**40))
    with pytest.raises(FileError, match="no protobuf message"):
        load_graph(sparse(tmp_path, 2**31 - 1))


@needs_linux
def test_a_large_file_passes_through_without_being_held(tmp_path: Path) -> None:
    """300 MiB of one unknown protobuf field before a model: the child reads it, this process does not hold it."""
    size = 300 * 2**20
    model = (SAMPLES / "residual_block.onnx").read_bytes()
    head = b"\x82\x7d" + _varint(size)
    path = sparse(tmp_path, len(head) + size, head)
    with path.open("ab") as file:
        file.write(model)
    code, out, said, peak = run("inspect", str(path))
    assert code == 0 and "multiply-accumulates" in out and not said
    assert peak < 200 * 1024


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def test_the_sentence_of_every_hostile_file_is_tested() -> None:
    cases: list[Any] = _files("hostile")
    if cases[0].values[0] is not None:
        assert {case.id for case in cases} == set(HOSTILE)
