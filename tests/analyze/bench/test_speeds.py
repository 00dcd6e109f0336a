"""Blocks that lie apart: the processor's doing where our own work lies apart with them."""

from __future__ import annotations

import pytest

from robot_perf.analyze.bench.speeds import apart_with_ours
from robot_perf.run.bench_report import Block


def block(p50_us: float | None, own_us: float | None) -> Block:
    ns = [None if v is None else round(v * 1000) for v in (p50_us, own_us)]
    return Block(0, 500, ns[0], None, None, 10**9, 20, True, own_p50_ns=ns[1])


# eager and onnxruntime of `mlp` on an H200: blocks of one backend, back to back and at 1000 Hz
@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([(132.7, 9.3), (212.0, 16.0)], "133 to 212 µs (ours 9.30 to 16.0)"),
        ([(376.7, 31.2), (199.4, 16.7)], "199 to 377 µs (ours 16.7 to 31.2)"),
    ],
)  # fmt: skip
def test_both_slow_in_the_same_block_is_the_processor(blocks, words):
    assert apart_with_ours([block(*b) for b in blocks]) == words


@pytest.mark.parametrize(
    "blocks",
    [
        [(132.7, 9.3)],
        [(132.7, 9.3), (150.0, 16.0)],  # the steps are as quick
        [(132.7, 9.3), (212.0, 9.6)],  # our own work is: the policy or its device was slow
        [(132.7, 16.0), (212.0, 9.3)],  # the other way round
        [(132.7, None), (212.0, None)],
        [(None, 9.3), (212.0, 16.0)],
        [(0.0, 0.0), (212.0, 16.0)],
    ],
)
def test_anything_else_is_not_said_of_it(blocks):
    assert apart_with_ours([block(*b) for b in blocks]) == ""
