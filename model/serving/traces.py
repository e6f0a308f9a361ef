"""Recorded traces: the formats that others publish, and our own, to exact columns of numbers.

Knows columns, units and traps of each format; knows nothing of rates, slots or service. A file is read row by row and
is never held as text; decimal text is never read through a float. Every fault names file and line.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
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
_EPOCH = datetime(1970, 1, 1).toordinal()

TraceFormat = Literal["tilewright", "azure", "mooncake", "burstgpt", "vidur"]


class _Row(NamedTuple):
    """One request of a trace. `stream` is the text of its column, empty where the format has none."""

    time_ns: int
    input_tokens: int
    output_tokens: int
    prefix_blocks: int = 0
    cached_blocks: int = 0
    size_factor: float = 1.0
    stream: str = ""


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
            return _gathered(
                _mooncake(lines, path) if form == "mooncake" else _csv(lines, path, form), form, path
            )
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise FileError("is not text in UTF-8", where=str(path), lever="Save it as UTF-8.") from error
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise FileError(f"cannot be read: {reason}", where=str(path), lever="Check the path.") from error


def _gathered(rows: Iterator[tuple[int, _Row]], form: TraceFormat, path: Path) -> Trace:
    """The rows as columns, sorted by arrival with ties in file order."""
    whole = [array("q") for _ in range(5)]
    factors, codes = array("d"), array("i")
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
    if not codes:
        raise FileError("holds no requests", where=str(path))
    notes = (f"{failed:,} failed requests of the trace (no response tokens) are left out",) if failed else ()
    arrival, tokens_in, tokens_out, prefix, cached = (np.array(column, dtype=np.int64) for column in whole)
    if form != "tilewright":
        arrival -= arrival.min()
    if arrival.max() > LATEST_NS:
        raise FileError("spans more than 36 years", where=str(path), lever="Check the unit of the times.")
    order = np.argsort(arrival, kind="stable")
    if np.any(order[1:] < order[:-1]):
        notes = (*notes, "the trace was not in order of arrival and has been sorted, ties in file order")
    return Trace(
        arrival[order],
        tokens_in[order],
        tokens_out[order],
        prefix[order],
        cached[order],
        np.array(factors)[order],
        np.array(codes, dtype=np.int32)[order],
        tuple((name, line) for name, (_, line) in streams.items()) if set(streams) != {""} else (),
        notes,
    )


# Columns of each CSV format: time, input tokens, output tokens.
_COLUMNS: dict[str, tuple[str, str, str]] = {
    "tilewright": ("arrival_ns", "input_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
    "vidur": ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
}
_OPTIONAL = ("prefix_blocks", "cached_blocks", "size_factor", "stream")  # of our own format


def _csv(lines: TextIO, path: Path, form: str) -> Iterator[tuple[int, _Row]]:
    """(line, row) of a CSV trace."""
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        wanted = _COLUMNS[form]
        missing = [name for name in wanted if name not in header]
        if missing:
            known = [other for other, names in _COLUMNS.items() if set(names) <= set(header)]
            raise FileError(
                f"has no column {missing[0]!r}; its first line is {','.join(header)[:120]!r}",
                where=f"{path}:1",
                lever=f"It looks like format = {known[0]!r}."
                if known
                else f"{form} needs {', '.join(wanted)}.",
            )
        at_time, at_input, at_output = (header.index(name) for name in wanted)
        optional = [name for name in _OPTIONAL if form == "tilewright" and name in header]
        places = [(header.index(name), name, _OPTIONAL_VALUE[name]) for name in optional]
        parse = _TIME[form]
        for row in reader:
            line = reader.line_num
            if not row:
                continue
            if len(row) != len(header):
                raise _bad(path, line, "", f"has {len(row)} columns, the first line has {len(header)}")
            time = parse(row[at_time].strip())
            if time is None:
                raise _bad(path, line, wanted[0], f"{row[at_time]!r} is not a time that this format has")
            more: dict[str, Any] = {}
            for at, name, value in places:
                try:
                    more[name] = value(row[at].strip())
                except ValueError as error:
                    raise _bad(path, line, name, f"{row[at]!r} is not {error}") from error
            tokens_in = _tokens(row[at_input], path, line, wanted[1])
            yield line, _Row(time, tokens_in, _tokens(row[at_output], path, line, wanted[2]), **more)
    except csv.Error as error:
        raise _bad(path, reader.line_num, "", f"is not CSV: {error}") from error


def _mooncake(lines: TextIO, path: Path) -> Iterator[tuple[int, _Row]]:
    """(line, row) of a JSON Lines trace: ``timestamp`` in ms, ``input_length``, ``output_length``, ``hash_ids``.

    A prompt's cached blocks are the leading ones that stood earlier in the trace, as in an unbounded prefix cache.
    """
    seen: set[int] = set()
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            row: Any = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise _bad(path, line, "", "is not one JSON object") from error
        if not isinstance(row, dict):
            raise _bad(path, line, "", "is not one JSON object")
        time = _decimal_ns(str(row.get("timestamp", "")), 6)
        if time is None:
            raise _bad(path, line, "timestamp", f"{row.get('timestamp')!r} is not a time in milliseconds")
        tokens_in = _tokens(str(row.get("input_length", "")), path, line, "input_length")
        tokens_out = _tokens(str(row.get("output_length", "")), path, line, "output_length")
        blocks = row.get("hash_ids", [])
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            raise _bad(path, line, "hash_ids", "is not a list of whole numbers")
        cached = next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        yield line, _Row(time, tokens_in, tokens_out, len(blocks), cached)


def _bad(path: Path, line: int, column: str, what: str) -> FileError:
    return FileError(what, where=f"{path}:{line}: {column}" if column else f"{path}:{line}")


def _tokens(text: str, path: Path, line: int, column: str) -> int:
    """A token count: digits, or a float with a whole value as some tools write them."""
    count = _digits(text.strip().removesuffix(".0"), _LARGEST_TOKENS)
    if count is None:
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


def _timestamp_ns(text: str) -> int | None:
    """``2023-11-16 18:17:03.9799600``, 1970 to 2243: up to nine fraction digits, optionally ``+00:00`` or ``Z``."""
    whole, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    digits = fraction or "0"
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        return None
    try:
        moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    days = moment.toordinal() - _EPOCH
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return (days * 86_400 + seconds) * 10**9 + int(digits.ljust(9, "0")) if 0 <= days < 100_000 else None


_TIME: dict[str, Callable[[str], int | None]] = {
    "tilewright": _whole_ns,
    "azure": _timestamp_ns,
    "burstgpt": _seconds_ns,
    "vidur": _seconds_ns,
}
