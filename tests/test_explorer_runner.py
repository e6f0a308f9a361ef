"""The worker: one job runs, one waits per lane, faults do not end it, nothing lives on after close."""

from __future__ import annotations

import threading

import pytest

from explorer.runner import Job, Kernels, Lane, Runner

WAIT_MS = 20_000


@pytest.fixture
def runner(qtbot):
    """A runner that leaves no thread."""
    made = Runner()
    yield made
    assert made.close()
    assert not any(thread.name == "tilewright-worker" for thread in threading.enumerate())


class Blocker:
    """A job that runs until it is let go."""

    def __init__(self, runner: Runner, lane: Lane = Lane.COST) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.answers: list[object] = []
        runner.submit(Job(lane, "blocking", self._work, self.answers.append))
        assert self.started.wait(10)

    def _work(self) -> str:
        self.started.set()
        assert self.go.wait(20)
        return "blocker"


def test_a_waiting_job_is_replaced_by_a_newer_one(qtbot, runner):
    blocker = Blocker(runner)
    answers: list[int] = []
    for number in range(100):
        runner.submit(Job(Lane.COST, "next", lambda n=number: n, answers.append))
    blocker.go.set()
    qtbot.waitUntil(lambda: answers == [99], timeout=WAIT_MS)
    assert blocker.answers == ["blocker"]


def test_a_lane_is_on_while_its_job_runs_or_waits_unless_it_is_held(qtbot, runner):
    assert not runner.is_on(*Lane)
    blocker = Blocker(runner)
    assert runner.is_on(Lane.SERVING, Lane.COST) and not runner.is_on(Lane.SERVING)
    runner.hold(Lane.MAP)
    for lane in (Lane.SERVING, Lane.MAP):
        runner.submit(Job(lane, "waiting", lambda: None, lambda _: None))
    assert runner.is_on(Lane.SERVING) and not runner.is_on(Lane.MAP)
    runner.release(Lane.MAP)
    assert runner.is_on(Lane.MAP)
    blocker.go.set()
    qtbot.waitUntil(lambda: not runner.is_on(*Lane), timeout=WAIT_MS)


def test_work_in_slices_gives_way_to_what_is_as_urgent_and_to_a_cancel(qtbot, runner):
    step, told = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[bool] = []
    answers: list[str] = []

    def work() -> str:
        for _ in range(100):
            assert step.acquire(timeout=20)
            seen.append(runner.gives_way())
            told.release()
            if seen[-1]:
                return "gave way"
        return "whole"

    def looks() -> bool:
        step.release()
        assert told.acquire(timeout=20)
        return seen[-1]

    runner.submit(Job(Lane.EXACT, "slices", work, answers.append))
    assert not looks()
    runner.submit(Job(Lane.MAP, "later", lambda: "map", answers.append))
    assert not looks()
    runner.hold(Lane.COST)
    runner.submit(Job(Lane.COST, "held", lambda: "cost", answers.append))
    assert not looks()
    runner.release(Lane.COST)
    assert looks()
    qtbot.waitUntil(lambda: answers == ["gave way", "cost", "map"], timeout=WAIT_MS)
    runner.submit(Job(Lane.EXACT, "slices", work, answers.append))
    assert not looks()
    runner.cancel()
    assert looks()
    qtbot.waitUntil(lambda: runner.is_idle, timeout=WAIT_MS)
    assert answers == ["gave way", "cost", "map"]


def test_lanes_go_by_urgency_and_files_in_turn(qtbot, runner):
    blocker = Blocker(runner)
    order: list[str] = []
    for lane, name in (
        (Lane.MAP, "map"),
        (Lane.SERVING, "serving"),
        (Lane.FILE, "first"),
        (Lane.FILE, "second"),
    ):
        runner.submit(Job(lane, name, lambda n=name: n, order.append))
    blocker.go.set()
    qtbot.waitUntil(lambda: len(order) == 4, timeout=WAIT_MS)
    assert order == ["first", "second", "serving", "map"]


def test_a_follower_goes_before_lower_lanes_that_waited_longer(qtbot, runner):
    blocker = Blocker(runner)
    order: list[str] = []

    def after(answer: str) -> Job:
        return Job(Lane.SERVING, "tail", lambda: f"tail of {answer}", order.append)

    runner.submit(Job(Lane.COST, "cost", lambda: "cost", order.append, then=after))
    runner.submit(Job(Lane.RELAYOUT, "layout", lambda: "layout", order.append))
    blocker.go.set()
    qtbot.waitUntil(lambda: len(order) == 3, timeout=WAIT_MS)
    assert order == ["cost", "tail of cost", "layout"]


