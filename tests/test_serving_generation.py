"""Requests answered token by token: against a plain replay, against one-shot requests, by hand, and as files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cost.result import PHASE_DTYPE
from model.errors import FileError, UsageError
from model.serving.document import serving_document
from model.serving.exact import Replay, replay
from model.serving.generation import ANY_PAST, Decoding, Generation
from model.serving.result import WITHIN, ServiceProfile
from model.serving.rules import Offers, Rules, Services, StreamRules
from model.serving.serve import serve
from model.serving.workload import load_workload
from tests.generation_oracle import replay_tokens

numbers = st.integers


def summed(done) -> np.ndarray:
    return np.sum([values for name, values in done.parts if name not in WITHIN], axis=0)


@st.composite
def cases(draw):
    """Requests of up to three streams on given times, with every rule that they can meet."""
    count, streams = draw(numbers(1, 30)), draw(numbers(1, 3))
    slots, batch = draw(numbers(1, 4)), draw(numbers(1, 4))
    random = np.random.default_rng(draw(numbers(0, 2**32)))
    plans = draw(numbers(1, 3))
    base = np.sort(random.integers(0, 60, (plans, batch + 1)), axis=1)
    services = Services(base, base // 3, np.full(base.shape, -1, np.int32))
    chunks = random.integers(1, 4, count)
    later = np.ones((count, 2, 4), np.int64)
    later[..., 0], later[..., 1] = (
        random.integers(0, plans, (2, count)).T,
        random.integers(0, 9, (2, count)).T,
    )
    later[..., 2], later[..., 3] = random.integers(1, 4, (2, count)).T, 4
    sized = draw(st.booleans())
    size = random.uniform(0.5, 2.0, count) if sized else np.ones(count)
    kv = random.integers(0, 10, count)

    def decoding() -> Decoding:
        pasts = sorted(set(random.integers(1, 20, random.integers(1, 4)).tolist()))
        held = [(past, int(random.integers(0, plans))) for past in pasts]
        if draw(st.booleans()):
            held[-1] = (ANY_PAST, held[-1][1])
        capacity = draw(st.sampled_from([None, 10, 20]))
        return Decoding(tuple(held), int(random.integers(0, 5)), (3, 2), capacity, draw(st.booleans()))

    generation = Generation(
        chunks, later, random.integers(0, 12, count), random.integers(1, 6, count), kv,
        random.uniform(0.5, 2.0, count) if sized else np.ones(count),
        np.full(count, 1000), np.full(plans, -1, np.int32), tuple(decoding() for _ in range(streams)),
    )  # fmt: skip
    fallback = np.ones((count, 2), np.int64)
    fallback[random.random(count) < 0.3] = 5, 3
    padding = np.stack([random.integers(1, 4, count), np.full(count, 4)], axis=1)
    offers = Offers(
        np.sort(random.integers(0, draw(st.sampled_from([1, 200, 2000])), count)),
        random.integers(0, streams, count).astype(np.int32),
        random.integers(0, plans, count).astype(np.int32),
        random.integers(0, 30, count),
        size,
        padding,
        fallback,
        generation,
    )
    off_home = random.integers(2, 5, (streams, slots, 2)) if draw(st.booleans()) else None
    rules = Rules(
        slots,
        tuple(
            StreamRules(
                home=tuple(sorted({draw(numbers(0, slots - 1)), draw(numbers(0, slots - 1))})),
                priority=draw(numbers(0, 2)),
                batch=draw(numbers(1, batch)),
            )
            for _ in range(streams)
        ),
        placement=draw(st.sampled_from(["dynamic", "static", "round-robin", "home-first", "stealing"])),
        discipline=draw(st.sampled_from(["fifo", "priority"])),
        off_home=off_home,
        admission_limit=draw(st.sampled_from([None, 1, 2])),
        throttle_edges_ns=np.array([50, 90, 200, 500]) if draw(st.booleans()) else None,
        throttle=(7, 5),
    )
    return offers, services, rules


@settings(max_examples=300, deadline=None)
@given(cases(), numbers(1, 1000))
def test_iterations_are_those_of_the_plain_replay(case, slice_events):
    offers, services, rules = case
    expected = replay_tokens(offers, services, rules)
    run = Replay(offers, services, rules)
    while not run.step(slice_events):
        pass
    done = run.result()
    told, parts = done.generated, dict(done.parts)
    assert told is not None
    assert done.start_ns.tolist() == expected["start"]
    assert done.completion_ns.tolist() == expected["completion"]
    assert done.slot.tolist() == expected["slot"]
    assert told.first_token_ns.tolist() == [times[0] for times in expected["tokens"]]
    assert list(told.kv_peak_bytes) == expected["peak"]
    for name, values in expected["parts"].items():
        assert parts[name].tolist() == values, name
    # Conserved: every token once, every ns in one part, cache within its limit.
    assert [len(times) for times in expected["tokens"]] == told.tokens.tolist()
    assert np.array_equal(summed(done), done.completion_ns - offers.arrival_ns)
    assert (parts["queue_imbalance"] <= parts["queue"]).all() and (parts["queue_imbalance"] >= 0).all()
    for peak, decoding in zip(told.kv_peak_bytes, offers.generation.streams, strict=True):
        assert decoding.kv_capacity_bytes is None or peak <= decoding.kv_capacity_bytes
    members = int((np.arange(told.iterations.size) * told.iterations).sum())
    assert members == int((offers.generation.chunks + told.tokens - 1).sum())


def contended(random: np.random.Generator, count: int, batch: int = 1) -> tuple[Offers, Services, Rules]:
    """Requests of one chunk and one token whose plan has phases that contend."""
    phases = np.array(
        [(0, 5, 0, 0, 0), (1, 20, 200, 50, 20), (3, 50, 100, 0, 30), (4, 10, 90, 0, 0)], dtype=PHASE_DTYPE
    )
    profile = ServiceProfile(phases, 2, 3, 12e9, 0.5)
    services = Services.of_profiles(np.array([[-1] + [0] * batch], np.int32), (profile,))
    offers = Offers.of_one_stream(
        np.sort(random.integers(0, 60 * count, count)), size=random.uniform(0.8, 1.2, count)
    )
    return offers, services, Rules(3, (StreamRules(batch=batch),), bandwidth_bytes_per_s=12e9)


def of_one_token(offers: Offers, decoding: Decoding | None = None, tokens: int = 1) -> Offers:
    n = offers.arrival_ns.size
    zeros, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
    return replace(
        offers,
        generation=Generation(
            ones, np.ones((n, 2, 4), np.int64), ones, np.full(n, tokens), zeros, offers.size, zeros,
            np.array([-1], np.int32), (decoding or Decoding(),),
        ),
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(numbers(0, 2**32), st.sampled_from([None, 3]), st.sampled_from([1, 2]))
def test_one_token_is_one_shot_to_the_nanosecond_with_contention_and_batches(seed, slots, batch):
    offers, services, rules = contended(np.random.default_rng(seed), 60, batch)
    rules = replace(rules, slots=slots, streams=(StreamRules(batch=1 if slots is None else batch),))
    one_shot, answered = replay(offers, services, rules), replay(of_one_token(offers), services, rules)
    assert np.array_equal(one_shot.start_ns, answered.start_ns)
    assert np.array_equal(one_shot.completion_ns, answered.completion_ns)
    for name, values in one_shot.parts:
        assert np.array_equal(values, dict(answered.parts)[name]), name
    assert answered.generated is not None
    assert np.array_equal(answered.generated.first_token_ns, answered.completion_ns)
    joules = answered.generated.energy_j.sum()  # of every batch its profile's, whoever shares it
    assert joules == pytest.approx(0.5 * (1.0 / one_shot.batch).sum())


@pytest.mark.parametrize("seed", range(5))
def test_contention_only_adds_stalls_and_what_they_keep_waiting(seed):
    offers, services, rules = contended(np.random.default_rng(seed), 80, 3)
    offers = of_one_token(offers, Decoding(((ANY_PAST, 0),)), tokens=4)
    tight = replay(offers, services, rules)
    loose = replay(offers, services, replace(rules, bandwidth_bytes_per_s=1e15))
    off = replay(offers, services, replace(rules, bandwidth_bytes_per_s=float("inf")))
    assert np.array_equal(loose.completion_ns, off.completion_ns)
    stalls = {name: values for name, values in tight.parts if name.startswith("stall")}
    assert sum(int(values.sum()) for values in stalls.values()) > 0
    assert all(int(values.min()) >= 0 for values in stalls.values())
    assert np.array_equal(summed(tight), tight.completion_ns - offers.arrival_ns)
    assert all(not values.any() for name, values in off.parts if name.startswith("stall"))


# ---------------------------------------------------------------- files


TRACE = "arrival_ns,input_tokens,output_tokens,prefix_blocks,cached_blocks\n"
GIVEN = """slots = 1
[[stream]]
kind = "generation"
arrivals = { kind = "trace", file = "t.csv" }
batch = { max = 2 }
service = { base_ns = 10, per_input_ns = 2, per_output_ns = 5 }
"""
PLANNED = """slots = 1
[[stream]]
kind = "generation"
arrivals = { kind = "trace", file = "t.csv" }
batch = { max = 2 }
plans = [{ length = 8, batch = 2, base_ns = 40 }, { length = 16, batch = 2, base_ns = 80 }]
"""
DECODE = """generation = { decode = [
    { past = 8, batch = 1, base_ns = 10 }, { past = 8, batch = 2, base_ns = 12 },
    { past = 32, batch = 1, base_ns = 20 }, { past = 32, batch = 2, base_ns = 24 },
] }
"""


def workload(folder: Path, text: str, trace: str):
    (folder / "t.csv").write_text(TRACE + trace, encoding="utf-8")
    path = folder / "w.toml"
    path.write_text("format = 1\n" + text, encoding="utf-8")
    return load_workload(path)


def parts(result, name: str) -> list[int]:
    return dict(result.requests.parts)[name].tolist()


@pytest.mark.parametrize("chunk", [0, 1, 7, 64])
def test_alone_on_its_slot_a_request_takes_as_long_as_one_shot_however_its_prompt_is_cut(tmp_path, chunk):
    apart = "0,100,3,0,0\n100000,13,1,0,0\n200000,64,9,0,0\n300000,1,2,0,0\n"
    rule = f"generation = {{ prefill_chunk_tokens = {chunk} }}"
    answered = serve(workload(tmp_path, GIVEN + rule, apart))
    one_shot = serve(workload(tmp_path, GIVEN.replace("generation", "one-shot"), apart))
    assert answered.completion_sha256 == one_shot.completion_sha256
    assert parts(answered, "base") == [10 + 200 + 15, 10 + 26 + 5, 10 + 128 + 45, 10 + 2 + 10]
    assert answered.tokens is not None
    assert answered.tokens.output_tokens == 15 and answered.tokens.tpot_mean_s == pytest.approx(5e-9)
    assert answered.tokens.ttft_ns[-1] == 10 + 200 + 5


def test_iterations_by_hand(tmp_path):
    """The first prefills until 40 (10 + 25), the second joins at 15's end, the third waits for a place."""
    result = serve(workload(tmp_path, GIVEN, "0,10,3,0,0\n20,5,2,0,0\n30,1,1,0,0\n"))
    # 0..35 prefill of the first. 35..65: the second prefills (25) and then the first decodes (5).
    # 65..75: both decode, and both are done. 75..92: the third.
    assert result.requests.start_ns.tolist() == [0, 35, 75]
    assert result.requests.completion_ns.tolist() == [75, 75, 92]
    assert parts(result, "base") == [35 + 5 + 10, 25 + 10, 17]
    assert parts(result, "interleaved") == [25, 5, 0]
    assert parts(result, "queue") == [0, 15, 45]
    told = serving_document(result)
    assert told["ttft"]["p50_ns"] == 45 and told["ttft"]["mean_s"] == pytest.approx((35 + 45 + 62) / 3e9)
    assert told["tpot"]["p50_ns"] == 10 and told["tpot"]["p99_ns"] == 20  # (75 - 65) / 1, (75 - 35) / 2
    assert told["output_tokens"] == 6 and told["batches"] == [
        {"size": 1, "count": 2},
        {"size": 2, "count": 2},
    ]
    assert told["parts"]["mean"]["interleaved"] == 10


