"""Files of what is seen: the canvas as PNG or SVG, the groups as CSV, the result as JSON.

Knows file names and formats. Suffixes are added where they are missing; a file appears whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Protocol

from model.cost.result import CostResult
from model.errors import FileError
from model.serving.result import ServingResult

from .panels.groups import group_rows


class Pictured(Protocol):
    """What can draw itself into a file; the format follows from the suffix."""

    def render_picture(self, path: str | Path) -> None: ...


def with_suffix(path: str, suffix: str) -> Path:
    """`path` with `suffix` (".png") unless it ends so already."""
    given = Path(path)
    return given if given.suffix.lower() == suffix else given.with_name(given.name + suffix)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing.

    Raises
    ------
    FileError : the file cannot be written.
    """
    from model.schema import write_whole

    write_whole(path, text.encode("utf-8"))


def groups_csv(result: CostResult) -> str:
    """The groups with every digit and units in the headings."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(
        (
            "group",
            "operators",
            "latency_s",
            "share_of_latency",
            "dram_read_bytes",
            "dram_write_bytes",
            "lower_bound_bytes",
            "utilisation",
            "bottleneck",
            "feasible",
            "registers_live",
            "registers_limit",
            "registers_unit",
            "spilled_bytes",
            "tile",
            "chosen",
        )
    )
    graph, dram = result.request.graph, result.request.accelerator.dram.name
    for row in group_rows(result):
        group = row.group
        read, written = group.dram_bytes(dram)
        tiles = "; ".join(f"{level.memory}: {_sizes(level.tile)}" for level in group.levels)
        table.writerow(
            (
                f"G{row.index + 1}",
                " ".join(graph.operators[o].name for o in group.operators),
                repr(group.latency_s),
                repr(row.share),
                read,
                written,
                group.lower_bound_bytes,
                repr(group.utilisation),
                group.bottleneck.name,
                "yes" if group.feasible else "no",
                group.registers.live,
                group.registers.limit,
                group.registers.unit,
                group.registers.spilled_bytes,
                tiles,
                " ".join(group.chosen),
            )
        )
    return out.getvalue()


def _sizes(tile: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{dim}={size}" for dim, size in tile)


def result_json(result: CostResult, serving: ServingResult | None) -> str:
    """CONTRACT's document, the same that `tilewright simulate --json` prints."""
    from model.cost.document import simulate_document
    from model.serving.document import serving_document

    tail = serving_document(serving) if serving is not None else None
    return json.dumps(simulate_document(result, tail), ensure_ascii=False, indent=1) + "\n"


def write_picture(canvas: Pictured, path: Path) -> None:
    """The canvas as it is seen.

    Raises
    ------
    FileError : the file cannot be written.
    """
    try:
        canvas.render_picture(path)
    except OSError as error:
        raise FileError(
            f"the picture cannot be written ({error.strerror or error})",
            where=str(path),
            lever="Choose another folder.",
        ) from error
