"""Kernels: requests that are answered token by token, through slots, iteration by iteration, in integer nanoseconds.

Know arrays and scalars only; `generation.py` lays them out. A run can stop after any event and go on later.

Iteration-level batching (Orca, Yu et al. 2022): a slot runs one step for each of its requests, then looks again: who
has all its tokens leaves, who waits may join. A request's first steps are its chunks of prefill, the last of which
yields the first token; each later step decodes one. The steps of one iteration run one after the other in *segments*:
one for each plan that prefills (a batch of that plan), then one for all that decode, on the plan that holds the longest
past.

At one nanosecond, in this order: segments end, in order of their slots; requests arrive; waiting requests join; the
next iterations begin; the bandwidth is shared anew. The KV cache of a request is reserved when it joins, for all of its
tokens, and released when it leaves, so that nobody is ever thrown out (as in Orca).

How a segment goes through its phases, and what these get of the bandwidth, is `phases.py`'s.
"""

from __future__ import annotations

from ..compiled import kernel
from .closed import asks, next_ns, thinks
from .events import (
    FINISHED,
    HOME_FIRST,
    LOWEST,
    MORE,
    MORE_SLOTS,
    P_BASE,
    P_BURST,
    P_FALLBACK,
    P_OFF_HOME,
    P_PADDING,
    P_REFETCH,
    P_SPILL,
    P_STEADY,
    P_THROTTLE,
    PART_COLUMNS,
    PRIORITY,
    R_DEN,
    R_DISCIPLINE,
    R_LIMIT,
    R_NUM,
    R_OFF_HOME,
    R_PLACEMENT,
    R_SHARED,
    inside,
)
from .phases import (
    F_RATE,
    F_REST,
    F_SIZE,
    F_STRETCH,
    F_WATTS,
    NEVER,
    S_BEGIN,
    S_BURST,
    S_END,
    S_FIXED,
    S_FREE,
    S_LENGTH,
    S_POOL,
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
    ask,
    leave,
    next_phase,
    pass_by,
    share,
    split_stall,
)
from .thermal_kernels import H_BUSY, H_CLOCK, H_DIE, H_WATTS, clock_is_low, drawn, warm, warm_seen

# Columns of ``request``: int64[n, REQUEST_COLUMNS]. From C_CHUNK on the first chunk of prefill, one between, and the
# last: (plan, own ns, padding num, den) each. C_FALL, C_FALL_DEN: factor on all of them. C_KV: bytes to reserve.
C_STREAM, C_LANE, C_CHUNKS, C_FALL, C_FALL_DEN, C_PAST, C_OUT, C_KV, C_CHUNK = range(9)
CHUNK_COLUMNS = 4
REQUEST_COLUMNS = C_CHUNK + 3 * CHUNK_COLUMNS
# Columns of ``stream``: int64[streams, STREAM_COLUMNS]. Its rows of ``decode`` are [W_BEGIN, W_END). W_STEP: ns that
# each token adds to a step. W_NUM, W_DEN: factor on steps beyond the longest past.
W_PRIORITY, W_BATCH, W_BEGIN, W_END, W_STEP, W_NUM, W_DEN, W_CAPACITY, W_RESERVED, W_PEAK, W_CHUNKED = range(
    11
)
STREAM_COLUMNS = 11
# Columns of ``progress``: int64[n, PROGRESS_COLUMNS]: chunks and tokens so far; iterations, and the members of them
# all; when the first token came; how long some slot was idle, when it came and then while it waited;
# whether it was its turn and the cache was full.
G_CHUNKS, G_TOKENS, G_ITERATIONS, G_MEMBERS, G_FIRST_NS, G_IDLE_NS, G_FULL = range(7)
PROGRESS_COLUMNS = 7
P_INTERLEAVED = PART_COLUMNS
"""A part that one-shot requests have not: ns of a request's iterations in which other segments than its own ran."""
# Rows of ``seat``: int64[SEAT_ROWS, slots]. T_EDGE: between iterations. T_CLOSED: an older request waits for it.
# T_LOW: the iteration runs at the low clock. T_FRESH: it was idle until now.
T_COUNT, T_STREAM, T_SEGMENTS, T_SEGMENT, T_EDGE, T_CLOSED, T_SINCE, T_BUSY, T_LOW, T_FRESH = range(10)
SEAT_ROWS = 10
# Columns of ``segment``: int64[slots, most segments, SEGMENT_COLUMNS]; ns alone, then after each
# factor; E_RUNS: alone at the iteration's clock.
E_PLAN, E_COUNT, E_FALL, E_FALL_DEN, E_OWN, E_ALONE, E_AFTER, E_HOME, E_RUNS, E_SERVICE = range(10)
SEGMENT_COLUMNS = 10
# Columns of ``lanes``, lines of requests in order of arrival: int64[lanes, LANE_COLUMNS]; queue[head:tail] wait.
L_HEAD, L_TAIL, L_STREAM, L_SKIPPED = range(4)
LANE_COLUMNS = 4
# ``state``: int64[STATES].
X_NOW, X_NEXT, X_DONE, X_BUSY, X_USED, X_WAITING, X_IDLE_NS, X_CUT_SHORT = range(8)
STATES = 8


