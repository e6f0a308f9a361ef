"""The kernel cache: named by the sources, private, and kernels keep to their declared signatures."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from model import compiled


def test_folder_is_named_by_the_kernel_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "kernels.py"
    source.write_text("a = 1\n")
    monkeypatch.setattr(compiled, "_source", lambda module: source)
    before = compiled._digest()
    assert compiled._digest() == before
    source.write_text("a = 2\n")
    assert compiled._digest() != before


def _folder_in_new_process(environment: dict[str, str]) -> str:
    code = "from model import compiled; print(compiled.FOLDER)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_unwritable_home_falls_back_to_a_private_temporary_folder(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {
        **os.environ,
        "TILEWRIGHT_CACHE": str(blocked),
        "HOME": str(blocked),
        "XDG_CACHE_HOME": str(blocked),
        "LOCALAPPDATA": str(blocked),
        "TMPDIR": str(temporary),
    }
    folder = Path(_folder_in_new_process(environment))
    assert temporary in folder.parents
    if os.name == "posix":
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_every_kernel_file_is_listed_and_what_is_compiled_into_it() -> None:
    """A number that a kernel takes from another file is part of its machine code: that file is in the digest too."""
    root = Path(compiled.__file__).parent
    text = {
        "model." + ".".join(path.relative_to(root).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in root.rglob("*.py")
        if path.name != "compiled.py"
    }
    declaring = {module for module, source in text.items() if "\n@kernel(" in source}
    needed = declaring | {
        f"{module.rpartition('.')[0]}.{other}"
        for module in declaring
        for other in re.findall(r"^from \.(\w+) import", text[module], re.MULTILINE)
    }
    assert needed == set(compiled.KERNEL_MODULES)
    assert compiled.count() >= len(declaring) > 0


def test_a_progress_line_for_each_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "model.compiled"], capture_output=True, text=True, check=True, timeout=600
    )
    lines = done.stdout.splitlines()
    total = compiled.count()
    assert len(lines) == total
    assert lines[0].startswith(f"kernel 1 of {total}: model.")
    assert lines[-1].startswith(f"kernel {total} of {total}: ")
    assert compiled.ready() == (compiled.FOLDER is not None)
