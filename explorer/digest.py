"""What the window draws of a cost result, as arrays: made on the worker beside the result.

Knows `CostResult` and its request. Must not know Qt or colours. Panels and canvas look things up here, so that
an edit costs the GUI thread what is on screen and not what is in the graph. Groups that an edit left alone
have the same traffic as in the digest before: their rows are taken over from there.

Between two levels a tensor counts once per group: what is read at its first reader there, what is written at
its producer. So the operators of a group sum to the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.cost.result import PHASE_DTYPE, CostResult, GroupResult

Pair = tuple[str, str]
"""Outer and inner memory level."""
Figures = NDArray[np.int64]


def skips(result: CostResult, pair: Pair) -> bool:
    """Whether traffic between these levels passes by one in between: what the registers spill outwards."""
    machine = result.request.accelerator
    inner_is_memory = any(level.name == pair[1] for level in machine.memory)
    return not inner_is_memory and pair[0] != machine.buffers[-1].name


def level_pairs(result: CostResult) -> tuple[Pair, ...]:
    """Pairs of levels that anything crosses, outermost first; those that skip a level (spill) last."""
    order = {level.name: rank for rank, level in enumerate(result.request.accelerator.memory)}
    found = {(row.outer, row.inner) for group in result.groups for row in group.traffic}
    last = len(order)
    return tuple(sorted(found, key=lambda pair: (skips(result, pair), order.get(pair[0], last))))


def first_readers(result: CostResult, group: GroupResult) -> tuple[dict[int, int], dict[int, int]]:
    """By tensor: the first operator of the group that reads it, and the one that writes it."""
    readers: dict[int, int] = {}
    writers: dict[int, int] = {}
    for number in group.operators:
        operator = result.request.graph.operators[number]
        for access in operator.inputs:
            readers.setdefault(access.tensor, number)
        for access in operator.outputs:
            writers[access.tensor] = number
    return readers, writers


@dataclass(frozen=True, eq=False, slots=True)
class Demand:
    """Phases in order: begin and end in seconds, bytes per second, kind and group of each."""

    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    kind: NDArray[np.int32]
    group: NDArray[np.int32]

    @staticmethod
    def of(result: CostResult) -> Demand:
        """All phases of all groups, one after the other."""
        if not result.groups:
            empty, none = np.zeros(0), np.zeros(0, np.int32)
            return Demand(empty, empty, empty, none, none)
        # Equal groups share one array of phases: the few different ones are joined, then repeated by number. As
        # bytes: numpy compares the fields of every structured array that it joins, which takes longer.
        launched = np.array(result.launched(), dtype=np.int32)
        arrays = [result.groups[i].phases for i in result.launched()]
        places: dict[int, int] = {}
        which = np.array([places.setdefault(id(array), len(places)) for array in arrays])
        arrays = list({id(array): array for array in arrays}.values())
        length = np.array([len(array) for array in arrays], dtype=np.int64)
        joined = np.concatenate([array.view(np.uint8) for array in arrays]).view(PHASE_DTYPE)
        counts = length[which]
        owner = np.repeat(launched, counts)
        first = (np.cumsum(length) - length)[which] - (np.cumsum(counts) - counts)  # of each launch
        phases = joined[np.arange(len(owner)) + np.repeat(first, counts)]
        lasting = phases["base_ns"] > 0
        phases, owner = phases[lasting], owner[lasting]
        end_ns = np.cumsum(phases["base_ns"])
        begin_ns = end_ns - phases["base_ns"]
        rate = phases["bytes"] * 1e9 / phases["base_ns"]
        return Demand(begin_ns * 1e-9, end_ns * 1e-9, rate, phases["kind"].astype(np.int32), owner)

    @property
    def whole_s(self) -> float:
        """When the last phase ends."""
        return float(self.end_s[-1]) if len(self.end_s) else 0.0

    @property
    def peak(self) -> float:
        """Largest demand in bytes per second."""
        return float(self.bytes_per_s.max()) if len(self.bytes_per_s) else 0.0

    @property
    def mean(self) -> float:
        """Bytes over the whole time."""
        moved = float(((self.end_s - self.begin_s) * self.bytes_per_s).sum())
        return moved / self.whole_s if self.whole_s else 0.0

    def at(self, time_s: float) -> int:
        """Index of the phase at a time; -1 outside."""
        if not 0.0 <= time_s < self.whole_s:
            return -1
        return int(np.searchsorted(self.end_s, time_s, side="right"))

    def bars(self, low_s: float, high_s: float, most: int) -> NDArray[np.int64]:
        """Indices of the phases to draw between two times: all, or the highest of each of `most` columns."""
        first = int(np.searchsorted(self.end_s, low_s, side="right"))
        last = int(np.searchsorted(self.begin_s, high_s, side="left"))
        inside = np.arange(first, max(first, last), dtype=np.int64)
        if len(inside) <= most:
            return inside
        column = (self.begin_s[inside] - low_s) / max(high_s - low_s, 1e-30) * most
        column = np.clip(column.astype(np.int64), 0, most - 1)
        rate, starts = self.bytes_per_s[inside], np.flatnonzero(np.diff(column, prepend=-1))  # time goes on
        counts = np.diff(starts, append=len(inside))
        highest = np.flatnonzero(rate == np.repeat(np.maximum.reduceat(rate, starts), counts))
        _, once = np.unique(column[highest], return_index=True)
        return inside[highest[once]]


@dataclass(frozen=True, eq=False, slots=True)
class Digest:
    """A result as arrays.

    Attributes
    ----------
    pairs : levels between which anything moves, as `level_pairs` orders them.
    read, written : int64[groups, pairs], bytes.
    crosses : bool[groups, pairs], whether the group has traffic between the levels, be it of no byte.
    operator_bytes : float64[operators], bytes that each moves from and to DRAM.
    figures : int64[groups, 3], of `RegisterUse`: live, limit, and spilled bytes.
    looks : float64[groups, 3], what the canvas writes and draws of a group: latency, spilled bytes, and a number
        for how it does not fit, 0 where it fits.
    demand : what one request asks of DRAM, phase by phase.
    """

    result: CostResult
    pairs: tuple[Pair, ...]
    read: Figures
    written: Figures
    crosses: NDArray[np.bool_]
    operator_bytes: NDArray[np.float64]
    figures: Figures
    looks: NDArray[np.float64]
    demand: Demand

    @classmethod
    def of(cls, result: CostResult, before: Digest | None = None) -> Self:
        """The digest of `result`; what `before` knows of the same groups is taken over."""
        request, groups = result.request, result.groups
        if before is not None:
            last = before.result.request
            same = last.graph is request.graph and last.accelerator is request.accelerator
            # A replay moves bytes of the operators that it runs again: these are no longer one group's.
            same = same and not result.order and not before.result.order
            before = before if same and last.precision == request.precision else None
        rows = np.full(len(groups), -1) if before is None else _rows_before(result, before)
        traffic = None if before is None else _patched(result, before, rows)
        if traffic is None:
            traffic = _summed(result)
        new = np.flatnonzero(rows < 0).tolist()
        figures = np.zeros((len(groups), 3), dtype=np.int64)
        looks = np.zeros((len(groups), 3), dtype=np.float64)
        if before is not None:
            figures, looks = before.figures[rows], before.looks[rows]
        for index in new:
            group = groups[index]
            use, unfit = group.registers, group.infeasible
            figures[index] = use.live, use.limit, use.spilled_bytes
            looks[index] = group.latency_s, use.spilled_bytes, 0 if unfit is None else hash(unfit)
        return cls(result, *traffic, figures, looks, Demand.of(result))

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """float64[groups]."""
        return self.looks[:, 0]

    @property
    def live(self) -> Figures:
        """int64[groups], of `RegisterUse`."""
        return self.figures[:, 0]

    @property
    def limit(self) -> Figures:
        """int64[groups], of `RegisterUse`."""
        return self.figures[:, 1]

    @property
    def spilled(self) -> Figures:
        """int64[groups], bytes, of `RegisterUse`."""
        return self.figures[:, 2]


_Sums = tuple[tuple[Pair, ...], Figures, Figures, NDArray[np.bool_], NDArray[np.float64]]


def _rows_before(result: CostResult, before: Digest) -> NDArray[np.int64]:
    """Per group its index in the digest before; -1 where that does not know it, or knows it under other knobs."""
    known = before.result.groups
    at = {group.operators[0]: index for index, group in enumerate(known)}
    out: list[int] = []
    for group in result.groups:
        operators = group.operators
        row = at.get(operators[0], -1)
        if row >= 0:
            last, traffic = known[row], group.traffic
            # Groups whose traffic is no row at all share their empty tuple: what else they have tells them apart.
            same = last.traffic is traffic and (bool(traffic) or last.registers is group.registers)
            row = row if same and last.operators == operators else -1
        out.append(row)
    return np.array(out, dtype=np.int64)


def _summed(result: CostResult) -> _Sums:
    """Every group added up."""
    pairs, count = level_pairs(result), len(result.groups)
    sums: _Sums = (
        pairs,
        np.zeros((count, len(pairs)), dtype=np.int64),
        np.zeros((count, len(pairs)), dtype=np.int64),
        np.zeros((count, len(pairs)), dtype=np.bool_),
        np.full(len(result.request.graph.operators), np.nan),
    )
    for index in range(count):
        _add(result, index, sums)
    return sums


def _patched(result: CostResult, before: Digest, rows: NDArray[np.int64]) -> _Sums | None:
    """Only the groups added up that `before` does not know (`rows`); None where other levels are crossed now."""
    sums: _Sums = (
        before.pairs,
        before.read[rows],
        before.written[rows],
        before.crosses[rows],
        before.operator_bytes.copy(),
    )
    there = set(before.pairs)
    for index in np.flatnonzero(rows < 0).tolist():
        if any((row.outer, row.inner) not in there for row in result.groups[index].traffic):
            return None
        for figures in sums[1:4]:
            figures[index] = 0
        _add(result, index, sums)
    return sums if bool(sums[3].any(axis=0).all()) else None


def _add(result: CostResult, index: int, sums: _Sums) -> None:
    """Fill one group's rows, which are zero, and the DRAM bytes of its operators."""
    pairs, read, written, crosses, operator_bytes = sums
    group, dram = result.groups[index], result.request.accelerator.dram.name
    readers, writers = first_readers(result, group)
    amount = dict.fromkeys(group.operators, 0)
    for row in group.traffic:
        column = pairs.index((row.outer, row.inner))
        read[index, column] += row.read_bytes
        written[index, column] += row.write_bytes
        crosses[index, column] = True
        if row.outer == dram:
            writer = writers.get(row.tensor, group.operators[0])
            amount[writer] += row.write_bytes
            amount[readers.get(row.tensor, writer)] += row.read_bytes
    own = operator_bytes[list(amount)] if group.replays >= 0 else 0.0
    operator_bytes[list(amount)] = own + np.array(list(amount.values()))
