"""ceiling, roofline, devices and launch from the command line: their JSON contract, their words, their refusals."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from robot_perf.cli.__main__ import main

ORIN, H100 = "Jetson AGX Orin 64GB", "H100 SXM"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    return int(code), out.getvalue(), err.getvalue()


def text(*arguments: str) -> str:
    """What a command prints; it must succeed."""
    code, out, err = run(*arguments)
    assert (code, err) == (0, ""), err
    return out


def document(*arguments: str) -> Any:
    """The JSON document of a command: one line, nothing else."""
    out = text(*arguments, "--json")
    assert out.count("\n") == 1
    return json.loads(out)


def refused(*arguments: str) -> str:
    """The message of a refusal: exit 2, nothing on standard output."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), out
    return err


# ceiling
def test_ceiling_rows_hold_the_contract() -> None:
    rows = document("ceiling", "--params", "8e9", "--weight-bits", "16", "--on", ORIN)["rows"]
    wanted = {
        "device",
        "power_mode",
        "tokens_per_s",
        "expected_tokens_per_s",
        "step_ms",
        "bytes",
        "limited_by",
        "fits_memory",
    }
    assert all(set(r) >= wanted for r in rows)
    assert [r["power_mode"] for r in rows] == ["MAXN", "50W", "30W", "15W"]
    assert rows[0]["tokens_per_s"] == pytest.approx(12.8) and rows[0]["limited_by"] == "DRAM"
    assert rows[0]["fits_memory"] is True and rows[0]["bytes"] == 16e9


def test_ceiling_of_all_devices_keeps_those_without_bandwidth() -> None:
    rows = document("ceiling", "--params", "8e9")["rows"]
    assert len(rows) == 70
    unknown = next(r for r in rows if r["device"] == "Jetson AGX Orin Industrial")
    assert unknown["tokens_per_s"] is None and "give --bandwidth-gb-s" in unknown["notes"][0]


def test_ceiling_by_model_and_config(tmp_path: Path) -> None:
    assert document("ceiling", "--model", "llama-3.1-8b", "--on", H100)["rows"][0]["tokens_per_s"] == pytest.approx(
        223.2, abs=0.05
    )
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = document("ceiling", "--config", str(tmp_path / "config.json"), "--on", H100, "--context", "8192")
    assert found["rows"][0]["tokens_per_s"] == pytest.approx(3.35e12 / (2 * 7504924672 + 8192 * 131072))
    assert any("input embedding left out" in a for a in found["assumptions"])


def test_ceiling_answers_a_rate_and_its_inverse() -> None:
    row = document(
        "ceiling", "--params", "8e9", "--weight-bits", "4", "--rate", "10", "--on", ORIN, "--power-mode", "maxn"
    )["rows"][0]
    assert row["at_rate"]["fits"] is True and row["at_rate"]["tokens_in_budget"] == 5
    assert [x["what"] for x in row["largest_that_fits"]] == ["parameters", "weight bits"]
    assert row["largest_that_fits"][0]["value"] == pytest.approx(40.96e9)
    out = text("ceiling", "--params", "8e9", "--weight-bits", "4", "--rate", "10", "--on", "agx-orin")
    assert "yes: up to 5 tokens an action, 80 % headroom with 1" in out and "at most 41 B parameters at 4 bits" in out


@pytest.mark.parametrize(
    "words",
    [
        (
            "ceiling",
            "--params",
            "8e9",
            "--rate",
            "10",
            "--on",
            "Jetson Orin Nano 8GB Super",
            "--on",
            "Jetson AGX Orin 64GB",
        ),
        ("ceiling", "--model", "pi0", "--on", "GeForce RTX 4090", "--rate", "50", "--executed", "25"),
        ("roofline", "linear", "--hidden", "512", "--tokens", "1", "--on", "Jetson Orin Nano 8GB"),
        ("roofline", "mlp", "--on", "Jetson Orin Nano 8GB"),
    ],
)
def test_hardware_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr("robot_perf.cli.show.table_width", lambda: 80)
    lines = text(*words).splitlines()
    assert max(map(cell_len, lines)) <= 80, [line for line in lines if cell_len(line) > 80]


