"""Cards of the serving model: for each figure of a tail its definition, inputs and parts.

Knows the definitions of SERVING-MODEL and what a result holds; computes nothing that the result has not. Numbers are
named ``serving.NAME``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial

from ..errors import UsageError
from ..why import Card, Figure, shares_of
from .limits import CAUSES, SHARED_DRAM, Limiter, judged_percentile, limits, part_words
from .result import PERCENTILES, WITHIN, ServingResult, TokenResult, Warmed

_PERCENTILES = {f"{name}_s": share for name, share in PERCENTILES}
NUMBERS = (
    *(f"serving.{name}" for name in _PERCENTILES),
    "serving.mean_s",
    "serving.utilisation",
    "serving.throughput_rps",
)
"""Those that every result has."""
_TOKEN_TIMES = tuple(f"{kind}.{name}" for kind in ("ttft", "tpot") for name in (*_PERCENTILES, "mean_s"))


def numbers(result: ServingResult) -> tuple[str, ...]:
    """Names of all numbers of a result that have a card, as its JSON writes them."""
    return tuple(f"serving.{name}" for name in _cards(result))


def _cards(result: ServingResult) -> dict[str, Callable[[], Card]]:
    """A card of each number that the result has."""
    cards: dict[str, Callable[[], Card]] = {
        name: partial(_percentile, result, name) for name in _PERCENTILES
    } | {
        "mean_s": partial(_mean, result),
        "utilisation": partial(_utilisation, result),
        "throughput_rps": partial(_throughput, result),
    }
    if result.rate_per_s > 0.0:
        cards["rate_per_s"] = partial(_offered, result)
    shared = _shared_dram(result)
    if shared:
        cards["shared_dram_s"] = partial(_contention, result, *shared)
    if result.slo_attainment is not None:
        cards["slo_attainment"] = partial(_attainment, result, result.slo_attainment)
    if result.goodput_rps is not None:
        cards["goodput_rps"] = partial(_goodput, result, result.goodput_rps)
    if result.slot_busy_ns and result.span_s > 0.0:
        cards["busiest_slot"] = partial(_busiest, result)
    if result.energy_j_per_request > 0.0:
        cards["energy_j_per_request"] = partial(_energy, result)
    tokens, heat = result.tokens, result.warmed
    if tokens is not None:
        for name in _TOKEN_TIMES:
            if name.startswith("ttft") or tokens.tpot_ns:
                cards[name] = partial(_token_time, result, tokens, name)
        cards["tokens_per_s"] = partial(_token_rate, result, tokens)
        if tokens.kv_peak_bytes:
            cards["kv_peak_bytes"] = partial(_cache, result, tokens)
    if heat is not None:
        cards["thermal.peak_die_c"] = partial(_warm, heat, "die")
        cards["thermal.peak_sink_c"] = partial(_warm, heat, "sink")
        cards["thermal.low_clock_s"] = partial(_low_clock, result, heat)
    return cards


def why(result: ServingResult, number: str) -> Card:
    """The card of one number: ``serving.p95_s`` (or ``p95_s``).

    Raises
    ------
    UsageError : no number of that name, or this workload has none (nothing warms, no tokens).
    """
    cards = _cards(result)
    card = cards.get(number.removeprefix("serving."))
    if card is not None:
        return card()
    there = [f"serving.{name}" for name in cards]
    close = difflib.get_close_matches(number, there, 3, 0.5)
    raise UsageError(
        f"no number {number!r}", where="--why", lever=f"Did you mean {', '.join(close or there)}?"
    )


def _common(result: ServingResult) -> list[Figure]:
    return [
        Figure("requests", len(result.requests.arrival_ns)),
        Figure("slots", result.slots),
        Figure("utilisation ρ", result.utilisation, "ratio"),
    ]


def _percentile(result: ServingResult, name: str) -> Card:
    short = name.removesuffix("_s")
    ns: int = getattr(result, f"{short}_ns")
    inputs = _common(result)
    for interval, (low, high) in result.interval_s:
        if interval == short:
            inputs += [Figure("95 % interval, from", low, "s"), Figure("95 % interval, to", high, "s")]
    parts = dict(result.parts).get(short, ())
    notes = [f"{result.source}."]
    if short in result.too_few:
        notes.append("Too few requests for an interval.")
    if result.unstable:
        notes.append("Unstable: an endless process at ρ ≥ 1 has no percentiles.")
    return Card(
        f"serving.{name}",
        f"{short} of the response time",
        Figure(short, ns * 1e-9, "s"),
        f"nearest rank: sorted[⌈{float(_PERCENTILES[name]):g} n⌉ − 1] of n responses, from arrival to completion",
        (*inputs, Figure("exactly", f"{ns:,} ns")),
        shares_of(
            [(part_words(part), value * 1e-9) for part, value in parts if part not in WITHIN],
            ns * 1e-9,
            most=16,
        ),
        " ".join(notes),
    )


def _mean(result: ServingResult) -> Card:
    count = len(result.requests.arrival_ns)
    mean_s = result.sum_response_ns / count * 1e-9
    return Card(
        "serving.mean_s",
        "Mean of the response time",
        Figure("mean", mean_s, "s"),
        "sum of responses / requests",
        tuple(_common(result)),
        shares_of(
            [
                (part_words(part), value * 1e-9)
                for part, value in dict(result.parts).get("mean", ())
                if part not in WITHIN
            ],
            mean_s,
            most=16,
        ),
        f"{result.source}.",
    )


def _utilisation(result: ServingResult) -> Card:
    return Card(
        "serving.utilisation",
        "Utilisation ρ",
        Figure("ρ", result.utilisation, "ratio"),
        "arrival rate × mean service time / slots; of a trace: work / (slots × time between first and last arrival)",
        (Figure("slots", result.slots), Figure("arrival rate", result.rate_per_s, "requests/s")),
        note="An endless process at ρ ≥ 1 is unstable: its queue grows without end.",
    )


def _offered(result: ServingResult) -> Card:
    return Card(
        "serving.rate_per_s",
        "Offered rate",
        Figure("offered", result.rate_per_s, "requests/s"),
        "as it is set; of a trace as recorded: requests / time from first to last arrival; all streams together",
        (
            Figure("requests", len(result.requests.arrival_ns)),
            Figure("served rate", result.throughput_rps, "requests/s"),
        ),
        note="What comes, whether or not it can be served. The served rate is counted to the last completion, so it is "
        "less where requests are still waiting when the last one has come.",
    )


def _shared_dram(result: ServingResult) -> tuple[str, Limiter] | None:
    """The percentile that matters and how much of it sharing DRAM makes; None where that is nothing."""
    judged = judged_percentile(result)
    return next(((judged, each) for each in limits(result, judged) if each.name == SHARED_DRAM), None)


def _contention(result: ServingResult, judged: str, shared: Limiter) -> Card:
    parts, ns = dict(dict(result.parts)[judged]), shared.ns or 0
    return Card(
        "serving.shared_dram_s",
        f"Shared DRAM in {judged}",
        Figure(judged, ns * 1e-9, "s"),
        "stalls while slots share the DRAM bandwidth + queue behind stalls (start now − start with DRAM not shared)",
        (Figure("slots", result.slots), *shared.load),
        shares_of(
            [(part_words(part), parts[part] * 1e-9) for part in CAUSES[SHARED_DRAM] if part in parts],
            ns * 1e-9,
        ),
        "These are parts of the very requests at the percentile. Contention among the drivers (Shapley) is another "
        "question: by how much the percentile changes with DRAM shared and not, which moves other requests there. The "
        "DRAM knob switches it off.",
    )


def _throughput(result: ServingResult) -> Card:
    return Card(
        "serving.throughput_rps",
        "Served rate (throughput)",
        Figure("throughput", result.throughput_rps, "requests/s"),
        "requests / time from the first arrival to the last completion",
        (
            Figure("requests", len(result.requests.arrival_ns)),
            Figure("offered rate", result.rate_per_s, "requests/s"),
        ),
        note="Less than what is offered where a queue is left when the last request has come: it is counted to the end "
        "of that.",
    )


def _attainment(result: ServingResult, attained: float) -> Card:
    limit, share = result.slo_response_s, result.slo_percentile
    return Card(
        "serving.slo_attainment",
        "Objective attained",
        Figure("attained", attained, "share"),
        "requests that answer within the objective / requests",
        (Figure("requests", len(result.requests.arrival_ns)),)
        if limit is None or share is None
        else (Figure("objective", limit, "s"), Figure("of requests", share, "share")),
        note="" if limit is not None else "Several streams have an objective: each by its own.",
    )


def _goodput(result: ServingResult, goodput: float) -> Card:
    judged = [stream for stream in result.streams if stream.slo_attainment is not None]
    return Card(
        "serving.goodput_rps",
        "Goodput",
        Figure("goodput", goodput, "requests/s"),
        "requests that answer within their stream's objective / time from the first arrival to the last completion",
        (
            Figure("throughput", result.throughput_rps, "requests/s"),
            *(
                Figure(f"within, of {stream.name}", stream.slo_attainment or 0.0, "share")
                for stream in judged
            ),
        ),
        note="Streams without an objective are not counted.",
    )


def _busiest(result: ServingResult) -> Card:
    shares = [busy * 1e-9 / result.span_s for busy in result.slot_busy_ns]
    return Card(
        "serving.busiest_slot",
        "Utilisation of the busiest slot",
        Figure("busiest", max(shares), "share"),
        "max over slots of time at work / time from the first arrival to the last completion",
        (
            Figure("mean of the slots", sum(shares) / len(shares), "share"),
            Figure("least busy", min(shares), "share"),
            Figure("Jain's index over slots", result.jain_slots, "ratio"),
        ),
        note="At 1 it never rests, and what waits for it waits for ever longer. Stalls count as work.",
    )


def _energy(result: ServingResult) -> Card:
    return Card(
        "serving.energy_j_per_request",
        "Energy of a request",
        Figure("energy", result.energy_j_per_request, "J"),
        "(sum over batches of their plan's energy + static power · time from first arrival to last completion)"
        " / requests",
        (
            Figure("requests", len(result.requests.arrival_ns)),
            Figure("time", result.span_s, "s"),
            Figure("arrival rate", result.rate_per_s, "requests/s"),
        ),
        note="What the machine draws while it waits is somebody's as well: at a low rate each request has more of it.",
    )


def _token_time(result: ServingResult, tokens: TokenResult, name: str) -> Card:
    """``ttft.p95_s`` and its kind."""
    kind, _, short = name.partition(".")
    first = kind == "ttft"
    values, mean_s = (tokens.ttft_ns, tokens.ttft_mean_s) if first else (tokens.tpot_ns, tokens.tpot_mean_s)
    at = {f"{percentile}_s": ns for (percentile, _), ns in zip(PERCENTILES, values, strict=True)}
    of = "the time to the first token" if first else "the time per output token"
    each = (
        "from arrival to the end of the iteration that takes the last of the prompt"
        if first
        else "⌊(completion − first token) / (tokens − 1)⌋ of each request of two tokens or more"
    )
    told = "mean" if short == "mean_s" else short.removesuffix("_s")
    formula = (
        f"nearest rank: sorted[⌈{float(_PERCENTILES[short]):g} n⌉ − 1]; {each}"
        if short in at
        else f"mean {each}"
        if first
        else "(sum of completion − first token) / (sum of tokens − 1)"
    )
    others = [Figure(p.removesuffix("_s"), ns * 1e-9, "s") for p, ns in at.items() if p != short]
    exactly = [Figure("exactly", f"{at[short]:,} ns")] if short in at else []
    note = (
        "It holds waiting for a place (queue), the prompt's own iterations (base) and those of others that ran in them "
        "(interleaved); chunks of the prompt shorten the last and take more iterations."
        if first
        else "Each token is an iteration of its slot: it takes longer the more requests decode in it, and the more "
        "prompts are prefilled between (interleaved)."
    )
    return Card(
        f"serving.{name}",
        f"{told} of {of}",
        Figure(told, at[short] * 1e-9 if short in at else mean_s, "s"),
        formula,
        (
            *_common(result),
            Figure("output tokens", tokens.output_tokens),
            *others,
            *([] if short == "mean_s" else [Figure("mean", mean_s, "s")]),
            *exactly,
        ),
        note=note,
    )


def _token_rate(result: ServingResult, tokens: TokenResult) -> Card:
    iterations = sum(count for _, count in result.batch_sizes)
    members = sum(size * count for size, count in result.batch_sizes)
    return Card(
        "serving.tokens_per_s",
        "Output tokens per second",
        Figure("tokens", tokens.tokens_per_s, "tokens/s"),
        "output tokens / time from the first arrival to the last completion",
        (
            Figure("output tokens", tokens.output_tokens),
            Figure("iterations", iterations),
            Figure("requests in an iteration", members / iterations if iterations else 0.0, "ratio"),
        ),
    )


def _cache(result: ServingResult, tokens: TokenResult) -> Card:
    return Card(
        "serving.kv_peak_bytes",
        "Most of the KV cache that was held at one time",
        Figure("held", tokens.kv_peak_bytes, "B"),
        "max over time of the sum over requests under way of (prompt + answer tokens) · bytes of a token",
        (
            Figure("requests whose turn came while it was full", tokens.kv_full_share, "share"),
            Figure("output tokens", tokens.output_tokens),
            Figure("slots", result.slots),
        ),
        note="Reserved at joining for the whole answer, so that nobody is thrown out; of several streams the fullest.",
    )


def _warm(heat: Warmed, node: str) -> Card:
    peak, other = (
        (heat.peak_die_c, heat.peak_sink_c) if node == "die" else (heat.peak_sink_c, heat.peak_die_c)
    )
    rest = "sink" if node == "die" else "die"
    return Card(
        f"serving.thermal.peak_{node}_c",
        f"Highest temperature of the {node}",
        Figure(node, peak, "°C"),
        "two nodes: C_die dT_die/dt = P − (T_die − T_sink)/R_die; "
        "C_sink dT_sink/dt = (T_die − T_sink)/R_die − (T_sink − ambient)/R_sink; solved exactly between events",
        (
            Figure(f"highest of the {rest}", other, "°C"),
            Figure("sink at the end", heat.sink_c, "°C"),
            Figure("the clock lowers at", heat.throttle_c, "°C"),
            Figure("energy drawn since time 0", heat.energy_j, "J"),
        ),
        note="P is static power and, of each batch, its plan's energy spread over its time; stalls draw nothing more.",
    )


def _low_clock(result: ServingResult, heat: Warmed) -> Card:
    low_s = heat.low_clock_ns * 1e-9
    throttle = {name: dict(parts).get("throttle", 0) * 1e-9 for name, parts in result.parts}
    return Card(
        "serving.thermal.low_clock_s",
        "Time at a low clock",
        Figure("clock low", low_s, "s"),
        "from when the die reaches the temperature at which the clock lowers until it has cooled to where it rises",
        (
            Figure("of the time from first arrival to last completion", low_s / result.span_s, "share"),
            Figure("the clock lowers at", heat.throttle_c, "°C"),
            Figure("batches that the power cap slowed", heat.capped),
            *(
                Figure(f"throttling in {name}", throttle[name], "s")
                for name in ("p95", "p99")
                if name in throttle
            ),
        ),
        note="A batch keeps the clock at which it starts; compute takes longer, launches and memory do not.",
    )
