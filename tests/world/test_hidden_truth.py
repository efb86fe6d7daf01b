"""What a scenario may add to the truth that no feature shows."""

from functools import cache

import numpy as np
import pytest

from cascade_sim.analysis.metrics.ranking import table_auc
from cascade_sim.cascade.serve import Block
from cascade_sim.foundation import random as draws
from cascade_sim.world.truth import DAY, GroundTruth
from cascade_sim.world.world import build_world
from worlds.tiny_market import part_of, tiny_scenario

PLAIN = ("world.users=400", "world.ads=600", "world.pair_noise=0")
EVERYTHING = (
    *("world.intent={weight: 0.7, common_shift_sd: 0.5, per: user_day}", "world.drift.per_day=0.1"),
    *("world.id_effects={user: 0.3, ad: 0.3, advertiser: 0.3, weight: 0.5}",),
    *("world.seasonality={daily: 0.3, weekly: 0.2, groups: {G4: 0.5}}", "world.history.length=5"),
)


@cache
def made(*overrides):
    """A world, its truth and its section."""
    scenario = tiny_scenario(*PLAIN, *overrides)
    world = build_world(scenario.world, scenario.seed)
    return world, GroundTruth(world, scenario.world), scenario.world


def requests_of(users, days=0.0, first=0):
    users = np.asarray(users, np.int32)
    n = len(users)
    return Block(first + np.arange(n), users, np.zeros(n, np.float32), np.full(n, days * DAY))


def corpus(world, n):
    return np.tile(np.arange(world.n_ads, dtype=np.int32), (n, 1))


def logit(ctr):
    return np.log(ctr / (1 - ctr))


def added(block, *overrides):
    """What the options add to the logits of a block with the whole corpus."""
    world, truth, _ = made(*overrides)
    ids = corpus(world, len(block))
    return logit(truth.ctr(block, ids)) - logit(made()[1].ctr(block, ids))


EVERYBODY = requests_of(np.arange(400))


@pytest.mark.parametrize(
    ("option", "variance"),
    [
        ("world.intent.weight=0.7", 0.7**2),
        ("world.intent={weight: 0.7, dims: 1}", 0.7**2),
        ("world.intent={weight: 0.7, group: G2}", 0.7**2),
        ("world.intent={weight: 0, common_shift_sd: 0.8}", 0.8**2),
        ("world.id_effects.weight=0.6", 0.6**2),
        ("world.id_effects={user: 0.5, ad: 0.4, advertiser: 0.3}", 0.5**2 + 0.4**2 + 0.3**2),
    ],
)
def test_hidden_parts_have_mean_0_and_the_variance_of_their_weight(option, variance):
    shift = added(EVERYBODY, option)
    # Means of products of independent normals over 400 requests and 600 ads; 60 advertisers are the fewest.
    few = 60 if "advertiser" in option else 400
    assert abs(shift.mean()) < 4 * np.sqrt(variance / few)
    assert shift.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / few))


def test_the_intent_belongs_to_the_request_and_is_the_dot_product_that_it_says():
    block = requests_of(np.zeros(50), first=10**9)  # one user who comes again and again
    shift = added(block, "world.intent.weight=0.7")
    intent = draws.normal(1, "intent", block.requests[:, None], np.arange(4)[None, :])
    hidden = draws.normal(1, "ad.intent", np.arange(600)[:, None], np.arange(4)[None, :])
    assert shift == pytest.approx(0.7 * intent @ hidden.T / np.sqrt(4), abs=2e-5)


def test_the_intent_of_a_group_meets_the_vectors_that_models_see_of_the_ads():
    block = requests_of(np.zeros(50))
    shift = added(block, "world.intent={weight: 0.7, group: G2}")
    intent = draws.normal(1, "intent", block.requests[:, None], np.arange(2)[None, :])
    seen = made()[0].ad_features["G2"]
    assert shift == pytest.approx(0.7 * intent @ seen.T / np.sqrt(2), abs=2e-5)


