"""What the shapes of a group's mappings depend on: which operator has which dims, and which operands they address.

Knows a posed group and drops its extents, sizes and machine, so that groups of one structure share their shapes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ..cost.layout import axis_dims
from ..cost.nest import OUTER, SimpleAxis
from ..cost.problem import Problem


@dataclass(frozen=True, slots=True)
class StructureAccess:
    """``touch``: dims that address the operand; ``loose``: those whose cuts change how much is fetched in all."""

    tensor: int
    write: bool
    touch: int
    loose: int


@dataclass(frozen=True, slots=True)
class StructureOperator:
    """Dims of several points only."""

    dims: tuple[int, ...]
    reductions: tuple[int, ...]
    contraction: bool
    pointwise: bool
    accesses: tuple[StructureAccess, ...]


@dataclass(frozen=True)
class Structure:
    """What the shapes of a group depend on.

    ``inner``: per tensor whether it stays in the buffer. ``singles``: whether tiles may stay inside element loops; not
    where registers or another buffer stand below the buffer, whose loops come between.
    """

    dims: int
    operators: tuple[StructureOperator, ...]
    inner: tuple[bool, ...]
    barred: tuple[tuple[int, int, int], ...]
    singles: bool
    running: bool

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """Dims that every access of every operator is cut along: outermost, one by one, they cost nothing."""
        alike = (1 << self.dims) - 1
        for operator in self.operators:
            for access in operator.accesses:
                alike &= access.touch & ~access.loose
        for _, _, mask in self.barred:
            alike &= ~mask
        return tuple(d for d in range(self.dims) if alike >> d & 1)

    @cached_property
    def uses(self) -> tuple[tuple[object, ...], ...]:
        """Per dim how every operator and every access has it: dims with equal uses are alike."""
        return tuple(
            tuple(
                (
                    d in op.dims,
                    d in op.reductions,
                    *((a.touch >> d & 1, a.loose >> d & 1) for a in op.accesses),
                )
                for op in self.operators
            )
            for d in range(self.dims)
        )

    @cached_property
    def read_twice(self) -> frozenset[int]:
        """Tensors from outside that are read more than once: perhaps as one stream, and by one depth in a plan."""
        reads = Counter(a.tensor for op in self.operators for a in op.accesses if not a.write)
        return frozenset(tensor for tensor, count in reads.items() if count > 1 and not self.inner[tensor])

    @cached_property
    def elements_in_common(self) -> tuple[int, ...]:
        """Dims of several contractions: their element loops stand in one order."""
        count = [0] * self.dims
        for operator in self.operators:
            for d in operator.dims if operator.contraction else ():
                count[d] += 1
        return tuple(d for d in range(self.dims) if count[d] > 1 and d not in self.batch)


def structure_of(problem: Problem) -> Structure:
    """The structure of a posed group."""
    base, extents = problem.base, problem.space.extents
    sized = sum(1 << d for d, extent in enumerate(extents) if extent > 1)
    operators: list[StructureOperator] = []
    for operator in base.operators:
        accesses: list[StructureAccess] = []
        for write, found in ((False, operator.reads), (True, operator.writes)):
            for access in found:
                touch = sum({1 << d for axis in access.axes for d in axis_dims(axis)}) & sized
                odd = {d for axis in access.axes if not isinstance(axis, SimpleAxis) for d in axis_dims(axis)}
                accesses.append(
                    StructureAccess(access.tensor, write, touch, sum(1 << d for d in odd) & sized)
                )
        operators.append(
            StructureOperator(
                tuple(d for d in operator.dims if extents[d] > 1),
                tuple(d for d in operator.reductions if extents[d] > 1),
                operator.contraction,
                operator.pointwise,
                tuple(accesses),
            )
        )
    return Structure(
        len(extents),
        tuple(operators),
        tuple(tensor.home != OUTER for tensor in base.tensors),
        problem.space.barred,
        problem.machine.levels == 1 and problem.machine.innermost,
        any(problem.statistics[producer] for producer, _, _ in problem.space.online),
    )
