import csv
import io

import pytest

from answers.report import make_metrics, minimal_metrics
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES
from cascade_sim.analysis.report.sections.ablation import ablation_table
from cascade_sim.analysis.report.sections.arms import all_measures_table, arms_table, spread_table
from cascade_sim.analysis.report.sections.funnel import attribution_table
from cascade_sim.analysis.report.sections.models import models_table
from cascade_sim.analysis.report.sections.money import money_table
from cascade_sim.analysis.report.tables import CSV_COLUMNS, lift_column, metrics_csv
from cascade_sim.analysis.statistics.estimates import MISSING


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


def row_of(table, label):
    return next(row for row in table.rows if row.label == label)


def cell_of(table, label, column):
    return row_of(table, label).cells[table.columns.index(column)]


def test_shares_are_shown_in_percent_with_their_interval(metrics):
    cell = cell_of(arms_table(metrics), "distill-pre", "RCS")
    assert (cell.text, cell.interval, cell.margin) == ("79.8", "[79.2, 80.4]", "±0.6")


def test_a_lift_is_toned_only_when_its_interval_excludes_zero(metrics):
    tones = {row.label: row.cells[0].tone for row in arms_table(metrics).rows}
    assert tones["distill-pre"] == "up" and tones["logloss-small"] == "down" and tones["logloss"] == ""
    lift = metrics["arms"]["distill-pre"]["expected_revenue_per_request"]["lift"]
    low, lift["low"] = lift["low"], -0.001
    assert row_of(arms_table(metrics), "distill-pre").cells[0].tone == ""
    lift["low"] = low


@pytest.mark.parametrize("name", ARM_MEASURES)
def test_a_lift_has_the_colour_of_a_gain_only_where_more_is_better(name):
    sides = {"higher": ("up", "down"), "lower": ("down", "up")}
    lifts = {"more": (0.1, 0.2), "less": (-0.2, -0.1)}
    arms = {
        arm: {name: {"lift": {"value": low, "low": low, "high": high}}} for arm, (low, high) in lifts.items()
    }
    made = lift_column({"baseline": "production", "arms": arms}, list(arms), name)
    assert tuple(cell.tone for cell in made) == sides.get(ARM_MEASURES[name].better, ("", ""))


def test_baseline_and_the_engines_own_arms_are_marked(metrics):
    kinds = {row.label: row.kind for row in arms_table(metrics).rows}
    assert kinds["logloss"] == "baseline" and kinds["ltr"] == ""
    assert {arm for arm, kind in kinds.items() if kind == "reference"} == {
        *("random", "bid_only", "pctr_only", "ranker")
    }


def test_an_undefined_measure_is_a_dash(metrics):
    assert cell_of(arms_table(metrics), "ltr", "PCOC").text == MISSING
    assert cell_of(models_table(metrics), "ltr", "LogLoss").text == MISSING


def test_the_ablation_table_shows_each_combination_of_bid_and_model(metrics):
    labels = [row.label for row in ablation_table(metrics).rows]
    assert labels == ["init-bid × logloss", "opt-bid × logloss", "init-bid × rank", "opt-bid × rank"]
    assert cell_of(ablation_table(metrics), "opt-bid × rank", "RCS %").text == "100.0"


def test_models_are_judged_on_both_sets(metrics):
    table = models_table(metrics)
    assert [heading for heading, _ in table.groups] == ["Win set", "Pre-ranking set"]
    assert sum(width for _, width in table.groups) == len(table.columns)
    assert {row.label for row in table.rows} == set(metrics["models"])


def test_losses_are_listed_by_stage(metrics):
    table = attribution_table(metrics)
    heads = [heading for heading, _ in table.groups]
    assert heads == ["Shown", "Lost at retrieval", "Lost at pre-ranking", "Lost at ranking"]
    assert row_of(table, "logloss").cells[1].text == "171"


def test_every_measure_of_every_arm_is_in_the_large_table(metrics):
    table = all_measures_table(metrics)
    assert {row.label for row in table.rows} == {
        ARM_MEASURES[name].heading for name in metrics["arms"]["ltr"]
    }
    assert set(table.columns) == set(metrics["arms"])


