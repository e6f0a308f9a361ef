"""What-ifs: settings changed as they say, curves read as they are defined, against theory and by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from model.cost.result import PHASE_DTYPE
from model.serving.drivers import Setting
from model.serving.result import ServiceProfile
from model.serving.rules import Offers, Rules, Services, StreamRules
from model.serving.slowdown import SlowdownTables, first_estimate
from model.serving.whatif import (
    HighestRate,
    Limit,
    Point,
    as_poisson,
    at_rate,
    batch_sweep,
    beside_poisson,
    confirmed,
    highest_rate,
    last_good,
    load_curve,
    measure,
    placed,
    ramp,
    static_against_dynamic,
    with_batches,
)

from .test_serving_drivers import reference, replay


def single_server(rho: float, count: int) -> Setting:
    """M/M/1 with a mean service of 1 ms; services are sizes of one base time."""
    rng = np.random.default_rng(3)
    arrival = np.rint(np.cumsum(rng.exponential(1e6 / rho, count))).astype(np.int64)
    offers = Offers.of_one_stream(arrival, size=rng.exponential(1.0, count))
    return Setting(offers, Services.of_times(np.array([[0, 1_000_000]])), Rules(1))


def test_a_point_by_hand():
    """Two requests of 10 ns at 0 and 4 on one slot: responses 10 and 16, work 20 within 4."""
    setting = Setting(
        Offers.of_one_stream(np.array([0, 4])), Services.of_times(np.array([[0, 10]])), Rules(1)
    )
    point = measure(setting, replay)
    assert point.percentiles_ns == (10, 16, 16, 16)
    assert (point.rate_per_s, point.throughput_rps) == (0.5e9, 0.1e9)
    assert point.utilisation == 5.0 and point.energy_j == 0.0
    assert {name: amount for name, amount in point.parts if amount} == {"queue": 6, "base": 10}
    assert point.document()["p95_s"] == pytest.approx(16e-9)
    json.dumps(point.document(), allow_nan=False)


def test_energy_of_a_batch_is_shared():
    """Two at once in one batch of 3 J, one alone for 2 J: 5 J over three requests."""
    phases = np.array([(3, 100, 0, 0, 0)], PHASE_DTYPE)
    profiles = tuple(ServiceProfile(phases, 1, 1, 1e9, energy) for energy in (2.0, 3.0))
    services = Services.of_profiles(np.array([[-1, 0, 1]], np.int32), profiles)
    setting = Setting(
        Offers.of_one_stream(np.array([0, 0, 500])), services, Rules(1, (StreamRules(batch=2),))
    )
    assert measure(setting, replay).energy_j == pytest.approx(5.0 / 3.0)


def test_stretched_and_poisson_arrivals_keep_the_requests_and_the_rate():
    setting = single_server(0.5, 20_000)
    for other in (at_rate(setting, 800.0), as_poisson(at_rate(setting, 800.0), seed=5)):
        assert other.offers.size is setting.offers.size
        assert (np.diff(other.offers.arrival_ns) >= 0).all()
        assert measure(other, replay).rate_per_s == pytest.approx(800.0, rel=0.03)
    assert at_rate(setting, 800.0).offers.arrival_ns[0] == 0


def test_load_curve_and_its_knee():
    """M/M/1: p95 is ln 20 / (1 - rho), so that rate over p95, rho (1 - rho), is largest at rho = 1/2."""
    curve = load_curve(single_server(0.5, 200_000), replay, [900.0, 100.0, 300.0, 500.0, 700.0])
    assert [round(point.utilisation, 1) for point in curve.points] == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert curve.knee == 2 and curve.document()["knee_rate_per_s"] == pytest.approx(500.0, rel=0.01)
    wanted = [np.log(20.0) / (1.0 - rho) * 1e6 for rho in (0.1, 0.3, 0.5, 0.7)]
    assert [point.at("p95") for point in curve.points[:4]] == pytest.approx(wanted, rel=0.06)


def test_highest_rate_within_a_limit():
    """M/M/1 within 10 ms at p95: rho = 1 - ln 20 / 10 = 0.70."""
    setting, limit = single_server(0.5, 200_000), Limit("p95", 10_000_000)
    found = highest_rate(setting, replay, limit, [100.0 * k for k in range(1, 12)])
    assert found.point is not None and found.beyond is not None
    assert found.point.rate_per_s == pytest.approx(700.0, rel=0.03)
    assert limit.met(found.point) and not limit.met(found.beyond)
    assert found.beyond.rate_per_s <= found.point.rate_per_s * 1.0021
    never = highest_rate(setting, replay, Limit("p95", 1_000), [100.0, 200.0])
    assert never.point is None and never.beyond is not None and never.document()["rate_per_s"] is None
    always = highest_rate(setting, replay, Limit("p95", 10**12), [100.0, 200.0])
    assert always.beyond is None and always.point is not None
    # A finite run above capacity has percentiles, and misses all the same.
    over = highest_rate(setting, replay, Limit("p95", 10**12), [900.0, 1_100.0])
    assert over.point is not None and over.point.rate_per_s == pytest.approx(1_000.0, rel=0.02)


def test_the_last_edge_is_refined_not_the_first():
    """Holds up to 1.2 and from 2.7 to 3.3: the last edge is 3.3."""
    low, high = last_good([1.0, 2.0, 3.0, 4.0], lambda x: x <= 1.2 or 2.7 <= x <= 3.3, 1e-6)
    assert low == pytest.approx(3.3) and high == pytest.approx(3.3)


def test_batches_trade_the_tail_for_throughput():
    """A batch of b takes 4 + b ms. Alone 5 ms, so 400/s on one slot overload it; in batches of eight 667/s fit."""
    base = np.array([[0, *(1_000_000 * (4 + b) for b in range(1, 9))]])
    arrival = np.rint(np.cumsum(np.random.default_rng(1).exponential(2.5e6, 5_000))).astype(np.int64)
    setting = Setting(Offers.of_one_stream(arrival), Services.of_times(base), Rules(1))
    limit = Limit("p99", 100_000_000)
    sweep = batch_sweep(setting, replay, [1, 4, 8], [0, 5_000_000], limit)
    assert [(row.batch, row.linger_ns) for row in sweep.rows] == [
        (1, 0), (4, 0), (4, 5_000_000), (8, 0), (8, 5_000_000)
    ]  # fmt: skip
    assert [row.within for row in sweep.rows] == [False, True, True, True, True]
    assert sweep.rows[0].point.throughput_rps == pytest.approx(200.0, rel=0.01)
    assert sweep.rows[3].point.throughput_rps == pytest.approx(400.0, rel=0.05)
    waits = [dict(row.point.parts)["batch_wait"] for row in sweep.rows]
    assert waits[1] == waits[3] == 0 and waits[4] > 0
    assert with_batches(setting, 4, 7).rules.streams[0].linger_ns == 7
    json.dumps(sweep.document(), allow_nan=False)


def two_streams(factor: float) -> Setting:
    """Streams of 0.9 and 0.1 of the load of two slots, each at home on its own."""
    rng = np.random.default_rng(2)
    busy = np.cumsum(rng.exponential(1.1e6, 20_000))
    quiet = np.cumsum(rng.exponential(1.0e7, 2_200))
    arrival = np.rint(np.concatenate([busy, quiet]) * factor).astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    stream = np.repeat(np.array([0, 1], np.int32), [busy.size, quiet.size])[order]
    offers = replace(
        Offers.of_one_stream(arrival[order], size=rng.exponential(1.0, order.size)), stream=stream
    )
    streams = (StreamRules(home=(0,)), StreamRules(home=(1,)))
    return Setting(offers, Services.of_times(np.array([[0, 1_000_000]])), Rules(2, streams))


def test_leaving_home_pays_until_its_cost_is_even():
    found = static_against_dynamic(two_streams(1.0), replay)
    assert found.dynamic.at("p95") < found.static.at("p95")
    assert found.break_even is not None and found.break_even > 1.25 and not found.endless

    def p95(factor: float) -> int:
        return measure(
            placed(two_streams(1.0), "home-first", Fraction(round(factor * 1000), 1000)), replay
        ).at("p95")

    assert p95(round(found.break_even, 3)) <= found.static.at("p95") * 1.01
    assert p95(found.break_even * 1.02) > found.static.at("p95") * 0.99
    json.dumps(found.document(), allow_nan=False)


def test_off_home_cost_is_for_slots_that_are_not_home():
    rules = placed(two_streams(1.0), "home-first", Fraction(3, 2)).rules
    assert rules.off_home is not None
    assert rules.off_home.tolist() == [[[1, 1], [3, 2]], [[3, 2], [1, 1]]]
    assert placed(two_streams(1.0), "static").rules.off_home is None


def bare(rate: float, p95: int, utilisation: float = 0.5, **parts: int) -> Point:
    return Point(rate, rate, 0.0, utilisation, (1, p95, p95, p95), tuple(parts.items()))


def test_what_breaks_first():
    limit = Limit("p95", 100)
    fine = [bare(1, 50, queue=10, base=40), bare(2, 90, queue=30, contention_queue=20, base=40)]
    found = ramp([*fine, bare(3, 130, queue=40, contention_queue=50, base=40)], limit)
    assert (found.what, found.cause) == ("objective", "contention_queue")
    assert found.fine is fine[1] and found.broken is not None and found.broken.rate_per_s == 3
    assert ramp([*fine, bare(4, 95, utilisation=1.0, queue=55, base=40)], limit).what == "capacity"
    assert ramp(fine, limit).what == "" and ramp(fine, limit).broken is None
    at_once = ramp([bare(1, 200, queue=20, base=180)], limit)
    assert (at_once.fine, at_once.cause) == (None, "base")
    json.dumps(found.document(), allow_nan=False)


@pytest.mark.shared
def test_recorded_beside_poisson(shared):
    """The Azure trace on four slots: p99 32.5 s as recorded, about 3.1 s as Poisson of the same rate."""
    _, setting = reference(shared)
    plain = replace(
        setting,
        offers=replace(setting.offers, fallback=np.ones_like(setting.offers.fallback)),
        rules=Rules(4),
    )
    found = beside_poisson(plain, replay)
    assert found["recorded"]["p99_s"] == pytest.approx(32.489748)
    assert found["poisson"]["p99_s"] == pytest.approx(3.1, rel=0.15)


def test_the_first_estimate_serves_the_search():
    """Sixteen slots that share bandwidth for eight: the rate within a limit is that of the shared bandwidth."""
    phases = np.array([(3, 1_000_000, 1_000_000, 0, 0)], PHASE_DTYPE)
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (ServiceProfile(phases, 1, 16, 8e9),))
    offers = Offers.of_one_stream(
        np.cumsum(np.random.default_rng(0).exponential(1e6, 4_000)).astype(np.int64)
    )
    setting, tables = Setting(offers, services, Rules(16, bandwidth_bytes_per_s=8e9)), SlowdownTables()
    found = highest_rate(
        setting,
        lambda offers, services, rules: first_estimate(offers, services, rules, tables),
        Limit("p95", 5_000_000),
        [1_000.0 * k for k in range(1, 17)],
    )
    assert found.point is not None and 5_000.0 < found.point.rate_per_s < 8_000.0


def test_what_an_estimate_found_is_held_against_exact_replays():
    """An estimate that is much too kind: the rate that is told keeps to the limit exactly, the next does not."""
    setting, limit = single_server(0.5, 3_000), Limit("p95", 6_000_000)

    def kind(offers, services, rules):
        done = replay(offers, services, rules)
        shorter = offers.arrival_ns + (done.completion_ns - offers.arrival_ns) * 2 // 3
        return replace(done, completion_ns=shorter)

    found = highest_rate(setting, kind, limit, [100.0 * k for k in range(1, 11)])
    slices = confirmed(setting, found)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            exact = end.value
            break
    assert exact.point is not None and exact.beyond is not None and found.point is not None
    assert exact.point.rate_per_s < found.point.rate_per_s and exact.tried > found.tried
    assert measure(at_rate(setting, exact.point.rate_per_s), replay).percentiles_ns[1] <= limit.response_ns
    assert exact.point.rate_per_s < exact.beyond.rate_per_s <= 1.006 * exact.point.rate_per_s
    assert not limit.met(exact.beyond)
    none = HighestRate(limit, None, found.beyond, 3)
    with pytest.raises(StopIteration) as end:
        next(confirmed(setting, none))
    assert end.value.value is none
