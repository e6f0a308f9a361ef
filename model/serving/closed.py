"""Kernels of a closed loop: who of the clients that think asks next.

Know arrays and scalars only. A client waits for the answer, thinks, and asks again, so that when requests come is found
in the run that answers them. A run's clients are three arrays, all empty where requests come by themselves:

``coming`` int64[clients + 1, 2] : a heap from row 1 on of those who think, (ns at which he asks, client), the earliest
    first, of equals the lowest client; coming[0, 0]: how many.
``think`` int64[clients + n] ns : before each client's first request, then after request 0, 1, ...
``client_of`` int64[n] : whose request it is; filled as requests come.
"""

from __future__ import annotations

from ..compiled import kernel
from .phases import NEVER


@kernel("int64(int64[:,::1])", inline=True, borrows=True)
def next_ns(coming):
    """When the next request comes of which it is known by now; NEVER: nobody thinks."""
    return coming[1, 0] if coming[0, 0] > 0 else NEVER


@kernel("boolean(int64, int64, int64[:,::1], int64)", inline=True, borrows=True)
def earlier(moment, client, coming, row):
    """Whether a client who asks at `moment` does so before the one in `row`."""
    other = coming[row, 0]
    return moment < other or (moment == other and client < coming[row, 1])


@kernel("void(int64, int64, int64[:,::1])", borrows=True)
def thinks(client, until, coming):
    """A client begins to think, and asks at `until`."""
    coming[0, 0] += 1
    row = coming[0, 0]
    while row > 1 and earlier(until, client, coming, row // 2):
        coming[row, 0], coming[row, 1] = coming[row // 2, 0], coming[row // 2, 1]
        row //= 2
    coming[row, 0], coming[row, 1] = until, client


@kernel("int64(int64[:,::1])", borrows=True)
def asks(coming):
    """The next client asks: he is taken out of the heap."""
    first, count = coming[1, 1], coming[0, 0]
    until, client = coming[count, 0], coming[count, 1]
    coming[0, 0] = count - 1
    row, child = 1, 2
    while child < count:
        if child + 1 < count and earlier(coming[child + 1, 0], coming[child + 1, 1], coming, child):
            child += 1
        if earlier(until, client, coming, child):
            break
        coming[row, 0], coming[row, 1] = coming[child, 0], coming[child, 1]
        row, child = child, 2 * child
    coming[row, 0], coming[row, 1] = until, client
    return first
