"""ONNX files as plain facts: parse, check, expand functions, hand to inference, write down what was found.

Runs in the reader's child process only (`child.py`), because it and `inference.py` are the only places
that touch protobufs from others. Knows how ONNX writes things; knows no loop nests. External data is never
opened: only dims and element types count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, ValueInfoProto

from ..errors import FileError, UsageError
from . import bindings as symbolic
from .answer import declared_shape, short_text, size_text, written_down
from .constants import take_constants
from .control import PREFIXES, Control, Parameters
from .functions import FileNode, Functions
from .inference import Inference, dtype_name
from .known import NOTHING, Known
from .sniff import damage
from .wiring import Warnings, Wiring, listed

DEFAULTS_KEY = "tilewright.bind"  # metadata: what symbolic dims stand for where the user does not say


def read_model(content: bytes, given: Mapping[str, int]) -> dict[str, Any]:
    """Everything that the table needs to know of a file, as JSON (the fields of `raw.RawGraph`).

    Raises
    ------
    FileError : not a protobuf, cut off, nested too deep, empty, or with names that are no text.
    UsageError : `given` binds a symbol that the file does not have.
    """
    model = _parse(content)
    _check_text(model)
    try:
        return facts(model, given)
    except (TypeError, ValueError, AttributeError):
        _check_all_text(model)
        raise


def facts(model: ModelProto, given: Mapping[str, int]) -> dict[str, Any]:
    """The same of a model that is parsed already."""
    return _File(model, given).answer()


class _File:
    """One file being read: its functions, bindings and warnings, which all of its graphs share."""

    def __init__(self, model: ModelProto, given: Mapping[str, int]) -> None:
        self._model, self._given = model, given
        self._warnings: Warnings = []
        self._functions = Functions(model, self._warnings)
        self._parameters = Parameters(given)
        self._control = Control(self._functions, self._parameters, self._warnings, self._body)
        self._bindings: dict[str, int] = {}
        self._refusal = ""
        self._shapes = symbolic.shapes_of(given)  # what the user says of values that nobody can infer
        self._shaped: set[str] = set()  # those of them that were of use
        self._values: set[str] = set()  # the names of all values of the file, as far as a shape may be given

    def answer(self) -> dict[str, Any]:
        """The whole file."""
        graph = self._model.graph
        constants, nodes = take_constants(graph, self._functions.nodes(graph), self._warnings)
        inputs = [value for value in graph.input if value.name not in constants]
        own = next((entry.value for entry in self._model.metadata_props if entry.key == DEFAULTS_KEY), "")
        other = (*PREFIXES, symbolic.SHAPE)
        sizes = {name: number for name, number in self._given.items() if not name.startswith(other)}
        shapeless = {
            value.name: self._shapes[value.name]
            for value in inputs
            if value.name in self._shapes and not value.type.tensor_type.HasField("shape")
        }
        self._shaped.update(shapeless)
        symbols, self._bindings, known = _bind(inputs, sizes, own, shapeless, self._warnings)
        written, _ = self._graph(graph, nodes, known, constants)
        self._check_parameters()
        self._check_shapes()
        parameters = self._parameters.values
        shapes = {name: self._shapes[name] for name in self._shapes if name in self._shaped}
        bound = {**self._bindings, **parameters}
        for name, shape in shapes.items():
            bound |= symbolic.shape_bindings(name, "x".join(map(str, shape)) or "scalar")
        return {
            **written,
            "symbols": [*symbols, *parameters],
            "bindings": [[name, number] for name, number in bound.items()],
            "warnings": [[short_text(part) for part in warning] for warning in self._warnings],
            "refusal": short_text(self._refusal),
        }

    def _graph(
        self, graph: GraphProto, nodes: list[FileNode], known: dict[str, Known], constants: dict[str, Known]
    ) -> tuple[dict[str, Any], list[Known]]:
        """One graph written down, and what is known of its outputs. `known`: its inputs."""
        outputs = [value.name for value in graph.output]
        wiring = Wiring(nodes, [*known, *constants], outputs, self._warnings)
        self._refusal = self._refusal or wiring.refusal
        known = {**known, **dict.fromkeys(wiring.undefined, NOTHING)}
        stored = {value.name: value for value in (*graph.value_info, *graph.output)}

        self._values.update(known, (name for node in wiring.order for name in node.proto.output))

        shaped = self._shapes
        reads = {out: n.proto.input for n in wiring.order for out in n.proto.output if out in shaped}

        def said(name: str) -> Known:
            return _known(stored[name], self._bindings) if name in stored else NOTHING

        def hint(name: str) -> Known:
            if name not in self._shapes:
                return said(name)
            self._shaped.add(name)
            # What nobody knows of its type: as the first operand of its operator that has one.
            read = (inference.known.get(operand, NOTHING).dtype for operand in reads[name])
            return Known(said(name).dtype or next(filter(None, read), ""), self._shapes[name])

        inference = Inference(self._model, wiring.order, known, constants, hint, self._control.enter)
        inference.run()
        self._contradictions(inference, said)
        results = [inference.known.get(name, NOTHING) for name in outputs]
        stored.update((value.name, value) for value in graph.input)
        return written_down(graph.name, list(known), outputs, inference, stored), results

    def _body(
        self, graph: GraphProto, path: str, inputs: dict[str, Known], captured: dict[str, Known]
    ) -> tuple[dict[str, Any], list[Known]]:
        """A nested graph; see `control.ReadBody`."""
        own, nodes = take_constants(graph, self._functions.nodes(graph, path), self._warnings)
        return self._graph(graph, nodes, inputs, {**captured, **own})

    def _check_parameters(self) -> None:
        """Report what was assumed of control flow.

        Raises
        ------
        UsageError : a trip count or branch was given for a node that has none.
        """
        unknown = self._parameters.unknown()
        if unknown:
            have = ", ".join(self._parameters.values) or "none"
            raise UsageError(
                f"the graph has no parameter {', '.join(map(repr, unknown))}",
                lever=f"Trip counts and branches of this graph: {have}.",
            )
        if self._parameters.assumed:
            chosen = listed([f"{name}={self._parameters.values[name]}" for name in self._parameters.assumed])
            lever = "Bind them: --bind name=number; branch 1 is then_branch, 2 is else_branch."
            self._warnings.append(("control flow", f"assumed {chosen}", lever))

    def _check_shapes(self) -> None:
        """Report shapes that were given in vain.

        Raises
        ------
        UsageError : a shape was given for a value that the file does not have.
        """
        for name in self._shapes:
            if name not in self._values:
                raise UsageError(
                    f"the graph has no value {name!r} to give a shape to",
                    lever="Name a graph input, or what an operator writes: `tilewright inspect` lists them.",
                )
            if name not in self._shaped:
                what = "its shape follows from the file; the one that was given is not used"
                self._warnings.append((name, what, "Bind the symbolic dims instead."))

    def _contradictions(self, inference: Inference, hint: Callable[[str], Known]) -> None:
        """Report where the file states another shape than the one that follows from its inputs."""
        found: list[str] = []
        for node in inference.live:
            for name in node.proto.output:
                known, said = inference.known.get(name, NOTHING).shape, hint(name).shape
                if name and known is not None and said is not None and known != said:
                    found.append(f"{name} is {size_text(known)}, not {size_text(said)}")
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            what = (
                f"it states other shapes than those that follow from its inputs: {'; '.join(found[:3])}{more}"
            )
            self._warnings.append(
                ("stored shapes", what, "The computed ones are used; infer its shapes again.")
            )


# ---------------------------------------------------------------- parsing


def _parse(content: bytes) -> ModelProto:
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # DecodeError lives in protobuf, whose module names differ by version
        what, lever = damage(content)
        raise FileError(what, lever=lever) from error
    if not model.HasField("graph"):
        raise FileError(
            "this is no ONNX model: the message holds no graph", lever="Check that this is the model file."
        )
    graph = model.graph
    if not graph.node and not graph.output and not graph.initializer:
        raise FileError("the model is empty: no operators, no outputs", lever="Export the model again.")
    return model


def _check_text(model: ModelProto) -> None:
    """Refuse names that are no UTF-8: protobuf hands them on as bytes.

    Nested graphs, metadata and the like are looked at only where they have made something else fail.
    """
    graph = model.graph
    names = [
        value.name
        for part in (graph.input, graph.output, graph.initializer, graph.value_info)
        for value in part
    ]
    for node in (*graph.node, *(node for function in model.functions for node in function.node)):
        names += (node.name, node.op_type, node.domain, *node.input, *node.output)
        names += (attribute.name for attribute in node.attribute)
    for value in graph.input:
        names += (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    bad = next((n for n in names if not isinstance(n, str)), None)  # pyright: ignore[reportUnnecessaryIsInstance]
    if bad is not None:
        raise _no_text(bad)


def _check_all_text(model: ModelProto) -> None:
    """The same for every text of the file, at any depth."""
    rest: list[Any] = [model]
    while rest:
        for field, value in rest.pop().ListFields():
            values = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
            if field.type == field.TYPE_MESSAGE:
                rest.extend(values)
            elif field.type == field.TYPE_STRING and (
                bad := next((v for v in values if isinstance(v, bytes)), None)
            ):
                raise _no_text(bad)


def _no_text(bad: Any) -> FileError:
    return FileError(
        f"a name in it is no text: {bad[:80]!r}", lever="The file is damaged; export or download it again."
    )


# ---------------------------------------------------------------- inputs and bindings


def _bind(
    inputs: list[ValueInfoProto],
    given: Mapping[str, int],
    own: str,
    shapes: Mapping[str, tuple[int, ...]],
    warnings: Warnings,
) -> tuple[tuple[str, ...], dict[str, int], dict[str, Known]]:
    """Symbols of the graph inputs, the number of each, and the inputs' shapes under them.

    `own`: what the file itself proposes for symbols, as ``batch=1,seq=512``. `shapes`: of inputs without one.
    """
    positions: dict[str, list[int]] = {}
    declared: dict[str, tuple[int | str, ...] | None] = {}
    for value in inputs:
        given_shape = shapes.get(value.name)
        declared[value.name] = _input_shape(value, warnings) if given_shape is None else given_shape
        for axis, extent in enumerate(declared[value.name] or ()):
            if isinstance(extent, str):
                for symbol in symbolic.symbols_of(extent):
                    positions.setdefault(symbol, []).append(axis)
    values, defaulted = symbolic.resolve(positions, given, _proposed(own))
    if defaulted:
        chosen = ", ".join(f"{name}={values[name]}" for name in defaulted)
        warnings.append(("symbolic dims", f"assumed {chosen}", "Bind them: --bind name=number."))
    known: dict[str, Known] = {}
    for value in inputs:
        dtype = dtype_name(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else ""
        known[value.name] = Known(dtype, _numbers(declared[value.name], values, value.name, warnings))
    return tuple(positions), values, known


def _proposed(own: str) -> dict[str, int]:
    try:
        return symbolic.parse_bindings(own)
    except UsageError:
        return {}  # a proposal that cannot be read is none


def _input_shape(value: ValueInfoProto, warnings: Warnings) -> tuple[int | str, ...] | None:
    """The declared shape of a graph input; a dim without a name gets one that can be bound."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "untyped value"
        warnings.append(
            (value.name, f"is a {kind.removesuffix('_type')}, not a tensor", "It has no size here.")
        )
        return None
    if not value.type.tensor_type.HasField("shape"):
        warnings.append(
            (
                value.name,
                "the file gives this input no shape",
                f"Give it one: --bind shape:{value.name}=1x3x224x224, or in the file.",
            )
        )
        return None
    out: list[int | str] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        name = f"{value.name}_{axis}"
        if dim.dim_param:
            out.append(dim.dim_param if dim.dim_param != "?" else name)
        elif not dim.HasField("dim_value"):
            out.append(name)
        elif dim.dim_value == -1:
            warnings.append((value.name, f"axis {axis} is -1, taken as unknown", f"Bind {name} to a number."))
            out.append(name)
        else:
            out.append(dim.dim_value)
    return tuple(out)


def _numbers(
    declared: tuple[int | str, ...] | None, values: Mapping[str, int], where: str, warnings: Warnings
) -> tuple[int, ...] | None:
    if declared is None:
        return None
    shape = [extent if isinstance(extent, int) else symbolic.evaluate(extent, values) for extent in declared]
    if not all(extent is not None and 0 <= extent < 2**63 for extent in shape):
        text = "x".join(map(str, declared))
        warnings.append((where, f"its shape {text} is not possible", "What depends on it has no shape."))
        return None
    return tuple(extent for extent in shape if extent is not None)


def _known(value: ValueInfoProto, bindings: Mapping[str, int]) -> Known:
    """What the file itself says of a value under `bindings`; only a last resort (GRAPHS 3)."""
    if not value.type.HasField("tensor_type"):
        return Known("", None)
    dtype = dtype_name(value.type.tensor_type.elem_type)
    declared = declared_shape(value)
    if declared is None:
        return Known(dtype, None)
    shape = [e if isinstance(e, int) else symbolic.evaluate(e, bindings) for e in declared]
    if any(extent is None or extent < 0 for extent in shape):
        return Known(dtype, None)
    return Known(dtype, tuple(extent for extent in shape if extent is not None))
