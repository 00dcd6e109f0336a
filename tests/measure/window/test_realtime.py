"""Real-time settings: what takes is read back and undone, what is refused is explained with the way to the right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robot_perf.measure.window.realtime import RealTimeSettings
from robot_perf.specs import RealTime

ROOT = Path(__file__).resolve().parents[3]

APPLY = """
import json, os, resource, sys
from robot_perf.measure.window.realtime import RealTimeSettings
from robot_perf.specs import RealTime
import encodings.ascii  # codecs are imported on use
if sys.argv[1] == "nobody":  # after the imports: an unprivileged user may not be able to read this checkout
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
before = os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))
first = min(os.sched_getaffinity(0))
settings = RealTimeSettings(RealTime(fifo_priority=10, cpus=(first,), mlock=True, hold_cpu_dma_latency=True))
settings.apply()
effective = settings.effective()
settings.restore()
after = os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))
print(json.dumps({"effective": effective, "restored": before == after}))
"""


def applied(who: str) -> dict:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    result = subprocess.run(
        [sys.executable, "-c", APPLY, who], capture_output=True, text=True, env=environment, cwd="/", check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_refusals_name_the_limit_and_the_way_to_the_right():
    found = applied("nobody")
    refused = " ".join(found["effective"]["refused"])
    assert "SCHED_FIFO 10 refused" in refused
    assert "RLIMIT_RTPRIO is 0" in refused
    assert "mlockall refused" in refused
    assert "RLIMIT_MEMLOCK is 4,096 bytes" in refused
    assert "limits.conf" in refused
    assert "--cap-add=sys_nice" in refused
    assert found["effective"]["scheduler"] == "SCHED_OTHER"
    assert found["effective"]["memory_locked_bytes"] == 0
    assert not found["effective"]["cpu_dma_latency_held"]
    assert len(found["effective"]["affinity"]) == 1
    assert found["restored"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to real-time priorities")
def test_what_takes_is_effective_and_undone():
    found = applied("root")
    effective = found["effective"]
    if any("SCHED_FIFO" in reason for reason in effective["refused"]):
        pytest.skip(f"this machine refuses real-time priorities to root: {effective['refused']}")
    assert (effective["scheduler"], effective["priority"]) == ("SCHED_FIFO", 10)
    assert effective["memory_locked_bytes"] > 0 or any("mlockall" in reason for reason in effective["refused"])
    assert found["restored"]


def test_nothing_asked_changes_nothing():
    settings = RealTimeSettings(RealTime())
    before = os.sched_getscheduler(0), os.sched_getaffinity(0)
    settings.apply()
    assert settings.effective()["refused"] == []
    settings.restore()
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == before