def test_a_fault_is_told_and_the_next_job_runs(qtbot, runner):
    told: list[BaseException] = []
    runner.failed.connect(told.append)

    def broken() -> None:
        raise ValueError("made for the test")

    answers: list[int] = []
    runner.submit(Job(Lane.COST, "broken", broken, answers.append))
    qtbot.waitUntil(lambda: len(told) == 1, timeout=WAIT_MS)
    runner.submit(Job(Lane.COST, "sound", lambda: 7, answers.append))
    qtbot.waitUntil(lambda: answers == [7], timeout=WAIT_MS)
    assert str(told[0]) == "made for the test"


def test_cancel_forgets_what_waits_and_the_answer_of_what_runs(qtbot, runner):
    blocker = Blocker(runner)
    answers: list[int] = []
    runner.submit(Job(Lane.SERVING, "waiting", lambda: 1, answers.append))
    runner.cancel()
    assert runner.is_unwanted()
    blocker.go.set()
    qtbot.waitUntil(lambda: runner.is_idle, timeout=WAIT_MS)
    qtbot.wait(20)
    assert answers == [] and blocker.answers == []
    runner.submit(Job(Lane.SERVING, "after", lambda: 2, answers.append))
    qtbot.waitUntil(lambda: answers == [2], timeout=WAIT_MS)


def test_a_held_lane_waits_for_its_release(qtbot, runner):
    answers: list[str] = []
    runner.hold(Lane.COST)
    runner.submit(Job(Lane.COST, "held", lambda: "cost", answers.append))
    runner.submit(Job(Lane.FILE, "free", lambda: "file", answers.append))
    qtbot.waitUntil(lambda: answers == ["file"], timeout=WAIT_MS)
    runner.release(Lane.COST)
    qtbot.waitUntil(lambda: answers == ["file", "cost"], timeout=WAIT_MS)


def test_answers_come_back_on_the_gui_thread(qtbot, runner):
    where: list[int] = []
    runner.submit(Job(Lane.COST, "where", threading.get_ident, lambda _: where.append(threading.get_ident())))
    qtbot.waitUntil(lambda: len(where) == 1, timeout=WAIT_MS)
    assert where == [threading.get_ident()]


def test_busy_names_the_job_and_ends_empty(qtbot, runner):
    titles: list[str] = []
    runner.busy_changed.connect(titles.append)
    runner.submit(Job(Lane.COST, "Computing", lambda: None, lambda _: None))
    qtbot.waitUntil(lambda: titles[-1:] == [""], timeout=WAIT_MS)
    assert titles == ["Computing", ""]


def test_closing_in_the_middle_of_a_job_tells_nobody(qtbot):
    runner = Runner()
    blocker = Blocker(runner)
    blocker.go.set()
    assert runner.close()
    qtbot.wait(20)
    runner.submit(Job(Lane.COST, "too late", lambda: 1, blocker.answers.append))
    assert blocker.answers == []


def test_kernels_read_the_childs_lines_and_name_finished_files(qtbot):
    kernels = Kernels()
    steps: list[tuple[int, int, str]] = []
    done: list[str] = []
    kernels.progress.connect(lambda *step: steps.append(step))
    kernels.module_done.connect(done.append)
    kernels.take_output("kernel 1 of 3: model.graph.layering.rank\nkern")
    kernels.take_output("el 2 of 3: model.plan.bitsets.closure\nnoise\nfile model.graph.layering\n")
    assert steps == [(1, 3, "model.graph.layering.rank"), (2, 3, "model.plan.bitsets.closure")]
    assert done == ["model.graph.layering"]


def test_a_child_that_fails_is_told_readably(qtbot, monkeypatch, tmp_path):
    from model import compiled

    monkeypatch.setattr(compiled, "ready", lambda: False)
    monkeypatch.setattr("explorer.runner.CHILD", ("-c", "import sys; sys.exit('no compiler today')"))
    kernels = Kernels()
    with qtbot.waitSignal(kernels.finished, timeout=WAIT_MS) as told:
        kernels.start()
    assert told.args[0] is False and "no compiler today" in told.args[1]
    assert not kernels.compiling
