"""What analysis answers: frozen results, each number with its n and its interval. ns, or None with the reason.

No field holds infinity or NaN, so every result is plain JSON through `robot_perf.specs.to_json`. Where a value would be
+infinity (the rank falls on a skipped release) it is None, and the reason is "skipped".
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "SKIPPED",
    "Check",
    "ColdStart",
    "Dependence",
    "Distribution",
    "Observation",
    "Outlier",
    "Quantile",
    "QueueStats",
    "ReleaseJitter",
    "Summary",
    "Verdict",
    "WindowMisses",
]

SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Quantile:
    """One percentile with its two-sided order-statistic interval.

    `value` is None with `reason` "skipped" or "not estimable (needs n >= …)". A bound that is None beside a value
    lies on a skipped release (`high`), or, with a `deff` above 1, on no step: too few are independent for an end there.
    `deff`: so many steps are worth one independent one. `coverage` is the interval's, of n / deff independent steps.
    """

    name: str  # "p99.9"
    value: int | None
    reason: str | None
    low: int | None
    high: int | None
    coverage: float | None
    deff: float = 1.0
    open_ended: bool = False  # no end above (below p50: none below), because too few steps are independent


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric over a run, ns. `n` counts the infinite values (skipped releases) too; `infinite` says how many."""

    metric: str  # "response time"
    definition: str  # the text of the metric used
    n: int
    infinite: int
    min: int | None
    quantiles: tuple[Quantile, ...]
    max: int | None  # None with n > 0: the largest is a skipped release
    max_step: int | None
    mean: float | None  # of the finite values
    std: float | None  # of the finite values
    reason: str | None = None  # why the whole distribution has no value, such as "offered load exceeds capacity"
    confidence: float = 0.95

    def quantile(self, name: str) -> Quantile:
        """The percentile called `name`, such as "p99". Raises KeyError for one that was not computed."""
        for quantile in self.quantiles:
            if quantile.name == name:
                return quantile
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Observation:
    """One observed value and the step at which it was seen: never compared with a limit."""

    value_ns: int
    step: int


@dataclass(frozen=True, slots=True)
class WindowMisses:
    """Most misses in any `window` consecutive releases; `misses` None where fewer releases were scheduled."""

    window: int
    misses: int | None
    first_release: int | None
    probability: float | None  # of a window at least this bad, if misses were independent; None where not computed


