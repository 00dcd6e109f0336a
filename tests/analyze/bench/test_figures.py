"""A point's figures, its A/A floor, which backend is faster, what to use, and the table over devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_runs import executions, make_run

from robot_perf.analyze.bench.advice import advise
from robot_perf.analyze.bench.figures import (
    block_figures,
    judged_again,
    median_answer,
    noise_floor,
    point_of,
    with_penalty,
)
from robot_perf.analyze.bench.merge import merge
from robot_perf.run.bench_report import (
    INVALID,
    OK,
    TIGHT,
    Answer,
    BenchReport,
    Block,
    Figure,
    Machine,
    Point,
    PolicyHead,
    Row,
)
from robot_perf.stats.contrast import block_floor, typical_floor

MS, US = 1_000_000, 1_000


def block(seed: int, typical_us: float, n: int = 250, **conditions):
    usage = {"window_ns": n * 20 * MS, "process_cpu_ns": n * MS}
    return make_run(executions(n, seed, round(typical_us * US)), usage=usage, **conditions)


def point(typical_us: float, seeds: tuple[int, ...] = (1, 2), shift: float = 1.0, rate: str = "50"):
    runs = [block(s, typical_us * shift**i) for i, s in enumerate(seeds)]
    blocks = [block_figures(run, i, f"runs/{i}.parquet") for i, run in enumerate(runs)]
    return point_of(rate, 20 * MS, "none", runs, blocks), runs


def test_a_point_pools_its_blocks():
    found, runs = point(100)
    values = np.sort(np.concatenate([r.measured["end_ns"] - r.measured["start_ns"] for r in runs]))
    assert (found.status, found.n) == (OK, 500)
    assert found.p("p50") == values[249]  # nearest rank: ceil(0.5 * 500) = 250
    assert found.p("p99") == values[494]
    assert found.execution_max_ns == values[-1]
    assert next(f for f in found.execution if f.name == "p99.9").reason == "not estimable (needs n >= 3688)"
    assert found.cpu_share == pytest.approx(0.05)
    assert [b.order for b in found.blocks] == [0, 1]
    assert found.curve[-1][1] <= found.execution_max_ns
    assert all(a[1] <= b[1] for a, b in zip(found.curve, found.curve[1:], strict=False))


def test_one_invalid_block_takes_the_figures_of_all():
    runs = [block(1, 100), block(2, 100, invalid=["2 compiles inside the measured window"])]
    found = point_of("50", 20 * MS, "none", runs, [])
    assert (found.status, found.reason) == (INVALID, "2 compiles inside the measured window")
    assert found.execution == ()
    assert found.p("p50") is None


def test_no_run_is_invalid_not_zero():
    assert point_of("50", 20 * MS, "none", [], []).status == INVALID


def test_skipped_releases_stay_in_the_response_and_the_misses():
    run = make_run(executions(250, 1, 100 * US, slow={40: 70 * MS}))
    found = point_of("50", 20 * MS, "none", [run], [block_figures(run, 0, "")])
    assert found.n < found.releases
    assert found.misses >= 4


def test_floor_of_equal_blocks_is_small_and_of_shifted_ones_large():
    quiet, _ = point(100)
    shifted, _ = point(100, shift=1.3)
    assert quiet.floor is not None
    assert quiet.floor < 0.06
    assert shifted.floor is not None
    assert shifted.floor > 0.2


def test_one_block_has_no_floor_and_gives_no_answer():
    floor, reason = noise_floor([np.array(executions(200), np.int64)])
    assert floor is None
    assert "one block" in reason
    (pa, ra), (pb, rb) = point(100, (1,)), point(300, (2,))
    found = median_answer("p", "50", ("eager", pa, ra), ("graph", pb, rb))
    assert (found.answer, found.floor_ns) == ("can't say", None)
    assert "no A/A noise floor" in found.reason and "--blocks 2" in found.reason
    rows = [Row("p", "eager", "eager", points=(pa,)), Row("p", "graph", "graph", points=(pb,))]
    assert "one block" in advise("p", "50", rows).words
    assert "one block" not in advise("p", "50", rows[:1]).words, "nothing to be told apart"


def test_an_old_report_of_one_block_gets_no_answer_when_drawn_again():
    """It was answered by an assumed floor of 5 %."""
    (pa, _), (pb, _) = point(100, (1,)), point(300, (2,))
    old = Answer(
        "p", "50", "eager", "graph", "slower", "beyond the noise floor 15 µs", 200_000, 190_000, 210_000, 15_000
    )
    rows = (Row("p", "eager", "eager", points=(replace(pa, floor=0.05),)), Row("p", "graph", "graph", points=(pb,)))
    again = judged_again(BenchReport(Machine("x"), (), rows, (old,)))
    assert again.rows[0].points[0].floor is None
    assert (again.answers[0].answer, again.answers[0].floor_ns) == ("can't say", None)


def answer(a_us: float, b_us: float, shift: float = 1.0):
    (pa, ra), (pb, rb) = point(a_us, (1, 2), shift), point(b_us, (3, 4), shift)
    return median_answer("p", "50", ("eager", pa, ra), ("graph", pb, rb))


def test_a_clear_difference_has_a_direction():
    assert answer(100, 60).answer == "faster"
    assert answer(100, 160).answer == "slower"


def test_a_difference_inside_the_floor_is_none():
    found = answer(100, 103, shift=1.3)
    assert found.answer == "no difference"
    assert "inside the noise floor" in found.reason


def scattered(rng, typical_us: float, blocks: int, spread: float):
    """Blocks of one backend whose medians scatter by `spread`."""
    runs = [
        block(int(rng.integers(1 << 30)), typical_us * np.exp(spread * rng.standard_normal())) for _ in range(blocks)
    ]
    return point_of("50", 20 * MS, "none", runs, [block_figures(run, i, "") for i, run in enumerate(runs)]), runs


def answers_of(rng, slower: float, blocks: int, spread: float, times: int) -> list[str]:
    found = []
    for _ in range(times):
        (pa, ra), (pb, rb) = scattered(rng, 100, blocks, spread), scattered(rng, 100 * slower, blocks, spread)
        found.append(median_answer("p", "50", ("a", pa, ra), ("b", pb, rb)).answer)
    return found


def test_two_blocks_of_the_same_thing_seldom_differ():
    """Where blocks scatter by 20 %, the largest distance between a backend's two blocks let 15 % pass for a difference."""
    found = answers_of(np.random.default_rng(4), 1.0, 2, 0.2, 150)
    assert sum(a in ("faster", "slower") for a in found) <= 10


