"""The five rungs, in order: is there work, is the batch capped, is the CPU in the path, transfers or neighbours, only then kernels.

No rung looks at a utilisation number (profiles.md section 12): they say that a GPU idles, never why.
"""

from __future__ import annotations

from typing import Any

from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND, Finding, Fix
from robot_perf.analyze.utilisation.model import Evidence, HostTime, Inside, LadderThresholds
from robot_perf.units import format_duration

TRACE = "robot-perf profile POLICY --rate HZ, then robot-perf diagnose its trace"


def work(e: Evidence, t: LadderThresholds) -> Finding:
    """1: of the places for work, how many are in use on average (Little's law: rate times time in service)."""
    name = "is there work"
    if e.load is None:
        return Finding(name, CANT, e.why("load"))
    load = e.load
    fill = load.running / load.places
    evidence: dict[str, Any] = {
        "running": load.running, "waiting": load.waiting, "places": load.places, "filled_pct": 100 * fill, "rate_hz": load.rate_hz,
        "in_service_ns": None if load.duration_s is None else load.duration_s * 1e9, "source": load.source,
    }  # fmt: skip
    words = _little(e)
    # a release that waits for its late loop is no queue; requests that wait beside empty places are another fault
    queued = load.unit == "request" and load.waiting >= max(t.waiting_share / 100 * load.places, load.running)
    if fill <= t.half_empty and not queued:
        return Finding(name, FOUND, f"{words}; {'nothing was asked of it for the rest of the time' if load.unit == 'step' else 'the other places stay empty'}", evidence, None, (), _more_work(load.unit), _confirm_work(load.unit))  # fmt: skip
    idle = None if e.inside is None else e.inside.idle_pct
    if load.unit == "step" and idle is not None and fill < 1:
        between, inside = 100 * (1 - fill), fill * idle
        evidence |= {"idle_between_steps_pct": between, "idle_inside_steps_pct": inside}
        if between >= max(inside, t.listed_share):
            return Finding(
                name, FOUND, f"{words}; idle between steps {between:.0f} % of the time, inside steps {inside:.0f} %: most of it is slack", evidence, None, (), _more_work(load.unit), _confirm_work(load.unit),
            )  # fmt: skip
    return Finding(name, CLEAN, words, evidence)


def _little(e: Evidence) -> str:
    load = e.load
    assert load is not None
    if load.unit == "step":
        rate = "" if load.rate_hz is None or load.duration_s is None else f"{load.rate_hz:g} steps/s of {format_duration(load.duration_s * 1e9)} each: "  # fmt: skip
        return f"{rate}a step is under way for {100 * load.running:.1f} % of the time"
    return f"on average {load.running:.1f} of {load.places} places are in use and {load.waiting:.1f} requests wait"


def _more_work(unit: str) -> tuple[Fix, ...]:
    if unit == "step":
        return (
            Fix("nothing: at batch 1 idle time between steps is slack against the deadline", "the deadline", "a low number on a dashboard"),
            Fix("use the slack: a higher rate, a larger policy, or a second policy on this GPU", "the idle part", "each shortens the slack: robot-perf deadline A@50 B@10"),
        )  # fmt: skip
    return (Fix("offer more requests at a time, or use a smaller GPU", "throughput up to the places", "waiting grows near saturation"),)  # fmt: skip


def _confirm_work(unit: str) -> str:
    return "robot-perf deadline POLICY at twice the rate: the share doubles" if unit == "step" else "twice the concurrency: running doubles"  # fmt: skip


