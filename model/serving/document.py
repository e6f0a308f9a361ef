"""A serving result as CONTRACT's JSON block and as a table for a person. Computes nothing.

What this version does not compute is left out of the JSON, never written as null or zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..terminal import columns, quantity, size
from ..why import figure_text
from .lengths import Choice, Lengths
from .limits import judged_percentile, limits, part_words
from .result import BuildUp, ServingResult, StreamResult, TokenResult

_NAMES = (("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p999", "p99.9"))


def serving_document(result: ServingResult) -> dict[str, Any]:
    """CONTRACT's ``serving{...}``. ``parts`` are whole nanoseconds that sum to the percentile exactly
    (``queue_imbalance`` is within ``queue``); an unstable process has no percentiles.
    """
    count = int(result.requests.arrival_ns.size)
    out: dict[str, Any] = {
        "requests": count,
        "source": result.source,
        "rate_per_s": result.rate_per_s,
        "recorded": result.recorded,
        "unstable": result.unstable,
        "first_estimate": result.first_estimate,
    }
    if not result.unstable:
        out["too_few"] = list(result.too_few)
        for name, value in _percentiles(result):
            out[f"{name}_s"], out[f"{name}_ns"] = value * 1e-9, value
        out["mean_s"] = result.sum_response_ns / count * 1e-9
        out["max_ns"] = result.max_ns
        out["interval_method"] = result.interval_method
        out["interval"] = {f"{name}_s": list(bounds) for name, bounds in result.interval_s}
        out["parts"] = {name: dict(amounts) for name, amounts in result.parts}
        out["parts_unit"] = "ns"
        judged = judged_percentile(result)
        out["limits"] = {judged: [limiter.document() for limiter in limits(result, judged)]}
        if result.tokens is not None:
            out |= _tokens(result.tokens)
    if result.build_up is not None:
        out["build_up"] = asdict(result.build_up) | {"busiest_rate_rps": result.build_up.busiest_rate_per_s}
    out["sum_response_ns"] = result.sum_response_ns
    out["completion_sha256"] = result.completion_sha256
    out["throughput_rps"] = result.throughput_rps
    if result.energy_j_per_request > 0.0:
        out["energy_j_per_request"] = result.energy_j_per_request
    out["jain"] = {"streams": result.jain_streams, "streams_mean": result.jain_streams_mean}
    if result.slot_busy_ns:
        out["slot_count"] = result.slots
        out["utilisation"] = result.utilisation
        out["jain"]["slots"] = result.jain_slots
        out["slots"] = [
            {"utilisation": share, "busy_ns": busy, "requests": served}
            for share, busy, served in slots_of(result)
        ]
    if result.slo_attainment is not None:
        if result.slo_percentile is not None:
            out["slo"] = {"percentile": result.slo_percentile, "response_s": result.slo_response_s}
        out["slo_attainment"] = result.slo_attainment
        if result.goodput_rps is not None and not result.unstable:
            out["goodput_rps"] = result.goodput_rps
    if result.preempted_share > 0.0:
        out["preempted_share"] = result.preempted_share
    out["streams"] = [_stream(stream, result.unstable) for stream in result.streams]
    out["batches"] = [{"size": size, "count": batches} for size, batches in result.batch_sizes]
    out["mean_batch"] = _mean_batch(result)
    out["fallback_share"] = result.fallback_share
    out["padding_share"] = result.padding_share
    out["throttled_s"] = result.throttled_ns * 1e-9
    if result.warmed is not None:
        heat = result.warmed
        out["thermal"] = {
            "peak_die_c": heat.peak_die_c,
            "peak_sink_c": heat.peak_sink_c,
            "end_sink_c": heat.sink_c,
            "low_clock_s": heat.low_clock_ns * 1e-9,
            "capped_batches": heat.capped,
            "energy_j": heat.energy_j,
        }
    if not result.unstable:
        out["jitter_s"] = result.jitter_s
    out["notes"] = list(result.notes)
    return out


def _tokens(tokens: TokenResult) -> dict[str, Any]:
    out: dict[str, Any] = {
        "output_tokens": tokens.output_tokens,
        "tokens_per_s": tokens.tokens_per_s,
    }
    if tokens.kv_peak_bytes:
        out["kv_peak_bytes"], out["kv_full_share"] = tokens.kv_peak_bytes, tokens.kv_full_share
    for name, values, mean in (
        ("ttft", tokens.ttft_ns, tokens.ttft_mean_s),
        ("tpot", tokens.tpot_ns, tokens.tpot_mean_s),
    ):
        if values:
            out[name] = {f"{short}_s": ns * 1e-9 for (short, _), ns in zip(_NAMES, values, strict=True)}
            out[name] |= {f"{short}_ns": ns for (short, _), ns in zip(_NAMES, values, strict=True)}
            out[name]["mean_s"] = mean
    return out


def _stream(stream: StreamResult, unstable: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": stream.name, "requests": stream.requests}
    if not unstable:
        for name in ("p50", "p95", "p99"):
            value = getattr(stream, f"{name}_ns")
            out[f"{name}_s"], out[f"{name}_ns"] = value * 1e-9, value
        out |= {"mean_s": stream.mean_s, "slowdown": stream.slowdown}
        if stream.tokens is not None:
            out |= _tokens(stream.tokens)
    out["fallback_share"] = stream.fallback_share
    if stream.slo_attainment is not None:
        out["slo"] = {"percentile": stream.slo_percentile, "response_s": stream.slo_response_s}
        out["slo_attainment"] = stream.slo_attainment
    return out


def _mean_batch(result: ServingResult) -> float:
    """Requests over batches, or over iterations those that ran in them."""
    batches = sum(count for _, count in result.batch_sizes)
    return sum(size * count for size, count in result.batch_sizes) / batches if batches else 1.0


def _percentiles(result: ServingResult) -> tuple[tuple[str, int], ...]:
    values = (result.p50_ns, result.p95_ns, result.p99_ns, result.p999_ns)
    return tuple((name, value) for (name, _), value in zip(_NAMES, values, strict=True))


def slots_of(result: ServingResult) -> list[tuple[float, int, int]]:
    """Per slot (busy share of the time from first arrival to last completion, busy ns, requests)."""
    requests = result.requests
    span = int(requests.completion_ns.max()) - int(requests.arrival_ns[0])
    return [
        (busy / span if span else 0.0, busy, served)
        for busy, served in zip(result.slot_busy_ns, result.slot_requests, strict=True)
    ]


def serving_text(result: ServingResult) -> str:
    """The result for a person: percentiles, what they are made of, slots, notes."""
    count = int(result.requests.arrival_ns.size)
    slots = f"{result.slots} slot{'s' * (result.slots != 1)}" if result.slot_busy_ns else "unlimited slots"
    lines = [
        result.source,
        f"{slots}, utilisation {result.utilisation:.3g}, {result.throughput_rps:.4g} requests/s served"
        if result.slot_busy_ns
        else f"{slots}, {result.throughput_rps:.4g} requests/s served",
    ]
    if not result.unstable:
        lines += ["", _tail_table(result, count), "", _limits_table(result)]
    if result.build_up is not None:
        lines += ["", _build_up_table(result.build_up, result.rate_per_s)]
    if result.slo_attainment is not None and result.slo_percentile is not None:
        met = "met" if result.slo_attainment >= result.slo_percentile else "missed"
        limit = quantity(result.slo_response_s, "s")
        lines += [
            "",
            f"objective {result.slo_percentile:.4g} within {limit}: {met}, {result.slo_attainment:.2%} are"
            + (f"; {result.goodput_rps:.4g} requests/s within it" if result.goodput_rps is not None else ""),
        ]
    if len(result.streams) > 1 and not result.unstable:
        lines += ["", _streams_table(result)]
    if any(size > 1 for size, _ in result.batch_sizes):
        batches = sum(number for _, number in result.batch_sizes)
        largest = max(size for size, _ in result.batch_sizes)
        what = "batches" if result.tokens is None else "iterations"
        lines += ["", f"{batches:,} {what} of {_mean_batch(result):.3g} on average, {largest} at most"]
    if result.tokens is not None:
        peak = result.tokens.kv_peak_bytes
        full = result.tokens.kv_full_share
        held = f", at most {size(peak)} of KV cache" if peak else ""
        held += f", full when the turn of {full:.2%} of the requests came" if full else ""
        lines.append(
            f"{result.tokens.output_tokens:,} tokens, {result.tokens.tokens_per_s:,.4g} tokens/s{held}"
        )
    if result.warmed is not None:
        heat = result.warmed
        capped = f", {heat.capped:,} batches slowed by the power cap" if heat.capped else ""
        lines.append(
            f"die at most {heat.peak_die_c:.1f} °C, sink {heat.peak_sink_c:.1f} °C, clock low for "
            f"{quantity(heat.low_clock_ns * 1e-9, 's')}{capped}"
        )
    shares = (
        ("gave up their slot for a while", result.preempted_share),
        ("fell back", result.fallback_share),
        ("of the service time is padding", result.padding_share),
    )
    lines += [f"{share:.2%} {what}" for what, share in shares if share > 0.0]
    if result.throttled_ns:
        lines.append(f"throttled for {quantity(result.throttled_ns * 1e-9, 's')}")
    if len(result.slot_busy_ns) > 1:
        shares = [share for share, _, _ in slots_of(result)]
        mean = sum(shares) / len(shares)
        lines += [
            "",
            f"slots busy {min(shares):.1%} to {max(shares):.1%} (max/mean "
            f"{max(shares) / mean if mean else 1.0:.3f}), Jain {result.jain_slots:.4f}",
        ]
    if result.energy_j_per_request > 0.0:
        lines.append(f"energy {quantity(result.energy_j_per_request, 'J')} per request")
    return "\n".join(lines + [f"note: {note}." for note in result.notes])


def _limits_table(result: ServingResult) -> str:
    """What limits the percentile that matters, largest first."""
    judged = judged_percentile(result)
    rows: list[tuple[str, ...]] = [(f"what limits {judged}", "", "", "", "try")]
    for limiter in limits(result, judged):
        load = ", ".join(f"{figure_text(each.value, each.unit)} {each.name}" for each in limiter.load)
        amount = (
            ("", "")
            if limiter.ns is None or limiter.share is None
            else (quantity(limiter.ns * 1e-9, "s"), f"{limiter.share:.1%}")
        )
        rows.append((f"  {limiter.name}", *amount, load, limiter.lever))
    return columns(rows, right=(1, 2))


def _streams_table(result: ServingResult) -> str:
    """Each stream's tail; slowdown is response over the time that its requests take alone."""
    rows: list[tuple[str, ...]] = [
        ("stream", "requests", "p50", "p95", "p99", "mean", "slowdown", "within its limit")
    ]
    for stream in result.streams:
        times = (stream.p50_ns * 1e-9, stream.p95_ns * 1e-9, stream.p99_ns * 1e-9, stream.mean_s)
        within = "" if stream.slo_attainment is None else f"{stream.slo_attainment:.2%}"
        rows.append(
            (
                f"  {stream.name}",
                f"{stream.requests:,}",
                *(quantity(value, "s") for value in times),
                f"{stream.slowdown:.3g}",
                within,
            )
        )
    fairness = (
        f"Jain over streams {result.jain_streams:.4f} of slowdown, {result.jain_streams_mean:.4f} of the mean"
    )
    return columns(rows, right=range(1, 8)) + "\n" + fairness


