"""The Trainer with a calibrator that is trained with its model, and with dumped scores that are raw."""

import json

import numpy as np
import pytest

from cascade_sim.cascade.links import dumper_of
from cascade_sim.context import RunContext
from cascade_sim.market import study as market_study
from cascade_sim.market.run import MarketRun
from cascade_sim.models.page_training import log_odds
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.training import fit as recipes
from cascade_sim.training.data import dumped_context
from cascade_sim.training.fit import joint_map
from cascade_sim.training.modules import served_scorer
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn

JOINT = {"objective": "sbcr", "calibrator": "piecewise_linear", "fit": "joint"}


def sim_for(market=None, training=None, models=None, **ranker):
    """The learning market with a ranker of this section, and with a calibrator that is not the sigmoid."""
    scenario = learning_scenario(market, **(training or {}))
    rank = scenario.models["rank"].model_copy(update=ranker)
    more = {name: rank.model_copy(update=changes) for name, changes in (models or {}).items()}
    sim = learning_sim(scenario.model_copy(update={"models": {**scenario.models, "rank": rank, **more}}))
    for name, spec in sim.scenario.models.items():
        if spec.calibrator is not None:
            bent = joint_map(sim.view(spec.features), None, 1)
            bent.map.start.copy_(bent.map.start.new_tensor([0.8, -0.7]))
            scorer = sim.scorers[name]
            sim.scorers[name] = served_scorer(name, spec, scorer.view, scorer.module, bent)
    return sim


@pytest.fixture
def fits(monkeypatch):
    """(objective, pages, map before, map after) of every fit on pages."""
    seen, real = [], recipes.train_pages

    def watched(module, view, data, objective, plan, **options):
        before = arrays(options.get("beside"))
        history = real(module, view, data, objective, plan, **options)
        seen.append((objective.name, data, before, arrays(options.get("beside"))))
        return history

    monkeypatch.setattr(recipes, "train_pages", watched)
    return seen


