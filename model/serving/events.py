"""Kernels: batches through slots, event by event, in integer nanoseconds, with DRAM shared between them.

Know arrays and scalars only; `exact.py` lays them out. A run can stop after any event and go on later: all that it
remembers lies in its arrays.

Events are ends of phases, arrivals that find a slot idle, and lingers that run out. All at one nanosecond are taken
together, in this order: phases end, in order of their slots; requests arrive, those of clients who were answered just
now among them; batches start, one after the other; then the bandwidth is shared anew. So what comes at t can start at
t, and a slot that falls free at t serves it.

With preemption a batch gives up its slot before every launch but its first and competes with those that wait: the
higher priority goes first, then the suspended in order of suspension, then the new. It takes its old slot if that is
idle, else one by placement, and its phases stay as long as they were. Mostly it is back within the same nanosecond.

How a batch goes through its phases, and what they get of the bandwidth, is `phases.py`'s.
"""

from __future__ import annotations

from ..compiled import kernel
from .closed import asks, next_ns, thinks
from .phases import (
    F_RATE,
    F_REST,
    F_SIZE,
    F_STRETCH,
    F_WATTS,
    LAUNCH,
    M_KIND,
    NEVER,
    S_BEGIN,
    S_BURST,
    S_COUNT,
    S_END,
    S_ENTER,
    S_FIRST,
    S_FIXED,
    S_FREE,
    S_FROM,
    S_LENGTH,
    S_POOL,
    S_PREEMPTED,
    S_PROFILE,
    S_REACHED,
    S_REFETCH,
    S_REPEATS,
    S_ROW,
    S_SCALED,
    S_SERVICE,
    S_SINCE,
    S_SPILL,
    S_STEADY,
    leave,
    next_phase,
    pass_by,
    put,
    share,
    split_stall,
)
from .thermal_kernels import H_BUSY, H_CLOCK, H_DIE, H_WATTS, clock_is_low, drawn, warm, warm_seen

# Columns of ``offer``: int64[n, OFFER_COLUMNS].
Q_STREAM, Q_PLAN, Q_OWN, Q_PAD, Q_PAD_DEN, Q_FALL, Q_FALL_DEN = range(7)
OFFER_COLUMNS = 7
# Columns of ``lane``, a first-in-first-out line of requests that batch with each other: int64[lanes, LANE_COLUMNS].
# Its requests are queue[head:tail] so far.
G_HEAD, G_TAIL, G_BATCH, G_LINGER, G_PRIORITY, G_STREAM = range(6)
LANE_COLUMNS = 6
# Columns of ``parts``: int64[n, PART_COLUMNS].
P_PREEMPTED, P_BASE, P_PADDING, P_FALLBACK, P_OFF_HOME, P_BURST, P_STEADY, P_SPILL, P_REFETCH, P_THROTTLE = (
    range(10)
)
PART_COLUMNS = 10
# ``rule``: int64[RULES].
(
    R_PLACEMENT,
    R_DISCIPLINE,
    R_LIMIT,
    R_LINGERS,
    R_OFF_HOME,
    R_SHARED,  # 0: bandwidth without end
    R_NUM,
    R_DEN,
    R_PREEMPT,
) = range(9)
RULES = 9
LEAST_FREE, LOWEST, BOUND, HOME_FIRST, STEALING = range(5)
FIFO, PRIORITY, DEFICIT = range(3)
# ``state``: int64[STATES].
X_NOW, X_NEXT, X_DONE, X_BUSY, X_USED, X_WAITING, X_TURN, X_GRANTED, X_CUT_SHORT, X_EVENTS, X_HELD = range(11)
STATES = 11
# What `advance` answers.
FINISHED, MORE, MORE_SLOTS = range(3)


