"""A table that is wider than the screen is split between its columns; every part names its rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robot_perf.render.grid import columns_that_fit, grid

ROWS = [("backend", "p50", "p99", "p50", "p99"), ("eager", "1,000", "2,000", "10", "20")]


def test_a_table_that_fits_stays_whole():
    assert columns_that_fit(ROWS, (1, 3), 1, 60) == [[0, 1, 2, 3, 4]]
    assert columns_that_fit(ROWS, (1, 3), 1, None) == [[0, 1, 2, 3, 4]]


def test_a_group_under_one_heading_stays_together():
    assert columns_that_fit(ROWS, (1, 3), 1, 24) == [[0, 1, 2], [0, 3, 4]]
    assert columns_that_fit(ROWS, (1, 2, 3, 4), 1, 25) == [[0, 1, 2], [0, 3, 4]]


@given(
    widths=st.lists(st.integers(1, 20), min_size=2, max_size=12),
    keys=st.integers(1, 3),
    screen=st.integers(10, 90),
    starts=st.sets(st.integers(0, 11)),
)
def test_every_column_stands_once_and_no_part_is_wider_than_it_must_be(widths, keys, screen, starts):
    keys = min(keys, len(widths) - 1)
    row = tuple("x" * w for w in widths)
    parts = columns_that_fit([row], starts, keys, screen, gap=2)
    named = list(range(keys))
    assert [i for part in parts for i in part[keys:]] == list(range(keys, len(widths)))
    for part in parts:
        assert part[:keys] == named
        groups = sum(i in starts for i in part[keys + 1 :])
        line = grid(tuple(row[i] for i in part), [], gap=2)
        assert len(line) <= screen or groups == 0 or len(part) == keys + 1
