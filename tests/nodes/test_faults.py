"""Injected faults end as stated: observations that stop, come late, hold NaN or have the wrong size; policies that misbehave; signals."""

from __future__ import annotations

import math
import re
import signal
import time

import pytest
from ros_bench import runs

from robot_perf.analyze.verdict import judge

pytestmark = pytest.mark.ros
FAST = {"rate": 100, "steps": 200, "autostart": True}


def topic(report_runs, name):
    return report_runs[-1].conditions["node"]["topics"]["~/observation"][name]


def flags(all_runs, bit):
    return sum(int(((r.measured["flags"] & bit) != 0).sum()) for r in all_runs)


def test_bad_observations_are_counted_and_never_reach_the_policy(start, driver, tmp_path):
    from diagnostic_msgs.msg import DiagnosticArray

    arrays = []
    driver.node.create_subscription(DiagnosticArray, "/diagnostics", arrays.append, 10)
    node = start("policy_node", policy="odd_policies:fine", stale_after_ms=100.0, **FAST)
    node.wait_for("configured:")
    robot = start("observation_node", rate=100, size=4, topic="/policy_node/observation", wait_for=1, count=100_000)

    def ages():
        age = (driver.report().get("window") or {}).get("observation_age")
        return age and age["p50"]

    driver.until(ages, what="observations")

    def sent(what, count):
        driver.until(lambda: driver.report("observation_node")[what] >= count, what=f"{count} x {what}")

    def refused(kind, more_than):
        """By the node's own count: of what is sent while it stands still it sees the last alone."""
        driver.until(
            lambda: any(
                value.key.endswith(f"observation {kind}") and int(value.value) > more_than
                for array in arrays[-3:] for status in array.status for value in status.values
            ),
            what=f"{more_than} x {kind} in the diagnostics",
        )  # fmt: skip

    assert driver.set("observation_node", nan_ratio=1.0) == []
    refused("nonfinite", 10)
    assert driver.set("observation_node", nan_ratio=0.0, wrong_size_ratio=1.0) == []
    refused("malformed", 10)
    assert driver.set("observation_node", wrong_size_ratio=0.0, late_ms=40.0) == []
    sent("sent", driver.report("observation_node")["sent"] + 40)
    before = driver.report()["since_activation"]["stale"]
    assert driver.set("observation_node", late_ms=0.0, drop_ratio=1.0) == []  # they stop
    driver.until(lambda: driver.report()["since_activation"]["stale"] > before + 60, what="60 stale releases")
    robot.end()  # the publisher restarts
    start("observation_node", rate=100, size=4, topic="/policy_node/observation", wait_for=1, count=100_000)
    fresh = driver.report()["since_activation"]["stale"]

    def steady():
        nonlocal fresh
        before, fresh = fresh, driver.report()["since_activation"]["stale"]
        driver.spin(0.5)
        return before == fresh and ages()

    driver.until(steady, what="half a second without a stale release")
    node.end()
    saved = runs(tmp_path)
    assert topic(saved, "nonfinite") > 10
    assert topic(saved, "malformed") > 10
    assert "wanted 4" in topic(saved, "problem") or "NaN" in topic(saved, "problem")
    # hold: the policy runs on the last good observation, every command is finite and goes out
    assert flags(saved, 4) == 0
    assert flags(saved, 2) > 50
    assert all((r.measured["published_ns"] > 0).all() for r in saved[:-1])
    assert "messages refused" in node.log


@pytest.mark.slow
def test_skip_makes_no_call_and_counts_a_miss(start, driver, tmp_path):
    node = start("policy_node", policy="odd_policies:fine", stale_after_ms=100.0, on_stale="skip", **FAST)
    node.wait_for("configured:")
    start("observation_node", rate=100, size=4, topic="/policy_node/observation", wait_for=1, count=100)
    driver.until(lambda: driver.report().get("since_activation", {}).get("stale", 0) > 60, what="60 stale releases")
    node.end()
    saved = runs(tmp_path)
    stale = sum(int(((r.columns["flags"] & 2) != 0).sum()) for r in saved)
    assert stale > 50
    assert sum(judge(r).misses for r in saved) >= stale
    assert all(not judge(r).invalid for r in saved[:-1])


@pytest.mark.slow
def test_stop_deactivates_and_saves(start, driver, tmp_path):
    node = start("policy_node", policy="odd_policies:fine", stale_after_ms=100.0, on_stale="stop", **FAST)
    node.wait_for("configured:")
    start("observation_node", rate=100, size=4, topic="/policy_node/observation", wait_for=1, count=150)
    node.wait_for("on_stale is stop")
    driver.until(lambda: driver.state() == "inactive", what="inactive")
    driver.until(lambda: runs(tmp_path), what="a Run")
    assert "stopped on a stale observation" in runs(tmp_path)[0].conditions["state"]
    assert node.end() == 4


