"""What the reader's child says about a file: nodes, values and warnings as plain JSON, checked on arrival.

The child has parsed a file from someone else and may have been taken over by it; so nothing that it sends
is trusted beyond this page: JSON only (never a pickle), every field checked for its type. Knows nothing of
ONNX's protobuf and nothing of loop nests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from ..errors import FileError, TilewrightError, UsageError

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
_T = TypeVar("_T")

_KINDS: dict[str, type[TilewrightError]] = {"file": FileError, "usage": UsageError}


@dataclass(frozen=True, slots=True)
class RawValue:
    """One tensor of the file.

    Attributes
    ----------
    constant : an initializer, or computed only from constants.
    values : its elements, flat, where it is a small constant; else None.
    distinct : number of distinct elements of an integer constant, where it was counted.
    transpose_of : a constant that other nodes read as it is; this one is its transpose by ``perm``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    declared: tuple[int | str, ...] | None = None
    constant: bool = False
    values: tuple[int | float, ...] | None = None
    distinct: int | None = None
    transpose_of: str = ""
    perm: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RawNode:
    """One node of the file, or of a function that was expanded.

    Attributes
    ----------
    identity : graph path and index in the file, ``#12`` or ``#3/Block#1``.
    inputs, outputs : value names in operand order; "" for one that is left out.
    captured : values of the surrounding graph that nested graphs read.
    version : opset version of the node's domain.
    reason : why it cannot be modelled, as far as the reader knows; else "".
    bodies : label, number of runs and graph of each nested graph that was read.
    """

    op_type: str
    domain: str
    name: str
    identity: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    attributes: dict[str, Attribute]
    scope: tuple[str, ...]
    reason: str
    bodies: tuple[tuple[str, int, RawGraph], ...] = ()


