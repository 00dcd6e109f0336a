"""Which of NVML's GPUs `cuda:N` is: two GPUs in opposite orders, a played CUDA driver, and a driver that can't be asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from played_libcuda import FAST, MIG, SLOW, build

from robot_perf.measure.watch import which_gpu
from robot_perf.measure.watch.gpu_use import open_reader
from robot_perf.measure.watch.nvml import open_meter
from robot_perf.measure.watch.which_gpu import uuid_of

SLOW_HZ, FAST_HZ = 1_000_000_000, 2_000_000_000
PCI = (f"GPU-{SLOW}", f"GPU-{FAST}")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two GPUs, the slow one first in NVML's order; no Jetson."""
    return played(monkeypatch, FakeNvml(*PCI))


def played(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> FakeNvml:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr("robot_perf.measure.watch.rails.Rails.find", lambda: None)
    return nvml


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(which_gpu.subprocess, "run", refuse)


def hertz(device: str, environment: dict[str, str]) -> int | None:
    meter, reason = open_meter(device, environment)
    assert meter is not None, reason
    assert reason == ""
    found = meter.sample().sm_hz
    assert found is not None and meter.energy_j() == found / 1e9
    meter.close()
    return found


@pytest.mark.parametrize(
    ("device", "chosen", "expected"),
    [
        ("cuda:0", {}, FAST_HZ),  # the fastest first
        ("cuda", {}, FAST_HZ),
        ("cuda:1", {}, SLOW_HZ),
        ("cuda:0", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, SLOW_HZ),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1"}, SLOW_HZ),  # CUDA's 1, not NVML's
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "1,0"}, FAST_HZ),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, FAST_HZ),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": f"GPU-{SLOW}"}, SLOW_HZ),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": f"GPU-{FAST[:8]},GPU-{SLOW[:6]}"}, SLOW_HZ),
    ],
)
def test_the_gpu_that_is_read_is_the_one_that_cuda_counts(
    nvml: FakeNvml, driver: dict[str, str], tmp_path: Path, device: str, chosen: dict[str, str], expected: int
) -> None:
    """Clock and energy of another GPU would be wrong numbers that look right."""
    assert hertz(device, driver | chosen) == expected
    reader, reason = open_reader(device, root=tmp_path, environment=driver | chosen)
    assert reader is not None, reason
    sample = reader.sample()
    assert (sample["sm_hz"], sample["utilisation_pct"]) == (expected, expected / 1e8)
    reader.close()
    assert nvml.open == 0