@kernel("int64(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1])", inline=True, borrows=True)
def idle_slot(lane, placement, seat, slot, allowed):
    """The slot without requests for the first of a lane, by placement, or -1. ``allowed``: 2 at home, 1 elsewhere."""
    best = -1
    for j in range(seat.shape[1]):
        if seat[T_COUNT, j] != 0 or allowed[lane, j] == 0:
            continue
        if placement == LOWEST:
            return j
        if placement >= HOME_FIRST:
            if best < 0 or allowed[lane, j] > allowed[lane, best]:
                best = j
        elif best < 0 or slot[S_FREE, j] < slot[S_FREE, best]:
            best = j
    return best


@kernel(
    "int64(int64, int64, boolean, int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1],"
    "int64[:,::1])",
    inline=True,
    borrows=True,
)
def shared_slot(lane, s, fresh, seat, member, request, stream, progress, allowed):
    """The slot between iterations that runs the stream and has room, at home before elsewhere, or -1.

    fresh : of those only that were idle until now.
    """
    best = -1
    for j in range(seat.shape[1]):
        if seat[T_EDGE, j] == 0 or seat[T_STREAM, j] != s or seat[T_CLOSED, j] != 0 or allowed[lane, j] == 0:
            continue
        if fresh and seat[T_FRESH, j] == 0:
            continue
        if seat[T_COUNT, j] == 0 or seat[T_COUNT, j] >= stream[s, W_BATCH]:
            continue
        fills = False  # in chunks, one request at a time fills its cache
        if stream[s, W_CHUNKED] != 0:
            for k in range(seat[T_COUNT, j]):
                q = member[j, k]
                fills = fills or progress[q, G_CHUNKS] < request[q, C_CHUNKS]
        if not fills and (best < 0 or allowed[lane, j] > allowed[lane, best]):
            best = j
    return best


