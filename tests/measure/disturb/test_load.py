"""Stated disturbances: what is asked is parsed, what was achieved is told, what can't run or dies is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from robot_perf.errors import RobotPerfError, UsageError
from robot_perf.measure.disturb import load
from robot_perf.measure.disturb.achieved import achieved_words
from robot_perf.measure.disturb.disturbance import Disturbance
from robot_perf.measure.disturb.load import parse_load
from robot_perf.measure.watch.soak import HostReader


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu:3", ("cpu", 3, 1.0)),
        ("mem:40%", ("mem", 2, 0.4)),
        ("gpu:60%", ("gpu", 1, 0.6)),
        ("camera:2x1080p30", ("camera", 2, 1.0)),
    ],
)
def test_the_documented_forms(text, expected):
    spec = parse_load(text, cpus=4)
    assert (spec.kind, spec.processes, spec.share) == expected


def test_a_camera_has_its_frame():
    spec = parse_load("camera:2x720p25")
    assert (spec.width, spec.height, spec.frames_per_s) == (1280, 720, 25)


@pytest.mark.parametrize(
    "text", ["", "cpu", "cpu:0", "cpu:-1", "cpu:50%", "mem:40", "mem:0%", "mem:101%", "gpu:x%", "camera:1080p30", "camera:0x1080p30",
             "camera:1x999p30", "camera:1x1080p0", "disk:3"]
)  # fmt: skip
def test_other_words_are_refused(text):
    with pytest.raises(UsageError):
        parse_load(text)


def test_loads_run_and_tell_what_they_did():
    specs = [parse_load("cpu:1"), parse_load("camera:1x480p50"), parse_load("mem:10%", cpus=2)]
    disturbance = Disturbance(specs)
    with disturbance:
        time.sleep(1.0)
    achieved = {a["load"]: a for a in disturbance.achieved}
    assert not disturbance.ended_early
    assert achieved["cpu:1"]["cpu_share"] > 0.05
    assert achieved["camera:1x480p50"]["frames_s"] <= 51
    assert achieved["camera:1x480p50"]["frames_s"] > 5
    assert 0 < achieved["mem:10%"]["busy_share"] < 0.5
    assert disturbance.conditions()["asked"] == ["cpu:1", "camera:1x480p50", "mem:10%"]


def test_a_load_that_dies_is_told():
    disturbance = Disturbance([parse_load("cpu:1")])
    with disturbance:
        child = disturbance._processes[0].popen
        os.kill(child.pid, signal.SIGKILL)
        child.wait(5)
    assert disturbance.ended_early == ["the disturbance cpu:1 died of SIGKILL before the measurement was over"]
    assert not disturbance.achieved
    assert disturbance.words() == ["cpu:1: its process did not say what was achieved"]


def stand_in(tmp_path, monkeypatch, script: str) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr("robot_perf.measure.disturb.disturbance.sys.executable", str(path))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 60", "Its process was not ready after 0 s"),
        ("echo libcuda.so.1: cannot open >&2; exit 3", "Its process ended with exit code 3"),
        ("kill -SEGV $$", "Its process died of SIGSEGV"),
    ],
)
def test_a_load_that_never_gets_ready_says_which_it_was(tmp_path, monkeypatch, script, why):
    """A process that was slow to import torch was said to have ended."""
    stand_in(tmp_path, monkeypatch, script)
    monkeypatch.setattr("robot_perf.measure.disturb.disturbance._READY_S", 0.4)
    with pytest.raises(RobotPerfError) as caught, Disturbance([parse_load("cpu:1")]):
        pass
    assert why in caught.value.why
    assert ("libcuda" in caught.value.detail) == ("libcuda" in script)


class PlayedTime:
    """A clock that only pieces and waits move; waits end 0.3 ms late. A busy machine's own stalls would be the load's pieces."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    process_time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9) + 300_000


