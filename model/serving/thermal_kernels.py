"""Kernels: how warm the die is, and whether its clock is lowered. Know scalars and the arrays of the event kernels.

Two nodes, the die on the sink and the sink in the surroundings, ``P`` watts into the die::

    C_die dT_die/dt = P - (T_die - T_sink) / R_die,        C_die = die_s / R_die
    C_sink dT_sink/dt = (T_die - T_sink) / R_die - (T_sink - ambient) / R_sink,        C_sink = sink_s / R_sink

Between two events P is constant, and the solution exact: with x the distances from the steady state ``T_sink = ambient
+ P R_sink, T_die = T_sink + P R_die`` and A the matrix above, ``x(t) = exp(A t) x(0)``, by A's two real eigenvalues.
"""

from __future__ import annotations

import math

from ..compiled import kernel
from .phases import F_RATE, F_WATTS, NEVER, S_END, V_LOW, V_WIDE

# ``heat``: float64[HEAT], empty where nothing warms; constants first. Times in ns, matrix and eigenvalues in 1/s.
(
    H_FAST,
    H_LATE,
    H_DIE_DIE,
    H_DIE_SINK,
    H_SINK_DIE,
    H_SINK_SINK,
    H_R_DIE,
    H_R_SINK,
    H_AMBIENT,
    H_THROTTLE,
    H_RESUME,
    H_CLOCK,
    H_CAP,
    H_STATIC,
    H_BUSY,  # W of a slot at work that plays no plan
    H_DIE,
    H_SINK,
    H_WATTS,  # since H_NOW
    H_NOW,
    H_SLOW,
    H_SLOW_NS,
    H_ENERGY,
    H_PEAK_DIE,
    H_PEAK_SINK,
    H_CAPPED,  # batches whose clock the power cap lowered
) = range(25)
HEAT = 25
# Rows of ``warmth``: float64[WARMTH_ROWS, columns + 1]: temperatures at the edges of the columns of time of ``view``,
# and ns of each column in which the die kept the clock low.
K_DIE, K_SINK, K_LOW = range(3)
WARMTH_ROWS = 3


@kernel("UniTuple(float64, 2)(float64, float64[::1])", inline=True, borrows=True)
def after(seconds, heat):
    """Temperatures of die and sink after `seconds` of the power drawn now."""
    sink_end = heat[H_AMBIENT] + heat[H_WATTS] * heat[H_R_SINK]
    die_end = sink_end + heat[H_WATTS] * heat[H_R_DIE]
    x, y = heat[H_DIE] - die_end, heat[H_SINK] - sink_end
    fast, late = heat[H_FAST], heat[H_LATE]
    one, other = math.exp(fast * seconds) / (fast - late), math.exp(late * seconds) / (fast - late)
    die, sink, share = heat[H_DIE_DIE], heat[H_SINK_SINK], heat[H_DIE_SINK] * y
    back = heat[H_SINK_DIE] * x
    return (
        die_end + one * ((die - late) * x + share) - other * ((die - fast) * x + share),
        sink_end + one * ((sink - late) * y + back) - other * ((sink - fast) * y + back),
    )


@kernel("void(int64, float64[::1])", borrows=True)
def warm(now, heat):
    """Bring temperatures, clock and energy up to `now`.

    The clock is lowered when the die reaches H_THROTTLE, and again as it was when it has cooled to H_RESUME, at the
    moment at which it does so, found by bisection.
    """
    seconds = (now - heat[H_NOW]) * 1e-9
    if seconds <= 0.0:
        return
    die, sink = after(seconds, heat)
    slow = heat[H_SLOW] != 0.0
    if slow:
        heat[H_SLOW_NS] += seconds * 1e9
    if (slow and die <= heat[H_RESUME]) or (not slow and die >= heat[H_THROTTLE]):
        low, high = 0.0, seconds
        for _ in range(50):
            middle = 0.5 * (low + high)
            then = after(middle, heat)[0]
            if (slow and then <= heat[H_RESUME]) or (not slow and then >= heat[H_THROTTLE]):
                high = middle
            else:
                low = middle
        heat[H_SLOW] = 0.0 if slow else 1.0
        heat[H_SLOW_NS] += (high - seconds if slow else seconds - high) * 1e9
    heat[H_ENERGY] += heat[H_WATTS] * seconds
    heat[H_DIE], heat[H_SINK], heat[H_NOW] = die, sink, float(now)
    heat[H_PEAK_DIE], heat[H_PEAK_SINK] = max(heat[H_PEAK_DIE], die), max(heat[H_PEAK_SINK], sink)


@kernel("void(int64, float64[::1], float64[::1], float64[:,::1])", borrows=True)
def warm_seen(now, heat, view, warmth):
    """`warm`, and what it passes by: temperatures at edges of columns, and how long each has the clock low."""
    columns, since = warmth.shape[1] - 1, heat[H_NOW]
    low, wide = view[V_LOW], view[V_WIDE]
    edge = max(0, math.ceil((since - low) / wide))
    while edge <= columns and low + edge * wide <= now:
        die, sink = after((low + edge * wide - since) * 1e-9, heat)
        warmth[K_DIE, edge], warmth[K_SINK, edge] = die, sink
        edge += 1
    slow, before = heat[H_SLOW] != 0.0, heat[H_SLOW_NS]
    warm(now, heat)
    lowered = heat[H_SLOW_NS] - before
    if lowered <= 0.0:
        return
    # The clock changes at most once between two events: it was low from the first on, or until the second.
    begin = since if slow else float(now) - lowered
    end = min(begin + lowered, low + wide * columns)
    begin = max(begin, low)
    if begin >= end:
        return
    for column in range(int((begin - low) / wide), min(columns - 1, int((end - low) / wide)) + 1):
        warmth[K_LOW, column] += max(
            0.0, min(end, low + (column + 1) * wide) - max(begin, low + column * wide)
        )


@kernel("float64(int64, int64[:,::1], float64[:,::1], float64[::1])", inline=True, borrows=True)
def drawn(used, slot, flow, heat):
    """Watts that are drawn now: static power, and of each slot what its batch draws at the rate at which it goes on.

    Power follows the rate, so that a batch spends its plan's energy however long it stalls.
    """
    watts = heat[H_STATIC]
    for j in range(used):
        if slot[S_END, j] != NEVER:
            watts += flow[F_WATTS, j] * flow[F_RATE, j]
    return watts


@kernel("boolean(float64, int64, int64[:,::1], float64[:,::1], float64[::1])", inline=True, borrows=True)
def clock_is_low(watts, used, slot, flow, heat):
    """Whether a batch that would draw `watts` at full clock starts at the low one, and keeps it: the die is hot, or it
    would take the machine over its power cap.
    """
    if heat[H_SLOW] != 0.0:
        return True
    if drawn(used, slot, flow, heat) + watts > heat[H_CAP]:
        heat[H_CAPPED] += 1.0
        return True
    return False
