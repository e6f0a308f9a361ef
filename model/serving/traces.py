"""Recorded traces: the formats that others publish, and our own, to exact columns of numbers.

Knows columns, units and traps of each format; knows nothing of rates, slots or service. A file is read row by row and
is never held as text; decimal text is never read through a float. Every fault names file and line.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError

LARGEST_TRACE_BYTES = 1 << 29
LATEST_NS = 1 << 60
"""36 years: what is later is refused, so that sums of times stay inside int64."""
_LARGEST_TOKENS = 1 << 40
_LARGEST_FACTOR = 1e6
_GZIP = b"\x1f\x8b"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TraceFormat = Literal["tilewright", "azure", "mooncake", "burstgpt", "vidur"]


class _Row(NamedTuple):
    """One request of a trace. `stream` is the text of its column, empty where the format has none.

    `blocks` are the blocks of its prompt, numbered as they are first met, where the format names them.
    """

    time_ns: int
    input_tokens: int
    output_tokens: int
    prefix_blocks: int = 0
    cached_blocks: int = 0
    size_factor: float = 1.0
    stream: str = ""
    blocks: array[int] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """A trace as recorded: arrays [n] in order of arrival, ties in file order.

    Attributes
    ----------
    arrival_ns, input_tokens, output_tokens : int64. Times from the first request, or as our own format says.
    prefix_blocks, cached_blocks : int64, blocks of the prompt that can be shared, and how many of those were already
        computed; 0 where the format does not say.
    size_factor : float64, 1.0 where the format does not say.
    stream : int32, index into `streams`; all 0 where the format has no streams.
    streams : per stream its name as the file writes it, and the line where it stands first; empty: no streams.
    notes : what of the file was left out or not used.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    prefix_blocks: NDArray[np.int64]
    cached_blocks: NDArray[np.int64]
    size_factor: NDArray[np.float64]
    stream: NDArray[np.int32]
    streams: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


