"""The bench screen, its markdown and its page: what is asked for stands there, hostile names stay text."""

from __future__ import annotations

import html
import itertools
import re
from dataclasses import replace

import pytest

from robot_perf.analyze.bench.merge import merge
from robot_perf.render.bench.html import bench_html
from robot_perf.render.bench.markdown import bench_markdown, merged_markdown
from robot_perf.render.bench.picture import _estimable, bench_picture
from robot_perf.render.bench.text import bench_text, merged_text
from robot_perf.run.bench_report import (
    INVALID,
    TIGHT,
    Advice,
    Answer,
    BenchReport,
    Block,
    Figure,
    Machine,
    Point,
    PolicyHead,
    Row,
)

US = 1_000


def point(rate: str, p50_us: float, **more) -> Point:
    period = 0 if rate == TIGHT else round(1e9 / float(rate))
    figures = (Figure("p50", round(p50_us * US)), Figure("p99", round(p50_us * 2 * US)))
    curve = tuple((10**-i, round(p50_us * (1 + i) * US)) for i in range(3))
    block = Block(
        0, 250, round(p50_us * US), None, None, 5, 20, True, sm_hz=(345_000_000, 1_980_000_000), temperature_c=31.0
    )
    settings = {"floor": 0.021, "cpu_share": 0.016, "releases": 500, "execution_max_ns": round(p50_us * 3 * US), **more}
    return Point(rate, period, n=500, execution=figures, curve=curve, blocks=(block,), **settings)


def report() -> BenchReport:
    graph = Row(
        "mlp", "cuda_graph", "cuda_graph", facts={"captured": True}, cold_start_ns={"load_ns": 900_000_000},
        first_calls_ns=(300_000,), build_ns=12_000_000, device_memory_bytes=30_000_000, launches_per_step=1,
        points=(
            point("50", 243, penalty=7.8, power_w=121.0, energy_per_step_j=2.42, energy_above_idle_j=0.031),
            point("50", 74, keep_warm="rehearse:300", power_w=122.0),
            point(TIGHT, 31),
        ),
    )  # fmt: skip
    eager = Row("mlp", "eager", "eager", points=(point("50", 400, penalty=3.2), point(TIGHT, 123)))
    compiled = Row("mlp", "compile", "compile", status=INVALID, reason="recompiled at step 12: shape guard on obs")
    bad = Point("50", 20_000_000, status=INVALID, reason="the action was NaN or infinite in 3 steps")
    ort = Row("mlp", "onnxruntime", "onnxruntime", points=(bad, point(TIGHT, 120)))
    refused = Point("50", 20_000_000, "touch:300", "can't run", "does not say where its weights lie")
    graph = replace(graph, points=(*graph.points, refused))
    return BenchReport(
        Machine("NVIDIA H200", "power limit 700 W", "SM up to 1980 MHz", {"torch": "2.11"}, idle_power_w=118.2, meter="NVML"),
        (PolicyHead("mlp", None, "obs float32 [1, 48]", "actions float32 [1, 12]", 190_860, "state: none found"),),
        (graph, eager, compiled, ort),
        answers=(Answer("mlp", TIGHT, "onnxruntime", "eager", "no difference", "inside the noise floor 4 µs"),),
        advice=(Advice("mlp", "50", "at 50 Hz: cuda_graph with --keep-warm rehearse:300, p50 74.0 µs"),),
        rates=("50", TIGHT), steps=500, blocks=2, created_utc="2026-11-30T00:00:00Z", version="0.1.0", argv=("bench", "mlp"),
    )  # fmt: skip


def test_the_screen_answers_what_was_asked(golden):
    golden("bench.txt", str(bench_text(report(), saved="reports/nvidia-h200: bench.json")) + "\n")


def test_reasons_stand_in_place_of_figures():
    text = str(bench_text(report()))
    assert "recompiled at step 12" in text
    assert "onnxruntime at 50 Hz" in text
    assert "no difference from onnxruntime at tight" in text
    assert "never run on a Jetson" in text
    assert "does not say where its weights lie" in text


