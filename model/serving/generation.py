"""Requests that are answered token by token, as values: what each asks for, and what their streams' steps cost.

Knows which plan holds how much past; knows no queue. A request prefills its prompt in one or more chunks, the last of
which yields the first token, and then decodes ``tokens - 1`` more, one a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

PREFIX_BLOCK_TOKENS = 512
"""Tokens of a cached block where the workload does not say: those of the Mooncake traces' ``hash_ids``."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What the steps of one stream cost: how CONTRACT's ``generation`` was meant.

    Attributes
    ----------
    plans : (longest past that it holds, row of `Services`), ascending; one of past `ANY_PAST` holds every one. A step
        of b requests runs at batch b on the shortest that holds the longest past among them. Empty: no request
        decodes.
    step_ns : what each request adds to a step, beside the plan.
    beyond : (num, den) on steps beyond the longest plan, whose work then grows with the past.
    kv_capacity_bytes : the most that the stream's requests hold on all slots together; None: no limit.
    chunked : prompts are cut: a slot fills one request's cache at a time, and others join when it is full.
    """

    plans: tuple[tuple[int, int], ...] = ()
    step_ns: int = 0
    beyond: tuple[int, int] = (1, 1)
    kv_capacity_bytes: int | None = None
    chunked: bool = False


ANY_PAST = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Generation:
    """What requests ask for beyond their first chunk, which is what `Offers` says of them; all by request.

    Attributes
    ----------
    chunks : int64[n], at least 1.
    later : int64[n, 2, 4]: plan, own ns and padding (num, den) of each chunk between the first and the last, and of the
        last, where there are several.
    past : int64[n], tokens in the cache once the prompt is there. tokens : int64[n] to yield, at least 1.
    kv_bytes : int64[n], held from start to completion.
    step_size : float64[n], size of the decode steps.
    rest_ns : int64[n], what a request alone on its slot takes after its first chunk.
    instead : int32[plans]: the compiled plan in whose place a fallback plan runs; -1 for compiled plans.
    streams : per stream.
    """

    chunks: Times
    later: Times
    past: Times
    tokens: Times
    kv_bytes: Times
    step_size: NDArray[np.float64]
    rest_ns: Times
    instead: NDArray[np.int32]
    streams: tuple[Decoding, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Generated:
    """What happened token by token; per request in the order of the offers, arrays read-only.

    Attributes
    ----------
    first_token_ns : int64[n]. tokens : int64[n].
    energy_j : float64[n]: of every segment its profile's energy, shared by those who ran in it.
    busy_ns : int64[slots], iterations under way. iterations : int64[largest batch + 1], by how many ran in them.
    kv_peak_bytes : per stream the most that was reserved at one time.
    """

    first_token_ns: Times
    tokens: Times
    energy_j: NDArray[np.float64]
    busy_ns: Times
    iterations: Times
    kv_peak_bytes: tuple[int, ...]


def steps_ns(
    decoding: Decoding, base_ns: NDArray[np.int64], batch: int, past: Times, tokens: Times
) -> NDArray[np.float64]:
    """float64[n]: ns of all decode steps of each request where every step runs full batches; its share of them.

    Parameters
    ----------
    base_ns : int64[plans, batches + 1] as in `Services`.
    batch : 1: alone on its slot.
    """
    steps = np.maximum(tokens - 1, 0)
    total = (steps * decoding.step_ns).astype(np.float64)
    before = np.zeros_like(steps)
    for held, row in decoding.plans:  # step k has a past of past + k, from k = 0 on
        there = np.clip(held - past + 1, 0, steps)
        total += (there - before) * (base_ns[row, batch] / batch)
        before = there
    beyond = steps - before
    if beyond.any():
        held, row = decoding.plans[-1]
        pasts = beyond * (past + before) + beyond * (beyond - 1) // 2
        ratio = decoding.beyond[0] / decoding.beyond[1]
        total += (pasts / held) * (base_ns[row, batch] / batch) * ratio
    return total
