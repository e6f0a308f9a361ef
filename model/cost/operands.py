"""What operators address, in elements and bytes, whatever the plan: operator bytes, compulsory bytes (COST-MODEL 3).

Knows the graph's index maps and precisions; knows no tiles and no machine.
"""

from __future__ import annotations

from ..graph.dtypes import BITS, bytes_of
from ..graph.graph import Access, Operator, OperatorGraph, OpKind
from .layout import whole_elements
from .nest import IndirectAxis, NestAxis, SimpleAxis, WindowAxis
from .units import element_type


def addressed_elements(graph: OperatorGraph, operator: Operator, access: Access) -> int:
    """Elements that one operator addresses of one operand (Python integer), at most the whole tensor."""
    tensor = graph.tensors[access.tensor]
    declared = tensor.elements or 0
    if access.whole:
        return declared if access.addressed is None else access.addressed
    extents = tuple([d.extent for d in operator.dims])
    total = 1
    used: set[int] = set()
    for axis, size in zip(access.axes, tensor.shape or (), strict=False):
        terms = [(d, c) for d, c in axis.terms if d not in used]
        if not terms:
            continue
        used.update([d for d, _ in terms])
        dims = tuple([d for d, _ in terms])
        if any(extents[d] == 0 for d in dims):
            return 0
        one: NestAxis
        if axis.distinct is not None:
            one = IndirectAxis(dims, axis.distinct)
        elif len(terms) == 1:
            if terms[0][1] == 1 and axis.offset == 0 and extents[dims[0]] <= size:
                total *= extents[dims[0]]
                continue
            one = SimpleAxis(dims[0], terms[0][1], axis.offset, size)
        elif len(terms) == 2 and terms[0][1] > 0 and terms[1][1] > 0:
            one = WindowAxis(dims[0], dims[1], terms[0][1], terms[1][1], axis.offset, size)
        else:
            one = IndirectAxis(dims, size)
        total *= whole_elements((one,), extents)
    return min(total, declared) if declared else total


