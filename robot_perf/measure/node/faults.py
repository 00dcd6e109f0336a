"""What goes wrong with a stand-in robot's messages, on demand and seeded: late, dropped, stalled, NaN, a wrong size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Fate(NamedTuple):
    """What happens to one message."""

    send: bool
    nan: bool = False
    wrong_size: bool = False


class Faults:
    """`values` are the stand-in's parameters, which may change between two messages. `counts` says what was done."""

    def __init__(self, seed: int, began_ns: int) -> None:
        self.counts = {"sent": 0, "dropped": 0, "nan": 0, "wrong_size": 0, "stalls": 0}
        self._rng = np.random.default_rng(seed)
        self._stalled_until_ns = 0
        self._last_stall_ns = began_ns

    def late_ns(self, values: Mapping[str, Any]) -> int:
        """How late the next message is: the constant part and a uniform one."""
        return int(values["late_ms"] * 1e6 + self._rng.uniform(0.0, 1.0) * values["jitter_ms"] * 1e6)

    def fate(self, values: Mapping[str, Any], now_ns: int) -> Fate:
        """Whether it is sent, and whole. Nothing is counted as sent before `sent`."""
        every_ns = values["stall_every_s"] * 1e9
        if every_ns and now_ns >= self._last_stall_ns + every_ns:
            self._stalled_until_ns, self._last_stall_ns = now_ns + round(values["stall_s"] * 1e9), now_ns
            self.counts["stalls"] += 1
        drop, nan, wrong_size = self._rng.random(3)
        if now_ns < self._stalled_until_ns or drop < values["drop_ratio"]:
            self.counts["dropped"] += 1
            return Fate(send=False)
        return Fate(True, bool(nan < values["nan_ratio"]), bool(wrong_size < values["wrong_size_ratio"]))

    def sent(self, fate: Fate) -> None:
        """One message left."""
        self.counts["sent"] += 1
        self.counts["nan"] += fate.nan
        self.counts["wrong_size"] += fate.wrong_size


def following(k: int, late_ns: int, period_ns: int, elapsed_ns: int) -> int:
    """The message after number k, `elapsed_ns` after message 0 was due: those whose moment has passed are skipped.

    A message that is late on purpose by more than a period skips none: a robot with a delay still sends them all.
    """
    return k + 1 if late_ns >= period_ns else max(k + 1, elapsed_ns // period_ns)
