"""CSV reports of `nsys stats` (profiles.md, rules S). The header row says which report it is and which units it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np

from robot_perf.errors import ProfileError
from robot_perf.profiles.build import Names
from robot_perf.profiles.model import (
    KERNEL,
    KERNEL_COLUMNS,
    MEMCPY,
    MEMSET,
    NULL,
    Column,
    DeviceFacts,
    Header,
    Profile,
    Table,
)
from robot_perf.profiles.names import api_kind, base_api_name, clean
from robot_perf.profiles.nsys.stats_rows import TIMELINES, Parsed, sections

_COPY_WORDS = (("Host-to-Device", 0), ("HtoD", 0), ("Device-to-Host", 1), ("DtoH", 1), ("Device-to-Device", 2), ("DtoD", 2),
               ("Host-to-Host", 3), ("HtoH", 3), ("Peer-to-Peer", 4), ("PtoP", 4), ("Unified", 5))  # fmt: skip
_MEMORY = {"Pageable": 0, "Pinned": 1, "Managed": 2}


def read(text: str, source: str) -> Profile:
    """The Profile of one report, or of several in one file (console output, rule S4)."""
    found, notes = sections(text, source)
    names = Names()
    if not found:
        if not any("SKIPPED" in n for n in notes):
            raise ProfileError(f"{source}: no nsys report in it", why="No header row of a known report was found.")
        return Profile(
            Header(source, "nsys-stats", "Nsight Systems", "summary", notes=tuple(notes), missing=KERNEL_COLUMNS),
            Table({}),
        )
    timeline = found[0].report in TIMELINES
    kernels: list[dict[str, Column]] = []
    apis: list[dict[str, Column]] = []
    ranges: list[dict[str, Column]] = []
    devices: tuple[DeviceFacts, ...] = ()
    resolution, used = Decimal(1), []
    for section in found:
        if (section.report in TIMELINES) != timeline or section.report in used:
            notes.append(f"{section.report} in the same file was left out: it would count work twice")
            continue
        parsed = Parsed(source, section)
        kernel, api, extra = _READERS[section.report](parsed, names)
        if kernel is not None and any(set(np.unique(k["kind"])) & set(np.unique(kernel["kind"])) for k in kernels):
            notes.append(f"{section.report} in the same file was left out: it would count work twice")
            continue
        devices = devices or _trace_devices(parsed)
        resolution = max(resolution, parsed.resolution_ns)
        used.append(section.report)
        for target, part in ((kernels, kernel), (apis, api), (ranges, extra)):
            if part is not None:
                target.append(part)
    if resolution > 1:
        notes.append(
            f"times are printed in steps of {resolution.normalize():f} ns: shorter durations have no more digits than that"
        )
    if "cuda_gpu_trace" in used:
        notes.append("cuda_gpu_trace has no graph rows: in graph mode less work is listed than ran")
    kernel_table = _table(kernels, names)
    header = Header(
        source=source, format="nsys-stats", tool="Nsight Systems", shape="timeline" if timeline else "summary", report=" + ".join(used),
        devices=devices, resolution_ns=float(resolution), notes=tuple(notes), coverage={"rows": sum(len(s.rows) for s in found)},
        missing=tuple(c for c in KERNEL_COLUMNS if c not in kernel_table.columns),
    )  # fmt: skip
    return Profile(header, kernel_table, _table(apis, names), _table(ranges, names))


def _table(parts: list[dict[str, Column]], names: Names) -> Table:
    if not parts:
        return Table({}, names.strings)
    columns = {}
    for name in dict.fromkeys(c for p in parts for c in p):
        whole = next(p[name] for p in parts if name in p)
        null = np.nan if whole.dtype.kind == "f" else NULL
        columns[name] = np.concatenate(
            [p[name] if name in p else np.full(len(p["name"]), null, whole.dtype) for p in parts]
        )
    return Table(columns, names.strings)


_Result = tuple["dict[str, Column] | None", "dict[str, Column] | None", "dict[str, Column] | None"]


def _ids(names: Names, texts: Sequence[str]) -> Column:
    return np.array([names(t) for t in texts], np.int64)


def _kinds(texts: Sequence[str]) -> tuple[Column, Column]:
    """(kind, copy) of operation names such as `[CUDA memcpy Host-to-Device]`; anything without brackets is a kernel."""
    kind = [
        MEMCPY if "memcpy" in t and t.startswith("[") else MEMSET if "memset" in t and t.startswith("[") else KERNEL
        for t in texts
    ]
    copy = [
        next((c for word, c in _COPY_WORDS if word in t), NULL) if k == MEMCPY else NULL
        for t, k in zip(texts, kind, strict=True)
    ]
    return np.array(kind, np.int64), np.array(copy, np.int64)


def _stats(p: Parsed, prefix: str = "") -> dict[str, Column]:
    total = p.numbers("Total Time") if not prefix else np.full(len(p), np.nan)
    return {"total_ns": total, "dur_ns": p.numbers(f"{prefix}Avg"), "med_ns": p.numbers(f"{prefix}Med"),
            "min_ns": p.numbers(f"{prefix}Min"), "max_ns": p.numbers(f"{prefix}Max")}  # fmt: skip


def _kern_sum(p: Parsed, names: Names) -> _Result:
    texts = p.text("Name")
    return (
        {"kind": np.full(len(p), KERNEL), "name": _ids(names, texts), "count": p.integers("Instances"), **_stats(p)},
        None,
        None,
    )


def _api_sum(p: Parsed, names: Names) -> _Result:
    raw = p.text("Name")
    api = {"name": _ids(names, [base_api_name(r) for r in raw]), "raw_name": _ids(names, raw), "count": p.integers("Num Calls"),
           "kind": np.array([api_kind(r) for r in raw], np.int64), **_stats(p)}  # fmt: skip
    return None, api, None


def _mem_time_sum(p: Parsed, names: Names) -> _Result:
    kind, copy = _kinds(p.text("Operation"))
    return (
        {
            "kind": kind,
            "copy": copy,
            "name": _ids(names, p.text("Operation")),
            "count": p.integers("Count"),
            **_stats(p),
        },
        None,
        None,
    )


def _mem_size_sum(p: Parsed, names: Names) -> _Result:
    kind, copy = _kinds(p.text("Operation"))
    return (
        {
            "kind": kind,
            "copy": copy,
            "name": _ids(names, p.text("Operation")),
            "count": p.integers("Count"),
            "bytes": p.integers("Total"),
        },
        None,
        None,
    )


def _exec_sum(p: Parsed, names: Names) -> _Result:
    count, raw = p.integers("Count"), p.text("API Name")
    kernel = {
        "kind": np.full(len(p), KERNEL),
        "name": _ids(names, p.text("Kernel Name")),
        "count": count,
        **_stats(p, "K"),
    }
    kernel["total_ns"] = kernel["dur_ns"] * count
    api = {"name": _ids(names, [base_api_name(r) for r in raw]), "raw_name": _ids(names, raw), "count": count, "kind": np.array([api_kind(r) for r in raw], np.int64),
           **_stats(p, "A"), "queue_count": p.integers("QCount"), "queue_med_ns": p.numbers("QMed")}  # fmt: skip
    api["total_ns"] = api["dur_ns"] * count
    return kernel, api, None


def _exec_trace(p: Parsed, names: Names) -> _Result:
    """One row per distinct (process, kernel start); where wrapper rows double a launch the earliest call is kept (rule N9)."""
    process, start, api_start = p.integers("PID"), p.integers("Kernel Start"), p.integers("API Start")
    order = np.lexsort((api_start, start, process))
    first = np.ones(len(order), bool)
    first[1:] = (process[order][1:] != process[order][:-1]) | (start[order][1:] != start[order][:-1])
    keep = np.sort(order[first])
    duration, api_duration, count = p.integers("Kernel Dur"), p.integers("API Dur"), len(keep)
    grid, block = _shapes(p.text("GridXYZ")), _shapes(p.text("BlockXYZ"))
    raw = p.text("API Function")
    kernel = {
        "kind": np.full(len(p), KERNEL), "name": _ids(names, p.text("Kernel Name")), "start_ns": start, "end_ns": start + duration, "dur_ns": duration,
        "count": np.ones(len(p), np.int64), "device": p.integers("DevId"), "process": process,
        **{f"grid_{a}": grid[:, i] for i, a in enumerate("xyz")}, **{f"block_{a}": block[:, i] for i, a in enumerate("xyz")},
    }  # fmt: skip
    api = {
        "name": _ids(names, [base_api_name(r) for r in raw]), "raw_name": _ids(names, raw), "start_ns": api_start, "end_ns": api_start + api_duration,
        "dur_ns": api_duration, "process": process, "thread": p.integers("TID"), "kind": np.array([api_kind(r) for r in raw], np.int64),
    }  # fmt: skip
    kernel, api = {k: v[keep] for k, v in kernel.items()}, {k: v[keep] for k, v in api.items()}
    kernel["api"], api["ops"] = np.arange(count), np.ones(count, np.int64)
    return kernel, api, None


def _shapes(texts: Sequence[str]) -> Column:
    found = [[int(n) for n in re.findall(r"\d{1,12}", t)][:3] for t in texts]
    return np.array([f if len(f) == 3 else [NULL] * 3 for f in found], np.int64).reshape(-1, 3)


def _gpu_trace(p: Parsed, names: Names) -> _Result:
    texts = p.text("Name")
    kind, copy = _kinds(texts)
    start, duration = p.integers("Start"), p.integers("Duration")
    memory = [
        _MEMORY.get(s if c == 0 else t if c == 1 else "", NULL)
        for c, s, t in zip(copy, p.text("SrcMemKd"), p.text("DstMemKd"), strict=True)
    ]
    devices = [re.search(r"\((\d{1,4})\)\s*$", d) for d in p.text("Device")]
    kernel = {
        "kind": kind, "copy": copy, "host_mem": np.array(memory, np.int64), "name": _ids(names, texts), "start_ns": start, "end_ns": start + duration, "dur_ns": duration,
        "count": np.ones(len(p), np.int64), "device": np.array([int(d[1]) if d else NULL for d in devices], np.int64), "stream": p.integers("Strm"),
        "corr": p.integers("CorrId"), "bytes": p.integers("Bytes"), "registers": p.integers("Reg/Trd"),
        **{f"grid_{a.lower()}": p.integers(f"Grd{a}") for a in "XYZ"}, **{f"block_{a.lower()}": p.integers(f"Blk{a}") for a in "XYZ"},
    }  # fmt: skip
    return kernel, None, None


def _trace_devices(p: Parsed) -> tuple[DeviceFacts, ...]:
    found = {
        int(m[2]): clean(m[1])[:80] for m in (re.match(r"^(.*) \((\d{1,4})\)\s*$", d) for d in p.text("Device")) if m
    }
    return tuple(DeviceFacts(i, n) for i, n in sorted(found.items()))


def _nvtx_proj(p: Parsed, names: Names) -> _Result:
    ranges = {
        "name": _ids(names, [t.lstrip(":") for t in p.text("Range")]), "count": p.integers("Range Instances"), "ops": p.integers("Total GPU Ops"),
        "total_ns": p.numbers("Total Proj Time"), "dur_ns": p.numbers("Proj Avg"), "med_ns": p.numbers("Proj Med"),
    }  # fmt: skip
    return None, None, ranges


_READERS: dict[str, Callable[[Parsed, Names], _Result]] = {
    "cuda_gpu_kern_sum": _kern_sum,
    "cuda_api_sum": _api_sum,
    "cuda_gpu_mem_time_sum": _mem_time_sum,
    "cuda_gpu_mem_size_sum": _mem_size_sum,
    "cuda_kern_exec_sum": _exec_sum,
    "cuda_kern_exec_trace": _exec_trace,
    "cuda_gpu_trace": _gpu_trace,
    "nvtx_gpu_proj_sum": _nvtx_proj,
}
