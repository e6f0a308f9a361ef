"""Which thread computes: one job runs, at most one waits per lane, the rest is replaced (files: in turn).

Knows threads and signals. Must not know plans, results or widgets: a job is a function without arguments
and what to call, on the GUI thread, with what it returned. The worker is a plain Python thread; answers come
back by a queued signal. The worker is free again after every job, also after an exception.

Nothing of the model is imported here: Numba and onnx load inside the worker, after the window is up.
`Kernels` fills the kernel cache in a child process on the first start.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QObject, QProcess, Qt, Signal, Slot


class Lane(IntEnum):
    """What a job is for. Lower numbers go first; each lane but FILE keeps only its newest waiting job."""

    FILE = 0  # read a graph, a machine, a workload: different questions, answered in turn
    KERNELS = 1  # load compiled kernels
    LAYOUT = 2  # place the operators of a graph that is not on screen yet
    PLAN = 3  # propose a starting plan
    COST = 4  # what the hand is waiting for
    SERVING = 5  # the first estimate of the tail
    UNFUSED = 6  # the unfused plan's numbers, which stand beside every plan's
    ROWS = 7  # of a table that goes through every operator or tensor
    RELAYOUT = 8  # place them again after an edit: the numbers go first
    EXACT = 9  # the tail, replayed exactly
    QUEUE = 10  # the replay over time
    SHARED = 11  # what slots share, over time
    QUESTION = 12  # what if, asked by the hand
    BASELINE = 13  # the pinned plan's own numbers
    GRADIENT = 14  # what every boundary would change
    MAP = 15  # tile against tile
    INDEX = 16  # what find searches
    DRIVERS = 17  # what the tail is owed to


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of background work.

    Attributes
    ----------
    title : what is being done, for the status bar ("Reading bert.onnx").
    work : runs on the worker; returns plain values.
    done : called on the GUI thread with what `work` returned.
    failed : called on the GUI thread with the exception; None: `Runner.failed` tells.
    then : called on the worker with what `work` returned; its job waits in its lane before the worker looks for
        the next one. A follower that only the GUI thread asked for would come after jobs of lower lanes.
    """

    lane: Lane
    title: str
    work: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None] | None = None
    then: Callable[[Any], Job | None] | None = None