def read_trace(path: Path, form: TraceFormat) -> Trace:
    """Read a recorded trace in one of the public formats or in our own.

    Raises
    ------
    FileError : missing, larger than `LARGEST_TRACE_BYTES`, wrong columns, or a bad row; the message names file,
        line and column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            if path.stat().st_size > LARGEST_TRACE_BYTES:
                raise FileError(f"is larger than {LARGEST_TRACE_BYTES:,} bytes", where=str(path))
            notes: list[str] = []
            rows = _mooncake(lines, path) if form == "mooncake" else _csv(lines, path, form, notes)
            return _gathered(rows, form, path, notes)
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            packed = error.object.startswith(_GZIP)
            raise FileError(
                "is compressed (gzip)" if packed else "is not text in UTF-8",
                where=str(path),
                lever="Unpack it first." if packed else "Save it as UTF-8.",
            ) from error
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise FileError(f"cannot be read: {reason}", where=str(path), lever="Check the path.") from error


def _gathered(rows: Iterator[tuple[int, _Row]], form: TraceFormat, path: Path, notes: list[str]) -> Trace:
    """The rows as columns, sorted by arrival with ties in file order; `notes` as reading has filled them."""
    whole = [array("q") for _ in range(5)]
    factors, codes = array("d"), array("i")
    blocks: list[array[int]] = []
    streams: dict[str, tuple[int, int]] = {}
    failed = 0
    for line, row in rows:
        if form == "burstgpt" and row.output_tokens == 0:
            failed += 1  # the format's mark for a request that got no answer
            continue
        for column, value in zip(whole, row[:5], strict=True):
            column.append(value)
        factors.append(row.size_factor)
        codes.append(streams.setdefault(row.stream, (len(streams), line))[0])
        if row.blocks is not None:
            blocks.append(row.blocks)
    if not codes:
        but = f", but {failed:,} that failed (no response tokens)" if failed else ""
        raise FileError(f"holds no requests{but}", where=str(path))
    if failed:
        notes.append(f"{failed:,} failed requests of the trace (no response tokens) are left out")
    arrival, tokens_in, tokens_out, prefix, cached = (np.array(column, dtype=np.int64) for column in whole)
    if form != "tilewright":
        arrival -= arrival.min()
    if arrival.max() > LATEST_NS:
        raise FileError("spans more than 36 years", where=str(path), lever="Check the unit of the times.")
    order = np.argsort(arrival, kind="stable")
    if np.any(order[1:] < order[:-1]):
        notes.append("the trace was not in order of arrival and has been sorted, ties in file order")
    if blocks:
        prefix, cached = _cached(blocks, order)
    return Trace(
        arrival[order],
        tokens_in[order],
        tokens_out[order],
        prefix[order],
        cached[order],
        np.array(factors)[order],
        np.array(codes, dtype=np.int32)[order],
        tuple((name, line) for name, (_, line) in streams.items()) if set(streams) != {""} else (),
        tuple(notes),
    )


def _cached(blocks: Sequence[array[int]], order: NDArray[np.intp]) -> tuple[NDArray, NDArray]:
    """int64[n] each: blocks of each prompt, and how many of these were already computed when the request came.

    Cached are the leading blocks that stood in a prompt before, in order of arrival, as in a prefix cache without end.
    Blocks are numbered by `_mooncake` as they are first met in the file.
    """
    prefix = np.array([len(own) for own in blocks], dtype=np.int64)
    cached = np.zeros_like(prefix)
    seen: set[int] = set()
    for at in order.tolist():
        own = blocks[at]
        cached[at] = next((k for k, block in enumerate(own) if block not in seen), len(own))
        seen.update(own)
    return prefix, cached


# Columns of each CSV format: time, input tokens, output tokens.
_COLUMNS: dict[str, tuple[str, str, str]] = {
    "tilewright": ("arrival_ns", "input_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
    "vidur": ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
}
_OPTIONAL = ("prefix_blocks", "cached_blocks", "size_factor", "stream")  # of our own format

_WRITTEN = {
    "tilewright": "whole nanoseconds",
    "azure": "2023-11-16 18:17:03.9799600, with up to nine fraction digits, or the same with +00:00",
    "burstgpt": "seconds, 45.25",
    "vidur": "seconds, 0.041377",
}
"""How each CSV format writes a time."""


def _csv(lines: TextIO, path: Path, form: str, notes: list[str]) -> Iterator[tuple[int, _Row]]:
    """(line, row) of a CSV trace; adds to `notes` what of it is not used."""
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not any(header):
            raise FileError(f"has no first line that names {', '.join(_COLUMNS[form])}", where=f"{path}:1")
        wanted = _COLUMNS[form]
        missing = [name for name in wanted if name not in header]
        if missing:
            raise FileError(
                f"has no column {missing[0]!r}; its first line is {','.join(header)[:120]!r}",
                where=f"{path}:1",
                lever=_looks_like(header) or f"{form} needs {', '.join(wanted)}.",
            )
        at_time, at_input, at_output = (header.index(name) for name in wanted)
        optional = [name for name in _OPTIONAL if form == "tilewright" and name in header]
        twice = [name for name in (*wanted, *optional) if header.count(name) > 1]
        if twice:
            raise _bad(path, 1, twice[0], "two columns have this name", "Leave one of them out.")
        unused = [name for name in header if name not in (*wanted, *optional)]
        if form == "tilewright" and unused:  # theirs always have more
            notes.append(f"the trace's columns {', '.join(unused)[:120]} are not used")
        places = [(header.index(name), name, _OPTIONAL_VALUE[name]) for name in optional]
        parse = _TIME[form]
        for row in reader:
            line = reader.line_num
            if not "".join(row).strip() and len(row) <= 1:
                continue
            if len(row) != len(header):
                raise _bad(path, line, "", f"has {len(row)} columns, the first line has {len(header)}")
            time = parse(row[at_time].strip())
            if time is None:
                what = f"{row[at_time]!r} is not a time that this format has"
                raise _bad(path, line, wanted[0], what, f"It writes {_WRITTEN[form]}.")
            more: dict[str, Any] = {}
            for at, name, value in places:
                try:
                    more[name] = value(row[at].strip())
                except ValueError as error:
                    raise _bad(path, line, name, f"{row[at]!r} is not {error}") from error
            if more.get("cached_blocks", 0) > more.get("prefix_blocks", _LARGEST_TOKENS):
                what = (
                    f"{more['cached_blocks']} blocks of a prompt of {more['prefix_blocks']} cannot be cached"
                )
                raise _bad(path, line, "cached_blocks", what)
            tokens_in = _tokens(row[at_input], path, line, wanted[1])
            yield line, _Row(time, tokens_in, _tokens(row[at_output], path, line, wanted[2]), **more)
    except csv.Error as error:
        raise _bad(path, reader.line_num, "", f"is not CSV: {error}") from error


def _mooncake(lines: TextIO, path: Path) -> Iterator[tuple[int, _Row]]:
    """(line, row) of a JSON Lines trace: ``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids``."""
    number: dict[int, int] = {}
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            row: Any = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            lever = "mooncake has one JSON object a line."
            if line == 1 and not text.startswith("{"):
                lever = _looks_like([name.strip() for name in text[:1000].split(",")]) or lever
            raise _bad(path, line, "", "is not one JSON object", lever)
        time = _decimal_ns(str(row.get("timestamp", "")), 6)
        if time is None:
            raise _bad(path, line, "timestamp", f"{row.get('timestamp')!r} is not a time in milliseconds")
        tokens_in = _tokens(str(row.get("input_length", "")), path, line, "input_length")
        tokens_out = _tokens(str(row.get("output_length", "")), path, line, "output_length")
        blocks = row.get("hash_ids", [])
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            raise _bad(path, line, "hash_ids", "is not a list of whole numbers")
        numbered = array("q", [number.setdefault(block, len(number)) for block in blocks])
        yield line, _Row(time, tokens_in, tokens_out, blocks=numbered)


def _looks_like(header: Sequence[str]) -> str:
    """What to do about a file whose first line is that of another format; empty where it is of none."""
    known = [form for form, names in _COLUMNS.items() if set(names) <= set(header)]
    if header[0].startswith("{"):
        known = ["mooncake"]
    return f"It looks like format = {known[0]!r}." if known else ""


def _bad(path: Path, line: int, column: str, what: str, lever: str = "") -> FileError:
    return FileError(what, where=f"{path}:{line}: {column}" if column else f"{path}:{line}", lever=lever)


def _tokens(text: str, path: Path, line: int, column: str) -> int:
    """A token count: digits, or a float with a whole value as some tools write them."""
    whole, _, fraction = text.strip().partition(".")
    count = _digits(whole, _LARGEST_TOKENS)
    if count is None or fraction.strip("0"):
        raise _bad(path, line, column, f"{text.strip()!r} is not a count of tokens")
    return count


def _digits(text: str, most: int) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        return None
    return int(text)


def _blocks(text: str) -> int:
    count = _digits(text or "0", _LARGEST_TOKENS)
    if count is None:
        raise ValueError("a count of blocks")
    return count


def _factor(text: str) -> float:
    try:
        value = float(text or "1")
    except ValueError:
        value = 0.0
    if not 0.0 < value <= _LARGEST_FACTOR:
        raise ValueError(f"a factor above 0 and up to {_LARGEST_FACTOR:g}")
    return value


_OPTIONAL_VALUE: dict[str, Callable[[str], Any]] = {
    "prefix_blocks": _blocks,
    "cached_blocks": _blocks,
    "size_factor": _factor,
    "stream": lambda text: text or "0",
}


def _whole_ns(text: str) -> int | None:
    """Nanoseconds as digits."""
    return _digits(text, LATEST_NS)


def _decimal_ns(text: str, exponent: int) -> int | None:
    """A decimal number times ``10**exponent`` ns, exact, fractions of a nanosecond rounded down."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if not value.is_finite() or value < 0 or value > 10**11:
        return None
    return int(value.scaleb(exponent))


def _seconds_ns(text: str) -> int | None:
    return _decimal_ns(text, 9)


_TIMESTAMP = re.compile(
    r"(?P<moment>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def _timestamp_ns(text: str) -> int | None:
    """``2023-11-16 18:17:03.9799600``, 1970 to 2243, up to nine fraction digits; UTC where it says no zone."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found["moment"] + (found["zone"] or "Z"))
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    nanoseconds = int((found["fraction"] or "0").ljust(9, "0"))
    return seconds * 10**9 + nanoseconds if 0 <= seconds < 100_000 * 86_400 else None


_TIME: dict[str, Callable[[str], int | None]] = {
    "tilewright": _whole_ns,
    "azure": _timestamp_ns,
    "burstgpt": _seconds_ns,
    "vidur": _seconds_ns,
}
