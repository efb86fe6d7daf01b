import numpy as np
import pytest

from answers.told import refused
from cascade_sim.models.features import make_view

RNG = np.random.default_rng(0)
USER = {
    "user": RNG.standard_normal((5, 1)),
    "G1": RNG.standard_normal((5, 2)),
    "mismatch": RNG.standard_normal((5, 4)),
}
AD = {
    "quality": RNG.standard_normal((7, 1)), "bid": RNG.standard_normal((7, 1)),
    "G1": RNG.standard_normal((7, 2)), "mismatch": RNG.standard_normal((7, 4)),
}  # fmt: skip
USER = {k: v.astype(np.float32) for k, v in USER.items()}
AD = {k: v.astype(np.float32) for k, v in AD.items()}


def view(*names, threshold=0.2):
    return make_view(names, USER, AD, threshold)


def test_a_view_holds_the_named_features_of_each_side_and_nothing_else():
    seen = view("user", "quality", "G1")
    assert np.array_equal(seen.user_table, np.hstack([USER["user"], USER["G1"]]))
    assert np.array_equal(seen.ad_table, np.hstack([AD["quality"], AD["G1"]]))
    assert (seen.request_width, seen.ad_width, seen.pair_width) == (3, 3, 0)


def test_the_context_is_one_more_column_of_the_request():
    seen = view("user", "context")
    rows = seen.request_features(np.array([3, 1]), np.array([0.5, -1.0]))
    assert rows == pytest.approx(np.array([[USER["user"][3, 0], 0.5], [USER["user"][1, 0], -1.0]]))
    assert rows.dtype == np.float32 and seen.request_width == 2


def test_a_side_without_features_gets_a_constant_column():
    assert np.array_equal(view("quality").user_table, np.ones((5, 1)))
    assert np.array_equal(view("user").ad_table, np.ones((7, 1)))


def test_the_pair_feature_is_the_mismatch_above_its_threshold():
    seen = view("mismatch_pair", threshold=0.3)
    users, ads = np.array([0, 4]), np.array([[0, 1, 2], [6, 5, 4]])
    found = seen.pair_features(users, ads)
    for r in range(2):
        for j in range(3):
            h = USER["mismatch"][users[r]] @ AD["mismatch"][ads[r, j]] / 2  # sqrt(4)
            assert found[r, j, 0] == pytest.approx(max(0.0, h - 0.3), abs=1e-6)
    assert found.dtype == np.float32 and found.max() > 0


def test_without_the_pair_feature_its_width_is_0():
    assert view("mismatch").pair_features(np.array([0]), np.array([[1, 2]])).shape == (1, 2, 0)


def test_the_arrays_of_a_view_tell_it_from_every_other():
    """Those of the pair feature as well, which no table of features holds."""
    seen = view("user", "mismatch_pair", threshold=0.3).arrays()
    assert set(seen) == {"view.user", "view.ad", "view.pair_user", "view.pair_ad", "view.pair_threshold"}
    other = view("user", "mismatch_pair", threshold=0.4).arrays()
    assert [name for name in seen if not np.array_equal(seen[name], other[name])] == ["view.pair_threshold"]
    turned = {**AD, "mismatch": AD["mismatch"][::-1].copy()}
    other = make_view(("user", "mismatch_pair"), USER, turned, 0.3).arrays()
    assert [name for name in seen if not np.array_equal(seen[name], other[name])] == ["view.pair_ad"]
    assert set(view("user", "quality").arrays()) == {"view.user", "view.ad"}


def test_an_unknown_feature_is_refused_with_the_known_ones():
    with refused("'G9'", "G1", "quality", kind=ValueError):
        view("user", "G9")
