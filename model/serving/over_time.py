"""What slots share, over time: DRAM by slot and cause, temperatures and the clock, the KV cache.

Knows a replay's values and which arrays its kernels fill when somebody looks (`View`); runs nothing. A stretch of time
is cut into columns of equal length, and each column has what the events in it say: no sampling, so that no burst is
lost, however short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import phases as ph
from . import thermal_kernels as tk
from .rules import Offers, Rules, Times

CAUSES: tuple[str, ...] = ("first fetch, loads and stores", "spill", "refetch", "not given")
"""What the bytes of `OverTime.moved_bytes` are: its last axis, as `phases.C_PLAIN` and the others say."""
MOST_ROWS = 64
"""Slots beyond these share rows."""


@dataclass(frozen=True, slots=True)
class View:
    """A stretch of time, ``[low_ns, high_ns)``, in `columns` of equal length."""

    low_ns: int
    high_ns: int
    columns: int

    @property
    def column_ns(self) -> float:
        """How long a column lasts."""
        return max(1, self.high_ns - self.low_ns) / self.columns


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """What a run's kernels fill while they are looked at; all empty where nobody looks."""

    view: NDArray[np.float64]
    moved: NDArray[np.float64]
    warmth: NDArray[np.float64]

    @classmethod
    def of(cls, view: View | None, slots: int | None, warms: bool) -> Seen:
        """Arrays for a view of a run on `slots` (None: without end; one row for all)."""
        if view is None:
            return cls(np.zeros(2), np.zeros((0, 0, ph.CAUSES)), np.zeros((tk.WARMTH_ROWS, 0)))
        rows = 1 if slots is None else min(slots, MOST_ROWS)
        warmth = np.zeros((tk.WARMTH_ROWS, view.columns + 1 if warms else 0))
        warmth[: tk.K_LOW] = np.nan  # edges that no event passes by
        return cls(
            np.array([view.low_ns, view.column_ns], np.float64),
            np.zeros((rows, view.columns, ph.CAUSES)),
            warmth,
        )


@dataclass(frozen=True, eq=False, slots=True)
class OverTime:
    """See the module's docstring; arrays are read-only.

    Attributes
    ----------
    moved_bytes : float64[rows, columns, causes]: bytes that passed between slots and DRAM, by `CAUSES`; the last is
        what running phases asked for and were not given (they took longer instead, so it is asked for again).
    slots : of the replay; 0: without end, all in one row. Row r has the slots j with ``j * rows // slots == r``.
    bandwidth_bytes_per_s : what the slots share; infinite: no contention.
    die_c, sink_c : float64[columns + 1] at the edges of the columns; NaN before the first event and after the last;
        empty where nothing warms. low_clock : float64[columns], the share of each in which the die kept the clock low.
    kv_bytes : int64[columns], the most that requests held of the KV cache at one moment of each column; empty where
        no request is answered token by token, or nothing says how much a token takes.
    kv_capacity_bytes : of all streams; None: no limit.
    """

    view: View
    moved_bytes: NDArray[np.float64]
    slots: int
    bandwidth_bytes_per_s: float
    die_c: NDArray[np.float64]
    sink_c: NDArray[np.float64]
    low_clock: NDArray[np.float64]
    kv_bytes: Times
    kv_capacity_bytes: int | None

    @classmethod
    def of(cls, view: View, seen: Seen, offers: Offers, rules: Rules, start: Times, end: Times) -> OverTime:
        """What a run saw, which began and completed each request at `start` and `end`."""
        columns = view.columns
        out = cls(
            view,
            seen.moved,
            rules.slots or 0,
            rules.bandwidth_bytes_per_s,
            seen.warmth[tk.K_DIE],
            seen.warmth[tk.K_SINK],
            seen.warmth[tk.K_LOW, :columns] / view.column_ns,
            _held(view, offers, start, end),
            _capacity(offers),
        )
        for array in (out.moved_bytes, out.die_c, out.sink_c, out.low_clock, out.kv_bytes):
            array.setflags(write=False)
        return out

    @property
    def load(self) -> NDArray[np.float64]:
        """float64[columns]: bytes that passed, as a share of what the bandwidth lets pass; 0 where it has no end."""
        passed = self.moved_bytes[:, :, : ph.C_UNMET].sum(axis=(0, 2))
        return passed / (self.bandwidth_bytes_per_s * self.view.column_ns * 1e-9)


def _held(view: View, offers: Offers, start: Times, end: Times) -> Times:
    """The most bytes of KV cache that are held at one moment of each column: each request's from start to end.

    Who ends at a moment has given back what who starts at it takes.
    """
    told = offers.generation
    if told is None or not told.kv_bytes.any():
        return np.zeros(0, np.int64)
    moment = np.concatenate((end, start))  # stable: ends go first
    change = np.concatenate((-told.kv_bytes, told.kv_bytes))
    order = np.argsort(moment, kind="stable")
    moment, held = moment[order], np.cumsum(change[order])
    edges = view.low_ns + view.column_ns * np.arange(view.columns + 1)
    last = np.append(moment[1:] != moment[:-1], True)
    moment, held = moment[last], held[last]
    before = np.searchsorted(moment, edges, side="right")
    most = np.where(before > 0, held[np.maximum(before, 1) - 1], 0)[:-1]
    inside = np.searchsorted(moment, edges, side="left")
    full = np.flatnonzero(np.diff(inside) > 0)
    if full.size:
        peaks = np.maximum.reduceat(held[: inside[-1]], inside[:-1][full])
        most[full] = np.maximum(most[full], peaks)
    return most


def _capacity(offers: Offers) -> int | None:
    told = offers.generation
    limits = [] if told is None else [stream.kv_capacity_bytes for stream in told.streams if stream.plans]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None
