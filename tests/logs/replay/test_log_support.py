"""What a log was not asked to hold it is not asked about: refusals say what would have to be logged."""

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.counterfactual.bounds import reserve_bounds
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.logs.store.format import About, Rule
from cascade_sim.logs.store.store import open_store
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.overrides import Refused
from worlds.logged_market import made_market, market_of


def ask(market, *words):
    return what_if_study(market, words)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("cascade.pre_ranking.size=8", "'bids' pre_score"),
        ("cascade.pre_ranking.model=logged", "'bids' pre_score"),
        ("cascade.retrieval.size=200", "200 retrieval logged"),
        ("cascade.slots=9", "9 slots"),
        (
            "cascade.ranking.model=logged-new",
            "'new' score.new",
        ),
        ("cascade.ranking.model=truth", "true CTR"),
        ("bidding.rule=ocpc", "bids logged"),
        ("auction.charging=impression", "per click"),
        ("world.users=10", "world.users"),
    ],
)
def test_a_log_of_bids_refuses_what_it_cannot_know(bids_market, words, text):
    with refused(*text.split(), kind=Refused):
        ask(bids_market, words)


def test_a_part_of_the_retrieved_ads_is_not_known(market):
    with refused("score of retrieval", kind=Refused):
        ask(market, "cascade.retrieval.size=30")


def test_a_reserve_below_which_no_bids_were_logged_is_refused(study, tmp_path):
    arm = study.evaluation.baseline
    market = market_of(
        study.sim, arm, tmp_path / "m", 200, "bids", about={"bids_logged_above": 0.5}
    )  # fmt: skip
    with refused("not logged", kind=Refused):
        ask(market, "auction.reserve_cpc=0.4")
    assert ask(market, "auction.reserve_cpc=0.6")["points"]


def small_log(folder, level="winners", pricing="gsp", **about):
    """Three requests of two slots with prices 0.5 and 0.2, all clicked but the last."""
    requests = {"time": np.arange(3.0), "slots": np.full(3, 2), "first": np.array([0, 2, 4, 6])}
    candidates = {
        "ad": np.array([0, 1] * 3, np.int32),
        "slot": np.array([0, 1] * 3, np.int16),
        "price_micros": np.array([500_000, 200_000] * 3),
        "click": np.array([1, 1, 1, 1, 1, 0], np.int8),
    }
    given = About("small", "2026-11-02T00:00:00+00:00", level=level, rule=Rule(pricing, 1.0, 0.1), **about)
    return made_market(folder, requests, candidates, given)


def test_winners_and_prices_bound_what_a_reserve_earns(tmp_path):
    store = open_store(small_log(tmp_path / "m"))
    bounds = reserve_bounds(store, 0.3, is_first_price=False)
    assert bounds.current == pytest.approx((3 * 0.5 + 2 * 0.2) / 3)
    assert bounds.least == pytest.approx(3 * 0.3 / 3)  # whoever paid 0.2 is gone, and 0.5 may fall to 0.3
    assert bounds.most == pytest.approx((3 * 0.5 + 2 * 0.3) / 3)
    assert reserve_bounds(store, 0.3, is_first_price=True).least == pytest.approx(3 * 0.5 / 3)


def test_a_log_of_winners_gives_its_bounds_with_the_refusal(tmp_path):
    market = small_log(tmp_path / "m")
    with refused("0.3", "0.3 and 0.7", "bounds", kind=Refused):
        ask(market, "auction.reserve_cpc=0.3")
    with refused("'winners'", kind=Refused):
        ask(market, "auction.pricing=first")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("world.users=10", "world.users replay"),
        ("models={mine: {}}", "models.mine features"),
        ("phases.evaluate=10000", "phases.evaluate 500"),
        ("world.replay.log=nowhere", "'nowhere'"),
        (
            "world.replay.digest=abababababababababababababababab",
            "world.replay.digest= '.'",
        ),
        ("phases.log=10", "no such phase"),
    ],
)
def test_a_scenario_of_a_log_is_refused_with_its_place(market, change, text):
    with refused(*text.split(), kind=ScenarioError):
        load_scenario(market / "scenario.yaml", [change])


def test_a_market_is_itself_wherever_it_lies(market, tmp_path, monkeypatch):
    from cascade_sim.scenario.data import dump_scenario, scenario_hash

    here = load_scenario(market / "scenario.yaml")
    monkeypatch.chdir(market)
    there = load_scenario("scenario.yaml")
    assert scenario_hash(here) == scenario_hash(there)
    assert here.world.replay.log != there.world.replay.log
    (tmp_path / "resolved.yaml").write_text(dump_scenario(here))
    assert "users" not in dump_scenario(here)


def test_a_log_does_not_travel_to_other_machines(market, tmp_path, capsys):
    asked = ["run", str(market / "scenario.yaml"), "--engine", "ray", "--out", str(tmp_path / "run")]
    assert main(asked) == 2
    assert tells(capsys.readouterr().err, "--engine", "logs")
