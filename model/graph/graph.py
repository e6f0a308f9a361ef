"""Operators as loop nests, tensors, and the graph of both: immutable values.

Knows nothing of files, machines or plans. From an operator's dims and the index map of each operand
alone follow sizes, MACs, reuse and what can be fused (COST-MODEL 1).

Invariants that a reader guarantees and everyone relies on:

- ``operators`` are in file order, which is a topological order (a reader sorts where the file is not);
- ``operators[i].index == i`` and ``tensors[j].index == j``; operator names are unique;
- weights and everything that is computed only from constants are tensors with role WEIGHT and have no
  producing operator; shape arithmetic is folded away;
- an operator whose extents are unknown has kind OPAQUE and a ``reason``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .dtypes import BITS, bytes_of
from .training import forward_pass, saved_tensors


class OpKind(StrEnum):
    """How an operator is modelled (the table in COST-MODEL 1)."""

    CONTRACTION = "contraction"  # multiply-accumulate over the reduction dims
    POINTWISE = "pointwise"
    REDUCTION = "reduction"  # over some dims; the output may still have them (Softmax, LayerNormalization)
    WINDOW = "window"  # pooling: as a convolution without weights
    MOVEMENT = "movement"  # bytes only
    VIEW = "view"  # no bytes, no launch
    OPAQUE = "opaque"  # compulsory bytes, a fusion barrier, a visible warning


class TensorRole(StrEnum):
    """Where a tensor comes from. Whether it is a graph output is a separate flag."""

    INPUT = "input"
    WEIGHT = "weight"  # initializers and everything folded from constants
    ACTIVATION = "activation"  # written by an operator


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the graph.

    Attributes
    ----------
    shape : extents in elements after binding; None where they are unknown. Python integers.
    declared : the shape as the file writes it, symbolic dims as names; for display.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...] | None
    role: TensorRole
    is_output: bool = False
    declared: tuple[int | str, ...] | None = None

    @property
    def elements(self) -> int | None:
        """Number of elements, or None where the shape is unknown. Exact for any size."""
        if self.shape is None:
            return None
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bits(self) -> int:
        """Bits of one element at the file's element type; 0 for strings and unknown types."""
        return BITS.get(self.dtype, 0)

    @property
    def bytes(self) -> int | None:
        """Declared size in bytes at the file's element type, or None."""
        count = self.elements
        return None if count is None else bytes_of(count, self.bits)


