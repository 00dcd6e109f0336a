"""Nsight Compute CSV, raw and details page, of any locale and unit spelling (profiles.md, rules C)."""

from __future__ import annotations

import re

from robot_perf.errors import ProfileError
from robot_perf.profiles.model import Profile
from robot_perf.profiles.names import redact
from robot_perf.profiles.ncu.metrics import (
    BY_DETAILS,
    BY_RAW,
    DEVICE_NAME,
    METRICS,
    STALL_PREFIX,
    STALL_SUFFIX,
    tool_verdict,
)
from robot_perf.profiles.ncu.table import NcuKernel, TableBuilder
from robot_perf.profiles.text import csv_rows

HEADER_START = '"ID",'
_NVTX_NAME = re.compile(r"<default domain>:([^:]*)|\b[^:\"]*:([^:\"]+):none")


def read(text: str, source: str) -> Profile:
    """The Profile of an ncu CSV. Raises ProfileError for a failed ncu run, and where no kernel row can be read."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.lstrip("﻿").startswith(HEADER_START)), None)
    notes, facts = _tool_lines(
        [line for line in lines[: at if at is not None else len(lines)] if line.startswith("==")]
    )
    if at is None:
        raise _failed_run(lines, source)
    header = next(csv_rows([lines[at].lstrip("﻿")], source, at))[1]
    body = _csv_lines(lines[at + 1 :])
    rows = [(n, r) for n, r in csv_rows(body, source, at + 1) if r[0] != "ID"]
    raw_page = "Metric Name" not in header
    if "Kernel Name" not in header:
        raise ProfileError(f"{source}: an ncu CSV of an unknown page", why="Its header has no column Kernel Name.")
    kernels = _raw(header, rows, source) if raw_page else _details(header, rows, source)
    if not kernels:
        raise ProfileError(
            f"{source}: an ncu CSV without a kernel row",
            why=f"{len(body)} lines after the header, none of them a launch.",
        )
    return TableBuilder(source, kernels, rows, "raw" if raw_page else "details", notes, facts).profile()


def _csv_lines(lines: list[str]) -> list[str]:
    """The CSV lines: ncu's own `==` lines and the program's output between them are no rows."""
    kept: list[str] = []
    inside = False
    for line in lines:
        if not inside and not line.startswith('"'):
            continue
        kept.append(line)
        inside ^= bool(line.count('"') % 2)
    return kept


def _tool_lines(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    """Warnings as notes, and the cache and clock modes that they state (rule C1, section 14)."""
    facts: dict[str, str] = {}
    notes = []
    for line in lines:
        if "uncontrolled GPU caches" in line:
            facts["cache"] = "none"
        elif "unmodified GPU clocks" in line:
            facts["clock"] = "none"
        elif line.startswith(("==WARNING==", "==ERROR==")):
            notes.append("ncu " + redact(line.strip("= ").replace("==", ":", 1)))
    return notes, facts


def _failed_run(lines: list[str], source: str) -> ProfileError:
    """What an ncu run without a report said, with its meaning (section 3)."""
    errors = [line.split("==")[-1].strip() for line in lines if line.startswith("==ERROR==")]
    text = " ".join(errors)
    if "ERR_NVGPUCTRPERM" in text or "ERR_NVGPUCTRPERM" in "".join(lines[:200]):
        return ProfileError(
            f"{source}: ncu may not read this GPU's counters (ERR_NVGPUCTRPERM)",
            why="Counters are restricted to administrators on this machine.",
            do="Run ncu as root; or give the container SYS_ADMIN; or have the machine's owner set NVreg_RestrictProfilingToAdminUsers=0.",
        )
    meaning = (
        "--section takes an exact identifier or regex:PATTERN; a bare pattern matches nothing."
        if "did not match any section" in text
        else ""
    )
    return ProfileError(
        f"{source}: ncu failed and wrote no report",
        why=meaning or "The file holds only ncu's error lines.",
        do="Mend the ncu command and run it again.",
        detail=redact(text),
    )


def _raw(header: list[str], rows: list[tuple[int, list[str]]], source: str) -> list[NcuKernel]:
    if not rows:
        return []
    units, launches = (rows[0][1], rows[1:]) if not rows[0][1][0].strip() else ([""] * len(header), rows)
    kernels = []
    for line, row in launches:
        if len(row) != len(header) or len(units) != len(header):
            raise ProfileError(
                f"{source}: line {line:,} has {len(row)} fields, the header has {len(header)}",
                why="The file may be cut.",
            )
        kernel = _kernel(dict(zip(header, row, strict=True)))
        for name, unit, cell in zip(header, units, row, strict=True):
            if column := BY_RAW.get(name):
                _keep(kernel, column, cell, unit, name)
            elif name == DEVICE_NAME:
                kernel.device_name = cell
            elif name.startswith(STALL_PREFIX) and name.endswith(STALL_SUFFIX):
                kernel.stalls[name[len(STALL_PREFIX) : -len(STALL_SUFFIX)]] = cell
        kernels.append(kernel)
    return kernels


def _keep(kernel: NcuKernel, column: str, cell: str, unit: str, name: str) -> None:
    """Keeps a cell; the metric that stands first in the column's list wins."""
    present = kernel.cells.get(column)
    rank = {n: i for i, n in enumerate(METRICS[column].raw)}
    if present is None or rank.get(name, 99) < rank.get(present[2], 99):
        kernel.cells[column] = (cell, unit, name)


def _details(header: list[str], rows: list[tuple[int, list[str]]], source: str) -> list[NcuKernel]:
    at = {name: i for i, name in enumerate(header)}
    if not {"Section Name", "Metric Unit", "Metric Value", "Kernel Name"} <= set(at):
        raise ProfileError(
            f"{source}: an ncu CSV of an unknown page", why="It has neither metric rows nor one column per metric."
        )
    kernels: dict[str, NcuKernel] = {}
    for line, short in rows:
        if len(short) <= at["Metric Value"] or len(short) > len(header):
            raise ProfileError(
                f"{source}: line {line:,} has {len(short)} fields, the header has {len(header)}",
                why="The file may be cut.",
            )
        row = short + [""] * (len(header) - len(short))  # metric rows are shorter than the header (rule C3)
        kernel = kernels.get(row[0])
        if kernel is None:
            kernel = kernels[row[0]] = _kernel(dict(zip(header, row, strict=True)))
        section, metric = row[at["Section Name"]], row[at["Metric Name"]]
        if metric:
            column = BY_DETAILS.get((section, metric)) or BY_RAW.get(metric)
            if column and column not in kernel.cells:
                kernel.cells[column] = (row[at["Metric Value"]], row[at["Metric Unit"]], metric)
        elif "Rule Name" in at and row[at["Rule Name"]] == "SOLBottleneck" and kernel.verdict is None:
            kernel.verdict = tool_verdict(row[at["Rule Description"]])
    return list(kernels.values())


def _kernel(row: dict[str, str]) -> NcuKernel:
    nvtx = next((v for k, v in row.items() if "Push/Pop_Range" in k), "")
    match = _NVTX_NAME.search(nvtx)
    return NcuKernel(
        row.get("Kernel Name", ""), row.get("Process ID", ""), row.get("Device", ""), row.get("Stream", ""), row.get("Grid Size", ""), row.get("Block Size", ""),
        (match[1] or match[2] or "") if match else "",
    )  # fmt: skip
