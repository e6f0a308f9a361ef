"""Which tile sizes are worth a step, and how well one fits the machine: aligned, ragged, how many trips.

Knows extents and the machine's units. Any integer from 1 to the extent is legal; the ladder only holds those
that a hand would want to pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.cost.result import GroupResult
from model.graph.graph import OperatorGraph, OpKind
from model.hardware.accelerator import Accelerator


@dataclass(frozen=True, slots=True)
class Fit:
    """How a tile of `size` cuts an extent."""

    size: int
    extent: int
    unit: int

    @property
    def trips(self) -> int:
        """ceil(extent / size)."""
        return -(-self.extent // self.size)

    @property
    def ragged(self) -> bool:
        """Whether the last piece is smaller."""
        return self.extent % self.size != 0

    @property
    def aligned(self) -> bool:
        """Whether the machine's unit is filled: a multiple of it, or the whole extent."""
        return self.unit <= 1 or self.size % self.unit == 0 or self.size == self.extent

    @property
    def words(self) -> str:
        """``aligned · 4 trips``, ``ragged · 75 trips``, ``not a multiple of 32 · 5 trips``."""
        trips = "one trip" if self.trips == 1 else f"{self.trips:,} trips"
        if not self.aligned:
            return f"off {self.unit} · {trips}"
        return f"{'ragged' if self.ragged else 'aligned'} · {trips}"

    @property
    def tip(self) -> str:
        """The same at length."""
        last = self.extent - (self.trips - 1) * self.size
        lines = [f"{self.size:,} of {self.extent:,}: {self.trips:,} trips, the last one {last:,}"]
        if not self.aligned:
            below = self.size // self.unit * self.unit
            near = f"{below:,} or {below + self.unit:,}" if below else f"{self.unit:,}"
            lines.append(f"The unit takes {self.unit:,} at a time; {near} would fill it.")
        return "\n".join(lines)


def ladder(extent: int, unit: int) -> tuple[int, ...]:
    """Sizes that steps and scrubbing pass, ascending: small powers of two, multiples of the unit, even cuts.

    Multiples thin out geometrically, so that any extent is crossed in some thirty steps.
    """
    unit = max(1, min(unit, extent))
    sizes = {1, unit, extent}
    power = 1
    while power < unit:
        sizes.add(power)
        power *= 2
    multiple = 1
    while unit * multiple < extent:
        sizes.update(unit * m for m in (multiple, multiple * 3 // 2) if 0 < unit * m < extent)
        multiple *= 2
    for pieces in range(2, 9):
        even = -(-extent // pieces)
        sizes.add(min(extent, -(-even // unit) * unit))
    return tuple(sorted(sizes))


def stepped(size: int, extent: int, unit: int, steps: int) -> int:
    """The size `steps` rungs away; a size between two rungs goes to the next one in that direction."""
    rungs = ladder(extent, unit)
    if steps == 0:
        return size
    above = [r for r in rungs if r > size]
    below = [r for r in rungs if r < size]
    if steps > 0:
        return above[min(steps, len(above)) - 1] if above else size
    return below[max(0, len(below) + steps)] if below else size


def units(graph: OperatorGraph, machine: Accelerator, group: GroupResult) -> dict[str, int]:
    """Per group dim what the machine takes at a time; 1 where nothing is known.

    Of the group's first contraction: rows and columns of a systolic array (or m, n and k of a tensor core)
    for the dims of its first operand, its second operand, and both. Dims of a window are stepped through one
    by one: a convolution puts its channels on the array.
    """
    unit = machine.matrix_unit
    lanes = machine.vector_unit.lanes if machine.vector_unit is not None else 1
    found = {dim: 1 for dim, _ in group.dims}
    for position, number in enumerate(group.operators):
        operator = graph.operators[number]
        if operator.kind is not OpKind.CONTRACTION or unit is None or len(operator.inputs) < 2:
            continue
        m, n, k = (
            (unit.rows, unit.columns, unit.rows)
            if unit.kind == "systolic"
            else (unit.mma[0], unit.mma[1], unit.mma[2])
        )
        touched = [{dim for axis in access.axes for dim, _ in axis.terms} for access in operator.inputs[:2]]
        windowed = {
            dim
            for access in operator.inputs[:2]
            for axis in access.axes
            if len(axis.terms) > 1 and any(operator.dims[d].reduction for d, _ in axis.terms)
            for dim, _ in axis.terms
        }
        for index, name in enumerate(group.dim_of[position]):
            first, second = index in touched[0], index in touched[1]
            if index in windowed:
                continue
            if operator.dims[index].reduction:
                found[name] = k
            elif first and not second:
                found[name] = m
            elif second and not first:
                found[name] = n
        return found
    if group.dims and lanes > 1:
        found[group.dims[-1][0]] = lanes
    return found