@kernel(
    "int64(int64, int64, int64[::1], int64[:,::1], float64[::1], int64[:,::1], int64[:,::1], float64)",
    inline=True,
    borrows=True,
)
def alone(first, count, queue, offer, size, base, launch, clock):
    """Ns that the batch queue[first : first + count] takes alone at that clock, before fallback.

    ``base`` is the clock's own; what requests add to it is computed.
    """
    q = queue[first]
    plan = offer[q, Q_PLAN]
    own = offer[q, Q_OWN]
    mean = size[q]
    for k in range(first + 1, first + count):
        own += offer[queue[k], Q_OWN]
        mean += size[queue[k]]
    mean /= count
    if clock != 1.0:
        own = round(own / clock)
    fixed = launch[plan, count]
    rest = base[plan, count] - fixed + own
    if mean != 1.0:
        rest = round(mean * rest)
    return fixed + rest


@kernel("boolean(int64, int64[::1])", inline=True, borrows=True)
def inside(moment, edges):
    """Whether an odd number of edges lies at or before `moment`."""
    low, high = 0, edges.size
    while low < high:
        middle = (low + high) // 2
        if edges[middle] <= moment:
            low = middle + 1
        else:
            high = middle
    return low % 2 == 1


@kernel(
    "int64(int64, int64, boolean, int64, int64[:,::1], boolean[:,::1], boolean[:,::1])",
    inline=True,
    borrows=True,
)
def place(lane, stream, at_home, placement, slot, allowed, home):
    """The idle slot for the first batch of a lane, or -1; `at_home`: only one of the stream's own."""
    end, free = slot[S_END], slot[S_FREE]
    if placement == LOWEST:  # one beyond the last may be taken, if the arrays have it
        for j in range(slot.shape[1]):
            if end[j] == NEVER:
                return j
        return -1
    best = -1
    if placement >= HOME_FIRST:
        for j in range(slot.shape[1]):
            if end[j] == NEVER:
                if home[stream, j]:
                    return j
                if best < 0:
                    best = j
        return -1 if at_home else best
    for j in range(slot.shape[1]):
        if (
            end[j] == NEVER
            and (best < 0 or free[j] < free[best])
            and (placement == LEAST_FREE or allowed[lane, j])
        ):
            best = j
    return best


@kernel("boolean(int64, int64, int64[:,::1], int64[::1], int64[::1])", inline=True, borrows=True)
def ready(lane, now, lanes, queue, arrival):
    """Whether the lane has a batch that need not wait for more."""
    head, waiting = lanes[lane, G_HEAD], lanes[lane, G_TAIL] - lanes[lane, G_HEAD]
    if waiting <= 0:
        return False
    return waiting >= lanes[lane, G_BATCH] or arrival[queue[head]] + lanes[lane, G_LINGER] <= now


@kernel(
    "UniTuple(int64, 2)(int64, boolean, int64, int64[::1], int64[:,::1], int64[:,::1], boolean[:,::1], boolean[:,::1],"
    "int64[::1], int64[::1], int64[:,::1])",
    inline=True,
    borrows=True,
)
def oldest(of_stream, at_home, now, rule, lanes, slot, allowed, home, queue, arrival, offer):
    """Lane and slot of the batch that goes first by priority (where that counts), then age; (-1, -1): none.

    of_stream : -1, or only the lanes of this stream.
    """
    found, where, first, rank = -1, -1, 0, 0
    for lane in range(lanes.shape[0]):
        if of_stream >= 0 and lanes[lane, G_STREAM] != of_stream:
            continue
        if not ready(lane, now, lanes, queue, arrival):
            continue
        head = queue[lanes[lane, G_HEAD]]
        priority = lanes[lane, G_PRIORITY] if rule[R_DISCIPLINE] == PRIORITY else 0
        if found >= 0 and (priority < rank or (priority == rank and head > first)):
            continue
        j = place(lane, offer[head, Q_STREAM], at_home, rule[R_PLACEMENT], slot, allowed, home)
        if j >= 0:
            found, where, first, rank = lane, j, head, priority
    return found, where


@kernel(
    "int64(int64, int64[:,::1], int64[::1], int64[:,::1], float64[::1], int64[:,::1], int64[:,::1])",
    borrows=True,
)
def asked(lane, lanes, queue, offer, size, base, launch):
    """Ns that the lane's first batch takes alone, fallback included."""
    first = lanes[lane, G_HEAD]
    count = min(lanes[lane, G_BATCH], lanes[lane, G_TAIL] - first)
    q = queue[first]
    return (
        alone(first, count, queue, offer, size, base, launch, 1.0) * offer[q, Q_FALL] // offer[q, Q_FALL_DEN]
    )


