"""Several streams, plans per shape, padding and fallback, and the draws behind them: worked by hand or by theory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.errors import FileError, UsageError
from model.hardware.accelerator import Topology
from model.serving.arrivals import Process, first_of_all, synthetic
from model.serving.profile import load_profile
from model.serving.serve import serve
from model.serving.streams import DrawnService
from model.serving.workload import load_workload

TOKENS = """arrival_ns,input_tokens,output_tokens
0,100,0
1000000,512,0
2000000,513,0
3000000,1024,0
4000000,2048,0
5000000,2048,0
"""


def workload(folder: Path, text: str, **files: str):
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    path = folder / "w.toml"
    path.write_text("format = 1\n" + text, encoding="utf-8")
    return load_workload(path)


def parts(result, name: str) -> list[int]:
    return dict(result.requests.parts)[name].tolist()


PLANNED = """slots = "unlimited"
[[stream]]
arrivals = { kind = "trace", file = "t.csv" }
plans = [{ length = 1024, base_ns = 2000 }, { length = 512, base_ns = 1000 }]
"""


def test_a_request_runs_on_the_shortest_plan_that_holds_it_and_pads(tmp_path):
    result = serve(workload(tmp_path, PLANNED + "fallback = { num = 3, den = 2 }", t__csv=TOKENS))
    # 2,048 tokens: the longest plan at twice its length takes 4,000 ns, and falls back at 3/2 of that.
    assert parts(result, "base") == [195, 1000, 1001, 2000, 4000, 4000]
    assert parts(result, "padding") == [805, 0, 999, 0, 0, 0]
    assert parts(result, "fallback") == [0, 0, 0, 0, 2000, 2000]
    assert result.fallback_share == pytest.approx(2 / 6)
    assert result.padding_share == pytest.approx(1804 / 18_000)
    assert (result.requests.completion_ns - result.requests.arrival_ns).tolist() == [
        1000, 1000, 2000, 2000, 6000, 6000,
    ]  # fmt: skip


def test_who_is_longer_than_every_plan_and_has_no_fallback_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"2,048 tokens is longer than the longest plan \(1,024\)"):
        serve(workload(tmp_path, PLANNED, t__csv=TOKENS))


def test_a_limit_below_the_longest_plan_falls_back_from_there_after_padding(tmp_path):
    rule = "fallback = { max_input_tokens = 512, num = 3 }"
    result = serve(workload(tmp_path, PLANNED + rule, t__csv=TOKENS))
    assert parts(result, "fallback") == [0, 0, 4000, 4000, 8000, 8000]
    assert parts(result, "padding") == [805, 0, 999, 0, 0, 0]


def test_the_first_request_of_a_length_waits_for_its_plan(tmp_path):
    result = serve(workload(tmp_path, PLANNED + "fallback = { recompile_s = 1e-3 }", t__csv=TOKENS))
    assert parts(result, "fallback") == [0, 0, 0, 0, 1_000_000, 0]
    assert parts(result, "base")[4:] == [4000, 4000]
    assert result.fallback_share == pytest.approx(2 / 6)


def profile(base_ns: int, slots: int = 2) -> str:
    phases = [["launch", 500, 0, 0, 0], ["steady", base_ns - 500, 0, 0, 0]]
    return json.dumps({"format": 1, "slots": slots, "bandwidth_bytes_per_s": 1e9, "phases": phases})


def test_an_unfused_plan_runs_in_whose_place_and_the_rest_is_fallback(tmp_path):
    """2,048 tokens on a plan of 1,024: 500 ns of launches and twice 5,500; the fused plan takes 2,000 of its 6,000."""
    text = PLANNED + 'fallback = { profile = "slow.json" }'
    result = serve(workload(tmp_path, text, t__csv=TOKENS, slow__json=profile(6000)))
    assert (result.requests.completion_ns - result.requests.arrival_ns).tolist()[4:] == [11_500, 11_500]
    assert parts(result, "base")[4:] == [11_500 * 2000 // 6000] * 2
    assert parts(result, "fallback")[4:] == [11_500 - 11_500 * 2000 // 6000] * 2


def test_a_batch_runs_the_smallest_compiled_batch_that_holds_it(tmp_path):
    text = """slots = 1
