"""When requests come and how long they are: recorded traces first, then synthetic processes.

Knows the trace formats that others publish and the arithmetic of windows and rates; knows nothing of slots or
service. Times are exact integer nanoseconds: decimal text is never read through a float.

- A *window* [a, b) is cut from the trace's own time, counted from its first request, and then starts at 0.
- A *rate* r stretches what is left: arrival' = floor((arrival - first) * n * 10**9 / (r * (last - first))),
  with r as the exact decimal that was written. So n requests take n / r seconds, shape kept.
- Synthetic arrivals are drawn from ``numpy.random.default_rng(seed)``: Poisson is
  ``cumsum(exponential(1 / rate, n))``, rounded to the nearest nanosecond; constant is request i at i / rate.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, UsageError
from ..schema import read_bytes
from .result import Arrivals

LARGEST_TRACE_BYTES = 1 << 29
LATEST_NS = 1 << 60
"""36 years: what is later is refused, so that sums of times stay inside int64."""
_LARGEST_TOKENS = 1 << 40

TraceFormat = Literal["tilewright", "azure", "mooncake", "burstgpt", "vidur"]


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """A trace as recorded: int64[n] in order of arrival, times from its first request or as our file says.

    ``notes`` say what of the file was left out or not used.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    notes: tuple[str, ...] = ()


def read_trace(path: Path, form: TraceFormat) -> Trace:
    """Read a recorded trace in one of the public formats or in our own.

    Raises
    ------
    FileError : missing, wrong columns, or a bad row; the message names file, row and column.
    """
    try:
        text = read_bytes(path, LARGEST_TRACE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"is not text in UTF-8 (byte {error.start})", where=str(path)) from error
    if form == "mooncake":
        rows = _mooncake_rows(text, path)
    else:
        rows = _csv_rows(text, path, form)
    times: list[int] = []
    inputs: list[int] = []
    outputs: list[int] = []
    failed = 0
    for time, tokens_in, tokens_out in rows:
        if form == "burstgpt" and tokens_out == 0:
            failed += 1  # the format's mark for a request that got no answer
            continue
        times.append(time)
        inputs.append(tokens_in)
        outputs.append(tokens_out)
    if not times:
        raise FileError("holds no requests", where=str(path))
    notes = (f"{failed:,} failed requests of the trace (no response tokens) are left out",) if failed else ()
    return _in_order(times, inputs, outputs, form, path, notes)


def _in_order(
    times: list[int], inputs: list[int], outputs: list[int], form: str, path: Path, notes: tuple[str, ...]
) -> Trace:
    """Sorted by arrival, ties in file order; from the first request on, except in our own format."""
    earliest = 0 if form == "tilewright" else min(times)
    if max(times) - earliest > LATEST_NS:
        raise FileError("spans more than 36 years", where=str(path), lever="Check the unit of the times.")
    arrival = np.array([time - earliest for time in times], dtype=np.int64)
    order = np.argsort(arrival, kind="stable")
    if np.any(order[1:] < order[:-1]):
        notes = (*notes, "the trace was not in order of arrival and has been sorted, ties in file order")
    return Trace(
        arrival[order],
        np.array(inputs, dtype=np.int64)[order],
        np.array(outputs, dtype=np.int64)[order],
        notes,
    )


