"""Heat: the two nodes against a fine integration, the low clock by hand, and what must hold of every replay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.cost.result import PHASE_DTYPE
from model.errors import FileError, UsageError
from model.hardware.accelerator import Thermal
from model.serving import thermal_kernels as tk
from model.serving.document import serving_document
from model.serving.exact import replay
from model.serving.generation import ANY_PAST, Decoding, Generation
from model.serving.layout import heat_array
from model.serving.questions import answers
from model.serving.result import WITHIN, ServiceProfile
from model.serving.rules import Offers, Rules, Services, StreamRules
from model.serving.serve import prepare, serve
from model.serving.thermal import Heat, at_low_clock
from model.serving.workload import load_workload

PART = Thermal(10.0, 25.0, 0.5, 2.0, 2.0, 120.0, 85.0, 80.0, 0.7, None)
SECOND = 1_000_000_000


def stepped(
    watts: float, seconds: float, die: float, sink: float, steps: int = 20_000
) -> tuple[float, float]:
    """Runge-Kutta of the two equations."""
    c_die, c_sink = PART.die_s / PART.die_k_per_w, PART.sink_s / PART.sink_k_per_w

    def slope(t: np.ndarray) -> np.ndarray:
        down = (t[0] - t[1]) / PART.die_k_per_w
        return np.array(
            [(watts - down) / c_die, (down - (t[1] - PART.ambient_c) / PART.sink_k_per_w) / c_sink]
        )

    t, h = np.array([die, sink]), seconds / steps
    for _ in range(steps):
        a = slope(t)
        b = slope(t + h / 2 * a)
        c = slope(t + h / 2 * b)
        d = slope(t + h * c)
        t = t + h / 6 * (a + 2 * b + 2 * c + d)
    return float(t[0]), float(t[1])


@pytest.mark.parametrize("seconds", [0.001, 1.0, 30.0, 400.0])
def test_the_update_is_the_solution_of_the_two_equations(seconds):
    heat = heat_array(Heat(replace(PART, throttle_c=1e9), 1.0, 1))
    assert (heat[tk.H_DIE], heat[tk.H_SINK]) == (27.5, 27.0)  # idle for long at 1 W
    heat[tk.H_WATTS] = 20.0
    for part in range(1, 4):  # in three parts: the same
        tk.warm(int(seconds * SECOND) * part // 3, heat)
    assert (heat[tk.H_DIE], heat[tk.H_SINK]) == pytest.approx(stepped(20.0, seconds, 27.5, 27.0), abs=1e-6)
    assert heat[tk.H_ENERGY] == pytest.approx(20.0 * seconds, rel=1e-6)


def test_heat_that_comes_in_is_stored_or_goes_out():
    """C_die dT + C_sink dT + the integral of (T_sink - ambient) / R_sink is the energy drawn."""
    heat = heat_array(Heat(replace(PART, throttle_c=1e9), 0.0, 1))
    random, gone, now, step = np.random.default_rng(0), 0.0, 0, 20_000_000
    for _ in range(20_000):
        heat[tk.H_WATTS] = random.uniform(0.0, 40.0)
        before = heat[tk.H_SINK]
        now += step
        tk.warm(now, heat)
        gone += (0.5 * (before + heat[tk.H_SINK]) - 25.0) / PART.sink_k_per_w * step * 1e-9
    stored = (heat[tk.H_DIE] - 25.0) * PART.die_s / PART.die_k_per_w
    stored += (heat[tk.H_SINK] - 25.0) * PART.sink_s / PART.sink_k_per_w
    assert stored + gone == pytest.approx(heat[tk.H_ENERGY], rel=1e-6)


def test_the_clock_lowers_and_rises_at_the_moments_at_which_the_die_crosses():
    heat = heat_array(Heat(PART, 0.0, 1))
    heat[tk.H_WATTS] = 100.0
    tk.warm(40 * SECOND, heat)
    assert heat[tk.H_SLOW] == 1.0
    crossing = 40.0 - heat[tk.H_SLOW_NS] * 1e-9
    assert stepped(100.0, crossing, 25.0, 25.0)[0] == pytest.approx(85.0, abs=1e-5)
    die, sink, so_far = heat[tk.H_DIE], heat[tk.H_SINK], heat[tk.H_SLOW_NS]
    heat[tk.H_WATTS] = 0.0
    tk.warm(400 * SECOND, heat)
    assert heat[tk.H_SLOW] == 0.0
    cooled = (heat[tk.H_SLOW_NS] - so_far) * 1e-9
    assert stepped(0.0, cooled, die, sink)[0] == pytest.approx(80.0, abs=1e-5)


def test_a_low_clock_slows_compute_and_neither_launches_nor_memory():
    """A port of 10 bytes/ns: 1,000 bytes take 100 ns."""
    rows = [
        (0, 50, 0, 0, 0),
        (1, 100, 1000, 0, 0),
        (3, 140, 1000, 0, 0),
        (3, 70, 0, 0, 0),
        (4, 30, 300, 0, 0),
    ]
    profile = ServiceProfile(np.array(rows, dtype=PHASE_DTYPE), 1, 1, 1e10, port_bytes_per_s=1e10)
    low = at_low_clock(profile, 0.7)
    assert low.phases["base_ns"].tolist() == [50, 100, 200, 100, 30]
    assert low.phases["bytes"].tolist() == profile.phases["bytes"].tolist()
    assert at_low_clock(profile, 1.0).phases.tolist() == profile.phases.tolist()
    # Where no port is said, nothing is known to wait for memory.
    assert at_low_clock(replace(profile, port_bytes_per_s=float("inf")), 0.5).base_ns == 50 + 2 * 340


# ---------------------------------------------------------------- replays


def served(seed: int, count: int = 400, generates: bool = False) -> tuple[Offers, Services, Rules]:
    """Three slots that contend, of a plan of 100 ms at 20 J, and given times beside it, for a minute."""
    random = np.random.default_rng(seed)
    unit = 1_000_000
    rows = [(0, 5, 0, 0, 0), (1, 20, 200, 50, 20), (3, 50, 100, 0, 30), (4, 25, 0, 0, 0)]
    phases = np.array(
        [(k, ns * unit, b * unit, s * unit, r * unit) for k, ns, b, s, r in rows], dtype=PHASE_DTYPE
    )
    profile = ServiceProfile(phases, 1, 3, 12e9, 2.0, port_bytes_per_s=10e9)
    services = Services(
        np.array([[0, 100 * unit, 100 * unit], [0, 60 * unit, 90 * unit]]),
        np.array([[0, 5 * unit, 5 * unit], [0, 0, 0]]),
        np.array([[-1, 0, 0], [-1, -1, -1]], np.int32),
        (profile,),
    )
    offers = Offers.of_one_stream(
        np.sort(random.integers(0, 60 * SECOND * count // 1000, count)), size=random.uniform(0.8, 1.2, count)
    )
    offers = replace(offers, plan=random.integers(0, 2, count).astype(np.int32))
    if generates:
        ones, later = np.ones(count, np.int64), np.ones((count, 2, 4), np.int64)
        later[..., :2] = 0
        generation = Generation(
            random.integers(1, 4, count), later, ones, random.integers(1, 4, count), 0 * ones, offers.size,
            ones * 1000 * unit, np.array([-1, -1], np.int32), (Decoding(((ANY_PAST, 1),)),),
        )  # fmt: skip
        offers = replace(offers, generation=generation)
    return offers, services, Rules(3, (StreamRules(batch=2),), bandwidth_bytes_per_s=12e9)


COOL = Heat(replace(PART, throttle_c=1e9), 1.5, 3)
HOT = Heat(replace(PART, throttle_c=32.0, resume_c=31.0), 1.5, 3)


def total(done) -> np.ndarray:
    return np.sum([values for name, values in done.parts if name not in WITHIN], axis=0)


@pytest.mark.parametrize("generates", [False, True])
@pytest.mark.parametrize("tight", [True, False])
def test_a_machine_that_never_gets_hot_serves_as_one_without_heat(generates, tight):
    offers, services, rules = served(1, generates=generates)
    rules = rules if tight else replace(rules, bandwidth_bytes_per_s=float("inf"))
    off, cool = replay(offers, services, rules), replay(offers, services, replace(rules, heat=COOL))
    assert np.array_equal(off.completion_ns, cool.completion_ns)
    assert all(np.array_equal(v, dict(cool.parts)[n]) for n, v in off.parts)
    assert off.warmed is None and cool.warmed is not None and cool.warmed.low_clock_ns == 0


@pytest.mark.parametrize("generates", [False, True])
@pytest.mark.parametrize("heat", [COOL, HOT], ids=["cool", "hot"])
def test_what_is_drawn_is_what_batches_spend_and_static_power(heat, generates):
    """Stalls spend no more than the plan says; given times draw their part of the design power, as at full clock."""
    offers, services, rules = served(2, generates=generates)
    done = replay(offers, services, replace(rules, heat=heat))
    assert done.warmed is not None
    busy_w = (10.0 - 1.5) / 3
    end_s = int(done.completion_ns.max()) * 1e-9
    if generates:
        assert done.generated is not None
        batches = done.generated.energy_j.sum()
        parts = dict(done.parts)
        # All segments on the second plan are of given times: their ns at full clock, each counted once.
        given = done.warmed.energy_j - 1.5 * end_s - batches
        assert 0.0 < given < busy_w * int((parts["base"] + parts["interleaved"]).sum()) * 1e-9
    else:
        plan = offers.plan == 0
        parts = dict(done.parts)
        given = busy_w * (parts["base"] / done.batch)[~plan].sum() * 1e-9
        batches = 2.0 * (1.0 / done.batch[plan]).sum()
        assert done.warmed.energy_j == pytest.approx(1.5 * end_s + batches + given, rel=1e-6)
    assert np.array_equal(total(done), done.completion_ns - offers.arrival_ns)


@pytest.mark.parametrize("generates", [False, True])
def test_a_hot_machine_takes_longer_by_its_throttle_part_alone(generates):
    offers, services, rules = served(3, generates=generates)
    done = replay(offers, services, replace(rules, heat=HOT))
    parts = dict(done.parts)
    assert done.warmed is not None and done.warmed.low_clock_ns > 0 and done.warmed.peak_die_c > 32.0
    assert int(parts["throttle"].min()) == 0 < int(parts["throttle"].max())
    assert np.array_equal(total(done), done.completion_ns - offers.arrival_ns)
    if not generates:
        slow = parts["throttle"] > 0
        # Given times by 1/0.7; of the plan the 75 ns of 95 that its port leaves to compute.
        alone = np.where(offers.plan == 0, parts["base"] - 5_000_000, parts["base"])
        share = np.where(offers.plan == 0, 75 / 95, 1.0)
        assert parts["throttle"][slow] == pytest.approx((alone * share * (1 / 0.7 - 1))[slow], abs=2)


def test_the_hotter_the_surroundings_the_longer_all_wait():
    offers, services, rules = served(4, count=1500)
    offers = replace(offers, plan=np.ones_like(offers.plan))
    found = []
    for ambient in (10.0, 20.0, 24.0, 26.0, 40.0):
        heat = replace(HOT, thermal=replace(HOT.thermal, ambient_c=ambient))
        one = replace(rules, streams=(StreamRules(),), heat=heat)
        done = replay(offers, services, one)
        assert done.warmed is not None
        found.append((int((done.completion_ns - offers.arrival_ns).sum()), done.warmed.low_clock_ns))
    assert found == sorted(found) and found[0][1] < found[-1][1]


def test_the_power_cap_lowers_the_clock_of_a_cold_machine():
    """Two slots of 10 W each on given times, a cap of 15 W: the second to start at one time is slow."""
    thermal = replace(PART, tdp_w=20.0, power_cap_w=15.0)
    services = Services.of_times(np.array([[0, 70]]))
    offers = Offers.of_one_stream(np.array([0, 10, 200]))
    done = replay(offers, services, Rules(2, heat=Heat(thermal, 0.0, 2)))
    assert done.completion_ns.tolist() == [70, 110, 270]
    assert done.warmed is not None and done.warmed.capped == 1 and done.warmed.low_clock_ns == 0


# ---------------------------------------------------------------- files


TEXT = """format = 1
requests = 3000
slots = 4
throttle = { thermal = true, hardware = "edge-npu" }
[[stream]]
arrivals = { kind = "constant", rate_per_s = 2.0 }
service = { base_ns = 1_600_000_000 }
slo = { percentile = 0.95, response_s = 2.0 }
"""


def loaded(folder: Path, text: str):
    (folder / "w.toml").write_text(text, encoding="utf-8")
    return load_workload(folder / "w.toml")


def test_an_hour_of_traffic_drifts_and_the_file_says_how_hot_it_is(tmp_path):
    """Four slots at rho 0.8 draw 0.5 + 0.8 * 4.5 W: 25 + 4.1 * 2.5 degrees, far below 85; in 80 degrees far above."""
    cool = serve(loaded(tmp_path, TEXT))
    assert cool.warmed is not None and cool.throttled_ns == 0
    assert cool.warmed.sink_c == pytest.approx(25.0 + 4.1 * 2.0, abs=0.5)
    workload = loaded(tmp_path, TEXT.replace('"edge-npu" }', '"edge-npu", ambient_c = 76.0 }'))
    hot = serve(workload)
    told = serving_document(hot)
    assert told["throttled_s"] == told["thermal"]["low_clock_s"] > 0
    assert hot.p95_ns > cool.p95_ns
    (answer,) = answers(prepare(workload), ["heat"])
    json.dumps(answer, allow_nan=False)
    points = answer["points"]
    assert len(points) == 12 and answer["rounds"] == 3 and not answer["first_estimate"]
    assert sum(point["requests"] for point in points) == 7200
    assert points[0]["die_c"] < points[-1]["die_c"]  # it warms over minutes
    assert answer["warm"]["p95_s"] > answer["full_clock"]["p95_s"] == pytest.approx(1.6)


def test_what_warms_must_be_said(tmp_path):
    with pytest.raises(UsageError, match="nothing says how the machine warms"):
        serve(loaded(tmp_path, TEXT.replace(', hardware = "edge-npu"', "")))
    with pytest.raises(FileError, match="does not say how it warms"):
        loaded(tmp_path, TEXT.replace("edge-npu", "one-buffer"))
    with pytest.raises(FileError, match="belong to thermal = true"):
        loaded(tmp_path, TEXT.replace("thermal = true", "thermal = false"))
    with pytest.raises(UsageError, match="nothing warms"):
        answers(prepare(loaded(tmp_path, TEXT.replace("throttle", "#"))), ["heat"])


CONTRACT_WORKLOAD = """format = 1
seed = 0
slots = 8
placement = { kind = "dynamic" }
contention = { enabled = true, admission_limit = 8, shares = {} }
throttle = { thermal = false, windows_ns = [], factor = [7, 5] }
queue = { discipline = "fifo" }
[[stream]]
name = "code"
kind = "one-shot"
arrivals = { kind = "trace", file = "azure_llm_2023_code.csv", format = "tilewright", rate_per_s = 75.0 }
jitter = { kind = "gamma", cv = 0.05 }
batch = { max = 1, linger_s = 0.0 }
bind = { length = "seq", batch = "batch" }
plans = [{ length = 512, batch = 1, plan = "max.json" }]
fallback = { max_input_tokens = 4096, num = 3, den = 1 }
priority = 0
home_slot = 0
slo = { percentile = 0.95, response_s = 0.02 }
generation = { decode = [{ past = 2048, batch = 8, plan = "decode.json" }], kv_capacity_bytes = 4.0e9, prefix_cache = false, prefill_chunk_tokens = 0 }
"""  # noqa: E501


@pytest.mark.parametrize("kind", ["one-shot", "generation"])
@pytest.mark.parametrize("thermal", ["false", "true"])
def test_the_workload_of_the_contract_loads_whole(tmp_path, kind, thermal):
    for name in ("max.json", "decode.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    text = CONTRACT_WORKLOAD.replace("thermal = false", f"thermal = {thermal}").replace(
        '"one-shot"', f'"{kind}"'
    )
    workload = loaded(tmp_path, text.replace('batch = "batch"', 'batch = "batch", past = "past"'))
    (stream,) = workload.streams
    assert (stream.generation is not None) == (kind == "generation")
    assert workload.throttle.thermal == (thermal == "true")
    ignored = [note for note in workload.notes if "generation section has no effect" in note]
    assert len(ignored) == (kind == "one-shot")


# ---------------------------------------------------------------- energy


def test_energy_of_a_request_counts_static_power_while_the_machine_waits(tmp_path):
    """Batches of two and of one spend 3 J each; 2 W of static power from first arrival to last answer, 1.2 s."""
    power = {"energy_j": 3.0, "static_w": 2.0}
    phases = [["steady", 200_000_000, 0, 0, 0]]
    profile = {"format": 1, "slots": 1, "bandwidth_bytes_per_s": 1e9, "phases": phases, **power}
    (tmp_path / "p.json").write_text(json.dumps(profile), encoding="utf-8")
    (tmp_path / "t.csv").write_text("arrival_ns,input_tokens,output_tokens\n0,1,1\n0,1,1\n1000000000,1,1\n")
    text = 'format = 1\n[[stream]]\narrivals = { kind = "trace", file = "t.csv" }\nbatch = { max = 2 }\n'
    text += 'plans = [{ batch = 2, profile = "p.json" }]\n'
    for kind in ("one-shot", "generation"):
        result = serve(loaded(tmp_path, text + f'kind = "{kind}"\n'))
        assert result.energy_j_per_request == pytest.approx((2 * 3.0 + 2.0 * 1.2) / 3)


def test_a_plan_s_profile_leaves_static_power_to_the_machine():
    from model.cost.result import CostRequest
    from model.cost.simulate import simulate
    from model.graph.load import load_graph
    from model.hardware.loader import load_hardware
    from model.plan.edits import contraction_tails
    from model.serving.profile import profile_of

    graph, machine = load_graph("swiglu_mlp", {}), load_hardware("edge-npu")
    result = simulate(CostRequest(graph, machine, contraction_tails(graph), ""))
    silent = replace(machine, energy=replace(machine.energy, static_w=0.0))
    dynamic = simulate(CostRequest(graph, silent, contraction_tails(graph), "")).totals.energy_j
    profile = profile_of(result)
    assert profile.static_w == 0.5 and result.totals.energy_j > dynamic
    assert profile.energy_j == pytest.approx(dynamic, rel=1e-6)
    assert (
        profile.port_bytes_per_s == machine.slot_bandwidth_bytes_per_s and profile.thermal == machine.thermal
    )
