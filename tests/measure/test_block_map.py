"""A block's step map lies in memory that outlives the process: whatever ends the block, nothing of it stays."""

from __future__ import annotations

import os
import sys

import pytest

from robot_perf import policies
from robot_perf.measure.order import WorkOrder
from robot_perf.measure.processes import block_worker
from robot_perf.measure.processes.block_worker import BlockWorker
from robot_perf.run import stepmap
from robot_perf.run.maps import MAP_FOLDER
from robot_perf.specs import LoopSpec

LOOP = LoopSpec(period_ns=0, deadline_ns=0, steps=20)


@pytest.mark.parametrize("place", ["while it is made", "while it is used"])
def test_an_interruption_leaves_no_map(monkeypatch, place):
    def interrupt(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    if place == "while it is made":
        monkeypatch.setattr(stepmap.os, "pwrite", interrupt)
    else:
        monkeypatch.setattr(block_worker, "process_born", interrupt)
    before = set(MAP_FOLDER.glob(f"*-{os.getpid()}-*"))
    worker = BlockWorker(
        WorkOrder(map_path="", policy=policies.describe("null"), backend="python", loop=LOOP), sys.executable
    )
    with pytest.raises(KeyboardInterrupt):
        worker.run(LOOP, {})
    assert set(MAP_FOLDER.glob(f"*-{os.getpid()}-*")) == before