def batch(e: Evidence, t: LadderThresholds) -> Finding:
    """2: do requests wait while every place is in use."""
    name = "is the batch capped"
    if e.load is None:
        return Finding(name, CANT, e.why("load"))
    load = e.load
    fill, waiting = load.running / load.places, 100 * load.waiting / load.places
    evidence = {"filled_pct": 100 * fill, "waiting": load.waiting, "waiting_pct_of_places": waiting, "skipped_releases": load.skipped}  # fmt: skip
    if load.unit == "step":
        skipped = f"; {load.skipped:,} releases were skipped" if load.skipped else ""
        return Finding(
            name, CLEAN, f"a robot's step is one observation, and there is one place for it: nothing to batch{skipped}", evidence
        )  # fmt: skip
    if fill >= t.full and waiting >= t.waiting_share:
        fix = Fix("allow a larger batch", "up to the requests that wait, until memory or arithmetic limits", "memory of their caches, longer steps")  # fmt: skip
        return Finding(
            name, FOUND, f"{load.running:.1f} of {load.places} places are in use while {load.waiting:.1f} requests wait", evidence, None, (), (fix,), "twice the places: throughput rises",
        )  # fmt: skip
    return Finding(name, CLEAN, f"{load.running:.1f} of {load.places} places in use, {load.waiting:.1f} waiting", evidence)  # fmt: skip


def cpu(e: Evidence, t: LadderThresholds) -> Finding:
    """3: does the device wait for the host inside a step; is the host itself stopped, shared or slow."""
    name = "is the CPU in the path"
    causes, known, missing = _host_causes(e.host, t)
    evidence: dict[str, Any] = dict(known)
    fixes: list[Fix] = [fix for _, fix in causes]
    reasons = [words for words, _ in causes]
    inside = e.inside
    if e.on_cpu:
        reasons.insert(0, "the policy runs on the CPU: all of its step is CPU time")
        fixes.insert(0, Fix("run it on the GPU", "whatever that brings", "copies, launches", "robot-perf bench POLICY --backends onnxruntime,cuda_graph"))  # fmt: skip
    elif inside is not None and inside.host_pct is not None:
        evidence |= {"host_share_pct": inside.host_pct, "source": inside.source}
        moved = (inside.transfer_pct or 0.0) + (inside.communication_pct or 0.0)
        if inside.host_pct >= t.step_share and inside.host_pct >= moved:  # copies that take longer are the next rung's
            said = f": {inside.host_words}" if inside.host_words else ""
            reasons.insert(0, f"the device waits for the host for {inside.host_pct:.0f} % of a step ({inside.host_name}){said}")  # fmt: skip
            fixes = [*(inside.fixes or (_find_it(),)), *fixes]
    unread = f" (not readable here: {'; '.join(missing)})" if missing else ""
    if reasons:
        share = inside.host_pct if inside is not None and not e.on_cpu else None
        return Finding(name, FOUND, "; ".join(reasons) + unread, evidence, share, (), tuple(fixes), TRACE)
    if inside is None or inside.host_pct is None:
        seen = f"; nothing found in what is readable: {_listed(known)}" if known else ""
        return Finding(name, CANT, f"the inside of a step: {e.why('inside')}{seen}{unread}", evidence)
    return Finding(
        name, CLEAN, f"the device waits for the host for {inside.host_pct:.1f} % of a step{_below(inside, t)}{unread}", evidence, inside.host_pct
    )  # fmt: skip


def _find_it() -> Fix:
    return Fix("find the host work inside the step, and move it out or behind the device's work", "up to that part", "code changes", TRACE)  # fmt: skip


def _host_causes(host: HostTime | None, t: LadderThresholds) -> tuple[list[tuple[str, Fix]], dict[str, Any], list[str]]:
    """(what was found with its fix, all numbers, what is not readable)."""
    if host is None:
        return [], {}, []
    rules = (
        ("quota_share", t.quota_share, "the CPU quota of its control group stopped it for {:.1f} % of the time",
         Fix("raise the quota (cpu.max) or run outside of it", "no stops of up to a period of the quota", "processor time of others")),
        ("queue_share", t.queue_share, "the loop's thread waited for a processor in {:.0f} % of the time in which it wanted one",
         Fix("give the loop a processor of its own", "the wait", "that processor", "robot-perf deadline … --cpus N --fifo 80")),
        ("steal_share", t.steal_share, "the hypervisor gave {:.1f} % of the processor time to others",
         Fix("reserve the processors of this virtual machine", "the stolen time", "those processors")),
    )  # fmt: skip
    causes, known, missing = [], {}, []
    for name, limit, words, fix in rules:
        value = getattr(host, name)
        if value is None:
            missing.append(f"{name.removesuffix('_share')}: {host.reasons.get(name, 'no two samples in the window')}")
            continue
        known[f"{name}_pct"] = value
        if value >= limit:
            causes.append((words.format(value), fix))
    if host.clock_share is None:
        missing.append(f"clock: {host.reasons.get('clock_share', 'no sample in the window')}")
    else:
        known["clock_pct_of_highest"] = host.clock_share
        if host.clock_share < t.clock_share:
            fix = Fix("governor performance", "the highest clock", "power, heat", "robot-perf doctor")
            causes.append((f"the loop's processor ran at {host.clock_share:.0f} % of its highest clock (median)", fix))
    return causes, known, missing


