"""The verdict of an ncu report: classes of kernels weighted by their duration (profiles.md section 11)."""

from __future__ import annotations

from robot_perf.analyze.diagnose import fixes
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.facts import profile_counts
from robot_perf.analyze.diagnose.kernel_class import kernel_classes
from robot_perf.analyze.diagnose.model import CANT, FOUND, CantAnswer, Diagnosis, Finding, KernelClass
from robot_perf.units import format_duration

NO_SECTION = "section SpeedOfLight not collected"


def conclude_counters(context: Context, unanswered: list[Finding]) -> Diagnosis:
    """The Diagnosis of an ncu Profile: the class and side that hold most time; timeline rules can't answer."""
    profile = context.profile
    counts = profile_counts(profile, [])
    classes = [c for c in context.classes if c.dur_ns is not None and c.dur_ns > 0]
    missing = len(profile.kernels) - len(kernel_classes_known(context))
    others = [f for f in unanswered if f.rule != "GPU"]
    cant = [CantAnswer("what limits the step", context.reasons[0], context.capture)]
    if missing:
        cant.append(CantAnswer(f"the class of {missing} kernels", NO_SECTION, "ncu --section SpeedOfLight"))
    notes = (*profile.header.notes, *_mode_notes(context))
    if not classes:
        why = NO_SECTION if not context.classes else "no kernel has a readable duration"
        finding = Finding("GPU", CANT, why)
        return Diagnosis(
            CANT,
            f"can't answer: {why}",
            (*others, finding),
            counts,
            {"kernels": 0},
            "",
            (why,),
            context.classes,
            tuple(cant),
            (),
            notes,
            profile.header.source,
        )
    total = sum(c.dur_ns or 0 for c in classes)
    shares = label_shares(classes)
    ordered = list(shares.items())
    label, share = ordered[0]
    primary = label
    if len(ordered) > 1 and 100 * (share - ordered[1][1]) <= context.limits.mixed_points:
        primary = f"mixed: {label} + {ordered[1][0]}"
    short = sum(1 for c in classes if (c.dur_ns or 0) < context.limits.short_kernel_ns)
    evidence = {
        "classes": shares,
        "total_ns": total,
        "kernels": len(classes),
        "short_kernels": short,
        "done_kernels": sum(c.done for c in classes),
    }
    names = tuple(dict.fromkeys(c.name for c in sorted(classes, key=lambda c: -(c.dur_ns or 0))))[:3]
    reason = f"{label} for {100 * share:.1f} % of the profiled kernel time ({len(classes)} kernels, {format_duration(total)})"
    finding = Finding(
        "GPU",
        FOUND,
        reason,
        evidence,
        None,
        names,
        fixes.gpu(context, [k for k, _ in ordered[:1]]),
        "predict first, then compare: --predict PATTERN@linear=ROWSxINNERxOUTER,dtype=bf16",
    )
    headline = f"{primary} limits the kernels ({100 * share:.0f} % of {format_duration(total)}; one by one, replayed: no latency of a step)"
    return Diagnosis(primary, headline, (*others, finding), counts, {"total_ns": total, "by_class": shares}, "", (), context.classes, tuple(cant), (), notes, profile.header.source)  # fmt: skip


def label_shares(classes: list[KernelClass]) -> dict[str, float]:
    """Share of the duration by label, largest first."""
    total = sum(c.dur_ns or 0 for c in classes)
    sums: dict[str, float] = {}
    for c in classes:
        sums[c.label] = sums.get(c.label, 0.0) + (c.dur_ns or 0)
    return dict(sorted(((k, v / total) for k, v in sums.items()), key=lambda item: -item[1]))


def kernel_classes_known(context: Context) -> list[KernelClass]:
    """The classes of the file's own rows."""
    return [c for c in kernel_classes(context.profile, context.limits, context.device) if c is not None]


def _mode_notes(context: Context) -> list[str]:
    """Cache and clock control decide what the percentages mean; ask when the file doesn't say (section 14)."""
    header = context.profile.header
    notes = []
    if header.cache_control is None:
        notes.append(
            "cache control is not in the file: with ncu's default (all) every pass starts with flushed caches; say --cache-control none|all"
        )
    if header.clock_control is None:
        notes.append(
            "clock control is not in the file: ncu's default locks the clock (to base; to boost in 2026.1); say --clock-control none|base|boost"
        )
    return notes
