"""Clients who wait for their answer: against closed networks of theory, by hand, and by what must always hold."""

from __future__ import annotations

import json
from dataclasses import replace
from math import comb, factorial
from pathlib import Path

import numpy as np
import pytest

from model.errors import FileError, UsageError
from model.serving.exact import answered, replay
from model.serving.rules import Clients
from model.serving.serve import prepare, serve
from model.serving.workload import load_workload

CLOSED = """format = 1
requests = 200000
slots = 2
[[stream]]
arrivals = { kind = "closed", clients = 6, think_s = 0.04 }
service = { dist = "exponential", mean_s = 0.01 }
"""
GIVEN = 'service = { dist = "exponential", mean_s = 0.01 }'
ARRIVALS = 'arrivals = { kind = "closed", clients = 6, think_s = 0.04 }'


def profile(*phases: list[object], **more: object) -> str:
    return json.dumps({"format": 1, "slots": 2, "bandwidth_bytes_per_s": 1e9, "phases": phases} | more)


def loaded(folder: Path, text: str, **profiles: str):
    for name, content in profiles.items():
        (folder / f"{name}.json").write_text(content, encoding="utf-8")
    path = folder / "w.toml"
    path.write_text(text, encoding="utf-8")
    return load_workload(path)


def machine_repair(clients: int, slots: int, service_s: float, think_s: float) -> float:
    """Answers a second of M/M/c//N: p[k] ~ C(N, k) (s/z)**k, beyond c times k!/(c! c**(k-c)); mean of N - k over z."""
    ratio = service_s / think_s
    weights = [
        comb(clients, k)
        * ratio**k
        * (1.0 if k <= slots else factorial(k) / (factorial(slots) * slots ** (k - slots)))
        for k in range(clients + 1)
    ]
    thinking = sum(w * (clients - k) for k, w in enumerate(weights)) / sum(weights)
    return thinking / think_s


def test_it_is_the_machine_repair_model(tmp_path):
    """Responses follow from N = X (R + Z)."""
    throughput = machine_repair(6, 2, 0.01, 0.04)
    result = serve(loaded(tmp_path, CLOSED))
    assert result.throughput_rps == pytest.approx(throughput, rel=0.01)
    mean_s = result.sum_response_ns / 200_000 * 1e-9
    assert mean_s == pytest.approx(6 / throughput - 0.04, rel=0.01)
    assert not result.unstable and result.utilisation == pytest.approx(throughput * 0.01 / 2, rel=0.01)


def test_under_contention_the_service_law_does_not_matter(tmp_path):
    """Six slots that ask for half of the bandwidth each share it as a processor does: min(1, 2/k). A closed network of
    such a station and of thinking clients has a product form (Baskett, Chandy, Muntz and Palacios 1975), so that equal
    services have the throughput of exponential ones on two servers.
    """
    text = CLOSED.replace(GIVEN, 'profile = "p.json"').replace("slots = 2", "slots = 6")
    half = profile(["steady", 10_000_000, 5_000_000, 0, 0])
    result = serve(loaded(tmp_path, text.replace("200000", "60000"), p=half))
    assert result.throughput_rps == pytest.approx(machine_repair(6, 2, 0.01, 0.04), rel=0.01)
    stalled = dict(result.requests.parts)["stall_steady"]
    assert stalled.min() == 0 and stalled.max() > 10_000_000  # alone, and three or more together
    free = text.replace("slots = 6", "slots = 6\ncontention = { enabled = false }").replace("200000", "60000")
    assert serve(loaded(tmp_path, free, p=half)).throughput_rps == pytest.approx(6 / 0.05, rel=0.01)


def test_clients_that_do_not_think_are_answered_in_turn(tmp_path):
    text = CLOSED.replace("200000", "9").replace("think_s = 0.04", "think = 'constant', think_s = 1e-8")
    text = text.replace(GIVEN, "service = { base_ns = 100 }").replace("clients = 6", "clients = 3")
    result = serve(loaded(tmp_path, text))
    # Three ask at 10; two are served at once, the third waits for 100; who is answered asks again 10 later.
    assert result.requests.arrival_ns.tolist() == [10, 10, 10, 120, 120, 220, 230, 320, 330]
    assert result.requests.completion_ns.tolist() == [110, 110, 210, 220, 310, 320, 410, 420, 510]


def test_two_clients_stall_each_other_and_ask_again(tmp_path):
    """Each asks for 0.8 of the bandwidth for 500 ns: 625 alone in 500, 800 together. The second asks as late as it may
    without meeting the first one's second request.
    """
    text = CLOSED.replace(GIVEN, 'profile = "p.json"').replace("200000", "4")
    text = text.replace("clients = 6, think_s = 0.04", "clients = 2, think = 'constant', think_s = 1e-7")
    result = serve(loaded(tmp_path, text, p=profile(["steady", 500, 400, 0, 0])))
    assert result.requests.arrival_ns.tolist() == [100, 100, 1000, 1000]
    assert result.requests.completion_ns.tolist() == [900, 900, 1800, 1800]
    assert dict(result.requests.parts)["stall_steady"].tolist() == [300] * 4


