"""From a file or the name of a sample to an `OperatorGraph`.

Sniffs the bytes, has the child process read them, gives every node its loop nest from the table. Knows the
order of these steps and the naming rules; how a format looks is its reader's, what an op type means the table's.
No Qt, no global state: safe in any worker thread.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..packaged import input_file
from .bindings import check_extent
from .child import read_in_child, request
from .graph import Access, GraphWarning, Operator, OperatorGraph, Tensor, TensorRole
from .incoming import incoming
from .nests import Nest, Nests
from .raw import RawGraph, RawNode, read_answer
from .row import Map
from .sniff import check_bytes, check_start

_UNREALISTIC = 2**50  # elements; a tensor beyond this is a mistake or an attack
_MOST_POINTS = 2**55  # of one operator: beyond, its bytes and cycles may not fit into 64 bits


def load_graph(
    source: str | Path,
    bindings: Mapping[str, int] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> OperatorGraph:
    """Read a model.

    Parameters
    ----------
    source : path of a model file in one of `sniff.Format`, or the name of a packaged sample.
    bindings : numbers for symbolic dims; others get defaults, and a warning says which.
    cancelled : asked every 50 ms from this thread; reading stops once it says True.

    Raises
    ------
    FileError : no such file, no format that is read here, damaged, or beyond the reader's limits.
    UsageError : `bindings` names symbols that the file does not have, or numbers that no dim can have.
    incoming.Cancelled : `cancelled` said True.
    """
    given = dict(bindings or {})
    for name, extent in given.items():
        check_extent(name, extent)
    path = _find(source)
    where = str(path)
    with incoming(path, request(given), lambda head: check_start(head, where), cancelled) as file:
        check_bytes(file.content, where)
        answer = read_in_child(file, where, cancelled)
    with _collector_at_rest():
        raw = read_answer(answer, where)
        return graph_of(raw, name=path.stem, path=where, digest=file.digest)


@contextmanager
def _collector_at_rest() -> Generator[None]:
    """No search for cycles while a graph is built: it makes none, and 50,000 operators doubled the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _find(source: str | Path) -> Path:
    return input_file(
        source,
        "sample_graphs",
        ".onnx",
        "no such file, and no packaged sample of that name",
        "`tilewright samples` lists the samples.",
    )


def graph_of(raw: RawGraph, *, name: str, path: str = "", digest: str = "") -> OperatorGraph:
    """The graph of what the child has read. Every node becomes an operator, an opaque one where need be."""
    nests = Nests(raw).of_all()
    tensors = _tensors(raw, nests)
    index_of = {tensor.name: tensor.index for tensor in tensors}
    operators = tuple(
        _operator(index, name, node, nest, raw, index_of)
        for index, (name, node, nest) in enumerate(zip(_names(raw.nodes), raw.nodes, nests, strict=True))
    )
    bodies = {
        f"{node.identity}/{label}": graph_of(body, name=f"{operator.name}/{label}")
        for node, operator in zip(raw.nodes, operators, strict=True)
        for label, _, body in node.bodies
    }
    warnings = [GraphWarning(*warning) for warning in raw.warnings]
    warnings += [
        GraphWarning(tensor.name, f"unrealistic size {size_text(tensor.shape)}", "Check the file's dims.")
        for tensor in tensors
        if (tensor.elements or 0) > _UNREALISTIC
    ]
    warnings += _opaque_warnings(operators, tensors)
    return OperatorGraph(
        name=name,
        tensors=tensors,
        operators=operators,
        path=path,
        digest=digest,
        bindings=raw.bindings,
        symbols=raw.symbols,
        warnings=tuple(warnings),
        refusal=raw.refusal or _uncountable(operators, tensors),
        bodies=bodies,
        fusions=_fusions(raw),
    )


def _fusions(raw: RawGraph) -> tuple[tuple[int, ...], ...]:
    """The file's own groups as operator indices; what was folded away is in none."""
    if not raw.groups:
        return ()
    index_of = {node.identity: index for index, node in enumerate(raw.nodes)}
    groups = (tuple(sorted({index_of[i] for i in group if i in index_of})) for group in raw.groups)
    return tuple(group for group in groups if group)