def test_more_blocks_see_a_smaller_difference():
    """The largest distance between any two blocks grew with their number: 96 % said "no difference" of 10 % with eight."""
    found = answers_of(np.random.default_rng(5), 1.1, 8, 0.03, 20)
    assert found.count("slower") >= 18


def test_more_blocks_of_the_same_thing_are_still_no_difference():
    """Blocks that differ by the noise within them alone: the whole interval inside the floor would be rare."""
    found = answers_of(np.random.default_rng(6), 1.0, 6, 0.0, 20)
    assert found.count("no difference") >= 18


def test_blocks_with_the_same_median_or_too_few_of_them():
    assert block_floor(np.array([5, 5]), np.array([7, 7])) == 0
    assert block_floor(np.array([5]), np.array([7])) is None
    assert block_floor(np.array([5]), np.array([7, 7.7])) == pytest.approx(
        12.706 * np.log(1.1) / 2**0.5 * 1.5**0.5, rel=1e-3
    )
    with pytest.raises(ValueError, match="zero"):
        block_floor(np.array([0, 5]), np.array([7, 7]))


def test_a_point_s_own_floor_is_too_small_as_often_as_too_large():
    rng = np.random.default_rng(6)
    for blocks in (2, 4):
        found = [typical_floor(np.exp(0.01 * rng.standard_normal(blocks))) for _ in range(2000)]
        assert np.median(found) == pytest.approx(1.96 * 0.01 * (2 / blocks) ** 0.5, rel=0.06)


def test_a_saved_report_is_judged_again_from_its_blocks():
    points = {"eager": point(100, (1, 2), 1.1), "graph": point(130, (3, 4), 1.1)}
    rows = tuple(Row("p", name, name, points=(p,)) for name, (p, _) in points.items())
    now = median_answer("p", "50", *((name, p, runs) for name, (p, runs) in points.items()))
    report = BenchReport(Machine("d"), (), rows=rows, answers=(now,))
    assert judged_again(report) == report
    old = replace(now, answer="slower", reason="", floor_ns=1)
    old_rows = tuple(replace(r, points=(replace(r.points[0], floor=0.5),)) for r in rows)
    assert judged_again(replace(report, answers=(old,), rows=old_rows)) == report
    bare = replace(report, rows=tuple(replace(r, points=(replace(r.points[0], blocks=()),)) for r in rows))
    assert judged_again(bare).answers == (now,)  # nothing to judge it by: it stays as it was


def test_the_same_thing_is_never_faster():
    answers = []
    for seed in range(12):
        (pa, ra), (pb, rb) = point(100, (seed, seed + 100)), point(100, (seed + 200, seed + 300))
        answers.append(median_answer("p", "50", ("a", pa, ra), ("b", pb, rb)).answer)
    assert not {"faster", "slower"} & set(answers)


