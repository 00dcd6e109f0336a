"""The RMSNorm bench without a GPU: the conductor with stand-in workers, and the worker's own steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bench_stand_in import measure

from robot_perf.errors import BackendUnavailableError
from robot_perf.measure.kernel_bench import conductor as kernel_bench
from robot_perf.measure.kernel_bench import copies as kernel_bench_copy
from robot_perf.measure.kernel_bench import inputs as kernel_bench_inputs
from robot_perf.measure.kernel_bench import lock as kernel_bench_lock
from robot_perf.measure.kernel_bench import process as kernel_bench_process
from robot_perf.measure.kernel_bench import timing as kernel_bench_timing
from robot_perf.measure.kernel_bench import worker as kernel_bench_worker
from robot_perf.measure.kernel_bench.check import judge
from robot_perf.measure.kernel_bench.conductor import BenchRequest, run_bench
from robot_perf.measure.kernel_bench.points import BATCH, HEADLINE, MIXED, WIDE, Point, bytes_touched
from robot_perf.measure.kernel_bench.providers import OURS, PROVIDERS, _fresh
from robot_perf.run.scratch import remove_left_over
from robot_perf.tasks import kernels as task


def test_the_conductor_interleaves_and_keeps_a_row_for_everyone(stand_in):
    report, kept = measure()
    assert len(report["points"]) == len(kept) == len(HEADLINE)
    turns = [line.split(" ")[-1] for line in stand_in.read_text().splitlines()]
    assert turns.count("cold") > 0
    first = [line for line in stand_in.read_text().splitlines() if line.endswith("cold")]
    names = [line.rsplit(" ", 1)[0] for line in first]
    ready = len(set(names[: names.index(OURS, 1)])) if OURS in names[1:] else 0
    assert ready > 5  # everyone has a turn before ours comes again
    assert names[0] != names[ready], "the order rotates"
    assert report["providers"]["quack"]["unavailable"].startswith("quack.rmsnorm")
    by_shape = {(p["op"], p["m"], p["d"]): p["providers"] for p in report["points"]}
    assert by_shape["rms_norm", 1, 65536]["fla"]["error"] == "RuntimeError: rows above 64 KB"
    assert by_shape["rms_norm", 1, 1024]["liger"]["samples_us"] == {}  # wrong results get no time
    assert "code 3" in by_shape["rms_norm", 8192, 5120]["torch.compile"]["error"]  # its process died
    assert by_shape["rms_norm", 16384, 8192]["torch.compile"]["samples_us"]["cold"]  # and has a successor
    assert "code 3" in by_shape["add_rms_norm", 8192, 5120]["torch.compile"]["error"]
    assert report["providers"]["torch.compile"]["restarts"] == 2
    assert "restarts" not in report["providers"][OURS]
    assert by_shape["rms_norm", 16384, 8192][OURS]["samples_us"]["cold"]


def test_a_budget_stops_between_points(stand_in):
    report, _ = measure(budget_s=1e-6)
    assert report["points"] == []
    assert "budget" in report["stopped"]
    assert report["not_reached"] == [p.name for p in HEADLINE]
    assert "not reached within the budget: 30 points" in task.markdown(task.document(report, spec_gb_s=4800.0), "x")


def test_the_roof_is_the_fastest_copy_timed_in_turn(stand_in):
    report, _ = measure(points=HEADLINE[7:8])
    copy = report["points"][0]["copy"]
    assert copy["way"] == "memcpy"
    assert set(copy["ways_us"]) == {"memcpy", "Triton kernel"}
    assert len(copy["samples_us"]["cold"]) == 9
    turns = [line for line in stand_in.read_text().splitlines() if line.startswith("copy cold")]
    assert turns == ["copy cold memcpy", "copy cold Triton kernel"] * 3  # as often as a provider, not once before all


def test_a_provider_that_dies_while_it_is_timed_is_a_row_with_its_last_words(stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN_DIES", "liger@cold")  # it has warm times by then
    report, _ = measure(points=HEADLINE[1:3])
    why = "its process ended with code 7: Segmentation fault in the peer's runtime"
    assert [p["providers"]["liger"]["error"] for p in report["points"]] == [why, why]
    turns = [line for line in stand_in.read_text().splitlines() if line.startswith("liger ")]
    steps = ["setup", "host", "warm", "cold"]  # no further turn; then a successor
    assert turns == [f"liger {step}" for d in (4096, 16384) for step in (f'tune [["rms_norm", 1, {d}]]', *steps)]
    found = task.document(report, spec_gb_s=4800.0)
    assert found["summary"]["rows"][0]["providers"]["liger"] == {"absent": why}
    assert why in task.markdown(found, "x")


def test_a_provider_that_always_dies_is_given_up(stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN_DIES", "liger@warm")
    report, _ = measure(points=HEADLINE[1:7])
    assert report["providers"]["liger"]["restarts"] == kernel_bench_process.RESTARTS
    assert stand_in.read_text().splitlines().count("liger warm") == 1 + kernel_bench_process.RESTARTS
    assert all("code 7" in p["providers"]["liger"]["error"] for p in report["points"])
    page = task.markdown(task.document(report, spec_gb_s=4800.0), "x")
    assert f"liger: its process died; at the next point it had a new one, {kernel_bench_process.RESTARTS} times" in page


def test_a_provider_that_fails_while_it_is_timed_keeps_its_first_reason(stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAILS", "liger@cold")
    report, _ = measure(points=HEADLINE[1:2])
    assert report["points"][0]["providers"]["liger"]["error"] == "RuntimeError: CUDA error"
    assert stand_in.read_text().splitlines().count("liger cold") == 1


def test_a_copy_that_dies_while_it_is_timed_is_no_roof(stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN_DIES", "copy@cold Triton kernel")  # the other way has a time by then
    report, _ = measure(points=HEADLINE[7:8])
    assert "code 7" in report["points"][0]["copy"]["error"]
    summary = task.document(report, spec_gb_s=4800.0)["summary"]
    assert summary["rows"][0]["copy_us"] is None
    share = next(v for v in summary["verdicts"] if "copy" in v["what"] and v["what"].endswith(" rms_norm"))
    assert (share["measured"], share["met"]) == ("not measured", None)


def test_a_silent_process_is_ended_and_says_after_how_long(stand_in, tmp_path):
    script = tmp_path / "silent.py"
    script.write_text("import sys, time\nprint('waiting for a lock', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
    kernel_bench_process.WORKER = (sys.executable, str(script))  # the fixture puts it back
    worker = kernel_bench_process.WorkerProcess("liger", {})
    worker.send(command="hello")
    time.sleep(0.5)
    assert worker.answer(patience_s=2) == {"error": "no answer within 2 s: waiting for a lock"}
    worker.close()


_BENCH_THAT_WAITS = """
import sys
from robot_perf.measure.kernel_bench import process
compiles = "import os, sys; open(os.environ['TORCHINDUCTOR_CACHE_DIR'] + sys.argv[1], 'w').close(); sys.stdin.read()"
process.WORKER = (sys.executable, "-c", compiles)
from bench_stand_in import measure
measure(providers=("robot-perf",))
"""


def test_the_next_command_removes_what_a_killed_bench_compiled(tmp_path):
    helpers = Path(__file__).resolve().parents[1] / "helpers"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(helpers), *sys.path])}
    bench = subprocess.Popen([sys.executable, "-c", _BENCH_THAT_WAITS], env=environment)
    until = time.monotonic() + 60
    while len(made := list(tmp_path.glob("*/inductor*"))) < 2 and time.monotonic() < until:  # ours and copy
        time.sleep(0.05)
    bench.kill()
    bench.wait()
    assert len({path.parent for path in made}) == 1
    assert remove_left_over(tmp_path) == [made[0].parent]
    assert list(tmp_path.iterdir()) == []


def test_whoever_tunes_has_tuned_before_anyone_is_set_up(stand_in):
    measure(points=HEADLINE[1:3], ahead=0)
    lines = [line.split(" [")[0] for line in stand_in.read_text().splitlines()]
    tuning = [i for i, line in enumerate(lines) if line.endswith(" tune")]
    setting_up = [i for i, line in enumerate(lines) if line.endswith(" setup")]
    tuners = [n for n, p in PROVIDERS.items() if p.compile_s and n != "quack"]
    assert sorted(lines[i] for i in tuning) == sorted(f"{n} tune" for n in tuners for _ in range(2))
    first, second = tuning[: len(tuners)], tuning[len(tuners) :]
    assert max(first) < min(setting_up) < min(second)
    assert max(second) < min(i for i in setting_up if i > min(second))


def test_compiling_ahead_is_reported_apart(stand_in):
    report, _ = measure(points=HEADLINE[3:5], ahead=3)
    assert set(report["compile_s"]) == {n for n, p in PROVIDERS.items() if p.compile_s} - {"quack"}
    assert all(len(took) == 2 for took in report["compile_s"].values())


def test_points_are_compiled_ahead_in_batches_of_one_part(stand_in):
    report, _ = measure(parts=(HEADLINE[:18], WIDE[:3]), providers=(OURS,), ahead=3)
    assert len(report["points"]) == 21
    batches, before = [], ""
    for line in stand_in.read_text().splitlines():
        what, _, rest = line.removeprefix(f"{OURS} ").partition(" ")
        if what == "prepare":
            batches += [] if before == "prepare" else [set()]
            batches[-1] |= {tuple(p) for p in json.loads(rest)}
        before = what
    expected = [
        HEADLINE[:BATCH],
        HEADLINE[BATCH:18],
        WIDE[:3],
    ]  # of one part each, though a later one has room for more
    assert batches == [{(p.op, p.m, p.d) for p in batch} for batch in expected]


def test_compiling_ahead_does_not_eat_the_budget(stand_in, monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def slow(teams, points, limit_s):  # a second per point, as 196 points once took 74 s of a budget of 81
        clock.now += min(limit_s, max(map(len, points.values())))
        return {}

    monkeypatch.setattr(kernel_bench, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(kernel_bench, "prepare", slow)

    def kept(report):
        clock.now += 0.5

    parts, said = ((*HEADLINE, *MIXED), WIDE), []
    report = run_bench(BenchRequest(parts, (OURS,), rounds=1, replays=1, ahead=3, budget_s=81.0), said.append, kept)
    done = [(p["op"], p["m"], p["d"]) for p in report["points"]]
    assert done[:30] == [(p.op, p.m, p.d) for p in HEADLINE]
    assert len(done) > 32  # the wide sweep has begun
    assert report["ahead_s"] <= 81 - len(done) * 0.5 + 1
    assert len(done) + len(report["not_reached"]) == len(HEADLINE) + len(MIXED) + len(WIDE)
    assert f"{report['ahead_s']:.0f} s of it on compiling ahead" in said[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_the_bench_says_so():
    with pytest.raises(BackendUnavailableError, match=r"GPU|import"):
        run_bench(BenchRequest((HEADLINE[:1],), (OURS,)), lambda line: None, lambda report: None)


def test_the_timed_calls_rotate_the_inputs_and_clone_nothing(on_cpu, monkeypatch):
    seen = []

    def make(op, d, w, eps):
        return lambda x, r: (seen.append(x.data_ptr()), _eager_norm(x, w, eps))[1]

    def _eager_norm(x, w, eps):
        h = x.float()
        return ((h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype),)

    monkeypatch.setitem(PROVIDERS, "eager", SimpleNamespace(make=make, note="", package="torch"))
    worker = kernel_bench_worker.Worker("eager")
    worker.hello()
    reply = worker.setup(Point("rms_norm", 2, 2048), profile=False)
    assert reply["failed"] is None
    sets, calls = reply["sets"], reply["calls_per_graph"]
    cold = seen[-calls - 1 : -1]  # the replay that is checked, then the call it is compared with
    assert len(set(cold)) == min(sets, calls) > 1  # every set in turn, and no copy of one
    assert cold == (cold[:sets] * calls)[:calls]


def test_an_autotuner_compiles_a_candidate_unlocked_and_times_it_alone_and_briefly(monkeypatch, tmp_path):
    import fcntl

    path, seen = tmp_path / "lock", []
    monkeypatch.setenv(kernel_bench_lock.LOCK_VARIABLE, str(path))

    def held():
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    class Autotuner:
        _do_bench = None
        fn = SimpleNamespace(run=lambda *args, **more: seen.append(("run", more.get("warmup"), held())))

        def do_bench(self):
            raise AssertionError("Triton's own way, 125 ms a candidate")

        def _bench(self, *args, config, **meta):
            seen.append((self.do_bench.keywords["rep"], held()))
            return 1.0

    monkeypatch.setitem(sys.modules, "triton.runtime.autotuner", SimpleNamespace(Autotuner=Autotuner))
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.triton_heuristics", SimpleNamespace())
    kernel_bench_lock.lock_autotuners()
    kernel_bench_lock.lock_autotuners()  # once
    config = SimpleNamespace(all_kwargs=lambda: {"num_warps": 4})
    assert Autotuner()._bench(1, config=config, grid=(1,), warmup=False) == 1.0
    assert seen == [("run", True, False), (25, True)]


def test_the_wide_sweep_is_wide():
    assert len(WIDE) >= 150
    assert len(set(WIDE)) == len(WIDE)
    assert not set(WIDE) & set(HEADLINE)
    assert any(p.d & (p.d - 1) for p in WIDE)
    assert {1, 32768} <= {p.m for p in WIDE}
    assert {64, 65536} <= {p.d for p in WIDE}


def test_bytes_are_those_of_the_tensors():
    assert bytes_touched(Point("rms_norm", 4096, 4096)) == 2 * 4096 * 4096 * 2 + 8192
    assert bytes_touched(Point("add_rms_norm", 4096, 4096)) == 4 * 4096 * 4096 * 2 + 8192
    assert bytes_touched(Point("rms_norm", 1, 64, weight="float32")) == 2 * 64 * 2 + 256


def test_the_judge_names_the_order_and_refuses_what_is_wrong():
    x, r = (torch.randn(5, 1024).to(torch.bfloat16) for _ in range(2))
    w = (1 + 0.1 * torch.randn(1024)).to(torch.bfloat16)
    from robot_perf.kernels.rmsnorm_reference import add_rms_norm_reference, rms_norm_reference

    for cast in ("fp32", "hf"):
        found = judge((rms_norm_reference(x, w, 1e-6, cast=cast),), x, None, w, 1e-6, ours=True)
        assert found["failed"] is None
        assert found["order"] == cast
    for round_sum in (True, False):
        out = add_rms_norm_reference(x, r, w, 1e-6, round_sum=round_sum)
        found = judge(out, x, r, w, 1e-6, ours=True)
        assert found["failed"] is None
        assert found["order"] == f"fp32, {'rounded' if round_sum else 'unrounded'} sum"
    y = rms_norm_reference(x, w, 1e-6)
    y[2, 7] *= 1.1
    assert "ulp" in judge((y,), x, None, w, 1e-6, ours=True)["failed"]
    y[4, 0] = float("nan")
    assert "finite" in judge((y,), x, None, w, 1e-6, ours=True)["failed"]
    assert "outputs" in judge((x,), x, r, w, 1e-6, ours=True)["failed"]
    assert "s is not" in judge((x, x), x, r, w, 1e-6, ours=True)["failed"]


@pytest.fixture
def on_cpu(monkeypatch):
    """The worker's steps on the CPU: real providers and checks, pretended graphs and clocks."""
    monkeypatch.setattr(kernel_bench_inputs, "DEVICE", "cpu")
    monkeypatch.setattr(kernel_bench_timing, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties",
        lambda i: SimpleNamespace(name="cpu", major=9, minor=0, multi_processor_count=1, L2_cache_size=4096, total_memory=1),
    )  # fmt: skip
    monkeypatch.setattr(kernel_bench_worker, "unavailable", lambda name: None)

    def capture(calls, keep):
        done = [(call, call()) for call in calls]

        def replay():  # writes where the captured calls wrote
            for call, out in done:
                if isinstance(out, tuple):
                    for old, new in zip(out, call(), strict=True):
                        old.copy_(new)

        return SimpleNamespace(calls=len(calls), replay=replay)

    monkeypatch.setattr(kernel_bench_timing, "capture", capture)
    monkeypatch.setattr(kernel_bench_timing, "graph_nodes", lambda graph: {"kernel": graph.calls})
    monkeypatch.setattr(
        kernel_bench_timing, "replay_us", lambda graph, calls, times: [2.0 + 0.1 * i for i in range(times)]
    )
    monkeypatch.setattr(
        kernel_bench_copy,
        "copies",
        lambda: {"memcpy": lambda x, y: y.copy_(x), "torch kernel": lambda x, y: torch.neg(x, out=y)},
    )
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", [OURS, "eager", "F.rms_norm"])
@pytest.mark.parametrize("op", ["rms_norm", "add_rms_norm"])
def test_a_workers_point(on_cpu, name, op):
    worker = kernel_bench_worker.Worker(name)
    assert worker.hello()["gpu"]["l2_bytes"] == 4096
    for d, by in ((16, "flush"), (2048, "rotation")):
        reply = worker.setup(Point(op, 2, d), profile=False)
        assert reply["failed"] is None, reply
        assert reply["cold_by"] == by
        assert reply["nodes_per_call"] == {"kernel": 1.0}
        assert worker.time("warm", 3)["us"] == [2.0, 2.1, 2.2]
        # the middle of the flush's own samples is taken off
        assert worker.time("cold", 2)["us"] == pytest.approx([2.0, 2.1] if by == "rotation" else [-0.05, 0.05])
        host = worker.time("host", 2)
        assert all(v > 0 for v in host["us"])
        assert ("beside_us" in host) == (name == OURS)  # F.rms_norm's in the same process
        assert all(v > 0 for v in host.get("beside_us", ()))
    assert worker.drop() == {}


