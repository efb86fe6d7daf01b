"""`tune`: settings chosen on pages held out, as many for each model."""

import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.scenario.file import load_scenario
from cascade_sim.study.tuning import NEAR, Trial, means, picked
from worlds.tiny_market import QUICK, TINY

SMALL = [
    f"--set={key}" for key in (*TINY, "phases.cold_start=200", "phases.log=300", "models.rank.objective=rcr")
]


def tune(*words):
    return main(["tune", str(QUICK), *SMALL, "--quiet", "--workers=1", *words])


def trials(n):
    return [Trial("rcr", f"rcr-{i}", {"alpha": i / 10}) for i in range(n)]


def test_the_choice_is_printed_and_written_as_sections_of_a_scenario(tmp_path, capsys):
    out = tmp_path / "new" / "tuned.yaml"
    words = (
        "--models=rank,logloss",
        "--over=learning_rate=0.001,0.02",
        "--over=logloss.learning_rate=0.01,0.03",
    )
    assert tune(*words, "--seeds=11,12", f"--out={out}") == 0
    shown = capsys.readouterr().out
    assert "rank learning_rate=0.001" in shown and "logloss learning_rate=0.03" in shown
    assert shown.count("*") == 2 and tells(shown, "worlds 11, 12", "2 settings")
    text = out.read_text()
    assert text.startswith("# Chosen by `tune`") and "worlds 11, 12" in text
    chosen = [line.split(":", 1) for line in text.splitlines()[2:]]
    overrides = [
        f"models.{name.strip()}.{setting.strip()[1:-1].replace(': ', '=')}" for name, setting in chosen
    ]
    models = load_scenario(QUICK, overrides).models
    assert models["rank"].learning_rate in (0.001, 0.02) and models["logloss"].learning_rate in (0.01, 0.03)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--over=learning_rate=0.01", "--over=alpha=0.1,0.9"], "rank 2, logloss 1"),
        (["--over=learning_rat=0.01"], "'learning_rate'?"),
        (["--over=validation=0.1"], "'validation'"),
        (["--over=y0=0.5"], "rank, logloss y0"),
        (["--over=rnk.alpha=0.5"], "'rank'?"),
        (["--over=learning_rate=-1"], "models.rank.learning_rate=-1: 0"),
        (["--over=learning_rate=0.01", "--models=ltr"], "ltr teacher"),
        (["--over=learning_rate=0.01", "--models=rnk"], "'rank'?"),
        (["--over=learning_rate=0.01", "--seeds=1"], "1 seed"),
        (["--over=learning_rate=0.01", "--seeds=5,5"], "expected different integers"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_work_starts(words, told, capsys):
    seeds = [] if any(word.startswith("--seeds") for word in words) else ["--seeds=11"]
    assert tune(*words, *seeds) == 2
    assert tells(capsys.readouterr().err, *told.split())


def test_rules_choose_by_order_by_scale_or_by_order_among_those_of_good_scale():
    mean = {
        "rcr-0": {"gauc": 0.70, "logloss": 0.200},
        "rcr-1": {"gauc": 0.75, "logloss": 0.200 * (1 + NEAR / 2)},
        "rcr-2": {"gauc": 0.80, "logloss": 0.200 * (1 + NEAR * 2)},
    }
    chosen = {by: picked(trials(3), mean, by).name for by in ("logloss", "balanced", "gauc")}
    assert chosen == {"logloss": "rcr-0", "balanced": "rcr-1", "gauc": "rcr-2"}
    order = {name: {"gauc": measures["gauc"]} for name, measures in mean.items()}
    assert {picked(trials(3), order, by).name for by in chosen} == {"rcr-2"}


def test_measures_are_means_over_worlds():
    assert means([{"a": {"gauc": 0.6}}, {"a": {"gauc": 0.7}}]) == {"a": {"gauc": pytest.approx(0.65)}}
