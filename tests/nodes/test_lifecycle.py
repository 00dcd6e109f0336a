"""Lifecycle cycles without growth, parameters as people type them, reports and diagnostics, both places of the loop."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ros_bench import environment, runs

pytestmark = pytest.mark.ros

_CYCLES = """
import gc, json, os, sys, time
import rclpy
from rclpy.executors import SingleThreadedExecutor
from robot_perf.nodes.policy_node import PolicyNode
cycles = int(sys.argv[1])
rclpy.init(args=["--ros-args", "-p", "policy:=null", "-p", "rate:=500", "-p", "observations:=random", "-p", "steps:=500", "-p", "warmup_max:=30"])
node = PolicyNode()
executor = SingleThreadedExecutor()
executor.add_node(node)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def threads():
    return len(os.listdir("/proc/self/task"))
def files():
    return len(os.listdir("/proc/self/fd"))
sizes = []
for cycle in range(cycles):
    for step in ("configure", "activate", "deactivate", "cleanup"):
        outcome = getattr(node, "trigger_" + step)()
        assert outcome.name == "SUCCESS", (cycle, step, outcome)
        until = time.monotonic() + (0.03 if step == "activate" else 0.002)
        while time.monotonic() < until:
            executor.spin_once(timeout_sec=0.005)
    if cycle >= 5:
        gc.collect()
        sizes.append((resident(), threads(), files()))
node.end("done")
node.destroy_node()
rclpy.try_shutdown()
print(json.dumps(sizes))
"""


def script(folder, code, *words, timeout_s):
    """Python code in a process of its own, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        check=False,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def cycles(folder, count, timeout_s):
    done = script(folder, _CYCLES, str(count), timeout_s=timeout_s)
    return json.loads(done.stdout.strip().splitlines()[-1])


def check_growth(sizes):
    half = len(sizes) // 2
    first, second = max(s[0] for s in sizes[:half]), max(s[0] for s in sizes[half:])
    # A leaked map or policy is 40 kB a cycle or more. Seen over 195 cycles: 0.45 MB of 79 MB, about half of it rclpy's own, whose
    # callback group keeps a dead weak reference for every event handler that was destroyed.
    assert second - first < 2_000_000 + 8_000 * half, sizes
    assert sizes[-1][1] <= sizes[0][1]
    assert sizes[-1][2] <= sizes[0][2]


def test_cycles_leave_no_thread_file_or_memory(start, tmp_path):
    check_growth(cycles(tmp_path, 25, 120))


@pytest.mark.slow
def test_two_hundred_cycles(start, tmp_path):
    check_growth(cycles(tmp_path, 200, 600))


_IN_THE_POLL = """
import json, sys
import rclpy
from odd_policies import Counted
from robot_perf.nodes import policy_node
from robot_perf.nodes.policy_node import PolicyNode
asked = json.loads(sys.argv[1])
rclpy.init(args=["--ros-args", "-p", "policy:=odd_policies:Counted", "-p", "rate:=200", "-p", "observations:=random", "-p", "steps:=500", "-p", "warmup_max:=30",
                 "-p", "place:=polled"])
calls, seen = [0], []
poll = PolicyNode._poll
def polled(self):
    poll(self)
    calls[0] += 1
    if calls[0] == 20:
        seen.extend([name, getattr(self, "trigger_" + name)().name] for name in asked)
PolicyNode._poll = polled
node = PolicyNode()
executor = rclpy.executors.SingleThreadedExecutor()
executor.add_node(node)
assert node.trigger_configure().name == node.trigger_activate().name == "SUCCESS"
def after():
    if calls[0] < 20:
        return
    closed = len(Counted.closed)
    if "shutdown" not in asked:
        again = [node.trigger_cleanup().name, node.trigger_configure().name, node.trigger_cleanup().name]
    else:
        again = []
    print(json.dumps({"seen": seen, "closed": closed, "again": again, "calls": calls[0]}))
    raise KeyboardInterrupt
policy_node.ros.steady_timer(node, 0.5, after)
try:
    policy_node._serve(node, executor, "single")
except KeyboardInterrupt:
    pass
node.end("done")
assert Counted.closed == Counted.made
node.destroy_node()
rclpy.try_shutdown()
"""


@pytest.mark.parametrize(
    ("asked", "answers", "closed", "again"),
    [
        (["deactivate"], ["SUCCESS"], 0, ["SUCCESS"] * 3),
        (["deactivate", "cleanup"], ["SUCCESS", "FAILURE"], 0, ["SUCCESS"] * 3),
        (["deactivate", "activate"], ["SUCCESS", "FAILURE"], 0, ["SUCCESS"] * 3),
        (["shutdown"], ["SUCCESS"], 1, []),
    ],
)
def test_transitions_that_one_look_of_the_polled_loop_serves(start, tmp_path, asked, answers, closed, again):
    """The loop ends only once that look is over: until then nothing of it may be freed or begun."""
    done = script(tmp_path, _IN_THE_POLL, json.dumps(asked), timeout_s=60)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["seen"] == [list(pair) for pair in zip(asked, answers, strict=True)], done.stderr[-2000:]
    assert (told["closed"], told["again"]) == (closed, again), done.stderr[-2000:]
    assert ("the loop is still ending" in done.stderr) == ("FAILURE" in answers)


