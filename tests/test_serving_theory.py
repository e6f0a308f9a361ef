"""Seeded simulations against queueing theory, the reference profiles, and the statistics of the tail."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from model.cost.result import PHASE_KINDS
from model.serving.arrivals import Process, synthetic
from model.serving.intervals import batch_means, relaxation, too_few
from model.serving.serve import serve
from model.serving.streams import DrawnService, Stream, Throttle, Workload
from model.serving.tail import jain, parts_at, rank_of
from model.serving.workload import load_workload

RATE = 1000.0  # of one slot's service, so that the mean service time is 1 ms


def simulate(rho: float, slots: int, requests: int, dist: str = "exponential", seed: int = 0, kind="poisson"):
    arrivals = synthetic(Process(kind, (rho * slots * RATE,)), seed, requests=requests)
    stream = Stream("s", arrivals, rho * slots * RATE, DrawnService(dist, 1.0 / RATE))
    return serve(Workload("theory", "", "", seed, slots, "dynamic", True, Throttle(), (stream,)))


def waits_and_responses(result, warmup: int):
    """Mean wait and response after `warmup` requests, in mean service times."""
    requests = result.requests
    wait = (requests.start_ns - requests.arrival_ns)[warmup:]
    response = (requests.completion_ns - requests.arrival_ns)[warmup:]
    return wait.mean() * 1e-9 * RATE, response.mean() * 1e-9 * RATE


def erlang_c(slots: int, load: float) -> float:
    """Probability of waiting in M/M/c at `load` erlangs."""
    top = load**slots / math.factorial(slots) * slots / (slots - load)
    return top / (sum(load**k / math.factorial(k) for k in range(slots)) + top)


@pytest.mark.parametrize(("rho", "slots"), [(0.5, 1), (0.8, 1), (0.7, 2), (0.8, 4), (0.8, 8)])
def test_exponential_service_waits_as_erlang_says(rho, slots):
    """M/M/c: mean wait C(c, rho c) / (c (1 - rho)); 2 % + 0.003, five deviations at 4e5 requests."""
    wait, response = waits_and_responses(simulate(rho, slots, 400_000), 20_000)
    expected = erlang_c(slots, rho * slots) / (slots * (1.0 - rho))
    assert wait == pytest.approx(expected, rel=0.04, abs=0.003)
    assert response == pytest.approx(expected + 1.0, rel=0.03)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_deterministic_service_waits_half_as_long(rho):
    """M/D/1: mean wait rho / (2 (1 - rho))."""
    wait, _ = waits_and_responses(simulate(rho, 1, 400_000, "deterministic"), 20_000)
    assert wait == pytest.approx(rho / (2.0 * (1.0 - rho)), rel=0.04)


def test_percentiles_of_an_exponential_response():
    """M/M/1 response is exponential with rate 1 - rho."""
    result = simulate(0.7, 1, 400_000)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        expected = -math.log(1.0 - share) / 0.3 / RATE
        assert getattr(result, f"{name}_ns") * 1e-9 == pytest.approx(expected, rel=0.06)


def test_intervals_contain_the_truth_about_as_often_as_they_say():
    """40 seeds of M/M/1 at rho 0.5: nominally 38 contain it; 33 is the 2 % point at a coverage of 93 %."""
    expected = -math.log(0.05) / 0.5 / RATE
    hits = 0
    for seed in range(40):
        low, high = dict(simulate(0.5, 1, 40_000, seed=seed).interval_s)["p95"]
        hits += low < expected < high
    assert 33 <= hits <= 40


def test_constant_arrivals_below_capacity_never_wait():
    result = simulate(0.95, 3, 1_000, "deterministic", kind="constant")
    assert result.p999_ns == result.p50_ns == 1_000_000
    assert result.utilisation == pytest.approx(0.95)


def test_an_endless_process_at_capacity_is_unstable():
    result = simulate(1.25, 2, 2_000)
    assert result.unstable and result.interval_s == () and result.too_few == ()
    assert any("grows by 500 requests/s" in note for note in result.notes)
    assert not simulate(0.99, 2, 2_000).unstable


def test_too_few_requests_are_said_and_get_no_interval():
    result = simulate(0.9, 1, 5_000)
    assert set(result.too_few) >= {"p95", "p99", "p999"}
    assert not {name for name, _ in result.interval_s} & set(result.too_few)


def test_relaxation_of_an_autoregressive_series():
    """AR(1) with coefficient a: 1 + 2 sum a**k = (1 + a) / (1 - a)."""
    generator = np.random.default_rng(3)
    series = np.zeros(200_000)
    noise = generator.normal(size=series.size)
    for k in range(1, series.size):
        series[k] = 0.8 * series[k - 1] + noise[k]
    assert relaxation(np.rint(series * 1e6).astype(np.int64)) == pytest.approx(9.0, rel=0.1)
    assert relaxation(np.full(100, 7)) == 1.0


def test_interval_is_exact_where_nothing_varies():
    ((low, high),) = batch_means(np.full(1_000, 5_000_000), [Fraction(95, 100)])
    assert low == high == pytest.approx(0.005)
    assert too_few(1_999, 1.0, Fraction(95, 100)) and not too_few(2_000, 1.0, Fraction(95, 100))


@pytest.mark.parametrize(
    ("beyond", "low", "high"),
    [
        # Shares of 0 and 0.1: deviation 0.05 sqrt(20/19), error 0.01147; 2.093 * 0.01147 * 2000 = 48.02 ranks.
        ([0] * 10 + [10] * 10, 1900 - 48, 1900 + 48),
        # Of 0.04 and 0.09: error 0.004588, 19.21 ranks; skewness 1.5: 1.5 * 9.761 / 26.83 * 9.177 = 5.01 more.
        ([4] * 16 + [9] * 4, 1900 - 19, 1900 + 24),
        # All alike: nothing is in doubt.
        ([5] * 20, 1900, 1900),
    ],
)
def test_an_interval_by_hand(beyond, low, high):
    """p95 of the times 1 to 2000 ns, of which each of 20 batches has `beyond` of the longest hundred."""
    long, short = iter(range(1901, 2001)), iter(range(1, 1901))
    response = [next(long if i < count else short) for count in beyond for i in range(100)]
    ((least, most),) = batch_means(np.array(response), [Fraction(95, 100)])
    assert (round(least * 1e9), round(most * 1e9)) == (low, high)


def test_nearest_rank():
    """sorted[ceil(p n) - 1], without the trap of 0.95 * 20 in floats."""
    assert [rank_of(Fraction(95, 100), n) for n in (1, 19, 20, 21, 100)] == [1, 19, 19, 20, 95]
    assert rank_of(Fraction(1, 2), 3) == 2


def test_parts_by_hand():
    """n = 4, rank 3, h = 1: low = ranks 2-3, high = ranks 3-4 of responses 10, 20, 30, 70.

    Means 25 and 50; 30 = 0.8 * 25 + 0.2 * 50. Queue 4, 9, 50: 0.8 * 6.5 + 0.2 * 29.5 = 11.1.
    """
    response = np.array([70, 10, 30, 20])
    queue = np.array([50, 0, 9, 4])
    parts = (("queue", queue), ("queue_imbalance", queue), ("base", response - queue))
    assert parts_at(3, response, parts) == (
        ("queue", 11),
        ("queue_imbalance", 11),
        ("base", 19),
    )


def test_jain():
    assert jain([3, 3, 3]) == 1.0 and jain([5, 0, 0, 0]) == 0.25 and jain([0, 0]) == 1.0


# ---------------------------------------------------------------- three plans as reference profiles

LETTERS = dict(zip("Lfcsd", PHASE_KINDS, strict=True))


def reference_profiles(page: str) -> dict[str, list[list[object]]]:
    """The page's segments, `kind ns:bytes[*spill]`; "back" ends with the third group of "mod"."""
    lines = page.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("mod  L"))
    text = {
        "mod": lines[first].split()[1:] + lines[first + 1].split(),
        "max": lines[first + 2].split()[1:],
        "back": lines[first + 3].split("  then")[0].split()[1:] + lines[first + 1].split(),
    }
    out: dict[str, list[list[object]]] = {}
    for plan, segments in text.items():
        rows: list[list[object]] = []
        for segment in segments:
            kind, base, moved, spill = re.fullmatch(r"(\w)(\d+):(\d+)(?:\*(\d+))?", segment).groups()
            rows.append([LETTERS[kind], int(base), int(moved), int(spill or 0), 0])
        out[plan] = rows
    return out