@kernel(
    "boolean(int64, int64, boolean, int64[:,::1], int64[:,::1], float64[:,::1], float64[:,::1], int64[:,:,::1],"
    "float64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], float64[:,::1])",
    borrows=True,
)
def play(
    j, now, shared, seat, slot, flow, pool, segment, mean, watts, profile_of, low_profile_of, profile, phase, demand
):  # fmt: skip
    """Begin the next segment of some length of the iteration on slot `j`; False: there is none."""
    while seat[T_SEGMENT, j] < seat[T_SEGMENTS, j]:
        g = seat[T_SEGMENT, j]
        seat[T_SEGMENT, j] = g + 1
        service = segment[j, g, E_SERVICE]
        if service == 0:
            continue
        flow[F_WATTS, j] = watts[j, g]
        which = -1
        if shared:
            of = low_profile_of if seat[T_LOW, j] != 0 else profile_of
            which = of[segment[j, g, E_PLAN], segment[j, g, E_COUNT]]
        slot[S_REPEATS, j] = 0
        if which < 0:
            ask(j, 0.0, slot, flow, pool)
            slot[S_BEGIN, j], slot[S_LENGTH, j], slot[S_SINCE, j] = now, service, now
            flow[F_RATE, j], flow[F_REST, j] = 1.0, float(service)
            slot[S_END, j] = now + service
            return True
        flow[F_SIZE, j] = mean[j, g]
        runs = segment[j, g, E_RUNS]
        flow[F_STRETCH, j] = 1.0 if service == runs else service / runs
        slot[S_PROFILE, j], slot[S_ROW, j] = which, profile[which, 0]
        slot[S_REPEATS, j], slot[S_SERVICE, j] = profile[which, 2], service
        slot[S_FIXED, j], slot[S_SCALED, j], slot[S_REACHED, j] = 0, 0, 0
        if next_phase(j, now, slot, flow, pool, profile, phase, demand):
            return True
    return False


