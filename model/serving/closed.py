"""A closed loop: clients that each wait for their answer and think before they ask again, to arrival times.

Knows arrays and scalars only. When a request comes follows from when the one before it is answered, so that these times
hold for one replay: first in first out, any slot, no batches, no contention.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ..compiled import kernel
from .replay import throttled

Times = NDArray[np.int64]


@kernel("void(int64[::1], int64[::1], int64, int64, int64[::1], int64, int64, int64[::1])")
def closed_arrivals(
    service: Times, think: Times, clients: int, slots: int, edges: Times, num: int, den: int, arrival: Times
) -> None:
    """Fill `arrival` (int64[n] ns, ascending) for requests that take `service` in their order of arrival.

    Parameters
    ----------
    think : int64[clients + n]: before each client's first request, then after request 0, 1, ...
    edges, num, den : throttle windows as in `replay`.

    The next to come is the earliest that any client waits to send, the lowest client of equals; it takes the slot with
    the least free time. No answer is earlier than its request, so that requests are found in order.
    """
    coming = [(think[client], client) for client in range(clients)]
    heapq.heapify(coming)
    free = [np.int64(0) for _ in range(min(slots, clients))]
    for i in range(arrival.size):
        came, client = heapq.heappop(coming)
        arrival[i] = came
        begin = max(came, heapq.heappop(free))
        end = begin + throttled(begin, service[i], edges, num, den)
        heapq.heappush(free, end)
        heapq.heappush(coming, (end + think[clients + i], client))