def test_the_intent_of_a_users_day_lasts_from_midnight_to_midnight():
    option = "world.intent={weight: 0.7, common_shift_sd: 0.5, per: user_day}"
    at = [added(requests_of([7], days, first), option) for days, first in ((2.01, 0), (2.99, 9), (3.01, 0))]
    assert at[0] == pytest.approx(at[1], abs=1e-12)
    assert abs(np.corrcoef(at[0][0], at[2][0])[0, 1]) < 0.9


def test_the_level_is_common_to_all_ads_of_a_request():
    shift = added(EVERYBODY, "world.intent={weight: 0, common_shift_sd: 0.8}")
    assert np.ptp(shift, axis=1).max() < 1e-9


def test_effects_of_ids_stay_with_the_user_the_ad_and_its_owner():
    world = made()[0]
    later = requests_of(np.arange(400), days=9.0, first=5000)
    options = "world.id_effects={user: 0.5, ad: 0.4, advertiser: 0.3, weight: 0.6}"
    assert added(EVERYBODY, options) == pytest.approx(added(later, options), abs=1e-9)
    owner = added(requests_of([3]), "world.id_effects.advertiser=0.3")[0]
    for advertiser in (0, 5):
        assert np.ptp(owner[world.advertiser == advertiser]) < 1e-5
    user = added(EVERYBODY, "world.id_effects.user=0.5")
    assert np.ptp(user, axis=1).max() < 1e-5 and np.ptp(user[:, 0]) > 1


@pytest.mark.parametrize("per_day", [0.05, 0.3])
@pytest.mark.parametrize("days", [1.0, 4.5])
def test_a_taste_keeps_its_variance_and_loses_its_correlation_by_the_day(per_day, days):
    world, truth, spec = made("world.users=8000", "world.ads=100", f"world.drift.per_day={per_day}")
    everybody = np.arange(8000)
    before = truth._code_now(requests_of(everybody))[:, :14].astype(np.float64)
    now = truth._code_now(requests_of(everybody, days))[:, :14].astype(np.float64)
    assert np.array_equal(before, truth._user_code[:, :14])  # at time 0 as the features show
    scale = np.concatenate([np.full(g.dims, g.weight / np.sqrt(g.dims)) for g in spec.groups.values()])
    n = now.size
    assert (now / scale).mean() == pytest.approx(0, abs=5 / np.sqrt(n))
    assert (now / scale).std() == pytest.approx(1, abs=5 / np.sqrt(2 * n))
    left = np.mean(before / scale * now / scale)
    assert left == pytest.approx((1 - per_day) ** days, abs=5 / np.sqrt(n))


def test_tastes_turn_without_jumps():
    _, truth, _ = made("world.drift.per_day=0.05")
    before, after = (truth._code_now(requests_of(np.arange(400), days)) for days in (2.9999, 3.0001))
    assert np.median(np.abs(after - before)) < 1e-4


def test_seasons_rise_to_the_peak_hour_and_on_saturday_noon():
    block = Block(
        np.arange(4), np.zeros(4, np.int32), np.zeros(4, np.float32), np.array([20, 32, 26, 132]) * 3600.0
    )
    daily = added(block, "world.seasonality.daily=0.4")[:, 0]
    assert daily == pytest.approx([0.4, -0.4, 0.0, 0.4 * np.cos(2 * np.pi * 8 / 24)], abs=1e-9)
    weekly = added(block, "world.seasonality.weekly=0.3")[:, 0]
    assert weekly[3] == pytest.approx(0.3, abs=1e-9)  # 5 days and 12 hours after the beginning of a Monday


def test_a_season_of_a_group_swells_its_weight():
    block = Block(np.arange(2), np.zeros(2, np.int32), np.zeros(2, np.float32), np.array([20, 32]) * 3600.0)
    world, _, spec = made()
    shift = added(block, "world.seasonality.groups.G4=0.5")
    affinity = 1.28 * world.ad_features["G4"] @ world.user_features["G4"][0] / np.sqrt(4)
    assert shift[0] == pytest.approx(0.5 * affinity, abs=2e-5)
    assert shift[1] == pytest.approx(-0.5 * affinity, abs=2e-5)