def _uncountable(operators: tuple[Operator, ...], tensors: tuple[Tensor, ...]) -> str:
    """What is too large for the numbers that the cost model counts with; empty where nothing is."""
    for tensor in tensors:
        if (tensor.elements or 0) > _UNREALISTIC:
            return f"tensor {tensor.name!r} has the unrealistic size {size_text(tensor.shape)}"
    for operator in operators:
        if operator.points > _MOST_POINTS:
            return f"operator {operator.name!r} has {operator.points:.1e} iterations, an unrealistic size"
    return ""


def _opaque_warnings(operators: tuple[Operator, ...], tensors: tuple[Tensor, ...]) -> list[GraphWarning]:
    """One warning per opaque operator, and one for all that are opaque only because of one before them."""
    opaque = {access.tensor for operator in operators if operator.reason for access in operator.outputs}
    out: list[GraphWarning] = []
    behind: list[str] = []
    for operator in operators:
        unknown = [a.tensor for a in operator.inputs if tensors[a.tensor].shape is None]
        if operator.reason and unknown and all(tensor in opaque for tensor in unknown):
            behind.append(operator.name)
        elif operator.reason:
            out.append(GraphWarning(operator.name, operator.reason, "It is opaque: a fusion barrier."))
    if behind:
        more = len(behind) - 1
        here = f"here nor in {more:,} more operator{'s' * (more > 1)}" if more else "here"
        lever = "They are opaque as well." if more else "It is opaque as well."
        what = f"no shapes {here}, because of opaque ones before"
        out.append(GraphWarning(behind[0], what, lever))
    return out


def size_text(shape: tuple[int | str, ...] | None) -> str:
    """A shape for a person: ``1x512x4096``, ``scalar``, or ``?`` where it is unknown."""
    if shape is None:
        return "?"
    return "x".join(map(str, shape)) or "scalar"


# ---------------------------------------------------------------- tensors and operators


def _tensors(raw: RawGraph, nests: list[Nest]) -> tuple[Tensor, ...]:
    """The graph's inputs and outputs and every tensor that an operator touches."""
    written = {name for nest in nests for name, _ in nest.writes}
    read = {_stored(name, raw) for nest in nests for name, _ in nest.reads}
    inputs, outputs = set(raw.inputs), set(raw.outputs)
    tensors: list[Tensor] = []
    for value in raw.values.values():
        if value.name in written:
            role = TensorRole.ACTIVATION
        elif value.constant and value.name not in inputs:
            role = TensorRole.WEIGHT
        else:
            role = TensorRole.INPUT
        if value.name in written or value.name in read or value.name in inputs or value.name in outputs:
            is_output = value.name in outputs
            row = (len(tensors), value.name, value.dtype, value.shape, role, is_output, value.declared)
            tensors.append(Tensor(*row))
    return tuple(tensors)


def _stored(name: str, raw: RawGraph) -> str:
    """The tensor that is read for a value: a constant transpose of a weight is that weight."""
    value = raw.values.get(name)
    return value.transpose_of if value is not None and value.transpose_of in raw.values else name


def _access(name: str, m: Map, raw: RawGraph, index_of: Mapping[str, int]) -> Access:
    stored = _stored(name, raw)
    axes = m.axes
    if stored != name and not m.whole:
        perm = raw.values[name].perm
        if sorted(perm) != list(range(len(axes))):
            return Access(index_of[stored], (), True, m.addressed)
        axes = tuple(axes[perm.index(axis)] for axis in range(len(axes)))
    return Access(index_of[stored], axes, m.whole, m.addressed)


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


def _operator(
    index: int, name: str, node: RawNode, nest: Nest, raw: RawGraph, index_of: Mapping[str, int]
) -> Operator:
    loops = nest.loops
    return Operator(
        index=index,
        name=name,
        op_type=node.op_type,
        kind=loops.kind,
        dims=loops.dims,
        inputs=tuple(_access(value, m, raw, index_of) for value, m in nest.reads),
        outputs=tuple(_access(value, m, raw, index_of) for value, m in nest.writes),
        domain=node.domain,
        identity=node.identity,
        vector_ops=loops.vector_ops,
        online=loops.online,
        linear=loops.linear,
        attributes=nest.attributes,
        scope=node.scope,
        reason=nest.reason,
        band=loops.band,
        updates=loops.updates,
        runs=tuple((f"{node.identity}/{label}", runs) for label, runs, _ in node.bodies),
    )
