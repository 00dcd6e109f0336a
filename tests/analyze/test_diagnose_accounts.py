"""Accounting: shares that add up, gap causes, windows, thresholds. A second, naive implementation checks unions and gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_profiles import GRAPH_LAUNCH, MEMCPY, Timeline, steady

from robot_perf.analyze.diagnose import RULES, diagnose
from robot_perf.analyze.diagnose.account import account
from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.intervals import union
from robot_perf.analyze.diagnose.model import CANT, CLEAN, FOUND
from robot_perf.analyze.diagnose.steps import find_steps
from robot_perf.analyze.diagnose.thresholds import SOURCES, Thresholds, documented
from robot_perf.analyze.diagnose.work import devices_of
from robot_perf.errors import UsageError
from robot_perf.profiles.model import NVTX, Profile

L = Thresholds()
intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)).map(lambda t: (t[0], t[0] + t[1])), max_size=12)


def naive_covered(spans: list[tuple[int, int]], low: int, high: int) -> set[int]:
    """Unit cells [i, i+1) that some span covers."""
    return {i for a, b in spans for i in range(a, b) if low <= i < high}


@given(intervals, st.integers(-10, 150), st.integers(0, 120))
def test_union_and_gaps_against_a_naive_implementation(spans: list[tuple[int, int]], low: int, width: int) -> None:
    high = low + width
    u = union(np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64))
    covered = naive_covered(spans, low, high)
    assert int(u.inside(np.array([low]), np.array([high]))[0]) == len(covered)
    start, end = u.gaps(low, high)
    empty = {i for a, b in zip(start.tolist(), end.tolist(), strict=True) for i in range(a, b)}
    assert empty == set(range(low, high)) - covered
    assert all(b < c for b, c in zip(end[:-1].tolist(), start[1:].tolist(), strict=True)), (
        "gaps are disjoint and maximal"
    )


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    t = Timeline()
    for corr in range(1, draw(st.integers(1, 14))):
        start = draw(st.integers(0, 400)) * 1000
        length = draw(st.integers(0, 60)) * 1000
        kind, name = draw(
            st.sampled_from([(0, "k"), (0, "ncclDevKernel_AllReduce"), (1, "[memcpy h2d]"), (2, "[memset]")])
        )
        t.op(start, start + length, corr=corr, kind=kind, name=name, stream=draw(st.integers(1, 3)))
        if draw(st.booleans()):
            call = draw(st.integers(0, 400)) * 1000
            t.call(call, call + draw(st.integers(1, 80)) * 1000, corr=corr)
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, 400)) * 1000
        t.sync(begin, begin + 30_000)
        t.overhead(begin + 5000, begin + 15_000, kind=draw(st.sampled_from([6, 7, 8])))
    t.op(0, 1000, corr=999)
    return t


@given(timelines())
@settings(max_examples=150)
def test_shares_of_a_window_add_up_and_gap_parts_too(t: Timeline) -> None:
    profile = t.profile()
    work = devices_of(profile)[0]
    steps = find_steps(profile, work, L)
    acc = account(work, steps, L)  # raises AssertionError when they don't
    assert (acc.compute + acc.copy + acc.communication + acc.idle == acc.window).all()
    g = acc.gaps
    assert (g.late + g.queued + g.unknown + g.overhead == g.length).all()
    assert (g.sync <= g.late).all() and (g.sync >= 0).all()
    assert int(g.length.sum()) == int((steps.window_ns).sum()) - work.unions[2].length


@given(timelines(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_facts_do_not_depend_on_the_order_of_rows(t: Timeline, random) -> None:  # type: ignore[no-untyped-def]
    before = diagnose(t.profile())
    for rows in (t.ops, t.calls, t.spans):
        random.shuffle(rows)
    after = diagnose(t.profile())
    assert before.primary == after.primary
    assert before.facts["devices"] == after.facts["devices"]
    assert [(f.rule, f.outcome) for f in before.findings] == [(f.rule, f.outcome) for f in after.findings]


def gaps_of(t: Timeline):  # type: ignore[no-untyped-def]
    profile = t.profile()
    work = devices_of(profile)[0]
    return account(work, find_steps(profile, work, L), L).gaps


def test_a_call_that_begins_in_the_gap_is_host_late_to_the_op() -> None:
    t = Timeline()
    t.op(0, 1000, corr=1)
    t.call(20_000, 28_000, corr=2)
    t.op(40_000, 41_000, corr=2)  # 12 us after its call: within 20 us
    g = gaps_of(t)
    assert (g.late.tolist(), g.queued.tolist()) == ([39_000], [0])


def test_an_op_that_waits_longer_after_its_call_is_queued_for_the_rest() -> None:
    t = Timeline()
    t.op(0, 1000, corr=1)
    t.call(20_000, 28_000, corr=2)
    t.op(60_000, 61_000, corr=2)
    g = gaps_of(t)
    assert (g.late.tolist(), g.queued.tolist()) == ([27_000], [32_000])


def test_work_launched_before_the_gap_is_queued() -> None:
    t = Timeline()
    t.call(0, 500, corr=1)
    t.call(600, 900, corr=2)
    t.op(1000, 2000, corr=1)
    t.op(5000, 6000, corr=2)
    assert gaps_of(t).queued.tolist() == [3000]


def test_only_the_first_op_of_a_running_graph_launch_is_host_late() -> None:
    t = Timeline()
    t.op(0, 1000, corr=9)
    t.call(500, 9000, corr=1, kind=GRAPH_LAUNCH, name="cudaGraphLaunch")
    t.op(3000, 4000, corr=1)
    t.op(6000, 7000, corr=1)
    g = gaps_of(t)
    assert (g.late.tolist(), g.queued.tolist()) == ([2000, 0], [0, 2000])


def test_unlinked_work_ends_a_gap_of_unknown_cause() -> None:
    t = Timeline()
    t.op(0, 1000, corr=1)
    t.op(9000, 9500)
    assert gaps_of(t).unknown.tolist() == [8000]


def test_loading_is_taken_out_of_the_window_but_a_full_queue_is_not() -> None:
    t = Timeline()
    t.op(0, 1000, corr=1)
    t.overhead(2000, 12_000, kind=6)
    t.overhead(12_000, 14_000, kind=8)
    t.call(1500, 20_000, corr=2)
    t.op(21_000, 22_000, corr=2)
    g = gaps_of(t)
    assert (g.overhead.tolist(), g.late.tolist()) == ([10_000], [10_000])


def test_sync_inside_host_late_counts_only_for_the_launching_thread() -> None:
    for thread, expected in ((1, 8000), (2, 0)):
        t = Timeline()
        t.op(0, 1000, corr=1)
        t.sync(2000, 10_000, thread=thread)
        t.call(12_000, 14_000, corr=2, thread=1)
        t.op(15_000, 16_000, corr=2)
        assert gaps_of(t).sync.tolist() == [expected]


def test_asynchronous_copies_are_no_synchronising_calls() -> None:
    t = Timeline()
    t.op(0, 1000, corr=1)
    t.call(2000, 10_000, kind=2, name="cudaMemcpyAsync")
    t.call(10_000, 11_000, kind=2, name="cudaMemcpy")
    t.call(12_000, 14_000, corr=2)
    t.op(15_000, 16_000, corr=2)
    assert gaps_of(t).sync.tolist() == [1000]


def test_idle_between_steps_is_slack_and_not_a_fault() -> None:
    t = Timeline()
    at = 0
    for corr in range(1, 31):
        t.span(at, at + 100_000, "policy_step")
        t.call(at, at + 5000, corr=corr)
        t.op(at + 5500, at + 99_000, corr=corr)
        at += 20_000_000
    d = diagnose(t.profile(), period_ns=20_000_000)
    assert d.primary == "GPU, class not measured"
    assert d.deadline.startswith("deadline met with")
    assert d.facts["step"]["slack_median_ns"] == 19_900_000
    assert d.facts["devices"][0]["busy_fraction_all_device_work"] < 0.01


def test_a_launch_bound_policy_is_named_with_its_numbers() -> None:
    d = diagnose(steady().profile())
    f = next(f for f in d.findings if f.rule == "launch/CPU")
    assert (d.primary, f.outcome) == ("launch/CPU", FOUND)
    assert f.evidence["launches_per_step"] == 4 and f.evidence["call_median_ns"] == 8000


def test_two_parts_within_five_points_are_mixed() -> None:
    t = Timeline()
    t.op(0, 1000, corr=900)
    at = 1000
    for corr in range(1, 31):
        t.call(at - 500, at - 100, corr=corr)
        t.call(at - 90, at - 10, corr=corr + 100)
        t.op(at, at + 50_000, corr=corr)
        t.op(
            at + 50_000,
            at + 98_000,
            corr=corr + 100,
            kind=MEMCPY,
            name="[memcpy h2d]",
            copy=0,
            host_mem=1,
            bytes=1 << 20,
        )
        at += 98_000
    assert diagnose(t.profile()).primary == "mixed: GPU, class not measured + transfer"


def test_exposed_communication_is_named() -> None:
    t = Timeline()
    for i in range(30):
        t.call(i * 100, i * 100 + 50, corr=i + 1)
        t.op(
            10_000 + i * 100, 10_090 + i * 100, corr=i + 1, name="ncclDevKernel_AllReduce_Sum_f32" if i % 2 else "gemm"
        )
    d = diagnose(t.profile())
    f = next(f for f in d.findings if f.rule == "communication")
    assert f.outcome == FOUND and f.concerned == ("ncclDevKernel_AllReduce_Sum_f32",)


def test_unknown_idle_cannot_be_attributed() -> None:
    t = Timeline()
    for i in range(30):
        t.op(i * 10_000, i * 10_000 + 100)
    d = diagnose(t.profile())
    assert d.primary == CANT and "cause of idle" in d.headline
    assert next(f for f in d.findings if f.rule == "dependency").outcome == CANT
    assert any("no launch call" in c.reason for c in d.cant_answer)


def test_sync_is_the_host_part_when_half_of_it_lies_inside_calls() -> None:
    t = Timeline()
    at = 0
    for corr in range(1, 13):
        t.span(at, at + 100_000, "policy_step")
        t.call(at, at + 2000, corr=corr)
        t.op(at + 2500, at + 10_000, corr=corr)
        t.sync(at + 3000, at + 95_000)
        at += 1_000_000
    d = diagnose(t.profile())
    assert d.primary == "sync"
    assert next(f for f in d.findings if f.rule == "sync").outcome == FOUND


def with_item(reads: int) -> Timeline:
    """A step whose values are read back in mid-step: the queue is empty after each read."""
    t, at, corr = Timeline(), 0, 1
    for _ in range(6):
        begin = at
        for i in range(8):
            t.call(at, at + 2000, corr=corr)
            t.op(at + 2500, at + 30_000, corr=corr)
            corr += 1
            at += 30_000
            if i < reads:
                t.span(at - 20_000, at + 3000, "aten::item", kind=2)
                t.call(at - 19_000, at + 1500, corr=corr, kind=2, name="cudaMemcpyAsync")
                t.op(at, at + 1000, corr=corr, kind=MEMCPY, name="[memcpy d2h]", copy=1, host_mem=0, bytes=4)
                t.sync(at + 1500, at + 2500)
                corr += 1
                at += 20_000
        t.span(begin, at, "policy_step")
        at += 2_000_000
    return t


def test_reads_in_mid_step_are_found_with_the_operator() -> None:
    found = next(f for f in diagnose(with_item(4).profile()).findings if f.rule == "sync")
    assert found.outcome == FOUND and found.concerned == ("aten::item",)
    assert found.evidence["mid_step_reads"]["per_step"] == 4
    clean = next(f for f in diagnose(with_item(0).profile()).findings if f.rule == "sync")
    assert clean.outcome == CLEAN


def test_many_waits_while_the_device_is_busy_are_no_finding() -> None:
    t = Timeline()
    for i in range(40):
        t.call(i * 100_000, i * 100_000 + 2000, corr=i + 1)
        t.op(i * 100_000 + 2500, (i + 1) * 100_000 + 2500, corr=i + 1)
        t.sync(i * 100_000 + 5000, i * 100_000 + 95_000)
    assert next(f for f in diagnose(t.profile()).findings if f.rule == "sync").outcome == CLEAN


def test_a_slow_first_step_is_left_out_of_medians() -> None:
    t = steady(8)
    t.spans[0]["end_ns"] += 1_500_000
    for row in t.spans:
        row.pop("dur_ns", None)
    d = diagnose(t.profile())
    f = next(f for f in d.findings if f.rule == "cold start")
    assert f.outcome == FOUND and d.facts["step"]["kept"] == 7


def test_a_step_that_fell_back_from_its_graph_is_found() -> None:
    t, corr = Timeline(), 1
    for i in range(8):
        at = i * 1_000_000
        t.span(at, at + 50_000, "policy_step")
        kind, name = (0, "cudaLaunchKernel") if i == 5 else (GRAPH_LAUNCH, "cudaGraphLaunch")
        for n in range(4):
            if n == 0 or i == 5:
                corr += 1
                t.call(at + n * 3000, at + n * 3000 + 2000, corr=corr, kind=kind, name=name)
            t.op(at + 5000 + n * 3000, at + 7000 + n * 3000, corr=corr)
    check = diagnose(t.profile()).checks[0]
    assert (check.rule, check.outcome) == ("fallback", FOUND)


def test_a_step_that_compiled_is_found() -> None:
    t = steady(6)
    t.span(
        t.spans[3]["start_ns"] + 10,
        t.spans[3]["start_ns"] + 20_000,
        "torch/_dynamo/convert_frame.py(1): __call__",
        kind=3,
    )
    check = diagnose(t.profile()).checks[0]
    assert check.outcome == FOUND and check.evidence["steps_that_compiled"] == 1
    assert diagnose(steady(6).profile()).checks[0].outcome == CLEAN


def test_repeated_graph_launches_are_steps_without_ranges() -> None:
    t = Timeline()
    for i in range(6):
        t.call(i * 100_000, i * 100_000 + 9000, corr=i + 1, kind=GRAPH_LAUNCH, name="cudaGraphLaunch")
        for n in range(5):
            t.op(i * 100_000 + 10_000 + n * 9000, i * 100_000 + 18_500 + n * 9000, corr=i + 1)
    profile = t.profile()
    steps = find_steps(profile, devices_of(profile)[0], L)
    assert (len(steps), steps.how) == (6, "repeated graph launches")


def test_autograd_ranges_are_never_steps() -> None:
    t = steady(3)
    for row in t.spans:
        row["kind"] = 2
    profile = t.profile()
    assert find_steps(profile, devices_of(profile)[0], L).whole


def test_a_users_pattern_wins_and_a_bad_one_is_refused() -> None:
    t = steady(4)
    for i in range(4):
        t.span(t.spans[i]["start_ns"], t.spans[i]["start_ns"] + 60_000, f"perception {i}", kind=NVTX)
    profile = t.profile()
    work = devices_of(profile)[0]
    assert find_steps(profile, work, L).name == "policy_step"
    assert find_steps(profile, work, L, "percep").name == "perception #"
    with pytest.raises(UsageError, match="not a regular expression"):
        find_steps(profile, work, L, "(")
    with pytest.raises(UsageError, match=r"perception #"):
        find_steps(profile, work, L, "nothing here")


def test_overlapping_steps_become_device_windows() -> None:
    t = Timeline()
    for i in range(6):
        at = i * 10_000
        t.span(at, at + 9000, "policy_step")
        t.call(at, at + 1000, corr=i + 1)
        t.op(20_000 + i * 50_000, 69_000 + i * 50_000, corr=i + 1)
    profile = t.profile()
    steps = find_steps(profile, devices_of(profile)[0], L)
    assert steps.host_ahead
    assert steps.window_ns.tolist() == [49_000] * 6


@pytest.mark.parametrize(("ops", "steps", "answered"), [(19, 0, False), (20, 0, True), (3, 3, True), (2, 2, False)])
def test_too_little_data(ops: int, steps: int, answered: bool) -> None:
    t = Timeline()
    for i in range(ops):
        at = i * 100_000
        t.call(at, at + 5000, corr=i + 1)
        t.op(at + 6000, at + 30_000, corr=i + 1)
        if i < steps:
            t.span(at, at + 40_000, "policy_step")
    d = diagnose(t.profile())
    assert d.answered == answered
    assert (d.primary == CANT) == (not answered)


def test_each_device_is_printed_and_the_busiest_decides() -> None:
    t = steady(4)
    t.op(0, 5_000_000, corr=7777, device=1)
    d = diagnose(t.profile())
    assert [x["device"] for x in d.facts["devices"]] == [1, 0]


def test_every_threshold_has_its_source() -> None:
    assert [name for name, _, _ in documented()] == list(SOURCES)
    assert all(source for _, _, source in documented())


def test_thresholds_are_options() -> None:
    profile: Profile = steady().profile()
    assert diagnose(profile, limits=replace(L, primary_share=99.9)).primary == CANT
    context = Context(profile, L)
    assert context.shares["host"] > 50


def test_every_rule_always_has_an_outcome() -> None:
    for profile in (steady().profile(), Timeline().profile()):
        d = diagnose(profile)
        assert [f.rule for f in d.findings] == list(RULES)
        assert {f.outcome for f in d.findings} <= {FOUND, CLEAN, CANT}
        assert all(f.reason for f in d.findings)


def test_many_names_and_steps_stay_fast() -> None:
    import time

    t = steady(2000)
    for i in range(3000):
        t.span(i * 1000, i * 1000 + 10, "unique " + "".join(chr(97 + int(d)) for d in str(i)))
    profile = t.profile()
    begin = time.process_time()
    assert diagnose(profile).primary == "launch/CPU"
    assert time.process_time() - begin < 5
