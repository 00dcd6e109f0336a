"""Diagnostic levels with hysteresis, and warnings that don't flood. Pure: the caller brings the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK, WARN, ERROR, STALE = 0, 1, 2, 3
_HOLD = 3  # looks in a row below a line before a level falls
_RELEASE = 0.8  # and below this share of the line


@dataclass
class Level:
    """One watched figure. It rises at once and falls after `_HOLD` looks below 80 % of the line that raised it."""

    value: int = OK
    _calm: int = 0

    def look(self, figure: float | None, warn: float, error: float) -> int:
        """The level after one more look. None (no data) changes nothing."""
        if figure is None:
            return self.value
        reached = ERROR if figure > error else WARN if figure > warn else OK
        if reached >= self.value:
            self.value, self._calm = reached, 0
            return self.value
        line = error if self.value == ERROR else warn
        self._calm = self._calm + 1 if figure <= line * _RELEASE else 0
        if self._calm >= _HOLD:
            self.value, self._calm = reached, 0
        return self.value


@dataclass
class Warnings:
    """At most one text a second for each key, on the caller's clock; `totals` counts all."""

    totals: dict[str, int] = field(default_factory=dict)
    _last_ns: dict[str, int] = field(default_factory=dict)
    _told: dict[str, int] = field(default_factory=dict)

    def due(self, key: str, total: int, now_ns: int) -> int:
        """How many are new and may be told now; 0 while nothing is new or the last text is younger than a second."""
        self.totals[key] = total
        fresh = total - self._told.get(key, 0)
        if fresh <= 0:
            self._told[key] = total  # a counter that began anew
            return 0
        if key in self._last_ns and now_ns - self._last_ns[key] < 1_000_000_000:
            return 0
        self._last_ns[key], self._told[key] = now_ns, total
        return fresh


@dataclass
class LoopLevels:
    """The level of the control loop from the keeper's figures and the thresholds."""

    miss: Level = field(default_factory=Level)
    gap: Level = field(default_factory=Level)
    stale: Level = field(default_factory=Level)

    def look(self, live: Mapping[str, Any], thresholds: Mapping[str, float]) -> tuple[int, str]:
        """(level, one sentence for people)."""
        window, period = live["window"], live["period_ns"]
        releases = window["releases"]
        figures = {
            "miss_ratio": window["misses"] / releases if releases else None,
            "gap_periods": window["max_gap_ns"] / period if window["max_gap_ns"] is not None else None,
            "stale_ratio": window["stale"] / releases if releases else None,
        }
        levels = [
            level.look(figures[name], thresholds[f"{name}.warn"], thresholds[f"{name}.error"])
            for level, name in ((self.miss, "miss_ratio"), (self.gap, "gap_periods"), (self.stale, "stale_ratio"))
        ]
        worst = max(levels)
        if worst == OK:
            return OK, f"keeps its {period / 1e6:g} ms period"
        words = []
        if levels[0] == worst:
            words.append(
                f"{window['misses']} of the last {releases} releases missed the {live['deadline_ns'] / 1e6:g} ms deadline"
            )
        if levels[1] == worst and window["max_gap_ns"] is not None:
            words.append(
                f"largest gap between commands {window['max_gap_ns'] / 1e6:.1f} ms at a period of {period / 1e6:g} ms"
            )
        if levels[2] == worst:
            words.append(f"{window['stale']} of the last {releases} steps had a stale observation")
        return worst, "; ".join(words)
