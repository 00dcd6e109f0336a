"""`diagnose` from outside: the JSON contract, exit codes, hostile files, and identities that must never come out."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import executions, make_run

from robot_perf.cli.__main__ import main
from robot_perf.run.parquet import save

Run = Callable[..., tuple[int, str, str]]
RULES = {"launch/CPU", "sync", "host stage", "transfer", "communication", "dependency", "GPU", "cold start", "short kernels", "blocked calls", "host ahead"}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process: (exit code, stdout, stderr)."""

    def call(*words: object) -> tuple[int, str, str]:
        try:
            main([str(w) for w in words])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture(scope="module")
def samples(shared_dir: Path) -> Path:
    return shared_dir / "profiles"


def files(samples: Path) -> list[Path]:
    return sorted(p for p in samples.iterdir() if p.is_file() and p.suffix != ".md" and p.name != "SHA256SUMS")


def test_the_json_contract(run: Run, samples: Path) -> None:
    code, out, _ = run("diagnose", samples / "kineto_h200_mlp_eager_200hz.json.gz", "--rate", "200", "--json")
    document = json.loads(out)
    assert (code, document["primary"], out.count("\n")) == (0, "launch/CPU", 1)
    assert document["profile"]["kernels"] == 210 and document["profile"]["launches"] == 210
    assert document["profile"]["busy_fraction"] == pytest.approx(0.003184, abs=1e-6)
    for f in document["findings"]:
        assert {"rule", "outcome", "reason", "evidence"} <= set(f)
        assert f["rule"] in RULES and f["outcome"] in ("found", "clean", "can't answer")


def test_exit_codes_of_every_sample(run: Run, samples: Path) -> None:
    for path in files(samples):
        code, out, err = run("diagnose", path, "--json")
        if path.name == "ncu_error_only.csv":
            assert code == 2 and err.startswith("robot-perf: ") and not out
            continue
        outcomes = {f["outcome"] for f in json.loads(out)["findings"]}
        assert code == (3 if outcomes == {"can't answer"} else 0), path.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "no such device"), "no such device"), (("--steps", "("), "not a regular expression"), (("--rate", "0"), "rate"), (("--threshold", "a=1"), "unknown"),
        (("--threshold", "primary_share=x"), "NAME=NUMBER"), (("--predict", "x@linear=1x2x3,dtype=bf16"), "needs an ncu report"), (("--predict", "nonsense"), "can't be read"),
        (("--counters", "missing.csv"), "no such file"), (("--counters", "."), ".: is a folder"), (("--cache-control", "perhaps"), "Allowed: none, all"), (("-o", "report.pdf"), ".md, .html or .json"),
    ],
)  # fmt: skip
def test_bad_options_end_in_one_message(run: Run, samples: Path, words: tuple[str, ...], message: str) -> None:
    path = samples / (
        "ncu_h200_raw_base_C.csv" if words == ("--predict", "nonsense") else "kineto_h200_mlp_eager_200hz.json.gz"
    )
    code, out, err = run("diagnose", path, *words)
    assert code == 2 and message in err and "Traceback" not in err and not out


def test_predictions_through_the_command_line(run: Run, samples: Path) -> None:
    words = (
        "--predict",
        "gemm_8192@linear=8192x8192x8192,dtype=bf16",
        "--predict",
        "stream_add@elements=67108864,dtype=fp32",
        "--cache-control",
        "none",
    )
    code, out, _ = run("diagnose", samples / "ncu_h200_raw_base_C.csv", *words, "--json")
    found = json.loads(out)["predictions"]
    assert (code, [p["outcome"] for p in found]) == (0, ["confirmed", "confirmed"])
    code, out, err = run("diagnose", samples / "ncu_h200_raw_base_C.csv", "--predict", "absent@linear=1x2x3,dtype=bf16")
    assert code == 2 and "no kernel matches" in err
    code, out, err = run(
        "diagnose", samples / "ncu_rtx5090_details_k0001.csv", "--predict", "kernel@linear=1x2x3,dtype=bf16"
    )
    assert code == 2 and "--on DEVICE" in err


def test_reports_are_written_and_never_over_another(run: Run, samples: Path, tmp_path: Path) -> None:
    for name, start in (("r.md", "# "), ("r.html", "<!doctype html>"), ("r.json", "{")):
        path = tmp_path / name
        code, out, _ = run("diagnose", samples / "kineto_h200_camera_pageable.json.gz", "-o", path)
        assert code == 0 and out.splitlines()[-1] == f"saved      {path}"
        assert path.read_text(encoding="utf-8").startswith(start)
        code, _, err = run("diagnose", samples / "kineto_h200_camera_pageable.json.gz", "-o", path)
        assert code == 2 and "--force" in err


