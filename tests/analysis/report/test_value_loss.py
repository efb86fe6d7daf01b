"""Which stage is named, what to do about it, and that intervals decide both."""

# Wording: headlines and advice must claim no more than their intervals do.

import copy
from itertools import permutations

import pytest

from answers.report import entry, make_metrics
from cascade_sim.analysis.report.section import body_text
from cascade_sim.analysis.report.sections.funnel import (
    alone_table,
    funnel_section,
    recall_table,
    routes_table,
)
from cascade_sim.analysis.report.terminal import terminal_summary
from cascade_sim.analysis.report.value_loss import OF_THE_HEAD, parted_by, value_lost
from cascade_sim.models.recipes import RECIPES

STAGES = ("retrieval", "coarse", "pre_ranking", "ranking")
SETTINGS = {
    "retrieval": {"kind": "similarity", "key": "retrieval", "size": 500},
    "coarse": {
        "kind": "step", "key": "pre_ranking.earlier.coarse", "size": 200, "model": "random",
        "bid": "init", "ranking_bid": "init", "taught": ["distill", "ltr"],
    },
    "pre_ranking": {
        "kind": "step", "key": "pre_ranking", "size": 64, "model": "small", "recipe": "distill",
        "bid": "init", "ranking_bid": "opt", "taught": ["distill", "ltr"],
    },
    "ranking": {"kind": "ranking", "model": "rank", "recipe": "logloss"},
}  # fmt: skip


def gaps(values, half):
    """Of all pairs, with one half width."""
    found = {stage: {} for stage in values}
    for one, other in permutations(values, 2):
        found[one][other] = entry(values[one] - values[other], half)
    return found


def study(losses, gains, half=1.0):
    """A cascade of four stages that lose and would gain so much of 500, with intervals of that half width."""
    metrics = make_metrics()
    losses, gains = (dict(zip(STAGES, numbers, strict=True)) for numbers in (losses, gains))
    shown = 500.0 - sum(losses.values())
    metrics["attribution"] = {
        metrics["baseline"]: {
            "requests": 64,
            "stages": [
                {"stage": stage, "dropped": entry(0.1, 0.01), "ecpm_lost": entry(lost, half), "share": 0.1}
                for stage, lost in losses.items()
            ],
            "ecpm_best": 520.0,
            "ecpm_best_known": entry(500.0, half),
            "ecpm_shown": shown,
            "ecpm_avoidable": {stage: entry(lost, half) for stage, lost in losses.items()},
            "revenue": entry(0.7 * shown, half),
            "perfect_stage": {
                stage: {"ecpm_gain": entry(gain, half), "revenue_gain": entry(gain, half)}
                for stage, gain in gains.items()
            },
            "avoidable_gaps": gaps(losses, half),
            "perfect_gaps": gaps(gains, half),
            "settings": copy.deepcopy(SETTINGS),
        }
    }
    return metrics


def said(metrics):
    headline, *rest = value_lost(metrics)
    return headline, " ".join(rest).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("worst", "words"),
    [
        ("retrieval", ["fixed similarity", "`retrieval: {model: NAME}`", "`retrieval.size` (500 now)"]),
        ("coarse", ["Coarse: try a trained model", "`pre_ranking.earlier.coarse.size` (200 now)"]),
        (
            "pre_ranking",
            ["Pre-ranking: try", "`models.small.recipe`, distill now; for its best ads: arf", "(64 now)"],
        ),
        ("ranking", ["20.0 % that ranking loses", "features tell 20.0 points", "`models.rank`"]),
    ],
)
def test_the_stage_that_loses_most_is_named_with_what_to_do_about_it(worst, words):
    losses = [104.0 if stage == worst else 20.0 for stage in STAGES]
    headline, text = said(study(losses, losses))
    name = worst.replace("_", "-")
    assert headline == f"{name.capitalize()} loses the most value."
    assert f"perfect alone, {name} would change the value shown by +" in text
    assert all(word in text for word in words), text
    others = {"fixed similarity", "Coarse: try", "Pre-ranking: try", "that ranking loses"}
    assert sum(word in text for word in others) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "learned", "key": "retrieval", "size": 300, "model": "two"}, ["models.two", "routes"]),
        ({"kind": "custom", "key": "retrieval", "size": 300}, ["(300 now)", "both as routes"]),
        (
            {"kind": "routes", "routes": {"near": 60, "new": 40}},
            ["routes alone bring: near 12.0 %", "new 3.0 %", "now 60 of near and 40 of new"],
        ),
    ],
)
def test_each_kind_of_retrieval_has_its_own_advice(settings, words):
    metrics = study((100.0, 20.0, 20.0, 20.0), (100.0, 20.0, 20.0, 20.0))
    base = metrics["baseline"]
    metrics["attribution"][base]["settings"]["retrieval"] = settings
    for route, share in (("near", 0.12), ("new", 0.03)):
        metrics["arms"][base][f"best_page_recall_only_by_{route}"] = entry(share, 0.01)
    text = said(metrics)[1]
    assert all(word in text for word in words) and "similarity" not in text


