"""The slow plain truth of a first-in-first-out replay, for tests: lists and loops, nothing of the model."""

from __future__ import annotations


def replay(arrival, service, slots, placement="dynamic", windows=(), factor=(1, 1)):
    """Start, completion and slot of every request, by looking at every slot for every request."""
    free = [0] * slots
    out = []
    for i, (came, needs) in enumerate(zip(arrival, service, strict=True)):
        if placement == "dynamic":
            slot = min(range(slots), key=lambda s: (free[s], s))
        else:
            slot = i % slots
        start = max(came, free[slot])
        if any(begin <= start < end for begin, end in windows):
            needs = needs * factor[0] // factor[1]
        free[slot] = start + needs
        out.append((start, start + needs, slot))
    return out


def waiting_beside_idle(arrival, rows, slots):
    """Per request the nanoseconds of its wait in which fewer than `slots` requests were in service."""
    out = []
    for came, (start, _, _) in zip(arrival, rows, strict=True):
        busy = [sum(1 for begin, end, _ in rows if begin <= t < end) for t in range(came, start)]
        out.append(sum(1 for number in busy if number < slots))
    return out
