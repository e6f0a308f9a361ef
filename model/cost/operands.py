"""What operators address, in elements and bytes, whatever the plan: operator bytes, compulsory bytes (COST-MODEL 3).

Knows the graph's index maps and precisions; knows no tiles and no machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ..graph.dtypes import BITS, bytes_of
from ..graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind
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

    Attributes
    ----------
    key : per operator; equal where op type, dims, index maps and costs are equal (tensors by position).
    tensor_key : per tensor; equal where type, shape and whether it is a graph output are.
    touched : per operator the tensors that it reads, then those that it writes.
    alone : per operator; equal where key, keys of the tensors, and which of the tensors are one, are equal.
    producer : per tensor the operator that writes it, else -1.
    """

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self.key = _operator_keys(graph, keys)
        self.tensor_key = [keys.setdefault((t.dtype, t.shape, t.is_output), len(keys)) for t in graph.tensors]
        self.touched = [
            tuple([a.tensor for a in operator.inputs + operator.outputs]) for operator in graph.operators
        ]
        tensor_key = self.tensor_key
        self.alone: list[int] = []
        for key, touched in zip(self.key, self.touched, strict=True):
            row: list[object] = [key, *[tensor_key[tensor] for tensor in touched]]
            if len(set(touched)) < len(touched):
                row.append(tuple([touched.index(tensor) for tensor in touched]))
            self.alone.append(keys.setdefault(tuple(row), len(keys)))
        self.producer: list[int] = graph.producer.tolist()
        self._addressed: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._bytes: dict[tuple[int, str], tuple[list[int], list[int]]] = {}

    def elements(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements that an operator addresses, per input and per output."""
        found = self._addressed.get(self.alone[index])
        if found is None:
            operator = self.graph.operators[index]
            found = self._addressed[self.alone[index]] = (
                tuple([addressed_elements(self.graph, operator, a) for a in operator.inputs]),
                tuple([addressed_elements(self.graph, operator, a) for a in operator.outputs]),
            )
        return found

    def bits(self, tensor: int, precision: str) -> int:
        """Bits of one element as it is computed with."""
        return BITS.get(element_type(self.graph.tensors[tensor].dtype, precision), 0)

    def _sizes(self, index: int, precision: str) -> tuple[list[int], list[int]]:
        """Bytes that an operator addresses, per input and per output."""
        found = self._bytes.get((self.alone[index], precision))
        if found is None:
            operator = self.graph.operators[index]
            inputs, outputs = self.elements(index)
            found = self._bytes[self.alone[index], precision] = (
                [
                    bytes_of(n, self.bits(a.tensor, precision))
                    for a, n in zip(operator.inputs, inputs, strict=True)
                ],
                [
                    bytes_of(n, self.bits(a.tensor, precision))
                    for a, n in zip(operator.outputs, outputs, strict=True)
                ],
            )
        return found

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
        read: dict[int, list[tuple[Operator, Access, int]]] = {}
        total = 0
        for index in members:
            operator = graph.operators[index]
            if operator.kind is OpKind.VIEW:
                continue
            for position, access in enumerate(operator.inputs):
                root = alias.get(access.tensor, access.tensor)
                if self.producer[root] not in inside:
                    addressed = self.elements(index)[0][position]
                    read.setdefault(root, []).append((operator, access, addressed))
            for position, access in enumerate(operator.outputs):
                if self._leaves(access.tensor, shown.get(access.tensor, ()), inside):
                    total += self._sizes(index, precision)[1][position]
        for root, parts in read.items():
            elements = parts[0][2]
            if len(parts) > 1:
                forms = {_form(access, operator): addressed for operator, access, addressed in parts}
                elements = sum(forms.values())
                whole = graph.tensors[root].elements
                if len(forms) > 1 and whole is not None:
                    elements = min(elements, whole)
            total += bytes_of(elements, self.bits(root, precision))
        return total

    def _leaves(self, tensor: int, shown: Sequence[int], inside: set[int]) -> bool:
        """Whether a tensor, under its own or its views' names, is read outside, or by nobody."""
        graph = self.graph
        read_inside = False
        for name in (tensor, *shown):
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
        made = Counter(
            [
                self.tensor_key[a.tensor]
                for operator in graph.operators
                if operator.kind is not OpKind.VIEW
                for a in operator.outputs
                if a.tensor in used
            ]
        )
        one = dict(zip(self.tensor_key, graph.tensors, strict=True))  # one tensor of each key
        return sum(
            bytes_of(one[key].elements or 0, self.bits(one[key].index, precision)) * times
            for key, times in made.items()
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


def _form(access: Access, operator: Operator) -> object:
    """How an operand is addressed, for comparing operators: extents and coefficients, no dim names."""
    dims = operator.dims
    axes = [(tuple([(dims[d].extent, c) for d, c in a.terms]), a.offset, a.distinct) for a in access.axes]
    return access.tensor, access.whole, tuple(axes)


_DIM = attrgetter("name", "extent", "reduction")
_AXIS = attrgetter("terms", "offset", "distinct")


def _operator_keys(graph: OperatorGraph, keys: dict[object, int]) -> list[int]:
    """`Operands.key`. Fields are read in C: comparing and hashing the values themselves runs Python for each."""
    numbers: dict[int, int] = {}  # by identity of dims and axes, which the graph keeps alive

    def number(parts: tuple[Dim, ...] | tuple[Axis, ...], fields: Callable[[Any], object]) -> int:
        found = numbers[id(parts)] = keys.setdefault(tuple(map(fields, parts)), len(keys))
        return found

    out: list[int] = []
    for op in graph.operators:
        row: list[object] = [
            op.op_type,
            id(op.kind),  # a member of an enumeration is one object
            numbers.get(id(op.dims)) or number(op.dims, _DIM),
            op.vector_ops,
            op.online,
            op.linear,
            op.reason,
            len(op.inputs),
        ]
        for access in op.inputs + op.outputs:
            row.append(numbers.get(id(access.axes)) or number(access.axes, _AXIS))
            if access.whole:
                row.append((access.addressed,))
        out.append(keys.setdefault(tuple(row), len(keys)))
    return out
