"""The printed tables, the page and the CSV."""

import copy
import csv
import io
import re

from answers.ltr import made_findings
from answers.section_text import says, section_text
from answers.told import tells
from cascade_sim.analysis.report.sections.ltr import (
    best_words,
    grid,
    headline,
    hints,
    ltr_csv,
    ltr_figures,
    mark,
    number,
    rankers_table,
    text,
)
from cascade_sim.analysis.report.short_page import ltr_page


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
    assert tells(printed, "1,000 lists", "10% of these")
    assert "Holm, all 6 comparisons" in printed


def test_one_seed_has_no_intervals_and_a_plain_mark():
    findings = made_findings()
    findings["seeds"] = [1]
    for row in findings["rows"]:
        row["n_judged"], row["n_stable"] = 1, min(row["n_stable"], 1)
        for metric in ("ndcg", "ndcg_1", "loss", "ece", "pcoc", "auc_pr"):
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


def test_nets_that_were_not_at_their_end_are_named_once():
    found = made_findings()
    assert hints(found) == []
    found["rows"][2]["n_learning"] = 1
    (hint,) = hints(found)
    assert "rcr" in hint and "--epochs" in hint and "softmax" not in hint
    assert hint in text(found)


def test_predictions_that_a_constant_beats_are_named():
    found = made_findings()
    for row in found["rows"]:
        row["loss"]["value"] = 7.15
    (hint,) = hints(found)
    assert "pointwise (7.1500)" in hint and "rcr" in hint and "0.6" in hint
    assert "softmax" not in hint  # is not meant to have a scale


def test_a_page_holds_tables_hints_and_figures_with_names_escaped():
    found = made_findings()
    found["rows"][0]["n_learning"] = 1
    found["rows"][1]["name"] = "<b>softmax"
    svgs = {figure.name: f"<svg id='{figure.name}'></svg>" for figure in ltr_figures(found)}
    page = ltr_page(found, svgs)
    for part in (
        "<svg id='pareto'>",
        "<svg id='drift'>",
        "&lt;b&gt;softmax",
        "Strict wins",
        "Still learning",
    ):
        assert part in page
    assert "<b>softmax" not in page


def test_the_table_of_a_page_is_coloured_where_a_ranker_differs_beyond_chance():
    table = rankers_table(made_findings())
    tones = {row.label: [row.cells[i].tone for i in (0, 1, 2)] for row in table.rows}
    assert tones == {"pointwise": [""] * 3, "softmax *": ["up", "up", "down"], "rcr": [""] * 3}
    assert [row.kind for row in table.rows] == ["baseline", "", ""]


def test_the_csv_has_a_line_per_ranker_and_metric():
    lines = list(csv.DictReader(io.StringIO(ltr_csv(made_findings()))))
    assert len(lines) == 3 * 6
    assert lines[6]["objective"] == "softmax" and float(lines[6]["gap"]) == 0.2


def test_the_headline_says_who_is_best_and_who_is_not_told_apart():
    found = made_findings()
    assert says(headline(found), "rcr", "not significantly different", "pointwise")
    assert says(headline(found), "pointwise", "ahead of")
    assert any(says(line, "rcr", "0.5000") for line in best_words(found))
    many = [f"o{i}" for i in range(7)]
    found["best"]["ndcg"] |= {"near": many, "others": 9}
    assert says(headline(found), "7 of 9") and "o6" not in headline(found)
    assert any("o6" in line for line in best_words(found))
    found["best"] = {"ndcg": None, "loss": None}
    assert best_words(found) == [] and headline(found)


def test_the_page_leads_with_the_answer_and_notes_stand_beside_their_table():
    found = made_findings()
    page = ltr_page(found, {figure.name: "<svg></svg>" for figure in ltr_figures(found)})
    assert headline(found) in section_text(page, "part-0")
    rankers = section_text(page, "part-1")
    assert "Holm" in rankers and "stable" in rankers and "softmax *" in rankers
    wins = next(section_text(page, f"part-{i}") for i in (2, 3) if "games" in section_text(page, f"part-{i}"))
    assert says(wins, "A game", "seed")


def test_objectives_can_be_switched_off():
    found = made_findings()
    page = ltr_page(found, {})
    switches = re.findall(r'<button type="button" aria-pressed="true" data-arm="([^"]+)">', page)
    assert switches == ["pointwise", "softmax", "rcr"]
    assert re.findall(r'<tr[^>]* data-arm="([^"]+)"', page)[:3] == switches