@kernel(
    "int64(int64, boolean, int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], float64[:,::1],"
    "int64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], int64[:,::1],"
    "int64[:,::1], int64[::1], float64[:,::1], float64[::1], int64[:,::1], int64, int64[:,::1], float64[:,::1],"
    "float64[:,::1], float64[::1], float64[:,::1], int64[:,::1])",
    borrows=True,
)
def lay_out(
    j, slow, rule, seat, member, member_segment, segment, mean, request, size, stream, progress, decode, off_home,
    base, launch, instead, spent, energy, parts, used, slot, flow, watts, heat, joules, low_base,
):  # fmt: skip
    """The segments of slot `j`'s next iteration, and what each of its requests owes to which part of it.

    Returns the iteration's ns at rate 1.
    """
    count, s = seat[T_COUNT, j], seat[T_STREAM, j]
    found, decoding, longest, decoded_size = 0, 0, 0, 0.0
    for k in range(count):
        q = member[j, k]
        done, chunks = progress[q, G_CHUNKS], request[q, C_CHUNKS]
        progress[q, G_ITERATIONS] += 1
        progress[q, G_MEMBERS] += count
        if done == chunks:
            member_segment[j, k] = -1
            decoding += 1
            decoded_size += size[q, 1]
            longest = max(longest, request[q, C_PAST] + progress[q, G_TOKENS] - 1)
            continue
        at = C_CHUNK + CHUNK_COLUMNS * (0 if done == 0 else 2 if done == chunks - 1 else 1)
        plan, fall, fall_den = request[q, at], request[q, C_FALL], request[q, C_FALL_DEN]
        g = 0
        while g < found and (
            segment[j, g, E_PLAN] != plan
            or segment[j, g, E_FALL] != fall
            or segment[j, g, E_FALL_DEN] != fall_den
        ):
            g += 1
        if g == found:
            segment[j, g, E_PLAN], segment[j, g, E_FALL], segment[j, g, E_FALL_DEN] = plan, fall, fall_den
            segment[j, g, E_COUNT], segment[j, g, E_OWN], mean[j, g] = 0, 0, 0.0
            found += 1
        segment[j, g, E_COUNT] += 1
        segment[j, g, E_OWN] += request[q, at + 1]
        mean[j, g] += size[q, 0]
        member_segment[j, k] = g
    held = 1  # the past of the plan that decodes
    if decoding > 0:
        row = stream[s, W_BEGIN]
        while row < stream[s, W_END] - 1 and decode[row, 0] < longest:
            row += 1
        held = decode[row, 0]
        segment[j, found, E_PLAN], segment[j, found, E_COUNT] = decode[row, 1], decoding
        segment[j, found, E_OWN] = decoding * stream[s, W_STEP]
        segment[j, found, E_FALL], segment[j, found, E_FALL_DEN] = 1, 1
        mean[j, found] = decoded_size
        if longest > held:  # the longest plan stands for more by its work
            mean[j, found] *= longest / held
            segment[j, found, E_FALL], segment[j, found, E_FALL_DEN] = stream[s, W_NUM], stream[s, W_DEN]
        found += 1
    total, joule = 0, 0.0
    for g in range(found):
        plan, together = segment[j, g, E_PLAN], segment[j, g, E_COUNT]
        mean[j, g] /= together
        fixed = launch[plan, together]
        rest = base[plan, together] - fixed + segment[j, g, E_OWN]
        alone = fixed + (rest if mean[j, g] == 1.0 else round(mean[j, g] * rest))
        after = alone
        if segment[j, g, E_FALL] != segment[j, g, E_FALL_DEN]:
            after = alone * segment[j, g, E_FALL] // segment[j, g, E_FALL_DEN]
        at_home = after
        if rule[R_OFF_HOME] != 0:
            at_home = after * off_home[s, j, 0] // off_home[s, j, 1]
        segment[j, g, E_ALONE], segment[j, g, E_AFTER] = alone, after
        segment[j, g, E_HOME], segment[j, g, E_RUNS] = at_home, alone
        total += at_home
        if heat.size > 0:
            each = joules[plan, together]
            watts[j, g] = each * 1e9 if each >= 0.0 else heat[H_BUSY] * at_home  # W * ns
            joule += watts[j, g]
    low = heat.size > 0 and clock_is_low(joule / max(1, total), used, slot, flow, heat)
    seat[T_LOW, j] = low
    total = 0
    for g in range(found):
        plan, together, service = segment[j, g, E_PLAN], segment[j, g, E_COUNT], segment[j, g, E_HOME]
        if low:
            fixed = launch[plan, together]
            rest = low_base[plan, together] - fixed + round(segment[j, g, E_OWN] / heat[H_CLOCK])
            service = fixed + (rest if mean[j, g] == 1.0 else round(mean[j, g] * rest))
            segment[j, g, E_RUNS] = service
            service = service * segment[j, g, E_FALL] // segment[j, g, E_FALL_DEN]
            if rule[R_OFF_HOME] != 0:
                service = service * off_home[s, j, 0] // off_home[s, j, 1]
        if slow:
            service = service * rule[R_NUM] // rule[R_DEN]
        watts[j, g] /= max(1, service)
        segment[j, g, E_SERVICE] = service
        total += service
    for k in range(count):
        q, g = member[j, k], member_segment[j, k]
        if g < 0:
            g = found - 1
            num, den = request[q, C_PAST] + progress[q, G_TOKENS] - 1, held
        else:
            done, chunks = progress[q, G_CHUNKS], request[q, C_CHUNKS]
            at = C_CHUNK + CHUNK_COLUMNS * (0 if done == 0 else 2 if done == chunks - 1 else 1)
            num, den = request[q, at + 2], request[q, at + 3]
        plan, together, alone = segment[j, g, E_PLAN], segment[j, g, E_COUNT], segment[j, g, E_ALONE]
        # A plan of any past (NEVER) has no padding; nor has one that stands for more than it holds.
        own = alone if num >= den or den == NEVER else alone * num // den
        fallback = segment[j, g, E_AFTER] - alone
        parts[q, P_PADDING] += alone - own
        meant = instead[plan]
        if (
            meant >= 0 and base[plan, together] > 0
        ):  # a plan that runs in another's place: the rest is fallback
            kept = own * base[meant, together] // base[plan, together]
            fallback += own - kept
            own = kept
        parts[q, P_BASE] += own
        parts[q, P_FALLBACK] += fallback
        parts[q, P_OFF_HOME] += segment[j, g, E_HOME] - segment[j, g, E_AFTER]
        parts[q, P_THROTTLE] += segment[j, g, E_SERVICE] - segment[j, g, E_HOME]
        parts[q, P_INTERLEAVED] += total - segment[j, g, E_SERVICE]
        energy[q] += spent[plan, together] / together
    seat[T_SEGMENTS, j], seat[T_SEGMENT, j] = found, 0
    return total


