"""The command `compare`: its answers, its exit codes, and what it refuses to put side by side."""

from __future__ import annotations

import json

import pytest
from cli_calls import call
from fake_runs import MS, US, executions, make_run

from robot_perf.run.parquet import save


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    slow = {i * 50: 25 * MS for i in range(1, 18)}
    runs = {
        "a": make_run(executions(1000), scheduled=1000),
        "again": make_run(executions(1000, seed=3), scheduled=1000),
        "slow": make_run(executions(1000, typical_ns=450 * US, slow=slow), scheduled=1000),
        "stall": make_run(executions(1000, seed=3, slow={500: 390 * MS}), scheduled=1000),
        "short": make_run(executions(4), scheduled=4),
        "rate": make_run(executions(500), period_ns=10 * MS, scheduled=500),
        "invalid": make_run(executions(100), scheduled=1000, state="interrupted after 100 of 1,000 releases"),
    }
    return {name: save(run, folder / f"{name}.parquet") for name, run in runs.items()}


def test_json_contract(files, capsys):
    assert call("compare", files["a"], files["slow"], "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["latency"]["answer"] == "slower"
    assert document["misses"]["answer"] == "more"
    assert document["a"] == str(files["a"])
    assert "fail_if" not in document
    assert call("compare", files["slow"], files["a"], "--json") == 0
    assert json.loads(capsys.readouterr().out)["latency"]["answer"] == "faster"


@pytest.mark.parametrize(
    ("b", "expression", "code"),
    [
        ("slow", "slower", 1),
        ("slow", "p99>1.1", 1),
        ("slow", "misses", 1),
        ("slow", "faster", 0),
        ("again", "slower or misses", 0),
        ("short", "slower", 3),
        ("slow", "p99>>1", 2),
    ],
)
def test_exit_codes(files, capsys, b, expression, code):
    assert call("compare", files["a"], files[b], "--fail-if", expression) == code
    capsys.readouterr()


@pytest.mark.parametrize(("meaning", "code"), [("fail", 1), ("pass", 0), ("maybe", 2)])
def test_inconclusive_is(files, meaning, code):
    assert call("compare", files["a"], files["short"], "--fail-if", "slower", "--inconclusive-is", meaning) == code


def test_fail_if_in_the_document(files, capsys):
    call("compare", files["a"], files["slow"], "--fail-if", "slower", "--json")
    assert json.loads(capsys.readouterr().out)["fail_if"] == {"expression": "slower", "holds": True}


def test_text_names_answer_and_files(files, capsys):
    assert call("compare", files["a"], files["slow"], "--fail-if", "slower") == 1
    out = capsys.readouterr().out
    assert out.startswith("SLOWER     B is slower than A at p50")
    assert str(files["slow"]) in out
    assert out.splitlines()[-1] == "fail if    slower: true"


def test_an_a_a_pair_can_raise_the_floor(files, capsys):
    assert call("compare", files["a"], files["slow"], "--aa", files["a"], files["slow"], "--json") == 0
    latency = json.loads(capsys.readouterr().out)["latency"]
    assert latency["floor_source"].startswith("A/A pair, the largest")
    assert latency["answer"] == "no difference"


def test_the_text_says_what_two_runs_cannot_tell_and_what_would(files, capsys):
    call("compare", files["a"], files["slow"])
    out = " ".join(capsys.readouterr().out.split())
    assert "two Runs can't tell a difference of the size by which runs of the same thing differ" in out
    assert "next to be sure of a small difference, measure A and B in turns, six times" in out


def test_misses_that_may_be_chance_are_no_pass(files, capsys):
    """One stall of B, none of A: p 0.5, and the gate let it through with exit code 0."""
    assert call("compare", files["a"], files["stall"], "--fail-if", "misses") == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "B's rate is higher, which may be chance; longer runs would tell" in out
    assert out.endswith(
        "fail if misses: can't say: measure A and B longer, or let --inconclusive-is fail or pass decide"
    )
    assert call("compare", files["stall"], files["a"], "--fail-if", "misses") == 0
    capsys.readouterr()


@pytest.mark.parametrize(("b", "words"), [("rate", "loop.period_ns: 20.00 ms and 10.00 ms"), ("invalid", "INVALID")])
def test_what_is_not_comparable(files, capsys, b, words):
    assert call("compare", files["a"], files[b]) == 2
    error = capsys.readouterr().err
    assert "not comparable" in error
    assert words in error
    assert str(files[b]) in error


def test_a_refusal_says_what_why_and_the_options_that_allow_it(files, capsys):
    """What differs, both values and what to do are three short lines; pasting the options of the last one works."""
    assert call("compare", files["a"], files["rate"]) == 2
    what, why, do = capsys.readouterr().err.splitlines()
    assert "not comparable: loop.period_ns, loop.deadline_ns differ" in what
    assert why == "loop.period_ns: 20.00 ms and 10.00 ms; loop.deadline_ns: 20.00 ms and 10.00 ms"
    options = do[do.index("--allow") :].split()
    assert call("compare", files["a"], files["rate"], *options) == 0
    capsys.readouterr()


def test_an_unknown_condition_is_refused_with_the_nearest_one(files, capsys):
    assert call("compare", files["a"], files["rate"], "--allow", "loop.periods_ns") == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Did you mean loop.period_ns?"


def test_a_condition_may_be_allowed_to_differ(files, capsys):
    arguments = ["--allow", "loop.period_ns", "--allow", "loop.deadline_ns"]
    assert call("compare", files["a"], files["rate"], *arguments) == 0
    capsys.readouterr()


def test_unreadable_file(files, tmp_path, capsys):
    assert call("compare", files["a"], tmp_path / "nope.parquet") == 2
    assert "nope.parquet does not exist" in capsys.readouterr().err


def test_a_run_is_not_compared_with_itself(files, capsys):
    """A slip in a script read "no difference"; an A/A pair of one file, a noise floor of nothing."""
    assert call("compare", files["a"], files["a"]) == 2
    assert "A and B are the same file" in capsys.readouterr().err
    assert call("compare", files["a"], files["slow"], "--aa", files["a"], files["a"]) == 2
    assert "the A/A pair are the same file" in capsys.readouterr().err
