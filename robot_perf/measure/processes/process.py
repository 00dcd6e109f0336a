"""Child processes of the conductor: waiting for their end cheaply, ending them, and what the kernel says of the machine."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Ended:
    """Sleeps until a process ends or the time is up, in one system call.

    Popen.wait(timeout) polls: some eight wake-ups in every 0.1 s, beside the loop that is being measured.
    """

    def __init__(self, pid: int) -> None:
        self._poll = select.poll()
        try:
            self._file: int | None = os.pidfd_open(pid)
        except (OSError, AttributeError):  # before Linux 5.3, or it has ended already
            self._file = None
        else:
            self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """At most `seconds`."""
        if self._file is None:
            time.sleep(seconds)
        elif self._poll.poll(seconds * 1000):
            self.close()

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Asks a child to end, and ends it after `grace_s`."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def steal_ticks() -> int | None:
    """Ticks that a hypervisor took from all processors since boot; None where the kernel does not say."""
    try:
        return int(Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[8])
    except (OSError, IndexError, ValueError):
        return None


def signal_name(number: int) -> str:
    """SIGKILL for 9, and so on."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def raised(failure: Mapping[str, Any]) -> str:
    """What a policy raised, and in which line of its own: `ValueError: no joint 3 (walk.py:40 in step)`."""
    frames = failure.get("frames") or ()
    own = [
        f for f in frames if "-packages/" not in f
    ] or frames  # an error inside torch was made by the line that called it
    # the file's name alone: its folders may hold a user's name, and a Run is passed on
    return f"{failure['error']} ({own[-1].rsplit('/', 1)[-1]})" if own else str(failure["error"])


def failed_words(failure: Mapping[str, Any], where: str = "") -> str:
    """How a measurement failed: `the policy raised in warm-up: …`, or what makes it invalid in our own words."""
    if failure.get("told"):
        return f"ended {where}: {failure['error']}" if where else str(failure["error"])
    return f"the policy raised {where}: {raised(failure)}" if where else f"the policy raised {raised(failure)}"


def on_ending(handler: Callable[[int, Any], None]) -> Callable[[], None]:
    """Lets `handler` answer Ctrl-C, a service's or time limit's SIGTERM and a closed terminal. Returns what undoes it.

    A command that was told to outlive its terminal (nohup) does. Outside the main thread nothing is set.
    """
    if not main_thread():
        return lambda: None
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    former = [(number, signal.signal(number, handler)) for number in numbers]

    def undo() -> None:
        for number, one in former:
            signal.signal(number, one)

    return undo


def main_thread() -> bool:
    """Whether this is the thread that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()