_FAILED = """
import json, os, sys, threading
import rclpy
from odd_policies import Counted
from robot_perf.nodes import policy
from robot_perf.nodes.policy_node import PolicyNode
place, faults = sys.argv[1], json.loads(sys.argv[2])
rclpy.init(args=["--ros-args", "-p", "policy:=odd_policies:Counted", "-p", "rate:=500", "-p", "steps:=500", "-p", "warmup_max:=30", "-p", "mapping:=mapping.yaml",
                 "-p", "place:=" + place])
node = PolicyNode()
lines = []
node.get_logger = lambda: type("L", (), {"error": lambda s, t: lines.append(t), "info": lambda s, t: None, "warning": lambda s, t: None})()
def refuse(*_):
    raise RuntimeError("DDS has no room")
seen, sound = [], (policy.Teller.open, node.destroy_timer)
for fault in faults:
    made, closed, Counted.fault = len(Counted.made), len(Counted.closed), fault
    lines.clear()
    with open("mapping.yaml", "w") as file:
        name = "nowhere" if fault == "mapping" else "obs"
        file.write("observations: [{topic: /a, type: std_msgs/Float64MultiArray, fields: [{field: data, input: %s, at: 0, size: 4}]}]" % name)
    policy.Teller.open = refuse if "endpoint" in fault else sound[0]
    node.destroy_timer = (lambda entity: (sound[1](entity), refuse())) if "destroy" in fault else sound[1]
    outcome = node.trigger_configure().name
    if outcome == "SUCCESS":
        node.trigger_cleanup()
    main = threading.main_thread().ident
    seen.append({"outcome": outcome, "lines": list(lines), "made in main": [t == main for t in Counted.made[made:]],
                 "closed there": Counted.closed[closed:] == Counted.made[made:], "threads": threading.active_count(),
                 "files": len(os.listdir("/proc/self/fd"))})
node.end("done")
node.destroy_node()
rclpy.try_shutdown()
print(json.dumps(seen))
"""
_FAULTS = {
    "warm-up": ("ERROR", "motor table has no entry 7"),
    "warm-up, close": ("ERROR", "the bus is gone"),
    "size": ("FAILURE", "the first call answered"),
    "mapping": ("FAILURE", "nowhere"),
    "endpoint": ("ERROR", "DDS has no room"),
    "endpoint, destroy": ("ERROR", "DDS has no room"),
    "": ("SUCCESS", ""),
}


@pytest.mark.parametrize("place", ["thread", "polled"])
def test_a_failed_configure_closes_what_it_loaded(start, tmp_path, place):
    """Whatever failed, in the thread that owns it; and the next one can succeed."""
    faults = [*_FAULTS] * 2
    done = script(tmp_path, _FAILED, place, json.dumps(faults), timeout_s=120)
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(seen) == len(faults)
    for fault, row in zip(faults, seen, strict=True):
        outcome, told = _FAULTS[fault]
        assert row["outcome"] == outcome, (fault, row)
        assert any(told in line for line in row["lines"]) or not told, (fault, row)
        assert row["made in main"] == [place == "polled"], (fault, row)
        assert row["closed there"], (fault, row)
    assert [row["threads"] for row in seen] == [seen[0]["threads"]] * len(faults), seen
    assert seen[-1]["files"] <= seen[len(_FAULTS) - 1]["files"], seen


def test_a_node_that_waits_says_for_what_and_names_what_it_ignores(start):
    node = start("policy_node", policy="null", rate=50, deadlin_ms=5)
    log = node.wait_for("unconfigured: ros2 lifecycle set /policy_node configure, then activate")
    assert "parameter deadlin_ms is none of this node's and changes nothing. Did you mean deadline_ms?" in log
    node.end()


_PARAMETERS = """
import json, sys, rclpy
from robot_perf.nodes.policy_node import PolicyNode
from robot_perf.nodes import ros
found = {}
for text in json.loads(sys.argv[1]):
    context = rclpy.Context()
    rclpy.init(args=["--ros-args", "-p", "policy:=null", "-p", "warmup_max:=20", "-p", "observations:=random", *text.split(" ")] if text else
               ["--ros-args", "-p", "policy:=null"], context=context)
    lines = []
    node = PolicyNode(context=context, enable_rosout=False)
    logger = node.get_logger()
    node.get_logger = lambda: type("L", (), {"error": lambda s, t: lines.append(t), "info": lambda s, t: None, "warning": lambda s, t: None})()
    outcome = node.trigger_configure().name
    value = node.get_parameter("rate").value
    if outcome == "SUCCESS":
        node.trigger_cleanup()
    node.end("done")
    found[text] = [outcome, value, node.trouble + lines]
    node.destroy_node()
    context.try_shutdown()
print(json.dumps(found))
"""


