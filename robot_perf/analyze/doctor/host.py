"""Checks of kernel, processor, rights and power: one function each, one line each in the table at the end."""

from __future__ import annotations

from robot_perf.analyze.doctor.types import Advice, Check, Facts
from robot_perf.units import MIB, format_bytes, format_duration

__all__ = ["CHECKS"]

_LIMITS_FILE = "/etc/security/limits.d/99-realtime.conf"
_ENOUGH_LOCKED = 512 * MIB  # more than a worker with a small policy's runtime maps


def _virtual(facts: Facts) -> Advice | None:
    found = facts["virtualization"]
    why = {
        "WSL": (
            "Windows schedules this kernel: wake-ups and timers are not a robot's",
            "measure on the robot, under Linux itself",
        ),
        "gVisor": (
            "a user-space kernel answers every system call: no figure here is a real kernel's",
            "measure outside gVisor",
        ),
        "virtual machine": (
            "a hypervisor may take the processor away at any moment, and power management is hidden",
            "",
        ),
        "container": (
            "real-time rights and /dev/cpu_dma_latency must be passed in",
            "docker run --cap-add=sys_nice --cap-add=ipc_lock --ulimit rtprio=99 --ulimit memlock=-1 --device /dev/cpu_dma_latency IMAGE",
        ),
    }
    worst = next((name for name in why if name in found), None)
    if worst is None:
        return None
    return Advice("note", f"this is not bare metal ({', '.join(n for n in why if n in found)})", *why[worst])


def _governor(facts: Facts) -> Advice | None:
    slow = [g for g in facts["governors"] if g != "performance"]
    if not slow:
        return None
    return Advice(
        "mend",
        f"the governor is {', '.join(slow)}",
        "the clock drops between releases, and each step begins on a slow processor",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )


def _preemption(facts: Facts) -> Advice | None:
    if facts["preemption"] == "PREEMPT_RT":
        return None
    system = (facts.get("os_release") or {}).get("ID", "")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(facts["machine"], facts["machine"])
    command = {
        "ubuntu": "sudo pro enable realtime-kernel",
        "debian": f"sudo apt-get install linux-image-rt-{arch}",
    }.get(system, "")
    if facts.get("l4t"):
        command = "sudo apt-get install nvidia-l4t-rt-kernel"
    kind = f"{facts['preemption']}, not PREEMPT_RT" if facts["preemption"] != "none" else "without preemption"
    return Advice(
        "note",
        f"the kernel is {kind}",
        "a long section of the kernel can hold up a wake-up; measure before you change it",
        command,
    )


def _rtprio(facts: Facts) -> Advice | None:
    limit = facts["limits"].get("rtprio")
    if limit is None or limit == "unlimited" or limit > 0 or "sys_nice" in facts["capabilities"]:
        return None
    return Advice(
        "mend",
        "RLIMIT_RTPRIO is 0",
        "--fifo will be refused: the loop competes with every other process",
        f"echo '@realtime - rtprio 99' | sudo tee -a {_LIMITS_FILE} && sudo groupadd -f realtime && sudo usermod -aG realtime $USER",
    )


def _memlock(facts: Facts) -> Advice | None:
    limit = facts["limits"].get("memlock_bytes")
    if limit is None or limit == "unlimited" or limit >= _ENOUGH_LOCKED or "ipc_lock" in facts["capabilities"]:
        return None
    return Advice(
        "mend",
        f"RLIMIT_MEMLOCK is {format_bytes(limit)}",
        "--mlock will be refused: a page that was taken away costs a fault inside a step",
        f"echo '@realtime - memlock unlimited' | sudo tee -a {_LIMITS_FILE} && sudo groupadd -f realtime && sudo usermod -aG realtime $USER",
    )


def _rttime(facts: Facts) -> Advice | None:
    limit = facts["limits"].get("rttime_us")
    if limit is None or limit == "unlimited":
        return None
    return Advice(
        "mend",
        f"RLIMIT_RTTIME is {limit:,} µs",
        "the kernel kills a FIFO thread that runs that long without blocking; --fifo is not tried",
        "ulimit -R unlimited",
    )


def _dma_latency(facts: Facts) -> Advice | None:
    if facts["cpu_dma_latency_writable"]:
        return None
    return Advice(
        "mend",
        "/dev/cpu_dma_latency can't be written",
        "--hold-cpu-dma-latency will be refused: deep idle states add tens to hundreds of µs to a wake-up",
        "sudo groupadd -f realtime && sudo chgrp realtime /dev/cpu_dma_latency && sudo chmod g+w /dev/cpu_dma_latency",
    )


def _swap(facts: Facts) -> Advice | None:
    used = facts["swap_used_bytes"]
    if used < MIB:
        return None
    return Advice(
        "mend",
        f"{format_bytes(used)} of swap is in use",
        "a swapped page costs milliseconds when a step touches it",
        "sudo swapoff -a",
    )


