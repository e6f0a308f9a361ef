"""What the reader's child says about a file: nodes, values and warnings as plain JSON, checked on arrival.

The child has parsed a file from someone else and may have been taken over by it; so nothing that it sends
is trusted beyond this page: JSON only (never a pickle), every field checked for its type. Knows nothing of
ONNX's protobuf and nothing of loop nests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
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
    """A whole file, nodes in topological order. ``refusal``: why nothing may be simulated; else ""."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, RawValue]
    nodes: tuple[RawNode, ...]
    symbols: tuple[str, ...]
    bindings: tuple[tuple[str, int], ...]
    warnings: tuple[tuple[str, str, str], ...]
    refusal: str


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
        values={value.name: value for value in map(_value, answer["values"])},
        nodes=tuple(map(_node, answer["nodes"])),
        symbols=_texts(file["symbols"]) if file else (),
        bindings=tuple((_text(name), _integer(number)) for name, number in file["bindings"]) if file else (),
        warnings=tuple((_text(a), _text(b), _text(c)) for a, b, c in file["warnings"]) if file else (),
        refusal=_text(file["refusal"]) if file else "",
    )


def _value(row: Any) -> RawValue:
    name, dtype, shape, declared, constant, values, distinct, transpose_of, perm = row
    return RawValue(
        _text(name),
        _text(dtype),
        None if shape is None else _tuple(shape, _extent),
        None if declared is None else _tuple(declared, _extent_or_symbol),
        bool(constant),
        None if values is None else _tuple(values, _number),
        None if distinct is None else _integer(distinct),
        _text(transpose_of),
        _tuple(perm, _extent),
    )


def _node(row: Any) -> RawNode:
    op_type, domain, name, identity, version, inputs, outputs, captured, attributes, scope, reason, bodies = (
        row
    )
    return RawNode(
        _text(op_type),
        _text(domain),
        _text(name),
        _text(identity),
        _integer(version),
        _texts(inputs),
        _texts(outputs),
        _texts(captured),
        {_text(key): _attribute(value) for key, value in attributes.items()},
        _texts(scope),
        _text(reason),
        tuple((_text(label), _extent(runs), _graph(body, None)) for label, runs, body in bodies),
    )


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
