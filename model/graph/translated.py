"""What the readers of other formats write down: a graph in ONNX's own terms, held in memory.

So everything after the parsing is the same for every format: wiring faults, bindings, folding of constants
(`onnx_file.facts`). Operators keep the names of their format and live in a domain of their own (``xla``,
``aten``), whose rows stand beside those of ONNX. Runs in the reader's child process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from ..errors import FileError
from .raw import Attribute

Shape = tuple[int | str, ...]
OPERATOR_LIMIT = 200_000  # what inlined calls may become
DEFAULTS_KEY = "tilewright.bind"
_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_OPSET = 23
_DOMAINS = ("", "xla", "aten")
_LARGEST = 2**63 - 1
# This program's element types by ONNX's number; those that ONNX lacks have none and are 0 bits wide.
_DTYPES = {
    {"float": "float32", "double": "float64"}.get(name.lower(), name.lower()): number
    for name, number in TensorProto.DataType.items()
    if number
}


def fault(
    what: str, line: int = 0, lever: str = "Export it again, or check it with the tool that wrote it."
) -> FileError:
    """An error in a text: where it is and what is wrong."""
    return FileError(f"line {line:,}: {what}" if line else what, lever=lever)


class Translation:
    """A graph under construction. Shapes may hold symbolic dims as text.

    Attributes
    ----------
    groups : per label the positions of the operators that the file itself fuses.
    """

    def __init__(self, name: str) -> None:
        self.groups: dict[str, list[int]] = {}
        self._graph = GraphProto(name=name)
        self._defaults: dict[str, int] = {}
        self._types: dict[str, ValueInfoProto] = {}

    def __len__(self) -> int:
        return len(self._graph.node)

    @property
    def operators(self) -> Sequence[NodeProto]:
        """What was added so far."""
        return self._graph.node

    def input(self, name: str, dtype: str, shape: Shape | None) -> None:
        """A value from outside."""
        self._types[name] = _declared(name, dtype, shape)
        self._graph.input.append(self._types[name])

    def weight(self, name: str, dtype: str, shape: Sequence[int]) -> None:
        """A constant. Its payload is nobody's: these formats write axes and bounds as attributes."""
        dims = [_extent(extent, name) for extent in shape]
        self._graph.initializer.add(
            name=name, data_type=_DTYPES.get(dtype, 0), dims=dims, data_location=TensorProto.EXTERNAL
        )

    def node(
        self,
        op_type: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        *,
        name: str = "",
        domain: str = "",
        scope: Sequence[str] = (),
        group: str = "",
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        """One operator. ``scope``: dotted block paths, outermost first; ``group``: the fusion it belongs to."""
        if len(self._graph.node) >= OPERATOR_LIMIT:
            raise FileError(f"it has more than {OPERATOR_LIMIT:,} operators", lever="Split the model.")
        if group:
            self.groups.setdefault(group, []).append(len(self._graph.node))
        node = self._graph.node.add(op_type=op_type, domain=domain, name=name)
        node.input.extend(inputs)
        node.output.extend(outputs)
        for key, value in (attributes or {}).items():
            node.attribute.append(_attribute(key, value))
        if scope:
            quoted = [part.replace("'", "’") for part in (*scope, name)]
            node.metadata_props.add(key=_SCOPES_KEY, value=str(["", *quoted]))

    def value(self, name: str, dtype: str, shape: Shape | None) -> None:
        """The shape of a value that an operator makes, as the file writes it."""
        self._types[name] = _declared(name, dtype, shape)
        self._graph.value_info.append(self._types[name])

    def output(self, name: str) -> None:
        """A result of the graph; its type is that of the value, which is named before."""
        self._graph.output.append(self._types.get(name) or ValueInfoProto(name=name))

    def default(self, symbol: str, number: int) -> None:
        """What a symbolic dim stands for where the user does not say."""
        self._defaults[symbol] = number

    def model(self) -> ModelProto:
        """The graph as an ONNX model.

        Raises
        ------
        FileError : nothing was added.
        """
        if not self._graph.node:
            raise FileError("it holds no operators", lever="Export the model again.")
        model = ModelProto(ir_version=11)
        model.graph.CopyFrom(self._graph)
        for domain in _DOMAINS:
            model.opset_import.add(domain=domain, version=_OPSET)
        if self._defaults:
            bind = ",".join(f"{name}={number}" for name, number in self._defaults.items())
            model.metadata_props.add(key=DEFAULTS_KEY, value=bind)
        return model


def _extent(extent: int, where: str) -> int:
    if not 0 <= extent <= _LARGEST:
        raise FileError(f"value {where!r} has the extent {extent}, which no tensor has")
    return extent


def _declared(name: str, dtype: str, shape: Shape | None) -> ValueInfoProto:
    value = ValueInfoProto(name=name)
    tensor = value.type.tensor_type
    tensor.elem_type = _DTYPES.get(dtype, 0)
    if shape is not None:
        tensor.shape.SetInParent()
        for extent in shape:
            if isinstance(extent, str):
                tensor.shape.dim.add(dim_param=extent)
            else:
                tensor.shape.dim.add(dim_value=_extent(extent, name))
    return value


def _attribute(name: str, value: Attribute) -> AttributeProto:
    out = AttributeProto(name=name)
    if isinstance(value, str):
        out.type, out.s = AttributeProto.STRING, value.encode("utf-8", "replace")
    elif isinstance(value, int):
        out.type, out.i = AttributeProto.INT, _clipped(value)
    elif isinstance(value, float):
        out.type, out.f = AttributeProto.FLOAT, value
    elif all(isinstance(item, int) for item in value):
        out.type = AttributeProto.INTS
        out.ints.extend(_clipped(int(item)) for item in value)
    elif all(isinstance(item, int | float) for item in value):
        out.type = AttributeProto.FLOATS
        out.floats.extend(float(item) for item in value)
    else:
        out.type = AttributeProto.STRINGS
        out.strings.extend(str(item).encode("utf-8", "replace") for item in value)
    return out


def _clipped(value: int) -> int:
    """An attribute as 64 bits hold it: torch writes 2**63 - 1 for "to the end", and files can hold anything."""
    return max(-_LARGEST, min(value, _LARGEST))
