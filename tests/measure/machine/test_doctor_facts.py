"""The facts that doctor reads, from a folder that looks like a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_facts_of import write_tree

from robot_perf.analyze.doctor import judge_facts
from robot_perf.measure.machine import doctor_triton
from robot_perf.measure.machine.doctor_facts import doctor_facts, installed_packages
from robot_perf.tasks.machine.doctor import examine

CONF = """< POWER_MODEL ID=0 NAME=MAXN >
EMC MAX_FREQ 0
< POWER_MODEL ID=2 NAME=15W >
EMC MAX_FREQ 2133000000
"""
ORIN = {
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
    "etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "var/lib/nvpmodel/status": "pmode:0002\n",
    "etc/nvpmodel.conf": CONF,
    "proc/stat": "cpu  100 0 100 700 0 0 0 100 0 0\n",
    "proc/self/status": "Name:\tx\nCapEff:\t0000000000804000\n",
    "proc/self/timerslack_ns": "50000\n",
    "proc/sys/kernel/sched_rt_runtime_us": "950000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq": "729600",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2201600",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": "51000",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "passive",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "99000",
    "dev/cpu_dma_latency": "",
}


@pytest.fixture
def orin(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "root", ORIN)


def test_facts_of_an_orin(orin):
    facts = doctor_facts(orin, paths=[])
    assert facts["l4t"] == {"release": 36, "revision": "4.3"}
    assert facts["power_mode"] == {"id": 2, "name": "15W", "modes": {"0": "MAXN", "2": "15W"}}
    assert facts["capabilities"] == ["sys_nice", "ipc_lock"]
    assert facts["clocks_pinned"] is False
    assert facts["steal_share"] == 0.1
    assert facts["throttle_count"] == 3
    assert facts["hottest"] == {"zone": "cpu-thermal", "celsius": 51.0, "slows_at_celsius": 99.0}
    assert facts["cpu_dma_latency_writable"] is True
    assert facts["os_release"]["ID"] == "ubuntu"
    json.dumps(facts, allow_nan=False)


def test_an_orin_is_told_about_its_modes(orin):
    findings = {f.check: f for f in examine(orin, paths=[]).findings}
    assert findings["power_mode"].command == "sudo nvpmodel -m 0"
    assert findings["jetson_clocks"].command == "sudo jetson_clocks"
    assert findings["governor"].outcome == "mend"
    assert findings["steal"].outcome == "note"


def test_jetpack_5_is_refused_by_name(orin):
    (orin / "etc/nv_tegra_release").write_text("# R35 (release), REVISION: 6.0, GCID: 1")
    findings = {f.check: f for f in examine(orin, paths=[], python=(3, 8)).findings}
    assert findings["jetpack"].what == "this is JetPack 5 (L4T R35.6.0)"


def test_an_empty_root_says_why_for_each_fact(tmp_path):
    facts = doctor_facts(tmp_path, paths=[])
    for name in (
        "l4t",
        "capabilities",
        "cpu_dma_latency_writable",
        "timer_slack_ns",
        "steal_share",
        "hottest",
        "power_mode",
    ):
        assert name not in facts
        assert facts["unread"][name]


@pytest.mark.parametrize("text", ["", "garbage", "\0\0", "# R (release)", "cpu x y z"])
def test_damaged_files_are_reasons_not_tracebacks(tmp_path, text):
    root = write_tree(tmp_path, dict.fromkeys(ORIN, text))
    findings = examine(root, paths=[]).findings
    assert {f.outcome for f in findings} <= {"clean", "note", "mend", "can't answer"}


def distribution(folder: Path, name: str, version: str) -> Path:
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    write_tree(place, {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"})
    return folder


def test_packages_along_the_path_first_one_first(tmp_path):
    venv, system = tmp_path / "venv", tmp_path / "dist-packages"
    distribution(venv, "torch", "2.7.0")
    write_tree(venv, {"torch/version.py": "__version__ = '2.7.0'\ncuda: Optional[str] = None\n"})
    distribution(system, "torch", "2.5.0a0+872d972e41.nv24.8")
    write_tree(system, {"torch/version.py": "cuda: Optional[str] = '12.6'\n"})
    distribution(system, "onnxruntime-gpu", "1.20.0")
    distribution(system, "requests", "2.0")
    rows = installed_packages([str(venv), str(system)])
    torch = [(r["version"], r["cuda"]) for r in rows if r["name"] == "torch"]
    assert torch == [("2.7.0", None), ("2.5.0a0+872d972e41.nv24.8", "12.6")]
    assert {r["name"] for r in rows} == {"torch", "onnxruntime-gpu"}


def test_a_wheel_over_the_vendors_is_found(orin, tmp_path):
    venv, system = tmp_path / "venv", tmp_path / "dist-packages"
    distribution(venv, "torch", "2.7.0")
    distribution(system, "torch", "2.5.0a0+nv24.8")
    findings = {f.check: f for f in examine(orin, paths=[str(venv), str(system)]).findings}
    assert findings["torch_without_cuda"].outcome == "mend"
    assert f"in {venv} hides 2.5.0a0+nv24.8 in {system}" in findings["shadowed_package"].what.replace("/.", "")


def test_lost_links(tmp_path):
    for name in ("kernels", "nodes"):
        (tmp_path / name).mkdir()
    (tmp_path / "configs").write_text("../configs")  # what an exFAT stick makes of a link
    assert doctor_facts(tmp_path, package=tmp_path, paths=[])["lost_links"] == ["configs"]


def test_this_machine_can_be_examined():
    examination = examine()
    json.dumps(dict(examination.facts), allow_nan=False)
    assert not examination.facts["lost_links"]


def a_triton(tmp_path, release):
    """A folder that looks like an installed Triton with a ptxas that says its CUDA release."""
    tool = tmp_path / "site" / "triton" / "backends" / "nvidia" / "bin" / "ptxas"
    tool.parent.mkdir(parents=True)
    tool.write_bytes(
        b"\x7fELF\0release %d.%d,\0Cuda compilation tools, release " + f"{release}, V{release}.93\0".encode()
    )
    return [{"name": "triton", "version": "3.6.0", "place": str(tmp_path / "site")}], tool


def test_the_ptxas_that_triton_would_run_is_asked_for_its_release(tmp_path, monkeypatch):
    installed, tool = a_triton(tmp_path, "12.9")
    orin = {"release": 36, "revision": "4.3"}  # its GPU is known without NVML
    found = doctor_triton.triton_facts(installed, orin, {})
    assert found == {"installed": True, "version": "3.6.0", "capability": 87, "ptxas": str(tool), "ptxas_cuda": [12, 9]}
    monkeypatch.setattr(doctor_triton, "_capability", lambda: 110)
    thor = doctor_triton.triton_facts(installed, {"release": 38, "revision": "2"}, {})
    finding = {f.check: f for f in judge_facts({"triton": thor})}["triton_ptxas"]
    assert (finding.outcome, "sm_110 needs 13.0" in finding.why) == ("mend", True)
    assert "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas" in finding.command
    own = tool.with_name("ptxas-blackwell")
    own.write_bytes(b"release 13.1, V13.1.66")
    assert doctor_triton.triton_facts(installed, None, {})["ptxas_cuda"] == [13, 1]  # the one that 3.7 ships for it
    named = {"TRITON_PTXAS_BLACKWELL_PATH": str(tool)}
    assert doctor_triton.triton_facts(installed, None, named)["ptxas"] == str(tool)


def test_without_triton_the_question_does_not_arise():
    assert doctor_triton.triton_facts([], None, {}) == {"installed": False}


def test_a_gpu_that_cannot_be_asked_is_no_answer(tmp_path, monkeypatch):
    installed, _ = a_triton(tmp_path, "12.8")
    monkeypatch.setattr(doctor_triton, "open_meter", lambda device: (None, "NVML: Driver Not Loaded"))
    with pytest.raises(ValueError, match="Driver Not Loaded"):
        doctor_triton.triton_facts(installed, None, {})
    with pytest.raises(FileNotFoundError):
        doctor_triton.triton_facts(installed, {"release": 36}, {"TRITON_PTXAS_PATH": str(tmp_path / "gone")})
