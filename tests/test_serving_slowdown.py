"""The first estimate: its table against closed forms, its replay against the fast and the exact one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.cost.profile import contention
from model.cost.result import PHASE_DTYPE, PHASE_KINDS
from model.hardware.accelerator import Thermal
from model.packaged import folder
from model.serving.exact import replay
from model.serving.generation import Decoding, Generation
from model.serving.replay import replay_shared
from model.serving.result import ServiceProfile
from model.serving.rules import PARTS, Offers, Rules, Services, StreamRules
from model.serving.slowdown import SlowdownTables, can_estimate, first_estimate, slowdown
from model.serving.slowdown_kernels import replay_slowed
from model.serving.tail import percentiles
from model.serving.thermal import Heat
from model.serving.traces import read_trace

from .test_serving_theory import reference_profiles

BANDWIDTH = 68e9


def phases_of(*rows: tuple[str, int, int]) -> np.ndarray:
    return np.array([(PHASE_KINDS.index(kind), base, moved, 0, 0) for kind, base, moved in rows], PHASE_DTYPE)


@pytest.fixture(scope="module")
def plans(shared) -> dict[str, ServiceProfile]:
    found = reference_profiles((shared / "MINICASE.md").read_text(encoding="utf-8"))
    return {
        name: ServiceProfile(
            np.array([(PHASE_KINDS.index(str(row[0])), *row[1:]) for row in rows], PHASE_DTYPE),
            12,
            8,
            BANDWIDTH,
        )
        for name, rows in found.items()
    }


def load(profile: ServiceProfile, arrival: np.ndarray, seed: int = 0) -> tuple[Offers, Services, Rules]:
    size = np.random.default_rng(1000 + seed).gamma(400.0, 1.0 / 400.0, arrival.size)
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (profile,))
    return Offers.of_one_stream(arrival, size=size), services, Rules(8, bandwidth_bytes_per_s=BANDWIDTH)


def empty(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int32)


def poisson(rate: float, count: int, seed: int = 0) -> np.ndarray:
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, count)
    return np.rint(np.cumsum(gaps) * 1e9).astype(np.int64)


# ---------------------------------------------------------------- the table


def test_equal_constant_demand_shares_the_bandwidth_evenly():
    """sigma(k) = max(1, k d / B): here every slot asks for a quarter of the bandwidth at all times."""
    table = slowdown(phases_of(("steady", 10_000, 20_000)), 8, 8e9)
    assert table.sigma[1:] == pytest.approx(np.maximum(1.0, np.arange(1, 9) / 4.0))
    assert table.causes == pytest.approx([0.0, 1.0, 0.0, 0.0])


def test_one_user_of_many_and_lost_efficiency():
    """With 1 - 0.2 (k - 1) / k of the bandwidth for k users that each ask for half of it."""
    table = slowdown(phases_of(("first", 1_000, 4_000)), 4, 8e9, efficiency_loss=0.2)
    k = np.arange(1, 5)
    assert table.sigma[1:] == pytest.approx(np.maximum(1.0, k * 0.5 / (1.0 - 0.2 * (k - 1) / k)))
    assert table.causes == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_nothing_stalls_where_all_demands_fit():
    for phases, bandwidth in (
        (phases_of(("steady", 100, 100)), 8e9),
        (phases_of(("steady", 100, 100_000)), float("inf")),
        (phases_of(("launch", 100, 0)), 1.0),
        (phases_of(), 1.0),
    ):
        table = slowdown(phases, 8, bandwidth)
        assert (table.sigma == 1.0).all() and not table.causes.any()


def test_two_copies_of_one_burst_meet_as_often_as_chance_says():
    """A burst that fills the bus for a quarter of the time. Alone at rate 1; two at once at rate 1/2.

    Copies are at random phases whenever either is not stalled. In a cycle of 4 of which 1 is the burst, work w of both
    passes at full rate unless both are in it: that is 1/4 * 1/4 of the pairs of places, which take twice as long.
    """
    table = slowdown(phases_of(("first", 1_000, 8_000), ("steady", 3_000, 0)), 2, 8e9)
    assert table.sigma[2] == pytest.approx(1.0 + 1.0 / 16.0, rel=0.02)


@pytest.mark.shared
@pytest.mark.parametrize(("plan", "sigma"), [("mod", 1.34), ("max", 1.67), ("back", 1.12)])
def test_tables_of_the_reference_plans(plans, plan, sigma):
    """sigma(8), and max(1, U_c) <= sigma(c) <= 1 + X_c, with the page's 1.5 % for what is drawn."""
    profile = plans[plan]
    table = slowdown(profile.phases, 8, BANDWIDTH)
    assert table.sigma[8] == pytest.approx(sigma, abs=0.012)
    load_of_bus, stretch = contention(profile.phases, 8, BANDWIDTH)
    assert max(1.0, load_of_bus) * 0.985 <= table.sigma[8] <= (1.0 + stretch) * 1.015
    assert table.causes.sum() == pytest.approx(1.0)
    unfolded = slowdown(np.concatenate([profile.phases] * 12), 8, BANDWIDTH)
    assert unfolded.sigma == pytest.approx(table.sigma, abs=0.02)


