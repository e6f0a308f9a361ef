"""From a workload's text to what happens to each request, worked out again in plain Python.

Windows, counts, rates, streams of one trace, sizes, token terms, plans per length and batch, padding and fallback are
written down here from docs/serving.md; the plain simulator of `serving_oracle` replays what they make.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model.errors import FileError
from model.serving.rules import Rules, StreamRules
from model.serving.serve import serve
from model.serving.workload import load_workload

from .serving_oracle import Simulator

LENGTHS = (10, 30, 64, 100, 150)
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "size_factor", "stream")


def drawn(draw: random.Random) -> dict[str, Any]:
    """A workload as plain values."""
    slots, streams, span = draw.choice([1, 2, 3]), draw.choice([1, 2, 3]), draw.choice([10, 100, 1000])
    rows, now = [], draw.choice([0, 7])
    for i in range(streams + draw.choice([0, 5, 25])):
        now += draw.choice([0, 0, 1, draw.randint(0, span)])
        stream = i if i < streams else draw.randrange(streams)
        rows.append((now, draw.randint(1, 150), draw.randint(0, 9), draw.choice([1.0, 0.5, 0.777]), stream))
    return {
        "seed": draw.randrange(6),
        "slots": slots,
        "placement": draw.choice(["dynamic", "static", "round-robin", "home-first", "stealing"]),
        "off_home": draw.choice([None, 1.15, 0.9]),
        "discipline": draw.choice(["fifo", "priority"]),
        "limit": draw.choice([None, None, 1, 2]),
        "window": sorted(draw.sample(range(20 * span), 2)),
        "factor": draw.choice([(7, 5), (2, 3)]),
        "requests": draw.choice([None, len(rows)]),
        "rows": rows,
        "streams": [of_stream(draw, slots, span) for _ in range(streams)],
    }


def of_stream(draw: random.Random, slots: int, span: int) -> dict[str, Any]:
    most = draw.choice([1, 1, 2, 3])
    sizes = sorted({most, *draw.sample(range(1, 6), 2)})
    cost = {
        (length, size): draw.randint(0, 40) * span // 10
        for length in sorted(draw.sample(LENGTHS, draw.randint(1, 3)))
        for size in sizes
    }
    given = draw.random() < 0.4
    return {
        "rate": draw.choice([None, None, 1e6, 123456.7]),
        "cv": draw.choice([None, 0.1, 0.5]),
        "batch": most,
        "linger": draw.choice([0.0, 1e-8, 5e-7]),
        "home": sorted(draw.sample(range(slots), draw.randint(1, slots))),
        "priority": draw.randint(0, 2),
        "service": (draw.randint(0, 5) * span, draw.choice([0, 3]), draw.choice([0, 2])) if given else None,
        "plans": {} if given else cost,
        # From which length on (None: beyond the longest plan), and the factor; or every new length is compiled.
        "fallback": draw.choice(
            [(60, 3, 2), (20, 2, 1)] if given else [(None, 3, 1), (60, 3, 2), "recompile"]
        ),
    }


def text_of(load: dict[str, Any]) -> str:
    away = "" if load["off_home"] is None else f", off_home_factor = {load['off_home']}"
    limit = "" if load["limit"] is None else f"admission_limit = {load['limit']}"
    lines = [
        f"format = 1\nseed = {load['seed']}\nslots = {load['slots']}",
        "" if load["requests"] is None else f"requests = {load['requests']}",
        f"placement = {{ kind = '{load['placement']}'{away} }}\ncontention = {{ {limit} }}",
        f"throttle = {{ windows_ns = [{load['window']}], factor = {list(load['factor'])} }}",
        f"queue = {{ discipline = '{load['discipline']}' }}",
    ]
    for each in load["streams"]:
        rate = "" if each["rate"] is None else f", rate_per_s = {each['rate']!r}"
        lines += [
            f"[[stream]]\narrivals = {{ kind = 'trace', file = 't.csv'{rate} }}",
            f"batch = {{ max = {each['batch']}, linger_s = {each['linger']!r} }}",
            f"home_slot = {each['home']}\npriority = {each['priority']}",
            "" if each["cv"] is None else f"jitter = {{ cv = {each['cv']} }}",
        ]
        if each["service"]:
            lines.append(
                "service = {{ base_ns = {}, per_input_ns = {}, per_output_ns = {} }}".format(*each["service"])
            )
        else:
            plans = (
                f"{{ length = {a}, batch = {b}, base_ns = {ns} }}" for (a, b), ns in each["plans"].items()
            )
            lines.append(f"plans = [{', '.join(plans)}]")
        if each["fallback"] == "recompile":
            lines.append("fallback = { recompile_s = 3.1e-6 }")
        else:
            limit, num, den = each["fallback"]
            first = "" if limit is None else f"max_input_tokens = {limit}, "
            lines.append(f"fallback = {{ {first}num = {num}, den = {den} }}")
    return "\n".join(lines) + "\n"


def offers_of(load: dict[str, Any]) -> tuple[Any, Any] | None:
    """Offers and services as the plain simulator takes them; None where a stream is left without requests or rate."""
    table: list[dict[int, int]] = []
    found: list[tuple[Any, ...]] = []
    for k, each in enumerate(load["streams"]):
        rows = [row for row in load["rows"] if row[4] == k][: load["requests"]]
        times = [row[0] for row in rows]
        if each["rate"] is not None:
            if times[0] == times[-1]:
                return None
            factor = Fraction(len(times) * 10**9, times[-1] - times[0]) / Fraction(repr(each["rate"]))
            times = [math.floor((time - times[0]) * factor) for time in times]
        found += [(time, k, i, row) for i, (time, row) in enumerate(zip(times, rows, strict=True))]
    found.sort(key=lambda one: one[:3])
    found = found[: load["requests"]]
    columns: dict[str, list[Any]] = {
        name: [None] * len(found) for name in ("plan", "own_ns", "size", "padding", "fallback")
    }
    for k, each in enumerate(load["streams"]):
        mine = [q for q, one in enumerate(found) if one[1] == k]
        if not mine:
            return None
        size = np.array([found[q][3][3] for q in mine])
        if each["cv"] is not None:
            square = each["cv"] ** 2
            size = size * np.random.default_rng((1000 + load["seed"], k)).gamma(1 / square, square, len(mine))
        lengths, first, known = sorted({length for length, _ in each["plans"]}), len(table), set()
        for length in lengths or [None]:
            costs = {b: ns for (a, b), ns in each["plans"].items() if a == length}
            table.append(
                {
                    b: each["service"][0] if each["service"] else costs[min(c for c in costs if c >= b)]
                    for b in range(1, each["batch"] + 1)
                }
            )
        for q, scale in zip(mine, size.tolist(), strict=True):
            _, tokens, outputs, _, _ = found[q][3]
            rule, place, padding, own = each["fallback"], 0, (1, 1), 0
            if each["service"]:
                own = each["service"][1] * tokens + each["service"][2] * outputs
                falls = tokens > rule[0]
            else:
                place = next((i for i, length in enumerate(lengths) if length >= tokens), len(lengths))
                beyond = place == len(lengths)
                place = min(place, len(lengths) - 1)
                padding = (1, 1) if beyond else (tokens, lengths[place])
                scale = scale * tokens / lengths[-1] if beyond else scale
                limit = None if rule == "recompile" else rule[0]
                falls = beyond or (limit is not None and tokens > limit)
            fallback = (1, 1)
            if falls and rule != "recompile":
                fallback = rule[1:]
            elif falls and tokens not in known:
                known.add(tokens)
                ns = table[first + place][1] + own
                alone = ns if scale == 1.0 else round(scale * ns)
                fallback = (alone + 3100, max(1, alone))
            for name, value in zip(columns, (first + place, own, scale, padding, fallback), strict=True):
                columns[name][q] = value
    base = np.zeros((len(table), 1 + max(each["batch"] for each in load["streams"])), np.int64)
    for row, costs in enumerate(table):
        for size, ns in costs.items():
            base[row, size] = ns
    offers = SimpleNamespace(
        arrival_ns=np.array([one[0] for one in found]),
        stream=np.array([one[1] for one in found]),
        **{name: np.array(values) for name, values in columns.items()},
    )
    none = np.full(base.shape, -1)
    return offers, SimpleNamespace(base_ns=base, launch_ns=np.zeros_like(base), profile_of=none, profiles=())


def rules_of(load: dict[str, Any]) -> Rules:
    away = Fraction(repr(load["off_home"])) if load["off_home"] is not None else Fraction(1)
    factors = [
        [(1, 1) if slot in each["home"] else away.as_integer_ratio() for slot in range(load["slots"])]
        for each in load["streams"]
    ]
    return Rules(
        load["slots"],
        tuple(
            StreamRules(
                tuple(each["home"]), 1.0, each["priority"], each["batch"], round(each["linger"] * 1e9)
            )
            for each in load["streams"]
        ),
        placement=load["placement"],
        discipline=load["discipline"],
        off_home=np.array(factors),
        admission_limit=load["limit"],
        throttle_edges_ns=np.array(load["window"]),
        throttle=load["factor"],
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_workload_is_replayed_as_its_text_says(tmp_path: Path, seed: int) -> None:
    load = drawn(random.Random(seed))
    rows = (",".join(str(value) for value in row) for row in load["rows"])
    (tmp_path / "t.csv").write_text("\n".join([",".join(COLUMNS), *rows]), encoding="utf-8")
    (tmp_path / "w.toml").write_text(text_of(load), encoding="utf-8")
    plain = offers_of(load)
    if plain is None:
        with pytest.raises(FileError, match=r"no rate to scale|is of stream\["):
            load_workload(tmp_path / "w.toml")
        return
    result = serve(load_workload(tmp_path / "w.toml"))
    wanted = Simulator(*plain, rules_of(load), contention=False).run()
    parts = dict(result.requests.parts)
    for name in ("base", "padding", "fallback", "off_home", "throttle"):
        assert parts[name].tolist() == [row[name] for row in wanted]
    assert result.requests.start_ns.tolist() == [row["start"] for row in wanted]
    assert result.requests.completion_ns.tolist() == [row["completion"] for row in wanted]
    assert result.requests.slot.tolist() == [row["slot"] for row in wanted]
