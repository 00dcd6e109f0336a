"""NVML and Jetson rails from fakes: what is not readable is None with a reason, never zero."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from robot_perf.measure.watch import watch_device
from robot_perf.measure.watch.nvml import Nvml, open_meter
from robot_perf.measure.watch.rails import Rails
from robot_perf.measure.watch.sample import DeviceSample
from robot_perf.measure.watch.soak import HostReader, SoakSampler
from robot_perf.measure.watch.watch_device import DeviceWatch, idle_power
from robot_perf.run.stepmap import Phase, Word


class Refused(Exception):
    pass


class FakeNvml:
    """pynvml with a few functions; `absent` ones raise "not supported"."""

    NVMLError = NVMLError_NotSupported = NVMLError_FunctionNotFound = Refused

    def __init__(self, absent: tuple[str, ...] = ()) -> None:
        self.absent = absent
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return [0, 0]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        values = {
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPowerUsage": lambda _: 119_500,
            "nvmlDeviceGetTemperature": lambda _, kind: 34,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x1 | 0x20,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: 5_000,
            "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
            "nvmlDeviceGetPowerManagementLimit": lambda _: 700_000,
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: 1980,
            "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        }
        if name not in values:
            raise AttributeError(name)
        if name in self.absent:

            def refuse(*_: object) -> None:
                raise Refused("not supported")

            return refuse
        return values[name]


def test_a_sample_has_units_and_reasons():
    sample = Nvml("cuda:0", FakeNvml()).sample()
    assert (sample.sm_hz, sample.memory_hz) == (1_980_000_000, 3_201_000_000)
    assert (sample.power_w, sample.temperature_c) == (119.5, 34.0)
    assert sample.throttle == ("idle", "thermal (software)")


def test_what_a_gpu_does_not_offer_is_none():
    meter = Nvml(
        "cuda:0", FakeNvml(("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage"))
    )
    assert meter.energy_j() is None
    assert meter.sample().sm_hz is None
    assert meter.sample().power_w is None
    assert meter.identity()["persistence"] is None
    reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert Nvml("cuda:0", FakeNvml()).sample().throttle_read
    assert not Nvml("cuda:0", FakeNvml((reasons,))).sample().throttle_read


def test_a_soak_keeps_no_list_of_reasons_where_none_can_be_read():
    """An empty list would say that the device never throttled."""
    for absent, kept in (((), ["thermal (software)"]), (("nvmlDeviceGetCurrentClocksThrottleReasons",), None)):
        sampler = SoakSampler(HostReader((), ()), Nvml("cuda:0", FakeNvml(absent)), "")
        sampler.look(SimpleNamespace())  # type: ignore[arg-type]
        assert sampler.samples[0]["throttle"] == kept
        assert sampler.samples[0]["device_hz"] == 1_980_000_000


def test_identity_names_the_machine():
    identity = Nvml("cuda:0", FakeNvml()).identity()
    assert identity["name"] == "NVIDIA H200"
    assert identity["power_limit_w"] == 700
    assert identity["compute_capability"] == "9.0"
    assert identity["driver"] == "580.1"


def test_a_cpu_run_has_no_meter_and_says_why():
    meter, reason = open_meter("cpu")
    assert meter is None or meter.source.startswith("INA")
    assert reason or meter is not None


class FakeMeter:
    source = "fake"

    def __init__(self, energies: list[float | None], powers: list[float | None], at: list[int]) -> None:
        self.energies, self.powers, self.at = iter(energies), iter(powers), iter(at)

    def sample(self) -> DeviceSample:
        return DeviceSample(at_ns=next(self.at), power_w=next(self.powers), throttle=("idle", "power cap"))

    def energy_j(self) -> float | None:
        return next(self.energies)

    def identity(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        pass


class FakeMap(dict):
    """A map whose window has 10 releases."""

    request = {"loop": {"steps": 10}}  # noqa: RUF012

    def reached(self) -> int:
        return self.get("reached", 0)


def watched(meter: FakeMeter, monkeypatch: pytest.MonkeyPatch, times_s: list[float]):
    """A watch that looks at the given times (s, monotonic)."""
    clock = iter(times_s)
    now = [0.0]
    fake = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=lambda: int(now[0] * 1e9), sleep=lambda s: None)
    monkeypatch.setattr(watch_device, "time", fake)
    watch = DeviceWatch(meter, "")
    for t in clock:
        now[0] = t
        watch.look(FakeMap({Word.PHASE: Phase.RUNNING}))
    return watch


def test_energy_counter_gives_the_mean_power(monkeypatch):
    meter = FakeMeter([100.0, 250.0, 400.0], [1.0, 1.0, 1.0], [10**9, 2 * 10**9, 3 * 10**9])
    watch = watched(meter, monkeypatch, [1.0, 1.5, 2.5])  # the look at 1.5 s is too soon and reads nothing
    use = watch.use()
    assert use.power_w == pytest.approx((400 - 100) / 1.5)
    assert use.throttle == ("power cap",)


def test_what_follows_the_last_release_is_no_part_of_the_window(monkeypatch):
    meter = FakeMeter([100.0, 250.0, 9999.0], [1.0, 1.0, 1.0], [10**9, 2 * 10**9, 3 * 10**9])
    watch = watched(meter, monkeypatch, [1.0])
    for second in (2.0, 3.5):
        watch_device.time.monotonic = lambda second=second: second
        watch_device.time.monotonic_ns = lambda second=second: int(second * 1e9)
        watch.look(FakeMap({Word.PHASE: Phase.RUNNING, "reached": 10}))
    use = watch.use()
    assert (use.power_w, len(use.samples)) == (pytest.approx(150.0), 2)


def test_without_a_counter_samples_are_averaged(monkeypatch):
    meter = FakeMeter([None] * 3, [10.0, 20.0, 60.0], [10**9, 2 * 10**9, 3 * 10**9])
    assert watched(meter, monkeypatch, [1.0, 2.1]).use().power_w == pytest.approx(30.0)


def test_a_short_window_has_no_power_but_the_reason(monkeypatch):
    meter = FakeMeter([1.0, 2.0], [10.0, 20.0], [10**9, 10**9 + 1000])
    use = watched(meter, monkeypatch, [1.0]).use()
    assert use.power_w is None
    assert "shorter than" in use.power_reason


def test_outside_the_window_nothing_is_read():
    meter = FakeMeter([], [], [])
    watch = DeviceWatch(meter, "")
    watch.look(FakeMap({Word.PHASE: Phase.WARMUP}))
    assert watch.use().samples == ()


def test_no_meter_no_power():
    use = DeviceWatch(None, "no NVML here").use()
    assert (use.power_w, use.power_reason) == (None, "no NVML here")
    assert idle_power(None) is None


def rails_root(root: Path) -> Path:
    monitor = root / "sys/class/hwmon/hwmon3"
    monitor.mkdir(parents=True)
    (monitor / "name").write_text("ina3221\n")
    for number, label, millivolts, milliamperes in ((1, "VDD_GPU_SOC", 19_000, 500), (2, "VDD_IN", 19_000, 1_000)):
        (monitor / f"in{number}_label").write_text(label + "\n")
        (monitor / f"in{number}_input").write_text(f"{millivolts}\n")
        (monitor / f"curr{number}_input").write_text(f"{milliamperes}\n")
    (root / "sys/class/devfreq/17000000.gpu").mkdir(parents=True)
    (root / "sys/class/devfreq/17000000.gpu/cur_freq").write_text("1300500000\n")
    zone = root / "sys/class/thermal/thermal_zone1"
    zone.mkdir(parents=True)
    (zone / "type").write_text("gpu-thermal\n")
    (zone / "temp").write_text("47500\n")
    return root


def test_rails_of_a_jetson(tmp_path):
    rails = Rails.find(rails_root(tmp_path))
    assert rails is not None
    sample = rails.sample()
    assert sample.rails_w == {"VDD_GPU_SOC": 9.5, "VDD_IN": 19.0}
    assert sample.power_w == 19.0, "the module's own rail, not the sum"
    assert sample.sm_hz == 1_300_500_000
    assert sample.temperature_c == 47.5
    assert rails.energy_j() is None


def test_rails_without_a_total_are_added_up(tmp_path):
    root = rails_root(tmp_path)
    (root / "sys/class/hwmon/hwmon3/in2_label").write_text("VDD_CPU_CV\n")
    rails = Rails.find(root)
    assert rails is not None
    assert rails.sample().power_w == pytest.approx(28.5)


def test_a_rail_that_can_t_be_read_is_left_out(tmp_path):
    root = rails_root(tmp_path)
    (root / "sys/class/hwmon/hwmon3/curr1_input").write_text("\n")
    rails = Rails.find(root)
    assert rails is not None
    assert rails.sample().rails_w == {"VDD_IN": 19.0}


def test_another_machine_has_no_rails(tmp_path):
    assert Rails.find(tmp_path) is None
