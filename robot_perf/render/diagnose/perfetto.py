"""A Profile or a Run as a Chrome trace that Perfetto and about:tracing open: steps, phases, misses and kernels on one time line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from robot_perf.errors import UsageError
from robot_perf.profiles.model import API_KINDS, COPIES, KINDS, NULL, RANGE_KINDS, Profile, plain
from robot_perf.run.columns import NOT_MEASURED
from robot_perf.run.model import Run

_CATEGORY = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_graph")
_STAGE = "stage_end_ns."
MAX_EVENTS = 5_000_000
STEPS_PROCESS = (
    2_000_000_000  # beside devices and hosts. Perfetto reads a process number as unsigned 32 bits: -1 would be device 0
)


def profile_trace(profile: Profile, steps: tuple[Any, Any] | None = None, name: str = "step") -> str:
    """The trace of a timeline Profile. `steps` are (start, end) arrays of the windows found. Raises UsageError for a summary."""
    if profile.header.shape != "timeline":
        raise UsageError(f"{profile.header.source} has no timeline to export", why=f"It is a {profile.header.shape}.")
    if len(profile.kernels) + len(profile.apis) + len(profile.ranges) > MAX_EVENTS:
        raise UsageError(
            f"{profile.header.source} has over {MAX_EVENTS:,} rows, more than a viewer opens", do="Capture fewer steps."
        )
    starts = [
        t["start_ns"][t["start_ns"] != NULL]
        for t in (profile.kernels, profile.apis, profile.ranges)
        if "start_ns" in t.columns
    ]
    zero = min((int(s.min()) for s in starts if len(s)), default=0)
    return _document([*_device_events(profile, zero), *_host_events(profile, zero), *_step_events(steps, name, zero)])


def _us(ns: int) -> float | int:
    return ns // 1000 if ns % 1000 == 0 else ns / 1000


def _device_events(profile: Profile, zero: int) -> Iterator[dict[str, Any]]:
    k = profile.kernels
    for device in np.unique(k["device"]) if len(k) else ():
        facts = profile.device(int(device))
        yield _meta(
            "process_name", int(device), f"device {int(device)}" + (f" {facts.name}" if facts and facts.name else "")
        )
        for stream in np.unique(k["stream"][k["device"] == device]):
            number = 0 if stream == NULL else int(stream)
            yield _meta("thread_name", int(device), f"stream {number}", number)
    columns = {
        c: k[c].tolist()
        for c in (
            "kind",
            "start_ns",
            "dur_ns",
            "device",
            "stream",
            "corr",
            "bytes",
            "copy",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
        )
    }
    for i in range(len(k)):
        row = {c: v[i] for c, v in columns.items()}
        if row["start_ns"] == NULL:
            continue
        args: dict[str, Any] = {
            "device": row["device"],
            "stream": plain(row["stream"]),
            "correlation": plain(row["corr"]),
            "kind": KINDS[row["kind"]],
        }
        if row["bytes"] != NULL:
            args["bytes"] = row["bytes"]
        if row["copy"] != NULL:
            args["direction"] = COPIES[row["copy"]]
        if row["grid_x"] != NULL:
            args["grid"], args["block"] = [row[f"grid_{a}"] for a in "xyz"], [row[f"block_{a}"] for a in "xyz"]
        yield _complete(
            _CATEGORY[row["kind"]],
            k.text("name", i),
            row["start_ns"] - zero,
            row["dur_ns"],
            row["device"],
            row["stream"],
            args,
        )


def _host_events(profile: Profile, zero: int) -> Iterator[dict[str, Any]]:
    a, r = profile.apis, profile.ranges
    for process in sorted({_host(p) for t in (a, r) if "process" in t.columns for p in np.unique(t["process"])}):
        yield _meta("process_name", process, "host")
    if "start_ns" in a.columns:
        for i in range(len(a)):
            args = {"correlation": plain(a["corr"][i]), "kind": API_KINDS[int(a["kind"][i])]}
            yield _complete(
                "cuda_runtime",
                a.text("name", i),
                int(a["start_ns"][i]) - zero,
                int(a["end_ns"][i] - a["start_ns"][i]),
                _host(a["process"][i]),
                a["thread"][i],
                args,
            )
    if "start_ns" in r.columns:
        for i in range(len(r)):
            category = {
                "annotation": "user_annotation",
                "nvtx": "user_annotation",
                "cpu_op": "cpu_op",
                "python": "python_function",
            }[RANGE_KINDS[int(r["kind"][i])]]
            yield _complete(
                category,
                r.text("name", i),
                int(r["start_ns"][i]) - zero,
                int(r["dur_ns"][i]),
                _host(r["process"][i]),
                r["thread"][i],
                {},
            )


def _host(process: Any) -> int:
    """Host processes beside devices, which are numbered from 0."""
    return 1_000_000 if int(process) == NULL or int(process) < 1000 else int(process)


def _step_events(steps: tuple[Any, Any] | None, name: str, zero: int) -> Iterator[dict[str, Any]]:
    if steps is None:
        return
    yield _meta("process_name", STEPS_PROCESS, "robot-perf steps")
    yield {"ph": "M", "name": "process_sort_index", "pid": STEPS_PROCESS, "tid": 0, "args": {"sort_index": -1}}
    for i, (low, high) in enumerate(zip(*steps, strict=True)):
        yield _complete(
            "robot_perf_step", f"{name} {i}", int(low) - zero, int(high - low), STEPS_PROCESS, 0, {"step": i}
        )


def run_trace(run: Run) -> str:
    """The trace of a Run: releases, wake-up latency, execution with its phases, device time, misses and skipped releases."""
    steps = run.measured
    if not len(steps["step"]):
        raise UsageError("the Run has no finished step to export")
    zero = int(steps["release_ns"].min())
    stages = [c for c in steps if c.startswith(_STAGE)]
    events: list[dict[str, Any]] = [
        _meta("process_name", 1, "control loop"),
        *(_meta("thread_name", 1, n, i) for i, n in enumerate(("steps", "phases", "device", "deadline"))),
    ]
    deadline = run.budget.deadline_ns
    rows = zip(
        *(
            steps[c].tolist()
            for c in ("step", "release_ns", "wake_ns", "start_ns", "enqueue_end_ns", "end_ns", "device_ns")
        ),
        strict=True,
    )
    reached = -1
    for index, (number, release, wake, start, enqueued, end, device) in enumerate(rows):
        response = end - release
        events.append(
            _complete(
                "step",
                f"step {number}",
                start - zero,
                end - start,
                1,
                0,
                {"response_us": response / 1000, "missed": response > deadline},
            )
        )
        if wake != NOT_MEASURED and wake >= release:
            events.append(_complete("phase", "wake-up latency", release - zero, wake - release, 1, 1, {}))
        if enqueued != NOT_MEASURED:
            events.append(_complete("phase", "enqueue", start - zero, enqueued - start, 1, 1, {}))
            events.append(_complete("phase", "wait for the device", enqueued - zero, end - enqueued, 1, 1, {}))
        before = start
        for stage in stages:
            mark = int(steps[stage][index])
            if mark != NOT_MEASURED and mark >= before:
                events.append(_complete("phase", stage[len(_STAGE) :], before - zero, mark - before, 1, 1, {}))
                before = mark
        if device != NOT_MEASURED:
            events.append(
                _complete(
                    "device",
                    "device work (its length; placed before the end)",
                    max(start, end - device) - zero,
                    min(device, end - start),
                    1,
                    2,
                    {},
                )
            )
        if response > deadline:
            events.append(_instant(f"missed by {(response - deadline) / 1000:.1f} us", release + deadline - zero))
        events += [
            _instant(f"release {skipped} skipped", release - (number - skipped) * run.loop.period_ns - zero)
            for skipped in range(reached + 1, number)
        ]
        reached = number
    return _document(events)


def _complete(
    category: str, name: str, start: int, duration: int, process: int, thread: Any, args: dict[str, Any]
) -> dict[str, Any]:
    number = int(thread)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": _us(start),
        "dur": _us(max(0, duration)),
        "pid": int(process),
        "tid": 0 if number == NULL else number,
        "args": args,
    }


def _instant(name: str, at: int) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "cat": "deadline", "name": name, "ts": _us(at), "pid": 1, "tid": 3}


def _meta(kind: str, process: int, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _document(events: list[dict[str, Any]]) -> str:
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, allow_nan=False)
