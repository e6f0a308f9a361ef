"""The tables of the docs are what the model says; where one is not: ``python docs/figures.py`` makes them anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """`docs/figures.py`, which is no package."""
    spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(figures: ModuleType) -> dict[str, str]:
    """By name the text that stands in a page."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))]
    found = [match for page in pages for match in figures.MARKED.finditer(page)]
    return {match[2]: match[0][len(match[1]) : -len(match[3])] for match in found}


def test_every_table_has_a_page_and_every_mark_a_maker(figures: ModuleType) -> None:
    assert set(tables(figures)) == set(figures.TABLES)


@pytest.mark.parametrize("name", ["alone", "serving-traps"])  # the others take minutes
def test_tables_are_up_to_date(figures: ModuleType, name: str) -> None:
    assert tables(figures)[name] == figures.TABLES[name]()
