"""Shapley values: by their axioms, by hand, and against the reference grid of sixteen replays."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost.result import PHASE_DTYPE
from model.serving.drivers import Driver, Setting, blame, blaming, drivers_of, shapley, switched
from model.serving.exact import Replay
from model.serving.result import ServiceProfile
from model.serving.rules import Offers, Replayed, Rules, Services


def replay(offers: Offers, services: Services, rules: Rules) -> Replayed:
    run = Replay(offers, services, rules)
    while not run.step():
        pass
    return run.result()


def by_orders(worth: list[int]) -> tuple[Fraction, ...]:
    """The definition: mean effect of each player over all orders of switching on."""
    players = len(worth).bit_length() - 1
    effect, orders = [0] * players, list(permutations(range(players)))
    for order in orders:
        mask = 0
        for player in order:
            effect[player] += worth[mask | 1 << player] - worth[mask]
            mask |= 1 << player
    return tuple(Fraction(total, len(orders)) for total in effect)


@settings(deadline=None)
@given(st.integers(0, 4).flatmap(lambda n: st.lists(st.integers(0, 10**15), min_size=2**n, max_size=2**n)))
def test_values_are_the_mean_over_all_orders_and_sum_to_the_whole(worth):
    found = shapley(worth)
    assert found == by_orders(worth)
    assert sum(found) == worth[-1] - worth[0]


def test_values_by_hand():
    """a alone 10, b alone 0, both 30: a gets (10 + 30) / 2, b (0 + 20) / 2."""
    assert shapley([0, 10, 0, 30]) == (20, 10)
    with pytest.raises(ValueError, match="no power of two"):
        shapley([1, 2, 3])


def reference(shared) -> tuple[dict, Setting]:
    case = json.loads((shared / "oracles" / "replay_open.json").read_text(encoding="utf-8"))["whatif"]
    with (shared / "traces" / "azure_llm_2023_code.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    arrival, inputs, outputs = (
        np.array([int(row[name]) for row in rows]) for name in ("arrival_ns", "input_tokens", "output_tokens")
    )
    service, rule, throttle = case["service"], case["fallback"], case["throttle"]
    own = service["per_input_ns"] * inputs + service["per_output_ns"] * outputs
    long = inputs > rule["max_input_tokens"]
    fallback = np.where(long[:, None], [rule["num"], rule["den"]], [1, 1])
    offers = replace(Offers.of_one_stream(arrival, own_ns=own), fallback=np.ascontiguousarray(fallback))
    rules = Rules(
        case["servers"],
        placement="round-robin",
        throttle_edges_ns=np.array(throttle["windows_ns"]).reshape(-1),
        throttle=(throttle["num"], throttle["den"]),
    )
    return case, Setting(offers, Services.of_times(np.array([[0, service["base_ns"]]])), rules)


@pytest.mark.shared
def test_the_reference_grid_and_its_split(shared):
    """Sixteen replays, their percentiles and completion hashes, and Shapley's split of p95 and p99: exact."""
    case, setting = reference(shared)
    drivers = drivers_of(setting)
    assert [driver.name for driver in drivers] == ["queueing", "fallback", "static_partition", "throttle"]
    found = blame(setting, drivers, replay)
    for mask, (wanted, coalition) in enumerate(zip(case["grid"], found.grid, strict=True)):
        assert set(coalition.on) == {name for name, on in wanted["on"].items() if on}
        assert coalition.percentiles_ns == (wanted["p95_ns"], wanted["p99_ns"])
        one = switched(setting, drivers, mask)
        done = replay(one.offers, one.services, one.rules)
        hashed = hashlib.sha256(done.completion_ns.astype("<i8").tobytes()).hexdigest()
        assert hashed == wanted["completion_sha256"]
    for name, values in found.values_ns:
        split = case["shapley"][f"{name}_ns"]
        assert {driver: value * 24 for driver, value in values} == {
            driver: split[f"{driver}_x24"] for driver in found.drivers
        }
        assert sum(value for _, value in values) == split["total"] - split["base"]
    assert not any(coalition.overloaded for coalition in found.grid)


def test_drivers_that_a_setting_has_not_are_left_out_and_overload_is_flagged():
    """Three requests of 10 ns within 4 ns: one slot has more work than time, unless nobody queues."""
    services = Services.of_times(np.array([[0, 10]]))
    setting = Setting(Offers.of_one_stream(np.array([0, 2, 4])), services, Rules(1))
    drivers = drivers_of(setting)
    assert [driver.name for driver in drivers] == ["queueing"]
    found = blame(setting, drivers, replay)
    assert [(one.on, one.percentiles_ns, one.overloaded) for one in found.grid] == [
        ((), (10, 10), False),
        (("queueing",), (26, 26), True),
    ]
    document = found.document()
    assert document["p95_s"] == {"queueing": pytest.approx(16e-9)} and document["overloaded"] == [
        ["queueing"]
    ]


def test_contention_and_another_plan_are_drivers():
    """Two requests at once on two slots, one phase that asks for the whole bandwidth: 100 ns, or 200 together."""
    phases = np.array([(3, 100, 800, 0, 0)], PHASE_DTYPE)
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (ServiceProfile(phases, 1, 2, 8e9),))
    setting = Setting(Offers.of_one_stream(np.array([0, 0])), services, Rules(2, bandwidth_bytes_per_s=8e9))
    longer = Services.of_times(np.array([[0, 150]]))
    drivers = (*drivers_of(setting), Driver("fusion", lambda one: replace(one, services=longer)))
    found = blame(setting, drivers, replay)
    assert found.drivers == ("queueing", "contention", "fusion")
    worth = [one.percentiles_ns[0] for one in found.grid]
    assert worth == [150, 150, 150, 150, 100, 100, 200, 200]
    assert dict(dict(found.values_ns)["p95"]) == {"queueing": 0, "contention": 50, "fusion": 0}


def test_a_fallback_plan_is_a_fallback_and_switched_off_is_the_plan_meant():
    """Plan 1, of 50 ns, runs where plan 0, of 20 ns, was meant."""
    services = Services.of_times(np.array([[0, 20], [0, 50]]))
    offers = replace(Offers.of_one_stream(np.array([0, 100])), plan=np.array([0, 1], np.int32))
    setting = Setting(offers, services, Rules(1), instead=np.array([-1, 0], np.int32))
    drivers = drivers_of(setting)
    assert [driver.name for driver in drivers] == ["queueing", "fallback"]
    assert [one.percentiles_ns[0] for one in blame(setting, drivers, replay).grid] == [20, 20, 50, 50]


def test_in_slices_the_grid_is_the_same():
    phases = np.array([(0, 1_000, 0, 0, 0), (4, 50_000, 4_000_000, 0, 1_000_000)], dtype=PHASE_DTYPE)
    profile = ServiceProfile(phases, 1, 2, 1e11)
    offers = Offers.of_one_stream(np.arange(3_000, dtype=np.int64) * 20_000)
    services = Services.of_profiles(np.array([[-1, 0]], dtype=np.int32), (profile,))
    setting = Setting(offers, services, Rules(2, bandwidth_bytes_per_s=1e11))
    drivers = drivers_of(setting)
    assert [driver.name for driver in drivers] == ["queueing", "contention"]
    *between, found = blaming(setting, drivers)
    assert len(between) >= 4 and not any(between)
    assert found == blame(setting, drivers, replay)
