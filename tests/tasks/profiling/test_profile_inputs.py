"""What `profile` feeds a policy that writes into its observation: what was recorded, as a measurement does."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_perf.errors import BackendUnavailableError, PolicyError
from robot_perf.measure.profiling.run import WARMUP_STEPS, profile_with_torch, run_marked
from robot_perf.tasks.deadline import DeadlineRequest
from robot_perf.tasks.profiling.profile import order_of

WRITER = """
import numpy as np
FED = []
class Policy:
    def __init__(self, after=0): self.after, self.calls = after, 0
    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 4]}}
    def step(self, inputs):
        self.calls += 1
        FED.append(inputs['obs'].copy())
        if self.calls > self.after: inputs['obs'] *= 0.25
        return (inputs['obs'].copy(),)
"""
RECORDED = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 1, 4)  # [steps, 1, 4]: each comes round many times


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The request of such a policy, by the number of calls before it begins to write, and the list of what it was fed."""
    (tmp_path / "writer.py").write_text(WRITER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "writer", raising=False)
    np.savez(tmp_path / "recorded.npz", **{"in.obs": RECORDED})

    def order(after: int = 0) -> Any:
        return order_of(
            DeadlineRequest(
                policy="writer:Policy",
                rate_hz="500",
                steps=12,
                backend="python",
                policy_options={"after": after},
                observations=tmp_path / "recorded.npz",
            )
        )

    return order


def observations(last: int) -> list[Any]:
    """The last of what the policy was fed."""
    return list(sys.modules["writer"].FED[-last:])


def marked(order: Any) -> dict[str, Any]:
    return run_marked(order, lambda _: None, lambda _: nullcontext())


def test_marked_steps_are_fed_what_was_recorded(fed: Any) -> None:
    facts = marked(fed())
    assert facts["steps"] == 12
    assert [o.tolist() for o in observations(12)] == [RECORDED[k % 3].tolist() for k in range(12)]
    assert [note for note in facts["notes"] if "writes into its observation" in note and "a copy" in note]


def test_traced_steps_are_fed_what_was_recorded(fed: Any, tmp_path: Path) -> None:
    try:
        facts = profile_with_torch(fed(), tmp_path / "t.json")
    except BackendUnavailableError:
        pytest.skip("needs torch")
    seen = [o.tolist() for o in observations(facts["steps"])]
    assert len(seen) > 3 and all(o in RECORDED.tolist() for o in seen)
    assert any("writes into its observation" in note for note in facts["notes"])


def test_a_policy_that_begins_to_write_later_is_told(fed: Any) -> None:
    facts = marked(fed(after=WARMUP_STEPS + 5))
    assert any("not in warm-up" in note for note in facts["notes"])


def test_a_policy_that_does_not_write_has_no_note(fed: Any) -> None:
    assert marked(fed(after=10_000))["notes"] == []


NOTE = "note Policy writes into its observation: each step is given a copy"


def said(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[str, str]:
    """What `profile` writes to stdout and stderr."""
    from robot_perf.cli.__main__ import main

    words = "profile writer:Policy --rate 500 --steps 12 --backend python --observations recorded.npz"
    try:
        main([*words.split(), *more])
    except SystemExit as end:
        assert not end.code
    out, err = capsys.readouterr()
    return " ".join(out.split()), " ".join(err.split())


def test_the_note_is_printed(fed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert NOTE in said(capsys, "-o", "t.json")[0]


def test_under_a_profiler_the_note_leaves_stdout_alone(
    fed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the CSV of ncu's run of a few metrics."""
    monkeypatch.setattr("robot_perf.tasks.profiling.profile.run_under_profiler", lambda _: marked(fed()))
    out, err = said(capsys, "--under-profiler")
    assert out == "" and NOTE in err


@pytest.mark.parametrize(("at", "where"), [(WARMUP_STEPS // 2, "before"), (WARMUP_STEPS + 6, "under")])
def test_what_the_policy_raises_is_its_own_fault_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, where: str
) -> None:
    (tmp_path / "raising.py").write_text(WRITER.replace("inputs['obs'] *= 0.25", "raise ValueError('no joint 3')"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "raising", raising=False)
    request = DeadlineRequest(
        policy="raising:Policy", rate_hz="500", steps=12, backend="python", policy_options={"after": at}
    )
    with pytest.raises(PolicyError) as told:
        run_marked(order_of(request), control=lambda _: None, mark=lambda _: nullcontext())
    assert "the policy raised ValueError: no joint 3 (raising.py:" in told.value.what
    assert f"{where} the profiler" in told.value.why


COUNTER = """
import numpy as np
BEGAN = []
class Policy:
    def __init__(self): self.steps = 0
    def reset(self):
        self.steps = 0
    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 4]}}
    def step(self, inputs):
        BEGAN.append(self.steps)
        self.steps += 1
        return (inputs['obs'].copy(),)
"""


@pytest.mark.parametrize("way", ["marked", "traced"])
def test_what_is_profiled_begins_after_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """As a measurement's window does: a policy with a state was profiled from its 21st step on, or its 24th."""
    (tmp_path / "counter.py").write_text(COUNTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "counter", raising=False)
    order = order_of(DeadlineRequest(policy="counter:Policy", rate_hz="500", steps=12, backend="python"))
    try:
        facts = marked(order) if way == "marked" else profile_with_torch(order, tmp_path / "t.json")
    except BackendUnavailableError:
        pytest.skip("needs torch")
    assert sys.modules["counter"].BEGAN[-facts["steps"] :] == list(range(facts["steps"]))


PRINTER = """
import os, numpy as np
class Policy:
    def spec(self): return {'inputs': {'obs': [1, 4]}, 'outputs': {'actions': [1, 4]}}
    def step(self, inputs):
        print('joint 3 is warm')
        os.write(1, b'from native code')
        return (inputs['obs'].copy(),)
"""


def test_what_a_policy_prints_is_not_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`profile --json` was no JSON: the policy's prints came first."""
    (tmp_path / "printer.py").write_text(PRINTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "printer", raising=False)
    order = order_of(DeadlineRequest(policy="printer:Policy", rate_hz="500", steps=5, backend="python"))
    try:
        profile_with_torch(order, tmp_path / "t.json")
    except BackendUnavailableError:
        pytest.skip("needs torch")
    print("the report")
    out, err = capfd.readouterr()
    assert out == "the report\n"
    assert "joint 3 is warm" in err and "from native code" in err
