"""Rows taken a batch at a time are those taken one at a time; events cut out of the text are those that are not read."""

from __future__ import annotations

import io
import json
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_perf.errors import ProfileError
from robot_perf.profiles.kineto import importer as kineto
from robot_perf.profiles.kineto import jsonstream
from robot_perf.profiles.kineto.jsonstream import EventStream
from robot_perf.profiles.kineto.rows import SHORT_RANGE, TraceRows
from robot_perf.profiles.kineto.times import picoseconds, picoseconds_since
from robot_perf.profiles.model import Profile, rows

BASE = 4_871_234_567_000


def number(text: str) -> str:
    """A JSON number that keeps its digits."""
    return f"@{text}@"


def dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, **options).replace('"@', "").replace('@"', "")


def table(profile: Profile, name: str) -> list[str]:
    """Rows in an order of their own, names resolved: neither the order nor the numbers of names are part of a Profile."""
    found = getattr(profile, name)
    lines = []
    for i, row in enumerate(rows(found, [c for c in found.columns if c != "api"])):
        texts = {c: found.text(c, i) for c in ("name", "raw_name") if c in found.columns}
        lines.append(repr(sorted({**row, **texts}.items())))
    return sorted(lines)


def tables(profile: Profile) -> list[list[str]]:
    return [table(profile, name) for name in ("kernels", "apis", "ranges", "overhead")]


TIMES = st.one_of(
    st.integers(0, 10**7).map(lambda n: f"{BASE + n // 1000}.{n % 1000:03d}"),
    st.integers(0, 10**7).map(lambda n: f"{BASE + n}"),
    st.tuples(st.integers(0, 9999), st.text("0123456789", min_size=1, max_size=6)).map(lambda t: f"{BASE + t[0]}.{t[1]}"),
)  # fmt: skip
LENGTHS = st.one_of(TIMES.map(lambda t: t[8:].lstrip("0") or "0"), st.sampled_from(["0.0", "9.999", "10", "10.0", "3e1", "1.5e3", "-2.000"])).map(lambda t: f"0{t}" if t.startswith(".") else t)  # fmt: skip
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "device": st.integers(0, 2), "stream": st.one_of(st.integers(0, 9), st.just("x")), "correlation": st.one_of(st.integers(-1, 99), st.none()), "bytes": st.integers(0, 99),
        "grid": st.just([1, 2, 3]), "block": st.just([4, 5, 6]), "registers per thread": st.integers(0, 9), "shared memory": st.integers(0, 9), "graph id": st.integers(1, 3),
    },
)  # fmt: skip
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "s", "i"]),
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "python_function", "user_annotation", "overhead", "ac2g"]),
        "name": st.sampled_from(["k", "Memcpy HtoD (Pageable -> Device)", "cudaLaunchKernel_v7000", 'say "x"', "a},{b"]),
        "pid": st.one_of(st.integers(0, 9), st.just("Spans")), "tid": st.integers(0, 9), "ts": TIMES.map(number), "dur": LENGTHS.map(number), "args": ARGUMENTS,
    }
)  # fmt: skip


def read_by_rows(text: str, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """The Profile by the way that handles one event at a time, with no event cut out and no double made."""
    with monkeypatch.context() as patched:
        patched.setattr(jsonstream, "from_json", lambda *_, **__: (_ for _ in ()).throw(ValueError()))
        patched.setattr(kineto, "SHORT_RANGE", None)
        patched.setattr(TraceRows, "_intervals", lambda *_: (_ for _ in ()).throw(ValueError()))
        return kineto.read(io.BytesIO(text.encode()), "t.json")


@given(st.lists(EVENTS, min_size=1, max_size=25), st.sampled_from([None, 1]), st.integers(60, 4000))
@settings(max_examples=80, deadline=None)
def test_a_batch_at_once_is_its_rows_one_by_one(events: list[dict[str, Any]], indent: int | None, chunk: int) -> None:
    text = dumps({"traceEvents": events}, indent=indent)
    before = jsonstream.CHUNK_BYTES
    with pytest.MonkeyPatch.context() as monkeypatch:
        want = tables(read_by_rows(text, monkeypatch))
    jsonstream.CHUNK_BYTES = chunk
    try:
        assert tables(kineto.read(io.BytesIO(text.encode()), "t.json")) == want
    finally:
        jsonstream.CHUNK_BYTES = before


@pytest.mark.parametrize(
    ("event", "fast"),
    [
        ('{"ts": 4871234567000.125, "dur": 1.5}', True), ('{"ts": 7, "dur": 2}', True), ('{"dur": 1.5, "ts" : 8.000}', True),
        ('{"ts": 1.5e3}', False), ('{"ts": -1.5}', False), ('{"a": 1}', False), ('{"ts": 2.5, "args": {"ts": 3.5}}', False), ('{"ts": 2.5, "ts": 3.5}', False),
        ('{"ts": 2.5, "name": "a\tb"}', False), ('{"ts": 2.5, "name": "\\ud800"}', False), ("5", False), ('{"args": {"ts": 9.5}, "ts": -9.5}', False),
    ],
)  # fmt: skip
def test_digits_of_a_key_are_kept_whichever_parser_reads(
    monkeypatch: pytest.MonkeyPatch, event: str, fast: bool
) -> None:
    """Every event's own digits, also where the faster parser can't tell which they are."""
    text = "[" + ", ".join([event, '{"ts": 4871234567000.001}', event, '{"ts": 0.0}', '{"ts": 1.0}']) + "]"
    finished: list[bool] = []
    whole = EventStream._parsed_fast

    def watched(self: EventStream, text: str) -> list[Any]:
        finished.append(False)
        found = whole(self, text)
        finished[-1] = True
        return found

    monkeypatch.setattr(EventStream, "_parsed_fast", watched)
    stream = EventStream(io.BytesIO(text.encode()), "t", frozenset(), None, "ts")
    want = json.JSONDecoder(parse_float=str, strict=False).decode(text)
    got = [e for batch in stream for e in batch]
    assert [e.get("ts") if isinstance(e, dict) else e for e in got] == [
        e.get("ts") if isinstance(e, dict) else e for e in want
    ]
    assert (True in finished) == fast


@given(st.integers(0, 10**9 - 1), st.text("0123456789", min_size=1, max_size=6))
def test_lengths_that_became_doubles_are_exact(whole: int, fraction: str) -> None:
    text = f"{whole}.{fraction}"
    exact = int(Decimal(text) * 1_000_000)
    assert picoseconds_since((float(text), 1), 0).tolist() == [exact, 1_000_000]
    assert picoseconds(float(text)) == exact
    with pytest.raises(OverflowError):
        picoseconds_since((float(text), 1e9), 0)
    with pytest.raises(TypeError):
        picoseconds_since((float(text),), 5)


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.text("0123456789", min_size=1, max_size=6)), min_size=1, max_size=9)
)
def test_times_at_once_are_exact(parts: list[tuple[int, str]]) -> None:
    texts = [f"{1_712_193_518_000_000 + whole}.{fraction}" for whole, fraction in parts]
    base = 1_712_193_518_000_000
    try:
        found = picoseconds_since(texts, base).tolist()
    except OverflowError:  # more digits than 64 bits hold: the exact way takes them
        assert max(len(t) for t in texts) > 19
        return
    assert found == [int((Decimal(t) - base) * 1_000_000) for t in texts]
    assert found == [picoseconds(t) - base * 1_000_000 for t in texts]


