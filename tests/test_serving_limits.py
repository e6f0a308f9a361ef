"""What limits a tail: causes by hand, ranked, with the load of what is short; and what the documents say of it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from model.serving.document import serving_document, serving_text
from model.serving.drivers import Blame
from model.serving.exact import replay
from model.serving.generation_run import _PARTS
from model.serving.limits import CAUSES, SHARED_DRAM, cause_of, judged_percentile, limits
from model.serving.outcome import outcome
from model.serving.result import WITHIN, ServingResult
from model.serving.rules import PARTS
from model.serving.serve import prepare, serve
from model.serving.workload import load_workload

TWO_AT_ONCE = """format = 1
slots = 2
[[stream]]
arrivals = { kind = "trace", file = "t.csv", format = "tilewright" }
profile = "p.json"
slo = { percentile = 0.99, response_s = 0.002 }
"""


@pytest.fixture
def two(tmp_path):
    """Two requests at once on two slots, each asking for 0.8 of the bandwidth for half a millisecond."""
    asks = {
        "format": 1,
        "slots": 2,
        "bandwidth_bytes_per_s": 1e9,
        "phases": [["steady", 500000, 400000, 0, 0]],
    }
    (tmp_path / "p.json").write_text(json.dumps(asks), encoding="utf-8")
    (tmp_path / "t.csv").write_text("arrival_ns,input_tokens,output_tokens\n0,1,1\n0,1,1\n", encoding="utf-8")
    (tmp_path / "w.toml").write_text(TWO_AT_ONCE, encoding="utf-8")
    return load_workload(str(tmp_path / "w.toml"))


def test_every_part_has_one_cause():
    for part in {*PARTS, *_PARTS}:
        assert cause_of(part) in CAUSES
    told = [part for parts in CAUSES.values() for part in parts]
    assert len(told) == len(set(told)) and not set(told) & set(WITHIN)


def test_shared_dram_by_hand(two):
    result = serve(two)
    # Together they ask for 1.6 times the bandwidth: 0.8 ms in place of 0.5, all of it busy.
    assert result.p99_ns == 800_000
    assert result.bus.all_at_once == pytest.approx(1.6) and result.bus.mean_load == pytest.approx(1.0)
    assert judged_percentile(result) == "p99"
    service, shared = limits(result, "p99")
    assert (service.name, service.ns, service.share) == ("service", 500_000, 0.625)
    assert (shared.name, shared.ns, shared.largest) == (SHARED_DRAM, 300_000, "stall_steady")
    assert [figure.value for figure in shared.load] == pytest.approx([1.6, 1.0])
    assert shared.driver_ns is None and "fewer DRAM bytes" in shared.lever
    (alone,) = limits(serve(replace(two, contention=False)), "p99")
    assert alone.name == "service" and serve(replace(two, contention=False)).bus is None


def test_a_driver_stands_beside_its_cause_and_a_lever_follows_the_largest_part(two):
    result = serve(two)
    blame = Blame(("contention",), (), (("p99", (("contention", Fraction(-7)),)),))
    assert limits(result, "p99", blame)[1].driver_ns == -7.0
    assert limits(result, "p95", blame)[1].driver_ns is None  # of another percentile
    spilling = replace(result, parts=(("p99", (("base", 5), ("stall_spill", 9), ("stall_steady", 1))),))
    first, second = limits(spilling, "p99")
    assert (first.name, first.ns, first.largest) == (SHARED_DRAM, 10, "stall_spill")
    assert first.lever.startswith("spill less") and second.name == "service"
    idle = replace(result, parts=(("p99", (("queue", 8), ("queue_imbalance", 6), ("base", 2))),))
    assert "stealing" in limits(idle, "p99")[0].lever and limits(idle, "p99")[0].share == 0.8
    assert limits(result, "p50.5") == ()


def test_a_full_cache_follows_its_queue():
    result = serve(load_workload("code-answers"))
    names = [each.name for each in limits(result, "p95")]
    assert names.index("KV cache") == names.index("queue") + 1
    cache = next(each for each in limits(result, "p95") if each.name == "KV cache")
    assert cache.ns is None and cache.load[0].value == result.tokens.kv_full_share > 0.0
    told = sum(each.ns for each in limits(result, "p95") if each.ns is not None)
    assert told == result.p95_ns
    roomy = replace(result, tokens=replace(result.tokens, kv_full_share=0.0))
    assert "KV cache" not in [each.name for each in limits(roomy, "p95")]


def test_what_distributions_are_of_is_ranked_and_has_its_own_intervals():
    result = serve(load_workload("code-answers"))
    ranked = dict(result.ranked_ns)
    assert list(ranked) == ["response", "ttft", "tpot"]
    for name, values in (("ttft", result.tokens.ttft_ns), ("tpot", result.tokens.tpot_ns)):
        times = ranked[name]
        assert (np.diff(times) >= 0).all() and not times.flags.writeable
        assert times[int(np.ceil(0.95 * times.size)) - 1] == values[1]
    assert result.token_too_few == ()  # a trace is exact for itself


def test_times_of_tokens_have_intervals_or_too_few_requests(tmp_path):
    def result_of(requests: int) -> ServingResult:
        (tmp_path / "w.toml").write_text(
            f"format = 1\nrequests = {requests}\nslots = 1\n[[stream]]\nkind = 'generation'\n"
            "arrivals = { kind = 'poisson', rate_per_s = 20.0, input_tokens = 10, output_tokens = 3 }\n"
            "service = { base_ns = 5_000_000 }\n[stream.generation]\n"
            "decode = [{ past = 64, batch = 1, base_ns = 1_000_000 }]\n",
            encoding="utf-8",
        )
        return serve(load_workload(str(tmp_path / "w.toml")))

    many = result_of(4000)
    low, high = dict(many.token_interval_s)["ttft.p95"]
    assert low < many.tokens.ttft_ns[1] * 1e-9 < high and "ttft.p95" not in many.token_too_few
    few = result_of(60)
    assert "ttft.p99" in few.token_too_few and "ttft.p99" not in dict(few.token_interval_s)


def test_documents_say_what_limits(two):
    result = serve(two)
    (judged, told), *_ = serving_document(result)["limits"].items()
    assert judged == "p99" and [each["name"] for each in told] == ["service", SHARED_DRAM]
    assert sum(each["ns"] for each in told) == serving_document(result)["p99_ns"]
    assert "what limits p99" in serving_text(result) and "160.0% of its bandwidth" in serving_text(result)
    prepared = prepare(two, (), None, None, {})
    setting = prepared.setting
    again = outcome(prepared, replay(setting.offers, setting.services, setting.rules), first_estimate=True)
    assert again.token_interval_s == () and again.bus == result.bus
