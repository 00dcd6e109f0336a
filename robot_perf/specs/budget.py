"""What the user asks of a run: the budget that the verdict is about."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Budget:
    """Deadline and the miss rate that is allowed, with the confidence in each direction.

    `assumed_burst` is the mean number of misses per overrun that the verdict assumes at least (measurement.md §10).
    `m_in_k` is (m, K): at most m misses in any K consecutive releases. `percentile_limits_ns` maps a percentile of response
    time such as "p99" to a limit; `release_jitter_limit_ns` limits max - min wake-up latency.
    """

    deadline_ns: int
    miss_rate: float = 1e-3
    confidence: float = 0.95
    assumed_burst: float = 1.0
    m_in_k: tuple[int, int] | None = None
    max_consecutive_misses: int | None = None
    percentile_limits_ns: dict[str, int] = field(default_factory=dict)
    release_jitter_limit_ns: int | None = None
