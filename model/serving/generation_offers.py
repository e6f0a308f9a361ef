"""A stream's generation rule and tokens to what its requests ask for: chunks of prompts, decode plans, cache.

Knows CONTRACT's ``generation``; where plans become rows of the table of services, a function is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from .generation import ANY_PAST, Decoding, Times
from .result import ServiceProfile
from .streams import Cost, GivenService, Stream, cost_by_size


@dataclass(frozen=True, eq=False, slots=True)
class Chunks:
    """How prompts are cut, int64[n] each: chunks, and tokens of the first and of the last (of one, the same)."""

    count: Times
    first: Times
    last: Times

    @classmethod
    def of(cls, stream: Stream) -> Chunks:
        """Of all requests of a stream. Blocks that are cached are not computed, but the last token always is."""
        arrivals, rule = stream.arrivals, stream.generation
        tokens = arrivals.input_tokens
        if rule is None:
            return cls(np.ones_like(tokens), tokens, tokens)
        if rule.prefix_block_tokens and arrivals.cached_blocks is not None:
            cached = arrivals.cached_blocks * rule.prefix_block_tokens
            tokens = np.maximum(np.minimum(tokens, 1), tokens - cached)
        most = rule.chunk_tokens or max(1, int(tokens.max()))
        count = np.maximum(1, -(-tokens // most))
        return cls(count, np.minimum(tokens, most), tokens - (count - 1) * most)


def decoding_of(
    stream: Stream, past: Times, outputs: Times, row: Callable[[Sequence[Cost]], int]
) -> Decoding:
    """What the steps of a stream cost; `row` makes one of a plan's costs at batch 1, 2, ...

    Raises
    ------
    UsageError : nothing says what a step takes, or no plan holds the longest past and nothing falls back.
    """
    rule = stream.generation
    assert rule is not None
    capacity, chunked = rule.kv_capacity_bytes, rule.chunk_tokens > 0
    if not rule.decode:
        if isinstance(stream.service, GivenService):
            none = row([0] * stream.batch)
            return Decoding(
                ((ANY_PAST, none),), stream.service.per_output_ns, kv_capacity_bytes=capacity, chunked=chunked
            )
        if int(outputs.max()) == 1:
            return Decoding(kv_capacity_bytes=capacity, chunked=chunked)
        raise UsageError(
            "nothing says how long a decode step takes",
            where=f"stream {stream.name}",
            lever="Set generation.decode, or service with per_output_ns.",
        )
    pasts = sorted({plan.length or ANY_PAST for plan in rule.decode})
    plans = tuple(
        (held, row(cost_by_size(rule.decode, None if held == ANY_PAST else held, stream.batch)))
        for held in pasts
    )
    longest = int((past + outputs - 2).max())
    if longest > pasts[-1] and stream.fallback is None:
        raise UsageError(
            f"a request decodes with a past of {longest:,} tokens, longer than the longest decode plan ({pasts[-1]:,})",
            where=f"stream {stream.name}",
            lever="Add a decode plan of a longer past, or set fallback.",
        )
    beyond = (stream.fallback.num, stream.fallback.den) if stream.fallback is not None else (1, 1)
    return Decoding(plans, 0, beyond, capacity, chunked)


def kv_bytes(stream: Stream, tokens: Times, known: Callable[[Cost], Cost | None]) -> Times:
    """int64[n]: the cache that each request holds, of all its `tokens`; 0 where nothing says how much a token takes.

    Raises
    ------
    UsageError : a request needs more than there is, or there is a limit and nothing says what a token takes.
    """
    rule = stream.generation
    assert rule is not None
    each, capacity = rule.kv_bytes_per_token, rule.kv_capacity_bytes
    if each is None:
        for plan in rule.decode:
            cost = known(plan.cost)
            if isinstance(cost, ServiceProfile) and cost.past_bytes and plan.length:
                each = -(-cost.past_bytes // (plan.length * plan.batch))
                break
    if each is None:
        if capacity is not None:
            raise UsageError(
                "kv_capacity_bytes limits what is admitted, and nothing says how many bytes a token takes",
                where=f"stream {stream.name}",
                lever="Set generation.kv_bytes_per_token.",
            )
        return np.zeros_like(tokens)
    most = int(tokens.max())
    if most * each > (ANY_PAST if capacity is None else capacity):
        raise UsageError(
            f"a request of {most:,} tokens needs {most * each:,} bytes of KV cache, and there are {capacity or 0:,}",
            where=f"stream {stream.name}",
            lever="Raise kv_capacity_bytes, or leave such requests out.",
        )
    return tokens * each
