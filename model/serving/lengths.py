"""Which K lengths to compile plans for, so that a trace's requests cost the least: exactly, by dynamic programming.

A request runs on the shortest plan that holds it, at a cost of that plan's length in tokens; one that is longer than
the longest plan falls back, at `fallback_factor` times its own length. Plans have lengths that occur.

Let v[0] < v[1] ... be the distinct lengths and N[i] the number of requests of length v[i] or less. With j - 1 plans
for the first i + 1 lengths at cost C[i], one more plan of length v[k], k > i, costs ``C[i] - N[i] v[k] + N[k] v[k]``:
for each i a line in v[k]. Lines come in order of falling slope and are asked in order of rising v, so that the least is
found in constant time (the convex hull trick): K m steps for m distinct lengths. All sums are exact integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .arrivals import exact

_LARGEST_COST = 1 << 61


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of compiled plans, ascending, and what they cost a trace.

    Attributes
    ----------
    cost_tokens : of all requests; an integer where the factor is one.
    fallbacks : requests that are longer than the longest plan.
    requests, own_tokens : how many there are and how many tokens they have: the cost without any padding.
    """

    plans: tuple[int, ...]
    cost_tokens: Fraction
    fallbacks: int
    requests: int
    own_tokens: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one stream.

    Attributes
    ----------
    factor : of those that fall back; None: the longest plan holds the longest request.
    chosen : the plans, and what they cost the requests that they were chosen for.
    later : what they cost the second half, where they were chosen for the first; None: chosen for all.
    hindsight : the best plans for that second half.
    powers : powers of two from 32 on, for the requests that count (the later ones, where there are).
    """

    stream: str
    factor: Fraction | None
    chosen: Lengths
    later: Lengths | None
    hindsight: Lengths | None
    powers: Lengths


def choose_for(
    stream: str, tokens: NDArray[np.int64], count: int, factor: float | None, train_half: bool
) -> Choice:
    """The best `count` lengths for a stream's requests, in order of arrival: see `Choice`.

    With `train_half` plans are chosen for the first n // 2 requests, and the rest may be longer than all of them: the
    factor is 3 where none is given.

    Raises
    ------
    UsageError : as `choose_lengths`; or there are no tokens to go by.
    """
    if not tokens.any():
        raise UsageError(f"the requests of stream {stream!r} have no tokens to choose lengths by")
    exactly = Fraction(3) if train_half and factor is None else None if factor is None else exact(factor)
    if not train_half:
        powers = cost_of(tokens, _powers(tokens), Fraction(0))
        return Choice(stream, exactly, choose_lengths(tokens, count, exactly), None, None, powers)
    first, second = np.split(tokens, [tokens.size // 2])
    chosen = choose_lengths(first, count, exactly)
    assert exactly is not None
    return Choice(
        stream,
        exactly,
        chosen,
        cost_of(second, chosen.plans, exactly),
        choose_lengths(second, count, exactly),
        cost_of(second, _powers(second), Fraction(0)),
    )


def _powers(tokens: NDArray[np.int64]) -> tuple[int, ...]:
    """32, 64 ... up to the first that holds every request."""
    return tuple(1 << k for k in range(5, max(6, int(tokens.max() - 1).bit_length() + 1)))


def choose_lengths(tokens: NDArray[np.int64], count: int, fallback_factor: Fraction | None = None) -> Lengths:
    """The at most `count` lengths of least cost for requests of these lengths (int64[n]).

    Parameters
    ----------
    fallback_factor : None where the longest plan must hold the longest request.

    Raises
    ------
    UsageError : no requests, no plans, a factor below 0, or costs beyond int64.
    """
    if tokens.size == 0 or count < 1:
        raise UsageError(f"{count} plans for {tokens.size} requests: both need at least one")
    if fallback_factor is not None and fallback_factor < 0:
        raise UsageError(f"a fallback factor of {float(fallback_factor):g} is below 0")
    lengths, times = np.unique(tokens, return_counts=True)
    below = np.cumsum(times)
    factor = fallback_factor if fallback_factor is not None else Fraction(0)
    scale = factor.denominator
    if int(below[-1]) * int(lengths[-1]) * max(scale, factor.numerator) >= _LARGEST_COST:
        raise UsageError("the trace has too many tokens for exact costs")
    values = (lengths * scale).tolist()
    number = below.tolist()
    upto = np.cumsum(lengths * times)
    # What it costs that everything longer than length i falls back.
    rest: list[int | None] = ((upto[-1] - upto) * factor.numerator).tolist()
    if fallback_factor is None:
        rest[:-1] = [None] * (len(values) - 1)

    cost = [number[k] * values[k] for k in range(len(values))]  # one plan, for the first k + 1 lengths
    came_from: list[list[int]] = [[]]
    best, used = _cheapest(cost, rest), 1
    while len(came_from) < min(count, len(values)):
        cost, origin = _one_more(cost, values, number, len(came_from))
        came_from.append(origin)
        found = _cheapest(cost, rest)
        if found < best:
            best, used = found, len(came_from)
    chosen = [best[1]]
    for origin in reversed(came_from[1:used]):
        chosen.append(origin[chosen[-1]])
    return cost_of(tokens, tuple(int(lengths[k]) for k in reversed(chosen)), factor)


def _cheapest(cost: list[int], rest: list[int | None]) -> tuple[int, int]:
    """(total cost, index of the longest plan), the first of equals."""
    return min(
        (own + more, k) for k, (own, more) in enumerate(zip(cost, rest, strict=True)) if more is not None
    )


def _one_more(
    cost: list[int], values: list[int], number: list[int], plans: int
) -> tuple[list[int], list[int]]:
    """Least costs with one plan more, by index of the longest plan, and the index of the one before it.

    `cost` is that of `plans` plans, and counts from index ``plans - 1`` on: as many plans need as many lengths.
    """
    size = len(values)
    out, origin = [_NEVER] * size, [-1] * size
    hull: list[tuple[int, int, int]] = []  # (slope, offset, index), each least on a stretch of lengths
    first = 0
    for k in range(plans, size):
        slope, offset = -number[k - 1], cost[k - 1]
        while len(hull) - first >= 2 and _needless(hull[-2], hull[-1], slope, offset):
            hull.pop()
        hull.append((slope, offset, k - 1))
        x = values[k]
        while (
            len(hull) - first >= 2
            and hull[first][0] * x + hull[first][1] >= hull[first + 1][0] * x + hull[first + 1][1]
        ):
            first += 1
        least = hull[first]
        out[k], origin[k] = number[k] * x + least[0] * x + least[1], least[2]
    return out, origin


_NEVER = 1 << 62


def _needless(one: tuple[int, int, int], two: tuple[int, int, int], slope: int, offset: int) -> bool:
    """Whether line `two` is nowhere below both `one` and the new line; slopes fall from one to the next."""
    return (offset - one[1]) * (one[0] - two[0]) <= (two[1] - one[1]) * (one[0] - slope)


def cost_of(tokens: NDArray[np.int64], plans: tuple[int, ...], fallback_factor: Fraction) -> Lengths:
    """What these plans cost requests of these lengths (int64[n]); `plans` ascending."""
    place = np.searchsorted(plans, tokens)
    held = place < len(plans)
    padded = int(np.array(plans, dtype=np.int64)[place[held]].sum())
    beyond = int(tokens[~held].sum())
    return Lengths(
        plans,
        padded + beyond * fallback_factor,
        int(np.count_nonzero(~held)),
        tokens.size,
        int(tokens.sum()),
    )