# Columns of each CSV format: time, input tokens, output tokens.
_COLUMNS: dict[str, tuple[str, str, str]] = {
    "tilewright": ("arrival_ns", "input_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
    "vidur": ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
}
# Columns of our own format that change what a request costs, and the text that says "nothing special".
_NEUTRAL = {"size_factor": ("", "1", "1.0"), "stream": ("", "0")}


def _csv_rows(text: str, path: Path, form: str) -> Iterator[tuple[int, int, int]]:
    """Rows of a CSV trace as (ns, input tokens, output tokens), with the faults' places."""
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    wanted = _COLUMNS[form]
    missing = [name for name in wanted if name not in header]
    if missing:
        known = [other for other, names in _COLUMNS.items() if set(names) <= set(header)]
        raise FileError(
            f"has no column {missing[0]!r}; its first line is {','.join(header)[:120]!r}",
            where=str(path),
            lever=f"It looks like format = {known[0]!r}." if known else f"{form} needs {', '.join(wanted)}.",
        )
    at_time, at_input, at_output = (header.index(name) for name in wanted)
    special = [(header.index(name), name) for name in _NEUTRAL if form == "tilewright" and name in header]
    parse = _TIME[form]
    for number, row in enumerate(reader, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise _bad(path, number, "", f"has {len(row)} columns, the first line has {len(header)}")
        for at, name in special:
            if row[at].strip() not in _NEUTRAL[name]:
                raise _bad(path, number, name, f"{row[at]!r} is not simulated in this version")
        time = parse(row[at_time].strip())
        if time is None:
            raise _bad(path, number, wanted[0], f"{row[at_time]!r} is not a time that this format has")
        yield (
            time,
            _tokens(row[at_input], path, number, wanted[1]),
            _tokens(row[at_output], path, number, wanted[2]),
        )


def _mooncake_rows(text: str, path: Path) -> Iterator[tuple[int, int, int]]:
    """Rows of a JSON Lines trace: ``timestamp`` in ms, ``input_length``, ``output_length``."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise _bad(path, number, "", "is not one JSON object") from error
        if not isinstance(row, dict):
            raise _bad(path, number, "", "is not one JSON object")
        time = _decimal_ns(str(row.get("timestamp", "")), 6)
        if time is None:
            raise _bad(path, number, "timestamp", f"{row.get('timestamp')!r} is not a time in milliseconds")
        said_in, said_out = str(row.get("input_length", "")), str(row.get("output_length", ""))
        tokens_in = _tokens(said_in, path, number, "input_length")
        yield time, tokens_in, _tokens(said_out, path, number, "output_length")


def _bad(path: Path, number: int, column: str, what: str) -> FileError:
    place = f"line {number}, {column}" if column else f"line {number}"
    return FileError(what, where=f"{path}: {place}")


def _tokens(text: str, path: Path, number: int, column: str) -> int:
    """A token count: digits, or a float with a whole value as some tools write them."""
    text = text.strip().removesuffix(".0")
    if not (text.isascii() and text.isdigit()) or len(text) > 13 or int(text) > _LARGEST_TOKENS:
        raise _bad(path, number, column, f"{text!r} is not a count of tokens")
    return int(text)


def _whole_ns(text: str) -> int | None:
    """Nanoseconds as digits."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > LATEST_NS:
        return None
    return int(text)


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
    """``2023-11-16 18:17:03.9799600``: up to nine fraction digits, optionally ``+00:00`` or ``Z``."""
    whole, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    digits = fraction or "0"
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        return None
    try:
        moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    days = moment.toordinal()
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return (days * 86_400 + seconds) * 10**9 + int(digits.ljust(9, "0"))


_TIME: dict[str, Callable[[str], int | None]] = {
    "tilewright": _whole_ns,
    "azure": _timestamp_ns,
    "burstgpt": _seconds_ns,
    "vidur": _seconds_ns,
}


def exact(value: float) -> Fraction:
    """The decimal that a person wrote for `value`: 0.1 is one tenth."""
    return Fraction(repr(value))


def recorded(
    trace: Trace,
    name: str,
    *,
    rate_per_s: float | None = None,
    window_s: tuple[float, float] | None = None,
    requests: int | None = None,
) -> Arrivals:
    """A trace as arrivals: the window cut out, at most `requests` of it, then stretched to the rate.

    Raises
    ------
    UsageError : nothing is left, or a rate for requests that all come at once.
    """
    arrival, keep = trace.arrival_ns, np.ones(trace.arrival_ns.size, dtype=bool)
    said = f"{{}} requests of {name}"
    if window_s is not None:
        begin, end = (int(exact(edge) * 10**9) for edge in window_s)
        keep = (arrival >= begin) & (arrival < end)
        arrival = arrival - begin
        said += f", window {window_s[0]:g} to {window_s[1]:g} s"
    kept = np.flatnonzero(keep)[:requests]
    if kept.size == 0:
        raise UsageError("no request of the trace lies in the window", lever="Widen window_s.")
    arrival = arrival[kept]
    if rate_per_s is not None:
        arrival = _stretch(arrival, rate_per_s)
    return _arrivals(
        arrival,
        trace.input_tokens[kept],
        trace.output_tokens[kept],
        said.format(f"{kept.size:,}"),
        recorded=True,
        endless=False,
        rate_per_s=rate_per_s,
    )


def _stretch(arrival: NDArray[np.int64], rate_per_s: float) -> NDArray[np.int64]:
    """Arrivals stretched so that n of them take n / rate seconds; exact (Python integers), then floored."""
    first, last = int(arrival[0]), int(arrival[-1])
    if last == first:
        raise UsageError("all requests come at once, so they have no rate to scale")
    factor = Fraction(arrival.size * 10**9, last - first) / exact(rate_per_s)
    if arrival.size * 10**9 / rate_per_s > LATEST_NS:
        raise UsageError(f"at {rate_per_s:g} requests/s the trace would take over 36 years")
    up, down = factor.numerator, factor.denominator
    return np.array([(int(time) - first) * up // down for time in arrival], dtype=np.int64)


def synthetic(
    kind: Literal["poisson", "constant"],
    rate_per_s: float,
    seed: int,
    *,
    requests: int | None = None,
    window_s: tuple[float, float] | None = None,
) -> Arrivals:
    """Arrivals of an endless process: the first `requests` of it, or those in the window [a, b) s.

    Raises
    ------
    UsageError : neither or no request in the window, or times beyond 36 years.
    """
    if requests is None and window_s is None:
        raise UsageError(f"a {kind} process has no end of its own", lever="Set requests or window_s.")
    expected = float(requests) if requests is not None else (window_s or (0.0, 0.0))[1] * rate_per_s
    if expected > 2e7 or expected / rate_per_s * 1e9 > LATEST_NS:
        raise UsageError(
            f"{expected:.6g} requests at {rate_per_s:g}/s are more than this version replays",
            lever="At most 20,000,000 requests within 36 years.",
        )
    draw = _poisson if kind == "poisson" else _constant
    if window_s is None:
        arrival = draw(rate_per_s, seed, requests or 0)
    else:
        begin, end = (round(edge * 1e9) for edge in window_s)
        count = int(expected + 10.0 * expected**0.5) + 100
        arrival = draw(rate_per_s, seed, count)
        while arrival[-1] < end:  # a larger draw of the same generator begins with the same numbers
            count *= 2
            arrival = draw(rate_per_s, seed, count)
        arrival = arrival[(arrival >= begin) & (arrival < end)] - begin
        if arrival.size == 0:
            raise UsageError("no request lies in the window", lever="Widen window_s.")
    none = np.zeros(arrival.size, dtype=np.int64)
    name = {"poisson": "Poisson", "constant": "constant rate"}[kind]
    said = f"{arrival.size:,} requests, {name}, synthetic (seed {seed})"
    return _arrivals(arrival, none, none, said, recorded=False, endless=True, rate_per_s=rate_per_s)


def _poisson(rate_per_s: float, seed: int, count: int) -> NDArray[np.int64]:
    gaps = np.random.default_rng(seed).exponential(1.0 / rate_per_s, count)
    return np.rint(np.cumsum(gaps) * 1e9).astype(np.int64)


def _constant(rate_per_s: float, seed: int, count: int) -> NDArray[np.int64]:
    period = 10**9 / exact(rate_per_s)
    up, down = period.numerator, period.denominator
    if count * up < 2**62:
        return np.arange(count, dtype=np.int64) * up // down
    return np.array([i * up // down for i in range(count)], dtype=np.int64)


def _arrivals(
    arrival: NDArray[np.int64],
    inputs: NDArray[np.int64],
    outputs: NDArray[np.int64],
    source: str,
    *,
    recorded: bool,
    endless: bool,
    rate_per_s: float | None,
) -> Arrivals:
    columns = [np.ascontiguousarray(column) for column in (arrival, inputs, outputs)]
    for column in columns:
        column.setflags(write=False)
    return Arrivals(*columns, source=source, recorded=recorded, endless=endless, set_rate_per_s=rate_per_s)
