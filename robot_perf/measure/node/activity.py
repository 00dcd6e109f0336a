"""One configured policy from load to free: the loop, its blocks and its keeper, as the node's transitions ask for it. No ROS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.node.block_report import block_report
from robot_perf.measure.node.blocks import Block
from robot_perf.measure.node.body import Edge, Feed, NodeBody
from robot_perf.measure.node.link import KeeperLink
from robot_perf.measure.node.thread import OnlyThread, OwnThread
from robot_perf.measure.order import WorkOrder
from robot_perf.run.stepmap import Phase, StepMap, Word
from robot_perf.specs import PolicySpec, from_json

Waiting = Callable[[str], Callable[[], None]]
_LOOK_S = 0.2


class Activity:
    """Everything but `body.run` is called by the executor's thread. `ending` says why the activation ends."""

    def __init__(self, link: KeeperLink, place: str, entered_ns: int) -> None:
        self.link, self.entered_ns = link, entered_ns
        self.place: OwnThread | OnlyThread = OnlyThread() if place == "polled" else OwnThread()
        self.body: NodeBody | None = None
        self.feed: Feed | None = None
        self.edge: Edge | None = None
        self.block: Block | None = None  # the map that the next activation begins with
        self.active = False
        self.activation = self.unrecorded = 0
        self.ending: str | None = None
        self.doing = ""  # what `load` is at; empty once it has loaded
        self._loading = threading.Lock()
        self._first: StepMap | None = None
        self._token = 0
        self._asked = False

    def load(self, asked: dict[str, Any], facts: dict[str, Any], waiting: Waiting) -> PolicySpec:
        """Plan by the keeper, then load, check and warm-up in the loop's own thread. Raises RobotPerfError."""
        with self._loading:
            self.doing = "planning"
            self.link.events()
            answer = self.link.ask("prepared", 120.0, cmd="prepare", parameters=asked, node=facts)
            order = from_json(WorkOrder, answer["order"])
            body = self.body = NodeBody(order, entered_ns=self.entered_ns)
            self._called(body.load, f"loading {order.policy.name} on {order.backend}", waiting)
            stepmap = self._first = body.attach(Path(answer["map"]))
            self._called(lambda: body.warm_up(stepmap), f"warming up {order.policy.name}", waiting)
            if body.report["invalid"]:
                raise UsageError(f"{order.policy.name} fails its check: {'; '.join(body.report['invalid'])}")
            self.doing = ""
        return self.runner_spec

    def _called(self, job: Callable[[], None], what: str, waiting: Waiting) -> None:
        self.doing = what
        self.place.call(job, waiting(what))

    def interrupt(self, waiting: Callable[[], None]) -> None:
        """Ends a load: its job raises KeyboardInterrupt, as soon as it runs Python again. Returns once it has ended.

        `waiting` is called several times a second until then. The load's own caller was interrupted, or waits in another thread.
        """
        self.place.interrupt()
        while not self._left_load():
            waiting()
            self.place.interrupt()

    def _left_load(self) -> bool:
        if not self.place.join(_LOOK_S) or not self._loading.acquire(timeout=_LOOK_S):
            return False
        self._loading.release()
        return True

    @property
    def loaded(self) -> NodeBody:
        """The body, which exists from `load` to `release`."""
        if self.body is None:
            raise RuntimeError("no policy is loaded")
        return self.body

    @property
    def runner_spec(self) -> PolicySpec:
        """The policy as its backend resolved it."""
        runner = self.loaded.runner
        if runner is None:
            raise RuntimeError("no policy is loaded")
        return runner.spec

    def arm(self, feed: Feed, edge: Edge) -> None:
        """Where observations come from and commands go; the warmed-up map becomes the first block."""
        self.feed, self.edge = feed, edge
        if self._first is not None:
            self.block, self._first = self.loaded.make_block(self._first, feed, edge), None

    def make_ready(self) -> None:
        """Before activation: a map, fresh counts, slots without old messages."""
        assert self.feed is not None and self.edge is not None
        if self.block is None:
            self._token += 1
            answer = self.link.ask("map", 10.0, cmd="map", token=self._token)
            self.block = self._block(answer)
        self.activation += 1
        self.link.tell(cmd="activate", activation=self.activation)
        self.ending, self._asked, self.unrecorded = None, False, 0
        self.loaded.prepare_activation(self.feed, self.edge)

    def start(self) -> None:
        """The loop begins; its grid begins with the first complete observation."""
        body, block, feed = self.loaded, self.block, self.feed
        assert block is not None and feed is not None
        self.active = True
        self.place.start(lambda: body.run(block, feed))

    def _block(self, answer: dict[str, Any]) -> Block:
        assert self.feed is not None and self.edge is not None
        return self.loaded.make_block(self.loaded.attach(Path(answer["path"])), self.feed, self.edge)

    def stop(self, why: str) -> None:
        """Ends the activation within a limit. Raises RobotPerfError when the policy doesn't return from its step.

        Asked from inside the polled loop it only says so: `after_loop` does the rest once that loop has ended.
        """
        if not self.active:
            return
        self.ending = self.ending or why
        body = self.loaded
        body.stop[0] = True
        if self.in_loop:
            return
        limit = 5.0 + 2 * body.loop.period_ns / 1e9
        if not self.place.join(limit):
            self.active = False
            raise RobotPerfError(
                f"the policy hangs: its step has not returned after {limit:.0f} s",
                do="Restart the node; the keeper saves what there is.",
            )
        self.after_loop()

    @property
    def in_loop(self) -> bool:
        """Whether the caller was called by the polled loop: that can't end before the caller has returned."""
        return isinstance(self.place, OnlyThread) and self.place.busy

    def after_loop(self) -> None:
        """The loop has ended: its last block gets its report, maps without a step go back to the keeper."""
        if not self.active:
            return
        self.active = False
        self._finish_ended()
        blocks = self.loaded.blocks
        for block in (self.block, blocks.following if blocks is not None else None):
            if block is not None and block.stepmap[Word.PHASE] < Phase.RUNNING:
                block.stepmap.close()
        self.block = None
        if blocks is not None:
            blocks.following = None
        self.link.tell(cmd="drop")

    def tend(self) -> list[dict[str, Any]]:
        """Often: finishes what ended, asks for the next map in time. Returns the keeper's other events."""
        told = []
        for event in self.link.events():
            blocks = self.loaded.blocks if self.body is not None else None
            if event["event"] == "map":
                if event["token"] == self._token and self.active and blocks is not None:
                    blocks.following, self._asked = self._block(event), False
                continue
            if event["event"] == "failed":
                self._asked = False
            told.append(event)
        blocks = self.loaded.blocks if self.active else None
        if blocks is not None:
            self._finish_ended()
            if blocks.following is None and not self._asked and blocks.current is not None and self.link.alive:
                self._token, self._asked = self._token + 1, True
                self.link.tell(cmd="map", token=self._token)
        return told

    def _finish_ended(self) -> None:
        body = self.loaded
        if body.blocks is None:
            return
        self.unrecorded = body.blocks.idle_rows.steps
        if body.failure is not None:
            self.ending = "the policy raised"
        elif body.stopped_stale:
            self.ending = "stopped on a stale observation"
        while body.blocks.ended:
            block = body.blocks.ended.popleft()
            node = {
                "unrecorded_steps": self.unrecorded,
                "lost_blocks": body.blocks.lost_blocks,
                "topics": body.live.counts() if body.live else {},
            }
            block.stepmap.write_report(block_report(body.report, block, self.ending, node))
            block.stepmap[Word.PHASE] = Phase.FAILED if "failure" in block.facts else Phase.DONE
            block.stepmap.close()
            if block is self.block:
                self.block = None

    def release(self) -> None:
        """Frees the policy in its own thread and ends that thread. Unused maps go back to the keeper.

        All of it, whatever part of it raises: nobody comes back for the rest.
        """
        maps = self._first, self.block.stepmap if self.block is not None else None
        body, self.body, self.block = self.body, None, None
        self._first = self.feed = self.edge = None
        with contextlib.ExitStack() as last_first:
            last_first.callback(self.link.tell, cmd="drop")
            last_first.callback(self.place.close)
            if body is not None:
                last_first.callback(self._free, body)
            for stepmap in maps:
                if stepmap is not None:
                    last_first.callback(stepmap.close)

    def _free(self, body: NodeBody) -> None:
        if self.place.join(0.1):
            self.place.call(body.close)
