"""From a file or the name of a sample to an `OperatorGraph`.

Sniffs the bytes, has the child process read them, gives every node its loop nest from the table. Knows the
order of these steps and the naming rules; how ONNX looks is the child's, what an op type means the table's.
No Qt, no global state: safe in any worker thread.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import FileError
from ..packaged import named_file
from .bindings import check_extent
from .child import read_in_child
from .graph import Access, Dim, GraphWarning, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from .raw import Attribute, RawGraph, RawNode, RawValue
from .row import Call, Loops, Map, Operand, Unmodelled
from .sniff import check_bytes
from .table import loops_of

_UNREALISTIC = 2**50  # elements; a tensor beyond this is a mistake or an attack
_TEXT_LIMIT = 200  # characters of an attribute that is kept


def load_graph(
    source: str | Path,
    bindings: Mapping[str, int] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> OperatorGraph:
    """Read a model.

    Parameters
    ----------
    source : path of an ONNX file, or the name of a packaged sample.
    bindings : numbers for symbolic dims; others get defaults, and a warning says which.
    cancelled : asked every 50 ms from this thread; reading stops once it says True.

    Raises
    ------
    FileError : no such file, not an ONNX file, damaged, or beyond the reader's limits.
    UsageError : `bindings` names symbols that the file does not have, or numbers that no dim can have.
    child.Cancelled : `cancelled` said True.
    """
    given = dict(bindings or {})
    for name, extent in given.items():
        check_extent(name, extent)
    path = _find(source)
    content = _bytes(path)
    check_bytes(content, str(path))
    raw = read_in_child(content, given, str(path), cancelled)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return graph_of(raw, name=path.stem, path=str(path), digest=digest)


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    packaged = named_file(str(source), "sample_graphs", ".onnx")
    if packaged is not None:
        return packaged
    if path.is_dir():
        raise FileError(
            "this is a folder, not a model file", where=str(source), lever="Name a file inside it."
        )
    raise FileError(
        "no such file, and no packaged sample of that name",
        where=str(source),
        lever="`tilewright samples` lists the samples.",
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"it cannot be read ({error.strerror or error})", where=str(path)) from error
    except MemoryError as error:
        raise FileError("the file does not fit into memory", where=str(path)) from error


def graph_of(raw: RawGraph, *, name: str, path: str = "", digest: str = "") -> OperatorGraph:
    """The graph of what the child has read. Every node becomes an operator, an opaque one where need be."""
    warnings = [GraphWarning(*warning) for warning in raw.warnings]
    tensors, index_of = _tensors(raw, warnings)
    names = _names(raw.nodes)
    operators: list[Operator] = []
    for index, node in enumerate(raw.nodes):
        operator = _operator(index, names[index], node, raw, index_of)
        operators.append(operator)
        if operator.reason:
            warnings.append(GraphWarning(operator.name, operator.reason, "It is opaque: a fusion barrier."))
    return OperatorGraph(
        name=name,
        tensors=tuple(tensors),
        operators=tuple(operators),
        path=path,
        digest=digest,
        bindings=raw.bindings,
        symbols=raw.symbols,
        warnings=tuple(warnings),
    )


# ---------------------------------------------------------------- tensors


def _tensors(raw: RawGraph, warnings: list[GraphWarning]) -> tuple[list[Tensor], dict[str, int]]:
    """All tensors that an operator touches, the graph's inputs and its outputs."""
    written = {name for node in raw.nodes for name in node.outputs if name}
    outputs, inputs = set(raw.outputs), set(raw.inputs)
    tensors: list[Tensor] = []
    index_of: dict[str, int] = {}
    for value in raw.values.values():
        if value.name in written:
            role = TensorRole.ACTIVATION
        elif value.constant and value.name not in inputs:
            role = TensorRole.WEIGHT
        else:
            role = TensorRole.INPUT
        index_of[value.name] = len(tensors)
        tensors.append(
            Tensor(
                len(tensors),
                value.name,
                value.dtype,
                value.shape,
                role,
                value.name in outputs,
                value.declared,
            )
        )
        if value.shape is not None and math.prod(value.shape) > _UNREALISTIC:
            size = "x".join(map(str, value.shape))
            warnings.append(GraphWarning(value.name, f"unrealistic size {size}", "Check the file's dims."))
    return tensors, index_of


# ---------------------------------------------------------------- operators


def _names(nodes: tuple[RawNode, ...]) -> list[str]:
    """Per node its ONNX name where that is unique in the file, else ``<OpType>_<index>``."""
    counts = Counter(node.name for node in nodes)
    taken = {name for name, count in counts.items() if count == 1 and name.strip()}
    names: list[str] = []
    for index, node in enumerate(nodes):
        if node.name in taken:
            names.append(node.name)
            continue
        name = f"{node.op_type}_{index}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _operator(index: int, name: str, node: RawNode, raw: RawGraph, index_of: Mapping[str, int]) -> Operator:
    try:
        if node.reason:
            raise Unmodelled(node.reason)
        call = _call(node, raw)
        loops = loops_of(call, node.domain)
        reason = ""
    except Unmodelled as unmodelled:
        loops, reason = _opaque(node, raw), str(unmodelled)
    reads, writes = (*node.inputs, *node.captured), node.outputs
    return Operator(
        index=index,
        name=name,
        op_type=node.op_type,
        kind=loops.kind,
        dims=loops.dims,
        inputs=tuple(_access(m, reads, index_of) for m in loops.inputs),
        outputs=tuple(_access(m, writes, index_of) for m in loops.outputs),
        domain=node.domain,
        identity=node.identity,
        vector_ops=loops.vector_ops,
        online=loops.online,
        linear=loops.linear,
        attributes=tuple((key, _attribute_text(value)) for key, value in node.attributes.items()),
        scope=node.scope,
        reason=reason,
    )


def _access(map_: Map, names: tuple[str, ...], index_of: Mapping[str, int]) -> Access:
    return Access(index_of[names[map_.position]], map_.axes, map_.whole, map_.addressed)


def _call(node: RawNode, raw: RawGraph) -> Call:
    """The call with its operands.

    Raises
    ------
    Unmodelled : an operand has no known shape, or nested graphs read outer values.
    """
    inputs = tuple(_operand(raw.values.get(name), name) for name in node.inputs)
    outputs = tuple(_operand(raw.values.get(name), name) for name in node.outputs)
    return Call(node.op_type, inputs, outputs, node.attributes, node.version)


def _operand(value: RawValue | None, name: str) -> Operand | None:
    if not name:
        return None
    if value is None or value.shape is None:
        raise Unmodelled(f"the shape of {name!r} is unknown")
    return Operand(name, value.shape, value.dtype, value.constant, value.values, value.distinct)


def _opaque(node: RawNode, raw: RawGraph) -> Loops:
    """Compulsory bytes and nothing else: every operand of known size once, no dims."""

    def maps(names: tuple[str, ...]) -> tuple[Map, ...]:
        out: list[Map] = []
        for position, name in enumerate(names):
            value = raw.values.get(name)
            if name and value is not None:
                size = 0 if value.shape is None else math.prod(value.shape)
                out.append(Map(position, whole=True, addressed=size))
        return tuple(out)

    dims: tuple[Dim, ...] = ()
    return Loops(OpKind.OPAQUE, dims, maps((*node.inputs, *node.captured)), maps(node.outputs))


def _attribute_text(value: Attribute) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"