def _beside(value_s: float, low_s: float, high_s: float) -> str:
    """How far the ends of an interval lie from its percentile: ``± 1.2 ms``, or ``-1.2 ms +3.4 ms``."""
    below, above = quantity(value_s - low_s, "s", 2), quantity(high_s - value_s, "s", 2)
    return f"± {above}" if below == above else f"-{below} +{above}"


def _build_up_table(built: BuildUp, mean_per_s: float) -> str:
    """When the queue built up, and how far above the mean the arrivals were."""

    def at(moment_ns: int) -> str:
        return f"from {quantity(moment_ns * 1e-9, 's')} on"

    rows: list[tuple[str, ...]] = [("queue and arrivals", "most", "when")]
    if built.peak_waiting:
        rows.append(("  requests waiting", f"{built.peak_waiting:,}", at(built.peak_at_ns)))
        longest = quantity(built.longest_ns * 1e-9, "s")
        rows.append(("  longest stretch with some waiting", longest, at(built.longest_from_ns)))
    else:
        rows.append(("  requests waiting", "0", ""))
    if built.busiest_window_ns:
        window = quantity(built.busiest_window_ns * 1e-9, "s")
        rate = f"{built.busiest_rate_per_s:.4g}/s"
        above = f"{built.busiest_rate_per_s / mean_per_s:.3g} times the mean, " if mean_per_s else ""
        rows.append((f"  arrivals in {window}", rate, above + at(built.busiest_from_ns)))
    return columns(rows, right=(1,))


