"""A topic seen from outside: arrivals, header stamps, and what the looking itself costs. No ROS: messages come as bytes."""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass

_STAMPS = (struct.Struct(">iI"), struct.Struct("<iI"))


class Watched:
    """Arrivals of one topic: monotonic stamps at callback entry and, where asked for, header stamps (ns).

    `publishers` and `lost` are the middleware's word: None until it says something. It does not tell every loss: of a publisher that
    keeps one message, what was replaced before this reader took it was never offered again.
    """

    def __init__(self, topic: str, keep: int, *, stamps: bool) -> None:
        self.topic = topic
        self.received = 0
        self.arrivals: deque[int] = deque(maxlen=keep)
        self.stamps: deque[int] = deque(maxlen=keep)
        self.own_ns = 0
        self.deadline_events = 0
        self.publishers: int | None = None
        self.lost: int | None = None
        self._read_stamp = stamps

    def arrived(self, data: bytes) -> None:
        """One serialised message."""
        entry = time.monotonic_ns()
        self.received += 1
        self.arrivals.append(entry)
        if self._read_stamp:
            self.stamps.append(header_stamp_ns(data))
        self.own_ns += time.monotonic_ns() - entry

    def newest(self, count: int) -> list[int]:
        """The newest arrivals, oldest first."""
        return [self.arrivals[i] for i in range(-min(count, len(self.arrivals)), 0)]


def header_stamp_ns(data: bytes) -> int:
    """The stamp of a serialised message that begins with a Header: CDR, 4 bytes of encapsulation, then seconds and nanoseconds."""
    seconds, nanoseconds = _STAMPS[data[1] & 1].unpack_from(data, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def latency_by_stamp(inputs: Watched, outputs: Watched) -> list[int]:
    """Per output whose header stamp an input had: output's arrival minus that input's, ns."""
    arrived = dict(zip(inputs.stamps, inputs.arrivals, strict=True))
    pairs = zip(outputs.stamps, outputs.arrivals, strict=True)
    return [out - arrived[stamp] for stamp, out in pairs if stamp in arrived]


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What watching cost since it began: processor time of the whole process and the part around a stamp, per message."""

    messages: int
    stamping_ns_per_message: float | None
    cpu_ns_per_message: float | None
    cpu_share: float


def own_cost(topics: list[Watched], elapsed_ns: int, cpu_ns: int) -> OwnCost:
    """The observer's cost over `elapsed_ns` in which the process used `cpu_ns`."""
    messages = sum(t.received for t in topics)
    stamping = sum(t.own_ns for t in topics)
    share = cpu_ns / elapsed_ns if elapsed_ns else 0.0
    if not messages:
        return OwnCost(0, None, None, share)
    return OwnCost(messages, stamping / messages, cpu_ns / messages, share)
