import numpy as np
import pytest

from cascade_sim.analysis.metrics import auc
from cascade_sim.environments.evaluators.model_quality import LOG10_EDGES, ModelQuality
from cascade_sim.study.model_quality import QualityStudy

RNG = np.random.default_rng(0)
TRUE = 1 / (1 + np.exp(-RNG.normal(-2, 1, (300, 20))))
ALL = np.ones(TRUE.shape, bool)
SETS = ("win_set", "competitive_set", "pre_ranking_set")


def values(prediction, valid=ALL, is_probability=True, blocks=3):
    quality = ModelQuality(is_probability, 10)
    for part in np.array_split(np.arange(len(TRUE)), blocks):
        quality.add(prediction[part], TRUE[part], valid[part], part // 30)
    return {name: entry["value"] for name, entry in quality.metrics(20, 1).items()}, quality


def test_the_truth_is_calibrated_and_no_score_orders_clicks_better():
    found, _ = values(TRUE)
    assert found["pcoc"] == pytest.approx(1, rel=1e-6) and found["ece"] == pytest.approx(0, abs=1e-6)
    entropy = -(TRUE * np.log(TRUE) + (1 - TRUE) * np.log(1 - TRUE)).mean()
    assert found["logloss"] == pytest.approx(entropy, rel=1e-6)
    assert found["mean_prediction"] == pytest.approx(TRUE.mean(), rel=1e-6)
    shuffled, _ = values(RNG.permuted(TRUE, axis=1))
    assert shuffled["auc"] < found["auc"] and shuffled["logloss"] > found["logloss"]


def test_the_auc_is_that_of_clicks_drawn_from_the_truth():
    found, _ = values(TRUE)
    clicks = RNG.random((200, *TRUE.shape)) < TRUE
    scores = np.broadcast_to(TRUE, clicks.shape)
    assert found["auc"] == pytest.approx(auc(scores.ravel(), clicks.ravel()).mean(), abs=0.003)


@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_the_auc_is_as_fine_for_scores_in_a_narrow_range(scale):
    """Bins follow the scores: predictions that all lie within a millionth are distinguished, too."""
    exact = auc(TRUE.ravel(), TRUE.ravel()).mean()
    assert values(0.3 + scale * TRUE)[0]["auc"] == pytest.approx(exact, abs=1e-3)


def test_the_intervals_are_those_of_whole_groups_of_requests():
    """Requests of a group go together: if a group is all there is, nothing is known about the spread."""
    one, many = ModelQuality(True, 1), ModelQuality(True, 300)
    noisy = np.clip(TRUE * RNG.uniform(0.5, 1.5, (300, 1)), 0, 1)
    one.add(noisy, TRUE, ALL, np.zeros(300, int))
    many.add(noisy, TRUE, ALL, np.arange(300))
    wide, none = many.metrics(200, 1)["pcoc"], one.metrics(200, 1)["pcoc"]
    assert wide["low"] < wide["value"] < wide["high"]
    assert none["value"] == pytest.approx(wide["value"], rel=1e-12)
    assert none["low"] == none["high"]


def test_a_block_in_which_nothing_was_shown_has_no_say():
    found, nothing = ModelQuality(True, 10), np.zeros((5, 20), bool)
    found.add(TRUE[:5], TRUE[:5], nothing, np.zeros(5, int))
    assert {entry["value"] for entry in found.metrics(20, 1).values()} == {None}
    found.add(TRUE, TRUE, ALL, np.arange(300) // 30)
    assert {name: entry["value"] for name, entry in found.metrics(20, 1).items()} == values(TRUE, blocks=1)[0]


def test_a_uniform_scale_moves_the_calibration_but_not_the_order():
    (exact, _), (double, _) = values(TRUE), values(0.5 * TRUE)
    assert double["pcoc"] == pytest.approx(0.5, rel=1e-6)
    assert double["gauc"] == pytest.approx(exact["gauc"], abs=1e-9)
    assert double["ece"] == pytest.approx(0.5 * TRUE.mean(), rel=1e-4)


def test_candidates_that_are_not_there_do_not_count():
    valid = RNG.random(TRUE.shape) < 0.7
    spoiled = np.where(valid, TRUE, 0.999)
    found, _ = values(spoiled, valid)
    assert found["mean_prediction"] == pytest.approx(TRUE[valid].mean(), rel=1e-6)
    assert found["pcoc"] == pytest.approx(1, rel=1e-6)


def test_the_blocks_in_which_requests_come_do_not_matter():
    """But for the AUC, whose bins are quantiles of the first block."""
    noisy = np.clip(TRUE * RNG.uniform(0.5, 1.5, TRUE.shape), 0, 1)
    whole, cut = values(noisy, blocks=1)[0], values(noisy, blocks=7)[0]
    assert whole.pop("auc") == pytest.approx(cut.pop("auc"), abs=1e-3)
    assert whole == pytest.approx(cut, rel=1e-12)


def test_a_score_that_is_only_an_order_has_no_calibration():
    found, quality = values(50 * TRUE, is_probability=False)
    assert set(found) == {"auc", "gauc", "ndcg"} and not quality.density.any()
    assert found["gauc"] == pytest.approx(values(TRUE)[0]["gauc"], abs=1e-9)
    assert found["ndcg"] == pytest.approx(1.0) and values(1 - TRUE)[0]["ndcg"] < 0.9


def test_the_study_covers_the_ranker_and_every_pre_ranker_on_all_sets(study):
    models = study.metrics["models"]
    assert list(models) == ["rank", "logloss", "ltr", "distill-pre"]
    for name, sets in models.items():
        for entry in (sets[kind] for kind in SETS):
            assert 0.4 < entry["gauc"]["value"] < 1 and entry["auc"]["low"] <= entry["auc"]["high"]
            assert ("ece" in entry) == (name != "ltr")


def test_the_level_against_the_ranker_is_the_ratio_of_mean_predictions_of_the_same_ads(study):
    models = study.metrics["models"]
    assert [name for name, of in models.items() if "proxy_pcoc" in of] == ["logloss", "distill-pre"]
    for kind in SETS:
        own, ranker = (models[name][kind]["mean_prediction"]["value"] for name in ("distill-pre", "rank"))
        found = models["distill-pre"]["proxy_pcoc"][kind]
        assert found["value"] == pytest.approx(own / ranker, rel=1e-9)
        assert found["low"] < found["value"] < found["high"]


def test_the_distributions_are_densities_and_the_reliability_is_against_the_ranker(study):
    curves = study.metrics["curves"]
    for kind in SETS:
        density = curves["score_distribution"][kind]["density"]
        assert set(density) == {"rank", "logloss", "distill-pre"}
        for values_ in density.values():
            assert (np.array(values_) * np.diff(LOG10_EDGES)).sum() == pytest.approx(1)
    assert set(curves["proxy_reliability"]) == {"logloss", "distill-pre"}
    count = curves["proxy_reliability"]["logloss"]["count"]
    assert sum(count) == 200 * 60


def test_the_ranker_is_its_own_reference(study):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    found = QualityStudy(sim, ["rank", "logloss"], "rank", study.evaluation.baseline, 128)
    found.add(block, sim.serve(block, study.evaluation.baseline), np.arange(128))
    assert list(found.models) == ["rank", "logloss"]
    assert set(found.curves()["proxy_reliability"]) == {"logloss"}
    assert found.by_model["rank"]["win_set"].sums["bins"].sum(axis=0)[0].sum() == 128 * 3
