"""Kineto: streaming is exact wherever the buffer ends, times keep every digit, and what is no device work is left out."""

from __future__ import annotations

import gzip
import io
import json
import resource
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_perf.errors import ProfileError
from robot_perf.profiles import load
from robot_perf.profiles.kineto import importer as kineto
from robot_perf.profiles.kineto import jsonstream, times
from robot_perf.profiles.kineto.jsonstream import EventStream
from robot_perf.profiles.model import NULL, Profile

NASTY = [
    'a },{"b":1} c',
    'say "hi"},{"x":',
    "braces }{ ][",
    'quote " and \\ backslash',
    "\u2028 line",
    "emoji 🙂",
    '}, {"ph": "X"}',
]


def event(**fields: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 1.0,
        "dur": 2.0,
        "args": {"device": 0, "stream": 7, "correlation": 1},
        **fields,
    }


def read(document: Any, source: str = "t.json") -> Profile:
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    return kineto.read(io.BytesIO(text if isinstance(text, bytes) else text.encode()), source)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 300, 5000])
def test_events_are_the_same_wherever_the_buffer_ends(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    events = [event(name=n, args={"list": [{"a": 1}, {"b": n}], "nested": {"x": [1, {"ph": "}"}]}}) for n in NASTY]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}, indent=1)
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", chunk)
    stream = EventStream(io.BytesIO(text.encode()), "t", frozenset({"schemaVersion", "traceName"}))
    found = [e for batch in stream for e in batch]
    assert [e["name"] for e in found] == NASTY
    assert stream.header == {"schemaVersion": 1, "traceName": "x"}
    assert found[0]["args"] == events[0]["args"]


@given(st.lists(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8), lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=3), c, max_size=3), max_leaves=6), max_size=4), max_size=12), st.integers(1, 90))  # fmt: skip
@settings(max_examples=150)
def test_any_array_of_objects_streams_as_json_reads_it(events: list[dict[str, Any]], chunk: int) -> None:
    before = jsonstream.CHUNK_BYTES
    jsonstream.CHUNK_BYTES = chunk
    try:
        stream = EventStream(io.BytesIO(json.dumps(events).encode()), "t", frozenset())
        assert [e for batch in stream for e in batch] == events
    finally:
        jsonstream.CHUNK_BYTES = before


@given(st.integers(0, 2**52), st.integers(0, 999_999), st.integers(0, 6))
def test_times_are_exact_whatever_their_size(whole: int, fraction: int, digits: int) -> None:
    text = f"{whole}.{fraction:06d}"[: len(str(whole)) + 1 + digits] if digits else str(whole)
    value: Any = text if digits else whole
    assert times.picoseconds(value) == int(Decimal(text) * 1_000_000)


def test_absolute_epoch_microseconds_keep_their_nanoseconds() -> None:
    base = 1_712_193_518_000_000
    rows = [event(ts=f"@{base}.001@", dur="@1.003@"), event(ts=f"@{base + 480_029}.179@", dur="@0.001@")]
    text = json.dumps(rows).replace('"@', "").replace('@"', "")
    profile = read(text)
    assert profile.kernels["start_ns"].tolist() == [0, 480_029_178]
    assert profile.kernels["dur_ns"].tolist() == [1003, 1]


def test_integer_microseconds_are_noted_and_zero_lengths_kept() -> None:
    profile = read([event(ts=10, dur=0), event(ts=10, dur=1), event(ts=11, dur=2)])
    assert profile.kernels["dur_ns"].tolist() == [0, 1000, 2000]
    assert profile.header.resolution_ns == 1000


@pytest.mark.parametrize(
    "category",
    [
        "cuda_sync",
        "cuda_event",
        "gpu_user_annotation",
        "overhead",
        "cuda_profiler_range",
        "Trace",
        "ac2g",
        "fwdbwd",
        None,
    ],
)
def test_these_rows_are_no_device_work(category: str | None) -> None:
    assert read([event(cat=category)]).kernel_count == 0


@pytest.mark.parametrize("phase", ["s", "f", "i", "M", "C", "B"])
def test_only_complete_events_are_work(phase: str) -> None:
    assert read([event(ph=phase)]).kernel_count == 0


