"""The command line's door: what is mistyped is named with what was meant, and nothing opens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from explorer.__main__ import command_names, main


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["transformer_blok"], "Did you mean transformer_block?"),
        (["simulat", "transformer_block"], "Did you mean simulate?"),
        (["no/such/model.onnx"], "Samples: attention_prefill"),
    ],
)
def test_a_typo_is_answered_in_one_line(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert meant in told.err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in command_names():
        assert f"tilewright {name}" in overview
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert "usage: tilewright" in capsys.readouterr().out


def test_commands_do_not_import_qt() -> None:
    code = (
        "import sys; from explorer.__main__ import main; main(['hardware', 'edge-npu', '--json']);"
        "assert not [name for name in sys.modules if name.startswith(('PySide6', 'pyqtgraph'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def test_the_window_imports_neither_kernels_nor_readers() -> None:
    """On the GUI thread that would compile for minutes on the first start, and take a second on every other."""
    code = (
        "import sys; import explorer.app, explorer.window, explorer.engine; from model import compiled;"
        "print(len(compiled.declared()), *sorted({'numba', 'onnx', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["0"]
