"""Requests answered token by token, replayed once more in plain Python: lists and dictionaries, slot by slot.

Written from docs/serving.md, not from the kernels; without contention, where a segment takes the time that it takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from model.serving.rules import Offers, Rules, Services

ANY = 1 << 62


def _inside(moment: int, edges: Any) -> bool:
    return edges is not None and int(np.searchsorted(edges, moment, side="right")) % 2 == 1


class _Slot:
    def __init__(self, index: int) -> None:
        self.index = index
        self.stream = -1
        self.members: list[int] = []
        self.free_since = 0
        self.end: int | None = None


def replay_tokens(offers: Offers, services: Services, rules: Rules) -> dict[str, Any]:
    """Start, completion, first token and tokens' times of each request, its parts, and the peak of reserved cache."""
    g = offers.generation
    assert g is not None and rules.slots is not None
    n, count = offers.arrival_ns.size, rules.slots
    arrival = offers.arrival_ns.tolist()
    slots = [_Slot(j) for j in range(rules.slots)]
    waiting: list[int] = []
    chunk, tokens = [0] * n, [[] for _ in range(n)]
    start, completion = [0] * n, [0] * n
    slot_of = [0] * n
    names = ("base", "padding", "fallback", "off_home", "throttle", "interleaved")
    parts = {name: [0] * n for name in names}
    reserved = [0] * len(rules.streams)
    peak = list(reserved)
    limit = min(rules.slots, rules.admission_limit or rules.slots)
    coming = 0

    def allowed(q: int, slot: _Slot) -> bool:
        if rules.placement == "static":
            return slot.index in rules.streams[offers.stream[q]].home
        return rules.placement != "round-robin" or slot.index == q % count

    def at_home(q: int, slot: _Slot) -> bool:
        homes = rules.placement in ("static", "home-first", "stealing")
        return homes and slot.index in rules.streams[offers.stream[q]].home

    def chunk_of(q: int) -> tuple[int, int, int, int]:
        if chunk[q] == 0:
            num, den = (int(v) for v in offers.padding[q])
            return int(offers.plan[q]), int(offers.own_ns[q]), num, den
        plan, own, num, den = (int(v) for v in g.later[q, 1 if chunk[q] == g.chunks[q] - 1 else 0])
        return plan, own, num, den

    def begin(slot: _Slot, now: int) -> None:
        decoding = g.streams[slot.stream]
        groups: dict[Any, list[int]] = {}
        for q in slot.members:
            if chunk[q] < g.chunks[q]:
                groups.setdefault((chunk_of(q)[0], *offers.fallback[q].tolist()), []).append(q)
            else:
                groups.setdefault("decode", []).append(q)
        told, total = [], 0
        # Those who decode go last, whoever joined first.
        for key, group in sorted(groups.items(), key=lambda item: item[0] == "decode"):
            b = len(group)
            if key == "decode":
                pasts = [int(g.past[q]) + len(tokens[q]) - 1 for q in group]
                held, plan = next(
                    ((held, row) for held, row in decoding.plans if held >= max(pasts)), decoding.plans[-1]
                )
                scale = max(pasts) / held if max(pasts) > held else 1.0
                fall = decoding.beyond if max(pasts) > held else (1, 1)
                own = decoding.step_ns * b
                size = sum(float(g.step_size[q]) for q in group)
                size = size * scale if scale != 1.0 else size
                pads = [(past, held) if past < held < ANY else (1, 1) for past in pasts]
            else:
                plan, fall = key[0], key[1:]
                own = sum(chunk_of(q)[1] for q in group)
                size = sum(float(offers.size[q]) for q in group)
                pads = [chunk_of(q)[2:] for q in group]
            fixed = int(services.launch_ns[plan, b])
            rest = int(services.base_ns[plan, b]) - fixed + own
            mean = size / b
            alone = fixed + (rest if mean == 1.0 else round(mean * rest))
            after = alone * fall[0] // fall[1]
            home = after
            if rules.off_home is not None:
                num, den = (int(v) for v in rules.off_home[slot.stream, slot.index])
                home = after * num // den
            service = home
            if _inside(now, rules.throttle_edges_ns):
                service = home * rules.throttle[0] // rules.throttle[1]
            total += service
            told.append((group, pads, alone, after, home, service))
        for group, pads, alone, after, home, service in told:
            for q, (num, den) in zip(group, pads, strict=True):
                own = alone * num // den
                for name, ns in zip(
                    names,
                    (own, alone - own, after - alone, home - after, service - home, total - service),
                    strict=True,
                ):
                    parts[name][q] += ns
        slot.end = now + total

    def joinable(q: int, slot: _Slot, edges: list[_Slot], closed: set[int]) -> bool:
        s = int(offers.stream[q])
        fills = g.streams[s].chunked and any(chunk[m] < g.chunks[m] for m in slot.members)
        return (
            slot in edges
            and slot.stream == s
            and allowed(q, slot)
            and slot.index not in closed
            and 0 < len(slot.members) < rules.streams[s].batch
            and not fills
        )

    def join(now: int, edges: list[_Slot]) -> None:
        closed: set[int] = set()
        fresh: list[_Slot] = []
        rank = {
            q: rules.streams[offers.stream[q]].priority if rules.discipline == "priority" else 0
            for q in waiting
        }
        stuck: set[Any] = set()
        for q in sorted(waiting, key=lambda q: (-rank[q], q)):
            s = int(offers.stream[q])
            line = (s, q % count if rules.placement == "round-robin" else 0)
            if line in stuck:
                continue
            capacity = g.streams[s].kv_capacity_bytes
            if capacity is not None and reserved[s] + int(g.kv_bytes[q]) > capacity:
                stuck.add(line)
                continue
            chosen = None
            together = [slot for slot in fresh if joinable(q, slot, edges, closed)]
            idle = [slot for slot in slots if not slot.members and allowed(q, slot)]
            if together:
                chosen = min(together, key=lambda slot: (not at_home(q, slot), slot.index))
            elif idle and sum(bool(slot.members) for slot in slots) < limit:
                if rules.placement in ("home-first", "stealing"):
                    chosen = min(idle, key=lambda slot: (not at_home(q, slot), slot.index))
                else:
                    chosen = min(idle, key=lambda slot: (slot.free_since, slot.index))
                chosen.stream = s
                closed.discard(chosen.index)
                edges.append(chosen)
                fresh.append(chosen)
            else:
                room = [slot for slot in edges if joinable(q, slot, edges, closed)]
                if room:
                    chosen = min(room, key=lambda slot: (not at_home(q, slot), slot.index))
            if chosen is None:
                stuck.add(line)
                closed |= {slot.index for slot in slots if allowed(q, slot)}
                continue
            waiting.remove(q)
            chosen.members.append(q)
            start[q], slot_of[q] = now, chosen.index
            reserved[s] += int(g.kv_bytes[q])
            peak[s] = max(peak[s], reserved[s])

    while True:
        moments = [slot.end for slot in slots if slot.end is not None]
        moments += arrival[coming : coming + 1]
        if not moments:
            break
        now = min(moments)
        while coming < n and arrival[coming] <= now:
            waiting.append(coming)
            coming += 1
        edges = []
        for slot in slots:
            if slot.end != now:
                continue
            slot.end = None
            for q in list(slot.members):
                if chunk[q] < g.chunks[q]:
                    chunk[q] += 1
                if chunk[q] == g.chunks[q]:
                    tokens[q].append(now)
                if len(tokens[q]) == g.tokens[q]:
                    completion[q] = now
                    reserved[int(offers.stream[q])] -= int(g.kv_bytes[q])
                    slot.members.remove(q)
            if slot.members:
                edges.append(slot)
            else:
                slot.free_since = now
        join(now, edges)
        for slot in sorted(edges, key=lambda slot: slot.index):
            begin(slot, now)
    return {
        "start": start,
        "completion": completion,
        "tokens": tokens,
        "parts": parts,
        "peak": peak,
        "slot": slot_of,
    }