def test_copies_say_direction_and_memory_in_their_name() -> None:
    names = [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy HtoD",
        "odd",
    ]
    table = read([event(cat="gpu_memcpy", name=n) for n in names]).kernels
    assert table["copy"].tolist() == [0, 1, 2, 4, 0, NULL]
    assert table["host_mem"].tolist() == [0, 1, NULL, NULL, 3, NULL]


def test_driver_launches_link_and_flows_are_not_needed() -> None:
    calls = [
        event(cat="cuda_driver", name="cuLaunchKernelEx", pid=5, tid=5, ts=0.5, args={"correlation": 9}),
        event(args={"device": 0, "stream": 1, "correlation": 9}),
    ]
    profile = read(calls)
    assert profile.launch_count == 1 and profile.kernels["api"].tolist() == [0] and profile.apis["ops"].tolist() == [1]


def test_a_row_that_covers_a_later_one_of_its_stream_is_clipped() -> None:
    rows = [event(ts=0.0, dur=100.0), event(ts=10.0, dur=5.0), event(ts=200.0, dur=10.0), event(ts=205.0, dur=10.0)]
    profile = read(rows)
    assert profile.kernels["dur_ns"].tolist() == [10_000, 5000, 10_000, 10_000], "partial overlap is legal"
    assert (profile.header.coverage["clipped_rows"], profile.header.coverage["clipped_ns"]) == (1, 90_000)


def test_negative_durations_are_rejected_and_counted() -> None:
    profile = read([event(dur=-1.0), event()])
    assert (profile.kernel_count, profile.header.coverage["rejected_rows"]) == (1, 1)


def test_short_cpu_ops_are_not_kept_and_long_ones_are() -> None:
    rows = [event(cat="cpu_op", name=f"op{d}", dur=d) for d in (9.999, 10.0, 123.0)] + [
        event(cat="user_annotation", name="a", dur=0.5)
    ]
    ranges = read([*rows, event()]).ranges
    assert {ranges.text("name", i) for i in range(len(ranges))} == {"op10.0", "op123.0", "a"} and len(ranges) == 3


def test_estimated_occupancy_is_never_read() -> None:
    table = read([event(args={"est. achieved occupancy %": 55, "device": 0, "stream": 1, "correlation": 2})]).kernels
    assert not any("occ" in c for c in table.columns)


def test_identities_in_top_level_keys_are_not_kept() -> None:
    document = {
        "username": "canary",
        "host_name": "canary",
        "metadata": {"TOKEN": "canary"},
        "traceEvents": [event()],
        "distributedInfo": {"h": "canary"},
    }
    profile = read(document)
    assert "canary" not in repr(profile.header) and "canary" not in repr(profile.kernels.strings)


def test_names_lose_what_moves_a_terminal() -> None:
    name = "k\x1b[31m\u202e\ud800\n<b>"
    text = read(json.dumps([event(name=name)])).kernels.strings[0]
    assert text.isprintable() and text.encode() and "\x1b" not in text