PLAYED = 'profile = "p.json"\njitter = { kind = "gamma", cv = 0.3 }'
SETTINGS = {
    "contention": (PLAYED, ""),
    "batches": (
        'plans = [{ batch = 1, profile = "p.json" }, { batch = 3, profile = "p.json" }]\n'
        "batch = { max = 3, linger_s = 0.004 }",
        "",
    ),
    "admission": (PLAYED, "contention = { admission_limit = 1 }"),
    "home-first": (PLAYED, 'placement = { kind = "home-first", off_home_factor = 1.5 }'),
    "round-robin": (PLAYED, 'placement = { kind = "round-robin" }'),
    "stealing": (PLAYED, 'placement = { kind = "stealing" }'),
    "static": (PLAYED + "\nhome_slot = 1", 'placement = { kind = "static" }'),
    "unlimited": (PLAYED, ""),
    "windows": (PLAYED, "throttle = { windows_ns = [[100_000_000, 400_000_000]], factor = [7, 5] }"),
    "heat": (
        "service = { base_ns = 400_000_000 }",
        'throttle = { thermal = true, hardware = "edge-npu", ambient_c = 80.0 }',
    ),
    "tokens": (
        "service = { base_ns = 1_000_000, per_input_ns = 20_000, per_output_ns = 900_000 }\nbatch = { max = 3 }\n"
        'kind = "generation"\ngeneration = { kv_capacity_bytes = 300, kv_bytes_per_token = 1 }',
        "",
    ),
}


@pytest.mark.parametrize("think_s", [0.0, 0.02])
@pytest.mark.parametrize("name", SETTINGS)
def test_who_is_answered_thinks_and_asks_again_under_every_rule(tmp_path, name, think_s):
    """The requests that came are the first of all that clients would send; and a replay of them is that run."""
    stream, rule = SETTINGS[name]
    slots = '"unlimited"' if name == "unlimited" else "2"
    text = (
        CLOSED.replace(GIVEN, stream)
        .replace("200000", "600")
        .replace("slots = 2", f"slots = {slots}\n{rule}")
    )
    tokens = ", input_tokens = 90, output_tokens = 7" if name == "tokens" else ""
    text = text.replace("think_s = 0.04", f"think_s = {think_s}{tokens}")
    bytes_too = profile(["launch", 50_000, 0, 0, 0], ["steady", 9_000_000, 7_000_000, 900, 80], repeat=2)
    workload = loaded(tmp_path, text, p=bytes_too)
    prepared = prepare(workload)
    offers, services, rules = prepared.table.offers, prepared.table.services, prepared.rules
    done = replay(offers, services, rules)
    think = workload.streams[0].loop.draw(workload.seed, 600)
    asked = np.sort(np.concatenate([think[:6], done.completion_ns + think[6:]]))
    assert asked[:600].tolist() == offers.arrival_ns.tolist()
    assert (
        int(max(np.bincount(np.searchsorted(np.sort(done.completion_ns), offers.arrival_ns, side="right"))))
        <= 6
    )
    again = answered(
        replace(offers, arrival_ns=np.zeros_like(offers.arrival_ns)), services, rules, Clients(6, think)
    )
    assert again.tolist() == offers.arrival_ns.tolist()


def test_more_clients_than_requests_and_one_client(tmp_path):
    text = CLOSED.replace("200000", "4").replace(GIVEN, "service = { base_ns = 100 }")
    many = serve(loaded(tmp_path, text.replace("clients = 6", "clients = 1000")))
    first = loaded(tmp_path, text.replace("clients = 6", "clients = 1000")).streams[0].loop.draw(0, 4)[:1000]
    assert many.requests.arrival_ns.tolist() == np.sort(first)[:4].tolist()
    one = serve(loaded(tmp_path, text.replace("clients = 6", "clients = 1")))
    assert dict(one.requests.parts)["queue"].tolist() == [0] * 4
    assert (one.requests.arrival_ns[1:] > one.requests.completion_ns[:-1]).all()


def test_it_has_no_rate_to_set_and_no_other_streams(tmp_path):
    with pytest.raises(UsageError, match="a closed loop has no rate to set"):
        serve(loaded(tmp_path, CLOSED), rate_per_s=5.0)
    with pytest.raises(FileError, match="other streams beside closed arrivals"):
        loaded(tmp_path, CLOSED + CLOSED[CLOSED.index("[[stream]]") :])
