"""Replays against a plain loop, against reference figures to the nanosecond, and their invariants."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.__main__ import main
from model.errors import UsageError
from model.serving.replay import replay_round_robin, replay_shared
from model.serving.result import Arrivals, BuildUp
from model.serving.serve import at_rate, serve
from model.serving.streams import Fallback, GivenService, Stream, Throttle, Workload
from model.serving.tail import build_up
from model.serving.workload import load_workload

from . import serving_oracle

TRACE = """arrival_ns,input_tokens,output_tokens
0,10,1
0,5000,2
40,10,3
41,7,0
41,9000,1
1000,1,1
"""
WORKLOAD = """
format = 1
slots = 2
[[stream]]
name = "code"
arrivals = { kind = "trace", file = "trace.csv" }
service = { base_ns = 100, per_input_ns = 2, per_output_ns = 30 }
"""


def written(folder: Path, text: str = WORKLOAD, trace: str = TRACE) -> Path:
    (folder / "trace.csv").write_text(trace, encoding="utf-8")
    path = folder / "workload.toml"
    path.write_text(text, encoding="utf-8")
    return path


def made(
    arrival, service, *, slots=2, placement="dynamic", throttle=None, fallback=None, tokens=None
) -> Workload:
    """A workload of given arrivals whose requests take ``service[i]`` ns."""
    columns = [
        np.array(column, dtype=np.int64) for column in (arrival, service, tokens or [0] * len(arrival))
    ]
    arrivals = Arrivals(columns[0], columns[2], columns[1], "made", recorded=True, endless=False)
    stream = Stream("s", arrivals, None, GivenService(0, 0, 1), fallback=fallback)
    return Workload("made", "", "", 0, slots, placement, True, throttle or Throttle(), (stream,))


def test_by_hand(tmp_path):
    """Two slots. Services 150, 10160, 210, 114, 18130, 132; 9000 and 5000 tokens are long."""
    result = serve(load_workload(written(tmp_path)))
    requests = result.requests
    assert requests.start_ns.tolist() == [0, 0, 150, 360, 474, 10160]
    assert requests.completion_ns.tolist() == [150, 10160, 360, 474, 18604, 10292]
    assert requests.slot.tolist() == [0, 1, 0, 0, 0, 1]
    assert dict(requests.parts)["queue"].tolist() == [0, 0, 110, 319, 433, 9160]
    assert result.max_ns == 18563 and result.p50_ns == 433 and result.p95_ns == 18563
    assert result.slot_requests == (4, 2)
    assert result.utilisation == pytest.approx((18604 + 10160 + 132) / 2 / 1000)
    assert result.completion_sha256 == (
        hashlib.sha256(b"".join(t.to_bytes(8, "little") for t in requests.completion_ns.tolist())).hexdigest()
    )


times = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=40
)


@given(
    rows=times,
    slots=st.integers(1, 5),
    placement=st.sampled_from(["dynamic", "round-robin"]),
    windows=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 80)), max_size=3),
    factor=st.tuples(st.integers(1, 9), st.integers(1, 4)),
    fallback=st.none() | st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 3)),
)
@settings(max_examples=200, deadline=None)
def test_equals_the_plain_loop_and_its_parts_sum(rows, slots, placement, windows, factor, fallback):
    gaps, service, tokens = ([row[k] for row in rows] for k in range(3))
    arrival = np.cumsum(gaps).tolist()
    spans = sorted((begin, begin + length) for begin, length in windows)
    disjoint = [span for k, span in enumerate(spans) if k == 0 or span[0] > max(end for _, end in spans[:k])]
    rule = Fallback(*fallback) if fallback else None
    workload = made(
        arrival,
        service,
        slots=slots,
        placement=placement,
        throttle=Throttle(tuple(disjoint), *factor),
        fallback=rule,
        tokens=tokens,
    )
    result = serve(workload)
    longer = [
        need * rule.num // rule.den if rule and length > rule.max_input_tokens else need
        for need, length in zip(service, tokens, strict=True)
    ]
    expected = serving_oracle.replay(arrival, longer, slots, placement, disjoint, factor)
    requests = result.requests
    found = zip(
        requests.start_ns.tolist(), requests.completion_ns.tolist(), requests.slot.tolist(), strict=True
    )
    assert list(found) == expected
    parts = dict(requests.parts)
    assert parts["queue_imbalance"].tolist() == serving_oracle.waiting_beside_idle(arrival, expected, slots)
    summed = sum(part for name, part in parts.items() if name != "queue_imbalance")
    assert (summed == requests.completion_ns - requests.arrival_ns).all()
    assert parts["base"].tolist() == service
    for name, amounts in result.parts:
        inside = sum(amount for part, amount in amounts if part != "queue_imbalance")
        total = {"p50": result.p50_ns, "p95": result.p95_ns, "p99": result.p99_ns}.get(name)
        mean = (2 * result.sum_response_ns + len(rows)) // (2 * len(rows))
        assert inside == (mean if total is None else total)
        assert 0 <= dict(amounts)["queue_imbalance"] <= dict(amounts)["queue"]
    # Work is conserved; no request is lost or served twice; percentiles are in order.
    assert sum(result.slot_busy_ns) == sum(end - start for start, end, _ in expected)
    assert sum(result.slot_requests) == len(rows)
    assert result.p50_ns <= result.p95_ns <= result.p99_ns <= result.p999_ns <= result.max_ns
    for slot in range(slots):
        own = sorted((start, end) for start, end, at in expected if at == slot)
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(own))


@given(rows=times, slots=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_more_slots_or_less_work_never_hurt(rows, slots):
    arrival, service = np.cumsum([row[0] for row in rows]).tolist(), [row[1] for row in rows]
    few = serve(made(arrival, service, slots=slots))
    many = serve(made(arrival, service, slots=slots + 1))
    assert (many.requests.completion_ns <= few.requests.completion_ns).all()
    less = serve(made(arrival, [max(0, need - 1) for need in service], slots=slots))
    assert (less.requests.completion_ns <= few.requests.completion_ns).all()
    assert not dict(few.requests.parts)["queue_imbalance"].any()


def test_unlimited_slots_never_queue(tmp_path):
    result = serve(load_workload(written(tmp_path, WORKLOAD.replace("slots = 2", 'slots = "unlimited"'))))
    assert not dict(result.requests.parts)["queue"].any()
    assert result.slot_busy_ns == ()
    assert result.sum_response_ns == sum((150, 10160, 210, 114, 18130, 132))


def test_results_are_read_only_and_leave_the_workload_alone(tmp_path):
    workload = load_workload(written(tmp_path))
    before = workload.streams[0].arrivals.arrival_ns.copy()
    one, two = serve(workload), serve(workload)
    with pytest.raises(ValueError, match="read-only"):
        one.requests.start_ns[0] = 1
    assert one.completion_sha256 == two.completion_sha256
    assert (before == workload.streams[0].arrivals.arrival_ns).all()


def built(arrival, start) -> BuildUp:
    return build_up(np.array(arrival, dtype=np.int64), np.array(start, dtype=np.int64))


def test_build_up_by_hand():
    """Waits [2, 5), [3, 9), [9, 11) touch; [20, 24), [20, 26), [21, 25) stand alone. Span 40, windows of 4."""
    found = built([0, 2, 3, 9, 20, 20, 21, 40], [0, 5, 9, 11, 24, 26, 25, 40])
    assert (found.peak_waiting, found.peak_at_ns) == (3, 21)
    assert (found.longest_ns, found.longest_from_ns) == (9, 2)
    assert (found.busiest_requests, found.busiest_from_ns, found.busiest_window_ns) == (3, 0, 4)
    assert found.busiest_rate_per_s == 3e9 / 4


def test_who_leaves_at_the_moment_of_an_arrival_waits_no_more_and_the_first_of_equals_counts():
    found = built([0, 0, 5, 30], [5, 5, 10, 33])
    assert (found.peak_waiting, found.peak_at_ns) == (2, 0)
    assert (found.longest_ns, found.longest_from_ns) == (10, 0)
    assert (found.busiest_requests, found.busiest_window_ns) == (2, 3)


def test_nobody_waits_and_all_come_at_once():
    found = built([7, 50], [7, 50])
    assert (found.peak_waiting, found.longest_ns) == (0, 0)
    found = built([4, 4, 4], [4, 5, 6])
    assert (found.peak_waiting, found.longest_ns, found.longest_from_ns) == (2, 2, 4)
    assert (found.busiest_requests, found.busiest_window_ns, found.busiest_rate_per_s) == (3, 0, 0.0)


def test_the_busiest_window_is_a_minute_where_the_trace_is_long():
    second = 10**9
    arrival = [0, *(second * (1000 + i) for i in range(0, 120, 2)), 5000 * second]
    found = built(arrival, arrival)
    assert (found.busiest_requests, found.busiest_window_ns) == (30, 60 * second)
    assert found.busiest_rate_per_s == 0.5 and found.busiest_from_ns == 1000 * second


@given(rows=times, slots=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_build_up_equals_looking_at_every_moment(rows, slots):
    arrival, service = np.cumsum([row[0] for row in rows]).tolist(), [row[1] for row in rows]
    result = serve(made(arrival, service, slots=slots))
    start = result.requests.start_ns.tolist()
    waiting = [sum(a <= t < s for a, s in zip(arrival, start, strict=True)) for t in range(max(start) + 1)]
    found = result.build_up
    assert found is not None
    assert found.peak_waiting == max(waiting)
    runs = [len(list(run)) for some, run in itertools.groupby(waiting, bool) if some]
    assert found.longest_ns == max(runs, default=0)
    if found.peak_waiting:
        assert found.peak_at_ns == waiting.index(max(waiting))
    width = found.busiest_window_ns
    if width:
        assert found.busiest_requests == max(sum(t <= a < t + width for a in arrival) for t in arrival)


def test_a_rate_keeps_the_rhythm_and_says_what_was_used(tmp_path):
    """Arrivals 0, 0, 40, 41, 41, 1000 ns are 6e6 requests/s; at half of it every gap is twice as long."""
    workload = load_workload(written(tmp_path))
    half = serve(workload, slots=3, rate_per_s=3e6)
    assert half.requests.arrival_ns.tolist() == [0, 0, 80, 82, 82, 2000]
    assert (half.rate_per_s, half.slots) == (3e6, 3)
    assert half.source == "3e+06 requests/s, 6 requests of trace, time scaled"
    own = serve(workload)
    assert own.rate_per_s == 6e6 and own.source.endswith("as recorded")
    with pytest.raises(UsageError, match="all requests come at once"):
        at_rate(made([5, 5], [1, 1]), 2.0)


def test_rate_and_slots_on_the_command_line(tmp_path, capsys):
    path = str(written(tmp_path))
    assert main(["serve", "--workload", path, "--rate", "3e6", "--slots", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["inputs"]["workload"]["rate_per_s"], found["inputs"]["workload"]["slots"]) == (3e6, 3)
    assert (found["serving"]["rate_per_s"], found["serving"]["slot_count"]) == (3e6, 3)
    assert {"peak_waiting", "peak_at_ns", "longest_ns", "busiest_rate_rps"} <= set(
        found["serving"]["build_up"]
    )
    assert main(["serve", "--workload", path, "--rate", "3e6"]) == 0
    assert "requests waiting" in capsys.readouterr().out
    for words in (["--rate", "0"], ["--rate", "nan"], ["--slots", "0"]):
        assert main(["serve", "--workload", path, *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main(["simulate", "swiglu_mlp", "--rate", "5"]) == 2
    assert "--workload" in capsys.readouterr().err


def test_slots_of_the_caller_win(tmp_path):
    workload = load_workload(written(tmp_path))
    assert serve(workload, slots=3).slots == 3
    assert serve(replace(workload, slots=None)).slots == 1


@pytest.mark.parametrize("kernel", [replay_shared, replay_round_robin])
def test_kernels_keep_their_declared_signature(kernel):
    assert len(kernel.signatures) == 1


def test_a_finite_trace_beyond_capacity_keeps_its_percentiles_and_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "burst.csv"
    rows = "".join(f"{i * 1_000_000},1,1\n" for i in range(200))
    trace.write_text("arrival_ns,input_tokens,output_tokens\n" + rows)
    workload = tmp_path / "load.toml"
    workload.write_text(
        "format = 1\nslots = 1\n[[stream]]\nname = 's'\nkind = 'one-shot'\n"
        "arrivals = { kind = 'trace', file = 'burst.csv', format = 'tilewright' }\n"
        "service = { base_ns = 5000000, per_input_ns = 0, per_output_ns = 0 }\n"
    )
    result = serve(load_workload(workload))
    assert result.utilisation > 4.9
    assert not result.unstable
    assert result.max_ns == 200 * 5_000_000 - 199 * 1_000_000
    assert any(note.startswith("overloaded: rho = ") for note in result.notes)
