"""A signal that meets a load: the node ends at once where Python can be interrupted, says what it waits for where it can't."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

pytestmark = pytest.mark.ros
HURRIED_S = 10.0  # the keeper ends, DDS says goodbye; a load takes 60 s


def begun(start, policy, **more):
    """A node in the middle of its load."""
    asked = {"rate": 100, "observations": "random", "autostart": True} | more
    node = start("policy_node", policy=f"slow_load:{policy}", **asked)
    if asked["autostart"]:
        node.wait_for("the bus is asked")
    return node


def keepers(node):
    return psutil.Process(node.process.pid).children()


def check_clean(node, keeper):
    """No traceback of ours, no keeper, no map in memory."""
    from robot_perf.run.maps import MAP_FOLDER

    assert "Traceback" not in node.log
    psutil.wait_procs(keeper, HURRIED_S)
    assert not any(k.is_running() and k.status() != psutil.STATUS_ZOMBIE for k in keeper)
    assert not [p for k in keeper for p in MAP_FOLDER.glob(f"*-{k.pid}-*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["thread", "polled"])
def test_a_load_is_interrupted_and_its_policy_closed_by_its_own_thread(start, place, number):
    node = begun(start, "Waiting", place=place)
    keeper = keepers(node)
    assert node.end(number, HURRIED_S) == 4
    assert f"interrupted by {number.name} while loading Waiting on python" in node.log
    assert "closed in the thread that loaded it" in node.log
    assert "waiting for" not in node.log
    check_clean(node, keeper)


@pytest.mark.parametrize(
    ("executor", "place"), [("single", "thread"), ("multi", "thread"), ("events", "thread"), ("single", "polled")]
)
def test_one_that_a_service_asked_for_too(start, driver, executor, place):
    from lifecycle_msgs.srv import ChangeState

    try:
        from rclpy.experimental import EventsExecutor  # noqa: F401
    except ImportError:
        if executor == "events":
            pytest.skip("this rclpy has no events executor")
    node = begun(start, "Waiting", autostart=False, executor=executor, place=place)
    node.wait_for("unconfigured:")
    client = driver.node.create_client(ChangeState, "/policy_node/change_state")
    assert client.wait_for_service(timeout_sec=20)
    request = ChangeState.Request()
    request.transition.label = "configure"
    client.call_async(request)
    driver.until(lambda: "the bus is asked" in node.log, what="the load")
    keeper = keepers(node)
    assert node.end(signal.SIGINT, HURRIED_S) == 4
    assert "interrupted by SIGINT while loading Waiting on python" in node.log
    assert "closed in the thread that loaded it" in node.log
    check_clean(node, keeper)


def test_a_call_that_can_not_be_interrupted_is_waited_for_and_named(start):
    node = begun(start, "native_for_a_while")
    keeper = keepers(node)
    asked = time.monotonic()
    node.process.send_signal(signal.SIGINT)
    log = node.wait_for("waiting for it", 2.5)
    assert "a second signal ends the process" in log
    assert node.process.wait(HURRIED_S) == 4
    assert time.monotonic() - asked < 3.0 + HURRIED_S
    assert "closed in the thread that loaded it" in node.log
    check_clean(node, keeper)


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_the_process(start, numbers):
    node = begun(start, "native")
    keeper = keepers(node)
    node.process.send_signal(numbers[0])
    node.wait_for("waiting for it", 2.5)
    assert node.process.poll() is None
    assert node.end(numbers[1], 2.0) == 4
    assert "closed" not in node.log
    check_clean(node, keeper)


def test_a_sigterm_after_the_first_signal_does_not_cut_a_close_short(start):
    """`ros2 launch` sends one 5 s after its SIGINT."""
    node = begun(start, "slow_to_close")
    keeper = keepers(node)
    node.process.send_signal(signal.SIGINT)
    node.wait_for("closing")
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(HURRIED_S) == 4
    assert "closed in the thread that loaded it" in node.log
    check_clean(node, keeper)


def test_a_second_sigint_does(start):
    node = begun(start, "slow_to_close")
    keeper = keepers(node)
    node.process.send_signal(signal.SIGINT)
    node.wait_for("closing")
    time.sleep(0.5)
    assert node.end(signal.SIGINT, 2.0) == 4
    assert "a signal ended it while it was ending" in node.log and "closed in" not in node.log
    check_clean(node, keeper)