def test_a_measure_the_catalogue_does_not_know_is_shown_under_its_own_name():
    metrics = minimal_metrics()
    metrics["arms"]["only"]["novelty"] = {"value": 0.25, "low": 0.2, "high": 0.3}
    assert row_of(all_measures_table(metrics), "novelty").cells[0].text == "0.250"


def test_the_spread_between_worlds_is_shown_for_several_seeds_only(metrics):
    assert spread_table(metrics) is None
    several = make_metrics(seeds=4)
    sd = several["arms"]["ltr"]["rcs"]["sd"]
    assert cell_of(spread_table(several), "ltr", "RCS").text == f"{100 * sd:.2f}"


def test_tables_without_data_are_left_out():
    metrics = minimal_metrics()
    for table in (ablation_table, models_table, attribution_table, money_table, spread_table):
        assert table(metrics) is None
    assert len(arms_table(metrics).rows) == 1


def test_the_csv_holds_every_number_unrounded(metrics):
    rows = list(csv.DictReader(io.StringIO(metrics_csv(metrics))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == sum(len(measures) for measures in metrics["arms"].values())
    line = next(row for row in rows if (row["arm"], row["metric"]) == ("ltr", "expected_rpm"))
    entry = metrics["arms"]["ltr"]["expected_rpm"]
    assert float(line["value"]) == entry["value"] and float(line["lift_low"]) == entry["lift"]["low"]


def test_undefined_numbers_are_empty_in_the_csv(metrics):
    lines = metrics_csv(metrics).splitlines()
    assert "ltr,proxy_ece,,,,,," in lines
    assert next(line for line in lines if line.startswith("logloss,rcs,")).endswith(
        ",,,"
    )  # no lift over itself


def test_a_measure_perfect_at_zero_or_one_shows_its_difference_and_no_lift(metrics):
    table = all_measures_table(metrics)

    def compared(label):
        return row_of(table, label).cells[table.columns.index("distill-pre")].lift

    assert compared("RPM, expected").startswith("lift +3.7")
    assert compared("Proxy-PCOC") == "difference −0.600"  # 1.02 - 1.62
    arms = metrics["arms"]
    points = 100 * (arms["distill-pre"]["cpc_bias"]["value"] - arms["logloss"]["cpc_bias"]["value"])
    assert compared("CPC bias %") == f"difference {points:+.1f} points".replace("-", "−")
    for label in ("CPC error %", "Proxy-ECE", "Relative proxy-ECE %", "Revenue PCOC"):
        assert compared(label).startswith("difference ")
    assert all(row.cells[table.columns.index("logloss")].lift == "" for row in table.rows)
    assert row_of(table, "Proxy-PCOC").cells[table.columns.index("ltr")].lift == ""


def test_the_floor_of_the_cpc_error_stands_beside_it():
    metrics = make_metrics()
    assert cell_of(money_table(metrics), "ltr", "CPC error, irreducible %").text == MISSING
    metrics["arms"]["ltr"]["cpc_error_irreducible"] = {"value": 0.042, "low": 0.04, "high": 0.044}
    table = money_table(metrics)
    assert table.columns.index("CPC error, irreducible %") == table.columns.index("CPC error %") + 1
    assert cell_of(table, "ltr", "CPC error, irreducible %").text == "4.2"


def test_each_ablation_row_says_what_it_replaces(metrics):
    assert [row.tag for row in ablation_table(metrics).rows] == [
        *("as it is", "bid replaced", "model replaced", "both replaced")
    ]
    assert ablation_table(metrics).columns[-1] == "Revenue lift %"


def test_a_run_without_the_newer_sections_still_makes_every_table():
    metrics = make_metrics()
    for key in ("contrasts", "detail"):
        del metrics[key]
    for row in metrics["ablation"]:
        del row["role"], row["expected_revenue_per_request"]
    assert ablation_table(metrics).columns[-1] == "RPM lift %"
    assert ablation_table(metrics).rows[3].tag == "both replaced"
    assert metrics_csv(metrics) == metrics_csv(make_metrics())