def share_of(monkeypatch, share: float, piece_s: float) -> float:
    stop, played = [False], PlayedTime()
    monkeypatch.setattr(load, "time", played)

    def piece() -> None:
        played.now_ns += round(piece_s * 1e9)
        stop[0] = played.now_ns > 800_000_000

    busy, elapsed, pieces = load._in_shares(share, piece, stop)
    assert pieces
    return busy / elapsed


@pytest.mark.parametrize(("share", "piece_s"), [(0.4, 0.003), (0.6, 0.001), (0.3, 0.02), (1.0, 0.003)])
def test_pieces_that_don_t_divide_the_share_keep_it_on_average(monkeypatch, share, piece_s):
    """Two pieces of 3 ms for 40 % of each 10 ms made 60 %."""
    assert share_of(monkeypatch, share, piece_s) == pytest.approx(share, abs=0.03)


class FakeTorch:
    """torch with a device whose products take 0.05 ms each; what was asked of it is in `calls`."""

    float16 = "float16"

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.clock_ms = 0.0
        self.cuda = self

    def is_available(self) -> bool:
        return True

    def device(self, kind: str, index: int) -> str:
        return f"{kind}:{index}"

    def set_device(self, device: str) -> None:
        self.calls.append(("set_device", device))

    def get_device_name(self, _device: str) -> str:
        return "NVIDIA Made-up"

    def randn(self, *_shape: int, **_how: object) -> str:
        return "a"

    empty_like = randn

    def mm(self, _a: str, _b: str, *, out: str) -> None:
        self.clock_ms += 0.05
        time.sleep(0.00005)

    def Event(self, **how: bool) -> FakeEvent:
        self.calls.append(("Event", how))
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, torch: FakeTorch) -> None:
        self.torch, self.at_ms = torch, -1.0

    def record(self) -> None:
        self.at_ms = self.torch.clock_ms

    def synchronize(self) -> None: ...

    def elapsed_time(self, later: FakeEvent) -> float:
        return later.at_ms - self.at_ms


def test_a_gpu_load_is_of_its_device_and_is_measured_there(monkeypatch):
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    stop, told = [False], {}

    def ready(**facts: object) -> None:
        told.update(facts)
        threading.Timer(0.4, lambda: stop.__setitem__(0, True)).start()

    found = load._multiply(parse_load("gpu:60%", device=1), stop, ready)
    assert torch.calls[0] == ("set_device", "cuda:1"), "an event is recorded on the current device's stream"
    assert torch.calls[1] == ("Event", {"enable_timing": True, "blocking": True})
    assert told == {"device": "NVIDIA Made-up", "products": 20}, "pieces of 1 ms"
    # the made-up device is busy for a part of the time that its host waits
    assert 0 < found["busy_share"] < 0.65
    assert found["flop_s"] == pytest.approx(2 * 2048**3 * found["busy_share"] / 0.05e-3)
    assert 0 <= found["cpu_share"] <= 1.5


class PlayedDevice(FakeTorch):
    """Its products take their time on a played clock, and who waits for it is woken 0.25 ms late."""

    def __init__(self, played: PlayedTime) -> None:
        super().__init__()
        self.played = played

    def mm(self, _a: str, _b: str, *, out: str) -> None:
        self.clock_ms += 0.05
        self.played.now_ns += 50_000

    def Event(self, **how: bool) -> FakeEvent:
        event = super().Event(**how)
        event.synchronize = lambda: setattr(self.played, "now_ns", self.played.now_ns + 250_000)  # type: ignore[method-assign]
        return event


