"""Option values that nobody should type: each ends in 0 to 4, a refusal in one message that names something typed."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from robot_perf.cli.__main__ import main

OPTIONS = [
    "--rate", "--deadline-ms", "--miss-rate", "--confidence", "--assume-burst", "--m-in-k", "--limit", "--release-jitter-ms",
    "--steps", "--duration", "--overrun", "--wait", "--spin-margin-us", "--loop", "--shape", "--state", "--action", "--preset",
    "--option", "--backend", "--backend-option", "--threads", "--observations", "--seed", "--config", "--fifo", "--cpus", "--gc",
    "--python", "--hang-s", "--flush-s", "--inconclusive-is", "--max-consecutive", "--device",
]  # fmt: skip

words = st.one_of(
    st.text(max_size=12).filter(lambda s: "\0" not in s),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["nan", "inf", "-inf", "1e999", "0x10", "1,2", "p99=", "=1", "a=b=c", "../..", "/dev/null", "/", "🤖", "--rate", "%s%n", "1/0", "50/1"]),
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    """The fuzz is about what comes before the start."""

    def stop(*_arguments: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("robot_perf.tasks.deadline.run_deadline", stop)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(option=st.sampled_from(OPTIONS), value=words, policy=st.sampled_from(["null", "mlp", "spin:100", "lstm"]))
@example(option="--rate", value="1/0", policy="null")
@example(option="--rate", value="1e400", policy="null")
@example(option="--cpus", value="0-99999", policy="null")
@example(option="--limit", value="p99.9=nan", policy="null")
@example(option="--python", value="onnxruntime=/nonexistent", policy="mlp")
@example(option="--option", value="0=0", policy="mlp")
def test_any_option_value_ends_in_an_exit_code(option, value, policy):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(["deadline", policy, "--rate", "50", f"{option}={value}"])
    assert end.value.code in (0, 1, 2, 3, 4, None)
    assert "Traceback" not in err.getvalue()
    if end.value.code == 2:
        text = err.getvalue()
        assert option.lstrip("-") in text or value.strip()[:6] in text or "rate" in text, text


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policy=words)
def test_any_policy_word_ends_in_an_exit_code(policy):
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(["deadline", "--rate", "50", "--", policy])
    assert end.value.code in (0, 2)
    assert "Traceback" not in err.getvalue()