def test_a_policy_that_raises_ends_unconfigured_with_its_traceback(start, driver, tmp_path):
    from diagnostic_msgs.msg import DiagnosticArray

    arrays = []
    driver.node.create_subscription(DiagnosticArray, "/diagnostics", arrays.append, 10)
    quiet = {**FAST, "autostart": False, "overrun": "queue"}  # skipped releases would be no calls
    node = start("policy_node", policy="odd_policies:raises", observations="random", **quiet)
    assert driver.change("configure")
    driver.until(
        lambda: arrays, what="diagnostics of the inactive node"
    )  # the reader is known to the writer from here on
    assert driver.change("activate")
    log = node.wait_for("motor table has no entry 7")
    driver.until(lambda: driver.state() == "unconfigured", what="unconfigured")
    driver.until(lambda: runs(tmp_path), what="a Run")
    assert "odd_policies.py" in log

    def errors():
        return [s.message for a in arrays for s in a.status if s.level == b"\x02"]

    driver.until(errors, what="an error in the diagnostics")
    assert errors()[-1] == "the policy raised ValueError: motor table has no entry 7"
    verdict = judge(runs(tmp_path)[0])
    assert verdict.status == "INVALID"
    assert "the policy raised" in verdict.reason
    assert len(runs(tmp_path)[0].measured["step"]) == 100
    assert driver.change("configure")  # and it can go on
    node.end()


@pytest.mark.slow
def test_nan_never_leaves_the_node(start, driver, tmp_path):
    from std_msgs.msg import Float64MultiArray

    seen = []
    driver.node.create_subscription(Float64MultiArray, "/policy_node/action", lambda m: seen.append(list(m.data)), 1000)
    node = start("policy_node", policy="odd_policies:nan", observations="random", **FAST)
    node.wait_for("configured:")
    driver.until(lambda: len(seen) > 150, what="150 commands")
    node.end()
    driver.spin(0.2)
    first = runs(tmp_path)[0]
    assert all(math.isfinite(value) for command in seen for value in command)
    assert int(((first.measured["flags"] & 4) != 0).sum()) == 20
    assert judge(first).status == "INVALID"
    assert "NaN" in judge(first).reason


@pytest.mark.slow
def test_a_policy_that_hangs_is_left_behind_and_its_steps_saved(start, driver, tmp_path):
    node = start("policy_node", policy="odd_policies:hangs", observations="random", **FAST)
    node.wait_for("configured:")
    # The 101st call: release 100, or a later one where a busy machine made the loop skip some.
    hung = driver.until(lambda: driver.report().get("hung_in_step"), what="the hang")
    assert 100 <= hung < 200
    assert not driver.change("deactivate")
    assert driver.state() == "unconfigured"
    assert "the policy hangs" in node.log
    driver.until(lambda: runs(tmp_path), what="a Run")
    run = runs(tmp_path)[0]
    assert len(run.measured["step"]) == 100
    assert re.fullmatch(r"the policy did not return from its step after 1\d\d of 200 releases", run.conditions["state"])
    assert judge(run).unfinished == 1
    node.end()


@pytest.mark.slow
def test_when_both_processes_die_recover_finds_the_steps(start, driver, tmp_path):
    import os

    import psutil

    from robot_perf.tasks.recover import orphans, recover

    node = start("policy_node", policy="null", observations="random", **FAST)
    node.wait_for("configured:")
    driver.until(lambda: driver.report().get("since_activation", {}).get("executed", 0) > 50, what="running")
    keeper = psutil.Process(node.process.pid).children()[0]
    keeper.kill()
    driver.spin(0.5)
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait()
    mine = [e for e in orphans() if f"-{keeper.pid}-" in e.path.name and e.committed]
    assert mine
    run, _ = recover(mine[0].path, tmp_path / "recovered.parquet")
    assert len(run.measured["step"]) > 50
    assert judge(run).status == "INVALID"
    for entry in orphans():
        if f"-{keeper.pid}-" in entry.path.name:
            entry.path.unlink()


@pytest.mark.parametrize(
    ("number", "place"),
    [
        (signal.SIGINT, "thread"),
        (signal.SIGTERM, "thread"),
        (signal.SIGKILL, "thread"),
        (signal.SIGINT, "polled"),  # the signal meets the loop's own thread
        pytest.param(signal.SIGTERM, "polled", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "polled", marks=pytest.mark.slow),
    ],
)
def test_signals_lose_no_completed_step(start, driver, tmp_path, number, place):
    from std_msgs.msg import Float64MultiArray

    seen = []
    driver.node.create_subscription(
        Float64MultiArray, "/policy_node/action", lambda m: seen.append(time.monotonic_ns()), 1000
    )
    node = start("policy_node", policy="null", observations="random", place=place, **{**FAST, "steps": 5000})
    node.wait_for("configured:")
    driver.until(lambda: len(seen) > 130, what="130 commands")
    code = node.end(number)
    driver.spin(0.2)
    driver.until(lambda: runs(tmp_path), what="the Run of the keeper")
    (run,) = runs(tmp_path)
    assert len(run.measured["step"]) >= len(seen) > 130
    # A kill may fall between the publish and its stamp: that stamp is then "not measured", never a false 0.
    assert (run.measured["published_ns"][:-1] > 0).all()
    assert run.measured["published_ns"][-1] != 0
    state = run.conditions["state"]
    assert ("died" if number == signal.SIGKILL else f"interrupted by {number.name}") in state
    assert code == (-9 if number == signal.SIGKILL else 4)
    from robot_perf.run.maps import MAP_FOLDER

    assert not [p for p in MAP_FOLDER.glob("*-null.map") if f"-{node.process.pid}-" in p.name]
