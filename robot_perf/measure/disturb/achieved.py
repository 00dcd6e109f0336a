"""What stated disturbances achieved, in words: a verdict "under gpu:60%" says little where the load got a tenth of that."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from robot_perf.measure.disturb.load import LoadSpec

__all__ = ["achieved_words"]

_ENOUGH = 0.9  # of what was asked


def achieved_words(spec: LoadSpec, achieved: Sequence[Mapping[str, Any]], *, cpus: int | None = None) -> str:
    """One line about a load and the answers of its processes. `cpus` are the processors that it could have."""
    if len(achieved) < spec.processes:
        silent = spec.processes - len(achieved)
        whose = "its process" if spec.processes == 1 else f"{silent} of its {spec.processes} processes"
        return f"{spec.text}: {whose} did not say what was achieved"
    words, enough = _SAID[spec.kind](spec, achieved, cpus or len(os.sched_getaffinity(0)))
    return f"{spec.text}: {words}" + ("" if enough else "; it did not load the machine as stated")


def _cpu(spec: LoadSpec, achieved: Sequence[Mapping[str, Any]], cpus: int) -> tuple[str, bool]:
    had, asked = sum(a["cpu_share"] for a in achieved), min(spec.processes, cpus)
    return f"it had {had:.2f} of the {asked} processors that it could fill", had >= _ENOUGH * asked


def _mem(spec: LoadSpec, achieved: Sequence[Mapping[str, Any]], _cpus: int) -> tuple[str, bool]:
    shares, rate = [a["busy_share"] for a in achieved], sum(a["bytes_s"] for a in achieved)
    words = f"{len(achieved)} process{'es' * (len(achieved) > 1)} copied for {min(shares):.0%} of the time or more"
    return f"{words}, {rate / 1e9:.1f} GB/s read and written", min(shares) >= _ENOUGH * spec.share


def _gpu(spec: LoadSpec, achieved: Sequence[Mapping[str, Any]], _cpus: int) -> tuple[str, bool]:
    one = achieved[0]
    words = (
        f"{one['device']} computed for it for {one['busy_share']:.0%} of the time, {one['flop_s'] / 1e12:.1f} TFLOP/s"
    )
    return f"{words}; it took {one['cpu_share']:.0%} of a processor", one["busy_share"] >= _ENOUGH * spec.share


def _camera(spec: LoadSpec, achieved: Sequence[Mapping[str, Any]], _cpus: int) -> tuple[str, bool]:
    slowest, late = min(a["frames_s"] for a in achieved), sum(a["late_frames"] for a in achieved)
    words = f"{slowest:.1f} frames/s of each camera or more, {late} late"
    return words, slowest >= _ENOUGH * spec.frames_per_s


_SAID = {"cpu": _cpu, "mem": _mem, "gpu": _gpu, "camera": _camera}
