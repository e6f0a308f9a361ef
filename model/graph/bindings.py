"""Symbolic dims and the numbers they are bound to: the text ``batch=8,seq=512`` and the defaults.

A shape that the file lacks is bound as well: ``shape:NAME=1x3x224x224`` (``scalar`` for no axes), NAME being a
graph input without a shape or what an operator writes whose result nobody can infer. It is kept as one number
per axis, ``shape:NAME[0]`` and so on, so that bindings are integers everywhere.

Knows names and integers; nothing of ONNX, files or operators. Pure standard library, so that the reader's
child process and the command line can both import it at no cost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from ..errors import UsageError

MAX_EXTENT = 2**31 - 1
DEFAULT_EXTENT = 128
SHAPE = "shape:"
MOST_AXES = 64
_DIGITS = 12  # more than any extent has
_EXTENTS = f"Extents are whole numbers from 1 to {MAX_EXTENT:,}."

_BATCH = re.compile(r"(^|_)(n|b|bs|bsz|batch\w*|\w*batch)$", re.IGNORECASE)
_ANONYMOUS = re.compile(r"(^unk__\d+$|dynamicdimension\.\d+$|^\?|^dim_?\d+$|^-?\d+$)", re.IGNORECASE)
_PLUS = re.compile(r"^(?P<name>.+)_plus_(?P<number>\d+)$")


def parse_bindings(text: str) -> dict[str, int]:
    """Read ``batch=8,seq=512,shape:image=1x3x224x224``.

    Raises
    ------
    UsageError : an item is not ``name=positive integer`` or ``shape:name=axes``, or a name is given twice.
    """
    out: dict[str, int] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        # A symbol may hold "=" in odd files; the number follows the last one.
        name, equals, number = item.rpartition("=")
        name, number = name.strip(), number.strip()
        if name.startswith(SHAPE) and equals:
            bound = shape_bindings(name.removeprefix(SHAPE), number)
            if not out.keys().isdisjoint(bound):
                raise UsageError(f"{name!r} is bound twice", lever="Give each shape once.")
            out.update(bound)
            continue
        if not equals or not name or not (number.isascii() and number.isdigit()):
            raise UsageError(
                f"binding {item.strip()!r} is not name=number", lever="Write e.g. --bind batch=8,seq=512."
            )
        if name in out:
            raise UsageError(f"{name!r} is bound twice", lever="Give each symbolic dim once.")
        out[name] = _extent(name, number)
    return out


def shape_bindings(name: str, text: str) -> dict[str, int]:
    """The bindings of one value's shape, written ``1x3x224x224`` or ``scalar``.

    Raises
    ------
    UsageError : `text` is no shape.
    """
    words = [] if text.strip() == "scalar" else re.split(r"\s*[x×*, ]\s*", text.strip())
    if len(words) > MOST_AXES or not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(
            f"{text.strip()!r} is no shape for {name!r}", lever="Write e.g. 1x3x224x224, or scalar."
        )
    if not words:
        return {f"{SHAPE}{name}[]": 1}
    return {f"{SHAPE}{name}[{axis}]": _extent(f"{SHAPE}{name}", word) for axis, word in enumerate(words)}


def _extent(name: str, digits: str) -> int:
    """The extent that `digits` write, however many they are: `int` alone takes quadratic time of long ones."""
    if len(digits) <= _DIGITS:
        extent = int(digits)
        check_extent(name, extent)
        return extent
    shown = digits if len(digits) <= 40 else f"{digits[:20]}… ({len(digits):,} digits)"
    raise UsageError(f"{name!r} is bound to {shown}", lever=_EXTENTS)


def shapes_of(bindings: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes among `bindings`, by the name of their value."""
    axes: dict[str, dict[int, int]] = {}
    for key, extent in bindings.items():
        name, _, axis = key.removeprefix(SHAPE).removesuffix("]").rpartition("[")
        if key.startswith(SHAPE) and key.endswith("]"):
            found = axes.setdefault(name, {})
            if axis.isascii() and axis.isdigit():
                found[int(axis)] = extent
    return {name: tuple(found[axis] for axis in sorted(found)) for name, found in axes.items()}


def bindings_text(bindings: Mapping[str, int]) -> dict[str, str]:
    """Per symbol its number, and per bound shape the axes together, as `parse_bindings` reads them."""
    out = {name: str(number) for name, number in bindings.items() if not name.startswith(SHAPE)}
    for name, shape in shapes_of(bindings).items():
        out[SHAPE + name] = "x".join(map(str, shape)) or "scalar"
    return out