[[stream]]
arrivals = { kind = "trace", file = "t.csv" }
batch = { max = 4, linger_s = 0.0 }
plans = [{ batch = 1, base_ns = 100 }, { batch = 4, base_ns = 250 }]
"""
    rows = "arrival_ns,input_tokens,output_tokens\n" + "0,1,0\n" * 1 + "10,1,0\n" * 2 + "20,1,0\n" * 5
    result = serve(workload(tmp_path, text, t__csv=rows))
    # One alone for 100 ns, then four of the seven, then three.
    assert result.requests.completion_ns.tolist() == [100, 350, 350, 350, 350, 600, 600, 600]
    assert result.batch_sizes == ((1, 1), (3, 1), (4, 1))
    assert result.slot_busy_ns == (600,)
    with pytest.raises(FileError, match=r"batch.max = 8, and plans reach 4"):
        workload(tmp_path, text.replace("max = 4", "max = 8"), t__csv=rows)


def test_a_batch_on_given_times_takes_its_base_once(tmp_path):
    text = """slots = 1
[[stream]]
arrivals = { kind = "constant", rate_per_s = 1e9, input_tokens = 1 }
batch = { max = 4, linger_s = 1.0 }
service = { base_ns = 2000, per_input_ns = 500 }
"""
    result = serve(workload(tmp_path, "requests = 8\n" + text))
    assert result.requests.completion_ns.tolist() == [3 + 4000] * 4 + [3 + 8000] * 4
    assert parts(result, "batch_wait") == [3, 2, 1, 0] * 2
    assert result.utilisation == pytest.approx(1e9 * (500 + 500) * 1e-9)


TWO = """requests = 1000
slots = 4
placement = { kind = "static" }
[[stream]]
name = "a"
home_slot = 2
arrivals = { kind = "poisson", rate_per_s = 30.0 }
service = { dist = "exponential", mean_s = 0.01 }
slo = { percentile = 0.9, response_s = 0.05 }
[[stream]]
name = "b"
home_slot = [0, 1]
arrivals = { kind = "poisson", rate_per_s = 60.0 }
service = { dist = "exponential", mean_s = 0.01 }
"""


def test_streams_are_one_table_and_keep_their_own_draws(tmp_path):
    both = workload(tmp_path, TWO)
    result = serve(both)
    assert [stream.name for stream in result.streams] == ["a", "b"]
    assert sum(stream.requests for stream in result.streams) == 1000
    a, b = both.streams
    assert a.arrivals.arrival_ns.size == result.streams[0].requests
    gaps = np.random.default_rng(0).exponential(1 / 30.0, a.arrivals.arrival_ns.size)
    assert np.array_equal(a.arrivals.arrival_ns, np.rint(np.cumsum(gaps) * 1e9).astype(np.int64))
    gaps = np.random.default_rng((0, 1)).exponential(1 / 60.0, b.arrivals.arrival_ns.size)
    assert np.array_equal(b.arrivals.arrival_ns, np.rint(np.cumsum(gaps) * 1e9).astype(np.int64))
    where = {
        stream: set(result.requests.slot[result.requests.stream == stream].tolist()) for stream in (0, 1)
    }
    assert where == {0: {2}, 1: {0, 1}}
    drawn = np.random.default_rng(2000).exponential(0.01 * 1e9, a.arrivals.arrival_ns.size)
    base = dict(result.requests.parts)["base"][result.requests.stream == 0]
    assert np.array_equal(base, np.rint(drawn).astype(np.int64))
    assert result.slo_attainment == result.streams[0].slo_attainment is not None
    assert result.utilisation == pytest.approx(0.9 / 4)


def test_a_static_slot_beyond_its_capacity_is_unstable_though_the_machine_is_not(tmp_path):
    result = serve(workload(tmp_path, TWO.replace("rate_per_s = 30.0", "rate_per_s = 110.0")))
    assert result.unstable and result.utilisation < 0.5
    assert any("the fullest slot is at rho = 1.1" in note for note in result.notes)
    dynamic = TWO.replace("rate_per_s = 30.0", "rate_per_s = 110.0").replace("static", "dynamic")
    assert not serve(workload(tmp_path, dynamic)).unstable


def test_a_home_slot_must_be_there(tmp_path):
    with pytest.raises(UsageError, match=r"stream\[0\].home_slot is 2, and there are 2 slots"):
        serve(workload(tmp_path, TWO), slots=2)


def test_the_first_requests_of_all_streams_are_those_of_a_longer_run():
    mmpp = Process("mmpp", (0.0, 300.0), (0.5, 0.5))
    sources = (Process("poisson", (5.0,)), mmpp, Process("constant", (40.0,)))
    few, many = first_of_all(sources, 3, 500), first_of_all(sources, 3, 2000)
    last = max(arrivals.arrival_ns[-1] for arrivals in few)
    for short, long in zip(few, many, strict=True):
        assert np.array_equal(short.arrival_ns, long.arrival_ns[: short.arrival_ns.size])
        assert long.arrival_ns[short.arrival_ns.size] >= last
    assert sum(arrivals.arrival_ns.size for arrivals in few) == 500
    with pytest.raises(UsageError, match=r"none of the first 10 requests is of stream\[0\]"):
        first_of_all((Process("constant", (1.0,)), Process("poisson", (0.001,)))[::-1], 3, 10)


def test_two_states_have_their_rates_and_their_dwells():
    """Mean rate (100 * 2 + 900 * 1) / 3 per s; counts over 2 s windows vary far more than Poisson's."""
    process = Process("mmpp", (100.0, 900.0), (2.0, 1.0))
    assert process.rate_per_s == pytest.approx(1100 / 3)
    times = synthetic(process, 7, requests=400_000).arrival_ns * 1e-9
    assert times.size / times[-1] == pytest.approx(1100 / 3, rel=0.06)
    counts = np.bincount((times / 0.5).astype(int))[:-1]
    assert counts.var() / counts.mean() > 50.0
    calm = Process("mmpp", (50.0, 50.0), (2.0, 1.0))
    poisson = np.cumsum(np.random.default_rng(7).exponential(1.0, 1000)) / 50.0
    assert synthetic(calm, 7, requests=1000).arrival_ns == pytest.approx(poisson * 1e9, rel=1e-9, abs=1)


