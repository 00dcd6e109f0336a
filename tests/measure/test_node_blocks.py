"""Blocks on one unbroken grid, with a clock that only moves when told to."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from loop_fakes import FakeClock

from robot_perf.measure.node.block_report import block_report
from robot_perf.measure.node.blocks import Block, BlockLoop, NoRows
from robot_perf.measure.node.body import ActionWatch, Edge, NodeBody
from robot_perf.measure.node.mailbox import NODE_COLUMNS, STALE, WITHHELD, LiveObservations
from robot_perf.measure.node.mapping import default_mapping
from robot_perf.measure.recorder import Recorder
from robot_perf.run.columns import STEP_COLUMNS
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.specs import LoopSpec, PolicySpec, TensorSpec, to_json

MS = 1_000_000
SPEC = PolicySpec(
    name="p",
    kind="builtin",
    inputs=(TensorSpec("obs", "float32", (2,)),),
    outputs=(TensorSpec("a", "float32", (2,)),),
    action=0,
)


def loop(steps=10, period_ms=10):
    return LoopSpec(period_ns=period_ms * MS, deadline_ns=period_ms * MS, steps=steps)


def stepmap(folder, name, spec):
    made = StepMap.create(
        folder / f"{name}.map", {"loop": to_json(spec)}, (*STEP_COLUMNS, *NODE_COLUMNS), spec.steps + 8
    )
    made[Word.WARMUP_ROWS] = 0
    return made


class Scripted:
    """A policy whose call k takes `durations[k]` ms, else 1 ms; NaN where `bad` says so."""

    def __init__(self, clock, durations=None, bad=(), stop_after=None):
        self.clock, self.durations, self.bad, self.stop_after = clock, durations or {}, bad, stop_after
        self.calls, self.stop = 0, [False]

    spec = SPEC

    def step(self, observation):
        self.clock.time_ns += int(self.durations.get(self.calls, 1) * MS)
        answer = np.full(2, np.nan if self.calls in self.bad else self.calls, np.float32)
        self.calls += 1
        if self.calls == self.stop_after:
            self.stop[0] = True
        return (answer,)


def body(clock, policy, spec):
    made = NodeBody.__new__(NodeBody)
    made.loop, made.clock, made.runner, made.stop = spec, clock, policy, policy.stop
    made.watch, made.stopped_stale = ActionWatch(0, SPEC.outputs[0]), False
    made.noise = lambda: (0, 0, 0, 0, 0, 0)
    return made


def run(folder, policy, clock, spec, *, maps=3, feed=None, edge=None, hand_over=lambda _number: True):
    """Runs until the policy stops it; maps are handed over as the node's executor would."""
    made = body(clock, policy, spec)
    sent = []
    edge = edge or Edge(lambda action, stamp: sent.append(action.copy()) or True)
    feed = feed or SimpleNamespace(reader=lambda: lambda k: (np.zeros(2, np.float32),))
    blocks = [made.make_block(stepmap(folder, i, spec), feed, edge) for i in range(maps)]
    waiting = blocks[1:]
    idle = NoRows()

    def snapshot():
        return {}

    machine = BlockLoop(spec, clock, policy.stop, snapshot, (idle, made._step(idle, feed, edge)))
    begin = machine._begin

    def begin_and_hand_over(block, number, origin):
        begin(block, number, origin)
        if waiting and hand_over(number):
            machine.following = waiting.pop(0)

    machine._begin = begin_and_hand_over
    machine.run(blocks[0], 100 * MS)
    return blocks, machine, sent, made


def rows(block):
    return block.stepmap.rows()


def test_two_blocks_join_without_a_seam(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, stop_after=25)
    blocks, machine, sent, _ = run(tmp_path, policy, clock, loop())
    releases = np.concatenate([rows(b)["release_ns"] for b in blocks])
    assert np.diff(releases).tolist() == [10 * MS] * 24
    assert [len(rows(b)["step"]) for b in blocks] == [10, 10, 5]
    assert [b.stepmap[Word.ORIGIN] for b in blocks] == [100 * MS, 200 * MS, 300 * MS]
    assert [b.number for b in machine.ended] == [0, 1, 2]
    assert len(sent) == 25


def test_a_job_that_overruns_the_boundary_skips_releases_of_the_next_block(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, durations={9: 25}, stop_after=14)
    blocks, *_ = run(tmp_path, policy, clock, loop())
    assert rows(blocks[0])["step"].tolist() == list(range(10))
    # release 9 at 190 ms ends at 215 ms: releases 200 and 210 are skipped, 220 is step 2 of the next block
    assert rows(blocks[1])["step"].tolist() == [2, 3, 4, 5]
    assert rows(blocks[1])["release_ns"][0] == 220 * MS
    assert blocks[0].stepmap.reached() == 10
    assert blocks[1].stepmap.reached() == 6


