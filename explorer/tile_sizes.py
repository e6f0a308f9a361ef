"""Which tile sizes are worth a step, and how well one fits the machine: aligned, ragged, how many trips.

Knows extents and the machine's units. Any integer from 1 to the extent is legal; the ladder only holds those
that a hand would want to pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.cost.result import CostRequest


@dataclass(frozen=True, slots=True)
class Fit:
    """How a tile of `size` cuts an extent; ``unit`` 1: of a dim that no unit of the machine is filled by."""

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
        """``aligned · 4 trips``, ``ragged · 75 trips``, ``off 32 · 5 trips``; of a batch only ``4 trips``."""
        trips = "one trip" if self.trips == 1 else f"{self.trips:,} trips"
        if self.unit <= 1:
            return trips
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


def units(request: CostRequest, index: int) -> dict[str, int]:
    """Per dim of a group what the array, or the lanes, take of it at a time; 1 for a batch and all else.

    These are the sizes that the search aligns to, of the model's own roles of the dims. A mapped group is posed anew
    in a few milliseconds.
    """
    from model.cost.ladders import units_of  # Numba: not before the window is up
    from model.cost.problem import pose
    from model.cost.unify import unify
    from model.cost.units import Machine

    group = request.plan.groups[index]
    space = unify(request.graph, group.operators)
    precision = group.precision or request.precision
    problem = pose(request.graph, group, space, Machine(request.accelerator), precision)
    return dict(zip(space.names, units_of(problem), strict=True))
