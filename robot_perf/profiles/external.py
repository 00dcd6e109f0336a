"""Reports that only NVIDIA's own tools read: the command line that exports them, and running it with the user's nsys or ncu."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from robot_perf.errors import ProfileError
from robot_perf.profiles.names import redact

NCU_MAGIC = b"NVR\x00"
NSYS_MAGIC = b"NVIDIA Tegra Profiler Report"
EXPORT_TIMEOUT_S = 1800


def report_kind(head: bytes) -> str | None:
    """`ncu` for a .ncu-rep, `nsys` for a .nsys-rep or .qdrep, else None."""
    if head.startswith(NCU_MAGIC):
        return "ncu"
    return "nsys" if NSYS_MAGIC in head[:4096] else None


def export_command(path: str, kind: str, output: str) -> list[str]:
    """The export line of profiles.md section 14. ncu writes CSV to stdout, nsys a database to `output`."""
    if kind == "ncu":
        return ["ncu", "--import", path, "--csv", "--page", "raw", "--print-units", "base"]
    return ["nsys", "export", "--type", "sqlite", "--lazy=false", "--force-overwrite=true", "-o", output, path]


def refuse_or_export(head: bytes, path: Path, *, export: bool) -> None:
    """Raises ProfileError with the export line for a vendor report, unless exporting was asked for."""
    kind = report_kind(head)
    if kind is None or export:
        return
    stem = path.name.rsplit(".", 1)[0]
    output = f"{stem}.sqlite" if kind == "nsys" else f"{stem}.raw.csv"
    line = (
        "LC_ALL=C "
        + shlex.join(export_command(path.name, kind, output))
        + (f" > {shlex.quote(output)}" if kind == "ncu" else "")
    )
    version = re.search(rb"\b(20\d\d\.\d+(?:\.\d+)*)", head[:4096])
    written = f" It was written by version {version[1].decode('ascii')}." if version else ""
    older = " A report newer than the installed nsys can't be exported." if kind == "nsys" else ""
    raise ProfileError(
        f"{path.name}: a report that only {kind} can read",
        why=f"robot-perf reads its export.{written}{older}",
        do=f"Run: {line} (or let robot-perf run it: --export)",
    )


def export(path: Path, kind: str, folder: Path) -> Path:
    """Exports with the user's own tool into `folder`; the path of what it wrote. Raises ProfileError when the tool is missing or fails."""
    if shutil.which(kind) is None:
        raise ProfileError(
            f"{path.name}: needs {kind} to be read",
            why=f"{kind} is not on the PATH.",
            do=f"Install NVIDIA's {kind}, or export on a machine that has it.",
        )
    output = folder / ("export.sqlite" if kind == "nsys" else "export.csv")
    environment = {**os.environ, "LC_ALL": "C"}
    command = export_command(str(path.resolve()), kind, str(output))
    try:
        if kind == "ncu":
            with output.open("wb") as target:
                done = subprocess.run(
                    command,
                    env=environment,
                    stdout=target,
                    stderr=subprocess.PIPE,
                    timeout=EXPORT_TIMEOUT_S,
                    check=False,
                )
        else:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=EXPORT_TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{path.name}: {kind} could not be run", detail=redact(str(error))) from None
    if done.returncode != 0 or not output.is_file():
        detail = redact(done.stderr.decode("utf-8", "replace"))
        raise ProfileError(
            f"{path.name}: {kind} could not export it (exit {done.returncode})",
            why="It may be newer than the installed tool.",
            detail=detail,
        )
    return output