@kernel(
    "void(int64, int64, int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1],"
    "int64[::1], int64[:,::1], int64[::1], int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def step_done(
    j, now, seat, slot, member, request, stream, progress, completion, parts, state, coming, think, client_of
):
    """The iteration on slot `j` ends: stalls are told, tokens counted, and those that have all leave."""
    s, kept = seat[T_STREAM, j], 0
    seat[T_BUSY, j] += now - seat[T_SINCE, j]
    for k in range(seat[T_COUNT, j]):
        q = member[j, k]
        parts[q, P_BURST] += slot[S_BURST, j]
        parts[q, P_STEADY] += slot[S_STEADY, j]
        parts[q, P_SPILL] += slot[S_SPILL, j]
        parts[q, P_REFETCH] += slot[S_REFETCH, j]
        if progress[q, G_CHUNKS] < request[q, C_CHUNKS]:
            progress[q, G_CHUNKS] += 1
            if progress[q, G_CHUNKS] == request[q, C_CHUNKS]:
                progress[q, G_TOKENS], progress[q, G_FIRST_NS] = 1, now
        else:
            progress[q, G_TOKENS] += 1
        if progress[q, G_TOKENS] == request[q, C_OUT]:
            completion[q] = now
            stream[s, W_RESERVED] -= request[q, C_KV]
            state[X_DONE] += 1
            if think.size > 0:
                thinks(client_of[q], now + think[coming.shape[0] - 1 + q], coming)
        else:
            member[j, kept] = q
            kept += 1
    seat[T_COUNT, j] = kept