def test_a_wave_over_a_whole_week_has_mean_0():
    hours = np.arange(168) * 3600.0
    block = Block(np.arange(168), np.zeros(168, np.int32), np.zeros(168, np.float32), hours)
    shift = added(block, "world.seasonality={daily: 0.4, weekly: 0.3, groups: {G4: 0.5}}")
    assert shift.mean(axis=0) == pytest.approx(np.zeros(600), abs=1e-6)


def test_a_pair_has_the_same_bytes_in_any_company():
    world, truth, _ = made(*EVERYTHING)
    rng = np.random.default_rng(0)
    n = 331
    block = Block(
        np.arange(n), rng.integers(0, 400, n).astype(np.int32), np.zeros(n, np.float32),
        rng.uniform(0, 20 * DAY, n),
    )  # fmt: skip
    ids = rng.integers(-1, 600, (n, 37)).astype(np.int32)
    whole, known = truth.ctr(block, ids), truth.ctr_without_noise(block, ids)
    for cut in (slice(0, 1), slice(5, 12), slice(100, 331), [3, 330, 77]):
        part = part_of(block, cut)
        assert truth.ctr(part, ids[cut]).tobytes() == whole[cut].tobytes()
        assert truth.ctr_without_noise(part, ids[cut]).tobytes() == known[cut].tobytes()
    assert np.all(whole[ids < 0] == 0) and np.all(whole[ids >= 0] > 0)


def test_the_best_that_features_could_know_has_every_hidden_part_at_its_mean():
    block, options = requests_of(np.arange(400)), [o for o in EVERYTHING if "drift" not in o]
    world, plain, _ = made()
    ids = corpus(world, 400)
    assert np.array_equal(made(*options)[1].ctr_without_noise(block, ids), plain.ctr(block, ids))
    later = requests_of(np.arange(400), days=6.0)
    _, truth, spec = made("world.drift.per_day=0.1")
    affinity = sum(
        g.weight * world.user_features[k] @ world.ad_features[k].T / np.sqrt(g.dims)
        for k, g in spec.groups.items()
    )
    lost = logit(plain.ctr(later, ids)) - logit(truth.ctr_without_noise(later, ids))
    assert lost == pytest.approx((1 - 0.9**6) * affinity, abs=5e-5)


@pytest.mark.parametrize("option", ["intent.weight", "id_effects.weight"])
def test_the_more_is_hidden_the_less_features_tell_of_the_order(option):
    def gauc(weight):
        world, truth, _ = made(f"world.{option}={weight}")
        ids = corpus(world, 100)
        block = requests_of(np.arange(100))
        auc, pairs = table_auc(truth.ctr_without_noise(block, ids), truth.ctr(block, ids))
        return (auc * pairs).sum() / pairs.sum()

    values = [gauc(weight) for weight in (0.0, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(values) < -0.001)


def test_the_platform_sees_nothing_of_what_is_hidden():
    plain, rich = made()[0], made(*EVERYTHING)[0]
    for name in ("user_features", "ad_features"):
        ours, theirs = getattr(plain, name), getattr(rich, name)
        assert list(ours) == list(theirs)
        assert all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)
    changed = {name for name in vars(plain) if vars(plain)[name] is not vars(rich)[name]}
    assert {"history", "is_timed"} <= changed
    for name in changed - {"history", "is_timed", "user_features", "ad_features"}:
        assert np.array_equal(vars(plain)[name], vars(rich)[name])


def test_hidden_parts_belong_to_the_seed():
    scenario = tiny_scenario(*PLAIN, "world.intent.weight=0.7", "world.id_effects.weight=0.7")
    ids = np.tile(np.arange(50, dtype=np.int32), (5, 1))
    truths = [GroundTruth(build_world(scenario.world, seed), scenario.world) for seed in (1, 1, 2)]
    first, again, other = (truth.ctr(requests_of(range(5)), ids) for truth in truths)
    assert np.array_equal(first, again) and not np.any(first == other)
