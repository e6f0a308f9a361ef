"""What is served: a workload as its file says it, and what the window's controls set over it.

Knows the model's workload values. Nothing is edited in place: a control makes another `Load`, whose `applied` workload
is what a replay sees.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.serving.streams import Stream, Workload

PLACEMENTS = ("dynamic", "static", "home-first", "round-robin", "stealing")
DEFAULT_PERCENTILE = 0.95
_AT_FIRST = (0,)  # the home of a stream whose file names none


@dataclass(frozen=True, slots=True)
class Load:
    """A workload with knobs; None everywhere: as the file says.

    Attributes
    ----------
    slots, rate_per_s : as `model.serving.serve.prepare` takes them.
    batch, linger_s : of every stream: the most requests of a batch, how long the oldest waits for others.
    placement : one of `PLACEMENTS`. contention : whether slots share bandwidth that ends.
    seed : of everything that is drawn.
    objective_s : response time within which requests answer, of the stream that `judged` names.
    objective_percentile : how many of them, as a share; counts where there is an objective.
    """

    workload: Workload
    slots: int | None = None
    rate_per_s: float | None = None
    batch: int | None = None
    linger_s: float | None = None
    placement: str | None = None
    contention: bool | None = None
    seed: int | None = None
    objective_s: float | None = None
    objective_percentile: float | None = None

    @property
    def asked(self) -> float:
        """The share of requests that must answer within the objective, where there is or may be one."""
        own = None if self.judged is None else self.workload.streams[self.judged].objective
        return self.objective_percentile or (own.percentile if own is not None else DEFAULT_PERCENTILE)

    @property
    def limit_s(self) -> float | None:
        """The objective's response time, the file's where none is set; None: there is none."""
        own = None if self.judged is None else self.workload.streams[self.judged].objective
        return (
            self.objective_s if self.objective_s is not None else own.response_s if own is not None else None
        )

    @property
    def plain(self) -> Load:
        """The workload as its file says it."""
        return Load(self.workload)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the knobs that are set."""
        names = [field.name for field in fields(self) if field.name != "workload"]
        return tuple(name for name in names if getattr(self, name) is not None)

    @property
    def judged(self) -> int | None:
        """The stream whose objective can be set: the only one that has one, or the only one there is."""
        from model.serving.streams import judged

        return judged(self.workload)

    def applied(self, workload: Workload, slots: int) -> Workload:
        """`workload` (this one, or this one under another seed) with every knob but slots and rate.

        Parameters
        ----------
        slots : of the machine, where neither the knob nor the file names a number: streams whose file gives them no
            home are spread over so many.
        """
        from model.serving.streams import UNLIMITED, with_objective

        streams = workload.streams
        if self.batch is not None:
            streams = tuple(replace(stream, batch=self.batch) for stream in streams)
        if self.linger_s is not None:
            streams = tuple(replace(stream, linger_ns=round(self.linger_s * 1e9)) for stream in streams)
        if self.placement is not None and all(stream.home == _AT_FIRST for stream in streams):
            count = self.slots or workload.slots or slots
            streams = streams if count == UNLIMITED else _spread(streams, count)
        served = replace(
            workload,
            streams=streams,
            placement=self.placement or workload.placement,
            contention=workload.contention if self.contention is None else self.contention,
        )
        return served if self.limit_s is None else with_objective(served, self.limit_s, self.asked)


def _spread(streams: tuple[Stream, ...], slots: int) -> tuple[Stream, ...]:
    """Every slot at home for one stream in turn; more streams than slots share them in turn."""
    count = len(streams)
    return tuple(
        replace(stream, home=tuple(range(k, slots, count)) or (k % slots,))
        for k, stream in enumerate(streams)
    )
