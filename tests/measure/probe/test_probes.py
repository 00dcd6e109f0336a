"""The probe: method on a fake clock, the CPU on the real one, the GPU where there is one."""

from __future__ import annotations

import pytest

from robot_perf.errors import UsageError
from robot_perf.measure.probe import cases
from robot_perf.measure.probe.cases import Case, measure, working_set
from robot_perf.measure.probe.gpu import _clocks
from robot_perf.measure.probe.probes import probe
from robot_perf.measure.watch.sample import DeviceSample
from robot_perf.specs.device import ProbeReport


def steady(ns_per_call: float, log: list[str], name: str) -> Case:
    def run(calls: int) -> float:
        log.append(name)
        return ns_per_call * calls

    return Case(name, "bytes/s", 1e6, 10**9, run)


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "WARM_S", 0.0)


def test_a_reading_is_work_over_the_median_time() -> None:
    readings = measure([steady(1000.0, [], "copy")], seconds=0.001)
    assert readings[0].median == pytest.approx(1e6 / 1000.0 * 1e9)
    assert readings[0].low == readings[0].high == readings[0].median
    assert readings[0].repeats == cases.ROUNDS


def test_cases_are_interleaved_and_the_order_turns() -> None:
    log: list[str] = []
    measure([steady(1000.0, log, "a"), steady(1000.0, log, "b")], seconds=0.001)
    rounds = log[4:]  # two warm calls of each case come first
    assert rounds[:8] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert rounds.count("a") == rounds.count("b") == cases.ROUNDS


def test_slow_rounds_widen_the_range_and_leave_the_median() -> None:
    times = iter([1000.0, 1000.0] + [1000.0, 5000.0, 1000.0, 1000.0] * 5)
    case = Case("read", "bytes/s", 1e6, 10**9, lambda calls: next(times) * calls)
    reading = measure([case], seconds=0.00002)[0]
    assert reading.median == pytest.approx(1e12)
    assert reading.low == pytest.approx(2e11)


def test_the_working_set_is_past_the_cache() -> None:
    assert working_set(60 * 2**20, 2**37, wanted=2**32) == 2**32
    assert working_set(2**30, 2**37, wanted=2**20) == 4 * 2**30
    assert working_set(None, 2**34, wanted=2**20) == 4 * 64 * 2**20


def test_too_little_memory_is_refused_instead_of_measuring_the_cache() -> None:
    with pytest.raises(UsageError, match="too little free memory"):
        working_set(64 * 2**20, 2**30, wanted=2**30)


@pytest.mark.parametrize(("device", "seconds"), [("tpu", 1.0), ("cpu", 0.0), ("cpu", 1e9)])
def test_what_can_not_be_probed_is_refused(device: str, seconds: float) -> None:
    with pytest.raises(UsageError):
        probe(device, seconds=seconds)


class Meter:
    """A meter of a GPU whose memory's clock can't be read."""

    def sample(self) -> DeviceSample:
        return DeviceSample(at_ns=0, sm_hz=1_980_000_000)


def test_the_clocks_beside_a_probe() -> None:
    assert _clocks(Meter(), "") == "SM 1980 MHz, memory unobserved"  # type: ignore[arg-type]
    assert _clocks(None, "NVML: no driver") == "clocks unobserved (NVML: no driver)"


def check(report: ProbeReport) -> None:
    kinds = [r.kind for r in report.readings]
    assert kinds[:4] == ["copy", "read", "write", "gemv"] and "matmul" in kinds
    for r in report.readings:
        assert 0 < r.low <= r.median <= r.high
        assert r.unit == "bytes/s" if r.kind != "matmul" else r.unit in ("FLOP/s", "OP/s")
        if r.unit == "bytes/s":
            assert r.working_set_bytes >= cases.CACHE_FACTOR * (report.l2_bytes or 0)


def test_the_processor_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.measure.probe import cpu as probe_cpu

    monkeypatch.setattr(probe_cpu, "_WANTED", 2**24)
    monkeypatch.setattr(probe_cpu, "last_level_cache", lambda: 2**22)
    monkeypatch.setattr(cases, "ROUNDS", 3)
    check(probe("cpu", seconds=0.05))


@pytest.mark.gpu
def test_the_gpu_is_probed_and_stays_under_its_spec() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    from robot_perf.tasks.machine.devices import spec_of

    report = probe("cuda:0", seconds=2)
    check(report)
    device = spec_of(report)
    if device is not None and device.bandwidth_bytes_s is not None:
        for r in report.readings:
            if r.unit == "bytes/s":
                assert 0.3 < r.median / device.bandwidth_bytes_s < 1.02, r