def _below(inside: Inside, t: LadderThresholds) -> str:
    assert inside.host_pct is not None
    if inside.host_pct >= t.step_share:
        return ", less than for copies"
    return f", below {t.step_share:g} %" + (" (worth a look, yet not the limit)" if inside.host_pct >= t.listed_share else "")  # fmt: skip


def _listed(known: dict[str, Any]) -> str:
    return ", ".join(f"{k.removesuffix('_pct').replace('_', ' ')} {v:.1f} %" for k, v in known.items())


def transfers(e: Evidence, t: LadderThresholds) -> Finding:
    """4: do copies, other GPUs or other processes hold the device up."""
    name = "transfers or other GPUs"
    inside = e.inside
    shares = {} if inside is None else {"transfers": inside.transfer_pct, "communication": inside.communication_pct}
    known = {k: v for k, v in shares.items() if v is not None}
    evidence: dict[str, Any] = {f"{k}_pct": v for k, v in known.items()} | {"other_processes_on_the_gpu": e.neighbours, "gpus": e.gpus}  # fmt: skip
    reasons = [f"{k} take {v:.0f} % of a step" for k, v in known.items() if v >= t.step_share]
    if e.neighbours:
        reasons.append(f"{e.neighbours} other {'process has' if e.neighbours == 1 else 'processes have'} a context on this GPU")  # fmt: skip
    if reasons:
        fixes = (
            Fix("pinned host memory, fewer and smaller copies, cameras preprocessed on the device", "the copies", "code changes"),
            Fix("one process per GPU, or fixed time slices for the others", "their part", "the others move"),
        )  # fmt: skip
        return Finding(name, FOUND, "; ".join(reasons), evidence, max(known.values(), default=None), (), fixes, TRACE)
    unread = "" if e.neighbours is not None else f"; other processes: {e.why('neighbours')}"
    if not known:
        return Finding(name, CANT, f"the inside of a step: {e.why('inside')}{unread}", evidence)
    words = ", ".join(f"{k} {v:.1f} %" for k, v in known.items())
    alone = "" if e.neighbours is None else ", no other process on this GPU"
    return Finding(name, CLEAN, f"{words} of a step, below {t.step_share:g} %{alone}{unread}", evidence)


def kernels(e: Evidence, t: LadderThresholds) -> Finding:
    """5: only now the kernels."""
    name = "kernels"
    inside = e.inside
    if inside is None or inside.gpu_pct is None:
        return Finding(name, CANT, f"the inside of a step: {e.why('inside')}")
    evidence = {"kernels_pct": inside.gpu_pct, "dependency_pct": inside.dependency_pct, "source": inside.source}
    if inside.gpu_pct >= t.primary_share:
        fix = Fix("the kernels themselves: fewer bytes, lower precision, fusion, a better grid", "part of the kernel time", "each kernel by its own limit", "robot-perf profile POLICY --rate HZ --ncu --kernels REGEX --trace FILE")  # fmt: skip
        return Finding(name, FOUND, f"kernels fill {inside.gpu_pct:.0f} % of a step", evidence, inside.gpu_pct, (), (fix,), "robot-perf ceiling says what this GPU allows")  # fmt: skip
    return Finding(name, CLEAN, f"kernels fill {inside.gpu_pct:.1f} % of a step, below {t.primary_share:g} %; waits inside the device {_or_none(inside)}", evidence, inside.gpu_pct)  # fmt: skip


def _or_none(inside: Inside) -> str:
    return "are not known" if inside.dependency_pct is None else f"{inside.dependency_pct:.1f} %"
