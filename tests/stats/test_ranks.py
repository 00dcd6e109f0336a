"""Nearest-rank percentiles and their order-statistic intervals, to the printed digits of the reference tables."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from robot_perf.errors import UsageError
from robot_perf.stats.binomial import upper_bound
from robot_perf.stats.ranks import (
    Sample,
    dkw_half_width,
    lower_rank,
    nearest_rank,
    not_estimable,
    parse_percentile,
    smallest_n,
    two_sided_ranks,
    upper_rank,
)

THOUSAND = np.arange(1, 1001)


@pytest.mark.parametrize(("name", "value"), [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("99.99", 1000)])
def test_percentiles_of_1_to_1000(name, value):
    assert Sample.of(THOUSAND).percentile(parse_percentile(name)) == value


def test_agrees_with_numpy_inverted_cdf():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 100, 999):
        values = rng.integers(0, 50, n)
        for q in ("1", "25", "50", "75", "99"):
            expected = np.quantile(values, float(q) / 100, method="inverted_cdf")
            assert Sample.of(values).percentile(parse_percentile(q)) == expected


def test_known_cases_that_other_tools_get_wrong():
    assert Sample.of(np.array([1, 2, 2, 2, 2])).percentile(parse_percentile("p25")) == 2
    assert Sample.of(np.array([10, 20, 30, 40])).percentile(parse_percentile("p75")) == 30
    with pytest.raises(ValueError, match="no rank"):
        Sample.of(np.array([], np.int64)).percentile(parse_percentile("p95"))


def test_ranks_are_exact_where_binary_floats_are_not():
    # 0.07 * 100 is 7.000000000000001 in binary: a float ceil would give rank 8
    assert math.ceil(0.07 * 100) == 8
    assert nearest_rank(parse_percentile("7"), 100) == 7
    assert nearest_rank(parse_percentile("99.9"), 10**6) == 999_000
    assert parse_percentile("99.9") == Fraction(999, 1000)


@pytest.mark.parametrize("text", ["0", "100", "p", "", "-1", "p101", "nan", "fifty", "1e1", "p99.9.9"])
def test_no_percentile(text):
    with pytest.raises(UsageError, match="is not a percentile"):
        parse_percentile(text)


def test_skipped_releases_are_infinite():
    sample = Sample.of(np.array([5, 3, 4]), infinite=2)
    assert sample.n == 5
    assert [sample.at(rank) for rank in range(1, 6)] == [3, 4, 5, math.inf, math.inf]
    assert sample.percentile(Fraction(3, 5)) == 5
    assert sample.percentile(Fraction(61, 100)) == math.inf


# n, p, two-sided 95 % (l, u, coverage), 99 % (l, u), upper 95 % (rank, coverage), lower 95 % (rank, coverage)
INTERVALS = [
    (100, "50", (40, 61, 0.964800), (37, 64), (59, 0.955687), (42, 0.955687)),
    (100, "90", (84, 96, 0.955690), (82, 98), (96, 0.976289), (85, 0.960109)),
    (100, "99", (97, None, None), (96, None), (None, None), (97, 0.981626)),
    (1000, "50", (469, 532, 0.953709), (459, 542), (527, 0.953156), (474, 0.953156)),
    (1000, "90", (881, 919, 0.954907), (875, 925), (916, 0.951497), (884, 0.956656)),
    (1000, "95", (936, 964, 0.958095), (931, 968), (962, 0.956652), (938, 0.961607)),
    (1000, "99", (983, 997, 0.976095), (981, 998), (996, 0.971314), (985, 0.952129)),
    (1000, "99.9", (997, None, None), (996, None), (None, None), (997, 0.981073)),
    (3000, "99", (2959, 2981, 0.957070), (2955, 2984), (2980, 0.965385), (2961, 0.954585)),
    (3000, "99.9", (2993, None, None), (2992, None), (3000, 0.950288), (2994, 0.966567)),
    (10000, "99", (9880, 9920, 0.955755), (9873, 9926), (9917, 0.954481), (9883, 0.957952)),
    (10000, "99.9", (9983, 9997, 0.975457), (9981, 9998), (9996, 0.970804), (9985, 0.951346)),
    (60000, "99.9", (59924, 59956, 0.961563), (59919, 59960), (59953, 0.950906), (59927, 0.955868)),
    (60000, "99.99", (59989, 59999, 0.962566), (59987, 60000), (59999, 0.982652), (59990, 0.957387)),
    (100000, "99.9", (99880, 99920, 0.954789), (99873, 99926), (99917, 0.953760), (99883, 0.957235)),
]


@pytest.mark.parametrize(("n", "name", "two95", "two99", "upper", "lower"), INTERVALS)
def test_order_statistic_intervals(n, name, two95, two99, upper, lower):
    p = parse_percentile(name)
    at_95, at_99 = two_sided_ranks(p, n, 0.95), two_sided_ranks(p, n, 0.99)
    assert (at_95.lower, at_95.upper) == two95[:2]
    assert (at_99.lower, at_99.upper) == two99
    if two95[2] is not None:
        assert at_95.coverage == pytest.approx(two95[2], abs=5e-7)
    assert upper_rank(p, n, 0.95) == upper[0]
    assert lower_rank(p, n, 0.95) == lower[0]
    if upper[0] is not None:
        assert scipy_stats.binom.cdf(upper[0] - 1, n, float(p)) == pytest.approx(upper[1], abs=5e-7)
    assert scipy_stats.binom.sf(lower[0] - 1, n, float(p)) == pytest.approx(lower[1], abs=5e-7)


def test_agrees_with_scipy_quantile_test():
    values = np.arange(1, 1001)
    for name in ("50", "90", "99"):
        p = parse_percentile(name)
        ranks = two_sided_ranks(p, 1000, 0.95)
        interval = scipy_stats.quantile_test(values, p=float(p)).confidence_interval(0.95)
        assert (ranks.lower, ranks.upper) == (interval.low, interval.high)


@pytest.mark.parametrize(
    ("name", "one_sided", "two_sided_95"),
    [
        ("50", (4, 5, 7), 6),
        ("90", (22, 29, 44), 36),
        ("95", (45, 59, 90), 72),
        ("99", (230, 299, 459), 368),
        ("99.9", (2302, 2995, 4603), 3688),
        ("99.99", (23025, 29956, 46050), 36887),
    ],
)
def test_smallest_n_with_a_finite_upper_bound(name, one_sided, two_sided_95):
    p = parse_percentile(name)
    assert tuple(smallest_n(p, c, two_sided=False) for c in (0.9, 0.95, 0.99)) == one_sided
    assert smallest_n(p, 0.95) == two_sided_95
    assert not_estimable(p) == f"not estimable (needs n >= {two_sided_95})"
    assert upper_rank(p, one_sided[1], 0.95) == one_sided[1]
    assert upper_rank(p, one_sided[1] - 1, 0.95) is None


def test_low_percentiles_need_as_many_as_high_ones():
    assert smallest_n(parse_percentile("1"), 0.95) == smallest_n(parse_percentile("99"), 0.95) == 368
    assert two_sided_ranks(parse_percentile("1"), 368, 0.95).lower == 1
    assert two_sided_ranks(parse_percentile("1"), 367, 0.95).lower is None


def test_dkw_band():
    for n, width in ((1000, 0.0429469), (10000, 0.0135810), (60000, 0.0055444)):
        assert dkw_half_width(n) == pytest.approx(width, abs=5e-8)
    with pytest.raises(ValueError, match="empty"):
        dkw_half_width(0)


def test_an_empty_sample_has_no_interval():
    assert upper_rank(Fraction(1, 2), 0, 0.95) is None
    assert lower_rank(Fraction(1, 2), 0, 0.95) is None


percent = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(999, 1000), max_denominator=10_000)


@given(st.lists(st.integers(-(10**12), 10**15), min_size=1), st.integers(0, 5), percent, percent)
def test_percentiles_are_ordered_and_within_min_and_max(values, infinite, p, q):
    sample = Sample.of(np.array(values, np.int64), infinite)
    low, high = sorted((p, q))
    assert sample.percentile(low) <= sample.percentile(high)
    assert min(values) <= sample.percentile(low)
    if not infinite:
        assert sample.percentile(high) <= max(values)


@given(st.integers(1, 3000), percent, st.sampled_from([0.9, 0.95, 0.99]))
def test_ranks_meet_their_definition_and_no_tighter_rank_does(n, p, c):
    u, low = upper_rank(p, n, c), lower_rank(p, n, c)
    cdf = scipy_stats.binom(n, float(p)).cdf
    sf = scipy_stats.binom(n, float(p)).sf
    assert u is None or (cdf(u - 1) >= c and (u == 1 or cdf(u - 2) < c))
    assert u is not None or cdf(n - 1) < c
    assert low is None or (sf(low - 1) >= c and sf(low) < c)


@given(
    st.integers(1, 2000),
    st.integers(0, 40),
    st.sampled_from(["50", "90", "95", "99", "99.9"]),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_duality_of_quantile_bound_and_miss_bound(n, over, name, c):
    """X_(u) <= D exactly when the bound on the share above D is at most 1 - p."""
    over = min(over, n)
    p = parse_percentile(name)
    u = upper_rank(p, n, c)
    quantile_within = u is not None and u <= n - over  # n - over values lie at or below D
    assert quantile_within == (upper_bound(over, n, c) <= float(1 - p) + 1e-15)


def test_duality_example():
    p = parse_percentile("99")
    assert upper_rank(p, 1000, 0.95) == 996
    assert upper_bound(4, 1000, 0.95) <= 0.01 < upper_bound(5, 1000, 0.95)