def test_parameters_as_people_type_them(start, tmp_path):
    bad = [
        '-p rate:="50"',
        "-p rate:=true",
        "-p rate:=0",
        "-p rate:=-1",
        "-p rate:=.nan",
        "-p rate:=.inf",
        "-p rate:=200000.0",
        "",
    ]
    odd = [
        "-p rate:=50 -p wait:=nap",
        "-p rate:=50 -p fifo:=100",
        "-p rate:=50 -p steps:=2",
        "-p rate:=50 -p policy:=nowhere.onnx",
    ]
    good = ["-p rate:=50", "-p rate:=50.0"]
    done = script(tmp_path, _PARAMETERS, json.dumps(bad + odd + good), timeout_s=120)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for text in bad:
        outcome, _, lines = found[text]
        assert outcome == "FAILURE", (text, found[text])
        assert any("parameter rate" in line for line in lines), (text, lines)
        # A value that was refused is not called missing as well.
        assert any("required and not set" in line for line in lines) == ("rate:=" not in text), (text, lines)
    for text, name in zip(odd, ("parameter wait", "parameter fifo", "parameter steps", "nowhere.onnx"), strict=True):
        assert found[text][0] == "FAILURE", (text, found[text])
        assert any(name in line for line in found[text][2]), (text, found[text][2])
    for text in good:
        assert found[text][0] == "SUCCESS", (text, found[text])
        assert float(found[text][1]) == 50.0


@pytest.mark.parametrize("place", ["thread", pytest.param("polled", marks=pytest.mark.slow)])
def test_report_diagnostics_and_thresholds(start, driver, tmp_path, place):
    from diagnostic_msgs.msg import DiagnosticArray

    arrays = []
    driver.node.create_subscription(DiagnosticArray, "/diagnostics", arrays.append, 10)
    node = start("policy_node", policy="mlp", rate=100, steps=200, observations="random", place=place)
    driver.until(lambda: driver.state() == "unconfigured", what="the node")
    assert driver.change("configure")
    assert driver.change("activate")
    driver.until(lambda: driver.report().get("blocks"), what="a first block")
    report = driver.report()
    assert report["verdict"]["status"] == "INCONCLUSIVE"
    assert "of 200 releases" in report["verdict"]["reason"]
    assert report["window"]["response"]["p50"] > 0
    assert report["window"]["publish"]["p50"] > 0
    assert driver.set("policy_node", diagnostics__threshold__miss_ratio__warn=0.5) != []  # above its error
    assert driver.set("policy_node", diagnostics__threshold__miss_ratio__warn=0.005) == []
    assert any("read-only" in reason for reason in driver.set("policy_node", rate=60.0))
    status = next(s for a in reversed(arrays) for s in a.status if s.name == "policy_node: control loop")
    values = {v.key: v.value for v in status.values}
    assert status.level in (b"\x00", b"\x01", b"\x02")
    assert status.hardware_id
    assert values["rate asked (Hz)"] == "100"
    assert 50 < float(values["rate achieved, window (Hz)"]) < 105  # a busy machine skips releases
    assert float(values["p50 response, window (ms)"]) > 0
    assert driver.change("deactivate")
    assert driver.state() == "inactive"
    driver.until(lambda: any("deactivated" in r.conditions["state"] for r in runs(tmp_path)), what="the last block")
    assert driver.change("activate")
    driver.spin(0.5)
    assert driver.change("deactivate")
    assert driver.change("cleanup")
    assert driver.state() == "unconfigured"
    node.end()
    activations = {r.conditions["activation"] for r in runs(tmp_path)}
    assert activations == {1, 2}
    assert runs(tmp_path)[0].conditions["ros"]["place"] == place


@pytest.mark.slow
def test_simulated_time_is_refused_a_verdict(start, driver, tmp_path):
    node = start(
        "policy_node", policy="null", rate=100, steps=100, observations="random", autostart=True, use_sim_time=True
    )
    driver.until(lambda: runs(tmp_path), what="a Run")
    node.end()
    assert "use_sim_time is true" in node.log
    from robot_perf.analyze.verdict import judge

    assert judge(runs(tmp_path)[0]).status == "INVALID"
    assert "simulated time" in judge(runs(tmp_path)[0]).reason


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "place"), [("multi", "thread"), ("events", "thread"), ("single", "polled")])
def test_other_executors_and_place(start, driver, tmp_path, executor, place):
    node = start("policy_node", policy="mlp", rate=100, steps=200, executor=executor, place=place, autostart=True)
    node.wait_for("configured:")
    start("observation_node", rate=100, policy="mlp", wait_for=1)
    driver.until(lambda: driver.report().get("blocks"), what="a first block")
    node.end()
    run = runs(tmp_path)[0]
    assert run.conditions["ros"]["executor"] == executor
    assert run.conditions["node"]["topics"]["~/observation"]["received"] > 100
