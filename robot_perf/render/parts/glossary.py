"""The words of a report and what they mean. docs/metrics.md says the same at length, with formulas and sources."""

from __future__ import annotations

__all__ = ["GLOSSARY"]

# r release, w wake, s start, f finish of step k; T period, D deadline. Strict order: the report prints it as it is.
GLOSSARY: tuple[tuple[str, str], ...] = (
    ("release", "the intended begin of a step, r_k = r_0 + k T on a fixed grid; never re-anchored after a late step"),
    ("deadline", "D, counted from the release; the period unless another was asked for"),
    ("response time", "f - r: from the intended release until the action is usable on the host; a skipped release is infinite"),
    ("response, executed", "the same over the steps that ran; it can look better when releases are dropped, so it never decides"),
    ("wake-up latency", "w - r: how late the wait for the release returned; only steps that waited"),
    ("start latency", "s - r: wake-up, backlog of the previous job and work before the policy call"),
    ("execution time", "f - s on the host, device work complete"),
    ("device time", "between adjacent device events around the step's device work"),
    ("harness", "our own work in a period: wake to start plus end to ready; the first part is in the response time, never subtracted; the second comes after the action"),
    ("period jitter", "(s - s_prev) - T over consecutive executed jobs, signed; with and without gaps that hold a skip"),
    ("output jitter", "(f - f_prev) - T over consecutive executed jobs, signed: what the plant sees"),
    ("lateness", "f - r - D, signed; negative is slack"),
    ("action staleness", "at each release, the age of the newest finished job's start: r - s"),
    ("observation age", "s minus the monotonic stamp at which the observation arrived in this process"),
    ("release jitter", "spread of the wake-up latency: largest minus smallest, p99 - p1, standard deviation"),
    ("miss", "a release whose response is longer than D (strictly), or that was skipped or never finished"),
    ("late", "a miss that ran: it finished after its deadline"),
    ("skipped", "a release never started because the previous job still ran; also a miss"),
    ("never finished", "a release that was started and has no finish: the policy hung, raised or was killed; also a miss"),
    ("miss rate", "misses / releases; releases are the scheduled ones, not the executed jobs"),
    ("overrun", "a job that runs past the next release; under skip it costs the late job and each release it covers"),
    ("longest run", "most misses in a row"),
    ("worst window", "most misses in any K consecutive releases: (m,K) asks for at most m misses, not hits"),
    ("burst", "L, mean misses per run of misses; bounds count k/deff misses of n/deff releases with deff = max(1, 2L - 1), or more where runs come together"),
    ("bounds", "one-sided Clopper-Pearson at the stated confidence; PASS if the upper is within the allowed rate, FAIL if the lower is beyond it"),
    ("percentile", "nearest rank, X_(ceil(p n)): a value that occurred; its interval is order statistics, without a distribution, of fewer steps where those in a row are alike"),
    ("not estimable", "no finite interval exists with this many steps; the number needed is given"),
    ("max", "the largest value seen, with its release: an observation, never compared with a limit"),
    ("utilisation", "execution time / period, mean and p99; a mean above 1 is an offered load beyond capacity"),
    ("max gap", "largest f - f_prev: the longest time without a new action"),
    ("rate drift", "((s_last - s_first) / (k_last - k_first) - T) / T, in ppm"),
    ("cold start", "what happens once: load, build, the first calls; releases that would have been missed with motors on"),
    ("warm-up", "steps at the control rate before the window; kept, numbered below zero, in no statistic"),
)  # fmt: skip