def test_ceiling_of_a_policy() -> None:
    row = document("ceiling", "--model", "pi0", "--on", "GeForce RTX 4090", "--rate", "50", "--executed", "25")["rows"][
        0
    ]
    assert row["step_ms"] == pytest.approx(29.57, abs=0.01) and row["tokens_per_s"] is None
    assert [p["name"] for p in row["phases"]] == ["vision", "prefix", "expert"]
    assert row["replan_hz"] == pytest.approx(33.8, abs=0.05) and row["action_hz"] == pytest.approx(
        25 * row["replan_hz"]
    )
    assert row["at_rate"]["budget_ms"] == 500 and row["documented"][0]["times_the_floor"] == pytest.approx(
        2.54, abs=0.01
    )
    out = text("ceiling", "--model", "smolvla", "--on", "GeForce RTX 4090")
    assert "37 x the floor; look for the cause" in out and "8.8 x the floor" in out
    assert "Give --executed N" in refused("ceiling", "--model", "pi0", "--on", ORIN, "--rate", "50")


def test_ceiling_of_what_stays_in_cache() -> None:
    row = document("ceiling", "--params", "0.2e6", "--weight-bits", "32", "--on", ORIN, "--launches", "7")["rows"][0]
    assert row["dram_applies"] is False and row["limited_by"] == "launch" and row["step_ms"] == pytest.approx(0.035)
    assert any("DRAM bound not applicable (L2-resident)" in n for n in row["notes"])


def test_ceiling_judges_a_measured_rate() -> None:
    def judged(*more: str) -> Any:
        return document("ceiling", "--params", "7.11e9", "--on", H100, *more)["rows"][0]["measured"]

    assert judged("--measured", "280")["verdict"] == "above-ceiling"
    assert judged("--measured", "150", "--batch", "1")["verdict"] == "ok"
    assert judged("--measured", "1500", "--batch", "8")["verdict"] == "aggregate"
    assert judged("--measured", "300", "--batch", "1", "--accepted", "3")["verdict"] == "speculative"
    assert "--batch N" in refused("ceiling", "--params", "7.11e9", "--on", H100, "--measured", "150")


def test_ceiling_takes_a_probe() -> None:
    probe = Path(__file__).resolve().parents[2] / "reports" / "nvidia-h200" / "probe.json"
    if not probe.is_file():
        pytest.skip("reports/nvidia-h200/probe.json is not in this checkout")
    gemv = next(r["median"] for r in json.loads(probe.read_text())["readings"] if r["kind"] == "gemv")
    found = document("ceiling", "--params", "8e9", "--on", "H200 SXM", "--probe", str(probe))
    assert found["rows"][0]["expected_tokens_per_s"] == pytest.approx(gemv / 16e9)
    assert found["rows"][0]["tokens_per_s"] == 300.0  # the probe is never the bound
    assert "gemv probe of NVIDIA H200" in found["notes"][0]


def test_ceiling_with_the_users_own_numbers() -> None:
    row = document("ceiling", "--params", "1e9", "--bandwidth-gb-s", "100", "--peak", "bf16=10")["rows"][0]
    assert row["device"] == "as given" and row["tokens_per_s"] == 50
    assert any("L2 size unknown" in n for n in row["notes"])
    row = document("ceiling", "--params", "1e9", "--on", ORIN, "--bandwidth-gb-s", "100")["rows"]
    assert len(row) == 1 and row[0]["tokens_per_s"] == 50  # no mode of the table may replace it


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which model?"),
        (["--params", "8e9", "--model", "pi0"], "--model goes with neither"),
        (["--params", "0"], "out of range"),
        (["--params", "nan"], "out of range"),
        (["--params", "8e9", "--on", "NVIDIA H100"], "Did you mean"),
        (["--params", "8e9", "--on", "NVIDIA GeForce RTX 3060"], "could be"),
        (["--params", "8e9", "--on", H100, "--power-mode", "MAXN"], "no power modes"),
        (["--params", "8e9", "--on", "orin-nano-8gb", "--power-mode", "MAXN_SUPER"], "flash the super configuration first"),
        (["--params", "8e9", "--power-mode", "1"], "no device of the table has a power mode"),
        (["--params", "8e9", "--context", "100", "--on", H100], "KV cache needs"),
        (["--params", "8e9", "--weight-size", "4.92G", "--on", H100], "is not a size"),
        (["--params", "8e9", "--peak", "bf16=1979sparse"], "sparse"),
        (["--params", "8e9", "--peak", "tf32=10"], "DTYPE=TFLOP/s"),
        (["--params", "8e9", "--bandwidth-gb-s", "0"], "above 0"),
        (["--params", "8e9", "--on", "Jetson AGX Orin Industrial"], "bandwidth unknown: give --bandwidth-gb-s"),
        (["--params", "8e9", "--rate", "0", "--on", H100], "above 0 Hz and finite"),
        (["--params", "8e9", "--unit", "fps"], "--unit"),
        (["--params", "8e9", "--compute", "tf32"], "--compute"),
        (["--params", "8e9", "--active-params", "9e9", "--on", H100], "active parameters"),
        (["--params", "8e9", "--launches", "0", "--on", H100], "--launches"),
        (["--model", "X-VLA (LeRobot port)"], "parameter count unknown"),
        (["--model", "pi0", "--weight-format", "nvfp4"], "scales"),
        (["--model", "pi0", "--views", "0"], "--views must be at least 1"),
        (["--config", "absent.json"], "can't be read"),
        (["--params", "8e9", "--probe", "absent.json"], "can't be read"),
        (["--run", "absent.parquet", "--on", H100], "absent.parquet"),
        (["--params", "8e9", "--on", H100, "--batch", "0"], "--batch 0 is out of range"),
        (["--params", "8e9", "--on", H100, "--accepted", "0"], "--accepted 0 is out of range"),
        (["--params", "8e9", "--on", H100, "--accepted", "nan"], "--accepted nan is out of range"),
        (["--params", "8e9", "--on", H100, "--launch-us", "-5"], "--launch-us -5 is out of range"),
        (["--params", "8e9", "--on", H100, "--launch-us", "nan"], "--launch-us nan is out of range"),
    ],
)  # fmt: skip
def test_ceiling_refuses(arguments: list[str], words: str) -> None:
    assert words in refused("ceiling", *arguments)