@pytest.mark.shared
@pytest.mark.parametrize(
    ("plan", "alone_ms", "shared_ms"),
    [("mod", 5.4862, 6.7010), ("max", 5.2442, 8.8530), ("back", 5.2633, 5.4458)],
)
def test_reference_profiles(shared, tmp_path, plan, alone_ms, shared_ms):
    """Poisson 640/s, 12,000 requests, jitter cv 0.05, eight slots: p95 to four digits with endless bandwidth, and
    within 0.3 % where slots share 68 GB/s (the order of events at one nanosecond moves it by 0.15 %).
    """
    phases = reference_profiles((shared / "MINICASE.md").read_text(encoding="utf-8"))[plan]
    document = {"format": 1, "repeat": 12, "slots": 8, "bandwidth_bytes_per_s": 68e9, "phases": phases}
    (tmp_path / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    text = (
        'format = 1\nrequests = 12000\n[[stream]]\narrivals = { kind = "poisson", rate_per_s = 640.0 }\n'
        'jitter = { kind = "gamma", cv = 0.05 }\nprofile = "plan.json"\n'
    )
    (tmp_path / "w.toml").write_text(text, encoding="utf-8")
    result = serve(load_workload(tmp_path / "w.toml"))
    assert result.slots == 8
    assert result.p95_ns * 1e-6 == pytest.approx(shared_ms, rel=0.003)
    apart = text.replace("[[stream]]", "contention = { enabled = false }\n[[stream]]", 1)
    (tmp_path / "w.toml").write_text(apart, encoding="utf-8")
    result = serve(load_workload(tmp_path / "w.toml"))
    assert round(result.p95_ns * 1e-6, 4) == alone_ms
    assert any("do not contend" in note for note in result.notes)
