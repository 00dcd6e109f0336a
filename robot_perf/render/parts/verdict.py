"""The verdict in words: the line that answers the question, and the lines that say why and what next."""

from __future__ import annotations

from rich.text import Text

from robot_perf.analyze.types import Check, Verdict
from robot_perf.render.cells import percent, reason_words
from robot_perf.render.lines import LABEL, clean, labelled, pad
from robot_perf.render.parts.command import rerun_command
from robot_perf.run.model import Run
from robot_perf.stats.plan import steps_to_pass
from robot_perf.units import format_bound, format_count, format_duration, format_ms, format_probability

__all__ = ["STATUS_STYLE", "assumption", "headline", "missed_words", "verdict_lines", "verdict_pairs"]

NEXT = "next"  # the label of a command to paste
# Colour repeats what the word says, and says nothing that the word doesn't.
STATUS_STYLE = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow", "INVALID": "bold magenta"}


def verdict_lines(run: Run, verdict: Verdict, width: int) -> list[Text]:
    """The verdict first, then its cause, what it would take, or what made it invalid."""
    lines = labelled(verdict.status, headline(verdict), width, style="bold", label_style=STATUS_STYLE[verdict.status])
    for label, words in verdict_pairs(run, verdict):
        if label == NEXT:
            lines.append(Text(pad(NEXT, LABEL) + words))  # never wrapped: it is there to be copied
        else:
            lines += labelled(label, words, width, label_style="dim" if label == "note" else "")
    return lines


def verdict_pairs(run: Run, verdict: Verdict) -> list[tuple[str, str]]:
    """(label, sentence) of everything below the headline; "" continues the label above."""
    pairs: list[tuple[str, str]] = []
    if verdict.status == "FAIL" and verdict.cause:
        pairs.append(("cause", clean(verdict.cause).removeprefix("worst cause known: ")))
    if verdict.status == "INCONCLUSIVE":
        pairs += _what_it_takes(run, verdict)
    if verdict.status == "INVALID":
        pairs += [("also", clean(reason)) for reason in verdict.invalid[1:]]
        pairs.append(("seen", f"{missed_words(verdict)}; no verdict follows from it"))
        pairs += [("remedy", remedy(verdict)), (NEXT, rerun_command(run))]
    said = _alone(verdict)
    pairs += [("check", f"{c.status}: {reason_words(clean(c.reason))}") for c in verdict.checks if c is not said]
    return pairs + [("note", clean(note)) for note in verdict.notes]


def headline(verdict: Verdict) -> str:
    """One sentence with the bound, the deadline, the confidence, the assumption and the counts."""
    if verdict.status == "INVALID":
        return clean(verdict.invalid[0])
    if verdict.miss_rate_upper is None or verdict.miss_rate_lower is None:
        return "no release was reached: nothing is known about the miss rate"
    own, alone = _own_status(verdict), _alone(verdict)
    if alone is not None:
        return f"{reason_words(clean(alone.reason))}; {missed_words(verdict)}"
    sure = f"({percent(verdict.confidence)} confidence, {assumption(verdict)})"
    low = format_bound(verdict.miss_rate_lower, verdict.allowed_miss_rate, upper=False)
    high = format_bound(verdict.miss_rate_upper, verdict.allowed_miss_rate, upper=True)
    deadline = f"{format_ms(verdict.deadline_ns)} ms"
    allowed = format_probability(verdict.allowed_miss_rate)
    if own == "PASS":
        return f"at most {high} of releases miss {deadline} {sure}; {missed_words(verdict)}"
    if own == "FAIL":
        return f"at least {low} of releases miss {deadline} {sure}, allowed {allowed}; {missed_words(verdict)}"
    return f"between {low} and {high} of releases miss {deadline} {sure}, allowed {allowed}; {missed_words(verdict)}"


def _alone(verdict: Verdict) -> Check | None:
    """The check that decides where the miss rate alone would not have: the headline is about it."""
    if verdict.status == "INVALID" or _own_status(verdict) == verdict.status:
        return None
    return next((check for check in verdict.checks if check.status == verdict.status), None)


