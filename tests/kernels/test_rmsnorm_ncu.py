"""benchmarks/rmsnorm_ncu.py without a GPU: a stand-in for ncu that prints what ncu prints."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

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
mode, metrics, figures, names = {mode!r}, {metrics!r}, json.loads({figures!r}), json.loads({names!r})
assert "--profile-from-start" in sys.argv and os.environ["ROBOT_PERF_DEPENDENT_LAUNCH"] == "0"
if mode == "silent":
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
    sys.exit(1)
if mode == "hangs":
    time.sleep(60)
print("==PROF== Connected to process 7 (/usr/bin/python3)")
fixed = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
row = lambda cells: print(",".join('"' + str(c) + '"' for c in cells))
head = lambda i: [i, 7, "python3", "127.0.0.1", names[i], 1, 7, "(128, 1, 1)", "(64, 1, 1)", 0, "9.0"]
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
    spec = importlib.util.spec_from_file_location("rmsnorm_ncu", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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


def run(script, monkeypatch, folder, mode="columns", extra=(), change=None, limit="20"):
    figures = [as_predicted(script, point) for point in script.CASES]
    names = ["rms_norm_row"] * len(figures) + list(extra)
    figures += [dict(figures[0]) for _ in extra]
    if change:
        figures[0] |= change
    text = STAND_IN.format(
        python=sys.executable,
        mode=mode,
        metrics=list(script.METRICS),
        figures=json.dumps(figures),
        names=json.dumps(names),
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


def test_a_second_kernel_in_the_call_is_seen(script, monkeypatch, tmp_path):
    results = run(script, monkeypatch, tmp_path, extra=["void at::copy_kernel"] * len(script.CASES))
    assert all("2.0 kernels per call" in r["reasons"] for r in results)


def test_no_figures_is_said_with_ncus_words(script, monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(script, monkeypatch, tmp_path, "silent")
    assert "ERR_NVGPUCTRPERM" in capsys.readouterr().err


def test_ncu_is_ended_at_the_limit(script, monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(script, monkeypatch, tmp_path, "hangs", limit="4")
    assert "stopped after" in capsys.readouterr().err


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
