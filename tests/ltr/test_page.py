"""`cascade_sim ltr` from files to tables, on made-up files and on real ones where they are."""

import json
from dataclasses import replace

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.cli import main
from places import SHARED_DATA
from worlds.ltr_files import made_file

SHARED = SHARED_DATA / "lightgbm_rank"
QUICK = ["--layers", "8", "--epochs", "2", "--batch", "32", "--alpha", "0.5", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    for name, seed, n in (("train", 1, 80), ("valid", 2, 40), ("test", 3, 40)):
        made_file(made, name, seed, n, max_grade=3)
    return made


def arguments(folder, *more, valid=True):
    parts = ("train", "valid", "test") if valid else ("train", "test")
    return ["ltr", *(word for part in parts for word in (f"--{part}", str(folder / part))), *more]


@pytest.mark.drill
def test_all_objectives_on_clicks(folder, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    assert main(arguments(folder, "--binary", *QUICK, "--out", str(out))) == 0
    printed = capsys.readouterr().out
    from cascade_sim.models.objectives import OBJECTIVES

    for name in OBJECTIVES:
        assert f"\n{name} " in printed
    for part in ("softmax+platt", "sbcr+piecewise_linear", "LogLoss", "Strict wins", "Pareto frontier"):
        assert part in printed
    assert sorted(path.name for path in out.iterdir()) == [
        "drift.png",
        "drift.svg",
        "ltr.csv",
        "ltr.html",
        "ltr.json",
        "pareto.png",
        "pareto.svg",
    ]
    assert (out / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((out / "ltr.json").read_text())["cells"]) == len(OBJECTIVES)


@pytest.mark.drill
def test_all_objectives_on_grades_repeat_to_the_byte(folder, tmp_path, capsys):
    for name in ("a", "b"):
        assert main(arguments(folder, *QUICK, "--out", str(tmp_path / name))) == 0
    printed = capsys.readouterr().out
    assert "MSE" in printed and "LogLoss" not in printed and "\nrcr " not in printed
    assert "+platt" not in printed and "\nrcr_regression " in printed
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_without_a_validation_file_every_fifth_list_is_kept_aside(folder, tmp_path, capsys):
    more = ["--binary", "--objective", "pointwise", *QUICK, "--out", str(tmp_path)]
    assert main(arguments(folder, *more, valid=False)) == 0
    assert tells(capsys.readouterr().out, "64 lists", 16, 40)


@pytest.mark.drill
def test_the_defaults_fit_a_small_file(folder, tmp_path, capsys):
    """Two steps an epoch, as of a batch for large files, would leave nets at their beginning."""
    more = ["--binary", "--objective", "pointwise", "--quiet", "--out", str(tmp_path)]
    assert main(arguments(folder, *more)) == 0
    found = json.loads((tmp_path / "ltr.json").read_text())
    assert found["steps"] / found["epochs"] == 20 and found["layers"] == [64, 32]
    (row,) = found["rows"]
    assert row["loss"]["value"] < found["constant_loss"]
    capsys.readouterr()
    assert main(arguments(folder, *more, "--epochs", "2", "--batch", "40", "--layers", "4")) == 0
    found = json.loads((tmp_path / "ltr.json").read_text())
    assert (found["steps"], found["layers"]) == (4, [4])
    assert "Still learning: pointwise" in capsys.readouterr().out
    assert "Still learning: pointwise" in (tmp_path / "ltr.html").read_text()


@pytest.mark.drill
def test_the_least_positive_grade_can_be_moved(folder, tmp_path):
    losses, orders = [], []
    for grade in ("1", "2"):
        out = tmp_path / grade
        more = ["--binary", "--positive-from", grade, "--objective", "pointwise", *QUICK]
        assert main(arguments(folder, *more, "--out", str(out))) == 0
        found = json.loads((out / "ltr.json").read_text())
        losses.append(found["constant_loss"])
        orders.append(found["skipped"])
    assert losses[0] != losses[1]  # other labels
    assert orders[0] == orders[1]  # the order is of the grades, which are the same


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--objective", "softmx"], "'softmx' 'softmax'?"),
        (["--objective", "jrc-mean"], "unknown objective 'jrc-mean'"),
        (["--objective", "rcr-mean"], "rcr --binary"),
        (["--objective", "jrc"], "jrc --binary"),
        (["--calibrator", "platt"], "calibrators --binary"),
        (["--binary", "--calibrator", "plat"], "'plat' 'platt'?"),
        (["--binary", "--objective", "rcr", "--alpha", "0.5,2"], "rcr: alpha [0, 1], 2"),
        (["--binary", "--y0", "-1"], "y0 (0"),
        (["--alpha", "a"], "--alpha 'a'"),
        (["--learning-rate", "0"], "rates 0"),
        (["--dropout", "0.5,1"], "--dropout: 0 1"),
        (["--momentum", "0"], "--momentum: 0 1"),
        (["--budget", "2"], "1 2"),
        (["--baseline", "softmax+plat"], "unknown baseline 'softmax+plat'"),
        (["--layers", "64x32"], "'64x32' 1024-512-256"),
        (["--binary", "--positive-from", "9"], "9"),
        (["--objective", "softmax-grades"], "softmax-grades grades --binary"),
        (["--binary", "--objective", "mse_softplus"], "mse_softplus --binary"),
        (["--objective", "softmax-grade"], "'softmax-grade' 'softmax-grades'?"),
        (["--folds", "5", "--split", "seed"], "--split --folds"),
        (["--folds", "500"], "--folds 500 160"),
        (["--binary", "--positive-from", "0"], "0"),
    ],
)
def test_mistakes_are_refused_with_their_reason(folder, tmp_path, more, message, capsys):
    assert main(arguments(folder, *more, "--quiet", "--out", str(tmp_path))) == 2
    assert tells(capsys.readouterr().err, *message.split())


