"""The event kernel against a plain simulator in fractions, integer for integer, and its invariants."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost.result import PHASE_DTYPE
from model.serving.exact import replay
from model.serving.result import ServiceProfile
from model.serving.rules import PARTS, Offers, Rules, Services, StreamRules

from . import serving_oracle

SUMMED = [name for name in PARTS if name != "queue_imbalance"]


def profile(rows, repeat=1):
    """Rows of (kind, ns, bytes, spill, refetch)."""
    return ServiceProfile(np.array(rows, dtype=PHASE_DTYPE), repeat, 1, 1e9)


def rows_of(result):
    """Per request a dict, as the plain simulator gives them."""
    columns = {
        "start": result.start_ns,
        "completion": result.completion_ns,
        "slot": result.slot,
        "batch": result.batch,
        **dict(result.parts),
    }
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]


def assert_sound(offers, result):
    """Parts sum to the response; nothing is lost, started early, or on a slot twice at a time."""
    parts = dict(result.parts)
    response = result.completion_ns - offers.arrival_ns
    assert (sum(parts[name] for name in SUMMED) == response).all()
    assert (result.start_ns >= offers.arrival_ns).all()
    for name in SUMMED:
        assert (
            name == "contention_queue"
            or (parts[name] >= 0).all()
            or name in ("fallback", "off_home", "throttle")
        )
    assert ((parts["queue_imbalance"] >= 0) & (parts["queue_imbalance"] <= parts["queue"])).all()
    runs = sorted(
        set(zip(result.slot.tolist(), result.start_ns.tolist(), result.completion_ns.tolist(), strict=True))
    )
    for before, after in itertools.pairwise(runs):
        assert before[0] != after[0] or before[2] <= after[1]


numbers = st.integers
sizes = st.sampled_from([1.0, 1.0, 0.5, 1.25, 0.8134, 2.0])
factors = st.sampled_from([(1, 1), (1, 1), (3, 2), (2, 3), (7, 5)])


@st.composite
def phases(draw):
    out = []
    for _ in range(draw(numbers(1, 5))):
        base = draw(numbers(0, 12))
        moved = draw(numbers(0, 40)) if base else 0
        spill = draw(numbers(0, moved))
        kind = draw(numbers(0, 4))
        out.append(
            (
                kind,
                base,
                0 if kind == 0 else moved,
                0 if kind == 0 else spill,
                0 if kind == 0 else moved - spill,
            )
        )
    return profile([(k, b, m, s, draw(numbers(0, r))) for k, b, m, s, r in out], draw(numbers(1, 3)))


@st.composite
def loads(draw, plain=False):
    """Small random offers, services and rules."""
    streams = draw(numbers(1, 3))
    slots = draw(numbers(1, 4))
    plans, largest = 2, 1 if plain else draw(numbers(1, 3))
    rows = draw(
        st.lists(
            st.tuples(
                numbers(0, 15), numbers(0, streams - 1), numbers(0, plans - 1), numbers(0, 9), sizes, factors, factors
            ),
            min_size=1,
            max_size=14,
        )
    )  # fmt: skip
    gaps, stream, plan, own, size, fallback, padding = zip(*rows, strict=True)
    profiled = draw(st.booleans())
    offers = Offers(
        np.cumsum(gaps).astype(np.int64),
        np.array(stream, np.int32),
        np.array(plan, np.int32),
        np.array([0] * len(own) if profiled else own, np.int64),
        np.array(size),
        np.array([(min(a, b), b) for a, b in padding], np.int64),
        np.array(fallback, np.int64),
    )
    if profiled:
        made = tuple(draw(phases()) for _ in range(plans * largest))
        which = np.full((plans, largest + 1), -1, np.int32)
        which[:, 1:] = np.arange(plans * largest).reshape(plans, largest)
        services = Services.of_profiles(which, made)
    else:
        times = draw(st.lists(numbers(0, 30), min_size=plans * (largest + 1), max_size=plans * (largest + 1)))
        services = Services.of_times(np.array(times, np.int64).reshape(plans, largest + 1))
    edges = np.cumsum(draw(st.lists(numbers(1, 40), max_size=4).filter(lambda gaps: len(gaps) % 2 == 0)))
    shares = draw(st.booleans())
    rules = Rules(
        slots=None if draw(numbers(0, 9)) == 0 else slots,
        streams=tuple(
            StreamRules(
                home=tuple(sorted(draw(st.sets(numbers(0, slots - 1), min_size=1)))),
                weight=draw(st.sampled_from([1.0, 2.0, 0.5])),
                priority=draw(numbers(0, 2)),
                batch=draw(numbers(1, largest)),
                linger_ns=draw(numbers(0, 20)),
                share=draw(st.none() | st.sampled_from([0.25, 0.125])) if shares else None,
            )
            for _ in range(streams)
        ),
        placement=draw(st.sampled_from(["dynamic", "static", "round-robin", "home-first", "stealing"])),
        discipline=draw(st.sampled_from(["fifo", "priority", "deficit-round-robin"])),
        quantum_ns=draw(st.sampled_from([1, 7, 50])),
        off_home=np.array(
            [[draw(factors) for _ in range(slots)] for _ in range(streams)], np.int64
        ) if draw(st.booleans()) else None,
        bandwidth_bytes_per_s=draw(st.sampled_from([1e9, 2e9, 4e9, float("inf")])),
        efficiency_loss=draw(st.sampled_from([0.0, 0.0, 0.25])),
        admission_limit=draw(st.none() | numbers(1, 4)),
        throttle_edges_ns=edges.astype(np.int64),
        throttle=draw(factors),
    )  # fmt: skip
    if plain:
        rules = dataclasses.replace(
            rules, placement=draw(st.sampled_from(["dynamic", "round-robin"])), discipline="fifo", off_home=None,
            admission_limit=None,
        )  # fmt: skip
    return offers, services, rules


@given(load=loads())
@settings(max_examples=200, deadline=None)
def test_equals_the_plain_simulator(load):
    offers, services, rules = load
    result = replay(offers, services, rules)
    expected = serving_oracle.replayed(offers, services, rules)
    for found, row in zip(rows_of(result), expected, strict=True):
        assert found == {name: row[name] for name in found}
    assert_sound(offers, result)
