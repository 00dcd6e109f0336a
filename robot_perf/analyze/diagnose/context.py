"""All that a rule may look at, computed once: the rules themselves only compare and word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from robot_perf.analyze.diagnose import facts as compute
from robot_perf.analyze.diagnose.account import Account, account
from robot_perf.analyze.diagnose.model import CantAnswer, KernelClass, StepCost
from robot_perf.analyze.diagnose.steps import Steps, find_steps
from robot_perf.analyze.diagnose.thresholds import Thresholds
from robot_perf.analyze.diagnose.work import Work, devices_of, launch_calls
from robot_perf.profiles.model import Profile
from robot_perf.profiles.names import collapse_digits
from robot_perf.specs import DeviceSpec
from robot_perf.units import format_duration

SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
MAX_STAGE_STEPS = 50  # a host stage repeats: fifty steps name it


@dataclass(frozen=True)
class Stage:
    """One host-late gap that holds half of the idle time in most steps."""

    share: float  # median over steps, percent of the window
    idle_share: float
    length_ns: float
    name: str | None
    range_ns: float | None


@dataclass(frozen=True, eq=False)
class Context:
    """A Profile, the options, and what follows from them."""

    profile: Profile
    limits: Thresholds
    pattern: str | None = None
    period_ns: int | None = None
    device: DeviceSpec | None = None  # --on
    classes: tuple[KernelClass, ...] = ()  # from counters of the same kernels
    cost: StepCost | None = None  # bytes and FLOP of a step, where they are known

    def duration(self, ns: float) -> str:
        """A duration in words; below five clock steps of a trace in whole microseconds it is only said to be below (rule K3)."""
        step = self.profile.header.resolution_ns
        if step >= 1000 and ns < 5 * step:
            return f"< {format_duration(5 * step)} (clock step {format_duration(step)})"
        return format_duration(ns)

    @property
    def unit(self) -> str:
        """What shares are shares of: a step, or the capture where no steps are marked."""
        return "capture" if self.steps.whole else "step"

    def below(self, value: float, what: str) -> str:
        """The sentence of a clean outcome: value and threshold."""
        return f"{what} {value:.1f} % of the {self.unit}, below {self.limits.listed_share:g} %"

    @cached_property
    def works(self) -> list[Work]:
        """Devices with timed work, most work first; empty for a summary or counters."""
        return devices_of(self.profile) if self.profile.header.shape == "timeline" else []

    @property
    def work(self) -> Work:
        """The device with most work."""
        return self.works[0]

    @cached_property
    def steps(self) -> Steps:
        """Steps on the device with most work."""
        return find_steps(self.profile, self.work, self.limits, self.pattern)

    @cached_property
    def account(self) -> Account:
        """Shares and gaps on the device with most work."""
        return account(self.work, self.steps, self.limits)

    @cached_property
    def launch(self) -> Mapping[str, Any]:
        """Launch calls and queues."""
        return compute.launch_facts(self.profile, self.works[0] if self.works else None, self.limits)

    @cached_property
    def step(self) -> Mapping[str, Any]:
        """Windows, launches and gaps per step."""
        return compute.step_facts(self.work, self.steps, self.account)

    @cached_property
    def copies(self) -> list[dict[str, Any]]:
        """Copies by direction and host memory."""
        return compute.copy_facts(self.work, self.limits)

    @cached_property
    def kernels(self) -> Mapping[str, Any]:
        """Kernels with most time."""
        return compute.top_kernels(self.work, self.limits)

    @cached_property
    def kernel_totals(self) -> list[tuple[str, tuple[int, ...], int]]:
        """(name, launch shape, ns) of every kernel and shape of the device with most work."""
        ops = self.work.ops.take(np.flatnonzero(self.work.compute))
        keys = np.stack([ops[c] for c in ("name", *SHAPE)], axis=1)
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        totals = np.bincount(inverse.reshape(-1), weights=ops["end_ns"] - ops["start_ns"], minlength=len(unique))
        return [
            (ops.strings[int(k[0])], tuple(int(v) for v in k[1:]), int(t)) for k, t in zip(unique, totals, strict=True)
        ]

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """The components of a step (V3), percent of the window, medians over steps."""
        acc, keep = self.account, self.steps.keep
        parts = {
            "transfer": acc.copy,
            "communication": acc.communication,
            "host": acc.late,
            "dependency": acc.queued,
            "unknown": acc.unknown,
            "GPU": acc.compute,
        }
        return {name: 0.0 if np.isnan(value := acc.percent(part, keep)) else value for name, part in parts.items()}

    @cached_property
    def cold_share(self) -> float:
        """Share of the capture in profiler overhead, module and lazy loading (V2); the capture runs from the first launch or op to the last op."""
        calls = self.profile.apis
        launches = launch_calls(calls)
        starts = calls["start_ns"][launches] if "start_ns" in calls.columns else np.empty(0, np.int64)
        low = min([*(int(w.first) for w in self.works), *([int(starts.min())] if len(starts) else [])])
        high = max(w.last for w in self.works)
        inside = int(self.work.overhead.inside(np.array([low]), np.array([high]))[0])
        return inside / (high - low) if high > low else 0.0

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why no verdict on a step is possible (V1, V2), all that apply; empty when one is."""
        header = self.profile.header
        if header.shape == "summary":
            why = (
                "a summary has no timeline; give the sqlite export"
                if len(self.profile.kernels) or len(self.profile.apis) or len(self.profile.ranges)
                else ""
            )
            return (why or "; ".join(n for n in header.notes if n.startswith("SKIPPED")) or "the report is empty",)
        if header.shape == "counters":
            return ("an ncu report has no timeline: kernels were serialised and replayed, one by one",)
        if not self.works:
            return (f"no device rows: {header.no_device_rows or 'none has a time'}",)
        reasons = []
        ops = sum(len(w.ops) for w in self.works)
        steps = 0 if self.steps.whole else len(self.steps)
        if ops < self.limits.min_ops and steps < self.limits.min_steps:
            reasons.append(
                f"too little data: {ops} device operations (needs {self.limits.min_ops}) and {steps} steps (needs {self.limits.min_steps})"
            )
        if self.cold_share >= self.limits.cold_share:
            reasons.append(
                f"cold start: {100 * self.cold_share:.0f} % of the capture is profiler overhead, module or lazy loading; capture after warm-up"
            )
        if not reasons and not (self.steps.window_ns > 0).any():
            reasons.append("window empty: no step has a duration")
        return tuple(reasons)

    @cached_property
    def capture(self) -> str:
        """The capture that would answer what this file can't."""
        if self.profile.header.shape == "summary":
            return "nsys export --type sqlite of the same report"
        if self.profile.header.shape == "counters":
            return "robot-perf profile POLICY --rate HZ (a timeline)"
        if not self.works:
            return (
                "profile again with CUDA activity, after warm-up, with schedule(..., repeat=1)"
                if self.profile.header.format == "kineto"
                else "nsys profile -t cuda,nvtx"
            )
        return "a capture after warm-up of at least 3 steps or 20 device operations"

    @cached_property
    def stage(self) -> Stage | None:
        """The host stage (V4): in most steps one host-late gap has half of the idle time or more."""
        acc, keep = self.account, self.steps.keep
        count = len(self.steps)
        largest, row = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        order = np.argsort(acc.gaps.late, kind="stable")
        largest[acc.gaps.step[order]], row[acc.gaps.step[order]] = acc.gaps.late[order], order
        idle = acc.idle
        stages = keep & (largest > 0) & (largest >= self.limits.stage_share * idle)
        if stages.sum() * 2 <= keep.sum():
            return None
        rows = row[np.flatnonzero(stages)]
        name, length = self._stage_name(rows[:MAX_STAGE_STEPS])
        idle_share = float(np.median(largest[stages] / np.maximum(idle[stages], 1)))
        return Stage(
            acc.percent(np.where(stages, largest, 0), keep), idle_share, float(np.median(largest[stages])), name, length
        )

    def _stage_name(self, rows: Any) -> tuple[str | None, float | None]:
        """The shortest range that covers 90 % of the gap, by the name most steps give, digits collapsed."""
        ranges, acc = self.profile.ranges, self.account
        names: Counter[str] = Counter()
        lengths: dict[str, list[int]] = {}
        for low, high in zip(acc.gaps.start[rows].tolist(), acc.gaps.late_end[rows].tolist(), strict=True):
            inside = np.minimum(ranges["end_ns"], high) - np.maximum(ranges["start_ns"], low)
            covering = np.flatnonzero(inside >= self.limits.stage_cover * (high - low))
            if len(covering):
                best = int(covering[np.argmin(ranges["dur_ns"][covering])])
                name = collapse_digits(ranges.text("name", best))
                names[name] += 1
                lengths.setdefault(name, []).append(int(ranges["dur_ns"][best]))
        if not names:
            return None, None
        name = names.most_common(1)[0][0]
        return name, float(np.median(lengths[name]))

    @cached_property
    def host_name(self) -> str:
        """What the host part is called (V4): sync, host stage, or launch/CPU."""
        late, sync = float(self.account.late[self.steps.keep].sum()), float(self.account.sync[self.steps.keep].sum())
        if late and sync >= self.limits.sync_share * late:
            return "sync"
        return "host stage" if self.stage is not None else "launch/CPU"

    @cached_property
    def open_questions(self) -> tuple[CantAnswer, ...]:
        """What this file can't answer beside the verdict (profiles.md section 15)."""
        open_: list[CantAnswer] = []
        if self.profile.header.shape != "timeline" or self.reasons:
            return ()
        if not self.classes:
            open_.append(
                CantAnswer(
                    "memory or compute bound",
                    "no counters in this trace",
                    "robot-perf profile POLICY --rate HZ --ncu --kernels REGEX --trace FILE prints the command",
                )
            )
        if self.profile.header.graph_mode == "graph" and self.profile.kernels["kind"].max() == 3:
            open_.append(
                CantAnswer(
                    "kernels inside a graph", "graph mode: no kernels inside", "nsys profile --cuda-graph-trace=node"
                )
            )
        unlinked = 1 - float(self.work.linked.mean())
        if unlinked > 0.5:
            open_.append(
                CantAnswer(
                    "queue times and launches per step",
                    f"{100 * unlinked:.0f} % of the device work has no launch call in the file",
                    "an untrimmed capture",
                )
            )
        if self.steps.whole:
            open_.append(
                CantAnswer(
                    "numbers per step",
                    "no range marks the steps",
                    "NVTX or record_function around each step, or --steps PATTERN",
                )
            )
        return tuple(open_)