def test_a_graph_that_does_not_write_what_a_call_returns_is_not_timed(on_cpu, monkeypatch):
    pretended = kernel_bench_timing.capture
    monkeypatch.setattr(
        kernel_bench_timing,
        "capture",
        lambda calls, keep: SimpleNamespace(calls=pretended(calls, keep).calls, replay=lambda: None),
    )
    worker = kernel_bench_worker.Worker("F.rms_norm")
    worker.hello()
    reply = worker.setup(Point("rms_norm", 2, 2048), profile=False)
    assert reply["failed"] == "in the replayed warm graph: y is not finite everywhere"
    assert not worker.graphs


def test_a_point_compiled_ahead_is_the_one_that_is_timed(on_cpu, monkeypatch, tmp_path):
    monkeypatch.setenv("ROBOT_PERF_BENCH_LOCK", str(tmp_path / "lock"))
    worker = kernel_bench_worker.Worker("F.rms_norm")
    worker.hello()
    points = [Point("rms_norm", 2, 2048), Point("add_rms_norm", 2, 64)]
    assert worker.prepare(points, -1.0)["took_s"] == {}  # no time left: compiled when set up
    took = worker.prepare(points, 60.0)["took_s"]
    assert set(took) == {p.name for p in points}
    made = worker.made[points[0]][0]
    calls = []
    worker.made[points[0]] = (lambda x, r: (calls.append(1), made(x, r))[1], worker.made[points[0]][1])
    assert worker.setup(points[0], profile=False)["failed"] is None
    assert calls
    assert points[0] not in worker.made