@dataclass(frozen=True, slots=True)
class RawGraph:
    """A whole file, nodes in topological order.

    Attributes
    ----------
    refusal : why nothing may be simulated; else "".
    groups : identities of nodes that the file itself fuses, per group.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, RawValue]
    nodes: tuple[RawNode, ...]
    symbols: tuple[str, ...]
    bindings: tuple[tuple[str, int], ...]
    warnings: tuple[tuple[str, str, str], ...]
    refusal: str
    groups: tuple[tuple[str, ...], ...] = ()


_SHORT = 100_000  # characters that are parsed in about a millisecond


def _parsed(text: str) -> dict[str, Any]:
    """The answer's object; where it is long, its lists item by item.

    One call of the parser for 50,000 nodes would keep every other thread of the process waiting for half a second.
    Long answers are graphs, which the child writes without any white space.
    """
    if len(text) < _SHORT or not text.startswith("{"):
        return json.loads(text)
    item = json.JSONDecoder().raw_decode
    out: dict[str, Any] = {}
    at = 1
    while text[at - 1] != "}":
        key, at = item(text, at)
        at += 1  # the colon
        if text[at] != "[" or text[at + 1] == "]":
            out[_text(key)], at = item(text, at)
        else:
            found: list[Any] = []
            while text[at] != "]":
                one, at = item(text, at + 1)
                found.append(one)
            out[_text(key)], at = found, at + 1
        at += 1  # the comma, or the end
    return out


def read_answer(text: bytes, where: str) -> RawGraph:
    """The child's answer as values.

    Raises
    ------
    FileError, UsageError : what the child itself refused.
    FileError : the answer is damaged.
    """
    try:
        answer = _parsed(text.decode())
        if "error" in answer:
            error = answer["error"]
            kind = _KINDS.get(_text(error["kind"]), FileError)
            raise kind(
                _text(error["what"]),
                where=where if kind is FileError else _text(error["where"]),
                lever=_text(error["lever"]),
            )
        return _graph(answer, answer)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise FileError(
            f"the reader's answer is damaged ({type(error).__name__})",
            where=where,
            lever="The file may attack the program that reads it; do not trust it.",
        ) from error


def _graph(answer: Any, file: Any) -> RawGraph:
    """A graph; what belongs to the whole file stands in `file`, nothing of it where that is None."""
    return RawGraph(
        name=_text(answer["name"]),
        inputs=_texts(answer["inputs"]),
        outputs=_texts(answer["outputs"]),
        values=_values(answer["values"]),
        nodes=_nodes(answer["nodes"], answer["attributes"]),
        symbols=_texts(file["symbols"]) if file else (),
        bindings=tuple((_text(name), _integer(number)) for name, number in file["bindings"]) if file else (),
        warnings=tuple((_text(a), _text(b), _text(c)) for a, b, c in file["warnings"]) if file else (),
        refusal=_text(file["refusal"]) if file else "",
        groups=_tuple(file.get("groups", []), _texts) if file else (),
    )


def in_columns(document: dict[str, Any]) -> dict[str, Any]:
    """The child's side: rows of values and nodes as columns, attributes that repeat written once, bodies likewise.

    Columns are checked and read several times faster than rows, of which large files have hundred thousands.
    """
    distinct: dict[str, int] = {}
    attributes: list[Any] = []
    for row in document["nodes"]:
        key = str(row[_ATTRIBUTES])
        if key not in distinct:
            distinct[key] = len(attributes)
            attributes.append(row[_ATTRIBUTES])
        row[_ATTRIBUTES] = distinct[key]
        row[_BODIES] = [[label, runs, in_columns(body)] for label, runs, body in row[_BODIES]]
    columns = {
        "values": list(zip(*document["values"], strict=True)) or [()] * 9,
        "nodes": list(zip(*document["nodes"], strict=True)) or [()] * 12,
        "attributes": attributes,
    }
    return {**document, **columns}


_ATTRIBUTES, _BODIES = 8, 11  # their places in a row of a node


def _values(columns: Any) -> dict[str, RawValue]:
    names, dtypes, shapes, declared, constants, values, distinct, stored, perms = columns
    checked = zip(
        _all(names, str),
        _all(dtypes, str),
        _lists(shapes, _extent),
        _lists(declared, _extent_or_symbol),
        _all(constants, bool),
        _lists(values, _number),
        _all(distinct, int, type(None)),
        _all(stored, str),
        _full(_lists(perms, _extent)),
        strict=True,
    )
    return {row[0]: RawValue(*row) for row in checked}


def _nodes(columns: Any, written: Any) -> tuple[RawNode, ...]:
    op_types, domains, names, identities, versions, *columns = columns
    inputs, outputs, captured, which, scopes, reasons, bodies = columns
    attributes = [{_text(key): _attribute(value) for key, value in each.items()} for each in written]
    checked = zip(
        _all(op_types, str),
        _all(domains, str),
        _all(names, str),
        _all(identities, str),
        _all(versions, int),
        _text_lists(inputs),
        _text_lists(outputs),
        _text_lists(captured),
        [attributes[_extent(index)] for index in which],
        _text_lists(scopes),
        _all(reasons, str),
        [
            tuple((_text(label), _extent(runs), _graph(body, None)) for label, runs, body in nested)
            for nested in _all(bodies, list)
        ],
        strict=True,
    )
    return tuple(RawNode(*row) for row in checked)


def _all(column: Any, *types: type) -> list[Any]:
    """The column, where all its entries are of these very types."""
    if not isinstance(column, list) or not set(map(type, column)) <= set(types):  # pyright: ignore[reportUnknownArgumentType]
        raise TypeError(f"a column of {types[0].__name__} was expected")
    return column  # pyright: ignore[reportUnknownVariableType]


def _lists(column: Any, item: Callable[[Any], _T]) -> list[tuple[_T, ...] | None]:
    """Per entry a tuple, or None. Tuples that are written alike are one object, and checked once."""
    known: dict[str, tuple[_T, ...]] = {}
    out: list[tuple[_T, ...] | None] = []
    for entry in _all(column, list, type(None)):
        if entry is None:
            out.append(None)
            continue
        written = repr(entry)
        found = known.get(written)
        if found is None:
            found = known[written] = _tuple(entry, item)
        out.append(found)
    return out


def _full(column: list[tuple[_T, ...] | None]) -> list[tuple[_T, ...]]:
    return [() if entry is None else entry for entry in column]


def _text_lists(column: Any) -> list[tuple[str, ...]]:
    lists = _all(column, list)
    _all(list(chain.from_iterable(lists)), str)
    return list(map(tuple, lists))


def _attribute(value: Any) -> Attribute:
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return _texts(value)
        return _tuple(value, _number)
    return value if isinstance(value, str) else _number(value)


def _tuple(row: Any, item: Callable[[Any], _T]) -> tuple[_T, ...]:
    if not isinstance(row, list):
        raise TypeError("a list was expected")
    return tuple(item(entry) for entry in row)


def _texts(row: Any) -> tuple[str, ...]:
    return _tuple(row, _text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("an integer was expected")
    return int(value)


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError("a number was expected")
    return value


def _extent(value: Any) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError("an extent is negative")
    return number


def _extent_or_symbol(value: Any) -> int | str:
    return value if isinstance(value, str) else _integer(value)
