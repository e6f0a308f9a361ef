"""What slots share, over time: the same run as the replay's, bytes and heat by hand and conserved, the KV cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from model.serving.exact import Watch, replay
from model.serving.generation import Decoding, Generation
from model.serving.over_time import MOST_ROWS, OverTime, View
from model.serving.phases import C_PLAIN, C_REFETCH, C_SPILL, C_UNMET
from model.serving.rules import Offers, Rules, Services, StreamRules
from model.serving.thermal import Heat

from .test_serving_events import loads, profile
from .test_serving_generation import contended
from .test_serving_thermal import COOL, HOT, PART, SECOND, served, stepped


def watched(setting: tuple[Offers, Services, Rules], view: View, events: int = 1000) -> OverTime:
    watch = Watch(*setting, view)
    while not watch.step(events):
        pass
    return watch.result()


def two_that_contend() -> tuple[Offers, Services, Rules]:
    """Each asks for 1 byte/ns for 10 ns, half of it spill, and computes for 10 ns; the bus passes 1 byte/ns in all."""
    plan = profile([(1, 10, 10, 5, 0), (3, 10, 0, 0, 0)])
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (plan,))
    return (
        Offers.of_one_stream(np.array([0, 0])),
        services,
        Rules(2, (StreamRules(),), bandwidth_bytes_per_s=1e9),
    )


def test_two_slots_that_share_the_bus_by_hand():
    seen = watched(two_that_contend(), View(0, 40, 4))
    assert seen.slots == 2 and seen.moved_bytes.shape == (2, 4, 4)
    for slot in range(2):  # half the rate for twice the time, then nothing
        assert seen.moved_bytes[slot, :, C_PLAIN] == pytest.approx([2.5, 2.5, 0.0, 0.0], abs=1e-4)
        assert seen.moved_bytes[slot, :, C_SPILL] == pytest.approx([2.5, 2.5, 0.0, 0.0], abs=1e-4)
        assert seen.moved_bytes[slot, :, C_UNMET] == pytest.approx([5.0, 5.0, 0.0, 0.0], abs=1e-4)
    assert not seen.moved_bytes[:, :, C_REFETCH].any()
    assert seen.load == pytest.approx([1.0, 1.0, 0.0, 0.0], abs=1e-4)
    part = watched(two_that_contend(), View(15, 25, 2))  # a part of it in other columns
    assert part.load == pytest.approx([1.0, 0.0], abs=1e-4)
    assert not len(seen.die_c) and not len(seen.kv_bytes) and seen.kv_capacity_bytes is None


@given(load=loads())
@settings(max_examples=150, deadline=None)
def test_looking_changes_nothing_and_no_column_passes_more_than_the_bus(load):
    offers, services, rules = load
    done = replay(offers, services, rules)
    end = max(1, int(done.completion_ns.max()))
    watch = Watch(offers, services, rules, View(0, end, 7))
    while not watch.step(3):
        pass
    assert np.array_equal(watch._run.start, done.start_ns)
    assert np.array_equal(watch._run.completion, done.completion_ns)
    seen = watch.result()
    assert (seen.moved_bytes >= -1e-9).all()
    assert (seen.load <= 1.0 + 1e-3).all()
    whole = watched(load, View(0, end, 1)).moved_bytes.sum(axis=(0, 1))
    assert seen.moved_bytes.sum(axis=(0, 1)) == pytest.approx(
        whole, rel=1e-9, abs=1e-9
    )  # columns lose nothing


@pytest.mark.parametrize("tight", [True, False])
@pytest.mark.parametrize("generates", [False, True])
@pytest.mark.parametrize("heat", [None, COOL, HOT])
def test_every_byte_of_every_batch_passes_once(heat, generates, tight):
    offers, services, rules = served(3, generates=generates)
    rules = replace(rules, heat=heat, bandwidth_bytes_per_s=12e9 if tight else float("inf"))
    if not generates:
        rules = replace(rules, streams=(StreamRules(batch=1),))
    done = replay(offers, services, rules)
    seen = watched((offers, services, rules), View(0, int(done.completion_ns.max()), 50))
    moved = seen.moved_bytes.sum(axis=(0, 1))
    if not generates:  # a request of size s moves s times its plan's bytes, spill and refetch in their shares
        sizes = float(offers.size[offers.plan == 0].sum())
        phases = services.profiles[0].phases
        assert moved[:C_UNMET].sum() == pytest.approx(sizes * float(phases["bytes"].sum()), rel=1e-6)
        assert moved[C_SPILL] == pytest.approx(sizes * float(phases["spill"].sum()), rel=1e-6)
        # A phase without bytes has no refetch, whatever its row says.
        refetch = float(phases["refetch"][phases["bytes"] > 0].sum())
        assert moved[C_REFETCH] == pytest.approx(sizes * refetch, rel=1e-6)
    stalls = sum(values.sum() for name, values in done.parts if name.startswith("stall"))
    assert (moved[C_UNMET] > 0.0) == (stalls > 0) == tight
    if heat is None:
        assert not len(seen.die_c)
        return
    assert done.warmed is not None
    low_ns = seen.low_clock * seen.view.column_ns
    assert low_ns.sum() == pytest.approx(done.warmed.low_clock_ns, rel=1e-9, abs=1.0)
    assert (seen.low_clock <= 1.0 + 1e-9).all() and bool(low_ns.any()) == (heat is HOT)
    known = np.isfinite(seen.die_c)
    assert known.sum() >= 50 and np.nanmax(seen.die_c) <= done.warmed.peak_die_c + 1e-9
    assert seen.sink_c[known][-1] == pytest.approx(done.warmed.sink_c, abs=0.2)


def test_temperatures_are_those_of_the_two_equations():
    heat = Heat(replace(PART, throttle_c=1e9), 1.0, 1)  # a slot at work draws tdp - static: 9 W more
    offers = Offers.of_one_stream(np.array([0]))
    setting = offers, Services.of_times(np.array([[0, 60 * SECOND]])), Rules(1, heat=heat)
    seen = watched(setting, View(0, 60 * SECOND, 6))
    for edge in range(7):
        die, sink = stepped(10.0, 10.0 * edge, 27.5, 27.0) if edge else (27.5, 27.0)
        assert (seen.die_c[edge], seen.sink_c[edge]) == pytest.approx((die, sink), abs=1e-5)


def test_the_cache_holds_what_requests_hold_at_the_fullest_moment_of_each_column():
    offers, services, rules = contended(np.random.default_rng(2), 40, 3)
    random = np.random.default_rng(5)
    held = random.integers(1, 100, 40)
    ones, zeros = np.ones(40, np.int64), np.zeros(40, np.int64)
    told = Generation(
        ones, np.ones((40, 2, 4), np.int64), ones, ones, held, offers.size, zeros, np.array([-1], np.int32), ()
    )  # fmt: skip
    offers = replace(offers, generation=replace(told, streams=(Decoding(((5, 0),), kv_capacity_bytes=150),)))
    done = replay(offers, services, rules)
    end = int(done.completion_ns.max())
    seen = watched((offers, services, rules), View(0, end, 9))
    at = np.arange(end)
    inside = (done.start_ns[:, None] <= at) & (at < done.completion_ns[:, None])
    every = (held[:, None] * inside).sum(axis=0)
    edges = np.linspace(0, end, 10)
    for column in range(9):
        low, high = int(np.floor(edges[column])), int(np.ceil(edges[column + 1]))
        assert seen.kv_bytes[column] == every[low:high].max()
    assert done.generated is not None and seen.kv_bytes.max() == done.generated.kv_peak_bytes[0] <= 150
    assert seen.kv_capacity_bytes == 150


def test_many_slots_share_rows_and_slots_without_end_have_one():
    _, services, rules = two_that_contend()
    many = Offers.of_one_stream(np.zeros(3 * MOST_ROWS, np.int64))
    wide = watched((many, services, replace(rules, slots=3 * MOST_ROWS)), View(0, 4000, 2))
    assert wide.moved_bytes.shape == (MOST_ROWS, 2, 4)
    rows = wide.moved_bytes[:, :, :C_UNMET].sum(axis=(1, 2))
    assert rows == pytest.approx(np.full(MOST_ROWS, 30.0), rel=1e-3)  # three requests of ten bytes each
    endless = watched((many, services, replace(rules, slots=None)), View(0, 4000, 2))
    assert endless.moved_bytes.shape[0] == 1 and endless.slots == 0
    assert endless.moved_bytes[:, :, :C_UNMET].sum() == pytest.approx(30.0 * MOST_ROWS, rel=1e-3)