@pytest.mark.parametrize("texts", [["1.5e3"], ["1"], ["-1.0"], ["1.2.3", "4"], ["1.2", "3"], ["1.", "2.0"], ["1.1234567"], ["x"], [""], ["9" * 19 + ".0"], ["1 2.0"]])  # fmt: skip
def test_what_is_no_plain_decimal_goes_the_exact_way(texts: list[str]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        picoseconds_since(texts, 0)


def test_whole_numbers_at_once() -> None:
    assert picoseconds_since((5, 7), 5).tolist() == [0, 2_000_000]
    with pytest.raises(OverflowError):
        picoseconds_since((2**62,), 0)
    with pytest.raises((ValueError, TypeError)):
        picoseconds_since((5, "7.0"), 5)


def short(name: str = "aten::add", dur: str = "1.250", category: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": number(f"{BASE}.125"), "dur": number(dur), "args": {"External id": 1, "Ev Idx": 2, **args}}  # fmt: skip


def as_kineto(text: str) -> str:
    """The line breaks of torch's own exporter."""
    return (
        text.replace(', "ts"', ',\n    "ts"')
        .replace(', "args": {', ',\n    "args": {\n      ')
        .replace("}}", "\n    }\n  }")
    )


@pytest.mark.parametrize("layout", [dumps, lambda e: dumps(e, separators=(",", ":")), lambda e: as_kineto(dumps(e))])
def test_short_ranges_are_cut_out_before_parsing(layout: Any) -> None:
    rows = [short(), short(category="python_function"), short(dur="12.500"), short('q "', "2.0"), short(extra=[1])]
    text = layout([*rows * 9, {"ph": "X", "cat": "kernel"}])
    stream = EventStream(io.BytesIO(text.encode()), "t", frozenset(), SHORT_RANGE)
    kept = [e for batch in stream for e in batch]
    assert len(kept) + stream.skipped == len(rows) * 9 + 1
    # the first of a batch is kept, whatever it is
    assert stream.skipped == 17 and sum(e.get("dur") == "12.500" for e in kept) == 9
    assert sum(e.get("name") == 'q "' for e in kept) == 9 and sum("extra" in e.get("args", {}) for e in kept) == 9


def test_a_batch_of_few_short_ranges_is_not_searched_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    class Counting:
        def fullmatch(self, text: str) -> re.Match[str] | None:
            searched.append(len(text))
            return None

    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", 2000)
    text = dumps([short(dur="12.500")] * 2000)
    list(EventStream(io.BytesIO(text.encode()), "t", frozenset(), Counting()))  # type: ignore[arg-type]
    assert 0 < len(searched) < 400


@pytest.mark.parametrize("broken", ['"Ev Idx": NaN}', '"Ev Idx": 2,}', '"Ev Idx": 2', '"Ev Idx": [}'])
def test_broken_json_in_a_short_range_is_still_refused(broken: str) -> None:
    good = dumps(short())
    text = (
        f"[{good}, {good.replace(chr(34) + 'Ev Idx' + chr(34) + ': 2}', broken)}, {good}, {dumps(short(dur='55.0'))}]"
    )
    with pytest.raises(ProfileError):
        kineto.read(io.BytesIO(text.encode()), "t.json")


def test_events_that_are_cut_out_are_counted() -> None:
    text = dumps({"traceEvents": [short() for _ in range(40)]})
    profile = kineto.read(io.BytesIO(text.encode()), "t.json")
    assert profile.header.coverage["events"] == 40 and len(profile.ranges) == 0


def test_columns_hold_all_of_a_row_or_nothing() -> None:
    from robot_perf.profiles.kineto.rows import Columns

    columns = Columns(("a", "b"))
    columns.extend([[1, 2], np.array([3, 4])])
    for bad in ([[1], ["x"]], [[1], [2**70]], [[1]]):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            columns.extend(bad)
    assert {k: v.tolist() for k, v in columns.columns().items()} == {"a": [1, 2], "b": [3, 4]}