@pytest.mark.parametrize(
    ("service", "cv"),
    [
        (DrawnService("lognormal", 2.0, cv=1.5), 1.5),
        (DrawnService("two-point", 2.0, slow_share=0.05, slow_factor=4.0), 0.568621),
        (DrawnService("exponential", 2.0), 1.0),
        (DrawnService("deterministic", 2.0), 0.0),
    ],
)
def test_drawn_services_have_their_mean_and_spread(service, cv):
    """Two-point: fast 2 / 1.15, slow four times that; variance p (1 - p) (slow - fast)**2."""
    drawn = service.draw(np.random.default_rng(1), 400_000) * 1e-9
    assert drawn.mean() == pytest.approx(2.0, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.05)


OWN = """arrival_ns,input_tokens,output_tokens,stream,size_factor
0,1,1,chat,2.0
10,1,1,1,1.0
20,1,1,chat,0.5
"""


def test_a_trace_can_say_whose_a_request_is_and_how_large(tmp_path):
    stream = 'arrivals = { kind = "trace", file = "t.csv" }\nservice = { base_ns = 100 }\n'
    text = f'slots = "unlimited"\n[[stream]]\nname = "chat"\n{stream}[[stream]]\n{stream}'
    result = serve(workload(tmp_path, text, t__csv=OWN))
    assert [(one.name, one.requests) for one in result.streams] == [("chat", 2), ("stream-1", 1)]
    assert parts(result, "base") == [200, 100, 50]
    with pytest.raises(FileError, match=r"t.csv:3: stream '1' is none of the workload's \(chat\)"):
        workload(tmp_path, f'[[stream]]\nname = "chat"\n{stream}', t__csv=OWN)


def test_away_from_home_costs_the_files_factor_or_the_topologys(tmp_path):
    """Both at once: home slot 0 of both streams goes to the first; the second runs on slot 1 at 3/2."""
    text = """slots = 2
placement = { kind = "home-first", off_home_factor = 1.5 }
[[stream]]
name = "a"
arrivals = { kind = "constant", rate_per_s = 1.0 }
service = { base_ns = 100 }
[[stream]]
name = "b"
arrivals = { kind = "constant", rate_per_s = 1.0 }
service = { base_ns = 200 }
"""
    result = serve(workload(tmp_path, "requests = 2\n" + text))
    assert parts(result, "off_home") == [0, 100] and result.requests.slot.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("home_slot = 2", "home_slot = -1"), "stream[0].home_slot"),
        (('name = "b"', 'name = "a"'), "two of them are called 'a'"),
        (("slots = 4", "slots = 4\nqueue = { discipline = 'deficit-round-robin' }"), "quantum_s belongs to"),
        (("slots = 4", "slots = 4\ncontention = { shares = { c = 0.5 } }"), "'c' is none of the streams a, b"),
        (("slots = 4", "slots = 4\ncontention = { shares = { a = 0.5, b = 0.6 } }"), "sum to more than 1"),
        (('dist = "exponential"', 'dist = "lognormal"'), "cv belongs to lognormal"),
        (('dist = "exponential"', 'dist = "two-point"'), "slow_share and slow_factor belong to two-point"),
        (("home_slot = 2", "batch = { max = 2 }"), "drawn service times have no batch"),
        (
            ('service = { dist = "exponential", mean_s = 0.01 }\nslo', "plans = [{ length = 8, base_ns = 1 }]\nslo"),
            "plans with a length need input_tokens",
        ),
        (
            ('service = { dist = "exponential", mean_s = 0.01 }\nslo', "plans = [{ length = 8 }]\nslo"),
            "needs exactly one of plan, profile and base_ns",
        ),
    ],
)  # fmt: skip
def test_one_fault_one_sentence(tmp_path, change, said):
    with pytest.raises(FileError) as caught:
        workload(tmp_path, TWO.replace(*change, 1))
    assert said in caught.value.sentence()


