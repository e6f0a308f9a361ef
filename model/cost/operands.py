"""What operators address, in elements and bytes, whatever the plan: operator bytes, compulsory bytes (COST-MODEL 3).

Knows the graph's index maps and precisions; knows no tiles and no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.band import Band
from ..graph.dtypes import BITS, bytes_of
from ..graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind
from .layout import whole_elements
from .nest import IndirectAxis, NestAxis, SimpleAxis, WindowAxis
from .units import element_type

_VIEW = OpKind.VIEW


def addressed_elements(graph: OperatorGraph, operator: Operator, access: Access) -> int:
    """Elements that one operator addresses of one operand (Python integer), at most the whole tensor."""
    tensor = graph.tensors[access.tensor]
    declared = tensor.elements or 0
    if access.whole:
        return declared if access.addressed is None else access.addressed
    extents = tuple([d.extent for d in operator.dims])
    total = 1
    used: set[int] = set()
    if operator.band is not None:  # its dims stand on axes of their own
        total, used = _banded(operator.band, access, extents)
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


def _banded(band: Band, access: Access, extents: tuple[int, ...]) -> tuple[int, set[int]]:
    """Elements along the dims of a band that an access has, and these dims."""
    used = {d for axis in access.axes for d, _ in axis.terms}.intersection((band.q, band.k))
    ends = extents[band.q], extents[band.k]
    if not all(ends):
        return 0, used
    return band.points(*ends) if len(used) == 2 else band.seen(min(used), *ends) if used else 1, used


class Operands:
    """The graph's operands, counted once per structure.

    Attributes
    ----------
    touched : per operator the tensors that it reads, then those that it writes.
    structure : per operator a number; equal where op type, dims, index maps and costs are equal, and of the tensors
        type, shape, whether they are graph outputs, and which of them are one.
    alike : per tensor a number; equal where type, shape and whether it is a graph output are.
    producer : per tensor the operator that writes it, else -1.
    """

    def __init__(self, graph: OperatorGraph, keys: dict[object, int]) -> None:
        self.graph = graph
        self.touched = [
            tuple([a.tensor for a in operator.inputs + operator.outputs]) for operator in graph.operators
        ]
        self.alike = [keys.setdefault((t.dtype, t.shape, t.is_output), len(keys)) for t in graph.tensors]
        self.structure = _structures(graph, self.touched, self.alike, keys)
        self.producer: list[int] = graph.producer.tolist()
        self._addressed: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._bytes: dict[tuple[int, str], tuple[list[int], list[int]]] = {}

    def elements(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements that an operator addresses, per input and per output."""
        found = self._addressed.get(self.structure[index])
        if found is None:
            operator = self.graph.operators[index]
            found = self._addressed[self.structure[index]] = (
                tuple([addressed_elements(self.graph, operator, a) for a in operator.inputs]),
                tuple([addressed_elements(self.graph, operator, a) for a in operator.outputs]),
            )
        return found

    def bits(self, tensor: int, precision: str) -> int:
        """Bits of one element as it is computed with."""
        return BITS.get(element_type(self.graph.tensors[tensor].dtype, precision), 0)

    def _sizes(self, index: int, precision: str) -> tuple[list[int], list[int]]:
        """Bytes that an operator addresses, per input and per output."""
        found = self._bytes.get((self.structure[index], precision))
        if found is None:
            operator = self.graph.operators[index]
            inputs, outputs = self.elements(index)
            found = self._bytes[self.structure[index], precision] = (
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
        if operator.kind is _VIEW:
            return 0
        inputs, outputs = self._sizes(index, precision)
        return sum(dict(zip(operator.inputs, inputs, strict=True)).values()) + sum(outputs)

    def touched_bytes(self, index: int, precision: str) -> int:
        """Bytes of two operands a MAC, each other operand and each output: the reuse factor's numerator."""
        operator = self.graph.operators[index]
        if operator.kind is _VIEW:
            return 0
        inputs, outputs = self._sizes(index, precision)
        if operator.kind is not OpKind.CONTRACTION:
            return sum(inputs) + sum(outputs)
        fed = sum(
            bytes_of(operator.bounded_macs, self.bits(a.tensor, precision)) for a in operator.inputs[:2]
        )
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
            operator, touched = graph.operators[index], self.touched[index]
            if operator.kind is _VIEW:
                continue
            reads = len(operator.inputs)
            for position, tensor in enumerate(touched):
                if position < reads:
                    root = alias.get(tensor, tensor)
                    if self.producer[root] not in inside:
                        addressed = self.elements(index)[0][position]
                        read.setdefault(root, []).append((operator, operator.inputs[position], addressed))
                elif self._leaves(tensor, shown.get(tensor, ()), inside):
                    total += self._sizes(index, precision)[1][position - reads]
        return total + sum([self._read_bytes(root, parts, precision) for root, parts in read.items()])

    def _read_bytes(self, root: int, parts: list[tuple[Operator, Access, int]], precision: str) -> int:
        """Bytes of one tensor that operators read from outside; ``parts``: operator, access, elements addressed."""
        elements = parts[0][2]
        if len(parts) > 1:
            forms = {_form(access, operator): addressed for operator, access, addressed in parts}
            elements = sum(forms.values())
            whole = self.graph.tensors[root].elements
            if len(forms) > 1 and whole is not None:
                elements = min(elements, whole)
        return bytes_of(elements, self.bits(root, precision))

    def _made_bytes(self, index: int, position: int, precision: str) -> int:
        """Bytes of an output: the whole tensor, but for what a mask leaves out."""
        operator = self.graph.operators[index]
        if operator.band is not None:
            return self._sizes(index, precision)[1][position]
        tensor = operator.outputs[position].tensor
        return bytes_of(self.graph.tensors[tensor].elements or 0, self.bits(tensor, precision))

    def _leaves(self, tensor: int, shown: Sequence[int], inside: set[int]) -> bool:
        """Whether a tensor, under its own or its views' names, is read outside, or by nobody."""
        tensors, consumers = self.graph.tensors, self.graph.consumers
        for name in (tensor, *shown):
            if tensors[name].is_output or not inside.issuperset(consumers[name]):
                return True
        operators = self.graph.operators
        for name in (tensor, *shown):
            for consumer in consumers[name]:
                if operators[consumer].kind is not _VIEW:
                    return False
        return True

    def whole_graph(self, precision: str) -> tuple[int, int]:
        """`compulsory_bytes` of all operators; bytes of the tensors that one makes and another reads, views left out.

        Accesses are sorted out as arrays, and equal ones counted once: what a look at each in turn would say.
        """
        graph, operators = self.graph, self.graph.operators
        lengths = np.array([len(tensors) for tensors in self.touched], np.int64)
        reads = np.array([len(operator.inputs) for operator in operators], np.int64)
        working = np.array([operator.kind is not _VIEW for operator in operators], np.bool_)
        owner = np.repeat(np.arange(len(operators)), lengths)
        place = np.arange(owner.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        tensor = np.fromiter(chain.from_iterable(self.touched), np.int64, owner.size)
        root = np.array(graph.roots, np.int64)
        alike, structure = np.array(self.alike, np.int64), np.array(self.structure, np.int64)
        reading = working[owner] & (place < reads[owner])
        writing = working[owner] & ~reading
        used = np.zeros(root.size, np.bool_)
        used[root[tensor[reading]]] = True
        shown = np.zeros(root.size, np.bool_)
        shown[root[[t.index for t in graph.tensors if t.is_output]]] = True

        leaving = writing & (shown[tensor] | ~used[tensor])
        compulsory = sum(
            self._sizes(int(owner[at]), precision)[1][int(place[at] - reads[owner[at]])] * times
            for at, times in _counted(np.flatnonzero(leaving), structure[owner], place)
        )
        outside = np.flatnonzero(reading & (graph.producer[root[tensor]] < 0))
        source = root[tensor]
        readers = np.bincount(source[outside], minlength=root.size)[source[outside]]
        alone = outside[readers == 1]
        for at, times in _counted(alone, structure[owner], place, alike[source]):
            elements = self.elements(int(owner[at]))[0][int(place[at])]
            compulsory += bytes_of(elements, self.bits(int(source[at]), precision)) * times
        shared: dict[int, list[tuple[Operator, Access, int]]] = {}
        for at in outside[readers > 1].tolist():
            index, position = int(owner[at]), int(place[at])
            part = operators[index], operators[index].inputs[position], self.elements(index)[0][position]
            shared.setdefault(int(source[at]), []).append(part)
        compulsory += sum([self._read_bytes(each, parts, precision) for each, parts in shared.items()])
        compulsory += self._states_bytes(reading, source, owner, place, precision)

        intermediate = sum(
            self._made_bytes(int(owner[at]), int(place[at] - reads[owner[at]]), precision) * times
            for at, times in _counted(np.flatnonzero(writing & used[tensor]), alike[tensor], structure[owner])
        )
        return compulsory, intermediate

    def _states_bytes(
        self, reading: NDArray[np.bool_], source: NDArray[np.int64], owner: NDArray[np.int64],
        place: NDArray[np.int64], precision: str,
    ) -> int:  # fmt: skip
        """What readers of states that are updated in place (KV caches) need of them beside what was just written."""
        total = 0
        for index, operator in enumerate(self.graph.operators):
            for position, access in enumerate(operator.outputs if operator.updates else ()):
                at = np.flatnonzero(reading & (source == access.tensor))
                parts = [
                    (self.graph.operators[i], self.graph.operators[i].inputs[j], self.elements(i)[0][j])
                    for i, j in zip(owner[at].tolist(), place[at].tolist(), strict=True)
                ]
                if parts:
                    new = bytes_of(self.elements(index)[1][position], self.bits(access.tensor, precision))
                    total += max(0, self._read_bytes(access.tensor, parts, precision) - new)
        return total


def _counted(at: NDArray[np.int64], *columns: NDArray[np.int64]) -> list[tuple[int, int]]:
    """One of the places `at` for each row of values that the columns have there, and how many have it."""
    rows = np.zeros(at.size, np.int64)
    for column in columns:
        rows = np.unique(rows, return_inverse=True)[1] * (column.max(initial=0) + 1) + column[at]
    _, first, times = np.unique(rows, return_index=True, return_counts=True)
    return list(zip(at[first].tolist(), times.tolist(), strict=True))


def views(graph: OperatorGraph, members: tuple[int, ...]) -> dict[int, int]:
    """Per view output among `members` the tensor that it views, through chains of views."""
    alias: dict[int, int] = {}
    for index in members:
        operator = graph.operators[index]
        if operator.kind is _VIEW and operator.inputs:
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


def _structures(
    graph: OperatorGraph, touched: Sequence[tuple[int, ...]], alike: Sequence[int], keys: dict[object, int]
) -> list[int]:
    """`Operands.structure`. Fields are read in C: hashing and comparing the values themselves runs Python for each."""
    numbers: dict[int, int] = {}  # by identity of dims and axes, which the graph keeps alive

    def number(parts: tuple[Dim, ...] | tuple[Axis, ...], fields: Callable[[Any], object]) -> int:
        found = numbers[id(parts)] = keys.setdefault(tuple(map(fields, parts)), len(keys))
        return found

    out: list[int] = []
    for op, tensors in zip(graph.operators, touched, strict=True):
        row: list[object] = [
            op.op_type,
            id(op.kind),  # a member of an enumeration is one object
            numbers.get(id(op.dims)) or number(op.dims, _DIM),
            op.vector_ops,
            op.online,
            op.linear,
            op.reason,
            op.band,
            len(op.inputs),
        ]
        for access in op.inputs + op.outputs:
            row.append(numbers.get(id(access.axes)) or number(access.axes, _AXIS))
            if access.whole:
                row.append((access.addressed,))
        row.extend([alike[tensor] for tensor in tensors])
        if op.runs:  # what its nested graphs are, no more is known of here
            row.append((graph.digest, graph.bindings, op.identity or op.name, op.runs))
        if len(set(tensors)) < len(tensors):
            row.append(tuple([tensors.index(tensor) for tensor in tensors]))
        out.append(keys.setdefault(tuple(row), len(keys)))
    return out
