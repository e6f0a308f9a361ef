"""The event kernel against a plain simulator in fractions, integer for integer, and its invariants."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.__main__ import main
from model.cost.result import PHASE_DTYPE, PHASE_KINDS
from model.errors import UsageError
from model.serving import exact
from model.serving.exact import Replay, replay
from model.serving.profile import load_profile
from model.serving.result import ServiceProfile
from model.serving.rules import PARTS, Offers, Rules, Services, StreamRules
from model.serving.sharing import check_case, check_trace

from . import serving_oracle
from .test_serving_theory import reference_profiles

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


def assert_sound(offers, result, preempted=False):
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
    if result.held_ns is not None:  # of each slot no more than there is time, of all as long as batches ran
        assert (result.held_ns <= result.completion_ns.max() - offers.arrival_ns[0]).all()
        assert 5040 * result.held_ns.sum() == (result.served_ns * (5040 // result.batch)).sum()
    if preempted:
        return
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
def loads(draw, plain=False, urgent=False):
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
    profiled = urgent or draw(st.booleans())
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
        preempt=draw(st.booleans()),
        off_home=np.array(
            [[draw(factors) for _ in range(slots)] for _ in range(streams)], np.int64
        ) if draw(st.booleans()) else None,
        bandwidth_bytes_per_s=draw(st.sampled_from([1e9, 2e9, 4e9, float("inf")])),
        efficiency_loss=draw(st.sampled_from([0.0, 0.0, 0.25])),
        admission_limit=draw(st.none() | numbers(1, 4)),
        throttle_edges_ns=edges.astype(np.int64),
        throttle=draw(factors),
    )  # fmt: skip
    if urgent:
        rules = dataclasses.replace(rules, discipline="priority", preempt=True, slots=slots)
    if plain:
        rules = dataclasses.replace(
            rules, placement=draw(st.sampled_from(["dynamic", "round-robin"])), discipline="fifo", off_home=None,
            admission_limit=None,
        )  # fmt: skip
    return offers, services, rules


def assert_equal_to_the_plain_simulator(load):
    offers, services, rules = load
    result = replay(offers, services, rules)
    expected = serving_oracle.replayed(offers, services, rules)
    for found, row in zip(rows_of(result), expected, strict=True):
        assert found == {name: row[name] for name in found}
    assert_sound(offers, result, rules.preempt)


@given(load=loads())
@settings(max_examples=200, deadline=None)
def test_equals_the_plain_simulator(load):
    assert_equal_to_the_plain_simulator(load)


@given(load=loads(urgent=True))
@settings(max_examples=200, deadline=None)
def test_preemption_equals_the_plain_simulator(load):
    assert_equal_to_the_plain_simulator(load)


@given(load=loads(), budget=numbers(1, 9))
@settings(max_examples=60, deadline=None)
def test_slices_make_no_difference(load, budget):
    """Also where the slots of an endless run are found to be too few in the middle of one nanosecond."""
    run = Replay(*load)
    before = 0.0
    while not run.step(budget):
        assert before <= run.progress <= 1.0
        before = run.progress
    assert run.progress == 1.0 and run.step(1)
    assert rows_of(run.result()) == rows_of(replay(*load))


@given(load=loads(plain=True))
@settings(max_examples=150, deadline=None)
def test_fast_kernels_equal_the_general_one(load):
    offers, services, rules = load
    rules = dataclasses.replace(rules, bandwidth_bytes_per_s=float("inf"))
    fast = replay(offers, services, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_is_plain", lambda rules: False)
        general = replay(offers, services, rules)
    assert rows_of(fast) == rows_of(general)


@given(load=loads())
@settings(max_examples=100, deadline=None)
def test_bandwidth_to_spare_is_bandwidth_without_end(load):
    offers, services, rules = load
    free = dataclasses.replace(rules, bandwidth_bytes_per_s=float("inf"))
    spare = dataclasses.replace(rules, bandwidth_bytes_per_s=1e15)
    assert rows_of(replay(offers, services, spare)) == rows_of(replay(offers, services, free))


@given(load=loads(plain=True))
@settings(max_examples=150, deadline=None)
def test_first_in_first_out_is_monotone(load):
    """Without batches and windows nobody starts earlier for contention, nor because all take longer."""
    offers, services, rules = load
    rules = dataclasses.replace(rules, throttle_edges_ns=None)
    slots = len(offers.arrival_ns) if rules.slots is None else rules.slots
    result = replay(offers, services, rules)
    parts = dict(result.parts)
    assert (parts["contention_queue"] >= 0).all()
    work = int((result.completion_ns - result.start_ns).sum())
    free = replay(offers, services, dataclasses.replace(rules, bandwidth_bytes_per_s=float("inf")))
    assert work >= int((free.completion_ns - free.start_ns).sum())
    longer = dataclasses.replace(offers, fallback=offers.fallback * [2, 1])
    slower = replay(longer, services, dataclasses.replace(rules, bandwidth_bytes_per_s=float("inf")))
    assert (slower.start_ns >= free.start_ns).all()
    more = dataclasses.replace(
        rules, slots=slots + 1, placement="dynamic", bandwidth_bytes_per_s=float("inf")
    )
    less = dataclasses.replace(more, slots=slots)
    assert (replay(offers, services, more).start_ns <= replay(offers, services, less).start_ns).all()


@pytest.mark.parametrize("together", [1, 2, 3, 5, 8, 100])
def test_equal_demands_share_equally(together):
    """k requests that each ask for a third of the bandwidth progress at min(1, 3 / k)."""
    offers = Offers.of_one_stream(np.zeros(together, np.int64))
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (profile([(3, 3000, 1000, 0, 0)]),))
    result = replay(offers, services, Rules(None, bandwidth_bytes_per_s=1e9))
    assert result.completion_ns.tolist() == [max(3000, 1000 * together)] * together


def test_stalls_by_hand():
    """Bandwidth 1. Demands 2 (first load, a quarter of it spill), 1/4 and 1/2.

    The level is 3/8: rates 3/16, 1 and 3/4. At 16 the second ends; the level is 1/2: rates 1/4 and 1. The third, 4 ns
    from its end, ends at 20. Then all is the first's, rate 1/2: of its 12 ns 3 + 1 are done, so 8 are left: 36.
    """
    three = (profile([(1, 12, 24, 6, 0)]), profile([(3, 16, 4, 0, 0)]), profile([(3, 16, 8, 0, 2)]))
    services = Services.of_profiles(np.array([[-1, 0], [-1, 1], [-1, 2]], np.int32), three)
    offers = dataclasses.replace(
        Offers.of_one_stream(np.zeros(3, np.int64)), plan=np.arange(3, dtype=np.int32)
    )
    result = replay(offers, services, Rules(3, bandwidth_bytes_per_s=1e9))
    assert result.completion_ns.tolist() == [36, 16, 20]
    stalls = {name: values.tolist() for name, values in result.parts if name.startswith("stall")}
    assert stalls == {
        "stall_burst": [18, 0, 0],
        "stall_spill": [6, 0, 0],
        "stall_steady": [0, 0, 3],
        "stall_refetch": [0, 0, 1],
    }


def test_a_batch_waits_for_its_third_or_its_linger_by_hand():
    """Batches of 3, linger 10: 0, 4 and 6 start at 6; 20 waits alone until 30, while 31 waits for the slot."""
    offers = Offers.of_one_stream(np.array([0, 4, 6, 20, 31]), own_ns=np.array([1, 1, 1, 5, 5]))
    services = Services.of_times(np.array([[0, 10, 12, 15]]))
    rules = Rules(1, (StreamRules(batch=3, linger_ns=10),))
    result = replay(offers, services, rules)
    assert result.start_ns.tolist() == [6, 6, 6, 30, 45]
    assert result.completion_ns.tolist() == [24, 24, 24, 45, 60]
    assert result.batch.tolist() == [3, 3, 3, 1, 1]
    parts = dict(result.parts)
    assert parts["batch_wait"].tolist() == [6, 2, 0, 10, 10]
    assert parts["queue"].tolist() == [0, 0, 0, 0, 4]


def test_preemption_at_launches_by_hand():
    """One slot. A long request of three kernels of 2 + 8 ns from 0; urgent ones of 5 ns come at 3 and 14, one at 26.

    The first waits for the launch at 10 and runs until 15, when the second is there: until 20. The long one is back
    from 20 to 30; at its last launch the third goes first, 30 to 35. It ends at 45, preempted for 10 + 5 ns.
    """
    kernels = profile([(0, 2, 0, 0, 0), (3, 8, 8, 0, 0)], 3)
    services = Services.of_profiles(
        np.array([[-1, 0], [-1, 1]], np.int32), (kernels, profile([(3, 5, 5, 0, 0)]))
    )
    turns = np.array([0, 1, 1, 1], np.int32)
    arrival = np.array([0, 3, 14, 26])
    offers = dataclasses.replace(Offers.of_one_stream(arrival), stream=turns, plan=turns)
    rules = Rules(1, (StreamRules(), StreamRules(priority=1)), discipline="priority", preempt=True)
    result = replay(offers, services, rules)
    assert result.start_ns.tolist() == [0, 10, 15, 30]
    assert result.completion_ns.tolist() == [45, 15, 20, 35]
    parts = dict(result.parts)
    assert parts["preempted"].tolist() == [15, 0, 0, 0]
    assert parts["queue"].tolist() == [0, 7, 1, 4]
    assert_sound(offers, result, preempted=True)


def test_a_batch_that_goes_on_elsewhere_holds_both_slots_in_turn():
    """A long request of two kernels of 10 ns on slot 0. At 1 an urgent one of 30 ns takes slot 1; the next comes at 2,
    waits for the launch at 10 and takes slot 0 until 40. Slot 1 is free at 31: the long one goes on there, until 41.
    """
    kernels = profile([(0, 2, 0, 0, 0), (3, 8, 8, 0, 0)], 2)
    services = Services.of_profiles(
        np.array([[-1, 0], [-1, 1]], np.int32), (kernels, profile([(3, 30, 30, 0, 0)]))
    )
    turns = np.array([0, 1, 1], np.int32)
    offers = dataclasses.replace(Offers.of_one_stream(np.array([0, 1, 2])), stream=turns, plan=turns)
    rules = Rules(2, (StreamRules(), StreamRules(priority=1)), discipline="priority", preempt=True)
    result = replay(offers, services, rules)
    assert result.slot.tolist() == [0, 1, 0]
    assert result.completion_ns.tolist() == [41, 31, 40]
    assert dict(result.parts)["preempted"].tolist() == [21, 0, 0]
    assert result.held_ns.tolist() == [10 + 30, 30 + 10]


def test_what_cannot_be_replayed_says_so():
    one = Offers.of_one_stream(np.zeros(1, np.int64))
    times = Services.of_times(np.array([[0, 10]]))
    for streams, said in (
        (StreamRules(batch=2), "batches of 2 have no service time"),
        (StreamRules(home=(3,)), "home slots"),
        (StreamRules(share=1.5), "shares"),
    ):
        with pytest.raises(UsageError, match=said):
            replay(one, times, Rules(2, (streams,), "static"))
    for rules in (Rules(0), Rules(1, admission_limit=0)):
        with pytest.raises(UsageError, match="nothing would ever start"):
            replay(one, times, rules)
    with pytest.raises(UsageError, match="no requests"):
        replay(Offers.of_one_stream(np.zeros(0, np.int64)), times, Rules(1))
    with pytest.raises(UsageError, match="146 years"):
        replay(one, Services.of_times(np.array([[0, 1 << 62]])), Rules(1))


# ---------------------------------------------------------------- reference figures


@pytest.mark.shared
def test_reference_processor_sharing(shared):
    """Ten cases with 100,000 requests; the tolerance is the file's at a million, times sqrt(10)."""
    cases = json.loads((shared / "oracles" / "contention_open.json").read_text())["cases"]
    found = [figure for case in cases[::4] for figure in check_case(case, 100_000)]
    assert len(found) >= 45
    assert [figure for figure in found if figure.off > 1.0] == []


