"""What the RMSNorm bench says: targets, means and their intervals, tables, what is missing, and going on from a part."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bench_stand_in import measure

from robot_perf.errors import UsageError
from robot_perf.measure.kernel_bench.points import HEADLINE, MIXED, WIDE, bytes_touched, left_out
from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS, SERIAL
from robot_perf.measure.kernel_bench.summary import summarise
from robot_perf.tasks import kernels as task


def test_a_rule_leaves_providers_out_and_the_report_says_so(stand_in):
    report, _ = measure(parts=(HEADLINE[:2], WIDE[:3]), left_out={"eager": ("too slow", frozenset(WIDE))})
    assert ["eager" in p["providers"] for p in report["points"]] == [True, True, False, False, False]
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x")
    assert f"eager: left out by a rule fixed beforehand, {len(WIDE)} points of the wide sweep: too slow" in page
    assert set(left_out()) <= {*PROVIDERS, "copy"}
    assert OURS not in left_out()
    points = left_out()["copy"][1]
    assert points < set(WIDE)
    assert all(bytes_touched(p) >= 256e6 for p in set(WIDE) - points)


def test_the_copy_is_left_out_where_no_share_of_it_is_asked_for(stand_in):
    report, _ = measure(parts=(HEADLINE[:1], WIDE[:2]), left_out={"copy": ("too small", frozenset(WIDE))})
    assert ["way" in p["copy"] for p in report["points"]] == [True, False, False]
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x")
    assert "copy: left out by a rule fixed beforehand" in page
    assert "copy: left out" not in task.markdown(task.document(measure(points=HEADLINE[:1])[0], spec_gb_s=4800.0), "x")


def test_a_stopped_bench_goes_on_where_it_stopped(stand_in, monkeypatch):
    first, kept = measure(points=HEADLINE[:3])
    assert kept[-1]["points"] == first["points"]  # the partial report has what was measured
    whole, _ = measure(points=HEADLINE[:5], resumed=first)
    assert [(p["op"], p["m"], p["d"]) for p in whole["points"]] == [(p.op, p.m, p.d) for p in HEADLINE[:5]]
    assert whole["points"][:3] == first["points"]
    for other in (
        {"torch": "1.0"},
        {"kernels": "of another launch table"},
        {"rounds": 2},
        {"replays": 9},
        {"triton": "3.5"},
    ):
        with pytest.raises(UsageError, match="go on") as refused:
            measure(points=HEADLINE[:5], resumed={**first, **other})
        assert next(iter(other)) in str(refused.value)


def test_the_summary_and_every_rendering(stand_in):
    report, _ = measure(points=(*HEADLINE, *MIXED, *WIDE[:6]))
    found = task.document(report, spec_gb_s=4800.0)
    json.dumps(found, allow_nan=False)
    summary = found["summary"]
    mean = summary["geometric_mean"][OURS]["headline"]
    assert mean["n"] == 30
    assert 1.03 < mean["low"] < mean["value"] < mean["high"] < 1.06  # the best stand-in peer takes 1.05 of ours
    assert summary["geometric_mean"][SERIAL]["headline"]["value"] < 1
    assert {v["what"].split(":")[0] for v in summary["verdicts"]} >= {"headline", "wide"}
    assert all(v["met"] in (True, False) for v in summary["verdicts"] if "copy" in v["what"])
    fit = next(f for f in summary["fits"] if f["provider"] == OURS and f["op"] == "rms_norm" and f["d"] == 4096)
    assert fit["t0_us"] == pytest.approx(1.0, abs=0.1)
    assert fit["gb_s"] == pytest.approx(4100, rel=0.05)
    bound = [r for r in summary["rows"] if r["launch_bound"]]
    assert all(r["bytes"] < summary["boundary"]["bytes"] for r in bound)
    text = task.text(found)
    assert "geometric mean" in text
    page = task.markdown(found, "robot-perf kernels bench rmsnorm", "rmsnorm.png")
    launch = page.split("## Launch-bound points")[1].split("## Bandwidth-bound")[0]
    assert "GB/s |" not in launch
    assert "not available: quack.rmsnorm" in page
    assert "7 ulp" in page
    assert "1 x 4096" in page
    assert "aten::_fused_rms_norm ran at" in page
    assert task.chart(found).startswith(b"\x89PNG")


def test_a_value_above_the_memorys_peak_is_flagged():
    samples = {"warm": [1.0], "cold": [1.0], "host": [9.0]}
    point = {"op": "rms_norm", "m": 4096, "d": 4096, "dtype": "bfloat16", "weight": "bfloat16", "bytes": 67_000_000,
             "providers": {OURS: {"samples_us": samples, "cold_by": "rotation"}}, "copy": {}}  # fmt: skip
    row = summarise({"points": [point]}, [], 4800.0)["rows"][0]
    assert row["providers"][OURS]["above_peak"]


def test_a_time_that_does_not_grow_with_the_bytes_is_doubted():
    def at(m, us):
        found = {"samples_us": {"warm": [us], "cold": [us]}, "cold_by": "rotation"}
        return {"op": "rms_norm", "m": m, "d": 4096, "dtype": "bfloat16", "weight": "bfloat16", "bytes": m * 16384,
                "providers": {OURS: found, "liger": {**found, "samples_us": {"warm": [90.0], "cold": [90.0]}}},
                "copy": {"samples_us": {"cold": [us]}}}  # fmt: skip

    summary = summarise({"points": [at(1, 1.0), at(4096, 18.0), at(8192, 34.0), at(32768, 130.0)]}, [], 4800.0)
    assert [(f["provider"], f["m"]) for f in summary["flat"]] == [("liger", [4096, 32768]), ("liger", [8192, 32768])]


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(UsageError, match="sweep"):
        task.bench_rmsnorm(task.RmsNormRequest(sweep="tiny"), print, print)
    with pytest.raises(UsageError, match="provider"):
        task.bench_rmsnorm(task.RmsNormRequest(providers=("apex",)), print, print)
    bad = tmp_path / "x.json"
    bad.write_text("{}")
    with pytest.raises(UsageError, match="schema"):
        task.read_report(bad)
    with pytest.raises(UsageError, match="read"):
        task.read_report(tmp_path / "none.json")


def test_the_command_renders_an_earlier_report(stand_in, tmp_path):
    from typer.testing import CliRunner

    from robot_perf.cli.kernels import app

    report, _ = measure(points=HEADLINE[:3])
    source = tmp_path / "raw.json"
    source.write_text(json.dumps(report))
    run = CliRunner().invoke(
        app, ["bench", "rmsnorm", "--from", str(source), "--spec-gb-s", "4800", "--json", "-o", str(tmp_path / "out")]
    )
    assert run.exit_code == 0, run.output
    assert json.loads(run.output)["summary"]["rows"]
    assert (tmp_path / "out.md").read_text().count("out.png") == 1
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(app, ["bench", "rmsnorm", "--from", str(tmp_path / "out.json"), "--spec-gb-s", "4800"])
    assert again.exit_code == 0
    assert np.isfinite(json.loads((tmp_path / "out.json").read_text())["spec_gb_s"])


def verdict(summary, what):
    return next(v for v in summary["verdicts"] if v["what"].startswith(what))


def test_a_target_is_met_by_all_points_alone(stand_in):
    whole, _ = measure(points=HEADLINE)
    summary = task.document(whole, spec_gb_s=4800.0)["summary"]
    mean = verdict(summary, "headline: geometric mean")
    assert mean["met"] is True
    assert "n = 30 of 30" in mean["measured"]
    assert "without quack" in mean["measured"]  # who isn't there can't be the fastest
    part = {**whole, "points": whole["points"][:1], "not_reached": [p.name for p in HEADLINE[1:]]}
    found = task.document(part, spec_gb_s=4800.0)
    for what, counted in (
        ("headline: geometric mean", "n = 1 of 30"),
        ("headline: worst point", ""),
        ("headline: least share", "not measured"),
        ("M = 1, d = 4096", "not measured"),
        ("host cost", "1 of 10 points"),
    ):
        open_yet = verdict(found["summary"], what)
        assert open_yet["met"] is None, open_yet
        assert counted in open_yet["measured"]
    page = task.markdown(found, "x").split("## Launch-bound")[0]
    assert "| open |" in page
    assert "| yes |" not in page


def test_host_cost_is_judged_by_op_and_by_what_ran_in_our_process(stand_in):
    report, _ = measure(points=HEADLINE)
    few = [p for p in report["points"] if p["m"] <= 16]

    def judged(plain, fused):
        for point in few:
            samples = point["providers"][OURS]["samples_us"]
            samples["host"], samples["host beside"] = [10.0] * 3, [plain if point["op"] == "rms_norm" else fused] * 3
        return verdict(task.document(report, spec_gb_s=4800.0)["summary"], "host cost")

    good = judged(10.0, 30.0)
    assert good["met"] is True
    assert "rms_norm 10.0 µs against 10.0; add_rms_norm 10.0 µs against 30.0" in good["measured"]
    assert "10 of 10 points, in one process; at most 1.00 times" in good["measured"]
    assert judged(8.0, 30.0)["met"] is False  # the fused add doesn't make up for it
    without = few[0]["providers"][OURS]["samples_us"].pop("host")
    del few[0]["providers"][OURS]["samples_us"]["host beside"]
    part = verdict(task.document(report, spec_gb_s=4800.0)["summary"], "host cost")["measured"]
    assert "9 of 10 points, in one process" in part  # a point that was not timed says nothing of the others
    few[0]["providers"][OURS]["samples_us"] |= {"host": without, "host beside": without}
    for point in few:
        del point["providers"][OURS]["samples_us"]["host beside"]
        point["providers"]["F.rms_norm"]["samples_us"]["host"] = [20.0] * 3
    assert (
        "in processes of their own"
        in verdict(task.document(report, spec_gb_s=4800.0)["summary"], "host cost")["measured"]
    )


def test_a_point_at_which_ours_fails_is_not_left_out_of_the_count(stand_in):
    report, _ = measure(points=HEADLINE)
    report["points"][3]["providers"][OURS] = {"error": "RuntimeError: it broke", "samples_us": {}}
    mean = verdict(task.document(report, spec_gb_s=4800.0)["summary"], "headline: geometric mean")
    assert mean["met"] is None
    assert "n = 29 of 30" in mean["measured"]


def test_a_bad_point_is_bad_however_many_are_missing(stand_in):
    report, _ = measure(points=HEADLINE[:2])
    slow = report["points"][1]["providers"][OURS]["samples_us"]
    report["points"][1]["providers"][OURS]["samples_us"] = {kind: [9 * v for v in us] for kind, us in slow.items()}
    report["not_reached"] = [p.name for p in HEADLINE[2:]]
    summary = task.document(report, spec_gb_s=4800.0)["summary"]
    assert verdict(summary, "headline: worst point")["met"] is False
    assert verdict(summary, "M = 1, d = 4096")["met"] is False
    assert verdict(summary, "headline: geometric mean")["met"] is None


def test_the_wide_sweep_answers_from_150_points_on(stand_in):
    report, _ = measure(parts=(WIDE[:2],), left_out={"eager": ("slow", frozenset(WIDE))})
    few = verdict(
        task.document({**report, "not_reached": [p.name for p in WIDE[2:]]}, 4800.0)["summary"], "wide: geometric"
    )
    assert few["met"] is None
    assert f"n = 2 of {len(WIDE)}" in few["measured"]
    assert "150 asked for" in few["measured"]
    assert "without eager, quack" in few["measured"]
    many = {**report, "points": report["points"] * 75, "not_reached": [p.name for p in WIDE[150:]]}
    assert verdict(task.document(many, 4800.0)["summary"], "wide: geometric")["met"] is True


def test_the_interval_takes_turns_whole():
    def at(turns):  # ours drifts between turns, not within one
        ours = [us for us in turns for _ in range(4)]
        timed = {
            n: {"samples_us": {"warm": us, "cold": us}, "cold_by": "rotation"}
            for n, us in ((OURS, ours), ("liger", [2.0] * 12))
        }
        return {"op": "rms_norm", "m": 1, "d": 1024, "dtype": "bfloat16", "weight": "bfloat16", "bytes": 6144,
                "providers": timed, "copy": {}}  # fmt: skip

    def interval(turns):
        report = {"rounds": 3, "points": [at(turns)]}
        mean = summarise(report, [("rms_norm", 1, 1024)], 4800.0)["geometric_mean"][OURS]["headline"]
        return mean["low"], mean["high"]

    assert interval((1.0, 1.0, 1.0)) == pytest.approx((2.0, 2.0))
    low, high = interval((0.8, 1.0, 1.25))
    assert low == pytest.approx(
        2 / 1.25
    )  # twelve samples drawn one by one hardly ever have a median outside the middle turn
    assert high == pytest.approx(2 / 0.8)


def test_a_cold_time_lost_in_the_flushs_noise_is_left_out_and_the_report_is_still_json():
    def point(d, cold):
        timed = {"warm": [1.0, 1.1], "cold": cold}
        providers = {n: {"samples_us": timed, "cold_by": "flush"} for n in (OURS, "liger")}
        return {
            "op": "rms_norm",
            "m": 1,
            "d": d,
            "dtype": "bfloat16",
            "weight": "bfloat16",
            "bytes": 6144,
            "providers": providers,
            "copy": {},
        }

    report = {"points": [point(1024, [1.4, 1.5]), point(4096, [-0.1, 0.4])]}
    summary = summarise(report, [("rms_norm", 1, 1024), ("rms_norm", 1, 4096)], 4800.0)
    json.dumps(summary["geometric_mean"], allow_nan=False)
    assert summary["geometric_mean"][OURS]["headline"]["n"] == 2
    assert summary["geometric_mean"][OURS]["headline, cold cache"]["n"] == 1


def test_without_the_boundary_no_point_gets_a_bandwidth(stand_in):
    report, _ = measure(points=[p for p in HEADLINE if p.m == 1])  # no copy of 256 MB
    found = task.document(report, spec_gb_s=4800.0)
    assert found["summary"]["boundary"] is None
    assert {r["launch_bound"] for r in found["summary"]["rows"]} == {None}
    assert found["summary"]["flat"] == []
    assert found["summary"]["fits"] == []
    page = task.markdown(found, "x")
    assert "## All points" in page
    rows = [
        line.split(" | ")
        for line in page.split("## All points")[1].split("\n## ")[0].splitlines()
        if line.startswith("| 1 x")
    ]
    assert len(rows) == 8
    assert {tuple(cells[-5:-2]) for cells in rows} == {("–", "–", "–")}  # GB/s, of copy, of spec


def test_a_point_between_rotation_and_boundary_is_marked_warm(stand_in):
    report, _ = measure(points=(*HEADLINE[:8], *WIDE), providers=(OURS, "liger"))
    found = task.document(report, spec_gb_s=4800.0)
    between = [
        r for r in found["summary"]["rows"] if not r["launch_bound"] and r["providers"][OURS]["ranked_by"] == "warm"
    ]
    page = task.markdown(found, "x").split("## Bandwidth-bound")[1].split("## Predicted")[0]
    marked = {line.split(" | ")[0] for line in page.splitlines() if "(warm)" in line}
    assert marked == {f"| {r['m']} x {r['d']} (warm)" for r in between}
    # the stand-in rotates from 3 MB that move on, the boundary is at 4.1 MB
    for point in found["report"]["points"]:
        if point["bytes"] > 5e6:
            point["providers"][OURS]["cold_by"] = point["providers"]["liger"]["cold_by"] = "flush"
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x").split("## Bandwidth-bound")[1]
    assert "| 4096 x 4096 (warm) |" in page


def test_the_wide_sweep_alone_knows_its_boundary(stand_in):
    report, _ = measure(points=WIDE, providers=(OURS, "liger"))
    boundary = task.document(report, spec_gb_s=4800.0)["summary"]["boundary"]
    assert boundary["t0_us"] == pytest.approx(1.0, abs=0.1)
    assert boundary["copy_gb_s"] == pytest.approx(4100, rel=0.03)


def test_a_slope_of_the_caches_is_no_bandwidth():
    def at(m, d, us):
        found = {"samples_us": {"warm": [us], "cold": [us]}, "cold_by": "rotation" if m > 8000 else "flush"}
        return {"op": "rms_norm", "m": m, "d": d, "dtype": "bfloat16", "weight": "bfloat16", "bytes": 4 * m * d,
                "providers": {OURS: found}, "copy": {"samples_us": {"cold": [us]}}}  # fmt: skip

    small = [at(m, 64, 1 + 4 * m * 64 / 9e6) for m in (1, 512, 2048)]  # all of them launch-bound, from the L2
    mixed = [at(1, 4096, 1.0), at(16, 4096, 1.03), at(32768, 4096, 100.0)]
    fits = summarise({"points": [*small, *mixed]}, [], 4800.0)["fits"]
    assert [(f["d"], f["above_peak"]) for f in fits] == [(4096, True)]
    page = task.markdown(
        {
            "report": FRAME | {"points": [*small, *mixed]},
            "summary": summarise(FRAME | {"points": [*small, *mixed]}, [], 4800.0),
        },
        "x",
    )
    assert "above the memory's peak" in page.split("## Fit")[1]


FRAME = {
    "gpu": {"name": "x", "capability": "9.0", "sm": 1, "l2_bytes": 1}, "torch": "2", "rounds": 1, "replays": 1, "providers": {},
}  # fmt: skip


def test_a_profiler_that_fails_is_named(stand_in):
    report, _ = measure(points=HEADLINE[:1])
    report["points"][0]["providers"][OURS]["profile_error"] = "RuntimeError: CUPTI is busy"
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x")
    assert f"{OURS}: timed, but the profiler failed: RuntimeError: CUPTI is busy (1 points" in page


def test_points_of_a_bench_that_was_killed_are_not_reached(stand_in):
    _, kept = [], []
    first, _ = measure(points=HEADLINE[:3])

    class Killed(BaseException):
        pass

    def keep(report):
        kept.append(json.loads(json.dumps(report)))
        if len(report["points"]) == 1:
            raise Killed

    from robot_perf.measure.kernel_bench.conductor import BenchRequest, run_bench

    with pytest.raises(Killed):
        run_bench(BenchRequest((HEADLINE[:3],), tuple(PROVIDERS), rounds=3, replays=3), lambda line: None, keep)
    assert kept[-1]["not_reached"] == [p.name for p in HEADLINE[1:3]]
    page = task.markdown(task.document(kept[-1], spec_gb_s=4800.0), "x")
    assert "not reached before the bench was ended: 2 points" in page
    assert first["not_reached"] == []


def test_a_partial_report_is_whole_and_goes_once_the_report_is_there(stand_in, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from robot_perf.cli import kernels as command
    from robot_perf.measure.kernel_bench import points

    monkeypatch.setattr(points, "HEADLINE", HEADLINE[:2])
    monkeypatch.setattr(points, "MIXED", ())
    seen, replace = [], command.Path.replace

    def watched(self, target):
        seen.append(json.loads(self.read_text())["points"])
        assert self != target
        return replace(self, target)

    monkeypatch.setattr(command, "KEEP_EVERY_S", 0.0)
    monkeypatch.setattr(command.Path, "replace", watched)
    words = [
        "bench",
        "rmsnorm",
        "--spec-gb-s",
        "4800",
        "-o",
        str(tmp_path / "out.json"),
        "--rounds",
        "1",
        "--replays",
        "1",
    ]
    run = CliRunner().invoke(command.app, words)
    assert run.exit_code == 0, run.output
    assert [len(p) for p in seen] == [1, 2, 2]  # written beside, then put in the partial's place
    assert [p.name for p in tmp_path.glob("out*")] == ["out.json"]

    monkeypatch.setattr(task, "document", lambda *a: (_ for _ in ()).throw(ValueError("a defect")))
    failed = CliRunner().invoke(command.app, [*words, "--force"])
    assert failed.exit_code != 0
    partial = json.loads((tmp_path / "out.partial.json").read_text())
    assert len(partial["points"]) == 2
