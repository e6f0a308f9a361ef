"""The tail's statistics: ranks against sorting, parts in tied ranks, intervals against known processes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from model.serving.tail import PERCENTILES, parts_at, percentiles, rank_of, ranked

KINDS = ("exponential", "heavy", "constant", "small", "spread")


def values_of(kind: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    return {
        "exponential": lambda: rng.exponential(4e6, count).astype(np.int64),
        "heavy": lambda: (rng.pareto(0.5, count) * 1e3).clip(max=2.0**62).astype(np.int64),
        "constant": lambda: np.full(count, 123_456_789),
        "small": lambda: rng.integers(0, 4, count),
        "spread": lambda: rng.integers(0, 2**63 - 1, count, dtype=np.int64),
    }[kind]()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3, 100, 12_345])
def test_ranks_are_those_of_the_sorted_values(kind, count):
    values = values_of(kind, count)
    order = np.sort(values)
    ranks = sorted({1, count, count // 2 + 1, *(rank_of(share, count) for _, share in PERCENTILES)})
    for asked in (ranks, ranks[::-1], [ranks[0], ranks[0]]):
        assert ranked(values, asked) == [int(order[rank - 1]) for rank in asked]
    values.setflags(write=False)
    assert percentiles(values) == [int(order[rank_of(share, count) - 1]) for _, share in PERCENTILES]


def test_ranks_at_the_edges_of_bins_and_of_int64():
    """Powers of two and their neighbours, where a conversion to float64 may round up into the next bin."""
    edges = [2**k + d for k in range(63) for d in (-1, 0, 1) if 2**k + d < 2**63] + [2**63 - 1, 0]
    values = np.array(edges, dtype=np.int64)
    np.random.default_rng(1).shuffle(values)
    ranks = list(range(1, values.size + 1))
    assert ranked(values, ranks) == sorted(edges)


@pytest.mark.parametrize("kind", ["exponential", "small", "constant"])
@pytest.mark.parametrize("count", [1, 7, 200, 5_000])
def test_parts_are_those_of_the_whole_order(kind, count):
    """The windows are found by value; the plain way sorts everything, ties by place."""
    response = values_of(kind, count)
    queue = response // 3
    parts = (("queue", queue), ("base", response - queue))
    order = np.argsort(response, kind="stable")
    half = max(1, count // 200)
    for share in (Fraction(1, 2), Fraction(95, 100), Fraction(99, 100)):
        rank = rank_of(share, count)
        value = int(response[order[rank - 1]])
        found = parts_at(rank, response, parts)
        assert sum(amount for _, amount in found) == value
        low, high = order[max(0, rank - 1 - half) : rank], order[rank - 1 : rank + half]
        below = Fraction(sum(response[low].tolist()), low.size)
        above = Fraction(sum(response[high].tolist()), high.size)
        mix = (value - below) / (above - below) if above != below else Fraction(0)
        exact = [
            (1 - mix) * Fraction(sum(part[low].tolist()), low.size)
            + mix * Fraction(sum(part[high].tolist()), high.size)
            for _, part in parts
        ]
        assert all(abs(amount - plain) < 1 for (_, amount), plain in zip(found, exact, strict=True))
