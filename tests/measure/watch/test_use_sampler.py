"""The sampler beside a measurement: NVML and GPM from fakes, the host from made files, the process for real."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robot_perf.measure.watch import use_sampler
from robot_perf.measure.watch.gpu_use import GPM, GpuUse, JetsonLoad, open_reader
from robot_perf.measure.watch.host_use import HostUse
from robot_perf.measure.watch.use_sampler import UseSampler


class Refused(Exception):
    pass


class Metric:
    metricId, nvmlReturn, value = 0, 0, 0.0


class FakeNvml:
    """pynvml as far as utilisation needs it; `refuse` names functions that raise."""

    NVMLError = NVMLError_NotSupported = NVMLError_FunctionNotFound = Refused

    def __init__(self, refuse: tuple[str, ...] = (), gpm: bool = True) -> None:
        self.refuse, self.gpm, self.calls = refuse, gpm, []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            self.calls.append(name)
            if name in self.refuse:

                def refused(*_: Any) -> None:
                    raise Refused("Not Supported")

                return refused
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMigMode(self, _gpu: int) -> list[int]:
        return [0, 0]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetUtilizationRates(self, _gpu: int) -> Any:
        return SimpleNamespace(gpu=31, memory=4)

    def nvmlDeviceGetSamples(self, _gpu: int, kind: int, since_us: int) -> Any:
        assert kind == 1
        known = [(1_000_000, 30), (1_250_000, 32), (1_500_000, 34)]
        return 1, [SimpleNamespace(timeStamp=t, sampleValue=SimpleNamespace(uiVal=v)) for t, v in known if t >= since_us]  # fmt: skip

    def nvmlDeviceGetComputeRunningProcesses(self, _gpu: int) -> Any:
        return [SimpleNamespace(pid=12), SimpleNamespace(pid=7)]

    def nvmlGpmQueryDeviceSupport(self, _gpu: int) -> Any:
        return SimpleNamespace(isSupportedDevice=self.gpm)

    def nvmlGpmSampleAlloc(self) -> dict[str, int]:
        return {"freed": 0}

    def nvmlGpmSampleFree(self, sample: dict[str, int]) -> None:
        sample["freed"] += 1
        assert sample["freed"] == 1

    def nvmlGpmSampleGet(self, _gpu: int, sample: Any) -> Any:
        return sample

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[Metric() for _ in range(64)])

    def nvmlGpmMetricsGet(self, query: Any) -> None:
        assert query.version == 1 and query.sample1 is not query.sample2
        for metric in query.metrics[: query.numMetrics]:
            metric.value = float(metric.metricId)
        query.metrics[list(GPM).index("tensor_activity_pct")].nvmlReturn = 3
        query.metrics[list(GPM).index("fp32_activity_pct")].value = float("nan")
        query.metrics[list(GPM).index("fp16_activity_pct")].value = float("inf")


def test_a_sample_holds_every_number_and_what_asking_cost():
    use = GpuUse("cuda:0", FakeNvml())
    sample = use.sample()
    assert (sample["utilisation_pct"], sample["memory_controller_pct"]) == (31.0, 4.0)
    assert sample["processes"] == [7, 12]
    assert sample["driver_samples"] == [(1_000_000, 30), (1_250_000, 32), (1_500_000, 34)]
    assert sample["sm_activity_pct"] == 2.0 and sample["dram_bandwidth_pct"] == 10.0
    assert sample["gpm_ns"] > 0 and sample["took_ns"] > 0
    assert "NVML error 3" in use.reasons["tensor_activity_pct"]
    assert "tensor_activity_pct" not in sample
    assert "fp32_activity_pct" not in sample  # NaN: the time between the looks was too short
    assert "fp16_activity_pct" not in sample  # and something had run in no time
    assert use.sample()["driver_samples"] == []  # nothing newer: no sample is counted twice
    use.close()


def test_what_a_gpu_does_not_offer_is_a_reason_for_each_field():
    use = GpuUse("cuda:0", FakeNvml(("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples"), gpm=False))
    sample = use.sample()
    assert "utilisation_pct" not in sample and "Not Supported" in use.reasons["utilisation_pct"]
    assert "driver_samples" not in sample and "sm_activity_pct" not in sample
    assert all("Hopper" in use.reasons[field] for field in GPM)
    use.close()


def test_counters_that_fail_later_are_given_up_with_their_reason():
    nvml = FakeNvml()
    use = GpuUse("cuda:0", nvml)
    nvml.refuse = ("nvmlGpmMetricsGet",)
    assert "sm_activity_pct" not in use.sample()
    assert "Not Supported" in use.reasons["sm_activity_pct"]
    nvml.calls.clear()
    use.sample()
    assert "nvmlGpmSampleGet" not in nvml.calls
    use.close()


def test_without_nvml_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    reader, reason = open_reader("cuda:0", root=tmp_path)
    assert reader is None and "nvidia-ml-py" in reason
    assert open_reader("cpu", root=tmp_path) == (None, "the policy runs on the CPU")


def test_a_jetsons_load_is_in_thousandths(tmp_path: Path):
    assert JetsonLoad.find(tmp_path) is None
    folder = tmp_path / "sys/class/devfreq/17000000.gpu/device"
    folder.mkdir(parents=True)
    (folder / "load").write_text("315\n")
    jetson, _ = open_reader("cuda:0", root=tmp_path)
    assert jetson is not None and jetson.sample()["utilisation_pct"] == 31.5
    assert "Jetson" in jetson.reasons["sm_activity_pct"]
    (folder / "load").write_text("?")
    assert "utilisation_pct" not in jetson.sample() and jetson.reasons["utilisation_pct"]


# the host


def made_host(root: Path, cgroup: str = "0::/robot/loop\n") -> None:
    proc = root / "proc/42"
    proc.mkdir(parents=True)
    (root / "proc/stat").write_text("cpu  10 0 20 900 0 0 0 70 0 0\ncpu0 0\n")
    (proc / "cgroup").write_text(cgroup)
    (proc / "schedstat").write_text("1500 500 3\n")
    (proc / "stat").write_text("42 (a (b) c) S " + " ".join(str(i) for i in range(4, 39)) + " 3 0 0\n")
    for name, text in (("scaling_cur_freq", "1200000"), ("cpuinfo_max_freq", "3000000")):
        file = root / "sys/devices/system/cpu/cpu3/cpufreq" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def group(root: Path, path: str, text: str) -> None:
    (root / "sys/fs/cgroup" / path).mkdir(parents=True, exist_ok=True)
    (root / "sys/fs/cgroup" / path / "cpu.stat").write_text(text)


def test_a_quota_anywhere_above_the_process_counts(tmp_path: Path):
    made_host(tmp_path)
    group(tmp_path, "", "usage_usec 1\n")
    group(tmp_path, "robot", "usage_usec 1\nnr_throttled 2\nthrottled_usec 30\n")
    group(tmp_path, "robot/loop", "usage_usec 1\nnr_throttled 1\nthrottled_usec 5\n")
    sample = HostUse(tmp_path, 42).sample()
    assert (sample["throttled_periods"], sample["throttled_ns"]) == (3, 35_000)
    assert (sample["run_ns"], sample["wait_ns"]) == (1500, 500)
    assert (sample["steal_ticks"], sample["all_ticks"]) == (70, 1000)
    assert (sample["cpu_hz"], sample["cpu_max_hz"]) == (1_200_000_000, 3_000_000_000)


def test_the_first_version_of_control_groups_counts_in_nanoseconds(tmp_path: Path):
    made_host(tmp_path, "5:memory:/x\n2:cpu,cpuacct:/robot\n")
    group(tmp_path, "cpu,cpuacct/robot", "nr_periods 9\nnr_throttled 4\nthrottled_time 1234\n")
    sample = HostUse(tmp_path, 42).sample()
    assert (sample["throttled_periods"], sample["throttled_ns"]) == (4, 1234)


def test_what_the_host_does_not_show_is_a_reason(tmp_path: Path):
    host = HostUse(tmp_path)
    assert set(host.sample()) == {"at_ns", "pid"}
    assert {"ticks", "clock"} <= set(host.reasons)
    made_host(tmp_path)
    host.follow(42)
    host.sample()
    assert "quota" in host.reasons["throttled"]


def test_a_process_that_ended_takes_no_reason_with_it(tmp_path: Path):
    made_host(tmp_path)
    host = HostUse(tmp_path, 43)
    assert host.sample()["pid"] is None
    assert host.reasons == {}


# the process


def test_the_sampler_follows_a_process_and_ends_with_the_context():
    with UseSampler("cpu", 0.1) as sampler:
        sampler.follow(os.getpid())
        sampler.follow(os.getpid())
        until = time.monotonic() + 20
        while sum(s["host"]["pid"] == os.getpid() for s in sampler.read()) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        process = sampler._process
    assert process.poll() == 0
    mine = [s["host"] for s in sampler.samples if s["host"]["pid"] == os.getpid()]
    assert len(mine) >= 3
    assert [s["at_ns"] for s in mine] == sorted(s["at_ns"] for s in mine)
    assert all(s["gpu"] is None for s in sampler.samples)
    kept = sampler.conditions()
    assert kept["reason"] == "the policy runs on the CPU" and kept["every_s"] == 0.1


def test_the_sampler_does_not_outlive_a_starter_that_lost_interest():
    with UseSampler("cpu", 60.0) as sampler:
        process = sampler._process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0
        process.stdin = None  # communicate() must not flush what is closed
    assert len(sampler.samples) >= 1


def test_a_sampler_that_died_is_told_with_what_it_left():
    with UseSampler("cpu", 0.1) as sampler:
        until = time.monotonic() + 20
        while not sampler.read() and time.monotonic() < until:
            time.sleep(0.05)
        sampler._process.kill()
        sampler._process.wait(20)
        sampler.follow(os.getpid())  # no broken pipe reaches the measurement
    assert len(sampler.samples) >= 1
    assert "ended early" in sampler.conditions()["reason"]


def test_a_sampler_that_can_not_start_is_said(monkeypatch: pytest.MonkeyPatch):
    from robot_perf.errors import RobotPerfError

    monkeypatch.setattr(use_sampler.sys, "executable", "/bin/false")
    with pytest.raises(RobotPerfError, match="did not start"), UseSampler("cpu"):
        pass