def test_a_table_is_kept_for_the_same_profile_and_rules():
    tables, profile = SlowdownTables(), ServiceProfile(phases_of(("cold", 1_000, 9_000)), 3, 4, 8e9)
    rules = Rules(4, bandwidth_bytes_per_s=8e9)
    first = tables.of(profile, rules)
    assert tables.of(replace(profile, energy_j=1.0), rules) is first
    assert tables.of(profile, replace(rules, bandwidth_bytes_per_s=9e9)) is not first
    assert tables.of(profile, replace(rules, slots=5)).sigma.size == 6


def test_many_slots_are_measured_at_some_and_straight_in_between():
    table = slowdown(phases_of(("steady", 10_000, 20_000)), 100, 64e9)
    assert table.sigma[1:] == pytest.approx(np.maximum(1.0, np.arange(1, 101) / 32.0), rel=0.03)


# ---------------------------------------------------------------- the replay by a table


@pytest.mark.parametrize("slots", [1, 2, 5, 8])
@pytest.mark.parametrize("edges", [(), (3_000, 9_000, 20_000, 20_500)])
def test_without_slowdown_it_is_the_plain_replay(slots, edges):
    """Times also where many are equal; slots where none are."""
    rng = np.random.default_rng(slots)
    for step in (1, 40, 10_000):
        arrival = np.sort(rng.integers(0, 2_000, 400)) * step
        service = rng.integers(0, 10 * slots, 400) * step // 2
        if step == 10_000:
            arrival, service = (
                np.sort(arrival + rng.integers(0, step, 400)),
                service + rng.integers(0, step, 400),
            )
        windows = np.array(edges, np.int64)
        plain, slowed = empty(400), empty(400)
        replay_shared(arrival, service, slots, windows, 7, 5, *plain)
        replay_slowed(arrival, service, np.ones(slots + 1), windows, 7, 5, *slowed)
        assert (plain[0] == slowed[0]).all() and (plain[1] == slowed[1]).all()
        assert step < 10_000 or (plain[2] == slowed[2]).all()


def test_one_processor_shared_by_all():
    """M/M/1 processor sharing, sigma(k) = k: mean response 1 / (1 - rho) of the mean service."""
    rng = np.random.default_rng(4)
    arrival = np.cumsum(rng.exponential(2e6, 200_000)).astype(np.int64)
    service = rng.exponential(1e6, 200_000).astype(np.int64)
    start, end, slot = empty(arrival.size)
    sigma = np.maximum(1.0, np.arange(65.0))
    replay_slowed(arrival, service, sigma, np.zeros(0, np.int64), 1, 1, start, end, slot)
    assert (start == arrival).all() and (end - start >= service).all()
    assert (end - arrival).mean() == pytest.approx(2e6, rel=0.03)