def arrays(net):
    return net and {name: value.numpy().copy() for name, value in net.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def raw_scores(scorer, found, version):
    """What a scorer says of the ads that were shown by this deployment, block by block as served."""
    parts = []
    for settled in found.settled:
        row, slot = np.nonzero(settled.ads >= 0)
        logit = scorer.logit(settled.block, settled.ads)[row, slot]
        parts.append(logit[settled.model_version[row] == version])
    return np.concatenate(parts)


def test_the_dump_is_the_raw_score_and_the_map_goes_on_from_what_is_deployed(fits):
    sim = sim_for(**JOINT)
    study = arrays(sim.scorers["rank"].calibrator.map)
    found = live_and_learn(sim)
    log = found.log
    is_first = log["model_version"] == 0
    assert np.array_equal(log["raw_score"][is_first], raw_scores(sim.scorers["rank"], found, 0))
    served = log_odds(log["prediction"])
    assert served[is_first] == pytest.approx(0.8 * log["raw_score"][is_first] - 0.7, abs=1e-3)
    for name, data, _, _ in fits:
        rows = np.isin(log["request"], data.request)
        assert name == "sbcr" and np.array_equal(data.dumped, log["raw_score"][rows])
    dump = dumped_context(log, found.run.server.arm.stage_names)
    assert np.array_equal(dump.scores, log["raw_score"].astype(np.float64))
    assert len(fits) == 3 and same(fits[0][2], study)
    assert same(fits[1][2], fits[0][3]) and same(fits[2][2], fits[1][3])
    assert not same(fits[2][3], study) and same(arrays(sim.scorers["rank"].calibrator.map), study)
    deployed = found.run.trainer.arm.last.scorer.calibrator
    assert same(arrays(deployed.map), fits[2][3])
    told = found.metrics["learning"]["ranker"]
    assert (told["calibrator"], told["fit"]) == ("piecewise_linear", "joint")


@pytest.mark.drill
def test_the_ranker_of_a_market_learns_what_it_would_without_its_map():
    """Up to the second deployment both are served with the study's calibrator, and show the same pages."""
    weights = []
    for section in (JOINT, {**JOINT, "fit": "held_out"}):
        sim = sim_for({"days": 0.01}, **section)
        weights.append(live_and_learn(sim).run.trainer.state()["weights"]["rank"])
    assert same(*weights)


@pytest.mark.parametrize(
    "section", [{}, {"objective": "sbcr"}, {"objective": "softmax", "calibrator": "platt"}]
)
def test_where_the_prediction_says_it_all_the_log_has_no_other_score(section):
    """Also of scores without a scale: the only log-odds they have are the calibrator's."""
    sim = sim_for({"days": 0.004}, **section)
    assert dumper_of(sim.scorers["rank"]) is None
    found = live_and_learn(sim)
    assert "raw_score" not in found.log
    assert np.isnan(found.run.trainer.recent.state()["raw_score"]).all()


def test_dumped_scores_may_be_those_of_another_model_that_learns_from_the_same_pages(fits):
    sim = sim_for(
        models={"steady": {"objective": "rcr", "calibrator": None}}, **JOINT, logged_scores_from="steady"
    )
    found = live_and_learn(sim)
    log, trainer = found.log, found.run.trainer
    is_first = log["model_version"] == 0
    assert np.array_equal(log["raw_score"][is_first], raw_scores(sim.scorers["steady"], found, 0))
    assert [name for name, _, _, _ in fits] == ["sbcr", "rcr"] * 3
    assert all(fits[i][1] is fits[i + 1][1] for i in (0, 2, 4))
    late = log["model_version"] == 2
    assert not np.allclose(log["raw_score"][late], raw_scores(sim.scorers["steady"], found, 2), atol=1e-3)
    assert trainer.arm.last.scorer.name == "rank" and trainer.dumper.name == "steady"
    assert set(trainer.state()["weights"]) == {"rank", "pre", "steady"}
    assert found.metrics["learning"]["ranker"]["logged_scores_from"] == "steady"


@pytest.mark.drill
def test_a_launch_with_fresh_weights_begins_with_the_sigmoid(fits):
    sim = sim_for(training={"start_from": "random"}, **JOINT)
    log = live_and_learn(sim).log
    first = log["model_version"] == 0
    assert log_odds(log["prediction"])[first] == pytest.approx(log["raw_score"][first], abs=1e-3)
    assert np.abs(fits[0][2]["shift"]).max() > 0  # its features are standardised by the first pages
    assert same(fits[1][2], fits[0][3])


@pytest.mark.drill
@pytest.mark.parametrize("logged_scores_from", [None, "steady"])
def test_a_market_with_a_joint_map_goes_on_to_the_same_bytes(logged_scores_from, tmp_path, monkeypatch):
    """Stopped after its second checkpoint: the map of that moment is in it."""

    def run_in(folder):
        short = {"days": 0.01, "window": 60.0, "checkpoint": 300.0}
        often = {"interval": 120.0, "window": 240.0, "panel": 8}
        sim = sim_for(
            short, often, {"steady": {"objective": "pointwise", "calibrator": None}}, **JOINT,
            logged_scores_from=logged_scores_from,
        )  # fmt: skip
        figures = market_study.run_market(sim, "now", RunContext(folder))
        tables = sorted((folder / "logs").rglob("*.parquet"))
        return json.dumps(figures), [file.read_bytes() for file in tables]

    class Stopped(Exception):
        pass

    kept = []

    def save_and_stop(path, state, save=market_study.save_state):
        save(path, state)
        kept.append(state)
        if len(kept) == 2:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(market_study, "save_state", save_and_stop)
        with pytest.raises(Stopped):
            run_in(tmp_path / "parts")
    assert set(kept[1]["trainer"]["calibrators"]) == {"rank"}
    assert run_in(tmp_path / "parts") == run_in(tmp_path / "whole")


def test_pages_that_ranking_had_no_time_for_have_no_raw_score():
    sim = sim_for(**JOINT)
    spec = resolved_arms(sim.scenario)["now"]
    server = MarketRun(sim, sim.arm("now", spec), sim.scenario.market).server
    block = sim.arrivals.block("evaluate", 0, 6)
    served_by_stage = np.array([2, 1, 2, 1, 2, 2], np.int8)
    lists = server.rank(block, 4, served_by_stage)
    shown = lists.ads >= 0
    assert np.array_equal(np.isfinite(lists.raw_score), shown & (served_by_stage == 2)[:, None])