@dataclass(frozen=True, slots=True)
class ReleaseJitter:
    """Spread of the wake-up latency, ns: absolute (max - min), p99 - p1, standard deviation; None where unknown."""

    n: int
    peak_to_peak: int | None
    p99_minus_p1: int | None
    std: float | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Backlog: steps that started without waiting, and the most releases that were due when a job started."""

    without_wait: int
    deepest_backlog: int  # that job's own release included
    deepest_at: int | None


@dataclass(frozen=True, slots=True)
class Dependence:
    """Diagnostics of the response time of executed steps, lag-1 and Ljung-Box of its ranks: n, and None where a series is too short or constant."""

    n: int
    lag1: float | None
    ljung_box_q: float | None
    ljung_box_p: float | None
    ljung_box_lags: int
    runs_z: float | None
    runs_p: float | None
    first_half_median_ns: int | None
    second_half_median_ns: int | None
    half_shift: float | None  # second half's median over the first's, minus 1
    half_p: float | None  # Mann-Whitney, two-sided
    own_shift: float | None = None  # the same of the harness's own work, which is the same work in every step


@dataclass(frozen=True, slots=True)
class Outlier:
    """One of the worst steps with the state around it. None = not measured."""

    step: int
    kind: str  # "late" or "slow but on time"
    response_ns: int
    start_latency_ns: int
    execution_ns: int
    wakeup_ns: int | None  # None: the loop was late and did not wait
    backlog_ns: int  # how far the previous job ran past this release
    skipped_after: int  # releases dropped because of this step
    gc_ns: int | None
    nivcsw: int | None
    nvcsw: int | None
    minflt: int | None
    majflt: int | None
    cpu: int | None
    cpu_before: int | None
    cause: str  # the worst cause known, a phrase


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Rows of (label, ns) before the first call, calls singly, and what came after. None = not measured."""

    rows: tuple[tuple[str, int], ...]
    calls: tuple[int, ...]  # execution time of calls 1, 2, 3
    from_call: int | None  # "from call j on" the execution time is typical
    steady_execution_ns: int | None
    would_have_missed: int | None  # releases of the first calls that would have been missed with the motors on
    first_action_ns: int | None  # from the start of the process to the first action


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything a report prints about one Run, the verdict apart."""

    schema: str
    state: str
    scheduled: int
    releases: int  # of the scheduled ones, those the run reached: the denominator of every ratio
    executed: int
    skipped: int
    unfinished: int
    late: int
    misses: int
    miss_rate: float | None
    warmup_steps: int
    duration_ns: int
    period_ns: int
    deadline_ns: int
    rate_asked_hz: float | None
    rate_achieved_hz: float | None
    drift_ppm: float | None  # by the first and the last start
    resistant_drift_ppm: float | None  # by the first and the last third; None where wake-ups scatter more than that
    overrun: str
    response: Distribution
    response_executed: Distribution
    start_latency: Distribution
    execution: Distribution
    device: Distribution | None
    wakeup: Distribution
    period_jitter: Distribution
    period_jitter_without_gaps: Distribution
    output_jitter: Distribution
    output_jitter_without_gaps: Distribution
    lateness: Distribution
    staleness: Distribution
    observation_age: Distribution | None
    harness: Distribution
    release_jitter: ReleaseJitter
    max_gap: Observation | None
    utilisation_mean: float | None
    utilisation_p99: float | None
    miss_runs: int
    misses_per_run: float | None
    longest_miss_run: int
    longest_miss_run_at: int | None
    longest_run_probability: float | None
    windows: tuple[WindowMisses, ...]
    queue: QueueStats | None  # under the overrun policy `queue`, unless the offered load exceeds capacity
    dependence: Dependence
    cold_start: ColdStart
    outliers: tuple[Outlier, ...]
    labels: tuple[str, ...]
    not_available: dict[str, str] = field(default_factory=dict)  # metric -> why
    stages: tuple[Distribution, ...] = ()  # a pipeline's stages in order; together they are the execution time
    early_steps: int = 0  # started less than half a period after the step before
    bursts_after_stall: int = 0  # runs of two or more steps that did not wait, after one that took beyond its period


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement beside the miss rate. `status`: PASS, FAIL, INCONCLUSIVE, INVALID or "NOT VIOLATED"."""

    name: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Does the policy keep its deadline? The worst of INVALID > FAIL > INCONCLUSIVE > PASS over all checks.

    `miss_rate_lower` and `miss_rate_upper` are the one-sided bounds that decide, corrected for bursts; the `plain_`
    ones assume independent misses. None where no release was reached.
    """

    status: str
    reason: str
    next_step: str
    cause: str  # for FAIL: the worst cause known; else ""
    state: str
    scheduled: int
    releases: int
    misses: int
    late: int
    skipped: int
    unfinished: int
    miss_rate: float | None
    miss_rate_upper: float | None
    miss_rate_lower: float | None
    plain_upper: float | None
    plain_lower: float | None
    allowed_miss_rate: float
    deadline_ns: int
    period_ns: int
    confidence: float
    assumed_burst: float
    observed_burst: float | None
    deff: float
    cluster_window: int | None  # releases within which misses cluster, where that and not a burst decides `deff`
    miss_runs: int
    longest_miss_run: int
    pass_at_most: int | None
    fail_at_least: int | None
    notes: tuple[str, ...]
    checks: tuple[Check, ...]
    invalid: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 PASS, 1 FAIL, 3 INCONCLUSIVE, 4 INVALID."""
        return {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4}[self.status]