def test_an_invalid_side_can_t_be_compared():
    (pa, ra), (pb, rb) = point(100), point(60)
    found = median_answer("p", "50", ("a", replace(pa, status=INVALID), ra), ("b", pb, rb))
    assert found.answer == "can't say"
    assert "INVALID" in found.reason


def test_penalty_is_paced_over_tight():
    paced, _ = point(200)
    tight = replace(point(50)[0], rate=TIGHT, period_ns=0)
    first, second = with_penalty([paced, tight])
    assert first.penalty == pytest.approx((paced.p("p50") or 0) / (tight.p("p50") or 1))
    assert second.penalty is None


def row(name: str, *points: Point) -> Row:
    return Row("mlp", name, name, points=points)


def at(
    p50_us: float,
    *,
    keep_warm: str = "none",
    cpu: float = 0.02,
    watts: float | None = None,
    rate: str = "50",
    floor: float = 0.02,
):
    figure = Figure("p50", round(p50_us * US))
    return Point(rate, 20 * MS, keep_warm, n=500, execution=(figure,), floor=floor, cpu_share=cpu, power_w=watts)


def test_advice_takes_the_fastest_backend_and_states_its_price():
    found = advise("mlp", "50", [row("eager", at(400)), row("graph", at(240), at(30, rate=TIGHT))])
    assert (found.backend, found.keep_warm) == ("graph", "none")
    assert found.times_tight == pytest.approx(8)
    assert "8.0 × tight" in found.words


def test_an_affordable_keep_warm_is_advised_and_a_dear_one_named():
    points = [
        at(243, watts=120),
        at(74, keep_warm="rehearse:300", cpu=0.03, watts=121),
        at(52, keep_warm="spin:period", cpu=1.0, watts=120),
        at(31, rate=TIGHT),
    ]
    found = advise("mlp", "50", [row("graph", *points)])
    assert found.keep_warm == "rehearse:300"
    assert "+1.0 W" in found.words
    assert "without keep-warm 243" in found.words
    assert "at any price graph with --keep-warm spin:period, 52.0 µs" in found.words


def test_equal_candidates_are_settled_by_price():
    points = [at(50, keep_warm="rehearse:300", watts=130), at(50.5, watts=120)]
    assert advise("mlp", "50", [row("graph", *points)]).keep_warm == "none"


def test_the_simplest_of_equal_cures_is_named_whatever_the_watts():
    points = [
        at(177),
        at(68.5, keep_warm="rehearse:300+spin+spin-sync", cpu=0.021, watts=118, floor=0.12),
        at(74, keep_warm="rehearse:300", cpu=0.022, watts=125, floor=0.08),
        at(75, keep_warm="rehearse-loop:1000", cpu=0.055, watts=110, floor=0.3),
    ]
    assert advise("mlp", "50", [row("graph", *points)]).keep_warm == "rehearse:300"


def test_a_backend_slower_than_the_period_is_not_advised():
    words = advise("mlp", "50", [row("eager", at(30_000)), row("graph", at(21_000))]).words
    assert words.startswith(
        "at 50 Hz: none of these: the fastest, graph, takes 21,000 µs (p50) of a period of 20,000 µs"
    )


def test_a_dear_keep_warm_that_keeps_the_period_is_advised_over_a_cheap_backend_that_does_not():
    points = [at(20_100), at(19_900, keep_warm="spin:period", cpu=1.0)]
    found = advise("mlp", "50", [row("graph", *points)])
    assert found.keep_warm == "spin:period" and "none of these" not in found.words


def test_missed_releases_are_named_in_the_advice():
    late = replace(at(400), releases=500, misses=3)
    assert "it missed 3 of 500 releases" in advise("mlp", "50", [row("graph", late)]).words
    assert "missed" not in advise("mlp", "50", [row("graph", at(400))]).words


def test_no_valid_point_no_advice():
    bad = Point("50", 20 * MS, status=INVALID, reason="NaN")
    assert "no backend gave a valid measurement" in advise("mlp", "50", [row("graph", bad)]).words


def report(device: str, p50_us: float, sha: str = "a" * 64, mode: str | None = "MAXN") -> BenchReport:
    return BenchReport(
        machine=Machine(device, mode, "SM up to 1980 MHz", {"torch": "2.11"}),
        policies=(PolicyHead("mlp", sha, "", "", 1, ""),),
        rows=(
            Row("mlp", "graph", "cuda_graph", facts={"torch": "2.11"}, points=(at(p50_us), at(9, rate=TIGHT))),
            Row("mlp", "tensorrt", "tensorrt", status="can't run", reason="not installed"),
        ),
        rates=("50", TIGHT),
    )


