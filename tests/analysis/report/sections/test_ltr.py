"""The printed tables."""

import copy

from answers.ltr import made_findings
from cascade_sim.analysis.report.sections.ltr import grid, mark, number, text


def line_of(printed, name):
    return next(line for line in printed.splitlines() if line.startswith(name))


def test_marks_say_better_or_worse_by_the_direction_of_the_metric():
    assert mark({"gap": 0.1, "p": 0.01}, better_is_more=True) == "+"
    assert mark({"gap": 0.1, "p": 0.01}, better_is_more=False) == "-"
    assert mark({"gap": -0.1, "p": 0.01}, better_is_more=False) == "+"
    assert mark({"gap": -0.1, "p": 0.05}, better_is_more=False) == " "
    assert mark({}, better_is_more=True) == " "
    assert mark({"gap": 0.1, "p": None}, better_is_more=True) == " "


def test_the_table_shows_means_marks_and_stability():
    printed = text(made_findings())
    assert "0.5000+±0.010  0.5000-±0.010  0.5000-±0.010" in line_of(printed, "softmax *")
    assert "0 of 3" in line_of(printed, "softmax *")
    assert "0.5,0.1" in line_of(printed, "rcr")  # the alpha chosen most often first
    assert "+" not in line_of(printed, "rcr") and "+" not in line_of(printed, "pointwise")
    assert "1,000 lists to train on" in printed and "10% of these without positives" in printed
    assert "Holm, all 6 comparisons" in printed


def test_one_seed_has_no_intervals_and_a_plain_mark():
    findings = made_findings()
    findings["seeds"] = [1]
    for row in findings["rows"]:
        row["n_judged"], row["n_stable"] = 1, min(row["n_stable"], 1)
        for metric in ("ndcg", "loss", "ece", "pcoc"):
            row[metric]["low"] = row[metric]["high"] = None
    printed = text(findings)
    assert "±" not in printed and line_of(printed, "softmax *").split()[-2] == "no"
    assert " yes" in line_of(printed, "pointwise")


def test_wins_and_frontier_are_printed():
    printed = text(made_findings())
    assert line_of(printed, " 1 pointwise").split()[2:] == ["2", "50%", "50%", "·", "50%"]
    frontier = printed[printed.index("Pareto") :].splitlines()
    assert "3 cells" in frontier[0]
    assert [line.split() for line in frontier[3:]] == [["rcr", "0.5", "0.003", "0.6000", "0.4000"]]


def test_what_there_is_too_little_for_is_left_out():
    findings = made_findings()
    findings["wins"], findings["cells"], findings["comparisons"] = {"rcr": {}}, findings["cells"][:1], 0
    printed = text(findings)
    assert "Strict wins" not in printed and "Pareto" not in printed and "Holm" not in printed
    findings["diverged"] = [{}]
    assert "Left out: 1 trainings" in text(findings)


def test_printing_changes_nothing():
    findings = made_findings()
    before = copy.deepcopy(findings)
    text(findings)
    assert findings == before


def test_numbers_and_columns():
    assert [number(x) for x in (0.12345, 12345.6, None, float("nan"))] == ["0.1235", "1.235e+04", "–", "–"]
    assert grid([["a", "b"], ["long", "1"]]) == ["a     b", "long  1"]