def _tail_table(result: ServingResult, count: int) -> str:
    """Response by percentile (nearest rank), its interval, and the parts that sum to it."""
    parts = {name: dict(amounts) for name, amounts in result.parts}
    rows: list[tuple[str, ...]] = [("", *(label for _, label in _NAMES), "max", "mean")]
    whole = [quantity(value * 1e-9, "s") for _, value in _percentiles(result)]
    mean = result.sum_response_ns / count
    rows.append(("response", *whole, quantity(result.max_ns * 1e-9, "s"), quantity(mean * 1e-9, "s")))
    if result.interval_s or result.too_few:
        values = {name: value * 1e-9 for name, value in _percentiles(result)}
        bounds = {name: _beside(values[name], *bounds) for name, bounds in result.interval_s}
        bounds |= dict.fromkeys(result.too_few, "too few")
        rows.append((f"95 % by {result.interval_method}", *(bounds.get(name, "") for name, _ in _NAMES)))
    for part in parts["mean"]:
        if not any(amounts[part] for amounts in parts.values()) and part not in ("queue", "base"):
            continue
        label = "  while a slot idles" if part == "queue_imbalance" else f"  {part_words(part)}"
        cells = [quantity(parts[name][part] * 1e-9, "s") for name in ("p50", "p95", "p99")]
        rows.append((label, *cells, "", "", quantity(parts["mean"][part] * 1e-9, "s")))
    if result.tokens is not None:
        tokens = result.tokens
        for name, values, mean_s in (
            ("time to first token", tokens.ttft_ns, tokens.ttft_mean_s),
            ("time per output token", tokens.tpot_ns, tokens.tpot_mean_s),
        ):
            if values:
                cells = [quantity(value * 1e-9, "s") for value in values]
                rows.append((name, *cells, "", quantity(mean_s, "s")))
    return columns(rows, right=range(1, 7))


