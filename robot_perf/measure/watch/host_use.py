"""What the host took from a process while it ran: a quota that stopped it, a run queue that it waited in, stolen time, a low clock.

Counters are cumulative; the reader takes differences. What can't be read is absent and named in `reasons`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

V1_CONTROLLERS = ("cpu", "cpu,cpuacct")


class HostUse:
    """Reads /proc and /sys under `root` for one process, and for the machine. `pid` None: the machine alone."""

    def __init__(self, root: Path = Path("/"), pid: int | None = None) -> None:
        self._root = root
        self.reasons: dict[str, str] = {}
        self._groups: list[Path] | None = None
        self.follow(pid)

    def follow(self, pid: int | None) -> None:
        """From now on this process (its main thread for the run queue)."""
        self._pid = pid
        self._groups = None

    def sample(self) -> dict[str, Any]:
        """Cumulative: `throttled_ns`, `throttled_periods`, `run_ns`, `wait_ns`, `steal_ticks`, `all_ticks`; now: `cpu_hz`, `cpu_max_hz`."""
        found: dict[str, Any] = {"at_ns": time.monotonic_ns(), "pid": self._pid}
        if self._pid is not None and not (self._root / f"proc/{self._pid}").exists():
            found["pid"] = None  # it ended: what is said of it stays what was read before
            return found
        for read in (self._ticks, self._throttled, self._queue, self._clock):
            try:
                found |= read()
            except (OSError, ValueError, IndexError) as error:
                self.reasons[read.__name__.strip("_")] = f"{getattr(error, 'strerror', None) or error}"
        return found

    def _text(self, path: Path) -> str:
        return path.read_text(encoding="utf-8", errors="replace").strip()

    def _ticks(self) -> dict[str, Any]:
        words = [int(w) for w in self._text(self._root / "proc/stat").split("\n", 1)[0].split()[1:9]]
        return {"steal_ticks": words[7], "all_ticks": sum(words)}

    def _throttled(self) -> dict[str, Any]:
        """Summed over the groups above the process: a quota anywhere on the way stops it."""
        if self._pid is None:
            return {}
        if self._groups is None:
            self._groups = self._with_quota()
        if not self._groups:
            raise OSError("no control group above the process shows a quota")
        total = {"throttled_ns": 0, "throttled_periods": 0}
        for folder in self._groups:
            values = dict(line.split()[:2] for line in self._text(folder / "cpu.stat").splitlines())
            total["throttled_periods"] += int(values.get("nr_throttled", 0))
            total["throttled_ns"] += (
                int(values["throttled_usec"]) * 1000
                if "throttled_usec" in values
                else int(values.get("throttled_time", 0))
            )
        return total

    def _with_quota(self) -> list[Path]:
        mounts = self._root / "sys/fs/cgroup"
        found = []
        for line in self._text(self._root / f"proc/{self._pid}/cgroup").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                tops = [mounts, mounts / "unified"]
            elif "cpu" in controllers.split(","):
                tops = [mounts / name for name in V1_CONTROLLERS]
            else:
                continue
            for top in tops:
                parts = path.strip("/").split("/") if path.strip("/") else []
                for depth in range(len(parts) + 1):
                    folder = top.joinpath(*parts[:depth])
                    if (folder / "cpu.stat").is_file() and "nr_throttled" in self._text(folder / "cpu.stat"):
                        found.append(folder)
        return found

    def _queue(self) -> dict[str, Any]:
        if self._pid is None:
            return {}
        run, wait, _ = self._text(self._root / f"proc/{self._pid}/schedstat").split()
        return {"run_ns": int(run), "wait_ns": int(wait)}

    def _clock(self) -> dict[str, Any]:
        """Of the processor that the process was last seen on; of the slowest one where there is no process."""
        cpu = self._root / "sys/devices/system/cpu"
        if self._pid is not None:
            stat = self._text(self._root / f"proc/{self._pid}/stat").rpartition(")")[2].split()
            folders = [cpu / f"cpu{int(stat[36])}/cpufreq"]
        else:
            folders = sorted(cpu.glob("cpu[0-9]*/cpufreq"))
        pairs = []
        for folder in folders:
            if (folder / "scaling_cur_freq").exists():
                most = folder / "cpuinfo_max_freq"
                most = most if most.exists() else folder / "scaling_max_freq"
                pairs.append((int(self._text(folder / "scaling_cur_freq")), int(self._text(most))))
        if not pairs:
            raise OSError("the kernel shows no processor clock")
        now, most_khz = min(pairs)
        return {"cpu_hz": now * 1000, "cpu_max_hz": most_khz * 1000}
