"""The first three lines of a report: what runs, for how long and why that long, on what machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from robot_perf.render.cells import percent
from robot_perf.render.lines import LABEL, clean, hanging, labelled, shorten
from robot_perf.render.parts.checked import check_conditions
from robot_perf.run.model import Run
from robot_perf.specs import Budget, LoopSpec, PolicySpec, TensorSpec
from robot_perf.units import format_count, format_duration, format_probability

__all__ = ["backend_words", "host_words", "opening_lines", "opening_of", "plan_words", "policy_words"]

_DOCTOR = "robot-perf doctor"
# the package whose version says what a backend is; the others are named as their package is
_PACKAGE = {"eager": "torch", "compile": "torch", "cuda_graph": "torch"}


def opening_lines(
    *,
    policy: PolicySpec,
    backend: Mapping[str, Any],
    loop: LoopSpec,
    budget: Budget,
    planned: bool,
    host: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    real_time: Mapping[str, Any] | None = None,
    doctor_notes: int | None = None,
    width: int = 100,
) -> list[Text]:
    """Policy and backend, plan, host. `facts` and `real_time` are what the worker found: None before it has started.

    `backend` is `{"name": …, "options": …}`; `doctor_notes` how many things `robot-perf doctor` would say; None leaves it out.
    """
    versions = host.get("packages") or {}
    lines = _pair(
        shorten(clean(policy.name), 40),
        policy_words(policy),
        backend_words(backend, facts or {}, versions),
        width,
        "bold",
    )
    lines += labelled("plan", plan_words(loop, budget, planned), width, label_style="dim")
    notes = None if doctor_notes is None else f"{format_count(doctor_notes)} note{'s' * (doctor_notes != 1)}: {_DOCTOR}"
    lines += _pair("host", host_words(host, loop, real_time), notes, width, "dim")
    return lines


def opening_of(run: Run, *, doctor_notes: int | None = None, width: int = 100) -> list[Text]:
    """The same lines of a saved Run."""
    check_conditions(run)
    c = run.conditions
    return opening_lines(
        policy=run.policy,
        backend=c["backend"] if isinstance(c["backend"], Mapping) else {"name": c["backend"]},
        loop=run.loop,
        budget=run.budget,
        planned=bool(c.get("planned")),
        host=c.get("host") or {},
        facts=c.get("backend_facts"),
        real_time=c.get("real_time"),
        doctor_notes=doctor_notes,
        width=width,
    )


def _pair(label: str, left: str, right: str | None, width: int, style: str) -> list[Text]:
    """A labelled text with a second one at its right if there is room, else on a line of its own."""
    lines = labelled(label, left, width, label_style=style)
    if right is None:
        return lines
    if len(lines) == 1 and lines[0].cell_len + 6 + len(right) <= width:
        return [Text.assemble(lines[0], " " * 6, right)]
    return lines + [Text(" " * LABEL + line) for line in hanging(right, width)]


def policy_words(policy: PolicySpec) -> str:
    """`48 → 12, 192,504 parameters, sha256 1a2b3c4d…`, each part where it is known."""
    parts = []
    fed = [policy.inputs[i] for i in policy.fed]
    action = (
        policy.outputs[policy.action] if policy.action is not None and policy.action < len(policy.outputs) else None
    )
    if fed and action is not None:
        parts.append(f"{' + '.join(_size(t) for t in fed)} → {_size(action)}")
    if policy.cost is not None:
        parts.append(f"{format_count(policy.cost.parameters)} parameters")
    if policy.state:
        parts.append(f"{len(policy.state)} carried state{'s' * (len(policy.state) != 1)}")
    if policy.chunk > 1:
        parts.append(f"chunks of {policy.chunk} actions")
    if policy.sha256:
        parts.append(f"sha256 {clean(policy.sha256)[:8]}…")
    return ", ".join(parts) or clean(policy.kind)


def _size(tensor: TensorSpec) -> str:
    """A shape without its leading ones: [1, 48] is 48, [1, 3, 224, 224] is 3×224×224."""
    shape = list(tensor.shape)
    while len(shape) > 1 and shape[0] == 1:
        shape.pop(0)
    return "×".join(str(n) for n in shape) or "1"


def backend_words(backend: Mapping[str, Any], facts: Mapping[str, Any], versions: Mapping[str, Any]) -> str:
    """`onnxruntime 1.22.0 on CPU, 1 thread`. The version is the worker's own word where it said one."""
    name = clean(backend.get("name", "?"))
    package = _PACKAGE.get(name, name)
    version = facts.get(package) or versions.get(package)
    device = str(facts.get("device") or (backend.get("options") or {}).get("device") or "cpu")
    words = f"{name} {clean(version)}" if version else name
    if name in _PACKAGE and version:
        words = f"{name} (torch {clean(version)})"
    words += f" on {'CPU' if device == 'cpu' else clean(device)}"
    threads = facts.get("threads")
    if not isinstance(threads, int):
        return words
    return f"{words}, {threads} thread{'s' * (threads != 1)}" if threads else f"{words}, threads as the runtime chose"


def plan_words(loop: LoopSpec, budget: Budget, planned: bool) -> str:
    """How many releases, how long that takes, and what such a run can prove."""
    length = f"{format_count(loop.steps)} releases, {format_duration(loop.steps * loop.period_ns)}"
    if loop.period_ns == 0:
        return f"{format_count(loop.steps)} calls back to back: no deadline verdict"
    aim = f"a miss rate of {format_probability(budget.miss_rate)} with {percent(budget.confidence)} confidence"
    burst = f"(assumed burst {budget.assumed_burst:g})"
    if planned:
        return f"{length}: room for one overrun at {aim} {burst}"
    return f"{length}, as asked, for {aim} {burst}"


def host_words(host: Mapping[str, Any], loop: LoopSpec, real_time: Mapping[str, Any] | None) -> str:
    """Kernel, governor, scheduler class, pinning: what a reader must know to believe the numbers below."""
    words = [f"kernel {clean(host.get('kernel', 'not known'))} {clean(host.get('preemption', ''))}".rstrip()]
    governors = host.get("governors")
    words.append(f"governor {', '.join(clean(g) for g in governors)}" if governors else "no frequency control seen")
    mode = host.get("power_mode")
    if mode:
        pinned = ", clocks pinned" if host.get("clocks_pinned") else ""
        words.append(f"power mode {clean(mode.get('name') or mode.get('id'))}{pinned}")
    words += [clean(v) for v in host.get("virtualization") or ()]
    asked = loop.real_time
    if real_time:
        priority = f" {real_time['priority']}" if real_time.get("priority") else ""
        words.append(f"{clean(real_time.get('scheduler', 'scheduler not known'))}{priority}")
        cpus = real_time.get("affinity") if asked.cpus else None
    else:
        words.append(f"SCHED_FIFO {asked.fifo_priority} asked" if asked.fifo_priority is not None else "SCHED_OTHER")
        cpus = asked.cpus or None
    words.append(f"pinned to {_cpu_list(cpus)}" if cpus else "not pinned")
    if real_time and real_time.get("memory_locked_bytes") and asked.mlock:
        words.append("memory locked")
    if real_time and real_time.get("cpu_dma_latency_held"):
        words.append("cpu_dma_latency held at 0")
    refused = len(real_time.get("refused") or ()) if real_time else 0
    if refused:
        words.append(f"{refused} setting{'s' * (refused != 1)} refused")
    return ", ".join(words)


def _cpu_list(cpus: Sequence[int]) -> str:
    return f"CPU{'s' * (len(cpus) != 1)} {', '.join(str(c) for c in cpus)}"
