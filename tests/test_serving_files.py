"""Traces, profiles and workload files: what good ones become, how bad ones are refused, and the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from explorer.__main__ import main
from model.errors import FileError, UsageError
from model.serving.arrivals import Process, recorded, synthetic
from model.serving.profile import launch_ns, load_profile
from model.serving.serve import serve
from model.serving.traces import read_trace
from model.serving.workload import load_workload, packaged_workloads

AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 23:59:59.9799600,4808,10\r\n"
    b"2023-11-17 00:00:00.0319601,3180,8\r\n"
    b"2023-11-17 00:00:01.5,110,27"
)
OURS = "arrival_ns,input_tokens,output_tokens"
THEIRS = "TIMESTAMP,ContextTokens,GeneratedTokens"
MINIMAL = """format = 1
requests = 100
[[stream]]
arrivals = { kind = "poisson", rate_per_s = 10.0 }
service = { dist = "exponential", mean_s = 0.01 }
"""
CONTRACT_EXAMPLE = """
format = 1
seed = 0
requests = 12000
slots = 8
placement = { kind = "stealing", off_home_factor = 1.2 }
contention = { enabled = true, admission_limit = 4, shares = { code = 0.5 } }
throttle = { thermal = true, windows_ns = [], factor = [7, 5] }
queue = { discipline = "deficit-round-robin", quantum_s = 0.01 }
[[stream]]
name = "code"
kind = "generation"
arrivals = { kind = "mmpp", rates_per_s = [1.0, 9.0], dwells_s = [2.0, 1.0], input_tokens = 9 }
jitter = { kind = "gamma", cv = 0.05 }
batch = { max = 8 }
bind = { length = "seq", batch = "batch" }
plans = [{ length = 512, batch = 1, plan = "max.json" }]
fallback = { max_input_tokens = 4096, plan = "unfused" }
priority = 1
home_slot = 0
weight = 1.0
slo = { percentile = 0.95, response_s = 0.02 }
generation = { decode = [{ past = 2048, batch = 8, plan = "decode.json" }], kv_capacity_bytes = 4.0e9, prefix_cache = false, prefill_chunk_tokens = 0 }
[[stream]]
arrivals = { kind = "closed", clients = 3 }
"""  # noqa: E501
PROFILE = {
    "format": 1,
    "repeat": 2,
    "slots": 4,
    "bandwidth_bytes_per_s": 68e9,
    "phases": [["launch", 5000, 0, 0, 0], ["steady", 20000, 4096, 1024, 512]],
}


def written(folder: Path, text: str, name: str = "w.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# ---------------------------------------------------------------- traces


def test_azure_has_seven_digits_and_windows_line_ends(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_bytes(AZURE)
    trace = read_trace(path, "azure")
    assert trace.arrival_ns.tolist() == [0, 52_000_100, 1_520_040_000]
    assert trace.input_tokens.tolist() == [4808, 3180, 110]
    assert trace.output_tokens.tolist() == [10, 8, 27]


@pytest.mark.parametrize(
    ("form", "text", "times", "said"),
    [
        ("mooncake", '{"timestamp": 27, "input_length": 5, "output_length": 2, "hash_ids": [0]}\n'
         '{"timestamp": 27.5, "input_length": 6, "output_length": 3, "hash_ids": []}\n', [0, 500_000], ""),
        ("burstgpt", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
         "5,X,47,18,65,Y\n6.25,X,47,0,47,Y\n7.1,X,3,1,4,Y\n", [0, 2_100_000_000], "1 failed requests"),
        ("burstgpt", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
         "Log Type\n5.0,1,0.5,X,47,18.0,65,Y\n", [0], ""),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,3,4\n0.141377,5,6\n",
         [0, 41_377_000], ""),
        ("tilewright", "arrival_ns,input_tokens,output_tokens,prefix_blocks,cached_blocks,stream\n"
         "7,1,2,4,3,0\n5,3,4,0,0,0\n", [5, 7], "has been sorted"),
        ("azure", "\ufeff" + THEIRS + "\n2024-05-10 00:00:00.009930+00:00,5,1\n2024-05-10T02:00:01+02:00,6,1\n",
         [0, 990_070_000], ""),
        ("azure", '"TIMESTAMP","ContextTokens","GeneratedTokens","Model"\r\n2023-12-31 23:59:59.9999999,1,1,"a, b"\r\n'
         "\r\n  \r\n2024-01-01 00:00:00Z,1,1,c", [0, 100], ""),
        ("tilewright", OURS + ",size\n0,1,1,2\n", [0], "columns size are not used"),
    ],
)  # fmt: skip
def test_formats(tmp_path, form, text, times, said):
    trace = read_trace(written(tmp_path, text, "trace"), form)
    assert trace.arrival_ns.tolist() == times
    assert said in " ".join(trace.notes)


@pytest.mark.shared
def test_both_forms_of_the_azure_trace_are_the_same_requests(shared):
    raw = read_trace(shared / "traces" / "azure_llm_2023_code.raw.csv", "azure")
    ours = read_trace(shared / "traces" / "azure_llm_2023_code.csv", "tilewright")
    for name in ("arrival_ns", "input_tokens", "output_tokens"):
        assert np.array_equal(getattr(raw, name), getattr(ours, name))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "form", "count"),
    [("mooncake.jsonl", "mooncake", 3), ("burstgpt6.csv", "burstgpt", 2),
     ("burstgpt8.csv", "burstgpt", 2), ("vidur.csv", "vidur", 3)],
)  # fmt: skip
def test_published_formats(shared, name, form, count):
    assert read_trace(shared / "traces" / "formats" / name, form).arrival_ns.size == count


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("tilewright", "", "has no first line that names arrival_ns"),
        ("tilewright", OURS + ",input_tokens\n1,2,3,4\n", "trace.csv:1: input_tokens: two columns"),
        ("tilewright", OURS + ",prefix_blocks,cached_blocks\n1,2,3,2,3\n", "trace.csv:2: cached_blocks: 3 blocks"),
        ("tilewright", '{"timestamp": 1}\n', "It looks like format = 'mooncake'"),
        ("mooncake", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,1,1\n", "It looks like format = 'vidur'"),
        ("burstgpt", "Timestamp,Request tokens,Response tokens\n1,1,0\n2,1,0\n", "but 2 that failed"),
        ("azure", THEIRS + "\n2023-02-29 00:00:00,1,1\n", "It writes 2023-11-16 18:17:03.9799600"),
        ("tilewright", OURS + "\n", "holds no requests"),
        ("tilewright", OURS + "\n1.5,2,3\n", "trace.csv:2: arrival_ns: '1.5'"),
        ("tilewright", OURS + "\n1,-2,3\n", "trace.csv:2: input_tokens: '-2'"),
        ("tilewright", OURS + "\n1,2,3\n4,5\n", "trace.csv:3: has 2 columns"),
        ("tilewright", OURS + ",size_factor\n1,2,3,-1.5\n", "size_factor: '-1.5' is not a factor above 0"),
        ("tilewright", OURS + ",cached_blocks\n1,2,3,x\n", "trace.csv:2: cached_blocks: 'x' is not a count"),
        ("tilewright", OURS + "\n9999999999999999999,2,3\n", "is not a time"),
        ("azure", THEIRS + "\n2023-13-01 00:00:00.1,1,1\n", "trace.csv:2: TIMESTAMP"),
        ("tilewright", THEIRS + "\n", "It looks like format = 'azure'"),
        ("mooncake", "[1]\n", "trace.csv:1: is not one JSON object"),
        ("mooncake", '{"timestamp": 1, "input_length": 1}\n', "trace.csv:1: output_length"),
        ("mooncake", '{"timestamp": "x", "input_length": 1, "output_length": 1}\n', "trace.csv:1: timestamp"),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,1\n", "trace.csv:2: arrived_at: 'nan'"),
    ],
)  # fmt: skip
def test_bad_traces_name_line_and_column(tmp_path, form, text, said):
    with pytest.raises(FileError) as caught:
        read_trace(written(tmp_path, text, "trace.csv"), form)
    assert said in caught.value.sentence() and "trace.csv" in caught.value.sentence()


def test_blocks_are_cached_by_requests_that_came_before_wherever_they_stand_in_the_file(tmp_path):
    rows = [(9, [7, 8, 1]), (2, [7, 8]), (2, [7, 8]), (5, [7, 2**70])]
    text = "".join(
        f'{{"timestamp": {at}, "input_length": 9, "output_length": 1, "hash_ids": {blocks}}}\n'
        for at, blocks in rows
    )
    trace = read_trace(written(tmp_path, text, "trace"), "mooncake")
    assert trace.arrival_ns.tolist() == [0, 0, 3_000_000, 7_000_000]
    assert trace.prefix_blocks.tolist() == [2, 2, 2, 3]
    assert trace.cached_blocks.tolist() == [0, 2, 1, 2]


def test_a_packed_trace_is_named_as_such(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(AZURE))
    with pytest.raises(FileError, match="is compressed"):
        read_trace(path, "azure")


def test_rate_window_and_count(tmp_path):
    text = "arrival_ns,input_tokens,output_tokens\n" + "".join(f"{k * 10**9},{k},1\n" for k in range(11))
    trace = read_trace(written(tmp_path, text, "t"), "tilewright")
    scaled = recorded(trace, "t", rate_per_s=110.0)
    assert scaled.arrival_ns[-1] == 11 * 10**9 // 110
    assert (np.diff(scaled.arrival_ns) == 10**7).all()
    # A third does not exist in binary or in decimals; time is floored, exactly.
    assert recorded(trace, "t", rate_per_s=0.3).arrival_ns.tolist()[:2] == [0, 11 * 10**9 * 10 // 30]
    cut = recorded(trace, "t", window_s=(2.0, 5.0))
    assert cut.arrival_ns.tolist() == [0, 10**9, 2 * 10**9] and cut.input_tokens.tolist() == [2, 3, 4]
    assert recorded(trace, "t", requests=4).arrival_ns.size == 4
    with pytest.raises(UsageError, match="no request of the trace lies in the window"):
        recorded(trace, "t", window_s=(50.0, 60.0))
    with pytest.raises(UsageError, match="all requests come at once"):
        recorded(trace, "t", requests=1, rate_per_s=1.0)


def test_synthetic_arrivals_are_the_stated_draws():
    poisson = synthetic(Process("poisson", (640.0,)), 5, requests=1000).arrival_ns
    gaps = np.random.default_rng(5).exponential(1.0 / 640.0, 1000)
    assert np.array_equal(poisson, np.rint(np.cumsum(gaps) * 1e9).astype(np.int64))
    window = synthetic(Process("poisson", (640.0,)), 5, window_s=(0.1, 0.9)).arrival_ns
    inside = poisson[(poisson >= 10**8) & (poisson < 9 * 10**8)]
    assert np.array_equal(window, inside - 10**8)
    assert synthetic(Process("constant", (3.0,)), 0, requests=4).arrival_ns.tolist() == [
        0,
        333333333,
        666666666,
        10**9,
    ]
    with pytest.raises(UsageError, match="no end of its own"):
        synthetic(Process("poisson", (1.0,)), 0)
    with pytest.raises(UsageError, match="more than this version replays"):
        synthetic(Process("poisson", (1.0,)), 0, requests=10**9)


# ---------------------------------------------------------------- profiles


def test_profile(tmp_path):
    profile = load_profile(written(tmp_path, json.dumps(PROFILE), "p.json"))
    assert (profile.base_ns, profile.bytes, profile.slots) == (50_000, 8192, 4)
    assert launch_ns(profile) == 10_000
    with pytest.raises(ValueError, match="read-only"):
        profile.phases["base_ns"][0] = 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phases": []}, "phases"),
        ({"phases": [["launch", 1, 0, 0]]}, "phases[0][4]: is missing"),
        ({"phases": [["lunch", 1, 0, 0, 0]]}, "'lunch' is none of launch, first"),
        ({"phases": [["steady", 1, 10, 6, 5]]}, "spill 6 and refetch 5 lie within the 10 bytes"),
        ({"phases": [["steady", True, 10, 6, 5]]}, "phases[0][1]"),
        ({"repeat": 0}, "repeat: should be greater than 0"),
        ({"speed": 1}, "speed: unknown key"),
    ],
)
def test_bad_profiles(tmp_path, change, said):
    with pytest.raises(FileError) as caught:
        load_profile(written(tmp_path, json.dumps(PROFILE | change), "p.json"))
    assert said in caught.value.sentence()


def test_jitter_leaves_launches_alone(tmp_path):
    written(tmp_path, json.dumps(PROFILE), "p.json")
    text = 'format = 1\nseed = 4\nrequests = 1000\nslots = "unlimited"\n[[stream]]\nprofile = "p.json"\n'
    text += 'arrivals = { kind = "constant", rate_per_s = 1.0 }\njitter = { cv = 0.2 }\n'
    base = dict(serve(load_workload(written(tmp_path, text))).requests.parts)["base"]
    factor = np.random.default_rng(1004).gamma(25.0, 0.04, 1000)
    assert np.allclose(base, 10_000 + 40_000 * factor, atol=0.5)


# ---------------------------------------------------------------- workload files


def test_every_key_of_the_contract_is_known_and_what_is_not_simulated_is_refused_by_name(tmp_path):
    with pytest.raises(FileError) as caught:
        load_workload(written(tmp_path, CONTRACT_EXAMPLE))
    text = caught.value.sentence()
    assert "not simulated in this version" in text and "unknown key" not in text
    for part in (
        "queue.discipline = 'deficit-round-robin' beside generation",
        "other streams beside closed arrivals",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("format = 1", "format = 2"), "format: should be 1, not 2"),
        (("requests = 100", "requests = 0"), "requests: should be greater than 0"),
        (("requests = 100", "request = 100"), "request: unknown key. Did you mean requests?"),
        (("requests = 100", ""), "has no end of its own. Set requests or window_s"),
        (("requests = 100", "requests = 1\nwindow_s = [0, 1]"), "requests and window_s exclude each other"),
        (("requests = 100", "window_s = [2, 1]"), "the window [2, 1) is empty"),
        (("requests = 100", "requests = 1\nslots = 0"), "slots: should be a whole number from 1 to 65,536"),
        (("requests = 100", "requests = 1\nslots = 'many'"), "'unlimited', not 'many'"),
        (("requests = 100", "requests = 1\nthrottle = { windows_ns = [[5, 5]] }"), "[5, 5) is empty"),
        (("rate_per_s = 10.0", "rate_per_s = 0"), "stream[0].arrivals.rate_per_s: should be at least"),
        (("rate_per_s = 10.0", "rate_per_s = 1e-9"), "rate_per_s: should be at least 0.000001"),
        (("rate_per_s = 10.0", "rate_per_s = 1e300"), "rate_per_s: should be at most 1000000000"),
        (("requests = 100", "window_s = [0, 1e300]"), "window_s[1]: should be at most 1100000000"),
        (("requests = 100", "requests = 9007199254740992"), "9.0072e+15 requests at 10/s are more than"),
        (("[[stream]]", "[[stream]]\njitter = { cv = 1e-300 }"), "jitter.cv: should be 0 or from 0.001 to 10"),
        (('kind = "poisson"', 'kind = "poison"'), "stream[0].arrivals.kind: should be 'trace'"),
        (('kind = "poisson", rate_per_s = 10.0', 'kind = "trace", file = "no.csv"'), "the file 'no.csv'"),
        ((", mean_s = 0.01", ""), "stream[0].service: needs either base_ns"),
        (('dist = "exponential", mean_s = 0.01', "base_ns = 5, per_input_ns = 1"), "arrivals have none"),
        (("[[stream]]", "[[stream]]\nprofile = 'x'"), "plans, profile and service exclude each other"),
        (("[[stream]]", "[[stream]]\nfallback = { max_input_tokens = 1 }"), "needs exactly one of num"),
        (("[[stream]]", "[[stream]]\nfallback = { max_input_tokens = 1, num = 2 }"), "arrivals have none"),
        (("[[stream]]", "[[stream]]\nslo = { percentile = 95, response_s = 1 }"), "slo.percentile"),
    ],
)  # fmt: skip
def test_one_fault_one_sentence(tmp_path, change, said):
    with pytest.raises(FileError) as caught:
        load_workload(written(tmp_path, MINIMAL.replace(*change, 1)))
    assert said in caught.value.sentence() and "w.toml" in caught.value.sentence()


def test_all_that_contradicts_itself_comes_at_once(tmp_path):
    """Of one table every rule that is broken, and of all streams every file that is missing."""
    path = tmp_path / "workload.toml"
    path.write_text(
        """format = 1