@kernel(
    "int64(int64, int64[::1], int64[::1], float64[:,::1], float64, int64[::1], int64[::1], int64[:,::1],"
    "float64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,:,::1], int64[:,::1],"
    "int64[:,::1], int64[:,::1], int64[::1], float64[:,::1], int64[:,::1], int64[:,::1], float64[:,::1], int64[::1],"
    "float64[::1], float64[:,::1], int64[:,::1], int64[:,::1], float64[::1],"
    "int64[:,::1], int64[:,::1], float64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1],"
    "float64[:,::1], float64[:,::1], int64[::1], int64[::1], int32[::1], int64[:,::1], float64[::1], int64[::1],"
    "int64[:,::1], float64[::1], float64[:,:,::1], float64[:,::1], int64[:,::1], int64[::1], int64[::1])",
    borrows=True,
)
def advance_iterations(
    budget,  # events, at most
    rule,
    state,
    pool,  # float64[POOL_ROWS, pools]
    loss,
    edges,  # of throttle windows
    arrival,
    request,
    size,  # float64[n, 2]: of prefill, of decode steps
    stream,
    decode,  # int64[rows, 2]: past, plan; ascending within a stream
    queue,  # int64[n]: requests by lane, each lane's in order
    lanes,
    off_home,  # int64[streams, slots, 2]
    base,  # int64[plans, largest batch + 1]
    launch,
    profile_of,
    instead,  # int64[plans]
    spent,  # float64[plans, largest batch + 1] J
    profile,
    phase,
    demand,
    pool_of,
    heat,  # of `thermal_kernels`; empty: nothing warms
    joules,  # as `spent`; below 0: what a slot at work draws
    low_base,  # `base` and `profile_of` at the low clock
    low_profile_of,
    die_c,  # float64[n], filled where something warms
    allowed,  # int64[lanes, slots]
    slot,
    flow,
    seat,
    member,  # int64[slots, batch]
    member_segment,
    segment,
    mean,  # float64[slots, segments]
    watts,
    start,
    completion,
    slot_of,
    progress,
    energy,
    sizes,  # int64[largest batch + 1]: iterations by their members
    parts,
    view,  # columns of time of `moved` (`phases`) and `warmth` (`thermal_kernels`); both empty: nobody looks
    moved,
    warmth,
    coming,  # clients of a closed loop (`closed`); empty: `arrival` says when requests come, else it is filled
    think,
    client_of,
):
    """Go on by at most `budget` events: FINISHED, MORE, or MORE_SLOTS (LOWEST only: give more columns and go on)."""
    count, capacity, closed = arrival.size, seat.shape[1], think.size > 0
    end = slot[S_END]
    shared, limit, placement = rule[R_SHARED] != 0, rule[R_LIMIT], rule[R_PLACEMENT]
    now, following = state[X_NOW], state[X_NEXT]
    busy, used, waiting = state[X_BUSY], state[X_USED], state[X_WAITING]
    cut_short = state[X_CUT_SHORT] != 0
    answer, events = MORE, 0
    while events < budget:
        events += 1
        moment = NEVER
        for j in range(used):
            moment = min(moment, end[j])
        if following < count and (busy < capacity or placement == LOWEST):
            moment = min(moment, arrival[following])
        if cut_short:
            moment = now
        if moment == NEVER:
            answer = FINISHED
            break
        if busy < capacity and now >= 0:
            state[X_IDLE_NS] += moment - now
        if moved.size > 0:
            pass_by(now, moment, used, slot, flow, profile, phase, view, moved)
        now = moment
        looks, cut_short = cut_short, False  # whether somebody may join
        if heat.size > 0 and warmth.size > 0:
            warm_seen(now, heat, view, warmth)
        elif heat.size > 0:
            warm(now, heat)

        for j in range(used):
            if end[j] != now:
                continue
            stall = now - slot[S_BEGIN, j] - slot[S_LENGTH, j]
            if stall > 0:
                split_stall(j, stall, slot, profile, phase)
            if slot[S_REPEATS, j] > 0 and next_phase(j, now, slot, flow, pool, profile, phase, demand):
                continue
            if play(
                j, now, shared, seat, slot, flow, pool, segment, mean, watts, profile_of, low_profile_of, profile,
                phase, demand,
            ):  # fmt: skip
                continue
            step_done(
                j, now, seat, slot, member, request, stream, progress, completion, parts, state, coming, think,
                client_of,
            )  # fmt: skip
            if seat[T_COUNT, j] == 0:
                leave(j, now, slot, flow, pool)
                busy -= 1
            else:
                seat[T_EDGE, j], end[j] = 1, NEVER
            looks = True
        if closed and following < count:
            arrival[following] = next_ns(coming)
        while following < count and arrival[following] <= now:
            lanes[request[following, C_LANE], L_TAIL] += 1
            progress[following, G_IDLE_NS] = state[X_IDLE_NS]
            if closed:
                client_of[following] = asks(coming)
            following += 1
            waiting += 1
            looks = True
            if closed and following < count:
                arrival[following] = next_ns(coming)

        looks = looks and waiting > 0
        if looks:
            for lane in range(lanes.shape[0]):
                lanes[lane, L_SKIPPED] = 0
            for j in range(capacity):
                seat[T_CLOSED, j] = 0
        while looks and waiting > 0:
            lane, rank = -1, 0
            for k in range(lanes.shape[0]):
                if lanes[k, L_SKIPPED] != 0 or lanes[k, L_HEAD] == lanes[k, L_TAIL]:
                    continue
                priority = stream[lanes[k, L_STREAM], W_PRIORITY] if rule[R_DISCIPLINE] == PRIORITY else 0
                older = lane < 0 or queue[lanes[k, L_HEAD]] < queue[lanes[lane, L_HEAD]]
                if lane < 0 or priority > rank or (priority == rank and older):
                    lane, rank = k, priority
            if lane < 0:
                break
            q, s = queue[lanes[lane, L_HEAD]], lanes[lane, L_STREAM]
            if stream[s, W_RESERVED] + request[q, C_KV] > stream[s, W_CAPACITY]:
                lanes[lane, L_SKIPPED] = 1  # it waits for its own stream's cache, and keeps nobody else
                progress[q, G_FULL] = 1
                continue
            # Those who come together run together, as in a batch of one-shot requests; else an idle slot is better.
            j = shared_slot(lane, s, True, seat, member, request, stream, progress, allowed)
            if j < 0 and busy < limit:
                j = idle_slot(lane, placement, seat, slot, allowed)
                if j >= 0:
                    seat[T_STREAM, j], seat[T_EDGE, j], seat[T_CLOSED, j], seat[T_FRESH, j] = s, 1, 0, 1
                    busy += 1
                    used = max(used, j + 1)
                elif placement == LOWEST:
                    cut_short = True
                    break
            if j < 0:
                j = shared_slot(lane, s, False, seat, member, request, stream, progress, allowed)
            if j < 0:
                # Younger requests of other streams must not keep a slot for ever from one that waits for it.
                lanes[lane, L_SKIPPED] = 1
                for k in range(capacity):
                    if allowed[lane, k] != 0:
                        seat[T_CLOSED, k] = 1
                continue
            lanes[lane, L_HEAD] += 1
            waiting -= 1
            member[j, seat[T_COUNT, j]] = q
            seat[T_COUNT, j] += 1
            stream[s, W_RESERVED] += request[q, C_KV]
            stream[s, W_PEAK] = max(stream[s, W_PEAK], stream[s, W_RESERVED])
            start[q], slot_of[q] = now, j
            progress[q, G_IDLE_NS] = state[X_IDLE_NS] - progress[q, G_IDLE_NS]
        if cut_short:
            answer = MORE_SLOTS
            break

        for j in range(used):
            if seat[T_EDGE, j] == 0:
                continue
            seat[T_EDGE, j], seat[T_FRESH, j] = 0, 0
            slow = edges.size > 0 and inside(now, edges)
            lay_out(
                j, slow, rule, seat, member, member_segment, segment, mean, request, size, stream, progress, decode,
                off_home, base, launch, instead, spent, energy, parts, used, slot, flow, watts, heat, joules, low_base,
            )  # fmt: skip
            if heat.size > 0:
                for k in range(seat[T_COUNT, j]):
                    q = member[j, k]
                    if progress[q, G_ITERATIONS] == 1:
                        die_c[q] = heat[H_DIE]
            sizes[seat[T_COUNT, j]] += 1
            seat[T_SINCE, j] = now
            slot[S_POOL, j] = pool_of[seat[T_STREAM, j]]
            slot[S_BURST, j], slot[S_STEADY, j], slot[S_SPILL, j], slot[S_REFETCH, j] = 0, 0, 0, 0
            if not play(
                j, now, shared, seat, slot, flow, pool, segment, mean, watts, profile_of, low_profile_of, profile,
                phase, demand,
            ):  # fmt: skip
                # Nothing to do; it ends here and now, as an event of its own.
                ask(j, 0.0, slot, flow, pool)
                slot[S_REPEATS, j], slot[S_BEGIN, j], slot[S_LENGTH, j], slot[S_SINCE, j] = 0, now, 0, now
                flow[F_RATE, j], flow[F_REST, j], end[j] = 1.0, 0.0, now
        while used > 0 and seat[T_COUNT, used - 1] == 0:
            used -= 1
        if shared:
            share(now, used, slot, flow, pool, loss)
        if heat.size > 0:
            heat[H_WATTS] = drawn(used, slot, flow, heat)
    state[X_NOW], state[X_NEXT] = now, following
    state[X_BUSY], state[X_USED], state[X_WAITING] = busy, used, waiting
    state[X_CUT_SHORT] = cut_short
    return answer
