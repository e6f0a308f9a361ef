"""The tail's statistics: ranks against sorting, parts in tied ranks, intervals against known processes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from model.serving.coverage import Load, measure, responses, table, truth_s
from model.serving.intervals import BATCH_MEANS, BLOCK_BOOTSTRAP, block_bootstrap, intervals
from model.serving.result import PERCENTILES
from model.serving.tail import parts_at, percentiles, rank_of, ranked
from model.serving.tail_kernels import resampled_ranks

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


@pytest.mark.parametrize("recorded", [False, True])
def test_intervals_contain_the_truth_about_as_often_as_they_say(recorded):
    """20 fixed seeds at rho 0.7: nominally 19 of 20; 16 is the 2.6 % point at a coverage of 93 %, per percentile.

    The full measurement, 200 seeds and a million requests, is ``tilewright bench --coverage 200``.
    """
    truth = {name: -math.log(1.0 - float(share)) / 0.3 * 1e-3 for name, share in PERCENTILES}
    hits: dict[str, int] = dict.fromkeys(("p50", "p95", "p99"), 0)
    for seed in range(20):
        found = intervals(responses(Load(0.7, 1, 100_000), seed), recorded)
        assert found.too_few == ("p999",)
        assert found.method == (BLOCK_BOOTSTRAP if recorded else BATCH_MEANS)
        for name, (low, high) in found.bounds_s:
            hits[name] += low <= truth[name] <= high
    assert all(hit >= 16 for hit in hits.values()), hits


def test_too_few_is_decided_per_percentile_and_from_the_responses_alone():
    """p99 at rho 0.9 with 100,000 requests has too few, p95 at rho 0.7 with as many has enough."""
    for seed in range(20):
        assert "p99" in intervals(responses(Load(0.9, 1, 100_000), seed), False).too_few
        assert "p95" not in intervals(responses(Load(0.7, 1, 100_000), seed), False).too_few


def test_of_an_estimate_only_too_few_is_said():
    """How far a model is off is not what sampling leaves open."""
    series = responses(Load(0.9, 1, 100_000), 0)
    for recorded in (False, True):
        whole, bare = intervals(series, recorded), intervals(series, recorded, bounded=False)
        assert whole.bounds_s and not bare.bounds_s
        assert bare.too_few == whole.too_few and "p99" in bare.too_few


def test_a_bootstrap_of_equal_responses_has_no_width():
    (bound,) = block_bootstrap(np.full(5_000, 2_000_000), [Fraction(95, 100)], 1.0)
    assert bound == (0.002, 0.002)


def test_resampled_ranks_against_sorting():
    """The kernel's walk from the top against drawing the blocks and sorting them."""
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1_000, 60)
    block = (np.arange(60) * 7 // 60).astype(np.int32)
    order = np.argsort(values, kind="stable")
    drawn = rng.integers(0, 7, (50, 7), dtype=np.int32)
    shares = [Fraction(999, 1000), Fraction(95, 100), Fraction(1, 2)]
    out = np.empty((50, 3), np.int64)
    ratios = np.array([(share.numerator, share.denominator) for share in shares])
    resampled_ranks(block[order], np.bincount(block), drawn, ratios, out)
    for row, picks in zip(out, drawn, strict=True):
        series = np.sort(np.concatenate([values[block == pick] for pick in picks]))
        assert [values[order[at]] for at in row] == [
            series[rank_of(share, series.size) - 1] for share in shares
        ]


def test_the_truth_of_a_queue_and_what_is_measured_of_it():
    """M/M/1: exponential with rate 1 - rho. M/M/4 at rho 0.8: against a long run, five deviations."""
    assert truth_s(Load(0.9, 1, 1), 0.95) == pytest.approx(-math.log(0.05) / 0.1 * 1e-3)
    several = Load(0.8, 4, 1_000_000)
    assert truth_s(several, 0.95) == pytest.approx(percentiles(responses(several, 0))[1] * 1e-9, rel=0.06)
    rows = list(measure(Load(0.9, 1, 2_000), 3))
    assert [row.percentile for row in rows] == ["p50", "p95", "p99"]
    assert rows[2].too_few == 1.0 and rows[2].given_and_right is None
    assert len(table(rows)) == 4