def test_a_step_runs_on_the_shortest_plan_that_holds_the_longest_past(tmp_path):
    result = serve(workload(tmp_path, PLANNED + DECODE, "0,8,3,0,0\n0,12,2,0,0\n"))
    # Both prompts are prefilled in the first iteration, each on its plan: 40 + 80. Then both decode, at pasts 8 and 12:
    # 24 on the plan of 32. The first goes on alone with a past of 9: 20.
    assert result.requests.completion_ns.tolist() == [164, 144]
    assert parts(result, "interleaved") == [80, 40]
    assert parts(result, "base") == [40 + 24 * 8 // 32 + 20 * 9 // 32, 80 * 12 // 16 + 24 * 12 // 32]
    assert parts(result, "padding") == [18 + 15, 20 + 15]


def test_a_past_beyond_every_plan_falls_back_or_is_refused(tmp_path):
    long = "0,16,30,0,0\n"
    with pytest.raises(UsageError, match="past of 44 tokens, longer than the longest decode plan"):
        serve(workload(tmp_path, PLANNED + DECODE, long))
    result = serve(workload(tmp_path, PLANNED + DECODE + "fallback = { num = 3 }", long))
    beyond = [round(20 * past / 32) for past in range(33, 45)]
    assert parts(result, "fallback") == [2 * sum(beyond)]
    assert result.requests.completion_ns.tolist() == [80 + 17 * 20 + 3 * sum(beyond)]


def test_cached_blocks_are_not_computed_but_the_last_token_always_is(tmp_path):
    trace = "0,100,1,4,2\n1000,100,1,4,4\n2000,130,1,5,4\n"
    rule = "generation = { prefix_cache = true, prefix_block_tokens = 32 }"
    result = serve(workload(tmp_path, GIVEN + rule, trace))
    assert parts(result, "base") == [15 + 2 * 36, 15 + 2 * 1, 15 + 2 * 2]
    assert parts(serve(workload(tmp_path, GIVEN, trace)), "base") == [215, 215, 275]


def test_a_request_joins_only_when_its_cache_fits(tmp_path):
    trace = "0,10,5,0,0\n1,10,5,0,0\n"
    wide, narrow = (
        serve(
            workload(
                tmp_path,
                GIVEN + f"generation = {{ kv_capacity_bytes = {b}, kv_bytes_per_token = 2 }}",
                trace,
            )
        )
        for b in (60, 59)
    )
    assert wide.tokens is not None and narrow.tokens is not None
    assert wide.tokens.kv_peak_bytes == 60 and narrow.tokens.kv_peak_bytes == 30
    assert narrow.requests.start_ns[1] == narrow.requests.completion_ns[0]
    assert wide.requests.start_ns[1] < narrow.requests.start_ns[1]
    with pytest.raises(UsageError, match="needs 30 bytes of KV cache, and there are 29"):
        rule = "generation = { kv_capacity_bytes = 29, kv_bytes_per_token = 2 }"
        serve(workload(tmp_path, GIVEN + rule, trace))


def test_chunks_keep_the_gap_between_tokens_short(tmp_path):
    trace = "0,1,40,0,0\n10,400,2,0,0\n"
    whole = serve(workload(tmp_path, GIVEN, trace))
    cut = serve(workload(tmp_path, GIVEN + "generation = { prefill_chunk_tokens = 20 }", trace))
    # While the long prompt is prefilled whole the other waits 815 ns for one token; in chunks it gets one each 45 ns.
    assert cut.tokens is not None and whole.tokens is not None
    assert cut.tokens.tpot_ns[0] <= whole.tokens.tpot_ns[0]
    assert int(cut.requests.completion_ns.max()) == int(whole.requests.completion_ns.max())
    assert cut.requests.completion_ns[0] <= whole.requests.completion_ns[0]


def test_streams_do_not_share_a_slot_and_none_is_starved(tmp_path):
    text = "slots = 1\n"
    for name in ("a", "b"):
        text += f'[[stream]]\nname = "{name}"\nkind = "generation"\nbatch = {{ max = 8 }}\n'
        text += (
            'arrivals = { kind = "trace", file = "t.csv" }\nservice = { base_ns = 0, per_output_ns = 10 }\n'
        )
    rows = "".join(f"{t},1,9,a\n" for t in range(0, 4000, 40)) + "100,1,1,b\n"
    (tmp_path / "t.csv").write_text("arrival_ns,input_tokens,output_tokens,stream\n" + rows, encoding="utf-8")
    (tmp_path / "w.toml").write_text("format = 1\n" + text, encoding="utf-8")
    result = serve(load_workload(tmp_path / "w.toml"))
    other = result.requests.stream == 1
    before = result.requests.arrival_ns < 100
    # It starts when those who were there before it are answered; the younger of the other stream wait.
    assert result.requests.start_ns[other][0] == result.requests.completion_ns[before].max()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GIVEN + "generation = { decode = [{ batch = 2, base_ns = 1 }] }", "both say what a step takes"),
        (GIVEN.replace("max = 2", "max = 2, linger_s = 1.0"), "an iteration waits for nobody"),
        (PLANNED + DECODE.replace("batch = 2", "batch = 3").replace("batch = 3", "batch = 1", 1), "the same past"),
        (PLANNED + DECODE.replace("past = 8", "length = 8"), "a step has no length"),
        (PLANNED.replace("length = 8", "length = 8, past = 3"), "past is of generation.decode"),
        (GIVEN + "generation = { prefix_block_tokens = 4 }", "belongs to prefix_cache"),
        ('queue = { discipline = "deficit-round-robin", quantum_s = 1.0 }\n' + GIVEN, "beside generation"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path, text, said):
    with pytest.raises(FileError) as caught:
        workload(tmp_path, text, "0,1,1,0,0\n")
    assert said in caught.value.sentence()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLANNED, "nothing says how long a decode step takes"),
        (GIVEN + "generation = { kv_capacity_bytes = 9 }", "nothing says how many bytes a token takes"),
        (
            PLANNED
            + "fallback = { num = 2 }\n"
            + DECODE.replace("decode", "prefill_chunk_tokens = 17, decode"),
            "chunks of 17 tokens are longer",
        ),
    ],
)
def test_what_is_not_said_is_asked_for(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        serve(workload(tmp_path, text, "0,30,9,0,0\n" if "17" in text else "0,3,9,0,0\n"))


def test_a_decode_graph_says_steps_and_cache(tmp_path):
    """The sample decode graph: eight heads of 128 at 16 bits, keys and values: 4,096 bytes a token."""
    from model.cost.result import CostRequest
    from model.cost.simulate import simulate
    from model.graph.load import load_graph
    from model.hardware.loader import load_hardware
    from model.plan.edits import contraction_tails
    from model.serving.planned import profiles_of

    text = """slots = 1
[[stream]]
kind = "generation"
arrivals = { kind = "trace", file = "t.csv" }
batch = { max = 2 }
bind = { past = "past", batch = "batch" }
plans = [{ batch = 2, base_ns = 1000 }]
generation = { graph = "decode_kv", kv_capacity_bytes = 4e9, decode = [{ past = 255, batch = 1, plan = "unfused" }] }
"""
    loaded = workload(tmp_path, text, "0,100,3,0,0\n")
    graph = load_graph("swiglu_mlp", {})
    result = simulate(CostRequest(graph, load_hardware("edge-npu"), contraction_tails(graph), ""))
    own, plans = profiles_of(loaded, result, lambda dims: load_graph("swiglu_mlp", dims))
    assert len(plans) == 2  # one request a step, and two
    served = serve(loaded, own, plans=plans)
    alone = next(profile for file, profile in plans.items() if dict(file.bindings)["batch"] == 1)
    assert alone.past_bytes == 2 * 8 * 255 * 128 * 2
    assert served.tokens is not None and served.tokens.kv_peak_bytes == 103 * 4096
    assert int(served.requests.completion_ns[0]) == 1000 + 2 * alone.base_ns
    assert json.dumps(serving_document(served))


def test_a_higher_class_joins_first(tmp_path):
    text = 'slots = 1\nqueue = { discipline = "priority" }\n'
    for name, priority in (("a", 0), ("b", 1)):
        text += f'[[stream]]\nname = "{name}"\nkind = "generation"\npriority = {priority}\n'
        text += (
            'arrivals = { kind = "trace", file = "t.csv" }\nservice = { base_ns = 0, per_output_ns = 10 }\n'
        )
    rows = "0,1,2,a\n1,1,2,a\n2,1,2,b\n"
    (tmp_path / "t.csv").write_text("arrival_ns,input_tokens,output_tokens,stream\n" + rows, encoding="utf-8")
    (tmp_path / "w.toml").write_text("format = 1\n" + text, encoding="utf-8")
    assert serve(load_workload(tmp_path / "w.toml")).requests.start_ns.tolist() == [0, 40, 20]
