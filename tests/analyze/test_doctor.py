"""Each thing that hurts latency is found, with why and one command; a healthy machine is clean; no fact, no answer."""

from __future__ import annotations

import pytest
from doctor_facts_of import HEALTHY, ORIN, changed, package

from robot_perf.analyze.doctor import CHECKS, judge_facts, remarks


def found(facts):
    """What was found, by check."""
    return {f.check: f for f in judge_facts(facts) if f.outcome in ("mend", "note")}


def test_a_healthy_machine_is_clean():
    assert {f.outcome for f in judge_facts(HEALTHY)} == {"clean"}
    assert {f.outcome for f in judge_facts(ORIN)} == {"clean"}
    assert remarks(judge_facts(HEALTHY)) == 0


HURTS = [
    ("virtualization", {"virtualization": ["WSL", "virtual machine"]}, "note", "robot"),
    ("virtualization", {"virtualization": ["gVisor"]}, "note", "gVisor"),
    ("virtualization", {"virtualization": ["container"]}, "note", "--cap-add=sys_nice"),
    ("governor", {"governors": ["performance", "powersave"]}, "mend", "scaling_governor"),
    ("preemption", {"preemption": "PREEMPT_DYNAMIC"}, "note", "linux-image-rt-amd64"),
    ("preemption", {"preemption": "none", "os_release": {"ID": "ubuntu"}}, "note", "pro enable realtime-kernel"),
    ("rtprio", {"limits": {"rtprio": 0}}, "mend", "rtprio 99"),
    ("memlock", {"limits": {"memlock_bytes": 8_388_608}}, "mend", "memlock unlimited"),
    ("rttime", {"limits": {"rttime_us": 200_000}}, "mend", "ulimit -R"),
    ("cpu_dma_latency", {"cpu_dma_latency_writable": False}, "mend", "/dev/cpu_dma_latency"),
    ("swap", {"swap_used_bytes": 5_000_000}, "mend", "swapoff -a"),
    ("huge_pages", {"transparent_hugepage": "always"}, "mend", "echo madvise"),
    ("isolation", {"isolated_cpus": ""}, "note", "isolcpus=7"),
    ("timer_slack", {"timer_slack_ns": 50_000}, "note", "--fifo"),
    ("rt_throttling", {"rt_runtime_us": 500_000}, "note", "sched_rt_runtime_us"),
    ("clock_source", {"clock_source": "hpet"}, "mend", "echo tsc"),
    ("steal", {"steal_share": 0.02}, "note", ""),
    ("load", {"load_1min": 6.0}, "note", "top"),
    ("throttled", {"throttle_count": 12}, "note", "sensors"),
    ("heat", {"hottest": {"zone": "x86_pkg_temp", "celsius": 92.0, "slows_at_celsius": 99.0}}, "note", "cooling"),
    ("pyarrow_beside_numpy", {"installed": [package("numpy", "1.26.4"), package("pyarrow", "25.0.1")]}, "mend", "pyarrow<25"),
    ("triton_ptxas", {"triton": {"installed": True, "version": "3.6.0", "capability": 110, "ptxas_cuda": [12, 9]}}, "mend", "export TRITON_PTXAS"),
    ("triton_launch", {"triton": {"installed": True, "version": "3.7.1", "capability": 90, "ptxas_cuda": [12, 9]}}, "note", "torch==2.11"),
    ("lost_links", {"lost_links": ["configs"]}, "mend", "ln -sfn ../configs robot_perf/configs"),
    ("jetpack", {"python_version": [3, 8]}, "mend", "python3.10"),
    ("onnxruntime_twice", {"installed": [package("onnxruntime", "1.22.0"), package("onnxruntime-gpu", "1.22.0")]}, "mend", "pip uninstall -y onnxruntime"),
    ("shadowed_package", {"installed": [package("torch", "2.7.0", cuda="12.6"), package("torch", "2.6.0", "/usr/lib", cuda="12.6")]}, "note", "pip uninstall torch"),
]  # fmt: skip