def _huge_pages(facts: Facts) -> Advice | None:
    if facts["transparent_hugepage"] != "always":
        return None
    return Advice(
        "mend",
        "transparent huge pages are set to always",
        "the kernel compacts memory behind the loop's back, and a fault may wait for it",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def _isolation(facts: Facts) -> Advice | None:
    cpus = facts["cpus"]
    if facts["isolated_cpus"]:
        return None
    if cpus < 4:
        why = "none can be set aside for the loop: it shares one with everything else that runs"
        return Advice("note", f"there are {cpus} processors" if cpus > 1 else "there is one processor", why)
    last = cpus - 1
    words = f"isolcpus={last} nohz_full={last} rcu_nocbs={last}"
    if facts.get("l4t"):
        command = f"sudo sed -i '/^ *APPEND/ s/$/ {words}/' /boot/extlinux/extlinux.conf"
    else:
        command = f"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{words} /' /etc/default/grub && sudo update-grub"
    why = f"other processes may run on the loop's processor; after a reboot measure with --cpus {last}"
    return Advice("note", f"none of {cpus} processors is isolated", why, command)


def _timer_slack(facts: Facts) -> Advice | None:
    slack = facts["timer_slack_ns"]
    if slack <= 1_000:
        return None
    return Advice(
        "note",
        f"timer slack is {format_duration(slack)}",
        "a sleeping thread of SCHED_OTHER wakes up to that much later; one of SCHED_FIFO does not",
        "robot-perf deadline POLICY --rate HZ --fifo 80",
    )


def _rt_throttling(facts: Facts) -> Advice | None:
    runtime = facts["rt_runtime_us"]
    if runtime < 0 or runtime >= 950_000:  # the default spares 5 % of a second, which no sleeping loop comes near
        return None
    return Advice(
        "note",
        f"real-time threads may use {runtime / 10_000:g} % of each second",
        "a FIFO thread that spins is stopped for the rest; one that sleeps between releases does not notice",
        "sudo sysctl kernel.sched_rt_runtime_us=-1",
    )


def _clock_source(facts: Facts) -> Advice | None:
    source = facts["clock_source"]
    if source not in ("hpet", "acpi_pm", "jiffies"):
        return None
    better = next(
        (s for s in ("tsc", "kvm-clock", "arch_sys_counter") if s in (facts.get("available_clock_sources") or ())), None
    )
    command = (
        f"echo {better} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource" if better else ""
    )
    return Advice("mend", f"the clock source is {source}", "each reading of the clock is a slow device access", command)


def _steal(facts: Facts) -> Advice | None:
    share = facts["steal_share"]
    if share < 0.001:
        return None
    why = "steal: late steps may be a neighbour's; a verdict from here says little about a machine of your own"
    return Advice("note", f"the hypervisor took {share * 100:.2g} % of the processors' time since boot", why)


def _load(facts: Facts) -> Advice | None:
    load, cpus = facts["load_1min"], facts["cpus"]
    if load <= 0.5 * cpus:
        return None
    return Advice(
        "note", f"load is {load:g} on {cpus} processors", "what else runs competes with the loop", "top -o %CPU"
    )


def _throttled(facts: Facts) -> Advice | None:
    count = facts["throttle_count"]
    if not count:
        return None
    why = "heat lowers the clock: a long run is slower than a short one"
    return Advice("note", f"a processor was throttled {count:,} times since boot", why, "sensors")


def _heat(facts: Facts) -> Advice | None:
    zone = facts["hottest"]
    room = zone["slows_at_celsius"] - zone["celsius"]
    if room > 10:
        return None
    what = f"{zone['zone']} is at {zone['celsius']:.0f} °C and slows down at {zone['slows_at_celsius']:.0f} °C"
    return Advice("note", what, "the clock will drop during a long run", "improve the cooling, then measure")


def _power_mode(facts: Facts) -> Advice | None:
    mode = facts["power_mode"]
    name = mode["name"] or f"id {mode['id']}"
    best = next((i for i, n in sorted(mode["modes"].items()) if n.upper().startswith("MAXN")), None)
    if name.upper().startswith("MAXN") or best is None:
        return None
    why = "clocks and memory bandwidth are capped; robot-perf records the mode and never switches it"
    return Advice("note", f"the power mode is {name}", why, f"sudo nvpmodel -m {best}")


def _jetson_clocks(facts: Facts) -> Advice | None:
    if facts["clocks_pinned"]:
        return None
    why = "clocks follow the load and are low when a step begins; pinned clocks are what a deployment runs with"
    return Advice("mend", "jetson_clocks is not active", why, "sudo jetson_clocks")


CHECKS: tuple[Check, ...] = (
    Check("virtualization", ("virtualization",), _virtual),
    Check("governor", ("governors",), _governor),
    Check("preemption", ("preemption", "machine"), _preemption),
    Check("rtprio", ("limits", "capabilities"), _rtprio),
    Check("memlock", ("limits", "capabilities"), _memlock),
    Check("rttime", ("limits",), _rttime),
    Check("cpu_dma_latency", ("cpu_dma_latency_writable",), _dma_latency),
    Check("swap", ("swap_used_bytes",), _swap),
    Check("huge_pages", ("transparent_hugepage",), _huge_pages),
    Check("isolation", ("isolated_cpus", "cpus"), _isolation),
    Check("timer_slack", ("timer_slack_ns",), _timer_slack),
    Check("rt_throttling", ("rt_runtime_us",), _rt_throttling),
    Check("clock_source", ("clock_source",), _clock_source),
    Check("steal", ("steal_share",), _steal),
    Check("load", ("load_1min", "cpus"), _load),
    Check("throttled", ("throttle_count",), _throttled),
    Check("heat", ("hottest",), _heat),
    Check("power_mode", ("power_mode",), _power_mode, jetson=True),
    Check("jetson_clocks", ("clocks_pinned",), _jetson_clocks, jetson=True),
)