def lengths_document(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Per stream the chosen lengths; costs in tokens, integers where they are whole."""

    def told(lengths: Lengths) -> dict[str, Any]:
        cost = lengths.cost_tokens
        return {
            "plans": list(lengths.plans),
            "cost_tokens": int(cost) if cost.denominator == 1 else float(cost),
            "own_tokens": lengths.own_tokens,
            "requests": lengths.requests,
            "fallbacks": lengths.fallbacks,
        }

    out: list[dict[str, Any]] = []
    for choice in choices:
        row: dict[str, Any] = {"stream": choice.stream}
        if choice.factor is not None:
            row["fallback_factor"] = float(choice.factor)
        row |= told(choice.chosen)
        if choice.later is not None and choice.hindsight is not None:
            row |= {"later": told(choice.later), "hindsight": told(choice.hindsight)}
        out.append(row | {"powers_of_two": told(choice.powers)})
    return out


def lengths_text(choices: Sequence[Choice]) -> str:
    """The chosen lengths for a person, with their cost over the requests' own tokens."""
    lines: list[str] = []
    for choice in choices:
        rows: list[tuple[str, ...]] = [(f"stream {choice.stream}", "tokens", "× own", "fall back", "lengths")]
        shown = [("chosen for all" if choice.later is None else "chosen for the first half", choice.chosen)]
        shown += [("  on the second half", choice.later)] if choice.later else []
        shown += [("best for the second half", choice.hindsight)] if choice.hindsight else []
        shown.append(("powers of two", choice.powers))
        for name, found in shown:
            plans = " ".join(str(length) for length in found.plans)
            over = float(found.cost_tokens) / found.own_tokens if found.own_tokens else 1.0
            rows.append(
                (name, f"{float(found.cost_tokens):,.0f}", f"{over:.3f}", f"{found.fallbacks:,}", plans)
            )
        lines.append(columns(rows, right=(1, 2, 3)))
    return "\n\n".join(lines)


def questions_text(shapley: Mapping[str, Any] | None, whatif: Sequence[Mapping[str, Any]]) -> list[str]:
    """Drivers' values and what-ifs for a person, one text each."""
    texts: list[str] = []
    if shapley is not None:
        rows: list[tuple[str, ...]] = [("driver (Shapley)", "p95", "p99"), ("none of them", *_bases(shapley))]
        rows.extend(
            (driver.replace("_", " "), *(_signed(shapley[f"{p}_s"][driver]) for p in ("p95", "p99")))
            for driver in shapley["p95_s"]
        )
        below = any(value < 0.0 for p in ("p95", "p99") for value in shapley[f"{p}_s"].values())
        texts.append(columns(rows, right=(1, 2)) + (f"\n{NEGATIVE_DRIVER}." if below else ""))
    return texts + [_what_if_text(answer) for answer in whatif]


def _bases(shapley: Mapping[str, Any]) -> tuple[str, str]:
    return quantity(shapley["p95_base_s"], "s"), quantity(shapley["p99_base_s"], "s")


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0.0 else '+'}{quantity(abs(seconds), 's')}"


