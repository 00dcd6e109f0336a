"""Clopper-Pearson bounds and verdict thresholds against the reference tables to 1e-9."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_perf.stats.binomial import clopper_pearson, lower_bound, thresholds, upper_bound

# k, n, upper 95 %, upper 99 %, two-sided 95 %
TABLE = [
    (0, 10, 0.2588655509, 0.3690426555, 0, 0.3084971078),
    (0, 100, 0.02951304961, 0.04500741398, 0, 0.03621669265),
    (1, 100, 0.04655981145, 0.06454273205, 0.000253146033, 0.05445938539),
    (5, 100, 0.1022533776, 0.1258517307, 0.01643187918, 0.1128349111),
    (0, 299, 0.009969146793, 0.01528390421, 0, 0.01226159591),
    (0, 1000, 0.002991249545, 0.004594582648, 0, 0.003682083897),
    (1, 1000, 0.004734993575, 0.006619668396, 2.531748749e-05, 0.00555892428),
    (3, 1000, 0.007735244718, 0.01000979199, 0.0006190999316, 0.008742023238),
    (5, 1000, 0.01048407691, 0.01305542123, 0.001625419518, 0.01162947056),
    (10, 1000, 0.01690317512, 0.0200426059, 0.004805510691, 0.01831324306),
    (0, 2995, 0.0009997444209, 0.001536437897, 0, 0.001230921078),
    (0, 3000, 0.000998079012, 0.001533879132, 0, 0.001228870804),
    (1, 3000, 0.001580301827, 0.002210705763, 8.439233718e-06, 0.001855799994),
    (3, 10000, 0.000775181379, 0.001004157965, 6.187148575e-05, 0.0008764745225),
    (5, 10000, 0.001051013719, 0.001310316998, 0.0001623679342, 0.001166444209),
    (10, 10000, 0.001695631454, 0.002013446322, 0.0004796397238, 0.001838264134),
    (6, 60000, 0.0001973636515, 0.0002428263039, 3.669909331e-05, 0.000217645096),
    (10, 100000, 0.0001696162876, 0.0002014365842, 4.795489514e-05, 0.0001838958454),
]


@pytest.mark.parametrize(("k", "n", "upper95", "upper99", "low", "high"), TABLE)
def test_bounds(k, n, upper95, upper99, low, high):
    assert upper_bound(k, n, 0.95) == pytest.approx(upper95, rel=1e-9)
    assert upper_bound(k, n, 0.99) == pytest.approx(upper99, rel=1e-9)
    assert clopper_pearson(k, n, 0.95) == pytest.approx((low, high), rel=1e-9)


# p0, n, c, PASS if k <=, FAIL if k >=, upper at that k, at k + 1 (for "never": upper at k = 0)
THRESHOLDS = [
    (1e-2, 299, 0.95, 0, 7, 0.009969147, 0.015766783),
    (1e-2, 1000, 0.95, 4, 16, 0.009129953, 0.010484077),
    (1e-2, 10000, 0.95, 83, 118, 0.009953917, 0.010062741),
    (1e-3, 1000, 0.95, None, 4, 0.002991250, None),
    (1e-3, 3000, 0.95, 0, 7, 0.000998079, 0.001580302),
    (1e-3, 5000, 0.95, 1, 10, 0.000948418, 0.001258618),
    (1e-3, 5000, 0.99, 0, 12, 0.000920610, 0.001326922),
    (1e-3, 10000, 0.95, 4, 16, 0.000915116, 0.001051014),
    (1e-3, 60000, 0.95, 47, 74, 0.000998817, 0.001017454),
    (1e-4, 10000, 0.95, None, 4, 0.000299528, None),
    (1e-4, 30000, 0.95, 0, 7, 0.000099853, 0.000158119),
]


@pytest.mark.parametrize(("p0", "n", "c", "passes", "fails", "at", "above"), THRESHOLDS)
def test_thresholds(p0, n, c, passes, fails, at, above):
    found = thresholds(p0, n, c)
    assert (found.pass_at_most, found.fail_at_least) == (passes, fails)
    k = passes or 0
    assert upper_bound(k, n, c) == pytest.approx(at, abs=5e-10)
    if above is not None:
        assert upper_bound(k + 1, n, c) == pytest.approx(above, abs=5e-10)


@pytest.mark.parametrize("p,t0", [(0.9, 3), (0.999, None)])
def test_largest_allowed_misses_of_a_hundred(p, t0):
    assert thresholds(1 - p, 100, 0.99).pass_at_most == t0


def test_largest_allowed_misses_of_a_thousand():
    assert thresholds(1 - 0.9, 1000, 0.99).pass_at_most == 78
    assert thresholds(1 - 0.99, 1000, 0.99).pass_at_most == 2


def test_burst_corrected_bound():
    """60 misses of 60,000 at a design effect of 9."""
    assert upper_bound(60 / 9, 60000 / 9, 0.95) == pytest.approx(0.0019064, abs=5e-8)
    assert upper_bound(60, 60000, 0.95) == pytest.approx(0.0012397, abs=5e-8)


def test_ends():
    assert upper_bound(7, 7, 0.95) == 1
    assert lower_bound(0, 7, 0.95) == 0
    assert lower_bound(7, 7, 0.95) == pytest.approx(0.05 ** (1 / 7))
    assert upper_bound(0, 10**6, 0.95) == pytest.approx(1 - 0.05 ** (1e-6), rel=1e-9)
    assert 0 < lower_bound(10**6, 10**6, 0.95) < upper_bound(10**6 - 1, 10**6, 0.95) < 1
    for k, n, c in ((0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0), (math.nan, 5, 0.95)):
        with pytest.raises(ValueError, match="no bound"):
            upper_bound(k, n, c)
        with pytest.raises(ValueError, match="no bound"):
            lower_bound(k, n, c)


counts = st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
confidences = st.sampled_from([0.9, 0.95, 0.99, 0.999])


@given(counts, confidences)
def test_bounds_enclose_the_ratio_and_are_monotone(kn, c):
    k, n = kn
    low, high = lower_bound(k, n, c), upper_bound(k, n, c)
    assert 0 <= low <= k / n <= high <= 1
    if k < n:
        assert upper_bound(k + 1, n, c) >= high
        assert lower_bound(k + 1, n, c) >= low
    assert upper_bound(k, n + 1, c) <= high
    assert lower_bound(k, n + 1, c) <= low


@given(st.integers(0, 200), st.integers(201, 10**5), st.floats(1, 40), confidences)
def test_a_design_effect_never_tightens_a_bound(k, n, deff, c):
    assert upper_bound(k / deff, n / deff, c) >= upper_bound(k, n, c) - 1e-15
    assert lower_bound(k / deff, n / deff, c) <= lower_bound(k, n, c) + 1e-15


@given(st.integers(1, 3000), st.sampled_from([1e-1, 1e-2, 1e-3]), st.sampled_from([1.0, 3.0, 9.0]))
def test_thresholds_are_the_edges(n, p0, deff):
    found = thresholds(p0, n, 0.95, deff=deff)
    k = -1 if found.pass_at_most is None else found.pass_at_most
    if k >= 0:
        assert upper_bound(k / deff, n / deff, 0.95) <= p0
    if k < n:
        assert upper_bound((k + 1) / deff, n / deff, 0.95) > p0
    if found.fail_at_least is not None:
        assert lower_bound(found.fail_at_least / deff, n / deff, 0.95) > p0
        assert lower_bound((found.fail_at_least - 1) / deff, n / deff, 0.95) <= p0
        assert found.fail_at_least > k
