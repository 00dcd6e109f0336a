"""Profiles one policy on each torch backend of a GPU, diagnoses each trace, exports it for a viewer, and checks what it must hold.

    python benchmarks/profile_backends.py OUT [--backends eager,compile,cuda_graph] [--rate 50] [--steps 100] [--limit-s 60] [--ncu]

Each step is the command line's own (robot-perf profile, then diagnose), in a process of its own. Writes per backend the trace, the
diagnosis as markdown and JSON and the exported trace, and OUT/profile_backends.json with conditions, figures and checks. `--ncu`
adds `profile --ncu --run` on the first backend and reads back both CSV files. Exit code: 0 when every check holds, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from robot_perf import __version__
from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.profiles import load
from robot_perf.profiles.model import GRAPH_LAUNCH, KERNEL, Profile, plain

POLICY = "mlp"
NCU_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")


def main() -> int:
    """Runs, checks, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--backends", default="eager,compile,cuda_graph")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--on", default="", help="device of the table, for peaks")
    parser.add_argument("--rate", default="50")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--limit-s", type=float, default=60.0)
    parser.add_argument("--ncu", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + asked.limit_s
    document: dict[str, Any] = {"conditions": conditions(asked), "backends": {}}
    for backend in asked.backends.split(","):
        found = document["backends"][backend] = one_backend(asked, backend, end)
        print(backend, json.dumps({k: v for k, v in found.items() if k != "trace_facts"}), flush=True)
        print("  ", json.dumps(found.get("trace_facts")), flush=True)
    if asked.ncu:
        document["ncu"] = counted(asked, asked.backends.split(",")[0], end)
        print("ncu", json.dumps(document["ncu"]), flush=True)
    (asked.out / "profile_backends.json").write_text(json.dumps(document, indent=1) + "\n")
    parts = [*document["backends"].values(), *([document["ncu"]] if asked.ncu else [])]
    wrong = [name for part in parts for name, holds in part["checks"].items() if not holds]
    print("all checks hold" if not wrong else f"checks that do not hold: {', '.join(wrong)}")
    return 1 if wrong else 0


def conditions(asked: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions, and what was asked for."""
    facts: dict[str, Any] = {
        "robot_perf": __version__, "python": platform.python_version(), "machine": platform.machine(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "policy": POLICY, "rate_hz": asked.rate, "steps": asked.steps, "device": asked.device,
    }  # fmt: skip
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"]
    if shutil.which(query[0]):
        facts["gpu"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    try:
        import torch

        facts["torch"] = torch.__version__
    except ImportError:
        facts["torch"] = None
    return facts


def command(words: list[str], end: float) -> tuple[int, float, str, str]:
    """(exit code, seconds, stdout, stderr) of the command line; 124 where the time is up."""
    begin = time.monotonic()
    if end - begin <= 1:
        return 124, 0.0, "", "no time left"
    environment = {**os.environ, "PATH": os.pathsep.join((os.environ.get("PATH", ""), *NCU_PLACES))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "robot_perf.cli", *words], capture_output=True, text=True, check=False, timeout=end - begin, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return 124, time.monotonic() - begin, "", f"over {late.timeout:.0f} s"
    return done.returncode, time.monotonic() - begin, done.stdout, done.stderr


def one_backend(asked: argparse.Namespace, backend: str, end: float) -> dict[str, Any]:
    """Profile, diagnose, export; and what the trace holds."""
    trace = asked.out / f"{POLICY}_{backend}.json.gz"
    words = ["profile", POLICY, "--rate", asked.rate, "--steps", str(asked.steps), "--backend", backend, "--device", asked.device, "-o", str(trace), "--force", "--json"]  # fmt: skip
    code, took, out, err = command(words, end)
    found: dict[str, Any] = {"profile_exit": code, "profile_s": round(took, 2), "checks": {}}
    checks = found["checks"]
    checks[f"{backend}: profiled"] = code in (0, 3) and trace.is_file()
    if not checks[f"{backend}: profiled"]:
        return {**found, "error": err[-1500:]}
    document = json.loads(out)
    found |= {"run": document["run"], "primary": document["primary"]}
    exported, stem = asked.out / f"{POLICY}_{backend}.perfetto.json", str(trace).removesuffix(".json.gz")
    on = ["--on", asked.on] if asked.on else []
    code, took, out, err = command(
        ["diagnose", str(trace), "--rate", asked.rate, *on, "-o", f"{stem}.diagnosis.md", "--trace", str(exported), "--force", "--json"], end,
    )  # fmt: skip
    found["diagnose_s"] = round(took, 2)
    checks[f"{backend}: diagnosed and exported"] = code in (0, 3)
    if code not in (0, 3):
        return {**found, "error": err[-1500:]}
    Path(f"{stem}.diagnosis.json").write_text(out)
    profile = load(trace)
    found["trace_facts"] = facts = facts_of(profile)
    ran = found["run"]["steps"]
    checks[f"{backend}: a step of the trace for each that ran"] = facts["policy_steps"] == ran > 3
    checks[f"{backend}: no host or user name in the trace"] = no_identity(trace)
    checks[f"{backend}: the export reads back"] = facts_of(load(exported))["kernels"] == facts["kernels"]
    if not asked.device.startswith("cuda"):
        return found
    checks[f"{backend}: kernels in every step"] = facts["kernels"] >= ran and facts["kernels"] % ran == 0
    checks[f"{backend}: every kernel is linked to its launch"] = facts["unlinked_kernels"] == 0
    checks[f"{backend}: answered"] = document["primary"] != "can't answer"
    checks[f"{backend}: graph launches"] = facts["graph_launches"] == (ran if backend == "cuda_graph" else 0)
    return found


def facts_of(profile: Profile) -> dict[str, Any]:
    """Counts of a trace."""
    works = devices_of(profile)
    kernels = profile.kernels["kind"] == KERNEL
    names = [profile.ranges.strings[n] for n in profile.ranges["name"].tolist()] if len(profile.ranges) else []
    return {
        "kernels": profile.kernel_count,
        "launches": profile.launch_count,
        "graph_launches": int((profile.apis["kind"] == GRAPH_LAUNCH).sum()),
        "unlinked_kernels": int((profile.kernels["api"][kernels] < 0).sum()),
        "copies": int((~kernels).sum()),
        "policy_steps": names.count("policy_step"),
        "devices": [w.device for w in works],
        "notes": list(profile.header.notes),
    }


def no_identity(trace: Path) -> bool:
    """True where neither the host's nor the user's name stands in the trace."""
    import getpass
    import gzip

    text = gzip.decompress(trace.read_bytes())
    names = [n for n in (platform.node(), os.environ.get("USER", ""), _user(getpass.getuser)) if len(n) > 4]
    return not any(f'"{n}"'.encode() in text for n in names) and b"host_name" not in text


def _user(get: Any) -> str:
    try:
        return str(get())
    except (KeyError, OSError):
        return ""


def counted(asked: argparse.Namespace, backend: str, end: float) -> dict[str, Any]:
    """`profile --ncu --run`: one step's kernels by the sections, and again with few metrics; both CSV files read back."""
    trace, stem = asked.out / f"{POLICY}_{backend}.json.gz", asked.out / f"{POLICY}_{backend}"
    words = [
        "profile", POLICY, "--rate", asked.rate, "--steps", "12", "--backend", backend, "--device", asked.device, "--ncu", "--kernels", ".", "--trace", str(trace),
        "--skip-steps", "5", "--profile-steps", "1", "--run", "-o", str(stem), "--force", "--json",
    ]  # fmt: skip
    code, took, out, err = command(words, end)
    found: dict[str, Any] = {"exit": code, "s": round(took, 2), "checks": {"ncu: ran": code == 0}}
    if code not in (0, 3):
        return {**found, "error": err[-1500:]}
    document = json.loads(out)
    found |= {k: document[k] for k in ("matching_launches_per_step", "skip", "count", "written", "wrong_kernel")}
    for name in ("raw", "few"):
        profile = load(Path(f"{stem}.{name}.csv"))
        table = profile.kernels
        found[name] = {
            "kernels": len(table), "names": [table.text("name", i)[:60] for i in range(len(table))], "ns": [plain(x) for x in table["dur_ns"]],
            "passes": [plain(x) for x in table["passes"]], "dram_read_bytes": [plain(x) for x in table["dram_read_bytes"]],
            "cache": profile.header.cache_control, "clock": profile.header.clock_control, "notes": list(profile.header.notes),
        }  # fmt: skip
        found["checks"][f"ncu: {name}.csv holds one step"] = len(table) == document["count"]
        on = ["--on", asked.on] if asked.on else []
        code, _, text, err = command(["diagnose", f"{stem}.{name}.csv", *on, "--clock-control", "none", "--json"], end)
        found[name]["primary"] = json.loads(text)["primary"] if code in (0, 3) else err[-500:]
        found["checks"][f"ncu: {name}.csv is diagnosed"] = code in (0, 3)
    Path(f"{stem}.ncu-rep").unlink(missing_ok=True)  # megabytes, and only ncu reads it
    return found


if __name__ == "__main__":
    sys.exit(main())
