"""The document: preview and commit, undo as a property, the order of answers, faults, baseline."""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import replace

import pytest
from PySide6.QtCore import QObject

from explorer.document import Document
from explorer.results import UNFUSED
from explorer.runner import Lane
from model.errors import FileError
from model.plan.edits import unfused
from model.plan.plan import FusionGroup, LevelTile, Plan

from . import made_results
from .explorer_engine import HandEngine, workload

WAIT_MS = 300_000  # a cold cache compiles the layout kernels first


@pytest.fixture
def document(qtbot):
    """An empty document with the hand-made engine; no thread is left afterwards."""
    made = Document(engine=HandEngine())
    yield made
    made.engine.gate.set()
    assert made.close()
    assert not any(thread.name == "tilewright-worker" for thread in threading.enumerate())


def settle(qtbot, document: Document) -> None:
    """Until nothing runs, nothing waits and every answer has arrived."""
    for _ in range(5):  # panels that are drawn anew ask for more, each in a turn of its own
        qtbot.waitUntil(lambda: document.runner.is_idle, timeout=WAIT_MS)
        qtbot.wait(1)


def opened(qtbot, document: Document, *, served: bool = False) -> None:
    document.set_accelerator(made_results.machine())
    if served:
        document.set_workload(workload())
    document.set_graph(made_results.chain())
    settle(qtbot, document)


def merged(plan: Plan, index: int) -> Plan:
    """Groups `index` and the next one as one; knobs are dropped."""
    both = plan.groups[index].operators + plan.groups[index + 1].operators
    return Plan((*plan.groups[:index], FusionGroup(both), *plan.groups[index + 2 :]))


def tiled(plan: Plan, index: int, size: int) -> Plan:
    group = FusionGroup(plan.groups[index].operators, levels=(LevelTile("buffer", (("m", size),)),))
    return Plan((*plan.groups[:index], group, *plan.groups[index + 1 :]))


def test_a_graph_is_shown_unfused_until_the_starting_plan_is_proposed(qtbot, document):
    document.set_accelerator(made_results.machine())
    document.set_graph(made_results.chain())
    assert document.plan == unfused(made_results.chain())
    settle(qtbot, document)
    assert document.plan == made_results.plan()
    assert document.undo_stack.count() == 0
    assert document.cost.request.plan is document.plan


def test_a_fault_of_our_own_says_where_the_log_is(qtbot, document):
    document.log_file = "/home/me/.local/state/tilewright.log"
    document.engine.fault = ZeroDivisionError("by hand")
    said: list[str] = []
    document.said.connect(lambda sentence, _: said.append(sentence))
    opened(qtbot, document)
    assert any("ZeroDivisionError" in s and s.endswith(document.log_file) for s in said)


def test_a_preview_leaves_no_trace(qtbot, document):
    opened(qtbot, document)
    before = document.plan
    document.preview(merged(before, 0))
    settle(qtbot, document)
    assert len(document.cost.groups) == 3 and document.plan is before and document.previewing
    document.preview(None)
    settle(qtbot, document)
    assert document.shown_plan is before and document.undo_stack.count() == 0
    assert document.cost.request.plan is before


def test_a_commit_is_one_entry_and_committing_the_same_plan_none(qtbot, document):
    opened(qtbot, document)
    before = document.plan
    document.preview(merged(before, 0))
    document.commit(merged(before, 0), "Fuse")
    assert document.undo_stack.count() == 1 and not document.previewing
    document.commit(merged(before, 0), "Fuse again")
    assert document.undo_stack.count() == 1
    document.undo()
    assert document.plan == before
    document.redo()
    assert document.plan == merged(before, 0)


def test_nudges_of_one_cut_merge_and_a_net_zero_gesture_leaves_none(qtbot, document):
    opened(qtbot, document)
    before = document.plan
    for size in (32, 64, 96):
        document.commit(tiled(before, 1, size), f"Tile m {size}", merge="tile 1")
    assert document.undo_stack.count() == 1
    assert document.undo_stack.undoText() == "Tile m 96"
    document.commit(tiled(before, 2, 8), "Tile elsewhere", merge="tile 2")
    assert document.undo_stack.count() == 2
    document.commit(tiled(before, 1, 96), "Back", merge="tile 2")
    assert document.undo_stack.count() == 1  # the second gesture came back to where it began
    document.undo()
    assert document.plan == before


