"""The groups of a plan in launch order: starts, ends, and CONTRACT's totals.

Knows solved groups and one machine's launches; knows no graph and no plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware.accelerator import Accelerator
from .result import Totals
from .solution import RESOURCE_NAMES, RESOURCE_SETS, Solution, balanced
from .timing import launch_times, makespan


def launch_overhead_reduction(launch_ns: int, unfused_ns: int) -> float:
    """1 - launch overhead / that of the unfused plan; 0 where that has none (COST-MODEL 3)."""
    return 1.0 - launch_ns / unfused_ns if unfused_ns else 0.0


class Sums:
    """The groups of a plan in launch order: starts, ends and sums. Times are integer nanoseconds.

    Equal groups share one solution; sums run over the different ones, each times how often it occurs.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        different: Sequence[Solution],
        which: NDArray[np.int64],
        again: NDArray[np.bool_] | None = None,
    ) -> None:
        self.different = different
        self._which = which
        replays = which[:0] if again is None else which[again]
        self._replays: list[int] = np.bincount(replays, minlength=len(different)).tolist()
        self._times: list[int] = np.bincount(which, minlength=len(different)).tolist()
        self.issue_ns = round(accelerator.launch.issue_s * 1e9)
        self.gap_ns = round(accelerator.launch.gap_s * 1e9)
        latency = np.array([s.latency_ns for s in different], np.int64)[which]
        launched = np.array([s.launches for s in different], np.int64)[which]
        starts = np.zeros(len(which), np.int64)
        delays = np.zeros(len(which), np.int64)
        self.end_ns = int(launch_times(latency, launched, self.issue_ns, self.gap_ns, starts, delays))
        self.starts_s: NDArray[np.float64] = starts / 1e9
        self.delays_ns = delays
        self.launches = int(launched.sum())
        self.launch_ns = int(delays.sum())

    @staticmethod
    def of(
        accelerator: Accelerator, solutions: Sequence[Solution], again: NDArray[np.bool_] | None = None
    ) -> Sums:
        """The sums of these solutions, one a group in launch order; ``again``: which of them are replays."""
        place: dict[int, int] = {}
        which = [place.setdefault(id(solution), len(place)) for solution in solutions]
        different = list({id(solution): solution for solution in solutions}.values())
        return Sums(accelerator, different, np.array(which, np.int64), again)

    def _sum(self, name: str) -> Any:
        """The sum of one field of the solutions; integers stay exact."""
        return self._weighed(name, self._times)

    def _weighed(self, name: str, times: Sequence[int]) -> Any:
        return sum([getattr(s, name) * n for s, n in zip(self.different, times, strict=True)])

    def _first_time(self, name: str) -> Any:
        """`_sum` without the replays: what is due to the graph, however often it is computed."""
        return self._sum(name) - self._weighed(name, self._replays)

    def bottleneck(self) -> tuple[str, float]:
        """The class whose 10 % relief shortens the whole most, or the smallest of the sets tried that gains 1 %."""
        if any(solution.infeasible for solution in self.different):
            return "infeasible", 0.0
        if self.launches == 0 or self.end_ns == 0:
            return "none", 0.0
        launched = np.array([s.launches > 0 for s in self.different])[self._which]
        which = self._which[launched]
        table = np.array([solution.relieved_s for solution in self.different]).T
        base = np.array([solution.latency_ns for solution in self.different])[which] * 1e-9
        issue, gap = self.issue_ns * 1e-9, self.gap_ns * 1e-9
        now = float(makespan(base, issue, gap))
        # A latency is rounded to a nanosecond; a relief that changes nothing must not gain that.
        ends = [min(now, float(makespan(row[which], issue, gap))) for row in table]
        names = [*RESOURCE_NAMES, "launch"]
        single = [*ends[: len(RESOURCE_NAMES)], float(makespan(base, issue / 1.1, gap / 1.1))]
        best = min(range(len(names)), key=lambda i: single[i])
        gain = 1.0 - single[best] / now
        if gain < 0.01:
            for chosen, end in zip(RESOURCE_SETS, ends[len(RESOURCE_NAMES) :], strict=True):
                if 1.0 - end / now >= 0.01:
                    return balanced(chosen), 1.0 - end / now
        return names[best], gain

    def totals(self, compulsory_bytes: int, intermediate_bytes: int, unfused: Sums | None) -> Totals:
        """CONTRACT's totals; the graph's compulsory and intermediate bytes; the unfused plan's sums, if known."""
        reads, writes = self._sum("dram_read_bytes"), self._sum("dram_write_bytes")
        moved = reads + writes
        operator_bytes = self._first_time("operator_bytes")
        everything = intermediate_bytes
        name, gain = self.bottleneck()
        return Totals(
            latency_s=self.end_ns / 1e9,
            launches=self.launches,
            launch_s=self.launch_ns / 1e9,
            compute_s=self._sum("compute_s"),
            dram_s=self._sum("dram_s"),
            dram_read_bytes=reads,
            dram_write_bytes=writes,
            operator_bytes=operator_bytes,
            onchip_reuse_ratio=1.0 - moved / operator_bytes if operator_bytes else 0.0,
            reuse_factor=self._first_time("operand_bytes") / moved if moved else 0.0,
            intermediate_onchip_share=min(1.0, self._sum("kept_bytes") / everything) if everything else 0.0,
            launch_overhead_reduction=None
            if unfused is None
            else launch_overhead_reduction(self.launch_ns, unfused.launch_ns),
            compulsory_dram_bytes=compulsory_bytes,
            lower_bound_dram_bytes=self._sum("lower_bound_bytes"),
            spill_bytes=self._sum("spill_bytes"),
            peak_footprint_bytes=max(
                [s.footprint_bytes[0][1] for s in self.different if s.footprint_bytes], default=0
            ),
            macs=self._sum("macs"),
            recomputed_macs=self._first_time("recomputed_macs") + self._weighed("macs", self._replays),
            vector_ops=self._sum("vector_ops"),
            energy_j=self._sum("energy_j"),
            code_bytes=self._sum("code_bytes"),
            complexity=self._sum("complexity"),
            feasible=all(s.infeasible is None for s in self.different),
            bottleneck=name,
            bottleneck_gain=gain,
        )