def test_merge_keeps_every_row_with_its_key():
    merged = merge([("a/bench.json", report("NVIDIA H200", 240)), ("b/bench.json", report("Orin", 700, mode="15W"))])
    assert merged.rates == ("50", TIGHT)
    assert [(r.device, r.power_mode, r.backend) for r in merged.rows if r.backend == "graph"] == [
        ("NVIDIA H200", "MAXN", "graph"),
        ("Orin", "15W", "graph"),
    ]
    refused = [r for r in merged.rows if r.status != OK]
    assert len(refused) == 2
    assert refused[0].reason == "not installed"


def test_merge_says_when_the_files_of_one_name_differ():
    merged = merge([("a", report("X", 1)), ("b", report("Y", 2, sha="b" * 64))])
    assert any("2 different files" in note for note in merged.notes)


def test_merge_names_the_runtime_of_each_row_by_its_own_facts():
    one = report("NVIDIA H200", 240)
    machine = replace(one.machine, software={"torch": "2.11", "driver": "580.1"})
    facts = {"backend": "tensorrt", "version": "8.6.0", "device": "cuda:0"}
    built = Row("mlp", "tensorrt[precision=fp16]", "tensorrt", facts=facts, points=(at(40),))
    rows = {r.backend: r for r in merge([("a", replace(one, machine=machine, rows=(*one.rows, built)))]).rows}
    assert rows["tensorrt[precision=fp16]"].software == "tensorrt 8.6.0, driver 580.1"
    assert rows["graph"].software == "torch 2.11"
    assert rows["tensorrt"].software == "", "it never loaded: which version it would have been is not known"


def test_what_is_advised_at_any_price_is_no_slower_than_what_is_affordable():
    """One noise for both: of the affordable ones alone it was smaller, and the dearer advice named a slower cure."""
    cures = [
        at(29, keep_warm="spin-sync", cpu=0.05, floor=0.05),
        at(34, keep_warm="rehearse:300", cpu=0.02, floor=0.05),
        at(40, keep_warm="spin:300", cpu=0.90, floor=0.2),
        at(41, keep_warm="spin:period", cpu=0.95, floor=0.2),
    ]
    found = advise("mlp", "50", [row("graph", at(160, floor=0.2), *cures)])
    assert found.keep_warm == "rehearse:300"
    assert "at any price" not in found.words


def with_blocks(point: Point, *p50_us: float) -> Point:
    """The point as if its blocks had had these medians."""
    return replace(
        point, blocks=tuple(Block(i, 250, round(us * US), None, None, 1, 20, True) for i, us in enumerate(p50_us))
    )


def test_advice_names_the_backend_that_the_answers_can_t_tell_from_it():
    tensorrt, graph = with_blocks(at(128), 120, 136), with_blocks(at(170), 150, 190)
    words = advise("mlp", "50", [row("graph", graph), row("tensorrt", tensorrt)]).words
    assert words.endswith("µs (2.0 % of a core); within noise of graph, 170 µs (2.0 % of a core)")
    clear = with_blocks(at(170), 169, 171)
    rows = [row("graph", clear), row("tensorrt", with_blocks(at(128), 127, 129))]
    assert "noise" not in advise("mlp", "50", rows).words
    assert "noise" not in advise("mlp", "50", [row("graph", graph), row("tensorrt", at(128))]).words  # blocks unknown


def test_advice_names_the_fastest_where_a_cheaper_one_equals_it():
    cheap = with_blocks(at(34, keep_warm="rehearse:300", cpu=0.02, floor=0.2), 30, 38)
    fast = with_blocks(at(31, keep_warm="rehearse-loop:1000", cpu=0.05, floor=0.2), 27, 35)
    found = advise("mlp", "50", [row("graph", at(160), cheap, fast)])
    assert found.keep_warm == "rehearse:300"
    named = "graph with --keep-warm rehearse-loop:1000, 31.0 µs (5.0 % of a core)"
    assert f"; within noise of {named}" in found.words
    told = [with_blocks(cheap, 33.9, 34.1), with_blocks(fast, 30.9, 31.1)]
    words = advise("mlp", "50", [row("graph", at(160, floor=0.2), *told)]).words
    assert f"; the fastest, {named}, is no further from it than the median noise floor, 20 %" in words


def test_the_fastest_at_any_price_is_named_beside_the_advised():
    dear = [
        with_blocks(at(20, keep_warm="spin:period", cpu=1.0, floor=0.2), 19, 21),
        with_blocks(at(19, keep_warm="spin:300+spin-sync", cpu=1.1, floor=0.2), 18, 20),
    ]
    words = advise("mlp", "50", [row("graph", at(160, floor=0.2), *dear)]).words
    assert "; at any price graph with --keep-warm spin:period, 20.0 µs (100.0 % of a core)" in words
    assert words.endswith("; within noise of graph with --keep-warm spin:300+spin-sync, 19.0 µs (110.0 % of a core)")