def test_two_requests_by_hand():
    """10 and 10 ns, the second 4 later, sigma(2) = 2. At 4 the first has 6 left: 12 ns, until 16, when the second has
    4 left: until 20."""
    arrival, service = np.array([0, 4]), np.array([10, 10])
    start, end, slot = empty(2)
    replay_slowed(arrival, service, np.array([1.0, 1.0, 2.0]), np.zeros(0, np.int64), 1, 1, start, end, slot)
    assert (start.tolist(), end.tolist(), slot.tolist()) == ([0, 4], [16, 20], [0, 1])


@pytest.mark.shared
@pytest.mark.parametrize(("plan", "p95_ms"), [("mod", 6.7010), ("max", 8.8530), ("back", 5.4458)])
def test_p95_of_the_reference_plans(plans, plan, p95_ms):
    """Poisson 640/s, 12,000 requests: within 0.6 % of the page's exact replay. Parts sum to every response."""
    offers, services, rules = load(plans[plan], poisson(640.0, 12_000))
    found = first_estimate(offers, services, rules, SlowdownTables())
    response = found.completion_ns - offers.arrival_ns
    assert percentiles(response)[1] * 1e-6 == pytest.approx(p95_ms, rel=0.006)
    parts = dict(found.parts)
    assert tuple(parts) == PARTS
    summed = np.sum([part for name, part in found.parts if name != "queue_imbalance"], axis=0)
    assert (summed == response).all()
    assert all((part >= 0).all() for part in parts.values())


@pytest.mark.shared
@pytest.mark.parametrize("plan", ["mod", "max", "back"])
def test_p95_of_a_recorded_trace_is_near_the_exact_one(plans, plan):
    """The Azure trace at 75/s: within 3.5 %."""
    trace = read_trace(folder("assets/traces") / "azure_llm_2023_code.csv", "tilewright").arrival_ns
    span = int(trace[-1] - trace[0])
    arrival = np.floor((trace - trace[0]) * (trace.size * 1e9 / 75.0 / span)).astype(np.int64)
    offers, services, rules = load(plans[plan], arrival)
    exact = replay(offers, services, rules)
    assert exact is not None
    estimate = first_estimate(offers, services, rules, SlowdownTables())
    wanted = percentiles(exact.completion_ns - arrival)[1]
    assert percentiles(estimate.completion_ns - arrival)[1] == pytest.approx(wanted, rel=0.035)


def test_plans_without_a_profile_slow_nobody_down():
    """Half of the requests on a profile that doubles at two, half on given times: sigma(2) is the mean, 1.5."""
    profile = ServiceProfile(phases_of(("steady", 10_000, 80_000)), 1, 2, 8e9)
    both = Services.of_profiles(np.array([[-1, 0], [-1, 0]], np.int32), (profile,))
    services = replace(both, profile_of=np.array([[-1, 0], [-1, -1]], np.int32))
    offers = replace(Offers.of_one_stream(np.array([0, 0])), plan=np.array([0, 1], np.int32))
    found = first_estimate(offers, services, Rules(2, bandwidth_bytes_per_s=8e9), SlowdownTables())
    assert found.completion_ns.tolist() == [15_000, 15_000]
    assert dict(found.parts)["stall_steady"].tolist() == [5_000, 5_000]


def test_which_rules_the_estimate_knows():
    offers = Offers.of_one_stream(np.array([0, 0]))
    assert can_estimate(offers, Rules(4)) and can_estimate(offers, Rules(4, admission_limit=4))
    for rules in (
        Rules(None),
        Rules(4, placement="static"),
        Rules(4, discipline="priority"),
        Rules(4, admission_limit=3),
        Rules(4, streams=(StreamRules(batch=2),)),
        Rules(4, streams=(StreamRules(share=0.5), StreamRules())),
        Rules(4, heat=Heat(Thermal(5.0, 25.0, 0.5, 2.0, 2.0, 120.0, 85.0, 80.0, 0.7), 0.5, 4)),
    ):
        assert not can_estimate(offers, rules)
    none, ones, later = np.zeros(2, np.int64), np.ones(2, np.int64), np.zeros((2, 2, 4), np.int64)
    answered = Generation(
        ones, later, none, ones, none, offers.size, none, np.array([-1], np.int32), (Decoding(),)
    )
    assert not can_estimate(replace(offers, generation=answered), Rules(4))