@dataclass(frozen=True, slots=True)
class Dim:
    """One loop of an operator: its name (unique within the operator), extent, whether it is reduced."""

    name: str
    extent: int
    reduction: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis of an operand is addressed: element ``offset + sum(coefficient * index of dim)``.

    ``terms`` are pairs (dim index in the operator, coefficient). No terms: the constant ``offset`` (a
    broadcast axis). Indices outside ``0 <= index < extent of the axis`` are padding and are never read.

    Mixed radix, as a head merge makes it: ``((h, 64), (d, 1))`` with extent of d = 64.
    Window, as a convolution makes it: ``((p, stride), (r, dilation))``, offset ``-pad``.

    ``distinct``: for an axis that is addressed by values (Gather), the expected number of distinct elements
    over all index points; the terms then name the dims of the index points. None: addressed as written.
    """

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    distinct: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One operand of an operator: the tensor (index in the graph) and one `Axis` per axis of it.

    ``whole``: the operator's index map is not expressible (opaque operators, odd movements); exactly
    ``addressed`` elements are touched once, and no dim is shared through this operand.
    """

    tensor: int
    axes: tuple[Axis, ...] = ()
    whole: bool = False
    addressed: int | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as a loop nest over ``dims``.

    Attributes
    ----------
    name : the ONNX name where it is unique in the file, else ``<OpType>_<index>``.
    identity : graph path and index in the file, stable across renames.
    inputs, outputs : accesses in operand order; skipped optional operands are left out.
    vector_ops : pairs (primitive, count per point of the full domain), e.g. ``(("exp", 1), ("add", 1))``.
        Empty for contractions without bias, views and movement.
    online : a reduction that has a running form (Softmax, RMSNormalization, LayerNormalization): a consumer
        may run inside its reduction loop where every path to the next contraction over that dim is linear.
    linear : the output is linear in the first operand (Div by another operand, Cast, views; Mul in
        either one).
    in_place : a pointwise operator may write over its dying input.
    attributes : pairs of text, for find and for the information panel.
    scope : block path, outermost first; empty where the file has none.
    reason : why the operator is opaque or its shape unknown; empty otherwise.
    bounded : points of the domain that a mask leaves (causal, sliding window); None: all of them. The nest is
        computed in full; this says what a kernel that skips masked blocks would be left with.
    updates : it changes a state where it lies (an append to a cache): of its result it writes only what is new.
    runs : of control flow, pairs (key in `OperatorGraph.bodies`, how often that nested graph runs).
    """

    index: int
    name: str
    op_type: str
    kind: OpKind
    dims: tuple[Dim, ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    domain: str = ""
    identity: str = ""
    vector_ops: tuple[tuple[str, float], ...] = ()
    online: bool = False
    linear: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    scope: tuple[str, ...] = ()
    reason: str = ""
    bounded: int | None = None
    updates: bool = False
    runs: tuple[tuple[str, int], ...] = ()

    @property
    def points(self) -> int:
        """Points of the full iteration domain (Python integer)."""
        count = 1
        for dim in self.dims:
            count *= dim.extent
        return count

    @property
    def macs(self) -> int:
        """Multiply-accumulates: the domain of a contraction (padded positions included), else 0."""
        return self.points if self.kind is OpKind.CONTRACTION else 0

    @property
    def bounded_macs(self) -> int:
        """Multiply-accumulates that a mask leaves; `macs` where there is none."""
        return self.macs if self.bounded is None or not self.macs else self.bounded

    @property
    def barrier(self) -> str:
        """Why it cannot share a group with others; empty where it can."""
        if self.kind is OpKind.OPAQUE:
            return self.reason or "nothing is known of its loops"
        if self.updates:
            return "it updates a cache in place, and whoever reads the cache needs what was there before"
        return ""

    @property
    def in_place(self) -> bool:
        """Whether the output may take the place of an input that dies here."""
        return self.kind is OpKind.POINTWISE


@dataclass(frozen=True, slots=True)
class GraphWarning:
    """Something that the reader had to assume or could not do: where, what, and what to try."""

    where: str
    what: str
    lever: str = ""


@dataclass(frozen=True)
class OperatorGraph:
    """A model: operators in topological order, tensors, and the arrays that others compute with.

    Attributes
    ----------
    digest : ``sha256:...`` of the file's bytes; plans and sessions name it.
    bindings : pairs (symbolic dim, number) that were used.
    symbols : symbolic dims that the file declares, in order of appearance.
    refusal : why the file cannot be simulated though it can be looked at (a cycle, a value with two writers, a
        size that 64 bits cannot count); empty where nothing stands against it.
    bodies : nested graphs of control flow by their path, ``#3/body``; they may hold bodies of their own.
    fusions : groups of operators that the file itself fuses (a compiler's output); empty where it has none.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    path: str = ""
    digest: str = ""
    bindings: tuple[tuple[str, int], ...] = ()
    symbols: tuple[str, ...] = ()
    warnings: tuple[GraphWarning, ...] = field(default=())
    refusal: str = ""
    bodies: Mapping[str, OperatorGraph] = field(default_factory=dict)
    fusions: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def producer(self) -> NDArray[np.int32]:
        """int32[tensors]: the operator that writes each tensor, -1 for inputs and weights."""
        out = np.full(len(self.tensors), -1, dtype=np.int32)
        for operator in self.operators:
            for access in operator.outputs:
                out[access.tensor] = operator.index
        out.setflags(write=False)
        return out

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per tensor the operators that read it, in file order, each once."""
        lists: list[list[int]] = [[] for _ in self.tensors]
        for operator in self.operators:
            for access in operator.inputs:
                readers = lists[access.tensor]
                if not readers or readers[-1] != operator.index:
                    readers.append(operator.index)
        return tuple(tuple(readers) for readers in lists)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Per tensor the one that it is a view of, through chains of views; itself where it is none."""
        out = list(range(len(self.tensors)))
        for operator in self.operators:
            if operator.kind is OpKind.VIEW and operator.inputs:
                for access in operator.outputs:
                    out[access.tensor] = out[operator.inputs[0].tensor]
        return tuple(out)

    @cached_property
    def forward(self) -> NDArray[np.bool_] | None:
        """bool[operators]: which belong to the forward pass of a training step; None where nothing is trained."""
        out = forward_pass(self)
        if out is not None:
            out.setflags(write=False)
        return out

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """Saved activations: tensors that cross from the forward to the backward pass (`training.saved_tensors`)."""
        return saved_tensors(self)

    @cached_property
    def edges(self) -> NDArray[np.int32]:
        """int32[edges, 3]: producer, consumer, tensor; one row per tensor and consuming operator."""
        rows = [
            (int(self.producer[tensor]), consumer, tensor)
            for tensor, readers in enumerate(self.consumers)
            if self.producer[tensor] >= 0
            for consumer in readers
        ]
        out = np.array(rows, dtype=np.int32).reshape(-1, 3)
        out = out[np.lexsort((out[:, 2], out[:, 1], out[:, 0]))]
        out.setflags(write=False)
        return out

    @cached_property
    def successors(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """CSR of operator edges, parallel edges merged: ``start`` int32[operators + 1], ``target`` int32."""
        pairs = np.unique(self.edges[:, :2], axis=0)
        start = np.zeros(len(self.operators) + 1, dtype=np.int32)
        np.add.at(start, pairs[:, 0] + 1, 1)
        start = np.cumsum(start, dtype=np.int32)
        target = np.ascontiguousarray(pairs[:, 1], dtype=np.int32)
        start.setflags(write=False)
        target.setflags(write=False)
        return start, target

    @cached_property
    def links(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """CSR of the tensors that tie operators together: ``first`` int32[operators + 1], ``tensor`` int32.

        What an operator writes and reads. Left out is a weight of one element: every layer of a model may
        share the same epsilon, and nothing is saved by reading it once.
        """
        first, link = [0], list[int]()
        for operator in self.operators:
            for access in (*operator.inputs, *operator.outputs):
                tensor = self.tensors[access.tensor]
                if tensor.role is not TensorRole.WEIGHT or tensor.elements != 1:
                    link.append(access.tensor)
            first.append(len(link))
        csr = np.array(first, dtype=np.int32), np.array(link, dtype=np.int32)
        csr[0].setflags(write=False)
        csr[1].setflags(write=False)
        return csr

    def is_known(self, operator: Operator) -> bool:
        """Whether the operator's loops are known: its own, or, of control flow, its nested graphs and its results."""
        if operator.kind is not OpKind.OPAQUE:
            return True
        shaped = all(self.tensors[access.tensor].shape is not None for access in operator.outputs)
        return bool(operator.runs) and shaped

    @cached_property
    def operator_by_name(self) -> dict[str, int]:
        """Operator index by name; ``<OpType>_<index>`` works for every operator as well."""
        names = {f"{operator.op_type}_{operator.index}": operator.index for operator in self.operators}
        names.update({operator.name: operator.index for operator in self.operators})
        return names

    @cached_property
    def parameter_bytes(self) -> int:
        """Bytes of all weights, each tensor once, at the file's element types; those of nested graphs included."""
        return sum(tensor.bytes or 0 for tensor in self._weights().values())

    def _weights(self) -> dict[str, Tensor]:
        weights = {t.name: t for t in self.tensors if t.role is TensorRole.WEIGHT}
        for body in self.bodies.values():
            weights = {**body._weights(), **weights}
        return weights

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all operators, nested graphs times their runs (Python integer)."""
        return sum(operator.macs for operator in self.operators) + sum(
            times * body.macs for body, times in self._runs()
        )

    @property
    def bounded_macs(self) -> int:
        """`macs` without those of masked positions (causal and sliding-window attention)."""
        return sum(operator.bounded_macs for operator in self.operators) + sum(
            times * body.bounded_macs for body, times in self._runs()
        )

    def _runs(self) -> Iterator[tuple[OperatorGraph, int]]:
        for operator in self.operators:
            yield from ((self.bodies[path], times) for path, times in operator.runs)
