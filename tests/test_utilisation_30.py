"""benchmarks/utilisation_30.py: Little's law from two counts, the clients, and the whole of it, tiny, on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
S = 1_000_000_000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import utilisation_30_server

    return utilisation_30_server


def made(server: Any, gauge: list[tuple[int, int, int]], requests: list[tuple[float, float | None]]) -> Any:
    one = server.Server(None, server.Clients((1, 1)), 8, server.Plant())
    one.gauge = gauge
    one.clients.sent = [
        server.Request(int(a * S), 1, done_ns=None if b is None else int(b * S)) for a, b in requests
    ]  # fmt: skip
    return one


def test_the_law_holds_when_both_counts_are_right(server: Any):
    requests = [(i / 10, i / 10 + 0.5) for i in range(200)]
    gauge = [(int(t * S / 20), sum(a <= t / 20 < b for a, b in requests), 0) for t in range(400)]
    law = server.little(made(server, gauge, requests), 5 * S, 15 * S)
    assert law.arrivals_hz == pytest.approx(10.0) and law.time_in_system_s == pytest.approx(0.5)
    assert law.ratio == pytest.approx(1.0, abs=0.02)


def test_the_two_counts_are_not_one(server: Any):
    """A gauge that forgets those who wait breaks the law: L and lambda W come from different places."""
    requests = [(i / 10, i / 10 + 0.5) for i in range(200)]
    law = server.little(made(server, [(0, 2, 0)], requests), 5 * S, 15 * S)
    assert law.mean_in_system == pytest.approx(2.0)
    assert law.ratio == pytest.approx(0.4)


def test_running_and_waiting_are_averaged_over_time_not_over_notes(server: Any):
    law = server.little(made(server, [(0, 1, 0), (9 * S, 3, 5), (20 * S, 9, 9)], []), 0, 10 * S)
    assert (law.running, law.waiting) == (pytest.approx(1.2), pytest.approx(0.5))
    assert law.ratio is None


def test_requests_that_never_ended_are_told(server: Any):
    law = server.little(made(server, [(0, 1, 0)], [(1.0, 2.0), (3.0, None)]), 0, 10 * S)
    assert (law.requests, law.unfinished) == (2, 1)


def test_an_open_loop_sends_at_its_own_times_whatever_the_server_does(server: Any):
    clients = server.Clients((4, 4), rate_hz=200.0, seed=3)
    clients.start(0)
    found = clients.due(10 * S)
    assert len(found) == pytest.approx(2000, rel=0.1)
    assert all(0 < r.sent_ns <= 10 * S for r in found)
    clients.answered(found[0], 10 * S)
    assert clients.due(10 * S) == []


def test_a_closed_loop_sends_on_each_answer_and_begins_steady(server: Any):
    clients = server.Clients((8, 24), concurrency=500, seed=3)
    clients.start(0)
    first = clients.due(0)
    assert len(first) == 500
    assert sum(r.tokens for r in first) / 500 > 16.5  # long requests are found more often than they are sent
    assert sum(r.left for r in first) / 500 == pytest.approx(9.4, abs=1)
    clients.answered(first[0], 5)
    (following,) = clients.due(5)
    assert (following.sent_ns, following.left, first[0].done_ns) == (5, following.tokens, 5)


def test_the_decoder_makes_tokens_and_keeps_places_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import torch
    from utilisation_30_decoder import FULL, TINY, Decoder

    assert 0.5e9 < FULL.parameters < 1e9
    decoder = Decoder(TINY, "cpu", torch.float32)
    assert decoder.buckets() == [1, 2, 4, 8]
    assert sum(w.numel() for layer in decoder.layers for w in layer.values()) + decoder.embedding.numel() == TINY.parameters  # fmt: skip
    untouched = decoder.keys[0][4:].clone()
    before = decoder.position.clone()
    decoder.decode(3)
    assert torch.equal(decoder.position[:4], before[:4] + 1) and torch.equal(decoder.position[4:], before[4:])
    assert torch.equal(decoder.keys[0][4:], untouched)
    assert (decoder.token[:3] >= 0).all() and (decoder.token < TINY.vocab).all()
    assert torch.isfinite(decoder.stats).all()
    assert (decoder.stats[:3, 0] <= 0).all()  # a log-probability


@pytest.mark.slow
def test_all_of_it_tiny_on_a_cpu(tmp_path: Path):
    words = [sys.executable, str(BENCHMARKS / "utilisation_30.py"), "-o", str(tmp_path), "--tiny", "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode in (0, 1), done.stderr  # 1 on a machine so busy that a load was not steady
    document = json.loads((tmp_path / "utilisation_30.json").read_text())
    rows = {r["name"]: r for r in document["scenarios"]}
    assert list(rows) == ["closed-1", "closed-8th", "closed-full", "open-low", "open-near", "capped", "item", "cpu-28ms"]  # fmt: skip
    assert not [r for r in rows.values() if "skipped" in r]
    for name in ("closed-1", "closed-8th", "capped", "cpu-28ms"):
        assert rows[name]["named"] == rows[name]["planted"], rows[name]["ladder"]["headline"]
    assert rows["cpu-28ms"]["step_median_ns"] > 28_000_000
    assert rows["closed-full"]["right"] is None and rows["item"]["right"] is None  # need a GPU's timeline
    assert rows["capped"]["little"]["waiting"] == pytest.approx(6.0, abs=0.2)
    for row in rows.values():
        assert row["little"]["requests"] > 0 and row["little"]["ratio"] > 0
        assert all(n["mean"] is None and n["reason"] for n in row["numbers"].values())
        assert row["series"] and row["series"][0]["utilisation_pct"] is None
    assert "| closed loop, 1 client |" in (tmp_path / "utilisation_30.md").read_text()
