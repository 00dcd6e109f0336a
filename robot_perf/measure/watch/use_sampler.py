"""Samples GPU and host beside a measurement, in a process of its own: `python -m robot_perf.measure.watch.use_sampler ORDER.json`.

It writes one JSON line a sample into a file, reads `pid N` lines from stdin (the process to follow), and ends when stdin closes:
it never outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from robot_perf.errors import RobotPerfError
from robot_perf.run.scratch import Scratch

EVERY_S = 0.5
READY_S = 60.0
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class SamplerOrder:
    """What to read, how often, where to write it."""

    device: str
    every_s: float
    path: str


def main(order_path: str) -> int:
    """Samples until stdin closes."""
    from robot_perf.measure.watch.gpu_use import open_reader
    from robot_perf.measure.watch.host_use import HostUse
    from robot_perf.specs import from_json

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the conductor's to answer
    order = from_json(SamplerOrder, json.loads(Path(order_path).read_text(encoding="utf-8")))
    reader, reason = open_reader(order.device)
    host = HostUse()
    identity = reader.identity() if reader is not None else {}
    source = reader.source if reader is not None else None
    with Path(order.path).open("w", encoding="utf-8") as out:
        _say({"event": "ready", "source": source, "reason": reason, "identity": identity})
        due = time.monotonic()
        open_input = True
        while open_input:
            line = {"host": host.sample(), "gpu": reader.sample() if reader is not None else None}
            out.write(json.dumps(line) + "\n")
            out.flush()
            due = max(due + order.every_s, time.monotonic())
            open_input = _heard(due, host)
        line = {"host": host.sample(), "gpu": reader.sample() if reader is not None else None}
        out.write(json.dumps(line) + "\n")
    _say({"gpu_reasons": reader.reasons if reader is not None else {}, "host_reasons": host.reasons})
    if reader is not None:
        reader.close()
    return 0


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _heard(until: float, host: Any) -> bool:
    """Waits until a time, obeying `pid N` lines; False once stdin has closed."""
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return True
        if not select.select([0], [], [], left)[0]:
            return True
        text = os.read(0, 4096)
        if not text:
            return False
        for words in (line.split() for line in text.decode("ascii", "replace").splitlines()):
            if len(words) == 2 and words[0] == "pid" and words[1].isdecimal():
                host.follow(int(words[1]))
                return True  # a sample now: the first look at the process


class UseSampler:
    """A context: inside it the sampler runs. `samples`, `facts` and `reasons` are complete after it.

    Raises RobotPerfError when its process can't start. Without a GPU it samples the host and says why there is no GPU.
    """

    def __init__(self, device: str, every_s: float = EVERY_S) -> None:
        self.device, self.every_s = device, every_s
        self.facts: dict[str, Any] = {}
        self.samples: list[dict[str, Any]] = []
        self.reasons: dict[str, dict[str, str]] = {"gpu_reasons": {}, "host_reasons": {}}
        self._followed: int | None = None

    def __enter__(self) -> UseSampler:
        self._folder = Scratch("use-")
        self._path = self._folder.path / "samples.jsonl"
        order = self._folder.path / "order.json"
        order.write_text(json.dumps({"device": self.device, "every_s": self.every_s, "path": str(self._path)}))
        self._errors = (self._folder.path / "stderr").open("w+b")
        parent = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(p for p in (parent, os.environ.get("PYTHONPATH", "")) if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "robot_perf.measure.watch.use_sampler", str(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            self._await_ready()
        except BaseException:
            self._end()
            raise
        return self

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], READY_S)[0]
        words = self._process.stdout.readline() if ready else b""
        if not words:
            raise RobotPerfError("the process that samples the GPU did not start", detail=self._last_words())
        self.facts = {k: v for k, v in json.loads(words).items() if k != "event"}

    def follow(self, pid: int) -> None:
        """The process whose run queue and quota are read from now on. Once per process."""
        if pid == self._followed or self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        self._followed = pid
        try:
            self._process.stdin.write(f"pid {pid}\n".encode("ascii"))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended: `samples` will show where

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        try:
            try:
                text, _ = self._process.communicate(timeout=_GRACE_S)  # closes stdin
            except subprocess.TimeoutExpired:
                self._process.kill()
                text, _ = self._process.communicate()
            last = text.decode("utf-8", "replace").strip().splitlines()[-1:]
            if last and last[0].startswith('{"gpu_reasons"'):
                self.reasons = json.loads(last[0])
            elif self.facts:
                self.facts["reason"] = f"the sampler ended early: {self._last_words() or 'it said nothing'}"
            self.samples = self.read()
        finally:
            self._errors.close()
            self._folder.close()

    def _last_words(self) -> str:
        """The last line of its stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def read(self) -> list[dict[str, Any]]:
        """The samples so far; a line that is being written is left out."""
        if not self._path.exists():
            return []
        lines = self._path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def conditions(self) -> dict[str, Any]:
        """JSON for a Run: the samples, where they came from, why a field is absent."""
        return {"device": self.device, "every_s": self.every_s, **self.facts, **self.reasons, "samples": self.samples}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