BROKEN = {
    "truncated": '{"traceEvents": [{"ph": "X", "cat": "ker',
    "cut after an event": '{"traceEvents": [{"ph": "X"},',
    "no end of array": '{"traceEvents": [{"ph": "X"}',
    "no end of object": '{"traceEvents": []',
    "trailing comma": '{"traceEvents": [{"ph": "X"},]}',
    "NaN": '{"traceEvents": [{"ph": "X", "ts": NaN}]}',
    "infinity": '[{"ts": Infinity}]',
    "text after the end": '{"traceEvents": []} {}',
    "no trace": '{"a": 1}',
    "an array of numbers": "[1, 2]",
    "an array of arrays": "[[{}]]",
    "ts is a list": '[{"ph":"X","cat":"kernel","ts":[1],"dur":1}]',
    "ts is text": '[{"ph":"X","cat":"kernel","ts":"abc","dur":1}]',
    "no ts": '[{"ph":"X","cat":"kernel","dur":1}]',
    "ts beyond 64 bits": '[{"ph":"X","cat":"kernel","ts":1e30,"dur":1},{"ph":"X","cat":"kernel","ts":0,"dur":1}]',
    "a huge integer": '[{"ph":"X","cat":"kernel","ts":' + "9" * 5000 + ',"dur":1}]',
    "category is a list": '[{"ph":"X","cat":["kernel"],"ts":1,"dur":1}]',
    "grid is short": '[{"ph":"X","cat":"kernel","ts":1,"dur":1,"args":{"grid":[1]}}]',
    "args is text": '[{"ph":"X","cat":"kernel","ts":1,"dur":1,"args":"x"}]',
    "events is an object": '{"traceEvents": {"a": 1}}',
    "deviceProperties is text": '{"deviceProperties": "x", "traceEvents": []}',
    "deviceProperties of numbers": '{"deviceProperties": [1], "traceEvents": []}',
    "nested too deep": '{"traceEvents": [' + '{"a":' * 100_000,
    "arrays too deep": '{"traceEvents": ' + "[" * 100_000,
    "a key without a value": '{"traceEvents"}',
    "single quotes": "{'traceEvents': []}",
    "a surrogate name": '[{"ph":"X","cat":"kernel","name":"\\ud800","ts":"x","dur":1}]',
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_json_ends_in_one_message(name: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(BROKEN[name])
    assert "t.json" in str(caught.value) and len(str(caught.value)) < 1200


@pytest.mark.parametrize("field", ["ts", "dur", "cat", "args", "grid"])
def test_a_refusal_quotes_nothing_of_the_file(field: str) -> None:
    for secret in ("planted-7f3a", "planted-7f3a.123", ["planted-7f3a"], {"planted-7f3a": 1}):
        bad = event(args={"grid": secret}) if field == "grid" else event(**{field: secret})
        try:
            read([event(), bad])
        except ProfileError as error:
            assert "planted" not in str(error)


def test_the_byte_offset_of_a_fault_is_named() -> None:
    good = json.dumps(event())
    text = '{"traceEvents": [' + ",".join([good] * 50) + ',{"ts": NaN}]}'
    with pytest.raises(ProfileError, match=r"At byte [\d,]+ of the unpacked file") as caught:
        read(text)
    offset = int("".join(c for c in str(caught.value).split("At byte ")[1].split(" of")[0] if c.isdigit()))
    assert abs(offset - text.index('{"ts": NaN')) <= 12


def test_every_truncation_of_a_real_trace_is_one_message(shared_dir: Path, tmp_path: Path) -> None:
    whole = gzip.decompress((shared_dir / "profiles" / "kineto_a100_triton_one_kernel.json.gz").read_bytes())
    for cut in range(1, len(whole.rstrip()) - 1, 397):
        with pytest.raises(ProfileError):
            read(whole[:cut])


def test_two_hundred_thousand_events_in_bounded_memory_and_time(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        for i in range(66_700):
            for row in (
                event(
                    cat="cuda_runtime",
                    name="cudaLaunchKernel",
                    pid=9,
                    tid=9,
                    ts=i * 20.125,
                    dur=5.25,
                    args={"External id": i, "correlation": i + 1},
                ),
                {"ph": "s", "id": i, "pid": 9, "tid": 9, "ts": i * 20.125, "cat": "ac2g", "name": "ac2g"},
                event(
                    ts=i * 20.125 + 6,
                    dur=4.5,
                    args={"device": 0, "stream": 7, "correlation": i + 1, "grid": [1, 2, 3], "block": [4, 5, 6]},
                ),
            ):
                file.write(json.dumps(row) + ",\n")
        file.write("{}]}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    profile = load(path)
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000, "kB more at the peak"
    assert (profile.kernel_count, profile.launch_count) == (66_700, 66_700)


@pytest.mark.parametrize("stamp", [9_000_000_000_000, -9_000_000_000_000, 10**17, "9000000000000.5"])
def test_times_that_would_overflow_are_one_message(stamp: object) -> None:
    text = json.dumps([event(ts=0), event(ts=stamp)])
    with pytest.raises(ProfileError):
        read(text.replace('"9000000000000.5"', "9000000000000.5"))
