"""Runs a function in a forked child and brings its JSON back: what it does to the interpreter stays there.

Loading a TorchScript policy needs trial calls (its shapes and its state are not in the file), and the first calls of a process
are the slow ones that must be measured. Here a first call takes 34 ms in a fresh process and 5 ms after another instance of
the same file has run in it, so trial calls in the measured process would hide what a robot sees at its start.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from robot_perf.errors import PolicyError, RobotPerfError, UsageError

TIMEOUT_S = 120.0
LARGEST_ANSWER = 64 * 2**20
_KINDS: dict[str, type[RobotPerfError]] = {"PolicyError": PolicyError, "UsageError": UsageError}


def in_child(name: str, work: Callable[[], Any], *, timeout_s: float = TIMEOUT_S) -> Any:
    """What `work()` returns, as JSON, computed in a forked child whose output is discarded.

    RobotPerfErrors come back as themselves. Raises PolicyError when the child crashes or does not answer within `timeout_s`.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns about threads at a fork; the child only computes, and pools of one thread start none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _child(read, write, work)
    os.close(write)
    try:
        data = _receive(name, pid, read, timeout_s)
    finally:
        os.close(read)
    answer = json.loads(data)
    if "error" in answer:
        error = answer["error"]
        raise _KINDS[error.pop("kind")](**error)
    return answer["value"]


def _child(read: int, write: int, work: Callable[[], Any]) -> None:
    code = 1
    try:
        faulthandler.disable()  # a crash is told by the parent, in one message
        os.close(read)
        # A collection here would run destructors of what the parent holds on a device, which a forked child can't reach.
        gc.disable()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - it lives as long as the child
        try:
            answer: dict[str, Any] = {"value": work()}
        except RobotPerfError as error:
            kind = "UsageError" if isinstance(error, UsageError) else "PolicyError"
            fields = {"what": error.what, "why": error.why, "do": error.do, "detail": error.detail}
            answer = {"error": {"kind": kind, **fields}}
        data = memoryview(json.dumps(answer).encode())
        while data:
            data = data[os.write(write, data) :]
        code = 0
    except BaseException as error:  # noqa: BLE001 - the child must not return into its caller's stack, whatever happens
        with contextlib.suppress(OSError):
            os.write(write, json.dumps({"bug": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(code)


def _receive(name: str, pid: int, read: int, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    data = bytearray()
    while len(data) < LARGEST_ANSWER:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise PolicyError(
                f"{name}: its trial calls did not end within {timeout_s:.0f} s",
                do="Give its sizes with --shape, or mend it.",
            )
        block = os.read(read, 1 << 16)
        if not block:
            break
        data += block
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        raise PolicyError(
            f"{name} crashes the interpreter in a trial call (signal {number}, {signal.Signals(number).name})",
            why="A child process ran it; nothing was measured.",
            do="Run it alone under `python -X faulthandler` to see where.",
        )
    if os.WEXITSTATUS(status) != 0 or not data:
        raise RuntimeError(f"{name}: the trial process ended with {os.WEXITSTATUS(status)}: {bytes(data[:500])!r}")
    return bytes(data)