def test_an_unfinished_bench_says_so_first():
    text = str(bench_text(replace(report(), state="interrupted after 0 of 2 policies")))
    assert text.startswith("NOT COMPLETE")


def test_one_block_has_no_noise_floor_and_so_no_answers():
    pytest.importorskip("jinja2")
    rows = tuple(replace(r, points=tuple(replace(p, floor=None) for p in r.points)) for r in report().rows)
    one = replace(report(), rows=rows, blocks=1, answers=())
    told = (
        "no A/A noise floor: one block of 500 steps a point, so no answer which backend is faster; --blocks 2 or more"
    )
    for text in (str(bench_text(one, width=200)), bench_markdown(one, {}), bench_html(one)):
        assert told in html.unescape(text)
        assert "% (median)" not in text


def test_markdown_has_pictures_reasons_and_the_command():
    text = bench_markdown(report(), {"mlp": "bench-mlp.png"})
    assert "](bench-mlp.png)" in text
    assert "`robot-perf bench mlp`" in text
    assert "recompiled at step 12" in text
    assert "| cuda\\_graph | 243.0 | 486.0 | 729.0 |" in text


HOSTILE = '<script>alert(1)</script>"|`\x1b[2J$x_y$\u202e'


def hostile() -> BenchReport:
    one = report()
    rows = tuple(
        replace(r, policy=HOSTILE, backend=HOSTILE + r.backend, reason=HOSTILE if r.reason else "") for r in one.rows
    )
    head = replace(one.policies[0], name=HOSTILE, inputs=HOSTILE)
    return replace(one, rows=rows, policies=(head,), answers=(), advice=(Advice(HOSTILE, "50", HOSTILE),))


def test_hostile_names_stay_text_everywhere():
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = bench_html(hostile())
    assert "<script" not in page
    assert "<script" not in bench_markdown(hostile(), {})
    assert "\x1b" not in str(bench_text(hostile()))


def test_the_page_loads_nothing():
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = bench_html(report())
    assert "default-src 'none'" in page
    assert "<svg" in page
    assert page.count("<html") == 1
    assert 'src="http' not in page
    assert "cuda_graph" in page


def test_pictures_are_drawn_or_none():
    pytest.importorskip("matplotlib")
    picture = bench_picture(report(), "mlp")
    assert picture is not None
    assert picture.startswith(b"\x89PNG")
    assert bench_picture(report(), "another") is None


@pytest.mark.parametrize(("n", "told", "first_dotted"), [(100, 0.037, 0.03), (368, 0.01, 0.009), (10_000, 0.001, None)])
def test_a_curve_is_dotted_where_the_tables_say_not_estimable(n, told, first_dotted):
    """p99 needs 368 steps, p96.3 a hundred."""
    curve = [(tail, 1000) for tail in (0.5, 0.1, 0.037, 0.03, 0.01, 0.009, 0.001)]
    known, rest = _estimable(curve, n)
    assert known[-1][0] == told
    assert (rest[1][0] if len(rest) > 1 else None) == first_dotted
    assert [*known, *rest[1:]] == curve


TEXT = re.compile(r'<text style="font-size: ([\d.]+)px[^"]*"[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')


@pytest.mark.parametrize("slowest_us", [130, 700, 5_000, 90_000])
def test_no_label_of_a_picture_lies_on_another_or_on_the_curves(slowest_us):
    """A decade's small marks ran into its large one, and the legend hid the slowest backends."""
    pytest.importorskip("matplotlib")
    rows = tuple(
        Row("mlp", f"backend {i}", "eager", points=tuple(point(r, slowest_us - 15 * i) for r in ("50", "200", TIGHT)))
        for i in range(7)
    )
    one = replace(report(), rows=rows, rates=("50", "200", TIGHT))
    drawn = (bench_picture(one, "mlp", "svg") or b"").decode()
    texts = [(float(size), float(x), float(y), words) for size, x, y, words in TEXT.findall(drawn)]
    durations = [(x, y, words) for _, x, y, words in texts if re.fullmatch(r"[\d,.]+", words)]
    assert len(durations) >= 4
    for column in {x for x, _, _ in durations}:
        heights = sorted(y for x, y, _ in durations if x == column)
        assert min(b - a for a, b in itertools.pairwise(heights)) > 8
    assert {"p50", "p90", "p99"} <= {words for *_, words in texts}
    highest_title = min(y for _, _, y, words in texts if words == "50 Hz")
    assert all(y < highest_title for _, _, y, words in texts if words.startswith("backend"))


