"""Which of the known reasons makes a step slow, with the evidence (profiles.md, normative).

The rules are a literal table: a new rule is one function, one line here, one test.
"""

from __future__ import annotations

from collections.abc import Callable

from robot_perf.analyze.diagnose import rules_device, rules_host, rules_summary, rules_sync
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import CANT, Diagnosis, Finding, Fix, KernelClass, StepCost
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.verdict import conclude
from robot_perf.profiles.model import Profile
from robot_perf.specs import DeviceSpec

__all__ = ["RULES", "SUMMARY_RULES", "Diagnosis", "Finding", "Fix", "KernelClass", "StepCost", "Thresholds", "diagnose"]

Rule = Callable[[Context], Finding]

# name -> rule; all run on a timeline
RULES: dict[str, Rule] = {
    "launch/CPU": rules_host.launch_cpu,
    "sync": rules_sync.sync,
    "host stage": rules_host.host_stage,
    "transfer": rules_device.transfer,
    "communication": rules_device.communication,
    "dependency": rules_device.dependency,
    "GPU": rules_device.gpu,
    "cold start": rules_host.cold_start,
    "host ahead": rules_host.host_ahead,
}
# a summary answers these; every other rule needs a timeline
SUMMARY_RULES: dict[str, Rule] = {
    "short kernels": rules_summary.short_kernels,
    "blocked calls": rules_summary.blocked_calls,
    "host ahead": rules_summary.host_ahead,
}


def diagnose(
    profile: Profile,
    *,
    device: DeviceSpec | None = None,
    period_ns: int | None = None,
    pattern: str | None = None,
    counters: Profile | None = None,
    probed_bytes_s: float | None = None,
    limits: Thresholds | None = None,
    cost: StepCost | None = None,
) -> Diagnosis:
    """The diagnosis of a Profile. Pure: the same file and options give the same answer.

    `device` is --on (SM count and peaks that the file lacks), `period_ns` the control period, `pattern` a regular expression
    of the step ranges, `counters` an ncu Profile of the same kernels, `probed_bytes_s` the bandwidth that a probe reached, `cost` bytes and FLOP of a step for a roofline reading.
    """
    from robot_perf.analyze.diagnose.counters import conclude_counters
    from robot_perf.analyze.diagnose.kernel_class import kernel_classes

    used = limits or Thresholds()
    measured = counters if counters is not None else profile if profile.header.shape == "counters" else None
    classes = (
        tuple(c for c in kernel_classes(measured, used, device, probed_bytes_s) if c is not None) if measured else ()
    )
    context = Context(profile, used, pattern, period_ns, device, classes, cost)
    if profile.header.shape == "counters":
        return conclude_counters(context, _unanswered(context))
    if profile.header.shape == "summary":
        findings = [rule(context) for rule in SUMMARY_RULES.values()]
        return conclude(context, [*(f for f in _unanswered(context) if f.rule not in SUMMARY_RULES), *findings])
    if context.reasons:
        cold = rules_host.cold_start(context)
        return conclude(context, [cold if f.rule == "cold start" else f for f in _unanswered(context)])
    return conclude(context, [rule(context) for rule in RULES.values()])


def _unanswered(context: Context) -> list[Finding]:
    """Every timeline rule with the reason why it can't run on this file."""
    return [Finding(name, CANT, "; ".join(context.reasons)) for name in RULES]