ON_A_JETSON = [
    ("power_mode", {"power_mode": {"id": 1, "name": "15W", "modes": {"0": "MAXN", "1": "15W"}}}, "note", "sudo nvpmodel -m 0"),
    ("jetson_clocks", {"clocks_pinned": False}, "mend", "sudo jetson_clocks"),
    ("preemption", {"preemption": "PREEMPT"}, "note", "nvidia-l4t-rt-kernel"),
    ("isolation", {"isolated_cpus": ""}, "note", "extlinux.conf"),
    ("numpy_on_jetpack", {"installed": [package("numpy", "2.1.0")]}, "mend", "constraints-jetson.txt"),
    ("torch_without_cuda", {"installed": [package("torch", "2.7.0", cuda=None)]}, "mend", "TORCH_WHEEL_OF_YOUR_JETPACK"),
    ("shadowed_package", {"installed": [package("torch", "2.7.0", cuda=None), package("torch", "2.5.0a0+nv24.8", "/usr/lib", cuda="12.6")]}, "mend", "pip uninstall torch"),
    ("onnxruntime_twice", {"installed": [package("onnxruntime", "1.22.0"), package("onnxruntime-gpu", "1.20.0")]}, "mend", "OF_YOUR_JETPACK"),
    ("jetpack", {"l4t": {"release": 35, "revision": "5.0"}, "python_version": [3, 8]}, "mend", "JetPack 6"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "outcome", "command"), HURTS)
def test_what_hurts_is_found(check, changes, outcome, command):
    finding = found(changed(**changes))[check]
    assert finding.outcome == outcome
    assert command in finding.command
    assert finding.what
    assert finding.why
    assert "\n" not in finding.command


@pytest.mark.parametrize(("check", "changes", "outcome", "command"), ON_A_JETSON)
def test_what_hurts_on_a_jetson_is_found(check, changes, outcome, command):
    finding = found(changed(ORIN, **changes))[check]
    assert finding.outcome == outcome
    assert command in finding.command


@pytest.mark.parametrize(("check", "changes"), [(c, ch) for c, ch, *_ in HURTS])
def test_only_what_was_changed_is_found(check, changes):
    assert set(found(changed(**changes))) == {check}


def test_jetpack_5_is_refused_by_name():
    finding = found(changed(ORIN, l4t={"release": 35, "revision": "4.1"}, python_version=[3, 8]))["jetpack"]
    assert "JetPack 5 (L4T R35.4.1)" in finding.what
    assert "3.8" in finding.why


def test_rights_by_capability_are_rights():
    facts = changed(limits={"rtprio": 0, "memlock_bytes": 0}, capabilities=["sys_nice", "ipc_lock"])
    assert not found(facts)


def test_few_processors_can_spare_none():
    finding = found(changed(isolated_cpus="", cpus=2))["isolation"]
    assert finding.command == ""
    assert "2 processors" in finding.what


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)
def test_without_its_facts_a_check_cannot_answer(check):
    facts = changed(ORIN, unread={check.needs[0]: "PermissionError: Permission denied"}, **{check.needs[0]: None})
    finding = next(f for f in judge_facts(facts) if f.check == check.name)
    assert finding.outcome == "can't answer"
    assert finding.what == "Permission denied"


def test_jetson_questions_do_not_arise_elsewhere():
    findings = {f.check: f for f in judge_facts(changed(power_mode=None, clocks_pinned=False))}
    assert findings["power_mode"].outcome == findings["jetson_clocks"].outcome == "clean"


def test_a_power_mode_is_never_switched_by_us():
    """Every command is text: nothing under `doctor` can start a process."""
    import robot_perf.measure.machine.doctor_facts as facts
    import robot_perf.measure.machine.doctor_triton as triton
    from robot_perf.analyze.doctor import host, packages

    for module in (host, packages, facts, triton):
        assert not {"subprocess", "system", "popen"} & set(vars(module))
