"""Keep-warm on a fake clock: when it acts, that it never delays a release by itself, what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loop_fakes import FakeClock, NoObservations, Rows, ScriptedRunner

from robot_perf.errors import UsageError
from robot_perf.measure.loop import run_window
from robot_perf.measure.step import OutputWatch, make_step
from robot_perf.measure.window.keep_warm import (
    ALL,
    LEADS_US,
    KeepWarm,
    keep_warm_hook,
    loop_part,
    parse_keep_warm,
    rehearsal_faults,
)
from robot_perf.specs import LoopSpec, PolicySpec, StatePair, TensorSpec

MS, US = 1_000_000, 1_000


class Clock(FakeClock):
    """Reading the clock takes 1 µs, so that a busy-wait ends."""

    def now(self) -> int:
        self.time_ns += US
        return self.time_ns


class Runner(ScriptedRunner):
    """Counts rehearsals; each moves the clock by 40 µs."""

    def __init__(self, clock: FakeClock, state: tuple[StatePair, ...] = ()) -> None:
        super().__init__(clock, lambda _: 100 * US)
        self.rehearsed_at: list[int] = []
        self.spec = PolicySpec("fake", "builtin", state=state)
        self.took = 40 * US

    def rehearse_on(self, observation) -> None:
        self.rehearsed_at.append(self._clock.time_ns)
        self._clock.time_ns += self.took

    def facts(self) -> dict[str, str]:
        return {"backend": "fake"}


def window(text: str, *, runner: Runner | None = None, clock: FakeClock | None = None, steps: int = 5):
    clock = clock or Clock()
    runner = runner or Runner(clock)
    loop = LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=steps, keep_warm=text)
    rows, stop = Rows(), [False]
    before = keep_warm_hook(loop, runner, NoObservations(), clock, stop)
    step = make_step(runner, NoObservations(), rows, clock, OutputWatch(0))
    run_window(loop, 20 * MS, step, rows, clock, stop, before=before)
    return rows, runner


@pytest.mark.parametrize("text", [*ALL, "rehearse", "spin:0.5", "rehearse-loop:period", "tiny-kernel:300+spin"])
def test_every_documented_form_is_read(text):
    plan = parse_keep_warm(text)
    assert isinstance(plan, KeepWarm)
    assert plan.spin_sync == ("spin-sync" in text)
    assert "spin-sync" not in loop_part(text)
    assert parse_keep_warm(loop_part(text)).action == plan.action


@pytest.mark.parametrize(
    "text",
    ["", "warm", "rehearse:", "rehearse:-3", "rehearse:0", "rehearse:nan", "rehearse:period", "none:300", "none+spin",
     "spin:1e9", "rehearse:300+spin+spin", "rehearse-every:1000+spin", "rehearse-every:period", "rehearse:300+tiny-kernel:100", "spin-sync:3", "spin-sync+spin", "touch:99999999999"],
)  # fmt: skip
def test_other_words_are_refused_with_the_allowed_ones(text):
    with pytest.raises(UsageError):
        parse_keep_warm(text)


def test_none_leaves_the_loop_alone():
    clock = Clock()
    loop = LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=3)
    assert keep_warm_hook(loop, Runner(clock), NoObservations(), clock, [False]) is None


def test_a_rehearsal_begins_at_its_lead_and_the_release_stays_on_the_grid():
    rows, runner = window("rehearse:300")
    releases = [20 * MS + k * 10 * MS for k in range(5)]
    assert rows.column("release_ns") == releases
    for release, at in zip(releases, runner.rehearsed_at, strict=True):
        assert 0 <= at - (release - 300 * US) <= 3 * US
    for release, wake in zip(releases, rows.column("wake_ns"), strict=True):
        assert 0 <= wake - release <= 3 * US


def test_rehearsals_repeat_until_the_next_would_not_fit():
    rows, runner = window("rehearse-loop:1000", steps=1)
    assert 10 <= len(runner.rehearsed_at) <= 24
    # the last one ends before the release: twice its length was free when it began
    assert runner.rehearsed_at[-1] + 40 * US < 20 * MS
    assert rows.column("wake_ns")[0] - 20 * MS <= 3 * US


def test_rehearsals_come_at_every_gap_before_the_release():
    rows, runner = window("rehearse-every:2000", steps=3)
    # 10 ms periods, steps of 0.1 ms: beats at release - 8, 6, 4 and 2 ms; more before the first release, which is further away
    for release in (30 * MS, 40 * MS):
        beats = [at - release for at in runner.rehearsed_at if release - 10 * MS < at < release]
        assert [round(b / MS) for b in beats] == [-8, -6, -4, -2]
    assert all(0 <= w - r <= 3 * US for r, w in zip(rows.column("release_ns"), rows.column("wake_ns"), strict=True))


def test_a_rehearsal_longer_than_the_gap_leaves_beats_out():
    clock = Clock()
    runner = Runner(clock)
    runner.took = 3 * MS
    rows, _ = window("rehearse-every:2000", runner=runner, clock=clock, steps=3)
    assert len(runner.rehearsed_at) <= 9
    assert max(w - r for r, w in zip(rows.column("release_ns"), rows.column("wake_ns"), strict=True)) <= 1_010 * US


def test_a_rehearsal_that_runs_past_the_release_is_seen_as_wake_up_latency():
    clock = Clock()
    runner = Runner(clock)
    runner.took = 2 * MS
    rows, _ = window("rehearse:300", runner=runner, clock=clock)
    late = [w - r for r, w in zip(rows.column("release_ns"), rows.column("wake_ns"), strict=True)]
    assert min(late) >= 1_690 * US


def test_spin_reaches_the_release_without_a_second_sleep():
    clock = Clock(overshoot=lambda _: 60 * US)
    rows, _ = window("spin:500", clock=clock)
    # the sleep before the spin may overshoot by 60 µs; the spin ends within one reading of the clock
    assert all(0 <= w - r <= 3 * US for r, w in zip(rows.column("release_ns"), rows.column("wake_ns"), strict=True))


def test_own_work_does_not_hold_the_keep_warm():
    plain, _ = window("none")
    warm, _ = window("rehearse:300")
    assert max(warm.column("own_ns")) <= max(plain.column("own_ns")) + 5 * US


class Plain(ScriptedRunner):
    """A runner without a rehearsal of its own."""

    def __init__(self, clock: FakeClock, spec: PolicySpec) -> None:
        super().__init__(clock, lambda _: 50 * US)
        self.spec = spec

    def facts(self) -> dict[str, str]:
        return {"backend": "plain", "device": "cpu"}


class Zeros:
    def reader(self):  # type: ignore[no-untyped-def]
        return lambda k: (np.zeros((1, 3), np.float32),)


def hook(text: str, spec: PolicySpec, **loop) -> object:
    clock = Clock()
    settings = {"period_ns": 10 * MS, "deadline_ns": 10 * MS, "steps": 3, **loop}
    return keep_warm_hook(LoopSpec(keep_warm=text, **settings), Plain(clock, spec), Zeros(), clock, [False])


def test_a_policy_without_state_is_rehearsed_by_a_plain_step():
    assert hook("rehearse:300", PolicySpec("p", "builtin")) is not None


@pytest.mark.parametrize(
    "spec",
    [
        PolicySpec("p", "onnx", inputs=(TensorSpec("h", "float32", (1, 3)),), state=(StatePair(0, 0),)),
        PolicySpec("p", "torchscript", state_note="state: buffers hidden_state, reset by reset_memory()"),
    ],
)
def test_a_rehearsal_that_would_move_the_state_is_refused(spec):
    with pytest.raises(UsageError, match="can't rehearse"):
        hook("rehearse:300", spec)


@pytest.mark.parametrize("text", ["tiny-kernel:300", "touch:300"])
def test_device_cures_are_refused_on_the_cpu(text):
    with pytest.raises(UsageError, match="keep-warm"):
        hook(text, PolicySpec("p", "builtin"))


@pytest.mark.parametrize(
    ("loop", "word"),
    [
        ({"period_ns": 0}, "back to back"),
        ({"shape": "sleep-rest"}, "absolute"),
        ({"period_ns": 200 * US}, "does not fit"),
    ],
)
def test_loops_without_the_idle_time_are_refused(loop, word):
    with pytest.raises(UsageError, match=word):
        hook("rehearse:300", PolicySpec("p", "builtin"), **loop)


class Remembering:
    """A policy whose answer is its observation plus how often it was asked; `rehearse_on` may forget to put that back."""

    def __init__(self, *, puts_back: bool, resets: bool = True) -> None:
        self.spec = PolicySpec("remembering", "builtin")
        self.asked, self.puts_back, self.resets = 0.0, puts_back, resets

    def reset(self) -> None:
        if self.resets:
            self.asked = 0.0

    def step(self, _observation):
        self.asked += 1
        return [np.array([self.asked])]

    def rehearse_on(self, observation) -> None:
        before = self.asked
        self.step(observation)
        if self.puts_back:
            self.asked = before


@pytest.mark.parametrize(
    ("runner", "invalid", "noted"),
    [
        (Remembering(puts_back=True), False, False),
        (Remembering(puts_back=False), True, False),
        (Remembering(puts_back=True, resets=False), False, True),
    ],
    ids=["put back", "moved", "not repeatable"],
)
def test_the_truth_gate_holds_answers_with_rehearsals_against_answers_without(runner, invalid, noted):
    loop = LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=5, keep_warm="rehearse:300")
    faults, notes = rehearsal_faults(loop, runner, NoObservations())
    assert bool(faults) == invalid and bool(notes) == noted
    assert not invalid or "changes what remembering answers next" in faults[0]
    assert not noted or "not known whether the rehearsals moved its state" in notes[0]


def test_without_a_rehearsal_nothing_is_compared():
    loop = LoopSpec(period_ns=10 * MS, deadline_ns=10 * MS, steps=5, keep_warm="spin:300")
    assert rehearsal_faults(loop, Remembering(puts_back=False), NoObservations()) == ([], [])


def test_a_lead_that_was_left_out_is_written_into_the_loop():
    """`--keep-warm spin` stood in the Run as that: how long it spun, nobody could tell."""
    assert loop_part("spin") == "spin:1000"
    assert loop_part("rehearse+spin+spin-sync") == "rehearse:300+spin"
    assert loop_part("spin-sync") == loop_part("none") == "none"
    for name, lead in LEADS_US.items():
        assert parse_keep_warm(loop_part(name)).lead_ns == parse_keep_warm(name).lead_ns == lead * 1000
    page = (Path(__file__).resolve().parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")
    long = [f"`{name}`" for name, lead in LEADS_US.items() if lead == 1000]
    assert f"Without `:US` it is 1000 for {', '.join(long[:-1])} and {long[-1]}, else 300." in page