def test_a_job_longer_than_a_block_leaves_it_out_and_says_so(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, durations={9: 255}, stop_after=12)
    blocks, machine, *_ = run(tmp_path, policy, clock, loop())
    assert machine.lost_blocks == 2
    assert rows(blocks[1])["release_ns"][0] == 450 * MS
    assert rows(blocks[1])["step"][0] == 5
    # the next block's Run says what is missing before it, once
    counts = {"window_ns": 0, "process_cpu_ns": 0, "loop_thread_cpu_ns": 0, "gc_collections": 0, "gc_ns": 0}
    told = []
    for block in blocks[:2]:
        facts = {**block.facts, "before": counts, "after": counts}
        ended = Block(block.stepmap, block.rows, block.step, block.sink, block.number, facts)
        told.append(block_report({"invalid": [], "notes": ["n"]}, ended, None, {})["notes"])
    assert told[0] == ["n"]
    assert told[1][1:] == [
        "a step ran longer than a whole block: the 2 blocks before this one have no Run,"
        " and their 20 releases, all missed, are in no verdict"
    ]


def test_without_a_map_the_robot_goes_on_and_steps_are_counted(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, stop_after=40)
    spec = loop()
    made = {}
    original = NoRows.finish

    def finish(self, *a, **k):
        original(self, *a, **k)
        if self.steps == 7:
            made["machine"].following = made["waiting"].pop(0)

    # As `run`, but block 1's map is late: it is handed over in the seventh step without one.
    b = body(clock, policy, spec)
    edge = Edge(lambda action, stamp: True)
    feed = SimpleNamespace(reader=lambda: lambda k: (np.zeros(2, np.float32),))
    blocks = [b.make_block(stepmap(tmp_path, i, spec), feed, edge) for i in range(2)]
    idle = NoRows()
    idle.finish = finish.__get__(idle)
    machine = BlockLoop(spec, clock, policy.stop, dict, (idle, b._step(idle, feed, edge)))
    made |= {"machine": machine, "waiting": blocks[1:]}
    machine.run(blocks[0], 100 * MS)
    assert idle.steps == 16 + (40 - 36)  # until the look after 16 steps, and what follows the last map
    first = rows(blocks[1])["release_ns"][0]
    assert first == (100 + 10 * (10 + 16)) * MS  # still on the grid
    assert rows(blocks[1])["step"][0] == 0


def test_a_nan_action_is_not_published(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, bad={3, 4}, stop_after=8)
    blocks, _, sent, made = run(tmp_path, policy, clock, loop())
    assert [float(a[0]) for a in sent] == [0, 1, 2, 5, 6, 7]
    c = rows(blocks[0])
    assert (c["flags"] & WITHHELD).astype(bool).tolist() == [False] * 3 + [True] * 2 + [False] * 3
    assert c["published_ns"][3] == -1
    assert made.watch.nonfinite_steps == 2


@pytest.mark.parametrize(("mode", "calls", "stops"), [("hold", 10, False), ("skip", 5, False), ("stop", 5, True)])
def test_a_stale_observation_does_what_was_asked(tmp_path, mode, calls, stops):
    clock = FakeClock()
    policy = Scripted(clock)
    live = LiveObservations(SPEC, default_mapping(SPEC), 30 * MS)
    live.inboxes[0].put(SimpleNamespace(data=[1.0, 2.0]), 115 * MS)
    count = [0]

    def publish(action, stamp):
        return True

    original = live.look

    def look(now):
        count[0] += 1
        if count[0] == 10:
            policy.stop[0] = True
        return original(now)

    live.look = look
    blocks, _, _, made = run(tmp_path, policy, clock, loop(steps=20), feed=live, edge=Edge(publish, on_stale=mode))
    assert policy.calls == calls
    assert made.stopped_stale is stops
    c = rows(blocks[0])
    assert (c["end_ns"] == -1).sum() == {"hold": 0, "skip": 5, "stop": 1}[mode]
    assert (c["flags"] & STALE).astype(bool).sum() == {"hold": 5, "skip": 5, "stop": 1}[mode]


def test_the_publish_is_own_work_and_stamped(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, stop_after=3)

    def publish(action, stamp):
        clock.time_ns += 2 * MS
        return True

    blocks, *_ = run(tmp_path, policy, clock, loop(), edge=Edge(publish))
    c = rows(blocks[0])
    assert (c["published_ns"] - c["end_ns"]).tolist() == [2 * MS] * 3
    assert c["own_ns"].tolist()[:2] == [2 * MS] * 2


def test_the_loop_allocates_nothing_that_grows(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, stop_after=3000)
    blocks_before = sys.getallocatedblocks()
    run(tmp_path, policy, clock, loop(steps=3000), maps=1, edge=Edge(lambda a, s: True))
    assert sys.getallocatedblocks() - blocks_before < 2000


def test_phases_of_a_block(tmp_path):
    clock = FakeClock()
    policy = Scripted(clock, stop_after=12)
    blocks, *_ = run(tmp_path, policy, clock, loop())
    assert [b.stepmap[Word.PHASE] for b in blocks] == [Phase.RUNNING, Phase.RUNNING, Phase.CREATED]
    assert isinstance(blocks[0], Block)
    assert isinstance(blocks[0].rows, Recorder)
