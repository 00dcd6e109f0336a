"""The keeper's process: the conductor of a ROS node. `python -m robot_perf.tasks.node.keeper NODE_PID`, started by the node.

It outlives the node: whatever ends that, no completed step is lost. It talks JSON lines, commands in, events out.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from typing import Any

from robot_perf.errors import ExitCode
from robot_perf.tasks.node.keeping import LOOK_S, Keeper


def main(node_pid: int) -> int:
    """Serves one node until it closes the line or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C and a service's SIGTERM are the node's: it tells when to end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listening = True

    def send(**event: Any) -> None:
        nonlocal listening
        if not listening:
            return
        try:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            listening = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    keeper = Keeper(node_pid, send)
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        while True:
            if selector.select(LOOK_S):
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    break
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    keeper.handle(json.loads(line))
            keeper.look()
            if keeper.node_gone():
                break
    keeper.end()
    return int(ExitCode.PASS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