def test_merged_table_has_the_key_in_front():
    merged = merge([("a/bench.json", report())])
    text = str(merged_text(merged))
    for word in ("NVIDIA H200", "power limit 700 W", "SM up to 1980 MHz", "p50 execution", "50 Hz", "INVALID"):
        assert word in text
    assert "| mlp | cuda\\_graph |" in merged_markdown(merged)


def test_rows_of_two_reports_of_one_machine_are_told_apart_and_copies_are_named():
    other = replace(report(), created_utc="2026-12-01T00:00:00Z")
    merged = merge([("a/bench.json", report()), ("b/bench.json", report()), ("c/bench.json", other)])
    text, page = str(merged_text(merged)), merged_markdown(merged)
    for file, letter in (("a/bench.json", "A"), ("b/bench.json", "B"), ("c/bench.json", "C")):
        assert any(line.startswith(letter) and file in line for line in text.splitlines())
        assert page.count(f"| {file} |") == 4
    assert "a/bench.json: the same measurement as b/bench.json" in text
    assert "the same measurement as c/bench.json" not in text


def test_a_rate_without_figures_in_the_merged_table_says_why():
    merged = merge([("a/bench.json", report())])
    text, page = str(merged_text(merged)), merged_markdown(merged)
    line = next(w for w in text.splitlines() if w.startswith("mlp") and "onnxruntime" in w)
    assert line.split()[-2:] == ["INVALID", "120.0"]
    assert "onnxruntime on A at 50" in text
    assert text.count("NaN or infinite") == 1 == page.count("NaN or infinite")


def nothing_measured() -> BenchReport:
    one = report()
    rows = tuple(replace(r, status="can't run", reason=f"{r.backend} is not there", points=()) for r in one.rows)
    return replace(one, rows=rows, answers=(), advice=())


