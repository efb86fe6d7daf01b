import pytest

from answers.alpha_sweep import with_sweep, without_sweep
from answers.report import make_metrics
from cascade_sim.analysis.metrics.pareto import (
    PairwiseWins,
    best_of,
    families,
    games_of,
    gap,
    on_frontier,
    significantly_dominates,
    surely_beaten,
    sweep_points,
)
from cascade_sim.analysis.statistics.estimates import Estimate
from cascade_sim.analysis.statistics.moves import strict_wins


@pytest.fixture
def metrics():
    return with_sweep(make_metrics())


def arms(points):
    return [point.arm for point in points]


def by_arm(metrics):
    return {point.arm: point for point in sweep_points(metrics)}


def test_a_family_holds_its_points_by_rising_setting(metrics):
    found = families(sweep_points(metrics))
    assert list(found) == ["pointwise", "softmax", "rcr", "multi_objective"]
    assert arms(found["rcr"]) == ["rcr-a", "rcr-b"]
    assert [p.name for p in found["rcr"]] == ["rcr (α 0.1)", "rcr (α 0.9)"]
    assert found["pointwise"][0].name == "pointwise"


def test_a_ranker_without_a_measured_scale_is_no_point(metrics):
    metrics["models"]["soft"]["win_set"]["logloss"] = {"value": None, "low": None, "high": None}
    assert "soft" not in arms(sweep_points(metrics))
    assert sweep_points(without_sweep(make_metrics())) == []


def test_a_gap_is_the_same_from_both_sides(metrics):
    there, back = gap(metrics, "point", "rcr-a", "gauc"), gap(metrics, "rcr-a", "point", "gauc")
    assert there.value == pytest.approx(0.60 - 0.62) and back.value == pytest.approx(0.62 - 0.60)
    assert (back.low, back.high) == (pytest.approx(0.02 - 0.015), pytest.approx(0.02 + 0.015))
    assert gap(metrics, "point", "nobody", "gauc") == Estimate()


def test_a_win_beyond_noise_needs_both_differences_on_the_better_side(metrics):
    found = by_arm(metrics)
    assert significantly_dominates(metrics, found["rcr-a"], found["point"]) is False  # LogLoss: −0.01 ± 0.015
    assert significantly_dominates(metrics, found["rcr-b"], found["mo-b"]) is False  # GAUC: +0.01 ± 0.015
    metrics["objectives"]["sweep"]["gaps"]["rcr-b"]["mo-b"]["gauc"]["low"] = 0.001
    assert significantly_dominates(metrics, found["rcr-b"], found["mo-b"])
    assert not significantly_dominates(metrics, found["mo-b"], found["rcr-b"])
    assert arms(surely_beaten(metrics, list(found.values()))) == ["mo-b"]


def test_the_frontier_is_what_no_ranker_beats(metrics):
    assert arms(on_frontier(sweep_points(metrics))) == ["soft", "rcr-b", "rcr-a"]


def test_the_best_point_has_the_least_loss_of_those_that_order_as_well_as_any(metrics):
    own = families(sweep_points(metrics))["rcr"]
    assert best_of(metrics, own).arm == "rcr-b"  # rcr-a has less LogLoss, but a GAUC 0.03 ± 0.015 below
    gaps = metrics["objectives"]["sweep"]["gaps"]["rcr-b"]["rcr-a"]["gauc"]
    gaps["low"] = -0.001  # now the two may order alike
    assert best_of(metrics, own).arm == "rcr-a"


def test_games_are_those_of_the_world_and_the_noise_is_that_of_the_pairs(metrics):
    found = games_of(metrics)["rcr"]["multi_objective"]
    assert found == PairwiseWins(games=4, won=2, lost=0, pairs=4, sure_won=0, sure_lost=0)
    assert found.tied == 4 - 2 - 0
    assert sum(games_of(metrics)["rcr"].values(), PairwiseWins()).games == 2 + 2 + 4


def test_games_of_several_worlds_add_up(metrics):
    """The combined file holds means over worlds: 1.5 won in each of two worlds are 3."""
    metrics["seeds"] = {"n": 2, "seeds": [1, 2]}
    metrics["objectives"]["sweep"]["wins"]["rcr"]["multi_objective"]["won"] = 1.5
    found = games_of(metrics)["rcr"]["multi_objective"]
    assert (found.games, found.won, found.tied, found.pairs) == (8, 3, 5, 4)


def test_the_invented_wins_are_those_of_the_invented_values(metrics):
    cells = [{"objective": p.family, **p.values} for p in sweep_points(metrics)]
    assert strict_wins(cells, "gauc", "logloss") == metrics["objectives"]["sweep"]["wins"]
