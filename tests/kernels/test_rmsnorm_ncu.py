"""benchmarks/rmsnorm_ncu.py without a GPU: a stand-in for ncu that prints what ncu prints."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "rmsnorm_ncu.py"
DEVICE = {
    "name": "stand-in",
    "sm": 132,
    "l2_bytes": 62914560,
    "sm_hz": 1.98e9,
    "copy_bytes_s": 4.2e12,
    "spec_bytes_s": 4.8e12,
}

# Both shapes in which ncu prints the metrics that it was asked for: a column each, or a line each.
STAND_IN = """#!{python}
import json, os, sys, time
mode, metrics, figures, names, calls = {mode!r}, {metrics!r}, *map(json.loads, ({figures!r}, {names!r}, {calls!r}))
assert "--profile-from-start" in sys.argv and os.environ["ROBOT_PERF_DEPENDENT_LAUNCH"] == "0"
if mode == "silent":
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.")
    sys.exit(1)
if mode == "nothing":
    print("==PROF== Connected to process 7 (/usr/bin/python3)\\n==PROF== Disconnected from process 7\\n==WARNING== No kernels were profiled.")
    sys.exit(0)
if mode == "uninitialised":
    print("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", file=sys.stderr)
    sys.exit(1)
if mode == "hangs":
    open(sys.argv[0] + ".pid", "w").write(str(os.getpid()))
    time.sleep(60)