class Runner(QObject):
    """Owns the worker thread."""

    busy_changed = Signal(str)
    """Emitted when a job starts (its title) and when nothing is left to do (empty)."""
    failed = Signal(object)
    """Emitted with the exception of a job that has no `failed` of its own."""
    _answered = Signal(object, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Condition()
        self._waiting: dict[Lane, deque[Job]] = {lane: deque() for lane in Lane}
        self._held: set[Lane] = set()
        self._running: Job | None = None
        self._dropped = False  # the running job was cancelled: its answer is not wanted
        self._closing = False
        self._untaken = 0  # answers on their way to the GUI thread
        self._answered.connect(self._take_answer, Qt.ConnectionType.QueuedConnection)
        self._thread = threading.Thread(target=self._work, name="tilewright-worker", daemon=True)
        self._thread.start()

    # -- asked on the GUI thread -------------------------------------------------------------------
    def submit(self, job: Job) -> None:
        """Run `job` when its lane is the first with work; it replaces a job waiting in the same lane."""
        with self._lock:
            if self._closing:
                return
            if job.lane is not Lane.FILE:
                self._waiting[job.lane].clear()
            self._waiting[job.lane].append(job)
            self._lock.notify_all()

    def drop(self, *lanes: Lane) -> None:
        """Forget what waits in `lanes`; what runs there comes to its end unheard."""
        with self._lock:
            for lane in lanes:
                self._waiting[lane].clear()
            if self._running is not None and self._running.lane in lanes:
                self._dropped = True

    def cancel(self) -> None:
        """Forget everything that waits, and the answer of what runs."""
        self.drop(*Lane)

    def hold(self, *lanes: Lane) -> None:
        """Let jobs in `lanes` wait until `release`: their kernels are not there yet."""
        with self._lock:
            self._held.update(lanes)

    def release(self, *lanes: Lane) -> None:
        """Let jobs in `lanes` run again."""
        with self._lock:
            self._held.difference_update(lanes)
            self._lock.notify_all()

    def has_waiting(self, lane: Lane) -> bool:
        """Whether a job waits in `lane`."""
        with self._lock:
            return bool(self._waiting[lane])

    def is_on(self, *lanes: Lane) -> bool:
        """Whether a job of one of these lanes runs, or waits and is not held."""
        with self._lock:
            running = self._running is not None and self._running.lane in lanes
            return running or any(self._waiting[lane] and lane not in self._held for lane in lanes)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, nothing waits (held lanes included) and every answer was taken."""
        with self._lock:
            return self._running is None and not self._untaken and not any(self._waiting.values())

    def gives_way(self) -> bool:
        """Whether the running job should come to its end: something as urgent waits, or nobody wants its answer.

        Asked on the worker by work that goes on in slices.
        """
        with self._lock:
            running = self._running
            if self._dropped or self._closing or running is None:
                return True
            return any(
                bool(jobs) and lane <= running.lane and lane not in self._held
                for lane, jobs in self._waiting.items()
            )

    def is_unwanted(self) -> bool:
        """Whether the running job was cancelled: asked on the worker by work that can stop early."""
        return self._dropped

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop after the running job; True when the thread has ended."""
        with self._lock:
            self._closing = True
            for jobs in self._waiting.values():
                jobs.clear()
            self._dropped = True
            self._lock.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- on the worker -----------------------------------------------------------------------------
    def _next(self) -> Job | None:
        with self._lock:
            while True:
                if self._closing:
                    return None
                for lane, jobs in self._waiting.items():
                    if jobs and lane not in self._held:
                        self._running = jobs.popleft()
                        self._dropped = False
                        return self._running
                self._lock.wait()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            answer: Any = None
            follower: Job | None = None
            fault: BaseException | None = None
            self._tell(self.busy_changed, job.title)
            try:
                answer = job.work()
                follower = job.then(answer) if job.then is not None else None
            except BaseException as error:  # a worker that dies would stop every number on screen
                fault = error
            with self._lock:
                wanted = not self._dropped
                if wanted and follower is not None:
                    self.submit(follower)
                self._running = None
                self._untaken += wanted
                idle = not any(jobs and lane not in self._held for lane, jobs in self._waiting.items())
            if wanted:
                self._tell(self._answered, job, answer, fault)
            if idle:
                self._tell(self.busy_changed, "")
            # Keep no reference to results while waiting for the next job.
            del job, answer, follower, fault

    def _tell(self, signal: Any, *values: object) -> None:
        if not self._closing:
            signal.emit(*values)

    # -- back on the GUI thread --------------------------------------------------------------------
    @Slot(object, object, object)
    def _take_answer(self, job: Job, answer: Any, fault: BaseException | None) -> None:
        if self._closing:
            return
        try:
            if fault is None:
                job.done(answer)
            elif job.failed is not None:
                job.failed(fault)
            else:
                self.failed.emit(fault)
        finally:  # what it asked for waits by now: in between the worker does not look at rest
            with self._lock:
                self._untaken -= 1


def trace_of(fault: BaseException) -> str:
    """The traceback as text, for the log; never for the user."""
    return "".join(traceback.format_exception(fault))


CHILD = ("-m", "model.compiled")
"""What Python runs to fill the kernel cache."""


class Kernels(QObject):
    """Compiled kernels: filled by a child process where the cache is empty, then loaded by the worker.

    `ready` and `start` are cheap; neither imports Numba on the GUI thread.
    """

    progress = Signal(int, int, str)
    """Emitted when kernel `done` of `of` was compiled, with its full name."""
    module_done = Signal(str)
    """Emitted when every kernel of a file is in the cache."""
    finished = Signal(bool, str)
    """Emitted once: whether the cache is filled, and a readable reason where it is not."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._child: QProcess | None = None
        self._rest = ""
        self._errors = ""

    @property
    def compiling(self) -> bool:
        """Whether the child is at work."""
        return self._child is not None

    def start(self) -> None:
        """Compile in a child, or say at once that the cache is filled."""
        from model import compiled

        if compiled.ready():
            self.finished.emit(True, "")
            return
        child = QProcess(self)
        child.setProgram(sys.executable)
        child.setArguments(list(CHILD))
        child.readyReadStandardOutput.connect(self._read)
        child.readyReadStandardError.connect(self._read_errors)
        child.finished.connect(self._ended)
        child.errorOccurred.connect(self._broke)
        self._child = child
        child.start()

    def close(self) -> None:
        """End the child if it is still at work."""
        child, self._child = self._child, None
        if child is not None:
            child.blockSignals(True)
            child.kill()
            child.waitForFinished(2000)

    @Slot()
    def _read(self) -> None:
        if self._child is None:
            return
        self.take_output(bytes(self._child.readAllStandardOutput().data()).decode("utf-8", "replace"))

    def take_output(self, text: str) -> None:
        """Read what the child printed; a line may come in pieces."""
        self._rest += text
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            words = line.split()  # kernel 3 of 41: model.cost.traffic.measure
            if len(words) == 5 and words[0] == "kernel" and words[1].isdigit():
                self.progress.emit(int(words[1]), int(words[3].rstrip(":") or 0), words[4])
            elif len(words) == 2 and words[0] == "file":
                self.module_done.emit(words[1])

    @Slot()
    def _read_errors(self) -> None:
        if self._child is not None:
            self._errors += bytes(self._child.readAllStandardError().data()).decode("utf-8", "replace")
            self._errors = self._errors[-4000:]

    @Slot(int, QProcess.ExitStatus)
    def _ended(self, code: int, status: QProcess.ExitStatus) -> None:
        if self._child is None:
            return
        self._read()
        self._child = None
        if code == 0 and status is QProcess.ExitStatus.NormalExit:
            self.finished.emit(True, "")
            return
        last = self._errors.strip().splitlines()[-1:] or [f"exit code {code}"]
        self.finished.emit(False, f"Compiling kernels in a child process failed ({last[0]}).")

    @Slot(QProcess.ProcessError)
    def _broke(self, error: QProcess.ProcessError) -> None:
        if self._child is not None and error is QProcess.ProcessError.FailedToStart:
            self._child = None
            self.finished.emit(False, "The child process that compiles kernels could not be started.")
