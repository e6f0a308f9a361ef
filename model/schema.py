"""Text files that people write: read, checked against a pydantic schema, every fault at once with its path.

The edge of the model: what passes here is turned into frozen dataclasses by the room that owns the schema.
Knows TOML and pydantic, and nothing of what the files mean. Schemas are strict: no text is taken for a
number, no truth value for a number, and an unknown key is a fault.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from .errors import FileError

_LARGEST_FILE_BYTES = 1 << 20
MOST_FAULTS = 20
_LONGEST_NAME = 255  # of a file, on every platform's usual file systems


class Strict(BaseModel):
    """Base of every schema: strict types, no unknown keys, finite numbers, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


def _whole(value: Any) -> Any:
    """``8.0e9`` is the whole number 8,000,000,000; anything else is left for pydantic to judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Int = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[_Int, Field(gt=0, le=2**53)]
"""A whole number of at least 1; a float with a whole value is one."""
Index = Annotated[_Int, Field(ge=0, le=2**53)]
"""A whole number of at least 0."""
Nanoseconds = Annotated[_Int, Field(ge=0, le=2**62)]
"""A whole number of nanoseconds, at least 0; 2**62 ns are 146 years."""
Positive = Annotated[float, Field(gt=0)]
"""A finite number above 0."""
NonNegative = Annotated[float, Field(ge=0)]
"""A finite number of at least 0."""
Share = Annotated[float, Field(ge=0, lt=1)]
"""A finite number in [0, 1)."""
Name = Annotated[str, Field(min_length=1, max_length=200)]
"""Text that is not empty."""

Fault = tuple[tuple[int | str, ...], str]
"""A place below what a validator looks at, () for it itself, and what is wrong there."""

_Schema = TypeVar("_Schema", bound=BaseModel)


def tell(found: Iterable[Fault | str], beside: ValidationError | None = None) -> None:
    """For validators of several rules: raise all that is `found` at once, after the faults `beside`; nothing for none.

    A ``ValueError`` tells one fault of one place; whoever corrects it would meet the next.
    """
    before = beside.errors(include_url=False) if beside is not None else ()
    lines = [
        InitErrorDetails(type=fault["type"], loc=fault["loc"], input=fault["input"], ctx=fault.get("ctx", {}))
        for fault in before
    ]
    for each in found:
        place, text = ((), each) if isinstance(each, str) else each
        kind = PydanticCustomError("value_error", "{text}", {"text": text})
        lines.append(InitErrorDetails(type=kind, loc=place, input=None))
    if lines:
        raise ValidationError.from_exception_data("", lines)


def read_bytes(path: Path, limit: int = _LARGEST_FILE_BYTES) -> bytes:
    """The bytes of a file of at most `limit` bytes.

    Raises
    ------
    FileError : it is missing, a folder, not readable, or larger.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        lever = "Check the path." if isinstance(error, FileNotFoundError | NotADirectoryError) else ""
        raise FileError(f"cannot be read: {reason}", where=str(path), lever=lever) from error
    if len(content) > limit:
        raise FileError(
            f"is larger than {limit:,} bytes, the most that such a file may have", where=str(path)
        )
    return content