class Operands:
    """The graph's operands, counted once per structure.

    ``key`` per operator: equal where op type, dims, index maps and costs are equal (tensors by position).
    """

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self.key = [self._key(operator, keys) for operator in graph.operators]
        self._addressed: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._shape = [keys.setdefault(("shape", t.shape), len(keys)) for t in graph.tensors]

    @staticmethod
    def _key(op: Operator, keys: dict[object, int]) -> int:
        key = (
            op.op_type,
            op.kind,
            op.dims,
            tuple([(a.axes, a.whole, a.addressed) for a in op.inputs]),
            tuple([(a.axes, a.whole, a.addressed) for a in op.outputs]),
            op.vector_ops,
            op.online,
            op.linear,
            op.reason,
        )
        return keys.setdefault(key, len(keys))

    def elements(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements that an operator addresses, per input and per output."""
        operator = self.graph.operators[index]
        key = (self.key[index], *[self._shape[a.tensor] for a in operator.inputs + operator.outputs])
        found = self._addressed.get(key)
        if found is None:
            found = self._addressed[key] = (
                tuple([addressed_elements(self.graph, operator, a) for a in operator.inputs]),
                tuple([addressed_elements(self.graph, operator, a) for a in operator.outputs]),
            )
        return found

    def bits(self, tensor: int, precision: str) -> int:
        """Bits of one element as it is computed with."""
        return BITS.get(element_type(self.graph.tensors[tensor].dtype, precision), 0)

    def _sizes(self, index: int, precision: str) -> tuple[list[int], list[int]]:
        operator = self.graph.operators[index]
        inputs, outputs = self.elements(index)
        return (
            [
                bytes_of(n, self.bits(a.tensor, precision))
                for a, n in zip(operator.inputs, inputs, strict=True)
            ],
            [
                bytes_of(n, self.bits(a.tensor, precision))
                for a, n in zip(operator.outputs, outputs, strict=True)
            ],
        )

    def operator_bytes(self, index: int, precision: str) -> int:
        """Bytes that an operator alone must move: addressed inputs and outputs once; views none.

        An operand that is read twice in the same way counts once.
        """
        operator = self.graph.operators[index]
        if operator.kind is OpKind.VIEW:
            return 0
        inputs, outputs = self._sizes(index, precision)
        return sum(dict(zip(operator.inputs, inputs, strict=True)).values()) + sum(outputs)

    def touched_bytes(self, index: int, precision: str) -> int:
        """Bytes of two operands a MAC, each other operand and each output: the reuse factor's numerator."""
        operator = self.graph.operators[index]
        if operator.kind is OpKind.VIEW:
            return 0
        inputs, outputs = self._sizes(index, precision)
        if operator.kind is not OpKind.CONTRACTION:
            return sum(inputs) + sum(outputs)
        fed = sum(bytes_of(operator.macs, self.bits(a.tensor, precision)) for a in operator.inputs[:2])
        return fed + sum(inputs[2:]) + sum(outputs)

    def compulsory_bytes(self, members: tuple[int, ...], precision: str) -> int:
        """Addressed inputs of a group (or of the whole graph) once, its outputs once.

        Views stand for what they view. A tensor that several members address differently counts as their sum, at
        most the whole tensor.
        """
        graph, inside = self.graph, set(members)
        alias = views(graph, members)
        shown: dict[int, list[int]] = {}
        for view, root in alias.items():
            shown.setdefault(root, []).append(view)
        read: dict[int, dict[object, int]] = {}
        total = 0
        for index in members:
            operator = graph.operators[index]
            if operator.kind is OpKind.VIEW:
                continue
            inputs, outputs = self.elements(index)
            extents = [d.extent for d in operator.dims]
            for access, elements in zip(operator.inputs, inputs, strict=True):
                root = alias.get(access.tensor, access.tensor)
                if int(graph.producer[root]) not in inside:
                    read.setdefault(root, {})[_form(access, extents)] = elements
            for access, elements in zip(operator.outputs, outputs, strict=True):
                names = [access.tensor, *shown.get(access.tensor, ())]
                if self._leaves(names, inside):
                    total += bytes_of(elements, self.bits(access.tensor, precision))
        for root, parts in read.items():
            elements = sum(parts.values())
            whole = graph.tensors[root].elements
            if len(parts) > 1 and whole is not None:
                elements = min(elements, whole)
            total += bytes_of(elements, self.bits(root, precision))
        return total

    def _leaves(self, names: list[int], inside: set[int]) -> bool:
        """Whether a tensor, under its own or its views' names, is read outside, or by nobody."""
        graph = self.graph
        read_inside = False
        for name in names:
            if graph.tensors[name].is_output:
                return True
            for consumer in graph.consumers[name]:
                if consumer not in inside:
                    return True
                read_inside = read_inside or graph.operators[consumer].kind is not OpKind.VIEW
        return not read_inside

    def intermediate_bytes(self, precision: str) -> int:
        """Bytes of all tensors that one operator makes and another reads, views left out."""
        graph = self.graph
        alias = views(graph, range(len(graph.operators)))
        used: set[int] = set()
        for operator in graph.operators:
            if operator.kind is not OpKind.VIEW:
                used.update([alias.get(a.tensor, a.tensor) for a in operator.inputs])
        return sum(
            bytes_of(graph.tensors[a.tensor].elements or 0, self.bits(a.tensor, precision))
            for operator in graph.operators
            if operator.kind is not OpKind.VIEW
            for a in operator.outputs
            if a.tensor in used
        )


def views(graph: OperatorGraph, members: range | tuple[int, ...]) -> dict[int, int]:
    """Per view output among `members` the tensor that it views, through chains of views."""
    alias: dict[int, int] = {}
    for index in members:
        operator = graph.operators[index]
        if operator.kind is OpKind.VIEW and operator.inputs:
            source = operator.inputs[0].tensor
            for access in operator.outputs:
                alias[access.tensor] = alias.get(source, source)
    return alias


def _form(access: Access, extents: list[int]) -> object:
    """How an operand is addressed, for comparing operators: extents and coefficients, no dim names."""
    axes = [(tuple([(extents[d], c) for d, c in a.terms]), a.offset, a.distinct) for a in access.axes]
    return access.tensor, access.whole, tuple(axes)
