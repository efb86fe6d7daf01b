"""Worlds fitted to a log run as others do: requests come again by the hour, clicks are drawn."""

import json
import shutil

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim import compare, whatif
from cascade_sim.analysis.report.figures.realism import realism_svg
from cascade_sim.analysis.report.sections.realism import realism_headline, realism_page
from cascade_sim.cli import main
from cascade_sim.environments.uncertainty.replicates import OF_REPLICATES
from cascade_sim.foundation.errors import ScenarioError, UserError
from cascade_sim.logs.fit.fitted import sampled_store
from cascade_sim.logs.fit.realism import matching_whatifs, realism
from cascade_sim.logs.replay.fitted import Resampling
from cascade_sim.scenario.file import load_scenario
from cascade_sim.study.simulation import Simulation
from drills.hostile.sealing import changed_column, changed_json, reseal

REQUESTS = 1600


@pytest.fixture(scope="module")
def sim(place):
    return Simulation(load_scenario(place / "world.yaml"), 1, home=place)


@pytest.fixture(scope="module")
def world(sim, place):
    return sampled_store(sim, place / "sampled", REQUESTS)


def test_requests_stand_for_logged_ones_of_the_same_hour_of_the_day():
    time = np.sort(np.random.default_rng(1).random(5000)) * 5 * 86_400
    drawn = Resampling(time, "hour", 7)
    requests = 4 * 10**9 + np.arange(9000)
    rows, times = drawn.place(requests)
    assert np.array_equal(time[rows] // 3600 % 24, times // 3600 % 24)
    assert np.all(np.diff(times) >= 0) and times[-1] > time[-1]
    part = np.array([17, 4000, 8999])
    assert np.array_equal(drawn.place(requests[part])[0], rows[part])
    other = Resampling(time, "hour", 8).place(requests)[0]
    assert not np.array_equal(other, rows)


def test_candidates_and_bids_are_those_of_one_logged_request(sim):
    block = sim.arrivals.block("evaluate", 0, 500)
    rows, log = sim.environment.replay.rows(block.requests), sim.environment.replay.store
    ids = sim.environment.replay.candidates(block.requests)
    for i in (0, 77, 499):
        logged = log.candidates(int(rows[i]), int(rows[i]) + 1, ("ad", "bid"))
        assert ids[i][ids[i] >= 0].tolist() == logged["ad"].tolist()
    bids = sim.platform.bids.bid("opt", block, ids, "none", 0.0)
    assert bids[499][ids[499] >= 0].tolist() == logged["bid"].tolist()


def test_the_share_of_clicks_is_the_logs_and_draws_are_new(world, place):
    from cascade_sim.logs.store.store import open_store

    log = open_store(place / "market")
    rates = [store.about.counts.clicks / store.about.counts.shown for store in (log, world)]
    assert rates[1] == pytest.approx(rates[0], rel=0.15)
    assert world.about.counts.ads == log.about.counts.ads


@pytest.mark.drill
def test_a_sampled_world_is_told_from_its_log_hardly_more_than_its_periods(world, place):
    from cascade_sim.logs.store.store import open_store

    found = realism(open_store(place / "market"), world, resamples=30)
    for what in ("requests", "shown"):
        test = found["two_sample"][what]
        assert abs(test["auc"]["value"] - 0.5) < 0.06
    assert found["missing_columns"] == []
    page = realism_page(found, realism_svg(found))
    assert "Classifier two-sample test (C2ST)" in page and realism_headline(found)[:40] in page
    assert "<svg" in page and "CTR" in page


def test_a_run_of_it_trains_a_model_and_answers_a_what_if(place, capsys):
    text = (place / "world.yaml").read_text()
    head, _, arms = text.partition("arms:")
    features = "[user, context, quality, tier, ad_id]"
    models = f"models:\n  own: {{features: {features}, dims: 4, hidden: 8, epochs: 1, data: [log]}}\n"
    phases = "phases: {cold_start: 0, log: 1500, shadow: 0, evaluate: 600}\n"
    head = head[: head.index("phases:")] + phases + models
    own = place / "trained.yaml"
    own.write_text(f"{head}arms:\n  logged: {{}}\n  own: {{ranking: {{model: own}}}}\n")
    assert main(["run", str(own), "--quiet", "--out", str(place / "run")]) == 0
    metrics = json.loads((place / "run" / "metrics.json").read_text())
    assert metrics["arms"]["own"]["ctr"]["value"] > 0
    asked = ["whatif", str(place / "run"), "--set", "auction.reserve_cpc=0.5", "--quiet"]
    assert main(asked) == 0
    answer = json.loads(next((place / "run" / "whatif").glob("*/whatif.json")).read_text())
    assert OF_REPLICATES.format(n=8) in answer["notes"]
    rows = matching_whatifs([answer], [answer])
    assert rows and all(row["is_inside"] and row["overlaps"] for row in rows)


@pytest.fixture(scope="module")
def runs(place):
    """The world as it is, with a higher reserve, and without replicates."""
    alone = place / "alone.yaml"
    market = str(place / "market")
    assert main(["fit-world", market, "--replicates", "0", "--out", str(alone), "--quiet"]) == 0
    folders = {name: place / name for name in ("plain", "dear", "one fit")}
    changed = ["--set", "auction.reserve_cpc=0.5"]
    for name, words in (("plain", ["world.yaml"]), ("dear", ["world.yaml", *changed]), ("one fit", [alone])):
        file, *more = words
        assert main(["run", str(place / file), *more, "--quiet", "--out", str(folders[name])]) == 0
    return folders


@pytest.mark.drill
def test_intervals_have_the_doubt_of_the_fit_in_them_and_values_have_not(runs):
    arms = [json.loads((runs[name] / "metrics.json").read_text())["arms"] for name in ("plain", "one fit")]
    sure, alone = (arm["logged"]["expected_revenue_per_request"] for arm in arms)
    assert sure["value"] == alone["value"]
    assert sure["high"] - sure["low"] > 1.2 * (alone["high"] - alone["low"])


@pytest.mark.drill
def test_two_runs_in_it_are_compared_with_the_intervals_of_a_what_if(runs):
    measure = "metric == 'expected_revenue_per_request'"
    (both,) = compare(runs["plain"], runs["dear"]).frame().query(measure).to_dict("records")
    (asked,) = whatif(runs["plain"], {"auction.reserve_cpc": 0.5}).frame().query(measure).to_dict("records")
    assert both["is_paired"]
    for key in ("lift", "lift_low", "lift_high"):
        assert both[key] == pytest.approx(asked[key], abs=1e-9)


@pytest.mark.drill
def test_runs_of_two_responses_to_one_log_are_not_paired(runs):
    with pytest.raises(UserError, match="world differs"):
        compare(runs["plain"], runs["one fit"])


def test_replicates_that_say_nothing_are_refused(place, capsys):
    asked = ["fit-world", str(place / "market"), "--out", str(place / "few.yaml"), "--replicates"]
    assert main([*asked, "3"]) == 2
    assert "--replicates: expected 0" in capsys.readouterr().err
    assert main([*asked, "9", "--parametric"]) == 2
    assert tells(capsys.readouterr().err, "--replicates")


@pytest.mark.parametrize("column, value, words", [
    ("cvr", None, "cvr.npy changed damaged"),
    ("ctr", np.nan, "ctr.npy: 3 nan, 0 1"),
    ("cvr", 2.0, "cvr.npy: 3 2.0, 0 1"),
    ("user", np.inf, "user.npy: 3 inf"),
    ("moved", np.inf, "moved.npy: 3 inf, finite"),
])  # fmt: skip
def test_a_damaged_response_is_refused(place, tmp_path, capsys, column, value, words):
    copy = shutil.copytree(place, tmp_path / "copy")
    file = copy / "world-click-model" / f"{column}.npy"
    if value is None:
        file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    else:
        changed_column(file, lambda values: values.__setitem__(3, value))
        reseal(copy)
    with refused(*words.split()):
        Simulation(load_scenario(copy / "world.yaml"), 1, home=copy)
    assert main(["validate", str(copy / "world.yaml")]) == 2
    assert tells(capsys.readouterr().err, *words.split())


@pytest.mark.parametrize("change, words", [
    (lambda data: data.update(requests=10**9), "requests 1000000000, 1 1600"),
    (lambda data: data.update(requests="all"), "requests: integer"),
    (lambda data: data.update(slot_effects=[1.0]), "1 4 effects"),
    (lambda data: data["replicates"].update(share=0), "share is 0"),
    (lambda data: data["files"].pop("ctr"), "files are"),
    (lambda data: data.update(delay={"means": [], "weights": [], "window": 1}), "delay is"),
])  # fmt: skip
def test_what_is_said_of_a_response_must_be_possible(place, tmp_path, change, words):
    copy = shutil.copytree(place, tmp_path / "copy")

    def changed(data):
        change(data)
        return data

    changed_json(copy / "world-click-model" / "fitted.json", changed)
    reseal(copy)
    with refused(*words.split()):
        Simulation(load_scenario(copy / "world.yaml"), 1, home=copy)


def test_a_response_that_changes_between_two_reads_is_not_used(place, tmp_path):
    copy = shutil.copytree(place, tmp_path / "copy")
    sim = Simulation(load_scenario(copy / "world.yaml"), 1, home=copy)
    block = sim.arrivals.block("evaluate", 0, 500)
    changed_column(
        copy / "world-click-model" / "ctr.npy", lambda values: values.__setitem__(slice(None), 0.5)
    )
    with refused("ctr.npy", "changed"):
        sim.environment._truth.ctr(block, sim.environment.replay.candidates(block.requests))


def test_a_scenario_that_asks_a_fitted_world_for_what_it_has_not_is_refused(place, capsys):
    text = (place / "world.yaml").read_text()
    bad = place / "bad.yaml"
    bad.write_text(text.replace("arms:", "models:\n  m: {features: [G1]}\narms:"))
    assert main(["validate", str(bad)]) == 2
    assert tells(capsys.readouterr().err, "'G1'")
    bad.write_text(text.replace("world-click-model", "world-click-modl"))
    assert main(["validate", str(bad)]) == 2
    assert tells(capsys.readouterr().err, "'world-click-modl'")


OWN = "models.own={features: [user, quality], dims: 4, data: [log]}"


@pytest.mark.parametrize("asked, words", [
    ("arms={logged: {}, own: {retrieval: {model: own}}}", "arms.own.retrieval.model candidates"),
    ("arms={logged: {}, own: {retrieval: {routes: {a: {model: own}}}}}", "arms.own.retrieval.routes"),
    ("phases.exploration_pool=corpus", "phases.exploration_pool candidates retrieved"),
    ("market={exploration: 0.1, exploration_pool: corpus}", "market.exploration_pool candidates retrieved"),
])  # fmt: skip
def test_no_ads_beyond_the_logged_candidates_are_retrieved_or_explored(place, asked, words):
    with refused(*words.split(), kind=ScenarioError):
        load_scenario(place / "world.yaml", [OWN, "phases.log=100", asked])