print("==PROF== Connected to process 7 (/usr/bin/python3)")
print("==PROF== Profiling \\"rms_norm_row\\" - 0: 0%....50%....100% - 5 passes")
ranges = ["thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"]
fixed = ["ID", "Process ID", "Process Name", "Host Name", *ranges, "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
row = lambda cells: print(",".join('"' + str(c) + '"' for c in cells))
told = lambda call: '7  ""<default domain>:' + call + ':none:none:none:none:none:none"" ' if call else ""
head = lambda i: [i, 7, "python3", "127.0.0.1", told(calls[i]), "", names[i], 1, 7, "(128, 1, 1)", "(64, 1, 1)", 0, "9.0"]
unit = lambda m: "%" if "pct" in m else "ns" if "time" in m else "byte" if "bytes" in m else "register/thread"
if mode == "columns":
    row(fixed + metrics)
    row([""] * len(fixed) + [unit(m) for m in metrics])
    for i in range(len(names)):
        row(head(i) + [figures[i][m] for m in metrics])
else:
    row(fixed + ["Section Name", "Metric Name", "Metric Unit", "Metric Value"])
    for i in range(len(names)):
        for m in metrics:
            row(head(i) + ["Command line profiler metrics", m, unit(m), figures[i][m]])
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(PATH.parent)
    spec = importlib.util.spec_from_file_location("rmsnorm_ncu", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.of_this_machine = module.device_facts
    monkeypatch.setattr(module, "device_facts", lambda spec_gb_s: dict(DEVICE))
    return module


def as_predicted(script, point):
    """What ncu would print if the prediction held."""
    p = script.predict(point, DEVICE)
    middle = {key: sum(p[key]) / 2 for key in ("dram_pct", "sm_pct", "read_bytes", "write_bytes")}
    values = (
        130_000, round(middle["read_bytes"]), round(middle["write_bytes"]), middle["dram_pct"], middle["dram_pct"], middle["sm_pct"], 32, 20.0,
    )  # fmt: skip
    return dict(zip(script.METRICS, values, strict=True))


def run(script, monkeypatch, folder, mode="columns", extra=(), change=None, limit="20", told=True):
    figures = [as_predicted(script, point) for point in script.CASES]
    names = ["rms_norm_row"] * len(figures) + [name for name, _ in extra]
    calls = [point.name if told else "" for point in (*script.CASES, *(script.CASES[i] for _, i in extra))]
    figures += [dict(figures[0]) for _ in extra]
    if change:
        figures[0] |= change
    text = STAND_IN.format(
        python=sys.executable,
        mode=mode,
        metrics=list(script.METRICS),
        figures=json.dumps(figures),
        names=json.dumps(names),
        calls=json.dumps(calls),
    )
    tool = folder / "ncu"
    tool.write_text(text, encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(
        sys, "argv", ["rmsnorm_ncu.py", "--out", str(folder / "out"), "--ncu", str(tool), "--limit-s", limit]
    )
    script.main()
    return json.loads((folder / "out" / "rmsnorm_ncu.json").read_text())["results"]


@pytest.mark.parametrize("mode", ["columns", "lines"])
def test_figures_as_predicted_agree(script, monkeypatch, tmp_path, capsys, mode):
    results = run(script, monkeypatch, tmp_path, mode)
    assert [r["verdict"] for r in results] == ["agree"] * len(script.CASES), [r["reasons"] for r in results]
    assert results[0]["seen"]["us"] == 130.0
    out = capsys.readouterr().out
    assert out.index("predictions written") < out.index("agree")  # on disk before ncu starts
    assert (tmp_path / "out" / "rmsnorm_ncu_prediction.json").is_file()


def test_a_figure_outside_its_range_disagrees_with_the_reason(script, monkeypatch, tmp_path):
    first = run(script, monkeypatch, tmp_path, change={"dram__bytes_read.sum": 2 * 2**30})[0]
    assert first["verdict"] == "disagree"
    assert "DRAM bytes read" in first["reasons"][0]


def test_a_second_kernel_disagrees_for_the_call_that_ran_it(script, monkeypatch, tmp_path):
    results = run(script, monkeypatch, tmp_path, extra=[("void at::copy_kernel", 1)])
    assert [r["verdict"] for r in results] == ["disagree" if i == 1 else "agree" for i in range(len(script.CASES))]
    assert results[1]["reasons"] == ["2 kernels in the call: ours and void at::copy_kernel"]
    assert [r["seen"]["kernels_per_call"] for r in results] == [2 if i == 1 else 1 for i in range(len(script.CASES))]


def test_a_second_kernel_of_an_unknown_call_leaves_every_call_open(script, monkeypatch, tmp_path):
    results = run(script, monkeypatch, tmp_path, extra=[("void at::copy_kernel", 1)], told=False)
    assert {r["verdict"] for r in results} == {"can't say"}
    assert "doesn't say in whose: void at::copy_kernel" in results[0]["reasons"][0]
    assert {r["seen"]["kernels_per_call"] for r in results} == {None}


def test_a_missing_figure_is_no_disagreement(script, monkeypatch, tmp_path):
    gone = {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "n/a"}
    first, second, *_ = run(script, monkeypatch, tmp_path, change=gone)
    assert first["verdict"] == "can't say"
    assert first["reasons"] == ["DRAM %: ncu gave no figure"]
    assert first["seen"]["bound"] is None
    assert second["verdict"] == "agree"
    assert run(script, monkeypatch, tmp_path, change=gone | {"dram__bytes_read.sum": 1})[0]["verdict"] == "disagree"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("silent", ["ended with code 1", "ERR_NVGPUCTRPERM", "run as root"]),
        ("nothing", ["ended with code 0", "No kernels were profiled", "between the profiler's start and stop"]),
        ("uninitialised", ["ended with code 1", "LibraryNotLoaded"]),
    ],
)
def test_no_figures_is_said_with_ncus_words(script, monkeypatch, tmp_path, capsys, mode, words):
    with pytest.raises(SystemExit, match="1"):
        run(script, monkeypatch, tmp_path, mode)
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert (tmp_path / "out" / "rmsnorm_ncu_prediction.json").is_file()
    assert not (tmp_path / "out" / "rmsnorm_ncu.json").exists()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ncu_is_ended_at_the_limit(script, monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(script, monkeypatch, tmp_path, "hangs", limit="6")
    assert "stopped after 3 s" in capsys.readouterr().err
    assert not alive(int((tmp_path / "ncu.pid").read_text()))


def test_ncu_ends_with_the_program_that_is_interrupted(script, monkeypatch, tmp_path):
    popen = script.subprocess.Popen

    class Interrupted(popen):
        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            until = time.monotonic() + 20
            while not (tmp_path / "ncu.pid").is_file() and time.monotonic() < until:
                time.sleep(0.05)
            raise KeyboardInterrupt

    monkeypatch.setattr(script.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(script, monkeypatch, tmp_path, "hangs", limit="60")
    assert not alive(int((tmp_path / "ncu.pid").read_text()))


def test_the_ncu_that_is_named_is_the_one_or_none(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "PLACES", (sys.executable.lstrip("/"),))
    assert script.find_ncu(None) in (sys.executable, script.shutil.which("ncu"))
    with pytest.raises(SystemExit, match="2"):
        script.find_ncu(str(tmp_path / "elsewhere" / "ncu"))
    assert "elsewhere" in capsys.readouterr().err


def test_small_writes_may_stay_in_the_l2(script):
    point = next(p for p in script.CASES if (p.m, p.d) == (65536, 256))
    p = script.predict(point, DEVICE)
    # 33.5 MB are written, the L2 has 62.9: perhaps none of it reaches the memory while the kernel runs
    assert p["write_bytes"][0] == 0
    reads = point.m * point.d * 2
    us = reads / DEVICE["copy_bytes_s"] * 1e6
    assert p["dram_pct"][0] <= reads / (us + 2.5) / DEVICE["spec_bytes_s"] * 1e8
    big = script.predict(script.CASES[0], DEVICE)
    assert big["dram_pct"][0] > 75


@pytest.mark.parametrize(
    ("here", "words"),
    [(False, "no CUDA GPU"), (True, "NVIDIA L4: give its memory's nominal bandwidth with --spec-gb-s")],
)
def test_a_machine_that_can_not_be_predicted_is_told_why(script, monkeypatch, capsys, here, words):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(name="NVIDIA L4"))
    with pytest.raises(SystemExit, match="2"):
        script.of_this_machine(None)
    assert words in capsys.readouterr().err


def test_without_ncu_the_prediction_is_still_written(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script.shutil, "which", lambda name: None)
    monkeypatch.setattr(script, "PLACES", ())
    monkeypatch.setattr(sys, "argv", ["rmsnorm_ncu.py", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert json.loads((tmp_path / "out" / "rmsnorm_ncu_prediction.json").read_text())["predictions"]


def test_a_real_csv_of_other_kernels_is_refused(script, shared_dir):
    with pytest.raises(SystemExit, match="0 launches of our kernels"):
        script.read(shared_dir / "profiles" / "ncu_h200_raw_base_C.csv")


def test_a_failed_run_is_refused_with_its_meaning(script, shared_dir):
    with pytest.raises(SystemExit, match="ncu failed and wrote no report"):
        script.read(shared_dir / "profiles" / "ncu_error_only.csv")


@pytest.mark.parametrize("page", ["ncu_h200_raw_base_C.csv", "ncu_h200_metrics_few_stdout.csv"])
def test_a_recorded_csv_is_read(script, shared_dir, tmp_path, page):
    """Seven launches of a recorded file under our kernels' name; which figures it has is known from its manifest."""
    lines = (shared_dir / "profiles" / page).read_text(encoding="utf-8").splitlines()
    kept, ids = [], {}
    for text in lines:
        row = next(csv.reader([text]), [])
        if len(row) > 10 and row[0].isdigit():
            name = row[6] if "Push/Pop" in "".join(lines[:6]) else row[4]
            ids.setdefault(row[0], name)
            if len(ids) > len(script.CASES):
                break
            text = text.replace(name.replace('"', '""'), "rms_norm_row", 1)  # noqa: PLW2901
        kept.append(text)
    path = tmp_path / "ncu.csv"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    seen = script.read(path)
    assert len(seen) == len(script.CASES)
    few = "few" in page
    assert seen[0]["us"] == pytest.approx(123.680 if few else 127.072)
    assert seen[0]["sm_pct"] == pytest.approx(8.33 if few else 8.14, abs=0.01)
    assert seen[0]["read_bytes"] == (268_445_952 if few else None)
    assert seen[0]["write_bytes"] == (243_585_536 if few else None)
    assert seen[0]["dram_pct"] == (None if few else pytest.approx(87.43, abs=0.01))
    result = script.compare(script.predict(script.CASES[0], DEVICE), seen[0])
    assert result["verdict"] == "disagree"  # an addition of a number takes less arithmetic than a norm
    assert [r.split(":")[0] for r in result["reasons"]] == [
        "compute %",
        *(["DRAM %"] if few else ["DRAM bytes read", "DRAM bytes written"]),
    ]
