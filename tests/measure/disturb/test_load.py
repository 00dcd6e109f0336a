"""Stated disturbances: what is asked is parsed, what was achieved is told, what can't run or dies is said."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from robot_perf.errors import RobotPerfError, UsageError
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
    assert disturbance.ended_early == ["the disturbance cpu:1 ended before the measurement"]
    assert not disturbance.achieved


def test_what_can_t_run_here_is_refused_and_nothing_is_left(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    disturbance = Disturbance([parse_load("cpu:1"), parse_load("gpu:50%")])
    with pytest.raises(RobotPerfError, match="gpu:50% can't be run here"), disturbance:
        pass
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