NEGATIVE_DRIVER = (
    "below 0: with it the others cost less, by more than it costs itself, as where waiting keeps requests from all "
    "asking for DRAM at once"
)
"""What a negative Shapley value says."""

_SINGLE: dict[str, Callable[[Any], str]] = {
    "percentile": lambda name: f"judged by {name}",
    "limit_s": lambda limit: f"objective {quantity(limit, 's')}",
    "knee_rate_per_s": lambda rate: f"knee at {rate:.4g} requests/s",
    "rate_per_s": lambda rate: f"highest rate within it {rate:.4g} requests/s",
    "set_rate_per_s": lambda rate: f"--rate {rate:.5g}",
    "tried": lambda count: f"{count} rates tried",
    "what": lambda what: f"{what} breaks first",
    "cause": lambda part: f"{part.replace('_', ' ')} grows most",
    "break_even_off_home_factor": lambda factor: f"even at {factor:.4g} times the time off home",
    "endless": lambda ever: "better at every factor tried" if ever else "",
    "first_estimate": lambda quick: "by the first estimate" if quick else "replayed exactly",
    "seed": lambda seed: f"seed {seed}",
    "hours": lambda hours: f"{hours:.3g} hours",
    "rounds": lambda rounds: f"{rounds} round{'s' * (rounds != 1)} of the workload",
    "low_clock_s": lambda seconds: f"clock low for {quantity(seconds, 's')}",
    "peak_die_c": lambda celsius: f"die at most {celsius:.1f} °C",
    "peak_sink_c": lambda celsius: f"sink at most {celsius:.1f} °C",
    "not_answered": str,
}
"""What the single figures of a what-if say."""


def _what_if_text(answer: Mapping[str, Any]) -> str:
    """A curve or a pair of points as a table; its single figures below."""
    points = [("", point) for point in answer.get("points", ())]
    points += [(name, each) for name, each in answer.items() if isinstance(each, Mapping) and "p95_s" in each]
    rows: list[tuple[str, ...]] = [
        (f"what if: {answer['kind'].replace('_', ' ')}", "requests/s", "rho", "p50", "p95", "p99")
    ]
    for name, point in points:
        batch = (
            f"batch {point['batch']}, linger {quantity(point['linger_s'], 's')}"
            if "batch" in point
            else f"from {quantity(point['from_s'], 's')} on, die {point['die_c']:.1f} °C"
            if "die_c" in point
            else name.replace("_", " ")
        )
        times = (quantity(point[f"{p}_s"], "s") for p in ("p50", "p95", "p99"))
        rows.append((batch, f"{point['rate_per_s']:.4g}", f"{point['utilisation']:.3f}", *times))
    single = [
        _SINGLE[name](value) for name, value in answer.items() if name in _SINGLE and value not in (None, "")
    ]
    beyond = answer.get("beyond")
    if answer["kind"] == "highest_rate" and answer.get("rate_per_s") is None and beyond:
        name, lowest = answer["percentile"], f"{beyond['rate_per_s']:.4g} requests/s"
        single.append(f"no rate keeps it: at {lowest} {name} is still {quantity(beyond[f'{name}_s'], 's')}")
    return columns(rows, right=range(1, 6)) + "\n" + ", ".join(text for text in single if text)