def test_a_run_from_the_desk_meets_its_ceiling(tmp_path: Path) -> None:
    run = tmp_path / "run.parquet"
    with pytest.raises(SystemExit):
        main(["deadline", "mlp", "--rate", "200", "--steps", "100", "-o", str(run), "--quiet", "--deadline-ms", "1000"])
    found = document("ceiling", "--run", str(run), "--on", H100)
    assert found["measured"] == "execution, median" and found["flag"] == "low" and found["share"] < 0.2
    assert "L2-resident" in text("ceiling", "--run", str(run), "--on", H100)


# roofline
def test_roofline_holds_the_contract() -> None:
    found = document("roofline", "linear", "--hidden", "4096", "--tokens", "1", "--on", "h100-sxm")
    assert set(found) >= {"intensity", "ridge", "limited_by", "attainable_flop_s", "time_us"}
    assert (round(found["intensity"], 1), round(found["ridge"], 1), found["limited_by"]) == (1.0, 295.2, "memory")
    assert found["time_us"] == pytest.approx(10.0, abs=0.05)
    assert round(found["crossover_tokens"]) == 345 and round(found["crossover_tokens_weights_only"]) == 295
    never = document("roofline", "linear", "--hidden", "512", "--tokens", "1", "--on", H100)
    assert never["crossover_tokens"] is None


def test_roofline_of_other_work() -> None:
    attention = document("roofline", "attention", "--query-heads-per-kv", "4", "--on", H100)
    assert attention["intensity"] == 4 and round(attention["ridge"] / 4) == 74
    norm = document(
        "roofline", "rmsnorm", "--hidden", "4096", "--tokens", "4096", "--on", H100, "--bytes-per-element", "14"
    )
    assert round(norm["time_us"]) == 70
    plain = document("roofline", "linear", "--hidden", "4096", "--tokens", "1", "--on", H100, "--no-activations")
    assert plain["intensity"] == 1.0


def test_roofline_of_a_policys_operators() -> None:
    pytest.importorskip("onnx")
    found = document("roofline", "mlp", "--on", ORIN)
    assert found["dtype"] == "fp32" and len(found["operators"]) == 7 and found["limited_by"] == "launch"
    assert found["dram_applies"] is False and found["time_us"] == pytest.approx(found["compute_us"])
    assert "DRAM does not bound it (L2-resident)" in text("roofline", "mlp", "--on", ORIN)


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg"])
def test_roofline_writes_and_never_overwrites(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    arguments = [
        "roofline",
        "linear",
        "--hidden",
        "4096",
        "--tokens",
        "1",
        "--on",
        H100,
        "-o",
        str(tmp_path / f"r{suffix}"),
    ]
    assert "saved" in text(*arguments)
    assert "--force" in refused(*arguments)
    text(*arguments, "--force")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["linear", "--on", H100], "--hidden and --tokens"),
        (["linear", "--hidden", "0", "--tokens", "1", "--on", H100], "above 0"),
        (["linear", "--hidden", "8", "--tokens", "1", "--on", "gb10"], "bf16 peak unknown: give --peak bf16"),
        (["linear", "--hidden", "8", "--tokens", "1", "--on", H100, "--dtype", "tf32"], "dtype"),
        (["linear", "--hidden", "8", "--tokens", "1", "--on", H100, "--on", "L4"], "several devices"),
        (["linear", "--hidden", "8", "--tokens", "1", "--on", H100, "-o", "x.pdf"], "no known picture format"),
        (["null", "--on", H100], "can't be counted"),
        (["absent.onnx", "--on", H100], "absent.onnx"),
    ],
)
def test_roofline_refuses(arguments: list[str], words: str) -> None:
    assert words in refused("roofline", *arguments)


