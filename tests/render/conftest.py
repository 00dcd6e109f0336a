"""The Runs that every renderer is tried on, one per verdict and kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import MS, US, executions, make_run, policy

from robot_perf.run.model import Run

HOSTILE = "</script><script>alert(1)</script>\"'`|*_[x](http://evil.example)\x1b[2J\n::error::no %0A"


def sample(name: str) -> Run:
    """A Run by name: small, and the same every time."""
    if name == "pass":
        return make_run(executions(9000))
    if name == "fail":
        return make_run(executions(1500, slow={i * 100: 45 * MS for i in range(1, 14)}))
    if name == "inconclusive":
        return make_run(executions(600, slow={300: 25 * MS}), planned=False)
    if name == "invalid":
        state = "interrupted by SIGINT after 400 of 3,000 releases"
        return make_run(executions(400), scheduled=3000, state=state)
    if name == "queue":
        return make_run(executions(400, slow={200: 150 * MS}), overrun="queue")
    if name == "fast":
        return make_run(executions(1200, typical_ns=4 * US), period_ns=MS, rate_hz="1000")
    if name == "tight":
        return make_run(executions(300), period_ns=0, deadline_ns=0, overrun="queue")
    if name == "limits":
        limits = {"percentile_limits_ns": {"p99": MS // 4}, "m_in_k": (1, 10), "max_consecutive_misses": 5}
        return make_run(executions(800), budget=limits)
    if name == "empty":
        return make_run([], scheduled=500, state="interrupted while the policy was loading", warmup_ns=())
    if name == "hostile":
        spec = policy(name=HOSTILE, path=HOSTILE, metadata={HOSTILE: HOSTILE})
        return make_run(executions(120), spec=spec, notes=[HOSTILE], labels=[HOSTILE], argv=["deadline", HOSTILE])
    raise KeyError(name)


NAMES = ("pass", "fail", "inconclusive", "invalid", "queue", "fast", "tight", "limits", "empty", "hostile")


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    """All samples by name."""
    return {name: sample(name) for name in NAMES}


@pytest.fixture(params=NAMES)
def any_run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    """Each sample in turn."""
    return runs[request.param]


@pytest.fixture
def saved() -> Path:
    """Where a report says that its Run lies."""
    return Path("runs/20261129T201500-go1-onnxruntime-50hz.parquet")