def test_profiles_of_one_workload_are_of_one_machine(tmp_path):
    other = profile(3000).replace("1000000000.0", "2000000000.0")
    plans = 'plans = [{ length = 512, profile = "a.json" }, { length = 4096, profile = "b.json" }]'
    text = f'[[stream]]\narrivals = {{ kind = "trace", file = "t.csv" }}\n{plans}\n'
    result = serve(workload(tmp_path, text, t__csv=TOKENS, a__json=profile(1000), b__json=profile(3000)))
    assert result.slots == 2 and parts(result, "padding")[1] == 0
    with pytest.raises(UsageError, match=r"different machines, of 1e\+09 and 2e\+09 bytes/s"):
        serve(workload(tmp_path, text, t__csv=TOKENS, a__json=profile(1000), b__json=other))


def test_hops_by_topology():
    assert [Topology("mesh", 2).hops(0, slot, 4) for slot in range(4)] == [0, 1, 1, 2]
    assert [Topology("ring").hops(0, slot, 5) for slot in range(5)] == [0, 1, 2, 2, 1]
    assert [Topology("crossbar").hops(1, slot, 3) for slot in range(3)] == [1, 0, 1]


def test_away_from_home_costs_what_the_machines_topology_says(tmp_path):
    """Four at once on a 2 x 2 mesh at 5 % a hop: at home, one hop, one hop, two hops."""
    text = """slots = 4
requests = 4
placement = { kind = "home-first" }
contention = { enabled = false }
[[stream]]
arrivals = { kind = "constant", rate_per_s = 1e9 }
"""
    (tmp_path / "p.json").write_text(profile(2000, slots=4), encoding="utf-8")
    machine = replace(load_profile(tmp_path / "p.json"), topology=Topology("mesh", 2, 0.05))
    result = serve(workload(tmp_path, text), machine)
    assert result.requests.slot.tolist() == [0, 1, 2, 3]
    assert parts(result, "off_home") == [0, 100, 100, 200]


CLASSES = """slots = 1
queue = { discipline = "priority" }
[[stream]]
name = "long"
arrivals = { kind = "trace", file = "t.csv" }
profile = "long.json"
[[stream]]
name = "urgent"
priority = 1
arrivals = { kind = "trace", file = "t.csv" }
profile = "short.json"
"""
KERNELS = [["launch", 10, 0, 0, 0], ["steady", 90, 0, 0, 0]]


@pytest.mark.parametrize(
    ("rule", "preempted", "completion"),
    [("", [50, 0], [350, 150]), (", preempt = false", [0, 0], [300, 350])],
)
def test_a_higher_class_takes_the_slot_at_the_next_launch(tmp_path, rule, preempted, completion):
    """Three kernels of 100 ns; 50 ns of a higher class come at 20, and start at the launch at 100, or after 300."""
    profile = {"format": 1, "repeat": 3, "slots": 1, "bandwidth_bytes_per_s": 1e9, "phases": KERNELS}
    urgent = profile | {"repeat": 1, "phases": [["steady", 50, 0, 0, 0]]}
    trace = "arrival_ns,input_tokens,output_tokens,stream\n0,1,1,long\n20,1,1,urgent\n"
    text = CLASSES.replace('"priority" }', f'"priority"{rule} }}')
    named = {"long__json": json.dumps(profile), "short__json": json.dumps(urgent)}
    result = serve(workload(tmp_path, text, t__csv=trace, **named))
    assert parts(result, "preempted") == preempted
    assert result.requests.completion_ns.tolist() == completion
    assert (
        result.slot_busy_ns == (350,) and result.utilisation == 350 / 20
    )  # nobody is served while suspended