def _own_status(verdict: Verdict) -> str:
    """What the miss rate alone says, whatever the other checks say."""
    upper, lower = verdict.miss_rate_upper, verdict.miss_rate_lower
    if upper is not None and upper <= verdict.allowed_miss_rate:
        return "PASS"
    return "FAIL" if lower is not None and lower > verdict.allowed_miss_rate else "INCONCLUSIVE"


def assumption(verdict: Verdict) -> str:
    """Which bursts the bounds count with: assumed, or longer ones that were seen."""
    if verdict.cluster_window is not None:
        return f"misses come together, as bursts of {(verdict.deff + 1) / 2:.3g} would"
    if 2 * verdict.misses > verdict.releases:
        return f"most releases missed, hits in runs of {(verdict.deff + 1) / 2:.3g}"
    used = (verdict.deff + 1) / 2  # the L behind deff = 2L - 1, of misses or, where most releases miss, of hits
    if used > verdict.assumed_burst * (1 + 1e-9):
        return f"bursts of {used:.3g} seen"
    return f"bursts of {verdict.assumed_burst:g} assumed" if verdict.assumed_burst > 1 else "independent misses assumed"


def missed_words(verdict: Verdict) -> str:
    """`3 of 2,995 missed (1 late, 2 skipped), longest run 3`."""
    if not verdict.releases:
        return "no release was reached"
    if not verdict.misses:
        return f"0 of {format_count(verdict.releases)} missed"
    kinds = [(verdict.late, "late"), (verdict.skipped, "skipped"), (verdict.unfinished, "never finished")]
    split = ", ".join(f"{format_count(count)} {word}" for count, word in kinds if count)
    counts = f"{format_count(verdict.misses)} of {format_count(verdict.releases)} missed ({split})"
    return f"{counts}, longest run {format_count(verdict.longest_miss_run)}"


def _what_it_takes(run: Run, verdict: Verdict) -> list[tuple[str, str]]:
    if _own_status(verdict) != "INCONCLUSIVE" or not verdict.releases:
        return [("needs", "a longer run"), (NEXT, rerun_command(run, steps=2 * run.scheduled))]
    steps = steps_to_pass(verdict.misses, verdict.allowed_miss_rate, verdict.confidence, verdict.deff)
    more = steps - verdict.releases
    text = f"a new run of {format_count(steps)} releases ({format_duration(steps * verdict.period_ns)})"
    if more > 0:
        text = (
            f"{format_count(more)} more releases without an overrun would pass: {text}, not a longer look at this one"
        )
    else:
        text += " with no more misses than this would pass"
    pairs = [("needs", text)]
    if verdict.miss_rate is not None and verdict.miss_rate > verdict.allowed_miss_rate:
        pairs.append(("", "more than the allowed share was missed here: expect a longer run to fail"))
    return [*pairs, (NEXT, rerun_command(run, steps=max(steps, 1)))]


def remedy(verdict: Verdict) -> str:
    """What to do about the first reason before measuring again."""
    first = verdict.invalid[0].lower() if verdict.invalid else ""
    return next((words for sign, words in _REMEDIES if sign in first), "remove the cause")


_REMEDIES = (
    ("stopped compiling", "keep what changes in a tensor, or use --backend eager"),
    ("interrupted", "let it run to its end"),
    ("raised", "make the policy run without the error above"),
    ("hung", "find out why the policy did not return (--hang-s sets how long is waited)"),
    ("died of", "find out what killed the measured process (dmesg tells of the out-of-memory killer)"),
    ("ended the measured process", "make the policy return instead of ending the process"),
    ("nan or infinite", "feed observations that the policy was trained on (--observations FILE.npz)"),
    ("differ", "check the file and --state, --action and --cast"),
    ("pending", "make the policy wait for its own device work"),
    ("inside the measured window", "warm up longer or fix the shapes"),
    ("clock", "let the clock settle (a suspended machine or a stepped clock)"),
)
