"""Traps of serving: packaged workloads, each beside a control that lacks the mechanism. Figures: docs/serving.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.serving.questions import answers
from model.serving.result import ServingResult
from model.serving.serve import prepare, serve
from model.serving.streams import Workload
from model.serving.workload import load_workload


def changed(name: str, folder: Path, *changes: tuple[str, str]) -> Workload:
    """A packaged workload with some of its text replaced."""
    text = Path(load_workload(name).path).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "changed.toml").write_text(text, encoding="utf-8")
    return load_workload(folder / "changed.toml")


def asked(workload: Workload, question: str, rate: float | None = None) -> dict[str, Any]:
    (answer,) = answers(prepare(workload, rate_per_s=rate), [question])
    return answer


def attained(result: ServingResult) -> float:
    """Of the one stream that has an objective."""
    assert result.slo_attainment is not None
    return result.slo_attainment


def test_static_starves_a_stream_beside_idle_slots(tmp_path: Path) -> None:
    skewed = serve(load_workload("static-starves"))
    assert not skewed.unstable and attained(skewed) < 0.9
    assert min(skewed.slot_busy_ns) < 0.3 * max(skewed.slot_busy_ns)
    pooled = serve(changed("static-starves", tmp_path, ('kind = "static"', 'kind = "dynamic"')))
    assert attained(pooled) > 0.99
    # Control: the same load, spread evenly over the same homes, starves nobody.
    even = [(f"rate_per_s = {rate}", "rate_per_s = 55.0") for rate in ("88.0", "66.0", "44.0", "22.0")]
    assert attained(serve(changed("static-starves", tmp_path, *even))) > 0.97


def test_leaving_home_whenever_it_is_busy_costs_more_than_it_gives(tmp_path: Path) -> None:
    leave = ('kind = "home-first", off_home_factor = 1.45', 'kind = "static"')
    stays = serve(changed("dynamic-always", tmp_path, leave))
    assert serve(load_workload("dynamic-always")).p95_ns > 1.2 * stays.p95_ns
    # Control: where other slots are as good as home, leaving it is right.
    free = ("off_home_factor = 1.45", "off_home_factor = 1.0")
    assert serve(changed("dynamic-always", tmp_path, free)).p95_ns < 0.5 * stays.p95_ns


def test_batches_for_throughput_only_are_paid_by_the_tail() -> None:
    workload = load_workload("batch-for-throughput")

    def tail(rate: float | None, batch: int, linger_s: float) -> float:
        points = asked(workload, "batch", rate)["points"]
        (found,) = [each for each in points if (each["batch"], each["linger_s"]) == (batch, linger_s)]
        return found["p95_s"]

    assert serve(workload).p95_ns * 1e-9 > 4 * tail(None, 4, 0.0)
    # Control: with 1,000 requests/s there is a throughput to be had, and batches of four do not keep up.
    assert tail(1000.0, 16, 0.0) < 0.1 * tail(1000.0, 4, 0.0)