@pytest.mark.parametrize(("asked", "most"), [("gpu:60%", 0.6), ("gpu:30%", 0.3), ("gpu:100%", 0.8)])
def test_the_share_of_a_gpu_load_is_the_device_s_own(monkeypatch, asked, most):
    """60 % of the host's time, wake-ups included, were 48 % of the device's."""
    played = PlayedTime()
    monkeypatch.setattr(load, "time", played)
    monkeypatch.setitem(sys.modules, "torch", PlayedDevice(played))
    stop = [False]
    sleep = played.sleep
    monkeypatch.setattr(played, "sleep", lambda s: (sleep(s), stop.__setitem__(0, played.now_ns > 10**9)))
    whole = PlayedDevice.mm

    def mm(self, a, b, *, out):
        whole(self, a, b, out=out)
        stop[0] = played.now_ns > 10**9  # the whole share never sleeps

    monkeypatch.setattr(PlayedDevice, "mm", mm)
    found = load._multiply(parse_load(asked), stop, lambda **_: None)
    assert found["busy_share"] == pytest.approx(most, abs=0.02)


def test_without_torch_a_gpu_load_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match=r"torch.*pip install 'robot_perf\[torch\]'"):
        load._multiply(parse_load("gpu:60%"), [False], lambda **_: None)


SHORT = "; it did not load the machine as stated"


@pytest.mark.parametrize(
    ("text", "achieved", "words"),
    [
        ("cpu:2", [{"cpu_share": 0.99}, {"cpu_share": 0.98}], "it had 1.97 of the 2 processors that it could fill"),
        ("cpu:2", [{"cpu_share": 0.99}, {"cpu_share": 0.4}], "it had 1.39 of the 2 processors that it could fill" + SHORT),
        ("cpu:8", [{"cpu_share": 0.48}] * 8, "it had 3.84 of the 4 processors that it could fill"),
        ("mem:40%", [{"busy_share": 0.4, "bytes_s": 2e9}, {"busy_share": 0.39, "bytes_s": 1e9}],
         "2 processes copied for 39% of the time or more, 3.0 GB/s read and written"),
        ("gpu:60%", [{"device": "NVIDIA H200", "busy_share": 0.2, "flop_s": 1e14, "cpu_share": 0.05}],
         "NVIDIA H200 computed for it for 20% of the time, 100.0 TFLOP/s; it took 5% of a processor" + SHORT),
        ("camera:2x1080p30", [{"frames_s": 30.0, "late_frames": 0}, {"frames_s": 21.0, "late_frames": 90}],
         "21.0 frames/s of each camera or more, 90 late" + SHORT),
        ("camera:2x1080p30", [{"frames_s": 30.0, "late_frames": 0}], "1 of its 2 processes did not say what was achieved"),
    ],
)  # fmt: skip
def test_what_a_load_achieved_is_said_and_a_shortfall_too(text, achieved, words):
    assert achieved_words(parse_load(text, cpus=4), achieved, cpus=4) == f"{text}: {words}"


def test_what_can_t_run_here_is_refused_and_nothing_is_left(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    disturbance = Disturbance([parse_load("cpu:1"), parse_load("gpu:50%")])
    with pytest.raises(RobotPerfError, match="gpu:50% can't be run here") as refused, disturbance:
        pass
    assert "RuntimeError" not in str(refused.value), "our own sentence, not an exception's"
    left = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "robot_perf.measure.disturb.load"], capture_output=True, check=False
    )
    assert not left.stdout


def test_host_reader_takes_the_hottest_zone_and_the_slowest_processor(tmp_path):
    for i, temperature in enumerate((41_000, 52_500)):
        zone = tmp_path / f"sys/class/thermal/thermal_zone{i}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(f"zone{i}\n")
        (zone / "temp").write_text(f"{temperature}\n")
        cpu = tmp_path / f"sys/devices/system/cpu/cpu{i}/cpufreq"
        cpu.mkdir(parents=True)
        (cpu / "scaling_cur_freq").write_text(f"{1_500_000 + i}\n")
    reader = HostReader.find(tmp_path)
    assert reader.read() == {"host_c": 52.5, "cpu_hz": 1_500_000_000.0}


def test_a_host_that_shows_nothing_reads_none(tmp_path):
    assert HostReader.find(tmp_path).read() == {"host_c": None, "cpu_hz": None}