def test_a_vendor_report_prints_its_export_line(run: Run, tmp_path: Path) -> None:
    for name, head, tool in (
        ("a.ncu-rep", b"NVR\x00\x01", "ncu --import"),
        ("a.nsys-rep", b"\x12NVIDIA Tegra Profiler Report 2025.3.1", "nsys export"),
    ):
        path = tmp_path / name
        path.write_bytes(head + bytes(range(256)) * 4)
        code, _, err = run("diagnose", path)
        assert code == 2 and tool in err and "--export" in err


def test_export_without_the_tool_is_one_message(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\x00" + bytes(100))
    code, _, err = run("diagnose", path, "--export")
    assert code == 2 and "ncu is not on the PATH" in err


def test_export_runs_the_users_own_tool(
    run: Run, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$LC_ALL" = C ] && cat "{samples / "ncu_h200_raw_base_C.csv"}"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\x00" + bytes(100))
    code, out, _ = run("diagnose", path, "--export", "--json")
    assert code == 0 and json.loads(out)["primary"] == "high throughput, compute"


def test_no_output_of_any_sample_holds_a_planted_secret(run: Run, samples: Path, tmp_path: Path) -> None:
    texts: list[str] = []
    for path in files(samples):
        base = tmp_path / path.name
        for words in (
            ("--json",),
            ("-o", f"{base}.md"),
            ("-o", f"{base}.html"),
            ("-o", f"{base}.json"),
            ("--trace", f"{base}.trace.json"),
        ):
            _, out, err = run(
                "--debug" if words == ("never",) else "diagnose", *(() if words == ("never",) else (path, *words))
            )
            texts += [out, err]
    texts += [p.read_text(encoding="utf-8") for p in tmp_path.iterdir()]
    whole = "\n".join(texts)
    assert len(whole) > 500_000, "outputs were made"
    for secret in ("canary", "CANARY", "example-host", "/home/example", "not-a-secret"):
        assert secret not in whole


def test_a_secret_planted_in_every_identity_field_stays_inside(run: Run, samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "planted.sqlite"
    path.write_bytes((samples / "nsys_2025.3_t4_power_iteration.sqlite").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE META_DATA_CAPTURE SET value = 'planted-7f3a' WHERE name NOT LIKE '%CUDA_GRAPH_TRACE%'")
        db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'planted-7f3a'")
        db.execute("UPDATE META_DATA_EXPORT SET value = 'planted-7f3a' WHERE name NOT LIKE '%VERSION%'")
        db.execute("INSERT INTO StringIds VALUES (999999, 'planted-7f3a')")
        db.execute(
            "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid) VALUES (0, 1, 1, 2, 'env HOME=/root/planted-7f3a TOKEN=planted-7f3a', 0)"
        )
    db.close()
    trace = json.loads(gzip.decompress((samples / "kineto_h200_mlp_eager_200hz.json.gz").read_bytes()))
    trace |= {"username": "planted-7f3a", "host_name": "planted-7f3a", "metadata": {"env": "planted-7f3a"}}
    for e in trace["traceEvents"]:
        if e["ph"] == "M":
            e["args"] = {"name": "planted-7f3a", "labels": "planted-7f3a"}
    other = tmp_path / "planted.json"
    other.write_text(json.dumps(trace))
    ncu = tmp_path / "planted.csv"
    ncu.write_text(
        (samples / "ncu_h200_raw_base_C.csv")
        .read_text()
        .replace("127.0.0.1", "planted-7f3a")
        .replace("python3.12", "planted-7f3a")
    )
    for file in (path, other, ncu):
        for words in ((), ("--json",), ("-o", "-"), ("--trace", str(tmp_path / f"{file.name}.out.json"))):
            _, out, err = run("diagnose", file, *words)
            assert "planted-7f3a" not in out + err
    assert not any("planted-7f3a" in p.read_text() for p in tmp_path.glob("*.out.json"))


def test_names_from_a_file_are_escaped_everywhere(run: Run, tmp_path: Path) -> None:
    evil = '<script>alert(1)</script>| [x](http://e) `c` \x1b[2J *b* "q" \u202e'
    rows = []
    for i in range(30):
        rows += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"{evil}",
                "pid": 9,
                "tid": 9,
                "ts": i * 1000.0,
                "dur": 900.0,
                "args": {},
            },
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 9,
                "tid": 9,
                "ts": i * 1000.0,
                "dur": 5.0,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": evil,
                "pid": 0,
                "tid": 7,
                "ts": i * 1000.0 + 6,
                "dur": 880.0,
                "args": {"device": 0, "stream": 7, "correlation": i + 1},
            },
        ]
    path = tmp_path / "<img src=x>.json"
    path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": evil}], "traceEvents": rows}))
    for suffix in ("md", "html"):
        assert run("diagnose", path, "-o", tmp_path / f"out.{suffix}", "--force")[0] == 0
    html = (tmp_path / "out.html").read_text()
    assert "<script" not in html and "<img" not in html and "alert(1)" in html
    markdown = (tmp_path / "out.md").read_text()
    assert "<script" not in markdown and "[x](" not in markdown and "`c`" not in markdown and "://" not in markdown
    _, out, _ = run("diagnose", path)
    assert "\x1b" not in out and "\u202e" not in out
    code, out, _ = run("diagnose", path, "--json")
    assert code == 0 and json.loads(out)


