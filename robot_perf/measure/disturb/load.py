"""Stated disturbances beside a measurement, each in processes of its own: `python -m robot_perf.measure.disturb.load ORDER.json`.

    cpu:N               N processes that hash without a pause: N processors asked for
    mem:P%              copies of 64 MiB that fill P % of each 10 ms, in one process per two processors (at most 8)
    gpu:P%              half-precision matrix products that fill P % of each 10 ms on one device (needs torch); in a process of
                        their own, so that the device shares its time with the policy's, kernel by kernel
    camera:NxRESpFPS    N cameras: each frame is written, converted to floats and halved, FPS times a second (camera:2x1080p30)

Each process prints `ready`, then on SIGTERM what it achieved: a load that could not do what was asked is seen.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_perf.errors import UsageError, install_line
from robot_perf.measure.order import take_order

KINDS = ("cpu", "mem", "gpu", "camera")
RESOLUTIONS = {"480": (640, 480), "720": (1280, 720), "1080": (1920, 1080), "1440": (2560, 1440), "2160": (3840, 2160)}
_CAMERA = re.compile(r"^(\d{1,2})x(480|720|1080|1440|2160)p(\d{1,3})$")
_PERIOD_NS = 10_000_000
_COPY_BYTES = 64 * 2**20
_MATRIX = 2048
_PIECE_MS = 1.0  # of the device: long beside the wait for it, short beside 10 ms
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One disturbance as asked. `processes` run at once; `share` of each 10 ms (mem, gpu); a camera's frames."""

    text: str
    kind: str
    processes: int
    share: float = 1.0
    width: int = 0
    height: int = 0
    frames_per_s: int = 0
    device: int = 0


def parse_load(text: str, *, cpus: int | None = None, device: int = 0) -> LoadSpec:
    """The disturbance that `text` names. Raises UsageError with the allowed forms."""
    kind, _, amount = text.strip().partition(":")
    available = cpus or len(os.sched_getaffinity(0))
    if kind == "cpu" and re.fullmatch(r"\d{1,4}", amount) and 1 <= int(amount) <= 1024:
        return LoadSpec(text, kind, int(amount))
    if kind in ("mem", "gpu") and (match := re.fullmatch(r"(\d{1,3})%", amount)) and 1 <= int(match[1]) <= 100:
        processes = 1 if kind == "gpu" else max(1, min(8, available // 2))
        return LoadSpec(text, kind, processes, int(match[1]) / 100, device=device)
    if kind == "camera" and (match := _CAMERA.match(amount)) and int(match[1]) > 0 and 1 <= int(match[3]) <= 240:
        width, height = RESOLUTIONS[match[2]]
        return LoadSpec(text, kind, int(match[1]), width=width, height=height, frames_per_s=int(match[3]))
    raise UsageError(
        f"--load {text!r} is no disturbance",
        why="Allowed: cpu:N, mem:P%, gpu:P%, camera:NxRESpFPS with RES "
        + ", ".join(RESOLUTIONS)
        + "; N and FPS whole numbers, P 1 to 100.",
        do="Write for example --load cpu:2 or --load camera:2x1080p30.",
    )


def main(order_path: str) -> int:
    """Runs one load process until SIGTERM."""

    from robot_perf.specs import from_json

    order = take_order(order_path)
    spec = from_json(LoadSpec, order["load"])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != order["conductor_pid"]:
        return 1
    stop = [False]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.__setitem__(0, True))
    run = {"cpu": _hash, "mem": _copy, "gpu": _multiply, "camera": _frames}[spec.kind]
    try:
        achieved = run(spec, stop, _ready)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from loading the machine is its one answer
        # our own refusals are RuntimeErrors in whole words
        reason = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({"event": "failed", "reason": reason[:500]}) + "\n")
        return 1
    sys.stdout.write(json.dumps({"event": "ended", **achieved}) + "\n")
    sys.stdout.flush()  # a runtime that hangs as it is freed does not take it along
    return 0