@kernel(
    "UniTuple(int64, 2)(boolean, int64, int64[::1], int64[::1], int64[:,::1], int64[:,::1], boolean[:,::1],"
    "boolean[:,::1], int64[::1], int64[::1], int64[:,::1], float64[::1], int64[:,::1], int64[:,::1], int64[::1],"
    "int64[::1])",
    borrows=True,
)
def by_deficit(
    at_home,
    now,
    rule,
    state,
    lanes,
    slot,
    allowed,
    home,
    queue,
    arrival,
    offer,
    size,
    base,
    launch,
    deficit,
    quantum,
):
    """Lane and slot by deficit round robin (Shreedhar and Varghese 1996); (-1, -1): none.

    Streams in turn; a turn adds the stream's quantum once and serves while the deficit covers what the batch takes
    alone. Streams that have nothing to start are passed over; those that have nothing at all lose their deficit.
    """
    if oldest(-1, at_home, now, rule, lanes, slot, allowed, home, queue, arrival, offer)[0] < 0:
        return -1, -1
    turns = 0
    while True:
        s = state[X_TURN]
        lane, j = oldest(s, at_home, now, rule, lanes, slot, allowed, home, queue, arrival, offer)
        if lane >= 0:
            if state[X_GRANTED] == 0:
                deficit[s] += quantum[s]
                state[X_GRANTED] = 1
            asks = asked(lane, lanes, queue, offer, size, base, launch)
            if asks <= deficit[s]:
                deficit[s] -= asks
                return lane, j
        else:
            empty = True
            for k in range(lanes.shape[0]):
                if lanes[k, G_STREAM] == s and lanes[k, G_TAIL] > lanes[k, G_HEAD]:
                    empty = False
            if empty:
                deficit[s] = 0
        state[X_TURN] = s + 1 if s + 1 < deficit.size else 0
        state[X_GRANTED] = 0
        turns += 1
        if turns != deficit.size:
            continue
        # Rounds in which nobody can be served are counted, not walked: a quantum may be a millionth of a batch.
        rounds = NEVER
        for add in range(2):
            for s in range(deficit.size):
                lane, j = oldest(s, at_home, now, rule, lanes, slot, allowed, home, queue, arrival, offer)
                if lane >= 0 and add == 0:
                    asks = asked(lane, lanes, queue, offer, size, base, launch)
                    rounds = min(rounds, (asks - deficit[s] - 1) // quantum[s])
                elif lane >= 0:
                    deficit[s] += rounds * quantum[s]


@kernel(
    "int64(int64, int64[::1], int64[::1], float64[:,::1], float64, int64[::1], int64[::1], int64[:,::1], float64[::1],"
    "int64[::1], int64[::1], int64[:,::1], boolean[:,::1], boolean[:,::1], int64[:,:,::1], int64[::1], int64[::1],"
    "int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], float64[:,::1], int64[::1], int64[:,::1],"
    "float64[:,::1], int64[:,::1], float64[:,::1], int64[::1], int64[::1], int64[::1], int32[::1], int64[::1],"
    "int64[::1], int64[:,::1], float64[::1], float64[:,::1], int64[:,::1], int64[:,::1], float64[::1], float64[::1],"
    "float64[:,:,::1], float64[:,::1], int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def advance(
    budget,  # events, at most
    rule,
    state,
    pool,  # float64[POOL_ROWS, pools]
    loss,
    edges,  # of throttle windows
    arrival,
    offer,
    size,
    queue,  # int64[n]: requests by lane, each lane's in order
    lane_of,  # int64[n]
    lanes,
    allowed,  # bool[lanes, slots], for BOUND
    home,  # bool[streams, slots], for HOME_FIRST and STEALING
    off_home,  # int64[streams, slots, 2]
    deficit,  # int64[streams]
    quantum,  # int64[streams]
    base,  # int64[plans, largest batch + 1]
    launch,
    profile_of,
    profile,  # int64[profiles, 3]: first phase, last + 1, repeat
    phase,
    demand,  # float64[phases, 2]: bytes/ns and its inverse
    pool_of,  # int64[streams]
    slot,
    flow,
    held,  # suspended batches, as `slot` and `flow`, in order of suspension
    held_flow,
    start,
    completion,
    full,  # when the batch need not wait for more requests
    slot_of,
    held_ns,  # int64[slots]: how long each was held so far
    leader,  # the oldest request of the batch
    parts,
    heat,  # of `thermal_kernels`; empty: nothing warms
    joules,  # float64[plans, largest batch + 1]; below 0: what a slot at work draws
    low_base,  # `base` and `profile_of` at the low clock
    low_profile_of,
    die_c,  # float64[n], filled where something warms
    view,  # columns of time of `moved` (`phases`) and `warmth` (`thermal_kernels`); both empty: nobody looks
    moved,
    warmth,
    coming,  # clients of a closed loop (`closed`); empty: `arrival` says when requests come, else it is filled
    think,
    client_of,
):
    """Go on by at most `budget` events: FINISHED, MORE, or MORE_SLOTS (LOWEST only: give more columns and go on)."""
    count, capacity = arrival.size, slot.shape[1]
    end = slot[S_END]
    shared, limit = rule[R_SHARED] != 0, rule[R_LIMIT]
    stealing = rule[R_PLACEMENT] == STEALING
    now, following = state[X_NOW], state[X_NEXT]
    busy, used, waiting, suspended = state[X_BUSY], state[X_USED], state[X_WAITING], state[X_HELD]
    preempt, room = rule[R_PREEMPT] != 0, held.shape[1]
    warms = heat.size > 0
    closed, clients = think.size > 0, coming.shape[0] - 1
    cut_short = state[X_CUT_SHORT] != 0
    answer, events = MORE, 0
    while events < budget:
        events += 1
        moment, which, ties = NEVER, 0, 0
        for j in range(used):
            if end[j] < moment:
                moment, which, ties = end[j], j, 1
            elif end[j] == moment:
                ties += 1
        if busy < limit and following < count:
            moment = min(moment, arrival[following])
        if rule[R_LINGERS] != 0 and busy < limit and waiting > 0:
            for lane in range(lanes.shape[0]):
                if lanes[lane, G_TAIL] > lanes[lane, G_HEAD]:
                    runs_out = arrival[queue[lanes[lane, G_HEAD]]] + lanes[lane, G_LINGER]
                    if runs_out > now:
                        moment = min(moment, runs_out)
        if cut_short:
            moment = now
        if moment == NEVER:
            answer = FINISHED
            break
        if moved.size > 0:
            pass_by(now, moment, used, slot, flow, profile, phase, view, moved)
        now = moment
        changed, cut_short = cut_short, False
        if warms and warmth.size > 0:
            warm_seen(now, heat, view, warmth)
        elif warms:
            warm(now, heat)

        for j in range(which, used if ties > 1 else which + 1):
            if end[j] != now:
                continue
            changed = True
            stall = now - slot[S_BEGIN, j] - slot[S_LENGTH, j]
            if stall > 0:
                split_stall(j, stall, slot, profile, phase)
            goes_on = slot[S_REPEATS, j] > 0
            if preempt and goes_on and suspended < room and phase[slot[S_ROW, j], M_KIND] == LAUNCH:
                leave(j, now, slot, flow, pool)
                busy -= 1
                held_ns[j] += now - slot[S_ENTER, j]
                slot[S_FROM, j] = j
                put(suspended, j, held, held_flow, slot, flow)
                suspended += 1
            elif not goes_on or not next_phase(j, now, slot, flow, pool, profile, phase, demand):
                leave(j, now, slot, flow, pool)
                busy -= 1
                held_ns[j] += now - slot[S_ENTER, j]
                first = slot[S_FIRST, j]
                for k in range(first, first + slot[S_COUNT, j]):
                    q = queue[k]
                    completion[q] = now
                    parts[q, P_BURST] = slot[S_BURST, j]
                    parts[q, P_STEADY] = slot[S_STEADY, j]
                    parts[q, P_SPILL] = slot[S_SPILL, j]
                    parts[q, P_REFETCH] = slot[S_REFETCH, j]
                    parts[q, P_PREEMPTED] = slot[S_PREEMPTED, j]
                    state[X_DONE] += 1
                    if closed:
                        thinks(client_of[q], now + think[clients + q], coming)
        if closed and following < count:
            arrival[following] = next_ns(coming)
        while following < count and arrival[following] <= now:
            lanes[lane_of[following], G_TAIL] += 1
            if closed:
                client_of[following] = asks(coming)
            following += 1
            waiting += 1
            if closed and following < count:
                arrival[following] = next_ns(coming)
        while used > 0 and end[used - 1] == NEVER:
            used -= 1

        while waiting + suspended > 0 and busy < limit:
            lane, j = -1, -1
            for wide in range(2):
                at_home = stealing and wide == 0
                if rule[R_DISCIPLINE] == DEFICIT:
                    lane, j = by_deficit(
                        at_home, now, rule, state, lanes, slot, allowed, home, queue, arrival, offer, size, base,
                        launch, deficit, quantum,
                    )  # fmt: skip
                else:
                    lane, j = oldest(
                        -1, at_home, now, rule, lanes, slot, allowed, home, queue, arrival, offer
                    )
                if lane >= 0 or not stealing:
                    break
            back = -1
            for h in range(suspended):
                before = queue[held[S_FIRST, h]]
                priority = lanes[lane_of[before], G_PRIORITY]
                if back >= 0 and priority <= lanes[lane_of[queue[held[S_FIRST, back]]], G_PRIORITY]:
                    continue
                if lane >= 0 and priority < lanes[lane, G_PRIORITY]:
                    continue
                to = held[S_FROM, h]
                if end[to] != NEVER:
                    to = place(
                        lane_of[before],
                        offer[before, Q_STREAM],
                        False,
                        rule[R_PLACEMENT],
                        slot,
                        allowed,
                        home,
                    )
                if to >= 0:
                    back, j = h, to
            if back >= 0:
                put(j, back, slot, flow, held, held_flow)
                slot[S_PREEMPTED, j] += now - slot[S_FREE, j]
                slot[S_ENTER, j] = now
                suspended -= 1
                for h in range(back, suspended):
                    put(h, h + 1, held, held_flow, held, held_flow)
                changed = True
                busy += 1
                used = max(used, j + 1)
                # What is left may be launches of no length; they end here and now, as an event of their own.
                if not next_phase(j, now, slot, flow, pool, profile, phase, demand):
                    slot[S_BEGIN, j], slot[S_LENGTH, j], end[j] = now, 0, now
                continue
            if lane < 0:
                if rule[R_PLACEMENT] == LOWEST and busy == capacity:
                    cut_short = True
                break

            first = lanes[lane, G_HEAD]
            together = min(lanes[lane, G_BATCH], lanes[lane, G_TAIL] - first)
            lanes[lane, G_HEAD] += together
            waiting -= together
            q = queue[first]
            stream, plan = offer[q, Q_STREAM], offer[q, Q_PLAN]
            filled = arrival[q] + lanes[lane, G_LINGER]
            if together == lanes[lane, G_BATCH]:
                filled = min(filled, arrival[queue[first + together - 1]])
            alone_ns = alone(first, together, queue, offer, size, base, launch, 1.0)
            after_fallback = alone_ns
            if offer[q, Q_FALL] != offer[q, Q_FALL_DEN]:
                after_fallback = alone_ns * offer[q, Q_FALL] // offer[q, Q_FALL_DEN]
            after_home = after_fallback
            if rule[R_OFF_HOME] != 0:
                after_home = after_fallback * off_home[stream, j, 0] // off_home[stream, j, 1]
            runs, service, low = alone_ns, after_home, False
            if warms:
                joule = joules[plan, together]
                watts = joule * 1e9 / max(1, after_home) if joule >= 0.0 else heat[H_BUSY]
                low = clock_is_low(watts, used, slot, flow, heat)
                if low:
                    runs = alone(first, together, queue, offer, size, low_base, launch, heat[H_CLOCK])
                    service = runs
                    if offer[q, Q_FALL] != offer[q, Q_FALL_DEN]:
                        service = service * offer[q, Q_FALL] // offer[q, Q_FALL_DEN]
                    if rule[R_OFF_HOME] != 0:
                        service = service * off_home[stream, j, 0] // off_home[stream, j, 1]
                    watts *= after_home / max(1, service)  # the same energy in more time
                flow[F_WATTS, j] = watts
            if edges.size > 0 and inside(now, edges):
                service = service * rule[R_NUM] // rule[R_DEN]
                if warms:
                    flow[F_WATTS, j] *= rule[R_DEN] / rule[R_NUM]
            oldest_one = q
            for k in range(first, first + together):
                q = queue[k]
                start[q], full[q], slot_of[q], leader[q] = now, filled, j, oldest_one
                own = alone_ns
                if offer[q, Q_PAD] != offer[q, Q_PAD_DEN]:
                    own = alone_ns * offer[q, Q_PAD] // offer[q, Q_PAD_DEN]
                parts[q, P_BASE], parts[q, P_PADDING] = own, alone_ns - own
                parts[q, P_FALLBACK], parts[q, P_OFF_HOME] = (
                    after_fallback - alone_ns,
                    after_home - after_fallback,
                )
                parts[q, P_THROTTLE] = service - after_home
                if warms:
                    die_c[q] = heat[H_DIE]

            which = -1
            if shared:
                which = low_profile_of[plan, together] if low else profile_of[plan, together]
            goes_on = service > 0
            slot[S_REPEATS, j] = 0
            if goes_on and which < 0:
                slot[S_BEGIN, j], slot[S_LENGTH, j], slot[S_SINCE, j] = now, service, now
                flow[F_RATE, j], flow[F_REST, j] = 1.0, float(service)
                end[j] = now + service
            elif goes_on:
                mean = 0.0
                for k in range(first, first + together):
                    mean += size[queue[k]]
                flow[F_SIZE, j] = mean / together
                flow[F_STRETCH, j] = 1.0 if service == runs else service / runs
                slot[S_PROFILE, j], slot[S_ROW, j] = which, profile[which, 0]
                slot[S_REPEATS, j], slot[S_SERVICE, j] = profile[which, 2], service
                slot[S_FIXED, j], slot[S_SCALED, j], slot[S_REACHED, j] = 0, 0, 0
                slot[S_POOL, j] = pool_of[stream]
                goes_on = next_phase(j, now, slot, flow, pool, profile, phase, demand)
                changed = True
            if goes_on:
                slot[S_FIRST, j], slot[S_COUNT, j] = first, together
                slot[S_BURST, j], slot[S_STEADY, j], slot[S_SPILL, j], slot[S_REFETCH, j] = 0, 0, 0, 0
                slot[S_PREEMPTED, j], slot[S_ENTER, j] = 0, now
                busy += 1
                used = max(used, j + 1)
            else:  # nothing to do: the slot stays idle, since now
                slot[S_FREE, j] = now
                for k in range(first, first + together):
                    completion[queue[k]] = now
                    if closed:
                        thinks(client_of[queue[k]], now + think[clients + queue[k]], coming)
                state[X_DONE] += together
                if closed and following < count:
                    arrival[following] = next_ns(coming)
        if cut_short:
            answer = MORE_SLOTS
            break
        if shared and changed:
            share(now, used, slot, flow, pool, loss)
        if warms:
            heat[H_WATTS] = drawn(used, slot, flow, heat)
    state[X_NOW], state[X_NEXT] = now, following
    state[X_BUSY], state[X_USED], state[X_WAITING], state[X_HELD] = busy, used, waiting, suspended
    state[X_CUT_SHORT] = cut_short
    state[X_EVENTS] += events
    return answer
