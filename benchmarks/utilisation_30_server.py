"""A small continuous-batching server in one process, its clients, and Little's law over it. For utilisation_30.py.

Two counts that know nothing of each other. The server's gauge: at each step it notes how many requests run and wait, and that
number stands until the next note. The clients' stamps: when a request was sent (an open loop's at its planned Poisson instant,
which the server sees only at its next step) and when its last token was on the host. L is the gauge averaged over the window;
lambda counts the requests that were sent inside the window; W is their mean time in the system, followed to their end after the
window. Requests that straddle an edge are in the gauge on one side and in the stamps on the other, so L and lambda W differ by
about W over the window's length times the change in between: they agree only when the counts are right and the load is steady.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise

from utilisation_30_decoder import STATS, Decoder

now_ns = time.monotonic_ns
STEP = "policy_step"


@dataclass(eq=False)
class Request:
    """One request: when the client sent it, how many tokens it wants, when the last one was on the host."""

    sent_ns: int
    tokens: int
    left: int = 0
    done_ns: int | None = None

    def __post_init__(self) -> None:
        self.left = self.tokens


class Clients:
    """Closed loop: `concurrency` clients, each sends its next request when the last one is answered. Open loop: Poisson at `rate_hz`."""

    def __init__(self, lengths: tuple[int, int], *, concurrency: int = 0, rate_hz: float = 0.0, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.lengths, self.concurrency, self.rate_hz = lengths, concurrency, rate_hz
        self.sent: list[Request] = []
        self.ready: deque[Request] = deque()
        self.next_ns = 0

    def start(self, at_ns: int) -> None:
        """The first requests of a closed loop are found under way, as an observer would find them in a steady loop: long ones more
        often, each at a random place. Were all of them new, they would end in waves for several of their lengths."""
        low, high = self.lengths
        for _ in range(self.concurrency):
            self._send(at_ns)
            request = self.sent[-1]
            request.tokens = self.random.choices(range(low, high + 1), range(low, high + 1))[0]
            request.left = self.random.randint(1, request.tokens)
        if self.rate_hz:
            self.next_ns = at_ns + self._gap()

    def _gap(self) -> int:
        return int(self.random.expovariate(self.rate_hz) * 1e9)

    def _send(self, at_ns: int) -> None:
        request = Request(at_ns, self.random.randint(*self.lengths))
        self.sent.append(request)
        self.ready.append(request)

    def due(self, at_ns: int) -> list[Request]:
        """Everything that was sent up to now and that the server has not seen."""
        while self.rate_hz and self.next_ns <= at_ns:
            self._send(self.next_ns)
            self.next_ns += self._gap()
        found = list(self.ready)
        self.ready.clear()
        return found

    def answered(self, request: Request, at_ns: int) -> None:
        """The last token is on the host."""
        request.done_ns = at_ns
        if self.concurrency:
            self._send(at_ns)


@dataclass(frozen=True)
class Plant:
    """What is done wrong on purpose: values read one by one, or host work in every step."""

    items: bool = False
    cpu_ms: float = 0.0

    def host_work(self) -> None:
        """Hashes for `cpu_ms`."""
        until, block = now_ns() + int(self.cpu_ms * 1e6), bytes(4096)
        while now_ns() < until:
            hashlib.sha256(block).digest()


@dataclass
class Step:
    """One step: begin, tokens on the host, end (ns), batch size."""

    begin_ns: int
    tokens_ns: int
    end_ns: int
    batch: int


@dataclass
class Server:
    """The loop. `gauge` is (when, running, waiting), one note a turn."""

    decoder: Decoder
    clients: Clients
    cap: int
    plant: Plant
    mark: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext()
    running: list[Request] = field(default_factory=list)
    waiting: deque[Request] = field(default_factory=deque)
    gauge: list[tuple[int, int, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def run(self, until: Callable[[], bool], deadline_ns: int) -> bool:
        """Serves until `until` says so; False when the deadline came first."""
        while not until():
            at = now_ns()
            if at >= deadline_ns:
                return False
            self.waiting.extend(self.clients.due(at))
            while self.waiting and len(self.running) < self.cap:
                self.running.append(self.waiting.popleft())
            self.gauge.append((at, len(self.running), len(self.waiting)))
            if not self.running:
                time.sleep(max(0, min(self.clients.next_ns - now_ns(), deadline_ns - at, 5_000_000)) / 1e9)
                continue
            with self.mark(STEP):
                self._step()
        return True

    def _step(self) -> None:
        begin, n = now_ns(), len(self.running)
        self.decoder.decode(n)
        self._read(n)
        tokens = now_ns()
        if self.plant.cpu_ms:
            self.plant.host_work()
        for request in self.running:
            request.left -= 1
        for request in [r for r in self.running if r.left == 0]:
            self.clients.answered(request, now_ns())
        self.running = [r for r in self.running if r.left]
        self.steps.append(Step(begin, tokens, now_ns(), n))

    def _read(self, n: int) -> list[object]:
        """The tokens on the host: one copy; as planted, one call for every token and each number beside it."""
        if not self.plant.items:
            return self.decoder.token[:n].tolist()
        token, stats = self.decoder.token, self.decoder.stats
        return [(token[i].item(), *(stats[i, j].item() for j in range(STATS))) for i in range(n)]


@dataclass(frozen=True)
class Little:
    """Little's law over one window; `ratio` is L over lambda W."""

    mean_in_system: float
    running: float
    waiting: float
    arrivals_hz: float
    time_in_system_s: float
    requests: int
    unfinished: int
    window_s: float

    @property
    def ratio(self) -> float | None:
        """1 when the law holds; None when nothing arrived."""
        product = self.arrivals_hz * self.time_in_system_s
        return self.mean_in_system / product if product else None


def little(server: Server, low_ns: int, high_ns: int) -> Little:
    """L from the gauge, lambda and W from the clients' stamps."""
    area_running = area_waiting = 0
    notes = [*server.gauge, (high_ns, 0, 0)]
    for (at, running, waiting), (following, _, _) in pairwise(notes):
        width = min(following, high_ns) - max(at, low_ns)
        if width > 0:
            area_running += running * width
            area_waiting += waiting * width
    span = high_ns - low_ns
    inside = [r for r in server.clients.sent if low_ns <= r.sent_ns < high_ns]
    times = [r.done_ns - r.sent_ns for r in inside if r.done_ns is not None]
    return Little(
        mean_in_system=(area_running + area_waiting) / span,
        running=area_running / span,
        waiting=area_waiting / span,
        arrivals_hz=len(inside) / (span / 1e9),
        time_in_system_s=sum(times) / len(times) / 1e9 if times else 0.0,
        requests=len(inside),
        unfinished=len(inside) - len(times),
        window_s=span / 1e9,
    )
