"""Heat as a value: the machine's two thermal nodes, what plans draw and how much longer they take at a low clock.

Knows CONTRACT's ``[thermal]`` and profiles; the physics is `thermal_kernels.py`'s, its arrays `layout.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..hardware.accelerator import Thermal
from .profile import LAUNCH
from .result import ServiceProfile

_MERGED = 1.02
"""Phases whose demands differ by 2 % are one: a phase this close to its bytes' time waits for them."""


@dataclass(frozen=True, slots=True)
class Heat:
    """What warms, and how the clock follows.

    Attributes
    ----------
    static_w : drawn at all times; at time 0 the machine has stood idle for long.
    slots : of the machine; where times are given, a slot at work draws its part of ``tdp_w - static_w``.
    """

    thermal: Thermal
    static_w: float
    slots: int


def at_low_clock(profile: ServiceProfile, clock_ratio: float) -> ServiceProfile:
    """The profile at a clock of `clock_ratio` times its own: launches and memory do not slow, compute does.

    A phase takes ``max(compute, bytes / port)``. One that lasts longer than its bytes take on the slot's port is all
    compute, and takes ``base / ratio``. One that does not has its compute hidden: how much of it is not known, and it
    is taken to stay hidden, so the phase keeps its time. Bytes are the same; energy too (no lower voltage).
    """
    phases = profile.phases.copy()
    base = phases["base_ns"]
    memory_ns = phases["bytes"] * (1e9 / profile.port_bytes_per_s)
    computes = (phases["kind"] != LAUNCH) & (base > _MERGED * memory_ns)
    phases["base_ns"] = np.where(computes, np.rint(base / clock_ratio).astype(np.int64), base)
    phases.setflags(write=False)
    return replace(profile, phases=phases)