def test_a_trace_of_any_timeline_reads_back_with_the_same_facts(run: Run, samples: Path, tmp_path: Path) -> None:
    for name in (
        "kineto_h200_mlp_eager_200hz.json.gz",
        "nsys_2026.2_h100x2_transfer.sqlite.gz",
        "kineto_v100_resnet_epoch_us.json.gz",
    ):
        path = tmp_path / f"{name}.json"
        _, first, _ = run("diagnose", samples / name, "--trace", path, "--json")
        _, second, _ = run("diagnose", path, "--json")
        a, b = json.loads(first)["profile"], json.loads(second)["profile"]
        assert a["kernels"] == b["kernels"] and b["busy_fraction"] == pytest.approx(a["busy_fraction"], rel=1e-9)
    code, _, err = run("diagnose", samples / "ncu_h200_raw_base_C.csv", "--trace", tmp_path / "x.json")
    assert code == 2 and "no timeline" in err


FOREIGN: dict[str, bytes] = {
    "empty": b"", "blank": b" \n\t\n", "a png": b"\x89PNG\r\n\x1a\n" + bytes(64), "an elf": b"\x7fELF" + bytes(200), "a zip": b"PK\x03\x04" + bytes(64), "text": b"hello\nworld\n",
    "a csv of something": b"a,b,c\n1,2,3\n", "yaml": b"a: 1\n", "an lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a bomb's head": gzip.compress(b"")[:5],
    "gzip of nothing": gzip.compress(b""), "gzip in gzip": gzip.compress(gzip.compress(b"{}")), "cut gzip": gzip.compress(b'{"traceEvents": []}' * 100)[:-12], "sqlite magic only": b"SQLite format 3\x00",
    "sqlite magic and noise": b"SQLite format 3\x00" + bytes(range(256)) * 40, "json null": b"null", "json number": b"[1]", "json text": b'"x"', "utf-16 json": '{"traceEvents": []'.encode("utf-16"),
    "nul bytes": bytes(4096), "high bytes": b"\xff" * 4096, "a parquet of something": b"PAR1" + bytes(64) + b"PAR1", "one quote": b'"', "ncu header only": b'"ID","Kernel Name","Metric Name"\n',
    "only warnings": b"==WARNING== x\n", "only prof": b"==PROF== x\n", "a very long line": b"x" * 3_000_000, "many commas": b"," * 200_000, "many quotes": b'"' * 200_001, "many brackets": b"[" * 300_000,
    "many braces": b'{"a":' * 100_000, "an unfinished escape": b'[{"name": "\\u12', "bare surrogates": b'[{"ph":"X","cat":"kernel","name":"\\ud800"}]',
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_end_in_one_message_and_exit_2(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(FOREIGN[name])
    code, out, err = run("diagnose", path)
    assert code == 2 and not out
    assert err.startswith("robot-perf: ") and "Traceback" not in err and len(err) < 1500


def test_folders_absent_and_unreadable_files(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", Path("/proc/self/mem")):
        code, out, err = run("diagnose", path)
        assert code == 2 and not out and err.startswith("robot-perf: ")


MUTATED = (
    "kineto_h100_bert_small.json.gz", "kineto_a100_event_sync_int_us.json.gz", "nsys_2025.5_rtx3060_graph.sqlite", "nsys_synthetic_minimal.sqlite", "ncu_h200_raw_base_C.csv",
    "ncu_rtx5090_details_k0003.csv", "ncu_h200_metrics_few_stdout.csv", "stats_h100x2_cuda_api_sum.csv", "stats_rtx3060_graph_cuda_gpu_trace.csv", "stats_h100x2_stdout_mixed.txt",
)  # fmt: skip


def mutate(data: bytes, generator: random.Random) -> bytes:
    """One of the ways in which files come to harm."""
    kind = generator.randrange(9)
    at = generator.randrange(1, len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[at:]
    if kind == 2:
        return data[:at] + bytes([data[at] ^ (1 << generator.randrange(8))]) + data[at + 1 :]
    if kind == 3:
        return data[:at] + generator.randbytes(generator.randrange(1, 200)) + data[at:]
    if kind == 4:
        return data[:at] + data[at + generator.randrange(1, 400) :]
    if kind == 5:
        return data[:at] + data[:at]
    if kind == 6:
        return data.replace(
            generator.choice([b"0", b"1", b",", b'"', b":", b"."]),
            generator.choice([b"-", b"9" * 30, b"", b"x", b"e", b"\x00"]),
            generator.randrange(1, 40),
        )
    if kind == 7:
        return data[:at] + bytes(generator.randrange(1, 5000)) + data[at:]
    middle = data[at : at + 64]
    return data[:at] + middle * 50 + data[at:]


@pytest.mark.parametrize("name", MUTATED)
@pytest.mark.filterwarnings("error")
def test_mutations_end_in_an_answer_or_one_message(run: Run, samples: Path, tmp_path: Path, name: str) -> None:
    """30 of each of ten files, 300 in all: an answer (0 or 3), or one message and exit 2. Never a traceback, never NaN in JSON."""
    original = (samples / name).read_bytes()
    inner = gzip.decompress(original) if name.endswith(".gz") else original
    generator = random.Random(name)
    refused = 0
    for number in range(30):
        data = mutate(original if number % 6 == 5 else inner, generator)
        path = tmp_path / f"m{number}"
        path.write_bytes(data)
        code, out, err = run("diagnose", path, "--json")
        path.unlink()
        assert code in (0, 2, 3), (number, code)
        if code == 2:
            refused += 1
            assert err.startswith("robot-perf: ") and not out and "Traceback" not in err and len(err) < 1500, (
                number,
                err,
            )
        else:
            assert_finite(json.loads(out))
    assert refused >= 3, "the mutations do harm"


def assert_finite(value: Any) -> None:
    if isinstance(value, dict):
        for v in value.values():
            assert_finite(v)
    elif isinstance(value, list):
        for v in value:
            assert_finite(v)
    elif isinstance(value, float):
        assert math.isfinite(value)


def test_a_gzip_bomb_is_stopped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.profiles import sniff

    monkeypatch.setattr(sniff, "MAX_UNPACKED_BYTES", 1 << 20)
    for head in (b'{"traceEvents": [', b"SQLite format 3\x00", b"a,b\n"):
        path = tmp_path / "bomb"
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb") as packed:
            packed.write(head)
            for _ in range(64):
                packed.write(b" " * (1 << 16))
        path.write_bytes(buffer.getvalue())
        code, _, err = run("diagnose", path)
        assert code == 2 and "more than 1 MiB" in err


def test_one_endless_value_is_stopped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robot_perf.profiles.kineto import jsonstream

    monkeypatch.setattr(jsonstream, "MAX_VALUE_BYTES", 1 << 18)
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", 1 << 14)
    path = tmp_path / "long.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * (1 << 20))
    code, _, err = run("diagnose", path)
    assert code == 2 and "longer than" in err


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"state": "interrupted after 100 of 1,000 releases"}, "interrupted"),
        ({"invalid": ["NaN in the action of 3 of 100 steps"]}, "NaN"),
    ],
)
def test_an_invalid_run_is_said_to_be_one_first(run: Run, tmp_path: Path, broken: dict[str, Any], words: str) -> None:
    path = save(
        make_run(executions(100), scheduled=1000 if "state" in broken else 100, **broken), tmp_path / "r.parquet"
    )
    _, out, _ = run("diagnose", path)
    said = " ".join(out.split())
    assert out.startswith("INVALID: ") and words in said.split("; what follows is about an invalid measurement")[0]
    assert words in json.loads(run("diagnose", path, "--json")[1])["invalid"]
    for suffix in ("md", "html"):
        run("diagnose", path, "-o", tmp_path / f"out.{suffix}")
        written = (tmp_path / f"out.{suffix}").read_text(encoding="utf-8")
        assert "what follows is about an invalid measurement" in written


def test_a_valid_run_is_not_called_invalid(run: Run, tmp_path: Path) -> None:
    path = save(make_run(executions(100), scheduled=100), tmp_path / "r.parquet")
    assert "INVALID" not in run("diagnose", path)[1]
    assert json.loads(run("diagnose", path, "--json")[1])["invalid"] is None


@pytest.mark.parametrize("value", ["nan", "0", "-1", "inf"])
def test_a_probed_bandwidth_that_is_none_is_refused(run: Run, samples: Path, value: str) -> None:
    code, _, err = run("diagnose", samples / "ncu_h200_raw_base_C.csv", "--probed-gb-s", value)
    assert code == 2 and f"--probed-gb-s {value} is out of range" in err