def test_malformed_lines_are_refused_with_file_and_line(folder, tmp_path, capsys):
    bad = tmp_path / "bad"
    bad.write_text((folder / "test").read_text() + "1 qid:999 1:x\n")
    number = len((folder / "test").read_text().splitlines()) + 1
    parts = ["--train", str(folder / "train"), "--test", str(bad), "--out", str(tmp_path), "--quiet"]
    assert main(["ltr", *parts]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {bad}:{number}: ") and tells(told, "feature 1", "'x'")


SPREAD = ["--preset", "small", "--layers", "4", "--epochs", "2", "--seeds", "2", "--budget", "2", "--quiet"]
RIVALS = [word for name in ("pointwise", "softmax", "rcr") for word in ("--objective", name)]


@pytest.mark.drill
def test_a_preset_prints_the_tables_of_the_papers_and_its_choices_do_not_see_the_test_file(
    folder, tmp_path, capsys
):
    """On a test file of other labels the same settings are chosen, and only the figures differ."""
    lines = (folder / "test").read_text().splitlines()
    other = tmp_path / "other"
    other.write_text("".join(f"{i % 4} {line.split(' ', 1)[1]}\n" for i, line in enumerate(lines)))
    found = []
    for name, test in (("a", folder / "test"), ("b", other)):
        parts = ["--train", str(folder / "train"), "--test", str(test), "--out", str(tmp_path / name)]
        assert main(["ltr", *parts, "--binary", "--baseline", "softmax+platt", *SPREAD, *RIVALS]) == 0
        found.append(json.loads((tmp_path / name / "ltr.json").read_text()))
    printed = capsys.readouterr().out
    for part in (
        "64 lists to train on, 16 to choose by, 40 to test on",
        "2 seeds, 2 trainings of each objective and seed",
        "by NDCG@10: LogLoss",
        "than softmax+platt",
        "Strict wins between approaches",
        "Each seed drew the lists it chose by",
    ):
        assert part in printed
    page = (tmp_path / "a" / "ltr.html").read_text()
    assert "By rule" in page and "Approaches" in page and "AUC-PR" in page
    assert (found[0]["layers"], found[0]["batch"], found[0]["seeds"]) == ([4], 8, [1, 2])
    assert found[0]["trainings"] == {"pointwise": 2, "softmax": 2, "rcr": 2}
    chosen = [
        [row["chosen"] for rows in (one["rows"], *one["by_rule"].values()) for row in rows] for one in found
    ]
    assert chosen[0] == chosen[1]
    assert [row["ndcg"] for row in found[0]["rows"]] != [row["ndcg"] for row in found[1]["rows"]]


@pytest.mark.parametrize("preset", ["web30k", "yahoo", "istella", "small"])
@pytest.mark.parametrize("binary", [True, False])
def test_every_preset_is_a_plan_in_which_all_have_the_same_budget(preset, binary):
    from cascade_sim.commands.studies.ltr import command, make_plan, with_preset

    words = ["--preset", preset, *(["--binary"] if binary else [])]
    context = command.make_context("ltr", words)
    options = with_preset(dict(context.params), context)
    plan = make_plan(options, "cpu")
    budget = {"small": 9}.get(preset, 45)
    assert {len(plan.cells_of(name)) for name in plan.objectives} == {budget}
    assert ("rcr" if binary else "rcr_regression") in plan.objectives and plan.papers
    assert options["inputs"] == ("plain" if preset == "yahoo" else "log1p")
    if preset != "small":
        (rcr,) = (name for name in plan.objectives if name.startswith("rcr"))
        grid = replace(plan, budget=None, dropouts=(0.5,), momenta=(0.1,))  # as published: 15 by 3
        assert len(grid.cells_of(rcr)) == 45 and len(grid.cells_of("pointwise")) == 3
        assert options["layers"] == (1024, 512, 256) and options["batch"] == 128


def test_a_folder_as_published_names_the_three_files(folder, tmp_path, capsys):
    fold = tmp_path / "Fold1"
    fold.mkdir()
    for part, name in (("train", "train.txt"), ("valid", "vali.txt"), ("test", "test.txt")):
        (fold / name).write_bytes((folder / part).read_bytes())
    more = ["--binary", "--objective", "pointwise", *QUICK, "--out", str(tmp_path / "out")]
    assert main(["ltr", "--data", str(fold), *more]) == 0
    assert tells(capsys.readouterr().out, "80 lists", 40)
    for words, message in (
        (
            ["--data", str(tmp_path)],
            ("train.txt", "set1.train.txt", "Fold1"),
        ),
        (["--data", str(tmp_path / "none")], ("none:", "folder")),
        (["--data", str(fold), "--test", str(fold / "test.txt")], ("--data",)),
        (["--train", str(fold / "train.txt")], ("--train", "--test", "--data")),
    ):
        assert main(["ltr", *words, *more]) == 2
        assert tells(capsys.readouterr().err, *message)


def test_folds_need_no_test_file_and_the_gaps_are_told_with_both_intervals(folder, tmp_path, capsys):
    names = [word for name in ("pointwise", "softmax-grades") for word in ("--objective", name)]
    more = ["--binary", "--folds", "3", *names, *QUICK, "--out", str(tmp_path)]
    assert main(["ltr", "--train", str(folder / "train"), *more]) == 0
    printed = capsys.readouterr().out
    assert tells(printed, "3 folds", "26 lists", "95 % t interval")
    found = json.loads((tmp_path / "ltr.json").read_text())
    for row in found["rows"][1:]:
        gap = row["gaps"]["ndcg"]
        line = next(
            line for line in printed.splitlines() if line.startswith(row["name"] + " ") and "±" in line
        )
        told = [f"{gap['gap']:+.4f}", f"±{gap['lists']:.4f}", f"±{gap['folds']:.4f}"]
        assert line.removeprefix(row["name"]).split()[:3] == told
        assert gap["gap"] == pytest.approx(row["ndcg"]["value"] - found["rows"][0]["ndcg"]["value"])
    assert "Gaps to pointwise" in (tmp_path / "ltr.html").read_text()
    assert {chosen["fold"] for chosen in found["rows"][0]["chosen"]} == {0, 1, 2}


def test_features_may_be_left_as_they_are(folder, tmp_path):
    losses = []
    for inputs in ("log1p", "plain"):
        more = ["--binary", "--objective", "pointwise", *QUICK, "--inputs", inputs, "--out", str(tmp_path)]
        assert main(arguments(folder, *more)) == 0
        losses.append(json.loads((tmp_path / "ltr.json").read_text())["rows"][0]["loss"]["value"])
    assert losses[0] != losses[1]


def test_few_lists_cannot_be_split(tmp_path, capsys):
    made_file(tmp_path, "train", 1, 4)
    made_file(tmp_path, "test", 2, 4)
    assert main(arguments(tmp_path, "--out", str(tmp_path), "--quiet", valid=False)) == 2
    assert tells(capsys.readouterr().err, "4 lists")


@pytest.mark.drill
def test_the_shapes_of_calibrated_ranking_on_clicks(tmp_path):
    """Pairs alone are off in scale and drift; Platt mends the scale, not the drift; RCR has neither fault."""
    for name, seed, n in (("train", 1, 500), ("valid", 2, 200), ("test", 3, 200)):
        made_file(tmp_path, name, seed, n)
    more = [word for name in ("pointwise", "ranknet", "rcr") for word in ("--objective", name)]
    more += ["--layers", "16", "--epochs", "12", "--alpha", "0.5", "--dropout", "0", "--batch", "16"]
    assert main(arguments(tmp_path, "--binary", *more, "--quiet", "--out", str(tmp_path))) == 0
    found = json.loads((tmp_path / "ltr.json").read_text())
    rows = {row["name"]: row for row in found["rows"]}
    pcoc = {name: row["pcoc"]["value"] for name, row in rows.items()}
    assert abs(pcoc["ranknet *"] - 1) > 0.5
    assert all(abs(pcoc[name] - 1) < 0.15 for name in ("pointwise", "rcr", "ranknet+platt"))
    assert rows["ranknet *"]["loss"]["gap"] > 0 and rows["ranknet *"]["loss"]["p"] < 0.001
    orders = [row["ndcg"]["value"] for row in found["rows"]]
    assert np.ptp(orders) < 0.05 and min(orders) > 0.7
    assert {name: row["n_stable"] for name, row in rows.items()} == {
        "pointwise": 1,
        "ranknet *": 0,
        "ranknet+platt": 0,
        "rcr": 1,
    }
    drift = {cell["objective"]: abs(cell["change"]) / cell["residual"] for cell in found["cells"]}
    assert drift["ranknet"] > 5 * drift["rcr"]


@pytest.mark.drill
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("more", [["--binary"], []])
def test_real_files_with_list_sizes_beside_them(tmp_path, capsys, more):
    names = ["--objective", "pointwise", "--objective", "softmax", "--objective", "multi_objective"]
    parts = ["--train", str(SHARED / "rank.train"), "--test", str(SHARED / "rank.test")]
    options = [*more, *names, "--layers", "32", "--epochs", "6", "--alpha", "0.5", "--quiet"]
    assert main(["ltr", *parts, *options, "--out", str(tmp_path)]) == 0
    assert tells(capsys.readouterr().out, "161 lists", 40, 50)
    rows = {row["name"]: row for row in json.loads((tmp_path / "ltr.json").read_text())["rows"]}
    assert all(row["ndcg"]["value"] > 0.65 for row in rows.values())  # on grades, whatever was learned
    assert abs(rows["pointwise"]["pcoc"]["value"] - 1) < 0.2 < abs(rows["softmax *"]["pcoc"]["value"] - 1)
    assert rows["pointwise"]["loss"]["value"] < rows["softmax *"]["loss"]["value"]


def test_a_missing_file_is_told_before_another_is_read(tmp_path, capsys):
    there = tmp_path / "train.txt"
    there.write_text("no list at all\n")
    files = {"--train": there, "--test": tmp_path / "trian.txt"}
    parts = [str(part) for pair in files.items() for part in pair]
    assert main(["ltr", *parts, "--quiet", "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in ("--test", "trian.txt: no such file", "train.txt'?"))
    assert not (tmp_path / "out").exists()
