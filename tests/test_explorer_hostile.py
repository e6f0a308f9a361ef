"""Broken and hostile files through the window's door: a sentence, and the graph before stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication

from explorer.document import Document
from explorer.engine import Engine

from .test_explorer_document import settle
from .test_graph_files import HOSTILE, _files


@pytest.mark.shared
@pytest.mark.parametrize("path", _files("hostile"))
def test_a_hostile_file_is_shown_or_named(qtbot, path: Path) -> None:
    document = Document(engine=Engine())
    said: list[tuple[str, str]] = []
    document.said.connect(lambda sentence, level: said.append((sentence, level)))
    document.open(str(path))
    settle(qtbot, document)
    QCoreApplication.processEvents()
    code, words = HOSTILE[path.stem]
    errors = [sentence for sentence, level in said if level == "error"]
    assert not any("Traceback" in sentence for sentence, _ in said)
    if code:
        assert document.graph is None and len(errors) == 1 and words in errors[0]
    else:
        assert document.graph is not None and document.graph.operators
    assert document.close()