def test_500_random_edits_undone_and_redone_step_by_step(qtbot, document):
    opened(qtbot, document)
    document.runner.hold(Lane.COST)  # only the state is asked for
    chance = random.Random(0)
    states = [document.plan]
    while len(states) <= 500:
        plan = states[-1]
        index = chance.randrange(len(plan.groups))
        kind = chance.randrange(4)
        if kind == 0 and index + 1 < len(plan.groups):
            after = merged(plan, index)
        elif kind == 1 and len(plan.groups[index].operators) > 1:
            cut = chance.randrange(1, len(plan.groups[index].operators))
            members = plan.groups[index].operators
            halves = (FusionGroup(members[:cut]), FusionGroup(members[cut:]))
            after = Plan((*plan.groups[:index], *halves, *plan.groups[index + 1 :]))
        else:
            after = tiled(plan, index, chance.randrange(1, 512))
        if after != plan:
            document.commit(after, f"Edit {len(states)}")
            states.append(after)
    assert document.undo_stack.count() == 500
    for state in reversed(states[:-1]):
        document.undo()
        assert document.plan == state
    for state in states[1:]:
        document.redo()
        assert document.plan == state
    document.runner.release(Lane.COST)


def test_answers_newer_than_shown_are_taken_and_older_ones_dropped(qtbot, document):
    opened(qtbot, document)
    engine, before = document.engine, document.plan
    seen: list[int] = []
    document.cost_changed.connect(lambda result: seen.append(result.request.revision))
    engine.gate.clear()
    engine.asked.clear()
    document.preview(tiled(before, 0, 1))
    qtbot.waitUntil(lambda: engine.begun == document.revision, timeout=WAIT_MS)
    for size in range(2, 30):
        document.preview(tiled(before, 0, size))
    engine.gate.set()
    settle(qtbot, document)
    assert len(engine.asked) == 2  # the first was running, the last had replaced all others
    assert seen == sorted(seen) and seen[-1] == document.revision


def test_an_answer_of_another_machine_is_dropped(qtbot, document):
    opened(qtbot, document)
    document.engine.gate.clear()
    document.preview(merged(document.plan, 0))
    qtbot.waitUntil(lambda: document.engine.begun == document.revision, timeout=WAIT_MS)
    document.set_accelerator(made_results.machine())
    document.engine.gate.set()
    settle(qtbot, document)
    assert document.cost.request.accelerator is document.accelerator


def test_a_fault_becomes_a_sentence_and_the_runner_is_free(qtbot, document, caplog):
    opened(qtbot, document)
    sentences: list[tuple[str, str]] = []
    document.said.connect(lambda text, level: sentences.append((text, level)))
    document.engine.fault = ZeroDivisionError("made for the test")
    document.preview(merged(document.plan, 0))
    settle(qtbot, document)
    assert sentences[0][1] == "error" and "made for the test" in sentences[0][0]
    assert "Traceback" not in sentences[0][0] and "Traceback" in caplog.text
    document.preview(None)
    settle(qtbot, document)
    assert document.cost.request.revision == document.revision


def test_an_error_of_the_user_is_said_as_it_is(qtbot, document):
    opened(qtbot, document)
    told: list[tuple[str, str]] = []
    document.failed.connect(lambda kind, text: told.append((kind, text)))
    document.engine.fault = FileError("needs 2 KiB", where="group 1", lever="Halve k.")
    document.preview(merged(document.plan, 0))
    settle(qtbot, document)
    assert told == [("cost", "group 1: needs 2 KiB. Halve k.")]


def test_deltas_are_against_unfused_until_something_is_pinned(qtbot, document):
    opened(qtbot, document, served=True)
    base = document.baseline
    assert base.label == UNFUSED and base.totals is not None
    assert base.serving.p95_ns > document.serving.p95_ns  # ten groups against four
    document.pin_baseline()
    settle(qtbot, document)
    assert document.baseline.label == "pinned"
    assert document.baseline.totals == document.cost.totals
    document.commit(merged(document.plan, 0), "Fuse")
    settle(qtbot, document)
    assert document.baseline.totals.launches == 4 and document.cost.totals.launches == 3
    document.unpin_baseline()
    settle(qtbot, document)
    assert document.baseline.label == UNFUSED and document.baseline.totals.launches == 10


