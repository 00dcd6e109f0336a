"""The node's end of its keeper: start it, ask it, hear it, without ever waiting for it while the loop runs.

One JSON object a line in both directions. The keeper lives in a session of its own, so that a Ctrl-C meant for the node doesn't
reach it; it ends when this process closes the line or dies.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from robot_perf.errors import ExitCode, RobotPerfError


class KeeperLink:
    """`ask` waits for its answer; `events` never waits. `alive` is False once the keeper is gone."""

    def __init__(self) -> None:
        package_parent = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(p for p in (package_parent, os.environ.get("PYTHONPATH", "")) if p)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "robot_perf.tasks.node.keeper", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        except OSError as error:
            raise RobotPerfError("the keeper process can't be started", detail=str(error)) from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._buffer = b""
        self._unread: list[dict[str, Any]] = []
        self.alive = True

    def tell(self, **what: Any) -> None:
        """Sends one command. A keeper that is gone, or that doesn't read, makes `alive` False; the robot goes on."""
        line = json.dumps(what).encode() + b"\n"
        while line and self.alive:
            try:
                line = line[os.write(self._to, line) :]
            except BlockingIOError:
                self.alive = False  # 64 KiB of commands unread: it hangs
            except OSError:
                self.alive = False

    def events(self) -> list[dict[str, Any]]:
        """What has come since the last look."""
        found, self._unread = self._unread + self._read(), []
        return found

    def _read(self) -> list[dict[str, Any]]:
        while self.alive:
            try:
                chunk = os.read(self._from, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                self.alive = False
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def ask(self, answer: str, timeout_s: float, **what: Any) -> dict[str, Any]:
        """Sends a command and waits for the event `answer` (of the same `token`).

        Raises the RobotPerfError that the keeper answers with instead.
        """
        self.tell(**what)
        until = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._from, selectors.EVENT_READ)
            while True:
                for event in (fresh := self._read()):
                    if event["event"] == "failed":
                        error = event["error"]
                        known = RobotPerfError(error["what"], why=error["why"], do=error["do"], detail=error["detail"])
                        known.exit_code = ExitCode(error["exit_code"])
                        raise known
                    if event["event"] == answer and event.get("token") == what.get("token"):
                        self._unread += [e for e in fresh if e is not event]
                        return event
                self._unread += fresh
                if not self.alive or time.monotonic() > until:
                    how = "ended" if not self.alive else f"did not answer within {timeout_s:g} s"
                    raise RobotPerfError(f"the keeper process {how}", do="Its own message is above, on standard error.")
                selector.select(0.1)

    def close(self, timeout_s: float) -> int | None:
        """Ends the conversation and waits for the keeper's exit code; None when it still writes after the limit."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:
                pass  # it had ended before
        until = time.monotonic() + timeout_s
        os.set_blocking(self._from, False)
        while time.monotonic() < until and self._process.poll() is None:
            self._unread += self._read()  # a full pipe must not keep it from ending
            time.sleep(0.01)
        self._unread += self._read()
        code = self._process.poll()
        if code is not None and self._process.stdout is not None:
            self._process.stdout.close()
            self.alive = False
        return code

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._process.pid
