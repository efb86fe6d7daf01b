"""`cascade_sim ltr` from files to tables, on made-up files and on real ones where they are."""

import json

import numpy as np
import pytest

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
    assert "64 lists to train on, 16 to choose by, 40 to test on" in capsys.readouterr().out


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


def test_the_least_positive_grade_can_be_moved(folder, tmp_path):
    rates = []
    for grade in ("1", "2"):
        out = tmp_path / grade
        more = ["--binary", "--positive-from", grade, "--objective", "pointwise", *QUICK]
        assert main(arguments(folder, *more, "--out", str(out))) == 0
        rates.append(json.loads((out / "ltr.json").read_text())["skipped"])
    assert rates[0] < rates[1]  # more lists without positives


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--objective", "softmx"], "unknown objective 'softmx'; did you mean 'softmax'?"),
        (["--objective", "jrc-mean"], "unknown objective 'jrc-mean'"),
        (["--objective", "rcr-mean"], "rcr is for binary labels; add --binary"),
        (["--objective", "jrc"], "jrc is for binary labels; add --binary"),
        (["--calibrator", "platt"], "calibrators give probabilities; add --binary"),
        (["--binary", "--calibrator", "plat"], "unknown calibrator 'plat'; did you mean 'platt'?"),
        (["--binary", "--objective", "rcr", "--alpha", "0.5,2"], "rcr: alpha must be in [0, 1], not 2"),
        (["--binary", "--y0", "-1"], "y0 must be in"),
        (["--alpha", "a"], "'a' is not a number, or numbers with commas between them"),
        (["--learning-rate", "0"], "rates must be greater than 0"),
        (["--layers", "64x32"], "'64x32' is not of the form 1024-512-256"),
        (["--binary", "--positive-from", "9"], "no label of 9 or more"),
        (["--binary", "--positive-from", "0"], "every label is 0 or more, so there is nothing to learn"),
    ],
)
def test_mistakes_are_refused_with_their_reason(folder, tmp_path, more, message, capsys):
    assert main(arguments(folder, *more, "--quiet", "--out", str(tmp_path))) == 2
    assert message in capsys.readouterr().err


def test_malformed_lines_are_refused_with_file_and_line(folder, tmp_path, capsys):
    bad = tmp_path / "bad"
    bad.write_text((folder / "test").read_text() + "1 qid:999 1:x\n")
    number = len((folder / "test").read_text().splitlines()) + 1
    parts = ["--train", str(folder / "train"), "--test", str(bad), "--out", str(tmp_path), "--quiet"]
    assert main(["ltr", *parts]) == 2
    assert capsys.readouterr().err == (
        f"error: {bad}:{number}: the value of feature 1, 'x', is not a finite number\n"
    )


def test_few_lists_cannot_be_split(tmp_path, capsys):
    made_file(tmp_path, "train", 1, 4)
    made_file(tmp_path, "test", 2, 4)
    assert main(arguments(tmp_path, "--out", str(tmp_path), "--quiet", valid=False)) == 2
    assert "4 lists are too few to set some aside" in capsys.readouterr().err


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
    assert "161 lists to train on, 40 to choose by, 50 to test on" in capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads((tmp_path / "ltr.json").read_text())["rows"]}
    limit = 0.8 if more else 0.65
    assert all(row["ndcg"]["value"] > limit for row in rows.values())
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