def _ready(**facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": "ready", **facts}) + "\n")
    sys.stdout.flush()


Ready = Callable[..., None]


def _hash(_spec: LoadSpec, stop: list[bool], ready: Ready) -> dict[str, Any]:
    block = bytes(1 << 16)
    ready()
    began, cpu = time.monotonic(), time.process_time()
    rounds = 0
    while not stop[0]:
        hashlib.sha256(block).digest()
        rounds += 1
    elapsed = time.monotonic() - began
    return {
        "seconds": elapsed,
        "cpu_share": (time.process_time() - cpu) / elapsed,
        "hashed_bytes_s": rounds * len(block) / elapsed,
    }


def _in_shares(share: float, piece: Callable[[], int | None], stop: list[bool]) -> tuple[float, float, int]:
    """Runs `piece` for `share` of the time, in turns of 10 ms; returns busy seconds, elapsed seconds and how many pieces ran.

    A piece says how many ns of the load it was, where that is not all of its time (a device's, without the way to it). The
    share is of the time that passed: what a piece took too long is left out of the next turn (pieces of a millisecond would
    else make 65 % of 60 %), and what a late wake-up left out is caught up, at most a turn of it.
    """
    now = time.monotonic_ns
    began = accounted = release = now()
    owed = share * _PERIOD_NS
    busy = pieces = 0
    while not stop[0]:
        while owed > 0 and not stop[0]:
            start = now()
            own = piece()
            took = now() - start if own is None else own
            busy, owed, pieces = busy + took, owed - took, pieces + 1
        release += _PERIOD_NS
        rest = release - now()
        if rest > 0:
            time.sleep(rest / 1e9)
        else:
            release = now()  # a load keeps no grid: what it could not do is in what it reports
        owed = min(owed + share * (now() - accounted), _PERIOD_NS)
        accounted = now()
    return busy / 1e9, (now() - began) / 1e9, pieces


def _copy(spec: LoadSpec, stop: list[bool], ready: Ready) -> dict[str, Any]:
    source, target = np.ones(_COPY_BYTES // 8), np.zeros(_COPY_BYTES // 8)
    chunk = len(source) // 64  # 1 MiB: fine enough to end a share in time
    at = 0

    def piece() -> None:
        nonlocal at
        np.copyto(target[at : at + chunk], source[at : at + chunk])
        at = (at + chunk) % (chunk * 64)

    for _ in range(64):
        piece()
    ready()
    busy, elapsed, pieces = _in_shares(spec.share, piece, stop)
    return {"seconds": elapsed, "busy_share": busy / elapsed, "bytes_s": 2 * 8 * chunk * pieces / elapsed}


def _multiply(spec: LoadSpec, stop: list[bool], ready: Ready) -> dict[str, Any]:
    """`busy_share` is the device's own: from the first to the last kernel of each piece, by events."""
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(f"it needs {error.name}, which is not installed: {install_line('torch')}") from None
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    device = torch.device("cuda", spec.device)
    torch.cuda.set_device(device)  # an event is recorded on the current device's stream
    a = torch.randn(_MATRIX, _MATRIX, device=device, dtype=torch.float16)
    product = torch.empty_like(a)
    # blocking: polling for the device would be a load on a processor that nobody asked for
    first, last = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
    products = 4

    def piece() -> int:
        first.record()
        for _ in range(products):
            torch.mm(a, a, out=product)
        last.record()
        last.synchronize()
        # Not what the host waited: woken by an interrupt, that was a fifth more, and 60 % asked for were 48 % of an H200.
        return int(first.elapsed_time(last) * 1e6)

    for _ in range(20):
        piece()
    products = max(1, round(5 * products * _PIECE_MS * 1e6 / sum(piece() for _ in range(5))))
    ready(device=torch.cuda.get_device_name(device), products=products)
    cpu = time.process_time()
    busy, elapsed, pieces = _in_shares(spec.share, piece, stop)
    return {
        "seconds": elapsed,
        "busy_share": busy / elapsed,
        "cpu_share": (time.process_time() - cpu) / elapsed,
        "flop_s": 2 * _MATRIX**3 * products * pieces / elapsed,
    }


def _frames(spec: LoadSpec, stop: list[bool], ready: Ready) -> dict[str, Any]:
    """Each frame: 3 bytes a pixel written as a camera's DMA would, then floats of every second row and column."""
    rng = np.random.default_rng(0)
    sensor = rng.integers(0, 255, (4, spec.height, spec.width, 3), dtype=np.uint8)
    frame = np.empty_like(sensor[0])
    small = np.empty((spec.height // 2, spec.width // 2, 3), np.float32)
    period = 1_000_000_000 // spec.frames_per_s
    ready()
    began = release = time.monotonic_ns()
    frames = late = 0
    while not stop[0]:
        np.copyto(frame, sensor[frames % 4])
        np.multiply(frame[::2, ::2], np.float32(1 / 255), out=small)
        frames += 1
        release += period
        rest = release - time.monotonic_ns()
        if rest > 0:
            time.sleep(rest / 1e9)
        else:
            late += 1
            release = time.monotonic_ns()
    elapsed = (time.monotonic_ns() - began) / 1e9
    return {
        "seconds": elapsed,
        "frames_s": frames / elapsed,
        "late_frames": late,
        "bytes_s": frames * frame.nbytes / elapsed,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
