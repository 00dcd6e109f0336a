"""The lifecycle node that runs a policy: transitions in, loop and keeper out. Every exception ends in the right transition."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.node import parameters
from robot_perf.measure.node.activity import Activity
from robot_perf.measure.node.body import Edge
from robot_perf.measure.node.command import Command
from robot_perf.measure.node.link import KeeperLink
from robot_perf.measure.node.mailbox import LiveObservations
from robot_perf.measure.node.mapping import CommandMap, NodeMapping, default_mapping, find_mapping, read_mapping
from robot_perf.measure.node.mapping_reader import resolve_mapping
from robot_perf.nodes import ending, reporting, ros
from robot_perf.nodes.endpoints import CommandPort, subscribe
from robot_perf.nodes.guarding import guarded
from robot_perf.nodes.ros import LifecycleNode, TransitionCallbackReturn
from robot_perf.nodes.telling import Teller

_ENTERED_NS = time.monotonic_ns()
_TEND_S = 0.1


class PolicyNode(LifecycleNode):  # type: ignore[misc]
    """Constructible without `main`. `activity` is the configured policy; `statuses` the verdicts of its blocks so far."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("policy_node", **kwargs)
        self.trouble = ros.declare(self)
        for text in self.trouble:
            self.get_logger().error(text)
        self.add_on_set_parameters_callback(self._check_changes)
        self.link: KeeperLink | None = None
        self.activity: Activity | None = None
        self.executor_baseline_ns: int | None = None
        self.activated_ns = 0
        self.interrupted: str | None = None  # by which signal
        self.statuses: list[str] = []
        self._entities: list[tuple[Callable[[Any], Any], Any]] = []
        self._owed = False  # a release that was asked for inside the polled loop
        self.teller = Teller(self)

    # Transitions. rclpy swallows an exception in one: each is wrapped, logged and turned into a result here.

    def on_configure(self, state: Any) -> Any:
        """Loads, checks and warms the policy up before any subscription exists."""
        return self._guarded("configure", self._configure, undo=self._release)

    def on_activate(self, state: Any) -> Any:
        """Lets the loop run, on a release grid that begins with the first complete observation."""
        return self._guarded("activate", lambda: self._activate(state), undo=lambda: self._stop("not activated"))

    def on_deactivate(self, state: Any) -> Any:
        """Stops the loop within a limit and saves what there is."""
        return self._guarded("deactivate", lambda: self._deactivate(state))

    def on_cleanup(self, state: Any) -> Any:
        """Frees the policy in the thread that owns it."""
        return self._guarded("cleanup", self._release)

    def on_shutdown(self, state: Any) -> Any:
        """Stops, saves, frees."""
        return self._guarded("shutdown", lambda: self.stop_and_release("shut down"))

    def on_error(self, state: Any) -> Any:
        """Back to unconfigured, whatever is left; an exception here would end in `finalized`."""
        return self._guarded("error processing", lambda: self.stop_and_release("an error"))

    def _guarded(self, name: str, work: Callable[[], Any], undo: Callable[[], None] | None = None) -> Any:
        if name in ("configure", "activate", "cleanup") and self._in_loop():
            # Asked within the same look at the executor that served the deactivation, before the loop could see it.
            self.get_logger().error(f"{name} failed: the loop is still ending. Ask again in a moment.")
            return TransitionCallbackReturn.FAILURE
        return guarded(self, name, work, undo)

    def _configure(self) -> None:
        values = self.values = ros.values_of(self)
        forgotten = parameters.missing(parameters.PARAMETERS, values, self.trouble)
        if found := [*self.trouble, *forgotten, *parameters.problems(values)]:
            raise UsageError(" ".join(found))
        random = values["observations"] == "random"
        # Read before the load, which may take minutes.
        written = None if random or not values["mapping"] else read_mapping(find_mapping(values["mapping"]))
        if self.link is None or not self.link.alive:
            self.link = KeeperLink()
        self.teller = Teller(self)
        activity = self.activity = Activity(self.link, values["place"], _ENTERED_NS)
        spec = activity.load(values, self._facts(), self._progress)
        if random:
            mapping = NodeMapping((), CommandMap())  # what answers random values must never drive a robot's own topic
        elif written is None:
            mapping = default_mapping(spec)
        else:
            mapping = resolve_mapping(written, spec, source=f"mapping {values['mapping']}")
        self._make_endpoints(activity, mapping)
        loop, warm = activity.loaded.loop, activity.loaded.report["warmup"]
        self.get_logger().info(
            f"configured: {spec.name} on {activity.loaded.order.backend}, {1e9 / loop.period_ns:g} Hz, deadline "
            f"{loop.deadline_ns / 1e6:g} ms, blocks of {loop.steps:,} releases ({loop.steps * loop.period_ns / 1e9:.0f} s), "
            f"warm-up {warm['calls']} calls"
        )

    def _make_endpoints(self, activity: Activity, mapping: NodeMapping) -> None:
        body, values, spec = activity.loaded, self.values, activity.runner_spec
        period = body.loop.period_ns
        feed: Any = body.synthetic
        if values["observations"] != "random":
            feed = body.live = LiveObservations(spec, mapping, round(values["stale_after_ms"] * 1e6) or 3 * period)
            body.report["observations"] = {"source": "topics " + ", ".join(t.topic for t in mapping.topics), "steps": 0}
            for inbox in feed.inboxes:
                made = subscribe(self, inbox, shared_clock=values["stamps_share_clock"], trouble=self.teller.qos)
                self.own(self.destroy_subscription, made)
        command = Command(mapping.command, spec)
        stamp, trouble = values["command_stamp"], self.teller.qos
        port = CommandPort(self, mapping.command, command, period_ns=period, stamp=stamp, trouble=trouble)
        self.own(self.destroy_lifecycle_publisher, port.publisher)
        self._commands = port.publisher
        self._polls = 1 + len(mapping.topics)
        poll = self._poll if values["place"] == "polled" else None
        activity.arm(feed, Edge(port.publisher_of(body.stop), poll=poll, on_stale=values["on_stale"]))
        self.own(self.destroy_timer, ros.steady_timer(self, _TEND_S, self._tend))
        self.teller.open()

    def command_facts(self) -> dict[str, Any]:
        """The command's topic and how many subscriptions it has reached; only while configured."""
        return {"topic": self._commands.topic_name, "subscribers": self._commands.get_subscription_count()}

    def own(self, destroy: Callable[[Any], Any], entity: Any) -> Any:
        """Keeps an entity until cleanup, and hands it back."""
        self._entities.append((destroy, entity))
        return entity

    def _activate(self, state: Any) -> Any:
        assert self.activity is not None
        self.activity.make_ready()
        result = super().on_activate(state)  # without it the state is active and the publishers stay silent
        if result == TransitionCallbackReturn.SUCCESS:
            self.activated_ns = time.monotonic_ns()
            self.activity.start()
            reporting.notify_systemd("READY=1")
        return result

    def _deactivate(self, state: Any) -> Any:
        failed = self.activity is not None and self.activity.loaded.failure is not None
        try:
            self._stop("deactivated")
        except RobotPerfError as error:  # a hung policy: only error processing can leave this state
            self.get_logger().error(error.one_line)
            failed = True
        result = super().on_deactivate(state)
        return TransitionCallbackReturn.ERROR if failed else result

    def _stop(self, why: str) -> None:
        if self.activity is not None:
            self.activity.stop(why)

    def _in_loop(self) -> bool:
        return self.activity is not None and self.activity.in_loop

    def settle(self) -> None:
        """After a polled loop: its last block is finished, and what a transition could not free inside it is freed."""
        if self.activity is not None:
            self.activity.after_loop()
        if self._owed:
            self._owed = False
            self._release()

    def _release(self) -> None:
        if self._in_loop():
            self._owed = True
            return
        try:
            self._let_go()  # all of it, whatever part of it raises: a policy that stayed would stay for good
        finally:
            gc.collect()

    def _let_go(self) -> None:
        with contextlib.ExitStack() as last_first:
            activity, self.activity = self.activity, None
            if activity is not None:
                last_first.callback(activity.release)
            for destroy, entity in self._entities:
                last_first.callback(destroy, entity)
            self._entities = []

    def stop_and_release(self, why: str) -> None:
        """Whatever of it fails, the rest is done."""
        try:
            self._stop(why)
        except RobotPerfError as error:
            self.get_logger().error(error.one_line)
        self._release()

    # Slow work, in the executor's thread: nothing here waits for the loop, and the loop waits for nothing here.

    def interrupt(self, why: str) -> None:
        """Ends a running loop at its next release. From a signal handler of the polled place, whose loop no exception may cut through."""
        self.interrupted = why
        if self.activity is not None and self.activity.active:
            self.activity.loaded.stop[0] = True

    def _poll(self) -> None:
        try:
            for _ in range(self._polls):
                self.executor.spin_once(timeout_sec=0)
        except Exception:
            if ros.rclpy.ok():
                raise
            self.interrupt("the ROS context was shut down")

    def _tend(self) -> None:
        """Ten times a second: hears the keeper, has the next map ready, turns a failure into a transition."""
        activity = self.activity
        if activity is None:
            return
        for event in activity.tend():
            self.teller.hear(event)
        if not activity.active:
            return
        body = activity.loaded
        if body.failure is not None:
            self.get_logger().error(
                "the policy raised in the loop:\n" + "".join(traceback.format_exception(body.failure))
            )
            self.teller.failed(f"the policy raised {type(body.failure).__name__}: {body.failure}")
            self.trigger_deactivate()
        elif body.stopped_stale:
            text = "an observation is stale and on_stale is stop: deactivating"
            self.get_logger().error(text)
            self.teller.failed(text)
            self.trigger_deactivate()

    def _check_changes(self, changes: Sequence[Any]) -> Any:
        """Dynamic parameters: all or nothing."""
        from rcl_interfaces.msg import SetParametersResult

        table = parameters.BY_NAME
        try:
            new = {
                c.name: parameters.checked(table[c.name], c.value)
                for c in changes
                if c.name in table and c.value is not None
            }
        except UsageError as error:
            return SetParametersResult(successful=False, reason=error.one_line)
        known = {n: self.get_parameter(n).value for n, p in table.items() if p.dynamic and self.has_parameter(n)}
        found = [t for t in parameters.problems({**known, **new}) if "lies above" in t]
        return SetParametersResult(successful=not found, reason=" ".join(found))

    def _facts(self) -> dict[str, Any]:
        simulated = bool(self.get_parameter("use_sim_time").value)
        facts: dict[str, Any] = {
            **ros.distribution(), "node": self.get_fully_qualified_name(), "executor": self.values["executor"], "place": self.values["place"],
            "clock": "sim" if simulated else "steady", "executor_spin_once_ns": self.executor_baseline_ns, "argv": sys.argv[1:],
            "notes": [], "invalid": [],
        }  # fmt: skip
        if simulated:
            self.get_logger().warning(
                "use_sim_time is true: durations are real, observations follow /clock; the verdict is INVALID"
            )
            facts["notes" if self.values["force_sim_verdict"] else "invalid"].append("simulated time (use_sim_time)")
        return facts

    def _progress(self, what: str) -> Callable[[], None]:
        begin = time.monotonic()
        self.get_logger().info(what)

        def waiting() -> None:
            seconds = time.monotonic() - begin
            reporting.notify_systemd("EXTEND_TIMEOUT_USEC=10000000\nWATCHDOG=1")
            if int(seconds) % 5 == 0:
                self.get_logger().info(f"{what}: {seconds:.0f} s")

        return waiting

    def end(self, why: str) -> int:
        """Stops, saves, frees, waits for the keeper. The exit code."""
        return ending.end(self, why)
