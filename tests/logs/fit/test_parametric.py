"""Parameters of a synthetic world from a log's summary statistics: what was put in comes out."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.agents.traffic import activity_cdf, visitors
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.fidelity.sample import take
from cascade_sim.logs.fit import parametric
from cascade_sim.scenario.file import load_scenario
from worlds.other_family import EXAMINED, OtherFamily


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return OtherFamily(requests=2500, days=3.0).store(tmp_path_factory.mktemp("market"))


@pytest.fixture(scope="module")
def fit(store):
    return parametric.fit_parametric(store, 1)


def test_variances_between_ads_users_requests_and_pairs_are_told_from_each_other(tmp_path):
    store = OtherFamily(requests=5000, days=3.0).store(tmp_path)  # users have to come again for theirs
    sample, rng = take(store), np.random.default_rng(1)
    n_ads, users = store.n_ads, sample.requests["user"]
    ad = rng.normal(0, 0.5, n_ads)[sample.candidates["ad"]]
    user = rng.normal(0, 0.6, users.max() + 1)[users][sample.request]
    request = rng.normal(0, 0.4, len(sample))[sample.request]
    pair = rng.normal(0, 0.8, len(sample.request))
    logit = -3 + ad + user + request + pair
    made = replace(sample, candidates={**sample.candidates, "pctr": 1 / (1 + np.exp(-logit))}, _codes={})
    found = parametric.components(made)
    assert found.ad == pytest.approx(np.var(ad), rel=0.2)
    assert found.user == pytest.approx(0.36, rel=0.4)
    assert found.user + found.request == pytest.approx(0.36 + 0.16, rel=0.2)
    assert found.pair == pytest.approx(0.64, rel=0.1)


def test_users_and_their_activity_are_found_from_who_came_again(store):
    sample = take(store)
    draw = np.random.default_rng(2).random(len(sample))
    made = replace(
        sample, requests={**sample.requests, "user": visitors(draw, activity_cdf(900, 0.8))}, _codes={}
    )
    users, exponent = parametric.visitors(made)
    assert users == pytest.approx(900, rel=0.3) and exponent == pytest.approx(0.8, abs=0.2)


def test_delays_of_two_sorts_are_told_apart():
    rng = np.random.default_rng(3)
    delay = np.concatenate([rng.exponential(60, 3000), rng.exponential(90_000, 2000)])
    means, weights = parametric.exponential_mixture(delay)
    assert means[0] == pytest.approx(60, rel=0.5) and means[-1] == pytest.approx(90_000, rel=0.3)
    assert sum(weights) == pytest.approx(1.0)


def test_the_world_has_the_logs_ctr_slots_and_bids(fit):
    rows = {row["name"]: row for row in fit.rows}
    for name, gap in (("ctr", 0.08), ("bid", 0.1), ("candidates", 0.1), ("pctr_spread", 0.35)):
        assert abs(rows[name]["gap"]["value"]) < gap, name
    effects = fit.scenario["world"]["slot_effects"]
    assert effects == pytest.approx(EXAMINED[: len(effects)], abs=0.12)
    assert fit.simulations < 40


def test_what_a_drawn_world_cannot_have_is_said(fit):
    assert any("no segments" in note for note in fit.notes)
    assert not {row["name"]: row["is_reached"] for row in fit.rows}["candidates_spread"]


def test_it_is_a_scenario_without_a_row_of_the_log(fit, store, tmp_path):
    file = tmp_path / "drawn.yaml"
    file.write_text(parametric.fitted_yaml(fit, "other"))
    scenario = load_scenario(file)
    assert scenario.world.replay is None and scenario.world.ads == store.n_ads
    assert scenario.auction.squashing == 0.9 and scenario.auction.reserve_cpc == 0.2


def test_bids_per_impression_are_refused(store):
    store.about, before = store.about.changed(charging="impression"), store.about
    with pytest.raises(UserError, match="charges per impression"):
        parametric.fit_parametric(store)
    store.about = before