def _text(content: bytes, where: str) -> str:
    """The text of a file; a file of nothing and one that is no UTF-8 are refused."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(
            f"is not text in UTF-8 (byte {error.start})", where=where, lever="Save it as UTF-8."
        ) from error
    if not text.strip():
        raise FileError("is empty", where=where, lever="Name another file, or write this one.")
    return text


def read_toml(content: bytes, schema: type[_Schema], where: str, lever: str = "") -> _Schema:
    """Parse TOML and check it against `schema`; `lever` is what to do about faults that say nothing of it themselves.

    Raises
    ------
    FileError : not UTF-8, not TOML, or not the schema; the message holds every fault with its path.
    """
    try:
        table = tomllib.loads(_text(content, where))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FileError(f"is not valid TOML: {reason}", where=where) from error
    return check(table, schema, where, lever)


def read_json(content: bytes, schema: type[_Schema], where: str) -> _Schema:
    """Parse JSON and check it against `schema`. A key that stands twice in one object is a fault.

    Raises
    ------
    FileError : not UTF-8, not JSON, or not the schema; the message holds every fault with its path.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            twice = next(key for key in table if [name for name, _ in pairs].count(key) > 1)
            raise FileError(f"the key {twice!r} stands twice in one object", where=where)
        return table

    text = _text(content, where)
    try:
        table = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FileError(f"is not valid JSON: {reason}", where=where) from error
    if not isinstance(table, dict):
        raise FileError("is JSON, but not an object with keys", where=where)
    return check(table, schema, where)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all: beside its place first, then renamed into it.

    Raises
    ------
    FileError : the folder is missing or cannot be written; what was there before is untouched.
    """
    real = Path(os.path.realpath(path))  # a link stays a link
    part = real.with_name(f".{real.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        try:
            with part.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if real.exists():
                part.chmod(real.stat().st_mode & 0o777)
            part.replace(real)
        except OSError:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"cannot be written: {reason}", where=str(path)) from error


def must_be_writable(path: str | Path, *read: str | Path | None) -> None:
    """Refuse a file to write before the work that it is for: a search of minutes must not end in a mistyped folder.

    Parameters
    ----------
    read : files that are read for it and no plans: they are not written over.

    Raises
    ------
    FileError : no such folder, a folder or a device itself, not writable, or one of `read`.
    """
    where = str(path)
    if where in ("", "-") or "\0" in where:
        raise FileError("is no name of a file", where=repr(where), lever="Name a file.")
    real = Path(os.path.realpath(path))
    if len(os.fsencode(real.name)) > _LONGEST_NAME:
        raise FileError(f"is a name of more than {_LONGEST_NAME} bytes", where=where, lever="Shorten it.")
    if real.is_dir():
        raise FileError("is a folder", where=where, lever="Name a file inside it.")
    if not real.parent.is_dir():
        raise FileError(
            f"cannot be written: there is no folder {real.parent}", where=where, lever="Make it first."
        )
    if real.exists() and not real.is_file():
        raise FileError("is no ordinary file", where=where, lever="Name a file.")
    if not os.access(real.parent, os.W_OK):
        raise FileError(
            f"cannot be written: no permission in {real.parent}", where=where, lever="Choose another folder."
        )
    there = [source for source in read if source is not None and os.path.exists(source)]
    if real.exists() and any(real.samefile(source) for source in there):
        raise FileError("is read here and would be lost", where=where, lever="Write to another file.")


def check(table: Mapping[str, Any], schema: type[_Schema], where: str, lever: str = "") -> _Schema:
    """Check a parsed document against `schema`; FileError with every fault and its path."""
    try:
        return schema.model_validate(table)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=True)
        raise FileError(
            "; ".join(_fault(fault, table) for fault in faults[:MOST_FAULTS])
            + (f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""),
            where=where,
            lever=_lever(faults, schema) or lever,
        ) from None


# What pydantic calls a kind of value, in the words of the file's author.
_WORDS = (
    (re.compile(r"a valid dictionary or (instance of \w+|object to extract fields from)"), "a table of keys"),
    (re.compile(r"a valid dictionary"), "a table of keys"),
    (re.compile(r"a valid integer.*"), "a whole number"),
    (re.compile(r"a valid (number|list|boolean)"), r"a \1"),
    (re.compile(r"a boolean"), "true or false"),
    (re.compile(r"a valid string"), "text"),
    (re.compile(r"^Unable to parse input string as an integer.*"), "should be a smaller number"),
    (
        re.compile(r"^(List|String) should have (.*?)( after validation)?, not (\d+)"),
        r"should have \2, not \4",
    ),
    (re.compile(r"Input should be"), "should be"),
    (re.compile(r"greater than or equal to"), "at least"),
    (re.compile(r"less than or equal to"), "at most"),
    (re.compile(r"String should"), "should"),
)
_LONGEST_VALUE = 40
_LONG_NUMBER = re.compile(r"\d{17,}")
_PLAIN_KEY = re.compile(r"[\w/:+-]+")


def _fault(fault: Any, table: Mapping[str, Any]) -> str:
    """One fault as ``memory[1].scope: should be 'device' or 'core', not 'chip'``."""
    path, name = _path(fault["loc"], table)
    kind, message = fault["type"], fault["msg"]
    if kind == "extra_forbidden":
        text = "unknown key"
    elif kind == "missing":
        text = "is missing"
    elif kind == "string_too_short":
        text = "is empty"
    elif kind.startswith("union_tag"):
        path += "." + str(fault["ctx"]["discriminator"]).strip("'")
        text = "is missing"
        if kind == "union_tag_invalid":
            wanted = fault["ctx"]["expected_tags"].replace(", ", " or ")
            text = f"should be {wanted}, not {_value(fault['ctx']['tag'])}"
    elif kind == "value_error":
        text = message.removeprefix("Value error, ")
    else:
        text = message
        for pattern, words in _WORDS:
            text = pattern.sub(words, text)
        text = _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.16g}".replace("e+", "e"), text)
        if ", not " not in text:  # a count of items is given with its message
            text += f", not {_value(fault['input'])}"
    return f"{path}{name}: {text}" if path else text


def _value(given: Any) -> str:
    """A value of the file in a few letters."""
    if isinstance(given, dict | list):
        return "a table" if isinstance(given, dict) else "a list"
    if isinstance(given, bool):
        return str(given).lower()
    huge = isinstance(given, int) and abs(given) >= 10**30
    text = f"a number of {len(str(abs(given) // 10**9)) + 9} digits" if huge else repr(given)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _path(location: tuple[int | str, ...], table: Any) -> tuple[str, str]:
    """``memory[1].scope`` from pydantic's location, without the tags of its unions; and `` (L2)`` where the innermost
    table of a list has a name: people count in names.
    """
    text, name, here = "", "", table
    for position, part in enumerate(location):
        if part == "[key]":
            continue
        last = position == len(location) - 1
        if isinstance(part, int):
            text += f"[{part}]"
            here = here[part] if isinstance(here, list) and part < len(here) else None
            given = here.get("name") if isinstance(here, dict) else None
            name = f" ({_value(given)[1:-1]})" if isinstance(given, str) and given else ""
        elif last or (isinstance(here, dict) and part in here):
            key = part if _PLAIN_KEY.fullmatch(part) else _value(part)
            text += f".{key}" if text else key
            here = here.get(part) if isinstance(here, dict) else None
    return text, name


def _keys(schema: type[BaseModel]) -> set[str]:
    """Every key that the schema and the schemas inside it know."""
    names: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            names.update(node.get("properties", {}))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(schema.model_json_schema())
    return names


def _lever(faults: Any, schema: type[BaseModel]) -> str:
    """For unknown keys: the known ones that look like them."""
    unknown = [str(fault["loc"][-1]) for fault in faults if fault["type"] == "extra_forbidden"]
    if not unknown:
        return ""
    known = _keys(schema)
    misplaced = next((key for key in unknown if key in known), None)
    if misplaced is not None:
        return f"{misplaced} belongs to another table of the file."
    meant = [close[0] for key in unknown if (close := difflib.get_close_matches(key, known, 1, 0.7))]
    return f"Did you mean {', '.join(dict.fromkeys(meant))}?" if meant else "Remove unknown keys."