def check_extent(name: str, extent: int) -> None:
    """Refuse an extent that no dim can have.

    Raises
    ------
    UsageError : `extent` is not an integer in 1 .. 2^31 - 1. ONNX knows empty dims; a loop nest of one has no tile and
        no trip, and what it would cost is nothing.
    """
    if isinstance(extent, bool) or not isinstance(extent, int) or not 0 <= extent <= MAX_EXTENT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{name!r} is bound to {extent}", lever=_EXTENTS)
    if extent == 0:
        raise UsageError(
            f"{name!r} is bound to 0, and an empty dim leaves no loops to cut into tiles",
            lever="Bind 1 or more; a first step without a KV cache is the model's prefill.",
        )


def symbols_of(text: str) -> tuple[str, ...]:
    """The symbols in a symbolic dim as files write it: ``past + 1`` has one, ``past``.

    A text that is not plain arithmetic over names is one symbol as a whole.
    """
    tree = _arithmetic(text)
    if tree is None:
        return (text,)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(name.id for name in sorted(names, key=lambda name: name.col_offset)))


def evaluate(text: str, values: Mapping[str, int]) -> int | None:
    """The number of a symbolic dim under `values`; None where a symbol has none."""
    if text in values:
        return values[text]
    tree = _arithmetic(text)
    return None if tree is None else _value(tree, values)


def _arithmetic(text: str) -> ast.expr | None:
    """The tree of ``a + 1``, ``2*a``, ``a//b``; None for a bare name or anything else."""
    if len(text) > 120 or not re.search(r"[+\-*/]", text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Load)
    for node in ast.walk(tree):
        if not isinstance(node, allowed) or (isinstance(node, ast.Constant) and type(node.value) is not int):
            return None
    return tree


def _value(tree: ast.expr, values: Mapping[str, int]) -> int | None:
    if isinstance(tree, ast.Constant):
        return tree.value if isinstance(tree.value, int) else None
    if isinstance(tree, ast.Name):
        return values.get(tree.id)
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = _value(tree.left, values), _value(tree.right, values)
    if left is None or right is None:
        return None
    if isinstance(tree.op, ast.Add):
        return left + right
    if isinstance(tree.op, ast.Sub):
        return left - right
    if isinstance(tree.op, ast.Mult):
        return left * right
    return left // right if right else None


def default_extent(symbol: str, axes: Iterable[int]) -> int:
    """What an unbound symbol stands for: 1 for what looks like a batch, else `DEFAULT_EXTENT`.

    Parameters
    ----------
    symbol : name in the file. ``n``, ``b``, ``batch...`` are batches; so are names that say nothing
        (``unk__7``, ``p2o.DynamicDimension.0``) where they only stand at the first axis.
    axes : the axes of graph inputs at which the symbol stands.
    """
    if _BATCH.search(symbol):
        return 1
    if _ANONYMOUS.search(symbol) and not any(axes):
        return 1
    return DEFAULT_EXTENT


def resolve(
    positions: Mapping[str, Iterable[int]], given: Mapping[str, int], proposed: Mapping[str, int]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Numbers for all symbols: the given ones, those that follow from them (``batch_plus_1``), defaults.

    Parameters
    ----------
    positions : per symbol, in order of appearance, the axes of graph inputs at which it stands.
    given : the user's numbers.
    proposed : the file's own defaults.

    Returns
    -------
    The values of all symbols, and the symbols that got a default.

    Raises
    ------
    UsageError : `given` names symbols that the file does not have.
    """
    unknown = [name for name in given if name not in positions]
    if unknown:
        have = ", ".join(positions) if positions else "none"
        raise UsageError(
            f"the graph has no symbolic dim {', '.join(repr(name) for name in unknown)}",
            lever=f"Symbolic dims of this graph: {have}.",
        )
    values = {name: given[name] for name in positions if name in given}
    values.update((name, proposed[name]) for name in positions if name in proposed and name not in given)
    defaulted: list[str] = []
    for name, axes in positions.items():
        if name not in values and not _follows(name, positions):
            values[name] = default_extent(name, axes)
            defaulted.append(name)
    for name in positions:
        match = _PLUS.match(name)
        if name not in values and match:
            values[name] = values[match["name"]] + int(match["number"])
    return {name: values[name] for name in positions}, tuple(defaulted)


def _follows(name: str, positions: Mapping[str, Iterable[int]]) -> bool:
    """Whether `name` is ``<other symbol>_plus_<number>``."""
    match = _PLUS.match(name)
    return bool(match and match["name"] in positions and len(match["number"]) < 6)
