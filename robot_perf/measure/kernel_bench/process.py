"""The processes of the RMSNorm bench: a worker and its pipes, and a provider's team of workers that share the points."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from robot_perf.measure.kernel_bench.points import Point

__all__ = ["Team", "WorkerProcess", "one_line", "prepare", "tune", "words_of"]

WORKER = (sys.executable, "-m", "robot_perf.measure.kernel_bench.worker")
PATIENCE_S = 180.0  # an autotuner's first call; silence beyond it is a hang
RESTARTS = 3  # of a provider's processes, all of them together


def one_line(text: str) -> str:
    """A library's message on one line, files by their name alone: reports are shared, where somebody's files lie is not."""
    return " ".join(re.sub(r"(?:/[\w.+@-]+)+/(?=[\w.+@-])", "", text).split())


def words_of(error: Exception) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {one_line(str(error))[:300]}"


class WorkerProcess:
    """A worker and its pipes."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.reason: str | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - its stderr; closed with the process
        self._process = subprocess.Popen(
            [*WORKER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words if not os.environ.get("ROBOT_PERF_DEBUG") else None,
            text=True,
            bufsize=1,
            env=environment,
        )

    def send(self, **message: Any) -> None:
        """Queues a command; a dead worker is noticed when its answer is read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
        except (BrokenPipeError, ValueError):
            self._died()

    def answer(self, patience_s: float | None = None) -> dict[str, Any]:
        """The next reply, or {"error": …} from a worker that died or went silent."""
        out: IO[str] | None = self._process.stdout
        assert out is not None
        if self.reason is None:
            patience_s = patience_s or PATIENCE_S
            ready, _, _ = select.select([out], [], [], patience_s)
            if not ready:
                self._process.kill()
                self.reason = f"no answer within {patience_s:.0f} s{self._last_words()}"
            else:
                line = out.readline()
                if line:
                    found: dict[str, Any] = json.loads(line)
                    return found
                self._died()
        return {"error": self.reason}

    def _died(self) -> None:
        code = self._process.wait()
        self.reason = self.reason or f"its process ended with code {code}{self._last_words()}"

    def _last_words(self) -> str:
        """The last line that the process wrote to stderr: what killed a peer's runtime stands nowhere else."""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - 4000))
        lines = [line.strip() for line in self._words.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {one_line(lines[-1])[:200]}" if lines else ""

    def hang_up(self) -> None:
        """Lets the worker end, without waiting for it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Ends the worker and lets go of its pipes."""
        self.hang_up()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        self._words.close()


class Team:
    """A provider's processes: one, or several that compiled a share of the points ahead.

    A process has all points of a width and op: what a provider compiles for a width serves every number of rows. One that died gets
    a successor at its next point, RESTARTS times: a peer that is absent from the rest of the points can't be the fastest there.
    """

    def __init__(self, name: str, size: int, points: Sequence[Point], environment: dict[str, str]) -> None:
        groups = {key: i for i, key in enumerate(dict.fromkeys((p.op, p.d) for p in points))}
        size = max(1, min(size, len(groups)))
        self._member = {key: i % size for key, i in groups.items()}
        self._name, self._environment = name, environment
        self.members = [WorkerProcess(name, environment) for _ in range(size)]
        self.restarts = 0

    def of(self, point: Point) -> WorkerProcess:
        """The process that has the point; a new one where it has died."""
        i = self._member[point.op, point.d]
        if self.members[i].reason is not None and self.restarts < RESTARTS:
            self.restarts += 1
            self.members[i].close()
            fresh = self.members[i] = WorkerProcess(self._name, self._environment)
            fresh.send(command="hello")
            reply = fresh.answer()
            fresh.reason = reply.get("unavailable") or reply.get("error")
        return self.members[i]

    def share(self, member: WorkerProcess, points: Sequence[Point]) -> list[Point]:
        """The points of one process."""
        return [p for p in points if self.members[self._member[p.op, p.d]] is member]

    def hang_up(self) -> None:
        """Lets all of them end at the same time."""
        for member in self.members:
            member.hang_up()

    def close(self) -> None:
        """Ends them."""
        for member in self.members:
            member.close()


def prepare(teams: Mapping[str, Team], points: Mapping[str, Sequence[Point]], limit_s: float) -> dict[str, Any]:
    """Has every process compile its share of its provider's points, for `limit_s` at most; seconds per provider and point.

    A point that was not reached is compiled when it is set up.
    """
    asked = []
    for name, mine in points.items():
        for member in teams[name].members:
            share = teams[name].share(member, mine)
            if share:
                member.send(command="prepare", points=[asdict(p) for p in share], limit_s=limit_s)
                asked.append((name, member))
    took: dict[str, Any] = {}
    until = time.monotonic() + limit_s + PATIENCE_S
    for name, member in asked:
        reply = member.answer(patience_s=max(1.0, until - time.monotonic()))
        took.setdefault(name, {}).update(reply.get("took_s", {"error": reply.get("error")}))
    return took


def tune(workers: Mapping[str, WorkerProcess], point: Point) -> dict[str, Any]:
    """Has these providers compile a point that was not compiled ahead, and tune for it; seconds per provider.

    The others wait with setting up, which would disturb its timing. What these compile beside each other waits only with timing
    candidates (lock.py).
    """
    for worker in workers.values():
        worker.send(command="prepare", points=[asdict(point)], limit_s=PATIENCE_S, anew=True)
    return {name: worker.answer().get("took_s", {}) for name, worker in workers.items()}