# devices
def test_devices_list_and_show() -> None:
    found = document("devices", "list")
    assert len(found["devices"]) == 70
    assert len(document("devices", "list", "--class", "jetson")["devices"]) == 19
    one = document("devices", "show", "AGX-ORIN")
    assert one["name"] == ORIN and one["bandwidth_bytes_s"] == 204.8e9 and one["sources"]["l2_mib"] == "runtime report"
    out = text("devices", "show", "H100 SXM")
    assert "295.2 FLOP/byte" in out and "not used" in out and "bf16 sparse" in out
    assert "unknown" in text("devices", "show", "gb10") and "derived:" in text("devices", "show", "orin-nano-8gb")
    assert "136.5 GB/s" in text("devices", "show", ORIN)
    refused("devices", "show", "orin")
    refused("devices", "list", "--class", "toaster")


def test_devices_detect(monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.devices.host import GpuFacts, HostFacts
    from robot_perf.measure.machine import cuda_facts

    def answer(facts: HostFacts) -> None:
        monkeypatch.setattr(cuda_facts, "host_facts", lambda: facts)

    answer(HostFacts(gpus=(GpuFacts("NVIDIA H200", 143771 * 2**20),)))
    assert document("devices", "detect")["device"] == "H200 SXM"
    assert document("roofline", "linear", "--hidden", "64", "--tokens", "1")["device"] == "H200 SXM"
    answer(HostFacts(gpus=(GpuFacts("Orin"),), memory_bytes=round(7.4 * 2**30)))
    found = document("devices", "detect")
    assert found["device"] is None and len(found["devices"][0]["candidates"]) == 4
    assert "Orin, module unknown" in text("devices", "detect")
    assert "Name one of them with --on" in refused("roofline", "linear", "--hidden", "64", "--tokens", "1")
    agx = HostFacts(
        device_tree_model="NVIDIA Jetson AGX Orin Developer Kit",
        memory_bytes=61 * 2**30,
        nvpmodel_query="NV Power Mode: 15W\n1",
    )
    answer(agx)
    found = document("devices", "detect")["devices"][0]
    assert found["power_mode"] == "15W" and found["bandwidth_bytes_s"] == 136.5e9
    assert document("roofline", "linear", "--hidden", "64", "--tokens", "1")["power_mode"] == "15W"
    answer(HostFacts(gpus=(GpuFacts("NVIDIA B300", 2**38),)))
    assert "--bandwidth-gb-s" in refused("devices", "detect")


def test_a_saved_probe_is_shown_beside_its_spec(tmp_path: Path) -> None:
    from robot_perf.specs import to_json
    from robot_perf.specs.device import ProbeReading, ProbeReport

    readings = (
        ProbeReading("copy", "bytes/s", 4.2e12, 4.1e12, 4.3e12, 20, 2**33, "fp32"),
        ProbeReading("read", "bytes/s", 5.0e12, 4.9e12, 5.1e12, 20, 2**33, "fp32"),
        ProbeReading("matmul", "FLOP/s", 0.7e15, 0.6e15, 0.8e15, 20, 2**30, "bf16"),
    )
    report = ProbeReport(
        "NVIDIA H200", "H200 SXM", 143771 * 2**20, 60 * 2**20, readings, {"matmul | fp8": "<b>no</b>"}, {"date": "2026"}
    )
    file = tmp_path / "probe.json"
    file.write_text(json.dumps(to_json(report)))
    found = document("devices", "probe", "--from", str(file))
    assert [r["share_of_spec"] for r in found["readings"]] == pytest.approx([0.875, 5.0 / 4.8, 0.7 / 0.989])
    out = text("devices", "probe", "--from", str(file))
    assert "88 %" in out and "above spec read" in out and "cache effect or the wrong device" in out
    text("devices", "probe", "--from", str(file), "-o", str(tmp_path / "probe.md"))
    page = (tmp_path / "probe.md").read_text()
    assert "| copy | fp32 | 4.8 TB/s | 4.2 TB/s |" in page and "<b>" not in page and "matmul \\| fp8" in page
    assert "not a probe report" in refused("devices", "probe", "--from", __file__)
    assert "unknown format" in refused("devices", "probe", "--from", str(file), "-o", "x.txt")


# launch
def test_launch_commands() -> None:
    found = document("launch", "overhead", "--per-layer", "15", "--layers", "32", "--gpu-ms", "0.6")
    assert found["launches"] == 480 and found["launch_ns"] == 2.4e6 and found["idle_fraction"] == 0.75
    assert "the GPU idles 75 % of it" in text("launch", "overhead", "--launches", "480", "--gpu-ms", "0.6")
    assert "the GPU sets the step" in text("launch", "overhead", "--launches", "480", "--gpu-ms", "4.8")
    assert "GPU busy 30 %, 25 steps/s" in text("launch", "busy", "--gpu-ms", "12", "--cpu-ms", "28")
    assert "43 %, 36 steps/s" in text("launch", "busy", "--gpu-ms", "12", "--cpu-ms", "28")
    assert "100 %, 83 steps/s" in text("launch", "busy", "--gpu-ms", "12", "--cpu-ms", "8")
    assert document("launch", "in-flight", "--rate", "1", "--duration", "10", "--slots", "64")["in_flight"] == 10
    assert "6.4/s would fill them" in text("launch", "in-flight", "--rate", "1", "--duration", "10", "--slots", "64")
    assert "how many launches" in refused("launch", "overhead", "--gpu-ms", "1")
    assert "above 0" in refused("launch", "in-flight", "--rate", "0", "--duration", "1")


def test_reading_commands_load_no_framework() -> None:
    """A ceiling is arithmetic: it must start on a laptop without torch or onnx, and fast."""
    code = (
        "import sys; from robot_perf.cli.__main__ import main\n"
        "try: main(['ceiling', '--params', '8e9', '--on', 'agx-orin', '--json'])\n"
        "except SystemExit: pass\n"
        "bad = {'torch', 'onnx', 'onnxruntime', 'scipy', 'pyarrow', 'plotly', 'matplotlib'} & set(sys.modules)\n"
        "sys.stderr.write(repr(bad)); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


GOOD = {
    "ceiling": ([["--params", "8e9"], ["--model", "pi0"], ["--model", "openvla"], ["--model", "llama-3.1-8b"]], "--context --batch --rate "
                "--accepted --weight-bits --kv-bits --launches --launch-us --views --solver-steps --decode-tokens --executed --chunk "
                "--head-params --l2-mib --bandwidth-gb-s --peak --power-mode --measured --weight-size --group-size --active-params --unit"),
    "roofline": ([["linear", "--hidden", "64", "--tokens", "2"], ["rmsnorm", "--hidden", "64", "--tokens", "2"], ["attention"]], "--hidden "
                 "--tokens --dtype --l2-mib --bandwidth-gb-s --peak --bytes-per-element --query-heads-per-kv --power-mode"),
}  # fmt: skip
VALUES = [
    "0",
    "-1",
    "1",
    "2",
    "16",
    "0.5",
    "1e9",
    "1e400",
    "1e-300",
    "inf",
    "nan",
    "abc",
    "",
    "bf16=1e9",
    "4.92 GB",
    "ms",
    "MAXN",
    "9" * 30,
]


def no_constant(word: str) -> None:
    """NaN and Infinity are no JSON."""
    pytest.fail(f"{word} in a JSON document")


def test_any_option_value_ends_in_an_answer_or_one_message() -> None:
    rng = random.Random(5)
    answered = 0
    for _ in range(300):
        name = rng.choice(list(GOOD))
        starts, options = GOOD[name]
        arguments = [name, *rng.choice(starts), "--on", rng.choice(["agx-orin", "h100-sxm", "gb10"]), "--json"]
        for _ in range(rng.randint(0, 2)):
            arguments += [rng.choice(options.split()), rng.choice(VALUES)]
        code, out, err = run(*arguments)
        assert code in (0, 2), arguments
        if code == 0:
            json.loads(out, parse_constant=no_constant)
            answered += 1
        else:
            assert err and "Traceback" not in err, arguments
    assert answered > 40