def test_reasons_are_said_where_no_backend_has_figures():
    """They are all that such a bench has to say."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    one = nothing_measured()
    for text in (str(bench_text(one)), bench_markdown(one, {}).replace("\\", ""), bench_html(one)):
        for row in one.rows:
            assert text.count(f"{row.backend} is not there") == 1


def test_a_terminal_of_80_columns_shows_no_line_that_wraps():
    rates = ("50", "200", "1000", TIGHT)
    rows = tuple(
        replace(r, points=tuple(point(rate, 1234.5, penalty=1.0) for rate in rates), status="ok", reason="")
        for r in report().rows
    )
    one = replace(report(), rows=rows, rates=rates)
    text = str(bench_text(one, width=80, screen=80))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert sum(line.startswith("cuda_graph") for line in text.splitlines()) > 2
    wide = str(bench_text(one, width=80))
    assert "200 Hz" in wide and max(len(line) for line in wide.splitlines()) > 80


def test_what_a_row_has_to_say_is_shown_once_for_all_of_whom_it_is_true():
    one = report()
    note = "outputs not compared: it draws random numbers"
    late = point("200", 6_000, misses=17)
    counted = {"counted": {"compiles": 2, "graph breaks": 1, "skips": 0}, "counted_because": {"graph breaks": "print"}}
    rows = tuple(
        replace(r, notes=(note,), points=(*r.points, late), facts=counted if r.backend == "eager" else {})
        for r in one.rows
    )
    one = replace(one, rows=rows, rates=("50", "200", TIGHT), notes=("at 50 Hz 250 steps were run instead of 500",))
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    for text in (str(bench_text(one)), bench_markdown(one, {}).replace("\\", ""), bench_html(one)):
        assert text.count(note) == 1
        assert "at 200 Hz 17 of 500 releases missed" in text
        assert "graph breaks since it was loaded: 1 (print)" in text
        assert "compiles since it was loaded: 2" in text
        assert "skips since" not in text
        assert "250 steps were run instead of 500" in text


def test_blocks_apart_with_our_own_work_are_the_processors_doing_once_a_row():
    one = report()
    quick = replace(one.rows[1].points[1].blocks[0], p50_ns=133 * US, own_p50_ns=9 * US)
    slow = replace(quick, p50_ns=212 * US, own_p50_ns=16 * US)
    points = (
        replace(one.rows[1].points[0], blocks=(slow, quick)),
        replace(one.rows[1].points[1], blocks=(quick, slow)),
    )
    words = (
        "at 50 Hz 133 to 212 µs (ours 9.00 to 16.0), at tight 133 to 212 µs (ours 9.00 to 16.0): the processor's doing"
    )
    one = replace(one, rows=(one.rows[0], replace(one.rows[1], points=points)))
    pytest.importorskip("jinja2")
    for text in (str(bench_text(one)), bench_markdown(one, {}).replace("\\", ""), bench_html(one)):
        plain = " ".join(text.replace("&#39;", "'").split())
        assert plain.count("blocks lie apart") == 1 and words in plain


def test_a_percentile_without_value_says_how_many_steps_it_needs():
    short = Point(
        "50", 20_000_000, n=250, execution=(Figure("p50", 100 * US), Figure("p99", None, reason="not estimable (needs n >= 368)"))
    )  # fmt: skip
    one = replace(report(), rows=(Row("mlp", "eager", "eager", points=(short,)),))
    assert "p99   not estimable (needs n ≥ 368): these points have 250 steps" in str(bench_text(one))


def test_energy_below_idle_is_no_energy_per_step():
    one = report()
    cold = point("50", 243, energy_per_step_j=2.42, energy_above_idle_j=-0.031)
    one = replace(one, rows=(Row("mlp", "cuda_graph", "cuda_graph", points=(cold,)),))
    text = str(bench_text(one))
    assert "-31" not in text
    assert "not told above idle" in text


def test_a_device_without_throttle_reasons_is_not_said_to_have_had_none():
    seen = point("50", 100)
    unread = replace(seen, blocks=tuple(replace(b, throttle_read=False) for b in seen.blocks))
    for one, word in ((seen, "none"), (unread, "–")):
        text = str(bench_text(replace(report(), rows=(Row("mlp", "eager", "eager", points=(one,)),))))
        assert text.split("Device clocks by block")[1].splitlines()[2].endswith(f"  {word}")


def test_columns_without_any_value_are_named_and_not_drawn():
    one = replace(report(), rows=(Row("mlp", "eager", "eager", points=(point("50", 100),)),))
    costs = str(bench_text(one)).split("Costs")[1]
    assert "not known here   first action, build, device memory, launches/step, energy/step at 50 Hz" in costs
    assert costs.count("device memory") == 1


def test_what_compiles_in_its_first_call_has_that_as_its_build():
    one = report()
    compiled = replace(one.rows[2], status="ok", reason="", first_calls_ns=(9_691_000_000, 4_700_000, 4_000_000))
    text = str(bench_text(replace(one, rows=(*one.rows[:2], compiled)), width=100))
    assert re.search(r"^compile +[^*\n]*9\.7 s \*", text, re.MULTILINE)
    assert "compile   * build: its first call less its third" in text
    for name, calls in (
        ("eager", (9_691_000_000, 4_700_000, 4_000_000)),
        ("compile", (9_000_000, 4_700_000, 4_000_000)),
    ):
        other = replace(compiled, name=name, first_calls_ns=calls)
        assert "* build" not in str(bench_text(replace(one, rows=(*one.rows[:2], other)), width=100))
