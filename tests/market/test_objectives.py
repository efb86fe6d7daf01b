"""Models with an objective in a market that retrains them."""

import numpy as np
import pytest
import torch

from cascade_sim.cascade.links import with_calibrator
from cascade_sim.cascade.scorers import CoActionScorer
from cascade_sim.models.calibrators import Platt
from cascade_sim.models.objectives import make_objective
from cascade_sim.training import fit as recipes
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn


def sim_for(**ranker):
    scenario = learning_scenario()
    rank = scenario.models["rank"].model_copy(update=ranker)
    scenario = scenario.model_copy(update={"models": {**scenario.models, "rank": rank}})
    return learning_sim(scenario)


@pytest.fixture
def fits(monkeypatch):
    """(module, pages, objective, options) of every fit for an objective."""
    seen, real = [], recipes.train_pages

    def watched(module, view, data, objective, plan, **options):
        seen.append((module, data, objective, options))
        return real(module, view, data, objective, plan, **options)

    monkeypatch.setattr(recipes, "train_pages", watched)
    return seen


@pytest.mark.drill
@pytest.mark.parametrize("name", ["rcr", "sbcr", "jrc", "multi_task"])
def test_the_ranker_is_retrained_for_its_objective_and_the_pre_ranker_by_log_loss(name, fits):
    found = live_and_learn(sim_for(objective=name))
    assert [objective.name for _, _, objective, _ in fits] == [name] * 3
    first, last = fits[0][1], fits[-1][1]
    requests = np.unique(found.log["request"])
    assert set(last.request) <= set(requests) and not set(last.request) <= set(first.request)
    assert len(first.users) == first.lists[-1] and np.isfinite(first.dumped).all()
    served = found.run.trainer.arm.last.scorer
    assert type(served) is CoActionScorer


def test_the_dump_of_a_page_is_what_was_served_on_it(fits):
    found = live_and_learn(sim_for(objective="sbcr"))
    data, log = fits[0][1], found.log
    rows = np.isin(log["request"], data.request)
    served = np.clip(log["prediction"][rows], 2.0**-60, 1 - 2.0**-24)
    assert data.dumped == pytest.approx(np.log(served / (1 - served)), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", ["jrc", "multi_task"])
def test_two_heads_begin_as_the_net_that_the_study_deployed(name):
    torch.manual_seed(1)
    sim = sim_for(objective=name)
    objective = make_objective(name)
    from cascade_sim.market.trainer import net_to_train, served_net

    own = sim.scorers["rank"].module
    wide = net_to_train(own, objective)
    assert wide.heads == 2
    for theirs, mine in zip(served_net(wide, objective).parameters(), own.parameters(), strict=True):
        assert torch.allclose(theirs, mine, atol=1e-6)
    towers = sim.scorers["pre"].module
    again = served_net(net_to_train(towers, objective), objective)
    request = torch.randn(5, towers.request_tower.inner.in_features)
    ads = torch.randn(5, 3, towers.ad_tower.inner.in_features)
    assert torch.allclose(again(request, ads, ads[..., :0]), towers(request, ads, ads[..., :0]), atol=1e-5)


def test_a_calibrator_stays_as_the_study_fitted_it(fits):
    sim = sim_for(objective="softmax", calibrator="platt")
    line = Platt(0.7, -1.5)
    sim.scorers["rank"] = with_calibrator(sim.scorers["rank"], line)
    found = live_and_learn(sim)
    scorer = found.run.trainer.arm.last.scorer
    assert scorer.link == "calibrator" and scorer.calibrator is line and len(fits) == 3
    assert scorer.module is not sim.scorers["rank"].module