def test_stages_whose_intervals_do_not_part_them_are_named_together():
    close = (100.0, 99.0, 20.0, 20.0)
    headline, text = said(study(close, close, half=2.0))
    assert headline == "Retrieval and coarse lose the most value."
    assert "similarity" in text and "Coarse: try" in text
    headline, text = said(study((100.0, 99.0, 98.0, 97.0), (100.0, 99.0, 98.0, 97.0), half=5.0))
    assert headline == "No stage loses significantly more value than the others."
    assert "try" not in text and "detail_requests" in text


def test_a_stage_that_gains_nothing_alone_is_not_what_to_work_on():
    headline, text = said(study((100.0, 20.0, 20.0, 20.0), (10.0, 60.0, 10.0, 10.0)))
    assert headline == "Retrieval loses the most value; coarse made perfect alone would gain more."
    assert "Coarse: try" in text and "similarity" not in text
    headline, text = said(study((100.0, 20.0, 20.0, 20.0), (0.5, 0.4, 0.3, 0.2)))
    assert headline.startswith("Retrieval loses the most value, but no stage") and "try" not in text


def test_a_run_without_gaps_or_settings_says_what_it_has():
    metrics = study((100.0, 20.0, 20.0, 20.0), (100.0, 20.0, 20.0, 20.0))
    own = metrics["attribution"][metrics["baseline"]]
    for key in ("avoidable_gaps", "perfect_gaps", "settings"):
        del own[key]
    headline, text = said(metrics)
    assert headline == "Retrieval loses the most value." and "+29.4 %" in text and "try" not in text


def test_the_ablation_says_whether_a_step_needs_another_bid_or_another_model():
    metrics = study((10.0, 10.0, 100.0, 10.0), (10.0, 10.0, 100.0, 10.0))
    assert parted_by(metrics, "pre_ranking") == "model" and "opt`" not in said(metrics)[1]
    rows = {row["role"]: row for row in metrics["ablation"]}
    rows["model"]["rcs"], rows["bid"]["rcs"] = entry(0.7, 0.01), entry(0.9, 0.01)
    assert "its bid parts it from ranking; try ranking's bid (`pre_ranking.bid: opt`)" in said(metrics)[1]
    rows["model"]["rcs"] = entry(0.89, 0.02)
    text = said(metrics)[1]
    assert "recipe" in text and "`pre_ranking.bid: opt`" in text and "parts" not in text


def with_pages(metrics):
    for i, own in enumerate(metrics["arms"].values()):
        for page, level in (("ideal_page_recall", 0.3), ("best_page_recall", 0.2)):
            own[page] = entry(level / 4, 0.01)
            for at, stage in enumerate(STAGES[:-1]):
                own[f"{page}_after_{stage}"] = entry(level / (at + 1), 0.01)
            for stage in STAGES[1:]:
                own[f"{page}_of_{stage}"] = entry(0.5, 0.01)
            for kind in ("by", "only_by"):
                own[f"{page}_{kind}_near"] = entry(level / 3 + 0.01 * (i == 1), 0.01)
    return metrics


def test_recall_has_a_column_for_each_stage_and_a_row_for_each_route():
    metrics = with_pages(study((100.0, 20.0, 20.0, 20.0), (100.0, 20.0, 20.0, 20.0)))
    recall, alone, routes = recall_table(metrics), alone_table(metrics), routes_table(metrics)
    assert [width for _, width in recall.groups] == [width for _, width in alone.groups] == [4, 4]
    assert recall.columns[:4] == ["after retrieval", "after coarse", "after pre-ranking", "shown"]
    base = next(row for row in recall.rows if row.label == metrics["baseline"])
    assert [cell.text for cell in base.cells[:4]] == ["30.0", "15.0", "10.0", "7.5"]
    own = next(row for row in alone.rows if row.label == metrics["baseline"])
    assert [cell.text for cell in own.cells[4:]] == ["20.0", "50.0", "50.0", "50.0"]
    other = list(metrics["arms"])[1]
    assert [row.label for row in routes.rows] == [f"{metrics['baseline']}: near", f"{other}: near"]
    assert recall_table(make_metrics()) is alone_table(make_metrics()) is routes_table(make_metrics()) is None
    assert "ideal page" in body_text(funnel_section(metrics), [])


def test_the_terminal_says_it_too_also_of_a_study_of_retrieval():
    metrics = study((100.0, 20.0, 20.0, 20.0), (100.0, 20.0, 20.0, 20.0))
    metrics["arm_changes"] = {"ltr": ["retrieval.size: 500 → 700"]}
    assert "similarity" in str(terminal_summary(metrics))
    metrics["arm_changes"] = {"ltr": ["auction.reserve_cpc: 0 → 1"]}
    assert "similarity" not in str(terminal_summary(metrics))


def test_the_recipes_that_are_advised_are_there():
    assert set(OF_THE_HEAD) <= set(RECIPES)