[[stream]]
name = "code"
kind = "generation"
arrivals = { kind = "constant", rate_per_s = 1.0 }
batch = { max = 2, linger_s = 1.0 }
service = { dist = "two-point", mean_s = 1.0, per_input_ns = 3, cv = 2.0 }
plans = [{ length = 4, base_ns = 1 }, { length = 4, base_ns = 2 }]
""",
        encoding="utf-8",
    )
    with pytest.raises(FileError) as caught:
        load_workload(path)
    for fault in (
        "stream[0].service (code): dist and mean_s take no per_input_ns",
        "stream[0].service (code): cv belongs to lognormal",
        "stream[0].service (code): slow_share and slow_factor belong to two-point",
    ):
        assert fault in caught.value.sentence()
    path.write_text(
        path.read_text().replace(
            '"two-point", mean_s = 1.0, per_input_ns = 3, cv = 2.0', '"deterministic", mean_s = 1.0'
        )
    )
    with pytest.raises(FileError) as caught:
        load_workload(path)
    for fault in (
        "stream[0] (code): plans, profile and service exclude each other",
        "drawn service times have no batch",
        "two of them have the same length and batch",
        "times that are drawn do not say what a token takes",
        "batch.linger_s: an iteration waits for nobody",
    ):
        assert fault in caught.value.sentence()
    stream = '[[stream]]\nname = "{0}"\narrivals = {{ kind = "trace", file = "{0}.csv" }}\n'
    path.write_text("format = 1\n" + stream.format("one") + stream.format("two"), encoding="utf-8")
    with pytest.raises(
        FileError, match=r"stream\[0\]\.arrivals\.file.*stream\[1\]\.arrivals\.file.*Put it beside"
    ):
        load_workload(path)


def test_windows_that_touch_are_one(tmp_path):
    text = "throttle = { windows_ns = [[50, 60], [10, 30], [20, 50]], factor = [3, 2] }\n" + MINIMAL
    assert load_workload(written(tmp_path, text)).throttle.windows_ns == ((10, 60),)
    text = text.replace("[3, 2]", "[2, 2]")
    assert load_workload(written(tmp_path, text)).throttle.windows_ns == ()


def test_packaged_workloads_load_and_ask_for_a_plan():
    traps = ("batch-for-throughput", "dynamic-always", "static-starves")
    for_a_plan = ("azure-code", "poisson", "mini-case", "mini-case-azure")
    own_times = ("code-answers", "warm-afternoon")
    assert set(packaged_workloads()) == {*for_a_plan, *traps, *own_times}
    for name in for_a_plan:
        workload = load_workload(name)
        assert workload.streams[0].arrivals.arrival_ns.size > 8000
        with pytest.raises(UsageError, match="nothing says how long a request takes"):
            serve(workload)
    with pytest.raises(FileError, match="Did you mean azure-code"):
        load_workload("azure-cod")


def test_times_beyond_int64_are_refused(tmp_path):
    text = "format = 1\n[[stream]]\nservice = { base_ns = 1, per_input_ns = 4611686018427387904 }\n"
    text += 'arrivals = { kind = "trace", file = "azure_llm_2023_code.csv" }\n'
    with pytest.raises(UsageError, match="146 years"):
        serve(load_workload(written(tmp_path, text)))


# ---------------------------------------------------------------- the command


def test_serve_command(tmp_path, capsys):
    path = written(
        tmp_path, MINIMAL.replace("[[stream]]", "[[stream]]\nslo = { percentile = 0.9, response_s = 1 }")
    )
    assert main(["serve", "--workload", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    serving = document["serving"]
    assert document["inputs"]["workload"]["digest"].startswith("sha256:")
    assert serving["slo_attainment"] == 1.0 and serving["requests"] == 100 and not serving["unstable"]
    assert serving["p95_s"] == pytest.approx(serving["p95_ns"] * 1e-9)
    assert "energy_j_per_request" not in serving and set(serving["shapley"]["p95_s"]) == {"queueing"}
    assert main(["serve", "--workload", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "objective 0.9 within 1 s: met, 100.00% are" in shown and "p99.9" in shown


def test_unstable_command_prints_no_percentiles(tmp_path, capsys):
    path = written(tmp_path, MINIMAL.replace("mean_s = 0.01", "mean_s = 1.0"))
    assert main(["serve", "--workload", str(path), "--json"]) == 0
    serving = json.loads(capsys.readouterr().out)["serving"]
    assert serving["unstable"] and not {"p50_s", "p95_ns", "mean_s", "parts"} & set(serving)
    assert main(["serve", "--workload", str(path)]) == 0
    assert "unstable: rho = 10" in capsys.readouterr().out


def test_profile_command(tmp_path, capsys):
    profile = written(tmp_path, json.dumps(PROFILE), "p.json")
    assert main(["serve", "--profile", str(profile), "--workload", "azure-code", "--json"]) == 0
    serving = json.loads(capsys.readouterr().out)["serving"]
    assert len(serving["slots"]) == 4 and serving["recorded"]
    assert any("token counts are not used" in note for note in serving["notes"])
    own = written(tmp_path, MINIMAL)
    assert main(["serve", "--profile", str(profile), "--workload", str(own)]) == 2
    assert "has service times of its own" in capsys.readouterr().err
    assert main(["serve", "--workload", "azure-code"]) == 2
    assert "Give a GRAPH or --profile FILE" in capsys.readouterr().err
