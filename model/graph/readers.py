"""Which reader reads what: the format of the bytes (`sniff.format_of`) to the facts that the child answers.

Runs in the reader's child process. To add a format: its mark in `sniff.py`, one function ``read`` that makes
a `Translation`, one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ..errors import FileError
from .onnx_file import facts, read_model
from .raw import in_columns
from .sniff import Format, format_of
from .translated import Translation

_TEXTS: dict[Format, str] = {
    Format.STABLEHLO: "reader_stablehlo",
    Format.HLO: "reader_hlo",
    Format.DOT: "reader_dot",
}


def read(content: bytes, given: Mapping[str, int]) -> dict[str, Any]:
    """Everything that the table needs to know of a file, as JSON (the fields of `raw.RawGraph`).

    Raises
    ------
    FileError : the bytes are not what they seem, or damaged; a fault of a text names its line.
    UsageError : `given` binds a symbol that the file does not have.
    """
    kind = format_of(content)
    if kind is Format.ONNX:
        return in_columns(read_model(content, given))
    reader: Callable[[Any], Translation]
    if kind is Format.PT2:
        from .reader_pt2 import read as reader

        translation = reader(content)
    else:
        reader = import_module(f".{_TEXTS[kind]}", __package__).read
        translation = reader(_text(content))
    answer = facts(translation.model(), given)
    answer["groups"] = [[f"#{index}" for index in group] for group in translation.groups.values()]
    return in_columns(answer)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"line {line:,}: byte {content[error.start]:#04x} is no UTF-8 text",
            lever="The file is damaged or of another encoding; export it again.",
        ) from error
