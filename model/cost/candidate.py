"""Columns of what the mapping search keeps of one candidate. Knows numbers only."""

from __future__ import annotations

# Figures of one candidate, ``score`` float64[SCORES], compared from left to right.
S_MISFIT, S_REFETCH, S_COST, S_TRAFFIC, S_FOOTPRINT, S_STAGES, S_SECONDS = 0, 1, 2, 3, 4, 5, 6
S_FLOOR = 7  # of a search's winner: S_FETCHED where everything is whole, 0 where that does not fit
S_FETCHED = 8  # bits of elements to and from DRAM, before they are rounded to sectors
SCORES = 9
# Limits of the search, ``limits`` float64[LIMITS].
L_CAPACITY, L_CORES, L_REGISTERS, L_DOUBLE, L_STAGES, L_ROOM = 0, 1, 2, 3, 4, 5
# On simt, else 0: threads and blocks of a core at most, a block's threads, a thread's bytes for tiles, bytes of a core.
L_THREADS, L_BLOCKS, L_BLOCK_THREADS, L_THREAD_BYTES, L_FILE = 6, 7, 8, 9, 10
L_LISTED = 11  # dims at the head of every order that the user listed
L_LEVELS = 12  # 2 with registers; 0 without: element loops are not in the arrays
L_FURTHER = 13  # 1: a buffer inside another one
# Bytes of sectors next to the buffer and at DRAM, and of a cache: as `hits.cross` takes them.
L_NEAR, L_FAR, L_SHARE = 14, 15, 16
LIMITS = 17
# What is asked of an access, ``asked`` int64[accesses, ASKED]: depth at the buffer (-1: none), home of its tensor; of
# the buffer outside the depth, for it holds no less, and whether it has room for unfinished sums of the tensor.
A_DEPTH, A_HOME, A_LEAST, A_WIDE = 0, 1, 2, 3
ASKED = 4
# An operator's steps by how many loops go on, ``spans`` float64[2 depths, SPAN_COLUMNS]: steps of the busiest core,
# cores that have a tile of their own, and what is moved where so many loops stand outside the tile: bytes of one core's
# port, then of DRAM and of the cache for all cores at work; for the loads, the loads of the tail, the stores of both.
# The second half keeps the visits and the seconds of the first operator's loads.
P_VISITS, P_COPIES, P_LOADED, P_TAIL_LOADED, P_STORED = 0, 1, 2, 5, 8
P_RESIDENT = 11  # in the first row: bytes that resident threads have in flight, 0 without threads
SPAN_COLUMNS = 12
MOVED_COLUMNS = 3  # of the loads, and alike: port, DRAM, cache
