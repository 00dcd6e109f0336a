"""What a configured policy of the node leaves when it goes: nothing, whatever part of the going fails. Without ROS."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robot_perf.measure.node.activity import Activity
from robot_perf.measure.node.body import NodeBody
from robot_perf.measure.node.thread import OwnThread
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.stepmap import StepMap
from robot_perf.specs import LoopSpec, to_json

LOOP = LoopSpec(period_ns=10_000_000, deadline_ns=10_000_000, steps=10)


class Runner:
    """Notes where it is closed; `trouble` is what closing raises."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.trouble, self.closed = trouble, []

    def close(self) -> None:
        self.closed.append(threading.get_ident())
        if self.trouble is not None:
            raise self.trouble


def loaded(runner: Any) -> NodeBody:
    body = NodeBody(SimpleNamespace(loop=LOOP), entered_ns=0)  # type: ignore[arg-type]
    body.runner = runner
    body.collections.__enter__()
    body._stamping = True
    return body


@pytest.mark.parametrize("trouble", [None, OSError("the bus is gone")])
def test_a_runner_that_fails_to_close_is_closed_once_and_leaves_no_callback(trouble: BaseException | None) -> None:
    before = list(gc.callbacks)
    runner = Runner(trouble)
    body = loaded(runner)
    assert gc.callbacks != before
    if trouble is None:
        body.close()
    else:
        with pytest.raises(OSError, match="bus"):
            body.close()
    body.close()
    assert gc.callbacks == before and len(runner.closed) == 1 and body.runner is None


def test_what_ended_the_loop_holds_nothing_when_the_runner_closes() -> None:
    class Held:
        pass

    held: list[Any] = []

    def step() -> None:
        inside = Held()
        held.append(weakref.ref(inside))
        raise ValueError("motor table has no entry 7")

    class Looks(Runner):
        def close(self) -> None:
            self.alive = held[0]() is not None

    runner = Looks()
    body = loaded(runner)
    try:
        step()
    except ValueError as error:
        body.failure = error
    assert held[0]() is not None
    body.close()
    assert not runner.alive


@pytest.mark.parametrize("part", ["map", "runner", "nothing"])
def test_a_release_that_fails_in_part_does_the_rest(part: str) -> None:
    told: list[dict[str, Any]] = []
    activity = Activity(SimpleNamespace(tell=lambda **words: told.append(words)), "thread", 0)  # type: ignore[arg-type]
    owner = activity.place.call(threading.get_ident)
    thread = activity.place._thread  # type: ignore[union-attr]
    runner = Runner(OSError("the bus is gone") if part == "runner" else None)
    activity.body = loaded(runner)

    def close() -> None:
        if part == "map":
            raise BufferError("cannot close exported pointers exist")

    activity._first = SimpleNamespace(close=close)  # type: ignore[assignment]
    if part == "nothing":
        activity.release()
    else:
        with pytest.raises((BufferError, OSError)):
            activity.release()
    assert runner.closed == [owner] and told == [{"cmd": "drop"}]
    assert not thread.is_alive() and activity.body is None


def test_a_map_that_can_not_be_taken_over_is_closed(tmp_path: Any) -> None:
    path = tmp_path / "block.map"
    StepMap.create(path, {"loop": to_json(LOOP)}, STEP_COLUMNS, LOOP.steps).close()
    body = loaded(Runner())
    body.report["backend_facts"] = {"version": object()}
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(TypeError, match="JSON"):
        body.attach(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    body.close()


def test_an_error_of_the_loops_thread_goes_with_its_last_holder() -> None:
    """Else what its frames hold would stay until a collection, and end in whichever thread collects."""

    class Held:
        pass

    held: list[Any] = []

    def job() -> None:
        inside = Held()
        held.append(weakref.ref(inside))
        raise ValueError("motor table has no entry 7")

    place = OwnThread()
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="motor") as raised:
            place.call(job)
        assert held[0]() is not None
        del raised
        assert held[0]() is None
    finally:
        gc.enable()
        place.close()