def test_an_autotuner_that_goes_by_width_alone_tunes_at_every_point(on_cpu, monkeypatch):
    tuned, formula = [], PROVIDERS["eager"].make

    class Autotuner:
        def __init__(self):
            self.configs, self.cache = ["2 warps", "4 warps"], {}

        def run(self, d, m):
            if d not in self.cache:
                tuned.append(m)
                self.cache[d] = "best of the configs"

    library = SimpleNamespace(kernel=Autotuner(), cache={"not": "a tuner"})
    monkeypatch.setitem(sys.modules, "a_peers_norm", library)

    def make(op, d, weight, eps):
        call = formula(op, d, weight, eps)
        return lambda x, r: (library.kernel.run(d, x.shape[0]), call(x, r))[1]

    provider = SimpleNamespace(make=make, note="", package="torch", tuner="a_peers_norm")
    monkeypatch.setitem(PROVIDERS, "fla", provider)
    worker = kernel_bench_worker.Worker("fla")
    worker.hello()
    points = [Point("rms_norm", m, 64) for m in (1, 8)]
    worker.prepare(points, 60.0)
    assert tuned == [1]  # ahead: to have the candidates compiled
    for point in points:
        worker.prepare([point], 60.0, anew=True)
        assert worker.setup(point, profile=False)["failed"] is None
    assert tuned == [1, 1, 8]
    assert library.cache


