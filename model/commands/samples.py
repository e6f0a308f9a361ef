"""List what ships with the program: sample graphs, machines, workloads and plans, one line each."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..packaged import folder, headline
from ..terminal import TOOL, columns, print_json

# (kind, folder, suffix, how a user asks for one)
_KINDS = (
    ("graph", "sample_graphs", ".onnx", "tilewright simulate NAME"),
    ("machine", "assets/hardware", ".toml", "--hardware NAME"),
    ("workload", "assets/workloads", ".toml", "--workload NAME"),
    ("plan", "assets/plans", ".json", "--plan NAME"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print; 0."""
    if arguments.json:
        rows = [
            {"kind": kind, "name": path.stem, "about": about(path), "path": str(path)}
            for kind, where, suffix, _ in _KINDS
            for path in _files(where, suffix)
        ]
        print_json({"format": 1, "tool": TOOL, "samples": rows})
        return 0
    for kind, where, suffix, use in _KINDS:
        print(f"{kind}s ({use})")
        print(columns([(path.stem, about(path)) for path in _files(where, suffix)], indent="  "))
    return 0


def _files(where: str, suffix: str) -> list[Path]:
    return sorted(folder(where).glob(f"*{suffix}"))


def about(path: Path) -> str:
    """One line: the headline of the file, or of the text beside one that has no comments."""
    summary = path if path.suffix == ".toml" else path.with_suffix(".txt")
    return headline(summary) if summary.is_file() else ""