def test_the_environment_of_this_process_is_the_default(
    nvml: FakeNvml, driver: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", driver["LD_LIBRARY_PATH"])
    for visible, uuid in ((FAST, PCI[1]), (SLOW, PCI[0])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{visible}")
        meter, _ = open_meter("cuda:0")
        assert meter is not None and meter.identity()["uuid"] == uuid


def test_a_driver_before_11_4_has_the_first_of_the_two_functions(nvml: FakeNvml, tmp_path: Path) -> None:
    assert hertz("cuda:0", build(tmp_path, "BEFORE_11_4")) == FAST_HZ


@pytest.mark.parametrize(
    ("device", "chosen"),
    [
        ("cuda:2", {}),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "0"}),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": ""}),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "-1"}),
        # the driver was asked and said no: that NVML has an index of this number changes nothing
        ("cuda:1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_a_gpu_that_cuda_does_not_show_has_no_meter(
    nvml: FakeNvml, driver: dict[str, str], device: str, chosen: dict[str, str]
) -> None:
    meter, reason = open_meter(device, driver | chosen)
    assert meter is None and f"CUDA shows no {device}" in reason
    assert nvml.open == 0, "NVML's session stays open"


@pytest.mark.parametrize("chosen", [{}, {"CUDA_VISIBLE_DEVICES": "0"}])
def test_a_single_gpu_needs_no_driver(
    monkeypatch: pytest.MonkeyPatch, no_child: None, chosen: dict[str, str], tmp_path: Path
) -> None:
    played(monkeypatch, FakeNvml(PCI[0]))
    assert hertz("cuda:0", chosen) == SLOW_HZ
    assert open_reader("cuda:0", root=tmp_path, environment=chosen)[0] is not None


@pytest.mark.parametrize("visible", ["", "-1", "1", "GPU-99"])
def test_a_single_gpu_that_is_hidden_is_not_read(
    monkeypatch: pytest.MonkeyPatch, driver: dict[str, str], visible: str
) -> None:
    played(monkeypatch, FakeNvml(PCI[1]))
    chosen = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    meter, reason = open_meter("cuda:0", driver | chosen | ({"PLAYED_CUINIT": "100"} if visible == "1" else {}))
    assert meter is None and "CUDA shows no cuda:0" in reason


BY_PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("device", "chosen", "expected"),
    [
        ("cuda:0", BY_PCI, SLOW_HZ),
        ("cuda:1", BY_PCI, FAST_HZ),
        ("cuda:0", BY_PCI | {"CUDA_VISIBLE_DEVICES": "1"}, FAST_HZ),
        ("cuda:1", BY_PCI | {"CUDA_VISIBLE_DEVICES": "1, 0"}, SLOW_HZ),
        ("cuda:0", {}, None),
        ("cuda:0", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, None),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1"}, None),
        ("cuda:0", BY_PCI | {"CUDA_VISIBLE_DEVICES": f"GPU-{SLOW}"}, None),
        ("cuda:0", BY_PCI | {"CUDA_VISIBLE_DEVICES": ""}, None),
        ("cuda:0", BY_PCI | {"CUDA_VISIBLE_DEVICES": "0,0"}, None),  # CUDA shows none then
        ("cuda:0", BY_PCI | {"CUDA_VISIBLE_DEVICES": "0,9"}, None),
        ("cuda:1", BY_PCI | {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ("cuda:2", BY_PCI, None),
    ],
)
def test_without_an_answer_of_the_driver_an_index_is_taken_only_where_it_is_certain(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, device: str, chosen: dict[str, str], expected: int | None
) -> None:
    monkeypatch.setattr(which_gpu, "ask_driver", lambda number, environment: {"error": "libcuda.so.1: no such file"})
    if expected is not None:
        assert hertz(device, chosen) == expected
        return
    meter, reason = open_meter(device, chosen)
    assert meter is None and reason.startswith("NVML: ") and reason.count(". ") == 0
    assert f"which of its 2 GPUs is {device}" in reason and "libcuda.so.1: no such file" in reason
    assert nvml.open == 0


@pytest.mark.parametrize("device", ["cuda:x", "cuda:-1", "gpu0"])
def test_what_is_no_device_has_no_meter(nvml: FakeNvml, no_child: None, device: str) -> None:
    meter, reason = open_meter(device, {})
    assert meter is None and (device in reason or "on the CPU" in reason)


def test_an_index_is_not_certain_among_gpus_that_this_process_may_not_open(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML counts them, CUDA doesn't: with the first one closed to a container, CUDA's 0 is NVML's 1."""
    monkeypatch.setattr(which_gpu, "ask_driver", lambda number, environment: {"error": "no driver"})
    nvml.refused = (0,)
    meter, reason = open_meter("cuda:1", BY_PCI)
    assert meter is None and "Insufficient Permissions" in reason


@pytest.mark.parametrize(
    ("played_with", "said"),
    [({"PLAYED_CUINIT": "999"}, "cuInit failed with CUDA error 999"), ({"PLAYED_HANG": "1"}, "no answer in 1 s")],
)
def test_what_kept_the_driver_from_answering_is_said(
    nvml: FakeNvml,
    driver: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    played_with: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr(which_gpu, "ANSWER_S", 1)
    meter, reason = open_meter("cuda:0", driver | played_with)
    assert meter is None and said in reason


def test_a_child_that_dies_is_no_answer(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(which_gpu.sys, "executable", "/bin/false")
    meter, reason = open_meter("cuda:0", {})
    assert meter is None and "exit code 1" in reason
    monkeypatch.setattr(which_gpu.sys, "executable", "/nowhere/python")
    meter, reason = open_meter("cuda:0", {})
    assert meter is None and "/nowhere/python" in reason


def test_a_uuid_that_nvml_does_not_know_is_no_other_gpu(
    monkeypatch: pytest.MonkeyPatch, driver: dict[str, str]
) -> None:
    nvml = played(monkeypatch, FakeNvml("GPU-1", "GPU-2"))
    meter, reason = open_meter("cuda:0", driver | BY_PCI)
    assert meter is None and f"GPU-{SLOW}" in reason and "Not Found" in reason
    assert nvml.open == 0


def test_what_nvml_reads_of_a_gpu_in_mig_mode_is_not_an_instances(
    monkeypatch: pytest.MonkeyPatch, driver: dict[str, str], tmp_path: Path
) -> None:
    played(monkeypatch, FakeNvml(*PCI, mig=(f"MIG-{MIG}",), in_mig_mode=(0,)))
    asked = driver | {"PLAYED_MIG": "1"}
    for meter, reason in (open_meter("cuda:0", asked), open_reader("cuda:0", root=tmp_path, environment=asked)):
        assert meter is None and "MIG" in reason and "whole GPU" in reason
    # a driver before 11.4 names the GPU, not its instance; a single GPU is not asked about at all
    meter, reason = open_meter("cuda:1", driver)
    assert meter is None and "MIG" in reason
    played(monkeypatch, FakeNvml(PCI[0], in_mig_mode=(0,)))
    meter, reason = open_meter("cuda:0", {})
    assert meter is None and "MIG" in reason


def test_an_instance_changes_what_cuda_counts(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(which_gpu, "ask_driver", lambda number, environment: {"error": "no driver"})
    nvml.in_mig_mode = (0,)
    meter, reason = open_meter("cuda:1", BY_PCI)
    assert meter is None and "which of its 2 GPUs is cuda:1" in reason


class Driver:
    """libcuda through ctypes, of one GPU."""

    def __init__(self, *, init: int = 0, get: int = 0, uuid: int = 0) -> None:
        self.codes = {"cuInit": init, "cuDeviceGet": get, "cuDeviceGetUuid_v2": uuid}
        self.calls: list[str] = []

    def cuInit(self, flags: Any) -> int:
        self.calls.append("cuInit")
        assert flags == 0
        return self.codes["cuInit"]

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        self.calls.append("cuDeviceGet")
        device._obj.value = 40 + ordinal
        return self.codes["cuDeviceGet"]

    def cuDeviceGetUuid_v2(self, uuid: Any, device: Any) -> int:
        self.calls.append("cuDeviceGetUuid_v2")
        assert device.value == 42
        uuid[:] = bytes.fromhex(SLOW.replace("-", ""))
        return self.codes["cuDeviceGetUuid_v2"]


def test_a_uuid_is_its_bytes_in_their_order() -> None:
    """16 octets in the order of the text, as nvidia-smi prints it; no context is made."""
    driver = Driver()
    assert uuid_of(2, driver) == SLOW
    assert driver.calls == ["cuInit", "cuDeviceGet", "cuDeviceGetUuid_v2"]


@pytest.mark.parametrize(
    ("codes", "error", "said"),
    [
        ({"init": 100}, which_gpu.UnknownGpuError, "CUDA shows no cuda:2"),
        ({"get": 101}, which_gpu.UnknownGpuError, "CUDA shows no cuda:2"),
        ({"init": 803}, OSError, "cuInit failed with CUDA error 803"),
        ({"uuid": 1}, OSError, "cuDeviceGetUuid_v2 failed with CUDA error 1"),
    ],
)
def test_a_driver_that_says_no_is_told_from_one_that_fails(
    codes: dict[str, int], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        uuid_of(2, Driver(**codes))
