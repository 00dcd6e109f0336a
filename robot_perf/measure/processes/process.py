"""Child processes of the conductor: waiting for their end cheaply, ending them, and what the kernel says of the machine."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path


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


def main_thread() -> bool:
    """Whether this is the thread that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()