def test_a_plan_that_does_not_fit_is_not_served(qtbot, document):
    document.engine.unfit = True
    opened(qtbot, document, served=True)
    assert document.cost is not None and document.serving is None
    document.engine.unfit = False
    document.commit(merged(document.plan, 0), "Fuse")
    settle(qtbot, document)
    assert document.serving is not None
    document.engine.unfit = True
    document.undo()
    settle(qtbot, document)
    assert document.serving is None


def test_slots_and_rate_serve_again_without_computing_cost_again(qtbot, document):
    opened(qtbot, document, served=True)
    document.engine.asked.clear()
    cost = document.cost
    document.set_load(replace(document.load, slots=7))
    settle(qtbot, document)
    assert document.serving.slots == 7 and document.cost is cost
    assert document.served.load.slots == 7
    document.set_workload(workload("poisson"))
    settle(qtbot, document)
    assert document.load.slots is None and document.serving.slots == 4


def test_a_load_set_while_the_cost_runs_is_the_one_that_is_served(qtbot, document):
    opened(qtbot, document, served=True)
    engine = document.engine
    engine.gate.clear()
    document.commit(merged(document.plan, 1), "Fuse")
    document.set_load(replace(document.load, slots=7))
    engine.gate.set()
    settle(qtbot, document)
    assert document.serving.slots == 7 and not document.serving_is_behind
    assert document.served.cost is document.cost and document.cost.request.plan is document.plan


def test_the_tail_follows_its_cost_without_a_turn_of_the_gui_thread(qtbot, document):
    opened(qtbot, document, served=True)
    order: list[str] = []
    done = threading.Event()
    simulate, tail = document.engine.simulate, document.engine.tail
    document.engine.simulate = lambda request: (order.append("cost"), simulate(request))[1]

    def served(request):
        order.append("tail")
        done.set()
        yield from tail(request)

    document.engine.tail = served
    document.commit(merged(document.plan, 1), "Fuse")
    document.ask(Lane.RELAYOUT, "Laying out", lambda: order.append("layout"), lambda _: None)
    assert done.wait(20)  # no event is handled meanwhile
    settle(qtbot, document)
    assert order == ["cost", "tail", "layout"]


def test_an_offer_is_taken_once(qtbot, document):
    opened(qtbot, document)
    fix = merged(document.plan, 1)
    document.set_offer("would make a cycle", fix, "Fuse with what lies between")
    document.take_offer()
    assert document.plan == fix and document.offer is None
    document.take_offer()
    assert document.undo_stack.count() == 1


def test_a_file_that_cannot_be_read_changes_nothing(qtbot, document):
    opened(qtbot, document)
    graph = document.graph
    with qtbot.waitSignal(document.failed, timeout=WAIT_MS) as told:
        document.open("missing.onnx")
    assert told.args == ["open", "missing.onnx: no such file. Choose another."]
    assert document.graph is graph


def test_the_count_of_references_to_none_stays_level(qtbot, document):
    """PySide6 6.12 loses a reference to None on void calls and aborts (see pyproject's pin)."""
    opened(qtbot, document)
    probe = QObject()
    before = sys.getrefcount(None)
    for _ in range(2000):
        probe.blockSignals(False)
        probe.setObjectName("x")
        document.preview(None)
    assert abs(sys.getrefcount(None) - before) < 500


def test_what_a_listener_asks_for_when_it_hears_of_a_graph_is_answered(qtbot, document):
    answers: list[str] = []
    document.graph_changed.connect(
        lambda: document.ask(Lane.INDEX, "Indexing", lambda: "index", answers.append)
    )
    opened(qtbot, document)
    assert answers == ["index"]


def test_binding_dims_keeps_the_plan_and_says_so(qtbot, document):
    level = LevelTile("buffer", (("m", 128),), ("m", "n"))
    groups = made_results.plan().groups
    tiled = Plan((replace(groups[0], levels=(level,), stages=2), *groups[1:]))
    said: list[str] = []
    document.said.connect(lambda sentence, _: said.append(sentence))
    document.set_accelerator(made_results.machine())
    document.set_graph(replace(made_results.chain(), path="block.onnx"), tiled)
    settle(qtbot, document)
    document.rebind({"seq": 512})
    settle(qtbot, document)
    assert document.plan == tiled
    assert said[-1] == "The plan's groups are kept."
