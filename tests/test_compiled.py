"""The kernel cache: named by the sources, private, and kernels keep to their declared signatures."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from model import compiled


def test_a_file_is_named_by_its_text_and_by_that_of_the_kernel_files_it_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = {
        "model.graph.alignment": "a = 1\n",
        "model.cost.sweep": "from model.compiled import kernel\n",
        "model.cost.traffic": "from .sweep import (\n    one,\n    two,\n)\n",
        "model.serving.events": "from ..cost import timing, traffic\n",
    }

    def source(module: str) -> Path:
        path = tmp_path / module
        path.write_text(texts.get(module, ""), encoding="utf-8")
        return path

    monkeypatch.setattr(compiled, "_source", source)
    before = compiled._digests()
    assert set(before) == set(compiled.KERNEL_MODULES) and compiled._digests() == before
    texts["model.cost.sweep"] += "a = 2\n"
    after = compiled._digests()
    changed = {module for module, digest in after.items() if digest != before[module]}
    assert changed == {"model.cost.sweep", "model.cost.traffic", "model.serving.events"}


def test_kernels_of_the_same_text_elsewhere_are_loaded_not_compiled(tmp_path: Path) -> None:
    """Another checkout, or the wheel, finds them in the same place."""
    root = Path(compiled.__file__).parent
    elsewhere = tmp_path / "model"
    for path in root.rglob("*.py"):
        target = elsewhere / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    code = (
        "import model, model.plan.bitsets; from model import compiled; "
        "print(model.__file__); "
        "print(sum(sum(k.stats.cache_misses.values()) for _, k in compiled.declared()))"
    )
    said = []
    for folder in (root.parent, tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout.split())
    assert said[0][0] != said[1][0] and said[1][0].startswith(str(tmp_path))
    assert int(said[0][1]) > 0 and int(said[1][1]) == 0


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
    needed = {module for module, source in text.items() if "\n@kernel(" in source}
    declaring = len(needed)
    waiting = sorted(needed)
    while waiting:
        module = waiting.pop()
        imported = _imported(ast.parse(text[module]), module) & text.keys()
        assert imported == compiled._imports(module, text[module])
        waiting += imported - needed
        needed |= imported
    assert needed == set(compiled.KERNEL_MODULES)
    assert compiled.count() >= declaring > 0


def _imported(tree: ast.Module, module: str) -> set[str]:
    """What a file imports at its top level, by full name."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = module.split(".")[: -node.level] if node.level else []
            package = ".".join([*inside, *([node.module] if node.module else [])])
            found |= {package, *(f"{package}.{name.name}" for name in node.names)}
    return found


def test_a_line_for_each_kernel_and_for_each_file_after_what_it_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "model.compiled"], capture_output=True, text=True, check=True, timeout=1200
    )
    lines = done.stdout.splitlines()
    kernels = [line.split(": ") for line in lines if line.startswith("kernel ")]
    total = compiled.count()
    assert [said for said, _ in kernels] == [f"kernel {n} of {total}" for n in range(1, total + 1)]
    assert {name for _, name in kernels} == {name for name, _ in compiled.declared()}
    files = [line.removeprefix("file ") for line in lines if line.startswith("file ")]
    assert sorted(files) == sorted(compiled.KERNEL_MODULES)
    for module in files:
        for needed in compiled._imports(module, compiled._source(module).read_text(encoding="utf-8")):
            assert files.index(needed) < files.index(module)
    assert compiled.ready() == (compiled.FOLDER is not None)


def test_a_process_that_fails_says_why_and_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "KERNEL_MODULES", ("model.plan.bitsets", "model.no_such_file"))
    monkeypatch.setattr(compiled, "_source", lambda module: Path(compiled.__file__))
    monkeypatch.setattr(compiled, "_imports", lambda module, text: set())
    marked: list[bool] = []
    monkeypatch.setattr(compiled, "_complete", lambda: marked.append(True))
    with pytest.raises(RuntimeError, match="no_such_file"):
        compiled.fill()
    assert not marked


def test_the_first_kernel_of_a_command_fills_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[object] = []
    monkeypatch.setattr(compiled, "fill", filled.append)
    monkeypatch.setattr(compiled, "_before_the_first", None)
    for there, expected in ((False, [print]), (True, [])):
        monkeypatch.setattr(compiled, "ready", lambda there=there: there)
        filled.clear()
        compiled.fill_before_the_first(print)
        compiled.kernel("int64(int64)")
        compiled.kernel("int64(int64)")
        assert filled == expected