def test_a_point_that_can_not_be_compiled_is_tried_once(on_cpu, monkeypatch):
    tried = []

    def make(op, d, weight, eps):
        tried.append(d)
        raise RuntimeError(
            'ICE: the copy\'s\n  verification failed at "/home/somebody/site-packages/quack/rmsnorm.py":174:8 (1/2)'
        )

    monkeypatch.setitem(PROVIDERS, "quack", SimpleNamespace(make=make, note="", package="torch", tuner=""))
    worker = kernel_bench_worker.Worker("quack")
    worker.hello()
    point = Point("rms_norm", 2, 127)
    said = 'RuntimeError: ICE: the copy\'s verification failed at "rmsnorm.py":174:8 (1/2)'
    assert worker.prepare([point], 60.0)["took_s"] == {point.name: said}
    assert worker.prepare([point], 60.0, anew=True)["took_s"] == {}
    assert worker.setup(point, profile=False) == {"error": said}
    assert tried == [127]


def test_every_compiled_function_has_its_own_code():
    first, second = _fresh(measure), _fresh(measure)
    assert first.__code__ is not second.__code__
    assert first.__code__ != second.__code__


def test_the_copy_moves_the_ops_bytes(on_cpu):
    worker = kernel_bench_worker.Worker("copy")
    worker.hello()
    reply = worker.setup(Point("add_rms_norm", 4, 2048), profile=False)
    assert reply["ways"] == ["memcpy", "torch kernel"]
    assert reply["rotated_bytes"] == reply["sets"] * 2 * 4 * 2048 * 2  # x and the residual, read; as many are written
    assert worker.time("cold memcpy", 2)["us"] == [2.0, 2.1]