@pytest.mark.shared
def test_reference_processor_sharing_by_command(shared, capsys):
    """The traces' figures are exact to a millionth; the file's Poisson cases are the test's above."""
    path = shared / "oracles" / "contention_open.json"
    assert main(["bench", "--oracles", str(path), "--only", "azure_llm"]) == 0
    assert "2 of 2 cases within tolerance" in capsys.readouterr().out


@pytest.mark.shared
def test_reference_trace_under_processor_sharing(shared):
    case, _ = json.loads((shared / "oracles" / "contention_open.json").read_text())["replays"]
    found = check_trace(case, shared / "traces" / "azure_llm_2023_code.csv")
    assert len(found) == 6
    assert [figure for figure in found if figure.off > 1.0] == []


MINICASE = Path(__file__).parent / "minicase"


@pytest.mark.parametrize(
    ("plan", "free_ms", "shared_ms"),
    [("mod", 5.4862, 6.7010), ("max", 5.2442, 8.8530), ("back", 5.2633, 5.4458)],
)
def test_reference_plans_under_contention(plan, free_ms, shared_ms):
    """12,000 requests at 640/s with sizes of variation 0.05 on eight slots: p95 alone to four digits, else 0.3 %."""
    services = Services.of_profiles(np.array([[-1, 0]], np.int32), (load_profile(MINICASE / f"{plan}.json"),))
    arrival = np.cumsum(np.random.default_rng(0).exponential(1 / 640, 12_000)) * 1e9
    size = np.random.default_rng(1000).gamma(400, 1 / 400, 12_000)
    offers = Offers.of_one_stream(arrival.astype(np.int64), size=size)
    for bandwidth, wanted, within in ((float("inf"), free_ms, 5e-5 / free_ms), (68e9, shared_ms, 0.003)):
        result = replay(offers, services, Rules(8, bandwidth_bytes_per_s=bandwidth))
        assert_sound(offers, result)
        ordered = np.sort(result.completion_ns - offers.arrival_ns)
        assert ordered[11_399] * 1e-6 == pytest.approx(wanted, rel=within)


@pytest.mark.shared
def test_reference_plans_are_the_page_s(shared):
    """Refetched bytes apart, which the page gives in words: 24.8 MB a request of the plan that refetches."""
    for plan, rows in reference_profiles((shared / "MINICASE.md").read_text(encoding="utf-8")).items():
        phases = load_profile(MINICASE / f"{plan}.json").phases
        found = [[PHASE_KINDS[kind], *figures] for kind, *figures in phases.tolist()]
        assert [row[:4] for row in found] == [row[:4] for row in rows]
        assert int(phases["refetch"].sum()) * 12 == (24_772_608 if plan == "max" else 0)