def test_a_wrong_kernel_is_not_timed(on_cpu, monkeypatch):
    monkeypatch.setitem(
        PROVIDERS,
        "eager",
        SimpleNamespace(make=lambda op, d, w, eps: lambda x, r: (x * 1.01,), note="", package="torch"),
    )
    worker = kernel_bench_worker.Worker("eager")
    worker.hello()
    reply = worker.setup(Point("rms_norm", 2, 64), profile=False)
    assert "ulp" in reply["failed"]
    assert worker.graphs == {}


def test_the_worker_speaks_one_json_line_per_command(on_cpu, monkeypatch, capfd):
    lines = [
        {"command": "hello"},
        {"command": "setup", "point": {"op": "rms_norm", "m": 2, "d": 64, "dtype": "bfloat16", "weight": "bfloat16"}, "profile": False},
        {"command": "time", "what": "warm", "times": 2},
        {"command": "setup", "point": {"op": "rms_norm", "m": 2, "d": 64, "dtype": "nonsense", "weight": "bfloat16"}, "profile": False},
        {"command": "drop"},
    ]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", iter(json.dumps(line) + "\n" for line in lines))
    kernel_bench_worker.main(["eager"])
    replies = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(replies) == len(lines)
    assert "error" in replies[3]
    assert replies[4] == {}
